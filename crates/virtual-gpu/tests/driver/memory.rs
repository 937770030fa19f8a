//! Device and host memory: given out, taken back, asked about, and found when it is used wrongly.

use std::ffi::c_void;

use virtual_gpu::machine::Settings;

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Handle, Schedule, arguments, code};
use crate::{eager, foreign, logged, null, ptx, settings};

fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    ok(api::cuMemAlloc_v2(&mut address, bytes));
    address
}

fn info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok(api::cuMemGetInfo_v2(&mut free, &mut total));
    (free, total)
}

#[test]
fn memory_is_given_out_and_taken_back() {
    let gpu = eager();
    let address = allocate(1000);
    assert_eq!(address % 256, 0);
    assert_eq!(info(), ((64 << 20) - 1024, 64 << 20));
    let (mut start, mut size) = (0, 0);
    ok(api::cuMemGetAddressRange_v2(
        &mut start,
        &mut size,
        address + 999,
    ));
    assert_eq!((start, size), (address, 1000));
    assert_eq!(
        api::cuMemGetAddressRange_v2(&mut start, &mut size, address + 1000),
        code::NOT_FOUND
    );
    ok(api::cuMemGetAddressRange_v2(null(), null(), address));
    ok(api::cuMemFree_v2(address));
    ok(api::cuMemFree_v2(0));
    assert_eq!(info().0, 64 << 20);
    // Twice, in the middle, foreign, the host's.
    let middle = allocate(64) + 8;
    let host = Box::new(0u32);
    for wrong in [
        address,
        middle,
        0xdead_0000,
        &raw const *host as u64,
        u64::MAX,
    ] {
        assert_eq!(api::cuMemFree_v2(wrong), code::INVALID_VALUE, "{wrong:#x}");
    }
    logged(
        &gpu,
        &[
            "cuMemFree_v2",
            "1000 bytes",
            "which were freed (by driver call",
        ],
    );
    assert_eq!(api::cuMemAlloc_v2(null(), 4), code::INVALID_VALUE);
    let mut place = 0;
    assert_eq!(api::cuMemAlloc_v2(&mut place, 0), code::INVALID_VALUE);
    assert_eq!(api::cuMemGetInfo_v2(null(), null()), code::INVALID_VALUE);
}

#[test]
fn memory_has_an_end() {
    let gpu = eager();
    let mut place = 0;
    assert_eq!(
        api::cuMemAlloc_v2(&mut place, (64 << 20) + 1),
        code::OUT_OF_MEMORY
    );
    assert_eq!(
        api::cuMemAlloc_v2(&mut place, usize::MAX),
        code::OUT_OF_MEMORY
    );
    logged(
        &gpu,
        &[
            "67108865 bytes are asked for",
            "device 0 has 67108864 of 67108864 bytes free",
        ],
    );
    let most = allocate(64 << 20);
    assert_eq!(api::cuMemAlloc_v2(&mut place, 1), code::OUT_OF_MEMORY);
    assert_eq!(info().0, 0);
    ok(api::cuMemFree_v2(most));
    ok(api::cuMemFree_v2(allocate(64 << 20)));
    // The other device has its own.
    crate::gpu::set_device(1);
    ok(api::cuMemFree_v2(allocate(64 << 20)));
}

#[test]
fn rows_are_given_a_pitch() {
    let _gpu = eager();
    let (mut address, mut pitch) = (0, 0);
    ok(api::cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 7, 4));
    assert!(pitch >= 100 && pitch % 512 == 0);
    let (mut start, mut size) = (0, 0);
    ok(api::cuMemGetAddressRange_v2(&mut start, &mut size, address));
    assert_eq!((start, size), (address, pitch * 7));
    for (width, height, element) in [(0, 7, 4), (100, 0, 4), (100, 7, 3)] {
        let code = api::cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, element);
        assert_eq!(code, code::INVALID_VALUE);
    }
    let code = api::cuMemAllocPitch_v2(&mut address, &mut pitch, usize::MAX - 8, 9, 4);
    assert_eq!(code, code::OUT_OF_MEMORY);
    assert_eq!(
        api::cuMemAllocPitch_v2(&mut address, null(), 4, 4, 4),
        code::INVALID_VALUE
    );
}

