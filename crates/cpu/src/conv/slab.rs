//! The slab: a band of an image, padded with zeros, in which every tap of a kernel is a fixed offset.
//!
//! A *pass* asks, for each point `q` of a grid, for the source at `q * step + tap`, for every channel and tap.
//! With a step above 1 the slab holds one plane per remainder of the source coordinates by the step, so
//! that neighbours in the grid are neighbours in the slab. Rows of the slab are wider than the grid by the reach
//! of the taps; a kernel runs over the whole row, and what it computes beyond the grid is not stored.

use crate::gemm::Float;
use std::ops::Range;

/// Up to so many channels, a source that needs no padding is read in place, however large.
const DIRECT_CHANNELS: usize = 16;
/// Up to so many numbers a plane, a source that needs no padding is read in place, however many channels.
const DIRECT_PLANE: usize = 1024;

/// What is asked of a source image.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    /// Channels of the source that are summed over.
    pub(super) channels: usize,
    /// Height and width of the source.
    pub(super) source: [usize; 2],
    /// Height and width of the grid.
    pub(super) grid: [usize; 2],
    /// Source coordinates per grid coordinate.
    pub(super) step: [usize; 2],
    /// Offsets in source coordinates; may point outside, where the source is 0.
    pub(super) taps: Vec<[isize; 2]>,
}

/// How a band of grid rows lies in memory.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    /// Whether the source itself serves: nothing is padded, steps are 1.
    direct: bool,
    /// The lowest tap in either dim.
    origin: [isize; 2],
    /// Planes per channel in either dim.
    remainders: [usize; 2],
    /// Rows of a plane.
    rows: usize,
    /// Width of a plane: the distance between grid rows.
    pub(super) width: usize,
    /// Numbers of scratch memory.
    pub(super) len: usize,
    /// Where tap `t` of channel `c` lies, at `c * taps + t`, counted from the place of the grid point.
    pub(super) offsets: Vec<usize>,
}

impl Pass {
    /// The slab for a band of `rows` grid rows.
    pub(super) fn slab(&self, rows: usize) -> Slab {
        let mut slab = self.layout(rows);
        slab.offsets = self.offsets(&slab);
        slab
    }

    /// The slab without its offsets.
    fn layout(&self, rows: usize) -> Slab {
        let mut low = [0; 2];
        let mut high = [0; 2];
        for dim in 0..2 {
            low[dim] = self.taps.iter().map(|tap| tap[dim]).min().unwrap_or(0);
            high[dim] = self.taps.iter().map(|tap| tap[dim]).max().unwrap_or(0);
        }
        let [height, width] = self.source;
        let inside = |dim: usize| {
            let last = high[dim] + self.grid[dim] as isize - 1;
            low[dim] >= 0 && last < self.source[dim] as isize
        };
        // Many channels far apart are copied all the same: each step of a sum would touch another page.
        let close = self.channels <= DIRECT_CHANNELS || height * width <= DIRECT_PLANE;
        if close && self.step == [1, 1] && inside(0) && inside(1) {
            return Slab {
                direct: true,
                origin: low,
                remainders: [1, 1],
                rows: height,
                width,
                len: 0,
                offsets: Vec::new(),
            };
        }
        let reach = [(high[0] - low[0]) as usize, (high[1] - low[1]) as usize];
        let remainders = [
            self.step[0].min(reach[0] + 1),
            self.step[1].min(reach[1] + 1),
        ];
        let plane_rows = rows + reach[0] / self.step[0];
        let plane_width = self.grid[1] + reach[1] / self.step[1];
        let plane = plane_rows * plane_width;
        Slab {
            direct: false,
            origin: low,
            remainders,
            rows: plane_rows,
            width: plane_width,
            len: self.channels * remainders[0] * remainders[1] * plane,
            offsets: Vec::new(),
        }
    }

