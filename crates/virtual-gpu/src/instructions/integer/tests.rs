//! Integer arithmetic against formulas on 128-bit integers, at the edges of every type and at random.

use crate::instructions::table::{Random, Width, check, cross, integer_edges, run};

/// A type by name.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bits: u32,
    signed: bool,
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "u16",
        bits: 16,
        signed: false,
    },
    Kind {
        name: "s16",
        bits: 16,
        signed: true,
    },
    Kind {
        name: "u32",
        bits: 32,
        signed: false,
    },
    Kind {
        name: "s32",
        bits: 32,
        signed: true,
    },
    Kind {
        name: "u64",
        bits: 64,
        signed: false,
    },
    Kind {
        name: "s64",
        bits: 64,
        signed: true,
    },
];

impl Kind {
    fn value(self, raw: u64) -> i128 {
        let value = i128::from(raw) & ((1 << self.bits) - 1);
        if self.signed && value >> (self.bits - 1) != 0 {
            value - (1 << self.bits)
        } else {
            value
        }
    }

    fn least(self) -> i128 {
        if self.signed {
            -(1 << (self.bits - 1))
        } else {
            0
        }
    }

    fn greatest(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    fn rows(self, count: usize) -> Vec<Vec<u64>> {
        let width = Width::of(self.name);
        let edges = integer_edges(width);
        let mut rows = cross(&[edges.clone(), edges]);
        if count == 3 {
            let third = integer_edges(width);
            let last = third.len();
            for (number, row) in rows.iter_mut().enumerate() {
                row.push(third[number * 7 % last]);
            }
        }
        if count == 1 {
            rows.iter_mut().for_each(|row| row.truncate(1));
        }
        rows.extend(Random::new(u64::from(self.bits)).rows(&vec![width; count], 1000));
        rows
    }

    /// Checks `name d, a..` against a formula on values.
    fn check(self, form: &str, count: usize, formula: impl Fn(&[i128]) -> i128) {
        let operands = ["%a0", "%a0, %a1", "%a0, %a1, %a2"][count - 1];
        let text = format!("{form}.{} %d0, {operands};", self.name);
        check(
            &text,
            self.name,
            &vec![self.name; count],
            &self.rows(count),
            |row| {
                let values: Vec<i128> = row.iter().map(|&raw| self.value(raw)).collect();
                formula(&values) as u64
            },
        );
    }
}

#[test]
fn sums_products_and_extrema() {
    for kind in KINDS {
        kind.check("add", 2, |v| v[0] + v[1]);
        kind.check("sub", 2, |v| v[0] - v[1]);
        kind.check("mul.lo", 2, |v| v[0].wrapping_mul(v[1]));
        kind.check("mul.hi", 2, |v| v[0].wrapping_mul(v[1]) >> kind.bits);
        kind.check("mad.lo", 3, |v| v[0].wrapping_mul(v[1]).wrapping_add(v[2]));
        kind.check("mad.hi", 3, |v| {
            (v[0].wrapping_mul(v[1]) >> kind.bits) + v[2]
        });
        kind.check("min", 2, |v| v[0].min(v[1]));
        kind.check("max", 2, |v| v[0].max(v[1]));
        kind.check("sad", 3, |v| v[2] + (v[0] - v[1]).abs());
        if kind.signed {
            kind.check("abs", 1, |v| v[0].abs());
            kind.check("neg", 1, |v| -v[0]);
        }
    }
}

#[test]
fn quotients_and_remainders() {
    for kind in KINDS {
        // By zero: all ones and the dividend.
        kind.check("div", 2, |v| if v[1] == 0 { -1 } else { v[0] / v[1] });
        kind.check("rem", 2, |v| if v[1] == 0 { v[0] } else { v[0] % v[1] });
    }
}

#[test]
fn saturation() {
    let kind = KINDS[3];
    let clamp = |value: i128| value.clamp(kind.least(), kind.greatest());
    kind.check("add.sat", 2, |v| clamp(v[0] + v[1]));
    kind.check("sub.sat", 2, |v| clamp(v[0] - v[1]));
    kind.check("mad.hi.sat", 3, |v| clamp((v[0] * v[1] >> 32) + v[2]));
    kind.check("mad24.hi.sat", 3, |v| {
        clamp((low24(v[0], true) * low24(v[1], true) >> 16) + v[2])
    });
    kind.check("min.relu", 2, |v| v[0].min(v[1]).max(0));
    kind.check("max.relu", 2, |v| v[0].max(v[1]).max(0));
}

#[test]
fn wide_products() {
    for (kind, wide) in [(0, "u32"), (1, "s32"), (2, "u64"), (3, "s64")] {
        let kind = KINDS[kind];
        let text = format!("mul.wide.{} %d0, %a0, %a1;", kind.name);
        check(&text, wide, &[kind.name; 2], &kind.rows(2), |row| {
            (kind.value(row[0]) * kind.value(row[1])) as u64
        });
        let text = format!("mad.wide.{} %d0, %a0, %a1, %a2;", kind.name);
        let mut random = Random::new(9);
        let rows: Vec<Vec<u64>> = kind
            .rows(2)
            .into_iter()
            .map(|row| vec![row[0], row[1], Width::of(wide).cut(random.next())])
            .collect();
        check(&text, wide, &[kind.name, kind.name, wide], &rows, |row| {
            ((kind.value(row[0]) * kind.value(row[1])) as u64).wrapping_add(row[2])
        });
    }
}

fn low24(value: i128, signed: bool) -> i128 {
    Kind {
        name: "",
        bits: 24,
        signed,
    }
    .value(value as u64)
}

#[test]
fn products_of_24_bits() {
    for kind in [KINDS[2], KINDS[3]] {
        let product = |v: &[i128]| low24(v[0], kind.signed) * low24(v[1], kind.signed);
        kind.check("mul24.lo", 2, product);
        kind.check("mul24.hi", 2, |v| product(v) >> 16);
        kind.check("mad24.lo", 3, |v| product(v) + v[2]);
        kind.check("mad24.hi", 3, |v| (product(v) >> 16) + v[2]);
    }
}

#[test]
fn pairs_of_16_bits() {
    for kind in [KINDS[0], KINDS[1]] {
        let word = integer_edges(Width::Word);
        let mut rows = cross(&[word.clone(), word]);
        rows.extend(Random::new(3).rows(&[Width::Word; 2], 1000));
        let ty = format!("{}x2", kind.name);
        let forms: [(&str, fn(i128, i128) -> i128); 5] = [
            ("add", |a, b| a + b),
            ("min", |a, b| a.min(b)),
            ("max", |a, b| a.max(b)),
            ("min.relu", |a, b| a.min(b).max(0)),
            ("max.relu", |a, b| a.max(b).max(0)),
        ];
        for (form, formula) in forms {
            if form.ends_with("relu") && !kind.signed {
                continue;
            }
            check(
                &format!("{form}.{ty} %d0, %a0, %a1;"),
                &ty,
                &[&ty, &ty],
                &rows,
                |row| {
                    let half = |shift: u32| {
                        let (a, b) = (kind.value(row[0] >> shift), kind.value(row[1] >> shift));
                        (formula(a, b) as u64 & 0xffff) << shift
                    };
                    half(0) | half(16)
                },
            );
        }
    }
}

/// A carry chain's result: the low and the high word, and the carry that a third step reads.
fn chain(text: &str, width: Width, rows: &[Vec<u64>], formula: impl Fn(&[u64]) -> [u64; 3]) {
    let results = run(text, &[width; 3], &vec![width; rows[0].len()], rows);
    for (row, result) in rows.iter().zip(results) {
        let expected = formula(row).map(|value| width.cut(value));
        assert_eq!(result, expected, "{text} of {row:#x?}");
    }
}

#[test]
fn carry_chains() {
    for (ty, width, bits) in [
        ("u32", Width::Word, 32),
        ("s32", Width::Word, 32),
        ("u64", Width::Long, 64),
    ] {
        let mut rows: Vec<Vec<u64>> = Vec::new();
        let edges = integer_edges(width);
        for (i, &a) in edges.iter().enumerate() {
            for (j, &b) in edges.iter().enumerate() {
                rows.push(vec![
                    a,
                    b,
                    edges[(i + 3 * j) % edges.len()],
                    edges[(5 * i + j) % edges.len()],
                ]);
            }
        }
        rows.extend(Random::new(4).rows(&[width; 4], 1000));
        // Low words %a0 and %a1, high words %a2 and %a3.
        let wide = |low: u64, high: u64| (u128::from(low), u128::from(high));
        chain(
            &format!("add.cc.{ty} %d0, %a0, %a1; addc.cc.{ty} %d1, %a2, %a3; addc.{ty} %d2, 0, 0;"),
            width,
            &rows,
            |row| {
                let (low, high) = wide(row[0], row[2]);
                let first = low + u128::from(row[1]);
                let second = high + u128::from(row[3]) + (first >> bits);
                [first as u64, second as u64, (second >> bits) as u64]
            },
        );
        chain(
            &format!("sub.cc.{ty} %d0, %a0, %a1; subc.cc.{ty} %d1, %a2, %a3; subc.{ty} %d2, 0, 0;"),
            width,
            &rows,
            |row| {
                let borrow = row[0] < row[1];
                let second = i128::from(row[2]) - i128::from(row[3]) - i128::from(borrow);
                let last = if second < 0 { u64::MAX } else { 0 };
                [row[0].wrapping_sub(row[1]), second as u64, last]
            },
        );
        let unsigned = if bits == 32 { "u32" } else { "u64" };
        chain(
            &format!(
                "mad.lo.cc.{unsigned} %d0, %a0, %a1, %a2; madc.hi.cc.{unsigned} %d1, %a0, %a1, %a3; \
                 addc.{ty} %d2, 0, 0;"
            ),
            width,
            &rows,
            |row| {
                let product = u128::from(row[0]) * u128::from(row[1]);
                let low = u128::from(width.cut(product as u64)) + u128::from(row[2]);
                let high = (product >> bits) + u128::from(row[3]) + (low >> bits);
                [low as u64, high as u64, (high >> bits) as u64]
            },
        );
        let signed = if bits == 32 { KINDS[3] } else { KINDS[5] };
        chain(
            &format!(
                "add.cc.{ty} %d0, %a0, %a1; madc.hi.{} %d1, %a0, %a1, %a2; addc.{ty} %d2, 0, 0;",
                signed.name
            ),
            width,
            &rows,
            |row| {
                let carry = (u128::from(row[0]) + u128::from(row[1])) >> bits;
                let high = (signed.value(row[0]) * signed.value(row[1])) >> bits;
                // `madc.hi` without `.cc` leaves the carry of the first step.
                [
                    row[0].wrapping_add(row[1]),
                    (high as u64)
                        .wrapping_add(row[2])
                        .wrapping_add(carry as u64),
                    carry as u64,
                ]
            },
        );
    }
}

#[test]
fn a_carry_is_each_lane_s_own() {
    // Only odd lanes add with carry out; even ones keep the carry that they had.
    let text = "add.cc.u32 %d0, %a0, %a1; and.b32 %x0, %row, 1; setp.ne.u32 %p0, %x0, 0; \
                @%p0 add.cc.u32 %d1, %a1, 1; @!%p0 mov.u32 %d1, 7; addc.u32 %d2, 0, 0;";
    let rows = cross(&[vec![0, 0xffff_ffff], vec![0, 1, 0xffff_ffff]]);
    let results = run(text, &[Width::Word; 3], &[Width::Word; 2], &rows);
    for (number, (row, result)) in rows.iter().zip(results).enumerate() {
        let first = (row[0] + row[1]) >> 32;
        let carry = if number % 2 == 1 {
            (row[1] + 1) >> 32
        } else {
            first
        };
        assert_eq!(result[2], carry, "row {number}");
    }
}

#[test]
fn dot_products() {
    let word = integer_edges(Width::Word);
    let mut rows = cross(&[word.clone(), word]);
    rows.iter_mut()
        .enumerate()
        .for_each(|(number, row)| row.push([0, 1, u64::from(u32::MAX), 1 << 31][number % 4]));
    rows.extend(Random::new(5).rows(&[Width::Word; 3], 2000));
    let part = |word: u64, shift: u32, bits: u32, signed: bool| {
        Kind {
            name: "",
            bits,
            signed,
        }
        .value(word >> shift)
    };
    for (a, a_signed) in [("u32", false), ("s32", true)] {
        for (b, b_signed) in [("u32", false), ("s32", true)] {
            let text = format!("dp4a.{a}.{b} %d0, %a0, %a1, %a2;");
            check(&text, "u32", &["u32"; 3], &rows, |row| {
                let sum: i128 = (0..4)
                    .map(|byte| {
                        part(row[0], 8 * byte, 8, a_signed) * part(row[1], 8 * byte, 8, b_signed)
                    })
                    .sum();
                (sum + i128::from(row[2])) as u64
            });
            for (half, shift) in [("lo", 0), ("hi", 16)] {
                let text = format!("dp2a.{half}.{a}.{b} %d0, %a0, %a1, %a2;");
                check(&text, "u32", &["u32"; 3], &rows, |row| {
                    let term = |index: u32| {
                        part(row[0], 16 * index, 16, a_signed)
                            * part(row[1], shift + 8 * index, 8, b_signed)
                    };
                    (term(0) + term(1) + i128::from(row[2])) as u64
                });
            }
        }
    }
}
