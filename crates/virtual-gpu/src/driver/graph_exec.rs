//! Graphs made executable: instantiated, updated, launched.

use std::collections::HashMap;
use std::ffi::{c_char, c_uint};
use std::sync::Arc;

use super::abi::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExecUpdateResultInfo, Handle, get, put, put_if,
};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::graph::{Flat, flatten};
use super::plan::{GraphLaunch, Plan, WHOLE_GRAPH};
use super::state::State;
use super::work::Work;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
const AUTO_FREE_ON_LAUNCH: u64 = 1;

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    plan: Arc<Plan>,
    /// The step of each node of the graph that it was made from.
    index: HashMap<u64, usize>,
    /// Kinds of the nodes, to compare with those of an update.
    kinds: Vec<c_uint>,
    flags: u64,
    /// The record of the end of its latest launch, behind which the next one comes in whatever stream; 0 if there is
    /// none.
    latest: u64,
}

impl Exec {
    /// Gives it other steps with the same edges.
    fn replace(&mut self, steps: Vec<(Work, Vec<usize>)>) {
        self.plan = Arc::new(Plan {
            steps,
            running: self.plan.running.clone(),
            first_clock: self.plan.first_clock,
        });
    }
}

fn instantiate(state: &mut State, graph: u64, flags: u64) -> Outcome<u64> {
    if flags & !0xf != 0 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of an instantiation"
        )));
    }
    if flags & 4 != 0 {
        return Err(Failure::new(
            code::NOT_SUPPORTED,
            "launches of graphs from the device are not supported",
        ));
    }
    let Flat {
        steps,
        index,
        kinds,
    } = flatten(state, graph)?;
    let allocates = |work: &Work| match work {
        Work::Allocate(memory) => Some(memory.address),
        _ => None,
    };
    let own: Vec<u64> = steps
        .iter()
        .filter_map(|(work, _)| allocates(work))
        .collect();
    let mut others = state.execs.values().flat_map(|exec| &exec.plan.steps);
    if !own.is_empty()
        && others.any(|(work, _)| allocates(work).is_some_and(|at| own.contains(&at)))
    {
        let message = "a graph that allocates memory can be executable once at a time";
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
    let first_clock = state.new_handle();
    for _ in 1..steps.len() {
        state.new_handle();
    }
    let plan = Plan {
        steps,
        running: Arc::default(),
        first_clock,
    };
    let exec = Exec {
        plan: Arc::new(plan),
        index,
        kinds,
        flags,
        latest: 0,
    };
    let new = state.new_handle();
    state.execs.insert(new, exec);
    Ok(new)
}

pub(super) unsafe fn cuGraphInstantiateWithFlags(
    call: &Call<'_>,
    ph_graph_exec: *mut Handle,
    h_graph: Handle,
    flags: u64,
) -> Outcome {
    let (mut state, _) = call.current()?;
    if ph_graph_exec.is_null() {
        return Err(Failure::invalid("phGraphExec is null"));
    }
    let new = instantiate(&mut state, number(h_graph), flags)?;
    // SAFETY: the C interface's contract.
    unsafe { put(ph_graph_exec, handle(new), "phGraphExec") }
}

pub(super) unsafe fn cuGraphInstantiate_v2(
    call: &Call<'_>,
    ph_graph_exec: *mut Handle,
    h_graph: Handle,
    ph_error_node: *mut Handle,
    _log_buffer: *mut c_char,
    _buffer_size: usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(ph_error_node, handle(0));
        cuGraphInstantiateWithFlags(call, ph_graph_exec, h_graph, 0)
    }
}

pub(super) unsafe fn cuGraphInstantiateWithParams(
    call: &Call<'_>,
    ph_graph_exec: *mut Handle,
    h_graph: Handle,
    instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        let given = get(instantiate_params.cast_const(), "instantiateParams")?;
        let result = cuGraphInstantiateWithFlags(call, ph_graph_exec, h_graph, given.flags);
        let answer = c_uint::from(result.is_err());
        let written = CUDA_GRAPH_INSTANTIATE_PARAMS {
            error_node: handle(0),
            result: answer,
            ..given
        };
        put(instantiate_params, written, "instantiateParams")?;
        result
    }
}

/// The executable graph of a handle.
fn exec(state: &mut State, exec: u64) -> Outcome<&mut Exec> {
    if !state.execs.contains_key(&exec) {
        return Err(state.unknown("executable graph", exec));
    }
    Ok(state.execs.get_mut(&exec).expect("looked up above"))
}

pub(super) unsafe fn cuGraphExecGetFlags(
    call: &Call<'_>,
    h_graph_exec: Handle,
    flags: *mut u64,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            flags,
            exec(&mut state, number(h_graph_exec))?.flags,
            "flags",
        )
    }
}

/// Results of an update: done, and why not.
const UPDATED: c_uint = 0;
const TOPOLOGY_CHANGED: c_uint = 2;
const KIND_CHANGED: c_uint = 3;

