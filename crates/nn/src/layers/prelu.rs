//! The ReLU whose slope is learned.

use fireclay_tensor::{DType, Device, Parameter, Result, Tensor, as_one_call, get_default_device};

use crate::module::Module;
use crate::within::Within;

/// `x` if positive, else `x` times a learned slope: one, or one for each channel of `[N, C, ..]` (`torch.nn.PReLU`).
#[derive(crate::Module, Debug)]
pub struct PReLU {
    /// `[num_parameters]`, 0.25 at first.
    pub weight: Parameter,
}

/// What [`PReLU::with`] takes.
#[derive(Clone, Copy, Debug)]
pub struct PReLUConfig {
    /// 1, or the number of channels.
    pub num_parameters: usize,
    /// The slope at first.
    pub init: f64,
    /// Where the parameter is: the default device, unless said.
    pub device: Device,
    /// Its dtype.
    pub dtype: DType,
}

impl Default for PReLUConfig {
    fn default() -> Self {
        PReLUConfig {
            num_parameters: 1,
            init: 0.25,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl PReLU {
    /// One slope for all channels, f32 on the default device.
    #[track_caller]
    pub fn new() -> Result<PReLU> {
        PReLU::with(PReLUConfig::default())
    }

    /// As `config` says.
    #[track_caller]
    pub fn with(config: PReLUConfig) -> Result<PReLU> {
        as_one_call(|| {
            let shape = [config.num_parameters];
            let weight = Tensor::full_of(&shape, config.init, config.dtype, config.device)?;
            Ok(PReLU {
                weight: Parameter::new(weight)?,
            })
        })
    }
}

impl Module for PReLU {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let weight = self.weight.tensor();
        input
            .prelu(&weight)
            .within(Some(&self.weight), || format!("PReLU({})", weight.numel()))
    }
}
