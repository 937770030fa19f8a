//! `pow`: `2^(y log2 x)`, with the logarithm and the product to almost twice the lanes' precision. `hypot`.

use super::double_word::{LOG2_E_LOW, Pair, quick_two_sum, two_product, two_sum};
use super::exponential::exp2_of_sum;
use super::logarithm::split;
use super::polynomial::{at_least, at_most, by_width, fit};
use crate::arith::Arith;
use std::f64::consts::LOG2_E;

/// `x` to the power `y`, with the special cases of C99 (`torch.pow`).
#[inline(always)]
pub fn pow<A: Arith>(x: A, y: A) -> A {
    let (zero, one) = (A::of(0.0), A::of(1.0));
    let a = x.abs();
    let value = power_of_positive(a, y);

    let ends = a.eq(zero) | a.eq(A::infinity());
    let grows = (a.eq(zero) & y.lt(zero)) | (a.eq(A::infinity()) & y.gt(zero));
    let value = A::select(ends, A::select(grows, A::infinity(), zero), value);
    // Also for an infinite y, where the product above is NaN.
    let value = A::select(a.eq(one), one, value);

    let whole = y.floor().eq(y);
    let half = y * A::of(0.5);
    let odd = whole & half.floor().ne(half);
    let negative = one.copysign(x).lt(zero);
    let value = A::select(negative & odd, -value, value);
    let undefined = x.lt(zero) & a.lt(A::infinity()) & !whole;
    let value = A::select(undefined, A::nan(), value);

    let value = A::select(x.is_nan() | y.is_nan(), x + y, value);
    A::select(y.eq(zero) | x.eq(one), one, value)
}

/// `sqrt(x^2 + y^2)`, whatever the squares are (`torch.hypot`); infinite where either is, also beside NaN.
#[inline(always)]
pub fn hypot<A: Arith>(x: A, y: A) -> A {
    let (a, b) = (x.abs(), y.abs());
    let most = a.greater(b);
    // Powers of two, so that nothing is rounded.
    let (down, up): (A, A) = if A::DOUBLE {
        (A::of(power_of_two(-600)), A::of(power_of_two(600)))
    } else {
        (A::of(power_of_two(-70)), A::of(power_of_two(100)))
    };
    let large = most.gt(by_width(1e18, 1e150));
    let small = most.lt(by_width(1e-18, 1e-150));
    let one = A::of(1.0);
    let scale = A::select(large, down, A::select(small, up, one));
    let back = A::select(large, one / down, A::select(small, one / up, one));
    let (a, b) = (a * scale, b * scale);
    let value = a.mul_add(a, b * b).sqrt() * back;
    let infinite = a.eq(A::infinity()) | b.eq(A::infinity());
    A::select(infinite, A::infinity(), value)
}

/// 2^exponent, for a normal result.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// `x^y` for positive finite `x`.
#[inline(always)]
fn power_of_positive<A: Arith>(x: A, y: A) -> A {
    let logarithm = log2_pair(x);
    let product = two_product(y, logarithm.hi);
    let low = y.mul_add(logarithm.lo, product.lo);
    let limit: A = by_width(160.0, 1100.0);
    let low = A::select(product.hi.abs().lt(limit), low, A::of(0.0));
    exp2_of_sum(at_least(at_most(product.hi, limit), -limit), low)
}

/// `log2(x)` for positive finite `x`, to a relative 2^-35 (f32) or 2^-65 (f64).
///
/// With `x = 2^k (1 + f)` and `s = f / (2 + f)`, it is `k + 2 log2(e) atanh(s)`. The series of `atanh` is
/// `s (1 + s^2 (1/3 + s^2 p(s^2)))`; the innermost part is small enough for single words.
#[inline(always)]
fn log2_pair<A: Arith>(x: A) -> Pair<A> {
    let (k, f) = split(x);
    let divisor = two_sum(A::of(2.0), f);
    let s = f / divisor.hi;
    let residue = (-s).mul_add(divisor.lo, (-s).mul_add(divisor.hi, f));
    let s = Pair {
        hi: s,
        lo: residue / divisor.hi,
    };
    let z = s.mul(s);
    let third = Pair::of(1.0 / 3.0, 1.850371707708594e-17);
    let sum = quick_two_sum(third.hi, z.hi * fit(z.hi, LOG_TAIL_F32, LOG_TAIL_F64));
    let inner = Pair {
        hi: sum.hi,
        lo: sum.lo + third.lo,
    };
    let more = s.mul(z.mul(inner));
    let sum = quick_two_sum(s.hi, more.hi);
    let atanh = Pair {
        hi: sum.hi,
        lo: sum.lo + (more.lo + s.lo),
    }
    .normalized();
    let scaled = atanh.mul(Pair::of(2.0 * LOG2_E, 2.0 * LOG2_E_LOW));
    let sum = two_sum(k, scaled.hi);
    Pair {
        hi: sum.hi,
        lo: sum.lo + scaled.lo,
    }
    .normalized()
}

// atanh(s) = s + s^3 / 3 + s^5 p(s^2)
const LOG_TAIL_F32: [f64; 3] = [
    0.20000076293945312,
    0.14273542165756226,
    0.11709950119256973,
];
const LOG_TAIL_F64: [f64; 7] = [
    0.20000000000001125,
    0.14285714285051257,
    0.11111111259707065,
    0.09090892205144814,
    0.07693377701054002,
    0.06628430676507914,
    0.06597967781273817,
];
