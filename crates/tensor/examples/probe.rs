//! Times a few ops: a quick look while working on kernels. The measured comparison is `fireclay bench`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::hint::black_box;
use std::time::Instant;

use fireclay_tensor::{DType, Tensor};

fn time(name: &str, inner: usize, mut run: impl FnMut()) {
    if !name.starts_with(&std::env::args().nth(1).unwrap_or_default()) {
        return;
    }
    run();
    run();
    let mut times: Vec<f64> = Vec::new();
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.5 || times.len() < 5 {
        let at = Instant::now();
        (0..inner).for_each(|_| run());
        times.push(at.elapsed().as_secs_f64() * 1e3 / inner as f64);
    }
    times.sort_by(f64::total_cmp);
    println!("{name:32} {:.6} ms", times[times.len() / 2]);
}

fn filled(shape: &[usize]) -> Tensor {
    let numel: usize = shape.iter().product();
    let values: Vec<f32> = (0..numel)
        .map(|index| ((index * 7919 % 10007) as f32 / 5003.5) - 1.0)
        .collect();
    Tensor::from_slice(&values, shape, "cpu").unwrap()
}

fn main() {
    let (a, b) = (filled(&[1]), filled(&[1]));
    time("overhead/add_1", 2000, || {
        black_box(a.add(&b).unwrap());
    });
    let g = filled(&[1]).requires_grad_(true).unwrap();
    time("overhead/mul_chain10_fwd_bwd_1", 200, || {
        let mut y = g.clone();
        for _ in 0..10 {
            y = y.mul(&b).unwrap();
        }
        y.backward().unwrap();
        g.zero_grad();
    });
    let (x, y) = (filled(&[10_000_000]), filled(&[10_000_000]));
    time("pointwise/add_1e7", 1, || {
        drop(black_box(x.add(&y).unwrap()))
    });
    time("pointwise/gelu_1e7", 1, || {
        drop(black_box(x.gelu().unwrap()))
    });
    time("pointwise/exp_1e7", 1, || drop(black_box(x.exp().unwrap())));
    time("pointwise/fused_chain_1e7", 1, || {
        drop(black_box(
            (((&x * &y + &x).tanh() * 0.5 + 1.0).relu()).eval().unwrap(),
        ))
    });
    let t = filled(&[3000, 3000]);
    time("pointwise/transpose_copy_3000", 1, || {
        drop(black_box(t.t().unwrap().contiguous().unwrap()))
    });
    let column = filled(&[3000, 1]);
    time("pointwise/broadcast_add_3000", 1, || {
        drop(black_box(t.add(&column).unwrap()))
    });
    time("reduce/sum_1e7", 1, || {
        drop(black_box(x.sum_all().unwrap()))
    });
    time("reduce/sum_dim0_3000", 1, || {
        drop(black_box(t.sum(&[0], false).unwrap()))
    });
    time("reduce/sum_dim1_3000", 1, || {
        drop(black_box(t.sum(&[1], false).unwrap()))
    });
    let s = filled(&[4096, 1024]);
    time("reduce/softmax_4096x1024", 1, || {
        drop(black_box(s.softmax(-1).unwrap()))
    });
    for n in [64, 256, 512, 1024, 2048] {
        let (a, b) = (filled(&[n, n]), filled(&[n, n]));
        time(
            &format!("matmul/f32_{n}"),
            if n <= 256 { 20 } else { 1 },
            || drop(black_box(a.matmul(&b).unwrap())),
        );
    }
    let (a, w) = (filled(&[128, 784]), filled(&[512, 784]));
    time("matmul/linear_128x784x512", 10, || {
        drop(black_box(a.linear(&w, None).unwrap()))
    });
    assert_eq!(x.dtype(), DType::F32);
}
