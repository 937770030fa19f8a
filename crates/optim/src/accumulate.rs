//! `Accumulate`: one step for several batches.

use std::num::NonZeroUsize;

use fireclay_tensor::{Error, Result, Tensor};

/// Gradient accumulation: several batches make one step, as if they were one batch.
///
/// ```
/// use fireclay_optim::{Accumulate, Optimizer, SGD, SGDOptions};
/// use fireclay_tensor::{Parameter, Tensor};
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let weight = Parameter::new(Tensor::ones(&[4], "cpu")?)?;
/// let mut optimizer = SGD::new([weight.clone()], SGDOptions { lr: 0.1, ..Default::default() })?;
/// let batches = 10; // in an epoch
/// let mut accumulate = Accumulate::new(4, batches)?;
/// let mut steps = 0;
/// for _ in 0..batches {
///     let loss = weight.tensor().square()?.mean_all()?;
///     if accumulate.backward(&loss)? {
///         optimizer.step()?;
///         optimizer.zero_grad();
///         steps += 1;
///     }
/// }
/// assert_eq!(steps, 3); // of 4, 4 and 2 batches
/// # Ok(())
/// # }
/// ```
///
/// Each loss, a mean over its batch, is divided by the number of batches in its step, also in the last one of an epoch, which may have
/// fewer: of batches of one size the gradient is that of the mean over all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accumulate {
    every: NonZeroUsize,
    batches: usize,
    done: usize,
}

impl Accumulate {
    /// Steps after every `every` batches of an epoch of `batches`.
    ///
    /// # Errors
    /// `every` is 0.
    pub fn new(every: usize, batches: usize) -> Result<Accumulate> {
        let every = NonZeroUsize::new(every).ok_or_else(|| {
            Error::argument("Accumulate", "every must be at least 1 batch, got 0")
        })?;
        Ok(Accumulate {
            every,
            batches,
            done: 0,
        })
    }

    /// How many batches make the step that the next batch is part of.
    pub fn window(&self) -> usize {
        let start = self.done - self.done % self.every;
        // Beyond the epoch's end windows are whole.
        match self.batches.checked_sub(start) {
            Some(left) if left > 0 => left.min(self.every.get()),
            _ => self.every.get(),
        }
    }

    /// Adds the gradients of `loss`, divided by the number of batches in its step. Tells whether the step is due.
    ///
    /// # Errors
    /// As of [`Tensor::backward`]; then the batch is not counted.
    #[track_caller]
    pub fn backward(&mut self, loss: &Tensor) -> Result<bool> {
        self.scaled(loss)?.backward()?;
        Ok(self.count())
    }

    /// `loss` divided by the number of batches in its step: for a `GradScaler`, which scales it further. Call
    /// [`count`](Accumulate::count) after its backward.
    #[track_caller]
    pub fn scaled(&self, loss: &Tensor) -> Result<Tensor> {
        loss.div(self.window() as f64)
    }

    /// Counts a batch. Tells whether the step is due; at the epoch's end it is, and the next epoch begins.
    pub fn count(&mut self) -> bool {
        self.done += 1;
        if self.done == self.batches {
            self.done = 0;
            return true;
        }
        self.done.is_multiple_of(self.every.get())
    }
}
