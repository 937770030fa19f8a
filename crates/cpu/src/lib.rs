//! Host machinery: memory, threads, SIMD loops, matrix product, convolution.
//!
//! Knows slices, pointers and layouts; knows nothing of tensors.

pub(crate) mod arch;
pub mod attention;
pub mod batch;
pub mod conv;
pub mod convert;
pub mod copy;
pub mod gemm;
mod grid;
pub mod index;
pub mod interpolate;
pub mod isa;
pub mod kernel;
pub mod mapped_file;
pub mod memory;
pub mod norm;
pub mod parallel;
pub mod pool;
pub mod program;
pub mod random;
pub mod reduce;
pub mod scan;
pub mod search;
pub mod softmax;
pub mod sort;
pub(crate) mod vectorize;
