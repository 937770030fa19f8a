//! Indexing by expressions: `x.i((.., 1..3, &mask))`, and setting: `x.set((.., 0), 1.0)`.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use fireclay_core::{DType, Error, Result, Shape};

use super::masked::number_as;
use super::view::View;
use crate::autograd::{self, is_grad_enabled};
use crate::dispatch;
use crate::function::Arg;
use crate::tensor::Tensor;

/// A new dimension of size 1 in an index expression (`None` in PyTorch's `x[None]`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewDim;

/// As many full dimensions as the other items of an index expression leave (`...`). It may stand once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ellipsis;

/// One item of an index expression. Made from numbers, ranges, [`NewDim`], [`Ellipsis`], truth values, tensors and lists of
/// numbers; see [`Tensor::i`].
#[derive(Clone, Debug)]
pub enum Index {
    /// One place of a dimension, which goes away. Negative ones count from the end.
    At(isize),
    /// Places from `start` on, `step` apart, below `end`, as Python's `start:end:step`.
    Slice {
        /// The first place; the dimension's start if None.
        start: Option<isize>,
        /// The first place that is left out; the dimension's end if None.
        end: Option<isize>,
        /// How far apart, at least 1.
        step: isize,
    },
    /// See [`NewDim`].
    NewDim,
    /// See [`Ellipsis`].
    Ellipsis,
    /// A new dimension that has one place if true and none if false.
    Truth(bool),
    /// Places of one dimension, whole numbers; or a mask of bools over as many dimensions as it has.
    Tensor(Tensor),
    /// Places of one dimension.
    List(Vec<i64>),
}

/// A whole number that counts places.
pub trait IndexNumber: Copy {
    /// The number; one beyond `isize` is as good as the largest there.
    fn to_place(self) -> isize;
}

macro_rules! numbers {
    ($($T:ty),*) => {$(
        impl IndexNumber for $T {
            fn to_place(self) -> isize {
                #[allow(irrefutable_let_patterns, clippy::unnecessary_fallible_conversions, reason = "which fit depends on the target")]
                match isize::try_from(self) {
                    Ok(place) => place,
                    Err(_) => isize::MAX,
                }
            }
        }

        impl From<$T> for Index {
            fn from(place: $T) -> Index {
                Index::At(place.to_place())
            }
        }
    )*};
}

numbers!(i32, i64, isize, u32, u64, usize);

fn slice(start: Option<isize>, end: Option<isize>) -> Index {
    Index::Slice {
        start,
        end,
        step: 1,
    }
}

/// The first place that an inclusive range leaves out: none after the last.
fn behind(last: isize) -> Option<isize> {
    match last {
        -1 => None,
        last => Some(last.saturating_add(1)),
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        slice(None, None)
    }
}

macro_rules! ranges {
    ($($Range:ident, $range:ident => $start:expr, $end:expr);* $(;)?) => {$(
        impl<N: IndexNumber> From<$Range<N>> for Index {
            fn from($range: $Range<N>) -> Index {
                slice($start, $end)
            }
        }

        impl<N: IndexNumber> Every for $Range<N> {}
    )*};
}

/// Ranges of an index expression with a step: `(1..9).every(2)` is Python's `1:9:2`.
pub trait Every: Into<Index> {
    /// Only the first of every `step` places.
    fn every(self, step: isize) -> Index {
        match self.into() {
            Index::Slice { start, end, .. } => Index::Slice { start, end, step },
            other => other,
        }
    }
}

impl Every for RangeFull {}

ranges! {
    Range, range => Some(range.start.to_place()), Some(range.end.to_place());
    RangeFrom, range => Some(range.start.to_place()), None;
    RangeTo, range => None, Some(range.end.to_place());
    RangeInclusive, range => Some(range.start().to_place()), behind(range.end().to_place());
    RangeToInclusive, range => None, behind(range.end.to_place());
}

impl From<NewDim> for Index {
    fn from(_: NewDim) -> Index {
        Index::NewDim
    }
}

impl From<Ellipsis> for Index {
    fn from(_: Ellipsis) -> Index {
        Index::Ellipsis
    }
}

impl From<bool> for Index {
    fn from(truth: bool) -> Index {
        Index::Truth(truth)
    }
}

impl From<&Tensor> for Index {
    fn from(tensor: &Tensor) -> Index {
        Index::Tensor(tensor.clone())
    }
}

impl From<Tensor> for Index {
    fn from(tensor: Tensor) -> Index {
        Index::Tensor(tensor)
    }
}

