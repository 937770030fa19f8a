//! The matrix product `C = beta * C + alpha * A * B (+ bias)`, batched, for any strides and sizes.
//!
//! Knows slices and strides. Convolution borrows its register tiles; the rest of the crate sees only [`gemm`]
//! and its 16-bit forms.
//!
//! # How it works
//! The scheme is that of K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008):
//! blocks of B and A are copied into panels that the caches hold, and a kernel in registers runs over them
//! (`tile`). What is small is not copied but read in place; matrix-vector products have loops of their own.
//! Our own kernels instead of a crate: on a two-core Sapphire Rapids, `gemm` 0.19 took two to three times as
//! long as MKL at 1024 and 2048 square, and cost 17 packages.
//!
//! # Bits
//! Every number of C is one sum over k in ascending order, cut into blocks by k alone, or for a vector and a matrix whose
//! rows lie along k a sum of 128 bytes of sums ([`sums_in_lanes`]). So it depends neither on the number of threads nor on
//! how C is split among them, and devices have the same order. Instruction sets differ from each other in the
//! last bits.

mod blocked;
mod lanes;
mod machine;
pub(crate) mod scratch;
mod sixteen;
#[cfg(test)]
mod tests;

pub(crate) mod tile;
pub(crate) mod transpose;
pub(crate) mod vector;

pub use blocked::{depth_of_blocks, sums_in_lanes};
/// The longest dot product in one go, where [`sums_in_lanes`] holds.
pub const DOT_BLOCK: usize = vector::DOT_BLOCK;
pub use sixteen::{SixteenBit, gemm_16};

use crate::memory::HostMemoryError;
use crate::parallel;
use std::ops::{Add, Div, Mul, Sub};
use tile::Kernels;

/// f32 or f64: what the matrix kernels compute in.
pub trait Float:
    Copy
    + Send
    + Sync
    + PartialEq
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + sealed::Kerneled
    + 'static
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The nearest number to `value`.
    fn from_f64(value: f64) -> Self;
    /// The same number as f64.
    fn to_f64(self) -> f64;
}

mod sealed {
    /// Has kernels.
    pub trait Kerneled: Sized + 'static {
        /// The best ones for this machine.
        #[expect(
            private_interfaces,
            reason = "the trait is sealed; nobody outside can name it"
        )]
        fn kernels() -> &'static super::Kernels<Self>;
    }
}

macro_rules! float {
    ($type:ty, $kernels:ident) => {
        impl sealed::Kerneled for $type {
            #[expect(
                private_interfaces,
                reason = "the trait is sealed; nobody outside can name it"
            )]
            fn kernels() -> &'static Kernels<$type> {
                machine::$kernels()
            }
        }
        impl Float for $type {
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            fn from_f64(value: f64) -> $type {
                value as $type
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    };
}
float!(f32, f32_kernels);
float!(f64, f64_kernels);

/// The sizes of a product: `batch` times `m x k` by `k x n`. Any may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// How many independent products.
    pub batch: usize,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B: the length of the sums.
    pub k: usize,
}

impl GemmShape {
    /// Checks that the operands' slices hold what their strides say.
    ///
    /// # Panics
    /// If they don't.
    #[expect(
        clippy::too_many_arguments,
        reason = "three operands with length and strides"
    )]
    fn check(
        &self,
        a: usize,
        a_strides: MatrixStrides,
        b: usize,
        b_strides: MatrixStrides,
        c: usize,
        c_strides: MatrixStrides,
        bias: Option<usize>,
    ) {
        let GemmShape { batch, m, n, k } = *self;
        assert!(
            a >= a_strides.extent(batch, m, k),
            "A is shorter than its strides say"
        );
        assert!(
            b >= b_strides.extent(batch, k, n),
            "B is shorter than its strides say"
        );
        assert!(
            c >= c_strides.extent(batch, m, n),
            "C is shorter than its strides say"
        );
        assert!(
            c_strides.is_injective(batch, m, n),
            "elements of C share a place"
        );
        assert!(
            bias.is_none_or(|bias| bias == n),
            "one bias per column of C"
        );
    }
}

