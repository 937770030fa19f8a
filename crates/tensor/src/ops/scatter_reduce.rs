//! `scatter_reduce`: what goes to one place is summed, multiplied, averaged, or its extremum taken; and the in-place forms of scatters.
//!
//! Sums are `scatter_add`. Products and extrema have a kernel on the CPU. On a device elements are sorted by their places, and those of
//! one place combined in a tree; either way the order is fixed.

use fireclay_core::{DType, Error, Result, Scalar, Shape, resolve_dim};
use fireclay_cpu::index::{IndexRows, keep_larger, keep_smaller, multiply, scatter};
use smallvec::smallvec;

use super::index::{as_indices, check_gather, check_indices, match_number};
use super::scatter::{one_index_each, same_dtype};
use crate::autograd::{Backward, is_grad_enabled, no_grad};
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// What [`Tensor::scatter_reduce`] makes of the elements that go to one place (`reduce`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScatterReduce {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean; of whole numbers rounded down.
    Mean,
    /// The largest; NaN if one is.
    Amax,
    /// The smallest; NaN if one is.
    Amin,
}

/// A tensor with `source[i][j]` combined into `[index[i][j]][j]` along `dim`, in order; inputs: the tensor, indices, source, and on a
/// device the result, which is made of other ops there.
#[derive(Clone, Copy, Debug)]
struct CombinePlaces {
    dim: usize,
    reduce: ScatterReduce,
}

