//! Several steps in one pass: scaled sums and products, and short formulas under a name of their own.

use fireclay_core::{DType, Error, Result, Scalar};

use super::row::pointwise;
use crate::formula::Formula;
use crate::function::{Arg, eager, eager_into};
use crate::tensor::Tensor;

pointwise! {
    /// `x + alpha * y` (`torch.add(alpha=..)`). The public methods are [`add_scaled`](crate::Tensor::add_scaled) and its kin.
    /// Of floats it is rounded once, as PyTorch's vector code does.
    AddAlpha, add_alpha(x, y, alpha), Promote, saves Saves::inputs(&[1, 2]), autocast Keep,
        eval float_or_whole { alpha.mul_add(y, x); x + alpha * y },
        grad(r, g) { [Some(g.clone()), Some(g * alpha), Some(g * y)] };
    /// `x + value * a * b` (`torch.addcmul`).
    Addcmul, addcmul(x, a, b, value), Promote, saves Saves::inputs(&[1, 2, 3]), autocast Widest,
        eval number { x + value * a * b },
        grad(r, g) { [Some(g.clone()), Some(g * b * value), Some(g * a * value), Some(g * a * b)] };
    /// `x + value * a / b` (`torch.addcdiv`). Takes floats.
    Addcdiv, addcdiv(x, a, b, value), Promote, saves Saves::inputs(&[1, 2, 3]), autocast Widest,
        eval float { x + value * (a / b) },
        grad(r, g) { [
            Some(g.clone()),
            Some(g * value / b),
            Some(-(g * value * a / (b * b))),
            Some(g * a / b),
        ] };
    /// `log(x / (1 - x))`; NaN beyond 0 and 1 (`torch.logit`).
    Logit, logit(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { fireclay_core::math::log(x / (A::int(1) - x)) },
        grad(y, g) { [Some(g / (x * (1.0 - x)))] };
    /// `x` without its whole part, with its sign (`torch.frac`). Takes floats.
    Frac, frac(x), Promote, saves Saves::NONE, autocast Keep,
        eval float { x - x.trunc() }, grad(y, g) { [Some(g.clone())] };
}

super::row::in_place! {
    Addcmul => addcmul_(a, b, value);
    Addcdiv => addcdiv_(a, b, value);
    Logit => logit_();
    Frac => frac_();
}

/// Refuses a scale that whole numbers or bools can't have.
fn check_alpha(op: &'static str, args: &[Arg<'_>], alpha: Scalar) -> Result<()> {
    let dtype = |arg: &Arg<'_>| match arg {
        Arg::Tensor(tensor) => tensor.dtype(),
        Arg::Number(Scalar::Bool(_)) => DType::Bool,
        Arg::Number(Scalar::I64(_)) => DType::I64,
        Arg::Number(_) => DType::F32,
    };
    let floating = args.iter().any(|arg| dtype(arg).is_floating_point());
    let bools = args.iter().all(|arg| dtype(arg) == DType::Bool);
    let fits = match alpha {
        Scalar::Bool(_) => bools,
        Scalar::I64(_) => !bools,
        _ => floating,
    };
    if fits {
        return Ok(());
    }
    let dtypes: Vec<&str> = args.iter().map(|arg| dtype(arg).name()).collect();
    let what = format!(
        "alpha must be of the operands' kind, got {alpha:?} for {}",
        dtypes.join(" and ")
    );
    Err(Error::argument(op, what))
}

fn negative(number: Scalar) -> Scalar {
    match number {
        Scalar::F64(value) => Scalar::F64(-value),
        other => Scalar::I64(other.to_i64().wrapping_neg()),
    }
}

