//! Divisions that round, and their remainders.

use fireclay_core::arith::{Mask, Whole};
use fireclay_core::math;

use super::row::{in_place, pointwise};
use super::unary::zero;

/// Where one of two masks holds.
#[inline(always)]
fn differ<M: Mask>(a: M, b: M) -> M {
    (a & !b) | (!a & b)
}

/// `x / y` rounded down.
#[inline(always)]
fn whole_quotient<A: Whole>(x: A, y: A) -> A {
    let quotient = x.quotient(y);
    let inexact = (quotient * y).ne(x);
    let minus = differ(x.lt(A::int(0)), y.lt(A::int(0)));
    A::select(inexact & minus, quotient - A::int(1), quotient)
}

pointwise! {
    /// `x / y` rounded down (`torch.floor_divide`, `torch.div(rounding_mode="floor")`); whole numbers stay whole numbers. Its
    /// derivatives are 0. An eager call on whole numbers refuses a divisor of 0, for which it waits for a device; in a formula the
    /// quotient is 0.
    FloorDivide, floor_divide(x, y), Division, saves Saves::NONE, autocast Keep,
        eval float_or_whole { math::floor_divide(x, y); whole_quotient(x, y) },
        grad(r, g) { [Some(zero(g)), Some(zero(g))] };
    /// `x / y` cut towards zero (`torch.div(rounding_mode="trunc")`); whole numbers stay whole numbers. Zero divisors are treated as by
    /// [`floor_divide`](crate::Tensor::floor_divide).
    DivTrunc, div_trunc(x, y), Division, saves Saves::NONE, autocast Keep,
        eval float_or_whole { (x / y).trunc(); x.quotient(y) },
        grad(r, g) { [Some(zero(g)), Some(zero(g))] };
    /// What is left of `x` after whole multiples of `y`, with the sign of `y` (`torch.remainder`). Exact. Zero divisors are treated as
    /// by [`floor_divide`](crate::Tensor::floor_divide); of floats they give NaN.
    Remainder, remainder(x, y), Division, saves Saves::INPUTS, autocast Keep,
        eval float_or_whole { math::remainder(x, y); x - whole_quotient(x, y) * y },
        grad(r, g) { [Some(g.clone()), Some(-(g * x.floor_divide(y)))] };
    /// What is left of `x` after whole multiples of `y`, with the sign of `x` (`torch.fmod`). Exact. Zero divisors are treated as
    /// by [`floor_divide`](crate::Tensor::floor_divide); of floats they give NaN.
    Fmod, fmod(x, y), Division, saves Saves::INPUTS, autocast Keep,
        eval float_or_whole { math::fmod(x, y); x - x.quotient(y) * y },
        grad(r, g) { [Some(g.clone()), Some(-(g * x.div_trunc(y)))] };
}

in_place! {
    FloorDivide => floor_divide_(other);
    DivTrunc => div_trunc_(other);
    Remainder => remainder_(other);
    Fmod => fmod_(other);
}
