//! One call of an entry point: its machine, what every function checks first, and the thread's stack of contexts.

use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};

use super::abi::Handle;
use super::entry::{Function, NAMES};
use super::error::{Failure, Outcome, code, describe};
use super::state::{Context, State};
use crate::machine::{IN_CALLBACK, Machine};

/// A call of an entry point.
pub(crate) struct Call<'m> {
    /// The machine that it goes to.
    pub(crate) machine: &'m Arc<Machine>,
    /// The function.
    pub(crate) function: Function,
    /// Whether the null stream is the thread's own default stream.
    pub(crate) per_thread: bool,
}

/// Handles of the default streams: the context's, and the thread's own.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

/// Contexts of a thread, by machine; the last is current.
type Stacks = Vec<(u64, Vec<u64>)>;

thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new(Vec::new()) };
}

impl Call<'_> {
    /// The state, if `cuInit` was called and the caller is no function that a stream called.
    pub(crate) fn state(&self) -> Outcome<MutexGuard<'_, State>> {
        if !self.machine.is_initialized() {
            let message = "call cuInit first, and not before the process is forked";
            return Err(Failure::new(code::NOT_INITIALIZED, message));
        }
        if IN_CALLBACK.get() {
            let message = "a function that a stream calls must not call the driver";
            return Err(Failure::new(code::NOT_PERMITTED, message));
        }
        Ok(self.machine.state())
    }

    /// The state and the current context, which must live and not have failed.
    pub(crate) fn current(&self) -> Outcome<(MutexGuard<'_, State>, u64)> {
        let (state, context) = self.current_even_failed()?;
        state.context(context)?.healthy()?;
        Ok((state, context))
    }

    /// The state and the current context, which must live.
    pub(crate) fn current_even_failed(&self) -> Outcome<(MutexGuard<'_, State>, u64)> {
        let state = self.state()?;
        if STACKS.try_with(|_| ()).is_err() {
            let message = "the thread is ending, and with it what it knew of contexts";
            return Err(Failure::new(code::DEINITIALIZED, message));
        }
        let Some(context) = self.top() else {
            let message = "no context is current to the thread: retain the primary context and set it current";
            return Err(Failure::new(code::INVALID_CONTEXT, message));
        };
        state.context(context)?;
        Ok((state, context))
    }

    /// The stream of a handle, which may be null in the context given.
    pub(crate) fn stream(&self, state: &mut State, context: u64, stream: Handle) -> Outcome<u64> {
        let default = if self.per_thread {
            PER_THREAD_STREAM
        } else {
            LEGACY_STREAM
        };
        let named = number(stream);
        state.stream(context, if named == 0 { default } else { named })
    }

    /// The thread's current context, which may be gone.
    pub(crate) fn top(&self) -> Option<u64> {
        self.with_stack(|stack| stack.last().copied())
    }

    /// Looks at the thread's stack of contexts; at an empty one if the thread is ending.
    pub(crate) fn with_stack<R>(&self, body: impl FnOnce(&mut Vec<u64>) -> R) -> R {
        if STACKS.try_with(|_| ()).is_err() {
            return body(&mut Vec::new());
        }
        STACKS.with_borrow_mut(|stacks| {
            let found = stacks
                .iter()
                .position(|(machine, _)| *machine == self.machine.id);
            let index = found.unwrap_or_else(|| {
                stacks.push((self.machine.id, Vec::new()));
                stacks.len() - 1
            });
            body(&mut stacks[index].1)
        })
    }

    /// The answer of a function that is not built, said once in the log.
    pub(crate) fn unsupported(&self) -> Outcome {
        if self.machine.tally().calls_of(self.function) > 1 {
            return Err(Failure::silent(code::NOT_SUPPORTED));
        }
        Err(Failure::new(
            code::NOT_SUPPORTED,
            "the virtual GPU does not support this function",
        ))
    }

    /// Logs why the call fails.
    #[cold]
    pub(crate) fn report(&self, code: u32, message: &str) {
        let name = describe(code).map_or("an unknown error", |(name, _)| {
            name.to_str().unwrap_or_default()
        });
        self.machine.log().line(&format!(
            "{}: {name} ({code}): {message}",
            NAMES[self.function as usize]
        ));
    }

    /// The number of this call, for messages.
    pub(crate) fn number(&self) -> u64 {
        self.machine.tally().call_number()
    }
}

impl Context {
    /// Fails if a command of the context has failed, or its device is lost: such errors stay.
    pub(crate) fn healthy(&self) -> Outcome {
        match self.failure {
            None => Ok(()),
            // The log has said why when it happened.
            Some(code) => Err(Failure::silent(code)),
        }
    }
}

/// The number of a handle.
pub(crate) fn number(handle: Handle) -> u64 {
    handle as usize as u64
}

/// The handle of a number.
pub(crate) fn handle(number: u64) -> Handle {
    number as usize as Handle
}
