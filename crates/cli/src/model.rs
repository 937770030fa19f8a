//! `DigitNet`: the network that reads digits.

use fireclay::prelude::*;
use fireclay::{Pool2d, nn};

/// Classes.
pub(crate) const DIGITS: usize = 10;

/// Channels and places after the second pooling: 64 of 7 x 7.
const FEATURES: usize = 64 * 7 * 7;

/// The share of features left out in a training step.
const DROPOUT: f64 = 0.3;

/// Two convolutions, each normalised, cut at zero and pooled, then two fully connected layers:
/// images `[n, 1, 28, 28]` to scores `[n, 10]`.
#[derive(Module)]
pub(crate) struct DigitNet {
    conv1: nn::Conv2d,
    norm1: nn::BatchNorm2d,
    conv2: nn::Conv2d,
    norm2: nn::BatchNorm2d,
    dropout: nn::Dropout,
    hidden: nn::Linear,
    output: nn::Linear,
}

impl DigitNet {
    /// A network with random weights.
    pub(crate) fn new() -> Result<DigitNet> {
        // The norm after it takes the mean away: a bias would have no effect.
        let config = nn::Conv2dConfig {
            padding: [1, 1],
            bias: false,
            ..Default::default()
        };
        Ok(DigitNet {
            conv1: nn::Conv2d::with(1, 32, 3, config)?,
            norm1: nn::BatchNorm2d::new(32)?,
            conv2: nn::Conv2d::with(32, 64, 3, config)?,
            norm2: nn::BatchNorm2d::new(64)?,
            dropout: nn::Dropout::new(DROPOUT)?,
            hidden: nn::Linear::new(FEATURES, 128)?,
            output: nn::Linear::new(128, DIGITS)?,
        })
    }
}

impl Module for DigitNet {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.norm1.forward(&self.conv1.forward(images)?)?;
        let x = x.relu()?.max_pool2d(Pool2d::new([2, 2]))?;
        let x = self.norm2.forward(&self.conv2.forward(&x)?)?;
        let x = x.relu()?.max_pool2d(Pool2d::new([2, 2]))?;
        let x = self.dropout.forward(&x.flatten(1, -1)?)?;
        let x = self.hidden.forward(&x)?.relu()?;
        self.output.forward(&x)
    }
}

/// Three fully connected layers, cut at zero between them: images `[n, 1, 8, 8]` to scores `[n, 10]`.
#[derive(Module)]
pub(crate) struct DigitMlp {
    hidden1: nn::Linear,
    hidden2: nn::Linear,
    output: nn::Linear,
}

impl DigitMlp {
    /// A network with random weights.
    pub(crate) fn new() -> Result<DigitMlp> {
        Ok(DigitMlp {
            hidden1: nn::Linear::new(8 * 8, 128)?,
            hidden2: nn::Linear::new(128, 64)?,
            output: nn::Linear::new(64, DIGITS)?,
        })
    }
}

impl Module for DigitMlp {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.hidden1.forward(&images.flatten(1, -1)?)?.relu()?;
        let x = self.hidden2.forward(&x)?.relu()?;
        self.output.forward(&x)
    }
}
