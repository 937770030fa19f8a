//! Rows of the losses.

use fireclay_core::{DType, Result};

use super::{Call, Value, rows};
use crate::function::Arg;
use crate::ops::loss::CrossEntropy;
use crate::ops::loss_ctc::Ctc;
use crate::ops::loss_margin::{MultiMargin, TripletMargin};
use crate::ops::loss_pointwise::{GaussianNll, KlDivReduction, PoissonNll};
use crate::tensor::Tensor;

rows! {
    "nn.functional.mse_loss(Tensor input, Tensor target, str reduction=\"mean\", Tensor? weight=None)" "input=[3,4] target=[3,4]" |call| {
        let (input, target, reduction) = (call.tensor("input")?, call.tensor("target")?, call.reduction()?);
        match call.maybe_tensor("weight")? {
            None => input.mse_loss(target, reduction),
            Some(weight) => input.weighted_mse_loss(target, weight, reduction),
        }
    }
    "nn.functional.l1_loss(Tensor input, Tensor target, str reduction=\"mean\", Tensor? weight=None)" "input=positive[3,4] target=unit[4] weight=positive[3,4]" |call| {
        let (input, target, reduction) = (call.tensor("input")?, call.tensor("target")?, call.reduction()?);
        match call.maybe_tensor("weight")? {
            None => input.l1_loss(target, reduction),
            Some(weight) => input.weighted_l1_loss(target, weight, reduction),
        }
    }
    "nn.functional.smooth_l1_loss(Tensor input, Tensor target, str reduction=\"mean\", float beta=1.0)" "input=[3,4] target=[3,4] beta=0.7" |call| {
        call.tensor("input")?.smooth_l1_loss(call.tensor("target")?, call.float("beta")?, call.reduction()?)
    }
    "nn.functional.huber_loss(Tensor input, Tensor target, str reduction=\"mean\", float delta=1.0, Tensor? weight=None)" "input=[3,4] target=[3,4] delta=0.7" |call| {
        let (weight, delta) = (call.maybe_tensor("weight")?, call.float("delta")?);
        call.tensor("input")?.huber_loss(call.tensor("target")?, weight, delta, call.reduction()?)
    }
    "nn.functional.binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, str reduction=\"mean\")" "input=prob[3,4] target=prob[3,4] weight=positive[4]" |call| {
        call.tensor("input")?.binary_cross_entropy(call.tensor("target")?, call.maybe_tensor("weight")?, call.reduction()?)
    }
    "nn.functional.binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, str reduction=\"mean\", Tensor? pos_weight=None)" "input=[3,4] target=prob[3,4]" |call| {
        let (target, reduction) = (call.tensor("target")?, call.reduction()?);
        let (weight, pos_weight) = (call.maybe_tensor("weight")?, call.maybe_tensor("pos_weight")?);
        call.tensor("input")?.binary_cross_entropy_with_logits(target, weight, pos_weight, reduction)
    }
    "nn.functional.cross_entropy(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction=\"mean\", float label_smoothing=0.0)" "input=[3,4] target=index<4[3]" |call| {
        call.tensor("input")?.cross_entropy(call.tensor("target")?, classes(call, call.float("label_smoothing")?)?)
    }
    "nn.functional.nll_loss(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction=\"mean\")" "input=[3,4] target=index<4[3] weight=positive[4]" |call| {
        call.tensor("input")?.nll_loss(call.tensor("target")?, classes(call, 0.0)?)
    }
    "nn.functional.kl_div(Tensor input, Tensor target, str reduction=\"mean\", bool log_target=False)" "input=[3,4] target=prob[3,4] reduction=\"batchmean\"" |call| {
        let reduction = call.one_of("reduction", &[
            ("mean", KlDivReduction::Mean),
            ("sum", KlDivReduction::Sum),
            ("batchmean", KlDivReduction::BatchMean),
            ("none", KlDivReduction::None),
        ])?;
        call.tensor("input")?.kl_div(call.tensor("target")?, call.flag("log_target"), reduction)
    }
    "nn.functional.poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, float eps=1e-8, str reduction=\"mean\")" "input=positive[3,4] target=positive[3,4] log_input=False" |call| {
        let options = PoissonNll {
            log_input: call.flag("log_input"),
            full: call.flag("full"),
            eps: call.float("eps")?,
            reduction: call.reduction()?,
        };
        call.tensor("input")?.poisson_nll_loss(call.tensor("target")?, options)
    }
    "nn.functional.gaussian_nll_loss(Tensor input, Tensor target, Operand var, bool full=False, float eps=1e-6, str reduction=\"mean\")" "input=[3,4] target=[3,4] var=positive[3,1] full=True" |call| {
        let input = call.tensor("input")?;
        let options = GaussianNll {
            full: call.flag("full"),
            eps: call.float("eps")?,
            reduction: call.reduction()?,
        };
        let var = match call.operand("var")? {
            Arg::Tensor(var) => var.clone(),
            Arg::Number(var) => Tensor::full_of(input.shape(), var, input.dtype(), input.device())?,
        };
        input.gaussian_nll_loss(call.tensor("target")?, &var, options)
    }
    "nn.functional.cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, str reduction=\"mean\")" "input1=[3,4] input2=[3,4] target=index<2[3] margin=-0.9" |call| {
        let (other, target) = (call.tensor("input2")?, call.tensor("target")?);
        call.tensor("input1")?.cosine_embedding_loss(other, target, call.float("margin")?, call.reduction()?)
    }
    "nn.functional.margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, str reduction=\"mean\")" "input1=[6] input2=[6] target=[6] margin=0.3" |call| {
        let (other, target) = (call.tensor("input2")?, call.tensor("target")?);
        call.tensor("input1")?.margin_ranking_loss(other, target, call.float("margin")?, call.reduction()?)
    }
    "nn.functional.triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-6, bool swap=False, str reduction=\"mean\")" "anchor=[3,4] positive=[3,4] negative=[3,4] margin=2.5 swap=True" |call| {
        let (positive, negative) = (call.tensor("positive")?, call.tensor("negative")?);
        let options = TripletMargin {
            margin: call.float("margin")?,
            p: call.float("p")?,
            eps: call.float("eps")?,
            swap: call.flag("swap"),
            reduction: call.reduction()?,
        };
        call.tensor("anchor")?.triplet_margin_loss(positive, negative, options)
    }
    "nn.functional.hinge_embedding_loss(Tensor input, Tensor target, float margin=1.0, str reduction=\"mean\")" "input=unit[3,4] target=index<2[3,4]" |call| {
        call.tensor("input")?.hinge_embedding_loss(call.tensor("target")?, call.float("margin")?, call.reduction()?)
    }
    "nn.functional.soft_margin_loss(Tensor input, Tensor target, str reduction=\"mean\")" "input=[3,4] target=[3,4]" |call| {
        call.tensor("input")?.soft_margin_loss(call.tensor("target")?, call.reduction()?)
    }
    "nn.functional.multi_margin_loss(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? weight=None, str reduction=\"mean\")" "input=unit[3,4] target=index<4[3] p=2 margin=2.0 weight=positive[4]" |call| {
        let p = call.int("p")?;
        let options = MultiMargin {
            p: u32::try_from(p).map_err(|_| call.refuse(format!("p must be 1 or 2, got {p}")))?,
            margin: call.float("margin")?,
            weight: call.maybe_tensor("weight")?,
            reduction: call.reduction()?,
        };
        call.tensor("input")?.multi_margin_loss(call.tensor("target")?, options)
    }
    "nn.functional.multilabel_margin_loss(Tensor input, Tensor target, str reduction=\"mean\")" "input=[3,4] target=index<4[3,4]" |call| {
        call.tensor("input")?.multilabel_margin_loss(call.tensor("target")?, call.reduction()?)
    }
    "nn.functional.multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight=None, str reduction=\"mean\")" "input=[3,4] target=prob[3,4] weight=positive[4]" |call| {
        let (target, weight) = (call.tensor("target")?, call.maybe_tensor("weight")?);
        call.tensor("input")?.multilabel_soft_margin_loss(target, weight, call.reduction()?)
    }
    "nn.functional.ctc_loss(Tensor log_probs, Tensor targets, any input_lengths, any target_lengths, int blank=0, str reduction=\"mean\", bool zero_infinity=False)" "log_probs=[5,2,4] targets=index<4[2,2] input_lengths=[5,4] target_lengths=[2,1]" |call| {
        let options = Ctc {
            blank: call.size("blank")?,
            reduction: call.reduction()?,
            zero_infinity: call.flag("zero_infinity"),
        };
        let (inputs, targets) = (lengths(call, "input_lengths")?, lengths(call, "target_lengths")?);
        call.tensor("log_probs")?.ctc_loss(call.tensor("targets")?, &inputs, &targets, options)
    }
}

