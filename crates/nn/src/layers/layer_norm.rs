//! Layer normalisation.

use fireclay_tensor::{
    DType, Device, Error, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use crate::module::Module;
use crate::within::Within;

/// Brings the last dimensions, of shape `normalized_shape`, to mean 0 and variance 1 in each row, then scales and shifts them
/// element by element (`torch.nn.LayerNorm`).
#[derive(crate::Module, Debug)]
pub struct LayerNorm {
    /// Factors, `normalized_shape`; ones at first.
    pub weight: Option<Parameter>,
    /// Numbers to add, `normalized_shape`; zeros at first.
    pub bias: Option<Parameter>,
    normalized_shape: Vec<usize>,
    eps: f64,
}

/// What [`LayerNorm::with`] takes besides the shape.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormConfig {
    /// Added to the variance.
    pub eps: f64,
    /// Whether there is a weight (PyTorch's `elementwise_affine`).
    pub weight: bool,
    /// Whether there is a bias, if there is a weight.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for LayerNormConfig {
    fn default() -> Self {
        LayerNormConfig {
            eps: 1e-5,
            weight: true,
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl LayerNorm {
    /// A layer norm over the last dimensions, at least one, with weight and bias, f32 on the default device.
    #[track_caller]
    pub fn new(normalized_shape: &[usize]) -> Result<LayerNorm> {
        LayerNorm::with(normalized_shape, LayerNormConfig::default())
    }

    /// A layer norm as `config` says.
    #[track_caller]
    pub fn with(normalized_shape: &[usize], config: LayerNormConfig) -> Result<LayerNorm> {
        as_one_call(|| {
            if normalized_shape.is_empty() {
                let what = "normalized_shape has no dimension, expected at least one";
                return Err(Error::argument("LayerNorm", what));
            }
            let parameter = |wanted: bool, value: f64| {
                wanted
                    .then(|| {
                        let LayerNormConfig { device, dtype, .. } = config;
                        Parameter::new(Tensor::full_of(normalized_shape, value, dtype, device)?)
                    })
                    .transpose()
            };
            Ok(LayerNorm {
                weight: parameter(config.weight, 1.0)?,
                bias: parameter(config.weight && config.bias, 0.0)?,
                normalized_shape: normalized_shape.to_vec(),
                eps: config.eps,
            })
        })
    }
}

impl Module for LayerNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Parameter::tensor);
        let bias = self.bias.as_ref().map(Parameter::tensor);
        input
            .layer_norm(
                &self.normalized_shape,
                weight.as_ref(),
                bias.as_ref(),
                self.eps,
            )
            .within(self.weight.as_ref(), || {
                format!("LayerNorm({:?})", self.normalized_shape)
            })
    }
}
