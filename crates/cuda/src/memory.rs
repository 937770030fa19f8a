//! Device memory: [`DeviceBuffer`], a block of bytes of one device from its caching allocator.
//!
//! Note [Device memory]
//!
//! Which block serves a request is decided by the policy of [`fireclay_core::caching`], which the host's memory uses too;
//! here it gets its segments from the driver. By default a pool of a stream is one growable segment: addresses for all of
//! the device's memory are reserved, and memory is mapped behind them piece by piece, so that requests of varying sizes
//! leave no slivers between segments. Where the driver can't do that, segments are plain allocations.
//!
//! A block is used again as soon as it is freed: work of its stream is in order. If another stream has used it (which the
//! launch notes, [`DeviceBuffer::used_by`]), it waits until that stream has come past the use.
//!
//! When nothing serves a request, this is tried in order: blocks that other streams have done with by now; waiting for
//! those that they have not; giving unused segments back to the driver; asking the driver again. Then the error says all
//! that is known, and nothing has changed: what was allocated stays, and a smaller request may succeed.

mod ledger;
mod pinned;
mod report;
mod segment;

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fireclay_core::caching::{
    Block, CachingConfig, CachingPolicy, Pool, SegmentSnapshot, Statistics,
};
use fireclay_core::{Error, Result, call_site};
use smallvec::SmallVec;

use crate::driver::{Driver, DriverError, code};
use crate::event::Event;
use crate::gpu::{Gpu, Properties};
use crate::stream::Stream;
use crate::sync::{self, Reason};
use ledger::Ledger;
pub use ledger::{Group, Purpose};
pub use pinned::{PinnedBuffer, PinnedStatistics, empty_pinned_cache, pinned_statistics};
pub(crate) use report::Bytes;
use report::Shortage;
use segment::{GRANULARITY, Growable, SegmentMemory, piece_bytes};

/// The caching allocator of one device.
pub struct DeviceMemory {
    cache: Mutex<Cache>,
}

struct Cache {
    policy: CachingPolicy,
    segments: HashMap<u64, SegmentMemory>,
    /// The segment that grows, of each stream and pool.
    growing: HashMap<(u64, Pool), u64>,
    /// Whether segments grow.
    growable: bool,
    total: u64,
    /// Blocks that other streams may still use, with marks of where they do.
    waiting: Vec<(Block, SmallVec<[Event; 1]>)>,
    ledger: Ledger,
    /// Other devices that may use the memory.
    peers: Vec<usize>,
    /// At most this much may be reserved.
    limit: Option<u64>,
    /// For tests: the allocations that go well before one that finds no memory, and how many find none then.
    failing: Option<(u64, u64)>,
    counts: Counts,
}

/// What the allocator counts beside the policy's statistics, by PyTorch's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that the driver gave memory.
    pub num_device_alloc: u64,
    /// Times that memory was given back to it.
    pub num_device_free: u64,
    /// Times that all streams were waited for because memory was short.
    pub num_sync_all_streams: u64,
}

/// What `empty_cache` gave back, and why the rest could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Bytes given back to the driver.
    pub freed: u64,
    /// Free bytes that share a segment (or a mapped piece of it) with a block in use.
    pub split: u64,
    /// Bytes that other streams have not done with.
    pub waiting: u64,
}

/// A block of device memory that it owns alone. Dropping it returns it to the device's cache, on any thread.
pub struct DeviceBuffer {
    gpu: &'static Gpu,
    nbytes: usize,
    /// None if there are no bytes, or within `drop`.
    block: Option<Block>,
    stream: u64,
    users: Mutex<SmallVec<[Stream; 1]>>,
}

impl DeviceBuffer {
    /// A buffer of `nbytes` bytes of any content, aligned to 512 bytes, for work of `stream`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the memory can't be had after all that Note [Device memory] says was tried; another error
    /// if the driver fails.
    #[track_caller]
    pub fn allocate(stream: &Stream, nbytes: usize, purpose: Purpose) -> Result<DeviceBuffer> {
        Self::allocate_from(call_site(), stream, nbytes, purpose)
    }