#[test]
fn fresh_memory_is_poison_and_a_host_pointer_is_no_device_pointer() {
    let gpu = eager();
    let buffer: Buffer<f32> = gpu.allocate(64);
    assert!(gpu.download(&buffer).iter().all(|value| value.is_nan()));
    let mut host = [0u8; 16];
    let inside = host.as_mut_ptr();
    let device = buffer.address;
    // A host pointer where a device pointer belongs, and the other way round.
    assert_eq!(
        api::cuMemcpyDtoD_v2(inside as u64, device, 4),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemcpyDtoH_v2(inside.cast(), inside as u64, 4),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemcpyHtoD_v2(device, device as *const c_void, 4),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemsetD8_v2(inside as u64, 0, 4), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemcpyHtoD_v2(device, std::ptr::null(), 4),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemcpyDtoH_v2(null(), device, 4), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemcpyHtoD_v2(0, inside.cast(), 4),
        code::INVALID_VALUE
    );
    logged(&gpu, &["a device pointer where a host pointer belongs"]);
    logged(&gpu, &["a host pointer where a device pointer belongs"]);
    // Nothing is sticky in that.
    ok(api::cuCtxSynchronize());
}

#[test]
fn a_use_after_free_is_found_with_the_name_of_what_was_freed() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (gone, kept): (Buffer<u32>, Buffer<u32>) = (gpu.zeros(300), gpu.zeros(300));
    gpu.free(&gone);
    assert_eq!(
        api::cuMemcpyDtoD_v2(kept.address, gone.address, 4),
        code::INVALID_VALUE
    );
    let failed = gpu.try_run(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        0,
        arguments![&gone, &kept],
    );
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(
        &gpu,
        &[
            "copy_plus_one",
            "block (0, 0, 0), thread (0, 0, 0)",
            "1200 bytes",
            "which were freed",
        ],
    );
    // The context is lost for good, as on hardware; the process is not.
    let mut place = 0;
    assert_eq!(api::cuMemAlloc_v2(&mut place, 4), code::ILLEGAL_ADDRESS);
    assert_eq!(api::cuCtxSynchronize(), code::ILLEGAL_ADDRESS);
    assert_eq!(api::cuMemFree_v2(kept.address), code::ILLEGAL_ADDRESS);
    crate::gpu::set_device(1);
    ok(api::cuMemAlloc_v2(&mut place, 4));
}

#[test]
fn freed_addresses_stay_in_quarantine_and_then_come_back() {
    let small = Settings {
        quarantine: 4096,
        ..settings()
    };
    let _gpu = Gpu::with(Schedule::Parallel, small);
    let first = allocate(1024);
    ok(api::cuMemFree_v2(first));
    assert_ne!(allocate(1024), first);
    let mut seen = false;
    for _ in 0..16 {
        let next = allocate(1024);
        seen |= next == first;
        ok(api::cuMemFree_v2(next));
    }
    assert!(seen);
}

