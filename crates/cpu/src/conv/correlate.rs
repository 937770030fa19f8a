//! Sums over channels and taps: the output of a convolution and the gradient of its input.

use super::Conv2dShape;
use super::slab::{Pass, Slab};
use crate::gemm::scratch::with_scratch;
use crate::gemm::tile::{Kept, Kernels, MAX_ROWS, Steps, Store, Tile};
use crate::gemm::{Float, Shared};
use crate::memory::{HostBuffer, HostMemoryError, vec_with_room};
use crate::parallel;

/// A slab is kept below this many numbers where a band of one row allows: 1 MB of f32.
const SLAB_NUMEL: usize = 1 << 18;
/// There are at least so many tasks where the image has the rows.
const TASKS: usize = 16;

/// Computes the output.
pub(super) fn forward<T: Float>(
    shape: &Conv2dShape,
    size: [usize; 2],
    input: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    output: &mut [T],
) -> Result<(), HostMemoryError> {
    let [kernel_height, kernel_width] = shape.kernel;
    let mut taps = Vec::new();
    for y in 0..kernel_height {
        for x in 0..kernel_width {
            let tap = |dim: usize, at: usize| {
                (at * shape.dilation[dim]) as isize - shape.padding[dim] as isize
            };
            taps.push([tap(0, y), tap(1, x)]);
        }
    }
    let channels = shape.in_channels / shape.groups;
    let kernel_numel = taps.len();
    let depth = channels * kernel_numel;
    let correlation = Correlation {
        pass: Pass {
            channels,
            source: [shape.height, shape.width],
            grid: size,
            step: shape.stride,
            taps,
        },
        results: shape.out_channels / shape.groups,
        result: size,
        result_step: [1, 1],
        result_first: [0, 0],
    };
    let results = correlation.results;
    let at = |group: usize, result: usize, channel: usize, tap: usize| {
        weight[(group * results + result) * depth + channel * kernel_numel + tap]
    };
    correlation.run(shape.batch, shape.groups, input, at, bias, output)
}

/// Computes the gradient of the input.
///
/// Input pixel `i` of a dim took part in output `o` through tap `t` where `i + padding = o * stride + t * dilation`.
/// Pixels with the same remainder by the stride share their taps: one pass for each remainder, over outputs
/// in steps of 1.
pub(super) fn backward_input<T: Float>(
    shape: &Conv2dShape,
    size: [usize; 2],
    weight: &[T],
    grad_output: &[T],
    grad_input: &mut [T],
) -> Result<(), HostMemoryError> {
    let source = [shape.height, shape.width];
    let channels = shape.out_channels / shape.groups;
    let results = shape.in_channels / shape.groups;
    let kernel_numel = shape.kernel[0] * shape.kernel[1];
    // The taps of one dim that remainder `first` has, with the offset of the output from the grid.
    let dim_taps = |dim: usize, first: usize| -> Vec<(usize, isize)> {
        let stride = shape.stride[dim] as isize;
        (0..shape.kernel[dim])
            .map(|tap| {
                (
                    tap,
                    (first + shape.padding[dim]) as isize - (tap * shape.dilation[dim]) as isize,
                )
            })
            .filter(|(_, distance)| distance.rem_euclid(stride) == 0)
            .map(|(tap, distance)| (tap, distance.div_euclid(stride)))
            .collect()
    };
    for first_y in 0..shape.stride[0].min(source[0]) {
        for first_x in 0..shape.stride[1].min(source[1]) {
            let mut taps = Vec::new();
            let mut places = Vec::new();
            for &(y, offset_y) in &dim_taps(0, first_y) {
                for &(x, offset_x) in &dim_taps(1, first_x) {
                    taps.push([offset_y, offset_x]);
                    places.push(y * shape.kernel[1] + x);
                }
            }
            let grid = [
                (source[0] - first_y).div_ceil(shape.stride[0]),
                (source[1] - first_x).div_ceil(shape.stride[1]),
            ];
            let correlation = Correlation {
                pass: Pass {
                    channels,
                    source: size,
                    grid,
                    step: [1, 1],
                    taps,
                },
                results,
                result: source,
                result_step: shape.stride,
                result_first: [first_y, first_x],
            };
            let at = |group: usize, result: usize, channel: usize, tap: usize| {
                weight
                    [((group * channels + channel) * results + result) * kernel_numel + places[tap]]
            };
            correlation.run(shape.batch, shape.groups, grad_output, at, None, grad_input)?;
        }
    }
    Ok(())
}

