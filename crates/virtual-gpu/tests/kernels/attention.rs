//! `kernels/attention.cu`.

use crate::compare::near;
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/attention.ptx");

crate::kernel_tests! { by_warps by_tiles }

/// Causal attention over tensors (head, position, width).
fn attention(q: &[f32], k: &[f32], v: &[f32], length: usize, width: usize, scale: f64) -> Vec<f64> {
    let heads = q.len() / (length * width);
    let mut out = Vec::new();
    for head in 0..heads {
        let row = |tensor: &[f32], at: usize| -> Vec<f64> {
            let start = (head * length + at) * width;
            tensor[start..start + width]
                .iter()
                .map(|&x| f64::from(x))
                .collect()
        };
        for query in 0..length {
            let own = row(q, query);
            let score = |key| own.iter().zip(row(k, key)).map(|(a, b)| a * b).sum::<f64>() * scale;
            let weights: Vec<f64> = (0..=query).map(|key| score(key).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = vec![0.0; width];
            for (key, weight) in weights.iter().enumerate() {
                row(v, key)
                    .iter()
                    .zip(&mut sum)
                    .for_each(|(x, sum)| *sum += weight / total * x);
            }
            out.extend(sum);
        }
    }
    out
}

#[test]
fn the_first_position_sees_only_itself() {
    let out = attention(&[1.0, 1.0], &[0.0, 0.0], &[3.0, 5.0], 2, 1, 1.0);
    assert_eq!(out, [3.0, 4.0]);
}

fn by_warps(gpu: &Gpu) {
    run(gpu, "attention_warp", 64, 20, [5, 2], 128);
}

fn by_tiles(gpu: &Gpu) {
    run(gpu, "attention_tiled", 32, 45, [2, 2], 32);
}

fn run(gpu: &Gpu, kernel: &str, width: usize, length: usize, grid: [u32; 2], threads: u32) {
    let mut draw = Draw::new(95);
    let [q, k, v] = std::array::from_fn(|_| draw.reals(2 * length * width, -1.0, 1.0));
    let out = gpu.zeros::<f32>(2 * length * width);
    let scale = 1.0 / (width as f64).sqrt();
    let arguments = arguments![
        &gpu.upload(&q),
        &gpu.upload(&k),
        &gpu.upload(&v),
        &out,
        length as i32,
        scale as f32
    ];
    gpu.run(&gpu.module(TEXT), kernel, grid, threads, arguments);
    near(
        kernel,
        &gpu.download(&out),
        &attention(&q, &k, &v, length, width, scale),
        1e-5,
        1e-5,
    );
}
