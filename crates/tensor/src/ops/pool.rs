//! Pooling over images: `max_pool2d`, `avg_pool2d`, `adaptive_avg_pool2d`.

use std::ffi::CStr;

use fireclay_core::{DType, Error, Result, Shape};
use fireclay_cpu::pool::{
    self, AveragePool2dShape, Pool2dShape, adaptive_avg_pool2d, adaptive_avg_pool2d_backward,
};
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::{match_float, same_float};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `pool.cu`, the threads of a block, and the bytes of its shared memory.
static KERNELS: Library = fireclay_cuda::library!("pool");
const THREADS: usize = 256;
const SHARED_BYTES: usize = 32768;
/// A block writes about so many numbers, where small planes allow.
const BLOCK_NUMEL: usize = 2048;

/// Windows over planes as `pool.cu` takes them. Pairs are (height, width).
struct OnDevice {
    windows: Pool2dShape,
    output: [usize; 2],
    divisor: usize,
    count_padding: bool,
    /// Whether the windows are of a fixed size; else they cover the input evenly.
    fixed: bool,
}

impl OnDevice {
    fn fixed(op: &'static str, windows: Pool2dShape) -> Result<OnDevice> {
        let output = windows
            .output_size()
            .map_err(|error| Error::shape(op, error.to_string()))?;
        Ok(OnDevice {
            windows,
            output,
            divisor: 0,
            count_padding: false,
            fixed: true,
        })
    }

    fn average(op: &'static str, shape: &AveragePool2dShape) -> Result<OnDevice> {
        Ok(OnDevice {
            divisor: shape.divisor_override.unwrap_or(0),
            count_padding: shape.count_include_pad,
            ..OnDevice::fixed(op, shape.window)?
        })
    }

    fn fitted(planes: usize, [height, width]: [usize; 2], output: [usize; 2]) -> OnDevice {
        let windows = Pool2dShape {
            planes,
            height,
            width,
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            ceil_mode: false,
        };
        OnDevice {
            windows,
            output,
            divisor: 0,
            count_padding: false,
            fixed: false,
        }
    }

    /// Rows of what is read that `rows` rows of what is written need at most.
    fn rows_read(&self, rows: usize, backward: bool) -> usize {
        let (input, output) = (self.windows.height, self.output[0]);
        let reach = (self.windows.kernel[0] - 1) * self.windows.dilation[0];
        let stride = self.windows.stride[0];
        match (self.fixed, backward) {
            (true, false) => ((rows - 1) * stride + reach + 1).min(input),
            (true, true) => ((rows - 1 + reach) / stride + 1).min(output),
            (false, false) => ((rows * input).div_ceil(output) + 1).min(input),
            (false, true) => ((rows * output).div_ceil(input) + 1).min(output),
        }
    }

