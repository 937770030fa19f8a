//! `DType`: the element types of tensors.

use std::fmt;

/// The type of a tensor's elements.
///
/// The first ten can be computed with. The others are stored only: a checkpoint may carry them, they can be
/// viewed and saved, and an op refuses them with an error that says to cast first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// `torch.float64`
    F64,
    /// `torch.float32`, the default
    F32,
    /// `torch.float16`
    F16,
    /// `torch.bfloat16`
    BF16,
    /// `torch.int64`
    I64,
    /// `torch.int32`
    I32,
    /// `torch.int16`
    I16,
    /// `torch.int8`
    I8,
    /// `torch.uint8`
    U8,
    /// `torch.bool`, one byte of 0 or 1
    Bool,
    /// `torch.uint16`, stored only
    U16,
    /// `torch.uint32`, stored only
    U32,
    /// `torch.uint64`, stored only
    U64,
    /// `torch.float8_e4m3fn`, stored only
    F8E4M3,
    /// `torch.float8_e5m2`, stored only
    F8E5M2,
    /// `torch.complex64`, stored only
    C64,
    /// `torch.complex128`, stored only
    C128,
}

impl DType {
    /// Every dtype, those to compute with first.
    pub const ALL: [DType; 17] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U8,
        DType::Bool,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::C64,
        DType::C128,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::C128 => 16,
            DType::F64 | DType::I64 | DType::U64 | DType::C64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => 1,
        }
    }

    /// The short name, as in `f32[2, 3]`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::C64 => "c64",
            DType::C128 => "c128",
        }
    }

    /// PyTorch's name, as in `torch.float32`.
    pub const fn torch_name(self) -> &'static str {
        match self {
            DType::F64 => "float64",
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::I64 => "int64",
            DType::I32 => "int32",
            DType::I16 => "int16",
            DType::I8 => "int8",
            DType::U8 => "uint8",
            DType::Bool => "bool",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::F8E4M3 => "float8_e4m3fn",
            DType::F8E5M2 => "float8_e5m2",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
        }
    }

    /// Whether ops compute with it; the others are stored only.
    pub const fn is_computable(self) -> bool {
        (self as u8) <= (DType::Bool as u8)
    }

    /// Whether it is a real floating type to compute with: what gradients can have.
    pub const fn is_floating_point(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Whether it is a 16-bit float: loaded, computed in f32, rounded once when stored.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// Whether it is a whole-number type to compute with (bool is not one).
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8
        )
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A Rust type that is a tensor's element: what slices and `to_vec` are made of.
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + 'static {
    /// The dtype of this Rust type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! {
    f64 => F64, f32 => F32, half::f16 => F16, half::bf16 => BF16,
    i64 => I64, i32 => I32, i16 => I16, i8 => I8, u8 => U8, bool => Bool,
    u16 => U16, u32 => U32, u64 => U64,
}
