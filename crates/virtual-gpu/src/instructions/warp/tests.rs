//! Exchanges between lanes against plain references.

use crate::instructions::trial::Trial;

/// Numbers without an order.
fn noise(seed: u32, count: usize) -> Vec<u32> {
    let mut state = u64::from(seed) * 2 + 1;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as u32 ^ (state >> 11) as u32
        })
        .collect()
}

/// What the ISA says of a shuffle: the source lane and the predicate.
fn shuffled(mode: &str, lane: i32, b: u32, c: u32) -> (i32, bool) {
    let (b, clamp, segment) = ((b & 31) as i32, (c & 31) as i32, (c >> 8 & 31) as i32);
    let highest = lane & segment | clamp & !segment;
    let lowest = lane & segment;
    let (source, inside) = match mode {
        "up" => (lane - b, lane - b >= highest),
        "down" => (lane + b, lane + b <= highest),
        "bfly" => (lane ^ b, (lane ^ b) <= highest),
        _ => (lowest | b & !segment, (lowest | b & !segment) <= highest),
    };
    (if inside { source } else { lane }, inside)
}

#[test]
fn shuffles_of_every_mode_clamp_and_segment() {
    for mode in ["up", "down", "bfly", "idx"] {
        for (seed, c) in [
            0x1f,
            0,
            0x181f,
            0x1c1f,
            0x1e1f,
            0x1800,
            0x1c00,
            0x0807,
            0x0c13,
            0xffff_ffff,
        ]
        .into_iter()
        .enumerate()
        {
            let values = noise(seed as u32, 32);
            let by = noise(seed as u32 + 100, 32);
            for legacy in [false, true] {
                let (sync, members) = if legacy {
                    ("", "")
                } else {
                    (".sync", ", 0xffffffff")
                };
                let body = format!(
                    "mov.b32 %x0, %i0;\nshfl{sync}.{mode}.b32 %x0|%p0, %x0, %i1, {c}{members};\nmov.b32 %o0, %x0;\n\
                     mov.b32 %o1, 0;\n@%p0 mov.b32 %o1, 1;\nshfl{sync}.{mode}.b32 %o2, %i0, 1, {c}{members};"
                );
                let mut trial = Trial::new(body).input(values.clone()).input(by.clone());
                trial.outputs = 3;
                if legacy {
                    trial.target = 60;
                }
                let got = trial.done().outputs;
                for lane in 0..32 {
                    let (source, inside) = shuffled(mode, lane as i32, by[lane], c);
                    assert_eq!(
                        got[0][lane], values[source as usize],
                        "{mode} {c:#x} lane {lane}"
                    );
                    assert_eq!(got[1][lane], u32::from(inside), "{mode} {c:#x} lane {lane}");
                    let (source, _) = shuffled(mode, lane as i32, 1, c);
                    assert_eq!(
                        got[2][lane], values[source as usize],
                        "{mode} {c:#x} by 1, lane {lane}"
                    );
                }
            }
        }
    }
}

