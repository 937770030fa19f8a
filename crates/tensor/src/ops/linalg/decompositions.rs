//! The methods of decompositions and solvers.

use fireclay_core::{DType, Error, Result, Shape};

use super::gradients::{turned, unit_like};
use super::{Kind, Linalg};
use crate::autograd::{is_grad_enabled, no_grad};
use crate::dispatch;
use crate::formula::Formula;
use crate::tensor::Tensor;

/// Which factors [`Tensor::qr`] gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QrMode {
    /// `q` of `[m, k]` and `r` of `[k, n]`, where k is the smaller of m and n.
    #[default]
    Reduced,
    /// `q` of `[m, m]` and `r` of `[m, n]`.
    Complete,
    /// `r` of `[k, n]` alone, which has no gradient; `q` is an empty vector.
    R,
}

/// What [`Tensor::lstsq`] gives.
#[derive(Clone, Debug)]
pub struct LeastSquares {
    /// `[.., n, k]`: of the best solutions the shortest.
    pub solution: Tensor,
    /// `[.., k]`: the squared distances of `a @ solution` from `b`; empty unless `m > n` and all matrices have rank n.
    pub residuals: Tensor,
    /// The ranks, i64.
    pub rank: Tensor,
    /// Empty: PyTorch's default method does not compute them.
    pub singular_values: Tensor,
}

#[track_caller]
fn run(kind: Kind, inputs: &[&Tensor]) -> Result<Tensor> {
    dispatch::call_one(Linalg { kind }, inputs)
}

/// Both with the same dimensions before the last two.
#[track_caller]
fn of_one_batch(op: &'static str, a: &Tensor, b: &Tensor) -> Result<[Tensor; 2]> {
    let operands = || vec![a.operand("a"), b.operand("b")];
    if a.ndim() < 2 || b.ndim() < 2 {
        let what = format!(
            "expected matrices [.., n, n] and [.., n, k], got {} and {}",
            a.shape(),
            b.shape()
        );
        return Err(Error::shape(op, what).with_operands(operands));
    }
    let split = |x: &Tensor| {
        let (batch, matrix) = x.shape().split_at(x.ndim() - 2);
        (Shape::new(batch), matrix.to_vec())
    };
    let ((a_batch, a_matrix), (b_batch, b_matrix)) = (split(a), split(b));
    let Some(batch) = a_batch.broadcast(&b_batch) else {
        let what = format!("batch dimensions do not broadcast, got {a_batch} and {b_batch}");
        return Err(Error::shape(op, what).with_operands(operands));
    };
    let whole = |matrix: &[usize]| Shape::new(&[&batch[..], matrix].concat());
    Ok([
        a.expand_to(&whole(&a_matrix))?,
        b.expand_to(&whole(&b_matrix))?,
    ])
}

impl Tensor {
    /// The inverse of square matrices `[.., n, n]`, f32 or f64 (`torch.linalg.inv`).
    ///
    /// # Errors
    /// A singular matrix is named by its place in the batch.
    #[track_caller]
    pub fn inv(&self) -> Result<Tensor> {
        run(Kind::Inv, &[self])
    }

    /// The determinants of `[.., n, n]`, f32 or f64 (`torch.linalg.det`). The gradient is right for singular matrices too; the second
    /// derivative wants an inverse.
    #[track_caller]
    pub fn det(&self) -> Result<Tensor> {
        run(Kind::Det, &[self])
    }

