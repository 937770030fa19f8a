//! Rows of the factories.

use fireclay_core::{DType, Result, Scalar};

use super::shape::memory_format;
use super::{Call, Value, rows};
use crate::tensor::Tensor;

rows! {
    "zeros(int[] size, *, dtype? dtype=None, device? device=None)" "size=[2,3]" |call| {
        full(call, Scalar::F64(0.0))
    }
    "ones(int[] size, *, dtype? dtype=None, device? device=None)" "size=[2,3]" |call| {
        full(call, Scalar::F64(1.0))
    }
    "full(int[] size, Number fill_value, *, dtype? dtype=None, device? device=None)" "size=[2,3] fill_value=7" |call| {
        full(call, call.scalar("fill_value")?)
    }
    "zeros_like(Tensor input, *, dtype? dtype=None, str memory_format=\"preserve_format\")" "input=[3,4]" |call| {
        like(call, Scalar::I64(0))
    }
    "ones_like(Tensor input, *, dtype? dtype=None, str memory_format=\"preserve_format\")" "input=[3,4]" |call| {
        like(call, Scalar::I64(1))
    }
    "full_like(Tensor input, Number fill_value, *, dtype? dtype=None, str memory_format=\"preserve_format\")" "input=[3,4] fill_value=7" |call| {
        like(call, call.scalar("fill_value")?)
    }
    "Tensor.new_zeros(Tensor self, int[] size, *, dtype? dtype=None)" "self=[3,4] size=[2]" |call| {
        new(call, Scalar::I64(0))
    }
    "Tensor.new_ones(Tensor self, int[] size, *, dtype? dtype=None)" "self=[3,4] size=[2]" |call| {
        new(call, Scalar::I64(1))
    }
    "Tensor.new_full(Tensor self, int[] size, Number fill_value, *, dtype? dtype=None)" "self=[3,4] size=[2] fill_value=7" |call| {
        new(call, call.scalar("fill_value")?)
    }
    "arange(Number start=0, Number end, Number step=1, *, dtype? dtype=None, device? device=None)" "end=5" |call| {
        let [start, end, step] = [call.scalar("start")?, call.scalar("end")?, call.scalar("step")?];
        match call.dtype("dtype")? {
            Some(dtype) => Tensor::arange_of(start, end, step, dtype, call.device("device")?),
            None => Tensor::arange(start, end, step, call.device("device")?),
        }
    }
    "linspace(float start, float end, int steps, *, dtype? dtype=None, device? device=None)" "start=0 end=1 steps=5" |call| {
        let (start, end, steps) = (call.float("start")?, call.float("end")?, call.size("steps")?);
        Tensor::linspace_of(start, end, steps, float_or(call)?, call.device("device")?)
    }
    "logspace(float start, float end, int steps, float base=10.0, *, dtype? dtype=None, device? device=None)" "start=0 end=1 steps=5" |call| {
        let (start, end, steps) = (call.float("start")?, call.float("end")?, call.size("steps")?);
        Tensor::logspace(start, end, steps, call.float("base")?, float_or(call)?, call.device("device")?)
    }
    "eye(int n, int? m=None, *, dtype? dtype=None, device? device=None)" "n=3" |call| {
        let n = call.size("n")?;
        let m = call.maybe_size("m")?.unwrap_or(n);
        Tensor::eye_of(n, m, float_or(call)?, call.device("device")?)
    }
    "tril_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None)" "row=3 col=4" |call| {
        let (row, col) = (call.size("row")?, call.size("col")?);
        cast(call, Tensor::tril_indices(row, col, call.dim("offset")?, call.device("device")?)?)
    }
    "triu_indices(int row, int col, int offset=0, *, dtype? dtype=None, device? device=None)" "row=3 col=4" |call| {
        let (row, col) = (call.size("row")?, call.size("col")?);
        cast(call, Tensor::triu_indices(row, col, call.dim("offset")?, call.device("device")?)?)
    }
    "tensor(any data, *, dtype? dtype=None, device? device=None)" "data=[1.5,2.0]" |call| { nested(call) }
}

fn full(call: &Call<'_>, value: Scalar) -> Result<Tensor> {
    let (size, device) = (call.sizes("size")?, call.device("device")?);
    match call.dtype("dtype")? {
        Some(dtype) => Tensor::full_of(&size, value, dtype, device),
        None => Tensor::full(&size, value, device),
    }
}

fn like(call: &Call<'_>, value: Scalar) -> Result<Tensor> {
    let like = call.tensor("input")?;
    let dtype = call.dtype("dtype")?.unwrap_or(like.dtype());
    like.full_like_of(value, dtype, memory_format(call)?)
}

/// The dtype asked for, or f32.
fn float_or(call: &Call<'_>) -> Result<DType> {
    Ok(call.dtype("dtype")?.unwrap_or(DType::F32))
}

fn new(call: &Call<'_>, value: Scalar) -> Result<Tensor> {
    let like = call.tensor("self")?;
    let dtype = call.dtype("dtype")?.unwrap_or(like.dtype());
    Tensor::full_of(&call.sizes("size")?, value, dtype, like.device())
}

fn cast(call: &Call<'_>, made: Tensor) -> Result<Tensor> {
    match call.dtype("dtype")? {
        Some(dtype) => made.to_dtype(dtype),
        None => Ok(made),
    }
}

/// `torch.tensor` of nested lists.
fn nested(call: &Call<'_>) -> Result<Tensor> {
    let data = call.value("data")?;
    if let Value::Tensor(tensor) = data {
        return cast(call, tensor.detach().copy()?);
    }
    let mut shape = Vec::new();
    let mut inner = data;
    while let Some(items) = inner.items() {
        shape.push(items.len());
        match items.first() {
            Some(first) => inner = first,
            None => break,
        }
    }
    let mut flat = Vec::new();
    if !flatten(data, &shape, &mut flat) {
        return Err(call.refuse(format!(
            "argument data must be numbers in lists of equal lengths, got {data}"
        )));
    }
    let device = call.device("device")?;
    let is_bool = |value: &Scalar| matches!(value, Scalar::Bool(_));
    let is_whole = |value: &Scalar| !matches!(value, Scalar::F64(_));
    let made = if flat.is_empty() || !flat.iter().all(is_whole) {
        let numbers: Vec<f64> = flat.iter().map(|value| value.to_f64()).collect();
        let dtype = call.dtype("dtype")?.unwrap_or(DType::F32);
        return Tensor::from_slice(&numbers, &shape, device)?.to_dtype(dtype);
    } else if flat.iter().all(is_bool) {
        let bools: Vec<bool> = flat.iter().map(|value| value.to_i64() != 0).collect();
        Tensor::from_slice(&bools, &shape, device)?
    } else {
        let whole: Vec<i64> = flat.iter().map(|value| value.to_i64()).collect();
        Tensor::from_slice(&whole, &shape, device)?
    };
    cast(call, made)
}

fn flatten(value: &Value, shape: &[usize], flat: &mut Vec<Scalar>) -> bool {
    match (value.items(), shape.split_first()) {
        (Some(items), Some((size, rest))) => {
            items.len() == *size && items.iter().all(|item| flatten(item, rest, flat))
        }
        (Some(_), None) | (None, Some(_)) => false,
        (None, None) => {
            flat.extend(value.number());
            value.number().is_some()
        }
    }
}
