//! `addmm`, `baddbmm` and `addmv`: `beta * input + alpha * product`, as one kernel.

use fireclay_core::{DType, Dims, Error, Result, Scalar, Shape};
use smallvec::smallvec;

use super::epilogue::Epilogue;
use super::{both_in_lines, device_products, host_products};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::ops::float::{match_float, same_float};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// `beta * input + alpha * left @ right`. Inputs: left, right, input, which broadcasts to the result.
#[derive(Clone, Copy, Debug)]
struct Addmm {
    name: &'static str,
    /// Dimensions of the operands: 2, or 3 for a batch.
    ndim: usize,
    alpha: f64,
    beta: f64,
}

impl Addmm {
    /// The epilogue, where the input broadcasts with these strides over the result.
    fn epilogue(self, strides: &[usize]) -> Epilogue {
        let mut over = [0; 3];
        over[3 - strides.len()..].copy_from_slice(strides);
        Epilogue {
            alpha: self.alpha,
            beta: self.beta,
            // Times 0 it isn't read, so that what is no number there doesn't matter.
            residual: (self.beta != 0.0).then_some((2, over)),
            ..Epilogue::NONE
        }
    }
}

impl Op for Addmm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float(self.name, inputs)?;
        let shape = result_shape(self.name, self.ndim, inputs[0].shape(), inputs[1].shape())?;
        check_input(self.name, inputs[2].shape(), &shape)?;
        Ok(smallvec![OutputMeta::contiguous(shape, dtype)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Strided
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        match_float!(self.name, call.dtype(0), T => {
            let shape = call.output_shape(0);
            let c = call.output::<T>(0);
            host_products(&call, shape, self.alpha, c)?;
            let epilogue = self.epilogue(&[]);
            let residual = epilogue.residual.map(|(index, _)| call.raw_input(index));
            epilogue.finish(call.dtype(0), shape, c, residual, None);
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::StridedPacked
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let over = call.layout(2).expand(call.output_layout(0).shape());
        let over = over.expect("the output rule checked that it broadcasts");
        device_products(&call, &self.epilogue(over.strides()))
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let times = |tensor: Tensor, factor: f64| match factor {
            1.0 => Ok(tensor),
            _ => tensor.mul(factor),
        };
        let mut grads: Grads = smallvec![None; 3];
        if context.needs(0) {
            let right = context.input(1)?.transpose(-2, -1)?;
            grads[0] = Some(times(grad.matmul(&right)?, self.alpha)?);
        }
        if context.needs(1) {
            let left = context.input(0)?.transpose(-2, -1)?;
            grads[1] = Some(times(left.matmul(grad)?, self.alpha)?);
        }
        if context.needs(2) {
            grads[2] = Some(times(grad.sum_to(context.input_shape(2))?, self.beta)?);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// The shape of a product of matrices, or of batches of as many.
fn result_shape(op: &'static str, ndim: usize, left: &Shape, right: &Shape) -> Result<Shape> {
    let fits = left.ndim() == ndim
        && right.ndim() == ndim
        && left[ndim - 1] == right[ndim - 2]
        && left[..ndim - 2] == right[..ndim - 2];
    if !fits {
        let expected = match ndim {
            2 => "[m, k] and [k, n]",
            _ => "[batch, m, k] and [batch, k, n]",
        };
        let what = format!("expected matrices {expected}, got {left} and {right}");
        return Err(Error::shape(op, what).with_hint("matmul takes other shapes"));
    }
    let mut sizes: Dims = left[..ndim - 1].into();
    sizes.push(right[ndim - 1]);
    Ok(sizes.into())
}

/// Checks that what is added broadcasts to the result.
fn check_input(op: &'static str, input: &Shape, result: &Shape) -> Result<()> {
    match input.broadcast(result) {
        Some(both) if both == *result => Ok(()),
        _ => {
            let what =
                format!("the input must broadcast to the result's shape {result}, got {input}");
            Err(Error::shape(op, what))
        }
    }
}

/// A value of the op of this file.
pub(super) fn op() -> Box<dyn Op> {
    Box::new(Addmm {
        name: "addmm",
        ndim: 2,
        alpha: 1.0,
        beta: 1.0,
    })
}

impl Tensor {
    /// `beta * self + alpha * (left @ right)` of two matrices (`torch.addmm`); `self` broadcasts to the result.
    ///
    /// Where `beta` is 0, `self` is not read, and where `alpha` is, the matrices aren't: what is no number there doesn't matter. f32 and
    /// f64 have the bits of `matmul`, `mul` and `add`, one after the other; 16-bit floats are rounded once.
    #[track_caller]
    pub fn addmm(
        &self,
        left: &Tensor,
        right: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        add_to_product("addmm", 2, [left, right, self], beta.into(), alpha.into())
    }

    /// As [`addmm`](Tensor::addmm) for batches of as many matrices, `[batch, m, k]` and `[batch, k, n]` (`torch.baddbmm`).
    #[track_caller]
    pub fn baddbmm(
        &self,
        left: &Tensor,
        right: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        add_to_product("baddbmm", 3, [left, right, self], beta.into(), alpha.into())
    }

    /// `beta * self + alpha * (matrix @ vector)` (`torch.addmv`); `self` broadcasts to the result.
    #[track_caller]
    pub fn addmv(
        &self,
        matrix: &Tensor,
        vector: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        if matrix.ndim() != 2 || vector.ndim() != 1 || self.ndim() > 1 {
            let what = format!(
                "expected a vector, a matrix and a vector, got {}, {} and {}",
                self.shape(),
                matrix.shape(),
                vector.shape()
            );
            return Err(Error::shape("addmv", what).with_operands(|| {
                vec![
                    self.operand("self"),
                    matrix.operand("matrix"),
                    vector.operand("vector"),
                ]
            }));
        }
        let (input, column) = (self.unsqueeze(-1)?, vector.unsqueeze(1)?);
        let operands = [matrix, &column, &input];
        add_to_product("addmv", 2, operands, beta.into(), alpha.into())?.squeeze(-1)
    }
}

#[track_caller]
fn add_to_product(
    name: &'static str,
    ndim: usize,
    [left, right, input]: [&Tensor; 3],
    beta: Scalar,
    alpha: Scalar,
) -> Result<Tensor> {
    let operands = || {
        vec![
            input.operand("self"),
            left.operand("left"),
            right.operand("right"),
        ]
    };
    let dtype = left.dtype();
    if right.dtype() == dtype && input.dtype() == dtype && dtype.is_integer() {
        // Whole numbers are for small sums: one op after the other.
        if [beta, alpha]
            .iter()
            .any(|factor| matches!(factor, Scalar::F64(_)))
        {
            let what = format!("for {dtype}, beta and alpha must be whole numbers");
            return Err(Error::argument(name, what).with_operands(operands));
        }
        let shape = result_shape(name, ndim, left.shape(), right.shape());
        let shape = shape.map_err(|error| error.with_operands(operands))?;
        check_input(name, input.shape(), &shape).map_err(|error| error.with_operands(operands))?;
        return left.matmul(right)?.mul(alpha)?.add(&input.mul(beta)?);
    }
    let op = Addmm {
        name,
        ndim,
        alpha: alpha.to_f64(),
        beta: beta.to_f64(),
    };
    let is_of_matrices = left.ndim() >= 2 && right.ndim() >= 2 && dtype != DType::Bool;
    let (left, right) = match is_of_matrices {
        true => both_in_lines(left.clone(), right.clone())?,
        false => (left.clone(), right.clone()),
    };
    dispatch::call_one(op, &[&left, &right, input])
}
