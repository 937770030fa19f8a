//! Normalisation of groups of channels.

use fireclay_tensor::{
    DType, Device, Error, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use crate::module::Module;
use crate::within::Within;

/// Brings each of `num_groups` groups of channels of each image to mean 0 and variance 1, then scales and shifts each channel
/// (`torch.nn.GroupNorm`).
#[derive(crate::Module, Debug)]
pub struct GroupNorm {
    /// A factor per channel; ones at first.
    pub weight: Option<Parameter>,
    /// A number per channel to add; zeros at first.
    pub bias: Option<Parameter>,
    num_groups: usize,
    num_channels: usize,
    eps: f64,
}

/// What [`GroupNorm::with`] takes besides groups and channels.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormConfig {
    /// Added to the variance.
    pub eps: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for GroupNormConfig {
    fn default() -> Self {
        GroupNormConfig {
            eps: 1e-5,
            affine: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl GroupNorm {
    /// A group norm with weight and bias, f32 on the default device.
    #[track_caller]
    pub fn new(num_groups: usize, num_channels: usize) -> Result<GroupNorm> {
        GroupNorm::with(num_groups, num_channels, GroupNormConfig::default())
    }

    /// A group norm as `config` says.
    #[track_caller]
    pub fn with(
        num_groups: usize,
        num_channels: usize,
        config: GroupNormConfig,
    ) -> Result<GroupNorm> {
        as_one_call(|| {
            if num_groups == 0 || !num_channels.is_multiple_of(num_groups) {
                let what = format!(
                    "{num_channels} channels can't be parted into {num_groups} equal groups"
                );
                return Err(Error::argument("GroupNorm", what));
            }
            let GroupNormConfig { device, dtype, .. } = config;
            let parameter = |value| {
                let tensor = Tensor::full_of(&[num_channels], value, dtype, device);
                let tensor = config.affine.then_some(tensor).transpose()?;
                tensor.map(Parameter::new).transpose()
            };
            Ok(GroupNorm {
                weight: parameter(1.0)?,
                bias: parameter(0.0)?,
                num_groups,
                num_channels,
                eps: config.eps,
            })
        })
    }
}

impl Module for GroupNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Parameter::tensor);
        let bias = self.bias.as_ref().map(Parameter::tensor);
        input
            .group_norm(self.num_groups, weight.as_ref(), bias.as_ref(), self.eps)
            .within(self.weight.as_ref(), || {
                format!("GroupNorm({}, {})", self.num_groups, self.num_channels)
            })
    }
}
