//! The calls of `faer`. Its loops prefer columns, so results are made by columns and copied.

use std::ops::{Add, Div, Mul, Neg, Sub};

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor as llt;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::householder;
use faer::linalg::lu::partial_pivoting::factor as plu;
use faer::linalg::matmul::matmul;
use faer::linalg::qr::no_pivoting::factor as nqr;
use faer::linalg::svd::{ComputeSvdVectors, svd as faer_svd, svd_scratch};
use faer::linalg::triangular_solve as triangular;
use faer::traits::RealField;
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};

use crate::{Failure, Triangle, Vectors};

/// Up to this size LU is a plain loop. Its quotients are divisions, not products with a rounded reciprocal, so that of equal rows
/// nothing is left: a matrix that is seen to be singular is found so.
const PLAIN: usize = 64;

/// What f32 and f64 share.
pub trait Number:
    RealField
    + Copy
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The distance from 1 to the next number.
    const EPSILON: Self;
    /// The nearest number.
    fn of(number: f64) -> Self;
    /// The same number.
    fn wide(self) -> f64;
    /// Without its sign.
    fn size(self) -> Self;
    /// Natural logarithm.
    fn log(self) -> Self;
    /// Neither infinite nor NaN.
    fn finite(self) -> bool;
}

macro_rules! number {
    ($($type:ty),*) => {
        $(impl Number for $type {
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            const EPSILON: $type = <$type>::EPSILON;

            fn of(number: f64) -> $type {
                number as $type
            }

            fn wide(self) -> f64 {
                self.into()
            }

            fn size(self) -> $type {
                self.abs()
            }

            fn log(self) -> $type {
                self.ln()
            }

            fn finite(self) -> bool {
                self.is_finite()
            }
        })*
    };
}

number!(f32, f64);

fn all_finite<T: Number>(a: &[T]) -> bool {
    a.iter().all(|&x| x.finite())
}

/// Writes a matrix by rows.
fn write_rows<T: Number>(from: MatRef<'_, T>, to: &mut [T]) {
    let cols = from.ncols();
    if cols == 0 {
        return;
    }
    for (row, to) in to.chunks_exact_mut(cols).enumerate() {
        for (col, to) in to.iter_mut().enumerate() {
            *to = from[(row, col)];
        }
    }
}

