//! Capture of streams: what becomes of commands, forks and joins, what is forbidden in which mode, and by which code.

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Handle, Stream, arguments, code};
use crate::graphs::instantiate;
use crate::{deferred, eager, foreign, null, ptx};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

fn begin(stream: &Stream, mode: u32) {
    ok(api::cuStreamBeginCapture_v2(stream.0, mode));
}

fn end(stream: &Stream) -> Handle {
    let mut graph = null();
    ok(api::cuStreamEndCapture(stream.0, &mut graph));
    graph
}

/// The code of a capture's end, which has failed.
fn end_code(stream: &Stream) -> u32 {
    let mut graph = null();
    let code = api::cuStreamEndCapture(stream.0, &mut graph);
    assert!(code == 0 || graph.is_null());
    code
}

fn event() -> Handle {
    let mut event = null();
    ok(api::cuEventCreate(&mut event, 2));
    event
}

fn nodes(graph: Handle) -> Vec<Handle> {
    let mut count = 0;
    ok(api::cuGraphGetNodes(graph, null(), &mut count));
    let mut nodes = vec![null(); count];
    ok(api::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    nodes
}

fn status(stream: &Stream) -> u32 {
    let mut status = 9;
    ok(api::cuStreamIsCapturing(stream.0, &mut status));
    status
}

#[test]
fn captured_work_is_done_only_when_the_graph_is_launched() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (stream, buffer): (Stream, Buffer<u32>) = (gpu.stream(), gpu.zeros(32));
    assert_eq!(status(&stream), 0);
    begin(&stream, GLOBAL);
    assert_eq!(status(&stream), 1);
    gpu.launch(
        &module,
        "store",
        1u32,
        32u32,
        0,
        &stream,
        arguments![&buffer, 1u32],
    )
    .unwrap();
    ok(api::cuMemsetD32Async(buffer.address, 9, 1, stream.0));
    let graph = end(&stream);
    assert_eq!(status(&stream), 0);
    assert_eq!(gpu.download(&buffer), [0; 32]);
    assert_eq!(nodes(graph).len(), 2);
    let exec = instantiate(graph);
    ok(api::cuGraphLaunch(exec, stream.0));
    ok(api::cuStreamSynchronize(stream.0));
    assert_eq!(gpu.download(&buffer)[..3], [9, 2, 3]);
}

#[test]
fn forks_and_joins_become_edges() {
    for seed in 0..12 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let (main, side) = (gpu.stream(), gpu.stream());
        let cells: Vec<Buffer<u32>> = (0..2).map(|_| gpu.zeros(1)).collect();
        ok(api::cuCtxSynchronize());
        let step = |stream: &Stream, cell: &Buffer<u32>, value: u32| {
            gpu.launch(
                &module,
                "step",
                1u32,
                1u32,
                0,
                stream,
                arguments![cell, value],
            )
            .unwrap();
        };
        begin(&main, GLOBAL);
        step(&main, &cells[0], 1);
        let (fork, join) = (event(), event());
        ok(api::cuEventRecord(fork, main.0));
        ok(api::cuStreamWaitEvent(side.0, fork, 0));
        assert_eq!(status(&side), 1);
        step(&side, &cells[0], 2);
        step(&main, &cells[1], 5);
        ok(api::cuEventRecord(join, side.0));
        ok(api::cuStreamWaitEvent(main.0, join, 0));
        step(&main, &cells[0], 3);
        let graph = end(&main);
        assert_eq!((nodes(graph).len(), status(&side)), (4, 0));
        let mut count = 0;
        ok(api::cuGraphGetEdges(graph, null(), null(), &mut count));
        assert_eq!(count, 4);
        ok(api::cuGraphLaunch(instantiate(graph), main.0));
        ok(api::cuStreamSynchronize(main.0));
        assert_eq!(gpu.download(&cells[0]), [(31 + 2) * 31 + 3], "seed {seed}");
        assert_eq!(gpu.download(&cells[1]), [5]);
    }
}

