//! Kernels as handles: their attributes, and how many blocks of them a multiprocessor holds.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::abi::{CUoccupancyB2DSize, Handle, put, put_if};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::module::Function;
use super::state::State;
use crate::device::attributes::{
    Limits, MAX_REGISTERS, MAX_THREADS, REGISTERS, SHARED_DEFAULT, SHARED_RESERVED, limits,
};
use crate::exec::code::Kernel;
use crate::machine::Settings;

/// The kernel of a handle, which may be a library's kernel too: it is then that of the current context.
pub(crate) fn function(
    call: &Call<'_>,
    state: &mut State,
    context: u64,
    hfunc: Handle,
) -> Outcome<Arc<Function>> {
    let mut found = number(hfunc);
    if !state.functions.contains_key(&found) && state.kernels.contains_key(&found) {
        found = super::library::function_in(call, state, context, found)?;
    }
    state
        .functions
        .get(&found)
        .cloned()
        .ok_or_else(|| state.unknown("kernel", found))
}

fn current(call: &Call<'_>, hfunc: Handle) -> Outcome<Arc<Function>> {
    let (mut state, context) = call.current()?;
    function(call, &mut state, context, hfunc)
}

/// Threads of a block, at most.
pub(crate) fn max_threads(function: &Function) -> u32 {
    let declared = &function.parsed.functions[function.index as usize];
    let limit = declared.max_threads.or(declared.required_threads);
    let product = limit.map_or(u64::from(MAX_THREADS), |limit| {
        limit.iter().map(|&count| u64::from(count)).product()
    });
    product.min(u64::from(MAX_THREADS)) as u32
}

/// Dynamic shared memory of a block, at most.
pub(crate) fn max_dynamic(function: &Function, shared: u32) -> u32 {
    match function.dynamic_shared.load(Ordering::Relaxed) {
        u32::MAX => SHARED_DEFAULT.saturating_sub(shared),
        chosen => chosen,
    }
}

/// Registers of a thread: more than it may have would be kept in local memory.
fn registers(function: &Function, kernel: &Kernel) -> u32 {
    let declared = &function.parsed.functions[function.index as usize];
    let most = declared.max_registers.unwrap_or(MAX_REGISTERS);
    kernel
        .entry
        .registers
        .clamp(1, most.clamp(1, MAX_REGISTERS))
}

/// The value of an attribute.
pub(crate) fn attribute(
    function: &Function,
    attrib: c_uint,
    settings: &Settings,
) -> Outcome<c_int> {
    let kernel = function.decoded()?;
    let value = match attrib {
        0 => max_threads(function),
        1 => kernel.shared_bytes,
        2 => {
            let constants = function
                .parsed
                .variables
                .iter()
                .filter(|v| v.space == crate::ptx::ast::Space::Const);
            constants
                .map(|variable| variable.size.unwrap_or(0) as u32)
                .sum()
        }
        3 => kernel.entry.local_bytes,
        4 => registers(function, kernel),
        5 => function.parsed.version.0 * 10 + function.parsed.version.1,
        6 => settings.capability.0 * 10 + settings.capability.1,
        7 => 0,
        8 => max_dynamic(function, kernel.shared_bytes),
        9 => return Ok(function.carveout.load(Ordering::Relaxed)),
        10..=15 => 0,
        _ => {
            return Err(Failure::invalid(format!(
                "no function attribute has the number {attrib}"
            )));
        }
    };
    Ok(value as c_int)
}

/// Changes an attribute.
pub(crate) fn set_attribute(
    function: &Function,
    attrib: c_uint,
    value: c_int,
    settings: &Settings,
) -> Outcome {
    match attrib {
        8 => {
            let most = limits(settings.capability)
                .shared_block
                .saturating_sub(function.decoded()?.shared_bytes);
            let wanted = u32::try_from(value).ok().filter(|&wanted| wanted <= most);
            let wanted = wanted.ok_or_else(|| {
                Failure::invalid(format!(
                    "{value} bytes of dynamic shared memory; {} may have at most {most}",
                    function.name
                ))
            })?;
            function.dynamic_shared.store(wanted, Ordering::Relaxed);
        }
        9 if (-1..=100).contains(&value) => function.carveout.store(value, Ordering::Relaxed),
        14 if (0..=1).contains(&value) => {}
        _ => {
            return Err(Failure::invalid(format!(
                "function attribute {attrib} cannot be set to {value}"
            )));
        }
    }
    Ok(())
}

