//! `#[derive(Module)]`: has a struct list its fields, so that no tensor of a module can be forgotten.
#![forbid(unsafe_code)]