    /// As [`allocate`](Self::allocate), counted as made by another line than the caller's.
    ///
    /// # Errors
    /// As there.
    pub fn allocate_from(
        location: &'static Location<'static>,
        stream: &Stream,
        nbytes: usize,
        purpose: Purpose,
    ) -> Result<DeviceBuffer> {
        let gpu = stream.gpu();
        let block = match nbytes {
            0 => None,
            _ => Some(
                gpu.memory()
                    .allocate(gpu, nbytes, stream, purpose, location)?,
            ),
        };
        Ok(DeviceBuffer {
            gpu,
            nbytes,
            block,
            stream: stream.id(),
            users: Mutex::default(),
        })
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.nbytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nbytes == 0
    }

    /// Its device.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The address of the first byte; 0 if there is none.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, Block::addr)
    }

    /// Notes that work of `stream` uses the bytes, so that they are not given out again before it is done.
    pub fn used_by(&self, stream: &Stream) {
        if stream.id() == self.stream {
            return;
        }
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.iter().all(|user| user.id() != stream.id()) {
            users.push(stream.clone());
        }
    }

    /// Says what the bytes are for from now on.
    pub fn set_purpose(&self, purpose: Purpose) {
        if let Some(block) = &self.block {
            let mut cache = self.gpu.memory().lock();
            cache.ledger.set_purpose(block.addr(), purpose);
        }
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceBuffer({} bytes at {:#x} on {})",
            self.nbytes,
            self.address(),
            self.gpu.device()
        )
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let users = self.users.get_mut().unwrap_or_else(PoisonError::into_inner);
            let marks = users.iter().filter_map(|stream| {
                // Without a mark nobody knows when the stream is done, so it is waited for. Where that fails too, its
                // device has failed, and nothing runs there any more.
                let mark = stream.mark();
                if mark.is_err() {
                    let _ = stream.synchronize();
                }
                mark.ok()
            });
            self.gpu.memory().free(block, marks.collect());
        }
    }
}

