//! The CUDA driver API, executed on the CPU.

mod check;
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
#[cfg(test)]
mod corpus;

pub use fault::{Fault, FaultKind};
