//! Flattening.

use fireclay_tensor::{Result, Tensor};

use crate::module::Module;

/// Makes a range of dimensions one (`torch.nn.Flatten`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct Flatten {
    start: isize,
    end: isize,
}

impl Flatten {
    /// All dimensions but the first, the batch.
    pub fn new() -> Flatten {
        Flatten::with(1, -1)
    }

    /// Dimensions `start` to `end`, inclusive, counted from the end where negative.
    pub fn with(start: isize, end: isize) -> Flatten {
        Flatten { start, end }
    }
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten::new()
    }
}

impl Module for Flatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.flatten(self.start, self.end)
    }
}
