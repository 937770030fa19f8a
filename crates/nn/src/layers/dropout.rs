//! Dropout.

use fireclay_tensor::{Error, Result, Tensor};

use crate::mode::Mode;
use crate::module::Module;

/// In training, sets each element to zero with probability `p` and multiplies the others by `1 / (1 - p)`; in evaluation passes
/// its input on (`torch.nn.Dropout`).
#[derive(crate::Module, Debug)]
pub struct Dropout {
    p: f64,
    mode: Mode,
}

impl Dropout {
    /// Dropout with probability `p`; PyTorch's default is 0.5.
    ///
    /// # Errors
    /// `p` is not from 0 to 1.
    pub fn new(p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument(
                "Dropout",
                format!("a probability is from 0 to 1, got {p}"),
            ));
        }
        Ok(Dropout {
            p,
            mode: Mode::new(),
        })
    }
}

impl Module for Dropout {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.dropout(self.p, self.mode.is_training())
    }
}
