//! Contexts: the primary one of each device, created ones, the thread's stack, limits and peer access.

use std::ffi::{c_int, c_uint, c_void};

use super::abi::{Handle, put};
use super::call::{Call, handle, number};
use super::device::linked;
use super::error::{Failure, Outcome, code};
use super::schedule::lost;
use super::state::{HEAP_LIMIT, State};
use crate::device::DEVICE_BITS;
use crate::device::address_space::Origin;
use crate::device::heap::Heap;
use std::sync::{Arc, MutexGuard};

/// The API version that contexts report.
const API_VERSION: c_uint = 3020;
/// Priorities of streams: the lowest and the highest.
pub(super) const PRIORITIES: (c_int, c_int) = (0, -5);

pub(super) unsafe fn cuDevicePrimaryCtxRetain(
    call: &Call<'_>,
    pctx: *mut Handle,
    dev: c_int,
) -> Outcome {
    let mut state = call.state()?;
    let device = state.device(dev)?;
    if let Some(code) = state.devices[device].lost {
        return Err(lost(device, code));
    }
    let primary = state.devices[device].primary;
    // SAFETY: the C interface's contract.
    unsafe { put(pctx, handle(primary), "pctx")? };
    let context = state
        .contexts
        .get_mut(&primary)
        .expect("every device has a primary context");
    context.retained += 1;
    context.active = true;
    Ok(())
}

pub(super) unsafe fn cuDevicePrimaryCtxRelease_v2(call: &Call<'_>, dev: c_int) -> Outcome {
    let mut state = call.state()?;
    let device = state.device(dev)?;
    let primary = state.devices[device].primary;
    let context = state
        .contexts
        .get_mut(&primary)
        .expect("every device has a primary context");
    if context.retained == 0 {
        let message = format!("the primary context of device {device} is not retained");
        return Err(Failure::new(code::INVALID_CONTEXT, message));
    }
    context.retained -= 1;
    if context.retained == 0 && context.active {
        let mut state = idle(call, state, primary);
        // Whoever has retained it meanwhile has it active again.
        if state.contexts[&primary].retained == 0 {
            end(call, &mut state, primary);
        }
    }
    Ok(())
}

/// Destroys what the context holds. It stays retained by those who have retained it, and is inactive until it is
/// retained once more.
pub(super) unsafe fn cuDevicePrimaryCtxReset_v2(call: &Call<'_>, dev: c_int) -> Outcome {
    let state = call.state()?;
    let device = state.device(dev)?;
    let primary = state.devices[device].primary;
    if state.context(primary).is_ok() {
        let mut state = idle(call, state, primary);
        end(call, &mut state, primary);
    }
    Ok(())
}

pub(super) unsafe fn cuDevicePrimaryCtxGetState(
    call: &Call<'_>,
    dev: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Outcome {
    let state = call.state()?;
    let device = state.device(dev)?;
    let context = &state.contexts[&state.devices[device].primary];
    // SAFETY: the C interface's contract.
    unsafe {
        put(flags, context.flags, "flags")?;
        put(active, c_int::from(context.active), "active")
    }
}

pub(super) unsafe fn cuDevicePrimaryCtxSetFlags_v2(
    call: &Call<'_>,
    dev: c_int,
    flags: c_uint,
) -> Outcome {
    let mut state = call.state()?;
    let device = state.device(dev)?;
    check_flags(flags)?;
    let primary = state.devices[device].primary;
    state
        .contexts
        .get_mut(&primary)
        .expect("every device has a primary context")
        .flags = flags;
    Ok(())
}

fn check_flags(flags: c_uint) -> Outcome {
    // The lowest three bits choose how the host waits (0, 1, 2 or 4).
    if flags & !0xff != 0 || !matches!(flags & 7, 0 | 1 | 2 | 4) {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of a context"
        )));
    }
    Ok(())
}

unsafe fn create(call: &Call<'_>, pctx: *mut Handle, flags: c_uint, dev: c_int) -> Outcome {
    let mut state = call.state()?;
    let device = state.device(dev)?;
    check_flags(flags)?;
    if let Some(code) = state.devices[device].lost {
        return Err(lost(device, code));
    }
    let context = state.new_context(device, false, flags);
    // SAFETY: the C interface's contract.
    unsafe { put(pctx, handle(context), "pctx")? };
    call.with_stack(|stack| stack.push(context));
    Ok(())
}

pub(super) unsafe fn cuCtxCreate_v2(
    call: &Call<'_>,
    pctx: *mut Handle,
    flags: c_uint,
    dev: c_int,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { create(call, pctx, flags, dev) }
}

