//! Pooling of other forms than those of images, made of these: in 1 and 3 dimensions, adaptive maxima, `lp_pool`, `max_unpool`.

use fireclay_core::{Error, Result, Shape, as_one_call};

use super::pool::{AvgPool, Pool};
use super::taps::{Taps, batched, indices, shaped, unbatched, zeros};
use crate::formula::Formula;
use crate::tensor::Tensor;

/// Windows of which no 32-bit machine word overflows: what is computed of smaller ones fits into 64 bits.
const MOST: usize = isize::MAX as usize / 8;

/// A window along one dimension as one of images.
fn flat(window: Pool<1>) -> Pool<2> {
    Pool {
        kernel: [1, window.kernel[0]],
        stride: [1, window.stride[0]],
        padding: [0, window.padding[0]],
        dilation: [1, window.dilation[0]],
        ceil_mode: window.ceil_mode,
    }
}

/// A window of three dimensions as one of images and one along the depth, of images whose rows are the depth.
fn parted(window: Pool<3>) -> [Pool<2>; 2] {
    let last = |[_, height, width]: [usize; 3]| [height, width];
    let images = Pool {
        kernel: last(window.kernel),
        stride: last(window.stride),
        padding: last(window.padding),
        dilation: last(window.dilation),
        ceil_mode: window.ceil_mode,
    };
    let depth = Pool {
        kernel: [window.kernel[0], 1],
        stride: [window.stride[0], 1],
        padding: [window.padding[0], 0],
        dilation: [window.dilation[0], 1],
        ceil_mode: window.ceil_mode,
    };
    [images, depth]
}

/// `[planes, depth, height, width]` of `[.., depth, height, width]`.
fn volumes(tensor: &Tensor) -> [usize; 4] {
    let shape = tensor.shape();
    let lead = shape.ndim() - 3;
    let planes = shape[..lead].iter().product();
    [planes, shape[lead], shape[lead + 1], shape[lead + 2]]
}

/// Pools volumes: `images` takes those of all depths, `depth` then the depths of all places.
#[track_caller]
fn by_parts(
    volumes_of: &Tensor,
    images: impl FnOnce(&Tensor) -> Result<Tensor>,
    depth: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let [planes, size, height, width] = volumes(volumes_of);
    let pooled = images(&shaped(volumes_of, &[planes * size, height, width])?)?;
    let [height, width] = [pooled.shape()[1], pooled.shape()[2]];
    let pooled = depth(&shaped(&pooled, &[planes, size, height * width])?)?;
    let mut shape = volumes_of.shape().to_vec();
    let lead = shape.len() - 3;
    shape[lead..].copy_from_slice(&[pooled.shape()[1], height, width]);
    shaped(&pooled, &shape)
}

/// The places that adaptive window `window` of `count` sees of `size`.
fn fitted(window: usize, count: usize, size: usize) -> [usize; 2] {
    let (window, count, size) = (window as u128, count as u128, size as u128);
    let start = window * size / count;
    let end = ((window + 1) * size).div_ceil(count);
    [start as usize, end as usize]
}

impl Tensor {
    /// The largest value of each window of `[n, c, l]` or `[c, l]`; NaN where there is one (`torch.nn.functional.max_pool1d`).
    #[track_caller]
    pub fn max_pool1d(&self, window: Pool<1>) -> Result<Tensor> {
        Ok(self.max_pool1d_with_indices(window)?.0)
    }

    /// [`max_pool1d`](Tensor::max_pool1d) with the chosen places, i64 (`return_indices=True`).
    #[track_caller]
    pub fn max_pool1d_with_indices(&self, window: Pool<1>) -> Result<(Tensor, Tensor)> {
        as_one_call(|| {
            let (input, added) = batched::<1>("max_pool1d", self)?;
            let images = input.unsqueeze(2)?;
            let (values, places) = images.max_pool2d_with_indices(flat(window))?;
            Ok((
                unbatched(values.squeeze(2)?, added)?,
                unbatched(places.squeeze(2)?, added)?,
            ))
        })
    }

