//! The matrix product of 16-bit floats: widened to f32 block by block, summed in f32, rounded once.

use super::scratch::with_scratch;
use super::{Epilogue, GemmShape, MatrixStrides, Product, Shared, blocked};
use crate::memory::HostMemoryError;
use crate::parallel;
use half::{bf16, f16};

/// bf16 or f16.
pub trait SixteenBit: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The same number as f32.
    fn widen(self) -> f32;
    /// The nearest 16-bit number, ties to even.
    fn narrow(value: f32) -> Self;
}

mod sealed {
    /// Only the two formats are 16-bit floats.
    pub trait Sealed {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}

impl SixteenBit for bf16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn narrow(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
}

impl SixteenBit for f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn narrow(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

/// Rows of C that a task computes.
const ROWS: usize = 128;
/// Columns of C that a task computes.
const COLS: usize = 384;
/// Longest piece of the sums that is widened at a time.
const DEPTH: usize = 256;

/// [`gemm`](super::gemm) for 16-bit floats: each number of C is computed in f32 and rounded once, at the end.
///
/// # Panics
/// As [`gemm`](super::gemm).
#[expect(
    clippy::too_many_arguments,
    reason = "the well-known signature of a matrix product"
)]
pub fn gemm_16<H: SixteenBit>(
    shape: GemmShape,
    alpha: f32,
    a: &[H],
    a_strides: MatrixStrides,
    b: &[H],
    b_strides: MatrixStrides,
    beta: f32,
    c: &mut [H],
    c_strides: MatrixStrides,
    epilogue: Epilogue<'_, H>,
) -> Result<(), HostMemoryError> {
    let bias = match epilogue {
        Epilogue::None => None,
        Epilogue::BiasColumns(bias) => Some(bias),
    };
    shape.check(
        a.len(),
        a_strides,
        b.len(),
        b_strides,
        c.len(),
        c_strides,
        bias.map(<[H]>::len),
    );
    let GemmShape { batch, m, n, k } = shape;
    if batch == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let k = if alpha == 0.0 { 0 } else { k };
    let (row_blocks, col_blocks) = (m.div_ceil(ROWS), n.div_ceil(COLS));
    let result = Shared::new(c);
    parallel::try_run(batch * row_blocks * col_blocks, |task| {
        let image = task / col_blocks / row_blocks;
        let first_row = task / col_blocks % row_blocks * ROWS;
        let first_col = task % col_blocks * COLS;
        let (rows, cols) = (ROWS.min(m - first_row), COLS.min(n - first_col));
        let depth = DEPTH.min(k);
        with_scratch::<f32>(rows * cols + rows * depth + depth * cols, |scratch| {
            let (sums, rest) = scratch.split_at_mut(rows * cols);
            let (wide_a, wide_b) = rest.split_at_mut(rows * depth);
            sums.fill(0.0);
            for first_k in (0..k).step_by(DEPTH) {
                let depth = DEPTH.min(k - first_k);
                let a = &a[image * a_strides.batch
                    + first_row * a_strides.row
                    + first_k * a_strides.col..];
                widen(a, a_strides, rows, depth, wide_a);
                let b = &b[image * b_strides.batch
                    + first_k * b_strides.row
                    + first_col * b_strides.col..];
                widen(b, b_strides, depth, cols, wide_b);
                let product = Product {
                    m: rows,
                    n: cols,
                    k: depth,
                    alpha: 1.0,
                    beta: 1.0,
                    a: wide_a.as_ptr(),
                    a_row: depth,
                    a_col: 1,
                    b: wide_b.as_ptr(),
                    b_row: cols,
                    b_col: 1,
                    c: sums.as_mut_ptr(),
                    c_row: cols,
                    c_col: 1,
                    col_bias: std::ptr::null(),
                    row_bias: std::ptr::null(),
                };
                // SAFETY: the three parts of the scratch memory have the sizes that the product names.
                unsafe { blocked::run(product, false) }?;
            }
            for (index, &sum) in sums.iter().enumerate() {
                let (row, col) = (first_row + index / cols, first_col + index % cols);
                // SAFETY: row < m and col < n; elements of C are distinct, and this block is this task's alone.
                unsafe {
                    let to = result
                        .get()
                        .add(image * c_strides.batch + row * c_strides.row + col * c_strides.col);
                    let mut value = alpha * sum;
                    if beta != 0.0 {
                        value += beta * (*to).widen();
                    }
                    if let Some(bias) = bias {
                        value += bias[col].widen();
                    }
                    *to = H::narrow(value);
                }
            }
            Ok(())
        })
    })
}

/// Copies a matrix, widened, to rows side by side.
fn widen<H: SixteenBit>(
    from: &[H],
    strides: MatrixStrides,
    rows: usize,
    cols: usize,
    to: &mut [f32],
) {
    for (row, to) in to.chunks_exact_mut(cols).take(rows).enumerate() {
        for (col, to) in to.iter_mut().enumerate() {
            *to = from[row * strides.row + col * strides.col].widen();
        }
    }
}
