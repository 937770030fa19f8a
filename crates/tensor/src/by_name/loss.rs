//! Rows of the losses.

use fireclay_core::Result;

use super::{Call, rows};
use crate::ops::loss::CrossEntropy;

rows! {
    "nn.functional.mse_loss(Tensor input, Tensor target, str reduction=\"mean\")" "input=[3,4] target=[3,4]" |call| { call.tensor("input")?.mse_loss(call.tensor("target")?, call.reduction()?) }
    "nn.functional.l1_loss(Tensor input, Tensor target, str reduction=\"mean\")" "input=[3,4] target=[3,4]" |call| { call.tensor("input")?.l1_loss(call.tensor("target")?, call.reduction()?) }
    "nn.functional.binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, str reduction=\"mean\", Tensor? pos_weight=None)" "input=[3,4] target=prob[3,4]" |call| {
        let (target, reduction) = (call.tensor("target")?, call.reduction()?);
        let (weight, pos_weight) = (call.maybe_tensor("weight")?, call.maybe_tensor("pos_weight")?);
        call.tensor("input")?.binary_cross_entropy_with_logits(target, weight, pos_weight, reduction)
    }
    "nn.functional.cross_entropy(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction=\"mean\", float label_smoothing=0.0)" "input=[3,4] target=index<4[3]" |call| {
        call.tensor("input")?.cross_entropy(call.tensor("target")?, classes(call, call.float("label_smoothing")?)?)
    }
    "nn.functional.nll_loss(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction=\"mean\")" "input=[3,4] target=index<4[3]" |call| {
        call.tensor("input")?.nll_loss(call.tensor("target")?, classes(call, 0.0)?)
    }
}

fn classes<'a>(call: &'a Call<'_>, label_smoothing: f64) -> Result<CrossEntropy<'a>> {
    Ok(CrossEntropy {
        weight: call.maybe_tensor("weight")?,
        ignore_index: call.int("ignore_index")?,
        label_smoothing,
        reduction: call.reduction()?,
    })
}
