//! Normalisation: layer, RMS and group norm over rows, batch norm over channels, forward and backward.
//!
//! Sums run in a fixed number of lanes of the data's type over blocks, and the blocks add up in f64, so results depend on
//! the shape alone. Variances take a second pass over the centred values. The kernels of `norm.cu` have the same order.

use std::ops::Range;

use crate::gemm::Float;
use crate::parallel;
use crate::vectorize::{Parts, vectorized_loops};

/// Lanes of a sum.
const LANES: usize = 64;
/// Numbers whose sum is kept in lanes before it goes to f64.
const BLOCK: usize = 4096;
/// Numbers a parallel task works on at least.
const TASK: usize = 1 << 15;
/// Rows whose parameters' gradients are added from the first to the last.
pub const ROW_GROUP: usize = 24;
/// How many such sums are added in turn, until one is left.
pub const SUM_GROUP: usize = 64;
/// The most numbers of a plane that make a chunk of a channel.
pub const CHUNK: usize = 512;
/// Planes of fewer numbers are narrow: [`NARROW_IMAGES`] of them make a chunk.
pub const NARROW: usize = 32;
/// How many narrow planes make a chunk of a channel.
pub const NARROW_IMAGES: usize = 32;

/// Sums `f` of corresponding elements, in a fixed order.
#[inline(always)]
fn sum_of<T: Float, const N: usize>(slices: [&[T]; N], f: impl Fn([T; N]) -> T) -> f64 {
    let len = slices[0].len();
    let mut total = 0.0;
    let mut start = 0;
    while start < len {
        let end = (start + BLOCK).min(len);
        let block: [&[T]; N] = slices.map(|slice| &slice[start..end]);
        let mut lanes = [T::ZERO; LANES];
        let whole = (end - start) / LANES * LANES;
        let mut at = 0;
        while at < whole {
            let chunk: [&[T]; N] = block.map(|slice| &slice[at..at + LANES]);
            for lane in 0..LANES {
                lanes[lane] = lanes[lane] + f(chunk.map(|slice| slice[lane]));
            }
            at += LANES;
        }
        for lane in 0..end - start - whole {
            lanes[lane] = lanes[lane] + f(block.map(|slice| slice[whole + lane]));
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = lanes[lane] + lanes[lane + width];
            }
            width /= 2;
        }
        total += lanes[0].to_f64();
        start = end;
    }
    total
}

/// Rows that are normalised each by itself.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// How many.
    pub rows: usize,
    /// Numbers of each.
    pub cols: usize,
    /// Whether their mean becomes 0: not in RMS norm.
    pub centered: bool,
    /// Weight and bias have the numbers of this many rows, one after the other: more than one in group norm.
    pub groups: usize,
    /// How many neighbours of a row share a number of weight and bias.
    pub plane: usize,
}

impl Rows {
    /// How many numbers weight and bias have.
    pub fn parameters(self) -> usize {
        self.groups * self.cols / self.plane.max(1)
    }

    /// Whether each column has a number of weight and bias, the same in all rows.
    fn by_column(self) -> bool {
        self.groups == 1 && self.plane == 1
    }

    /// The rows as images whose channels have a weight each.
    fn channels(self) -> Channels {
        Channels {
            batch: self.rows / self.groups,
            channels: self.parameters(),
            plane: self.plane,
        }
    }

    fn check(self) {
        assert!(
            self.by_column()
                || self.rows.is_multiple_of(self.groups) && self.cols.is_multiple_of(self.plane)
        );
    }

    /// Calls `visit` for each stretch of columns of row `row` and the parameters of it: one for each column, or one for all.
    #[inline(always)]
    fn for_each_stretch(self, row: usize, mut visit: impl FnMut(Range<usize>, Range<usize>)) {
        if self.plane == 1 {
            let first = row % self.groups * self.cols;
            return visit(0..self.cols, first..first + self.cols);
        }
        let count = self.cols / self.plane;
        let first = row % self.groups * count;
        for at in 0..count {
            visit(
                at * self.plane..(at + 1) * self.plane,
                first + at..first + at + 1,
            );
        }
    }
}

