//! Samples of linear algebra and of ops that order or accumulate: matrices far from singular, values far apart.
//!
//! Decompositions take no 16-bit floats: their samples compute in f32 for these.

use fireclay_tensor::ops::linalg::{NormOrder, QrMode};
use fireclay_tensor::ops::order::Interpolation;
use fireclay_tensor::{DType, Device, Result, Tensor};

use super::List;
use crate::draw::Draw;

type Function = fn(&Tensor) -> Result<Tensor>;

/// Computes in f32 at least, and gives the dtype that came.
fn in_wide(x: &Tensor, function: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => function(&x.to_dtype(DType::F32)?)?.to_dtype(x.dtype()),
        _ => function(x),
    }
}

/// `[m, n]` with these numbers on the diagonal.
fn diagonal(like: &Tensor, number: impl Fn(usize) -> f64) -> Result<Tensor> {
    let (m, n) = (like.size(-2)?, like.size(-1)?);
    let numbers: Vec<f64> = (0..m * n)
        .map(|at| {
            if at / n == at % n {
                number(at / n)
            } else {
                0.0
            }
        })
        .collect();
    Tensor::from_slice(&numbers, &[m, n], Device::Cpu)?
        .to(like.device())?
        .to_dtype(like.dtype())
}

fn regular(x: &Tensor) -> Result<Tensor> {
    x.mul(0.3)?.add(&diagonal(x, |_| 3.0)?)
}

fn definite(x: &Tensor) -> Result<Tensor> {
    let square = x.matmul(&x.transpose(-2, -1)?)?;
    square.mul(0.1)?.add(&diagonal(&square, |_| 2.0)?)
}

/// Symmetric, eigenvalues apart.
fn symmetric(x: &Tensor) -> Result<Tensor> {
    let sum = x.add(&x.transpose(-2, -1)?)?.mul(0.2)?;
    sum.add(&diagonal(&sum, |at| 3.0 * at as f64)?)
}

/// Singular values apart.
fn apart(x: &Tensor) -> Result<Tensor> {
    x.mul(0.2)?.add(&diagonal(x, |at| 2.0 + 3.0 * at as f64)?)
}

/// Vectors times what does not depend on their signs.
fn unsigned(x: &Tensor) -> Result<Tensor> {
    x.square()?
        .mul(&diagonal(x, |at| 0.5 + at as f64)?.add(0.7)?)
}

const SQUARE: &[(&str, Function)] = &[
    ("linalg.inv", |x| regular(x)?.inv()),
    ("linalg.det", |x| regular(x)?.det()),
    ("linalg.slogdet", |x| Ok(regular(x)?.slogdet()?.1)),
    ("linalg.cholesky", |x| definite(x)?.cholesky(false)),
    ("linalg.cholesky", |x| definite(x)?.cholesky(true)),
    ("linalg.eigh", |x| unsigned(&symmetric(x)?.eigh(false)?.1)),
    ("linalg.eigh", |x| Ok(symmetric(x)?.eigh(true)?.0)),
    ("linalg.eigvalsh", |x| symmetric(x)?.eigvalsh(false)),
    ("linalg.matrix_exp", |x| x.mul(0.4)?.matrix_exp()),
    ("linalg.matrix_power", |x| regular(x)?.matrix_power(3)),
    ("linalg.matrix_power", |x| regular(x)?.matrix_power(-2)),
    ("linalg.pinv", |x| {
        symmetric(x)?
            .add(&diagonal(x, |_| 1.0)?)?
            .pinv(None, None, true)
    }),
    ("linalg.solve_triangular", |x| {
        regular(x)?.solve_triangular(x, true, true, false)
    }),
    ("linalg.solve_triangular", |x| {
        regular(x)?.solve_triangular(x, false, false, false)
    }),
    ("linalg.solve_triangular", |x| {
        x.mul(0.3)?.solve_triangular(x, true, true, true)
    }),
];

const ANY_MATRIX: &[(&str, Function)] = &[
    ("linalg.qr", |x| unsigned(&apart(x)?.qr(QrMode::Reduced)?.0)),
    ("linalg.qr", |x| unsigned(&apart(x)?.qr(QrMode::Reduced)?.1)),
    ("linalg.svd", |x| unsigned(&apart(x)?.svd(false)?.0)),
    ("linalg.svd", |x| unsigned(&apart(x)?.svd(false)?.2)),
    ("linalg.svdvals", |x| apart(x)?.svdvals()),
    ("linalg.pinv", |x| apart(x)?.pinv(None, None, false)),
    ("linalg.matrix_norm", |x| {
        apart(x)?.matrix_norm(NormOrder::Nuclear, [-2, -1], false)
    }),
    ("linalg.matrix_norm", |x| {
        apart(x)?.matrix_norm(2.0, [-2, -1], false)
    }),
    ("linalg.matrix_norm", |x| {
        x.matrix_norm(f64::INFINITY, [-2, -1], true)
    }),
];

