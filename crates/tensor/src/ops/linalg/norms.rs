//! Norms of vectors and matrices.

use fireclay_core::{DType, Error, Result, resolve_dim};

use crate::formula::Formula;
use crate::tensor::Tensor;

/// Which norm: what PyTorch calls `ord` or `p`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NormOrder {
    /// The root of the sum of squares.
    Frobenius,
    /// The sum of singular values.
    Nuclear,
    /// Of vectors `(sum of |x|^p)^(1/p)`, the largest or smallest size for an infinity, and how many are not zero for 0. Of matrices the
    /// largest (1, 2, infinity) or smallest (-1, -2, -infinity) sum of a column, singular value, sum of a row.
    Number(f64),
}

impl From<f64> for NormOrder {
    fn from(number: f64) -> NormOrder {
        NormOrder::Number(number)
    }
}

/// 16-bit floats are computed in f32 and rounded once.
fn wide(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

#[track_caller]
fn check_float(op: &'static str, x: &Tensor) -> Result<()> {
    if x.dtype().is_floating_point() {
        return Ok(());
    }
    let what = format!("expected a floating dtype, got {}", x.dtype());
    Err(Error::dtype(op, what)
        .with_hint("cast it first: to_dtype(DType::F32)")
        .with_operands(|| vec![x.operand("self")]))
}

/// `sqrt(x)`, whose derivative at 0 is 0 here: that of the norm.
fn root(x: &Formula) -> Formula {
    let is_zero = x.eq(0.0);
    is_zero.where_(0.0, is_zero.where_(1.0, x).sqrt())
}

/// `x^p` of what isn't negative, whose derivative at 0 is 0 here.
fn power(x: &Formula, p: f64) -> Formula {
    let is_zero = x.eq(0.0);
    is_zero.where_(
        if p > 0.0 { 0.0 } else { f64::INFINITY },
        is_zero.where_(1.0, x).pow(p),
    )
}

impl Tensor {
    /// The norm over `dims`, all of them if empty, of the elements as a vector (`torch.linalg.vector_norm`); see
    /// [`NormOrder::Number`] for `ord`. The derivative where the norm is 0 is 0.
    #[track_caller]
    pub fn vector_norm(&self, ord: f64, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        const NAME: &str = "linalg.vector_norm";
        check_float(NAME, self)?;
        let x = wide(self)?;
        let whole = dims.is_empty() && !keepdim && self.ndim() > 0;
        let sum = |terms: Formula| match whole {
            true => terms.sum(),
            false => terms.eval()?.sum(dims, keepdim),
        };
        let sizes = Formula::from(&x).abs();
        let norm = if ord == 2.0 {
            root(&sum(&x * &x)?.into()).eval()?
        } else if ord == 1.0 {
            sum(sizes)?
        } else if ord.is_nan() {
            let what = "expected a number for the order, got NaN";
            return Err(Error::argument(NAME, what).with_operands(|| vec![self.operand("self")]));
        } else if ord.is_infinite() {
            let sizes = sizes.eval()?;
            match ord > 0.0 {
                true => sizes.amax(dims, keepdim)?,
                false => sizes.amin(dims, keepdim)?,
            }
        } else if ord == 0.0 {
            // Its derivative is 0, which the sign has.
            let x = Formula::from(&x);
            sum(x.ne(0.0).where_(x.sign() * 0.0 + 1.0, 0.0))?
        } else {
            power(&sum(power(&sizes, ord))?.into(), 1.0 / ord).eval()?
        };
        norm.to_dtype(self.dtype())
    }

    /// The norm of the matrices that the two dimensions `dims` are, rows first (`torch.linalg.matrix_norm`; its default is
    /// `Frobenius` and `[-2, -1]`).
    #[track_caller]
    pub fn matrix_norm(
        &self,
        ord: impl Into<NormOrder>,
        dims: [isize; 2],
        keepdim: bool,
    ) -> Result<Tensor> {
        const NAME: &str = "linalg.matrix_norm";
        check_float(NAME, self)?;
        let operands = || vec![self.operand("self")];
        if self.ndim() < 2 {
            let what = format!("expected matrices [.., m, n], got {}", self.shape());
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        let rows = resolve_dim(NAME, dims[0], self.ndim())?;
        let cols = resolve_dim(NAME, dims[1], self.ndim())?;
        if rows == cols {
            let what = format!("rows and columns are different dimensions, got {rows} twice");
            return Err(Error::argument(NAME, what).with_operands(operands));
        }
        let [row, col] = [rows, cols].map(|dim| dim as isize);
        let x = wide(self)?;
        // Sums along the one dimension, of which the largest or smallest along the other.
        let of_sums = |along: isize, largest: bool| {
            let other = if along == row { col } else { row };
            let sums = x.abs()?.sum(&[along], true)?;
            match largest {
                true => sums.amax(&[other], true),
                false => sums.amin(&[other], true),
            }
        };
        // With both dimensions of size 1.
        let kept = |norm: &Tensor| -> Result<Tensor> {
            let mut sizes: Vec<isize> = self.shape().iter().map(|&size| size as isize).collect();
            (sizes[rows], sizes[cols]) = (1, 1);
            norm.reshape(&sizes)
        };
        let of_values = |f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Tensor> {
            let others = (0..self.ndim()).filter(|dim| *dim != rows && *dim != cols);
            let order: Vec<isize> = others.chain([rows, cols]).map(|dim| dim as isize).collect();
            kept(&f(&x.permute(&order)?.svdvals()?)?)
        };
        let norm = match ord.into() {
            NormOrder::Frobenius => x.vector_norm(2.0, &dims, true)?,
            NormOrder::Nuclear => of_values(&|s| s.sum(&[-1], false))?,
            NormOrder::Number(2.0) => of_values(&|s| s.amax(&[-1], false))?,
            NormOrder::Number(-2.0) => of_values(&|s| s.amin(&[-1], false))?,
            NormOrder::Number(1.0) => of_sums(row, true)?,
            NormOrder::Number(-1.0) => of_sums(row, false)?,
            NormOrder::Number(f64::INFINITY) => of_sums(col, true)?,
            NormOrder::Number(f64::NEG_INFINITY) => of_sums(col, false)?,
            NormOrder::Number(ord) => {
                let what = format!(
                    "expected an order of 1, 2, infinity, their negatives, Frobenius or Nuclear for matrices, got {ord}"
                );
                return Err(Error::argument(NAME, what).with_operands(operands));
            }
        };
        let norm = norm.to_dtype(self.dtype())?;
        if keepdim {
            return Ok(norm);
        }
        norm.squeeze(rows.max(cols) as isize)?
            .squeeze(rows.min(cols) as isize)
    }

    /// The norm of a vector or matrix (`torch.linalg.norm`): over one dimension of vectors, over two of matrices. Without an order, the root
    /// of the sum of squares over all `dims`, or all elements if `dims` is empty; with one and without `dims`, `self` is a vector or a
    /// matrix.
    #[track_caller]
    pub fn linalg_norm(
        &self,
        ord: Option<NormOrder>,
        dims: &[isize],
        keepdim: bool,
    ) -> Result<Tensor> {
        const NAME: &str = "linalg.norm";
        let Some(ord) = ord else {
            return self.vector_norm(2.0, dims, keepdim);
        };
        let all: Vec<isize> = match dims {
            [] => (0..self.ndim() as isize).collect(),
            dims => dims.to_vec(),
        };
        match (&all[..], ord) {
            ([_], NormOrder::Number(ord)) => self.vector_norm(ord, &all, keepdim),
            (&[rows, cols], ord) => self.matrix_norm(ord, [rows, cols], keepdim),
            ([_], _) => {
                let what =
                    format!("expected a number as the order of a vector's norm, got {ord:?}");
                Err(Error::argument(NAME, what).with_operands(|| vec![self.operand("self")]))
            }
            (all, _) => {
                let what = format!(
                    "with an order, expected 1 dimension of vectors or 2 of matrices, got {}",
                    all.len()
                );
                Err(Error::shape(NAME, what)
                    .with_hint("name them with dims")
                    .with_operands(|| vec![self.operand("self")]))
            }
        }
    }

    /// The norm over `dims`, all of them if empty (`torch.norm`): as a vector, but for [`NormOrder::Nuclear`], which wants two
    /// dimensions.
    #[track_caller]
    pub fn norm(&self, p: impl Into<NormOrder>, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        match p.into() {
            NormOrder::Frobenius => self.vector_norm(2.0, dims, keepdim),
            NormOrder::Number(p) => self.vector_norm(p, dims, keepdim),
            NormOrder::Nuclear => match *dims {
                [] => self.matrix_norm(NormOrder::Nuclear, [0, 1], keepdim),
                [rows, cols] => self.matrix_norm(NormOrder::Nuclear, [rows, cols], keepdim),
                _ => {
                    let what = format!("the nuclear norm is of 2 dimensions, got {dims:?}");
                    Err(Error::argument("norm", what).with_operands(|| vec![self.operand("self")]))
                }
            },
        }
    }
}
