//! Random calls with random handles, good, stale and foreign: every one is answered, nothing hangs or panics, and
//! another machine is not disturbed.

use crate::api;
use crate::gpu::{Handle, code};
use crate::programs::Random;
use crate::virtual_memory::{properties, rights};
use crate::{deferred, eager, null, ptx, settings};

/// Whatever was made so far, destroyed or not, and some that never was.
fn any(random: &mut Random, made: &[Handle]) -> Handle {
    match random.below(12) {
        0 => null(),
        1 => 0x5_0000 as Handle,
        2 => 2 as Handle,
        _ => made[random.below(made.len())],
    }
}

#[test]
fn random_calls_are_answered() {
    for seed in 0..60 {
        let gpu = if seed % 2 == 0 {
            deferred(seed)
        } else {
            eager()
        };
        let module = gpu.module(ptx::SMALL);
        let mut random = Random(seed * 31 + 5);
        let mut made: Vec<Handle> = vec![
            gpu.context,
            module.0,
            gpu.function(&module, "store"),
            gpu.function(&module, "step"),
            gpu.function(&module, "idle"),
            gpu.stream().0,
        ];
        for _ in 0..300 {
            let (a, b) = (any(&mut random, &made), any(&mut random, &made));
            let (mut out, mut address, size) =
                (null(), 0u64, [0, 4, 512, 1 << 20][random.below(4)]);
            let code = match random.below(50) {
                0 => api::cuStreamCreate(&mut out, random.below(3) as u32),
                1 => api::cuStreamDestroy_v2(a),
                2 => api::cuStreamSynchronize(a),
                3 => api::cuStreamQuery(a),
                4 => api::cuStreamWaitEvent(a, b, random.below(2) as u32),
                5 => api::cuEventCreate(&mut out, random.below(4) as u32),
                6 => api::cuEventDestroy_v2(a),
                7 => api::cuEventRecord(a, b),
                8 => api::cuEventSynchronize(a),
                9 => api::cuEventQuery(a),
                10 | 11 => {
                    let code = api::cuMemAlloc_v2(&mut address, size);
                    out = address as Handle;
                    code
                }
                12 => api::cuMemFree_v2(a as u64),
                13 => {
                    let code = api::cuMemAllocAsync(&mut address, size, b);
                    out = address as Handle;
                    code
                }
                14 => api::cuMemFreeAsync(a as u64, b),
                15 => api::cuMemcpyDtoDAsync_v2(a as u64, b as u64, size, any(&mut random, &made)),
                16 => api::cuMemsetD8Async(a as u64, 1, size, b),
                17 => api::cuMemsetD32_v2(a as u64, 1, size),
                18 => api::cuModuleGetFunction(&mut out, a, c"step".as_ptr()),
                19 => api::cuLaunchKernel(a, 1, 1, 1, 1, 1, 1, 0, b, null(), null()),
                20 => {
                    let given = crate::gpu::arguments![b as u64, 1u32];
                    let mut params = crate::gpu::pointers(given);
                    api::cuLaunchKernel(a, 1, 1, 1, 1, 1, 1, 0, null(), params.as_mut_ptr(), null())
                }
                21 => api::cuStreamBeginCapture_v2(a, random.below(4) as u32),
                22 | 23 => api::cuStreamEndCapture(a, &mut out),
                24 => api::cuGraphCreate(&mut out, 0),
                25 => api::cuGraphDestroy(a),
                26 => api::cuGraphAddEmptyNode(&mut out, a, &b, random.below(2)),
                27 => api::cuGraphAddDependencies(a, &b, &any(&mut random, &made), 1),
                28 => api::cuGraphInstantiateWithFlags(&mut out, a, random.below(2) as u64),
                29 => api::cuGraphLaunch(a, b),
                30 => api::cuGraphExecDestroy(a),
                31 => api::cuGraphAddChildGraphNode(&mut out, a, null(), 0, b),
                32 => api::cuGraphDestroyNode(a),
                33 => api::cuMemPoolTrimTo(a, size),
                34 => api::cuCtxWaitEvent(a, b),
                35 => api::cuCtxRecordEvent(a, b),
                36 => api::cuCtxEnablePeerAccess(a, 0),
                37 => api::cuCtxSynchronize(),
                38 => api::cuGraphClone(&mut out, a),
                39 => {
                    let mut params = crate::graph_memory::params(size);
                    let code = api::cuGraphAddMemAllocNode(&mut out, a, null(), 0, &mut params);
                    if code == 0 {
                        made.push(params.dptr as Handle);
                    }
                    code
                }
                40 => api::cuGraphAddMemFreeNode(&mut out, a, &b, 1, b as u64),
                41 => api::cuMemAllocHost_v2(&mut out, size),
                42 => api::cuMemFreeHost(a),
                43 => {
                    let code = api::cuMemAddressReserve(&mut address, 2 << 20, 0, 0, 0);
                    out = address as Handle;
                    code
                }
                44 => {
                    let code = api::cuMemCreate(&mut address, 2 << 20, &properties(0), 0);
                    out = address as Handle;
                    code
                }
                45 => api::cuMemMap(a as u64, 2 << 20, 0, b as u64, 0),
                46 => api::cuMemUnmap(a as u64, 2 << 20),
                47 => api::cuMemRelease(a as u64),
                48 => api::cuMemSetAccess(a as u64, 2 << 20, &rights(0, 3), 1),
                _ => api::cuDeviceGetDefaultMemPool(&mut out, random.below(3) as i32),
            };
            let mut text = std::ptr::null();
            assert_eq!(api::cuGetErrorName(code, &mut text), 0, "code {code}");
            assert_ne!(code, 999, "{:?}", gpu.machine.log_lines().last());
            if code == 0 && !out.is_null() {
                made.push(out);
            }
        }
        // It ends in a state that can be asked, whatever that is, and another machine knows nothing of it.
        let _ = api::cuCtxSynchronize();
        let lines = gpu.machine.log_lines();
        assert!(
            !lines.iter().any(|line| line.contains("panicked")),
            "{lines:?}"
        );
        let other = virtual_gpu::machine::Machine::new(settings()).unwrap();
        let _entered = other.enter();
        assert_eq!(api::cuInit(0), 0);
        assert_eq!(api::cuCtxSynchronize(), code::INVALID_CONTEXT);
    }
}