pub(crate) fn lu<T: Number>(a: &mut [T], rows: &mut [usize]) -> bool {
    let n = rows.len();
    if n <= PLAIN {
        return plain_lu(a, rows);
    }
    let mut inverse = vec![0; n];
    let scratch = plu::lu_in_place_scratch::<usize, T>(n, n, Par::Seq, Default::default());
    let (info, _) = plu::lu_in_place(
        MatMut::from_row_major_slice_mut(a, n, n),
        rows,
        &mut inverse,
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    info.transposition_count % 2 == 1
}

fn plain_lu<T: Number>(a: &mut [T], rows: &mut [usize]) -> bool {
    let n = rows.len();
    (rows.iter_mut().enumerate()).for_each(|(number, row)| *row = number);
    let mut odd = false;
    for col in 0..n {
        let mut pivot = col;
        for row in col + 1..n {
            if a[row * n + col].size() > a[pivot * n + col].size() {
                pivot = row;
            }
        }
        if pivot != col {
            odd = !odd;
            rows.swap(pivot, col);
            (0..n).for_each(|at| a.swap(pivot * n + at, col * n + at));
        }
        let top = a[col * n + col];
        if top == T::ZERO {
            continue;
        }
        let (above, below) = a.split_at_mut((col + 1) * n);
        let above = &above[col * n..];
        for row in below.chunks_exact_mut(n) {
            let factor = row[col] / top;
            row[col] = factor;
            for (x, &y) in row[col + 1..].iter_mut().zip(&above[col + 1..]) {
                *x -= factor * y;
            }
        }
    }
    odd
}

pub(crate) fn solve_triangular<T: Number>(a: &[T], triangle: Triangle, b: &mut [T], cols: usize) {
    if b.is_empty() {
        return;
    }
    let n = b.len() / cols;
    let mut a = MatRef::from_row_major_slice(a, n, n);
    if triangle.transposed {
        a = a.transpose();
    }
    let b = MatMut::from_row_major_slice_mut(b, n, cols);
    match (triangle.upper != triangle.transposed, triangle.unit) {
        (true, false) => triangular::solve_upper_triangular_in_place(a, b, Par::Seq),
        (true, true) => triangular::solve_unit_upper_triangular_in_place(a, b, Par::Seq),
        (false, false) => triangular::solve_lower_triangular_in_place(a, b, Par::Seq),
        (false, true) => triangular::solve_unit_lower_triangular_in_place(a, b, Par::Seq),
    }
}

pub(crate) fn cholesky<T: Number>(a: &mut [T], n: usize) -> Result<(), Failure> {
    let scratch = llt::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default());
    let mut l = Mat::<T>::from_fn(n, n, |row, col| match col <= row {
        true => a[row * n + col],
        false => T::ZERO,
    });
    let done = llt::cholesky_in_place(
        l.as_mut(),
        Default::default(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    if let Err(error) = done {
        let faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } = error;
        return Err(Failure::NotPositive(index + 1));
    }
    for row in 0..n {
        for col in 0..n {
            a[row * n + col] = if col <= row { l[(row, col)] } else { T::ZERO };
        }
    }
    match (0..n).find(|&at| !a[at * n + at].finite()) {
        Some(at) => Err(Failure::NotPositive(at + 1)),
        None => Ok(()),
    }
}

pub(crate) fn qr<T: Number>(a: &[T], [m, n]: [usize; 2], k: usize, q: &mut [T], r: &mut [T]) {
    let size = m.min(n);
    if size == 0 {
        write_rows(Mat::<T>::identity(m, k).as_ref(), q);
        return;
    }
    let mut packed = MatRef::from_row_major_slice(a, m, n).to_owned();
    let block = nqr::recommended_block_size::<T>(m, n);
    let mut coefficients = Mat::<T>::zeros(block, size);
    let scratch = nqr::qr_in_place_scratch::<T>(m, n, block, Par::Seq, Default::default());
    nqr::qr_in_place(
        packed.as_mut(),
        coefficients.as_mut(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    for row in 0..k {
        for col in 0..n {
            r[row * n + col] = if col >= row {
                packed[(row, col)]
            } else {
                T::ZERO
            };
        }
    }
    if q.is_empty() {
        return;
    }
    let mut basis = packed.as_ref().subcols(0, size).to_owned();
    for col in 0..size {
        (0..col).for_each(|row| basis[(row, col)] = T::ZERO);
        basis[(col, col)] = T::ONE;
    }
    let mut columns = Mat::<T>::identity(m, k);
    let scratch = householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<T>(
        m, block, k,
    );
    householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
        basis.as_ref(),
        coefficients.as_ref(),
        Conj::No,
        columns.as_mut(),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
    );
    write_rows(columns.as_ref(), q);
}

pub(crate) fn svd<T: Number>(
    a: &[T],
    [m, n]: [usize; 2],
    values: &mut [T],
    vectors: Option<Vectors<'_, T>>,
) -> Result<(), Failure> {
    if !all_finite(a) {
        return Err(Failure::NotFinite);
    }
    let size = m.min(n);
    let (kind, [left, right]) = match &vectors {
        None => (ComputeSvdVectors::No, [0, 0]),
        Some(vectors) if vectors.full => (ComputeSvdVectors::Full, [m, n]),
        Some(_) => (ComputeSvdVectors::Thin, [size, size]),
    };
    let scratch = svd_scratch::<T>(m, n, kind, kind, Par::Seq, Default::default());
    let mut s = faer::diag::Diag::<T>::zeros(size);
    let mut u = Mat::<T>::zeros(m, left);
    let mut v = Mat::<T>::zeros(n, right);
    let wanted = vectors.is_some();
    faer_svd(
        MatRef::from_row_major_slice(a, m, n),
        s.as_mut(),
        wanted.then(|| u.as_mut()),
        wanted.then(|| v.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .map_err(|_| Failure::NoConvergence)?;
    for (at, value) in values.iter_mut().enumerate() {
        *value = s[at];
    }
    if let Some(vectors) = vectors {
        if size == 0 {
            // Nothing says what the vectors are: those of the axes.
            (u, v) = (Mat::identity(m, left), Mat::identity(n, right));
        }
        write_rows(u.as_ref(), vectors.left);
        write_rows(v.as_ref().transpose(), vectors.right);
    }
    Ok(())
}

pub(crate) fn eigh<T: Number>(
    a: &[T],
    values: &mut [T],
    vectors: Option<&mut [T]>,
) -> Result<(), Failure> {
    let n = values.len();
    if n == 0 {
        return Ok(());
    }
    if !(0..n).all(|row| all_finite(&a[row * n..][..=row])) {
        return Err(Failure::NotFinite);
    }
    let kind = match vectors {
        None => ComputeEigenvectors::No,
        Some(_) => ComputeEigenvectors::Yes,
    };
    let scratch = self_adjoint_evd_scratch::<T>(n, kind, Par::Seq, Default::default());
    let mut s = faer::diag::Diag::<T>::zeros(n);
    let mut u = Mat::<T>::zeros(n, if vectors.is_some() { n } else { 0 });
    self_adjoint_evd(
        MatRef::from_row_major_slice(a, n, n),
        s.as_mut(),
        vectors.is_some().then(|| u.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .map_err(|_| Failure::NoConvergence)?;
    for (at, value) in values.iter_mut().enumerate() {
        *value = s[at];
    }
    if let Some(vectors) = vectors {
        write_rows(u.as_ref(), vectors);
    }
    Ok(())
}

pub(crate) fn product<T: Number>(a: &[T], b: &[T], c: &mut [T], n: usize) {
    let [a, b] = [a, b].map(|x| MatRef::from_row_major_slice(x, n, n));
    let c = MatMut::from_row_major_slice_mut(c, n, n);
    matmul(c, Accum::Replace, a, b, T::ONE, Par::Seq);
}
