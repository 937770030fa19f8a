//! Gradients of decompositions, in tensor ops.
//!
//! Sources: M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic differentiation"
//! (2008), for inverse, determinant, Cholesky and triangular solves; I. Murray, "Differentiation of the Cholesky decomposition"
//! (2016); S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum
//! experimental design" (2010), for QR and symmetric eigenvalues; J. Townsend, "Differentiating the singular value decomposition"
//! (2016); G. Golub and V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems" (1973); I. Najfeld
//! and T. Havel, "Derivatives of the matrix exponential and their computation" (1995).

use fireclay_core::{Context, Error, Result};
use smallvec::smallvec;

use super::{Kind, Linalg};
use crate::autograd::{Backward, is_grad_enabled};
use crate::dispatch;
use crate::formula::Formula;
use crate::op::Grads;
use crate::tensor::Tensor;

/// The transposes of matrices.
pub(super) fn turned(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)
}

/// Whether row and column of an element of `[rows, cols]` have `col - row <= diagonal`.
fn below(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    let size = |dim: isize| Ok::<_, Error>(x.size(dim)? as i64);
    let rows = Tensor::arange(0i64, size(-2)?, 1i64, x.device())?.unsqueeze(1)?;
    let cols = Tensor::arange(0i64, size(-1)?, 1i64, x.device())?;
    cols.sub(&rows)?.le(diagonal)
}

/// The elements up to a diagonal, 0 elsewhere.
pub(super) fn lower(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    below(x, diagonal)?.where_(x, 0.0)
}

/// The elements from a diagonal on, 0 elsewhere.
pub(super) fn upper(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    below(x, diagonal - 1)?.where_(0.0, x)
}

/// Whether an element of the square matrices `x` is on the diagonal.
fn on_diagonal(x: &Tensor) -> Result<Tensor> {
    let places = Tensor::arange(0i64, x.size(-1)? as i64, 1i64, x.device())?;
    places.unsqueeze(1)?.eq(&places)
}

/// Matrices with these diagonals.
pub(super) fn diagonal_matrix(x: &Tensor) -> Result<Tensor> {
    on_diagonal(x)?.where_(&x.unsqueeze(-2)?, 0.0)
}

/// Matrices of the shape of `x` with units on the diagonal.
pub(super) fn unit_like(x: &Tensor) -> Result<Tensor> {
    let unit = on_diagonal(x)?.to_dtype(x.dtype())?;
    unit.expand_to(x.shape())
}

fn run(kind: Kind, inputs: &[&Tensor]) -> Result<Tensor> {
    dispatch::call_one(Linalg { kind }, inputs)
}

pub(super) fn backward(op: Linalg, context: &Backward<'_>) -> Result<Grads> {
    let grad = match op.kind {
        Kind::Inv => {
            let y = turned(&context.output(0)?)?;
            Some((-&y.matmul(context.grad_output())?.matmul(&y)?).eval()?)
        }
        Kind::Solve => {
            let (a, x) = (context.input(0)?, context.output(0)?);
            let of_b = run(Kind::Solve, &[&turned(&a)?, context.grad_output()])?;
            let of_a = match context.needs(0) {
                true => Some((-&of_b.matmul(&turned(&x)?)?).eval()?),
                false => None,
            };
            return Ok(smallvec![of_a, Some(of_b)]);
        }
        Kind::SolveTriangular {
            upper: is_upper,
            unit,
        } => {
            let (a, x) = (context.input(0)?, context.output(0)?);
            let kind = Kind::SolveTriangular {
                upper: !is_upper,
                unit,
            };
            let of_b = run(kind, &[&turned(&a)?, context.grad_output()])?;
            let of_a = match context.needs(0) {
                true => {
                    let product = (-&of_b.matmul(&turned(&x)?)?).eval()?;
                    let off = i64::from(unit);
                    Some(if is_upper {
                        upper(&product, off)?
                    } else {
                        lower(&product, -off)?
                    })
                }
                false => None,
            };
            return Ok(smallvec![of_a, Some(of_b)]);
        }
        Kind::Det => {
            let (a, grad) = (context.input(0)?, over_matrices(context.grad_output())?);
            Some(if is_grad_enabled() {
                // A function that can be differentiated itself, where there is an inverse.
                let inverse = turned(&run(Kind::Inv, &[&a])?)?;
                (&grad * &over_matrices(&context.output(0)?)? * &inverse).eval()?
            } else {
                grad.mul(&run(Kind::Cofactors, &[&a])?)?
            })
        }
        Kind::SlogDet => match context.grad(1) {
            None => None,
            Some(grad) => {
                let inverse = run(Kind::Inv, &[&context.input(0)?])?;
                Some(over_matrices(grad)?.mul(&turned(&inverse)?)?)
            }
        },
        Kind::Cholesky => Some(of_cholesky(&context.output(0)?, context.grad_output())?),
        Kind::Qr { .. } => of_qr(context)?,
        Kind::Svd { .. } => of_svd(context)?,
        Kind::Eigh => of_eigh(context)?,
        Kind::PseudoInverse { .. } => {
            let (a, y) = (context.input(0)?, context.output(0)?);
            Some(of_pseudoinverse(&a, &y, context.grad_output())?)
        }
        Kind::Exponential => Some(of_exponential(&context.input(0)?, context.grad_output())?),
        Kind::Cofactors | Kind::SingularValues | Kind::Eigenvalues => {
            return Err(Error::NotDifferentiable {
                op: crate::op::Op::name(&op),
                location: context.location(),
            });
        }
    };
    Ok(smallvec![grad])
}

