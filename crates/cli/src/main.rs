//! The `fireclay` command.
#![forbid(unsafe_code)]
fn main() {}
