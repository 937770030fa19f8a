//! Whole kernels: calls with registers and constants, other names of functions, addresses in bytes, the heap of device
//! code, and what counts as a race in shared memory.

use crate::instructions::trial::Trial;
use crate::rig::{Bytes, Rig};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Runs an entry `k` on 32 threads, whose parameter is a buffer of 64 words.
fn words(text: &str) -> Vec<u32> {
    let mut rig = Rig::new(&format!("{HEAD}{text}"));
    let buffer = rig.buffer(256);
    let launched = rig.launch("k", [1, 1, 1], [32, 1, 1], 0, &[&buffer.bytes()]);
    launched.unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    let bytes = rig.read(buffer);
    bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}

/// Stores `%r0` at the thread's word.
const STORE: &str = "ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a], %r0;";

#[test]
fn calls_take_registers_and_constants() {
    let got = words(&format!(
        ".func (.reg .u32 result, .reg .u32 second) both(.reg .u32 a, .reg .u64 b, .param .b32 c)
{{
    .reg .u32 t; .reg .pred odd;
    ld.param.u32 t, [c];
    add.u32 result, a, t;
    cvt.u32.u64 second, b;
    and.b32 t, a, 1;
    setp.eq.u32 odd, t, 1;
    @odd ret;
    add.u32 result, result, 100;
}}
.func (.param .b32 r) plain(.param .b32 a, .param .f32 b)
{{
    .reg .u32 t, u;
    ld.param.u32 t, [a]; ld.param.b32 u, [b]; add.u32 t, t, u; st.param.b32 [r], t; ret;
}}
.entry k(.param .u64 out)
{{
    .reg .u32 %r<9>, %t; .reg .u64 %a, %b;
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %b, %r1;
    call (%r2, %r3), both, (%r1, %b, 7);
    call (%r4), plain, (%r3, 0f00000005);
    mad.lo.u32 %r0, %r4, 1000, %r2;
    {STORE}
    ret;
}}"
    ));
    for (thread, &word) in got[..32].iter().enumerate() {
        let thread = thread as u32;
        let first = thread + 7 + if thread % 2 == 1 { 0 } else { 100 };
        assert_eq!(word, (thread + 5) * 1000 + first, "thread {thread}");
    }
}

#[test]
fn calls_must_fit_the_parameters() {
    let refused = |call: &str| {
        let text = format!(
            "{HEAD}.func (.param .b32 r) f(.param .b32 a, .param .align 4 .b8 b[12]) {{ ret; }}\n\
             .entry k() {{ .reg .b32 %r<4>; .reg .b64 %d; .param .b8 s[12]; .param .b32 p;\n{call} }}"
        );
        let module =
            std::sync::Arc::new(crate::ptx::parse(&text).unwrap_or_else(|error| panic!("{error}")));
        match crate::decode::kernel(&module, 1, &[]) {
            Ok(_) => panic!("this was taken: {call}"),
            Err(error) => error.message,
        }
    };
    for (call, part) in [
        (
            "call (%r0), f, (%r1, %r2);",
            "the parameter must be a single number",
        ),
        (
            "call (%r0), f, (%r1);",
            "has parameters of [4, 12] bytes, the call has [4]",
        ),
        (
            "call f, (%r1, s);",
            "has results of [4] bytes, the call has []",
        ),
        (
            "call (%r0), f, (%r1, s, %r2);",
            "the parameter must be a single number",
        ),
        ("call (%r0), f, (s, s);", "has parameters of [4, 12] bytes"),
        ("call (%r0), %d, (%r1, s);", "needs a prototype"),
    ] {
        let message = refused(call);
        assert!(message.contains(part), "{call}: {message}");
    }
}

#[test]
fn a_function_may_have_another_name() {
    let got = words(&format!(
        ".func (.param .b32 r) other(.param .b32 a);
.func (.param .b32 r) real(.param .b32 a)
{{
    .reg .u32 t;
    ld.param.u32 t, [a]; mul.lo.u32 t, t, 3; st.param.b32 [r], t; ret;
}}
.entry k(.param .u64 out)
{{
    .reg .u32 %r<9>, %t; .reg .u64 %a;
    mov.u32 %r1, %tid.x;
    call (%r0), other, (%r1);
    {STORE}
    ret;
}}
.alias other, real;"
    ));
    assert!(
        got[..32]
            .iter()
            .enumerate()
            .all(|(thread, &word)| word == 3 * thread as u32),
        "{got:?}"
    );
}

