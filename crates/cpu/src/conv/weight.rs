//! The gradient of a convolution's weight: a product over pixels, summed over images in a fixed order.
//!
//! For each image, `grad[(channel, tap), out] += sum over pixels of slab[pixel + offset(channel, tap)] * grad_output
//! transposed [pixel, out]`. The slab is addressed, as everywhere; only `grad_output` is turned, band by band.

use super::Conv2dShape;
use super::slab::Pass;
use crate::gemm::scratch::with_scratch;
use crate::gemm::tile::{Steps, Store, Tile};
use crate::gemm::transpose::Block;
use crate::gemm::vector::RowDots;
use crate::gemm::{Float, Shared};
use crate::memory::HostMemoryError;
use crate::parallel;

/// Images are summed in at most so many groups, each into a buffer of its own.
const IMAGE_GROUPS: usize = 16;
/// Those buffers together stay below this many numbers where possible: 16 MB of f32.
const PARTIAL_NUMEL: usize = 1 << 22;
/// Pixels of a band: the turned `grad_output` of a band fits the second-level cache.
const BAND_PIXELS: usize = 512;
/// There are at least so many tasks where the channels allow.
const TASKS: usize = 16;

/// The order in which the pixels of a weight's gradient are added. Every number of it is the sum of groups of images, in order;
/// that of a group is the sum of the bands of its images, in order; that of a band is one sum over its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightSums {
    /// Images of a group; the last one may have fewer.
    pub images: usize,
    /// Rows of the output that a band has; the last one of an image may have fewer.
    pub band_rows: usize,
}

impl WeightSums {
    /// The order for a weight of `weight_numel` numbers, which is not empty, and outputs of `size`.
    pub(super) fn of(batch: usize, weight_numel: usize, size: [usize; 2]) -> WeightSums {
        let most = (PARTIAL_NUMEL / weight_numel).clamp(1, IMAGE_GROUPS);
        WeightSums {
            images: batch.div_ceil(batch.clamp(1, most)),
            band_rows: BAND_PIXELS.div_ceil(size[1]).min(size[0]),
        }
    }
}

