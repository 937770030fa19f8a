//! `Checkpoint`: named tensors with text metadata, in memory or in a mapped file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fireclay_core::{DType, Device, Error, IntoDevice, Result, Shape, StateEntry, state_dict};
use fireclay_cpu::mapped_file::MappedFile;
use fireclay_tensor::{Tensor, no_grad};
use serde_json::Value;

use crate::checksum::{altered, hex};

/// Names of entries that start so are Fireclay's own: the parts of a training state beside the model.
pub(crate) const RESERVED_PREFIX: &str = "fireclay.";

/// Named tensors, with metadata: texts by name. Entries put in are in memory; those of a [`load`](crate::load)ed file stay
/// there until they are asked for.
#[derive(Clone, Default)]
pub struct Checkpoint {
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The JSON of a training state.
    pub(crate) training: Option<Value>,
    /// Where it was loaded from.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Clone)]
pub(crate) enum Entry {
    Tensor(Tensor),
    Mapped(MappedEntry),
}

/// An entry whose bytes are in a file.
#[derive(Clone)]
pub(crate) struct MappedEntry {
    pub(crate) file: Arc<MappedFile>,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Where in the file; checked to lie within it.
    pub(crate) range: Range<usize>,
    /// Of the bytes, as the file says; None if it says nothing.
    pub(crate) checksum: Option<u32>,
}

impl Checkpoint {
    /// A checkpoint without entries.
    pub fn new() -> Checkpoint {
        Checkpoint::default()
    }

    /// A checkpoint of a state dict: names with tensors.
    ///
    /// # Errors
    /// As [`insert`](Checkpoint::insert).
    pub fn from_state_dict<'a, N: Into<String>>(
        state_dict: impl IntoIterator<Item = (N, &'a Tensor)>,
    ) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new();
        for (name, tensor) in state_dict {
            checkpoint.insert(name, tensor)?;
        }
        Ok(checkpoint)
    }

    /// Adds an entry: the tensor itself, not a copy of it; what it holds when the checkpoint is saved is what is saved.
    ///
    /// # Errors
    /// A name that is there already or is reserved (`__metadata__`, or starting with `fireclay.`), a dtype that safetensors
    /// files cannot hold (c128).
    pub fn insert(&mut self, name: impl Into<String>, tensor: &Tensor) -> Result<()> {
        let name = name.into();
        if name.starts_with(RESERVED_PREFIX) {
            return Err(Error::argument(
                "checkpoint",
                format!("the name {name:?} is reserved: it starts with \"{RESERVED_PREFIX}\""),
            ));
        }
        self.insert_any(name, tensor)
    }

    pub(crate) fn insert_any(&mut self, name: String, tensor: &Tensor) -> Result<()> {
        if name == "__metadata__" {
            return Err(Error::argument(
                "checkpoint",
                "the name \"__metadata__\" is reserved by the file format",
            ));
        }
        if tensor.dtype() == DType::C128 {
            return Err(Error::dtype(
                "checkpoint",
                format!("entry {name:?} is c128, which safetensors files cannot hold"),
            )
            .with_operands(|| vec![tensor.operand(name)]));
        }
        if self.entries.contains_key(&name) {
            return Err(Error::argument(
                "checkpoint",
                format!("there are two entries {name:?}"),
            ));
        }
        self.entries.insert(name, Entry::Tensor(tensor.clone()));
        Ok(())
    }

    /// The texts by name, without Fireclay's own.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Sets a text.
    ///
    /// # Errors
    /// A reserved key: `fireclay`, or one that starts with `fireclay.`.
    pub fn set_metadata(&mut self, key: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let key = key.into();
        if key == crate::checksum::FIRECLAY_KEY || key.starts_with(RESERVED_PREFIX) {
            return Err(Error::argument(
                "checkpoint",
                format!("the metadata key {key:?} is reserved"),
            ));
        }
        self.metadata.insert(key, value.into());
        Ok(())
    }

    /// The names of all entries, sorted; those of a training state beside the model start with `fireclay.`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Names, shapes and dtypes of the model's entries: all but those of a training state beside the model.
    pub fn model_entries(&self) -> Vec<StateEntry> {
        self.entries
            .iter()
            .filter(|(name, _)| !name.starts_with(RESERVED_PREFIX))
            .map(|(name, entry)| StateEntry::new(name, entry.shape().clone(), entry.dtype()))
            .collect()
    }

