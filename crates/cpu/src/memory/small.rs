//! Small blocks: lists of free blocks by size, one set of lists a thread and one shared set behind them.
//!
//! A block is cut from a slab of 64 KiB that comes from the policy and stays for good, so small blocks hold
//! as much memory as they did at their peak. A thread counts what it allocates and frees in counters that it alone
//! writes; their sum over all threads is exact, whichever thread frees a block.

use super::{ALIGNMENT, HostMemoryError, allocate_block, pointer};
use fireclay_core::caching::{PoolStatistics, Statistics};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest small block, in bytes.
pub(super) const LARGEST: usize = 4096;

const CLASSES: usize = LARGEST / ALIGNMENT;
const SLAB: usize = 64 << 10;

/// A block of at least `nbytes` bytes, from 1 to [`LARGEST`].
#[inline]
pub(super) fn allocate(nbytes: usize) -> Result<NonNull<u8>, HostMemoryError> {
    let class = class_of(nbytes);
    let block = LISTS.try_with(|lists| {
        let lists = &mut *lists.borrow_mut();
        let block = match lists.free[class].pop() {
            Some(block) => block.0,
            None => lists.refill(class)?,
        };
        lists.counters.allocated.add(size_of_class(class), nbytes);
        Ok(block)
    });
    block.unwrap_or_else(|_| {
        // The thread is ending and its lists are gone.
        let block = take_shared(class, 1)?.pop().expect("one was asked for");
        shared().past.allocated.add(size_of_class(class), nbytes);
        Ok(block.0)
    })
}

/// Takes back a block that [`allocate`] gave for the same `nbytes`.
#[inline]
pub(super) fn free(ptr: NonNull<u8>, nbytes: usize) {
    let class = class_of(nbytes);
    let freed = LISTS.try_with(|lists| {
        let lists = &mut *lists.borrow_mut();
        lists.counters.freed.add(size_of_class(class), nbytes);
        let free = &mut lists.free[class];
        free.push(Free(ptr));
        if free.len() > 2 * batch(class) {
            let surplus = free.drain(..batch(class));
            shared().free[class].extend(surplus);
        }
    });
    if freed.is_err() {
        let mut shared = shared();
        shared.past.freed.add(size_of_class(class), nbytes);
        shared.free[class].push(Free(ptr));
    }
}

/// Puts small blocks into the place of their slabs in `statistics`.
pub(super) fn correct(statistics: &mut Statistics) {
    let shared = shared();
    let slabs = Sums {
        count: shared.slabs,
        bytes: shared.slabs * SLAB as u64,
        requested: shared.slabs * SLAB as u64,
    };
    let counters = || {
        shared
            .threads
            .iter()
            .map(|counters| &**counters)
            .chain([&shared.past])
    };
    let allocated: Sums = counters().map(|counters| counters.allocated.read()).sum();
    let freed: Sums = counters().map(|counters| counters.freed.read()).sum();
    let correct = |pools: &mut PoolStatistics, pick: fn(&Sums) -> u64| {
        for statistic in [&mut pools.all, &mut pools.small_pool] {
            statistic.allocated =
                (statistic.allocated + pick(&allocated)).saturating_sub(pick(&slabs));
            statistic.freed += pick(&freed);
            // Saturating, since another thread may count while this one sums.
            let live = pick(&allocated).saturating_sub(pick(&freed));
            statistic.current = (statistic.current + live).saturating_sub(pick(&slabs));
            statistic.peak = statistic.peak.max(statistic.current);
        }
    };
    correct(&mut statistics.allocation, |sums| sums.count);
    correct(&mut statistics.active, |sums| sums.count);
    correct(&mut statistics.allocated_bytes, |sums| sums.bytes);
    correct(&mut statistics.active_bytes, |sums| sums.bytes);
    correct(&mut statistics.requested_bytes, |sums| sums.requested);
}

/// A free block.
struct Free(NonNull<u8>);

// SAFETY: a free block belongs to nobody but the list it is in.
unsafe impl Send for Free {}

#[inline]
fn class_of(nbytes: usize) -> usize {
    (nbytes - 1) / ALIGNMENT
}

#[inline]
fn size_of_class(class: usize) -> usize {
    (class + 1) * ALIGNMENT
}

