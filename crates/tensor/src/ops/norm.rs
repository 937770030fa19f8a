//! Normalisation: `layer_norm`, `rms_norm`, `group_norm`, `batch_norm`.

use fireclay_core::{DType, Dims, Error, Result, Shape};
use fireclay_cpu::norm::{self, Channels, Rows};
use smallvec::{SmallVec, smallvec};

use super::float::{match_float, same_float};
use super::norm_cuda;
use crate::autograd::{Backward, is_grad_enabled, no_grad};
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Which numbers are normalised together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// Those of the last dimensions.
    Layer { dims: usize },
    /// Those of the last dimensions, by their mean square alone.
    Rms { dims: usize },
    /// Those of a group of an image's channels.
    Group { groups: usize },
}

/// Inputs: x, then weight and bias where there are some; outputs: y, reciprocal deviation, and the mean where there is one.
#[derive(Clone, Copy, Debug)]
struct RowNorm {
    rule: Rule,
    eps: f64,
    weight: bool,
    bias: bool,
}

impl RowNorm {
    fn centered(self) -> bool {
        !matches!(self.rule, Rule::Rms { .. })
    }

    /// The shape of the statistics, and that of weight and bias.
    fn split(self, shape: &[usize]) -> (Shape, Shape) {
        match self.rule {
            Rule::Layer { dims } | Rule::Rms { dims } => {
                let (rows, normalized) = shape.split_at(shape.len() - dims);
                (Shape::new(rows), Shape::new(normalized))
            }
            Rule::Group { groups } => (Shape::new(&[shape[0], groups]), Shape::new(&shape[1..2])),
        }
    }

    fn rows(self, shape: &[usize]) -> Rows {
        let (rows, parameters) = self.split(shape);
        let (groups, plane) = match self.rule {
            Rule::Group { groups } => (groups, shape[2..].iter().product()),
            _ => (1, 1),
        };
        Rows {
            rows: rows.numel(),
            cols: parameters.numel() * plane / groups,
            centered: self.centered(),
            groups,
            plane,
        }
    }

    /// x as rows, and weight or bias broadcast to them: for the gradient in tensor ops.
    #[track_caller]
    fn as_rows(self, x: &Tensor) -> Result<Tensor> {
        let Rows { rows, cols, .. } = self.rows(x.shape());
        x.reshape_to(&Shape::new(&[rows, cols]))
    }

    /// The gradients in tensor ops, which can be differentiated again.
    #[track_caller]
    fn composed(
        self,
        x: &Tensor,
        grad: &Tensor,
        weight: Option<&Tensor>,
        context: &Backward<'_>,
    ) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; context.inputs()];
        let normal = Normal::new(&self.as_rows(x)?, &[-1], self.eps, self.centered())?;
        let value = normal.value.reshape_to(x.shape())?;
        // Over which dimensions weight and bias are the same.
        let same: Vec<isize> = match self.rule {
            Rule::Group { .. } => other_dims(x.ndim()),
            Rule::Layer { dims } | Rule::Rms { dims } => (0..(x.ndim() - dims) as isize).collect(),
        };
        let summed = |tensor: &Tensor| match same.is_empty() {
            true => Ok(tensor.clone()),
            false => tensor.sum(&same, false),
        };
        let scaled = match (weight, self.rule) {
            (None, _) => grad.clone(),
            (Some(weight), Rule::Group { .. }) => grad.mul(&per_channel(weight, x.ndim())?)?,
            (Some(weight), _) => grad.mul(weight)?,
        };
        let of_x = normal.backward(&self.as_rows(&scaled)?, &[-1])?;
        grads[0] = Some(of_x.reshape_to(x.shape())?);
        if weight.is_some() {
            grads[1] = Some(summed(&grad.mul(&value)?)?);
        }
        if self.bias {
            grads[context.inputs() - 1] = Some(summed(grad)?);
        }
        Ok(grads)
    }
}

