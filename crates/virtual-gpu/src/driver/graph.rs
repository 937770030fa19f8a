//! Graphs: nodes with work, edges between them, and what can be asked of both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::c_uint;
use std::sync::Arc;

use super::abi::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, Handle,
};
use super::abi::{get, list, put};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::launch::{Arguments, kernel_work};
use super::state::State;
use super::work::Work;

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    /// A command.
    Work(Work),
    /// Nothing.
    Empty,
    /// Another graph, by its handle; it is this node's own.
    Child(u64),
    /// Waits for an event.
    Wait(u64),
}

impl NodeKind {
    /// Its number in the C interface.
    pub(crate) fn number(&self) -> c_uint {
        match self {
            NodeKind::Work(Work::Launch(_)) => 0,
            NodeKind::Work(Work::Copy(_) | Work::Staged { .. }) => 1,
            NodeKind::Work(Work::Fill(_)) => 2,
            NodeKind::Work(Work::Host { .. } | Work::Callback { .. }) => 3,
            NodeKind::Child(_) => 4,
            NodeKind::Empty | NodeKind::Work(Work::Nothing | Work::Graph(_)) => 5,
            NodeKind::Wait(_) => 6,
            NodeKind::Work(Work::Record { .. }) => 7,
            NodeKind::Work(Work::Free { .. }) => 11,
            NodeKind::Work(Work::WaitValue { .. } | Work::WriteValue { .. }) => 12,
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it does.
    pub(crate) kind: NodeKind,
    /// The nodes that come before.
    pub(crate) before: BTreeSet<u64>,
    /// The node that it was cloned from.
    original: Option<u64>,
}

/// A graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// By handle, so in the order in which they were made.
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Whether it is a node's, which keeps it.
    child: bool,
}

impl Graph {
    /// Handles of the nodes.
    pub(crate) fn handles(&self) -> impl Iterator<Item = u64> {
        self.nodes.keys().copied()
    }

    /// Nodes, and all that come before them.
    pub(crate) fn ancestors(&self, of: &[u64]) -> HashSet<u64> {
        let mut found: HashSet<u64> = HashSet::new();
        let mut open: Vec<u64> = of.to_vec();
        while let Some(node) = open.pop() {
            if found.insert(node)
                && let Some(node) = self.nodes.get(&node)
            {
                open.extend(&node.before);
            }
        }
        found
    }

