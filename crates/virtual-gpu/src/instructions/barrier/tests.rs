//! Barriers: who waits for whom, and reductions over a block.

use crate::instructions::trial::Trial;

#[test]
fn reductions_over_a_block() {
    // 50 threads: the second warp is not full.
    for (name, pattern) in [
        ("none", 0u64),
        ("some", 0x1_8000_0000_0421),
        ("all", u64::MAX),
    ] {
        let ones: Vec<u32> = (0..50)
            .map(|thread| (pattern >> thread & 1) as u32)
            .collect();
        let count: u32 = ones.iter().sum();
        let body = "setp.ne.u32 %p0, %i0, 0;\nbar.red.popc.u32 %o0, 1, %p0;\nbar.red.and.pred %p1, 0, %p0;\n\
                    barrier.cta.red.or.aligned.pred %p2, 0, !%p0;\nmov.b32 %o1, 0;\n@%p1 mov.b32 %o1, 1;\n\
                    mov.b32 %o2, 0;\n@%p2 mov.b32 %o2, 1;\nmembar.gl;\nfence.acq_rel.gpu;\nfence.sc.cta;";
        let mut trial = Trial::new(body).input(ones);
        trial.threads = 50;
        trial.outputs = 3;
        let got = trial.done().outputs;
        assert_eq!(got[0], [count; 50], "{name}");
        assert_eq!(got[1], [u32::from(count == 50); 50], "{name}");
        assert_eq!(got[2], [u32::from(count != 50); 50], "{name}");
    }
}

/// The number of the warp, of two.
fn second_warp() -> Vec<u32> {
    (0..64).map(|thread| thread / 32).collect()
}

#[test]
fn a_barrier_orders_the_warps() {
    let body = "mov.u32 %x0, %tid.x;\nsetp.eq.u32 %p0, %x0, 40;\n@%p0 st.shared.u32 [s], 17;\nbar.sync 0;\n\
                ld.shared.u32 %o0, [s];";
    let mut trial = Trial::new(body);
    trial.threads = 64;
    trial.outputs = 1;
    trial.checked = true;
    assert_eq!(trial.done().outputs[0], [17; 64]);
}

#[test]
fn who_arrives_does_not_wait() {
    // The first warp waits for the second, which has said that it is there and goes on to the next barrier.
    let body = "setp.ne.u32 %p0, %i0, 0;\n@%p0 bra PRODUCE;\nbar.sync 3, 64;\nld.shared.u32 %o0, [s];\nbra DONE;\n\
                PRODUCE:\nst.shared.u32 [s], 5;\nbar.arrive 3, 64;\nmov.b32 %o0, 6;\nDONE:\nbar.sync 0;";
    let mut trial = Trial::new(body).input(second_warp());
    trial.threads = 64;
    trial.outputs = 1;
    let got = trial.done().outputs;
    assert!(
        got[0]
            .iter()
            .enumerate()
            .all(|(thread, &value)| value == if thread < 32 { 5 } else { 6 })
    );
}

#[test]
fn a_warp_counts_as_a_whole_once_all_of_it_has_come() {
    // 48 threads: the second warp has 16 lanes, and they count for 32 where they arrive and where they wait.
    for (second, waits) in [("bar.arrive 1, 64;", false), ("bar.sync 1, 64;", true)] {
        let body = format!(
            "mov.u32 %x0, %tid.x;\nsetp.ge.u32 %p0, %x0, 32;\n@%p0 bra SECOND;\nbar.sync 1, 64;\n\
             ld.shared.u32 %o0, [s];\nbra DONE;\nSECOND:\nst.shared.u32 [s], 5;\n{second}\nmov.b32 %o0, 6;\nDONE:"
        );
        let mut trial = Trial::new(body);
        trial.threads = 48;
        trial.outputs = 1;
        let got = trial.done().outputs;
        assert_eq!(got[0][..32], [5; 32], "{waits}");
        assert_eq!(got[0][32..], [6; 16], "{waits}");
    }
}

