//! The training loop of the README: an MLP on the embedded digits.

use fireclay::prelude::*;
use fireclay::{data::Mnist, nn, optim};

#[derive(Module)]
struct Net {
    hidden: nn::Linear,
    output: nn::Linear,
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.flatten(1, -1)?;
        let x = self.hidden.forward(&x)?.relu()?;
        self.output.forward(&x)
    }
}

fn main() -> Result<()> {
    fireclay::manual_seed(1);
    let device: Device = "cpu".parse()?;
    let model = Net {
        hidden: nn::Linear::new(784, 128)?,
        output: nn::Linear::new(128, 10)?,
    };
    model.to(device)?;
    let loader = DataLoader::builder(Mnist::embedded()?)
        .batch_size(64)
        .shuffle(true)
        .workers(2)
        .build()?;
    let criterion = nn::CrossEntropyLoss::new();
    let mut optimizer = optim::AdamW::new(model.parameters(), optim::AdamWOptions::default())?;
    for epoch in 0..3 {
        for batch in loader.epoch(epoch) {
            let (x, y) = batch?;
            let (x, y) = (x.to(device)?, y.to(device)?);
            optimizer.zero_grad();
            let loss = criterion.forward(&model.forward(&x)?, &y)?;
            loss.backward()?;
            optimizer.step()?;
        }
    }
    Ok(())
}
