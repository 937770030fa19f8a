//! Two-dimensional convolution: output, and gradients of input, weight and bias (`torch.nn.functional.conv2d`).
//!
//! Knows contiguous slices in PyTorch's layouts: images NCHW, weights `[out, in / groups, height, width]`.
//!
//! # How it works
//! There is no im2col. An image (or a band of its rows) is copied once into a padded *slab* (`slab`), in
//! which a tap of the kernel is nothing but an offset: the input that tap `(y, x)` of channel `c` wants for
//! output pixel `p` lies at `p + offset(c, y, x)`. A table of those offsets is all that the matrix kernel
//! of `gemm` needs to run over the slab as if it were the unfolded matrix. The gradient of the input is
//! the same sum with turned taps (`correlate` does both); the gradient of the weight is a product over pixels.

mod correlate;
mod slab;
mod weight;

pub use weight::WeightSums;

use crate::gemm::Float;
use crate::memory::HostMemoryError;
use crate::parallel;
use std::fmt;

/// The sizes of a convolution. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dShape {
    /// Images.
    pub batch: usize,
    /// Channels of the input, a multiple of `groups`.
    pub in_channels: usize,
    /// Channels of the output, a multiple of `groups`.
    pub out_channels: usize,
    /// Groups of channels that do not see each other; `in_channels` of them is a depthwise convolution.
    pub groups: usize,
    /// Height of the input.
    pub height: usize,
    /// Width of the input.
    pub width: usize,
    /// Size of the kernel.
    pub kernel: [usize; 2],
    /// Steps of the kernel over the input.
    pub stride: [usize; 2],
    /// Zeros put on each side of the input.
    pub padding: [usize; 2],
    /// Distance between taps of the kernel.
    pub dilation: [usize; 2],
}

/// Why a window (of a convolution or of pooling) does not fit its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowError {
    /// Kernel, stride, dilation or groups is 0.
    Zero {
        /// Which one.
        what: &'static str,
    },
    /// The channels cannot be split into that many groups.
    Groups {
        /// Channels of the input.
        in_channels: usize,
        /// Channels of the output.
        out_channels: usize,
        /// Groups.
        groups: usize,
    },
    /// The kernel, stretched by its dilation, is larger than the padded input.
    KernelTooLarge {
        /// Extent of the stretched kernel along the dim.
        kernel: usize,
        /// Extent of the padded input along the same dim.
        input: usize,
    },
    /// Kernel, stride, padding or dilation is larger than any memory.
    TooLarge {
        /// Size of the input along the dim.
        input: usize,
    },
    /// Padding of pooling is more than half the kernel.
    PaddingTooLarge {
        /// Padding along the dim.
        padding: usize,
        /// Kernel along the same dim.
        kernel: usize,
    },
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WindowError::Zero { what } => write!(f, "{what} must be at least 1, got 0"),
            WindowError::Groups {
                in_channels,
                out_channels,
                groups,
            } => write!(
                f,
                "channels must be multiples of groups, got {in_channels} in and {out_channels} out with {groups} groups"
            ),
            WindowError::KernelTooLarge { kernel, input } => write!(
                f,
                "kernel (with dilation) must fit the padded input, got a kernel of {kernel} and an input of {input}"
            ),
            WindowError::TooLarge { input } => write!(
                f,
                "kernel, stride, padding and dilation must be sizes that memory can have, got more around an input of {input}"
            ),
            WindowError::PaddingTooLarge { padding, kernel } => {
                write!(
                    f,
                    "padding must be at most half the kernel, got {padding} with a kernel of {kernel}"
                )
            }
        }
    }
}

impl std::error::Error for WindowError {}

