//! Capture: what is submitted to a stream becomes nodes of a graph instead of being done.

use std::collections::{HashMap, HashSet};
use std::ffi::c_uint;
use std::thread::ThreadId;

use super::abi::{Handle, list, put, put_if};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::graph::{Graph, NodeKind};
use super::plan::Plan;
use super::state::{State, StreamKind};
use super::work::Work;

/// A capture that goes on.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The stream that it began in, and ends in.
    origin: u64,
    /// The graph that nodes are added to.
    graph: u64,
    /// Whose unsafe calls it forbids.
    mode: c_uint,
    /// The thread that it began in.
    thread: ThreadId,
    /// Of each stream that takes part, the nodes that the next one comes behind.
    tips: HashMap<u64, Vec<u64>>,
    /// Whether something happened that cannot be captured.
    invalid: bool,
    /// The graph was the caller's before the capture.
    callers_graph: bool,
    /// What `cuStreamGetCaptureInfo` handed out last.
    handed_out: Vec<Handle>,
}

// SAFETY: handles are numbers that are never followed.
unsafe impl Send for Capture {}

/// Modes: unsafe calls are forbidden to all threads, to the capture's own, or to none.
const GLOBAL: c_uint = 0;
const RELAXED: c_uint = 2;

thread_local! {
    static MODE: std::cell::Cell<c_uint> = const { std::cell::Cell::new(0) };
}

/// Makes a capture fail when it ends.
pub(crate) fn invalidate(state: &mut State, capture: u64) {
    if let Some(capture) = state.captures.get_mut(&capture) {
        capture.invalid = true;
    }
}

/// A stream of a capture is destroyed: the capture fails, and is gone if the stream is the one that it began in.
pub(crate) fn abandon(state: &mut State, handle: u64, stream: u64) {
    invalidate(state, handle);
    if state
        .captures
        .get(&handle)
        .is_none_or(|capture| capture.origin != stream)
    {
        return;
    }
    let Some(capture) = state.captures.remove(&handle) else {
        return;
    };
    for member in capture.tips.keys() {
        if let Some(stream) = state.streams.get_mut(member) {
            stream.capture = None;
        }
    }
    if !capture.callers_graph {
        super::graph::remove(state, capture.graph);
    }
}

/// The failure of what a capturing stream cannot do; the capture fails with it.
pub(crate) fn forbid(state: &mut State, stream: u64, what: &str) -> Failure {
    let capture = state.streams.get(&stream).and_then(|stream| stream.capture);
    refuse(state, capture.unwrap_or(0), what)
}

/// Fails if a stream of the context captures: what waits for all of them cannot wait for that one.
pub(crate) fn forbid_in_context(state: &mut State, context: u64, what: &str) -> Outcome {
    let mut streams = state.streams.values();
    let capturing = streams.find_map(|stream| stream.capture.filter(|_| stream.context == context));
    match capturing {
        None => Ok(()),
        Some(capture) => Err(refuse(state, capture, what)),
    }
}

/// Fails if the thread must not do what might disturb a capture: its own one, unless that is relaxed, or anyone's
/// global one. `cuThreadExchangeStreamCaptureMode` has a say in it.
pub(crate) fn forbid_unsafe(state: &mut State, what: &str) -> Outcome {
    let own_mode = MODE.get();
    if state.captures.is_empty() || own_mode == RELAXED {
        return Ok(());
    }
    let thread = std::thread::current().id();
    let forbids = |capture: &Capture| {
        // A context that was destroyed has taken its streams along.
        state.streams.contains_key(&capture.origin)
            && (capture.thread == thread && capture.mode != RELAXED
                || capture.mode == GLOBAL && own_mode == GLOBAL)
    };
    let found = (state.captures.iter())
        .find(|(_, capture)| forbids(capture))
        .map(|(handle, _)| *handle);
    match found {
        None => Ok(()),
        Some(capture) => Err(refuse(state, capture, what)),
    }
}

fn refuse(state: &mut State, capture: u64, what: &str) -> Failure {
    invalidate(state, capture);
    let message = format!("{what}: not permitted while a stream captures");
    Failure::new(code::STREAM_CAPTURE_UNSUPPORTED, message)
}

