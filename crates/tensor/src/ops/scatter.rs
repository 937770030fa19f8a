//! Writing and adding at places that tensors of indices name: `scatter`, `scatter_add`, `index_put`, and reading there: `index`.

use fireclay_core::{DType, Error, Result, Shape, resolve_dim};
use fireclay_cuda::{Argument, DeviceBuffer};
use smallvec::smallvec;

use super::float::match_float;
use super::index::{
    EmbeddingOptions, Gather, IndexAdd, IndexSelect, KERNELS, around, as_indices, by_size, by_sum,
    check_gather, check_indices, last_of_eight, match_number, numbers, out_of_range,
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
fn put_runs(
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
        let index = call.layout(1).shape();
        let strides = self.shape.contiguous_strides();
        if call.dtype(0) == DType::I64 {
            let (source, out) = (call.input::<i64>(0), call.output::<i64>(0));
            out.fill(0);
            fireclay_cpu::index::for_each_place(index, &strides, self.dim, indices, |at, place| {
                out[place] = out[place].wrapping_add(source[at]);
            });
            return Ok(());
        }
        match_float!(self.name(), call.dtype(0), T => {
            let source = call.input::<T>(0);
            let out = call.output::<T>(0);
            out.fill(0.0);
            fireclay_cpu::index::for_each_place(index, &strides, self.dim, indices, |at, place| out[place] += source[at]);
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
            let source = call.input::<T>(2);
            let out = call.output::<T>(0);
            out.copy_from_slice(call.input::<T>(0));
            fireclay_cpu::index::for_each_place(index, x.strides(), self.dim, indices, |at, place| out[place] = source[at]);
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

fn one_index_each(op: &'static str, index: &Shape, source: &Shape) -> Result<()> {
    if index == source {
        return Ok(());
    }
    let what = format!(
        "expected a source element for each index, got indices {index} and a source {source}"
    );
    Err(Error::shape(op, what))
}

fn same_dtype(op: &'static str, dtype: DType, source: DType) -> Result<()> {
    if dtype == source {
        return Ok(());
    }
    let what = format!("expected a source of {dtype}, got {source}");
    Err(Error::dtype(op, what).with_hint("cast it first with to_dtype"))
}

/// Places in the dimensions so far, from indices of one more of `size`; inputs: the places in those before, if any, and indices.
/// Negative ones count from the end.
#[derive(Clone, Copy, Debug)]
struct IndexPlaces {
    name: &'static str,
    dim: usize,
    size: usize,
}

impl Op for IndexPlaces {
    fn name(&self) -> &'static str {
        self.name
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            DType::I64
        )])
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let indices = call.input::<i64>(call.inputs() - 1);
        let before = (call.inputs() > 1).then(|| call.input::<i64>(0));
        let size = self.size as i64;
        for (at, out) in call.output::<i64>(0).iter_mut().enumerate() {
            let index = indices[at];
            if index < -size || index >= size {
                return Err(out_of_range(self.name, index, at, self.dim, self.size));
            }
            let wrapped = if index < 0 { index + size } else { index };
            *out = before.map_or(0, |before| before[at] * size) + wrapped;
        }
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let last = call.inputs() - 1;
        let total = call.layout(last).numel();
        let before = if last > 0 {
            call.input(0)
        } else {
            Argument::Address(0)
        };
        let mut arguments = vec![before, call.input(last), call.output(0)];
        arguments.extend(numbers([total, self.size]));
        arguments.extend(call.check(self.dim, self.size, None)?);
        // SAFETY: the kernel's parameters; a place for each index.
        unsafe { call.launch_threads(&KERNELS, c"index_places", total, &arguments) }
    }
}

/// A tensor `[size, inner]` with rows of values at places; of several for one place the last. Inputs: the tensor, places, values.
#[derive(Clone, Copy, Debug)]
struct PutRows;

