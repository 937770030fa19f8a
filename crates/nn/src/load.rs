//! Loading a state dict: everything is checked before anything is changed.

use std::collections::{HashMap, HashSet};

use fireclay_tensor::{Error, Result, Tensor, no_grad};

/// Prefixes that wrappers of PyTorch put before all names: data parallelism, compilation.
const WRAPPER_PREFIXES: [&str; 3] = ["module.", "_orig_mod.", "model."];

/// What a load that is not strict left alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    /// Entries of the module that the state dict lacks; they keep their values.
    pub missing: Vec<String>,
    /// Entries of the state dict that the module lacks; they were not used.
    pub unexpected: Vec<String>,
}

/// The entries with `prefix` taken off those names that begin with it: undoes what a wrapper did.
pub fn strip_prefix(state: Vec<(String, Tensor)>, prefix: &str) -> Vec<(String, Tensor)> {
    let strip = |name: String| name.strip_prefix(prefix).map(str::to_owned).unwrap_or(name);
    state
        .into_iter()
        .map(|(name, tensor)| (strip(name), tensor))
        .collect()
}

/// Copies the entries of `state` into the targets of the same names.
pub(crate) fn load(
    what: &str,
    targets: &[(String, Tensor)],
    state: &[(String, Tensor)],
    strict: bool,
) -> Result<LoadReport> {
    let names: HashSet<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    let mut given: HashMap<&str, &Tensor> = HashMap::with_capacity(state.len());
    let mut report = LoadReport::default();
    let mut mismatched = Vec::new();
    for (name, tensor) in state {
        if given.insert(name, tensor).is_some() {
            mismatched.push(format!("{name} (given twice)"));
        } else if !names.contains(name.as_str()) {
            report.unexpected.push(name.clone());
        }
    }
    let mut copies = Vec::with_capacity(targets.len());
    for (name, target) in targets {
        let Some(&source) = given.get(name.as_str()) else {
            report.missing.push(name.clone());
            continue;
        };
        if source.shape() != target.shape() {
            let (expected, got) = (target.shape(), source.shape());
            mismatched.push(format!("{name} (expected {expected}, got {got})"));
        } else if source.dtype() != target.dtype() && !source.dtype().is_computable() {
            let (expected, got) = (target.dtype(), source.dtype());
            mismatched.push(format!("{name} (no cast from {got} to {expected})"));
        } else {
            copies.push((source, target));
        }
    }
    let incomplete = !report.missing.is_empty() || !report.unexpected.is_empty();
    if !mismatched.is_empty() || (strict && incomplete) {
        return Err(Error::StateDictMismatch {
            what: what.to_owned(),
            hint: hint(&report),
            missing: report.missing,
            unexpected: report.unexpected,
            mismatched,
        });
    }
    no_grad(|| {
        copies
            .iter()
            .try_for_each(|(source, target)| target.copy_(source).map(drop))
    })?;
    Ok(report)
}

/// What may have gone wrong: a wrapper's prefix, or names that differ a little.
fn hint(report: &LoadReport) -> String {
    let missing: HashSet<&str> = report.missing.iter().map(String::as_str).collect();
    let unexpected: HashSet<&str> = report.unexpected.iter().map(String::as_str).collect();
    for prefix in WRAPPER_PREFIXES {
        let fits = |with: &str| {
            with.strip_prefix(prefix)
                .is_some_and(|name| missing.contains(name))
        };
        if !unexpected.is_empty() && unexpected.iter().all(|name| fits(name)) {
            return format!(
                "every name in the state dict begins with {prefix:?}, which a wrapper put there: take it off with strip_prefix(state, {prefix:?})"
            );
        }
        let fits = |with: &str| {
            with.strip_prefix(prefix)
                .is_some_and(|name| unexpected.contains(name))
        };
        if !missing.is_empty() && missing.iter().all(|name| fits(name)) {
            return format!(
                "the module wraps the one that was saved: load into what its field {prefix:?} holds"
            );
        }
    }
    let pairs = closest_pairs(&report.missing, &report.unexpected);
    if pairs.is_empty() {
        return String::new();
    }
    format!("close names: {}", pairs.join(", "))
}

/// For the first few missing names, the unexpected one that differs least, if by little.
fn closest_pairs(missing: &[String], unexpected: &[String]) -> Vec<String> {
    const SHOWN: usize = 5;
    let mut pairs = Vec::new();
    for name in missing.iter().take(4 * SHOWN) {
        let distances = unexpected
            .iter()
            .map(|other| (distance(name, other), other));
        if let Some((distance, other)) = distances.min()
            && distance <= 1 + name.len() / 4
        {
            pairs.push(format!("{other} for {name}"));
        }
        if pairs.len() == SHOWN {
            break;
        }
    }
    pairs
}

/// The fewest single bytes to insert, delete or replace that make `from` into `to` (Levenshtein's distance).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, from_byte) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to_byte) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(from_byte != to_byte);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (from, to, expected) in [("", "abc", 3), ("kitten", "sitting", 3), ("a.w", "a.w", 0)] {
            assert_eq!(distance(from, to), expected);
            assert_eq!(distance(to, from), expected);
        }
    }
}
