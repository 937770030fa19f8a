//! Modules: what holds parameters and computes with them, after `torch.nn`.
//!
//! A module is a struct with `#[derive(Module)]` and an implementation of [`Module`]; [`ModuleExt`] then lists, moves, saves and
//! loads all that is in it. Layers have one pattern: `new` takes PyTorch's required arguments, `with` also a config struct:
//!
//! ```
//! use fireclay_nn::{Conv2d, Conv2dConfig, Flatten, Linear, MaxPool2d, Module, ReLU, sequential};
//! use fireclay_tensor::Tensor;
//!
//! # fn main() -> fireclay_tensor::Result<()> {
//! let padded = Conv2dConfig { padding: [1, 1], ..Default::default() };
//! let model = sequential![
//!     Conv2d::with(1, 8, 3, padded)?,
//!     ReLU,
//!     MaxPool2d::new(2),
//!     Flatten::new(),
//!     Linear::new(8 * 14 * 14, 10)?,
//! ];
//! let scores = model.forward(&Tensor::zeros(&[2, 1, 28, 28], "cpu")?)?;
//! assert_eq!(&scores.shape()[..], [2, 10]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

// The derive names the traits as `::fireclay_nn`, also for this crate's own layers.
extern crate self as fireclay_nn;

mod field;
pub mod init;
mod layers;
mod load;
pub mod losses;
mod mode;
mod module;
mod parameter_vector;
pub mod rnn;
mod within;

pub use field::{Field, FieldVisitor};
pub use fireclay_nn_derive::Module;
pub use fireclay_tensor::{Buffer, Parameter};
pub use layers::*;
pub use load::{LoadReport, strip_prefix};
pub use losses::{
    BCELoss, BCEWithLogitsLoss, CTCLoss, CosineEmbeddingLoss, CrossEntropyLoss, GaussianNLLLoss,
    HingeEmbeddingLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, MarginRankingLoss,
    MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss, PoissonNLLLoss,
    SmoothL1Loss, SoftMarginLoss, TripletMarginLoss,
};
pub use mode::Mode;
pub use module::{Module, ModuleExt, ModuleFields};
pub use parameter_vector::{parameters_to_vector, vector_to_parameters};
