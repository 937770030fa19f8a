//! Events: recorded in streams, waited for by streams and the host, with times.

use std::ffi::c_uint;
use std::sync::MutexGuard;

use super::abi::{Handle, put};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::state::{Event, State, StreamKind};
use super::stream::EXTERNAL;
use super::work::Work;

/// Flags of events: blocking waits, no time, other processes.
const FLAGS: c_uint = 7;
const NO_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

pub(super) unsafe fn cuEventCreate(
    call: &Call<'_>,
    ph_event: *mut Handle,
    flags: c_uint,
) -> Outcome {
    let (mut state, context) = call.current()?;
    if flags & !FLAGS != 0 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of an event"
        )));
    }
    if flags & INTERPROCESS != 0 {
        return Err(Failure::new(
            code::NOT_SUPPORTED,
            "events of several processes are not supported",
        ));
    }
    let new = state.new_handle();
    // SAFETY: the C interface's contract.
    unsafe { put(ph_event, handle(new), "phEvent")? };
    let event = Event {
        context,
        untimed: flags & NO_TIMING != 0,
        record: 0,
        time: None,
        captured: None,
    };
    state.events.insert(new, event);
    Ok(())
}

pub(super) unsafe fn cuEventDestroy_v2(call: &Call<'_>, h_event: Handle) -> Outcome {
    let mut state = call.state()?;
    state.event(number(h_event))?;
    state.events.remove(&number(h_event));
    Ok(())
}

pub(super) unsafe fn cuEventRecord(call: &Call<'_>, h_event: Handle, h_stream: Handle) -> Outcome {
    let (mut state, stream) = super::stream::stream(call, h_stream)?;
    let event = number(h_event);
    let (owner, target) = (state.event(event)?.context, state.streams[&stream].context);
    if owner != target {
        let message = "the event and the stream belong to different contexts";
        return Err(Failure::new(code::INVALID_HANDLE, message));
    }
    super::capture::forbid_implicit(&mut state, stream)?;
    if let Some(capture) = state.streams[&stream].capture {
        let tips = super::capture::tips(&state, capture, stream);
        state.event(event)?.captured = Some((capture, tips));
        return Ok(());
    }
    let record = state.next_sequence();
    let found = state.event(event)?;
    (found.record, found.time, found.captured) = (record, None, None);
    state.pending_records.insert(record);
    drop(
        call.machine
            .enqueue(state, stream, Work::Record { event, record }, Vec::new()),
    );
    Ok(())
}

pub(super) unsafe fn cuEventRecordWithFlags(
    call: &Call<'_>,
    h_event: Handle,
    h_stream: Handle,
    flags: c_uint,
) -> Outcome {
    if flags > 1 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of a record"
        )));
    }
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    if flags == EXTERNAL && state.streams[&stream].capture.is_some() {
        let work = super::graph_node::record_node(&mut state, number(h_event))?;
        return super::capture::record(&mut state, stream, work);
    }
    drop(state);
    // SAFETY: the C interface's contract.
    unsafe { cuEventRecord(call, h_event, h_stream) }
}

/// A context by its handle, and an event of it.
fn in_context<'m>(
    call: &'m Call<'_>,
    context: Handle,
    event: Handle,
) -> Outcome<MutexGuard<'m, State>> {
    let mut state = call.state()?;
    state.context(number(context))?.healthy()?;
    state.event(number(event))?;
    super::capture::forbid_in_context(&mut state, number(context), "an event of a whole context")?;
    Ok(state)
}

pub(super) unsafe fn cuCtxRecordEvent(call: &Call<'_>, ctx: Handle, h_event: Handle) -> Outcome {
    let mut state = in_context(call, ctx, h_event)?;
    let (context, event) = (number(ctx), number(h_event));
    if state.event(event)?.context != context {
        let message = "the event belongs to another context";
        return Err(Failure::new(code::INVALID_HANDLE, message));
    }
    let streams = state.streams.iter();
    let mut streams: Vec<u64> = streams
        .filter(|(_, stream)| stream.context == context && !stream.destroyed)
        .map(|(handle, _)| *handle)
        .collect();
    streams.sort_unstable();
    // A record in each stream, and one behind all of them in a stream of its own, which goes away with it.
    let mut parts = Vec::with_capacity(streams.len());
    for stream in streams {
        let record = state.next_sequence();
        state.pending_records.insert(record);
        parts.push(record);
        let work = Work::Record { event: 0, record };
        state = call.machine.enqueue(state, stream, work, Vec::new());
    }
    let record = state.next_sequence();
    state.pending_records.insert(record);
    let found = state.event(event)?;
    (found.record, found.time, found.captured) = (record, None, None);
    let join = state.new_stream(context, StreamKind::NonBlocking, 0, 0);
    state.stream_mut(join).destroyed = true;
    let work = Work::Record { event, record };
    drop(call.machine.enqueue(state, join, work, parts));
    Ok(())
}

