//! Host memory that kernels may use: page-locked, managed and registered memory, at its own addresses.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::Shadow;
use crate::exec::memory::Region;

/// Memory that the driver made; freed with the last view of it.
#[derive(Debug)]
pub(crate) struct HostBlock {
    pointer: *mut u8,
    layout: Layout,
}

// SAFETY: the block is memory, not tied to a thread; who uses it orders the accesses.
unsafe impl Send for HostBlock {}
// SAFETY: as above.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// A block of pages; `None` if there is no memory.
    pub(crate) fn new(bytes: usize, poison: usize) -> Option<HostBlock> {
        let layout = Layout::from_size_align(bytes.max(1), 4096).ok()?;
        // SAFETY: the size is not zero.
        let pointer = unsafe { alloc(layout) };
        if pointer.is_null() {
            return None;
        }
        // SAFETY: the block has that many bytes.
        unsafe { pointer.write_bytes(0xff, bytes.min(poison)) };
        Some(HostBlock { pointer, layout })
    }

    /// The first byte.
    pub(crate) fn address(&self) -> u64 {
        self.pointer as u64
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.pointer, self.layout) };
    }
}

/// What a stretch of host memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// `cuMemHostAlloc`, `cuMemAllocHost`.
    Pinned,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostRegister`.
    Registered,
}

/// A stretch of host memory that kernels may use.
#[derive(Clone, Debug)]
pub(crate) struct HostRange {
    /// Bytes.
    pub(crate) size: u64,
    /// What it is.
    pub(crate) kind: HostKind,
    /// The flags that it was made with.
    pub(crate) flags: u32,
    /// The context that it belongs to, and that context's device.
    pub(crate) context: u64,
    /// The device of the context.
    pub(crate) device: usize,
    /// A number of its own.
    pub(crate) id: u64,
    /// What the checks remember; only of managed memory, which the host need not write.
    pub(crate) shadow: Option<Arc<Shadow>>,
    /// The memory, unless the caller owns it.
    pub(crate) _block: Option<Arc<HostBlock>>,
}

/// Whether the process has memory at all addresses of a stretch.
pub(crate) fn is_mapped(start: u64, bytes: u64) -> bool {
    const PAGE: u64 = 4096;
    let Some(end) = start.checked_add(bytes) else {
        return false;
    };
    let mut answers = [0u8; 4096];
    let mut page = start / PAGE * PAGE;
    while page < end {
        let part = (end - page).min(answers.len() as u64 * PAGE);
        // SAFETY: only asks about pages, and writes a byte for each of them.
        let failed =
            unsafe { libc::mincore(page as *mut _, part as usize, answers.as_mut_ptr().cast()) };
        if failed != 0 {
            return false;
        }
        page += part;
    }
    true
}

/// Stretches by their first address.
pub(crate) type HostRanges = BTreeMap<u64, HostRange>;

/// The stretch that an address lies in.
pub(crate) fn find(ranges: &HostRanges, address: u64) -> Option<(u64, &HostRange)> {
    let (&start, range) = ranges.range(..=address).next_back()?;
    (address - start < range.size).then_some((start, range))
}

/// As the executor sees a stretch.
pub(crate) fn region(start: u64, range: &HostRange) -> Region {
    Region {
        start,
        end: start + range.size,
        host: start as *mut u8,
        writable: true,
        lasting: true,
        shadow: range.shadow.as_ref().map_or(std::ptr::null(), Arc::as_ptr),
    }
}
