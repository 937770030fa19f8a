//! Copies: between host and device, within and between devices, of bytes, rows and planes.

use std::ffi::{c_uint, c_void};
use std::sync::MutexGuard;

use super::abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, Handle};
use super::abi::{MEMORY_ARRAY, MEMORY_DEVICE, MEMORY_HOST, MEMORY_UNIFIED, get};
use super::call::{Call, number};
use super::error::{Failure, Outcome, code};
use super::memory::check_range;
use super::state::State;
use super::transfer::{Copy, Side, gather};
use super::work::Work;
use crate::device::{host_memory, range_of};
use crate::machine::Streams;

/// What an argument says that an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A pointer of the host.
    Host,
    /// A pointer that kernels may use.
    Device,
    /// Either.
    Any,
}

/// Whether a copy is done when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// On the default stream, and waited for if the host takes part.
    Now,
    /// In the order of a stream.
    Async(Handle),
}

/// Fails if a side is not what its argument says.
fn check_side(state: &State, side: &Side, copy: &Copy, kind: Kind, what: &str) -> Outcome {
    let extent = side.extent(copy.width, copy.height, copy.depth);
    let extent = extent.ok_or_else(|| Failure::invalid(format!("the {what} wraps around")))?;
    if extent == 0 {
        return Ok(());
    }
    if copy.height > 1 && side.pitch < copy.width {
        return Err(Failure::invalid(format!(
            "the {what}'s pitch {} is less than the width {}",
            side.pitch, copy.width
        )));
    }
    let on_device = range_of(side.address).is_some();
    match kind {
        Kind::Host if on_device => {
            let message = format!(
                "the {what} {:#x} is a device pointer where a host pointer belongs",
                side.address
            );
            Err(Failure::invalid(message))
        }
        Kind::Host | Kind::Any if side.address == 0 => {
            Err(Failure::invalid(format!("the {what} is null")))
        }
        Kind::Host => Ok(()),
        Kind::Any if !on_device => Ok(()),
        Kind::Device | Kind::Any => {
            check_range(state, side.address, extent, &format!("the {what}"))
        }
    }
}

/// Whether an address is the host's and the driver knows nothing of it.
fn pageable(state: &State, address: u64) -> bool {
    range_of(address).is_none() && host_memory::find(&state.host, address).is_none()
}

fn transfer(call: &Call<'_>, copy: Copy, from: Kind, to: Kind, when: When) -> Outcome {
    let (mut state, context) = call.current()?;
    let handle = if let When::Async(handle) = when {
        handle
    } else {
        std::ptr::null_mut()
    };
    let stream = call.stream(&mut state, context, handle)?;
    check_side(&state, &copy.from, &copy, from, "source")?;
    check_side(&state, &copy.to, &copy, to, "destination")?;
    if copy.bytes() == 0 {
        return Ok(());
    }
    let work = Work::Copy(copy);
    let host_takes_part =
        range_of(copy.from.address).is_none() || range_of(copy.to.address).is_none();
    if when == When::Now {
        super::capture::forbid_implicit(&mut state, stream)?;
        super::capture::forbid_unsafe(&mut state, "a copy outside of streams")?;
        let state = call.machine.enqueue(state, stream, work, Vec::new());
        return if host_takes_part {
            finish(call, state, stream)
        } else {
            Ok(())
        };
    }
    if state.stream_mut(stream).capture.is_some() {
        return call.machine.submit(state, stream, work, Vec::new());
    }
    if pageable(&state, copy.to.address) {
        // As on hardware, the call returns when the bytes have arrived.
        let state = call.machine.enqueue(state, stream, work, Vec::new());
        return finish(call, state, stream);
    }
    let waits_in_line =
        call.machine.settings.streams == Streams::Deferred || !state.busy.is_empty();
    if pageable(&state, copy.from.address) && waits_in_line {
        // As on hardware, the bytes are taken before the call returns.
        // SAFETY: the caller says that the source is readable, and it is no device address.
        let bytes = unsafe { gather(&copy) };
        let work = Work::Staged {
            bytes: bytes.into(),
            to: copy,
        };
        return call.machine.submit(state, stream, work, Vec::new());
    }
    call.machine.submit(state, stream, work, Vec::new())
}

fn finish(call: &Call<'_>, state: MutexGuard<'_, State>, stream: u64) -> Outcome {
    let context = state.streams.get(&stream).map(|stream| stream.context);
    let target = state.sequence;
    call.machine.tally().synchronized();
    let mut state = call
        .machine
        .wait(state, |state| state.passed(stream, target));
    state.host_knows(stream);
    state.trim_pools();
    context.map_or(Ok(()), |context| state.context(context)?.healthy())
}

fn plain(from: u64, to: u64, bytes: usize) -> Copy {
    Copy::plain(from, to, bytes as u64)
}

pub(super) unsafe fn cuMemcpy(call: &Call<'_>, dst: u64, src: u64, byte_count: usize) -> Outcome {
    transfer(
        call,
        plain(src, dst, byte_count),
        Kind::Any,
        Kind::Any,
        When::Now,
    )
}

