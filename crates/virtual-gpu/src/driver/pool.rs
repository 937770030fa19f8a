//! Memory pools, and allocation and freeing in the order of streams.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};

use super::abi::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps, Handle, get, list, put};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::memory::allocate;
use super::state::State;
use super::work::Work;
use crate::device::address_space::{Origin, rounded};
use crate::device::range_of;

/// A pool. What is freed stays with it until something is waited for; then it keeps as much as its threshold says.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Its device.
    pub(crate) device: usize,
    /// Attributes 1 to 3: whether memory may be reused across streams.
    reuse: [c_int; 3],
    /// Attribute 4: bytes that it keeps when something is waited for.
    threshold: u64,
    /// Bytes of the device that are the pool's, and the most that were: attributes 5 and 6.
    reserved: Level,
    /// Bytes in use, and the most that were: attributes 7 and 8.
    used: Level,
    /// Rights of other devices: 1 reading, 3 reading and writing.
    access: BTreeMap<usize, c_uint>,
    /// Whether it goes away with its last allocation.
    destroyed: bool,
}

/// A number of bytes, and its highest value.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    now: u64,
    highest: u64,
}

impl Level {
    fn set(&mut self, bytes: u64) {
        self.now = bytes;
        self.highest = self.highest.max(bytes);
    }
}

impl Pool {
    /// A pool of a device.
    pub(crate) fn new(device: usize) -> Pool {
        Pool {
            device,
            reuse: [1; 3],
            threshold: 0,
            reserved: Level::default(),
            used: Level::default(),
            access: BTreeMap::new(),
            destroyed: false,
        }
    }

    /// Bytes that it keeps for allocations to come.
    pub(crate) fn kept(&self) -> u64 {
        self.reserved.now - self.used.now
    }

    /// So many bytes were allocated, of which some are new to the pool.
    pub(crate) fn allocated(&mut self, bytes: u64, new: u64) {
        self.used.set(self.used.now + bytes);
        self.reserved.set(self.reserved.now + new);
    }

    /// Gives back what is not in use, beyond a number of bytes; how many it gives back.
    fn trim(&mut self, keep: u64) -> u64 {
        let goal = self.used.now.max(keep).min(self.reserved.now);
        let less = self.reserved.now - goal;
        self.reserved.now = goal;
        less
    }
}

impl State {
    /// Pools give back what their thresholds do not let them keep: something was waited for.
    pub(crate) fn trim_pools(&mut self) {
        for pool in self.pools.values_mut().filter(|pool| pool.kept() > 0) {
            let less = pool.trim(pool.threshold);
            self.devices[pool.device].memory.keep(0, less);
        }
    }

    /// The pools of a device give back all that is not in use.
    pub(crate) fn trim_pools_of(&mut self, device: usize) {
        for pool in self.pools.values_mut().filter(|pool| pool.device == device) {
            let less = pool.trim(0);
            self.devices[device].memory.keep(0, less);
        }
    }

    /// Pools of another device that a device may access, and whether it may write.
    pub(crate) fn pools_open_to(
        &self,
        device: usize,
        other: usize,
    ) -> impl Iterator<Item = (u64, bool)> {
        let pools = self
            .pools
            .iter()
            .filter(move |(_, pool)| pool.device == other);
        pools.filter_map(move |(handle, pool)| Some((*handle, *pool.access.get(&device)? == 3)))
    }

