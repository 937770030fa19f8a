//! Sorting: `sort`, `argsort`, `topk`, and extrema with their places: `max_dim`, `min_dim`.

use std::ffi::CStr;

use fireclay_core::{DType, Error, Result, Scalar, resolve_dim};
use fireclay_cuda::{Argument, DeviceBuffer, Library};
use smallvec::smallvec;

use super::float::kernel_of;
use super::index::{by_size, match_number};
use crate::autograd::Backward;
use crate::cuda_call::{CudaCall, address};
use crate::dispatch;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// The kernels of `sort.cu`.
static KERNELS: Library = fireclay_cuda::library!("sort");

/// Elements that a block sorts, as in `sort.cu`.
const CHUNK: usize = 1024;
/// Elements that a block merges, as in `sort.cu`, and its threads.
const PIECE: usize = 1024;
const MERGE_THREADS: usize = 256;

/// The first elements of each sorted row of the last dimension; outputs: values, places.
#[derive(Clone, Copy, Debug)]
struct Sort {
    /// How many of a row are wanted; all if None.
    keep: Option<usize>,
    descending: bool,
}

impl Sort {
    fn sizes(self, shape: &[usize]) -> [usize; 3] {
        let cols = shape[shape.len() - 1];
        let rows = shape[..shape.len() - 1].iter().product();
        [rows, cols, self.keep.unwrap_or(cols)]
    }
}