    /// Where the taps of each channel lie in the slab.
    fn offsets(&self, slab: &Slab) -> Vec<usize> {
        let plane = slab.rows * slab.width;
        let place = |tap: &[isize; 2]| {
            if slab.direct {
                return tap[0] as usize * slab.width + tap[1] as usize;
            }
            let y = (tap[0] - slab.origin[0]) as usize;
            let x = (tap[1] - slab.origin[1]) as usize;
            let plane_index = y % self.step[0] * slab.remainders[1] + x % self.step[1];
            plane_index * plane + y / self.step[0] * slab.width + x / self.step[1]
        };
        let taps: Vec<usize> = self.taps.iter().map(place).collect();
        let channel_len = slab.remainders[0] * slab.remainders[1] * plane;
        let mut offsets = Vec::with_capacity(self.channels * taps.len());
        for channel in 0..self.channels {
            offsets.extend(taps.iter().map(|tap| channel * channel_len + tap));
        }
        offsets
    }

    /// Numbers of scratch memory for one grid row, and for each further one.
    pub(super) fn slab_cost(&self) -> (usize, usize) {
        let one = self.layout(1).len;
        (one, self.layout(2).len - one)
    }
}

impl Slab {
    /// The place of the band's first grid point, from which the offsets count: in `scratch`, filled from the source
    /// images of `channels`, or in the source itself.
    pub(super) fn fill<'a, T: Float>(
        &self,
        pass: &Pass,
        source: &'a [T],
        channels: Range<usize>,
        first_row: usize,
        scratch: &'a mut [T],
    ) -> &'a [T] {
        let [height, width] = pass.source;
        if self.direct {
            return &source[channels.start * height * width + first_row * width
                ..channels.end * height * width];
        }
        let mut planes = scratch.chunks_exact_mut(self.rows * self.width);
        for channel in channels {
            let image = &source[channel * height * width..][..height * width];
            for y_remainder in 0..self.remainders[0] {
                for x_remainder in 0..self.remainders[1] {
                    let plane = planes.next().expect("scratch memory for every plane");
                    let first_x = self.origin[1] + x_remainder as isize;
                    for (index, row) in plane.chunks_exact_mut(self.width).enumerate() {
                        let y = ((first_row + index) * pass.step[0] + y_remainder) as isize
                            + self.origin[0];
                        match usize::try_from(y) {
                            Ok(y) if y < height => {
                                copy_row(&image[y * width..][..width], first_x, pass.step[1], row);
                            }
                            _ => row.fill(T::ZERO),
                        }
                    }
                }
            }
        }
        scratch
    }
}

/// `to[i] = from[first + i * step]`, or 0 where that is outside.
fn copy_row<T: Float>(from: &[T], first: isize, step: usize, to: &mut [T]) {
    let before = usize::try_from(-first)
        .unwrap_or(0)
        .div_ceil(step)
        .min(to.len());
    let (zeros, to) = to.split_at_mut(before);
    zeros.fill(T::ZERO);
    let start = (first + (before * step) as isize).max(0) as usize;
    let from = from.get(start..).unwrap_or(&[]);
    let count = from.len().div_ceil(step).min(to.len());
    let (inside, zeros) = to.split_at_mut(count);
    if step == 1 {
        copy_short(&from[..count], inside);
    } else {
        for (to, &from) in inside.iter_mut().zip(from.iter().step_by(step)) {
            *to = from;
        }
    }
    zeros.fill(T::ZERO);
}

/// Copies a row, in pieces: most rows are too short for the call that a copy otherwise becomes.
#[inline(always)]
fn copy_short<T: Float>(from: &[T], to: &mut [T]) {
    let (from_pieces, from_rest) = from.as_chunks::<8>();
    let (to_pieces, to_rest) = to.as_chunks_mut::<8>();
    for (to, from) in to_pieces.iter_mut().zip(from_pieces) {
        *to = *from;
    }
    for (to, from) in to_rest.iter_mut().zip(from_rest) {
        *to = *from;
    }
}
