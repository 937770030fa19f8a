//! Data for training: files, datasets, samplers, collation and loading. Knows nothing of modules or optimizers.
//!
//! ```
//! use fireclay_data::{DataLoader, Mnist};
//!
//! # fn main() -> fireclay_core::Result<()> {
//! let loader = DataLoader::builder(Mnist::embedded()?)
//!     .batch_size(64)
//!     .shuffle(true)
//!     .workers(2)
//!     .seed(1)
//!     .build()?;
//! for batch in loader.epoch(0).take(2) {
//!     let (images, labels) = batch?;
//!     assert_eq!(images.shape()[..], [64, 1, 28, 28]);
//!     assert_eq!(labels.shape()[..], [64]);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod augment;
pub mod char_text;
pub mod collate;
pub mod dataset;
pub mod digits;
pub mod idx;
pub mod loader;
pub mod mnist;
pub mod sample_rng;
pub mod sampler;
pub mod split;
mod text_file;

pub use augment::Augment;
pub use char_text::{CharText, Passages};
pub use collate::{Collatable, Collate, DefaultCollate};
pub use dataset::{ConcatDataset, Dataset, Map, Subset, TensorDataset};
pub use digits::Digits;
pub use fireclay_core::LoaderState;
pub use loader::{Builder, DataLoader, Epoch};
pub use mnist::Mnist;
pub use sample_rng::SampleRng;
pub use sampler::{RandomSampler, Sampler, SequentialSampler, WeightedRandomSampler};
pub use split::{random_split, stratified_split};