    /// Starts a kernel that writes the output, or the input's gradient if `backward`; what it reads takes `size` bytes a number.
    fn launch(
        &self,
        call: &CudaCall<'_>,
        op: &'static str,
        names: [&'static CStr; 2],
        (backward, size): (bool, usize),
        operands: &[Argument<'_>],
    ) -> Result<()> {
        let windows = &self.windows;
        let input = [windows.height, windows.width];
        // Places and what the kernels compute of them are 32-bit numbers.
        let fits = |dim: usize| {
            let sizes = [
                input[dim],
                self.output[dim],
                windows.kernel[dim].saturating_mul(windows.dilation[dim]),
                windows.stride[dim],
                windows.padding[dim],
            ];
            sizes.iter().all(|&size| size < 1 << 28)
        };
        let countable = |[height, width]: [usize; 2]| height * width < 1 << 31;
        if !(fits(0) && fits(1) && countable(input) && countable(self.output)) {
            return Err(Error::argument(
                op,
                "planes of 2^31 numbers, or windows of 2^28 places, are more than the kernels of devices count",
            )
            .with_hint("pool on the CPU: to(\"cpu\")"));
        }
        let (read, written) = match backward {
            false => (input, self.output),
            true => (self.output, input),
        };
        if windows.planes * written[0] * written[1] == 0 {
            return Ok(());
        }
        let room = SHARED_BYTES / size;
        let fits = |rows: usize| self.rows_read(rows, backward) * read[1] < room;
        let (rows, together) = if fits(written[0]) {
            let pitch = (self.rows_read(written[0], backward) * read[1]) | 1;
            let enough = BLOCK_NUMEL.div_ceil(written[0] * written[1]);
            let together = enough.min(room / pitch);
            // Runs of 8 planes start at a sector of memory.
            (
                written[0],
                if together > 8 {
                    together / 8 * 8
                } else {
                    together
                },
            )
        } else {
            // The most rows that fit: a band reads some rows that its neighbour reads too.
            let (mut most, mut too_many) = (0, written[0]);
            while too_many - most > 1 {
                let rows = (most + too_many) / 2;
                *if fits(rows) { &mut most } else { &mut too_many } = rows;
            }
            (most, 1)
        };
        let staged = rows > 0;
        let rows = match staged {
            true => rows,
            false => BLOCK_NUMEL.div_ceil(written[1]).min(written[0]),
        };
        let pairs = [
            input,
            self.output,
            windows.kernel,
            windows.stride,
            windows.padding,
            windows.dilation,
        ];
        let mut numbers = vec![windows.planes];
        numbers.extend(pairs.into_iter().flatten());
        let flags = [self.count_padding.into(), rows, together, staged.into()];
        numbers.push(self.divisor);
        numbers.extend(flags);
        let bytes: Vec<u8> = (numbers.iter())
            .flat_map(|&number| (number as i64).to_ne_bytes())
            .collect();
        let mut arguments = operands.to_vec();
        arguments.push(Argument::Bytes(&bytes));
        let kernel = call.of_float(call.dtype(0), names)?;
        let blocks = windows.planes.div_ceil(together) * written[0].div_ceil(rows);
        // SAFETY: the kernels' parameters, the last of which has the 18 numbers of `Pooling`; they read and write within the
        // planes, which the operands have by the ops' output rules.
        unsafe { call.launch(&KERNELS, kernel, [blocks, THREADS], &arguments) }
    }
}

/// A window over `N` dimensions, the outermost first: (height, width) of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool<const N: usize> {
    /// Size of the window.
    pub kernel: [usize; N],
    /// Steps of the window; PyTorch's default is the kernel.
    pub stride: [usize; N],
    /// Places put on each side, which are never chosen.
    pub padding: [usize; N],
    /// Distance between places of the window.
    pub dilation: [usize; N],
    /// Whether the output's size is rounded up.
    pub ceil_mode: bool,
}

/// The window of [`Tensor::max_pool2d`].
pub type Pool2d = Pool<2>;

impl<const N: usize> Pool<N> {
    /// A window of this size that steps by its size.
    pub fn new(kernel: [usize; N]) -> Pool<N> {
        Pool {
            kernel,
            stride: kernel,
            padding: [0; N],
            dilation: [1; N],
            ceil_mode: false,
        }
    }
}

impl Pool2d {
    fn over(self, op: &'static str, shape: &Shape) -> Result<(Pool2dShape, Shape)> {
        let Some((planes, &[height, width])) = shape
            .split_last_chunk::<2>()
            .filter(|_| (3..=4).contains(&shape.ndim()))
        else {
            return Err(Error::shape(
                op,
                format!("expected [n, c, h, w] or [c, h, w], got {shape}"),
            ));
        };
        let window = Pool2dShape {
            planes: planes.iter().product(),
            height,
            width,
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            ceil_mode: self.ceil_mode,
        };
        let size = window
            .output_size()
            .map_err(|error| Error::shape(op, format!("{error}, for input {shape}")))?;
        let output = planes.iter().copied().chain(size).collect();
        Ok((window, output))
    }
}

/// A window of which the average is taken, over `N` dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvgPool<const N: usize> {
    /// The window, of dilation 1.
    pub window: Pool<N>,
    /// Whether the zeros of the padding count in the average.
    pub count_include_pad: bool,
    /// Divides by this instead of the number of places.
    pub divisor_override: Option<usize>,
}

/// The window of [`Tensor::avg_pool2d`].
pub type AvgPool2d = AvgPool<2>;

impl<const N: usize> AvgPool<N> {
    /// A window of this size that steps by its size.
    pub fn new(kernel: [usize; N]) -> AvgPool<N> {
        AvgPool {
            window: Pool::new(kernel),
            count_include_pad: true,
            divisor_override: None,
        }
    }
}

impl AvgPool2d {
    fn shape(self, window: Pool2dShape) -> AveragePool2dShape {
        AveragePool2dShape {
            window,
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor_override,
        }
    }
}

/// Gives the largest values and their flat places in the plane.
#[derive(Clone, Copy, Debug)]
struct MaxPool2d(Pool2d);

