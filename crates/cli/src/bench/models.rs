//! The networks of the workloads, as `bench/torch_workloads.py` has them.

use crate::gpt;
use fireclay::nn::sequential;
use fireclay::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Flatten, Linear, MaxPool2d, ReLU,
    Sequential,
};
use fireclay::prelude::*;

/// 784 inputs, two hidden layers of 512, 10 classes.
pub(crate) fn mlp() -> Result<Sequential> {
    Ok(sequential![
        Linear::new(784, 512)?,
        ReLU,
        Linear::new(512, 512)?,
        ReLU,
        Linear::new(512, 10)?,
    ])
}

/// 8 inputs, 16 hidden, 1 output.
pub(crate) fn tiny() -> Result<Sequential> {
    Ok(sequential![Linear::new(8, 16)?, ReLU, Linear::new(16, 1)?])
}

/// Two convolutions and two linear layers on MNIST's images.
pub(crate) fn cnn() -> Result<Sequential> {
    let padded = Conv2dConfig {
        padding: [1, 1],
        ..Default::default()
    };
    Ok(sequential![
        Conv2d::with(1, 32, 3, padded)?,
        ReLU,
        MaxPool2d::new(2),
        Conv2d::with(32, 64, 3, padded)?,
        ReLU,
        MaxPool2d::new(2),
        Flatten::new(),
        Linear::new(64 * 49, 128)?,
        ReLU,
        Linear::new(128, 10)?,
    ])
}

/// ResNet-18 for images of 32 x 32 (He et al. 2016, with the first layers of its CIFAR variant).
pub(crate) fn resnet18_cifar() -> Result<Sequential> {
    let mut model = sequential![conv(3, 64, 3, 1)?, BatchNorm2d::new(64)?, ReLU];
    let mut inputs = 64;
    for (outputs, stride) in [(64, 1), (128, 2), (256, 2), (512, 2)] {
        model = model.push(Block::new(inputs, outputs, stride)?);
        model = model.push(Block::new(outputs, outputs, 1)?);
        inputs = outputs;
    }
    let model = model.push(AdaptiveAvgPool2d::new(1)).push(Flatten::new());
    Ok(model.push(Linear::new(512, 10)?))
}

/// Six blocks of a transformer, 12 heads: `[n, length, 384]` to the same shape.
pub(super) fn encoder() -> Result<Sequential> {
    (0..6).try_fold(Sequential::new(), |model, _| {
        Ok(model.push(gpt::Block::new(384, 12, false)?))
    })
}

/// Two convolutions with a way around them.
#[derive(Module)]
struct Block {
    c1: Conv2d,
    b1: BatchNorm2d,
    c2: Conv2d,
    b2: BatchNorm2d,
    down: Option<Sequential>,
}

impl Block {
    fn new(inputs: usize, outputs: usize, stride: usize) -> Result<Block> {
        let down = if stride != 1 || inputs != outputs {
            Some(sequential![
                conv(inputs, outputs, 1, stride)?,
                BatchNorm2d::new(outputs)?
            ])
        } else {
            None
        };
        Ok(Block {
            c1: conv(inputs, outputs, 3, stride)?,
            b1: BatchNorm2d::new(outputs)?,
            c2: conv(outputs, outputs, 3, 1)?,
            b2: BatchNorm2d::new(outputs)?,
            down,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.b1.forward(&self.c1.forward(x)?)?.relu()?;
        let y = self.b2.forward(&self.c2.forward(&y)?)?;
        match &self.down {
            Some(down) => (&y + &down.forward(x)?).relu().eval(),
            None => (&y + x).relu().eval(),
        }
    }
}

/// A convolution without bias that keeps the size, but for the stride.
fn conv(inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Result<Conv2d> {
    let config = Conv2dConfig {
        stride: [stride; 2],
        padding: [kernel / 2; 2],
        bias: false,
        ..Default::default()
    };
    Conv2d::with(inputs, outputs, kernel, config)
}
