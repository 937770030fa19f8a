//! Sampling at places that tensors say: `grid_sample`, `affine_grid`.

use fireclay_core::{DType, Error, Result, as_one_call};

use super::taps::shaped;
use crate::formula::Formula;
use crate::tensor::Tensor;

/// Of which pixels [`Tensor::grid_sample`] makes a result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GridSampleMode {
    /// Of those around the place (bilinear, or trilinear in volumes).
    #[default]
    Bilinear,
    /// Of the nearest.
    Nearest,
    /// Of the sixteen around the place; images only.
    Bicubic,
}

/// What lies outside of the image.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GridSamplePadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image, reflected.
    Reflection,
}

/// How [`Tensor::grid_sample`] samples; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GridSample {
    /// Of which pixels.
    pub mode: GridSampleMode,
    /// What lies outside.
    pub padding_mode: GridSamplePadding,
    /// Whether -1 and 1 are the centres of the outermost pixels; else they are their outer edges.
    pub align_corners: bool,
}

impl GridSample {
    /// The place in pixels of a coordinate from -1 to 1.
    fn pixels(&self, coordinate: &Tensor, size: usize) -> Formula {
        let size = size as f64;
        match self.align_corners {
            true => (coordinate + 1.0) * ((size - 1.0) / 2.0),
            false => ((coordinate + 1.0) * size - 1.0) * 0.5,
        }
    }

    /// Brings a place into the image as the padding says. Where it is moved to a border, no gradient flows.
    fn inside(&self, place: Formula, size: usize) -> Formula {
        let last = size as f64 - 1.0;
        let kept = |place: Formula| {
            place
                .gt(0.0)
                .where_(place.lt(last).where_(&place, last), 0.0)
        };
        match self.padding_mode {
            GridSamplePadding::Zeros => place,
            GridSamplePadding::Border => kept(place),
            GridSamplePadding::Reflection => {
                let (low, span) = match self.align_corners {
                    true => (0.0, last),
                    false => (-0.5, size as f64),
                };
                if span == 0.0 {
                    return kept(place * 0.0);
                }
                let from_low = (place - low).abs();
                let flips = (&from_low * (1.0 / span)).floor();
                let rest = from_low - &flips * span;
                let even = (&flips - (&flips * 0.5).floor() * 2.0).eq(0.0);
                kept(even.where_(&rest + low, span - &rest + low))
            }
        }
    }
}

/// Formulas of whole-numbered places along each dimension and of whether each lies in the image.
struct Pixels<'a> {
    /// `[n, c, pixels]`.
    values: &'a Tensor,
    sizes: &'a [usize],
}

impl Pixels<'_> {
    /// The pixels at `places`, `[n, 1, points]` along each dimension, and whether they are in the image.
    #[track_caller]
    fn at(&self, places: &[Formula]) -> Result<(Tensor, Formula)> {
        let mut flat: Option<Formula> = None;
        let mut valid: Option<Formula> = None;
        for (place, &size) in places.iter().zip(self.sizes) {
            let inside = place.ge(0.0).logical_and(place.le(size as f64 - 1.0));
            let whole = inside
                .where_(place, 0.0)
                .eval()?
                .detach()
                .to_dtype(DType::I64)?;
            flat = Some(match flat {
                None => Formula::from(&whole),
                Some(flat) => flat * Formula::from(size as i64) + &whole,
            });
            valid = Some(match valid {
                None => inside,
                Some(valid) => valid.logical_and(inside),
            });
        }
        let (Some(flat), Some(valid)) = (flat, valid) else {
            return Err(Error::shape(
                "grid_sample",
                "expected images with dimensions",
            ));
        };
        let flat = flat.eval()?;
        let mut shape = flat.shape().clone();
        shape.sizes_mut()[1] = self.values.shape()[1];
        let pixels = self.values.gather(2, &flat.expand_to(&shape)?)?;
        Ok((pixels, valid))
    }
}