#[test]
fn an_access_past_the_end_names_the_allocation() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let buffer: Buffer<u32> = gpu.zeros(40);
    let failed = gpu.try_run(&module, "store", 1u32, 64u32, 0, arguments![&buffer, 1u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(
        &gpu,
        &[
            "kernel store",
            "thread (40, 0, 0)",
            "0 bytes past the end of the allocation of 160 bytes",
        ],
    );
}

#[test]
fn host_memory_is_page_locked_and_freed() {
    let gpu = eager();
    let mut pointer = null();
    ok(api::cuMemHostAlloc(&mut pointer, 256, 3));
    let mut flags = 0;
    ok(api::cuMemHostGetFlags(&mut flags, pointer));
    assert_eq!(flags, 3);
    let mut device = 0;
    ok(api::cuMemHostGetDevicePointer_v2(&mut device, pointer, 0));
    // Kernels use it at its own address.
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "store", 1u32, 32u32, arguments![device, 5u32]);
    // SAFETY: the driver has allocated 256 bytes there.
    let seen = unsafe { std::slice::from_raw_parts(pointer.cast::<u32>(), 32) };
    assert_eq!((seen[0], seen[31]), (5, 36));
    assert_eq!(
        api::cuMemHostUnregister(pointer),
        code::HOST_MEMORY_NOT_REGISTERED
    );
    assert_eq!(api::cuMemFree_v2(device), code::INVALID_VALUE);
    ok(api::cuMemFreeHost(pointer));
    assert_eq!(api::cuMemFreeHost(pointer), code::INVALID_VALUE);
    assert_eq!(api::cuMemFreeHost(null()), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemHostGetFlags(&mut flags, pointer),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemHostGetDevicePointer_v2(&mut device, foreign(), 0),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemHostAlloc(&mut pointer, 0, 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemHostAlloc(&mut pointer, 4, 0x80),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemHostAlloc(null(), 4, 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemHostAlloc(&mut pointer, usize::MAX / 2, 0),
        code::OUT_OF_MEMORY
    );
    ok(api::cuMemAllocHost_v2(&mut pointer, 4));
    ok(api::cuMemFreeHost(pointer));
    // A kernel that still uses it is found.
    let failed = gpu.try_run(&module, "store", 1u32, 1u32, 0, arguments![device, 5u32]);
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(&gpu, &["neither page-locked, managed nor registered"]);
}

#[test]
fn host_memory_is_registered_and_not_twice() {
    let gpu = eager();
    let mut owned = vec![0u32; 1024];
    let pointer: *mut c_void = owned.as_mut_ptr().cast();
    ok(api::cuMemHostRegister_v2(pointer, 4096, 0));
    assert_eq!(
        api::cuMemHostRegister_v2(pointer, 4096, 0),
        code::HOST_MEMORY_ALREADY_REGISTERED
    );
    let middle = pointer.wrapping_byte_add(2048);
    assert_eq!(
        api::cuMemHostRegister_v2(middle, 4096, 0),
        code::HOST_MEMORY_ALREADY_REGISTERED
    );
    let module = gpu.module(ptx::SMALL);
    gpu.run(
        &module,
        "store",
        1u32,
        32u32,
        arguments![pointer as u64, 1u32],
    );
    assert_eq!(
        api::cuMemHostUnregister(middle),
        code::HOST_MEMORY_NOT_REGISTERED
    );
    ok(api::cuMemHostUnregister(pointer));
    assert_eq!(
        api::cuMemHostUnregister(pointer),
        code::HOST_MEMORY_NOT_REGISTERED
    );
    assert_eq!(owned[31], 32);
    assert_eq!(api::cuMemHostRegister_v2(null(), 4, 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemHostRegister_v2(pointer, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemHostRegister_v2(pointer, 4, 0x100),
        code::INVALID_VALUE
    );
    let device = allocate(4);
    assert_eq!(
        api::cuMemHostRegister_v2(device as Handle, 4, 0),
        code::INVALID_VALUE
    );
    // More than the process has: a copy to what it has not would end it.
    for bytes in [1 << 44, 1 << 47, 1 << 63] {
        assert_eq!(
            api::cuMemHostRegister_v2(pointer, bytes, 0),
            code::INVALID_VALUE
        );
    }
    logged(&gpu, &["not all of", "is memory of the process"]);
}

#[test]
fn managed_memory_is_for_host_and_devices() {
    let gpu = eager();
    let mut address = 0;
    ok(api::cuMemAllocManaged(&mut address, 128, 1));
    let module = gpu.module(ptx::SMALL);
    gpu.run(&module, "store", 1u32, 32u32, arguments![address, 9u32]);
    // SAFETY: managed memory of 128 bytes.
    let seen = unsafe { std::slice::from_raw_parts(address as *const u32, 32) };
    assert_eq!(seen[3], 12);
    ok(api::cuMemPrefetchAsync(address, 128, 0, null()));
    ok(api::cuMemPrefetchAsync(address, 128, -1, null()));
    ok(api::cuMemAdvise(address, 128, 1, 0));
    assert_eq!(api::cuMemAdvise(address, 129, 1, 0), code::INVALID_VALUE);
    assert_eq!(api::cuMemAdvise(address, 128, 77, 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemPrefetchAsync(address, 128, 9, null()),
        code::INVALID_DEVICE
    );
    assert_eq!(
        api::cuMemPrefetchAsync(allocate(128), 128, 0, null()),
        code::INVALID_VALUE
    );
    ok(api::cuStreamAttachMemAsync(null(), address, 0, 1));
    ok(api::cuMemFree_v2(address));
    assert_eq!(api::cuMemFree_v2(address), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemAllocManaged(&mut address, 0, 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuMemAllocManaged(&mut address, 4, 0),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemAllocManaged(null(), 4, 1), code::INVALID_VALUE);
}

#[test]
fn pointers_say_what_they_are() {
    let gpu = eager();
    fn ask<T: Default>(attribute: u32, address: u64) -> T {
        let mut value = T::default();
        ok(api::cuPointerGetAttribute(
            (&raw mut value).cast(),
            attribute,
            address,
        ));
        value
    }
    let device = allocate(100);
    assert_eq!(ask::<usize>(1, device), gpu.context as usize);
    assert_eq!(ask::<u32>(2, device), 2);
    assert_eq!(ask::<u64>(3, device + 7), device + 7);
    assert_eq!(ask::<i32>(9, device), 0);
    assert_eq!(
        (ask::<u64>(11, device + 7), ask::<usize>(12, device)),
        (device, 100)
    );
    assert_eq!((ask::<u8>(8, device), ask::<u8>(13, device)), (0, 1));
    assert_ne!(ask::<u64>(7, device), ask::<u64>(7, allocate(100)));
    let mut host = null();
    ok(api::cuMemAllocHost_v2(&mut host, 64));
    assert_eq!(
        (ask::<u32>(2, host as u64), ask::<u64>(4, host as u64)),
        (1, host as u64)
    );
    let mut managed = 0;
    ok(api::cuMemAllocManaged(&mut managed, 64, 1));
    assert_eq!((ask::<u32>(2, managed), ask::<u8>(8, managed)), (2, 1));
    let mut value = 0u64;
    let out = (&raw mut value).cast();
    let plain = Box::new(0u8);
    for unknown in [0, 5, device + 100, &raw const *plain as u64] {
        assert_eq!(
            api::cuPointerGetAttribute(out, 2, unknown),
            code::INVALID_VALUE
        );
    }
    assert_eq!(
        api::cuPointerGetAttribute(out, 4, device),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuPointerGetAttribute(out, 999, device),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuPointerGetAttribute(null(), 2, device),
        code::INVALID_VALUE
    );
    // Several at once, which never fails for a foreign pointer.
    let (mut kind, mut ordinal) = (9u32, 9i32);
    let mut places = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    let mut wanted = [2, 9];
    ok(api::cuPointerGetAttributes(
        2,
        wanted.as_mut_ptr(),
        places.as_mut_ptr(),
        device,
    ));
    assert_eq!((kind, ordinal), (2, 0));
    ok(api::cuPointerGetAttributes(
        2,
        wanted.as_mut_ptr(),
        places.as_mut_ptr(),
        5,
    ));
    assert_eq!((kind, ordinal), (0, -2));
    assert_eq!(
        api::cuPointerGetAttributes(2, null(), null(), device),
        code::INVALID_VALUE
    );
}
