//! Launches of kernels: what is checked before one is put into a stream, and how parameters are taken.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use super::abi::{CUlaunchConfig, Handle, get, list};
use super::call::Call;
use super::error::{Failure, Outcome, code};
use super::function::{function, max_dynamic, max_threads, resident_blocks};
use super::module::Function;
use super::state::State;
use super::work::{KernelLaunch, Work};
use crate::device::attributes::{MAX_BLOCK, MAX_GRID, limits};

/// What a launch is given.
pub(crate) struct Arguments {
    /// The kernel.
    pub(crate) function: Handle,
    /// Blocks.
    pub(crate) grid: [c_uint; 3],
    /// Threads of a block.
    pub(crate) block: [c_uint; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: c_uint,
    /// Pointers to parameters.
    pub(crate) params: *mut *mut c_void,
    /// Or a list that ends with 0: 1 and a buffer, 2 and a pointer to its size.
    pub(crate) extra: *mut *mut c_void,
    /// Whether all blocks must run at once.
    pub(crate) cooperative: bool,
}

/// Fails if the dimensions are none that the kernel can be launched with.
fn check_shape(call: &Call<'_>, function: &Function, given: &Arguments) -> Outcome {
    let name = &function.name;
    let [x, y, z] = given.block;
    if given.grid.contains(&0) || given.block.contains(&0) {
        let message = format!(
            "{name}: a grid of {:?} blocks of {:?} threads has none",
            given.grid, given.block
        );
        return Err(Failure::invalid(message));
    }
    let over =
        |given: [u32; 3], most: [u32; 3]| given.iter().zip(most).any(|(given, most)| *given > most);
    if over(given.grid, MAX_GRID) {
        return Err(Failure::invalid(format!(
            "{name}: a grid of {:?} blocks; at most {MAX_GRID:?}",
            given.grid
        )));
    }
    let threads = u64::from(x) * u64::from(y) * u64::from(z);
    if over(given.block, MAX_BLOCK) || threads > u64::from(max_threads(function)) {
        let most = max_threads(function);
        let message = format!(
            "{name}: a block of {:?} threads; at most {MAX_BLOCK:?} and {most} in all",
            given.block
        );
        return Err(Failure::invalid(message));
    }
    let kernel = function.decoded()?;
    if let Some(required) = kernel.entry.required_threads
        && required != given.block
    {
        let message = format!(
            "{name}: a block of {:?} threads; its .reqntid is {required:?}",
            given.block
        );
        return Err(Failure::invalid(message));
    }
    let capability = call.machine.settings.capability;
    let most = max_dynamic(function, kernel.shared_bytes);
    if given.shared > most {
        let limit = limits(capability).shared_block;
        let message = format!(
            "{name}: {} bytes of dynamic shared memory beside {} static ones; at most {most} unless \
             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES is set (to {} at most)",
            given.shared,
            kernel.shared_bytes,
            limit.saturating_sub(kernel.shared_bytes)
        );
        return Err(Failure::invalid(message));
    }
    if given.cooperative {
        let settings = &call.machine.settings;
        let blocks = resident_blocks(function, threads as u32, u64::from(given.shared), settings)?;
        let room = u64::from(blocks) * u64::from(limits(capability).multiprocessors);
        let wanted: u64 = given.grid.iter().map(|&count| u64::from(count)).product();
        if wanted > room {
            let message =
                format!("{name}: {wanted} blocks that must run at once; the device holds {room}");
            return Err(Failure::new(code::COOPERATIVE_LAUNCH_TOO_LARGE, message));
        }
    }
    Ok(())
}

/// The kernel's parameter block.
unsafe fn parameters(function: &Function, given: &Arguments) -> Outcome<Vec<u8>> {
    let kernel = function.decoded()?;
    let name = &function.name;
    let mut block = vec![0u8; kernel.entry.param_bytes as usize];
    if kernel.entry.params.is_empty() {
        return Ok(block);
    }
    if !given.params.is_null() {
        for (index, &(offset, size)) in kernel.entry.params.iter().enumerate() {
            // SAFETY: the C interface's contract: a pointer for each parameter, to as many bytes as it has.
            let source = unsafe { given.params.add(index).read_unaligned() };
            if source.is_null() && size > 0 {
                return Err(Failure::invalid(format!(
                    "{name}: the pointer to parameter {index} is null"
                )));
            }
            let target = &mut block[offset as usize..][..size as usize];
            // SAFETY: as above.
            unsafe {
                target
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(source.cast(), size as usize)
            };
        }
        return Ok(block);
    }
    if given.extra.is_null() {
        let count = kernel.entry.params.len();
        return Err(Failure::invalid(format!(
            "{name} has {count} parameters, but none are given"
        )));
    }
    let (mut buffer, mut bytes) = (std::ptr::null::<u8>(), 0usize);
    for pair in 0..8 {
        // SAFETY: the C interface's contract: the list ends with 0.
        let key = unsafe { given.extra.add(2 * pair).read_unaligned() } as usize;
        if key == 0 {
            break;
        }
        // SAFETY: as above: a key is followed by its value.
        let value = unsafe { given.extra.add(2 * pair + 1).read_unaligned() };
        match key {
            1 => buffer = value.cast_const().cast(),
            2 => {
                // SAFETY: the C interface's contract: a pointer to the size.
                bytes = unsafe {
                    get(
                        value.cast::<usize>().cast_const(),
                        "the size of the parameter buffer",
                    )?
                }
            }
            _ => {
                return Err(Failure::invalid(format!(
                    "{name}: extra has the unknown key {key}"
                )));
            }
        }
    }
    let last = kernel
        .entry
        .params
        .iter()
        .map(|(offset, size)| offset + size)
        .max()
        .unwrap_or(0) as usize;
    if buffer.is_null() || bytes < last {
        let message =
            format!("{name}: a parameter buffer of {bytes} bytes; the parameters take {last}");
        return Err(Failure::invalid(message));
    }
    let length = bytes.min(block.len());
    // SAFETY: the C interface's contract: the buffer has `bytes` bytes.
    unsafe { block.as_mut_ptr().copy_from_nonoverlapping(buffer, length) };
    Ok(block)
}

/// The work of a launch, if it can be launched.
pub(crate) unsafe fn kernel_work(
    call: &Call<'_>,
    state: &mut State,
    context: u64,
    given: &Arguments,
) -> Outcome<Work> {
    let function = function(call, state, context, given.function)?;
    if function.context != context {
        let message = format!(
            "{} belongs to another context than the current one",
            function.name
        );
        return Err(Failure::new(code::INVALID_HANDLE, message));
    }
    check_shape(call, &function, given)?;
    // SAFETY: the caller passes on the C interface's contract.
    let params = unsafe { parameters(&function, given)? };
    let (grid, block, shared, cooperative) =
        (given.grid, given.block, given.shared, given.cooperative);
    Ok(Work::Launch(Arc::new(KernelLaunch {
        function,
        grid,
        block,
        shared,
        params,
        cooperative,
    })))
}

unsafe fn launch(call: &Call<'_>, given: &Arguments, stream: Handle) -> Outcome {
    let (mut state, context) = call.current()?;
    let stream = call.stream(&mut state, context, stream)?;
    if state.streams[&stream].context != context {
        let message = "the stream belongs to another context than the current one";
        return Err(Failure::new(code::INVALID_HANDLE, message));
    }
    // SAFETY: the caller passes on the C interface's contract.
    let work = unsafe { kernel_work(call, &mut state, context, given)? };
    call.machine.submit(state, stream, work, Vec::new())
}

pub(super) unsafe fn cuLaunchKernel(
    call: &Call<'_>,
    f: Handle,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    h_stream: Handle,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome {
    let given = Arguments {
        function: f,
        grid: [grid_dim_x, grid_dim_y, grid_dim_z],
        block: [block_dim_x, block_dim_y, block_dim_z],
        shared: shared_mem_bytes,
        params: kernel_params,
        extra,
        cooperative: false,
    };
    // SAFETY: the C interface's contract.
    unsafe { launch(call, &given, h_stream) }
}

pub(super) unsafe fn cuLaunchCooperativeKernel(
    call: &Call<'_>,
    f: Handle,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    h_stream: Handle,
    kernel_params: *mut *mut c_void,
) -> Outcome {
    let given = Arguments {
        function: f,
        grid: [grid_dim_x, grid_dim_y, grid_dim_z],
        block: [block_dim_x, block_dim_y, block_dim_z],
        shared: shared_mem_bytes,
        params: kernel_params,
        extra: std::ptr::null_mut(),
        cooperative: true,
    };
    // SAFETY: the C interface's contract.
    unsafe { launch(call, &given, h_stream) }
}

pub(super) unsafe fn cuLaunchKernelEx(
    call: &Call<'_>,
    config: *const CUlaunchConfig,
    f: Handle,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the C interface's contract.
    let (config, attributes) = unsafe {
        let config = get(config, "config")?;
        (
            config,
            list(config.attributes, config.attribute_count as usize, "attrs")?,
        )
    };
    let mut cooperative = false;
    for attribute in attributes {
        match attribute.id {
            // Hints, and what makes no difference to results.
            0 | 1 | 3 | 5 | 6 | 8 | 9 | 10 | 14 => {}
            2 => cooperative = attribute.value[0] != 0,
            4 if attribute.value[..3].iter().all(|&count| count <= 1) => {}
            4 => {
                return Err(Failure::new(
                    code::NOT_SUPPORTED,
                    "clusters of blocks are not supported",
                ));
            }
            other => {
                return Err(Failure::new(
                    code::NOT_SUPPORTED,
                    format!("launch attribute {other} is not supported"),
                ));
            }
        }
    }
    let given = Arguments {
        function: f,
        grid: config.grid,
        block: config.block,
        shared: config.shared_mem_bytes,
        params: kernel_params,
        extra,
        cooperative,
    };
    // SAFETY: the C interface's contract.
    unsafe { launch(call, &given, config.stream) }
}
