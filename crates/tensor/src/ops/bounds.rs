//! Bounds, extremes that pass NaN over, and comparisons within a tolerance.

use fireclay_core::{DType, Error, Result};

use super::row::{in_place, pointwise};
use super::unary::zero;
use crate::formula::Formula;
use crate::tensor::Tensor;

pointwise! {
    /// `x`, but at least `min`; NaN stays (`torch.clamp(min=..)`). Below, the derivative is 0.
    ClampMin, clamp_min(x, min), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x.maximum(min) },
        grad(r, g) { [Some(x.ge(min).where_(g, 0.0)), Some(x.lt(min).where_(g, 0.0))] };
    /// `x`, but at most `max`; NaN stays (`torch.clamp(max=..)`). Above, the derivative is 0.
    ClampMax, clamp_max(x, max), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x.minimum(max) },
        grad(r, g) { [Some(x.le(max).where_(g, 0.0)), Some(x.gt(max).where_(g, 0.0))] };
    /// The larger of the two; the other one where one is NaN (`torch.fmax`). A tie's gradient is the first one's.
    Fmax, fmax(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { A::select(y.ne(y), x, A::select(x.ge(y), x, y)) },
        grad(r, g) { {
            let first = x.ge(y).logical_or(y.isnan());
            [Some(first.where_(g, 0.0)), Some(first.where_(0.0, g))]
        } };
    /// The smaller of the two; the other one where one is NaN (`torch.fmin`). A tie's gradient is the first one's.
    Fmin, fmin(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { A::select(y.ne(y), x, A::select(x.le(y), x, y)) },
        grad(r, g) { {
            let first = x.le(y).logical_or(y.isnan());
            [Some(first.where_(g, 0.0)), Some(first.where_(0.0, g))]
        } };
    /// 0 for negative `x`, 1 for positive, `value` for 0 (`torch.heaviside`). One dtype.
    Heaviside, heaviside(x, value), Equal, saves Saves::inputs(&[0]), autocast Keep,
        eval number { A::select(x.eq(A::int(0)), value, A::truth(x.gt(A::int(0)))) },
        grad(r, g) { [Some(zero(g)), Some(x.eq(0.0).where_(g, 0.0))] };
    /// Whether the sign is minus, also that of -0 (`torch.signbit`).
    Signbit, signbit(x), Bool, saves Saves::NONE, autocast Keep,
        eval float_or_whole { A::truth(A::int(1).copysign(x).lt(A::int(0))); A::truth(x.lt(A::int(0))) },
        grad(y, g) { [None] };
}

in_place! {
    ClampMin => clamp_min_(min);
    ClampMax => clamp_max_(max);
    Fmax => fmax_(other);
    Fmin => fmin_(other);
    Heaviside => heaviside_(value);
}

/// How near two numbers are to count as equal: `|x - y| <= atol + rtol * |y|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closeness {
    /// Of the second number's magnitude.
    pub rtol: f64,
    /// Whatever the magnitude.
    pub atol: f64,
    /// Whether NaN is equal to NaN.
    pub equal_nan: bool,
}

impl Default for Closeness {
    /// PyTorch's: 1e-5, 1e-8, and NaN is equal to nothing.
    fn default() -> Closeness {
        Closeness {
            rtol: 1e-5,
            atol: 1e-8,
            equal_nan: false,
        }
    }
}

impl Tensor {
    /// NaN and the infinities replaced by numbers: by `nan` or 0, `posinf` or the dtype's largest, `neginf` or its smallest
    /// (`torch.nan_to_num`). Where one was, the derivative is 0. Whole numbers stay.
    #[track_caller]
    pub fn nan_to_num(
        &self,
        nan: Option<f64>,
        posinf: Option<f64>,
        neginf: Option<f64>,
    ) -> Result<Tensor> {
        let largest = match self.dtype() {
            DType::F64 => f64::MAX,
            DType::F32 => f64::from(f32::MAX),
            DType::F16 => 65504.0,
            DType::BF16 => f64::from(f32::from_bits(0x7F7F_0000)),
            _ => return self.copy(),
        };
        let x = Formula::from(self);
        let finite = x
            .eq(f64::NEG_INFINITY)
            .where_(neginf.unwrap_or(-largest), &x);
        let finite = x
            .eq(f64::INFINITY)
            .where_(posinf.unwrap_or(largest), finite);
        x.isnan().where_(nan.unwrap_or(0.0), finite).eval()
    }

    /// Where the elements are equal or near each other (`torch.isclose`).
    ///
    /// # Errors
    /// If the dtypes differ, the shapes don't broadcast, or a tolerance is negative.
    #[track_caller]
    pub fn isclose(&self, other: &Tensor, closeness: Closeness) -> Result<Tensor> {
        let Closeness {
            rtol,
            atol,
            equal_nan,
        } = closeness;
        let operands = || vec![self.operand("input"), other.operand("other")];
        if self.dtype() != other.dtype() {
            let what = format!(
                "expected one dtype, got {} and {}",
                self.dtype(),
                other.dtype()
            );
            return Err(Error::dtype("isclose", what).with_operands(operands));
        }
        if !(rtol >= 0.0 && atol >= 0.0) {
            let what = format!("tolerances are not negative, got rtol {rtol} and atol {atol}");
            return Err(Error::argument("isclose", what).with_operands(operands));
        }
        let (x, y) = (Formula::from(self), Formula::from(other));
        let mut close = x.eq(&y);
        if equal_nan {
            close = close.logical_or(x.isnan().logical_and(y.isnan()));
        }
        if rtol != 0.0 || atol != 0.0 {
            // Whole numbers become floats here.
            let (x, y) = (x * 1.0, y * 1.0);
            let (distance, allowed) = ((x - &y).abs(), (y * rtol).abs() + atol);
            let near = distance.isfinite().logical_and(distance.le(allowed));
            close = close.logical_or(near);
        }
        crate::no_grad(|| close.eval())
    }

    /// Whether all elements are equal or near each other (`torch.allclose`). Waits for a device.
    ///
    /// # Errors
    /// As [`isclose`](Tensor::isclose).
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, closeness: Closeness) -> Result<bool> {
        let close = self.isclose(other, closeness)?;
        Ok(close.all(&[], false)?.item()? != 0.0)
    }

    /// Whether the shapes are the same and all elements equal; NaN is equal to nothing (`torch.equal`). Waits for a device.
    ///
    /// # Errors
    /// If the dtypes differ.
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        if self.dtype() != other.dtype() {
            let what = format!(
                "expected one dtype, got {} and {}",
                self.dtype(),
                other.dtype()
            );
            return Err(Error::dtype("equal", what)
                .with_operands(|| vec![self.operand("input"), other.operand("other")]));
        }
        if self.shape() != other.shape() {
            return Ok(false);
        }
        let equal = crate::no_grad(|| self.eq(other)?.all(&[], false))?;
        Ok(equal.item()? != 0.0)
    }
}
