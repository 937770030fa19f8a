//! The heart of Fireclay: tensors, the one door through which every op runs, autograd, and the ops.

pub mod autograd;
pub mod by_name;
mod creation;
mod cuda_call;
pub mod device;
pub mod dispatch;
mod display;
mod formula;
pub mod function;
mod generator;
pub mod op;
pub mod ops;
mod parameter;
mod precision;
mod state_dict;
mod storage;
mod tensor;

pub use autograd::{
    Backpropagation, Backward, HookHandle, checkpoint, enable_grad, grad, grad_with,
    inference_mode, is_grad_enabled, is_inference_mode, no_grad, set_grad_enabled,
};
pub use cuda_call::CudaCall;
pub use fireclay_core::{
    DType, DefaultDeviceGuard, Device, DeviceOrDefault, Element, Error, IntoDevice, Layout, Made,
    Operand, Origin, Result, Scalar, Shape, ThreadDevices, get_default_device,
};
pub use fireclay_core::{as_one_call, call_site, called_from};
pub use fireclay_cuda::Purpose;
pub use formula::Formula;
pub use function::{Arg, Function, Typing, update};
pub use generator::{Generator, RngState, default_generator, fork_rng, manual_seed};
pub use op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Outputs, Saves};
pub use ops::{
    attention::Attention,
    bounds::Closeness,
    columns::Blocks,
    conv::{Conv2dOptions, ConvOptions},
    conv_nd::ConvTransposeOptions,
    copy::MemoryFormat,
    embedding_bag::{EmbeddingBag, EmbeddingBagMode},
    grid::{GridSample, GridSampleMode, GridSamplePadding},
    index::EmbeddingOptions,
    interpolate::{InterpolateMode, InterpolateTo},
    loss::{CrossEntropy, Reduction},
    loss_ctc::Ctc,
    loss_margin::{MultiMargin, TripletMargin},
    loss_pointwise::{GaussianNll, KlDivReduction, PoissonNll},
    matmul::{Activation, LinearEpilogue},
    norm::BatchNorm,
    normalize::InstanceNorm,
    pad::Pad,
    pool::{AvgPool, AvgPool2d, Pool, Pool2d},
    recurrent::CellWeights,
    scatter_reduce::ScatterReduce,
    search::{Unique, UniqueOptions},
    shape::Indexing,
    subscript::{Ellipsis, Every, Index, IndexNumber, Indices, NewDim},
};
pub use parameter::{Buffer, Moved, Parameter, ParameterId};
pub use precision::{
    Float32MatmulPrecision, allow_tf32, get_float32_matmul_precision, set_allow_tf32,
    set_float32_matmul_precision,
};
pub use state_dict::{StateDict, StateDictReader};
pub use storage::CpuCall;
pub use tensor::Tensor;
