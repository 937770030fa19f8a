//! Resizing of images: `interpolate`.

use fireclay_core::{DType, Error, Result, Shape};
use fireclay_cpu::interpolate::{self, Resampling, Resize};
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::{match_float, same_float};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `interpolate.cu`.
static KERNELS: Library = fireclay_cuda::library!("interpolate");

/// The size to which [`Tensor::interpolate`] brings `N` dimensions, the outermost first: (height, width) of images.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum InterpolateTo<const N: usize> {
    /// This size.
    Size([usize; N]),
    /// So many times the size, rounded down (`scale_factor`).
    Scale([f64; N]),
}

/// From which pixels [`Tensor::interpolate`] makes new ones.
///
/// `align_corners` says whether pixels are points, and the corner pixels of both images meet; else they are squares, and the
/// corners meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterpolateMode {
    /// From the pixel at or before the place (`mode="nearest"`).
    Nearest,
    /// From the pixel whose centre is nearest (`mode="nearest-exact"`).
    NearestExact,
    /// From the two pixels around it, in one dimension (`mode="linear"`).
    Linear {
        /// Whether pixels are points.
        align_corners: bool,
    },
    /// From the four pixels around it (`mode="bilinear"`).
    Bilinear {
        /// Whether pixels are points.
        align_corners: bool,
    },
    /// From the eight pixels around it, in volumes (`mode="trilinear"`).
    Trilinear {
        /// Whether pixels are points.
        align_corners: bool,
    },
    /// From the sixteen pixels around it (`mode="bicubic"`).
    Bicubic {
        /// Whether pixels are points.
        align_corners: bool,
    },
    /// As `Bilinear`; where the image shrinks, from all pixels that a new one covers (`antialias=True`).
    BilinearAntialiased {
        /// Whether pixels are points.
        align_corners: bool,
    },
    /// As `Bicubic`; where the image shrinks, from all pixels that a new one covers (`antialias=True`).
    BicubicAntialiased {
        /// Whether pixels are points.
        align_corners: bool,
    },
    /// The average of the pixels that the new one covers (`mode="area"`).
    Area,
}

/// Resizes images; `of` is their shape where this is the gradient.
#[derive(Clone, Debug)]
struct Interpolate {
    to: InterpolateTo<2>,
    mode: Resampling,
    of: Option<Shape>,
}

impl Interpolate {
    /// The resizing of images of this shape.
    fn resize(&self, shape: &Shape) -> Result<Resize> {
        let &[batch, channels, height, width] = &shape[..] else {
            let what = format!("expected images [n, c, h, w], got {shape}");
            return Err(
                Error::shape(self.name(), what).with_hint("add dimensions with unsqueeze(0)")
            );
        };
        let input = [height, width];
        let (output, factors) = match self.to {
            InterpolateTo::Size(size) => (size, None),
            InterpolateTo::Scale(factors) => {
                let good = |factor: &f64| factor.is_finite() && *factor > 0.0;
                if !factors.iter().all(good) {
                    let what = format!(
                        "expected factors above 0, got {} and {}",
                        factors[0], factors[1]
                    );
                    return Err(Error::argument(self.name(), what));
                }
                let scaled = |dim: usize| (input[dim] as f64 * factors[dim]).floor() as usize;
                ([scaled(0), scaled(1)], Some(factors))
            }
        };
        if input.contains(&0) || output.contains(&0) {
            let what = format!(
                "expected images with pixels before and after, got {shape} to {} by {}",
                output[0], output[1]
            );
            return Err(Error::shape(self.name(), what));
        }
        Ok(Resize {
            planes: batch * channels,
            input,
            output,
            factors,
            resampling: self.mode,
        })
    }
}

impl Op for Interpolate {
    fn name(&self) -> &'static str {
        match self.of {
            Some(_) => "interpolate_grad",
            None => "interpolate",
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let shape = match &self.of {
            Some(of) => of.clone(),
            None => {
                let shape = inputs[0].shape();
                let [height, width] = self.resize(shape)?.output;
                [shape[0], shape[1], height, width].into()
            }
        };
        Ok(smallvec![OutputMeta::contiguous(shape, dtype)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let resize = self.resize(self.of.as_ref().unwrap_or(call.layout(0).shape()))?;
        match_float!(self.name(), call.dtype(0), T => {
            match self.of {
                Some(_) => interpolate::interpolate_backward::<T>(&resize, call.input(0), call.output(0)),
                None => interpolate::interpolate::<T>(&resize, call.input(0), call.output(0)),
            }
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let resize = self.resize(self.of.as_ref().unwrap_or(call.layout(0).shape()))?;
        let countable = |size: [usize; 2]| size[0].saturating_mul(size[1]) < 1 << 30;
        if !(countable(resize.input) && countable(resize.output)) {
            let what = "planes of 2^30 pixels are more than the kernels of devices count";
            return Err(
                Error::argument(self.name(), what).with_hint("resize on the CPU: to(\"cpu\")")
            );
        }
        let names = match self.of {
            Some(_) => [c"interpolate_grad_f32", c"interpolate_grad_f64"],
            None => [c"interpolate_f32", c"interpolate_f64"],
        };
        let kernel = call.of_float(call.dtype(0), names)?;
        let step = |dim: usize| match call.dtype(0) {
            DType::F32 => f64::from(resize.step::<f32>(dim)),
            _ => resize.step::<f64>(dim),
        };
        let number = |number: usize| number as u64;
        let mode = match resize.resampling {
            Resampling::Nearest => 0,
            Resampling::Bilinear => 1,
            Resampling::BilinearAligned => 2,
        };
        let words = [
            number(resize.planes),
            number(resize.input[0]),
            number(resize.output[0]),
            step(0).to_bits(),
            number(resize.input[1]),
            number(resize.output[1]),
            step(1).to_bits(),
            mode,
        ];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let written = if self.of.is_some() {
            resize.input
        } else {
            resize.output
        };
        let count = resize.planes * written[0] * written[1];
        let arguments = [call.input(0), call.output(0), Argument::Bytes(&bytes)];
        // SAFETY: the kernels' parameters, the last of which has the eight words of `Resize`; they read and write within the
        // planes, which the operands have by the output rule.
        unsafe { call.launch_threads(&KERNELS, kernel, count, &arguments) }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let op = Interpolate {
            of: match self.of {
                Some(_) => None,
                None => Some(context.input_shape(0).clone()),
            },
            ..self.clone()
        };
        Ok(smallvec![Some(dispatch::call_one(
            op,
            &[context.grad_output()]
        )?)])
    }

    fn autocast(&self) -> Autocast {
        Autocast::Keep
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let of = |of| Interpolate {
        to: InterpolateTo::Size([1, 1]),
        mode: Resampling::Nearest,
        of,
    };
    vec![Box::new(of(None)), Box::new(of(Some(Shape::scalar())))]
}

/// Resizes images `[n, c, h, w]`.
#[track_caller]
pub(super) fn resize(images: &Tensor, to: InterpolateTo<2>, mode: Resampling) -> Result<Tensor> {
    dispatch::call_one(Interpolate { to, mode, of: None }, &[images])
}
