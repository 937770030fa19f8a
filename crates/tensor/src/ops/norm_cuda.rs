//! How the kernels of `norm.cu` are started: which of them fits the rows, and what they keep in between.

use fireclay_core::{DType, Result};
use fireclay_cpu::norm::{Channels, ROW_GROUP, Rows, SUM_GROUP};
use fireclay_cuda::{Argument, DeviceBuffer, Library};

use super::float::kernel_of;
use super::row_kernels::{BLOCK_THREADS, WARP, computed, rows_in_shared};
use crate::cuda_call::{CudaCall, address};

/// The kernels of `norm.cu`.
static KERNELS: Library = fireclay_cuda::library!("norm");

/// Threads of a block of the gradient of which each warp works on one row.
const ROW_THREADS: usize = 256;
/// Threads of a block that works on one wide row at a time.
const WIDE_THREADS: usize = 1024;
/// Rows in flight with which a device is busy if a warp works on each: with more, a warp takes several.
const ROWS_IN_FLIGHT: usize = 4096;
/// Rows in flight with which a device is busy if a block works on each: with more, a block takes several, and reads weights
/// once for them.
const BLOCKS_IN_FLIGHT: usize = 512;
/// Blocks that there should be before a block gets further warps, which share weights.
const FEWEST_BLOCKS: usize = 32;
/// An address of nothing.
const NONE: Argument<'static> = Argument::Address(0);

/// Who works on a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// A warp, which keeps it in registers.
    Warp,
    /// The same, for rows whose weights differ.
    WarpOfGroups,
    /// A warp with more registers, or a block with fewer threads.
    Medium,
    /// A block, which keeps it in shared memory.
    Wide,
    /// A block, for rows of any length.
    Long,
}

impl Worker {
    /// As the kernels' `short_pairs`, `medium_pairs` and `thread_pairs` say.
    fn of(sizes: Rows, dtype: DType) -> Worker {
        let most = match dtype {
            DType::F64 => [128, 256, 2048],
            _ => [192, 768, 4096],
        };
        let by_column = sizes.groups == 1 && sizes.plane == 1;
        match Worker::within(sizes.cols, most) {
            Worker::Warp if !by_column => Worker::WarpOfGroups,
            Worker::Medium if !by_column => Worker::Wide,
            worker => worker,
        }
    }

    /// As the kernels' `grad_lane_pairs` and `thread_pairs` say.
    fn of_gradient(cols: usize, dtype: DType) -> Worker {
        let most = match dtype {
            DType::F64 => [64, 1024, 2048],
            _ => [128, 1024, 4096],
        };
        Worker::within(cols, most)
    }

    fn within(cols: usize, [warp, medium, wide]: [usize; 3]) -> Worker {
        match cols {
            cols if cols <= warp => Worker::Warp,
            cols if cols <= medium => Worker::Medium,
            cols if cols <= wide => Worker::Wide,
            _ => Worker::Long,
        }
    }
}

fn numbers(sizes: Rows, per: usize, staged: bool) -> [i64; 8] {
    let Rows {
        rows,
        cols,
        centered,
        groups,
        plane,
    } = sizes;
    let (centered, staged) = (usize::from(centered), usize::from(staged));
    [rows, cols, groups, plane.max(1), per, centered, staged, 0].map(|number| number as i64)
}

/// Weight and bias, each an input behind x where `parameters` says so.
fn weight_and_bias(call: &CudaCall<'_>, parameters: [bool; 2]) -> [Argument<'static>; 2] {
    let mut next = 1;
    parameters.map(|given| {
        next += usize::from(given);
        if given { call.input(next - 1) } else { NONE }
    })
}

