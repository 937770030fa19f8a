//! Enlarging (or shrinking) images.

use fireclay_tensor::{InterpolateMode, InterpolateTo, Result, Tensor};

use super::size::Size2;
use crate::module::Module;

/// Resizes images `[N, C, H, W]` to the nearest pixel or bilinearly (`torch.nn.Upsample`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct Upsample {
    #[module(skip)]
    to: InterpolateTo,
    #[module(skip)]
    mode: InterpolateMode,
}

impl Upsample {
    /// To the nearest pixel, so many times the size in both dimensions.
    pub fn new(scale_factor: f64) -> Upsample {
        let to = InterpolateTo::Scale([scale_factor, scale_factor]);
        Upsample::with(to, InterpolateMode::Nearest)
    }

    /// To this size, a number or `[height, width]`, to the nearest pixel.
    pub fn to_size(size: impl Into<Size2>) -> Upsample {
        Upsample::with(InterpolateTo::Size(size.into().0), InterpolateMode::Nearest)
    }

    /// To any size, in any mode.
    pub fn with(to: InterpolateTo, mode: InterpolateMode) -> Upsample {
        Upsample { to, mode }
    }
}

impl Module for Upsample {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.interpolate(self.to, self.mode)
    }
}
