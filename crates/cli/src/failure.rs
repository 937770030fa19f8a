//! `Failure`: why a command ends early, as the text that is shown.

use std::io;
use std::path::PathBuf;

use crate::picture::digit_image::DigitImageError;

/// Why a command ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("error: {0}")]
    Fireclay(#[from] fireclay::Error),

    #[error("error: {0}")]
    Image(#[from] DigitImageError),

    /// A file or folder that cannot be written or read.
    #[error("error: {action} {}: {cause}; {hint}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        cause: io::Error,
        hint: &'static str,
    },

    /// Arguments that don't go together, or with a file.
    #[error("error: {0}")]
    Refused(String),

    /// The loss is no number any more.
    #[error(
        "error: the loss is {loss} {place} epoch {epoch}{}: training diverged; try a smaller --lr than {lr:?}",
        batch.map_or_else(String::new, |batch| format!(", batch {batch}"))
    )]
    Diverged {
        loss: f64,
        /// As in "in epoch 1" or "on the test set after epoch 1".
        place: &'static str,
        epoch: usize,
        batch: Option<usize>,
        lr: f64,
    },

    /// Standard output cannot be written.
    #[error("error: writing to standard output: {0}")]
    Output(#[from] io::Error),

    /// Ctrl-C, or a request to terminate.
    #[error(
        "interrupted {}; to go on: fireclay {command} --resume {}",
        after(*epoch, *batch),
        shell_word(checkpoint)
    )]
    Interrupted {
        /// As in "train mnist".
        command: String,
        /// The epoch under way, counted from 0.
        epoch: u64,
        /// Its batches that are done.
        batch: usize,
        checkpoint: PathBuf,
    },
}

fn after(epoch: u64, batch: usize) -> String {
    match batch {
        0 => format!("after epoch {epoch}"),
        batch => format!("in epoch {} after batch {batch}", epoch + 1),
    }
}

/// The path as one word of a shell's command line.
fn shell_word(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
