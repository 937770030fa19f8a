//! Virtual memory management: reserved addresses, physical memory, mappings and who may use them.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, get, list, put};
use super::call::Call;
use super::error::{Failure, Outcome, code};
use super::state::State;
use crate::check::Shadow;
use crate::device::address_space::{HostAddress, Origin};
use crate::device::attributes::GRANULARITY;
use crate::device::view::Mapping;
use crate::device::{DEVICE_BITS, RESERVED_INDEX, range_base, range_of};

/// Physical memory.
#[derive(Debug)]
pub(crate) struct Physical {
    /// Where it lies in its device's own addresses.
    address: u64,
    size: u64,
    device: usize,
    properties: CUmemAllocationProp,
    /// References: the handle's, those retained, and one for each mapping.
    references: usize,
    /// How often the handle may still be released.
    handles: usize,
    host: HostAddress,
    shadow: Option<Arc<Shadow>>,
}

// SAFETY: the properties hold a pointer (for another operating system) that is handed back and never followed.
unsafe impl Send for Physical {}

/// Fails unless bytes come in whole units of the granularity.
fn check_granular(values: &[u64]) -> Outcome {
    match values.iter().find(|value| *value % GRANULARITY != 0) {
        Some(value) => Err(Failure::invalid(format!(
            "{value:#x} is no multiple of the granularity of {GRANULARITY} bytes"
        ))),
        None => Ok(()),
    }
}

pub(super) unsafe fn cuMemAddressReserve(
    call: &Call<'_>,
    ptr: *mut u64,
    size: usize,
    alignment: usize,
    _addr: u64,
    flags: u64,
) -> Outcome {
    let mut state = call.state()?;
    let size = size as u64;
    check_granular(&[size])?;
    if size == 0 || flags != 0 || alignment != 0 && !alignment.is_power_of_two() {
        return Err(Failure::invalid(format!(
            "{size} bytes, alignment {alignment}, flags {flags}"
        )));
    }
    let alignment = (alignment as u64).max(GRANULARITY);
    // Addresses are never given out twice: there are many more than anyone reserves.
    let start = state.reserve_top.next_multiple_of(alignment);
    let end = start
        .checked_add(size)
        .filter(|end| *end <= range_base(RESERVED_INDEX) + (1 << DEVICE_BITS));
    let end =
        end.ok_or_else(|| Failure::new(code::OUT_OF_MEMORY, "no addresses are left to reserve"))?;
    // SAFETY: the C interface's contract.
    unsafe { put(ptr, start, "ptr")? };
    state.reserve_top = end + GRANULARITY;
    state.reserved.insert(start, size);
    Ok(())
}

pub(super) unsafe fn cuMemAddressFree(call: &Call<'_>, ptr: u64, size: usize) -> Outcome {
    let mut state = call.state()?;
    if state.reserved.get(&ptr) != Some(&(size as u64)) {
        return Err(Failure::invalid(format!(
            "{size} bytes at {ptr:#x} are not what was reserved"
        )));
    }
    if state.mapped.range(ptr..ptr + size as u64).next().is_some() {
        return Err(Failure::invalid(format!(
            "something is still mapped in {size} bytes at {ptr:#x}"
        )));
    }
    state.reserved.remove(&ptr);
    Ok(())
}

fn check_properties(state: &State, properties: &CUmemAllocationProp) -> Outcome<usize> {
    if properties.kind != 1 {
        return Err(Failure::invalid(format!(
            "no memory has the type {}",
            properties.kind
        )));
    }
    if properties.location.kind != 1 {
        return Err(Failure::new(
            code::NOT_SUPPORTED,
            "physical memory of the host is not supported",
        ));
    }
    state.device(properties.location.id)
}

