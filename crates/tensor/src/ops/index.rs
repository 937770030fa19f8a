//! Indexing by tensors, and joining: `index_select`, `gather`, `embedding`, `index_add`, `cat`, `stack`.

use std::ffi::CStr;

use fireclay_core::{DType, Error, Result, Shape, resolve_dim};
use fireclay_cpu::index::IndexRows;
use fireclay_cuda::{Argument, Library};
use smallvec::{SmallVec, smallvec};

use super::float::match_float;
use super::scatter::{ScatterAdd, add_runs};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Runs `$body` with `$T` as the element type of `$dtype`; bools are `u8`, and 16-bit floats come as f32.
macro_rules! match_number {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match_number!(@arms $op, $dtype, $T, $body, F64 f64, F32 f32, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, Bool u8)
    };
    (@arms $op:expr, $dtype:expr, $T:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $dtype {
            $(DType::$variant => {
                type $T = $type;
                $body
            })*
            dtype => {
                return Err(Error::NoKernel {
                    op: $op,
                    device: fireclay_core::Device::Cpu,
                    dtype,
                    context: fireclay_core::Context::hint("cast it first: to_dtype(..)"),
                });
            }
        }
    };
}

pub(super) use match_number;

/// The kernels of `index.cu`.
pub(super) static KERNELS: Library = fireclay_cuda::library!("index");

