//! Page-locked host memory: [`PinnedBuffer`], which a device can copy from and to while the host goes on.
//!
//! Locking pages takes the system long, so buffers are kept. A class is a size rounded up to 4 KiB, or from 64 KiB on to an
//! eighth of the power of two below: at most an eighth is more than was asked for. A buffer that work still uses is given out
//! again only when that work is done.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fireclay_core::{Device, Error, Result};

use super::report::Bytes;
use crate::driver::code;
use crate::event::Event;
use crate::gpu::Gpu;
use crate::stream::Stream;

/// Every device may use the memory.
const PORTABLE: u32 = 1;

/// Page-locked host memory that it owns alone. Dropping it returns it to the cache, on any thread.
pub struct PinnedBuffer {
    /// None if there are no bytes, or within `drop`.
    block: Option<Block>,
    nbytes: usize,
    gpu: &'static Gpu,
    used: Mutex<Vec<Event>>,
}

struct Block {
    pointer: NonNull<u8>,
    class: usize,
}

// SAFETY: a block owns its bytes alone; nothing about them is bound to a thread.
unsafe impl Send for Block {}
// SAFETY: through `&Block` nothing is read or written.
unsafe impl Sync for Block {}

/// What page-locked memory is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedStatistics {
    /// Buffers in use.
    pub buffers: u64,
    /// Bytes in use, as asked for.
    pub requested_bytes: u64,
    /// Bytes in use, as rounded.
    pub allocated_bytes: u64,
    /// The most of them so far.
    pub allocated_peak: u64,
    /// Bytes held, in use or not.
    pub reserved_bytes: u64,
    /// Times that the driver locked memory.
    pub num_host_alloc: u64,
    /// Times that it was given back.
    pub num_host_free: u64,
}

#[derive(Default)]
struct Cache {
    free: BTreeMap<usize, Vec<Block>>,
    waiting: Vec<(Block, Vec<Event>)>,
    statistics: PinnedStatistics,
}

static CACHE: Mutex<Cache> = Mutex::new(Cache {
    free: BTreeMap::new(),
    waiting: Vec::new(),
    statistics: PinnedStatistics {
        buffers: 0,
        requested_bytes: 0,
        allocated_bytes: 0,
        allocated_peak: 0,
        reserved_bytes: 0,
        num_host_alloc: 0,
        num_host_free: 0,
    },
});

fn lock() -> MutexGuard<'static, Cache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size that serves a request.
fn class_of(nbytes: usize) -> Option<usize> {
    const PAGE: usize = 4096;
    let step = match nbytes {
        0..=0xffff => PAGE,
        _ => (1usize << nbytes.ilog2()) / 8,
    };
    nbytes.checked_next_multiple_of(step)
}

