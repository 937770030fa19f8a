//! The policy of a caching allocator: which free block serves a request, what is split, what is merged.
//!
//! Works on addresses and on segments given to it; knows no driver, no threads and no memory. Both devices plug
//! their segments in: the host large zeroed mappings, CUDA what the driver hands out.
//!
//! Note [Caching policy]
//!
//! The rules and the constants are those of PyTorch's CUDA allocator, so that its statistics
//! mean the same here. A request is rounded up to 512 bytes. Requests up to 1 MiB live in a small pool, cut from
//! segments of 2 MiB; larger ones in a large pool. A block is served by the smallest free block that fits (the one
//! with the lowest address among equals) of the same pool and stream; the rest of it becomes a free block of
//! its own if it's large enough to be of use. A freed block merges at once with free neighbours in its segment.
//! Every operation costs O(log n) in the number of free blocks.

mod free_blocks;
mod statistics;

pub use statistics::{PoolStatistics, Statistic, Statistics};

use free_blocks::{FreeBlocks, FreeKey};
use statistics::Ledger;

const MIB: u64 = 1 << 20;
/// "No block": the end of a chain of neighbours.
const NONE: u32 = u32::MAX;

/// The sizes that rule a [`CachingPolicy`], in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachingConfig {
    /// Every request is rounded up to a multiple of this, a power of two.
    pub rounding: u64,
    /// The largest request that the small pool serves.
    pub small_limit: u64,
    /// The segment that the small pool asks for.
    pub small_segment: u64,
    /// Requests of the large pool below this share segments of [`large_segment`](Self::large_segment).
    pub shared_limit: u64,
    /// The segment that the large pool asks for, for requests below [`shared_limit`](Self::shared_limit).
    pub large_segment: u64,
    /// Requests from [`shared_limit`](Self::shared_limit) on get a segment of their own, rounded up to this.
    pub segment_rounding: u64,
    /// In the large pool a rest is split off only if it's larger than this. (The small pool splits off any rest.)
    pub large_rest: u64,
    /// Blocks of at least this size are never split (PyTorch's `max_split_size`); they serve no smaller request.
    pub max_split: u64,
    /// How much larger than the request a block of [`max_split`](Self::max_split) or more may be.
    pub oversize_slack: u64,
}

impl Default for CachingConfig {
    /// PyTorch's constants.
    fn default() -> Self {
        CachingConfig {
            rounding: 512,
            small_limit: MIB,
            small_segment: 2 * MIB,
            shared_limit: 10 * MIB,
            large_segment: 20 * MIB,
            segment_rounding: 2 * MIB,
            large_rest: MIB,
            max_split: u64::MAX,
            oversize_slack: 20 * MIB,
        }
    }
}

impl CachingConfig {
    /// What a request of `bytes` takes; `None` if that overflows.
    pub fn round(&self, bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(self.rounding)
    }

    /// The pool that serves a request of `bytes`.
    pub fn pool(&self, bytes: u64) -> Pool {
        if bytes <= self.small_limit {
            Pool::Small
        } else {
            Pool::Large
        }
    }

    /// How large a segment to get for a request of `bytes` that no free block can serve; `None` if that overflows.
    pub fn segment_bytes(&self, bytes: u64) -> Option<u64> {
        let bytes = self.round(bytes)?;
        match self.pool(bytes) {
            Pool::Small => Some(self.small_segment),
            Pool::Large if bytes < self.shared_limit => Some(self.large_segment),
            Pool::Large => bytes.checked_next_multiple_of(self.segment_rounding),
        }
    }
}

/// Small and large requests never share a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Requests up to [`CachingConfig::small_limit`].
    Small = 0,
    /// Larger ones.
    Large = 1,
}

/// An allocated block. It isn't `Clone`, since [`CachingPolicy::free`] takes it back.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    addr: u64,
    bytes: u64,
    id: u32,
}

