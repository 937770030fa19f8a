//! Host machinery: memory, threads, SIMD loops, matrix product, convolution.
//!
//! Knows slices, pointers and layouts; knows nothing of tensors.

pub(crate) mod arch;
pub mod isa;
pub mod kernel;
pub mod parallel;
