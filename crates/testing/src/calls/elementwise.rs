//! Pointwise ops and their in-place forms.

use fireclay_tensor::ops::{self, binary, bitwise, bounds, division, special};
use fireclay_tensor::{Arg, Closeness, Function, Scalar, Tensor};

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
    ("asin", Tensor::asin),
    ("acos", Tensor::acos),
    ("atan", Tensor::atan),
    ("sinh", Tensor::sinh),
    ("cosh", Tensor::cosh),
    ("asinh", Tensor::asinh),
    ("acosh", Tensor::acosh),
    ("atanh", Tensor::atanh),
    ("erfc", Tensor::erfc),
    ("erfinv", Tensor::erfinv),
    ("lgamma", Tensor::lgamma),
    ("digamma", Tensor::digamma),
    ("frac", Tensor::frac),
    ("signbit", Tensor::signbit),
    ("deg2rad", Tensor::deg2rad),
    ("rad2deg", Tensor::rad2deg),
    ("bitwise_not", Tensor::bitwise_not),
    ("nn.functional.mish", Tensor::mish),
    ("nn.functional.softsign", Tensor::softsign),
    ("nn.functional.tanhshrink", Tensor::tanhshrink),
    ("nn.functional.selu", Tensor::selu),
    ("nn.functional.hardswish", Tensor::hardswish),
    ("nn.functional.hardsigmoid", Tensor::hardsigmoid),
    ("nn.functional.relu6", Tensor::relu6),
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
    ("Tensor.rsqrt_", Tensor::rsqrt_),
    ("Tensor.reciprocal_", Tensor::reciprocal_),
    ("Tensor.log_", Tensor::log_),
    ("Tensor.sin_", Tensor::sin_),
    ("Tensor.floor_", Tensor::floor_),
    ("Tensor.round_", Tensor::round_),
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
        "nn.functional.celu" => with_number(call, "alpha", 1.0, |x, alpha| x.celu(alpha)),
        "nn.functional.softshrink" => {
            with_number(call, "lambd", 0.5, |x, lambd| x.softshrink(lambd))
        }
        "nn.functional.hardshrink" => {
            with_number(call, "lambd", 0.5, |x, lambd| x.hardshrink(lambd))
        }
        "nn.functional.hardtanh" => {
            let (low, high) = (call.scalar("min_val"), call.scalar("max_val"));
            hardtanh(call, low, high)
        }
        "nn.functional.threshold" => threshold(call),
        "nn.functional.glu" => glu(call),
        "nn.functional.prelu" => prelu(call),
        "add" => scaled(call, &binary::Add, |x, y, alpha| x.add_scaled(y, alpha)),
        "sub" => scaled(call, &binary::Sub, |x, y, alpha| x.sub_scaled(y, alpha)),
        "div" => match call.text("rounding_mode") {
            None => applied(call, &binary::Div, "other"),
            Some("floor") => applied(call, &division::FloorDivide, "other"),
            Some(_) => applied(call, &division::DivTrunc, "other"),
        },
        "mul" => applied(call, &binary::Mul, "other"),
        "pow" => applied(call, &binary::Pow, "exponent"),
        "maximum" => applied(call, &binary::Maximum, "other"),
        "minimum" => applied(call, &binary::Minimum, "other"),
        "atan2" => applied(call, &binary::Atan2, "other"),
        "eq" => applied(call, &binary::Eq, "other"),
        "ne" => applied(call, &binary::Ne, "other"),
        "lt" => applied(call, &binary::Lt, "other"),
        "le" => applied(call, &binary::Le, "other"),
        "gt" => applied(call, &binary::Gt, "other"),
        "ge" => applied(call, &binary::Ge, "other"),
        "logical_and" => applied(call, &binary::LogicalAnd, "other"),
        "logical_or" => applied(call, &binary::LogicalOr, "other"),
        "logical_xor" => applied(call, &binary::LogicalXor, "other"),
        "fmax" => applied(call, &bounds::Fmax, "other"),
        "fmin" => applied(call, &bounds::Fmin, "other"),
        "remainder" => applied(call, &division::Remainder, "other"),
        "fmod" => applied(call, &division::Fmod, "other"),
        "floor_divide" => applied(call, &division::FloorDivide, "other"),
        "hypot" => applied(call, &special::Hypot, "other"),
        "logaddexp" => applied(call, &special::LogAddExp, "other"),
        "logaddexp2" => applied(call, &special::LogAddExp2, "other"),
        "copysign" => applied(call, &special::Copysign, "other"),
        "xlogy" => applied(call, &special::Xlogy, "other"),
        "bitwise_and" => applied(call, &bitwise::BitwiseAnd, "other"),
        "bitwise_or" => applied(call, &bitwise::BitwiseOr, "other"),
        "bitwise_xor" => applied(call, &bitwise::BitwiseXor, "other"),
        "bitwise_left_shift" => applied(call, &bitwise::BitwiseLeftShift, "other"),
        "bitwise_right_shift" => applied(call, &bitwise::BitwiseRightShift, "other"),
        "heaviside" => applied(call, &bounds::Heaviside, "values"),
        "float_power" => binary(call, "exponent", |x, y| x.float_power(y)),
        "isclose" => isclose(call),
        "allclose" => truth(call, |x, y, closeness| x.allclose(y, closeness)),
        "equal" => truth(call, |x, y, _| x.equal(y)),
        "nan_to_num" => nan_to_num(call),
        "logit" => logit(call),
        "addcmul" | "addcdiv" | "Tensor.addcmul_" | "Tensor.addcdiv_" => multiplied(call),
        "clamp" => clamp(call),
        "where" => choose(call),
        "lerp" => lerp(call),
        "Tensor.add_" => scaled_in_place(call, |x, y, alpha| match alpha {
            None => x.add_(y),
            Some(alpha) => x.add_scaled_(y, alpha),
        }),
        "Tensor.sub_" => scaled_in_place(call, |x, y, alpha| match alpha {
            None => x.sub_(y),
            Some(alpha) => x.sub_scaled_(y, alpha),
        }),
        "Tensor.mul_" => binary(call, "other", |x, y| x.mul_(y)),
        "Tensor.div_" => binary(call, "other", |x, y| x.div_(y)),
        "Tensor.pow_" => binary(call, "exponent", |x, y| x.pow_(y)),
        "Tensor.remainder_" => binary(call, "other", |x, y| x.remainder_(y)),
        "Tensor.floor_divide_" => binary(call, "other", |x, y| x.floor_divide_(y)),
        "Tensor.logical_and_" => binary(call, "other", |x, y| x.logical_and_(y)),
        "Tensor.eq_" => binary(call, "other", |x, y| x.eq_(y)),
        "Tensor.bitwise_and_" => binary(call, "other", |x, y| x.bitwise_and_(y)),
        "Tensor.clamp_" => clamp(call),
        "Tensor.lerp_" => lerp(call),
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
    let x = receiver(call)?;
    match call.int("decimals", 0)? {
        0 => one(function(&x)),
        decimals if name == "round" => one(x.round_decimals(decimals as i32)),
        _ => Err(unsupported("decimals")),
    }
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
    let other = call.operand(other)?;
    one(function(&receiver(call)?, other))
}

