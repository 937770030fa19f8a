//! Workloads of every op of the table, from a file of loads: `bench/op_loads.txt`, whose head says how it is written.

use std::collections::BTreeSet;
use std::path::Path;

use fireclay::ops::{Entry, Value, entries, find};
use fireclay::prelude::*;
use fireclay::{Backpropagation, grad_with};
use fireclay_conformance::require_grad;

use super::stopwatch::{Stopwatch, Work};
use crate::failure::Failure;

/// Seconds that a run takes at least: many ops take less than a clock tells well.
pub(crate) const SHORTEST_RUN: f64 = 0.0005;

/// A line of the file.
#[derive(Debug)]
struct Load<'a> {
    /// The op's name, and `/` and a word where it has several loads.
    name: &'a str,
    entry: &'static Entry,
    arguments: &'a str,
    /// The inputs by which its gradients are measured too; empty for all floating ones.
    backward: Option<Vec<&'a str>>,
}

/// Measures the loads of `file`.
pub(crate) fn run(stopwatch: &mut Stopwatch, device: Device, file: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file).map_err(|cause| Failure::File {
        action: "cannot read",
        path: file.to_owned(),
        cause,
        hint: "--ops names a file of loads, as bench/op_loads.txt",
    })?;
    let loads =
        loads(&text).map_err(|what| Failure::Refused(format!("{}: {what}", file.display())))?;
    for load in loads {
        let name = format!("op/{}", load.name);
        stopwatch.measure_prepared(&name, 1, Work::Unstated, || load.forward(device))?;
        if load.backward.is_some() {
            let name = format!("{name}/backward");
            stopwatch.measure_prepared(&name, 1, Work::Unstated, || load.backward(device))?;
        }
    }
    Ok(())
}

/// The loads of a file; else its first line that isn't one, and why. Each op of the table has a load, or a line that says why not.
fn loads(text: &str) -> Result<Vec<Load<'_>>, String> {
    let (mut loads, mut names, mut ops) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (number, line) in text.lines().enumerate() {
        let refused = |what: String| format!("line {}: {what}: {line}", number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(left_out) = line.strip_prefix("- ") {
            let entry = left_out.split_once(": ").and_then(|(name, _)| find(name));
            let entry = entry.ok_or_else(|| refused("expected `- OP: REASON`".into()))?;
            ops.insert(entry.name);
            continue;
        }
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (arguments, last) = rest.rsplit_once(' ').unwrap_or(("", rest));
        let (arguments, backward) = match last.split_once(':').unwrap_or((last, "")) {
            ("backward", "") => (arguments, Some(Vec::new())),
            ("backward", names) => (arguments, Some(names.split(',').collect())),
            _ => (rest, None),
        };
        let op = name.split('/').next().unwrap_or(name);
        let entry = find(op).ok_or_else(|| refused(format!("no op is called {op}")))?;
        if !names.insert(name) {
            return Err(refused(format!("{name} is there twice")));
        }
        ops.insert(entry.name);
        loads.push(Load {
            name,
            entry,
            arguments,
            backward,
        });
    }
    match entries().iter().find(|entry| !ops.contains(entry.name)) {
        Some(entry) => Err(format!("there is no load of {}", entry.name)),
        None => Ok(loads),
    }
}

impl Load<'_> {
    fn arguments(&self, device: Device) -> Result<Vec<(&'static str, Value)>> {
        self.entry
            .read_arguments(self.arguments, device, DType::F32, 0)
    }

    /// The call.
    fn forward(&self, device: Device) -> Result<impl FnMut() -> Result<()> + use<>> {
        let (entry, arguments) = (self.entry, self.arguments(device)?);
        Ok(move || entry.call(&arguments).map(drop))
    }

    /// The call and its gradients; gradients of 1 flow into its outputs.
    fn backward(&self, device: Device) -> Result<impl FnMut() -> Result<()> + use<>> {
        let (entry, mut arguments) = (self.entry, self.arguments(device)?);
        let mut leaves = Vec::new();
        let names = self.backward.as_deref().unwrap_or_default();
        for (name, value) in &mut arguments {
            if names.is_empty() || names.contains(name) {
                require_grad(value, entry.is_in_place(), &mut leaves)?;
            }
        }
        let ones = |output: &Tensor| output.detach().ones_like();
        let outputs = tracked(entry.call(&arguments)?);
        let incoming: Vec<Tensor> = outputs.iter().map(ones).collect::<Result<_>>()?;
        let options = Backpropagation {
            allow_unused: true,
            ..Backpropagation::default()
        };
        Ok(move || {
            let outputs = tracked(entry.call(&arguments)?);
            let outputs: Vec<&Tensor> = outputs.iter().collect();
            let incoming: Vec<Option<&Tensor>> = incoming.iter().map(Some).collect();
            let leaves: Vec<&Tensor> = leaves.iter().collect();
            grad_with(&outputs, &incoming, &leaves, options).map(drop)
        })
    }
}

/// The outputs that have gradients.
fn tracked(mut outputs: Vec<Tensor>) -> Vec<Tensor> {
    outputs.retain(Tensor::requires_grad);
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: &str = include_str!("../../../../bench/op_loads.txt");

    #[test]
    fn every_op_has_a_load_that_can_be_read() {
        for load in loads(LOADS).unwrap() {
            assert!(
                load.backward.is_none() || !load.entry.is_in_place(),
                "{}",
                load.name
            );
        }
        let less: Vec<&str> = LOADS
            .lines()
            .filter(|line| !line.starts_with("abs "))
            .collect();
        assert_eq!(
            loads(&less.join("\n")).unwrap_err(),
            "there is no load of abs"
        );
    }

    #[test]
    fn a_line_that_is_no_load_is_named() {
        for (line, what) in [
            ("fog input=[3]", "no op is called fog"),
            ("- abs, as it is simple", "expected `- OP: REASON`"),
        ] {
            let text = format!("# A comment.\n\n{line}\n");
            assert_eq!(loads(&text).unwrap_err(), format!("line 3: {what}: {line}"));
        }
        let twice = "abs input=[3]\nabs input=[4]\n";
        assert!(loads(twice).unwrap_err().contains("abs is there twice"));
    }
}
