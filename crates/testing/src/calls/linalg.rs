//! Matrix products.

use fireclay_tensor::{Result, Scalar, Tensor};

use super::{Answer, Call, one};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "matmul" => product(call, "other", Tensor::matmul),
        "dot" => product(call, "tensor", Tensor::dot),
        "outer" => product(call, "vec2", Tensor::outer),
        "addmm" => added(call, ["mat1", "mat2"], Tensor::addmm),
        "baddbmm" => added(call, ["batch1", "batch2"], Tensor::baddbmm),
        "addmv" => added(call, ["mat", "vec"], Tensor::addmv),
        _ => return None,
    })
}

fn product(
    call: &Call<'_>,
    other: &str,
    function: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Answer {
    one(function(call.tensor("input")?, call.tensor(other)?))
}

fn added(
    call: &Call<'_>,
    [left, right]: [&str; 2],
    function: impl Fn(&Tensor, &Tensor, &Tensor, Scalar, Scalar) -> Result<Tensor>,
) -> Answer {
    let factor = |name: &str| Ok::<_, super::Refusal>(call.scalar(name)?.unwrap_or(Scalar::I64(1)));
    let (left, right) = (call.tensor(left)?, call.tensor(right)?);
    let (beta, alpha) = (factor("beta")?, factor("alpha")?);
    one(function(call.tensor("input")?, left, right, beta, alpha))
}
