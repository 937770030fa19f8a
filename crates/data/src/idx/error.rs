//! What can be wrong with IDX files, as one enum.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::MAX_NBYTES;

/// What can be wrong with an IDX file. Each text names the file, what was expected, what was found and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdxError {
    /// The file cannot be opened or read.
    #[error(
        "read_idx: cannot read {path:?}: {cause}; check that the path exists, is a file and may be read"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The file is named `.gz` and does not start as gzip does.
    #[error(
        "read_idx: {path:?} is not gzip, expected it to start with 1f 8b, got {found}; fetch it again, or drop .gz \
         from its name if it is a plain IDX file"
    )]
    NotGzip {
        /// The file.
        path: PathBuf,
        /// Its first bytes, two at most.
        found: Hex,
    },
    /// The compressed data is damaged: a broken stream or a wrong checksum.
    #[error(
        "read_idx: the gzip data of {path:?} is damaged ({cause}), expected a whole stream with its checksum; fetch the file again"
    )]
    CorruptGzip {
        /// The file.
        path: PathBuf,
        /// What the decompressor said.
        cause: io::Error,
    },
    /// The file does not start with an IDX header.
    #[error(
        "read_idx: {path:?} is not an IDX file, expected a header 00 00 08 01 to 00 00 08 04, got {found}; check that \
         this is the file you meant"
    )]
    WrongMagic {
        /// The file.
        path: PathBuf,
        /// Its first four bytes.
        found: Hex,
    },
    /// The file is an IDX file of another dtype.
    #[error("read_idx: {path:?} holds {dtype} elements, expected u8; convert the file to u8")]
    WrongDType {
        /// The file.
        path: PathBuf,
        /// The dtype it holds.
        dtype: &'static str,
    },
    /// The header announces more than [`MAX_NBYTES`], or dims whose product overflows.
    #[error(
        "read_idx: {path:?} announces dims {dims:?}, expected at most {MAX_NBYTES} elements in all; the header is damaged, fetch the file again"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The announced dims.
        dims: Vec<usize>,
    },
    /// The data ends too early.
    #[error(
        "read_idx: {path:?} is cut off, expected {expected} bytes of IDX data, got {found}; fetch the file again"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes of IDX data, header included, as far as the header tells.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// The data goes on after the last element.
    #[error(
        "read_idx: {path:?} goes on after its data, expected {expected} bytes of IDX data, got more; dims and data disagree, fetch the file again"
    )]
    TrailingBytes {
        /// The file.
        path: PathBuf,
        /// Bytes of IDX data, header included.
        expected: usize,
    },
    /// The file of images does not have three dims.
    #[error(
        "read_labelled_images: {path:?} has dims {dims:?}, expected images with dims [count, height, width]; are images and labels swapped?"
    )]
    NotImages {
        /// The file.
        path: PathBuf,
        /// Its dims.
        dims: Vec<usize>,
    },
    /// The file of labels does not have one dim.
    #[error(
        "read_labelled_images: {path:?} has dims {dims:?}, expected labels with dims [count]; are images and labels swapped?"
    )]
    NotLabels {
        /// The file.
        path: PathBuf,
        /// Its dims.
        dims: Vec<usize>,
    },
    /// Images and labels are not equally many.
    #[error(
        "read_labelled_images: {images_path:?} has {images} images, expected as many as {labels_path:?} has labels, got {labels}; take both files from the same set"
    )]
    CountMismatch {
        /// The file of images.
        images_path: PathBuf,
        /// The file of labels.
        labels_path: PathBuf,
        /// How many images there are.
        images: usize,
        /// How many labels there are.
        labels: usize,
    },
    /// A label names no class.
    #[error(
        "read_labelled_images: label {index} of {path:?} is {label}, expected 0 to 9; the file is damaged or of another set"
    )]
    LabelOutOfRange {
        /// The file of labels.
        path: PathBuf,
        /// Which label, from 0.
        index: usize,
        /// Its value.
        label: u8,
    },
}

impl IdxError {
    /// The file that is wrong.
    pub fn path(&self) -> &Path {
        match self {
            IdxError::Unreadable { path, .. }
            | IdxError::NotGzip { path, .. }
            | IdxError::CorruptGzip { path, .. }
            | IdxError::WrongMagic { path, .. }
            | IdxError::WrongDType { path, .. }
            | IdxError::TooLarge { path, .. }
            | IdxError::Truncated { path, .. }
            | IdxError::TrailingBytes { path, .. }
            | IdxError::NotImages { path, .. }
            | IdxError::NotLabels { path, .. }
            | IdxError::CountMismatch {
                labels_path: path, ..
            }
            | IdxError::LabelOutOfRange { path, .. } => path,
        }
    }
}

/// Bytes that an error shows in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, byte) in self.0.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{byte:02x}")?;
        }
        Ok(())
    }
}
