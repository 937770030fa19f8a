//! Graphs made by hand: nodes and edges, parameters, copies of graphs, executable graphs and their updates.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use virtual_gpu::driver::abi::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMSET_NODE_PARAMS, CUgraphExecUpdateResultInfo,
};

use virtual_gpu::machine::{Checks, Settings};

use crate::api::{self, ok};
use crate::copies::planes;
use crate::gpu::{Argument, Buffer, Gpu, Handle, Schedule, arguments, code, pointers};
use crate::{deferred, eager, foreign, null, ptx, settings};

pub(crate) fn graph() -> Handle {
    let mut graph = null();
    ok(api::cuGraphCreate(&mut graph, 0));
    graph
}

pub(crate) fn instantiate(graph: Handle) -> Handle {
    let mut exec = null();
    ok(api::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

fn kernel(func: Handle, threads: u32, params: &mut Vec<Handle>) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func,
        grid: [1; 3],
        block: [threads, 1, 1],
        shared_mem_bytes: 0,
        kernel_params: params.as_mut_ptr(),
        extra: null(),
        kern: null(),
        ctx: null(),
    }
}

/// Adds the launch of a kernel behind other nodes.
pub(crate) fn add_kernel(
    graph: Handle,
    before: &[Handle],
    func: Handle,
    threads: u32,
    given: &[Argument],
) -> Handle {
    let mut params = pointers(given);
    let node_params = kernel(func, threads, &mut params);
    let mut node = null();
    ok(api::cuGraphAddKernelNode_v2(
        &mut node,
        graph,
        before.as_ptr(),
        before.len(),
        &node_params,
    ));
    node
}

fn memset(dst: u64, value: u32, width: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch: 0,
        value,
        element_size: 4,
        width,
        height: 1,
    }
}

fn add_memset(
    gpu: &Gpu,
    graph: Handle,
    before: &[Handle],
    buffer: &Buffer<u32>,
    value: u32,
) -> Handle {
    let params = memset(buffer.address, value, buffer.length);
    let mut node = null();
    let code = api::cuGraphAddMemsetNode(
        &mut node,
        graph,
        before.as_ptr(),
        before.len(),
        &params,
        gpu.context,
    );
    ok(code);
    node
}

pub(crate) fn launch(exec: Handle, stream: Handle) {
    ok(api::cuGraphLaunch(exec, stream));
}

static HOST_CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(data: *mut c_void) {
    HOST_CALLS.fetch_add(data as u32, Ordering::Relaxed);
}

#[test]
fn nodes_of_every_kind_run_behind_each_other() {
    for seed in 0..6 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let (one, other): (Buffer<u32>, Buffer<u32>) = (gpu.zeros(32), gpu.zeros(32));
        ok(api::cuCtxSynchronize());
        let graph = graph();
        let first = add_memset(&gpu, graph, &[], &one, 5);
        let second = add_kernel(
            graph,
            &[first],
            gpu.function(&module, "copy_plus_one"),
            32,
            arguments![&one, &one],
        );
        let mut third = null();
        let copy = planes(one.address, other.address, [128, 1, 1]);
        ok(api::cuGraphAddMemcpyNode(
            &mut third,
            graph,
            &second,
            1,
            &copy,
            gpu.context,
        ));
        let (mut host, mut empty, mut child) = (null(), null(), null());
        let call = CUDA_HOST_NODE_PARAMS {
            function: Some(count),
            user_data: 3 as *mut c_void,
        };
        ok(api::cuGraphAddHostNode(&mut host, graph, &third, 1, &call));
        ok(api::cuGraphAddEmptyNode(
            &mut empty,
            graph,
            [second, host].as_ptr(),
            2,
        ));
        let inner = self::graph();
        add_kernel(
            inner,
            &[],
            gpu.function(&module, "copy_plus_one"),
            32,
            arguments![&other, &other],
        );
        ok(api::cuGraphAddChildGraphNode(
            &mut child, graph, &empty, 1, inner,
        ));
        ok(api::cuGraphDestroy(inner));
        let last = add_kernel(
            graph,
            &[child],
            gpu.function(&module, "copy_plus_one"),
            32,
            arguments![&other, &other],
        );
        let kinds = [
            (first, 2),
            (second, 0),
            (third, 1),
            (host, 3),
            (empty, 5),
            (child, 4),
            (last, 0),
        ];
        for (node, kind) in kinds {
            let mut seen = 99;
            ok(api::cuGraphNodeGetType(node, &mut seen));
            assert_eq!(seen, kind);
        }
        let exec = instantiate(graph);
        ok(api::cuGraphDestroy(graph));
        let before = HOST_CALLS.load(Ordering::Relaxed);
        for _ in 0..3 {
            launch(exec, gpu.stream().0);
        }
        ok(api::cuCtxSynchronize());
        assert_eq!(gpu.download(&other), [8; 32], "seed {seed}");
        assert!(HOST_CALLS.load(Ordering::Relaxed) - before >= 9);
        ok(api::cuGraphUpload(exec, null()));
        ok(api::cuGraphExecDestroy(exec));
        assert_eq!(api::cuGraphLaunch(exec, null()), code::INVALID_HANDLE);
        assert_eq!(gpu.machine.counters().kernels["copy_plus_one"].launches, 9);
    }
}