impl Op for RowNorm {
    fn name(&self) -> &'static str {
        match self.rule {
            Rule::Layer { .. } => "layer_norm",
            Rule::Rms { .. } => "rms_norm",
            Rule::Group { .. } => "group_norm",
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        let (rows, parameters) = self.split(inputs[0].shape());
        if let Some(wrong) = inputs[1..]
            .iter()
            .find(|input| *input.shape() != parameters)
        {
            let what = format!(
                "expected weight and bias {parameters}, got {}",
                wrong.shape()
            );
            return Err(Error::shape(self.name(), what));
        }
        let statistics = if dtype.is_half() { DType::F32 } else { dtype };
        let mut outputs: OutputMetas = smallvec![
            OutputMeta::contiguous(inputs[0].shape().clone(), dtype),
            OutputMeta::contiguous(rows.clone(), statistics)
        ];
        if self.centered() {
            outputs.push(OutputMeta::contiguous(rows, statistics));
        }
        Ok(outputs)
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let rows = self.rows(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            let weight: &[T] = if self.weight { call.input(1) } else { &[] };
            let bias: &[T] = if self.bias { call.input(1 + usize::from(self.weight)) } else { &[] };
            let mean: &mut [T] = if self.centered() { call.output(2) } else { &mut [] };
            norm::row_norm(call.input::<T>(0), rows, weight, bias, self.eps, call.output(0), mean, call.output(1));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        norm_cuda::rows(
            &call,
            self.rows(call.layout(0).shape()),
            self.eps,
            [self.weight, self.bias],
        )
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
        let weight = self.weight.then(|| context.input(1)).transpose()?;
        if is_grad_enabled() {
            return self.composed(&x, grad, weight.as_ref(), context);
        }
        let rstd = context.output(1)?;
        let mean = self.centered().then(|| context.output(2)).transpose()?;
        let mut inputs: SmallVec<[&Tensor; 5]> = smallvec![&x, grad, &rstd];
        inputs.extend(mean.as_ref());
        inputs.extend(weight.as_ref());
        let outputs = dispatch::call(RowNormGrad(*self), &inputs)?;
        for (place, gradient) in outputs.into_iter().enumerate() {
            grads[place] = Some(gradient);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// The fused gradient; inputs: x, gradient, reciprocal deviation, the mean where there is one, maybe weight. Not differentiable
/// itself: `RowNorm::backward` composes the gradient of tensor ops where that is wanted.
#[derive(Clone, Copy, Debug)]
struct RowNormGrad(RowNorm);

impl Op for RowNormGrad {
    fn name(&self) -> &'static str {
        match self.0.rule {
            Rule::Layer { .. } => "layer_norm_grad",
            Rule::Rms { .. } => "rms_norm_grad",
            Rule::Group { .. } => "group_norm_grad",
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let (_, parameters) = self.0.split(inputs[0].shape());
        let dtype = inputs[0].dtype;
        let mut outputs: OutputMetas =
            smallvec![OutputMeta::contiguous(inputs[0].shape().clone(), dtype)];
        for _ in 0..usize::from(self.0.weight) + usize::from(self.0.bias) {
            outputs.push(OutputMeta::contiguous(parameters.clone(), dtype));
        }
        Ok(outputs)
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let RowNorm {
            weight: weighted,
            bias: biased,
            ..
        } = self.0;
        let rows = self.0.rows(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            let mean: &[T] = if rows.centered { call.input(3) } else { &[] };
            let weight: &[T] = if weighted { call.input(call.inputs() - 1) } else { &[] };
            let grad_x = call.output::<T>(0);
            let grad_weight: &mut [T] = if weighted { call.output(1) } else { &mut [] };
            let grad_bias: &mut [T] = if biased { call.output(1 + usize::from(weighted)) } else { &mut [] };
            norm::row_norm_backward(
                call.input::<T>(0), call.input(1), rows, weight, mean, call.input(2), grad_x, grad_weight, grad_bias,
            );
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        norm_cuda::row_gradients(
            &call,
            self.0.rows(call.layout(0).shape()),
            [self.0.weight, self.0.bias],
        )
    }
}

/// `(x - mean) / sqrt(variance + eps)` over some dimensions, in tensor ops.
struct Normal {
    value: Tensor,
    rstd: Tensor,
    /// Whether the mean was subtracted.
    centered: bool,
}

impl Normal {
    #[track_caller]
    fn new(x: &Tensor, dims: &[isize], eps: f64, centered: bool) -> Result<Normal> {
        let apart = match centered {
            true => x.sub(&x.mean(dims, true)?)?,
            false => x.clone(),
        };
        let rstd = (Formula::from(&apart.square()?.mean(dims, true)?) + eps)
            .rsqrt()
            .eval()?;
        Ok(Normal {
            value: apart.mul(&rstd)?,
            rstd,
            centered,
        })
    }

    /// The gradient of x, given that of the value.
    #[track_caller]
    fn backward(&self, grad: &Tensor, dims: &[isize]) -> Result<Tensor> {
        let slope = grad.mul(&self.value)?.mean(dims, true)?;
        let across = grad - &self.value * &slope;
        match self.centered {
            true => ((across - &grad.mean(dims, true)?) * &self.rstd).eval(),
            false => (across * &self.rstd).eval(),
        }
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

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let sizes = channels(call.layout(0).shape());
        norm_cuda::channels(&call, sizes, self.eps, [self.weight, self.bias])
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
            let normal = Normal::new(&x, &dims, self.eps, true)?;
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

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        norm_cuda::channel_gradients(&call, channels(call.layout(0).shape()))
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
    let of = |rule| RowNorm {
        rule,
        eps: 0.0,
        weight: false,
        bias: false,
    };
    let rules = [
        Rule::Layer { dims: 1 },
        Rule::Rms { dims: 1 },
        Rule::Group { groups: 1 },
    ];
    let batch_norm = BatchNormTraining {
        eps: 0.0,
        weight: false,
        bias: false,
    };
    let mut ops: Vec<Box<dyn Op>> = vec![Box::new(batch_norm), Box::new(BatchNormGrad)];
    for rule in rules {
        ops.push(Box::new(of(rule)));
        ops.push(Box::new(RowNormGrad(of(rule))));
    }
    ops
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
        let rule = Rule::Layer {
            dims: normalized_shape.len(),
        };
        self.row_norm(rule, normalized_shape, [weight, bias], eps)
    }

    /// Divides by the root of the mean square over the last dimensions, whose sizes are `normalized_shape`, then multiplies by
    /// `weight` (`torch.nn.functional.rms_norm`). Without an `eps` it is the distance from 1 to the next number of the dtype
    /// that is computed in.
    #[track_caller]
    pub fn rms_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
    ) -> Result<Tensor> {
        let rule = Rule::Rms {
            dims: normalized_shape.len(),
        };
        let eps = eps.unwrap_or(match self.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        });
        self.row_norm(rule, normalized_shape, [weight, None], eps)
    }

    /// Normalises `groups` groups of neighbouring channels of each image of `[n, c, ..]`: mean 0 and variance 1, then times
    /// `weight` plus `bias`, which have a number per channel (`torch.nn.functional.group_norm`; its default `eps` is 1e-5).
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let operands = || vec![self.operand("self")];
        if self.ndim() < 2 {
            let what = format!("expected [n, c, ..], got {}", self.shape());
            return Err(Error::shape("group_norm", what).with_operands(operands));
        }
        if groups == 0 || !self.shape()[1].is_multiple_of(groups) {
            let channels = self.shape()[1];
            let what = format!("{channels} channels can't be parted into {groups} equal groups");
            return Err(Error::argument("group_norm", what)
                .with_hint("the number of channels must be a multiple of the number of groups")
                .with_operands(operands));
        }
        self.call_row_norm(Rule::Group { groups }, [weight, bias], eps)
    }

    #[track_caller]
    fn row_norm(
        &self,
        rule: Rule,
        normalized_shape: &[usize],
        parameters: [Option<&Tensor>; 2],
        eps: f64,
    ) -> Result<Tensor> {
        if normalized_shape.is_empty() || !self.shape().ends_with(normalized_shape) {
            let op = if matches!(rule, Rule::Rms { .. }) {
                "rms_norm"
            } else {
                "layer_norm"
            };
            return Err(Error::shape(
                op,
                format!(
                    "expected a shape that ends with {}, got {}",
                    Shape::new(normalized_shape),
                    self.shape()
                ),
            )
            .with_operands(|| vec![self.operand("self")]));
        }
        self.call_row_norm(rule, parameters, eps)
    }

    #[track_caller]
    fn call_row_norm(
        &self,
        rule: Rule,
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f64,
    ) -> Result<Tensor> {
        let op = RowNorm {
            rule,
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
                // An empty batch has no statistics to blend in.
                if let Some((mean, variance)) = running
                    && self.numel() > 0
                {
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
