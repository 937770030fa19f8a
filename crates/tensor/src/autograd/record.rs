//! Recording: turns an op that ran into a node.
//!
//! Note [Views and in-place edits]
//! A view shares its base's bytes but has a history of its own. If the bytes are changed in place, that history no
//! longer tells how the view's value came about, and gradients through it would be silently wrong. So a view
//! remembers the storage's version at its making, and an op on an outdated view is an error where it would be recorded; so is one
//! on a view without history whose base got one since, whose gradient would be lost. (A detached tensor lost it on purpose.)
//!
//! An in-place op on a view may be recorded where the view has no history: then nothing else of the storage has one, and the write gives
//! the view alone a new one. The base, and other views, lack it from then on: an op on one of them is an error where it would be
//! recorded. An in-place op on a view that has a history, which is its base's, is an error too: the base's history would have to change.

use std::panic::Location;
use std::sync::Arc;

use fireclay_core::{Context, Error, Result};
use smallvec::SmallVec;

use super::mode::is_grad_enabled;
use super::node::{Edge, Node, Saved, SavedTensors, TensorFacts};
use crate::op::Op;
use crate::tensor::Tensor;

/// Whether a call is to be recorded.
pub(crate) struct Recording;

impl Recording {
    pub(crate) fn wanted(inputs: &[&Tensor]) -> bool {
        is_grad_enabled() && inputs.iter().any(|input| input.0.autograd.tracks())
    }

    pub(crate) fn wanted_in_place(inputs: &[&Tensor], targets: &[&Tensor]) -> bool {
        Recording::wanted(inputs) || Recording::wanted(targets)
    }
}

/// Gives the outputs of `op` a node.
pub(crate) fn record(
    op: Arc<dyn Op>,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    location: &'static Location<'static>,
) -> Result<()> {
    let node = node(op, inputs, outputs.iter(), &[], location)?;
    for (index, output) in outputs.iter().enumerate() {
        if output.dtype().is_floating_point() {
            output.0.autograd.set_node(node.clone(), index);
        }
    }
    Ok(())
}

/// Copies of those inputs that an in-place `op` is about to overwrite and that its backward needs.
pub(crate) fn save_overwritten(
    op: &dyn Op,
    inputs: &[&Tensor],
    targets: &[&Tensor],
) -> Result<SmallVec<[Option<Tensor>; 3]>> {
    let saves = op.saves();
    let copies = inputs.iter().enumerate().map(|(index, input)| {
        let is_written = targets.iter().any(|target| target.shares_storage(input));
        (is_written && saves.has_input(index))
            .then(|| input.copy())
            .transpose()
    });
    copies.collect()
}

/// Gives the tensors that `op` wrote in place their new history. `overwritten` has the values that they had before, where
/// they are needed.
pub(crate) fn record_in_place(
    op: Arc<dyn Op>,
    inputs: &[&Tensor],
    targets: &[&Tensor],
    overwritten: &[Option<Tensor>],
    location: &'static Location<'static>,
) -> Result<()> {
    let node = node(op, inputs, targets.iter().copied(), overwritten, location)?;
    for (index, target) in targets.iter().enumerate() {
        if target.dtype().is_floating_point() {
            target.0.storage.mark_recorded(target.0.is_view);
            let version = target.version();
            target.0.autograd.set_written_version(version);
            target.0.autograd.set_node_in_place(node.clone(), index);
        }
    }
    Ok(())
}

fn node<'a>(
    op: Arc<dyn Op>,
    inputs: &[&Tensor],
    outputs: impl Iterator<Item = &'a Tensor> + Clone,
    overwritten: &[Option<Tensor>],
    location: &'static Location<'static>,
) -> Result<Arc<Node>> {
    let saves = op.saves();
    let mut edges: SmallVec<[Edge; 3]> = SmallVec::with_capacity(inputs.len());
    let mut saved = SavedTensors::default();
    for (index, &input) in inputs.iter().enumerate() {
        edges.push(input.0.autograd.edge(input));
        saved.inputs.push(if saves.has_input(index) {
            check_not_inference(op.name(), input)?;
            let value = overwritten
                .get(index)
                .and_then(Option::as_ref)
                .unwrap_or(input);
            Saved::Input(value.clone(), value.version())
        } else {
            Saved::None
        });
    }
    for (index, output) in outputs.clone().enumerate() {
        saved.outputs.push(if saves.has_output(index) {
            let inner = &output.0;
            Saved::Output(
                inner.storage.clone(),
                inner.layout.clone(),
                inner.dtype,
                inner.origin,
                output.version(),
            )
        } else {
            Saved::None
        });
    }
    let inputs = inputs.iter().map(|input| TensorFacts::of(input)).collect();
    let outputs = outputs.map(TensorFacts::of).collect();
    Ok(Node::new(op, location, edges, inputs, outputs, saved))
}