/// Ops of one tensor `[2, 3, 4]` of numbers apart from each other and from zero.
const OF_NUMBERS: &[(&str, Function)] = &[
    ("cummax", |x| Ok(x.cummax(1)?.0)),
    ("cummin", |x| Ok(x.cummin(-1)?.0)),
    ("logcumsumexp", |x| x.logcumsumexp(1)),
    ("logcumsumexp", |x| x.logcumsumexp(-1)),
    ("median", |x| x.median()),
    ("median", |x| Ok(x.median_dim(1, false)?.0)),
    ("nanmedian", |x| Ok(x.nanmedian_dim(-1, true)?.0)),
    ("kthvalue", |x| Ok(x.kthvalue(2, 1, false)?.0)),
    ("mode", |x| Ok(x.mode(-1, false)?.0)),
    ("nansum", |x| x.nansum(&[1], false)),
    ("prod", |x| x.prod(Some(1), false)),
    ("prod", |x| x.prod(None, false)),
    ("diff", |x| x.diff(2, -1, None, None)),
    ("norm", |x| x.norm(2.0, &[1], false)),
    ("norm", |x| x.norm(NormOrder::Frobenius, &[], false)),
    ("norm", |x| x.norm(3.0, &[0, 2], true)),
    ("norm", |x| x.norm(0.5, &[1], true)),
    ("norm", |x| x.norm(f64::INFINITY, &[2], false)),
    ("quantile", |x| quantile(x, Interpolation::Linear)),
    ("quantile", |x| quantile(x, Interpolation::Midpoint)),
    ("trace", |x| x.select(0, 1)?.trace()),
    ("corrcoef", |x| x.select(0, 0)?.corrcoef()),
    ("cov", |x| x.select(0, 1)?.cov(1, None, None)),
    ("einsum", |x| Tensor::einsum("bij,bkj->ikb", &[x, x])),
    ("einsum", |x| Tensor::einsum("...j, b...j", &[x, x])),
];

fn quantile(x: &Tensor, interpolation: Interpolation) -> Result<Tensor> {
    in_wide(x, |x| {
        let q = Tensor::full_of(&[], 0.4, x.dtype(), x.device())?;
        x.quantile(&q, Some(1), false, interpolation)
    })
}

pub(super) fn add(list: &mut List) {
    let before = std::mem::replace(&mut list.draw, Draw::new(60_612));
    for shape in [&[3, 3][..], &[2, 3, 3], &[1, 1], &[2, 0, 0], &[0, 2, 2]] {
        for &(op, function) in SQUARE {
            let x = list.plain(shape);
            list.add(op, vec![x], move |x| in_wide(&x[0], function));
        }
        let (a, b) = (list.plain(shape), list.plain(shape));
        list.add("linalg.solve", vec![a, b], |x| {
            let solution = regular(&wide(&x[0])?)?.solve(&wide(&x[1])?, true)?;
            solution.to_dtype(x[0].dtype())
        });
    }
    for shape in [[3, 3], [4, 2], [2, 4]] {
        for &(op, function) in ANY_MATRIX {
            let x = list.plain(&shape);
            list.add(op, vec![x], move |x| in_wide(&x[0], function));
        }
    }
    for &(op, function) in OF_NUMBERS {
        let x = list.plain(&[2, 3, 4]);
        list.add(op, vec![x], move |x| function(&x[0]));
    }
    for p in [2.0, 1.0, 3.0] {
        let (a, b) = (list.plain(&[2, 3, 2]), list.plain(&[4, 2]));
        list.add("cdist", vec![a, b], move |x| x[0].cdist(&x[1], p));
    }
    let (a, b) = (list.plain(&[2, 3]), list.plain(&[1, 3]));
    list.add("linalg.cross", vec![a, b], |x| x[0].cross(&x[1], -1));
    let (a, b) = (list.plain(&[2, 3]), list.plain(&[3, 2]));
    // It takes any two shapes: of one operand only.
    list.add("kron", vec![a.clone()], |x| x[0].kron(&x[0].t()?));
    list.add("tensordot", vec![a, b], |x| {
        x[0].tensordot(&x[1], &[0, 1], &[1, 0])
    });
    list.draw = before;
}

fn wide(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}
