//! A convolution and the batch norm behind it as one convolution.

use fireclay_tensor::{Error, Parameter, Result, Tensor, no_grad};

use super::{BatchNorm2d, Conv2d};

/// `conv` with the running statistics of `norm` worked into its weight and bias, for evaluation
/// (`torch.nn.utils.fuse_conv_bn_eval`). Both stay as they are.
///
/// # Errors
/// `norm` has no running statistics, or is for another number of channels.
pub fn fuse_conv_bn_eval(conv: &Conv2d, norm: &BatchNorm2d) -> Result<Conv2d> {
    no_grad(|| {
        let Some((mean, var)) = norm.running() else {
            return Err(Error::argument(
                "fuse_conv_bn_eval",
                "the batch norm has no running statistics",
            ));
        };
        let weight = conv.weight.tensor();
        let channels = weight.shape()[0];
        if mean.numel() != channels {
            return Err(Error::argument(
                "fuse_conv_bn_eval",
                format!(
                    "the convolution has {channels} output channels, the batch norm {}",
                    mean.numel()
                ),
            ));
        }
        let tensor = |parameter: Option<&Parameter>| parameter.map(Parameter::tensor);
        let mut factor = var.add(norm.eps())?.rsqrt()?;
        if let Some(gamma) = tensor(norm.weight()) {
            factor = factor.mul(&gamma)?;
        }
        let before: Tensor = match tensor(conv.bias.as_ref()) {
            Some(bias) => bias.sub(&mean)?,
            None => mean.neg()?,
        };
        let mut bias = before.mul(&factor)?;
        if let Some(beta) = tensor(norm.bias()) {
            bias = bias.add(&beta)?;
        }
        let fused = weight.mul(&factor.reshape(&[-1, 1, 1, 1])?)?;
        conv.replaced(
            fused.to_dtype(weight.dtype())?,
            bias.to_dtype(weight.dtype())?,
        )
    })
}
