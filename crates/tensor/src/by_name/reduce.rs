//! Rows of reductions, scans and sorting.

use fireclay_core::Result;

use super::linalg::order;
use super::{Call, Value, rows};
use crate::ops::linalg::NormOrder;
use crate::ops::order::Interpolation;
use crate::tensor::Tensor;

rows! {
    "sum(Tensor input, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=[2,3,4] dim=[0,2]" |call| { over_dims(call, Tensor::sum) }
    "mean(Tensor input, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=[2,3,4] dim=[0,2]" |call| { over_dims(call, Tensor::mean) }
    "nansum(Tensor input, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=[2,3,4] dim=[0,2]" |call| { over_dims(call, Tensor::nansum) }
    "prod(Tensor input, int? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=positive[2,3,4] dim=1" |call| {
        let product = call.cast_input()?.prod(call.maybe_dim("dim")?, call.flag("keepdim"))?;
        cast_result(call, product)
    }
    "amax(Tensor input, int[]? dim=None, bool keepdim=False)" "input=distinct[2,3,4] dim=1" |call| { call.tensor("input")?.amax(&call.dims("dim")?, call.flag("keepdim")) }
    "amin(Tensor input, int[]? dim=None, bool keepdim=False)" "input=distinct[2,3,4] dim=1" |call| { call.tensor("input")?.amin(&call.dims("dim")?, call.flag("keepdim")) }
    "max(Tensor input, int? dim=None, bool keepdim=False, *, Tensor? other=None)" "input=distinct[2,3,4] dim=1" |call| { extremum(call, Tensor::max_dim, Tensor::amax, |x, y| x.maximum(y)) }
    "min(Tensor input, int? dim=None, bool keepdim=False, *, Tensor? other=None)" "input=distinct[2,3,4] dim=1" |call| { extremum(call, Tensor::min_dim, Tensor::amin, |x, y| x.minimum(y)) }
    "aminmax(Tensor input, *, int? dim=None, bool keepdim=False)" "input=distinct[2,3,4] dim=1" |call| {
        call.tensor("input")?.aminmax(call.maybe_dim("dim")?, call.flag("keepdim"))
    }
    "any(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.any(&call.dims("dim")?, call.flag("keepdim")) }
    "all(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.all(&call.dims("dim")?, call.flag("keepdim")) }
    "count_nonzero(Tensor input, int[]? dim=None)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.count_nonzero(&call.dims("dim")?) }
    "logsumexp(Tensor input, int[] dim, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.logsumexp(&call.dims("dim")?, call.flag("keepdim")) }
    "argmax(Tensor input, int? dim=None, bool keepdim=False)" "input=distinct[2,3,4] dim=1" |call| { chosen(call, Tensor::argmax) }
    "argmin(Tensor input, int? dim=None, bool keepdim=False)" "input=distinct[2,3,4] dim=1" |call| { chosen(call, Tensor::argmin) }
    "var(Tensor input, int[]? dim=None, bool? unbiased=None, float? correction=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.var(&call.dims("dim")?, correction(call)?, call.flag("keepdim")) }
    "std(Tensor input, int[]? dim=None, bool? unbiased=None, float? correction=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.std(&call.dims("dim")?, correction(call)?, call.flag("keepdim")) }
    "var_mean(Tensor input, int[]? dim=None, bool? unbiased=None, float? correction=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.var_mean(&call.dims("dim")?, correction(call)?, call.flag("keepdim")) }
    "std_mean(Tensor input, int[]? dim=None, bool? unbiased=None, float? correction=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.std_mean(&call.dims("dim")?, correction(call)?, call.flag("keepdim")) }
    "norm(Tensor input, any p=\"fro\", int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=[2,3,4] p=2.0 dim=[0,2]" |call| {
        let p = order(call, "p")?.unwrap_or(NormOrder::Frobenius);
        call.cast_input()?.norm(p, &call.dims("dim")?, call.flag("keepdim"))
    }
    "softmax(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { call.cast_input()?.softmax(call.dim("dim")?) }
    "log_softmax(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { call.cast_input()?.log_softmax(call.dim("dim")?) }
    "cumsum(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { scan(call, Tensor::cumsum) }
    "cumprod(Tensor input, int dim, *, dtype? dtype=None)" "input=positive[3,4] dim=1" |call| { scan(call, Tensor::cumprod) }
    "cummax(Tensor input, int dim)" "input=distinct[3,4] dim=1" |call| { call.tensor("input")?.cummax(call.dim("dim")?) }
    "cummin(Tensor input, int dim)" "input=distinct[3,4] dim=1" |call| { call.tensor("input")?.cummin(call.dim("dim")?) }
    "logcumsumexp(Tensor input, int dim)" "input=[3,4] dim=1" |call| { call.tensor("input")?.logcumsumexp(call.dim("dim")?) }
    "diff(Tensor input, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None)" "input=[3,4] prepend=[3,2]" |call| {
        let (prepend, append) = (call.maybe_tensor("prepend")?, call.maybe_tensor("append")?);
        call.tensor("input")?.diff(call.size("n")?, call.dim("dim")?, prepend, append)
    }
    "median(Tensor input, int? dim=None, bool keepdim=False)" "input=distinct[3,5] dim=1" |call| { middle(call, Tensor::median, Tensor::median_dim) }
    "nanmedian(Tensor input, int? dim=None, bool keepdim=False)" "input=distinct[3,5] dim=1" |call| { middle(call, Tensor::nanmedian, Tensor::nanmedian_dim) }
    "kthvalue(Tensor input, int k, int dim=-1, bool keepdim=False)" "input=distinct[3,5] k=2" |call| {
        call.tensor("input")?.kthvalue(call.size("k")?, call.dim("dim")?, call.flag("keepdim"))
    }
    "mode(Tensor input, int dim=-1, bool keepdim=False)" "input=distinct[3,5]" |call| {
        call.tensor("input")?.mode(call.dim("dim")?, call.flag("keepdim"))
    }
    "quantile(Tensor input, Operand q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\")" "input=distinct[3,5] q=0.3 dim=1" |call| { quantile(call, Tensor::quantile) }
    "nanquantile(Tensor input, Operand q, int? dim=None, bool keepdim=False, *, str interpolation=\"linear\")" "input=distinct[3,5] q=0.3 dim=1" |call| { quantile(call, Tensor::nanquantile) }
    "histc(Tensor input, int bins=100, Number min=0, Number max=0)" "input=[3,5] bins=4" |call| {
        call.tensor("input")?.histc(call.size("bins")?, call.float("min")?, call.float("max")?)
    }
    "trace(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.trace() }
    "sort(Tensor input, int dim=-1, bool descending=False, *, bool stable=False)" "input=distinct[3,4]" |call| {
        // Every sort is stable.
        let _ = call.flag("stable");
        call.tensor("input")?.sort(call.dim("dim")?, call.flag("descending"))
    }
    "argsort(Tensor input, int dim=-1, bool descending=False, *, bool stable=False)" "input=distinct[3,4]" |call| {
        let _ = call.flag("stable");
        call.tensor("input")?.argsort(call.dim("dim")?, call.flag("descending"))
    }
    "topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True)" "input=distinct[3,4] k=2" |call| {
        let _ = call.flag("sorted");
        call.tensor("input")?.topk(call.size("k")?, call.dim("dim")?, call.flag("largest"))
    }
}