pub(super) unsafe fn cuMemcpyAsync(
    call: &Call<'_>,
    dst: u64,
    src: u64,
    byte_count: usize,
    h_stream: Handle,
) -> Outcome {
    transfer(
        call,
        plain(src, dst, byte_count),
        Kind::Any,
        Kind::Any,
        When::Async(h_stream),
    )
}

pub(super) unsafe fn cuMemcpyHtoD_v2(
    call: &Call<'_>,
    dst_device: u64,
    src_host: *const c_void,
    byte_count: usize,
) -> Outcome {
    transfer(
        call,
        plain(src_host as u64, dst_device, byte_count),
        Kind::Host,
        Kind::Device,
        When::Now,
    )
}

pub(super) unsafe fn cuMemcpyHtoDAsync_v2(
    call: &Call<'_>,
    dst_device: u64,
    src_host: *const c_void,
    byte_count: usize,
    h_stream: Handle,
) -> Outcome {
    let when = When::Async(h_stream);
    transfer(
        call,
        plain(src_host as u64, dst_device, byte_count),
        Kind::Host,
        Kind::Device,
        when,
    )
}

pub(super) unsafe fn cuMemcpyDtoH_v2(
    call: &Call<'_>,
    dst_host: *mut c_void,
    src_device: u64,
    byte_count: usize,
) -> Outcome {
    transfer(
        call,
        plain(src_device, dst_host as u64, byte_count),
        Kind::Device,
        Kind::Host,
        When::Now,
    )
}

pub(super) unsafe fn cuMemcpyDtoHAsync_v2(
    call: &Call<'_>,
    dst_host: *mut c_void,
    src_device: u64,
    byte_count: usize,
    h_stream: Handle,
) -> Outcome {
    let when = When::Async(h_stream);
    transfer(
        call,
        plain(src_device, dst_host as u64, byte_count),
        Kind::Device,
        Kind::Host,
        when,
    )
}

pub(super) unsafe fn cuMemcpyDtoD_v2(
    call: &Call<'_>,
    dst_device: u64,
    src_device: u64,
    byte_count: usize,
) -> Outcome {
    transfer(
        call,
        plain(src_device, dst_device, byte_count),
        Kind::Device,
        Kind::Device,
        When::Now,
    )
}

pub(super) unsafe fn cuMemcpyDtoDAsync_v2(
    call: &Call<'_>,
    dst_device: u64,
    src_device: u64,
    byte_count: usize,
    h_stream: Handle,
) -> Outcome {
    let when = When::Async(h_stream);
    transfer(
        call,
        plain(src_device, dst_device, byte_count),
        Kind::Device,
        Kind::Device,
        when,
    )
}

/// Fails if one of two contexts does not live.
fn check_contexts(call: &Call<'_>, contexts: [Handle; 2]) -> Outcome {
    let state = call.state()?;
    contexts
        .into_iter()
        .filter(|context| !context.is_null())
        .try_for_each(|context| state.context(number(context))?.healthy())
}

pub(super) unsafe fn cuMemcpyPeer(
    call: &Call<'_>,
    dst_device: u64,
    dst_context: Handle,
    src_device: u64,
    src_context: Handle,
    byte_count: usize,
) -> Outcome {
    check_contexts(call, [dst_context, src_context])?;
    transfer(
        call,
        plain(src_device, dst_device, byte_count),
        Kind::Device,
        Kind::Device,
        When::Now,
    )
}

pub(super) unsafe fn cuMemcpyPeerAsync(
    call: &Call<'_>,
    dst_device: u64,
    dst_context: Handle,
    src_device: u64,
    src_context: Handle,
    byte_count: usize,
    h_stream: Handle,
) -> Outcome {
    check_contexts(call, [dst_context, src_context])?;
    let when = When::Async(h_stream);
    transfer(
        call,
        plain(src_device, dst_device, byte_count),
        Kind::Device,
        Kind::Device,
        when,
    )
}

/// Where one side of a copy starts, and what it is.
struct Start {
    kind: c_uint,
    host: u64,
    device: u64,
    pitch: usize,
    /// Rows of a plane.
    rows: usize,
    /// Bytes into the row, row, plane.
    offset: [usize; 3],
}

impl Start {
    fn side(&self, [width, height, depth]: [usize; 3]) -> Outcome<(Side, Kind)> {
        let (base, kind) = match self.kind {
            MEMORY_HOST => (self.host, Kind::Host),
            MEMORY_DEVICE => (self.device, Kind::Device),
            MEMORY_UNIFIED => (self.device, Kind::Any),
            MEMORY_ARRAY => {
                return Err(Failure::new(
                    code::NOT_SUPPORTED,
                    "copies of arrays are not supported",
                ));
            }
            other => return Err(Failure::invalid(format!("no memory has the kind {other}"))),
        };
        if base == 0 && width > 0 && height > 0 && depth > 0 {
            return Err(Failure::invalid("an address is null"));
        }
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let rows = if self.rows == 0 { height } else { self.rows };
        let plane = pitch.checked_mul(rows);
        let [x, y, z] = self.offset;
        let address = plane.and_then(|plane| {
            let offset = z
                .checked_mul(plane)?
                .checked_add(y.checked_mul(pitch)?)?
                .checked_add(x)?;
            base.checked_add(offset as u64)
        });
        match (plane, address) {
            (Some(plane), Some(address)) => Ok((
                Side {
                    address,
                    pitch: pitch as u64,
                    plane: plane as u64,
                },
                kind,
            )),
            _ => Err(Failure::invalid("a copy that wraps around")),
        }
    }
}