impl Block {
    /// Where it starts: the segment's address plus a multiple of [`CachingConfig::rounding`].
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// How long it is: at least the request, rounded up.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A range of memory that a driver handed out as one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub addr: u64,
    /// How long it is.
    pub bytes: u64,
    /// Which requests it serves.
    pub pool: Pool,
    /// Which stream it serves.
    pub stream: u64,
}

/// What a block is used for at the time of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use.
    Allocated,
    /// Given up by its owner, but another stream may still work on it (see [`CachingPolicy::retire`]).
    Waiting,
    /// Free.
    Free,
}

/// A block in a [`SegmentSnapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSnapshot {
    /// Where it starts.
    pub addr: u64,
    /// How long it is.
    pub bytes: u64,
    /// What was asked for; 0 if it's free.
    pub requested: u64,
    /// What it's used for.
    pub state: BlockState,
}

/// A segment with all of its blocks, in order of address and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// The segment.
    pub segment: Segment,
    /// Its blocks.
    pub blocks: Vec<BlockSnapshot>,
}

/// The bookkeeping of a caching allocator; see Note [Caching policy] at the head of this file.
#[derive(Debug, Default)]
pub struct CachingPolicy {
    config: CachingConfig,
    blocks: Slab<Node>,
    segments: Slab<Segment>,
    /// The last block of each segment, by the segment's id: where it can grow.
    last: Vec<u32>,
    /// By stream, in the order in which they got their first segment. They're few, so they're searched one by one.
    free: Vec<StreamBlocks>,
    ledger: Ledger,
}

/// The free blocks of one stream: of its small and of its large pool.
#[derive(Debug)]
struct StreamBlocks {
    stream: u64,
    pools: [FreeBlocks; 2],
}

/// A block and its neighbours. The first block of a segment keeps its id for as long as the segment lives,
/// because the lower part of a split and of a merge keeps its id.
#[derive(Clone, Debug)]
struct Node {
    addr: u64,
    bytes: u64,
    requested: u64,
    /// Where its stream is in [`CachingPolicy::free`].
    slot: u32,
    segment: u32,
    previous: u32,
    next: u32,
    pool: Pool,
    state: BlockState,
}

impl Node {
    fn key(&self) -> FreeKey {
        FreeKey::new(self.bytes, self.addr)
    }

    /// Whether it shares its segment with another block.
    fn is_split(&self) -> bool {
        self.previous != NONE || self.next != NONE
    }
}

impl CachingPolicy {
    /// A policy without segments.
    pub fn new(config: CachingConfig) -> Self {
        CachingPolicy {
            config,
            ..CachingPolicy::default()
        }
    }

    /// The sizes that rule it.
    pub fn config(&self) -> &CachingConfig {
        &self.config
    }

    /// Serves a request of `requested` bytes from free memory. `None` means: [add](Self::add_segment) a segment of
    /// [`CachingConfig::segment_bytes`] and ask again.
    pub fn allocate(&mut self, requested: u64, stream: u64) -> Option<Block> {
        let size = self.config.round(requested)?;
        let pool = self.config.pool(size);
        let (bytes, id) = self.best_fit(size, pool, stream)?;
        self.forget_free(id);
        if self.splits(pool, bytes, size) {
            self.split(id, size);
        }
        let node = &mut self.blocks[id];
        node.state = BlockState::Allocated;
        node.requested = requested;
        self.ledger.allocate(pool, node.bytes, requested);
        Some(Block {
            addr: node.addr,
            bytes: node.bytes,
            id,
        })
    }

    /// Takes a block back and merges it with free neighbours.
    ///
    /// # Panics
    /// If the block isn't one of this policy's allocated blocks: a bug in the caller.
    pub fn free(&mut self, block: Block) {
        let mut id = self.expect_owned(&block);
        let node = &self.blocks[id];
        let pool = node.pool;
        if node.state == BlockState::Allocated {
            self.ledger.give_up(pool, node.bytes, node.requested);
        }
        self.ledger.deactivate(pool, node.bytes);

        let Node { previous, next, .. } = *node;
        if next != NONE && self.blocks[next].state == BlockState::Free {
            self.forget_free(next);
            self.absorb_next(id);
        }
        if previous != NONE && self.blocks[previous].state == BlockState::Free {
            self.forget_free(previous);
            self.absorb_next(previous);
            id = previous;
        }
        self.remember_free(id);
    }

