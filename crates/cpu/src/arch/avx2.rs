//! Lanes for AVX2 with FMA: 8 of f32, 4 of f64. See Note [Lanes inside target features].

use super::SimdLanes;
use fireclay_core::arith::{Arith, Bits, Mask, Num};
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// Calls intrinsics.
macro_rules! intrinsics {
    ($call:expr) => {
        // SAFETY: by Note [Lanes inside target features] this runs only where AVX2 and FMA are there.
        unsafe { $call }
    };
}

/// A mask: all bits of a lane set or none. Its own name and raw vector, then the intrinsics it uses.
macro_rules! mask {
    ($mask:ident, $raw:ty, $and:ident $or:ident $xor:ident $from_bits:ident $movemask:ident) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $mask($raw);

        operator!($mask, BitAnd, bitand, $and);
        operator!($mask, BitOr, bitor, $or);
        impl Not for $mask {
            type Output = Self;
            #[inline(always)]
            fn not(self) -> Self {
                Self(intrinsics!($xor(self.0, $from_bits(_mm256_set1_epi32(-1)))))
            }
        }
        impl Mask for $mask {
            #[inline(always)]
            fn any(self) -> bool {
                intrinsics!($movemask(self.0)) != 0
            }
        }
    };
}

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

mask!(Mask32x8, __m256, _mm256_and_ps _mm256_or_ps _mm256_xor_ps _mm256_castsi256_ps _mm256_movemask_ps);
mask!(Mask64x4, __m256d, _mm256_and_pd _mm256_or_pd _mm256_xor_pd _mm256_castsi256_pd _mm256_movemask_pd);

/// A floating lane type: its own name, its raw vector, element, bits and mask, then the intrinsics it uses.
macro_rules! float {
    (
        $lanes:ident, $raw:ty, $elem:ty, $double:literal, $bits:ident, $mask:ident, $magic:literal,
        $add:ident $sub:ident $mul:ident $div:ident $and:ident $andnot:ident $or:ident $xor:ident
        $set1:ident $compare:ident $blend:ident $fma:ident $min:ident $max:ident $sqrt:ident $round:ident
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
                Self(intrinsics!($blend(if_false.0, if_true.0, mask.0)))
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
                let mask = $bits::first(count);
                // SAFETY: the caller vouches for `count` elements; masked lanes are not touched.
                Self(unsafe { $load_masked(source, mask) })
            }
            #[inline(always)]
            unsafe fn store_first(self, target: *mut $elem, count: usize) {
                let mask = $bits::first(count);
                // SAFETY: the caller vouches for `count` elements; masked lanes are not touched.
                unsafe { $store_masked(target, mask, self.0) }
            }
        }
    };
}

float!(
    F32x8, __m256, f32, false, I32x8, Mask32x8, 12_582_912.0,
    _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_div_ps
    _mm256_and_ps _mm256_andnot_ps _mm256_or_ps _mm256_xor_ps
    _mm256_set1_ps _mm256_cmp_ps _mm256_blendv_ps _mm256_fmadd_ps _mm256_min_ps _mm256_max_ps _mm256_sqrt_ps
    _mm256_round_ps _mm256_castps_si256 _mm256_castsi256_ps
    _mm256_loadu_ps _mm256_storeu_ps _mm256_maskload_ps _mm256_maskstore_ps
);
float!(
    F64x4, __m256d, f64, true, I64x4, Mask64x4, 6_755_399_441_055_744.0,
    _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_div_pd
    _mm256_and_pd _mm256_andnot_pd _mm256_or_pd _mm256_xor_pd
    _mm256_set1_pd _mm256_cmp_pd _mm256_blendv_pd _mm256_fmadd_pd _mm256_min_pd _mm256_max_pd _mm256_sqrt_pd
    _mm256_round_pd _mm256_castpd_si256 _mm256_castsi256_pd
    _mm256_loadu_pd _mm256_storeu_pd _mm256_maskload_pd _mm256_maskstore_pd
);

