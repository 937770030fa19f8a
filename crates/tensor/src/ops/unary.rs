//! Pointwise functions of one operand, one row each.

use fireclay_core::math;

use super::row::{in_place, pointwise};
use crate::formula::Formula;

/// 2 / sqrt(pi)
const TWO_OVER_SQRT_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI;
const LN_2: f64 = std::f64::consts::LN_2;
const LN_10: f64 = std::f64::consts::LN_10;

/// 0, whatever `g` is: times 0 an infinity would become NaN.
pub(super) fn zero(g: &Formula) -> Formula {
    g.gt(g).where_(g, 0.0)
}

pointwise! {
    /// `-x` (`torch.neg`).
    Neg, neg(x), PromoteNumber, saves Saves::NONE, autocast Keep,
        eval number { -x }, grad(y, g) { [Some(-g)] };
    /// `|x|` (`torch.abs`). The derivative at 0 is 0.
    Abs, abs(x), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x.abs() }, grad(y, g) { [Some(g * x.sign())] };
    /// -1, 0 or 1 as `x` is negative, zero or positive; 0 for NaN (`torch.sign`).
    Sign, sign(x), Promote, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.gt(A::int(0))) - A::truth(x.lt(A::int(0))) }, grad(y, g) { [Some(zero(g))] };
    /// `x * x` (`torch.square`).
    Square, square(x), PromoteWhole, saves Saves::INPUTS, autocast Keep,
        eval number { x * x }, grad(y, g) { [Some(g * x * 2.0)] };
    /// Square root (`torch.sqrt`).
    Sqrt, sqrt(x), Float, saves Saves::OUTPUTS, autocast Keep,
        eval float { x.sqrt() }, grad(y, g) { [Some(g * 0.5 / y)] };
    /// `1 / sqrt(x)` (`torch.rsqrt`).
    Rsqrt, rsqrt(x), Float, saves Saves::OUTPUTS, autocast F32,
        eval float { A::int(1) / x.sqrt() }, grad(y, g) { [Some(g * -0.5 * y * y * y)] };
    /// `1 / x` (`torch.reciprocal`).
    Reciprocal, reciprocal(x), Float, saves Saves::OUTPUTS, autocast F32,
        eval float { A::int(1) / x }, grad(y, g) { [Some(-(g * y * y))] };
    /// `e^x` (`torch.exp`).
    Exp, exp(x), Float, saves Saves::OUTPUTS, autocast F32,
        eval float { math::exp(x) }, grad(y, g) { [Some(g * y)] };
    /// `2^x` (`torch.exp2`).
    Exp2, exp2(x), Float, saves Saves::OUTPUTS, autocast Keep,
        eval float { math::exp2(x) }, grad(y, g) { [Some(g * y * LN_2)] };
    /// `e^x - 1`, accurate near 0 (`torch.expm1`).
    Expm1, expm1(x), Float, saves Saves::OUTPUTS, autocast F32,
        eval float { math::expm1(x) }, grad(y, g) { [Some(g * (y + 1.0))] };
    /// Natural logarithm (`torch.log`).
    Log, log(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::log(x) }, grad(y, g) { [Some(g / x)] };
    /// Logarithm to base 2 (`torch.log2`).
    Log2, log2(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::log2(x) }, grad(y, g) { [Some(g / (x * LN_2))] };
    /// Logarithm to base 10 (`torch.log10`).
    Log10, log10(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::log10(x) }, grad(y, g) { [Some(g / (x * LN_10))] };
    /// `log(1 + x)`, accurate near 0 (`torch.log1p`).
    Log1p, log1p(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::log1p(x) }, grad(y, g) { [Some(g / (x + 1.0))] };
    /// Sine, of radians (`torch.sin`).
    Sin, sin(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::sin(x) }, grad(y, g) { [Some(g * x.cos())] };
    /// Cosine, of radians (`torch.cos`).
    Cos, cos(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::cos(x) }, grad(y, g) { [Some(-(g * x.sin()))] };
    /// Tangent, of radians (`torch.tan`).
    Tan, tan(x), Float, saves Saves::OUTPUTS, autocast F32,
        eval float { math::tan(x) }, grad(y, g) { [Some(g * (y * y + 1.0))] };
    /// Hyperbolic tangent (`torch.tanh`).
    Tanh, tanh(x), Float, saves Saves::OUTPUTS, autocast Keep,
        eval float { math::tanh(x) }, grad(y, g) { [Some(g * (1.0 - y * y))] };
    /// Error function (`torch.erf`).
    Erf, erf(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::erf(x) }, grad(y, g) { [Some(g * (-(x * x)).exp() * TWO_OVER_SQRT_PI)] };
    /// `1 / (1 + e^-x)` (`torch.sigmoid`).
    Sigmoid, sigmoid(x), Float, saves Saves::OUTPUTS, autocast Keep,
        eval float { A::int(1) / (A::int(1) + math::exp(-x)) }, grad(y, g) { [Some(g * (1.0 - y) * y)] };
    /// `log(sigmoid(x))`, without overflow (`torch.nn.functional.logsigmoid`).
    LogSigmoid, logsigmoid(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { x.minimum(A::int(0)) - math::log1p(math::exp(-x.abs())) },
        grad(y, g) { [Some(g * (-x).sigmoid())] };
    /// `max(x, 0)` (`torch.relu`); NaN for NaN.
    Relu, relu(x), PromoteNumber, saves Saves::OUTPUTS, autocast Keep,
        eval number { math::relu(x) }, grad(y, g) { [Some(y.le(0.0).where_(0.0, g))] };
    /// `x * sigmoid(x)` (`torch.nn.functional.silu`).
    Silu, silu(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::silu(x) },
        grad(y, g) { {
            let s = x.sigmoid();
            [Some(g * &s * (x * (1.0 - &s) + 1.0))]
        } };
    /// `x * Phi(x)`, with the normal distribution's exact `Phi` (`torch.nn.functional.gelu`).
    Gelu, gelu(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::gelu(x) },
        grad(y, g) { {
            let phi = ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
            let density = (x * x * -0.5).exp() * (TWO_OVER_SQRT_PI * 0.5 * std::f64::consts::FRAC_1_SQRT_2);
            [Some(g * (phi + x * density))]
        } };
    /// [`gelu`](crate::Tensor::gelu) with `Phi` approximated by `tanh` (`gelu(approximate="tanh")`).
    GeluTanh, gelu_tanh(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::gelu_tanh(x) },
        grad(y, g) { {
            let scale = TWO_OVER_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
            // With z twice tanh's argument: (1 + tanh) / 2 = s(z) and (1 - tanh^2) / 4 = s(z) s(-z), which doesn't cancel.
            let z = (x * x * x * 0.044715 + x) * (scale * 2.0);
            let slope = (x * x * (3.0 * 0.044715) + 1.0) * (scale * 2.0);
            let s = z.sigmoid();
            [Some(g * (&s + x * &s * (-z).sigmoid() * slope))]
        } };
    /// Rounded down (`torch.floor`).
    Floor, floor(x), Promote, saves Saves::NONE, autocast Keep,
        eval float_or_same { x.floor() }, grad(y, g) { [Some(zero(g))] };
    /// Rounded up (`torch.ceil`).
    Ceil, ceil(x), Promote, saves Saves::NONE, autocast Keep,
        eval float_or_same { x.ceil() }, grad(y, g) { [Some(zero(g))] };
    /// Rounded towards zero (`torch.trunc`).
    Trunc, trunc(x), Promote, saves Saves::NONE, autocast Keep,
        eval float_or_same { x.trunc() }, grad(y, g) { [Some(zero(g))] };
    /// Rounded to nearest, ties to even (`torch.round`).
    Round, round(x), Promote, saves Saves::NONE, autocast Keep,
        eval float_or_same { x.round_even() }, grad(y, g) { [Some(zero(g))] };
    /// Whether `x` is NaN (`torch.isnan`).
    IsNan, isnan(x), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.ne(x)) }, grad(y, g) { [None] };
    /// Whether `x` is neither infinite nor NaN (`torch.isfinite`).
    IsFinite, isfinite(x), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth((x * A::int(0)).eq(A::int(0))) }, grad(y, g) { [None] };
    /// Whether `x` is an infinity (`torch.isinf`).
    IsInf, isinf(x), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.eq(x) & (x * A::int(0)).ne(A::int(0))) }, grad(y, g) { [None] };
    /// Whether `x` is zero or false (`torch.logical_not`).
    LogicalNot, logical_not(x), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.eq(A::int(0))) }, grad(y, g) { [None] };
}

in_place! {
    Neg => neg_();
    Abs => abs_();
    Sign => sign_();
    Square => square_();
    Sqrt => sqrt_();
    Rsqrt => rsqrt_();
    Reciprocal => reciprocal_();
    Exp => exp_();
    Exp2 => exp2_();
    Expm1 => expm1_();
    Log => log_();
    Log2 => log2_();
    Log10 => log10_();
    Log1p => log1p_();
    Sin => sin_();
    Cos => cos_();
    Tan => tan_();
    Tanh => tanh_();
    Erf => erf_();
    Sigmoid => sigmoid_();
    Relu => relu_();
    Silu => silu_();
    Floor => floor_();
    Ceil => ceil_();
    Trunc => trunc_();
    Round => round_();
    LogicalNot => logical_not_();
}