    /// Notes that the block's owner gave it up, while it must not be reused before another stream is done with it:
    /// it counts as active, no longer as allocated. [`free`](Self::free) follows once the stream is done.
    ///
    /// # Panics
    /// If the block isn't one of this policy's allocated blocks: a bug in the caller.
    pub fn retire(&mut self, block: &Block) {
        let id = self.expect_owned(block);
        let node = &mut self.blocks[id];
        assert_eq!(
            node.state,
            BlockState::Allocated,
            "a block was retired twice"
        );
        node.state = BlockState::Waiting;
        self.ledger.give_up(node.pool, node.bytes, node.requested);
    }

    /// Gives the policy a new segment to cut blocks from.
    ///
    /// `addr` and `bytes` must be multiples of [`CachingConfig::rounding`] and overlap no other segment.
    pub fn add_segment(&mut self, addr: u64, bytes: u64, pool: Pool, stream: u64) {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(self.config.rounding));
        debug_assert!(addr.is_multiple_of(self.config.rounding));
        let segment = self.segments.insert(Segment {
            addr,
            bytes,
            pool,
            stream,
        });
        let slot = self.slot_or_insert(stream);
        let id = self.blocks.insert(Node {
            addr,
            bytes,
            requested: 0,
            slot,
            segment,
            previous: NONE,
            next: NONE,
            pool,
            state: BlockState::Free,
        });
        self.last
            .resize(self.last.len().max(segment as usize + 1), NONE);
        self.last[segment as usize] = id;
        self.ledger.reserve(pool, bytes);
        self.remember_free(id);
    }

    /// Lengthens the segment that starts at `addr` by `bytes`, which follow its end: virtual memory of which more was
    /// mapped. Returns false, and does nothing, if there is no such segment. O(number of segments).
    pub fn grow_segment(&mut self, addr: u64, bytes: u64) -> bool {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(self.config.rounding));
        let Some(segment) = self.segment_at(addr) else {
            return false;
        };
        let pool = self.segments[segment].pool;
        let end = addr + self.segments[segment].bytes;
        self.segments[segment].bytes += bytes;
        self.ledger.grow(pool, bytes);

        let last = self.last[segment as usize];
        if self.blocks[last].state == BlockState::Free {
            self.forget_free(last);
            self.blocks[last].bytes += bytes;
            self.remember_free(last);
            return true;
        }
        let id = self.blocks.insert(Node {
            addr: end,
            bytes,
            requested: 0,
            slot: self.blocks[last].slot,
            segment,
            previous: last,
            next: NONE,
            pool,
            state: BlockState::Free,
        });
        self.blocks[last].next = id;
        self.last[segment as usize] = id;
        self.remember_free(id);
        true
    }

    /// How many bytes at the end of the segment that starts at `addr` are free; `None` if there is no such segment.
    /// O(number of segments).
    pub fn free_tail(&self, addr: u64) -> Option<u64> {
        let last = &self.blocks[self.last[self.segment_at(addr)? as usize]];
        Some(match last.state {
            BlockState::Free => last.bytes,
            BlockState::Allocated | BlockState::Waiting => 0,
        })
    }

    /// Shortens the segment that starts at `addr` by `bytes`, which must be free and less than all of it: virtual memory
    /// of which the end is unmapped. Returns false, and does nothing, if that cannot be. O(number of segments).
    pub fn shrink_segment(&mut self, addr: u64, bytes: u64) -> bool {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(self.config.rounding));
        let Some(segment) = self.segment_at(addr) else {
            return false;
        };
        if self.free_tail(addr).is_none_or(|free| free < bytes)
            || self.segments[segment].bytes == bytes
        {
            return false;
        }
        let last = self.last[segment as usize];
        self.forget_free(last);
        self.segments[segment].bytes -= bytes;
        let pool = self.segments[segment].pool;
        self.ledger.shrink(pool, bytes);
        if self.blocks[last].bytes > bytes {
            self.blocks[last].bytes -= bytes;
            self.remember_free(last);
            return true;
        }
        // The whole block goes; it is not the first one, or it would be the whole segment.
        let previous = self.blocks[last].previous;
        self.blocks.remove(last);
        self.blocks[previous].next = NONE;
        self.last[segment as usize] = previous;
        true
    }

    fn segment_at(&self, addr: u64) -> Option<u32> {
        let mut ids = self.segments.ids();
        ids.find(|&id| self.segments[id].addr == addr)
    }

    /// Gives up all segments of which nothing is in use, in order of address (`empty_cache`). O(number of free blocks).
    pub fn release_unused(&mut self) -> Vec<Segment> {
        let mut unused: Vec<u32> = self
            .free
            .iter()
            .flat_map(|free| &free.pools)
            .flat_map(FreeBlocks::ids)
            .filter(|&id| !self.blocks[id].is_split())
            .collect();
        unused.sort_by_key(|&id| self.blocks[id].addr);
        unused.into_iter().map(|id| self.release(id)).collect()
    }

    /// The largest free block that a request on `stream` may be served from; 0 if there is none.
    pub fn largest_free(&self, stream: u64) -> u64 {
        let Some(slot) = self.slot(stream) else {
            return 0;
        };
        let largest = self.free[slot].pools.iter().filter_map(FreeBlocks::largest);
        largest.max().unwrap_or(0)
    }

    /// All segments, in order of address, with their blocks.
    pub fn snapshot(&self) -> Vec<SegmentSnapshot> {
        let mut firsts: Vec<u32> = self
            .blocks
            .ids()
            .filter(|&id| self.blocks[id].previous == NONE)
            .collect();
        firsts.sort_by_key(|&id| self.blocks[id].addr);
        firsts
            .into_iter()
            .map(|first| SegmentSnapshot {
                segment: self.segments[self.blocks[first].segment].clone(),
                blocks: self.chain(first).map(snapshot_of).collect(),
            })
            .collect()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> &Statistics {
        &self.ledger.statistics
    }

    /// Sets every peak to the current value (`reset_peak_memory_stats`).
    pub fn reset_peak(&mut self) {
        self.ledger.statistics.reset_peak();
    }

    /// Sets every sum of what was allocated and freed to 0, and the counts of failures
    /// (`reset_accumulated_memory_stats`).
    pub fn reset_accumulated(&mut self) {
        self.ledger.statistics.reset_accumulated();
    }

    /// Counts a request that failed for want of memory.
    pub fn count_out_of_memory(&mut self) {
        self.ledger.statistics.num_ooms += 1;
    }

    /// Counts a segment that came only after the cache was emptied.
    pub fn count_retry(&mut self) {
        self.ledger.statistics.num_alloc_retries += 1;
    }

    fn slot(&self, stream: u64) -> Option<usize> {
        self.free.iter().position(|free| free.stream == stream)
    }

    fn slot_or_insert(&mut self, stream: u64) -> u32 {
        let slot = self.slot(stream).unwrap_or_else(|| {
            self.free.push(StreamBlocks {
                stream,
                pools: Default::default(),
            });
            self.free.len() - 1
        });
        slot as u32
    }

    fn pool_of(&mut self, slot: u32, pool: Pool) -> &mut FreeBlocks {
        &mut self.free[slot as usize].pools[pool as usize]
    }

    /// The size and the id of the free block that serves a request of `size` bytes.
    fn best_fit(&self, size: u64, pool: Pool, stream: u64) -> Option<(u64, u32)> {
        let free = &self.free[self.slot(stream)?].pools[pool as usize];
        let (key, id) = free.first_from(FreeKey::new(size, 0))?;
        let (bytes, max_split) = (key.bytes(), self.config.max_split);
        let oversize = bytes >= max_split;
        let fits = !oversize || (size >= max_split && bytes - size <= self.config.oversize_slack);
        fits.then_some((bytes, id))
    }

    fn splits(&self, pool: Pool, block: u64, size: u64) -> bool {
        let rest = block - size;
        match pool {
            Pool::Small => rest >= self.config.rounding,
            Pool::Large => size < self.config.max_split && rest > self.config.large_rest,
        }
    }

    /// Cuts a block that isn't in the free map to `size`; the rest becomes free.
    fn split(&mut self, id: u32, size: u64) {
        let mut rest = self.blocks[id].clone();
        rest.addr += size;
        rest.bytes -= size;
        rest.requested = 0;
        rest.state = BlockState::Free;
        rest.previous = id;
        let (next, segment) = (rest.next, rest.segment);
        let rest = self.blocks.insert(rest);
        self.blocks[id].bytes = size;
        self.blocks[id].next = rest;
        match next {
            NONE => self.last[segment as usize] = rest,
            next => self.blocks[next].previous = rest,
        }
        self.remember_free(rest);
    }

    /// Joins a block with the one that follows it. Neither is in the free map.
    fn absorb_next(&mut self, id: u32) {
        let absorbed = self.blocks[id].next;
        let Node {
            bytes,
            next,
            segment,
            ..
        } = self.blocks[absorbed];
        self.blocks.remove(absorbed);
        self.blocks[id].bytes += bytes;
        self.blocks[id].next = next;
        match next {
            NONE => self.last[segment as usize] = id,
            next => self.blocks[next].previous = id,
        }
    }

    fn remember_free(&mut self, id: u32) {
        let node = &mut self.blocks[id];
        node.state = BlockState::Free;
        node.requested = 0;
        let (key, slot, pool) = (node.key(), node.slot, node.pool);
        if node.is_split() {
            self.ledger.inactive_split(pool, 1, node.bytes);
        }
        self.pool_of(slot, pool).insert(key, id);
    }

    fn forget_free(&mut self, id: u32) {
        let node = &self.blocks[id];
        let (key, slot, pool) = (node.key(), node.slot, node.pool);
        if node.is_split() {
            self.ledger.inactive_split(pool, -1, node.bytes);
        }
        self.pool_of(slot, pool).remove(key);
    }

    /// Removes a segment that is one free block.
    fn release(&mut self, id: u32) -> Segment {
        self.forget_free(id);
        let Node { segment, .. } = self.blocks[id];
        self.blocks.remove(id);
        let released = self.segments.remove(segment);
        self.ledger.unreserve(released.pool, released.bytes);
        released
    }

    fn expect_owned(&self, block: &Block) -> u32 {
        let known = self
            .blocks
            .get(block.id)
            .is_some_and(|node| node.addr == block.addr && node.state != BlockState::Free);
        assert!(
            known,
            "a block was freed twice, or given to an allocator it isn't from"
        );
        block.id
    }

    fn chain(&self, first: u32) -> impl Iterator<Item = &Node> {
        let node = |id: u32| (id != NONE).then(|| &self.blocks[id]);
        std::iter::successors(node(first), move |current| node(current.next))
    }
}

fn snapshot_of(node: &Node) -> BlockSnapshot {
    BlockSnapshot {
        addr: node.addr,
        bytes: node.bytes,
        requested: node.requested,
        state: node.state,
    }
}

/// Values under small numbers, which are used again once a value was removed.
#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            slots: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.vacant.pop() {
            self.slots[id as usize] = Some(value);
            return id;
        }
        self.slots.push(Some(value));
        (self.slots.len() - 1) as u32
    }

    fn remove(&mut self, id: u32) -> T {
        self.vacant.push(id);
        self.slots[id as usize].take().expect("the slot is in use")
    }

    fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|&id| self.get(id).is_some())
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, id: u32) -> &T {
        self.slots[id as usize]
            .as_ref()
            .expect("the slot is in use")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.slots[id as usize]
            .as_mut()
            .expect("the slot is in use")
    }
}
