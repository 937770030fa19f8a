//! Streams: made, waited for, ordered behind events and memory, and calling functions of the host.

use std::ffi::{c_int, c_uint, c_void};

use super::abi::{CUhostFn, CUstreamCallback, Handle, put};
use super::call::{Call, handle, number};
use super::context::PRIORITIES;
use super::error::{Failure, Outcome, code};
use super::state::{State, StreamKind};
use super::work::Work;
use crate::device::host_memory;
use std::sync::MutexGuard;

/// Flag of waits and records in a capture: they become nodes, instead of edges.
pub(super) const EXTERNAL: c_uint = 1;

pub(super) unsafe fn cuStreamCreate(
    call: &Call<'_>,
    ph_stream: *mut Handle,
    flags: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { cuStreamCreateWithPriority(call, ph_stream, flags, 0) }
}

pub(super) unsafe fn cuStreamCreateWithPriority(
    call: &Call<'_>,
    ph_stream: *mut Handle,
    flags: c_uint,
    priority: c_int,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let kind = match flags {
        0 => StreamKind::Blocking,
        1 => StreamKind::NonBlocking,
        _ => {
            return Err(Failure::invalid(format!(
                "{flags:#x} are no flags of a stream"
            )));
        }
    };
    if ph_stream.is_null() {
        return Err(Failure::invalid("phStream is null"));
    }
    let new = state.new_stream(
        context,
        kind,
        flags,
        priority.clamp(PRIORITIES.1, PRIORITIES.0),
    );
    // SAFETY: the C interface's contract.
    unsafe { put(ph_stream, handle(new), "phStream") }
}

pub(super) unsafe fn cuStreamDestroy_v2(call: &Call<'_>, h_stream: Handle) -> Outcome {
    let mut state = call.state()?;
    let stream = number(h_stream);
    if State::is_default_stream(stream) {
        return Err(Failure::new(
            code::INVALID_HANDLE,
            "default streams cannot be destroyed",
        ));
    }
    match state.streams.get_mut(&stream) {
        Some(found) if !found.destroyed && found.kind != StreamKind::Legacy => {
            let capture = found.capture.take();
            if found.queue.is_empty() && found.running.is_none() {
                state.streams.remove(&stream);
            } else {
                // What is in it is still done.
                found.destroyed = true;
            }
            if let Some(capture) = capture {
                super::capture::abandon(&mut state, capture, stream);
            }
            Ok(())
        }
        _ => Err(state.unknown("stream", stream)),
    }
}

/// The stream of a handle, in the current context if it is a default stream; others know their context.
pub(super) fn stream<'m>(
    call: &'m Call<'_>,
    h_stream: Handle,
) -> Outcome<(MutexGuard<'m, State>, u64)> {
    let (mut state, context) = if State::is_default_stream(number(h_stream)) {
        call.current()?
    } else {
        (call.state()?, 0)
    };
    let stream = call.stream(&mut state, context, h_stream)?;
    Ok((state, stream))
}

pub(super) unsafe fn cuStreamSynchronize(call: &Call<'_>, h_stream: Handle) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    call.wait_for_stream(state, stream).map(drop)
}

pub(super) unsafe fn cuStreamQuery(call: &Call<'_>, h_stream: Handle) -> Outcome {
    let (mut state, stream) = stream(call, h_stream)?;
    if state.streams[&stream].capture.is_some() {
        return Err(super::capture::forbid(
            &mut state,
            stream,
            "asking a capturing stream",
        ));
    }
    let target = state.sequence;
    if !state.passed(stream, target) {
        state = call.machine.asked_in_vain(state);
        if !state.passed(stream, target) {
            return Err(Failure::silent(code::NOT_READY));
        }
    }
    state.host_knows(stream);
    Ok(())
}

pub(super) unsafe fn cuStreamWaitEvent(
    call: &Call<'_>,
    h_stream: Handle,
    h_event: Handle,
    flags: c_uint,
) -> Outcome {
    let (mut state, stream) = stream(call, h_stream)?;
    if flags > 1 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of a wait"
        )));
    }
    if flags == EXTERNAL && state.streams[&stream].capture.is_some() {
        let work = super::graph_node::await_node(&mut state, number(h_event))?;
        return super::capture::record(&mut state, stream, work);
    }
    let event = state.event(number(h_event))?;
    let record = event.record;
    if let Some((capture, nodes)) = event.captured.clone() {
        return super::capture::join(&mut state, stream, capture, nodes);
    }
    if state.streams[&stream].capture.is_some() {
        let message =
            "a capturing stream cannot wait for an event that was recorded outside of the capture";
        super::capture::forbid(&mut state, stream, message);
        return Err(Failure::new(code::STREAM_CAPTURE_ISOLATION, message));
    }
    super::capture::forbid_implicit(&mut state, stream)?;
    if record == 0 {
        return Ok(());
    }
    // Also a record that has ended is kept: it orders the commands.
    drop(
        call.machine
            .enqueue(state, stream, Work::Nothing, vec![record]),
    );
    Ok(())
}

pub(super) unsafe fn cuStreamAddCallback(
    call: &Call<'_>,
    h_stream: Handle,
    callback: CUstreamCallback,
    user_data: *mut c_void,
    flags: c_uint,
) -> Outcome {
    let (mut state, stream) = stream(call, h_stream)?;
    if flags != 0 || callback.is_none() {
        return Err(Failure::invalid("the callback is null, or flags are not 0"));
    }
    if state.streams[&stream].capture.is_some() {
        return Err(super::capture::forbid(
            &mut state,
            stream,
            "a callback in a capturing stream",
        ));
    }
    let work = Work::Callback {
        function: callback,
        stream: number(h_stream),
        data: user_data as usize,
    };
    call.machine.submit(state, stream, work, Vec::new())
}

