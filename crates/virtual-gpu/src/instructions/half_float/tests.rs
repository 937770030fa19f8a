//! f16 and bf16 arithmetic: all 65,536 encodings where there is one operand, edges and random pairs where there are
//! more, against exact numbers.

use crate::instructions::exact::{BF16, F16, F32, Format, Mode};
use crate::instructions::table::{Random, Width, check_by, cross, single};

const NAN: u64 = 0x7fff;
const SIGN: u64 = 0x8000;

const FORMATS: [(&str, Format); 2] = [("f16", F16), ("bf16", BF16)];

fn rows(format: Format, count: usize) -> Vec<Vec<u64>> {
    let edges = format.edges();
    let mut random = Random::new(31);
    let mut rows = cross(&[edges.clone(), edges.clone()]);
    if count == 3 {
        for row in &mut rows {
            row.push(edges[random.next() as usize % edges.len()]);
        }
    }
    rows.extend(random.rows(&vec![Width::Half; count], 6000));
    // Near each other, so that sums cancel and products meet addends.
    let one = if format == F16 { 0x3c00 } else { 0x3f80 };
    rows.extend((0..4000).map(|_| {
        (0..count)
            .map(|_| one + random.next() % 0x800 - 0x400 ^ random.next() & SIGN)
            .collect()
    }));
    rows
}

/// Checks a form of one value, and of both halves of a word: half of each row's operands come from the next row.
fn exactly(form: &str, ty: &str, rows: &[Vec<u64>], reference: impl Fn(&[u64]) -> Option<u64>) {
    let count = rows[0].len();
    let operands = ["%a0", "%a0, %a1", "%a0, %a1, %a2"][count - 1];
    let expected: Vec<u64> = rows
        .iter()
        .map(|row| reference(row).unwrap_or(NAN))
        .collect();
    let judge = |got: u64, expected: u64| {
        (got == expected)
            .then_some(())
            .ok_or(format!("{expected:#x}"))
    };
    let numbered: std::cell::Cell<usize> = Default::default();
    check_by(
        &format!("{form}.{ty} %d0, {operands};"),
        ty,
        &vec![ty; count],
        rows,
        |_, got| judge(got, expected[numbered.replace(numbered.get() + 1)]),
    );
    let next = |row: usize| (row + 1) % rows.len();
    let pairs: Vec<Vec<u64>> = (0..rows.len())
        .map(|row| {
            rows[row]
                .iter()
                .zip(&rows[next(row)])
                .map(|(low, high)| low | high << 16)
                .collect()
        })
        .collect();
    numbered.set(0);
    let both = format!("{ty}x2");
    check_by(
        &format!("{form}.{both} %d0, {operands};"),
        &both,
        &vec![&*both; count],
        &pairs,
        |_, got| {
            let row = numbered.replace(numbered.get() + 1);
            judge(got, expected[row] | expected[next(row)] << 16)
        },
    );
}

type Operation = fn(Format, &[u64]) -> Option<u64>;

const OPERATIONS: [(&str, usize, Operation); 4] = [
    ("add", 2, |format, v| format.add(v[0], v[1], Mode::Nearest)),
    ("sub", 2, |format, v| {
        format.add(v[0], v[1] ^ SIGN, Mode::Nearest)
    }),
    ("mul", 2, |format, v| format.mul(v[0], v[1], Mode::Nearest)),
    ("fma.rn", 3, |format, v| {
        format.fma(v[0], v[1], v[2], Mode::Nearest)
    }),
];

#[test]
fn sums_and_products_are_rounded_once() {
    for (ty, format) in FORMATS {
        for (name, count, operation) in OPERATIONS {
            exactly(name, ty, &rows(format, count), |v| operation(format, v));
        }
    }
}

#[test]
fn flushing_saturation_and_rectification() {
    let flush = |v: &[u64]| -> Vec<u64> { v.iter().map(|&bits| F16.flush(bits)).collect() };
    let saturate = |bits: Option<u64>| match bits {
        Some(bits) if bits & SIGN == 0 => bits.min(0x3c00),
        _ => 0,
    };
    for (name, count, operation) in OPERATIONS {
        let rows = rows(F16, count);
        let flushed = |v: &[u64]| operation(F16, &flush(v)).map(|bits| F16.flush(bits));
        exactly(&format!("{name}.ftz"), "f16", &rows, flushed);
        exactly(&format!("{name}.sat"), "f16", &rows, |v| {
            Some(saturate(operation(F16, v)))
        });
        exactly(&format!("{name}.ftz.sat"), "f16", &rows, |v| {
            Some(saturate(flushed(v)))
        });
    }
    for (ty, format) in FORMATS {
        exactly("fma.rn.relu", ty, &rows(format, 3), |v| {
            format
                .fma(v[0], v[1], v[2], Mode::Nearest)
                .map(|bits| if bits & SIGN != 0 { 0 } else { bits })
        });
    }
}

