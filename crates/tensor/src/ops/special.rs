//! Pointwise functions beyond the everyday ones: inverse and hyperbolic ones, those of the gamma and the error function, and more of
//! two operands.

use std::sync::OnceLock;

use fireclay_core::arith::Arith;
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_cpu::kernel::Kernel;
use smallvec::smallvec;

use super::row::{in_place, pointwise};
use super::unary::zero;
use crate::formula::Formula;
use crate::function::{Function, GradFormulas, Typing};
use crate::op::Saves;

/// 2 / sqrt(pi)
const TWO_OVER_SQRT_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI;
/// sqrt(pi) / 2
const HALF_SQRT_PI: f64 = 1.0 / TWO_OVER_SQRT_PI;

pointwise! {
    /// Arc sine, in radians; NaN beyond -1 and 1 (`torch.asin`).
    Asin, asin(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::asin(x) }, grad(y, g) { [Some(g * (1.0 - x * x).rsqrt())] };
    /// Arc cosine, in radians; NaN beyond -1 and 1 (`torch.acos`).
    Acos, acos(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::acos(x) }, grad(y, g) { [Some(-(g * (1.0 - x * x).rsqrt()))] };
    /// Arc tangent, in radians (`torch.atan`).
    Atan, atan(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::atan(x) }, grad(y, g) { [Some(g / (x * x + 1.0))] };
    /// Hyperbolic sine (`torch.sinh`).
    Sinh, sinh(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::sinh(x) }, grad(y, g) { [Some(g * x.cosh())] };
    /// Hyperbolic cosine (`torch.cosh`).
    Cosh, cosh(x), Float, saves Saves::INPUTS, autocast F32,
        eval float { math::cosh(x) }, grad(y, g) { [Some(g * x.sinh())] };
    /// Inverse hyperbolic sine (`torch.asinh`).
    Asinh, asinh(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::asinh(x) }, grad(y, g) { [Some(g * (x * x + 1.0).rsqrt())] };
    /// Inverse hyperbolic cosine; NaN below 1 (`torch.acosh`).
    Acosh, acosh(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::acosh(x) }, grad(y, g) { [Some(g * (x * x - 1.0).rsqrt())] };
    /// Inverse hyperbolic tangent; NaN beyond -1 and 1 (`torch.atanh`).
    Atanh, atanh(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::atanh(x) }, grad(y, g) { [Some(g / (1.0 - x * x))] };
    /// `1 - erf(x)`, accurate where it is small (`torch.erfc`).
    Erfc, erfc(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::erfc(x) }, grad(y, g) { [Some(g * (-(x * x)).exp() * -TWO_OVER_SQRT_PI)] };
    /// The inverse of the error function; NaN beyond -1 and 1 (`torch.erfinv`).
    Erfinv, erfinv(x), Float, saves Saves::OUTPUTS, autocast F32,
        eval float { math::erfinv(x) }, grad(y, g) { [Some(g * (y * y).exp() * HALF_SQRT_PI)] };
    /// Logarithm of the absolute value of the gamma function (`torch.lgamma`).
    Lgamma, lgamma(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::lgamma(x) }, grad(y, g) { [Some(g * x.digamma())] };
    /// Derivative of [`lgamma`](crate::Tensor::lgamma) (`torch.digamma`). Its second derivative is not built.
    Digamma, digamma(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::digamma(x) }, grad(y, g) { [Some(g * Formula::apply(&Trigamma, smallvec![x.clone()]))] };
    /// `sqrt(x^2 + y^2)`, without overflow (`torch.hypot`). Takes floats.
    Hypot, hypot(x, y), Promote, saves Saves::INPUTS.and_outputs(&[0]), autocast Keep,
        eval float { math::hypot(x, y) }, grad(r, g) { [Some(g * x / r), Some(g * y / r)] };
    /// `log(e^x + e^y)`, without overflow (`torch.logaddexp`). Takes floats.
    LogAddExp, logaddexp(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { math::logaddexp(x, y) },
        grad(r, g) { [Some(g * (x - y).sigmoid()), Some(g * (y - x).sigmoid())] };
    /// `log2(2^x + 2^y)`, without overflow (`torch.logaddexp2`). Takes floats.
    LogAddExp2, logaddexp2(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { math::logaddexp2(x, y) },
        grad(r, g) { {
            let scaled = (x - y) * std::f64::consts::LN_2;
            [Some(g * scaled.sigmoid()), Some(g * (-scaled).sigmoid())]
        } };
    /// The magnitude of `x` with the sign of `y` (`torch.copysign`).
    Copysign, copysign(x, y), Float, saves Saves::INPUTS.and_outputs(&[0]), autocast Keep,
        eval float { x.copysign(y) },
        grad(r, g) { [Some(x.eq(0.0).where_(0.0, g * r / x)), Some(zero(g))] };
    /// `x * log(y)`, 0 where `x` is 0 and `y` not NaN (`torch.xlogy`).
    Xlogy, xlogy(x, y), Float, saves Saves::INPUTS, autocast Keep,
        eval float { A::select(y.is_nan(), y, A::select(x.eq(A::int(0)), A::int(0), x * math::log(y))) },
        grad(r, g) { [Some(x.eq(0.0).logical_and(y.le(0.0)).where_(0.0, g * y.log())), Some(g * x / y)] };
}

in_place! {
    Asin => asin_();
    Acos => acos_();
    Atan => atan_();
    Sinh => sinh_();
    Cosh => cosh_();
    Asinh => asinh_();
    Acosh => acosh_();
    Atanh => atanh_();
    Erfc => erfc_();
    Erfinv => erfinv_();
    Lgamma => lgamma_();
    Digamma => digamma_();
    Hypot => hypot_(other);
    Copysign => copysign_(other);
    Xlogy => xlogy_(other);
}

/// A derivative of [`Digamma`]: in no table, as only gradients use it.
macro_rules! polygamma {
    ($Name:ident, $function:ident, $saves:expr, |$x:ident, $g:ident| $grad:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $Name;

        impl Pointwise<1> for $Name {
            #[inline(always)]
            fn eval<A: Arith>(&self, [x]: [A; 1]) -> [A; 1] {
                [math::$function(x)]
            }
        }

        impl Function for $Name {
            fn name(&self) -> &'static str {
                stringify!($function)
            }
            fn arity(&self) -> usize {
                1
            }
            fn kernel(&self) -> &Kernel {
                static KERNEL: OnceLock<Kernel> = OnceLock::new();
                KERNEL.get_or_init(|| Kernel::new($Name))
            }
            fn typing(&self) -> Typing {
                Typing::Float
            }
            fn saves(&self) -> Saves {
                $saves
            }
            fn grad(&self, inputs: &[Formula], _: &Formula, $g: &Formula) -> GradFormulas {
                let $x = &inputs[0];
                let grad: Option<Formula> = $grad;
                smallvec![grad]
            }
            fn differentiable(&self) -> bool {
                $saves != Saves::NONE
            }
        }
    };
}

polygamma! { Trigamma, trigamma, Saves::INPUTS, |x, g| Some(g * Formula::apply(&Tetragamma, smallvec![x.clone()])) }
// A third derivative of `digamma` has no use that is known.
polygamma! { Tetragamma, tetragamma, Saves::NONE, |_x, _g| None }
