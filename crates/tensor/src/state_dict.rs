//! `StateDict`: what has to be saved of an optimizer or scheduler, as plain named values.
//!
//! Seen by those who make one and by those who store it, which need not know each other.

use std::collections::BTreeMap;

use fireclay_core::{Error, Result};

use crate::tensor::Tensor;

/// Named tensors and numbers, in order.
#[derive(Clone, Default)]
pub struct StateDict {
    /// Tensors, by unique name.
    pub tensors: Vec<(String, Tensor)>,
    /// Numbers (counts, options; true is 1 and false 0), by unique name.
    pub numbers: Vec<(String, f64)>,
}

impl StateDict {
    /// The number called `name`.
    pub fn number(&self, name: &str) -> Option<f64> {
        let found = self.numbers.iter().find(|(known, _)| known == name);
        found.map(|(_, number)| *number)
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let found = self.tensors.iter().find(|(known, _)| known == name);
        found.map(|(_, tensor)| tensor)
    }
}

/// Takes the entries of a state dict one by one and gathers all that does not fit, for one error at the end.
pub struct StateDictReader<'a> {
    what: String,
    tensors: BTreeMap<&'a str, &'a Tensor>,
    numbers: BTreeMap<&'a str, f64>,
    missing: Vec<String>,
    mismatched: Vec<String>,
}

impl<'a> StateDictReader<'a> {
    /// Reads `state` into `what`, which an error names.
    pub fn new(what: impl Into<String>, state: &'a StateDict) -> StateDictReader<'a> {
        let tensors = state.tensors.iter();
        let numbers = state.numbers.iter();
        StateDictReader {
            what: what.into(),
            tensors: tensors
                .map(|(name, tensor)| (name.as_str(), tensor))
                .collect(),
            numbers: numbers
                .map(|(name, number)| (name.as_str(), *number))
                .collect(),
            missing: Vec::new(),
            mismatched: Vec::new(),
        }
    }

    /// Whether an entry of this name is left.
    pub fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name) || self.tensors.contains_key(name)
    }

    /// Takes a number; where there is none, that is noted and 0 stands for it.
    pub fn number(&mut self, name: &str) -> f64 {
        self.numbers.remove(name).unwrap_or_else(|| {
            self.missing.push(name.to_owned());
            0.0
        })
    }

    /// Takes a tensor with the shape of `like`; where there is none, that is noted.
    pub fn tensor(&mut self, name: &str, like: &Tensor) -> Option<&'a Tensor> {
        let Some(tensor) = self.tensors.remove(name) else {
            self.missing.push(name.to_owned());
            return None;
        };
        if tensor.shape() != like.shape() || !tensor.dtype().is_computable() {
            self.mismatched.push(format!(
                "{name} (expected {}{}, got {}{})",
                like.dtype(),
                like.shape(),
                tensor.dtype(),
                tensor.shape()
            ));
            return None;
        }
        Some(tensor)
    }

    /// Notes an entry that does not fit for another reason.
    pub fn mismatch(&mut self, what: String) {
        self.mismatched.push(what);
    }

    /// All that did not fit, as one [`Error::StateDictMismatch`]; entries not taken are unexpected.
    pub fn finish(self) -> Result<()> {
        let names = self.tensors.keys().chain(self.numbers.keys());
        let unexpected: Vec<String> = names.map(|&name| name.to_owned()).collect();
        if self.missing.is_empty() && unexpected.is_empty() && self.mismatched.is_empty() {
            return Ok(());
        }
        Err(Error::StateDictMismatch {
            what: self.what,
            missing: self.missing,
            unexpected,
            mismatched: self.mismatched,
            hint: "nothing was changed; build it with the options and in the order that it was saved with".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_does_not_fit_is_reported_together() {
        let zeros = |size| Tensor::zeros(&[size], "cpu").unwrap();
        let state = StateDict {
            tensors: vec![("a".into(), zeros(2)), ("extra".into(), zeros(1))],
            numbers: vec![("lr".into(), 0.5)],
        };
        assert_eq!(state.number("lr"), Some(0.5));
        assert_eq!(state.tensor("a").map(Tensor::numel), Some(2));
        let mut reader = StateDictReader::new("Adam", &state);
        assert_eq!(reader.number("lr"), 0.5);
        assert_eq!(reader.number("step"), 0.0);
        assert!(reader.tensor("a", &zeros(3)).is_none());
        let text = reader.finish().unwrap_err().to_string();
        for expected in [
            "Adam",
            "missing (1): step",
            "unexpected (1): extra",
            "expected f32[3], got f32[2]",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
