//! Memory of devices and of the host, and what can be asked of pointers.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, MutexGuard};

use super::abi::{CUmemLocation, Handle, MEMORY_DEVICE, MEMORY_HOST, list, put, put_if};
use super::call::{Call, handle};
use super::error::{Failure, Outcome, code};
use super::state::State;
use super::work::Work;
use crate::check::Shadow;
use crate::device::address_space::Origin;
use crate::device::attributes::PITCH;
use crate::device::host_memory::{self, HostBlock, HostKind, HostRange};
use crate::device::{RESERVED_INDEX, range_of};
use crate::machine::Streams;

/// Fails if a range is not memory that device code may use: allocated, mapped, page-locked, managed or registered.
pub(crate) fn check_range(state: &State, address: u64, bytes: u64, what: &str) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    let end = address
        .checked_add(bytes)
        .ok_or_else(|| Failure::invalid(format!("{what} wraps around")))?;
    let known_end = match range_of(address) {
        None => match host_memory::find(&state.host, address) {
            Some((start, range)) => start + range.size,
            None => {
                let message = format!(
                    "{what} is {address:#x}, a host pointer where a device pointer belongs"
                );
                return Err(Failure::invalid(message));
            }
        },
        Some(RESERVED_INDEX) => {
            let mut reached = address;
            while reached < end {
                match state.mapped.range(..=reached).next_back() {
                    Some((start, mapping)) if reached < start + mapping.size => {
                        reached = start + mapping.size
                    }
                    _ => break,
                }
            }
            reached
        }
        Some(index) => {
            let found = state
                .devices
                .get(index)
                .and_then(|device| device.memory.find(address));
            found.map_or(address, |(start, allocation)| start + allocation.size)
        }
    };
    if known_end >= end {
        return Ok(());
    }
    let message = format!(
        "{what} is {bytes} bytes at {address:#x}; {}",
        state.describe(known_end.max(address))
    );
    Err(Failure::invalid(message))
}

/// Allocates on a device for a context; when there is too little, waits for the frees that are still in streams and
/// tries once more.
pub(crate) fn allocate<'m>(
    call: &'m Call<'_>,
    mut state: MutexGuard<'m, State>,
    (device, context): (usize, u64),
    size: u64,
    origin: Origin,
) -> Outcome<u64> {
    match state.allocate(call.machine, device, size, origin, context) {
        Err(failure) if failure.code == code::OUT_OF_MEMORY && state.frees_are_queued() => {
            state = call.drain_everything(state);
            state.allocate(call.machine, device, size, origin, context)
        }
        result => result,
    }
}

impl State {
    fn frees_are_queued(&self) -> bool {
        let streams = self
            .busy
            .iter()
            .filter_map(|stream| self.streams.get(stream));
        streams
            .flat_map(|stream| &stream.queue)
            .any(|command| matches!(command.work, Work::Free { .. }))
    }
}

pub(super) unsafe fn cuMemAlloc_v2(call: &Call<'_>, dptr: *mut u64, bytesize: usize) -> Outcome {
    let (mut state, context) = call.current()?;
    if bytesize == 0 {
        return Err(Failure::invalid("an allocation of 0 bytes"));
    }
    if dptr.is_null() {
        return Err(Failure::invalid("dptr is null"));
    }
    super::capture::forbid_unsafe(&mut state, "an allocation outside of streams")?;
    let device = state.context(context)?.device;
    let size = bytesize as u64;
    let address = allocate(call, state, (device, context), size, Origin::Direct)?;
    // SAFETY: the C interface's contract.
    unsafe { put(dptr, address, "dptr") }
}

