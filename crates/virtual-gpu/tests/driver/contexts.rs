//! Contexts: primary and made ones, the thread's stack, limits and settings.

use crate::api::{self, ok};
use crate::gpu::{Handle, code, set_device};
use crate::{eager, foreign, null};

fn current() -> Handle {
    let mut context = null();
    ok(api::cuCtxGetCurrent(&mut context));
    context
}

fn create(device: i32) -> Handle {
    let mut context = null();
    ok(api::cuCtxCreate_v2(&mut context, 0, device));
    context
}

fn is_active(device: i32) -> bool {
    let (mut flags, mut active) = (9, 9);
    ok(api::cuDevicePrimaryCtxGetState(
        device,
        &mut flags,
        &mut active,
    ));
    active == 1
}

#[test]
fn the_primary_context_lives_while_it_is_retained() {
    let gpu = eager();
    assert!(is_active(0) && !is_active(1));
    let mut again = null();
    ok(api::cuDevicePrimaryCtxRetain(&mut again, 0));
    assert_eq!(again, gpu.context);
    ok(api::cuDevicePrimaryCtxRelease_v2(0));
    assert!(is_active(0));
    let mut address = 0;
    ok(api::cuMemAlloc_v2(&mut address, 4));
    ok(api::cuDevicePrimaryCtxRelease_v2(0));
    assert!(!is_active(0));
    assert_eq!(
        api::cuMemAlloc_v2(&mut address, 4),
        code::CONTEXT_IS_DESTROYED
    );
    assert_ne!(api::cuDevicePrimaryCtxRelease_v2(0), 0);
    // Its memory went with it.
    assert_eq!(gpu.machine.counters().memory[0].0, 0);
    set_device(0);
    assert_eq!(api::cuMemFree_v2(address), code::INVALID_VALUE);
    ok(api::cuMemAlloc_v2(&mut address, 4));
    assert_eq!(
        api::cuDevicePrimaryCtxRetain(null(), 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuDevicePrimaryCtxRetain(&mut again, 5),
        code::INVALID_DEVICE
    );
}

#[test]
fn a_thread_has_a_stack_of_contexts() {
    let gpu = eager();
    let second = create(1);
    assert_eq!(current(), second);
    let mut device = -1;
    ok(api::cuCtxGetDevice(&mut device));
    assert_eq!(device, 1);
    let mut popped = null();
    ok(api::cuCtxPopCurrent_v2(&mut popped));
    assert_eq!((popped, current()), (second, gpu.context));
    ok(api::cuCtxPushCurrent_v2(second));
    ok(api::cuCtxSetCurrent(gpu.context));
    ok(api::cuCtxPopCurrent_v2(null()));
    assert_eq!(current(), gpu.context);
    ok(api::cuCtxSetCurrent(null()));
    assert!(current().is_null());
    assert_eq!(api::cuCtxPopCurrent_v2(&mut popped), code::INVALID_CONTEXT);
    assert_eq!(api::cuCtxGetDevice(&mut device), code::INVALID_CONTEXT);
    assert_eq!(api::cuCtxPushCurrent_v2(foreign()), code::INVALID_CONTEXT);
    assert_eq!(api::cuCtxSetCurrent(foreign()), code::INVALID_CONTEXT);
    assert_eq!(api::cuCtxPushCurrent_v2(null()), code::INVALID_CONTEXT);
    // Another thread has a stack of its own.
    let machine = gpu.machine.clone();
    let other = std::thread::spawn(move || {
        let _entered = machine.enter();
        current().is_null()
    });
    assert!(other.join().unwrap());
}

#[test]
fn a_destroyed_context_is_gone_with_all_it_had() {
    let gpu = eager();
    let second = create(1);
    let (mut address, mut stream, mut event) = (0, null(), null());
    ok(api::cuMemAlloc_v2(&mut address, 4096));
    ok(api::cuStreamCreate(&mut stream, 0));
    ok(api::cuEventCreate(&mut event, 0));
    ok(api::cuCtxDestroy_v2(second));
    assert_eq!(current(), gpu.context);
    assert_eq!(gpu.machine.counters().memory[1].0, 0);
    assert_eq!(api::cuStreamSynchronize(stream), code::INVALID_HANDLE);
    assert_eq!(api::cuEventQuery(event), code::INVALID_HANDLE);
    assert_eq!(api::cuCtxSetCurrent(second), code::CONTEXT_IS_DESTROYED);
    assert_eq!(api::cuCtxDestroy_v2(second), code::CONTEXT_IS_DESTROYED);
    assert_eq!(api::cuCtxDestroy_v2(foreign()), code::INVALID_CONTEXT);
    assert_eq!(api::cuCtxDestroy_v2(gpu.context), code::INVALID_CONTEXT);
    assert_eq!(api::cuCtxCreate_v2(&mut stream, 0, 9), code::INVALID_DEVICE);
    assert_eq!(api::cuCtxCreate_v2(&mut stream, 3, 0), code::INVALID_VALUE);
    assert_eq!(api::cuCtxCreate_v2(null(), 0, 0), code::INVALID_VALUE);
}

#[test]
fn limits_and_settings_are_kept() {
    let gpu = eager();
    let limit = |number| {
        let mut value = 0;
        ok(api::cuCtxGetLimit(&mut value, number));
        value
    };
    assert_eq!((limit(0), limit(1), limit(2)), (1024, 1 << 20, 8 << 20));
    ok(api::cuCtxSetLimit(0, 4096));
    assert_eq!(limit(0), 4096);
    assert_eq!(api::cuCtxSetLimit(0, 1 << 30), code::INVALID_VALUE);
    assert_eq!(api::cuCtxSetLimit(99, 1), code::UNSUPPORTED_LIMIT);
    let mut value = 0;
    assert_eq!(api::cuCtxGetLimit(&mut value, 99), code::UNSUPPORTED_LIMIT);
    assert_eq!(api::cuCtxGetLimit(null(), 0), code::INVALID_VALUE);
    let (mut cache, mut banks) = (9, 9);
    ok(api::cuCtxSetCacheConfig(2));
    ok(api::cuCtxGetCacheConfig(&mut cache));
    assert_eq!(cache, 2);
    assert_eq!(api::cuCtxSetCacheConfig(4), code::INVALID_VALUE);
    ok(api::cuCtxSetSharedMemConfig(1));
    ok(api::cuCtxGetSharedMemConfig(&mut banks));
    assert_eq!(banks, 1);
    let (mut least, mut greatest) = (9, 9);
    ok(api::cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert!(greatest < least);
    let mut flags = 9;
    ok(api::cuCtxGetFlags(&mut flags));
    ok(api::cuCtxSetFlags(4));
    ok(api::cuCtxGetFlags(&mut flags));
    assert_eq!(flags, 4);
    assert_eq!(api::cuCtxSetFlags(0x100), code::INVALID_VALUE);
    let mut version = 0;
    ok(api::cuCtxGetApiVersion(gpu.context, &mut version));
    assert_eq!(version, 3020);
    assert_eq!(
        api::cuCtxGetApiVersion(foreign(), &mut version),
        code::INVALID_CONTEXT
    );
    let (mut one, mut other) = (0, 0);
    ok(api::cuCtxGetId(gpu.context, &mut one));
    ok(api::cuCtxGetId(create(0), &mut other));
    assert_ne!(one, other);
}
