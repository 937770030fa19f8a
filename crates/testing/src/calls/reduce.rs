//! Reductions and softmax.

use fireclay_tensor::Tensor;
use fireclay_tensor::ops::linalg::NormOrder;
use fireclay_tensor::ops::order::Interpolation;
use serde_json::Value;

use super::{Answer, Call, one};

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
        "nansum" => over_dims(call, |x, dims, keepdim| x.nansum(dims, keepdim)),
        "prod" => prod(call),
        "count_nonzero" => made(|| one(call.tensor("input")?.count_nonzero(&call.dims("dim")?))),
        "max" => extremum(call, Tensor::max_dim, Tensor::amax),
        "min" => extremum(call, Tensor::min_dim, Tensor::amin),
        "aminmax" => aminmax(call),
        "var_mean" => spreads(call, |x, dims, correction, keepdim| {
            x.var_mean(dims, correction, keepdim)
        }),
        "std_mean" => spreads(call, |x, dims, correction, keepdim| {
            x.std_mean(dims, correction, keepdim)
        }),
        "norm" => norm(call),
        "cummax" => made(|| pair(call.tensor("input")?.cummax(call.given_dim("dim")?))),
        "cummin" => made(|| pair(call.tensor("input")?.cummin(call.given_dim("dim")?))),
        "logcumsumexp" => made(|| one(call.tensor("input")?.logcumsumexp(call.given_dim("dim")?))),
        "diff" => diff(call),
        "median" => middle(call, Tensor::median, Tensor::median_dim),
        "nanmedian" => middle(call, Tensor::nanmedian, Tensor::nanmedian_dim),
        "kthvalue" => kthvalue(call),
        "mode" => made(|| {
            let (dim, keepdim) = (call.dim("dim", -1)?, call.flag("keepdim", false));
            pair(call.tensor("input")?.mode(dim, keepdim))
        }),
        "quantile" => quantile(call, Tensor::quantile),
        "nanquantile" => quantile(call, Tensor::nanquantile),
        "histc" => histc(call),
        "trace" => made(|| one(call.tensor("input")?.trace())),
        _ => return None,
    })
}

/// What `answer` gives: a place for its question marks.
fn made(answer: impl FnOnce() -> Answer) -> Answer {
    answer()
}

fn pair(both: fireclay_tensor::Result<(Tensor, Tensor)>) -> Answer {
    let (first, second) = both?;
    Ok(vec![first, second])
}

fn maybe_dim(call: &Call<'_>) -> Result<Option<isize>, super::Refusal> {
    Ok(call.maybe_int("dim")?.map(|dim| dim as isize))
}

fn prod(call: &Call<'_>) -> Answer {
    let (dim, keepdim) = (maybe_dim(call)?, call.flag("keepdim", false));
    let product = input(call)?.prod(dim, keepdim)?;
    one(match call.dtype("dtype")? {
        Some(dtype) => product.to_dtype(dtype),
        None => Ok(product),
    })
}

fn extremum(
    call: &Call<'_>,
    along: impl Fn(&Tensor, isize, bool) -> fireclay_tensor::Result<(Tensor, Tensor)>,
    of_all: impl Fn(&Tensor, &[isize], bool) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let x = call.tensor("input")?;
    match maybe_dim(call)? {
        Some(dim) => pair(along(x, dim, call.flag("keepdim", false))),
        None => one(of_all(x, &[], false)),
    }
}

fn aminmax(call: &Call<'_>) -> Answer {
    let (dim, keepdim) = (maybe_dim(call)?, call.flag("keepdim", false));
    pair(call.tensor("input")?.aminmax(dim, keepdim))
}

fn spreads(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &[isize], f64, bool) -> fireclay_tensor::Result<(Tensor, Tensor)>,
) -> Answer {
    let (correction, keepdim) = (call.float("correction", 1.0)?, call.flag("keepdim", false));
    pair(function(
        call.tensor("input")?,
        &call.dims("dim")?,
        correction,
        keepdim,
    ))
}

fn norm(call: &Call<'_>) -> Answer {
    let p = super::linalg::order(call, "p")?.unwrap_or(NormOrder::Frobenius);
    let keepdim = call.flag("keepdim", false);
    one(input(call)?.norm(p, &call.dims("dim")?, keepdim))
}

fn diff(call: &Call<'_>) -> Answer {
    let n = match call.argument("n") {
        Some(_) => call.size("n")?,
        None => 1,
    };
    let (prepend, append) = (call.maybe_tensor("prepend")?, call.maybe_tensor("append")?);
    one(call
        .tensor("input")?
        .diff(n, call.dim("dim", -1)?, prepend, append))
}

fn middle(
    call: &Call<'_>,
    of_all: impl Fn(&Tensor) -> fireclay_tensor::Result<Tensor>,
    along: impl Fn(&Tensor, isize, bool) -> fireclay_tensor::Result<(Tensor, Tensor)>,
) -> Answer {
    let x = call.tensor("input")?;
    match maybe_dim(call)? {
        Some(dim) => pair(along(x, dim, call.flag("keepdim", false))),
        None => one(of_all(x)),
    }
}

fn kthvalue(call: &Call<'_>) -> Answer {
    let (k, dim) = (call.size("k")?, call.dim("dim", -1)?);
    pair(
        call.tensor("input")?
            .kthvalue(k, dim, call.flag("keepdim", false)),
    )
}

fn quantile(
    call: &Call<'_>,
    function: impl Fn(
        &Tensor,
        &Tensor,
        Option<isize>,
        bool,
        Interpolation,
    ) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let x = call.tensor("input")?;
    let q = match call.scalar("q")? {
        Some(number) => Tensor::full_of(&[], number, x.dtype(), x.device())?,
        None => call.tensor("q")?.clone(),
    };
    let interpolation = match call.text("interpolation") {
        Some("lower") => Interpolation::Lower,
        Some("higher") => Interpolation::Higher,
        Some("nearest") => Interpolation::Nearest,
        Some("midpoint") => Interpolation::Midpoint,
        _ => Interpolation::Linear,
    };
    let keepdim = call.flag("keepdim", false);
    one(function(x, &q, maybe_dim(call)?, keepdim, interpolation))
}

fn histc(call: &Call<'_>) -> Answer {
    let bins = match call.argument("bins") {
        Some(_) => call.size("bins")?,
        None => 100,
    };
    let (min, max) = (call.float("min", 0.0)?, call.float("max", 0.0)?);
    one(call.tensor("input")?.histc(bins, min, max))
}

fn scan(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let result = function(&input(call)?, call.given_dim("dim")?)?;
    one(match call.dtype("dtype")? {
        Some(dtype) => result.to_dtype(dtype),
        None => Ok(result),
    })
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
    let keepdim = call.flag("keepdim", false);
    let result = function(&x, &call.dims("dim")?, keepdim)?;
    one(match call.dtype("dtype")? {
        Some(dtype) => result.to_dtype(dtype),
        None => Ok(result),
    })
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
            let place = function(&x.reshape(&[x.numel() as isize])?, 0, false)?;
            one(match keepdim {
                true => place.reshape(&vec![1; x.ndim()]),
                false => Ok(place),
            })
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
