//! What only a virtual GPU finds: races between streams, leaks, reads of what was never written; each named, and the
//! same program without the mistake passes.

use virtual_gpu::machine::{Checks, Settings, Streams};

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Schedule, Stream, arguments, code};
use crate::graphs::{add_kernel, graph, instantiate};
use crate::{logged, null, ptx, settings};

fn with(checks: Checks, streams: Streams, seed: u64) -> Gpu {
    let settings = Settings {
        checks,
        streams,
        seed: Some(seed),
        devices: 1,
        ..settings()
    };
    Gpu::with(Schedule::Parallel, settings)
}

fn racing(streams: Streams, seed: u64) -> Gpu {
    with(
        Checks {
            stream_races: true,
            ..Checks::default()
        },
        streams,
        seed,
    )
}

/// One step of a program with two streams.
type Step = fn(&Gpu, &Stream, &Buffer<u32>, &Buffer<u32>);

fn launch_store(gpu: &Gpu, stream: &Stream, data: &Buffer<u32>, _: &Buffer<u32>) {
    let module = gpu.module(ptx::SMALL);
    gpu.launch(
        &module,
        "store",
        1u32,
        32u32,
        0,
        stream,
        arguments![data, 1u32],
    )
    .unwrap();
}

fn launch_read(gpu: &Gpu, stream: &Stream, data: &Buffer<u32>, out: &Buffer<u32>) {
    let module = gpu.module(ptx::SMALL);
    gpu.launch(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        0,
        stream,
        arguments![data, out],
    )
    .unwrap();
}

fn copy_to(_: &Gpu, stream: &Stream, data: &Buffer<u32>, out: &Buffer<u32>) {
    ok(api::cuMemcpyDtoDAsync_v2(
        data.address,
        out.address,
        128,
        stream.0,
    ));
}

fn copy_from(_: &Gpu, stream: &Stream, data: &Buffer<u32>, out: &Buffer<u32>) {
    ok(api::cuMemcpyDtoDAsync_v2(
        out.address,
        data.address,
        128,
        stream.0,
    ));
}

fn set(_: &Gpu, stream: &Stream, data: &Buffer<u32>, _: &Buffer<u32>) {
    ok(api::cuMemsetD32Async(data.address, 1, 32, stream.0));
}

#[test]
fn a_missing_event_wait_is_found_between_all_kinds_of_work() {
    let (store, read) = (
        (launch_store as Step, "the launch of store"),
        (launch_read as Step, "the launch of copy_plus_one"),
    );
    let (into, from, fill) = (
        (copy_to as Step, "a copy of 128 bytes"),
        (copy_from as Step, "a copy"),
        (set as Step, "a memset"),
    );
    for streams in [Streams::Eager, Streams::Deferred] {
        for ((first, one), (second, other)) in [
            (store, read),
            (read, store),
            (into, read),
            (store, from),
            (fill, read),
            (fill, from),
            (read, fill),
            (store, store),
        ] {
            // With the wait there is nothing to find; without it there is, whatever order they run in.
            for waits in [true, false] {
                let gpu = racing(streams, 5);
                let (a, b) = (gpu.stream(), gpu.stream());
                let (data, out): (Buffer<u32>, Buffer<u32>) = (gpu.zeros(32), gpu.zeros(32));
                ok(api::cuCtxSynchronize());
                first(&gpu, &a, &data, &out);
                if waits {
                    gpu.wait(&b, &gpu.record(&a));
                }
                second(&gpu, &b, &data, &out);
                let result = gpu.synchronize();
                if waits {
                    assert_eq!(
                        result,
                        Ok(()),
                        "{one}, {other}: {:?}",
                        gpu.machine.log_lines()
                    );
                } else {
                    assert_eq!(result, Err(code::LAUNCH_FAILED), "{one}, {other}");
                    logged(&gpu, &["race", one, other, "128 bytes"]);
                }
            }
        }
    }
}

#[test]
fn two_reads_and_other_bytes_are_no_race() {
    let gpu = racing(Streams::Deferred, 1);
    let (a, b) = (gpu.stream(), gpu.stream());
    let data: Buffer<u32> = gpu.zeros(64);
    let outs: Vec<Buffer<u32>> = (0..2).map(|_| gpu.zeros(32)).collect();
    ok(api::cuCtxSynchronize());
    for (stream, out) in [&a, &b].into_iter().zip(&outs) {
        launch_read(&gpu, stream, &data, out);
    }
    ok(api::cuMemsetD32Async(data.address + 128, 1, 32, a.0));
    // The host has waited: what comes now is behind all of it.
    ok(api::cuStreamSynchronize(a.0));
    ok(api::cuStreamSynchronize(b.0));
    launch_store(&gpu, &b, &data, &outs[0]);
    ok(api::cuCtxSynchronize());
}