impl DeviceMemory {
    pub(crate) fn new(properties: &Properties) -> DeviceMemory {
        let growable = properties.virtual_memory;
        let usual = CachingConfig::default();
        let config = CachingConfig {
            // A rest of a growing segment is never a sliver.
            large_rest: if growable {
                usual.rounding - 1
            } else {
                usual.large_rest
            },
            ..usual
        };
        DeviceMemory {
            cache: Mutex::new(Cache {
                policy: CachingPolicy::new(config),
                segments: HashMap::new(),
                growing: HashMap::new(),
                growable,
                total: properties.total_memory,
                waiting: Vec::new(),
                ledger: Ledger::default(),
                peers: Vec::new(),
                limit: None,
                failing: None,
                counts: Counts::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        // The policy checks before it changes anything, so a panic in it leaves it whole.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(
        &self,
        gpu: &'static Gpu,
        nbytes: usize,
        stream: &Stream,
        purpose: Purpose,
        location: &'static Location<'static>,
    ) -> Result<Block> {
        let mut cache = self.lock();
        let (bytes, stream) = (nbytes as u64, stream.id());
        if cache.fails_on_purpose() {
            cache.policy.count_out_of_memory();
            return Err(Error::from(cache.shortage(gpu, bytes, stream, (0, 0))?));
        }
        let block = match cache.serve(gpu, bytes, stream)? {
            Some(block) => block,
            None => match cache.allocate_harder(gpu, bytes, stream)? {
                Ok(block) => block,
                Err(shortage) => return Err(Error::from(shortage)),
            },
        };
        cache
            .ledger
            .add(block.addr(), block.bytes(), purpose, location);
        Ok(block)
    }

    fn free(&self, block: Block, marks: SmallVec<[Event; 1]>) {
        let mut cache = self.lock();
        cache.ledger.remove(block.addr());
        if marks.is_empty() {
            cache.policy.free(block);
        } else {
            cache.policy.retire(&block);
            cache.waiting.push((block, marks));
        }
    }

    /// What memory is used for, with PyTorch's keys and meanings.
    pub fn statistics(&self) -> Statistics {
        *self.lock().policy.statistics()
    }

    /// What else was counted.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Bytes in use by purpose: of this process's tensors, and in the end what the cache keeps.
    pub fn by_purpose(&self) -> Vec<(Purpose, u64)> {
        self.lock().by_purpose()
    }

    /// The `count` largest groups of blocks in use that one line has made.
    pub fn largest_groups(&self, count: usize) -> Vec<Group> {
        self.lock().ledger.largest_groups(count)
    }

    /// Sets the peaks to the current values.
    pub fn reset_peak(&self) {
        self.lock().policy.reset_peak();
    }

    /// Sets the sums of what was allocated and freed, and the counts of failures, to 0.
    pub fn reset_accumulated(&self) {
        let mut cache = self.lock();
        cache.policy.reset_accumulated();
        cache.counts = Counts::default();
    }

    /// All segments with their blocks.
    pub fn snapshot(&self) -> Vec<SegmentSnapshot> {
        self.lock().policy.snapshot()
    }

    /// Lets at most `limit` bytes be reserved from now on; `None` takes the limit away. What is reserved already stays.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.lock().limit = limit;
    }

    /// For tests: after `after` more allocations that go well, `count` find no memory, as if cache and driver had none;
    /// `None` ends that.
    #[doc(hidden)]
    pub fn fail_allocations(&self, failing: Option<(u64, u64)>) {
        self.lock().failing = failing;
    }

    /// Lets work of another device use the memory, now and later. It may be called again.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn share_with(&self, gpu: &'static Gpu, peer: &'static Gpu) -> Result<()> {
        let mut cache = self.lock();
        if cache.peers.contains(&peer.ordinal()) {
            return Ok(());
        }
        // Plain allocations follow the contexts' access, mapped memory has its own.
        peer.enable_peer_access(gpu)?;
        let driver = gpu.bound()?;
        for memory in cache.segments.values() {
            if let SegmentMemory::Growable(growable) = memory {
                growable
                    .allow(driver, peer.ordinal())
                    .map_err(|error| gpu.failed(&error))?;
            }
        }
        cache.peers.push(peer.ordinal());
        Ok(())
    }

    /// Gives unused memory back to the driver, after waiting for blocks that other streams use.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn empty(&self, gpu: &'static Gpu) -> Result<Released> {
        let mut cache = self.lock();
        cache.wait_for_others();
        let freed = cache.release(gpu)?;
        let statistics = cache.policy.statistics();
        let reserved = statistics.reserved_bytes.all.current;
        let active = statistics.active_bytes.all.current;
        Ok(Released {
            freed,
            split: reserved - active,
            waiting: active - statistics.allocated_bytes.all.current,
        })
    }
}

impl Cache {
    /// A block from free memory, or from a new or longer segment. `None` if the driver has no more.
    fn serve(&mut self, gpu: &'static Gpu, bytes: u64, stream: u64) -> Result<Option<Block>> {
        self.reap(false);
        if let Some(block) = self.policy.allocate(bytes, stream) {
            return Ok(Some(block));
        }
        if !self.extend(gpu, bytes, stream, false)? {
            return Ok(None);
        }
        Ok(self.policy.allocate(bytes, stream))
    }

    /// What remains to be tried when the driver has no more; see Note [Device memory].
    fn allocate_harder(
        &mut self,
        gpu: &'static Gpu,
        bytes: u64,
        stream: u64,
    ) -> Result<Result<Block, Box<Shortage>>> {
        let waited = self.wait_for_others();
        if waited > 0
            && let Some(block) = self.policy.allocate(bytes, stream)
        {
            return Ok(Ok(block));
        }
        let released = self.release(gpu)?;
        for exact in [false, true] {
            if self.extend(gpu, bytes, stream, exact)?
                && let Some(block) = self.policy.allocate(bytes, stream)
            {
                self.policy.count_retry();
                return Ok(Ok(block));
            }
        }
        self.policy.count_out_of_memory();
        Ok(Err(self.shortage(
            gpu,
            bytes,
            stream,
            (waited, released),
        )?))
    }

