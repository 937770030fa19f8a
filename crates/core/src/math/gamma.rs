//! `lgamma`, `digamma` and `trigamma`: the logarithm of the gamma function and its derivatives.

use super::logarithm::log;
use super::polynomial::{by_width, fit, polynomial};
use super::trigonometric::{sin, tan};
use crate::arith::{Arith, Mask};
use std::f64::consts::PI;

/// log(pi)
const LN_PI: f64 = 1.144_729_885_849_400_2;
/// (log(2 pi) - 1) / 2
const STIRLING: f64 = 0.418_938_533_204_672_7;

/// `log |gamma(x)|` (`torch.lgamma`); infinite where the function has a pole.
///
/// The error is at most a few units in the last place of the larger of the result and 1; near the zeros at 1 and 2 of the result
/// itself.
#[inline(always)]
pub fn lgamma<A: Arith>(x: A) -> A {
    let (zero, one) = (A::of(0.0), A::of(1.0));
    let a = x.abs();
    let logarithm = log(a);
    // From 3 on, Stirling's formula with a fit of its series.
    let inverse = one / a;
    let series = inverse * fit(inverse * inverse, LGAMMA_TAIL_F32, LGAMMA_TAIL_F64);
    let far = (a - A::of(0.5)).mul_add(logarithm - one, A::of(STIRLING) + series);
    // Up to 3, log(gamma(2 + s)) = s (s + 1) p(s) with both factors exact; below 1, gamma(x) = gamma(x + 1) / x.
    let low = a.lt(one);
    let s = a - A::select(low, one, A::of(2.0));
    let near = s * A::select(low, a, a - one) * fit(s, LGAMMA_F32, LGAMMA_F64);
    let near = near - A::select(low, logarithm, zero);
    let positive = A::select(a.lt(A::of(3.0)), near, far);
    let positive = A::select(a.eq(A::infinity()), a, positive);
    // Where a is tiny, gamma(-a) is -1 / a to the last place.
    let negative = x.lt(zero) & a.gt(by_width(1e-10, 1e-19)) & a.lt(A::infinity());
    if !negative.any() {
        return positive;
    }
    // gamma(-a) gamma(a) = -pi / (a sin(pi a))
    let sine = sin(A::of(PI) * (a - a.round_even())).abs();
    let reflected = A::of(LN_PI) - log(a * sine) - positive;
    // A pole, also where gamma(a) is infinite.
    let reflected = A::select(sine.eq(zero), A::infinity(), reflected);
    A::select(negative, reflected, positive)
}

/// The derivative of `lgamma` (`torch.digamma`); minus infinity at 0 (plus infinity at -0), NaN at the other poles.
///
/// The error is at most a few units in the last place of the larger of the result and 1.
#[inline(always)]
pub fn digamma<A: Arith>(x: A) -> A {
    let (zero, one) = (A::of(0.0), A::of(1.0));
    let negative = x.lt(zero);
    let (mut a, mut value) = (A::select(negative, one - x, x), zero);
    // digamma(a) = digamma(a + 1) - 1 / a, up to where the asymptotic series is short.
    for _ in 0..10 {
        let small = a.lt(A::of(10.0));
        if !small.any() {
            break;
        }
        value = A::select(small, value - one / a, value);
        a = A::select(small, a + one, a);
    }
    let inverse = one / a;
    let y = inverse * inverse;
    let value = value + (log(a) - A::of(0.5) * inverse - y * polynomial(y, DIGAMMA));
    let value = A::select(x.eq(zero), A::infinity().copysign(-x), value);
    if !negative.any() {
        return value;
    }
    let turn = x - x.round_even();
    let reflected = value - A::of(PI) / tan(A::of(PI) * turn);
    let reflected = A::select(turn.eq(zero), A::nan(), reflected);
    A::select(negative, reflected, value)
}

/// The derivative of `digamma` (`torch.polygamma(1, x)`); infinite at its poles.
///
/// The asymptotic series ends where PyTorch ends it, so that gradients of `digamma` are PyTorch's: the error is below 2e-10 of the
/// result.
#[inline(always)]
pub fn trigamma<A: Arith>(x: A) -> A {
    let one = A::of(1.0);
    let low = x.lt(A::of(0.5));
    let (mut a, mut value) = (A::select(low, one - x, x), A::of(0.0));
    // trigamma(a) = trigamma(a + 1) + 1 / a^2
    for _ in 0..6 {
        value = value + one / (a * a);
        a = a + one;
    }
    let y = one / (a * a);
    let series = one + A::of(0.5) / a + y * polynomial(y, TRIGAMMA);
    let value = value + series / a;
    if !low.any() {
        return value;
    }
    // trigamma(x) + trigamma(1 - x) = (pi / sin(pi x))^2
    let ratio = A::of(PI) / sin(A::of(PI) * (x - x.round_even()));
    A::select(low, ratio.mul_add(ratio, -value), value)
}

