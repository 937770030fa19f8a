//! Workloads of whole networks: training steps and inference.

use fireclay::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use fireclay::prelude::*;
use fireclay::{CrossEntropy, Reduction};

use super::models;
use super::stopwatch::Stopwatch;
use crate::failure::Failure;
use crate::gpt::{Gpt, Shape};

/// Measures them all.
pub(crate) fn run(stopwatch: &mut Stopwatch, device: Device) -> Result<(), Failure> {
    let images = |shape: &[usize]| Tensor::randn(shape, device);
    let classes = |count: usize| Tensor::randint(0, 10, &[count], device);
    let adam = AdamOptions::default();

    let name = "train/mlp_784_512_512_10_b128_adam";
    if stopwatch.wants_any(&[name]) {
        let model = models::mlp()?;
        model.to(device)?;
        let optimizer = Adam::new(model.parameters(), adam)?;
        let (x, y) = (images(&[128, 784])?, classes(128)?);
        let step = step(model, optimizer, x, move |scores| cross_entropy(scores, &y));
        stopwatch.measure(name, 1, step)?;
    }
    let name = "train/tiny_8_16_1_b16_adam";
    if stopwatch.wants_any(&[name]) {
        let model = models::tiny()?;
        model.to(device)?;
        let optimizer = Adam::new(model.parameters(), adam)?;
        let (x, y) = (images(&[16, 8])?, images(&[16, 1])?);
        let step = step(model, optimizer, x, move |output| {
            output.mse_loss(&y, Reduction::Mean)
        });
        stopwatch.measure(name, 20, step)?;
    }
    let name = "train/cnn_mnist_b64_adam";
    if stopwatch.wants_any(&[name]) {
        let model = models::cnn()?;
        model.to(device)?;
        let optimizer = Adam::new(model.parameters(), adam)?;
        let (x, y) = (images(&[64, 1, 28, 28])?, classes(64)?);
        let step = step(model, optimizer, x, move |scores| cross_entropy(scores, &y));
        stopwatch.measure(name, 1, step)?;
    }
    let name = "train/resnet18_cifar_b16_sgd";
    if stopwatch.wants_any(&[name]) {
        let model = models::resnet18_cifar()?;
        model.to(device)?;
        let options = SGDOptions {
            lr: 0.1,
            momentum: 0.9,
            ..Default::default()
        };
        let optimizer = SGD::new(model.parameters(), options)?;
        let (x, y) = (images(&[16, 3, 32, 32])?, classes(16)?);
        let step = step(model, optimizer, x, move |scores| cross_entropy(scores, &y));
        stopwatch.measure(name, 1, step)?;
    }
    let name = "train/gpt_4x256_t128_b8_adamw_f32";
    if stopwatch.wants_any(&[name]) {
        let shape = Shape {
            layers: 4,
            width: 256,
            heads: 8,
            context: 128,
        };
        let model = Gpt::new(shape, 256)?;
        model.to(device)?;
        let options = AdamWOptions {
            lr: 3e-4,
            ..Default::default()
        };
        let optimizer = AdamW::new(model.parameters(), options)?;
        let tokens = |shape: &[usize]| Tensor::randint(0, 256, shape, device);
        let (x, y) = (tokens(&[8, 128])?, tokens(&[8 * 128])?);
        let step = step(model, optimizer, x, move |scores| {
            cross_entropy(&scores.flatten(0, 1)?, &y)
        });
        stopwatch.measure(name, 1, step)?;
    }
    stopwatch.not_yet("train/gpt_4x256_t128_b8_adamw_bf16_autocast", "autocast")?;
    for (name, batch) in [
        ("infer/encoder_6x384_t128_b1", 1),
        ("infer/encoder_6x384_t128_b8", 8),
    ] {
        if stopwatch.wants_any(&[name]) {
            let model = models::encoder()?;
            model.to(device)?;
            let x = images(&[batch, 128, 384])?;
            stopwatch.measure(name, 1, || no_grad(|| model.forward(&x)))?;
        }
    }
    let name = "infer/resnet18_cifar_b1";
    if stopwatch.wants_any(&[name]) {
        let model = models::resnet18_cifar()?;
        model.to(device)?;
        model.eval();
        let x = images(&[1, 3, 32, 32])?;
        stopwatch.measure(name, 1, || no_grad(|| model.forward(&x)))?;
    }
    Ok(())
}

/// A training step.
fn step(
    model: impl Module,
    mut optimizer: impl Optimizer,
    batch: Tensor,
    loss: impl Fn(&Tensor) -> Result<Tensor>,
) -> impl FnMut() -> Result<()> {
    move || {
        optimizer.zero_grad();
        loss(&model.forward(&batch)?)?.backward()?;
        optimizer.step()
    }
}

fn cross_entropy(scores: &Tensor, targets: &Tensor) -> Result<Tensor> {
    scores.cross_entropy(targets, CrossEntropy::default())
}
