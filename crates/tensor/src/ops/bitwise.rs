//! Functions of the bits of whole numbers and bools.

use fireclay_core::arith::Whole;
use fireclay_core::{DType, Result, Scalar};

use super::row::{in_place, pointwise};
use crate::tensor::Tensor;

/// A count of bits that a number of 64 has, else 64.
#[inline(always)]
fn is_count<A: Whole>(count: A) -> A::Mask {
    count.ge(A::int(0)) & count.lt(A::int(64))
}

pointwise! {
    /// Bits that both have; of bools `and` (`torch.bitwise_and`).
    BitwiseAnd, bitwise_and(x, y), Whole, saves Saves::NONE, autocast Keep,
        eval whole { x & y }, grad(r, g) { [None, None] };
    /// Bits that either has; of bools `or` (`torch.bitwise_or`).
    BitwiseOr, bitwise_or(x, y), Whole, saves Saves::NONE, autocast Keep,
        eval whole { x | y }, grad(r, g) { [None, None] };
    /// Bits that just one has; of bools `xor` (`torch.bitwise_xor`).
    BitwiseXor, bitwise_xor(x, y), Whole, saves Saves::NONE, autocast Keep,
        eval whole { x ^ y }, grad(r, g) { [None, None] };
    /// `x` shifted left by `y` bits; 0 where `y` is negative or all bits are shifted out (`torch.bitwise_left_shift`).
    BitwiseLeftShift, bitwise_left_shift(x, y), WholeNumber, saves Saves::NONE, autocast Keep,
        eval whole { A::select(is_count(y), x.shl_by(A::select(is_count(y), y, A::int(0))), A::int(0)) },
        grad(r, g) { [None, None] };
    /// `x` shifted right by `y` bits, filled with the sign, by which alone a negative or large `y` leaves
    /// (`torch.bitwise_right_shift`).
    BitwiseRightShift, bitwise_right_shift(x, y), WholeNumber, saves Saves::NONE, autocast Keep,
        eval whole { x.shr_by(A::select(is_count(y), y, A::int(63))) },
        grad(r, g) { [None, None] };
}

in_place! {
    BitwiseAnd => bitwise_and_(other);
    BitwiseOr => bitwise_or_(other);
    BitwiseXor => bitwise_xor_(other);
    BitwiseLeftShift => bitwise_left_shift_(other);
    BitwiseRightShift => bitwise_right_shift_(other);
}

impl Tensor {
    /// All bits turned; of bools the opposite (`torch.bitwise_not`).
    #[track_caller]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        self.bitwise_xor(all_bits(self.dtype()))
    }

    /// The in-place form of [`bitwise_not`](Tensor::bitwise_not): overwrites `self` and returns it (`Tensor.bitwise_not_`).
    #[track_caller]
    pub fn bitwise_not_(&self) -> Result<Tensor> {
        self.bitwise_xor_(all_bits(self.dtype()))
    }
}

fn all_bits(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        _ => Scalar::I64(-1),
    }
}
