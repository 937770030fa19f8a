//! Memory that graphs allocate and free.

use virtual_gpu::driver::abi::{CUDA_MEM_ALLOC_NODE_PARAMS, CUmemLocation, CUmemPoolProps};

use crate::api::{self, ok};
use crate::gpu::{Buffer, Handle, arguments, code};
use crate::graphs::{add_kernel, graph, instantiate};
use crate::{deferred, eager, foreign, logged, null, ptx};

pub(crate) fn params(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        pool_props: CUmemPoolProps {
            alloc_type: 1,
            handle_types: 0,
            location: CUmemLocation { kind: 1, id: 0 },
            win32_security_attributes: null(),
            reserved: [0; 64],
        },
        access_descs: std::ptr::null(),
        access_desc_count: 0,
        bytesize: bytes,
        dptr: 0,
    }
}

fn add_allocation(graph: Handle, bytes: usize) -> (Handle, u64) {
    let (mut node, mut params) = (null(), params(bytes));
    ok(api::cuGraphAddMemAllocNode(
        &mut node,
        graph,
        null(),
        0,
        &mut params,
    ));
    assert_ne!(params.dptr, 0);
    (node, params.dptr)
}

fn add_free(graph: Handle, before: Handle, address: u64) -> Handle {
    let mut node = null();
    ok(api::cuGraphAddMemFreeNode(
        &mut node, graph, &before, 1, address,
    ));
    node
}

fn used(gpu: &crate::gpu::Gpu) -> u64 {
    gpu.machine.counters().memory[0].0
}

#[test]
fn memory_lives_between_its_nodes() {
    for seed in 0..4 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let out: Buffer<u32> = gpu.zeros(32);
        ok(api::cuCtxSynchronize());
        let before = used(&gpu);
        let graph = graph();
        let (allocation, address) = add_allocation(graph, 1 << 20);
        let store = add_kernel(
            graph,
            &[allocation],
            gpu.function(&module, "store"),
            32,
            arguments![address, 3u32],
        );
        let copy = gpu.function(&module, "copy_plus_one");
        let copy = add_kernel(graph, &[store], copy, 32, arguments![address, &out]);
        let free = add_free(graph, copy, address);
        let (mut kind, mut freed, mut known) = (0, 0, params(0));
        ok(api::cuGraphNodeGetType(allocation, &mut kind));
        assert_eq!(kind, 10);
        ok(api::cuGraphNodeGetType(free, &mut kind));
        assert_eq!(kind, 11);
        ok(api::cuGraphMemFreeNodeGetParams(free, &mut freed));
        ok(api::cuGraphMemAllocNodeGetParams(allocation, &mut known));
        assert_eq!(
            (freed, known.dptr, known.bytesize),
            (address, address, 1 << 20)
        );
        let exec = instantiate(graph);
        // No memory before a launch, none after it.
        assert_eq!(used(&gpu), before);
        for _ in 0..3 {
            ok(api::cuGraphLaunch(exec, null()));
        }
        ok(api::cuCtxSynchronize());
        assert_eq!(used(&gpu), before);
        assert_eq!(gpu.download(&out)[0], 4);
        assert!(gpu.machine.counters().memory[0].1 >= before + (1 << 20));
    }
}

