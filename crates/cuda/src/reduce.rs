//! Reductions over the middle dimension of a contiguous `[outer, reduce, inner]` view, in the host's order, to the bit.
//!
//! Rows are cut into blocks of 4096 elements; in a block, element `i` goes to thread `i % 64`, and the threads' results are
//! combined as a tree. Columns are cut into blocks of 64 rows, combined from the first to the last; few columns are taken
//! side by side as wide rows. Blocks are combined pairwise. All of it depends on the shape alone.

mod text;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fireclay_core::pointwise::Class;
use fireclay_core::{Error, Result};

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Purpose};
use crate::module::{Argument, Kernel, Module};
use crate::stream::Stream;
use text::THREADS;
pub(crate) use text::{BLOCK, LANES, ROWS_PER_BLOCK};

/// Rows of a column that make a block.
const ROWS: usize = 64;
/// Rows with fewer columns than this are taken side by side.
const NARROW: usize = 64;

/// What elements are combined with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduction {
    /// Their sum. Whole numbers wrap around.
    Sum,
    /// The largest; NaN if any is.
    Max,
    /// The smallest; NaN if any is.
    Min,
}

/// The shape of what is reduced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// The product of the dimensions before the reduced ones.
    pub outer: usize,
    /// The product of the reduced ones.
    pub reduce: usize,
    /// The product of those after them.
    pub inner: usize,
}

/// Puts a reduction into a stream's queue. Elements at `from` and results at `to` are of the class's own type; floating
/// results are divided by `divisor`, if there is one.
///
/// # Errors
/// If memory for partial results can't be had or a kernel can't be launched.
///
/// # Safety
/// `from` holds the view's elements and `to` has room for `outer * inner` results, on the stream's device, until the stream
/// has come past this work; they don't overlap. No dimension is 0.
pub unsafe fn reduce(
    stream: &Stream,
    name: &'static str,
    (class, reduction): (Class, Reduction),
    view: View,
    (from, to): (u64, u64),
    divisor: Option<f64>,
) -> Result<()> {
    let launch = Launch::new(stream, name, (class, reduction), divisor)?;
    let size = if class == Class::F32 { 4 } else { 8 };
    let scratch = |count: usize| {
        let bytes = count.checked_mul(size);
        let bytes = bytes.ok_or_else(|| Error::argument(name, "too many partial results"))?;
        DeviceBuffer::allocate(stream, bytes, Purpose::Workspaces)
    };
    let View {
        outer,
        reduce,
        inner,
    } = view;
    if inner == 1 {
        let blocks = reduce.div_ceil(BLOCK);
        let total = outer * blocks;
        let rows = |to: u64, last: bool| {
            let arguments = [from, to, reduce as u64, blocks as u64, total as u64];
            let grid = total.div_ceil(ROWS_PER_BLOCK);
            // SAFETY: the caller's elements; `to` has room for a result of each block.
            unsafe { launch.run(&launch.kernels.rows, grid, &arguments, last, total) }
        };
        if blocks == 1 {
            return rows(to, true);
        }
        let partial = scratch(total)?;
        rows(partial.address(), false)?;
        let arguments = [partial.address(), to, blocks as u64, 1, 1, blocks as u64];
        // SAFETY: the partial results, `blocks` of each row.
        return unsafe { launch.run(&launch.kernels.tree, outer, &arguments, true, total) };
    }
    let side_by_side = (NARROW / inner).clamp(1, reduce);
    let (width, wide_rows) = (inner * side_by_side, reduce / side_by_side);
    let blocks = wide_rows.div_ceil(ROWS);
    let rest = (reduce % side_by_side) * inner;
    let total = outer * blocks * width;
    let columns = |to: u64, last: bool| {
        let numbers = [reduce * inner, width, wide_rows, blocks, rest, total];
        let mut arguments = vec![from, to];
        arguments.extend(numbers.map(|number| number as u64));
        // SAFETY: the caller's elements; `to` has room for a result of each column of each block.
        unsafe {
            launch.run(
                &launch.kernels.columns,
                total.div_ceil(THREADS),
                &arguments,
                last,
                total,
            )
        }
    };
    if blocks == 1 && side_by_side == 1 {
        return columns(to, true);
    }
    let partial = scratch(total)?;
    columns(partial.address(), false)?;
    let address = partial.address();
    let group = (blocks * width) as u64;
    if side_by_side == 1 {
        let arguments = [
            address,
            to,
            blocks as u64,
            width as u64,
            width as u64,
            group,
        ];
        // SAFETY: the partial results, `blocks` of each column.
        return unsafe { launch.run(&launch.kernels.tree, outer * width, &arguments, true, total) };
    }
    // First the blocks of each column of the wide rows, then the columns of equal index.
    let wide = if blocks == 1 {
        None
    } else {
        let wide = scratch(outer * width)?;
        let arguments = [
            address,
            wide.address(),
            blocks as u64,
            width as u64,
            width as u64,
            group,
        ];
        // SAFETY: as above; `wide` has room for a result of each column.
        unsafe {
            launch.run(
                &launch.kernels.tree,
                outer * width,
                &arguments,
                false,
                total,
            )?
        };
        Some(wide)
    };
    let address = wide.as_ref().map_or(address, DeviceBuffer::address);
    let (count, stride) = (side_by_side as u64, inner as u64);
    let arguments = [address, to, count, stride, inner as u64, width as u64];
    // SAFETY: one number of each column of the wide rows.
    unsafe {
        launch.run(
            &launch.kernels.tree,
            outer * inner,
            &arguments,
            true,
            outer * width,
        )
    }
}