/// How a batch of matrices lies in a slice: strides in elements, any of them 0 where an operand is only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixStrides {
    /// From one matrix to the next.
    pub batch: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub col: usize,
}

impl MatrixStrides {
    /// Rows of `cols` numbers, `rows` of them a matrix, one after the other.
    pub fn row_major(rows: usize, cols: usize) -> Self {
        MatrixStrides {
            batch: rows * cols,
            row: cols,
            col: 1,
        }
    }

    /// The transposes of the same matrices.
    pub fn transposed(self) -> Self {
        MatrixStrides {
            batch: self.batch,
            row: self.col,
            col: self.row,
        }
    }

    /// How many numbers the slice must have at least.
    fn extent(self, batch: usize, rows: usize, cols: usize) -> usize {
        if batch == 0 || rows == 0 || cols == 0 {
            return 0;
        }
        let last = (batch - 1)
            .checked_mul(self.batch)
            .and_then(|sum| sum.checked_add((rows - 1).checked_mul(self.row)?))
            .and_then(|sum| sum.checked_add((cols - 1).checked_mul(self.col)?));
        last.and_then(|last| last.checked_add(1))
            .expect("matrix strides beyond the address space")
    }

    /// Whether no two elements share a place: each dim, from the narrowest stride up, steps over those before.
    fn is_injective(self, batch: usize, rows: usize, cols: usize) -> bool {
        if batch * rows * cols == 0 {
            return true;
        }
        let mut dims = [(self.batch, batch), (self.row, rows), (self.col, cols)];
        dims.sort_unstable();
        let mut reach = 0;
        for (stride, size) in dims {
            if size > 1 {
                if stride <= reach {
                    return false;
                }
                reach += stride * (size - 1);
            }
        }
        true
    }
}

/// What is added to the product while it is still in registers.
#[derive(Clone, Copy, Debug)]
pub enum Epilogue<'a, T> {
    /// Nothing.
    None,
    /// One number per column of C, `n` of them (a linear layer's bias).
    BiasColumns(&'a [T]),
}

/// `C = beta * C + alpha * A * B`, plus the epilogue, for each matrix of the batch (`torch.baddbmm`, `torch.addmm`).
///
/// Where `beta` is 0, C is not read, so NaN in it does not matter. The sums run in `T`. Where `k` or `alpha`
/// is 0, A and B are not read. A batch stride of 0 gives every product the same matrix.
///
/// # Errors
/// If there is no memory to pack A and B into; C is arbitrary then.
///
/// # Panics
/// If a slice is shorter than its strides say, if elements of C share a place, or if the bias has not `n`
/// numbers: the caller has checked shapes before.
#[expect(
    clippy::too_many_arguments,
    reason = "the well-known signature of a matrix product"
)]
pub fn gemm<T: Float>(
    shape: GemmShape,
    alpha: T,
    a: &[T],
    a_strides: MatrixStrides,
    b: &[T],
    b_strides: MatrixStrides,
    beta: T,
    c: &mut [T],
    c_strides: MatrixStrides,
    epilogue: Epilogue<'_, T>,
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
        bias.map(<[T]>::len),
    );
    let GemmShape { batch, m, n, k } = shape;
    if batch == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let product = Product {
        m,
        n,
        k: if alpha == T::ZERO { 0 } else { k },
        alpha,
        beta,
        a: a.as_ptr(),
        a_row: a_strides.row,
        a_col: a_strides.col,
        b: b.as_ptr(),
        b_row: b_strides.row,
        b_col: b_strides.col,
        c: c.as_mut_ptr(),
        c_row: c_strides.row,
        c_col: c_strides.col,
        col_bias: bias.map_or(std::ptr::null(), <[T]>::as_ptr),
        row_bias: std::ptr::null(),
    };
    // SAFETY: the checks above bound every address of the product; `c` is borrowed mutably and injective.
    unsafe {
        run_batch(
            product,
            batch,
            a_strides.batch,
            b_strides.batch,
            c_strides.batch,
        )
    }
}

