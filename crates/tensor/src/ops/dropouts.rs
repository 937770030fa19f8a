//! Dropout of other forms than `dropout`: of whole channels, and `alpha_dropout`.

use fireclay_core::{Error, Result, as_one_call};

use crate::formula::Formula;
use crate::tensor::Tensor;

/// What SELU tends to on the negative side, negated.
const ALPHA: f64 = 1.758_099_340_847_376_6;

impl Tensor {
    /// In training, zeroes each channel of `[n, c, ..]` with probability `p` and scales the others by `1 / (1 - p)`
    /// (`torch.feature_dropout`; `torch.nn.functional.dropout1d` to `dropout3d`).
    #[track_caller]
    pub fn feature_dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        as_one_call(|| match self.noise_shape("feature_dropout", p, true)? {
            _ if !training || p == 0.0 => Ok(self.clone()),
            _ if p == 1.0 => self.dropout(p, training),
            shape => {
                let ones = Tensor::full_of(&shape, 1i64, self.dtype(), self.device())?;
                self.mul(&ones.dropout(p, true)?)
            }
        })
    }

    /// In training, replaces each element with probability `p` by what a SELU tends to, and scales and shifts all so that mean
    /// and variance stay (`torch.nn.functional.alpha_dropout`).
    #[track_caller]
    pub fn alpha_dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        as_one_call(|| {
            let shape = self.noise_shape("alpha_dropout", p, false)?;
            self.alpha_dropped(&shape, p, training)
        })
    }

    /// [`alpha_dropout`](Tensor::alpha_dropout) of whole channels of `[n, c, ..]`
    /// (`torch.nn.functional.feature_alpha_dropout`).
    #[track_caller]
    pub fn feature_alpha_dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        as_one_call(|| {
            let shape = self.noise_shape("feature_alpha_dropout", p, true)?;
            self.alpha_dropped(&shape, p, training)
        })
    }

    /// The shape of the noise; checks the probability.
    fn noise_shape(&self, op: &'static str, p: f64, channels: bool) -> Result<Vec<usize>> {
        let operands = || vec![self.operand("input")];
        if !(0.0..=1.0).contains(&p) {
            let what = format!("a probability lies between 0 and 1, got {p}");
            return Err(Error::argument(op, what).with_operands(operands));
        }
        let mut shape = self.shape().to_vec();
        if channels {
            if shape.len() < 2 {
                let what = format!(
                    "expected [n, c, ..] of 2 dimensions or more, got {}",
                    self.shape()
                );
                return Err(Error::shape(op, what).with_operands(operands));
            }
            shape[2..].fill(1);
        }
        Ok(shape)
    }

    #[track_caller]
    fn alpha_dropped(&self, shape: &[usize], p: f64, training: bool) -> Result<Tensor> {
        if !training || p == 0.0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            return self.dropout(p, training);
        }
        let kept = Tensor::empty(shape, self.dtype(), self.device())?.bernoulli_(1.0 - p)?;
        let kept = Formula::from(&kept);
        let scale = ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt().recip();
        let shift = (&kept - 1.0) * (ALPHA * scale) + ALPHA * scale * p;
        (self * (kept * scale) + shift).eval()
    }
}
