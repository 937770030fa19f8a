//! Rows of views, copies, casts and joining.

use fireclay_core::{DType, Device, Result, Scalar};

use super::{Call, Value, rows};
use crate::ops::copy::MemoryFormat;
use crate::ops::pad::Pad;
use crate::ops::shape::Indexing;
use crate::tensor::Tensor;

rows! {
    "reshape(Tensor input, int[] shape)" "input=[3,4] shape=[2,-1]" |call| {
        call.tensor("input")?.reshape(&call.dims("shape")?)
    }
    "Tensor.view(Tensor self, int[] size)" "self=[3,4] size=[2,-1]" |call| {
        call.tensor("self")?.view(&call.dims("size")?)
    }
    "Tensor.expand(Tensor self, int[] size)" "self=[3,1] size=[2,3,4]" |call| {
        call.tensor("self")?.expand(&call.dims("size")?)
    }
    "permute(Tensor input, int[] dims)" "input=[2,3,4] dims=[2,0,1]" |call| {
        call.tensor("input")?.permute(&call.dims("dims")?)
    }
    "flatten(Tensor input, int start_dim=0, int end_dim=-1)" "input=[2,3,4] start_dim=1" |call| {
        call.tensor("input")?.flatten(call.dim("start_dim")?, call.dim("end_dim")?)
    }
    "squeeze(Tensor input, int[]? dim=None)" "input=[3,1,4] dim=1" |call| {
        let x = call.tensor("input")?;
        match call.maybe_dims("dim")?.as_deref() {
            None => x.squeeze_all(),
            Some(&[dim]) => x.squeeze(dim),
            Some(dims) => x.squeeze_dims(dims),
        }
    }
    "unsqueeze(Tensor input, int dim)" "input=[3,4] dim=1" |call| {
        call.tensor("input")?.unsqueeze(call.dim("dim")?)
    }
    "transpose(Tensor input, int dim0, int dim1)" "input=[2,3,4] dim0=0 dim1=2" |call| {
        call.tensor("input")?.transpose(call.dim("dim0")?, call.dim("dim1")?)
    }
    "t(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.t() }
    "Tensor.mT(Tensor self)" "self=[2,3,4]" |call| { call.tensor("self")?.transpose(-2, -1) }
    "cat(Tensor[] tensors, int dim=0)" "tensors=([2,3],[1,3])" |call| {
        Tensor::cat(&call.tensors("tensors")?, call.dim("dim")?)
    }
    "stack(Tensor[] tensors, int dim=0)" "tensors=([2,3],[2,3]) dim=1" |call| {
        Tensor::stack(&call.tensors("tensors")?, call.dim("dim")?)
    }
    "split(Tensor tensor, int[] split_size_or_sections, int dim=0)" "tensor=[5,3] split_size_or_sections=2" |call| {
        let (x, dim) = (call.tensor("tensor")?, call.dim("dim")?);
        let sizes = call.sizes("split_size_or_sections")?;
        match (&sizes[..], call.value("split_size_or_sections")?.items()) {
            (&[size], None) => x.split(size, dim),
            (sizes, _) => x.split_with_sizes(sizes, dim),
        }
    }
    "chunk(Tensor input, int chunks, int dim=0)" "input=[5,3] chunks=2" |call| {
        call.tensor("input")?.chunk(call.size("chunks")?, call.dim("dim")?)
    }
    "narrow(Tensor input, int dim, int start, int length)" "input=[5,3] dim=0 start=1 length=3" |call| {
        let (start, length) = (call.size("start")?, call.size("length")?);
        call.tensor("input")?.narrow(call.dim("dim")?, start, length)
    }
    "select(Tensor input, int dim, int index)" "input=[5,3] dim=0 index=-2" |call| {
        call.tensor("input")?.select(call.dim("dim")?, call.dim("index")?)
    }
    "as_strided(Tensor input, int[] size, int[] stride, int? storage_offset=None)" "input=[5,3] size=[2,2] stride=[3,1] storage_offset=1" |call| {
        let x = call.tensor("input")?;
        let offset = call.maybe_size("storage_offset")?.unwrap_or(x.layout().offset());
        x.as_strided(&call.sizes("size")?, &call.sizes("stride")?, offset)
    }
    "unflatten(Tensor input, int dim, int[] sizes)" "input=[6,2] dim=0 sizes=[2,-1]" |call| {
        call.tensor("input")?.unflatten(call.dim("dim")?, &call.dims("sizes")?)
    }
    "movedim(Tensor input, int[] source, int[] destination)" "input=[2,3,4] source=0 destination=-1" |call| {
        call.tensor("input")?.movedim(&call.dims("source")?, &call.dims("destination")?)
    }
    "broadcast_to(Tensor input, int[] size)" "input=[3,1] size=[2,3,4]" |call| {
        call.tensor("input")?.broadcast_to(&call.sizes("size")?)
    }
    "broadcast_tensors(Tensor[] tensors)" "tensors=([3,1],[4])" |call| {
        Tensor::broadcast_tensors(&call.tensors("tensors")?)
    }
    "Tensor.repeat(Tensor self, int[] repeats)" "self=[3,4] repeats=[2,1,3]" |call| {
        call.tensor("self")?.repeat(&call.sizes("repeats")?)
    }
    "tile(Tensor input, int[] dims)" "input=[3,4] dims=[2]" |call| {
        call.tensor("input")?.tile(&call.sizes("dims")?)
    }
    "repeat_interleave(Tensor input, any repeats, int? dim=None)" "input=[3,4] repeats=2 dim=1" |call| {
        let (x, dim) = (call.tensor("input")?, call.maybe_dim("dim")?);
        match call.value("repeats")? {
            Value::Tensor(repeats) => x.repeat_interleave_by(repeats, dim),
            Value::Int(_) => x.repeat_interleave(call.size("repeats")?, dim),
            other => Err(call.refuse(format!("argument repeats must be a whole number or a tensor, got {other}"))),
        }
    }
    "unbind(Tensor input, int dim=0)" "input=[3,4] dim=1" |call| {
        call.tensor("input")?.unbind(call.dim("dim")?)
    }
    "flip(Tensor input, int[] dims)" "input=[3,4] dims=[0,1]" |call| {
        call.tensor("input")?.flip(&call.dims("dims")?)
    }
    "roll(Tensor input, int[] shifts, int[]? dims=None)" "input=[3,4] shifts=[1,-2] dims=[0,1]" |call| {
        call.tensor("input")?.roll(&call.dims("shifts")?, &call.dims("dims")?)
    }
    "rot90(Tensor input, int k=1, int[] dims=[0, 1])" "input=[3,4] k=1" |call| {
        let dims = call.dims("dims")?;
        let &[first, second] = &dims[..] else {
            return Err(call.refuse(format!("argument dims must be two dimensions, got {dims:?}")));
        };
        call.tensor("input")?.rot90(call.int("k")?, [first, second])
    }
    "tril(Tensor input, int diagonal=0)" "input=[3,4] diagonal=1" |call| {
        call.tensor("input")?.tril(call.dim("diagonal")?)
    }
    "triu(Tensor input, int diagonal=0)" "input=[3,4] diagonal=1" |call| {
        call.tensor("input")?.triu(call.dim("diagonal")?)
    }
    "diag(Tensor input, int diagonal=0)" "input=[3] diagonal=1" |call| {
        call.tensor("input")?.diag(call.dim("diagonal")?)
    }
    "diagonal(Tensor input, int offset=0, int dim1=0, int dim2=1)" "input=[3,4] offset=1" |call| {
        let (dim1, dim2) = (call.dim("dim1")?, call.dim("dim2")?);
        call.tensor("input")?.diagonal(call.dim("offset")?, dim1, dim2)
    }
    "diag_embed(Tensor input, int offset=0, int dim1=-2, int dim2=-1)" "input=[2,3] offset=-1" |call| {
        let (dim1, dim2) = (call.dim("dim1")?, call.dim("dim2")?);
        call.tensor("input")?.diag_embed(call.dim("offset")?, dim1, dim2)
    }
    "Tensor.unfold(Tensor self, int dimension, int size, int step)" "self=[2,5] dimension=1 size=3 step=2" |call| {
        let (size, step) = (call.size("size")?, call.size("step")?);
        call.tensor("self")?.unfold(call.dim("dimension")?, size, step)
    }
    "meshgrid(Tensor[] tensors, *, str? indexing=\"ij\")" "tensors=([3],[2])" |call| {
        let indexing = match call.text("indexing") {
            None => Indexing::Ij,
            Some(_) => call.one_of("indexing", &[("ij", Indexing::Ij), ("xy", Indexing::Xy)])?,
        };
        Tensor::meshgrid(&call.tensors("tensors")?, indexing)
    }
    "cartesian_prod(Tensor[] tensors)" "tensors=([3],[2])" |call| {
        Tensor::cartesian_prod(&call.tensors("tensors")?)
    }
    "combinations(Tensor input, int r=2, bool with_replacement=False)" "input=[4]" |call| {
        call.tensor("input")?.combinations(call.size("r")?, call.flag("with_replacement"))
    }
    "block_diag(Tensor[] tensors)" "tensors=([2,1],[3])" |call| {
        Tensor::block_diag(&call.tensors("tensors")?)
    }
    "nn.functional.pad(Tensor input, int[] pad, str mode=\"constant\", Number? value=None)" "input=[1,3,4] pad=[1,2] mode=\"reflect\"" |call| {
        let value = call.maybe_scalar("value")?;
        let mode = call.one_of(
            "mode",
            &[
                ("constant", Pad::Constant(value.unwrap_or(Scalar::F64(0.0)))),
                ("reflect", Pad::Reflect),
                ("replicate", Pad::Replicate),
                ("circular", Pad::Circular),
            ],
        )?;
        if !matches!(mode, Pad::Constant(_)) && value.is_some_and(|value| value.to_f64() != 0.0) {
            return Err(call.refuse("only padding by a constant takes a value"));
        }
        call.tensor("input")?.pad(&call.dims("pad")?, mode)
    }
    "clone(Tensor input, *, str memory_format=\"preserve_format\")" "input=[3,4]" |call| {
        call.tensor("input")?.copy_in(memory_format(call)?)
    }
    "Tensor.contiguous(Tensor self, str memory_format=\"contiguous_format\")" "self=[3,4]" |call| {
        call.tensor("self")?.contiguous_in(memory_format(call)?)
    }
    "Tensor.to(Tensor self, dtype? dtype=None, *, bool copy=False)" "self=[3,4] dtype=float64" |call| {
        let x = call.tensor("self")?;
        let dtype = call.dtype("dtype")?.unwrap_or(x.dtype());
        match call.flag("copy") && x.dtype() == dtype {
            true => x.copy(),
            false => x.to_dtype(dtype),
        }
    }
    "Tensor.float(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::F32) }
    "Tensor.double(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::F64) }
    "Tensor.half(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::F16) }
    "Tensor.bfloat16(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::BF16) }
    "Tensor.long(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::I64) }
    "Tensor.int(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::I32) }
    "Tensor.bool(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.to_dtype(DType::Bool) }
    "Tensor.item(Tensor self)" "self=[]" |call| {
        let x = call.tensor("self")?;
        let value = x.item()?;
        match x.dtype() {
            DType::Bool => Tensor::scalar(value != 0.0, Device::Cpu),
            dtype if dtype.is_integer() => Tensor::scalar(value as i64, Device::Cpu),
            _ => Tensor::scalar(value, Device::Cpu),
        }
    }
    "Tensor.stride(Tensor self)" "self=[3,4]" |call| { whole_numbers(call.tensor("self")?.strides()) }
    "Tensor.size(Tensor self)" "self=[3,4]" |call| { whole_numbers(call.tensor("self")?.shape()) }
    "Tensor.dim(Tensor self)" "self=[3,4]" |call| { whole_number(call.tensor("self")?.ndim()) }
    "Tensor.numel(Tensor self)" "self=[3,4]" |call| { whole_number(call.tensor("self")?.numel()) }
    "Tensor.element_size(Tensor self)" "self=[3,4]" |call| { whole_number(call.tensor("self")?.dtype().size()) }
    "Tensor.is_contiguous(Tensor self)" "self=[3,4]" |call| {
        Tensor::scalar(call.tensor("self")?.is_contiguous(), Device::Cpu)
    }
}

pub(super) fn memory_format(call: &Call<'_>) -> Result<MemoryFormat> {
    call.one_of(
        "memory_format",
        &[
            ("preserve_format", MemoryFormat::Preserve),
            ("contiguous_format", MemoryFormat::Contiguous),
            ("channels_last", MemoryFormat::ChannelsLast),
            ("channels_last_3d", MemoryFormat::ChannelsLast),
        ],
    )
}

fn whole_number(value: usize) -> Result<Tensor> {
    Tensor::scalar(value as i64, Device::Cpu)
}

fn whole_numbers(values: &[usize]) -> Result<Tensor> {
    let values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
    Tensor::from_slice(&values, &[values.len()], Device::Cpu)
}
