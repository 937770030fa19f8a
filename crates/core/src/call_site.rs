//! The line of the user's code that a call came from, also where Fireclay's own code calls Fireclay: a module that moves, a
//! backward pass, an optimizer's step.
//!
//! `#[track_caller]` finds the line as long as every function on the way hands it on. Where that ends, [`called_from`] says
//! it for everything that runs within.

use std::cell::Cell;
use std::panic::Location;

thread_local! {
    static CALL_SITE: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// The line of the user: the one that an outer [`called_from`] says, or the caller.
#[track_caller]
#[inline]
pub fn call_site() -> &'static Location<'static> {
    CALL_SITE.get().unwrap_or(Location::caller())
}

/// Runs `body`, in which all calls count as made by `location`.
#[inline]
pub fn called_from<R>(location: &'static Location<'static>, body: impl FnOnce() -> R) -> R {
    let _before = Before(CALL_SITE.replace(Some(location)));
    body()
}

/// Runs `body`, in which all calls count as made by the line of the user that has led here.
#[track_caller]
#[inline]
pub fn as_one_call<R>(body: impl FnOnce() -> R) -> R {
    called_from(call_site(), body)
}

/// Puts back what was before, also when the body panics.
struct Before(Option<&'static Location<'static>>);

impl Drop for Before {
    fn drop(&mut self) {
        CALL_SITE.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner() -> &'static Location<'static> {
        call_site()
    }

    #[track_caller]
    fn outer() -> &'static Location<'static> {
        as_one_call(inner)
    }

    #[test]
    fn the_outermost_line_counts() {
        let line = line!() + 1;
        assert_eq!(outer().line(), line);
        let elsewhere = inner();
        assert_ne!(elsewhere.line(), line);
        assert_eq!(called_from(elsewhere, outer), elsewhere);
        let _ = std::panic::catch_unwind(|| called_from(elsewhere, || panic!("on purpose")));
        assert_ne!(outer(), elsewhere, "the line is gone with its scope");
    }
}