impl<N: IndexNumber> From<&[N]> for Index {
    fn from(places: &[N]) -> Index {
        Index::List(places.iter().map(|place| place.to_place() as i64).collect())
    }
}

impl<N: IndexNumber, const COUNT: usize> From<[N; COUNT]> for Index {
    fn from(places: [N; COUNT]) -> Index {
        Index::from(&places[..])
    }
}

impl<N: IndexNumber> From<Vec<N>> for Index {
    fn from(places: Vec<N>) -> Index {
        Index::from(&places[..])
    }
}

/// An index expression: one item, or a tuple of up to eight, or a list of [`Index`]es.
pub trait Indices {
    /// The items.
    fn into_indices(self) -> Vec<Index>;
}

impl<I: Into<Index>> Indices for I {
    fn into_indices(self) -> Vec<Index> {
        vec![self.into()]
    }
}

impl Indices for Vec<Index> {
    fn into_indices(self) -> Vec<Index> {
        self
    }
}

impl Indices for &[Index] {
    fn into_indices(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($(($($I:ident $item:ident),+))*) => {$(
        impl<$($I: Into<Index>),+> Indices for ($($I,)+) {
            fn into_indices(self) -> Vec<Index> {
                let ($($item,)+) = self;
                vec![$($item.into()),+]
            }
        }
    )*};
}

tuples! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
    (A a, B b, C c, D d, E e, F f, G g)
    (A a, B b, C c, D d, E e, F f, G g, H h)
}

/// What an index expression makes of a tensor.
struct Sliced {
    /// The tensor seen through all items but tensors of indices.
    view: Tensor,
    /// The views that made it, each with the shape of what it is of.
    views: Vec<(View, Shape)>,
    /// Tensors of indices, one or none for each of the first dimensions of the view; a mask stands for as many as it has.
    by: Vec<Option<Tensor>>,
}

impl Sliced {
    fn new(op: &'static str, x: &Tensor, items: Vec<Index>) -> Result<Sliced> {
        let context = |error: Error| error.with_operands(|| vec![x.operand("self")]);
        let width = |item: &Index| match item {
            Index::NewDim | Index::Ellipsis | Index::Truth(_) => 0,
            Index::Tensor(tensor) if tensor.dtype() == DType::Bool => tensor.ndim(),
            _ => 1,
        };
        let taken: usize = items.iter().map(width).sum();
        if taken > x.ndim() {
            let what = format!(
                "expected indices of at most {} dimensions, got {taken}",
                x.ndim()
            );
            return Err(context(Error::argument(op, what)));
        }
        if items
            .iter()
            .filter(|item| matches!(item, Index::Ellipsis))
            .count()
            > 1
        {
            return Err(context(Error::argument(
                op,
                "the ellipsis may stand once only",
            )));
        }
        let mut sliced = Sliced {
            view: x.clone(),
            views: Vec::new(),
            by: Vec::new(),
        };
        // `dim` is the place in the view, `own` the one in the tensor, for errors.
        let (mut dim, mut own) = (0, 0);
        for (position, item) in items.into_iter().enumerate() {
            own += width(&item);
            match item {
                Index::At(place) => {
                    let (dim_of_x, size) = (own - 1, sliced.view.shape()[dim]);
                    let index = if place < 0 {
                        place + size as isize
                    } else {
                        place
                    };
                    if index < 0 || index as usize >= size {
                        return Err(context(Error::IndexOutOfRange {
                            op,
                            index: place as i64,
                            position,
                            dim: dim_of_x,
                            size,
                            context: Box::default(),
                        }));
                    }
                    let index = index as usize;
                    sliced.apply(View::Select { dim, index })?;
                }
                Index::Slice { start, end, step } => {
                    if step < 1 {
                        let what = format!("a slice's step must be at least 1, got {step}");
                        return Err(context(Error::argument(op, what))
                            .with_hint("to go backwards, flip the dimension first"));
                    }
                    let (size, step) = (sliced.view.shape()[dim], step as usize);
                    let place = |bound: isize| match bound {
                        0.. => (bound as usize).min(size),
                        _ => size.saturating_sub(bound.unsigned_abs()),
                    };
                    let start = start.map_or(0, place);
                    let length = end.map_or(size, place).saturating_sub(start).div_ceil(step);
                    if length != size {
                        sliced.apply(View::Slice {
                            dim,
                            start,
                            length,
                            step,
                        })?;
                    }
                    dim += 1;
                }
                Index::NewDim => {
                    sliced.apply(View::Unsqueeze(dim))?;
                    dim += 1;
                }
                Index::Ellipsis => {
                    dim += x.ndim() - taken;
                    own += x.ndim() - taken;
                }
                Index::Truth(truth) => {
                    sliced.apply(View::Unsqueeze(dim))?;
                    let mask = Tensor::full(&[1], truth, x.device())?;
                    sliced.index(&mut dim, mask);
                }
                Index::Tensor(mask) if mask.dtype() == DType::Bool && mask.ndim() == 0 => {
                    sliced.apply(View::Unsqueeze(dim))?;
                    let mask = mask.reshape(&[1])?;
                    sliced.index(&mut dim, mask);
                }
                Index::Tensor(tensor) => sliced.index(&mut dim, tensor),
                Index::List(places) => {
                    let places = Tensor::from_slice(&places, &[places.len()], x.device())?;
                    sliced.index(&mut dim, places);
                }
            }
        }
        Ok(sliced)
    }

