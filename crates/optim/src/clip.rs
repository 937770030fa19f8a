//! Clipping of gradients, between backward and step.

use fireclay_tensor::{DType, Error, Parameter, Result, Tensor, no_grad};

/// Scales all gradients by one factor so that their common 2-norm is at most `max_norm`, and returns the norm that they had, a
/// zero-dim tensor on their device (`torch.nn.utils.clip_grad_norm_`). Reading it (`item`) waits for the device; the
/// clipping itself does not.
///
/// The factor is `max_norm / (norm + 1e-6)`, at most 1, as PyTorch's. A norm that is not finite makes gradients NaN or zero:
/// look at it where that can happen. Parameters without a gradient are passed over; if none has one, the norm is 0.
pub fn clip_grad_norm_(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(Error::argument(
            "clip_grad_norm_",
            format!("max_norm must be at least 0, got {max_norm}"),
        ));
    }
    no_grad(|| {
        let grads = grads(parameters);
        let mut squares: Option<Tensor> = None;
        for grad in &grads {
            let grad = if grad.dtype().is_half() {
                &grad.to_dtype(DType::F32)?
            } else {
                grad
            };
            let square = (grad * grad).sum()?;
            squares = Some(match squares {
                None => square,
                Some(sum) => sum.add(&square.to(sum.device())?)?,
            });
        }
        let Some(squares) = squares else {
            return Tensor::scalar(0f32, "cpu");
        };
        let norm = squares.sqrt()?;
        let factor = (max_norm / (&norm + 1e-6)).minimum(1.0).eval()?;
        for grad in &grads {
            grad.mul_(&factor.to(grad.device())?)?;
        }
        Ok(norm)
    })
}

/// Cuts every element of every gradient to `-clip_value` and `clip_value` (`torch.nn.utils.clip_grad_value_`). NaN stays.
pub fn clip_grad_value_(parameters: &[Parameter], clip_value: f64) -> Result<()> {
    if clip_value.is_nan() || clip_value < 0.0 {
        return Err(Error::argument(
            "clip_grad_value_",
            format!("clip_value must be at least 0, got {clip_value}"),
        ));
    }
    no_grad(|| {
        grads(parameters).iter().try_for_each(|grad| {
            grad.minimum_(clip_value)?;
            grad.maximum_(-clip_value).map(drop)
        })
    })
}

fn grads(parameters: &[Parameter]) -> Vec<Tensor> {
    parameters.iter().filter_map(Parameter::grad).collect()
}
