//! `log`, `log2`, `log10` and `log1p`: `x = 2^k (1 + f)` with `1 + f` between `sqrt(1/2)` and `sqrt(2)`.

use super::double_word::{LN_2_LOW, LOG2_E_LOW, LOG10_2_LOW, LOG10_E_LOW, Pair, two_sum};
use super::exponential::{exp, exp2};
use super::polynomial::{bits_by_width, by_width, mantissa_bits, polynomial};
use crate::arith::{Arith, Bits};
use std::f64::consts::{LN_2, LOG2_E, LOG10_2, LOG10_E};

/// The natural logarithm (`torch.log`).
#[inline(always)]
pub fn log<A: Arith>(x: A) -> A {
    let (k, f) = split(x);
    at_limits(x, natural(k, f))
}

/// The logarithm to base 2 (`torch.log2`).
#[inline(always)]
pub fn log2<A: Arith>(x: A) -> A {
    let (k, f) = split(x);
    let scale = Pair::of(LOG2_E, LOG2_E_LOW);
    let small = f.mul_add(scale.lo, rest(f) * scale.hi);
    at_limits(x, k + f.mul_add(scale.hi, small))
}

/// The logarithm to base 10 (`torch.log10`).
#[inline(always)]
pub fn log10<A: Arith>(x: A) -> A {
    let (k, f) = split(x);
    let scale = Pair::of(LOG10_E, LOG10_E_LOW);
    let log_2 = Pair::of(LOG10_2, LOG10_2_LOW);
    let small = f.mul_add(scale.lo, k.mul_add(log_2.lo, rest(f) * scale.hi));
    at_limits(x, k.mul_add(log_2.hi, f.mul_add(scale.hi, small)))
}

/// `log(1 + x)`, exact to the last places near 0 too (`torch.log1p`).
#[inline(always)]
pub fn log1p<A: Arith>(x: A) -> A {
    let sum = two_sum(A::of(1.0), x);
    let (k, m) = exponent_and_mantissa(sum.hi);
    // What the sum lost is little where k is not 0, and nothing to speak of where the scale is out of range; where
    // k is 0, it completes f = x exactly.
    let one = A::of(1.0);
    let scale = A::from_bits(one.to_bits() - k.shl(mantissa_bits::<A>()));
    let lost = A::select(x.lt(by_width(1e10, 1e20)), sum.lo * scale, A::of(0.0));
    let f = (m - one) + lost;
    let value = natural(A::from_whole(k), f).copysign(x);
    let limit = A::select(
        x.eq(A::of(-1.0)),
        -A::infinity(),
        A::select(x.lt(A::of(-1.0)), A::nan(), x),
    );
    A::select(x.gt(A::of(-1.0)) & x.lt(A::infinity()), value, limit)
}

/// `log(e^x + e^y)`, without overflow (`torch.logaddexp`).
#[inline(always)]
pub fn logaddexp<A: Arith>(x: A, y: A) -> A {
    let most = x.maximum(y);
    let sum = most + log1p(exp(-(x - y).abs()));
    // Of equal infinities the difference is NaN.
    A::select(x.eq(y) & most.abs().eq(A::infinity()), most, sum)
}

/// `log2(2^x + 2^y)`, without overflow (`torch.logaddexp2`).
#[inline(always)]
pub fn logaddexp2<A: Arith>(x: A, y: A) -> A {
    let most = x.maximum(y);
    let sum = log1p(exp2(-(x - y).abs())).mul_add(A::of(LOG2_E), most);
    A::select(x.eq(y) & most.abs().eq(A::infinity()), most, sum)
}

/// `(k, f)` with `x = 2^k (1 + f)`, for positive finite `x`.
#[inline(always)]
pub(super) fn split<A: Arith>(x: A) -> (A, A) {
    let denormal = x.lt(by_width(f64::from(f32::MIN_POSITIVE), f64::MIN_POSITIVE));
    let scaled = x * by_width(16_777_216.0, 18_014_398_509_481_984.0); // 2^24, 2^54
    let (k, m) = exponent_and_mantissa(A::select(denormal, scaled, x));
    let k = A::from_whole(k) - A::select(denormal, by_width(24.0, 54.0), A::of(0.0));
    (k, m - A::of(1.0))
}

/// `(k, m)` with `x = 2^k m`, for positive normal `x`.
#[inline(always)]
fn exponent_and_mantissa<A: Arith>(x: A) -> (A::Bits, A) {
    let sqrt_half = A::Bits::splat(bits_by_width::<A>(0x3F35_04F3, 0x3FE6_A09E_667F_3BCD));
    let bits = x.to_bits();
    let k = (bits - sqrt_half).shr(mantissa_bits::<A>());
    (k, A::from_bits(bits - k.shl(mantissa_bits::<A>())))
}

/// `k ln(2) + log(1 + f)`.
#[inline(always)]
fn natural<A: Arith>(k: A, f: A) -> A {
    let ln_2 = Pair::of(LN_2, LN_2_LOW);
    k.mul_add(ln_2.hi, f + k.mul_add(ln_2.lo, rest(f)))
}

/// `log(1 + f) - f`.
#[inline(always)]
fn rest<A: Arith>(f: A) -> A {
    let square = f * f;
    if A::DOUBLE {
        // With s = f / (2 + f), log(1 + f) = log((1 + s) / (1 - s)), whose series in s^2 is short.
        let s = f / (f + A::of(2.0));
        let z = s * s;
        let half_square = A::of(0.5) * square;
        s * (half_square + z * polynomial(z, LOG_ATANH_F64)) - half_square
    } else {
        square * polynomial(f, LOG_F32)
    }
}

/// `value`, the logarithm of `x`, or what it must be where `x` is not positive and finite.
#[inline(always)]
fn at_limits<A: Arith>(x: A, value: A) -> A {
    let zero = A::of(0.0);
    let limit = A::select(
        x.eq(zero),
        -A::infinity(),
        A::select(x.lt(zero), A::nan(), x),
    );
    A::select(x.gt(zero) & x.lt(A::infinity()), value, limit)
}

// log(1 + f) = f + f^2 p(f)
const LOG_F32: [f64; 9] = [
    -0.49999988079071045,
    0.33333325386047363,
    -0.25001582503318787,
    0.2000197172164917,
    -0.1660906821489334,
    0.14181864261627197,
    -0.13243168592453003,
    0.12904243171215057,
    -0.07621058076620102,
];
// log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2)
const LOG_ATANH_F64: [f64; 7] = [
    0.6666666666666734,
    0.3999999999941609,
    0.2857142874208522,
    0.22222198602973622,
    0.1818356284289248,
    0.15314086868266732,
    0.14795602176910536,
];
