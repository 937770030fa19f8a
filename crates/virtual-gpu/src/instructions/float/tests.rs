//! f32 and f64 arithmetic: every rounding against exact numbers, approximations against PTX's bounds.

use crate::instructions::exact::{F32, F64, Format, MODES, Mode};
use crate::instructions::table::{Random, Width, check, check_by, cross, single};

/// Rows of operands: edges with edges, random bits, and random numbers of close exponents.
fn rows(format: Format, count: usize, random: usize) -> Vec<Vec<u64>> {
    let width = if format == F32 {
        Width::Word
    } else {
        Width::Long
    };
    let edges = format.edges();
    let mut rows = match count {
        1 => single(edges.clone()),
        _ => cross(&[edges.clone(), edges.clone()]),
    };
    let mut numbers = Random::new(21);
    if count == 3 {
        for row in &mut rows {
            row.push(edges[numbers.next() as usize % edges.len()]);
        }
    }
    rows.extend(numbers.rows(&vec![width; count], random));
    let (fraction, bias) = if format == F32 { (23, 127) } else { (52, 1023) };
    for _ in 0..random {
        // Sums that cancel, ties, subnormal products.
        let scale = [0, 0, 0, bias / 2, bias - 4][numbers.next() as usize % 5];
        let row = (0..count).map(|_| {
            let exponent = bias - scale + numbers.next() % 8;
            let bits = numbers.next() & ((1 << fraction) - 1);
            // Few significant bits make ties likely.
            let bits = bits & (u64::MAX << (numbers.next() % (fraction + 1)));
            let sign = (numbers.next() & 1) << if format == F32 { 31 } else { 63 };
            sign | exponent << fraction | bits
        });
        rows.push(row.collect());
    }
    rows
}

/// Checks against a reference that gives `None` for NaN.
fn exactly(
    text: &str,
    ty: &str,
    format: Format,
    rows: &[Vec<u64>],
    reference: impl Fn(&[u64]) -> Option<u64>,
) {
    let count = rows[0].len();
    let operands = ["%a0", "%a0, %a1", "%a0, %a1, %a2"][count - 1];
    let text = format!("{text}.{ty} %d0, {operands};");
    check_by(
        &text,
        ty,
        &vec![ty; count],
        rows,
        |row, got| match reference(row) {
            None if ty == "f32" => (got == 0x7fff_ffff).then_some(()).ok_or("NaN".to_string()),
            None => format.is_nan(got).then_some(()).ok_or("NaN".to_string()),
            Some(expected) => (got == expected)
                .then_some(())
                .ok_or(format!("{expected:#x}")),
        },
    );
}

type Operation = fn(Format, &[u64], Mode) -> Option<u64>;

const OPERATIONS: [(&str, usize, Operation); 7] = [
    ("add", 2, |format, v, mode| format.add(v[0], v[1], mode)),
    ("sub", 2, |format, v, mode| {
        let sign = if format == F32 { 1 << 31 } else { 1 << 63 };
        format.add(v[0], v[1] ^ sign, mode)
    }),
    ("mul", 2, |format, v, mode| format.mul(v[0], v[1], mode)),
    ("fma", 3, |format, v, mode| {
        format.fma(v[0], v[1], v[2], mode)
    }),
    ("div", 2, |format, v, mode| format.div(v[0], v[1], mode)),
    ("rcp", 1, |format, v, mode| {
        let one = if format == F32 {
            0x3f80_0000
        } else {
            0x3ff0_0000_0000_0000
        };
        format.div(one, v[0], mode)
    }),
    ("sqrt", 1, |format, v, mode| format.sqrt(v[0], mode)),
];

#[test]
fn every_rounding_of_f32() {
    for (name, count, operation) in OPERATIONS {
        let rows = rows(F32, count, 1500);
        for (modifier, mode) in MODES {
            exactly(&format!("{name}.{modifier}"), "f32", F32, &rows, |v| {
                operation(F32, v, mode)
            });
        }
    }
}

#[test]
fn every_rounding_of_f64() {
    for (name, count, operation) in OPERATIONS {
        let rows = rows(F64, count, 400);
        for (modifier, mode) in MODES {
            exactly(&format!("{name}.{modifier}"), "f64", F64, &rows, |v| {
                operation(F64, v, mode)
            });
        }
    }
}

/// Clamps to 0..1; NaN becomes +0.
fn saturate(bits: Option<u64>) -> u64 {
    match bits {
        None => 0,
        Some(bits) if bits >> 31 == 1 => 0,
        Some(bits) => bits.min(0x3f80_0000),
    }
}

