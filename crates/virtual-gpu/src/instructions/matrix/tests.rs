//! Tensor core instructions against triple loops, with fragments placed as the PTX ISA's tables say, element by element.

use half::{bf16, f16};

use crate::instructions::trial::Trial;

/// An element's type: its name, bits in a register, encoding and value.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bits: usize,
    encode: fn(f64) -> u64,
    decode: fn(u64) -> f64,
    /// The largest relative error of a result of this type.
    error: f64,
}

const F16: Kind = Kind {
    name: "f16",
    bits: 16,
    encode: |value| f16::from_f64(value).to_bits().into(),
    decode: |bits| f16::from_bits(bits as u16).to_f64(),
    error: 1.0 / 1024.0,
};
const BF16: Kind = Kind {
    name: "bf16",
    bits: 16,
    encode: |value| bf16::from_f64(value).to_bits().into(),
    decode: |bits| bf16::from_bits(bits as u16).to_f64(),
    error: 1.0 / 128.0,
};
const TF32: Kind = Kind {
    name: "tf32",
    bits: 32,
    // Whatever lies in the lowest bits does not count.
    encode: |value| u64::from((value as f32).to_bits() & !0x1fff | 0x1234),
    decode: |bits| f64::from(f32::from_bits(bits as u32 & !0x1fff)),
    error: 0.0,
};
const F32: Kind = Kind {
    name: "f32",
    bits: 32,
    encode: |value| (value as f32).to_bits().into(),
    decode: |bits| f64::from(f32::from_bits(bits as u32)),
    error: 2e-6,
};
const F64: Kind = Kind {
    name: "f64",
    bits: 64,
    encode: f64::to_bits,
    decode: f64::from_bits,
    error: 1e-14,
};
const S8: Kind = Kind {
    name: "s8",
    bits: 8,
    encode: |value| u64::from(value as i64 as u8),
    decode: |bits| f64::from(bits as u8 as i8),
    error: 0.0,
};
const U8: Kind = Kind {
    name: "u8",
    bits: 8,
    encode: |value| u64::from(value as i64 as u8),
    decode: |bits| f64::from(bits as u8),
    error: 0.0,
};
const S32: Kind = Kind {
    name: "s32",
    bits: 32,
    encode: |value| u64::from(value as i64 as u32),
    decode: |bits| f64::from(bits as u32 as i32),
    error: 0.0,
};

impl Kind {
    fn is_integer(self) -> bool {
        matches!(self.name, "s8" | "u8" | "s32")
    }

    /// Elements of a register.
    fn packed(self) -> usize {
        if self.bits == 64 { 1 } else { 32 / self.bits }
    }
}

/// A place in a matrix, from the lane and the index of an element of its fragment.
type Place = fn(lane: usize, index: usize) -> (usize, usize);

/// The tables of the PTX ISA, by the operand's shape; `g` is the lane's group, `t` its place in the group.
macro_rules! places {
    ($($name:ident: |$g:ident, $t:ident, $i:ident| ($row:expr, $column:expr);)*) => {$(
        fn $name(lane: usize, $i: usize) -> (usize, usize) {
            let ($g, $t) = (lane / 4, lane % 4);
            ($row, $column)
        }
    )*};
}

places! {
    a_m16n8k8_half: |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1));
    b_m16n8k8_half: |g, t, i| (t * 2 + i, g);
    a_m16n8k16_half: |g, t, i| (
        if i < 2 || (4..6).contains(&i) { g } else { g + 8 },
        if i < 4 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }
    );
    b_m16n8k16_half: |g, t, i| (if i < 2 { t * 2 + (i & 1) } else { t * 2 + (i & 1) + 8 }, g);
    a_m16n8k4: |g, t, i| (if i == 0 { g } else { g + 8 }, t);
    b_k4: |g, t, _i| (t, g);
    a_m16n8k8_single: |g, t, i| (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 });
    b_m16n8k8_single: |g, t, i| (if i == 0 { t } else { t + 4 }, g);
    a_m8n8k4: |g, t, _i| (g, t);
    a_m16n8k16_double: |g, t, i| (if i.is_multiple_of(2) { g } else { g + 8 }, i / 2 * 4 + t);
    b_m16n8k16_double: |g, t, i| (t + 4 * i, g);
    a_m8n8k16: |g, t, i| (g, t * 4 + i);
    b_m8n8k16: |g, t, i| (t * 4 + i, g);
    a_m16n8k16_byte: |g, t, i| (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3));
    a_m16n8k32: |g, t, i| (
        if i < 4 || (8..12).contains(&i) { g } else { g + 8 },
        if i < 8 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }
    );
    b_m16n8k32: |g, t, i| (if i < 4 { t * 4 + (i & 3) } else { t * 4 + (i & 3) + 16 }, g);
    c_16: |g, t, i| (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1));
    c_8: |g, t, i| (g, t * 2 + i);
}

