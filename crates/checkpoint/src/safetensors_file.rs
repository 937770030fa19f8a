//! Saving and loading a [`Checkpoint`] as a safetensors file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use fireclay_core::{Error, Result};
use fireclay_cpu::mapped_file::MappedFile;

use crate::atomic_file::AtomicFile;
use crate::checkpoint::{Checkpoint, Entry, MappedEntry};
use crate::checksum::{self, EntryChecksums};
use crate::header::{self, EntryHeader};

// The format is little endian, and tensors give their bytes as the machine has them.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "checkpoints on big-endian machines are not supported yet: bytes would have to be swapped here"
);

/// Writes a safetensors file: to a temporary file in the same folder, synced, then put in place of `path`. So `path` has
/// the old content or the new one at any time, also if the machine stops. The same checkpoint gives the same bytes.
///
/// # Errors
/// [`Error::Io`] with the system's reason, as a full disk or a missing folder: a file that was at `path` is untouched, and
/// the temporary file is removed.
pub fn save(path: impl AsRef<Path>, checkpoint: &Checkpoint) -> Result<()> {
    let path = path.as_ref();
    let plan = plan(checkpoint);
    let unwritable = |what| Error::InvalidArgument {
        op: "save",
        what,
        context: Box::default(),
    };

    // Checksums are known once the bytes have been written: the header is written twice, in the same length.
    let mut checksums: EntryChecksums = checkpoint
        .names()
        .map(|name| (name.to_owned(), 0))
        .collect();
    let header = sealed_header(checkpoint, &plan, &checksums).map_err(unwritable)?;
    let mut file = AtomicFile::create(path)?;
    file.write(&header)?;
    for (name, entry, _) in &plan {
        let mut hasher = crc32fast::Hasher::new();
        entry.for_each_piece(|piece| {
            hasher.update(piece);
            file.write(piece)
        })?;
        checksums.insert((*name).to_owned(), hasher.finalize());
    }
    let sealed = sealed_header(checkpoint, &plan, &checksums).map_err(unwritable)?;
    assert_eq!(sealed.len(), header.len(), "checksums have a fixed width");
    file.write_at_start(&sealed)?;
    file.commit()
}

/// Opens a safetensors file: its header is read and checked, its tensors when they are asked for. The file is mapped, and
/// may be replaced meanwhile ([`save`] does so), but must not be written into or cut short: see
/// [`fireclay_cpu::mapped_file`].
///
/// # Errors
/// A file that cannot be opened, or one that is not valid: with what is wrong, expected and found.
pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint> {
    let path = path.as_ref();
    let unreadable = |source: std::io::Error| Error::Io {
        action: "reading",
        path: path.into(),
        hint: match source.kind() {
            std::io::ErrorKind::NotFound => "check the path".into(),
            _ => String::new(),
        },
        source,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Error::InvalidFile {
            path: path.into(),
            what: "it is a folder or a device, expected a file".into(),
            hint: "give the path of a .safetensors file".into(),
        });
    }
    let header = header::read(&mut file, path)?;
    let mapped = Arc::new(MappedFile::map(&file).map_err(unreadable)?);
    let facts = header
        .entries
        .iter()
        .map(|(name, entry)| (name.as_str(), entry.dtype, &entry.shape));
    let opened = checksum::opened_metadata(header.metadata, facts, path)?;

    let mut entries = BTreeMap::new();
    for (name, entry) in header.entries {
        if entry.range.end > mapped.len() {
            return Err(Error::InvalidFile {
                path: path.into(),
                what: format!(
                    "it was cut to {} bytes while it was being opened",
                    mapped.len()
                ),
                hint: "load it again when nobody writes to it".into(),
            });
        }
        let checksum = opened.checksums.get(&name).copied();
        entries.insert(
            name,
            Entry::Mapped(MappedEntry {
                file: mapped.clone(),
                dtype: entry.dtype,
                shape: entry.shape,
                range: entry.range,
                checksum,
            }),
        );
    }
    Ok(Checkpoint {
        entries,
        metadata: opened.user,
        training: opened.training,
        path: Some(path.into()),
    })
}

type Plan<'a> = Vec<(&'a str, &'a Entry, EntryHeader)>;

/// The entries in the order of their bytes: large elements first, so that all are aligned, then by name.
fn plan(checkpoint: &Checkpoint) -> Plan<'_> {
    let mut entries: Vec<(&String, &Entry)> = checkpoint.entries.iter().collect();
    entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.dtype().size()));
    let mut end = 0;
    entries
        .into_iter()
        .map(|(name, entry)| {
            let start = end;
            end += entry.shape().numel() * entry.dtype().size();
            let header = EntryHeader {
                dtype: entry.dtype(),
                shape: entry.shape().clone(),
                range: start..end,
            };
            (name.as_str(), entry, header)
        })
        .collect()
}

fn sealed_header(
    checkpoint: &Checkpoint,
    plan: &Plan<'_>,
    checksums: &EntryChecksums,
) -> std::result::Result<Vec<u8>, String> {
    let facts = checkpoint
        .entries
        .iter()
        .map(|(name, entry)| (name.as_str(), entry.dtype(), entry.shape()));
    let metadata = checksum::sealed_metadata(
        &checkpoint.metadata,
        checkpoint.training.as_ref(),
        facts,
        checksums,
    );
    header::to_bytes(
        plan.iter().map(|(name, _, header)| (*name, header)),
        &metadata,
    )
}
