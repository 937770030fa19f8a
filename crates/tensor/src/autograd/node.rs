//! Nodes of the recorded graph, and what a tensor knows of it.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fireclay_core::{DType, Device, Error, Layout, Result, Shape};
use smallvec::SmallVec;

use crate::op::Op;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// A function that sees (and may replace) a gradient.
pub(crate) type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// What a tensor knows of autograd.
#[derive(Default)]
pub(crate) struct AutogradMeta {
    /// Whether the state holds a node or requires_grad: read on every op, without the lock.
    tracks: AtomicBool,
    /// The storage's version after the last recorded write in place through this very tensor; 0 before any.
    written_version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requires_grad: bool,
    node: Option<(Arc<Node>, usize)>,
    leaf: Option<Arc<Leaf>>,
}

/// Where a leaf's gradient accumulates, and the hooks of a tensor.
#[derive(Default)]
pub(crate) struct Leaf {
    grad: Mutex<Option<Tensor>>,
    hooks: Mutex<Vec<(u64, Hook)>>,
    retains_grad: AtomicBool,
}

impl Leaf {
    pub(crate) fn grad(&self) -> std::sync::MutexGuard<'_, Option<Tensor>> {
        self.grad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn retains_grad(&self) -> bool {
        self.retains_grad.load(Ordering::Relaxed)
    }

    pub(crate) fn set_retains_grad(&self) {
        self.retains_grad.store(true, Ordering::Relaxed);
    }

    /// What takes over the `grad`, but not the hooks.
    fn successor(&self) -> Leaf {
        Leaf {
            grad: Mutex::new(self.grad().take()),
            hooks: Mutex::default(),
            retains_grad: AtomicBool::new(self.retains_grad.swap(false, Ordering::Relaxed)),
        }
    }

    /// Passes a gradient through the hooks.
    pub(crate) fn run_hooks(&self, mut grad: Tensor) -> Result<Tensor> {
        let hooks: SmallVec<[Hook; 1]> = {
            let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            hooks.iter().map(|(_, hook)| hook.clone()).collect()
        };
        for hook in hooks {
            if let Some(replaced) = hook(&grad)? {
                if replaced.shape() != grad.shape() {
                    return Err(Error::shape(
                        "hook",
                        format!(
                            "a gradient of shape {} was replaced by one of {}",
                            grad.shape(),
                            replaced.shape()
                        ),
                    ));
                }
                grad = replaced;
            }
        }
        Ok(grad)
    }

    pub(crate) fn add_hook(self: &Arc<Leaf>, hook: Hook) -> HookHandle {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.push((id, hook));
        HookHandle {
            leaf: Arc::downgrade(self),
            id,
        }
    }
}

/// A registered hook; [`remove`](HookHandle::remove) takes it off. Dropping the handle leaves it on.
pub struct HookHandle {
    leaf: Weak<Leaf>,
    id: u64,
}

impl HookHandle {
    /// Takes the hook off.
    pub fn remove(self) {
        if let Some(leaf) = self.leaf.upgrade() {
            let mut hooks = leaf.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            hooks.retain(|(id, _)| *id != self.id);
        }
    }
}

