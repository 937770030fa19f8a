//! Runs a golden case and tells whether Fireclay answers as PyTorch does.

use std::cell::Cell;
use std::collections::BTreeMap;

use fireclay_tensor::{Backpropagation, Error, Tensor, grad_with};
use serde_json::Value;

use crate::call::{Call, Refusal};
use crate::compare::{Deviation, Tolerance, matches, same_bits};
use crate::set::{Case, Inputs, Stored};
use crate::{modules, ops, optim, property, schedule};

/// What came of a case.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The answer is PyTorch's: how far the values are from it at most.
    Passed(Deviation),
    /// Fireclay has no such op or argument: the reason.
    Missing(String),
    /// The answer differs: how.
    Failed(String),
}

/// What a call leaves behind.
#[derive(Default)]
pub struct Run {
    /// What it returned.
    pub outputs: Vec<Tensor>,
    /// Tensors that stand for an input, by its key, where gradients refer to others than the input itself.
    pub leaves: BTreeMap<String, Tensor>,
    /// What became of an input, by its key, where it is another tensor than the input itself.
    pub after: BTreeMap<String, Tensor>,
    /// The state of an optimizer.
    pub state: BTreeMap<String, Tensor>,
}

/// Runs a case by the name it calls.
fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    let run = match call.case().family.as_str() {
        "module" => modules::run(call),
        "optim" => optim::run(call),
        "schedule" => schedule::run(call),
        _ => return ops::run(call),
    }?;
    match call.unread() {
        Some(name) => Err(Refusal::Unsupported(format!("argument {name}"))),
        None => Ok(run),
    }
}

/// Runs a case and compares.
pub fn judge(case: &Case, stored: &Stored<'_>) -> Verdict {
    let largest = Cell::new(Deviation::default());
    let result = case
        .inputs(stored)
        .map_err(Problem::from)
        .and_then(|inputs| {
            let judge = Judge {
                case,
                stored,
                inputs: &inputs,
                largest: &largest,
            };
            match case.field("error").is_null() {
                true => judge.check(),
                false => judge.check_refusal(),
            }
        });
    match result {
        Ok(()) => Verdict::Passed(largest.get()),
        Err(Problem::Missing(reason)) => Verdict::Missing(reason),
        Err(Problem::Fail(what)) => Verdict::Failed(what),
    }
}

struct Judge<'a> {
    case: &'a Case,
    stored: &'a Stored<'a>,
    inputs: &'a Inputs,
    /// The largest deviation of any value so far.
    largest: &'a Cell<Deviation>,
}

enum Problem {
    Missing(String),
    Fail(String),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Unsupported(reason) => Problem::Missing(reason),
            Refusal::RuledOut(what) => Problem::Fail(format!("ruled out by types: {what}")),
            Refusal::Error(Error::NoKernel { op, device, .. }) if !device.is_cpu() => {
                Problem::Missing(format!("no kernel of {op} on a device yet"))
            }
            Refusal::Error(error) if error.to_string().contains("not built yet") => {
                Problem::Missing(error.to_string().lines().next().unwrap_or_default().into())
            }
            Refusal::Error(error) => Problem::Fail(format!("refused: {error}")),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::Fail(error.to_string())
    }
}

fn fail<T>(what: String) -> Result<T, Problem> {
    Err(Problem::Fail(what))
}

/// The kinds of the format that an error may stand for. Where two fit, either is right.
fn kinds(error: &Error) -> &'static [&'static str] {
    match error {
        Error::ShapeMismatch { .. } => &["shape", "value"],
        Error::DTypeUnsupported { .. } | Error::NoKernel { .. } => &["dtype"],
        Error::DimOutOfRange { .. } => &["index"],
        // What names a class (in `one_hot`) is an index, and a tensor's content.
        Error::IndexOutOfRange { .. } => &["index", "value"],
        Error::InvalidArgument { .. } => &["value", "shape", "index"],
        Error::Autograd { .. } => &["value"],
        Error::DeviceMismatch { .. } => &["device"],
        _ => &[],
    }
}

