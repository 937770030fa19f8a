//! The places that windows see along a dimension, as tables of indices.

use fireclay_core::{Error, Result, Shape};

use crate::tensor::Tensor;

/// More places than any table has: a table of so many does not fit into memory.
const MOST: usize = 1 << 28;

/// Windows along one dimension of `size`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taps {
    /// The dimension's size.
    pub size: usize,
    /// Windows.
    pub count: usize,
    /// Places that each sees.
    pub kernel: usize,
    /// From one window to the next.
    pub stride: usize,
    /// Places before the first that are zero.
    pub padding: usize,
    /// From one place to the next.
    pub dilation: usize,
}

impl Taps {
    /// The place that tap `tap` of window `window` sees, unless that is zero.
    pub(super) fn place(&self, window: usize, tap: usize) -> Option<usize> {
        (window * self.stride + tap * self.dilation)
            .checked_sub(self.padding)
            .filter(|&place| place < self.size)
    }

    /// Checks that what is computed of the numbers does not overflow, and that the table has a size to speak of.
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        let last = |count: usize, step: usize| count.saturating_sub(1).checked_mul(step);
        let reach = last(self.count, self.stride)
            .zip(last(self.kernel, self.dilation))
            .and_then(|(window, tap)| window.checked_add(tap));
        let length = self.count.checked_mul(self.kernel);
        match (reach, length) {
            (Some(_), Some(length)) if length <= MOST => Ok(()),
            _ => Err(Error::argument(
                op,
                format!(
                    "{} windows of {} places along a dimension of {} are more than there is memory for",
                    self.count, self.kernel, self.size
                ),
            )),
        }
    }

    /// The places window by window; `size` where they are zero.
    fn table(&self, op: &'static str, like: &Tensor) -> Result<Tensor> {
        self.check(op)?;
        let (windows, taps) = (0..self.count, self.kernel);
        let places = windows.flat_map(|window| {
            (0..taps).map(move |tap| self.place(window, tap).unwrap_or(self.size))
        });
        indices(places, like)
    }

    /// What the windows see of dimension `dim`: `[.., count * kernel, ..]`.
    #[track_caller]
    pub(super) fn take(&self, op: &'static str, from: &Tensor, dim: usize) -> Result<Tensor> {
        let table = self.table(op, from)?;
        with_zero(from, dim)?.index_select(dim as isize, &table)
    }

    /// The adjoint of [`take`](Taps::take): adds what the windows hold to the places that they see.
    #[track_caller]
    pub(super) fn add(&self, op: &'static str, windows: &Tensor, dim: usize) -> Result<Tensor> {
        let table = self.table(op, windows)?;
        let mut shape = windows.shape().to_vec();
        shape[dim] = self.size + 1;
        zeros(&shape, windows)?
            .index_add(dim as isize, &table, windows)?
            .narrow(dim as isize, 0, self.size)
    }
}

/// The tensor with one more row of dimension `dim`, of zeros.
#[track_caller]
pub(super) fn with_zero(tensor: &Tensor, dim: usize) -> Result<Tensor> {
    let mut shape = tensor.shape().to_vec();
    shape[dim] = 1;
    Tensor::cat(&[tensor, &zeros(&shape, tensor)?], dim as isize)
}

/// Zeros of this shape, of dtype and device of `like`.
#[track_caller]
pub(super) fn zeros(shape: &[usize], like: &Tensor) -> Result<Tensor> {
    Tensor::full_of(shape, 0i64, like.dtype(), like.device())
}

/// Indices where `like` is.
#[track_caller]
pub(super) fn indices(places: impl Iterator<Item = usize>, like: &Tensor) -> Result<Tensor> {
    let places: Vec<i64> = places.map(|place| place as i64).collect();
    Tensor::from_slice(&places, &[places.len()], like.device())
}

/// Reshapes to sizes whose product is the tensor's.
#[track_caller]
pub(super) fn shaped(tensor: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    tensor.reshape_to(&Shape::new(sizes))
}

/// A tensor of `N` dimensions after the channels, with its batch dimension, and whether that was added.
#[track_caller]
pub(super) fn batched<const N: usize>(op: &'static str, input: &Tensor) -> Result<(Tensor, bool)> {
    match input.ndim() {
        ndim if ndim == N + 2 => Ok((input.clone(), false)),
        ndim if ndim == N + 1 => Ok((input.unsqueeze(0)?, true)),
        _ => {
            let what = format!(
                "expected {} or {} dimensions ([n, c, ..] or [c, ..] with {N} more), got {}",
                N + 2,
                N + 1,
                input.shape()
            );
            Err(Error::shape(op, what).with_operands(|| vec![input.operand("input")]))
        }
    }
}

/// Takes the batch dimension off again if it was added.
#[track_caller]
pub(super) fn unbatched(output: Tensor, added: bool) -> Result<Tensor> {
    if added { output.squeeze(0) } else { Ok(output) }
}
