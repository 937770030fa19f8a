//! Places and counts of numbers: `searchsorted`, `bucketize`, `bincount`, `one_hot`, `unique`, `unique_consecutive`,
//! `repeat_interleave` by a tensor.
//!
//! Where a size depends on the data, the host waits for a device once for it (counted as a read).

use fireclay_core::{DType, Error, Result, Shape, resolve_dim};
use smallvec::smallvec;

use super::index::{as_indices, match_number};
use super::masked::{room, true_places};
use crate::dispatch;
use crate::op::{Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Places of values in sorted rows, on the CPU; inputs: the rows, or one for all, and the values.
#[derive(Clone, Copy, Debug)]
struct SearchSorted {
    right: bool,
}

impl Op for SearchSorted {
    fn name(&self) -> &'static str {
        "searchsorted"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta::contiguous(
            inputs[1].shape().clone(),
            DType::I64
        )])
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let last = |index: usize| call.layout(index).shape().last().copied().unwrap_or(1);
        let sizes = [last(0), last(1)];
        match_number!(self.name(), call.dtype(0), T => {
            fireclay_cpu::search::search_rows::<T>(call.input(0), call.input(1), sizes, self.right, call.output(0));
        });
        Ok(())
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(SearchSorted { right: false })]
}

/// What [`Tensor::unique_with`] is to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UniqueOptions {
    /// Rows of this dimension are compared; without it, elements are, and the result has one dimension.
    pub dim: Option<isize>,
    /// Whether to tell where each element of the input went.
    pub return_inverse: bool,
    /// Whether to tell how often each was there.
    pub return_counts: bool,
}

/// What [`Tensor::unique_with`] gives.
#[derive(Clone)]
pub struct Unique {
    /// The elements, or rows, each once.
    pub values: Tensor,
    /// The place among them of each element of the input, i64, if asked for.
    pub inverse: Option<Tensor>,
    /// How often each was there, i64, if asked for.
    pub counts: Option<Tensor>,
}

