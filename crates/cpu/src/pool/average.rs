//! Average pooling over fixed windows and over windows fitted to an output size, with their gradients.

use super::{Pool2dShape, each_planes};
use crate::gemm::Float;
use std::ops::Range;

/// The sizes of an average pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AveragePool2dShape {
    /// The windows. The dilation must be 1.
    pub window: Pool2dShape,
    /// Whether padding counts as zeros (PyTorch's default) or not at all.
    pub count_include_pad: bool,
    /// Divides by this instead of by the number of places.
    pub divisor_override: Option<usize>,
}

/// The places of a window along one dim.
struct Places {
    /// Those inside the input.
    inside: Range<usize>,
    /// How many it has with padding.
    all: usize,
}

impl AveragePool2dShape {
    fn places(&self, dim: usize, at: usize) -> Places {
        let input = [self.window.height, self.window.width][dim];
        let padding = self.window.padding[dim];
        let start = at * self.window.stride[dim];
        let end = (start + self.window.kernel[dim]).min(input + 2 * padding);
        let first = start.saturating_sub(padding);
        Places {
            inside: first..end.saturating_sub(padding).clamp(first, input.max(first)),
            all: end - start,
        }
    }

    fn divisor(&self, y: &Places, x: &Places) -> usize {
        match self.divisor_override {
            Some(divisor) => divisor,
            // More than can be counted is as good as any such number: the average is rounded the same.
            None if self.count_include_pad => y.all.saturating_mul(x.all),
            None => y.inside.len() * x.inside.len(),
        }
    }
}

/// The average of each window (`torch.nn.functional.avg_pool2d`). A window without places in the input gives 0.
///
/// # Panics
/// If [`Pool2dShape::output_size`] is an error, if the dilation is not 1, or if a slice does not have the length that
/// the shape says.
pub fn avg_pool2d<T: Float>(shape: &AveragePool2dShape, input: &[T], output: &mut [T]) {
    let size = shape
        .window
        .checked("avg_pool2d", input.len(), output.len());
    assert_eq!(shape.window.dilation, [1, 1], "avg_pool2d: dilation");
    let numel = [shape.window.height, shape.window.width];
    gather(shape.window.planes, numel, size, input, output, |y, x| {
        let (y, x) = (shape.places(0, y), shape.places(1, x));
        let divisor = shape.divisor(&y, &x);
        (y.inside, x.inside, [divisor, 1])
    });
}

/// The gradient of [`avg_pool2d`].
///
/// # Panics
/// As [`avg_pool2d`].
pub fn avg_pool2d_backward<T: Float>(
    shape: &AveragePool2dShape,
    grad_output: &[T],
    grad_input: &mut [T],
) {
    let size = shape
        .window
        .checked("avg_pool2d_backward", grad_input.len(), grad_output.len());
    assert_eq!(
        shape.window.dilation,
        [1, 1],
        "avg_pool2d_backward: dilation"
    );
    let numel = [shape.window.height, shape.window.width];
    spread(
        shape.window.planes,
        numel,
        size,
        grad_output,
        grad_input,
        |y, x| {
            let (y, x) = (shape.places(0, y), shape.places(1, x));
            let divisor = shape.divisor(&y, &x);
            (y.inside, x.inside, [divisor, 1])
        },
    );
}

/// The places that output `at` of `output` averages: from `at * input / output`, rounded down, to
/// `(at + 1) * input / output`, rounded up.
fn adaptive(at: usize, input: usize, output: usize) -> Range<usize> {
    at * input / output..((at + 1) * input).div_ceil(output)
}

/// Averages over windows that cover the input and give an output of `output_size` (`torch.nn.functional.adaptive_avg_pool2d`).
///
/// # Panics
/// If a slice does not have `planes` planes of its size, or if the input size is 0 where the output's is not.
pub fn adaptive_avg_pool2d<T: Float>(
    planes: usize,
    input_size: [usize; 2],
    output_size: [usize; 2],
    input: &[T],
    output: &mut [T],
) {
    check_adaptive(
        "adaptive_avg_pool2d",
        planes,
        input_size,
        output_size,
        input.len(),
        output.len(),
    );
    gather(planes, input_size, output_size, input, output, |y, x| {
        let (y, x) = (
            adaptive(y, input_size[0], output_size[0]),
            adaptive(x, input_size[1], output_size[1]),
        );
        let sizes = [y.len(), x.len()];
        (y, x, sizes)
    });
}

