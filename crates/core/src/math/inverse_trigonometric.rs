//! `asin`, `acos`, `atan` and `atan2`: polynomials near 0, to which identities bring every argument.

use super::double_word::{FRAC_PI_2_LOW, Pair, quick_two_sum};
use super::polynomial::{by_width, fit};
use crate::arith::Arith;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

/// The arc sine (`torch.asin`).
#[inline(always)]
pub fn asin<A: Arith>(x: A) -> A {
    // From 1/2 on, asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)).
    let a = x.abs();
    let big = a.gt(A::of(0.5));
    let (s, more) = arc_sine_parts(a, big, a);
    let half_pi = half_pi();
    // The difference may be larger than the result, so its rounding error counts.
    let difference = quick_two_sum(half_pi.hi, -(s + s));
    let from_top = difference.hi - (more + more - (difference.lo + half_pi.lo));
    A::select(big, from_top, s + more).copysign(x)
}

/// The arc cosine (`torch.acos`).
#[inline(always)]
pub fn acos<A: Arith>(x: A) -> A {
    let a = x.abs();
    let big = a.gt(A::of(0.5));
    let (s, more) = arc_sine_parts(a, big, x);
    let half_pi = half_pi();
    let from_top = (half_pi.hi - s) - (more - half_pi.lo);
    let right = s + more;
    let end = A::select(x.gt(A::of(0.0)), right + right, from_top + from_top);
    A::select(big, end, from_top)
}

/// `(s, more)` with `asin(s) = s + more`, where `s` is `sqrt((1 - a) / 2)` where `big` and `small` elsewhere.
#[inline(always)]
fn arc_sine_parts<A: Arith>(a: A, big: A::Mask, small: A) -> (A, A) {
    let z = A::select(big, (A::of(1.0) - a) * A::of(0.5), a * a);
    let s = A::select(big, z.sqrt(), small);
    (s, s * z * fit(z, ASIN_F32, ASIN_F64))
}

/// The arc tangent (`torch.atan`).
#[inline(always)]
pub fn atan<A: Arith>(x: A) -> A {
    let a = x.abs();
    // atan(a) is pi/2 + atan(-1 / a) from 1 + sqrt(2) on, and pi/4 + atan((a - 1) / (a + 1)) from 1/2 on,
    // where a - 1 is exact.
    let far = a.gt(A::of(2.414_213_562_373_095));
    let middle = a.gt(A::of(0.5));
    let one = A::of(1.0);
    let t = A::select(far, -one, A::select(middle, a - one, a))
        / A::select(far, a, A::select(middle, a + one, one));
    let high = A::select(
        far,
        A::of(FRAC_PI_2),
        A::select(middle, A::of(FRAC_PI_4), A::of(0.0)),
    );
    let half_low = half_pi::<A>().lo;
    let low = A::select(
        far,
        half_low,
        A::select(middle, half_low * A::of(0.5), A::of(0.0)),
    );
    let sum = quick_two_sum(high, t);
    (sum.hi + (sum.lo + arc_tangent_rest(t, low))).copysign(x)
}

