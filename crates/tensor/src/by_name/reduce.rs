//! Rows of reductions, scans and sorting.

use fireclay_core::Result;

use super::{Call, rows};
use crate::tensor::Tensor;

rows! {
    "sum(Tensor input, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=[2,3,4] dim=[0,2]" |call| { call.cast_input()?.sum(&call.dims("dim")?, call.flag("keepdim")) }
    "mean(Tensor input, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)" "input=[2,3,4] dim=[0,2]" |call| { call.cast_input()?.mean(&call.dims("dim")?, call.flag("keepdim")) }
    "amax(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.amax(&call.dims("dim")?, call.flag("keepdim")) }
    "amin(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.amin(&call.dims("dim")?, call.flag("keepdim")) }
    "any(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.any(&call.dims("dim")?, call.flag("keepdim")) }
    "all(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.all(&call.dims("dim")?, call.flag("keepdim")) }
    "logsumexp(Tensor input, int[]? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.logsumexp(&call.dims("dim")?, call.flag("keepdim")) }
    "argmax(Tensor input, int? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { chosen(call, Tensor::argmax) }
    "argmin(Tensor input, int? dim=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { chosen(call, Tensor::argmin) }
    "var(Tensor input, int[]? dim=None, bool? unbiased=None, float? correction=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.var(&call.dims("dim")?, correction(call)?, call.flag("keepdim")) }
    "std(Tensor input, int[]? dim=None, bool? unbiased=None, float? correction=None, bool keepdim=False)" "input=[2,3,4] dim=1" |call| { call.tensor("input")?.std(&call.dims("dim")?, correction(call)?, call.flag("keepdim")) }
    "softmax(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { call.cast_input()?.softmax(call.dim("dim")?) }
    "log_softmax(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { call.cast_input()?.log_softmax(call.dim("dim")?) }
    "cumsum(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { call.cast_input()?.cumsum(call.dim("dim")?) }
    "cumprod(Tensor input, int dim, *, dtype? dtype=None)" "input=[3,4] dim=1" |call| { call.cast_input()?.cumprod(call.dim("dim")?) }
    "sort(Tensor input, int dim=-1, bool descending=False, *, bool stable=False)" "input=[3,4]" |call| {
        // Every sort is stable.
        let _ = call.flag("stable");
        call.tensor("input")?.sort(call.dim("dim")?, call.flag("descending"))
    }
    "argsort(Tensor input, int dim=-1, bool descending=False, *, bool stable=False)" "input=[3,4]" |call| {
        let _ = call.flag("stable");
        call.tensor("input")?.argsort(call.dim("dim")?, call.flag("descending"))
    }
    "topk(Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True)" "input=[3,4] k=2" |call| {
        let _ = call.flag("sorted");
        call.tensor("input")?.topk(call.size("k")?, call.dim("dim")?, call.flag("largest"))
    }
}

fn chosen(
    call: &Call<'_>,
    function: impl Fn(&Tensor, isize, bool) -> Result<Tensor>,
) -> Result<Tensor> {
    let (x, keepdim) = (call.tensor("input")?, call.flag("keepdim"));
    match call.maybe_dim("dim")? {
        Some(dim) => function(x, dim, keepdim),
        None if keepdim => Err(call.not_built("keepdim without dim")),
        // Without a dimension: the place in the flat tensor.
        None => function(&x.reshape(&[x.numel() as isize])?, 0, false),
    }
}

fn correction(call: &Call<'_>) -> Result<f64> {
    let unbiased = f64::from(u8::from(call.maybe_flag("unbiased").unwrap_or(true)));
    Ok(call.maybe_float("correction")?.unwrap_or(unbiased))
}