#[test]
fn what_edges_do_not_order_runs_in_any_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..16 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let cell: Buffer<u32> = gpu.zeros(1);
        let (graph, step) = (graph(), gpu.function(&module, "step"));
        add_kernel(graph, &[], step, 1, arguments![&cell, 1u32]);
        add_kernel(graph, &[], step, 1, arguments![&cell, 2u32]);
        launch(instantiate(graph), null());
        ok(api::cuCtxSynchronize());
        seen.insert(gpu.download(&cell)[0]);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn graphs_can_be_asked_and_changed() {
    let gpu = eager();
    let buffer: Buffer<u32> = gpu.zeros(1);
    let graph = graph();
    let (a, b, c) = (
        add_memset(&gpu, graph, &[], &buffer, 1),
        add_memset(&gpu, graph, &[], &buffer, 2),
        add_memset(&gpu, graph, &[], &buffer, 3),
    );
    ok(api::cuGraphAddDependencies(
        graph,
        [a, b].as_ptr(),
        [b, c].as_ptr(),
        2,
    ));
    let list = |function: &dyn Fn(*mut Handle, *mut usize) -> u32| {
        let mut count = 0;
        ok(function(null(), &mut count));
        let mut nodes = vec![null(); count];
        ok(function(nodes.as_mut_ptr(), &mut count));
        nodes
    };
    assert_eq!(
        list(&|nodes, count| api::cuGraphGetNodes(graph, nodes, count)),
        [a, b, c]
    );
    assert_eq!(
        list(&|nodes, count| api::cuGraphGetRootNodes(graph, nodes, count)),
        [a]
    );
    assert_eq!(
        list(&|nodes, count| api::cuGraphNodeGetDependencies(c, nodes, count)),
        [b]
    );
    assert_eq!(
        list(&|nodes, count| api::cuGraphNodeGetDependentNodes(a, nodes, count)),
        [b]
    );
    let (mut from, mut to, mut count) = ([null(); 4], [null(); 4], 4);
    ok(api::cuGraphGetEdges(
        graph,
        from.as_mut_ptr(),
        to.as_mut_ptr(),
        &mut count,
    ));
    assert_eq!((count, &from[..2], &to[..2]), (2, &[a, b][..], &[b, c][..]));
    assert_eq!(
        api::cuGraphGetEdges(graph, from.as_mut_ptr(), null(), &mut count),
        code::INVALID_VALUE
    );
    // There already; not there; of another graph; a circle.
    assert_eq!(
        api::cuGraphAddDependencies(graph, &a, &b, 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphRemoveDependencies(graph, &a, &c, 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddDependencies(graph, &a, &foreign(), 1),
        code::INVALID_HANDLE
    );
    ok(api::cuGraphAddDependencies(graph, &c, &a, 1));
    let mut exec = null();
    assert_eq!(
        api::cuGraphInstantiateWithFlags(&mut exec, graph, 0),
        code::INVALID_VALUE
    );
    ok(api::cuGraphRemoveDependencies(graph, &c, &a, 1));
    // A copy has its own nodes.
    let (mut copy, mut twin) = (null(), null());
    ok(api::cuGraphClone(&mut copy, graph));
    ok(api::cuGraphNodeFindInClone(&mut twin, b, copy));
    assert_ne!(twin, b);
    assert_eq!(
        api::cuGraphNodeFindInClone(&mut twin, b, graph),
        code::INVALID_VALUE
    );
    ok(api::cuGraphDestroyNode(b));
    assert_eq!(api::cuGraphDestroyNode(b), code::INVALID_HANDLE);
    assert_eq!(
        list(&|nodes, count| api::cuGraphGetNodes(graph, nodes, count)),
        [a, c]
    );
    assert_eq!(
        list(&|nodes, count| api::cuGraphGetNodes(copy, nodes, count)).len(),
        3
    );
    ok(api::cuGraphDestroy(graph));
    for function in [
        api::cuGraphDestroy,
        api::cuGraphExecDestroy,
        api::cuGraphDestroyNode,
    ] {
        assert_eq!(function(graph), code::INVALID_HANDLE);
        assert_eq!(function(null()), code::INVALID_HANDLE);
    }
    let mut kind = 0;
    assert_eq!(api::cuGraphNodeGetType(a, &mut kind), code::INVALID_HANDLE);
    assert_eq!(api::cuGraphCreate(&mut copy, 1), code::INVALID_VALUE);
    assert_eq!(api::cuGraphCreate(null(), 0), code::INVALID_VALUE);
    assert_eq!(api::cuGraphClone(&mut copy, graph), code::INVALID_HANDLE);
    assert_eq!(
        api::cuGraphInstantiateWithFlags(&mut exec, graph, 0),
        code::INVALID_HANDLE
    );
}

#[test]
fn bad_nodes_are_refused() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (graph, buffer): (Handle, Buffer<u32>) = (graph(), gpu.zeros(4));
    let (mut node, store) = (null(), gpu.function(&module, "store"));
    let given = arguments![&buffer, 1u32];
    let mut params = pointers(given);
    let good = kernel(store, 4, &mut params);
    let mut add = |params: &CUDA_KERNEL_NODE_PARAMS| {
        api::cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, params)
    };
    assert_eq!(
        add(&CUDA_KERNEL_NODE_PARAMS {
            func: foreign(),
            ..good
        }),
        code::INVALID_HANDLE
    );
    assert_eq!(
        add(&CUDA_KERNEL_NODE_PARAMS {
            block: [2000, 1, 1],
            ..good
        }),
        code::INVALID_VALUE
    );
    assert_eq!(
        add(&CUDA_KERNEL_NODE_PARAMS {
            kernel_params: null(),
            ..good
        }),
        code::INVALID_VALUE
    );
    assert_eq!(
        add(&CUDA_KERNEL_NODE_PARAMS {
            ctx: foreign(),
            ..good
        }),
        code::INVALID_CONTEXT
    );
    assert_eq!(
        api::cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddKernelNode_v2(null(), graph, null(), 0, &good),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddKernelNode_v2(&mut node, foreign(), null(), 0, &good),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuGraphAddKernelNode_v2(&mut node, graph, null(), 1, &good),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddKernelNode_v2(&mut node, graph, &foreign(), 1, &good),
        code::INVALID_HANDLE
    );
    let wrong = CUDA_MEMSET_NODE_PARAMS {
        element_size: 3,
        ..memset(buffer.address, 1, 4)
    };
    assert_eq!(
        api::cuGraphAddMemsetNode(&mut node, graph, null(), 0, &wrong, null()),
        code::INVALID_VALUE
    );
    let wrong = memset(buffer.address, 1, 5);
    assert_eq!(
        api::cuGraphAddMemsetNode(&mut node, graph, null(), 0, &wrong, null()),
        code::INVALID_VALUE
    );
    ok(api::cuGraphAddMemcpyNode(
        &mut node,
        graph,
        null(),
        0,
        &planes(buffer.address, buffer.address, [4, 1, 1]),
        null(),
    ));
    // A node that copies to nowhere.
    let wrong = planes(buffer.address, 1 << 48 | 0x99, [4, 1, 1]);
    let code = api::cuGraphAddMemcpyNode(&mut node, graph, null(), 0, &wrong, null());
    assert_eq!(code, code::INVALID_VALUE);
    let none = CUDA_HOST_NODE_PARAMS {
        function: None,
        user_data: null(),
    };
    assert_eq!(
        api::cuGraphAddHostNode(&mut node, graph, null(), 0, &none),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddChildGraphNode(&mut node, graph, null(), 0, graph),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddChildGraphNode(&mut node, graph, null(), 0, foreign()),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuGraphAddEventRecordNode(&mut node, graph, null(), 0, foreign()),
        code::INVALID_HANDLE
    );
}

