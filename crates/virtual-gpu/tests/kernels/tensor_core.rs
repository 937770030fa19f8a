//! `kernels/gemm_mma.cu` and `kernels/gemm_wmma.cu`: the tensor cores, whose order of addition is not specified.

use half::{bf16, f16};

use crate::compare::{Float, near, same};
use crate::draw::Draw;
use crate::gemm::product;
use crate::gpu::{Element, Gpu, Module, arguments};

const MMA: &str = include_str!("../../kernels/ptx/gemm_mma.ptx");
const WMMA: &str = include_str!("../../kernels/ptx/gemm_wmma.ptx");
const WMMA_75: &str = include_str!("../../kernels/ptx/gemm_wmma.75.ptx");

crate::kernel_tests! { mma_pipelined mma_half_sums mma_tf32 mma_s8 wmma_half wmma_bfloat wmma_s8
wmma_tf32 wmma_epilogue }

/// Sums of products of inputs in -1..1, each exact in f32.
const TOLERANCE: f64 = 1e-4;

fn half_values(seed: u64, count: usize) -> Vec<f16> {
    Draw::new(seed)
        .reals(count, -1.0, 1.0)
        .into_iter()
        .map(f16::from_f32)
        .collect()
}

fn bfloat_values(seed: u64, count: usize) -> Vec<bf16> {
    Draw::new(seed)
        .reals(count, -1.0, 1.0)
        .into_iter()
        .map(bf16::from_f32)
        .collect()
}

/// Sizes, the tile of a block, the threads of a block.
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    tile: [usize; 2],
    threads: u32,
}

const fn shape(m: usize, n: usize, k: usize, tile: [usize; 2], threads: u32) -> Shape {
    Shape {
        m,
        n,
        k,
        tile,
        threads,
    }
}

fn multiply<T: Element, Sum: Element>(
    gpu: &Gpu,
    module: &Module,
    kernel: &str,
    a: &[T],
    b: &[T],
    at: &Shape,
) -> Vec<Sum> {
    let c = gpu.zeros::<Sum>(at.m * at.n);
    let grid = [
        at.n.div_ceil(at.tile[1]) as u32,
        at.m.div_ceil(at.tile[0]) as u32,
    ];
    let arguments = arguments![
        &gpu.upload(a),
        &gpu.upload(b),
        &c,
        at.m as i32,
        at.n as i32,
        at.k as i32
    ];
    gpu.run(module, kernel, grid, at.threads, arguments);
    gpu.download(&c)
}

fn mma_pipelined(gpu: &Gpu) {
    let module = gpu.module(MMA);
    for (m, n, k) in [
        (64, 64, 32),
        (64, 128, 256),
        (50, 40, 72),
        (1, 8, 8),
        (130, 72, 40),
    ] {
        let at = shape(m, n, k, [64, 64], 128);
        let (a, b) = (half_values(70, m * k), half_values(71, k * n));
        let found: Vec<f32> = multiply(gpu, &module, "gemm_mma_f16", &a, &b, &at);
        near(
            "gemm_mma_f16",
            &found,
            &product(&a, &b, m, n, k),
            1e-5,
            TOLERANCE,
        );
        let (a, b) = (bfloat_values(72, m * k), bfloat_values(73, k * n));
        let found: Vec<f32> = multiply(gpu, &module, "gemm_mma_bf16", &a, &b, &at);
        near(
            "gemm_mma_bf16",
            &found,
            &product(&a, &b, m, n, k),
            1e-5,
            TOLERANCE,
        );
    }
}

fn mma_half_sums(gpu: &Gpu) {
    let at = shape(32, 24, 48, [16, 8], 32);
    let (a, b) = (half_values(74, 32 * 48), half_values(75, 48 * 24));
    let found: Vec<f16> = multiply(gpu, &gpu.module(MMA), "gemm_mma_f16_sums", &a, &b, &at);
    near(
        "gemm_mma_f16_sums",
        &found,
        &product(&a, &b, 32, 24, 48),
        4e-3,
        1e-2,
    );
}

/// Rounded to the 10 bits of tf32, ties away from zero.
fn tf32(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(1 << 12) & !0x1fff)
}

#[test]
fn tf32_rounds_ties_away() {
    assert_eq!(tf32(1.0 + 2f32.powi(-11)), 1.0 + 2f32.powi(-10));
    assert_eq!(tf32(-1.0 - 2f32.powi(-11)), -1.0 - 2f32.powi(-10));
    assert_eq!(tf32(1.0 + 2f32.powi(-12)), 1.0);
}

fn tf32_values(seed: u64, count: usize) -> (Vec<f32>, Vec<f32>) {
    let values = Draw::new(seed).reals(count, -1.0, 1.0);
    let rounded = values.iter().map(|&x| tf32(x)).collect();
    (values, rounded)
}

fn mma_tf32(gpu: &Gpu) {
    let at = shape(48, 16, 40, [16, 8], 32);
    let ((a, rounded_a), (b, rounded_b)) = (tf32_values(76, 48 * 40), tf32_values(77, 40 * 16));
    let found: Vec<f32> = multiply(gpu, &gpu.module(MMA), "gemm_mma_tf32", &a, &b, &at);
    near(
        "gemm_mma_tf32",
        &found,
        &product(&rounded_a, &rounded_b, 48, 16, 40),
        1e-5,
        TOLERANCE,
    );
}

