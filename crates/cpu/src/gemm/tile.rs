//! The inner loop of matrix product and convolution: one register tile of `C`.
//!
//! A tile is up to 8 rows by three vectors of `C`, kept in registers over all of `k`. Its operands are *addressed*,
//! not copied: row `i` of A starts anywhere, a step in `k` is a stride or an entry of a table, and B is
//! read as vectors from wherever the step in `k` leads. So one kernel serves packed panels, small matrices
//! in place, and convolutions, where the table holds the places of the kernel's taps in a padded image.

#![expect(
    clippy::needless_range_loop,
    reason = "plain counts over register arrays are sure to be unrolled"
)]

use super::Float;
use super::lanes::Lanes;

/// The most rows a tile has on any machine.
pub(crate) const MAX_ROWS: usize = 8;
/// The most columns a tile has on any machine.
pub(crate) const MAX_COLS: usize = 48;

/// Where step `k` of an operand lies, counted from its start.
#[derive(Clone, Copy)]
pub(crate) enum Steps {
    /// At `k * stride`.
    Stride(usize),
    /// At entry `k`.
    Table(*const usize),
}

/// How a tile of C is written.
#[derive(Clone, Copy)]
pub(crate) enum Store {
    /// Columns side by side.
    Dense,
    /// Entry `v` is for vector `v`: which lanes are kept, and at which offset from the row they go, side by side.
    Kept(*const Kept),
    /// Entry `j` is the offset of column `j` from the row, or [`Store::NOWHERE`].
    Scatter(*const usize),
}

impl Store {
    /// The column is not written.
    pub(crate) const NOWHERE: usize = usize::MAX;
}

/// Which lanes of a vector are written, and where.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// Bit `i` is lane `i`.
    pub(crate) lanes: u32,
    /// Offset from the start of the row of C.
    pub(crate) offset: usize,
}

/// One tile: `C = beta * C + alpha * A * B (+ bias)`.
pub(crate) struct Tile<T> {
    /// 1 to [`Kernels::rows`].
    pub(crate) rows: usize,
    /// 1 to [`Kernels::cols`].
    pub(crate) cols: usize,
    /// Length of the sums; may be 0.
    pub(crate) depth: usize,
    /// Start of A.
    pub(crate) a: *const T,
    /// Where each of the `rows` rows of A starts, counted from `a`.
    pub(crate) a_rows: *const usize,
    /// Where step `k` lies within a row of A.
    pub(crate) a_steps: Steps,
    /// Start of B; columns lie side by side.
    pub(crate) b: *const T,
    /// Where row `k` of B lies.
    pub(crate) b_steps: Steps,
    /// Start of C.
    pub(crate) c: *mut T,
    /// From one row of C to the next.
    pub(crate) c_stride: usize,
    /// How C is written.
    pub(crate) store: Store,
    /// Factor of the product.
    pub(crate) alpha: T,
    /// Factor of the old C, which is not read where this is 0.
    pub(crate) beta: T,
    /// One number a column, or null. Not for [`Store::Kept`].
    pub(crate) col_bias: *const T,
    /// One number a row, or null.
    pub(crate) row_bias: *const T,
}

/// The kernels of one instruction set.
pub(crate) struct Kernels<T> {
    /// Rows of a full tile.
    pub(crate) rows: usize,
    /// Numbers per vector.
    pub(crate) lanes: usize,
    /// Columns of a full tile: a few vectors.
    pub(crate) cols: usize,
    /// Computes a tile.
    pub(crate) tile: unsafe fn(&Tile<T>),
    /// Turns rows into columns.
    pub(crate) transpose: unsafe fn(&super::transpose::Block<T>),
    /// Matrix times vector, see `vector`.
    pub(crate) row_dots: unsafe fn(&super::vector::RowDots<T>),
    /// Vector times matrix, see `vector`.
    pub(crate) weighted_rows: unsafe fn(&super::vector::WeightedRows<T>),
}

/// A step in `k`, known when compiled to be a stride or a table.
trait Step: Copy {
    /// # Safety
    /// `k` is below the tile's depth.
    unsafe fn at(self, k: usize) -> usize;
}

#[derive(Clone, Copy)]
struct ByStride(usize);

impl Step for ByStride {
    #[inline(always)]
    unsafe fn at(self, k: usize) -> usize {
        k * self.0
    }
}

#[derive(Clone, Copy)]
struct ByTable(*const usize);

impl Step for ByTable {
    #[inline(always)]
    unsafe fn at(self, k: usize) -> usize {
        // SAFETY: the table has an entry for every step.
        unsafe { *self.0.add(k) }
    }
}

