//! Layers that move elements between channels and places.

use fireclay_tensor::{Blocks, Result, Tensor};

use super::size::Size2;
use crate::module::Module;

/// `[N, C r^2, H, W]` to `[N, C, H r, W r]` (`torch.nn.PixelShuffle`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct PixelShuffle {
    upscale_factor: usize,
}

impl PixelShuffle {
    /// So many times as high and wide.
    pub fn new(upscale_factor: usize) -> PixelShuffle {
        PixelShuffle { upscale_factor }
    }
}

impl Module for PixelShuffle {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.pixel_shuffle(self.upscale_factor)
    }
}

/// `[N, C, H r, W r]` to `[N, C r^2, H, W]` (`torch.nn.PixelUnshuffle`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct PixelUnshuffle {
    downscale_factor: usize,
}

impl PixelUnshuffle {
    /// So many times less high and wide.
    pub fn new(downscale_factor: usize) -> PixelUnshuffle {
        PixelUnshuffle { downscale_factor }
    }
}

impl Module for PixelUnshuffle {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.pixel_unshuffle(self.downscale_factor)
    }
}

/// Channels of `groups` groups dealt out in turn (`torch.nn.ChannelShuffle`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct ChannelShuffle {
    groups: usize,
}

impl ChannelShuffle {
    /// Of so many groups.
    pub fn new(groups: usize) -> ChannelShuffle {
        ChannelShuffle { groups }
    }
}

impl Module for ChannelShuffle {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.channel_shuffle(self.groups)
    }
}

/// Blocks of `[N, C, H, W]` as columns: `[N, C * kernel_h * kernel_w, blocks]` (`torch.nn.Unfold`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct Unfold {
    #[module(skip)]
    blocks: Blocks,
}

impl Unfold {
    /// Blocks of size `kernel`, one at each place.
    pub fn new(kernel: impl Into<Size2>) -> Unfold {
        Unfold::with(Blocks::new(kernel.into().0))
    }

    /// Blocks with any stride, padding, dilation.
    pub fn with(blocks: Blocks) -> Unfold {
        Unfold { blocks }
    }
}

impl Module for Unfold {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.im2col(self.blocks)
    }
}

/// Columns `[N, C * kernel_h * kernel_w, blocks]` added up where they lie in an image `[N, C, H, W]` (`torch.nn.Fold`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct Fold {
    size: [usize; 2],
    #[module(skip)]
    blocks: Blocks,
}

impl Fold {
    /// Images of size `output_size` from blocks of size `kernel`, one at each place.
    pub fn new(output_size: impl Into<Size2>, kernel: impl Into<Size2>) -> Fold {
        Fold::with(output_size, Blocks::new(kernel.into().0))
    }

    /// Blocks with any stride, padding, dilation.
    pub fn with(output_size: impl Into<Size2>, blocks: Blocks) -> Fold {
        Fold {
            size: output_size.into().0,
            blocks,
        }
    }
}

impl Module for Fold {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.col2im(self.size, self.blocks)
    }
}

/// Makes one dimension several (`torch.nn.Unflatten`).
#[derive(crate::Module, Clone, Debug)]
pub struct Unflatten {
    dim: isize,
    #[module(skip)]
    sizes: Vec<isize>,
}

impl Unflatten {
    /// Dimension `dim` as `sizes`, of which one may be -1.
    pub fn new(dim: isize, sizes: &[isize]) -> Unflatten {
        Unflatten {
            dim,
            sizes: sizes.into(),
        }
    }
}

impl Module for Unflatten {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.unflatten(self.dim, &self.sizes)
    }
}
