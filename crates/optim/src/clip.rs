//! Clipping of gradients, between backward and step.

use fireclay_tensor::{DType, Error, Parameter, Result, Tensor, no_grad};

/// The options of [`clip_grad_norm_with`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClipNorm {
    /// The largest norm allowed.
    pub max_norm: f64,
    /// Which norm: 2 is the Euclidean one, infinity the largest absolute value.
    pub norm_type: f64,
    /// Whether a norm that is not finite is an error, which is found out by waiting for the device.
    pub error_if_nonfinite: bool,
}

impl Default for ClipNorm {
    fn default() -> Self {
        ClipNorm {
            max_norm: 1.0,
            norm_type: 2.0,
            error_if_nonfinite: false,
        }
    }
}

/// Scales all gradients by one factor so that their common 2-norm is at most `max_norm`, and returns the norm that they had, a
/// zero-dim tensor on their device (`torch.nn.utils.clip_grad_norm_`). Reading it (`item`) waits for the device; the
/// clipping itself does not.
///
/// The factor is `max_norm / (norm + 1e-6)`, at most 1, as PyTorch's. A norm that is not finite makes gradients NaN or zero:
/// look at it where that can happen. Parameters without a gradient are passed over; if none has one, the norm is 0.
pub fn clip_grad_norm_(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    let options = ClipNorm {
        max_norm,
        ..ClipNorm::default()
    };
    clip_grad_norm_with(parameters, options)
}

/// As [`clip_grad_norm_`], by any norm.
///
/// # Errors
/// `max_norm` or `norm_type` is negative or no number; the norm is not finite where that is asked for. Then no gradient was changed.
pub fn clip_grad_norm_with(parameters: &[Parameter], options: ClipNorm) -> Result<Tensor> {
    for (name, value) in [
        ("max_norm", options.max_norm),
        ("norm_type", options.norm_type),
    ] {
        if value.is_nan() || value < 0.0 {
            return Err(Error::argument(
                "clip_grad_norm_",
                format!("{name} must be at least 0, got {value}"),
            ));
        }
    }
    no_grad(|| {
        let grads = grads(parameters);
        let Some(norm) = total_norm(&grads, options.norm_type)? else {
            return Tensor::scalar(0f32, "cpu");
        };
        if options.error_if_nonfinite {
            let value = norm.item()?;
            if !value.is_finite() {
                return Err(Error::argument(
                    "clip_grad_norm_",
                    format!(
                        "the norm of the gradients is {value}, so they can't be clipped to {}",
                        options.max_norm
                    ),
                )
                .with_hint("skip this step, or look for what made them so"));
            }
        }
        let factor = (options.max_norm / (&norm + 1e-6)).minimum(1.0).eval()?;
        for grad in &grads {
            grad.mul_(&factor.to(grad.device())?)?;
        }
        Ok(norm)
    })
}

/// The norm of all gradients as one vector, on the device of the first; None if there are none.
fn total_norm(grads: &[Tensor], p: f64) -> Result<Option<Tensor>> {
    let Some(device) = grads.first().map(Tensor::device) else {
        return Ok(None);
    };
    let mut norms = Vec::new();
    for grad in grads {
        let grad = match grad.dtype().is_half() {
            true => &grad.to_dtype(DType::F32)?,
            false => grad,
        };
        norms.push(grad.vector_norm(p, &[], false)?.to(device)?);
    }
    if let [only] = &norms[..] {
        return Ok(Some(only.clone()));
    }
    let widest = norms.iter().any(|norm| norm.dtype() == DType::F64);
    let dtype = if widest { DType::F64 } else { DType::F32 };
    let norms = norms.iter().map(|norm| norm.to_dtype(dtype));
    let norms: Vec<Tensor> = norms.collect::<Result<_>>()?;
    let norms: Vec<&Tensor> = norms.iter().collect();
    Tensor::stack(&norms, 0)?
        .vector_norm(p, &[], false)
        .map(Some)
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
