//! `kernels/gemm.cu`, and how fast the tiled product is.

use crate::compare::{Float, near, same_bits};
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/gemm.ptx");

crate::kernel_tests! { sgemm_naive sgemm_tiled sgemm_any dgemm sgemv }

/// Row-major `a` (m, k) times `b` (k, n), in f64.
pub(crate) fn product<A: Float, B: Float>(
    a: &[A],
    b: &[B],
    m: usize,
    n: usize,
    k: usize,
) -> Vec<f64> {
    let a: Vec<f64> = a.iter().map(|x| x.to_f64()).collect();
    let b: Vec<f64> = b.iter().map(|x| x.to_f64()).collect();
    let mut c = vec![0.0; m * n];
    for row in 0..m {
        for i in 0..k {
            for column in 0..n {
                c[row * n + column] += a[row * k + i] * b[i * n + column];
            }
        }
    }
    c
}

#[test]
fn product_of_two_by_two() {
    let found = product(&[1.0f32, 2.0, 3.0, 4.0], &[5.0f32, 6.0, 7.0, 8.0], 2, 2, 2);
    assert_eq!(found, [19.0, 22.0, 43.0, 50.0]);
}

/// Fused multiply-adds in order of k: the bits of every kernel here that adds so.
fn fused(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = vec![0.0f32; m * n];
    for row in 0..m {
        for i in 0..k {
            for column in 0..n {
                let sum = &mut c[row * n + column];
                *sum = a[row * k + i].mul_add(b[i * n + column], *sum);
            }
        }
    }
    c
}

fn sgemm_naive(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (m, n, k) = (48, 32, 80);
    let mut draw = Draw::new(60);
    let (a, b) = (draw.reals(m * k, -1.0, 1.0), draw.reals(k * n, -1.0, 1.0));
    let c = gpu.zeros::<f32>(m * n);
    let arguments = arguments![
        &gpu.upload(&a),
        &gpu.upload(&b),
        &c,
        m as i32,
        n as i32,
        k as i32
    ];
    gpu.run(&module, "sgemm_naive", [2, 3], [16, 16], arguments);
    same_bits("sgemm_naive", &gpu.download(&c), &fused(&a, &b, m, n, k));
}

fn sgemm_tiled(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for (m, n, k) in [(64, 64, 16), (128, 192, 48), (256, 256, 256)] {
        let mut draw = Draw::new(61);
        let (a, b) = (draw.reals(m * k, -1.0, 1.0), draw.reals(k * n, -1.0, 1.0));
        let c = gpu.zeros::<f32>(m * n);
        let arguments = arguments![
            &gpu.upload(&a),
            &gpu.upload(&b),
            &c,
            m as i32,
            n as i32,
            k as i32
        ];
        gpu.run(
            &module,
            "sgemm_tiled",
            [n as u32 / 64, m as u32 / 64],
            256,
            arguments,
        );
        same_bits("sgemm_tiled", &gpu.download(&c), &fused(&a, &b, m, n, k));
    }
}

fn sgemm_any(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (m, n, k) = (35, 51, 29);
    let mut draw = Draw::new(62);
    let (a, b) = (draw.reals(m * k, -1.0, 1.0), draw.reals(k * n, -1.0, 1.0));
    let before = draw.reals(m * n, -1.0, 1.0);
    let c = gpu.upload(&before);
    let arguments = arguments![
        &gpu.upload(&a),
        &gpu.upload(&b),
        &c,
        m as i32,
        n as i32,
        k as i32,
        0.5f32,
        -2.0f32
    ];
    gpu.run(&module, "sgemm_any", [4, 3], [16, 16], arguments);
    let expected: Vec<f64> = product(&a, &b, m, n, k)
        .iter()
        .zip(&before)
        .map(|(product, &c)| 0.5 * product - 2.0 * f64::from(c))
        .collect();
    near("sgemm_any", &gpu.download(&c), &expected, 1e-5, 1e-5);
}

fn dgemm(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (m, n, k) = (20, 33, 40);
    let mut draw = Draw::new(63);
    let (a, b) = (
        draw.doubles(m * k, -1.0, 1.0),
        draw.doubles(k * n, -1.0, 1.0),
    );
    let c = gpu.zeros::<f64>(m * n);
    let arguments = arguments![
        &gpu.upload(&a),
        &gpu.upload(&b),
        &c,
        m as i32,
        n as i32,
        k as i32
    ];
    gpu.run(&module, "dgemm", [3, 2], [16, 16], arguments);
    let element = |row: usize, column: usize| {
        (0..k).fold(0.0, |sum, i| a[row * k + i].mul_add(b[i * n + column], sum))
    };
    let expected: Vec<f64> = (0..m * n).map(|i| element(i / n, i % n)).collect();
    same_bits("dgemm", &gpu.download(&c), &expected);
}

fn sgemv(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (m, k) = (21, 130);
    let mut draw = Draw::new(64);
    let (a, x) = (draw.reals(m * k, -1.0, 1.0), draw.reals(k, -1.0, 1.0));
    let y = gpu.zeros::<f32>(m);
    gpu.run(
        &module,
        "sgemv",
        6,
        128,
        arguments![&gpu.upload(&a), &gpu.upload(&x), &y, m as i32, k as i32],
    );
    near(
        "sgemv",
        &gpu.download(&y),
        &product(&a, &x, m, 1, k),
        1e-5,
        1e-5,
    );
}
