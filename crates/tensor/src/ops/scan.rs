//! Running sums and products: `cumsum`, `cumprod`; and the linear recurrence that a gradient of products is.

use fireclay_core::{DType, Error, Result, resolve_dim};
use fireclay_cpu::scan;
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::{kernel_of, match_float};
use super::row_kernels::computed;
use crate::autograd::Backward;
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
        let (kernel, of_totals) = match self.product {
            false => (
                kernel_of!(call, dtype, "scan_sum", [F32 "f32", F64 "f64", BF16 "bf16", F16 "f16", I64 "i64"]),
                kernel_of!(call, wide, "scan_sum", [F32 "f32", F64 "f64", I64 "i64"]),
            ),
            true => (
                kernel_of!(call, dtype, "scan_product", [F32 "f32", F64 "f64", BF16 "bf16", F16 "f16", I64 "i64"]),
                kernel_of!(call, wide, "scan_product", [F32 "f32", F64 "f64", I64 "i64"]),
            ),
        };
        let none = Argument::Address(0);
        let scratch = |count| call.scratch(count, wide);
        by_levels(rows, cols, scratch, |work, x, above, keeps| {
            // The totals are scanned where they lie.
            let (kernel, [x, out], reverse) = match x {
                None => (kernel, [call.input(0), call.output(0)], self.reverse),
                Some(x) => (of_totals, [address(x); 2], false),
            };
            let mut arguments = vec![
                x,
                if keeps { out } else { none },
                above.map_or(none, address),
            ];
            arguments.extend(work.arguments());
            arguments.push(Argument::U32(u32::from(reverse)));
            // SAFETY: the kernel's parameters; input and output are contiguous rows; without a place for results it writes a total
            // for each chunk.
            unsafe { call.launch(&KERNELS, kernel, work.launch(), &arguments) }
        })
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
        Ok(smallvec![Some(product_gradient(context, grad)?)])
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// What is before an element times the sum of what follows it: `s[i] = grad[i] + x[i + 1] * s[i + 1]`. Nothing is divided by, so zeros
/// are numbers as others are, also where the gradient is differentiated itself.
fn product_gradient(context: &Backward<'_>, grad: &Tensor) -> Result<Tensor> {
    let (x, mut products) = (context.input(0)?, context.output(0)?);
    let ([_, cols], dtype) = (rows_and_cols(x.shape()), x.dtype());
    if x.numel() == 0 {
        return Ok(grad.clone());
    }
    let wide = computed(dtype);
    let (x, grad) = (x.to_dtype(wide)?, grad.to_dtype(wide)?);
    if wide != dtype {
        products = x.cumprod(-1)?;
    }
    let sums = dispatch::call_one(LinearScan { reverse: true }, &[&x, &grad])?;
    let first = x.narrow(-1, 0, 1)?;
    let one = Tensor::full_of(first.shape(), 1.0, wide, x.device())?;
    let before = Tensor::cat(&[&one, &products.narrow(-1, 0, cols - 1)?], -1)?;
    before.mul(&sums)?.to_dtype(dtype)
}

/// A linear recurrence along the last dimension: `s[i] = g[i] + a[i] * s[i - 1]`, or from its end `s[i] = g[i] + a[i + 1] * s[i + 1]`; inputs:
/// a, g. Each way is the gradient of the other.
#[derive(Clone, Copy, Debug)]
struct LinearScan {
    reverse: bool,
}

