//! Normalisation: layer norm over rows, batch norm over channels, forward and backward.
//!
//! Sums run in a fixed number of lanes of the data's type over blocks, and the blocks add up in f64, so results depend on
//! the shape alone. Variances take a second pass over the centred values.

use crate::gemm::Float;
use crate::parallel;
use crate::vectorize::{Parts, vectorized_loops};

/// Lanes of a sum.
const LANES: usize = 32;
/// Numbers whose sum is kept in lanes before it goes to f64.
const BLOCK: usize = 4096;
/// Numbers a parallel task works on at least.
const TASK: usize = 1 << 15;

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

/// `y = (x - mean) * rstd * weight + bias` for each of `rows` rows of `cols` numbers; `rstd` is
/// `1 / sqrt(variance + eps)` (`torch.nn.functional.layer_norm`). Weight and bias have `cols` numbers; empty ones count
/// as ones and zeros.
///
/// # Panics
/// If a slice doesn't have the length that the sizes say.
#[expect(
    clippy::too_many_arguments,
    reason = "operands and results of a kernel"
)]
pub fn layer_norm<T: Float>(
    x: &[T],
    rows: usize,
    cols: usize,
    weight: &[T],
    bias: &[T],
    eps: f64,
    y: &mut [T],
    mean: &mut [T],
    rstd: &mut [T],
) {
    assert!(x.len() == rows * cols && y.len() == x.len());
    assert!(mean.len() == rows && rstd.len() == rows);
    assert!(weight.is_empty() || weight.len() == cols);
    assert!(bias.is_empty() || bias.len() == cols);
    if cols == 0 {
        return;
    }
    let (y, mean, rstd) = (Parts::new(y), Parts::new(mean), Parts::new(rstd));
    let per_task = (TASK / cols).max(1);
    parallel::run(rows.div_ceil(per_task), |task| {
        vectorized_loops(
            #[inline(always)]
            || {
                for row in task * per_task..((task + 1) * per_task).min(rows) {
                    let x = &x[row * cols..][..cols];
                    // SAFETY: each row belongs to one task.
                    let y = unsafe { y.part(row * cols, cols) };
                    let center = T::from_f64(sum_of([x], |[x]| x) / cols as f64);
                    let variance = sum_of([x], |[x]| (x - center) * (x - center)) / cols as f64;
                    let scale = T::from_f64(1.0 / (variance + eps).sqrt());
                    match (weight.is_empty(), bias.is_empty()) {
                        (true, true) => {
                            for (y, &x) in y.iter_mut().zip(x) {
                                *y = (x - center) * scale;
                            }
                        }
                        (false, true) => {
                            for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
                                *y = (x - center) * scale * weight;
                            }
                        }
                        (true, false) => {
                            for ((y, &x), &bias) in y.iter_mut().zip(x).zip(bias) {
                                *y = (x - center) * scale + bias;
                            }
                        }
                        (false, false) => {
                            for (((y, &x), &weight), &bias) in
                                y.iter_mut().zip(x).zip(weight).zip(bias)
                            {
                                *y = (x - center) * scale * weight + bias;
                            }
                        }
                    }
                    // SAFETY: as above.
                    unsafe {
                        mean.part(row, 1)[0] = center;
                        rstd.part(row, 1)[0] = scale;
                    }
                }
            },
        );
    });
}

/// The gradients of [`layer_norm`]: of the input, and (where the slices aren't empty) of weight and bias.
///
/// # Panics
/// If a slice doesn't have the length that the sizes say.
#[expect(
    clippy::too_many_arguments,
    reason = "operands and results of a kernel"
)]
pub fn layer_norm_backward<T: Float>(
    x: &[T],
    grad: &[T],
    rows: usize,
    cols: usize,
    weight: &[T],
    mean: &[T],
    rstd: &[T],
    grad_x: &mut [T],
    grad_weight: &mut [T],
    grad_bias: &mut [T],
) {
    assert!(x.len() == rows * cols && grad.len() == x.len() && grad_x.len() == x.len());
    assert!(mean.len() == rows && rstd.len() == rows);
    assert!(weight.is_empty() || weight.len() == cols);
    grad_weight.fill(T::ZERO);
    grad_bias.fill(T::ZERO);
    if cols == 0 || rows == 0 {
        return;
    }
    let per_task = (TASK / cols).max(1);
    let tasks = rows.div_ceil(per_task);
    let parameters = !grad_weight.is_empty() || !grad_bias.is_empty();
    let mut partial = vec![T::ZERO; if parameters { tasks * 2 * cols } else { 0 }];
    {
        let (grad_x, partial) = (Parts::new(grad_x), Parts::new(&mut partial));
        parallel::run(tasks, |task| {
            vectorized_loops(
                #[inline(always)]
                || {
                    let rows = task * per_task..((task + 1) * per_task).min(rows);
                    for row in rows.clone() {
                        let (x, grad) = (&x[row * cols..][..cols], &grad[row * cols..][..cols]);
                        // SAFETY: each row belongs to one task.
                        let grad_x = unsafe { grad_x.part(row * cols, cols) };
                        layer_norm_row(x, grad, weight, mean[row], rstd[row], grad_x);
                    }
                    if parameters {
                        // SAFETY: each task has a partial sum of its own.
                        let partial = unsafe { partial.part(task * 2 * cols, 2 * cols) };
                        let (of_weight, of_bias) = partial.split_at_mut(cols);
                        for row in rows {
                            let (x, grad) = (&x[row * cols..][..cols], &grad[row * cols..][..cols]);
                            let (mean, rstd) = (mean[row], rstd[row]);
                            for (((sum, sum_bias), &x), &grad) in of_weight
                                .iter_mut()
                                .zip(of_bias.iter_mut())
                                .zip(x)
                                .zip(grad)
                            {
                                *sum = *sum + grad * ((x - mean) * rstd);
                                *sum_bias = *sum_bias + grad;
                            }
                        }
                    }
                },
            );
        });
    }
    for partial in partial.chunks(2 * cols) {
        for (sum, &part) in grad_weight.iter_mut().zip(&partial[..cols]) {
            *sum = *sum + part;
        }
        for (sum, &part) in grad_bias.iter_mut().zip(&partial[cols..]) {
            *sum = *sum + part;
        }
    }
}