fn noise(seed: usize, index: usize) -> f64 {
    let mixed = (seed * 1_000_003 + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    f64::from(((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as u32)
        / f64::from(1 << 24)
        - 0.5
}

/// A matrix as bits, by rows.
struct Matrix {
    kind: Kind,
    columns: usize,
    bits: Vec<u64>,
}

impl Matrix {
    fn new(kind: Kind, rows: usize, columns: usize, seed: usize) -> Matrix {
        let scale = match kind.name {
            "s8" | "u8" => 255.0,
            "s32" => 1e6,
            _ => 4.0,
        };
        let bits = (0..rows * columns).map(|index| {
            (kind.encode)((noise(seed, index) * scale).trunc_unless(!kind.is_integer()))
        });
        Matrix {
            kind,
            columns,
            bits: bits.collect(),
        }
    }

    fn bits(&self, (row, column): (usize, usize)) -> u64 {
        self.bits[row * self.columns + column]
    }

    fn value(&self, row: usize, column: usize) -> f64 {
        (self.kind.decode)(self.bits((row, column)))
    }

    /// Words of each lane's registers.
    fn fragment(&self, place: Place) -> Vec<Vec<u32>> {
        let of_lane = self.bits.len() / 32;
        let words = (of_lane * self.kind.bits).div_ceil(32);
        let mut fragment = vec![vec![0; 32]; words];
        for lane in 0..32 {
            for index in 0..of_lane {
                let bits = self.bits(place(lane, index));
                let at = index * self.kind.bits;
                fragment[at / 32][lane] |= (bits << (at % 32)) as u32;
                if self.kind.bits == 64 {
                    fragment[at / 32 + 1][lane] = (bits >> 32) as u32;
                }
            }
        }
        fragment
    }
}

trait Truncate {
    fn trunc_unless(self, keep: bool) -> Self;
}

impl Truncate for f64 {
    fn trunc_unless(self, keep: bool) -> f64 {
        if keep { self } else { self.trunc() }
    }
}

/// Names of registers, and what makes them of the words `%i` from `first` on.
fn registers(prefix: &str, count: usize, kind: Kind, first: usize) -> (String, String) {
    if kind.bits != 64 {
        let names: Vec<String> = (first..first + count)
            .map(|index| format!("%i{index}"))
            .collect();
        return (names.join(", "), String::new());
    }
    let names: Vec<String> = (0..count)
        .map(|index| format!("%{prefix}{}", first / 2 + index))
        .collect();
    let moves = names.iter().enumerate().map(|(index, name)| {
        let word = first + 2 * index;
        format!("mov.b64 {name}, {{%i{word}, %i{}}};\n", word + 1)
    });
    (names.join(", "), moves.collect())
}

fn check(
    shape: &str,
    [a, b, c]: [Kind; 3],
    [m, k]: [usize; 2],
    [of_a, of_b, of_c]: [Place; 3],
    saturate: bool,
) {
    let matrices = [
        Matrix::new(a, m, k, 1),
        Matrix::new(b, k, 8, 2),
        Matrix::new(c, m, 8, 3),
    ];
    let [ma, mb, mc] = &matrices;
    let fragments = [ma.fragment(of_a), mb.fragment(of_b), mc.fragment(of_c)];
    let mut texts = Vec::new();
    let mut before = String::new();
    let mut first = 0;
    for (matrix, fragment) in matrices.iter().zip(&fragments) {
        let count = matrix.bits.len() / 32 / matrix.kind.packed();
        let (names, moves) = registers("l", count, matrix.kind, first);
        texts.push(names);
        before += &moves;
        first += fragment.len();
    }
    let results = mc.bits.len() / 32 / c.packed();
    let outputs = results * if c.bits == 64 { 2 } else { 1 };
    let (to, after) = if c.bits == 64 {
        let names: Vec<String> = (0..results)
            .map(|index| format!("%l{}", 40 + index))
            .collect();
        let moves = (0..results).map(|index| {
            format!(
                "mov.b64 {{%o{}, %o{}}}, %l{};\n",
                2 * index,
                2 * index + 1,
                40 + index
            )
        });
        (names.join(", "), moves.collect())
    } else {
        (
            (0..results)
                .map(|index| format!("%o{index}"))
                .collect::<Vec<_>>()
                .join(", "),
            String::new(),
        )
    };
    let name = format!(
        "{shape}.row.col{}.{}.{}.{}.{}",
        if saturate { ".satfinite" } else { "" },
        c.name,
        a.name,
        b.name,
        c.name
    );
    let body = format!(
        "{before}mma.sync.aligned.{name} {{{to}}}, {{{}}}, {{{}}}, {{{}}};\n{after}",
        texts[0], texts[1], texts[2]
    );
    let mut trial = Trial::new(body);
    trial.inputs = fragments.concat();
    trial.outputs = outputs;
    let got = trial.done().outputs;
    for lane in 0..32 {
        for index in 0..mc.bits.len() / 32 {
            let (row, column) = of_c(lane, index);
            let products = (0..k).map(|inner| ma.value(row, inner) * mb.value(inner, column));
            let start = mc.value(row, column);
            let (sum, size) = products.fold((start, start.abs()), |(sum, size), product| {
                (sum + product, size + product.abs())
            });
            let at = index * c.bits;
            let low = u64::from(got[at / 32][lane]) >> (at % 32);
            let bits = match c.bits {
                16 => low & 0xffff,
                64 => low | u64::from(got[at / 32 + 1][lane]) << 32,
                _ => low,
            };
            let value = (c.decode)(bits);
            let error = if c.name == "f16" {
                sum.abs() * c.error + 1e-6
            } else {
                size * c.error
            };
            assert!(
                (value - sum).abs() <= error,
                "{name}: lane {lane}, element {index}: {value}, expected {sum}"
            );
        }
    }
}

#[test]
fn mma_of_every_shape_and_type() {
    for c in [F16, F32] {
        check(
            "m16n8k8",
            [F16, F16, c],
            [16, 8],
            [a_m16n8k8_half, b_m16n8k8_half, c_16],
            false,
        );
        check(
            "m16n8k16",
            [F16, F16, c],
            [16, 16],
            [a_m16n8k16_half, b_m16n8k16_half, c_16],
            false,
        );
    }
    check(
        "m16n8k8",
        [BF16, BF16, F32],
        [16, 8],
        [a_m16n8k8_half, b_m16n8k8_half, c_16],
        false,
    );
    check(
        "m16n8k16",
        [BF16, BF16, F32],
        [16, 16],
        [a_m16n8k16_half, b_m16n8k16_half, c_16],
        false,
    );
    check(
        "m16n8k4",
        [TF32, TF32, F32],
        [16, 4],
        [a_m16n8k4, b_k4, c_16],
        false,
    );
    check(
        "m16n8k8",
        [TF32, TF32, F32],
        [16, 8],
        [a_m16n8k8_single, b_m16n8k8_single, c_16],
        false,
    );
    check(
        "m8n8k4",
        [F64, F64, F64],
        [8, 4],
        [a_m8n8k4, b_k4, c_8],
        false,
    );
    check(
        "m16n8k4",
        [F64, F64, F64],
        [16, 4],
        [a_m16n8k4, b_k4, c_16],
        false,
    );
    check(
        "m16n8k8",
        [F64, F64, F64],
        [16, 8],
        [a_m16n8k8_single, b_m16n8k8_single, c_16],
        false,
    );
    check(
        "m16n8k16",
        [F64, F64, F64],
        [16, 16],
        [a_m16n8k16_double, b_m16n8k16_double, c_16],
        false,
    );
    for a in [S8, U8] {
        for b in [S8, U8] {
            for saturate in [false, true] {
                check(
                    "m8n8k16",
                    [a, b, S32],
                    [8, 16],
                    [a_m8n8k16, b_m8n8k16, c_8],
                    saturate,
                );
                check(
                    "m16n8k16",
                    [a, b, S32],
                    [16, 16],
                    [a_m16n8k16_byte, b_m8n8k16, c_16],
                    saturate,
                );
                check(
                    "m16n8k32",
                    [a, b, S32],
                    [16, 32],
                    [a_m16n8k32, b_m16n8k32, c_16],
                    saturate,
                );
            }
        }
    }
}

#[test]
fn integer_sums_wrap_or_saturate() {
    let ones = vec![0x0101_0101; 32];
    for (saturate, expected) in [("", i32::MIN), (".satfinite", i32::MAX)] {
        let body = format!(
            "mma.sync.aligned.m8n8k16.row.col{saturate}.s32.s8.s8.s32 {{%o0, %o1}}, {{%i0}}, {{%i0}}, {{%i1, %i1}};"
        );
        let mut trial = Trial::new(body)
            .input(ones.clone())
            .input(vec![(i32::MAX - 15) as u32; 32]);
        trial.outputs = 2;
        assert_eq!(trial.done().outputs[0], [expected as u32; 32]);
    }
}

#[test]
fn special_values_go_through() {
    // Row 0 of A is (infinity, 0..), column 0 of B is (1, 0..), the rest zero; f16 subnormals count.
    let mut a = vec![0u32; 32];
    a[0] = 0x7c00;
    a[4] = 0x0001;
    let mut b = vec![0u32; 32];
    b[0] = 0x3c00;
    let body = "mov.b32 %x0, 0;\nmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%o0, %o1, %o2, %o3}, \
                {%i0, %x0, %x0, %x0}, {%i1, %x0}, {%x0, %x0, %x0, %x0};";
    let mut trial = Trial::new(body).input(a).input(b);
    trial.outputs = 4;
    let got = trial.done().outputs;
    assert_eq!(f32::from_bits(got[0][0]), f32::INFINITY);
    assert!(f32::from_bits(got[1][0]).is_nan(), "infinity times zero");
    assert_eq!(f32::from_bits(got[0][4]), f32::powi(2.0, -24));
}

/// The element of a row and column of the matrix of number `matrix`, in the tests of tiles.
fn tile_element(matrix: usize, row: usize, column: usize) -> u16 {
    (matrix << 8 | row << 4 | column) as u16
}

/// The rows of four matrices, one behind the other, `pitch` bytes apart.
fn tiles(pitch: usize) -> Vec<u8> {
    let mut bytes = vec![0; 32 * pitch];
    for row in 0..32 {
        for column in 0..8 {
            let element = tile_element(row / 8, row % 8, column).to_le_bytes();
            bytes[row * pitch + 2 * column..][..2].copy_from_slice(&element);
        }
    }
    bytes
}

/// Address of the lane's row in shared memory, in `%x0`, the rows being `pitch` bytes apart; all of `%g` is there.
fn rows_in_shared(pitch: usize) -> String {
    format!(
        "mov.u32 %x1, %tid.x;\nmul.lo.u32 %x0, %x1, {pitch};\nmov.u32 %x2, s;\nadd.u32 %x0, %x0, %x2;\n\
         mul.lo.u32 %x1, %x1, {pitch};\ncvt.u64.u32 %l0, %x1;\nadd.u64 %l0, %l0, %g;\n\
         ld.global.v2.u64 {{%l1, %l2}}, [%l0];\nst.shared.v2.u64 [%x0], {{%l1, %l2}};\nbar.warp.sync 0xffffffff;\n"
    )
}

#[test]
fn tiles_are_loaded_stored_and_turned_over() {
    const PITCH: usize = 48;
    for count in [1, 2, 4] {
        for trans in [false, true] {
            let modifier = if trans { ".trans" } else { "" };
            let names: Vec<String> = (0..count).map(|index| format!("%o{index}")).collect();
            let names = names.join(", ");
            // The first result takes the place of the address.
            let body = format!(
                "{}ldmatrix.sync.aligned.m8n8.x{count}{modifier}.shared.b16 {{{names}}}, [%x0];\n\
                 add.u32 %x3, %x0, 8192;\nstmatrix.sync.aligned.m8n8.x{count}{modifier}.shared.b16 [%x3], {{{names}}};\n\
                 bar.warp.sync 0xffffffff;\nld.shared.v2.u64 {{%l1, %l2}}, [%x3];\nst.global.v2.u64 [%l0], {{%l1, %l2}};\n\
                 movmatrix.sync.aligned.m8n8.trans.b16 %o4, %o0;",
                rows_in_shared(PITCH)
            );
            let mut trial = Trial::new(body);
            trial.outputs = 5;
            trial.scratch = tiles(PITCH);
            let got = trial.done();
            for matrix in 0..count {
                for lane in 0..32 {
                    let element = |index: usize, turned: bool| {
                        let (row, column) = (lane / 4, lane % 4 * 2 + index);
                        let (row, column) = if turned { (column, row) } else { (row, column) };
                        u32::from(tile_element(matrix, row, column))
                    };
                    let word = |turned| element(0, turned) | element(1, turned) << 16;
                    assert_eq!(
                        got.outputs[matrix][lane],
                        word(trans),
                        "x{count}{modifier}, matrix {matrix}, lane {lane}"
                    );
                    if matrix == 0 {
                        assert_eq!(got.outputs[4][lane], word(!trans));
                    }
                }
            }
            let rows = |bytes: &[u8]| {
                bytes
                    .chunks(PITCH)
                    .take(8 * count)
                    .map(|row| row[..16].to_vec())
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                rows(&got.scratch),
                rows(&tiles(PITCH)),
                "what was stored is what was loaded"
            );
        }
    }
}

#[test]
fn wmma_of_every_shape_type_and_layout() {
    let shapes = [
        ("m16n16k16", [16, 16, 16]),
        ("m32n8k16", [32, 8, 16]),
        ("m8n32k16", [8, 32, 16]),
    ];
    let types = [
        (F16, F16, "f16.f16", 8),
        (F16, F32, "f32.f32", 8),
        (BF16, F32, "f32.bf16.bf16.f32", 0),
        (S8, S32, "s32.s8.s8.s32", 0),
        (U8, S32, "s32.u8.u8.s32", 0),
    ];
    for (a, c, name, registers) in types {
        for (shape, sizes) in shapes {
            for layout in 0..8 {
                let layouts = [layout & 1, layout >> 1 & 1, layout >> 2]
                    .map(|column| if column == 1 { "col" } else { "row" });
                check_wmma(shape, sizes, [a, c], name, registers, layouts);
            }
        }
    }
    check_wmma(
        "m16n16k8",
        [16, 16, 8],
        [TF32, F32],
        "f32.tf32.tf32.f32",
        0,
        ["row", "col", "row"],
    );
    check_wmma(
        "m8n8k4",
        [8, 8, 4],
        [F64, F64],
        "f64.f64.f64.f64",
        0,
        ["row", "col", "col"],
    );
}

/// Multiplies in global and shared memory; A, B, C and D lie one behind the other, with rows longer than needed.
fn check_wmma(
    shape: &str,
    [m, n, k]: [usize; 3],
    [ab, c]: [Kind; 2],
    types: &str,
    of_f16: usize,
    layouts: [&str; 3],
) {
    let matrices = [
        Matrix::new(ab, m, k, 1),
        Matrix::new(ab, k, n, 2),
        Matrix::new(c, m, n, 3),
    ];
    let sizes = [[m, k], [k, n], [m, n]];
    let strides: Vec<usize> = sizes
        .iter()
        .zip(layouts)
        .map(|([rows, columns], layout)| {
            if layout == "row" {
                columns + 16
            } else {
                rows + 16
            }
        })
        .collect();
    let place = |which: usize, row: usize, column: usize| {
        let (major, minor) = if layouts[which] == "row" {
            (row, column)
        } else {
            (column, row)
        };
        which * 4096 + (major * strides[which] + minor) * matrices[which].kind.bits / 8
    };
    let mut memory = vec![0; 4 * 4096];
    for (which, matrix) in matrices.iter().enumerate() {
        for (index, bits) in matrix.bits.iter().enumerate() {
            let at = place(which, index / matrix.columns, index % matrix.columns);
            let size = matrix.kind.bits / 8;
            memory[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
    }
    let long = ab.bits == 64;
    let prefix = if long { "%l" } else { "%x" };
    let list = |first: usize, matrix: usize| {
        let plain = matrices[matrix].bits.len() / 32 / matrices[matrix].kind.packed();
        let count = if matrix < 2 && of_f16 != 0 {
            of_f16
        } else {
            plain
        };
        (first..first + count)
            .map(|index| format!("{prefix}{index}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (ra, rb, rc) = (list(10, 0), list(20, 1), list(30, 2));
    let [la, lb, lc] = layouts;
    let (ab_name, c_name) = (ab.name, c.name);
    let body = format!(
        "mov.b32 %x9, {};\nwmma.load.a.sync.aligned.{la}.{shape}.global.{ab_name} {{{ra}}}, [%g], {};\n\
         wmma.load.b.sync.aligned.{lb}.{shape}.{ab_name} {{{rb}}}, [%g+4096], {};\n\
         wmma.load.c.sync.aligned.{lc}.{shape}.global.{c_name} {{{rc}}}, [%g+8192], %x9;\n\
         wmma.mma.sync.aligned.{la}.{lb}.{shape}.{types} {{{rc}}}, {{{ra}}}, {{{rb}}}, {{{rc}}};\n\
         wmma.store.d.sync.aligned.{lc}.{shape}.global.{c_name} [%g+12288], {{{rc}}}, {};",
        strides[2], strides[0], strides[1], strides[2]
    );
    let mut trial = Trial::new(body);
    trial.scratch = memory;
    let got = trial.done().scratch;
    let [ma, mb, mc] = &matrices;
    for row in 0..m {
        for column in 0..n {
            let start = mc.value(row, column);
            let products = (0..k).map(|inner| ma.value(row, inner) * mb.value(inner, column));
            let (sum, size) = products.fold((start, start.abs()), |(sum, size), product| {
                (sum + product, size + product.abs())
            });
            let at = place(2, row, column) + 4096;
            let mut bytes = [0; 8];
            bytes[..c.bits / 8].copy_from_slice(&got[at..at + c.bits / 8]);
            let value = (c.decode)(u64::from_le_bytes(bytes));
            let error = if c.name == "f16" {
                sum.abs() * c.error + 1e-6
            } else {
                size * c.error
            };
            assert!(
                (value - sum).abs() <= error,
                "{shape} {types} {layouts:?}: ({row}, {column}): {value}, expected {sum}"
            );
        }
    }
}

#[test]
fn misuse_is_a_named_fault() {
    let mut trial = Trial::new("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x0}, [s+8];");
    assert!(trial.fault().to_string().contains("misaligned"));
    trial = Trial::new("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x0}, [s+16384];");
    assert!(trial.fault().to_string().contains("out of bounds"));
    trial = Trial::new("mov.b32 %x0, 0;\nmovmatrix.sync.aligned.m8n8.trans.b16 %x1, %x0;");
    trial.threads = 16;
    let fault = trial.fault();
    assert!(fault.to_string().contains("all 32 lanes"), "{fault}");
    trial = Trial::new(
        "wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%x0, %x1, %x2, %x3}, [%g+8], 16;",
    );
    trial.scratch = vec![0; 4096];
    assert!(trial.fault().to_string().contains("misaligned"));
}
