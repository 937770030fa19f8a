//! Executes decoded kernels: lanes, warps, blocks and grids.

pub(crate) mod block;
pub(crate) mod code;
pub(crate) mod core;
pub(crate) mod instruction;
mod instrument;
pub(crate) mod lanes;
pub(crate) mod launch;
pub(crate) mod memory;
mod pool;
pub(crate) mod rendezvous;
mod special;
#[cfg(test)]
mod tests;
pub(crate) mod warp;
