//! Conversions between all types: every 16-bit encoding, edges and random values of the others, against exact numbers.

use crate::instructions::exact::{BF16, F16, F32, F64, Format, MODES, Mode, TF32, Value};
use crate::instructions::table::{Random, Width, check, check_by, cross, integer_edges, single};

const INTEGERS: [(&str, u32, bool); 8] = [
    ("u8", 8, false),
    ("s8", 8, true),
    ("u16", 16, false),
    ("s16", 16, true),
    ("u32", 32, false),
    ("s32", 32, true),
    ("u64", 64, false),
    ("s64", 64, true),
];

const FLOATS: [(&str, Format); 4] = [("f16", F16), ("bf16", BF16), ("f32", F32), ("f64", F64)];

fn value(raw: u64, bits: u32, signed: bool) -> i128 {
    let value = i128::from(raw) & ((1 << bits) - 1);
    if signed && value >> (bits - 1) != 0 {
        value - (1 << bits)
    } else {
        value
    }
}

fn range(bits: u32, signed: bool) -> (i128, i128) {
    if signed {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

fn integer_rows(name: &str) -> Vec<Vec<u64>> {
    let width = Width::of(name);
    let mut rows = single(integer_edges(width));
    let mut random = Random::new(51);
    rows.extend(random.rows(&[width], 300));
    // Of every length, next to ties.
    for length in 0..64 {
        for low in [0, 1, 2, 3] {
            let tie =
                (random.next() >> 1 | 1 << 62) >> length & !0xff | low | 0x80 * (random.next() & 1);
            rows.extend([vec![width.cut(tie)], vec![width.cut(tie.wrapping_neg())]]);
        }
    }
    rows
}

fn float_rows(name: &str, format: Format) -> Vec<Vec<u64>> {
    let width = Width::of(name);
    if width == Width::Half {
        return single(0..=0xffff);
    }
    let mut rows = single(format.edges());
    let mut random = Random::new(52);
    rows.extend(random.rows(&[width], 1000));
    let (fraction, bias, sign) = if format == F32 {
        (23, 127i64, 31)
    } else {
        (52, 1023, 63)
    };
    for _ in 0..6000 {
        // From below the least bf16 to above 2^64, often with few bits.
        let exponent = bias
            + match random.next() % 3 {
                0 => (random.next() % 300) as i64 - 160,
                1 => (random.next() % 60) as i64 - 30,
                _ => (random.next() % 72) as i64 - 4,
            };
        if exponent <= 0 || exponent >= 2 * bias {
            continue;
        }
        let exponent = exponent as u64;
        let bits =
            random.next() & ((1 << fraction) - 1) & u64::MAX << (random.next() % (fraction + 1));
        rows.push(vec![
            (random.next() & 1) << sign | exponent << fraction | bits,
        ]);
    }
    rows
}

/// The low bits of a destination register: integers narrower than it are extended.
fn in_register(value: i128, name: &str) -> u64 {
    Width::of(name).cut(value as u64)
}

#[test]
fn integers_to_integers() {
    for (from, from_bits, from_signed) in INTEGERS {
        let rows = integer_rows(from);
        for (to, bits, signed) in INTEGERS {
            check(
                &format!("cvt.{to}.{from} %d0, %a0;"),
                to,
                &[from],
                &rows,
                |row| {
                    let wrapped = value(value(row[0], from_bits, from_signed) as u64, bits, signed);
                    in_register(wrapped, to)
                },
            );
            let (least, greatest) = range(bits, signed);
            let source = range(from_bits, from_signed);
            if least <= source.0 && source.1 <= greatest {
                // There is nothing to clamp, and no such form.
                continue;
            }
            check(
                &format!("cvt.sat.{to}.{from} %d0, %a0;"),
                to,
                &[from],
                &rows,
                |row| {
                    in_register(
                        value(row[0], from_bits, from_signed).clamp(least, greatest),
                        to,
                    )
                },
            );
        }
    }
}

#[test]
fn integers_to_floats() {
    for (from, bits, signed) in INTEGERS {
        let rows = integer_rows(from);
        for (to, format) in FLOATS {
            if to == "bf16" && bits == 8 {
                continue;
            }
            for (modifier, mode) in MODES {
                check(
                    &format!("cvt.{modifier}.{to}.{from} %d0, %a0;"),
                    to,
                    &[from],
                    &rows,
                    |row| format.of_integer(value(row[0], bits, signed), mode),
                );
            }
        }
    }
}

#[test]
fn floats_to_integers() {
    for (from, format) in FLOATS {
        let rows = float_rows(from, format);
        for (modifier, mode) in MODES {
            for ftz in ["", ".ftz"] {
                if ftz == ".ftz" && from != "f32" {
                    continue;
                }
                let whole: Vec<(u64, i128)> = rows
                    .iter()
                    .map(|row| {
                        let bits = if ftz.is_empty() {
                            row[0]
                        } else {
                            F32.flush(row[0])
                        };
                        (row[0], whole_number(format, bits, mode))
                    })
                    .collect();
                let whole: std::collections::HashMap<u64, i128> = whole.into_iter().collect();
                for (to, bits, signed) in INTEGERS {
                    if from == "bf16" && bits == 8 {
                        continue;
                    }
                    let (least, greatest) = range(bits, signed);
                    let text = format!("cvt.{modifier}i{ftz}.{to}.{from} %d0, %a0;");
                    check(&text, to, &[from], &rows, |row| {
                        let wide = from == "f64" || bits == 64;
                        let result = match whole[&row[0]] {
                            // PTX: zero unless a 64-bit type is involved, then the pattern of the sign bit.
                            NOT_A_NUMBER if wide => value(1 << (bits - 1), bits, signed),
                            NOT_A_NUMBER => 0,
                            number => number.clamp(least, greatest),
                        };
                        in_register(result, to)
                    });
                }
            }
        }
    }
}

const NOT_A_NUMBER: i128 = i128::MAX;

/// The whole number next to a float, or one beyond every integer type.
fn whole_number(format: Format, bits: u64, mode: Mode) -> i128 {
    const BEYOND: i128 = 1 << 90;
    match format.value(bits) {
        Value::Nan => NOT_A_NUMBER,
        Value::Infinite(negative) => {
            if negative {
                -BEYOND
            } else {
                BEYOND
            }
        }
        Value::Finite(..) => {
            let (negative, magnitude) = format.whole(bits, mode).unwrap_or((false, 0));
            let magnitude = magnitude.min(BEYOND as u128) as i128;
            if negative { -magnitude } else { magnitude }
        }
    }
}

/// Checks against a reference that gives `None` for NaN.
fn exactly(
    text: &str,
    to: &str,
    from: &str,
    format: Format,
    rows: &[Vec<u64>],
    reference: impl Fn(u64) -> Option<u64>,
) {
    check_by(
        &format!("{text}.{to}.{from} %d0, %a0;"),
        to,
        &[from],
        rows,
        |row, got| match reference(row[0]) {
            None if to == "f64" => format.is_nan(got).then_some(()).ok_or("NaN".to_string()),
            None => {
                let canonical =
                    Width::of(to).cut(u64::from(if to == "f32" { 0x7fff_ffffu32 } else { 0x7fff }));
                (got == canonical).then_some(()).ok_or("NaN".to_string())
            }
            Some(expected) => (got == expected)
                .then_some(())
                .ok_or(format!("{expected:#x}")),
        },
    );
}

#[test]
fn floats_to_floats() {
    for (from, source) in FLOATS {
        let rows = float_rows(from, source);
        for (to, target) in FLOATS {
            let widens = matches!((from, to), ("f16" | "bf16", "f32" | "f64") | ("f32", "f64"));
            if from == to {
                continue;
            }
            if widens {
                exactly("cvt", to, from, target, &rows, |bits| {
                    source.convert(bits, target, Mode::Nearest)
                });
                continue;
            }
            for (modifier, mode) in MODES {
                exactly(
                    &format!("cvt.{modifier}"),
                    to,
                    from,
                    target,
                    &rows,
                    |bits| source.convert(bits, target, mode),
                );
                if matches!(to, "f16" | "bf16") && from == "f32" && matches!(modifier, "rn" | "rz")
                {
                    exactly(
                        &format!("cvt.{modifier}.relu"),
                        to,
                        from,
                        target,
                        &rows,
                        |bits| {
                            let converted = source.convert(bits, target, mode)?;
                            Some(if converted & 0x8000 != 0 {
                                0
                            } else {
                                converted
                            })
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn flushing() {
    let rows = float_rows("f32", F32);
    for (modifier, mode) in MODES {
        {
            let (to, target) = ("f16", F16);
            exactly(
                &format!("cvt.{modifier}.ftz"),
                to,
                "f32",
                target,
                &rows,
                |bits| F32.convert(F32.flush(bits), target, mode),
            );
        }
        let rows = float_rows("f64", F64);
        exactly(
            &format!("cvt.{modifier}.ftz"),
            "f32",
            "f64",
            F32,
            &rows,
            |bits| Some(F32.flush(F64.convert(bits, F32, mode)?)),
        );
    }
    exactly("cvt.ftz", "f64", "f32", F64, &rows, |bits| {
        F32.convert(F32.flush(bits), F64, Mode::Nearest)
    });
    exactly("cvt.ftz", "f32", "f32", F32, &rows, |bits| {
        (!F32.is_nan(bits)).then(|| F32.flush(bits))
    });
}

#[test]
fn saturation_to_one() {
    let clamp = |bits: Option<u64>, one: u64, sign: u32| match bits {
        Some(bits) if bits >> sign == 0 => bits.min(one),
        _ => 0,
    };
    for (from, source) in FLOATS {
        let rows = float_rows(from, source);
        for (to, target, one, sign) in [
            ("f16", F16, 0x3c00, 15),
            ("f32", F32, 0x3f80_0000, 31),
            ("f64", F64, 0x3ff0_0000_0000_0000, 63),
        ] {
            if from == "bf16" {
                // It has no saturating forms.
                continue;
            }
            let rounding = if Width::of(to) == Width::of(from) && to == from
                || matches!((from, to), ("f16" | "bf16", "f32" | "f64") | ("f32", "f64"))
            {
                ""
            } else {
                ".rn"
            };
            exactly(
                &format!("cvt{rounding}.sat"),
                to,
                from,
                target,
                &rows,
                |bits| {
                    Some(clamp(
                        source.convert(bits, target, Mode::Nearest),
                        one,
                        sign,
                    ))
                },
            );
        }
    }
}

#[test]
fn whole_numbers_in_the_same_type() {
    for (name, format) in FLOATS {
        if name == "bf16" {
            continue;
        }
        let rows = float_rows(name, format);
        let sign = match name {
            "f16" => 15,
            "f32" => 31,
            _ => 63,
        };
        for (modifier, mode) in MODES {
            exactly(
                &format!("cvt.{modifier}i"),
                name,
                name,
                format,
                &rows,
                |bits| match format.value(bits) {
                    Value::Nan => None,
                    Value::Infinite(_) => Some(bits),
                    Value::Finite(..) => {
                        let (negative, magnitude) = format.whole(bits, mode)?;
                        // Numbers beyond the reference's range are whole already.
                        if magnitude >= 1 << 60 {
                            return Some(bits);
                        }
                        let positive = format.of_integer(magnitude as i128, Mode::Nearest);
                        Some(positive | u64::from(negative) << sign)
                    }
                },
            );
        }
    }
}

#[test]
fn tensor_floats() {
    let rows = float_rows("f32", F32);
    let convert = |bits: u64, mode| {
        F32.convert(bits, TF32, mode)
            .map_or(0x7fff_ffff, |bits| bits << 13)
    };
    check(
        "cvt.rna.tf32.f32 %d0, %a0;",
        "b32",
        &["f32"],
        &rows,
        |row| convert(row[0], Mode::Away),
    );
    check(
        "cvt.rna.satfinite.tf32.f32 %d0, %a0;",
        "b32",
        &["f32"],
        &rows,
        |row| {
            match convert(row[0], Mode::Away) {
                // The largest finite value has all ten bits of the fraction set.
                bits if bits & 0x7fff_ffff == 0x7f80_0000 => bits - 0x2000,
                bits => bits,
            }
        },
    );
    check("cvt.rn.tf32.f32 %d0, %a0;", "b32", &["f32"], &rows, |row| {
        convert(row[0], Mode::Nearest)
    });
    check("cvt.rz.tf32.f32 %d0, %a0;", "b32", &["f32"], &rows, |row| {
        convert(row[0], Mode::Zero)
    });
    check(
        "cvt.rn.relu.tf32.f32 %d0, %a0;",
        "b32",
        &["f32"],
        &rows,
        |row| {
            let result = convert(row[0], Mode::Nearest);
            if result >> 31 == 1 { 0 } else { result }
        },
    );
}

#[test]
fn two_floats_to_a_pair() {
    let mut column = float_rows("f32", F32);
    column.truncate(4000);
    let rows: Vec<Vec<u64>> = column
        .iter()
        .zip(column.iter().rev())
        .map(|(a, b)| vec![a[0], b[0]])
        .collect();
    for (to, target) in [("f16x2", F16), ("bf16x2", BF16)] {
        for (modifier, mode) in [MODES[0], MODES[1]] {
            for (relu, finite) in [
                ("", ""),
                (".relu", ""),
                ("", ".satfinite"),
                (".relu", ".satfinite"),
            ] {
                let half = |bits: u64| match F32.convert(bits, target, mode) {
                    None => 0x7fff,
                    Some(bits) if bits & 0x8000 != 0 && !relu.is_empty() => 0,
                    Some(bits) if bits & 0x7fff == target.infinity() && !finite.is_empty() => {
                        bits - 1
                    }
                    Some(bits) => bits,
                };
                check(
                    &format!("cvt.{modifier}{relu}{finite}.{to}.f32 %d0, %a0, %a1;"),
                    to,
                    &["f32"; 2],
                    &rows,
                    |row| half(row[0]) << 16 | half(row[1]),
                );
                let one = &to[..to.len() - 2];
                check(
                    &format!("cvt.{modifier}{relu}{finite}.{one}.f32 %d0, %a0;"),
                    one,
                    &["f32"; 2],
                    &rows,
                    |row| half(row[0]),
                );
            }
        }
    }
}

/// The values of an 8-bit float's encodings, up to the largest finite one, by its definition.
fn bytes(fraction_bits: u32, bias: i32, largest: usize) -> Vec<f64> {
    (0..=largest as u32)
        .map(|byte| {
            let fraction =
                f64::from(byte & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
            match byte >> fraction_bits {
                0 => fraction * 2f64.powi(1 - bias),
                exponent => (1.0 + fraction) * 2f64.powi(exponent as i32 - bias),
            }
        })
        .collect()
}

#[test]
fn eight_bit_floats() {
    for (name, table) in [
        ("e4m3x2", bytes(3, 7, 0x7e)),
        ("e5m2x2", bytes(2, 15, 0x7b)),
    ] {
        let nearest = |value: f64, relu: bool| -> u64 {
            if value.is_nan() {
                return 0x7f;
            }
            let sign = u64::from(value.is_sign_negative()) << 7;
            if relu && sign != 0 {
                return 0;
            }
            let distance = |index: &usize| (table[*index] - value.abs().min(1e9)).abs();
            let best = (0..table.len()).min_by(|a, b| {
                distance(a)
                    .total_cmp(&distance(b))
                    .then((a % 2).cmp(&(b % 2)))
            });
            sign | best.unwrap_or(0) as u64
        };
        let mut random = Random::new(53);
        let mut rows: Vec<Vec<u64>> = Vec::new();
        let single_of = |bits: u64| f64::from(f32::from_bits(bits as u32));
        // Every value, every tie, and their neighbours.
        for pair in table.windows(2) {
            for value in [pair[0], (pair[0] + pair[1]) / 2.0, pair[1]] {
                let bits = (value as f32).to_bits();
                for bits in [bits, bits + 1, bits.saturating_sub(1)] {
                    rows.push(vec![u64::from(bits), u64::from(bits) | 1 << 31]);
                }
            }
        }
        rows.extend(cross(&[F32.edges(), vec![0x3f80_0000]]));
        rows.extend(random.rows(&[Width::Word; 2], 500));
        for (relu, rectified) in [("", false), (".relu", true)] {
            let text = format!("cvt.rn.satfinite{relu}.{name}.f32 %d0, %a0, %a1;");
            check(&text, name, &["f32"; 2], &rows, |row| {
                nearest(single_of(row[0]), rectified) << 8 | nearest(single_of(row[1]), rectified)
            });
            let halves = single((0..=0xffff).map(|bits| bits << 16 | (bits * 7919 & 0xffff)));
            let half_of = |bits: u64| {
                let wide = F16.convert(bits & 0xffff, F64, Mode::Nearest);
                wide.map_or(f64::NAN, f64::from_bits)
            };
            let text = format!("cvt.rn.satfinite{relu}.{name}.f16x2 %d0, %a0;");
            check(&text, name, &["f16x2"], &halves, |row| {
                nearest(half_of(row[0] >> 16), rectified) << 8 | nearest(half_of(row[0]), rectified)
            });
            let all = single(0..=0xffff);
            check(
                &format!("cvt.rn{relu}.f16x2.{name} %d0, %a0;"),
                "f16x2",
                &[name],
                &all,
                |row| {
                    let half = |byte: u64| {
                        let infinite = name == "e5m2x2" && byte & 0x7f == 0x7c;
                        let negative = byte & 0x80 != 0;
                        let magnitude = match table.get((byte & 0x7f) as usize) {
                            Some(&value) => F64
                                .convert(value.to_bits(), F16, Mode::Nearest)
                                .unwrap_or(0),
                            None if infinite => 0x7c00,
                            None => return 0x7fff,
                        };
                        if negative && rectified {
                            0
                        } else {
                            magnitude | u64::from(negative) << 15
                        }
                    };
                    half(row[0] >> 8 & 0xff) << 16 | half(row[0] & 0xff)
                },
            );
        }
    }
}

#[test]
fn packs_of_integers() {
    let edges = integer_edges(Width::Word);
    let mut rows = cross(&[edges.clone(), edges]);
    rows.iter_mut()
        .enumerate()
        .for_each(|(number, row)| row.push(0x1234_5678u64 * number as u64 & 0xffff_ffff));
    let small = [
        ("u4", 4, false),
        ("s4", 4, true),
        ("u2", 2, false),
        ("s2", 2, true),
    ];
    for (to, bits, signed) in INTEGERS[..4].iter().copied().chain(small) {
        let (least, greatest) = range(bits, signed);
        let part =
            |raw: u64| value(raw, 32, true).clamp(least, greatest) as u64 & ((1 << bits) - 1);
        if bits == 16 {
            let pairs: Vec<Vec<u64>> = rows.iter().map(|row| row[..2].to_vec()).collect();
            check(
                &format!("cvt.pack.sat.{to}.s32 %d0, %a0, %a1;"),
                "b32",
                &["s32"; 2],
                &pairs,
                |row| part(row[0]) << 16 | part(row[1]),
            );
        } else {
            check(
                &format!("cvt.pack.sat.{to}.s32.b32 %d0, %a0, %a1, %a2;"),
                "b32",
                &["s32", "s32", "b32"],
                &rows,
                |row| row[2] << (2 * bits) | part(row[0]) << bits | part(row[1]),
            );
        }
    }
}
