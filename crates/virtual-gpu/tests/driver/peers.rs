//! Several devices: peer access of contexts, copies between devices, links that are broken.

use virtual_gpu::machine::{InjectedFaults, Settings};

use crate::api::{self, ok};
use crate::copies::planes;
use crate::gpu::{Buffer, Gpu, Handle, Schedule, arguments, code, set_device};
use crate::{deferred, eager, foreign, logged, null, ptx, settings};

#[test]
fn access_is_enabled_once_and_disabled_once() {
    let gpu = eager();
    let (home, mut answer) = (gpu.context, 9);
    ok(api::cuDeviceCanAccessPeer(&mut answer, 0, 1));
    assert_eq!(answer, 1);
    ok(api::cuDeviceCanAccessPeer(&mut answer, 0, 0));
    assert_eq!(answer, 0);
    ok(api::cuDeviceGetP2PAttribute(&mut answer, 2, 0, 1));
    assert_eq!(answer, 1);
    assert_eq!(
        api::cuDeviceGetP2PAttribute(&mut answer, 99, 0, 1),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuDeviceCanAccessPeer(&mut answer, 0, 7),
        code::INVALID_DEVICE
    );
    assert_eq!(
        api::cuDeviceCanAccessPeer(null(), 0, 1),
        code::INVALID_VALUE
    );
    let other = set_device(1);
    ok(api::cuCtxSetCurrent(home));
    assert_eq!(
        api::cuCtxDisablePeerAccess(other),
        code::PEER_ACCESS_NOT_ENABLED
    );
    assert_eq!(api::cuCtxEnablePeerAccess(other, 1), code::INVALID_VALUE);
    assert_eq!(
        api::cuCtxEnablePeerAccess(home, 0),
        code::PEER_ACCESS_UNSUPPORTED
    );
    assert_eq!(
        api::cuCtxEnablePeerAccess(foreign(), 0),
        code::INVALID_CONTEXT
    );
    ok(api::cuCtxEnablePeerAccess(other, 0));
    assert_eq!(
        api::cuCtxEnablePeerAccess(other, 0),
        code::PEER_ACCESS_ALREADY_ENABLED
    );
    ok(api::cuCtxDisablePeerAccess(other));
    assert_eq!(
        api::cuCtxDisablePeerAccess(other),
        code::PEER_ACCESS_NOT_ENABLED
    );
}

#[test]
fn kernels_use_a_peers_memory_only_with_access() {
    let gpu = eager();
    let home = gpu.context;
    let module = gpu.module(ptx::SMALL);
    let mine: Buffer<u32> = gpu.zeros(32);
    let other = set_device(1);
    let theirs: Buffer<u32> = gpu.upload(&[5; 32]);
    ok(api::cuCtxSetCurrent(home));
    ok(api::cuCtxEnablePeerAccess(other, 0));
    gpu.run(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        arguments![&theirs, &mine],
    );
    assert_eq!(gpu.download(&mine), [6; 32]);
    gpu.run(&module, "store", 1u32, 32u32, arguments![&theirs, 1u32]);
    assert_eq!(gpu.download(&theirs)[31], 32);
    // It goes one way only.
    ok(api::cuCtxDisablePeerAccess(other));
    let failed = gpu.try_run(
        &module,
        "copy_plus_one",
        1u32,
        32u32,
        0,
        arguments![&theirs, &mine],
    );
    assert_eq!(failed, Err(code::ILLEGAL_ADDRESS));
    logged(
        &gpu,
        &[
            "copy_plus_one",
            "the address is device 1's, without peer access",
            "128 bytes",
        ],
    );
    // Only that context is lost.
    set_device(1);
    assert_eq!(gpu.download(&theirs)[0], 1);
}

#[test]
fn copies_go_between_devices_without_access() {
    for seed in 0..4 {
        let gpu = deferred(seed);
        let home = gpu.context;
        let module = gpu.module(ptx::SMALL);
        let mine: Buffer<u32> = gpu.zeros(32);
        ok(api::cuCtxSynchronize());
        let other = set_device(1);
        let theirs: Buffer<u32> = gpu.zeros(32);
        ok(api::cuCtxSynchronize());
        ok(api::cuCtxSetCurrent(home));
        let stream = gpu.stream();
        gpu.launch(
            &module,
            "store",
            1u32,
            32u32,
            0,
            &stream,
            arguments![&mine, 9u32],
        )
        .unwrap();
        ok(api::cuMemcpyPeerAsync(
            theirs.address,
            other,
            mine.address,
            home,
            128,
            stream.0,
        ));
        let done = gpu.record(&stream);
        // The other device waits for the first one's event.
        ok(api::cuCtxSetCurrent(other));
        let there = gpu.stream();
        gpu.wait(&there, &done);
        let module = gpu.module(ptx::SMALL);
        gpu.launch(
            &module,
            "copy_plus_one",
            1u32,
            32u32,
            0,
            &there,
            arguments![&theirs, &theirs],
        )
        .unwrap();
        ok(api::cuStreamSynchronize(there.0));
        assert_eq!(gpu.download(&theirs)[31], 41, "seed {seed}");
        ok(api::cuMemcpyPeer(
            theirs.address,
            other,
            mine.address,
            home,
            4,
        ));
        ok(api::cuMemcpyDtoD_v2(theirs.address + 4, mine.address, 4));
        ok(api::cuMemcpy3DPeer(&planes(
            mine.address,
            theirs.address + 8,
            [4, 1, 1],
        )));
        ok(api::cuMemcpy3DPeerAsync(
            &planes(mine.address, theirs.address + 12, [4, 1, 1]),
            there.0,
        ));
        ok(api::cuCtxSynchronize());
        assert_eq!(gpu.download(&theirs)[..4], [9; 4]);
        let wrong = api::cuMemcpyPeer(theirs.address, foreign(), mine.address, home, 4);
        assert_eq!(wrong, code::INVALID_CONTEXT);
        assert_eq!(gpu.machine.counters().peer_to_peer, (5, 128 + 16));
    }
}

#[test]
fn a_broken_link_refuses_access_and_nothing_else() {
    let broken = Settings {
        devices: 3,
        inject: InjectedFaults {
            broken_peer_link: Some((1, 0)),
            ..InjectedFaults::default()
        },
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Parallel, broken);
    let contexts: Vec<Handle> = (0..3).map(set_device).collect();
    let mut answer = 9;
    for (one, other, linked) in [(0, 1, 0), (1, 0, 0), (0, 2, 1), (2, 1, 1)] {
        ok(api::cuDeviceCanAccessPeer(&mut answer, one, other));
        assert_eq!(answer, linked);
        ok(api::cuCtxSetCurrent(contexts[one as usize]));
        let code = api::cuCtxEnablePeerAccess(contexts[other as usize], 0);
        assert_eq!(code == 0, linked == 1);
        assert!(code == 0 || code == code::PEER_ACCESS_UNSUPPORTED);
    }
    logged(&gpu, &["devices 0 and 1 have no link"]);
    // Copies are staged through the host then, as on hardware.
    ok(api::cuCtxSetCurrent(contexts[0]));
    let mine: Buffer<u32> = gpu.upload(&[1, 2]);
    ok(api::cuCtxSetCurrent(contexts[1]));
    let theirs: Buffer<u32> = gpu.zeros(2);
    ok(api::cuMemcpyPeer(
        theirs.address,
        contexts[1],
        mine.address,
        contexts[0],
        8,
    ));
    assert_eq!(gpu.download(&theirs), [1, 2]);
}
