//! Pooling: the largest, the average or the norm of each window.

use fireclay_tensor::{AvgPool, Pool, Result, Tensor};

use super::size::Size;
use crate::module::Module;

macro_rules! pools {
    ($N:literal, $input:literal,
        $MaxPool:ident $max:literal $max_pool:ident $max_pool_with_indices:ident,
        $MaxUnpool:ident $unpool:literal,
        $AvgPool:ident $avg:literal $avg_pool:ident,
        $LPPool:ident $lp:literal,
        $AdaptiveAvgPool:ident $adaptive_avg:literal $adaptive_avg_pool:ident,
        $AdaptiveMaxPool:ident $adaptive_max:literal $adaptive_max_pool:ident) => {
        #[doc = concat!("The largest element of each window of ", $input, " (`torch.nn.", $max, "`).")]
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $MaxPool {
            #[module(skip)]
            window: Pool<$N>,
        }

        impl $MaxPool {
            /// Windows of size `kernel` side by side. `kernel` is a number or one for each dimension.
            pub fn new(kernel: impl Into<Size<$N>>) -> $MaxPool {
                $MaxPool::with(Pool::new(kernel.into().0))
            }

            /// Windows with any stride, padding, dilation.
            pub fn with(window: Pool<$N>) -> $MaxPool {
                $MaxPool { window }
            }

            /// The largest elements and their places in the flat image (`return_indices=True`).
            #[track_caller]
            pub fn forward_with_indices(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
                input.$max_pool_with_indices(self.window)
            }
        }

        impl Module for $MaxPool {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$max_pool(self.window)
            }
        }

        #[doc = concat!("Puts elements back to the places where they were largest, zeros elsewhere (`torch.nn.", $unpool, "`).")]
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $MaxUnpool {
            #[module(skip)]
            window: Pool<$N>,
        }

        impl $MaxUnpool {
            /// The inverse of pooling by windows of size `kernel` side by side.
            pub fn new(kernel: impl Into<Size<$N>>) -> $MaxUnpool {
                $MaxUnpool::with(Pool::new(kernel.into().0))
            }

            /// The inverse of pooling by these windows; dilation and `ceil_mode` don't matter.
            pub fn with(window: Pool<$N>) -> $MaxUnpool {
                $MaxUnpool { window }
            }

            /// Puts the elements of `input` to `indices`. The least output of which they can come.
            ///
            /// # Errors
            /// As of [`Tensor::max_unpool`].
            #[track_caller]
            pub fn forward(&self, input: &Tensor, indices: &Tensor) -> Result<Tensor> {
                let lead = input.ndim().saturating_sub($N);
                let size = std::array::from_fn(|dim| {
                    let steps = input.shape().get(lead + dim).map_or(0, |size| size.saturating_sub(1));
                    steps
                        .saturating_mul(self.window.stride[dim])
                        .saturating_add(self.window.kernel[dim])
                        .saturating_sub(self.window.padding[dim].saturating_mul(2))
                });
                self.forward_to(input, indices, size)
            }

            /// The same with an output of this size (`output_size`).
            ///
            /// # Errors
            /// As of [`Tensor::max_unpool`].
            #[track_caller]
            pub fn forward_to(&self, input: &Tensor, indices: &Tensor, size: [usize; $N]) -> Result<Tensor> {
                input.max_unpool::<$N>(indices, size)
            }
        }

        #[doc = concat!("The average of each window of ", $input, " (`torch.nn.", $avg, "`).")]
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $AvgPool {
            #[module(skip)]
            window: AvgPool<$N>,
        }

        impl $AvgPool {
            /// Windows of size `kernel` side by side. `kernel` is a number or one for each dimension.
            pub fn new(kernel: impl Into<Size<$N>>) -> $AvgPool {
                $AvgPool::with(AvgPool::new(kernel.into().0))
            }

            /// Windows with any stride, padding and divisor.
            pub fn with(window: AvgPool<$N>) -> $AvgPool {
                $AvgPool { window }
            }
        }

        impl Module for $AvgPool {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$avg_pool(self.window)
            }
        }

        #[doc = concat!("The norm of each window of ", $input, ", not divided by its size (`torch.nn.", $lp, "`).")]
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $LPPool {
            norm_type: f64,
            #[module(skip)]
            window: Pool<$N>,
        }

        impl $LPPool {
            /// Windows of size `kernel` side by side.
            pub fn new(norm_type: f64, kernel: impl Into<Size<$N>>) -> $LPPool {
                $LPPool::with(norm_type, Pool::new(kernel.into().0))
            }

            /// Windows with any stride; padding and dilation are refused when it runs.
            pub fn with(norm_type: f64, window: Pool<$N>) -> $LPPool {
                $LPPool { norm_type, window }
            }
        }

        impl Module for $LPPool {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.lp_pool::<$N>(self.norm_type, self.window)
            }
        }

        #[doc = concat!("Averages of as many windows as give the wanted size, whatever the input's (`torch.nn.", $adaptive_avg, "`).")]
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $AdaptiveAvgPool {
            size: [usize; $N],
        }

        impl $AdaptiveAvgPool {
            /// Output of `size`: a number or one for each dimension.
            pub fn new(size: impl Into<Size<$N>>) -> $AdaptiveAvgPool {
                $AdaptiveAvgPool { size: size.into().0 }
            }
        }

        impl Module for $AdaptiveAvgPool {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$adaptive_avg_pool(self.size)
            }
        }

        #[doc = concat!("The largest of as many windows as give the wanted size, whatever the input's (`torch.nn.", $adaptive_max, "`).")]
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $AdaptiveMaxPool {
            size: [usize; $N],
        }

        impl $AdaptiveMaxPool {
            /// Output of `size`: a number or one for each dimension.
            pub fn new(size: impl Into<Size<$N>>) -> $AdaptiveMaxPool {
                $AdaptiveMaxPool { size: size.into().0 }
            }

            /// The largest elements and their places in the flat image (`return_indices=True`).
            #[track_caller]
            pub fn forward_with_indices(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
                input.adaptive_max_pool_with_indices::<$N>(self.size)
            }
        }

        impl Module for $AdaptiveMaxPool {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                input.$adaptive_max_pool(self.size)
            }
        }
    };
}

