//! Streams and events: order, waiting, default streams, host functions, times, and several threads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use virtual_gpu::machine::{Settings, Streams};

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Handle, Schedule, Stream, arguments, code, pointers, set_device};
use crate::{deferred, eager, foreign, null, ptx, settings};

pub(crate) fn stream(flags: u32) -> Handle {
    let mut stream = null();
    ok(api::cuStreamCreate(&mut stream, flags));
    stream
}

pub(crate) fn event(flags: u32) -> Handle {
    let mut event = null();
    ok(api::cuEventCreate(&mut event, flags));
    event
}

#[test]
fn streams_say_what_they_are() {
    let gpu = eager();
    let mut made = null();
    ok(api::cuStreamCreateWithPriority(&mut made, 1, -3));
    let (mut priority, mut flags, mut context, mut device, mut id) = (0, 0, null(), -1, 0);
    ok(api::cuStreamGetPriority(made, &mut priority));
    ok(api::cuStreamGetFlags(made, &mut flags));
    ok(api::cuStreamGetCtx(made, &mut context));
    ok(api::cuStreamGetDevice(made, &mut device));
    ok(api::cuStreamGetId(made, &mut id));
    assert_eq!((priority, flags, context, device), (-3, 1, gpu.context, 0));
    // Priorities are held within their range.
    ok(api::cuStreamCreateWithPriority(&mut made, 0, -100));
    ok(api::cuStreamGetPriority(made, &mut priority));
    assert_eq!(priority, -5);
    let mut other = 0;
    ok(api::cuStreamGetId(made, &mut other));
    assert_ne!(id, other);
    ok(api::cuStreamGetFlags(null(), &mut flags));
    assert_eq!(flags, 0);
    assert_eq!(api::cuStreamCreate(&mut made, 2), code::INVALID_VALUE);
    assert_eq!(api::cuStreamCreate(null(), 0), code::INVALID_VALUE);
    assert_eq!(
        api::cuStreamGetPriority(foreign(), &mut priority),
        code::INVALID_HANDLE
    );
    assert_eq!(api::cuStreamGetPriority(made, null()), code::INVALID_VALUE);
    ok(api::cuStreamDestroy_v2(made));
    for function in [
        api::cuStreamDestroy_v2,
        api::cuStreamSynchronize,
        api::cuStreamQuery,
    ] {
        assert_eq!(function(made), code::INVALID_HANDLE);
        assert_eq!(function(foreign()), code::INVALID_HANDLE);
    }
    assert_eq!(api::cuStreamDestroy_v2(null()), code::INVALID_HANDLE);
    assert_eq!(api::cuStreamDestroy_v2(gpu.context), code::INVALID_HANDLE);
    ok(api::cuStreamQuery(null()));
}

#[test]
fn events_say_what_they_are() {
    let gpu = eager();
    let (timed, untimed) = (event(0), event(2));
    // What was never recorded counts as ended.
    ok(api::cuEventQuery(timed));
    ok(api::cuEventSynchronize(timed));
    ok(api::cuStreamWaitEvent(null(), timed, 0));
    let mut time = 0.0;
    assert_eq!(
        api::cuEventElapsedTime(&mut time, timed, timed),
        code::INVALID_HANDLE
    );
    ok(api::cuEventRecord(timed, null()));
    ok(api::cuEventRecord(untimed, null()));
    assert_eq!(
        api::cuEventElapsedTime(&mut time, timed, untimed),
        code::INVALID_HANDLE
    );
    assert_eq!(api::cuEventCreate(&mut null(), 0x40), code::INVALID_VALUE);
    assert_eq!(api::cuEventCreate(&mut null(), 4), code::NOT_SUPPORTED);
    assert_eq!(api::cuEventCreate(null(), 0), code::INVALID_VALUE);
    assert_eq!(api::cuEventRecord(foreign(), null()), code::INVALID_HANDLE);
    assert_eq!(api::cuEventRecord(timed, foreign()), code::INVALID_HANDLE);
    assert_eq!(
        api::cuStreamWaitEvent(null(), foreign(), 0),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuStreamWaitEvent(null(), timed, 7),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuEventRecordWithFlags(timed, null(), 7),
        code::INVALID_VALUE
    );
    // A stream of another context.
    set_device(1);
    let elsewhere = stream(1);
    assert_eq!(api::cuEventRecord(timed, elsewhere), code::INVALID_HANDLE);
    // But it may wait for the event.
    ok(api::cuStreamWaitEvent(elsewhere, timed, 0));
    ok(api::cuEventDestroy_v2(timed));
    assert_eq!(api::cuEventDestroy_v2(timed), code::INVALID_HANDLE);
    assert_eq!(api::cuEventQuery(timed), code::INVALID_HANDLE);
    ok(api::cuCtxSetCurrent(gpu.context));
}

