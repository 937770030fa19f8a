//! Pointwise ops and their in-place forms.

use fireclay_tensor::{Arg, Scalar, Tensor};

use super::{Answer, Call, Refusal, one, unsupported};

type Unary = fn(&Tensor) -> fireclay_tensor::Result<Tensor>;

/// PyTorch's names of the functions of one operand, without further arguments.
pub(super) const UNARY: &[(&str, Unary)] = &[
    ("neg", Tensor::neg),
    ("abs", Tensor::abs),
    ("sqrt", Tensor::sqrt),
    ("rsqrt", Tensor::rsqrt),
    ("square", Tensor::square),
    ("reciprocal", Tensor::reciprocal),
    ("exp", Tensor::exp),
    ("exp2", Tensor::exp2),
    ("expm1", Tensor::expm1),
    ("log", Tensor::log),
    ("log2", Tensor::log2),
    ("log10", Tensor::log10),
    ("log1p", Tensor::log1p),
    ("sin", Tensor::sin),
    ("cos", Tensor::cos),
    ("tan", Tensor::tan),
    ("tanh", Tensor::tanh),
    ("erf", Tensor::erf),
    ("sigmoid", Tensor::sigmoid),
    ("relu", Tensor::relu),
    ("floor", Tensor::floor),
    ("ceil", Tensor::ceil),
    ("trunc", Tensor::trunc),
    ("round", Tensor::round),
    ("sign", Tensor::sign),
    ("sgn", Tensor::sign),
    ("isnan", Tensor::isnan),
    ("isinf", Tensor::isinf),
    ("isfinite", Tensor::isfinite),
    ("logical_not", Tensor::logical_not),
    ("nn.functional.silu", Tensor::silu),
    ("nn.functional.logsigmoid", Tensor::logsigmoid),
    ("Tensor.neg_", Tensor::neg_),
    ("Tensor.abs_", Tensor::abs_),
    ("Tensor.exp_", Tensor::exp_),
    ("Tensor.sqrt_", Tensor::sqrt_),
    ("Tensor.relu_", Tensor::relu_),
    ("Tensor.sigmoid_", Tensor::sigmoid_),
    ("Tensor.tanh_", Tensor::tanh_),
    ("Tensor.zero_", Tensor::zero_),
];

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    if let Some((name, function)) = UNARY.iter().find(|(name, _)| *name == call.op()) {
        return Some(unary(call, name, *function));
    }
    Some(match call.op() {
        "nn.functional.gelu" => gelu(call),
        "nn.functional.elu" => with_number(call, "alpha", 1.0, |x, alpha| x.elu(alpha)),
        "nn.functional.leaky_relu" => {
            with_number(call, "negative_slope", 0.01, |x, slope| x.leaky_relu(slope))
        }
        "nn.functional.softplus" => softplus(call),
        "add" => scaled(call, |x, y| x.add(y)),
        "sub" => scaled(call, |x, y| x.sub(y)),
        "mul" => binary(call, "other", |x, y| x.mul(y)),
        "div" => divided(call, |x, y| x.div(y)),
        "pow" => binary(call, "exponent", |x, y| x.pow(y)),
        "maximum" => binary(call, "other", |x, y| x.maximum(y)),
        "minimum" => binary(call, "other", |x, y| x.minimum(y)),
        "atan2" => binary(call, "other", |x, y| x.atan2(y)),
        "eq" => binary(call, "other", |x, y| x.eq(y)),
        "ne" => binary(call, "other", |x, y| x.ne(y)),
        "lt" => binary(call, "other", |x, y| x.lt(y)),
        "le" => binary(call, "other", |x, y| x.le(y)),
        "gt" => binary(call, "other", |x, y| x.gt(y)),
        "ge" => binary(call, "other", |x, y| x.ge(y)),
        "logical_and" => binary(call, "other", |x, y| x.logical_and(y)),
        "logical_or" => binary(call, "other", |x, y| x.logical_or(y)),
        "logical_xor" => binary(call, "other", |x, y| x.logical_xor(y)),
        "clamp" => clamp(call),
        "where" => choose(call),
        "lerp" => lerp(call),
        "Tensor.add_" => scaled(call, |x, y| x.add_(y)),
        "Tensor.sub_" => scaled(call, |x, y| x.sub_(y)),
        "Tensor.mul_" => binary(call, "other", |x, y| x.mul_(y)),
        "Tensor.div_" => divided(call, |x, y| x.div_(y)),
        "Tensor.fill_" => fill(call),
        "Tensor.copy_" => copy(call),
        _ => return None,
    })
}

