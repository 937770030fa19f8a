//! Nodes of graphs: made, asked for what they do, and given other parameters, in a graph or in an executable one.

use std::ffi::c_uint;

use super::abi::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemLocation,
    CUmemPoolProps, Handle, MEMORY_DEVICE, MEMORY_HOST, get, list, put,
};
use super::call::{Call, handle, number};
use super::error::{Failure, Outcome, code};
use super::graph::{NodeKind, add, clone_into, graph, node, node_mut};
use super::launch::{Arguments, kernel_work};
use super::state::State;
use super::transfer::Side;
use super::work::Work;
use crate::device::range_of;

/// Where a new node goes: the graph, and the nodes before it.
type Place = (Handle, *const Handle, usize);

/// Adds a node of what is made once the place is known to be good.
unsafe fn add_node(
    call: &Call<'_>,
    out: *mut Handle,
    place: Place,
    make: impl FnOnce(&mut State) -> Outcome<NodeKind>,
) -> Outcome {
    let mut state = call.state()?;
    if out.is_null() {
        return Err(Failure::invalid("phGraphNode is null"));
    }
    graph(&state, number(place.0))?;
    // SAFETY: the C interface's contract.
    unsafe {
        let before = list(place.1, place.2, "dependencies")?;
        let before: Vec<u64> = before.into_iter().map(number).collect();
        let kind = make(&mut state)?;
        let new = add(&mut state, number(place.0), kind, &before)?;
        put(out, handle(new), "phGraphNode")
    }
}

/// Gives a node of a graph other work of the same kind.
fn set(state: &mut State, target: Handle, work: Work) -> Outcome {
    let node = node_mut(state, number(target))?;
    let kind = NodeKind::Work(work);
    if node.kind.number() != kind.number() {
        return Err(Failure::invalid("the node is of another kind"));
    }
    (node.kind, node.handed_out) = (kind, Vec::new());
    Ok(())
}

/// Of each kind of node: the functions that make one, that change one in a graph and in an executable graph, what
/// they are given (and a context, which two of them are given besides), and the work that it stands for.
macro_rules! nodes {
    ($($add:ident $set:ident $set_in_exec:ident ($given:ident: $ty:ty $(, $context:ident: $context_ty:ty)?)
       |$call:ident, $state:ident| $work:expr;)*) => {$(
        pub(super) unsafe fn $add(
            $call: &Call<'_>,
            ph_graph_node: *mut Handle,
            h_graph: Handle,
            dependencies: *const Handle,
            num_dependencies: usize,
            $given: $ty,
            $($context: $context_ty,)?
        ) -> Outcome {
            let place = (h_graph, dependencies, num_dependencies);
            let make = |$state: &mut State| Ok(NodeKind::Work($work?));
            // SAFETY: the C interface's contract.
            unsafe { add_node($call, ph_graph_node, place, make) }
        }

        pub(super) unsafe fn $set($call: &Call<'_>, h_node: Handle, $given: $ty) -> Outcome {
            let mut state = $call.state()?;
            let $state = &mut state;
            let work = $work?;
            set($state, h_node, work)
        }

        pub(super) unsafe fn $set_in_exec(
            $call: &Call<'_>,
            h_graph_exec: Handle,
            h_node: Handle,
            $given: $ty,
            $($context: $context_ty,)?
        ) -> Outcome {
            let mut state = $call.state()?;
            let $state = &mut state;
            let work = $work?;
            super::graph_exec::set($state, h_graph_exec, h_node, work)
        }
    )*};
}

