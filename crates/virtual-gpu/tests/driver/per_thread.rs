//! The variants of functions whose default stream is the thread's own.

use crate::api::{self, ok};
use crate::gpu::{Buffer, Handle, arguments, code, pointers};
use crate::{deferred, null, ptx};

#[test]
fn the_null_stream_is_the_threads_own() {
    let gpu = deferred(1);
    let module = gpu.module(ptx::SMALL);
    let (step, cell): (Handle, Buffer<u32>) = (gpu.function(&module, "step"), gpu.zeros(1));
    ok(api::cuCtxSynchronize());
    let given = arguments![&cell, 1u32];
    let mut params = pointers(given);
    let params = params.as_mut_ptr();
    ok(api::cuLaunchKernel_ptsz(
        step,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        null(),
        params,
        null(),
    ));
    // It waits in the thread's stream: not in the legacy one, and not in another thread's.
    ok(api::cuStreamQuery(null()));
    assert_eq!(api::cuStreamQuery_ptsz(null()), code::NOT_READY);
    assert_eq!(api::cuStreamQuery(2 as Handle), code::NOT_READY);
    // Handle 1 is the legacy stream in either kind.
    ok(api::cuStreamQuery_ptsz(1 as Handle));
    let (machine, context) = (&gpu.machine, gpu.context as usize);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _entered = machine.enter();
            ok(api::cuCtxSetCurrent(context as Handle));
            ok(api::cuStreamQuery_ptsz(null()));
        });
    });
    let (mut legacy, mut own) = (0, 0);
    ok(api::cuStreamGetId(null(), &mut legacy));
    ok(api::cuStreamGetId_ptsz(null(), &mut own));
    assert_ne!(legacy, own);
    ok(api::cuStreamSynchronize_ptsz(null()));
    assert_eq!(gpu.download(&cell), [1]);
    // They are counted as the functions that they are variants of.
    let counters = gpu.machine.counters();
    assert_eq!(
        (
            counters.calls_of("cuLaunchKernel"),
            counters.calls_of("cuLaunchKernel_ptsz")
        ),
        (1, 0)
    );
}

#[test]
fn synchronous_variants_use_the_threads_stream() {
    let gpu = deferred(2);
    let cell: Buffer<u32> = gpu.zeros(1);
    ok(api::cuCtxSynchronize());
    ok(api::cuMemsetD32_v2_ptds(cell.address, 5, 1));
    ok(api::cuStreamQuery(null()));
    assert_eq!(api::cuStreamQuery_ptsz(null()), code::NOT_READY);
    let mut seen = 0u32;
    ok(api::cuMemcpyDtoH_v2_ptds(
        (&raw mut seen).cast(),
        cell.address,
        4,
    ));
    assert_eq!(seen, 5);
    // The thread's stream is an ordinary one: it can be captured, which the legacy stream cannot.
    assert_eq!(
        api::cuStreamBeginCapture_v2(null(), 2),
        code::STREAM_CAPTURE_UNSUPPORTED
    );
    ok(api::cuStreamBeginCapture_v2_ptsz(null(), 2));
    ok(api::cuMemsetD32Async_ptsz(cell.address, 6, 1, null()));
    let mut graph = null();
    ok(api::cuStreamEndCapture_ptsz(null(), &mut graph));
    let mut count = 0;
    ok(api::cuGraphGetNodes(graph, null(), &mut count));
    assert_eq!(count, 1);
}