#[test]
fn bytes_of_an_address_are_initial_values() {
    let bytes: Vec<String> = (0..8)
        .map(|byte| format!("{:#x}(g+5)", 0xffu64 << (8 * byte)))
        .collect();
    let got = words(&format!(
        ".global .b32 g[4] = {{1, 2, 3, 4}};
.global .align 8 .u8 place[8] = {{{}}};
.entry k(.param .u64 out)
{{
    .reg .u32 %r<9>, %t; .reg .u64 %a;
    ld.global.u64 %a, [place];
    ld.global.u32 %r0, [%a+3];
    {STORE}
    ret;
}}",
        bytes.join(", ")
    ));
    assert_eq!(got[..32], [3; 32]);
}

/// A call of `malloc` for `%l0`.
const ALLOCATE: &str = "call (%l0), malloc, (100);\n";

#[test]
fn the_heap_gives_takes_back_and_runs_out() {
    let body = format!(
        "{ALLOCATE}mov.u32 %x0, %tid.x; st.u32 [%l0], %x0; ld.u32 %o0, [%l0]; call free, (%l0); call free, (0);"
    );
    let mut trial = Trial::new(body);
    trial.outputs = 1;
    trial.checked = true;
    assert_eq!(trial.done().outputs[0], (0..32).collect::<Vec<u32>>());
    // A megabyte, a block of 300000 bytes for every lane.
    let mut trial = Trial::new(
        "call (%l0), malloc, (300000);\nsetp.ne.u64 %p0, %l0, 0; selp.u32 %o0, 1, 0, %p0;",
    );
    trial.outputs = 1;
    assert_eq!(trial.done().outputs[0].iter().sum::<u32>(), 3);
}

#[test]
fn what_a_kernel_does_wrong_with_the_heap_is_found() {
    for (body, part) in [
        (
            "call free, (%l0); call free, (%l0);",
            "freed already; it is 0 bytes into 100 bytes",
        ),
        (
            "add.u64 %l0, %l0, 16; call free, (%l0);",
            "it is 16 bytes into the allocation of 100 bytes",
        ),
        (
            "call free, (%g);",
            "which malloc of device code did not return",
        ),
        (
            "call free, (4096);",
            "which malloc of device code did not return",
        ),
        (
            "st.u32 [%l0], %x0; call free, (%l0); ld.u32 %x1, [%l0];",
            "on the heap of device code it is 0 bytes into 100 bytes",
        ),
        (
            "st.u32 [%l0+100], %x0;",
            "0 bytes past the end of the allocation of 100 bytes",
        ),
        ("st.u32 [%l0+2], %x0;", "misaligned"),
        ("ld.u32 %x0, [%l0+8];", "uninitialised read"),
    ] {
        let mut trial = Trial::new(format!("mov.u32 %x0, 1;\n{ALLOCATE}{body}"));
        trial.checked = true;
        let fault = trial.fault();
        assert!(fault.message.contains(part), "{body}: {fault}");
    }
}

#[test]
fn writes_of_one_value_do_not_race() {
    let same = "mov.u32 %x0, 7; st.shared.u32 [s], %x0;";
    let trial = |body: &str, threads| {
        let mut trial = Trial::new(body);
        trial.threads = threads;
        trial.checked = true;
        trial
    };
    // By the lanes of one instruction, by two instructions of a warp, and by two warps.
    trial(same, 32).done();
    trial(
        &format!(
            "{same}\nmov.u32 %x1, %tid.x; setp.lt.u32 %p0, %x1, 5; @%p0 st.shared.u32 [s], %x0;"
        ),
        32,
    )
    .done();
    trial(same, 64).done();
    // Vectors are compared element by element.
    trial("mov.b64 %l0, 5; st.shared.v2.u64 [s+16], {%l0, %l0};", 64).done();
    for (body, threads) in [
        ("mov.u32 %x0, %tid.x; st.shared.u32 [s], %x0;", 32),
        (
            "mov.u32 %x0, %tid.x; shr.u32 %x0, %x0, 5; st.shared.u32 [s], %x0;",
            64,
        ),
        (
            "mov.u32 %x0, 7; st.shared.u32 [s], %x0; ld.shared.u32 %x1, [s];",
            64,
        ),
        (
            "mov.u32 %x0, %tid.x; mov.u32 %x1, 3; st.shared.v2.u32 [s], {%x1, %x0};",
            32,
        ),
    ] {
        let fault = trial(body, threads).fault();
        assert!(
            fault.message.contains("race in shared memory"),
            "{body}: {fault}"
        );
    }
}