impl Op for CombinePlaces {
    fn name(&self) -> &'static str {
        "scatter_reduce"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let (shape, index) = (inputs[0].shape(), inputs[1].shape());
        check_gather(self.name(), shape, index, self.dim)?;
        one_index_each(self.name(), index, inputs[2].shape())?;
        same_dtype(self.name(), inputs[0].dtype, inputs[2].dtype)?;
        Ok(smallvec![OutputMeta::contiguous(
            shape.clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let indices = call.input::<i64>(1);
        let (x, index) = (call.layout(0), call.layout(1).shape());
        check_indices(self.name(), indices, self.dim, x.shape()[self.dim])?;
        match_number!(self.name(), call.dtype(0), T => {
            let out = call.output::<T>(0);
            fireclay_cpu::index::copy(call.input::<T>(0), out);
            let (source, size) = (call.input::<T>(2), x.shape()[self.dim]);
            let rows = IndexRows { shape: index, strides: x.strides(), dim: self.dim };
            match self.reduce {
                ScatterReduce::Amax => scatter(source, rows, size, indices, out, keep_larger),
                ScatterReduce::Amin => scatter(source, rows, size, indices, out, keep_smaller),
                _ => scatter(source, rows, size, indices, out, multiply),
            }
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.copy_to_part(3, call.output_layout(0))
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1, 2]).and_outputs(&[0])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let (grad, indices) = (context.grad_output(), context.input(1)?);
        let (x, source, result) = (context.input(0)?, context.input(2)?, context.output(0)?);
        let (of_self, of_source) = match self.reduce {
            ScatterReduce::Prod => self.product_grads(grad, &x, &indices, &source, &result)?,
            _ => self.extremum_grads(grad, &x, &indices, &source, &result)?,
        };
        let mut grads: Grads = smallvec![Some(of_self), None, Some(of_source)];
        grads.resize(context.inputs(), None);
        Ok(grads)
    }
}

impl CombinePlaces {
    /// The elements that are the result share its gradient.
    fn extremum_grads(
        &self,
        grad: &Tensor,
        x: &Tensor,
        indices: &Tensor,
        source: &Tensor,
        result: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let dim = self.dim as isize;
        let own = x.eq(result)?;
        let others = source.eq(&result.gather(dim, indices)?)?;
        let count = own.to_dtype(grad.dtype())?;
        let count = count.scatter_add(dim, indices, &others.to_dtype(grad.dtype())?)?;
        let share = grad.div(&count)?;
        let of_source = others.where_(&share.gather(dim, indices)?, 0.0)?;
        Ok((own.where_(&share, 0.0)?, of_source))
    }

    /// Each element's gradient is the product of the others, which is had by division where the element isn't zero.
    fn product_grads(
        &self,
        grad: &Tensor,
        x: &Tensor,
        indices: &Tensor,
        source: &Tensor,
        result: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let dim = self.dim as isize;
        let others = x
            .ones_like()?
            .scatter_reduce(dim, indices, source, self.reduce, true)?;
        let of_self = grad.mul(&others)?;
        let is_zero = source.eq(0.0)?;
        let zeros = is_zero.to_dtype(source.dtype())?;
        let zeros = x
            .zeros_like()?
            .scatter_add(dim, indices, &zeros)?
            .gather(dim, indices)?;
        let only_zero = is_zero.logical_and(&zeros.eq(1.0)?)?;
        // With a one in place of a zero that is alone.
        let without = only_zero.where_(1.0, source)?;
        let without = x.scatter_reduce(dim, indices, &without, self.reduce, true)?;
        let of_only = grad.mul(&without)?.gather(dim, indices)?;
        let divided = grad.mul(result)?.gather(dim, indices)?;
        let divided = divided.div(&is_zero.where_(1.0, source)?)?;
        let of_source = only_zero.where_(&of_only, &divided)?;
        Ok((of_self, zeros.gt(1.0)?.where_(0.0, &of_source)?))
    }

    /// The same of other ops, for devices.
    #[track_caller]
    fn composed(&self, x: &Tensor, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        let combine = |a: &Tensor, b: &Tensor| match self.reduce {
            ScatterReduce::Amax => a.maximum(b),
            ScatterReduce::Amin => a.minimum(b),
            _ => a.mul(b),
        };
        let dtype = x.dtype();
        let wide = if dtype.is_half() { DType::F32 } else { dtype };
        // It says which indices are out of range.
        x.gather(self.dim as isize, indices)?;
        let mut places = indices.mul(x.shape().contiguous_strides()[self.dim] as i64)?;
        for (dim, &stride) in x.shape().contiguous_strides().iter().enumerate() {
            if dim == self.dim {
                continue;
            }
            let mut thin: Shape = std::iter::repeat_n(1, x.ndim()).collect();
            thin.sizes_mut()[dim] = indices.shape()[dim];
            let along = Tensor::arange(0i64, indices.shape()[dim] as i64, 1i64, x.device())?;
            places = places.add(&along.mul(stride as i64)?.reshape_to(&thin)?)?;
        }
        let (places, order) = places.reshape(&[-1])?.sort(0, false)?;
        let count = places.numel();
        let flat = x.reshape(&[-1])?.to_dtype(wide)?;
        let mut values = source
            .reshape(&[-1])?
            .to_dtype(wide)?
            .index_select(0, &order)?;
        // After each round an element is combined with twice as many before it, of the same place.
        let mut step = 1;
        while step < count {
            let rest = count - step;
            let together = places
                .narrow(0, step, rest)?
                .eq(&places.narrow(0, 0, rest)?)?;
            let (later, earlier) = (values.narrow(0, step, rest)?, values.narrow(0, 0, rest)?);
            let later = together.where_(&combine(&earlier, &later)?, &later)?;
            values = Tensor::cat(&[&values.narrow(0, 0, step)?, &later], 0)?;
            step = step.saturating_mul(2);
        }
        // The last element of each place has them all.
        let before = flat.index(&[&places])?;
        let result = flat.index_put(&[&places], &combine(&before, &values)?, false)?;
        result.to_dtype(dtype)?.reshape_to(x.shape())
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(CombinePlaces {
        dim: 0,
        reduce: ScatterReduce::Prod,
    })]
}

/// The number that changes nothing.
fn neutral(reduce: ScatterReduce, dtype: DType) -> Scalar {
    let ends = match dtype {
        DType::Bool => [Scalar::Bool(false), Scalar::Bool(true)],
        DType::I64 => [i64::MIN, i64::MAX].map(Scalar::I64),
        DType::I32 => [i32::MIN, i32::MAX].map(|end| Scalar::I64(end.into())),
        DType::I16 => [i16::MIN, i16::MAX].map(|end| Scalar::I64(end.into())),
        DType::I8 => [i8::MIN, i8::MAX].map(|end| Scalar::I64(end.into())),
        DType::U8 => [0, u8::MAX].map(|end| Scalar::I64(end.into())),
        _ => [f64::NEG_INFINITY, f64::INFINITY].map(Scalar::F64),
    };
    match reduce {
        ScatterReduce::Amax => ends[0],
        ScatterReduce::Amin => ends[1],
        ScatterReduce::Prod => Scalar::I64(1),
        ScatterReduce::Sum | ScatterReduce::Mean => Scalar::I64(0),
    }
}

impl Tensor {
    /// This tensor with `source[i][j]` combined into `[index[i][j]][j]` along dimension 0, and so on for other dimensions
    /// (`torch.scatter_reduce`). Without `include_self` what is at such places before does not count. Deterministic. Elements of a
    /// larger `source` that have no index are left out. Equal extrema share the gradient.
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        dim: isize,
        indices: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        const OP: &str = "scatter_reduce";
        let operands = || {
            vec![
                self.operand("self"),
                indices.operand("indices"),
                source.operand("source"),
            ]
        };
        let resolved = resolve_dim(OP, dim, self.ndim())?;
        same_dtype(OP, self.dtype(), source.dtype())
            .map_err(|error| error.with_operands(operands))?;
        if self.ndim() == 0 {
            let (indices, source) = (indices.reshape(&[-1])?, source.reshape(&[-1])?);
            let row = self.reshape(&[1])?;
            return row
                .scatter_reduce(0, &indices, &source, reduce, include_self)?
                .reshape_to(self.shape());
        }
        let indices = as_indices(OP, indices)?;
        let base = match include_self {
            true => self.clone(),
            false => self.scatter_value(dim, &indices, neutral(reduce, self.dtype()))?,
        };
        let op = CombinePlaces {
            dim: resolved,
            reduce,
        };
        match reduce {
            ScatterReduce::Sum => base.scatter_add(dim, &indices, source),
            ScatterReduce::Mean => {
                let sums = base.scatter_add(dim, &indices, source)?;
                let wide = if self.dtype().is_floating_point() {
                    self.dtype()
                } else {
                    DType::F64
                };
                let own = Tensor::full_of(self.shape(), include_self, wide, self.device())?;
                let ones = Tensor::full_of(indices.shape(), 1.0, wide, self.device())?;
                let count = own.scatter_add(dim, &indices, &ones)?;
                let mean = Formula::from(&sums) / Formula::from(&count).maximum(1.0);
                match self.dtype().is_floating_point() {
                    true => mean.eval(),
                    false => mean.floor().eval()?.to_dtype(self.dtype()),
                }
            }
            _ => {
                let source = source.cut_to(indices.shape())?;
                if self.device().is_cpu() {
                    return dispatch::call_one(op, &[&base, &indices, &source]);
                }
                // Refused here, as on the CPU, what can be refused without data.
                op.output(&[base.meta(), indices.meta(), source.meta()])
                    .map_err(|error| error.with_operands(operands))?;
                if indices.numel() == 0 {
                    return base.copy();
                }
                let result = no_grad(|| op.composed(&base, &indices, &source))?;
                dispatch::call_one(op, &[&base, &indices, &source, &result])
            }
        }
    }

    /// This tensor with `value` at `[index[i][j]][j]` along dimension 0, and so on for other dimensions (`torch.scatter` with a
    /// number).
    #[track_caller]
    pub fn scatter_value(
        &self,
        dim: isize,
        indices: &Tensor,
        value: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let value = super::masked::number_as("scatter", value.into(), self.dtype())
            .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?;
        let values = Tensor::full_of(indices.shape(), value, self.dtype(), self.device())?;
        self.scatter(dim, indices, &values)
    }

    /// Writes `source` where [`scatter`](Tensor::scatter) does (`Tensor.scatter_`).
    #[track_caller]
    pub fn scatter_(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.rewritten("scatter_", |x| x.scatter(dim, indices, source))
    }

    /// Writes a number where [`scatter_value`](Tensor::scatter_value) does (`Tensor.scatter_`).
    #[track_caller]
    pub fn scatter_value_(
        &self,
        dim: isize,
        indices: &Tensor,
        value: impl Into<Scalar>,
    ) -> Result<Tensor> {
        self.rewritten("scatter_", |x| x.scatter_value(dim, indices, value))
    }

    /// Adds `source` where [`scatter_add`](Tensor::scatter_add) does (`Tensor.scatter_add_`).
    #[track_caller]
    pub fn scatter_add_(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.rewritten("scatter_add_", |x| x.scatter_add(dim, indices, source))
    }

    /// Combines `source` with what is there, as [`scatter_reduce`](Tensor::scatter_reduce) does (`Tensor.scatter_reduce_`).
    #[track_caller]
    pub fn scatter_reduce_(
        &self,
        dim: isize,
        indices: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        self.rewritten("scatter_reduce_", |x| {
            let is_saved = is_grad_enabled() && (x.requires_grad() || source.requires_grad());
            let x = if is_saved { x.copy()? } else { x.clone() };
            x.scatter_reduce(dim, indices, source, reduce, include_self)
        })
    }

    /// Adds rows where [`index_add`](Tensor::index_add) does (`Tensor.index_add_`).
    #[track_caller]
    pub fn index_add_(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.rewritten("index_add_", |x| x.index_add(dim, indices, source))
    }

    /// Running sums in place of the elements (`Tensor.cumsum_`), cast to the tensor's dtype.
    #[track_caller]
    pub fn cumsum_(&self, dim: isize) -> Result<Tensor> {
        self.rewritten("cumsum_", |x| x.cumsum(dim))
    }
}
