//! What a running kernel sees of memory: a table of regions behind a trait, so that the executor knows nothing of
//! devices, contexts and pools.

use crate::check::Shadow;
use crate::ptx::ast::Space;

/// Where the shared window starts in generic addresses; a window has 2^32 bytes. Device memory lies elsewhere.
pub(crate) const SHARED_WINDOW: u64 = 1 << 56;
/// Where the local window starts.
pub(crate) const LOCAL_WINDOW: u64 = 2 << 56;
/// Where the window of kernel parameters starts.
pub(crate) const PARAM_WINDOW: u64 = 3 << 56;

/// The space that a generic address lies in, and the address there.
#[inline(always)]
pub(crate) fn resolved(space: Space, address: u64) -> (Space, u64) {
    match (space, address & 0xff << 56) {
        (Space::Generic, SHARED_WINDOW) => (Space::Shared, address - SHARED_WINDOW),
        (Space::Generic, LOCAL_WINDOW) => (Space::Local, address - LOCAL_WINDOW),
        (Space::Generic, PARAM_WINDOW) => (Space::Param, address - PARAM_WINDOW),
        (Space::Generic | Space::Const, _) => (Space::Global, address),
        _ => (space, address),
    }
}

/// A stretch of device addresses with the host memory behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// First device address.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// Host memory of `start`.
    pub(crate) host: *mut u8,
    /// Whether kernels may write to it.
    pub(crate) writable: bool,
    /// Whether it stays while the launch runs; what another thread of the kernel may free does not.
    pub(crate) lasting: bool,
    /// What the checks remember of its bytes; null when they are off. It lives as long as the host memory.
    pub(crate) shadow: *const Shadow,
}

/// The memory that one launch sees.
///
/// # Safety
/// A region's host memory must be valid for reads (and writes if writable) from `start` to `end` for as long as the
/// launch runs, and readable and writable from several threads as far as kernels do so.
pub(crate) unsafe trait Memory: Sync {
    /// The region that an address lies in.
    fn region(&self, address: u64) -> Option<Region>;
    /// Gives out a block of the heap of device code; `None` if there is no room.
    fn allocate(&self, bytes: u64) -> Option<u64>;
    /// Takes back a block of the heap; otherwise what is wrong with the address.
    fn free(&self, address: u64) -> Result<(), String>;
    /// What a message says of an address that lies in no region or ends outside: the nearest allocation, a freed one.
    fn describe(&self, address: u64) -> String;
}