pub(super) unsafe fn cuMemCreate(
    call: &Call<'_>,
    handle: *mut u64,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    let properties = unsafe { get(prop, "prop")? };
    let device = check_properties(&state, &properties)?;
    check_granular(&[size as u64])?;
    if size == 0 || flags != 0 {
        return Err(Failure::invalid(format!("{size} bytes, flags {flags}")));
    }
    if handle.is_null() {
        return Err(Failure::invalid("handle is null"));
    }
    let primary = state.devices[device].primary;
    let address = state.allocate(call.machine, device, size as u64, Origin::Physical, primary)?;
    let (_, allocation) = state.devices[device]
        .memory
        .find(address)
        .expect("allocated above");
    let physical = Physical {
        address,
        size: size as u64,
        device,
        properties,
        references: 1,
        handles: 1,
        host: allocation.host,
        shadow: allocation.shadow.clone(),
    };
    let new = state.new_handle();
    state.physical.insert(new, physical);
    // SAFETY: the C interface's contract.
    unsafe { put(handle, new, "handle") }
}

/// Takes a reference away; the memory is freed with the last.
fn release(call: &Call<'_>, state: &mut State, handle: u64) {
    let Some(physical) = state.physical.get_mut(&handle) else {
        return;
    };
    physical.references -= 1;
    if physical.references == 0 {
        let (device, address) = (physical.device, physical.address);
        state.physical.remove(&handle);
        state.devices[device].memory.release(address, call.number());
    }
}

pub(super) unsafe fn cuMemRelease(call: &Call<'_>, handle: u64) -> Outcome {
    let mut state = call.state()?;
    match state.physical.get_mut(&handle) {
        Some(physical) if physical.handles > 0 => physical.handles -= 1,
        _ => {
            return Err(Failure::invalid(format!(
                "{handle:#x} is no physical memory, or was released"
            )));
        }
    }
    release(call, &mut state, handle);
    Ok(())
}

/// The reservation that holds a whole range.
fn reservation(state: &State, start: u64, size: u64) -> bool {
    let end = start.checked_add(size);
    let before = state.reserved.range(..=start).next_back();
    matches!((before, end), (Some((base, bytes)), Some(end)) if end <= base + bytes)
}