/// `y = (x - mean) * rstd * weight + bias` for each row; `rstd` is `1 / sqrt(variance + eps)`
/// (`torch.nn.functional.layer_norm`, `group_norm`). Rows that aren't centred have no mean: `y = x * rstd * weight`, the
/// variance being the mean square (`rms_norm`). Empty weight and bias count as ones and zeros.
///
/// # Panics
/// If a slice doesn't have the length that the sizes say.
#[expect(
    clippy::too_many_arguments,
    reason = "operands and results of a kernel"
)]
pub fn row_norm<T: Float>(
    x: &[T],
    sizes: Rows,
    weight: &[T],
    bias: &[T],
    eps: f64,
    y: &mut [T],
    mean: &mut [T],
    rstd: &mut [T],
) {
    let Rows { rows, cols, .. } = sizes;
    sizes.check();
    assert!(x.len() == rows * cols && y.len() == x.len());
    assert!(rstd.len() == rows && mean.len() == if sizes.centered { rows } else { 0 });
    if cols == 0 {
        return;
    }
    assert!(weight.is_empty() || weight.len() == sizes.parameters());
    assert!(bias.is_empty() || bias.len() == sizes.parameters());
    let (y, mean, rstd) = (Parts::new(y), Parts::new(mean), Parts::new(rstd));
    let per_task = (TASK / cols).max(1);
    parallel::for_ranges(rows, per_task, |range| {
        vectorized_loops(
            #[inline(always)]
            || {
                for row in range {
                    let x = &x[row * cols..][..cols];
                    // SAFETY: each row belongs to one task.
                    let y = unsafe { y.part(row * cols, cols) };
                    let center = match sizes.centered {
                        true => T::from_f64(sum_of([x], |[x]| x) / cols as f64),
                        false => T::ZERO,
                    };
                    let variance = sum_of([x], |[x]| (x - center) * (x - center)) / cols as f64;
                    let scale = T::from_f64(1.0 / (variance + eps).sqrt());
                    sizes.for_each_stretch(row, |columns, places| {
                        let part =
                            |parameter: &'_ [T]| (!parameter.is_empty()).then(|| places.clone());
                        affine(
                            &x[columns.clone()],
                            &mut y[columns],
                            [center, scale],
                            part(weight).map(|places| &weight[places]),
                            part(bias).map(|places| &bias[places]),
                        );
                    });
                    // SAFETY: as above.
                    unsafe {
                        if sizes.centered {
                            mean.part(row, 1)[0] = center;
                        }
                        rstd.part(row, 1)[0] = scale;
                    }
                }
            },
        );
    });
}

/// `y = (x - center) * scale * weight + bias` for weights and biases of as many numbers, or of one for all.
#[inline(always)]
fn affine<T: Float>(
    x: &[T],
    y: &mut [T],
    [center, scale]: [T; 2],
    weight: Option<&[T]>,
    bias: Option<&[T]>,
) {
    let pairs = y.iter_mut().zip(x);
    match (weight, bias) {
        (None, None) => pairs.for_each(|(y, &x)| *y = (x - center) * scale),
        (Some(&[weight]), None) => pairs.for_each(|(y, &x)| *y = (x - center) * scale * weight),
        (None, Some(&[bias])) => pairs.for_each(|(y, &x)| *y = (x - center) * scale + bias),
        (Some(&[weight]), Some(&[bias])) => {
            pairs.for_each(|(y, &x)| *y = (x - center) * scale * weight + bias);
        }
        (Some(weight), None) => {
            for ((y, &x), &weight) in pairs.zip(weight) {
                *y = (x - center) * scale * weight;
            }
        }
        (None, Some(bias)) => {
            for ((y, &x), &bias) in pairs.zip(bias) {
                *y = (x - center) * scale + bias;
            }
        }
        (Some(weight), Some(bias)) => {
            for (((y, &x), &weight), &bias) in pairs.zip(weight).zip(bias) {
                *y = (x - center) * scale * weight + bias;
            }
        }
    }
}

