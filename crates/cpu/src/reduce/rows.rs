//! Reductions of rows: the reduced elements are contiguous.

use super::{BLOCK, Element, GRAIN, Reduction, Shifts, Source, View, combine_pairwise};
use crate::arch::SimdLanes;
use crate::parallel;
use crate::vectorize::{Parts, Vectorize, vectorized};

/// Lanes that the compiler keeps in one or a few vector registers.
const WIDTH: usize = 16;
/// As many such groups, so that additions that follow each other don't wait for each other.
const GROUPS: usize = 4;

pub(super) fn reduce<T: Element, R: Reduction<T>, S: Source<T> + ?Sized>(
    operation: R,
    source: &S,
    view: View,
    shifts: Shifts<'_, T>,
    out: &mut [T],
) {
    let blocks = view.reduce.div_ceil(BLOCK);
    if blocks == 1 {
        return reduce_blocks(operation, source, view.reduce, 1, shifts, out);
    }
    let mut partial = vec![T::default(); view.outer * blocks];
    reduce_blocks(operation, source, view.reduce, blocks, shifts, &mut partial);
    for (result, partial) in out.iter_mut().zip(partial.chunks_exact_mut(blocks)) {
        *result = combine_pairwise(partial, |a, b| operation.merge(a, b));
    }
}

/// Reduces each block of each row of `len` elements.
pub(super) fn reduce_blocks<T: Element, R: Reduction<T>, S: Source<T> + ?Sized>(
    operation: R,
    source: &S,
    len: usize,
    blocks: usize,
    shifts: Shifts<'_, T>,
    out: &mut [T],
) {
    let count = out.len();
    let parts = Parts::new(out);
    parallel::for_ranges(count, (GRAIN / len.min(BLOCK)).max(1), |range| {
        // SAFETY: the ranges of different tasks don't overlap.
        let out = unsafe { parts.part(range.start, range.len()) };
        vectorized(Blocks {
            operation,
            source,
            len,
            blocks,
            shifts,
            first: range.start,
            out,
        });
    });
}

struct Blocks<'a, T, R, S: ?Sized> {
    operation: R,
    source: &'a S,
    len: usize,
    blocks: usize,
    shifts: Shifts<'a, T>,
    first: usize,
    out: &'a mut [T],
}

impl<T: Element, R: Reduction<T>, S: Source<T> + ?Sized> Vectorize for Blocks<'_, T, R, S> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        let mut buffer = vec![T::default(); if S::BUFFERED { BLOCK } else { 0 }];
        for (index, result) in (self.first..).zip(self.out) {
            let (row, block) = (index / self.blocks, index % self.blocks);
            let start = block * BLOCK;
            let len = BLOCK.min(self.len - start);
            let shift = match self.shifts {
                Shifts::Zero => T::default(),
                Shifts::Each(shifts) => shifts[row],
            };
            let tile = self.source.tile(row * self.len + start, len, &mut buffer);
            *result = reduce_block(self.operation, tile, shift);
        }
    }
}

/// Reduces one block: see Note [Order of a reduction].
#[inline(always)]
pub(crate) fn reduce_block<T: Element, R: Reduction<T>>(operation: R, block: &[T], shift: T) -> T {
    let mut lanes = [[operation.identity(); WIDTH]; GROUPS];
    let (chunks, rest) = block.as_chunks::<{ WIDTH * GROUPS }>();
    for chunk in chunks {
        let (groups, _) = chunk.as_chunks::<WIDTH>();
        for g in 0..GROUPS {
            for l in 0..WIDTH {
                lanes[g][l] = operation.step(lanes[g][l], groups[g][l], shift);
            }
        }
    }
    let (groups, rest) = rest.as_chunks::<WIDTH>();
    for (lanes, group) in lanes.iter_mut().zip(groups) {
        for l in 0..WIDTH {
            lanes[l] = operation.step(lanes[l], group[l], shift);
        }
    }
    if let Some(lanes) = lanes.get_mut(groups.len()) {
        for (lane, &element) in lanes.iter_mut().zip(rest) {
            *lane = operation.step(*lane, element, shift);
        }
    }
    let [first, second, third, fourth] = lanes;
    let mut sum = merge_lanes(
        operation,
        merge_lanes(operation, first, third),
        merge_lanes(operation, second, fourth),
    );
    let mut half = WIDTH / 2;
    while half > 0 {
        for l in 0..half {
            sum[l] = operation.merge(sum[l], sum[l + half]);
        }
        half /= 2;
    }
    sum[0]
}

#[inline(always)]
fn merge_lanes<T: Element, R: Reduction<T>>(
    operation: R,
    mut first: [T; WIDTH],
    second: [T; WIDTH],
) -> [T; WIDTH] {
    for l in 0..WIDTH {
        first[l] = operation.merge(first[l], second[l]);
    }
    first
}