/// Inputs: x, then weight and bias where `parameters` says so; outputs: y, reciprocal deviation, mean if centred.
pub(super) fn rows(
    call: &CudaCall<'_>,
    sizes: Rows,
    eps: f64,
    parameters: [bool; 2],
) -> Result<()> {
    if sizes.cols == 0 {
        return Ok(());
    }
    let dtype = call.dtype(0);
    let worker = Worker::of(sizes, dtype);
    let kernel = match worker {
        Worker::Warp => kernel_of!(call, dtype, "norm_short"),
        Worker::WarpOfGroups => kernel_of!(call, dtype, "norm_groups"),
        Worker::Medium => kernel_of!(call, dtype, "norm_medium"),
        Worker::Wide => kernel_of!(call, dtype, "norm_wide"),
        Worker::Long => kernel_of!(call, dtype, "norm_long"),
    };
    let (per, threads, rows_of_block) = match worker {
        Worker::Long => (1, BLOCK_THREADS, 1),
        Worker::Wide => {
            let per = (sizes.rows / BLOCKS_IN_FLIGHT).clamp(1, ROW_GROUP);
            (per, WIDE_THREADS, per)
        }
        _ => {
            let per = (sizes.rows / ROWS_IN_FLIGHT).clamp(1, ROW_GROUP);
            let warps = (sizes.rows / per / FEWEST_BLOCKS).clamp(1, BLOCK_THREADS / WARP);
            (per, warps * WARP, warps * per)
        }
    };
    let (staged, shared) = match worker {
        Worker::Warp | Worker::Medium => (0, 2 * sizes.cols * dtype.size()),
        Worker::WarpOfGroups => (0, 0),
        _ => rows_in_shared(sizes.cols, dtype, 1),
    };
    let numbers = numbers(sizes, per, staged > 0);
    let [weight, bias] = weight_and_bias(call, parameters);
    let mean = if sizes.centered { call.output(2) } else { NONE };
    let arguments = [
        call.input(0),
        weight,
        bias,
        call.output(0),
        mean,
        call.output(1),
        Argument::Numbers(&numbers),
        Argument::F64(eps),
    ];
    let shape = [sizes.rows.div_ceil(rows_of_block), threads, shared];
    // SAFETY: the kernels' parameters, contiguous, of the lengths that the sizes say; shared memory for a row, or for weight and
    // bias, where it is used.
    unsafe { call.launch_with_shared(&KERNELS, kernel, shape, &arguments) }
}

/// Inputs: x, gradient, reciprocal deviation, mean if centred, maybe weight; outputs: gradients of x, weight, bias.
pub(super) fn row_gradients(
    call: &CudaCall<'_>,
    sizes: Rows,
    [weighted, biased]: [bool; 2],
) -> Result<()> {
    let Rows { rows, cols, .. } = sizes;
    let dtype = call.dtype(0);
    let (x, grad, rstd) = (call.input(0), call.input(1), call.input(2));
    let mean = if sizes.centered { call.input(3) } else { NONE };
    let weight = if weighted {
        call.input(call.inputs() - 1)
    } else {
        NONE
    };
    let of_weight = if weighted { call.output(1) } else { NONE };
    let of_bias = match biased {
        true => call.output(1 + usize::from(weighted)),
        false => NONE,
    };
    let by_column = (weighted || biased) && sizes.groups == 1 && sizes.plane == 1;
    let groups = rows.div_ceil(ROW_GROUP);
    let partial = match by_column {
        true => Some(scratch(call, groups * 2 * cols, computed(dtype))?),
        false => None,
    };
    let to_partial = partial.as_ref().map_or(NONE, address);
    let worker = Worker::of_gradient(cols, dtype);
    let in_flight = match worker {
        Worker::Warp => ROWS_IN_FLIGHT,
        _ => BLOCKS_IN_FLIGHT,
    };
    let per = match (worker, by_column) {
        (Worker::Long, _) => 1,
        (_, true) => ROW_GROUP,
        (_, false) => (rows / in_flight).clamp(1, ROW_GROUP),
    };
    let numbers = numbers(sizes, per, false);
    let sizes_argument = Argument::Numbers(&numbers);
    let workers = if cols == 0 { 0 } else { rows.div_ceil(per) };
    let mut arguments = vec![
        x,
        grad,
        weight,
        mean,
        rstd,
        call.output(0),
        to_partial,
        sizes_argument,
    ];
    let two_rows = 2 * cols * computed(dtype).size();
    let (kernel, shape) = match worker {
        Worker::Warp | Worker::WarpOfGroups => {
            let blocks = workers.div_ceil(ROW_THREADS / WARP);
            let kernel = kernel_of!(call, dtype, "norm_grad_rows");
            (kernel, [blocks, ROW_THREADS, 0])
        }
        Worker::Medium => {
            let kernel = kernel_of!(call, dtype, "norm_grad_medium");
            (kernel, [workers, BLOCK_THREADS, two_rows])
        }
        Worker::Wide => {
            let kernel = kernel_of!(call, dtype, "norm_grad_wide");
            (kernel, [workers, WIDE_THREADS, two_rows])
        }
        Worker::Long => {
            arguments.remove(6);
            let kernel = kernel_of!(call, dtype, "norm_grad_long");
            (kernel, [workers, BLOCK_THREADS, 0])
        }
    };
    // SAFETY: as in `rows`, of shared memory for two rows; there is a partial sum for each ROW_GROUP rows, which a worker takes then.
    unsafe { call.launch_with_shared(&KERNELS, kernel, shape, &arguments)? };
    if let Some(partial) = partial {
        if worker == Worker::Long {
            let kernel = kernel_of!(call, dtype, "norm_grad_columns");
            let arguments = [x, grad, mean, rstd, to_partial, sizes_argument];
            // SAFETY: the kernel's parameters; a thread for each column of each group.
            unsafe { call.launch_threads(&KERNELS, kernel, groups * cols, &arguments)? };
        }
        return add_up(call, partial, groups, cols, [of_weight, of_bias]);
    }
    if !weighted && !biased {
        return Ok(());
    }
    let channels = Channels {
        batch: rows / sizes.groups,
        channels: call.output_layout(1).numel(),
        plane: sizes.plane,
    };
    let outputs = [of_weight, of_bias, NONE];
    channel_sums(call, channels, sizes.groups, [x, grad, mean, rstd], outputs)
}

