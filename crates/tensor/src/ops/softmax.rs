//! `softmax` and `log_softmax`.

use std::ffi::CStr;

use fireclay_core::{Result, resolve_dim};
use fireclay_cpu::softmax;
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::{kernel_of, match_float, same_float};
use super::row_kernels::{BLOCK_THREADS, fits_a_warp, rows_in_shared};
use crate::autograd::{Backward, is_grad_enabled};
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `softmax.cu`.
static KERNELS: Library = fireclay_cuda::library!("softmax");

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

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(0);
        let kernels = match self.log {
            true => [
                kernel_of!(call, dtype, "log_softmax_rows"),
                kernel_of!(call, dtype, "log_softmax_blocks"),
            ],
            false => [
                kernel_of!(call, dtype, "softmax_rows"),
                kernel_of!(call, dtype, "softmax_blocks"),
            ],
        };
        // The logarithm needs the row beside its exponentials.
        by_rows(&call, kernels, if self.log { 2 } else { 1 })
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

/// Starts a kernel that takes the inputs and the output, all of one shape, by rows: the first of two if a warp keeps a row,
/// else the second, for which `slots` rows are kept in shared memory where there is room.
fn by_rows(call: &CudaCall<'_>, kernels: [&'static CStr; 2], slots: usize) -> Result<()> {
    let dtype = call.dtype(0);
    let cols = call.layout(0).shape().last().copied().unwrap_or(1);
    let rows = call.layout(0).numel().checked_div(cols).unwrap_or(0);
    let mut arguments: Vec<Argument<'_>> =
        (0..call.inputs()).map(|index| call.input(index)).collect();
    arguments.push(call.output(0));
    let columns = Argument::U64(cols as u64);
    if fits_a_warp(cols, dtype) {
        arguments.extend([Argument::U64(rows as u64), columns]);
        // SAFETY: the kernels take what they read, what they write, rows and columns; all are contiguous, of one shape and
        // dtype, and columns no more than the lanes of a warp keep.
        return unsafe { call.launch_rows(&KERNELS, kernels[0], rows, &arguments) };
    }
    let (slots, shared) = rows_in_shared(cols, dtype, slots);
    arguments.extend([columns, Argument::U32(slots as u32)]);
    let shape = [rows, BLOCK_THREADS, shared];
    // SAFETY: as above; there is shared memory for as many rows as is said.
    unsafe { call.launch_with_shared(&KERNELS, kernels[1], shape, &arguments) }
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

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(0);
        let kernels = match self.0.log {
            true => [
                kernel_of!(call, dtype, "log_softmax_grad_rows"),
                kernel_of!(call, dtype, "log_softmax_grad_blocks"),
            ],
            false => [
                kernel_of!(call, dtype, "softmax_grad_rows"),
                kernel_of!(call, dtype, "softmax_grad_blocks"),
            ],
        };
        by_rows(&call, kernels, 2)
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
