//! The engine: walks the recorded graph from the roots back and gathers gradients.
//!
//! Note [Order of backward]
//! A node is recorded after the nodes of its inputs, so its sequence number is larger than theirs. Taking pending nodes by
//! falling number therefore visits each node after everything that adds to its gradients, with no counting of
//! dependencies and no recursion; and the order, so the bits, are the same in every run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fireclay_core::{Context, Error, Result, as_one_call};
use fireclay_cuda::Purpose;
use smallvec::SmallVec;

use super::checkpoint::Segment;
use super::mode::set_grad_enabled;
use super::node::{Backward, Edge, Node};
use crate::tensor::Tensor;

/// How a backward pass is done. The default is PyTorch's.
#[derive(Clone, Copy, Default, Debug)]
pub struct Backpropagation {
    /// Keep the graph for another backward (implied by `create_graph`).
    pub retain_graph: bool,
    /// Record the backward pass itself, so that gradients can be differentiated.
    pub create_graph: bool,
    /// In [`grad_with`]: an input that the outputs don't depend on gets None, not an error.
    pub allow_unused: bool,
}

/// Gradients of the sum of `outputs` with respect to `inputs` (`torch.autograd.grad`). No `grad` is accumulated.
#[track_caller]
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let grads = grad_with(
        outputs,
        &vec![None; outputs.len()],
        inputs,
        Backpropagation::default(),
    )?;
    Ok(grads.into_iter().flatten().collect())
}

/// As [`grad`], with the gradients that flow into the outputs (None for 1) and options.
#[track_caller]
pub fn grad_with(
    outputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
    inputs: &[&Tensor],
    options: Backpropagation,
) -> Result<Vec<Option<Tensor>>> {
    for (number, input) in inputs.iter().enumerate() {
        if !input.0.autograd.tracks() {
            return Err(Error::Autograd {
                op: "grad",
                what: format!("input {number} doesn't require grad"),
                context: Context::hint(
                    "call set_requires_grad(true) on it before the forward pass",
                ),
            }
            .with_operands(|| vec![input.operand(format!("input {number}"))]));
        }
    }
    let grads = as_one_call(|| {
        let roots = roots("grad", outputs, grad_outputs)?;
        propagate(roots, Some(inputs), options)
    })?;
    if !options.allow_unused
        && let Some(number) = grads.iter().position(Option::is_none)
    {
        return Err(Error::Autograd {
            op: "grad",
            what: format!("the outputs don't depend on input {number}"),
            context: Context::hint("set allow_unused to get None for it"),
        }
        .with_operands(|| vec![inputs[number].operand(format!("input {number}"))]));
    }
    Ok(grads)
}

/// Backward from one tensor into the `grad` of all leaves.
#[track_caller]
pub(super) fn backward(
    output: &Tensor,
    grad: Option<&Tensor>,
    options: Backpropagation,
) -> Result<()> {
    as_one_call(|| {
        let roots = roots("backward", &[output], &[grad])?;
        propagate(roots, None, options).map(|_| ())
    })
}

#[track_caller]
fn roots(
    op: &'static str,
    outputs: &[&Tensor],
    grads: &[Option<&Tensor>],
) -> Result<Vec<(Tensor, Tensor)>> {
    if outputs.len() != grads.len() {
        return Err(Error::argument(
            op,
            format!("{} outputs have {} gradients", outputs.len(), grads.len()),
        ));
    }
    let mut roots = Vec::with_capacity(outputs.len());
    for (&output, grad) in outputs.iter().zip(grads) {
        let operand = || vec![output.operand("output")];
        if !output.0.autograd.tracks() {
            return Err(Error::Autograd {
                op,
                what: "the output doesn't require grad and has no history".into(),
                context: Context::hint(
                    "no input required grad, or the forward pass ran under no_grad",
                ),
            }
            .with_operands(operand));
        }
        let grad = match grad {
            Some(grad) if grad.shape() != output.shape() => {
                let what = format!(
                    "the gradient has shape {}, the output {}",
                    grad.shape(),
                    output.shape()
                );
                return Err(Error::shape(op, what)
                    .with_operands(|| vec![output.operand("output"), grad.operand("grad")]));
            }
            Some(grad) if grad.dtype() != output.dtype() => grad.to_dtype(output.dtype())?,
            Some(grad) => (*grad).clone(),
            None if output.numel() != 1 => {
                let what = format!(
                    "an output of {} elements needs a gradient to start from",
                    output.numel()
                );
                return Err(Error::shape(op, what)
                    .with_hint("reduce it first (sum, mean), or give the gradient")
                    .with_operands(operand));
            }
            None => output.ones_like()?,
        };
        roots.push((output.clone(), grad));
    }
    Ok(roots)
}

struct Pending {
    node: Arc<Node>,
    grads: SmallVec<[Option<Tensor>; 1]>,
}

