//! Logic, shifts and bit fields against formulas that go bit by bit.

use crate::instructions::table::{Random, Width, check, cross, integer_edges, single};

fn rows(width: Width, others: &[Width]) -> Vec<Vec<u64>> {
    let mut widths = vec![width];
    widths.extend(others);
    let mut rows = match others.len() {
        0 => single(integer_edges(width)),
        1 => cross(&[integer_edges(width), integer_edges(others[0])]),
        _ => {
            let amounts = vec![
                0,
                1,
                7,
                8,
                15,
                31,
                32,
                33,
                63,
                64,
                65,
                128,
                255,
                256,
                0xffff_ffff,
            ];
            let words = vec![
                0,
                1,
                0x8000_0000_8000_0000,
                u64::MAX,
                0x1234_5678_9abc_def1,
                0xfedc_ba98_7654_3210,
            ];
            let words: Vec<u64> = words.into_iter().map(|word| width.cut(word)).collect();
            let mut columns = vec![words.clone(); widths.len() - 2];
            columns.extend([amounts.clone(), amounts]);
            cross(&columns)
        }
    };
    rows.extend(Random::new(11).rows(&widths, 1500));
    rows
}

fn bit(word: u64, index: u32) -> u64 {
    word >> index & 1
}

#[test]
fn logic() {
    for (ty, width) in [
        ("b16", Width::Half),
        ("b32", Width::Word),
        ("b64", Width::Long),
    ] {
        let pairs = rows(width, &[width]);
        let forms: [(&str, fn(u64, u64) -> u64); 3] = [
            ("and", |a, b| a & b),
            ("or", |a, b| a | b),
            ("xor", |a, b| a ^ b),
        ];
        for (form, formula) in forms {
            check(
                &format!("{form}.{ty} %d0, %a0, %a1;"),
                ty,
                &[ty, ty],
                &pairs,
                |row| formula(row[0], row[1]),
            );
        }
        let singles = rows(width, &[]);
        check(&format!("not.{ty} %d0, %a0;"), ty, &[ty], &singles, |row| {
            !row[0]
        });
        check(
            &format!("cnot.{ty} %d0, %a0;"),
            ty,
            &[ty],
            &singles,
            |row| u64::from(row[0] == 0),
        );
    }
    let truths = cross(&[vec![0, 1], vec![0, 1]]);
    check(
        "and.pred %d0, %a0, %a1;",
        "pred",
        &["pred"; 2],
        &truths,
        |row| row[0] & row[1],
    );
    check(
        "or.pred %d0, %a0, %a1;",
        "pred",
        &["pred"; 2],
        &truths,
        |row| row[0] | row[1],
    );
    check(
        "xor.pred %d0, %a0, %a1;",
        "pred",
        &["pred"; 2],
        &truths,
        |row| row[0] ^ row[1],
    );
    check(
        "not.pred %d0, %a0;",
        "pred",
        &["pred"],
        &single([0, 1]),
        |row| 1 - row[0],
    );
}

#[test]
fn every_table_of_lop3() {
    let rows = Random::new(12).rows(&[Width::Word; 3], 64);
    for table in 0..256u64 {
        check(
            &format!("lop3.b32 %d0, %a0, %a1, %a2, {table};"),
            "b32",
            &["b32"; 3],
            &rows,
            |row| {
                (0..32)
                    .map(|index| {
                        let entry =
                            bit(row[0], index) * 4 + bit(row[1], index) * 2 + bit(row[2], index);
                        bit(table, entry as u32) << index
                    })
                    .sum()
            },
        );
    }
}

#[test]
fn lop3_says_whether_a_bit_is_set() {
    // All operands are zero, or only the third, or none.
    let rows = cross(&[vec![0, 8], vec![0, 8, 4], vec![0, 8], vec![0, 1]]);
    for (operation, or) in [("and", false), ("or", true)] {
        for (table, result) in [
            (0x80, (|a, b, c| a & b & c) as fn(u64, u64, u64) -> u64),
            (0xfe, |a, b, c| a | b | c),
        ] {
            let text = |result: &str| {
                format!("lop3.{operation}.b32 {result}, %a0, %a1, %a2, {table}, %a3;")
            };
            let inputs = ["b32", "b32", "b32", "pred"];
            check(&text("_|%d0"), "pred", &inputs, &rows, |row| {
                let any = u64::from(result(row[0], row[1], row[2]) != 0);
                if or { any | row[3] } else { any & row[3] }
            });
            check(&text("%d0|%p0"), "b32", &inputs, &rows, |row| {
                result(row[0], row[1], row[2])
            });
        }
    }
}

