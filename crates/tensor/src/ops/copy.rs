//! Copies and casts: `copy`, `contiguous`, `to_dtype`, `to`, `copy_`.

use fireclay_core::{DType, Device, IntoDevice, Layout, Result, Shape};
use fireclay_cpu::program::{Program, Sink, Source};
use smallvec::smallvec;

use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::dispatch;
use crate::op::sealed::Internal;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas};
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// How the elements of a new tensor lie in memory (`memory_format`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryFormat {
    /// In the order that they have, where that is dense, else in order of the dimensions (`torch.preserve_format`).
    #[default]
    Preserve,
    /// In order of the dimensions (`torch.contiguous_format`).
    Contiguous,
    /// Channels, the second of 4 or 5 dimensions, innermost (`torch.channels_last`, `torch.channels_last_3d`).
    ChannelsLast,
}

/// Copies the elements, casting them to `dtype`, in the given memory order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    dtype: DType,
    contiguous: bool,
}

impl Op for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let [input] = inputs else {
            unreachable!("copy has one input")
        };
        check_cast("to", input.dtype, self.dtype)?;
        let layout = if self.contiguous {
            Layout::contiguous(input.shape().clone())
        } else {
            input.layout.preserved()
        };
        Ok(smallvec![OutputMeta {
            layout,
            dtype: self.dtype,
        }])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        copy_operands(&mut call);
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.copy()
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        // The engine casts to the input's dtype.
        Ok(smallvec![Some(context.grad_output().clone())])
    }
}

/// Refuses casts of dtypes that are stored only.
fn check_cast(op: &'static str, from: DType, to: DType) -> Result<()> {
    if from == to || from.is_computable() && to.is_computable() {
        return Ok(());
    }
    let what =
        format!("no cast from {from} to {to}: stored-only dtypes can be copied and saved only");
    Err(fireclay_core::Error::dtype(op, what))
}

/// Writes a tensor over the elements of another one.
#[derive(Clone, Debug)]
struct CopyInto {
    shape: Shape,
    dtype: DType,
}

impl Op for CopyInto {
    fn name(&self) -> &'static str {
        "copy_"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        check_cast(self.name(), inputs[0].dtype, self.dtype)?;
        if inputs[0].layout.expand(&self.shape).is_none() {
            return Err(fireclay_core::Error::shape(
                "copy_",
                format!("{} does not broadcast to {}", inputs[0].shape(), self.shape),
            ));
        }
        Ok(smallvec![OutputMeta::contiguous(
            self.shape.clone(),
            self.dtype
        )])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        copy_operands(&mut call);
        Ok(())
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        call.copy()
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        Ok(smallvec![Some(
            context.grad_output().sum_to(context.input_shape(0))?
        )])
    }
}

/// Moves a tensor to another device.
#[derive(Clone, Copy, Debug)]
struct To {
    from: Device,
    to: Device,
}

impl Op for To {
    fn name(&self) -> &'static str {
        "to"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok(smallvec![OutputMeta {
            layout: inputs[0].layout.preserved(),
            dtype: inputs[0].dtype,
        }])
    }

    fn target(&self, _: Internal) -> Option<Device> {
        Some(self.to)
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        Ok(smallvec![Some(context.grad_output().to(self.from)?)])
    }
}

/// A program that copies, casting between dtypes.
pub(crate) fn cast(from: DType, to: DType) -> Program {
    let mut program = Program::new();
    let register = program.input(from);
    program.output(register, to);
    program
}

fn copy_operands(call: &mut CpuCall<'_>) {
    let (input, output) = (call.raw_input(0), call.raw_output(0));
    let shape = output.layout.shape();
    let strides = input
        .layout
        .expand(shape)
        .expect("the output rule checked the shapes");
    let source = Source {
        ptr: input.ptr().cast_const(),
        dtype: input.dtype,
        strides: strides.strides().into(),
    };
    let sink = Sink {
        ptr: output.ptr(),
        dtype: output.dtype,
        strides: output.layout.strides().into(),
    };
    if source.dtype == sink.dtype {
        // SAFETY: `ptr` checked both layouts against their storage; the door keeps them from overlapping.
        unsafe { fireclay_cpu::copy::copy(shape, source, sink) };
    } else {
        // SAFETY: as above.
        unsafe { cast(source.dtype, sink.dtype).evaluate(shape, &[source], &[sink]) };
    }
}

