//! The CUDA driver API: the functions of the C interface, with what they need of contexts, modules, streams and graphs.
//!
//! Handles are numbers that the driver looks up; it never follows one, so that a foreign or stale handle is an error.
//! Entry points are made from one table ([`for_each_driver_function`](crate::for_each_driver_function)).
#![expect(non_snake_case, reason = "the names of the C interface")]

#[macro_use]
mod table;

pub mod abi;
pub(crate) mod call;
mod capture;
mod clock;
mod context;
mod copy;
mod device;
mod device_runtime;
mod entry;
pub(crate) mod error;
mod event;
mod fill;
mod function;
mod graph;
mod graph_exec;
mod graph_memory;
mod graph_node;
mod launch;
mod library;
mod memory;
mod module;
mod plan;
mod pool;
mod schedule;
pub(crate) mod state;
mod stream;
mod transfer;
mod virtual_memory;
mod work;

pub use entry::*;
