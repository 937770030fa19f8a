//! Other shapes of the same elements, composed of views and joins: `unflatten`, `movedim`, `repeat`, `roll`, `meshgrid` and others.

use fireclay_core::{Dims, Error, Layout, Result, Shape, resolve_dim};

use super::view::View;
use crate::dispatch;
use crate::tensor::Tensor;

/// How [`Tensor::meshgrid`] orders the first two dimensions (`indexing`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Indexing {
    /// The first tensor runs along the first dimension, as the indices of a matrix do (`"ij"`).
    #[default]
    Ij,
    /// The first tensor runs along the second dimension, as the coordinates of a picture do (`"xy"`).
    Xy,
}

/// Dimensions counted from the start; an error where one of them appears twice.
pub(crate) fn distinct_dims(op: &'static str, dims: &[isize], ndim: usize) -> Result<Dims> {
    let mut distinct = Dims::new();
    for &dim in dims {
        let dim = resolve_dim(op, dim, ndim)?;
        if distinct.contains(&dim) {
            let what = format!("dimension {dim} appears twice in {dims:?}");
            return Err(Error::argument(op, what));
        }
        distinct.push(dim);
    }
    Ok(distinct)
}

/// A product of sizes, or an error where it is beyond what can be counted.
fn times(op: &'static str, size: usize, count: usize) -> Result<usize> {
    size.checked_mul(count).ok_or_else(|| {
        let what = format!("{count} times a size of {size} is more than memory has");
        Error::argument(op, what)
    })
}

