//! Lanes for AVX-512 (F, DQ, BW, VL): 16 of f32, 8 of f64. See Note [Lanes inside target features].

use super::SimdLanes;
use fireclay_core::arith::{Arith, Bits, Mask, Num};
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// Calls intrinsics.
macro_rules! intrinsics {
    ($call:expr) => {
        // SAFETY: by Note [Lanes inside target features] this runs only where AVX-512 F, DQ, BW and VL are there.
        unsafe { $call }
    };
}

macro_rules! mask {
    ($mask:ident, $raw:ty) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $mask($raw);

        impl BitAnd for $mask {
            type Output = Self;
            #[inline(always)]
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
        impl BitOr for $mask {
            type Output = Self;
            #[inline(always)]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
        impl Not for $mask {
            type Output = Self;
            #[inline(always)]
            fn not(self) -> Self {
                Self(!self.0)
            }
        }
        impl Mask for $mask {
            #[inline(always)]
            fn any(self) -> bool {
                self.0 != 0
            }
        }
    };
}

mask!(Mask16, __mmask16);
mask!(Mask8, __mmask8);

/// An operator whose method calls one intrinsic.
macro_rules! operator {
    ($type:ty, $trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for $type {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(intrinsics!($intrinsic(self.0, other.0)))
            }
        }
    };
}

/// A floating lane type: its own name, its raw vector, element, bits and mask, then the intrinsics it uses.
macro_rules! float {
    (
        $lanes:ident, $raw:ty, $elem:ty, $double:literal, $bits:ident, $mask:ident, $magic:literal,
        $add:ident $sub:ident $mul:ident $div:ident $and:ident $andnot:ident $or:ident $xor:ident
        $set1:ident $compare:ident $blend:ident $fma:ident $min:ident $max:ident $sqrt:ident $round:ident $scalef:ident
        $to_bits:ident $from_bits:ident $load:ident $store:ident $load_masked:ident $store_masked:ident
    ) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $lanes($raw);

        operator!($lanes, Add, add, $add);
        operator!($lanes, Sub, sub, $sub);
        operator!($lanes, Mul, mul, $mul);
        operator!($lanes, Div, div, $div);
        impl Neg for $lanes {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self(intrinsics!($xor(self.0, $set1(-0.0))))
            }
        }

        impl Num for $lanes {
            type Mask = $mask;

            #[inline(always)]
            fn int(value: i64) -> Self {
                Self(intrinsics!($set1(value as $elem)))
            }
            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                $mask(intrinsics!($compare::<_CMP_LT_OQ>(self.0, other.0)))
            }
            #[inline(always)]
            fn le(self, other: Self) -> $mask {
                $mask(intrinsics!($compare::<_CMP_LE_OQ>(self.0, other.0)))
            }
            #[inline(always)]
            fn eq(self, other: Self) -> $mask {
                $mask(intrinsics!($compare::<_CMP_EQ_OQ>(self.0, other.0)))
            }
            #[inline(always)]
            fn select(mask: $mask, if_true: Self, if_false: Self) -> Self {
                Self(intrinsics!($blend(mask.0, if_false.0, if_true.0)))
            }
            #[inline(always)]
            fn abs(self) -> Self {
                Self(intrinsics!($andnot($set1(-0.0), self.0)))
            }
            // These instructions give the second operand where the first isn't strictly smaller (larger).
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                Self(intrinsics!($min(self.0, other.0)))
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                Self(intrinsics!($max(self.0, other.0)))
            }
        }

        impl Arith for $lanes {
            const DOUBLE: bool = $double;
            type Bits = $bits;

            #[inline(always)]
            fn of(value: f64) -> Self {
                Self(intrinsics!($set1(value as $elem)))
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                Self(intrinsics!($fma(self.0, factor.0, addend.0)))
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                Self(intrinsics!($sqrt(self.0)))
            }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                Self(intrinsics!({
                    let sign_bit = $set1(-0.0);
                    $or($andnot(sign_bit, self.0), $and(sign_bit, sign.0))
                }))
            }
            #[inline(always)]
            fn floor(self) -> Self {
                Self(intrinsics!($round::<
                    { _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC },
                >(self.0)))
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                Self(intrinsics!($round::<
                    { _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC },
                >(self.0)))
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                Self(intrinsics!($round::<
                    { _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC },
                >(self.0)))
            }
            #[inline(always)]
            fn round_even(self) -> Self {
                Self(intrinsics!($round::<
                    { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC },
                >(self.0)))
            }
            #[inline(always)]
            fn to_bits(self) -> $bits {
                $bits(intrinsics!($to_bits(self.0)))
            }
            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                Self(intrinsics!($from_bits(bits.0)))
            }
            #[inline(always)]
            fn to_whole(self) -> $bits {
                (self + Self::of($magic)).to_bits() - Self::of($magic).to_bits()
            }
            #[inline(always)]
            fn from_whole(bits: $bits) -> Self {
                Self::from_bits(bits + Self::of($magic).to_bits()) - Self::of($magic)
            }
            #[inline(always)]
            fn ldexp(self, exponent: Self) -> Self {
                Self(intrinsics!($scalef(self.0, exponent.0)))
            }
        }

        impl SimdLanes for $lanes {
            const LANES: usize = size_of::<$raw>() / size_of::<$elem>();
            type Elem = $elem;

            #[inline(always)]
            unsafe fn load(source: *const $elem) -> Self {
                // SAFETY: the caller vouches for LANES elements and the instruction set.
                Self(unsafe { $load(source) })
            }
            #[inline(always)]
            unsafe fn store(self, target: *mut $elem) {
                // SAFETY: the caller vouches for LANES elements and the instruction set.
                unsafe { $store(target, self.0) }
            }
            #[inline(always)]
            unsafe fn load_first(source: *const $elem, count: usize) -> Self {
                let mask = ((1u32 << count) - 1) as _;
                // SAFETY: the caller vouches for `count` elements; masked lanes are not touched.
                Self(unsafe { $load_masked(mask, source) })
            }
            #[inline(always)]
            unsafe fn store_first(self, target: *mut $elem, count: usize) {
                let mask = ((1u32 << count) - 1) as _;
                // SAFETY: the caller vouches for `count` elements; masked lanes are not touched.
                unsafe { $store_masked(target, mask, self.0) }
            }
        }
    };
}

