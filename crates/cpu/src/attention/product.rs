//! Register tiles of attention: `C = start + A * B` with chains of fused multiply-adds, for panels that lie in the cache.

#![expect(
    clippy::needless_range_loop,
    reason = "plain counts over register arrays are sure to be unrolled"
)]

use crate::arch::SimdLanes;

/// What the chains begin with.
#[derive(Clone, Copy)]
pub(super) enum Start<T> {
    /// 0, and the sum is multiplied by a number.
    Zero(T),
    /// What C has.
    Old,
    /// What C has, each row times a number of its own.
    Scaled(*const T),
}

/// A product `C = start + A * B`: `rows` by `depth` by `cols`.
pub(super) struct Product<T> {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) cols: usize,
    pub(super) a: *const T,
    /// From one row of A to the next.
    pub(super) a_row: usize,
    /// From one step of the depth to the next.
    pub(super) a_step: usize,
    pub(super) b: *const T,
    /// From one row of B to the next; columns lie side by side.
    pub(super) b_row: usize,
    pub(super) c: *mut T,
    /// From one row of C to the next; columns lie side by side.
    pub(super) c_row: usize,
    pub(super) start: Start<T>,
}

/// The bytes of a vector where there are 32 registers.
const WIDE: usize = 64;

impl<T: Copy + Into<f64>> Product<T> {
    /// Computes it, if it has at most [`PANEL`](super::panel::PANEL) columns.
    ///
    /// # Safety
    /// As for [`compute`](Self::compute).
    #[inline(always)]
    pub(super) unsafe fn of_scores<V: SimdLanes<Elem = T>>(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            if size_of::<V>() == WIDE {
                self.compute::<V, 8, 3>()
            } else {
                self.compute::<V, 4, 3>()
            }
        }
    }

    /// Computes it, however many columns it has.
    ///
    /// # Safety
    /// As for [`compute`](Self::compute).
    #[inline(always)]
    pub(super) unsafe fn of_rows<V: SimdLanes<Elem = T>>(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            if size_of::<V>() == WIDE {
                self.compute::<V, 6, 4>()
            } else {
                self.compute::<V, 4, 3>()
            }
        }
    }

    /// Computes it in tiles of up to `M` rows by `N` vectors; `N` is 3 or 4.
    ///
    /// # Safety
    /// All elements that it names are valid, and nobody else uses those of C, which are none of A's or B's.
    /// See Note [Lanes inside target features].
    #[inline(always)]
    unsafe fn compute<V: SimdLanes<Elem = T>, const M: usize, const N: usize>(&self) {
        let mut col = 0;
        while col < self.cols {
            let left = self.cols - col;
            let vectors = left.div_ceil(V::LANES).min(N);
            let last = (left - (vectors - 1) * V::LANES).min(V::LANES);
            let mut row = 0;
            while row < self.rows {
                let rows = (self.rows - row).min(M);
                // SAFETY: the tile is within the product, for which the caller vouches.
                unsafe {
                    match (vectors, rows) {
                        (1, 1) => self.tile::<V, 1, 1>(row, rows, col, last),
                        (2, 1) => self.tile::<V, 1, 2>(row, rows, col, last),
                        (3, 1) => self.tile::<V, 1, 3>(row, rows, col, last),
                        (1, _) => self.tile::<V, M, 1>(row, rows, col, last),
                        (2, _) => self.tile::<V, M, 2>(row, rows, col, last),
                        (3, _) => self.tile::<V, M, 3>(row, rows, col, last),
                        (_, _) => self.tile::<V, M, N>(row, rows, col, last),
                    }
                }
                row += rows;
            }
            col += N * V::LANES;
        }
    }

    /// `rows` of at most `M`, from `row` on, by `N` vectors from column `col` on, the last of which has `last` lanes.
    ///
    /// # Safety
    /// As for [`compute`](Self::compute).
    #[inline(always)]
    unsafe fn tile<V: SimdLanes<Elem = T>, const M: usize, const N: usize>(
        &self,
        row: usize,
        rows: usize,
        col: usize,
        last: usize,
    ) {
        // SAFETY: rows clamped to the last one exist; the last vector is read and written as far as there are columns.
        unsafe {
            let mut a = [self.a; M];
            let mut c = [self.c; M];
            for i in 0..M {
                let row = row + i.min(rows - 1);
                a[i] = self.a.add(row * self.a_row);
                c[i] = self.c.add(row * self.c_row + col);
            }
            let mut sums = [[V::of(0.0); N]; M];
            if !matches!(self.start, Start::Zero(_)) {
                for i in 0..M {
                    for v in 0..N - 1 {
                        sums[i][v] = V::load(c[i].add(v * V::LANES));
                    }
                    sums[i][N - 1] = V::load_first(c[i].add((N - 1) * V::LANES), last);
                }
            }
            if let Start::Scaled(factors) = self.start {
                for i in 0..M {
                    let factor = splat::<V>(factors.add(row + i.min(rows - 1)));
                    for v in 0..N {
                        sums[i][v] = sums[i][v] * factor;
                    }
                }
            }
            let mut from = self.b.add(col);
            let mut step = 0;
            for _ in 0..self.depth {
                let mut b = [V::of(0.0); N];
                for v in 0..N - 1 {
                    b[v] = V::load(from.add(v * V::LANES));
                }
                b[N - 1] = V::load_first(from.add((N - 1) * V::LANES), last);
                for i in 0..M {
                    let a = splat::<V>(a[i].add(step));
                    for v in 0..N {
                        sums[i][v] = a.mul_add(b[v], sums[i][v]);
                    }
                }
                from = from.wrapping_add(self.b_row);
                step += self.a_step;
            }
            if let Start::Zero(factor) = self.start {
                let factor = V::of(factor.into());
                for i in 0..M {
                    for v in 0..N {
                        sums[i][v] = sums[i][v] * factor;
                    }
                }
            }
            for i in 0..M {
                if i < rows {
                    for v in 0..N - 1 {
                        sums[i][v].store(c[i].add(v * V::LANES));
                    }
                    sums[i][N - 1].store_first(c[i].add((N - 1) * V::LANES), last);
                }
            }
        }
    }
}

/// The number at `place` in every lane.
///
/// # Safety
/// There is one. See Note [Lanes inside target features].
#[inline(always)]
pub(super) unsafe fn splat<V: SimdLanes>(place: *const V::Elem) -> V
where
    V::Elem: Into<f64>,
{
    // SAFETY: the caller vouches for the place.
    V::of(unsafe { *place }.into())
}
