//! Type promotion: the dtype in which an op of mixed operands answers, by PyTorch's rules.
//!
//! Note [Promotion categories]
//! Operands come in three categories: tensors with dimensions, zero-dim tensors, and plain numbers. A
//! lower category changes the dtype only where it is of a higher *kind* (bool < whole < floating) than all of the
//! categories above: `i32[3] + 2.5` is f32, `f32[3] + f64[]` is f32, `u8[3] + i64[]` is u8.

use crate::dtype::DType;
use crate::scalar::Scalar;

/// The common dtype of two tensors of the same category (`torch.promote_types`).
///
/// None where a stored-only dtype meets any other dtype.
pub fn promote_types(a: DType, b: DType) -> Option<DType> {
    if a == b {
        return Some(a);
    }
    if !a.is_computable() || !b.is_computable() {
        return None;
    }
    if a == DType::Bool {
        return Some(b);
    }
    if b == DType::Bool {
        return Some(a);
    }
    Some(match (a.is_floating_point(), b.is_floating_point()) {
        (true, false) => a,
        (false, true) => b,
        (true, true) if a.size() == b.size() => DType::F32, // f16 with bf16
        (true, true) => wider(a, b),
        (false, false) if a == DType::U8 && b == DType::I8 => DType::I16,
        (false, false) if a == DType::I8 && b == DType::U8 => DType::I16,
        (false, false) => wider(a, b),
    })
}

fn wider(a: DType, b: DType) -> DType {
    if a.size() >= b.size() { a } else { b }
}

/// Gathers operands of all categories and tells their common dtype (`torch.result_type`).
#[derive(Clone, Copy, Default, Debug)]
pub struct Promotion {
    dims: Option<DType>,
    zero_dim: Option<DType>,
    number: Option<DType>,
    incompatible: bool,
}

impl Promotion {
    /// No operand yet.
    pub fn new() -> Promotion {
        Promotion::default()
    }

    /// Adds a tensor of `ndim` dimensions.
    pub fn tensor(&mut self, dtype: DType, ndim: usize) -> &mut Promotion {
        let category = if ndim > 0 {
            &mut self.dims
        } else {
            &mut self.zero_dim
        };
        match promote_skip_none(*category, Some(dtype)) {
            Some(promoted) => *category = promoted,
            None => self.incompatible = true,
        }
        self
    }

    /// Adds a plain number.
    pub fn number(&mut self, scalar: Scalar) -> &mut Promotion {
        let dtype = scalar.dtype();
        self.number = promote_skip_none(self.number, Some(dtype)).unwrap_or(Some(dtype));
        self
    }

    /// The common dtype; None without operands, or if a stored-only dtype is mixed with another one.
    pub fn result(&self) -> Option<DType> {
        if self.incompatible {
            return None;
        }
        combine(self.dims, combine(self.zero_dim, self.number)?)?
    }
}

/// The outer `Option` is None where the two can't be combined.
type Combined = Option<Option<DType>>;

fn promote_skip_none(a: Option<DType>, b: Option<DType>) -> Combined {
    match (a, b) {
        (Some(a), Some(b)) => promote_types(a, b).map(Some),
        (a, b) => Some(a.or(b)),
    }
}

fn combine(higher: Option<DType>, lower: Option<DType>) -> Combined {
    match (higher, lower) {
        (Some(high), _) if high.is_floating_point() => Some(higher),
        (Some(DType::Bool), _) => promote_skip_none(higher, lower),
        (_, Some(low)) if low.is_floating_point() || !low.is_computable() => {
            promote_skip_none(higher, lower)
        }
        (Some(_), _) => Some(higher),
        (None, _) => Some(lower),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(tensors: &[(DType, usize)], numbers: &[Scalar]) -> Option<DType> {
        let mut promotion = Promotion::new();
        for &(dtype, ndim) in tensors {
            promotion.tensor(dtype, ndim);
        }
        for &number in numbers {
            promotion.number(number);
        }
        promotion.result()
    }

    #[test]
    fn categories_follow_pytorch() {
        use DType::*;
        assert_eq!(result(&[(I32, 1)], &[2.5.into()]), Some(F32));
        assert_eq!(result(&[(F16, 1)], &[2.5.into()]), Some(F16));
        assert_eq!(result(&[(F32, 1), (F64, 0)], &[]), Some(F32));
        assert_eq!(result(&[(U8, 1), (I64, 0)], &[]), Some(U8));
        assert_eq!(result(&[(I64, 1), (F64, 0)], &[]), Some(F64));
        assert_eq!(result(&[(Bool, 1)], &[3i64.into()]), Some(I64));
        assert_eq!(result(&[(Bool, 1)], &[true.into()]), Some(Bool));
        assert_eq!(result(&[(U8, 1), (I8, 1)], &[]), Some(I16));
        assert_eq!(result(&[(F16, 1), (BF16, 1)], &[]), Some(F32));
        assert_eq!(result(&[(I64, 0)], &[1.0.into()]), Some(F32));
        assert_eq!(result(&[(F64, 0)], &[1i64.into()]), Some(F64));
        assert_eq!(result(&[(F8E4M3, 1), (F32, 1)], &[]), None);
        assert_eq!(result(&[(F8E4M3, 1), (F8E4M3, 1)], &[]), Some(F8E4M3));
    }

    #[test]
    fn promotion_is_symmetric_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(promote_types(a, a), Some(a));
            for b in DType::ALL {
                assert_eq!(promote_types(a, b), promote_types(b, a));
            }
        }
    }
}
