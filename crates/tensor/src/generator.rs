//! `Generator`: the state of random numbers, a seed and how much of its stream was used.
//!
//! Note [Random numbers]
//! Each random op takes the next offset of a generator and draws element `i` as a pure function of (seed, offset, i): see
//! `fireclay_core::philox`. So the numbers don't depend on threads, devices or on how an op is split, and a generator is
//! saved and restored as two numbers.
//!
//! Inside of `fork_rng` the default generator is the thread's own: what other threads draw or seed doesn't touch it, nor the
//! other way round. Activation checkpoints run again in one, and tests seed in one.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

pub use fireclay_core::RngState;

/// Where random ops take their numbers from (`torch.Generator`).
#[derive(Debug)]
pub struct Generator {
    state: Mutex<RngState>,
    /// Whether a fork of the calling thread stands in for it.
    forks: bool,
}

thread_local! {
    /// The state of the default generator for this thread alone, inside of `fork_rng`.
    static FORK: Cell<Option<RngState>> = const { Cell::new(None) };
}

impl Generator {
    /// A generator at the start of the stream of `seed`.
    pub const fn new(seed: u64) -> Generator {
        Generator::starting(seed, false)
    }

    const fn starting(seed: u64, forks: bool) -> Generator {
        Generator {
            state: Mutex::new(RngState { seed, offset: 0 }),
            forks,
        }
    }

    /// Takes the next draw.
    pub fn draw(&self) -> RngState {
        self.with(|state| {
            let draw = *state;
            state.offset = state.offset.wrapping_add(1);
            draw
        })
    }

    /// The state, to go on from later (`torch.get_rng_state`).
    pub fn state(&self) -> RngState {
        self.with(|state| *state)
    }

    /// Goes on from a state (`torch.set_rng_state`).
    pub fn set_state(&self, state: RngState) {
        self.with(|own| *own = state);
    }

    /// Starts anew from `seed` (`Generator.manual_seed`).
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(RngState { seed, offset: 0 });
    }

    fn with<R>(&self, change: impl FnOnce(&mut RngState) -> R) -> R {
        if self.forks
            && let Some(mut state) = FORK.get()
        {
            let result = change(&mut state);
            FORK.set(Some(state));
            return result;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state)
    }
}

static DEFAULT: Generator = Generator::starting(0, true);

/// The generator of all random ops that are given none, for all devices. Its first seed is 0. Inside of [`fork_rng`] it is
/// the thread's own.
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Seeds the default generator (`torch.manual_seed`).
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}

/// Runs `function` with a default generator of this thread's own, which goes on from where the default generator is
/// (`torch.random.fork_rng`). Afterwards, also after a panic, the default generator is as it was: what was drawn and seeded inside
/// is forgotten. Unlike PyTorch's, other threads don't see what happens inside, nor does what they do show here. Forks nest.
///
/// ```
/// use fireclay_tensor::{Tensor, default_generator, fork_rng, manual_seed};
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let before = default_generator().state();
/// let noise = || Tensor::randn(&[3], "cpu")?.to_vec::<f32>();
/// let first = fork_rng(|| { manual_seed(1); noise() })?;
/// let second = fork_rng(|| { manual_seed(1); noise() })?;
/// assert_eq!(first, second);
/// assert_eq!(default_generator().state(), before);
/// # Ok(())
/// # }
/// ```
pub fn fork_rng<R>(function: impl FnOnce() -> R) -> R {
    /// Sets the fork back when dropped, also when the function panics.
    struct Outer(Option<RngState>);
    impl Drop for Outer {
        fn drop(&mut self) {
            FORK.set(self.0);
        }
    }
    let outer = Outer(FORK.get());
    FORK.set(Some(DEFAULT.state()));
    let result = function();
    drop(outer);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_the_threads_own() {
        let outside = Generator::new(7);
        fork_rng(|| {
            manual_seed(3);
            let drawn = default_generator().draw();
            assert_eq!((drawn.seed, drawn.offset), (3, 0));
            outside.draw();
            let elsewhere = std::thread::spawn(|| fork_rng(|| manual_seed(4)));
            assert!(elsewhere.join().is_ok());
            fork_rng(|| assert_eq!(default_generator().draw().offset, 1));
            let after = default_generator().state();
            assert_eq!(
                (after.seed, after.offset),
                (3, 1),
                "inner forks are forgotten"
            );
            let panicked = std::panic::catch_unwind(|| {
                fork_rng(|| {
                    manual_seed(5);
                    std::panic::resume_unwind(Box::new(()));
                });
            });
            assert!(panicked.is_err());
            assert_eq!(default_generator().state(), after);
        });
        assert_eq!(outside.state().offset, 1, "other generators don't fork");
        assert!(FORK.get().is_none());
    }
}
