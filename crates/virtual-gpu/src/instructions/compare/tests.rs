//! Comparisons and selections against the order of exact values.

use std::cmp::Ordering;

use crate::instructions::exact::{BF16, F16, F32, F64, Format};
use crate::instructions::table::{Random, Width, check, cross, integer_edges, run};

/// How two operands compare; `None` if one is NaN.
type Order = Option<Ordering>;

fn holds(comparison: &str, order: Order) -> bool {
    use Ordering::{Equal, Greater, Less};
    match comparison {
        "num" => return order.is_some(),
        "nan" => return order.is_none(),
        _ => {}
    }
    let Some(order) = order else {
        return comparison.len() == 3;
    };
    match &comparison[..2] {
        "eq" => order == Equal,
        "ne" => order != Equal,
        "lt" | "lo" => order == Less,
        "le" | "ls" => order != Greater,
        "gt" | "hi" => order == Greater,
        _ => order != Less,
    }
}

const ORDERED: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
const UNORDERED: [&str; 8] = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
const UNSIGNED: [&str; 4] = ["lo", "ls", "hi", "hs"];

fn float_order(format: Format, a: u64, b: u64, top: u32) -> Order {
    if format.is_nan(a) || format.is_nan(b) {
        return None;
    }
    let rank = |bits: u64| {
        let magnitude = (bits & !(1 << top)) as i64;
        if bits >> top & 1 == 1 {
            -magnitude
        } else {
            magnitude
        }
    };
    Some(rank(a).cmp(&rank(b)))
}

/// Types with their order and operands.
fn types() -> Vec<(&'static str, Box<dyn Fn(u64, u64) -> Order>, Vec<Vec<u64>>)> {
    let mut types: Vec<(&'static str, Box<dyn Fn(u64, u64) -> Order>, Vec<Vec<u64>>)> = Vec::new();
    for (name, bits, signed) in [
        ("u16", 16, false),
        ("s16", 16, true),
        ("b16", 16, false),
        ("u32", 32, false),
        ("s32", 32, true),
        ("b32", 32, false),
        ("u64", 64, false),
        ("s64", 64, true),
        ("b64", 64, false),
    ] {
        let edges = integer_edges(Width::of(name));
        let order = move |a: u64, b: u64| {
            let value = |raw: u64| (raw << (64 - bits)) as i64 >> (64 - bits);
            Some(if signed {
                value(a).cmp(&value(b))
            } else {
                a.cmp(&b)
            })
        };
        types.push((name, Box::new(order), cross(&[edges.clone(), edges])));
    }
    for (name, format, top) in [
        ("f16", F16, 15),
        ("bf16", BF16, 15),
        ("f32", F32, 31),
        ("f64", F64, 63),
    ] {
        let edges = format.edges();
        let order = move |a, b| float_order(format, a, b, top);
        types.push((name, Box::new(order), cross(&[edges.clone(), edges])));
    }
    types
}

fn comparisons(ty: &str) -> Vec<&'static str> {
    match ty.as_bytes()[0] {
        b'b' if ty != "bf16" => vec!["eq", "ne"],
        b'u' => ORDERED.into_iter().chain(UNSIGNED).collect(),
        b's' => ORDERED.to_vec(),
        _ => ORDERED.into_iter().chain(UNORDERED).collect(),
    }
}

#[test]
fn every_comparison_of_every_type() {
    for (ty, order, rows) in types() {
        for comparison in comparisons(ty) {
            check(
                &format!("setp.{comparison}.{ty} %d0, %a0, %a1;"),
                "pred",
                &[ty, ty],
                &rows,
                |row| u64::from(holds(comparison, order(row[0], row[1]))),
            );
        }
    }
}

#[test]
fn flushed_comparisons() {
    for (ty, format, top) in [("f32", F32, 31), ("f16", F16, 15)] {
        let edges = format.edges();
        let rows = cross(&[edges.clone(), edges]);
        for comparison in comparisons(ty) {
            check(
                &format!("setp.{comparison}.ftz.{ty} %d0, %a0, %a1;"),
                "pred",
                &[ty, ty],
                &rows,
                |row| {
                    let order =
                        float_order(format, format.flush(row[0]), format.flush(row[1]), top);
                    u64::from(holds(comparison, order))
                },
            );
        }
    }
}

