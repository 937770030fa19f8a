//! Doubles in the directions that hardware of the host does not have at hand: on integer significands, with what is
//! shifted out kept as one sticky bit.

use super::Direction;

/// A finite value other than zero: `significand * 2^exponent`; the lowest bit is set if anything below was lost.
#[derive(Clone, Copy)]
struct Exact {
    negative: bool,
    significand: u128,
    exponent: i32,
}

/// Significand and exponent of a finite double.
fn unpack(value: f64) -> Exact {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = u128::from(bits & 0xf_ffff_ffff_ffff);
    let (significand, exponent) = if field == 0 {
        (fraction, -1074)
    } else {
        (fraction | 1 << 52, field - 1075)
    };
    Exact {
        negative: value.is_sign_negative(),
        significand,
        exponent,
    }
}

/// Shifts right, keeping whether anything was lost in the lowest bit.
fn jam(significand: u128, shift: u32) -> u128 {
    match shift {
        0 => significand,
        1..128 => significand >> shift | u128::from(significand << (128 - shift) != 0),
        _ => u128::from(significand != 0),
    }
}

impl Exact {
    /// The double in a direction; a zero significand is a zero.
    fn round(self, direction: Direction) -> f64 {
        let sign = if self.negative { -1.0 } else { 1.0 };
        if self.significand == 0 {
            return 0.0f64.copysign(sign);
        }
        let length = 128 - self.significand.leading_zeros() as i32;
        // The exponent of the result's last bit.
        let last = (self.exponent + length - 53).max(-1074);
        let shift = last - self.exponent;
        // Two bits below the last: one for the half, one for what is below.
        let scaled = if shift >= 2 {
            jam(self.significand, (shift - 2) as u32)
        } else {
            self.significand << (2 - shift)
        };
        let (mut kept, below) = ((scaled >> 2) as u64, (scaled & 3) as u32);
        let up = match direction {
            Direction::Nearest => below == 3 || below == 2 && kept & 1 == 1,
            Direction::Away => below >= 2,
            Direction::Zero => false,
            Direction::Down => self.negative && below != 0,
            Direction::Up => !self.negative && below != 0,
        };
        kept += u64::from(up);
        let mut last = last;
        if kept == 1 << 53 {
            kept >>= 1;
            last += 1;
        }
        if kept >> 52 == 0 {
            return f64::from_bits(kept).copysign(sign);
        }
        let field = last + 1075;
        if field >= 0x7ff {
            let to_infinity = match direction {
                Direction::Nearest | Direction::Away => true,
                Direction::Zero => false,
                Direction::Down => self.negative,
                Direction::Up => !self.negative,
            };
            return if to_infinity { f64::INFINITY } else { f64::MAX }.copysign(sign);
        }
        f64::from_bits((field as u64) << 52 | kept & 0xf_ffff_ffff_ffff).copysign(sign)
    }
}

/// The sum of two exact values; `None` if it is zero.
fn sum(a: Exact, b: Exact) -> Option<Exact> {
    if a.significand == 0 {
        return (b.significand != 0).then_some(b);
    }
    if b.significand == 0 {
        return Some(a);
    }
    // The one with the higher top bit is moved up as far as it goes, the other is aligned to it.
    let top = |value: &Exact| value.exponent + 128 - value.significand.leading_zeros() as i32;
    let (high, low) = if top(&a) >= top(&b) { (a, b) } else { (b, a) };
    let up = high.significand.leading_zeros() as i32 - 2;
    let (significand, exponent) = (high.significand << up, high.exponent - up);
    let shift = exponent - low.exponent;
    let aligned = if shift >= 0 {
        jam(low.significand, shift as u32)
    } else {
        low.significand << -shift
    };
    if high.negative == low.negative {
        return Some(Exact {
            negative: high.negative,
            significand: significand + aligned,
            exponent,
        });
    }
    let (negative, difference) = if significand >= aligned {
        (high.negative, significand - aligned)
    } else {
        (low.negative, aligned - significand)
    };
    (difference != 0).then_some(Exact {
        negative,
        significand: difference,
        exponent,
    })
}

/// `a * b + c` in a direction.
pub(in crate::instructions) fn fma(a: f64, b: f64, c: f64, direction: Direction) -> f64 {
    if !a.is_finite() || !b.is_finite() || !c.is_finite() {
        return a.mul_add(b, c);
    }
    let (x, y) = (unpack(a), unpack(b));
    let product = Exact {
        negative: x.negative != y.negative,
        significand: x.significand * y.significand,
        exponent: x.exponent + y.exponent,
    };
    if product.significand == 0 && c == 0.0 {
        let same = product.negative == c.is_sign_negative();
        let negative = if same {
            product.negative
        } else {
            direction == Direction::Down
        };
        return 0.0f64.copysign(if negative { -1.0 } else { 1.0 });
    }
    match sum(product, unpack(c)) {
        Some(value) => value.round(direction),
        None => 0.0f64.copysign(if direction == Direction::Down {
            -1.0
        } else {
            1.0
        }),
    }
}

/// `a + b` in a direction.
pub(in crate::instructions) fn add(a: f64, b: f64, direction: Direction) -> f64 {
    if direction == Direction::Nearest {
        a + b
    } else {
        fma(a, 1.0, b, direction)
    }
}

/// `a * b` in a direction.
pub(in crate::instructions) fn mul(a: f64, b: f64, direction: Direction) -> f64 {
    if direction == Direction::Nearest || !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return a * b;
    }
    let (x, y) = (unpack(a), unpack(b));
    let exponent = x.exponent + y.exponent;
    Exact {
        negative: x.negative != y.negative,
        significand: x.significand * y.significand,
        exponent,
    }
    .round(direction)
}

/// `a / b` in a direction.
pub(in crate::instructions) fn div(a: f64, b: f64, direction: Direction) -> f64 {
    if direction == Direction::Nearest || !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (x, y) = (unpack(a), unpack(b));
    let up = x.significand.leading_zeros();
    let (dividend, divisor) = (x.significand << up, y.significand);
    let quotient = dividend / divisor;
    let lost = u128::from(dividend % divisor != 0);
    // The quotient has at least 75 bits, so the sticky bit is far below the last.
    let exponent = x.exponent - up as i32 - y.exponent;
    Exact {
        negative: x.negative != y.negative,
        significand: quotient | lost,
        exponent,
    }
    .round(direction)
}

/// The square root in a direction.
pub(in crate::instructions) fn sqrt(a: f64, direction: Direction) -> f64 {
    if direction == Direction::Nearest || !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let x = unpack(a);
    let mut up = x.significand.leading_zeros() as i32 - 1;
    if (x.exponent - up) % 2 != 0 {
        up -= 1;
    }
    let radicand = x.significand << up;
    let root = radicand.isqrt();
    let lost = u128::from(root * root != radicand);
    // The root has 63 bits; one more makes room for the sticky bit.
    let exponent = (x.exponent - up) / 2 - 1;
    Exact {
        negative: false,
        significand: root << 1 | lost,
        exponent,
    }
    .round(direction)
}
