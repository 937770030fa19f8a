//! Who computes something, Fireclay's own kernels or a vendor's library: what the user said by a function, or the environment says.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use fireclay_core::{Error, Result};

/// What can be preferred.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// All values with the words for them, the default first.
    const VALUES: &'static [(Self, &'static str)];
    /// The function that states the preference.
    const FUNCTION: &'static str;
    /// The environment variable that does.
    const VARIABLE: &'static str;

    /// The word for it.
    fn word(self) -> &'static str {
        let found = Self::VALUES.iter().find(|(value, _)| *value == self);
        found.map_or("?", |(_, word)| word)
    }

    /// The value of a word, or what was expected.
    fn of_word(word: &str) -> Result<Self, String> {
        let found = Self::VALUES.iter().find(|(_, known)| *known == word.trim());
        found.map(|(value, _)| *value).ok_or_else(|| {
            let words: Vec<_> = (Self::VALUES.iter())
                .map(|(_, word)| format!("{word:?}"))
                .collect();
            format!("expected {}", words.join(" or "))
        })
    }

    /// As [`of_word`](Choice::of_word), for a word that the function was given.
    fn parse(word: &str) -> Result<Self> {
        Self::of_word(word).map_err(|expected| {
            Error::argument(Self::FUNCTION, format!("{expected}, got {word:?}"))
        })
    }
}

/// A preference of the process.
pub(super) struct Preference<C> {
    /// The place of the user's choice among the values, and 1; 0 while there is none.
    chosen: AtomicUsize,
    /// What the environment says.
    asked: OnceLock<Option<String>>,
    choice: PhantomData<fn() -> C>,
}

impl<C: Choice> Preference<C> {
    pub(super) const fn new() -> Preference<C> {
        Preference {
            chosen: AtomicUsize::new(0),
            asked: OnceLock::new(),
            choice: PhantomData,
        }
    }

    pub(super) fn set(&self, choice: C) {
        let place = C::VALUES.iter().position(|(value, _)| *value == choice);
        let place = place.map_or(0, |place| place + 1);
        self.chosen.store(place, Ordering::Relaxed);
    }

    /// The user's choice, or the environment's, or the default.
    ///
    /// # Errors
    /// If the environment variable has a value that makes no sense.
    pub(super) fn get(&self) -> Result<C> {
        let chosen = self.chosen.load(Ordering::Relaxed);
        if let Some((value, _)) = C::VALUES.get(chosen.wrapping_sub(1)) {
            return Ok(*value);
        }
        let asked = self.asked.get_or_init(|| std::env::var(C::VARIABLE).ok());
        match asked.as_deref().filter(|word| !word.is_empty()) {
            None => Ok(C::VALUES[0].0),
            Some(word) => C::of_word(word).map_err(|expected| {
                let variable = C::VARIABLE;
                let what = format!("the environment variable {variable} is {word:?}, {expected}");
                Error::argument(C::FUNCTION, what)
            }),
        }
    }
}
