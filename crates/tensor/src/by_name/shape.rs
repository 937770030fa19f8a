//! Rows of views, copies, casts and joining.

use fireclay_core::{DType, Device, Result};

use super::rows;
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
            Some(_) => Err(call.not_built("more than one dim")),
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
        if call.value("split_size_or_sections")?.items().is_some() {
            return Err(call.not_built("a list of sections"));
        }
        let [size] = call.sizes_of::<1>("split_size_or_sections")?;
        call.tensor("tensor")?.split(size, call.dim("dim")?)
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
    "clone(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.copy() }
    "Tensor.contiguous(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.contiguous() }
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

fn whole_number(value: usize) -> Result<Tensor> {
    Tensor::scalar(value as i64, Device::Cpu)
}

fn whole_numbers(values: &[usize]) -> Result<Tensor> {
    let values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
    Tensor::from_slice(&values, &[values.len()], Device::Cpu)
}