/// The cubic convolution's weights of the four pixels around a place, `t` after the second.
fn cubic(t: &Formula) -> [Formula; 4] {
    const A: f64 = -0.75;
    let near = |x: &Formula| (x * (A + 2.0) - (A + 3.0)) * x * x + 1.0;
    let far = |x: &Formula| ((x * A - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let rest = 1.0 - t;
    [far(&(t + 1.0)), near(t), near(&rest), far(&(2.0 - t))]
}

fn total(terms: impl IntoIterator<Item = Formula>) -> Option<Formula> {
    terms.into_iter().reduce(|sum, term| sum + term)
}

impl Tensor {
    /// Pixels of images `[n, c, h, w]` at the places of `grid` `[n, h', w', 2]`, (x, y) from -1 to 1: `[n, c, h', w']`; or of
    /// volumes `[n, c, d, h, w]` at `[n, d', h', w', 3]` (`torch.nn.functional.grid_sample`).
    ///
    /// # Errors
    /// Other shapes, images without pixels, two dtypes, and bicubic sampling of volumes.
    #[track_caller]
    pub fn grid_sample(&self, grid: &Tensor, options: GridSample) -> Result<Tensor> {
        const OP: &str = "grid_sample";
        as_one_call(|| {
            let operands = || vec![self.operand("input"), grid.operand("grid")];
            let (shape, places) = (self.shape(), grid.shape());
            let dims = shape.ndim().saturating_sub(2);
            let fits = (2..=3).contains(&dims)
                && places.ndim() == dims + 2
                && places[dims + 1] == dims
                && places[0] == shape[0]
                && !shape[1..].contains(&0);
            if !fits {
                let what = format!(
                    "expected images [n, c, h, w] with pixels and a grid [n, h', w', 2], or volumes and a grid of 3, got {shape} and {places}"
                );
                return Err(Error::shape(OP, what).with_operands(operands));
            }
            if self.dtype() != grid.dtype() || !self.dtype().is_floating_point() {
                let what = format!(
                    "expected images and grid of one floating dtype, got {} and {}",
                    self.dtype(),
                    grid.dtype()
                );
                return Err(Error::dtype(OP, what).with_operands(operands));
            }
            if self.dtype().is_half() {
                let wide = self
                    .to_dtype(DType::F32)?
                    .grid_sample(&grid.to_dtype(DType::F32)?, options)?;
                return wide.to_dtype(self.dtype());
            }
            let [batch, channels] = [shape[0], shape[1]];
            let sizes = &shape[2..];
            let points: usize = places[1..=dims].iter().product();
            let result = [&shape[..2], &places[1..=dims]].concat();
            if batch * points == 0 {
                return super::taps::zeros(&result, self);
            }
            let values = shaped(self, &[batch, channels, sizes.iter().product()])?;
            let pixels = Pixels {
                values: &values,
                sizes,
            };
            let mut at = Vec::new();
            for (dim, &size) in sizes.iter().enumerate() {
                // The grid's coordinates are from the last dimension to the first.
                let coordinate = grid.select(-1, (dims - 1 - dim) as isize)?;
                at.push(options.pixels(&shaped(&coordinate, &[batch, 1, points])?, size));
            }
            let inside = |place: Formula, dim: usize| options.inside(place, sizes[dim]);
            let sampled = match options.mode {
                GridSampleMode::Nearest => {
                    let places: Vec<Formula> = (at.into_iter().enumerate())
                        .map(|(dim, place)| inside(place, dim).round())
                        .collect();
                    let (value, valid) = pixels.at(&places)?;
                    valid.where_(Formula::from(&value), 0.0).eval()?
                }
                GridSampleMode::Bilinear => {
                    let mut ends = Vec::new();
                    for (dim, place) in at.into_iter().enumerate() {
                        let place = Formula::from(&inside(place, dim).eval()?);
                        let before = Formula::from(&place.floor().eval()?.detach());
                        let after = &before + 1.0;
                        let (near, far) = (&after - &place, &place - &before);
                        ends.push([(before, near), (after, far)]);
                    }
                    let mut terms = Vec::new();
                    for corner in 0..1usize << dims {
                        let chosen: Vec<&(Formula, Formula)> = (0..dims)
                            .map(|dim| &ends[dim][corner >> (dims - 1 - dim) & 1])
                            .collect();
                        let places: Vec<Formula> =
                            chosen.iter().map(|(place, _)| place.clone()).collect();
                        let (value, valid) = pixels.at(&places)?;
                        let weight = chosen.iter().map(|(_, weight)| weight.clone());
                        let weight = weight.reduce(|product, weight| product * weight);
                        terms.extend(weight.map(|weight| valid.where_(&value * weight, 0.0)));
                    }
                    total(terms)
                        .map(|sum| sum.eval())
                        .transpose()?
                        .unwrap_or(values)
                }
                GridSampleMode::Bicubic => {
                    let &[height, width] = sizes else {
                        let what = "bicubic sampling is for images [n, c, h, w]";
                        return Err(Error::argument(OP, what).with_operands(operands));
                    };
                    let parts = |place: &Formula| -> Result<(Formula, [Formula; 4])> {
                        let place = Formula::from(&place.eval()?);
                        let before = Formula::from(&place.floor().eval()?.detach());
                        let weights = cubic(&(place - &before));
                        Ok((before, weights))
                    };
                    let ((top, down), (left, across)) = (parts(&at[0])?, parts(&at[1])?);
                    let mut rows = Vec::new();
                    for (dy, down) in down.iter().enumerate() {
                        let y = options.inside(&top + (dy as f64 - 1.0), height);
                        let mut terms = Vec::new();
                        for (dx, across) in across.iter().enumerate() {
                            let x = options.inside(&left + (dx as f64 - 1.0), width);
                            let (value, valid) = pixels.at(&[y.clone(), x])?;
                            terms.push(valid.where_(&value * across, 0.0));
                        }
                        let row = total(terms).map(|row| row.eval()).transpose()?;
                        rows.extend(row.map(|row| &row * down));
                    }
                    total(rows)
                        .map(|sum| sum.eval())
                        .transpose()?
                        .unwrap_or(values)
                }
            };
            shaped(&sampled, &result)
        })
    }

    /// The places at which [`grid_sample`](Tensor::grid_sample) must sample to apply the affine maps of this tensor `[n, 2, 3]`
    /// to images of `size` `[n, c, h, w]`: `[n, h, w, 2]`; or `[n, 3, 4]` to volumes (`torch.nn.functional.affine_grid`).
    #[track_caller]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        const OP: &str = "affine_grid";
        as_one_call(|| {
            let fail = |what: String| {
                Err(Error::shape(OP, what).with_operands(|| vec![self.operand("theta")]))
            };
            let dims = size.len().saturating_sub(2);
            if !(2..=3).contains(&dims) || self.shape()[..] != [size[0], dims, dims + 1] {
                return fail(format!(
                    "expected maps [n, 2, 3] and a size [n, c, h, w], or [n, 3, 4] and one of volumes, got {} and {size:?}",
                    self.shape()
                ));
            }
            let numel = size
                .iter()
                .try_fold(1usize, |all, &size| all.checked_mul(size));
            if size.contains(&0) || numel.is_none_or(|numel| numel > isize::MAX as usize) {
                return fail(format!(
                    "expected sizes of at least 1 that memory has, got {size:?}"
                ));
            }
            if !self.dtype().is_floating_point() {
                let what = format!("expected maps of a floating dtype, got {}", self.dtype());
                return Err(Error::dtype(OP, what).with_operands(|| vec![self.operand("theta")]));
            }
            let column = |index: usize| -> Result<Formula> {
                let column = self.narrow(2, index, 1)?;
                let mut shape = vec![1; dims + 2];
                (shape[0], shape[dims + 1]) = (size[0], dims);
                Ok(Formula::from(&shaped(&column, &shape)?))
            };
            let mut sum = column(dims)?;
            for dim in 0..dims {
                let count = size[2 + dim];
                let mut shape = vec![1; dims + 2];
                shape[1 + dim] = count;
                let step = |place: usize| match align_corners {
                    true if count == 1 => 0.0,
                    true => 2.0 * place as f64 / (count - 1) as f64 - 1.0,
                    false => (2 * place + 1) as f64 / count as f64 - 1.0,
                };
                let steps: Vec<f64> = (0..count).map(step).collect();
                let steps =
                    Tensor::from_slice(&steps, &shape, self.device())?.to_dtype(self.dtype())?;
                sum = &steps * column(dims - 1 - dim)? + sum;
            }
            let grid = sum.eval()?;
            let shape = [&size[..1], &size[2..], &[dims]].concat();
            grid.reshape_to(&fireclay_core::Shape::new(&shape))
        })
    }
}