#[test]
fn a_capture_ends_where_and_as_it_began() {
    let gpu = eager();
    let (main, side) = (gpu.stream(), gpu.stream());
    let (fork, buffer): (Handle, Buffer<u32>) = (event(), gpu.zeros(1));
    assert_eq!(end_code(&main), code::ILLEGAL_STATE);
    assert_eq!(api::cuStreamBeginCapture_v2(main.0, 3), code::INVALID_VALUE);
    assert_eq!(
        api::cuStreamBeginCapture_v2(foreign(), 0),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuStreamBeginCapture_v2(null(), 0),
        code::STREAM_CAPTURE_UNSUPPORTED
    );
    begin(&main, GLOBAL);
    assert_eq!(api::cuStreamBeginCapture_v2(main.0, 0), code::ILLEGAL_STATE);
    // A side stream that is never joined.
    ok(api::cuEventRecord(fork, main.0));
    ok(api::cuStreamWaitEvent(side.0, fork, 0));
    ok(api::cuMemsetD32Async(buffer.address, 1, 1, side.0));
    assert_eq!(end_code(&main), code::STREAM_CAPTURE_UNJOINED);
    assert_eq!((status(&main), status(&side)), (0, 0));
    // Ended in the side stream.
    begin(&main, GLOBAL);
    ok(api::cuEventRecord(fork, main.0));
    ok(api::cuStreamWaitEvent(side.0, fork, 0));
    assert_eq!(end_code(&side), code::STREAM_CAPTURE_UNMATCHED);
    assert_eq!(status(&main), 2);
    assert_eq!(end_code(&main), code::STREAM_CAPTURE_INVALIDATED);
    // Two captures that would become one.
    begin(&main, GLOBAL);
    begin(&side, GLOBAL);
    ok(api::cuEventRecord(fork, main.0));
    assert_eq!(
        api::cuStreamWaitEvent(side.0, fork, 0),
        code::STREAM_CAPTURE_MERGE
    );
    assert_eq!(end_code(&main), code::STREAM_CAPTURE_INVALIDATED);
    assert_eq!(end_code(&side), code::STREAM_CAPTURE_INVALIDATED);
    // An event from outside.
    let outside = event();
    ok(api::cuEventRecord(outside, side.0));
    begin(&main, GLOBAL);
    assert_eq!(
        api::cuStreamWaitEvent(main.0, outside, 0),
        code::STREAM_CAPTURE_ISOLATION
    );
    assert_eq!(
        api::cuMemsetD32Async(buffer.address, 1, 1, main.0),
        code::STREAM_CAPTURE_INVALIDATED
    );
    assert_eq!(end_code(&main), code::STREAM_CAPTURE_INVALIDATED);
    // Another thread ends a capture only if it is relaxed.
    for (mode, expected) in [(GLOBAL, code::STREAM_CAPTURE_WRONG_THREAD), (RELAXED, 0)] {
        begin(&main, mode);
        let (machine, context, stream) = (&gpu.machine, gpu.context as usize, main.0 as usize);
        let code = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let _entered = machine.enter();
                ok(api::cuCtxSetCurrent(context as Handle));
                end_code(&Stream(stream as Handle))
            });
            other.join().unwrap()
        });
        assert_eq!(code, expected);
        if expected != 0 {
            end(&main);
        }
    }
}

/// The codes of a call while a stream captures in a mode, and of the capture's end.
fn during(gpu: &Gpu, blocking: bool, mode: u32, call: &dyn Fn(&Stream) -> u32) -> (u32, u32) {
    let mut made = null();
    ok(api::cuStreamCreate(&mut made, u32::from(!blocking)));
    let stream = Stream(made);
    begin(&stream, mode);
    let code = call(&stream);
    let result = (code, end_code(&stream));
    ok(api::cuStreamDestroy_v2(stream.0));
    ok(gpu.synchronize().err().unwrap_or(0));
    result
}

