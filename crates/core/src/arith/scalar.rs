//! The lane types of one lane: `f32`, `f64` and `i64`, with `i32` and `i64` as bits and `bool` as mask.
//!
//! They are the reference that every wider lane type must match bit for bit.

use super::{Arith, Bits, Mask, Num, Whole};

impl Mask for bool {
    #[inline(always)]
    fn any(self) -> bool {
        self
    }
}

/// Comparison and selection, the same for all scalars.
macro_rules! compare_and_select {
    () => {
        #[inline(always)]
        fn lt(self, other: Self) -> bool {
            self < other
        }
        #[inline(always)]
        fn eq(self, other: Self) -> bool {
            self == other
        }
        #[inline(always)]
        fn select(mask: bool, if_true: Self, if_false: Self) -> Self {
            if mask { if_true } else { if_false }
        }
    };
}

/// `i64` as a number. `+`, `-`, `*` of the trait are those of the language, which check for overflow in a debug
/// build; so whole numbers are carried in [`Wrapping`](std::num::Wrapping).
impl Num for std::num::Wrapping<i64> {
    type Mask = bool;

    compare_and_select!();

    #[inline(always)]
    fn int(value: i64) -> Self {
        Self(value)
    }
    #[inline(always)]
    fn le(self, other: Self) -> bool {
        self <= other
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.wrapping_abs())
    }
}

impl Whole for std::num::Wrapping<i64> {
    #[inline(always)]
    fn shl_by(self, count: Self) -> Self {
        Self(self.0.wrapping_shl(count.0 as u32))
    }
    #[inline(always)]
    fn shr_by(self, count: Self) -> Self {
        Self(self.0.wrapping_shr(count.0 as u32))
    }
    #[inline(always)]
    fn quotient(self, divisor: Self) -> Self {
        match divisor.0 {
            0 => Self(0),
            divisor => Self(self.0.wrapping_div(divisor)),
        }
    }
}

macro_rules! float {
    ($float:ty, $bits:ty, $unsigned:ty, $double:literal, $magic:literal) => {
        impl Num for $float {
            type Mask = bool;

            compare_and_select!();

            #[inline(always)]
            fn int(value: i64) -> Self {
                value as $float
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }
        }

        impl Arith for $float {
            const DOUBLE: bool = $double;
            type Bits = std::num::Wrapping<$bits>;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $float
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                self.mul_add(factor, addend)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                self.copysign(sign)
            }
            #[inline(always)]
            fn floor(self) -> Self {
                self.floor()
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                self.ceil()
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                self.trunc()
            }
            #[inline(always)]
            fn round_even(self) -> Self {
                self.round_ties_even()
            }
            #[inline(always)]
            fn to_bits(self) -> Self::Bits {
                std::num::Wrapping(self.to_bits() as $bits)
            }
            #[inline(always)]
            fn from_bits(bits: Self::Bits) -> Self {
                <$float>::from_bits(bits.0 as $unsigned)
            }
            // Added to 1.5 * 2^(mantissa bits), a whole number stands in the lowest mantissa bits.
            #[inline(always)]
            fn to_whole(self) -> Self::Bits {
                Arith::to_bits(self + $magic) - Arith::to_bits($magic)
            }
            #[inline(always)]
            fn from_whole(bits: Self::Bits) -> Self {
                <Self as Arith>::from_bits(bits + Arith::to_bits($magic)) - $magic
            }
        }

        impl Bits for std::num::Wrapping<$bits> {
            type Mask = bool;

            compare_and_select!();

            #[inline(always)]
            fn splat(value: i64) -> Self {
                Self(value as $bits)
            }
            #[inline(always)]
            fn shl(self, count: u32) -> Self {
                Self(self.0 << count)
            }
            #[inline(always)]
            fn shr(self, count: u32) -> Self {
                Self(self.0 >> count)
            }
            #[inline(always)]
            fn shr_logical(self, count: u32) -> Self {
                Self((self.0 as $unsigned >> count) as $bits)
            }
            #[inline(always)]
            fn shl_by(self, count: Self) -> Self {
                Self(self.0 << count.0)
            }
            #[inline(always)]
            fn shr_logical_by(self, count: Self) -> Self {
                Self((self.0 as $unsigned >> count.0) as $bits)
            }
            #[inline(always)]
            fn mul_low(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn mul_high_unsigned(self, other: Self) -> Self {
                let product = self.0 as $unsigned as u128 * other.0 as $unsigned as u128;
                Self((product >> <$bits>::BITS) as $bits)
            }
        }
    };
}

float!(f32, i32, u32, false, 12_582_912.0f32); // 1.5 * 2^23
float!(f64, i64, u64, true, 6_755_399_441_055_744.0f64); // 1.5 * 2^52

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::Wrapping;

    #[test]
    fn whole_numbers_wrap_around() {
        let least = Wrapping(i64::MIN);
        let one: Wrapping<i64> = Num::int(1);
        assert_eq!(least - one, Wrapping(i64::MAX));
        assert_eq!(Num::abs(least), least);
        assert_eq!(-least, least);
    }

    #[test]
    fn whole_numbers_divide_by_anything() {
        let least = Wrapping(i64::MIN);
        assert_eq!(Wrapping(-7).quotient(Wrapping(2)), Wrapping(-3));
        assert_eq!(Wrapping(7).quotient(Wrapping(0)), Wrapping(0));
        assert_eq!(least.quotient(Wrapping(-1)), least);
        assert_eq!(Wrapping(-9).shr_by(Wrapping(63)), Wrapping(-1));
        assert_eq!(Whole::shl_by(Wrapping(-9), Wrapping(63)), least);
    }

    #[test]
    fn whole_floats_convert_both_ways() {
        for value in [-4_194_303i64, -77, -1, 0, 1, 5, 4_194_303] {
            assert_eq!((value as f32).to_whole(), Wrapping(value as i32));
            assert_eq!(
                <f32 as Arith>::from_whole(Wrapping(value as i32)),
                value as f32
            );
            assert_eq!((value as f64).to_whole(), Wrapping(value));
            assert_eq!(<f64 as Arith>::from_whole(Wrapping(value)), value as f64);
        }
    }

    #[test]
    fn ldexp_rounds_once_into_the_denormals() {
        let value = 1.0f32 + f32::EPSILON * 3.0;
        for exponent in -170..=128 {
            let exact = f64::from(value) * f64::exp2(f64::from(exponent));
            assert_eq!(value.ldexp(exponent as f32), exact as f32, "2^{exponent}");
        }
        assert_eq!(1.5f32.ldexp(150.0), f32::INFINITY);
        assert_eq!(1.0f64.ldexp(-1074.0), 5e-324);
        assert_eq!(1.5f64.ldexp(1100.0), f64::INFINITY);
    }

    #[test]
    fn minimum_and_maximum_keep_nan() {
        assert!(Num::minimum(f32::NAN, 1.0).is_nan() && Num::minimum(1.0, f32::NAN).is_nan());
        assert!(Num::maximum(f64::NAN, 1.0).is_nan() && Num::maximum(1.0, f64::NAN).is_nan());
        assert_eq!(Num::maximum(-1.0f32, 3.0), 3.0);
    }
}
