//! Distances between rows, and how variables vary together.

use fireclay_core::{DType, Error, Result};

use super::gradients::turned;
use crate::formula::Formula;
use crate::tensor::Tensor;

/// From so many rows of either on, distances by the 2-norm come from one matrix product (PyTorch's rule).
const MANY_ROWS: usize = 25;

impl Tensor {
    /// The distances `[.., p, r]` between the rows of `[.., p, m]` and of `[.., r, m]` by the norm of order `p` (`torch.cdist`). Batch
    /// dimensions broadcast. The derivative where a distance is 0 is 0.
    ///
    /// With more than 25 rows and `p` of 2 they come from a matrix product, as in PyTorch: faster, but near distances have an error of some
    /// roundings of the rows' own norms.
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        const NAME: &str = "cdist";
        let operands = || vec![self.operand("x1"), other.operand("x2")];
        if self.dtype() != other.dtype() || !self.dtype().is_floating_point() {
            let what = format!(
                "expected one floating dtype, got {} and {}",
                self.dtype(),
                other.dtype()
            );
            return Err(Error::dtype(NAME, what).with_operands(operands));
        }
        if p < 0.0 || p.is_nan() {
            let what = format!("expected an order of at least 0, got {p}");
            return Err(Error::argument(NAME, what).with_operands(operands));
        }
        if self.ndim() < 2 || other.ndim() < 2 || self.size(-1)? != other.size(-1)? {
            let what = format!(
                "expected rows of one length [.., p, m] and [.., r, m], got {} and {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        if p == 2.0 && self.size(-2)?.max(other.size(-2)?) > MANY_ROWS {
            return self.distances_by_product(other);
        }
        let differences = (self.unsqueeze(-2)?).sub(&other.unsqueeze(-3)?)?;
        match differences.size(-1)? {
            0 => differences.sum(&[-1], false),
            _ => differences.vector_norm(p, &[-1], false),
        }
    }

    #[track_caller]
    fn distances_by_product(&self, other: &Tensor) -> Result<Tensor> {
        let squares = |x: &Tensor| x.square()?.sum(&[-1], false);
        let (rows, cols) = (
            squares(self)?.unsqueeze(-1)?,
            squares(other)?.unsqueeze(-2)?,
        );
        let products = self.matmul(&turned(other)?)?;
        let square = &rows + &cols - Formula::from(&products) * 2.0;
        let none = square.le(0.0);
        none.where_(0.0, none.where_(1.0, square).sqrt()).eval()
    }

    /// How the rows of `[variables, observations]`, or a vector of observations, vary together: `[variables, variables]`, zero-dim for a
    /// vector (`torch.cov`). Squares are over n - `correction` (PyTorch's default is 1). `fweights` says how often each observation
    /// counts, whole numbers; `aweights` how much.
    #[track_caller]
    pub fn cov(
        &self,
        correction: i64,
        fweights: Option<&Tensor>,
        aweights: Option<&Tensor>,
    ) -> Result<Tensor> {
        const NAME: &str = "cov";
        let operands = || vec![self.operand("self")];
        if self.ndim() > 2 {
            let what = format!("expected at most two dimensions, got {}", self.shape());
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        if self.dtype() == DType::Bool {
            return Err(Error::dtype(NAME, "bool is not taken").with_operands(operands));
        }
        let x = match self.dtype().is_floating_point() {
            true => self.clone(),
            false => self.to_dtype(DType::F32)?,
        };
        let x = match self.ndim() {
            2 => x,
            _ => x.reshape(&[1, self.numel() as isize])?,
        };
        let count = x.size(1)?;
        for (name, weights, whole) in [("fweights", fweights, true), ("aweights", aweights, false)]
        {
            let Some(weights) = weights else { continue };
            if weights.ndim() != 1 || weights.numel() != count {
                let what = format!("expected {count} {name}, got {}", weights.shape());
                return Err(Error::shape(NAME, what).with_operands(operands));
            }
            if weights.dtype().is_floating_point() == whole || weights.dtype() == DType::Bool {
                let expected = if whole { "whole numbers" } else { "floats" };
                let what = format!("expected {expected} as {name}, got {}", weights.dtype());
                return Err(Error::dtype(NAME, what).with_operands(operands));
            }
        }
        let cast = |weights: &Tensor| weights.to_dtype(x.dtype());
        let weights = match (fweights, aweights) {
            (None, None) => None,
            (Some(weights), None) | (None, Some(weights)) => Some(cast(weights)?),
            (Some(often), Some(much)) => Some(cast(often)?.mul(&cast(much)?)?),
        };
        let Some(weights) = weights else {
            let centred = x.sub(&x.mean(&[1], true)?)?;
            let freedom = (count as f64 - correction as f64).max(0.0);
            let product = centred.matmul(&centred.t()?)?;
            return product.div(freedom)?.squeeze_all();
        };
        let sum = weights.sum_all()?;
        let mean = x.mul(&weights)?.sum(&[1], true)?.div(&sum)?;
        let freedom = match aweights {
            Some(much) if correction != 0 => {
                let squares = weights.mul(&cast(much)?)?.sum_all()?;
                let lost = Formula::from(&squares) * correction as f64 / &sum;
                (Formula::from(&sum) - lost).maximum(0.0).eval()?
            }
            _ => (Formula::from(&sum) - correction as f64)
                .maximum(0.0)
                .eval()?,
        };
        let centred = x.sub(&mean)?;
        let product = centred.matmul(&centred.mul(&weights)?.t()?)?;
        product.div(&freedom)?.squeeze_all()
    }

    /// The correlations of the rows of `[variables, observations]`: [`cov`](Tensor::cov) over the deviations of both, from -1 to 1
    /// (`torch.corrcoef`).
    #[track_caller]
    pub fn corrcoef(&self) -> Result<Tensor> {
        if self.ndim() > 2 {
            let what = format!("expected at most two dimensions, got {}", self.shape());
            return Err(Error::shape("corrcoef", what).with_operands(|| vec![self.operand("self")]));
        }
        let cov = self.cov(1, None, None)?;
        if cov.ndim() == 0 {
            return cov.div(&cov);
        }
        let deviations = cov.main_diagonal()?.sqrt()?;
        let (rows, cols) = (deviations.unsqueeze(1)?, deviations.unsqueeze(0)?);
        (&cov / &rows / &cols).clamp(-1.0, 1.0).eval()
    }

    /// The elements `[i, i]` of a matrix.
    #[track_caller]
    pub(super) fn main_diagonal(&self) -> Result<Tensor> {
        let (rows, cols) = (self.size(-2)?, self.size(-1)?);
        let count = rows.min(cols);
        let flat = self.flatten(-2, -1)?;
        if count == 0 {
            return flat.narrow(-1, 0, 0);
        }
        let end = (count - 1) * (cols + 1) + 1;
        flat.slice(-1, 0, end as isize, cols + 1)
    }

    /// The sum of the elements `[i, i]` of a matrix (`torch.trace`). Whole numbers are summed as i64.
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        if self.ndim() != 2 {
            let what = format!("expected a matrix, got {}", self.shape());
            return Err(Error::shape("trace", what).with_operands(|| vec![self.operand("self")]));
        }
        self.main_diagonal()?.sum_all()
    }
}
