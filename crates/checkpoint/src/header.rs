//! The header of a safetensors file: reading it with every claim checked, and writing it.
//!
//! The format: eight bytes with the length of the header (little endian), the header as JSON, then the entries' bytes
//! without gaps. The header maps names to dtype, shape and the place of the bytes, and `__metadata__` to texts. The
//! crate `safetensors` decides what is valid; what is wrong with an invalid one is found out here, since its errors
//! don't say.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use fireclay_core::{DType, Error, Result, Shape};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde_json::Value;

/// The most bytes of a header, as in the crate `safetensors`.
const MOST_NBYTES: u64 = 100_000_000;
/// The most dimensions, as in PyTorch.
const MOST_DIMS: usize = 64;
/// Bytes of the length before the header.
const LENGTH_NBYTES: u64 = 8;

/// What the header says of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntryHeader {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Where its bytes are in the file.
    pub(crate) range: Range<usize>,
}

/// A header as read.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) entries: BTreeMap<String, EntryHeader>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The header of `file`, which is as long as it says: the ranges of all entries lie within the file.
///
/// It is read into memory, not looked at in the mapping, so it can't change while it is being checked.
pub(crate) fn read(file: &mut File, path: &Path) -> Result<Header> {
    let unreadable = |source| Error::Io {
        action: "reading",
        path: path.into(),
        source,
        hint: String::new(),
    };
    let invalid = |what: String| {
        Error::InvalidFile {
        path: path.into(),
        what: format!("not a valid safetensors file: {what}"),
        hint: "the file is damaged, cut off or of another format; fetch or save it again, or use an earlier checkpoint".into(),
    }
    };
    let file_nbytes = file.metadata().map_err(unreadable)?.len();
    if file_nbytes < LENGTH_NBYTES {
        return Err(invalid(format!(
            "it has {file_nbytes} bytes, expected at least 8 for the length of the header"
        )));
    }
    let mut length = [0; LENGTH_NBYTES as usize];
    file.read_exact(&mut length).map_err(unreadable)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_NBYTES {
        return Err(invalid(format!(
            "the header's length is {length} bytes, expected at most {MOST_NBYTES}"
        )));
    }
    if length > file_nbytes - LENGTH_NBYTES {
        return Err(invalid(format!(
            "the header's length is {length} bytes, expected at most the {} that the file has after it",
            file_nbytes - LENGTH_NBYTES
        )));
    }
    let mut json = vec![0; length as usize];
    file.read_exact(&mut json).map_err(unreadable)?;
    let header: Metadata = serde_json::from_slice(&json)
        .map_err(|error| invalid(explain(&json).unwrap_or_else(|| error.to_string())))?;

    let data_start = LENGTH_NBYTES + length;
    let (expected, found) = (header.data_len() as u64, file_nbytes - data_start);
    if expected != found {
        return Err(invalid(format!(
            "the entries take {expected} bytes, expected as many as the file has after its header, got {found}"
        )));
    }
    let mut entries = BTreeMap::new();
    for (name, info) in header.tensors() {
        let entry = (|| {
            let start = data_start as usize;
            Ok(EntryHeader {
                dtype: dtype_of(info.dtype)
                    .ok_or_else(|| format!("dtype {}, which Fireclay does not have", info.dtype))?,
                shape: checked_shape(&info.shape)?,
                range: start + info.data_offsets.0..start + info.data_offsets.1,
            })
        })();
        let entry = entry.map_err(|what: String| invalid(format!("entry {name:?} has {what}")))?;
        entries.insert(name, entry);
    }
    let metadata = header.metadata().iter().flatten();
    Ok(Header {
        entries,
        metadata: metadata
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    })
}

/// The bytes of a header, its length first, padded so that the data after it is aligned to eight bytes. `entries` come in
/// the order of their bytes; their ranges count from the start of the data.
pub(crate) fn to_bytes<'a>(
    entries: impl Iterator<Item = (&'a str, &'a EntryHeader)>,
    metadata: &BTreeMap<String, String>,
) -> std::result::Result<Vec<u8>, String> {
    // The order is the entries' own, which no JSON value keeps: the text is put together here.
    let mut json = format!("{{\"__metadata__\":{}", serde_json::json!(metadata));
    for (name, entry) in entries {
        let dtype = dtype_name(entry.dtype).ok_or_else(|| {
            format!(
                "entry {name:?} is {}, which safetensors files cannot hold",
                entry.dtype
            )
        })?;
        json.push_str(&format!(
            ",{}:{{\"dtype\":\"{dtype}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
            Value::from(name),
            serde_json::json!(entry.shape[..]),
            entry.range.start,
            entry.range.end
        ));
    }
    json.push('}');
    while !json.len().is_multiple_of(LENGTH_NBYTES as usize) {
        json.push(' ');
    }
    if json.len() as u64 > MOST_NBYTES {
        return Err(format!(
            "the header takes {} bytes, at most {MOST_NBYTES} are allowed; save fewer or shorter-named entries",
            json.len()
        ));
    }
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    Ok(bytes)
}