#[test]
fn parameters_are_read_and_changed_in_graphs_and_executable_graphs() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (one, other): (Buffer<u32>, Buffer<u32>) = (gpu.zeros(32), gpu.zeros(32));
    let store = gpu.function(&module, "store");
    let graph = graph();
    let set = add_memset(&gpu, graph, &[], &one, 5);
    let run = add_kernel(graph, &[set], store, 32, arguments![&one, 100u32]);
    let (mut copy, mut host) = (null(), null());
    let there = planes(one.address, other.address, [128, 1, 1]);
    ok(api::cuGraphAddMemcpyNode(
        &mut copy,
        graph,
        &run,
        1,
        &there,
        null(),
    ));
    let call = CUDA_HOST_NODE_PARAMS {
        function: Some(count),
        user_data: null(),
    };
    ok(api::cuGraphAddHostNode(&mut host, graph, &copy, 1, &call));

    let mut params = pointers(&[]);
    let mut seen = kernel(null(), 0, &mut params);
    ok(api::cuGraphKernelNodeGetParams_v2(run, &mut seen));
    assert_eq!(
        (seen.func, seen.block, seen.ctx),
        (store, [32, 1, 1], gpu.context)
    );
    // The pointers lead to copies of the parameters, and can be handed on as they are.
    // SAFETY: the kernel has two parameters of 8 and 4 bytes.
    let values = unsafe {
        let pointers = std::slice::from_raw_parts(seen.kernel_params, 2);
        (
            pointers[0].cast::<u64>().read(),
            pointers[1].cast::<u32>().read(),
        )
    };
    assert_eq!(values, (one.address, 100));
    ok(api::cuGraphKernelNodeSetParams_v2(
        run,
        &CUDA_KERNEL_NODE_PARAMS {
            grid: [1, 1, 1],
            ..seen
        },
    ));
    let mut old: CUDA_KERNEL_NODE_PARAMS_v1 = seen.into();
    ok(api::cuGraphKernelNodeGetParams(run, &mut old));
    ok(api::cuGraphKernelNodeSetParams(run, &old));
    let mut fill = memset(0, 0, 0);
    ok(api::cuGraphMemsetNodeGetParams(set, &mut fill));
    assert_eq!((fill.dst, fill.value, fill.width), (one.address, 5, 32));
    let mut moved = planes(0, 0, [0; 3]);
    ok(api::cuGraphMemcpyNodeGetParams(copy, &mut moved));
    assert_eq!(
        (moved.src_device, moved.dst_device, moved.width_in_bytes),
        (one.address, other.address, 128)
    );
    ok(api::cuGraphMemcpyNodeSetParams(copy, &moved));
    let mut known = CUDA_HOST_NODE_PARAMS {
        function: None,
        user_data: null(),
    };
    ok(api::cuGraphHostNodeGetParams(host, &mut known));
    assert!(known.function.is_some());
    ok(api::cuGraphHostNodeSetParams(host, &known));
    ok(api::cuGraphMemsetNodeSetParams(
        set,
        &memset(one.address, 7, 32),
    ));
    for node in [run, copy, host] {
        assert_eq!(
            api::cuGraphMemsetNodeGetParams(node, &mut fill),
            code::INVALID_VALUE
        );
        assert_eq!(
            api::cuGraphMemsetNodeSetParams(node, &memset(one.address, 7, 32)),
            code::INVALID_VALUE
        );
    }
    assert_eq!(
        api::cuGraphMemsetNodeGetParams(foreign(), &mut fill),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuGraphMemsetNodeGetParams(set, null()),
        code::INVALID_VALUE
    );

    // In the executable graph, without a change of the graph.
    let exec = instantiate(graph);
    let given = arguments![&one, 200u32];
    let mut params = pointers(given);
    ok(api::cuGraphExecKernelNodeSetParams_v2(
        exec,
        run,
        &kernel(store, 16, &mut params),
    ));
    launch(exec, null());
    ok(api::cuCtxSynchronize());
    let seen = gpu.download(&other);
    assert_eq!((seen[0], seen[15], seen[16]), (200, 215, 7));
    ok(api::cuGraphExecMemsetNodeSetParams(
        exec,
        set,
        &memset(one.address, 9, 32),
        null(),
    ));
    ok(api::cuGraphExecHostNodeSetParams(exec, host, &call));
    let nowhere = planes(one.address + 64, other.address, [64, 1, 1]);
    ok(api::cuGraphExecMemcpyNodeSetParams(
        exec,
        copy,
        &nowhere,
        null(),
    ));
    launch(exec, null());
    ok(api::cuCtxSynchronize());
    assert_eq!(gpu.download(&other)[0], 9);
    let code = api::cuGraphExecMemsetNodeSetParams(exec, run, &memset(one.address, 9, 32), null());
    assert_eq!(code, code::INVALID_VALUE);
    let code =
        api::cuGraphExecMemsetNodeSetParams(exec, foreign(), &memset(one.address, 9, 32), null());
    assert_eq!(code, code::INVALID_VALUE);
    let code =
        api::cuGraphExecMemsetNodeSetParams(foreign(), set, &memset(one.address, 9, 32), null());
    assert_eq!(code, code::INVALID_HANDLE);
    let child = self::graph();
    let (mut holder, mut inside) = (null(), null());
    ok(api::cuGraphAddChildGraphNode(
        &mut holder,
        graph,
        null(),
        0,
        child,
    ));
    ok(api::cuGraphChildGraphNodeGetGraph(holder, &mut inside));
    assert_eq!(api::cuGraphDestroy(inside), code::INVALID_VALUE);
    assert_eq!(
        api::cuGraphChildGraphNodeGetGraph(run, &mut inside),
        code::INVALID_VALUE
    );
}

