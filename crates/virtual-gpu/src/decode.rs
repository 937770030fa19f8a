//! From parsed functions to code that the executor runs: operands become slots, registers share slots where their
//! lives do not overlap, labels become indices.

pub(crate) mod builder;
mod flow;
mod kernel;
mod registers;

use std::fmt;

pub(crate) use builder::{Builder, Form, Kind, Refusal, Value};
pub(crate) use kernel::kernel;

/// Why a function cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// The function.
    pub(crate) function: String,
    /// Line in the PTX text, from 1.
    pub(crate) line: u32,
    /// The instruction.
    pub(crate) text: String,
    /// What is not supported or wrong.
    pub(crate) message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}, PTX line {}: {}: {}",
            self.function, self.line, self.text, self.message
        )
    }
}

impl std::error::Error for DecodeError {}