    /// The JSON of its training state, if it has one: what [`TrainingState`](crate::TrainingState) is made of, and what
    /// `extra` says the file is of.
    pub fn training(&self) -> Option<&Value> {
        self.training.as_ref()
    }

    /// The tensor of a name, on `device`: one in memory as it is if it is there, one in a file read from it.
    ///
    /// # Errors
    /// No such entry, bytes that are not what was written, or a device that cannot take them.
    #[track_caller]
    pub fn tensor(&self, name: &str, device: impl IntoDevice) -> Result<Tensor> {
        let device = device.into_device()?;
        let entry = self.entries.get(name).ok_or_else(|| self.no_entry(name))?;
        self.verify(name, entry)?;
        entry.read(device)
    }

    /// Copies the model's entries into these tensors, whose names, shapes and dtypes they must have (strict
    /// `load_state_dict`). `what` is what the tensors belong to, as "the model". One tensor is read at a time.
    ///
    /// # Errors
    /// [`Error::StateDictMismatch`] with all that does not fit, or an entry whose bytes are not what was written. In either
    /// case no tensor has been changed.
    pub fn load_into(&self, what: &str, targets: &[(String, Tensor)]) -> Result<()> {
        let expected: Vec<StateEntry> = targets
            .iter()
            .map(|(name, target)| StateEntry::new(name, target.shape().clone(), target.dtype()))
            .collect();
        state_dict::compare(what, &expected, &self.model_entries())?;
        for (name, _) in targets {
            self.verify(name, &self.entries[name])?;
        }
        no_grad(|| {
            for (name, target) in targets {
                target.copy_(&self.entries[name].read(target.device())?)?;
            }
            Ok(())
        })
    }

    /// Where it was loaded from.
    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("(in memory)"))
    }

    fn no_entry(&self, name: &str) -> Error {
        let names: Vec<String> = self.entries.keys().cloned().collect();
        let hint = state_dict::hint(&[name.to_owned()], &names);
        Error::argument(
            "checkpoint",
            format!(
                "{} has no entry {name:?} among its {}",
                self.path().display(),
                names.len()
            ),
        )
        .with_hint(hint)
    }

    /// Checks an entry's bytes against their checksum.
    fn verify(&self, name: &str, entry: &Entry) -> Result<()> {
        let Entry::Mapped(entry) = entry else {
            return Ok(());
        };
        let Some(expected) = entry.checksum else {
            return Ok(());
        };
        let found = crc32fast::hash(entry.bytes());
        if found == expected {
            return Ok(());
        }
        Err(altered(
            self.path(),
            format!(
                "the bytes of entry {name:?} are not those written: expected checksum {}, got {}",
                hex(expected),
                hex(found)
            ),
        ))
    }
}

impl Entry {
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Entry::Tensor(tensor) => tensor.dtype(),
            Entry::Mapped(entry) => entry.dtype,
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Entry::Tensor(tensor) => tensor.shape(),
            Entry::Mapped(entry) => &entry.shape,
        }
    }

    #[track_caller]
    fn read(&self, device: Device) -> Result<Tensor> {
        match self {
            Entry::Tensor(tensor) => tensor.to(device),
            Entry::Mapped(entry) => {
                Tensor::from_bytes(entry.bytes(), &entry.shape, entry.dtype, device)
            }
        }
    }

    /// Hands out the elements' bytes in order, piece by piece: no second copy of a large tensor is made.
    pub(crate) fn for_each_piece(&self, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let tensor = match self {
            Entry::Tensor(tensor) => tensor,
            Entry::Mapped(entry) => return visit(entry.bytes()),
        };
        let piece = PIECE_NBYTES / tensor.dtype().size();
        if tensor.numel() <= piece || !tensor.is_contiguous() {
            return visit(&tensor.to_bytes()?);
        }
        no_grad(|| {
            let flat = tensor.view(&[-1])?;
            for start in (0..flat.numel()).step_by(piece) {
                let length = piece.min(flat.numel() - start);
                visit(&flat.narrow(0, start, length)?.to_bytes()?)?;
            }
            Ok(())
        })
    }
}

/// Bytes of a piece of a large tensor.
const PIECE_NBYTES: usize = 1 << 22;

impl MappedEntry {
    fn bytes(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self
            .entries
            .iter()
            .map(|(name, entry)| (name, format!("{}{}", entry.dtype(), entry.shape())));
        f.debug_map().entries(entries).finish()
    }
}