pub(super) unsafe fn cuCtxCreate_v3(
    call: &Call<'_>,
    pctx: *mut Handle,
    _params_array: *mut c_void,
    num_params: c_int,
    flags: c_uint,
    dev: c_int,
) -> Outcome {
    if num_params != 0 {
        return Err(Failure::new(
            code::UNSUPPORTED_EXEC_AFFINITY,
            "contexts of a part of the device are not supported",
        ));
    }
    // SAFETY: the C interface's contract.
    unsafe { create(call, pctx, flags, dev) }
}

pub(super) unsafe fn cuCtxCreate_v4(
    call: &Call<'_>,
    pctx: *mut Handle,
    ctx_create_params: *mut c_void,
    flags: c_uint,
    dev: c_int,
) -> Outcome {
    if !ctx_create_params.is_null() {
        return Err(Failure::new(
            code::UNSUPPORTED_EXEC_AFFINITY,
            "contexts of a part of the device are not supported",
        ));
    }
    // SAFETY: the C interface's contract.
    unsafe { create(call, pctx, flags, dev) }
}

pub(super) unsafe fn cuCtxDestroy_v2(call: &Call<'_>, ctx: Handle) -> Outcome {
    let state = call.state()?;
    let context = number(ctx);
    if state.context(context)?.primary {
        let message = "the primary context is released (cuDevicePrimaryCtxRelease), not destroyed";
        return Err(Failure::new(code::INVALID_CONTEXT, message));
    }
    let mut state = idle(call, state, context);
    end(call, &mut state, context);
    drop(state);
    call.with_stack(|stack| {
        if stack.last() == Some(&context) {
            stack.pop();
        }
    });
    Ok(())
}

/// Lets nothing more be submitted to a context, and waits until none of its commands is left. Those of one that has failed
/// are dropped, but for what runs in another thread: that still uses what the context holds.
fn idle<'m>(
    call: &'m Call<'_>,
    mut state: MutexGuard<'m, State>,
    context: u64,
) -> MutexGuard<'m, State> {
    if let Some(ending) = state.contexts.get_mut(&context) {
        ending.active = false;
    }
    // Commands of other contexts may use the host's memory that this one has registered.
    let owner = state.host.values().any(|range| range.context == context);
    loop {
        let failed = |state: &State| {
            let context = state.contexts.get(&context);
            context.is_some_and(|context| context.failure.is_some())
        };
        if failed(&state) {
            state.drop_commands(context);
        }
        state = if owner {
            call.drain_everything(state)
        } else {
            call.drain_context(state, context)
        };
        let is_left = |stream: &u64| {
            let stream = state.streams.get(stream);
            stream.is_some_and(|stream| stream.context == context)
        };
        if !state.busy.iter().any(is_left) {
            return state;
        }
    }
}

/// Ends an idle context with all that it holds; a primary one may be retained again.
fn end(call: &Call<'_>, state: &mut State, context: u64) {
    let number = call.number();
    for device in &mut state.devices {
        let memory = &mut device.memory;
        let starts: Vec<u64> = memory
            .live()
            .iter()
            .filter(|(_, a)| a.context == context)
            .map(|(start, _)| *start)
            .collect();
        for start in starts {
            // Pools and physical memory belong to the device, and outlive contexts.
            let keeps = |origin| matches!(origin, Origin::Pool(_) | Origin::Physical);
            if memory
                .find(start)
                .is_some_and(|(_, allocation)| !keeps(allocation.origin))
            {
                memory.release(start, number);
            }
        }
    }
    if state.host.values().any(|range| range.context == context) {
        Arc::make_mut(&mut state.host).retain(|_, range| range.context != context);
    }
    state.streams.retain(|_, stream| stream.context != context);
    let streams: Vec<u64> = state.streams.keys().copied().collect();
    state.busy.retain(|stream| streams.contains(stream));
    state.events.retain(|_, event| event.context != context);
    state.modules.retain(|_, module| module.context != context);
    state
        .functions
        .retain(|_, function| function.context != context);
    for library in state.libraries.values_mut() {
        library.modules.remove(&context);
    }
    for other in state.contexts.values_mut() {
        other.peers.remove(&context);
    }
    let Some(old) = state.contexts.remove(&context) else {
        return;
    };
    if !old.primary {
        return;
    }
    // The primary context keeps its handle and flags.
    let fresh = state.new_context(old.device, true, old.flags);
    let mut renewed = state.contexts.remove(&fresh).expect("made above");
    if let Some(stream) = state.streams.get_mut(&renewed.legacy) {
        stream.context = context;
    }
    (renewed.retained, renewed.active) = (old.retained, false);
    if state.devices[old.device].lost.is_some() {
        renewed.failure = old.failure;
    }
    state.contexts.insert(context, renewed);
}

