//! Normalisation: `layer_norm`, `batch_norm`.

use fireclay_core::{DType, Dims, Error, Result, Shape};
use fireclay_cpu::norm::{self, Channels};
use smallvec::{SmallVec, smallvec};

use super::float::{match_float, same_float};
use crate::autograd::{Backward, is_grad_enabled, no_grad};
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Inputs: x, then weight and bias where there are some; outputs: y, mean, reciprocal standard deviation.
#[derive(Clone, Copy, Debug)]
struct LayerNorm {
    /// How many of the last dimensions are normalised over.
    dims: usize,
    eps: f64,
    weight: bool,
    bias: bool,
}

impl LayerNorm {
    fn split(self, shape: &[usize]) -> (&[usize], &[usize]) {
        shape.split_at(shape.len() - self.dims)
    }
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let (rows, normalized) = self.split(inputs[0].shape());
        for parameter in &inputs[1..] {
            if parameter.shape()[..] != *normalized {
                return Err(Error::shape(
                    self.name(),
                    format!(
                        "expected weight and bias {}, got {}",
                        Shape::new(normalized),
                        parameter.shape()
                    ),
                ));
            }
        }
        let rows = Shape::new(rows);
        let statistics = if dtype.is_half() { DType::F32 } else { dtype };
        Ok(smallvec![
            OutputMeta::contiguous(inputs[0].shape().clone(), dtype),
            OutputMeta::contiguous(rows.clone(), statistics),
            OutputMeta::contiguous(rows, statistics)
        ])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (rows, normalized) = self.split(call.layout(0).shape());
        let (rows, cols) = (rows.iter().product(), normalized.iter().product());
        match_float!(self.name(), call.dtype(0), T => {
            let weight: &[T] = if self.weight { call.input(1) } else { &[] };
            let bias: &[T] = if self.bias { call.input(1 + usize::from(self.weight)) } else { &[] };
            norm::layer_norm(call.input::<T>(0), rows, cols, weight, bias, self.eps, call.output(0), call.output(1), call.output(2));
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1]).and_outputs(&[1, 2])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; context.inputs()];
        let Some(grad) = context.grad(0) else {
            return Ok(grads);
        };
        let x = context.input(0)?;
        let weight = if self.weight {
            Some(context.input(1)?)
        } else {
            None
        };
        if is_grad_enabled() {
            let dims: Vec<isize> = (1..=self.dims as isize).map(|dim| -dim).collect();
            let normal = Normal::new(&x, &dims, self.eps)?;
            let (normalized, scaled) = match &weight {
                Some(weight) => (Some(grad.mul(&normal.value)?), grad.mul(weight)?),
                None => (None, grad.clone()),
            };
            grads[0] = Some(normal.backward(&scaled, &dims)?);
            if let Some(normalized) = normalized {
                grads[1] = Some(normalized.sum_to(context.input_shape(1))?);
            }
            if self.bias {
                let bias = context.inputs() - 1;
                grads[bias] = Some(grad.sum_to(context.input_shape(bias))?);
            }
            return Ok(grads);
        }
        let (mean, rstd) = (context.output(1)?, context.output(2)?);
        let mut inputs: SmallVec<[&Tensor; 5]> = smallvec![&x, grad, &mean, &rstd];
        inputs.extend(weight.as_ref());
        let outputs = dispatch::call(LayerNormGrad(*self), &inputs)?;
        for (place, gradient) in outputs.into_iter().enumerate() {
            grads[place] = Some(gradient);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// The fused gradient; inputs: x, gradient, mean, rstd, maybe weight. Not differentiable itself: `LayerNorm::backward`
/// composes the gradient of tensor ops where that is wanted.
#[derive(Clone, Copy, Debug)]
struct LayerNormGrad(LayerNorm);

impl Op for LayerNormGrad {
    fn name(&self) -> &'static str {
        "layer_norm_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let (_, normalized) = self.0.split(inputs[0].shape());
        let dtype = inputs[0].dtype;
        let mut outputs: OutputMetas =
            smallvec![OutputMeta::contiguous(inputs[0].shape().clone(), dtype)];
        for _ in 0..usize::from(self.0.weight) + usize::from(self.0.bias) {
            outputs.push(OutputMeta::contiguous(Shape::new(normalized), dtype));
        }
        Ok(outputs)
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (rows, normalized) = self.0.split(call.layout(0).shape());
        let (rows, cols) = (rows.iter().product(), normalized.iter().product());
        match_float!(self.name(), call.dtype(0), T => {
            let weight: &[T] = if self.0.weight { call.input(4) } else { &[] };
            let grad_x = call.output::<T>(0);
            let grad_weight: &mut [T] = if self.0.weight { call.output(1) } else { &mut [] };
            let grad_bias: &mut [T] = if self.0.bias { call.output(1 + usize::from(self.0.weight)) } else { &mut [] };
            norm::layer_norm_backward(
                call.input::<T>(0), call.input(1), rows, cols, weight, call.input(2), call.input(3),
                grad_x, grad_weight, grad_bias,
            );
        });
        Ok(())
    }
}

