//! Initialisation: fills a tensor in place, without recording (`torch.nn.init`).
//!
//! Random fills draw from the tensor's device's generator; see `manual_seed`.

mod patterns;

use fireclay_tensor::{Error, Result, Tensor, no_grad};

pub use patterns::{dirac_, eye_, orthogonal_, sparse_, trunc_normal_};

/// Which size of a layer the spread of its weights is matched to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fan {
    /// The number of inputs of one output: keeps the spread of activations in forward (`mode="fan_in"`).
    #[default]
    In,
    /// The number of outputs that one input reaches: keeps the spread of gradients in backward (`mode="fan_out"`).
    Out,
}

/// What follows the layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Nonlinearity {
    /// Nothing, or nothing that changes the spread.
    Linear,
    /// Logistic function.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// Rectifier.
    ReLU,
    /// Rectifier with this slope on the negative side (PyTorch's `a`).
    LeakyReLU(f64),
    /// Self-normalising exponential unit.
    SELU,
}

/// The factor by which weights should be wider because of what follows (`calculate_gain`).
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::ReLU => std::f64::consts::SQRT_2,
        Nonlinearity::LeakyReLU(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::SELU => 0.75,
    }
}

/// Uniform in `±gain * sqrt(3 / fan)` (`kaiming_uniform_`; He et al. 2015).
pub fn kaiming_uniform_(tensor: &Tensor, fan: Fan, nonlinearity: Nonlinearity) -> Result<()> {
    let bound = 3f64.sqrt() * kaiming_std("kaiming_uniform_", tensor, fan, nonlinearity)?;
    uniform_(tensor, -bound, bound)
}

/// Normal with standard deviation `gain / sqrt(fan)` (`kaiming_normal_`; He et al. 2015).
pub fn kaiming_normal_(tensor: &Tensor, fan: Fan, nonlinearity: Nonlinearity) -> Result<()> {
    let std = kaiming_std("kaiming_normal_", tensor, fan, nonlinearity)?;
    normal_(tensor, 0.0, std)
}

/// Uniform in `±gain * sqrt(6 / (fan_in + fan_out))` (`xavier_uniform_`; Glorot and Bengio 2010).
pub fn xavier_uniform_(tensor: &Tensor, gain: f64) -> Result<()> {
    let bound = 3f64.sqrt() * xavier_std("xavier_uniform_", tensor, gain)?;
    uniform_(tensor, -bound, bound)
}

/// Normal with standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (`xavier_normal_`; Glorot and Bengio 2010).
pub fn xavier_normal_(tensor: &Tensor, gain: f64) -> Result<()> {
    let std = xavier_std("xavier_normal_", tensor, gain)?;
    normal_(tensor, 0.0, std)
}

/// Uniform from `low` to `high` (`uniform_`).
pub fn uniform_(tensor: &Tensor, low: f64, high: f64) -> Result<()> {
    no_grad(|| tensor.uniform_(low, high)).map(drop)
}

/// Normal (`normal_`).
pub fn normal_(tensor: &Tensor, mean: f64, std: f64) -> Result<()> {
    no_grad(|| tensor.normal_(mean, std)).map(drop)
}

/// One value (`constant_`).
pub fn constant_(tensor: &Tensor, value: f64) -> Result<()> {
    no_grad(|| tensor.fill_(value)).map(drop)
}

/// Zeros (`zeros_`).
pub fn zeros_(tensor: &Tensor) -> Result<()> {
    constant_(tensor, 0.0)
}

/// Ones (`ones_`).
pub fn ones_(tensor: &Tensor) -> Result<()> {
    constant_(tensor, 1.0)
}

/// How PyTorch fills the weight of a linear or convolutional layer: `kaiming_uniform_` with the slope `sqrt(5)`, which is
/// uniform in `±1/sqrt(fan_in)`.
pub(crate) fn default_weight_(weight: &Tensor) -> Result<()> {
    kaiming_uniform_(weight, Fan::In, Nonlinearity::LeakyReLU(5f64.sqrt()))
}

/// A bias for `weight` as PyTorch fills it: uniform in `±1/sqrt(fan_in)`.
pub(crate) fn default_bias(weight: &Tensor) -> Result<Tensor> {
    default_bias_of(weight, weight.shape()[0])
}

/// The same of `count` numbers, where they are not as many as the weight's rows.
pub(crate) fn default_bias_of(weight: &Tensor, count: usize) -> Result<Tensor> {
    let bias = Tensor::empty(&[count], weight.dtype(), weight.device())?;
    let bound = inverse_sqrt(fans("bias", weight)?.0);
    uniform_(&bias, -bound, bound)?;
    Ok(bias)
}

fn kaiming_std(
    op: &'static str,
    tensor: &Tensor,
    fan: Fan,
    nonlinearity: Nonlinearity,
) -> Result<f64> {
    let (fan_in, fan_out) = fans(op, tensor)?;
    let fan = match fan {
        Fan::In => fan_in,
        Fan::Out => fan_out,
    };
    Ok(calculate_gain(nonlinearity) * inverse_sqrt(fan))
}