#[test]
fn matrix_instructions_synchronise_the_warp() {
    let multiply = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%x4, %x5}, {%x6}, \
                    {%f4, %f5, %f6, %f7};";
    let exchange = |between: &str| {
        let body = format!(
            "mov.u32 %x0, %tid.x; shl.b32 %x1, %x0, 2; mov.u32 %x2, s; add.u32 %x3, %x2, %x1;\n\
             st.shared.u32 [%x3], %x0;\n{between}\nxor.b32 %x1, %x1, 4; add.u32 %x3, %x2, %x1;\nld.shared.u32 %o0, [%x3];"
        );
        let mut trial = Trial::new(body);
        trial.outputs = 1;
        trial.checked = true;
        trial
    };
    assert_eq!(exchange(multiply).done().outputs[0][..4], [1, 0, 3, 2]);
    assert!(
        exchange("")
            .fault()
            .message
            .contains("race in shared memory")
    );
    // A load of matrices waits for nobody's stores.
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x9}, [%x10];";
    let rows = "mov.u32 %x10, %tid.x; shl.b32 %x10, %x10, 4; and.b32 %x10, %x10, 0x70; add.u32 %x10, %x10, %x2;";
    assert!(
        exchange(&format!("{rows}\n{load}"))
            .fault()
            .message
            .contains("race in shared memory")
    );
    exchange(&format!("bar.warp.sync 0xffffffff;\n{rows}\n{load}")).done();
}

#[test]
fn clocks_go_forward_over_branches_and_calls() {
    let got = words(&format!(
        ".func wait() {{ ret; }}
.entry k(.param .u64 out)
{{
    .reg .u32 %r<9>, %t; .reg .u64 %a, %c<4>; .reg .pred %p;
    mov.u32 %r0, 0;
    mov.u32 %r1, 0;
    bra LATER;
EARLIER:
    mov.u64 %c1, %clock64;
    setp.le.u64 %p, %c1, %c0;
    @%p add.u32 %r0, %r0, 1;
    call wait, ();
    mov.u64 %c2, %clock64;
    setp.le.u64 %p, %c2, %c1;
    @%p add.u32 %r0, %r0, 1;
    add.u32 %r1, %r1, 1;
    setp.ge.u32 %p, %r1, 10;
    @%p bra DONE;
LATER:
    add.u32 %r2, %r1, 1;
    add.u32 %r2, %r2, 1;
    add.u32 %r2, %r2, 1;
    mov.u64 %c0, %clock64;
    bra EARLIER;
DONE:
    {STORE}
    ret;
}}"
    ));
    assert_eq!(
        got[..32],
        [0; 32],
        "readings that were not later than the one before"
    );
}

#[test]
fn local_memory_ends_where_the_function_s_own_does() {
    let text = format!(
        "{HEAD}.entry k(.param .u64 out)
{{
    .local .align 4 .b8 own[16];
    .reg .u32 %r<9>; .reg .u64 %a, %l;
    mov.u64 %l, own;
    mov.u32 %r0, 1;
    st.local.u32 [%l+40], %r0;
    ret;
}}"
    );
    let mut rig = Rig::new(&text);
    let buffer = rig.buffer(256);
    let launched = rig.launch("k", [1, 1, 1], [32, 1, 1], 0, &[&buffer.bytes()]);
    let fault = launched.unwrap_err().to_string();
    assert!(
        fault.contains("local memory address 0x28 is out of bounds"),
        "{fault}"
    );
    assert!(fault.contains("st.local.u32 [%l+40]"), "{fault}");
}

#[test]
fn a_function_with_too_many_values_is_refused_by_name() {
    let numbers: String = (0..300_000)
        .map(|number| format!("add.u64 %l, %l, {};\n", 1_000_000 + number))
        .collect();
    let text = format!("{HEAD}.entry k() {{ .reg .u64 %l; mov.u64 %l, 0;\n{numbers} ret; }}");
    let module = std::sync::Arc::new(crate::ptx::parse(&text).expect("a text"));
    let error = crate::decode::kernel(&module, 0, &[])
        .err()
        .expect("too many");
    assert!(error.to_string().contains("bytes a warp"), "{error}");
}