impl Op for PutRows {
    fn name(&self) -> &'static str {
        "index_put"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        same_dtype(self.name(), inputs[0].dtype, inputs[2].dtype)?;
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [_, size, inner] = around(call.layout(0).shape(), 0);
        let places = call.input::<i64>(1);
        check_indices(self.name(), places, 0, size)?;
        match_number!(self.name(), call.dtype(0), T => {
            let values = call.input::<T>(2);
            let out = call.output::<T>(0);
            out.copy_from_slice(call.input::<T>(0));
            for (row, &place) in places.iter().enumerate() {
                out[place as usize * inner..][..inner].copy_from_slice(&values[row * inner..][..inner]);
            }
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let [_, size, inner] = around(call.layout(0).shape(), 0);
        put_runs(
            &call,
            2,
            call.input(1),
            [call.layout(1).numel(), inner],
            (0, size),
        )
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let (grad, places) = (context.grad_output(), context.input(1)?);
        let of_values = dispatch::call_one(SELECT, &[grad, &places])?;
        let of_self = match context.needs(0) {
            true => {
                let zeros = Tensor::full_of(of_values.shape(), 0.0, grad.dtype(), grad.device())?;
                Some(dispatch::call_one(PutRows, &[grad, &places, &zeros])?)
            }
            false => None,
        };
        Ok(smallvec![of_self, None, Some(of_values)])
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

/// Reads rows at places.
const SELECT: IndexSelect = IndexSelect {
    name: "index",
    dim: 0,
    grad: EmbeddingOptions {
        padding_idx: None,
        scale_grad_by_freq: false,
    },
};

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![
        Box::new(ScatterAdd {
            dim: 0,
            shape: Shape::scalar(),
        }),
        Box::new(Scatter { dim: 0 }),
        Box::new(PutRows),
        Box::new(IndexPlaces {
            name: "index",
            dim: 0,
            size: 0,
        }),
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
    fn cut_to(&self, shape: &Shape) -> Result<Tensor> {
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

    /// The elements at places whose coordinates in the first dimensions are given, one tensor of indices for each, which
    /// broadcast (`x[i, j]` of PyTorch). Negative indices count from the end.
    #[track_caller]
    pub fn index(&self, indices: &[&Tensor]) -> Result<Tensor> {
        let at = self.indexed("index", indices)?;
        let picked = dispatch::call_one(SELECT, &[&self.reshape_to(&at.rows)?, &at.places])?;
        picked.reshape_to(&at.result)
    }

    /// This tensor with `values` at places whose coordinates in the first dimensions are given, one tensor of indices for each,
    /// which broadcast; or with `values` added there (`torch.index_put`). Deterministic: values of equal places are added in
    /// order, or the last one counts. The gradient of each value is that of its place.
    #[track_caller]
    pub fn index_put(
        &self,
        indices: &[&Tensor],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        let operands = || vec![self.operand("self"), values.operand("values")];
        let at = self.indexed("index_put", indices)?;
        let values = values
            .expand_to(&at.result)
            .map_err(|_| {
                let what = format!(
                    "values of {} don't broadcast to {}",
                    values.shape(),
                    at.result
                );
                Error::shape("index_put", what).with_operands(operands)
            })?
            .reshape_to(&Shape::new(&[at.places.numel(), at.rows[1]]))?;
        let rows = self.reshape_to(&at.rows)?;
        let result = match accumulate {
            true => {
                let op = IndexAdd {
                    dim: 0,
                    size: at.rows[0],
                };
                rows.plus_scattered(op, &values, &at.places)?
            }
            false => dispatch::call_one(PutRows, &[&rows, &at.places, &values])?,
        };
        result.reshape_to(self.shape())
    }

    #[track_caller]
    fn indexed(&self, op: &'static str, indices: &[&Tensor]) -> Result<Indexed> {
        let operands = || {
            let given = indices.iter().map(|index| index.operand("indices"));
            [self.operand("self")].into_iter().chain(given).collect()
        };
        if indices.is_empty() || indices.len() > self.ndim() {
            let what = format!(
                "expected one to {} tensors of indices, got {}",
                self.ndim(),
                indices.len()
            );
            return Err(Error::argument(op, what).with_operands(operands));
        }
        let mut shape = Shape::scalar();
        for index in indices {
            shape = shape.broadcast(index.shape()).ok_or_else(|| {
                Error::shape(op, "the indices don't broadcast").with_operands(operands)
            })?;
        }
        let flat = Shape::new(&[shape.numel()]);
        let mut places: Option<Tensor> = None;
        for (dim, index) in indices.iter().enumerate() {
            let index = as_indices(op, index)?
                .expand_to(&shape)?
                .reshape_to(&flat)?;
            let place = IndexPlaces {
                name: op,
                dim,
                size: self.shape()[dim],
            };
            places = Some(match &places {
                None => dispatch::call_one(place, &[&index])?,
                Some(before) => dispatch::call_one(place, &[before, &index])?,
            });
        }
        let (indexed, rest) = self.shape().split_at(indices.len());
        let rows: [usize; 2] = [indexed, rest].map(|sizes| sizes.iter().product());
        Ok(Indexed {
            places: places.expect("there are indices"),
            rows: Shape::new(&rows),
            result: shape.iter().chain(rest).copied().collect(),
        })
    }
}

/// What tensors of indices say of a tensor.
struct Indexed {
    /// The rows of the flattened tensor.
    places: Tensor,
    /// The tensor as rows: a place of the indexed dimensions each.
    rows: Shape,
    /// The shape of what lies at the places.
    result: Shape,
}