impl Tensor {
    /// Dimension `dim` as several of these sizes, one of which may be -1 (`torch.unflatten`). A view where possible.
    #[track_caller]
    pub fn unflatten(&self, dim: isize, sizes: &[isize]) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        let dim = self.real_dim("unflatten", dim)?;
        if sizes.is_empty() {
            let what = "expected at least one size, got none";
            return Err(context(Error::argument("unflatten", what)));
        }
        let inner = Layout::infer_shape("unflatten", sizes, self.shape()[dim]).map_err(context)?;
        let mut shape: Dims = self.shape()[..dim].into();
        shape.extend_from_slice(&inner);
        shape.extend_from_slice(&self.shape()[dim + 1..]);
        self.reshape_to(&shape.into())
    }

    /// Dimensions `source` put at the places `destination`, the others kept in order (`torch.movedim`).
    #[track_caller]
    pub fn movedim(&self, source: &[isize], destination: &[isize]) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if source.len() != destination.len() {
            let what = format!(
                "expected as many places as dimensions, got {source:?} and {destination:?}"
            );
            return Err(context(Error::argument("movedim", what)));
        }
        let from = distinct_dims("movedim", source, self.ndim()).map_err(context)?;
        let to = distinct_dims("movedim", destination, self.ndim()).map_err(context)?;
        if self.ndim() == 0 {
            return Ok(self.clone());
        }
        let mut rest = (0..self.ndim()).filter(|dim| !from.contains(dim));
        let order: Dims = (0..self.ndim())
            .filter_map(|place| match to.iter().position(|&at| at == place) {
                Some(number) => Some(from[number]),
                None => rest.next(),
            })
            .collect();
        dispatch::call_one(View::Permute(order), &[self])
    }

    /// This tensor repeated along dimensions of size 1, without copying, to reach `shape` (`torch.broadcast_to`).
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        self.expand_to(&Shape::new(shape)).map_err(|_| {
            let what = format!("{} does not broadcast to {shape:?}", self.shape());
            Error::shape("broadcast_to", what)
                .with_hint("sizes, counted from the last, must be equal or 1")
                .with_operands(|| vec![self.operand("self")])
        })
    }

    /// The tensors expanded to the shape that they all broadcast to, without copying (`torch.broadcast_tensors`).
    #[track_caller]
    pub fn broadcast_tensors(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut shape = Shape::scalar();
        for tensor in tensors {
            shape = shape.broadcast(tensor.shape()).ok_or_else(|| {
                let what = format!(
                    "shapes do not broadcast, got {shape} and {}",
                    tensor.shape()
                );
                Error::shape("broadcast_tensors", what)
                    .with_hint("sizes, counted from the last, must be equal or 1")
                    .with_operands(|| tensors.iter().map(|x| x.operand("tensors")).collect())
            })?;
        }
        tensors.iter().map(|x| x.expand_to(&shape)).collect()
    }

    /// The tensor so many times along each dimension (`Tensor.repeat`). More counts than dimensions make new dimensions in front.
    #[track_caller]
    pub fn repeat(&self, repeats: &[usize]) -> Result<Tensor> {
        self.repeated("repeat", repeats)
    }

    /// The tensor so many times along each dimension (`torch.tile`). Of fewer counts than dimensions, the first ones that lack
    /// are 1.
    #[track_caller]
    pub fn tile(&self, repeats: &[usize]) -> Result<Tensor> {
        let missing = self.ndim().saturating_sub(repeats.len());
        let repeats: Dims = std::iter::repeat_n(1, missing)
            .chain(repeats.iter().copied())
            .collect();
        self.repeated("tile", &repeats)
    }

    #[track_caller]
    fn repeated(&self, op: &'static str, repeats: &[usize]) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        let Some(extra) = repeats.len().checked_sub(self.ndim()) else {
            let what = format!(
                "expected a count for each of {} dimensions, got {repeats:?}",
                self.ndim()
            );
            return Err(context(Error::shape(op, what)));
        };
        // Each repeated dimension gets one of size 1 in front of it, which expands.
        let (mut thin, mut wide, mut result) = (Dims::new(), Dims::new(), Dims::new());
        for (place, &count) in repeats.iter().enumerate() {
            let size = place.checked_sub(extra).map_or(1, |dim| self.shape()[dim]);
            result.push(times(op, size, count).map_err(context)?);
            if count != 1 {
                thin.push(1);
                wide.push(count);
            }
            thin.push(size);
            wide.push(size);
        }
        let wide = self.reshape_to(&thin.into())?.expand_to(&wide.into())?;
        let repeated = wide.reshape_to(&result.into())?;
        // With nothing repeated, all of this was a view.
        if repeated.shares_storage(self) {
            repeated.copy()
        } else {
            Ok(repeated)
        }
    }

    /// Each element, or each row of `dim`, `repeats` times one after the other (`torch.repeat_interleave`). Without `dim` the
    /// tensor is flattened.
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: usize, dim: Option<isize>) -> Result<Tensor> {
        let Some(dim) = dim else {
            return self.reshape(&[-1])?.repeat_interleave(repeats, Some(0));
        };
        if self.ndim() == 0 {
            resolve_dim("repeat_interleave", dim, 0)?;
            return self.reshape(&[-1])?.repeat_interleave(repeats, Some(0));
        }
        let dim = resolve_dim("repeat_interleave", dim, self.ndim())?;
        let mut result = self.shape().clone();
        result.sizes_mut()[dim] = times("repeat_interleave", result[dim], repeats)?;
        let thin = self.unsqueeze(dim as isize + 1)?;
        let mut wide = thin.shape().clone();
        wide.sizes_mut()[dim + 1] = repeats;
        thin.expand_to(&wide)?.reshape_to(&result)
    }

    /// One tensor for each place of `dim`, without it (`torch.unbind`).
    #[track_caller]
    pub fn unbind(&self, dim: isize) -> Result<Vec<Tensor>> {
        let at = self.real_dim("unbind", dim)?;
        let places = 0..self.shape()[at] as isize;
        places.map(|place| self.select(dim, place)).collect()
    }

    /// Those of dimensions `dims` removed whose size is 1 (`torch.squeeze` of several).
    #[track_caller]
    pub fn squeeze_dims(&self, dims: &[isize]) -> Result<Tensor> {
        let dims = distinct_dims("squeeze", dims, self.ndim())
            .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?;
        let mut dims: Dims = (dims.into_iter())
            .filter(|&dim| self.ndim() > 0 && self.shape()[dim] == 1)
            .collect();
        dims.sort_unstable();
        let mut result = self.clone();
        for &dim in dims.iter().rev() {
            result = dispatch::call_one(View::Squeeze(dim), &[&result])?;
        }
        Ok(result)
    }

    /// Pieces of these sizes along `dim`, which they fill (`torch.split` with a list).
    #[track_caller]
    pub fn split_with_sizes(&self, sizes: &[usize], dim: isize) -> Result<Vec<Tensor>> {
        let at = self.real_dim("split", dim)?;
        let size = self.shape()[at];
        let total = sizes
            .iter()
            .try_fold(0usize, |sum, &size| sum.checked_add(size));
        if total != Some(size) {
            let what = format!(
                "expected sizes that add up to {size}, that of dimension {at}, got {sizes:?}"
            );
            return Err(Error::shape("split", what).with_operands(|| vec![self.operand("self")]));
        }
        let mut start = 0;
        let pieces = sizes.iter().map(|&size| {
            start += size;
            self.narrow(dim, start - size, size)
        });
        pieces.collect()
    }

    /// Elements moved by `shifts` along `dims`, those that leave at the end come back at the start (`torch.roll`). Without
    /// dimensions the only shift moves the flattened elements.
    #[track_caller]
    pub fn roll(&self, shifts: &[isize], dims: &[isize]) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if dims.is_empty() && shifts.len() == 1 {
            let flat = self.reshape(&[-1])?.roll(shifts, &[0])?;
            return flat.reshape_to(self.shape());
        }
        if shifts.len() != dims.len() || dims.is_empty() {
            let what = format!("expected a shift for each dimension, got {shifts:?} and {dims:?}");
            return Err(context(Error::argument("roll", what)));
        }
        let mut result = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            let at = self.real_dim("roll", dim)?;
            let size = self.shape()[at];
            if size == 0 {
                continue;
            }
            let shift = shift.rem_euclid(size as isize) as usize;
            if shift > 0 {
                let first = result.narrow(dim, size - shift, shift)?;
                let second = result.narrow(dim, 0, size - shift)?;
                result = Tensor::cat(&[&first, &second], dim)?;
            }
        }
        if result.is_same(self) {
            self.copy()
        } else {
            Ok(result)
        }
    }

    /// The tensor turned by `k` right angles in the plane of two dimensions, from the first towards the second (`torch.rot90`).
    #[track_caller]
    pub fn rot90(&self, k: i64, dims: [isize; 2]) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if self.ndim() < 2 {
            let what = format!("expected at least 2 dimensions, got {}", self.ndim());
            return Err(context(Error::shape("rot90", what)));
        }
        distinct_dims("rot90", &dims, self.ndim()).map_err(context)?;
        let [first, second] = dims;
        match k.rem_euclid(4) {
            1 => self.flip(&[second])?.transpose(first, second),
            2 => self.flip(&dims),
            3 => self.flip(&[first])?.transpose(first, second),
            _ => self.copy(),
        }
    }

    /// Grids of coordinates: one tensor for each of these, of one dimension or none, that runs along one dimension of the result
    /// and is repeated along the others, without copying (`torch.meshgrid`).
    #[track_caller]
    pub fn meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
        let context = |error: Error| {
            error.with_operands(|| tensors.iter().map(|x| x.operand("tensors")).collect())
        };
        let Some(first) = tensors.first() else {
            return Err(Error::argument(
                "meshgrid",
                "expected at least one tensor, got none",
            ));
        };
        if let Some(other) = tensors.iter().find(|x| x.ndim() > 1) {
            let what = format!("expected tensors of one dimension, got {}", other.shape());
            return Err(context(Error::shape("meshgrid", what)));
        }
        if let Some(other) = tensors.iter().find(|x| x.dtype() != first.dtype()) {
            let what = format!(
                "expected one dtype, got {} and {}",
                first.dtype(),
                other.dtype()
            );
            return Err(context(Error::dtype("meshgrid", what))
                .with_hint("cast them to one dtype with to_dtype"));
        }
        let swaps = indexing == Indexing::Xy && tensors.len() > 1;
        let place = |number: usize| match number {
            0 | 1 if swaps => 1 - number,
            number => number,
        };
        let shape: Shape = (0..tensors.len())
            .map(|number| tensors[place(number)].numel())
            .collect();
        let grids = tensors.iter().enumerate().map(|(number, tensor)| {
            let mut thin: Dims = std::iter::repeat_n(1, tensors.len()).collect();
            thin[place(number)] = tensor.numel();
            tensor.reshape_to(&thin.into())?.expand_to(&shape)
        });
        grids.collect()
    }

    /// All pairs, triples and so on of elements of these tensors of one dimension, a row each (`torch.cartesian_prod`). One tensor
    /// alone stays as it is.
    #[track_caller]
    pub fn cartesian_prod(tensors: &[&Tensor]) -> Result<Tensor> {
        if let Some(other) = tensors.iter().find(|x| x.ndim() != 1) {
            let what = format!("expected tensors of one dimension, got {}", other.shape());
            return Err(Error::shape("cartesian_prod", what)
                .with_operands(|| tensors.iter().map(|x| x.operand("tensors")).collect()));
        }
        let [one] = tensors else {
            let grids = Tensor::meshgrid(tensors, Indexing::Ij)?;
            let columns: Vec<Tensor> = grids
                .iter()
                .map(|grid| grid.reshape(&[-1]))
                .collect::<Result<_>>()?;
            return Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1);
        };
        Ok((*one).clone())
    }

    /// All choices of `count` elements of a tensor of one dimension, in order, a row each (`torch.combinations`); elements may be
    /// chosen again where that is asked for.
    #[track_caller]
    pub fn combinations(&self, count: usize, with_replacement: bool) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        if self.ndim() != 1 {
            let what = format!("expected one dimension, got {}", self.shape());
            return Err(context(Error::shape("combinations", what)));
        }
        if count == 0 {
            return self.narrow(0, 0, 0);
        }
        let places = choices(self.numel(), count, with_replacement).map_err(context)?;
        let rows = places.len() / count;
        let places = Tensor::from_slice(&places, &[places.len()], self.device())?;
        self.index_select(0, &places)?
            .reshape_to(&Shape::new(&[rows, count]))
    }

    /// Matrices along the diagonal of one matrix that is zero elsewhere (`torch.block_diag`). A vector is a row, a number a
    /// matrix of one element.
    #[track_caller]
    pub fn block_diag(tensors: &[&Tensor]) -> Result<Tensor> {
        let context = |error: Error| {
            error.with_operands(|| tensors.iter().map(|x| x.operand("tensors")).collect())
        };
        if let Some(other) = tensors.iter().find(|x| x.ndim() > 2) {
            let what = format!("expected at most 2 dimensions, got {}", other.shape());
            return Err(context(Error::shape("block_diag", what)));
        }
        let blocks: Vec<Tensor> = (tensors.iter())
            .map(|x| match x.ndim() {
                2 => Ok((*x).clone()),
                _ => x.reshape(&[1, -1]),
            })
            .collect::<Result<_>>()?;
        let Some(first) = blocks.first() else {
            return Err(Error::argument(
                "block_diag",
                "expected at least one tensor, got none",
            ));
        };
        let total: usize = blocks.iter().map(|block| block.shape()[1]).sum();
        let (mut before, device) = (0, first.device());
        let rows: Vec<Tensor> = (blocks.iter())
            .map(|block| {
                let columns = block.shape()[1];
                before += columns;
                let sides = [before - columns, total - before].map(|columns| {
                    let size = [block.shape()[0], columns];
                    Tensor::full_of(&size, 0i64, block.dtype(), device)
                });
                let [left, right] = sides;
                Tensor::cat(&[&left?, block, &right?], 1)
            })
            .collect::<Result<_>>()?;
        Tensor::cat(&rows.iter().collect::<Vec<_>>(), 0)
    }
}

/// The places of all choices of `count` of `size` things, in order.
fn choices(size: usize, count: usize, with_replacement: bool) -> Result<Vec<i64>> {
    let mut places: Vec<i64> = Vec::new();
    let mut row: Vec<usize> = match with_replacement {
        true => vec![0; count.min(1 << 20)],
        false => (0..count.min(1 << 20)).collect(),
    };
    if size == 0 || !with_replacement && count > size {
        return Ok(places);
    }
    let too_many = || {
        let what = format!("the choices of {count} of {size} elements are more than memory has");
        Error::argument("combinations", what)
    };
    if row.len() < count {
        return Err(too_many());
    }
    // The largest place that number `at` of a row may have.
    let most = |at: usize| {
        if with_replacement {
            size - 1
        } else {
            size - count + at
        }
    };
    loop {
        places.try_reserve(count).map_err(|_| too_many())?;
        places.extend(row.iter().map(|&place| place as i64));
        let Some(at) = (0..count).rev().find(|&at| row[at] < most(at)) else {
            return Ok(places);
        };
        row[at] += 1;
        for next in at + 1..count {
            row[next] = if with_replacement {
                row[at]
            } else {
                row[next - 1] + 1
            };
        }
    }
}
