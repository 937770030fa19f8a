//! Runs cases of PyTorch's ops, modules, optimizers and schedules through Fireclay by name, and compares the answers.
//!
//! A set of cases is a directory: `cases.json` and `tensors.safetensors` (`docs/cases.md`). [`Report::of`] runs sets;
//! [`judge`](judge::judge) one case.
#![forbid(unsafe_code)]

mod call;
pub mod checklist;
pub mod compare;
mod facts;
pub mod judge;
mod modules;
mod ops;
mod optim;
mod property;
mod report;
mod schedule;
mod set;

pub use facts::{Facts, require_grad};
pub use report::{Report, Tally};
pub use set::{Case, Inputs, Set, SetError, Stored};