    fn apply(&mut self, view: View) -> Result<()> {
        let seen = dispatch::call_one(view.clone(), &[&self.view])?;
        self.views.push((view, self.view.shape().clone()));
        self.view = seen;
        Ok(())
    }

    /// Notes a tensor of indices for dimension `dim` of the view, or a mask for that and those that follow.
    fn index(&mut self, dim: &mut usize, by: Tensor) {
        let mut reached: usize = self.by.iter().map(dims_of).sum();
        while reached < *dim {
            self.by.push(None);
            reached += 1;
        }
        let by = Some(by);
        *dim += dims_of(&by);
        self.by.push(by);
    }

    /// The only mask, over all dimensions of the view that it reaches, if there is nothing else: as one that broadcasts to the view.
    fn mask(&self) -> Result<Option<Tensor>> {
        let [before @ .., Some(mask)] = &self.by[..] else {
            return Ok(None);
        };
        if mask.dtype() != DType::Bool || before.iter().any(Option::is_some) {
            return Ok(None);
        }
        let covered = &self.view.shape()[before.len()..][..mask.ndim()];
        if covered != &mask.shape()[..] {
            return Ok(None);
        }
        let mut shape = mask.shape().clone();
        let rest = self.view.ndim() - before.len() - mask.ndim();
        shape.sizes_mut().extend(std::iter::repeat_n(1, rest));
        mask.reshape_to(&shape).map(Some)
    }

    /// Zeros of the tensor's shape with `x` where the view looks.
    fn embed(&self, x: Tensor) -> Result<Tensor> {
        self.views
            .iter()
            .rev()
            .try_fold(x, |x, (view, shape)| match view {
                View::Unsqueeze(_) => x.reshape_to(shape),
                view => view.embed(shape, &x),
            })
    }
}

/// How many dimensions an index, or none, stands for.
fn dims_of(by: &Option<Tensor>) -> usize {
    match by {
        Some(mask) if mask.dtype() == DType::Bool => mask.ndim(),
        _ => 1,
    }
}

/// `value` without leading dimensions of size 1 that `shape` lacks, as PyTorch assigns.
pub(super) fn without_leading(value: &Tensor, shape: &Shape) -> Result<Tensor> {
    let mut value = value.clone();
    while value.ndim() > shape.ndim() && value.shape()[0] == 1 {
        value = value.squeeze(0)?;
    }
    Ok(value)
}

