//! The table of ops: one file per family, one line here per file.

pub mod binary;
pub mod conv;
pub mod copy;
pub mod fill;
pub(crate) mod float;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod pool;
pub mod random;
pub mod reduce;
pub(crate) mod row;
pub mod softmax;
pub mod unary;
pub mod view;
