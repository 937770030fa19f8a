//! The CUDA driver API, executed on the CPU.

pub mod ptx;
