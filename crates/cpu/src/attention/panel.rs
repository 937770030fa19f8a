//! What the forward and the backward pass share: a panel of queries, and its scores with a tile of keys.

use super::product::{Product, Start};
use super::{Attention, Mask};
use crate::arch::SimdLanes;
use crate::gemm::Float;
use crate::gemm::transpose::Block;
use crate::softmax::Real;

/// How many queries a panel has: three vectors of f32 on AVX-512, a multiple of any vector.
pub(super) const PANEL: usize = 48;

/// Some queries of a head.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) batch: usize,
    pub(super) head: usize,
    /// The first query.
    pub(super) first: usize,
    /// How many, up to [`PANEL`].
    pub(super) rows: usize,
}

impl Panel {
    /// How many vectors hold the panel's queries.
    pub(super) fn vectors<V: SimdLanes>(&self) -> usize {
        self.rows.div_ceil(V::LANES)
    }
}

impl<T: Real + Float> Attention<'_, T> {
    /// How many of the keys some query of the panel sees.
    pub(super) fn keys_of(&self, panel: Panel) -> usize {
        let keys = self.sizes.keys;
        if self.causal {
            keys.min(panel.first + panel.rows)
        } else {
            keys
        }
    }

    /// Writes to `scores[key][query]` the scores of a panel with `count` keys from number `first` on, masked by negative infinity.
    /// `queries` are the panel's, transposed (`[width][PANEL]`).
    ///
    /// # Safety
    /// The panel and the keys exist and [`check`](Attention::check) has passed; `queries` has `width * PANEL` elements, `scores`
    /// `KEYS * PANEL`. See Note [Lanes inside target features].
    #[inline(always)]
    pub(super) unsafe fn scores<V: SimdLanes<Elem = T>>(
        &self,
        panel: Panel,
        queries: *const T,
        first: usize,
        count: usize,
        scores: *mut T,
    ) {
        // SAFETY: the caller vouches for the panel, the keys and the scratch memory.
        unsafe {
            let head = panel.head / self.sizes.group();
            let rows = self.key.head(panel.batch, head);
            Product {
                rows: count,
                depth: self.sizes.width,
                cols: panel.vectors::<V>() * V::LANES,
                a: rows.wrapping_add(first * self.key.row),
                a_row: self.key.row,
                a_step: 1,
                b: queries,
                b_row: PANEL,
                c: scores,
                c_row: PANEL,
                start: Start::Zero(self.scale),
            }
            .of_scores::<V>();
            if self.causal {
                for key in 0..count {
                    let hidden = (first + key).saturating_sub(panel.first).min(panel.rows);
                    let row = std::slice::from_raw_parts_mut(scores.add(key * PANEL), hidden);
                    row.fill(T::from_f64(f64::NEG_INFINITY));
                }
            }
            match self.mask {
                Mask::None => {}
                Mask::Keep(data, strides) => {
                    let hidden = T::from_f64(f64::NEG_INFINITY);
                    each_place(panel, strides, first, count, |place, score| {
                        if data[place] == 0 {
                            let score = scores.add(score);
                            *score = *score + hidden;
                        }
                    });
                }
                Mask::Add(data, strides) => {
                    each_place(panel, strides, first, count, |place, score| {
                        let score = scores.add(score);
                        *score = *score + data[place];
                    });
                }
            }
        }
    }
}

/// Calls `each` with the place in a mask, and in the scores, of every query of the panel with `count` keys from number `first` on.
fn each_place(
    panel: Panel,
    [batch, head, query, key]: [usize; 4],
    first: usize,
    count: usize,
    mut each: impl FnMut(usize, usize),
) {
    let start = panel.batch * batch + panel.head * head + panel.first * query + first * key;
    for row in 0..panel.rows {
        for column in 0..count {
            each(start + row * query + column * key, column * PANEL + row);
        }
    }
}

/// Copies rows of a panel to `to[column][PANEL]`; queries that the panel lacks are 0.
///
/// # Safety
/// There are `rows` rows of `cols` numbers at `from`, and room for `cols * PANEL` at `to`, where nobody else is.
pub(super) unsafe fn turn<T: Float>(
    from: *const T,
    from_stride: usize,
    rows: usize,
    cols: usize,
    to: *mut T,
) {
    // SAFETY: the caller's promise; the block's rows are at most PANEL.
    unsafe {
        if rows < PANEL {
            std::slice::from_raw_parts_mut(to, cols * PANEL).fill(T::ZERO);
        }
        (T::kernels().transpose)(&Block {
            from,
            from_stride,
            to,
            to_stride: PANEL,
            rows,
            cols,
        });
    }
}
