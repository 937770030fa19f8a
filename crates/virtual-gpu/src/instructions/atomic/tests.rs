//! Atomics against plain references, alone and under contention.

use half::{bf16, f16};

use crate::instructions::trial::Trial;

/// A value of up to 64 bits, its bits and its changes.
struct Case {
    name: &'static str,
    /// Bytes.
    size: usize,
    start: u64,
    operands: Vec<u64>,
    /// For `cas`: what is compared with.
    comparands: Option<Vec<u64>>,
    change: fn(old: u64, operand: u64, comparand: u64) -> u64,
}

fn integers(size: usize) -> Vec<u64> {
    let mask = u64::MAX >> (64 - 8 * size);
    (0..32u64)
        .map(|lane| {
            lane.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(lane as u32 * 5)
                & mask
        })
        .collect()
}

fn floats(bits: fn(f64) -> u64) -> Vec<u64> {
    (0..32)
        .map(|lane| bits(f64::from((lane * 37 + 11) % 29) * 0.75 - 9.0))
        .collect()
}

fn f16s(value: f64) -> u64 {
    f16::from_f64(value).to_bits().into()
}

fn bf16s(value: f64) -> u64 {
    bf16::from_f64(value).to_bits().into()
}

fn f16_of(bits: u64) -> f16 {
    f16::from_bits(bits as u16)
}

fn bf16_of(bits: u64) -> bf16 {
    bf16::from_bits(bits as u16)
}

/// The same twice, in halves of a word.
fn pairs(values: Vec<u64>) -> Vec<u64> {
    let turned: Vec<u64> = values.iter().rev().copied().collect();
    values
        .iter()
        .zip(turned)
        .map(|(low, high)| low | high << 16)
        .collect()
}

fn both(a: u64, b: u64, change: fn(u64, u64) -> u64) -> u64 {
    change(a & 0xffff, b & 0xffff) | change(a >> 16, b >> 16) << 16
}

fn cases() -> Vec<Case> {
    macro_rules! case {
        ($name:literal, $size:literal, $start:expr, $operands:expr, |$old:ident, $operand:ident| $change:expr) => {
            Case {
                name: $name,
                size: $size,
                start: $start,
                operands: $operands,
                comparands: None,
                change: |$old, $operand, _| $change,
            }
        };
    }
    let f32s = || floats(|value| (value as f32).to_bits().into());
    let f64s = || floats(f64::to_bits);
    vec![
        case!("add.u32", 4, 0xffff_fff0, integers(4), |old, x| u64::from(
            (old as u32).wrapping_add(x as u32)
        )),
        case!("add.s32", 4, 5, integers(4), |old, x| u64::from(
            (old as u32).wrapping_add(x as u32)
        )),
        case!("add.u64", 8, 5, integers(8), |old, x| old.wrapping_add(x)),
        case!("add.f32", 4, 0, f32s(), |old, x| {
            u64::from((f32::from_bits(old as u32) + f32::from_bits(x as u32)).to_bits())
        }),
        case!("add.f64", 8, 0, f64s(), |old, x| (f64::from_bits(old)
            + f64::from_bits(x))
        .to_bits()),
        case!("add.noftz.f16", 2, 0, floats(f16s), |old, x| f16s(
            f16_of(old).to_f64() + f16_of(x).to_f64()
        )),
        case!("add.noftz.bf16", 2, 0, floats(bf16s), |old, x| bf16s(
            bf16_of(old).to_f64() + bf16_of(x).to_f64()
        )),
        case!("add.noftz.f16x2", 4, 0, pairs(floats(f16s)), |old, x| {
            both(old, x, |old, x| {
                f16s(f16_of(old).to_f64() + f16_of(x).to_f64())
            })
        }),
        case!("add.noftz.bf16x2", 4, 0, pairs(floats(bf16s)), |old, x| {
            both(old, x, |old, x| {
                bf16s(bf16_of(old).to_f64() + bf16_of(x).to_f64())
            })
        }),
        case!("min.u32", 4, 0xffff_ffff, integers(4), |old, x| old.min(x)),
        case!("max.u32", 4, 0, integers(4), |old, x| old.max(x)),
        case!("min.s32", 4, 0x7fff_ffff, integers(4), |old, x| u64::from(
            (old as i32).min(x as i32) as u32
        )),
        case!("max.s32", 4, 0x8000_0000, integers(4), |old, x| u64::from(
            (old as i32).max(x as i32) as u32
        )),
        case!("min.u64", 8, u64::MAX, integers(8), |old, x| old.min(x)),
        case!("max.u64", 8, 0, integers(8), |old, x| old.max(x)),
        case!(
            "min.s64",
            8,
            i64::MAX as u64,
            integers(8),
            |old, x| (old as i64).min(x as i64) as u64
        ),
        case!(
            "max.s64",
            8,
            i64::MIN as u64,
            integers(8),
            |old, x| (old as i64).max(x as i64) as u64
        ),
        case!("and.b32", 4, 0xffff_ffff, integers(4), |old, x| old & x),
        case!("or.b32", 4, 0, integers(4), |old, x| old | x),
        case!("xor.b32", 4, 0, integers(4), |old, x| old ^ x),
        case!("and.b64", 8, u64::MAX, integers(8), |old, x| old & x),
        case!("or.b64", 8, 0, integers(8), |old, x| old | x),
        case!("xor.b64", 8, 0, integers(8), |old, x| old ^ x),
        case!("exch.b32", 4, 1, integers(4), |_old, x| x),
        case!("exch.b64", 8, 1, integers(8), |_old, x| x),
        case!("inc.u32", 4, 3, vec![7; 32], |old, x| if old >= x {
            0
        } else {
            old + 1
        }),
        case!(
            "dec.u32",
            4,
            3,
            vec![7; 32],
            |old, x| if old == 0 || old > x { x } else { old - 1 }
        ),
        swap("cas.b16", 2),
        swap("cas.b32", 4),
        swap("cas.b64", 8),
    ]
}

