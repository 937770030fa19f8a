//! Where the machine's lines go: to the error output, a file, a function, or only into memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::{Mutex, PoisonError};

use super::is_forked;
use super::settings::Sink;

/// Lines that are kept.
const KEPT: usize = 4096;

/// A log.
#[derive(Debug)]
pub(crate) struct Log {
    sink: Sink,
    lines: Mutex<VecDeque<String>>,
}

impl Log {
    /// A log that writes to a sink.
    pub(crate) fn new(sink: Sink) -> Log {
        Log {
            sink,
            lines: Mutex::default(),
        }
    }

    /// Writes a line.
    #[cold]
    pub(crate) fn line(&self, text: &str) {
        let lines = if is_forked() {
            // A thread that is not in this process may hold the lock for ever.
            self.lines.try_lock().ok()
        } else {
            Some(self.lines.lock().unwrap_or_else(PoisonError::into_inner))
        };
        if let Some(mut lines) = lines {
            if lines.len() == KEPT {
                lines.pop_front();
            }
            lines.push_back(text.to_string());
        }
        self.sink.write(&format!("virtual-gpu: {text}\n"));
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }
}

impl Sink {
    /// Writes a text; to the error output what a file does not take. What cannot be written there is lost, as there is
    /// no one to tell.
    pub(crate) fn write(&self, text: &str) {
        match self {
            Sink::None => {}
            Sink::Stderr => {
                // Not by `std::io::stderr`, whose lock a forked child may find held.
                // SAFETY: the descriptor is only borrowed: it is not closed.
                let mut out = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
                drop(out.write_all(text.as_bytes()));
            }
            Sink::Stdout => {
                let mut out = std::io::stdout();
                drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
            }
            Sink::File(path) => {
                let file = std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path);
                if (file.and_then(|mut file| file.write_all(text.as_bytes()))).is_err() {
                    Sink::Stderr.write(text);
                }
            }
            Sink::Function(function) => function(text),
        }
    }
}
