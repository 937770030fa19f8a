//! Normalisation by the root of the mean square.

use fireclay_tensor::{
    DType, Device, Error, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use crate::module::Module;
use crate::within::Within;

/// Divides the last dimensions, of shape `normalized_shape`, by the root of their mean square in each row, then scales them
/// element by element (`torch.nn.RMSNorm`).
#[derive(crate::Module, Debug)]
pub struct RMSNorm {
    /// Factors, `normalized_shape`; ones at first.
    pub weight: Option<Parameter>,
    normalized_shape: Vec<usize>,
    eps: Option<f64>,
}

/// What [`RMSNorm::with`] takes besides the shape.
#[derive(Clone, Copy, Debug)]
pub struct RMSNormConfig {
    /// Added to the mean square; None for the distance from 1 to the next number.
    pub eps: Option<f64>,
    /// Whether there is a weight (PyTorch's `elementwise_affine`).
    pub weight: bool,
    /// Where the weight is: the default device, unless said.
    pub device: Device,
    /// Its dtype.
    pub dtype: DType,
}

impl Default for RMSNormConfig {
    fn default() -> Self {
        RMSNormConfig {
            eps: None,
            weight: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl RMSNorm {
    /// An RMS norm over the last dimensions, at least one, with a weight, f32 on the default device.
    #[track_caller]
    pub fn new(normalized_shape: &[usize]) -> Result<RMSNorm> {
        RMSNorm::with(normalized_shape, RMSNormConfig::default())
    }

    /// An RMS norm as `config` says.
    #[track_caller]
    pub fn with(normalized_shape: &[usize], config: RMSNormConfig) -> Result<RMSNorm> {
        as_one_call(|| {
            if normalized_shape.is_empty() {
                let what = "normalized_shape has no dimension, expected at least one";
                return Err(Error::argument("RMSNorm", what));
            }
            let RMSNormConfig { device, dtype, .. } = config;
            let weight = match config.weight {
                true => {
                    let ones = Tensor::full_of(normalized_shape, 1.0, dtype, device)?;
                    Some(Parameter::new(ones)?)
                }
                false => None,
            };
            Ok(RMSNorm {
                weight,
                normalized_shape: normalized_shape.to_vec(),
                eps: config.eps,
            })
        })
    }
}

impl Module for RMSNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Parameter::tensor);
        input
            .rms_norm(&self.normalized_shape, weight.as_ref(), self.eps)
            .within(self.weight.as_ref(), || {
                format!("RMSNorm({:?})", self.normalized_shape)
            })
    }
}