#[test]
fn flushing_and_saturation() {
    let flush = |v: &[u64]| -> Vec<u64> { v.iter().map(|&bits| F32.flush(bits)).collect() };
    for (name, count, operation) in OPERATIONS {
        let rows = rows(F32, count, 600);
        for (modifier, mode) in [MODES[0], MODES[2]] {
            let form = format!("{name}.{modifier}");
            exactly(&format!("{form}.ftz"), "f32", F32, &rows, |v| {
                operation(F32, &flush(v), mode).map(|bits| F32.flush(bits))
            });
            if matches!(name, "add" | "sub" | "mul" | "fma") {
                exactly(&format!("{form}.sat"), "f32", F32, &rows, |v| {
                    Some(saturate(operation(F32, v, mode)))
                });
                exactly(&format!("{form}.ftz.sat"), "f32", F32, &rows, |v| {
                    Some(saturate(
                        operation(F32, &flush(v), mode).map(|bits| F32.flush(bits)),
                    ))
                });
            }
        }
    }
}

/// The order of numbers, with -0 below +0.
fn rank(bits: u64, width: u32) -> i64 {
    let magnitude = (bits & !(1 << (width - 1))) as i64;
    if bits >> (width - 1) == 1 {
        -1 - magnitude
    } else {
        magnitude
    }
}

#[test]
fn extrema() {
    for (ty, format, width) in [("f32", F32, 32), ("f64", F64, 64)] {
        let rows = rows(format, 2, 1000);
        let pick =
            |a: u64, b: u64, greater: bool, nan: bool| match (format.is_nan(a), format.is_nan(b)) {
                (true, true) => None,
                (true, false) | (false, true) if nan => None,
                (true, false) => Some(b),
                (false, true) => Some(a),
                _ if (rank(a, width) > rank(b, width)) == greater => Some(a),
                _ => Some(b),
            };
        for (name, greater) in [("min", false), ("max", true)] {
            exactly(name, ty, format, &rows, |v| {
                pick(v[0], v[1], greater, false)
            });
            if ty == "f64" {
                continue;
            }
            exactly(&format!("{name}.NaN"), ty, format, &rows, |v| {
                pick(v[0], v[1], greater, true)
            });
            exactly(&format!("{name}.ftz"), ty, format, &rows, |v| {
                pick(F32.flush(v[0]), F32.flush(v[1]), greater, false)
            });
            let magnitude = 0x7fff_ffff;
            for (nan, nan_wins) in [("", false), (".NaN", true)] {
                exactly(
                    &format!("{name}{nan}.xorsign.abs"),
                    ty,
                    format,
                    &rows,
                    |v| {
                        let picked = pick(v[0] & magnitude, v[1] & magnitude, greater, nan_wins)?;
                        Some(picked | (v[0] ^ v[1]) & !magnitude)
                    },
                );
            }
        }
    }
}

#[test]
fn signs_and_classes() {
    for (ty, format, width) in [("f32", F32, 32u32), ("f64", F64, 64)] {
        let sign = 1u64 << (width - 1);
        let pairs = rows(format, 2, 500);
        check(
            &format!("copysign.{ty} %d0, %a0, %a1;"),
            ty,
            &[ty, ty],
            &pairs,
            |v| v[0] & sign | v[1] & !sign,
        );
        let singles = rows(format, 1, 500);
        check(&format!("abs.{ty} %d0, %a0;"), ty, &[ty], &singles, |v| {
            v[0] & !sign
        });
        check(&format!("neg.{ty} %d0, %a0;"), ty, &[ty], &singles, |v| {
            v[0] ^ sign
        });
        if ty == "f32" {
            check("abs.ftz.f32 %d0, %a0;", ty, &[ty], &singles, |v| {
                F32.flush(v[0]) & !sign
            });
            check("neg.ftz.f32 %d0, %a0;", ty, &[ty], &singles, |v| {
                F32.flush(v[0]) ^ sign
            });
        }
        let infinity = format.infinity();
        let classes: [(&str, &dyn Fn(u64) -> bool); 6] = [
            ("finite", &|a| a < infinity),
            ("infinite", &|a| a == infinity),
            ("number", &|a| a <= infinity),
            ("notanumber", &|a| a > infinity),
            ("normal", &|a| a < infinity && format.flush(a) != 0),
            ("subnormal", &|a| a != 0 && format.flush(a) == 0),
        ];
        for (name, holds) in classes {
            check(
                &format!("testp.{name}.{ty} %d0, %a0;"),
                "pred",
                &[ty],
                &singles,
                |v| u64::from(holds(v[0] & !sign)),
            );
        }
    }
}

fn single_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Floats over the whole range and, densely, between -8 and 8.
fn floats(count: usize) -> Vec<Vec<u64>> {
    let mut random = Random::new(22);
    let mut rows = rows(F32, 1, 0);
    rows.extend(random.rows(&[Width::Word], count));
    rows.extend((0..count).map(|_| {
        let value = (random.next() as f64 / u64::MAX as f64 * 16.0 - 8.0) as f32;
        vec![u64::from(value.to_bits())]
    }));
    rows
}