pub(super) unsafe fn cuMemAllocPitch_v2(
    call: &Call<'_>,
    dptr: *mut u64,
    p_pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> Outcome {
    if width_in_bytes == 0 || height == 0 || !matches!(element_size_bytes, 4 | 8 | 16) {
        let message = format!(
            "{height} rows of {width_in_bytes} bytes of elements of {element_size_bytes} bytes"
        );
        return Err(Failure::invalid(message));
    }
    let pitch = (width_in_bytes as u64).checked_next_multiple_of(PITCH);
    let bytes = pitch.and_then(|pitch| pitch.checked_mul(height as u64));
    let (Some(pitch), Some(bytes)) = (pitch, bytes) else {
        return Err(Failure::new(
            code::OUT_OF_MEMORY,
            "the size does not fit into 64 bits",
        ));
    };
    // SAFETY: the C interface's contract.
    unsafe {
        put(p_pitch, pitch as usize, "pPitch")?;
        cuMemAlloc_v2(call, dptr, bytes as usize)
    }
}

/// The context that an address was allocated in: programs free memory after they have popped it. The current one for
/// what is no address of an allocation.
fn owner_of<'m>(call: &'m Call<'_>, address: u64) -> Outcome<(MutexGuard<'m, State>, u64)> {
    let state = call.state()?;
    let device = range_of(address).and_then(|index| state.devices.get(index));
    let context = match device.and_then(|device| device.memory.find(address)) {
        Some((_, allocation)) => Some(allocation.context),
        None => host_memory::find(&state.host, address).map(|(_, range)| range.context),
    };
    match context {
        Some(context) if state.context(context).is_ok() => {
            state.context(context)?.healthy()?;
            Ok((state, context))
        }
        _ => {
            drop(state);
            call.current()
        }
    }
}

pub(super) unsafe fn cuMemFree_v2(call: &Call<'_>, dptr: u64) -> Outcome {
    let (mut state, context) = owner_of(call, dptr)?;
    if dptr == 0 {
        return Ok(());
    }
    super::capture::forbid_unsafe(&mut state, "a free outside of streams")?;
    if call.machine.settings.streams == Streams::Eager && !state.busy.is_empty() {
        // Other threads may still run what was submitted before.
        state = call.wait_for_context(state, context)?;
    }
    if state.freeing.contains(&dptr) {
        let message = format!("{dptr:#x} is freed already, by a free that waits for its turn");
        return Err(Failure::invalid(message));
    }
    if state.graph_memory_outstanding(dptr) {
        // The launch that allocates it may still wait for its turn.
        state = call.drain_everything(state);
    }
    if let Some((start, range)) = host_memory::find(&state.host, dptr)
        && start == dptr
        && range.kind == HostKind::Managed
    {
        Arc::make_mut(&mut state.host).remove(&dptr);
        return Ok(());
    }
    super::pool::free(&mut state, dptr, call.number())?;
    state.will_be_freed(dptr);
    state.trim_pools();
    Ok(())
}

pub(super) unsafe fn cuMemGetInfo_v2(
    call: &Call<'_>,
    free: *mut usize,
    total: *mut usize,
) -> Outcome {
    let (state, context) = call.current()?;
    let memory = &state.devices[state.context(context)?.device].memory;
    // SAFETY: the C interface's contract.
    unsafe {
        put(free, memory.available() as usize, "free")?;
        put(total, memory.capacity() as usize, "total")
    }
}

/// What is known of an address.
struct Known {
    start: u64,
    size: u64,
    context: u64,
    device: usize,
    id: u64,
    host: Option<HostKind>,
    pool: u64,
}

fn look_up(state: &State, address: u64) -> Option<Known> {
    match range_of(address) {
        None => {
            let (start, range) = host_memory::find(&state.host, address)?;
            let HostRange {
                size,
                context,
                device,
                id,
                kind,
                ..
            } = *range;
            Some(Known {
                start,
                size,
                context,
                device,
                id,
                host: Some(kind),
                pool: 0,
            })
        }
        Some(RESERVED_INDEX) => {
            let (&start, mapping) = state.mapped.range(..=address).next_back()?;
            let (size, device) = (mapping.size, mapping.device);
            let context = state.devices[device].primary;
            (address - start < size).then_some(Known {
                start,
                size,
                context,
                device,
                id: mapping.handle,
                host: None,
                pool: 0,
            })
        }
        Some(device) => {
            let (start, allocation) = state.devices.get(device)?.memory.find(address)?;
            let pool = if let Origin::Pool(pool) = allocation.origin {
                pool
            } else {
                0
            };
            let (size, context, id) = (allocation.size, allocation.context, allocation.id);
            Some(Known {
                start,
                size,
                context,
                device,
                id,
                host: None,
                pool,
            })
        }
    }
}

pub(super) unsafe fn cuMemGetAddressRange_v2(
    call: &Call<'_>,
    pbase: *mut u64,
    psize: *mut usize,
    dptr: u64,
) -> Outcome {
    let (state, _) = call.current()?;
    let known = look_up(&state, dptr).ok_or_else(|| {
        Failure::new(
            code::NOT_FOUND,
            format!("{dptr:#x} is not allocated: {}", state.describe(dptr)),
        )
    })?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(pbase, known.start);
        put_if(psize, known.size as usize);
    }
    Ok(())
}