impl Tensor {
    /// Where `values` belong in this tensor, whose last dimension is sorted (`torch.searchsorted`): the first place before which
    /// nothing is larger, or equal unless `right`; i64. Either this tensor has one dimension, or its other dimensions are those of the
    /// values. A NaN belongs at the end.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        self.searched("searchsorted", values, right)
    }

    /// The place of each element among `boundaries`, which are sorted (`torch.bucketize`): that of the first that isn't smaller, or of
    /// the first larger one if `right`; i64.
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        if boundaries.ndim() != 1 {
            let what = format!(
                "expected boundaries of one dimension, got {}",
                boundaries.shape()
            );
            return Err(Error::shape("bucketize", what)
                .with_operands(|| vec![self.operand("self"), boundaries.operand("boundaries")]));
        }
        boundaries.searched("bucketize", self, right)
    }

    #[track_caller]
    fn searched(&self, op: &'static str, values: &Tensor, right: bool) -> Result<Tensor> {
        let context = |error: Error| {
            error.with_operands(|| vec![self.operand("sorted"), values.operand("values")])
        };
        if self.dtype() != values.dtype() {
            let what = format!(
                "expected values of {}, got {}",
                self.dtype(),
                values.dtype()
            );
            return Err(
                context(Error::dtype(op, what)).with_hint("cast them to one dtype with to_dtype")
            );
        }
        if !self.dtype().is_computable() {
            let what = format!("{} is stored only, no op computes with it", self.dtype());
            return Err(context(Error::dtype(op, what)));
        }
        let fits = match self.ndim() {
            0 => false,
            1 => true,
            ndim => values.ndim() == ndim && values.shape()[..ndim - 1] == self.shape()[..ndim - 1],
        };
        if !fits {
            let what = format!(
                "expected one sorted row, or one for each row of values {}, got {}",
                values.shape(),
                self.shape()
            );
            return Err(context(Error::shape(op, what)));
        }
        let op = SearchSorted { right };
        if values.device().is_cpu() && self.device().is_cpu() {
            return dispatch::call_one(op, &[self, values]);
        }
        // The bits of each place from the highest on: as many steps forward as don't lead beyond the value.
        let length = self.shape()[self.ndim() - 1];
        let mut places = Tensor::full_of(values.shape(), 0i64, DType::I64, values.device())?;
        let mut step = if length == 0 {
            0
        } else {
            1i64 << length.ilog2()
        };
        while step > 0 {
            let next = places.add(step)?;
            let last = next.minimum(length as i64)?.sub(1i64)?;
            let passed = match self.ndim() {
                1 => self
                    .index_select(0, &last.reshape(&[-1])?)?
                    .reshape_to(last.shape())?,
                _ => self.gather(-1, &last)?,
            };
            let stays = match right {
                true => passed.gt(values)?,
                false => passed.ge(values)?,
            };
            let stays = stays.logical_or(&next.gt(length as i64)?)?;
            places = stays.where_(&places, &next)?;
            step /= 2;
        }
        Ok(places)
    }

    /// The smallest and the largest of whole numbers, of which there is at least one, as the host sees them.
    #[track_caller]
    fn whole_range(&self) -> Result<[i64; 2]> {
        let ends = [self.amin(&[], false)?, self.amax(&[], false)?];
        let ends = Tensor::stack(&[&ends[0], &ends[1]], 0)?.to_dtype(DType::I64)?;
        let ends = ends.to_vec::<i64>()?;
        Ok([ends[0], ends[1]])
    }

    /// How often each whole number from 0 on is there, or the sum of the weights of each (`torch.bincount`). As many counts as the largest
    /// number needs, and at least `min_length`; i64, or of weights f32 or f64.
    ///
    /// The host waits for a device to know the largest.
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, min_length: usize) -> Result<Tensor> {
        let context = |error: Error| {
            error.with_operands(|| {
                let weights = weights.map(|weights| weights.operand("weights"));
                [self.operand("self")].into_iter().chain(weights).collect()
            })
        };
        if !self.dtype().is_integer() || !self.dtype().is_computable() {
            let what = format!("expected whole numbers, got {}", self.dtype());
            return Err(context(Error::dtype("bincount", what)));
        }
        if self.ndim() != 1 {
            let what = format!("expected one dimension, got {}", self.shape());
            return Err(context(Error::shape("bincount", what)));
        }
        if let Some(weights) = weights
            && weights.shape() != self.shape()
        {
            let what = format!(
                "expected a weight for each of {}, got {}",
                self.shape(),
                weights.shape()
            );
            return Err(context(Error::shape("bincount", what)));
        }
        if self.numel() == 0 {
            return Tensor::full_of(&[min_length], 0i64, DType::I64, self.device());
        }
        let [smallest, largest] = self.whole_range()?;
        if smallest < 0 {
            let what = format!("expected numbers that aren't negative, got {smallest}");
            return Err(context(Error::argument("bincount", what)));
        }
        let size = (largest as usize).saturating_add(1).max(min_length);
        let numbers = self.to_dtype(DType::I64)?;
        let weights = match weights {
            None => Tensor::full_of(self.shape(), 1i64, DType::I64, self.device())?,
            Some(weights) if weights.dtype() == DType::F32 => weights.detach(),
            Some(weights) => weights.detach().to_dtype(DType::F64)?,
        };
        let zeros = Tensor::full_of(&[size], 0i64, weights.dtype(), self.device())?;
        zeros.index_add(0, &numbers, &weights)
    }

    /// For each whole number a row that is 1 at its place and 0 elsewhere, i64 (`torch.nn.functional.one_hot`). Without a number of
    /// classes there are as many as the largest number needs, for which the host waits for a device.
    ///
    /// # Errors
    /// A number that is negative or no class: on a device, with the number of classes given, that is known when results are read.
    #[track_caller]
    pub fn one_hot(&self, classes: Option<usize>) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        let numbers = as_indices("one_hot", self)?;
        if numbers.numel() == 0 && classes.is_none() {
            let what = "no numbers tell how many classes there are";
            return Err(
                context(Error::argument("one_hot", what)).with_hint("give the number of classes")
            );
        }
        let mut count = classes;
        if numbers.numel() > 0 && (classes.is_none() || self.device().is_cpu()) {
            let [smallest, largest] = numbers.whole_range()?;
            let classes = *count.get_or_insert((largest as usize).saturating_add(1));
            if smallest < 0 || largest as usize >= classes {
                let number = if smallest < 0 { smallest } else { largest };
                let what = format!(
                    "expected classes from 0 to {}, got {number}",
                    classes as i64 - 1
                );
                return Err(context(Error::argument("one_hot", what)));
            }
        }
        let mut shape = self.shape().clone();
        shape.sizes_mut().push(count.unwrap_or(0));
        let rows = Tensor::full_of(&shape, 0i64, DType::I64, self.device())?;
        if numbers.numel() == 0 {
            return Ok(rows);
        }
        let classes = count.unwrap_or(0);
        if self.device().is_cpu() {
            let ones = numbers.to_vec::<i64>()?;
            rows.write_whole(|rows| {
                for (row, &class) in rows.chunks_mut(classes.max(1)).zip(&ones) {
                    row[class as usize] = 1;
                }
            })?;
            return Ok(rows);
        }
        let numbers = numbers.unsqueeze(-1)?;
        rows.scatter(-1, &numbers, &numbers.ones_like()?)
    }

    /// Each element, or each row of `dim`, as often as its place of `repeats` says (`torch.repeat_interleave` with a tensor), which
    /// has one number for each, or one for all. Without `dim` the tensor is flattened.
    ///
    /// The host waits for a device to know the size of the result.
    #[track_caller]
    pub fn repeat_interleave_by(&self, repeats: &Tensor, dim: Option<isize>) -> Result<Tensor> {
        const OP: &str = "repeat_interleave";
        let context = |error: Error| {
            error.with_operands(|| vec![self.operand("self"), repeats.operand("repeats")])
        };
        let Some(dim) = dim else {
            return self.reshape(&[-1])?.repeat_interleave_by(repeats, Some(0));
        };
        let at = resolve_dim(OP, dim, self.ndim())?;
        if self.ndim() == 0 {
            return self.reshape(&[-1])?.repeat_interleave_by(repeats, Some(0));
        }
        let size = self.shape()[at];
        if repeats.ndim() > 1 || ![1, size].contains(&repeats.numel()) {
            let what = format!(
                "expected a number for each of the {size} places of dimension {at}, or one, got {}",
                repeats.shape()
            );
            return Err(context(Error::shape(OP, what)));
        }
        let repeats = as_indices(OP, repeats)?;
        let repeats = repeats.reshape(&[-1])?.expand_to(&Shape::new(&[size]))?;
        let places = repeated_places(OP, &repeats).map_err(context)?;
        self.index_select(dim, &places)
    }

    /// The elements in order, each once (`torch.unique`). The host waits for a device to know how many there are.
    #[track_caller]
    pub fn unique(&self) -> Result<Tensor> {
        Ok(self.unique_with(UniqueOptions::default())?.values)
    }

    /// The elements, or the rows of a dimension, in order and each once, and what else is asked for (`torch.unique`). A NaN differs
    /// from any other.
    #[track_caller]
    pub fn unique_with(&self, options: UniqueOptions) -> Result<Unique> {
        let Some(dim) = options.dim else {
            if let Some(unique) = self.unique_of_few(options)? {
                return Ok(unique);
            }
            let (sorted, order) = self.reshape(&[-1])?.detach().sort(0, false)?;
            return self.groups(&sorted, Some(&order), 0, options);
        };
        let dim = resolve_dim("unique", dim, self.ndim())?;
        let x = self.as_rows("unique", dim)?;
        // Sorting by one column after the other, the first one last, keeps the order of the others among equal ones.
        let rows = x.reshape(&[x.shape()[0] as isize, row_size(&x)])?;
        let mut order = Tensor::arange(0i64, x.shape()[0] as i64, 1i64, self.device())?;
        for column in (0..rows.shape()[1] as isize).rev() {
            let column = rows.select(1, column)?.index_select(0, &order)?;
            order = order.index_select(0, &column.argsort(0, false)?)?;
        }
        let sorted = x.index_select(0, &order)?;
        self.groups(&sorted, Some(&order), dim, options)
    }

    /// What `unique_with` gives, by counting, if the elements are whole numbers on the host from a range about as large as there are
    /// elements.
    #[track_caller]
    fn unique_of_few(&self, options: UniqueOptions) -> Result<Option<Unique>> {
        if !self.device().is_cpu()
            || !self.dtype().is_integer()
            || self.numel() == 0
            || !self.dtype().is_computable()
        {
            return Ok(None);
        }
        let [smallest, largest] = self.whole_range()?;
        if largest.abs_diff(smallest) > 4 * self.numel() as u64 {
            return Ok(None);
        }
        let numbers = self.to_dtype(DType::I64)?.reshape(&[-1])?.sub(smallest)?;
        let counts = numbers.bincount(None, 0)?;
        let begins = counts.ne(0i64)?;
        let places = true_places(&begins)?;
        let values = places.add(smallest)?.to_dtype(self.dtype())?;
        let inverse = options.return_inverse.then(|| {
            let group = begins.cumsum(0)?.sub(1i64)?;
            group.index_select(0, &numbers)?.reshape_to(self.shape())
        });
        let counts = options
            .return_counts
            .then(|| counts.index_select(0, &places));
        Ok(Some(Unique {
            values,
            inverse: inverse.transpose()?,
            counts: counts.transpose()?,
        }))
    }

    /// The elements, or the rows of a dimension, without those that equal the one before, and what else is asked for
    /// (`torch.unique_consecutive`).
    #[track_caller]
    pub fn unique_consecutive(&self, options: UniqueOptions) -> Result<Unique> {
        let Some(dim) = options.dim else {
            return self.groups(&self.reshape(&[-1])?.detach(), None, 0, options);
        };
        let dim = resolve_dim("unique_consecutive", dim, self.ndim())?;
        self.groups(
            &self.as_rows("unique_consecutive", dim)?,
            None,
            dim,
            options,
        )
    }

    /// With dimension `dim` first, without history.
    #[track_caller]
    fn as_rows(&self, op: &'static str, dim: usize) -> Result<Tensor> {
        self.real_dim(op, dim as isize)?;
        self.detach().movedim(&[dim as isize], &[0])
    }

    /// What groups of equal neighbours among rows say, which have this tensor's elements in the given order, or in their own.
    #[track_caller]
    fn groups(
        &self,
        rows: &Tensor,
        order: Option<&Tensor>,
        dim: usize,
        options: UniqueOptions,
    ) -> Result<Unique> {
        let count = rows.shape()[0];
        let device = self.device();
        let first = Tensor::full_of(&[count.min(1)], true, DType::Bool, device)?;
        let begins = if count > 1 {
            let (later, earlier) = (rows.narrow(0, 1, count - 1)?, rows.narrow(0, 0, count - 1)?);
            let mut differs = later.ne(&earlier)?;
            if rows.ndim() > 1 {
                differs = differs.reshape(&[count as isize - 1, row_size(rows)])?;
                differs = match differs.numel() {
                    0 => Tensor::full_of(&[count - 1], false, DType::Bool, device)?,
                    _ => differs.any(&[1], false)?,
                };
            }
            Tensor::cat(&[&first, &differs], 0)?
        } else {
            first
        };
        let starts = true_places(&begins)?;
        let values = rows.index_select(0, &starts)?;
        let values = match options.dim {
            None => values,
            Some(_) => values.movedim(&[0], &[dim as isize])?.contiguous()?,
        };
        let inverse = options.return_inverse.then(|| {
            let group = begins.cumsum(0)?.sub(1i64)?;
            let group = match order {
                Some(order) => group.zeros_like()?.index_put(&[order], &group, false)?,
                None => group,
            };
            match options.dim {
                None => group.reshape_to(self.shape()),
                Some(_) => Ok(group),
            }
        });
        let counts = options.return_counts.then(|| {
            let end = Tensor::full(&[starts.numel().min(1)], count as i64, device)?;
            let later = starts.slice(0, 1, isize::MAX, 1)?;
            Tensor::cat(&[&later, &end], 0)?.sub(&starts)
        });
        Ok(Unique {
            values,
            inverse: inverse.transpose()?,
            counts: counts.transpose()?,
        })
    }
}

