//! Grad modes: thread-local state that lasts for a scope.

use std::cell::Cell;

#[derive(Clone, Copy)]
struct Mode {
    grad: bool,
    inference: bool,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode { grad: true, inference: false }) };
}

/// Restores the mode when dropped, also when the scope panics.
struct Restore(Mode);

impl Drop for Restore {
    fn drop(&mut self) {
        MODE.set(self.0);
    }
}

fn scoped<R>(mode: Mode, scope: impl FnOnce() -> R) -> R {
    let _restore = Restore(MODE.replace(mode));
    scope()
}

/// Runs `scope` without recording: its results don't require gradients (`torch.no_grad`).
pub fn no_grad<R>(scope: impl FnOnce() -> R) -> R {
    set_grad_enabled(false, scope)
}

/// Runs `scope` with recording on, inside of a [`no_grad`] (`torch.enable_grad`).
pub fn enable_grad<R>(scope: impl FnOnce() -> R) -> R {
    set_grad_enabled(true, scope)
}

/// Runs `scope` with recording on or off (`torch.set_grad_enabled`).
pub fn set_grad_enabled<R>(enabled: bool, scope: impl FnOnce() -> R) -> R {
    let mode = MODE.get();
    scoped(
        Mode {
            grad: enabled,
            ..mode
        },
        scope,
    )
}

/// Runs `scope` as [`no_grad`], and its tensors can't enter autograd later either (`torch.inference_mode`).
pub fn inference_mode<R>(scope: impl FnOnce() -> R) -> R {
    scoped(
        Mode {
            grad: false,
            inference: true,
        },
        scope,
    )
}

/// Whether ops are being recorded on this thread.
pub fn is_grad_enabled() -> bool {
    MODE.get().grad
}

/// Whether this thread is in [`inference_mode`].
pub fn is_inference_mode() -> bool {
    MODE.get().inference
}