#[test]
fn what_a_graph_leaves_allocated_is_freed_by_others() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let before = used(&gpu);
    let making = graph();
    let (_, address) = add_allocation(making, 4096);
    let exec = instantiate(making);
    ok(api::cuGraphLaunch(exec, null()));
    gpu.run(&module, "store", 1u32, 32u32, arguments![address, 3u32]);
    assert_eq!(used(&gpu), before + 4096);
    let mut bytes = 0u64;
    ok(api::cuDeviceGetGraphMemAttribute(
        0,
        0,
        (&raw mut bytes).cast(),
    ));
    assert_eq!(bytes, 4096);
    ok(api::cuDeviceGraphMemTrim(0));
    // A second launch would lose it.
    assert_eq!(api::cuGraphLaunch(exec, null()), code::INVALID_VALUE);
    logged(
        &gpu,
        &[
            "4096 bytes",
            "CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH",
        ],
    );
    ok(api::cuMemFreeAsync(address, null()));
    assert_eq!(api::cuMemFreeAsync(address, null()), code::INVALID_VALUE);
    assert_eq!(used(&gpu), before);
    ok(api::cuGraphLaunch(exec, null()));
    ok(api::cuMemFree_v2(address));
    ok(api::cuGraphLaunch(exec, null()));
    // Another graph frees it, once.
    let freeing = graph();
    let mut node = null();
    ok(api::cuGraphAddMemFreeNode(
        &mut node,
        freeing,
        null(),
        0,
        address,
    ));
    let freeing = instantiate(freeing);
    ok(api::cuGraphLaunch(freeing, null()));
    assert_eq!(used(&gpu), before);
    assert_eq!(api::cuGraphLaunch(freeing, null()), code::INVALID_VALUE);
    // A use of it now is found by name.
    let failed = gpu.try_run(&module, "store", 1u32, 32u32, 0, arguments![address, 3u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(&gpu, &["4096 bytes", "which were freed"]);
}

#[test]
fn an_executable_graph_may_free_by_itself() {
    let gpu = eager();
    let making = graph();
    let (_, address) = add_allocation(making, 4096);
    let (mut exec, mut second) = (null(), null());
    ok(api::cuGraphInstantiateWithFlags(&mut exec, making, 1));
    assert_eq!(
        api::cuGraphInstantiateWithFlags(&mut second, making, 1),
        code::NOT_SUPPORTED
    );
    for _ in 0..5 {
        ok(api::cuGraphLaunch(exec, null()));
    }
    assert_eq!(used(&gpu), 4096);
    // The memory outlives the graphs, and is then as any other.
    ok(api::cuGraphDestroy(making));
    ok(api::cuGraphExecDestroy(exec));
    gpu.write_at(address, &[1, 2, 3]);
    ok(api::cuMemFree_v2(address));
    assert_eq!(used(&gpu), 0);
    assert_eq!(gpu.machine.leaks(), Vec::<String>::new());
}

#[test]
fn graphs_with_memory_stay_as_they_are() {
    let gpu = eager();
    let graph = graph();
    let (allocation, address) = add_allocation(graph, 4096);
    let free = add_free(graph, allocation, address);
    let (mut copy, mut node) = (null(), null());
    assert_eq!(api::cuGraphClone(&mut copy, graph), code::NOT_SUPPORTED);
    assert_eq!(api::cuGraphDestroyNode(allocation), code::NOT_SUPPORTED);
    assert_eq!(
        api::cuGraphRemoveDependencies(graph, &allocation, &free, 1),
        code::NOT_SUPPORTED
    );
    let outer = self::graph();
    assert_eq!(
        api::cuGraphAddChildGraphNode(&mut node, outer, null(), 0, graph),
        code::NOT_SUPPORTED
    );
    let direct: Buffer<u32> = gpu.zeros(1);
    for wrong in [direct.address, address + 8, 0, 77] {
        assert_eq!(
            api::cuGraphAddMemFreeNode(&mut node, graph, null(), 0, wrong),
            code::INVALID_VALUE
        );
    }
    let mut nothing = params(0);
    assert_eq!(
        api::cuGraphAddMemAllocNode(&mut node, graph, null(), 0, &mut nothing),
        code::INVALID_VALUE
    );
    let mut huge = params(1 << 40);
    assert_eq!(
        api::cuGraphAddMemAllocNode(&mut node, graph, null(), 0, &mut huge),
        code::OUT_OF_MEMORY
    );
    let mut elsewhere = params(64);
    elsewhere.pool_props.location.id = 9;
    assert_eq!(
        api::cuGraphAddMemAllocNode(&mut node, graph, null(), 0, &mut elsewhere),
        code::INVALID_DEVICE
    );
    assert_eq!(
        api::cuGraphAddMemAllocNode(&mut node, graph, null(), 0, null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuGraphAddMemAllocNode(&mut node, foreign(), null(), 0, &mut params(4)),
        code::INVALID_HANDLE
    );
    // Before a launch the address holds nothing.
    assert_eq!(api::cuMemsetD8_v2(address, 0, 1), code::INVALID_VALUE);
    assert_eq!(api::cuMemFree_v2(address), code::INVALID_VALUE);
    assert_eq!(api::cuMemFreeAsync(address, null()), code::INVALID_VALUE);
}

#[test]
fn too_little_memory_at_the_launch_is_an_error_that_stays() {
    let gpu = eager();
    let graph = graph();
    add_allocation(graph, 60 << 20);
    let exec = instantiate(graph);
    let _kept: Buffer<u8> = gpu.allocate(10 << 20);
    ok(api::cuGraphLaunch(exec, null()));
    assert_eq!(api::cuCtxSynchronize(), code::OUT_OF_MEMORY);
    logged(
        &gpu,
        &[
            "a node of a graph allocates",
            "62914560 bytes are asked for",
        ],
    );
}

#[test]
fn captured_allocations_become_nodes() {
    for seed in 0..4 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let (stream, out): (_, Buffer<u32>) = (gpu.stream(), gpu.zeros(32));
        ok(api::cuCtxSynchronize());
        let before = used(&gpu);
        ok(api::cuStreamBeginCapture_v2(stream.0, 0));
        let (mut address, mut kept) = (0, 0);
        ok(api::cuMemAllocAsync(&mut address, 4096, stream.0));
        ok(api::cuMemAllocAsync(&mut kept, 4096, stream.0));
        gpu.launch(
            &module,
            "store",
            1u32,
            32u32,
            0,
            &stream,
            arguments![address, 3u32],
        )
        .unwrap();
        gpu.launch(
            &module,
            "copy_plus_one",
            1u32,
            32u32,
            0,
            &stream,
            arguments![address, kept],
        )
        .unwrap();
        gpu.launch(
            &module,
            "copy_plus_one",
            1u32,
            32u32,
            0,
            &stream,
            arguments![kept, &out],
        )
        .unwrap();
        ok(api::cuMemFreeAsync(address, stream.0));
        // What no graph has allocated cannot be freed by one.
        assert_eq!(
            api::cuMemFreeAsync(out.address, stream.0),
            code::INVALID_VALUE
        );
        let mut graph = null();
        ok(api::cuStreamEndCapture(stream.0, &mut graph));
        let exec = instantiate(graph);
        assert_eq!(used(&gpu), before);
        for _ in 0..3 {
            ok(api::cuGraphLaunch(exec, stream.0));
            ok(api::cuMemFreeAsync(kept, stream.0));
        }
        ok(api::cuStreamSynchronize(stream.0));
        assert_eq!((gpu.download(&out)[0], used(&gpu)), (5, before));
        // Captured graphs may come and go for ever without running out of addresses.
        ok(api::cuGraphExecDestroy(exec));
        ok(api::cuGraphDestroy(graph));
        for _ in 0..200 {
            ok(api::cuStreamBeginCapture_v2(stream.0, 0));
            ok(api::cuMemAllocAsync(&mut address, 16 << 20, stream.0));
            ok(api::cuMemFreeAsync(address, stream.0));
            ok(api::cuStreamEndCapture(stream.0, &mut graph));
            ok(api::cuGraphDestroy(graph));
        }
    }
}
