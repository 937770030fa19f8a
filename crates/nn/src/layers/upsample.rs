//! Enlarging (or shrinking) images.

use fireclay_tensor::{InterpolateMode, InterpolateTo, Result, Tensor};

use super::size::Size2;
use crate::module::Module;

/// Resizes images `[N, C, H, W]`, or what has 1 or 3 dimensions after the channels (`torch.nn.Upsample`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct Upsample<const N: usize = 2> {
    #[module(skip)]
    to: InterpolateTo<N>,
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
}

impl<const N: usize> Upsample<N> {
    /// To any size, in any mode.
    pub fn with(to: InterpolateTo<N>, mode: InterpolateMode) -> Upsample<N> {
        Upsample { to, mode }
    }
}

impl<const N: usize> Module for Upsample<N> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.interpolate(self.to, self.mode)
    }
}
