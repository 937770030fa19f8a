//! `TrainingState`: all that a run needs to go on to the same bits, in one safetensors file.
//!
//! Note [Training states in a safetensors file]
//! The model's entries have their plain names, as PyTorch's state dict has
//! them, so any tool can read the weights. The optimizer's tensors are entries `fireclay.optimizer/<name>`. Everything
//! else is JSON: `training` in Fireclay's own metadata (see Note [Checksums in a safetensors file]).

use std::path::Path;

use fireclay_core::{Error, IntoDevice, LoaderState, Result, RngState};
use fireclay_tensor::Tensor;
use serde_json::{Map, Value, json};

use crate::checkpoint::{Checkpoint, RESERVED_PREFIX};
use crate::safetensors_file::{load, save};

const OPTIMIZER_PREFIX: &str = "fireclay.optimizer/";

/// Where a training run stands.
///
/// JSON has no infinities and NaNs: `serde_json` turns them into null. Floats come back to the same bits.
#[derive(Clone, Default)]
pub struct TrainingState {
    /// The model's state dict.
    pub model: Vec<(String, Tensor)>,
    /// The optimizer's state.
    pub optimizer: OptimizerState,
    /// The learning rate scheduler's state; null if there is none.
    pub scheduler: Value,
    /// The random generator's state.
    pub rng: RngState,
    /// The loader's position.
    pub loader: LoaderState,
    /// Anything else: epochs done, best accuracy, the command line, ...
    pub extra: Map<String, Value>,
}

/// An optimizer's state: tensors by name (as `fc.weight/exp_avg`), and numbers (learning rate, groups, steps).
#[derive(Clone, Default)]
pub struct OptimizerState {
    /// The tensors.
    pub tensors: Vec<(String, Tensor)>,
    /// Everything else.
    pub values: Value,
}

impl TrainingState {
    /// Writes it to one file, as [`save`] does.
    ///
    /// # Errors
    /// As [`save`]; names that come twice or are reserved.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        save(path, &self.to_checkpoint()?)
    }

    /// Reads it from its file, all tensors onto `device`.
    ///
    /// # Errors
    /// As [`load`]; a file without a training state; bytes that are not those written.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>, device: impl IntoDevice) -> Result<TrainingState> {
        let device = device.into_device()?;
        TrainingState::from_checkpoint(&load(path)?, device)
    }

    /// The checkpoint that [`save`](TrainingState::save) writes.
    ///
    /// # Errors
    /// Names that come twice or are reserved.
    pub fn to_checkpoint(&self) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new();
        for (name, tensor) in &self.model {
            checkpoint.insert(name, tensor)?;
        }
        for (name, tensor) in &self.optimizer.tensors {
            checkpoint.insert_any(format!("{OPTIMIZER_PREFIX}{name}"), tensor)?;
        }
        checkpoint.training = Some(json!({
            "optimizer": self.optimizer.values,
            "scheduler": self.scheduler,
            "rng": { "seed": self.rng.seed, "offset": self.rng.offset },
            "loader": {
                "seed": self.loader.seed,
                "epoch": self.loader.epoch,
                "batch": self.loader.batch,
            },
            "extra": self.extra,
        }));
        Ok(checkpoint)
    }

    /// The state in a loaded file, all tensors on `device`. Give [`Checkpoint::load_into`] the file instead to have the
    /// model's tensors copied into existing ones.
    ///
    /// # Errors
    /// As [`load`](TrainingState::load).
    #[track_caller]
    pub fn from_checkpoint(
        checkpoint: &Checkpoint,
        device: impl IntoDevice,
    ) -> Result<TrainingState> {
        let device = device.into_device()?;
        let Some(training) = &checkpoint.training else {
            return Err(Error::InvalidFile {
                path: checkpoint.path().into(),
                what: "it holds tensors but no training state".into(),
                hint: "take its weights alone with load_model, or resume from a file that a training run saved".into(),
            });
        };
        let number = |section: &str, key: &str| {
            training[section][key]
                .as_u64()
                .ok_or_else(|| Error::InvalidFile {
                    path: checkpoint.path().into(),
                    what: format!(
                        "{section}.{key} of the training state is {}, expected a whole number",
                        training[section][key]
                    ),
                    hint: "it was written by another version of Fireclay; load it with that one"
                        .into(),
                })
        };
        let mut state = TrainingState {
            model: model_tensors(checkpoint, device)?,
            optimizer: OptimizerState {
                tensors: Vec::new(),
                values: training["optimizer"].clone(),
            },
            scheduler: training["scheduler"].clone(),
            rng: RngState {
                seed: number("rng", "seed")?,
                offset: number("rng", "offset")?,
            },
            loader: LoaderState {
                seed: number("loader", "seed")?,
                epoch: number("loader", "epoch")?,
                batch: number("loader", "batch")? as usize,
            },
            extra: training["extra"].as_object().cloned().unwrap_or_default(),
        };
        for name in checkpoint.names() {
            if let Some(short) = name.strip_prefix(OPTIMIZER_PREFIX) {
                let tensor = checkpoint.tensor(name, device)?;
                state.optimizer.tensors.push((short.to_owned(), tensor));
            }
        }
        Ok(state)
    }
}

/// The model's state dict of any safetensors file, onto `device`: all entries but those of a training state beside the
/// model, sorted by name.
///
/// # Errors
/// As [`load`]; bytes that are not those written.
#[track_caller]
pub fn load_model(
    path: impl AsRef<Path>,
    device: impl IntoDevice,
) -> Result<Vec<(String, Tensor)>> {
    model_tensors(&load(path)?, device)
}

#[track_caller]
fn model_tensors(
    checkpoint: &Checkpoint,
    device: impl IntoDevice,
) -> Result<Vec<(String, Tensor)>> {
    let device = device.into_device()?;
    let mut tensors = Vec::new();
    for name in checkpoint.names() {
        if !name.starts_with(RESERVED_PREFIX) {
            tensors.push((name.to_owned(), checkpoint.tensor(name, device)?));
        }
    }
    Ok(tensors)
}
