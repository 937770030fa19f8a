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

/// A dot product has so many bytes of sums in flight, element `i` in sum `i % LANES`, whatever a vector holds: two or four
/// vectors. A warp of a device has them too.
const SUMS_NBYTES: usize = 128;
/// The longest dot product in one go; those of the pieces of a longer one are added from the first to the last.
pub(super) const DOT_BLOCK: usize = 4096;
/// Rows of B that are added to the result in one go.
const DEPTH: usize = 8;

/// # Safety
/// The machine has L's instructions; every address that `job` names is valid; no one else uses the result.
#[inline(always)]
pub(super) unsafe fn row_dots<L: Lanes>(job: &RowDots<L::Elem>) {
    // Rows that are read at once: independent streams keep the memory busy, eight vectors of sums fill the registers.
    // SAFETY: the caller's promise is passed on.
    unsafe {
        if L::COUNT * 2 * size_of::<L::Elem>() == SUMS_NBYTES {
            all_dots::<L, 4, 2>(job);
        } else {
            debug_assert_eq!(L::COUNT * 4 * size_of::<L::Elem>(), SUMS_NBYTES);
            all_dots::<L, 2, 4>(job);
        }
    }
}

/// [`row_dots`], by `R` rows at once and `V` vectors of sums a row.
///
/// # Safety
/// As for [`row_dots`].
#[inline(always)]
unsafe fn all_dots<L: Lanes, const R: usize, const V: usize>(job: &RowDots<L::Elem>) {
    let mut row = 0;
    // SAFETY: row + R <= rows in both calls.
    unsafe {
        while row + R <= job.rows {
            some_dots::<L, R, V>(job, row);
            row += R;
        }
        while row < job.rows {
            some_dots::<L, 1, V>(job, row);
            row += 1;
        }
    }
}

/// The dots of `R` rows. A row's sum has the same order whatever R is.
///
/// # Safety
/// As for [`row_dots`], and `first + R <= rows`.
#[inline(always)]
unsafe fn some_dots<L: Lanes, const R: usize, const V: usize>(
    job: &RowDots<L::Elem>,
    first: usize,
) {
    // SAFETY: k + V vectors stay within `depth`; the rest is read through a mask.
    unsafe {
        let mut starts = [job.a; R];
        for (r, start) in starts.iter_mut().enumerate() {
            *start = job.a.add((first + r) * job.a_stride);
        }
        let mut products = [L::Elem::ZERO; R];
        let mut block = 0;
        loop {
            let end = job.depth.min(block + DOT_BLOCK);
            let sums = block_dots::<L, R, V>(&starts, job.x, block, end);
            for r in 0..R {
                let sum = sums[r].sum();
                products[r] = if block == 0 { sum } else { products[r] + sum };
            }
            block = end;
            if block == job.depth {
                break;
            }
        }
        for r in 0..R {
            let to = job.y.add((first + r) * job.y_stride);
            let product = products[r] * job.alpha;
            *to = if job.beta == L::Elem::ZERO {
                product
            } else {
                *to * job.beta + product
            };
        }
    }
}

/// The lanes of the dots of elements `start` to `end - 1`, not yet summed.
///
/// # Safety
/// The machine has L's instructions; the elements are valid.
#[inline(always)]
unsafe fn block_dots<L: Lanes, const R: usize, const V: usize>(
    starts: &[*const L::Elem; R],
    x: *const L::Elem,
    start: usize,
    end: usize,
) -> [L; R] {
    // SAFETY: k + V vectors stay below `end`; the rest is read through a mask.
    unsafe {
        let zero = L::splat(L::Elem::ZERO);
        let mut sums = [[zero; V]; R];
        let mut k = start;
        while k + V * L::COUNT <= end {
            for v in 0..V {
                let x = L::load(x.add(k + v * L::COUNT));
                for r in 0..R {
                    let row = L::load(starts[r].add(k + v * L::COUNT));
                    sums[r][v] = row.mul_add(x, sums[r][v]);
                }
            }
            k += V * L::COUNT;
        }
        for v in 0..V {
            if k < end {
                let mask = L::first((end - k).min(L::COUNT));
                let x = L::load_first(x.add(k), mask);
                for r in 0..R {
                    sums[r][v] = L::load_first(starts[r].add(k), mask).mul_add(x, sums[r][v]);
                }
                k += L::COUNT;
            }
        }
        // Halves are added first, as within a vector.
        let mut half = V / 2;
        while half > 0 {
            for r in 0..R {
                for v in 0..half {
                    sums[r][v] = sums[r][v].add(sums[r][v + half]);
                }
            }
            half /= 2;
        }
        let mut whole = [zero; R];
        for r in 0..R {
            whole[r] = sums[r][0];
        }
        whole
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