float!(
    F32x16, __m512, f32, false, I32x16, Mask16, 12_582_912.0,
    _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_div_ps
    _mm512_and_ps _mm512_andnot_ps _mm512_or_ps _mm512_xor_ps
    _mm512_set1_ps _mm512_cmp_ps_mask _mm512_mask_blend_ps _mm512_fmadd_ps _mm512_min_ps _mm512_max_ps _mm512_sqrt_ps
    _mm512_roundscale_ps _mm512_scalef_ps _mm512_castps_si512 _mm512_castsi512_ps
    _mm512_loadu_ps _mm512_storeu_ps _mm512_maskz_loadu_ps _mm512_mask_storeu_ps
);
float!(
    F64x8, __m512d, f64, true, I64x8, Mask8, 6_755_399_441_055_744.0,
    _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_div_pd
    _mm512_and_pd _mm512_andnot_pd _mm512_or_pd _mm512_xor_pd
    _mm512_set1_pd _mm512_cmp_pd_mask _mm512_mask_blend_pd _mm512_fmadd_pd _mm512_min_pd _mm512_max_pd _mm512_sqrt_pd
    _mm512_roundscale_pd _mm512_scalef_pd _mm512_castpd_si512 _mm512_castsi512_pd
    _mm512_loadu_pd _mm512_storeu_pd _mm512_maskz_loadu_pd _mm512_mask_storeu_pd
);

