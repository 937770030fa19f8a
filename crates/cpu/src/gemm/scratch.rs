//! Scratch memory for packed operands, from the cache of host memory: it counts in the statistics, and can run out.

use super::Float;
use crate::memory::{HostBuffer, HostMemoryError};

/// Calls `work` with `len` numbers of scratch memory, whose values are arbitrary.
///
/// # Errors
/// If the memory can't be had; `work` isn't called then. Or what `work` gives.
pub(crate) fn with_scratch<T: Float>(
    len: usize,
    work: impl FnOnce(&mut [T]) -> Result<(), HostMemoryError>,
) -> Result<(), HostMemoryError> {
    let block = HostBuffer::allocate(len.saturating_mul(size_of::<T>()))?;
    // SAFETY: the block has `len` numbers' bytes, initialised and aligned to 64; T is f32 or f64, of which every bit
    // pattern is a value; the block is owned here until `work` is done.
    work(unsafe { std::slice::from_raw_parts_mut(block.as_ptr().cast::<T>(), len) })
}