/// `(x - mean) / sqrt(variance + eps)` over some dimensions, in tensor ops.
struct Normal {
    value: Tensor,
    rstd: Tensor,
}

impl Normal {
    #[track_caller]
    fn new(x: &Tensor, dims: &[isize], eps: f64) -> Result<Normal> {
        let centered = x.sub(&x.mean(dims, true)?)?;
        let rstd = (Formula::from(&centered.square()?.mean(dims, true)?) + eps)
            .rsqrt()
            .eval()?;
        Ok(Normal {
            value: centered.mul(&rstd)?,
            rstd,
        })
    }

    /// The gradient of x, given that of the value.
    #[track_caller]
    fn backward(&self, grad: &Tensor, dims: &[isize]) -> Result<Tensor> {
        let average = grad.mean(dims, true)?;
        let slope = grad.mul(&self.value)?.mean(dims, true)?;
        ((grad - &average - &self.value * &slope) * &self.rstd).eval()
    }
}

/// What [`Tensor::batch_norm`] takes besides the images.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm<'a> {
    /// One factor per channel; ones if absent.
    pub weight: Option<&'a Tensor>,
    /// One number per channel to add; zeros if absent.
    pub bias: Option<&'a Tensor>,
    /// Running mean and variance per channel: used in evaluation, updated in place in training.
    pub running: Option<(&'a Tensor, &'a Tensor)>,
    /// Whether the batch's own statistics are used. Without running statistics they always are.
    pub training: bool,
    /// The share of the batch in the updated running statistics; PyTorch's default is 0.1.
    pub momentum: f64,
    /// Added to the variance; PyTorch's default is 1e-5.
    pub eps: f64,
}