/// The bits of a floating lane type: its own name, element and mask, then the intrinsics it uses.
macro_rules! bits {
    (
        $bits:ident, $elem:ty, $mask:ident,
        $add:ident $sub:ident $set1:ident $sll:ident $sra:ident $srl:ident $sllv:ident $srlv:ident
        $cmpeq:ident $cmplt:ident $blend:ident $mul_low:ident $mul_high:path
    ) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $bits(__m512i);

        operator!($bits, Add, add, $add);
        operator!($bits, Sub, sub, $sub);
        operator!($bits, BitAnd, bitand, _mm512_and_si512);
        operator!($bits, BitOr, bitor, _mm512_or_si512);
        operator!($bits, BitXor, bitxor, _mm512_xor_si512);

        impl Bits for $bits {
            type Mask = $mask;

            #[inline(always)]
            fn splat(value: i64) -> Self {
                Self(intrinsics!($set1(value as $elem)))
            }
            #[inline(always)]
            fn shl(self, count: u32) -> Self {
                Self(intrinsics!($sll(self.0, _mm_cvtsi32_si128(count as i32))))
            }
            #[inline(always)]
            fn shr(self, count: u32) -> Self {
                Self(intrinsics!($sra(self.0, _mm_cvtsi32_si128(count as i32))))
            }
            #[inline(always)]
            fn shr_logical(self, count: u32) -> Self {
                Self(intrinsics!($srl(self.0, _mm_cvtsi32_si128(count as i32))))
            }
            #[inline(always)]
            fn shl_by(self, count: Self) -> Self {
                Self(intrinsics!($sllv(self.0, count.0)))
            }
            #[inline(always)]
            fn shr_logical_by(self, count: Self) -> Self {
                Self(intrinsics!($srlv(self.0, count.0)))
            }
            #[inline(always)]
            fn mul_low(self, other: Self) -> Self {
                Self(intrinsics!($mul_low(self.0, other.0)))
            }
            #[inline(always)]
            fn mul_high_unsigned(self, other: Self) -> Self {
                Self($mul_high(self.0, other.0))
            }
            #[inline(always)]
            fn eq(self, other: Self) -> $mask {
                $mask(intrinsics!($cmpeq(self.0, other.0)))
            }
            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                $mask(intrinsics!($cmplt(self.0, other.0)))
            }
            #[inline(always)]
            fn select(mask: $mask, if_true: Self, if_false: Self) -> Self {
                Self(intrinsics!($blend(mask.0, if_false.0, if_true.0)))
            }
        }
    };
}

bits!(
    I32x16, i32, Mask16,
    _mm512_add_epi32 _mm512_sub_epi32 _mm512_set1_epi32 _mm512_sll_epi32 _mm512_sra_epi32 _mm512_srl_epi32
    _mm512_sllv_epi32 _mm512_srlv_epi32 _mm512_cmpeq_epi32_mask _mm512_cmplt_epi32_mask _mm512_mask_blend_epi32
    _mm512_mullo_epi32 mul_high_u32
);
bits!(
    I64x8, i64, Mask8,
    _mm512_add_epi64 _mm512_sub_epi64 _mm512_set1_epi64 _mm512_sll_epi64 _mm512_sra_epi64 _mm512_srl_epi64
    _mm512_sllv_epi64 _mm512_srlv_epi64 _mm512_cmpeq_epi64_mask _mm512_cmplt_epi64_mask _mm512_mask_blend_epi64
    _mm512_mullo_epi64 mul_high_u64
);

/// The high halves of 32-bit products, from the full products of the even and of the odd lanes.
#[inline(always)]
fn mul_high_u32(a: __m512i, b: __m512i) -> __m512i {
    intrinsics!({
        let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b));
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
        _mm512_mask_blend_epi32(0xAAAA, even, odd)
    })
}

/// The high halves of 64-bit products, by long multiplication with 32-bit digits.
#[inline(always)]
fn mul_high_u64(a: __m512i, b: __m512i) -> __m512i {
    intrinsics!({
        let low_digit = _mm512_set1_epi64(0xFFFF_FFFF);
        let (a_high, b_high) = (_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
        let low = _mm512_mul_epu32(a, b);
        let middle = _mm512_add_epi64(_mm512_mul_epu32(a_high, b), _mm512_srli_epi64::<32>(low));
        let other = _mm512_add_epi64(
            _mm512_mul_epu32(a, b_high),
            _mm512_and_si512(middle, low_digit),
        );
        let high = _mm512_add_epi64(
            _mm512_mul_epu32(a_high, b_high),
            _mm512_srli_epi64::<32>(middle),
        );
        _mm512_add_epi64(high, _mm512_srli_epi64::<32>(other))
    })
}