fn allocate_host(call: &Call<'_>, bytes: usize, kind: HostKind, flags: u32) -> Outcome<u64> {
    let (mut state, context) = call.current()?;
    super::capture::forbid_unsafe(&mut state, "an allocation of host memory")?;
    if bytes == 0 {
        return Err(Failure::invalid("an allocation of 0 bytes"));
    }
    let device = state.context(context)?.device;
    let settings = &call.machine.settings;
    let block = HostBlock::new(bytes, settings.poison as usize).ok_or_else(|| {
        Failure::new(
            code::OUT_OF_MEMORY,
            format!("the host has no {bytes} bytes"),
        )
    })?;
    let (address, id) = (block.address(), state.next_sequence());
    let checks = settings.checks;
    // The host may write to page-locked and managed memory without the driver's knowledge, so only races are looked
    // for.
    let shadow = checks
        .stream_races
        .then(|| Arc::new(Shadow::new(bytes, false, true)));
    let range = HostRange {
        size: bytes as u64,
        kind,
        flags,
        context,
        device,
        id,
        shadow,
        _block: Some(Arc::new(block)),
    };
    Arc::make_mut(&mut state.host).insert(address, range);
    Ok(address)
}

pub(super) unsafe fn cuMemAllocManaged(
    call: &Call<'_>,
    dptr: *mut u64,
    bytesize: usize,
    flags: c_uint,
) -> Outcome {
    if !(1..=4).contains(&flags) {
        return Err(Failure::invalid(format!(
            "{flags} are no flags of managed memory"
        )));
    }
    if dptr.is_null() {
        return Err(Failure::invalid("dptr is null"));
    }
    let address = allocate_host(call, bytesize, HostKind::Managed, flags)?;
    // SAFETY: the C interface's contract.
    unsafe { put(dptr, address, "dptr") }
}

/// Fails if a range is not managed memory.
fn check_managed(call: &Call<'_>, address: u64, bytes: usize) -> Outcome {
    let (state, _) = call.current()?;
    match host_memory::find(&state.host, address) {
        Some((start, range))
            if range.kind == HostKind::Managed
                && (address - start)
                    .checked_add(bytes as u64)
                    .is_some_and(|end| end <= range.size) =>
        {
            Ok(())
        }
        _ => Err(Failure::invalid(format!(
            "{bytes} bytes at {address:#x} are not managed memory"
        ))),
    }
}

pub(super) unsafe fn cuMemAdvise(
    call: &Call<'_>,
    dev_ptr: u64,
    count: usize,
    advice: c_uint,
    device: c_int,
) -> Outcome {
    check_managed(call, dev_ptr, count)?;
    if !(1..=6).contains(&advice) {
        return Err(Failure::invalid(format!(
            "no advice has the number {advice}"
        )));
    }
    // -1 is the host; advice about reading mostly ignores the device.
    if device != -1 && advice > 2 {
        call.state()?.device(device)?;
    }
    Ok(())
}

/// The number of a location: -1 for the host.
fn location_device(location: CUmemLocation) -> Outcome<c_int> {
    match location.kind {
        1 => Ok(location.id),
        0 | 2..=4 => Ok(-1),
        kind => Err(Failure::invalid(format!("no location has the kind {kind}"))),
    }
}

pub(super) unsafe fn cuMemAdvise_v2(
    call: &Call<'_>,
    dev_ptr: u64,
    count: usize,
    advice: c_uint,
    location: CUmemLocation,
) -> Outcome {
    // SAFETY: no pointers.
    unsafe { cuMemAdvise(call, dev_ptr, count, advice, location_device(location)?) }
}

pub(super) unsafe fn cuMemPrefetchAsync(
    call: &Call<'_>,
    dev_ptr: u64,
    count: usize,
    dst_device: c_int,
    h_stream: Handle,
) -> Outcome {
    check_managed(call, dev_ptr, count)?;
    let (mut state, context) = call.current()?;
    if dst_device != -1 {
        state.device(dst_device)?;
    }
    let stream = call.stream(&mut state, context, h_stream)?;
    call.machine
        .submit(state, stream, Work::Nothing, Vec::new())
}

