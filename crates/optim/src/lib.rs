//! Optimizers, learning-rate schedules and gradient clipping, after `torch.optim`.
//!
//! ```
//! use fireclay_optim::{AdamW, AdamWOptions, CosineAnnealingLR, Optimizer, Scheduler, clip_grad_norm_};
//! use fireclay_tensor::{Parameter, Tensor};
//!
//! # fn main() -> fireclay_tensor::Result<()> {
//! let weight = Parameter::new(Tensor::ones(&[4], "cpu")?)?;
//! let parameters = [weight.clone()];
//! let mut optimizer = AdamW::new(parameters.clone(), AdamWOptions { lr: 0.1, ..Default::default() })?;
//! let mut scheduler = Scheduler::new(&mut optimizer, CosineAnnealingLR { t_max: 10, eta_min: 0.0 })?;
//! for _ in 0..10 {
//!     optimizer.zero_grad();
//!     let loss = weight.tensor().square()?.mean_all()?;
//!     loss.backward()?;
//!     clip_grad_norm_(&parameters, 1.0)?;
//!     optimizer.step()?;
//!     scheduler.step(&mut optimizer)?;
//! }
//! assert!(weight.tensor().square()?.mean_all()?.item()? < 0.3);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod accumulate;
mod adam;
mod adaptive;
mod averaged;
mod averaged_model;
mod clip;
mod fused;
mod grad_scaler;
mod lbfgs;
mod matrix;
mod optimizer;
mod options;
mod plateau;
mod schedule;
mod scheduler;
mod sgd;

pub use accumulate::Accumulate;
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use adaptive::{
    Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, Adamax, AdamaxOptions, NAdam, NAdamOptions,
    RAdam, RAdamOptions, RMSprop, RMSpropOptions,
};
pub use averaged::{ASGD, ASGDOptions, Rprop, RpropOptions};
pub use averaged_model::{AveragedModel, Averaging};
pub use clip::{ClipNorm, clip_grad_norm_, clip_grad_norm_with, clip_grad_value_};
pub use fused::{Batch, Fused, Rule};
pub use grad_scaler::{GradScaler, GradScalerOptions};
pub use lbfgs::{LBFGS, LBFGSOptions};
pub use matrix::{Adafactor, AdafactorOptions, AdjustLr, Muon, MuonOptions};
pub use optimizer::Optimizer;
pub use plateau::{PlateauMode, PlateauOptions, ReduceLROnPlateau, Threshold};
pub use schedule::{
    Anneal, ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR,
    CyclicMode, ExponentialLR, LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR, OneCycleLR,
    PerGroup, PolynomialLR, SWALR, Schedule, SequentialLR, StepLR, warmup_cosine,
};
pub use scheduler::Scheduler;
pub use sgd::{SGD, SGDOptions};
