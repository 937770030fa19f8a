//! PTX as text and as data.

pub mod ast;
