//! Faults: those that kernels have, and those that a machine shows on purpose; what stays broken, and what lives on.

use std::time::Instant;

use virtual_gpu::driver::Function;
use virtual_gpu::machine::{FailingCalls, InjectedFaults, Settings};

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Schedule, arguments, code, set_device};
use crate::{deferred, eager, logged, null, ptx, settings};

fn with(inject: InjectedFaults) -> Gpu {
    Gpu::with(
        Schedule::Parallel,
        Settings {
            inject,
            ..settings()
        },
    )
}

#[test]
fn an_endless_kernel_is_ended() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    assert_eq!(
        gpu.try_run(&module, "endless", 1u32, 32u32, 0, &[]),
        Err(code::LAUNCH_TIMEOUT)
    );
    logged(
        &gpu,
        &["CUDA_ERROR_LAUNCH_TIMEOUT", "endless", "budget", "bra"],
    );
    // Sticky in its context, and nowhere else.
    let mut place = 0;
    assert_eq!(api::cuMemAlloc_v2(&mut place, 4), code::LAUNCH_TIMEOUT);
    set_device(1);
    ok(api::cuMemAlloc_v2(&mut place, 4));
    ok(api::cuCtxSynchronize());
}

#[test]
fn a_fault_ends_what_is_queued_and_answers_every_call() {
    let gpu = deferred(1);
    let module = gpu.module(ptx::SMALL);
    let buffer: Buffer<u32> = gpu.zeros(32);
    let stream = gpu.stream();
    gpu.launch(
        &module,
        "store",
        1u32,
        64u32,
        0,
        &stream,
        arguments![&buffer, 1u32],
    )
    .unwrap();
    gpu.launch(&module, "endless", 1u32, 64u32, 0, &stream, &[])
        .unwrap();
    let event = gpu.record(&stream);
    assert_eq!(api::cuStreamSynchronize(stream.0), code::ILLEGAL_ADDRESS);
    let (mut word, mut place) = (0u32, 0);
    let pointer = (&raw mut word).cast();
    for (name, code) in [
        ("cuStreamSynchronize", api::cuStreamSynchronize(stream.0)),
        ("cuStreamQuery", api::cuStreamQuery(stream.0)),
        ("cuEventQuery", api::cuEventQuery(event.0)),
        ("cuEventSynchronize", api::cuEventSynchronize(event.0)),
        ("cuEventRecord", api::cuEventRecord(event.0, stream.0)),
        ("cuMemAlloc_v2", api::cuMemAlloc_v2(&mut place, 4)),
        ("cuMemFree_v2", api::cuMemFree_v2(buffer.address)),
        (
            "cuMemcpyDtoH_v2",
            api::cuMemcpyDtoH_v2(pointer, buffer.address, 4),
        ),
        ("cuMemsetD8_v2", api::cuMemsetD8_v2(buffer.address, 0, 4)),
        ("cuCtxSynchronize", api::cuCtxSynchronize()),
        ("cuStreamCreate", api::cuStreamCreate(&mut null(), 0)),
        ("cuModuleUnload", api::cuModuleUnload(module.0)),
        (
            "cuStreamWaitEvent",
            api::cuStreamWaitEvent(stream.0, event.0, 0),
        ),
    ] {
        assert_eq!(code, code::ILLEGAL_ADDRESS, "{name}");
    }
    // What needs no working context still answers; the endless kernel behind the fault was never run.
    let mut context = null();
    ok(api::cuCtxGetCurrent(&mut context));
    let mut count = 0;
    ok(api::cuDeviceGetCount(&mut count));
    assert!(
        !gpu.machine
            .log_lines()
            .iter()
            .any(|line| line.contains("LAUNCH_TIMEOUT"))
    );
    ok(api::cuStreamDestroy_v2(stream.0));
    ok(api::cuEventDestroy_v2(event.0));
}

#[test]
fn a_new_context_works_after_a_fault() {
    let gpu = eager();
    let mut made = null();
    ok(api::cuCtxCreate_v2(&mut made, 0, 0));
    let module = gpu.module(ptx::SMALL);
    let failed = gpu.try_run(&module, "store", 1u32, 1u32, 0, arguments![0u64, 1u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(&gpu, &["store", "0x0"]);
    ok(api::cuCtxDestroy_v2(made));
    // The primary context was not touched.
    let out: Buffer<u32> = gpu.zeros(4);
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "store", 1u32, 4u32, arguments![&out, 1u32]);
    assert_eq!(gpu.download(&out), [1, 2, 3, 4]);
}

#[test]
fn the_nth_allocation_fails() {
    let gpu = with(InjectedFaults {
        failing_allocation: Some(3),
        ..InjectedFaults::default()
    });
    let mut place = 0;
    let codes: Vec<u32> = (0..5).map(|_| api::cuMemAlloc_v2(&mut place, 64)).collect();
    assert_eq!(codes, [0, 0, code::OUT_OF_MEMORY, 0, 0]);
    logged(
        &gpu,
        &[
            "cuMemAlloc_v2",
            "allocation 3 fails because the settings ask for it",
        ],
    );
    ok(api::cuCtxSynchronize());
}

#[test]
fn the_nth_launch_fails_for_good() {
    let gpu = with(InjectedFaults {
        failing_launch: Some(2),
        ..InjectedFaults::default()
    });
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "idle", 1u32, 1u32, &[]);
    assert_eq!(
        gpu.try_run(&module, "idle", 1u32, 1u32, 0, &[]),
        Err(code::LAUNCH_FAILED)
    );
    logged(
        &gpu,
        &[
            "CUDA_ERROR_LAUNCH_FAILED",
            "launch 2 (idle) fails because the settings ask for it",
        ],
    );
    assert_eq!(api::cuCtxSynchronize(), code::LAUNCH_FAILED);
    set_device(1);
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "idle", 1u32, 1u32, &[]);
}

