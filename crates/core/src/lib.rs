//! The values of Fireclay: dtypes, promotion, scalars, shapes, layouts, devices, errors, arithmetic.
//!
//! Nothing here allocates device memory, does I/O or needs `unsafe`; everything else builds on it.
#![forbid(unsafe_code)]

pub mod arith;
pub mod caching;
pub mod math;
pub mod philox;
pub mod pointwise;
