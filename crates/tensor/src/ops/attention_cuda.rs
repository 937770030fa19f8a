//! How the kernels of `attention.cu` are started: what they are told of operands, and what stays in shared memory.

use std::ffi::CStr;

use fireclay_core::{DType, Error, Layout, Result};
use fireclay_cpu::attention::Sizes;
use fireclay_cuda::{Argument, Library};

use super::attention::sizes;
use super::float::kernel_of;
use super::row_kernels::computed;
use crate::cuda_call::{CudaCall, address};

/// The kernels of `attention.cu`.
static KERNELS: Library = fireclay_cuda::library!("attention");

/// Rows of a block's own tile, and their distance in shared memory; columns of a chunk; threads of a block: as in `attention.cu`.
const OWN: usize = 48;
const OWN_PITCH: usize = 52;
const STEP: usize = 16;
const THREADS: usize = 192;
/// Rows of the other side's tiles, and their distance in a chunk.
const OTHER: usize = 64;
const OTHER_PITCH: usize = 68;
/// Shared memory that every device gives a block.
const SHARED: usize = 48 << 10;
/// Threads of a block of the kernel that multiplies rows.
const ROW_THREADS: usize = 256;

/// What a kernel computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Result,
    OfQuery,
    OfKey,
    OfValue,
}

/// What is the same for all kernels of a call.
pub(super) struct Problem<'a, 'b> {
    pub(super) call: &'a CudaCall<'b>,
    /// The number of the mask's input.
    pub(super) mask: Option<usize>,
    pub(super) causal: bool,
    pub(super) scale: f64,
}

impl Problem<'_, '_> {
    /// Inputs: query, key, value; outputs: result, logarithms of sums.
    pub(super) fn forward(&self) -> Result<()> {
        let log_sums = self.call.output(1);
        self.start(What::Result, 0, [log_sums, NONE])
    }

    /// Inputs: query, key, value, gradient, result, logarithms of sums; outputs: gradients of query, key and value.
    pub(super) fn backward(&self) -> Result<()> {
        let call = self.call;
        let dtype = call.dtype(0);
        let log_sums = call.layout(5);
        assert!(
            log_sums.is_contiguous() && call.dtype(5) == computed(dtype),
            "logarithms of sums are as the forward pass gave them"
        );
        let rows = log_sums.numel();
        let dots = call.scratch(rows.max(1), computed(dtype))?;
        let state = [call.input(5), address(&dots)];
        if rows > 0 {
            let bytes = self.argument(&self.shared(What::OfQuery), NONE, state)?;
            let kernel = kernel_of!(call, dtype, "attention_dots");
            let shape = [rows.div_ceil(ROW_THREADS / 32), ROW_THREADS];
            // SAFETY: the kernel's only parameter is this structure; it reads the rows of gradient and result, which are as long
            // as the structure says, and writes a number for each.
            unsafe { call.launch(&KERNELS, kernel, shape, &[Argument::Bytes(&bytes)])? };
        }
        self.start(What::OfQuery, 0, state)?;
        self.start(What::OfKey, 1, state)?;
        self.start(What::OfValue, 2, state)
    }

    fn sizes(&self) -> Sizes {
        let layout = |index| self.call.layout(index);
        sizes(layout(0), layout(1), layout(2))
    }

