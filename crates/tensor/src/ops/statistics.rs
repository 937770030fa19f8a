//! Sums, products, differences and counts, composed of other ops.

use fireclay_core::{DType, Error, Result, resolve_dim};

use crate::formula::Formula;
use crate::tensor::Tensor;

/// Bins of [`Tensor::histc`] at most: beyond, their numbers are no place in f32.
const MOST_BINS: usize = 1 << 24;

impl Tensor {
    /// The sum over `dims`, all of them if empty, where a NaN counts as 0 (`torch.nansum`). Whole numbers and bools are summed as i64.
    #[track_caller]
    pub fn nansum(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_floating_point() {
            return self.sum(dims, keepdim);
        }
        let x = Formula::from(self);
        x.isnan().where_(0.0, &x).eval()?.sum(dims, keepdim)
    }

    /// The product along `dim`, or of all elements without one (`torch.prod`); of nothing it is 1. Whole numbers and bools are
    /// multiplied as i64. The gradient is right where elements are zero, too.
    #[track_caller]
    pub fn prod(&self, dim: Option<isize>, keepdim: bool) -> Result<Tensor> {
        let Some(dim) = dim else {
            let product = self
                .reshape(&[self.numel() as isize])?
                .prod(Some(0), false)?;
            return match keepdim {
                true => product.reshape(&vec![1; self.ndim()]),
                false => Ok(product),
            };
        };
        let place = resolve_dim("prod", dim, self.ndim())?;
        let running = self.cumprod(dim)?;
        if self.ndim() == 0 {
            return Ok(running);
        }
        let product = match self.shape()[place] {
            0 => running.sum(&[dim], true)?.add(1i64)?,
            size => running.narrow(dim, size - 1, 1)?.contiguous()?,
        };
        match keepdim {
            true => Ok(product),
            false => product.squeeze(dim),
        }
    }

    /// How many elements over `dims` (all if empty) are not zero, i64 (`torch.count_nonzero`).
    #[track_caller]
    pub fn count_nonzero(&self, dims: &[isize]) -> Result<Tensor> {
        self.ne(0i64)?.sum(dims, false)
    }

    /// [`var`](Tensor::var) and [`mean`](Tensor::mean) (`torch.var_mean`).
    #[track_caller]
    pub fn var_mean(
        &self,
        dims: &[isize],
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        Ok((
            self.var(dims, correction, keepdim)?,
            self.mean(dims, keepdim)?,
        ))
    }

    /// [`std`](Tensor::std) and [`mean`](Tensor::mean) (`torch.std_mean`).
    #[track_caller]
    pub fn std_mean(
        &self,
        dims: &[isize],
        correction: f64,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        Ok((
            self.std(dims, correction, keepdim)?,
            self.mean(dims, keepdim)?,
        ))
    }

    /// The smallest and the largest element along `dim`, or of all without one (`torch.aminmax`).
    #[track_caller]
    pub fn aminmax(&self, dim: Option<isize>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let dim: Vec<isize> = dim.into_iter().collect();
        Ok((self.amin(&dim, keepdim)?, self.amax(&dim, keepdim)?))
    }

    /// Each element along `dim` minus the one before it, `n` times over (`torch.diff`). `prepend` and `append` are joined before; bools
    /// differ by "xor".
    #[track_caller]
    pub fn diff(
        &self,
        n: usize,
        dim: isize,
        prepend: Option<&Tensor>,
        append: Option<&Tensor>,
    ) -> Result<Tensor> {
        if self.ndim() == 0 {
            return Err(
                Error::shape("diff", "expected at least one dimension, got none")
                    .with_operands(|| vec![self.operand("self")]),
            );
        }
        let place = resolve_dim("diff", dim, self.ndim())?;
        let parts: Vec<&Tensor> = prepend.into_iter().chain([self]).chain(append).collect();
        let mut x = match parts.len() {
            1 => self.clone(),
            _ => Tensor::cat(&parts, dim)?,
        };
        // After as many steps as there are elements nothing is left.
        for _ in 0..n.min(x.shape()[place]) {
            let rest = x.shape()[place].saturating_sub(1);
            let (later, earlier) = (
                x.narrow(dim, x.shape()[place] - rest, rest)?,
                x.narrow(dim, 0, rest)?,
            );
            x = match x.dtype() {
                DType::Bool => later.ne(&earlier)?,
                _ => later.sub(&earlier)?,
            };
        }
        Ok(x)
    }

    /// How many elements lie in each of `bins` equal ranges from `min` to `max`, of the dtype of `self` (`torch.histc`). Both 0 means from the
    /// smallest element to the largest, which the host reads. The last range has its end, too; what lies outside, and NaN, is not
    /// counted.
    #[track_caller]
    pub fn histc(&self, bins: usize, min: f64, max: f64) -> Result<Tensor> {
        const NAME: &str = "histc";
        let operands = || vec![self.operand("self")];
        if !self.dtype().is_floating_point() {
            let what = format!("expected a floating dtype, got {}", self.dtype());
            return Err(Error::dtype(NAME, what).with_operands(operands));
        }
        if bins == 0 || bins > MOST_BINS {
            let what = format!("expected 1 to {MOST_BINS} bins, got {bins}");
            return Err(Error::argument(NAME, what).with_operands(operands));
        }
        let x = self.detach();
        let (mut min, mut max) = (min, max);
        if min == max && x.numel() > 0 {
            (min, max) = (x.amin(&[], false)?.item()?, x.amax(&[], false)?.item()?);
        }
        if min == max {
            (min, max) = (min - 1.0, max + 1.0);
        }
        if !(min.is_finite() && max.is_finite() && min < max) {
            let what = format!("expected a finite range, got {min} to {max}");
            return Err(Error::argument(NAME, what).with_operands(operands));
        }
        let x = match x.dtype() {
            DType::F64 => x,
            _ => x.to_dtype(DType::F32)?,
        };
        let flat = Formula::from(x.reshape(&[x.numel() as isize])?);
        let place = ((&flat - min) / (max - min) * bins as f64).floor();
        let inside = flat.ge(min).logical_and(flat.le(max));
        let place = inside.where_(place.minimum(bins as f64 - 1.0), bins as f64);
        let place = place.eval()?.to_dtype(DType::I64)?;
        let counts = Tensor::full_of(&[bins + 1], 0i64, DType::I64, self.device())?;
        let ones = Tensor::full_of(place.shape(), 1i64, DType::I64, self.device())?;
        let counts = counts.scatter_add(0, &place, &ones)?;
        counts.narrow(0, 0, bins)?.to_dtype(self.dtype())
    }
}
