//! The fully connected layer.

use fireclay_tensor::{
    DType, Device, LinearEpilogue, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use crate::init;
use crate::module::Module;
use crate::within::Within;

/// `y = x W^T + b` over the last dimension (`torch.nn.Linear`).
///
/// Parameters: `weight` `[out_features, in_features]` and `bias` `[out_features]`, both uniform in
/// `±1/sqrt(in_features)` at first.
#[derive(crate::Module, Debug)]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
    in_features: usize,
    out_features: usize,
}

/// What [`Linear::with`] takes besides the sizes.
#[derive(Clone, Copy, Debug)]
pub struct LinearConfig {
    /// Whether there is a bias.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for LinearConfig {
    fn default() -> Self {
        LinearConfig {
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl Linear {
    /// A layer from `in_features` to `out_features`, with a bias, f32 on the default device.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize) -> Result<Linear> {
        Linear::with(in_features, out_features, LinearConfig::default())
    }

    /// A layer as `config` says.
    #[track_caller]
    pub fn with(in_features: usize, out_features: usize, config: LinearConfig) -> Result<Linear> {
        as_one_call(|| {
            let LinearConfig {
                bias,
                device,
                dtype,
            } = config;
            let weight = Tensor::empty(&[out_features, in_features], dtype, device)?;
            init::default_weight_(&weight)?;
            let bias = bias.then(|| init::default_bias(&weight)).transpose()?;
            Ok(Linear {
                weight: Parameter::new(weight)?,
                bias: bias.map(Parameter::new).transpose()?,
                in_features,
                out_features,
            })
        })
    }
}

impl Linear {
    /// `activation(x W^T + b) + residual` in one kernel, as [`Tensor::linear_with`] computes it.
    #[track_caller]
    pub fn forward_with(&self, input: &Tensor, epilogue: LinearEpilogue<'_>) -> Result<Tensor> {
        let bias = self.bias.as_ref().map(Parameter::tensor);
        input
            .linear_with(&self.weight.tensor(), bias.as_ref(), epilogue)
            .within(Some(&self.weight), || {
                format!("Linear({}, {})", self.in_features, self.out_features)
            })
    }
}

impl Module for Linear {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_with(input, LinearEpilogue::default())
    }
}
