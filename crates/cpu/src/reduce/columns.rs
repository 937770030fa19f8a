//! Reductions of columns: the reduced elements are `inner` apart.

use super::{Element, GRAIN, ROWS, Reduction, Shifts, Source, View};
use crate::arch::SimdLanes;
use crate::parallel;
use crate::vectorize::{Parts, Vectorize, vectorized};

/// How many columns a task reduces at a time: the accumulators of f64 fill 4 KiB of the L1 cache.
const TILE: usize = 512;
/// Rows with fewer columns than this are taken side by side.
const NARROW: usize = 64;

pub(super) fn reduce<T: Element, R: Reduction<T>, S: Source<T> + ?Sized>(
    operation: R,
    source: &S,
    view: View,
    shifts: Shifts<'_, T>,
    out: &mut [T],
) {
    let plan = Plan::new(view);
    if plan.blocks == 1 && plan.side_by_side == 1 {
        return reduce_blocks(operation, source, plan, shifts, out);
    }
    let mut partial = vec![T::default(); view.outer * plan.blocks * plan.width];
    reduce_blocks(operation, source, plan, shifts, &mut partial);
    let parts = Parts::new(out);
    let per_outer = plan.blocks * plan.width;
    let partial = Parts::new(&mut partial);
    parallel::for_ranges(view.outer, (GRAIN / per_outer).max(1), |range| {
        for outer in range {
            // SAFETY: each `outer` has its own parts.
            let (partial, out) = unsafe {
                (
                    partial.part(outer * per_outer, per_outer),
                    parts.part(outer * view.inner, view.inner),
                )
            };
            vectorized(Combine {
                operation,
                partial,
                width: plan.width,
                out,
            });
        }
    });
}

/// How the view is cut: it depends on the shape alone.
#[derive(Clone, Copy)]
struct Plan {
    view: View,
    /// How many rows make a wide one.
    side_by_side: usize,
    /// How many columns a wide row has.
    width: usize,
    /// How many blocks of [`ROWS`] wide rows there are for each `outer`; the last includes the rows left over.
    blocks: usize,
    tiles: usize,
}

impl Plan {
    fn new(view: View) -> Self {
        let side_by_side = (NARROW / view.inner).clamp(1, view.reduce);
        let width = view.inner * side_by_side;
        let blocks = (view.reduce / side_by_side).div_ceil(ROWS);
        Plan {
            view,
            side_by_side,
            width,
            blocks,
            tiles: width.div_ceil(TILE),
        }
    }
}

fn reduce_blocks<T: Element, R: Reduction<T>, S: Source<T> + ?Sized>(
    operation: R,
    source: &S,
    plan: Plan,
    shifts: Shifts<'_, T>,
    out: &mut [T],
) {
    let tasks = plan.view.outer * plan.blocks * plan.tiles;
    let each = plan.width.min(TILE) * ROWS.min(plan.view.reduce / plan.side_by_side);
    let parts = Parts::new(out);
    parallel::for_ranges(tasks, (GRAIN / each).max(1), |tasks| {
        vectorized(Blocks {
            operation,
            source,
            plan,
            shifts,
            tasks,
            parts,
        });
    });
}

struct Blocks<'a, T, R, S: ?Sized> {
    operation: R,
    source: &'a S,
    plan: Plan,
    shifts: Shifts<'a, T>,
    tasks: std::ops::Range<usize>,
    parts: Parts<'a, T>,
}

impl<T: Element, R: Reduction<T>, S: Source<T> + ?Sized> Vectorize for Blocks<'_, T, R, S> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        let Plan {
            view,
            side_by_side,
            width,
            blocks,
            tiles,
        } = self.plan;
        let mut buffer = vec![T::default(); if S::BUFFERED { TILE } else { 0 }];
        let wide_rows = view.reduce / side_by_side;
        for task in self.tasks {
            let (block, tile) = (task / tiles, task % tiles);
            let (outer, block) = (block / blocks, block % blocks);
            let first = tile * TILE;
            let len = TILE.min(width - first);
            let mut shifts = [T::default(); TILE];
            if let Shifts::Each(each) = self.shifts {
                let each = &each[outer * view.inner..][..view.inner];
                if side_by_side == 1 {
                    shifts[..len].copy_from_slice(&each[first..first + len]);
                } else {
                    for (column, shift) in (first..).zip(&mut shifts[..len]) {
                        *shift = each[column % view.inner];
                    }
                }
            }
            // SAFETY: each task has its own block and tile, hence its own part.
            let result = unsafe {
                self.parts
                    .part((outer * blocks + block) * width + first, len)
            };
            result.fill(self.operation.identity());
            let start = outer * view.reduce * view.inner + first;
            for row in block * ROWS..wide_rows.min((block + 1) * ROWS) {
                let elements = self.source.tile(start + row * width, len, &mut buffer);
                step_all(self.operation, result, elements, &shifts);
            }
            let left_over = (view.reduce % side_by_side) * view.inner;
            if block + 1 == blocks && left_over > first {
                let elements = self.source.tile(
                    start + wide_rows * width,
                    len.min(left_over - first),
                    &mut buffer,
                );
                step_all(
                    self.operation,
                    &mut result[..elements.len()],
                    elements,
                    &shifts,
                );
            }
        }
    }
}

#[inline(always)]
fn step_all<T: Element, R: Reduction<T>>(
    operation: R,
    values: &mut [T],
    elements: &[T],
    shifts: &[T],
) {
    for ((value, &element), &shift) in values.iter_mut().zip(elements).zip(shifts) {
        *value = operation.step(*value, element, shift);
    }
}

/// Combines blocks pairwise, and then the rows that were taken side by side.
struct Combine<'a, T, R> {
    operation: R,
    partial: &'a mut [T],
    width: usize,
    out: &'a mut [T],
}

impl<T: Element, R: Reduction<T>> Vectorize for Combine<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        combine_rows(self.operation, self.partial, self.width);
        combine_rows(
            self.operation,
            &mut self.partial[..self.width],
            self.out.len(),
        );
        self.out.copy_from_slice(&self.partial[..self.out.len()]);
    }
}

/// Combines rows of `width` pairwise into the first.
#[inline(always)]
fn combine_rows<T: Element, R: Reduction<T>>(operation: R, rows: &mut [T], width: usize) {
    let count = rows.len() / width;
    let mut distance = 1;
    while distance < count {
        for first in (0..count - distance).step_by(2 * distance) {
            let (low, high) = rows.split_at_mut((first + distance) * width);
            for (a, &b) in low[first * width..][..width].iter_mut().zip(&high[..width]) {
                *a = operation.merge(*a, b);
            }
        }
        distance *= 2;
    }
}
