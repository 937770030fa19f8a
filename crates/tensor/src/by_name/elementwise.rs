//! Rows of the functions of each element.

use fireclay_core::{Result, Scalar};

use super::{Call, rows};
use crate::function::{Arg, Function, eager};
use crate::ops::bounds::Closeness;
use crate::ops::{binary, bitwise, bounds, division, special};
use crate::tensor::Tensor;

rows! {
    "neg(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.neg() }
    "abs(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.abs() }
    "sqrt(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.sqrt() }
    "rsqrt(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.rsqrt() }
    "square(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.square() }
    "reciprocal(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.reciprocal() }
    "exp(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.exp() }
    "exp2(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.exp2() }
    "expm1(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.expm1() }
    "log(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.log() }
    "log2(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.log2() }
    "log10(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.log10() }
    "log1p(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.log1p() }
    "sin(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sin() }
    "cos(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.cos() }
    "tan(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.tan() }
    "tanh(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.tanh() }
    "erf(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.erf() }
    "sigmoid(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sigmoid() }
    "relu(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.relu() }
    "floor(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.floor() }
    "ceil(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.ceil() }
    "trunc(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.trunc() }
    "round(Tensor input, *, int decimals=0)" "input=[3,4]" |call| {
        match call.int("decimals")? {
            0 => call.tensor("input")?.round(),
            decimals => call.tensor("input")?.round_decimals(call.narrow("decimals", decimals)?),
        }
    }
    "sign(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sign() }
    "isnan(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.isnan() }
    "isinf(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.isinf() }
    "isfinite(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.isfinite() }
    "logical_not(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.logical_not() }
    "sgn(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sign() }
    "nn.functional.silu(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.silu() }
    "nn.functional.logsigmoid(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.logsigmoid() }
    "asin(Tensor input)" "input=unit[3,4]" |call| { call.tensor("input")?.asin() }
    "acos(Tensor input)" "input=unit[3,4]" |call| { call.tensor("input")?.acos() }
    "atan(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.atan() }
    "sinh(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sinh() }
    "cosh(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.cosh() }
    "asinh(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.asinh() }
    "acosh(Tensor input)" "input=above1[3,4]" |call| { call.tensor("input")?.acosh() }
    "atanh(Tensor input)" "input=unit[3,4]" |call| { call.tensor("input")?.atanh() }
    "erfc(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.erfc() }
    "erfinv(Tensor input)" "input=unit[3,4]" |call| { call.tensor("input")?.erfinv() }
    "lgamma(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.lgamma() }
    "digamma(Tensor input)" "input=positive[3,4]" |call| { call.tensor("input")?.digamma() }
    "frac(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.frac() }
    "signbit(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.signbit() }
    "deg2rad(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.deg2rad() }
    "rad2deg(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.rad2deg() }
    "bitwise_not(Tensor input)" "input=int[3,4]" |call| { call.tensor("input")?.bitwise_not() }
    "nn.functional.mish(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.mish() }
    "nn.functional.softsign(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.softsign() }
    "nn.functional.tanhshrink(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.tanhshrink() }
    "nn.functional.selu(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.selu() }
    "nn.functional.hardswish(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.hardswish() }
    "nn.functional.hardsigmoid(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.hardsigmoid() }
    "nn.functional.relu6(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.relu6() }
    "nn.functional.gelu(Tensor input, str approximate=\"none\")" "input=[3,4]" |call| {
        match call.one_of("approximate", &[("none", false), ("tanh", true)])? {
            true => call.tensor("input")?.gelu_tanh(),
            false => call.tensor("input")?.gelu(),
        }
    }
    "nn.functional.elu(Tensor input, Number alpha=1.0)" "input=[3,4]" |call| {
        call.tensor("input")?.elu(call.scalar("alpha")?)
    }
    "nn.functional.leaky_relu(Tensor input, Number negative_slope=0.01)" "input=[3,4]" |call| {
        call.tensor("input")?.leaky_relu(call.scalar("negative_slope")?)
    }
    "nn.functional.softplus(Tensor input, float beta=1.0, float threshold=20.0)" "input=[3,4]" |call| {
        call.tensor("input")?.softplus(call.float("beta")?, call.float("threshold")?)
    }
    "nn.functional.celu(Tensor input, Number alpha=1.0)" "input=[3,4]" |call| {
        call.tensor("input")?.celu(call.scalar("alpha")?)
    }
    "nn.functional.softshrink(Tensor input, Number lambd=0.5)" "input=[3,4]" |call| {
        call.tensor("input")?.softshrink(call.scalar("lambd")?)
    }
    "nn.functional.hardshrink(Tensor input, Number lambd=0.5)" "input=[3,4]" |call| {
        call.tensor("input")?.hardshrink(call.scalar("lambd")?)
    }
    "nn.functional.hardtanh(Tensor input, Number min_val=-1.0, Number max_val=1.0)" "input=[3,4]" |call| {
        call.tensor("input")?.hardtanh(call.scalar("min_val")?, call.scalar("max_val")?)
    }
    "nn.functional.threshold(Tensor input, Number threshold, Number value)" "input=[3,4] threshold=0.1 value=2.0" |call| {
        call.tensor("input")?.threshold(call.scalar("threshold")?, call.scalar("value")?)
    }
    "nn.functional.glu(Tensor input, int dim=-1)" "input=[3,4]" |call| {
        call.tensor("input")?.glu(call.dim("dim")?)
    }
    "nn.functional.prelu(Tensor input, Tensor weight)" "input=[2,3,4] weight=[3]" |call| {
        call.tensor("input")?.prelu(call.tensor("weight")?)
    }
    "nan_to_num(Tensor input, float? nan=None, float? posinf=None, float? neginf=None)" "input=[3,4] nan=0.5" |call| {
        let [nan, posinf, neginf] = ["nan", "posinf", "neginf"].map(|name| call.maybe_float(name));
        call.tensor("input")?.nan_to_num(nan?, posinf?, neginf?)
    }
    "logit(Tensor input, float? eps=None)" "input=prob[3,4]" |call| {
        match call.maybe_float("eps")? {
            Some(eps) => call.tensor("input")?.logit_within(eps),
            None => call.tensor("input")?.logit(),
        }
    }
    "add(Operand input, Operand other, *, Number alpha=1)" "input=[3,4] other=positive[4] alpha=2" |call| {
        scaled(call, &binary::Add, |x, y, alpha| x.add_scaled(y, alpha))
    }
    "sub(Operand input, Operand other, *, Number alpha=1)" "input=[3,4] other=positive[4] alpha=2" |call| {
        scaled(call, &binary::Sub, |x, y, alpha| x.sub_scaled(y, alpha))
    }
    "mul(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { two(call, &binary::Mul) }
    "div(Operand input, Operand other, *, str? rounding_mode=None)" "input=[3,4] other=positive[4]" |call| {
        match call.text("rounding_mode") {
            None => two(call, &binary::Div),
            Some("floor") => two(call, &division::FloorDivide),
            Some("trunc") => two(call, &division::DivTrunc),
            Some(mode) => Err(call.refuse(format!(
                "argument rounding_mode must be None, \"floor\" or \"trunc\", got \"{mode}\""
            ))),
        }
    }
    "pow(Operand input, Operand exponent)" "input=positive[3,4] exponent=[4]" |call| { eager(&binary::Pow, &[call.operand("input")?, call.operand("exponent")?]) }
    "maximum(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Maximum) }
    "minimum(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Minimum) }
    "eq(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Eq) }
    "ne(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Ne) }
    "lt(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Lt) }
    "le(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Le) }
    "gt(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Gt) }
    "ge(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Ge) }
    "logical_and(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::LogicalAnd) }
    "logical_or(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::LogicalOr) }
    "logical_xor(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::LogicalXor) }
    "atan2(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &binary::Atan2) }
    "fmax(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &bounds::Fmax) }
    "fmin(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { two(call, &bounds::Fmin) }
    "remainder(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { two(call, &division::Remainder) }
    "fmod(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { two(call, &division::Fmod) }
    "floor_divide(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { two(call, &division::FloorDivide) }
    "hypot(Operand input, Operand other)" "input=[3,4] other=[4]" |call| { two(call, &special::Hypot) }
    "logaddexp(Operand input, Operand other)" "input=[3,4] other=[4]" |call| { two(call, &special::LogAddExp) }
    "logaddexp2(Operand input, Operand other)" "input=[3,4] other=[4]" |call| { two(call, &special::LogAddExp2) }
    "copysign(Operand input, Operand other)" "input=[3,4] other=[4]" |call| { two(call, &special::Copysign) }
    "xlogy(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { two(call, &special::Xlogy) }
    "bitwise_and(Operand input, Operand other)" "input=int[3,4] other=int[4]" |call| { two(call, &bitwise::BitwiseAnd) }
    "bitwise_or(Operand input, Operand other)" "input=int[3,4] other=int[4]" |call| { two(call, &bitwise::BitwiseOr) }
    "bitwise_xor(Operand input, Operand other)" "input=int[3,4] other=int[4]" |call| { two(call, &bitwise::BitwiseXor) }
    "bitwise_left_shift(Operand input, Operand other)" "input=int[3,4] other=index<5[4]" |call| { two(call, &bitwise::BitwiseLeftShift) }
    "bitwise_right_shift(Operand input, Operand other)" "input=int[3,4] other=index<5[4]" |call| { two(call, &bitwise::BitwiseRightShift) }
    "heaviside(Tensor input, Tensor values)" "input=[3,4] values=[4]" |call| {
        eager(&bounds::Heaviside, &[call.operand("input")?, call.operand("values")?])
    }
    "float_power(Tensor input, Operand exponent)" "input=positive[3,4] exponent=[4]" |call| {
        call.tensor("input")?.float_power(call.operand("exponent")?)
    }
    "isclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)" "input=[3,4] other=[3,4]" |call| {
        call.tensor("input")?.isclose(call.tensor("other")?, closeness(call)?)
    }
    "allclose(Tensor input, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)" "input=[3,4] other=[3,4]" |call| {
        let x = call.tensor("input")?;
        truth(x, x.allclose(call.tensor("other")?, closeness(call)?)?)
    }
    "equal(Tensor input, Tensor other)" "input=[3,4] other=[3,4]" |call| {
        let x = call.tensor("input")?;
        truth(x, x.equal(call.tensor("other")?)?)
    }
    "addcmul(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)" "input=[3,4] tensor1=[3,4] tensor2=[4] value=0.5" |call| {
        call.tensor("input")?.addcmul(call.tensor("tensor1")?, call.tensor("tensor2")?, call.scalar("value")?)
    }
    "addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value=1)" "input=[3,4] tensor1=[3,4] tensor2=positive[4] value=0.5" |call| {
        call.tensor("input")?.addcdiv(call.tensor("tensor1")?, call.tensor("tensor2")?, call.scalar("value")?)
    }
    "clamp(Tensor input, Operand? min=None, Operand? max=None)" "input=[3,4] min=-1.0 max=1.0" |call| {
        let x = call.tensor("input")?;
        match (call.maybe_operand("min")?, call.maybe_operand("max")?) {
            (Some(min), Some(max)) => x.clamp(min, max),
            (Some(min), None) => x.clamp_min(min),
            (None, Some(max)) => x.clamp_max(max),
            (None, None) => Err(call.refuse("of min and max at least one must be given")),
        }
    }
    "where(Tensor condition, Operand? input=None, Operand? other=None)" "condition=bool[3,4] input=[3,4] other=[4]" |call| {
        let condition = call.tensor("condition")?;
        match (call.maybe_operand("input")?, call.maybe_operand("other")?) {
            (None, None) => condition.nonzero_tuple(),
            (Some(x), Some(y)) => Ok(vec![condition.where_(x, y)?]),
            _ => Err(call.refuse("of input and other both must be given, or none")),
        }
    }
    "lerp(Tensor input, Operand end, Operand weight)" "input=[3,4] end=[3,4] weight=0.3" |call| {
        call.tensor("input")?.lerp(call.operand("end")?, call.operand("weight")?)
    }
}

/// A function of two operands, of which either may be a number.
fn two(call: &Call<'_>, function: &'static dyn Function) -> Result<Tensor> {
    eager(function, &[call.operand("input")?, call.operand("other")?])
}

/// `add` and `sub`, whose second operand may be scaled by `alpha`.
fn scaled(
    call: &Call<'_>,
    function: &'static dyn Function,
    with_alpha: impl Fn(&Tensor, Arg<'_>, Scalar) -> Result<Tensor>,
) -> Result<Tensor> {
    match call.scalar("alpha")? {
        Scalar::I64(1) => two(call, function),
        alpha => with_alpha(call.tensor("input")?, call.operand("other")?, alpha),
    }
}

fn closeness(call: &Call<'_>) -> Result<Closeness> {
    Ok(Closeness {
        rtol: call.float("rtol")?,
        atol: call.float("atol")?,
        equal_nan: call.flag("equal_nan"),
    })
}

/// What is one truth value.
fn truth(like: &Tensor, answer: bool) -> Result<Tensor> {
    Tensor::full(&[], answer, like.device())
}