#[test]
fn two_halves_of_a_warp_do_not_count_twice() {
    // Each half of the first warp waits at a barrier of its own text; without the second warp it must not open.
    let body = "mov.u32 %x0, %tid.x;\nsetp.ge.u32 %p0, %x0, 32;\n@%p0 bra SECOND;\nand.b32 %x1, %x0, 1;\n\
                setp.eq.u32 %p1, %x1, 1;\n@%p1 bra ODD;\nbarrier.sync 1, 64;\nld.shared.u32 %o0, [s];\nbra DONE;\n\
                ODD:\nbarrier.sync 1, 64;\nld.shared.u32 %o0, [s];\nbra DONE;\n\
                SECOND:\nst.shared.u32 [s], 5;\nbarrier.sync 1, 64;\nmov.b32 %o0, 5;\nDONE:";
    let mut trial = Trial::new(body);
    trial.threads = 64;
    trial.outputs = 1;
    trial.checked = true;
    assert_eq!(trial.done().outputs[0], [5; 64]);
}

#[test]
fn lanes_of_a_warp_meet_at_different_places_of_the_text() {
    let odd: Vec<u32> = (0..32).map(|lane| lane % 2).collect();
    let body = "setp.ne.u32 %p0, %i0, 0;\n@%p0 bra ODD;\nst.shared.u32 [s], 1;\nbar.warp.sync 0xffffffff;\n\
                ld.shared.u32 %o0, [s+4];\nbra DONE;\nODD:\nst.shared.u32 [s+4], 2;\nbar.warp.sync 0xffffffff;\n\
                ld.shared.u32 %o0, [s];\nDONE:";
    let mut trial = Trial::new(body).input(odd);
    trial.outputs = 1;
    let expected: Vec<u32> = (0..32).map(|lane| 2 - lane % 2).collect();
    assert_eq!(trial.done().outputs[0], expected);
}

#[test]
fn misuse_is_a_named_fault() {
    let odd: Vec<u32> = (0..64).map(|thread| thread % 2).collect();
    let cases = [
        (
            "setp.ne.u32 %p0, %i0, 0;\n@%p0 bar.sync 0;",
            "divergent barrier",
        ),
        (
            "setp.ne.u32 %p0, %i0, 0;\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA: bar.sync 1;\nB:",
            "divergent barrier",
        ),
        ("mov.u32 %x0, 16;\nbar.sync %x0;", "numbered 0 to 15"),
        ("mov.u32 %x0, 33;\nbar.sync 1, %x0;", "multiple of 32"),
        ("bar.sync %i0;", "different barriers"),
        (
            "mov.u32 %x0, %warpid;\nsetp.ne.u32 %p0, %x0, 0;\n@%p0 bra A;\nbar.sync 2;\nA:\nbar.sync 3, 64;",
            "waits at a barrier",
        ),
    ];
    for (body, expected) in cases {
        let mut trial = Trial::new(body).input(odd.clone());
        trial.threads = 64;
        let fault = trial.fault();
        assert!(fault.to_string().contains(expected), "{body}: {fault}");
    }
}

#[test]
fn a_warp_that_spins_lets_the_next_one_run() {
    // The first warp reads shared memory until the second has written to it, without and with a pause.
    for pause in ["", "nanosleep.u32 100;\n"] {
        let body = format!(
            "mov.u32 %x0, %tid.x;\nsetp.eq.u32 %p0, %x0, 0;\n@%p0 st.shared.u32 [s], 0;\nbar.sync 0;\n\
             setp.lt.u32 %p1, %x0, 32;\n@%p1 bra SPIN;\nst.volatile.shared.u32 [s], 9;\nbra DONE;\n\
             SPIN:\n{pause}ld.volatile.shared.u32 %o0, [s];\nsetp.eq.u32 %p2, %o0, 0;\n@%p2 bra SPIN;\nDONE:\n"
        );
        let mut trial = Trial::new(body);
        (trial.threads, trial.outputs) = (64, 1);
        assert_eq!(trial.done().outputs[0][..32], [9; 32]);
    }
}
