//! Factories.

use fireclay_tensor::{DType, Device, Scalar, Tensor};
use serde_json::Value;

use super::{Answer, Call, Refusal, one, unsupported};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "zeros" => full(call, Some(Scalar::F64(0.0))),
        "ones" => full(call, Some(Scalar::F64(1.0))),
        "full" => full(call, None),
        "zeros_like" => full_like(call, "input", Some(Scalar::I64(0))),
        "ones_like" => full_like(call, "input", Some(Scalar::I64(1))),
        "full_like" => full_like(call, "input", None),
        "Tensor.new_zeros" => full_like(call, "self", Some(Scalar::I64(0))),
        "Tensor.new_ones" => full_like(call, "self", Some(Scalar::I64(1))),
        "Tensor.new_full" => full_like(call, "self", None),
        "arange" => arange(call),
        "linspace" => linspace(call),
        "eye" => eye(call),
        "tensor" => tensor(call),
        _ => return None,
    })
}

fn value(call: &Call<'_>, known: Option<Scalar>) -> Result<Scalar, Refusal> {
    match known {
        Some(value) => Ok(value),
        None => call
            .scalar("fill_value")?
            .ok_or_else(|| unsupported("without fill_value")),
    }
}

fn full(call: &Call<'_>, known: Option<Scalar>) -> Answer {
    let (size, value) = (call.sizes("size")?, value(call, known)?);
    match call.dtype("dtype")? {
        Some(dtype) => one(Tensor::full_of(&size, value, dtype, Device::Cpu)),
        None => one(Tensor::full(&size, value, Device::Cpu)),
    }
}

fn full_like(call: &Call<'_>, like: &str, known: Option<Scalar>) -> Answer {
    let like = call.tensor(like)?;
    let value = value(call, known)?;
    let dtype = call.dtype("dtype")?.unwrap_or(like.dtype());
    if call.ints("size")?.is_some() {
        return one(Tensor::full_of(
            &call.sizes("size")?,
            value,
            dtype,
            Device::Cpu,
        ));
    }
    match call.text("memory_format") {
        None => {}
        Some("contiguous_format") => {
            return one(Tensor::full_of(like.shape(), value, dtype, Device::Cpu));
        }
        Some(_) => return Err(unsupported("memory_format")),
    }
    let like = like.to_dtype(dtype)?;
    one(match call.op() {
        "zeros_like" => like.zeros_like(),
        "ones_like" => like.ones_like(),
        _ => like.full_like(value),
    })
}

/// Fireclay's rules make i64 or f32: another dtype is a cast of it where that loses nothing.
fn cast(made: Tensor, dtype: Option<DType>) -> Answer {
    match dtype {
        None => Ok(vec![made]),
        Some(dtype) if dtype == made.dtype() => Ok(vec![made]),
        Some(dtype) if !made.dtype().is_floating_point() => one(made.to_dtype(dtype)),
        Some(_) => Err(unsupported("dtype")),
    }
}

fn arange(call: &Call<'_>) -> Answer {
    let start = call.scalar("start")?.unwrap_or(Scalar::I64(0));
    let step = call.scalar("step")?.unwrap_or(Scalar::I64(1));
    let end = call
        .scalar("end")?
        .ok_or_else(|| unsupported("without end"))?;
    let made = Tensor::arange(start, end, step, Device::Cpu)?;
    cast(made, call.dtype("dtype")?)
}

fn linspace(call: &Call<'_>) -> Answer {
    let (start, end) = (call.float("start", 0.0)?, call.float("end", 0.0)?);
    let made = Tensor::linspace(start, end, call.size("steps")?, Device::Cpu)?;
    cast(made, call.dtype("dtype")?)
}

fn eye(call: &Call<'_>) -> Answer {
    let size = call.size("n")?;
    if call.ints("m")?.is_some() && call.size("m")? != size {
        return Err(unsupported("m"));
    }
    let made = Tensor::eye(size, Device::Cpu)?;
    match call.dtype("dtype")? {
        Some(dtype) => one(made.to_dtype(dtype)),
        None => Ok(vec![made]),
    }
}

/// `torch.tensor` of nested lists.
fn tensor(call: &Call<'_>) -> Answer {
    let data = call
        .argument("data")
        .ok_or_else(|| unsupported("without data"))?;
    let mut shape = Vec::new();
    let mut inner = data;
    while let Value::Array(items) = inner {
        shape.push(items.len());
        match items.first() {
            Some(first) => inner = first,
            None => break,
        }
    }
    let mut flat = Vec::new();
    if !flatten(data, &shape, &mut flat) {
        return Err(Refusal::RuledOut("ragged data".into()));
    }
    let device = Device::Cpu;
    let made = if flat.iter().all(|value| value.is_boolean()) && !flat.is_empty() {
        let bools: Vec<bool> = flat.iter().filter_map(|value| value.as_bool()).collect();
        Tensor::from_slice(&bools, &shape, device)?
    } else if flat
        .iter()
        .all(|value| value.is_i64() || value.is_boolean())
        && !flat.is_empty()
    {
        let whole = |value: &&Value| {
            value
                .as_i64()
                .unwrap_or(i64::from(**value == Value::Bool(true)))
        };
        let ints: Vec<i64> = flat.iter().map(whole).collect();
        Tensor::from_slice(&ints, &shape, device)?
    } else {
        let number = |value: &&Value| match value {
            Value::Bool(value) => f64::from(u8::from(*value)),
            Value::String(text) => match text.as_str() {
                "inf" => f64::INFINITY,
                "-inf" => f64::NEG_INFINITY,
                _ => f64::NAN,
            },
            value => value.as_f64().unwrap_or(f64::NAN),
        };
        let numbers: Vec<f64> = flat.iter().map(number).collect();
        let dtype = call.dtype("dtype")?.unwrap_or(DType::F32);
        return one(Tensor::from_slice(&numbers, &shape, device)?.to_dtype(dtype));
    };
    cast(made, call.dtype("dtype")?)
}

fn flatten<'a>(value: &'a Value, shape: &[usize], flat: &mut Vec<&'a Value>) -> bool {
    match (value, shape.split_first()) {
        (Value::Array(items), Some((size, rest))) => {
            items.len() == *size && items.iter().all(|item| flatten(item, rest, flat))
        }
        (Value::Array(_), None) | (_, Some(_)) => false,
        (value, None) => {
            flat.push(value);
            true
        }
    }
}