/// The gradients of [`row_norm`]: of the input, and (where the slices aren't empty) of weight and bias.
///
/// Those of weight and bias are sums over rows: [`ROW_GROUP`] rows from the first to the last, then [`SUM_GROUP`] of these
/// sums, and so on until one is left. Of group norm they are sums over channels, as those of [`batch_norm_backward`].
///
/// # Panics
/// If a slice doesn't have the length that the sizes say.
#[expect(
    clippy::too_many_arguments,
    reason = "operands and results of a kernel"
)]
pub fn row_norm_backward<T: Float>(
    x: &[T],
    grad: &[T],
    sizes: Rows,
    weight: &[T],
    mean: &[T],
    rstd: &[T],
    grad_x: &mut [T],
    grad_weight: &mut [T],
    grad_bias: &mut [T],
) {
    let Rows { rows, cols, .. } = sizes;
    sizes.check();
    assert!(x.len() == rows * cols && grad.len() == x.len() && grad_x.len() == x.len());
    assert!(rstd.len() == rows && mean.len() == if sizes.centered { rows } else { 0 });
    grad_weight.fill(T::ZERO);
    grad_bias.fill(T::ZERO);
    if cols == 0 || rows == 0 {
        return;
    }
    assert!(weight.is_empty() || weight.len() == sizes.parameters());
    let center = |row: usize| mean.get(row).copied().unwrap_or(T::ZERO);
    let wanted = !grad_weight.is_empty() || !grad_bias.is_empty();
    let parameters = wanted && sizes.by_column();
    // A task has whole groups of rows.
    let per_task = (TASK / cols).max(1).next_multiple_of(ROW_GROUP);
    let groups = if parameters {
        rows.div_ceil(ROW_GROUP)
    } else {
        0
    };
    let mut partial = vec![T::ZERO; groups * 2 * cols];
    {
        let (grad_x, partial) = (Parts::new(grad_x), Parts::new(&mut partial));
        parallel::for_ranges(rows, per_task, |range| {
            vectorized_loops(
                #[inline(always)]
                || {
                    for row in range {
                        let (x, grad) = (&x[row * cols..][..cols], &grad[row * cols..][..cols]);
                        let (center, scale) = (center(row), rstd[row]);
                        // SAFETY: each row belongs to one task.
                        let grad_x = unsafe { grad_x.part(row * cols, cols) };
                        if weight.is_empty() {
                            grad_x.copy_from_slice(grad);
                        } else {
                            sizes.for_each_stretch(row, |columns, places| {
                                let grads = grad_x[columns.clone()].iter_mut().zip(&grad[columns]);
                                match weight[places] {
                                    [weight] => grads.for_each(|(out, &grad)| *out = grad * weight),
                                    ref weight => {
                                        for ((out, &grad), &weight) in grads.zip(weight) {
                                            *out = grad * weight;
                                        }
                                    }
                                }
                            });
                        }
                        row_gradient(x, center, scale, sizes.centered, grad_x);
                        if parameters {
                            let group = row / ROW_GROUP;
                            // SAFETY: each group of rows belongs to one task.
                            let partial = unsafe { partial.part(group * 2 * cols, 2 * cols) };
                            let (of_weight, of_bias) = partial.split_at_mut(cols);
                            for (((sum, sum_bias), &x), &grad) in of_weight
                                .iter_mut()
                                .zip(of_bias.iter_mut())
                                .zip(x)
                                .zip(grad)
                            {
                                *sum = *sum + grad * ((x - center) * scale);
                                *sum_bias = *sum_bias + grad;
                            }
                        }
                    }
                },
            );
        });
    }
    if parameters {
        let sums = sum_in_groups(partial, 2 * cols);
        let (of_weight, of_bias) = sums.split_at(cols);
        grad_weight
            .iter_mut()
            .zip(of_weight)
            .for_each(|(to, &sum)| *to = sum);
        grad_bias
            .iter_mut()
            .zip(of_bias)
            .for_each(|(to, &sum)| *to = sum);
    } else if wanted {
        let channels = sizes.channels();
        let statistic = |image: usize, channel: usize| {
            let row = image * sizes.groups + channel / (channels.channels / sizes.groups);
            [center(row), rstd[row]]
        };
        let [totals, dots] = channel_gradients(x, grad, channels, statistic);
        grad_weight
            .iter_mut()
            .zip(dots)
            .for_each(|(to, sum)| *to = T::from_f64(sum));
        grad_bias
            .iter_mut()
            .zip(totals)
            .for_each(|(to, sum)| *to = T::from_f64(sum));
    }
}

