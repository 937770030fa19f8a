//! Matrix products.

use fireclay_tensor::Tensor;

use super::{Answer, Call, one};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "matmul" => product(call, "other", Tensor::matmul),
        "dot" => product(call, "tensor", Tensor::dot),
        "outer" => product(call, "vec2", Tensor::outer),
        _ => return None,
    })
}

fn product(
    call: &Call<'_>,
    other: &str,
    function: impl Fn(&Tensor, &Tensor) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    one(function(call.tensor("input")?, call.tensor(other)?))
}
