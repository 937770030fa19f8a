//! Views, copies, casts, joining and indexing.

use fireclay_tensor::{DType, Device, Error, Tensor};
use serde_json::Value;

use super::{Answer, Call, Refusal, one, unsupported};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "reshape" => sized(call, "input", "shape", |x, sizes| x.reshape(sizes)),
        "Tensor.view" => sized(call, "self", "size", |x, sizes| x.view(sizes)),
        "Tensor.expand" => sized(call, "self", "size", |x, sizes| x.expand(sizes)),
        "permute" => sized(call, "input", "dims", |x, dims| x.permute(dims)),
        "flatten" => flatten(call),
        "squeeze" => squeeze(call),
        "unsqueeze" => unsqueeze(call),
        "transpose" => transpose(call),
        "t" => call.tensor("input").and_then(|x| Ok(vec![x.t()?])),
        "Tensor.mT" => call
            .tensor("self")
            .and_then(|x| Ok(vec![x.transpose(-2, -1)?])),
        "cat" => joined(call, |tensors, dim| Tensor::cat(tensors, dim)),
        "stack" => joined(call, |tensors, dim| Tensor::stack(tensors, dim)),
        "split" => split(call),
        "chunk" => chunk(call),
        "narrow" => narrow(call),
        "select" => select(call),
        "as_strided" => as_strided(call),
        "Tensor.__getitem__" => index(call),
        "clone" => kept(call, "input", |x| x.copy()),
        "Tensor.contiguous" => kept(call, "self", |x| x.contiguous()),
        "Tensor.to" => to(call),
        "Tensor.float" => cast(call, DType::F32),
        "Tensor.double" => cast(call, DType::F64),
        "Tensor.half" => cast(call, DType::F16),
        "Tensor.bfloat16" => cast(call, DType::BF16),
        "Tensor.long" => cast(call, DType::I64),
        "Tensor.int" => cast(call, DType::I32),
        "Tensor.bool" => cast(call, DType::Bool),
        "Tensor.item" => item(call),
        "Tensor.stride" => fact(call, |x| ints(x.strides())),
        "Tensor.size" => fact(call, |x| ints(x.shape())),
        "Tensor.dim" => fact(call, |x| Tensor::scalar(x.ndim() as i64, Device::Cpu)),
        "Tensor.numel" => fact(call, |x| Tensor::scalar(x.numel() as i64, Device::Cpu)),
        "Tensor.element_size" => fact(call, |x| {
            Tensor::scalar(x.dtype().size() as i64, Device::Cpu)
        }),
        "Tensor.is_contiguous" => fact(call, |x| Tensor::scalar(x.is_contiguous(), Device::Cpu)),
        "gather" => indexed(call, |x, dim, index| x.gather(dim, index)),
        "index_select" => indexed(call, |x, dim, index| x.index_select(dim, index)),
        "scatter_add" => scatter_add(call),
        "index_add" => index_add(call),
        "scatter" => scatter(call),
        "index_put" => index_put(call),
        _ => return None,
    })
}

fn sized(
    call: &Call<'_>,
    input: &str,
    sizes: &str,
    function: impl Fn(&Tensor, &[isize]) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let sizes = call.dims(sizes)?;
    one(function(call.tensor(input)?, &sizes))
}

fn flatten(call: &Call<'_>) -> Answer {
    let (start, end) = (call.dim("start_dim", 0)?, call.dim("end_dim", -1)?);
    one(call.tensor("input")?.flatten(start, end))
}

fn squeeze(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    match call.ints("dim")? {
        None => one(x.squeeze_all()),
        Some(dims) => match *dims {
            [dim] => one(x.squeeze(dim as isize)),
            _ => Err(unsupported("several dims")),
        },
    }
}

fn unsqueeze(call: &Call<'_>) -> Answer {
    let dim = call.given_dim("dim")?;
    one(call.tensor("input")?.unsqueeze(dim))
}

fn transpose(call: &Call<'_>) -> Answer {
    let (dim0, dim1) = (call.given_dim("dim0")?, call.given_dim("dim1")?);
    one(call.tensor("input")?.transpose(dim0, dim1))
}

fn joined(
    call: &Call<'_>,
    function: impl Fn(&[&Tensor], isize) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let dim = call.dim("dim", 0)?;
    one(function(&call.tensors("tensors")?, dim))
}

fn split(call: &Call<'_>) -> Answer {
    if matches!(
        call.argument("split_size_or_sections"),
        Some(Value::Array(_))
    ) {
        return Err(unsupported("a list of sections"));
    }
    let (size, dim) = (call.size("split_size_or_sections")?, call.dim("dim", 0)?);
    Ok(call.tensor("tensor")?.split(size, dim)?)
}

fn chunk(call: &Call<'_>) -> Answer {
    let (chunks, dim) = (call.size("chunks")?, call.dim("dim", 0)?);
    Ok(call.tensor("input")?.chunk(chunks, dim)?)
}

fn narrow(call: &Call<'_>) -> Answer {
    let dim = call.given_dim("dim")?;
    let (start, length) = (call.size("start")?, call.size("length")?);
    one(call.tensor("input")?.narrow(dim, start, length))
}

fn select(call: &Call<'_>) -> Answer {
    let (dim, index) = (call.given_dim("dim")?, call.given_dim("index")?);
    one(call.tensor("input")?.select(dim, index))
}

