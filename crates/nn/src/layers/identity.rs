//! The layer that does nothing.

use fireclay_tensor::{Result, Tensor};

use crate::module::Module;

/// Gives its input (`torch.nn.Identity`): stands where a layer was taken out.
#[derive(crate::Module, Clone, Copy, Debug, Default)]
pub struct Identity;

impl Module for Identity {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.clone())
    }
}