    /// The nodes in an order in which all may run; `None` if edges form a circle.
    pub(crate) fn sorted(&self) -> Option<Vec<u64>> {
        let mut missing: BTreeMap<u64, usize> = self
            .nodes
            .iter()
            .map(|(handle, node)| (*handle, node.before.len()))
            .collect();
        let mut after: HashMap<u64, Vec<u64>> = HashMap::new();
        for (handle, node) in &self.nodes {
            node.before
                .iter()
                .for_each(|before| after.entry(*before).or_default().push(*handle));
        }
        let mut ready: BTreeSet<u64> = missing
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(node, _)| *node)
            .collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for next in after.get(&node).into_iter().flatten() {
                let count = missing
                    .get_mut(next)
                    .expect("edges lead to nodes of the graph");
                *count -= 1;
                if *count == 0 {
                    ready.insert(*next);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }
}

/// A graph of a handle.
pub(crate) fn graph(state: &State, graph: u64) -> Outcome<&Graph> {
    state
        .graphs
        .get(&graph)
        .ok_or_else(|| state.unknown("graph", graph))
}

/// A node of a handle, with its graph.
fn node(state: &State, node: u64) -> Outcome<(&Node, u64)> {
    let graph = *state
        .nodes
        .get(&node)
        .ok_or_else(|| state.unknown("node", node))?;
    Ok((&state.graphs[&graph].nodes[&node], graph))
}

fn node_mut(state: &mut State, handle: u64) -> Outcome<&mut Node> {
    let (_, graph) = node(state, handle)?;
    let graph = state.graphs.get_mut(&graph).expect("a node's graph exists");
    Ok(graph.nodes.get_mut(&handle).expect("looked up above"))
}

/// Adds a node behind others.
pub(crate) fn add(state: &mut State, owner: u64, kind: NodeKind, before: &[u64]) -> Outcome<u64> {
    let nodes = &graph(state, owner)?.nodes;
    if let Some(foreign) = before.iter().find(|node| !nodes.contains_key(node)) {
        return Err(state.unknown("node of the graph", *foreign));
    }
    let before: BTreeSet<u64> = before.iter().copied().collect();
    let new = state.new_handle();
    state.nodes.insert(new, owner);
    let graph = state.graphs.get_mut(&owner).expect("looked up above");
    graph.nodes.insert(
        new,
        Node {
            kind,
            before,
            original: None,
        },
    );
    Ok(new)
}

/// Forgets a graph and its nodes.
pub(crate) fn remove(state: &mut State, owner: u64) {
    let Some(graph) = state.graphs.remove(&owner) else {
        return;
    };
    for (handle, node) in graph.nodes {
        state.nodes.remove(&handle);
        if let NodeKind::Child(child) = node.kind {
            remove(state, child);
        }
    }
}

/// A copy of a graph with nodes of its own.
fn clone(state: &mut State, owner: u64, child: bool) -> Outcome<u64> {
    let nodes = graph(state, owner)?.nodes.clone();
    let new = state.new_handle();
    let mut renamed = HashMap::new();
    for &handle in nodes.keys() {
        renamed.insert(handle, state.new_handle());
    }
    let mut copies = BTreeMap::new();
    for (handle, mut node) in nodes {
        if let NodeKind::Child(inner) = node.kind {
            node.kind = NodeKind::Child(clone(state, inner, true)?);
        }
        node.before = node.before.iter().map(|before| renamed[before]).collect();
        node.original = Some(handle);
        state.nodes.insert(renamed[&handle], new);
        copies.insert(renamed[&handle], node);
    }
    state.graphs.insert(
        new,
        Graph {
            nodes: copies,
            child,
        },
    );
    Ok(new)
}

pub(super) unsafe fn cuGraphCreate(
    call: &Call<'_>,
    ph_graph: *mut Handle,
    flags: c_uint,
) -> Outcome {
    let mut state = call.state()?;
    if flags != 0 {
        return Err(Failure::invalid("flags must be 0"));
    }
    let new = state.new_handle();
    // SAFETY: the C interface's contract.
    unsafe { put(ph_graph, handle(new), "phGraph")? };
    state.graphs.insert(new, Graph::default());
    Ok(())
}

pub(super) unsafe fn cuGraphDestroy(call: &Call<'_>, h_graph: Handle) -> Outcome {
    let mut state = call.state()?;
    if graph(&state, number(h_graph))?.child {
        return Err(Failure::invalid("the graph belongs to a node"));
    }
    remove(&mut state, number(h_graph));
    Ok(())
}

pub(super) unsafe fn cuGraphClone(
    call: &Call<'_>,
    ph_graph_clone: *mut Handle,
    original_graph: Handle,
) -> Outcome {
    let mut state = call.state()?;
    let new = clone(&mut state, number(original_graph), false)?;
    // SAFETY: the C interface's contract.
    unsafe { put(ph_graph_clone, handle(new), "phGraphClone") }
}

/// Where a new node goes: the graph, and the nodes before it.
type Place = (Handle, *const Handle, usize);

unsafe fn add_node(state: &mut State, out: *mut Handle, place: Place, kind: NodeKind) -> Outcome {
    if out.is_null() {
        return Err(Failure::invalid("phGraphNode is null"));
    }
    // SAFETY: the C interface's contract.
    unsafe {
        let before: Vec<u64> = list(place.1, place.2, "dependencies")?
            .into_iter()
            .map(number)
            .collect();
        let new = add(state, number(place.0), kind, &before)?;
        put(out, handle(new), "phGraphNode")
    }
}

/// The work of a kernel node.
pub(crate) unsafe fn kernel_node(
    call: &Call<'_>,
    state: &mut State,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome<Work> {
    let context = call
        .top()
        .ok_or_else(|| Failure::new(code::INVALID_CONTEXT, "no context is current"))?;
    // SAFETY: the C interface's contract.
    unsafe {
        let given = get(params, "nodeParams")?;
        let arguments = Arguments {
            function: if given.func.is_null() {
                given.kern
            } else {
                given.func
            },
            grid: given.grid,
            block: given.block,
            shared: given.shared_mem_bytes,
            params: given.kernel_params,
            extra: given.extra,
            cooperative: false,
        };
        let context = if given.ctx.is_null() {
            context
        } else {
            number(given.ctx)
        };
        kernel_work(call, state, context, &arguments)
    }
}

pub(super) unsafe fn cuGraphAddKernelNode_v2(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    node_params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let (mut state, _) = call.current()?;
    // SAFETY: the C interface's contract.
    unsafe {
        let work = kernel_node(call, &mut state, node_params)?;
        add_node(
            &mut state,
            ph_graph_node,
            (h_graph, dependencies, num_dependencies),
            NodeKind::Work(work),
        )
    }
}

pub(super) unsafe fn cuGraphAddMemcpyNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    copy_params: *const CUDA_MEMCPY3D,
    _ctx: Handle,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        let work = super::copy::node_work(&state, &get(copy_params, "copyParams")?)?;
        add_node(
            &mut state,
            ph_graph_node,
            (h_graph, dependencies, num_dependencies),
            NodeKind::Work(work),
        )
    }
}

pub(super) unsafe fn cuGraphAddMemsetNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    memset_params: *const CUDA_MEMSET_NODE_PARAMS,
    _ctx: Handle,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        let work = super::fill::node_work(&state, &get(memset_params, "memsetParams")?)?;
        add_node(
            &mut state,
            ph_graph_node,
            (h_graph, dependencies, num_dependencies),
            NodeKind::Work(work),
        )
    }
}

