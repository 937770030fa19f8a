//! Factories: tensors from numbers, slices and rules.

use fireclay_core::{
    DType, DeviceOrDefault, Element, Error, Layout, Origin, Result, Scalar, Shape,
};

use crate::device;
use crate::dispatch;
use crate::op::OutputMeta;
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
        rule: impl Fn(usize) -> T,
    ) -> Result<Tensor> {
        let tensor = Tensor::empty(&[numel], T::DTYPE, device)?;
        storage::fill_with(&tensor.0.storage, |elements: &mut [T]| {
            let places = elements.iter_mut().enumerate();
            places.for_each(|(index, element)| *element = rule(index));
        })?;
        Ok(tensor)
    }

    /// `steps` numbers from `start` to `end`, both included, f32 (`torch.linspace`).
    #[track_caller]
    pub fn linspace(
        start: f64,
        end: f64,
        steps: usize,
        device: impl DeviceOrDefault,
    ) -> Result<Tensor> {
        let step = if steps > 1 {
            (end - start) / (steps - 1) as f64
        } else {
            0.0
        };
        // From both ends towards the middle, so that the last number is `end` to the bit.
        let at = |index: usize| {
            if index < steps / 2 || steps == 1 {
                start + step * index as f64
            } else {
                end - step * (steps - 1 - index) as f64
            }
        };
        Tensor::from_rule(steps, device, |index| at(index) as f32)
    }

    /// The identity matrix, f32 (`torch.eye`).
    #[track_caller]
    pub fn eye(size: usize, device: impl DeviceOrDefault) -> Result<Tensor> {
        let tensor = Tensor::zeros(&[size, size], device)?;
        storage::fill_with(&tensor.0.storage, |elements: &mut [f32]| {
            elements
                .iter_mut()
                .step_by(size + 1)
                .for_each(|element| *element = 1.0);
        })?;
        Ok(tensor)
    }
}