    /// What is known when nothing served a request; the bytes that were waited for, and given back to the driver.
    fn shortage(
        &self,
        gpu: &'static Gpu,
        requested: u64,
        stream: u64,
        (waited, released): (u64, u64),
    ) -> Result<Box<Shortage>> {
        let (free, total) = gpu.mem_get_info()?;
        let statistics = self.policy.statistics();
        let pool = self.policy.config().pool(requested);
        let growing = self.growing.get(&(stream, pool));
        Ok(Box::new(Shortage {
            device: gpu.device(),
            requested,
            free,
            total,
            limit: self.limit,
            allocated: statistics.allocated_bytes.all.current,
            reserved: statistics.reserved_bytes.all.current,
            largest_free: self.policy.largest_free(stream),
            tail: growing.and_then(|address| self.policy.free_tail(*address)),
            waited,
            released,
            purposes: self.by_purpose(),
            groups: self.ledger.largest_groups(5),
        }))
    }

    fn by_purpose(&self) -> Vec<(Purpose, u64)> {
        let mut purposes = self.ledger.by_purpose();
        let statistics = self.policy.statistics();
        let cached = statistics.reserved_bytes.all.current - statistics.allocated_bytes.all.current;
        if cached > 0 {
            purposes.push((Purpose::Cache, cached));
        }
        purposes
    }

    /// Counts an allocation against those that tests let fail.
    fn fails_on_purpose(&mut self) -> bool {
        let Some((after, count)) = &mut self.failing else {
            return false;
        };
        if *after > 0 {
            *after -= 1;
            return false;
        }
        let fails = *count > 0;
        *count = count.saturating_sub(1);
        fails
    }

    /// Frees blocks that other streams have done with; with `wait` it waits until they have. The bytes freed.
    fn reap(&mut self, wait: bool) -> u64 {
        let mut freed = 0;
        let mut index = 0;
        while index < self.waiting.len() {
            let marks = &self.waiting[index].1;
            // Work that failed is over too; the error is its own device's to tell.
            let done = marks.iter().all(|event| match wait {
                true => {
                    let _ = event.wait_quietly();
                    true
                }
                false => event.is_done().unwrap_or(true),
            });
            if done {
                let (block, _) = self.waiting.swap_remove(index);
                freed += block.bytes();
                self.policy.free(block);
            } else {
                index += 1;
            }
        }
        freed
    }

    /// Waits until other streams are done with what they use, and frees it. The bytes freed.
    fn wait_for_others(&mut self) -> u64 {
        if self.waiting.is_empty() {
            return 0;
        }
        let bytes = self.waiting.iter().map(|(block, _)| block.bytes()).sum();
        sync::note(Reason::Memory, bytes);
        self.counts.num_sync_all_streams += 1;
        self.reap(true)
    }

    /// Gets memory from the driver for a request of `bytes`; false if it has none. With `exact` no more is asked for than
    /// is needed.
    fn extend(&mut self, gpu: &'static Gpu, bytes: u64, stream: u64, exact: bool) -> Result<bool> {
        let driver = gpu.bound()?;
        let config = self.policy.config();
        let (Some(rounded), Some(usual)) = (config.round(bytes), config.segment_bytes(bytes))
        else {
            return Ok(false);
        };
        let pool = config.pool(rounded);
        let granularity = GRANULARITY as u64;
        if self.growable {
            if !self.can_grow(pool, stream, rounded) && !self.start_growing(gpu, pool, stream)? {
                // The driver has the functions but no addresses: plain segments will do.
                self.growable = false;
                return self.extend(gpu, bytes, stream, exact);
            }
            let address = self.growing[&(stream, pool)];
            let tail = self.policy.free_tail(address).unwrap_or(0);
            let needed = rounded
                .saturating_sub(tail)
                .checked_next_multiple_of(granularity);
            let piece = if exact {
                granularity
            } else {
                piece_bytes(pool) as u64
            };
            let Some(more) = needed.map(|needed| needed.max(piece)) else {
                return Ok(false);
            };
            return self.grow(gpu, driver, address, more, (stream, pool));
        }
        let size = if exact {
            rounded.checked_next_multiple_of(granularity)
        } else {
            Some(usual)
        };
        let Some(size) = size.filter(|size| self.within_limit(*size)) else {
            return Ok(false);
        };
        match SegmentMemory::plain(driver, size as usize) {
            Ok(memory) => {
                self.counts.num_device_alloc += 1;
                self.policy
                    .add_segment(memory.address(), size, pool, stream);
                self.segments.insert(memory.address(), memory);
                Ok(true)
            }
            Err(error) => short_of_memory(gpu, &error),
        }
    }

