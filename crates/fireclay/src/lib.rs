//! PyTorch's model of computing, in Rust: tensors and modules live on the device you put them on; forward, backward and
//! optimizer run there.
//!
//! This crate is the facade: it only names what the others make, so that one dependency is enough.
//!
//! # A training loop
//!
//! As in PyTorch, with `?` where Python raises:
//!
//! ```
//! use fireclay::prelude::*;
//! use fireclay::{data::TensorDataset, nn, optim};
//!
//! #[derive(Module)]
//! struct Net {
//!     hidden: nn::Linear,
//!     output: nn::Linear,
//! }
//!
//! impl Module for Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.output.forward(&self.hidden.forward(x)?.relu()?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! fireclay::manual_seed(0);
//! let device = Device::Cpu;
//! let model = Net { hidden: nn::Linear::new(2, 16)?, output: nn::Linear::new(16, 2)? };
//! model.to(device)?;
//!
//! // Two classes: points inside of a circle, and outside.
//! let points = Tensor::randn(&[256, 2], "cpu")?;
//! let classes = points.square()?.sum(&[1], false)?.gt(1.4)?.to_dtype(DType::I64)?;
//! let dataset = TensorDataset::new(vec![points, classes])?;
//! let loader = DataLoader::builder(dataset).batch_size(32).shuffle(true).workers(2).build()?;
//!
//! let criterion = nn::CrossEntropyLoss::new();
//! let mut optimizer =
//!     optim::AdamW::new(model.parameters(), optim::AdamWOptions { lr: 0.02, ..Default::default() })?;
//! let mut losses = Vec::new();
//! for epoch in 0..20 {
//!     let mut sum = 0.0;
//!     for batch in loader.epoch(epoch) {
//!         let batch = batch?;
//!         let (inputs, targets) = (batch[0].to(device)?, batch[1].to(device)?);
//!         optimizer.zero_grad();
//!         let loss = criterion.forward(&model.forward(&inputs)?, &targets)?;
//!         loss.backward()?;
//!         optimizer.step()?;
//!         sum += loss.item()?;
//!     }
//!     losses.push(sum / loader.len() as f64);
//! }
//! assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
//! # Ok(())
//! # }
//! ```
//!
//! # Formulas
//!
//! A method on a tensor (`a.add(&b)?`) runs at once, as one op. Operators build a [`Formula`], which
//! [`eval`](Formula::eval) runs as one kernel, backward included:
//!
//! ```
//! use fireclay::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let a = Tensor::ones(&[3], "cpu")?.requires_grad_(true)?;
//! let b = Tensor::full(&[3], 2.0, "cpu")?;
//! let y = (&a * &b + 1.0).tanh().eval()?;
//! y.sum_all()?.backward()?;
//! assert_eq!(a.grad().map(|grad| grad.numel()), Some(3));
//! # Ok(())
//! # }
//! ```
//!
//! # Indexing
//!
//! [`i`](Tensor::i) reads and [`set`](Tensor::set) writes what PyTorch's `x[..]` does, for the same expressions:
//!
//! ```
//! use fireclay::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::arange(0.0, 12.0, 1.0, "cpu")?.reshape(&[3, 4])?;
//! assert_eq!(x.i((.., 1..3))?.shape()[..], [3, 2]); // x[:, 1:3]
//! assert_eq!(x.i((-1, (..).every(2)))?.to_vec::<f32>()?, [8.0, 10.0]); // x[-1, ::2]
//! assert_eq!(x.i((NewDim, Ellipsis, [0, 0]))?.shape()[..], [1, 3, 2]); // x[None, ..., [0, 0]]
//! x.set(&x.gt(9.0)?, 0.0)?; // x[x > 9] = 0
//! assert_eq!(x.i(2)?.to_vec::<f32>()?, [8.0, 9.0, 0.0, 0.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Devices
//!
//! A factory takes the device last: a [`Device`], its name, or `None` for the default device, which is the CPU until
//! [`set_default_device`] or, on one thread and for a scope, [`default_device`] says otherwise. Layers made without a
//! config are on the default device. Ops run where their tensors are and never look at it.
//!
//! ```
//! use fireclay::prelude::*;
//! use fireclay::nn;
//!
//! # fn main() -> Result<()> {
//! let x = {
//!     let _guard = fireclay::default_device("cpu")?; // or "cuda:1"
//!     let layer = nn::Linear::new(4, 2)?;
//!     layer.forward(&Tensor::ones(&[3, 4], None)?)?
//! };
//! assert_eq!(x.device(), Device::Cpu);
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! - Tensors, autograd, formulas: here at the root. Ops are methods of [`Tensor`].
//! - [`nn`]: modules, layers, losses, initialisation.
//! - [`optim`]: optimizers, schedules, clipping.
//! - [`data`]: datasets, samplers, the loader, MNIST and the small digits.
//! - [`checkpoint`]: safetensors files and training states.
//! - [`cuda`]: devices and their memory.
//! - [`ops`]: every op by its PyTorch name.
//! - [`op`], [`function`], [`dispatch`]: what an op of your own is made of.
#![forbid(unsafe_code)]