/// The work of a host node.
pub(crate) unsafe fn host_node(params: *const CUDA_HOST_NODE_PARAMS) -> Outcome<Work> {
    // SAFETY: the C interface's contract.
    let given = unsafe { get(params, "nodeParams")? };
    if given.function.is_none() {
        return Err(Failure::invalid("the function is null"));
    }
    Ok(Work::Host {
        function: given.function,
        data: given.user_data as usize,
    })
}

pub(super) unsafe fn cuGraphAddHostNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    node_params: *const CUDA_HOST_NODE_PARAMS,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        let kind = NodeKind::Work(host_node(node_params)?);
        add_node(
            &mut state,
            ph_graph_node,
            (h_graph, dependencies, num_dependencies),
            kind,
        )
    }
}

pub(super) unsafe fn cuGraphAddEmptyNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
) -> Outcome {
    let mut state = call.state()?;
    let place = (h_graph, dependencies, num_dependencies);
    // SAFETY: the C interface's contract.
    unsafe { add_node(&mut state, ph_graph_node, place, NodeKind::Empty) }
}

pub(super) unsafe fn cuGraphAddChildGraphNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    child_graph: Handle,
) -> Outcome {
    let mut state = call.state()?;
    if child_graph == h_graph {
        return Err(Failure::invalid("a graph cannot be its own child"));
    }
    graph(&state, number(h_graph))?;
    let child = clone(&mut state, number(child_graph), true)?;
    let place = (h_graph, dependencies, num_dependencies);
    // SAFETY: the C interface's contract.
    unsafe { add_node(&mut state, ph_graph_node, place, NodeKind::Child(child)) }
}

pub(super) unsafe fn cuGraphAddEventRecordNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    event: Handle,
) -> Outcome {
    let mut state = call.state()?;
    state.event(number(event))?;
    let kind = NodeKind::Work(Work::Record {
        event: number(event),
        record: 0,
    });
    // SAFETY: the C interface's contract.
    unsafe {
        add_node(
            &mut state,
            ph_graph_node,
            (h_graph, dependencies, num_dependencies),
            kind,
        )
    }
}

pub(super) unsafe fn cuGraphAddEventWaitNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    event: Handle,
) -> Outcome {
    let mut state = call.state()?;
    state.event(number(event))?;
    let kind = NodeKind::Wait(number(event));
    // SAFETY: the C interface's contract.
    unsafe {
        add_node(
            &mut state,
            ph_graph_node,
            (h_graph, dependencies, num_dependencies),
            kind,
        )
    }
}

