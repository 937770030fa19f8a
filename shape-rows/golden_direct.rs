use super::{Answer, Call, Refusal, one, unsupported};
use fireclay_tensor::*;
use serde_json::Value;

fn receiver(call: &Call<'_>) -> Result<Tensor, Refusal> {
    let x = call.tensor("self")?;
    if x.requires_grad() {
        Ok(x.copy()?)
    } else {
        Ok(x.clone())
    }
}
fn usizes(call: &Call<'_>, name: &str) -> Result<Vec<usize>, Refusal> {
    call.sizes(name)
}
fn format(call: &Call<'_>) -> MemoryFormat {
    match call.text("memory_format") {
        Some("contiguous_format") => MemoryFormat::Contiguous,
        Some("channels_last") => MemoryFormat::ChannelsLast,
        _ => MemoryFormat::Preserve,
    }
}
fn maybe_dim(call: &Call<'_>) -> Result<Option<isize>, Refusal> {
    Ok(call.maybe_int("dim")?.map(|d| d as isize))
}
fn reduce(call: &Call<'_>) -> ScatterReduce {
    match call.text("reduce") {
        Some("sum") => ScatterReduce::Sum,
        Some("mean") => ScatterReduce::Mean,
        Some("prod") => ScatterReduce::Prod,
        Some("amax") => ScatterReduce::Amax,
        _ => ScatterReduce::Amin,
    }
}
fn items(call: &Call<'_>) -> Result<Vec<Index>, Refusal> {
    let list = call.argument("index").and_then(Value::as_array).unwrap();
    let keys = call.case().list("inputs");
    list.iter()
        .map(|item| {
            Ok(match item {
                Value::Null => Index::NewDim,
                Value::Bool(b) => Index::Truth(*b),
                Value::String(_) => Index::Ellipsis,
                Value::Number(n) => Index::At(n.as_i64().unwrap() as isize),
                item => {
                    if let Some(b) = item.get("slice").and_then(Value::as_array) {
                        Index::Slice {
                            start: b[0].as_i64().map(|x| x as isize),
                            end: b[1].as_i64().map(|x| x as isize),
                            step: b[2].as_i64().unwrap_or(1) as isize,
                        }
                    } else {
                        Index::Tensor(
                            call.by_key(
                                keys[item["input"].as_u64().unwrap() as usize]
                                    .as_str()
                                    .unwrap(),
                            )
                            .clone(),
                        )
                    }
                }
            })
        })
        .collect()
}
fn unique(u: Unique) -> Answer {
    Ok([Some(u.values), u.inverse, u.counts]
        .into_iter()
        .flatten()
        .collect())
}
fn cast(x: Tensor, call: &Call<'_>) -> Answer {
    one(if call.flag("out_int32", false) {
        x.to_dtype(DType::I32)
    } else {
        Ok(x)
    })
}

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some((|| -> Answer {
        match call.op() {
            "unflatten" => one(call
                .tensor("input")?
                .unflatten(call.given_dim("dim")?, &call.dims("sizes")?)),
            "movedim" => one(call
                .tensor("input")?
                .movedim(&call.dims("source")?, &call.dims("destination")?)),
            "broadcast_to" => one(call.tensor("input")?.broadcast_to(&usizes(call, "size")?)),
            "Tensor.repeat" => one(call.tensor("self")?.repeat(&usizes(call, "repeats")?)),
            "tile" => one(call.tensor("input")?.tile(&usizes(call, "dims")?)),
            "unbind" => Ok(call.tensor("input")?.unbind(call.dim("dim", 0)?)?),
            "flip" => one(call.tensor("input")?.flip(&call.dims("dims")?)),
            "roll" => one(call
                .tensor("input")?
                .roll(&call.dims("shifts")?, &call.dims("dims")?)),
            "rot90" => {
                let d = call.dims("dims")?;
                one(call.tensor("input")?.rot90(call.int("k", 1)?, [d[0], d[1]]))
            }
            "tril" => one(call.tensor("input")?.tril(call.dim("diagonal", 0)?)),
            "triu" => one(call.tensor("input")?.triu(call.dim("diagonal", 0)?)),
            "diag" => one(call.tensor("input")?.diag(call.dim("diagonal", 0)?)),
            "diagonal" => one(call.tensor("input")?.diagonal(
                call.dim("offset", 0)?,
                call.dim("dim1", 0)?,
                call.dim("dim2", 1)?,
            )),
            "diag_embed" => one(call.tensor("input")?.diag_embed(
                call.dim("offset", 0)?,
                call.dim("dim1", -2)?,
                call.dim("dim2", -1)?,
            )),
            "Tensor.unfold" => one(call.tensor("self")?.unfold(
                call.given_dim("dimension")?,
                call.size("size")?,
                call.size("step")?,
            )),
            "repeat_interleave" => {
                let x = call.tensor("input")?;
                let dim = maybe_dim(call)?;
                match call.maybe_int("repeats") {
                    Ok(Some(_)) => one(x.repeat_interleave(call.size("repeats")?, dim)),
                    _ => one(x.repeat_interleave_by(call.tensor("repeats")?, dim)),
                }
            }
            "meshgrid" => Ok(Tensor::meshgrid(
                &call.tensors("*tensors")?,
                if call.text("indexing") == Some("xy") {
                    Indexing::Xy
                } else {
                    Indexing::Ij
                },
            )?),
            "block_diag" => one(Tensor::block_diag(&call.tensors("*tensors")?)),
            "broadcast_tensors" => Ok(Tensor::broadcast_tensors(&call.tensors("*tensors")?)?),
            "combinations" => one(call.tensor("input")?.combinations(
                call.int("r", 2)? as usize,
                call.flag("with_replacement", false),
            )),
            "cartesian_prod" => one(Tensor::cartesian_prod(&call.tensors("*tensors")?)),
            "take_along_dim" => one(call
                .tensor("input")?
                .take_along_dim(call.tensor("indices")?, maybe_dim(call)?)),
            "take" => one(call.tensor("input")?.take(call.tensor("index")?)),
            "scatter_reduce" => one(call.tensor("input")?.scatter_reduce(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.tensor("src")?,
                reduce(call),
                call.flag("include_self", true),
            )),
            "put" => one(call.tensor("input")?.put(
                call.tensor("index")?,
                call.tensor("source")?,
                call.flag("accumulate", false),
            )),
            "index_copy" => one(call.tensor("input")?.index_copy(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.tensor("source")?,
            )),
            "index_fill" => one(call.tensor("input")?.index_fill(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.operand("value")?,
            )),
            "masked_fill" => one(call
                .tensor("input")?
                .masked_fill(call.tensor("mask")?, call.operand("value")?)),
            "masked_select" => one(call.tensor("input")?.masked_select(call.tensor("mask")?)),
            "masked_scatter" => one(call
                .tensor("input")?
                .masked_scatter(call.tensor("mask")?, call.tensor("source")?)),
            "nonzero" => one(call.tensor("input")?.nonzero()),
            "where" if call.operand("other").is_err() => {
                Ok(call.tensor("condition")?.nonzero_tuple()?)
            }
            "nn.functional.one_hot" => {
                let n = call.int("num_classes", -1)?;
                one(call
                    .tensor("input")?
                    .one_hot(if n == -1 { None } else { Some(n as usize) }))
            }
            "unique" => {
                call.flag("sorted", true);
                unique(call.tensor("input")?.unique_with(UniqueOptions {
                    dim: maybe_dim(call)?,
                    return_inverse: call.flag("return_inverse", false),
                    return_counts: call.flag("return_counts", false),
                })?)
            }
            "unique_consecutive" => {
                unique(call.tensor("input")?.unique_consecutive(UniqueOptions {
                    dim: maybe_dim(call)?,
                    return_inverse: call.flag("return_inverse", false),
                    return_counts: call.flag("return_counts", false),
                })?)
            }
            "bincount" => one(call.tensor("input")?.bincount(
                call.maybe_tensor("weights")?,
                call.int("minlength", 0)? as usize,
            )),
            "searchsorted" => {
                let mut s = call.tensor("sorted_sequence")?.clone();
                if let Some(o) = call.maybe_tensor("sorter")? {
                    s = s.gather(-1, o)?;
                }
                let right = call.flag("right", false) || call.text("side") == Some("right");
                cast(s.searchsorted(call.tensor("input")?, right)?, call)
            }
            "bucketize" => cast(
                call.tensor("input")?
                    .bucketize(call.tensor("boundaries")?, call.flag("right", false))?,
                call,
            ),
            "nn.functional.pad" => {
                let value = call.scalar("value")?.unwrap_or(Scalar::F64(0.0));
                let mode = match call.text("mode") {
                    Some("reflect") => Pad::Reflect,
                    Some("replicate") => Pad::Replicate,
                    Some("circular") => Pad::Circular,
                    _ => Pad::Constant(value),
                };
                one(call.tensor("input")?.pad(&call.dims("pad")?, mode))
            }
            "split"
                if matches!(
                    call.argument("split_size_or_sections"),
                    Some(Value::Array(_))
                ) =>
            {
                Ok(call.tensor("tensor")?.split_with_sizes(
                    &usizes(call, "split_size_or_sections")?,
                    call.dim("dim", 0)?,
                )?)
            }
            "squeeze" if call.ints("dim")?.is_some_and(|d| d.len() != 1) => {
                one(call.tensor("input")?.squeeze_dims(&call.dims("dim")?))
            }
            "clone" => one(call.tensor("input")?.copy_in(format(call))),
            "Tensor.contiguous" => one(call.tensor("self")?.contiguous_in(match format(call) {
                MemoryFormat::Preserve => MemoryFormat::Contiguous,
                f => f,
            })),
            "zeros_like" | "ones_like" | "full_like" => {
                let x = call.tensor("input")?;
                let v = match call.op() {
                    "zeros_like" => Scalar::I64(0),
                    "ones_like" => Scalar::I64(1),
                    _ => call.scalar("fill_value")?.unwrap(),
                };
                one(x.full_like_of(v, call.dtype("dtype")?.unwrap_or(x.dtype()), format(call)))
            }
            "arange" => {
                let s = |n: &str, d: i64| call.scalar(n).map(|s| s.unwrap_or(Scalar::I64(d)));
                let (a, b, c) = (s("start", 0)?, s("end", 0)?, s("step", 1)?);
                match call.dtype("dtype")? {
                    Some(d) => one(Tensor::arange_of(a, b, c, d, Device::Cpu)),
                    None => one(Tensor::arange(a, b, c, Device::Cpu)),
                }
            }
            "linspace" => one(Tensor::linspace_of(
                call.float("start", 0.0)?,
                call.float("end", 0.0)?,
                call.size("steps")?,
                call.dtype("dtype")?.unwrap_or(DType::F32),
                Device::Cpu,
            )),
            "logspace" => one(Tensor::logspace(
                call.float("start", 0.0)?,
                call.float("end", 0.0)?,
                call.size("steps")?,
                call.float("base", 10.0)?,
                call.dtype("dtype")?.unwrap_or(DType::F32),
                Device::Cpu,
            )),
            "eye" => {
                let n = call.size("n")?;
                let m = if call.maybe_int("m")?.is_some() {
                    call.size("m")?
                } else {
                    n
                };
                one(Tensor::eye_of(
                    n,
                    m,
                    call.dtype("dtype")?.unwrap_or(DType::F32),
                    Device::Cpu,
                ))
            }
            "tril_indices" => cast_to(
                Tensor::tril_indices(
                    call.size("row")?,
                    call.size("col")?,
                    call.dim("offset", 0)?,
                    Device::Cpu,
                )?,
                call,
            ),
            "triu_indices" => cast_to(
                Tensor::triu_indices(
                    call.size("row")?,
                    call.size("col")?,
                    call.dim("offset", 0)?,
                    Device::Cpu,
                )?,
                call,
            ),
            "Tensor.__getitem__" => {
                let items = items(call)?;
                call.note_inputs();
                one(call.tensor("self")?.i(items))
            }
            "Tensor.__setitem__" => {
                let items = items(call)?;
                let v = call.operand("value")?;
                call.note_inputs();
                one(receiver(call)?.set(items, v))
            }
            "index_put" => {
                let i = call.tensors("indices")?;
                one(call.tensor("input")?.index_put(
                    &i,
                    call.tensor("values")?,
                    call.flag("accumulate", false),
                ))
            }
            "index_add" => {
                let mut s = call.tensor("source")?.clone();
                if let Some(a) = call.scalar("alpha")? {
                    s = s.mul(a)?;
                }
                one(call.tensor("input")?.index_add(
                    call.given_dim("dim")?,
                    call.tensor("index")?,
                    &s,
                ))
            }
            "Tensor.masked_fill_" => {
                one(receiver(call)?.masked_fill_(call.tensor("mask")?, call.operand("value")?))
            }
            "Tensor.cumsum_" => one(receiver(call)?.cumsum_(call.given_dim("dim")?)),
            "Tensor.tril_" => one(receiver(call)?.tril_(call.dim("diagonal", 0)?)),
            "Tensor.triu_" => one(receiver(call)?.triu_(call.dim("diagonal", 0)?)),
            "Tensor.fill_diagonal_" => one(receiver(call)?.fill_diagonal_(
                call.scalar("fill_value")?.unwrap(),
                call.flag("wrap", false),
            )),
            "Tensor.scatter_" => match call.scalar("value")? {
                Some(v) => one(receiver(call)?.scatter_value_(
                    call.given_dim("dim")?,
                    call.tensor("index")?,
                    v,
                )),
                None => one(receiver(call)?.scatter_(
                    call.given_dim("dim")?,
                    call.tensor("index")?,
                    call.tensor("src")?,
                )),
            },
            "Tensor.scatter_add_" => one(receiver(call)?.scatter_add_(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.tensor("src")?,
            )),
            "Tensor.index_add_" => one(receiver(call)?.index_add_(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.tensor("source")?,
            )),
            "Tensor.index_copy_" => one(receiver(call)?.index_copy_(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.tensor("source")?,
            )),
            "Tensor.index_fill_" => one(receiver(call)?.index_fill_(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.operand("value")?,
            )),
            "Tensor.masked_scatter_" => {
                one(receiver(call)?.masked_scatter_(call.tensor("mask")?, call.tensor("source")?))
            }
            "Tensor.scatter_reduce_" => one(receiver(call)?.scatter_reduce_(
                call.given_dim("dim")?,
                call.tensor("index")?,
                call.tensor("src")?,
                reduce(call),
                call.flag("include_self", true),
            )),
            "Tensor.index_put_" => {
                let i = call.tensors("indices")?;
                one(receiver(call)?.index_put_(
                    &i,
                    call.tensor("values")?,
                    call.flag("accumulate", false),
                ))
            }
            _ => Err(unsupported("NONE")),
        }
    })())
    .filter(|answer| !matches!(answer, Err(Refusal::Unsupported(s)) if s == "NONE"))
}
fn cast_to(x: Tensor, call: &Call<'_>) -> Answer {
    one(match call.dtype("dtype")? {
        Some(d) => x.to_dtype(d),
        None => Ok(x),
    })
}
