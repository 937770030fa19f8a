//! Memory pools: allocation and freeing in the order of streams, what pools keep, and who may use their memory.

use virtual_gpu::driver::abi::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps};
use virtual_gpu::machine::{InjectedFaults, Settings};

use crate::api::{self, ok};
use crate::gpu::{Gpu, Handle, Schedule, arguments, code, set_device};
use crate::{deferred, eager, foreign, logged, null, ptx, settings};

const MIB: u64 = 1 << 20;

fn properties(device: i32) -> CUmemPoolProps {
    CUmemPoolProps {
        alloc_type: 1,
        handle_types: 0,
        location: CUmemLocation {
            kind: 1,
            id: device,
        },
        win32_security_attributes: null(),
        reserved: [0; 64],
    }
}

fn create(device: i32) -> Handle {
    let mut pool = null();
    ok(api::cuMemPoolCreate(&mut pool, &properties(device)));
    pool
}

fn allocate(pool: Handle, bytes: u64, stream: Handle) -> u64 {
    let mut address = 0;
    ok(api::cuMemAllocFromPoolAsync(
        &mut address,
        bytes as usize,
        pool,
        stream,
    ));
    address
}

/// Reserved, the most reserved, used, the most used.
fn levels(pool: Handle) -> [u64; 4] {
    [5, 6, 7, 8].map(|attribute| {
        let mut value = 0u64;
        ok(api::cuMemPoolGetAttribute(
            pool,
            attribute,
            (&raw mut value).cast(),
        ));
        value
    })
}

fn set(pool: Handle, attribute: u32, mut value: u64) -> u32 {
    api::cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())
}

fn free_bytes() -> u64 {
    let (mut free, mut total) = (0, 0);
    ok(api::cuMemGetInfo_v2(&mut free, &mut total));
    free as u64
}

#[test]
fn a_pool_keeps_what_its_threshold_says() {
    let gpu = eager();
    let (pool, stream) = (create(0), gpu.stream().0);
    let (one, other) = (allocate(pool, 2 * MIB, stream), allocate(pool, MIB, stream));
    assert_eq!(levels(pool), [3 * MIB, 3 * MIB, 3 * MIB, 3 * MIB]);
    ok(api::cuMemFreeAsync(one, stream));
    // Until something is waited for, the pool keeps all.
    assert_eq!(levels(pool), [3 * MIB, 3 * MIB, MIB, 3 * MIB]);
    assert_eq!(free_bytes(), 61 * MIB);
    let again = allocate(pool, 2 * MIB, stream);
    assert_eq!(levels(pool), [3 * MIB, 3 * MIB, 3 * MIB, 3 * MIB]);
    ok(api::cuMemFreeAsync(again, stream));
    ok(api::cuStreamSynchronize(stream));
    assert_eq!(levels(pool), [MIB, 3 * MIB, MIB, 3 * MIB]);
    assert_eq!(free_bytes(), 63 * MIB);
    // With a threshold it keeps that much.
    ok(set(pool, 4, 2 * MIB + MIB / 2));
    let again = allocate(pool, 4 * MIB, stream);
    ok(api::cuMemFreeAsync(again, stream));
    ok(api::cuStreamSynchronize(stream));
    assert_eq!(levels(pool), [2 * MIB + MIB / 2, 5 * MIB, MIB, 5 * MIB]);
    ok(set(pool, 6, 0));
    ok(set(pool, 8, 0));
    assert_eq!(
        levels(pool),
        [2 * MIB + MIB / 2, 2 * MIB + MIB / 2, MIB, MIB]
    );
    ok(api::cuMemPoolTrimTo(pool, (2 * MIB) as usize));
    assert_eq!(levels(pool)[0], 2 * MIB);
    ok(api::cuMemPoolTrimTo(pool, 0));
    assert_eq!(levels(pool)[0], MIB);
    ok(api::cuMemFreeAsync(other, stream));
    ok(api::cuCtxSynchronize());
    // What the pool keeps is given up before another allocation fails.
    ok(set(pool, 4, u64::MAX));
    ok(api::cuMemFreeAsync(
        allocate(pool, 60 * MIB, stream),
        stream,
    ));
    ok(api::cuCtxSynchronize());
    assert_eq!((levels(pool)[0], free_bytes()), (60 * MIB, 4 * MIB));
    let mut address = 0;
    ok(api::cuMemAlloc_v2(&mut address, (50 * MIB) as usize));
    assert_eq!(levels(pool)[0], 0);
    ok(api::cuMemFree_v2(address));
    ok(api::cuMemPoolDestroy(pool));
    assert_eq!(free_bytes(), 64 * MIB);
}