impl Tensor {
    /// `self + alpha * other`, in one pass (`torch.add(alpha=..)`).
    ///
    /// # Errors
    /// As [`add`](Tensor::add), and for a fraction as `alpha` of whole numbers.
    #[track_caller]
    pub fn add_scaled<'a>(
        &self,
        other: impl Into<Arg<'a>>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let (args, alpha) = ([self.into(), other.into()], alpha.into());
        check_alpha("add", &args, alpha)?;
        eager(&AddAlpha, &[args[0], args[1], alpha.into()])
    }

    /// `self - alpha * other`, in one pass (`torch.sub(alpha=..)`).
    ///
    /// # Errors
    /// As [`sub`](Tensor::sub), and for a fraction as `alpha` of whole numbers.
    #[track_caller]
    pub fn sub_scaled<'a>(
        &self,
        other: impl Into<Arg<'a>>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let (args, alpha) = ([self.into(), other.into()], alpha.into());
        check_alpha("sub", &args, alpha)?;
        eager(&AddAlpha, &[args[0], args[1], negative(alpha).into()])
    }

    /// The in-place form of [`add_scaled`](Tensor::add_scaled): overwrites `self` and returns it (`Tensor.add_(alpha=..)`).
    #[track_caller]
    pub fn add_scaled_<'a>(
        &self,
        other: impl Into<Arg<'a>>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let (args, alpha) = ([self.into(), other.into()], alpha.into());
        check_alpha("add_", &args, alpha)?;
        eager_into(&AddAlpha, &[args[0], args[1], alpha.into()], self)?;
        Ok(self.clone())
    }

    /// The in-place form of [`sub_scaled`](Tensor::sub_scaled): overwrites `self` and returns it (`Tensor.sub_(alpha=..)`).
    #[track_caller]
    pub fn sub_scaled_<'a>(
        &self,
        other: impl Into<Arg<'a>>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let (args, alpha) = ([self.into(), other.into()], alpha.into());
        check_alpha("sub_", &args, alpha)?;
        eager_into(&AddAlpha, &[args[0], args[1], negative(alpha).into()], self)?;
        Ok(self.clone())
    }

    /// [`logit`](Tensor::logit) of the number kept between `eps` and `1 - eps` (`torch.logit(eps=..)`).
    #[track_caller]
    pub fn logit_within(&self, eps: f64) -> Result<Tensor> {
        Formula::from(self).clamp(eps, 1.0 - eps).logit().eval()
    }

    /// Rounded to a number of decimals, ties to even; a negative number rounds to tens (`torch.round(decimals=..)`). The derivative is
    /// 0.
    ///
    /// # Errors
    /// For whole numbers, unless `decimals` is 0.
    #[track_caller]
    pub fn round_decimals(&self, decimals: i32) -> Result<Tensor> {
        if decimals == 0 {
            return self.round();
        }
        if !self.dtype().is_floating_point() {
            let what = format!("{} is not rounded to decimals", self.dtype());
            return Err(Error::dtype("round", what)
                .with_operands(|| vec![self.operand("input")])
                .with_hint("cast it first: to_dtype(DType::F32)"));
        }
        let (x, scale) = (Formula::from(self), 10f64.powi(decimals.saturating_abs()));
        match decimals > 0 {
            true => ((x * scale).round() / scale).eval(),
            false => ((x / scale).round() * scale).eval(),
        }
    }

    /// Degrees as radians (`torch.deg2rad`).
    #[track_caller]
    pub fn deg2rad(&self) -> Result<Tensor> {
        self.mul(std::f64::consts::PI / 180.0)
    }

    /// Radians as degrees (`torch.rad2deg`).
    #[track_caller]
    pub fn rad2deg(&self) -> Result<Tensor> {
        self.mul(180.0 / std::f64::consts::PI)
    }

    /// `self` to the power of `exponent`, both in f64 (`torch.float_power`).
    #[track_caller]
    pub fn float_power<'a>(&self, exponent: impl Into<Arg<'a>>) -> Result<Tensor> {
        let base = self.to_dtype(DType::F64)?;
        match exponent.into() {
            Arg::Tensor(exponent) => base.pow(&exponent.to_dtype(DType::F64)?),
            Arg::Number(exponent) => base.pow(exponent.to_f64()),
        }
    }
}
