//! `checkpoint`: runs a part of the forward pass without keeping what its backward needs, and computes it again then.
//!
//! Note [Checkpoints]
//! The function runs once recorded. What its graph reaches outside of itself (parameters, tensors that it captured) is noted, and
//! the graph is dropped; in its place stands one node, with edges to the inputs and to all of these. Its backward runs the
//! function again under the same random state and walks the new graph, as far as to the inputs and to what lies outside of it, which
//! is known by its numbers: a node of before the run has a smaller one. The sums that arrive there are the gradients of the node.
//! So `grad` of a captured parameter works as `backward` does, hooks run once, and checkpoints nest. In a backward that is recorded
//! the function runs on the inputs with their history, so that the gradients can be differentiated again.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use fireclay_core::{Context, Error, Result, RngState, as_one_call};
use smallvec::SmallVec;

use super::engine;
use super::mode::{enable_grad, is_grad_enabled};
use super::node::{Backward, Edge, Node, Saved, SavedTensors, TensorFacts, next_sequence};
use super::record::check_not_inference;
use crate::generator::{default_generator, fork_rng};
use crate::op::{Grads, Meta, Op, OutputMetas, Saves};
use crate::tensor::Tensor;

/// What gradients of a segment are gathered for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A leaf, by its address.
    Leaf(usize),
    /// An output of a node, by the node's number.
    Output(u64, usize),
}

impl Place {
    pub(super) fn of(edge: &Edge) -> Option<Place> {
        match edge {
            Edge::None => None,
            Edge::Leaf(leaf) => Some(Place::Leaf(Arc::as_ptr(&leaf.0) as usize)),
            Edge::Node(node, output) => Some(Place::Output(node.sequence, *output)),
        }
    }
}

type Function = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// The node that stands for a checkpointed function.
struct Checkpoint {
    function: Box<Function>,
    random: RngState,
    /// How many inputs the function has; the node's further edges lead to what it captured.
    inputs: usize,
    captured: Vec<Place>,
    outputs: Vec<TensorFacts>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").finish_non_exhaustive()
    }
}

impl Op for Checkpoint {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn output(&self, _inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Err(Error::argument(
            "checkpoint",
            "it is no op that can be called",
        ))
    }

    fn saves(&self) -> Saves {
        Saves::INPUTS
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let create_graph = is_grad_enabled();
        let mut inputs = Vec::with_capacity(self.inputs);
        let mut places: HashMap<Place, usize> = HashMap::new();
        let start = next_sequence();
        for index in 0..self.inputs {
            let input = context.input(index)?;
            if !input.0.autograd.tracks() {
                inputs.push(input);
                continue;
            }
            // The function may have captured an input too.
            if let Some(place) = Place::of(&input.0.autograd.edge(&input)) {
                places.entry(place).or_insert(index);
            }
            let input = match create_graph {
                // The same bytes with a place of their own in the graph.
                true => enable_grad(|| input.unsqueeze(0)?.squeeze(0))?,
                false => input.detach().requires_grad_(true)?,
            };
            if let Some(place) = Place::of(&input.0.autograd.edge(&input)) {
                places.insert(place, index);
            }
            inputs.push(input);
        }
        let outputs = self.again(&inputs)?;
        self.check_same(context, &outputs)?;
        for (number, place) in self.captured.iter().enumerate() {
            places.insert(*place, self.inputs + number);
        }
        let mut roots = Vec::new();
        for (number, output) in outputs.iter().enumerate() {
            if let Some(grad) = context.grad(number)
                && output.0.autograd.tracks()
            {
                roots.push((output.0.autograd.edge(output), grad.clone()));
            }
        }
        drop(outputs);
        let slots = self.inputs + self.captured.len();
        let segment = Segment {
            start,
            places,
            grads: vec![None; slots],
            strayed: false,
        };
        let segment = engine::propagate_segment(roots, segment, create_graph)?;
        if segment.strayed {
            return Err(changed(
                context,
                "it used a tensor that it hadn't used before",
            ));
        }
        Ok(segment.grads.into_iter().collect())
    }
}

impl Checkpoint {
    /// Runs the function as in the forward pass.
    fn again(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        fork_rng(|| {
            default_generator().set_state(self.random);
            enable_grad(|| (self.function)(inputs))
        })
    }

    fn check_same(&self, context: &Backward<'_>, outputs: &[Tensor]) -> Result<()> {
        if outputs.len() != self.outputs.len() {
            let what = format!(
                "it gave {} outputs, before {}",
                outputs.len(),
                self.outputs.len()
            );
            return Err(changed(context, &what));
        }
        for (number, (output, before)) in outputs.iter().zip(&self.outputs).enumerate() {
            if *output.shape() != before.shape
                || output.dtype() != before.dtype
                || output.device() != before.device
            {
                let what = format!(
                    "output {number} is {} {} on {}, before it was {} {} on {}",
                    output.dtype(),
                    output.shape(),
                    output.device(),
                    before.dtype,
                    before.shape,
                    before.device
                );
                return Err(changed(context, &what));
            }
        }
        Ok(())
    }
}

fn changed(context: &Backward<'_>, what: &str) -> Error {
    Error::Autograd {
        op: "checkpoint",
        what: format!(
            "the function of the checkpoint at {} did another thing when it ran again for backward: {what}",
            context.location()
        ),
        context: Context::hint(
            "a checkpointed function must depend on its inputs, on captured tensors and on the default generator alone",
        ),
    }
}

