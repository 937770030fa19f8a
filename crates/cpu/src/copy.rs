//! Copies between strided operands of one dtype, transpositions in blocks that fit the cache.

use fireclay_core::Dims;

use crate::grid::{Grid, Lane, Sink, Source, for_rows};
use crate::parallel;

/// Elements per parallel task.
const TASK: usize = 1 << 16;
/// Side of a block of a transposition: 32 rows of 32 elements touch few enough cache lines and pages.
const BLOCK: usize = 32;

/// Copies `source` to `sink` over `shape`. Their dtypes must be equal.
///
/// # Safety
/// As [`Program::evaluate`](crate::program::Program::evaluate).
pub unsafe fn copy(shape: &[usize], source: Source, sink: Sink) {
    assert_eq!(source.dtype, sink.dtype);
    let Some(grid) = Grid::new(shape, &[source], &[sink]) else {
        return;
    };
    // SAFETY: the caller's bound; the element's size decides.
    unsafe {
        match grid.sources[0].dtype.size() {
            1 => copy_elements::<u8>(&grid),
            2 => copy_elements::<u16>(&grid),
            4 => copy_elements::<u32>(&grid),
            8 => copy_elements::<u64>(&grid),
            _ => copy_elements::<u128>(&grid),
        }
    }
}

/// # Safety
/// As [`copy`], for elements of the size of `T`.
unsafe fn copy_elements<T: Copy>(grid: &Grid) {
    let (source, sink) = (&grid.sources[0], &grid.sinks[0]);
    let last = grid.shape.len() - 1;
    if let Some(rows) = transposed_dim(grid) {
        // SAFETY: the caller's bound.
        return unsafe { transpose::<T>(grid, rows) };
    }
    parallel::run(grid.numel.div_ceil(TASK), |task| {
        let start = task * TASK;
        let len = TASK.min(grid.numel - start);
        let step = sink.strides[last];
        for_rows(grid, source, start, len, |place, at, count, stride| {
            // SAFETY: the row's places lie in both lanes; tasks write disjoint ranges.
            unsafe {
                let from = source.ptr.cast_const().cast::<T>().add(place);
                let to = sink.ptr.cast::<T>().add(grid.place(sink, start + at));
                match (stride, step) {
                    (1, 1) => std::ptr::copy(from, to, count),
                    (0, 1) => std::slice::from_raw_parts_mut(to, count).fill(from.read()),
                    _ => (0..count).for_each(|index| {
                        to.add(index * step).write(from.add(index * stride).read())
                    }),
                }
            }
        });
    });
}

/// The dimension in which the source is contiguous, where that isn't the innermost one and blocks pay.
fn transposed_dim(grid: &Grid) -> Option<usize> {
    let last = grid.shape.len() - 1;
    let (source, sink) = (&grid.sources[0], &grid.sinks[0]);
    let dim = source.strides.iter().position(|&stride| stride == 1)?;
    // One element for a whole row is faster written than gathered in blocks.
    let pays = dim != last
        && source.strides[last] != 0
        && sink.strides[last] == 1
        && grid.shape[dim] >= 8
        && grid.shape[last] >= 8;
    pays.then_some(dim)
}

/// # Safety
/// As [`copy_elements`]; the source has stride 1 in `rows`, the sink in the last dimension.
unsafe fn transpose<T: Copy>(grid: &Grid, rows: usize) {
    let last = grid.shape.len() - 1;
    let (source, sink) = (&grid.sources[0], &grid.sinks[0]);
    let outer: Dims = (0..last).filter(|&dim| dim != rows).collect();
    let matrices: usize = outer.iter().map(|&dim| grid.shape[dim]).product();
    let (height, width) = (grid.shape[rows], grid.shape[last]);
    let bands = height.div_ceil(BLOCK);
    parallel::run(matrices * bands, |task| {
        let (mut matrix, band) = (task / bands, task % bands);
        let (mut from, mut to) = (0, 0);
        for &dim in outer.iter().rev() {
            let index = matrix % grid.shape[dim];
            matrix /= grid.shape[dim];
            from += index * source.strides[dim];
            to += index * sink.strides[dim];
        }
        let top = band * BLOCK;
        let bottom = (top + BLOCK).min(height);
        for left in (0..width).step_by(BLOCK) {
            let right = (left + BLOCK).min(width);
            // SAFETY: rows and columns lie within the shape; tasks write disjoint bands.
            unsafe {
                block::<T>(
                    source,
                    sink,
                    (from, to),
                    (rows, last),
                    top..bottom,
                    left..right,
                )
            };
        }
    });
}

/// # Safety
/// All places of the block lie in both lanes.
#[inline]
unsafe fn block<T: Copy>(
    source: &Lane,
    sink: &Lane,
    (from, to): (usize, usize),
    (rows, last): (usize, usize),
    height: std::ops::Range<usize>,
    width: std::ops::Range<usize>,
) {
    let (source_step, sink_step) = (source.strides[last], sink.strides[rows]);
    // SAFETY: the caller's bound.
    unsafe {
        let source = source.ptr.cast_const().cast::<T>().add(from);
        let sink = sink.ptr.cast::<T>().add(to);
        for row in height {
            for column in width.clone() {
                sink.add(row * sink_step + column)
                    .write(source.add(row + column * source_step).read());
            }
        }
    }
}
