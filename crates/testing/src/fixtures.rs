//! The set of cases that is checked in.

use std::path::{Path, PathBuf};

/// The folder of the set of cases: `fixtures/README.md` tells how it was made.
pub fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cases")
}
