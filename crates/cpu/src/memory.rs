//! Host memory: [`HostBuffer`], a block of bytes from a cache.
//!
//! Note [Host memory]
//!
//! Most of the time of a large op on freshly mapped memory goes into page faults (20 ms for 40 MB
//! of 4 KiB pages on the machine this was written on, against 3 ms for reading and writing them), so memory is kept:
//! - Blocks above 4 KiB are cut from segments by the policy in [`fireclay_core::caching`], under one lock.
//! - Smaller ones come from lists that each thread keeps by size (see `small`), without a lock.
//! - Segments are mapped by the operating system when they're needed, without touching them, and huge pages are asked
//!   for: that makes the first touch of 40 MB three times and strided reading 1.3 times as fast.
//! - If more than 256 MiB are cached beyond what's in use, unused segments are given back before a new one is
//!   mapped. So the cache stays bounded however the sizes asked for change.
//!
//! All memory is initialised: it comes as zeros and is used again with its old bytes, so reading it is never undefined.

mod error;
mod segment;
mod small;

pub use error::HostMemoryError;

use fireclay_core::caching::{Block, CachingConfig, CachingPolicy, Segment, Statistics};
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Every buffer's address is a multiple of this many bytes.
pub const ALIGNMENT: usize = 64;

/// How much may be cached beyond twice of what's in use before it is given back.
const CACHE_SLACK: u64 = 256 << 20;
const HUGE_PAGE: u64 = 2 << 20;
/// The host has one queue of work: the caller.
const STREAM: u64 = 0;

/// A block of host memory that it owns alone. Dropping it returns it to the cache, on any thread.
#[derive(Debug)]
pub struct HostBuffer {
    ptr: NonNull<u8>,
    nbytes: usize,
    source: Source,
}

/// Where a buffer's bytes go back to.
#[derive(Debug)]
enum Source {
    /// It has no bytes.
    Empty,
    /// A list of [`small`] blocks.
    Small,
    /// The caching policy. `None` only within `drop`.
    Cached(Option<Block>),
}

// SAFETY: a buffer owns its bytes alone; nothing about them is bound to a thread.
unsafe impl Send for HostBuffer {}
// SAFETY: through `&HostBuffer` safe code can only read; what writes through `as_ptr` vouches for itself.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// A buffer of `nbytes` bytes of any content, aligned to [`ALIGNMENT`].
    ///
    /// With the environment variable `FIRECLAY_POISON=1` every byte is 0xFF (NaN as any float, -1 as any whole
    /// number), so that reading what was never written shows.
    ///
    /// # Errors
    /// If the memory can't be had, or if `nbytes` is more than `isize::MAX`.
    #[inline]
    pub fn allocate(nbytes: usize) -> Result<HostBuffer, HostMemoryError> {
        let (ptr, source) = match nbytes {
            0 => (
                NonNull::without_provenance(std::num::NonZero::new(ALIGNMENT).expect("not zero")),
                Source::Empty,
            ),
            1..=small::LARGEST => (small::allocate(nbytes)?, Source::Small),
            _ => {
                let block = allocate_block(nbytes)?;
                (pointer(&block), Source::Cached(Some(block)))
            }
        };
        let buffer = HostBuffer {
            ptr,
            nbytes,
            source,
        };
        if *POISON {
            // SAFETY: the buffer owns nbytes bytes at ptr.
            unsafe { ptr.write_bytes(0xFF, nbytes) };
        }
        Ok(buffer)
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.nbytes
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nbytes == 0
    }

    /// The address of the first byte. What writes through it must know that nobody else uses these bytes.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the buffer owns nbytes initialised bytes at ptr (see Note [Host memory]).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.nbytes) }
    }

    /// The bytes, to be written.
    #[inline]
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the buffer owns nbytes initialised bytes at ptr, and `self` is borrowed for as long as they are.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.nbytes) }
    }
}

impl Drop for HostBuffer {
    #[inline]
    fn drop(&mut self) {
        match &mut self.source {
            Source::Empty => {}
            Source::Small => small::free(self.ptr, self.nbytes),
            Source::Cached(block) => {
                if let Some(block) = block.take() {
                    lock().policy.free(block);
                }
            }
        }
    }
}

/// An empty vector with room for `len` elements, for what isn't a tensor's bytes.
///
/// # Errors
/// If the memory can't be had.
pub(crate) fn vec_with_room<T>(len: usize) -> Result<Vec<T>, HostMemoryError> {
    let mut vec = Vec::new();
    match vec.try_reserve_exact(len) {
        Ok(()) => Ok(vec),
        Err(_) => Err(lock().out_of_memory(len.saturating_mul(size_of::<T>()))),
    }
}

