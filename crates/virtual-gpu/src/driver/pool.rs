//! Memory pools, and allocation and freeing in the order of streams.

use std::ffi::{c_int, c_uint, c_void};

use super::abi::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps, Handle, get, list, put};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::memory::allocate;
use super::state::State;
use super::work::Work;
use crate::device::address_space::Origin;
use crate::device::range_of;

/// A pool. It keeps no memory of its own: what is freed goes back to the device.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Its device.
    pub(crate) device: usize,
    /// Attributes 1 to 3: whether memory may be reused across streams.
    reuse: [c_int; 3],
    /// Attribute 4.
    threshold: u64,
    /// Bytes in use, attributes 5 and 7.
    used: u64,
    /// Most bytes that were in use, attributes 6 and 8.
    peak: u64,
}

impl Pool {
    /// A pool of a device.
    pub(crate) fn new(device: usize) -> Pool {
        Pool {
            device,
            reuse: [1; 3],
            threshold: 0,
            used: 0,
            peak: 0,
        }
    }
}

/// Frees an allocation of a device.
pub(crate) fn free(state: &mut State, address: u64, call: u64) -> Outcome {
    let memory = range_of(address)
        .and_then(|index| state.devices.get_mut(index))
        .map(|device| &mut device.memory);
    if let Some(memory) = memory
        && memory.find(address).is_some_and(|(start, allocation)| {
            start == address && matches!(allocation.origin, Origin::Direct | Origin::Pool(_))
        })
    {
        let released = memory.release(address, call);
        if let Some(allocation) = released
            && let Origin::Pool(pool) = allocation.origin
            && let Some(pool) = state.pools.get_mut(&pool)
        {
            pool.used -= allocation.size;
        }
        return Ok(());
    }
    let message = format!(
        "{address:#x} is not the start of an allocation: {}",
        state.describe(address)
    );
    Err(Failure::invalid(message))
}

fn pool_of(state: &State, pool: u64) -> Outcome<&Pool> {
    state
        .pools
        .get(&pool)
        .ok_or_else(|| state.unknown("pool", pool))
}

unsafe fn allocate_async(
    call: &Call<'_>,
    dptr: *mut u64,
    bytes: usize,
    pool: Option<u64>,
    stream: Handle,
) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, stream)?;
    if dptr.is_null() {
        return Err(Failure::invalid("dptr is null"));
    }
    if state.stream_mut(stream).capture.is_some() {
        let message =
            "allocation in a captured stream would need memory nodes, which are not supported";
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
    let own = state.context(state.streams[&stream].context)?.device;
    let pool = pool.unwrap_or(state.devices[own].pool);
    let device = pool_of(&state, pool)?.device;
    // The memory belongs to the pool's device, whatever context asks.
    let home = if device == own {
        context
    } else {
        state.devices[device].primary
    };
    drop(state);
    let address = if device == own {
        allocate(call, home, bytes as u64, Origin::Pool(pool))?
    } else {
        call.state()?
            .allocate(call.machine, device, bytes as u64, Origin::Pool(pool), home)?
    };
    let mut state = call.state()?;
    if let Some(pool) = state.pools.get_mut(&pool) {
        pool.used += bytes as u64;
        pool.peak = pool.peak.max(pool.used);
    }
    drop(state);
    // SAFETY: the C interface's contract.
    unsafe { put(dptr, address, "dptr") }
}

pub(super) unsafe fn cuMemAllocAsync(
    call: &Call<'_>,
    dptr: *mut u64,
    bytesize: usize,
    h_stream: Handle,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { allocate_async(call, dptr, bytesize, None, h_stream) }
}

pub(super) unsafe fn cuMemAllocFromPoolAsync(
    call: &Call<'_>,
    dptr: *mut u64,
    bytesize: usize,
    pool: Handle,
    h_stream: Handle,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { allocate_async(call, dptr, bytesize, Some(number(pool)), h_stream) }
}

pub(super) unsafe fn cuMemFreeAsync(call: &Call<'_>, dptr: u64, h_stream: Handle) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, h_stream)?;
    if dptr == 0 {
        return Ok(());
    }
    let device = range_of(dptr).and_then(|index| state.devices.get(index));
    if !device.is_some_and(|device| {
        device
            .memory
            .find(dptr)
            .is_some_and(|(start, _)| start == dptr)
    }) {
        let message = format!(
            "{dptr:#x} is not the start of an allocation: {}",
            state.describe(dptr)
        );
        return Err(Failure::invalid(message));
    }
    call.machine
        .submit(state, stream, Work::Free { address: dptr }, Vec::new())
}