/// How many blocks move between a thread's list and the shared one at a time.
fn batch(class: usize) -> usize {
    // 32 of the smallest, 1 of the largest.
    LARGEST / size_of_class(class).max(128)
}

struct Lists {
    free: [Vec<Free>; CLASSES],
    counters: Arc<Counters>,
}

thread_local! {
    static LISTS: RefCell<Lists> = RefCell::new(Lists::new());
}

impl Lists {
    fn new() -> Self {
        let counters = Arc::new(Counters::default());
        shared().threads.push(counters.clone());
        Lists {
            free: [const { Vec::new() }; CLASSES],
            counters,
        }
    }

    #[cold]
    fn refill(&mut self, class: usize) -> Result<NonNull<u8>, HostMemoryError> {
        let mut blocks = take_shared(class, batch(class))?;
        let block = blocks.pop().expect("at least one was asked for");
        self.free[class].append(&mut blocks);
        Ok(block.0)
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        let mut shared = shared();
        for (list, free) in shared.free.iter_mut().zip(&mut self.free) {
            list.append(free);
        }
        shared
            .past
            .allocated
            .add_sums(self.counters.allocated.read());
        shared.past.freed.add_sums(self.counters.freed.read());
        shared
            .threads
            .retain(|counters| !Arc::ptr_eq(counters, &self.counters));
    }
}

/// What is shared by all threads. Its lock may be taken while the policy's is held, never the other way round.
struct Shared {
    free: [Vec<Free>; CLASSES],
    slabs: u64,
    threads: Vec<Arc<Counters>>,
    /// The counters of threads that ended.
    past: Counters,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    free: [const { Vec::new() }; CLASSES],
    slabs: 0,
    threads: Vec::new(),
    past: Counters::new(),
});

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `count` free blocks, from the shared list and, if there aren't enough, from a new slab.
fn take_shared(class: usize, count: usize) -> Result<Vec<Free>, HostMemoryError> {
    loop {
        {
            let list = &mut shared().free[class];
            if list.len() >= count {
                return Ok(list.split_off(list.len() - count));
            }
        }
        let slab = pointer(&allocate_block(SLAB)?);
        let size = size_of_class(class);
        let mut shared = shared();
        shared.slabs += 1;
        // From the end, so that the blocks are handed out in order of address.
        let blocks = (0..SLAB / size).rev().map(|i| {
            // SAFETY: (i + 1) * size <= SLAB, the number of bytes at `slab`.
            Free(unsafe { slab.add(i * size) })
        });
        shared.free[class].extend(blocks);
    }
}

/// What a thread allocated and freed so far.
#[derive(Default)]
struct Counters {
    allocated: Counter,
    freed: Counter,
}

impl Counters {
    const fn new() -> Self {
        Counters {
            allocated: Counter::new(),
            freed: Counter::new(),
        }
    }
}

/// Three sums with one writer (the thread, or whoever holds the lock), read by anyone.
#[derive(Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
    requested: AtomicU64,
}

impl Counter {
    const fn new() -> Self {
        Counter {
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            requested: AtomicU64::new(0),
        }
    }

    #[inline]
    fn add(&self, bytes: usize, requested: usize) {
        self.add_sums(Sums {
            count: 1,
            bytes: bytes as u64,
            requested: requested as u64,
        });
    }

    #[inline]
    fn add_sums(&self, sums: Sums) {
        // Not fetch_add: with a single writer, loading and storing suffices and costs a tenth.
        self.count
            .store(self.count.load(Relaxed) + sums.count, Relaxed);
        self.bytes
            .store(self.bytes.load(Relaxed) + sums.bytes, Relaxed);
        self.requested
            .store(self.requested.load(Relaxed) + sums.requested, Relaxed);
    }

    fn read(&self) -> Sums {
        Sums {
            count: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            requested: self.requested.load(Relaxed),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    bytes: u64,
    requested: u64,
}

impl std::iter::Sum for Sums {
    fn sum<I: Iterator<Item = Sums>>(sums: I) -> Sums {
        sums.fold(Sums::default(), |a, b| Sums {
            count: a.count + b.count,
            bytes: a.bytes + b.bytes,
            requested: a.requested + b.requested,
        })
    }
}