/// Fails if a command of the default stream would have to wait for a capturing stream.
pub(crate) fn forbid_implicit(state: &mut State, stream: u64) -> Outcome {
    if state.captures.is_empty() || state.streams[&stream].kind != StreamKind::Legacy {
        return Ok(());
    }
    let context = state.streams[&stream].context;
    let capturing = state.streams.values().find_map(|other| {
        let orders = other.context == context && other.kind == StreamKind::Blocking;
        other.capture.filter(|_| orders)
    });
    if let Some(capture) = capturing {
        invalidate(state, capture);
        let message =
            "the default stream would wait for a capturing stream; make that one non-blocking";
        return Err(Failure::new(code::STREAM_CAPTURE_IMPLICIT, message));
    }
    Ok(())
}

/// Takes a command down as a node.
pub(crate) fn record(state: &mut State, stream: u64, work: Work) -> Outcome {
    add_node(state, stream, NodeKind::Work(work))
}

/// Takes the launch of a graph down as a node with a graph of its own.
pub(crate) fn record_graph(state: &mut State, stream: u64, plan: &Plan) -> Outcome {
    let memory = |work: &Work| matches!(work, Work::Allocate(_) | Work::Free { .. });
    if plan.steps.iter().any(|(work, _)| memory(work)) {
        return Err(forbid(
            state,
            stream,
            "the launch of a graph that allocates or frees memory",
        ));
    }
    let child = super::graph::from_plan(state, plan);
    let added = add_node(state, stream, NodeKind::Child(child));
    if added.is_err() {
        super::graph::remove(state, child);
    }
    added
}

fn add_node(state: &mut State, stream: u64, kind: NodeKind) -> Outcome {
    let Some(capture) = state.streams[&stream].capture else {
        return Ok(());
    };
    let Some(found) = state.captures.get(&capture) else {
        return Ok(());
    };
    if found.invalid {
        let message = "something that cannot be captured happened before; end the capture";
        return Err(Failure::new(code::STREAM_CAPTURE_INVALIDATED, message));
    }
    let graph = found.graph;
    let before = tips(state, capture, stream);
    let node = super::graph::add(state, graph, kind, &before)?;
    if let Some(capture) = state.captures.get_mut(&capture) {
        capture.tips.insert(stream, vec![node]);
    }
    Ok(())
}

/// The nodes that the next one of a stream comes behind.
pub(crate) fn tips(state: &State, capture: u64, stream: u64) -> Vec<u64> {
    let found = state
        .captures
        .get(&capture)
        .and_then(|capture| capture.tips.get(&stream));
    found.cloned().unwrap_or_default()
}

/// Orders a stream behind nodes of a capture, in which it takes part from now on.
pub(crate) fn join(state: &mut State, stream: u64, capture: u64, nodes: Vec<u64>) -> Outcome {
    match state.streams[&stream].capture {
        Some(own) if own != capture => {
            invalidate(state, own);
            invalidate(state, capture);
            let message = "the wait would merge two captures";
            return Err(Failure::new(code::STREAM_CAPTURE_MERGE, message));
        }
        _ => {}
    }
    if state.streams[&stream].kind == StreamKind::Legacy {
        invalidate(state, capture);
        return Err(Failure::new(
            code::STREAM_CAPTURE_IMPLICIT,
            "the default stream cannot take part in a capture",
        ));
    }
    let Some(found) = state.captures.get_mut(&capture) else {
        return Err(Failure::new(
            code::CAPTURED_EVENT,
            "the capture in which the event was recorded has ended",
        ));
    };
    let tips = found.tips.entry(stream).or_default();
    tips.extend(nodes);
    tips.sort_unstable();
    tips.dedup();
    state.stream_mut(stream).capture = Some(capture);
    Ok(())
}

fn begin(
    call: &Call<'_>,
    h_stream: Handle,
    graph: Option<(u64, Vec<u64>)>,
    mode: c_uint,
) -> Outcome {
    let (mut state, context) = call.current()?;
    if mode > RELAXED {
        return Err(Failure::invalid(format!(
            "no capture mode has the number {mode}"
        )));
    }
    let stream = call.stream(&mut state, context, h_stream)?;
    if state.streams[&stream].kind == StreamKind::Legacy {
        return Err(Failure::new(
            code::STREAM_CAPTURE_UNSUPPORTED,
            "the default stream cannot be captured",
        ));
    }
    if state.streams[&stream].capture.is_some() {
        return Err(Failure::new(
            code::ILLEGAL_STATE,
            "the stream is capturing already",
        ));
    }
    let callers_graph = graph.is_some();
    let (graph, tips) = graph.unwrap_or_else(|| {
        let new = state.new_handle();
        state.graphs.insert(new, Graph::default());
        (new, Vec::new())
    });
    let capture = state.new_handle();
    let thread = std::thread::current().id();
    let tips = HashMap::from([(stream, tips)]);
    let handed_out = Vec::new();
    let new = Capture {
        origin: stream,
        graph,
        mode,
        thread,
        tips,
        invalid: false,
        callers_graph,
        handed_out,
    };
    state.captures.insert(capture, new);
    state.stream_mut(stream).capture = Some(capture);
    Ok(())
}

