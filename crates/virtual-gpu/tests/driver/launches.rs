//! Launches: shapes, parameters, shared memory, cooperative ones, and a machine that accepts them without doing them.

use std::ffi::c_void;

use virtual_gpu::driver::abi::{CUlaunchAttribute, CUlaunchConfig};
use virtual_gpu::machine::Settings;

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Handle, Schedule, arguments, code, pointers, set_device};
use crate::{eager, foreign, logged, null, ptx, settings};

/// Launches with these blocks, threads and dynamic shared memory, without parameters.
fn launch(function: Handle, [gx, gy, gz]: [u32; 3], [bx, by, bz]: [u32; 3], shared: u32) -> u32 {
    api::cuLaunchKernel(
        function,
        gx,
        gy,
        gz,
        bx,
        by,
        bz,
        shared,
        null(),
        null(),
        null(),
    )
}

#[test]
fn shapes_have_limits() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let idle = gpu.function(&module, "idle");
    for (grid, block) in [
        ([1, 1, 1], [1024, 1, 1]),
        ([1, 1, 1], [16, 1, 64]),
        ([2, 3, 4], [8, 8, 8]),
        ([1, 65535, 1], [1, 1, 1]),
    ] {
        ok(launch(idle, grid, block, 0));
    }
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [1, 0, 1]),
        ([1 << 31, 1, 1], [1, 1, 1]),
        ([1, 65536, 1], [1, 1, 1]),
        ([1, 1, 65536], [1, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [1, 1, 65]),
        ([1, 1, 1], [33, 32, 1]),
        ([1, 1, 1], [u32::MAX, u32::MAX, u32::MAX]),
    ] {
        assert_eq!(
            launch(idle, grid, block, 0),
            code::INVALID_VALUE,
            "{grid:?} {block:?}"
        );
    }
    logged(
        &gpu,
        &["idle: a block of [1025, 1, 1] threads", "1024 in all"],
    );
    let (limited, exactly) = (
        gpu.function(&module, "limited"),
        gpu.function(&module, "exactly"),
    );
    ok(launch(limited, [1; 3], [128, 1, 1], 0));
    assert_eq!(launch(limited, [1; 3], [129, 1, 1], 0), code::INVALID_VALUE);
    ok(launch(exactly, [1; 3], [64, 1, 1], 0));
    assert_eq!(launch(exactly, [1; 3], [32, 1, 1], 0), code::INVALID_VALUE);
    assert_eq!(launch(foreign(), [1; 3], [1; 3], 0), code::INVALID_HANDLE);
    assert_eq!(launch(null(), [1; 3], [1; 3], 0), code::INVALID_HANDLE);
    assert_eq!(launch(module.0, [1; 3], [1; 3], 0), code::INVALID_HANDLE);
    let code = api::cuLaunchKernel(idle, 1, 1, 1, 1, 1, 1, 0, foreign(), null(), null());
    assert_eq!(code, code::INVALID_HANDLE);
    // Refused launches leave nothing behind.
    ok(api::cuCtxSynchronize());
    set_device(1);
    assert_eq!(launch(idle, [1; 3], [1; 3], 0), code::INVALID_HANDLE);
    logged(&gpu, &["idle belongs to another context"]);
    // A stream of the other device.
    let elsewhere = gpu.stream().0;
    ok(api::cuCtxSetCurrent(gpu.context));
    let code = api::cuLaunchKernel(idle, 1, 1, 1, 1, 1, 1, 0, elsewhere, null(), null());
    assert_eq!(code, code::INVALID_HANDLE);
    logged(&gpu, &["the stream belongs to another context"]);
}

#[test]
fn shared_memory_beyond_the_default_is_asked_for_first() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let out: Buffer<u32> = gpu.zeros(1);
    let run = |bytes| {
        gpu.try_run(
            &module,
            "with_dynamic_shared",
            1u32,
            1u32,
            bytes,
            arguments![&out],
        )
    };
    run(48 << 10).unwrap();
    assert_eq!(gpu.download(&out), [48 << 10]);
    assert_eq!(run((48 << 10) + 1), Err(code::INVALID_VALUE));
    logged(
        &gpu,
        &[
            "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
            "166912 at most",
        ],
    );
    let function = gpu.function(&module, "with_dynamic_shared");
    ok(api::cuFuncSetAttribute(function, 8, 160 << 10));
    run(160 << 10).unwrap();
    assert_eq!(gpu.download(&out), [160 << 10]);
    assert_eq!(run(163 << 10), Err(code::INVALID_VALUE));
    // Static memory counts too.
    let strided = gpu.function(&module, "strided");
    let given = arguments![&out, 0u32];
    let mut params = pointers(given);
    let mut with = |bytes| {
        api::cuLaunchKernel(
            strided,
            1,
            1,
            1,
            1,
            1,
            1,
            bytes,
            null(),
            params.as_mut_ptr(),
            null(),
        )
    };
    ok(with(44 << 10));
    assert_eq!(with((44 << 10) + 1), code::INVALID_VALUE);
}