struct Engine<'a> {
    pending: BTreeMap<u64, Pending>,
    targets: Option<Targets>,
    inputs: &'a [&'a Tensor],
    captured: Vec<Option<Tensor>>,
    create_graph: bool,
    /// Where gradients end, on a walk through a part of the graph only.
    segment: Option<Segment>,
}

/// What `grad` looks for, and the nodes that lead there.
struct Targets {
    leaves: HashMap<usize, SmallVec<[usize; 1]>>,
    outputs: HashMap<(u64, usize), SmallVec<[usize; 1]>>,
    needed: HashSet<u64>,
}

#[track_caller]
fn propagate(
    roots: Vec<(Tensor, Tensor)>,
    inputs: Option<&[&Tensor]>,
    options: Backpropagation,
) -> Result<Vec<Option<Tensor>>> {
    let retain = options.retain_graph || options.create_graph;
    let targets = inputs.map(|inputs| Targets::new(inputs, &roots));
    let inputs = inputs.unwrap_or_default();
    let mut engine = Engine {
        pending: BTreeMap::new(),
        targets,
        inputs,
        captured: vec![None; inputs.len()],
        create_graph: options.create_graph,
        segment: None,
    };
    set_grad_enabled(options.create_graph, || {
        for (output, grad) in roots {
            let edge = output.0.autograd.edge(&output);
            engine.send(edge, grad)?;
        }
        engine.walk(retain)?;
        Ok(engine.captured)
    })
}

/// Walks back from `roots` as far as `segment` reaches, which gathers the gradients that arrive at its ends.
pub(super) fn propagate_segment(
    roots: Vec<(Edge, Tensor)>,
    segment: Segment,
    create_graph: bool,
) -> Result<Segment> {
    let mut engine = Engine {
        pending: BTreeMap::new(),
        targets: None,
        inputs: &[],
        captured: Vec::new(),
        create_graph,
        segment: Some(segment),
    };
    set_grad_enabled(create_graph, || {
        for (edge, grad) in roots {
            engine.send(edge, grad)?;
        }
        engine.walk(create_graph)
    })?;
    Ok(engine
        .segment
        .take()
        .unwrap_or_else(|| unreachable!("it was put there")))
}

/// Checks a gradient against the input it belongs to.
fn fitted(node: &Node, index: usize, grad: Tensor) -> Result<Tensor> {
    let facts = &node.inputs[index];
    if grad.shape() != &facts.shape || grad.device() != facts.device {
        return Err(Error::shape(
            node.op.name(),
            format!(
                "its backward gave a gradient {} on {} for input {index}, which is {} on {}",
                grad.shape(),
                grad.device(),
                facts.shape,
                facts.device
            ),
        ));
    }
    if grad.dtype() == facts.dtype {
        Ok(grad)
    } else {
        grad.to_dtype(facts.dtype)
    }
}

