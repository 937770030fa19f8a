//! Where the extremum is: `argmax` and `argmin`.

use super::{BLOCK, Element, GRAIN, Max, Min, Reduction, Shifts, View, combine_pairwise, rows};
use crate::arch::SimdLanes;
use crate::parallel;
use crate::vectorize::{Parts, Vectorize, vectorized};

/// How many columns a task scans at a time.
const TILE: usize = 256;

/// The index of the first largest element, over the middle dim of `view` (`torch.argmax`). NaN counts as larger than
/// any number. `out` has `outer * inner` elements.
///
/// # Panics
/// If `out` hasn't `view.results()` elements, `input` hasn't `view.numel()`, or there are results of nothing.
pub fn argmax<T: Element + PartialOrd>(input: &[T], view: View, out: &mut [i64])
where
    Max: Reduction<T>,
{
    argument(Max, |element, best| element > best, input, view, out);
}

/// The index of the first smallest element, over the middle dim of `view` (`torch.argmin`). NaN counts as smaller than
/// any number. `out` has `outer * inner` elements.
///
/// # Panics
/// As [`argmax`].
pub fn argmin<T: Element + PartialOrd>(input: &[T], view: View, out: &mut [i64])
where
    Min: Reduction<T>,
{
    argument(Min, |element, best| element < best, input, view, out);
}

fn argument<T: Element + PartialOrd, R: Reduction<T>>(
    operation: R,
    better: impl Fn(T, T) -> bool + Copy + Sync,
    input: &[T],
    view: View,
    out: &mut [i64],
) {
    assert_eq!(
        input.len(),
        view.numel(),
        "the input has the view's elements"
    );
    assert_eq!(
        out.len(),
        view.results(),
        "one result for each reduced row or column"
    );
    if out.is_empty() {
        return;
    }
    assert!(view.reduce > 0, "nothing has no extremum");
    if view.inner == 1 {
        of_rows(operation, input, view, out);
    } else {
        of_columns(better, input, view, out);
    }
}

/// Finds each row's extremum, then the first block that has it, then the place.
fn of_rows<T: Element + PartialOrd, R: Reduction<T>>(
    operation: R,
    input: &[T],
    view: View,
    out: &mut [i64],
) {
    let blocks = view.reduce.div_ceil(BLOCK);
    let mut partial = vec![T::default(); view.outer * blocks];
    rows::reduce_blocks(
        operation,
        input,
        view.reduce,
        blocks,
        Shifts::Zero,
        &mut partial,
    );
    let parts = Parts::new(out);
    parallel::for_ranges(
        view.outer,
        (GRAIN / view.reduce.min(BLOCK)).max(1),
        |range| {
            // SAFETY: the ranges of different tasks don't overlap.
            let out = unsafe { parts.part(range.start, range.len()) };
            for (row, result) in range.zip(out) {
                let partial = &partial[row * blocks..][..blocks];
                let extremum =
                    combine_pairwise(&mut partial.to_vec(), |a, b| operation.merge(a, b));
                let block = first_same(partial, extremum);
                let start = block * BLOCK;
                let elements =
                    &input[row * view.reduce + start..][..BLOCK.min(view.reduce - start)];
                *result = (start
                    + vectorized(FirstSame {
                        elements,
                        value: extremum,
                    })) as i64;
            }
        },
    );
}

struct FirstSame<'a, T> {
    elements: &'a [T],
    value: T,
}

impl<T: Element + PartialOrd> Vectorize for FirstSame<'_, T> {
    type Output = usize;

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) -> usize {
        let (chunks, _) = self.elements.as_chunks::<64>();
        // Without a way out in the middle of a chunk, so that it's vector code.
        let found = chunks.iter().position(|chunk| {
            chunk
                .iter()
                .fold(false, |any, &x| any | same(x, self.value))
        });
        let start = found.unwrap_or(chunks.len()) * 64;
        start + first_same(&self.elements[start..], self.value)
    }
}

#[inline(always)]
fn first_same<T: Copy + PartialOrd>(elements: &[T], value: T) -> usize {
    elements
        .iter()
        .position(|&element| same(element, value))
        .expect("the extremum is one of the elements")
}

/// Equal, or both NaN.
#[inline(always)]
#[expect(clippy::eq_op, reason = "NaN is what doesn't equal itself")]
fn same<T: Copy + PartialOrd>(a: T, b: T) -> bool {
    a == b || (a != a && b != b)
}

fn of_columns<T: Element + PartialOrd>(
    better: impl Fn(T, T) -> bool + Copy + Sync,
    input: &[T],
    view: View,
    out: &mut [i64],
) {
    let tiles = view.inner.div_ceil(TILE);
    let parts = Parts::new(out);
    let each = view.reduce * view.inner.min(TILE);
    parallel::for_ranges(view.outer * tiles, (GRAIN / each).max(1), |tasks| {
        for task in tasks {
            let (outer, first) = (task / tiles, task % tiles * TILE);
            // SAFETY: each task has its own columns.
            let out =
                unsafe { parts.part(outer * view.inner + first, TILE.min(view.inner - first)) };
            let start = outer * view.reduce * view.inner + first;
            vectorized(Columns {
                better,
                input: &input[start..],
                view,
                out,
            });
        }
    });
}

/// Scans adjacent columns from the first row to the last.
struct Columns<'a, T, B> {
    better: B,
    input: &'a [T],
    view: View,
    out: &'a mut [i64],
}

impl<T: Element + PartialOrd, B: Fn(T, T) -> bool> Vectorize for Columns<'_, T, B> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::eq_op, reason = "NaN is what doesn't equal itself")]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        let len = self.out.len();
        let mut best = [T::default(); TILE];
        let best = &mut best[..len];
        best.copy_from_slice(&self.input[..len]);
        self.out.fill(0);
        for row in 1..self.view.reduce {
            let elements = &self.input[row * self.view.inner..][..len];
            for ((best, index), &element) in best.iter_mut().zip(&mut *self.out).zip(elements) {
                let wins = (self.better)(element, *best) || (element != element && *best == *best);
                *best = if wins { element } else { *best };
                *index = if wins { row as i64 } else { *index };
            }
        }
    }
}