#[test]
fn parameters_come_as_pointers_or_as_one_buffer() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (store, out): (Handle, Buffer<u32>) = (gpu.function(&module, "store"), gpu.zeros(4));
    let with = |params: *mut Handle, extra: *mut Handle| {
        api::cuLaunchKernel(store, 1, 1, 1, 4, 1, 1, 0, null(), params, extra)
    };
    let mut buffer = [0u64; 2];
    buffer[0] = out.address;
    buffer[1] = 40;
    let mut size = 12usize;
    let extra = |size: *mut usize| {
        [
            1 as Handle,
            buffer.as_ptr() as Handle,
            2 as Handle,
            size.cast(),
            null(),
        ]
    };
    ok(with(null(), extra(&mut size).as_mut_ptr()));
    ok(api::cuCtxSynchronize());
    assert_eq!(gpu.download(&out), [40, 41, 42, 43]);
    size = 16;
    ok(with(null(), extra(&mut size).as_mut_ptr()));
    // Too short; no size; an unknown key; none at all; a null pointer among them.
    size = 11;
    assert_eq!(
        with(null(), extra(&mut size).as_mut_ptr()),
        code::INVALID_VALUE
    );
    assert_eq!(
        with(null(), extra(null()).as_mut_ptr()),
        code::INVALID_VALUE
    );
    assert_eq!(
        with(
            null(),
            [1 as Handle, buffer.as_ptr() as Handle, null()].as_mut_ptr()
        ),
        code::INVALID_VALUE
    );
    assert_eq!(
        with(null(), [7 as Handle, null(), null()].as_mut_ptr()),
        code::INVALID_VALUE
    );
    assert_eq!(with(null(), null()), code::INVALID_VALUE);
    let mut params: [*mut c_void; 2] = [(&raw mut buffer[0]).cast(), null()];
    assert_eq!(with(params.as_mut_ptr(), null()), code::INVALID_VALUE);
    logged(&gpu, &["store has 2 parameters, but none are given"]);
    logged(&gpu, &["the pointer to parameter 1 is null"]);
    logged(
        &gpu,
        &["a parameter buffer of 11 bytes; the parameters take 12"],
    );
    ok(api::cuCtxSynchronize());
}

#[test]
fn launches_with_attributes() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (store, out): (Handle, Buffer<u32>) = (gpu.function(&module, "store"), gpu.zeros(4));
    let given = arguments![&out, 3u32];
    let mut params = pointers(given);
    let mut attribute = CUlaunchAttribute {
        id: 2,
        pad: [0; 4],
        value: [0; 16],
    };
    attribute.value[0] = 1;
    let config = CUlaunchConfig {
        grid: [1; 3],
        block: [4, 1, 1],
        shared_mem_bytes: 0,
        stream: gpu.stream().0,
        attributes: &attribute,
        attribute_count: 1,
    };
    ok(api::cuLaunchKernelEx(
        &config,
        store,
        params.as_mut_ptr(),
        null(),
    ));
    ok(api::cuCtxSynchronize());
    assert_eq!(gpu.download(&out), [3, 4, 5, 6]);
    let mut ex = |attribute: CUlaunchAttribute, count| {
        let config = CUlaunchConfig {
            attributes: &attribute,
            attribute_count: count,
            ..config
        };
        api::cuLaunchKernelEx(&config, store, params.as_mut_ptr(), null())
    };
    // A cluster of one block is none; one of two is refused, and so is what is unknown.
    let with = |id, first| {
        let mut value = [1; 16];
        value[0] = first;
        CUlaunchAttribute {
            id,
            pad: [0; 4],
            value,
        }
    };
    ok(ex(with(4, 1), 1));
    assert_eq!(ex(with(4, 2), 1), code::NOT_SUPPORTED);
    assert_eq!(ex(with(77, 0), 1), code::NOT_SUPPORTED);
    ok(ex(with(77, 0), 0));
    assert_eq!(
        api::cuLaunchKernelEx(null(), store, null(), null()),
        code::INVALID_VALUE
    );
}

#[test]
fn cooperative_launches_must_fit() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let idle = gpu.function(&module, "idle");
    let cooperative = |blocks, threads| {
        api::cuLaunchCooperativeKernel(idle, blocks, 1, 1, threads, 1, 1, 0, null(), null())
    };
    // 108 multiprocessors hold two blocks of 1024 threads each.
    ok(cooperative(216, 1024));
    assert_eq!(cooperative(217, 1024), code::COOPERATIVE_LAUNCH_TOO_LARGE);
    logged(
        &gpu,
        &["idle: 217 blocks that must run at once; the device holds 216"],
    );
    ok(cooperative(108 * 32, 32));
    assert_eq!(
        cooperative(108 * 32 + 1, 32),
        code::COOPERATIVE_LAUNCH_TOO_LARGE
    );
    ok(launch(idle, [10_000, 1, 1], [32, 1, 1], 0));
    ok(api::cuCtxSynchronize());
}

#[test]
fn a_machine_may_accept_launches_without_doing_them() {
    let nothing = Settings {
        execute: false,
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Parallel, nothing);
    let module = gpu.module(ptx::SMALL);
    let out: Buffer<u32> = gpu.zeros(4);
    gpu.run(&module, "store", 1u32, 4u32, arguments![&out, 1u32]);
    gpu.run(&module, "endless", 1u32, 4u32, &[]);
    // Copies and memory sets are done, launches only counted and checked.
    assert_eq!(gpu.download(&out), [0; 4]);
    let failed = gpu.try_run(&module, "store", 1u32, 5000u32, 0, arguments![&out, 1u32]);
    assert_eq!(failed, Err(code::INVALID_VALUE));
    let counters = gpu.machine.counters();
    assert_eq!(
        (counters.launches, counters.kernels["store"].launches),
        (2, 1)
    );
    assert_eq!(counters.kernels["store"].counts.warp_instructions, [0; 12]);
}
