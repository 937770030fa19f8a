//! Reductions and softmax.

use fireclay_tensor::Tensor;
use serde_json::Value;

use super::{Answer, Call, one, unsupported};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "sum" => over_dims(call, |x, dims, keepdim| x.sum(dims, keepdim)),
        "mean" => over_dims(call, |x, dims, keepdim| x.mean(dims, keepdim)),
        "amax" => over_dims(call, |x, dims, keepdim| x.amax(dims, keepdim)),
        "amin" => over_dims(call, |x, dims, keepdim| x.amin(dims, keepdim)),
        "any" => over_dims(call, |x, dims, keepdim| x.any(dims, keepdim)),
        "all" => over_dims(call, |x, dims, keepdim| x.all(dims, keepdim)),
        "logsumexp" => over_dims(call, |x, dims, keepdim| x.logsumexp(dims, keepdim)),
        "argmax" => chosen(call, |x, dim, keepdim| x.argmax(dim, keepdim)),
        "argmin" => chosen(call, |x, dim, keepdim| x.argmin(dim, keepdim)),
        "var" => spread(call, |x, dims, correction, keepdim| {
            x.var(dims, correction, keepdim)
        }),
        "std" => spread(call, |x, dims, correction, keepdim| {
            x.std(dims, correction, keepdim)
        }),
        "softmax" => along(call, |x, dim| x.softmax(dim)),
        "log_softmax" => along(call, |x, dim| x.log_softmax(dim)),
        "cumsum" => scan(call, |x, dim| x.cumsum(dim)),
        "cumprod" => scan(call, |x, dim| x.cumprod(dim)),
        "sort" => sorted(call, |x, dim, descending| {
            let (values, indices) = x.sort(dim, descending)?;
            Ok(vec![values, indices])
        }),
        "argsort" => sorted(call, |x, dim, descending| {
            Ok(vec![x.argsort(dim, descending)?])
        }),
        "topk" => topk(call),
        _ => return None,
    })
}

fn scan(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    one(function(&input(call)?, call.given_dim("dim")?))
}

fn sorted(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize, bool) -> fireclay_tensor::Result<Vec<Tensor>>,
) -> Answer {
    // Every sort is stable.
    let _ = call.flag("stable", false);
    let (dim, descending) = (call.dim("dim", -1)?, call.flag("descending", false));
    Ok(function(call.tensor("input")?, dim, descending)?)
}

fn topk(call: &Call<'_>) -> Answer {
    let _ = call.flag("sorted", true);
    let (k, dim) = (call.size("k")?, call.dim("dim", -1)?);
    let largest = call.flag("largest", true);
    let (values, indices) = call.tensor("input")?.topk(k, dim, largest)?;
    Ok(vec![values, indices])
}

/// The input, cast first where a `dtype` is given: what PyTorch says that `dtype` does.
fn input(call: &Call<'_>) -> Result<Tensor, super::Refusal> {
    let x = call.tensor("input")?;
    match call.dtype("dtype")? {
        Some(dtype) => Ok(x.to_dtype(dtype)?),
        None => Ok(x.clone()),
    }
}

fn over_dims(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &[isize], bool) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let x = input(call)?;
    if call
        .dtype("dtype")?
        .is_some_and(|dtype| dtype.is_integer() && dtype.size() < 8)
    {
        return Err(unsupported("a narrow dtype for the sum"));
    }
    let keepdim = call.flag("keepdim", false);
    one(function(&x, &call.dims("dim")?, keepdim))
}

fn chosen(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize, bool) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let x = call.tensor("input")?;
    let keepdim = call.flag("keepdim", false);
    match call.maybe_int("dim")? {
        Some(dim) => one(function(x, dim as isize, keepdim)),
        // Without a dimension: the place in the flat tensor.
        None => {
            if keepdim {
                return Err(unsupported("keepdim without dim"));
            }
            one(function(&x.reshape(&[x.numel() as isize])?, 0, false))
        }
    }
}

fn spread(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &[isize], f64, bool) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let x = call.tensor("input")?;
    let unbiased = match call.argument("unbiased") {
        Some(Value::Bool(false)) => 0.0,
        _ => 1.0,
    };
    let correction = call.float("correction", unbiased)?;
    let keepdim = call.flag("keepdim", false);
    one(function(x, &call.dims("dim")?, correction, keepdim))
}

fn along(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let x = input(call)?;
    one(function(&x, call.given_dim("dim")?))
}