fn as_strided(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    let (size, strides) = (call.sizes("size")?, call.sizes("stride")?);
    let offset = match call.maybe_int("storage_offset")? {
        Some(_) => call.size("storage_offset")?,
        None => x.layout().offset(),
    };
    one(x.as_strided(&size, &strides, offset))
}

/// `x[..]` by numbers, slices, None and the ellipsis.
fn index(call: &Call<'_>) -> Answer {
    let x = call.tensor("self")?;
    let items = call
        .argument("index")
        .and_then(Value::as_array)
        .ok_or_else(|| unsupported("without index"))?;
    let consumes = |item: &&Value| item.is_number() || item.get("slice").is_some();
    let consumed = items.iter().filter(consumes).count();
    let (mut result, mut dim) = (x.clone(), 0);
    for item in items {
        match item {
            Value::Null => {
                result = result.unsqueeze(dim)?;
                dim += 1;
            }
            Value::String(_) => dim += x.ndim().saturating_sub(consumed) as isize,
            Value::Number(number) => {
                let index = number
                    .as_i64()
                    .ok_or_else(|| unsupported("a float index"))?;
                if consumed > x.ndim() {
                    return Err(Refusal::Error(Error::DimOutOfRange {
                        op: "select",
                        dim: x.ndim() as isize,
                        ndim: x.ndim(),
                    }));
                }
                result = result.select(dim, index as isize)?;
            }
            item => {
                let Some(bounds) = item.get("slice").and_then(Value::as_array) else {
                    return Err(unsupported("index tensors and truth values"));
                };
                let bound = |at: usize| bounds[at].as_i64();
                let step = match bound(2).map(usize::try_from) {
                    None => 1,
                    Some(Ok(step)) => step,
                    Some(Err(_)) => return Err(Refusal::RuledOut("a negative step".into())),
                };
                let start = bound(0).unwrap_or(0) as isize;
                let end = bound(1).map_or(isize::MAX, |end| end as isize);
                result = result.slice(dim, start, end, step)?;
                dim += 1;
            }
        }
    }
    Ok(vec![result])
}

fn kept(
    call: &Call<'_>,
    input: &str,
    function: impl Fn(&Tensor) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    if call.text("memory_format").is_some() {
        return Err(unsupported("memory_format"));
    }
    one(function(call.tensor(input)?))
}

fn to(call: &Call<'_>) -> Answer {
    let x = call.tensor("self")?;
    let dtype = call.dtype("dtype")?.unwrap_or(x.dtype());
    let copies = call.flag("copy", false);
    if copies && x.dtype() == dtype {
        return one(x.copy());
    }
    one(x.to_dtype(dtype))
}

fn cast(call: &Call<'_>, dtype: DType) -> Answer {
    one(call.tensor("self")?.to_dtype(dtype))
}

/// A Python number as a zero-dim tensor of its kind.
fn item(call: &Call<'_>) -> Answer {
    let x = call.tensor("self")?;
    let value = x.item()?;
    one(match x.dtype() {
        DType::Bool => Tensor::scalar(value != 0.0, Device::Cpu),
        dtype if dtype.is_integer() => Tensor::scalar(value as i64, Device::Cpu),
        _ => Tensor::scalar(value, Device::Cpu),
    })
}

fn fact(call: &Call<'_>, function: impl Fn(&Tensor) -> fireclay_tensor::Result<Tensor>) -> Answer {
    one(function(call.tensor("self")?))
}

fn ints(values: &[usize]) -> fireclay_tensor::Result<Tensor> {
    let values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
    Tensor::from_slice(&values, &[values.len()], Device::Cpu)
}

fn indexed(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize, &Tensor) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let dim = call.given_dim("dim")?;
    one(function(call.tensor("input")?, dim, call.tensor("index")?))
}

fn scatter_add(call: &Call<'_>) -> Answer {
    let (dim, index, source) = (
        call.given_dim("dim")?,
        call.tensor("index")?,
        call.tensor("src")?,
    );
    one(call.tensor("input")?.scatter_add(dim, index, source))
}

fn scatter(call: &Call<'_>) -> Answer {
    let (x, dim, index) = (
        call.tensor("input")?,
        call.given_dim("dim")?,
        call.tensor("index")?,
    );
    let source = match call.scalar("value")? {
        Some(value) => Tensor::full_of(index.shape(), value, x.dtype(), x.device())?,
        None => call.tensor("src")?.clone(),
    };
    one(x.scatter(dim, index, &source))
}

fn index_put(call: &Call<'_>) -> Answer {
    let indices = call.tensors("indices")?;
    if indices.iter().any(|index| index.dtype() == DType::Bool) {
        return Err(unsupported("a mask of bools"));
    }
    let accumulate = call.flag("accumulate", false);
    let values = call.tensor("values")?;
    one(call
        .tensor("input")?
        .index_put(&indices, values, accumulate))
}

fn index_add(call: &Call<'_>) -> Answer {
    if call.scalar("alpha")?.is_some() {
        return Err(unsupported("alpha"));
    }
    let (dim, index) = (call.given_dim("dim")?, call.tensor("index")?);
    one(call
        .tensor("input")?
        .index_add(dim, index, call.tensor("source")?))
}
