//! Grids whose blocks wait for each other: `kernels/cooperative.cu`, and the functions of NVIDIA's device runtime
//! library that other compilers call for it.

use crate::compare::same;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/cooperative.ptx");

crate::kernel_tests! { grid_totals by_intrinsics }

const BLOCKS: u32 = 6;
const ROUNDS: i32 = 4;

fn grid_totals(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (partial, out) = (
        gpu.zeros::<i32>(BLOCKS as usize),
        gpu.zeros::<i32>((BLOCKS * ROUNDS as u32) as usize),
    );
    gpu.run_cooperative(
        &module,
        "grid_totals",
        BLOCKS,
        64,
        arguments![&partial, &out, ROUNDS],
    );
    let blocks = BLOCKS as i32;
    let expected: Vec<i32> = (0..ROUNDS)
        .flat_map(|round| vec![blocks * (blocks + 1) / 2 * (round + 3); BLOCKS as usize])
        .collect();
    same("grid_totals", &gpu.download(&out), &expected);
    let valid = gpu.zeros::<i32>(1);
    gpu.run_cooperative(&module, "grid_is_valid", 1, 1, arguments![&valid]);
    same("a cooperative launch", &gpu.download(&valid), &[1]);
    gpu.run(&module, "grid_is_valid", 1, 1, arguments![&valid]);
    same("another launch", &gpu.download(&valid), &[0]);
}

/// Each thread writes a number, the grid meets, and each thread reads the number of the thread opposite.
const INTRINSICS: &str = ".version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 func_retval0) cudaCGGetIntrinsicHandle(.param .b32 cudaCGGetIntrinsicHandle_param_0);
.extern .func (.param .b32 func_retval0) cudaCGSynchronize
(
    .param .b64 cudaCGSynchronize_param_0,
    .param .b32 cudaCGSynchronize_param_1
);
.visible .entry opposite(.param .u64 numbers, .param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r0, %r1, %r2;
mov.u32 %r4, %nctaid.x; mul.lo.u32 %r4, %r4, %r1;
ld.param.u64 %rd0, [numbers];
mul.wide.u32 %rd1, %r3, 4; add.u64 %rd2, %rd0, %rd1;
st.global.u32 [%rd2], %r3;
{
.param .b32 scope; .param .b64 handle;
st.param.b32 [scope], 1;
call.uni (handle), cudaCGGetIntrinsicHandle, (scope);
ld.param.b64 %rd3, [handle];
}
{
.param .b64 handle; .param .b32 flags; .param .b32 answer;
st.param.b64 [handle], %rd3;
st.param.b32 [flags], 0;
call.uni (answer), cudaCGSynchronize, (handle, flags);
ld.param.b32 %r6, [answer];
}
sub.u32 %r5, %r4, %r3; sub.u32 %r5, %r5, 1;
mul.wide.u32 %rd4, %r5, 4; add.u64 %rd4, %rd0, %rd4;
ld.global.u32 %r7, [%rd4];
mad.lo.u32 %r7, %r6, 1000000, %r7;
ld.param.u64 %rd5, [out];
add.u64 %rd5, %rd5, %rd1;
st.global.u32 [%rd5], %r7;
ret;
}";

fn by_intrinsics(gpu: &Gpu) {
    let module = gpu.module(INTRINSICS);
    let threads = BLOCKS as usize * 48;
    let (numbers, out) = (gpu.zeros::<i32>(threads), gpu.zeros::<i32>(threads));
    gpu.run_cooperative(&module, "opposite", BLOCKS, 48, arguments![&numbers, &out]);
    let expected: Vec<i32> = (0..threads as i32).rev().collect();
    same("opposite", &gpu.download(&out), &expected);
    // Without a cooperative launch the grid does not meet, and the answer says so.
    gpu.run(&module, "opposite", 1, 48, arguments![&numbers, &out]);
    let refused = gpu.download(&out);
    assert!(
        refused[..48].iter().all(|&value| value >= 1_000_000),
        "{refused:?}"
    );
    assert_eq!(gpu.synchronize(), Ok(()));
}
