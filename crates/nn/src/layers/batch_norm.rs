//! Batch normalisation.

use fireclay_tensor::{
    BatchNorm, Buffer, DType, Device, Error, Parameter, Result, Tensor, as_one_call,
    get_default_device, no_grad,
};

use crate::field::FieldVisitor;
use crate::mode::Mode;
use crate::module::{Module, ModuleFields};
use crate::within::Within;

/// What [`BatchNorm2d::with`] and [`BatchNorm1d::with`] take besides the number of channels.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormConfig {
    /// Added to the variance.
    pub eps: f64,
    /// The share of each batch in the running statistics; None for their plain average over all batches.
    pub momentum: Option<f64>,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Whether there are running statistics. Without, evaluation uses each batch's own too.
    pub track_running_stats: bool,
    /// Where the tensors are: the default device, unless said.
    pub device: Device,
    /// The dtype of all but the count of batches.
    pub dtype: DType,
}

impl Default for BatchNormConfig {
    fn default() -> Self {
        BatchNormConfig {
            eps: 1e-5,
            momentum: Some(0.1),
            affine: true,
            track_running_stats: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

/// What batch norms of all numbers of dimensions share. Names as PyTorch's.
#[derive(crate::Module, Debug)]
struct Channels {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    running_mean: Option<Buffer>,
    running_var: Option<Buffer>,
    num_batches_tracked: Option<Buffer>,
    mode: Mode,
    num_features: usize,
    momentum: Option<f64>,
    eps: f64,
}

impl Channels {
    fn new(num_features: usize, config: BatchNormConfig) -> Result<Channels> {
        let BatchNormConfig { device, dtype, .. } = config;
        let filled = |value: f64| Tensor::full_of(&[num_features], value, dtype, device);
        let parameter = |value| {
            let tensor = config.affine.then(|| filled(value)).transpose()?;
            tensor.map(Parameter::new).transpose()
        };
        let tracked = |tensor: &dyn Fn() -> Result<Tensor>| {
            let tensor = config.track_running_stats.then(tensor).transpose();
            tensor.map(|tensor| tensor.map(Buffer::new))
        };
        Ok(Channels {
            weight: parameter(1.0)?,
            bias: parameter(0.0)?,
            running_mean: tracked(&|| filled(0.0))?,
            running_var: tracked(&|| filled(1.0))?,
            num_batches_tracked: tracked(&|| Tensor::scalar(0i64, device))?,
            mode: Mode::new(),
            num_features,
            momentum: config.momentum,
            eps: config.eps,
        })
    }

    #[track_caller]
    fn forward(&self, kind: &'static str, ndims: &[usize], input: &Tensor) -> Result<Tensor> {
        if !ndims.contains(&input.ndim()) {
            return Err(Error::shape(
                "batch_norm",
                format!("{kind} takes {ndims:?} dimensions, got {}", input.ndim()),
            )
            .with_operands(|| vec![input.operand("input")]))
            .within(self.weight.as_ref(), || {
                format!("{kind}({})", self.num_features)
            });
        }
        let tensor = |parameter: &Option<Parameter>| parameter.as_ref().map(Parameter::tensor);
        let (weight, bias) = (tensor(&self.weight), tensor(&self.bias));
        let tensor = |buffer: &Option<Buffer>| buffer.as_ref().map(Buffer::tensor);
        let (mean, var) = (tensor(&self.running_mean), tensor(&self.running_var));
        let training = self.mode.is_training();
        let output = input
            .batch_norm(BatchNorm {
                weight: weight.as_ref(),
                bias: bias.as_ref(),
                running: mean.as_ref().zip(var.as_ref()),
                training: training || mean.is_none(),
                momentum: self.share()?,
                eps: self.eps,
            })
            .within(self.weight.as_ref(), || {
                format!("{kind}({})", self.num_features)
            })?;
        if training && let Some(count) = &self.num_batches_tracked {
            no_grad(|| count.tensor().add_(1i64))?;
        }
        Ok(output)
    }

    /// The share of this batch in the running statistics.
    fn share(&self) -> Result<f64> {
        match (self.momentum, &self.num_batches_tracked) {
            (Some(momentum), _) => Ok(momentum),
            (None, Some(count)) if self.mode.is_training() => {
                Ok(1.0 / (count.tensor().item()? + 1.0))
            }
            (None, _) => Ok(0.0),
        }
    }
}

macro_rules! batch_norm {
    ($(#[$doc:meta])* $Name:ident, $ndims:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $Name(Channels);

        impl $Name {
            /// A batch norm with PyTorch's defaults, f32 on the default device.
            #[track_caller]
            pub fn new(num_features: usize) -> Result<$Name> {
                $Name::with(num_features, BatchNormConfig::default())
            }

            /// A batch norm as `config` says.
            #[track_caller]
            pub fn with(num_features: usize, config: BatchNormConfig) -> Result<$Name> {
                as_one_call(|| {
                Ok($Name(Channels::new(num_features, config)?))
                })
            }

            /// The factor per channel.
            pub fn weight(&self) -> Option<&Parameter> {
                self.0.weight.as_ref()
            }

            /// The number per channel that is added.
            pub fn bias(&self) -> Option<&Parameter> {
                self.0.bias.as_ref()
            }
        }

        impl ModuleFields for $Name {
            fn visit_fields(&self, visitor: &mut dyn FieldVisitor) {
                self.0.visit_fields(visitor);
            }

            fn type_name(&self) -> &'static str {
                stringify!($Name)
            }
        }

        impl Module for $Name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                self.0.forward(stringify!($Name), $ndims, input)
            }
        }
    };
}

batch_norm! {
    /// Brings each channel of `[N, C, H, W]` to mean 0 and variance 1 over batch and places, then scales and shifts it
    /// (`torch.nn.BatchNorm2d`).
    ///
    /// In training it uses the batch's statistics and updates the running ones (with the unbiased variance); in
    /// evaluation it uses the running ones. Parameters `weight` (ones) and `bias` (zeros); buffers `running_mean`,
    /// `running_var` and `num_batches_tracked`.
    BatchNorm2d, &[4]
}

batch_norm! {
    /// [`BatchNorm2d`] for `[N, C]` and `[N, C, L]` (`torch.nn.BatchNorm1d`).
    BatchNorm1d, &[2, 3]
}

batch_norm! {
    /// [`BatchNorm2d`] for `[N, C, D, H, W]` (`torch.nn.BatchNorm3d`).
    BatchNorm3d, &[5]
}

impl BatchNorm2d {
    /// The running mean and variance.
    pub(crate) fn running(&self) -> Option<(Tensor, Tensor)> {
        let tensor = |buffer: &Option<Buffer>| buffer.as_ref().map(Buffer::tensor);
        tensor(&self.0.running_mean).zip(tensor(&self.0.running_var))
    }

    /// What is added to the variance.
    pub(crate) fn eps(&self) -> f64 {
        self.0.eps
    }
}