/// Every other lane compares with what the last one wrote.
fn swap(name: &'static str, size: usize) -> Case {
    let operands = integers(size);
    let mut comparands = vec![9];
    comparands.extend((1..32).map(|lane| {
        if lane % 2 == 1 {
            operands[lane - 1]
        } else {
            12345
        }
    }));
    Case {
        name,
        size,
        start: 9,
        operands,
        comparands: Some(comparands),
        change: |old, operand, comparand| if old == comparand { operand } else { old },
    }
}

/// How a value gets from the words `i` and `i + 1` into a register, and back into outputs.
fn moves(size: usize) -> (&'static str, &'static str, &'static str) {
    match size {
        2 => (
            "mov.b32 {%h0, %h1}, %i0;\nmov.b32 {%h2, %h1}, %i2;\nmov.b32 {%h3, %h1}, 0;\n",
            "%h",
            "mov.b32 %o0, {%h4, %h1};\nmov.b32 %o1, 0;",
        ),
        4 => (
            "mov.b32 %x0, %i0;\nmov.b32 %x2, %i2;\n",
            "%x",
            "mov.b32 %o0, %x4;\nmov.b32 %o1, 0;",
        ),
        _ => (
            "mov.b64 %l0, {%i0, %i1};\nmov.b64 %l2, {%i2, %i3};\n",
            "%l",
            "mov.b64 {%o0, %o1}, %l4;",
        ),
    }
}

fn halves(values: &[u64]) -> [Vec<u32>; 2] {
    [
        values.iter().map(|&value| value as u32).collect(),
        values.iter().map(|&value| (value >> 32) as u32).collect(),
    ]
}

#[test]
fn every_operation_in_every_space() {
    for mut case in cases() {
        if case.name == "and.b32" {
            case.operands
                .iter_mut()
                .for_each(|operand| *operand |= 0xff00_ff00);
        }
        let (before, register, after) = moves(case.size);
        let comparands = case.comparands.clone().unwrap_or_else(|| vec![0; 32]);
        let mut expected = Vec::new();
        let mut value = case.start;
        for (&operand, &comparand) in case.operands.iter().zip(&comparands) {
            expected.push(value);
            value = (case.change)(value, operand, comparand);
        }
        let operands = match case.comparands {
            Some(_) => format!("{register}2, {register}0"),
            None => format!("{register}0"),
        };
        let mut start = vec![0; 16];
        start[8..16].copy_from_slice(&case.start.to_le_bytes());
        let [i0, i1] = halves(&case.operands);
        let [i2, i3] = halves(&comparands);
        let name = case.name;
        for (modifiers, address) in [
            ("relaxed.gpu.global.", "%g+8"),
            ("", "%g+8"),
            ("acq_rel.cta.shared.", "s+8"),
        ] {
            for returns in [true, false] {
                if !returns
                    && (matches!(&name[..3], "cas" | "exc") || modifiers.starts_with("acq_rel"))
                {
                    continue;
                }
                let instruction = if returns {
                    format!("atom.{modifiers}{name} {register}4, [{address}], {operands};")
                } else {
                    format!(
                        "red.{modifiers}{name} [{address}], {operands};\nmov.b{} {register}4, 0;",
                        case.size * 8
                    )
                };
                let shared = "ld.global.u64 %l9, [%g+8];\nst.shared.u64 [s+8], %l9;\n";
                let back = "ld.shared.u64 %l9, [s+8];\nst.global.u64 [%g+8], %l9;\n";
                let (to, from) = if address == "s+8" {
                    (shared, back)
                } else {
                    ("", "")
                };
                let mut trial = Trial::new(format!("{before}{to}{instruction}\n{from}{after}"))
                    .input(i0.clone())
                    .input(i1.clone())
                    .input(i2.clone())
                    .input(i3.clone());
                trial.outputs = 2;
                trial.scratch = start.clone();
                let got = trial.done();
                let mut end = [0; 8];
                end[..case.size].copy_from_slice(&got.scratch[8..8 + case.size]);
                assert_eq!(u64::from_le_bytes(end), value, "{instruction}");
                if returns {
                    let olds: Vec<u64> = got.outputs[0]
                        .iter()
                        .zip(&got.outputs[1])
                        .map(|(low, high)| u64::from(*low) | u64::from(*high) << 32)
                        .collect();
                    assert_eq!(olds, expected, "{instruction}");
                }
            }
        }
    }
}