fn bytes(seed: u64, count: usize) -> Vec<i8> {
    let mut draw = Draw::new(seed);
    (0..count).map(|_| draw.bits() as i8).collect()
}

fn integer_product(
    k: usize,
    n: usize,
    m: usize,
    a: &[i8],
    b: impl Fn(usize, usize) -> i8,
) -> Vec<i32> {
    let element = |row: usize, column: usize| {
        let terms = (0..k).map(|i| i32::from(a[row * k + i]) * i32::from(b(i, column)));
        terms.sum()
    };
    (0..m * n).map(|i| element(i / n, i % n)).collect()
}

fn mma_s8(gpu: &Gpu) {
    let at = shape(32, 16, 96, [16, 8], 32);
    let (a, b) = (bytes(78, 32 * 96), bytes(79, 16 * 96));
    let found: Vec<i32> = multiply(gpu, &gpu.module(MMA), "gemm_mma_s8", &a, &b, &at);
    same(
        "gemm_mma_s8",
        &found,
        &integer_product(96, 16, 32, &a, |i, column| b[column * 96 + i]),
    );
}

fn wmma_half(gpu: &Gpu) {
    let at = shape(32, 48, 64, [16, 16], 32);
    let (a, b) = (half_values(80, 32 * 64), half_values(81, 64 * 48));
    let expected = product(&a, &b, 32, 48, 64);
    for text in [WMMA, WMMA_75] {
        let module = gpu.module(text);
        let found: Vec<f32> = multiply(gpu, &module, "gemm_wmma_f16", &a, &b, &at);
        near("gemm_wmma_f16", &found, &expected, 1e-5, TOLERANCE);
        let found: Vec<f16> = multiply(gpu, &module, "gemm_wmma_f16_sums", &a, &b, &at);
        near("gemm_wmma_f16_sums", &found, &expected, 4e-3, 1e-2);
    }
}

fn wmma_bfloat(gpu: &Gpu) {
    let module = gpu.module(WMMA);
    let at = shape(32, 32, 48, [16, 16], 32);
    let (a, b) = (bfloat_values(82, 32 * 48), bfloat_values(83, 48 * 32));
    let found: Vec<f32> = multiply(gpu, &module, "gemm_wmma_bf16", &a, &b, &at);
    near(
        "gemm_wmma_bf16",
        &found,
        &product(&a, &b, 32, 32, 48),
        1e-5,
        TOLERANCE,
    );

    let by_columns: Vec<bf16> = (0..32 * 48).map(|i| b[i % 48 * 32 + i / 48]).collect();
    let at = shape(32, 32, 48, [32, 8], 32);
    let found: Vec<f32> = multiply(
        gpu,
        &module,
        "gemm_wmma_bf16_transposed",
        &a,
        &by_columns,
        &at,
    );
    near(
        "gemm_wmma_bf16_transposed",
        &found,
        &product(&a, &b, 32, 32, 48),
        1e-5,
        TOLERANCE,
    );
}

fn wmma_s8(gpu: &Gpu) {
    let at = shape(32, 16, 64, [16, 16], 32);
    let (a, b) = (bytes(84, 32 * 64), bytes(85, 64 * 16));
    for text in [WMMA, WMMA_75] {
        let found: Vec<i32> = multiply(gpu, &gpu.module(text), "gemm_wmma_s8", &a, &b, &at);
        same(
            "gemm_wmma_s8",
            &found,
            &integer_product(64, 16, 32, &a, |i, column| b[i * 16 + column]),
        );
    }
}

fn wmma_tf32(gpu: &Gpu) {
    let at = shape(32, 32, 24, [16, 16], 32);
    let ((a, rounded_a), (b, rounded_b)) = (tf32_values(86, 32 * 24), tf32_values(87, 24 * 32));
    let found: Vec<f32> = multiply(gpu, &gpu.module(WMMA), "gemm_wmma_tf32", &a, &b, &at);
    near(
        "gemm_wmma_tf32",
        &found,
        &product(&rounded_a, &rounded_b, 32, 32, 24),
        1e-5,
        TOLERANCE,
    );
}

fn wmma_epilogue(gpu: &Gpu) {
    for text in [WMMA, WMMA_75] {
        let (a, b) = (half_values(88, 256), half_values(89, 256));
        let c = Draw::new(90).reals(256, -1.0, 1.0);
        let out = gpu.zeros::<f32>(256);
        let arguments = arguments![
            &gpu.upload(&a),
            &gpu.upload(&b),
            &gpu.upload(&c),
            &out,
            0.5f32
        ];
        gpu.run(&gpu.module(text), "gemm_wmma_epilogue", 1, 32, arguments);
        // A is by columns, and so is what comes out.
        let transposed: Vec<f16> = (0..256).map(|i| a[i % 16 * 16 + i / 16]).collect();
        let sums = product(&transposed, &b, 16, 16, 16);
        let element = |i: usize| (sums[i] + c[i].to_f64() + 0.5).max(0.0);
        let expected: Vec<f64> = (0..256).map(|i| element(i % 16 * 16 + i / 16)).collect();
        near(
            "gemm_wmma_epilogue",
            &gpu.download(&out),
            &expected,
            1e-5,
            TOLERANCE,
        );
    }
}
