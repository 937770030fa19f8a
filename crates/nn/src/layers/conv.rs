//! Convolutions over sequences, images and volumes.

use fireclay_tensor::{
    ConvOptions, DType, Device, Error, Pad, Parameter, Result, Tensor, as_one_call,
    get_default_device,
};

use super::size::Size;
use crate::init;
use crate::module::Module;
use crate::within::Within;

/// What a convolution sees beyond the edges (`padding_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The image as a mirror at its outermost elements shows it.
    Reflect,
    /// The outermost elements.
    Replicate,
    /// The image from its other end on.
    Circular,
}

/// What [`Conv1d::with`], [`Conv2d::with`] and [`Conv3d::with`] take besides channels and kernel.
#[derive(Clone, Copy, Debug)]
pub struct ConvConfig<const N: usize> {
    /// Steps of the kernel.
    pub stride: [usize; N],
    /// How much is put on each side.
    pub padding: [usize; N],
    /// Pads so that with stride 1 the output has the input's size (`padding="same"`); `padding` is then not used.
    pub same: bool,
    /// What is put there.
    pub padding_mode: PaddingMode,
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

/// [`ConvConfig`] of one dimension.
pub type Conv1dConfig = ConvConfig<1>;
/// [`ConvConfig`] of two dimensions.
pub type Conv2dConfig = ConvConfig<2>;
/// [`ConvConfig`] of three dimensions.
pub type Conv3dConfig = ConvConfig<3>;

impl<const N: usize> Default for ConvConfig<N> {
    fn default() -> Self {
        ConvConfig {
            stride: [1; N],
            padding: [0; N],
            same: false,
            padding_mode: PaddingMode::Zeros,
            dilation: [1; N],
            groups: 1,
            bias: true,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

/// Refuses groups that don't divide the channels, and sizes of 0.
pub(super) fn check_sizes<const N: usize>(
    layer: &'static str,
    [in_channels, out_channels]: [usize; 2],
    groups: usize,
    sizes: [[usize; N]; 3],
) -> Result<()> {
    let divides = |channels: usize| groups != 0 && channels.is_multiple_of(groups);
    if !divides(in_channels) || !divides(out_channels) {
        return Err(Error::argument(
            layer,
            format!(
                "groups must divide the channels, got groups {groups} for {in_channels} and {out_channels}"
            ),
        ));
    }
    if sizes.as_flattened().contains(&0) {
        return Err(Error::argument(
            layer,
            format!("kernel, stride and dilation must be at least 1, got {sizes:?}"),
        ));
    }
    Ok(())
}

/// What to put around an input before a convolution without padding: nothing where the convolution itself pads with zeros.
fn padding<const N: usize>(
    layer: &'static str,
    config: &ConvConfig<N>,
    kernel: [usize; N],
) -> Result<Option<(Vec<isize>, Pad)>> {
    let mode = match config.padding_mode {
        PaddingMode::Zeros => return Ok(None),
        PaddingMode::Reflect => Pad::Reflect,
        PaddingMode::Replicate => Pad::Replicate,
        PaddingMode::Circular => Pad::Circular,
    };
    // From the last dimension on, as `pad` wants it.
    let mut sides = Vec::with_capacity(2 * N);
    for dim in (0..N).rev() {
        let both = match config.same {
            true => kernel[dim]
                .checked_sub(1)
                .and_then(|steps| steps.checked_mul(config.dilation[dim]))
                .map(|all| [all / 2, all - all / 2]),
            false => Some([config.padding[dim]; 2]),
        };
        for side in both.into_iter().flatten() {
            let side = isize::try_from(side).map_err(|_| {
                Error::argument(layer, format!("there is no memory for a padding of {side}"))
            })?;
            sides.push(side);
        }
        if both.is_none() {
            let what = format!(
                "there is no memory for a kernel of {kernel:?} with dilation {:?}",
                config.dilation
            );
            return Err(Error::argument(layer, what));
        }
    }
    Ok(Some((sides, mode)))
}

macro_rules! convolution {
    ($(#[$doc:meta])* $Name:ident, $N:literal, $conv:ident) => {
        $(#[$doc])*
        #[derive(crate::Module, Debug)]
        pub struct $Name {
            /// `[out_channels, in_channels / groups, ..kernel]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: ConvOptions<$N>,
            #[module(skip)]
            same: bool,
            #[module(skip)]
            around: Option<(Vec<isize>, Pad)>,
        }

        impl $Name {
            /// A convolution with stride 1, no padding and a bias, f32 on the default device. `kernel` is a number or one for each
            /// dimension.
            #[track_caller]
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel: impl Into<Size<$N>>,
            ) -> Result<$Name> {
                $Name::with(in_channels, out_channels, kernel, ConvConfig::default())
            }

            /// A convolution as `config` says.
            ///
            /// # Errors
            /// `groups` does not divide both numbers of channels; a stride, dilation or kernel size is 0; `same` with another
            /// stride than 1.
            #[track_caller]
            pub fn with(
                in_channels: usize,
                out_channels: usize,
                kernel: impl Into<Size<$N>>,
                config: ConvConfig<$N>,
            ) -> Result<$Name> {
                as_one_call(|| {
                    let kernel = kernel.into().0;
                    let ConvConfig { stride, dilation, groups, .. } = config;
                    let sizes = [kernel, stride, dilation];
                    check_sizes(stringify!($Name), [in_channels, out_channels], groups, sizes)?;
                    if config.same && stride != [1; $N] {
                        return Err(Error::argument(
                            stringify!($Name),
                            format!("padding that keeps the size needs stride 1, got {stride:?}"),
                        ));
                    }
                    let mut shape = vec![out_channels, in_channels / groups];
                    shape.extend(kernel);
                    let weight = Tensor::empty(&shape, config.dtype, config.device)?;
                    init::default_weight_(&weight)?;
                    let bias = config
                        .bias
                        .then(|| init::default_bias(&weight))
                        .transpose()?;
                    let around = padding(stringify!($Name), &config, kernel)?;
                    Ok($Name {
                        weight: Parameter::new(weight)?,
                        bias: bias.map(Parameter::new).transpose()?,
                        options: ConvOptions {
                            stride,
                            padding: if around.is_some() { [0; $N] } else { config.padding },
                            dilation,
                            groups,
                        },
                        same: config.same && around.is_none(),
                        around,
                    })
                })
            }
        }

        impl Module for $Name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let weight = self.weight.tensor();
                let bias = self.bias.as_ref().map(Parameter::tensor);
                let padded = match &self.around {
                    Some((sides, mode)) => input.pad(sides, *mode),
                    None => Ok(input.clone()),
                };
                padded
                    .and_then(|input| match self.same {
                        true => input.conv_same(&weight, bias.as_ref(), self.options),
                        false => input.$conv(&weight, bias.as_ref(), self.options),
                    })
                    .within(Some(&self.weight), || {
                        let sizes = weight.shape();
                        let channels = sizes[1] * self.options.groups;
                        format!("{}({channels}, {}, {:?})", stringify!($Name), sizes[0], &sizes[2..])
                    })
            }
        }
    };
}

convolution! {
    /// Convolution (cross-correlation) of sequences `[N, in_channels, L]` (`torch.nn.Conv1d`); see [`Conv2d`].
    Conv1d, 1, conv1d
}

convolution! {
    /// Convolution (cross-correlation) of images `[N, in_channels, H, W]` (`torch.nn.Conv2d`).
    ///
    /// Parameters: `weight` `[out_channels, in_channels / groups, kernel_h, kernel_w]` and `bias` `[out_channels]`, both uniform
    /// in `±1/sqrt(fan_in)` at first, where `fan_in` is the number of weights of one output channel.
    Conv2d, 2, conv2d
}

convolution! {
    /// Convolution (cross-correlation) of volumes `[N, in_channels, D, H, W]` (`torch.nn.Conv3d`); see [`Conv2d`].
    Conv3d, 3, conv3d
}

impl Conv2d {
    /// The same convolution with another weight and bias.
    pub(crate) fn replaced(&self, weight: Tensor, bias: Tensor) -> Result<Conv2d> {
        Ok(Conv2d {
            weight: Parameter::new(weight)?,
            bias: Some(Parameter::new(bias)?),
            options: self.options,
            same: self.same,
            around: self.around.clone(),
        })
    }
}