#[test]
fn votes_count_the_members_only() {
    for (seed, members) in [u32::MAX, 0x0000_ffff, 0x8000_0001, 0x0f0f_1234]
        .into_iter()
        .enumerate()
    {
        for votes in [0, u32::MAX, members, !members, noise(seed as u32, 1)[0]] {
            let ones: Vec<u32> = (0..32)
                .map(|lane| u32::from(votes >> lane & 1 != 0))
                .collect();
            let taking_part: Vec<u32> = (0..32)
                .map(|lane| u32::from(members >> lane & 1 != 0))
                .collect();
            let body = format!(
                "{}{}mov.b32 %o0, 7;\nmov.b32 %o1, 7;\nmov.b32 %o2, 7;\nmov.b32 %o3, 7;\nmov.b32 %o4, 7;\n\
                 @%p1 vote.sync.all.pred %p2, %p0, {members};\n@%p1 vote.sync.any.pred %p3, %p0, {members};\n\
                 @%p1 vote.sync.uni.pred %p4, %p0, {members};\n@%p1 vote.sync.ballot.b32 %o3, %p0, {members};\n\
                 @%p1 vote.sync.all.pred %p5, !%p0, {members};\n\
                 @!%p1 bra DONE;\nmov.b32 %o0, 0;\n@%p2 mov.b32 %o0, 1;\nmov.b32 %o1, 0;\n@%p3 mov.b32 %o1, 1;\n\
                 mov.b32 %o2, 0;\n@%p4 mov.b32 %o2, 1;\nmov.b32 %o4, 0;\n@%p5 mov.b32 %o4, 1;\nDONE:",
                predicate("%p0", "%i0"),
                predicate("%p1", "%i1"),
            );
            let mut trial = Trial::new(body).input(ones).input(taking_part);
            trial.outputs = 5;
            let got = trial.done().outputs;
            let cast = votes & members;
            for lane in 0..32 {
                let inside = members >> lane & 1 != 0;
                let expected = |value: u32| if inside { value } else { 7 };
                assert_eq!(
                    got[0][lane],
                    expected(u32::from(cast == members)),
                    "all {members:#x} {votes:#x}"
                );
                assert_eq!(
                    got[1][lane],
                    expected(u32::from(cast != 0)),
                    "any {members:#x} {votes:#x}"
                );
                assert_eq!(
                    got[2][lane],
                    expected(u32::from(cast == members || cast == 0)),
                    "uni {members:#x}"
                );
                assert_eq!(
                    got[3][lane],
                    expected(cast),
                    "ballot {members:#x} {votes:#x}"
                );
                assert_eq!(
                    got[4][lane],
                    expected(u32::from(cast == 0)),
                    "all of not {members:#x} {votes:#x}"
                );
            }
        }
    }
}

/// Sets a predicate from a word of 0 or 1.
fn predicate(predicate: &str, word: &str) -> String {
    format!("setp.ne.u32 {predicate}, {word}, 0;\n")
}

#[test]
fn matches_find_equal_values() {
    for choices in [1, 2, 5, 1000] {
        let values: Vec<u32> = noise(choices, 32)
            .iter()
            .map(|value| value % choices)
            .collect();
        let high: Vec<u32> = noise(choices + 7, 32)
            .iter()
            .map(|value| value % 2)
            .collect();
        let body = "match.any.sync.b32 %o0, %i0, 0xffffffff;\nmov.b64 %l0, {%i0, %i1};\n\
                    match.any.sync.b64 %o1, %l0, 0xffffffff;\nmatch.all.sync.b32 %o2|%p0, %i0, 0xffffffff;\n\
                    mov.b32 %o3, 0;\n@%p0 mov.b32 %o3, 1;\nmatch.all.sync.b64 %o4, %l0, 0xffffffff;";
        let mut trial = Trial::new(body).input(values.clone()).input(high.clone());
        trial.outputs = 5;
        let got = trial.done().outputs;
        let pairs: Vec<(u32, u32)> = values.iter().copied().zip(high).collect();
        for lane in 0..32 {
            let same = |equal: &dyn Fn(usize) -> bool| {
                (0..32)
                    .filter(|&other| equal(other))
                    .fold(0u32, |set, other| set | 1 << other)
            };
            let words = same(&|other| values[other] == values[lane]);
            let longs = same(&|other| pairs[other] == pairs[lane]);
            assert_eq!(got[0][lane], words);
            assert_eq!(got[1][lane], longs);
            assert_eq!(got[2][lane], if words == u32::MAX { u32::MAX } else { 0 });
            assert_eq!(got[3][lane], u32::from(words == u32::MAX));
            assert_eq!(got[4][lane], if longs == u32::MAX { u32::MAX } else { 0 });
        }
    }
}

#[test]
fn reductions_of_every_kind() {
    let values = noise(3, 32);
    let signed = || values.iter().map(|&value| value as i32);
    let expected: [(&str, u32); 9] = [
        (
            "add.u32",
            values.iter().fold(0, |sum, value| sum.wrapping_add(*value)),
        ),
        (
            "add.s32",
            values.iter().fold(0, |sum, value| sum.wrapping_add(*value)),
        ),
        ("min.u32", values.iter().copied().min().unwrap()),
        ("max.u32", values.iter().copied().max().unwrap()),
        ("min.s32", signed().min().unwrap() as u32),
        ("max.s32", signed().max().unwrap() as u32),
        (
            "and.b32",
            values.iter().fold(u32::MAX, |sum, value| sum & value),
        ),
        ("or.b32", values.iter().fold(0, |sum, value| sum | value)),
        ("xor.b32", values.iter().fold(0, |sum, value| sum ^ value)),
    ];
    for (name, expected) in expected {
        let mut trial =
            Trial::new(format!("redux.sync.{name} %o0, %i0, 0xffffffff;")).input(values.clone());
        trial.outputs = 1;
        assert_eq!(trial.done().outputs[0], [expected; 32], "{name}");
    }
}

