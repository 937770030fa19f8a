//! Factories: tensors from numbers, slices and rules.

use std::ops::Range;

use fireclay_core::{
    DType, DeviceOrDefault, Element, Error, Layout, Origin, Result, Scalar, Shape,
};

use crate::device;
use crate::dispatch;
use crate::op::OutputMeta;
use crate::ops::copy::MemoryFormat;
use crate::storage;
use crate::tensor::Tensor;

impl Tensor {
    /// A tensor of `shape` from its elements in order (`torch.tensor`, `torch.from_numpy`); always copies.
    #[track_caller]
    pub fn from_slice<T: Element>(
        elements: &[T],
        shape: &[usize],
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let shape = Shape::new(shape);
        if shape.checked_numel() != Some(elements.len()) {
            return Err(Error::shape(
                "from_slice",
                format!("shape {shape} does not hold {} elements", elements.len()),
            ));
        }
        let tensor = Tensor::empty(&shape, T::DTYPE, device)?;
        storage::fill_from_slice(&tensor.0.storage, elements)?;
        Ok(tensor)
    }

    /// A zero-dim tensor of one number.
    #[track_caller]
    pub fn scalar<T: Element>(value: T, device: impl DeviceOrDefault) -> Result<Tensor> {
        Tensor::from_slice(&[value], &[], device)
    }

    /// A tensor from raw bytes, native endian, in order: what [`to_bytes`](Tensor::to_bytes) gives. Bytes of bools are
    /// brought to 0 and 1.
    #[track_caller]
    pub fn from_bytes(
        bytes: &[u8],
        shape: &[usize],
        dtype: DType,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let shape = Shape::new(shape);
        let expected = shape
            .checked_numel()
            .and_then(|numel| numel.checked_mul(dtype.size()));
        if expected != Some(bytes.len()) {
            return Err(Error::shape(
                "from_bytes",
                format!("{dtype}{shape} does not take {} bytes", bytes.len()),
            ));
        }
        let tensor = Tensor::empty(&shape, dtype, device)?;
        if dtype == DType::Bool {
            let bools: Vec<u8> = bytes.iter().map(|&byte| u8::from(byte != 0)).collect();
            storage::fill_from_bytes(&tensor.0.storage, &bools)?;
        } else {
            storage::fill_from_bytes(&tensor.0.storage, bytes)?;
        }
        Ok(tensor)
    }

    /// Elements of unspecified value (`torch.empty`).
    #[track_caller]
    pub fn empty(shape: &[usize], dtype: DType, device: impl DeviceOrDefault) -> Result<Tensor> {
        let device = device.device_or_default()?;
        device::check_available(device)?;
        let meta = OutputMeta {
            layout: Layout::contiguous(Shape::new(shape)),
            dtype,
        };
        dispatch::empty(meta, device, Origin::here())
    }

    /// `value` everywhere, f32 (i64 or bool for a whole number or truth value) (`torch.full`).
    #[track_caller]
    pub fn full(
        shape: &[usize],
        value: impl Into<Scalar>,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let value = value.into();
        Tensor::full_of(shape, value, value.dtype(), device)
    }

    /// `value` everywhere, as `dtype` (`torch.full(dtype=)`).
    #[track_caller]
    pub fn full_of(
        shape: &[usize],
        value: impl Into<Scalar>,
        dtype: DType,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let tensor = Tensor::empty(shape, dtype, device)?;
        tensor.fill_(value)?;
        Ok(tensor)
    }

    /// Zeros, f32 (`torch.zeros`).
    #[track_caller]
    pub fn zeros(shape: &[usize], device: impl DeviceOrDefault) -> Result<Tensor> {
        Tensor::full(shape, 0.0, device)
    }

    /// Ones, f32 (`torch.ones`).
    #[track_caller]
    pub fn ones(shape: &[usize], device: impl DeviceOrDefault) -> Result<Tensor> {
        Tensor::full(shape, 1.0, device)
    }

