//! What ends while it is used: contexts whose kernels run in another thread, graphs that are captured to, memory that a
//! stream waits for; and programs that only ask whether work has ended.

use std::ffi::c_void;
use std::time::Duration;

use crate::api::{self, ok};
use crate::gpu::{Handle, code};
use crate::virtual_memory::{properties, rights};
use crate::{deferred, eager, logged, null, ptx};

const UNIT: usize = 2 << 20;

/// A mapping of physical memory of device 0.
fn mapped(flags: u32) -> u64 {
    let (mut address, mut handle) = (0, 0);
    ok(api::cuMemAddressReserve(&mut address, UNIT, 0, 0, 0));
    ok(api::cuMemCreate(&mut handle, UNIT, &properties(0), 0));
    ok(api::cuMemMap(address, UNIT, 0, handle, 0));
    ok(api::cuMemSetAccess(address, UNIT, &rights(0, flags), 1));
    address
}

#[test]
fn copies_keep_to_the_rights_of_a_mapping() {
    let gpu = eager();
    let address = mapped(1);
    let mut word = 7u32;
    ok(api::cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4));
    let refused = api::cuMemcpyHtoD_v2(address, (&raw const word).cast(), 4);
    assert_eq!(refused, code::ILLEGAL_ADDRESS);
    logged(&gpu, &["may only be read", &format!("{address:#x}")]);
}

#[test]
fn a_wait_for_memory_that_is_gone_is_a_fault() {
    let gpu = deferred(3);
    let address = mapped(3);
    ok(api::cuMemsetD8_v2(address, 0, 64));
    ok(api::cuCtxSynchronize());
    ok(api::cuStreamWaitValue32_v2(null(), address, 1, 1));
    ok(api::cuMemSetAccess(address, UNIT, &rights(0, 0), 1));
    assert_eq!(api::cuCtxSynchronize(), code::ILLEGAL_ADDRESS);
    logged(
        &gpu,
        &["a wait when its turn comes", &format!("{address:#x}")],
    );
}

#[test]
fn who_only_asks_sees_an_end_of_it() {
    for seed in 0..20 {
        let gpu = deferred(seed);
        let (mut stream, mut event) = (null(), null());
        ok(api::cuStreamCreate(&mut stream, 0));
        ok(api::cuEventCreate(&mut event, 0));
        let buffer = gpu.zeros::<u32>(64);
        for value in 0..5 {
            ok(api::cuMemsetD32Async(buffer.address, value, 64, stream));
        }
        ok(api::cuEventRecord(event, stream));
        let asked = (0..1000).take_while(|_| api::cuEventQuery(event) == code::NOT_READY);
        assert!(asked.count() < 1000, "seed {seed}: the event never comes");
        let asked = (0..1000).take_while(|_| api::cuStreamQuery(stream) == code::NOT_READY);
        assert!(asked.count() < 1000, "seed {seed}: the stream never ends");
        assert_eq!(gpu.download(&buffer), [4; 64]);
    }
}

#[test]
fn a_graph_that_is_captured_to_may_be_destroyed() {
    let _gpu = eager();
    let (mut stream, mut graph, mut captured) = (null(), null(), null());
    ok(api::cuStreamCreate(&mut stream, 1));
    ok(api::cuGraphCreate(&mut graph, 0));
    ok(api::cuStreamBeginCaptureToGraph(
        stream,
        graph,
        std::ptr::null(),
        std::ptr::null(),
        0,
        0,
    ));
    ok(api::cuGraphDestroy(graph));
    let ended = api::cuStreamEndCapture(stream, &mut captured);
    assert_eq!(ended, code::STREAM_CAPTURE_INVALIDATED);
    ok(api::cuStreamSynchronize(stream));
}

#[test]
fn a_context_ends_after_what_runs_in_it() {
    let gpu = eager();
    let machine = gpu.machine.clone();
    let (mut first, mut second) = (null(), null());
    ok(api::cuCtxCreate_v2(&mut second, 0, 0));
    ok(api::cuCtxCreate_v2(&mut first, 0, 0));
    let module = gpu.module(ptx::SMALL);
    let store = gpu.function(&module, "store") as usize;
    let mut words = vec![0u32; 1 << 16];
    let bytes = size_of_val(&words[..]);
    let start: *mut c_void = words.as_mut_ptr().cast();
    ok(api::cuMemHostRegister_v2(start, bytes, 1));
    let (at, blocks) = (start as u64, (words.len() / 32) as u32);
    let context = first as usize;
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            let _entered = machine.enter();
            ok(api::cuCtxSetCurrent(context as Handle));
            for turn in 0..10_000u32 {
                let (at, turn) = (at, turn);
                let mut parameters: [*mut c_void; 2] = [
                    (&raw const at) as *mut c_void,
                    (&raw const turn) as *mut c_void,
                ];
                let launched = api::cuLaunchKernel(
                    store as Handle,
                    blocks,
                    1,
                    1,
                    32,
                    1,
                    1,
                    0,
                    null(),
                    parameters.as_mut_ptr(),
                    std::ptr::null_mut(),
                );
                // Once the context ends, launches are refused.
                if launched != 0 {
                    return true;
                }
            }
            false
        });
        std::thread::sleep(Duration::from_millis(5));
        ok(api::cuCtxDestroy_v2(context as Handle));
        // Nothing writes to the memory any more.
        let read = || -> Vec<u32> {
            // SAFETY: the words live; if something still writes to them, this test is to find it.
            (0..1 << 16)
                .map(|index| unsafe { start.cast::<u32>().add(index).read_volatile() })
                .collect()
        };
        let before = read();
        std::thread::sleep(Duration::from_millis(20));
        assert!(
            before == read(),
            "a kernel of the ended context still writes"
        );
        assert!(running.join().unwrap());
    });
    ok(api::cuCtxDestroy_v2(second));
}
