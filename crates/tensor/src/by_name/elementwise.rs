//! Rows of the functions of each element.

use super::rows;
use crate::function::eager;
use crate::ops::binary;

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
    "round(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.round() }
    "sign(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sign() }
    "isnan(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.isnan() }
    "isinf(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.isinf() }
    "isfinite(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.isfinite() }
    "logical_not(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.logical_not() }
    "sgn(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.sign() }
    "nn.functional.silu(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.silu() }
    "nn.functional.logsigmoid(Tensor input)" "input=[3,4]" |call| { call.tensor("input")?.logsigmoid() }
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
    "add(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { eager(&binary::Add, &[call.operand("input")?, call.operand("other")?]) }
    "sub(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { eager(&binary::Sub, &[call.operand("input")?, call.operand("other")?]) }
    "mul(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { eager(&binary::Mul, &[call.operand("input")?, call.operand("other")?]) }
    "div(Operand input, Operand other)" "input=[3,4] other=positive[4]" |call| { eager(&binary::Div, &[call.operand("input")?, call.operand("other")?]) }
    "pow(Operand input, Operand exponent)" "input=positive[3,4] exponent=[4]" |call| { eager(&binary::Pow, &[call.operand("input")?, call.operand("exponent")?]) }
    "maximum(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Maximum, &[call.operand("input")?, call.operand("other")?]) }
    "minimum(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Minimum, &[call.operand("input")?, call.operand("other")?]) }
    "eq(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Eq, &[call.operand("input")?, call.operand("other")?]) }
    "ne(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Ne, &[call.operand("input")?, call.operand("other")?]) }
    "lt(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Lt, &[call.operand("input")?, call.operand("other")?]) }
    "le(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Le, &[call.operand("input")?, call.operand("other")?]) }
    "gt(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Gt, &[call.operand("input")?, call.operand("other")?]) }
    "ge(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Ge, &[call.operand("input")?, call.operand("other")?]) }
    "logical_and(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::LogicalAnd, &[call.operand("input")?, call.operand("other")?]) }
    "logical_or(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::LogicalOr, &[call.operand("input")?, call.operand("other")?]) }
    "logical_xor(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::LogicalXor, &[call.operand("input")?, call.operand("other")?]) }
    "atan2(Operand input, Operand other)" "input=[3,4] other=[3,4]" |call| { eager(&binary::Atan2, &[call.operand("input")?, call.operand("other")?]) }
    "clamp(Tensor input, Operand min, Operand max)" "input=[3,4] min=-1.0 max=1.0" |call| {
        call.tensor("input")?.clamp(call.operand("min")?, call.operand("max")?)
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