/// Adds rows of `width` numbers: [`SUM_GROUP`] of them from the first to the last, and so on until one is left.
fn sum_in_groups<T: Float>(mut rows: Vec<T>, width: usize) -> Vec<T> {
    while rows.len() > width {
        let groups = (rows.len() / width).div_ceil(SUM_GROUP);
        let mut sums = vec![T::ZERO; groups * width];
        let parts = Parts::new(&mut sums);
        parallel::run(groups, |group| {
            // SAFETY: each group has a sum of its own.
            let sums = unsafe { parts.part(group * width, width) };
            vectorized_loops(
                #[inline(always)]
                || {
                    let start = group * SUM_GROUP * width;
                    let end = (start + SUM_GROUP * width).min(rows.len());
                    for row in rows[start..end].chunks_exact(width) {
                        for (sum, &part) in sums.iter_mut().zip(row) {
                            *sum = *sum + part;
                        }
                    }
                },
            );
        });
        rows = sums;
    }
    rows
}

/// The gradient of a row of the input, from that of the normalised value, which it overwrites.
#[inline(always)]
fn row_gradient<T: Float>(x: &[T], mean: T, rstd: T, centered: bool, grad: &mut [T]) {
    let cols = x.len() as f64;
    let average = match centered {
        true => T::from_f64(sum_of([&*grad], |[grad]| grad) / cols),
        false => T::ZERO,
    };
    let slope = T::from_f64(sum_of([x, grad], |[x, grad]| grad * ((x - mean) * rstd)) / cols);
    for (out, &x) in grad.iter_mut().zip(x) {
        *out = (*out - average - (x - mean) * rstd * slope) * rstd;
    }
}

/// The sizes of a batch of images: `batch` times `channels` planes of `plane` numbers.
///
/// The numbers of a channel are summed in chunks: pieces of a plane of at most [`CHUNK`], summed in lanes; or, where planes are
/// narrow, [`NARROW_IMAGES`] planes, each summed from the first to the last and then added in f64. The chunks' sums are summed
/// in lanes in f64. So a channel is read once for its sums, by as many tasks as there are chunks.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    /// Images.
    pub batch: usize,
    /// Channels of each.
    pub channels: usize,
    /// Numbers of a channel of an image.
    pub plane: usize,
}

impl Channels {
    fn numel(self) -> usize {
        self.batch * self.channels * self.plane
    }

    /// Whether a chunk has several planes.
    pub fn is_narrow(self) -> bool {
        self.plane < NARROW
    }

    /// Pieces of a plane.
    pub fn pieces(self) -> usize {
        self.plane.div_ceil(CHUNK)
    }

    /// Chunks of a channel.
    pub fn chunks(self) -> usize {
        match self.is_narrow() {
            true => self.batch.div_ceil(NARROW_IMAGES),
            false => self.batch * self.pieces(),
        }
    }

    /// Numbers of chunk `chunk` of a channel.
    fn chunk_len(self, chunk: usize) -> usize {
        if self.is_narrow() {
            (self.batch - chunk * NARROW_IMAGES).min(NARROW_IMAGES) * self.plane
        } else {
            (self.plane - chunk % self.pieces() * CHUNK).min(CHUNK)
        }
    }

    /// Fills tables `[channels, chunks]` with what `sums` gives for each chunk: its channel, its first image, and a function
    /// that sums over it a function of places.
    fn tables<const N: usize>(self, sums: impl Fn(&Chunk) -> [f64; N] + Sync) -> [Vec<f64>; N] {
        let chunks = self.chunks();
        let mut tables = [(); N].map(|()| vec![0.0; self.channels * chunks]);
        let parts = tables.each_mut().map(|table| Parts::new(table));
        let images = if self.is_narrow() { NARROW_IMAGES } else { 1 };
        let pieces = if self.is_narrow() { 1 } else { self.pieces() };
        // A task has all channels of some images.
        let per_task = (TASK / (self.channels * self.plane * images).max(1)).max(1);
        let strips = self.batch.div_ceil(images);
        parallel::for_ranges(strips, per_task, |range| {
            vectorized_loops(
                #[inline(always)]
                || {
                    for strip in range {
                        for (channel, piece) in
                            (0..self.channels).flat_map(|c| (0..pieces).map(move |p| (c, p)))
                        {
                            let chunk = strip * pieces + piece;
                            let first = strip * images;
                            let start = (first * self.channels + channel) * self.plane;
                            let values = sums(&Chunk {
                                channel,
                                image: first,
                                start: start + piece * CHUNK,
                                len: self.chunk_len(chunk),
                                plane: self.is_narrow().then_some(self.plane),
                                step: self.channels * self.plane,
                            });
                            for (part, value) in parts.iter().zip(values) {
                                // SAFETY: each chunk has a place of its own.
                                unsafe { part.part(channel * chunks + chunk, 1)[0] = value };
                            }
                        }
                    }
                },
            );
        });
        tables
    }
}