#[inline(always)]
fn layer_norm_row<T: Float>(x: &[T], grad: &[T], weight: &[T], mean: T, rstd: T, grad_x: &mut [T]) {
    let cols = x.len() as f64;
    // The gradient of the normalised value, kept in the output until it is final.
    if weight.is_empty() {
        grad_x.copy_from_slice(grad);
    } else {
        for ((out, &grad), &weight) in grad_x.iter_mut().zip(grad).zip(weight) {
            *out = grad * weight;
        }
    }
    let average = T::from_f64(sum_of([&*grad_x], |[grad]| grad) / cols);
    let slope = T::from_f64(sum_of([x, grad_x], |[x, grad]| grad * ((x - mean) * rstd)) / cols);
    for (out, &x) in grad_x.iter_mut().zip(x) {
        *out = (*out - average - (x - mean) * rstd * slope) * rstd;
    }
}

/// The sizes of a batch of images: `batch` times `channels` planes of `plane` numbers.
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

    /// Runs `work` for each channel, with the number of the first element of each of its planes.
    fn for_each(self, work: impl Fn(usize) + Sync) {
        let per_task = (TASK / (self.batch * self.plane).max(1)).clamp(1, self.channels.max(1));
        parallel::run(self.channels.div_ceil(per_task), |task| {
            for channel in task * per_task..((task + 1) * per_task).min(self.channels) {
                work(channel);
            }
        });
    }

    #[inline(always)]
    fn planes(self, channel: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.batch).map(move |image| {
            let start = (image * self.channels + channel) * self.plane;
            start..start + self.plane
        })
    }
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
    let count = (sizes.batch * sizes.plane) as f64;
    let (y, mean, rstd, variance) = (
        Parts::new(y),
        Parts::new(mean),
        Parts::new(rstd),
        Parts::new(variance),
    );
    sizes.for_each(|channel| {
        vectorized_loops(
            #[inline(always)]
            || {
                let total: f64 = sizes
                    .planes(channel)
                    .map(|plane| sum_of([&x[plane]], |[x]| x))
                    .sum();
                let center = T::from_f64(total / count);
                let squares: f64 = sizes
                    .planes(channel)
                    .map(|plane| sum_of([&x[plane]], |[x]| (x - center) * (x - center)))
                    .sum();
                let spread = squares / count;
                let unit = T::from_f64(1.0 / (spread + eps).sqrt());
                let scale = weight.get(channel).map_or(unit, |&weight| unit * weight);
                let shift = bias.get(channel).copied().unwrap_or(T::ZERO);
                for plane in sizes.planes(channel) {
                    // SAFETY: each channel belongs to one task.
                    let y = unsafe { y.part(plane.start, plane.len()) };
                    for (y, &x) in y.iter_mut().zip(&x[plane]) {
                        *y = (x - center) * scale + shift;
                    }
                }
                // SAFETY: as above.
                unsafe {
                    mean.part(channel, 1)[0] = center;
                    rstd.part(channel, 1)[0] = unit;
                    variance.part(channel, 1)[0] = T::from_f64(spread);
                }
            },
        );
    });
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
    let (grad_x, grad_weight, grad_bias) = (
        Parts::new(grad_x),
        Parts::new(grad_weight),
        Parts::new(grad_bias),
    );
    sizes.for_each(|channel| {
        vectorized_loops(
            #[inline(always)]
            || {
                let (center, unit) = (mean[channel], rstd[channel]);
                let total: f64 = sizes
                    .planes(channel)
                    .map(|plane| sum_of([&grad[plane]], |[grad]| grad))
                    .sum();
                let dot: f64 = sizes
                    .planes(channel)
                    .map(|plane| {
                        sum_of([&x[plane.clone()], &grad[plane]], |[x, grad]| {
                            grad * ((x - center) * unit)
                        })
                    })
                    .sum();
                let (average, slope) = (T::from_f64(total / count), T::from_f64(dot / count));
                let scale = weight.get(channel).map_or(unit, |&weight| unit * weight);
                for plane in sizes.planes(channel) {
                    // SAFETY: each channel belongs to one task.
                    let grad_x = unsafe { grad_x.part(plane.start, plane.len()) };
                    for ((out, &x), &grad) in
                        grad_x.iter_mut().zip(&x[plane.clone()]).zip(&grad[plane])
                    {
                        *out = (grad - average - (x - center) * unit * slope) * scale;
                    }
                }
                // SAFETY: as above.
                unsafe {
                    grad_weight.part(channel, 1)[0] = T::from_f64(dot);
                    grad_bias.part(channel, 1)[0] = T::from_f64(total);
                }
            },
        );
    });
}