/// The first operand; of an in-place op on a leaf that requires grad, a copy of it.
pub(super) fn receiver(call: &Call<'_>) -> Result<Tensor, Refusal> {
    if !call.op().starts_with("Tensor.") {
        return Ok(call.tensor("input")?.clone());
    }
    let receiver = call.tensor("self")?;
    if receiver.requires_grad() {
        Ok(receiver.copy()?)
    } else {
        Ok(receiver.clone())
    }
}

fn unary(call: &Call<'_>, name: &str, function: Unary) -> Answer {
    if name == "round" && call.int("decimals", 0)? != 0 {
        return Err(unsupported("decimals"));
    }
    one(function(&receiver(call)?))
}

fn with_number(
    call: &Call<'_>,
    name: &str,
    default: f64,
    function: impl Fn(&Tensor, Scalar) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let number = call.scalar(name)?.unwrap_or(Scalar::F64(default));
    one(function(call.tensor("input")?, number))
}

fn binary(
    call: &Call<'_>,
    other: &str,
    function: impl Fn(&Tensor, Arg<'_>) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    if call.scalar("self")?.is_some() {
        return Err(unsupported("a number as first operand"));
    }
    let other = call.operand(other)?;
    one(function(&receiver(call)?, other))
}

/// `add` and `sub`, whose second operand may be scaled by `alpha`.
fn scaled(
    call: &Call<'_>,
    function: impl Fn(&Tensor, Arg<'_>) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    if call.scalar("alpha")?.is_some() {
        return Err(unsupported("alpha"));
    }
    binary(call, "other", function)
}

fn divided(
    call: &Call<'_>,
    function: impl Fn(&Tensor, Arg<'_>) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    if call.text("rounding_mode").is_some() {
        return Err(unsupported("rounding_mode"));
    }
    binary(call, "other", function)
}

fn gelu(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    match call.text("approximate") {
        Some("tanh") => one(x.gelu_tanh()),
        _ => one(x.gelu()),
    }
}

fn softplus(call: &Call<'_>) -> Answer {
    let beta = call.float("beta", 1.0)?;
    let threshold = call.float("threshold", 20.0)?;
    one(call.tensor("input")?.softplus(beta, threshold))
}

fn clamp(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    let bound = |name: &str| call.operand(name).ok();
    match (bound("min"), bound("max")) {
        (Some(min), Some(max)) => one(x.clamp(min, max)),
        (Some(_), None) => Err(unsupported("without max")),
        (None, Some(_)) => Err(unsupported("without min")),
        (None, None) => Err(unsupported("without bounds")),
    }
}

fn choose(call: &Call<'_>) -> Answer {
    let condition = call.tensor("condition")?;
    if let (Ok(x), Ok(y)) = (call.operand("input"), call.operand("other")) {
        return one(condition.where_(x, y));
    }
    if let (Some(x), Ok(y)) = (call.scalar("self")?, call.operand("other")) {
        return one(condition.where_(x, y));
    }
    Err(unsupported("the places of what is true"))
}

fn lerp(call: &Call<'_>) -> Answer {
    let (end, weight) = (call.operand("end")?, call.operand("weight")?);
    one(call.tensor("input")?.lerp(end, weight))
}

fn fill(call: &Call<'_>) -> Answer {
    let value = call
        .scalar("value")?
        .ok_or_else(|| unsupported("value as a tensor"))?;
    one(receiver(call)?.fill_(value))
}

fn copy(call: &Call<'_>) -> Answer {
    let other = call.tensor("other")?;
    one(receiver(call)?.copy_(other))
}
