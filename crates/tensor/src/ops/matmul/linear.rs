//! `linear`: a fully connected layer, with an activation and a residual in the same kernel.

use fireclay_core::{Dims, Error, Result, Shape};
use fireclay_cpu::gemm::{self, GemmShape, MatrixStrides, gemm};
use smallvec::{SmallVec, smallvec};

use super::epilogue::{Activation, Epilogue};
use super::launch::{self, Matrices, Products};
use crate::autograd::{Backward, Recording};
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::ops::float::{match_float, same_float};
use crate::storage::{CpuCall, out_of_host_memory};
use crate::tensor::Tensor;

/// `activation(x @ weight.T + bias) + residual` for rows `x`. Inputs: `[rows, in]`, `[out, in]`, maybe `[out]` and `[rows, out]`;
/// outputs: the result, and what the activation is applied to if that is kept for the gradient.
///
/// A gradient needs that or, of relu without a residual, the result. The kernel stores it beside the result: that moves a third
/// less than a linear layer whose result is read again by an op of its own.
#[derive(Clone, Copy, Debug)]
struct Linear {
    bias: bool,
    activation: Option<Activation>,
    residual: bool,
    keeps: bool,
}

impl Linear {
    /// Whether the result tells the gradient of the activation.
    fn needs_only_result(activation: Option<Activation>, residual: bool) -> bool {
        activation == Some(Activation::Relu) && !residual
    }

    /// The epilogue, for a result of so many columns.
    fn epilogue(self, n: usize) -> Epilogue {
        Epilogue {
            bias: self.bias.then_some(2),
            activation: self.activation,
            // The rows are one matrix.
            residual: (self.residual).then_some((2 + usize::from(self.bias), [0, n, 1])),
            kept: self.keeps.then_some(1),
            ..Epilogue::NONE
        }
    }

