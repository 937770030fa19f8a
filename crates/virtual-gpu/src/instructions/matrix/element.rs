//! Elements of the matrices that tensor core instructions multiply: how registers hold them, and the numbers they are
//! computed as.

use crate::exec::lanes::Lane;
use crate::ptx::ast::Type;

/// What elements are computed as.
pub(super) trait Number: Copy + Default + 'static {
    /// `self + a * b`.
    fn add_product(self, a: Self, b: Self) -> Self;
    /// What the sum of products starts from.
    fn start(c: Self) -> Self;
    /// The result, of the element of C and of the sum.
    fn finish(c: Self, sum: Self, saturate: bool) -> Self;
}

macro_rules! floats {
    ($($ty:ty)*) => {$(
        impl Number for $ty {
            #[inline(always)]
            fn add_product(self, a: Self, b: Self) -> Self {
                a.mul_add(b, self)
            }
            #[inline(always)]
            fn start(c: Self) -> Self {
                c
            }
            #[inline(always)]
            fn finish(_c: Self, sum: Self, _saturate: bool) -> Self {
                sum
            }
        }
    )*};
}

floats! { f32 f64 }

impl Number for i32 {
    #[inline(always)]
    fn add_product(self, a: Self, b: Self) -> Self {
        // At most 32 products of 8-bit numbers: it never wraps.
        self.wrapping_add(a.wrapping_mul(b))
    }
    #[inline(always)]
    fn start(_c: Self) -> Self {
        0
    }
    #[inline(always)]
    fn finish(c: Self, sum: Self, saturate: bool) -> Self {
        if saturate {
            c.saturating_add(sum)
        } else {
            c.wrapping_add(sum)
        }
    }
}

/// An element's type.
pub(super) trait Element: 'static {
    /// What it is computed as.
    type Number: Number;
    /// Registers that hold it.
    type Register: Lane;
    /// Elements of a register, the first in the lowest bits.
    const PACKED: usize;
    /// Element `index` of a register.
    fn get(register: <Self::Register as Lane>::Raw, index: usize) -> Self::Number;
}

/// An element that results are made of.
pub(super) trait Accumulator: Element {
    /// A register of elements; there are [`Element::PACKED`].
    fn put(values: &[Self::Number]) -> <Self::Register as Lane>::Raw;
}

/// PTX's `.f16`.
pub(super) struct F16;
impl Element for F16 {
    type Number = f32;
    type Register = u32;
    const PACKED: usize = 2;
    #[inline(always)]
    fn get(register: u32, index: usize) -> f32 {
        widen(register >> (16 * index) & 0xffff)
    }
}

impl Accumulator for F16 {
    #[inline(always)]
    fn put(values: &[f32]) -> u32 {
        narrow(values[0]) | narrow(values[1]) << 16
    }
}

/// PTX's `.bf16`.
pub(super) struct BF16;
impl Element for BF16 {
    type Number = f32;
    type Register = u32;
    const PACKED: usize = 2;
    #[inline(always)]
    fn get(register: u32, index: usize) -> f32 {
        f32::from_bits(if index == 0 {
            register << 16
        } else {
            register & 0xffff_0000
        })
    }
}

/// PTX's `.tf32`: an f32 whose 13 lowest bits do not count.
pub(super) struct TF32;
impl Element for TF32 {
    type Number = f32;
    type Register = u32;
    const PACKED: usize = 1;
    #[inline(always)]
    fn get(register: u32, _index: usize) -> f32 {
        f32::from_bits(register & !0x1fff)
    }
}

/// PTX's `.f32`.
pub(super) struct F32;
impl Element for F32 {
    type Number = f32;
    type Register = f32;
    const PACKED: usize = 1;
    #[inline(always)]
    fn get(register: u32, _index: usize) -> f32 {
        f32::from_bits(register)
    }
}

impl Accumulator for F32 {
    #[inline(always)]
    fn put(values: &[f32]) -> u32 {
        values[0].to_bits()
    }
}

/// PTX's `.f64`.
pub(super) struct F64;
impl Element for F64 {
    type Number = f64;
    type Register = f64;
    const PACKED: usize = 1;
    #[inline(always)]
    fn get(register: u64, _index: usize) -> f64 {
        f64::from_bits(register)
    }
}

