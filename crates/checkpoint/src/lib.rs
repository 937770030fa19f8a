//! Checkpoints: tensors and training states in safetensors files, saved so that nothing is ever half-written, loaded so
//! that nothing is ever half-loaded.
//!
//! - [`Checkpoint`] is named tensors with text metadata; [`save`] and [`load`] are its file.
//! - [`TrainingState`] is all that a run needs to go on to the same bits, in one such file, whose model entries have
//!   plain names for other tools to read; [`load_model`] takes just these.
//!
//! A file carries no devices: whoever loads a tensor says where it goes.
//!
//! ```
//! use fireclay_checkpoint::{Checkpoint, load, save};
//! use fireclay_tensor::Tensor;
//!
//! # fn main() -> fireclay_core::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder for the example");
//! # let path = folder.path().join("model.safetensors");
//! let weight = Tensor::ones(&[2, 3], "cpu")?;
//! save(&path, &Checkpoint::from_state_dict([("fc.weight", &weight)])?)?;
//!
//! let file = load(&path)?;
//! assert_eq!(file.tensor("fc.weight", "cpu")?.to_vec::<f32>()?, [1.0; 6]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod atomic_file;
mod checkpoint;
mod checksum;
mod header;
mod safetensors_file;
mod training;

pub use checkpoint::Checkpoint;
pub use safetensors_file::{load, save};
pub use training::{OptimizerState, TrainingState, load_model};