impl PinnedBuffer {
    /// A buffer of `nbytes` bytes of any (initialised) content, for copies with `gpu`; other devices may use it too.
    ///
    /// # Errors
    /// If the memory can't be had.
    pub fn allocate(gpu: &'static Gpu, nbytes: usize) -> Result<PinnedBuffer> {
        let block = match nbytes {
            0 => None,
            _ => Some(allocate(gpu, nbytes)?),
        };
        Ok(PinnedBuffer {
            block,
            nbytes,
            gpu,
            used: Mutex::default(),
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

    /// The device that it was made for.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The address of the first byte. What reads or writes through it must know that no other work uses these bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        let pointer = self.block.as_ref().map(|block| block.pointer);
        pointer.unwrap_or(NonNull::dangling()).as_ptr()
    }

    /// Notes that work which `stream` has by now uses the bytes: they are not given out again before it is done.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn used_by(&self, stream: &Stream) -> Result<()> {
        let Ok(event) = stream.mark() else {
            // Nobody would know when the work is done, so it is waited for here. If that fails, nothing runs any more.
            return stream.synchronize();
        };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.push(event);
        Ok(())
    }

    /// The bytes, to be written.
    ///
    /// # Errors
    /// If work that used them failed. It is waited for.
    pub fn as_bytes_mut(&mut self) -> Result<&mut [u8]> {
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        for event in used.drain(..) {
            event.wait_quietly()?;
        }
        let pointer = self.as_ptr();
        // SAFETY: the buffer owns nbytes initialised bytes there, no work uses them, and `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, self.nbytes) })
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer({} bytes)", self.nbytes)
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        let used = std::mem::take(self.used.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut cache = lock();
        let statistics = &mut cache.statistics;
        statistics.buffers -= 1;
        statistics.requested_bytes -= self.nbytes as u64;
        statistics.allocated_bytes -= block.class as u64;
        if used.is_empty() {
            cache.give_back(block);
        } else {
            cache.waiting.push((block, used));
        }
    }
}

/// What page-locked memory is used for.
pub fn pinned_statistics() -> PinnedStatistics {
    lock().statistics
}

/// Gives unused page-locked memory back to the system and returns how many bytes that were.
///
/// # Errors
/// If the driver fails.
pub fn empty_pinned_cache(gpu: &'static Gpu) -> Result<u64> {
    let mut cache = lock();
    cache.reap();
    cache.release(gpu)
}

fn allocate(gpu: &'static Gpu, nbytes: usize) -> Result<Block> {
    let mut cache = lock();
    cache.reap();
    let class = class_of(nbytes).ok_or_else(|| cache.out_of_memory(nbytes))?;
    let block = match cache.free.get_mut(&class).and_then(Vec::pop) {
        Some(block) => block,
        None => match cache.lock_pages(gpu, class)? {
            Some(block) => block,
            None => {
                cache.release(gpu)?;
                let block = cache.lock_pages(gpu, class)?;
                block.ok_or_else(|| cache.out_of_memory(nbytes))?
            }
        },
    };
    let statistics = &mut cache.statistics;
    statistics.buffers += 1;
    statistics.requested_bytes += nbytes as u64;
    statistics.allocated_bytes += class as u64;
    statistics.allocated_peak = statistics.allocated_peak.max(statistics.allocated_bytes);
    Ok(block)
}

impl Cache {
    fn give_back(&mut self, block: Block) {
        self.free.entry(block.class).or_default().push(block);
    }

    /// Takes back blocks whose work is done. Work that failed is over too; the error is its own device's to tell.
    fn reap(&mut self) {
        let mut index = 0;
        while index < self.waiting.len() {
            let marks = &self.waiting[index].1;
            if marks.iter().all(|event| event.is_done().unwrap_or(true)) {
                let (block, _) = self.waiting.swap_remove(index);
                self.give_back(block);
            } else {
                index += 1;
            }
        }
    }

    /// Memory of a class from the driver; `None` if it has none.
    fn lock_pages(&mut self, gpu: &'static Gpu, class: usize) -> Result<Option<Block>> {
        let driver = gpu.bound()?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: one pointer is written.
        match unsafe { driver.mem_host_alloc(&mut pointer, class, PORTABLE) } {
            Ok(()) => {}
            Err(error) if error.code == code::OUT_OF_MEMORY => return Ok(None),
            Err(error) => return Err(gpu.failed(&error)),
        }
        let Some(pointer) = NonNull::new(pointer.cast::<u8>()) else {
            return Ok(None);
        };
        // SAFETY: the driver gave `class` bytes there. They are written once, so that reading them is never undefined.
        unsafe { pointer.write_bytes(0, class) };
        self.statistics.num_host_alloc += 1;
        self.statistics.reserved_bytes += class as u64;
        Ok(Some(Block { pointer, class }))
    }

    fn release(&mut self, gpu: &'static Gpu) -> Result<u64> {
        let driver = gpu.bound()?;
        let mut freed = 0;
        while let Some((class, blocks)) = self.free.pop_first() {
            for block in blocks {
                // SAFETY: the driver gave it, and nobody uses it.
                unsafe { driver.mem_free_host(block.pointer.as_ptr().cast()) }
                    .map_err(|error| gpu.failed(&error))?;
                self.statistics.num_host_free += 1;
                self.statistics.reserved_bytes -= class as u64;
                freed += class as u64;
            }
        }
        Ok(freed)
    }

    fn out_of_memory(&self, nbytes: usize) -> Error {
        let what = format!(
            "{} of page-locked memory asked for, {} in use, {} held; tried: the cache; the driver; giving unused memory \
             back; the driver again",
            Bytes(nbytes as u64),
            Bytes(self.statistics.allocated_bytes),
            Bytes(self.statistics.reserved_bytes)
        );
        let hint = "free page-locked tensors, or raise the limit of locked memory (ulimit -l)";
        Error::out_of_memory(Device::Cpu, what, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth() {
        assert_eq!(class_of(1), Some(4096));
        assert_eq!(class_of(4097), Some(8192));
        let mut nbytes = 1 << 16;
        while nbytes < 1 << 34 {
            for nbytes in [nbytes - 1, nbytes, nbytes + 1, nbytes + nbytes / 3] {
                let class = class_of(nbytes).unwrap();
                assert!(class >= nbytes && (class - nbytes) as f64 <= nbytes as f64 / 8.0 + 4096.0);
                assert_eq!(class_of(class), Some(class), "a class serves itself");
            }
            nbytes *= 2;
        }
        assert_eq!(class_of(usize::MAX), None);
    }
}