#[test]
fn combinations_with_a_predicate() {
    let rows = cross(&[vec![0, 1, 2, 0xffff_ffff], vec![1, 2], vec![0, 1]]);
    for (operation, combine) in [
        ("and", (|a, b| a & b) as fn(bool, bool) -> bool),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
    ] {
        for (sign, negated) in [("", false), ("!", true)] {
            let text = format!("setp.lt.{operation}.u32 %d0|%d1, %a0, %a1, {sign}%a2;");
            let results = run(
                &text,
                &[Width::Predicate; 2],
                &[Width::Word, Width::Word, Width::Predicate],
                &rows,
            );
            for (row, result) in rows.iter().zip(results) {
                let (less, with) = (row[0] < row[1], (row[2] != 0) != negated);
                let expected = [combine(less, with), combine(!less, with)].map(u64::from);
                assert_eq!(result, expected, "{text} of {row:?}");
            }
            let text = format!("setp.lt.{operation}.u32 _|%d0, %a0, %a1, {sign}%a2;");
            check(&text, "pred", &["u32", "u32", "pred"], &rows, |row| {
                u64::from(combine(row[0] >= row[1], (row[2] != 0) != negated))
            });
            let text = format!("set.lt.{operation}.u32.u32 %d0, %a0, %a1, {sign}%a2;");
            check(&text, "u32", &["u32", "u32", "pred"], &rows, |row| {
                u64::from(combine(row[0] < row[1], (row[2] != 0) != negated)) * 0xffff_ffff
            });
        }
    }
    // A destination that is also a source.
    check(
        "mov.pred %p0, %a2; setp.lt.and.u32 %p0|%p1, %a0, %a1, %p0; xor.pred %d0, %p0, %p1;",
        "pred",
        &["u32", "u32", "pred"],
        &rows,
        |row| row[2],
    );
}

fn two(a: &[u64], b: &[u64]) -> Vec<Vec<u64>> {
    let mut random = Random::new(41);
    let mut pick = |list: &[u64]| list[random.next() as usize % list.len()];
    (0..4000)
        .map(|_| vec![pick(a) | pick(a) << 16, pick(b) | pick(b) << 16])
        .collect()
}

#[test]
fn comparisons_of_pairs() {
    for (ty, format, one) in [("f16", F16, 0x3c00), ("bf16", BF16, 0x3f80)] {
        let edges = format.edges();
        let rows = two(&edges, &edges);
        let both = format!("{ty}x2");
        for comparison in comparisons(ty) {
            let truth = |row: &[u64], shift: u32| {
                let (a, b) = (row[0] >> shift & 0xffff, row[1] >> shift & 0xffff);
                u64::from(holds(comparison, float_order(format, a, b, 15)))
            };
            let text = format!("setp.{comparison}.{both} %d0|%d1, %a0, %a1;");
            let results = run(&text, &[Width::Predicate; 2], &[Width::Word; 2], &rows);
            for (row, result) in rows.iter().zip(results) {
                assert_eq!(
                    result,
                    [truth(row, 0), truth(row, 16)],
                    "{text} of {row:x?}"
                );
            }
            check(
                &format!("set.{comparison}.{both}.{both} %d0, %a0, %a1;"),
                &both,
                &[&both, &both],
                &rows,
                |row| one * truth(row, 0) | one * truth(row, 16) << 16,
            );
        }
    }
}

#[test]
fn truth_as_a_number() {
    for (ty, order, rows) in types() {
        for comparison in [
            comparisons(ty)[0],
            comparisons(ty)[comparisons(ty).len() - 1],
        ] {
            let mut targets = vec![
                ("u32", 0xffff_ffff),
                ("s32", 0xffff_ffff),
                ("f32", 0x3f80_0000u64),
            ];
            if matches!(ty, "f16" | "bf16") {
                targets = vec![("u32", 0xffff_ffff), ("u16", 0xffff), ("s16", 0xffff)];
                targets.push((ty, if ty == "f16" { 0x3c00 } else { 0x3f80 }));
            }
            for (target, one) in targets {
                let text = format!("set.{comparison}.{target}.{ty} %d0, %a0, %a1;");
                check(&text, target, &[ty, ty], &rows, |row| {
                    one * u64::from(holds(comparison, order(row[0], row[1])))
                });
            }
        }
    }
}

#[test]
fn selections() {
    for ty in [
        "b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64",
    ] {
        let width = Width::of(ty);
        let mut rows = Random::new(42).rows(&[width, width, Width::Predicate], 500);
        check(
            &format!("selp.{ty} %d0, %a0, %a1, %a2;"),
            ty,
            &[ty, ty, "pred"],
            &rows,
            |row| row[1 - row[2] as usize],
        );
        let controls = F32.edges();
        for (row, control) in rows.iter_mut().zip(controls.iter().cycle()) {
            row[2] = *control;
        }
        check(
            &format!("slct.{ty}.s32 %d0, %a0, %a1, %a2;"),
            ty,
            &[ty, ty, "s32"],
            &rows,
            |row| row[usize::from(row[2] >> 31 == 1)],
        );
        for ftz in ["", ".ftz"] {
            check(
                &format!("slct{ftz}.{ty}.f32 %d0, %a0, %a1, %a2;"),
                ty,
                &[ty, ty, "f32"],
                &rows,
                |row| {
                    let control = if ftz.is_empty() {
                        row[2]
                    } else {
                        F32.flush(row[2])
                    };
                    // -0 is at least zero; NaN is not.
                    let first = control <= 0x7f80_0000 || control == 0x8000_0000;
                    row[usize::from(!first)]
                },
            );
        }
    }
}