unsafe fn edges(
    call: &Call<'_>,
    h_graph: Handle,
    ends: [*const Handle; 2],
    count: usize,
    present: bool,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    let (from, to) = unsafe { (list(ends[0], count, "from")?, list(ends[1], count, "to")?) };
    let nodes = &graph(&state, number(h_graph))?.nodes;
    if let Some(foreign) = from
        .iter()
        .chain(&to)
        .find(|node| !nodes.contains_key(&number(**node)))
    {
        return Err(state.unknown("node of the graph", number(*foreign)));
    }
    let graph = state
        .graphs
        .get_mut(&number(h_graph))
        .expect("looked up above");
    for (from, to) in from.into_iter().zip(to) {
        let before = &mut graph
            .nodes
            .get_mut(&number(to))
            .expect("looked up above")
            .before;
        let changed = if present {
            before.insert(number(from))
        } else {
            before.remove(&number(from))
        };
        if !changed {
            return Err(Failure::invalid(
                "an edge that is there already, or one to remove that is not",
            ));
        }
    }
    Ok(())
}

pub(super) unsafe fn cuGraphAddDependencies(
    call: &Call<'_>,
    h_graph: Handle,
    from: *const Handle,
    to: *const Handle,
    num_dependencies: usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { edges(call, h_graph, [from, to], num_dependencies, true) }
}

pub(super) unsafe fn cuGraphAddDependencies_v2(
    call: &Call<'_>,
    h_graph: Handle,
    from: *const Handle,
    to: *const Handle,
    _edge_data: *const u64,
    num_dependencies: usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { edges(call, h_graph, [from, to], num_dependencies, true) }
}

pub(super) unsafe fn cuGraphRemoveDependencies(
    call: &Call<'_>,
    h_graph: Handle,
    from: *const Handle,
    to: *const Handle,
    num_dependencies: usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { edges(call, h_graph, [from, to], num_dependencies, false) }
}

pub(super) unsafe fn cuGraphRemoveDependencies_v2(
    call: &Call<'_>,
    h_graph: Handle,
    from: *const Handle,
    to: *const Handle,
    _edge_data: *const u64,
    num_dependencies: usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { edges(call, h_graph, [from, to], num_dependencies, false) }
}

/// Writes handles into a list that may be null (then only their number is wanted), and their number.
unsafe fn hand_out(found: &[u64], out: *mut Handle, count: *mut usize, name: &str) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        let room = get(count.cast_const(), name)?;
        if out.is_null() {
            return put(count, found.len(), name);
        }
        for index in 0..room {
            put(
                out.add(index),
                handle(found.get(index).copied().unwrap_or(0)),
                name,
            )?;
        }
        put(count, room.min(found.len()), name)
    }
}

pub(super) unsafe fn cuGraphGetNodes(
    call: &Call<'_>,
    h_graph: Handle,
    nodes: *mut Handle,
    num_nodes: *mut usize,
) -> Outcome {
    let state = call.state()?;
    let found: Vec<u64> = graph(&state, number(h_graph))?.handles().collect();
    // SAFETY: the C interface's contract.
    unsafe { hand_out(&found, nodes, num_nodes, "numNodes") }
}

pub(super) unsafe fn cuGraphGetRootNodes(
    call: &Call<'_>,
    h_graph: Handle,
    root_nodes: *mut Handle,
    num_root_nodes: *mut usize,
) -> Outcome {
    let state = call.state()?;
    let nodes = &graph(&state, number(h_graph))?.nodes;
    let found: Vec<u64> = nodes
        .iter()
        .filter(|(_, node)| node.before.is_empty())
        .map(|(node, _)| *node)
        .collect();
    // SAFETY: the C interface's contract.
    unsafe { hand_out(&found, root_nodes, num_root_nodes, "numRootNodes") }
}

pub(super) unsafe fn cuGraphGetEdges(
    call: &Call<'_>,
    h_graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    num_edges: *mut usize,
) -> Outcome {
    let state = call.state()?;
    let nodes = &graph(&state, number(h_graph))?.nodes;
    let pairs = nodes
        .iter()
        .flat_map(|(to, node)| node.before.iter().map(|from| (*from, *to)));
    let (sources, targets): (Vec<u64>, Vec<u64>) = pairs.unzip();
    // SAFETY: the C interface's contract.
    unsafe {
        if from.is_null() != to.is_null() {
            return Err(Failure::invalid("only one of from and to is null"));
        }
        let mut room = get(num_edges.cast_const(), "numEdges")?;
        hand_out(&sources, from, &mut room, "from")?;
        hand_out(&targets, to, num_edges, "numEdges")
    }
}

