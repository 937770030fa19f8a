//! `pad`: elements around a tensor.

use fireclay_core::{DType, Dims, Error, Layout, Result, Scalar, Shape};
use fireclay_cpu::convert::class_of;
use fireclay_cpu::program::{Program, Sink, Source};
use smallvec::smallvec;

use super::view::View;
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// What [`Tensor::pad`] puts around a tensor (`mode`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pad {
    /// This number. It must be one that the dtype has; a fraction is cut.
    Constant(Scalar),
    /// The tensor as a mirror at its outermost elements shows it: these do not appear again.
    Reflect,
    /// The outermost elements.
    Replicate,
    /// The tensor from its other end on, as if it were a ring.
    Circular,
}

impl Default for Pad {
    fn default() -> Pad {
        Pad::Constant(Scalar::F64(0.0))
    }
}

/// A tensor of `shape`, full of `value`, with the input from place `before` on.
#[derive(Clone, Debug)]
struct ConstantPad {
    before: Dims,
    shape: Shape,
    value: Scalar,
}

impl ConstantPad {
    /// Where the input, of this shape, lies in the output.
    fn part(&self, output: &Layout, input: &Shape) -> Layout {
        let sizes = self.before.iter().zip(input.iter()).enumerate();
        sizes.fold(output.clone(), |part, (dim, (&start, &size))| {
            part.slice(dim, start, size, 1)
        })
    }
}

impl Op for ConstantPad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            inputs[0].dtype
        )])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let (input, output) = (call.raw_input(0), call.raw_output(0));
        let (base, dtype) = (output.ptr(), output.dtype);
        let mut program = Program::new();
        let register = program.constant(class_of(dtype), self.value);
        program.output(register, dtype);
        let all = Sink {
            ptr: base,
            dtype,
            strides: output.layout.strides().into(),
        };
        // SAFETY: `ptr` checked the layout against its storage, which is fresh.
        unsafe { program.evaluate(output.layout.shape(), &[], &[all]) };
        let part = self.part(output.layout, input.layout.shape());
        if part.numel() == 0 {
            return Ok(());
        }
        assert!(
            part.end().is_some_and(|end| end <= output.layout.numel()),
            "the input reaches beyond the output"
        );
        let source = Source {
            ptr: input.ptr().cast_const(),
            dtype: input.dtype,
            strides: input.layout.strides().into(),
        };
        let sink = Sink {
            // SAFETY: the part's end lies within the output, so its offset does.
            ptr: unsafe { base.add(part.offset() * dtype.size()) },
            dtype,
            strides: part.strides().into(),
        };
        // SAFETY: both operands have the input's shape and lie within their storage; the output is fresh.
        unsafe { fireclay_cpu::copy::copy(part.shape(), source, sink) };
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.fill(self.value)?;
        let part = self.part(call.output_layout(0), call.layout(0).shape());
        match part.numel() {
            0 => Ok(()),
            _ => call.copy_to_part(0, &part),
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut grad = context.grad_output().clone();
        for (dim, &size) in context.input_shape(0).iter().enumerate() {
            grad = grad.narrow(dim as isize, self.before[dim], size)?;
        }
        Ok(smallvec![Some(grad)])
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(ConstantPad {
        before: Dims::new(),
        shape: Shape::scalar(),
        value: Scalar::I64(0),
    })]
}