pub(super) unsafe fn cuMemMap(
    call: &Call<'_>,
    ptr: u64,
    size: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> Outcome {
    let mut state = call.state()?;
    let size = size as u64;
    check_granular(&[ptr, size, offset as u64])?;
    let missing = || Failure::invalid(format!("{handle:#x} is no physical memory"));
    let physical = state
        .physical
        .get(&handle)
        .filter(|physical| physical.handles > 0)
        .ok_or_else(missing)?;
    if size == 0 || flags != 0 || offset != 0 || size != physical.size {
        let message = format!(
            "{size} bytes from {offset} on of {} bytes; physical memory is mapped as a whole",
            physical.size
        );
        return Err(Failure::invalid(message));
    }
    if !reservation(&state, ptr, size) {
        return Err(Failure::invalid(format!(
            "{size} bytes at {ptr:#x} are not reserved"
        )));
    }
    let overlap = state.mapped.range(..ptr + size).next_back();
    if overlap.is_some_and(|(start, mapping)| start + mapping.size > ptr) {
        return Err(Failure::new(
            code::ALREADY_MAPPED,
            format!("something is mapped in {size} bytes at {ptr:#x}"),
        ));
    }
    let devices = state.devices.len();
    let physical = state.physical.get_mut(&handle).expect("looked up above");
    physical.references += 1;
    let mapping = Mapping {
        size,
        host: physical.host,
        handle,
        device: physical.device,
        access: vec![0; devices],
        shadow: physical.shadow.clone(),
    };
    Arc::make_mut(&mut state.mapped).insert(ptr, mapping);
    Ok(())
}

/// The mappings that make up a range exactly.
fn covering(state: &State, ptr: u64, size: u64) -> Outcome<Vec<u64>> {
    let mut starts = Vec::new();
    let (mut reached, end) = (ptr, ptr.saturating_add(size));
    while reached < end {
        let Some(mapping) = state.mapped.get(&reached) else {
            break;
        };
        starts.push(reached);
        reached += mapping.size;
    }
    if reached != end || size == 0 {
        return Err(Failure::invalid(format!(
            "{size} bytes at {ptr:#x} are not whole mappings"
        )));
    }
    Ok(starts)
}

pub(super) unsafe fn cuMemUnmap(call: &Call<'_>, ptr: u64, size: usize) -> Outcome {
    let mut state = call.state()?;
    covering(&state, ptr, size as u64)?;
    // Commands may still use the mapping.
    let target = state.sequence;
    state = call.machine.wait(state, |state| {
        state
            .busy
            .iter()
            .all(|&stream| state.passed(stream, target))
    });
    for start in covering(&state, ptr, size as u64)? {
        if let Some(mapping) = Arc::make_mut(&mut state.mapped).remove(&start) {
            release(call, &mut state, mapping.handle);
        }
    }
    Ok(())
}

pub(super) unsafe fn cuMemSetAccess(
    call: &Call<'_>,
    ptr: u64,
    size: usize,
    desc: *const CUmemAccessDesc,
    count: usize,
) -> Outcome {
    let mut state = call.state()?;
    let starts = covering(&state, ptr, size as u64)?;
    // SAFETY: the C interface's contract.
    for description in unsafe { list(desc, count, "desc")? } {
        if description.location.kind != 1 || !matches!(description.flags, 0 | 1 | 3) {
            return Err(Failure::invalid(format!("access {description:?}")));
        }
        let device = state.device(description.location.id)?;
        for &start in &starts {
            let mapping = Arc::make_mut(&mut state.mapped)
                .get_mut(&start)
                .expect("covers the range");
            if mapping.device != device
                && description.flags != 0
                && !super::device::linked(call, mapping.device, device)
            {
                let message = format!("devices {} and {device} have no link", mapping.device);
                return Err(Failure::new(code::PEER_ACCESS_UNSUPPORTED, message));
            }
            mapping.access[device] = description.flags as u8;
        }
    }
    Ok(())
}

pub(super) unsafe fn cuMemGetAccess(
    call: &Call<'_>,
    flags: *mut u64,
    location: *const CUmemLocation,
    ptr: u64,
) -> Outcome {
    let state = call.state()?;
    // SAFETY: the C interface's contract.
    let location = unsafe { get(location, "location")? };
    let device = state.device(location.id)?;
    let found = state
        .mapped
        .range(..=ptr)
        .next_back()
        .filter(|(start, mapping)| ptr - **start < mapping.size);
    let (_, mapping) =
        found.ok_or_else(|| Failure::invalid(format!("nothing is mapped at {ptr:#x}")))?;
    // SAFETY: the C interface's contract.
    unsafe { put(flags, u64::from(mapping.access[device]), "flags") }
}

pub(super) unsafe fn cuMemGetAllocationGranularity(
    call: &Call<'_>,
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: c_uint,
) -> Outcome {
    let state = call.state()?;
    // SAFETY: the C interface's contract.
    unsafe {
        check_properties(&state, &get(prop, "prop")?)?;
        if option > 1 {
            return Err(Failure::invalid(format!(
                "no granularity has the number {option}"
            )));
        }
        put(granularity, GRANULARITY as usize, "granularity")
    }
}

pub(super) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    call: &Call<'_>,
    prop: *mut CUmemAllocationProp,
    handle: u64,
) -> Outcome {
    let state = call.state()?;
    let missing = || Failure::invalid(format!("{handle:#x} is no physical memory"));
    let physical = state.physical.get(&handle).ok_or_else(missing)?;
    // SAFETY: the C interface's contract.
    unsafe { put(prop, physical.properties, "prop") }
}

pub(super) unsafe fn cuMemRetainAllocationHandle(
    call: &Call<'_>,
    handle: *mut u64,
    addr: *mut c_void,
) -> Outcome {
    let mut state = call.state()?;
    let address = addr as u64;
    let found = (range_of(address) == Some(RESERVED_INDEX))
        .then(|| state.mapped.range(..=address).next_back());
    let found = found
        .flatten()
        .filter(|(start, mapping)| address - **start < mapping.size);
    let kept = found.map(|(_, mapping)| mapping.handle);
    let kept =
        kept.ok_or_else(|| Failure::invalid(format!("nothing is mapped at {address:#x}")))?;
    let physical = state
        .physical
        .get_mut(&kept)
        .expect("a mapping keeps its memory");
    physical.handles += 1;
    physical.references += 1;
    // SAFETY: the C interface's contract.
    unsafe { put(handle, kept, "handle") }
}
