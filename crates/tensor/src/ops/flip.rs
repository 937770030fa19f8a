//! `flip`: elements in reverse order.

use fireclay_core::{DType, Error, Result};
use smallvec::smallvec;

use super::index::{EmbeddingOptions, IndexSelect, around};
use super::shape::distinct_dims;
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The rows of `dim` in reverse order. Inputs: x, and on a device the places of the rows in that order.
#[derive(Clone, Debug)]
struct Flip {
    dim: usize,
    /// Where the op runs on a device: the places, for the gradient, which is flipped by the same.
    places: Option<Tensor>,
}

impl Op for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let sizes = around(call.layout(0).shape(), self.dim);
        macro_rules! flip {
            ($($variant:ident $T:ty),*) => {
                match call.dtype(0) {
                    $(DType::$variant => fireclay_cpu::index::flip_rows::<$T>(call.input(0), sizes, call.output(0)),)*
                    dtype => {
                        return Err(Error::NoKernel {
                            op: self.name(),
                            device: fireclay_core::Device::Cpu,
                            dtype,
                            context: fireclay_core::Context::hint("cast it first: to_dtype(..)"),
                        });
                    }
                }
            };
        }
        flip!(F64 f64, F32 f32, F16 half::f16, BF16 half::bf16, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, Bool u8);
        Ok(())
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        Ok(match &self.places {
            None => smallvec![Some(dispatch::call_one(self.clone(), &[grad])?)],
            Some(places) => smallvec![
                Some(dispatch::call_one(self.clone(), &[grad, places])?),
                None
            ],
        })
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let op = IndexSelect {
            name: self.name(),
            dim: self.dim,
            grad: EmbeddingOptions::default(),
        };
        op.cuda(call)
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(Flip {
        dim: 0,
        places: None,
    })]
}

impl Tensor {
    /// The elements in reverse order along these dimensions (`torch.flip`). A copy: strides are never negative.
    #[track_caller]
    pub fn flip(&self, dims: &[isize]) -> Result<Tensor> {
        let dims = distinct_dims("flip", dims, self.ndim())
            .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?;
        if self.ndim() == 0 || dims.is_empty() {
            return self.copy();
        }
        let mut result = self.clone();
        for dim in dims {
            result = match self.device().is_cpu() {
                true => dispatch::call_one(Flip { dim, places: None }, &[&result])?,
                false => {
                    let last = self.shape()[dim] as i64 - 1;
                    let places = Tensor::arange(last, -1i64, -1i64, self.device())?;
                    let op = Flip {
                        dim,
                        places: Some(places.clone()),
                    };
                    dispatch::call_one(op, &[&result, &places])?
                }
            };
        }
        Ok(result)
    }
}
