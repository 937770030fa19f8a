//! Whether the entries of a state dict fit what they are to be loaded into: names, shapes and dtypes, no data.
//!
//! Modules, optimizers and checkpoints all ask here, before anything is changed.

use std::collections::{HashMap, HashSet};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;

/// What is known of an entry without its data.
#[derive(Clone, PartialEq, Debug)]
pub struct StateEntry {
    /// The dotted name, as `layer1.0.weight`.
    pub name: String,
    /// The shape.
    pub shape: Shape,
    /// The dtype.
    pub dtype: DType,
}

impl StateEntry {
    /// An entry of these facts.
    pub fn new(name: impl Into<String>, shape: impl Into<Shape>, dtype: DType) -> StateEntry {
        StateEntry {
            name: name.into(),
            shape: shape.into(),
            dtype,
        }
    }
}

/// Checks that `found` has each entry of `expected` in its shape and dtype, and no other (strict `load_state_dict`).
///
/// `what` is what is loaded into, as "the model".
///
/// # Errors
/// [`Error::StateDictMismatch`] with every difference at once; its hint tells close names and a prefix that a wrapper
/// has added (`module.`, `_orig_mod.`).
pub fn compare(what: &str, expected: &[StateEntry], found: &[StateEntry]) -> Result<()> {
    let found_by_name: HashMap<&str, &StateEntry> = found
        .iter()
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    let expected_names: HashSet<&str> = expected.iter().map(|entry| entry.name.as_str()).collect();

    let (mut missing, mut mismatched) = (Vec::new(), Vec::new());
    for entry in expected {
        match found_by_name.get(entry.name.as_str()) {
            None => missing.push(entry.name.clone()),
            Some(other) if (&other.shape, other.dtype) != (&entry.shape, entry.dtype) => {
                mismatched.push(format!(
                    "{} (expected {}{}, got {}{})",
                    entry.name, entry.dtype, entry.shape, other.dtype, other.shape
                ));
            }
            Some(_) => {}
        }
    }
    let unexpected: Vec<String> = found
        .iter()
        .filter(|entry| !expected_names.contains(entry.name.as_str()))
        .map(|entry| entry.name.clone())
        .collect();
    if missing.is_empty() && unexpected.is_empty() && mismatched.is_empty() {
        return Ok(());
    }
    Err(Error::StateDictMismatch {
        what: what.to_owned(),
        hint: hint(&missing, &unexpected),
        missing,
        unexpected,
        mismatched,
    })
}

/// What may have happened to the names.
pub fn hint(missing: &[String], unexpected: &[String]) -> String {
    if let Some(prefix) = common_prefix(missing, unexpected) {
        return format!(
            "the entries' names start with \"{prefix}\", which a wrapper adds; strip it from them"
        );
    }
    if let Some(prefix) = common_prefix(unexpected, missing) {
        return format!("the entries' names lack the prefix \"{prefix}\"; add it to them");
    }
    let pairs: Vec<String> = close_names(missing, unexpected)
        .into_iter()
        .map(|(missing, unexpected)| format!("{missing} looks like {unexpected}"))
        .collect();
    pairs.join("; ")
}

/// The prefix that turns most of `short` into names of `long`.
fn common_prefix<'a>(short: &[String], long: &'a [String]) -> Option<&'a str> {
    let first = short.first()?;
    let long_names: HashSet<&str> = long.iter().map(String::as_str).collect();
    long.iter()
        .filter_map(|name| name.strip_suffix(first.as_str()))
        .filter(|prefix| prefix.ends_with('.'))
        .find(|prefix| {
            let explained = short
                .iter()
                .filter(|name| long_names.contains(format!("{prefix}{name}").as_str()))
                .count();
            2 * explained > short.len()
        })
}

/// How many names are compared with how many for likeness: it takes time by their product.
const MOST_COMPARED: usize = 64;
/// How many pairs of close names a hint tells.
const MOST_PAIRS: usize = 5;

/// Missing names, each with the most alike unexpected one, where they differ by a third of their letters at most.
fn close_names<'a>(missing: &'a [String], unexpected: &'a [String]) -> Vec<(&'a str, &'a str)> {
    missing
        .iter()
        .take(MOST_COMPARED)
        .filter_map(|name| {
            unexpected
                .iter()
                .take(MOST_COMPARED)
                .map(|other| (edit_distance(name, other), other))
                .min()
                .filter(|(distance, other)| 3 * distance <= name.len().max(other.len()))
                .map(|(_, other)| (name.as_str(), other.as_str()))
        })
        .take(MOST_PAIRS)
        .collect()
}

/// How many letters must be changed, added or removed to turn one name into the other (Levenshtein's distance, by the
/// Wagner-Fischer algorithm, one row at a time).
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &r) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(l != r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(names: &[&str]) -> Vec<StateEntry> {
        names
            .iter()
            .map(|name| StateEntry::new(*name, [2, 3], DType::F32))
            .collect()
    }

    fn text(expected: &[StateEntry], found: &[StateEntry]) -> String {
        compare("the model", expected, found)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn equal_entries_fit_in_any_order() {
        assert!(compare("the model", &entries(&["a", "b"]), &entries(&["b", "a"])).is_ok());
        assert!(compare("the model", &[], &[]).is_ok());
    }

    #[test]
    fn every_difference_is_told_at_once() {
        let expected = entries(&["a", "bias", "shape", "dtype"]);
        let found = [
            StateEntry::new("a", [2, 3], DType::F32),
            StateEntry::new("other", [2, 3], DType::F32),
            StateEntry::new("shape", [3, 2], DType::F32),
            StateEntry::new("dtype", [2, 3], DType::F16),
        ];
        let text = text(&expected, &found);
        assert!(text.contains("missing (1): bias"), "{text}");
        assert!(text.contains("unexpected (1): other"), "{text}");
        assert!(
            text.contains("shape (expected f32[2, 3], got f32[3, 2])"),
            "{text}"
        );
        assert!(
            text.contains("dtype (expected f32[2, 3], got f16[2, 3])"),
            "{text}"
        );
        assert!(!text.contains("hint"), "{text}");
    }

    #[test]
    fn a_wrapper_prefix_is_recognised() {
        let plain = entries(&["fc.weight", "fc.bias"]);
        let wrapped = entries(&["module.fc.weight", "module.fc.bias"]);
        assert!(text(&plain, &wrapped).contains("start with \"module.\""));
        assert!(text(&wrapped, &plain).contains("lack the prefix \"module.\""));
        let deep = entries(&["module._orig_mod.fc.weight", "module._orig_mod.fc.bias"]);
        assert!(text(&plain, &deep).contains("\"module._orig_mod.\""));
    }

    #[test]
    fn close_names_are_suggested() {
        let text = text(&entries(&["conv1.weight"]), &entries(&["conv_1.weight"]));
        assert!(
            text.contains("conv1.weight looks like conv_1.weight"),
            "{text}"
        );
    }

    #[test]
    fn edit_distances_are_right() {
        for (left, right, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "acb", 2),
        ] {
            assert_eq!(edit_distance(left, right), distance);
            assert_eq!(edit_distance(right, left), distance);
        }
    }
}