impl Default for BatchNorm<'_> {
    fn default() -> Self {
        BatchNorm {
            weight: None,
            bias: None,
            running: None,
            training: true,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

/// Batch norm in training. Inputs: x, maybe weight and bias; outputs: y, mean, rstd, biased variance.
#[derive(Clone, Copy, Debug)]
struct BatchNormTraining {
    eps: f64,
    weight: bool,
    bias: bool,
}

fn channels(shape: &[usize]) -> Channels {
    Channels {
        batch: shape[0],
        channels: shape[1],
        plane: shape[2..].iter().product(),
    }
}

/// All dimensions but that of the channels.
fn other_dims(ndim: usize) -> Vec<isize> {
    (0..ndim as isize).filter(|&dim| dim != 1).collect()
}

impl Op for BatchNormTraining {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let shape = inputs[0].shape();
        let sizes = channels(shape);
        if sizes.batch * sizes.plane == 1 {
            return Err(Error::argument(
                self.name(),
                format!("one value per channel has no variance to train with, got {shape}"),
            )
            .with_hint("use a larger batch, or eval()"));
        }
        let dtypes = if dtype.is_half() { DType::F32 } else { dtype };
        let per_channel = || OutputMeta::contiguous(Shape::new(&[sizes.channels]), dtypes);
        Ok(smallvec![
            OutputMeta::contiguous(shape.clone(), dtype),
            per_channel(),
            per_channel(),
            per_channel()
        ])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let sizes = channels(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            let weight: &[T] = if self.weight { call.input(1) } else { &[] };
            let bias: &[T] = if self.bias { call.input(1 + usize::from(self.weight)) } else { &[] };
            norm::batch_norm(
                call.input::<T>(0), sizes, weight, bias, self.eps,
                call.output(0), call.output(1), call.output(2), call.output(3),
            );
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1]).and_outputs(&[1, 2])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; context.inputs()];
        let Some(grad) = context.grad(0) else {
            return Ok(grads);
        };
        let x = context.input(0)?;
        let weight = if self.weight {
            Some(context.input(1)?)
        } else {
            None
        };
        let bias = self.bias.then(|| context.inputs() - 1);
        if is_grad_enabled() {
            let dims = other_dims(x.ndim());
            let normal = Normal::new(&x, &dims, self.eps)?;
            let scaled = match &weight {
                Some(weight) => {
                    grads[1] = Some(grad.mul(&normal.value)?.sum(&dims, false)?);
                    grad.mul(&per_channel(weight, x.ndim())?)?
                }
                None => grad.clone(),
            };
            grads[0] = Some(normal.backward(&scaled, &dims)?);
            if let Some(bias) = bias {
                grads[bias] = Some(grad.sum(&dims, false)?);
            }
            return Ok(grads);
        }
        let (mean, rstd) = (context.output(1)?, context.output(2)?);
        let mut inputs: SmallVec<[&Tensor; 5]> = smallvec![&x, grad, &mean, &rstd];
        inputs.extend(weight.as_ref());
        let mut outputs = dispatch::call(BatchNormGrad, &inputs)?.into_iter();
        grads[0] = outputs.next();
        let (of_weight, of_bias) = (outputs.next(), outputs.next());
        if self.weight {
            grads[1] = of_weight;
        }
        if let Some(bias) = bias {
            grads[bias] = of_bias;
        }
        Ok(grads)
    }
}

/// The fused gradient; inputs: x, gradient, mean, rstd, maybe weight; outputs: gradients of x, weight, bias. As
/// `LayerNormGrad`, composed of tensor ops where it is to be differentiated.
#[derive(Clone, Copy, Debug)]
struct BatchNormGrad;

impl Op for BatchNormGrad {
    fn name(&self) -> &'static str {
        "batch_norm_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let (shape, dtype) = (inputs[0].shape(), inputs[0].dtype);
        let per_channel = || OutputMeta::contiguous(Shape::new(&[shape[1]]), dtype);
        Ok(smallvec![
            OutputMeta::contiguous(shape.clone(), dtype),
            per_channel(),
            per_channel()
        ])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let sizes = channels(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            let weight: &[T] = if call.inputs() > 4 { call.input(4) } else { &[] };
            norm::batch_norm_backward(
                call.input::<T>(0), call.input(1), sizes, weight, call.input(2), call.input(3),
                call.output(0), call.output(1), call.output(2),
            );
        });
        Ok(())
    }
}

/// `[c]` as `[c, 1, ..]`, to broadcast over images of `ndim` dimensions.
#[track_caller]
fn per_channel(tensor: &Tensor, ndim: usize) -> Result<Tensor> {
    let mut sizes: Dims = smallvec![1; ndim - 1];
    sizes[0] = tensor.numel();
    tensor.reshape_to(&sizes.into())
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let layer_norm = LayerNorm {
        dims: 1,
        eps: 0.0,
        weight: false,
        bias: false,
    };
    let batch_norm = BatchNormTraining {
        eps: 0.0,
        weight: false,
        bias: false,
    };
    vec![
        Box::new(layer_norm),
        Box::new(LayerNormGrad(layer_norm)),
        Box::new(batch_norm),
        Box::new(BatchNormGrad),
    ]
}

