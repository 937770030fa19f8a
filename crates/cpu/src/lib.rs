//! Host machinery: memory, threads, SIMD loops, matrix product, convolution.
//!
//! Knows slices, pointers and layouts; knows nothing of tensors.

pub(crate) mod arch;
pub mod convert;
pub mod copy;
mod grid;
pub mod isa;
pub mod kernel;
pub mod mapped_file;
pub mod memory;
pub mod parallel;
pub mod program;
pub mod reduce;
