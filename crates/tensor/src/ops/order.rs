//! What follows from the order of elements: running extrema, medians, quantiles, the most frequent element.

use fireclay_core::{DType, Error, Result, resolve_dim};
use fireclay_cpu::scan;
use smallvec::smallvec;

use super::index::match_number;
use super::scan::recurrence;
use crate::autograd::no_grad;
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Where the largest or smallest element so far is along the last dimension. Of the host: on a device it is composed of others.
#[derive(Clone, Copy, Debug)]
struct RunningExtreme {
    largest: bool,
}

impl Op for RunningExtreme {
    fn name(&self) -> &'static str {
        if self.largest { "cummax" } else { "cummin" }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = inputs[0].dtype;
        if !dtype.is_computable() {
            let what = format!("{dtype} is stored only, no op computes with it");
            return Err(Error::dtype(self.name(), what));
        }
        let shape = inputs[0].shape().clone();
        Ok(smallvec![OutputMeta::contiguous(shape, DType::I64)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        let cols = shape[shape.ndim() - 1];
        match_number!(self.name(), call.dtype(0), T => {
            scan::extreme_rows::<T>(call.input(0), cols, self.largest, call.output(0));
        });
        Ok(())
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    [true, false]
        .map(|largest| -> Box<dyn Op> { Box::new(RunningExtreme { largest }) })
        .into()
}

/// The same by doubling: after k steps an element knows the best of the 2^k elements up to it.
fn places_by_doubling(x: &Tensor, largest: bool) -> Result<Tensor> {
    let cols = x.size(-1)?;
    let places = Tensor::arange(0i64, cols as i64, 1i64, x.device())?;
    let mut places = places.expand_to(x.shape())?;
    let mut best = x.clone();
    let mut step = 1;
    while step < cols {
        let parts = |x: &Tensor| -> Result<[Tensor; 3]> {
            Ok([
                x.narrow(-1, 0, step)?,
                x.narrow(-1, 0, cols - step)?,
                x.narrow(-1, step, cols - step)?,
            ])
        };
        let ([first, before, own], [first_place, before_place, own_place]) =
            (parts(&best)?, parts(&places)?);
        let [earlier, later] = [&before, &own].map(Formula::from);
        let beats = match largest {
            true => later.ge(&earlier),
            false => later.le(&earlier),
        };
        let taken = (later.isnan()).logical_or(earlier.isnan().logical_not().logical_and(beats));
        let results = Formula::eval_all(&[
            taken.where_(&later, &earlier),
            taken.where_(&own_place, &before_place),
        ])?;
        best = Tensor::cat(&[&first, &results[0]], -1)?;
        places = Tensor::cat(&[&first_place, &results[1]], -1)?;
        step *= 2;
    }
    places.contiguous()
}

/// How [`Tensor::quantile`] finds a number between two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Interpolation {
    /// On the line between both.
    #[default]
    Linear,
    /// The smaller one.
    Lower,
    /// The larger one.
    Higher,
    /// The nearer one; of two as near, that with the even place.
    Nearest,
    /// The middle of both.
    Midpoint,
}

#[track_caller]
fn nothing_to_choose(op: &'static str, x: &Tensor, dim: usize) -> Error {
    let what = format!("there is nothing to choose from: dimension {dim} is empty");
    Error::argument(op, what).with_operands(|| vec![x.operand("self")])
}

impl Tensor {
    /// The largest element so far along `dim`, and its place, of equal ones the last (`torch.cummax`). A NaN stays.
    #[track_caller]
    pub fn cummax(&self, dim: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme(true, dim)
    }

    /// The smallest element so far along `dim`, and its place, of equal ones the last (`torch.cummin`). A NaN stays.
    #[track_caller]
    pub fn cummin(&self, dim: isize) -> Result<(Tensor, Tensor)> {
        self.running_extreme(false, dim)
    }

    #[track_caller]
    fn running_extreme(&self, largest: bool, dim: isize) -> Result<(Tensor, Tensor)> {
        let op = RunningExtreme { largest };
        let dim = resolve_dim(op.name(), dim, self.ndim())? as isize;
        if self.ndim() == 0 {
            let (values, places) = self.unsqueeze(0)?.running_extreme(largest, 0)?;
            return Ok((values.squeeze(0)?, places.squeeze(0)?));
        }
        let x = self.detach().transpose(dim, -1)?;
        let places = match self.device().is_cpu() {
            true => dispatch::call_one(op, &[&x])?,
            false => no_grad(|| places_by_doubling(&x, largest))?,
        };
        let places = places.transpose(dim, -1)?.contiguous()?;
        Ok((self.gather(dim, &places)?, places))
    }

