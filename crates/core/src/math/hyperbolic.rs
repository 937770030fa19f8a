//! `tanh`, `sinh` and `cosh`: polynomials near 0, where the exponentials would cancel, and those elsewhere. Their inverses:
//! logarithms of an argument near 1 that is kept apart from 1.

use super::double_word::Pair;
use super::exponential::exp_parts;
use super::logarithm::{log, log1p};
use super::polynomial::{at_most, by_width, fit};
use crate::arith::Arith;
use std::f64::consts::LN_2;

/// The hyperbolic tangent (`torch.tanh`).
#[inline(always)]
pub fn tanh<A: Arith>(x: A) -> A {
    let a = x.abs();
    let z = a * a;
    let near = (a * z).mul_add(fit(z, TANH_F32, TANH_F64), a);
    let doubled = at_most(a + a, by_width(20.0, 40.0));
    let (exponential, n) = exp_parts(doubled);
    let far = A::of(1.0) - A::of(2.0) / (exponential.hi.ldexp(n) + A::of(1.0));
    A::select(a.lt(A::of(0.6)), near, far).copysign(x)
}

/// The hyperbolic sine (`torch.sinh`).
#[inline(always)]
pub fn sinh<A: Arith>(x: A) -> A {
    let a = x.abs();
    let z = a * a;
    let near = (a * z).mul_add(fit(z, SINH_F32, SINH_F64), a);
    let half = half_exponential(a);
    let far = half.hi + (half.lo - A::of(0.25) / half.hi);
    A::select(a.lt(A::of(1.0)), near, far).copysign(x)
}

/// The hyperbolic cosine (`torch.cosh`).
#[inline(always)]
pub fn cosh<A: Arith>(x: A) -> A {
    let half = half_exponential(x.abs());
    half.hi + (half.lo + A::of(0.25) / half.hi)
}

/// The inverse hyperbolic sine (`torch.asinh`).
#[inline(always)]
pub fn asinh<A: Arith>(x: A) -> A {
    let one = A::of(1.0);
    let a = x.abs();
    // From there on, a + sqrt(a^2 + 1) is 2 a.
    let large = a.gt(by_width(1e4, 1e9));
    let within = A::select(large, one, a);
    let square = within * within;
    let near = log1p(within + square / (one + (square + one).sqrt()));
    A::select(large, log(a) + A::of(LN_2), near).copysign(x)
}

/// The inverse hyperbolic cosine (`torch.acosh`); NaN below 1.
#[inline(always)]
pub fn acosh<A: Arith>(x: A) -> A {
    let one = A::of(1.0);
    let large = x.gt(by_width(1e4, 1e9));
    let t = A::select(large, one, x - one);
    let near = log1p(t + (t * (t + A::of(2.0))).sqrt());
    let value = A::select(large, log(x) + A::of(LN_2), near);
    A::select(x.lt(one), A::nan(), value)
}

/// The inverse hyperbolic tangent (`torch.atanh`); NaN beyond -1 and 1.
#[inline(always)]
pub fn atanh<A: Arith>(x: A) -> A {
    let a = x.abs();
    let doubled = a + a;
    let near = log1p(doubled + doubled * (a / (A::of(1.0) - a)));
    // Between 1/2 and 1 the sum would round twice.
    let far = log1p(doubled / (A::of(1.0) - a));
    let value = A::select(a.lt(A::of(0.5)), near, far);
    (A::of(0.5) * value).copysign(x)
}

/// `e^a / 2` for `a >= 0`, in range where `e^a` is not.
#[inline(always)]
fn half_exponential<A: Arith>(a: A) -> Pair<A> {
    let (exponential, n) = exp_parts(at_most(a, by_width(91.0, 711.0)));
    let n = n - A::of(1.0);
    // As `n` is not negative but for -1, scaling the low part loses nothing.
    Pair {
        hi: exponential.hi.ldexp(n),
        lo: exponential.lo.ldexp(n),
    }
}

// tanh(x) = x + x^3 p(x^2)
const TANH_F32: [f64; 5] = [
    -0.33333298563957214,
    0.13331936299800873,
    -0.05378471687436104,
    0.02079862542450428,
    -0.005897966213524342,
];
const TANH_F64: [f64; 12] = [
    -0.33333333333333326,
    0.1333333333333176,
    -0.0539682539672111,
    0.02186948850140993,
    -0.008863234849934667,
    0.0035921195383881925,
    -0.0014557632572223674,
    0.0005896185915894149,
    -0.00023750230559127207,
    9.247060754824399e-05,
    -3.115915949572245e-05,
    6.494603435396065e-06,
];
// sinh(x) = x + x^3 p(x^2)
const SINH_F32: [f64; 4] = [
    0.1666666716337204,
    0.00833331048488617,
    0.00019842895562760532,
    2.7822131869470468e-06,
];
const SINH_F64: [f64; 8] = [
    0.16666666666666666,
    0.008333333333333333,
    0.000198412698412696,
    2.7557319224116285e-06,
    2.505210834650962e-08,
    1.6059050601189075e-10,
    7.646482900161973e-13,
    2.8482329002105296e-15,
];