    /// An allocation of a pool was freed.
    fn freed_in_pool(&mut self, handle: u64, size: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else {
            return;
        };
        let bytes = rounded(size).unwrap_or(0);
        pool.used.now -= bytes;
        let memory = &mut self.devices[pool.device].memory;
        memory.keep(bytes, 0);
        if pool.destroyed {
            memory.keep(0, pool.trim(0));
            if pool.used.now == 0 {
                self.pools.remove(&handle);
            }
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
            let origin = allocation.origin;
            start == address && matches!(origin, Origin::Direct | Origin::Pool(_) | Origin::Graph)
        })
    {
        let released = memory.release(address, call);
        state.freeing.remove(&address);
        if let Some(allocation) = released
            && let Origin::Pool(pool) = allocation.origin
        {
            state.freed_in_pool(pool, allocation.size);
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
        .filter(|pool| !pool.destroyed)
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
    let own = state.context(state.streams[&stream].context)?.device;
    let pool = pool.unwrap_or(state.devices[own].pool);
    let device = pool_of(&state, pool)?.device;
    // The memory belongs to the pool's device, whatever context asks.
    let home = if device == own {
        context
    } else {
        state.devices[device].primary
    };
    let address = if state.stream_mut(stream).capture.is_some() {
        let memory = state.withhold(device, bytes as u64, home, call.number())?;
        let address = memory.address;
        super::capture::record(&mut state, stream, Work::Allocate(memory))?;
        address
    } else {
        allocate(
            call,
            state,
            (device, home),
            bytes as u64,
            Origin::Pool(pool),
        )?
    };
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
    if state.stream_mut(stream).capture.is_some() {
        super::graph_memory::check_free(&state, dptr)?;
        return call
            .machine
            .submit(state, stream, Work::Free { address: dptr }, Vec::new());
    }
    if state.freeing.contains(&dptr) {
        let message = format!("{dptr:#x} is freed already, by a free that waits for its turn");
        return Err(Failure::invalid(message));
    }
    let device = range_of(dptr).and_then(|index| state.devices.get(index));
    let starts = device.and_then(|device| device.memory.find(dptr));
    let may_be_freed = starts.is_some_and(|(start, allocation)| {
        start == dptr && !matches!(allocation.origin, Origin::Module | Origin::Physical)
    });
    let is_a_graphs = state.graph_memory.find(dptr).is_some();
    if !(may_be_freed && !is_a_graphs || state.graph_memory_outstanding(dptr)) {
        let message = format!(
            "{dptr:#x} is not the start of an allocation: {}",
            state.describe(dptr)
        );
        return Err(Failure::invalid(message));
    }
    if is_a_graphs {
        state.will_be_freed(dptr);
    } else {
        state.freeing.insert(dptr);
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
    // What is allocated from it stays, and the pool with it.
    let found = state.pools.get_mut(&pool).expect("looked up above");
    found.destroyed = true;
    let (less, empty) = (found.trim(0), found.used.now == 0);
    state.devices[device].memory.keep(0, less);
    if empty {
        state.pools.remove(&pool);
    }
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
            5 => put(value.cast(), found.reserved.now, "value"),
            6 => put(value.cast(), found.reserved.highest, "value"),
            7 => put(value.cast(), found.used.now, "value"),
            8 => put(value.cast(), found.used.highest, "value"),
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
    pool_of(&state, number(pool))?;
    let found = state.pools.get_mut(&number(pool)).expect("looked up above");
    // SAFETY: the C interface's contract: the value is of the attribute's type.
    unsafe {
        match attr {
            1..=3 => {
                found.reuse[attr as usize - 1] = get(value.cast::<c_int>().cast_const(), "value")?
            }
            4 => found.threshold = get(value.cast::<u64>().cast_const(), "value")?,
            6 | 8 if get(value.cast::<u64>().cast_const(), "value")? == 0 => {
                let level = if attr == 6 {
                    &mut found.reserved
                } else {
                    &mut found.used
                };
                level.highest = level.now;
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
    min_bytes_to_keep: usize,
) -> Outcome {
    let mut state = call.state()?;
    let device = pool_of(&state, number(pool))?.device;
    let found = state.pools.get_mut(&number(pool)).expect("looked up above");
    let less = found.trim(min_bytes_to_keep as u64);
    state.devices[device].memory.keep(0, less);
    Ok(())
}

pub(super) unsafe fn cuMemPoolSetAccess(
    call: &Call<'_>,
    pool: Handle,
    map: *const CUmemAccessDesc,
    count: usize,
) -> Outcome {
    let mut state = call.state()?;
    let own = pool_of(&state, number(pool))?.device;
    let mut changes = Vec::new();
    // SAFETY: the C interface's contract.
    for description in unsafe { list(map, count, "map")? } {
        let device = location(&state, description.location)?;
        if !matches!(description.flags, 0 | 1 | 3) || device == own && description.flags != 3 {
            let message = format!("{description:?}; the pool's own device reads and writes (3)");
            return Err(Failure::invalid(message));
        }
        if device != own && description.flags != 0 && !super::device::linked(call, own, device) {
            let message = format!("devices {own} and {device} have no link");
            return Err(Failure::new(code::PEER_ACCESS_UNSUPPORTED, message));
        }
        changes.push((device, description.flags));
    }
    let found = state.pools.get_mut(&number(pool)).expect("looked up above");
    for (device, flags) in changes.into_iter().filter(|(device, _)| *device != own) {
        match flags {
            0 => found.access.remove(&device),
            _ => found.access.insert(device, flags),
        };
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
    let found = pool_of(&state, number(mem_pool))?;
    // SAFETY: the C interface's contract.
    unsafe {
        let device = location(&state, get(place.cast_const(), "location")?)?;
        let rights = found.access.get(&device).copied().unwrap_or(0);
        put(
            flags,
            if device == found.device { 3 } else { rights },
            "flags",
        )
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
