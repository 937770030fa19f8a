//! Measures softmax and its gradient for 4096 x 1024 f32.

use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::softmax::*;
use std::hint::black_box;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn measure(name: &str, mut action: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..30 {
        let start = Instant::now();
        action();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:<24} {:>8.3} ms", best * 1e3);
}

fn main() {
    set_threads(2);
    let (rows, cols) = (4096, 1024);
    let x: Vec<f32> = (0..rows * cols)
        .map(|i| (i * 7919 % 1000) as f32 / 100.0)
        .collect();
    let targets: Vec<i64> = (0..rows as i64).map(|row| row % 1000).collect();
    let (mut y, mut out) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
    let (mut losses, mut logsumexp, scale) = (vec![0.0; rows], vec![0.0; rows], vec![1.0; rows]);
    measure("softmax", || softmax(black_box(&x), cols, &mut y));
    measure("log_softmax", || log_softmax(black_box(&x), cols, &mut out));
    measure("softmax backward", || {
        softmax_backward(black_box(&x), &y, cols, &mut out)
    });
    measure("log_softmax backward", || {
        log_softmax_backward(black_box(&x), &y, cols, &mut out)
    });
    measure("cross entropy", || {
        cross_entropy(
            black_box(&x),
            cols,
            &targets,
            None,
            &mut losses,
            &mut logsumexp,
        )
        .expect("targets are classes");
    });
    measure("cross entropy backward", || {
        cross_entropy_backward(
            black_box(&x),
            cols,
            &targets,
            None,
            &logsumexp,
            &scale,
            &mut out,
        );
    });
}
