//! Copying and adding rows at places that a list of indices names. The caller has checked the indices.

use crate::gemm::Float;
use crate::parallel;
use crate::vectorize::Parts;

/// Elements a parallel task works on at least.
const TASK: usize = 1 << 15;

/// `out[o][i] = x[o][indices[i]]` for rows of `inner` elements, `x` being `[outer, size, inner]`.
///
/// # Panics
/// If a slice has another length than the sizes say, or an index lies outside of `size`.
pub fn select_rows<T: Copy + Send + Sync>(
    x: &[T],
    indices: &[i64],
    [outer, size, inner]: [usize; 3],
    out: &mut [T],
) {
    assert!(x.len() == outer * size * inner && out.len() == outer * indices.len() * inner);
    let rows = outer * indices.len();
    if rows == 0 || inner == 0 {
        return;
    }
    let per_task = (TASK / inner).max(1);
    let out = Parts::new(out);
    parallel::for_ranges(rows, per_task, |range| {
        for row in range {
            let from = row / indices.len() * size + indices[row % indices.len()] as usize;
            // SAFETY: each row of the output belongs to one task.
            let out = unsafe { out.part(row * inner, inner) };
            out.copy_from_slice(&x[from * inner..][..inner]);
        }
    });
}

/// `out[o][indices[i]] += rows[o][i]`, from zeros and in order; `out` is `[outer, size, inner]`.
///
/// # Panics
/// As [`select_rows`].
pub fn add_rows<T: Float>(
    rows: &[T],
    indices: &[i64],
    [outer, size, inner]: [usize; 3],
    out: &mut [T],
) {
    assert!(out.len() == outer * size * inner && rows.len() == outer * indices.len() * inner);
    out.fill(T::ZERO);
    if out.is_empty() || rows.is_empty() {
        return;
    }
    // Tasks take columns, so that each place is added to by one task, in order.
    let width = (TASK / indices.len().max(1)).clamp(16, inner.max(16));
    let columns = inner.div_ceil(width);
    let out = Parts::new(out);
    parallel::run(outer * columns, |task| {
        let (block, column) = (task / columns, task % columns * width);
        let width = width.min(inner - column);
        for (row, &index) in indices.iter().enumerate() {
            let source = &rows[(block * indices.len() + row) * inner + column..][..width];
            let start = (block * size + index as usize) * inner + column;
            assert!((index as usize) < size, "an index outside of the dimension");
            // SAFETY: within the output (asserted); these columns of it belong to this task.
            let target = unsafe { out.part(start, width) };
            for (target, &source) in target.iter_mut().zip(source) {
                *target = *target + source;
            }
        }
    });
}

/// `out[o][indices[i]] = rows[o][i]`, in order: of several rows for one place the last. `out` is `[outer, size, inner]`.
///
/// # Panics
/// As [`select_rows`].
pub fn put_rows<T: Copy + Send + Sync>(
    rows: &[T],
    indices: &[i64],
    [outer, size, inner]: [usize; 3],
    out: &mut [T],
) {
    assert!(out.len() == outer * size * inner && rows.len() == outer * indices.len() * inner);
    if out.is_empty() || rows.is_empty() {
        return;
    }
    let blocks = out
        .chunks_mut(size * inner)
        .zip(rows.chunks(indices.len() * inner));
    for (out, rows) in blocks {
        if inner == 1 {
            for (&index, &row) in indices.iter().zip(rows) {
                out[index as usize] = row;
            }
            continue;
        }
        for (&index, row) in indices.iter().zip(rows.chunks(inner)) {
            out[index as usize * inner..][..inner].copy_from_slice(row);
        }
    }
}

/// Calls `visit(at, place)` for each element of an index tensor of `shape`, in order: its flat place `at`, and the place that
/// it names in a tensor of these strides, where the coordinate of `dim` is replaced by the index.
pub fn for_each_place(
    shape: &[usize],
    strides: &[usize],
    dim: usize,
    indices: &[i64],
    mut visit: impl FnMut(usize, usize),
) {
    let mut coordinates = vec![0; shape.len()];
    let mut base = 0;
    for (at, &index) in indices.iter().enumerate() {
        visit(at, base + index as usize * strides[dim]);
        for other in (0..shape.len()).rev() {
            let stride = if other == dim { 0 } else { strides[other] };
            coordinates[other] += 1;
            base += stride;
            if coordinates[other] < shape[other] {
                break;
            }
            base -= stride * shape[other];
            coordinates[other] = 0;
        }
    }
}

/// The rows of the middle dimension of `x`, `[outer, size, inner]`, in reverse order.
///
/// # Panics
/// If a slice has another length than the sizes say.
pub fn flip_rows<T: Copy + Send + Sync>(x: &[T], [outer, size, inner]: [usize; 3], out: &mut [T]) {
    assert!(x.len() == outer * size * inner && out.len() == x.len());
    if x.is_empty() {
        return;
    }
    let block = size * inner;
    let out = Parts::new(out);
    if inner == 1 {
        // Long rows are shared among tasks, short ones come several to a task.
        let width = size.min(TASK);
        let (pieces, rows) = (size.div_ceil(width), (TASK / size).max(1));
        let groups = outer.div_ceil(rows);
        parallel::run(groups * pieces, |task| {
            let (group, start) = (task / pieces, task % pieces * width);
            let width = width.min(size - start);
            for row in group * rows..((group + 1) * rows).min(outer) {
                let from = &x[row * block + size - start - width..][..width];
                // SAFETY: each piece of a row of the output belongs to one task.
                let out = unsafe { out.part(row * block + start, width) };
                for (out, &x) in out.iter_mut().zip(from.iter().rev()) {
                    *out = x;
                }
            }
        });
        return;
    }
    parallel::for_ranges(outer * size, (TASK / inner).max(1), |range| {
        for row in range {
            let from = row / size * size + (size - 1 - row % size);
            // SAFETY: each row of the output belongs to one task.
            let out = unsafe { out.part(row * inner, inner) };
            out.copy_from_slice(&x[from * inner..][..inner]);
        }
    });
}

/// Keeps the larger of both; NaN if one is.
#[inline(always)]
pub fn keep_larger<T: Copy + PartialOrd>(kept: &mut T, other: T) {
    if other > *kept || is_nan(other) {
        *kept = other;
    }
}

/// Keeps the smaller of both; NaN if one is.
#[inline(always)]
pub fn keep_smaller<T: Copy + PartialOrd>(kept: &mut T, other: T) {
    if other < *kept || is_nan(other) {
        *kept = other;
    }
}

#[inline(always)]
fn is_nan<T: PartialOrd>(x: T) -> bool {
    x.partial_cmp(&x).is_none()
}

/// A number with a product; that of whole numbers wraps around.
pub trait Product: Copy {
    /// `self * other`.
    #[must_use]
    fn times(self, other: Self) -> Self;
}

macro_rules! products {
    ($($T:ty, $a:ident, $b:ident => $product:expr);* $(;)?) => {
        $(impl Product for $T {
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $product
            }
        })*
    };
}

products! {
    f32, a, b => a * b;
    f64, a, b => a * b;
    i64, a, b => a.wrapping_mul(b);
    i32, a, b => a.wrapping_mul(b);
    i16, a, b => a.wrapping_mul(b);
    i8, a, b => a.wrapping_mul(b);
    u8, a, b => a.wrapping_mul(b);
}

/// Multiplies by another number.
#[inline(always)]
pub fn multiply<T: Product>(product: &mut T, other: T) {
    *product = product.times(other);
}