fn rank(bits: u64) -> i64 {
    let magnitude = (bits & !SIGN) as i64;
    if bits & SIGN != 0 {
        -1 - magnitude
    } else {
        magnitude
    }
}

#[test]
fn extrema() {
    for (ty, format) in FORMATS {
        let rows = rows(format, 2);
        let pick =
            |a: u64, b: u64, greater: bool, nan: bool| match (format.is_nan(a), format.is_nan(b)) {
                (true, true) => None,
                (true, false) | (false, true) if nan => None,
                (true, false) => Some(b),
                (false, true) => Some(a),
                _ if (rank(a) > rank(b)) == greater => Some(a),
                _ => Some(b),
            };
        for (name, greater) in [("min", false), ("max", true)] {
            exactly(name, ty, &rows, |v| pick(v[0], v[1], greater, false));
            exactly(&format!("{name}.NaN"), ty, &rows, |v| {
                pick(v[0], v[1], greater, true)
            });
            for (nan, nan_wins) in [("", false), (".NaN", true)] {
                exactly(&format!("{name}{nan}.xorsign.abs"), ty, &rows, |v| {
                    let picked = pick(v[0] & !SIGN, v[1] & !SIGN, greater, nan_wins)?;
                    Some(picked | (v[0] ^ v[1]) & SIGN)
                });
            }
        }
    }
}

#[test]
fn signs_of_all_encodings() {
    let all = single(0..=0xffff);
    for (ty, format) in FORMATS {
        exactly("abs", ty, &all, |v| Some(v[0] & !SIGN));
        exactly("neg", ty, &all, |v| Some(v[0] ^ SIGN));
        if ty == "f16" {
            exactly("abs.ftz", ty, &all, |v| Some(format.flush(v[0]) & !SIGN));
            exactly("neg.ftz", ty, &all, |v| Some(format.flush(v[0]) ^ SIGN));
        }
    }
}

#[test]
fn approximations_of_all_encodings() {
    let all = single(0..=0xffff);
    for (ty, format) in FORMATS {
        let value = |bits: u64| {
            let wide = format.convert(bits, F32, Mode::Nearest);
            wide.map_or(f64::NAN, |bits| f64::from(f32::from_bits(bits as u32)))
        };
        let flushes = ty == "bf16";
        let ftz = if flushes { ".ftz" } else { "" };
        for (form, reference) in [
            (format!("ex2.approx{ftz}"), f64::exp2 as fn(f64) -> f64),
            ("tanh.approx".to_string(), f64::tanh),
        ] {
            check_by(
                &format!("{form}.{ty} %d0, %a0;"),
                ty,
                &[ty],
                &all,
                |row, got| {
                    let flushes = flushes && form.starts_with("ex2");
                    let input = if flushes {
                        format.flush(row[0])
                    } else {
                        row[0]
                    };
                    let (expected, result) = (reference(value(input)), value(got));
                    // PTX ISA 9.1, sections 9.7.4.9 and 9.7.4.10: ex2 of f16 2^-9.9, of bf16 2^-7 relative; tanh 2^-10.987
                    // and 2^-8 absolute, here relative, which is less; or a subnormal's last bit.
                    let bound = match (ty, form.starts_with("ex2")) {
                        ("f16", true) => (expected.abs() * 2f64.powf(-9.9)).max(2f64.powi(-24)),
                        ("f16", false) => expected.abs().max(2f64.powi(-14)) * 2f64.powf(-10.987),
                        (_, true) => (expected.abs() * 2f64.powi(-7)).max(1.2e-38),
                        _ => expected.abs().max(1.2e-38) * 2f64.powi(-8),
                    };
                    let right = if expected.is_nan() {
                        got == NAN
                    } else if result.is_infinite() {
                        expected >= if ty == "f16" { 65504.0 } else { 3.3e38 }
                    } else {
                        (result - expected).abs() <= bound
                    };
                    right.then_some(()).ok_or(format!("{expected:e}"))
                },
            );
        }
    }
}