impl Accumulator for F64 {
    #[inline(always)]
    fn put(values: &[f64]) -> u64 {
        values[0].to_bits()
    }
}

/// PTX's `.s8`.
pub(super) struct S8;
impl Element for S8 {
    type Number = i32;
    type Register = u32;
    const PACKED: usize = 4;
    #[inline(always)]
    fn get(register: u32, index: usize) -> i32 {
        (register << (24 - 8 * index)) as i32 >> 24
    }
}

/// PTX's `.u8`.
pub(super) struct U8;
impl Element for U8 {
    type Number = i32;
    type Register = u32;
    const PACKED: usize = 4;
    #[inline(always)]
    fn get(register: u32, index: usize) -> i32 {
        (register >> (8 * index) & 0xff) as i32
    }
}

/// PTX's `.s32`.
pub(super) struct S32;
impl Element for S32 {
    type Number = i32;
    type Register = i32;
    const PACKED: usize = 1;
    #[inline(always)]
    fn get(register: u32, _index: usize) -> i32 {
        register as i32
    }
}

impl Accumulator for S32 {
    #[inline(always)]
    fn put(values: &[i32]) -> u32 {
        values[0] as u32
    }
}

/// The type that a register of elements is decoded as.
pub(super) fn register_type(element: Type) -> Type {
    match element {
        Type::F64 => Type::F64,
        Type::F32 => Type::F32,
        _ => Type::B32,
    }
}

/// Elements of a type in one register.
pub(super) fn packed(element: Type) -> usize {
    (register_type(element).size() / element.size()) as usize
}

/// `c + a * b` of whole matrices.
#[inline(always)]
pub(super) fn multiply<T: Number, const M: usize, const N: usize, const K: usize>(
    a: &[[T; K]; M],
    b: &[[T; N]; K],
    c: &mut [[T; N]; M],
    saturate: bool,
) {
    for (a, c) in a.iter().zip(c) {
        let mut sums = c.map(T::start);
        for (a, b) in a.iter().zip(b) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = sum.add_product(*a, *b);
            }
        }
        for (c, sum) in c.iter_mut().zip(sums) {
            *c = T::finish(*c, sum, saturate);
        }
    }
}

/// f16 to f32, without branches, so that many are converted at once.
#[inline(always)]
fn widen(bits: u32) -> f32 {
    let magnitude = (bits & 0x7fff) << 13;
    // As an f32 these bits are the number times 2^-112, subnormal ones included.
    let scaled = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let finite = magnitude < 0x0f80_0000;
    f32::from_bits(
        if finite {
            scaled
        } else {
            magnitude | 0x7f80_0000
        } | (bits & 0x8000) << 16,
    )
}

/// f32 to f16, to nearest even, without branches.
#[inline(always)]
fn narrow(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded =
        (magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13).wrapping_sub(112 << 10);
    // The last bit of one half is that of the smallest subnormal number.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0x3f00_0000);
    let result = if magnitude > 0x7f80_0000 {
        0x7e00 | magnitude >> 13 & 0x3ff
    } else if magnitude >= 0x477f_f000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        subnormal
    } else {
        rounded
    };
    result | bits >> 16 & 0x8000
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn every_f16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits).to_f32();
            let got = widen(u32::from(bits));
            assert!(
                got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                "{bits:#06x}"
            );
        }
    }

    #[test]
    fn f32_narrows_as_ieee_says() {
        let mut state = 1u32;
        let around = (0..=u16::MAX).flat_map(|bits| {
            let value = f16::from_bits(bits).to_f32().to_bits();
            [-1i32, 0, 1, 0xfff, 0x1000, 0x1001].map(|step| value.wrapping_add(step as u32))
        });
        let random = (0..1_000_000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        });
        for bits in around.chain(random) {
            let value = f32::from_bits(bits);
            let (expected, got) = (f16::from_f32(value), f16::from_bits(narrow(value) as u16));
            assert!(
                got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                "{bits:#010x}"
            );
        }
    }
}