/// One number for each matrix, as matrices of one element.
fn over_matrices(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(-1)?.unsqueeze(-1)
}

/// `L^-T sym(lower(L^T G)) L^-1`, where sym makes of a triangle a symmetric matrix, diagonal halved.
fn of_cholesky(l: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let product = turned(l)?.matmul(grad)?;
    let strict = lower(&product, -1)?;
    let whole = lower(&product, 0)?.add(&turned(&strict)?)?.mul(0.5)?;
    let transposed = Kind::SolveTriangular {
        upper: true,
        unit: false,
    };
    let lt = turned(l)?;
    let left = run(transposed, &[&lt, &whole])?;
    // X L = left is L^T X^T = left^T.
    turned(&run(transposed, &[&lt, &turned(&left)?])?)
}

fn of_qr(context: &Backward<'_>) -> Result<Option<Tensor>> {
    let (q, r) = (context.output(0)?, context.output(1)?);
    let (m, n) = (q.size(-2)?, r.size(-1)?);
    let k = q.size(-1)?;
    let (of_q, of_r) = (context.grad(0), context.grad(1));
    if k > n {
        return Err(Error::Autograd {
            op: "linalg.qr",
            what: format!(
                "the complete QR of matrices with more rows than columns, {m} and {n}, has no derivative"
            ),
            context: Context::hint("use the reduced one"),
        });
    }
    let of_q = match of_q {
        Some(of_q) => of_q.clone(),
        None => q.zeros_like()?,
    };
    let of_r = match of_r {
        Some(of_r) => upper(of_r, 0)?,
        None => r.zeros_like()?,
    };
    if n == k {
        return Ok(Some(of_thin_qr(&q, &r, &of_q, &of_r)?));
    }
    // A = [X, Y] with X square: R = [U, V], X = Q U, Y = Q V.
    let split = |x: &Tensor| Ok::<_, Error>([x.narrow(-1, 0, k)?, x.narrow(-1, k, n - k)?]);
    let ([u, v], [of_u, of_v]) = (split(&r)?, split(&of_r)?);
    let y = q.matmul(&v)?;
    let of_q = of_q.add(&y.matmul(&turned(&of_v)?)?)?;
    let of_x = of_thin_qr(&q, &u, &of_q, &of_u)?;
    Ok(Some(Tensor::cat(&[&of_x, &q.matmul(&of_v)?], -1)?))
}

/// Of `A = Q R` with a square R: `(gQ + Q copyltu(M)) R^-T` with `M = R gR^T - gQ^T Q`.
fn of_thin_qr(q: &Tensor, r: &Tensor, of_q: &Tensor, of_r: &Tensor) -> Result<Tensor> {
    let m = (r.matmul(&turned(of_r)?)?).sub(&turned(of_q)?.matmul(q)?)?;
    let mirrored = lower(&m, 0)?.add(&turned(&lower(&m, -1)?)?)?;
    let left = of_q.add(&q.matmul(&mirrored)?)?;
    // X R^T = left is R X^T = left^T.
    let kind = Kind::SolveTriangular {
        upper: true,
        unit: false,
    };
    turned(&run(kind, &[r, &turned(&left)?])?)
}

/// `x_j - x_i`, and 1 on the diagonal.
fn gaps(x: &Tensor) -> Result<Tensor> {
    let (rows, cols) = (x.unsqueeze(-1)?, x.unsqueeze(-2)?);
    let diagonal = Formula::from(on_diagonal(x)?);
    diagonal.where_(1.0, &cols - &rows).eval()
}

fn skew(x: &Tensor) -> Result<Tensor> {
    x.sub(&turned(x)?)
}

