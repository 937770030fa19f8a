//! The gate that every wait of the host for a device passes: why, and for how many bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why the host waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The user asked for it.
    Synchronize,
    /// The user waits for an event.
    Event,
    /// Values are read by the host.
    Read,
    /// Memory is short, and blocks that another stream still uses could serve.
    Memory,
    /// An op's work is done by the host: decompositions of matrices.
    HostWork,
}

/// Waits for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How often.
    pub count: u64,
    /// Bytes that were waited for.
    pub bytes: u64,
}

static COUNTS: [[AtomicU64; 2]; 5] = [const { [const { AtomicU64::new(0) }; 2] }; 5];

/// How often the host has waited for a device so far, whatever the reason.
pub fn count() -> u64 {
    COUNTS
        .iter()
        .map(|[count, _]| count.load(Ordering::Relaxed))
        .sum()
}

/// The waits of one reason so far.
pub fn waits(reason: Reason) -> Waits {
    let [count, bytes] = &COUNTS[reason as usize];
    Waits {
        count: count.load(Ordering::Relaxed),
        bytes: bytes.load(Ordering::Relaxed),
    }
}

/// Tells the gate of a wait that follows.
pub(crate) fn note(reason: Reason, bytes: u64) {
    let [count, sum] = &COUNTS[reason as usize];
    count.fetch_add(1, Ordering::Relaxed);
    sum.fetch_add(bytes, Ordering::Relaxed);
}
