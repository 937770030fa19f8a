//! Sums, means and maxima of bags of a table's rows: `embedding_bag`.

use fireclay_core::{DType, Device, Error, Result, as_one_call};

use super::index::{EmbeddingOptions, as_indices};
use super::taps::{indices, shaped, zeros};
use crate::tensor::Tensor;

/// What [`Tensor::embedding_bag`] makes of the rows of a bag.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum EmbeddingBagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest in each column.
    Max,
}

/// What [`Tensor::embedding_bag`] takes.
#[derive(Clone, Copy, Default, Debug)]
pub struct EmbeddingBag<'a> {
    /// Where each bag starts in indices of one dimension; bags are rows of indices of two.
    pub offsets: Option<&'a Tensor>,
    /// Whether the last offset is the end of the last bag, not the start of another.
    pub include_last_offset: bool,
    /// What is made of the rows of a bag.
    pub mode: EmbeddingBagMode,
    /// A factor for each index; sums only.
    pub per_sample_weights: Option<&'a Tensor>,
    /// A row that counts in no bag, and how rows are trained.
    pub rows: EmbeddingOptions,
}

const OP: &str = "embedding_bag";

/// The bag of each index, and how many there are. Offsets on the host are checked.
fn bags_of(offsets: &Tensor, count: usize, include_last: bool) -> Result<(Tensor, usize)> {
    let fail = |what: String| {
        Err(Error::argument(OP, what).with_operands(|| vec![offsets.operand("offsets")]))
    };
    let offsets = as_indices(OP, offsets)?;
    if offsets.ndim() != 1 || (include_last && offsets.numel() == 0) {
        return fail(format!(
            "expected offsets of one dimension, got {}",
            offsets.shape()
        ));
    }
    let bags = offsets.numel() - usize::from(include_last);
    if offsets.device() == Device::Cpu {
        let values = offsets.to_vec::<i64>()?;
        let sorted = values.windows(2).all(|pair| pair[0] <= pair[1]);
        let inside = values.first().is_none_or(|&first| first == 0)
            && values
                .last()
                .is_none_or(|&last| last as u64 <= count as u64);
        if !(sorted && inside) {
            return fail(format!(
                "expected offsets that rise from 0 to at most {count}, got {values:?}"
            ));
        }
    }
    // An index is in the last bag that starts at or before it.
    let starts = offsets.narrow(0, 0, bags)?;
    let ones = Tensor::full_of(&[bags], 1i64, DType::I64, offsets.device())?;
    let started = Tensor::full_of(&[count + 1], 0i64, DType::I64, offsets.device())?
        .index_add(0, &starts, &ones)?
        .cumsum(0)?
        .narrow(0, 0, count)?;
    Ok((started.sub(1i64)?, bags))
}

