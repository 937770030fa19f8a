//! Measures what an allocate+drop pair costs, by size.

use fireclay_cpu::memory::HostBuffer;
use std::hint::black_box;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn main() {
    let repeats = 10_000_000;
    let start = Instant::now();
    (0..repeats).for_each(|_| drop(black_box(Vec::<u8>::with_capacity(black_box(400)))));
    println!(
        "    a Vec of 400 bytes: {:.1} ns",
        start.elapsed().as_secs_f64() * 1e9 / repeats as f64
    );
    for nbytes in [8, 400, 4096, 5000, 1 << 20, 3 << 20, 40 << 20] {
        let repeats = 1_000_000;
        let pair = || {
            drop(black_box(
                HostBuffer::allocate(black_box(nbytes)).expect("there is memory"),
            ))
        };
        (0..1000).for_each(|_| pair());
        let start = Instant::now();
        (0..repeats).for_each(|_| pair());
        println!(
            "{nbytes:>9} bytes: {:.1} ns",
            start.elapsed().as_secs_f64() * 1e9 / repeats as f64
        );
    }
}
