//! Matrix times vector, whose speed is that of reading the matrix once: rows are read as they lie.
//!
//! Two forms, by how the matrix lies: a dot product per row, or a weighted sum of rows.

#![expect(
    clippy::needless_range_loop,
    reason = "plain counts over register arrays are sure to be unrolled"
)]

use super::Float;
use super::lanes::Lanes;

/// `y[i] = beta * y[i] + alpha * sum over k of a[i, k] * x[k]`, where the rows of A lie along k.
pub(crate) struct RowDots<T> {
    /// Start of A.
    pub(crate) a: *const T,
    /// From one row of A to the next.
    pub(crate) a_stride: usize,
    /// The vector, side by side.
    pub(crate) x: *const T,
    /// Length of a row.
    pub(crate) depth: usize,
    /// Rows.
    pub(crate) rows: usize,
    /// The result.
    pub(crate) y: *mut T,
    /// From one number of the result to the next.
    pub(crate) y_stride: usize,
    /// Factor of the product.
    pub(crate) alpha: T,
    /// Factor of the old result, which is not read where this is 0.
    pub(crate) beta: T,
}

/// `y[j] += sum over k of x[k] * b[k, j]`, where the rows of B lie along j.
pub(crate) struct WeightedRows<T> {
    /// Start of B.
    pub(crate) b: *const T,
    /// From one row of B to the next.
    pub(crate) b_stride: usize,
    /// One weight a row, side by side.
    pub(crate) x: *const T,
    /// Rows.
    pub(crate) depth: usize,
    /// Length of a row.
    pub(crate) cols: usize,
    /// The result, side by side.
    pub(crate) y: *mut T,
}

/// Rows of A that are read at once: independent streams keep the memory busy.
const ROWS: usize = 4;
/// Rows of B that are added to the result in one go.
const DEPTH: usize = 8;

/// # Safety
/// The machine has L's instructions; every address that `job` names is valid; no one else uses the result.
#[inline(always)]
pub(super) unsafe fn row_dots<L: Lanes>(job: &RowDots<L::Elem>) {
    let mut row = 0;
    // SAFETY: row + R <= rows in both calls.
    unsafe {
        while row + ROWS <= job.rows {
            some_dots::<L, ROWS>(job, row);
            row += ROWS;
        }
        while row < job.rows {
            some_dots::<L, 1>(job, row);
            row += 1;
        }
    }
}

/// The dots of `R` rows. A row's sum has the same order whatever R is.
///
/// # Safety
/// As for [`row_dots`], and `first + R <= rows`.
#[inline(always)]
unsafe fn some_dots<L: Lanes, const R: usize>(job: &RowDots<L::Elem>, first: usize) {
    // SAFETY: k + 2 vectors stay within `depth`; the rest is read through a mask.
    unsafe {
        let zero = L::splat(L::Elem::ZERO);
        let mut sums = [[zero; 2]; R];
        let mut starts = [job.a; R];
        for (r, start) in starts.iter_mut().enumerate() {
            *start = job.a.add((first + r) * job.a_stride);
        }
        let mut k = 0;
        while k + 2 * L::COUNT <= job.depth {
            let x = [L::load(job.x.add(k)), L::load(job.x.add(k + L::COUNT))];
            for r in 0..R {
                sums[r][0] = L::load(starts[r].add(k)).mul_add(x[0], sums[r][0]);
                sums[r][1] = L::load(starts[r].add(k + L::COUNT)).mul_add(x[1], sums[r][1]);
            }
            k += 2 * L::COUNT;
        }
        while k < job.depth {
            let mask = L::first((job.depth - k).min(L::COUNT));
            let x = L::load_first(job.x.add(k), mask);
            for r in 0..R {
                sums[r][0] = L::load_first(starts[r].add(k), mask).mul_add(x, sums[r][0]);
            }
            k += L::COUNT;
        }
        for r in 0..R {
            let to = job.y.add((first + r) * job.y_stride);
            let product = sums[r][0].add(sums[r][1]).sum() * job.alpha;
            *to = if job.beta == L::Elem::ZERO {
                product
            } else {
                *to * job.beta + product
            };
        }
    }
}

/// # Safety
/// The machine has L's instructions; every address that `job` names is valid; no one else uses the result.
#[inline(always)]
pub(super) unsafe fn weighted_rows<L: Lanes>(job: &WeightedRows<L::Elem>) {
    let mut k = 0;
    // SAFETY: k + D <= depth in both calls.
    unsafe {
        while k + DEPTH <= job.depth {
            add_rows::<L, DEPTH>(job, k);
            k += DEPTH;
        }
        while k < job.depth {
            add_rows::<L, 1>(job, k);
            k += 1;
        }
    }
}

/// # Safety
/// As for [`weighted_rows`], and `first + D <= depth`.
#[inline(always)]
unsafe fn add_rows<L: Lanes, const D: usize>(job: &WeightedRows<L::Elem>, first: usize) {
    // SAFETY: j + 1 vector stays within `cols`; the rest is read and written through a mask.
    unsafe {
        let mut weights = [L::splat(L::Elem::ZERO); D];
        for (d, weight) in weights.iter_mut().enumerate() {
            *weight = L::splat(*job.x.add(first + d));
        }
        let b = job.b.add(first * job.b_stride);
        let mut j = 0;
        while j + L::COUNT <= job.cols {
            let mut sum = L::load(job.y.add(j));
            for d in 0..D {
                sum = weights[d].mul_add(L::load(b.add(d * job.b_stride + j)), sum);
            }
            sum.store(job.y.add(j));
            j += L::COUNT;
        }
        if j < job.cols {
            let mask = L::first(job.cols - j);
            let mut sum = L::load_first(job.y.add(j), mask);
            for d in 0..D {
                sum = weights[d].mul_add(L::load_first(b.add(d * job.b_stride + j), mask), sum);
            }
            sum.store_first(job.y.add(j), mask);
        }
    }
}
