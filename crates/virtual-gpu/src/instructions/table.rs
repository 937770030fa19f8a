//! For tests: runs an instruction on columns of operands, one thread for each row, and compares the results with a
//! reference.

use crate::rig::{Bytes, Rig};

/// What an operand's register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// A predicate: 0 or 1.
    Predicate,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Long,
}

use Width::{Half, Long, Predicate, Word};

impl Width {
    /// The width of a type's register, by the type's name.
    pub(crate) fn of(ty: &str) -> Width {
        match ty {
            "pred" => Predicate,
            "f16" | "bf16" | "e4m3x2" | "e5m2x2" => Half,
            "f16x2" | "bf16x2" | "u16x2" | "s16x2" | "f32" | "tf32" => Word,
            "f64" => Long,
            _ => match ty[1..].parse() {
                Ok(8 | 16) => Half,
                Ok(32) => Word,
                Ok(64) => Long,
                _ => panic!("no width for {ty}"),
            },
        }
    }

    /// The lowest bits.
    pub(crate) fn cut(self, value: u64) -> u64 {
        match self {
            Predicate => value & 1,
            Half => value & 0xffff,
            Word => value & 0xffff_ffff,
            Long => value,
        }
    }

    fn register(self) -> &'static str {
        match self {
            Predicate => "pred",
            Half => "b16",
            Word => "b32",
            Long => "b64",
        }
    }

    /// Type and bytes in memory.
    fn memory(self) -> (&'static str, usize) {
        match self {
            Half => ("b16", 2),
            Long => ("b64", 8),
            Predicate | Word => ("b32", 4),
        }
    }
}

/// Threads of a block.
const THREADS: usize = 256;

/// Runs a text that reads `%a0`, `%a1`.. and writes `%d0`, `%d1`..; `rows` are the operands of one thread each.
/// `%p0..3`, `%h0..3`, `%x0..3` and `%y0..3` are there for use, as predicates, b16, b32 and b64.
pub(crate) fn run(
    text: &str,
    outputs: &[Width],
    inputs: &[Width],
    rows: &[Vec<u64>],
) -> Vec<Vec<u64>> {
    let blocks = rows.len().div_ceil(THREADS);
    let padded = blocks * THREADS;
    let mut params = Vec::new();
    let mut body = String::new();
    let columns = outputs.iter().map(|width| (width, "d"));
    let columns = columns.chain(inputs.iter().map(|width| (width, "a")));
    let mut stores = String::new();
    for (number, (width, letter)) in columns.enumerate() {
        params.push(format!(".param .u64 q{number}"));
        let index = if letter == "d" {
            number
        } else {
            number - outputs.len()
        };
        let (ty, bytes) = width.memory();
        let register = width.register();
        let address =
            format!("ld.param.u64 %base, [q{number}]; mad.wide.u32 %base, %row, {bytes}, %base;\n");
        body += &format!(".reg .{register} %{letter}{index};\n");
        match (letter, width) {
            ("a", Predicate) => {
                body += &address;
                body +=
                    &format!("ld.global.b32 %word, [%base]; setp.ne.u32 %a{index}, %word, 0;\n");
            }
            ("a", _) => {
                body += &address;
                body += &format!("ld.global.{ty} %a{index}, [%base];\n");
            }
            (_, Predicate) => {
                stores += &address;
                stores +=
                    &format!("selp.u32 %word, 1, 0, %d{index};\nst.global.b32 [%base], %word;\n");
            }
            _ => {
                stores += &address;
                stores += &format!("st.global.{ty} [%base], %d{index};\n");
            }
        }
    }
    let module = format!(
        ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry test({})\n{{\n\
         .reg .b64 %base; .reg .b32 %row, %word, %block;\n\
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %x<4>; .reg .b64 %y<4>;\n\
         mov.u32 %row, %tid.x; mov.u32 %block, %ctaid.x; mad.lo.u32 %row, %block, {THREADS}, %row;\n\
         {body}{text}\n{stores}ret;\n}}\n",
        params.join(", ")
    );
    let mut rig = Rig::new(&module);
    let mut addresses = Vec::new();
    for width in outputs {
        addresses.push(rig.buffer(padded * width.memory().1));
    }
    for (index, width) in inputs.iter().enumerate() {
        let bytes = width.memory().1;
        let mut column = Vec::with_capacity(padded * bytes);
        for row in 0..padded {
            let value = rows[row.min(rows.len() - 1)][index];
            column.extend(&value.to_le_bytes()[..bytes]);
        }
        addresses.push(rig.filled(&column));
    }
    let params: Vec<Vec<u8>> = addresses.iter().map(|address| address.bytes()).collect();
    let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
    let launched = rig.launch(
        "test",
        [blocks as u32, 1, 1],
        [THREADS as u32, 1, 1],
        0,
        &params,
    );
    launched.unwrap_or_else(|fault| panic!("{text}: {fault}"));
    let columns: Vec<(usize, Vec<u8>)> = outputs
        .iter()
        .zip(&addresses)
        .map(|(width, &address)| (width.memory().1, rig.read(address)))
        .collect();
    (0..rows.len())
        .map(|row| {
            let cells = columns.iter().map(|(bytes, column)| {
                let mut word = [0; 8];
                word[..*bytes].copy_from_slice(&column[row * bytes..][..*bytes]);
                u64::from_le_bytes(word)
            });
            cells.collect()
        })
        .collect()
}