/// `result` in the `dtype` that is asked for.
fn cast_result(call: &Call<'_>, result: Tensor) -> Result<Tensor> {
    match call.dtype("dtype")? {
        Some(dtype) => result.to_dtype(dtype),
        None => Ok(result),
    }
}

fn over_dims(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &[isize], bool) -> Result<Tensor>,
) -> Result<Tensor> {
    let (x, dims) = (call.cast_input()?, call.dims("dim")?);
    cast_result(call, function(&x, &dims, call.flag("keepdim"))?)
}

fn scan(call: &Call<'_>, function: impl Fn(&Tensor, isize) -> Result<Tensor>) -> Result<Tensor> {
    cast_result(call, function(&call.cast_input()?, call.dim("dim")?)?)
}

fn extremum(
    call: &Call<'_>,
    along: impl Fn(&Tensor, isize, bool) -> Result<(Tensor, Tensor)>,
    of_all: impl Fn(&Tensor, &[isize], bool) -> Result<Tensor>,
    of_two: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    let x = call.tensor("input")?;
    match (call.maybe_dim("dim")?, call.maybe_tensor("other")?) {
        (Some(_), Some(_)) => Err(call.refuse("of dim and other one must be None")),
        (Some(dim), None) => {
            let (values, indices) = along(x, dim, call.flag("keepdim"))?;
            Ok(vec![values, indices])
        }
        (None, Some(other)) => Ok(vec![of_two(x, other)?]),
        (None, None) => Ok(vec![of_all(x, &[], false)?]),
    }
}

fn chosen(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize, bool) -> Result<Tensor>,
) -> Result<Tensor> {
    let (x, keepdim) = (call.tensor("input")?, call.flag("keepdim"));
    match call.maybe_dim("dim")? {
        Some(dim) => function(x, dim, keepdim),
        // Without a dimension: the place in the flat tensor.
        None => {
            let place = function(&x.reshape(&[x.numel() as isize])?, 0, false)?;
            match keepdim {
                true => place.reshape(&vec![1; x.ndim()]),
                false => Ok(place),
            }
        }
    }
}

fn middle(
    call: &Call<'_>,
    of_all: impl Fn(&Tensor) -> Result<Tensor>,
    along: impl Fn(&Tensor, isize, bool) -> Result<(Tensor, Tensor)>,
) -> Result<Vec<Tensor>> {
    let x = call.tensor("input")?;
    match call.maybe_dim("dim")? {
        Some(dim) => {
            let (values, indices) = along(x, dim, call.flag("keepdim"))?;
            Ok(vec![values, indices])
        }
        None => Ok(vec![of_all(x)?]),
    }
}

fn quantile(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &Tensor, Option<isize>, bool, Interpolation) -> Result<Tensor>,
) -> Result<Tensor> {
    let x = call.tensor("input")?;
    let q = match call.value("q")? {
        Value::Tensor(q) => q.clone(),
        _ => Tensor::full_of(&[], call.scalar("q")?, x.dtype(), x.device())?,
    };
    let interpolation = call.one_of(
        "interpolation",
        &[
            ("linear", Interpolation::Linear),
            ("lower", Interpolation::Lower),
            ("higher", Interpolation::Higher),
            ("nearest", Interpolation::Nearest),
            ("midpoint", Interpolation::Midpoint),
        ],
    )?;
    let keepdim = call.flag("keepdim");
    function(x, &q, call.maybe_dim("dim")?, keepdim, interpolation)
}

fn correction(call: &Call<'_>) -> Result<f64> {
    let unbiased = f64::from(u8::from(call.maybe_flag("unbiased").unwrap_or(true)));
    Ok(call.maybe_float("correction")?.unwrap_or(unbiased))
}