/// Some numbers of a channel.
struct Chunk {
    channel: usize,
    /// The first image of it.
    image: usize,
    /// Where its first number is.
    start: usize,
    /// How many numbers.
    len: usize,
    /// Numbers of a plane where it has several.
    plane: Option<usize>,
    /// From a plane to the next.
    step: usize,
}

impl Chunk {
    /// Sums `f` of corresponding numbers; it gets the number of the image too.
    #[inline(always)]
    fn sum<T: Float, const N: usize>(
        &self,
        slices: [&[T]; N],
        f: impl Fn(usize, [T; N]) -> T,
    ) -> f64 {
        let Some(plane) = self.plane else {
            let piece = slices.map(|slice| &slice[self.start..][..self.len]);
            return sum_of(piece, |numbers| f(self.image, numbers));
        };
        let mut total = 0.0;
        for image in 0..self.len / plane.max(1) {
            let mut sum = T::ZERO;
            let start = self.start + image * self.step;
            for at in start..start + plane {
                sum = sum + f(self.image + image, slices.map(|slice| slice[at]));
            }
            total += sum.to_f64();
        }
        total
    }
}

/// Mean and biased variance of each channel.
fn channel_moments<T: Float>(x: &[T], sizes: Channels) -> Vec<[f64; 2]> {
    let [sums, squares] = sizes.tables::<2>(
        #[inline(always)]
        |chunk| {
            let sum = chunk.sum([x], |_, [x]| x);
            let center = T::from_f64(sum / chunk.len as f64);
            [sum, chunk.sum([x], |_, [x]| (x - center) * (x - center))]
        },
    );
    let (chunks, count) = (sizes.chunks(), (sizes.batch * sizes.plane) as f64);
    let lens: Vec<f64> = (0..chunks)
        .map(|chunk| sizes.chunk_len(chunk) as f64)
        .collect();
    let of_channel = |channel: usize| {
        let sums = &sums[channel * chunks..][..chunks];
        let squares = &squares[channel * chunks..][..chunks];
        let mean = sum_of([sums], |[sum]| sum) / count;
        // Squares around the means of chunks, moved to the mean of all.
        let spread = sum_of([sums, squares, &lens], |[sum, squares, len]| {
            let apart = sum / len - mean;
            squares + len * (apart * apart)
        });
        [mean, spread / count]
    };
    (0..sizes.channels).map(of_channel).collect()
}

/// Of each channel the sum of the gradient, and that of its product with the normalised value. `statistic` gives mean and
/// reciprocal deviation of an image's channel.
fn channel_gradients<T: Float>(
    x: &[T],
    grad: &[T],
    sizes: Channels,
    statistic: impl Fn(usize, usize) -> [T; 2] + Sync,
) -> [Vec<f64>; 2] {
    let tables = sizes.tables::<2>(
        #[inline(always)]
        |chunk| {
            let dot = |image, [x, grad]: [T; 2]| {
                let [center, unit] = statistic(image, chunk.channel);
                grad * ((x - center) * unit)
            };
            [
                chunk.sum([grad], |_, [grad]| grad),
                chunk.sum([x, grad], dot),
            ]
        },
    );
    let chunks = sizes.chunks();
    tables.map(|table| {
        let sum = |channel: usize| sum_of([&table[channel * chunks..][..chunks]], |[sum]| sum);
        (0..sizes.channels).map(sum).collect()
    })
}

/// Runs `work` for each plane: its channel, and the numbers of its elements.
fn for_each_plane(sizes: Channels, work: impl Fn(usize, Range<usize>) + Sync) {
    let planes = sizes.batch * sizes.channels;
    let per_task = (TASK / sizes.plane.max(1)).max(1);
    parallel::for_ranges(planes, per_task, |range| {
        vectorized_loops(
            #[inline(always)]
            || {
                for plane in range {
                    let start = plane * sizes.plane;
                    work(plane % sizes.channels, start..start + sizes.plane);
                }
            },
        );
    });
}