#[test]
fn bad_pools_and_attributes_are_refused() {
    let _gpu = eager();
    let mut pool = null();
    assert_eq!(api::cuMemPoolCreate(&mut pool, null()), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemPoolCreate(null(), &properties(0)),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemPoolCreate(&mut pool, &properties(4)),
        code::INVALID_DEVICE
    );
    let wrong = CUmemPoolProps {
        alloc_type: 0,
        ..properties(0)
    };
    assert_eq!(api::cuMemPoolCreate(&mut pool, &wrong), code::INVALID_VALUE);
    let pool = create(0);
    let mut value = 0u64;
    let out = (&raw mut value).cast();
    assert_eq!(
        api::cuMemPoolGetAttribute(pool, 0, out),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemPoolGetAttribute(pool, 99, out),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemPoolGetAttribute(pool, 4, null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemPoolGetAttribute(foreign(), 4, out),
        code::INVALID_HANDLE
    );
    assert_eq!(set(pool, 5, 0), code::INVALID_VALUE);
    assert_eq!(set(pool, 6, 1), code::INVALID_VALUE);
    assert_eq!(set(foreign(), 4, 0), code::INVALID_HANDLE);
    assert_eq!(api::cuMemPoolTrimTo(foreign(), 0), code::INVALID_HANDLE);
    let mut address = 0;
    assert_eq!(
        api::cuMemAllocFromPoolAsync(&mut address, 4, foreign(), null()),
        code::INVALID_HANDLE
    );
    assert_eq!(api::cuMemAllocAsync(null(), 4, null()), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemAllocAsync(&mut address, 4, foreign()),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuMemAllocAsync(&mut address, 65 << 20, null()),
        code::OUT_OF_MEMORY
    );
    // An allocation of no bytes is no error here, other than with cuMemAlloc.
    ok(api::cuMemAllocAsync(&mut address, 0, null()));
    ok(api::cuMemFreeAsync(address, null()));
    let mut default = null();
    ok(api::cuDeviceGetDefaultMemPool(&mut default, 0));
    assert_eq!(api::cuMemPoolDestroy(default), code::INVALID_VALUE);
    assert_eq!(api::cuDeviceSetMemPool(1, pool), code::INVALID_VALUE);
    ok(api::cuDeviceSetMemPool(0, pool));
    let mut current = null();
    ok(api::cuDeviceGetMemPool(&mut current, 0));
    assert_eq!(current, pool);
    ok(api::cuMemPoolDestroy(pool));
    ok(api::cuDeviceGetMemPool(&mut current, 0));
    assert_eq!(current, default);
    assert_eq!(api::cuMemPoolDestroy(pool), code::INVALID_HANDLE);
}

#[test]
fn a_destroyed_pool_lives_on_with_its_allocations() {
    let gpu = eager();
    let (pool, stream) = (create(0), gpu.stream().0);
    let address = allocate(pool, MIB, stream);
    ok(api::cuMemPoolDestroy(pool));
    ok(api::cuMemsetD8_v2(address, 1, MIB as usize));
    assert_eq!(free_bytes(), 63 * MIB);
    let mut more = 0;
    assert_eq!(
        api::cuMemAllocFromPoolAsync(&mut more, 4, pool, stream),
        code::INVALID_HANDLE
    );
    ok(api::cuMemFreeAsync(address, stream));
    ok(api::cuCtxSynchronize());
    assert_eq!(free_bytes(), 64 * MIB);
}

#[test]
fn a_free_is_done_in_its_turn_and_only_once() {
    for seed in 0..8 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let stream = gpu.stream();
        let (address, kept) = (
            allocate(default_pool(0), 4096, stream.0),
            gpu.zeros::<u32>(32),
        );
        ok(api::cuCtxSynchronize());
        gpu.launch(
            &module,
            "store",
            1u32,
            32u32,
            0,
            &stream,
            arguments![address, 7u32],
        )
        .unwrap();
        gpu.launch(
            &module,
            "copy_plus_one",
            1u32,
            32u32,
            0,
            &stream,
            arguments![address, &kept],
        )
        .unwrap();
        ok(api::cuMemFreeAsync(address, stream.0));
        // The address is as good as gone for the host.
        assert_eq!(api::cuMemFreeAsync(address, stream.0), code::INVALID_VALUE);
        assert_eq!(api::cuMemFree_v2(address), code::INVALID_VALUE);
        ok(api::cuStreamSynchronize(stream.0));
        assert_eq!(gpu.download(&kept)[0], 8);
        assert_eq!(api::cuMemFreeAsync(address, stream.0), code::INVALID_VALUE);
        assert_eq!(
            api::cuMemFreeAsync(kept.address + 4, stream.0),
            code::INVALID_VALUE
        );
        assert_eq!(api::cuMemFreeAsync(5, stream.0), code::INVALID_VALUE);
        ok(api::cuMemFreeAsync(0, stream.0));
        logged(&gpu, &["cuMemFreeAsync", "freed already"]);
    }
}

