//! The statistics of a caching allocator, with PyTorch's keys and meanings (`torch.cuda.memory_stats`).

use super::Pool;

/// A quantity over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistic {
    /// Its value now.
    pub current: u64,
    /// Its largest value so far.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
    /// The sum of all decreases.
    pub freed: u64,
}

impl Statistic {
    fn add(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    fn sub(&mut self, amount: u64) {
        self.current -= amount;
        self.freed += amount;
    }
}

/// A quantity, over all blocks and for each pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Over both pools.
    pub all: Statistic,
    /// Over the small pool.
    pub small_pool: Statistic,
    /// Over the large pool.
    pub large_pool: Statistic,
}

impl PoolStatistics {
    fn add(&mut self, pool: Pool, amount: u64) {
        self.all.add(amount);
        self.of_mut(pool).add(amount);
    }

    fn sub(&mut self, pool: Pool, amount: u64) {
        self.all.sub(amount);
        self.of_mut(pool).sub(amount);
    }

    fn of_mut(&mut self, pool: Pool) -> &mut Statistic {
        match pool {
            Pool::Small => &mut self.small_pool,
            Pool::Large => &mut self.large_pool,
        }
    }

    fn each_mut(&mut self) -> [&mut Statistic; 3] {
        [&mut self.all, &mut self.small_pool, &mut self.large_pool]
    }
}

/// What a caching allocator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks in use.
    pub allocation: PoolStatistics,
    /// Segments held.
    pub segment: PoolStatistics,
    /// Blocks in use or waiting for another stream.
    pub active: PoolStatistics,
    /// Free blocks that can't be given up because a part of their segment is in use.
    pub inactive_split: PoolStatistics,
    /// Bytes in use, as rounded.
    pub allocated_bytes: PoolStatistics,
    /// Bytes of the segments held.
    pub reserved_bytes: PoolStatistics,
    /// Bytes in use or waiting for another stream.
    pub active_bytes: PoolStatistics,
    /// Bytes of the free blocks that can't be given up.
    pub inactive_split_bytes: PoolStatistics,
    /// Bytes in use, before rounding.
    pub requested_bytes: PoolStatistics,
    /// How often a segment came only after the cache was emptied.
    pub num_alloc_retries: u64,
    /// How often a request failed for want of memory.
    pub num_ooms: u64,
}

impl Statistics {
    /// Every number under PyTorch's flat key, such as `allocated_bytes.all.peak`.
    pub fn entries(&self) -> Vec<(String, u64)> {
        let mut copy = *self;
        let mut entries = Vec::new();
        for (name, pools) in copy.quantities_mut() {
            for (pool, statistic) in ["all", "small_pool", "large_pool"]
                .iter()
                .zip(pools.each_mut())
            {
                let Statistic {
                    current,
                    peak,
                    allocated,
                    freed,
                } = *statistic;
                let values = [
                    ("current", current),
                    ("peak", peak),
                    ("allocated", allocated),
                    ("freed", freed),
                ];
                entries.extend(
                    values.map(|(metric, value)| (format!("{name}.{pool}.{metric}"), value)),
                );
            }
        }
        entries.push(("num_alloc_retries".into(), self.num_alloc_retries));
        entries.push(("num_ooms".into(), self.num_ooms));
        entries
    }

    pub(super) fn reset_peak(&mut self) {
        self.each_statistic(|statistic| statistic.peak = statistic.current);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.each_statistic(|statistic| (statistic.allocated, statistic.freed) = (0, 0));
        (self.num_alloc_retries, self.num_ooms) = (0, 0);
    }

    fn each_statistic(&mut self, mut change: impl FnMut(&mut Statistic)) {
        for (_, pools) in self.quantities_mut() {
            pools.each_mut().into_iter().for_each(&mut change);
        }
    }

    fn quantities_mut(&mut self) -> [(&'static str, &mut PoolStatistics); 9] {
        [
            ("allocation", &mut self.allocation),
            ("segment", &mut self.segment),
            ("active", &mut self.active),
            ("inactive_split", &mut self.inactive_split),
            ("allocated_bytes", &mut self.allocated_bytes),
            ("reserved_bytes", &mut self.reserved_bytes),
            ("active_bytes", &mut self.active_bytes),
            ("inactive_split_bytes", &mut self.inactive_split_bytes),
            ("requested_bytes", &mut self.requested_bytes),
        ]
    }
}

/// Turns the policy's events into statistics.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) statistics: Statistics,
}

impl Ledger {
    pub(super) fn allocate(&mut self, pool: Pool, bytes: u64, requested: u64) {
        let s = &mut self.statistics;
        s.allocation.add(pool, 1);
        s.active.add(pool, 1);
        s.allocated_bytes.add(pool, bytes);
        s.active_bytes.add(pool, bytes);
        s.requested_bytes.add(pool, requested);
    }

    /// The owner gave a block up; it may still be active.
    pub(super) fn give_up(&mut self, pool: Pool, bytes: u64, requested: u64) {
        let s = &mut self.statistics;
        s.allocation.sub(pool, 1);
        s.allocated_bytes.sub(pool, bytes);
        s.requested_bytes.sub(pool, requested);
    }

    pub(super) fn deactivate(&mut self, pool: Pool, bytes: u64) {
        self.statistics.active.sub(pool, 1);
        self.statistics.active_bytes.sub(pool, bytes);
    }

    /// A free block that has neighbours came (`count` 1) or went (-1).
    pub(super) fn inactive_split(&mut self, pool: Pool, count: i64, bytes: u64) {
        let s = &mut self.statistics;
        if count > 0 {
            s.inactive_split.add(pool, 1);
            s.inactive_split_bytes.add(pool, bytes);
        } else {
            s.inactive_split.sub(pool, 1);
            s.inactive_split_bytes.sub(pool, bytes);
        }
    }

    pub(super) fn reserve(&mut self, pool: Pool, bytes: u64) {
        self.statistics.segment.add(pool, 1);
        self.statistics.reserved_bytes.add(pool, bytes);
    }

    pub(super) fn grow(&mut self, pool: Pool, bytes: u64) {
        self.statistics.reserved_bytes.add(pool, bytes);
    }

    pub(super) fn shrink(&mut self, pool: Pool, bytes: u64) {
        self.statistics.reserved_bytes.sub(pool, bytes);
    }

    pub(super) fn unreserve(&mut self, pool: Pool, bytes: u64) {
        self.statistics.segment.sub(pool, 1);
        self.statistics.reserved_bytes.sub(pool, bytes);
    }
}