/// Picks the compiled variant for a tile with `M` rows or fewer and `V` vectors.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
pub(super) unsafe fn by_steps<L: Lanes, const M: usize, const V: usize>(tile: &Tile<L::Elem>) {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match (tile.a_steps, tile.b_steps) {
            (Steps::Stride(a), Steps::Stride(b)) => {
                compute::<L, M, V>(tile, ByStride(a), ByStride(b))
            }
            (Steps::Stride(a), Steps::Table(b)) => {
                compute::<L, M, V>(tile, ByStride(a), ByTable(b))
            }
            (Steps::Table(a), Steps::Stride(b)) => {
                compute::<L, M, V>(tile, ByTable(a), ByStride(b))
            }
            (Steps::Table(a), Steps::Table(b)) => compute::<L, M, V>(tile, ByTable(a), ByTable(b)),
        }
    }
}

/// The sums of a tile over all of `k`, in ascending order, then its store.
///
/// # Safety
/// The machine has L's instructions; every address that the tile names (rows x steps of A, steps x cols of B, the
/// stored places of C, the biases) is valid, and no one else uses those places of C.
#[inline(always)]
unsafe fn compute<L: Lanes, const M: usize, const V: usize>(
    tile: &Tile<L::Elem>,
    a_step: impl Step,
    b_step: impl Step,
) {
    // SAFETY: rows clamped to the last one stay within the rows that the caller vouches for; the last vector
    // of B is read through a mask of the columns left, so nothing beyond `cols` is read.
    unsafe {
        let last = L::first(tile.cols - (V - 1) * L::COUNT);
        let mut rows = [tile.a; M];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = tile.a.add(*tile.a_rows.add(i.min(tile.rows - 1)));
        }
        // The tile's place in C is fetched while the sums run.
        if matches!(tile.store, Store::Dense) {
            for i in 0..M.min(tile.rows) {
                for v in 0..V {
                    L::prefetch(tile.c.wrapping_add(i * tile.c_stride + v * L::COUNT));
                }
            }
        }
        let mut sums = [[L::splat(L::Elem::ZERO); V]; M];
        for k in 0..tile.depth {
            let from = tile.b.add(b_step.at(k));
            let mut b = [L::splat(L::Elem::ZERO); V];
            for v in 0..V - 1 {
                b[v] = L::load(from.add(v * L::COUNT));
            }
            b[V - 1] = L::load_first(from.add((V - 1) * L::COUNT), last);
            let step = a_step.at(k);
            for i in 0..M {
                let a = L::splat(*rows[i].add(step));
                for v in 0..V {
                    sums[i][v] = a.mul_add(b[v], sums[i][v]);
                }
            }
        }
        store::<L, M, V>(tile, &sums, last);
    }
}

/// # Safety
/// As for [`compute`].
#[inline(always)]
unsafe fn store<L: Lanes, const M: usize, const V: usize>(
    tile: &Tile<L::Elem>,
    sums: &[[L; V]; M],
    last: L::Mask,
) {
    // SAFETY: row i < rows of C is the caller's; the stores write only columns below `cols`.
    unsafe {
        let alpha = L::splat(tile.alpha);
        let beta = L::splat(tile.beta);
        let reads = tile.beta != L::Elem::ZERO;
        for i in 0..M {
            if i >= tile.rows {
                break;
            }
            let row = tile.c.add(i * tile.c_stride);
            let mut out = sums[i];
            for value in out.iter_mut() {
                *value = value.mul(alpha);
            }
            if !tile.row_bias.is_null() {
                let bias = L::splat(*tile.row_bias.add(i));
                for value in out.iter_mut() {
                    *value = value.add(bias);
                }
            }
            match tile.store {
                Store::Dense => {
                    for v in 0..V {
                        let to = row.add(v * L::COUNT);
                        let mask = if v + 1 == V { last } else { L::first(L::COUNT) };
                        let mut value = out[v];
                        if reads {
                            value = L::load_first(to, mask).mul_add(beta, value);
                        }
                        if !tile.col_bias.is_null() {
                            value = value.add(L::load_first(tile.col_bias.add(v * L::COUNT), mask));
                        }
                        if v + 1 == V {
                            value.store_first(to, last);
                        } else {
                            value.store(to);
                        }
                    }
                }
                Store::Kept(kept) => {
                    for v in 0..V {
                        let kept = *kept.add(v);
                        out[v].store_kept(row.add(kept.offset), kept.lanes);
                    }
                }
                Store::Scatter(places) => {
                    let mut buffer = [L::Elem::ZERO; MAX_COLS];
                    for v in 0..V {
                        out[v].store(buffer.as_mut_ptr().add(v * L::COUNT));
                    }
                    for (j, &value) in buffer[..tile.cols].iter().enumerate() {
                        let place = *places.add(j);
                        if place == Store::NOWHERE {
                            continue;
                        }
                        let to = row.add(place);
                        let mut value = value;
                        if reads {
                            value = *to * tile.beta + value;
                        }
                        if !tile.col_bias.is_null() {
                            value = value + *tile.col_bias.add(j);
                        }
                        *to = value;
                    }
                }
            }
        }
    }
}