fn of_svd(context: &Backward<'_>) -> Result<Option<Tensor>> {
    let s = context.output(1)?;
    let k = s.size(-1)?;
    let thin = |u: &Tensor| u.narrow(-1, 0, k);
    let wide = |vh: &Tensor| vh.narrow(-2, 0, k);
    let (u, vh) = (thin(&context.output(0)?)?, wide(&context.output(2)?)?);
    let of_u = context.grad(0).map(thin).transpose()?;
    let of_s = context.grad(1);
    let of_vh = context.grad(2).map(wide).transpose()?;
    let (cols, rows) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
    // U^T dA V.
    let mut inner = match of_s {
        Some(of_s) => diagonal_matrix(of_s)?,
        None => diagonal_matrix(&s.zeros_like()?)?,
    };
    let mut outer: Option<Tensor> = None;
    let mut add = |term: Tensor| -> Result<()> {
        outer = Some(match outer.take() {
            None => term,
            Some(sum) => sum.add(&term)?,
        });
        Ok(())
    };
    if of_u.is_some() || of_vh.is_some() {
        let gaps = gaps(&s.square()?)?;
        if let Some(of_u) = &of_u {
            let product = turned(&u)?.matmul(of_u)?;
            let skewed = skew(&product)?;
            inner = (Formula::from(&inner) + &skewed / &gaps * &cols).eval()?;
            if u.size(-2)? > k {
                let rest = of_u.sub(&u.matmul(&product)?)?;
                add((rest.div(&cols)?).matmul(&vh)?)?;
            }
        }
        if let Some(of_vh) = &of_vh {
            let product = vh.matmul(&turned(of_vh)?)?;
            let skewed = skew(&product)?;
            inner = (Formula::from(&inner) + &skewed / &gaps * &rows).eval()?;
            if vh.size(-1)? > k {
                let rest = of_vh.sub(&of_vh.matmul(&turned(&vh)?)?.matmul(&vh)?)?;
                add(u.matmul(&rest.div(&rows)?)?)?;
            }
        }
    }
    add(u.matmul(&inner)?.matmul(&vh)?)?;
    Ok(outer)
}

/// `V (diag(gw) + V^T gV / (w_j - w_i)) V^T`.
fn of_eigh(context: &Backward<'_>) -> Result<Option<Tensor>> {
    let (w, v) = (context.output(0)?, context.output(1)?);
    let diagonal = match context.grad(0) {
        Some(of_w) => diagonal_matrix(of_w)?,
        None => diagonal_matrix(&w.zeros_like()?)?,
    };
    let inner = match context.grad(1) {
        None => diagonal,
        Some(of_v) => {
            let product = turned(&v)?.matmul(of_v)?;
            let is_diagonal = Formula::from(on_diagonal(&w)?);
            let gaps = Formula::from(gaps(&w)?);
            is_diagonal
                .where_(&diagonal, Formula::from(&product) / gaps)
                .eval()?
        }
    };
    Ok(Some(v.matmul(&inner)?.matmul(&turned(&v)?)?))
}

fn of_pseudoinverse(a: &Tensor, y: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let (yh, gh) = (turned(y)?, turned(grad)?);
    if a.size(-2)? <= a.size(-1)? {
        let k = gh.matmul(y)?;
        let kyh = k.matmul(&yh)?;
        let first = turned(&y.matmul(&k)?)?;
        let third = a.matmul(y)?.matmul(&kyh)?;
        let fourth = (yh.matmul(y)?).matmul(&gh.sub(&k.matmul(a)?)?)?;
        return (&kyh - &first - &third + &fourth).eval();
    }
    let k = y.matmul(&gh)?;
    let yhk = yh.matmul(&k)?;
    let first = turned(&k.matmul(y)?)?;
    let second = gh.sub(&a.matmul(&k)?)?.matmul(y)?.matmul(&yh)?;
    let fourth = yhk.matmul(y)?.matmul(a)?;
    (&second - &first + &yhk - &fourth).eval()
}

/// The upper right quarter of `exp([[A^T, G], [0, A^T]])`.
fn of_exponential(a: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let (at, n) = (turned(a)?, a.size(-1)?);
    let top = Tensor::cat(&[&at, grad], -1)?;
    let zeros = Tensor::full_of(a.shape(), 0.0, a.dtype(), a.device())?;
    let bottom = Tensor::cat(&[&zeros, &at], -1)?;
    let whole = run(Kind::Exponential, &[&Tensor::cat(&[&top, &bottom], -2)?])?;
    whole.narrow(-2, 0, n)?.narrow(-1, n, n)
}