/// What host memory is used for, with PyTorch's keys and meanings.
///
/// Exact but for one thing: a peak counts small blocks by the 64 KiB they're cut from.
pub fn memory_stats() -> Statistics {
    let cache = lock();
    let mut statistics = *cache.policy.statistics();
    small::correct(&mut statistics);
    statistics
}

/// Sets the peaks to the current values.
pub fn reset_peak_memory_stats() {
    lock().policy.reset_peak();
}

/// Gives all unused segments back to the operating system and returns how many bytes that were.
pub fn empty_cache() -> u64 {
    let released = lock().policy.release_unused();
    let bytes = released.iter().map(|segment| segment.bytes).sum();
    unmap_all(released);
    bytes
}

/// Lets at most `limit` bytes be reserved from now on; `None` takes the limit away. What's reserved already stays.
pub fn set_memory_limit(limit: Option<u64>) {
    lock().limit = limit;
}

struct Cache {
    policy: CachingPolicy,
    limit: Option<u64>,
}

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(|| {
    Mutex::new(Cache {
        policy: CachingPolicy::new(CachingConfig::default()),
        limit: None,
    })
});

static POISON: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("FIRECLAY_POISON").is_some_and(|value| value == "1"));

fn lock() -> MutexGuard<'static, Cache> {
    // The policy checks before it changes anything, so a panic in it leaves it whole.
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pointer(block: &Block) -> NonNull<u8> {
    let ptr = std::ptr::with_exposed_provenance_mut(block.addr() as usize);
    NonNull::new(ptr).expect("no segment starts at address 0")
}

/// A block of at least `nbytes` bytes from the policy.
fn allocate_block(nbytes: usize) -> Result<Block, HostMemoryError> {
    let mut cache = lock();
    if let Some(block) = cache.policy.allocate(nbytes as u64, STREAM) {
        return Ok(block);
    }
    let mut released = Vec::new();
    let result = cache.allocate_from_new_segment(nbytes, &mut released);
    drop(cache);
    // Outside of the lock, since giving pages back takes the system long.
    unmap_all(released);
    result
}

impl Cache {
    #[cold]
    fn allocate_from_new_segment(
        &mut self,
        nbytes: usize,
        released: &mut Vec<Segment>,
    ) -> Result<Block, HostMemoryError> {
        if isize::try_from(nbytes).is_err() {
            return Err(self.out_of_memory(nbytes));
        }
        let statistics = self.policy.statistics();
        let allocated = statistics.allocated_bytes.all.current;
        if statistics.reserved_bytes.all.current - allocated > allocated + CACHE_SLACK {
            released.extend(self.policy.release_unused());
        }
        if !self.add_segment(nbytes) {
            // Unmapped at once: the memory is needed now.
            unmap_all(std::mem::take(released));
            unmap_all(self.policy.release_unused());
            if !self.add_segment(nbytes) {
                return Err(self.out_of_memory(nbytes));
            }
            self.policy.count_retry();
        }
        Ok(self
            .policy
            .allocate(nbytes as u64, STREAM)
            .expect("the new segment serves the request"))
    }

    /// Maps a segment that can serve a request of `nbytes`, and returns whether that worked.
    fn add_segment(&mut self, nbytes: usize) -> bool {
        let config = self.policy.config();
        let pool = config.pool(nbytes as u64);
        let usual = config.segment_bytes(nbytes as u64);
        // When memory is short, a segment for this request alone may still be had.
        let exact = (nbytes as u64).checked_next_multiple_of(HUGE_PAGE);
        for bytes in [usual, exact].into_iter().flatten() {
            let reserved = self.policy.statistics().reserved_bytes.all.current;
            if self
                .limit
                .is_some_and(|limit| reserved.saturating_add(bytes) > limit)
            {
                continue;
            }
            if let Some(ptr) = segment::map(bytes as usize) {
                self.policy.add_segment(
                    ptr.as_ptr().expose_provenance() as u64,
                    bytes,
                    pool,
                    STREAM,
                );
                return true;
            }
        }
        false
    }

    fn out_of_memory(&mut self, nbytes: usize) -> HostMemoryError {
        self.policy.count_out_of_memory();
        let mut statistics = *self.policy.statistics();
        small::correct(&mut statistics);
        HostMemoryError {
            requested: nbytes,
            allocated: statistics.allocated_bytes.all.current,
            reserved: statistics.reserved_bytes.all.current,
            limit: self.limit,
        }
    }
}

fn unmap_all(segments: Vec<Segment>) {
    for segment in segments {
        // SAFETY: the policy gave the segment up, so no buffer and no free block lies in it; `add_segment` mapped it
        // with these numbers.
        unsafe {
            segment::unmap(
                std::ptr::with_exposed_provenance_mut(segment.addr as usize),
                segment.bytes as usize,
            )
        };
    }
}