#[test]
fn an_update_takes_parameters_but_no_other_shape() {
    let gpu = eager();
    let buffer: Buffer<u32> = gpu.zeros(4);
    let with = |values: &[u32], chained: bool| {
        let graph = graph();
        let mut before: Vec<Handle> = Vec::new();
        for &value in values {
            let node = add_memset(&gpu, graph, &before, &buffer, value);
            if chained {
                before = vec![node];
            }
        }
        graph
    };
    let exec = instantiate(with(&[1, 2], true));
    let mut info = CUgraphExecUpdateResultInfo {
        result: 9,
        error_node: null(),
        error_from_node: null(),
    };
    ok(api::cuGraphExecUpdate_v2(
        exec,
        with(&[3, 4], true),
        &mut info,
    ));
    assert_eq!(info.result, 0);
    launch(exec, null());
    assert_eq!(gpu.download(&buffer), [4; 4]);
    // One node more; other edges.
    for changed in [with(&[3, 4, 5], true), with(&[3, 4], false)] {
        let code = api::cuGraphExecUpdate_v2(exec, changed, &mut info);
        assert_eq!((code, info.result), (code::GRAPH_EXEC_UPDATE_FAILURE, 2));
    }
    // The same edges between other kinds.
    let other = graph();
    let (mut one, mut two) = (null(), null());
    ok(api::cuGraphAddEmptyNode(&mut one, other, null(), 0));
    ok(api::cuGraphAddEmptyNode(&mut two, other, &one, 1));
    let (mut node, mut result) = (null(), 9);
    let code = api::cuGraphExecUpdate(exec, other, &mut node, &mut result);
    assert_eq!((code, result), (code::GRAPH_EXEC_UPDATE_FAILURE, 3));
    assert_eq!(
        api::cuGraphExecUpdate_v2(foreign(), other, &mut info),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuGraphExecUpdate_v2(exec, foreign(), &mut info),
        code::INVALID_HANDLE
    );
    // What was refused has changed nothing.
    launch(exec, null());
    assert_eq!(gpu.download(&buffer), [4; 4]);
}