/// Combines the `count` numbers of the blocks of one row, at `from`, which is written over; the result goes to `to`, divided by
/// `divisor` if there is one.
///
/// # Errors
/// If the kernel can't be launched.
///
/// # Safety
/// As for [`reduce`].
pub(crate) unsafe fn finish_row(
    stream: &Stream,
    name: &'static str,
    (class, reduction): (Class, Reduction),
    (from, to): (u64, u64),
    count: usize,
    divisor: Option<f64>,
) -> Result<()> {
    let launch = Launch::new(stream, name, (class, reduction), divisor)?;
    let arguments = [from, to, count as u64, 1, 1, count as u64];
    // SAFETY: the caller's numbers, and room for one result.
    unsafe { launch.run(&launch.kernels.tree, 1, &arguments, true, count) }
}

struct Launch<'a> {
    stream: &'a Stream,
    name: &'static str,
    kernels: Arc<Kernels>,
    class: Class,
    divisor: Option<f64>,
}

impl<'a> Launch<'a> {
    fn new(
        stream: &'a Stream,
        name: &'static str,
        (class, reduction): (Class, Reduction),
        divisor: Option<f64>,
    ) -> Result<Launch<'a>> {
        Ok(Launch {
            stream,
            name,
            kernels: kernels(stream.gpu(), class, reduction)?,
            class,
            divisor,
        })
    }

    /// # Safety
    /// The arguments are the kernel's but for the last two, and their memory is as [`reduce`] asks.
    unsafe fn run(
        &self,
        kernel: &Kernel,
        blocks: usize,
        arguments: &[u64],
        last: bool,
        elements: usize,
    ) -> Result<()> {
        let divisor = self.divisor.filter(|_| last);
        let mut all: Vec<Argument<'_>> = arguments.iter().copied().map(Argument::U64).collect();
        all.push(Argument::U32(u32::from(divisor.is_some())));
        let divisor = divisor.unwrap_or(1.0);
        all.push(match self.class {
            Class::F32 => Argument::F32(divisor as f32),
            Class::F64 => Argument::F64(divisor),
            Class::I64 => Argument::U64(1),
        });
        let shape = [blocks, THREADS, 0];
        // SAFETY: the caller's promise.
        unsafe { kernel.launch(self.stream, shape, &all, self.name, elements as u64) }
    }
}

/// The kernels of a type and an operation, compiled once for each device.
struct Kernels {
    rows: Kernel,
    columns: Kernel,
    tree: Kernel,
}

fn kernels(gpu: &'static Gpu, class: Class, reduction: Reduction) -> Result<Arc<Kernels>> {
    type Key = (usize, Class, Reduction);
    static KNOWN: Mutex<Option<HashMap<Key, Arc<Kernels>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let key = (gpu.ordinal(), class, reduction);
    if let Some(kernels) = known.get(&key) {
        return Ok(Arc::clone(kernels));
    }
    let module = Module::from_ptx(gpu, &text::module(class, reduction))?;
    let kernels = Arc::new(Kernels {
        rows: module.kernel(c"rows")?,
        columns: module.kernel(c"columns")?,
        tree: module.kernel(c"tree")?,
    });
    known.insert(key, Arc::clone(&kernels));
    Ok(kernels)
}
