//! The table of ops: one file per family, one line here per file.

pub mod activation;
pub mod attention;
mod attention_cuda;
pub mod binary;
pub mod bitwise;
pub mod bounds;
pub mod columns;
pub mod combined;
pub mod conv;
pub mod conv_nd;
pub(crate) mod conv_vendor;
pub mod copy;
pub mod diagonal;
pub mod distributions;
pub mod division;
pub mod dropouts;
pub mod embedding_bag;
pub mod fill;
pub mod flip;
pub(crate) mod float;
pub mod grid;
pub mod index;
pub mod index_put;
pub mod interpolate;
pub mod linalg;
pub mod loss;
pub mod loss_ctc;
pub mod loss_margin;
pub mod loss_pointwise;
pub mod masked;
pub mod matmul;
pub mod norm;
pub(crate) mod norm_cuda;
pub mod normalize;
pub mod order;
pub mod pad;
pub mod pool;
pub mod pool_nd;
pub mod random;
pub mod recurrent;
pub mod reduce;
mod resample;
pub(crate) mod row;
pub(crate) mod row_kernels;
pub mod scan;
pub mod scatter;
pub mod scatter_reduce;
pub mod search;
pub mod shape;
pub mod softmax;
pub mod sort;
pub mod special;
pub mod statistics;
pub mod subscript;
mod taps;
pub mod unary;
pub mod view;

use std::sync::LazyLock;

use crate::function::Function;
pub use crate::function::apply;
use crate::op::Op;

pub use crate::by_name::{Entry, Family, Kind, Parameter, Value, call, entries, find};

/// Every pointwise function: the rows of the table.
pub fn functions() -> &'static [&'static dyn Function] {
    static FUNCTIONS: LazyLock<Vec<&'static dyn Function>> = LazyLock::new(|| {
        [
            unary::FUNCTIONS,
            binary::FUNCTIONS,
            special::FUNCTIONS,
            activation::FUNCTIONS,
            division::FUNCTIONS,
            bitwise::FUNCTIONS,
            bounds::FUNCTIONS,
            combined::FUNCTIONS,
        ]
        .concat()
    });
    &FUNCTIONS
}

/// One value of every op that is no pointwise function, from which its name, autocast class and saved tensors are read.
pub fn others() -> Vec<Box<dyn Op>> {
    [
        attention::ops(),
        conv::ops(),
        copy::ops(),
        diagonal::ops(),
        fill::ops(),
        flip::ops(),
        index::ops(),
        index_put::ops(),
        interpolate::ops(),
        linalg::ops(),
        loss::ops(),
        masked::ops(),
        matmul::ops(),
        norm::ops(),
        pad::ops(),
        order::ops(),
        pool::ops(),
        random::ops(),
        recurrent::ops(),
        reduce::ops(),
        scan::ops(),
        scatter::ops(),
        scatter_reduce::ops(),
        search::ops(),
        softmax::ops(),
        sort::ops(),
        view::ops(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
