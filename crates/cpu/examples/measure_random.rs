//! Measures random fills of 1e7 elements.

use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::random::*;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn measure(name: &str, mut action: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        action();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:<24} {:>8.3} ms", best * 1e3);
}

fn main() {
    let mut out = vec![0.0_f32; 10_000_000];
    set_threads(1);
    measure("randn 1e7, 1 thread", || {
        fill_normal_f32(&mut out, 1, 0, 0.0, 1.0)
    });
    set_threads(2);
    measure("rand 1e7", || fill_uniform_f32(&mut out, 1, 0, 0.0, 1.0));
    measure("randn 1e7", || fill_normal_f32(&mut out, 1, 0, 0.0, 1.0));
    measure("bernoulli 1e7", || fill_bernoulli_f32(&mut out, 1, 0, 0.5));
    let mut out = vec![0_i64; 1_000_000];
    measure("randint 1e6", || fill_integers(&mut out, 1, 0, 0, 1000));
    measure("randperm 1e6", || fill_permutation(&mut out, 1, 0));
}