/// The elements of each row of the first dimension.
fn row_size(rows: &Tensor) -> isize {
    rows.shape()[1..].iter().product::<usize>() as isize
}

/// The number of each place as often as `repeats`, i64 of one dimension, says.
#[track_caller]
fn repeated_places(op: &'static str, repeats: &Tensor) -> Result<Tensor> {
    let negative = |number: i64| {
        let what = format!("expected counts that aren't negative, got {number}");
        Err(Error::argument(op, what))
    };
    if repeats.numel() == 0 {
        return Tensor::full_of(&[0], 0i64, DType::I64, repeats.device());
    }
    if repeats.device().is_cpu() {
        let repeats = repeats.to_vec::<i64>()?;
        if let Some(&number) = repeats.iter().find(|&&number| number < 0) {
            return negative(number);
        }
        let total = repeats
            .iter()
            .try_fold(0usize, |sum, &number| sum.checked_add(number as usize));
        let mut places = room(op, total)?;
        for (place, &number) in repeats.iter().enumerate() {
            places.extend(std::iter::repeat_n(place as i64, number as usize));
        }
        return Tensor::from_slice(&places, &[places.len()], fireclay_core::Device::Cpu);
    }
    let ends = repeats.cumsum(0)?;
    let last = ends.narrow(0, ends.numel() - 1, 1)?;
    let known = Tensor::cat(&[&repeats.amin(&[0], true)?, &last], 0)?.to_vec::<i64>()?;
    let [smallest, total] = known[..] else {
        unreachable!("two numbers were read")
    };
    if smallest < 0 {
        return negative(smallest);
    }
    let places = Tensor::arange(0i64, total, 1i64, repeats.device())?;
    ends.searchsorted(&places, true)
}