    /// Sign and logarithm of the size of the determinants of `[.., n, n]` (`torch.linalg.slogdet`); 0 and minus infinity for a singular
    /// matrix.
    #[track_caller]
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        let kind = Kind::SlogDet;
        let outputs = dispatch::call(Linalg { kind }, &[self])?;
        Ok((outputs[0].clone(), outputs[1].clone()))
    }

    /// The lower factor L of `L @ L^T` for symmetric positive-definite `[.., n, n]`, of which only the lower triangle is read; or if
    /// `upper`, the upper factor from the upper triangle (`torch.linalg.cholesky`).
    ///
    /// # Errors
    /// A matrix that is not positive-definite is named by its place in the batch.
    #[track_caller]
    pub fn cholesky(&self, upper: bool) -> Result<Tensor> {
        match upper && self.ndim() >= 2 {
            true => turned(&run(Kind::Cholesky, &[&turned(self)?])?),
            false => run(Kind::Cholesky, &[self]),
        }
    }

    /// The solution X of `self @ X = b`, or of `X @ self = b` if not `left`, for square matrices `[.., n, n]` (`torch.linalg.solve`).
    /// Batch dimensions broadcast. `b` is a vector, or a batch of vectors, if it has one dimension or the sizes of `self` without
    /// the last.
    ///
    /// # Errors
    /// A singular matrix is named by its place in the batch.
    #[track_caller]
    pub fn solve(&self, b: &Tensor, left: bool) -> Result<Tensor> {
        if self.is_right_side_of_vectors(b) {
            if !left {
                let what = "X @ a = b needs matrices b, got vectors";
                return Err(Error::argument("linalg.solve", what)
                    .with_operands(|| vec![self.operand("a"), b.operand("b")]));
            }
            return self.solve(&b.unsqueeze(-1)?, true)?.squeeze(-1);
        }
        let [a, b] = of_one_batch("linalg.solve", self, b)?;
        match left {
            true => run(Kind::Solve, &[&a, &b]),
            false => turned(&run(Kind::Solve, &[&turned(&a)?, &turned(&b)?])?),
        }
    }

    fn is_right_side_of_vectors(&self, b: &Tensor) -> bool {
        b.ndim() == 1 || self.ndim() == b.ndim() + 1 && self.shape()[..b.ndim()] == b.shape()[..]
    }

    /// The solution X of `self @ X = b`, or of `X @ self = b` if not `left`, for triangular `[.., n, n]` of which only the triangle is read,
    /// and not its diagonal if that is `unitriangular` (`torch.linalg.solve_triangular`). Batch dimensions broadcast.
    #[track_caller]
    pub fn solve_triangular(
        &self,
        b: &Tensor,
        upper: bool,
        left: bool,
        unitriangular: bool,
    ) -> Result<Tensor> {
        let [a, b] = of_one_batch("linalg.solve_triangular", self, b)?;
        let unit = unitriangular;
        match left {
            true => run(Kind::SolveTriangular { upper, unit }, &[&a, &b]),
            false => {
                let kind = Kind::SolveTriangular {
                    upper: !upper,
                    unit,
                };
                turned(&run(kind, &[&turned(&a)?, &turned(&b)?])?)
            }
        }
    }

    /// Factors `self = q @ r` of `[.., m, n]`: q has orthonormal columns, r is an upper triangle (`torch.linalg.qr`).
    #[track_caller]
    pub fn qr(&self, mode: QrMode) -> Result<(Tensor, Tensor)> {
        let complete = mode == QrMode::Complete;
        let op = Linalg {
            kind: Kind::Qr { complete },
        };
        if mode == QrMode::R {
            let outputs = no_grad(|| dispatch::call(op, &[self]))?;
            let none = Tensor::full_of(&[0], 0.0, self.dtype(), self.device())?;
            return Ok((none, outputs[1].clone()));
        }
        let outputs = dispatch::call(op, &[self])?;
        Ok((outputs[0].clone(), outputs[1].clone()))
    }

    /// Factors `self = u @ diag(s) @ vh` of `[.., m, n]`: u has orthonormal columns, vh orthonormal rows, s falls and is not negative
    /// (`torch.linalg.svd`). They are `[.., m, k]`, `[.., k]` and `[.., k, n]` with the smaller size k; or if `full_matrices`, u is
    /// `[.., m, m]` and vh `[.., n, n]`, of which the gradient ignores what goes beyond. The signs of vectors are open: a function that
    /// depends on them has no meaning.
    ///
    /// # Errors
    /// A matrix with infinities or NaN.
    #[track_caller]
    pub fn svd(&self, full_matrices: bool) -> Result<(Tensor, Tensor, Tensor)> {
        let kind = Kind::Svd {
            full: full_matrices,
        };
        let outputs = dispatch::call(Linalg { kind }, &[self])?;
        Ok((outputs[0].clone(), outputs[1].clone(), outputs[2].clone()))
    }

    /// The singular values of `[.., m, n]`, falling (`torch.linalg.svdvals`).
    #[track_caller]
    pub fn svdvals(&self) -> Result<Tensor> {
        match is_grad_enabled() && self.requires_grad() {
            true => Ok(self.svd(false)?.1),
            false => run(Kind::SingularValues, &[self]),
        }
    }

    /// Eigenvalues, rising, and eigenvectors, as columns, of symmetric `[.., n, n]`, of which only the lower triangle is read, or the upper
    /// one if `upper` (`torch.linalg.eigh`). The signs of vectors are open.
    #[track_caller]
    pub fn eigh(&self, upper: bool) -> Result<(Tensor, Tensor)> {
        let x = self.with_lower_triangle(upper)?;
        let kind = Kind::Eigh;
        let outputs = dispatch::call(Linalg { kind }, &[&x])?;
        Ok((outputs[0].clone(), outputs[1].clone()))
    }

    /// The eigenvalues of [`eigh`](Tensor::eigh) (`torch.linalg.eigvalsh`).
    #[track_caller]
    pub fn eigvalsh(&self, upper: bool) -> Result<Tensor> {
        match is_grad_enabled() && self.requires_grad() {
            true => Ok(self.eigh(upper)?.0),
            false => run(Kind::Eigenvalues, &[&self.with_lower_triangle(upper)?]),
        }
    }

    fn with_lower_triangle(&self, upper: bool) -> Result<Tensor> {
        match upper && self.ndim() >= 2 {
            true => turned(self),
            false => Ok(self.clone()),
        }
    }

    /// What counts as zero beside the largest singular value: rtol, by default the precision times the larger size, unless atol is given.
    fn tolerances(&self, atol: Option<f64>, rtol: Option<f64>) -> [f64; 2] {
        let epsilon = match self.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        };
        let size = self.shape().iter().rev().take(2).max().copied();
        let rtol = rtol.unwrap_or(match atol {
            None => epsilon * size.unwrap_or(0) as f64,
            Some(_) => 0.0,
        });
        [atol.unwrap_or(0.0), rtol]
    }

    /// The pseudoinverse `[.., n, m]` of `[.., m, n]` (`torch.linalg.pinv`). Singular values up to the larger of `atol` (by default 0) and
    /// `rtol` times the largest one count as zero; `rtol` is by default the precision of the dtype times the larger of m and n, or 0
    /// if `atol` is given. A `hermitian` matrix is symmetric: only its lower triangle is read.
    #[track_caller]
    pub fn pinv(&self, atol: Option<f64>, rtol: Option<f64>, hermitian: bool) -> Result<Tensor> {
        let [atol, rtol] = self.tolerances(atol, rtol);
        if !hermitian {
            return run(Kind::PseudoInverse { atol, rtol }, &[self]);
        }
        let (w, v) = self.eigh(false)?;
        if w.numel() == 0 {
            return Ok(v);
        }
        let counts = self.counted(&w.detach().abs()?, atol, rtol)?;
        let inverse = (counts.where_(1.0 / counts.where_(&w, 1.0), 0.0)).eval()?;
        v.mul(&inverse.unsqueeze(-2)?)?.matmul(&turned(&v)?)
    }

    /// Which of the sizes of singular values are not zero.
    fn counted(&self, sizes: &Tensor, atol: f64, rtol: f64) -> Result<Formula> {
        let largest = sizes.amax(&[-1], true)?;
        let least = Formula::from(&largest) * rtol;
        Ok(Formula::from(sizes).gt(least.maximum(atol)))
    }

    /// The ranks of `[.., m, n]`, i64 (`torch.linalg.matrix_rank`): how many singular values are not zero by the tolerances of
    /// [`pinv`](Tensor::pinv). A `hermitian` matrix is symmetric: only its lower triangle is read.
    #[track_caller]
    pub fn matrix_rank(
        &self,
        atol: Option<f64>,
        rtol: Option<f64>,
        hermitian: bool,
    ) -> Result<Tensor> {
        let [atol, rtol] = self.tolerances(atol, rtol);
        let x = self.detach();
        let sizes = match hermitian {
            true => x.eigvalsh(false)?.abs()?,
            false => x.svdvals()?,
        };
        if sizes.numel() == 0 {
            let batch = &sizes.shape()[..sizes.ndim() - 1];
            return Tensor::full_of(batch, 0i64, DType::I64, self.device());
        }
        self.counted(&sizes, atol, rtol)?.eval()?.sum(&[-1], false)
    }

    /// The X for which `self @ X` is nearest to `b`, of `[.., m, n]` and `[.., m, k]` (`torch.linalg.lstsq`). `b` may be vectors as for
    /// [`solve`](Tensor::solve). `rcond` is [`pinv`](Tensor::pinv)'s rtol.
    #[track_caller]
    pub fn lstsq(&self, b: &Tensor, rcond: Option<f64>) -> Result<LeastSquares> {
        const NAME: &str = "linalg.lstsq";
        let operands = || vec![self.operand("a"), b.operand("b")];
        if self.dtype() != b.dtype() {
            let what = format!("expected one dtype, got {} and {}", self.dtype(), b.dtype());
            return Err(Error::dtype(NAME, what).with_operands(operands));
        }
        if self.is_right_side_of_vectors(b) {
            let whole = self.lstsq(&b.unsqueeze(-1)?, rcond)?;
            return Ok(LeastSquares {
                solution: whole.solution.squeeze(-1)?,
                residuals: match whole.residuals.ndim() + 1 == whole.solution.ndim() {
                    true => whole.residuals.squeeze(-1)?,
                    false => whole.residuals,
                },
                ..whole
            });
        }
        let [a, b] = of_one_batch(NAME, self, b)?;
        let [m, n] = [a.size(-2)?, a.size(-1)?];
        if b.size(-2)? != m {
            let what = format!("expected a right side of {m} rows, got {}", b.shape());
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        let solution = a.pinv(None, rcond, false)?.matmul(&b)?;
        let rank = self.matrix_rank(None, rcond, false)?;
        let none = || Tensor::full_of(&[0], 0.0, a.dtype(), a.device());
        let is_full = m > n && rank.to_vec::<i64>()?.iter().all(|&rank| rank == n as i64);
        let residuals = match is_full {
            true => {
                let distance = a.matmul(&solution)?.sub(&b)?;
                distance.square()?.sum(&[-2], false)?
            }
            false => none()?,
        };
        Ok(LeastSquares {
            solution,
            residuals,
            rank,
            singular_values: none()?,
        })
    }

    /// Square matrices `[.., n, n]` to a whole power, of the inverse if that is negative (`torch.linalg.matrix_power`).
    #[track_caller]
    pub fn matrix_power(&self, power: i64) -> Result<Tensor> {
        const NAME: &str = "linalg.matrix_power";
        let shape = self.shape();
        if self.ndim() < 2 || shape[self.ndim() - 1] != shape[self.ndim() - 2] {
            let what = format!("expected square matrices [.., n, n], got {shape}");
            return Err(Error::shape(NAME, what).with_operands(|| vec![self.operand("self")]));
        }
        if power == 0 {
            // Whatever the matrix is, with a derivative of 0, which the sign has.
            let unit = unit_like(&self.detach())?;
            return (Formula::from(self).sign() * 0.0 + &unit).eval();
        }
        let mut square = match power < 0 {
            true => self.inv()?,
            false => self.clone(),
        };
        let mut left = power.unsigned_abs();
        let mut result: Option<Tensor> = None;
        loop {
            if left & 1 == 1 {
                result = Some(match result {
                    None => square.clone(),
                    Some(result) => result.matmul(&square)?,
                });
            }
            left >>= 1;
            if left == 0 {
                break;
            }
            square = square.matmul(&square)?;
        }
        match result {
            Some(result) if power == 1 => result.copy(),
            Some(result) => Ok(result),
            None => self.copy(),
        }
    }

    /// `e^x` of square matrices `[.., n, n]`: the sum of `x^k / k!` (`torch.linalg.matrix_exp`).
    #[track_caller]
    pub fn matrix_exp(&self) -> Result<Tensor> {
        run(Kind::Exponential, &[self])
    }
}