#[test]
fn nodes_of_a_graph_that_no_edge_orders_race() {
    for edge in [true, false] {
        let gpu = racing(Streams::Eager, 1);
        let module = gpu.module(ptx::SMALL);
        let (data, out): (Buffer<u32>, Buffer<u32>) = (gpu.zeros(32), gpu.zeros(32));
        ok(api::cuCtxSynchronize());
        let graph = graph();
        let first = add_kernel(
            graph,
            &[],
            gpu.function(&module, "store"),
            32,
            arguments![&data, 1u32],
        );
        let before: &[_] = if edge { &[first] } else { &[] };
        add_kernel(
            graph,
            before,
            gpu.function(&module, "copy_plus_one"),
            32,
            arguments![&data, &out],
        );
        let exec = instantiate(graph);
        ok(api::cuGraphLaunch(exec, null()));
        if edge {
            // Launches of one stream follow each other, and so does what comes behind them.
            ok(api::cuGraphLaunch(exec, null()));
            launch_store(&gpu, &Stream(null()), &data, &out);
            ok(api::cuCtxSynchronize());
        } else {
            assert_eq!(api::cuCtxSynchronize(), code::LAUNCH_FAILED);
            logged(
                &gpu,
                &["race", "store", "copy_plus_one", "the launch of a graph"],
            );
        }
    }
}

#[test]
fn what_was_never_freed_is_named() {
    let gpu = with(
        Checks {
            leaks: true,
            ..Checks::default()
        },
        Streams::Eager,
        0,
    );
    let (mut direct, mut pooled, mut host, mut freed) = (0, 0, null(), 0);
    ok(api::cuMemAlloc_v2(&mut direct, 1000));
    ok(api::cuMemAllocAsync(&mut pooled, 2000, null()));
    ok(api::cuMemAllocHost_v2(&mut host, 300));
    ok(api::cuMemAlloc_v2(&mut freed, 4000));
    ok(api::cuMemFree_v2(freed));
    // A module's variables are the module's.
    let _module = gpu.module(ptx::SMALL);
    gpu.machine.finish();
    let calls = [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuMemAlloc_v2",
    ];
    logged(
        &gpu,
        &[
            "leak: 1000 bytes",
            &format!("{direct:#x} on device 0"),
            "by cuMemAlloc",
            &format!("driver call {}", calls.len()),
        ],
    );
    logged(
        &gpu,
        &["leak: 2000 bytes", "by cuMemAllocAsync (driver call 5)"],
    );
    logged(&gpu, &["leak: 300 bytes of Pinned host memory"]);
    assert_eq!(gpu.machine.leaks().len(), 3);
    ok(api::cuMemFree_v2(direct));
    ok(api::cuMemFreeAsync(pooled, null()));
    ok(api::cuMemFreeHost(host));
    assert_eq!(gpu.machine.leaks(), Vec::<String>::new());
}

#[test]
fn a_read_of_what_was_never_written_is_found() {
    let gpu = with(
        Checks {
            uninitialized: true,
            ..Checks::default()
        },
        Streams::Eager,
        0,
    );
    let module = gpu.module(ptx::SMALL);
    let (data, copy, out): (Buffer<u32>, Buffer<u32>, Buffer<u32>) =
        (gpu.allocate(32), gpu.allocate(32), gpu.allocate(32));
    gpu.write(&data, &[7; 20]);
    // A copy carries along what is known: it is no read by itself.
    ok(api::cuMemcpyDtoD_v2(copy.address, data.address, 128));
    gpu.run(
        &module,
        "copy_plus_one",
        1u32,
        20u32,
        arguments![&copy, &out],
    );
    let failed = gpu.try_run(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        0,
        arguments![&copy, &out],
    );
    assert_eq!(failed, Err(code::LAUNCH_FAILED));
    logged(
        &gpu,
        &[
            "copy_plus_one",
            "thread (20, 0, 0)",
            "never written",
            "ld.global.u32",
        ],
    );
}
