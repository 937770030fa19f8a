//! `interpolate` in all modes and dimensions: of images by a kernel, else dimension by dimension.

use fireclay_core::{DType, Error, Result, as_one_call};
use fireclay_cpu::interpolate::Resampling;

use super::interpolate::{InterpolateMode, InterpolateTo, resize};
use super::taps::{indices, shaped};
use crate::formula::Formula;
use crate::tensor::Tensor;

const OP: &str = "interpolate";
/// Tables of places have fewer rows: a dimension of so many pixels is refused.
const MOST: usize = 1 << 28;

/// From which pixels of a dimension those of another size come: tap by tap, one of each new pixel, with its weight.
struct Weighted {
    taps: Vec<(Vec<usize>, Vec<f64>)>,
}

/// The filter of an antialiased mode: half its width, and its value `x` from its middle.
type Filter = (f64, fn(f64) -> f64);

const TRIANGLE: Filter = (1.0, |x| (1.0 - x.abs()).max(0.0));
const CUBIC: Filter = (2.0, |x| convolved(x.abs(), -0.5));

/// The cubic convolution kernel at `x >= 0`.
fn convolved(x: f64, a: f64) -> f64 {
    match x {
        x if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
        _ => 0.0,
    }
}

/// One dimension on its way to another size.
#[derive(Clone, Copy)]
struct Side {
    from: usize,
    to: usize,
    /// Old pixels from one new pixel to the next.
    step: f64,
    /// Whether places are computed in f32, as those of f32 images are.
    single: bool,
}

impl Side {
    fn new(from: usize, to: usize, factor: Option<f64>, align_corners: bool, single: bool) -> Side {
        let step = match (align_corners, factor) {
            (true, _) if to > 1 => (from - 1) as f64 / (to - 1) as f64,
            (true, _) => 0.0,
            (false, Some(factor)) => 1.0 / factor,
            (false, None) => from as f64 / to as f64,
        };
        let step = if single { f64::from(step as f32) } else { step };
        Side {
            from,
            to,
            step,
            single,
        }
    }

    fn nearest(&self) -> Weighted {
        let place = |at: usize| {
            let place = match self.single {
                true => f64::from((at as f32 + 0.5) * self.step as f32),
                false => (at as f64 + 0.5) * self.step,
            };
            (place.floor() as usize).min(self.from - 1)
        };
        let places = (0..self.to).map(place).collect();
        Weighted {
            taps: vec![(places, Vec::new())],
        }
    }

    fn cubic(&self, align_corners: bool) -> Weighted {
        let last = self.from as i64 - 1;
        let mut taps = vec![(Vec::new(), Vec::new()); 4];
        for at in 0..self.to {
            let place = match align_corners {
                true => self.step * at as f64,
                false => self.step * (at as f64 + 0.5) - 0.5,
            };
            let rest = place - place.floor();
            for (tap, (places, weights)) in taps.iter_mut().enumerate() {
                let pixel = place.floor() as i64 + tap as i64 - 1;
                places.push(pixel.clamp(0, last) as usize);
                weights.push(convolved((rest + 1.0 - tap as f64).abs(), -0.75));
            }
        }
        Weighted { taps }
    }

    fn antialiased(&self, (half, filter): Filter) -> Weighted {
        let widened = self.step.max(1.0);
        let reach = half * widened;
        let mut taps: Vec<(Vec<usize>, Vec<f64>)> = Vec::new();
        for at in 0..self.to {
            let middle = self.step * (at as f64 + 0.5);
            let first = (middle - reach + 0.5).max(0.0) as usize;
            let end = ((middle + reach + 0.5) as usize).min(self.from);
            let first = first.min(self.from - 1);
            let weight = |pixel: usize| filter((pixel as f64 - middle + 0.5) / widened);
            let weights: Vec<f64> = (first..end.max(first + 1)).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            for (tap, weight) in weights.into_iter().enumerate() {
                if tap == taps.len() {
                    taps.push((vec![0; at], vec![0.0; at]));
                }
                let (places, all) = &mut taps[tap];
                places.push(first + tap);
                all.push(if sum == 0.0 { weight } else { weight / sum });
            }
            for (places, weights) in &mut taps {
                places.resize(at + 1, 0);
                weights.resize(at + 1, 0.0);
            }
        }
        Weighted { taps }
    }
}

impl Weighted {
    /// Brings dimension `dim` to the new size.
    #[track_caller]
    fn apply(&self, tensor: &Tensor, dim: usize) -> Result<Tensor> {
        let seen = |places: &Vec<usize>| -> Result<Tensor> {
            tensor.index_select(dim as isize, &indices(places.iter().copied(), tensor)?)
        };
        if let [(places, weights)] = &self.taps[..]
            && weights.is_empty()
        {
            return seen(places);
        }
        let mut shape = vec![1; tensor.ndim()];
        let mut sum: Option<Formula> = None;
        // A few terms at a time: each is another operand of the fused kernel.
        for some in self.taps.chunks(4) {
            for (places, weights) in some {
                shape[dim] = weights.len();
                let weights = Tensor::from_slice(weights, &shape, tensor.device())?;
                let term = &seen(places)? * &weights.to_dtype(tensor.dtype())?;
                sum = Some(match sum {
                    None => term,
                    Some(sum) => sum + term,
                });
            }
            sum = sum.map(|sum| sum.eval()).transpose()?.map(Formula::from);
        }
        match sum {
            Some(sum) => sum.eval(),
            None => Ok(tensor.clone()),
        }
    }
}

