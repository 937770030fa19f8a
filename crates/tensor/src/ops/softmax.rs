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
        let cols = call.layout(0).shape().last().copied().unwrap_or(1);
        match_float!(self.name(), call.dtype(0), T => {
            let (x, y) = (call.input::<T>(0), call.output(0));
            if self.log { softmax::log_softmax(x, cols, y) } else { softmax::softmax(x, cols, y) }
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
        let cols = call.layout(0).shape().last().copied().unwrap_or(1);
        match_float!(self.name(), call.dtype(0), T => {
            let (y, grad, out) = (call.input::<T>(0), call.input(1), call.output(0));
            if self.0.log {
                softmax::log_softmax_backward(grad, y, cols, out);
            } else {
                softmax::softmax_backward(grad, y, cols, out);
            }
        });
        Ok(())
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let of = |log| Softmax { log };
    vec![
        Box::new(of(false)),
        Box::new(of(true)),
        Box::new(SoftmaxGrad(of(false))),
    ]
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