/// Writes `source`, broadcast and cast, over `target`, whatever their dtypes: the door's own rounding step.
pub(crate) fn write(source: &Tensor, target: &Tensor) -> Result<()> {
    let op = CopyInto {
        shape: target.shape().clone(),
        dtype: target.dtype(),
    };
    dispatch::call_into(op, &[source], &[target])
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let (dtype, shape) = (DType::F32, Shape::scalar());
    vec![
        Box::new(Copy {
            dtype,
            contiguous: false,
        }),
        Box::new(CopyInto { shape, dtype }),
        Box::new(To {
            from: Device::Cpu,
            to: Device::Cuda(0),
        }),
    ]
}

impl Tensor {
    /// A new tensor with the same elements (`torch.clone`); gradients flow through.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        let op = Copy {
            dtype: self.dtype(),
            contiguous: false,
        };
        dispatch::call_one(op, &[self])
    }

    /// This tensor if its elements lie in order, else a copy whose do (`Tensor.contiguous`).
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let op = Copy {
            dtype: self.dtype(),
            contiguous: true,
        };
        dispatch::call_one(op, &[self])
    }

    /// The layout of a new tensor of this shape in a memory format.
    pub(crate) fn layout_in(&self, op: &'static str, format: MemoryFormat) -> Result<Layout> {
        match format {
            MemoryFormat::Preserve => Ok(self.layout().preserved()),
            MemoryFormat::Contiguous => Ok(Layout::contiguous(self.shape().clone())),
            MemoryFormat::ChannelsLast => Layout::channels_last(self.shape()).ok_or_else(|| {
                let what = format!(
                    "channels lie last in tensors of 4 or 5 dimensions, got {}",
                    self.shape()
                );
                fireclay_core::Error::shape(op, what).with_operands(|| vec![self.operand("self")])
            }),
        }
    }

    /// A new tensor with the same elements, which lie in memory as `format` says (`torch.clone(memory_format=)`).
    #[track_caller]
    pub fn copy_in(&self, format: MemoryFormat) -> Result<Tensor> {
        self.layout_in("clone", format)?;
        let op = Copy {
            dtype: self.dtype(),
            contiguous: format != MemoryFormat::Preserve,
        };
        if format != MemoryFormat::ChannelsLast {
            return dispatch::call_one(op, &[self]);
        }
        let moved = self.movedim(&[1], &[-1])?;
        dispatch::call_one(op, &[&moved])?.movedim(&[-1], &[1])
    }

    /// This tensor if its elements lie as `format` says, else a copy whose do (`Tensor.contiguous(memory_format=)`).
    #[track_caller]
    pub fn contiguous_in(&self, format: MemoryFormat) -> Result<Tensor> {
        let layout = self.layout_in("contiguous", format)?;
        let dims = self
            .strides()
            .iter()
            .zip(layout.strides())
            .zip(self.shape().iter());
        let lies_so = self.numel() == 0
            || dims
                .into_iter()
                .all(|((own, wanted), &size)| size == 1 || own == wanted);
        match lies_so || format == MemoryFormat::Preserve {
            true => Ok(self.clone()),
            false => self.copy_in(format),
        }
    }

    /// This tensor if its elements fill its storage from the start on without gaps, in whatever order of dimensions, else a
    /// copy whose do: what can be copied to another device as it is.
    pub(crate) fn packed(&self) -> Result<Tensor> {
        if self.layout().offset() == 0 && *self.layout() == self.layout().preserved() {
            return Ok(self.clone());
        }
        self.copy()
    }

    /// The elements as `dtype`: this very tensor if it is so already (`Tensor.to(dtype)`).
    ///
    /// Floats are cut towards zero on their way to whole numbers, and rounded to nearest even between float types; anything
    /// but zero is true.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let op = Copy {
            dtype,
            contiguous: false,
        };
        dispatch::call_one(op, &[self])
    }

    /// The tensor on `device` (a [`Device`] or its name): this very tensor if it is there already (`Tensor.to(device)`).
    #[track_caller]
    pub fn to(&self, device: impl IntoDevice) -> Result<Tensor> {
        let device = device.into_device()?;
        if self.device() == device {
            return Ok(self.clone());
        }
        crate::device::check_available(device)?;
        let op = To {
            from: self.device(),
            to: device,
        };
        let moved = dispatch::call_one(op, &[self])?;
        Ok(moved)
    }

    /// `to("cpu")`.
    #[track_caller]
    pub fn cpu(&self) -> Result<Tensor> {
        self.to(Device::Cpu)
    }

    /// `to("cuda")`: the current CUDA device.
    #[track_caller]
    pub fn cuda(&self) -> Result<Tensor> {
        self.to(Device::cuda())
    }

    /// Writes `source`, broadcast and cast, over the elements of this tensor (`Tensor.copy_`).
    #[track_caller]
    pub fn copy_(&self, source: &Tensor) -> Result<Tensor> {
        write(&source.to(self.device())?, self)?;
        Ok(self.clone())
    }
}
