//! `Generator`: the state of random numbers, a seed and how much of its stream was used.
//!
//! Note [Random numbers]
//! Each random op takes the next offset of a generator and draws element `i` as a pure function of (seed, offset, i): see
//! `fireclay_core::philox`. So the numbers don't depend on threads, devices or on how an op is split, and a generator is
//! saved and restored as two numbers.

use std::sync::{Mutex, PoisonError};

pub use fireclay_core::RngState;

/// Where random ops take their numbers from (`torch.Generator`).
#[derive(Debug)]
pub struct Generator {
    state: Mutex<RngState>,
}

impl Generator {
    /// A generator at the start of the stream of `seed`.
    pub const fn new(seed: u64) -> Generator {
        Generator {
            state: Mutex::new(RngState { seed, offset: 0 }),
        }
    }

    /// Takes the next draw.
    pub fn draw(&self) -> RngState {
        let mut state = self.lock();
        let draw = *state;
        state.offset = state.offset.wrapping_add(1);
        draw
    }

    /// The state, to go on from later (`torch.get_rng_state`).
    pub fn state(&self) -> RngState {
        *self.lock()
    }

    /// Goes on from a state (`torch.set_rng_state`).
    pub fn set_state(&self, state: RngState) {
        *self.lock() = state;
    }

    /// Starts anew from `seed` (`Generator.manual_seed`).
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(RngState { seed, offset: 0 });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RngState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static DEFAULT: Generator = Generator::new(0);

/// The generator of all random ops that are given none, for all devices. Its first seed is 0.
pub fn default_generator() -> &'static Generator {
    &DEFAULT
}

/// Seeds the default generator (`torch.manual_seed`).
pub fn manual_seed(seed: u64) {
    DEFAULT.manual_seed(seed);
}
