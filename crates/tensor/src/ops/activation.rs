//! Activations of neural networks, one row each. Their parameters are plain numbers, as in PyTorch.

use fireclay_core::shape::resolve_dim;
use fireclay_core::{Error, Result, math};

use super::row::pointwise;
use super::unary::zero;
use crate::formula::Formula;
use crate::tensor::Tensor;

/// PyTorch's constants of `selu`.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

pointwise! {
    /// `x * tanh(log(1 + e^x))` (`torch.nn.functional.mish`).
    Mish, mish(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { math::mish(x) },
        grad(y, g) { {
            let t = x.softplus(1.0, 20.0).tanh();
            [Some(g * (&t + x * x.sigmoid() * (1.0 - &t * &t)))]
        } };
    /// `x / (1 + |x|)` (`torch.nn.functional.softsign`).
    Softsign, softsign(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { x / (A::int(1) + x.abs()) },
        grad(y, g) { {
            let bottom = x.abs() + 1.0;
            [Some(g / (&bottom * &bottom))]
        } };
    /// `x - tanh(x)` (`torch.nn.functional.tanhshrink`).
    Tanhshrink, tanhshrink(x), Float, saves Saves::INPUTS, autocast Keep,
        eval float { x - math::tanh(x) },
        grad(y, g) { {
            let t = x.tanh();
            [Some(g * (&t * &t))]
        } };
    /// `x` where that is positive, `alpha * (e^(x / alpha) - 1)` elsewhere (`torch.nn.functional.celu`).
    Celu, celu(x, alpha), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { A::select(x.gt(A::int(0)), x, alpha * math::expm1(x / alpha)) },
        grad(r, g) { {
            let scaled = x / alpha;
            let slope = scaled.expm1() - &scaled * scaled.exp();
            [Some(x.gt(0.0).where_(g, g * scaled.exp())), Some(x.gt(0.0).where_(0.0, g * slope))]
        } };
    /// `scale * x` where that is positive, `scale * alpha * (e^x - 1)` elsewhere, with the constants that keep mean 0 and variance 1
    /// (`torch.nn.functional.selu`).
    Selu, selu(x), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { {
            let (scale, alpha) = (A::of(SELU_SCALE), A::of(SELU_SCALE * SELU_ALPHA));
            A::select(x.gt(A::int(0)), scale * x, alpha * math::expm1(x))
        } },
        grad(y, g) { [Some(x.gt(0.0).where_(g * SELU_SCALE, g * x.exp() * (SELU_SCALE * SELU_ALPHA)))] };
    /// `x * relu6(x + 3) / 6` (`torch.nn.functional.hardswish`).
    Hardswish, hardswish(x), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { x * (x + A::int(3)).maximum(A::int(0)).minimum(A::int(6)) / A::int(6) },
        grad(y, g) { {
            let inner = x.lt(3.0).where_(g * (x * (1.0 / 3.0) + 0.5), g);
            [Some(x.gt(-3.0).where_(inner, 0.0))]
        } };
    /// `relu6(x + 3) / 6` (`torch.nn.functional.hardsigmoid`). Its slope is the f32 nearest to 1/6 in every dtype, as PyTorch's.
    Hardsigmoid, hardsigmoid(x), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { (x + A::int(3)).maximum(A::int(0)).minimum(A::int(6)) / A::int(6) },
        grad(y, g) { [Some(x.gt(-3.0).logical_and(x.lt(3.0)).where_(g * f64::from(1.0f32 / 6.0), 0.0))] };
    /// `x` kept between `min` and `max`, numbers (`torch.nn.functional.hardtanh`). Unlike [`clamp`](crate::Tensor::clamp)'s, the
    /// derivative is 0 at the bounds too.
    Hardtanh, hardtanh(x, min, max), PromoteNumber, saves Saves::INPUTS, autocast Keep,
        eval number { x.maximum(min).minimum(max) },
        grad(r, g) { [Some(x.gt(min).logical_and(x.lt(max)).where_(g, 0.0)), Some(zero(g)), Some(zero(g))] };
    /// `x - lambd` above `lambd`, `x + lambd` below `-lambd`, 0 between (`torch.nn.functional.softshrink`); NaN stays.
    Softshrink, softshrink(x, lambd), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { {
            let between = x.ge(-lambd) & x.le(lambd);
            A::select(between, A::int(0), x - lambd.copysign(x))
        } },
        grad(r, g) { {
            let between = x.ge(-lambd).logical_and(x.le(lambd));
            [Some(between.where_(0.0, g)), Some(between.where_(0.0, -(g * x.sign())))]
        } };
    /// `x`, but 0 from `-lambd` to `lambd` (`torch.nn.functional.hardshrink`).
    Hardshrink, hardshrink(x, lambd), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { A::select(x.ge(-lambd) & x.le(lambd), A::int(0), x) },
        grad(r, g) { [Some(x.ge(-lambd).logical_and(x.le(lambd)).where_(0.0, g)), Some(zero(g))] };
    /// `x` above `threshold`, `value` elsewhere (`torch.nn.functional.threshold`); NaN stays.
    Threshold, threshold(x, threshold, value), PromoteNumber, saves Saves::INPUTS, autocast Keep,
        eval number { A::select(x.le(threshold), value, x) },
        grad(r, g) { [Some(x.le(threshold).where_(0.0, g)), Some(zero(g)), Some(x.le(threshold).where_(g, 0.0))] };
}

impl Tensor {
    /// `x` kept between 0 and 6 (`torch.nn.functional.relu6`).
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        self.hardtanh(0i64, 6i64)
    }

    /// `a * sigmoid(b)`, where `a` and `b` are the halves of this tensor along `dim` (`torch.nn.functional.glu`).
    ///
    /// # Errors
    /// If `dim` is out of range, or its size odd.
    #[track_caller]
    pub fn glu(&self, dim: isize) -> Result<Tensor> {
        let at = resolve_dim("glu", dim, self.ndim())?;
        let size = self.shape().get(at).copied().unwrap_or(1);
        if !size.is_multiple_of(2) {
            let what = format!("expected an even size of dimension {dim}, got {size}");
            return Err(Error::shape("glu", what).with_operands(|| vec![self.operand("input")]));
        }
        let half = size / 2;
        let (a, b) = (self.narrow(dim, 0, half)?, self.narrow(dim, half, half)?);
        (Formula::from(a) * Formula::from(b).sigmoid()).eval()
    }

    /// `x` where that is positive, `x * weight` elsewhere (`torch.nn.functional.prelu`). `weight` has one element, or one for each
    /// channel, which is dimension 1.
    ///
    /// # Errors
    /// If `weight` has another shape or dtype.
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let operands = || vec![self.operand("input"), weight.operand("weight")];
        if weight.dtype() != self.dtype() {
            let what = format!(
                "expected one dtype, got {} and {}",
                self.dtype(),
                weight.dtype()
            );
            return Err(Error::dtype("prelu", what).with_operands(operands));
        }
        let count = weight.numel();
        if weight.ndim() > 1 {
            let what = format!(
                "expected a weight of at most one dimension, got {}",
                weight.ndim()
            );
            return Err(Error::shape("prelu", what).with_operands(operands));
        }
        if count == 1 {
            return self.leaky_relu(&weight.reshape(&[])?);
        }
        let channels = if self.ndim() > 1 { self.shape()[1] } else { 1 };
        if count != channels {
            let what =
                format!("expected one weight or one for each channel, {channels}, got {count}");
            return Err(Error::shape("prelu", what).with_operands(operands));
        }
        let mut shape = vec![1; self.ndim()];
        shape[1] = -1;
        self.leaky_relu(&weight.reshape(&shape)?)
    }
}