/// `y = (x - mean) * rstd * weight + bias` per channel, with the batch's own mean and variance
/// (`torch.nn.functional.batch_norm` in training). Also gives the biased variance. Empty weight and bias count as ones and
/// zeros.
///
/// # Panics
/// If a slice doesn't have the length that the sizes say.
#[expect(
    clippy::too_many_arguments,
    reason = "operands and results of a kernel"
)]
pub fn batch_norm<T: Float>(
    x: &[T],
    sizes: Channels,
    weight: &[T],
    bias: &[T],
    eps: f64,
    y: &mut [T],
    mean: &mut [T],
    rstd: &mut [T],
    variance: &mut [T],
) {
    assert!(x.len() == sizes.numel() && y.len() == x.len());
    assert!([mean.len(), rstd.len(), variance.len()] == [sizes.channels; 3]);
    let moments = channel_moments(x, sizes);
    // Factor and number to add of each channel.
    let mut scales = Vec::with_capacity(sizes.channels);
    for (channel, [center, spread]) in moments.into_iter().enumerate() {
        let unit = T::from_f64(1.0 / (spread + eps).sqrt());
        mean[channel] = T::from_f64(center);
        rstd[channel] = unit;
        variance[channel] = T::from_f64(spread);
        let scale = weight.get(channel).map_or(unit, |&weight| unit * weight);
        scales.push([scale, bias.get(channel).copied().unwrap_or(T::ZERO)]);
    }
    let (y, mean) = (Parts::new(y), &*mean);
    for_each_plane(
        sizes,
        #[inline(always)]
        |channel, plane| {
            let (center, [scale, shift]) = (mean[channel], scales[channel]);
            // SAFETY: each plane belongs to one task.
            let y = unsafe { y.part(plane.start, plane.len()) };
            for (y, &x) in y.iter_mut().zip(&x[plane]) {
                *y = (x - center) * scale + shift;
            }
        },
    );
}

/// The gradients of [`batch_norm`]: of the input, and of weight and bias.
///
/// # Panics
/// If a slice doesn't have the length that the sizes say.
#[expect(
    clippy::too_many_arguments,
    reason = "operands and results of a kernel"
)]
pub fn batch_norm_backward<T: Float>(
    x: &[T],
    grad: &[T],
    sizes: Channels,
    weight: &[T],
    mean: &[T],
    rstd: &[T],
    grad_x: &mut [T],
    grad_weight: &mut [T],
    grad_bias: &mut [T],
) {
    assert!(x.len() == sizes.numel() && grad.len() == x.len() && grad_x.len() == x.len());
    assert!([mean.len(), rstd.len(), grad_weight.len(), grad_bias.len()] == [sizes.channels; 4]);
    let count = (sizes.batch * sizes.plane) as f64;
    let [totals, dots] =
        channel_gradients(x, grad, sizes, |_, channel| [mean[channel], rstd[channel]]);
    // The averages that are taken off, and the factor, of each channel.
    let mut scales = Vec::with_capacity(sizes.channels);
    for (channel, (total, dot)) in totals.into_iter().zip(dots).enumerate() {
        grad_weight[channel] = T::from_f64(dot);
        grad_bias[channel] = T::from_f64(total);
        let unit = rstd[channel];
        let scale = weight.get(channel).map_or(unit, |&weight| unit * weight);
        scales.push([T::from_f64(total / count), T::from_f64(dot / count), scale]);
    }
    let grad_x = Parts::new(grad_x);
    for_each_plane(
        sizes,
        #[inline(always)]
        |channel, plane| {
            let (center, unit) = (mean[channel], rstd[channel]);
            let [average, slope, scale] = scales[channel];
            // SAFETY: each plane belongs to one task.
            let grad_x = unsafe { grad_x.part(plane.start, plane.len()) };
            for ((out, &x), &grad) in grad_x.iter_mut().zip(&x[plane.clone()]).zip(&grad[plane]) {
                *out = (grad - average - (x - center) * unit * slope) * scale;
            }
        },
    );
}
