//! `Queue`: batches on their way from the workers to the consumer; bounded, and handed out in order.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fireclay_core::Result;

use super::panicked;

/// Workers claim numbers in order, as long as they are less than `ahead` ahead of the consumer. The lowest claimed
/// number is always being made or ready, so the consumer never waits in vain.
pub(super) struct Queue<B> {
    progress: Mutex<Progress<B>>,
    ahead: usize,
    /// Told when a number may be claimed, or when to stop.
    claimable: Condvar,
    /// Told when a batch is ready.
    ready: Condvar,
    stopped: AtomicBool,
}

struct Progress<B> {
    /// The next number that a worker takes on.
    claimed: usize,
    /// The next number that the consumer takes.
    taken: usize,
    /// No number from here on: the epoch's end, or the number after the first error.
    end: usize,
    batches: BTreeMap<usize, Result<B>>,
}

impl<B> Queue<B> {
    pub(super) fn new(first: usize, end: usize, ahead: usize) -> Queue<B> {
        Queue {
            progress: Mutex::new(Progress {
                claimed: first,
                taken: first,
                end,
                batches: BTreeMap::new(),
            }),
            ahead,
            claimable: Condvar::new(),
            ready: Condvar::new(),
            stopped: AtomicBool::new(false),
        }
    }

    /// What a worker does until all is made, something failed, or the consumer has gone.
    pub(super) fn work(&self, make: &dyn Fn(usize, &AtomicBool) -> Option<Result<B>>) {
        while let Some(number) = self.claim() {
            let made = catch_unwind(AssertUnwindSafe(|| make(number, &self.stopped)));
            let Some(batch) = made.unwrap_or_else(|payload| Some(Err(panicked("loader", payload))))
            else {
                return;
            };
            let mut progress = self.lock();
            if batch.is_err() {
                progress.end = progress.end.min(number + 1);
            }
            progress.batches.insert(number, batch);
            drop(progress);
            self.ready.notify_one();
        }
    }

    /// The next number to make, as soon as it may be; None if there is nothing to do any more.
    fn claim(&self) -> Option<usize> {
        let mut progress = self.lock();
        loop {
            if self.stopped.load(Ordering::Relaxed) || progress.claimed >= progress.end {
                return None;
            }
            if progress.claimed - progress.taken < self.ahead {
                progress.claimed += 1;
                return Some(progress.claimed - 1);
            }
            progress = self
                .claimable
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Batch `number`, the one after the last taken; waits for it. None if an earlier one failed.
    pub(super) fn take(&self, number: usize) -> Option<Result<B>> {
        let mut progress = self.lock();
        loop {
            if let Some(batch) = progress.batches.remove(&number) {
                progress.taken = number + 1;
                drop(progress);
                // All of them: one that finds nothing to do must not be the only one told.
                self.claimable.notify_all();
                return Some(batch);
            }
            if number >= progress.end {
                return None;
            }
            progress = self
                .ready
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the workers.
    pub(super) fn stop(&self) {
        // Under the lock, so that no worker is between its look at the flag and its wait.
        let progress = self.lock();
        self.stopped.store(true, Ordering::Relaxed);
        drop(progress);
        self.claimable.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Progress<B>> {
        // Nothing that can panic runs under the lock but the allocation of the map.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
