//! The CUDA driver API, executed on the CPU.

mod check;
#[cfg(test)]
mod corpus;
mod decode;
mod device;
pub mod driver;
mod exec;
mod fault;
mod instructions;
pub mod machine;
pub mod ptx;
#[cfg(test)]
mod rig;

pub use fault::{Fault, FaultKind};