    /// Starts a kernel that writes output `output`.
    fn start(&self, what: What, output: usize, state: [Argument<'static>; 2]) -> Result<()> {
        let call = self.call;
        let dtype = call.dtype(0);
        let sizes = self.sizes();
        let (heads, rows) = match what {
            What::Result | What::OfQuery => (sizes.heads, sizes.queries),
            What::OfKey | What::OfValue => (sizes.kv_heads, sizes.keys),
        };
        let cols = match what {
            What::Result | What::OfValue => sizes.value_width,
            What::OfQuery | What::OfKey => sizes.width,
        };
        let kernel = of_what(call, dtype, what, cols)?;
        let block_cols = if cols > 64 { 128 } else { 64 };
        // A result without columns has logarithms of sums all the same.
        let column_blocks = match what {
            What::Result => cols.div_ceil(block_cols).max(1),
            _ => cols.div_ceil(block_cols),
        };
        let blocks = [sizes.batch, heads, rows.div_ceil(OWN), column_blocks];
        let blocks = blocks
            .into_iter()
            .try_fold(1usize, |product, count| product.checked_mul(count));
        let shared = self.shared(what);
        let bytes = self.argument(&shared, call.output(output), state)?;
        let shape = [blocks.unwrap_or(usize::MAX), THREADS, shared.nbytes];
        // SAFETY: the kernels' only parameter is this structure, `Attention` of attention.cu; they read within the sizes, which
        // the operands have along these strides, and write outputs of these sizes; there is shared memory for the tiles that stay.
        unsafe { call.launch_with_shared(&KERNELS, kernel, shape, &[Argument::Bytes(&bytes)]) }
    }

    /// Which tiles of a block's own rows fit into shared memory.
    fn shared(&self, what: What) -> Shared {
        let size = computed(self.call.dtype(0)).size();
        let sizes = self.sizes();
        // Weights, a chunk of the other side, numbers of rows: as the kernels declare them.
        let declared = (OTHER * OWN_PITCH + STEP * OTHER_PITCH + 2 * OTHER) * size;
        let room = (SHARED - declared) / (OWN_PITCH * size);
        let [first, second] =
            [sizes.width, sizes.value_width].map(|cols| cols.next_multiple_of(STEP));
        let two = matches!(what, What::OfQuery | What::OfKey);
        let first_stays = first + if two { STEP } else { 0 } <= room;
        let first_rows = if first_stays { first } else { STEP };
        let second_stays = two && first_rows + second <= room;
        // Chunks of both, which are never there together, may share their place.
        let second_at = match first_stays || second_stays {
            true => first_rows,
            false => 0,
        };
        let second_rows = match (two, second_stays) {
            (false, _) => 0,
            (true, true) => second,
            (true, false) => STEP,
        };
        Shared {
            stays: [first_stays, second_stays],
            second_at,
            nbytes: first_rows.max(second_at + second_rows) * OWN_PITCH * size,
        }
    }

    /// The structure `Attention` of attention.cu.
    fn argument(
        &self,
        shared: &Shared,
        out: Argument<'static>,
        [log_sums, dots]: [Argument<'static>; 2],
    ) -> Result<Vec<u8>> {
        let call = self.call;
        let sizes = self.sizes();
        if sizes.width.max(sizes.value_width) > MOST_COLUMNS {
            let what = format!(
                "rows of {} and {} are more than the {MOST_COLUMNS} that the kernels take",
                sizes.width, sizes.value_width
            );
            return Err(Error::argument("scaled_dot_product_attention", what));
        }
        let mut numbers: Vec<u64> = Vec::with_capacity(48);
        for index in 0..5 {
            // The gradient and the result are there in the backward pass alone.
            let given = index < 3 || call.inputs() > 4;
            numbers.extend(if given { self.rows(index) } else { [0; 5] });
        }
        numbers.extend(self.mask_numbers());
        numbers.extend([out, log_sums, dots].map(place));
        let whole = [
            sizes.batch,
            sizes.heads,
            sizes.kv_heads,
            sizes.queries,
            sizes.keys,
            sizes.width,
            sizes.value_width,
            usize::from(self.causal),
        ];
        numbers.extend(whole.map(|number| number as u64));
        numbers.push(self.scale.to_bits());
        let [first, second] = shared.stays.map(u64::from);
        numbers.extend([shared.second_at as u64, first, second]);
        Ok(numbers.into_iter().flat_map(u64::to_ne_bytes).collect())
    }

    /// Address, strides over batch, head and row, and whether packs of a row lie evenly.
    fn rows(&self, index: usize) -> [u64; 5] {
        let call = self.call;
        let (layout, size) = (call.layout(index), call.dtype(index).size());
        let pack = if size == 8 { 2 } else { 4 };
        let at = place(call.input(index));
        let strides = layout.strides();
        let even = at.is_multiple_of((pack * size) as u64) && are_multiples(layout, 3, pack);
        let [batch, head, row] = [strides[0], strides[1], strides[2]].map(|stride| stride as u64);
        [at, batch, head, row, u64::from(even)]
    }

    /// Address, strides, whether it keeps keys, and whether packs of it lie evenly.
    fn mask_numbers(&self) -> [u64; 7] {
        let Some(index) = self.mask else {
            return [0; 7];
        };
        let call = self.call;
        let (layout, dtype) = (call.layout(index), call.dtype(index));
        let pack = 16 / computed(call.dtype(0)).size();
        let at = place(call.input(index));
        let strides = layout.strides();
        let keys = layout.shape()[3];
        let even = at.is_multiple_of((pack * dtype.size()) as u64)
            && strides[3] == 1
            && keys.is_multiple_of(pack)
            && are_multiples(layout, 3, pack);
        let [batch, head, query, key] =
            [strides[0], strides[1], strides[2], strides[3]].map(|stride| stride as u64);
        let keeps = u64::from(dtype == DType::Bool);
        [at, batch, head, query, key, keeps, u64::from(even)]
    }
}

/// An address of nothing.
const NONE: Argument<'static> = Argument::Address(0);
/// Columns are counted in 32 bits, with room for a chunk more.
const MOST_COLUMNS: usize = 1 << 30;

/// The tiles of a block's own rows in shared memory.
struct Shared {
    /// Whether all columns are there, of queries or keys, and of what comes with them.
    stays: [bool; 2],
    /// Where the second one is, in rows of `OWN_PITCH`.
    second_at: usize,
    nbytes: usize,
}

/// Whether the strides of the first dimensions, as far as they have several elements, are multiples of `pack`.
fn are_multiples(layout: &Layout, dims: usize, pack: usize) -> bool {
    let all = layout.shape().iter().zip(layout.strides()).take(dims);
    all.fold(true, |even, (&size, stride)| {
        even && (size <= 1 || stride.is_multiple_of(pack))
    })
}

fn place(argument: Argument<'_>) -> u64 {
    match argument {
        Argument::Address(address) => address,
        _ => 0,
    }
}

/// The kernel for results of `cols` columns.
fn of_what(call: &CudaCall<'_>, dtype: DType, what: What, cols: usize) -> Result<&'static CStr> {
    Ok(match (what, cols > 64) {
        (What::Result, false) => kernel_of!(call, dtype, "attention_64"),
        (What::Result, true) => kernel_of!(call, dtype, "attention_128"),
        (What::OfQuery, false) => kernel_of!(call, dtype, "attention_grad_of_query_64"),
        (What::OfQuery, true) => kernel_of!(call, dtype, "attention_grad_of_query_128"),
        (What::OfKey, false) => kernel_of!(call, dtype, "attention_grad_of_key_64"),
        (What::OfKey, true) => kernel_of!(call, dtype, "attention_grad_of_key_128"),
        (What::OfValue, false) => kernel_of!(call, dtype, "attention_grad_of_value_64"),
        (What::OfValue, true) => kernel_of!(call, dtype, "attention_grad_of_value_128"),
    })
}