/// A function of the table, whose first operand may be a number.
fn applied(call: &Call<'_>, function: &'static dyn Function, other: &str) -> Answer {
    let other = call.operand(other)?;
    let first = match call.scalar("self")? {
        Some(number) => Arg::Number(number),
        None => Arg::Tensor(call.tensor("input")?),
    };
    one(ops::apply(function, &[first, other]))
}

/// `add` and `sub`, whose second operand may be scaled by `alpha`.
fn scaled(
    call: &Call<'_>,
    function: &'static dyn Function,
    with_alpha: impl Fn(&Tensor, Arg<'_>, Scalar) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    match call.scalar("alpha")? {
        None => applied(call, function, "other"),
        Some(alpha) => binary(call, "other", |x, y| with_alpha(x, y, alpha)),
    }
}

fn scaled_in_place(
    call: &Call<'_>,
    function: impl Fn(&Tensor, Arg<'_>, Option<Scalar>) -> fireclay_tensor::Result<Tensor>,
) -> Answer {
    let alpha = call.scalar("alpha")?;
    binary(call, "other", |x, y| function(x, y, alpha))
}

fn hardtanh(
    call: &Call<'_>,
    low: Result<Option<Scalar>, Refusal>,
    high: Result<Option<Scalar>, Refusal>,
) -> Answer {
    let low = low?.unwrap_or(Scalar::F64(-1.0));
    let high = high?.unwrap_or(Scalar::F64(1.0));
    one(call.tensor("input")?.hardtanh(low, high))
}

fn threshold(call: &Call<'_>) -> Answer {
    let (threshold, value) = (call.operand("threshold")?, call.operand("value")?);
    one(call.tensor("input")?.threshold(threshold, value))
}

fn glu(call: &Call<'_>) -> Answer {
    let dim = call.dim("dim", -1)?;
    one(call.tensor("input")?.glu(dim))
}

fn prelu(call: &Call<'_>) -> Answer {
    one(call.tensor("input")?.prelu(call.tensor("weight")?))
}

fn closeness(call: &Call<'_>) -> Result<Closeness, Refusal> {
    Ok(Closeness {
        rtol: call.float("rtol", 1e-5)?,
        atol: call.float("atol", 1e-8)?,
        equal_nan: matches!(call.scalar("equal_nan")?, Some(Scalar::Bool(true))),
    })
}

fn isclose(call: &Call<'_>) -> Answer {
    let other = call.tensor("other")?;
    one(call.tensor("input")?.isclose(other, closeness(call)?))
}

/// What is one truth value.
fn truth(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &Tensor, Closeness) -> fireclay_tensor::Result<bool>,
) -> Answer {
    let (x, y) = (call.tensor("input")?, call.tensor("other")?);
    let answer = function(x, y, closeness(call)?)?;
    one(Tensor::full(&[], answer, x.device()))
}