/// The derivative of `trigamma` (`torch.polygamma(2, x)`); infinite or NaN at its poles.
#[inline(always)]
pub fn tetragamma<A: Arith>(x: A) -> A {
    let one = A::of(1.0);
    let low = x.lt(A::of(0.5));
    let (mut a, mut value) = (A::select(low, one - x, x), A::of(0.0));
    // tetragamma(a) = tetragamma(a + 1) - 2 / a^3
    for _ in 0..10 {
        value = value - A::of(2.0) / (a * a * a);
        a = a + one;
    }
    let inverse = one / a;
    let y = inverse * inverse;
    let value = value - y * (one + inverse + y * polynomial(y, TETRAGAMMA));
    if !low.any() {
        return value;
    }
    // tetragamma(x) = tetragamma(1 - x) - 2 pi^3 cos(pi x) / sin(pi x)^3
    let turn = A::of(PI) * (x - x.round_even());
    let ratio = A::of(PI) / sin(turn);
    let reflected = value - A::of(2.0) * A::of(PI) / tan(turn) * ratio * ratio;
    A::select(low, reflected, value)
}

// tetragamma(a) = -1 / a^2 - 1 / a^3 - sum of (2k + 1) B(2k) / a^(2k + 2), from the derivative of the series of trigamma.
const TETRAGAMMA: [f64; 6] = [
    1.0 / 2.0,
    -1.0 / 6.0,
    1.0 / 6.0,
    -3.0 / 10.0,
    5.0 / 6.0,
    -691.0 / 210.0,
];
// digamma(a) = log(a) - 1 / (2 a) - sum of B(2k) / (2k a^(2k)), with Bernoulli's numbers B (Abramowitz and Stegun, 6.3.18).
const DIGAMMA: [f64; 7] = [
    1.0 / 12.0,
    -1.0 / 120.0,
    1.0 / 252.0,
    -1.0 / 240.0,
    1.0 / 132.0,
    -691.0 / 32760.0,
    1.0 / 12.0,
];
// trigamma(a) = 1 / a + 1 / (2 a^2) + sum of B(2k) / a^(2k + 1) (Abramowitz and Stegun, 6.4.12).
const TRIGAMMA: [f64; 3] = [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0];
// log(gamma(2 + s)) = s (s + 1) p(s) for |s| <= 1
const LGAMMA_F32: [f64; 14] = [
    0.42278432846069336,
    -0.10031730681657791,
    0.03296494483947754,
    -0.012384114786982536,
    0.004999482538551092,
    -0.002108945045620203,
    0.0009104974451474845,
    -0.0004019703483209014,
    0.00019581661035772413,
    -9.175550076179206e-05,
    2.0234099793015048e-05,
    -7.264678515639389e-06,
    1.931385304487776e-05,
    -9.683108146418817e-06,
];
const LGAMMA_F64: [f64; 29] = [
    0.42278433509846713,
    -0.1003173016743539,
    0.03296500062115573,
    -0.01238419219337437,
    0.004998641164704087,
    -0.002108130833828573,
    0.0009153769220552355,
    -0.00040570739994816454,
    0.00018255264205058278,
    -8.309509985742001e-05,
    3.816886221958468e-05,
    -1.7661856003140972e-05,
    8.222350631200581e-06,
    -3.846512173655824e-06,
    1.807448605072127e-06,
    -8.554872317961218e-07,
    4.0559047143188885e-07,
    -1.8612129324811115e-07,
    8.74125095826503e-08,
    -5.205193682525487e-08,
    2.6304766390726873e-08,
    -7.744190275733768e-10,
    -8.083784955279478e-10,
    -8.95867056376737e-09,
    4.954132602647055e-09,
    2.4716438132534905e-09,
    -1.3983851466520856e-09,
    -8.19333229586629e-10,
    4.2574775558753014e-10,
];
// log(gamma(x)) = (x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + p(1 / x^2) / x from x = 3 on
const LGAMMA_TAIL_F32: [f64; 4] = [
    0.083333320915699,
    -0.0027769540902227163,
    0.0007749210926704109,
    -0.0004084053507540375,
];
const LGAMMA_TAIL_F64: [f64; 13] = [
    0.08333333333333327,
    -0.0027777777777411522,
    0.0007936507853844028,
    -0.0005952371164312161,
    0.0008416800506924598,
    -0.0019141177817978514,
    0.006294559474379018,
    -0.026661161195895074,
    0.12429263816223594,
    -0.5355041111270338,
    1.8102475604695818,
    -4.025228952447757,
    4.282333958151151,
];