#[test]
fn blocks_on_two_threads_lose_nothing() {
    let body = "mov.b32 %x0, 0f3F800000;\nmov.b64 %d0, 0d3FF0000000000000;\nmov.b16 %h0, 0x3c00;\nmov.b32 %x1, 0x3f803f80;\n\
                LOOP:\nred.global.add.f32 [%g], %x0;\nred.global.add.f64 [%g+8], %d0;\nred.global.add.u32 [%g+16], 1;\n\
                red.global.inc.u32 [%g+20], 9;\nred.global.add.u64 [%g+24], 3;\n@%p0 red.global.add.noftz.f16 [%g+32], %h0;\n\
                @%p0 red.global.add.noftz.bf16x2 [%g+36], %x1;\natom.global.max.u32 %x2, [%g+40], %x3;";
    let body = format!("mov.u32 %x3, %tid.x;\nsetp.eq.u32 %p0, %x3, 5;\n{body}");
    let mut trial = Trial::new(body);
    (trial.threads, trial.blocks, trial.workers) = (256, 200, 2);
    trial.scratch = vec![0; 48];
    let got = trial.done().scratch;
    let word = |at: usize| u32::from_le_bytes(got[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(got[at..at + 8].try_into().unwrap());
    let threads = 256 * 200;
    assert_eq!(f32::from_bits(word(0)), threads as f32);
    assert_eq!(f64::from_bits(long(8)), f64::from(threads));
    assert_eq!(word(16), threads);
    assert_eq!(word(20), threads % 10);
    assert_eq!(long(24), 3 * u64::from(threads));
    assert_eq!(f16::from_bits(word(32) as u16).to_f32(), 200.0);
    assert_eq!(
        word(36),
        u32::from(bf16::from_f32(200.0).to_bits()) * 0x1_0001
    );
    assert_eq!(word(40), 255);
}

#[test]
fn vectors_are_atomic_by_element() {
    let body = "mov.b32 %x0, 0f3F800000;\nmov.b32 %x1, 0f40000000;\nred.global.add.v2.f32 [%g], {%x0, %x1};\n\
                atom.global.add.v4.f32 {%x4, %x5, %x6, %o0}, [%g+16], {%x0, %x0, %x1, %x1};";
    let mut trial = Trial::new(body);
    trial.outputs = 1;
    trial.scratch = vec![0; 32];
    let got = trial.done();
    let word = |at: usize| {
        f32::from_bits(u32::from_le_bytes(
            got.scratch[at..at + 4].try_into().unwrap(),
        ))
    };
    assert_eq!([word(0), word(4)], [32.0, 64.0]);
    assert_eq!(
        [word(16), word(20), word(24), word(28)],
        [32.0, 32.0, 64.0, 64.0]
    );
    let expected: Vec<u32> = (0..32).map(|lane| (2.0 * lane as f32).to_bits()).collect();
    assert_eq!(got.outputs[0], expected);
}

#[test]
fn addresses_are_checked() {
    let mut trial = Trial::new("red.global.add.u32 [%g+2], 1;");
    trial.scratch = vec![0; 16];
    assert!(trial.fault().to_string().contains("misaligned"));
    let mut trial = Trial::new("red.global.add.u64 [%g+16], 1;");
    trial.scratch = vec![0; 16];
    let fault = trial.fault();
    assert!(fault.to_string().contains("Atomic of 8 bytes"), "{fault}");
    let fault = Trial::new("red.shared.add.u32 [s+16384], 1;").fault();
    assert!(fault.to_string().contains("out of bounds"), "{fault}");
}

#[test]
fn halves_have_extrema_as_vectors() {
    let body = "mov.u32 %x0, %tid.x; add.u32 %x0, %x0, 1; cvt.rn.f16.u32 %h0, %x0; cvt.rn.bf16.u32 %h1, %x0;\n\
                atom.global.min.noftz.v2.f16 {%h2, %h3}, [%g], {%h0, %h0};\n\
                red.global.max.noftz.v2.bf16 [%g+4], {%h1, %h1};\n\
                mov.b32 %x1, {%h0, %h0}; atom.global.max.noftz.v2.f16x2 {%x1, %x2}, [%g+8], {%x1, %x1};";
    let mut trial = Trial::new(body);
    trial.scratch = [0x00, 0x7c, 0x00, 0x44, 0, 0, 0, 0x43].to_vec();
    trial.scratch.extend([0; 8]);
    let halves: Vec<u16> = trial
        .done()
        .scratch
        .chunks_exact(2)
        .map(|half| u16::from_le_bytes([half[0], half[1]]))
        .collect();
    // 1 and 1 as f16; 32 and 128 as bf16; four times 32 as f16.
    assert_eq!(
        halves,
        [
            0x3c00, 0x3c00, 0x4200, 0x4300, 0x5000, 0x5000, 0x5000, 0x5000
        ]
    );
}