fn shape(
    from: &Start,
    to: &Start,
    [width, height, depth]: [usize; 3],
) -> Outcome<(Copy, Kind, Kind)> {
    let (source, source_kind) = from.side([width, height, depth])?;
    let (target, target_kind) = to.side([width, height, depth])?;
    let copy = Copy {
        from: source,
        to: target,
        width: width as u64,
        height: height as u64,
        depth: depth as u64,
    };
    Ok((copy, source_kind, target_kind))
}

unsafe fn rows(call: &Call<'_>, p_copy: *const CUDA_MEMCPY2D, when: When) -> Outcome {
    // SAFETY: the C interface's contract.
    let given = unsafe { get(p_copy, "pCopy")? };
    let from = Start {
        kind: given.src_memory_type,
        host: given.src_host as u64,
        device: given.src_device,
        pitch: given.src_pitch,
        rows: 0,
        offset: [given.src_x_in_bytes, given.src_y, 0],
    };
    let to = Start {
        kind: given.dst_memory_type,
        host: given.dst_host as u64,
        device: given.dst_device,
        pitch: given.dst_pitch,
        rows: 0,
        offset: [given.dst_x_in_bytes, given.dst_y, 0],
    };
    let (copy, from, to) = shape(&from, &to, [given.width_in_bytes, given.height, 1])?;
    transfer(call, copy, from, to, when)
}

/// The shape of a copy of planes.
fn planes_of(given: &CUDA_MEMCPY3D) -> Outcome<(Copy, Kind, Kind)> {
    let from = Start {
        kind: given.src_memory_type,
        host: given.src_host as u64,
        device: given.src_device,
        pitch: given.src_pitch,
        rows: given.src_height,
        offset: [given.src_x_in_bytes, given.src_y, given.src_z],
    };
    let to = Start {
        kind: given.dst_memory_type,
        host: given.dst_host as u64,
        device: given.dst_device,
        pitch: given.dst_pitch,
        rows: given.dst_height,
        offset: [given.dst_x_in_bytes, given.dst_y, given.dst_z],
    };
    shape(
        &from,
        &to,
        [given.width_in_bytes, given.height, given.depth],
    )
}

unsafe fn planes(call: &Call<'_>, p_copy: *const CUDA_MEMCPY3D, when: When) -> Outcome {
    // SAFETY: the C interface's contract.
    let (copy, from, to) = planes_of(&unsafe { get(p_copy, "pCopy")? })?;
    transfer(call, copy, from, to, when)
}

/// The work of a copy node of a graph.
pub(crate) fn node_work(state: &State, given: &CUDA_MEMCPY3D) -> Outcome<Work> {
    let (copy, from, to) = planes_of(given)?;
    check_side(state, &copy.from, &copy, from, "source")?;
    check_side(state, &copy.to, &copy, to, "destination")?;
    Ok(Work::Copy(copy))
}

pub(super) unsafe fn cuMemcpy2D_v2(call: &Call<'_>, p_copy: *const CUDA_MEMCPY2D) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { rows(call, p_copy, When::Now) }
}

pub(super) unsafe fn cuMemcpy2DUnaligned_v2(
    call: &Call<'_>,
    p_copy: *const CUDA_MEMCPY2D,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { rows(call, p_copy, When::Now) }
}

pub(super) unsafe fn cuMemcpy2DAsync_v2(
    call: &Call<'_>,
    p_copy: *const CUDA_MEMCPY2D,
    h_stream: Handle,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { rows(call, p_copy, When::Async(h_stream)) }
}

pub(super) unsafe fn cuMemcpy3D_v2(call: &Call<'_>, p_copy: *const CUDA_MEMCPY3D) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { planes(call, p_copy, When::Now) }
}

pub(super) unsafe fn cuMemcpy3DAsync_v2(
    call: &Call<'_>,
    p_copy: *const CUDA_MEMCPY3D,
    h_stream: Handle,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { planes(call, p_copy, When::Async(h_stream)) }
}

pub(super) unsafe fn cuMemcpy3DPeer(call: &Call<'_>, p_copy: *const CUDA_MEMCPY3D_PEER) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { planes(call, p_copy, When::Now) }
}

pub(super) unsafe fn cuMemcpy3DPeerAsync(
    call: &Call<'_>,
    p_copy: *const CUDA_MEMCPY3D_PEER,
    h_stream: Handle,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { planes(call, p_copy, When::Async(h_stream)) }
}
