//! What launches of kernels over rows share: the dtype that is computed in, and how many rows shared memory has room for.

use fireclay_core::DType;

/// Shared memory that every device gives a block, less what the kernels of `row.cuh` declare.
const SHARED: usize = (48 << 10) - 512;

/// The dtype that a floating dtype is computed in.
pub(crate) fn computed(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// How many rows of `cols` numbers, as they are computed with, fit into shared memory, at most `wanted`; and their bytes.
pub(crate) fn rows_in_shared(cols: usize, dtype: DType, wanted: usize) -> (usize, usize) {
    let nbytes = cols.saturating_mul(computed(dtype).size());
    let rows = (SHARED / nbytes.max(1)).min(wanted);
    (rows, rows * nbytes)
}

/// Whether a warp keeps a row in registers, for kernels whose lanes keep four pairs, or two of doubles.
pub(crate) fn fits_a_warp(cols: usize, dtype: DType) -> bool {
    cols <= if dtype == DType::F64 { 128 } else { 256 }
}

/// Threads of a block that works on a row which doesn't.
pub(crate) const BLOCK_THREADS: usize = 512;

/// Threads of a warp.
pub(crate) const WARP: usize = 32;
