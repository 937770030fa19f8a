//! Blocks of images and columns: `unfold`, `fold`, and the shuffles of pixels and channels.

use fireclay_core::{Error, Result, as_one_call};

use super::taps::{batched, indices, shaped, unbatched, with_zero, zeros};
use crate::tensor::Tensor;

/// Blocks of an image. Pairs are (height, width).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// Size of a block.
    pub kernel: [usize; 2],
    /// Steps from block to block; 1 in PyTorch unless said.
    pub stride: [usize; 2],
    /// Zeros put on each side.
    pub padding: [usize; 2],
    /// Distance between pixels of a block.
    pub dilation: [usize; 2],
}

/// More pixels than any plane in memory has.
const MOST: usize = 1 << 30;

impl Blocks {
    /// Blocks of this size, one at each pixel where it fits.
    pub fn new(kernel: [usize; 2]) -> Blocks {
        Blocks {
            kernel,
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
        }
    }

    /// How many blocks an image of `size` has.
    fn counts(&self, op: &'static str, size: [usize; 2]) -> Result<[usize; 2]> {
        let mut counts = [0; 2];
        for dim in 0..2 {
            let (kernel, stride) = (self.kernel[dim], self.stride[dim]);
            let (padding, dilation) = (self.padding[dim], self.dilation[dim]);
            if kernel == 0 || stride == 0 || dilation == 0 {
                let what = format!("kernel, stride and dilation must be at least 1, got {self:?}");
                return Err(Error::argument(op, what));
            }
            let reach = dilation.checked_mul(kernel - 1);
            let padded = padding
                .checked_mul(2)
                .and_then(|zeros| zeros.checked_add(size[dim]));
            let room = padded
                .zip(reach)
                .and_then(|(padded, reach)| padded.checked_sub(reach)?.checked_sub(1));
            let Some(room) = room else {
                let what = format!(
                    "expected blocks that fit into the padded image {size:?}, got {self:?}"
                );
                return Err(Error::shape(op, what));
            };
            counts[dim] = room / stride + 1;
        }
        let numbers = [counts, self.kernel];
        let numel =
            (numbers.as_flattened().iter()).try_fold(1usize, |all, &count| all.checked_mul(count));
        if numel.is_none_or(|numel| numel > MOST) {
            let what = format!(
                "{} by {} blocks of {:?} are more than there is memory for",
                counts[0], counts[1], self.kernel
            );
            return Err(Error::argument(op, what));
        }
        Ok(counts)
    }

    /// The pixel, flat in its plane, of each place of all blocks, by place and then by block; `height * width` where it is zero.
    fn table(&self, size: [usize; 2], counts: [usize; 2], like: &Tensor) -> Result<Tensor> {
        let [height, width] = size;
        let blocks = *self;
        let pixel = move |at: [usize; 2], tap: [usize; 2]| {
            let place = |dim: usize| {
                (at[dim] * blocks.stride[dim] + tap[dim] * blocks.dilation[dim])
                    .checked_sub(blocks.padding[dim])
                    .filter(|&place| place < size[dim])
            };
            place(0)
                .zip(place(1))
                .map_or(height * width, |(y, x)| y * width + x)
        };
        let taps =
            (0..self.kernel[0]).flat_map(move |y| (0..blocks.kernel[1]).map(move |x| [y, x]));
        let all = move || (0..counts[0]).flat_map(move |y| (0..counts[1]).map(move |x| [y, x]));
        indices(
            taps.flat_map(move |tap| all().map(move |at| pixel(at, tap))),
            like,
        )
    }
}

impl Tensor {
    /// The blocks of images `[n, c, h, w]` or `[c, h, w]` as columns: `[n, c * kh * kw, blocks]`
    /// (`torch.nn.functional.unfold`).
    #[track_caller]
    pub fn im2col(&self, blocks: Blocks) -> Result<Tensor> {
        as_one_call(|| {
            let (images, added) = batched::<2>("unfold", self)?;
            let &[batch, channels, height, width] = &images.shape()[..] else {
                unreachable!("the number of dimensions is checked");
            };
            let counts = blocks
                .counts("unfold", [height, width])
                .map_err(|error| error.with_operands(|| vec![self.operand("input")]))?;
            let table = blocks.table([height, width], counts, self)?;
            let planes = shaped(&images, &[batch, channels, height * width])?;
            let seen = with_zero(&planes, 2)?.index_select(2, &table)?;
            let rows = channels * blocks.kernel[0] * blocks.kernel[1];
            unbatched(shaped(&seen, &[batch, rows, counts[0] * counts[1]])?, added)
        })
    }

