//! Writing and adding at places that tensors of indices name: `scatter`, `scatter_add`.

use fireclay_core::{DType, Error, Result, Shape, resolve_dim};
use fireclay_cpu::index::IndexRows;
use fireclay_cuda::{Argument, DeviceBuffer};
use smallvec::smallvec;

use super::float::match_float;
use super::index::{
    Gather, KERNELS, around, as_indices, by_size, by_sum, check_gather, check_indices,
    last_of_eight, match_number, numbers,
};
use super::sort::sorted_places;
use crate::autograd::Backward;
use crate::cuda_call::{CudaCall, address};
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// How many indices along a dimension a thread takes one after the other, however few columns there are.
const SEQUENTIAL: usize = 32;
/// With as many columns, a thread each keeps a device busy.
const COLUMNS: usize = 8192;

/// Adds rows `[outer, count, inner]`, the first input, at places `[count]` of zeros `[outer, size, inner]`, the only output, in
/// order: the places are sorted, and a thread adds all rows of one. `range` is the dimension that the places are of, for
/// errors, and its size.
pub(super) fn add_runs(
    call: &CudaCall<'_>,
    places: Argument<'static>,
    [outer, count, inner]: [usize; 3],
    (dim, size): (usize, usize),
) -> Result<()> {
    let names = [c"add_runs_f32", c"add_runs_f64", c"add_runs_i64"];
    let kernel = by_sum(call, call.dtype(0), names)?;
    call.fill(fireclay_core::Scalar::I64(0))?;
    let total = outer * count * inner;
    if total == 0 {
        return Ok(());
    }
    let sorted = sorted_numbers(call, places, count)?;
    let mut arguments = vec![call.input(0), places, address(&sorted), call.output(0)];
    arguments.extend(numbers([total, count, inner, size]));
    arguments.extend(call.check(dim, size, None)?);
    // SAFETY: the kernel's parameters; it writes at places below `size` only.
    unsafe { call.launch_threads(&KERNELS, kernel, total, &arguments) }
}

/// Writes rows `[count, inner]`, input `rows`, at places of the only output, `[size, inner]`: of several for one place the last.
pub(super) fn put_runs(
    call: &CudaCall<'_>,
    rows: usize,
    places: Argument<'static>,
    [count, inner]: [usize; 2],
    (dim, size): (usize, usize),
) -> Result<()> {
    call.copy_to_part(0, call.output_layout(0))?;
    let total = count * inner;
    if total == 0 {
        return Ok(());
    }
    let names = [c"put_runs_1", c"put_runs_2", c"put_runs_4", c"put_runs_8"];
    let sorted = sorted_numbers(call, places, count)?;
    let mut arguments = vec![call.input(rows), places, address(&sorted), call.output(0)];
    arguments.extend(numbers([total, count, inner, size]));
    arguments.extend(call.check(dim, size, None)?);
    let kernel = by_size(call.dtype(0), names);
    // SAFETY: the kernel's parameters; it writes at places below `size` only.
    unsafe { call.launch_threads(&KERNELS, kernel, total, &arguments) }
}

/// The numbers of places in their order.
fn sorted_numbers(
    call: &CudaCall<'_>,
    places: Argument<'static>,
    count: usize,
) -> Result<DeviceBuffer> {
    if u32::try_from(count).is_err() {
        let what = format!("{count} indices are more than the 4294967295 that are sorted");
        let hint =
            "take the indices in parts, or move the operands to the CPU for this op: to(\"cpu\")";
        return Err(Error::argument(call.name(), what).with_hint(hint));
    }
    sorted_places(call, places, count)
}

