//! `Pointwise`: an op that treats every element alike, as one generic function.

use crate::arith::{Arith, Whole};

/// The number type that a function is computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// f32, also for the 16-bit floats.
    F32,
    /// f64.
    F64,
    /// i64, for all whole numbers and bools.
    I64,
}

/// A pointwise function of `N` inputs and `M` outputs.
///
/// The implementing struct's fields are the function's constant arguments (a slope, a learning rate).
/// From this one definition come the CPU kernels, the CUDA kernel and every fused kernel. Bools are
/// carried as 1 and 0 in the lanes of the inputs.
pub trait Pointwise<const N: usize, const M: usize = 1>: Send + Sync + 'static {
    /// Whether [`eval_int`](Self::eval_int) is implemented.
    const WHOLE: bool = false;

    /// The function on floating lanes.
    ///
    /// Mark it `#[inline(always)]`, here and in whatever it calls: SIMD lanes are fast only where all of it is
    /// inlined into one loop.
    fn eval<A: Arith>(&self, x: [A; N]) -> [A; M];

    /// The function on whole numbers, where it has one (`add` has, `exp` has not).
    ///
    /// Scalar lanes are `Wrapping<i64>`, since whole numbers wrap around. Called only where [`WHOLE`](Self::WHOLE) is true.
    fn eval_int<I: Whole>(&self, x: [I; N]) -> [I; M] {
        let _ = x;
        unreachable!("a pointwise function without a whole-number form was called on whole numbers")
    }
}
