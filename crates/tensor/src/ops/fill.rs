//! Filling with one number.

use fireclay_core::{DType, Result, Scalar, Shape};
use fireclay_cpu::convert::class_of;
use fireclay_cpu::program::{Program, Sink};
use smallvec::smallvec;

use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Writes `value` into every element of the target.
#[derive(Clone, Debug)]
struct Fill {
    value: Scalar,
    shape: Shape,
    dtype: DType,
}

impl Op for Fill {
    fn name(&self) -> &'static str {
        "fill_"
    }

    fn output(&self, _inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            self.dtype
        )])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.fill(self.value)
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let output = call.raw_output(0);
        let mut program = Program::new();
        let register = program.constant(class_of(output.dtype), self.value);
        program.output(register, output.dtype);
        let sink = Sink {
            ptr: output.ptr(),
            dtype: output.dtype,
            strides: output.layout.strides().into(),
        };
        // SAFETY: `ptr` checked the layout against its storage, which the door has locked for writing.
        unsafe { program.evaluate(output.layout.shape(), &[], &[sink]) };
        Ok(())
    }

    fn backward(&self, _context: &Backward<'_>) -> Result<Grads> {
        Ok(Grads::new())
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(Fill {
        value: Scalar::I64(0),
        shape: Shape::scalar(),
        dtype: DType::F32,
    })]
}

impl Tensor {
    /// Writes `value` into every element (`Tensor.fill_`). It must be one that the dtype has; a fraction is cut.
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        if !self.dtype().is_computable() {
            return Err(fireclay_core::Error::dtype(
                "fill_",
                format!("{} is stored only", self.dtype()),
            )
            .with_operands(|| vec![self.operand("self")]));
        }
        let value = value.into();
        if !value.fits(self.dtype()) {
            let what = format!("{value} is beyond the numbers of {}", self.dtype());
            return Err(fireclay_core::Error::argument("fill_", what)
                .with_operands(|| vec![self.operand("self")]));
        }
        let op = Fill {
            // Bool asks whether it is zero: neither a fraction nor NaN is.
            value: match self.dtype() {
                DType::Bool => Scalar::Bool(value.is_true()),
                _ => value,
            },
            shape: self.shape().clone(),
            dtype: self.dtype(),
        };
        dispatch::call_into(op, &[], &[self])?;
        Ok(self.clone())
    }

    /// Writes 0 into every element (`Tensor.zero_`).
    #[track_caller]
    pub fn zero_(&self) -> Result<Tensor> {
        self.fill_(0i64)
    }
}