fn default_pool(device: i32) -> Handle {
    let mut pool = null();
    ok(api::cuDeviceGetDefaultMemPool(&mut pool, device));
    pool
}

#[test]
fn a_use_that_does_not_wait_for_the_free_is_found_by_some_order() {
    let mut found = 0;
    for seed in 0..16 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let (first, second) = (gpu.stream(), gpu.stream());
        let address = allocate(default_pool(0), 4096, first.0);
        gpu.launch(
            &module,
            "store",
            1u32,
            32u32,
            0,
            &first,
            arguments![address, 1u32],
        )
        .unwrap();
        // The bug: the free in the other stream waits for nothing.
        ok(api::cuMemFreeAsync(address, second.0));
        if gpu.synchronize() == Err(code::ILLEGAL_ADDRESS) {
            logged(&gpu, &["store", "4096 bytes", "freed"]);
            found += 1;
        }
    }
    assert!((4..=12).contains(&found), "{found} of 16");
}

#[test]
fn too_little_memory_waits_for_frees_that_are_queued() {
    let gpu = deferred(1);
    let stream = gpu.stream();
    let pool = default_pool(0);
    for _ in 0..10 {
        let address = allocate(pool, 40 * MIB, stream.0);
        ok(api::cuMemFreeAsync(address, stream.0));
    }
    ok(api::cuCtxSynchronize());
    let faulty = Settings {
        inject: InjectedFaults {
            failing_allocation: Some(2),
            ..InjectedFaults::default()
        },
        ..settings()
    };
    drop(gpu);
    let gpu = Gpu::with(Schedule::Parallel, faulty);
    let mut address = 0;
    ok(api::cuMemAllocAsync(&mut address, 4, null()));
    assert_eq!(
        api::cuMemAllocAsync(&mut address, 4, null()),
        code::OUT_OF_MEMORY
    );
    ok(api::cuMemAllocAsync(&mut address, 4, null()));
    logged(
        &gpu,
        &["allocation 2 fails because the settings ask for it"],
    );
}

#[test]
fn other_devices_use_a_pool_only_if_it_says_so() {
    let gpu = eager();
    let rights = |device, flags| CUmemAccessDesc {
        location: CUmemLocation {
            kind: 1,
            id: device,
        },
        flags,
    };
    let access = |pool, device| {
        let mut flags = 9;
        let mut place = CUmemLocation {
            kind: 1,
            id: device,
        };
        ok(api::cuMemPoolGetAccess(&mut flags, pool, &mut place));
        flags
    };
    let pool = create(0);
    let address = allocate(pool, 4096, null());
    ok(api::cuMemsetD32_v2(address, 4, 1024));
    assert_eq!((access(pool, 0), access(pool, 1)), (3, 0));
    assert_eq!(
        api::cuMemPoolSetAccess(pool, &rights(0, 0), 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemPoolSetAccess(pool, &rights(1, 2), 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemPoolSetAccess(pool, &rights(9, 3), 1),
        code::INVALID_DEVICE
    );
    assert_eq!(
        api::cuMemPoolSetAccess(foreign(), &rights(1, 3), 1),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuMemPoolSetAccess(pool, null(), 1),
        code::INVALID_VALUE
    );
    ok(api::cuMemPoolSetAccess(pool, &rights(1, 1), 1));
    assert_eq!(access(pool, 1), 1);
    let home = gpu.context;
    set_device(1);
    let module = gpu.module(ptx::SMALL);
    let mine = gpu.zeros::<u32>(32);
    gpu.run(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        arguments![address, &mine],
    );
    assert_eq!(gpu.download(&mine)[5], 5);
    ok(api::cuMemPoolSetAccess(pool, &rights(1, 3), 1));
    gpu.run(&module, "store", 1u32, 32u32, arguments![address, 1u32]);
    // Taken away again; peer access of the contexts says nothing about pools.
    ok(api::cuMemPoolSetAccess(pool, &rights(1, 0), 1));
    ok(api::cuCtxEnablePeerAccess(home, 0));
    let failed = gpu.try_run(&module, "store", 1u32, 32u32, 0, arguments![address, 1u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(&gpu, &["the address is device 0's", "cuMemPoolSetAccess"]);
}

#[test]
fn a_broken_link_gives_no_access_to_a_pool() {
    let broken = Settings {
        inject: InjectedFaults {
            broken_peer_link: Some((0, 1)),
            ..InjectedFaults::default()
        },
        ..settings()
    };
    let _gpu = Gpu::with(Schedule::Parallel, broken);
    let rights = CUmemAccessDesc {
        location: CUmemLocation { kind: 1, id: 1 },
        flags: 3,
    };
    assert_eq!(
        api::cuMemPoolSetAccess(create(0), &rights, 1),
        code::PEER_ACCESS_UNSUPPORTED
    );
}
