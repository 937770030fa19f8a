//! Transposed convolutions: the gradients of convolutions by their inputs, as layers that enlarge.

use fireclay_tensor::{
    ConvTransposeOptions, DType, Device, Error, Parameter, Result, Tensor, as_one_call,
    get_default_device,
};

use super::conv::check_sizes;
use super::size::Size;
use crate::init;
use crate::module::Module;
use crate::within::Within;

/// What [`ConvTranspose1d::with`], [`ConvTranspose2d::with`] and [`ConvTranspose3d::with`] take besides channels and kernel.
#[derive(Clone, Copy, Debug)]
pub struct ConvTransposeConfig<const N: usize> {
    /// Steps of the kernel over the output.
    pub stride: [usize; N],
    /// Places cut off each side of the output.
    pub padding: [usize; N],
    /// Places added at the end of the output, less than stride or dilation.
    pub output_padding: [usize; N],
    /// Distance between taps of the kernel.
    pub dilation: [usize; N],
    /// Groups of channels that don't see each other.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Where the parameters are: the default device, unless said.
    pub device: Device,
    /// Their dtype.
    pub dtype: DType,
}

impl<const N: usize> Default for ConvTransposeConfig<N> {
    fn default() -> Self {
        ConvTransposeConfig {
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            dilation: [1; N],
            groups: 1,
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

macro_rules! transposed {
    ($(#[$doc:meta])* $Name:ident, $N:literal, $conv:ident) => {
        $(#[$doc])*
        #[derive(crate::Module, Debug)]
        pub struct $Name {
            /// `[in_channels, out_channels / groups, ..kernel]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: ConvTransposeOptions<$N>,
        }

        impl $Name {
            /// A transposed convolution with stride 1, no padding and a bias, f32 on the default device. `kernel` is a number or one
            /// for each dimension.
            #[track_caller]
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel: impl Into<Size<$N>>,
            ) -> Result<$Name> {
                $Name::with(in_channels, out_channels, kernel, ConvTransposeConfig::default())
            }

            /// A transposed convolution as `config` says.
            ///
            /// # Errors
            /// `groups` does not divide both numbers of channels; a stride, dilation or kernel size is 0; an `output_padding` is
            /// neither less than its stride nor than its dilation.
            #[track_caller]
            pub fn with(
                in_channels: usize,
                out_channels: usize,
                kernel: impl Into<Size<$N>>,
                config: ConvTransposeConfig<$N>,
            ) -> Result<$Name> {
                as_one_call(|| {
                    let kernel = kernel.into().0;
                    let ConvTransposeConfig { stride, dilation, groups, output_padding, .. } = config;
                    let sizes = [kernel, stride, dilation];
                    check_sizes(stringify!($Name), [in_channels, out_channels], groups, sizes)?;
                    let fits = |dim: usize| output_padding[dim] < stride[dim].max(dilation[dim]);
                    if !(0..$N).all(fits) {
                        return Err(Error::argument(
                            stringify!($Name),
                            format!(
                                "output_padding must be less than stride or dilation, got {output_padding:?} for {stride:?} and {dilation:?}"
                            ),
                        ));
                    }
                    let mut shape = vec![in_channels, out_channels / groups];
                    shape.extend(kernel);
                    let weight = Tensor::empty(&shape, config.dtype, config.device)?;
                    init::default_weight_(&weight)?;
                    let bias = match config.bias {
                        true => Some(init::default_bias_of(&weight, out_channels)?),
                        false => None,
                    };
                    Ok($Name {
                        weight: Parameter::new(weight)?,
                        bias: bias.map(Parameter::new).transpose()?,
                        options: ConvTransposeOptions {
                            stride,
                            padding: config.padding,
                            output_padding,
                            dilation,
                            groups,
                        },
                    })
                })
            }

            /// As `forward`, but the output has this size, of those that the stride leaves open (`output_size`).
            ///
            /// # Errors
            /// The size is none of those.
            #[track_caller]
            pub fn forward_to(&self, input: &Tensor, size: [usize; $N]) -> Result<Tensor> {
                let weight = self.weight.tensor();
                let mut options = self.options;
                let lead = input.ndim().saturating_sub($N);
                let less_1 = |sizes: &[usize], place: usize| {
                    sizes.get(place).map_or(0, |size| size.saturating_sub(1))
                };
                for dim in 0..$N {
                    let taps = less_1(weight.shape(), 2 + dim).saturating_mul(options.dilation[dim]);
                    let steps = less_1(input.shape(), lead + dim).saturating_mul(options.stride[dim]);
                    let whole = steps.saturating_add(taps).saturating_add(1);
                    let least = whole.checked_sub(options.padding[dim].saturating_mul(2));
                    let more = least.and_then(|least| size[dim].checked_sub(least));
                    options.output_padding[dim] = match more {
                        Some(more) if more < options.stride[dim].max(options.dilation[dim]) => more,
                        _ => {
                            return Err(Error::argument(
                                stringify!($Name),
                                format!(
                                    "the output of {} can't have size {size:?}: in dimension {dim} the least is {least:?}",
                                    input.shape()
                                ),
                            ));
                        }
                    };
                }
                self.run(input, options)
            }

            #[track_caller]
            fn run(&self, input: &Tensor, options: ConvTransposeOptions<$N>) -> Result<Tensor> {
                let weight = self.weight.tensor();
                let bias = self.bias.as_ref().map(Parameter::tensor);
                input
                    .$conv(&weight, bias.as_ref(), options)
                    .within(Some(&self.weight), || {
                        let sizes = weight.shape();
                        let channels = sizes[1] * options.groups;
                        format!("{}({}, {channels}, {:?})", stringify!($Name), sizes[0], &sizes[2..])
                    })
            }
        }

        impl Module for $Name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                self.run(input, self.options)
            }
        }
    };
}

transposed! {
    /// Transposed convolution of sequences `[N, in_channels, L]` (`torch.nn.ConvTranspose1d`); see [`ConvTranspose2d`].
    ConvTranspose1d, 1, conv_transpose1d
}

transposed! {
    /// Transposed convolution of images `[N, in_channels, H, W]` (`torch.nn.ConvTranspose2d`): with stride `s` about `s` times as high
    /// and wide.
    ///
    /// Parameters: `weight` `[in_channels, out_channels / groups, kernel_h, kernel_w]` and `bias` `[out_channels]`, uniform in
    /// `±1/sqrt(k)` at first, where `k` is the number of weights of one input channel.
    ConvTranspose2d, 2, conv_transpose2d
}

transposed! {
    /// Transposed convolution of volumes `[N, in_channels, D, H, W]` (`torch.nn.ConvTranspose3d`); see [`ConvTranspose2d`].
    ConvTranspose3d, 3, conv_transpose3d
}
