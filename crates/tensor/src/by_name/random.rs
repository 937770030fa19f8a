//! Rows of the random numbers.

use fireclay_core::{DType, Result};

use super::{Call, rows};
use crate::function::Arg;
use crate::tensor::Tensor;

rows! {
    "rand(int[] size, *, dtype? dtype=None, device? device=None)" "size=[2,3]" |call| {
        empty(call)?.uniform_(0.0, 1.0)
    }
    "randn(int[] size, *, dtype? dtype=None, device? device=None)" "size=[2,3]" |call| {
        empty(call)?.normal_(0.0, 1.0)
    }
    "randint(int low=0, int high, int[] size, *, dtype? dtype=None, device? device=None)" "low=-3 high=5 size=[2,3]" |call| {
        let (low, high, size) = (call.int("low")?, call.int("high")?, call.sizes("size")?);
        cast(call, Tensor::randint(low, high, &size, call.device("device")?)?)
    }
    "randperm(int n, *, dtype? dtype=None, device? device=None)" "n=5" |call| {
        cast(call, Tensor::randperm(call.size("n")?, call.device("device")?)?)
    }
    "rand_like(Tensor input, *, dtype? dtype=None)" "input=[3,4]" |call| { call.cast_input()?.rand_like() }
    "randn_like(Tensor input, *, dtype? dtype=None)" "input=[3,4]" |call| { call.cast_input()?.randn_like() }
    "randint_like(Tensor input, int low=0, int high, *, dtype? dtype=None)" "input=[3,4] low=-3 high=5" |call| {
        let input = call.tensor("input")?;
        let drawn = Tensor::randint(call.int("low")?, call.int("high")?, input.shape(), input.device())?;
        drawn.to_dtype(call.dtype("dtype")?.unwrap_or(input.dtype()))
    }
    "bernoulli(Tensor input)" "input=prob[3,4]" |call| { call.tensor("input")?.bernoulli() }
    "normal(Operand mean, Operand std=1.0, int[]? size=None, *, dtype? dtype=None, device? device=None)" "mean=[3,4] std=positive[4]" |call| { normal(call) }
    "multinomial(Tensor input, int num_samples, bool replacement=False)" "input=prob[3,5] num_samples=2" |call| {
        call.tensor("input")?.multinomial(call.size("num_samples")?, call.flag("replacement"))
    }
}

/// A tensor of the size and dtype asked for, to be filled.
fn empty(call: &Call<'_>) -> Result<Tensor> {
    let dtype = call.dtype("dtype")?.unwrap_or(DType::F32);
    Tensor::empty(&call.sizes("size")?, dtype, call.device("device")?)
}

fn cast(call: &Call<'_>, drawn: Tensor) -> Result<Tensor> {
    match call.dtype("dtype")? {
        Some(dtype) => drawn.to_dtype(dtype),
        None => Ok(drawn),
    }
}

/// `torch.normal`: of tensors, or of numbers and a size.
fn normal(call: &Call<'_>) -> Result<Tensor> {
    let (mean, std) = (call.operand("mean")?, call.operand("std")?);
    let sized = call.given("size").is_some();
    match (mean, std) {
        (Arg::Number(mean), Arg::Number(std)) if sized => {
            empty(call)?.normal_(mean.to_f64(), std.to_f64())
        }
        _ if sized => Err(call.refuse("with size, mean and std must be numbers, got a tensor")),
        _ if ["dtype", "device"]
            .iter()
            .any(|name| call.given(name).is_some()) =>
        {
            Err(call.refuse("arguments dtype and device go with size, got them without"))
        }
        (mean, std) => Tensor::normal(mean, std),
    }
}
