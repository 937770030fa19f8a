//! Matrix products: `matmul`, `dot`, `outer`; and in the files of its folder those to which more is done, `linear` and `addmm`.

mod addmm;
mod epilogue;
mod launch;
mod linear;
pub mod plan;

pub use self::epilogue::Activation;
pub use self::linear::LinearEpilogue;

use fireclay_core::{DType, Dims, Element, Error, Layout, Result, Shape};
use fireclay_cpu::gemm::{self, Float, GemmShape, MatrixStrides};
use smallvec::{SmallVec, smallvec};

use self::epilogue::Epilogue;
use self::launch::{BATCH_DIMS, BatchDim, Matrices, Products};
use super::float::{match_float, same_float};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, out_of_host_memory};
use crate::tensor::Tensor;

/// Calls `each` for every run of products: the dimensions of the run, `most` at most, where the first one's operands start in
/// elements, and the number of the first.
fn for_each_run(
    dims: &[BatchDim],
    most: usize,
    mut each: impl FnMut(&[BatchDim], [usize; 2], usize) -> Result<()>,
) -> Result<()> {
    let (outer, run) = dims.split_at(dims.len().saturating_sub(most));
    let count: usize = run.iter().map(|dim| dim.size).product();
    let runs = outer.iter().map(|dim| dim.size).product();
    for number in 0..runs {
        let (mut rest, mut places) = (number, [0, 0]);
        for dim in outer.iter().rev() {
            let index = rest % dim.size;
            rest /= dim.size;
            places = [places[0] + index * dim.a, places[1] + index * dim.b];
        }
        each(run, places, number * count)?;
    }
    Ok(())
}

/// Batched product of `[..., m, k]` and `[..., k, n]`, batch dimensions broadcast.
#[derive(Clone, Copy, Debug)]
struct Matmul;

fn matrix_dims(shape: &[usize]) -> (&[usize], usize, usize) {
    let (batch, matrix) = shape.split_at(shape.len() - 2);
    (batch, matrix[0], matrix[1])
}

