//! Measures what a hot allocate+free pair of the caching policy costs.

use fireclay_core::caching::{CachingConfig, CachingPolicy, Pool};
use std::hint::black_box;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn main() {
    let mut policy = CachingPolicy::new(CachingConfig::default());
    for i in 0..20 {
        policy.add_segment((1 << 30) * (i + 1), 2 << 20, Pool::Small, 0);
        policy.add_segment((1 << 30) * (i + 100), 20 << 20, Pool::Large, 0);
    }
    // Two hundred blocks in use with gaps between them, as in the middle of training.
    let mut held: Vec<_> = (0..400)
        .map(|i| policy.allocate(10_000 + i * 100, 0).expect("it fits"))
        .collect();
    for i in (0..200).rev() {
        policy.free(held.swap_remove(2 * i));
    }
    for bytes in [5000, 900_000, 3 << 20] {
        let repeats = 5_000_000;
        let start = Instant::now();
        for _ in 0..repeats {
            let block = policy.allocate(black_box(bytes), 0).expect("it fits");
            policy.free(black_box(block));
        }
        println!(
            "{bytes:>9} bytes: {:.1} ns",
            start.elapsed().as_secs_f64() * 1e9 / repeats as f64
        );
    }
}
