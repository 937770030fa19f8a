//! Pooling over images: the largest or the average of each window.

use fireclay_tensor::{Pool2d, Result, Tensor};

use super::size::Size2;
use crate::module::Module;

/// The largest element of each window of `[N, C, H, W]` (`torch.nn.MaxPool2d`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct MaxPool2d {
    #[module(skip)]
    window: Pool2d,
}

impl MaxPool2d {
    /// Windows of size `kernel` side by side. `kernel` is a number or `[height, width]`.
    pub fn new(kernel: impl Into<Size2>) -> MaxPool2d {
        MaxPool2d::with(Pool2d::new(kernel.into().0))
    }

    /// Windows with any stride, padding, dilation.
    pub fn with(window: Pool2d) -> MaxPool2d {
        MaxPool2d { window }
    }
}

impl Module for MaxPool2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.max_pool2d(self.window)
    }
}

/// The average of each window of `[N, C, H, W]` (`torch.nn.AvgPool2d`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct AvgPool2d {
    #[module(skip)]
    window: fireclay_tensor::AvgPool2d,
}

impl AvgPool2d {
    /// Windows of size `kernel` side by side. `kernel` is a number or `[height, width]`.
    pub fn new(kernel: impl Into<Size2>) -> AvgPool2d {
        AvgPool2d::with(fireclay_tensor::AvgPool2d::new(kernel.into().0))
    }

    /// Windows with any stride, padding and divisor.
    pub fn with(window: fireclay_tensor::AvgPool2d) -> AvgPool2d {
        AvgPool2d { window }
    }
}

impl Module for AvgPool2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.avg_pool2d(self.window)
    }
}

/// Averages of as many windows as give the wanted size, whatever the input's (`torch.nn.AdaptiveAvgPool2d`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct AdaptiveAvgPool2d {
    size: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// Output of `size`: a number or `[height, width]`.
    pub fn new(size: impl Into<Size2>) -> AdaptiveAvgPool2d {
        AdaptiveAvgPool2d {
            size: size.into().0,
        }
    }
}

impl Module for AdaptiveAvgPool2d {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.adaptive_avg_pool2d(self.size)
    }
}
