//! The table of ops: one file per family, one line here per file.

pub mod binary;
pub mod copy;
pub mod fill;
pub mod reduce;
pub(crate) mod row;
pub mod unary;
pub mod view;