pub(super) unsafe fn cuStreamBeginCapture_v2(
    call: &Call<'_>,
    h_stream: Handle,
    mode: c_uint,
) -> Outcome {
    begin(call, h_stream, None, mode)
}

pub(super) unsafe fn cuStreamBeginCaptureToGraph(
    call: &Call<'_>,
    h_stream: Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    _dependency_data: *const u64,
    num_dependencies: usize,
    mode: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    let before = unsafe { list(dependencies, num_dependencies, "dependencies")? };
    let state = call.state()?;
    if !state.graphs.contains_key(&number(h_graph)) {
        return Err(state.unknown("graph", number(h_graph)));
    }
    drop(state);
    begin(
        call,
        h_stream,
        Some((number(h_graph), before.into_iter().map(number).collect())),
        mode,
    )
}

pub(super) unsafe fn cuStreamEndCapture(
    call: &Call<'_>,
    h_stream: Handle,
    ph_graph: *mut Handle,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    let Some(handle_of_capture) = state.streams[&stream].capture else {
        return Err(Failure::new(
            code::ILLEGAL_STATE,
            "the stream is not capturing",
        ));
    };
    let Some(capture) = state.captures.get(&handle_of_capture) else {
        state.stream_mut(stream).capture = None;
        return Err(Failure::new(
            code::STREAM_CAPTURE_INVALIDATED,
            "the capture has ended before",
        ));
    };
    if capture.origin != stream {
        let message = "the capture began in another stream, and must end in that one";
        invalidate(&mut state, handle_of_capture);
        return Err(Failure::new(code::STREAM_CAPTURE_UNMATCHED, message));
    }
    if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
        let message = "the capture began in another thread; only relaxed captures may end in any";
        return Err(Failure::new(code::STREAM_CAPTURE_WRONG_THREAD, message));
    }
    let capture = state
        .captures
        .remove(&handle_of_capture)
        .expect("looked up above");
    for member in capture.tips.keys() {
        if let Some(stream) = state.streams.get_mut(member) {
            stream.capture = None;
        }
    }
    let Some(graph) = state.graphs.get(&capture.graph) else {
        let message = "the graph that was captured to is destroyed";
        return Err(Failure::new(code::STREAM_CAPTURE_INVALIDATED, message));
    };
    let joined = graph.ancestors(capture.tips.get(&stream).map_or(&[], Vec::as_slice));
    let unjoined = |(member, tips): (&u64, &Vec<u64>)| {
        *member != stream && tips.iter().any(|tip| !joined.contains(tip))
    };
    let failure = if capture.invalid {
        let message = "something that cannot be captured happened between begin and end";
        Some(Failure::new(code::STREAM_CAPTURE_INVALIDATED, message))
    } else if capture.tips.iter().any(unjoined) {
        let message = "another stream took part, and the first one does not wait for it at the end; record an event";
        Some(Failure::new(code::STREAM_CAPTURE_UNJOINED, message))
    } else {
        None
    };
    // SAFETY: the C interface's contract.
    unsafe {
        if let Some(failure) = failure {
            if !capture.callers_graph {
                super::graph::remove(&mut state, capture.graph);
            }
            put_if(ph_graph, handle(0));
            return Err(failure);
        }
        put(ph_graph, handle(capture.graph), "phGraph")
    }
}

/// 0: not capturing, 1: capturing, 2: something cannot be captured.
fn status(state: &State, stream: u64) -> c_uint {
    match state.streams[&stream]
        .capture
        .and_then(|capture| state.captures.get(&capture))
    {
        None => 0,
        Some(capture) => 1 + c_uint::from(capture.invalid),
    }
}

pub(super) unsafe fn cuStreamIsCapturing(
    call: &Call<'_>,
    h_stream: Handle,
    capture_status: *mut c_uint,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    // SAFETY: the C interface's contract.
    unsafe { put(capture_status, status(&state, stream), "captureStatus") }
}