pub(super) unsafe fn cuMemPrefetchAsync_v2(
    call: &Call<'_>,
    dev_ptr: u64,
    count: usize,
    location: CUmemLocation,
    _flags: c_uint,
    h_stream: Handle,
) -> Outcome {
    // SAFETY: no pointers.
    unsafe { cuMemPrefetchAsync(call, dev_ptr, count, location_device(location)?, h_stream) }
}

pub(super) unsafe fn cuMemHostAlloc(
    call: &Call<'_>,
    pp: *mut *mut c_void,
    bytesize: usize,
    flags: c_uint,
) -> Outcome {
    if flags & !7 != 0 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of page-locked memory"
        )));
    }
    if pp.is_null() {
        return Err(Failure::invalid("pp is null"));
    }
    let address = allocate_host(call, bytesize, HostKind::Pinned, flags)?;
    // SAFETY: the C interface's contract.
    unsafe { put(pp, address as *mut c_void, "pp") }
}

pub(super) unsafe fn cuMemAllocHost_v2(
    call: &Call<'_>,
    pp: *mut *mut c_void,
    bytesize: usize,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { cuMemHostAlloc(call, pp, bytesize, 0) }
}

fn forget_host(call: &Call<'_>, pointer: *mut c_void, kind: HostKind, missing: u32) -> Outcome {
    let start = pointer as u64;
    let state = call.state()?;
    let owned = host_memory::find(&state.host, start).is_some();
    let state = if owned {
        state
    } else {
        drop(state);
        call.current_even_failed()?.0
    };
    // Commands of any context may still use the memory.
    let mut state = call.drain_everything(state);
    if !state
        .host
        .get(&start)
        .is_some_and(|range| range.kind == kind)
    {
        return Err(Failure::new(
            missing,
            format!(
                "no {kind:?} memory starts at {start:#x}; {}",
                state.describe(start)
            ),
        ));
    }
    Arc::make_mut(&mut state.host).remove(&start);
    Ok(())
}

pub(super) unsafe fn cuMemFreeHost(call: &Call<'_>, p: *mut c_void) -> Outcome {
    forget_host(call, p, HostKind::Pinned, code::INVALID_VALUE)
}

pub(super) unsafe fn cuMemHostRegister_v2(
    call: &Call<'_>,
    p: *mut c_void,
    bytesize: usize,
    flags: c_uint,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let start = p as u64;
    if p.is_null()
        || bytesize == 0
        || range_of(start).is_some()
        || start.checked_add(bytesize as u64).is_none()
    {
        return Err(Failure::invalid(format!(
            "{bytesize} bytes at {start:#x} are no host memory"
        )));
    }
    if !host_memory::is_mapped(start, bytesize as u64) {
        return Err(Failure::invalid(format!(
            "not all of {bytesize} bytes at {start:#x} is memory of the process"
        )));
    }
    if flags & !0xf != 0 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of registered memory"
        )));
    }
    let before = state.host.range(..start + bytesize as u64).next_back();
    if before.is_some_and(|(other, range)| other + range.size > start) {
        return Err(Failure::new(
            code::HOST_MEMORY_ALREADY_REGISTERED,
            format!("{start:#x} is registered already"),
        ));
    }
    let device = state.context(context)?.device;
    let id = state.next_sequence();
    let range = HostRange {
        size: bytesize as u64,
        kind: HostKind::Registered,
        flags,
        context,
        device,
        id,
        shadow: None,
        _block: None,
    };
    Arc::make_mut(&mut state.host).insert(start, range);
    Ok(())
}

pub(super) unsafe fn cuMemHostUnregister(call: &Call<'_>, p: *mut c_void) -> Outcome {
    forget_host(
        call,
        p,
        HostKind::Registered,
        code::HOST_MEMORY_NOT_REGISTERED,
    )
}

pub(super) unsafe fn cuMemHostGetDevicePointer_v2(
    call: &Call<'_>,
    pdptr: *mut u64,
    p: *mut c_void,
    flags: c_uint,
) -> Outcome {
    let (state, _) = call.current()?;
    if flags != 0 || host_memory::find(&state.host, p as u64).is_none() {
        return Err(Failure::invalid(format!(
            "{:#x} is neither page-locked nor registered",
            p as u64
        )));
    }
    // SAFETY: the C interface's contract.
    unsafe { put(pdptr, p as u64, "pdptr") }
}