fn location(state: &State, location: CUmemLocation) -> Outcome<usize> {
    if location.kind != 1 {
        let message = format!(
            "memory of a location of kind {}; only devices (1) have it here",
            location.kind
        );
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
    state.device(location.id)
}

pub(super) unsafe fn cuMemPoolCreate(
    call: &Call<'_>,
    pool: *mut Handle,
    pool_props: *const CUmemPoolProps,
) -> Outcome {
    let mut state = call.state()?;
    // SAFETY: the C interface's contract.
    let properties = unsafe { get(pool_props, "poolProps")? };
    if properties.alloc_type != 1 || properties.handle_types & !1 != 0 {
        let message = format!(
            "type {} and handles {}",
            properties.alloc_type, properties.handle_types
        );
        return Err(Failure::invalid(message));
    }
    let device = location(&state, properties.location)?;
    let new = state.new_handle();
    // SAFETY: the C interface's contract.
    unsafe { put(pool, handle(new), "pool")? };
    state.pools.insert(new, Pool::new(device));
    Ok(())
}

pub(super) unsafe fn cuMemPoolDestroy(call: &Call<'_>, pool: Handle) -> Outcome {
    let mut state = call.state()?;
    let pool = number(pool);
    let device = pool_of(&state, pool)?.device;
    if state.devices[device].default_pool == pool {
        return Err(Failure::invalid("the default pool cannot be destroyed"));
    }
    if state.devices[device].pool == pool {
        state.devices[device].pool = state.devices[device].default_pool;
    }
    state.pools.remove(&pool);
    Ok(())
}

pub(super) unsafe fn cuMemPoolGetAttribute(
    call: &Call<'_>,
    pool: Handle,
    attr: c_uint,
    value: *mut c_void,
) -> Outcome {
    let state = call.state()?;
    let found = pool_of(&state, number(pool))?;
    // SAFETY: the C interface's contract: the value is of the attribute's type.
    unsafe {
        match attr {
            1..=3 => put(value.cast(), found.reuse[attr as usize - 1], "value"),
            4 => put(value.cast(), found.threshold, "value"),
            5 | 7 => put(value.cast(), found.used, "value"),
            6 | 8 => put(value.cast(), found.peak, "value"),
            _ => Err(Failure::invalid(format!(
                "no attribute of a pool has the number {attr}"
            ))),
        }
    }
}

pub(super) unsafe fn cuMemPoolSetAttribute(
    call: &Call<'_>,
    pool: Handle,
    attr: c_uint,
    value: *mut c_void,
) -> Outcome {
    let mut state = call.state()?;
    let missing = state.unknown("pool", number(pool));
    let found = state.pools.get_mut(&number(pool)).ok_or(missing)?;
    // SAFETY: the C interface's contract: the value is of the attribute's type.
    unsafe {
        match attr {
            1..=3 => {
                found.reuse[attr as usize - 1] = get(value.cast::<c_int>().cast_const(), "value")?
            }
            4 => found.threshold = get(value.cast::<u64>().cast_const(), "value")?,
            6 | 8 if get(value.cast::<u64>().cast_const(), "value")? == 0 => {
                found.peak = found.used
            }
            _ => {
                return Err(Failure::invalid(format!(
                    "attribute {attr} of a pool cannot be set so"
                )));
            }
        }
    }
    Ok(())
}

pub(super) unsafe fn cuMemPoolTrimTo(
    call: &Call<'_>,
    pool: Handle,
    _min_bytes_to_keep: usize,
) -> Outcome {
    let state = call.state()?;
    pool_of(&state, number(pool)).map(drop)
}

pub(super) unsafe fn cuMemPoolSetAccess(
    call: &Call<'_>,
    pool: Handle,
    map: *const CUmemAccessDesc,
    count: usize,
) -> Outcome {
    let state = call.state()?;
    let own = pool_of(&state, number(pool))?.device;
    // SAFETY: the C interface's contract.
    for description in unsafe { list(map, count, "map")? } {
        let device = location(&state, description.location)?;
        if device != own && description.flags != 0 {
            let message =
                "access of other devices to a pool; enable peer access of the contexts instead";
            return Err(Failure::new(code::NOT_SUPPORTED, message));
        }
    }
    Ok(())
}

pub(super) unsafe fn cuMemPoolGetAccess(
    call: &Call<'_>,
    flags: *mut c_uint,
    mem_pool: Handle,
    place: *mut CUmemLocation,
) -> Outcome {
    let state = call.state()?;
    let own = pool_of(&state, number(mem_pool))?.device;
    // SAFETY: the C interface's contract.
    unsafe {
        let device = location(&state, get(place.cast_const(), "location")?)?;
        put(flags, if device == own { 3 } else { 0 }, "flags")
    }
}

pub(super) unsafe fn cuDeviceGetDefaultMemPool(
    call: &Call<'_>,
    pool_out: *mut Handle,
    dev: c_int,
) -> Outcome {
    let state = call.state()?;
    let device = state.device(dev)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            pool_out,
            handle(state.devices[device].default_pool),
            "pool_out",
        )
    }
}

pub(super) unsafe fn cuDeviceGetMemPool(call: &Call<'_>, pool: *mut Handle, dev: c_int) -> Outcome {
    let state = call.state()?;
    let device = state.device(dev)?;
    // SAFETY: the C interface's contract.
    unsafe { put(pool, handle(state.devices[device].pool), "pool") }
}

pub(super) unsafe fn cuDeviceSetMemPool(call: &Call<'_>, dev: c_int, pool: Handle) -> Outcome {
    let mut state = call.state()?;
    let device = state.device(dev)?;
    if pool_of(&state, number(pool))?.device != device {
        return Err(Failure::invalid("the pool is another device's"));
    }
    state.devices[device].pool = number(pool);
    Ok(())
}
