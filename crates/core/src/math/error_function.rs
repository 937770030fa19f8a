//! The error function, its complement and its inverse.

use super::double_word::{Pair, quick_two_sum, two_product, two_sum};
use super::exponential::{exp, exp_pair, exp2_within};
use super::logarithm::log;
use super::polynomial::{at_most, by_width, fit, polynomial};
use crate::arith::Arith;
use std::f64::consts::PI;

/// The error function (`torch.erf`).
#[inline(always)]
pub fn erf<A: Arith>(x: A) -> A {
    let a = at_most(x.abs(), by_width(4.0, 6.0));
    let near = a.mul_add(fit(a * a, ERF_F32, ERF_F64), a);
    let far = A::of(1.0)
        - if A::DOUBLE {
            complement(a)
        } else {
            // The complement counts little here, so a direct fit of its logarithm is enough.
            exp2_within(polynomial(a, ERF_TAIL_F32))
        };
    A::select(a.lt(A::of(0.92)), near, far).copysign(x)
}

/// The complementary error function `1 - erf(x)`, exact to the last places where it is small (`torch.erfc`).
#[inline(always)]
pub fn erfc<A: Arith>(x: A) -> A {
    let right = complement(at_most(x.abs(), by_width(10.1, 27.3)));
    let far = A::select(x.lt(A::of(0.0)), A::of(2.0) - right, right);
    // Near 0, less is lost by going through erf(x) = x + x p.
    let difference = quick_two_sum(A::of(1.0), -x);
    let p = fit(x * x, ERF_F32, ERF_F64);
    let near = difference.hi + (-x).mul_add(p, difference.lo);
    A::select(x.abs().lt(A::of(0.5)), near, far)
}

/// The inverse of the error function (`torch.erfinv`): infinite at -1 and 1, NaN beyond them.
///
/// A rational guess and Newton's steps: by `erf` in the middle, by `erfc` of the distance to 1 elsewhere, which keeps the last places.
#[inline(always)]
pub fn erfinv<A: Arith>(y: A) -> A {
    let (zero, one) = (A::of(0.0), A::of(1.0));
    let a = y.abs();
    let rest = one - a;
    let middle = a.lt(A::of(0.7));
    let z = a * a;
    let inner = a * polynomial(z, INVERSE_NEAR_TOP) / polynomial(z, INVERSE_NEAR_BOTTOM);
    let root = (-log(A::select(middle, one, rest) * A::of(0.5))).sqrt();
    let outer = polynomial(root, INVERSE_FAR_TOP) / polynomial(root, INVERSE_FAR_BOTTOM);
    let mut x = A::select(middle, inner, outer);
    for _ in 0..if A::DOUBLE { 2 } else { 1 } {
        let off = A::select(middle, erf(x) - a, rest - erfc(x));
        x = x - off * A::of(0.5 * PI.sqrt()) * exp(x * x);
    }
    let x = A::select(rest.eq(zero), A::infinity(), x);
    A::select(rest.lt(zero), A::nan(), x).copysign(y)
}

/// `erfc(a)` for `a` from 0 to 10.1 (f32) or 27.3 (f64).
///
/// It is `e^(-a^2) p(t) / (1 + 2 a)` with a smooth `p` near 1 of `t = (a - k) / (a + k)` (after Shepherd and Laframboise,
/// Mathematics of Computation 36, 1981). Square, quotient and exponential carry their rounding errors along.
#[inline(always)]
fn complement<A: Arith>(a: A) -> A {
    let square = two_product(a, a);
    let (exponential, n) = exp_pair(Pair {
        hi: -square.hi,
        lo: -square.lo,
    });
    let k = by_width(2.0, 4.0);
    let t = (a - k) / (a + k);
    let (slope, first, first_low) = if A::DOUBLE {
        (polynomial(t, ERFC_F64), ERFC_FIRST_F64, ERFC_FIRST_LOW_F64)
    } else {
        (polynomial(t, ERFC_F32), ERFC_FIRST_F32, ERFC_FIRST_LOW_F32)
    };
    let product = t * slope;
    let p = quick_two_sum(A::of(first), product);
    let p_low = p.lo + A::of(first_low);
    let divisor = two_sum(A::of(1.0), a + a);
    let quotient = p.hi / divisor.hi;
    let residue = (-quotient).mul_add(divisor.hi, p.hi) + (-quotient).mul_add(divisor.lo, p_low);
    let quotient_low = residue / divisor.hi;
    let small = exponential
        .hi
        .mul_add(quotient_low, exponential.lo * quotient);
    exponential.hi.mul_add(quotient, small).ldexp(n)
}

