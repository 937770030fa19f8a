//! Ctrl-C and requests to terminate: asked for between steps, so that a step is never cut in two.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C (SIGINT), SIGTERM and SIGHUP only make [`requested`] true; a second one ends the process at once.
pub(crate) fn watch() {
    let watching = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            process::exit(i32::from(crate::INTERRUPTED));
        }
    });
    // Without a handler a signal ends the process as usual: files are still whole, since they are written aside.
    if let Err(error) = watching {
        say!("warning: an interrupt will not save the running epoch: {error}");
    }
}

/// Whether the process has been asked to end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
