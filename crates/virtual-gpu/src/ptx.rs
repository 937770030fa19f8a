//! PTX as text and as data.

pub mod ast;
mod lexer;
mod parser;

pub use parser::{ParseError, parse};