impl Tensor {
    /// Part of the tensor, by an index expression (`x[..]` in PyTorch): an item, or a tuple of items, one for each dimension.
    ///
    /// - A number is one place of a dimension, which goes away; negative ones count from the end.
    /// - A range is a slice, whose bounds may be negative and are kept in range, as Python's; `..` is all of a dimension, and
    ///   [`every`](Every::every) gives a step.
    /// - [`NewDim`] is a new dimension of size 1, [`Ellipsis`] all dimensions that the other items leave.
    /// - A tensor of whole numbers, or a list, names places of a dimension, in any order; several broadcast, and name places together.
    /// - A mask, a tensor of bools, names the places where it is true, of as many dimensions as it has. The host waits for a
    ///   device to count them.
    ///
    /// Without tensors and lists the result is a view. Gradients flow through all of it. Where dimensions named by tensors lie
    /// apart, theirs come first in the result, as in PyTorch and NumPy.
    ///
    /// ```
    /// use fireclay_tensor::{Device, Ellipsis, Every, NewDim, Result, Tensor};
    ///
    /// # fn main() -> Result<()> {
    /// let x = Tensor::arange(0, 24, 1, Device::Cpu)?.reshape(&[2, 3, 4])?;
    ///
    /// assert_eq!(x.i((1, 2, -1))?.item()?, 23.0); // x[1, 2, -1]
    /// assert_eq!(x.i(0)?.shape()[..], [3, 4]); // x[0]
    /// assert_eq!(x.i((.., 1..))?.shape()[..], [2, 2, 4]); // x[:, 1:]
    /// assert_eq!(x.i((Ellipsis, ..-1))?.shape()[..], [2, 3, 3]); // x[..., :-1]
    /// assert_eq!(x.i((.., NewDim, 0))?.shape()[..], [2, 1, 4]); // x[:, None, 0]
    /// assert_eq!(x.i((0, 0, (..).every(2)))?.to_vec::<i64>()?, [0, 2]); // x[0, 0, ::2]
    ///
    /// // By places: x[:, [2, 0]], and x[[0, 1], [0, 2]].
    /// assert_eq!(x.i((.., [2, 0]))?.shape()[..], [2, 2, 4]);
    /// assert_eq!(x.i(([0, 1], [0, 2]))?.shape()[..], [2, 4]);
    ///
    /// // By a mask: x[x > 20].
    /// assert_eq!(x.i(&x.gt(20)?)?.to_vec::<i64>()?, [21, 22, 23]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// More items than dimensions; a place out of range (of a tensor on a device this is known when results are read); a step below
    /// 1, since strides are never negative; a mask of other sizes than the dimensions have; indices that don't broadcast.
    #[track_caller]
    pub fn i(&self, indices: impl Indices) -> Result<Tensor> {
        let sliced = Sliced::new("index", self, indices.into_indices())?;
        match sliced.by.is_empty() {
            true => Ok(sliced.view),
            false => sliced.view.indexed_by(&sliced.by),
        }
    }

    /// Writes a number or a tensor, which broadcasts, to the part that [`i`](Tensor::i) gives for the same expression
    /// (`x[..] = value` in PyTorch). The value is cast to this tensor's dtype. Of several values for one place the last counts.
    ///
    /// Autograd records it: gradients of what was overwritten are zero, and the value gets its own.
    ///
    /// ```
    /// use fireclay_tensor::{Device, Result, Tensor};
    ///
    /// # fn main() -> Result<()> {
    /// let x = Tensor::zeros(&[2, 3], Device::Cpu)?;
    /// x.set((.., 0), 1.0)?; // x[:, 0] = 1
    /// x.set((1, 1..), &Tensor::from_slice(&[2.0f32, 3.0], &[2], Device::Cpu)?)?; // x[1, 1:] = [2, 3]
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0, 2.0, 3.0]);
    ///
    /// x.set(&x.gt(1.5)?, 0.0)?; // x[x > 1.5] = 0
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `i`, and a value that doesn't broadcast to the part; a leaf that requires grad can't be changed in place.
    #[track_caller]
    pub fn set<'a>(&self, indices: impl Indices, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        const OP: &str = "set";
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        autograd::check_in_place(OP, self, &[]).map_err(context)?;
        let sliced = Sliced::new(OP, self, indices.into_indices())?;
        let shape = sliced.view.shape().clone();
        let (value, requires_grad) = match value.into() {
            Arg::Number(number) => {
                let number = number_as(OP, number, self.dtype()).map_err(context)?;
                let number = Tensor::full_of(&[], number, self.dtype(), self.device())?;
                (number, false)
            }
            Arg::Tensor(value) => {
                let number = value.ndim() == 0;
                let value = if number {
                    value.to(self.device())?
                } else {
                    value.clone()
                };
                (value.to_dtype(self.dtype())?, value.requires_grad())
            }
        };
        // What the part becomes, as far as it isn't what it is.
        let part = if sliced.by.is_empty() {
            let value = without_leading(&value, &shape)?;
            value.expand_to(&shape).map_err(|_| {
                let what = format!("a value of {} does not broadcast to {shape}", value.shape());
                Error::shape(OP, what)
                    .with_operands(|| vec![self.operand("self"), value.operand("value")])
            })?
        } else if value.ndim() == 0
            && let Some(mask) = sliced.mask()?
        {
            mask.where_(&value, &sliced.view)?
        } else {
            sliced.view.with_values(&sliced.by, &value)?
        };
        if sliced.views.is_empty() {
            return self.copy_(&part);
        }
        if !is_grad_enabled() || !requires_grad && !self.requires_grad() {
            sliced.view.copy_(&part)?;
            return Ok(self.clone());
        }
        let mask = Tensor::full_of(&shape, true, DType::Bool, self.device())?;
        let mask = sliced.embed(mask)?;
        let embedded = sliced.embed(part)?;
        self.copy_(&mask.where_(&embedded, self)?)
    }
}