/// Computes the gradient.
pub(super) fn backward_weight<T: Float>(
    shape: &Conv2dShape,
    size: [usize; 2],
    input: &[T],
    grad_output: &[T],
    grad_weight: &mut [T],
) -> Result<(), HostMemoryError> {
    let kernels = T::kernels();
    let groups = shape.groups;
    let channels = shape.in_channels / groups;
    let outs = shape.out_channels / groups;
    let kernel_numel = shape.kernel[0] * shape.kernel[1];
    let all_rows = channels * kernel_numel;
    let plane = size[0] * size[1];
    if shape.batch == 0 || grad_weight.is_empty() {
        grad_weight.fill(T::ZERO);
        return Ok(());
    }

    let WeightSums { images, band_rows } = WeightSums::of(shape.batch, grad_weight.len(), size);
    let image_groups = shape.batch.div_ceil(images);
    // More tasks, if there are too few, from splitting the channels: each copies its own into the slab.
    let chunks = TASKS
        .div_ceil(image_groups * groups)
        .clamp(1, channels.div_ceil(8));
    let chunk = channels.div_ceil(chunks);
    let chunks = channels.div_ceil(chunk);

    let mut taps = Vec::new();
    for y in 0..shape.kernel[0] {
        for x in 0..shape.kernel[1] {
            let tap = |dim: usize, at: usize| {
                (at * shape.dilation[dim]) as isize - shape.padding[dim] as isize
            };
            taps.push([tap(0, y), tap(1, x)]);
        }
    }
    let source = [shape.height, shape.width];
    let pass = Pass {
        channels: chunk,
        source,
        grid: size,
        step: shape.stride,
        taps,
    };
    let slab = pass.slab(band_rows);
    // Where each pixel of a band lies in the slab.
    let mut pixels = Vec::with_capacity(band_rows * size[1]);
    for y in 0..band_rows {
        pixels.extend((0..size[1]).map(|x| y * slab.width + x));
    }
    // The columns of a tile, evenly split.
    let tile_cols = outs
        .div_ceil(outs.div_ceil(kernels.cols))
        .next_multiple_of(kernels.lanes);

    with_scratch::<T>(image_groups * grad_weight.len(), |partials| {
        partials.fill(T::ZERO);
        let shared = Shared::new(partials);
        parallel::try_run(image_groups * groups * chunks, |task| {
            let (image_group, group, chunk_index) = (
                task / chunks / groups,
                task / chunks % groups,
                task % chunks,
            );
            let first_channel = chunk_index * chunk;
            let channel_count = chunk.min(channels - first_channel);
            let rows = channel_count * kernel_numel;
            // SAFETY: the rows of (image group, group, chunk) lie within `partials` and belong to this task alone.
            let partial = unsafe {
                let first = ((image_group * groups + group) * all_rows
                    + first_channel * kernel_numel)
                    * outs;
                shared.get().add(first)
            };
            with_scratch::<T>(band_rows * size[1] * outs, |turned| {
                with_scratch::<T>(slab.len, |scratch| {
                    for image in image_group * images..((image_group + 1) * images).min(shape.batch)
                    {
                        let channel = (image * groups + group) * channels + first_channel;
                        let out = (image * groups + group) * outs;
                        for first_row in (0..size[0]).step_by(band_rows) {
                            let depth = band_rows.min(size[0] - first_row) * size[1];
                            let from = &grad_output[out * plane + first_row * size[1]..];
                            let slab_start = slab.fill(
                                &pass,
                                input,
                                channel..channel + channel_count,
                                first_row,
                                scratch,
                            );
                            if outs == 1 {
                                // SAFETY: for the partial see above.
                                let partial =
                                    unsafe { std::slice::from_raw_parts_mut(partial, rows) };
                                let grads = &from[..depth];
                                by_dots(
                                    grads,
                                    size[1],
                                    slab_start,
                                    slab.width,
                                    &slab.offsets,
                                    partial,
                                );
                                continue;
                            }
                            // SAFETY: `depth` pixels of `outs` planes lie in grad_output from there on, and `turned`
                            // has room for them; pixels + offsets end within the slab; for the partial see above.
                            unsafe {
                                (kernels.transpose)(&Block {
                                    from: from.as_ptr(),
                                    from_stride: plane,
                                    to: turned.as_mut_ptr(),
                                    to_stride: outs,
                                    rows: outs,
                                    cols: depth,
                                });
                                for col in (0..outs).step_by(tile_cols) {
                                    for row in (0..rows).step_by(kernels.rows) {
                                        (kernels.tile)(&Tile {
                                            rows: kernels.rows.min(rows - row),
                                            cols: tile_cols.min(outs - col),
                                            depth,
                                            a: slab_start.as_ptr(),
                                            a_rows: slab.offsets[row..].as_ptr(),
                                            a_steps: Steps::Table(pixels.as_ptr()),
                                            b: turned.as_ptr().add(col),
                                            b_steps: Steps::Stride(outs),
                                            c: partial.add(row * outs + col),
                                            c_stride: outs,
                                            store: Store::Dense,
                                            alpha: T::ONE,
                                            beta: T::ONE,
                                            col_bias: std::ptr::null(),
                                            row_bias: std::ptr::null(),
                                        });
                                    }
                                }
                            }
                        }
                    }
                    Ok(())
                })
            })
        })?;

        // The groups of images in order, turned back.
        let partials = &*partials;
        let result = Shared::new(grad_weight);
        let group_numel = groups * all_rows * outs;
        parallel::run(groups * outs, |task| {
            let (group, out) = (task / outs, task % outs);
            for row in 0..all_rows {
                let at = (group * all_rows + row) * outs + out;
                let mut sum = partials[at];
                for image_group in 1..image_groups {
                    sum = sum + partials[image_group * group_numel + at];
                }
                // SAFETY: task < out_channels and row < the row length; the row belongs to this task alone.
                unsafe { *result.get().add(task * all_rows + row) = sum };
            }
        });
        Ok(())
    })
}

/// The case of one output channel in the group (depthwise): a dot product for each tap and each row of the grid.
///
/// `partial[tap] += sum over pixels of grads[pixel] * slab[pixel + offsets[tap]]`.
fn by_dots<T: Float>(
    grads: &[T],
    grid_width: usize,
    slab: &[T],
    slab_width: usize,
    offsets: &[usize],
    partial: &mut [T],
) {
    let kernels = T::kernels();
    let mut tap = 0;
    while tap < partial.len() {
        // Taps at equal distances go together.
        let distance = offsets
            .get(tap + 1)
            .map_or(0, |next| next.wrapping_sub(offsets[tap]));
        let mut end = tap + 1;
        while end < partial.len()
            && offsets[end] > offsets[end - 1]
            && offsets[end] - offsets[end - 1] == distance
        {
            end += 1;
        }
        for (y, grads) in grads.chunks_exact(grid_width).enumerate() {
            let a = &slab[y * slab_width + offsets[tap]..];
            debug_assert!(a.len() >= (end - 1 - tap) * distance + grid_width);
            // SAFETY: the taps' rows of the grid lie within the slab; `partial` has a number for each tap.
            unsafe {
                (kernels.row_dots)(&RowDots {
                    a: a.as_ptr(),
                    a_stride: distance,
                    x: grads.as_ptr(),
                    depth: grid_width,
                    rows: end - tap,
                    y: partial[tap..].as_mut_ptr(),
                    y_stride: 1,
                    alpha: T::ONE,
                    beta: T::ONE,
                });
            }
        }
        tap = end;
    }
}
