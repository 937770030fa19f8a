//! Elements that masks of bools choose: `masked_fill`, `masked_select`, `masked_scatter`, `nonzero`.
//!
//! How many a mask chooses decides about sizes, so the host must know it: on a device each of these waits once for one number
//! (counted as a read). `masked_fill` and, on a device, `masked_scatter` don't need to know.

use fireclay_core::{DType, Error, Result, Scalar, Shape};
use smallvec::smallvec;

use super::binary::Where;
use crate::autograd;
use crate::dispatch;
use crate::formula::Formula;
use crate::function::{Arg, eager_into};
use crate::op::{KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// A number as one of `dtype`'s kind, so that it doesn't change the dtype of what it is combined with.
pub(super) fn number_as(op: &'static str, value: Scalar, dtype: DType) -> Result<Scalar> {
    if !value.fits(dtype) {
        let what = format!("{value} is beyond the numbers of {dtype}");
        return Err(Error::argument(op, what));
    }
    Ok(match dtype {
        DType::Bool => Scalar::Bool(value.is_true()),
        dtype if dtype.is_integer() => Scalar::I64(value.to_i64()),
        _ => value,
    })
}

pub(super) fn check_mask(op: &'static str, mask: &Tensor) -> Result<()> {
    if mask.dtype() == DType::Bool {
        return Ok(());
    }
    let what = format!("expected a mask of bool, got {}", mask.dtype());
    Err(Error::dtype(op, what)
        .with_hint("compare first, as in x.ne(0.0), or cast it: to_dtype(DType::Bool)")
        .with_operands(|| vec![mask.operand("mask")]))
}

/// The shape that a tensor and a mask broadcast to.
fn common_shape(op: &'static str, x: &Tensor, mask: &Tensor) -> Result<Shape> {
    x.shape().broadcast(mask.shape()).ok_or_else(|| {
        let what = format!(
            "a mask {} does not broadcast with {}",
            mask.shape(),
            x.shape()
        );
        Error::shape(op, what)
            .with_hint("sizes, counted from the last, must be equal or 1")
            .with_operands(|| vec![x.operand("self"), mask.operand("mask")])
    })
}

/// A list with room for so many numbers.
pub(super) fn room(op: &'static str, count: Option<usize>) -> Result<Vec<i64>> {
    let mut list = Vec::new();
    let fits = count.is_some_and(|count| list.try_reserve_exact(count).is_ok());
    match fits {
        true => Ok(list),
        false => Err(Error::out_of_memory(
            fireclay_core::Device::Cpu,
            format!("the places that {op} finds"),
            "",
        )),
    }
}

/// The places, in order, of what is true in a mask, or their coordinates, a row each; on the CPU. Input: the mask, of which so many
/// elements are true.
#[derive(Clone, Copy, Debug)]
struct NonZero {
    count: usize,
    coordinates: bool,
}

impl Op for NonZero {
    fn name(&self) -> &'static str {
        "nonzero"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let shape = match self.coordinates {
            true => Shape::new(&[self.count, inputs[0].ndim()]),
            false => Shape::new(&[self.count]),
        };
        Ok(smallvec![OutputMeta::contiguous(shape, DType::I64)])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        let shape = if self.coordinates {
            &shape[..]
        } else {
            &[shape.numel()][..]
        };
        let found = fireclay_cpu::index::true_places(call.input::<u8>(0), shape, call.output(0));
        match found {
            true => Ok(()),
            false => Err(Error::argument(
                self.name(),
                "the mask changed while it was read",
            )),
        }
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    vec![Box::new(NonZero {
        count: 0,
        coordinates: false,
    })]
}

/// How much of a mask on the host is true.
fn count_on_host(mask: &Tensor) -> Result<usize> {
    let bytes = mask.to_bytes()?;
    Ok(bytes
        .chunks(128)
        .map(|bytes| usize::from(bytes.iter().sum::<u8>()))
        .sum())
}

/// The places, in order, of what is true in the mask, whose elements are counted in order: i64, of one dimension.
#[track_caller]
pub(super) fn true_places(mask: &Tensor) -> Result<Tensor> {
    if mask.device().is_cpu() {
        let count = count_on_host(mask)?;
        let coordinates = false;
        return dispatch::call_one(NonZero { count, coordinates }, &[mask]);
    }
    let mask = mask.reshape(&[-1])?;
    let count = mask.sum_all()?.to_vec::<i64>()?[0] as usize;
    // The first of equal elements come first: those that are true, in order.
    Ok(mask.topk(count, 0, true)?.1)
}

/// The coordinates of places of a tensor of this shape, one tensor for each dimension.
#[track_caller]
pub(super) fn coordinates(places: &Tensor, shape: &[usize]) -> Result<Vec<Tensor>> {
    let strides = Shape::new(shape).contiguous_strides();
    if places.device().is_cpu() {
        let places = places.to_vec::<i64>()?;
        let each = shape.iter().zip(&strides).map(|(&size, &stride)| {
            let mut list = room("nonzero", Some(places.len()))?;
            list.extend(
                places
                    .iter()
                    .map(|&place| place / stride as i64 % size as i64),
            );
            Tensor::from_slice(&list, &[list.len()], fireclay_core::Device::Cpu)
        });
        return each.collect();
    }
    // Quotients of whole numbers up to 2^53 are rounded down rightly.
    let places = Formula::from(places.to_dtype(DType::F64)?);
    let each = shape.iter().zip(&strides).map(|(&size, &stride)| {
        let whole = |divisor: usize| (&places / divisor as f64).floor();
        let outer = whole(stride.saturating_mul(size)) * size as f64;
        (whole(stride) - outer).eval()?.to_dtype(DType::I64)
    });
    each.collect()
}

impl Tensor {
    /// `value` where `mask` is true, this tensor's elements elsewhere (`torch.masked_fill`). The mask broadcasts; the value is a
    /// number or a tensor without dimensions, and becomes one of this tensor's dtype.
    #[track_caller]
    pub fn masked_fill<'a>(&self, mask: &Tensor, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        check_mask("masked_fill", mask)?;
        common_shape("masked_fill", self, mask)?;
        match value.into() {
            Arg::Number(value) => {
                let value = number_as("masked_fill", value, self.dtype())
                    .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?;
                mask.where_(value, self)
            }
            Arg::Tensor(value) => mask.where_(&self.fill_value("masked_fill", value)?, self),
        }
    }

    /// Writes `value` where `mask`, which broadcasts to this tensor, is true (`Tensor.masked_fill_`).
    #[track_caller]
    pub fn masked_fill_<'a>(&self, mask: &Tensor, value: impl Into<Arg<'a>>) -> Result<Tensor> {
        check_mask("masked_fill_", mask)?;
        if common_shape("masked_fill_", self, mask)? != *self.shape() {
            let what = format!(
                "a mask {} does not broadcast to {}",
                mask.shape(),
                self.shape()
            );
            return Err(Error::shape("masked_fill_", what)
                .with_operands(|| vec![self.operand("self"), mask.operand("mask")]));
        }
        match value.into() {
            Arg::Number(value) => {
                let value = number_as("masked_fill_", value, self.dtype())
                    .map_err(|error| error.with_operands(|| vec![self.operand("self")]))?;
                eager_into(
                    &Where,
                    &[mask.into(), Arg::Number(value), self.into()],
                    self,
                )?;
            }
            Arg::Tensor(value) => {
                let value = self.fill_value("masked_fill_", value)?;
                eager_into(&Where, &[mask.into(), (&value).into(), self.into()], self)?;
            }
        }
        Ok(self.clone())
    }

    /// A tensor without dimensions as a number of this tensor's dtype.
    #[track_caller]
    pub(super) fn fill_value(&self, op: &'static str, value: &Tensor) -> Result<Tensor> {
        if value.ndim() > 0 {
            let what = format!("expected a value without dimensions, got {}", value.shape());
            return Err(Error::shape(op, what)
                .with_operands(|| vec![self.operand("self"), value.operand("value")]));
        }
        value.to_dtype(self.dtype())
    }

    /// The elements where `mask` is true, in order, as one dimension (`torch.masked_select`). Both broadcast.
    ///
    /// The host waits for a device to count them.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        check_mask("masked_select", mask)?;
        let shape = common_shape("masked_select", self, mask)?;
        let places = true_places(&mask.expand_to(&shape)?)?;
        self.expand_to(&shape)?
            .reshape(&[-1])?
            .index_select(0, &places)
    }

    /// The next element of `source`, in order, wherever `mask` is true; this tensor's elements elsewhere (`torch.masked_scatter`).
    /// This tensor and the mask broadcast.
    ///
    /// # Errors
    /// The source has fewer elements than the mask asks for: on a device that is known when its results are read.
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        let operands = || {
            vec![
                self.operand("self"),
                mask.operand("mask"),
                source.operand("source"),
            ]
        };
        check_mask("masked_scatter", mask)?;
        if source.dtype() != self.dtype() {
            let what = format!(
                "expected a source of {}, got {}",
                self.dtype(),
                source.dtype()
            );
            return Err(Error::dtype("masked_scatter", what)
                .with_hint("cast it first with to_dtype")
                .with_operands(operands));
        }
        let shape = common_shape("masked_scatter", self, mask)?;
        let flat = self.expand_to(&shape)?.reshape(&[-1])?;
        let (mask, source) = (mask.expand_to(&shape)?, source.reshape(&[-1])?);
        if source.numel() == 0 || mask.device().is_cpu() {
            let places = true_places(&mask)?;
            let count = places.numel();
            if count > source.numel() {
                let what = format!(
                    "the mask takes {count} elements, the source has {}",
                    source.numel()
                );
                return Err(Error::argument("masked_scatter", what).with_operands(operands));
            }
            let source = source.narrow(0, 0, count)?;
            return flat
                .index_put(&[&places], &source, false)?
                .reshape_to(&shape);
        }
        let mask = mask.reshape(&[-1])?;
        let next = mask.cumsum(0)?.sub(1i64)?.maximum(0i64)?;
        mask.where_(&source.index_select(0, &next)?, &flat)?
            .reshape_to(&shape)
    }

    /// Writes the next element of `source`, in order, wherever `mask` is true (`Tensor.masked_scatter_`).
    #[track_caller]
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        self.rewritten("masked_scatter_", |x| x.masked_scatter(mask, source))
    }

    /// The coordinates of the elements that aren't zero, a row each, in order (`torch.nonzero`): i64, `[count, ndim]`.
    ///
    /// The host waits for a device to count them.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let mask = self.as_mask("nonzero")?;
        if mask.device().is_cpu() {
            let count = count_on_host(&mask)?;
            let coordinates = true;
            return dispatch::call_one(NonZero { count, coordinates }, &[&mask]);
        }
        let places = true_places(&mask)?;
        let columns = coordinates(&places, self.shape())?;
        match columns.is_empty() {
            true => Tensor::empty(&[places.numel(), 0], DType::I64, self.device()),
            false => Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1),
        }
    }

    /// The coordinates of the elements that aren't zero, in order, one tensor for each dimension (`torch.nonzero(as_tuple=True)`,
    /// `torch.where(condition)`): what [`index`](Tensor::index) takes. A number counts as one dimension.
    #[track_caller]
    pub fn nonzero_tuple(&self) -> Result<Vec<Tensor>> {
        if self.ndim() == 0 {
            return self.reshape(&[1])?.nonzero_tuple();
        }
        let places = true_places(&self.as_mask("nonzero")?)?;
        coordinates(&places, self.shape())
    }

    /// Whether each element isn't zero.
    #[track_caller]
    pub(super) fn as_mask(&self, op: &'static str) -> Result<Tensor> {
        match self.dtype() {
            DType::Bool => Ok(self.clone()),
            dtype if !dtype.is_computable() => {
                let what = format!("{dtype} is stored only, no op computes with it");
                Err(Error::dtype(op, what).with_operands(|| vec![self.operand("self")]))
            }
            _ => self.ne(0i64),
        }
    }

    /// Writes what `make` makes of this tensor over it: the in-place form of an op that gives a new tensor. An op that saves this
    /// tensor for backward must be given a copy.
    #[track_caller]
    pub(crate) fn rewritten(
        &self,
        op: &'static str,
        make: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let context = |error: Error| error.with_operands(|| vec![self.operand("self")]);
        autograd::check_in_place(op, self, &[]).map_err(context)?;
        let result = make(self)?;
        if result.shape() != self.shape() {
            let what = format!(
                "the result has shape {}, the tensor written to has {}",
                result.shape(),
                self.shape()
            );
            return Err(context(Error::shape(op, what)));
        }
        self.copy_(&result)
    }
}
