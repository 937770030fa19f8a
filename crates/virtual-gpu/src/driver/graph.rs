//! Graphs: nodes with work, edges between them, and what can be asked of both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::c_uint;

use super::abi::{Handle, get, list, put};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::plan::Plan;
use super::state::State;
use super::work::Work;

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    /// A command.
    Work(Work),
    /// Another graph, by its handle; it is this node's own.
    Child(u64),
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
            NodeKind::Work(Work::Nothing | Work::Graph(_)) => 5,
            NodeKind::Work(Work::Await { .. }) => 6,
            NodeKind::Work(Work::Record { .. }) => 7,
            NodeKind::Work(Work::Allocate(_)) => 10,
            NodeKind::Work(Work::Free { .. }) => 11,
            NodeKind::Work(Work::WaitValue { .. } | Work::WriteValue { .. }) => 12,
        }
    }

    /// Whether it allocates or frees: such a node stays where it is, and its graph is the only one with it.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, NodeKind::Work(Work::Allocate(_) | Work::Free { .. }))
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
    /// Pointers to a kernel's parameters that were handed out.
    pub(crate) handed_out: Vec<usize>,
}

/// A graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// By handle, so in the order in which they were made.
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// How many graphs it is nested in; one that is a node's is kept by the node.
    level: usize,
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
pub(crate) fn node(state: &State, node: u64) -> Outcome<(&Node, u64)> {
    let graph = *state
        .nodes
        .get(&node)
        .ok_or_else(|| state.unknown("node", node))?;
    Ok((&state.graphs[&graph].nodes[&node], graph))
}

pub(crate) fn node_mut(state: &mut State, handle: u64) -> Outcome<&mut Node> {
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
            handed_out: Vec::new(),
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

/// Graphs in graphs: deeper than any program's, shallow enough for any stack.
const MAX_NESTING: usize = 64;

/// How many levels of graphs there are in a graph.
fn depth(state: &State, owner: u64) -> usize {
    let nodes = state.graphs.get(&owner).map(|graph| graph.nodes.values());
    let children = nodes.into_iter().flatten().map(|node| match node.kind {
        NodeKind::Child(child) => 1 + depth(state, child),
        NodeKind::Work(_) => 0,
    });
    children.max().unwrap_or(0)
}

/// A copy of a graph as a child of another.
pub(crate) fn clone_into(state: &mut State, parent: u64, owner: u64) -> Outcome<u64> {
    let level = graph(state, parent)?.level + 1;
    graph(state, owner)?;
    if level + depth(state, owner) > MAX_NESTING {
        let message = format!("graphs are nested more than {MAX_NESTING} deep");
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
    clone(state, owner, level)
}

/// A copy of a graph with nodes of its own.
pub(crate) fn clone(state: &mut State, owner: u64, level: usize) -> Outcome<u64> {
    let nodes = graph(state, owner)?.nodes.clone();
    if nodes.values().any(|node| node.kind.is_memory()) {
        let message = "a graph that allocates or frees memory can be neither copied nor a child";
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
    let new = state.new_handle();
    let mut renamed = HashMap::new();
    for &handle in nodes.keys() {
        renamed.insert(handle, state.new_handle());
    }
    let mut copies = BTreeMap::new();
    for (handle, mut node) in nodes {
        if let NodeKind::Child(inner) = node.kind {
            node.kind = NodeKind::Child(clone(state, inner, level + 1)?);
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
            level,
        },
    );
    Ok(new)
}

/// A graph with the steps of a plan, as a node's own.
pub(crate) fn from_plan(state: &mut State, plan: &Plan) -> u64 {
    let new = state.new_handle();
    state.graphs.insert(
        new,
        Graph {
            nodes: BTreeMap::new(),
            level: 1,
        },
    );
    let mut nodes = Vec::with_capacity(plan.steps.len());
    for (work, before) in &plan.steps {
        let before: Vec<u64> = before.iter().map(|&index| nodes[index]).collect();
        let node = add(state, new, NodeKind::Work(work.clone()), &before);
        nodes.push(node.expect("steps come behind those before them"));
    }
    new
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
    if graph(&state, number(h_graph))?.level > 0 {
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
    let new = clone(&mut state, number(original_graph), 0)?;
    // SAFETY: the C interface's contract.
    unsafe { put(ph_graph_clone, handle(new), "phGraphClone") }
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
    let pairs: Vec<(u64, u64)> = (from.into_iter().map(number))
        .zip(to.into_iter().map(number))
        .collect();
    for (from, to) in &pairs {
        if nodes[to].before.contains(from) == present {
            return Err(Failure::invalid(
                "an edge that is there already, or one to remove that is not",
            ));
        }
        if !present && (nodes[from].kind.is_memory() || nodes[to].kind.is_memory()) {
            let message = "edges of nodes that allocate or free memory stay";
            return Err(Failure::new(code::NOT_SUPPORTED, message));
        }
    }
    let graph = state.graphs.get_mut(&number(h_graph));
    let nodes = &mut graph.expect("looked up above").nodes;
    for (from, to) in pairs {
        let before = &mut nodes.get_mut(&to).expect("looked up above").before;
        if present {
            before.insert(from);
        } else {
            before.remove(&from);
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
    let (found, owner) = node(&state, number(h_node))?;
    if found.kind.is_memory() {
        let message = "nodes that allocate or free memory stay";
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
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

/// A graph's steps, with the index of each node's (last) step.
pub(crate) struct Flat {
    pub(crate) steps: Vec<(Work, Vec<usize>)>,
    pub(crate) index: HashMap<u64, usize>,
    /// Kinds of the nodes, in the order of the steps.
    pub(crate) kinds: Vec<c_uint>,
}

/// Lays a graph and its children out as steps.
pub(crate) fn flatten(state: &State, owner: u64) -> Outcome<Flat> {
    let mut flat = Flat {
        steps: Vec::new(),
        index: HashMap::new(),
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