impl AutogradMeta {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether gradients flow to or through the tensor.
    pub(crate) fn tracks(&self) -> bool {
        self.tracks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_requires_grad(&self, requires_grad: bool) {
        let mut state = self.state();
        state.requires_grad = requires_grad;
        self.tracks
            .store(requires_grad || state.node.is_some(), Ordering::Relaxed);
    }

    pub(crate) fn node(&self) -> Option<(Arc<Node>, usize)> {
        self.state().node.clone()
    }

    pub(crate) fn has_node(&self) -> bool {
        self.tracks() && self.state().node.is_some()
    }

    pub(crate) fn set_node(&self, node: Arc<Node>, output: usize) {
        let mut state = self.state();
        state.requires_grad = false;
        state.node = Some((node, output));
        self.tracks.store(true, Ordering::Relaxed);
    }

    /// As [`set_node`](AutogradMeta::set_node) for a tensor that was written in place: its hooks stay with the value that they
    /// were set on, while its `grad` is from now on that of the new value, as in PyTorch.
    pub(crate) fn set_node_in_place(&self, node: Arc<Node>, output: usize) {
        let old = {
            let state = self.state();
            state.node.as_ref().and(state.leaf.clone())
        };
        if let Some(old) = old {
            let new = Arc::new(old.successor());
            if new.retains_grad() {
                node.watch(output, new.clone());
            }
            self.state().leaf = Some(new);
        }
        self.set_node(node, output);
    }

    /// The storage's version after the last recorded write through this tensor; 0 before any.
    pub(crate) fn written_version(&self) -> u64 {
        self.written_version.load(Ordering::Relaxed)
    }

    /// Notes that the tensor's history is that of the storage's bytes of this version.
    pub(crate) fn set_written_version(&self, version: u64) {
        self.written_version.store(version, Ordering::Relaxed);
    }

    pub(crate) fn leaf(&self) -> Arc<Leaf> {
        self.state().leaf.get_or_insert_default().clone()
    }

    pub(crate) fn leaf_if_any(&self) -> Option<Arc<Leaf>> {
        self.state().leaf.clone()
    }

    /// Where the gradient of this tensor goes.
    pub(crate) fn edge(&self, tensor: &Tensor) -> Edge {
        if !self.tracks() {
            return Edge::None;
        }
        let state = self.state();
        match &state.node {
            Some((node, output)) => Edge::Node(node.clone(), *output),
            None => Edge::Leaf(tensor.clone()),
        }
    }
}

/// Where the gradient of an input goes.
#[derive(Clone)]
pub(crate) enum Edge {
    /// Nowhere: the input doesn't require a gradient.
    None,
    /// To a leaf's `grad`.
    Leaf(Tensor),
    /// To an output of an earlier op.
    Node(Arc<Node>, usize),
}

/// Shape, dtype and device of a tensor that is not kept itself.
#[derive(Clone, Debug)]
pub(crate) struct TensorFacts {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
}

impl TensorFacts {
    pub(crate) fn of(tensor: &Tensor) -> TensorFacts {
        TensorFacts {
            shape: tensor.shape().clone(),
            dtype: tensor.dtype(),
            device: tensor.device(),
        }
    }
}

/// A tensor kept for backward, with the version it had.
pub(crate) enum Saved {
    None,
    /// An input, history and all.
    Input(Tensor, u64),
    /// An output. Kept without its history, which is this node itself (a cycle otherwise).
    Output(Arc<Storage>, Layout, DType, fireclay_core::Origin, u64),
}

/// Outputs whose gradients are shown to hooks, or kept.
pub(crate) type Watchers = SmallVec<[(usize, Arc<Leaf>); 1]>;

/// One recorded op.
pub(crate) struct Node {
    pub(crate) op: Arc<dyn Op>,
    pub(crate) location: &'static Location<'static>,
    /// Grows with every recording: a node's inputs always have smaller numbers.
    pub(crate) sequence: u64,
    pub(crate) edges: SmallVec<[Edge; 3]>,
    pub(crate) inputs: SmallVec<[TensorFacts; 3]>,
    pub(crate) outputs: SmallVec<[TensorFacts; 1]>,
    saved: Mutex<SavedTensors>,
    /// Hooks and retained gradients of the outputs, where there are some.
    pub(crate) watchers: Mutex<Watchers>,
}

/// The number of the next node.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// A number that no node made before has, and none made from now on on this thread is below.
pub(crate) fn next_sequence() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}

#[derive(Default)]
pub(crate) struct SavedTensors {
    pub(crate) inputs: SmallVec<[Saved; 3]>,
    pub(crate) outputs: SmallVec<[Saved; 1]>,
    pub(crate) freed: bool,
}

impl Node {
    pub(crate) fn new(
        op: Arc<dyn Op>,
        location: &'static Location<'static>,
        edges: SmallVec<[Edge; 3]>,
        inputs: SmallVec<[TensorFacts; 3]>,
        outputs: SmallVec<[TensorFacts; 1]>,
        saved: SavedTensors,
    ) -> Arc<Node> {
        Arc::new(Node {
            op,
            location,
            sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed),
            edges,
            inputs,
            outputs,
            saved: Mutex::new(saved),
            watchers: Mutex::default(),
        })
    }

    fn saved(&self) -> std::sync::MutexGuard<'_, SavedTensors> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the gradient of an output to the hooks of `leaf`, once however often it is asked for.
    pub(crate) fn watch(&self, output: usize, leaf: Arc<Leaf>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |watcher: &(usize, Arc<Leaf>)| Arc::ptr_eq(&watcher.1, &leaf);
        if !watchers.iter().any(is_same) {
            watchers.push((output, leaf));
        }
    }

    /// Lets go of the saved tensors: a second backward through this node is an error.
    pub(crate) fn free(&self) {
        let saved = {
            let mut saved = self.saved();
            SavedTensors {
                inputs: std::mem::take(&mut saved.inputs),
                outputs: std::mem::take(&mut saved.outputs),
                freed: std::mem::replace(&mut saved.freed, true),
            }
        };
        drop(saved);
    }
}

// Note [Dropping deep graphs]
// A node owns edges and saved tensors, which own nodes: dropped naively, a chain of 100,000 ops would recurse as deep. So a
// node that is dropped hands what it owns to a list, and only the outermost drop on the thread empties the
// list.
thread_local! {
    static DROPPING: RefCell<Option<Vec<Remains>>> = const { RefCell::new(None) };
}

