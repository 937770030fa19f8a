//! Checks that kernels make: what a kernel finds wrong with its data (an index out of range) is reported here, and becomes an
//! error of the next wait for the device. No launch waits for its checks, and the device goes on working.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use fireclay_core::{Context, Error, Result};

use crate::gpu::Gpu;
use crate::memory::PinnedBuffer;

/// What a kernel that indexes is launched for: what its report needs to become an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    /// The op.
    pub op: &'static str,
    /// The indexed dimension.
    pub dim: usize,
    /// Its size.
    pub size: usize,
    /// The user's line.
    pub location: &'static Location<'static>,
    /// Another number that indices may have, if there is one, and what it is called.
    pub also: Option<(&'static str, i64)>,
}

/// The first report that was not read yet, in page-locked memory: the kernels' `Check` of `device.cuh`.
#[repr(C)]
struct Slot {
    /// 0: free; 1: being written; 2: to be read; 3: being read.
    state: AtomicU32,
    site: AtomicU32,
    index: AtomicI64,
    position: AtomicI64,
}

/// The slot of one device, made when the first kernel that checks is launched.
#[derive(Default)]
pub(crate) struct Checks {
    slot: OnceLock<PinnedBuffer>,
}

impl Checks {
    fn slot(&self) -> Option<&Slot> {
        let buffer = self.slot.get()?;
        // SAFETY: the buffer is at least as long as a slot, aligned to a page, zero where it was never written, and lives as
        // long as the device's value. Host and device change it by atomic operations only.
        Some(unsafe { &*buffer.as_ptr().cast::<Slot>() })
    }
}

impl Gpu {
    /// What a kernel that checks needs: the address of its slot and the number of its site.
    ///
    /// # Errors
    /// If page-locked memory can't be had.
    pub fn check_at(&'static self, site: Site) -> Result<(u64, u32)> {
        if self.checks().slot.get().is_none() {
            let mut buffer = PinnedBuffer::allocate(self, size_of::<Slot>())?;
            buffer.as_bytes_mut()?.fill(0);
            // Another thread may have been faster.
            let _ = self.checks().slot.set(buffer);
        }
        let buffer = self.checks().slot.get().expect("the slot was just made");
        let mut sites = sites();
        let next = sites.list.len() as u32;
        let number = *sites.numbers.entry(site).or_insert(next);
        if number == next {
            sites.list.push(site);
        }
        // Page-locked memory has one address for the host and for every device.
        Ok((buffer.as_ptr() as u64, number))
    }

    /// The error of the first report since the last call, if there is one. To be called after every wait.
    pub(crate) fn raised(&self) -> Result<()> {
        match self.checks().slot() {
            // Claimed by one reader; kernels write to a free slot only.
            Some(slot)
                if slot.state.load(Ordering::Relaxed) == 2
                    && (slot.state)
                        .compare_exchange(2, 3, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok() =>
            {
                Err(self.read(slot))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn read(&self, slot: &Slot) -> Error {
        let site = sites().list[slot.site.load(Ordering::Relaxed) as usize];
        let index = slot.index.load(Ordering::Relaxed);
        let position = slot.position.load(Ordering::Relaxed);
        slot.state.store(0, Ordering::Release);
        let also = match site.also {
            Some((name, value)) => format!(", or {name} ({value})"),
            None => String::new(),
        };
        Error::IndexOutOfRange {
            op: site.op,
            index,
            position: position as usize,
            dim: site.dim,
            size: site.size,
            context: Context::hint(format!(
                "valid are 0 to {}{also}. {} found it in the work of {}; the host learns of it when it next waits. The \
                 element was left out or taken as zero, so nothing computed from it since is to be used",
                site.size as i64 - 1,
                self.device(),
                site.location
            )),
        }
    }
}

#[derive(Default)]
struct Sites {
    list: Vec<Site>,
    numbers: HashMap<Site, u32>,
}

/// Every site of the process. There are as many as lines and sizes that they are called with.
fn sites() -> std::sync::MutexGuard<'static, Sites> {
    static SITES: OnceLock<Mutex<Sites>> = OnceLock::new();
    let sites = SITES.get_or_init(Mutex::default);
    sites.lock().unwrap_or_else(PoisonError::into_inner)
}