impl Tensor {
    /// Sums, means or maxima of bags of rows of this `[count, width]` table: `[bags, width]`
    /// (`torch.nn.functional.embedding_bag`). A bag without rows gives zeros.
    ///
    /// # Errors
    /// Indices that are neither rows of bags nor one list with offsets, offsets that don't rise from 0 (on the host), weights
    /// of another shape than the indices or in another mode than sums.
    #[track_caller]
    pub fn embedding_bag(&self, indices: &Tensor, options: EmbeddingBag<'_>) -> Result<Tensor> {
        as_one_call(|| {
            let fail = |what: String| {
                Err(Error::argument(OP, what)
                    .with_operands(|| vec![self.operand("weight"), indices.operand("input")]))
            };
            let &[_, width] = &self.shape()[..] else {
                return fail(format!(
                    "expected a table [count, width], got {}",
                    self.shape()
                ));
            };
            let EmbeddingBag {
                mode,
                per_sample_weights: weights,
                ..
            } = options;
            if weights.is_some() && mode != EmbeddingBagMode::Sum {
                return fail(format!(
                    "per_sample_weights are for sums, got mode {mode:?}"
                ));
            }
            if let Some(weights) = weights.filter(|weights| weights.shape() != indices.shape()) {
                return fail(format!(
                    "expected a weight for each of the indices {}, got {}",
                    indices.shape(),
                    weights.shape()
                ));
            }
            let places = as_indices(OP, indices)?;
            let count = places.numel();
            let flat = shaped(&places, &[count])?;
            let (bag, bags) = match (options.offsets, &places.shape()[..]) {
                (Some(offsets), [_]) => bags_of(offsets, count, options.include_last_offset)?,
                (None, &[bags, length]) => {
                    let all = (0..bags).flat_map(|bag| (0..length).map(move |_| bag));
                    (super::taps::indices(all, self)?, bags)
                }
                _ => {
                    return fail(format!(
                        "expected indices of one dimension with offsets, or of two without, got {}",
                        indices.shape()
                    ));
                }
            };
            let mut rows = self.embedding_with(&flat, options.rows)?;
            let padding = options.rows.padding_idx.map(|row| flat.ne(row as i64));
            let counted = padding
                .transpose()?
                .map(|counted| shaped(&counted, &[count, 1]))
                .transpose()?;
            if mode == EmbeddingBagMode::Max {
                return largest(&rows, &bag, bags, counted.as_ref());
            }
            if let Some(weights) = weights {
                rows = rows.mul(&shaped(weights, &[count, 1])?)?;
            }
            if let Some(counted) = &counted {
                rows = counted.where_(&rows, &zeros(&[], &rows)?)?;
            }
            let sums = zeros(&[bags, width], &rows)?.index_add(0, &bag, &rows)?;
            if mode == EmbeddingBagMode::Sum {
                return Ok(sums);
            }
            let ones = match counted {
                Some(counted) => shaped(&counted.to_dtype(DType::I64)?, &[count])?,
                None => Tensor::full_of(&[count], 1i64, DType::I64, self.device())?,
            };
            let sizes = Tensor::full_of(&[bags], 0i64, DType::I64, self.device())?
                .index_add(0, &bag, &ones)?
                .maximum(1i64)?
                .to_dtype(sums.dtype())?;
            sums.div(&shaped(&sizes, &[bags, 1])?)
        })
    }
}

/// The largest of the counted rows of each bag in each column; the first of equal ones gets the gradient. Bags differ in length,
/// so their numbers are read from the device.
#[track_caller]
fn largest(rows: &Tensor, bag: &Tensor, bags: usize, counted: Option<&Tensor>) -> Result<Tensor> {
    let width = rows.shape()[1];
    let counts = match counted {
        Some(counted) => shaped(counted, &[rows.shape()[0]])?
            .to_dtype(DType::I64)?
            .to_vec::<i64>()?,
        None => vec![1; rows.shape()[0]],
    };
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); bags];
    for (place, (bag, counts)) in bag.to_vec::<i64>()?.into_iter().zip(counts).enumerate() {
        if counts != 0
            && let Some(places) = places.get_mut(bag as usize)
        {
            places.push(place);
        }
    }
    let longest = places.iter().map(Vec::len).max().unwrap_or(0);
    if longest == 0 || width == 0 {
        return zeros(&[bags, width], rows);
    }
    // Shorter bags see their first row again; an empty one sees any row, which is replaced by zeros.
    let full = |places: &Vec<usize>| {
        let first = places.first().copied().unwrap_or(0);
        let rest = std::iter::repeat_n(first, longest - places.len());
        places.iter().copied().chain(rest).collect::<Vec<_>>()
    };
    let table = indices(places.iter().flat_map(full), rows)?;
    let seen = shaped(&rows.index_select(0, &table)?, &[bags, longest, width])?;
    let (largest, _) = seen.max_dim(1, false)?;
    let filled = indices(
        places.iter().map(|places| usize::from(!places.is_empty())),
        rows,
    )?;
    let filled = shaped(&filled.ne(0i64)?, &[bags, 1])?;
    filled.where_(&largest, &zeros(&[], &largest)?)
}