    /// Images of `size` whose blocks are the columns of `[n, c * kh * kw, blocks]`, where they overlap added up: the gradient of
    /// [`im2col`](Tensor::im2col) (`torch.nn.functional.fold`).
    #[track_caller]
    pub fn col2im(&self, size: [usize; 2], blocks: Blocks) -> Result<Tensor> {
        as_one_call(|| {
            let (columns, added) = batched::<1>("fold", self)?;
            let &[batch, rows, count] = &columns.shape()[..] else {
                unreachable!("the number of dimensions is checked");
            };
            let fail = |error: Error| error.with_operands(|| vec![self.operand("input")]);
            let counts = blocks.counts("fold", size).map_err(fail)?;
            let [height, width] = size;
            let pixels = height.checked_mul(width).filter(|&pixels| pixels <= MOST);
            let per_channel = blocks.kernel[0] * blocks.kernel[1];
            let (Some(pixels), true) = (
                pixels,
                counts[0] * counts[1] == count && rows.is_multiple_of(per_channel),
            ) else {
                let what = format!(
                    "expected [n, c * {per_channel}, {}] for images of {height} by {width}, got {}",
                    counts[0] * counts[1],
                    self.shape()
                );
                return Err(fail(Error::shape("fold", what)));
            };
            let channels = rows / per_channel;
            let table = blocks.table(size, counts, self)?;
            let seen = shaped(&columns, &[batch, channels, per_channel * count])?;
            let planes = zeros(&[batch, channels, pixels + 1], self)?
                .index_add(2, &table, &seen)?
                .narrow(2, 0, pixels)?;
            unbatched(shaped(&planes, &[batch, channels, height, width])?, added)
        })
    }

    /// Each `r * r` channels of `[.., c * r * r, h, w]` as one of `[.., c, h * r, w * r]` (`torch.nn.functional.pixel_shuffle`).
    #[track_caller]
    pub fn pixel_shuffle(&self, upscale_factor: usize) -> Result<Tensor> {
        let r = upscale_factor;
        as_one_call(|| {
            let sizes = self.shape().split_last_chunk::<3>();
            let square = r.checked_mul(r).filter(|&square| square > 0);
            let fit = sizes
                .zip(square)
                .filter(|((_, [channels, ..]), square)| channels.is_multiple_of(*square));
            let sizes = fit.and_then(|((lead, &[channels, height, width]), square)| {
                let grown = [
                    channels / square,
                    height.checked_mul(r)?,
                    width.checked_mul(r)?,
                ];
                Some((lead, [channels / square, r, r, height, width], grown))
            });
            let Some((lead, parts, grown)) = sizes else {
                let what = format!("expected [.., c * {r} * {r}, h, w], got {}", self.shape());
                return Err(Error::shape("pixel_shuffle", what)
                    .with_operands(|| vec![self.operand("input")]));
            };
            let moved = self.regrouped(lead, &parts, &[0, 3, 1, 4, 2])?;
            shaped(&moved, &[lead, &grown].concat())
        })
    }

    /// The inverse of [`pixel_shuffle`](Tensor::pixel_shuffle): `[.., c, h * r, w * r]` as `[.., c * r * r, h, w]`
    /// (`torch.nn.functional.pixel_unshuffle`).
    #[track_caller]
    pub fn pixel_unshuffle(&self, downscale_factor: usize) -> Result<Tensor> {
        let r = downscale_factor;
        as_one_call(|| {
            let sizes = self.shape().split_last_chunk::<3>();
            let fit = sizes.filter(|(_, [_, height, width])| {
                r > 0 && height.is_multiple_of(r) && width.is_multiple_of(r)
            });
            let sizes = fit.and_then(|(lead, &[channels, height, width])| {
                let grown = channels.checked_mul(r)?.checked_mul(r)?;
                Some((
                    lead,
                    [channels, height / r, r, width / r, r],
                    [grown, height / r, width / r],
                ))
            });
            let Some((lead, parts, shrunk)) = sizes else {
                let what = format!("expected [.., c, h * {r}, w * {r}], got {}", self.shape());
                return Err(Error::shape("pixel_unshuffle", what)
                    .with_operands(|| vec![self.operand("input")]));
            };
            let moved = self.regrouped(lead, &parts, &[0, 2, 4, 1, 3])?;
            shaped(&moved, &[lead, &shrunk].concat())
        })
    }

    /// Channels `[n, g * k, ..]` in the order of `[n, k * g, ..]` (`torch.nn.functional.channel_shuffle`).
    #[track_caller]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        as_one_call(|| {
            let shape = self.shape();
            if shape.ndim() < 3 || groups == 0 || !shape[1].is_multiple_of(groups) {
                let what = format!(
                    "expected [n, c, ..] with channels in {groups} equal groups, got {shape}"
                );
                return Err(Error::shape("channel_shuffle", what)
                    .with_operands(|| vec![self.operand("input")]));
            }
            let places = shape[2..].iter().product();
            let parts = [groups, shape[1] / groups, places];
            self.regrouped(&shape[..1], &parts, &[1, 0, 2])?
                .reshape_to(shape)
        })
    }

    /// The dimensions after `lead` as `parts`, permuted.
    #[track_caller]
    fn regrouped(&self, lead: &[usize], parts: &[usize], order: &[usize]) -> Result<Tensor> {
        let first = lead.iter().product();
        let parted = shaped(self, &[&[first], parts].concat())?;
        let order: Vec<isize> = (order.iter()).map(|&dim| dim as isize + 1).collect();
        parted.permute(&[&[0], &order[..]].concat())?.contiguous()
    }
}