    /// `log(sum of exp)` of the elements up to each along `dim`, without overflow (`torch.logcumsumexp`).
    #[track_caller]
    pub fn logcumsumexp(&self, dim: isize) -> Result<Tensor> {
        const NAME: &str = "logcumsumexp";
        let dim = resolve_dim(NAME, dim, self.ndim())? as isize;
        if !self.dtype().is_floating_point() {
            let what = format!("expected a floating dtype, got {}", self.dtype());
            return Err(Error::dtype(NAME, what).with_operands(|| vec![self.operand("self")]));
        }
        if self.numel() == 0 {
            return self.copy();
        }
        if self.ndim() == 0 {
            return self.unsqueeze(0)?.logcumsumexp(0)?.squeeze(0);
        }
        let wide = match self.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let x = self.to_dtype(wide)?.transpose(dim, -1)?;
        let cols = x.size(-1)?;
        let (largest, _) = x.detach().cummax(-1)?;
        let finite = Formula::from(&largest).isfinite();
        let shift = finite.where_(&largest, 0.0).eval()?;
        // Sums relative to the largest element so far: what came before shrinks as that grows.
        let (before, after) = (
            shift.narrow(-1, 0, cols - 1)?,
            shift.narrow(-1, 1, cols - 1)?,
        );
        let was_nothing = Formula::from(largest.narrow(-1, 0, cols - 1)?).eq(f64::NEG_INFINITY);
        let factors = was_nothing.where_(0.0, (&before - &after).exp()).eval()?;
        let first = Tensor::full_of(x.narrow(-1, 0, 1)?.shape(), 0.0, wide, x.device())?;
        let factors = Tensor::cat(&[&first, &factors], -1)?;
        let sums = recurrence(&factors, &(&x - &shift).exp().eval()?)?;
        let result = (Formula::from(&sums).log() + &shift).eval()?;
        result
            .transpose(dim, -1)?
            .contiguous()?
            .to_dtype(self.dtype())
    }

    /// The element in the middle of all, the smaller of two; NaN if there is one, or nothing at all (`torch.median`).
    #[track_caller]
    pub fn median(&self) -> Result<Tensor> {
        self.middle_of_all("median", false)
    }

    /// The element in the middle of all that aren't NaN, the smaller of two; NaN if there is none (`torch.nanmedian`).
    #[track_caller]
    pub fn nanmedian(&self) -> Result<Tensor> {
        self.middle_of_all("nanmedian", true)
    }

    #[track_caller]
    fn middle_of_all(&self, name: &'static str, skips_nan: bool) -> Result<Tensor> {
        if self.numel() == 0 {
            if !self.dtype().is_floating_point() {
                return Err(nothing_to_choose(name, self, 0));
            }
            return Tensor::full_of(&[], f64::NAN, self.dtype(), self.device());
        }
        let flat = self.reshape(&[self.numel() as isize])?;
        Ok(flat.middle(name, 0, false, skips_nan)?.0)
    }

    /// The element in the middle along `dim`, the smaller of two, and its place; a NaN if there is one (`torch.median` with `dim`).
    #[track_caller]
    pub fn median_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.middle("median", dim, keepdim, false)
    }

