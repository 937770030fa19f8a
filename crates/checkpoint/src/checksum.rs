//! Checksums of a checkpoint's entries and of the rest of its header, kept in the file's metadata.
//!
//! Note [Checksums in a safetensors file]
//! The metadata has two texts of Fireclay's own:
//! - `fireclay`: JSON with `version`, `crc32` (for each entry the CRC-32 of its bytes) and, for a training state,
//!   `training`;
//! - `fireclay.crc32`: the CRC-32 of names, dtypes, shapes and of all other metadata.
//!
//! Both CRCs are independent of where things stand in the file, so a tool that writes the same content anew keeps them
//! valid. One that changes tensors but hands the metadata on makes them wrong, and is told so. A file without the two
//! texts is not checked.

use std::collections::BTreeMap;
use std::path::Path;

use fireclay_core::{DType, Error, Result, Shape};
use serde_json::{Map, Value, json};

/// The key of Fireclay's own JSON.
pub(crate) const FIRECLAY_KEY: &str = "fireclay";
/// The key of the checksum of the header.
pub(crate) const HEADER_KEY: &str = "fireclay.crc32";
/// What this version writes, and the newest it reads.
const VERSION: u64 = 1;

/// The checksums of each entry, by name.
pub(crate) type EntryChecksums = BTreeMap<String, u32>;

/// The metadata as it is written: the user's, with the checksums and the training state's JSON added.
pub(crate) fn sealed_metadata<'a>(
    user: &BTreeMap<String, String>,
    training: Option<&Value>,
    entries: impl Iterator<Item = (&'a str, DType, &'a Shape)>,
    checksums: &EntryChecksums,
) -> BTreeMap<String, String> {
    let table: Map<String, Value> = checksums
        .iter()
        .map(|(name, &checksum)| (name.clone(), Value::String(hex(checksum))))
        .collect();
    let mut own = json!({ "version": VERSION, "crc32": table });
    if let Some(training) = training {
        own["training"] = training.clone();
    }
    let mut metadata = user.clone();
    metadata.insert(FIRECLAY_KEY.into(), own.to_string());
    let header = header_checksum(&metadata, entries);
    metadata.insert(HEADER_KEY.into(), hex(header));
    metadata
}

/// What [`opened_metadata`] finds.
#[derive(Default)]
pub(crate) struct Opened {
    /// The user's metadata.
    pub(crate) user: BTreeMap<String, String>,
    /// The training state's JSON, if there is one.
    pub(crate) training: Option<Value>,
    /// Empty for a file that Fireclay didn't write.
    pub(crate) checksums: EntryChecksums,
}

/// Takes the metadata of a file apart, and checks the header's checksum. `entries` come in the order of their names.
pub(crate) fn opened_metadata<'a>(
    mut metadata: BTreeMap<String, String>,
    entries: impl Iterator<Item = (&'a str, DType, &'a Shape)>,
    path: &Path,
) -> Result<Opened> {
    let header = metadata.remove(HEADER_KEY);
    if header.is_none() && !metadata.contains_key(FIRECLAY_KEY) {
        return Ok(Opened {
            user: metadata,
            ..Opened::default()
        });
    }
    let expected = header_checksum(&metadata, entries);
    let found = header.as_deref().and_then(from_hex);
    if found != Some(expected) {
        let found = header.unwrap_or_else(|| "none".into());
        return Err(altered(
            path,
            format!(
                "the checksum of the header is wrong, expected {}, got {found}",
                hex(expected)
            ),
        ));
    }
    // From here on the text is what Fireclay wrote, if maybe a newer one.
    let own = metadata.remove(FIRECLAY_KEY).unwrap_or_default();
    let unknown = |what: String| Error::InvalidFile {
        path: path.into(),
        what,
        hint: "it was written by another version of Fireclay; load it with that one".into(),
    };
    let mut own: Value = serde_json::from_str(&own)
        .map_err(|error| unknown(format!("the metadata \"fireclay\" is not JSON: {error}")))?;
    let version = own["version"].as_u64();
    if version != Some(VERSION) {
        return Err(unknown(format!(
            "the metadata \"fireclay\" has version {}, expected {VERSION}",
            own["version"]
        )));
    }
    let checksums = own["crc32"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, text)| Some((name.clone(), from_hex(text.as_str()?)?)))
        .collect::<Option<EntryChecksums>>()
        .ok_or_else(|| unknown("the checksums of the entries cannot be read".into()))?;
    let training = own.get_mut("training").map(Value::take);
    Ok(Opened {
        user: metadata,
        training,
        checksums,
    })
}

/// The error of content that isn't what was written.
pub(crate) fn altered(path: &Path, what: String) -> Error {
    Error::InvalidFile {
        path: path.into(),
        what,
        hint: "the file was damaged or altered after it was written; use an earlier checkpoint. If a tool changed it on \
               purpose, have it drop the metadata \"fireclay\" and \"fireclay.crc32\""
            .into(),
    }
}

pub(crate) fn hex(checksum: u32) -> String {
    format!("{checksum:08x}")
}

fn from_hex(text: &str) -> Option<u32> {
    let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(text, 16).ok())?
}

/// Over each text with its length before it, so that no two contents give the same bytes.
fn header_checksum<'a>(
    metadata: &BTreeMap<String, String>,
    entries: impl Iterator<Item = (&'a str, DType, &'a Shape)>,
) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    for (name, dtype, shape) in entries {
        add(name);
        add(dtype.name());
        add(&shape.to_string());
    }
    for (key, value) in metadata {
        add(key);
        add(value);
    }
    hasher.finalize()
}
