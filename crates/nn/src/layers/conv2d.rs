//! The convolution over images.

use fireclay_tensor::{
    Conv2dOptions, DType, Device, Error, Parameter, Result, Tensor, as_one_call, get_default_device,
};

use super::size::Size2;
use crate::init;
use crate::module::Module;
use crate::within::Within;

/// Convolution (cross-correlation) of `[N, in_channels, H, W]` (`torch.nn.Conv2d`).
///
/// Parameters: `weight` `[out_channels, in_channels / groups, kernel_h, kernel_w]` and `bias` `[out_channels]`, both uniform
/// in `±1/sqrt(fan_in)` at first, where `fan_in` is the number of weights of one output channel.
#[derive(crate::Module, Debug)]
pub struct Conv2d {
    /// `[out_channels, in_channels / groups, kernel_h, kernel_w]`.
    pub weight: Parameter,
    /// `[out_channels]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    options: Conv2dOptions,
}

/// What [`Conv2d::with`] takes besides channels and kernel.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dConfig {
    /// Steps of the kernel.
    pub stride: [usize; 2],
    /// Zeros put on each side.
    pub padding: [usize; 2],
    /// Distance between taps of the kernel.
    pub dilation: [usize; 2],
    /// Groups of channels that don't see each other.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl Default for Conv2dConfig {
    fn default() -> Self {
        Conv2dConfig {
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl Conv2d {
    /// A convolution with stride 1, no padding and a bias, f32 on the default device. `kernel` is a number or `[height, width]`.
    #[track_caller]
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Into<Size2>,
    ) -> Result<Conv2d> {
        Conv2d::with(in_channels, out_channels, kernel, Conv2dConfig::default())
    }

    /// A convolution as `config` says.
    ///
    /// # Errors
    /// `groups` does not divide both numbers of channels; a stride, dilation or kernel size is 0.
    #[track_caller]
    pub fn with(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Into<Size2>,
        config: Conv2dConfig,
    ) -> Result<Conv2d> {
        as_one_call(|| {
            let Size2([height, width]) = kernel.into();
            let groups = config.groups;
            let divides = |channels: usize| groups != 0 && channels.is_multiple_of(groups);
            if !divides(in_channels) || !divides(out_channels) {
                return Err(Error::argument(
                    "Conv2d",
                    format!(
                        "groups must divide the channels, got groups {groups} for {in_channels} and {out_channels}"
                    ),
                ));
            }
            let sizes = [[height, width], config.stride, config.dilation];
            if sizes.as_flattened().contains(&0) {
                return Err(Error::argument(
                    "Conv2d",
                    format!("kernel, stride and dilation must be at least 1, got {sizes:?}"),
                ));
            }
            let shape = [out_channels, in_channels / groups, height, width];
            let weight = Tensor::empty(&shape, config.dtype, config.device)?;
            init::default_weight_(&weight)?;
            let bias = config
                .bias
                .then(|| init::default_bias(&weight))
                .transpose()?;
            Ok(Conv2d {
                weight: Parameter::new(weight)?,
                bias: bias.map(Parameter::new).transpose()?,
                options: Conv2dOptions {
                    stride: config.stride,
                    padding: config.padding,
                    dilation: config.dilation,
                    groups,
                },
            })
        })
    }
}

impl Module for Conv2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let weight = self.weight.tensor();
        let bias = self.bias.as_ref().map(Parameter::tensor);
        input
            .conv2d(&weight, bias.as_ref(), self.options)
            .within(Some(&self.weight), || {
                let sizes = weight.shape();
                let channels = sizes[1] * self.options.groups;
                format!("Conv2d({channels}, {}, {:?})", sizes[0], &sizes[2..])
            })
    }
}