impl Tensor {
    /// Resizes the last `N` of 1 to 3 dimensions of `[n, c, ..]` (`torch.nn.functional.interpolate`).
    ///
    /// Between the pixels that a size or a factor asks for, a factor also says how far apart they are taken, as in PyTorch.
    ///
    /// # Errors
    /// Another number of dimensions, one without pixels before or after, factors that are not above 0, and modes of another
    /// number of dimensions.
    #[track_caller]
    pub fn interpolate<const N: usize>(
        &self,
        to: InterpolateTo<N>,
        mode: InterpolateMode,
    ) -> Result<Tensor> {
        use InterpolateMode::{
            Area, Bicubic, BicubicAntialiased, Bilinear, BilinearAntialiased, Linear, Nearest,
            NearestExact, Trilinear,
        };
        as_one_call(|| {
            let operands = || vec![self.operand("input")];
            let shape = self.shape();
            if shape.ndim() != N + 2 || !(1..=3).contains(&N) {
                let what =
                    format!("expected [n, c, ..] with {N} more of 1 to 3 dimensions, got {shape}");
                return Err(Error::shape(OP, what)
                    .with_hint("add dimensions with unsqueeze(0)")
                    .with_operands(operands));
            }
            let fits = match mode {
                Nearest | NearestExact | Area => true,
                Linear { .. } => N == 1,
                Bilinear { .. } | Bicubic { .. } => N == 2,
                BilinearAntialiased { .. } | BicubicAntialiased { .. } => N == 2,
                Trilinear { .. } => N == 3,
            };
            if !fits {
                let what = format!("mode {mode:?} is for another number of dimensions than {N}");
                return Err(Error::argument(OP, what).with_operands(operands));
            }
            if !self.dtype().is_floating_point() {
                let what = format!("expected a floating dtype, got {}", self.dtype());
                return Err(Error::dtype(OP, what).with_operands(operands));
            }
            let from: [usize; N] = std::array::from_fn(|dim| shape[2 + dim]);
            let (size, factors) = match to {
                InterpolateTo::Size(size) => (size, None),
                InterpolateTo::Scale(factors) => {
                    if !factors
                        .iter()
                        .all(|factor| factor.is_finite() && *factor > 0.0)
                    {
                        let what = format!("expected factors above 0, got {factors:?}");
                        return Err(Error::argument(OP, what).with_operands(operands));
                    }
                    let scaled = |dim: usize| (from[dim] as f64 * factors[dim]).floor() as usize;
                    (std::array::from_fn(scaled), Some(factors))
                }
            };
            if from.contains(&0) || size.iter().any(|size| !(1..MOST).contains(size)) {
                let what = format!(
                    "expected sizes of at least 1 that memory has before and after, got {shape} to {size:?}"
                );
                return Err(Error::shape(OP, what).with_operands(operands));
            }
            let plain = match mode {
                Nearest => Some(Resampling::Nearest),
                Linear { align_corners }
                | Bilinear { align_corners }
                | Trilinear { align_corners } => Some(match align_corners {
                    true => Resampling::BilinearAligned,
                    false => Resampling::Bilinear,
                }),
                _ => None,
            };
            if let Some(mode) = plain {
                return self.resized(&size, factors.as_ref().map(|factors| &factors[..]), mode);
            }
            if mode == Area {
                let size = |dim: usize| size[dim];
                return match N {
                    1 => self.adaptive_avg_pool1d([size(0)]),
                    2 => self.adaptive_avg_pool2d([size(0), size(1)]),
                    _ => self.adaptive_avg_pool3d([size(0), size(1), size(2)]),
                };
            }
            let dtype = self.dtype();
            let mut output = match dtype.is_half() {
                true => self.to_dtype(DType::F32)?,
                false => self.clone(),
            };
            // The last dimension first, as PyTorch does.
            for dim in (0..N).rev() {
                let factor = factors.map(|factors| factors[dim]);
                let side =
                    |aligned| Side::new(from[dim], size[dim], factor, aligned, dtype != DType::F64);
                let weighted = match mode {
                    Bicubic { align_corners } => side(align_corners).cubic(align_corners),
                    BilinearAntialiased { align_corners } => {
                        side(align_corners).antialiased(TRIANGLE)
                    }
                    BicubicAntialiased { align_corners } => side(align_corners).antialiased(CUBIC),
                    _ => side(false).nearest(),
                };
                output = weighted.apply(&output, 2 + dim)?;
            }
            output.to_dtype(dtype)
        })
    }

    /// Resizes by the kernel of images: 1 dimension as images of one row, 3 as images and then their depths.
    #[track_caller]
    fn resized(&self, size: &[usize], factors: Option<&[f64]>, mode: Resampling) -> Result<Tensor> {
        let to = |sizes: [usize; 2], of: &dyn Fn(&[f64]) -> [f64; 2]| match factors {
            None => InterpolateTo::Size(sizes),
            Some(factors) => InterpolateTo::Scale(of(factors)),
        };
        match *size {
            [length] => {
                let to = to([1, length], &|of| [1.0, of[0]]);
                resize(&self.unsqueeze(2)?, to, mode)?.squeeze(2)
            }
            [height, width] => {
                let to = to([height, width], &|of| [of[0], of[1]]);
                resize(self, to, mode)
            }
            [depth, height, width] => {
                let shape = self.shape();
                let [batch, channels, from] = [shape[0], shape[1], shape[2]];
                let images = shaped(self, &[batch, channels * from, shape[3], shape[4]])?;
                let in_images = to([height, width], &|of| [of[1], of[2]]);
                let images = resize(&images, in_images, mode)?;
                let slices = shaped(&images, &[batch, channels, from, height * width])?;
                let along = to([depth, height * width], &|of| [of[0], 1.0]);
                let volumes = resize(&slices, along, mode)?;
                shaped(&volumes, &[batch, channels, depth, height, width])
            }
            _ => Ok(self.clone()),
        }
    }
}
