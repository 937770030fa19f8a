//! `Op`: what an operation is. One struct per op, whose fields are its arguments.

use std::fmt;

use fireclay_core::{DType, Device, Error, Layout, Result, Shape};
use smallvec::SmallVec;

use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::storage::CpuCall;
use crate::tensor::Tensor;

/// Shape, strides, dtype and device of an input, without its data.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// Shape and strides.
    pub layout: &'a Layout,
    /// Type of the elements.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
}

impl Meta<'_> {
    /// The sizes.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }
}

/// Layout and dtype of an output to be allocated.
#[derive(Clone, Debug)]
pub struct OutputMeta {
    /// Shape and strides; the offset is 0.
    pub layout: Layout,
    /// Type of the elements.
    pub dtype: DType,
}

impl OutputMeta {
    /// A contiguous output.
    pub fn contiguous(shape: Shape, dtype: DType) -> OutputMeta {
        OutputMeta {
            layout: Layout::contiguous(shape),
            dtype,
        }
    }
}

/// What an op's output rule gives: one entry per output.
pub type OutputMetas = SmallVec<[OutputMeta; 2]>;
/// The tensors an op gives.
pub type Outputs = SmallVec<[Tensor; 2]>;
/// Gradients of an op's inputs; None where there is none.
pub type Grads = SmallVec<[Option<Tensor>; 3]>;

/// Which of an op's tensors its backward needs: a set of inputs and outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saves {
    inputs: u32,
    outputs: u32,
}

impl Saves {
    /// Nothing but shapes.
    pub const NONE: Saves = Saves {
        inputs: 0,
        outputs: 0,
    };
    /// All inputs.
    pub const INPUTS: Saves = Saves {
        inputs: u32::MAX,
        outputs: 0,
    };
    /// All outputs.
    pub const OUTPUTS: Saves = Saves {
        inputs: 0,
        outputs: u32::MAX,
    };
    /// All inputs and outputs.
    pub const ALL: Saves = Saves {
        inputs: u32::MAX,
        outputs: u32::MAX,
    };

    /// These inputs only.
    pub const fn inputs(numbers: &[u32]) -> Saves {
        let mut set = 0;
        let mut at = 0;
        while at < numbers.len() {
            set |= 1 << numbers[at];
            at += 1;
        }
        Saves {
            inputs: set,
            outputs: 0,
        }
    }

    /// These inputs, and these outputs.
    pub const fn and_outputs(self, numbers: &[u32]) -> Saves {
        Saves {
            inputs: self.inputs,
            outputs: Saves::inputs(numbers).inputs,
        }
    }

    /// Whether input `index` is among them. Ops of more than 31 inputs save all or none.
    pub fn has_input(self, index: usize) -> bool {
        self.inputs >> index.min(31) & 1 == 1
    }

    /// Whether output `index` is among them.
    pub fn has_output(self, index: usize) -> bool {
        self.outputs >> index.min(31) & 1 == 1
    }
}

/// What autocast does with an op's inputs (it comes with a later release; the class is stated now).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Autocast {
    /// Cast to the low dtype: matrix products and convolutions.
    Low,
    /// Cast to f32: what loses too much in 16 bits.
    F32,
    /// Cast to the widest of the inputs.
    Widest,
    /// Runs in the dtypes that come.
    Keep,
}

impl Autocast {
    /// The class in a word: "low", "f32", "widest" or "keep".
    pub const fn name(self) -> &'static str {
        match self {
            Autocast::Low => "low",
            Autocast::F32 => "f32",
            Autocast::Widest => "widest",
            Autocast::Keep => "keep",
        }
    }
}

/// How a kernel takes its inputs. The door arranges for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelInputs {
    /// Contiguous, 16-bit floats widened to f32 (outputs rounded once): the default.
    Contiguous,
    /// Any strides; 16-bit floats widened as for `Contiguous`.
    Strided,
    /// Contiguous, any dtype: for what only moves elements.
    Packed,
    /// Any strides, any dtype; outputs are contiguous, of the dtypes of the output rule.
    StridedPacked,
    /// As they are: any strides, any dtype, outputs too.
    AsIs,
}

/// An operation: built-in or the user's own. The only way to run one is [`dispatch::call`](crate::dispatch::call).
///
/// Defaults are loud: an op without a kernel or without a derivative says so when it is asked.
pub trait Op: fmt::Debug + Send + Sync + 'static {
    /// The op's name, as in PyTorch.
    fn name(&self) -> &'static str;

    /// The rule that gives each output's shape and dtype, or the error that the inputs deserve.
    ///
    /// It sees no data, so a dry run uses the same rule. The door adds the operands to errors.
    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas>;

    /// For an op that is a view of its first input: the view's layout. Such an op has no kernel.
    fn view(&self, input: &Layout) -> Option<Result<Layout>> {
        let _ = input;
        None
    }

    /// How [`cpu`](Op::cpu) takes its inputs.
    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::Contiguous
    }

    /// Whether the kernel may be given an output that is one of its inputs, element for element. Only kernels of this crate,
    /// which take pointers, can be: slices must not overlap. For others the door copies such an input.
    #[doc(hidden)]
    fn overwrites_inputs(&self, _: sealed::Internal) -> bool {
        false
    }

    /// The device of the outputs, where it is not that of the inputs: for the op that moves.
    #[doc(hidden)]
    fn target(&self, _: sealed::Internal) -> Option<Device> {
        None
    }

    /// Whether it takes tensors without dimensions on the host among operands on a device, as PyTorch's pointwise ops do.
    #[doc(hidden)]
    fn takes_host_numbers(&self, _: sealed::Internal) -> bool {
        false
    }

    /// How [`cuda`](Op::cuda) takes its inputs.
    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    /// As [`cuda_inputs`](Op::cuda_inputs), for these inputs and outputs on a device.
    #[doc(hidden)]
    fn cuda_inputs_of(
        &self,
        inputs: &[&Tensor],
        outputs: &[&Tensor],
        _: sealed::Internal,
    ) -> Result<KernelInputs> {
        let _ = (inputs, outputs);
        Ok(self.cuda_inputs())
    }

    /// The CUDA kernel.
    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        Err(call.no_kernel())
    }

    /// The CPU kernel.
    fn cpu(&self, call: CpuCall<'_>) -> Result<()> {
        let dtype = (call.inputs() > 0).then(|| call.dtype(0));
        Err(Error::NoKernel {
            op: self.name(),
            device: Device::Cpu,
            dtype: dtype.unwrap_or(DType::F32),
            context: Box::default(),
        })
    }

    /// Which tensors backward needs.
    fn saves(&self) -> Saves {
        Saves::NONE
    }

    /// The gradients of the inputs, written in tensor ops so that they can be differentiated again.
    ///
    /// One entry per input; None where [`Backward::needs`] is false or where the gradient is zero everywhere.
    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        Err(Error::NotDifferentiable {
            op: self.name(),
            location: context.location(),
        })
    }

    /// What autocast does with the inputs.
    fn autocast(&self) -> Autocast {
        Autocast::Keep
    }
}

/// Keeps [`Op::overwrites_inputs`] to this crate: nobody else can name its argument.
pub(crate) mod sealed {
    /// Of no use.
    #[derive(Clone, Copy, Debug)]
    pub struct Internal;
}