    /// Whether the growing segment of the stream's pool could grow until it serves a request of `bytes`.
    fn can_grow(&self, pool: Pool, stream: u64, bytes: u64) -> bool {
        let Some(address) = self.growing.get(&(stream, pool)) else {
            return false;
        };
        match self.segments.get(address) {
            Some(SegmentMemory::Growable(growable)) => {
                let tail = self.policy.free_tail(*address).unwrap_or(0);
                growable.room() as u64 + tail >= bytes
            }
            _ => false,
        }
    }

    /// Reserves addresses for a growing segment; false if there are none.
    fn start_growing(&mut self, gpu: &'static Gpu, pool: Pool, stream: u64) -> Result<bool> {
        let driver = gpu.bound()?;
        match Growable::reserve(driver, gpu.ordinal(), self.total as usize) {
            Ok(growable) => {
                let memory = SegmentMemory::Growable(growable);
                self.growing.insert((stream, pool), memory.address());
                self.segments.insert(memory.address(), memory);
                Ok(true)
            }
            Err(error) if error.is_sticky() => Err(gpu.failed(&error)),
            Err(_) => Ok(false),
        }
    }

    fn grow(
        &mut self,
        gpu: &'static Gpu,
        driver: &Driver,
        address: u64,
        more: u64,
        (stream, pool): (u64, Pool),
    ) -> Result<bool> {
        if !self.within_limit(more) {
            return Ok(false);
        }
        let Some(SegmentMemory::Growable(growable)) = self.segments.get_mut(&address) else {
            return Ok(false);
        };
        if growable.room() < more as usize {
            return Ok(false);
        }
        let first = growable.mapped() == 0;
        if let Err(error) = growable.grow(driver, more as usize, &self.peers) {
            return short_of_memory(gpu, &error);
        }
        self.counts.num_device_alloc += 1;
        if first {
            self.policy.add_segment(address, more, pool, stream);
        } else {
            self.policy.grow_segment(address, more);
        }
        Ok(true)
    }

    fn within_limit(&self, more: u64) -> bool {
        let reserved = self.policy.statistics().reserved_bytes.all.current;
        self.limit
            .is_none_or(|limit| reserved.saturating_add(more) <= limit)
    }

    /// Gives unused segments, and unused ends of growing ones, back to the driver. The bytes given back.
    fn release(&mut self, gpu: &'static Gpu) -> Result<u64> {
        let driver = gpu.bound()?;
        let mut freed = 0;
        for segment in self.policy.release_unused() {
            self.growing.retain(|_, address| *address != segment.addr);
            if let Some(memory) = self.segments.remove(&segment.addr) {
                self.counts.num_device_free += 1;
                memory.release(driver).map_err(|error| gpu.failed(&error))?;
                freed += segment.bytes;
            }
        }
        for (&address, memory) in &mut self.segments {
            let SegmentMemory::Growable(growable) = memory else {
                continue;
            };
            while let Some(tail) = self.policy.free_tail(address) {
                let piece = (growable.mapped() - growable.last_piece()) as u64;
                if piece == 0 || piece > tail || !self.policy.shrink_segment(address, piece) {
                    break;
                }
                let keep = growable.last_piece();
                self.counts.num_device_free += 1;
                growable
                    .shrink(driver, keep)
                    .map_err(|error| gpu.failed(&error))?;
                freed += piece;
            }
        }
        Ok(freed)
    }
}

/// `Ok(false)` for an error that says that the driver has no more memory; the error of the device otherwise.
fn short_of_memory(gpu: &Gpu, error: &DriverError) -> Result<bool> {
    if error.code == code::OUT_OF_MEMORY {
        return Ok(false);
    }
    Err(gpu.failed(error))
}