#[test]
fn instantiation_has_flags_and_results() {
    let _gpu = eager();
    let graph = graph();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 8,
        upload_stream: null(),
        error_node: null(),
        result: 9,
    };
    let mut exec = null();
    ok(api::cuGraphInstantiateWithParams(
        &mut exec,
        graph,
        &mut params,
    ));
    assert_eq!(params.result, 0);
    let mut flags = 0;
    ok(api::cuGraphExecGetFlags(exec, &mut flags));
    assert_eq!(flags, 8);
    launch(exec, null());
    assert_eq!(
        api::cuGraphInstantiateWithFlags(&mut exec, graph, 0x100),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphInstantiateWithFlags(&mut exec, graph, 4),
        code::NOT_SUPPORTED
    );
    assert_eq!(
        api::cuGraphInstantiateWithFlags(null(), graph, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphInstantiateWithParams(&mut exec, graph, null()),
        code::INVALID_VALUE
    );
    ok(api::cuGraphInstantiate_v2(
        &mut exec,
        graph,
        null(),
        null(),
        0,
    ));
    assert_eq!(api::cuGraphLaunch(exec, foreign()), code::INVALID_HANDLE);
    assert_eq!(api::cuGraphLaunch(null(), null()), code::INVALID_HANDLE);
    assert_eq!(api::cuGraphUpload(foreign(), null()), code::INVALID_HANDLE);
}