fn xavier_std(op: &'static str, tensor: &Tensor, gain: f64) -> Result<f64> {
    let (fan_in, fan_out) = fans(op, tensor)?;
    Ok(gain * 2f64.sqrt() * inverse_sqrt(fan_in + fan_out))
}

/// 0 for a layer without inputs, which has nothing to fill.
pub(crate) fn inverse_sqrt(fan: usize) -> f64 {
    if fan == 0 {
        0.0
    } else {
        1.0 / (fan as f64).sqrt()
    }
}

/// Fan in and fan out of a weight `[out, in, ..]`.
fn fans(op: &'static str, tensor: &Tensor) -> Result<(usize, usize)> {
    match tensor.shape()[..] {
        [outputs, inputs, ref field @ ..] => {
            let taps: usize = field.iter().product();
            Ok((inputs * taps, outputs * taps))
        }
        _ => Err(Error::shape(
            op,
            format!(
                "fans need a weight [out, in, ..], got shape {}",
                tensor.shape()
            ),
        )
        .with_hint("fill a bias by uniform_ or zeros_")
        .with_operands(|| vec![tensor.operand("tensor")])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(tensor: &Tensor) -> (f64, f64, f64) {
        let elements = tensor.to_vec::<f32>().unwrap();
        let count = elements.len() as f64;
        let mean = elements.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let square = elements
            .iter()
            .map(|&x| (f64::from(x) - mean).powi(2))
            .sum::<f64>()
            / count;
        let largest = elements
            .iter()
            .map(|&x| f64::from(x).abs())
            .fold(0.0, f64::max);
        (mean, square.sqrt(), largest)
    }

    #[test]
    fn spreads_are_as_the_formulas_say() {
        // fan_in 25 * 8 = 200, fan_out 16 * 25 = 400.
        let weight = Tensor::empty(&[16, 8, 5, 5], fireclay_tensor::DType::F32, "cpu").unwrap();
        let third = 3f64.sqrt();
        type Fill = Box<dyn Fn(&Tensor) -> Result<()>>;
        let uniform: [(Fill, f64); 4] = [
            (
                Box::new(|w| kaiming_uniform_(w, Fan::In, Nonlinearity::ReLU)),
                (6.0f64 / 200.0).sqrt(),
            ),
            (
                Box::new(|w| kaiming_uniform_(w, Fan::Out, Nonlinearity::Tanh)),
                5.0 / 3.0 * (3.0f64 / 400.0).sqrt(),
            ),
            (
                Box::new(|w| xavier_uniform_(w, 2.0)),
                2.0 * (6.0f64 / 600.0).sqrt(),
            ),
            (Box::new(default_weight_), 1.0 / 200f64.sqrt()),
        ];
        for (number, (fill, bound)) in uniform.iter().enumerate() {
            fill(&weight).unwrap();
            let (mean, std, largest) = spread(&weight);
            assert!(mean.abs() < 0.05 * bound, "{number}: mean {mean}");
            assert!(
                (std * third / bound - 1.0).abs() < 0.05,
                "{number}: std {std}"
            );
            assert!(
                largest <= *bound * 1.000_001 && largest > 0.98 * bound,
                "{number}: {largest} of {bound}"
            );
        }
        let normal: [(Fill, f64); 3] = [
            (
                Box::new(|w| kaiming_normal_(w, Fan::In, Nonlinearity::LeakyReLU(0.1))),
                (2.0f64 / 1.01 / 200.0).sqrt(),
            ),
            (
                Box::new(|w| xavier_normal_(w, 1.0)),
                (2.0f64 / 600.0).sqrt(),
            ),
            (Box::new(|w| normal_(w, 0.0, 3.0)), 3.0),
        ];
        for (number, (fill, expected)) in normal.iter().enumerate() {
            fill(&weight).unwrap();
            let (mean, std, _) = spread(&weight);
            assert!(mean.abs() < 0.08 * expected, "{number}: mean {mean}");
            assert!(
                (std / expected - 1.0).abs() < 0.05,
                "{number}: std {std}, expected {expected}"
            );
        }
    }

    #[test]
    fn leaves_that_require_grad_are_filled() {
        let weight = Tensor::zeros(&[2], "cpu")
            .unwrap()
            .requires_grad_(true)
            .unwrap();
        constant_(&weight, 0.5).unwrap();
        assert_eq!(weight.to_vec::<f32>().unwrap(), [0.5, 0.5]);
        ones_(&weight).unwrap();
        zeros_(&weight).unwrap();
        assert_eq!(weight.to_vec::<f32>().unwrap(), [0.0, 0.0]);
        assert!(weight.requires_grad());
    }

    #[test]
    fn a_bias_has_no_fans() {
        let text = xavier_normal_(&Tensor::zeros(&[3], "cpu").unwrap(), 1.0)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("xavier_normal_") && text.contains("got shape [3]"),
            "{text}"
        );
    }
}
