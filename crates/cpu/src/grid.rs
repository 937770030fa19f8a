//! `Grid`: the iteration space of a loop over strided operands.
//!
//! Dimensions are ordered by the output's memory and merged as far as all operands allow, so that a loop over
//! contiguous tensors of any shape has one dimension.

use fireclay_core::layout::merge_dims;
use fireclay_core::{DType, Dims};

/// An input in memory: its strides follow the dimensions of the evaluated shape, 0 where broadcast.
#[derive(Clone, Debug)]
pub struct Source {
    /// The first element.
    pub ptr: *const u8,
    /// Its type.
    pub dtype: DType,
    /// Steps in elements.
    pub strides: Dims,
}

/// An output in memory, as [`Source`].
#[derive(Clone, Debug)]
pub struct Sink {
    /// The first element.
    pub ptr: *mut u8,
    /// Its type.
    pub dtype: DType,
    /// Steps in elements; no two elements in one place.
    pub strides: Dims,
}

/// One operand's memory over the grid's dimensions.
pub(crate) struct Lane {
    pub(crate) ptr: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) strides: Dims,
}

/// The shape with dimensions merged as far as all operands allow, and the operands over it.
pub(crate) struct Grid {
    pub(crate) shape: Dims,
    pub(crate) numel: usize,
    pub(crate) sources: Vec<Lane>,
    pub(crate) sinks: Vec<Lane>,
}

// SAFETY: the pointers are only used by loops whose threads keep to disjoint ranges.
unsafe impl Sync for Lane {}

impl Grid {
    /// None where there is no element.
    pub(crate) fn new(shape: &[usize], sources: &[Source], sinks: &[Sink]) -> Option<Grid> {
        let numel: usize = shape.iter().product();
        if numel == 0 {
            return None;
        }
        let strides: Vec<&[usize]> = sources
            .iter()
            .map(|source| &source.strides[..])
            .chain(sinks.iter().map(|sink| &sink.strides[..]))
            .collect();
        let written = (!sinks.is_empty()).then_some(sources.len());
        let (merged, kept) = merge_dims(shape, &strides, written);
        let mut kept = kept.into_iter();
        let sources = sources
            .iter()
            .map(|source| Lane {
                ptr: source.ptr.cast_mut(),
                dtype: source.dtype,
                strides: kept.next().unwrap_or_default(),
            })
            .collect();
        let sinks = sinks
            .iter()
            .map(|sink| Lane {
                ptr: sink.ptr,
                dtype: sink.dtype,
                strides: kept.next().unwrap_or_default(),
            })
            .collect();
        Some(Grid {
            shape: merged,
            numel,
            sources,
            sinks,
        })
    }

    /// Where the sinks begin.
    pub(crate) fn sink_pointers(&self) -> smallvec::SmallVec<[*mut u8; 4]> {
        self.sinks.iter().map(|sink| sink.ptr).collect()
    }

    pub(crate) fn row(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// The place, in elements, of the flat index `index` in a lane.
    pub(crate) fn place(&self, lane: &Lane, mut index: usize) -> usize {
        let mut place = 0;
        for dim in (0..self.shape.len()).rev() {
            place += (index % self.shape[dim]) * lane.strides[dim];
            index /= self.shape[dim];
        }
        place
    }

    /// Whether `len` elements from flat index `start` lie side by side in a lane.
    pub(crate) fn is_run(&self, lane: &Lane, start: usize, len: usize) -> bool {
        let last = self.shape.len() - 1;
        lane.strides[last] == 1 && (last == 0 || start % self.row() + len <= self.row()) || len == 1
    }
}

/// Calls `run(place, at, count, stride)` for each piece of a row in the flat range: `count` elements from
/// `place`, `stride` apart, that are the elements `at..` of the range.
pub(crate) fn for_rows(
    grid: &Grid,
    lane: &Lane,
    start: usize,
    len: usize,
    mut run: impl FnMut(usize, usize, usize, usize),
) {
    let last = grid.shape.len() - 1;
    let row = grid.row();
    let stride = lane.strides[last];
    let mut index: Dims = smallvec::smallvec![0; grid.shape.len()];
    let mut rest = start;
    let mut place = 0;
    for dim in (0..=last).rev() {
        index[dim] = rest % grid.shape[dim];
        rest /= grid.shape[dim];
        place += index[dim] * lane.strides[dim];
    }
    let mut at = 0;
    while at < len {
        let count = (row - index[last]).min(len - at);
        run(place, at, count, stride);
        at += count;
        place += count * stride;
        index[last] += count;
        let mut dim = last;
        while index[dim] == grid.shape[dim] && dim > 0 {
            place -= grid.shape[dim] * lane.strides[dim];
            index[dim] = 0;
            dim -= 1;
            index[dim] += 1;
            place += lane.strides[dim];
        }
    }
}
