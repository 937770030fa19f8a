//! Convolutions of other forms than `conv2d`, made of it: `conv1d`, `conv3d`, the transposed ones, padding that keeps the size.

use fireclay_core::{DType, Error, Result, Shape, as_one_call};

use super::conv::{self, Conv2dOptions, ConvOptions};
use super::taps::{Taps, batched, shaped, unbatched, zeros};
use crate::tensor::Tensor;

/// How the kernel of a transposed convolution moves over `N` dimensions of its output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvTransposeOptions<const N: usize> {
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
}

impl<const N: usize> Default for ConvTransposeOptions<N> {
    fn default() -> ConvTransposeOptions<N> {
        ConvTransposeOptions {
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }
}

fn operands(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Vec<fireclay_core::Operand> {
    let bias = bias.map(|bias| bias.operand("bias"));
    let both = [input.operand("input"), weight.operand("weight")];
    both.into_iter().chain(bias).collect()
}

/// Checks the number of dimensions of a weight.
fn check_weight<const N: usize>(op: &'static str, weight: &Tensor) -> Result<()> {
    match weight.ndim() == N + 2 {
        true => Ok(()),
        false => {
            let what = format!(
                "expected a weight of {} dimensions, got {}",
                N + 2,
                weight.shape()
            );
            Err(Error::shape(op, what).with_operands(|| vec![weight.operand("weight")]))
        }
    }
}

/// Numbers that no size in memory reaches: sums and doubles of smaller ones do not overflow.
const MOST: usize = isize::MAX as usize / 8;

/// Windows along the depth of `size`, with their extent.
fn depth_taps(
    op: &'static str,
    size: usize,
    kernel: usize,
    options: &ConvOptions<3>,
) -> Result<Taps> {
    let ([stride, ..], [padding, ..], [dilation, ..]) =
        (options.stride, options.padding, options.dilation);
    if kernel == 0 || stride == 0 || dilation == 0 {
        let what = format!(
            "kernel, stride and dilation must be at least 1, got {kernel}, {stride} and {dilation}"
        );
        return Err(Error::argument(op, what));
    }
    let reach = (kernel - 1)
        .checked_mul(dilation)
        .filter(|reach| *reach < MOST);
    let (Some(reach), true) = (reach, size.max(stride).max(padding) < MOST) else {
        let what = format!(
            "a kernel of {kernel} by {dilation}, padded by {padding}, is larger than any memory"
        );
        return Err(Error::argument(op, what));
    };
    let Some(room) = (size + 2 * padding).checked_sub(reach + 1) else {
        let what = format!(
            "kernel (with dilation) must fit the padded input, got a kernel of {} and an input of {}",
            reach + 1,
            size + 2 * padding
        );
        return Err(Error::shape(op, what));
    };
    let taps = Taps {
        size,
        count: room / stride + 1,
        kernel,
        stride,
        padding,
        dilation,
    };
    taps.check(op)?;
    Ok(taps)
}

/// The options of the last two dimensions of three.
fn of_images(options: &ConvOptions<3>) -> Conv2dOptions {
    let last = |[_, height, width]: [usize; 3]| [height, width];
    ConvOptions {
        stride: last(options.stride),
        padding: last(options.padding),
        dilation: last(options.dilation),
        groups: options.groups,
    }
}

/// A weight `[o, c, d, h, w]` as one of images whose channels are the taps along the depth, `[o, c * d, h, w]`.
fn of_depth(weight: &Tensor) -> Result<Tensor> {
    let sizes = weight.shape();
    let Some(channels) = sizes[1].checked_mul(sizes[2]) else {
        let what = format!("a weight of {sizes} is larger than any memory");
        return Err(Error::shape("conv3d", what));
    };
    shaped(weight, &[sizes[0], channels, sizes[3], sizes[4]])
}

/// The output's size of a transposed convolution, less places at its end that nothing reaches, and how many those are.
fn transposed_size<const N: usize>(
    op: &'static str,
    input: &[usize],
    kernel: &[usize],
    options: &ConvTransposeOptions<N>,
) -> Result<[[usize; N]; 2]> {
    let (mut sizes, mut beyond) = ([0; N], [0; N]);
    for dim in 0..N {
        let (stride, dilation) = (options.stride[dim], options.dilation[dim]);
        let (padding, more) = (options.padding[dim], options.output_padding[dim]);
        let (input, kernel) = (input[dim], kernel[dim]);
        if stride == 0 || dilation == 0 || kernel == 0 || input == 0 {
            let what = format!(
                "input, kernel, stride and dilation must be at least 1, got {input}, {kernel}, {stride} and {dilation}"
            );
            return Err(Error::argument(op, what));
        }
        if more >= stride.max(dilation) {
            let what = format!(
                "output_padding must be less than stride or dilation, got {more} with stride {stride} and dilation {dilation}"
            );
            return Err(Error::argument(op, what));
        }
        let reached = more.min(stride - 1);
        let small = |size: &usize| *size < MOST;
        let full = ((input - 1).checked_mul(stride).filter(small))
            .zip(dilation.checked_mul(kernel - 1).filter(small))
            .map(|(steps, reach)| steps + reach + 1);
        let (Some(full), true, true) = (full, small(&padding), small(&reached)) else {
            let what = format!(
                "an input of {input} with stride {stride} and a kernel of {kernel} by {dilation} gives more than any memory has"
            );
            return Err(Error::argument(op, what));
        };
        match (full + reached).checked_sub(2 * padding) {
            Some(size) if size > 0 => sizes[dim] = size,
            _ => {
                let what = format!(
                    "padding {padding} on both sides leaves nothing of an output of {}",
                    full + reached
                );
                return Err(Error::argument(op, what));
            }
        }
        beyond[dim] = more - reached;
    }
    Ok([sizes, beyond])
}

impl Tensor {
    /// Correlates `[n, c, l]` (or `[c, l]`) with `weight` `[o, c / groups, k]` and adds `bias` `[o]`: `[n, o, l']`
    /// (`torch.nn.functional.conv1d`).
    #[track_caller]
    pub fn conv1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions<1>,
    ) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<1>("conv1d", self)?;
            check_weight::<1>("conv1d", weight)?;
            let options = ConvOptions {
                stride: [1, options.stride[0]],
                padding: [0, options.padding[0]],
                dilation: [1, options.dilation[0]],
                groups: options.groups,
            };
            let output = input
                .unsqueeze(2)?
                .conv2d(&weight.unsqueeze(2)?, bias, options)?;
            unbatched(output.squeeze(2)?, added)
        })
    }

    /// Correlates `[n, c, d, h, w]` (or `[c, d, h, w]`) with `weight` `[o, c / groups, kd, kh, kw]` and adds `bias` `[o]`:
    /// `[n, o, d', h', w']` (`torch.nn.functional.conv3d`).
    ///
    /// It is one [`conv2d`](Tensor::conv2d) of images whose channels are what the kernel sees along the depth, so it needs memory
    /// for `kd` copies of the input.
    #[track_caller]
    pub fn conv3d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions<3>,
    ) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<3>("conv3d", self)?;
            check_weight::<3>("conv3d", weight)?;
            let &[batch, channels, depth, height, width] = &input.shape()[..] else {
                unreachable!("the number of dimensions is checked");
            };
            if weight.shape()[1].checked_mul(options.groups) != Some(channels) {
                let what = format!(
                    "the input has {channels} channels, the weight {} takes {} in each of {} groups",
                    weight.shape(),
                    weight.shape()[1],
                    options.groups
                );
                return Err(
                    Error::shape("conv3d", what).with_operands(|| operands(self, weight, bias))
                );
            }
            let taps = depth_taps("conv3d", depth, weight.shape()[2], &options)
                .map_err(|error| error.with_operands(|| operands(self, weight, bias)))?;
            let seen = taps.take("conv3d", &input, 2)?;
            let seen = shaped(
                &seen,
                &[batch, channels, taps.count, taps.kernel, height, width],
            )?
            .permute(&[0, 2, 1, 3, 4, 5])?;
            let images = [batch * taps.count, channels * taps.kernel, height, width];
            let output =
                shaped(&seen, &images)?.conv2d(&of_depth(weight)?, bias, of_images(&options))?;
            let &[_, channels, height, width] = &output.shape()[..] else {
                unreachable!("conv2d gives images");
            };
            let output = shaped(&output, &[batch, taps.count, channels, height, width])?;
            unbatched(output.transpose(1, 2)?.contiguous()?, added)
        })
    }

    /// A convolution of stride 1 over `N` of 1 to 3 dimensions whose output has the input's size (`padding="same"` of
    /// `torch.nn.functional.conv1d` to `conv3d`). `options.padding` is not read. Where the zeros are odd in number, there is
    /// one more at the end.
    ///
    /// # Errors
    /// A stride that is not 1, and what the convolution refuses.
    #[track_caller]
    pub fn conv_same<const N: usize>(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions<N>,
    ) -> Result<Tensor> {
        as_one_call(|| {
            let op = ["conv1d", "conv2d", "conv3d"]
                .get(N.wrapping_sub(1))
                .copied()
                .unwrap_or("conv");
            check_weight::<N>(op, weight)?;
            if options.stride != [1; N] {
                let what = format!(
                    "padding=\"same\" takes a stride of 1, got {:?}",
                    options.stride
                );
                return Err(
                    Error::argument(op, what).with_operands(|| operands(self, weight, bias))
                );
            }
            let mut padding = [0; N];
            let mut odd = [false; N];
            for dim in 0..N {
                let reach = weight.shape()[2 + dim].saturating_sub(1);
                let Some(zeros) = reach.checked_mul(options.dilation[dim]) else {
                    let what = format!(
                        "a dilation of {} is larger than any memory",
                        options.dilation[dim]
                    );
                    return Err(Error::argument(op, what));
                };
                padding[dim] = zeros.div_ceil(2);
                odd[dim] = zeros % 2 == 1;
            }
            let options = ConvOptions { padding, ..options };
            let mut output = match N {
                1 => self.conv1d(weight, bias, options.as_dims::<1>())?,
                2 => self.conv2d(weight, bias, options.as_dims::<2>())?,
                3 => self.conv3d(weight, bias, options.as_dims::<3>())?,
                _ => {
                    let what = format!("convolutions are over 1 to 3 dimensions, got {N}");
                    return Err(Error::argument(op, what));
                }
            };
            for dim in (0..N).filter(|&dim| odd[dim]) {
                // As many zeros on both sides: the first result is one too many.
                let at = output.ndim() - N + dim;
                output = output.narrow(at as isize, 1, output.shape()[at] - 1)?;
            }
            output.contiguous()
        })
    }

    /// The transposed convolution of `[n, c, l]` with `weight` `[c, o / groups, k]`, plus `bias` `[o]`: `[n, o, l']`, where a
    /// convolution of these options makes `l` of `l'` (`torch.nn.functional.conv_transpose1d`).
    #[track_caller]
    pub fn conv_transpose1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<1>,
    ) -> Result<Tensor> {
        as_one_call(|| {
            self.conv_transpose("conv_transpose1d", weight, bias, options, |x, w, size| {
                let flat = ConvOptions {
                    stride: [1, options.stride[0]],
                    padding: [0, options.padding[0]],
                    dilation: [1, options.dilation[0]],
                    groups: options.groups,
                };
                let [batch, channels] = [x.shape()[0], w.shape()[1] * options.groups];
                let shape = Shape::new(&[batch, channels, 1, size[0]]);
                conv::input_of(&x.unsqueeze(2)?, &w.unsqueeze(2)?, flat, shape)?.squeeze(2)
            })
        })
    }

    /// The transposed convolution of images `[n, c, h, w]` with `weight` `[c, o / groups, kh, kw]`, plus `bias` `[o]`:
    /// `[n, o, h', w']`, where a convolution of these options makes `h` of `h'` (`torch.nn.functional.conv_transpose2d`).
    #[track_caller]
    pub fn conv_transpose2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<2>,
    ) -> Result<Tensor> {
        as_one_call(|| {
            self.conv_transpose("conv_transpose2d", weight, bias, options, |x, w, size| {
                let [batch, channels] = [x.shape()[0], w.shape()[1] * options.groups];
                let shape = Shape::new(&[batch, channels, size[0], size[1]]);
                let options = ConvOptions {
                    stride: options.stride,
                    padding: options.padding,
                    dilation: options.dilation,
                    groups: options.groups,
                };
                conv::input_of(x, w, options, shape)
            })
        })
    }

    /// The transposed convolution of `[n, c, d, h, w]` with `weight` `[c, o / groups, kd, kh, kw]`, plus `bias` `[o]`:
    /// `[n, o, d', h', w']`, where a convolution of these options makes `d` of `d'` (`torch.nn.functional.conv_transpose3d`).
    #[track_caller]
    pub fn conv_transpose3d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<3>,
    ) -> Result<Tensor> {
        const OP: &str = "conv_transpose3d";
        as_one_call(|| {
            self.conv_transpose(OP, weight, bias, options, |x, w, size| {
                let &[batch, channels, depth, height, width] = &x.shape()[..] else {
                    unreachable!("the number of dimensions is checked");
                };
                let [kernel, results] = [w.shape()[2], w.shape()[1] * options.groups];
                let taps = Taps {
                    size: size[0],
                    count: depth,
                    kernel,
                    stride: options.stride[0],
                    padding: options.padding[0],
                    dilation: options.dilation[0],
                };
                taps.check(OP)?;
                let images = x.transpose(1, 2)?;
                let images = shaped(&images, &[batch * depth, channels, height, width])?;
                let of_image = of_images(&ConvOptions {
                    stride: options.stride,
                    padding: options.padding,
                    dilation: options.dilation,
                    groups: options.groups,
                });
                let shape = Shape::new(&[batch * depth, results * kernel, size[1], size[2]]);
                let parts = conv::input_of(&images, &of_depth(w)?, of_image, shape)?;
                let parts = shaped(&parts, &[batch, depth, results, kernel, size[1], size[2]])?;
                let parts = parts.permute(&[0, 2, 1, 3, 4, 5])?;
                let parts = shaped(&parts, &[batch, results, depth * kernel, size[1], size[2]])?;
                taps.add(OP, &parts, 2)?.contiguous()
            })
        })
    }

    /// Checks, then adds to what `transpose` makes of input, weight and output size what all transposed convolutions have.
    #[track_caller]
    fn conv_transpose<const N: usize>(
        &self,
        op: &'static str,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<N>,
        transpose: impl FnOnce(&Tensor, &Tensor, [usize; N]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (input, added) = batched::<N>(op, self)?;
        check_weight::<N>(op, weight)?;
        let fail = |error: Error| error.with_operands(|| operands(self, weight, bias));
        let channels = input.shape()[1];
        let groups = options.groups;
        if groups == 0 || weight.shape()[0] != channels || !channels.is_multiple_of(groups) {
            let what = format!(
                "the input has {channels} channels, the weight {} takes {} in {groups} groups",
                weight.shape(),
                weight.shape()[0]
            );
            return Err(fail(Error::shape(op, what)));
        }
        let Some(results) = weight.shape()[1].checked_mul(groups) else {
            return Err(fail(Error::shape(
                op,
                format!("{groups} groups are too many"),
            )));
        };
        if let Some(bias) = bias
            && bias.shape()[..] != [results]
        {
            let what = format!("expected bias [{results}], got {}", bias.shape());
            return Err(fail(Error::shape(op, what)));
        }
        let of_weight = weight.dtype();
        let others = [Some(&input), bias];
        if let Some(other) = others
            .into_iter()
            .flatten()
            .find(|x| x.dtype() != of_weight)
        {
            let what = format!(
                "expected operands of one floating dtype, got {of_weight} and {}",
                other.dtype()
            );
            return Err(fail(Error::dtype(op, what)));
        }
        let kernel = &weight.shape()[2..];
        let [sizes, beyond] =
            transposed_size(op, &input.shape()[2..], kernel, &options).map_err(fail)?;
        // 16-bit results with a bias are rounded once, after it is added.
        let once = bias.is_some() && of_weight.is_half();
        let [input, weight] = match once {
            true => [input.to_dtype(DType::F32)?, weight.to_dtype(DType::F32)?],
            false => [input, weight.clone()],
        };
        let mut output = transpose(&input, &weight, sizes).map_err(fail)?;
        for (dim, &more) in beyond.iter().enumerate().filter(|(_, more)| **more > 0) {
            let mut shape = output.shape().to_vec();
            shape[2 + dim] = more;
            let rest = zeros(&shape, &output)?;
            output = Tensor::cat(&[&output, &rest], 2 + dim as isize)?;
        }
        if let Some(bias) = bias {
            let mut shape = vec![1; N + 1];
            shape[0] = results;
            let bias = bias.to_dtype(output.dtype())?;
            output = output.add(&shaped(&bias, &shape)?)?.to_dtype(of_weight)?;
        }
        unbatched(output, added)
    }
}

impl<const N: usize> ConvOptions<N> {
    /// The same options where `M` is `N`.
    fn as_dims<const M: usize>(self) -> ConvOptions<M> {
        ConvOptions {
            stride: std::array::from_fn(|dim| self.stride[dim]),
            padding: std::array::from_fn(|dim| self.padding[dim]),
            dilation: std::array::from_fn(|dim| self.dilation[dim]),
            groups: self.groups,
        }
    }
}
