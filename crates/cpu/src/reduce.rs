//! Reductions over the middle dim of a contiguous `[outer, reduce, inner]` view.
//!
//! Note [Order of a reduction]
//!
//! The order in which elements are combined depends on the shape alone, so the bits
//! are the same for any number of threads and any instruction set:
//! - Rows (`inner` is 1) are cut into blocks of [`BLOCK`] elements. In a block, element `i` goes to lane `i % 64`; the
//!   lanes are then combined as a tree (lane `l` with lane `l + 32`, then `l + 16`, ...).
//! - Columns are cut into blocks of `ROWS` rows that are combined from the first to the last. Where there are few
//!   columns, several rows are taken side by side as one wide row, and the columns of equal index are combined last.
//! - Blocks are combined pairwise: 0 with 1, 2 with 3, ..., then the results in the same way.
//!
//! So an f32 sum of n elements is a chain of at most 64 additions in a tree of depth log2(n / 64): its error grows
//! like that of pairwise summation.

mod argument;
mod columns;
mod operation;
mod rows;

pub use argument::{argmax, argmin};
pub use operation::{All, Any, Max, Min, Prod, Reduction, Sum, SumSquares};

pub(crate) use rows::reduce_block;

use operation::SquaredDeviations;

/// How many elements of a row make a block.
pub const BLOCK: usize = 4096;
/// How many rows of a column make a block.
const ROWS: usize = 64;
/// How many elements a task should have at least.
const GRAIN: usize = 32 << 10;

/// The shape of what is reduced; `outer * reduce * inner` elements, contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The product of the dims before the reduced one.
    pub outer: usize,
    /// The reduced dim.
    pub reduce: usize,
    /// The product of the dims after it.
    pub inner: usize,
}

impl View {
    /// All of `len` elements to one.
    pub fn full(len: usize) -> View {
        View {
            outer: 1,
            reduce: len,
            inner: 1,
        }
    }

    /// How many elements are reduced.
    pub fn numel(self) -> usize {
        self.outer * self.reduce * self.inner
    }

    /// How many results there are.
    pub fn results(self) -> usize {
        self.outer * self.inner
    }
}

/// A number that can be reduced.
pub trait Element: Copy + Send + Sync + Default + 'static {}

impl<T: Copy + Send + Sync + Default + 'static> Element for T {}

/// Where elements come from: a slice, or [`Tiles`].
pub trait Source<T>: Sync {
    /// Whether [`tile`](Self::tile) needs a buffer.
    const BUFFERED: bool;

    /// Elements `start` to `start + len - 1`, `len` being at most [`BLOCK`]. `buffer` has at least `len` elements if
    /// [`BUFFERED`](Self::BUFFERED).
    fn tile<'a>(&'a self, start: usize, len: usize, buffer: &'a mut [T]) -> &'a [T];
}

impl<T: Sync> Source<T> for [T] {
    const BUFFERED: bool = false;

    #[inline(always)]
    fn tile<'a>(&'a self, start: usize, len: usize, _: &'a mut [T]) -> &'a [T] {
        &self[start..start + len]
    }
}

/// Elements made tile by tile: converted from another dtype, or computed. The function gets the index of the first
/// element and the place for them.
pub struct Tiles<F>(pub F);

impl<T, F: Fn(usize, &mut [T]) + Sync> Source<T> for Tiles<F> {
    const BUFFERED: bool = true;

    fn tile<'a>(&'a self, start: usize, len: usize, buffer: &'a mut [T]) -> &'a [T] {
        let tile = &mut buffer[..len];
        (self.0)(start, tile);
        tile
    }
}

/// Reduces `source` over the middle dim of `view` into `out`, which has `outer * inner` elements.
///
/// An empty `reduce` gives the operation's [identity](Reduction::identity).
///
/// # Panics
/// If `out` hasn't `view.results()` elements, or the source fewer than `view.numel()`.
pub fn reduce<T: Element, R: Reduction<T>, S: Source<T> + ?Sized>(
    operation: R,
    source: &S,
    view: View,
    out: &mut [T],
) {
    assert_eq!(
        out.len(),
        view.results(),
        "one result for each reduced row or column"
    );
    reduce_shifted(operation, source, view, Shifts::Zero, out);
}

/// The mean and the sum of squared deviations from it, over the middle dim of `view`; each output has
/// `outer * inner` elements. Both come from two passes, so nothing cancels. With an empty `reduce` the mean is NaN.
///
/// # Panics
/// If an output hasn't `view.results()` elements, or the source fewer than `view.numel()`.
#[expect(
    private_bounds,
    reason = "how deviations are summed is nobody else's business"
)]
pub fn moments<T: Element + Float, S: Source<T> + ?Sized>(
    source: &S,
    view: View,
    mean: &mut [T],
    deviations: &mut [T],
) where
    Sum: Reduction<T>,
    SquaredDeviations: Reduction<T>,
{
    assert_eq!(
        deviations.len(),
        view.results(),
        "one result for each reduced row or column"
    );
    reduce(Sum, source, view, mean);
    for mean in &mut *mean {
        *mean = mean.divided_by(view.reduce);
    }
    reduce_shifted(
        SquaredDeviations,
        source,
        view,
        Shifts::Each(mean),
        deviations,
    );
}

/// f32 or f64.
pub trait Float {
    /// `self / count`, with `count` rounded to the type.
    fn divided_by(self, count: usize) -> Self;
}

impl Float for f32 {
    fn divided_by(self, count: usize) -> f32 {
        self / count as f32
    }
}

impl Float for f64 {
    fn divided_by(self, count: usize) -> f64 {
        self / count as f64
    }
}

/// What is subtracted from the elements of each result, for operations that ask for it.
#[derive(Clone, Copy)]
enum Shifts<'a, T> {
    Zero,
    Each(&'a [T]),
}

fn reduce_shifted<T: Element, R: Reduction<T>, S: Source<T> + ?Sized>(
    operation: R,
    source: &S,
    view: View,
    shifts: Shifts<'_, T>,
    out: &mut [T],
) {
    if view.numel() == 0 {
        out.fill(operation.identity());
    } else if view.inner == 1 {
        rows::reduce(operation, source, view, shifts, out);
    } else {
        columns::reduce(operation, source, view, shifts, out);
    }
}

/// Combines `values` pairwise, in place, until one is left: see Note [Order of a reduction].
fn combine_pairwise<T: Copy>(values: &mut [T], merge: impl Fn(T, T) -> T) -> T {
    let mut len = values.len();
    while len > 1 {
        for i in 0..len / 2 {
            values[i] = merge(values[2 * i], values[2 * i + 1]);
        }
        if len % 2 == 1 {
            values[len / 2] = values[len - 1];
        }
        len = len.div_ceil(2);
    }
    values[0]
}