/// The angle of the point (`x`, `y`), from -pi to pi (`torch.atan2`).
#[inline(always)]
pub fn atan2<A: Arith>(y: A, x: A) -> A {
    let (zero, one) = (A::of(0.0), A::of(1.0));
    let (ay, ax) = (y.abs(), x.abs());
    let steep = ay.gt(ax);
    let (most, least) = (A::select(steep, ay, ax), A::select(steep, ax, ay));
    // Away from the ends of the range, so that nothing below over- or underflows.
    let scale = A::select(most.gt(by_width(1e30, 1e300)), A::of(0.25), one);
    let scale = A::select(
        most.lt(by_width(1e-18, 1e-270)),
        by_width(power(64), power(200)),
        scale,
    );
    let (most, least) = (most * scale, least * scale);

    // The angle off the nearer axis, whose tangent is ratio + residue / most.
    let ratio = A::select(
        most.eq(zero),
        zero,
        A::select(least.eq(A::infinity()), one, least / most),
    );
    let middle = ratio.gt(A::of(0.5));
    let t = A::select(middle, (ratio - one) / (ratio + one), ratio);
    let residue = (-ratio).mul_add(most, least) / (ratio * ratio).mul_add(most, most);
    // (0, 0), infinity and the least of lanes have no residue to speak of.
    let residue = A::select(residue.abs().lt(A::of(1e-6)), residue, zero);
    let half_pi = half_pi::<A>();
    let low = A::select(middle, half_pi.lo * A::of(0.5), zero) + residue;
    let sum = quick_two_sum(A::select(middle, A::of(FRAC_PI_4), zero), t);
    let angle = quick_two_sum(sum.hi, sum.lo + arc_tangent_rest(t, low));

    let angle = pick(steep, minus(half_pi, angle), angle);
    let left = one.copysign(x).lt(zero);
    let angle = pick(left, minus(Pair::of(PI, 2.0 * FRAC_PI_2_LOW), angle), angle);
    let value = (angle.hi + angle.lo).copysign(y);
    A::select(x.is_nan() | y.is_nan(), x + y, value)
}

/// `atan(t) - t + low`, for `|t| <= 1/2`.
#[inline(always)]
fn arc_tangent_rest<A: Arith>(t: A, low: A) -> A {
    let z = t * t;
    (t * z).mul_add(fit(z, ATAN_F32, ATAN_F64), low)
}

#[inline(always)]
fn half_pi<A: Arith>() -> Pair<A> {
    Pair::of(FRAC_PI_2, FRAC_PI_2_LOW)
}

/// `a - b`, where `a.hi >= b.hi >= 0`.
#[inline(always)]
fn minus<A: Arith>(a: Pair<A>, b: Pair<A>) -> Pair<A> {
    let difference = quick_two_sum(a.hi, -b.hi);
    Pair {
        hi: difference.hi,
        lo: difference.lo + (a.lo - b.lo),
    }
    .normalized()
}

#[inline(always)]
fn pick<A: Arith>(mask: A::Mask, if_true: Pair<A>, if_false: Pair<A>) -> Pair<A> {
    Pair {
        hi: A::select(mask, if_true.hi, if_false.hi),
        lo: A::select(mask, if_true.lo, if_false.lo),
    }
}

/// 2^exponent.
const fn power(exponent: u64) -> f64 {
    f64::from_bits((1023 + exponent) << 52)
}

// asin(s) = s + s^3 p(s^2)
const ASIN_F32: [f64; 5] = [
    0.16666752099990845,
    0.074953094124794,
    0.04546914994716644,
    0.024184782058000565,
    0.04215829074382782,
];
const ASIN_F64: [f64; 12] = [
    0.16666666666665408,
    0.07500000000336983,
    0.044642856828352305,
    0.030381959136015796,
    0.02237175807276649,
    0.01735970443003162,
    0.013885238748646082,
    0.01216919006337511,
    0.006528068739954493,
    0.01952800934833609,
    -0.016223851894399267,
    0.03191199582479152,
];
// atan(t) = t + t^3 p(t^2)
const ATAN_F32: [f64; 6] = [
    -0.333333283662796,
    0.19999553263187408,
    -0.14273063838481903,
    0.10947971045970917,
    -0.08007193356752396,
    0.039013225585222244,
];
const ATAN_F64: [f64; 13] = [
    -0.33333333333333315,
    0.1999999999999324,
    -0.14285714284958123,
    0.11111111068419299,
    -0.09090907665461469,
    0.0769227699934462,
    -0.06666217998334469,
    0.05877762844842522,
    -0.05229770585572168,
    0.04588556815713121,
    -0.037097633957028434,
    0.023625953766195907,
    -0.008347984185192447,
];