/// Extents of the padded input and of the stretched kernel along a dim. All that is computed of a window that fits
/// stays below four times the largest of them, so it can't overflow.
pub(crate) fn extents(
    input: usize,
    kernel: usize,
    padding: usize,
    stride: usize,
    dilation: usize,
) -> Result<[usize; 2], WindowError> {
    const MOST: usize = isize::MAX as usize / 4;
    let stretched = dilation
        .checked_mul(kernel - 1)
        .and_then(|reach| reach.checked_add(1))
        .filter(|&extent| extent <= MOST);
    match stretched {
        Some(stretched) if input.max(padding).max(stride).max(dilation) <= MOST => {
            Ok([input + 2 * padding, stretched])
        }
        _ => Err(WindowError::TooLarge { input }),
    }
}

impl Conv2dShape {
    /// Height and width of the output: `(input + 2 padding - dilation (kernel - 1) - 1) / stride + 1`, rounded down.
    ///
    /// # Errors
    /// If a kernel, stride, dilation or groups is 0, if groups do not divide the channels, if the kernel is larger
    /// than the padded input, or if one of them is larger than any memory.
    pub fn output_size(&self) -> Result<[usize; 2], WindowError> {
        let positive = [
            ("kernel", self.kernel[0].min(self.kernel[1])),
            ("stride", self.stride[0].min(self.stride[1])),
            ("dilation", self.dilation[0].min(self.dilation[1])),
            ("groups", self.groups),
        ];
        if let Some(&(what, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(WindowError::Zero { what });
        }
        let Conv2dShape {
            in_channels,
            out_channels,
            groups,
            ..
        } = *self;
        if !in_channels.is_multiple_of(groups) || !out_channels.is_multiple_of(groups) {
            return Err(WindowError::Groups {
                in_channels,
                out_channels,
                groups,
            });
        }
        let mut size = [self.height, self.width];
        // A slab is at most a few times as large as the padded channels: they must be countable too, by far.
        let mut padded = in_channels.max(out_channels).max(1);
        for (dim, size) in size.iter_mut().enumerate() {
            let [input, kernel] = extents(
                *size,
                self.kernel[dim],
                self.padding[dim],
                self.stride[dim],
                self.dilation[dim],
            )?;
            if kernel > input {
                return Err(WindowError::KernelTooLarge { kernel, input });
            }
            padded = padded
                .checked_mul(input)
                .filter(|&padded| padded <= isize::MAX as usize >> 8)
                .ok_or(WindowError::TooLarge { input: *size })?;
            *size = (input - kernel) / self.stride[dim] + 1;
        }
        Ok(size)
    }

    /// Numbers in the input.
    pub fn input_numel(&self) -> usize {
        self.batch * self.in_channels * self.height * self.width
    }

    /// Numbers in the weight.
    pub fn weight_numel(&self) -> usize {
        self.out_channels * (self.in_channels / self.groups) * self.kernel[0] * self.kernel[1]
    }

    /// The order of the sums of the weight's gradient, which is not empty. Where a group has one output channel it is another.
    ///
    /// # Errors
    /// As [`Self::output_size`].
    pub fn weight_sums(&self) -> Result<WeightSums, WindowError> {
        let size = self.output_size()?;
        Ok(WeightSums::of(self.batch, self.weight_numel(), size))
    }

    /// Numbers in the output.
    ///
    /// # Errors
    /// As [`Self::output_size`].
    pub fn output_numel(&self) -> Result<usize, WindowError> {
        let [height, width] = self.output_size()?;
        Ok(self.batch * self.out_channels * height * width)
    }

    /// The output size, after checking the slices.
    ///
    /// # Panics
    /// If the shape has no output size, or if a slice has another length.
    fn checked(&self, input: usize, weight: usize, output: usize) -> [usize; 2] {
        let size = self
            .output_size()
            .unwrap_or_else(|error| panic!("conv2d: {error}"));
        assert_eq!(input, self.input_numel(), "conv2d: length of the input");
        assert_eq!(weight, self.weight_numel(), "conv2d: length of the weight");
        assert_eq!(
            output,
            self.batch * self.out_channels * size[0] * size[1],
            "conv2d: length of the output"
        );
        size
    }
}

/// `output[n, o] = bias[o] + sum over c of weight[o, c] correlated with input[n, c]` (`torch.nn.functional.conv2d`).
///
/// # Errors
/// If there is no memory for the padded image.
///
/// # Panics
/// If [`Conv2dShape::output_size`] is an error, or if a slice does not have the length that the shape says.
pub fn conv2d<T: Float>(
    shape: &Conv2dShape,
    input: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    output: &mut [T],
) -> Result<(), HostMemoryError> {
    let size = shape.checked(input.len(), weight.len(), output.len());
    if let Some(bias) = bias {
        assert_eq!(bias.len(), shape.out_channels, "conv2d: length of the bias");
    }
    correlate::forward(shape, size, input, weight, bias, output)
}

/// The gradient of [`conv2d`] with respect to its input (`torch.nn.grad.conv2d_input`); also the output of a
/// transposed convolution.
///
/// # Errors
/// As [`conv2d`].
///
/// # Panics
/// As [`conv2d`].
pub fn conv2d_backward_input<T: Float>(
    shape: &Conv2dShape,
    weight: &[T],
    grad_output: &[T],
    grad_input: &mut [T],
) -> Result<(), HostMemoryError> {
    let size = shape.checked(grad_input.len(), weight.len(), grad_output.len());
    correlate::backward_input(shape, size, weight, grad_output, grad_input)
}

/// The gradient of [`conv2d`] with respect to its weight (`torch.nn.grad.conv2d_weight`).
///
/// Sums over images in groups that depend on the shape alone, then adds the groups in order.
///
/// # Errors
/// As [`conv2d`].
///
/// # Panics
/// As [`conv2d`].
pub fn conv2d_backward_weight<T: Float>(
    shape: &Conv2dShape,
    input: &[T],
    grad_output: &[T],
    grad_weight: &mut [T],
) -> Result<(), HostMemoryError> {
    let size = shape.checked(input.len(), grad_weight.len(), grad_output.len());
    weight::backward_weight(shape, size, input, grad_output, grad_weight)
}

/// The gradient of [`conv2d`] with respect to its bias: the sum of `grad_output` over images and pixels.
///
/// Each plane is summed in `T`, planes are added in f64.
///
/// # Panics
/// As [`conv2d`].
pub fn conv2d_backward_bias<T: Float>(shape: &Conv2dShape, grad_output: &[T], grad_bias: &mut [T]) {
    let [height, width] =
        shape.checked(shape.input_numel(), shape.weight_numel(), grad_output.len());
    assert_eq!(
        grad_bias.len(),
        shape.out_channels,
        "conv2d: length of the bias"
    );
    let plane = height * width;
    let channels = shape.out_channels;
    // A few channels a task, so that tasks are not too short.
    let together = (16384 / (plane * shape.batch).max(1)).clamp(1, channels.max(1));
    let result = crate::gemm::Shared::new(grad_bias);
    parallel::run(channels.div_ceil(together), |task| {
        for channel in task * together..((task + 1) * together).min(channels) {
            let mut sum = 0.0;
            for image in 0..shape.batch {
                let first = (image * channels + channel) * plane;
                sum += plane_sum(&grad_output[first..first + plane]).to_f64();
            }
            // SAFETY: channel < the bias's length, and belongs to this task alone.
            unsafe { *result.get().add(channel) = T::from_f64(sum) };
        }
    });
}

/// The sum of a plane, in 32 interleaved partial sums.
fn plane_sum<T: Float>(plane: &[T]) -> T {
    let mut sums = [T::ZERO; 32];
    let mut chunks = plane.chunks_exact(32);
    for chunk in &mut chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum = *sum + value;
        }
    }
    for (sum, &value) in sums.iter_mut().zip(chunks.remainder()) {
        *sum = *sum + value;
    }
    let mut half = 16;
    while half > 0 {
        for index in 0..half {
            sums[index] = sums[index] + sums[index + half];
        }
        half /= 2;
    }
    sums[0]
}
