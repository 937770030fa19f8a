//! Losses.

use fireclay_tensor::{CrossEntropy, Reduction, Tensor};

use super::{Answer, Call, one, unsupported};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "nn.functional.mse_loss" => distance(call, Tensor::mse_loss),
        "nn.functional.l1_loss" => distance(call, Tensor::l1_loss),
        "nn.functional.binary_cross_entropy_with_logits" => binary(call),
        "nn.functional.cross_entropy" => {
            classes(call, |x, target, options| x.cross_entropy(target, options))
        }
        "nn.functional.nll_loss" => classes(call, |x, target, options| x.nll_loss(target, options)),
        _ => return None,
    })
}

fn distance(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &Tensor, Reduction) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let (target, reduction) = (call.tensor("target")?, call.reduction()?);
    one(function(call.tensor("input")?, target, reduction))
}

fn binary(call: &Call<'_>) -> Answer {
    let (target, reduction) = (call.tensor("target")?, call.reduction()?);
    let (weight, pos_weight) = (
        call.maybe_tensor("weight")?,
        call.maybe_tensor("pos_weight")?,
    );
    let x = call.tensor("input")?;
    one(x.binary_cross_entropy_with_logits(target, weight, pos_weight, reduction))
}

fn classes(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &Tensor, CrossEntropy<'_>) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let (x, target) = (call.tensor("input")?, call.tensor("target")?);
    if target.dtype().is_floating_point() && x.shape() == target.shape() && x.ndim() > 0 {
        return Err(unsupported("targets that are probabilities"));
    }
    let options = CrossEntropy {
        weight: call.maybe_tensor("weight")?,
        ignore_index: call.int("ignore_index", -100)?,
        label_smoothing: call.float("label_smoothing", 0.0)?,
        reduction: call.reduction()?,
    };
    one(function(x, target, options))
}