impl Tensor {
    /// Normalises over the last dimensions, whose sizes are `normalized_shape`: mean 0 and variance 1, then times `weight`
    /// plus `bias` (`torch.nn.functional.layer_norm`; its default `eps` is 1e-5).
    #[track_caller]
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        if normalized_shape.is_empty() || !self.shape().ends_with(normalized_shape) {
            return Err(Error::shape(
                "layer_norm",
                format!(
                    "expected a shape that ends with {}, got {}",
                    Shape::new(normalized_shape),
                    self.shape()
                ),
            )
            .with_operands(|| vec![self.operand("self")]));
        }
        let op = LayerNorm {
            dims: normalized_shape.len(),
            eps,
            weight: weight.is_some(),
            bias: bias.is_some(),
        };
        let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![self];
        inputs.extend(weight.into_iter().chain(bias));
        Ok(dispatch::call(op, &inputs)?.remove(0))
    }

    /// Normalises each channel of `[n, c, ..]` (`torch.nn.functional.batch_norm`).
    #[track_caller]
    pub fn batch_norm(&self, options: BatchNorm<'_>) -> Result<Tensor> {
        let BatchNorm {
            weight,
            bias,
            running,
            training,
            momentum,
            eps,
        } = options;
        let tensors = || {
            let running = running
                .into_iter()
                .flat_map(|(mean, variance)| [mean, variance]);
            weight.into_iter().chain(bias).chain(running)
        };
        let operands = || {
            std::iter::once(self)
                .chain(tensors())
                .map(|tensor| tensor.operand("operand"))
                .collect()
        };
        if self.ndim() < 2 {
            return Err(Error::shape(
                "batch_norm",
                format!("expected [n, c, ..], got {}", self.shape()),
            )
            .with_operands(operands));
        }
        let count = self.shape()[1];
        if let Some(wrong) = tensors().find(|tensor| tensor.shape()[..] != [count]) {
            let what = format!(
                "the input has {count} channels, a parameter or statistic has shape {}",
                wrong.shape()
            );
            return Err(Error::shape("batch_norm", what).with_operands(operands));
        }
        let all = || std::iter::once(self).chain(tensors());
        if let Some(wrong) = all().find(|tensor| !tensor.dtype().is_floating_point()) {
            let what = format!("expected floating tensors, got {}", wrong.dtype());
            return Err(Error::dtype("batch_norm", what).with_operands(operands));
        }
        match running {
            Some((mean, variance)) if !training => {
                let wide = |tensor: &Tensor| per_channel(tensor, self.ndim());
                // 16-bit statistics are widened, so that nothing but the result is rounded.
                let precise = |tensor: Tensor| {
                    if tensor.dtype().is_half() {
                        tensor.to_dtype(DType::F32)
                    } else {
                        Ok(tensor)
                    }
                };
                let mut scale = (Formula::from(&precise(wide(variance)?)?) + eps).rsqrt();
                if let Some(weight) = weight {
                    scale = scale * &wide(weight)?;
                }
                let mut result = (self - &wide(mean)?) * &scale.eval()?;
                if let Some(bias) = bias {
                    result = result + &wide(bias)?;
                }
                result.eval()?.to_dtype(self.dtype())
            }
            _ => {
                let op = BatchNormTraining {
                    eps,
                    weight: weight.is_some(),
                    bias: bias.is_some(),
                };
                let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![self];
                inputs.extend(weight.into_iter().chain(bias));
                let outputs = dispatch::call(op, &inputs)?;
                if let Some((mean, variance)) = running {
                    let samples = (self.numel() / count.max(1)) as f64;
                    let unbiased = samples / (samples - 1.0);
                    no_grad(|| {
                        let blend = |old: &Tensor, new: &Tensor, scale: f64| -> Result<()> {
                            let new = (new.detach().into_formula() * (momentum * scale)
                                + old * (1.0 - momentum))
                                .eval()?;
                            old.copy_(&new).map(|_| ())
                        };
                        blend(mean, &outputs[1], 1.0)?;
                        blend(variance, &outputs[3], unbiased)
                    })?;
                }
                Ok(outputs
                    .into_iter()
                    .next()
                    .expect("batch_norm has an output"))
            }
        }
    }

    fn into_formula(self) -> Formula {
        self.into()
    }
}
