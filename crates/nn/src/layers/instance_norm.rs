//! Normalisation of each channel of each image.

use fireclay_tensor::{
    Buffer, DType, Device, Error, InstanceNorm, Parameter, Result, Tensor, as_one_call,
    get_default_device,
};

use crate::mode::Mode;
use crate::module::Module;
use crate::within::Within;

/// What [`InstanceNorm1d::with`], [`InstanceNorm2d::with`] and [`InstanceNorm3d::with`] take besides the number of channels.
#[derive(Clone, Copy, Debug)]
pub struct InstanceNormConfig {
    /// Added to the variance.
    pub eps: f64,
    /// The share of each batch in the running statistics.
    pub momentum: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Whether there are running statistics, which evaluation then uses.
    pub track_running_stats: bool,
    /// Where the tensors are: the default device, unless said.
    pub device: Device,
    /// The dtype of all but the count of batches.
    pub dtype: DType,
}

impl Default for InstanceNormConfig {
    fn default() -> Self {
        InstanceNormConfig {
            eps: 1e-5,
            momentum: 0.1,
            affine: false,
            track_running_stats: false,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

macro_rules! instance_norm {
    ($(#[$doc:meta])* $Name:ident, $N:literal) => {
        $(#[$doc])*
        #[derive(crate::Module, Debug)]
        pub struct $Name {
            /// A factor per channel; ones at first.
            pub weight: Option<Parameter>,
            /// A number per channel to add; zeros at first.
            pub bias: Option<Parameter>,
            running_mean: Option<Buffer>,
            running_var: Option<Buffer>,
            num_batches_tracked: Option<Buffer>,
            mode: Mode,
            num_features: usize,
            momentum: f64,
            eps: f64,
        }

        impl $Name {
            /// Without parameters and running statistics, as PyTorch's default is.
            #[track_caller]
            pub fn new(num_features: usize) -> Result<$Name> {
                $Name::with(num_features, InstanceNormConfig::default())
            }

            /// As `config` says.
            #[track_caller]
            pub fn with(num_features: usize, config: InstanceNormConfig) -> Result<$Name> {
                as_one_call(|| {
                    let InstanceNormConfig { device, dtype, .. } = config;
                    let filled = |value: f64| Tensor::full_of(&[num_features], value, dtype, device);
                    let parameter = |value| match config.affine {
                        true => Parameter::new(filled(value)?).map(Some),
                        false => Ok(None),
                    };
                    let tracked = |tensor: Result<Tensor>| match config.track_running_stats {
                        true => tensor.map(|tensor| Some(Buffer::new(tensor))),
                        false => Ok(None),
                    };
                    Ok($Name {
                        weight: parameter(1.0)?,
                        bias: parameter(0.0)?,
                        running_mean: tracked(filled(0.0))?,
                        running_var: tracked(filled(1.0))?,
                        num_batches_tracked: tracked(Tensor::scalar(0i64, device))?,
                        mode: Mode::new(),
                        num_features,
                        momentum: config.momentum,
                        eps: config.eps,
                    })
                })
            }

            #[track_caller]
            fn run(&self, input: &Tensor) -> Result<Tensor> {
                let refuse = |what: String| {
                    Err(Error::shape("instance_norm", what).with_operands(|| vec![input.operand("input")]))
                };
                let channels = match input.ndim() {
                    dims if dims == $N + 2 => input.shape()[1],
                    dims if dims == $N + 1 => input.shape()[0],
                    _ => {
                        return refuse(format!(
                            "{} takes {} or {} dimensions, got {}", stringify!($Name), $N + 1, $N + 2, input.shape()
                        ));
                    }
                };
                if channels != self.num_features && (self.weight.is_some() || self.running_mean.is_some()) {
                    return refuse(format!(
                        "expected {} channels, got {channels} of {}", self.num_features, input.shape()
                    ));
                }
                let tensor = |parameter: &Option<Parameter>| parameter.as_ref().map(Parameter::tensor);
                let (weight, bias) = (tensor(&self.weight), tensor(&self.bias));
                let tensor = |buffer: &Option<Buffer>| buffer.as_ref().map(Buffer::tensor);
                let (mean, var) = (tensor(&self.running_mean), tensor(&self.running_var));
                let options = InstanceNorm {
                    weight: weight.as_ref(),
                    bias: bias.as_ref(),
                    running: mean.as_ref().zip(var.as_ref()),
                    use_input_stats: self.mode.is_training() || mean.is_none(),
                    momentum: self.momentum,
                    eps: self.eps,
                };
                match input.ndim() == $N + 1 {
                    true => input.unsqueeze(0)?.instance_norm(options)?.squeeze(0),
                    false => input.instance_norm(options),
                }
            }
        }

        impl Module for $Name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                self.run(input).within(self.weight.as_ref(), || {
                    format!("{}({})", stringify!($Name), self.num_features)
                })
            }
        }
    };
}

instance_norm! {
    /// [`InstanceNorm2d`] for `[N, C, L]` and `[C, L]` (`torch.nn.InstanceNorm1d`).
    InstanceNorm1d, 1
}

instance_norm! {
    /// Brings each channel of each image of `[N, C, H, W]` or `[C, H, W]` to mean 0 and variance 1 (`torch.nn.InstanceNorm2d`).
    ///
    /// With running statistics, evaluation uses them instead of the image's own. Buffers `running_mean`, `running_var` and
    /// `num_batches_tracked`, which, as in PyTorch, counts nothing here.
    InstanceNorm2d, 2
}

instance_norm! {
    /// [`InstanceNorm2d`] for `[N, C, D, H, W]` and `[C, D, H, W]` (`torch.nn.InstanceNorm3d`).
    InstanceNorm3d, 3
}
