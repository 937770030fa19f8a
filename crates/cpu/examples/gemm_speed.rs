//! Times the matrix product; `cargo run --release -p fireclay-cpu --example gemm_speed`.

use fireclay_cpu::gemm::{Epilogue, GemmShape, MatrixStrides, gemm};
use std::time::Instant;

fn main() {
    let row_major = MatrixStrides::row_major;
    for (name, batch, m, n, k, turned) in [
        ("square", 1, 512, 512, 512, false),
        ("square", 1, 1024, 1024, 1024, false),
        ("square", 1, 2048, 2048, 2048, false),
        ("linear", 1, 128, 512, 784, true),
        ("bmm", 64, 128, 128, 64, false),
        ("small", 1, 64, 64, 64, false),
        ("tiny", 1, 16, 16, 8, false),
        ("matrix-vector", 1, 1024, 1, 1024, false),
        ("matrix-vector", 1, 4096, 1, 4096, false),
        ("vector-matrix", 1, 1, 4096, 4096, false),
    ] {
        let shape = GemmShape { batch, m, n, k };
        let a = vec![0.5f32; batch * m * k];
        let b = vec![0.25f32; batch * k * n];
        let mut c = vec![0.0f32; batch * m * n];
        let b_strides = if turned {
            row_major(n, k).transposed()
        } else {
            row_major(k, n)
        };
        let repeats = (50_000_000 / (batch * m * n * k)).clamp(1, 1000);
        let mut best = f64::INFINITY;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < 0.6 {
            let round = Instant::now();
            for _ in 0..repeats {
                gemm(
                    shape,
                    1.0,
                    &a,
                    row_major(m, k),
                    &b,
                    b_strides,
                    0.0,
                    &mut c,
                    row_major(m, n),
                    Epilogue::None,
                )
                .expect("memory for packing");
            }
            best = best.min(round.elapsed().as_secs_f64() / repeats as f64);
        }
        let gflops = 2.0 * (batch * m * n * k) as f64 / best / 1e9;
        eprintln!(
            "{name:14} {batch:3} x {m:4} x {k:4} x {n:4}: {:9.4} ms {gflops:7.1} Gflop/s",
            best * 1e3
        );
    }
}
