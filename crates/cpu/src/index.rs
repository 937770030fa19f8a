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
    let out = Parts::new(out);
    if inner == 1 {
        // Single elements, several blocks or part of one at a time.
        let width = indices.len().min(TASK);
        let pieces = indices.len().div_ceil(width);
        parallel::for_ranges(outer * pieces, (TASK / width).max(1), |range| {
            for piece in range {
                let (block, start) = (piece / pieces, piece % pieces * width);
                let width = width.min(indices.len() - start);
                let x = &x[block * size..][..size];
                // SAFETY: each piece of the output belongs to one task.
                let out = unsafe { out.part(block * indices.len() + start, width) };
                for (out, &index) in out.iter_mut().zip(&indices[start..]) {
                    *out = x[index as usize];
                }
            }
        });
        return;
    }
    parallel::for_ranges(rows, (TASK / inner).max(1), |range| {
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
    if inner == 1 {
        let blocks = out.chunks_mut(size).zip(rows.chunks(indices.len()));
        for (out, rows) in blocks {
            for (&index, &value) in indices.iter().zip(rows) {
                let place = &mut out[index as usize];
                *place = *place + value;
            }
        }
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

/// As [`add_rows`], of whole numbers, which wrap around.
///
/// # Panics
/// As [`select_rows`].
pub fn add_whole_rows(
    rows: &[i64],
    indices: &[i64],
    [outer, size, inner]: [usize; 3],
    out: &mut [i64],
) {
    assert!(out.len() == outer * size * inner && rows.len() == outer * indices.len() * inner);
    out.fill(0);
    if out.is_empty() || rows.is_empty() {
        return;
    }
    let blocks = out
        .chunks_mut(size * inner)
        .zip(rows.chunks(indices.len() * inner));
    for (out, rows) in blocks {
        if inner == 1 {
            for (&index, &value) in indices.iter().zip(rows) {
                let place = &mut out[index as usize];
                *place = place.wrapping_add(value);
            }
            continue;
        }
        for (&index, row) in indices.iter().zip(rows.chunks(inner)) {
            let out = &mut out[index as usize * inner..][..inner];
            for (out, &value) in out.iter_mut().zip(row) {
                *out = out.wrapping_add(value);
            }
        }
    }
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

/// The place of the first index outside of `least..size`, if there is one.
pub fn first_outside(indices: &[i64], least: i64, size: usize) -> Option<usize> {
    let width = (size as i64).wrapping_sub(least) as u64;
    let is_outside = |index: i64| index.wrapping_sub(least) as u64 >= width;
    // A block is looked through without a branch, so that the loop becomes vector code.
    let mut blocks = indices.chunks(1024).enumerate();
    let (number, block) = blocks.find(|(_, block)| {
        block
            .iter()
            .fold(false, |found, &index| found | is_outside(index))
    })?;
    let place = block.iter().position(|&index| is_outside(index))?;
    Some(number * 1024 + place)
}

/// Rows of indices: those of an index tensor's last dimension.
#[derive(Clone, Copy)]
pub struct IndexRows<'a> {
    /// The index tensor's shape, of at least one dimension.
    pub shape: &'a [usize],
    /// The strides of the tensor that is looked at.
    pub strides: &'a [usize],
    /// The dimension that the indices are of.
    pub dim: usize,
}

impl IndexRows<'_> {
    fn columns(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// The place of the first element of a row, but for what its index adds.
    fn base(&self, row: usize) -> usize {
        let (mut row, mut base) = (row, 0);
        for dim in (0..self.shape.len() - 1).rev() {
            if dim != self.dim {
                base += row % self.shape[dim] * self.strides[dim];
            }
            row /= self.shape[dim];
        }
        base
    }

    /// What a step along the last dimension, and what an index, adds to a place.
    fn steps(&self) -> [usize; 2] {
        let last = self.shape.len() - 1;
        let along = if self.dim == last {
            0
        } else {
            self.strides[last]
        };
        [along, self.strides[self.dim]]
    }
}

/// The elements of `x` where the indices look.
///
/// # Panics
/// If the slices are shorter than the shapes say, or an index looks beyond `x`.
pub fn gather<T: Copy + Send + Sync>(x: &[T], rows: IndexRows<'_>, indices: &[i64], out: &mut [T]) {
    assert_eq!(indices.len(), out.len());
    if indices.is_empty() {
        return;
    }
    let (columns, [along, step]) = (rows.columns(), rows.steps());
    let out = Parts::new(out);
    parallel::for_ranges(indices.len() / columns, (TASK / columns).max(1), |range| {
        for row in range {
            let x = &x[rows.base(row)..];
            // SAFETY: each row of the output belongs to one task.
            let out = unsafe { out.part(row * columns, columns) };
            let indices = &indices[row * columns..][..columns];
            if along == 0 && step == 1 {
                for (out, &index) in out.iter_mut().zip(indices) {
                    *out = x[index as usize];
                }
                continue;
            }
            for (column, (out, &index)) in out.iter_mut().zip(indices).enumerate() {
                *out = x[column * along + index as usize * step];
            }
        }
    });
}

/// Combines each element of `source` with the element of `out` where its index looks, which is below `size`, in order.
///
/// # Panics
/// If the slices are shorter than the shapes say, or an index looks beyond `out`.
pub fn scatter<T: Copy + Send + Sync>(
    source: &[T],
    rows: IndexRows<'_>,
    size: usize,
    indices: &[i64],
    out: &mut [T],
    combine: impl Fn(&mut T, T) + Sync,
) {
    assert_eq!(indices.len(), source.len());
    if indices.is_empty() {
        return;
    }
    let (columns, [along, step]) = (rows.columns(), rows.steps());
    let row_of = |row: usize| {
        let range = row * columns..(row + 1) * columns;
        source[range.clone()].iter().zip(&indices[range])
    };
    if along > 0 || step > 1 {
        for row in 0..indices.len() / columns {
            let out = &mut out[rows.base(row)..];
            for (column, (&source, &index)) in row_of(row).enumerate() {
                combine(&mut out[column * along + index as usize * step], source);
            }
        }
        return;
    }
    // Along the last dimension each row has a row of the output to itself.
    let out = Parts::new(out);
    parallel::for_ranges(indices.len() / columns, (TASK / columns).max(1), |range| {
        for row in range {
            // SAFETY: rows of indices differ in another dimension than that of the indices, and so do their rows of the output.
            let out = unsafe { out.part(rows.base(row), size) };
            for (&source, &index) in row_of(row) {
                combine(&mut out[index as usize], source);
            }
        }
    });
}

/// A copy made by several threads.
///
/// # Panics
/// If the lengths differ.
pub fn copy<T: Copy + Send + Sync>(x: &[T], out: &mut [T]) {
    assert_eq!(x.len(), out.len());
    let out = Parts::new(out);
    parallel::for_ranges(x.len(), TASK, |range| {
        // SAFETY: each range of the output belongs to one task.
        let out = unsafe { out.part(range.start, range.len()) };
        out.copy_from_slice(&x[range]);
    });
}

/// Places in the dimensions so far from indices of one more of `size`, which lie within it or count from its end, and from the places in
/// those before, if any.
///
/// # Panics
/// If the lengths differ.
pub fn places(before: Option<&[i64]>, indices: &[i64], size: usize, out: &mut [i64]) {
    assert!(indices.len() == out.len() && before.is_none_or(|before| before.len() == out.len()));
    let size = size as i64;
    let out = Parts::new(out);
    parallel::for_ranges(indices.len(), TASK, |range| {
        // SAFETY: each range of the output belongs to one task.
        let out = unsafe { out.part(range.start, range.len()) };
        let wrapped = |index: i64| if index < 0 { index + size } else { index };
        match before {
            None => {
                for (out, &index) in out.iter_mut().zip(&indices[range]) {
                    *out = wrapped(index);
                }
            }
            Some(before) => {
                let both = before[range.clone()].iter().zip(&indices[range]);
                for (out, (&before, &index)) in out.iter_mut().zip(both) {
                    *out = before * size + wrapped(index);
                }
            }
        }
    });
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

/// Matrices of `rows` and `columns` with zeros above the diagonal that begins `diagonal` columns to the right, or below it with it if
/// `upper`.
///
/// # Panics
/// If the lengths differ.
pub fn triangle<T: Copy + Default + Send + Sync>(
    x: &[T],
    [rows, columns]: [usize; 2],
    diagonal: isize,
    upper: bool,
    out: &mut [T],
) {
    assert_eq!(x.len(), out.len());
    if x.is_empty() {
        return;
    }
    let out = Parts::new(out);
    parallel::for_ranges(x.len() / columns, (TASK / columns).max(1), |range| {
        for row in range {
            let x = &x[row * columns..][..columns];
            // SAFETY: each row of the output belongs to one task.
            let out = unsafe { out.part(row * columns, columns) };
            let behind = (row % rows) as i128 + diagonal as i128 + 1;
            let middle = behind.clamp(0, columns as i128) as usize;
            let (lower, higher) = out.split_at_mut(middle);
            if upper {
                lower.fill(T::default());
                higher.copy_from_slice(&x[middle..]);
            } else {
                lower.copy_from_slice(&x[..middle]);
                higher.fill(T::default());
            }
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

/// `rule` of each place.
pub fn fill_by<T: Send>(out: &mut [T], rule: impl Fn(usize) -> T + Sync) {
    let len = out.len();
    let out = Parts::new(out);
    parallel::for_ranges(len, TASK, |range| {
        // SAFETY: each range of the output belongs to one task.
        let part = unsafe { out.part(range.start, range.len()) };
        for (out, place) in part.iter_mut().zip(range) {
            *out = rule(place);
        }
    });
}

/// The coordinates, in a tensor of this shape, of what is true (not 0) in a mask, in order: a row for each. Whether there were as
/// many as the output has rows for.
pub fn true_places(mask: &[u8], shape: &[usize], out: &mut [i64]) -> bool {
    let Some((&columns, outer)) = shape.split_last() else {
        return out.is_empty();
    };
    if outer.is_empty() {
        // Without a branch on what can't be foretold.
        let mut count = 0;
        for (place, &is_true) in mask.iter().enumerate() {
            if count == out.len() {
                return mask[place..].iter().all(|&is_true| is_true == 0);
            }
            out[count] = place as i64;
            count += usize::from(is_true != 0);
        }
        return count == out.len();
    }
    let mut rows = out.chunks_exact_mut(shape.len());
    let mut first = vec![0i64; outer.len()];
    for (row, mask) in mask.chunks(columns.max(1)).enumerate() {
        let mut rest = row;
        for (place, &size) in first.iter_mut().zip(outer).rev() {
            *place = (rest % size) as i64;
            rest /= size;
        }
        for (column, &is_true) in mask.iter().enumerate() {
            if is_true == 0 {
                continue;
            }
            let Some(coordinates) = rows.next() else {
                return false;
            };
            coordinates[..outer.len()].copy_from_slice(&first);
            coordinates[outer.len()] = column as i64;
        }
    }
    rows.next().is_none()
}
