//! SIMD lane types: [`Arith`] on vectors, one file per instruction set.
//!
//! # Note [Lanes inside target features]
//! A lane type's methods call intrinsics of its instruction set and are all `#[inline(always)]`. They may run
//! only inside a function marked `#[target_feature(enable = ...)]` with that set, into which they inline; what
//! calls such a function has asked [`crate::isa`] first. Whatever stands between (a formula, a function of
//! `core::math`) must be `#[inline(always)]` too: otherwise it is compiled without the instruction set, and
//! while still right, it is many times slower.

use fireclay_core::arith::Arith;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

/// Lanes that can be read from memory and written to it.
pub(crate) trait SimdLanes: Arith {
    /// How many lanes there are.
    const LANES: usize;
    /// A lane's element in memory.
    type Elem: Copy;

    /// Reads all lanes; `source` needs only the alignment of an element.
    ///
    /// # Safety
    /// `source` is valid for reading `LANES` elements. See Note [Lanes inside target features].
    unsafe fn load(source: *const Self::Elem) -> Self;
    /// Writes all lanes; `target` needs only the alignment of an element.
    ///
    /// # Safety
    /// `target` is valid for writing `LANES` elements. See Note [Lanes inside target features].
    unsafe fn store(self, target: *mut Self::Elem);
    /// Reads the first `count` lanes; the others are zero.
    ///
    /// # Safety
    /// `source` is valid for reading `count` elements, and `count <= LANES`. See Note [Lanes inside target features].
    unsafe fn load_first(source: *const Self::Elem, count: usize) -> Self;
    /// Writes the first `count` lanes.
    ///
    /// # Safety
    /// `target` is valid for writing `count` elements, and `count <= LANES`. See Note [Lanes inside target features].
    unsafe fn store_first(self, target: *mut Self::Elem, count: usize);
}

macro_rules! scalar {
    ($float:ty) => {
        impl SimdLanes for $float {
            const LANES: usize = 1;
            type Elem = $float;

            #[inline(always)]
            unsafe fn load(source: *const $float) -> Self {
                // SAFETY: the caller vouches for one element.
                unsafe { *source }
            }
            #[inline(always)]
            unsafe fn store(self, target: *mut $float) {
                // SAFETY: the caller vouches for one element.
                unsafe { *target = self }
            }
            #[inline(always)]
            unsafe fn load_first(source: *const $float, count: usize) -> Self {
                if count == 0 {
                    return 0.0;
                }
                // SAFETY: count is 1, and the caller vouches for that many elements.
                unsafe { *source }
            }
            #[inline(always)]
            unsafe fn store_first(self, target: *mut $float, count: usize) {
                if count != 0 {
                    // SAFETY: count is 1, and the caller vouches for that many elements.
                    unsafe { *target = self }
                }
            }
        }
    };
}

scalar!(f32);
scalar!(f64);