pools! {
    1, "`[N, C, L]`",
    MaxPool1d "MaxPool1d" max_pool1d max_pool1d_with_indices,
    MaxUnpool1d "MaxUnpool1d",
    AvgPool1d "AvgPool1d" avg_pool1d,
    LPPool1d "LPPool1d",
    AdaptiveAvgPool1d "AdaptiveAvgPool1d" adaptive_avg_pool1d,
    AdaptiveMaxPool1d "AdaptiveMaxPool1d" adaptive_max_pool1d
}
pools! {
    2, "`[N, C, H, W]`",
    MaxPool2d "MaxPool2d" max_pool2d max_pool2d_with_indices,
    MaxUnpool2d "MaxUnpool2d",
    AvgPool2d "AvgPool2d" avg_pool2d,
    LPPool2d "LPPool2d",
    AdaptiveAvgPool2d "AdaptiveAvgPool2d" adaptive_avg_pool2d,
    AdaptiveMaxPool2d "AdaptiveMaxPool2d" adaptive_max_pool2d
}
pools! {
    3, "`[N, C, D, H, W]`",
    MaxPool3d "MaxPool3d" max_pool3d max_pool3d_with_indices,
    MaxUnpool3d "MaxUnpool3d",
    AvgPool3d "AvgPool3d" avg_pool3d,
    LPPool3d "LPPool3d",
    AdaptiveAvgPool3d "AdaptiveAvgPool3d" adaptive_avg_pool3d,
    AdaptiveMaxPool3d "AdaptiveMaxPool3d" adaptive_max_pool3d
}