impl Tensor {
    /// The tensor with elements around it (`torch.nn.functional.pad`). `pad` says how many come before and after: first of the last
    /// dimension, then of the one before it, and so on; dimensions that it doesn't reach stay. Negative numbers cut.
    ///
    /// A constant goes around any tensor. The other modes pad the last dimension of 2 or 3 dimensions, the last two of 3 or 4, the
    /// last three of 4 or 5.
    ///
    /// # Errors
    /// An odd number of sizes, or more than the dimensions take; a result of negative size; a mirror further away than the
    /// tensor is long, or a ring more than once around.
    #[track_caller]
    pub fn pad(&self, pad: &[isize], mode: Pad) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if !pad.len().is_multiple_of(2) || pad.len() / 2 > self.ndim() {
            let what = format!(
                "expected two numbers for each of at most {} dimensions, got {pad:?}",
                self.ndim()
            );
            return Err(context(Error::argument("pad", what)));
        }
        let padded = pad.len() / 2;
        let is_constant = matches!(mode, Pad::Constant(_));
        let takes = |ndim: usize| [padded + 1, padded + 2].contains(&ndim);
        if !is_constant && (padded == 0 || padded > 3 || !takes(self.ndim())) {
            let what = format!(
                "padding of {padded} dimensions by anything but a constant takes tensors of {} or {} dimensions, and at most 3 \
                 are padded, got {}",
                padded + 1,
                padded + 2,
                self.shape()
            );
            return Err(context(Error::shape("pad", what)));
        }
        if pad.iter().all(|&size| size == 0) {
            return self.copy();
        }
        // For each dimension what comes before and after, once that what is negative is cut off.
        let (mut inner, mut sides) = (self.clone(), vec![[0usize; 2]; self.ndim()]);
        for (number, pair) in pad.chunks(2).enumerate() {
            let dim = self.ndim() - 1 - number;
            let size = self.shape()[dim];
            let cut = [pair[0], pair[1]].map(|side| side.min(0).unsigned_abs());
            let left = cut[0]
                .checked_add(cut[1])
                .and_then(|cut| size.checked_sub(cut));
            let after = left.and_then(|left| {
                let added = [pair[0], pair[1]].map(|side| side.max(0) as usize);
                left.checked_add(added[0])?.checked_add(added[1])
            });
            let (Some(left), Some(after)) = (left, after) else {
                let what = format!(
                    "{} and {} elements around dimension {dim} of size {size} make a size that can't be",
                    pair[0], pair[1]
                );
                return Err(context(Error::argument("pad", what)));
            };
            if !is_constant && after == 0 {
                let what = format!("nothing of dimension {dim} of size {size} is left by {pad:?}");
                return Err(context(Error::argument("pad", what)));
            }
            let most = match mode {
                Pad::Constant(_) => isize::MAX as usize,
                Pad::Reflect => size.saturating_sub(1),
                Pad::Replicate if size > 0 => isize::MAX as usize,
                Pad::Replicate => 0,
                Pad::Circular => size,
            };
            if let Some(side) = pair.iter().find(|&&side| side > most as isize) {
                let what = format!(
                    "at most {most} elements can come on a side of dimension {dim} of size {size}, got {side}"
                );
                return Err(context(Error::shape("pad", what)));
            }
            sides[dim] = [pair[0], pair[1]].map(|side| side.max(0) as usize);
            if is_constant && cut != [0, 0] {
                inner = inner.narrow(dim as isize, cut[0], left)?;
            }
        }
        match mode {
            Pad::Constant(value) => inner.padded_by(value, &sides),
            _ => {
                let pairs = pad.chunks(2).enumerate();
                pairs.into_iter().try_fold(inner, |x, (number, pair)| {
                    x.padded_by_itself(self.ndim() - 1 - number, [pair[0], pair[1]], mode)
                })
            }
        }
    }

    #[track_caller]
    fn padded_by(&self, value: Scalar, sides: &[[usize; 2]]) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if !self.dtype().is_computable() {
            let what = format!("{} is stored only, no op computes with it", self.dtype());
            return Err(context(Error::dtype("pad", what)));
        }
        if !value.fits(self.dtype()) {
            let what = format!("{value} is beyond the numbers of {}", self.dtype());
            return Err(context(Error::argument("pad", what)));
        }
        let value = match self.dtype() {
            DType::Bool => Scalar::Bool(value.is_true()),
            _ => value,
        };
        let sizes = self.shape().iter().zip(sides);
        let shape: Shape = sizes
            .map(|(size, [before, after])| size + before + after)
            .collect();
        if self.numel() == 0 {
            return Tensor::full_of(&shape, value, self.dtype(), self.device());
        }
        let op = ConstantPad {
            before: sides.iter().map(|[before, _]| *before).collect(),
            shape,
            value,
        };
        dispatch::call_one(op, &[self])
    }

    /// Dimension `dim` with elements of its own on both sides; negative numbers cut.
    #[track_caller]
    fn padded_by_itself(
        &self,
        dim: usize,
        [before, after]: [isize; 2],
        mode: Pad,
    ) -> Result<Tensor> {
        if before == 0 && after == 0 {
            return Ok(self.clone());
        }
        let (at, size) = (dim as isize, self.shape()[dim]);
        let part = |start: usize, length: usize| -> Result<Tensor> {
            let view = View::Slice {
                dim,
                start,
                length,
                step: 1,
            };
            dispatch::call_one(view, &[self])
        };
        let repeated = |place: usize, count: usize| -> Result<Tensor> {
            let one = part(place, 1)?;
            let mut shape = one.shape().clone();
            shape.sizes_mut()[dim] = count;
            one.expand_to(&shape)
        };
        let mut parts: Vec<Tensor> = Vec::new();
        if let count @ 1.. = before.max(0) as usize {
            parts.push(match mode {
                Pad::Reflect => part(1, count)?.flip(&[at])?,
                Pad::Replicate => repeated(0, count)?,
                _ => part(size - count, count)?,
            });
        }
        let [first, last] = [before, after].map(|side| side.min(0).unsigned_abs());
        parts.push(part(first, size - first - last)?);
        if let count @ 1.. = after.max(0) as usize {
            parts.push(match mode {
                Pad::Reflect => part(size - 1 - count, count)?.flip(&[at])?,
                Pad::Replicate => repeated(size - 1, count)?,
                _ => part(0, count)?,
            });
        }
        match &parts[..] {
            [one] => one.copy(),
            _ => Tensor::cat(&parts.iter().collect::<Vec<_>>(), at),
        }
    }
}
