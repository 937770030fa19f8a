//! Barriers in shared memory: phases, states, parities, counts, copies, and misuse.

use crate::instructions::trial::Trial;

/// `%p0` in the first thread.
const FIRST: &str = "mov.u32 %x0, %tid.x;\nsetp.eq.u32 %p0, %x0, 0;\n";

#[test]
fn a_phase_ends_with_its_last_arrival() {
    // One warp writes, arrives and does not wait; the other waits by state and reads, with the checks of races on.
    let body = format!(
        "{FIRST}@%p0 mbarrier.init.shared.b64 [s], 64;\nbar.sync 0;\nshl.b32 %x1, %x0, 2;\nmov.u32 %x2, s;\n\
         add.u32 %x1, %x1, %x2;\nst.shared.u32 [%x1+64], %x0;\n\
         mbarrier.arrive.release.cta.shared::cta.b64 %l0, [s];\n\
         WAIT:\nmbarrier.test_wait.shared.b64 %p1, [s], %l0;\n@!%p1 bra WAIT;\n\
         mov.u32 %x3, 63;\nsub.u32 %x3, %x3, %x0;\nshl.b32 %x3, %x3, 2;\nadd.u32 %x3, %x3, %x2;\n\
         ld.shared.u32 %o0, [%x3+64];"
    );
    let mut trial = Trial::new(body);
    (trial.threads, trial.outputs, trial.checked) = (64, 1, true);
    let expected: Vec<u32> = (0..64).map(|thread| 63 - thread).collect();
    assert_eq!(trial.done().outputs[0], expected);
}

#[test]
fn the_first_warp_waits_for_the_second() {
    // Generic addresses, parity, and a count of arrivals at once.
    let body = format!(
        "{FIRST}mov.u32 %x2, s;\ncvt.u64.u32 %l1, %x2;\ncvta.shared.u64 %l1, %l1;\n\
         @%p0 mbarrier.init.b64 [%l1+8], 3;\nbar.sync 0;\nsetp.lt.u32 %p1, %x0, 32;\n@%p1 bra WAIT;\n\
         setp.eq.u32 %p2, %x0, 40;\n@%p2 st.shared.u32 [s+64], 7;\n\
         @%p2 mbarrier.arrive.noComplete.shared.b64 %l0, [s+8], 2;\n\
         @%p2 mbarrier.pending_count.b64 %x4, %l0;\n@!%p2 mov.u32 %x4, 3;\n\
         @%p2 mbarrier.arrive.b64 _, [%l1+8];\nmov.u32 %o0, %x4;\nbra DONE;\n\
         WAIT:\nmbarrier.try_wait.parity.shared.b64 %p3, [s+8], 0, 1000;\n@!%p3 bra WAIT;\n\
         mbarrier.test_wait.parity.shared.b64 %p3, [s+8], 1;\nselp.u32 %x5, 100, 0, %p3;\n\
         ld.shared.u32 %o0, [s+64];\nadd.u32 %o0, %o0, %x5;\nDONE:\nbar.sync 0;"
    );
    let mut trial = Trial::new(body);
    (trial.threads, trial.outputs) = (64, 1);
    let expected: Vec<u32> = (0..64)
        .map(|thread| if thread < 32 { 7 } else { 3 })
        .collect();
    assert_eq!(trial.done().outputs[0], expected);
}

#[test]
fn who_drops_out_is_not_waited_for() {
    let body = format!(
        "{FIRST}@%p0 mbarrier.init.shared.b64 [s], 2;\nbar.sync 0;\nmov.u32 %o0, 0;\n@!%p0 bra DONE;\n\
         mbarrier.arrive_drop.shared.b64 _, [s];\nmbarrier.arrive.shared.b64 %l0, [s];\n\
         mbarrier.arrive.shared.b64 %l0, [s];\nmbarrier.pending_count.b64 %o0, %l0;\n\
         mbarrier.test_wait.parity.shared.b64 %p1, [s], 1;\n@%p1 add.u32 %o0, %o0, 10;\n\
         mbarrier.inval.shared.b64 [s];\nDONE:\n"
    );
    let mut trial = Trial::new(body);
    trial.outputs = 1;
    assert_eq!(trial.done().outputs[0][0], 11);
}

#[test]
fn copies_arrive() {
    for (count, arrive) in [
        (32, "cp.async.mbarrier.arrive.noinc.shared.b64 [s];"),
        (
            32,
            "cp.async.mbarrier.arrive.shared.b64 [s];\nmbarrier.arrive.shared.b64 %l0, [s];",
        ),
    ] {
        let body = format!(
            "{FIRST}@%p0 mbarrier.init.shared.b64 [s], {count};\nbar.sync 0;\nshl.b32 %x1, %x0, 2;\nmov.u32 %x2, s;\n\
             add.u32 %x2, %x1, %x2;\ncvt.u64.u32 %l1, %x1;\nadd.u64 %l1, %l1, %g;\n\
             cp.async.ca.shared.global [%x2+64], [%l1], 4;\n{arrive}\n\
             WAIT:\nmbarrier.test_wait.parity.shared.b64 %p1, [s], 0;\n@!%p1 bra WAIT;\nld.shared.u32 %o0, [%x2+64];"
        );
        let mut trial = Trial::new(body);
        (trial.outputs, trial.checked) = (1, true);
        trial.scratch = (0..32u32)
            .flat_map(|word| (word * 3).to_le_bytes())
            .collect();
        let expected: Vec<u32> = (0..32).map(|word| word * 3).collect();
        assert_eq!(trial.done().outputs[0], expected);
    }
}

#[test]
fn misuse_is_named() {
    for (body, message) in [
        (
            "st.shared.u64 [s], 0;\nmbarrier.arrive.shared.b64 %l0, [s];",
            "no mbarrier object",
        ),
        ("mbarrier.init.shared.b64 [s], 0;", "for 0 arrivals"),
        ("mbarrier.init.shared.b64 [s+4], 1;", "misaligned"),
        ("mbarrier.init.b64 [%g], 1;", "not in shared memory"),
        (
            "mbarrier.init.shared.b64 [s], 16;\nmbarrier.arrive.noComplete.shared.b64 %l0, [s], 16;",
            "must not complete",
        ),
        (
            "mbarrier.init.shared.b64 [s], 2;\nmbarrier.arrive.shared.b64 %l0, [s], 3;",
            "3 arrivals",
        ),
    ] {
        let fault = Trial::new(body).fault().to_string();
        assert!(fault.contains(message), "{body}: {fault}");
    }
}
