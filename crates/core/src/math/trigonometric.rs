//! `sin`, `cos` and `tan`: polynomials on `|r| <= pi/4` after [`angle`](super::angle) has taken off quarter turns.

use super::angle::{quarter_turns, quarter_turns_pair};
use super::double_word::quick_two_sum;
use super::polynomial::fit;
use crate::arith::{Arith, Bits};

/// The sine (`torch.sin`).
#[inline(always)]
pub fn sin<A: Arith>(x: A) -> A {
    let (n, r) = quarter_turns(x.abs());
    let (sine, cosine) = near_zero(r);
    let value = A::select(odd::<A>(n), cosine, sine);
    // Sign of x, flipped in the third and fourth quarter.
    let flip = (x.to_bits() ^ x.abs().to_bits()) ^ second_bit_to_sign::<A>(n);
    A::from_bits(value.to_bits() ^ flip)
}

/// The cosine (`torch.cos`).
#[inline(always)]
pub fn cos<A: Arith>(x: A) -> A {
    let (n, r) = quarter_turns(x.abs());
    let (sine, cosine) = near_zero(r);
    let value = A::select(odd::<A>(n), sine, cosine);
    let flip = second_bit_to_sign::<A>(n + A::Bits::splat(1));
    A::from_bits(value.to_bits() ^ flip)
}

/// The tangent (`torch.tan`).
#[inline(always)]
pub fn tan<A: Arith>(x: A) -> A {
    let (n, r) = quarter_turns_pair(x.abs());
    let z = r.hi * r.hi;
    let more = r.hi * z * fit(z, TAN_F32, TAN_F64);
    let about = r.hi + more;
    // The derivative is 1 + tan^2.
    let tangent = quick_two_sum(r.hi, more + r.lo.mul_add(about * about, r.lo));
    // -1 / tangent, with one step of Newton for the last place.
    let inverse = A::of(-1.0) / tangent.hi;
    let residue = inverse.mul_add(tangent.lo, inverse.mul_add(tangent.hi, A::of(1.0)));
    let value = A::select(odd::<A>(n), inverse.mul_add(residue, inverse), tangent.hi);
    A::from_bits(value.to_bits() ^ x.to_bits() ^ x.abs().to_bits())
}

/// Sine and cosine for `|r| <= pi/4`.
#[inline(always)]
fn near_zero<A: Arith>(r: A) -> (A, A) {
    let z = r * r;
    let sine = (r * z).mul_add(fit(z, SIN_F32, SIN_F64), r);
    let cosine = (z * z).mul_add(fit(z, COS_F32, COS_F64), z.mul_add(A::of(-0.5), A::of(1.0)));
    (sine, cosine)
}

#[inline(always)]
fn odd<A: Arith>(n: A::Bits) -> A::Mask {
    (n & A::Bits::splat(1)).eq(A::Bits::splat(1))
}

/// The second lowest bit of `n`, moved to the sign's place.
#[inline(always)]
fn second_bit_to_sign<A: Arith>(n: A::Bits) -> A::Bits {
    n.shr_logical(1).shl(if A::DOUBLE { 63 } else { 31 })
}

// sin(r) = r + r^3 p(r^2)
const SIN_F32: [f64; 3] = [
    -0.16666655242443085,
    0.008332188241183758,
    -0.000195180851733312,
];
const SIN_F64: [f64; 6] = [
    -0.1666666666666663,
    0.008333333333322033,
    -0.00019841269829517832,
    2.7557313595629945e-06,
    -2.5050743600509737e-08,
    1.589598176398717e-10,
];
// cos(r) = 1 - r^2 / 2 + r^4 p(r^2)
const COS_F32: [f64; 3] = [
    0.04166664555668831,
    -0.0013887309469282627,
    2.4432327336398885e-05,
];
const COS_F64: [f64; 6] = [
    0.041666666666666595,
    -0.0013888888888872932,
    2.4801587288772252e-05,
    -2.755731415575331e-07,
    2.0875697564653607e-09,
    -1.1358362995517948e-11,
];
// tan(r) = r + r^3 p(r^2)
const TAN_F32: [f64; 7] = [
    0.33333349227905273,
    0.13332673907279968,
    0.054059188812971115,
    0.02128438651561737,
    0.010832973755896091,
    9.038890857482329e-05,
    0.004376930650323629,
];
const TAN_F64: [f64; 14] = [
    0.33333333333332765,
    0.13333333333416186,
    0.05396825392591922,
    0.021869489626990604,
    0.008863218910163242,
    0.003592291377916145,
    0.0014547439541921527,
    0.0005951239117345763,
    0.00022220470646227972,
    0.00013688756946327025,
    -2.6898309669760367e-05,
    8.992470033581533e-05,
    -4.513245176708773e-05,
    2.092501194134582e-05,
];