impl Engine<'_> {
    /// Visits all pending nodes and those that they lead to.
    fn walk(&mut self, retain: bool) -> Result<()> {
        while let Some((_, Pending { node, mut grads })) = self.pending.pop_last() {
            self.watch(&node, &mut grads)?;
            if !self.leads_on(node.sequence) {
                continue;
            }
            let needs = node.edges.iter().map(|edge| self.needs(edge)).collect();
            let input_grads = node.op.backward(&Backward::new(&node, &grads, needs))?;
            drop(grads);
            if !retain {
                node.free();
            }
            for (index, grad) in input_grads.into_iter().enumerate() {
                let edge = &node.edges[index];
                if let (Some(grad), true) = (grad, self.needs(edge)) {
                    let grad = fitted(&node, index, grad)?;
                    self.send(edge.clone(), grad)?;
                }
            }
        }
        Ok(())
    }

    /// Whether anything beyond this node's outputs is wanted.
    fn leads_on(&self, sequence: u64) -> bool {
        self.targets
            .as_ref()
            .is_none_or(|targets| targets.needed.contains(&sequence))
    }

    fn needs(&self, edge: &Edge) -> bool {
        match (edge, &self.targets) {
            (Edge::None, _) => false,
            (_, None) => true,
            (Edge::Leaf(leaf), Some(targets)) => targets.leaves.contains_key(&identity(leaf)),
            (Edge::Node(node, output), Some(targets)) => {
                targets.needed.contains(&node.sequence)
                    || targets.outputs.contains_key(&(node.sequence, *output))
            }
        }
    }

    /// Adds a gradient to where an edge leads.
    fn send(&mut self, edge: Edge, grad: Tensor) -> Result<()> {
        if let Some(slot) = self
            .segment
            .as_mut()
            .and_then(|segment| segment.slot(&edge))
        {
            *slot = Some(match slot.take() {
                None => grad,
                Some(sum) => add(sum, grad, self.create_graph)?,
            });
            return Ok(());
        }
        match edge {
            Edge::None => Ok(()),
            Edge::Leaf(leaf) => self.arrive(&leaf, grad),
            Edge::Node(node, output) => {
                let outputs = node.outputs.len();
                let pending = self
                    .pending
                    .entry(node.sequence)
                    .or_insert_with(|| Pending {
                        node,
                        grads: smallvec::smallvec![None; outputs],
                    });
                let slot = &mut pending.grads[output];
                *slot = Some(match slot.take() {
                    None => grad,
                    Some(sum) => add(sum, grad, self.create_graph)?,
                });
                Ok(())
            }
        }
    }

    fn arrive(&mut self, leaf: &Tensor, grad: Tensor) -> Result<()> {
        let state = leaf.0.autograd.leaf();
        let grad = state.run_hooks(grad)?;
        if let Some(targets) = &self.targets {
            for &position in targets.leaves.get(&identity(leaf)).into_iter().flatten() {
                let slot = &mut self.captured[position];
                *slot = Some(match slot.take() {
                    None => grad.clone(),
                    Some(sum) => add(sum, grad.clone(), self.create_graph)?,
                });
            }
            return Ok(());
        }
        let mut slot = state.grad();
        let kept = match slot.take() {
            Some(sum) => add(sum, grad, self.create_graph)?,
            // Somebody else may hold the bytes (another leaf, the caller): a later in-place edit must not reach them.
            None if !self.create_graph && !is_ours(&grad) => grad.copy()?,
            None => grad,
        };
        kept.count_as(Purpose::Gradients);
        *slot = Some(kept);
        Ok(())
    }

    /// Runs hooks on a node's gradients, and keeps those that are asked for.
    fn watch(&mut self, node: &Node, grads: &mut [Option<Tensor>]) -> Result<()> {
        let watchers = {
            let watchers = node.watchers.lock();
            watchers
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone()
        };
        for (output, leaf) in watchers {
            if let Some(grad) = grads[output].take() {
                let grad = leaf.run_hooks(grad)?;
                if leaf.retains_grad() && self.targets.is_none() {
                    let mut slot = leaf.grad();
                    // Its own bytes: the gradient flows on, and an in-place edit must not reach where it goes.
                    *slot = Some(match slot.take() {
                        Some(sum) => add(sum, grad.clone(), self.create_graph)?,
                        None => grad.copy()?,
                    });
                }
                grads[output] = Some(grad);
            }
        }
        if let Some(targets) = &self.targets {
            for (output, grad) in grads.iter().enumerate() {
                for &position in targets
                    .outputs
                    .get(&(node.sequence, output))
                    .into_iter()
                    .flatten()
                {
                    self.captured[position] = grad.clone();
                }
            }
        }
        debug_assert!(self.captured.len() == self.inputs.len());
        Ok(())
    }
}

/// The sum of two gradients: in place where nobody else can see it.
fn add(sum: Tensor, grad: Tensor, create_graph: bool) -> Result<Tensor> {
    if !create_graph && is_ours(&sum) && sum.dtype() == grad.dtype() {
        sum.add_(&grad)?;
        Ok(sum)
    } else {
        sum.add(&grad)
    }
}

/// Whether this is the only handle on the tensor and on its bytes.
fn is_ours(tensor: &Tensor) -> bool {
    Arc::strong_count(&tensor.0) == 1
        && Arc::strong_count(&tensor.0.storage) == 1
        && !tensor.layout().overlaps_itself()
        && tensor.layout().numel() * tensor.dtype().size() == tensor.0.storage.nbytes()
}

fn identity(tensor: &Tensor) -> usize {
    Arc::as_ptr(&tensor.0) as usize
}

impl Targets {
    fn new(inputs: &[&Tensor], roots: &[(Tensor, Tensor)]) -> Targets {
        let mut targets = Targets {
            leaves: HashMap::new(),
            outputs: HashMap::new(),
            needed: HashSet::new(),
        };
        for (position, input) in inputs.iter().enumerate() {
            match input.0.autograd.node() {
                Some((node, output)) => targets
                    .outputs
                    .entry((node.sequence, output))
                    .or_default()
                    .push(position),
                None => targets
                    .leaves
                    .entry(identity(input))
                    .or_default()
                    .push(position),
            }
        }
        // All nodes that the roots reach, then those that lead to a target, inputs before consumers.
        let mut reached: BTreeMap<u64, Arc<Node>> = BTreeMap::new();
        let mut stack: Vec<Arc<Node>> = roots
            .iter()
            .filter_map(|(output, _)| output.0.autograd.node().map(|(node, _)| node))
            .collect();
        while let Some(node) = stack.pop() {
            if reached.insert(node.sequence, node.clone()).is_none() {
                for edge in &node.edges {
                    if let Edge::Node(input, _) = edge {
                        stack.push(input.clone());
                    }
                }
            }
        }
        for (sequence, node) in &reached {
            let leads = node.edges.iter().any(|edge| match edge {
                Edge::None => false,
                Edge::Leaf(leaf) => targets.leaves.contains_key(&identity(leaf)),
                Edge::Node(input, output) => {
                    targets.needed.contains(&input.sequence)
                        || targets.outputs.contains_key(&(input.sequence, *output))
                }
            });
            if leads {
                targets.needed.insert(*sequence);
            }
        }
        targets
    }
}