pub(super) unsafe fn cuCtxGetCurrent(call: &Call<'_>, pctx: *mut Handle) -> Outcome {
    drop(call.state()?);
    // SAFETY: the C interface's contract.
    unsafe { put(pctx, handle(call.top().unwrap_or(0)), "pctx") }
}

pub(super) unsafe fn cuCtxSetCurrent(call: &Call<'_>, ctx: Handle) -> Outcome {
    let state = call.state()?;
    let context = number(ctx);
    if context != 0 {
        state.context(context)?;
    }
    call.with_stack(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
    Ok(())
}

pub(super) unsafe fn cuCtxPushCurrent_v2(call: &Call<'_>, ctx: Handle) -> Outcome {
    call.state()?.context(number(ctx))?;
    call.with_stack(|stack| stack.push(number(ctx)));
    Ok(())
}

pub(super) unsafe fn cuCtxPopCurrent_v2(call: &Call<'_>, pctx: *mut Handle) -> Outcome {
    drop(call.state()?);
    let popped = call.with_stack(Vec::pop);
    let context = popped.ok_or_else(|| {
        Failure::new(
            code::INVALID_CONTEXT,
            "the thread's stack of contexts is empty",
        )
    })?;
    // SAFETY: the C interface's contract.
    unsafe { super::abi::put_if(pctx, handle(context)) };
    Ok(())
}

pub(super) unsafe fn cuCtxGetDevice(call: &Call<'_>, device: *mut c_int) -> Outcome {
    let (state, context) = call.current_even_failed()?;
    // SAFETY: the C interface's contract.
    unsafe { put(device, state.context(context)?.device as c_int, "device") }
}

/// The context that a handle names; the current one for null.
fn named<'m>(call: &'m Call<'_>, ctx: Handle) -> Outcome<(MutexGuard<'m, State>, u64)> {
    if ctx.is_null() {
        return call.current_even_failed();
    }
    let state = call.state()?;
    state.context(number(ctx))?;
    Ok((state, number(ctx)))
}

pub(super) unsafe fn cuCtxGetDevice_v2(
    call: &Call<'_>,
    device: *mut c_int,
    ctx: Handle,
) -> Outcome {
    let (state, context) = named(call, ctx)?;
    // SAFETY: the C interface's contract.
    unsafe { put(device, state.context(context)?.device as c_int, "device") }
}

pub(super) unsafe fn cuCtxGetFlags(call: &Call<'_>, flags: *mut c_uint) -> Outcome {
    let (state, context) = call.current_even_failed()?;
    // SAFETY: the C interface's contract.
    unsafe { put(flags, state.context(context)?.flags, "flags") }
}

pub(super) unsafe fn cuCtxSetFlags(call: &Call<'_>, flags: c_uint) -> Outcome {
    let (mut state, context) = call.current()?;
    check_flags(flags)?;
    state.context_mut(context)?.flags = flags;
    Ok(())
}

pub(super) unsafe fn cuCtxGetId(call: &Call<'_>, ctx: Handle, ctx_id: *mut u64) -> Outcome {
    let (state, context) = named(call, ctx)?;
    drop(state);
    // SAFETY: the C interface's contract.
    unsafe { put(ctx_id, context, "ctxId") }
}

pub(super) unsafe fn cuCtxGetApiVersion(
    call: &Call<'_>,
    ctx: Handle,
    version: *mut c_uint,
) -> Outcome {
    drop(named(call, ctx)?);
    // SAFETY: the C interface's contract.
    unsafe { put(version, API_VERSION, "version") }
}

pub(super) unsafe fn cuCtxSynchronize(call: &Call<'_>) -> Outcome {
    let (mut state, context) = call.current()?;
    super::capture::forbid_in_context(&mut state, context, "waiting for the context")?;
    call.wait_for_context(state, context).map(drop)
}

pub(super) unsafe fn cuCtxSynchronize_v2(call: &Call<'_>, ctx: Handle) -> Outcome {
    let (mut state, context) = named(call, ctx)?;
    state.context(context)?.healthy()?;
    super::capture::forbid_in_context(&mut state, context, "waiting for the context")?;
    call.wait_for_context(state, context).map(drop)
}

fn limit_index(limit: c_uint) -> Outcome<usize> {
    if limit > 6 {
        return Err(Failure::new(
            code::UNSUPPORTED_LIMIT,
            format!("no limit has the number {limit}"),
        ));
    }
    Ok(limit as usize)
}