/// Runs an instruction of one result and compares it bit by bit with the reference.
pub(crate) fn check(
    text: &str,
    output: &str,
    inputs: &[&str],
    rows: &[Vec<u64>],
    reference: impl Fn(&[u64]) -> u64,
) {
    check_by(text, output, inputs, rows, |row, got| {
        let expected = Width::of(output).cut(reference(row));
        (got == expected)
            .then_some(())
            .ok_or(format!("{expected:#x}"))
    });
}

/// Runs an instruction of one result; `judge` says what it should have been if it is wrong.
pub(crate) fn check_by(
    text: &str,
    output: &str,
    inputs: &[&str],
    rows: &[Vec<u64>],
    judge: impl Fn(&[u64], u64) -> Result<(), String>,
) {
    let widths: Vec<Width> = inputs.iter().map(|ty| Width::of(ty)).collect();
    let results = run(text, &[Width::of(output)], &widths, rows);
    let mut wrong = Vec::new();
    for (row, result) in rows.iter().zip(&results) {
        if let Err(expected) = judge(row, result[0]) {
            wrong
                .push(format!("{row:#x?} gave {:#x}, not {expected}", result[0]).replace('\n', ""));
        }
    }
    assert!(
        wrong.is_empty(),
        "{text}: {} of {} wrong:\n{}",
        wrong.len(),
        rows.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}

/// Every combination of the values of each column.
pub(crate) fn cross(columns: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let mut rows = vec![Vec::new()];
    for column in columns {
        rows = rows
            .iter()
            .flat_map(|row| {
                column.iter().map(move |&value| {
                    let mut longer = row.clone();
                    longer.push(value);
                    longer
                })
            })
            .collect();
    }
    rows
}

/// Rows of one column.
pub(crate) fn single(values: impl IntoIterator<Item = u64>) -> Vec<Vec<u64>> {
    values.into_iter().map(|value| vec![value]).collect()
}

/// Pseudo-random numbers that are the same in every run.
pub(crate) struct Random(u64);

impl Random {
    /// A sequence.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below another.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Rows of random numbers.
    pub(crate) fn rows(&mut self, columns: &[Width], count: usize) -> Vec<Vec<u64>> {
        (0..count)
            .map(|_| columns.iter().map(|width| width.cut(self.next())).collect())
            .collect()
    }
}

/// Integers at the edges of a width, and shift amounts.
pub(crate) fn integer_edges(width: Width) -> Vec<u64> {
    let bits = match width {
        Predicate => 1,
        Half => 16,
        Word => 32,
        Long => 64,
    };
    let top = 1u64 << (bits - 1);
    let mut edges = vec![
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        15,
        16,
        31,
        32,
        33,
        63,
        64,
        65,
        100,
        255,
        256,
        0x7fff,
        0x8000,
        0xffff,
        0x1_0000,
        top - 1,
        top,
        top + 1,
        u64::MAX,
        u64::MAX - 1,
        u64::MAX - 2,
        0x1234_5678_9abc_def0,
        0x5555_5555_5555_5555,
        0xaaaa_aaaa_aaaa_aaaa,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        0x80_0000,
        0xff_ffff,
        0x0100_0001,
    ];
    edges.iter_mut().for_each(|edge| *edge = width.cut(*edge));
    edges.sort_unstable();
    edges.dedup();
    edges
}

#[test]
fn a_wrong_result_is_reported() {
    let outcome = std::panic::catch_unwind(|| {
        check(
            "add.u32 %d0, %a0, 1;",
            "u32",
            &["u32"],
            &single([1, 2]),
            |row| row[0],
        );
    });
    assert!(outcome.is_err());
    check(
        "add.u32 %d0, %a0, 1;",
        "u32",
        &["u32"],
        &single([1, 0xffff_ffff]),
        |row| row[0] + 1,
    );
}