#[test]
fn what_cannot_be_captured_is_refused_and_ends_the_capture() {
    let gpu = eager();
    let buffer: Buffer<u32> = gpu.zeros(4);
    let at = buffer.address;
    let (context, unused) = (gpu.context, event());
    ok(api::cuEventRecord(unused, null()));
    let refused = (
        code::STREAM_CAPTURE_UNSUPPORTED,
        code::STREAM_CAPTURE_INVALIDATED,
    );
    let implicit = (
        code::STREAM_CAPTURE_IMPLICIT,
        code::STREAM_CAPTURE_INVALIDATED,
    );
    // Waiting for the stream, or for all of them: in every mode.
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        for blocking in [true, false] {
            assert_eq!(
                during(&gpu, blocking, mode, &|stream| api::cuStreamSynchronize(
                    stream.0
                )),
                refused
            );
            assert_eq!(
                during(&gpu, blocking, mode, &|stream| api::cuStreamQuery(stream.0)),
                refused
            );
            assert_eq!(
                during(&gpu, blocking, mode, &|_| api::cuCtxSynchronize()),
                refused
            );
        }
        // The default stream: only if it would wait for the one that captures.
        let memset = |_: &Stream| api::cuMemsetD32Async(at, 0, 1, null());
        assert_eq!(during(&gpu, true, mode, &memset), implicit);
        assert_eq!(during(&gpu, false, mode, &memset), (0, 0));
        assert_eq!(
            during(&gpu, true, mode, &|_| api::cuMemsetD32_v2(at, 0, 1)),
            implicit
        );
        assert_eq!(
            during(&gpu, true, mode, &|_| api::cuEventRecord(unused, null())),
            implicit
        );
        assert_eq!(
            during(&gpu, true, mode, &|_| api::cuMemcpyDtoD_v2(at, at + 8, 4)),
            implicit
        );
        ok(api::cuEventRecord(unused, null()));
    }
    // What might disturb a capture: not in a relaxed one.
    let unsafe_calls: [&dyn Fn(&Stream) -> u32; 4] = [
        &|_| {
            let mut place = 0;
            let code = api::cuMemAlloc_v2(&mut place, 4);
            if code == 0 {
                ok(api::cuMemFree_v2(place));
            }
            code
        },
        &|_| {
            let mut place = null();
            api::cuMemAllocHost_v2(&mut place, 4)
        },
        &|_| api::cuEventQuery(unused),
        &|_| api::cuMemcpyDtoD_v2(at, at + 8, 4),
    ];
    for (index, call) in unsafe_calls.into_iter().enumerate() {
        assert_eq!(during(&gpu, false, GLOBAL, call), refused, "call {index}");
        assert_eq!(
            during(&gpu, false, THREAD_LOCAL, call),
            refused,
            "call {index}"
        );
        assert_eq!(during(&gpu, false, RELAXED, call), (0, 0), "call {index}");
    }
    // The thread may say that it knows what it does.
    let mut mode = RELAXED;
    ok(api::cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, GLOBAL);
    assert_eq!(during(&gpu, false, GLOBAL, unsafe_calls[0]), (0, 0));
    ok(api::cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, RELAXED);
    mode = 7;
    assert_eq!(
        api::cuThreadExchangeStreamCaptureMode(&mut mode),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuThreadExchangeStreamCaptureMode(null()),
        code::INVALID_VALUE
    );
    // An event that was recorded in a capture stands for nothing that has run.
    let captured = event();
    let code = during(&gpu, false, RELAXED, &|stream| {
        ok(api::cuEventRecord(captured, stream.0));
        api::cuEventQuery(captured)
    });
    assert_eq!(code.0, code::CAPTURED_EVENT);
    assert_eq!(api::cuEventSynchronize(captured), code::CAPTURED_EVENT);
    ok(api::cuCtxSetCurrent(context));
}

#[test]
fn other_threads_are_held_up_by_global_captures_only() {
    let gpu = eager();
    for (mode, expected) in [
        (GLOBAL, code::STREAM_CAPTURE_UNSUPPORTED),
        (THREAD_LOCAL, 0),
        (RELAXED, 0),
    ] {
        let stream = gpu.stream();
        begin(&stream, mode);
        let (machine, context) = (&gpu.machine, gpu.context as usize);
        let code = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let _entered = machine.enter();
                ok(api::cuCtxSetCurrent(context as Handle));
                let mut place = 0;
                api::cuMemAlloc_v2(&mut place, 4)
            });
            other.join().unwrap()
        });
        assert_eq!(code, expected, "mode {mode}");
        assert_eq!(end_code(&stream) == 0, expected == 0);
    }
}

#[test]
fn a_graph_launched_in_a_capture_is_a_child() {
    for seed in 0..6 {
        let gpu = deferred(seed);
        let module = gpu.module(ptx::SMALL);
        let (stream, cell): (Stream, Buffer<u32>) = (gpu.stream(), gpu.zeros(1));
        ok(api::cuCtxSynchronize());
        let step = |value: u32| {
            gpu.launch(
                &module,
                "step",
                1u32,
                1u32,
                0,
                &stream,
                arguments![&cell, value],
            )
            .unwrap();
        };
        begin(&stream, GLOBAL);
        step(2);
        step(3);
        let inner = instantiate(end(&stream));
        begin(&stream, GLOBAL);
        step(1);
        ok(api::cuGraphLaunch(inner, stream.0));
        step(4);
        let graph = end(&stream);
        let (mut kind, mut child) = (9, null());
        ok(api::cuGraphNodeGetType(nodes(graph)[1], &mut kind));
        assert_eq!((nodes(graph).len(), kind), (3, 4));
        ok(api::cuGraphChildGraphNodeGetGraph(
            nodes(graph)[1],
            &mut child,
        ));
        assert_eq!(nodes(child).len(), 2);
        // It is a copy: the executable graph may go.
        ok(api::cuGraphExecDestroy(inner));
        ok(api::cuGraphLaunch(instantiate(graph), stream.0));
        ok(api::cuStreamSynchronize(stream.0));
        assert_eq!(gpu.download(&cell), [((31 + 2) * 31 + 3) * 31 + 4]);
    }
}

