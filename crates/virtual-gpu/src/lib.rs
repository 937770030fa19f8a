//! The CUDA driver API, executed on the CPU.

#![allow(
    clippy::precedence,
    reason = "bit fields are shifted, then masked, then joined, as in every manual"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "the driver's functions and a memory access are that many facts"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "a lane's number indexes several arrays at once"
)]
#![allow(
    clippy::type_complexity,
    reason = "tables of functions have the types of their functions"
)]

mod check;
#[cfg(test)]
mod corpus;
mod decode;
mod device;
pub mod driver;
mod exec;
mod fault;
#[cfg(test)]
mod fuzz;
mod instructions;
pub mod machine;
pub mod ptx;
#[cfg(test)]
mod rig;

pub use fault::{Fault, FaultKind};
