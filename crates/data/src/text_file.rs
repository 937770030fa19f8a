//! Reading a text file, plain or gzip (told apart by the content), with a bound on its length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use fireclay_core::{Error, Result};

/// The most bytes of text that are read.
const MOST_TEXT: u64 = 256 << 20;

/// The text of the file at `path`; `hint` says what a good file would have been.
pub(crate) fn read_file(path: &Path, hint: &str) -> Result<String> {
    let file = File::open(path).map_err(|cause| unreadable(path, cause))?;
    read(file, path, hint)
}

/// As [`read_file`], of what `file` gives.
pub(crate) fn read(file: impl Read, path: &Path, hint: &str) -> Result<String> {
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(|cause| unreadable(path, cause))?;
    let is_gzip = start.starts_with(&[0x1f, 0x8b]);
    let mut text = Vec::new();
    let (read, kind) = if is_gzip {
        let mut text_reader = MultiGzDecoder::new(file).take(MOST_TEXT + 1);
        (
            text_reader.read_to_end(&mut text),
            "is not a whole gzip file",
        )
    } else {
        (
            file.take(MOST_TEXT + 1).read_to_end(&mut text),
            "cannot be read",
        )
    };
    read.map_err(|cause| damaged(path, format!("it {kind}: {cause}"), hint))?;
    if text.len() as u64 > MOST_TEXT {
        let what = format!("it has more than {MOST_TEXT} bytes of text");
        return Err(damaged(path, what, hint));
    }
    String::from_utf8(text).map_err(|_| damaged(path, "it is no text".into(), hint))
}

/// The error of a file that is not what it should be.
pub(crate) fn damaged(path: &Path, what: String, hint: &str) -> Error {
    Error::InvalidFile {
        path: path.into(),
        what,
        hint: hint.to_owned(),
    }
}

fn unreadable(path: &Path, cause: io::Error) -> Error {
    Error::Io {
        action: "reading",
        path: path.into(),
        source: cause,
        hint: "check that the path exists, is a file and may be read".into(),
    }
}
