//! Virtual memory management: addresses, physical memory, mappings, rights; in right and wrong orders.

use virtual_gpu::driver::abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use crate::api::{self, ok};
use crate::gpu::{arguments, code, set_device};
use crate::{eager, logged, null, ptx};

const UNIT: usize = 2 << 20;

pub(crate) fn properties(device: i32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        kind: 1,
        requested_handle_types: 0,
        location: CUmemLocation {
            kind: 1,
            id: device,
        },
        win32_handle_meta_data: null(),
        compression: 0,
        gpu_direct_rdma_capable: 0,
        usage: 0,
        reserved: [0; 4],
    }
}

pub(crate) fn rights(device: i32, flags: u32) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: CUmemLocation {
            kind: 1,
            id: device,
        },
        flags,
    }
}

fn reserve(size: usize) -> u64 {
    let mut address = 0;
    ok(api::cuMemAddressReserve(&mut address, size, 0, 0, 0));
    address
}

fn create(device: i32, size: usize) -> u64 {
    let mut handle = 0;
    ok(api::cuMemCreate(&mut handle, size, &properties(device), 0));
    handle
}

fn access(address: u64, device: i32) -> u64 {
    let mut flags = 9;
    let place = CUmemLocation {
        kind: 1,
        id: device,
    };
    ok(api::cuMemGetAccess(&mut flags, &place, address));
    flags
}

#[test]
fn memory_is_mapped_used_and_unmapped() {
    let gpu = eager();
    let mut granularity = 0;
    ok(api::cuMemGetAllocationGranularity(
        &mut granularity,
        &properties(0),
        0,
    ));
    assert_eq!(granularity, UNIT);
    let address = reserve(4 * UNIT);
    assert_eq!(address as usize % UNIT, 0);
    let (one, other) = (create(0, UNIT), create(0, UNIT));
    assert_eq!(gpu.machine.counters().memory[0].0 as usize, 2 * UNIT);
    ok(api::cuMemMap(address, UNIT, 0, one, 0));
    ok(api::cuMemMap(address + UNIT as u64, UNIT, 0, other, 0));
    let module = gpu.module(ptx::SMALL);
    assert_eq!(access(address, 0), 0);
    ok(api::cuMemSetAccess(address, 2 * UNIT, &rights(0, 3), 1));
    assert_eq!(access(address + 5, 0), 3);
    // The two mappings are one range to a kernel.
    let edge = address + UNIT as u64 - 64;
    gpu.run(&module, "store", 1u32, 32u32, arguments![edge, 100u32]);
    let mut seen = [0u32; 32];
    ok(api::cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), edge, 128));
    assert_eq!((seen[0], seen[31]), (100, 131));
    // The handles may go before the mappings do.
    ok(api::cuMemRelease(one));
    assert_eq!(api::cuMemRelease(one), code::INVALID_VALUE);
    ok(api::cuMemsetD8_v2(address, 1, UNIT));
    assert_eq!(
        api::cuMemAddressFree(address, 4 * UNIT),
        code::INVALID_VALUE
    );
    ok(api::cuMemUnmap(address, UNIT));
    assert_eq!(gpu.machine.counters().memory[0].0 as usize, UNIT + 512 * 3);
    assert_eq!(api::cuMemsetD8_v2(address, 1, 4), code::INVALID_VALUE);
    ok(api::cuMemUnmap(address + UNIT as u64, UNIT));
    ok(api::cuMemRelease(other));
    ok(api::cuMemAddressFree(address, 4 * UNIT));
    assert_eq!(
        api::cuMemAddressFree(address, 4 * UNIT),
        code::INVALID_VALUE
    );
}

#[test]
fn physical_memory_may_be_mapped_twice_and_moved() {
    let gpu = eager();
    let (memory, here, there) = (create(0, UNIT), reserve(UNIT), reserve(UNIT));
    for address in [here, there] {
        ok(api::cuMemMap(address, UNIT, 0, memory, 0));
        ok(api::cuMemSetAccess(address, UNIT, &rights(0, 3), 1));
    }
    gpu.write_at(here, &[1, 2, 3, 4]);
    let mut seen = [0u8; 4];
    ok(api::cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), there, 4));
    assert_eq!(seen, [1, 2, 3, 4]);
    let mut again = 0;
    ok(api::cuMemRetainAllocationHandle(
        &mut again,
        there as *mut _,
    ));
    assert_eq!(again, memory);
    ok(api::cuMemRelease(memory));
    ok(api::cuMemRelease(again));
    assert_eq!(api::cuMemRelease(memory), code::INVALID_VALUE);
    let mut properties = properties(7);
    ok(api::cuMemGetAllocationPropertiesFromHandle(
        &mut properties,
        memory,
    ));
    assert_eq!(properties.location.id, 0);
    ok(api::cuMemUnmap(here, UNIT));
    ok(api::cuMemUnmap(there, UNIT));
    assert_eq!(gpu.machine.counters().memory[0].0, 0);
    let code = api::cuMemGetAllocationPropertiesFromHandle(&mut properties, memory);
    assert_eq!(code, code::INVALID_VALUE);
}

