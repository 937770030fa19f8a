//! `Scalar`: a plain number as an operand.

use std::fmt;

use crate::dtype::DType;

/// A plain number: what stands for PyTorch's Python numbers. It takes part in promotion by its kind only.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// A floating number; its own dtype is the default one, f32.
    F64(f64),
    /// A whole number; its own dtype is i64.
    I64(i64),
    /// A truth value; its own dtype is bool.
    Bool(bool),
}

impl Scalar {
    /// Whether it is the very same number: zeros of both signs are two, a NaN is itself.
    pub const fn is_same(self, other: Scalar) -> bool {
        match (self, other) {
            (Scalar::F64(a), Scalar::F64(b)) => a.to_bits() == b.to_bits(),
            (Scalar::I64(a), Scalar::I64(b)) => a == b,
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            _ => false,
        }
    }

    /// The dtype that the number has by itself.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::F64(_) => DType::F32,
            Scalar::I64(_) => DType::I64,
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// The number as f64 (a whole number beyond 2^53 is rounded).
    pub const fn to_f64(self) -> f64 {
        match self {
            Scalar::F64(value) => value,
            Scalar::I64(value) => value as f64,
            Scalar::Bool(value) => value as u8 as f64,
        }
    }

    /// The number as i64 (a floating one is cut towards zero and kept in range).
    pub const fn to_i64(self) -> i64 {
        match self {
            Scalar::F64(value) => value as i64,
            Scalar::I64(value) => value,
            Scalar::Bool(value) => value as i64,
        }
    }

    /// Whether PyTorch takes the number as one of `dtype` (as in `torch.full`). Whole dtypes take a fraction and cut it, unsigned
    /// ones also a negative number whose absolute value they have, which wraps around; f32 takes no finite number beyond its
    /// largest, while 16-bit floats round it to infinity; bool takes all.
    pub fn fits(self, dtype: DType) -> bool {
        let (least, most) = match dtype {
            DType::I64 => (i64::MIN, i64::MAX),
            DType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DType::I16 => (i16::MIN.into(), i16::MAX.into()),
            DType::I8 => (i8::MIN.into(), i8::MAX.into()),
            DType::U8 => (-i64::from(u8::MAX), u8::MAX.into()),
            DType::F32 => {
                let value = self.to_f64();
                return !value.is_finite() || value.abs() <= f32::MAX.into();
            }
            _ => return true,
        };
        let whole = match self {
            Scalar::F64(value) if !value.is_finite() => return false,
            // In i128, since the f64 next to i64::MAX is beyond it.
            Scalar::F64(value) if value < 0.0 => value.floor() as i128,
            Scalar::F64(value) => value.ceil() as i128,
            Scalar::I64(value) => value.into(),
            Scalar::Bool(value) => value.into(),
        };
        (least.into()..=most.into()).contains(&whole)
    }

    /// Whether the number is not zero.
    pub fn is_true(self) -> bool {
        match self {
            Scalar::F64(value) => value != 0.0,
            Scalar::I64(value) => value != 0,
            Scalar::Bool(value) => value,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::F64(value) => fmt::Debug::fmt(value, f),
            Scalar::I64(value) => fmt::Display::fmt(value, f),
            Scalar::Bool(value) => fmt::Display::fmt(value, f),
        }
    }
}

macro_rules! scalar_from {
    ($($rust:ty => $variant:ident),*) => {
        $(impl From<$rust> for Scalar {
            fn from(value: $rust) -> Scalar { Scalar::$variant(value.into()) }
        })*
    };
}

scalar_from!(f64 => F64, f32 => F64, i64 => I64, i32 => I64, i16 => I64, i8 => I64, u8 => I64, u32 => I64, bool => Bool);