/// A pass over source images with weights, and where its results go.
struct Correlation {
    /// What is read.
    pass: Pass,
    /// Result channels of a group.
    results: usize,
    /// Height and width of a result plane.
    result: [usize; 2],
    /// Result coordinates per grid coordinate.
    result_step: [usize; 2],
    /// Result coordinates of grid point 0.
    result_first: [usize; 2],
}

/// A number of grid rows that one task computes.
struct Band {
    rows: usize,
    slab: Slab,
    /// How each vector is stored, where the slab is wider than the result.
    kept: Vec<Kept>,
    /// How each column is stored, where results are not side by side.
    scatter: Vec<usize>,
}

impl Correlation {
    /// Runs over all images and groups, with `weight(group, result, channel, tap)`.
    fn run<T: Float>(
        &self,
        batch: usize,
        groups: usize,
        source: &[T],
        weight: impl Fn(usize, usize, usize, usize) -> T + Sync,
        bias: Option<&[T]>,
        result: &mut [T],
    ) -> Result<(), HostMemoryError> {
        let kernels = T::kernels();
        let [grid_height, grid_width] = self.pass.grid;
        if batch == 0 || self.results == 0 || grid_height == 0 || grid_width == 0 {
            return Ok(());
        }
        let depth = self.pass.channels * self.pass.taps.len();
        let band_rows = self.band_rows(batch * groups);
        let bands = grid_height.div_ceil(band_rows);
        let full = self.band(band_rows, kernels)?;
        let rest = match grid_height % band_rows {
            0 => None,
            rows => Some(self.band(rows, kernels)?),
        };
        let padded_results = self.results.next_multiple_of(kernels.rows);
        with_scratch::<T>(groups * padded_results * depth, |packed| {
            self.pack(groups, weight, kernels.rows, packed);
            let packed = &*packed;
            let result = Shared::new(result);
            parallel::try_run(batch * groups * bands, |task| {
                let (image, group, index) =
                    (task / bands / groups, task / bands % groups, task % bands);
                let band = match &rest {
                    Some(rest) if index + 1 == bands => rest,
                    _ => &full,
                };
                let first_row = index * band_rows;
                let packed = &packed[group * padded_results * depth..][..padded_results * depth];
                let first_channel = (image * groups + group) * self.pass.channels;
                let first_result = (image * groups + group) * self.results;
                let bias = bias.map(|bias| &bias[group * self.results..][..self.results]);
                with_scratch::<T>(band.slab.len, |scratch| {
                    let channels = first_channel..first_channel + self.pass.channels;
                    let slab = band
                        .slab
                        .fill(&self.pass, source, channels, first_row, scratch);
                    // SAFETY: the slab has every offset of the band; the results of (image, group, band) are
                    // within `result` and belong to this task alone.
                    unsafe {
                        self.band_results(
                            band,
                            first_row,
                            slab,
                            packed,
                            bias,
                            first_result,
                            result,
                            kernels,
                        )
                    };
                    Ok(())
                })
            })
        })
    }

    /// Rows of a band: a slab of limited size, tasks for every thread, but not so few pixels that tiles run dry.
    fn band_rows(&self, images: usize) -> usize {
        let [height, width] = self.pass.grid;
        let (one, more) = self.pass.slab_cost();
        let fitting = SLAB_NUMEL
            .saturating_sub(one)
            .checked_div(more)
            .map_or(height, |rows| rows + 1);
        let shared = height
            .div_ceil(TASKS.div_ceil(images))
            .max(96usize.div_ceil(width));
        let rows = fitting.min(shared).clamp(1, height);
        height.div_ceil(height.div_ceil(rows))
    }

