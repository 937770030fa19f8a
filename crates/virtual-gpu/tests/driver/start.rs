//! Start, versions, devices and their attributes, error names, look-up of functions.

use std::ffi::{CStr, c_char};

use virtual_gpu::machine::{Machine, Settings};

use crate::api::{self, ok};
use crate::gpu::code;
use crate::{eager, foreign, null, settings};

#[test]
fn nothing_works_before_the_start() {
    let machine = Machine::new(settings()).unwrap();
    let _entered = machine.enter();
    let (mut number, mut address, mut context) = (0, 0, null());
    assert_eq!(api::cuDeviceGetCount(&mut number), code::NOT_INITIALIZED);
    assert_eq!(api::cuDeviceGet(&mut number, 0), code::NOT_INITIALIZED);
    assert_eq!(api::cuMemAlloc_v2(&mut address, 4), code::NOT_INITIALIZED);
    assert_eq!(api::cuCtxGetCurrent(&mut context), code::NOT_INITIALIZED);
    assert_eq!(api::cuCtxSynchronize(), code::NOT_INITIALIZED);
    // These two need no start.
    ok(api::cuDriverGetVersion(&mut number));
    assert_eq!(number, 13000);
    assert_eq!(api::cuInit(1), code::INVALID_VALUE);
    ok(api::cuInit(0));
    ok(api::cuInit(0));
    ok(api::cuDeviceGetCount(&mut number));
    assert_eq!(number, 2);
    // A machine of its own, with nothing current.
    assert_eq!(api::cuMemAlloc_v2(&mut address, 4), code::INVALID_CONTEXT);
    ok(api::cuCtxGetCurrent(&mut context));
    assert!(context.is_null());
}

#[test]
fn a_machine_without_devices_cannot_start() {
    let none = Settings {
        devices: 0,
        ..settings()
    };
    let machine = Machine::new(none).unwrap();
    let _entered = machine.enter();
    assert_eq!(api::cuInit(0), code::NO_DEVICE);
}

#[test]
fn settings_that_make_no_machine_are_refused() {
    let wrong: [fn(&mut Settings); 6] = [
        |s| s.devices = 1000,
        |s| s.memory = 0,
        |s| s.memory = u64::MAX,
        |s| s.capability = (99, 0),
        |s| s.driver_version = 1,
        |s| s.workers = 0,
    ];
    for change in wrong {
        let mut settings = settings();
        change(&mut settings);
        assert!(Machine::new(settings).is_err());
    }
}

