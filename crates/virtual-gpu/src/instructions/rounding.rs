//! Rounding in every direction, exactly. A result is first had as a double rounded to odd (the last bit is set if
//! anything was lost); rounding that to a type of at most 51 bits gives what one rounding of the exact value would
//! (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
//! Doubles themselves are rounded in the other directions from an integer significand in [`wide`].

pub(super) mod wide;

use half::{bf16, f16};

/// A rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the nearest, ties to even: `.rn`
    Nearest,
    /// To zero: `.rz`
    Zero,
    /// Down: `.rm`
    Down,
    /// Up: `.rp`
    Up,
    /// To the nearest, ties away from zero: `.rna`
    Away,
}

impl Direction {
    /// As an immediate or a const parameter.
    pub(super) const fn from_code(code: u8) -> Direction {
        match code {
            0 => Direction::Nearest,
            1 => Direction::Zero,
            2 => Direction::Down,
            3 => Direction::Up,
            _ => Direction::Away,
        }
    }
}

/// A double with the sign of what the exact value has beyond it, rounded to odd.
#[inline(always)]
pub(super) fn to_odd(value: f64, beyond: f64) -> f64 {
    if beyond == 0.0 || beyond.is_nan() || !value.is_finite() || value.to_bits() & 1 != 0 {
        return value;
    }
    if value == 0.0 {
        f64::from_bits(1).copysign(beyond)
    } else if (beyond > 0.0) == (value > 0.0) {
        // Away from zero: the next bit pattern, which is odd.
        f64::from_bits(value.to_bits() + 1)
    } else {
        f64::from_bits(value.to_bits() - 1)
    }
}

/// `a + b` rounded to odd. Exact for operands that came from narrower types, whose sums are far from overflow.
#[inline(always)]
pub(super) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's error of a sum.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    to_odd(sum, error)
}

/// `a / b` rounded to odd, of narrower types.
#[inline(always)]
pub(super) fn odd_quotient(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if quotient == 0.0 || !quotient.is_finite() {
        return quotient;
    }
    let remainder = (-quotient).mul_add(b, a);
    to_odd(quotient, if b < 0.0 { -remainder } else { remainder })
}

/// The square root rounded to odd, of a narrower type.
#[inline(always)]
pub(super) fn odd_root(a: f64) -> f64 {
    let root = a.sqrt();
    if root == 0.0 || !root.is_finite() {
        return root;
    }
    to_odd(root, (-root).mul_add(root, a))
}

/// A type that values are rounded to.
pub(super) trait Rounded: Copy {
    /// The exact value.
    fn exact(self) -> f64;
    /// Of a double rounded to odd (or exact), in a direction.
    fn rounded(odd: f64, direction: Direction) -> Self;
    /// Subnormal values as zero of the same sign.
    fn flushed(self) -> Self;
}

/// Moves the nearest value to the one that a direction wants: `step(up)` is the neighbour.
#[inline(always)]
fn directed<T: Rounded>(
    nearest: T,
    odd: f64,
    direction: Direction,
    neighbour: impl Fn(T, bool) -> T,
) -> T {
    let value = nearest.exact();
    if odd.is_nan() || value == odd {
        return nearest;
    }
    let above = value > odd;
    match direction {
        Direction::Nearest | Direction::Away => nearest,
        Direction::Down if above => neighbour(nearest, false),
        Direction::Up if !above => neighbour(nearest, true),
        Direction::Zero if odd > 0.0 && above => neighbour(nearest, false),
        Direction::Zero if odd < 0.0 && !above => neighbour(nearest, true),
        _ => nearest,
    }
}

/// The NaN that GPUs give for every NaN of f32; other values as they are.
#[inline(always)]
pub(super) fn canonical(value: f32) -> f32 {
    const NAN: u32 = 0x7fff_ffff;
    // On the bits: to the compiler one NaN is as good as another.
    let bits = value.to_bits();
    f32::from_bits(if bits & NAN > 0x7f80_0000 { NAN } else { bits })
}

impl Rounded for f32 {
    #[inline(always)]
    fn exact(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn rounded(odd: f64, direction: Direction) -> f32 {
        let nearest = canonical(odd as f32);
        if direction == Direction::Nearest {
            return nearest;
        }
        directed(nearest, odd, direction, |value, up| {
            if up {
                value.next_up()
            } else {
                value.next_down()
            }
        })
    }

    #[inline(always)]
    fn flushed(self) -> f32 {
        if self.abs() < f32::MIN_POSITIVE {
            0f32.copysign(self)
        } else {
            self
        }
    }
}

/// A double rounded to odd, as a single rounded to odd: enough for 16-bit types.
#[inline(always)]
fn odd_single(odd: f64) -> f32 {
    let single = f32::rounded(odd, Direction::Zero);
    if single.exact() == odd || !odd.is_finite() || single.to_bits() & 1 != 0 {
        return single;
    }
    f32::from_bits(single.to_bits() + 1)
}

macro_rules! halves {
    ($($ty:ident, $exponent:expr;)*) => {$(
        impl Rounded for $ty {
            #[inline(always)]
            fn exact(self) -> f64 {
                f64::from(f32::from(self))
            }

            #[inline(always)]
            fn rounded(odd: f64, direction: Direction) -> $ty {
                if odd.is_nan() {
                    // The only NaN that GPUs give.
                    return $ty::from_bits(0x7fff);
                }
                let nearest = $ty::from_f32(odd_single(odd));
                if direction == Direction::Nearest {
                    return nearest;
                }
                directed(nearest, odd, direction, |value, up| {
                    let bits = value.to_bits();
                    let away = up != value.is_sign_negative();
                    $ty::from_bits(match (bits & 0x7fff, away) {
                        (0, _) => if up { 1 } else { 0x8001 },
                        (_, true) => bits + 1,
                        (_, false) => bits - 1,
                    })
                })
            }

            #[inline(always)]
            fn flushed(self) -> $ty {
                let bits = self.to_bits();
                if bits & $exponent == 0 { $ty::from_bits(bits & 0x8000) } else { self }
            }
        }
    )*};
}

halves! {
    f16, 0x7c00;
    bf16, 0x7f80;
}

impl Rounded for f64 {
    #[inline(always)]
    fn exact(self) -> f64 {
        self
    }

    /// A double is taken as it is.
    #[inline(always)]
    fn rounded(odd: f64, _direction: Direction) -> f64 {
        odd
    }

    #[inline(always)]
    fn flushed(self) -> f64 {
        if self.abs() < f64::MIN_POSITIVE {
            0f64.copysign(self)
        } else {
            self
        }
    }
}