impl Op for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let (_, shape) = self.0.over(self.name(), inputs[0].shape())?;
        Ok(smallvec![
            OutputMeta::contiguous(shape.clone(), dtype),
            OutputMeta::contiguous(shape, DType::I64)
        ])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (window, _) = self.0.over(self.name(), call.layout(0).shape())?;
        match_float!(self.name(), call.dtype(0), T => {
            pool::max_pool2d::<T>(&window, call.input(0), call.output(0), call.output(1));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (window, _) = self.0.over(self.name(), call.layout(0).shape())?;
        OnDevice::fixed(self.name(), window)?.launch(
            &call,
            self.name(),
            [c"max_pool2d_f32", c"max_pool2d_f64"],
            (false, call.dtype(0).size()),
            &[call.input(0), call.output(0), call.output(1)],
        )
    }

    fn saves(&self) -> Saves {
        Saves::NONE.and_outputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let op = MaxPool2dGrad {
            window: self.0,
            shape: context.input_shape(0).clone(),
        };
        Ok(smallvec![Some(dispatch::call_one(
            op,
            &[context.grad_output(), &context.output(1)?]
        )?)])
    }
}

/// Adds gradients to the places that were chosen; inputs: gradient, places.
#[derive(Clone, Debug)]
struct MaxPool2dGrad {
    window: Pool2d,
    shape: Shape,
}

impl Op for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (window, _) = self.window.over(self.name(), &self.shape)?;
        match_float!(self.name(), call.dtype(0), T => {
            pool::max_pool2d_backward::<T>(&window, call.input(0), call.input(1), call.output(0));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (window, _) = self.window.over(self.name(), &self.shape)?;
        OnDevice::fixed(self.name(), window)?.launch(
            &call,
            self.name(),
            [c"max_pool2d_grad_f32", c"max_pool2d_grad_f64"],
            // A number and its place.
            (true, call.dtype(0).size() + size_of::<i32>()),
            &[call.input(0), call.input(1), call.output(0)],
        )
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let places = context.input(1)?;
        let grad = context.grad_output();
        let planes: isize = -1;
        let flat = |tensor: &Tensor, ndim: usize| -> Result<Tensor> {
            let plane: usize = tensor.shape()[ndim - 2..].iter().product();
            tensor.reshape(&[planes, plane as isize])
        };
        let ndim = places.ndim();
        let chosen = flat(grad, ndim)?.gather(1, &flat(&places, ndim)?)?;
        Ok(smallvec![Some(chosen.reshape_to(places.shape())?), None])
    }
}

#[derive(Clone, Copy, Debug)]
struct AveragePool2d(AvgPool2d);