#[test]
fn external_events_become_nodes() {
    let gpu = deferred(1);
    let (stream, other) = (gpu.stream(), gpu.stream());
    let (outside, inside, buffer): (Handle, Handle, Buffer<u32>) = (event(), event(), gpu.zeros(1));
    ok(api::cuCtxSynchronize());
    ok(api::cuEventRecord(outside, other.0));
    begin(&stream, GLOBAL);
    ok(api::cuStreamWaitEvent(stream.0, outside, 1));
    ok(api::cuMemsetD32Async(buffer.address, 5, 1, stream.0));
    ok(api::cuEventRecordWithFlags(inside, stream.0, 1));
    let graph = end(&stream);
    let kinds: Vec<u32> = (nodes(graph).into_iter())
        .map(|node| {
            let mut kind = 9;
            ok(api::cuGraphNodeGetType(node, &mut kind));
            kind
        })
        .collect();
    assert_eq!(kinds, [6, 2, 7]);
    ok(api::cuGraphLaunch(instantiate(graph), stream.0));
    assert_eq!(api::cuEventQuery(inside), code::NOT_READY);
    ok(api::cuEventSynchronize(inside));
    assert_eq!(gpu.download(&buffer), [5]);
}

#[test]
fn a_capture_can_be_asked_and_steered() {
    let gpu = eager();
    let (stream, buffer): (Stream, Buffer<u32>) = (gpu.stream(), gpu.zeros(4));
    begin(&stream, THREAD_LOCAL);
    ok(api::cuMemsetD32Async(buffer.address, 1, 1, stream.0));
    let (mut state, mut id, mut graph, mut tips, mut count) = (9, 0, null(), std::ptr::null(), 9);
    let code = api::cuStreamGetCaptureInfo_v2(
        stream.0, &mut state, &mut id, &mut graph, &mut tips, &mut count,
    );
    ok(code);
    assert_eq!((state, count), (1, 1));
    // SAFETY: the driver has said that there is one.
    let first = unsafe { *tips };
    assert_eq!(nodes(graph), [first]);
    // The next node comes behind nothing.
    ok(api::cuStreamUpdateCaptureDependencies(
        stream.0,
        null(),
        0,
        1,
    ));
    ok(api::cuMemsetD32Async(buffer.address + 4, 1, 1, stream.0));
    let code = api::cuStreamUpdateCaptureDependencies(stream.0, &mut foreign(), 1, 0);
    assert_eq!(code, code::INVALID_HANDLE);
    // And the last behind both.
    let mut both = first;
    ok(api::cuStreamUpdateCaptureDependencies(
        stream.0, &mut both, 1, 0,
    ));
    ok(api::cuMemsetD32Async(buffer.address, 1, 2, stream.0));
    let made = end(&stream);
    assert_eq!(made, graph);
    let mut edges = 0;
    ok(api::cuGraphGetEdges(made, null(), null(), &mut edges));
    assert_eq!(edges, 2);
    // Into a graph that is there.
    let last = nodes(made)[2];
    ok(api::cuStreamBeginCaptureToGraph(
        stream.0,
        made,
        &last,
        std::ptr::null(),
        1,
        GLOBAL,
    ));
    ok(api::cuMemsetD32Async(buffer.address, 1, 1, stream.0));
    assert_eq!((end(&stream), nodes(made).len()), (made, 4));
    let code =
        api::cuStreamBeginCaptureToGraph(stream.0, foreign(), null(), std::ptr::null(), 0, GLOBAL);
    assert_eq!(code, code::INVALID_HANDLE);
    assert_eq!(
        api::cuStreamUpdateCaptureDependencies(stream.0, null(), 0, 1),
        code::ILLEGAL_STATE
    );
    assert_eq!(
        api::cuStreamIsCapturing(stream.0, null()),
        code::INVALID_VALUE
    );
}

#[test]
fn a_destroyed_context_takes_its_captures_along() {
    let gpu = eager();
    let mut made = null();
    ok(api::cuCtxCreate_v2(&mut made, 0, 0));
    begin(&gpu.stream(), GLOBAL);
    ok(api::cuCtxDestroy_v2(made));
    let mut place = 0;
    ok(api::cuMemAlloc_v2(&mut place, 4));
    ok(api::cuCtxSynchronize());
}

#[test]
fn a_destroyed_stream_takes_its_capture_along() {
    let gpu = eager();
    let (stream, buffer): (Stream, Buffer<u32>) = (gpu.stream(), gpu.zeros(1));
    begin(&stream, GLOBAL);
    ok(api::cuMemsetD32Async(buffer.address, 1, 1, stream.0));
    ok(api::cuStreamDestroy_v2(stream.0));
    // Nothing is left that forbids anything.
    let mut place = 0;
    ok(api::cuMemAlloc_v2(&mut place, 4));
    ok(api::cuCtxSynchronize());
    assert_eq!(gpu.download(&buffer), [0]);
}