#[test]
fn shifts() {
    for (ty, width, bits) in [
        ("16", Width::Half, 16),
        ("32", Width::Word, 32),
        ("64", Width::Long, 64),
    ] {
        let amounts = rows(width, &[Width::Word]);
        let shift = |value: i128, by: u64, left: bool| {
            let by = by.min(64);
            (if left { value << by } else { value >> by }) as u64
        };
        let sign = |raw: u64| i128::from((raw << (64 - bits)) as i64 >> (64 - bits));
        check(
            &format!("shl.b{ty} %d0, %a0, %a1;"),
            &format!("b{ty}"),
            &[&format!("b{ty}"), "u32"],
            &amounts,
            |row| shift(i128::from(row[0]), row[1], true),
        );
        for unsigned in ["b", "u"] {
            let name = format!("{unsigned}{ty}");
            check(
                &format!("shr.{name} %d0, %a0, %a1;"),
                &name,
                &[&name, "u32"],
                &amounts,
                |row| shift(i128::from(row[0]), row[1], false),
            );
        }
        let name = format!("s{ty}");
        check(
            &format!("shr.{name} %d0, %a0, %a1;"),
            &name,
            &[&name, "u32"],
            &amounts,
            |row| shift(sign(row[0]), row[1], false),
        );
    }
}

#[test]
fn funnel_shifts() {
    let rows = rows(Width::Word, &[Width::Word, Width::Word]);
    for (mode, clamps) in [("clamp", true), ("wrap", false)] {
        let amount = move |c: u64| if clamps { c.min(32) } else { c % 32 };
        check(
            &format!("shf.l.{mode}.b32 %d0, %a0, %a1, %a2;"),
            "b32",
            &["b32"; 3],
            &rows,
            |row| {
                let by = amount(row[2]);
                row[1] << by | row[0] >> (32 - by)
            },
        );
        check(
            &format!("shf.r.{mode}.b32 %d0, %a0, %a1, %a2;"),
            "b32",
            &["b32"; 3],
            &rows,
            |row| {
                let by = amount(row[2]);
                row[1] << (32 - by) | row[0] >> by
            },
        );
    }
}

#[test]
fn permutations() {
    let mut rows = Random::new(13).rows(&[Width::Word; 3], 3000);
    rows.extend((0..256).map(|selector| vec![0x8321_4587, 0x7fa0_80ff, selector * 0x101]));
    let byte = |row: &[u64], index: u64| (row[1] << 32 | row[0]) >> (8 * (index & 7)) & 0xff;
    check(
        "prmt.b32 %d0, %a0, %a1, %a2;",
        "b32",
        &["b32"; 3],
        &rows,
        |row| {
            (0..4)
                .map(|place| {
                    let choice = row[2] >> (4 * place) & 15;
                    let value = byte(row, choice);
                    let value = match (choice & 8, value & 0x80) {
                        (0, _) => value,
                        (_, 0) => 0,
                        _ => 0xff,
                    };
                    value << (8 * place)
                })
                .sum()
        },
    );
    // Of each mode and selector, the bytes from the highest to the lowest.
    let modes = [
        ("f4e", [0x3210u64, 0x4321, 0x5432, 0x6543]),
        ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
        ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
        ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
        ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
        ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
    ];
    for (mode, choices) in modes {
        check(
            &format!("prmt.b32.{mode} %d0, %a0, %a1, %a2;"),
            "b32",
            &["b32"; 3],
            &rows,
            |row| {
                let choice = choices[(row[2] & 3) as usize];
                (0..4)
                    .map(|place| byte(row, choice >> (4 * place) & 15) << (8 * place))
                    .sum()
            },
        );
    }
}

#[test]
fn fields() {
    for (name, width, bits, signed) in [
        ("u32", Width::Word, 32u64, false),
        ("s32", Width::Word, 32, true),
        ("u64", Width::Long, 64, false),
        ("s64", Width::Long, 64, true),
    ] {
        let words = rows(width, &[Width::Word, Width::Word]);
        check(
            &format!("bfe.{name} %d0, %a0, %a1, %a2;"),
            name,
            &[name, "u32", "u32"],
            &words,
            |row| {
                let (position, length) = (row[1] & 255, row[2] & 255);
                let sign = if !signed || length == 0 {
                    0
                } else {
                    bit(row[0], (position + length - 1).min(bits - 1) as u32)
                };
                (0..bits)
                    .map(|index| {
                        let inside = index < length && position + index < bits;
                        let value = if inside {
                            bit(row[0], (position + index) as u32)
                        } else {
                            sign
                        };
                        value << index
                    })
                    .sum()
            },
        );
        if signed {
            continue;
        }
        let name = format!("b{bits}");
        let words = rows(width, &[width, Width::Word, Width::Word]);
        check(
            &format!("bfi.{name} %d0, %a0, %a1, %a2, %a3;"),
            &name,
            &[&name, &name, "u32", "u32"],
            &words,
            |row| {
                let (position, length) = (row[2] & 255, row[3] & 255);
                let mut result = row[1];
                for index in 0..length {
                    let place = position + index;
                    if place < bits {
                        result =
                            result & !(1 << place) | bit(row[0], index.min(63) as u32) << place;
                    }
                }
                result
            },
        );
    }
}