pub(super) unsafe fn cuCtxWaitEvent(call: &Call<'_>, ctx: Handle, h_event: Handle) -> Outcome {
    let mut state = in_context(call, ctx, h_event)?;
    let record = state.event(number(h_event))?.record;
    if record != 0 {
        state.context_mut(number(ctx))?.behind.push(record);
    }
    Ok(())
}

/// Fails if the event was recorded in a capture, or its context has failed.
fn check(state: &mut State, event: u64) -> Outcome<(u64, u64)> {
    let found = state.event(event)?;
    let (context, record) = (found.context, found.record);
    if found.captured.is_some() {
        let message =
            "the event was last recorded in a capture, so that it stands for nothing that has run";
        return Err(Failure::new(code::CAPTURED_EVENT, message));
    }
    state.context(context)?.healthy()?;
    Ok((context, record))
}

pub(super) unsafe fn cuEventQuery(call: &Call<'_>, h_event: Handle) -> Outcome {
    let mut state = call.state()?;
    let (_, record) = check(&mut state, number(h_event))?;
    super::capture::forbid_unsafe(&mut state, "asking an event")?;
    if state.pending_records.contains(&record) {
        state = call.machine.asked_in_vain(state);
        if state.pending_records.contains(&record) {
            return Err(Failure::silent(code::NOT_READY));
        }
    }
    state.host_knows_record(record);
    Ok(())
}

pub(super) unsafe fn cuEventSynchronize(call: &Call<'_>, h_event: Handle) -> Outcome {
    let mut state = call.state()?;
    let (context, record) = check(&mut state, number(h_event))?;
    call.machine.tally().synchronized();
    let mut state = call
        .machine
        .wait(state, |state| !state.pending_records.contains(&record));
    state.host_knows_record(record);
    state.trim_pools();
    state.context(context)?.healthy()
}

pub(super) unsafe fn cuEventElapsedTime(
    call: &Call<'_>,
    p_milliseconds: *mut f32,
    h_start: Handle,
    h_end: Handle,
) -> Outcome {
    let mut state = call.state()?;
    let mut times = [None; 2];
    for (time, event) in times.iter_mut().zip([number(h_start), number(h_end)]) {
        let (_, record) = check(&mut state, event)?;
        let pending = state.pending_records.contains(&record);
        let found = state.event(event)?;
        if found.untimed || found.record == 0 {
            let why = if found.untimed {
                "was made without timing"
            } else {
                "was never recorded"
            };
            return Err(Failure::new(
                code::INVALID_HANDLE,
                format!("event {event:#x} {why}"),
            ));
        }
        if pending {
            return Err(Failure::silent(code::NOT_READY));
        }
        *time = found.time;
    }
    let [Some(start), Some(end)] = times else {
        return Err(Failure::silent(code::NOT_READY));
    };
    let milliseconds = if end >= start {
        end.duration_since(start).as_secs_f64() * 1e3
    } else {
        -(start.duration_since(end).as_secs_f64() * 1e3)
    };
    // SAFETY: the C interface's contract.
    unsafe { put(p_milliseconds, milliseconds as f32, "pMilliseconds") }
}

pub(super) unsafe fn cuEventElapsedTime_v2(
    call: &Call<'_>,
    p_milliseconds: *mut f32,
    h_start: Handle,
    h_end: Handle,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { cuEventElapsedTime(call, p_milliseconds, h_start, h_end) }
}

impl State {
    /// The host has seen that a record has ended.
    fn host_knows_record(&mut self, record: u64) {
        if let Some(clock) = self.record_clocks.get(&record) {
            super::clock::join(&mut self.host_clock, clock);
        }
    }
}
