//! Host machinery: memory, threads, SIMD loops, matrix product, convolution.
//!
//! Knows slices, pointers and layouts; knows nothing of tensors.

pub mod memory;
pub mod parallel;
