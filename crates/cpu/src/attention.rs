//! Scaled dot-product attention, forward and backward, without the scores ever being in memory as a whole.
//!
//! Knows slices and strides. A task takes a panel of queries; keys come in tiles, with an online softmax (M. Milakov and
//! N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022).
//! Scores lie transposed, queries side by side in the lanes, so that maxima and sums run down the lanes.
//!
//! Note [Order of attention]
//!
//! Bits depend on the sizes alone: not on the number of threads, the instruction set or the device.
//! - A score is a chain of fused multiply-adds over the width in ascending order, from 0; then times the scale, plus the mask.
//! - Keys come in tiles of [`KEYS`]. For each tile: `m' = max(m, scores)`, `p = exp(score - m')`, `c = exp(m - m')`,
//!   `l = fma(l, c, sum of p)`; the result is multiplied by `c`, then every `p * value` is added to it by a fused multiply-add,
//!   in ascending order. Where `m'` is negative infinity, 0 takes its place in the differences. NaN counts for no maximum.
//! - The sum of `p` in a tile: key `j` goes to class `j % 16`; classes add up in ascending order and are then combined as a tree
//!   (class `c` with `c + 8`, then `c + 4`, ...).
//! - At the end the result is divided by `l`, and `m + log(l)` is kept. Where `l` is 0 (every key is masked), the result is 0, as
//!   PyTorch has it, and infinity is kept, with which the backward pass gives 0 too.
//! - Backward: `p = exp(score - kept)`, `dp` is a chain like a score, of the gradient and the value; `ds = p (dp - dot)`, where `dot`
//!   is the sum of gradient times result in the order of rows of Note [Order of a reduction]. Gradients of values and keys are one chain
//!   of fused multiply-adds over the queries, head by head; those of queries are one over the keys. The scale comes last.

mod backward;
mod forward;
mod panel;
mod product;

pub use backward::{Known, attention_backward};
pub use forward::attention;

use crate::gemm::Float;
use crate::softmax::Real;

/// How many keys a tile has.
pub const KEYS: usize = 64;

/// The sizes of an attention: `heads` of queries, of which equally many in a row share one of the `kv_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// How many independent problems.
    pub batch: usize,
    /// Heads of queries: a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Rows of a head's queries.
    pub queries: usize,
    /// Rows of a head's keys and values.
    pub keys: usize,
    /// Columns of queries and keys.
    pub width: usize,
    /// Columns of values.
    pub value_width: usize,
}

impl Sizes {
    /// How many heads of queries share one of keys and values.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }
}

/// Rows of an operand: strides in elements, any of them 0; the elements of a row lie side by side.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    /// From the first element on.
    pub data: &'a [T],
    /// From one problem to the next.
    pub batch: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one row to the next.
    pub row: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Contiguous `[batch, heads, rows, width]`.
    pub fn contiguous(data: &'a [T], heads: usize, rows: usize, width: usize) -> Self {
        Rows {
            data,
            batch: heads * rows * width,
            head: rows * width,
            row: width,
        }
    }

    /// Panics unless there are as many elements as the strides say.
    fn check(&self, what: &str, [batch, heads, rows, width]: [usize; 4]) {
        let strides = [self.batch, self.head, self.row, 1];
        check_extent(what, self.data.len(), [batch, heads, rows, width], strides);
    }

    /// The first row of a head.
    ///
    /// # Safety
    /// The head exists, and [`check`](Self::check) has passed.
    unsafe fn head(&self, batch: usize, head: usize) -> *const T {
        // SAFETY: the place of an element that exists; where a head has no elements the pointer is not used.
        self.data
            .as_ptr()
            .wrapping_add(batch * self.batch + head * self.head)
    }
}

/// What keeps keys from queries.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a, T> {
    /// Nothing.
    None,
    /// A key whose byte is 0; strides over batch, head, query and key.
    Keep(&'a [u8], [usize; 4]),
    /// A number is added to each score; strides as for `Keep`.
    Add(&'a [T], [usize; 4]),
}

/// An attention: `softmax(scale * query * key^T + mask) * value` for each head.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a, T> {
    /// The sizes.
    pub sizes: Sizes,
    /// `[batch, heads, queries, width]`.
    pub query: Rows<'a, T>,
    /// `[batch, kv_heads, keys, width]`.
    pub key: Rows<'a, T>,
    /// `[batch, kv_heads, keys, value_width]`.
    pub value: Rows<'a, T>,
    /// Over `[batch, heads, queries, keys]`.
    pub mask: Mask<'a, T>,
    /// Whether query `i` sees keys up to number `i` only.
    pub causal: bool,
    /// What scores are multiplied by.
    pub scale: T,
}

impl<T: Real + Float> Attention<'_, T> {
    /// Panics unless the slices have what the sizes say.
    fn check(&self) {
        let Sizes {
            batch,
            heads,
            kv_heads,
            queries,
            keys,
            width,
            value_width,
        } = self.sizes;
        assert!(
            heads == 0 || (kv_heads > 0 && heads.is_multiple_of(kv_heads)),
            "heads are a multiple of those of keys"
        );
        self.query.check("queries", [batch, heads, queries, width]);
        self.key.check("keys", [batch, kv_heads, keys, width]);
        self.value
            .check("values", [batch, kv_heads, keys, value_width]);
        let scores = [batch, heads, queries, keys];
        match self.mask {
            Mask::None => {}
            Mask::Keep(data, strides) => check_extent("the mask", data.len(), scores, strides),
            Mask::Add(data, strides) => check_extent("the mask", data.len(), scores, strides),
        }
    }
}

fn check_extent(what: &str, len: usize, sizes: [usize; 4], strides: [usize; 4]) {
    if sizes.contains(&0) {
        return;
    }
    let last = (sizes.iter().zip(strides)).try_fold(0usize, |sum, (&size, stride)| {
        sum.checked_add((size - 1).checked_mul(stride)?)
    });
    assert!(
        last.is_some_and(|last| last < len),
        "{what}: fewer elements than the strides say"
    );
}