/// Checks an approximation: infinities and NaN exactly, other values within a bound of the true one.
fn nearly(
    form: &str,
    rows: &[Vec<u64>],
    reference: impl Fn(&[f64]) -> f64,
    bound: impl Fn(&[f64], f64) -> f64,
) {
    let count = rows[0].len();
    let operands = ["%a0", "%a0, %a1"][count - 1];
    let ftz = form.contains(".ftz");
    check_by(
        &format!("{form}.f32 %d0, {operands};"),
        "f32",
        &vec!["f32"; count],
        rows,
        |row, got| {
            let inputs: Vec<f64> = row
                .iter()
                .map(|&bits| f64::from(single_of(if ftz { F32.flush(bits) } else { bits })))
                .collect();
            let (got, expected) = (f64::from(single_of(got)), reference(&inputs));
            let nearest = expected as f32;
            let nearest = if ftz && nearest.is_subnormal() {
                0.0
            } else {
                nearest
            };
            let right = if nearest.is_nan() {
                got.is_nan()
            } else if nearest.is_infinite() || got.is_infinite() {
                f64::from(nearest) == got
            } else if nearest.abs() < f32::MIN_POSITIVE {
                // Below the normal numbers precision is absolute.
                (got - f64::from(nearest)).abs() <= 4e-45
            } else {
                (got - expected).abs() <= bound(&inputs, expected)
            };
            right.then_some(()).ok_or(format!("{expected:e}"))
        },
    );
}

/// Results at the ends of the range, as the tables of PTX ISA 9.1, sections 9.7.3.13 to 9.7.3.22, have them.
#[test]
fn approximations_of_zeros_and_infinities() {
    const ONE: u32 = 0x3f80_0000;
    const NAN: u32 = 0x7fff_ffff;
    const INFINITY: u32 = 0x7f80_0000;
    const MINUS: u32 = 1 << 31;
    // Of -Inf, -1 (or the like), -0, +0, +Inf; `None` where the table says nothing.
    for (form, results) in [
        (
            "rcp.approx",
            [
                Some(MINUS),
                Some(MINUS | ONE),
                Some(MINUS | INFINITY),
                Some(INFINITY),
                Some(0),
            ],
        ),
        (
            "sqrt.approx",
            [Some(NAN), Some(NAN), Some(MINUS), Some(0), Some(INFINITY)],
        ),
        (
            "rsqrt.approx",
            [
                Some(NAN),
                Some(NAN),
                Some(MINUS | INFINITY),
                Some(INFINITY),
                Some(0),
            ],
        ),
        (
            "sin.approx",
            [Some(NAN), None, Some(MINUS), Some(0), Some(NAN)],
        ),
        (
            "cos.approx",
            [Some(NAN), None, Some(ONE), Some(ONE), Some(NAN)],
        ),
        (
            "lg2.approx",
            [
                Some(NAN),
                Some(NAN),
                Some(MINUS | INFINITY),
                Some(MINUS | INFINITY),
                Some(INFINITY),
            ],
        ),
        (
            "ex2.approx",
            [Some(0), None, Some(ONE), Some(ONE), Some(INFINITY)],
        ),
        (
            "tanh.approx",
            [Some(MINUS | ONE), None, Some(MINUS), Some(0), Some(ONE)],
        ),
    ] {
        let inputs = [MINUS | INFINITY, MINUS | ONE, MINUS, 0, INFINITY];
        let known = inputs
            .iter()
            .zip(results)
            .filter_map(|(&input, result)| Some((input, result?)));
        let known: Vec<(u64, u64)> = known
            .map(|(input, result)| (input.into(), result.into()))
            .collect();
        let rows = single(known.iter().map(|(input, _)| *input).chain([0x7fc0_1234]));
        check(
            &format!("{form}.f32 %d0, %a0;"),
            "f32",
            &["f32"],
            &rows,
            |row| {
                known
                    .iter()
                    .find(|(input, _)| *input == row[0])
                    .map_or(u64::from(NAN), |(_, result)| *result)
            },
        );
    }
}

