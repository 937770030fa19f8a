//! `exp`, `exp2` and `expm1`: `e^x = 2^n e^r` with a whole `n` and `|r| <= ln(2) / 2`, and a polynomial for `e^r`.

use super::double_word::{LN_2_LOW, Pair, quick_two_sum, two_product, two_sum};
use super::polynomial::{at_least, at_most, by_width, fit, rounded_product};
use crate::arith::Arith;
use std::f64::consts::{LN_2, LOG2_E};

/// `e^x` (`torch.exp`).
#[inline(always)]
pub fn exp<A: Arith>(x: A) -> A {
    let x = at_most(x, by_width(90.0, 711.0));
    let x = at_least(x, by_width(-105.0, -746.0));
    let (value, n) = exp_parts(x);
    value.hi.ldexp(n)
}

/// `2^x` (`torch.exp2`).
#[inline(always)]
pub fn exp2<A: Arith>(x: A) -> A {
    let x = at_most(x, by_width(129.0, 1025.0));
    exp2_within(at_least(x, by_width(-151.0, -1076.0)))
}

/// `e^x - 1`, exact to the last places near 0 too (`torch.expm1`).
#[inline(always)]
pub fn expm1<A: Arith>(x: A) -> A {
    let within = at_most(x, by_width(89.0, 710.0));
    let (n, r) = reduce(at_least(within, by_width(-20.0, -40.0)));
    let square_term = r.hi * r.hi * fit(r.hi, EXP_F32, EXP_F64);
    let near = quick_two_sum(r.hi, square_term);
    // 2^n (near + 1) - 1, by way of half of it, since 2^n may be out of range. For n = 1 about half of near cancels.
    let half_scale = A::of(1.0).ldexp(n - A::of(1.0));
    let half = near.hi.mul_add(half_scale, half_scale - A::of(0.5));
    let half = (near.lo + r.lo).mul_add(half_scale, half);
    A::select(n.eq(A::of(0.0)), near.hi, half + half).copysign(x)
}

/// `e^x` as a number near 1 to be multiplied by `2^n`, with `n`; for `x` from -746 to 711 (f32: from -105 to 92).
///
/// The number is a pair, whose sum is more exact than its high part by the last rounding.
#[inline(always)]
pub(super) fn exp_parts<A: Arith>(x: A) -> (Pair<A>, A) {
    let (n, Pair { hi: r, .. }) = reduce(x);
    let near = (r * r).mul_add(fit(r, EXP_F32, EXP_F64), r);
    (quick_two_sum(A::of(1.0), near), n)
}

/// `e^(hi + lo)` as a pair to be multiplied by `2^n`, with `n`; for `hi` as above.
#[inline(always)]
pub(super) fn exp_pair<A: Arith>(x: Pair<A>) -> (Pair<A>, A) {
    let (n, r) = reduce(x.hi);
    let r = two_sum(r.hi, r.lo + x.lo);
    let tail = (r.hi * r.hi).mul_add(fit(r.hi, EXP_F32, EXP_F64), r.lo.mul_add(r.hi, r.lo));
    let sum = quick_two_sum(A::of(1.0), r.hi);
    (
        Pair {
            hi: sum.hi,
            lo: sum.lo + tail,
        },
        n,
    )
}

/// `2^x`, for `x` from -1100 to 1100 (f32: from -160 to 160).
#[inline(always)]
pub(super) fn exp2_within<A: Arith>(x: A) -> A {
    let n = rounded_product(x, A::of(1.0));
    exp2_near_zero(x - n).ldexp(n)
}

/// `2^(hi + lo)`, for a small `lo`, and `hi` as above; nearly rounded to nearest.
///
/// Of `2^r = 1 + r (ln(2) + r p(r))`, the large terms are kept with their rounding errors, so that what is exact
/// in theory (`pow(x, 1)`, `pow(3, 2)`) comes out exactly.
#[inline(always)]
pub(super) fn exp2_of_sum<A: Arith>(hi: A, lo: A) -> A {
    const TAIL_F32: [f64; 5] = after_first(EXP2_F32);
    const TAIL_F64: [f64; 10] = after_first(EXP2_F64);
    let n = rounded_product(hi, A::of(1.0));
    let r = two_sum(hi - n, lo);
    let ln_2 = Pair::<A>::of(LN_2, LN_2_LOW);
    let product = two_product(r.hi, ln_2.hi);
    let sum = quick_two_sum(A::of(1.0), product.hi);
    let low = (r.lo * ln_2.hi).mul_add(sum.hi, r.hi.mul_add(ln_2.lo, product.lo));
    let low = (r.hi * r.hi).mul_add(fit(r.hi, TAIL_F32, TAIL_F64), low);
    (sum.hi + (sum.lo + low)).ldexp(n)
}

/// `2^r`, for `|r| <= 1/2`.
#[inline(always)]
fn exp2_near_zero<A: Arith>(r: A) -> A {
    r.mul_add(fit(r, EXP2_F32, EXP2_F64), A::of(1.0))
}

/// `(n, r)` with `x = n ln(2) + r`, whole `n` and `|r| <= ln(2) / 2` (Cody and Waite).
///
/// The first step is exact: both terms are multiples of a power of two so large that the small difference fits.
#[inline(always)]
fn reduce<A: Arith>(x: A) -> (A, Pair<A>) {
    let ln_2 = Pair::<A>::of(LN_2, LN_2_LOW);
    let n = rounded_product(x, A::of(LOG2_E));
    let exact = n.mul_add(-ln_2.hi, x);
    let hi = n.mul_add(-ln_2.lo, exact);
    (
        n,
        Pair {
            hi,
            lo: n.mul_add(-ln_2.lo, exact - hi),
        },
    )
}

/// The coefficients without the first.
const fn after_first<const K: usize, const L: usize>(coefficients: [f64; K]) -> [f64; L] {
    let mut rest = [0.0; L];
    let mut k = 0;
    while k < L {
        rest[k] = coefficients[k + 1];
        k += 1;
    }
    rest
}

// e^r = 1 + r + r^2 p(r)
const EXP_F32: [f64; 5] = [
    0.4999999701976776,
    0.1666654348373413,
    0.04166720435023308,
    0.008366634137928486,
    0.001388250500895083,
];
const EXP_F64: [f64; 10] = [
    0.5000000000000006,
    0.16666666666666588,
    0.04166666666657552,
    0.008333333333390302,
    0.0013888888932002076,
    0.00019841269717802532,
    2.4801504714108847e-05,
    2.75574081000119e-06,
    2.7626272117082694e-07,
    2.5053795229927207e-08,
];
// 2^r = 1 + r p(r)
const EXP2_F32: [f64; 6] = [
    0.6931471824645996,
    0.24022647738456726,
    0.055503323674201965,
    0.009618437848985195,
    0.0013398899463936687,
    0.00015353277558460832,
];
const EXP2_F64: [f64; 11] = [
    LN_2,
    0.2402265069591013,
    0.05550410866482008,
    0.009618129107594067,
    0.0013333558146775234,
    0.00015403530457186465,
    1.5252733492687328e-05,
    1.3215435242125789e-06,
    1.0178199692461454e-07,
    7.073790628751553e-09,
    4.434762373393961e-10,
];