#[test]
fn wrong_orders_and_sizes_are_refused() {
    let gpu = eager();
    let mut address = 0;
    assert_eq!(
        api::cuMemAddressReserve(&mut address, 0, 0, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemAddressReserve(&mut address, UNIT + 1, 0, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemAddressReserve(&mut address, UNIT, 3, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemAddressReserve(&mut address, UNIT, 0, 0, 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemAddressReserve(null(), UNIT, 0, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemAddressReserve(&mut address, 1 << 60, 0, 0, 0),
        code::OUT_OF_MEMORY
    );
    let mut handle = 0;
    assert_eq!(
        api::cuMemCreate(&mut handle, 5, &properties(0), 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemCreate(&mut handle, UNIT, &properties(9), 0),
        code::INVALID_DEVICE
    );
    assert_eq!(
        api::cuMemCreate(&mut handle, UNIT, null(), 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemCreate(null(), UNIT, &properties(0), 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemCreate(&mut handle, 1 << 30, &properties(0), 0),
        code::OUT_OF_MEMORY
    );
    let wrong = CUmemAllocationProp {
        kind: 0,
        ..properties(0)
    };
    assert_eq!(
        api::cuMemCreate(&mut handle, UNIT, &wrong, 0),
        code::INVALID_VALUE
    );

    let (start, memory) = (reserve(2 * UNIT), create(0, UNIT));
    assert_eq!(
        api::cuMemMap(start + 4 * UNIT as u64, UNIT, 0, memory, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemMap(start, 2 * UNIT, 0, memory, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemMap(start, UNIT, UNIT, memory, 0),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemMap(start, UNIT, 0, 77, 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemMap(start + 8, UNIT, 0, memory, 0),
        code::INVALID_VALUE
    );
    // Access before there is a mapping.
    assert_eq!(
        api::cuMemSetAccess(start, UNIT, &rights(0, 3), 1),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemUnmap(start, UNIT), code::INVALID_VALUE);
    ok(api::cuMemMap(start, UNIT, 0, memory, 0));
    assert_eq!(
        api::cuMemMap(start, UNIT, 0, memory, 0),
        code::ALREADY_MAPPED
    );
    assert_eq!(
        api::cuMemSetAccess(start, UNIT, &rights(0, 2), 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemSetAccess(start, UNIT, &rights(5, 3), 1),
        code::INVALID_DEVICE
    );
    assert_eq!(
        api::cuMemSetAccess(start, 2 * UNIT, &rights(0, 3), 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemSetAccess(start, UNIT, null(), 1),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemUnmap(start, 2 * UNIT), code::INVALID_VALUE);
    // A mapping that no device has a right to is as good as none.
    let module = gpu.module(ptx::SMALL);
    let failed = gpu.try_run(&module, "store", 1u32, 1u32, 0, arguments![start, 1u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(&gpu, &["store", "bytes into the mapping of 2097152 bytes"]);
}

#[test]
fn rights_are_a_matter_of_each_device() {
    let gpu = eager();
    let (start, memory) = (reserve(UNIT), create(1, UNIT));
    assert_eq!(gpu.machine.counters().memory[1].0 as usize, UNIT);
    ok(api::cuMemMap(start, UNIT, 0, memory, 0));
    let both = [rights(0, 1), rights(1, 3)];
    ok(api::cuMemSetAccess(start, UNIT, both.as_ptr(), 2));
    assert_eq!((access(start, 0), access(start, 1)), (1, 3));
    set_device(1);
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "store", 1u32, 32u32, arguments![start, 3u32]);
    // Device 0 may read, and is stopped when it writes.
    set_device(0);
    let module = gpu.module(ptx::SMALL);
    let mine = gpu.zeros::<u32>(32);
    gpu.run(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        arguments![start, &mine],
    );
    assert_eq!(gpu.download(&mine)[31], 35);
    let failed = gpu.try_run(&module, "store", 1u32, 1u32, 0, arguments![start, 1u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    set_device(1);
    ok(api::cuCtxSynchronize());
}

#[test]
fn what_is_queued_keeps_its_mapping() {
    for seed in 0..4 {
        let gpu = crate::deferred(seed);
        let (start, memory) = (reserve(UNIT), create(0, UNIT));
        ok(api::cuMemMap(start, UNIT, 0, memory, 0));
        ok(api::cuMemSetAccess(start, UNIT, &rights(0, 3), 1));
        let module = gpu.module(ptx::SMALL);
        gpu.launch(
            &module,
            "store",
            1u32,
            32u32,
            0,
            &gpu.stream(),
            arguments![start, 3u32],
        )
        .unwrap();
        ok(api::cuMemUnmap(start, UNIT));
        ok(api::cuMemRelease(memory));
        ok(api::cuCtxSynchronize());
    }
}