const DTYPES: [(DType, Dtype, &str); 16] = [
    (DType::F64, Dtype::F64, "F64"),
    (DType::F32, Dtype::F32, "F32"),
    (DType::F16, Dtype::F16, "F16"),
    (DType::BF16, Dtype::BF16, "BF16"),
    (DType::I64, Dtype::I64, "I64"),
    (DType::I32, Dtype::I32, "I32"),
    (DType::I16, Dtype::I16, "I16"),
    (DType::I8, Dtype::I8, "I8"),
    (DType::U8, Dtype::U8, "U8"),
    (DType::Bool, Dtype::BOOL, "BOOL"),
    (DType::U16, Dtype::U16, "U16"),
    (DType::U32, Dtype::U32, "U32"),
    (DType::U64, Dtype::U64, "U64"),
    (DType::F8E4M3, Dtype::F8_E4M3, "F8_E4M3"),
    (DType::F8E5M2, Dtype::F8_E5M2, "F8_E5M2"),
    (DType::C64, Dtype::C64, "C64"),
];

fn dtype_of(name: Dtype) -> Option<DType> {
    let row = DTYPES.iter().find(|(_, theirs, _)| *theirs == name);
    row.map(|(ours, _, _)| *ours)
}

fn dtype_name(dtype: DType) -> Option<&'static str> {
    let row = DTYPES.iter().find(|(ours, _, _)| *ours == dtype);
    row.map(|(_, _, name)| *name)
}

/// A shape that a tensor can have: also the sizes beside a zero must not overflow together.
fn checked_shape(sizes: &[usize]) -> std::result::Result<Shape, String> {
    if sizes.len() > MOST_DIMS {
        return Err(format!(
            "{} dimensions, expected at most {MOST_DIMS}",
            sizes.len()
        ));
    }
    let shape = Shape::new(sizes);
    match shape.checked_numel() {
        Some(_) => Ok(shape),
        None => Err(format!(
            "shape {sizes:?}, whose number of elements overflows"
        )),
    }
}

/// What is wrong with a header that the crate refuses; None if it can't be found.
fn explain(json: &[u8]) -> Option<String> {
    let header: BTreeMap<String, Value> = match serde_json::from_slice(json) {
        Ok(header) => header,
        Err(error) => {
            return Some(format!("the header is not a JSON object: {error}"));
        }
    };
    let mut places = Vec::new();
    for (name, value) in &header {
        if name == "__metadata__" {
            let texts = value
                .as_object()
                .is_some_and(|texts| texts.values().all(Value::is_string));
            if !texts && !value.is_null() {
                return Some("\"__metadata__\" is not a map of texts".into());
            }
            continue;
        }
        match explain_entry(value) {
            Ok(place) => places.push((place, name)),
            Err(what) => return Some(format!("entry {name:?} {what}")),
        }
    }
    places.sort();
    let mut end = 0;
    for ((from, to), name) in places {
        if from != end {
            return Some(format!(
                "entry {name:?} starts at byte {from}, expected {end}, where the one before it ends"
            ));
        }
        end = to;
    }
    None
}

/// The place of an entry's bytes, or what is wrong with it.
fn explain_entry(value: &Value) -> std::result::Result<(u64, u64), String> {
    let numbers = |key: &str| -> std::result::Result<Vec<u64>, String> {
        value[key]
            .as_array()
            .and_then(|numbers| numbers.iter().map(Value::as_u64).collect())
            .ok_or_else(|| {
                format!(
                    "has {key} {}, expected a list of whole numbers",
                    shortened(&value[key])
                )
            })
    };
    let dtype = value["dtype"].clone();
    let dtype: Dtype = serde_json::from_value(dtype).map_err(|_| {
        format!(
            "has dtype {}, which is not known",
            shortened(&value["dtype"])
        )
    })?;
    let shape = numbers("shape")?;
    let offsets = numbers("data_offsets")?;
    let &[start, end] = &offsets[..] else {
        return Err(format!("has {} data_offsets, expected 2", offsets.len()));
    };
    if end < start {
        return Err(format!("ends at byte {end}, before its start at {start}"));
    }
    let nbits = shape
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size))
        .and_then(|numel| numel.checked_mul(dtype.bitsize() as u64));
    let nbytes = nbits
        .filter(|nbits| nbits.is_multiple_of(8))
        .map(|nbits| nbits / 8);
    let name = format!("{dtype}{}", shortened(&value["shape"]));
    match nbytes {
        None => Err(format!(
            "is {name}, which is no whole number of bytes, or too many"
        )),
        Some(nbytes) if nbytes != end - start => Err(format!(
            "has {} bytes, expected {nbytes} for {name}",
            end - start
        )),
        Some(_) => Ok((start, end)),
    }
}

/// A value for an error's text, which a hostile file can't make long.
fn shortened(value: &Value) -> String {
    const MOST_CHARS: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