pub(super) unsafe fn cuFuncGetAttribute(
    call: &Call<'_>,
    pi: *mut c_int,
    attrib: c_uint,
    hfunc: Handle,
) -> Outcome {
    let function = current(call, hfunc)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            pi,
            attribute(&function, attrib, &call.machine.settings)?,
            "pi",
        )
    }
}

pub(super) unsafe fn cuFuncSetAttribute(
    call: &Call<'_>,
    hfunc: Handle,
    attrib: c_uint,
    value: c_int,
) -> Outcome {
    set_attribute(
        &*current(call, hfunc)?,
        attrib,
        value,
        &call.machine.settings,
    )
}

pub(super) unsafe fn cuFuncSetCacheConfig(
    call: &Call<'_>,
    hfunc: Handle,
    config: c_uint,
) -> Outcome {
    current(call, hfunc)?;
    if config > 3 {
        return Err(Failure::invalid(format!(
            "no cache configuration has the number {config}"
        )));
    }
    Ok(())
}

pub(super) unsafe fn cuFuncSetSharedMemConfig(
    call: &Call<'_>,
    hfunc: Handle,
    config: c_uint,
) -> Outcome {
    current(call, hfunc)?;
    if config > 2 {
        return Err(Failure::invalid(format!(
            "no bank configuration has the number {config}"
        )));
    }
    Ok(())
}

pub(super) unsafe fn cuFuncGetModule(call: &Call<'_>, hmod: *mut Handle, hfunc: Handle) -> Outcome {
    let function = current(call, hfunc)?;
    // SAFETY: the C interface's contract.
    unsafe { put(hmod, handle(function.module), "hmod") }
}

pub(super) unsafe fn cuFuncGetName(
    call: &Call<'_>,
    name: *mut *const c_char,
    hfunc: Handle,
) -> Outcome {
    let function = current(call, hfunc)?;
    // The text lives as long as the function, as the C interface says.
    // SAFETY: the C interface's contract.
    unsafe { put(name, function.c_name.as_ptr(), "name") }
}

/// Where a parameter lies in the parameter block.
pub(crate) unsafe fn parameter(
    function: &Function,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Outcome {
    let params = &function.decoded()?.entry.params;
    let &(start, bytes) = params.get(index).ok_or_else(|| {
        Failure::invalid(format!(
            "parameter {index} of {}, which has {}",
            function.name,
            params.len()
        ))
    })?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_if(offset, start as usize);
        put_if(size, bytes as usize);
    }
    Ok(())
}

pub(super) unsafe fn cuFuncGetParamInfo(
    call: &Call<'_>,
    func: Handle,
    param_index: usize,
    param_offset: *mut usize,
    param_size: *mut usize,
) -> Outcome {
    let function = current(call, func)?;
    // SAFETY: the C interface's contract.
    unsafe { parameter(&function, param_index, param_offset, param_size) }
}

pub(super) unsafe fn cuFuncGetParamCount(
    call: &Call<'_>,
    func: Handle,
    param_count: *mut usize,
) -> Outcome {
    let function = current(call, func)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            param_count,
            function.decoded()?.entry.params.len(),
            "paramCount",
        )
    }
}

pub(super) unsafe fn cuFuncIsLoaded(
    call: &Call<'_>,
    state: *mut c_uint,
    function: Handle,
) -> Outcome {
    current(call, function)?;
    // SAFETY: the C interface's contract.
    unsafe { put(state, 1, "state") }
}

pub(super) unsafe fn cuFuncLoad(call: &Call<'_>, function: Handle) -> Outcome {
    current(call, function)?.decoded().map(drop)
}

/// Blocks of a kernel that a multiprocessor holds at once.
pub(crate) fn resident_blocks(
    function: &Function,
    threads: u32,
    dynamic: u64,
    settings: &Settings,
) -> Outcome<u32> {
    let kernel = function.decoded()?;
    let Limits {
        shared_multiprocessor,
        shared_block,
        threads: most_threads,
        blocks,
        ..
    } = limits(settings.capability);
    let shared = u64::from(kernel.shared_bytes) + dynamic;
    let rounded = threads.next_multiple_of(32);
    if threads == 0 || threads > max_threads(function) || shared > u64::from(shared_block) {
        return Ok(0);
    }
    // Registers are given out to warps in multiples of 256.
    let per_warp = (registers(function, kernel) * 32).next_multiple_of(256);
    let by_registers = REGISTERS / (per_warp * (rounded / 32)).max(1);
    let by_shared = u64::from(shared_multiprocessor) / (shared + u64::from(SHARED_RESERVED)).max(1);
    Ok(blocks
        .min(most_threads / rounded)
        .min(by_registers)
        .min(by_shared.min(u64::from(u32::MAX)) as u32))
}