#[test]
fn lanes_that_name_different_masks_keep_to_themselves() {
    // Four sets, by the lane's two lowest bits, in one instruction.
    let values = noise(9, 32);
    let members: Vec<u32> = (0..32).map(|lane| 0x1111_1111 << (lane % 4)).collect();
    let body = "redux.sync.add.u32 %o0, %i0, %i1;\nelect.sync %o1|%p0, %i1;\nmov.b32 %o2, 0;\n@%p0 mov.b32 %o2, 1;\n\
                activemask.b32 %o3;";
    let mut trial = Trial::new(body).input(values.clone()).input(members);
    trial.outputs = 4;
    let got = trial.done().outputs;
    for lane in 0..32 {
        let sum = (0..8).fold(0u32, |sum, step| {
            sum.wrapping_add(values[lane % 4 + 4 * step])
        });
        assert_eq!(got[0][lane], sum);
        assert_eq!(got[1][lane], lane as u32 % 4);
        assert_eq!(got[2][lane], u32::from(lane < 4));
        assert_eq!(got[3][lane], u32::MAX);
    }
}

#[test]
fn an_exchange_waits_for_lanes_that_come_later() {
    // Odd lanes take a detour that lies behind the exchange in the text.
    let odd: Vec<u32> = (0..32).map(|lane| lane % 2).collect();
    let body = format!(
        "{}mov.b32 %x0, 1;\n@%p0 bra DETOUR;\nMEET:\nvote.sync.ballot.b32 %o0, %p0, 0xffffffff;\n\
         redux.sync.add.u32 %o1, %x0, 0xffffffff;\nbra DONE;\nDETOUR:\nmov.b32 %x0, 100;\nbra MEET;\nDONE:",
        predicate("%p0", "%i0")
    );
    let mut trial = Trial::new(body).input(odd);
    trial.outputs = 2;
    let got = trial.done().outputs;
    assert_eq!(got[0], [0xaaaa_aaaa; 32]);
    assert_eq!(got[1], [1616; 32]);
}

#[test]
fn lanes_that_have_exited_are_not_waited_for() {
    let odd: Vec<u32> = (0..32).map(|lane| lane % 2).collect();
    let body = format!(
        "{}@%p0 bra AWAY;\nvote.sync.ballot.b32 %o0, !%p0, 0xffffffff;\nbra DONE;\nAWAY:\nexit;\nDONE:",
        predicate("%p0", "%i0")
    );
    let mut trial = Trial::new(body).input(odd);
    trial.outputs = 1;
    let got = trial.done().outputs;
    let expected: Vec<u32> = (0..32)
        .map(|lane| if lane % 2 == 0 { 0x5555_5555 } else { 0 })
        .collect();
    assert_eq!(got[0], expected);
}

#[test]
fn lanes_that_cannot_come_are_a_fault() {
    let odd: Vec<u32> = (0..32).map(|lane| lane % 2).collect();
    let body = format!(
        "{}@%p0 bra OTHER;\nvote.sync.ballot.b32 %x0, %p0, 0xffffffff;\nbra DONE;\nOTHER:\n\
         vote.sync.any.pred %p1, %p0, 0xffffffff;\nDONE:",
        predicate("%p0", "%i0")
    );
    let fault = Trial::new(body).input(odd).fault();
    assert!(fault.to_string().contains("member mask"), "{fault}");
    let fault = Trial::new("redux.sync.add.u32 %x0, 1, 0xffff;").fault();
    assert!(
        fault
            .to_string()
            .contains("does not name the lane that uses it, 16"),
        "{fault}"
    );
}