unsafe fn info(
    call: &Call<'_>,
    h_stream: Handle,
    capture_status: *mut c_uint,
    id_out: *mut u64,
    graph_out: *mut Handle,
    dependencies_out: *mut *const Handle,
    count_out: *mut usize,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    let status = status(&state, stream);
    let capture = state.streams[&stream].capture;
    // SAFETY: the C interface's contract.
    unsafe {
        put(capture_status, status, "captureStatus_out")?;
        if let Some(handle_of_capture) = capture
            && let Some(capture) = state.captures.get_mut(&handle_of_capture)
            && status == 1
        {
            put_if(id_out, handle_of_capture);
            put_if(graph_out, handle(capture.graph));
            let tips = capture.tips.get(&stream).cloned().unwrap_or_default();
            capture.handed_out = tips.into_iter().map(handle).collect();
            put_if(dependencies_out, capture.handed_out.as_ptr());
            put_if(count_out, capture.handed_out.len());
        }
    }
    Ok(())
}

pub(super) unsafe fn cuStreamGetCaptureInfo(
    call: &Call<'_>,
    h_stream: Handle,
    capture_status_out: *mut c_uint,
    id_out: *mut u64,
) -> Outcome {
    let none = std::ptr::null_mut;
    // SAFETY: the C interface's contract.
    unsafe {
        info(
            call,
            h_stream,
            capture_status_out,
            id_out,
            none(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

pub(super) unsafe fn cuStreamGetCaptureInfo_v2(
    call: &Call<'_>,
    h_stream: Handle,
    capture_status_out: *mut c_uint,
    id_out: *mut u64,
    graph_out: *mut Handle,
    dependencies_out: *mut *const Handle,
    num_dependencies_out: *mut usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        info(
            call,
            h_stream,
            capture_status_out,
            id_out,
            graph_out,
            dependencies_out,
            num_dependencies_out,
        )
    }
}

pub(super) unsafe fn cuStreamGetCaptureInfo_v3(
    call: &Call<'_>,
    h_stream: Handle,
    capture_status_out: *mut c_uint,
    id_out: *mut u64,
    graph_out: *mut Handle,
    dependencies_out: *mut *const Handle,
    edge_data_out: *mut *const u64,
    num_dependencies_out: *mut usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(edge_data_out, std::ptr::null());
        info(
            call,
            h_stream,
            capture_status_out,
            id_out,
            graph_out,
            dependencies_out,
            num_dependencies_out,
        )
    }
}

pub(super) unsafe fn cuStreamUpdateCaptureDependencies(
    call: &Call<'_>,
    h_stream: Handle,
    dependencies: *mut Handle,
    num_dependencies: usize,
    flags: c_uint,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    // SAFETY: the C interface's contract.
    let nodes = unsafe { list(dependencies.cast_const(), num_dependencies, "dependencies")? };
    let nodes: Vec<u64> = nodes.into_iter().map(number).collect();
    let capture = state.streams[&stream].capture;
    let not_capturing = || Failure::new(code::ILLEGAL_STATE, "the stream is not capturing");
    let capture_handle = capture.ok_or_else(not_capturing)?;
    let capture = state
        .captures
        .get(&capture_handle)
        .ok_or_else(not_capturing)?;
    let graph = capture.graph;
    let known: HashSet<u64> = state.graphs[&graph].handles().collect();
    if let Some(foreign) = nodes.iter().find(|node| !known.contains(node)) {
        return Err(state.unknown("node of the capture", *foreign));
    }
    let tips = state
        .captures
        .get_mut(&capture_handle)
        .expect("looked up above")
        .tips
        .entry(stream)
        .or_default();
    match flags {
        0 => tips.extend(&nodes),
        1 => *tips = nodes,
        _ => {
            return Err(Failure::invalid(format!(
                "{flags:#x} are no flags of dependencies"
            )));
        }
    }
    Ok(())
}

pub(super) unsafe fn cuStreamUpdateCaptureDependencies_v2(
    call: &Call<'_>,
    h_stream: Handle,
    dependencies: *mut Handle,
    _dependency_data: *const u64,
    num_dependencies: usize,
    flags: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        cuStreamUpdateCaptureDependencies(call, h_stream, dependencies, num_dependencies, flags)
    }
}

pub(super) unsafe fn cuThreadExchangeStreamCaptureMode(
    _call: &Call<'_>,
    mode: *mut c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        let new = super::abi::get(mode.cast_const(), "mode")?;
        if new > RELAXED {
            return Err(Failure::invalid(format!(
                "no capture mode has the number {new}"
            )));
        }
        put(mode, MODE.replace(new), "mode")
    }
}