pub(super) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    call: &Call<'_>,
    num_blocks: *mut c_int,
    func: Handle,
    block_size: c_int,
    dynamic_smem_size: usize,
) -> Outcome {
    let function = current(call, func)?;
    let threads = u32::try_from(block_size)
        .ok()
        .filter(|&threads| threads > 0);
    let threads =
        threads.ok_or_else(|| Failure::invalid(format!("a block of {block_size} threads")))?;
    let blocks = resident_blocks(
        &function,
        threads,
        dynamic_smem_size as u64,
        &call.machine.settings,
    )?;
    // SAFETY: the C interface's contract.
    unsafe { put(num_blocks, blocks as c_int, "numBlocks") }
}

pub(super) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    call: &Call<'_>,
    num_blocks: *mut c_int,
    func: Handle,
    block_size: c_int,
    dynamic_smem_size: usize,
    _flags: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        cuOccupancyMaxActiveBlocksPerMultiprocessor(
            call,
            num_blocks,
            func,
            block_size,
            dynamic_smem_size,
        )
    }
}

pub(super) unsafe fn cuOccupancyMaxPotentialBlockSize(
    call: &Call<'_>,
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    func: Handle,
    block_size_to_dynamic_smem_size: CUoccupancyB2DSize,
    dynamic_smem_size: usize,
    block_size_limit: c_int,
) -> Outcome {
    let function = current(call, func)?;
    let settings = &call.machine.settings;
    let most = max_threads(&function);
    let most = if block_size_limit > 0 {
        most.min(block_size_limit as u32)
    } else {
        most
    };
    let mut best = (0, 0, 0);
    let mut threads = most.next_multiple_of(32);
    while threads > 0 {
        let size = threads.min(most);
        let dynamic = match block_size_to_dynamic_smem_size {
            // SAFETY: the caller promises that the function may be called with any block size.
            Some(function) => unsafe { function(size as c_int) },
            None => dynamic_smem_size,
        };
        let blocks = resident_blocks(&function, size, dynamic as u64, settings)?;
        if blocks * size > best.0 {
            best = (blocks * size, size, blocks);
        }
        threads -= 32;
    }
    let grid = best.2 * limits(settings.capability).multiprocessors;
    if best.0 == 0 {
        return Err(Failure::new(
            code::INVALID_VALUE,
            "no block of the kernel fits into a multiprocessor",
        ));
    }
    // SAFETY: the C interface's contract.
    unsafe {
        put(min_grid_size, grid as c_int, "minGridSize")?;
        put(block_size, best.1 as c_int, "blockSize")
    }
}

pub(super) unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    call: &Call<'_>,
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    func: Handle,
    block_size_to_dynamic_smem_size: CUoccupancyB2DSize,
    dynamic_smem_size: usize,
    block_size_limit: c_int,
    _flags: c_uint,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        cuOccupancyMaxPotentialBlockSize(
            call,
            min_grid_size,
            block_size,
            func,
            block_size_to_dynamic_smem_size,
            dynamic_smem_size,
            block_size_limit,
        )
    }
}

pub(super) unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
    call: &Call<'_>,
    dynamic_smem_size: *mut usize,
    func: Handle,
    num_blocks: c_int,
    block_size: c_int,
) -> Outcome {
    let function = current(call, func)?;
    if num_blocks <= 0 || block_size <= 0 {
        return Err(Failure::invalid(format!(
            "{num_blocks} blocks of {block_size} threads"
        )));
    }
    let limits = limits(call.machine.settings.capability);
    let kernel = function.decoded()?;
    let share = (limits.shared_multiprocessor / num_blocks as u32).saturating_sub(SHARED_RESERVED);
    let available = share
        .min(limits.shared_block)
        .saturating_sub(kernel.shared_bytes);
    // SAFETY: the C interface's contract.
    unsafe { put(dynamic_smem_size, available as usize, "dynamicSmemSize") }
}
