//! Reductions: `sum`, `mean`, `amax`, `amin`, `argmax`, `argmin`, `var`, and what is composed of them.

use fireclay_core::{DType, Dims, Error, Result, Shape, resolve_dim};
use fireclay_cpu::reduce::{self, View};
use fireclay_cuda::{Argument, Library};
use smallvec::smallvec;

use super::float::kernel_of;
use crate::autograd::Backward;
use crate::cuda_call::{CudaCall, address};
use crate::dispatch;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `reduce.cu`, and the threads of a block.
static KERNELS: Library = fireclay_cuda::library!("reduce");
const THREADS: usize = 256;
/// Rows that a warp searches, rather than a block.
const SHORT_ROW: usize = 1024;
/// Columns that a thread searches, rather than a block,
const SHORT_COLUMN: usize = 64;
/// and how many of them make threads enough whatever their length.
const MANY_COLUMNS: usize = 8192;
/// What a block searches, where it searches no more than a part.
const LONGEST_PART: usize = 16384;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Sum,
    Mean,
    Amax,
    Amin,
    Argmax,
    Argmin,
}

/// Reduces the dimensions `start..end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduce {
    kind: Kind,
    start: usize,
    end: usize,
    keepdim: bool,
}

impl Reduce {
    fn name_of(self) -> &'static str {
        match self.kind {
            Kind::Sum => "sum",
            Kind::Mean => "mean",
            Kind::Amax => "amax",
            Kind::Amin => "amin",
            Kind::Argmax => "argmax",
            Kind::Argmin => "argmin",
        }
    }

    fn reduced(self, shape: &[usize], keepdim: bool) -> Shape {
        let mut sizes: Dims = shape.into();
        if keepdim {
            sizes[self.start..self.end].fill(1);
        } else {
            sizes.drain(self.start..self.end);
        }
        sizes.into()
    }

    fn count(self, shape: &[usize]) -> usize {
        shape[self.start..self.end].iter().product()
    }

    fn find_on_device(self, call: &CudaCall<'_>, view: fireclay_cuda::reduce::View) -> Result<()> {
        let dtype = call.dtype(0);
        let results = view.outer * view.inner;
        let [results64, reduce, inner] =
            [results, view.reduce, view.inner].map(|size| Argument::U64(size as u64));
        let (x, out) = (call.input(0), call.output(0));
        let largest = self.kind == Kind::Argmax;
        if view.inner == 1 && view.reduce <= SHORT_ROW {
            let kernel = match largest {
                true => kernel_of!(call, dtype, "argmax_rows", [F32 "f32", F64 "f64", I64 "i64"]),
                false => kernel_of!(call, dtype, "argmin_rows", [F32 "f32", F64 "f64", I64 "i64"]),
            };
            let arguments = [x, out, results64, reduce];
            // SAFETY: the kernel's parameters; the input has `reduce` elements for each of the results, and is contiguous.
            return unsafe { call.launch_rows(&KERNELS, kernel, results, &arguments) };
        }
        if view.inner > 1 && (view.reduce <= SHORT_COLUMN || results >= MANY_COLUMNS) {
            let kernel = match largest {
                true => {
                    kernel_of!(call, dtype, "argmax_columns", [F32 "f32", F64 "f64", I64 "i64"])
                }
                false => {
                    kernel_of!(call, dtype, "argmin_columns", [F32 "f32", F64 "f64", I64 "i64"])
                }
            };
            let arguments = [x, out, results64, reduce, inner];
            // SAFETY: as above.
            return unsafe { call.launch_threads(&KERNELS, kernel, results, &arguments) };
        }
        let kernel = match largest {
            true => kernel_of!(call, dtype, "argmax", [F32 "f32", F64 "f64", I64 "i64"]),
            false => kernel_of!(call, dtype, "argmin", [F32 "f32", F64 "f64", I64 "i64"]),
        };
        // Among the places of one result, or those that the launch before chose.
        let choose = |candidates, out, count: usize, parts: usize| {
            let len = if parts > 1 { LONGEST_PART } else { count };
            let sizes = [count, parts, len];
            let mut arguments = vec![x, candidates, out, reduce, inner];
            arguments.extend(sizes.map(|size| Argument::U64(size as u64)));
            // SAFETY: as above; a block for each part of each result, which has a place in `out`.
            unsafe { call.launch(&KERNELS, kernel, [results * parts, THREADS], &arguments) }
        };
        let (none, parts) = (Argument::Address(0), view.reduce.div_ceil(LONGEST_PART));
        if parts <= 1 || results == 0 {
            return choose(none, out, view.reduce, 1);
        }
        let chosen = call.scratch(results * parts, DType::I64)?;
        choose(none, address(&chosen), view.reduce, parts)?;
        choose(address(&chosen), out, parts, 1)
    }
}