/// A walk through the graph of a function that ran again.
pub(super) struct Segment {
    /// Nodes of smaller numbers lie outside.
    start: u64,
    places: HashMap<Place, usize>,
    grads: Vec<Option<Tensor>>,
    /// Whether a gradient went outside to where none was expected.
    strayed: bool,
}

impl Segment {
    /// Where a gradient ends that is sent along `edge`; None if the edge leads on inside of the segment.
    pub(super) fn slot(&mut self, edge: &Edge) -> Option<&mut Option<Tensor>> {
        let place = Place::of(edge)?;
        if let Some(&slot) = self.places.get(&place) {
            return self.grads.get_mut(slot);
        }
        if let Place::Output(sequence, _) = place
            && sequence >= self.start
        {
            return None;
        }
        self.strayed = true;
        self.places.insert(place, self.grads.len());
        self.grads.push(None);
        self.grads.last_mut()
    }
}

/// The edges that lead out of the graph of `outputs`, which began at number `start`; those of `inputs` left out.
fn captured(outputs: &[Tensor], inputs: &[&Tensor], start: u64) -> Vec<Edge> {
    let edge = |tensor: &Tensor| tensor.0.autograd.edge(tensor);
    let mut known: std::collections::HashSet<Place> = inputs
        .iter()
        .filter_map(|input| Place::of(&edge(input)))
        .collect();
    let mut found = Vec::new();
    let mut stack: Vec<Edge> = outputs.iter().rev().map(edge).collect();
    while let Some(edge) = stack.pop() {
        let Some(place) = Place::of(&edge) else {
            continue;
        };
        if !known.insert(place) {
            continue;
        }
        match &edge {
            Edge::Node(node, _) if node.sequence >= start => {
                stack.extend(node.edges.iter().rev().cloned());
            }
            _ => found.push(edge),
        }
    }
    found
}

/// Runs `function` on `inputs` so that only the inputs are kept for backward, which runs it again
/// (`torch.utils.checkpoint.checkpoint`): memory for time.
///
/// Gradients flow to the inputs and to all that the function captured, as its parameters. Values and gradients have the same bits
/// as without: the function runs again under the same state of the [default generator](default_generator), so dropout inside drops
/// the same elements; afterwards the generator goes on from where it was. Checkpoints nest, and a backward that is itself recorded
/// (`create_graph`) works. While autograd doesn't record, the function just runs.
///
/// What the function does besides is done twice: batch norm inside updates its running statistics again. It must do the same each
/// time. It draws from the calling thread's [fork](crate::fork_rng) of the generator then: no other thread sees that, and threads
/// that the function itself starts draw other numbers than before.
///
/// ```
/// use fireclay_tensor::{Tensor, checkpoint};
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let x = Tensor::ones(&[3], "cpu")?.requires_grad_(true)?;
/// let y = checkpoint(&[&x], |inputs| Ok(vec![inputs[0].exp()?.sin()?]))?;
/// y[0].sum_all()?.backward()?;
/// assert!(x.grad().is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `function`; and if it changed one of its inputs in place. Backward fails if the function does another thing when it runs
/// again, or if an input was changed in place since.
#[track_caller]
pub fn checkpoint(
    inputs: &[&Tensor],
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    let given: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !is_grad_enabled() {
        return function(&given);
    }
    let location = Location::caller();
    let random = default_generator().state();
    let versions: Vec<u64> = inputs.iter().map(|input| input.version()).collect();
    let start = next_sequence();
    let outputs = function(&given)?;
    for (number, (input, version)) in inputs.iter().zip(&versions).enumerate() {
        if input.version() != *version {
            let what = format!("the function changed input {number} in place");
            return Err(Error::argument("checkpoint", what)
                .with_hint("it couldn't run again from the same input: change a copy() of it")
                .with_operands(|| vec![input.operand(format!("input {number}"))]));
        }
    }
    if !outputs.iter().any(|output| output.0.autograd.tracks()) {
        return Ok(outputs);
    }
    let captured = captured(&outputs, inputs, start);
    let mut edges: SmallVec<[Edge; 3]> = SmallVec::new();
    let mut facts: SmallVec<[TensorFacts; 3]> = SmallVec::new();
    let mut saved = SavedTensors::default();
    for (input, version) in inputs.iter().zip(versions) {
        check_not_inference("checkpoint", input)?;
        edges.push(input.0.autograd.edge(input));
        facts.push(TensorFacts::of(input));
        saved.inputs.push(Saved::Input((*input).clone(), version));
    }
    for edge in &captured {
        edges.push(edge.clone());
        facts.push(match edge {
            Edge::Node(node, output) => node.outputs[*output].clone(),
            Edge::Leaf(leaf) => TensorFacts::of(leaf),
            Edge::None => continue,
        });
        saved.inputs.push(Saved::None);
    }
    let facts_of_outputs: Vec<TensorFacts> = outputs.iter().map(TensorFacts::of).collect();
    saved.outputs.extend(outputs.iter().map(|_| Saved::None));
    let op = Checkpoint {
        function: Box::new(function),
        random,
        inputs: inputs.len(),
        captured: captured.iter().filter_map(Place::of).collect(),
        outputs: facts_of_outputs.clone(),
    };
    let node = Node::new(
        Arc::new(op),
        location,
        edges,
        facts,
        facts_of_outputs.into(),
        saved,
    );
    let results = as_one_call(|| {
        let result = |(number, output): (usize, &Tensor)| {
            if !output.0.autograd.tracks() {
                return output.clone();
            }
            let result = output.detach();
            result.0.autograd.set_node(node.clone(), number);
            result
        };
        outputs.iter().enumerate().map(result).collect()
    });
    Ok(results)
}