/// Adds up partial sums of weight's and bias's gradients, in the order of `sum_in_groups`.
fn add_up(
    call: &CudaCall<'_>,
    mut partial: DeviceBuffer,
    mut count: usize,
    cols: usize,
    outputs: [Argument<'static>; 2],
) -> Result<()> {
    let dtype = call.dtype(0);
    let width = 2 * cols;
    while count > SUM_GROUP {
        let groups = count.div_ceil(SUM_GROUP);
        let sums = scratch(call, groups * width, computed(dtype))?;
        let kernel = kernel_of!(call, computed(dtype), "norm_sums", [F32 "f32", F64 "f64"]);
        let [rows, columns] = [count, width].map(|number| Argument::U64(number as u64));
        let arguments = [address(&partial), address(&sums), rows, columns];
        // SAFETY: the kernel's parameters; a thread for each column of each group.
        unsafe { call.launch_threads(&KERNELS, kernel, groups * width, &arguments)? };
        (partial, count) = (sums, groups);
    }
    let kernel = kernel_of!(call, dtype, "norm_sums_last");
    let [of_weight, of_bias] = outputs;
    let [rows, columns] = [count, cols].map(|number| Argument::U64(number as u64));
    let arguments = [address(&partial), of_weight, of_bias, rows, columns];
    // SAFETY: the kernel's parameters; weight and bias have `cols` numbers.
    unsafe { call.launch_threads(&KERNELS, kernel, width, &arguments) }
}

/// Batch norm in training. Inputs: x, then weight and bias where `parameters` says so; outputs: y, mean, reciprocal
/// deviation, variance.
pub(super) fn channels(
    call: &CudaCall<'_>,
    sizes: Channels,
    eps: f64,
    parameters: [bool; 2],
) -> Result<()> {
    let dtype = call.dtype(0);
    let numbers = channel_numbers(sizes, 0);
    let sizes_argument = Argument::Numbers(&numbers);
    let tables = tables(call, sizes)?;
    let [sums, squares] = tables.each_ref().map(address);
    let kernel = match sizes.is_narrow() {
        true => kernel_of!(call, dtype, "channel_moments_narrow"),
        false => kernel_of!(call, dtype, "channel_moments"),
    };
    // SAFETY: the kernels' parameters; the tables have a place for each chunk of each channel.
    unsafe {
        by_chunks(
            call,
            kernel,
            sizes,
            &[call.input(0), sums, squares, sizes_argument],
        )?
    };
    let (mean, rstd) = (call.output(1), call.output(2));
    let kernel = kernel_of!(call, computed(dtype), "channel_statistics", [F32 "f32", F64 "f64"]);
    let arguments = [
        sums,
        squares,
        mean,
        rstd,
        call.output(3),
        sizes_argument,
        Argument::F64(eps),
    ];
    // SAFETY: the kernel's parameters; there is a statistic of each kind for each channel.
    unsafe { call.launch_rows(&KERNELS, kernel, sizes.channels, &arguments)? };
    let [weight, bias] = weight_and_bias(call, parameters);
    let kernel = match sizes.is_narrow() {
        true => kernel_of!(call, dtype, "channel_norm_narrow"),
        false => kernel_of!(call, dtype, "channel_norm"),
    };
    let arguments = [
        call.input(0),
        weight,
        bias,
        mean,
        rstd,
        call.output(0),
        sizes_argument,
    ];
    // SAFETY: as above; weight and bias have a number for each channel.
    unsafe { by_elements(call, kernel, sizes, &arguments) }
}

/// Inputs: x, gradient, mean, reciprocal deviation, maybe weight; outputs: gradients of x, weight, bias.
pub(super) fn channel_gradients(call: &CudaCall<'_>, sizes: Channels) -> Result<()> {
    let dtype = call.dtype(0);
    let weight = if call.inputs() > 4 {
        call.input(4)
    } else {
        NONE
    };
    let [x, grad, mean, rstd] = [0, 1, 2, 3].map(|index| call.input(index));
    let averages = scratch(call, 2 * sizes.channels, computed(dtype))?;
    let outputs = [call.output(1), call.output(2), address(&averages)];
    channel_sums(call, sizes, 0, [x, grad, mean, rstd], outputs)?;
    let kernel = match sizes.is_narrow() {
        true => kernel_of!(call, dtype, "channel_grad_x_narrow"),
        false => kernel_of!(call, dtype, "channel_grad_x"),
    };
    let numbers = channel_numbers(sizes, 0);
    let out = call.output(0);
    let arguments = [
        x,
        grad,
        weight,
        mean,
        rstd,
        address(&averages),
        out,
        Argument::Numbers(&numbers),
    ];
    // SAFETY: the kernels' parameters; two averages for each channel.
    unsafe { by_elements(call, kernel, sizes, &arguments) }
}

/// The sums of each channel's gradients into those of weight and bias, and the averages; any may be nothing.
fn channel_sums(
    call: &CudaCall<'_>,
    sizes: Channels,
    groups: usize,
    [x, grad, mean, rstd]: [Argument<'static>; 4],
    [of_weight, of_bias, averages]: [Argument<'static>; 3],
) -> Result<()> {
    let dtype = call.dtype(0);
    let numbers = channel_numbers(sizes, groups);
    let sizes_argument = Argument::Numbers(&numbers);
    let tables = tables(call, sizes)?;
    let [totals, dots] = tables.each_ref().map(address);
    let kernel = match sizes.is_narrow() {
        true => kernel_of!(call, dtype, "channel_grads_narrow"),
        false => kernel_of!(call, dtype, "channel_grads"),
    };
    let arguments = [x, grad, mean, rstd, totals, dots, sizes_argument];
    // SAFETY: the kernels' parameters; the tables have a place for each chunk of each channel.
    unsafe { by_chunks(call, kernel, sizes, &arguments)? };
    let kernel = kernel_of!(call, dtype, "channel_grad_sums");
    let arguments = [totals, dots, of_weight, of_bias, averages, sizes_argument];
    // SAFETY: the kernel's parameters; a number of each result for each channel.
    unsafe { call.launch_rows(&KERNELS, kernel, sizes.channels, &arguments) }
}

/// Starts a kernel that works on a chunk with a warp, or on one of narrow planes with a thread.
///
/// # Safety
/// As for [`CudaCall::launch`].
unsafe fn by_chunks(
    call: &CudaCall<'_>,
    kernel: &'static std::ffi::CStr,
    sizes: Channels,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let count = sizes.channels * sizes.chunks();
    // SAFETY: the caller's promise.
    unsafe {
        match sizes.is_narrow() {
            true => call.launch_threads(&KERNELS, kernel, count, arguments),
            false => call.launch_rows(&KERNELS, kernel, count, arguments),
        }
    }
}

/// Starts a kernel that works on a piece of a plane with a warp, or on a number of narrow planes with a thread.
///
/// # Safety
/// As for [`CudaCall::launch`].
unsafe fn by_elements(
    call: &CudaCall<'_>,
    kernel: &'static std::ffi::CStr,
    sizes: Channels,
    arguments: &[Argument<'_>],
) -> Result<()> {
    let planes = sizes.batch * sizes.channels;
    // SAFETY: the caller's promise.
    unsafe {
        match sizes.is_narrow() {
            true => call.launch_threads(&KERNELS, kernel, planes * sizes.plane, arguments),
            false => call.launch_rows(&KERNELS, kernel, planes * sizes.pieces(), arguments),
        }
    }
}

fn channel_numbers(sizes: Channels, groups: usize) -> [i64; 8] {
    let Channels {
        batch,
        channels,
        plane,
    } = sizes;
    let pieces = if sizes.is_narrow() { 0 } else { sizes.pieces() };
    [batch, channels, plane, pieces, groups, 0, 0, 0].map(|number| number as i64)
}

/// Two tables of a double for each chunk of each channel.
fn tables(call: &CudaCall<'_>, sizes: Channels) -> Result<[DeviceBuffer; 2]> {
    let count = sizes.channels * sizes.chunks();
    Ok([
        scratch(call, count, DType::F64)?,
        scratch(call, count, DType::F64)?,
    ])
}

/// Memory for numbers in between, at least for one.
fn scratch(call: &CudaCall<'_>, count: usize, dtype: DType) -> Result<DeviceBuffer> {
    call.scratch(count.max(1), dtype)
}
