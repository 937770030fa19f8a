//! Runs a golden case and tells whether Fireclay answers as PyTorch does.

use std::collections::BTreeMap;

use fireclay_tensor::{Backpropagation, Error, Tensor, grad_with};
use serde_json::Value;

use crate::calls::{self, Call, Refusal};
use crate::compare::{Tolerance, matches, same_bits};
use crate::golden::{Case, Inputs, Stored};
use crate::property;

/// What came of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The answer is PyTorch's.
    Passed,
    /// Fireclay has no such op or argument: the reason.
    Skipped(String),
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

/// Runs an op's case.
pub fn judge(case: &Case, stored: &Stored<'_>) -> Verdict {
    judge_with(case, stored, &|call| {
        Ok(Run {
            outputs: calls::run(call)?,
            ..Run::default()
        })
    })
}

/// Runs a case by a runner of its own.
pub fn judge_with(
    case: &Case,
    stored: &Stored<'_>,
    runner: &dyn Fn(&Call<'_>) -> Result<Run, Refusal>,
) -> Verdict {
    let inputs = case.inputs(stored);
    let result = if case.field("error").is_null() {
        check(case, stored, &inputs, runner)
    } else {
        check_refusal(case, &inputs, runner)
    };
    match result {
        Ok(()) => Verdict::Passed,
        Err(Problem::Skip(reason)) => Verdict::Skipped(reason),
        Err(Problem::Fail(what)) => Verdict::Failed(what),
    }
}

enum Problem {
    Skip(String),
    Fail(String),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Unsupported(reason) => Problem::Skip(reason),
            Refusal::RuledOut(what) => Problem::Fail(format!("ruled out by types: {what}")),
            Refusal::Error(Error::NoKernel { op, device, .. }) if !device.is_cpu() => {
                Problem::Skip(format!("no kernel of {op} on a device yet"))
            }
            Refusal::Error(error) if error.to_string().contains("not built yet") => {
                Problem::Skip(error.to_string().lines().next().unwrap_or_default().into())
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

/// A case that PyTorch refuses passes if Fireclay refuses it with an error of the same kind.
fn check_refusal(
    case: &Case,
    inputs: &Inputs,
    runner: &dyn Fn(&Call<'_>) -> Result<Run, Refusal>,
) -> Result<(), Problem> {
    let kind = case.field("error")["kind"].as_str().unwrap_or_default();
    for key in case.list("requires_grad").iter().filter_map(Value::as_str) {
        inputs.tensors[key].requires_grad_(true)?;
    }
    match runner(&Call::new(case, &inputs.tensors)) {
        // A device finds a bad index while it works: the host learns of it when it waits.
        Ok(run) => match run
            .outputs
            .iter()
            .find_map(|output| output.to_bytes().err())
        {
            Some(error) if kinds(&error).contains(&kind) => Ok(()),
            _ => fail(format!("accepted, expected an error of kind {kind}")),
        },
        Err(Refusal::Unsupported(reason)) => Err(Problem::Skip(reason)),
        Err(Refusal::RuledOut(_)) => Ok(()),
        Err(Refusal::Error(error)) if kinds(&error).contains(&kind) => Ok(()),
        Err(Refusal::Error(error)) => fail(format!("expected kind {kind}, got {error:?}")),
    }
}

/// The kinds of the golden format that an error may stand for. Where two fit, either is right.
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

fn check(
    case: &Case,
    stored: &Stored<'_>,
    inputs: &Inputs,
    runner: &dyn Fn(&Call<'_>) -> Result<Run, Refusal>,
) -> Result<(), Problem> {
    for key in case.list("requires_grad").iter().filter_map(Value::as_str) {
        inputs.tensors[key].requires_grad_(true)?;
    }
    let before: BTreeMap<&str, Vec<u8>> = inputs
        .stores
        .iter()
        .map(|(key, store)| Ok((key.as_str(), store.to_bytes()?)))
        .collect::<fireclay_tensor::Result<_>>()?;
    let run = runner(&Call::new(case, &inputs.tensors))?;
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
    let compare = |label: &str, got: &Tensor, key: &str, tolerance: Tolerance| {
        matches(got, &stored.tensor(&case.id, key), tolerance)
            .map_err(|what| Problem::Fail(format!("{label}: {what}")))
    };
    for (output, key) in outputs.iter().zip(expected) {
        if let Some(key) = key.as_str() {
            compare(key, output, key, tolerance)?;
        }
    }
    if let Some(property) = case.field("property").as_str() {
        let key = case.input_keys()[0];
        property::check(property, &inputs.tensors[key], outputs)?.map_err(Problem::Fail)?;
    }
    check_layout(case, inputs, outputs)?;
    let plain = Tolerance::new(tolerance.rtol, tolerance.atol);
    for (name, key) in case.entries("expect_state") {
        let Some(value) = run.state.get(name) else {
            return fail(format!("no state {name}"));
        };
        compare(name, value, key.as_str().unwrap_or_default(), plain)?;
    }
    for (key, store) in &inputs.stores {
        let store = run.after.get(key).unwrap_or(store);
        match case.field("expect_inputs")[key.as_str()].as_str() {
            Some(changed) => compare(&format!("{key} afterwards"), store, changed, plain)?,
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
    check_gradients(case, stored, inputs, &run)
}

fn check_layout(case: &Case, inputs: &Inputs, outputs: &[Tensor]) -> Result<(), Problem> {
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
        let strides = crate::golden::sizes(&want["strides"]);
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
fn check_gradients(
    case: &Case,
    stored: &Stored<'_>,
    inputs: &Inputs,
    run: &Run,
) -> Result<(), Problem> {
    let leaf = |key: &str| run.leaves.get(key).unwrap_or_else(|| &inputs.tensors[key]);
    let twice = case.entries("double_grad").next().is_some();
    let mut seeds: BTreeMap<&str, Tensor> = BTreeMap::new();
    let mut pairs: Vec<(&Tensor, &str)> = Vec::new();
    for (output, key) in run.outputs.iter().zip(case.list("grad_output")) {
        let Some(key) = key.as_str() else { continue };
        let seed = stored.tensor(&case.id, key);
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
                matches(&grad, &stored.tensor(&case.id, want), tolerance)
                    .map_err(|what| Problem::Fail(format!("gradient of {key}: {what}")))?;
                grads.insert(key, grad);
            }
            (None, Some(want)) => {
                // No gradient is a gradient of zero.
                let want = stored.tensor(&case.id, want);
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
        let direction = stored.tensor(&case.id, direction.as_str().unwrap_or_default());
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
        let want = stored.tensor(&case.id, want);
        let second = second.map_or_else(|| zero(&want), Ok)?;
        matches(&second, &want, tolerance)
            .map_err(|what| Problem::Fail(format!("second derivative of {key}: {what}")))?;
    }
    Ok(())
}
