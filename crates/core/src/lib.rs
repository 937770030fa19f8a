//! The values of Fireclay: dtypes, promotion, scalars, shapes, layouts, devices, errors, arithmetic.
//!
//! Nothing here allocates device memory, does I/O or needs `unsafe`; everything else builds on it.
#![forbid(unsafe_code)]

pub mod arith;
pub mod math;
pub mod pointwise;