fn update(state: &mut State, target: u64, graph: u64) -> Outcome<c_uint> {
    exec(state, target)?;
    let Flat {
        steps,
        index,
        kinds,
    } = flatten(state, graph)?;
    let target = exec(state, target)?;
    let same_edges = steps.len() == target.plan.steps.len()
        && steps
            .iter()
            .zip(&target.plan.steps)
            .all(|((_, new), (_, old))| new == old);
    if !same_edges {
        return Ok(TOPOLOGY_CHANGED);
    }
    if kinds != target.kinds {
        return Ok(KIND_CHANGED);
    }
    target.replace(steps);
    target.index = index;
    Ok(UPDATED)
}

fn update_failure(result: c_uint) -> Outcome {
    match result {
        UPDATED => Ok(()),
        _ => {
            let what = if result == TOPOLOGY_CHANGED {
                "nodes or edges"
            } else {
                "the kind of a node"
            };
            let message = format!("{what} changed; instantiate the graph anew");
            Err(Failure::new(code::GRAPH_EXEC_UPDATE_FAILURE, message))
        }
    }
}

pub(super) unsafe fn cuGraphExecUpdate_v2(
    call: &Call<'_>,
    h_graph_exec: Handle,
    h_graph: Handle,
    result_info: *mut CUgraphExecUpdateResultInfo,
) -> Outcome {
    let mut state = call.state()?;
    let result = update(&mut state, number(h_graph_exec), number(h_graph))?;
    let info = CUgraphExecUpdateResultInfo {
        result,
        error_node: handle(0),
        error_from_node: handle(0),
    };
    // SAFETY: the C interface's contract.
    unsafe { put(result_info, info, "resultInfo")? };
    update_failure(result)
}

pub(super) unsafe fn cuGraphExecUpdate(
    call: &Call<'_>,
    h_graph_exec: Handle,
    h_graph: Handle,
    h_error_node_out: *mut Handle,
    update_result_out: *mut c_uint,
) -> Outcome {
    let mut state = call.state()?;
    let result = update(&mut state, number(h_graph_exec), number(h_graph))?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(h_error_node_out, handle(0));
        put(update_result_out, result, "updateResult_out")?;
    }
    update_failure(result)
}

pub(super) unsafe fn cuGraphUpload(
    call: &Call<'_>,
    h_graph_exec: Handle,
    h_stream: Handle,
) -> Outcome {
    let (mut state, context) = call.current()?;
    call.stream(&mut state, context, h_stream)?;
    exec(&mut state, number(h_graph_exec)).map(drop)
}

pub(super) unsafe fn cuGraphLaunch(
    call: &Call<'_>,
    h_graph_exec: Handle,
    h_stream: Handle,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    let exec = exec(&mut state, number(h_graph_exec))?;
    let (plan, frees_before) = (exec.plan.clone(), exec.flags & AUTO_FREE_ON_LAUNCH != 0);
    if state.streams[&stream].capture.is_some() {
        return super::capture::record_graph(&mut state, stream, &plan);
    }
    super::capture::forbid_implicit(&mut state, stream)?;
    state.submit_balance(&plan.balance(), frees_before)?;
    let latest = |event: u64| state.events.get(&event).map(|event| event.record);
    let mut waits: Vec<u64> = plan.awaited().filter_map(latest).collect();
    let mut records: Vec<(u64, u64)> = Vec::new();
    for event in plan.recorded() {
        if records.iter().any(|(other, _)| *other == event) {
            continue;
        }
        let record = state.next_sequence();
        if let Some(found) = state.events.get_mut(&event) {
            (found.record, found.time, found.captured) = (record, None, None);
            state.pending_records.insert(record);
            records.push((event, record));
        }
    }
    // Launches of one executable graph follow each other.
    let end = state.next_sequence();
    state.pending_records.insert(end);
    records.push((WHOLE_GRAPH, end));
    let exec = self::exec(&mut state, number(h_graph_exec))?;
    waits.push(std::mem::replace(&mut exec.latest, end));
    waits.retain(|record| *record != 0);
    let work = Work::Graph(Arc::new(GraphLaunch { plan, records }));
    call.machine.submit(state, stream, work, waits)
}

pub(super) unsafe fn cuGraphExecDestroy(call: &Call<'_>, h_graph_exec: Handle) -> Outcome {
    let mut state = call.state()?;
    exec(&mut state, number(h_graph_exec))?;
    state.execs.remove(&number(h_graph_exec));
    Ok(())
}

/// Gives the step of a node other work of the same kind.
pub(crate) fn set(state: &mut State, target: Handle, node: Handle, work: Work) -> Outcome {
    let target = exec(state, number(target))?;
    let missing =
        || Failure::invalid("the executable graph was not made from a graph with this node");
    let &index = target.index.get(&number(node)).ok_or_else(missing)?;
    let mut steps = target.plan.steps.clone();
    if std::mem::discriminant(&steps[index].0) != std::mem::discriminant(&work) {
        return Err(Failure::invalid("the node is of another kind"));
    }
    steps[index].0 = work;
    target.replace(steps);
    Ok(())
}