    fn band<T>(&self, rows: usize, kernels: &Kernels<T>) -> Result<Band, HostMemoryError> {
        let slab = self.pass.slab(rows);
        // The slab itself is had by each task, but if it can't be had, there is no use in preparing for it.
        drop(HostBuffer::allocate(
            slab.len.saturating_mul(size_of::<T>()),
        )?);
        let grid_width = self.pass.grid[1];
        let points = (rows - 1) * slab.width + grid_width;
        let mut kept = Vec::new();
        let mut scatter = Vec::new();
        if self.result_step != [1, 1] {
            scatter = vec_with_room(points)?;
            for point in 0..points {
                let (y, x) = (point / slab.width, point % slab.width);
                let place = y * self.result_step[0] * self.result[1] + x * self.result_step[1];
                scatter.push(if x < grid_width {
                    place
                } else {
                    Store::NOWHERE
                });
            }
        } else if slab.width != grid_width {
            kept = vec_with_room(points.div_ceil(kernels.lanes))?;
            for first in (0..points).step_by(kernels.lanes) {
                let mut lanes = 0;
                for lane in 0..kernels.lanes.min(points - first) {
                    if (first + lane) % slab.width < grid_width {
                        lanes |= 1 << lane;
                    }
                }
                let (y, x) = (first / slab.width, first % slab.width);
                kept.push(Kept {
                    lanes,
                    offset: y * grid_width + x.min(grid_width),
                });
            }
        }
        Ok(Band {
            rows,
            slab,
            kept,
            scatter,
        })
    }

    /// Puts the weights into panels: `packed[group][result / rows][channel, tap][result % rows]`.
    fn pack<T: Float>(
        &self,
        groups: usize,
        weight: impl Fn(usize, usize, usize, usize) -> T + Sync,
        rows: usize,
        packed: &mut [T],
    ) {
        let taps = self.pass.taps.len();
        let panels = self.results.div_ceil(rows);
        let panel_len = rows * self.pass.channels * taps;
        assert_eq!(packed.len(), groups * panels * panel_len);
        if panel_len == 0 {
            return;
        }
        let packed = Shared::new(packed);
        parallel::run(groups * panels, |index| {
            let (group, first) = (index / panels, index % panels * rows);
            // SAFETY: index < groups * panels, so the panel is within `packed`; it belongs to this task alone.
            let panel = unsafe {
                std::slice::from_raw_parts_mut(packed.get().add(index * panel_len), panel_len)
            };
            for row in 0..rows.min(self.results - first) {
                let mut places = panel[row..].iter_mut().step_by(rows);
                for channel in 0..self.pass.channels {
                    for (tap, place) in (0..taps).zip(&mut places) {
                        *place = weight(group, first + row, channel, tap);
                    }
                }
            }
        });
    }

    /// # Safety
    /// `slab` is filled for the band; its results are within `result`, and nobody else uses them.
    #[expect(clippy::too_many_arguments, reason = "private; what a task works on")]
    unsafe fn band_results<T: Float>(
        &self,
        band: &Band,
        first_row: usize,
        slab: &[T],
        packed: &[T],
        bias: Option<&[T]>,
        first_result: usize,
        result: Shared<T>,
        kernels: &Kernels<T>,
    ) {
        let depth = self.pass.channels * self.pass.taps.len();
        let plane = self.result[0] * self.result[1];
        let points = (band.rows - 1) * band.slab.width + self.pass.grid[1];
        let mut a_rows = [0; MAX_ROWS];
        for (index, row) in a_rows.iter_mut().enumerate() {
            *row = index;
        }
        let origin = (first_row * self.result_step[0] + self.result_first[0]) * self.result[1]
            + self.result_first[1];
        for point in (0..points).step_by(kernels.cols) {
            let cols = kernels.cols.min(points - point);
            let (store, offset) = if !band.scatter.is_empty() {
                (Store::Scatter(band.scatter[point..].as_ptr()), 0)
            } else if !band.kept.is_empty() {
                (Store::Kept(band.kept[point / kernels.lanes..].as_ptr()), 0)
            } else {
                (Store::Dense, point)
            };
            for row in (0..self.results).step_by(kernels.rows) {
                // SAFETY: points + offsets end within the slab; packed has a panel for every `rows` results; the
                // stores go to grid points of the band in planes of this group.
                unsafe {
                    (kernels.tile)(&Tile {
                        rows: kernels.rows.min(self.results - row),
                        cols,
                        depth,
                        a: packed.as_ptr().add(row * depth),
                        a_rows: a_rows.as_ptr(),
                        a_steps: Steps::Stride(kernels.rows),
                        b: slab.as_ptr().wrapping_add(point),
                        b_steps: Steps::Table(band.slab.offsets.as_ptr()),
                        c: result
                            .get()
                            .add((first_result + row) * plane + origin + offset),
                        c_stride: plane,
                        store,
                        alpha: T::ONE,
                        beta: T::ZERO,
                        col_bias: std::ptr::null(),
                        row_bias: bias.map_or(std::ptr::null(), |bias| bias[row..].as_ptr()),
                    });
                }
            }
        }
    }
}