pub(super) unsafe fn cuCtxGetLimit(call: &Call<'_>, pvalue: *mut usize, limit: c_uint) -> Outcome {
    let (state, context) = call.current()?;
    let value = state.context(context)?.limits[limit_index(limit)?];
    // SAFETY: the C interface's contract.
    unsafe { put(pvalue, value, "pvalue") }
}

pub(super) unsafe fn cuCtxSetLimit(call: &Call<'_>, limit: c_uint, value: usize) -> Outcome {
    let (mut state, context) = call.current()?;
    let index = limit_index(limit)?;
    if index == 0 && value > 512 << 10 {
        return Err(Failure::invalid(format!(
            "a stack of {value} bytes; a thread has at most {}",
            512 << 10
        )));
    }
    if index == HEAP_LIMIT {
        let policy = state.policy;
        let context = state.context_mut(context)?;
        if context.heap.used() {
            return Err(Failure::invalid(
                "the heap's size cannot change after a kernel has allocated from it",
            ));
        }
        if value as u64 >= 1 << (DEVICE_BITS - 1) {
            return Err(Failure::invalid(format!("a heap of {value} bytes")));
        }
        context.heap = Arc::new(Heap::new(value as u64, policy));
    }
    state.context_mut(context)?.limits[index] = value;
    Ok(())
}

pub(super) unsafe fn cuCtxGetCacheConfig(call: &Call<'_>, pconfig: *mut c_uint) -> Outcome {
    let (state, context) = call.current()?;
    // SAFETY: the C interface's contract.
    unsafe { put(pconfig, state.context(context)?.cache, "pconfig") }
}

pub(super) unsafe fn cuCtxSetCacheConfig(call: &Call<'_>, config: c_uint) -> Outcome {
    let (mut state, context) = call.current()?;
    if config > 3 {
        return Err(Failure::invalid(format!(
            "no cache configuration has the number {config}"
        )));
    }
    state.context_mut(context)?.cache = config;
    Ok(())
}

pub(super) unsafe fn cuCtxGetSharedMemConfig(call: &Call<'_>, p_config: *mut c_uint) -> Outcome {
    let (state, context) = call.current()?;
    // SAFETY: the C interface's contract.
    unsafe { put(p_config, state.context(context)?.shared, "pConfig") }
}

pub(super) unsafe fn cuCtxSetSharedMemConfig(call: &Call<'_>, config: c_uint) -> Outcome {
    let (mut state, context) = call.current()?;
    if config > 2 {
        return Err(Failure::invalid(format!(
            "no bank configuration has the number {config}"
        )));
    }
    state.context_mut(context)?.shared = config;
    Ok(())
}

pub(super) unsafe fn cuCtxGetStreamPriorityRange(
    call: &Call<'_>,
    least_priority: *mut c_int,
    greatest_priority: *mut c_int,
) -> Outcome {
    drop(call.current()?);
    // SAFETY: the C interface's contract.
    unsafe {
        super::abi::put_if(least_priority, PRIORITIES.0);
        super::abi::put_if(greatest_priority, PRIORITIES.1);
    }
    Ok(())
}

pub(super) unsafe fn cuCtxResetPersistingL2Cache(call: &Call<'_>) -> Outcome {
    call.current().map(drop)
}

pub(super) unsafe fn cuCtxEnablePeerAccess(
    call: &Call<'_>,
    peer_context: Handle,
    flags: c_uint,
) -> Outcome {
    let (mut state, context) = call.current()?;
    if flags != 0 {
        return Err(Failure::invalid("flags must be 0"));
    }
    let peer = number(peer_context);
    let (own, other) = (state.context(context)?.device, state.context(peer)?.device);
    if own == other || !linked(call, own, other) {
        let message = format!("devices {own} and {other} have no link");
        return Err(Failure::new(code::PEER_ACCESS_UNSUPPORTED, message));
    }
    if !state.context_mut(context)?.peers.insert(peer) {
        return Err(Failure::new(
            code::PEER_ACCESS_ALREADY_ENABLED,
            "peer access is already enabled",
        ));
    }
    Ok(())
}

pub(super) unsafe fn cuCtxDisablePeerAccess(call: &Call<'_>, peer_context: Handle) -> Outcome {
    let (mut state, context) = call.current()?;
    state.context(number(peer_context))?;
    if !state
        .context_mut(context)?
        .peers
        .remove(&number(peer_context))
    {
        return Err(Failure::new(
            code::PEER_ACCESS_NOT_ENABLED,
            "peer access was not enabled",
        ));
    }
    Ok(())
}