fn nan_to_num(call: &Call<'_>) -> Answer {
    let number =
        |name: &str| -> Result<Option<f64>, Refusal> { Ok(call.scalar(name)?.map(Scalar::to_f64)) };
    let (nan, posinf, neginf) = (number("nan")?, number("posinf")?, number("neginf")?);
    one(call.tensor("input")?.nan_to_num(nan, posinf, neginf))
}

fn logit(call: &Call<'_>) -> Answer {
    let x = call.tensor("input")?;
    match call.scalar("eps")? {
        Some(eps) => one(x.logit_within(eps.to_f64())),
        None => one(x.logit()),
    }
}

fn multiplied(call: &Call<'_>) -> Answer {
    let x = receiver(call)?;
    let (a, b) = (call.tensor("tensor1")?, call.tensor("tensor2")?);
    let value = call.scalar("value")?.unwrap_or(Scalar::I64(1));
    one(match call.op() {
        "addcmul" => x.addcmul(a, b, value),
        "addcdiv" => x.addcdiv(a, b, value),
        "Tensor.addcmul_" => x.addcmul_(a, b, value),
        _ => x.addcdiv_(a, b, value),
    })
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
    let x = receiver(call)?;
    let bound = |name: &str| call.operand(name).ok();
    let in_place = call.op().ends_with('_');
    one(match (bound("min"), bound("max")) {
        (Some(min), Some(max)) if in_place => x.clamp_(min, max),
        (Some(min), Some(max)) => x.clamp(min, max),
        (Some(min), None) if in_place => x.clamp_min_(min),
        (Some(min), None) => x.clamp_min(min),
        (None, Some(max)) if in_place => x.clamp_max_(max),
        (None, Some(max)) => x.clamp_max(max),
        // What Rust's methods leave no place for.
        (None, None) => return Err(Refusal::RuledOut("clamp without bounds".into())),
    })
}

fn choose(call: &Call<'_>) -> Answer {
    let condition = call.tensor("condition")?;
    let first = match call.scalar("self")? {
        Some(number) => Some(Arg::Number(number)),
        None => call.operand("input").ok(),
    };
    match (first, call.operand("other")) {
        (Some(x), Ok(y)) => one(condition.where_(x, y)),
        _ => Err(unsupported("the places of what is true")),
    }
}

fn lerp(call: &Call<'_>) -> Answer {
    let (end, weight) = (call.operand("end")?, call.operand("weight")?);
    let x = receiver(call)?;
    one(match call.op() {
        "lerp" => x.lerp(end, weight),
        _ => x.lerp_(end, weight),
    })
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