/// The gradient of [`adaptive_avg_pool2d`].
///
/// # Panics
/// As [`adaptive_avg_pool2d`].
pub fn adaptive_avg_pool2d_backward<T: Float>(
    planes: usize,
    input_size: [usize; 2],
    output_size: [usize; 2],
    grad_output: &[T],
    grad_input: &mut [T],
) {
    let op = "adaptive_avg_pool2d_backward";
    check_adaptive(
        op,
        planes,
        input_size,
        output_size,
        grad_input.len(),
        grad_output.len(),
    );
    spread(
        planes,
        input_size,
        output_size,
        grad_output,
        grad_input,
        |y, x| {
            let (y, x) = (
                adaptive(y, input_size[0], output_size[0]),
                adaptive(x, input_size[1], output_size[1]),
            );
            let sizes = [y.len(), x.len()];
            (y, x, sizes)
        },
    );
}

fn check_adaptive(
    op: &str,
    planes: usize,
    [height, width]: [usize; 2],
    [out_height, out_width]: [usize; 2],
    input: usize,
    output: usize,
) {
    assert_eq!(input, planes * height * width, "{op}: length of the input");
    assert_eq!(
        output,
        planes * out_height * out_width,
        "{op}: length of the output"
    );
    assert!(output == 0 || input > 0, "{op}: the input has no places");
}

/// `output = sum of the window / divisors`, where `window(y, x)` gives rows, columns and two divisors.
fn gather<T: Float>(
    planes: usize,
    [height, width]: [usize; 2],
    [out_height, out_width]: [usize; 2],
    input: &[T],
    output: &mut [T],
    window: impl Fn(usize, usize) -> (Range<usize>, Range<usize>, [usize; 2]) + Sync,
) {
    let (plane, numel) = (height * width, out_height * out_width);
    if numel == 0 {
        return;
    }
    each_planes(
        planes,
        output,
        &mut [] as &mut [u8],
        plane.max(numel),
        |first, output, _| {
            for (index, output) in output.chunks_exact_mut(numel).enumerate() {
                let input = &input[(first + index) * plane..][..plane];
                for (place, output) in output.iter_mut().enumerate() {
                    let (rows, cols, divisors) = window(place / out_width, place % out_width);
                    if rows.is_empty() || cols.is_empty() {
                        *output = T::ZERO;
                        continue;
                    }
                    let mut sum = T::ZERO;
                    for row in rows {
                        for &value in &input[row * width..][cols.clone()] {
                            sum = sum + value;
                        }
                    }
                    *output = divided(sum, divisors);
                }
            }
        },
    );
}

/// The transpose of [`gather`].
fn spread<T: Float>(
    planes: usize,
    [height, width]: [usize; 2],
    [out_height, out_width]: [usize; 2],
    grad_output: &[T],
    grad_input: &mut [T],
    window: impl Fn(usize, usize) -> (Range<usize>, Range<usize>, [usize; 2]) + Sync,
) {
    let (plane, numel) = (height * width, out_height * out_width);
    if plane == 0 {
        return;
    }
    each_planes(
        planes,
        grad_input,
        &mut [] as &mut [u8],
        plane.max(numel),
        |first, grad_input, _| {
            for (index, grad_input) in grad_input.chunks_exact_mut(plane).enumerate() {
                grad_input.fill(T::ZERO);
                let grads = &grad_output[(first + index) * numel..][..numel];
                for (place, &grad) in grads.iter().enumerate() {
                    let (rows, cols, divisors) = window(place / out_width, place % out_width);
                    if rows.is_empty() || cols.is_empty() {
                        continue;
                    }
                    let share = divided(grad, divisors);
                    for row in rows {
                        for to in &mut grad_input[row * width..][cols.clone()] {
                            *to = *to + share;
                        }
                    }
                }
            }
        },
    );
}

/// Divides by one number after the other, as PyTorch does: two roundings for adaptive windows.
fn divided<T: Float>(value: T, divisors: [usize; 2]) -> T {
    value / T::from_f64(divisors[0] as f64) / T::from_f64(divisors[1] as f64)
}
