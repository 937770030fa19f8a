//! Matrix products: `matmul`, `linear`, `dot`, `outer`.

pub mod plan;

use fireclay_core::{DType, Dims, Error, Layout, Result, Shape};
use fireclay_cpu::gemm::{Epilogue, GemmShape, MatrixStrides, gemm};
use fireclay_cuda::vendor::{Matrix, Product};
use fireclay_cuda::{Argument, Library};
use smallvec::{SmallVec, smallvec};

use super::float::{match_float, same_float};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, out_of_host_memory};
use crate::tensor::Tensor;

/// The kernels of `matmul.cu`.
static KERNELS: Library = fireclay_cuda::library!("matmul");

/// What a kernel is told of its operands, as in `matmul.cu`: whether neighbours along k lie nearest to each other, and whether 16 bytes
/// can be loaded or stored at once.
const A_ALONG_K: u64 = 1;
const A_WIDE: u64 = 2;
const B_ALONG_K: u64 = 4;
const B_WIDE: u64 = 8;
const C_WIDE: u64 = 16;

/// Starts the product of matrices of these sizes, strides in elements, at places in elements of the first two inputs; the
/// result is contiguous at `c` in elements. A third input is the bias.
fn product_on_device(
    call: &CudaCall<'_>,
    shape: GemmShape,
    (a, mut a_strides): (usize, MatrixStrides),
    (b, mut b_strides): (usize, MatrixStrides),
    c: usize,
) -> Result<()> {
    let GemmShape {
        mut batch,
        mut m,
        mut n,
        k,
    } = shape;
    if batch * m * n == 0 {
        return Ok(());
    }
    let dtype = call.dtype(0);
    if !matches!(dtype, DType::F32 | DType::F64 | DType::I64) {
        return Err(call.no_kernel());
    }
    let [of_a, of_b] =
        [a_strides, b_strides].map(|MatrixStrides { batch, row, col }| Matrix { batch, row, col });
    #[rustfmt::skip]
    let product = Product { dtype, tf32: false, batch, m, n, k, a: of_a, b: of_b };
    // SAFETY: the operands have these sizes along these strides from these places on.
    if unsafe { call.product_by_vendor(&product, [a, b, c]) }? {
        return Ok(());
    }
    // As on the host: many rows with one matrix are one tall product.
    if batch > 1 && b_strides.batch == 0 && a_strides.batch == m * a_strides.row {
        m *= batch;
        batch = 1;
    }
    let plan = plan::plan(dtype, GemmShape { batch, m, n, k }, a_strides, b_strides);
    let size = dtype.size();
    let address = |operand: Argument<'static>, place: usize| match operand {
        Argument::Address(address) => address + (place * size) as u64,
        _ => 0,
    };
    let mut a = address(call.input(0), a);
    let mut b = address(call.input(1), b);
    let c = address(call.output(0), c);
    let bias = if call.inputs() > 2 {
        address(call.input(2), 0)
    } else {
        0
    };
    let swaps = plan.kernel.is_of_vector() && n == 1 && m > 1;
    if swaps {
        (m, n) = (n, m);
        (a, b) = (b, a);
        (a_strides, b_strides) = (b_strides.transposed(), a_strides.transposed());
    }
    let scratch = match plan.splits {
        1 => None,
        _ => Some(call.scratch(k.div_ceil(plan.depth) * batch * m * n, dtype)?),
    };
    let wide = 16 / size;
    // Whether an operand of these strides, over rows and over k, can be loaded 16 bytes at a time.
    let is_wide = |address: u64, across: usize, along: usize, step: usize, rows: usize| {
        let other = if along == 1 { across } else { along };
        let lines = if along == 1 { rows } else { k };
        (along == 1 || across == 1)
            && address.is_multiple_of(16)
            && (lines == 1 || other.is_multiple_of(wide))
            && (batch == 1 || step.is_multiple_of(wide))
            && plan.depth.is_multiple_of(wide)
    };
    let flags = [
        (A_ALONG_K, a_strides.col == 1),
        (
            A_WIDE,
            is_wide(a, a_strides.row, a_strides.col, a_strides.batch, m),
        ),
        (B_ALONG_K, b_strides.row == 1),
        (
            B_WIDE,
            plan.kernel.takes_wide_b(b_strides)
                && is_wide(b, b_strides.col, b_strides.row, b_strides.batch, n),
        ),
        (C_WIDE, c.is_multiple_of(16) && n.is_multiple_of(wide)),
    ];
    let flags = (flags.iter())
        .filter(|(_, is_so)| *is_so)
        .fold(0, |all, (flag, _)| all | flag);
    let parts = scratch.as_ref().map_or(0, |buffer| buffer.address());
    let sizes = [batch, m, n, k, plan.depth, plan.splits];
    let strides = [a_strides, b_strides].map(|strides| [strides.row, strides.col]);
    let steps = [a_strides.batch, b_strides.batch, usize::from(!swaps)];
    let numbers = (sizes.into_iter())
        .chain(strides.into_iter().flatten())
        .chain(steps)
        .map(|number| number as u64);
    // The structure `Product` of matmul.cu.
    let numbers = [a, b, c, parts, bias]
        .into_iter()
        .chain(numbers)
        .chain([flags]);
    let bytes: Vec<u8> = numbers.flat_map(u64::to_ne_bytes).collect();
    let arguments = [Argument::Bytes(&bytes)];
    let of = match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        _ => 2,
    };
    let merge = [
        c"matmul_f32_add_parts",
        c"matmul_f64_add_parts",
        c"matmul_i64_add_parts",
    ][of];
    if k > 0 {
        let tiles = match plan.kernel {
            plan::Kernel::WeightedRows if flags & B_WIDE != 0 => n.div_ceil(64 * wide),
            kernel => kernel.tiles(m, n, size),
        };
        let blocks = batch * plan.splits * tiles;
        // SAFETY: the kernel's only parameter is this structure; it reads within the sizes, which the operands have along these
        // strides, and writes C or the parts, for all of which the scratch memory has room.
        unsafe {
            call.launch(
                &KERNELS,
                plan.kernel.name(dtype),
                [blocks, plan.kernel.threads()],
                &arguments,
            )?
        };
    }
    if k == 0 || plan.splits > 1 {
        // SAFETY: as above; it reads the parts that the first kernel wrote, one after the other.
        unsafe {
            call.launch(
                &KERNELS,
                merge,
                [(batch * m * n).div_ceil(256), 256],
                &arguments,
            )?
        };
    }
    Ok(())
}

