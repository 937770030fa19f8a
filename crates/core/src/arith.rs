//! `Arith`: the arithmetic in which every pointwise formula is written, once.
//!
//! A formula is a generic function over a lane type: one number, a SIMD vector, or (on CUDA) a tracer that
//! records what is done. The traits hold only operations that IEEE 754 or two's complement defines to
//! the last bit, so every instantiation of a formula gives the same bits, except for which NaN a NaN is.
//! What is built from them (`exp`, `tanh`, `erf`, ...) lives in [`crate::math`] and inherits that.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

mod scalar;

/// The result of comparing lanes: true or false in each.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {
    /// Whether it may hold in any lane, for skipping work whose result no lane would select.
    ///
    /// A lane type that can't tell (a tracer) says true, so nothing but speed may depend on the answer.
    fn any(self) -> bool;
}

/// Lanes of numbers, whole or floating: what `add`, `maximum` or `eq` need.
///
/// Whole numbers wrap around on overflow.
pub trait Num:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// What a comparison of these lanes gives.
    type Mask: Mask;

    /// The whole number `value` in every lane. It must be exact in the lane's type.
    fn int(value: i64) -> Self;
    /// `self < other`; false where either is NaN.
    fn lt(self, other: Self) -> Self::Mask;
    /// `self <= other`; false where either is NaN.
    fn le(self, other: Self) -> Self::Mask;
    /// `self == other`; false where either is NaN.
    fn eq(self, other: Self) -> Self::Mask;
    /// `if_true` where `mask` holds, `if_false` elsewhere.
    fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self;
    /// Absolute value: clears the sign bit of a float (of NaN too); wraps for the smallest whole number.
    fn abs(self) -> Self;

    /// `self > other`; false where either is NaN.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    /// `self >= other`; false where either is NaN.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    /// `self != other`; true where either is NaN.
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }
    /// 1 where `mask` holds, 0 elsewhere: how a formula carries a bool.
    #[inline(always)]
    fn truth(mask: Self::Mask) -> Self {
        Self::select(mask, Self::int(1), Self::int(0))
    }
    /// Where the lane is not zero (NaN counts as true).
    #[inline(always)]
    fn is_true(self) -> Self::Mask {
        self.ne(Self::int(0))
    }
    /// `self` where it is smaller than `other`, else `other`: also where either is NaN.
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        Self::select(self.lt(other), self, other)
    }
    /// `self` where it is larger than `other`, else `other`: also where either is NaN.
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        Self::select(self.gt(other), self, other)
    }
    /// The smaller; NaN where either is NaN (`torch.minimum`).
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        Self::select(self.ne(self), self, self.lesser(other))
    }
    /// The larger; NaN where either is NaN (`torch.maximum`).
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        Self::select(self.ne(self), self, self.greater(other))
    }
}

/// Lanes of whole numbers (i64, for every whole dtype): what only they can do.
pub trait Whole:
    Num + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// Shifted left by each lane's own count, which is from 0 to 63, filling with zeros.
    fn shl_by(self, count: Self) -> Self;
    /// Shifted right by each lane's own count, from 0 to 63, filling with the sign.
    fn shr_by(self, count: Self) -> Self;
    /// The quotient, cut towards zero; 0 where `divisor` is 0, and -`self`, which wraps around, where it is -1.
    fn quotient(self, divisor: Self) -> Self;
}

/// The bits of floating lanes as signed whole numbers of the same width (i32 for f32, i64 for f64).
pub trait Bits:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
{
    /// The same mask as the floating lanes use.
    type Mask: Mask;

    /// `value` in every lane, cut to the lane's width.
    fn splat(value: i64) -> Self;
    /// Shifts left, filling with zeros. `count` is below the lane's width.
    fn shl(self, count: u32) -> Self;
    /// Shifts right, filling with the sign.
    fn shr(self, count: u32) -> Self;
    /// Shifts right, filling with zeros.
    fn shr_logical(self, count: u32) -> Self;
    /// Shifts left by each lane's own count, which is from 0 to the lane's width - 1.
    fn shl_by(self, count: Self) -> Self;
    /// Shifts right by each lane's own count, from 0 to the lane's width - 1, filling with zeros.
    fn shr_logical_by(self, count: Self) -> Self;
    /// The low half of the product.
    fn mul_low(self, other: Self) -> Self;
    /// The high half of the product of the lanes taken as unsigned numbers.
    fn mul_high_unsigned(self, other: Self) -> Self;
    /// Equal, lane by lane.
    fn eq(self, other: Self) -> Self::Mask;
    /// Signed less-than, lane by lane.
    fn lt(self, other: Self) -> Self::Mask;
    /// `if_true` where `mask` holds, `if_false` elsewhere.
    fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self;
}

/// Lanes of f32 or of f64.
///
/// Operators and methods are rounded to nearest, ties to even, one rounding each; nothing is contracted
/// behind the formula's back.
pub trait Arith: Num + Div<Output = Self> {
    /// Whether the lanes are f64. Known when compiled, so `if A::DOUBLE` costs nothing.
    const DOUBLE: bool;
    /// The lanes' bits.
    type Bits: Bits<Mask = Self::Mask>;

    /// The constant `value`, rounded to the lanes' type, in every lane.
    fn of(value: f64) -> Self;
    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// Rounded down.
    fn floor(self) -> Self;
    /// Rounded up.
    fn ceil(self) -> Self;
    /// Rounded towards zero.
    fn trunc(self) -> Self;
    /// Rounded to the nearest whole number, ties to even (`torch.round`).
    fn round_even(self) -> Self;
    /// The lanes' bits.
    fn to_bits(self) -> Self::Bits;
    /// Lanes with these bits.
    fn from_bits(bits: Self::Bits) -> Self;
    /// The whole number of a lane that already is one, with magnitude below 2^22 (f32) or 2^51 (f64).
    /// Outside of that the result is unspecified but the same bits on every instantiation.
    fn to_whole(self) -> Self::Bits;
    /// A whole number of magnitude below 2^22 (f32) or 2^51 (f64) as a float.
    fn from_whole(bits: Self::Bits) -> Self;

    /// `self * 2^exponent` for a whole `exponent`, rounded once (`torch.ldexp`).
    ///
    /// `self` is 0, infinite, NaN or of a magnitude from 2^-40 to 2^40 (or any, where `exponent` is at least -1),
    /// and `exponent` has a magnitude of at most 170 (f32) or 1200 (f64); outside of that, and where `exponent`
    /// is NaN, the result is unspecified.
    #[inline(always)]
    fn ldexp(self, exponent: Self) -> Self {
        // In two steps, since 2^exponent itself may be out of range. The first step is exact.
        let (bias, mantissa_bits) = if Self::DOUBLE { (1023, 52) } else { (127, 23) };
        let whole = exponent.to_whole();
        let half = whole.shr(1);
        let bias = Self::Bits::splat(bias);
        let first = Self::from_bits((half + bias).shl(mantissa_bits));
        let second = Self::from_bits((whole - half + bias).shl(mantissa_bits));
        self * first * second
    }
    /// Where the lane is NaN.
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        self.ne(self)
    }
    /// Positive infinity.
    #[inline(always)]
    fn infinity() -> Self {
        Self::of(f64::INFINITY)
    }
    /// The quiet NaN.
    #[inline(always)]
    fn nan() -> Self {
        Self::of(f64::NAN)
    }
}