pub(super) unsafe fn cuMemHostGetFlags(
    call: &Call<'_>,
    p_flags: *mut c_uint,
    p: *mut c_void,
) -> Outcome {
    let (state, _) = call.current()?;
    let (_, range) = host_memory::find(&state.host, p as u64).ok_or_else(|| {
        Failure::invalid(format!(
            "{:#x} is neither page-locked nor registered",
            p as u64
        ))
    })?;
    // SAFETY: the C interface's contract.
    unsafe { put(p_flags, range.flags, "pFlags") }
}

/// Writes an attribute of a pointer; what is not known of it is zero if `lenient`.
unsafe fn pointer_attribute(
    state: &State,
    data: *mut c_void,
    attribute: c_uint,
    address: u64,
    lenient: bool,
) -> Outcome {
    let known = look_up(state, address);
    if known.is_none() && !lenient {
        let message = format!("{address:#x} is not known: {}", state.describe(address));
        return Err(Failure::invalid(message));
    }
    let on_host = known.as_ref().is_some_and(|known| known.host.is_some());
    let number = |of: fn(&Known) -> u64| known.as_ref().map_or(0, of);
    // SAFETY: the C interface's contract: the data is of the attribute's type.
    unsafe {
        match attribute {
            1 => put(data.cast(), handle(number(|known| known.context)), "data"),
            2 => {
                let managed = known
                    .as_ref()
                    .is_some_and(|known| known.host == Some(HostKind::Managed));
                let kind = match (&known, on_host && !managed) {
                    (None, _) => 0,
                    (_, true) => MEMORY_HOST,
                    (_, false) => MEMORY_DEVICE,
                };
                put(data.cast(), kind, "data")
            }
            3 => put(
                data.cast(),
                if known.is_some() { address } else { 0 },
                "data",
            ),
            4 => {
                if !on_host && !lenient {
                    return Err(Failure::invalid(format!(
                        "{address:#x} has no host pointer"
                    )));
                }
                put(data.cast(), if on_host { address } else { 0 }, "data")
            }
            6 => put(data.cast::<u8>(), 0, "data"),
            7 => put(data.cast(), number(|known| known.id), "data"),
            8 => {
                let managed = known
                    .as_ref()
                    .is_some_and(|known| known.host == Some(HostKind::Managed));
                put(data.cast::<u8>(), u8::from(managed), "data")
            }
            9 => put(
                data.cast::<c_int>(),
                known.as_ref().map_or(-2, |known| known.device as c_int),
                "data",
            ),
            10 | 15 => put(data.cast::<u8>(), 0, "data"),
            11 => put(data.cast(), number(|known| known.start), "data"),
            12 => put(data.cast(), number(|known| known.size) as usize, "data"),
            13 => put(data.cast::<u8>(), u8::from(known.is_some()), "data"),
            14 => put(data.cast::<u64>(), 0, "data"),
            16 => put(
                data.cast::<c_uint>(),
                if known.is_some() { 3 } else { 0 },
                "data",
            ),
            17 => put(data.cast(), handle(number(|known| known.pool)), "data"),
            _ => Err(Failure::invalid(format!(
                "pointer attribute {attribute} is not supported"
            ))),
        }
    }
}

pub(super) unsafe fn cuPointerGetAttribute(
    call: &Call<'_>,
    data: *mut c_void,
    attribute: c_uint,
    ptr: u64,
) -> Outcome {
    let state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe { pointer_attribute(&state, data, attribute, ptr, false) }
}

pub(super) unsafe fn cuPointerGetAttributes(
    call: &Call<'_>,
    num_attributes: c_uint,
    attributes: *mut c_uint,
    data: *mut *mut c_void,
    ptr: u64,
) -> Outcome {
    let state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        let count = num_attributes as usize;
        let attributes = list(attributes.cast_const(), count, "attributes")?;
        let places = list(data.cast_const(), count, "data")?;
        for (attribute, place) in attributes.into_iter().zip(places) {
            pointer_attribute(&state, place, attribute, ptr, true)?;
        }
    }
    Ok(())
}

pub(super) unsafe fn cuPointerSetAttribute(
    call: &Call<'_>,
    _value: *const c_void,
    attribute: c_uint,
    ptr: u64,
) -> Outcome {
    let (state, _) = call.current()?;
    if look_up(&state, ptr).is_none() || attribute != 6 {
        return Err(Failure::invalid(format!(
            "attribute {attribute} of {ptr:#x} cannot be set"
        )));
    }
    Ok(())
}
