//! Running sums and products of rows.
//!
//! Note [Order of a scan]
//!
//! A row is cut into chunks of [`CHUNK`], a chunk into segments of [`SEGMENT`]. Elements are combined from
//! the first to the last of their segment, segments from the first to the last of their chunk, chunks from the first to the
//! last; an element of the result combines these three. So results depend on the shape alone, and a device can do segments and
//! chunks side by side (`scan.cu`).

use crate::parallel;
use crate::vectorize::Parts;

/// Elements that are combined one after the other.
pub const SEGMENT: usize = 8;
/// Elements of a chunk.
pub const CHUNK: usize = 1024;
/// Numbers a parallel task works on at least.
const TASK: usize = 1 << 15;

/// A number that has sums and products.
pub trait Scannable: Copy + Send + Sync + 'static {
    /// The number that changes no sum, or no product.
    fn identity(product: bool) -> Self;
    /// Sum or product; whole numbers wrap around.
    fn combine(self, next: Self, product: bool) -> Self;
}

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl Scannable for $type {
            #[inline(always)]
            fn identity(product: bool) -> $type {
                if product { 1.0 } else { 0.0 }
            }

            #[inline(always)]
            fn combine(self, next: $type, product: bool) -> $type {
                if product { self * next } else { self + next }
            }
        })*
    };
}

floats!(f32, f64);

impl Scannable for i64 {
    #[inline(always)]
    fn identity(product: bool) -> i64 {
        i64::from(product)
    }

    #[inline(always)]
    fn combine(self, next: i64, product: bool) -> i64 {
        if product {
            self.wrapping_mul(next)
        } else {
            self.wrapping_add(next)
        }
    }
}

/// Running sums, or products, of each row of `cols`: from its end if `reverse`.
///
/// # Panics
/// If the slices' lengths don't fit.
pub fn scan_rows<T: Scannable>(x: &[T], cols: usize, product: bool, reverse: bool, out: &mut [T]) {
    assert!(x.len() == out.len());
    if out.is_empty() {
        return;
    }
    let rows = x.len() / cols;
    let per_task = (TASK / cols).max(1);
    let out = Parts::new(out);
    parallel::for_ranges(rows, per_task, |range| {
        for row in range {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * cols, cols) };
            let x = &x[row * cols..][..cols];
            match (product, reverse) {
                (false, false) => scan(x.iter().copied(), out.iter_mut(), false),
                (false, true) => scan(x.iter().rev().copied(), out.iter_mut().rev(), false),
                (true, false) => scan(x.iter().copied(), out.iter_mut(), true),
                (true, true) => scan(x.iter().rev().copied(), out.iter_mut().rev(), true),
            }
        }
    });
}

#[inline(always)]
fn scan<'a, T: Scannable>(
    x: impl Iterator<Item = T>,
    out: impl Iterator<Item = &'a mut T>,
    product: bool,
) {
    let none = T::identity(product);
    // Of the chunks before, of the segments of this chunk before, of the elements of this segment.
    let (mut chunks, mut segments, mut elements) = (none, none, none);
    let (mut in_segment, mut in_chunk) = (0, 0);
    for (x, out) in x.zip(out) {
        if in_segment == SEGMENT {
            segments = segments.combine(elements, product);
            (elements, in_segment) = (none, 0);
            if in_chunk == CHUNK {
                chunks = chunks.combine(segments, product);
                (segments, in_chunk) = (none, 0);
            }
        }
        elements = elements.combine(x, product);
        *out = chunks.combine(segments.combine(elements, product), product);
        in_segment += 1;
        in_chunk += 1;
    }
}

/// The gradient of running products of rows of `cols` numbers, from that of the result: what is before an element times the sum
/// of what follows, `s[i] = grad[i] + x[i + 1] * s[i + 1]`. Nothing is divided by, so zeros are numbers as others are.
///
/// # Panics
/// If the slices' lengths don't fit.
pub fn product_gradient<T: Scannable>(x: &[T], grad: &[T], cols: usize, out: &mut [T]) {
    assert!(x.len() == out.len() && grad.len() == out.len());
    if out.is_empty() {
        return;
    }
    let rows = x.len() / cols;
    let per_task = (TASK / cols).max(1);
    let out = Parts::new(out);
    parallel::for_ranges(rows, per_task, |range| {
        for row in range {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * cols, cols) };
            let (x, grad) = (&x[row * cols..][..cols], &grad[row * cols..][..cols]);
            let mut before = T::identity(true);
            for (out, &x) in out.iter_mut().zip(x) {
                *out = before;
                before = before.combine(x, true);
            }
            let (mut sum, mut next) = (T::identity(false), T::identity(false));
            for ((out, &x), &grad) in out.iter_mut().zip(x).zip(grad).rev() {
                sum = grad.combine(next.combine(sum, true), false);
                *out = out.combine(sum, true);
                next = x;
            }
        }
    });
}