/// Lengths, as a tensor (which the host reads) or as numbers.
fn lengths(call: &Call<'_>, name: &str) -> Result<Vec<usize>> {
    let value = call.value(name)?;
    let numbers = match (value.tensor(), value.items()) {
        (Some(tensor), _) if tensor.dtype().is_integer() => tensor
            .reshape(&[-1])?
            .to_dtype(DType::I64)?
            .to_vec::<i64>()?,
        (None, Some(items)) => {
            let whole = items.iter().map(|item| match item {
                Value::Int(number) => Some(*number),
                _ => None,
            });
            whole.collect::<Option<_>>().unwrap_or(vec![-1])
        }
        _ => vec![-1],
    };
    let sizes = numbers.iter().map(|&number| usize::try_from(number));
    sizes.collect::<std::result::Result<_, _>>().map_err(|_| {
        call.refuse(format!("argument {name} must be lengths, a tensor of whole numbers or a list of them, got {value}"))
    })
}

fn classes<'a>(call: &'a Call<'_>, label_smoothing: f64) -> Result<CrossEntropy<'a>> {
    Ok(CrossEntropy {
        weight: call.maybe_tensor("weight")?,
        ignore_index: call.int("ignore_index")?,
        label_smoothing,
        reduction: call.reduction()?,
    })
}