/// Calls `each` for every run of products whose operands lie evenly: how many they are, where the first one's operands start
/// in elements and from one to the next, and the number of the first.
fn for_each_run(
    batch: &[usize],
    a: &[usize],
    b: &[usize],
    mut each: impl FnMut(usize, [(usize, usize); 2], usize) -> Result<()>,
) -> Result<()> {
    let (outer, (size, a_step, b_step)) = merge_batch(batch, a, b);
    let mut index: Dims = smallvec![0; outer.len()];
    for run in 0..outer.iter().product() {
        let place = |strides: &[usize]| -> usize {
            index
                .iter()
                .zip(strides)
                .map(|(index, stride)| index * stride)
                .sum()
        };
        each(size, [(place(a), a_step), (place(b), b_step)], run * size)?;
        for dim in (0..outer.len()).rev() {
            index[dim] += 1;
            if index[dim] < outer[dim] {
                break;
            }
            index[dim] = 0;
        }
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
            let (a, b) = (call.input_strided::<T>(0), call.input_strided::<T>(1));
            let c = call.output::<T>(0);
            let c_strides = MatrixStrides::row_major(m, n);
            for_each_run(batch, &a_batch, &b_batch, |count, [(a_at, a_step), (b_at, b_step)], first| {
                gemm(
                    GemmShape { batch: count, m, n, k }, 1.0,
                    &a[a_at.min(a.len())..], MatrixStrides { batch: a_step, ..a_strides },
                    &b[b_at.min(b.len())..], MatrixStrides { batch: b_step, ..b_strides },
                    0.0, &mut c[first * m * n..][..count * m * n], c_strides, Epilogue::None,
                ).map_err(out_of_host_memory)
            })?;
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Strided
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (batch, m, n) = matrix_dims(call.output_layout(0).shape());
        let k = call.layout(0).shape()[call.layout(0).ndim() - 1];
        let (a_batch, a_strides) = strides(call.layout(0), batch);
        let (b_batch, b_strides) = strides(call.layout(1), batch);
        for_each_run(
            batch,
            &a_batch,
            &b_batch,
            |count, [(a, a_step), (b, b_step)], first| {
                let a = (
                    a,
                    MatrixStrides {
                        batch: a_step,
                        ..a_strides
                    },
                );
                let b = (
                    b,
                    MatrixStrides {
                        batch: b_step,
                        ..b_strides
                    },
                );
                let shape = GemmShape {
                    batch: count,
                    m,
                    n,
                    k,
                };
                product_on_device(&call, shape, a, b, first * m * n)
            },
        )
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

/// Splits the batch into outer dimensions and one inner run: (size, stride of a, stride of b).
fn merge_batch<'a>(
    batch: &'a [usize],
    a: &[usize],
    b: &[usize],
) -> (&'a [usize], (usize, usize, usize)) {
    let Some(last) = batch.len().checked_sub(1) else {
        return (batch, (1, 0, 0));
    };
    let mut run = (batch[last], a[last], b[last]);
    let mut outer = last;
    while outer > 0 && a[outer - 1] == run.1 * run.0 && b[outer - 1] == run.2 * run.0 {
        outer -= 1;
        run.0 *= batch[outer];
    }
    (&batch[..outer], run)
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
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let weight = call.layout(1).shape();
        let (n, k) = (weight[0], weight[1]);
        let m = call.output_layout(0).numel().checked_div(n).unwrap_or(0);
        let a = (0, MatrixStrides::row_major(m, k));
        let b = (0, MatrixStrides::row_major(n, k).transposed());
        product_on_device(&call, GemmShape { batch: 1, m, n, k }, a, b, 0)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0, 1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let out = context.input_shape(1)[0];
        let rows = |tensor: &Tensor, width: usize| {
            let count = tensor.numel().checked_div(width).unwrap_or(0);
            tensor.reshape_to(&Shape::new(&[count, width]))
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
        let a = if self.ndim() == 1 {
            self.unsqueeze(0)?
        } else {
            self.clone()
        };
        let b = if other.ndim() == 1 {
            other.unsqueeze(1)?
        } else {
            other.clone()
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