    /// The gradient of what the activation is applied to.
    #[track_caller]
    fn grad_before_activation(self, context: &Backward<'_>) -> Result<Option<Tensor>> {
        let Some(activation) = self.activation else {
            return Ok(context.grad(0).cloned());
        };
        let of_result = match context.grad(0) {
            None => None,
            Some(grad) => {
                let number = match Linear::needs_only_result(self.activation, self.residual) {
                    true => 0,
                    false => 1,
                };
                // Relu's derivative takes the result, which has the sign of what it is applied to.
                let x = Formula::from(context.output(number)?);
                let slopes =
                    activation
                        .function()
                        .grad(std::slice::from_ref(&x), &x, &Formula::from(grad));
                slopes.into_iter().next().flatten()
            }
        };
        // What is kept has a gradient of its own where this one is differentiated.
        let of_kept = (self.keeps).then(|| context.grad(1)).flatten();
        Ok(match (of_result, of_kept) {
            (Some(grad), None) => Some(grad.eval()?),
            (Some(grad), Some(other)) => Some((grad + other).eval()?),
            (None, other) => other.cloned(),
        })
    }
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float("linear", inputs)?;
        let (x, weight) = (inputs[0].shape(), inputs[1].shape());
        let wrong = |what: String| Err(Error::shape("linear", what));
        if x.ndim() == 0 || weight.ndim() != 2 || x[x.ndim() - 1] != weight[1] {
            return wrong(format!(
                "expected input [.., in] and weight [out, in], got {x} and {weight}"
            ));
        }
        let mut rest = inputs[2..].iter();
        if let Some(bias) = (self.bias).then(|| rest.next()).flatten()
            && bias.shape()[..] != [weight[0]]
        {
            return wrong(format!(
                "expected bias [{}], got {}",
                weight[0],
                bias.shape()
            ));
        }
        let mut sizes: Dims = x[..x.ndim() - 1].into();
        sizes.push(weight[0]);
        let shape = Shape::from(sizes);
        if let Some(residual) = rest.next()
            && *residual.shape() != shape
        {
            return wrong(format!(
                "expected a residual of the result's shape {shape}, got {}",
                residual.shape()
            ));
        }
        let outputs = 1 + usize::from(self.keeps);
        Ok(smallvec![OutputMeta::contiguous(shape, dtype); outputs])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        match_float!("linear", call.dtype(0), T => {
            let weight = call.layout(1).shape();
            let (n, k) = (weight[0], weight[1]);
            let shape = call.output_shape(0);
            let m = shape.iter().product::<usize>().checked_div(n).unwrap_or(0);
            let bias = match self.bias {
                true => gemm::Epilogue::BiasColumns(call.input::<T>(2)),
                false => gemm::Epilogue::None,
            };
            let epilogue = self.epilogue(n);
            let result = call.output::<T>(0);
            let (sums, to) = match epilogue.kept {
                Some(index) => (call.output::<T>(index), Some(result)),
                None => (result, None),
            };
            gemm(
                GemmShape { batch: 1, m, n, k }, 1.0,
                call.input::<T>(0), MatrixStrides::row_major(m, k),
                call.input::<T>(1), MatrixStrides::row_major(n, k).transposed(),
                0.0, sums, MatrixStrides::row_major(m, n), bias,
            ).map_err(out_of_host_memory)?;
            let residual = epilogue.residual.map(|(index, _)| call.raw_input(index));
            epilogue.finish(call.dtype(0), shape, sums, residual, to);
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let weight = call.layout(1).shape();
        let (n, k) = (weight[0], weight[1]);
        let m = call.output_layout(0).numel().checked_div(n).unwrap_or(0);
        let a = Matrices::new(0, MatrixStrides::row_major(m, k));
        let b = Matrices::new(0, MatrixStrides::row_major(n, k).transposed());
        let products = Products {
            batch: &[],
            m,
            n,
            k,
            c: 0,
        };
        launch::launch(&call, &products, a, b, &self.epilogue(n))
    }

    fn saves(&self) -> Saves {
        let inputs = Saves::inputs(&[0, 1]);
        match self.activation {
            None => inputs,
            _ if Linear::needs_only_result(self.activation, self.residual) => {
                inputs.and_outputs(&[0])
            }
            _ => inputs.and_outputs(&[1]),
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; context.inputs()];
        if self.residual {
            grads[context.inputs() - 1] = context.grad(0).cloned();
        }
        let Some(grad) = self.grad_before_activation(context)? else {
            return Ok(grads);
        };
        let out = context.input_shape(1)[0];
        let rows = |tensor: &Tensor, width: usize| {
            let (_, outer) = tensor.shape().split_last().expect("it has rows");
            tensor.reshape_to(&Shape::new(&[outer.iter().product(), width]))
        };
        if context.needs(0) {
            let weight = context.input(1)?;
            grads[0] = Some(
                rows(&grad, out)?
                    .matmul(&weight)?
                    .reshape_to(context.input_shape(0))?,
            );
        }
        if context.needs(1) {
            let x = rows(&context.input(0)?, context.input_shape(1)[1])?;
            grads[1] = Some(rows(&grad, out)?.t()?.matmul(&x)?);
        }
        if self.bias && context.needs(2) {
            grads[2] = Some(rows(&grad, out)?.sum(&[0], false)?);
        }
        Ok(grads)
    }

    // A residual of another dtype than the product's must not come here under autocast: it would be cast, too.
    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// A value of the op of this file.
pub(super) fn op() -> Box<dyn Op> {
    Box::new(Linear {
        bias: true,
        activation: None,
        residual: false,
        keeps: false,
    })
}

/// What [`Tensor::linear_with`] does to the rows of a linear layer before they are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearEpilogue<'a> {
    /// Applied to the product with its bias.
    pub activation: Option<Activation>,
    /// Added after the activation: a tensor of the result's shape and dtype.
    pub residual: Option<&'a Tensor>,
}

impl Tensor {
    /// `self @ weight.T + bias` (`torch.nn.functional.linear`): `[.., in]` with weight `[out, in]` and bias `[out]` gives
    /// `[.., out]`.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.linear_with(weight, bias, LinearEpilogue::default())
    }

    /// `activation(self @ weight.T + bias) + residual` as one kernel.
    ///
    /// f32 and f64 have the bits of [`linear`](Tensor::linear), the activation's op and `add`, one after the other. 16-bit floats are
    /// rounded once, in the end, so they may differ from those by the roundings in between. Where autograd records the call,
    /// what the activation is applied to is stored too.
    ///
    /// ```
    /// use fireclay_tensor::{Activation, LinearEpilogue, Tensor};
    ///
    /// let (x, weight) = (Tensor::randn(&[3, 8], "cpu")?, Tensor::randn(&[8, 8], "cpu")?);
    /// let epilogue = LinearEpilogue { activation: Some(Activation::Gelu), residual: Some(&x) };
    /// let y = x.linear_with(&weight, None, epilogue)?;
    /// let composed = x.linear(&weight, None)?.gelu()?.add(&x)?;
    /// assert_eq!(y.to_vec::<f32>()?, composed.to_vec::<f32>()?);
    /// # Ok::<(), fireclay_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn linear_with(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        epilogue: LinearEpilogue<'_>,
    ) -> Result<Tensor> {
        let LinearEpilogue {
            activation,
            residual,
        } = epilogue;
        let mut inputs: SmallVec<[&Tensor; 4]> = smallvec![self, weight];
        inputs.extend(bias);
        inputs.extend(residual);
        let needs_more =
            activation.is_some() && !Linear::needs_only_result(activation, residual.is_some());
        let op = Linear {
            bias: bias.is_some(),
            activation,
            residual: residual.is_some(),
            keeps: needs_more && Recording::wanted(&inputs),
        };
        Ok(dispatch::call(op, &inputs)?.remove(0))
    }
}