/// Where in a tensor of this shape the elements go whose indices along `dim` are input 1.
fn scattered_places(call: &CudaCall<'_>, dim: usize, to: &Shape) -> Result<DeviceBuffer> {
    let index = call.layout(1).shape();
    let places = call.scratch(index.numel().max(1), DType::I64)?;
    let shape = last_of_eight(call, index, 1)?;
    let strides = last_of_eight(call, &to.contiguous_strides(), 0)?;
    let mut arguments = vec![call.input(1), address(&places)];
    arguments.extend(numbers([index.numel(), to[dim], dim + 8 - index.ndim()]));
    arguments.extend([Argument::Numbers(&shape), Argument::Numbers(&strides)]);
    arguments.extend(call.check(dim, to[dim], None)?);
    // SAFETY: the kernel's parameters; a place for each index.
    unsafe { call.launch_threads(&KERNELS, c"scatter_places", index.numel(), &arguments)? };
    Ok(places)
}

/// Zeros of `shape` with `source[i][j]` added at `[index[i][j]][j]` along `dim`, in order; inputs: source, indices.
#[derive(Clone, Debug)]
pub(super) struct ScatterAdd {
    pub(super) dim: usize,
    pub(super) shape: Shape,
}

impl Op for ScatterAdd {
    fn name(&self) -> &'static str {
        "scatter_add"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        check_gather(self.name(), &self.shape, inputs[1].shape(), self.dim)?;
        one_index_each(self.name(), inputs[1].shape(), inputs[0].shape())?;
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let indices = call.input::<i64>(1);
        check_indices(self.name(), indices, self.dim, self.shape[self.dim])?;
        let strides = self.shape.contiguous_strides();
        let (size, rows) = (
            self.shape[self.dim],
            IndexRows {
                shape: call.layout(1).shape(),
                strides: &strides,
                dim: self.dim,
            },
        );
        if call.dtype(0) == DType::I64 {
            let out = call.output::<i64>(0);
            out.fill(0);
            let add = |sum: &mut i64, x: i64| *sum = sum.wrapping_add(x);
            fireclay_cpu::index::scatter(call.input(0), rows, size, indices, out, add);
            return Ok(());
        }
        match_float!(self.name(), call.dtype(0), T => {
            let out = call.output::<T>(0);
            out.fill(0.0);
            let add = |sum: &mut T, x: T| *sum += x;
            fireclay_cpu::index::scatter(call.input(0), rows, size, indices, out, add);
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = dispatch::call_one(
            Gather { dim: self.dim },
            &[context.grad_output(), &context.input(1)?],
        )?;
        Ok(smallvec![Some(grad), None])
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let index = call.layout(1).shape();
        let [outer, count, step] = around(index, self.dim);
        let columns = outer * step;
        if count > SEQUENTIAL && columns < COLUMNS {
            let places = scattered_places(&call, self.dim, &self.shape)?;
            let range = (self.dim, self.shape.numel());
            return add_runs(&call, address(&places), [1, index.numel(), 1], range);
        }
        let names = [c"scatter_add_f32", c"scatter_add_f64", c"scatter_add_i64"];
        let kernel = by_sum(&call, call.dtype(0), names)?;
        call.fill(fireclay_core::Scalar::I64(0))?;
        let shape = last_of_eight(&call, index, 1)?;
        let strides = last_of_eight(&call, &self.shape.contiguous_strides(), 0)?;
        let size = self.shape[self.dim];
        let columns = if count == 0 { 0 } else { columns };
        let mut arguments = vec![call.input(0), call.input(1), call.output(0)];
        arguments.extend(numbers([columns, count, step, self.dim + 8 - index.ndim()]));
        arguments.extend([Argument::Numbers(&shape), Argument::Numbers(&strides)]);
        arguments.extend(numbers([size]));
        arguments.extend(call.check(self.dim, size, None)?);
        // SAFETY: the kernel's parameters; as for `gather`, of what is written.
        unsafe { call.launch_threads(&KERNELS, kernel, columns, &arguments) }
    }
}

/// A tensor with `source[i][j]` at `[index[i][j]][j]` along `dim`; of several for one place the last. Inputs: the tensor, indices,
/// source.
#[derive(Clone, Copy, Debug)]
struct Scatter {
    dim: usize,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
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
            let rows = IndexRows { shape: index, strides: x.strides(), dim: self.dim };
            let put = |place: &mut T, x: T| *place = x;
            fireclay_cpu::index::scatter(call.input(2), rows, x.shape()[self.dim], indices, out, put);
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        let places = scattered_places(&call, self.dim, shape)?;
        let count = call.layout(1).numel();
        put_runs(
            &call,
            2,
            address(&places),
            [count, 1],
            (self.dim, shape.numel()),
        )
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let (grad, indices) = (context.grad_output(), context.input(1)?);
        let zeros = Tensor::full_of(indices.shape(), 0.0, grad.dtype(), grad.device())?;
        let of_self = match context.needs(0) {
            true => Some(dispatch::call_one(*self, &[grad, &indices, &zeros])?),
            false => None,
        };
        let of_source = dispatch::call_one(Gather { dim: self.dim }, &[grad, &indices])?;
        Ok(smallvec![of_self, None, Some(of_source)])
    }
}