impl Judge<'_> {
    /// A case that PyTorch refuses passes if Fireclay refuses it with an error of the same kind.
    fn check_refusal(&self) -> Result<(), Problem> {
        let (case, inputs) = (self.case, self.inputs);
        let kind = case.field("error")["kind"].as_str().unwrap_or_default();
        for key in case.list("requires_grad").iter().filter_map(Value::as_str) {
            inputs.tensors[key].requires_grad_(true)?;
        }
        match run(&Call::new(case, &inputs.tensors)) {
            // A device finds a bad index while it works: the host learns of it when it waits.
            Ok(run) => match run
                .outputs
                .iter()
                .find_map(|output| output.to_bytes().err())
            {
                Some(error) if kinds(&error).contains(&kind) => Ok(()),
                _ => fail(format!("accepted, expected an error of kind {kind}")),
            },
            Err(Refusal::Unsupported(reason)) => Err(Problem::Missing(reason)),
            Err(Refusal::RuledOut(_)) => Ok(()),
            Err(Refusal::Error(error)) if kinds(&error).contains(&kind) => Ok(()),
            Err(Refusal::Error(error)) => fail(format!("expected kind {kind}, got {error:?}")),
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let (case, inputs) = (self.case, self.inputs);
        for key in case.list("requires_grad").iter().filter_map(Value::as_str) {
            inputs.tensors[key].requires_grad_(true)?;
        }
        let before: BTreeMap<&str, Vec<u8>> = inputs
            .stores
            .iter()
            .map(|(key, store)| Ok((key.as_str(), store.to_bytes()?)))
            .collect::<fireclay_tensor::Result<_>>()?;
        let run = run(&Call::new(case, &inputs.tensors))?;
        let outputs = &run.outputs;
        let expected = case.list("expect");
        if outputs.len() != expected.len() {
            return fail(format!(
                "{} outputs, expected {}",
                outputs.len(),
                expected.len()
            ));
        }
        let tolerance = Tolerance {
            signed_zero: case.field("signed_zero") == &Value::Bool(true),
            ..Tolerance::new(case.number("rtol"), case.number("atol"))
        };
        for (output, key) in outputs.iter().zip(expected) {
            if let Some(key) = key.as_str() {
                self.compare(key, output, key, tolerance)?;
            }
        }
        if let Some(property) = case.field("property").as_str() {
            let key = case.input_keys()[0];
            property::check(property, &inputs.tensors[key], outputs)?.map_err(Problem::Fail)?;
        }
        self.check_layout(outputs)?;
        let plain = Tolerance::new(tolerance.rtol, tolerance.atol);
        for (name, key) in case.entries("expect_state") {
            let Some(value) = run.state.get(name) else {
                return fail(format!("no state {name}"));
            };
            self.compare(name, value, key.as_str().unwrap_or_default(), plain)?;
        }
        for (key, store) in &inputs.stores {
            let store = run.after.get(key).unwrap_or(store);
            match case.field("expect_inputs")[key.as_str()].as_str() {
                Some(changed) => {
                    self.compare(&format!("{key} afterwards"), store, changed, plain)?
                }
                None if case.family == "optim" => {}
                None => {
                    let is_operand = case.writes()
                        && case.list("inputs").first().and_then(Value::as_str) == Some(key)
                        && case.field("views")[key.as_str()].is_null();
                    if !is_operand && store.to_bytes()? != before[key.as_str()] {
                        return fail(format!("{key} was changed"));
                    }
                }
            }
        }
        self.check_gradients(&run)
    }

    fn check_layout(&self, outputs: &[Tensor]) -> Result<(), Problem> {
        let (case, inputs) = (self.case, self.inputs);
        for (output, key) in outputs.iter().zip(case.list("expect")) {
            let Some(key) = key.as_str() else { continue };
            let want = &case.field("expect_layout")[key];
            if want.is_null() {
                continue;
            }
            let owner = inputs
                .stores
                .iter()
                .find(|(_, store)| store.numel() > 0 && store.shares_storage(output))
                .map(|(key, _)| key.as_str());
            if owner != want["of"].as_str() {
                return fail(format!(
                    "{key}: memory of {owner:?}, expected {}",
                    want["of"]
                ));
            }
            if output.numel() == 0 {
                continue;
            }
            let strides = crate::set::sizes(&want["strides"]);
            let alike = (0..output.ndim())
                .all(|dim| output.shape()[dim] == 1 || output.strides()[dim] == strides[dim]);
            let offset = output.layout().offset() as u64;
            if !alike || want["offset"].as_u64() != Some(offset) {
                return fail(format!(
                    "{key}: strides {:?} from {offset}, expected {strides:?} from {}",
                    output.strides(),
                    want["offset"]
                ));
            }
        }
        Ok(())
    }

    /// Gradients of sum over outputs of <y, g>, and the second derivatives where the case has them.
    fn check_gradients(&self, run: &Run) -> Result<(), Problem> {
        let (case, stored, inputs) = (self.case, self.stored, self.inputs);
        let leaf = |key: &str| run.leaves.get(key).unwrap_or_else(|| &inputs.tensors[key]);
        let twice = case.entries("double_grad").next().is_some();
        let mut seeds: BTreeMap<&str, Tensor> = BTreeMap::new();
        let mut pairs: Vec<(&Tensor, &str)> = Vec::new();
        for (output, key) in run.outputs.iter().zip(case.list("grad_output")) {
            let Some(key) = key.as_str() else { continue };
            let seed = stored.tensor(&case.id, key)?;
            if twice {
                seed.requires_grad_(true)?;
            }
            seeds.insert(key, seed);
            pairs.push((output, key));
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let tolerance = Tolerance::new(case.number("grad_rtol"), case.number("grad_atol"));
        let roots: Vec<&Tensor> = pairs.iter().map(|(output, _)| *output).collect();
        let grad_outputs: Vec<Option<&Tensor>> =
            pairs.iter().map(|(_, key)| Some(&seeds[key])).collect();
        let keys: Vec<&str> = case
            .list("requires_grad")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let leaves: Vec<&Tensor> = keys.iter().map(|&key| leaf(key)).collect();
        let options = Backpropagation {
            create_graph: twice,
            allow_unused: true,
            ..Backpropagation::default()
        };
        let mut grads: BTreeMap<&str, Tensor> = BTreeMap::new();
        let found = grad_with(&roots, &grad_outputs, &leaves, options)?;
        for (&key, grad) in keys.iter().zip(found) {
            let want = case.field("expect_grads")[key].as_str();
            match (grad, want) {
                (Some(grad), Some(want)) => {
                    self.compare(&format!("gradient of {key}"), &grad, want, tolerance)?;
                    grads.insert(key, grad);
                }
                (None, Some(want)) => {
                    // No gradient is a gradient of zero.
                    let want = stored.tensor(&case.id, want)?;
                    if !same_bits(&want, &want.zeros_like()?) {
                        return fail(format!("no gradient of {key}"));
                    }
                }
                (_, None) => {}
            }
        }
        if !twice {
            return Ok(());
        }
        let mut total: Option<Tensor> = None;
        for (key, direction) in case.entries("double_grad") {
            let Some(grad) = grads.get(key) else { continue };
            let direction = stored.tensor(&case.id, direction.as_str().unwrap_or_default())?;
            let term = grad.mul(&direction)?.sum_all()?;
            total = Some(match total {
                None => term,
                Some(total) => total.add(&term)?,
            });
        }
        let wanted: Vec<(&str, &str)> = case
            .entries("expect_double_grads")
            .filter_map(|(key, want)| Some((key, want.as_str()?)))
            .collect();
        let sources: Vec<&Tensor> = wanted
            .iter()
            .map(|(key, _)| seeds.get(key).unwrap_or_else(|| leaf(key)))
            .collect();
        let zero = |want: &Tensor| want.zeros_like();
        let found = match total {
            Some(total) if total.requires_grad() => grad_with(
                &[&total],
                &[None],
                &sources,
                Backpropagation {
                    create_graph: false,
                    ..options
                },
            )?,
            _ => vec![None; sources.len()],
        };
        for ((key, want), second) in wanted.into_iter().zip(found) {
            let want = stored.tensor(&case.id, want)?;
            let second = second.map_or_else(|| zero(&want), Ok)?;
            self.agree(
                &format!("second derivative of {key}"),
                &second,
                &want,
                tolerance,
            )?;
        }
        Ok(())
    }

    /// Whether `got` is the case's tensor `key`.
    fn compare(
        &self,
        label: &str,
        got: &Tensor,
        key: &str,
        tolerance: Tolerance,
    ) -> Result<(), Problem> {
        self.agree(
            label,
            got,
            &self.stored.tensor(&self.case.id, key)?,
            tolerance,
        )
    }

    fn agree(
        &self,
        label: &str,
        got: &Tensor,
        want: &Tensor,
        tolerance: Tolerance,
    ) -> Result<(), Problem> {
        let deviation = matches(got, want, tolerance)
            .map_err(|what| Problem::Fail(format!("{label}: {what}")))?;
        self.largest.set(self.largest.get().or_larger(deviation));
        Ok(())
    }
}
