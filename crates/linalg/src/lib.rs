//! Decompositions of one matrix, in f32 and f64: what the crate `faer` offers, behind functions of slices.
//!
//! Matrices are slices by rows. One thread works on one matrix, so the results are the same whatever the number of threads; like
//! those of matrix products they differ between instruction sets. Everything generic of `faer` is compiled here, once for each of
//! the two types, so that a change elsewhere does not compile it again.
#![forbid(unsafe_code)]

mod decompose;
mod exponential;
mod factor;

pub use exponential::exponential;
pub use factor::{cofactors, determinant, inverse, pseudoinverse, sign_and_log_determinant, solve};

/// Why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// This diagonal element of the factor U, counted from 1, is zero.
    Singular(usize),
    /// The leading minor of this order is not positive.
    NotPositive(usize),
    /// An element is infinite or no number.
    NotFinite,
    /// The iteration did not end.
    NoConvergence,
}

/// What a triangular factor is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Triangle {
    /// The upper triangle counts; the lower one if not.
    pub upper: bool,
    /// Its diagonal is taken for ones.
    pub unit: bool,
    /// Its transpose is meant.
    pub transposed: bool,
}

/// Vectors of an [`svd`](Real::svd), by rows.
#[derive(Debug)]
pub struct Vectors<'a, T> {
    /// `[rows, count]`: the left ones as columns.
    pub left: &'a mut [T],
    /// `[count, cols]`: the right ones as rows.
    pub right: &'a mut [T],
    /// Whether there are as many as rows and columns, rather than as the smaller of them.
    pub full: bool,
}

/// f32 and f64.
pub trait Real: decompose::Number {
    /// LU factors with row pivots, in place of the square matrix `a`: L below the diagonal, whose own is of ones, and U. Row `i` of
    /// their product is row `rows[i]` of `a`. Returns whether the permutation is odd.
    fn lu(a: &mut [Self], rows: &mut [usize]) -> bool;
    /// Solves `triangle(a) @ x = b` in place of `b`, which has `cols` columns.
    fn solve_triangular(a: &[Self], triangle: Triangle, b: &mut [Self], cols: usize);
    /// The lower Cholesky factor in place of `a`, of which only the lower triangle is read.
    fn cholesky(a: &mut [Self], n: usize) -> Result<(), Failure>;
    /// `q` of `[rows, k]` and `r` of `[k, cols]` for a `[rows, cols]` matrix; `k` is the smaller size, or `rows`.
    fn qr(a: &[Self], size: [usize; 2], k: usize, q: &mut [Self], r: &mut [Self]);
    /// Singular values of a `[rows, cols]` matrix, falling, and the vectors if asked for.
    fn svd(
        a: &[Self],
        size: [usize; 2],
        values: &mut [Self],
        vectors: Option<Vectors<'_, Self>>,
    ) -> Result<(), Failure>;
    /// Eigenvalues, rising, of a symmetric matrix of which the lower triangle is read, and the vectors, as columns, if asked for.
    fn eigh(a: &[Self], values: &mut [Self], vectors: Option<&mut [Self]>) -> Result<(), Failure>;
    /// `c = a @ b` of square matrices of one size.
    fn product(a: &[Self], b: &[Self], c: &mut [Self], n: usize);
}

macro_rules! real {
    ($($type:ty),*) => {
        $(impl Real for $type {
            fn lu(a: &mut [Self], rows: &mut [usize]) -> bool {
                decompose::lu(a, rows)
            }

            fn solve_triangular(a: &[Self], triangle: Triangle, b: &mut [Self], cols: usize) {
                decompose::solve_triangular(a, triangle, b, cols);
            }

            fn cholesky(a: &mut [Self], n: usize) -> Result<(), Failure> {
                decompose::cholesky(a, n)
            }

            fn qr(a: &[Self], size: [usize; 2], k: usize, q: &mut [Self], r: &mut [Self]) {
                decompose::qr(a, size, k, q, r);
            }

            fn svd(
                a: &[Self],
                size: [usize; 2],
                values: &mut [Self],
                vectors: Option<Vectors<'_, Self>>,
            ) -> Result<(), Failure> {
                decompose::svd(a, size, values, vectors)
            }

            fn eigh(a: &[Self], values: &mut [Self], vectors: Option<&mut [Self]>) -> Result<(), Failure> {
                decompose::eigh(a, values, vectors)
            }

            fn product(a: &[Self], b: &[Self], c: &mut [Self], n: usize) {
                decompose::product(a, b, c, n);
            }
        })*
    };
}

real!(f32, f64);