nodes! {
    cuGraphAddKernelNode_v2 cuGraphKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2
    (node_params: *const CUDA_KERNEL_NODE_PARAMS)
    |call, state| {
        // SAFETY: the C interface's contract.
        unsafe { kernel_node(call, state, get(node_params, "nodeParams")?) }
    };

    cuGraphAddKernelNode cuGraphKernelNodeSetParams cuGraphExecKernelNodeSetParams
    (node_params: *const CUDA_KERNEL_NODE_PARAMS_v1)
    |call, state| {
        // SAFETY: the C interface's contract.
        unsafe { kernel_node(call, state, get(node_params, "nodeParams")?.into()) }
    };

    cuGraphAddMemcpyNode cuGraphMemcpyNodeSetParams cuGraphExecMemcpyNodeSetParams
    (copy_params: *const CUDA_MEMCPY3D, _ctx: Handle)
    |call, state| {
        // SAFETY: the C interface's contract.
        super::copy::node_work(state, &unsafe { get(copy_params, "copyParams")? })
    };

    cuGraphAddMemsetNode cuGraphMemsetNodeSetParams cuGraphExecMemsetNodeSetParams
    (memset_params: *const CUDA_MEMSET_NODE_PARAMS, _ctx: Handle)
    |call, state| {
        // SAFETY: the C interface's contract.
        super::fill::node_work(state, &unsafe { get(memset_params, "memsetParams")? })
    };

    cuGraphAddHostNode cuGraphHostNodeSetParams cuGraphExecHostNodeSetParams
    (node_params: *const CUDA_HOST_NODE_PARAMS)
    |call, _state| {
        // SAFETY: the C interface's contract.
        host_node(unsafe { get(node_params, "nodeParams")? })
    };

    cuGraphAddEventRecordNode cuGraphEventRecordNodeSetEvent cuGraphExecEventRecordNodeSetEvent
    (event: Handle)
    |call, state| record_node(state, number(event));

    cuGraphAddEventWaitNode cuGraphEventWaitNodeSetEvent cuGraphExecEventWaitNodeSetEvent
    (event: Handle)
    |call, state| await_node(state, number(event));
}

/// The work of a kernel node.
unsafe fn kernel_node(
    call: &Call<'_>,
    state: &mut State,
    given: CUDA_KERNEL_NODE_PARAMS,
) -> Outcome<Work> {
    let context = match call.top() {
        _ if !given.ctx.is_null() => number(given.ctx),
        Some(context) => context,
        None => return Err(Failure::new(code::INVALID_CONTEXT, "no context is current")),
    };
    state.context(context)?.healthy()?;
    let arguments = Arguments {
        function: if given.func.is_null() {
            given.kern
        } else {
            given.func
        },
        grid: given.grid,
        block: given.block,
        shared: given.shared_mem_bytes,
        params: given.kernel_params,
        extra: given.extra,
        cooperative: false,
    };
    // SAFETY: the C interface's contract.
    unsafe { kernel_work(call, state, context, &arguments) }
}

fn host_node(given: CUDA_HOST_NODE_PARAMS) -> Outcome<Work> {
    if given.function.is_none() {
        return Err(Failure::invalid("the function is null"));
    }
    Ok(Work::Host {
        function: given.function,
        data: given.user_data as usize,
    })
}

/// The work of a node that records an event; each launch gives the record its number.
pub(crate) fn record_node(state: &mut State, event: u64) -> Outcome<Work> {
    state.event(event)?;
    Ok(Work::Record { event, record: 0 })
}

/// The work of a node that waits for an event.
pub(crate) fn await_node(state: &mut State, event: u64) -> Outcome<Work> {
    state.event(event)?;
    Ok(Work::Await { event })
}

pub(super) unsafe fn cuGraphAddEmptyNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
) -> Outcome {
    let place = (h_graph, dependencies, num_dependencies);
    // SAFETY: the C interface's contract.
    unsafe {
        add_node(call, ph_graph_node, place, |_| {
            Ok(NodeKind::Work(Work::Nothing))
        })
    }
}

pub(super) unsafe fn cuGraphAddChildGraphNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    child_graph: Handle,
) -> Outcome {
    if child_graph == h_graph {
        return Err(Failure::invalid("a graph cannot be its own child"));
    }
    let place = (h_graph, dependencies, num_dependencies);
    let make = |state: &mut State| {
        let child = clone_into(state, number(h_graph), number(child_graph))?;
        Ok(NodeKind::Child(child))
    };
    // SAFETY: the C interface's contract.
    unsafe { add_node(call, ph_graph_node, place, make) }
}

