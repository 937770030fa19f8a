//! What the tests of matrix product, convolution and pooling share: numbers, tolerances, a pool of one thread.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use fireclay_cpu::gemm::Float;
use fireclay_cpu::parallel::{set_threads, threads};
use std::sync::{Mutex, PoisonError};

/// A linear congruential generator (the constants are Knuth's MMIX).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        numbers.next();
        numbers
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// A whole number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.next() as usize % (high - low + 1)
    }

    /// A number in -1..1 with few bits.
    pub fn value(&mut self) -> f64 {
        (self.next() % 2001) as f64 / 1000.0 - 1.0
    }

    pub fn values<T: Float>(&mut self, len: usize) -> Vec<T> {
        (0..len).map(|_| T::from_f64(self.value())).collect()
    }
}

/// Calls `work` where the pool has one thread.
pub fn on_one_thread<R>(work: impl FnOnce() -> R) -> R {
    on_threads(1, work)
}

/// Calls `work` where the pool has two threads.
pub fn on_two_threads<R>(work: impl FnOnce() -> R) -> R {
    on_threads(2, work)
}

/// The number of threads is one for the whole process, so tests that set it take turns.
fn on_threads<R>(count: usize, work: impl FnOnce() -> R) -> R {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = threads();
    set_threads(count);
    let result = work();
    set_threads(before);
    result
}

/// Asserts that sums of `terms` numbers of about 1 agree.
pub fn assert_close<T: Float>(got: &[T], wanted: &[f64], terms: usize, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let unit = if size_of::<T>() == 4 {
        f32::EPSILON as f64
    } else {
        f64::EPSILON
    };
    let tolerance = 2.0 * unit * (terms as f64 + 4.0);
    for (index, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let got = got.to_f64();
        assert!(
            (got - wanted).abs() <= tolerance,
            "{what}: at {index} got {got}, wanted {wanted}"
        );
    }
}