pub(super) unsafe fn cuGraphGetEdges_v2(
    call: &Call<'_>,
    h_graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    edge_data: *mut u64,
    num_edges: *mut usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        cuGraphGetEdges(call, h_graph, from, to, num_edges)?;
        zero_edges(edge_data, num_edges)
    }
}

/// Edges have no data here.
unsafe fn zero_edges(data: *mut u64, count: *const usize) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        if !data.is_null() {
            for index in 0..get(count, "the number of edges")? {
                put(data.add(index), 0, "edgeData")?;
            }
        }
    }
    Ok(())
}

pub(super) unsafe fn cuGraphNodeGetType(
    call: &Call<'_>,
    h_node: Handle,
    kind: *mut c_uint,
) -> Outcome {
    let state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe { put(kind, node(&state, number(h_node))?.0.kind.number(), "type") }
}

pub(super) unsafe fn cuGraphNodeGetDependencies(
    call: &Call<'_>,
    h_node: Handle,
    dependencies: *mut Handle,
    num_dependencies: *mut usize,
) -> Outcome {
    let state = call.state()?;
    let found: Vec<u64> = node(&state, number(h_node))?
        .0
        .before
        .iter()
        .copied()
        .collect();
    // SAFETY: the C interface's contract.
    unsafe { hand_out(&found, dependencies, num_dependencies, "numDependencies") }
}

pub(super) unsafe fn cuGraphNodeGetDependencies_v2(
    call: &Call<'_>,
    h_node: Handle,
    dependencies: *mut Handle,
    edge_data: *mut u64,
    num_dependencies: *mut usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        cuGraphNodeGetDependencies(call, h_node, dependencies, num_dependencies)?;
        zero_edges(edge_data, num_dependencies)
    }
}

pub(super) unsafe fn cuGraphNodeGetDependentNodes(
    call: &Call<'_>,
    h_node: Handle,
    dependent_nodes: *mut Handle,
    num_dependent_nodes: *mut usize,
) -> Outcome {
    let state = call.state()?;
    let (_, graph) = node(&state, number(h_node))?;
    let all = state.graphs[&graph].nodes.iter();
    let found: Vec<u64> = all
        .filter(|(_, other)| other.before.contains(&number(h_node)))
        .map(|(other, _)| *other)
        .collect();
    // SAFETY: the C interface's contract.
    unsafe {
        hand_out(
            &found,
            dependent_nodes,
            num_dependent_nodes,
            "numDependentNodes",
        )
    }
}

pub(super) unsafe fn cuGraphNodeGetDependentNodes_v2(
    call: &Call<'_>,
    h_node: Handle,
    dependent_nodes: *mut Handle,
    edge_data: *mut u64,
    num_dependent_nodes: *mut usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        cuGraphNodeGetDependentNodes(call, h_node, dependent_nodes, num_dependent_nodes)?;
        zero_edges(edge_data, num_dependent_nodes)
    }
}

pub(super) unsafe fn cuGraphDestroyNode(call: &Call<'_>, h_node: Handle) -> Outcome {
    let mut state = call.state()?;
    let (_, owner) = node(&state, number(h_node))?;
    let graph = state.graphs.get_mut(&owner).expect("a node's graph exists");
    let old = graph
        .nodes
        .remove(&number(h_node))
        .expect("looked up above");
    for other in graph.nodes.values_mut() {
        other.before.remove(&number(h_node));
    }
    state.nodes.remove(&number(h_node));
    if let NodeKind::Child(child) = old.kind {
        remove(&mut state, child);
    }
    Ok(())
}

pub(super) unsafe fn cuGraphKernelNodeGetParams_v2(
    call: &Call<'_>,
    h_node: Handle,
    node_params: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let state = call.state()?;
    let NodeKind::Work(Work::Launch(launch)) = &node(&state, number(h_node))?.0.kind else {
        return Err(Failure::invalid("the node launches no kernel"));
    };
    let function = &launch.function;
    let func = state
        .modules
        .get(&function.module)
        .and_then(|module| module.functions.get(&function.index));
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: handle(func.copied().unwrap_or(0)),
        grid: launch.grid,
        block: launch.block,
        shared_mem_bytes: launch.shared,
        // The parameters were taken by value; there are no pointers to hand back.
        kernel_params: std::ptr::null_mut(),
        extra: std::ptr::null_mut(),
        kern: handle(0),
        ctx: handle(function.context),
    };
    // SAFETY: the C interface's contract.
    unsafe { put(node_params, params, "nodeParams") }
}