    /// The element in the middle of those along `dim` that aren't NaN, the smaller of two, and its place (`torch.nanmedian` with `dim`).
    #[track_caller]
    pub fn nanmedian_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.middle("nanmedian", dim, keepdim, true)
    }

    #[track_caller]
    fn middle(
        &self,
        name: &'static str,
        dim: isize,
        keepdim: bool,
        skips_nan: bool,
    ) -> Result<(Tensor, Tensor)> {
        let place = resolve_dim(name, dim, self.ndim())?;
        if self.ndim() == 0 {
            let (values, places) = self.unsqueeze(0)?.middle(name, 0, false, skips_nan)?;
            return Ok((values, places));
        }
        let size = self.shape()[place];
        if size == 0 {
            return Err(nothing_to_choose(name, self, place));
        }
        let dim = place as isize;
        let (values, places) = self.sort(dim, false)?;
        let middle = ((size - 1) / 2) as i64;
        let (values, places) = match self.dtype().is_floating_point() {
            false => {
                let at = middle as usize;
                (values.narrow(dim, at, 1)?, places.narrow(dim, at, 1)?)
            }
            true => {
                // NaN are last.
                let numbers = self.detach().isnan()?.logical_not()?.sum(&[dim], true)?;
                let counted = Formula::from(&numbers);
                let at = match skips_nan {
                    true => ((counted - 1.0) * 0.5).floor().maximum(0.0),
                    false => counted.lt(size as i64).where_(&numbers, middle),
                };
                let at = at.eval()?.to_dtype(DType::I64)?;
                (values.gather(dim, &at)?, places.gather(dim, &at)?)
            }
        };
        match keepdim {
            true => Ok((values.contiguous()?, places.contiguous()?)),
            false => Ok((
                values.squeeze(dim)?.contiguous()?,
                places.squeeze(dim)?.contiguous()?,
            )),
        }
    }

    /// The `k`-th smallest element along `dim`, counted from 1, and its place; a NaN is larger than any number (`torch.kthvalue`).
    #[track_caller]
    pub fn kthvalue(&self, k: usize, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "kthvalue";
        let place = resolve_dim(NAME, dim, self.ndim())?;
        let size = self.shape().get(place).copied().unwrap_or(1);
        if k == 0 || k > size {
            let what =
                format!("expected k from 1 to the {size} elements of dimension {place}, got {k}");
            return Err(Error::argument(NAME, what).with_operands(|| vec![self.operand("self")]));
        }
        if self.ndim() == 0 {
            return self.unsqueeze(0)?.kthvalue(k, 0, false);
        }
        let dim = place as isize;
        let (values, places) = self.sort(dim, false)?;
        let (values, places) = (values.narrow(dim, k - 1, 1)?, places.narrow(dim, k - 1, 1)?);
        match keepdim {
            true => Ok((values.contiguous()?, places.contiguous()?)),
            false => Ok((
                values.squeeze(dim)?.contiguous()?,
                places.squeeze(dim)?.contiguous()?,
            )),
        }
    }

    /// The most frequent element along `dim`, the smallest of several, and a place where it is (`torch.mode`).
    #[track_caller]
    pub fn mode(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "mode";
        let place = resolve_dim(NAME, dim, self.ndim())?;
        if self.ndim() == 0 {
            let (values, places) = self.unsqueeze(0)?.mode(0, false)?;
            return Ok((values, places));
        }
        let size = self.shape()[place];
        if size == 0 {
            return Err(nothing_to_choose(NAME, self, place));
        }
        let dim = place as isize;
        let (values, places) = self.sort(dim, false)?;
        let at = no_grad(|| {
            // Equal elements are runs: how many of its own stand before an element, and itself.
            let values = values.detach().transpose(dim, -1)?;
            let counter = Tensor::arange(0i64, size as i64, 1i64, self.device())?;
            let counter = counter.expand_to(values.shape())?;
            let (before, own) = (
                values.narrow(-1, 0, size - 1)?,
                values.narrow(-1, 1, size - 1)?,
            );
            let begins = own
                .ne(&before)?
                .where_(&counter.narrow(-1, 1, size - 1)?, 0i64)?;
            let first = counter.narrow(-1, 0, 1)?;
            let (starts, _) = Tensor::cat(&[&first, &begins], -1)?.cummax(-1)?;
            let lengths = counter.sub(&starts)?;
            lengths.argmax(-1, true)?.transpose(dim, -1)
        })?;
        let (values, places) = (values.gather(dim, &at)?, places.gather(dim, &at)?);
        match keepdim {
            true => Ok((values, places)),
            false => Ok((values.squeeze(dim)?, places.squeeze(dim)?)),
        }
    }

    /// The numbers below which the shares `q` of the elements along `dim` lie, or of all elements without one (`torch.quantile`): `q` is a
    /// number from 0 to 1 or a vector of such, of the dtype of `self`, f32 or f64. Of a vector, the result has its dimension first. NaN where
    /// there is one.
    #[track_caller]
    pub fn quantile(
        &self,
        q: &Tensor,
        dim: Option<isize>,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> Result<Tensor> {
        self.quantiles("quantile", q, dim, keepdim, (interpolation, false))
    }

    /// [`quantile`](Tensor::quantile) of the elements that aren't NaN (`torch.nanquantile`).
    #[track_caller]
    pub fn nanquantile(
        &self,
        q: &Tensor,
        dim: Option<isize>,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> Result<Tensor> {
        self.quantiles("nanquantile", q, dim, keepdim, (interpolation, true))
    }

    #[track_caller]
    fn quantiles(
        &self,
        name: &'static str,
        q: &Tensor,
        dim: Option<isize>,
        keepdim: bool,
        (interpolation, skips_nan): (Interpolation, bool),
    ) -> Result<Tensor> {
        let operands = || vec![self.operand("self"), q.operand("q")];
        if !matches!(self.dtype(), DType::F32 | DType::F64) || q.dtype() != self.dtype() {
            let what = format!(
                "expected f32 or f64, and q of the same dtype, got {} and {}",
                self.dtype(),
                q.dtype()
            );
            return Err(Error::dtype(name, what).with_operands(operands));
        }
        if q.ndim() > 1 {
            let what = format!("expected a number or a vector q, got {}", q.shape());
            return Err(Error::shape(name, what).with_operands(operands));
        }
        let shares = q.detach().to_dtype(DType::F64)?.to_vec::<f64>()?;
        if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            let what = format!("expected q from 0 to 1, got {share}");
            return Err(Error::argument(name, what).with_operands(operands));
        }
        let place = match dim {
            Some(dim) => Some(resolve_dim(name, dim, self.ndim())?),
            None => None,
        };
        let x = match place {
            Some(place) if self.ndim() > 0 => {
                // To the end; the others stay in order.
                let others = (0..self.ndim()).filter(|dim| *dim != place);
                let order: Vec<isize> = others.chain([place]).map(|dim| dim as isize).collect();
                self.permute(&order)?
            }
            _ => self.reshape(&[self.numel() as isize])?,
        };
        let size = x.size(-1)?;
        if size == 0 {
            return Err(nothing_to_choose(name, self, place.unwrap_or(0)));
        }
        let (sorted, _) = x.sort(-1, false)?;
        let ranks = {
            let nan = x.detach().isnan()?;
            let wide = self.dtype();
            let numbers = nan.logical_not()?.sum(&[-1], true)?.to_dtype(wide)?;
            let q = q.detach().reshape(&[q.numel() as isize])?;
            let (numbers, q) = (Formula::from(&numbers), Formula::from(&q));
            let last = size as f64 - 1.0;
            let ranks = match skips_nan {
                true => (q * (&numbers - 1.0)).maximum(0.0),
                // The last one is a NaN if there is one.
                false => numbers.lt(size as f64).where_(last, q * last),
            };
            let ranks = match interpolation {
                Interpolation::Lower => ranks.floor(),
                Interpolation::Higher => ranks.ceil(),
                Interpolation::Nearest => ranks.round(),
                Interpolation::Linear | Interpolation::Midpoint => ranks,
            };
            ranks.eval()?
        };
        let at = |ranks: Tensor| sorted.gather(-1, &ranks.to_dtype(DType::I64)?);
        let below = at(ranks.floor()?)?;
        let result = match interpolation {
            Interpolation::Linear | Interpolation::Midpoint => {
                let above = at(ranks.ceil()?)?;
                let weight = match interpolation {
                    Interpolation::Midpoint => ranks.full_like(0.5)?,
                    _ => ranks.sub(&ranks.floor()?)?,
                };
                below.lerp(&above, &weight)?
            }
            _ => below,
        };
        // [.., q] to [q, ..].
        let mut order = vec![result.ndim() as isize - 1];
        order.extend(0..result.ndim() as isize - 1);
        let mut result = result.permute(&order)?;
        if keepdim {
            let mut sizes: Vec<isize> = self.shape().iter().map(|&size| size as isize).collect();
            match place {
                Some(place) if self.ndim() > 0 => sizes[place] = 1,
                _ => sizes.fill(1),
            }
            sizes.insert(0, q.numel() as isize);
            result = result.reshape(&sizes)?;
        }
        match q.ndim() {
            0 => result.squeeze(0)?.contiguous(),
            _ => result.contiguous(),
        }
    }
}
