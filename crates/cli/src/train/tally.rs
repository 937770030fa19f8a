//! `Tally`: the sums over an epoch, kept where the network is, so that a training step waits for nothing.

use fireclay::{Device, Result, Tensor};

use super::metrics::Running;

/// Sums over the batches of the running epoch.
pub(crate) struct Tally {
    /// Of the losses of all images, f64.
    loss_sum: Tensor,
    /// Right answers, i64.
    right: Tensor,
    seen: u64,
    /// An f64 zero: adding it makes f64 of a loss, within the kernel that adds up.
    zero: Tensor,
}

impl Tally {
    /// These sums, on `device`.
    pub(crate) fn of(running: Running, device: Device) -> Result<Tally> {
        Ok(Tally {
            loss_sum: Tensor::scalar(running.loss_sum, device)?,
            right: Tensor::scalar(running.right as i64, device)?,
            seen: running.seen,
            zero: Tensor::scalar(0.0f64, device)?,
        })
    }

    /// Adds a batch: its mean loss, its scores `[n, classes]` and the right classes `[n]`.
    pub(crate) fn add(&mut self, loss: &Tensor, scores: &Tensor, targets: &Tensor) -> Result<()> {
        let count = targets.numel();
        self.loss_sum = (&self.loss_sum + (loss + &self.zero) * count as f64).eval()?;
        let is_right = scores.argmax(1, false)?.eq(targets)?;
        self.right = self.right.add(&is_right.sum_all()?)?;
        self.seen += count as u64;
        Ok(())
    }

    /// The sums. Waits for the device.
    pub(crate) fn read(&self) -> Result<Running> {
        Ok(Running {
            loss_sum: self.loss_sum.item()?,
            right: self.right.item()? as u64,
            seen: self.seen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_f64_on_the_host() {
        let mut tally = Tally::of(Running::default(), Device::Cpu).unwrap();
        let mut expected = 0.0;
        for (batch, loss) in [0.1f32, 2.3, 1e-9, 7.7].into_iter().enumerate() {
            let scores = Tensor::from_slice(&[1.0f32, 3.0, 2.0, 0.5, 0.0, -1.0], &[2, 3], "cpu");
            let targets = Tensor::from_slice(&[1i64, (batch % 2) as i64], &[2], "cpu").unwrap();
            let loss_tensor = Tensor::scalar(loss, "cpu").unwrap();
            tally.add(&loss_tensor, &scores.unwrap(), &targets).unwrap();
            expected += f64::from(loss) * 2.0;
        }
        let running = tally.read().unwrap();
        assert_eq!(running.loss_sum.to_bits(), expected.to_bits());
        assert_eq!((running.right, running.seen), (6, 8));
        let again = Tally::of(running, Device::Cpu).unwrap();
        assert_eq!(again.read().unwrap(), running);
    }
}
