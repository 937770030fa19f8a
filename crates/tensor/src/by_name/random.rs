//! Rows of the random numbers.

use fireclay_core::DType;

use super::rows;
use crate::tensor::Tensor;

rows! {
    "rand(int[] size, *, dtype? dtype=None, device? device=None)" "size=[2,3]" |call| {
        Tensor::rand(&call.sizes("size")?, call.device("device")?)?.to_dtype(call.dtype("dtype")?.unwrap_or(DType::F32))
    }
    "randn(int[] size, *, dtype? dtype=None, device? device=None)" "size=[2,3]" |call| {
        Tensor::randn(&call.sizes("size")?, call.device("device")?)?.to_dtype(call.dtype("dtype")?.unwrap_or(DType::F32))
    }
    "randint(int low=0, int high, int[] size, *, device? device=None)" "high=5 size=[2,3]" |call| {
        Tensor::randint(call.int("low")?, call.int("high")?, &call.sizes("size")?, call.device("device")?)
    }
    "randperm(int n, *, device? device=None)" "n=5" |call| {
        Tensor::randperm(call.size("n")?, call.device("device")?)
    }
    "rand_like(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.rand_like() }
    "randn_like(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.randn_like() }
}