#[test]
fn devices_say_what_they_are() {
    let _gpu = eager();
    let mut device = -1;
    ok(api::cuDeviceGet(&mut device, 1));
    assert_eq!(device, 1);
    for ordinal in [-1, 2, i32::MAX] {
        assert_eq!(api::cuDeviceGet(&mut device, ordinal), code::INVALID_DEVICE);
    }
    assert_eq!(api::cuDeviceGet(null(), 0), code::INVALID_VALUE);
    let mut name = [0 as c_char; 64];
    ok(api::cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    // SAFETY: the driver has ended the text with a zero.
    let text = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap();
    assert!(text.contains("Virtual"), "{text}");
    ok(api::cuDeviceGetName(name.as_mut_ptr(), 4, 0));
    assert_eq!((name[2] != 0, name[3]), (true, 0));
    assert_eq!(
        api::cuDeviceGetName(name.as_mut_ptr(), 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuDeviceGetName(name.as_mut_ptr(), -1, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuDeviceGetName(name.as_mut_ptr(), 64, 7),
        code::INVALID_DEVICE
    );
    let mut bytes = 0;
    ok(api::cuDeviceTotalMem_v2(&mut bytes, 0));
    assert_eq!(bytes, 64 << 20);
    let (mut one, mut other) = ([0; 16], [0; 16]);
    ok(api::cuDeviceGetUuid(&mut one, 0));
    ok(api::cuDeviceGetUuid_v2(&mut other, 1));
    assert_ne!(one, other);
    let mut id = [0 as c_char; 16];
    ok(api::cuDeviceGetPCIBusId(id.as_mut_ptr(), 16, 1));
    ok(api::cuDeviceGetByPCIBusId(&mut device, id.as_ptr()));
    assert_eq!(device, 1);
    assert_eq!(
        api::cuDeviceGetByPCIBusId(&mut device, c"nonsense".as_ptr()),
        code::INVALID_VALUE
    );
}

#[test]
fn attributes_are_those_of_the_capability() {
    let of = |capability, number| {
        let machine = Machine::new(Settings {
            capability,
            ..settings()
        })
        .unwrap();
        let _entered = machine.enter();
        ok(api::cuInit(0));
        let mut value = -1;
        ok(api::cuDeviceGetAttribute(&mut value, number, 0));
        value
    };
    // Threads of a block, warp size, shared memory, multiprocessors, threads of one, capability, opt-in shared memory.
    for (number, value) in [
        (1, 1024),
        (10, 32),
        (8, 49152),
        (16, 108),
        (39, 2048),
        (75, 8),
        (76, 0),
        (97, 166912),
    ] {
        assert_eq!(of((8, 0), number), value, "attribute {number}");
    }
    for (number, value) in [(16, 132), (75, 9), (97, 232448), (81, 233472)] {
        assert_eq!(of((9, 0), number), value, "attribute {number}");
    }
    // Unified addressing, managed memory, cooperative launches, memory pools, mapped host memory, virtual memory.
    for number in [41, 83, 95, 115, 19, 102] {
        assert_eq!(of((8, 0), number), 1, "attribute {number}");
    }
    let _gpu = eager();
    let mut value = 0;
    assert_eq!(
        api::cuDeviceGetAttribute(&mut value, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuDeviceGetAttribute(&mut value, 100_000, 0),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuDeviceGetAttribute(null(), 1, 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuDeviceGetAttribute(&mut value, 1, 2),
        code::INVALID_DEVICE
    );
    let (mut major, mut minor) = (0, 0);
    ok(api::cuDeviceComputeCapability(&mut major, &mut minor, 0));
    assert_eq!((major, minor), (8, 0));
}

#[test]
fn every_code_has_a_name_and_a_text() {
    let _gpu = eager();
    let text = |function: fn(u32, *mut *const c_char) -> u32, number| {
        let mut text = std::ptr::null();
        ok(function(number, &mut text));
        // SAFETY: the driver's texts end with a zero and live for ever.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap()
    };
    assert_eq!(text(api::cuGetErrorName, 0), "CUDA_SUCCESS");
    assert_eq!(text(api::cuGetErrorName, 2), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(text(api::cuGetErrorString, 2), "out of memory");
    assert_eq!(text(api::cuGetErrorName, 700), "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(
        text(api::cuGetErrorString, 700),
        "an illegal memory access was encountered"
    );
    assert_eq!(text(api::cuGetErrorName, 999), "CUDA_ERROR_UNKNOWN");
    let mut place = std::ptr::null();
    assert_eq!(api::cuGetErrorName(12345, &mut place), code::INVALID_VALUE);
    assert_eq!(
        api::cuGetErrorString(12345, &mut place),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuGetErrorName(0, null()), code::INVALID_VALUE);
}

#[test]
fn functions_are_found_by_name_and_version() {
    let _gpu = eager();
    let find = |name: &CStr, version, flags| {
        let (mut pointer, mut status) = (null(), 9);
        ok(api::cuGetProcAddress_v2(
            name.as_ptr(),
            &mut pointer,
            version,
            flags,
            &mut status,
        ));
        (pointer.cast_const(), status)
    };
    assert_eq!(
        find(c"cuMemAlloc", 12000, 0),
        (api::find("cuMemAlloc_v2"), 0)
    );
    assert_eq!(
        find(c"cuCtxCreate", 11000, 0),
        (api::find("cuCtxCreate_v2"), 0)
    );
    assert_eq!(
        find(c"cuCtxCreate", 12000, 0),
        (api::find("cuCtxCreate_v3"), 0)
    );
    assert_eq!(
        find(c"cuCtxCreate", 13000, 0),
        (api::find("cuCtxCreate_v4"), 0)
    );
    assert_eq!(
        find(c"cuGraphAddKernelNode", 11000, 0),
        (api::find("cuGraphAddKernelNode"), 0)
    );
    assert_eq!(
        find(c"cuGraphAddKernelNode", 12000, 0),
        (api::find("cuGraphAddKernelNode_v2"), 0)
    );
    // With the thread's own default stream, where a function knows it.
    assert_eq!(
        find(c"cuMemcpyHtoD", 12000, 2),
        (api::find("cuMemcpyHtoD_v2_ptds"), 0)
    );
    assert_eq!(
        find(c"cuLaunchKernel", 12000, 2),
        (api::find("cuLaunchKernel_ptsz"), 0)
    );
    assert_eq!(
        find(c"cuMemAlloc", 12000, 2),
        (api::find("cuMemAlloc_v2"), 0)
    );
    assert_eq!(find(c"cuNoSuchFunction", 12000, 0), (std::ptr::null(), 1));
    let mut pointer = null();
    let mut look_up =
        |name: *const c_char, flags| api::cuGetProcAddress(name, &mut pointer, 12000, flags);
    ok(look_up(c"cuInit".as_ptr(), 0));
    assert_eq!(look_up(c"cuNoSuchFunction".as_ptr(), 0), code::NOT_FOUND);
    assert_eq!(look_up(c"cuInit".as_ptr(), 77), code::INVALID_VALUE);
    assert_eq!(look_up(std::ptr::null(), 0), code::INVALID_VALUE);
    assert!(virtual_gpu::driver::function("cuNoSuchFunction").is_none());
}

#[test]
fn the_whole_interface_is_there() {
    // What is not built answers so; nothing is missing, as some clients look everything up at their start.
    for name in api::IMPLEMENTED.iter().chain(api::UNSUPPORTED) {
        assert!(virtual_gpu::driver::function(name).is_some(), "{name}");
    }
    assert!(api::IMPLEMENTED.len() + api::UNSUPPORTED.len() >= 445);
    let gpu = eager();
    let pointer = api::find("cuTexObjectCreate");
    // SAFETY: stubs read none of their arguments.
    let stub =
        unsafe { std::mem::transmute::<*const std::ffi::c_void, extern "C" fn() -> u32>(pointer) };
    assert_eq!(stub(), code::NOT_SUPPORTED);
    crate::logged(&gpu, &["cuTexObjectCreate", "does not support"]);
    let mut table = null::<std::ffi::c_void>().cast_const();
    assert_eq!(
        api::cuGetExportTable(&mut table, &[7; 16]),
        code::NOT_SUPPORTED
    );
    assert_eq!(api::cuProfilerStart(), 0);
    assert_eq!(api::cuStreamQuery(foreign()), code::INVALID_HANDLE);
}