/// The bits of a floating lane type: its own name, element and mask, then the intrinsics it uses.
macro_rules! bits {
    (
        $bits:ident, $elem:ty, $mask:ident,
        $add:ident $sub:ident $set1:ident $sll:ident $sra:ident $srl:ident $sllv:ident $srlv:ident
        $cmpeq:ident $cmpgt:ident $mask_from_bits:ident $mask_to_bits:ident $mul_low:ident $mul_high:ident
        $first:expr
    ) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $bits(__m256i);

        operator!($bits, Add, add, $add);
        operator!($bits, Sub, sub, $sub);
        operator!($bits, BitAnd, bitand, _mm256_and_si256);
        operator!($bits, BitOr, bitor, _mm256_or_si256);
        operator!($bits, BitXor, bitxor, _mm256_xor_si256);

        impl $bits {
            /// All bits set in the first `count` lanes, none in the others.
            #[inline(always)]
            fn first(count: usize) -> __m256i {
                intrinsics!($cmpgt($set1(count as $elem), $first))
            }
        }

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
                Self(intrinsics!($mul_high(self.0, other.0)))
            }
            #[inline(always)]
            fn eq(self, other: Self) -> $mask {
                $mask(intrinsics!($mask_from_bits($cmpeq(self.0, other.0))))
            }
            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                $mask(intrinsics!($mask_from_bits($cmpgt(other.0, self.0))))
            }
            #[inline(always)]
            fn select(mask: $mask, if_true: Self, if_false: Self) -> Self {
                Self(intrinsics!(_mm256_blendv_epi8(
                    if_false.0,
                    if_true.0,
                    $mask_to_bits(mask.0)
                )))
            }
        }
    };
}

bits!(
    I32x8, i32, Mask32x8,
    _mm256_add_epi32 _mm256_sub_epi32 _mm256_set1_epi32 _mm256_sll_epi32 _mm256_sra_epi32 _mm256_srl_epi32
    _mm256_sllv_epi32 _mm256_srlv_epi32 _mm256_cmpeq_epi32 _mm256_cmpgt_epi32
    _mm256_castsi256_ps _mm256_castps_si256 _mm256_mullo_epi32 mul_high_u32
    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
);
bits!(
    I64x4, i64, Mask64x4,
    _mm256_add_epi64 _mm256_sub_epi64 _mm256_set1_epi64x _mm256_sll_epi64 shift_right_i64 _mm256_srl_epi64
    _mm256_sllv_epi64 _mm256_srlv_epi64 _mm256_cmpeq_epi64 _mm256_cmpgt_epi64
    _mm256_castsi256_pd _mm256_castpd_si256 mul_low_64 mul_high_u64
    _mm256_setr_epi64x(0, 1, 2, 3)
);

/// Shifts 64-bit lanes right, filling with the sign: where that is set, the complement is shifted.
#[inline(always)]
unsafe fn shift_right_i64(a: __m256i, count: __m128i) -> __m256i {
    intrinsics!({
        let sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), a);
        _mm256_xor_si256(_mm256_srl_epi64(_mm256_xor_si256(a, sign), count), sign)
    })
}

/// The low halves of 64-bit products, by long multiplication with 32-bit digits.
#[inline(always)]
unsafe fn mul_low_64(a: __m256i, b: __m256i) -> __m256i {
    intrinsics!({
        let cross = _mm256_add_epi64(
            _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), b),
            _mm256_mul_epu32(a, _mm256_srli_epi64::<32>(b)),
        );
        _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64::<32>(cross))
    })
}

/// The high halves of 32-bit products, from the full products of the even and of the odd lanes.
#[inline(always)]
unsafe fn mul_high_u32(a: __m256i, b: __m256i) -> __m256i {
    intrinsics!({
        let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(a, b));
        let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
        _mm256_blend_epi32::<0xAA>(even, odd)
    })
}

/// The high halves of 64-bit products, by long multiplication with 32-bit digits.
#[inline(always)]
unsafe fn mul_high_u64(a: __m256i, b: __m256i) -> __m256i {
    intrinsics!({
        let low_digit = _mm256_set1_epi64x(0xFFFF_FFFF);
        let (a_high, b_high) = (_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
        let low = _mm256_mul_epu32(a, b);
        let middle = _mm256_add_epi64(_mm256_mul_epu32(a_high, b), _mm256_srli_epi64::<32>(low));
        let other = _mm256_add_epi64(
            _mm256_mul_epu32(a, b_high),
            _mm256_and_si256(middle, low_digit),
        );
        let high = _mm256_add_epi64(
            _mm256_mul_epu32(a_high, b_high),
            _mm256_srli_epi64::<32>(middle),
        );
        _mm256_add_epi64(high, _mm256_srli_epi64::<32>(other))
    })
}
