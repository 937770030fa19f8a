//! Matrix products: `matmul`, `linear`, `dot`, `outer`.

mod launch;
pub mod plan;

use fireclay_core::{DType, Dims, Error, Layout, Result, Shape};
use fireclay_cpu::gemm::{Epilogue, GemmShape, MatrixStrides, gemm};
use smallvec::{SmallVec, smallvec};

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
            let (batch, m, n) = matrix_dims(shape);
            let k = call.layout(0).shape()[call.layout(0).ndim() - 1];
            let (a_batch, a_strides) = strides(call.layout(0), batch);
            let (b_batch, b_strides) = strides(call.layout(1), batch);
            let dims = merged(batch, &a_batch, &b_batch);
            let (a, b) = (call.input_strided::<T>(0), call.input_strided::<T>(1));
            let c = call.output::<T>(0);
            let c_strides = MatrixStrides::row_major(m, n);
            for_each_run(&dims, 1, |run, [a_at, b_at], first| {
                let run = run.first().copied().unwrap_or(BatchDim { size: 1, a: 0, b: 0 });
                let count = run.size;
                gemm(
                    GemmShape { batch: count, m, n, k }, 1.0,
                    &a[a_at.min(a.len())..], MatrixStrides { batch: run.a, ..a_strides },
                    &b[b_at.min(b.len())..], MatrixStrides { batch: run.b, ..b_strides },
                    0.0, &mut c[first * m * n..][..count * m * n], c_strides, Epilogue::None,
                ).map_err(out_of_host_memory)
            })?;
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::StridedPacked
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (batch, m, n) = matrix_dims(call.output_layout(0).shape());
        let k = call.layout(0).shape()[call.layout(0).ndim() - 1];
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
            launch::launch(&call, &products, a, b)
        })
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

/// `x @ weight.T + bias` for rows `x`: inputs `[rows, in]`, `[out, in]` and maybe `[out]`.
#[derive(Clone, Copy, Debug)]
struct Linear;

impl Op for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = same_float("linear", inputs)?;
        let (x, weight) = (inputs[0].shape(), inputs[1].shape());
        let wrong = |what: String| Err(Error::shape("linear", what));
        if x.ndim() == 0 || weight.ndim() != 2 || x[x.ndim() - 1] != weight[1] {
            return wrong(format!(
                "expected input [.., in] and weight [out, in], got {x} and {weight}"
            ));
        }
        if let Some(bias) = inputs.get(2)
            && bias.shape()[..] != [weight[0]]
        {
            return wrong(format!(
                "expected bias [{}], got {}",
                weight[0],
                bias.shape()
            ));
        }
        let mut sizes: Dims = x[..x.ndim() - 1].into();
        sizes.push(weight[0]);
        Ok(smallvec![OutputMeta::contiguous(sizes.into(), dtype)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        match_float!("linear", call.dtype(0), T => {
            let weight = call.layout(1).shape();
            let (n, k) = (weight[0], weight[1]);
            let m = call.output_shape(0).iter().product::<usize>().checked_div(n).unwrap_or(0);
            let bias = if call.inputs() > 2 { Epilogue::BiasColumns(call.input::<T>(2)) } else { Epilogue::None };
            gemm(
                GemmShape { batch: 1, m, n, k }, 1.0,
                call.input::<T>(0), MatrixStrides::row_major(m, k),
                call.input::<T>(1), MatrixStrides::row_major(n, k).transposed(),
                0.0, call.output::<T>(0), MatrixStrides::row_major(m, n), bias,
            ).map_err(out_of_host_memory)?;
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let weight = call.layout(1).shape();
        let (n, k) = (weight[0], weight[1]);
        let m = call.output_layout(0).numel().checked_div(n).unwrap_or(0);
        let a = Matrices::new(0, MatrixStrides::row_major(m, k));
        let b = Matrices::new(0, MatrixStrides::row_major(n, k).transposed());
        let products = Products {
            batch: &[],
            m,
            n,
            k,
            c: 0,
        };
        launch::launch(&call, &products, a, b)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let out = context.input_shape(1)[0];
        let rows = |tensor: &Tensor, width: usize| {
            let (_, outer) = tensor.shape().split_last().expect("it has rows");
            tensor.reshape_to(&Shape::new(&[outer.iter().product(), width]))
        };
        let mut grads: Grads = smallvec![None; context.inputs()];
        if context.needs(0) {
            let weight = context.input(1)?;
            grads[0] = Some(
                rows(grad, out)?
                    .matmul(&weight)?
                    .reshape_to(context.input_shape(0))?,
            );
        }
        if context.needs(1) {
            let x = rows(&context.input(0)?, context.input_shape(1)[1])?;
            grads[1] = Some(rows(grad, out)?.t()?.matmul(&x)?);
        }
        if context.inputs() > 2 && context.needs(2) {
            grads[2] = Some(rows(grad, out)?.sum(&[0], false)?);
        }
        Ok(grads)
    }

    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
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

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(Matmul), Box::new(Linear)]
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
        // The order of a sum of products with a vector depends on how the matrix lies.
        let is_of_matrices = a.shape()[a.ndim() - 2] > 1 && b.shape()[b.ndim() - 1] > 1;
        let (a, b) = match is_of_matrices && !self.device().is_cpu() {
            true => (in_lines(a)?, in_lines(b)?),
            false => (a, b),
        };
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

    /// `self @ weight.T + bias` (`torch.nn.functional.linear`): `[.., in]` with weight `[out, in]` and bias `[out]` gives
    /// `[.., out]`.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![self, weight];
        inputs.extend(bias);
        dispatch::call_one(Linear, &inputs)
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
