//! `Mode`: whether a module trains or evaluates.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// A module's training flag (`Module.training`): a field of modules that behave differently in the two modes. Training at
/// first; [`train`](crate::ModuleExt::train) and [`eval`](crate::ModuleExt::eval) of any module around it set it.
pub struct Mode(AtomicBool);

impl Mode {
    /// Training.
    pub fn new() -> Mode {
        Mode(AtomicBool::new(true))
    }

    /// Whether the module trains.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the mode of this module alone.
    pub fn set_training(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::new()
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_training() { "train" } else { "eval" })
    }
}