pub(super) unsafe fn cuGraphAddMemAllocNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    let place = (h_graph, dependencies, num_dependencies);
    // SAFETY: the C interface's contract.
    unsafe {
        let mut given = get(node_params.cast_const(), "nodeParams")?;
        let make = |state: &mut State| {
            let properties = given.pool_props;
            if properties.alloc_type != 1 || properties.location.kind != 1 {
                return Err(Failure::invalid(format!(
                    "memory of type {} at a location of kind {}; graphs allocate of devices (1, 1)",
                    properties.alloc_type, properties.location.kind
                )));
            }
            if given.access_desc_count != 0 {
                let message = "access of other devices to a graph's memory is not supported";
                return Err(Failure::new(code::NOT_SUPPORTED, message));
            }
            let device = state.device(properties.location.id)?;
            let context = state.devices[device].primary;
            let memory = state.withhold(device, given.bytesize as u64, context, call.number())?;
            given.dptr = memory.address;
            Ok(NodeKind::Work(Work::Allocate(memory)))
        };
        add_node(call, ph_graph_node, place, make)?;
        put(node_params, given, "nodeParams")
    }
}

pub(super) unsafe fn cuGraphAddMemFreeNode(
    call: &Call<'_>,
    ph_graph_node: *mut Handle,
    h_graph: Handle,
    dependencies: *const Handle,
    num_dependencies: usize,
    dptr: u64,
) -> Outcome {
    let place = (h_graph, dependencies, num_dependencies);
    let make = |state: &mut State| {
        super::graph_memory::check_free(state, dptr)?;
        Ok(NodeKind::Work(Work::Free { address: dptr }))
    };
    // SAFETY: the C interface's contract.
    unsafe { add_node(call, ph_graph_node, place, make) }
}

/// Functions that say what a node does: what they write, and how that is read from the work.
macro_rules! getters {
    ($($get:ident -> $ty:ty, $work:pat => $value:expr;)*) => {$(
        pub(super) unsafe fn $get(call: &Call<'_>, h_node: Handle, out: *mut $ty) -> Outcome {
            let state = call.state()?;
            match &node(&state, number(h_node))?.0.kind {
                // SAFETY: the C interface's contract.
                NodeKind::Work($work) => unsafe { put(out, $value, "the result") },
                _ => Err(Failure::invalid("the node is of another kind")),
            }
        }
    )*};
}

getters! {
    cuGraphMemcpyNodeGetParams -> CUDA_MEMCPY3D, Work::Copy(copy) => {
        let kind = |side: &Side| if range_of(side.address).is_some() { MEMORY_DEVICE } else { MEMORY_HOST };
        let rows = |side: &Side| side.plane.checked_div(side.pitch).unwrap_or(0) as usize;
        CUDA_MEMCPY3D {
            src_x_in_bytes: 0,
            src_y: 0,
            src_z: 0,
            src_lod: 0,
            src_memory_type: kind(&copy.from),
            src_host: copy.from.address as *const _,
            src_device: copy.from.address,
            src_array: handle(0),
            src_context: handle(0),
            src_pitch: copy.from.pitch as usize,
            src_height: rows(&copy.from),
            dst_x_in_bytes: 0,
            dst_y: 0,
            dst_z: 0,
            dst_lod: 0,
            dst_memory_type: kind(&copy.to),
            dst_host: copy.to.address as *mut _,
            dst_device: copy.to.address,
            dst_array: handle(0),
            dst_context: handle(0),
            dst_pitch: copy.to.pitch as usize,
            dst_height: rows(&copy.to),
            width_in_bytes: copy.width as usize,
            height: copy.height as usize,
            depth: copy.depth as usize,
        }
    };
    cuGraphMemsetNodeGetParams -> CUDA_MEMSET_NODE_PARAMS, Work::Fill(fill) => CUDA_MEMSET_NODE_PARAMS {
        dst: fill.to.address,
        pitch: fill.to.pitch as usize,
        value: fill.value,
        element_size: fill.element,
        width: (fill.width / u64::from(fill.element)) as usize,
        height: fill.height as usize,
    };
    cuGraphHostNodeGetParams -> CUDA_HOST_NODE_PARAMS, Work::Host { function, data } => CUDA_HOST_NODE_PARAMS {
        function: *function,
        user_data: *data as *mut _,
    };
    cuGraphEventRecordNodeGetEvent -> Handle, Work::Record { event, .. } => handle(*event);
    cuGraphEventWaitNodeGetEvent -> Handle, Work::Await { event } => handle(*event);
    cuGraphMemFreeNodeGetParams -> u64, Work::Free { address } => *address;
    cuGraphMemAllocNodeGetParams -> CUDA_MEM_ALLOC_NODE_PARAMS, Work::Allocate(memory) => CUDA_MEM_ALLOC_NODE_PARAMS {
        pool_props: CUmemPoolProps {
            alloc_type: 1,
            handle_types: 0,
            location: CUmemLocation { kind: 1, id: memory.device as i32 },
            win32_security_attributes: std::ptr::null_mut(),
            reserved: [0; 64],
        },
        access_descs: std::ptr::null(),
        access_desc_count: 0,
        bytesize: memory.size as usize,
        dptr: memory.address,
    };
}

