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
        // long as the device's value. All fields are atomics, so that a device may change them meanwhile. A kernel writes site,
        // index and position plainly, but only after its atomic exchange of the state from 0 to 1, which keeps every other
        // writer off; the host reads them only in states 2 and 3, and a system-wide fence comes before state 2.
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
        let number = sites().number_of(site);
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
        let site = sites().get(slot.site.load(Ordering::Relaxed));
        let index = slot.index.load(Ordering::Relaxed);
        let position = slot.position.load(Ordering::Relaxed);
        slot.state.store(0, Ordering::Release);
        let Some(site) = site else {
            let what = format!(
                "{} found that index {index}, at position {position} of the indices, is out of range, in work given before \
                 {SITES} other calls with indices: which call it was is not known any more",
                self.device()
            );
            return Error::argument("index", what).with_hint(
                "wait for the device more often, by reading a result, until the call is named",
            );
        };
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

/// How many sites are remembered: a call whose sizes grow makes a new one each time.
const SITES: usize = 8192;

/// The sites given last, numbered one after the other: number n has place n % SITES.
#[derive(Default)]
struct Sites {
    ring: Vec<(u32, Site)>,
    numbers: HashMap<Site, u32>,
    next: u32,
}

impl Sites {
    /// The number of a site, which stays known while at least half of [`SITES`] others are given one.
    fn number_of(&mut self, site: Site) -> u32 {
        if let Some(&number) = self.numbers.get(&site)
            && self.next.wrapping_sub(number) <= SITES as u32 / 2
        {
            return number;
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        let place = number as usize % SITES;
        match self.ring.get_mut(place) {
            None => self.ring.push((number, site)),
            Some(old) => {
                let (old, of) = std::mem::replace(old, (number, site));
                // A site in use was given a newer number since.
                if self.numbers.get(&of) == Some(&old) {
                    self.numbers.remove(&of);
                }
            }
        }
        self.numbers.insert(site, number);
        number
    }

    fn get(&self, number: u32) -> Option<Site> {
        let &(known, site) = self.ring.get(number as usize % SITES)?;
        (known == number).then_some(site)
    }
}

/// The sites of the process.
fn sites() -> std::sync::MutexGuard<'static, Sites> {
    static LATEST: OnceLock<Mutex<Sites>> = OnceLock::new();
    let sites = LATEST.get_or_init(Mutex::default);
    sites.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(size: usize) -> Site {
        Site {
            op: "gather",
            dim: 0,
            size,
            location: Location::caller(),
            also: None,
        }
    }

    #[test]
    fn sites_stay_few_and_those_in_use_known() {
        let mut sites = Sites::default();
        let often = site(0);
        for size in 1..=5 * SITES {
            let number = sites.number_of(often);
            assert_eq!(sites.get(number), Some(often));
            let other = site(size);
            let number = sites.number_of(other);
            assert_eq!(sites.number_of(other), number, "one site has one number");
            assert_eq!(sites.get(number), Some(other));
            assert!(sites.ring.len() <= SITES && sites.numbers.len() <= SITES);
        }
        assert_eq!(sites.get(0), None, "the first number is another site's now");
        assert_eq!(sites.get(sites.next), None);
    }

    #[test]
    fn numbers_wrap_around() {
        let mut sites = Sites::default();
        for size in 0..SITES {
            sites.number_of(site(size));
        }
        // The last numbers of u32, from the first place on.
        sites.next = u32::MAX - SITES as u32 + 1;
        for size in SITES..3 * SITES {
            let number = sites.number_of(site(size));
            assert_eq!(sites.get(number), Some(site(size)));
        }
        assert!(sites.numbers.len() <= SITES);
    }
}