    /// Zeros of this tensor's shape, dtype and device (`torch.zeros_like`).
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0i64)
    }

    /// Ones of this tensor's shape, dtype and device (`torch.ones_like`).
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1i64)
    }

    /// `value` in this tensor's shape, dtype, device and order of dimensions in memory (`torch.full_like`).
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        let meta = OutputMeta {
            layout: self.layout().preserved(),
            dtype: self.dtype(),
        };
        let tensor = dispatch::empty(meta, self.device(), Origin::here())?;
        tensor.fill_(value)?;
        Ok(tensor)
    }

    /// `value` in this tensor's shape and on its device, as `dtype`, in memory as `format` says (`torch.full_like(dtype=,
    /// memory_format=)`).
    #[track_caller]
    pub fn full_like_of(
        &self,
        value: impl Into<Scalar>,
        dtype: DType,
        format: MemoryFormat,
    ) -> Result<Tensor> {
        let layout = self.layout_in("full_like", format)?;
        let meta = OutputMeta { layout, dtype };
        let tensor = dispatch::empty(meta, self.device(), Origin::here())?;
        tensor.fill_(value)?;
        Ok(tensor)
    }

    /// Elements of unspecified value in this tensor's shape, dtype, device and order of dimensions in memory (`torch.empty_like`).
    #[track_caller]
    pub fn empty_like(&self) -> Result<Tensor> {
        let meta = OutputMeta {
            layout: self.layout().preserved(),
            dtype: self.dtype(),
        };
        dispatch::empty(meta, self.device(), Origin::here())
    }

    /// `value` in another shape, in this tensor's dtype and on its device (`Tensor.new_full`).
    #[track_caller]
    pub fn new_full(&self, shape: &[usize], value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::full_of(shape, value, self.dtype(), self.device())
    }

    /// Zeros in another shape, in this tensor's dtype and on its device (`Tensor.new_zeros`).
    #[track_caller]
    pub fn new_zeros(&self, shape: &[usize]) -> Result<Tensor> {
        self.new_full(shape, 0i64)
    }

    /// Ones in another shape, in this tensor's dtype and on its device (`Tensor.new_ones`).
    #[track_caller]
    pub fn new_ones(&self, shape: &[usize]) -> Result<Tensor> {
        self.new_full(shape, 1i64)
    }

    /// Unspecified values in another shape, in this tensor's dtype and on its device (`Tensor.new_empty`).
    #[track_caller]
    pub fn new_empty(&self, shape: &[usize]) -> Result<Tensor> {
        Tensor::empty(shape, self.dtype(), self.device())
    }

    /// `start`, `start + step`, ... below `end`: i64 if all are whole numbers, else f32 (`torch.arange`).
    #[track_caller]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let nowhere = || {
            let what = format!("no steps of {step} lead from {start} to {end}");
            Error::argument("arange", what)
        };
        if let (Scalar::I64(start), Scalar::I64(end), Scalar::I64(step)) = (start, end, step) {
            // Not as f64, which doesn't tell neighbours apart beyond 2^53; and not as a difference, which may be no i64.
            let is_towards = if step > 0 { start <= end } else { start >= end };
            if step == 0 || !is_towards {
                return Err(nowhere());
            }
            let numel = start.abs_diff(end).div_ceil(step.unsigned_abs()) as usize;
            // Each element lies between start and end, so what wraps around on the way wraps back.
            return Tensor::from_rule(numel, device, |index| {
                start.wrapping_add((index as i64).wrapping_mul(step))
            });
        }
        let (first, step_size) = (start.to_f64(), step.to_f64());
        let span = (end.to_f64() - first) / step_size;
        if step_size == 0.0 || !span.is_finite() || span < 0.0 {
            return Err(nowhere());
        }
        Tensor::from_rule(span.ceil() as usize, device, |index| {
            (first + index as f64 * step_size) as f32
        })
    }

    /// `rule` of each index, written in place: no second copy, and too many are an error.
    #[track_caller]
    fn from_rule<T: Element>(
        numel: usize,
        device: impl DeviceOrDefault,
        rule: impl Fn(usize) -> T + Sync,
    ) -> Result<Tensor> {
        let tensor = Tensor::empty(&[numel], T::DTYPE, device)?;
        storage::fill_with(&tensor.0.storage, |elements: &mut [T]| {
            fireclay_cpu::index::fill_by(elements, rule);
        })?;
        Ok(tensor)
    }

    /// Lets `write` change a fresh tensor of i64 on the host.
    pub(crate) fn write_whole(&self, write: impl FnOnce(&mut [i64])) -> Result<()> {
        storage::fill_with(&self.0.storage, write)
    }

    /// `start`, `start + step`, ... below `end`, as `dtype` (`torch.arange(dtype=)`). Whole dtypes count with start and step cut to
    /// whole numbers.
    #[track_caller]
    pub fn arange_of(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let are_whole = [start, end, step].map(|number| matches!(number, Scalar::I64(_)));
        check_counted("arange", dtype)?;
        if are_whole == [true; 3] && dtype == DType::I64 {
            return Tensor::arange(start, end, step, device);
        }
        let span = (end.to_f64() - start.to_f64()) / step.to_f64();
        if step.to_f64() == 0.0 || !span.is_finite() || span < 0.0 {
            let what = format!("no steps of {step} lead from {start} to {end}");
            return Err(Error::argument("arange", what));
        }
        let count = span.ceil() as usize;
        if dtype.is_floating_point() {
            let (start, step) = (start.to_f64(), step.to_f64());
            return Tensor::numbers_of(count, dtype, device, |index| start + index as f64 * step);
        }
        let (start, step) = (start.to_i64(), step.to_i64());
        let at = |index: usize| start.wrapping_add((index as i64).wrapping_mul(step));
        Tensor::from_rule(count, device, at)?.to_dtype(dtype)
    }

    /// `rule` of each index, computed in f64, as a floating dtype: rounded once.
    #[track_caller]
    fn numbers_of(
        count: usize,
        dtype: DType,
        device: impl DeviceOrDefault,
        rule: impl Fn(usize) -> f64 + Sync,
    ) -> Result<Tensor> {
        match dtype {
            DType::F32 => Tensor::from_rule(count, device, |index| rule(index) as f32),
            DType::F16 => {
                Tensor::from_rule(count, device, |index| half::f16::from_f64(rule(index)))
            }
            DType::BF16 => {
                Tensor::from_rule(count, device, |index| half::bf16::from_f64(rule(index)))
            }
            DType::F64 => Tensor::from_rule(count, device, rule),
            // Whole numbers are cut.
            dtype => Tensor::from_rule(count, device, |index| rule(index) as i64)?.to_dtype(dtype),
        }
    }

    /// `steps` numbers from `start` to `end`, both included, f32 (`torch.linspace`).
    #[track_caller]
    pub fn linspace(
        start: f64,
        end: f64,
        steps: usize,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        Tensor::linspace_of(start, end, steps, DType::F32, device)
    }

    /// `steps` numbers from `start` to `end`, both included, as `dtype` (`torch.linspace(dtype=)`); whole ones are cut.
    #[track_caller]
    pub fn linspace_of(
        start: f64,
        end: f64,
        steps: usize,
        dtype: DType,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        check_counted("linspace", dtype)?;
        Tensor::numbers_of(steps, dtype, device, evenly(start, end, steps))
    }

    /// `base` to the power of `steps` numbers from `start` to `end`, both included, as `dtype` (`torch.logspace`).
    #[track_caller]
    pub fn logspace(
        start: f64,
        end: f64,
        steps: usize,
        base: f64,
        dtype: DType,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        check_counted("logspace", dtype)?;
        let exponent = evenly(start, end, steps);
        Tensor::numbers_of(steps, dtype, device, |index| base.powf(exponent(index)))
    }

    /// The identity matrix, f32 (`torch.eye`).
    #[track_caller]
    pub fn eye(size: usize, device: impl DeviceOrDefault) -> Result<Tensor> {
        Tensor::eye_of(size, size, DType::F32, device)
    }

    /// Zeros with ones on the main diagonal, as `dtype` (`torch.eye(n, m, dtype=)`).
    #[track_caller]
    pub fn eye_of(
        rows: usize,
        columns: usize,
        dtype: DType,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let matrix = Tensor::full_of(&[rows, columns], 0i64, dtype, device)?;
        matrix.diagonal(0, 0, 1)?.fill_(1i64)?;
        Ok(matrix)
    }

    /// The row and column of each place below diagonal `offset` of a matrix and on it, in order, as two rows, i64
    /// (`torch.tril_indices`).
    #[track_caller]
    pub fn tril_indices(
        rows: usize,
        columns: usize,
        offset: isize,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let end =
            |row: usize| (row as i128 + offset as i128 + 1).clamp(0, columns as i128) as usize;
        let first = (-(offset as i128)).clamp(0, rows as i128) as usize;
        let full =
            (columns as i128 - offset as i128 - 1).clamp(first as i128, rows as i128) as usize;
        let parts = [first..full, full..rows];
        Tensor::places_of_triangle("tril_indices", parts, |row| 0..end(row), device)
    }

    /// The row and column of each place above diagonal `offset` of a matrix and on it, in order, as two rows, i64
    /// (`torch.triu_indices`).
    #[track_caller]
    pub fn triu_indices(
        rows: usize,
        columns: usize,
        offset: isize,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let start = |row: usize| (row as i128 + offset as i128).clamp(0, columns as i128) as usize;
        let last = (columns as i128 - offset as i128).clamp(0, rows as i128) as usize;
        let full = (-(offset as i128)).clamp(0, last as i128) as usize;
        let parts = [0..full, full..last];
        Tensor::places_of_triangle("triu_indices", parts, |row| start(row)..columns, device)
    }

    /// The places of rows in two parts, in each of which the widths of rows make equal steps.
    #[track_caller]
    fn places_of_triangle(
        op: &'static str,
        parts: [Range<usize>; 2],
        columns: impl Fn(usize) -> Range<usize>,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let sum = |part: &Range<usize>| {
            let ends =
                [part.start, part.end.saturating_sub(1)].map(|row| columns(row).len() as u128);
            (part.len() as u128)
                .checked_mul(ends[0] + ends[1])
                .map(|sum| sum / 2)
        };
        let count = sum(&parts[0])
            .zip(sum(&parts[1]))
            .and_then(|(first, second)| usize::try_from(first.checked_add(second)?).ok());
        let mut places: Vec<i64> = Vec::new();
        let fits = count
            .and_then(|count| count.checked_mul(2))
            .is_some_and(|both| places.try_reserve_exact(both).is_ok());
        let (true, Some(count)) = (fits, count) else {
            let what = format!("the places that {op} finds");
            return Err(Error::out_of_memory(fireclay_core::Device::Cpu, what, ""));
        };
        if count > 0 {
            let rows = || parts.iter().cloned().flatten();
            rows().for_each(|row| {
                places.extend(std::iter::repeat_n(row as i64, columns(row).len()));
            });
            rows().for_each(|row| {
                places.extend(columns(row).map(|column| column as i64));
            });
        }
        Tensor::from_slice(&places, &[2, count], device)
    }
}

/// `steps` numbers from `start` to `end`: from both ends towards the middle, so that the last number is `end` to the bit.
fn evenly(start: f64, end: f64, steps: usize) -> impl Fn(usize) -> f64 + Sync {
    let step = if steps > 1 {
        (end - start) / (steps - 1) as f64
    } else {
        0.0
    };
    move |index| {
        if index < steps / 2 || steps == 1 {
            start + step * index as f64
        } else {
            end - step * (steps - 1 - index) as f64
        }
    }
}

/// Refuses dtypes that don't count.
fn check_counted(op: &'static str, dtype: DType) -> Result<()> {
    if dtype.is_computable() && dtype != DType::Bool {
        return Ok(());
    }
    Err(Error::dtype(
        op,
        format!("expected a dtype of numbers that are computed with, got {dtype}"),
    ))
}
