//! What follows from the factors of a matrix.

use crate::{Failure, Real, Triangle, Vectors};

const UNIT_LOWER: Triangle = Triangle {
    upper: false,
    unit: true,
    transposed: false,
};
const UPPER: Triangle = Triangle {
    upper: true,
    unit: false,
    transposed: false,
};

/// Factors of `[n, n]`, the permutation, and whether that is odd.
fn factors<T: Real>(a: &[T], n: usize) -> (Vec<T>, Vec<usize>, bool) {
    let (mut lu, mut rows) = (a.to_vec(), vec![0; n]);
    let odd = T::lu(&mut lu, &mut rows);
    (lu, rows, odd)
}

/// The inverse of an `[n, n]` matrix.
///
/// # Errors
/// [`Failure::Singular`].
pub fn inverse<T: Real>(a: &[T], n: usize, out: &mut [T]) -> Result<(), Failure> {
    out.fill(T::ZERO);
    (0..n).for_each(|at| out[at * n + at] = T::ONE);
    let unit = out.to_vec();
    solve(a, n, &unit, out)
}

/// The solution `x` of `a @ x = b` for an `[n, n]` matrix; `b` and `x` have `x.len() / n` columns.
///
/// # Errors
/// [`Failure::Singular`].
pub fn solve<T: Real>(a: &[T], n: usize, b: &[T], x: &mut [T]) -> Result<(), Failure> {
    let (lu, rows, _) = factors(a, n);
    if let Some(at) = (0..n).find(|&at| lu[at * n + at] == T::ZERO) {
        return Err(Failure::Singular(at + 1));
    }
    if x.is_empty() {
        return Ok(());
    }
    let cols = x.len() / n;
    for (x, &row) in x.chunks_exact_mut(cols).zip(&rows) {
        x.copy_from_slice(&b[row * cols..][..cols]);
    }
    T::solve_triangular(&lu, UNIT_LOWER, x, cols);
    T::solve_triangular(&lu, UPPER, x, cols);
    Ok(())
}

/// The determinant of an `[n, n]` matrix.
pub fn determinant<T: Real>(a: &[T], n: usize) -> T {
    let (lu, _, odd) = factors(a, n);
    let product = (0..n).fold(T::ONE, |product, at| product * lu[at * n + at]);
    if odd { -product } else { product }
}

/// The sign of the determinant and the logarithm of its size: 0 and minus infinity for a singular matrix.
pub fn sign_and_log_determinant<T: Real>(a: &[T], n: usize) -> (T, T) {
    let (lu, _, odd) = factors(a, n);
    let mut sign = if odd { -T::ONE } else { T::ONE };
    let mut log = T::ZERO;
    for at in 0..n {
        let x = lu[at * n + at];
        if x < T::ZERO {
            sign = -sign;
        } else if x == T::ZERO {
            sign = T::ZERO;
        }
        log += x.size().log();
    }
    (sign, log)
}

/// The gradient of the determinant: its cofactors. By LU factors where there is an inverse, from the singular values where not.
///
/// # Errors
/// [`Failure::NotFinite`] or [`Failure::NoConvergence`], of a singular matrix.
pub fn cofactors<T: Real>(a: &[T], n: usize, out: &mut [T]) -> Result<(), Failure> {
    let mut inverse_ = vec![T::ZERO; n * n];
    let det = determinant(a, n);
    if det != T::ZERO && det.finite() && inverse(a, n, &mut inverse_).is_ok() {
        for row in 0..n {
            for col in 0..n {
                out[row * n + col] = det * inverse_[col * n + row];
            }
        }
        return Ok(());
    }
    let (mut u, mut s, mut vh) = (inverse_.clone(), vec![T::ZERO; n], inverse_);
    let vectors = Vectors {
        left: &mut u,
        right: &mut vh,
        full: false,
    };
    T::svd(a, [n, n], &mut s, Some(vectors))?;
    let orientation = determinant(&u, n) * determinant(&vh, n);
    // One value at most is zero where a cofactor isn't.
    let others: Vec<T> = (0..n)
        .map(|at| {
            (0..n)
                .filter(|&other| other != at)
                .fold(orientation, |product, other| product * s[other])
        })
        .collect();
    for row in 0..n {
        for col in 0..n {
            let terms = (0..n).map(|at| u[row * n + at] * others[at] * vh[at * n + col]);
            out[row * n + col] = terms.fold(T::ZERO, |sum, term| sum + term);
        }
    }
    Ok(())
}

/// The pseudoinverse `[cols, rows]` of a `[rows, cols]` matrix, and how many singular values count: those beyond
/// `max(atol, rtol * largest)`.
///
/// # Errors
/// [`Failure::NotFinite`] or [`Failure::NoConvergence`].
pub fn pseudoinverse<T: Real>(
    a: &[T],
    [m, n]: [usize; 2],
    [atol, rtol]: [f64; 2],
    out: &mut [T],
) -> Result<(), Failure> {
    let size = m.min(n);
    let (mut u, mut s, mut vh) = (
        vec![T::ZERO; m * size],
        vec![T::ZERO; size],
        vec![T::ZERO; size * n],
    );
    let vectors = Vectors {
        left: &mut u,
        right: &mut vh,
        full: false,
    };
    T::svd(a, [m, n], &mut s, Some(vectors))?;
    let largest = s.first().map_or(0.0, |&s| s.wide());
    let least = atol.max(rtol * largest);
    let counted: Vec<usize> = (0..size).filter(|&at| s[at].wide() > least).collect();
    for row in 0..n {
        for col in 0..m {
            let terms = (counted.iter()).map(|&at| vh[at * n + row] / s[at] * u[col * size + at]);
            out[row * m + col] = terms.fold(T::ZERO, |sum, term| sum + term);
        }
    }
    Ok(())
}