/// What a kernel node launches, with pointers to the parameters that live as long as they are not changed.
fn kernel_params(state: &mut State, h_node: Handle) -> Outcome<CUDA_KERNEL_NODE_PARAMS> {
    let found = node_mut(state, number(h_node))?;
    let NodeKind::Work(Work::Launch(launch)) = &found.kind else {
        return Err(Failure::invalid("the node launches no kernel"));
    };
    let launch = launch.clone();
    let places = &launch.function.decoded()?.entry.params;
    let base = launch.params.as_ptr() as usize;
    found.handed_out = places
        .iter()
        .map(|(offset, _)| base + *offset as usize)
        .collect();
    let kernel_params = found.handed_out.as_mut_ptr().cast();
    let module = state.modules.get(&launch.function.module);
    let func = module.and_then(|module| module.functions.get(&launch.function.index));
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: handle(func.copied().unwrap_or(0)),
        grid: launch.grid,
        block: launch.block,
        shared_mem_bytes: launch.shared,
        kernel_params,
        extra: std::ptr::null_mut(),
        kern: handle(0),
        ctx: handle(launch.function.context),
    })
}

pub(super) unsafe fn cuGraphKernelNodeGetParams_v2(
    call: &Call<'_>,
    h_node: Handle,
    node_params: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let params = kernel_params(&mut *call.state()?, h_node)?;
    // SAFETY: the C interface's contract.
    unsafe { put(node_params, params, "nodeParams") }
}

pub(super) unsafe fn cuGraphKernelNodeGetParams(
    call: &Call<'_>,
    h_node: Handle,
    node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome {
    let params = kernel_params(&mut *call.state()?, h_node)?;
    // SAFETY: the C interface's contract.
    unsafe { put(node_params, params.into(), "nodeParams") }
}

pub(super) unsafe fn cuDeviceGetGraphMemAttribute(
    call: &Call<'_>,
    device: std::ffi::c_int,
    attr: c_uint,
    value: *mut std::ffi::c_void,
) -> Outcome {
    let state = call.state()?;
    let device = state.device(device)?;
    if attr > 3 {
        return Err(Failure::invalid(format!(
            "no attribute has the number {attr}"
        )));
    }
    if attr % 2 == 1 {
        let message = "the most bytes that graphs have used is not kept";
        return Err(Failure::new(code::NOT_SUPPORTED, message));
    }
    // SAFETY: the C interface's contract: the value is of the attribute's type.
    unsafe { put(value.cast::<u64>(), state.graph_bytes(device), "value") }
}

pub(super) unsafe fn cuDeviceGraphMemTrim(call: &Call<'_>, device: std::ffi::c_int) -> Outcome {
    // What graphs do not use belongs to the device already.
    call.state()?.device(device).map(drop)
}
