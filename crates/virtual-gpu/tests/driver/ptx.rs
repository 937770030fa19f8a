//! The PTX that the tests of the driver run.

/// Small kernels with results that are easy to say.
pub(crate) const SMALL: &str = "
.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .u64 pair[2] = {1, 2};
.const .align 4 .u32 table[4] = {1, 2, 3, 4};
.extern .shared .align 16 .b8 dynamic[];

.visible .entry idle()
{
    ret;
}

// out[i] = value + i
.visible .entry store(.param .u64 out, .param .u32 value)
{
    .reg .u64 %rd<3>;
    .reg .u32 %r<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    add.s32 %r1, %r1, %r5;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}

// out[i] = in[i] + 1
.visible .entry copy_plus_one(.param .u64 in, .param .u64 out)
{
    .reg .u64 %rd<4>;
    .reg .u32 %r<6>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r1, [%rd1];
    add.s32 %r1, %r1, 1;
    st.global.u32 [%rd2], %r1;
    ret;
}

// *cell = *cell * 31 + value, which tells any two orders apart
.visible .entry step(.param .u64 cell, .param .u32 value)
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<4>;
    ld.param.u64 %rd1, [cell];
    ld.param.u32 %r1, [value];
    ld.global.u32 %r2, [%rd1];
    mad.lo.u32 %r3, %r2, 31, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}

// Every thread reads shared memory with a stride of `stride` words.
.visible .entry strided(.param .u64 out, .param .u32 stride)
{
    .shared .align 4 .b8 room[4096];
    .reg .u64 %rd<3>;
    .reg .u32 %r<6>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [stride];
    mov.u32 %r2, %tid.x;
    mul.lo.u32 %r3, %r2, %r1;
    shl.b32 %r3, %r3, 2;
    mov.u32 %r4, room;
    add.u32 %r3, %r3, %r4;
    st.shared.u32 [%r3], %r2;
    bar.sync 0;
    setp.lt.u32 %p1, %r2, 8;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r2;
DONE:
    ret;
}

.visible .entry endless()
{
LOOP:
    bra LOOP;
}

.visible .entry with_dynamic_shared(.param .u64 out)
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %dynamic_smem_size;
    st.global.u32 [%rd1], %r1;
    ret;
}

.visible .entry limited() .maxntid 128, 1, 1
{
    ret;
}

.visible .entry exactly() .reqntid 64, 1, 1
{
    ret;
}

.visible .entry read_counter(.param .u64 out)
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<2>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [counter];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

/// One kernel that runs, and one with an instruction that does not exist here.
pub(crate) const UNSUPPORTED: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry good()
{
    ret;
}
.visible .entry bad(.param .u64 out)
{
    .reg .u64 %rd<2>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [out];
    frobnicate.s32 %r1, %r2;
    ret;
}
";
