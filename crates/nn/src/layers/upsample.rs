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

/// [`Upsample`] of images to the nearest pixel (`torch.nn.UpsamplingNearest2d`).
pub type UpsamplingNearest2d = Upsample<2>;

/// [`Upsample`] of images by the four pixels around, corners on corners (`torch.nn.UpsamplingBilinear2d`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct UpsamplingBilinear2d {
    #[module(skip)]
    to: InterpolateTo<2>,
}

impl UpsamplingBilinear2d {
    /// So many times the size in both dimensions.
    pub fn new(scale_factor: f64) -> UpsamplingBilinear2d {
        UpsamplingBilinear2d {
            to: InterpolateTo::Scale([scale_factor, scale_factor]),
        }
    }

    /// To this size, a number or `[height, width]`.
    pub fn to_size(size: impl Into<Size2>) -> UpsamplingBilinear2d {
        UpsamplingBilinear2d {
            to: InterpolateTo::Size(size.into().0),
        }
    }
}

impl Module for UpsamplingBilinear2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mode = InterpolateMode::Bilinear {
            align_corners: true,
        };
        input.interpolate(self.to, mode)
    }
}