type Remains = (SmallVec<[Edge; 3]>, SavedTensors);

impl Drop for Node {
    fn drop(&mut self) {
        let saved = std::mem::take(self.saved.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut remains = Some((std::mem::take(&mut self.edges), saved));
        let outermost = DROPPING.try_with(|list| {
            let mut list = list.borrow_mut();
            match list.as_mut() {
                Some(list) => {
                    list.extend(remains.take());
                    false
                }
                None => {
                    *list = Some(remains.take().into_iter().collect());
                    true
                }
            }
        });
        if outermost != Ok(true) {
            return;
        }
        loop {
            let next = DROPPING.with(|list| {
                let mut list = list.borrow_mut();
                let next = list.as_mut().and_then(Vec::pop);
                if next.is_none() {
                    *list = None;
                }
                next
            });
            match next {
                Some(remains) => drop(remains),
                None => break,
            }
        }
    }
}

/// What an op's backward sees: the gradients of its outputs and what forward saved.
pub struct Backward<'a> {
    node: &'a Arc<Node>,
    grads: &'a [Option<Tensor>],
    needs: SmallVec<[bool; 3]>,
}

impl<'a> Backward<'a> {
    pub(crate) fn new(
        node: &'a Arc<Node>,
        grads: &'a [Option<Tensor>],
        needs: SmallVec<[bool; 3]>,
    ) -> Backward<'a> {
        Backward { node, grads, needs }
    }

    /// The line that called the op.
    pub fn location(&self) -> &'static Location<'static> {
        self.node.location
    }

    /// How many inputs the op had.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// Whether the gradient of input `index` is wanted.
    pub fn needs(&self, index: usize) -> bool {
        self.needs[index]
    }

    /// The gradient of output `index`; None where it is zero.
    pub fn grad(&self, index: usize) -> Option<&'a Tensor> {
        self.grads[index].as_ref()
    }

    /// The gradient of the only output. Backward is called only if there is one.
    ///
    /// # Panics
    /// If output 0 got no gradient, which ops of several outputs must expect: they use [`grad`](Backward::grad).
    pub fn grad_output(&self) -> &'a Tensor {
        self.grads[0]
            .as_ref()
            .expect("an op of one output gets its gradient")
    }

    /// The shape that input `index` had.
    pub fn input_shape(&self, index: usize) -> &'a Shape {
        &self.node.inputs[index].shape
    }

    /// The dtype that input `index` had.
    pub fn input_dtype(&self, index: usize) -> DType {
        self.node.inputs[index].dtype
    }

    /// Input `index`, which the op's `saves` must name.
    pub fn input(&self, index: usize) -> Result<Tensor> {
        let saved = self.node.saved();
        if saved.freed {
            return Err(self.freed());
        }
        match saved.inputs.get(index) {
            Some(Saved::Input(tensor, version)) => {
                self.check_version(&tensor.0.storage, *version, || format!("input {index}"))?;
                Ok(tensor.clone())
            }
            _ => Err(self.not_saved(format!("input {index}"))),
        }
    }

    /// Output `index`, which the op's `saves` must name.
    pub fn output(&self, index: usize) -> Result<Tensor> {
        let saved = self.node.saved();
        if saved.freed {
            return Err(self.freed());
        }
        match saved.outputs.get(index) {
            Some(Saved::Output(storage, layout, dtype, origin, version)) => {
                self.check_version(storage, *version, || format!("output {index}"))?;
                let device = self.node.outputs[index].device;
                let tensor =
                    Tensor::from_parts(storage.clone(), layout.clone(), *dtype, device, *origin);
                if super::is_grad_enabled() && dtype.is_floating_point() {
                    tensor.0.autograd.set_node(self.node.clone(), index);
                }
                Ok(tensor)
            }
            _ => Err(self.not_saved(format!("output {index}"))),
        }
    }

    fn freed(&self) -> Error {
        Error::GraphFreed {
            op: self.node.op.name(),
            location: self.node.location,
        }
    }

    fn not_saved(&self, what: String) -> Error {
        Error::Autograd {
            op: self.node.op.name(),
            what: format!("its backward asks for {what}, which its `saves` doesn't name"),
            context: Box::default(),
        }
    }

    fn check_version(
        &self,
        storage: &Storage,
        expected: u64,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let found = storage.version();
        if found == expected {
            return Ok(());
        }
        let modified = storage
            .modified_at()
            .map_or_else(|| "an unknown line".into(), ToString::to_string);
        Err(Error::SavedTensorModified {
            op: self.node.op.name(),
            what: what(),
            location: self.node.location,
            modified,
            expected,
            found,
        })
    }
}