pub(super) unsafe fn cuGraphKernelNodeSetParams_v2(
    call: &Call<'_>,
    h_node: Handle,
    node_params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let (mut state, _) = call.current()?;
    // SAFETY: the C interface's contract.
    let work = unsafe { kernel_node(call, &mut state, node_params)? };
    let node = node_mut(&mut state, number(h_node))?;
    if node.kind.number() != 0 {
        return Err(Failure::invalid("the node launches no kernel"));
    }
    node.kind = NodeKind::Work(work);
    Ok(())
}

pub(super) unsafe fn cuGraphNodeFindInClone(
    call: &Call<'_>,
    ph_node: *mut Handle,
    h_original_node: Handle,
    h_cloned_graph: Handle,
) -> Outcome {
    let state = call.state()?;
    let nodes = &graph(&state, number(h_cloned_graph))?.nodes;
    let found = nodes
        .iter()
        .find(|(_, node)| node.original == Some(number(h_original_node)));
    let (found, _) = found.ok_or_else(|| Failure::invalid("the graph has no copy of the node"))?;
    // SAFETY: the C interface's contract.
    unsafe { put(ph_node, handle(*found), "phNode") }
}

pub(super) unsafe fn cuGraphChildGraphNodeGetGraph(
    call: &Call<'_>,
    h_node: Handle,
    ph_graph: *mut Handle,
) -> Outcome {
    let state = call.state()?;
    let NodeKind::Child(child) = node(&state, number(h_node))?.0.kind else {
        return Err(Failure::invalid("the node holds no graph"));
    };
    // SAFETY: the C interface's contract.
    unsafe { put(ph_graph, handle(child), "phGraph") }
}

/// A graph's steps, with the index of each node's (last) step, and the events that it waits for.
pub(crate) struct Flat {
    pub(crate) steps: Vec<(Work, Vec<usize>)>,
    pub(crate) index: HashMap<u64, usize>,
    pub(crate) waits: Vec<u64>,
    /// Kinds of the nodes, in the order of the steps.
    pub(crate) kinds: Vec<c_uint>,
}

/// Lays a graph and its children out as steps.
pub(crate) fn flatten(state: &State, owner: u64) -> Outcome<Flat> {
    let mut flat = Flat {
        steps: Vec::new(),
        index: HashMap::new(),
        waits: Vec::new(),
        kinds: Vec::new(),
    };
    lay_out(state, owner, &[], &mut flat)?;
    Ok(flat)
}

fn lay_out(state: &State, owner: u64, entry: &[usize], flat: &mut Flat) -> Outcome {
    let graph = graph(state, owner)?;
    let order = graph
        .sorted()
        .ok_or_else(|| Failure::invalid("the graph's edges form a circle"))?;
    for handle in order {
        let node = &graph.nodes[&handle];
        let mut before: Vec<usize> = node
            .before
            .iter()
            .map(|before| flat.index[before])
            .collect();
        before.extend(entry);
        let work = match &node.kind {
            NodeKind::Work(work) => work.clone(),
            NodeKind::Empty => Work::Nothing,
            NodeKind::Wait(event) => {
                flat.waits.push(*event);
                Work::Nothing
            }
            NodeKind::Child(child) => {
                let first = flat.steps.len();
                lay_out(state, *child, &before, flat)?;
                before.extend(first..flat.steps.len());
                Work::Nothing
            }
        };
        flat.index.insert(handle, flat.steps.len());
        flat.kinds.push(node.kind.number());
        flat.steps.push((work, before));
    }
    Ok(())
}

/// Shares a plan's steps.
pub(crate) fn plan(
    steps: Vec<(Work, Vec<usize>)>,
    running: Arc<std::sync::Mutex<()>>,
) -> Arc<super::plan::Plan> {
    Arc::new(super::plan::Plan { steps, running })
}