/// Runs the kernel of `kind`.
macro_rules! run {
    ($T:ty, $kind:expr, $call:expr, $view:expr, $mean:expr) => {{
        let (call, view) = ($call, $view);
        let x = call.input::<$T>(0);
        match $kind {
            Kind::Sum => reduce::reduce(reduce::Sum, x, view, call.output(0)),
            Kind::Amax => reduce::reduce(reduce::Max, x, view, call.output(0)),
            Kind::Amin => reduce::reduce(reduce::Min, x, view, call.output(0)),
            Kind::Argmax => reduce::argmax(x, view, call.output(0)),
            Kind::Argmin => reduce::argmin(x, view, call.output(0)),
            Kind::Mean => {
                let out = call.output::<$T>(0);
                reduce::reduce(reduce::Sum, x, view, out);
                out.iter_mut().for_each(|sum| *sum = $mean(*sum));
            }
        }
    }};
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        self.name_of()
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let input = inputs[0];
        let (name, dtype) = (self.name_of(), input.dtype);
        let needs_elements = !matches!(self.kind, Kind::Sum | Kind::Mean);
        let reduced = self.reduced(input.shape(), self.keepdim);
        if needs_elements && self.count(input.shape()) == 0 && reduced.numel() > 0 {
            return Err(Error::argument(
                name,
                "there is nothing to choose from: the reduced dimensions are empty",
            ));
        }
        let dtype = match self.kind {
            Kind::Argmax | Kind::Argmin => DType::I64,
            Kind::Mean if !dtype.is_floating_point() => {
                return Err(
                    Error::dtype(name, format!("expected a floating dtype, got {dtype}"))
                        .with_hint("cast it first: to_dtype(DType::F32)"),
                );
            }
            _ => dtype,
        };
        Ok(smallvec![OutputMeta::contiguous(reduced, dtype)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        let view = View {
            outer: shape[..self.start].iter().product(),
            reduce: self.count(shape),
            inner: shape[self.end..].iter().product(),
        };
        let call = &mut call;
        match call.dtype(0) {
            DType::F32 => run!(f32, self.kind, call, view, |sum: f32| sum
                / view.reduce as f32),
            DType::F64 => run!(f64, self.kind, call, view, |sum: f64| sum
                / view.reduce as f64),
            DType::I64 => run!(i64, self.kind, call, view, |sum: i64| sum),
            dtype => {
                return Err(Error::NoKernel {
                    op: self.name_of(),
                    device: fireclay_core::Device::Cpu,
                    dtype,
                    context: Box::default(),
                });
            }
        }
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        use fireclay_cuda::reduce::Reduction;
        let shape = call.layout(0).shape();
        let view = fireclay_cuda::reduce::View {
            outer: shape[..self.start].iter().product(),
            reduce: self.count(shape),
            inner: shape[self.end..].iter().product(),
        };
        let (reduction, divisor) = match self.kind {
            Kind::Sum => (Reduction::Sum, None),
            Kind::Mean => (Reduction::Sum, Some(view.reduce as f64)),
            Kind::Amax => (Reduction::Max, None),
            Kind::Amin => (Reduction::Min, None),
            Kind::Argmax | Kind::Argmin => return self.find_on_device(&call, view),
        };
        call.reduce(reduction, view, divisor)
    }

    fn saves(&self) -> Saves {
        match self.kind {
            Kind::Amax | Kind::Amin => Saves::ALL,
            _ => Saves::NONE,
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let shape = context.input_shape(0);
        let kept = self.reduced(shape, true);
        let grad = context.grad_output().reshape_to(&kept)?;
        let grad = match self.kind {
            Kind::Sum => grad.expand_to(shape)?,
            Kind::Mean => grad.mul(1.0 / self.count(shape) as f64)?.expand_to(shape)?,
            Kind::Amax | Kind::Amin => {
                // Equal extrema share the gradient.
                let (x, y) = (context.input(0)?, context.output(0)?.reshape_to(&kept)?);
                let chosen = x.eq(&y)?.to_dtype(x.dtype())?;
                let count = dispatch::call_one(
                    Reduce {
                        kind: Kind::Sum,
                        keepdim: true,
                        ..*self
                    },
                    &[&chosen],
                )?;
                (&chosen * &(&grad / &count)).eval()?
            }
            Kind::Argmax | Kind::Argmin => {
                return Err(Error::NotDifferentiable {
                    op: self.name_of(),
                    location: context.location(),
                });
            }
        };
        Ok(smallvec![Some(grad)])
    }

    fn autocast(&self) -> Autocast {
        match self.kind {
            Kind::Sum => Autocast::F32,
            _ => Autocast::Keep,
        }
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let kinds = [
        Kind::Sum,
        Kind::Mean,
        Kind::Amax,
        Kind::Amin,
        Kind::Argmax,
        Kind::Argmin,
    ];
    let reduce = |kind| -> Box<dyn Op> {
        Box::new(Reduce {
            kind,
            start: 0,
            end: 1,
            keepdim: false,
        })
    };
    kinds.into_iter().map(reduce).collect()
}

impl Tensor {
    /// The sum over `dims`, all of them if empty (`torch.sum`). Whole numbers and bools are summed as i64.
    #[track_caller]
    pub fn sum(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        if self.dtype().is_computable() && !self.dtype().is_floating_point() {
            return self.to_dtype(DType::I64)?.reduce(Kind::Sum, dims, keepdim);
        }
        self.reduce(Kind::Sum, dims, keepdim)
    }

    /// The sum of all elements.
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(&[], false)
    }

    /// The mean over `dims`, all of them if empty, of a floating tensor (`torch.mean`). NaN where there is no element.
    #[track_caller]
    pub fn mean(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.reduce(Kind::Mean, dims, keepdim)
    }

    /// The mean of all elements.
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(&[], false)
    }

    /// The largest element over `dims`, all of them if empty; NaN where there is one (`torch.amax`). Equal ones share
    /// the gradient.
    #[track_caller]
    pub fn amax(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.chosen(Kind::Amax, dims, keepdim)
    }

    /// The smallest element over `dims`, all of them if empty; NaN where there is one (`torch.amin`). Equal ones share
    /// the gradient.
    #[track_caller]
    pub fn amin(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        self.chosen(Kind::Amin, dims, keepdim)
    }

    /// The index along `dim` of the largest element, the first of equal ones, i64 (`torch.argmax`).
    #[track_caller]
    pub fn argmax(&self, dim: isize, keepdim: bool) -> Result<Tensor> {
        self.chosen(Kind::Argmax, &[dim], keepdim)
    }

    /// The index along `dim` of the smallest element, the first of equal ones, i64 (`torch.argmin`).
    #[track_caller]
    pub fn argmin(&self, dim: isize, keepdim: bool) -> Result<Tensor> {
        self.chosen(Kind::Argmin, &[dim], keepdim)
    }

    /// Whether any element over `dims` (all if empty) is true or not zero (`torch.any`).
    #[track_caller]
    pub fn any(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let any = self.ne(0i64)?.sum(dims, keepdim)?.gt(0i64)?;
        any.to_dtype(self.truth_dtype())
    }

    /// Whether all elements over `dims` (all if empty) are true or not zero (`torch.all`).
    #[track_caller]
    pub fn all(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let all = self.eq(0i64)?.sum(dims, keepdim)?.eq(0i64)?;
        all.to_dtype(self.truth_dtype())
    }

    /// `any` and `all` answer bool, but u8 for u8, as in PyTorch.
    fn truth_dtype(&self) -> DType {
        if self.dtype() == DType::U8 {
            DType::U8
        } else {
            DType::Bool
        }
    }

    /// The variance over `dims`, all of them if empty: squared distances from the mean over `n - correction`
    /// (`torch.var`; its default correction is 1).
    #[track_caller]
    pub fn var(&self, dims: &[isize], correction: f64, keepdim: bool) -> Result<Tensor> {
        let mean = self.mean(dims, true)?;
        let count = self.numel() as f64 / mean.numel().max(1) as f64;
        let freedom = count - correction;
        // What flows back to the mean is zero, but of infinities NaN.
        let mean = if freedom > 0.0 { mean } else { mean.detach() };
        let squares = (self - &mean).square().eval()?;
        let sum = squares.sum(dims, keepdim)?;
        // Without a degree of freedom: NaN from 0/0, infinity from x/0. Gradients then are NaN or infinite over all dimensions,
        // and over some of them those of a negative divisor. All as in PyTorch.
        if freedom > 0.0 || dims.is_empty() || self.ndim() == 0 {
            return sum.div(freedom.max(0.0));
        }
        (&sum / freedom + &sum.detach() / 0.0).eval()
    }

    /// The standard deviation: the root of [`var`](Tensor::var) (`torch.std`).
    #[track_caller]
    pub fn std(&self, dims: &[isize], correction: f64, keepdim: bool) -> Result<Tensor> {
        let var = Formula::from(self.var(dims, correction, keepdim)?);
        // The gradient is 0, not infinite, where the deviation is.
        let none = var.eq(0.0);
        none.where_(0.0, none.where_(1.0, var).sqrt()).eval()
    }

    /// `log(sum(exp(x)))` over `dims`, without overflow (`torch.logsumexp`).
    #[track_caller]
    pub fn logsumexp(&self, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        if self.numel() == 0 {
            // There is no largest element, and the logarithm of an empty sum is -infinity.
            return self.exp()?.sum(dims, keepdim)?.log();
        }
        let largest = self.detach().amax(dims, true)?;
        // An infinite maximum would give infinity minus infinity.
        let shift = largest.isfinite()?.where_(&largest, 0.0)?;
        let sum = (self - &shift).exp().eval()?.sum(dims, keepdim)?;
        let shift = shift.reshape_to(sum.shape())?;
        (Formula::from(&sum).log() + &shift).eval()
    }

    /// Sums over the dimensions in which this tensor was broadcast from `shape`: broadcasting's own gradient.
    #[track_caller]
    pub(crate) fn sum_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let extra = self.ndim() - shape.ndim();
        let dims: Vec<isize> = (0..self.ndim())
            .filter(|&dim| dim < extra || (shape[dim - extra] == 1 && self.shape()[dim] != 1))
            .map(|dim| dim as isize)
            .collect();
        let summed = if dims.is_empty() {
            self.clone()
        } else {
            self.reduce(Kind::Sum, &dims, true)?
        };
        summed.reshape_to(shape)
    }

    #[track_caller]
    fn chosen(&self, kind: Kind, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let dtype = self.dtype();
        if dtype == DType::Bool && matches!(kind, Kind::Argmax | Kind::Argmin) {
            let name = if kind == Kind::Argmax {
                "argmax"
            } else {
                "argmin"
            };
            return Err(Error::dtype(name, "bool is not taken")
                .with_hint("cast it first: to_dtype(DType::U8)")
                .with_operands(|| vec![self.operand("self")]));
        }
        if !dtype.is_computable() || dtype.is_floating_point() || dtype == DType::I64 {
            return self.reduce(kind, dims, keepdim);
        }
        let result = self.to_dtype(DType::I64)?.reduce(kind, dims, keepdim)?;
        match kind {
            Kind::Argmax | Kind::Argmin => Ok(result),
            _ => result.to_dtype(dtype),
        }
    }

    /// Brings the reduced dimensions side by side and reduces them.
    #[track_caller]
    fn reduce(&self, kind: Kind, dims: &[isize], keepdim: bool) -> Result<Tensor> {
        let ndim = self.ndim();
        let name = Reduce {
            kind,
            start: 0,
            end: 0,
            keepdim,
        }
        .name_of();
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if !self.dtype().is_computable() {
            return Err(context(Error::dtype(
                name,
                format!("{} is stored only, no op computes with it", self.dtype()),
            )));
        }
        let mut chosen: Dims = Dims::new();
        for &dim in dims {
            let dim = resolve_dim(name, dim, ndim)?;
            if ndim > 0 {
                if chosen.contains(&dim) {
                    return Err(context(Error::argument(
                        name,
                        format!("dimension {dim} appears twice in {dims:?}"),
                    )));
                }
                chosen.push(dim);
            }
        }
        if dims.is_empty() {
            chosen = (0..ndim).collect();
        }
        chosen.sort_unstable();
        let (start, end) = (
            chosen.first().copied().unwrap_or(0),
            chosen.last().map_or(0, |dim| dim + 1),
        );
        if end - start == chosen.len() {
            return dispatch::call_one(
                Reduce {
                    kind,
                    start,
                    end,
                    keepdim,
                },
                &[self],
            );
        }
        let kept = (0..ndim).filter(|dim| !chosen.contains(dim));
        let order: Vec<isize> = kept
            .chain(chosen.iter().copied())
            .map(|dim| dim as isize)
            .collect();
        let moved = self.permute(&order)?;
        let start = ndim - chosen.len();
        let result = dispatch::call_one(
            Reduce {
                kind,
                start,
                end: ndim,
                keepdim: false,
            },
            &[&moved],
        )?;
        if !keepdim {
            return Ok(result);
        }
        let sizes: Shape = (0..ndim)
            .map(|dim| {
                if chosen.contains(&dim) {
                    1
                } else {
                    self.shape()[dim]
                }
            })
            .collect();
        result.reshape_to(&sizes)
    }
}