#[test]
fn a_lost_device_is_lost_in_every_context() {
    let gpu = with(InjectedFaults {
        lost_device: Some((0, 2)),
        ..InjectedFaults::default()
    });
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "idle", 1u32, 1u32, &[]);
    let mut other = null();
    ok(api::cuCtxCreate_v2(&mut other, 0, 0));
    ok(api::cuCtxSetCurrent(gpu.context));
    assert_eq!(
        gpu.try_run(&module, "idle", 1u32, 1u32, 0, &[]),
        Err(code::DEVICE_UNAVAILABLE)
    );
    logged(&gpu, &["device 0 is lost with launch 2"]);
    ok(api::cuCtxSetCurrent(other));
    let mut place = 0;
    assert_eq!(api::cuMemAlloc_v2(&mut place, 4), code::DEVICE_UNAVAILABLE);
    assert_eq!(
        api::cuCtxCreate_v2(&mut other, 0, 0),
        code::DEVICE_UNAVAILABLE
    );
    assert_eq!(
        api::cuDevicePrimaryCtxRetain(&mut other, 0),
        code::DEVICE_UNAVAILABLE
    );
    set_device(1);
    ok(api::cuMemAlloc_v2(&mut place, 4));
}

#[test]
fn calls_fail_on_demand_and_only_as_many() {
    let gpu = eager();
    let mut place = 0;
    let mut allocate = || api::cuMemAlloc_v2(&mut place, 64);
    gpu.machine.inject(FailingCalls::out_of_memory(1, 2));
    let codes: Vec<u32> = (0..5).map(|_| allocate()).collect();
    assert_eq!(codes, [0, code::OUT_OF_MEMORY, code::OUT_OF_MEMORY, 0, 0]);
    assert_eq!(gpu.machine.faults_shown(), 2);
    logged(
        &gpu,
        &["cuMemAlloc_v2", "the call fails because it was asked for"],
    );
    // Another function is not counted; until they are cleared, all calls fail.
    gpu.machine.inject(FailingCalls {
        functions: vec![Function::cuCtxSynchronize],
        after: 0,
        count: u64::MAX,
        code: code::LAUNCH_FAILED,
    });
    assert_eq!(allocate(), 0);
    for _ in 0..3 {
        assert_eq!(api::cuCtxSynchronize(), code::LAUNCH_FAILED);
    }
    gpu.machine.clear_faults();
    assert_eq!(gpu.machine.faults_shown(), 0);
    ok(api::cuCtxSynchronize());
}

#[test]
fn a_device_is_lost_on_demand_and_found_again() {
    for is_deferred in [false, true] {
        let gpu = if is_deferred { deferred(1) } else { eager() };
        let module = gpu.module(ptx::SMALL);
        let buffer: Buffer<u32> = gpu.upload(&[1, 2, 3]);
        let ecc = 214;
        gpu.machine.lose_device(0, ecc).unwrap();
        let mut place = 0;
        for _ in 0..2 {
            assert_eq!(api::cuMemAlloc_v2(&mut place, 4), ecc);
            assert_eq!(api::cuMemFree_v2(buffer.address), ecc);
            assert_eq!(api::cuCtxSynchronize(), ecc);
        }
        logged(&gpu, &["CUDA_ERROR_ECC_UNCORRECTABLE", "device 0 is lost"]);
        let mut count = 0;
        ok(api::cuDeviceGetCount(&mut count));
        set_device(1);
        ok(api::cuMemAlloc_v2(&mut place, 4));
        gpu.machine.clear_faults();
        set_device(0);
        assert_eq!(gpu.download(&buffer), [1, 2, 3]);
        gpu.run(&module, "idle", 1u32, 1u32, &[]);
        assert!(gpu.machine.lose_device(9, ecc).is_err());
        assert!(gpu.machine.lose_device(0, 0).is_err());
    }
}

#[test]
fn copies_are_slow_on_demand() {
    let gpu = with(InjectedFaults {
        slow_copy_microseconds: 3000,
        ..InjectedFaults::default()
    });
    let start = Instant::now();
    let buffer: Buffer<u32> = gpu.upload(&[1, 2, 3]);
    assert_eq!(gpu.download(&buffer), [1, 2, 3]);
    assert!(start.elapsed().as_micros() >= 6000);
}

#[test]
fn too_many_short_blocks_are_ended() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    assert_eq!(
        gpu.try_run(&module, "idle", 0x7fff_ffffu32, 1u32, 0, &[]),
        Err(code::LAUNCH_TIMEOUT)
    );
    logged(
        &gpu,
        &["CUDA_ERROR_LAUNCH_TIMEOUT", "idle", "too many blocks"],
    );
}
