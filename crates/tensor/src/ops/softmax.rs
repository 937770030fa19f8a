//! `softmax` and `log_softmax`.

use fireclay_core::{Result, resolve_dim};
use fireclay_cpu::softmax;
use smallvec::smallvec;

use super::float::{match_float, same_float};
use crate::autograd::{Backward, is_grad_enabled};
use crate::dispatch;
use crate::op::{Autocast, Grads, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Over the last dimension.
#[derive(Clone, Copy, Debug)]
struct Softmax {
    log: bool,
}

/// The rows of a shape over its last dimension.
fn rows(shape: &[usize]) -> (usize, usize) {
    let cols = shape.last().copied().unwrap_or(1);
    let outer: &[usize] = shape.split_last().map_or(&[], |(_, outer)| outer);
    (outer.iter().product(), cols)
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name(), inputs)?;
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (rows, cols) = rows(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            softmax::softmax::<T>(call.input(0), rows, cols, self.log, call.output(0));
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::OUTPUTS
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let (y, grad) = (context.output(0)?, context.grad_output());
        let last = [-1];
        let grad = match (is_grad_enabled(), self.log) {
            (false, _) => dispatch::call_one(SoftmaxGrad(*self), &[&y, grad])?,
            (true, false) => {
                let dot = grad.mul(&y)?.sum(&last, true)?;
                ((grad - &dot) * &y).eval()?
            }
            (true, true) => {
                let sum = grad.sum(&last, true)?;
                (grad - &y.exp()? * &sum).eval()?
            }
        };
        Ok(smallvec![Some(grad)])
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// The fused gradient; inputs: result, gradient.
#[derive(Clone, Copy, Debug)]
struct SoftmaxGrad(Softmax);

impl Op for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (rows, cols) = rows(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            softmax::softmax_backward::<T>(call.input(0), call.input(1), rows, cols, self.0.log, call.output(0));
        });
        Ok(())
    }
}

impl Tensor {
    /// `exp(x) / sum(exp(x))` along `dim` (`torch.softmax`).
    #[track_caller]
    pub fn softmax(&self, dim: isize) -> Result<Tensor> {
        self.softmax_along(Softmax { log: false }, dim)
    }

    /// The logarithm of [`softmax`](Tensor::softmax), without overflow (`torch.log_softmax`).
    #[track_caller]
    pub fn log_softmax(&self, dim: isize) -> Result<Tensor> {
        self.softmax_along(Softmax { log: true }, dim)
    }

    #[track_caller]
    fn softmax_along(&self, op: Softmax, dim: isize) -> Result<Tensor> {
        let dim = resolve_dim(op.name(), dim, self.ndim())?;
        if dim + 1 >= self.ndim() {
            return dispatch::call_one(op, &[self]);
        }
        dispatch::call_one(op, &[&self.transpose(dim as isize, -1)?])?.transpose(dim as isize, -1)
    }
}
