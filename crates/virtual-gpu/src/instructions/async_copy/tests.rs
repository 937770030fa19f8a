//! Asynchronous copies: nothing arrives before it is waited for.

use crate::instructions::trial::Trial;

fn words(count: u32) -> Vec<u8> {
    (0..count)
        .flat_map(|word| (word + 100).to_le_bytes())
        .collect()
}

/// A trial of one warp whose thread 0 does all.
fn alone(body: &str, outputs: usize) -> Trial {
    let mut trial = Trial::new(format!(
        "mov.u32 %x9, %tid.x;\nsetp.ne.u32 %p9, %x9, 0;\n@%p9 bra END;\n{body}\nEND:"
    ));
    trial.outputs = outputs;
    trial.scratch = words(64);
    trial
}

#[test]
fn copies_arrive_when_they_are_waited_for() {
    let body = "cp.async.ca.shared.global [s], [%g], 4;\ncp.async.commit_group;\n\
                cp.async.ca.shared.global.L2::128B [s+8], [%g+16], 8;\ncp.async.commit_group;\n\
                cp.async.cg.shared.global [s+16], [%g+32], 16;\ncp.async.commit_group;\n\
                ld.shared.u32 %o0, [s];\ncp.async.wait_group 2;\nld.shared.u32 %o1, [s];\nld.shared.u32 %o2, [s+12];\n\
                cp.async.wait_group 1;\nld.shared.u32 %o3, [s+12];\nld.shared.u32 %o4, [s+28];\n\
                cp.async.ca.shared.global [s+4], [%g+4], 4;\ncp.async.wait_all;\nld.shared.u32 %o5, [s+28];\n\
                ld.shared.u32 %o6, [s+4];\ncp.async.ca.shared.global [s], [%g+80], 4;\ncp.async.wait_group 0;\n\
                ld.shared.u32 %o7, [s];";
    let got: Vec<u32> = alone(body, 8)
        .done()
        .outputs
        .iter()
        .map(|words| words[0])
        .collect();
    let never = u32::MAX;
    // The last copy was not committed, so there is no group to wait for.
    assert_eq!(got, [never, 100, never, 105, never, 111, 101, 100]);
}

#[test]
fn what_is_not_taken_is_zero() {
    let body = "mov.b32 %x0, 6;\ncp.async.cg.shared.global [s], [%g], 16, %x0;\n\
                setp.eq.u32 %p0, %x0, 6;\ncp.async.ca.shared.global [s+16], [%g], 8, %p0;\n\
                cp.async.ca.shared.global [s+24], [%g], 8, !%p0;\ncp.async.cg.shared.global [s+32], [0], 16, 0;\n\
                cp.async.wait_all;\nld.shared.v4.u32 {%o0, %o1, %o2, %o3}, [s];\nld.shared.v4.u32 {%o4, %o5, %o6, %o7}, [s+16];\n\
                ld.shared.u32 %o8, [s+32];";
    let got: Vec<u32> = alone(body, 9)
        .done()
        .outputs
        .iter()
        .map(|words| words[0])
        .collect();
    assert_eq!(got, [100, 101, 0, 0, 0, 0, 100, 101, 0]);
}

#[test]
fn a_missing_wait_is_found_and_a_wait_is_enough() {
    let waits = |wait: &str| {
        let mut trial = alone(
            &format!(
                "cp.async.ca.shared.global [s], [%g], 4;\ncp.async.commit_group;\n{wait}\nld.shared.u32 %o0, [s];"
            ),
            1,
        );
        trial.checked = true;
        trial
    };
    let fault = waits("").fault();
    assert!(
        fault
            .to_string()
            .contains("cp.async that has not been waited for"),
        "{fault}"
    );
    assert_eq!(waits("cp.async.wait_group 0;").done().outputs[0][0], 100);
}

#[test]
fn every_lane_has_its_own_groups() {
    // All lanes commit one group; odd lanes a second, and only they wait until one is left.
    let odd: Vec<u32> = (0..32).map(|lane| lane % 2).collect();
    let body = "mov.u32 %x0, %tid.x;\nshl.b32 %x0, %x0, 2;\nmov.u32 %x1, s;\nadd.u32 %x1, %x1, %x0;\n\
                cvt.u64.u32 %l0, %x0;\nadd.u64 %l0, %l0, %g;\nsetp.ne.u32 %p0, %i0, 0;\n\
                cp.async.ca.shared.global [%x1], [%l0], 4;\ncp.async.commit_group;\n@%p0 cp.async.commit_group;\n\
                cp.async.wait_group 1;\nld.shared.u32 %o0, [%x1];";
    let mut trial = Trial::new(body).input(odd);
    trial.outputs = 1;
    trial.scratch = words(32);
    let expected: Vec<u32> = (0..32)
        .map(|lane| if lane % 2 == 1 { 100 + lane } else { u32::MAX })
        .collect();
    assert_eq!(trial.done().outputs[0], expected);
}

#[test]
fn addresses_are_checked_when_copies_are_issued() {
    let cases = [
        ("cp.async.cg.shared.global [s+8], [%g], 16;", "misaligned"),
        ("cp.async.cg.shared.global [s], [%g+248], 16;", "misaligned"),
        (
            "cp.async.cg.shared.global [s], [%g+256], 16;",
            "illegal address",
        ),
        (
            "cp.async.cg.shared.global [s+16384], [%g], 16;",
            "out of bounds",
        ),
        (
            "cp.async.cg.shared.global [s], [%g], 16, 17;",
            "take 17 bytes",
        ),
    ];
    for (body, expected) in cases {
        let fault = alone(body, 0).fault();
        assert!(fault.to_string().contains(expected), "{body}: {fault}");
    }
}
