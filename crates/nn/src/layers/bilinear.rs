//! A product of two inputs with a learned form.

use fireclay_tensor::{DType, Parameter, Result, Tensor, as_one_call};

use super::linear::LinearConfig;
use crate::init;
use crate::within::Within;

/// `x1' W[k] x2 + b[k]` for each output `k` (`torch.nn.Bilinear`): `[.., in1]` and `[.., in2]` to `[.., out]`.
///
/// Parameters `weight` `[out, in1, in2]` and `bias` `[out]`, uniform in `±1/sqrt(in1)` at first.
#[derive(crate::Module, Debug)]
pub struct Bilinear {
    /// `[out_features, in1_features, in2_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// With a bias, f32 on the default device.
    #[track_caller]
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize) -> Result<Bilinear> {
        let sizes = [in1_features, in2_features];
        Bilinear::with(sizes, out_features, LinearConfig::default())
    }

    /// As `config` says.
    #[track_caller]
    pub fn with(
        [in1_features, in2_features]: [usize; 2],
        out_features: usize,
        config: LinearConfig,
    ) -> Result<Bilinear> {
        as_one_call(|| {
            let bound = 1.0 / (in1_features.max(1) as f64).sqrt();
            let uniform = |shape: &[usize], dtype: DType| -> Result<Parameter> {
                let tensor = Tensor::empty(shape, dtype, config.device)?;
                init::uniform_(&tensor, -bound, bound)?;
                Parameter::new(tensor)
            };
            let shape = [out_features, in1_features, in2_features];
            let weight = uniform(&shape, config.dtype)?;
            let bias = match config.bias {
                true => Some(uniform(&[out_features], config.dtype)?),
                false => None,
            };
            Ok(Bilinear { weight, bias })
        })
    }

    /// Computes the output for both inputs.
    #[track_caller]
    pub fn forward(&self, input1: &Tensor, input2: &Tensor) -> Result<Tensor> {
        let weight = self.weight.tensor();
        let bias = self.bias.as_ref().map(Parameter::tensor);
        input1
            .bilinear(input2, &weight, bias.as_ref())
            .within(Some(&self.weight), || {
                let sizes = weight.shape();
                format!("Bilinear({}, {}, {})", sizes[1], sizes[2], sizes[0])
            })
    }
}