impl Op for AveragePool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        if self.0.window.dilation != [1, 1] || self.0.divisor_override == Some(0) {
            return Err(Error::argument(
                self.name(),
                "averages take a dilation of 1 and a divisor that isn't 0",
            ));
        }
        let dtype = same_float(self.name(), inputs)?;
        let (_, shape) = self.0.window.over(self.name(), inputs[0].shape())?;
        Ok(smallvec![OutputMeta::contiguous(shape, dtype)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (window, _) = self.0.window.over(self.name(), call.layout(0).shape())?;
        match_float!(self.name(), call.dtype(0), T => {
            pool::avg_pool2d::<T>(&self.0.shape(window), call.input(0), call.output(0));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (window, _) = self.0.window.over(self.name(), call.layout(0).shape())?;
        OnDevice::average(self.name(), &self.0.shape(window))?.launch(
            &call,
            self.name(),
            [c"avg_pool2d_f32", c"avg_pool2d_f64"],
            (false, call.dtype(0).size()),
            &[call.input(0), call.output(0)],
        )
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let op = AveragePool2dGrad {
            window: self.0,
            shape: context.input_shape(0).clone(),
        };
        Ok(smallvec![Some(dispatch::call_one(
            op,
            &[context.grad_output()]
        )?)])
    }
}

#[derive(Clone, Debug)]
struct AveragePool2dGrad {
    window: AvgPool2d,
    shape: Shape,
}

impl Op for AveragePool2dGrad {
    fn name(&self) -> &'static str {
        "avg_pool2d_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (window, _) = self.window.window.over(self.name(), &self.shape)?;
        match_float!(self.name(), call.dtype(0), T => {
            pool::avg_pool2d_backward::<T>(&self.window.shape(window), call.input(0), call.output(0));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (window, _) = self.window.window.over(self.name(), &self.shape)?;
        OnDevice::average(self.name(), &self.window.shape(window))?.launch(
            &call,
            self.name(),
            [c"avg_pool2d_grad_f32", c"avg_pool2d_grad_f64"],
            (true, call.dtype(0).size()),
            &[call.input(0), call.output(0)],
        )
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        Ok(smallvec![Some(dispatch::call_one(
            AveragePool2d(self.window),
            &[context.grad_output()]
        )?)])
    }
}

/// Averages over windows chosen so that the output has `size`; `of` is the input's shape where this is the gradient.
#[derive(Clone, Debug)]
struct AdaptiveAvgPool2d {
    size: [usize; 2],
    of: Option<Shape>,
}

impl Op for AdaptiveAvgPool2d {
    fn name(&self) -> &'static str {
        if self.of.is_some() {
            "adaptive_avg_pool2d_grad"
        } else {
            "adaptive_avg_pool2d"
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let shape = inputs[0].shape();
        let output = match (&self.of, shape.split_last_chunk::<2>()) {
            (Some(of), _) => of.clone(),
            (None, Some((planes, _))) if (3..=4).contains(&shape.ndim()) => {
                planes.iter().copied().chain(self.size).collect()
            }
            _ => {
                return Err(Error::shape(
                    self.name(),
                    format!("expected [n, c, h, w] or [c, h, w], got {shape}"),
                ));
            }
        };
        if self.of.is_none() && shape[shape.ndim() - 2..].contains(&0) {
            return Err(Error::shape(
                self.name(),
                format!("expected images with pixels, got {shape}"),
            ));
        }
        Ok(smallvec![OutputMeta::contiguous(output, dtype)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let image = self.of.as_ref().unwrap_or(call.layout(0).shape());
        let ndim = image.ndim();
        let planes = image[..ndim - 2].iter().product();
        let size = [image[ndim - 2], image[ndim - 1]];
        match_float!(self.name(), call.dtype(0), T => {
            if self.of.is_some() {
                adaptive_avg_pool2d_backward::<T>(planes, size, self.size, call.input(0), call.output(0));
            } else {
                adaptive_avg_pool2d::<T>(planes, size, self.size, call.input(0), call.output(0));
            }
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let image = self.of.as_ref().unwrap_or(call.layout(0).shape());
        let ndim = image.ndim();
        let planes = image[..ndim - 2].iter().product();
        let size = [image[ndim - 2], image[ndim - 1]];
        let names = match self.of {
            None => [c"adaptive_avg_pool2d_f32", c"adaptive_avg_pool2d_f64"],
            Some(_) => [
                c"adaptive_avg_pool2d_grad_f32",
                c"adaptive_avg_pool2d_grad_f64",
            ],
        };
        OnDevice::fitted(planes, size, self.size).launch(
            &call,
            self.name(),
            names,
            (self.of.is_some(), call.dtype(0).size()),
            &[call.input(0), call.output(0)],
        )
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let of = match self.of {
            Some(_) => None,
            None => Some(context.input_shape(0).clone()),
        };
        let op = AdaptiveAvgPool2d {
            size: self.size,
            of,
        };
        Ok(smallvec![Some(dispatch::call_one(
            op,
            &[context.grad_output()]
        )?)])
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let (window, average) = (Pool2d::new([1, 1]), AvgPool2d::new([1, 1]));
    let (size, shape) = ([1, 1], Shape::scalar());
    vec![
        Box::new(MaxPool2d(window)),
        Box::new(MaxPool2dGrad {
            window,
            shape: shape.clone(),
        }),
        Box::new(AveragePool2d(average)),
        Box::new(AveragePool2dGrad {
            window: average,
            shape: shape.clone(),
        }),
        Box::new(AdaptiveAvgPool2d { size, of: None }),
        Box::new(AdaptiveAvgPool2d {
            size,
            of: Some(shape),
        }),
    ]
}

impl Tensor {
    /// The largest value of each window of images `[n, c, h, w]` or `[c, h, w]`; NaN where there is one
    /// (`torch.nn.functional.max_pool2d`).
    #[track_caller]
    pub fn max_pool2d(&self, window: Pool2d) -> Result<Tensor> {
        Ok(self.max_pool2d_with_indices(window)?.0)
    }

    /// [`max_pool2d`](Tensor::max_pool2d) with the chosen places, i64, flat in each plane (`return_indices=True`).
    #[track_caller]
    pub fn max_pool2d_with_indices(&self, window: Pool2d) -> Result<(Tensor, Tensor)> {
        let mut outputs = dispatch::call(MaxPool2d(window), &[self])?.into_iter();
        match (outputs.next(), outputs.next()) {
            (Some(values), Some(indices)) => Ok((values, indices)),
            _ => unreachable!("max_pool2d has two outputs"),
        }
    }

    /// The average of each window of images (`torch.nn.functional.avg_pool2d`).
    #[track_caller]
    pub fn avg_pool2d(&self, window: AvgPool2d) -> Result<Tensor> {
        dispatch::call_one(AveragePool2d(window), &[self])
    }

    /// Averages over windows chosen so that images come out with `size` (height, width)
    /// (`torch.nn.functional.adaptive_avg_pool2d`).
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Result<Tensor> {
        dispatch::call_one(AdaptiveAvgPool2d { size, of: None }, &[self])
    }
}