// The guesses of erfinv, those of MATLAB's erfinv.m and of PyTorch: a p(a^2) / q(a^2) up to 0.7, p(r) / q(r) with
// r = sqrt(-log((1 - a) / 2)) beyond.
const INVERSE_NEAR_TOP: [f64; 4] = [0.886226899, -1.645349621, 0.914624893, -0.140543331];
const INVERSE_NEAR_BOTTOM: [f64; 5] = [1.0, -2.118377725, 1.442710462, -0.329097515, 0.012229801];
const INVERSE_FAR_TOP: [f64; 4] = [-1.970840454, -1.624906493, 3.429567803, 1.641345311];
const INVERSE_FAR_BOTTOM: [f64; 3] = [1.0, 3.543889200, 1.637067800];
// erf(x) = x + x p(x^2) up to 0.92
const ERF_F32: [f64; 6] = [
    0.12837915122509003,
    -0.3761250078678131,
    0.11281877011060715,
    -0.026768580079078674,
    0.004995853174477816,
    -0.0006003794260323048,
];
const ERF_F64: [f64; 12] = [
    0.1283791670955126,
    -0.37612638903183715,
    0.11283791670952947,
    -0.026866170644655355,
    0.005223977620057631,
    -0.0008548326663055582,
    0.00012055317646942563,
    -1.4925219337228034e-05,
    1.645399341244719e-06,
    -1.626399358010366e-07,
    1.3985106503971651e-08,
    -8.342407041224257e-10,
];
// log2(erfc(a)) = p(a) from 0.92 to 4, to least error in erfc
const ERF_TAIL_F32: [f64; 7] = [
    -0.00029867843841202557,
    -1.6268223524093628,
    -0.9193803071975708,
    -0.14983293414115906,
    0.03201301023364067,
    -0.0043766736052930355,
    0.0002812463790178299,
];
// erfc(a) = e^(-a^2) (first + first_low + t p(t)) / (1 + 2 a)
const ERFC_FIRST_F32: f64 = 1.2769783735275269;
const ERFC_FIRST_LOW_F32: f64 = 1.994201527143975e-08;
const ERFC_F32: [f64; 9] = [
    -0.0927639827132225,
    -0.16603142023086548,
    0.16405534744262695,
    -0.054204296320676804,
    -0.008059874176979065,
    0.008631674572825432,
    0.0013135193148627877,
    -0.0012299215886741877,
    -0.0004005724913440645,
];
const ERFC_FIRST_F64: f64 = 1.2329951186255526;
const ERFC_FIRST_LOW_F64: f64 = -4.6469256993309875e-17;
const ERFC_F64: [f64; 22] = [
    -0.13962111684056286,
    0.015379652102620132,
    0.06809705425473353,
    -0.10103906603632311,
    0.09373283499691538,
    -0.06633036581204789,
    0.03716751556068726,
    -0.016197734054627037,
    0.005031969770742066,
    -0.000757773361982552,
    -0.00019925558030190258,
    0.00015062229214056534,
    -2.4402951060394763e-05,
    -1.1224825715056044e-05,
    5.717491882327928e-06,
    3.012783294761841e-07,
    -8.347563702950636e-07,
    6.288590543778748e-08,
    1.1515229518203477e-07,
    -7.84295840403485e-09,
    -1.3647175177164706e-08,
    -1.79910894493509e-09,
];
