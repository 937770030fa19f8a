//! Polynomials, and constants of the lanes' width.

use crate::arith::Arith;

/// `c[0] + c[1] x + c[2] x^2 + ...`, by Horner's rule in fused steps.
#[inline(always)]
pub(super) fn polynomial<A: Arith, const K: usize>(x: A, c: [f64; K]) -> A {
    let mut sum = A::of(c[K - 1]);
    let mut k = K - 1;
    while k > 0 {
        k -= 1;
        sum = sum.mul_add(x, A::of(c[k]));
    }
    sum
}

/// The polynomial for the lanes' width.
#[inline(always)]
pub(super) fn fit<A: Arith, const K: usize, const L: usize>(
    x: A,
    single: [f64; K],
    double: [f64; L],
) -> A {
    if A::DOUBLE {
        polynomial(x, double)
    } else {
        polynomial(x, single)
    }
}

/// The constant for the lanes' width.
#[inline(always)]
pub(super) fn by_width<A: Arith>(single: f64, double: f64) -> A {
    A::of(if A::DOUBLE { double } else { single })
}

/// The whole-number constant for the lanes' width.
#[inline(always)]
pub(super) fn bits_by_width<A: Arith>(single: i64, double: i64) -> i64 {
    if A::DOUBLE { double } else { single }
}

/// How many bits of a lane hold the mantissa.
#[inline(always)]
pub(super) fn mantissa_bits<A: Arith>() -> u32 {
    if A::DOUBLE { 52 } else { 23 }
}

/// `x` limited to at most `most`; NaN stays.
#[inline(always)]
pub(super) fn at_most<A: Arith>(x: A, most: A) -> A {
    most.lesser(x)
}

/// `x` limited to at least `least`; NaN stays.
#[inline(always)]
pub(super) fn at_least<A: Arith>(x: A, least: A) -> A {
    least.greater(x)
}

/// The whole number nearest to `x * factor`, for magnitudes below 2^22 (f32) or 2^51 (f64).
///
/// Added to 1.5 times a power of two, a number is rounded to a whole one; this is quicker than an instruction for it.
#[inline(always)]
pub(super) fn rounded_product<A: Arith>(x: A, factor: A) -> A {
    let magic = by_width(12_582_912.0, 6_755_399_441_055_744.0); // 1.5 * 2^23, 1.5 * 2^52
    x.mul_add(factor, magic) - magic
}
