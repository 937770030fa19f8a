//! `fmod` and what is made of it, exact for any two numbers.

use super::polynomial::{by_width, mantissa_bits};
use crate::arith::{Arith, Bits, Mask};

/// What is left of `x` after whole multiples of `y`, with the sign of `x` (`torch.fmod`). Exact; NaN where `x` is infinite or `y` is 0.
#[inline(always)]
pub fn fmod<A: Arith>(x: A, y: A) -> A {
    let zero = A::of(0.0);
    let (a, b) = (x.abs(), y.abs());
    // Where there are bits enough, a / b is a whole number within one, and the rest of its product is exact.
    let many = a.ge(b * by_width(4_194_304.0, 2_251_799_813_685_248.0)) & a.lt(A::infinity()); // 2^22, 2^51
    let many = many & b.gt(zero);
    let mut rest = a;
    if many.any() {
        rest = A::select(many, reduced(a, b), a);
    }
    let rest = step(rest, b);
    let undefined = a.eq(A::infinity()) | b.eq(zero);
    let rest = A::select(undefined, A::nan(), A::select(b.eq(A::infinity()), a, rest));
    let rest = A::select(x.is_nan() | y.is_nan(), x + y, rest);
    rest.copysign(x)
}

/// [`fmod`] with the sign of `y` (`torch.remainder`).
#[inline(always)]
pub fn remainder<A: Arith>(x: A, y: A) -> A {
    let zero = A::of(0.0);
    let rest = fmod(x, y);
    let other_side = rest.ne(zero) & differ(rest.lt(zero), y.lt(zero));
    A::select(other_side, rest + y, rest)
}

/// `x / y` rounded down, from the exact remainder (`torch.floor_divide`).
#[inline(always)]
pub fn floor_divide<A: Arith>(x: A, y: A) -> A {
    let (zero, one) = (A::of(0.0), A::of(1.0));
    let rest = fmod(x, y);
    let quotient = (x - rest) / y;
    let other_side = rest.ne(zero) & differ(rest.lt(zero), y.lt(zero));
    let quotient = A::select(other_side, quotient - one, quotient);
    // The division may have rounded it off the whole number.
    let down = quotient.floor();
    let down = A::select((quotient - down).gt(A::of(0.5)), down + one, down);
    let plain = x / y;
    let down = A::select(quotient.eq(zero), zero.copysign(plain), down);
    A::select(y.eq(zero), plain, down)
}

#[inline(always)]
fn differ<M: Mask>(a: M, b: M) -> M {
    (a & !b) | (!a & b)
}

/// `a` less whole multiples of `b`, where `a / b` is below 2^23 (f32) or 2^52 (f64). Of a quotient rounded up to a whole number, one is
/// taken back.
#[inline(always)]
fn step<A: Arith>(a: A, b: A) -> A {
    let quotient = (a / b).trunc();
    let rest = (-quotient).mul_add(b, a);
    A::select(rest.lt(A::of(0.0)), rest + b, rest)
}

/// `a` less whole multiples of `b`, such that [`step`] can do the rest; for positive finite `a` and `b`.
///
/// Each turn takes off multiples of `b 2^k`, with the largest `k` that leaves a quotient of the lanes' precision.
#[inline(always)]
fn reduced<A: Arith>(a: A, b: A) -> A {
    let splat = A::Bits::splat;
    let (bias, digits, turns) = if A::DOUBLE {
        (1023, 50, 42)
    } else {
        (127, 21, 13)
    };
    let shift = mantissa_bits::<A>();
    // Denormals have no exponent of their own.
    let denormal = b.lt(by_width(f64::from(f32::MIN_POSITIVE), f64::MIN_POSITIVE));
    let scaled = b * by_width(16_777_216.0, 18_014_398_509_481_984.0); // 2^24, 2^54
    let (up, zero) = (splat(if A::DOUBLE { 54 } else { 24 }), splat(0));
    let base = A::select(denormal, scaled, b);
    let raised = A::Bits::select(denormal, up, zero);
    let exponent = base.to_bits().shr_logical(shift);
    let mut rest = a;
    for _ in 0..turns {
        let k = rest.to_bits().shr_logical(shift) - exponent + raised - splat(digits);
        let going = zero.lt(k) & A::of(0.0).lt(rest);
        if !going.any() {
            break;
        }
        // `base` is `b 2^raised`, so all of these are whole multiples of the least number, and exact.
        let more = k - raised;
        let half = more.shr(1);
        let first = A::from_bits((half + splat(bias)).shl(shift));
        let second = A::from_bits((more - half + splat(bias)).shl(shift));
        rest = A::select(going, step(rest, base * first * second), rest);
    }
    rest
}
