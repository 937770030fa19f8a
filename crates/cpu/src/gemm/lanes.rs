//! The SIMD vectors of the matrix kernels: AVX-512, AVX2 with FMA, and plain arrays for everything else.
//!
//! Knows registers only: the loops that use them are in `tile`, `vector` and `transpose`.

use super::Float;

/// A vector register of `COUNT` numbers.
///
/// Every method must be inlined into a function compiled for the vector's instruction set, and may be called
/// only where the machine has it: that is what makes them `unsafe`, beside the pointers they read and write.
pub(super) trait Lanes: Copy {
    /// What a lane holds.
    type Elem: Float;
    /// Selects the first so many lanes.
    type Mask: Copy;
    /// Lanes per vector.
    const COUNT: usize;

    unsafe fn splat(value: Self::Elem) -> Self;
    unsafe fn first(count: usize) -> Self::Mask;
    unsafe fn load(from: *const Self::Elem) -> Self;
    /// Reads the lanes of `mask` only; the others are zero.
    unsafe fn load_first(from: *const Self::Elem, mask: Self::Mask) -> Self;
    unsafe fn store(self, to: *mut Self::Elem);
    /// Writes the lanes of `mask` only.
    unsafe fn store_first(self, to: *mut Self::Elem, mask: Self::Mask);
    /// Writes the lanes whose bit is set in `keep`, one after the other.
    unsafe fn store_kept(self, to: *mut Self::Elem, keep: u32);
    /// Asks for the line at `at` to be fetched; never faults.
    unsafe fn prefetch(at: *const Self::Elem);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + addend`; rounded once where the machine has such an instruction.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// The sum of all lanes, halves first.
    unsafe fn sum(self) -> Self::Elem;
}

/// Plain arrays, which the compiler turns into whatever vectors the target always has.
#[derive(Clone, Copy)]
pub(super) struct Plain<T, const N: usize>([T; N]);

impl<T: Float, const N: usize> Lanes for Plain<T, N> {
    type Elem = T;
    type Mask = usize;
    const COUNT: usize = N;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Plain([value; N])
    }
    #[inline(always)]
    unsafe fn first(count: usize) -> usize {
        count
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller vouches for N numbers at `from`.
        Plain(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_first(from: *const T, mask: usize) -> Self {
        if mask == N {
            // SAFETY: the caller vouches for `mask` = N numbers.
            return unsafe { Self::load(from) };
        }
        let mut lanes = [T::ZERO; N];
        for (index, lane) in lanes.iter_mut().enumerate().take(mask) {
            // SAFETY: index < mask, and the caller vouches for `mask` numbers.
            *lane = unsafe { *from.add(index) };
        }
        Plain(lanes)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller vouches for room for N numbers at `to`.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut T, mask: usize) {
        for index in 0..mask.min(N) {
            // SAFETY: index < mask, and the caller vouches for room for `mask` numbers.
            unsafe { *to.add(index) = self.0[index] };
        }
    }
    #[inline(always)]
    unsafe fn store_kept(self, to: *mut T, keep: u32) {
        // SAFETY: the caller vouches for room for as many numbers as `keep` has bits.
        unsafe { store_kept(&self.0, to, keep) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let mut lanes = self.0;
        for (lane, other) in lanes.iter_mut().zip(other.0) {
            *lane = *lane + other;
        }
        Plain(lanes)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        let mut lanes = self.0;
        for (lane, other) in lanes.iter_mut().zip(other.0) {
            *lane = *lane * other;
        }
        Plain(lanes)
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        let mut lanes = addend.0;
        for ((lane, left), right) in lanes.iter_mut().zip(self.0).zip(factor.0) {
            *lane = *lane + left * right;
        }
        Plain(lanes)
    }
    #[inline(always)]
    unsafe fn sum(self) -> T {
        let mut lanes = self.0;
        let mut half = N / 2;
        while half > 0 {
            for index in 0..half {
                lanes[index] = lanes[index] + lanes[index + half];
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Writes the numbers whose bit is set in `keep`, one after the other.
///
/// # Safety
/// There is room at `to` for as many numbers as `keep` has bits, and `keep` has none beyond `lanes`.
#[inline(always)]
unsafe fn store_kept<T: Float>(lanes: &[T], to: *mut T, keep: u32) {
    let mut written = 0;
    for (index, &lane) in lanes.iter().enumerate() {
        if keep & (1 << index) != 0 {
            // SAFETY: written is below the number of bits in `keep`.
            unsafe { *to.add(written) = lane };
            written += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2F32, Avx2F64, Avx512F32, Avx512F64};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, store_kept};
    use std::arch::x86_64::*;

    /// 16 numbers in a zmm register.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512F32(pub(in super::super) __m512);
    /// 8 doubles in a zmm register.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512F64(__m512d);
    /// 8 numbers in a ymm register.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2F32(__m256);
    /// 4 doubles in a ymm register.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2F64(__m256d);

    // SAFETY of every block below: the trait's contract (the machine has the instructions; the caller vouches
    // for as many numbers at the pointer as the mask or the vector has lanes).
    macro_rules! avx512 {
        ($name:ident, $elem:ty, $count:literal, $mask:ty, $splat:ident, $load:ident, $load_first:ident, $store:ident,
         $store_first:ident, $compress:ident, $add:ident, $mul:ident, $fma:ident, $sum:ident) => {
            impl Lanes for $name {
                type Elem = $elem;
                type Mask = $mask;
                const COUNT: usize = $count;

                #[inline(always)]
                unsafe fn splat(value: $elem) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $splat(value) })
                }
                #[inline(always)]
                unsafe fn first(count: usize) -> $mask {
                    ((1u32 << count) - 1) as $mask
                }
                #[inline(always)]
                unsafe fn load(from: *const $elem) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $load(from) })
                }
                #[inline(always)]
                unsafe fn load_first(from: *const $elem, mask: $mask) -> Self {
                    // SAFETY: see above; lanes out of the mask are not read.
                    $name(unsafe { $load_first(mask, from) })
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $elem) {
                    // SAFETY: see above.
                    unsafe { $store(to, self.0) }
                }
                #[inline(always)]
                unsafe fn store_first(self, to: *mut $elem, mask: $mask) {
                    // SAFETY: see above; lanes out of the mask are not written.
                    unsafe { $store_first(to, mask, self.0) }
                }
                #[inline(always)]
                unsafe fn store_kept(self, to: *mut $elem, keep: u32) {
                    // SAFETY: see above. Packing within the register and a masked store beat the packing store.
                    unsafe {
                        let packed = $compress(keep as $mask, self.0);
                        $store_first(to, Self::first(keep.count_ones() as usize), packed)
                    }
                }
                #[inline(always)]
                unsafe fn prefetch(at: *const $elem) {
                    // SAFETY: a prefetch may be given any address.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $mul(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $fma(self.0, factor.0, addend.0) })
                }
                #[inline(always)]
                unsafe fn sum(self) -> $elem {
                    // SAFETY: see above.
                    unsafe { $sum(self.0) }
                }
            }
        };
    }
    avx512!(
        Avx512F32,
        f32,
        16,
        __mmask16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_maskz_loadu_ps,
        _mm512_storeu_ps,
        _mm512_mask_storeu_ps,
        _mm512_maskz_compress_ps,
        _mm512_add_ps,
        _mm512_mul_ps,
        _mm512_fmadd_ps,
        _mm512_reduce_add_ps
    );
    avx512!(
        Avx512F64,
        f64,
        8,
        __mmask8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_maskz_loadu_pd,
        _mm512_storeu_pd,
        _mm512_mask_storeu_pd,
        _mm512_maskz_compress_pd,
        _mm512_add_pd,
        _mm512_mul_pd,
        _mm512_fmadd_pd,
        _mm512_reduce_add_pd
    );

    macro_rules! avx2 {
        ($name:ident, $elem:ty, $count:literal, $splat:ident, $load:ident, $load_first:ident, $store:ident,
         $store_first:ident, $add:ident, $mul:ident, $fma:ident, $first:expr) => {
            impl Lanes for $name {
                type Elem = $elem;
                type Mask = __m256i;
                const COUNT: usize = $count;

                #[inline(always)]
                unsafe fn splat(value: $elem) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $splat(value) })
                }
                #[inline(always)]
                unsafe fn first(count: usize) -> __m256i {
                    // SAFETY: see above.
                    unsafe { $first(count) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $elem) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $load(from) })
                }
                #[inline(always)]
                unsafe fn load_first(from: *const $elem, mask: __m256i) -> Self {
                    // SAFETY: see above; lanes out of the mask are not read.
                    $name(unsafe { $load_first(from, mask) })
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $elem) {
                    // SAFETY: see above.
                    unsafe { $store(to, self.0) }
                }
                #[inline(always)]
                unsafe fn store_first(self, to: *mut $elem, mask: __m256i) {
                    // SAFETY: see above; lanes out of the mask are not written.
                    unsafe { $store_first(to, mask, self.0) }
                }
                #[inline(always)]
                unsafe fn store_kept(self, to: *mut $elem, keep: u32) {
                    let mut lanes = [0.0; $count];
                    // SAFETY: see above; `lanes` has room for a vector.
                    unsafe {
                        $store(lanes.as_mut_ptr(), self.0);
                        store_kept(&lanes, to, keep)
                    }
                }
                #[inline(always)]
                unsafe fn prefetch(at: *const $elem) {
                    // SAFETY: a prefetch may be given any address.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $mul(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
                    // SAFETY: see above.
                    $name(unsafe { $fma(self.0, factor.0, addend.0) })
                }
                #[inline(always)]
                unsafe fn sum(self) -> $elem {
                    let mut lanes = [0.0; $count];
                    // SAFETY: see above; `lanes` has room for a vector.
                    unsafe { $store(lanes.as_mut_ptr(), self.0) };
                    let mut half = $count / 2;
                    while half > 0 {
                        for index in 0..half {
                            lanes[index] += lanes[index + half];
                        }
                        half /= 2;
                    }
                    lanes[0]
                }
            }
        };
    }
    avx2!(
        Avx2F32,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_maskload_ps,
        _mm256_storeu_ps,
        _mm256_maskstore_ps,
        _mm256_add_ps,
        _mm256_mul_ps,
        _mm256_fmadd_ps,
        |count: usize| _mm256_cmpgt_epi32(
            _mm256_set1_epi32(count as i32),
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
        )
    );
    avx2!(
        Avx2F64,
        f64,
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_maskload_pd,
        _mm256_storeu_pd,
        _mm256_maskstore_pd,
        _mm256_add_pd,
        _mm256_mul_pd,
        _mm256_fmadd_pd,
        |count: usize| _mm256_cmpgt_epi64(
            _mm256_set1_epi64x(count as i64),
            _mm256_setr_epi64x(0, 1, 2, 3)
        )
    );
}