#[test]
fn counting() {
    for (width, bits) in [(Width::Word, 32u32), (Width::Long, 64)] {
        let words = rows(width, &[]);
        let name = format!("b{bits}");
        let ones = move |word: u64| (0..bits).filter(move |&index| bit(word, index) == 1);
        check(
            &format!("popc.{name} %d0, %a0;"),
            "u32",
            &[&name],
            &words,
            |row| ones(row[0]).count() as u64,
        );
        check(
            &format!("clz.{name} %d0, %a0;"),
            "u32",
            &[&name],
            &words,
            |row| u64::from(ones(row[0]).next_back().map_or(bits, |top| bits - 1 - top)),
        );
        check(
            &format!("brev.{name} %d0, %a0;"),
            &name,
            &[&name],
            &words,
            |row| ones(row[0]).map(|index| 1 << (bits - 1 - index)).sum(),
        );
        for (letter, signed) in [("u", false), ("s", true)] {
            let name = format!("{letter}{bits}");
            let find = move |word: u64| {
                let word = if signed && bit(word, bits - 1) == 1 {
                    !word
                } else {
                    word
                };
                ones(word).next_back()
            };
            check(
                &format!("bfind.{name} %d0, %a0;"),
                "u32",
                &[&name],
                &words,
                |row| find(row[0]).map_or(0xffff_ffff, u64::from),
            );
            check(
                &format!("bfind.shiftamt.{name} %d0, %a0;"),
                "u32",
                &[&name],
                &words,
                |row| find(row[0]).map_or(0xffff_ffff, |top| u64::from(bits - 1 - top)),
            );
        }
    }
}

#[test]
fn nth_set_bit() {
    let masks = vec![0, 1, 0x8000_0000, 0xffff_ffff, 0x0f0f_0f0f, 0x8001_8001];
    let bases = vec![0, 1, 15, 16, 30, 31];
    let offsets = vec![
        0,
        1,
        2,
        5,
        32,
        33,
        0xffff_ffff,
        0xffff_fffe,
        0xffff_ffe0,
        0x8000_0000,
        0x7fff_ffff,
    ];
    let rows = cross(&[masks, bases, offsets]);
    check(
        "fns.b32 %d0, %a0, %a1, %a2;",
        "u32",
        &["u32", "u32", "s32"],
        &rows,
        |row| {
            let offset = i64::from(row[2] as u32 as i32);
            let up: Vec<u64> = (row[1]..32)
                .filter(|&place| bit(row[0], place as u32) == 1)
                .collect();
            let down: Vec<u64> = (0..=row[1])
                .rev()
                .filter(|&place| bit(row[0], place as u32) == 1)
                .collect();
            let found = match offset {
                0 => up.first().filter(|&&place| place == row[1]),
                1.. => up.get(offset as usize - 1),
                _ => down.get((-offset) as usize - 1),
            };
            found.copied().unwrap_or(0xffff_ffff)
        },
    );
}

#[test]
fn masks_and_extensions() {
    let words = rows(Width::Word, &[Width::Word]);
    for (mode, clamps) in [("clamp", true), ("wrap", false)] {
        check(
            &format!("bmsk.{mode}.b32 %d0, %a0, %a1;"),
            "b32",
            &["b32"; 2],
            &words,
            |row| {
                let (start, length) = if clamps {
                    (row[0], row[1])
                } else {
                    (row[0] % 32, row[1] % 32)
                };
                (0..32)
                    .filter(|&index| index >= start && index - start < length)
                    .map(|index| 1 << index)
                    .sum()
            },
        );
        for (name, signed) in [("u32", false), ("s32", true)] {
            check(
                &format!("szext.{mode}.{name} %d0, %a0, %a1;"),
                name,
                &[name, "u32"],
                &words,
                |row| {
                    let length = if clamps { row[1].min(32) } else { row[1] % 32 };
                    let sign = if signed && length != 0 {
                        bit(row[0], length as u32 - 1)
                    } else {
                        0
                    };
                    (0..32)
                        .map(|index| {
                            let value = if index < length {
                                bit(row[0], index as u32)
                            } else {
                                sign
                            };
                            value << index
                        })
                        .sum()
                },
            );
        }
    }
}
