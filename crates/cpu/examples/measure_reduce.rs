//! Measures reductions: 1e7 elements, and both dims of 3000 x 3000.

use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::reduce::{Max, Sum, View, argmax, moments, reduce};
use std::hint::black_box;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn measure(name: &str, bytes: usize, mut action: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..30 {
        let start = Instant::now();
        action();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{name:<24} {:>8.3} ms  {:>6.1} GB/s",
        best * 1e3,
        bytes as f64 / best / 1e9
    );
}

fn main() {
    set_threads(2);
    let long: Vec<f32> = (0..10_000_000).map(|i| (i * 7919 % 1000) as f32).collect();
    let full = View::full(long.len());
    let rows = View {
        outer: 3000,
        reduce: 3000,
        inner: 1,
    };
    let columns = View {
        outer: 1,
        reduce: 3000,
        inner: 3000,
    };
    let square = &long[..9_000_000];
    let (mut one, mut many, mut more, mut places) =
        ([0.0], vec![0.0; 3000], vec![0.0; 3000], vec![0; 3000]);
    measure("sum 1e7", 40_000_000, || {
        reduce(Sum, black_box(&long[..]), full, &mut one)
    });
    measure("max 1e7", 40_000_000, || {
        reduce(Max, black_box(&long[..]), full, &mut one)
    });
    measure("sum 3000^2 dim 1", 36_000_000, || {
        reduce(Sum, black_box(square), rows, &mut many)
    });
    measure("sum 3000^2 dim 0", 36_000_000, || {
        reduce(Sum, black_box(square), columns, &mut many)
    });
    measure("moments 3000^2 dim 1", 36_000_000, || {
        moments(black_box(square), rows, &mut many, &mut more)
    });
    measure("moments 3000^2 dim 0", 36_000_000, || {
        moments(black_box(square), columns, &mut many, &mut more)
    });
    measure("argmax 3000^2 dim 1", 36_000_000, || {
        argmax(black_box(square), rows, &mut places)
    });
    measure("argmax 3000^2 dim 0", 36_000_000, || {
        argmax(black_box(square), columns, &mut places)
    });
}