pub(super) fn one_index_each(op: &'static str, index: &Shape, source: &Shape) -> Result<()> {
    if index == source {
        return Ok(());
    }
    let what = format!(
        "expected a source element for each index, got indices {index} and a source {source}"
    );
    Err(Error::shape(op, what))
}

pub(super) fn same_dtype(op: &'static str, dtype: DType, source: DType) -> Result<()> {
    if dtype == source {
        return Ok(());
    }
    let what = format!("expected a source of {dtype}, got {source}");
    Err(Error::dtype(op, what).with_hint("cast it first with to_dtype"))
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![
        Box::new(ScatterAdd {
            dim: 0,
            shape: Shape::scalar(),
        }),
        Box::new(Scatter { dim: 0 }),
    ]
}

impl Tensor {
    /// This tensor with `source[i][j]` added at `[index[i][j]][j]` along dimension 0, and so on for other dimensions
    /// (`torch.scatter_add`). Deterministic: equal places add in order. Elements of a larger `source` that have no index are left
    /// out. Sums are made as [`index_add`](Tensor::index_add) makes them.
    #[track_caller]
    pub fn scatter_add(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("scatter_add", dim, self.ndim())?;
        if self.ndim() == 0 {
            let (index, source) = (indices.reshape(&[-1])?, source.reshape(&[-1])?);
            let sum = self.unsqueeze(0)?.scatter_add(0, &index, &source)?;
            return sum.reshape_to(self.shape());
        }
        let op = ScatterAdd {
            dim,
            shape: self.shape().clone(),
        };
        let source = source.cut_to(indices.shape())?;
        self.plus_scattered(op, &source, &as_indices("scatter_add", indices)?)
    }

    /// This tensor with `source[i][j]` at `[index[i][j]][j]` along dimension 0, and so on for other dimensions
    /// (`torch.scatter`). Deterministic: of equal places the last one counts. Elements of a larger `source` that have no index are
    /// left out.
    #[track_caller]
    pub fn scatter(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("scatter", dim, self.ndim())?;
        if self.ndim() == 0 {
            let (index, source) = (indices.reshape(&[-1])?, source.reshape(&[-1])?);
            let result = self.unsqueeze(0)?.scatter(0, &index, &source)?;
            return result.reshape_to(self.shape());
        }
        let indices = as_indices("scatter", indices)?;
        let source = source.cut_to(indices.shape())?;
        dispatch::call_one(Scatter { dim }, &[self, &indices, &source])
    }

    /// The elements that have an index: a source of scattered elements may be larger than the indices.
    #[track_caller]
    pub(super) fn cut_to(&self, shape: &Shape) -> Result<Tensor> {
        let mut cut = self.clone();
        if self.ndim() == shape.ndim() {
            for (dim, &size) in shape.iter().enumerate() {
                if size < self.shape()[dim] {
                    cut = cut.narrow(dim as isize, 0, size)?;
                }
            }
        }
        Ok(cut)
    }
}
