//! The table of ops: one file per family, one line here per file.

pub mod attention;
mod attention_cuda;
pub mod binary;
pub mod conv;
pub(crate) mod conv_vendor;
pub mod copy;
pub mod fill;
pub(crate) mod float;
pub mod index;
pub mod interpolate;
pub mod loss;
pub mod matmul;
pub mod norm;
pub(crate) mod norm_cuda;
pub mod pool;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub(crate) mod row;
pub(crate) mod row_kernels;
pub mod scan;
pub mod scatter;
pub mod softmax;
pub mod sort;
pub mod unary;
pub mod view;

use std::sync::LazyLock;

use crate::function::Function;
use crate::op::Op;

pub use crate::by_name::{call, entries, find};

/// Every pointwise function: the rows of the table.
pub fn functions() -> &'static [&'static dyn Function] {
    static FUNCTIONS: LazyLock<Vec<&'static dyn Function>> =
        LazyLock::new(|| [unary::FUNCTIONS, binary::FUNCTIONS].concat());
    &FUNCTIONS
}

/// One value of every op that is no pointwise function, from which its name, autocast class and saved tensors are read.
pub fn others() -> Vec<Box<dyn Op>> {
    [
        attention::ops(),
        conv::ops(),
        copy::ops(),
        fill::ops(),
        index::ops(),
        interpolate::ops(),
        loss::ops(),
        matmul::ops(),
        norm::ops(),
        pool::ops(),
        random::ops(),
        recurrent::ops(),
        reduce::ops(),
        scan::ops(),
        scatter::ops(),
        softmax::ops(),
        sort::ops(),
        view::ops(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