/// One product, as pointers.
#[derive(Clone, Copy)]
pub(crate) struct Product<T> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) alpha: T,
    pub(crate) beta: T,
    pub(crate) a: *const T,
    pub(crate) a_row: usize,
    pub(crate) a_col: usize,
    pub(crate) b: *const T,
    pub(crate) b_row: usize,
    pub(crate) b_col: usize,
    pub(crate) c: *mut T,
    pub(crate) c_row: usize,
    pub(crate) c_col: usize,
    /// One number a column, or null.
    pub(crate) col_bias: *const T,
    /// One number a row, or null.
    pub(crate) row_bias: *const T,
}

// SAFETY: the pointers stand for borrows that outlive the call; tasks write disjoint parts of C.
unsafe impl<T: Send> Send for Product<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Product<T> {}

impl<T: Float> Product<T> {
    fn multiply_adds(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }

    /// The product that starts so much further on.
    ///
    /// # Safety
    /// The addresses of that product are valid.
    unsafe fn moved(&self, a: usize, b: usize, c: usize) -> Self {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            Product {
                a: self.a.add(a),
                b: self.b.add(b),
                c: self.c.add(c),
                ..*self
            }
        }
    }

    /// The same product of the transposes: `C^T = B^T A^T`.
    fn transposed(self) -> Self {
        Product {
            m: self.n,
            n: self.m,
            a: self.b,
            a_row: self.b_col,
            a_col: self.b_row,
            b: self.a,
            b_row: self.a_col,
            b_col: self.a_row,
            c_row: self.c_col,
            c_col: self.c_row,
            col_bias: self.row_bias,
            row_bias: self.col_bias,
            ..self
        }
    }
}

/// A pointer that tasks share; each uses its own part of what it points to.
pub(crate) struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: whoever makes one sees to it that tasks use disjoint parts.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Shared(slice.as_mut_ptr())
    }

    /// A pointer that is only read through.
    fn from_const(start: *const T) -> Self {
        Shared(start.cast_mut())
    }

    /// The pointer `count` elements further on.
    pub(crate) fn after(self, count: usize) -> Self {
        Shared(self.0.wrapping_add(count))
    }

    /// The pointer. A method, so that closures capture the whole struct.
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

/// Below this many multiply-adds a product is not worth a second thread.
const PARALLEL_WORK: usize = 1 << 20;

/// # Safety
/// Every address of the batch of products is valid; nobody else uses the elements of C, which are distinct.
unsafe fn run_batch<T: Float>(
    mut product: Product<T>,
    mut batch: usize,
    a_batch: usize,
    b_batch: usize,
    c_batch: usize,
) -> Result<(), HostMemoryError> {
    // One B for all, and the rows of A and C simply go on: that is one tall product.
    let goes_on = a_batch == product.m * product.a_row && c_batch == product.m * product.c_row;
    if batch > 1 && b_batch == 0 && goes_on {
        product.m *= batch;
        batch = 1;
    }
    // SAFETY: index < batch, whose addresses the caller vouches for.
    let nth =
        |index: usize| unsafe { product.moved(index * a_batch, index * b_batch, index * c_batch) };
    let work = product.multiply_adds().max(product.m * product.n).max(1);
    // SAFETY (all three): the products of a batch write distinct elements.
    if batch == 1 || (batch < 16 && work > 16 * PARALLEL_WORK) {
        for index in 0..batch {
            // SAFETY: see above.
            unsafe { blocked::run(nth(index), true) }?;
        }
    } else if work.saturating_mul(batch) < PARALLEL_WORK {
        for index in 0..batch {
            // SAFETY: see above.
            unsafe { blocked::run(nth(index), false) }?;
        }
    } else {
        let together = (PARALLEL_WORK / 2 / work).clamp(1, batch);
        parallel::try_run(batch.div_ceil(together), |task| {
            for index in task * together..((task + 1) * together).min(batch) {
                // SAFETY: see above.
                unsafe { blocked::run(nth(index), false) }?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