/// The bounds are those of PTX ISA 9.1: rcp (9.7.3.13) 1 ulp, sqrt (9.7.3.15) 2^-23 relative, rsqrt (9.7.3.16) 2^-22.9
/// relative, sin and cos (9.7.3.18, 9.7.3.19) 2^-20.5 absolute up to 2 pi and 2^-14.7 up to 100 pi, lg2 (9.7.3.20)
/// 2^-22 absolute between 0.5 and 2 and relative elsewhere, ex2 (9.7.3.21) 2 ulp, tanh (9.7.3.22) 2^-11 relative, div
/// (9.7.3.8) 2 ulp. Beyond 100 pi it promises nothing of sin and cos; here the bound of 100 pi is held.
#[test]
fn approximations() {
    let rows = floats(20_000);
    let units = |count: f64| move |_: &[f64], expected: f64| count * unit(expected);
    for ftz in ["", ".ftz"] {
        nearly(
            &format!("rcp.approx{ftz}"),
            &rows,
            |v| 1.0 / v[0],
            units(1.0),
        );
        nearly(
            &format!("sqrt.approx{ftz}"),
            &rows,
            |v| v[0].sqrt(),
            |_, y| y.abs() * 2f64.powi(-23),
        );
        nearly(
            &format!("rsqrt.approx{ftz}"),
            &rows,
            |v| 1.0 / v[0].sqrt(),
            |_, y| y.abs() * 2f64.powf(-22.9),
        );
        nearly(
            &format!("ex2.approx{ftz}"),
            &rows,
            |v| v[0].exp2(),
            units(2.0),
        );
        nearly(
            &format!("lg2.approx{ftz}"),
            &rows,
            |v| v[0].log2(),
            |v, y| {
                if 0.5 < v[0] && v[0] < 2.0 {
                    2f64.powi(-22)
                } else {
                    y.abs() * 2f64.powi(-22)
                }
            },
        );
        let trigonometric = |v: &[f64], _: f64| {
            if v[0].abs() <= std::f64::consts::TAU {
                2f64.powf(-20.5)
            } else {
                2f64.powf(-14.7)
            }
        };
        nearly(
            &format!("sin.approx{ftz}"),
            &rows,
            |v| v[0].sin(),
            trigonometric,
        );
        nearly(
            &format!("cos.approx{ftz}"),
            &rows,
            |v| v[0].cos(),
            trigonometric,
        );
    }
    nearly(
        "tanh.approx",
        &rows,
        |v| v[0].tanh(),
        |_, y| y.abs() * 2f64.powi(-11),
    );
    let pairs: Vec<Vec<u64>> = rows
        .iter()
        .zip(rows.iter().rev())
        .map(|(a, b)| vec![a[0], b[0]])
        .chain(self::rows(F32, 2, 0))
        .collect();
    for ftz in ["", ".ftz"] {
        nearly(
            &format!("div.full{ftz}"),
            &pairs,
            |v| v[0] / v[1],
            units(2.0),
        );
        // Between 2^126 and 2^128 the divisor counts as infinite.
        nearly(
            &format!("div.approx{ftz}"),
            &pairs,
            |v| {
                if v[1].is_finite() && v[1].abs() > 2f64.powi(126) {
                    v[0] / f64::INFINITY.copysign(v[1])
                } else {
                    v[0] / v[1]
                }
            },
            units(2.0),
        );
    }
}

/// The distance from a float to the next.
fn unit(value: f64) -> f64 {
    let value = (value as f32).abs();
    f64::from(value.next_up()) - f64::from(value)
}

#[test]
fn coarse_reciprocals_of_f64() {
    let rows = rows(F64, 1, 3000);
    let high = |bits: u64| f64::from_bits(F64.flush(bits) & !0xffff_ffff);
    for (form, reference) in [
        ("rcp.approx.ftz", (|a| 1.0 / a) as fn(f64) -> f64),
        ("rsqrt.approx.ftz", |a| 1.0 / a.sqrt()),
    ] {
        check_by(
            &format!("{form}.f64 %d0, %a0;"),
            "f64",
            &["f64"],
            &rows,
            |row, got| {
                let (expected, value) = (reference(high(row[0])), f64::from_bits(got));
                let right = if expected.is_nan() {
                    // PTX ISA 9.1, sections 9.7.3.14 and 9.7.3.17.
                    got == 0x7fff_ffff_0000_0000
                } else if expected.is_infinite() || expected == 0.0 || expected.is_subnormal() {
                    value
                        == if expected.is_subnormal() {
                            0.0
                        } else {
                            expected
                        }
                } else {
                    got & 0xffff_ffff == 0
                        && (value - expected).abs() <= expected.abs() * 2f64.powi(-20)
                };
                right.then_some(()).ok_or(format!("{expected:e}"))
            },
        );
    }
    check_by(
        "rsqrt.approx.f64 %d0, %a0;",
        "f64",
        &["f64"],
        &rows,
        |row, got| {
            let (expected, value) = (1.0 / f64::from_bits(row[0]).sqrt(), f64::from_bits(got));
            let right = expected.is_nan() && value.is_nan()
                || value == expected
                || (value - expected).abs() <= expected.abs() * 2f64.powi(-50);
            right.then_some(()).ok_or(format!("{expected:e}"))
        },
    );
}