/// The kernel that reads elements of these many bytes.
pub(super) fn by_size(dtype: DType, names: [&'static CStr; 4]) -> &'static CStr {
    names[dtype.size().ilog2().min(3) as usize]
}

/// The kernel that adds elements of this dtype.
pub(super) fn by_sum(
    call: &CudaCall<'_>,
    dtype: DType,
    names: [&'static CStr; 3],
) -> Result<&'static CStr> {
    match dtype {
        DType::I64 => Ok(names[2]),
        dtype => call.of_float(dtype, [names[0], names[1]]),
    }
}

/// Numbers as kernel arguments.
pub(super) fn numbers<const N: usize>(numbers: [usize; N]) -> [Argument<'static>; N] {
    numbers.map(|number| Argument::U64(number as u64))
}

/// Numbers of up to eight dimensions, the last ones of eight, after `fill`.
pub(super) fn last_of_eight(call: &CudaCall<'_>, values: &[usize], fill: i64) -> Result<[i64; 8]> {
    let mut eight = [fill; 8];
    let Some(first) = eight.len().checked_sub(values.len()) else {
        let what = format!("{} dimensions are more than the kernel's 8", values.len());
        return Err(call.no_kernel().with_hint(what));
    };
    for (place, &value) in eight[first..].iter_mut().zip(values) {
        *place = value as i64;
    }
    Ok(eight)
}

/// `[outer, dim, inner]` of a shape around one dimension.
pub(super) fn around(shape: &[usize], dim: usize) -> [usize; 3] {
    [
        shape[..dim].iter().product(),
        shape[dim],
        shape[dim + 1..].iter().product(),
    ]
}

pub(super) fn out_of_range(
    op: &'static str,
    index: i64,
    position: usize,
    dim: usize,
    size: usize,
) -> Error {
    Error::IndexOutOfRange {
        op,
        index,
        position,
        dim,
        size,
        context: fireclay_core::Context::hint(format!(
            "valid indices are 0 to {}",
            size as i64 - 1
        )),
    }
}

/// Checks all indices before anything is written.
pub(super) fn check_indices(
    op: &'static str,
    indices: &[i64],
    dim: usize,
    size: usize,
) -> Result<()> {
    match fireclay_cpu::index::first_outside(indices, 0, size) {
        Some(position) => Err(out_of_range(op, indices[position], position, dim, size)),
        None => Ok(()),
    }
}

fn check_index_dtype(op: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::I64 {
        return Ok(());
    }
    Err(Error::dtype(
        op,
        format!("expected indices of i64 or i32, got {dtype}"),
    ))
}

/// Indices as the kernels take them.
#[track_caller]
pub(super) fn as_indices(op: &'static str, indices: &Tensor) -> Result<Tensor> {
    match indices.dtype() {
        DType::I64 => Ok(indices.clone()),
        DType::I32 => indices.to_dtype(DType::I64),
        dtype => Err(check_index_dtype(op, dtype)
            .err()
            .unwrap_or_else(|| Error::argument(op, "indices"))
            .with_operands(|| vec![indices.operand("indices")])),
    }
}

/// Rows of `dim` at the given places; inputs: x, indices (1-dim).
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSelect {
    pub(super) name: &'static str,
    pub(super) dim: usize,
    pub(super) grad: EmbeddingOptions,
}

/// How the rows of [`Tensor::embedding_with`] are trained.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EmbeddingOptions {
    /// A row that stands for "nothing here" and gets no gradient.
    pub padding_idx: Option<usize>,
    /// Whether the gradient of each row is divided by how often the row was looked up.
    pub scale_grad_by_freq: bool,
}

impl EmbeddingOptions {
    /// The gradient of the rows looked up at `indices` of `count`, as the table gets it.
    fn apply(self, grad: &Tensor, indices: &Tensor, count: usize) -> Result<Tensor> {
        let mut grad = grad.clone();
        let sizes = [indices.numel(), 1];
        if let Some(row) = self.padding_idx {
            let padding = indices.eq(row as i64)?.reshape_to(&Shape::new(&sizes))?;
            let zero = Tensor::full_of(&[], 0i64, grad.dtype(), grad.device())?;
            grad = padding.where_(&zero, &grad)?;
        }
        if self.scale_grad_by_freq {
            let ones = Tensor::full_of(&[indices.numel()], 1i64, DType::I64, grad.device())?;
            let counts = Tensor::full_of(&[count], 0i64, DType::I64, grad.device())?
                .index_add(0, indices, &ones)?
                .index_select(0, indices)?
                .to_dtype(grad.dtype())?;
            grad = grad.div(&counts.reshape_to(&Shape::new(&sizes))?)?;
        }
        Ok(grad)
    }
}

impl Op for IndexSelect {
    fn name(&self) -> &'static str {
        self.name
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let mut shape = inputs[0].shape().clone();
        shape.sizes_mut()[self.dim] = inputs[1].shape().numel();
        Ok(smallvec![OutputMeta::contiguous(shape, inputs[0].dtype)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [outer, size, inner] = around(call.layout(0).shape(), self.dim);
        let indices = call.input::<i64>(1);
        check_indices(self.name, indices, self.dim, size)?;
        match_number!(self.name, call.dtype(0), T => {
            fireclay_cpu::index::select_rows::<T>(call.input(0), indices, [outer, size, inner], call.output(0));
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let size = context.input_shape(0)[self.dim];
        let op = IndexAdd {
            dim: self.dim,
            size,
        };
        let indices = context.input(1)?;
        let grad = self.grad.apply(context.grad_output(), &indices, size)?;
        let grad = dispatch::call_one(op, &[&grad, &indices])?;
        Ok(smallvec![Some(grad), None])
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let [outer, size, inner] = around(call.layout(0).shape(), self.dim);
        let picked = call.layout(1).numel();
        let (x, out) = (call.input(0), call.output(0));
        // Rows are moved in the widest pieces in which all of them lie evenly.
        let nbytes = inner * call.dtype(0).size();
        let fits = |width: usize| {
            let even = |at: &Argument<'_>| matches!(at, Argument::Address(at) if at.is_multiple_of(width as u64));
            nbytes.is_multiple_of(width) && even(&x) && even(&out)
        };
        let widths = [
            (16, c"select_rows_16"),
            (8, c"select_rows_8"),
            (4, c"select_rows_4"),
            (2, c"select_rows_2"),
        ];
        let found = widths.into_iter().find(|(width, _)| fits(*width));
        let (width, kernel) = found.unwrap_or((1, c"select_rows_1"));
        let inner = nbytes / width;
        let total = outer * picked * inner;
        let mut arguments = vec![x, call.input(1), out];
        arguments.extend(numbers([total, picked, inner, size]));
        arguments.extend(call.check(self.dim, size, None)?);
        // SAFETY: the kernel's parameters; it reads rows below `size` only.
        unsafe { call.launch_threads(&KERNELS, kernel, total, &arguments) }
    }
}

/// Zeros with rows added at the given places of `dim`, in order; inputs: rows, indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexAdd {
    pub(super) dim: usize,
    pub(super) size: usize,
}

impl Op for IndexAdd {
    fn name(&self) -> &'static str {
        "index_add"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let mut shape = inputs[0].shape().clone();
        shape.sizes_mut()[self.dim] = self.size;
        Ok(smallvec![OutputMeta::contiguous(shape, inputs[0].dtype)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [outer, _, inner] = around(call.layout(0).shape(), self.dim);
        let indices = call.input::<i64>(1);
        check_indices(self.name(), indices, self.dim, self.size)?;
        if call.dtype(0) == DType::I64 {
            let sizes = [outer, self.size, inner];
            fireclay_cpu::index::add_whole_rows(call.input(0), indices, sizes, call.output(0));
            return Ok(());
        }
        match_float!(self.name(), call.dtype(0), T => {
            fireclay_cpu::index::add_rows::<T>(call.input(0), indices, [outer, self.size, inner], call.output(0));
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let op = IndexSelect {
            name: "index_select",
            dim: self.dim,
            grad: EmbeddingOptions::default(),
        };
        let grad = dispatch::call_one(op, &[context.grad_output(), &context.input(1)?])?;
        Ok(smallvec![Some(grad), None])
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let [outer, _, inner] = around(call.layout(0).shape(), self.dim);
        let range = (self.dim, self.size);
        add_runs(
            &call,
            call.input(1),
            [outer, call.layout(1).numel(), inner],
            range,
        )
    }
}

/// `out[i][j] = x[index[i][j]][j]` along `dim`; inputs: x, indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    pub(super) dim: usize,
}

pub(super) fn check_gather(op: &'static str, x: &Shape, index: &Shape, dim: usize) -> Result<()> {
    let fits = x.ndim() == index.ndim()
        && (0..x.ndim()).all(|other| other == dim || index[other] <= x[other]);
    if fits || index.contains(&0) && x.ndim() == index.ndim() {
        return Ok(());
    }
    Err(Error::shape(
        op,
        format!("expected indices no larger than {x} but in dimension {dim}, got {index}"),
    ))
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        check_gather(self.name(), inputs[0].shape(), inputs[1].shape(), self.dim)?;
        Ok(smallvec![OutputMeta::contiguous(
            inputs[1].shape().clone(),
            inputs[0].dtype
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let indices = call.input::<i64>(1);
        let (x, index) = (call.layout(0), call.layout(1).shape());
        check_indices(self.name(), indices, self.dim, x.shape()[self.dim])?;
        match_number!(self.name(), call.dtype(0), T => {
            let rows = IndexRows { shape: index, strides: x.strides(), dim: self.dim };
            fireclay_cpu::index::gather::<T>(call.input(0), rows, indices, call.output(0));
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let op = ScatterAdd {
            dim: self.dim,
            shape: context.input_shape(0).clone(),
        };
        let grad = dispatch::call_one(op, &[context.grad_output(), &context.input(1)?])?;
        Ok(smallvec![Some(grad), None])
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let (x, index) = (call.layout(0), call.layout(1).shape());
        let (size, total) = (x.shape()[self.dim], index.numel());
        let names = [c"gather_1", c"gather_2", c"gather_4", c"gather_8"];
        let shape = last_of_eight(&call, index, 1)?;
        let strides = last_of_eight(&call, x.strides(), 0)?;
        let mut arguments = vec![call.input(0), call.input(1), call.output(0)];
        arguments.extend(numbers([total, self.dim + 8 - index.ndim()]));
        arguments.extend([Argument::Numbers(&shape), Argument::Numbers(&strides)]);
        arguments.extend(numbers([size]));
        arguments.extend(call.check(self.dim, size, None)?);
        let kernel = by_size(call.dtype(0), names);
        // SAFETY: the kernel's parameters; the output rule saw that the indices' shape lies within x but along `dim`, where the
        // kernel reads below `size` only.
        unsafe { call.launch_threads(&KERNELS, kernel, total, &arguments) }
    }
}

/// Tensors one after the other along `dim`.
#[derive(Clone, Copy, Debug)]
struct Cat {
    dim: usize,
}

impl Op for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let mut shape = inputs[0].shape().clone();
        let mut total = 0usize;
        for input in inputs {
            let alike = input.ndim() == shape.ndim()
                && (0..shape.ndim()).all(|dim| dim == self.dim || input.shape()[dim] == shape[dim]);
            if !alike {
                return Err(Error::shape(
                    self.name(),
                    format!(
                        "all sizes but that of dimension {} must be equal, got {} and {}",
                        self.dim,
                        inputs[0].shape(),
                        input.shape()
                    ),
                ));
            }
            // More than can be counted is more than can be allocated: the door says so.
            total = total.saturating_add(input.shape()[self.dim]);
        }
        shape.sizes_mut()[self.dim] = total;
        Ok(smallvec![OutputMeta::contiguous(shape, inputs[0].dtype)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        use fireclay_cpu::program::{Sink, Source};
        let inputs: Vec<_> = (0..call.inputs())
            .map(|index| call.raw_input(index))
            .collect();
        let output = call.raw_output(0);
        let base = output.ptr();
        let mut start = 0;
        for input in inputs {
            let length = input.layout.shape()[self.dim];
            let part = output.layout.slice(self.dim, start, length, 1);
            start += length;
            let source = Source {
                ptr: input.ptr().cast_const(),
                dtype: input.dtype,
                strides: input.layout.strides().into(),
            };
            let sink = Sink {
                // SAFETY: the parts fill the output along `dim`, by the output rule; an empty part is not written.
                ptr: unsafe {
                    base.add(part.offset().min(output.layout.numel()) * output.dtype.size())
                },
                dtype: output.dtype,
                strides: part.strides().into(),
            };
            // SAFETY: `ptr` checked the layouts; parts don't overlap; the output is fresh.
            unsafe { fireclay_cpu::copy::copy(part.shape(), source, sink) };
        }
        Ok(())
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut start = 0;
        (0..context.inputs())
            .map(|index| {
                let length = context.input_shape(index)[self.dim];
                start += length;
                if !context.needs(index) {
                    return Ok(None);
                }
                context
                    .grad_output()
                    .narrow(self.dim as isize, start - length, length)
                    .map(Some)
            })
            .collect()
    }

    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let mut start = 0;
        for index in 0..call.inputs() {
            let length = call.layout(index).shape()[self.dim];
            let part = call.output_layout(0).slice(self.dim, start, length, 1);
            start += length;
            call.copy_to_part(index, &part)?;
        }
        Ok(())
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let select = |name| IndexSelect {
        name,
        dim: 0,
        grad: EmbeddingOptions::default(),
    };
    vec![
        Box::new(select("index_select")),
        Box::new(select("embedding")),
        Box::new(IndexAdd { dim: 0, size: 0 }),
        Box::new(Gather { dim: 0 }),
        Box::new(Cat { dim: 0 }),
    ]
}

impl Tensor {
    /// The rows of `dim` at `indices` (1-dim, i64 or i32), in that order (`torch.index_select`).
    #[track_caller]
    pub fn index_select(&self, dim: isize, indices: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("index_select", dim, self.ndim())?;
        if self.ndim() == 0 && indices.numel() == 1 {
            let one = self.unsqueeze(0)?.index_select(0, indices)?;
            return one.reshape_to(self.shape());
        }
        if indices.ndim() > 1 || self.ndim() == 0 {
            return Err(Error::shape(
                "index_select",
                format!("expected indices of one dimension, got {}", indices.shape()),
            )
            .with_operands(|| vec![self.operand("self"), indices.operand("indices")]));
        }
        let op = IndexSelect {
            name: "index_select",
            dim,
            grad: EmbeddingOptions::default(),
        };
        dispatch::call_one(op, &[self, &as_indices("index_select", indices)?])
    }

    /// Rows of this `[count, width]` table at `indices` of any shape: `[.., width]` (`torch.nn.functional.embedding`).
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor) -> Result<Tensor> {
        self.embedding_with(indices, EmbeddingOptions::default())
    }

    /// [`embedding`](Tensor::embedding) of which some rows are trained otherwise (`padding_idx`, `scale_grad_by_freq`).
    #[track_caller]
    pub fn embedding_with(&self, indices: &Tensor, options: EmbeddingOptions) -> Result<Tensor> {
        if self.ndim() != 2 {
            return Err(Error::shape(
                "embedding",
                format!("expected a table [count, width], got {}", self.shape()),
            )
            .with_operands(|| vec![self.operand("table")]));
        }
        if let Some(row) = options.padding_idx.filter(|&row| row >= self.shape()[0]) {
            let what = format!(
                "padding_idx {row} is not one of the {} rows",
                self.shape()[0]
            );
            return Err(
                Error::argument("embedding", what).with_operands(|| vec![self.operand("table")])
            );
        }
        let op = IndexSelect {
            name: "embedding",
            dim: 0,
            grad: options,
        };
        let flat = as_indices("embedding", indices)?.reshape(&[-1])?;
        let rows = dispatch::call_one(op, &[self, &flat])?;
        let shape: Shape = indices
            .shape()
            .iter()
            .copied()
            .chain([self.shape()[1]])
            .collect();
        rows.reshape_to(&shape)
    }

    /// `out[i][j] = self[index[i][j]][j]` along dimension 0, and so on for other dimensions (`torch.gather`).
    #[track_caller]
    pub fn gather(&self, dim: isize, indices: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("gather", dim, self.ndim())?;
        if self.ndim() == 0 {
            return self
                .unsqueeze(0)?
                .gather(0, &indices.reshape(&[-1])?)?
                .reshape_to(indices.shape());
        }
        dispatch::call_one(Gather { dim }, &[self, &as_indices("gather", indices)?])
    }

    /// This tensor with rows of `source` added at `indices` of `dim` (`torch.index_add`). Deterministic.
    ///
    /// The rows of one index are summed first, in order, and their sum is added to this tensor's row; PyTorch adds one row
    /// after the other. So sums differ by rounding (a large element here takes up the sum of many small ones), and a
    /// negative zero that no row is added to becomes a positive one. [`scatter_add`](Tensor::scatter_add) and
    /// [`index_put`](Tensor::index_put) that accumulates do the same.
    #[track_caller]
    pub fn index_add(&self, dim: isize, indices: &Tensor, source: &Tensor) -> Result<Tensor> {
        let dim = resolve_dim("index_add", dim, self.ndim())?;
        if self.ndim() == 0 {
            return Err(
                Error::shape("index_add", "a zero-dim tensor has no rows to add to")
                    .with_hint("use add")
                    .with_operands(|| vec![self.operand("self")]),
            );
        }
        let fits = source.ndim() == self.ndim()
            && indices.ndim() == 1
            && (0..self.ndim()).all(|at| {
                source.shape()[at]
                    == if at == dim {
                        indices.numel()
                    } else {
                        self.shape()[at]
                    }
            });
        if !fits {
            return Err(Error::shape(
                "index_add",
                format!(
                    "expected one row of dimension {dim} per index, got {}",
                    source.shape()
                ),
            )
            .with_operands(|| {
                vec![
                    self.operand("self"),
                    indices.operand("indices"),
                    source.operand("source"),
                ]
            }));
        }
        let op = IndexAdd {
            dim,
            size: self.shape()[dim],
        };
        self.plus_scattered(op, source, &as_indices("index_add", indices)?)
    }

    /// This tensor plus what `op` makes of `source`, which has its dtype. Whole numbers are added as i64,
    /// 16-bit floats as f32, rounded once.
    #[track_caller]
    pub(super) fn plus_scattered(
        &self,
        op: impl Op,
        source: &Tensor,
        indices: &Tensor,
    ) -> Result<Tensor> {
        let dtype = self.dtype();
        if source.dtype() != dtype {
            let what = format!("expected a source of {dtype}, got {}", source.dtype());
            return Err(Error::dtype(op.name(), what)
                .with_hint("cast it first with to_dtype")
                .with_operands(|| vec![self.operand("self"), source.operand("source")]));
        }
        let wide = match dtype {
            dtype if dtype.is_half() => DType::F32,
            dtype if dtype.is_floating_point() || !dtype.is_computable() => dtype,
            _ => DType::I64,
        };
        if wide == dtype {
            return self.add(&dispatch::call_one(op, &[source, indices])?);
        }
        let sums = dispatch::call_one(op, &[&source.to_dtype(wide)?, indices])?;
        self.to_dtype(wide)?.add(&sums)?.to_dtype(dtype)
    }

    /// Tensors one after the other along `dim` (`torch.cat`), in their common dtype.
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::argument("cat", "expected at least one tensor"));
        };
        if let Some(place) = tensors.iter().position(|tensor| tensor.ndim() == 0) {
            let what = format!("zero-dim tensors can't be joined, number {place} is one");
            return Err(Error::shape("cat", what).with_hint("use stack"));
        }
        let common = tensors.iter().try_fold(first.dtype(), |dtype, tensor| {
            fireclay_core::promote_types(dtype, tensor.dtype()).ok_or_else(|| {
                Error::dtype(
                    "cat",
                    format!("{dtype} and {} have no common dtype", tensor.dtype()),
                )
            })
        })?;
        // An empty vector joins anything, and only its dtype counts: PyTorch's oldest rule.
        let is_nothing = |tensor: &Tensor| tensor.shape()[..] == [0];
        let joins_many = (tensors.iter()).any(|x| x.ndim() != 1 && !is_nothing(x));
        let rest: SmallVec<[&Tensor; 4]> = (tensors.iter().copied())
            .filter(|tensor| !(joins_many && is_nothing(tensor)))
            .collect();
        let dim = resolve_dim("cat", dim, rest[0].ndim())?;
        if rest.iter().all(|tensor| tensor.dtype() == common) {
            return dispatch::call_one(Cat { dim }, &rest);
        }
        let cast: Vec<Tensor> = rest
            .iter()
            .map(|tensor| tensor.to_dtype(common))
            .collect::<Result<_>>()?;
        let cast: SmallVec<[&Tensor; 4]> = cast.iter().collect();
        dispatch::call_one(Cat { dim }, &cast)
    }

    /// Tensors of one shape joined along a new dimension `dim` (`torch.stack`).
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        let rows: Vec<Tensor> = tensors
            .iter()
            .map(|tensor| tensor.unsqueeze(dim))
            .collect::<Result<_>>()?;
        let rows: SmallVec<[&Tensor; 4]> = rows.iter().collect();
        Tensor::cat(&rows, dim)
    }
}