impl Op for LinearScan {
    fn name(&self) -> &'static str {
        "linear_recurrence"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[1].shape().clone(),
            inputs[1].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [_, cols] = rows_and_cols(call.layout(1).shape());
        match_float!(self.name(), call.dtype(1), T => {
            scan::linear_rows::<T>(call.input(0), call.input(1), cols, self.reverse, call.output(0));
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let dtype = call.dtype(1);
        let [rows, cols] = rows_and_cols(call.layout(1).shape());
        let kernel = kernel_of!(call, dtype, "linear");
        let none = Argument::Address(0);
        let scratch = |count| {
            Ok([
                call.scratch(count, DType::F64)?,
                call.scratch(count, DType::F64)?,
            ])
        };
        by_levels(rows, cols, scratch, |work, pair, above, keeps| {
            let (kernel, [a, g, out], reverse) = match pair {
                None => (
                    kernel,
                    [call.input(0), call.input(1), call.output(0)],
                    self.reverse,
                ),
                Some([a, g]) => (c"linear_f64", [address(a), address(g), address(g)], false),
            };
            let mut arguments = vec![a, g, if keeps { out } else { none }];
            arguments.extend(above.map_or([none; 2], |pair| pair.each_ref().map(address)));
            arguments.extend(work.arguments());
            arguments.extend([reverse, pair.is_some()].map(|flag| Argument::U32(u32::from(flag))));
            // SAFETY: the kernel's parameters; inputs and output are contiguous rows; without a place for results it writes a factor and
            // a sum for each chunk.
            unsafe { call.launch(&KERNELS, kernel, work.launch(), &arguments) }
        })
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[0]).and_outputs(&[0])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let (a, sums) = (context.input(0)?, context.output(0)?);
        let back = LinearScan {
            reverse: !self.reverse,
        };
        let of_g = dispatch::call_one(back, &[&a, context.grad_output()])?;
        let [_, cols] = rows_and_cols(a.shape());
        if a.numel() == 0 || !context.needs(0) {
            let of_a = context.needs(0).then(|| of_g.clone());
            return Ok(smallvec![of_a, Some(of_g)]);
        }
        // A coefficient links two elements: what is known of the one, and the gradient of the other.
        let (earlier, later) = match self.reverse {
            false => (&sums, &of_g),
            true => (&of_g, &sums),
        };
        let links = (earlier.narrow(-1, 0, cols - 1)?).mul(&later.narrow(-1, 1, cols - 1)?)?;
        let first = a.narrow(-1, 0, 1)?;
        let unused = Tensor::full_of(first.shape(), 0.0, a.dtype(), a.device())?;
        let of_a = Tensor::cat(&[&unused, &links], -1)?;
        Ok(smallvec![Some(of_a), Some(of_g)])
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }
}

/// `s[i] = g[i] + a[i] * s[i - 1]` along the last dimension; a[0] counts for nothing.
#[track_caller]
pub(super) fn recurrence(a: &Tensor, g: &Tensor) -> Result<Tensor> {
    dispatch::call_one(LinearScan { reverse: false }, &[a, g])
}

/// Scans rows of any length: the totals of a row's chunks, in memory that `scratch` gives for so many, are rows that are scanned in
/// their turn. `launch` is told what is scanned, the op's input if there is none, the totals of its chunks if it has several, and
/// whether it is to keep results, from these totals, or to make the totals.
fn by_levels<T>(
    rows: usize,
    cols: usize,
    scratch: impl Fn(usize) -> Result<T>,
    launch: impl Fn(&Work, Option<&T>, Option<&T>, bool) -> Result<()>,
) -> Result<()> {
    let own = Work::new(rows, cols);
    let mut levels: Vec<(Work, T)> = Vec::new();
    let mut chunks = own.chunks;
    while chunks > 1 && rows > 0 {
        let totals = scratch(rows * chunks)?;
        let (work, x) = match levels.last() {
            None => (&own, None),
            Some((work, x)) => (work, Some(x)),
        };
        launch(work, x, Some(&totals), false)?;
        let above = Work::new(rows, chunks);
        chunks = above.chunks;
        levels.push((above, totals));
    }
    let totals_of = |number: usize| levels.get(number).map(|(_, totals)| totals);
    for (number, (work, x)) in levels.iter().enumerate().rev() {
        launch(work, Some(x), totals_of(number + 1), true)?;
    }
    launch(&own, None, totals_of(0), true)
}

/// How a kernel shares rows among blocks: a chunk of a row for each, or `packed` short rows.
struct Work {
    rows: usize,
    cols: usize,
    chunks: usize,
    packed: usize,
}

impl Work {
    fn new(rows: usize, cols: usize) -> Work {
        let threads = scan::CHUNK / scan::SEGMENT;
        Work {
            rows,
            cols,
            chunks: cols.div_ceil(scan::CHUNK),
            packed: (threads / cols.div_ceil(scan::SEGMENT).max(1)).max(1),
        }
    }

    /// Blocks, and threads of each.
    fn launch(&self) -> [usize; 2] {
        let blocks = match self.packed {
            1 => self.rows * self.chunks,
            _ if self.cols == 0 => 0,
            packed => self.rows.div_ceil(packed),
        };
        [blocks, scan::CHUNK / scan::SEGMENT]
    }

    fn arguments(&self) -> [Argument<'static>; 4] {
        let number = |number: usize| Argument::U64(number as u64);
        let packed = Argument::U32(self.packed as u32);
        [
            number(self.rows),
            number(self.cols),
            number(self.chunks),
            packed,
        ]
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
        Box::new(LinearScan { reverse: false }),
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