#[test]
fn work_waits_until_somebody_does_and_says_so() {
    let gpu = deferred(1);
    let module = gpu.module(ptx::SMALL);
    let (first, second) = (gpu.stream(), gpu.stream());
    let buffer: Buffer<u32> = gpu.zeros(32);
    ok(api::cuCtxSynchronize());
    let done = event(0);
    gpu.launch(
        &module,
        "store",
        1u32,
        32u32,
        0,
        &first,
        arguments![&buffer, 3u32],
    )
    .unwrap();
    ok(api::cuEventRecord(done, first.0));
    assert_eq!(api::cuStreamQuery(first.0), code::NOT_READY);
    assert_eq!(api::cuEventQuery(done), code::NOT_READY);
    ok(api::cuStreamQuery(second.0));
    let mut time = 0.0;
    assert_eq!(
        api::cuEventElapsedTime(&mut time, done, done),
        code::NOT_READY
    );
    // NOT_READY is an answer, not an error: the log says nothing of it.
    assert!(
        !gpu.machine
            .log_lines()
            .iter()
            .any(|line| line.contains("NOT_READY"))
    );
    ok(api::cuEventSynchronize(done));
    ok(api::cuEventQuery(done));
    ok(api::cuStreamQuery(first.0));
    assert_eq!(gpu.download(&buffer)[2], 5);
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let gpu = deferred(2);
    let module = gpu.module(ptx::SMALL);
    let (going, done) = (gpu.stream(), event(0));
    let buffer: Buffer<u32> = gpu.zeros(32);
    ok(api::cuCtxSynchronize());
    gpu.launch(
        &module,
        "store",
        1u32,
        32u32,
        0,
        &going,
        arguments![&buffer, 3u32],
    )
    .unwrap();
    ok(api::cuEventRecord(done, going.0));
    ok(api::cuStreamDestroy_v2(going.0));
    assert_eq!(api::cuStreamSynchronize(going.0), code::INVALID_HANDLE);
    assert_eq!(api::cuEventQuery(done), code::NOT_READY);
    // The event may go too; what waits for it still does.
    let waiting = gpu.stream();
    ok(api::cuStreamWaitEvent(waiting.0, done, 0));
    ok(api::cuEventDestroy_v2(done));
    gpu.launch(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        0,
        &waiting,
        arguments![&buffer, &buffer],
    )
    .unwrap();
    ok(api::cuStreamSynchronize(waiting.0));
    assert_eq!(gpu.download(&buffer)[0], 4);
}

