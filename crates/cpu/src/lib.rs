//! Host machinery: memory, threads, SIMD loops, matrix product, convolution.
//!
//! Knows slices, pointers and layouts; knows nothing of tensors.

pub(crate) mod arch;
pub mod isa;
pub mod kernel;
pub mod memory;
pub mod parallel;
pub mod random;
pub mod reduce;
pub mod softmax;
pub(crate) mod vectorize;
