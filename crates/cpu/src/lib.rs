//! Host machinery: memory, threads, SIMD loops, matrix product, convolution.
//!
//! Knows slices, pointers and layouts; knows nothing of tensors.

pub mod convert;
pub mod copy;
mod grid;
pub mod kernel;
pub mod memory;
pub mod parallel;
pub mod program;