/// Refuses views whose history is not that of their bytes. See Note [Views and in-place edits].
pub(crate) fn check_views(op: &'static str, inputs: &[&Tensor]) -> Result<()> {
    if !is_grad_enabled() {
        return Ok(());
    }
    let mut views = inputs
        .iter()
        .filter(|input| input.0.is_view || input.0.storage.is_written_by_view());
    views.try_for_each(|view| check_view_is_current(op, view))
}

fn check_view_is_current(op: &'static str, input: &Tensor) -> Result<()> {
    let inner = &input.0;
    let known = inner.autograd.written_version();
    let is_outdated = match inner.autograd.has_node() {
        true if inner.is_view => inner.made_version.max(known) != input.version(),
        true => known < inner.storage.recorded_version(),
        false => !inner.is_detached && inner.made_version < inner.storage.recorded_version(),
    };
    if is_outdated {
        let modified = input.0.storage.modified_at();
        let at = modified.map_or_else(String::new, |location| format!(" at {location}"));
        let (name, what, hint) = match inner.is_view {
            true => (
                "view",
                format!(
                    "this view's base was changed in place{at} after the view was made, so its history is out of date"
                ),
                "make the view again after the change",
            ),
            false => (
                "base",
                format!(
                    "this tensor was changed in place{at} through a view, whose history it lacks"
                ),
                "go on with the view, or change the tensor itself: x.set(.., value), or x.copy_(..)",
            ),
        };
        return Err(Error::Autograd {
            op,
            what,
            context: Context::hint(hint),
        }
        .with_operands(|| vec![input.operand(name)]));
    }
    Ok(())
}

pub(crate) fn check_not_inference(op: &'static str, input: &Tensor) -> Result<()> {
    if input.0.inference {
        return Err(Error::Autograd {
            op,
            what: "a tensor made in inference_mode can't be saved for backward".into(),
            context: Context::hint("make it outside, or use a copy() of it"),
        }
        .with_operands(|| vec![input.operand("inference tensor")]));
    }
    Ok(())
}

/// Refuses in-place writes that would lose history or write one element twice.
pub(crate) fn check_in_place(op: &'static str, target: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    if target.layout().overlaps_itself() {
        return Err(Error::argument(
            op,
            "the tensor written to has several elements in one place (an expanded view)",
        )
        .with_hint("write to a copy() of it"));
    }
    if !is_grad_enabled() {
        return Ok(());
    }
    let tracks = target.0.autograd.tracks();
    if tracks && !target.0.autograd.has_node() {
        return Err(Error::Autograd {
            op,
            what: "a leaf that requires grad can't be changed in place".into(),
            context: Context::hint(
                "run it under no_grad, as optimizers do, or use the form that returns a new tensor",
            ),
        });
    }
    let recorded = tracks || inputs.iter().any(|input| input.0.autograd.tracks());
    if tracks && target.0.is_view && target.0.autograd.written_version() == 0 {
        return Err(Error::Autograd {
            op,
            what:
                "a view of a tensor with a history can't be changed in place while autograd records"
                    .into(),
            context: Context::hint(
                "change the tensor itself, as in x.set((.., 0), value), use the form that returns a new tensor, or change a copy() \
                 of the view",
            ),
        });
    }
    if recorded && !target.dtype().is_floating_point() {
        return Err(Error::Autograd {
            op,
            what: format!(
                "a {} tensor can't carry the gradient of what is written to it",
                target.dtype()
            ),
            context: Context::hint("detach() the operand that requires grad"),
        });
    }
    Ok(())
}