#[test]
fn graphs_record_and_wait_for_events() {
    for seed in 0..12 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let (cell, step): (Buffer<u32>, Handle) = (gpu.zeros(1), gpu.function(&module, "step"));
        ok(api::cuCtxSynchronize());
        let (mut early, mut late) = (null(), null());
        ok(api::cuEventCreate(&mut early, 0));
        ok(api::cuEventCreate(&mut late, 0));
        let graph = graph();
        let (mut waits, mut records, mut seen) = (null(), null(), null());
        ok(api::cuGraphAddEventWaitNode(
            &mut waits,
            graph,
            null(),
            0,
            early,
        ));
        let node = add_kernel(graph, &[waits], step, 1, arguments![&cell, 2u32]);
        ok(api::cuGraphAddEventRecordNode(
            &mut records,
            graph,
            &node,
            1,
            early,
        ));
        ok(api::cuGraphEventRecordNodeGetEvent(records, &mut seen));
        assert_eq!(seen, early);
        ok(api::cuGraphEventRecordNodeSetEvent(records, late));
        ok(api::cuGraphEventWaitNodeGetEvent(waits, &mut seen));
        assert_eq!(seen, early);
        ok(api::cuGraphEventWaitNodeSetEvent(waits, early));
        let exec = instantiate(graph);
        ok(api::cuGraphExecEventRecordNodeSetEvent(exec, records, late));
        ok(api::cuGraphExecEventWaitNodeSetEvent(exec, waits, early));
        // Three streams, ordered only by the graph's event nodes.
        let streams = [gpu.stream(), gpu.stream(), gpu.stream()];
        gpu.launch(
            &module,
            "step",
            1u32,
            1u32,
            0,
            &streams[0],
            arguments![&cell, 1u32],
        )
        .unwrap();
        ok(api::cuEventRecord(early, streams[0].0));
        launch(exec, streams[1].0);
        assert_eq!(api::cuEventQuery(late), code::NOT_READY);
        ok(api::cuStreamWaitEvent(streams[2].0, late, 0));
        gpu.launch(
            &module,
            "step",
            1u32,
            1u32,
            0,
            &streams[2],
            arguments![&cell, 3u32],
        )
        .unwrap();
        ok(api::cuCtxSynchronize());
        ok(api::cuEventQuery(late));
        assert_eq!(gpu.download(&cell), [(31 + 2) * 31 + 3], "seed {seed}");
    }
}

#[test]
fn launches_of_one_executable_graph_follow_each_other() {
    for seed in 0..12 {
        let checks = Checks {
            stream_races: true,
            ..Checks::default()
        };
        let gpu = Gpu::with(
            Schedule::Deferred(seed),
            Settings {
                checks,
                ..settings()
            },
        );
        let module = gpu.module(ptx::SMALL);
        let cell: Buffer<u32> = gpu.zeros(1);
        ok(api::cuCtxSynchronize());
        let graph = graph();
        let step = add_kernel(
            graph,
            &[],
            gpu.function(&module, "step"),
            1,
            arguments![&cell, 1u32],
        );
        let exec = instantiate(graph);
        let streams = [gpu.stream(), gpu.stream()];
        launch(exec, streams[0].0);
        // The parameters that a launch was made with stay its own.
        let given = arguments![&cell, 2u32];
        let mut params = pointers(given);
        let changed = kernel(gpu.function(&module, "step"), 1, &mut params);
        ok(api::cuGraphExecKernelNodeSetParams_v2(exec, step, &changed));
        launch(exec, streams[1].0);
        // The executable graph may go before its launches have had their turn.
        ok(api::cuGraphExecDestroy(exec));
        ok(api::cuCtxSynchronize());
        assert_eq!(gpu.download(&cell), [31 + 2], "seed {seed}");
    }
}