impl Op for Sort {
    fn name(&self) -> &'static str {
        if self.keep.is_some() { "topk" } else { "sort" }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let dtype = inputs[0].dtype;
        if !dtype.is_computable() {
            let what = format!("{dtype} is stored only, no op computes with it");
            return Err(Error::dtype(self.name(), what));
        }
        let [_, cols, keep] = self.sizes(inputs[0].shape());
        if u32::try_from(cols).is_err() {
            let what =
                format!("rows of {cols} elements are longer than the 4294967295 that are sorted");
            return Err(Error::argument(self.name(), what));
        }
        if keep > cols {
            let what = format!("the {keep} first of {cols} elements are more than there are");
            return Err(Error::argument(self.name(), what)
                .with_hint("k is at most the size of the dimension"));
        }
        let mut shape = inputs[0].shape().clone();
        let last = shape.ndim() - 1;
        shape.sizes_mut()[last] = keep;
        Ok(smallvec![
            OutputMeta::contiguous(shape.clone(), dtype),
            OutputMeta::contiguous(shape, DType::I64)
        ])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let [_, cols, keep] = self.sizes(call.layout(0).shape());
        match_number!(self.name(), call.dtype(0), T => {
            let indices = call.output::<i64>(1);
            fireclay_cpu::sort::sort_rows::<T>(call.input(0), cols, keep, self.descending, call.output(0), indices);
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let [rows, cols, keep] = self.sizes(call.layout(0).shape());
        if rows * keep == 0 {
            return Ok(());
        }
        let dtype = call.dtype(0);
        macro_rules! kernel {
            ($name:literal) => {
                kernel_of!(
                    call,
                    dtype,
                    $name,
                    [F32 "f32", F64 "f64", BF16 "bf16", F16 "f16", I64 "i64", I32 "i32", I16 "i16", I8 "i8", U8 "u8", Bool "u8"]
                )
            };
        }
        let kernels = [kernel!("sort_chunks"), kernel!("sort_merge")];
        let outputs = [call.output(0), call.output(1)];
        let from = (call.input(0), dtype);
        let sizes = [rows, cols, keep];
        sort_rows(&call, kernels, from, sizes, self.descending, Some(outputs)).map(drop)
    }

    fn saves(&self) -> Saves {
        Saves::NONE.and_outputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let Some(grad) = context.grad(0) else {
            return Ok(smallvec![None]);
        };
        let shape = context.input_shape(0);
        let cols = shape[shape.ndim() - 1];
        let grad = dispatch::call_one(Unsort { cols }, &[grad, &context.output(1)?])?;
        Ok(smallvec![Some(grad)])
    }
}

/// The places of `count` numbers at `from`, which are i64, in their order, as u32.
pub(super) fn sorted_places(
    call: &CudaCall<'_>,
    from: Argument<'static>,
    count: usize,
) -> Result<DeviceBuffer> {
    let kernels = [c"sort_chunks_i64", c"sort_merge_i64"];
    let sizes = [1, count, count];
    let places = sort_rows(call, kernels, (from, DType::I64), sizes, false, None)?;
    Ok(places.expect("no outputs were given"))
}

/// Where a pass writes: values, places as u32 and as i64, of which one is null; and the memory that was made for it.
struct Target {
    arguments: [Argument<'static>; 3],
    memory: Option<[DeviceBuffer; 2]>,
}

/// Sorts `rows` of `cols` numbers, of which the `keep` first are wanted; `kernels`, those that sort chunks and that merge, are of
/// their dtype. They go to `outputs`, values and indices, if there are some; else the places are returned, as u32.
fn sort_rows(
    call: &CudaCall<'_>,
    kernels: [&'static CStr; 2],
    (from, dtype): (Argument<'static>, DType),
    [rows, cols, keep]: [usize; 3],
    descending: bool,
    outputs: Option<[Argument<'static>; 2]>,
) -> Result<Option<DeviceBuffer>> {
    const NONE: Argument<'static> = Argument::Address(0);
    let descending = Argument::U32(u32::from(descending));
    // The shape of the sorted runs in memory: how many a row has, the places of each, the elements of the last.
    let mut runs = cols.div_ceil(CHUNK);
    let mut run = keep.min(CHUNK);
    let mut last = keep.min(cols - (runs - 1) * CHUNK);
    let numbers = |runs: usize, run: usize, last: usize| {
        [rows, runs, run, last, keep, cols, 0, 0].map(|number| number as i64)
    };
    let target = |runs: usize, run: usize| -> Result<Target> {
        if let (1, Some([values, indices])) = (runs, outputs) {
            let (arguments, memory) = ([values, NONE, indices], None);
            return Ok(Target { arguments, memory });
        }
        let count = rows * runs * run;
        let memory = [
            call.scratch(count, dtype)?,
            call.scratch(count, DType::I32)?,
        ];
        Ok(Target {
            arguments: [address(&memory[0]), address(&memory[1]), NONE],
            memory: Some(memory),
        })
    };
    let mut sorted = target(runs, run)?;
    let threads = cols.min(CHUNK).next_power_of_two().max(64) / 2;
    let [values, places, indices] = sorted.arguments;
    let shape = numbers(runs, run, last);
    let arguments = [
        from,
        values,
        places,
        indices,
        Argument::Numbers(&shape),
        descending,
    ];
    // SAFETY: the kernel's parameters; there is room for the runs, and a block's threads are half of what it sorts.
    unsafe { call.launch(&KERNELS, kernels[0], [rows * runs, threads], &arguments)? };
    while runs > 1 {
        let to_run = keep.min(2 * run);
        let to = target(runs.div_ceil(2), to_run)?;
        let [values, places, _] = sorted.arguments;
        let [to_values, to_places, to_indices] = to.arguments;
        let shape = numbers(runs, run, last);
        let arguments = [
            values,
            places,
            to_values,
            to_places,
            to_indices,
            Argument::Numbers(&shape),
            Argument::U64(to_run as u64),
            descending,
        ];
        let blocks = rows * runs.div_ceil(2) * to_run.div_ceil(PIECE);
        // SAFETY: the kernel's parameters; there is room for the merged runs.
        unsafe { call.launch(&KERNELS, kernels[1], [blocks, MERGE_THREADS], &arguments)? };
        let alone = if runs.is_multiple_of(2) { run } else { 0 };
        last = to_run.min(alone + last);
        sorted = to;
        (runs, run) = (runs.div_ceil(2), to_run);
    }
    Ok(sorted.memory.map(|[_, places]| places))
}

/// Rows of zeros with elements at the places of the last dimension that indices name, of which no two of a row are equal; inputs:
/// elements, places. The reverse of a sort.
#[derive(Clone, Copy, Debug)]
struct Unsort {
    cols: usize,
}

impl Op for Unsort {
    fn name(&self) -> &'static str {
        "sort_grad"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let mut shape = inputs[0].shape().clone();
        let last = shape.ndim() - 1;
        shape.sizes_mut()[last] = self.cols;
        Ok(smallvec![OutputMeta::contiguous(shape, inputs[0].dtype)])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let keep = *call.layout(0).shape().last().expect("rows");
        match_number!(self.name(), call.dtype(0), T => {
            let out = call.output::<T>(0);
            out.fill(T::default());
            if keep > 0 {
                let rows = call.input::<T>(0).chunks(keep).zip(call.input::<i64>(1).chunks(keep));
                for ((values, places), out) in rows.zip(out.chunks_mut(self.cols)) {
                    for (&value, &place) in values.iter().zip(places) {
                        out[place as usize] = value;
                    }
                }
            }
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.fill(Scalar::F64(0.0))?;
        let keep = *call.layout(0).shape().last().expect("rows");
        let total = call.layout(0).numel();
        let names = [c"unsort_1", c"unsort_2", c"unsort_4", c"unsort_8"];
        let mut arguments = vec![call.input(0), call.input(1), call.output(0)];
        arguments.extend([total, self.cols, keep].map(|number| Argument::U64(number as u64)));
        let kernel: &CStr = by_size(call.dtype(0), names);
        // SAFETY: the kernel's parameters; the places are those of a sort of rows of `cols`.
        unsafe { call.launch_threads(&KERNELS, kernel, total, &arguments) }
    }

    fn saves(&self) -> Saves {
        Saves::inputs(&[1])
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let grad = context.grad_output().gather(-1, &context.input(1)?)?;
        Ok(smallvec![Some(grad), None])
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let sort = |keep| Sort {
        keep,
        descending: false,
    };
    vec![
        Box::new(sort(None)),
        Box::new(sort(Some(1))),
        Box::new(Unsort { cols: 0 }),
    ]
}

impl Tensor {
    /// The elements along `dim` in order, and the index along `dim` that each had, i64 (`torch.sort`). Always stable: equal
    /// elements keep their order. NaN counts as larger than any number.
    #[track_caller]
    pub fn sort(&self, dim: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let op = Sort {
            keep: None,
            descending,
        };
        self.sorted(op, dim)
    }

    /// The indices along `dim` in the order of the elements, i64, stable (`torch.argsort`).
    #[track_caller]
    pub fn argsort(&self, dim: isize, descending: bool) -> Result<Tensor> {
        Ok(self.sort(dim, descending)?.1)
    }

    /// The `k` largest elements along `dim`, or the smallest, in order, and their indices (`torch.topk`). Of equal elements the
    /// first are taken.
    #[track_caller]
    pub fn topk(&self, k: usize, dim: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        let op = Sort {
            keep: Some(k),
            descending: largest,
        };
        self.sorted(op, dim)
    }

    /// The largest element along `dim` and its index, the first of equal ones; a NaN is largest (`torch.max` with `dim`). The
    /// gradient is that element's.
    #[track_caller]
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.extremum(dim, keepdim, self.ordered()?.argmax(dim, true)?)
    }

    /// The smallest element along `dim` and its index, the first of equal ones; a NaN is smallest (`torch.min` with `dim`).
    #[track_caller]
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.extremum(dim, keepdim, self.ordered()?.argmin(dim, true)?)
    }

    /// Bools as numbers.
    fn ordered(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::Bool => self.to_dtype(DType::U8),
            _ => Ok(self.clone()),
        }
    }

    #[track_caller]
    fn extremum(&self, dim: isize, keepdim: bool, indices: Tensor) -> Result<(Tensor, Tensor)> {
        let values = self.gather(dim, &indices)?;
        match keepdim || self.ndim() == 0 {
            true => Ok((values, indices)),
            false => Ok((values.squeeze(dim)?, indices.squeeze(dim)?)),
        }
    }

    #[track_caller]
    fn sorted(&self, op: Sort, dim: isize) -> Result<(Tensor, Tensor)> {
        let dim = resolve_dim(op.name(), dim, self.ndim())?;
        if self.ndim() == 0 {
            let (values, indices) = self.unsqueeze(0)?.sorted(op, 0)?;
            return match op.keep {
                Some(0) => Ok((values, indices)),
                _ => Ok((values.squeeze(0)?, indices.squeeze(0)?)),
            };
        }
        let last = dim + 1 == self.ndim();
        let turned = |tensor: &Tensor| match last {
            true => Ok(tensor.clone()),
            false => tensor.transpose(dim as isize, -1),
        };
        let outputs = dispatch::call(op, &[&turned(self)?])?;
        Ok((turned(&outputs[0])?, turned(&outputs[1])?))
    }
}
