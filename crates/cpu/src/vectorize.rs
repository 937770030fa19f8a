//! Compiles a piece of work for every instruction set, and runs it on the one in use.

use crate::arch::SimdLanes;
use crate::isa::{Isa, isa};

/// Work on slices, written for vectors.
///
/// Its code uses the lane types it is given, or plain loops over arrays of a fixed length, of which the compiler makes
/// vector code. Either way it computes the same bits on every instruction set.
pub(crate) trait Vectorize {
    /// What it gives.
    type Output;

    /// Does the work. Must be `#[inline(always)]`, as all that it calls: see `Note [Lanes inside target features]`.
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) -> Self::Output;
}

/// Does `work` on the instruction set in use.
#[inline]
pub(crate) fn vectorized<W: Vectorize>(work: W) -> W::Output {
    match isa() {
        // SAFETY: `isa` returns only what this CPU has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { on_avx512(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { on_avx2(work) },
        _ => work.run::<f32, f64>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")]
unsafe fn on_avx512<W: Vectorize>(work: W) -> W::Output {
    work.run::<crate::arch::avx512::F32x16, crate::arch::avx512::F64x8>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn on_avx2<W: Vectorize>(work: W) -> W::Output {
    work.run::<crate::arch::avx2::F32x8, crate::arch::avx2::F64x4>()
}

/// Does `work`, plain loops in a closure marked `#[inline(always)]`, compiled for the instruction set in use.
#[inline]
pub(crate) fn vectorized_loops<R>(work: impl FnOnce() -> R) -> R {
    struct Loops<W>(W);

    impl<R, W: FnOnce() -> R> Vectorize for Loops<W> {
        type Output = R;

        #[inline(always)]
        fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) -> R {
            (self.0)()
        }
    }

    vectorized(Loops(work))
}

/// A slice that several tasks write, each its own part.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: `part`'s contract lets no two threads have the same element.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Parts {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: std::marker::PhantomData,
        }
    }

    /// Elements `start` to `start + len - 1`. Panics if there aren't as many.
    ///
    /// # Safety
    /// No two parts that are in use at the same time overlap.
    #[inline]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: by the assertion the range lies in the slice, which is borrowed for 'a; the caller vouches for
        // there being no other reference to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
