//! Running sums and products: `cumsum`, `cumprod`.

use fireclay_core::{DType, Error, Result, resolve_dim};
use fireclay_cpu::scan;
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::{kernel_of, match_float};
use super::row_kernels::computed;
use crate::autograd::{Backward, is_grad_enabled};
use crate::cuda_call::{CudaCall, address};
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `scan.cu`.
static KERNELS: Library = fireclay_cuda::library!("scan");

/// Along the last dimension, from its end if `reverse`.
#[derive(Clone, Copy, Debug)]
struct Scan {
    product: bool,
    reverse: bool,
}

fn rows_and_cols(shape: &[usize]) -> [usize; 2] {
    let (cols, rows) = shape.split_last().expect("at least one dimension");
    [rows.iter().product(), *cols]
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        if self.product { "cumprod" } else { "cumsum" }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = inputs[0].dtype;
        if !dtype.is_floating_point() && dtype != DType::I64 {
            let what = format!("expected a floating dtype or i64, got {dtype}");
            return Err(Error::dtype(self.name(), what));
        }
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [_, cols] = rows_and_cols(call.layout(0).shape());
        if call.dtype(0) == DType::I64 {
            scan::scan_rows::<i64>(
                call.input(0),
                cols,
                self.product,
                self.reverse,
                call.output(0),
            );
            return Ok(());
        }
        match_float!(self.name(), call.dtype(0), T => {
            scan::scan_rows::<T>(call.input(0), cols, self.product, self.reverse, call.output(0));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(0);
        let [rows, cols] = rows_and_cols(call.layout(0).shape());
        let wide = if dtype == DType::I64 {
            dtype
        } else {
            computed(dtype)
        };
        let (kernel, totals_kernel) = match self.product {
            false => (
                kernel_of!(call, dtype, "scan_sum", [F32 "f32", F64 "f64", BF16 "bf16", F16 "f16", I64 "i64"]),
                kernel_of!(call, wide, "scan_totals_sum", [F32 "f32", F64 "f64", I64 "i64"]),
            ),
            true => (
                kernel_of!(call, dtype, "scan_product", [F32 "f32", F64 "f64", BF16 "bf16", F16 "f16", I64 "i64"]),
                kernel_of!(call, wide, "scan_totals_product", [F32 "f32", F64 "f64", I64 "i64"]),
            ),
        };
        let chunks = cols.div_ceil(scan::CHUNK);
        let number = |number: usize| Argument::U64(number as u64);
        let shape = [rows * chunks, scan::CHUNK / scan::SEGMENT];
        let (none, reverse) = (Argument::Address(0), Argument::U32(u32::from(self.reverse)));
        let tail = [number(cols), number(chunks), reverse];
        let totals = match chunks > 1 && rows > 0 {
            true => Some(call.scratch(rows * chunks, wide)?),
            false => None,
        };
        let at = totals.as_ref().map_or(none, address);
        if totals.is_some() {
            let arguments = [call.input(0), none, at, tail[0], tail[1], tail[2]];
            // SAFETY: the kernel's parameters; without a place for results it writes a total for each chunk.
            unsafe { call.launch(&KERNELS, kernel, shape, &arguments)? };
            let arguments = [at, number(rows), number(chunks)];
            // SAFETY: the kernel's parameters; a thread for each row.
            unsafe { call.launch_threads(&KERNELS, totals_kernel, rows, &arguments)? };
        }
        let arguments = [call.input(0), call.output(0), at, tail[0], tail[1], tail[2]];
        // SAFETY: the kernel's parameters; input and output are contiguous rows.
        unsafe { call.launch(&KERNELS, kernel, shape, &arguments) }
    }

    fn saves(&self) -> Saves {
        match self.product {
            true => Saves::ALL,
            false => Saves::NONE,
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output();
        let back = Scan {
            product: false,
            reverse: !self.reverse,
        };
        if !self.product {
            return Ok(smallvec![Some(dispatch::call_one(back, &[grad])?)]);
        }
        let x = context.input(0)?;
        let grad = match is_grad_enabled() {
            false => dispatch::call_one(ProductGrad, &[&x, grad])?,
            // Where the gradient is to be differentiated itself, no element may be zero.
            true => dispatch::call_one(back, &[&grad.mul(&context.output(0)?)?])?.div(&x)?,
        };
        Ok(smallvec![Some(grad)])
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// The gradient of running products; inputs: x, gradient. Zeros need no rule of their own. Not differentiable itself.
#[derive(Clone, Copy, Debug)]
struct ProductGrad;

impl Op for ProductGrad {
    fn name(&self) -> &'static str {
        "cumprod_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [_, cols] = rows_and_cols(call.layout(0).shape());
        match_float!(self.name(), call.dtype(0), T => {
            scan::product_gradient::<T>(call.input(0), call.input(1), cols, call.output(0));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(0);
        let [rows, cols] = rows_and_cols(call.layout(0).shape());
        if rows * cols == 0 {
            return Ok(());
        }
        let before = call.scratch(rows * cols, computed(dtype))?;
        let kernel = kernel_of!(call, dtype, "product_grad");
        let arguments = [
            call.input(0),
            call.input(1),
            address(&before),
            call.output(0),
            Argument::U64(rows as u64),
            Argument::U64(cols as u64),
        ];
        // SAFETY: the kernel's parameters; a thread for each row.
        unsafe { call.launch_threads(&KERNELS, kernel, rows, &arguments) }
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let scan = |product| Scan {
        product,
        reverse: false,
    };
    vec![
        Box::new(scan(false)),
        Box::new(scan(true)),
        Box::new(ProductGrad),
    ]
}

impl Tensor {
    /// The sum of the elements up to each along `dim` (`torch.cumsum`). Whole numbers and bools are summed as i64.
    #[track_caller]
    pub fn cumsum(&self, dim: isize) -> Result<Tensor> {
        self.scanned(false, dim)
    }

    /// The product of the elements up to each along `dim` (`torch.cumprod`). Whole numbers and bools are multiplied as i64.
    #[track_caller]
    pub fn cumprod(&self, dim: isize) -> Result<Tensor> {
        self.scanned(true, dim)
    }

    #[track_caller]
    fn scanned(&self, product: bool, dim: isize) -> Result<Tensor> {
        let op = Scan {
            product,
            reverse: false,
        };
        let dim = resolve_dim(op.name(), dim, self.ndim())?;
        if self.dtype().is_computable()
            && !self.dtype().is_floating_point()
            && self.dtype() != DType::I64
        {
            return self.to_dtype(DType::I64)?.scanned(product, dim as isize);
        }
        match self.ndim() {
            0 => dispatch::call_one(op, &[&self.unsqueeze(0)?])?.squeeze(0),
            ndim if ndim == dim + 1 => dispatch::call_one(op, &[self]),
            _ => {
                let turned = self.transpose(dim as isize, -1)?;
                dispatch::call_one(op, &[&turned])?.transpose(dim as isize, -1)
            }
        }
    }
}