impl Op for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = inputs[0].dtype;
        if dtype != DType::I64 || inputs[1].dtype != DType::I64 {
            same_float("matmul", inputs)?;
        }
        let (a_batch, m, a_inner) = matrix_dims(inputs[0].shape());
        let (b_batch, b_inner, n) = matrix_dims(inputs[1].shape());
        let mismatch = |what: &str| {
            Error::shape(
                "matmul",
                format!(
                    "{what}, expected [.., m, k] and [.., k, n], got {} and {}",
                    inputs[0].shape(),
                    inputs[1].shape()
                ),
            )
        };
        if a_inner != b_inner {
            return Err(mismatch("inner sizes differ").with_hint(if a_inner == n {
                "transpose the second one: transpose(-2, -1)"
            } else {
                "the last size of the first must equal the last but one of the second"
            }));
        }
        let batch = Shape::new(a_batch).broadcast(&Shape::new(b_batch));
        let batch = batch.ok_or_else(|| mismatch("batch dimensions do not broadcast"))?;
        let mut sizes: Dims = batch[..].into();
        sizes.extend([m, n]);
        Ok(smallvec![OutputMeta::contiguous(sizes.into(), dtype)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Strided
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        if call.dtype(0) == DType::I64 {
            whole_product(&mut call);
            return Ok(());
        }
        match_float!("matmul", call.dtype(0), T => {
            let shape = call.output_shape(0);
            let c = call.output::<T>(0);
            host_products(&call, shape, 1.0, c)?;
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::StridedPacked
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        device_products(&call, &Epilogue::NONE)
    }

    fn saves(&self) -> Saves {
        Saves::INPUTS
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let mut grads: Grads = smallvec![None, None];
        if context.needs(0) {
            let b = context.input(1)?.transpose(-2, -1)?;
            grads[0] = Some(grad.matmul(&b)?.sum_to(context.input_shape(0))?);
        }
        if context.needs(1) {
            let a = context.input(0)?.transpose(-2, -1)?;
            grads[1] = Some(a.matmul(grad)?.sum_to(context.input_shape(1))?);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// Products of the first two inputs, of any strides, times `alpha` if that is 0.
fn host_products<T: Float + Element>(
    call: &CpuCall<'_>,
    shape: &[usize],
    alpha: f64,
    c: &mut [T],
) -> Result<()> {
    let (batch, m, n) = matrix_dims(shape);
    let k = match alpha {
        0.0 => 0,
        _ => call.layout(0).shape()[call.layout(0).ndim() - 1],
    };
    let (a_batch, a_strides) = strides(call.layout(0), batch);
    let (b_batch, b_strides) = strides(call.layout(1), batch);
    let dims = merged(batch, &a_batch, &b_batch);
    let (a, b) = (call.input_strided::<T>(0), call.input_strided::<T>(1));
    let c_strides = MatrixStrides::row_major(m, n);
    for_each_run(&dims, 1, |run, [a_at, b_at], first| {
        let none = BatchDim {
            size: 1,
            a: 0,
            b: 0,
        };
        let run = run.first().copied().unwrap_or(none);
        let count = run.size;
        gemm::gemm(
            GemmShape {
                batch: count,
                m,
                n,
                k,
            },
            T::ONE,
            &a[a_at.min(a.len())..],
            MatrixStrides {
                batch: run.a,
                ..a_strides
            },
            &b[b_at.min(b.len())..],
            MatrixStrides {
                batch: run.b,
                ..b_strides
            },
            T::ZERO,
            &mut c[first * m * n..][..count * m * n],
            c_strides,
            gemm::Epilogue::None,
        )
        .map_err(out_of_host_memory)
    })
}

/// Products of the first two inputs, of any strides, on a device.
fn device_products(call: &CudaCall<'_>, epilogue: &Epilogue) -> Result<()> {
    let (batch, m, n) = matrix_dims(call.output_layout(0).shape());
    let k = match epilogue.alpha {
        0.0 => 0,
        _ => call.layout(0).shape()[call.layout(0).ndim() - 1],
    };
    let (a_batch, a_strides) = strides(call.layout(0), batch);
    let (b_batch, b_strides) = strides(call.layout(1), batch);
    let dims = merged(batch, &a_batch, &b_batch);
    for_each_run(&dims, launch::BATCH_DIMS, |run, [a, b], first| {
        let products = Products {
            batch: run,
            m,
            n,
            k,
            c: first * m * n,
        };
        let (a, b) = (Matrices::new(a, a_strides), Matrices::new(b, b_strides));
        launch::launch(call, &products, a, b, epilogue)
    })
}

/// The product of i64 matrices, wrapping around. Plain loops: whole numbers are for small sums.
fn whole_product(call: &mut CpuCall<'_>) {
    let (batch, m, n) = matrix_dims(call.output_shape(0));
    let k = call.layout(0).shape()[call.layout(0).ndim() - 1];
    let (a_batch, a_strides) = strides(call.layout(0), batch);
    let (b_batch, b_strides) = strides(call.layout(1), batch);
    let (a, b) = (call.input_strided::<i64>(0), call.input_strided::<i64>(1));
    let c = call.output::<i64>(0);
    for (matrix, c) in c.chunks_mut((m * n).max(1)).enumerate() {
        let (mut rest, mut a_at, mut b_at) = (matrix, 0, 0);
        for dim in (0..batch.len()).rev() {
            let index = rest % batch[dim];
            rest /= batch[dim];
            a_at += index * a_batch[dim];
            b_at += index * b_batch[dim];
        }
        for (place, c) in c.iter_mut().enumerate() {
            let (row, col) = (place / n, place % n);
            let terms = (0..k).map(|inner| {
                let a = a[a_at + row * a_strides.row + inner * a_strides.col];
                a.wrapping_mul(b[b_at + inner * b_strides.row + col * b_strides.col])
            });
            *c = terms.fold(0, i64::wrapping_add);
        }
    }
}

/// The strides of an operand over the broadcast batch dimensions, and those of its matrices.
fn strides(layout: &Layout, batch: &[usize]) -> (Dims, MatrixStrides) {
    let ndim = layout.ndim();
    let own = &layout.shape()[..ndim - 2];
    let extra = batch.len() - own.len();
    let over_batch = (0..batch.len())
        .map(|dim| match dim.checked_sub(extra) {
            Some(dim) if own[dim] != 1 => layout.strides()[dim],
            _ => 0,
        })
        .collect();
    let matrix = MatrixStrides {
        batch: 0,
        row: layout.strides()[ndim - 2],
        col: layout.strides()[ndim - 1],
    };
    (over_batch, matrix)
}

/// The dimensions of a batch; those along which both operands lie evenly are one.
fn merged(batch: &[usize], a: &[usize], b: &[usize]) -> SmallVec<[BatchDim; BATCH_DIMS]> {
    let mut dims: SmallVec<[BatchDim; BATCH_DIMS]> = SmallVec::new();
    let all = batch.iter().zip(a).zip(b).rev();
    for ((&size, &a), &b) in all.filter(|((size, _), _)| **size != 1) {
        match dims.last_mut() {
            Some(inner) if a == inner.a * inner.size && b == inner.b * inner.size => {
                inner.size *= size;
            }
            _ => dims.push(BatchDim { size, a, b }),
        }
    }
    dims.reverse();
    dims
}

/// Matrices whose rows or columns are contiguous: kernels of devices load neighbours together.
fn in_lines(matrices: Tensor) -> Result<Tensor> {
    let (shape, strides) = (matrices.shape(), matrices.strides());
    let ndim = matrices.ndim();
    let lies_apart = |dim: usize| shape[dim] > 1 && strides[dim] != 1;
    match lies_apart(ndim - 2) && lies_apart(ndim - 1) {
        true => matrices.contiguous(),
        false => Ok(matrices),
    }
}

/// Both operands for kernels of a device. Vectors and what they are multiplied by stay as they are: the order of their sums
/// depends on how the matrix lies.
fn both_in_lines(a: Tensor, b: Tensor) -> Result<(Tensor, Tensor)> {
    let is_of_matrices = a.shape()[a.ndim() - 2] > 1 && b.shape()[b.ndim() - 1] > 1;
    match is_of_matrices && !a.device().is_cpu() {
        true => Ok((in_lines(a)?, in_lines(b)?)),
        false => Ok((a, b)),
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(Matmul), addmm::op(), linear::op()]
}

impl Tensor {
    /// Matrix product (`torch.matmul`): of vectors, matrices and batches of matrices, batch dimensions broadcast.
    ///
    /// `[m, k] @ [k, n]` gives `[m, n]`; a 1-dim operand is a row on the left, a column on the right, and its
    /// dimension is not in the result. Both have one dtype; whole numbers wrap around.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        if self.ndim() == 0 || other.ndim() == 0 {
            return Err(
                Error::shape("matmul", "both operands need at least one dimension")
                    .with_hint("use mul for a zero-dim tensor")
                    .with_operands(|| vec![self.operand("self"), other.operand("other")]),
            );
        }
        let dtype = self.dtype();
        if dtype.is_integer() && dtype != DType::I64 && other.dtype() == dtype {
            let (a, b) = (self.to_dtype(DType::I64)?, other.to_dtype(DType::I64)?);
            return a.matmul(&b)?.to_dtype(dtype);
        }
        let a = match self.ndim() {
            1 => self.unsqueeze(0)?,
            _ => self.clone(),
        };
        let b = match other.ndim() {
            1 => other.unsqueeze(1)?,
            _ => other.clone(),
        };
        let (a, b) = both_in_lines(a, b)?;
        let product = dispatch::call_one(Matmul, &[&a, &b])?;
        let product = if other.ndim() == 1 {
            product.squeeze(-1)?
        } else {
            product
        };
        if self.ndim() == 1 {
            let dim = if other.ndim() == 1 { -1 } else { -2 };
            return product.squeeze(dim);
        }
        Ok(product)
    }

    /// The sum of products of two vectors (`torch.dot`).
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        if self.ndim() != 1 || other.ndim() != 1 {
            return Err(Error::shape(
                "dot",
                format!(
                    "expected two vectors, got {} and {}",
                    self.shape(),
                    other.shape()
                ),
            )
            .with_operands(|| vec![self.operand("self"), other.operand("other")]));
        }
        self.matmul(other)
    }

    /// All products of an element of one vector and one of the other (`torch.outer`).
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        if self.ndim() != 1 || other.ndim() != 1 {
            return Err(Error::shape(
                "outer",
                format!(
                    "expected two vectors, got {} and {}",
                    self.shape(),
                    other.shape()
                ),
            )
            .with_operands(|| vec![self.operand("self"), other.operand("other")]));
        }
        self.unsqueeze(1)?.mul(other)
    }
}