pub(super) unsafe fn cuLaunchHostFunc(
    call: &Call<'_>,
    h_stream: Handle,
    function: CUhostFn,
    user_data: *mut c_void,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    if function.is_none() {
        return Err(Failure::invalid("the function is null"));
    }
    let work = Work::Host {
        function,
        data: user_data as usize,
    };
    call.machine.submit(state, stream, work, Vec::new())
}

pub(super) unsafe fn cuStreamAttachMemAsync(
    call: &Call<'_>,
    h_stream: Handle,
    dptr: u64,
    _length: usize,
    flags: c_uint,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    if host_memory::find(&state.host, dptr).is_none() || !matches!(flags, 1 | 2 | 4) {
        return Err(Failure::invalid(format!(
            "{dptr:#x} is no managed memory, or {flags} are no flags"
        )));
    }
    call.machine
        .submit(state, stream, Work::Nothing, Vec::new())
}

pub(super) unsafe fn cuStreamGetCtx(
    call: &Call<'_>,
    h_stream: Handle,
    pctx: *mut Handle,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    // SAFETY: the C interface's contract.
    unsafe { put(pctx, handle(state.streams[&stream].context), "pctx") }
}

pub(super) unsafe fn cuStreamGetFlags(
    call: &Call<'_>,
    h_stream: Handle,
    flags: *mut c_uint,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    // SAFETY: the C interface's contract.
    unsafe { put(flags, state.streams[&stream].flags, "flags") }
}

pub(super) unsafe fn cuStreamGetPriority(
    call: &Call<'_>,
    h_stream: Handle,
    priority: *mut c_int,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    // SAFETY: the C interface's contract.
    unsafe { put(priority, state.streams[&stream].priority, "priority") }
}

pub(super) unsafe fn cuStreamGetId(
    call: &Call<'_>,
    h_stream: Handle,
    stream_id: *mut u64,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    drop(state);
    // SAFETY: the C interface's contract.
    unsafe { put(stream_id, stream, "streamId") }
}

pub(super) unsafe fn cuStreamGetDevice(
    call: &Call<'_>,
    h_stream: Handle,
    device: *mut c_int,
) -> Outcome {
    let (state, stream) = stream(call, h_stream)?;
    let context = state.streams[&stream].context;
    // SAFETY: the C interface's contract.
    unsafe { put(device, state.context(context)?.device as c_int, "device") }
}

pub(super) unsafe fn cuStreamCopyAttributes(call: &Call<'_>, dst: Handle, src: Handle) -> Outcome {
    drop(stream(call, src)?);
    stream(call, dst).map(drop)
}

/// Fails if a value in memory is not aligned or not allocated.
fn check_value(state: &State, address: u64, wide: bool) -> Outcome {
    let size = if wide { 8 } else { 4 };
    if !address.is_multiple_of(size) {
        return Err(Failure::invalid(format!(
            "{address:#x} is not aligned to {size} bytes"
        )));
    }
    super::memory::check_range(state, address, size, "the value")
}

fn wait_value(
    call: &Call<'_>,
    h_stream: Handle,
    address: u64,
    value: u64,
    wide: bool,
    flags: c_uint,
) -> Outcome {
    let (mut state, stream) = stream(call, h_stream)?;
    check_value(&state, address, wide)?;
    if state.streams[&stream].capture.is_some() {
        return Err(super::capture::forbid(
            &mut state,
            stream,
            "waiting for memory in a capturing stream",
        ));
    }
    let work = Work::WaitValue {
        address,
        value,
        wide,
        compare: flags,
    };
    call.machine.submit(state, stream, work, Vec::new())
}

fn write_value(call: &Call<'_>, h_stream: Handle, address: u64, value: u64, wide: bool) -> Outcome {
    let (mut state, stream) = stream(call, h_stream)?;
    check_value(&state, address, wide)?;
    if state.streams[&stream].capture.is_some() {
        return Err(super::capture::forbid(
            &mut state,
            stream,
            "writing memory in a capturing stream",
        ));
    }
    call.machine.submit(
        state,
        stream,
        Work::WriteValue {
            address,
            value,
            wide,
        },
        Vec::new(),
    )
}

pub(super) unsafe fn cuStreamWaitValue32_v2(
    call: &Call<'_>,
    stream: Handle,
    addr: u64,
    value: u32,
    flags: c_uint,
) -> Outcome {
    wait_value(call, stream, addr, u64::from(value), false, flags)
}

pub(super) unsafe fn cuStreamWaitValue64_v2(
    call: &Call<'_>,
    stream: Handle,
    addr: u64,
    value: u64,
    flags: c_uint,
) -> Outcome {
    wait_value(call, stream, addr, value, true, flags)
}

pub(super) unsafe fn cuStreamWriteValue32_v2(
    call: &Call<'_>,
    stream: Handle,
    addr: u64,
    value: u32,
    _flags: c_uint,
) -> Outcome {
    write_value(call, stream, addr, u64::from(value), false)
}

pub(super) unsafe fn cuStreamWriteValue64_v2(
    call: &Call<'_>,
    stream: Handle,
    addr: u64,
    value: u64,
    _flags: c_uint,
) -> Outcome {
    write_value(call, stream, addr, value, true)
}