pub use fireclay_cpu::parallel::{set_threads as set_num_threads, threads as num_threads};
pub use fireclay_tensor::device::{check_available, default_device, set_default_device};
pub use fireclay_tensor::{
    Activation, Attention, AvgPool, AvgPool2d, Backpropagation, BatchNorm, Blocks, Conv2dOptions,
    ConvOptions, ConvTransposeOptions, CrossEntropy, Ctc, DType, DefaultDeviceGuard, Device,
    DeviceOrDefault, Element, Ellipsis, EmbeddingBag, EmbeddingBagMode, EmbeddingOptions, Error,
    Every, Float32MatmulPrecision, Formula, GaussianNll, Generator, GridSample, GridSampleMode,
    GridSamplePadding, HookHandle, Index, Indexing, Indices, InstanceNorm, InterpolateMode,
    InterpolateTo, IntoDevice, KlDivReduction, Layout, LinearEpilogue, MemoryFormat, MultiMargin,
    NewDim, Operand, Origin, Pad, PoissonNll, Pool, Pool2d, Reduction, Result, RngState, Scalar,
    ScatterReduce, Shape, StateDict, Tensor, ThreadDevices, TripletMargin, Unique, UniqueOptions,
    default_generator, dispatch, enable_grad, fork_rng, function, get_default_device,
    get_float32_matmul_precision, grad, grad_with, inference_mode, is_grad_enabled,
    is_inference_mode, manual_seed, no_grad, op, set_float32_matmul_precision, set_grad_enabled,
};

/// Modules, layers, losses, initialisation (`torch.nn`).
pub mod nn {
    pub use fireclay_nn::*;
    // The derive macro whose code finds the traits through this crate; it hides the one of the line above.
    pub use fireclay_nn_derive::FacadeModule as Module;
}

/// Optimizers, learning-rate schedules, clipping (`torch.optim`).
pub mod optim {
    pub use fireclay_optim::*;
}

/// Datasets, samplers, the loader (`torch.utils.data`).
pub mod data {
    pub use fireclay_data::*;
}

/// Saving and loading: safetensors files and training states.
pub mod checkpoint {
    pub use fireclay_checkpoint::*;
}

/// CUDA devices: which there are, which is current, what their memory is used for (`torch.cuda`).
pub mod cuda {
    pub use fireclay_cuda::memory::{Group, Purpose, Released};
    pub use fireclay_cuda::surface::*;
    pub use fireclay_cuda::vendor::{
        BlasLibrary, ConvLibrary, preferred_blas_library, preferred_conv_library,
        reports as vendor_libraries,
    };
    pub use fireclay_cuda::{Properties, Source};
}

/// Every op by its PyTorch name, with named arguments: for programs that learn only at run time which op to call.
pub mod ops {
    pub use fireclay_tensor::ops::{Entry, Family, Kind, Parameter, Value, call, entries, find};
}

/// How devices compute (`torch.backends`).
pub mod backends {
    /// CUDA devices (`torch.backends.cuda`).
    pub mod cuda {
        /// Matrix products: whether those of f32 may use tf32, and which kernel one of some sizes gets
        /// (`torch.backends.cuda.matmul`).
        pub mod matmul {
            pub use fireclay_cpu::gemm::{GemmShape, MatrixStrides};
            pub use fireclay_tensor::ops::matmul::plan::{Abilities, Kernel, Plan, Tile, plan};
            pub use fireclay_tensor::{allow_tf32, set_allow_tf32};
        }
    }
}

/// What nearly every program uses.
pub mod prelude {
    pub use crate::data::{DataLoader, Dataset};
    pub use crate::nn::{Buffer, Module, ModuleExt, Parameter};
    pub use crate::optim::Optimizer;
    pub use crate::{
        DType, Device, Ellipsis, Error, Every, Formula, NewDim, Result, Tensor, no_grad,
    };
}