    /// The largest value of each window of `[n, c, d, h, w]` or `[c, d, h, w]`; NaN where there is one
    /// (`torch.nn.functional.max_pool3d`).
    #[track_caller]
    pub fn max_pool3d(&self, window: Pool<3>) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<3>("max_pool3d", self)?;
            let [images, depth] = parted(window);
            let pooled = by_parts(&input, |x| x.max_pool2d(images), |x| x.max_pool2d(depth))?;
            unbatched(pooled, added)
        })
    }

    /// [`max_pool3d`](Tensor::max_pool3d) with the chosen places, i64, flat in each volume (`return_indices=True`).
    #[track_caller]
    pub fn max_pool3d_with_indices(&self, window: Pool<3>) -> Result<(Tensor, Tensor)> {
        as_one_call(|| {
            let (input, added) = batched::<3>("max_pool3d", self)?;
            let [planes, size, height, width] = volumes(&input);
            let [images, depth] = parted(window);
            let slices = shaped(&input, &[planes * size, height, width])?;
            let (values, places) = slices.max_pool2d_with_indices(images)?;
            let [rows, columns] = [values.shape()[1], values.shape()[2]];
            let values = shaped(&values, &[planes, size, rows * columns])?;
            let (values, chosen) = values.max_pool2d_with_indices(depth)?;
            let starts = indices((0..size).map(|z| z * height * width), &input)?;
            let places = shaped(&places, &[planes, size, rows * columns])?
                .add(&shaped(&starts, &[size, 1])?)?;
            let places = shaped(&places, &[planes, size * rows * columns])?;
            let depths = chosen.shape()[1];
            let chosen = shaped(&chosen, &[planes, depths * rows * columns])?;
            let places = places.gather(1, &chosen)?;
            let [batch, channels] = [input.shape()[0], input.shape()[1]];
            let shape = [batch, channels, depths, rows, columns];
            Ok((
                unbatched(shaped(&values, &shape)?, added)?,
                unbatched(shaped(&places, &shape)?, added)?,
            ))
        })
    }

    /// The average of each window of `[n, c, l]` or `[c, l]` (`torch.nn.functional.avg_pool1d`).
    #[track_caller]
    pub fn avg_pool1d(&self, window: AvgPool<1>) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<1>("avg_pool1d", self)?;
            let window = AvgPool {
                window: flat(window.window),
                count_include_pad: window.count_include_pad,
                divisor_override: window.divisor_override,
            };
            let pooled = input.unsqueeze(2)?.avg_pool2d(window)?;
            unbatched(pooled.squeeze(2)?, added)
        })
    }

    /// The average of each window of `[n, c, d, h, w]` or `[c, d, h, w]` (`torch.nn.functional.avg_pool3d`).
    #[track_caller]
    pub fn avg_pool3d(&self, window: AvgPool<3>) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<3>("avg_pool3d", self)?;
            let [images, depth] = parted(window.window);
            // The number of places is a product of one factor per dimension, with padding or without.
            let average = |part, divisor_override| AvgPool {
                window: part,
                count_include_pad: window.count_include_pad,
                divisor_override,
            };
            let images = average(images, window.divisor_override);
            let depth = average(depth, window.divisor_override.map(|_| 1));
            let pooled = by_parts(&input, |x| x.avg_pool2d(images), |x| x.avg_pool2d(depth))?;
            unbatched(pooled, added)
        })
    }

    /// Averages over windows chosen so that `[n, c, l]` comes out with `size` (`torch.nn.functional.adaptive_avg_pool1d`).
    #[track_caller]
    pub fn adaptive_avg_pool1d(&self, size: [usize; 1]) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<1>("adaptive_avg_pool1d", self)?;
            let pooled = input.unsqueeze(2)?.adaptive_avg_pool2d([1, size[0]])?;
            unbatched(pooled.squeeze(2)?, added)
        })
    }

    /// Averages over windows chosen so that `[n, c, d, h, w]` comes out with `size`
    /// (`torch.nn.functional.adaptive_avg_pool3d`).
    #[track_caller]
    pub fn adaptive_avg_pool3d(&self, size: [usize; 3]) -> Result<Tensor> {
        as_one_call(|| {
            let (input, added) = batched::<3>("adaptive_avg_pool3d", self)?;
            let [depth, height, width] = size;
            if height == 0 || width == 0 {
                let shape = [&input.shape()[..2], &size].concat();
                return unbatched(zeros(&shape, &input)?, added);
            }
            let of_depth = |x: &Tensor| x.adaptive_avg_pool2d([depth, height * width]);
            let pooled = by_parts(&input, |x| x.adaptive_avg_pool2d([height, width]), of_depth)?;
            unbatched(pooled, added)
        })
    }

    /// The largest value of each of as many windows as give `size`, over the last `N` of 1 to 3 dimensions of `[n, c, ..]` or
    /// `[c, ..]`, and the chosen places, i64, flat in these dimensions (`torch.nn.functional.adaptive_max_pool1d` to `3d` with
    /// `return_indices=True`).
    #[track_caller]
    pub fn adaptive_max_pool_with_indices<const N: usize>(
        &self,
        size: [usize; N],
    ) -> Result<(Tensor, Tensor)> {
        const NAMES: [&str; 3] = [
            "adaptive_max_pool1d",
            "adaptive_max_pool2d",
            "adaptive_max_pool3d",
        ];
        let op = NAMES
            .get(N.wrapping_sub(1))
            .copied()
            .unwrap_or("adaptive_max_pool");
        as_one_call(|| {
            let (input, added) = batched::<N>(op, self)?;
            let of = input.shape()[2..].to_vec();
            if of.contains(&0) || size.iter().any(|&size| size > MOST) {
                let what = format!(
                    "expected sizes of at least 1 before, and after such as memory has, got {} to {size:?}",
                    input.shape()
                );
                return Err(Error::shape(op, what).with_operands(|| vec![self.operand("input")]));
            }
            if size.contains(&0) {
                let shape = [&input.shape()[..2], &size].concat();
                let places =
                    Tensor::full_of(&shape, 0i64, fireclay_core::DType::I64, self.device())?;
                return Ok((
                    unbatched(zeros(&shape, &input)?, added)?,
                    unbatched(places, added)?,
                ));
            }
            // Windows of unequal length see their last place several times; the first time counts.
            let mut wide = input.clone();
            let mut kernel = [1; N];
            let mut seen: Vec<Option<Vec<usize>>> = Vec::new();
            for dim in 0..N {
                let windows = (0..size[dim]).map(|window| fitted(window, size[dim], of[dim]));
                let longest = windows.clone().map(|[start, end]| end - start).max();
                kernel[dim] = longest.unwrap_or(1);
                if of[dim].is_multiple_of(size[dim]) {
                    seen.push(None);
                    continue;
                }
                let taps = Taps {
                    size: of[dim],
                    count: size[dim],
                    kernel: kernel[dim],
                    stride: 0,
                    padding: 0,
                    dilation: 0,
                };
                taps.check(op)?;
                let places: Vec<usize> = windows
                    .flat_map(|[start, end]| {
                        (0..kernel[dim]).map(move |tap| (start + tap).min(end - 1))
                    })
                    .collect();
                let table = indices(places.iter().copied(), &input)?;
                wide = wide.index_select(2 + dim as isize, &table)?;
                seen.push(Some(places));
            }
            let (values, places) = wide.max_pool_with_indices(op, Pool::new(kernel))?;
            let places = if seen.iter().all(Option::is_none) {
                places
            } else {
                let numel: usize = wide.shape()[2..].iter().product();
                let table = (0..numel).map(|place| {
                    let (mut rest, mut flat, mut stride) = (place, 0, 1);
                    for dim in (0..N).rev() {
                        let size = wide.shape()[2 + dim];
                        let at = rest % size;
                        flat += stride * seen[dim].as_ref().map_or(at, |places| places[at]);
                        (rest, stride) = (rest / size, stride * of[dim]);
                    }
                    flat
                });
                let table = indices(table, &input)?;
                let chosen = shaped(&places, &[places.numel()])?;
                table.index_select(0, &chosen)?.reshape_to(places.shape())?
            };
            Ok((unbatched(values, added)?, unbatched(places, added)?))
        })
    }

    /// [`adaptive_max_pool_with_indices`](Tensor::adaptive_max_pool_with_indices) without the places
    /// (`torch.nn.functional.adaptive_max_pool1d`).
    #[track_caller]
    pub fn adaptive_max_pool1d(&self, size: [usize; 1]) -> Result<Tensor> {
        Ok(self.adaptive_max_pool_with_indices(size)?.0)
    }

    /// [`adaptive_max_pool_with_indices`](Tensor::adaptive_max_pool_with_indices) without the places
    /// (`torch.nn.functional.adaptive_max_pool2d`).
    #[track_caller]
    pub fn adaptive_max_pool2d(&self, size: [usize; 2]) -> Result<Tensor> {
        Ok(self.adaptive_max_pool_with_indices(size)?.0)
    }

    /// [`adaptive_max_pool_with_indices`](Tensor::adaptive_max_pool_with_indices) without the places
    /// (`torch.nn.functional.adaptive_max_pool3d`).
    #[track_caller]
    pub fn adaptive_max_pool3d(&self, size: [usize; 3]) -> Result<Tensor> {
        Ok(self.adaptive_max_pool_with_indices(size)?.0)
    }

    #[track_caller]
    fn max_pool_with_indices<const N: usize>(
        &self,
        op: &'static str,
        window: Pool<N>,
    ) -> Result<(Tensor, Tensor)> {
        match N {
            1 => self.max_pool1d_with_indices(window.as_dims()),
            2 => self.max_pool2d_with_indices(window.as_dims()),
            3 => self.max_pool3d_with_indices(window.as_dims()),
            _ => Err(Error::argument(
                op,
                format!("pooling is over 1 to 3 dimensions, got {N}"),
            )),
        }
    }

    /// The `norm_type`-norm of each window over the last `N` of 1 to 3 dimensions, `(sum x^p)^(1/p)`; a negative sum counts as
    /// 0 (`torch.nn.functional.lp_pool1d` to `lp_pool3d`).
    ///
    /// # Errors
    /// A `norm_type` of 0, padding, dilation, and what [`avg_pool2d`](Tensor::avg_pool2d) refuses.
    #[track_caller]
    pub fn lp_pool<const N: usize>(&self, norm_type: f64, window: Pool<N>) -> Result<Tensor> {
        let names = ["lp_pool1d", "lp_pool2d", "lp_pool3d"];
        let op = names.get(N.wrapping_sub(1)).copied().unwrap_or("lp_pool");
        as_one_call(|| {
            let fail = |what: String| {
                Err(Error::argument(op, what).with_operands(|| vec![self.operand("input")]))
            };
            if window.padding != [0; N] || window.dilation != [1; N] {
                return fail(format!(
                    "expected no padding and no dilation, got {window:?}"
                ));
            }
            if norm_type == 0.0 || norm_type.is_nan() {
                return fail(format!(
                    "expected a norm_type other than 0, got {norm_type}"
                ));
            }
            let places = window
                .kernel
                .iter()
                .map(|&size| size as f64)
                .product::<f64>();
            let powers = self.pow(norm_type)?;
            let average = AvgPool {
                window,
                ..AvgPool::new(window.kernel)
            };
            let average = match N {
                1 => powers.avg_pool1d(average.as_dims())?,
                2 => powers.avg_pool2d(average.as_dims())?,
                3 => powers.avg_pool3d(average.as_dims())?,
                _ => return fail(format!("pooling is over 1 to 3 dimensions, got {N}")),
            };
            let average = Formula::from(&average);
            let sum = average.sign() * average.abs().relu() * places;
            sum.pow(1.0 / norm_type).eval()
        })
    }

    /// Puts values that [`max_pool2d_with_indices`](Tensor::max_pool2d_with_indices) and its siblings over the last `N`
    /// dimensions chose back to their places of `size`, among zeros (`torch.nn.functional.max_unpool1d` to `max_unpool3d`).
    /// Of values for one place the last one counts.
    #[track_caller]
    pub fn max_unpool<const N: usize>(&self, places: &Tensor, size: [usize; N]) -> Result<Tensor> {
        let names = ["max_unpool1d", "max_unpool2d", "max_unpool3d"];
        let op = names
            .get(N.wrapping_sub(1))
            .copied()
            .unwrap_or("max_unpool");
        as_one_call(|| {
            let operands = || vec![self.operand("input"), places.operand("indices")];
            let (input, added) = batched::<N>(op, self)?;
            if places.shape() != self.shape() {
                let what = format!(
                    "expected indices of the input's shape {}, got {}",
                    self.shape(),
                    places.shape()
                );
                return Err(Error::shape(op, what).with_operands(operands));
            }
            let volume = size
                .iter()
                .try_fold(1usize, |all, &size| all.checked_mul(size));
            let Some(volume) = volume.filter(|&volume| volume < MOST) else {
                let what = format!("an output of {size:?} is larger than any memory");
                return Err(Error::argument(op, what).with_operands(operands));
            };
            let lead = [input.shape()[0], input.shape()[1]];
            let planes = lead[0] * lead[1];
            let chosen: usize = input.shape()[2..].iter().product();
            let values = shaped(&input, &[planes, chosen])?;
            let places = shaped(places, &[planes, chosen])?;
            let output = zeros(&[planes, volume], &input)?.scatter(1, &places, &values)?;
            let shape: Shape = lead.into_iter().chain(size).collect();
            unbatched(output.reshape_to(&shape)?, added)
        })
    }
}

impl<const N: usize> Pool<N> {
    /// The same window where `M` is `N`.
    fn as_dims<const M: usize>(self) -> Pool<M> {
        let sizes = |of: [usize; N]| std::array::from_fn(|dim| of[dim]);
        Pool {
            kernel: sizes(self.kernel),
            stride: sizes(self.stride),
            padding: sizes(self.padding),
            dilation: sizes(self.dilation),
            ceil_mode: self.ceil_mode,
        }
    }
}

impl<const N: usize> AvgPool<N> {
    /// The same window where `M` is `N`.
    fn as_dims<const M: usize>(self) -> AvgPool<M> {
        AvgPool {
            window: self.window.as_dims(),
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor_override,
        }
    }
}
