//! Reading and writing where tensors of indices say: `index`, `index_put`, and what is composed of them: `index_copy`, `index_fill`,
//! `put`, `take`, `take_along_dim`.

use fireclay_core::{DType, Dims, Error, Result, Shape, resolve_dim};
use fireclay_cuda::Argument;
use smallvec::smallvec;

use super::index::{
    EmbeddingOptions, IndexAdd, IndexSelect, KERNELS, around, as_indices, check_indices,
    match_number, numbers, out_of_range,
};
use super::masked::{coordinates, true_places};
use super::scatter::{put_runs, same_dtype};
use super::subscript::without_leading;
use super::view::View;
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::function::Arg;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

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
        let least = -(self.size as i64);
        if let Some(at) = fireclay_cpu::index::first_outside(indices, least, self.size) {
            return Err(out_of_range(
                self.name,
                indices[at],
                at,
                self.dim,
                self.size,
            ));
        }
        fireclay_cpu::index::places(before, indices, self.size, call.output(0));
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

/// A tensor `[outer, size, inner]` with rows of values `[outer, count, inner]` at places of the middle dimension; of several for one
/// place the last. Inputs: the tensor, places, values. On a device `outer` is 1.
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
        let sizes = around(call.layout(0).shape(), 1);
        let places = call.input::<i64>(1);
        check_indices(self.name(), places, 0, sizes[1])?;
        match_number!(self.name(), call.dtype(0), T => {
            let out = call.output::<T>(0);
            fireclay_cpu::index::copy(call.input::<T>(0), out);
            fireclay_cpu::index::put_rows::<T>(call.input(2), places, sizes, out);
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let [outer, size, inner] = around(call.layout(0).shape(), 1);
        assert_eq!(outer, 1, "the method makes one block of rows");
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

/// Reads rows at places of the middle dimension.
const SELECT: IndexSelect = IndexSelect {
    name: "index",
    dim: 1,
    grad: EmbeddingOptions {
        padding_idx: None,
        scale_grad_by_freq: false,
    },
};

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![
        Box::new(PutRows),
        Box::new(IndexPlaces {
            name: "index",
            dim: 0,
            size: 0,
        }),
    ]
}

/// Where tensors of indices look in a tensor.
struct Looked {
    /// The tensor, with the indexed dimensions side by side, as `[before, indexed, after]`.
    blocks: Tensor,
    /// Places of the indexed dimensions, of one dimension.
    places: Tensor,
    /// The shape of what lies at the places.
    result: Shape,
    /// The tensor's shape with the indexed dimensions side by side.
    shape: Shape,
    /// The dimension of the tensor that each of these is, where they were moved.
    moved: Option<Dims>,
}

/// Finds what `indices` say of the dimensions of `x`, one or None for each; a mask stands for as many as it has.
#[track_caller]
fn look(op: &'static str, x: &Tensor, indices: &[Option<Tensor>]) -> Result<Looked> {
    let context = |error: Error| {
        error.with_operands(|| {
            let given = indices
                .iter()
                .flatten()
                .map(|index| index.operand("indices"));
            [x.operand("self")].into_iter().chain(given).collect()
        })
    };
    let width = |index: &Option<Tensor>| match index {
        Some(index) if index.dtype() == DType::Bool => index.ndim(),
        _ => 1,
    };
    let taken: usize = indices.iter().map(width).sum();
    if taken > x.ndim() || indices.iter().flatten().next().is_none() {
        let what = format!(
            "expected indices of one to {} dimensions, got {taken}",
            x.ndim()
        );
        return Err(context(Error::argument(op, what)));
    }
    // The dimensions that are indexed, and by what.
    let (mut dims, mut by) = (Dims::new(), Vec::new());
    let alone = indices.iter().flatten().count() == 1;
    let (mut dim, mut flat) = (0, None);
    for index in indices {
        let Some(index) = index else {
            dim += 1;
            continue;
        };
        if index.dtype() != DType::Bool {
            dims.push(dim);
            by.push(as_indices(op, index)?);
            dim += 1;
            continue;
        }
        let sizes = &x.shape()[dim..dim + index.ndim()];
        if sizes != &index.shape()[..] {
            let what = format!(
                "a mask {} does not fit sizes {sizes:?} from dimension {dim} on",
                index.shape()
            );
            return Err(context(Error::argument(op, what)));
        }
        let places = true_places(index)?;
        dims.extend(dim..dim + index.ndim());
        match alone {
            true => flat = Some(places),
            false => by.extend(coordinates(&places, sizes)?),
        }
        dim += index.ndim();
    }
    let mut moved = None;
    let mut x = x.clone();
    if dims.windows(2).any(|pair| pair[1] != pair[0] + 1) {
        // Separated dimensions come to the front, as in PyTorch.
        let rest = (0..x.ndim()).filter(|dim| !dims.contains(dim));
        let order: Dims = dims.iter().copied().chain(rest).collect();
        x = dispatch::call_one(View::Permute(order.clone()), &[&x])?;
        dims = (0..dims.len()).collect();
        moved = Some(order);
    }
    let first = dims.first().copied().unwrap_or(0);
    let (before, rest) = x.shape().split_at(first);
    let (indexed, after) = rest.split_at(dims.len());
    let (places, picked) = match flat {
        Some(places) => {
            let picked = places.shape().clone();
            (places, picked)
        }
        None => {
            let mut picked = Shape::scalar();
            for index in &by {
                picked = picked.broadcast(index.shape()).ok_or_else(|| {
                    let shapes: Vec<String> =
                        by.iter().map(|index| index.shape().to_string()).collect();
                    let what =
                        format!("the indices do not broadcast, got {}", shapes.join(" and "));
                    context(Error::argument(op, what))
                })?;
            }
            let count = Shape::new(&[picked.numel()]);
            let mut places: Option<Tensor> = None;
            for (number, index) in by.iter().enumerate() {
                let index = index.expand_to(&picked)?.reshape_to(&count)?;
                let place = IndexPlaces {
                    name: op,
                    dim: moved.as_ref().map_or(first + number, |order| order[number]),
                    size: indexed[number],
                };
                places = Some(match &places {
                    None => dispatch::call_one(place, &[&index])?,
                    Some(before) => dispatch::call_one(place, &[before, &index])?,
                });
            }
            match places {
                Some(places) => (places, picked),
                // A mask without dimensions beside others: nothing is indexed.
                None => (Tensor::full(&[1], 0i64, x.device())?, picked),
            }
        }
    };
    let result = before
        .iter()
        .chain(picked.iter())
        .chain(after)
        .copied()
        .collect();
    let sizes: [usize; 3] = [before, indexed, after].map(|sizes| sizes.iter().product());
    Ok(Looked {
        blocks: x.reshape_to(&Shape::new(&sizes))?,
        shape: x.shape().clone(),
        places,
        result,
        moved,
    })
}

impl Looked {
    /// What lies there.
    #[track_caller]
    fn read(&self) -> Result<Tensor> {
        let picked = dispatch::call_one(SELECT, &[&self.blocks, &self.places])?;
        picked.reshape_to(&self.result)
    }

    /// The tensor with values, which broadcast, there, or added there.
    #[track_caller]
    fn written(&self, op: &'static str, values: &Tensor, accumulate: bool) -> Result<Tensor> {
        let [outer, size, inner] = around(self.blocks.shape(), 1);
        let count = self.places.numel();
        let values = values
            .expand_to(&self.result)
            .map_err(|_| {
                let what = format!(
                    "values of {} don't broadcast to {}",
                    values.shape(),
                    self.result
                );
                Error::shape(op, what)
                    .with_operands(|| vec![self.blocks.operand("self"), values.operand("values")])
            })?
            .reshape_to(&Shape::new(&[outer, count, inner]))?;
        let result = if accumulate {
            let op = IndexAdd { dim: 1, size };
            self.blocks.plus_scattered(op, &values, &self.places)?
        } else if outer == 1 || self.blocks.device().is_cpu() {
            dispatch::call_one(PutRows, &[&self.blocks, &self.places, &values])?
        } else {
            // One block of rows, and places in it.
            let starts = Tensor::arange(0i64, outer as i64, 1i64, self.blocks.device())?;
            let starts = starts.mul(size as i64)?.unsqueeze(1)?;
            let places = starts.add(&self.places)?.reshape(&[-1])?;
            let blocks = self
                .blocks
                .reshape_to(&Shape::new(&[1, outer * size, inner]))?;
            let values = values.reshape_to(&Shape::new(&[1, outer * count, inner]))?;
            dispatch::call_one(PutRows, &[&blocks, &places, &values])?
        };
        let result = result.reshape_to(&self.shape)?;
        let Some(order) = &self.moved else {
            return Ok(result);
        };
        let mut inverse: Dims = smallvec![0; order.len()];
        for (place, &dim) in order.iter().enumerate() {
            inverse[dim] = place;
        }
        dispatch::call_one(View::Permute(inverse), &[&result])?.contiguous()
    }
}

impl Tensor {
    /// The elements at places whose coordinates in the first dimensions are given, one tensor of indices for each, which
    /// broadcast (`x[i, j]` of PyTorch). Negative indices count from the end. A mask of bools stands for as many dimensions as it
    /// has, and names the places where it is true; the host waits for a device to count them.
    ///
    /// [`i`](Tensor::i) takes slices, new dimensions and numbers too.
    #[track_caller]
    pub fn index(&self, indices: &[&Tensor]) -> Result<Tensor> {
        self.indexed_by(&some(indices))
    }

    /// This tensor with `values` at places whose coordinates in the first dimensions are given, one tensor of indices for each,
    /// which broadcast; or with `values` added there (`torch.index_put`). Deterministic: values of equal places are added in
    /// order, or the last one counts. The gradient of each value is that of its place. Masks are taken as in
    /// [`index`](Tensor::index).
    #[track_caller]
    pub fn index_put(
        &self,
        indices: &[&Tensor],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        self.with_indexed(&some(indices), values, accumulate)
    }

    /// Writes or adds `values` where [`index_put`](Tensor::index_put) does (`Tensor.index_put_`).
    #[track_caller]
    pub fn index_put_(
        &self,
        indices: &[&Tensor],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        self.rewritten("index_put_", |x| x.index_put(indices, values, accumulate))
    }

    /// As [`index`](Tensor::index), with dimensions left out by None.
    #[track_caller]
    pub(crate) fn indexed_by(&self, indices: &[Option<Tensor>]) -> Result<Tensor> {
        look("index", self, indices)?.read()
    }

    /// As [`index_put`](Tensor::index_put), with dimensions left out by None.
    #[track_caller]
    pub(crate) fn with_indexed(
        &self,
        indices: &[Option<Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        if values.dtype() != self.dtype() {
            let what = format!(
                "expected values of {}, got {}",
                self.dtype(),
                values.dtype()
            );
            return Err(Error::dtype("index_put", what)
                .with_hint("cast them first with to_dtype")
                .with_operands(|| vec![self.operand("self"), values.operand("values")]));
        }
        look("index_put", self, indices)?.written("index_put", values, accumulate)
    }

    /// As [`index_put`](Tensor::index_put) for [`set`](Tensor::set): leading dimensions of size 1 that the value has too many are dropped.
    #[track_caller]
    pub(super) fn with_values(&self, indices: &[Option<Tensor>], value: &Tensor) -> Result<Tensor> {
        let looked = look("set", self, indices)?;
        looked.written("set", &without_leading(value, &looked.result)?, false)
    }

    /// This tensor with rows of `source` at `indices` of `dim` (`torch.index_copy`). Deterministic: of equal indices the last counts.
    /// Negative indices count from the end.
    #[track_caller]
    pub fn index_copy(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        let context = |error: Error| {
            error.with_operands(|| {
                vec![
                    self.operand("self"),
                    indices.operand("indices"),
                    source.operand("source"),
                ]
            })
        };
        let dim = resolve_dim("index_copy", dim, self.ndim())?;
        if self.ndim() == 0 {
            let row = self.reshape_to(&Shape::new(&[1]))?;
            let result = row.index_copy(0, indices, &source.reshape(&[-1])?)?;
            return result.reshape_to(self.shape());
        }
        let indices = as_indices("index_copy", indices)?;
        let mut expected = self.shape().clone();
        expected.sizes_mut()[dim] = indices.numel();
        if indices.ndim() > 1 || *source.shape() != expected {
            let what = format!(
                "expected one row of dimension {dim} per index, {expected}, got {}",
                source.shape()
            );
            return Err(context(Error::shape("index_copy", what)));
        }
        same_dtype("index_copy", self.dtype(), source.dtype()).map_err(context)?;
        let [outer, size, inner] = around(self.shape(), dim);
        let looked = Looked {
            blocks: self.reshape_to(&Shape::new(&[outer, size, inner]))?,
            places: wrapped("index_copy", &indices.reshape(&[-1])?, dim, size)?,
            result: expected,
            shape: self.shape().clone(),
            moved: None,
        };
        looked.written("index_copy", source, false)
    }

    /// Writes rows of `source` at `indices` of `dim` (`Tensor.index_copy_`).
    #[track_caller]
    pub fn index_copy_(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.rewritten("index_copy_", |x| x.index_copy(dim, indices, source))
    }

    /// This tensor with `value`, a number or a tensor without dimensions, in the rows at `indices` of `dim` (`torch.index_fill`).
    /// Negative indices count from the end.
    #[track_caller]
    pub fn index_fill<'a>(
        &self,
        dim: isize,
        indices: &Tensor,
        value: impl Into<Arg<'a>>,
    ) -> Result<Tensor> {
        let mask = self.rows_mask("index_fill", dim, indices)?;
        self.masked_fill(&mask, value)
    }

    /// Writes `value` in the rows at `indices` of `dim` (`Tensor.index_fill_`).
    #[track_caller]
    pub fn index_fill_<'a>(
        &self,
        dim: isize,
        indices: &Tensor,
        value: impl Into<Arg<'a>>,
    ) -> Result<Tensor> {
        let mask = self.rows_mask("index_fill_", dim, indices)?;
        self.masked_fill_(&mask, value)
    }

    /// A mask, which broadcasts to this tensor, of the rows at `indices` of `dim`.
    #[track_caller]
    fn rows_mask(&self, op: &'static str, dim: isize, indices: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim(op, dim, self.ndim())?;
        if indices.ndim() > 1 {
            let what = format!("expected indices of one dimension, got {}", indices.shape());
            return Err(Error::shape(op, what)
                .with_operands(|| vec![self.operand("self"), indices.operand("indices")]));
        }
        let size = self.shape().get(dim).copied().unwrap_or(1);
        let device = self.device();
        let rows = Tensor::full_of(&[size], false, DType::Bool, device)?;
        let indices = wrapped(op, &as_indices(op, indices)?.reshape(&[-1])?, dim, size)?;
        let chosen = Tensor::full_of(&[], true, DType::Bool, device)?;
        let rows = rows.index_put(&[&indices], &chosen, false)?;
        let mut shape: Dims = smallvec![1; self.ndim()];
        if let Some(at) = shape.get_mut(dim) {
            *at = size;
        }
        rows.reshape_to(&shape.into())
    }

    /// This flattened tensor with `source` at `indices`, or with `source` added there, in its own shape (`torch.put`). Deterministic, as
    /// [`index_put`](Tensor::index_put). Negative indices count from the end.
    #[track_caller]
    pub fn put(&self, indices: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        let operands = || {
            vec![
                self.operand("self"),
                indices.operand("indices"),
                source.operand("source"),
            ]
        };
        if indices.numel() != source.numel() {
            let what = format!(
                "expected a source element for each index, got indices {} and a source {}",
                indices.shape(),
                source.shape()
            );
            return Err(Error::shape("put", what).with_operands(operands));
        }
        same_dtype("put", self.dtype(), source.dtype())
            .map_err(|error| error.with_operands(operands))?;
        let flat = self.reshape(&[-1])?;
        let (indices, source) = (indices.reshape(&[-1])?, source.reshape(&[-1])?);
        flat.index_put(&[&indices], &source, accumulate)?
            .reshape_to(self.shape())
    }

    /// Writes or adds `source` at `indices` of the flattened tensor (`Tensor.put_`).
    #[track_caller]
    pub fn put_(&self, indices: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        self.rewritten("put_", |x| x.put(indices, source, accumulate))
    }

    /// The elements of the flattened tensor at `indices`, in their shape (`torch.take`). Negative indices count from the end.
    #[track_caller]
    pub fn take(&self, indices: &Tensor) -> Result<Tensor> {
        if indices.dtype() == DType::Bool {
            let what = "expected indices of i64 or i32, got bool";
            return Err(Error::dtype("take", what)
                .with_hint("use masked_select")
                .with_operands(|| vec![self.operand("self"), indices.operand("indices")]));
        }
        self.reshape(&[-1])?.index(&[indices])
    }

    /// As [`gather`](Tensor::gather), where the other dimensions of tensor and indices broadcast and negative indices count from the
    /// end (`torch.take_along_dim`): for what `argsort` and `argmax` give. Without `dim` both are flattened.
    #[track_caller]
    pub fn take_along_dim(&self, indices: &Tensor, dim: Option<isize>) -> Result<Tensor> {
        let Some(dim) = dim else {
            let (flat, indices) = (self.reshape(&[-1])?, indices.reshape(&[-1])?);
            return flat.take_along_dim(&indices, Some(0));
        };
        let dim = resolve_dim("take_along_dim", dim, self.ndim())?;
        let operands = || vec![self.operand("self"), indices.operand("indices")];
        if indices.ndim() != self.ndim() {
            let what = format!(
                "expected as many dimensions as the tensor has, {}, got {}",
                self.ndim(),
                indices.ndim()
            );
            return Err(Error::shape("take_along_dim", what).with_operands(operands));
        }
        if self.ndim() == 0 {
            return self.take(indices);
        }
        let size = self.shape()[dim];
        let (mut of_self, mut of_indices) = (self.shape().clone(), indices.shape().clone());
        of_self.sizes_mut()[dim] = 1;
        of_indices.sizes_mut()[dim] = 1;
        let Some(mut shape) = of_self.broadcast(&of_indices) else {
            let what = format!(
                "indices {} do not broadcast with {} but for dimension {dim}",
                indices.shape(),
                self.shape()
            );
            return Err(Error::shape("take_along_dim", what).with_operands(operands));
        };
        shape.sizes_mut()[dim] = size;
        let x = self.expand_to(&shape)?;
        shape.sizes_mut()[dim] = indices.shape()[dim];
        let indices = as_indices("take_along_dim", indices)?.expand_to(&shape)?;
        x.gather(
            dim as isize,
            &wrapped("take_along_dim", &indices, dim, size)?,
        )
    }
}

/// Indices from 0 on, of i64 indices into `dim` of `size`; negative ones count from the end.
#[track_caller]
fn wrapped(name: &'static str, indices: &Tensor, dim: usize, size: usize) -> Result<Tensor> {
    dispatch::call_one(IndexPlaces { name, dim, size }, &[indices])
}

/// An index for each.
fn some(indices: &[&Tensor]) -> Vec<Option<Tensor>> {
    indices.iter().map(|&index| Some(index.clone())).collect()
}