#[test]
fn events_take_time() {
    let gpu = eager();
    let (start, end) = (event(0), event(0));
    extern "C" fn wait(_: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    ok(api::cuEventRecord(start, null()));
    ok(api::cuLaunchHostFunc(null(), Some(wait), null()));
    ok(api::cuEventRecord(end, null()));
    ok(gpu.synchronize().err().unwrap_or(0));
    let (mut there, mut back) = (0.0, 0.0);
    ok(api::cuEventElapsedTime(&mut there, start, end));
    ok(api::cuEventElapsedTime_v2(&mut back, end, start));
    assert!(
        (5.0..2000.0).contains(&there) && back == -there,
        "{there} {back}"
    );
    assert_eq!(
        api::cuEventElapsedTime(null(), start, end),
        code::INVALID_VALUE
    );
}

static CALLS: AtomicU32 = AtomicU32::new(0);

#[test]
fn host_functions_run_in_their_turn_and_may_not_call_the_driver() {
    extern "C" fn count(data: *mut c_void) {
        let mut place = 0;
        let refused = api::cuMemAlloc_v2(&mut place, 4) == code::NOT_PERMITTED;
        CALLS.fetch_add(data as u32 + 1000 * u32::from(refused), Ordering::Relaxed);
    }
    extern "C" fn status(stream: Handle, code: u32, data: *mut c_void) {
        CALLS.fetch_add(
            u32::from(code == 0 && !stream.is_null()) * data as u32,
            Ordering::Relaxed,
        );
    }
    let gpu = deferred(7);
    let made = stream(0);
    ok(api::cuLaunchHostFunc(made, Some(count), 7 as *mut c_void));
    ok(api::cuStreamAddCallback(
        made,
        Some(status),
        10_000 as *mut c_void,
        0,
    ));
    assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    ok(api::cuStreamSynchronize(made));
    assert_eq!(CALLS.load(Ordering::Relaxed), 11_007);
    crate::logged(&gpu, &["must not call the driver"]);
    assert_eq!(
        api::cuLaunchHostFunc(made, None, null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuStreamAddCallback(made, None, null(), 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuStreamAddCallback(made, Some(status), null(), 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuLaunchHostFunc(foreign(), Some(count), null()),
        code::INVALID_HANDLE
    );
}

#[test]
fn values_in_memory_are_waited_for() {
    let gpu = deferred(4);
    let module = gpu.module(ptx::SMALL);
    let (reader, writer) = (gpu.stream(), gpu.stream());
    let (flag, data, out): (Buffer<u32>, Buffer<u32>, Buffer<u32>) =
        (gpu.zeros(2), gpu.zeros(32), gpu.zeros(32));
    ok(api::cuCtxSynchronize());
    ok(api::cuStreamWaitValue32_v2(reader.0, flag.address, 5, 1));
    gpu.launch(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        0,
        &reader,
        arguments![&data, &out],
    )
    .unwrap();
    gpu.launch(
        &module,
        "store",
        1u32,
        32u32,
        0,
        &writer,
        arguments![&data, 40u32],
    )
    .unwrap();
    ok(api::cuStreamWriteValue32_v2(writer.0, flag.address, 5, 0));
    ok(api::cuStreamSynchronize(reader.0));
    assert_eq!(gpu.download(&out)[1], 42);
    ok(api::cuStreamWriteValue64_v2(
        writer.0,
        flag.address,
        u64::MAX - 1,
        0,
    ));
    ok(api::cuStreamWaitValue64_v2(reader.0, flag.address, 3, 0));
    ok(api::cuStreamWriteValue64_v2(writer.0, flag.address, 4, 0));
    ok(api::cuCtxSynchronize());
    assert_eq!(
        api::cuStreamWaitValue32_v2(reader.0, flag.address + 2, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuStreamWriteValue64_v2(reader.0, flag.address + 4, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuStreamWriteValue32_v2(reader.0, flag.address + 8, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuStreamWaitValue32_v2(foreign(), flag.address, 0, 0),
        code::INVALID_HANDLE
    );
}

#[test]
fn whole_contexts_record_and_wait_for_events() {
    for seed in 0..8 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let cells: Vec<Buffer<u32>> = (0..3).map(|_| gpu.zeros(32)).collect();
        ok(api::cuCtxSynchronize());
        let streams = [Stream(stream(0)), Stream(stream(1)), Stream(null())];
        for (cell, made) in cells.iter().zip(&streams) {
            gpu.launch(
                &module,
                "store",
                1u32,
                32u32,
                0,
                made,
                arguments![cell, 1u32],
            )
            .unwrap();
        }
        let all = event(0);
        ok(api::cuCtxRecordEvent(gpu.context, all));
        assert_eq!(api::cuEventQuery(all), code::NOT_READY);
        ok(api::cuCtxWaitEvent(gpu.context, all));
        // Whatever comes now, also in a stream that is new, is behind all three.
        let fresh = gpu.stream();
        for cell in &cells {
            gpu.launch(
                &module,
                "copy_plus_one",
                1u32,
                32u32,
                0,
                &fresh,
                arguments![cell, cell],
            )
            .unwrap();
        }
        ok(api::cuStreamSynchronize(fresh.0));
        ok(api::cuEventQuery(all));
        for cell in &cells {
            assert_eq!(gpu.download(cell)[0], 2, "seed {seed}");
        }
        assert_eq!(api::cuCtxRecordEvent(foreign(), all), code::INVALID_CONTEXT);
        assert_eq!(
            api::cuCtxRecordEvent(gpu.context, foreign()),
            code::INVALID_HANDLE
        );
        assert_eq!(
            api::cuCtxWaitEvent(gpu.context, foreign()),
            code::INVALID_HANDLE
        );
        assert_eq!(api::cuCtxWaitEvent(foreign(), all), code::INVALID_CONTEXT);
    }
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    // `step` tells orders apart; the kinds of the two streams say whether the order is fixed.
    let orders = |first: fn() -> Handle, second: fn() -> Handle| {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..24 {
            let gpu = deferred(seed);
            let module = gpu.module(ptx::SMALL);
            let cell: Buffer<u32> = gpu.zeros(1);
            ok(api::cuCtxSynchronize());
            let (one, other) = (Stream(first()), Stream(second()));
            gpu.launch(
                &module,
                "step",
                1u32,
                1u32,
                0,
                &one,
                arguments![&cell, 1u32],
            )
            .unwrap();
            gpu.launch(
                &module,
                "step",
                1u32,
                1u32,
                0,
                &other,
                arguments![&cell, 2u32],
            )
            .unwrap();
            ok(api::cuCtxSynchronize());
            seen.insert(gpu.download(&cell)[0]);
        }
        seen.len()
    };
    type Make = fn() -> Handle;
    let (null_stream, legacy): (Make, Make) = (null, || 1 as Handle);
    let (per_thread, blocking): (Make, Make) = (|| 2 as Handle, || stream(0));
    let free: Make = || stream(1);
    for (first, second, count) in [
        (null_stream, blocking, 1),
        (blocking, null_stream, 1),
        (null_stream, legacy, 1),
        (legacy, per_thread, 1),
        (per_thread, legacy, 1),
        (per_thread, per_thread, 1),
        (null_stream, free, 2),
        (free, null_stream, 2),
        (blocking, blocking, 2),
        (blocking, free, 2),
        (per_thread, blocking, 2),
    ] {
        assert_eq!(orders(first, second), count);
    }
}

#[test]
fn several_threads_use_one_machine() {
    for streams in [Streams::Eager, Streams::Deferred] {
        let gpu = Gpu::with(
            Schedule::Parallel,
            Settings {
                streams,
                ..settings()
            },
        );
        let module = gpu.module(ptx::SMALL).0 as usize;
        let (machine, context) = (&gpu.machine, gpu.context as usize);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                scope.spawn(move || {
                    let _entered = machine.enter();
                    ok(api::cuCtxSetCurrent(context as Handle));
                    let (mut function, mut address) = (null(), 0);
                    ok(api::cuModuleGetFunction(
                        &mut function,
                        module as Handle,
                        c"step".as_ptr(),
                    ));
                    ok(api::cuMemAllocAsync(&mut address, 4, null()));
                    ok(api::cuMemsetD32Async(address, 0, 1, null()));
                    ok(api::cuStreamSynchronize(null()));
                    // A stream of its own, the thread's default stream, the shared one, in turn.
                    let own = stream(1);
                    let mut expected = 0u32;
                    for number in 0..60u32 {
                        let target = [own, 2 as Handle, null()][number as usize % 3];
                        let given = arguments![address, number + thread];
                        let mut params = pointers(given);
                        let params = params.as_mut_ptr();
                        ok(api::cuLaunchKernel(
                            function,
                            1,
                            1,
                            1,
                            1,
                            1,
                            1,
                            0,
                            target,
                            params,
                            null(),
                        ));
                        ok(api::cuStreamSynchronize(target));
                        expected = expected.wrapping_mul(31).wrapping_add(number + thread);
                    }
                    let mut seen = 0u32;
                    ok(api::cuMemcpyDtoH_v2((&raw mut seen).cast(), address, 4));
                    assert_eq!(seen, expected);
                    ok(api::cuMemFreeAsync(address, own));
                    ok(api::cuStreamDestroy_v2(own));
                });
            }
        });
        ok(api::cuCtxSynchronize());
        assert_eq!(gpu.machine.counters().launches, 240);
    }
}
