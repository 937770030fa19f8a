//! `kernels/integer.cu`.

use crate::compare::same;
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/integer.ptx");

crate::kernel_tests! { carry_chains bit_counts bit_fields byte_permute dot_products integer_odds shifts logic3 }

const N: usize = 400;

fn small_words(seed: u64, count: usize) -> Vec<u32> {
    Draw::new(seed)
        .words(count)
        .into_iter()
        .map(|word| word as u32)
        .collect()
}

fn signed(values: &[u32]) -> Vec<i32> {
    values.iter().map(|&x| x as i32).collect()
}

fn halves(x: u128) -> [u64; 2] {
    [x as u64, (x >> 64) as u64]
}

fn carry_chains(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (a, b) = (Draw::new(130).words(2 * N), Draw::new(131).words(2 * N));
    let (da, db) = (gpu.upload(&a), gpu.upload(&b));
    let wide = |pair: &[u64]| u128::from(pair[1]) << 64 | u128::from(pair[0]);
    let pairs: Vec<(u128, u128)> = a.chunks(2).map(wide).zip(b.chunks(2).map(wide)).collect();

    let out = gpu.zeros::<u64>(6 * N);
    gpu.run(
        &module,
        "carry_chains",
        4,
        128,
        arguments![&da, &db, &out, N as i32],
    );
    let expected: Vec<u64> = pairs
        .iter()
        .flat_map(|&(x, y)| {
            let product = u128::from(x as u64) * u128::from(y as u64);
            [
                halves(x.wrapping_add(y)),
                halves(x.wrapping_sub(y)),
                halves(product),
            ]
            .concat()
        })
        .collect();
    same("carry_chains", &gpu.download(&out), &expected);

    gpu.run(
        &module,
        "wide_products",
        4,
        128,
        arguments![&da, &db, &out, N as i32],
    );
    let expected: Vec<u64> = pairs
        .iter()
        .flat_map(|&(x, y)| {
            let [low, high] = halves(x.wrapping_add(y));
            let (x, y) = (x as u64, y as u64);
            let [product, unsigned_high] = halves(u128::from(x) * u128::from(y));
            let signed_high = (i128::from(x as i64) * i128::from(y as i64)) >> 64;
            let high32 = (u64::from(x as u32) * u64::from(y as u32)) >> 32;
            let signed_high32 = (i64::from(x as i32) * i64::from(y as i32)) >> 32;
            let both = high32 << 32 | u64::from(signed_high32 as u32);
            [low, high, product, unsigned_high, signed_high as u64, both]
        })
        .collect();
    same("wide_products", &gpu.download(&out), &expected);
}

fn bit_counts(gpu: &Gpu) {
    let (narrow, wide) = (small_words(132, N), Draw::new(133).words(N));
    let out = gpu.zeros::<i32>(10 * N);
    let arguments = arguments![&gpu.upload(&narrow), &gpu.upload(&wide), &out, N as i32];
    gpu.run(&gpu.module(TEXT), "bit_counts", 4, 128, arguments);
    let expected: Vec<i32> = narrow
        .iter()
        .zip(&wide)
        .flat_map(|(&x, &y)| {
            let first = |zeros: u32, is_zero: bool| if is_zero { 0 } else { zeros as i32 + 1 };
            let highest = |x: u32| {
                if x == 0 {
                    -1
                } else {
                    31 - x.leading_zeros() as i32
                }
            };
            // Of a negative number the highest clear bit is meant.
            let signed = if (x as i32) < 0 { !x } else { x };
            [
                x.count_ones() as i32,
                y.count_ones() as i32,
                x.leading_zeros() as i32,
                y.leading_zeros() as i32,
                first(x.trailing_zeros(), x == 0),
                first(y.trailing_zeros(), y == 0),
                x.reverse_bits() as i32,
                (y.reverse_bits() >> 32) as i32,
                highest(signed),
                if x == 0 { -1 } else { x.leading_zeros() as i32 },
            ]
        })
        .collect();
    same("bit_counts", &gpu.download(&out), &expected);
}

/// Bits `position..position + length` of a word of `bits`; past its end a signed field has copies of the sign.
fn extract(x: u64, bits: u32, position: u32, length: u32, is_signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let at = |bit: u32| u64::from(bit < bits && x >> bit & 1 == 1);
    let sign = match () {
        () if !is_signed || length == 0 => 0,
        () => at((position + length - 1).min(bits - 1)),
    };
    (0..bits).fold(0, |field, bit| {
        let value = if bit < length && position + bit < bits {
            at(position + bit)
        } else {
            sign
        };
        field | value << bit
    })
}

fn insert(field: u64, into: u64, bits: u32, position: u32, length: u32) -> u64 {
    (0..bits).fold(0, |word, bit| {
        let is_inside = bit >= position && bit < position + length;
        let value = if is_inside {
            field >> (bit - position)
        } else {
            into >> bit
        };
        word | (value & 1) << bit
    })
}

#[test]
fn fields_of_known_words() {
    assert_eq!(extract(0xabcd_1234, 32, 8, 8, false), 0x12);
    assert_eq!(extract(0xabcd_f234, 32, 8, 8, true), 0xffff_fff2);
    assert_eq!(extract(0x8000_0000, 32, 28, 12, true), 0xffff_fff8);
    assert_eq!(extract(0x8000_0000, 32, 28, 12, false), 8);
    assert_eq!(insert(0xff, 0, 32, 4, 4), 0xf0);
}

fn bit_fields(gpu: &Gpu) {
    let mut draw = Draw::new(134);
    let words = draw.words(N);
    let mut amounts = || -> Vec<u32> {
        (0..N)
            .map(|i| draw.integer(0, if i % 4 == 0 { 256 } else { 40 }) as u32)
            .collect()
    };
    let (position, length) = (amounts(), amounts());
    let out = gpu.zeros::<u64>(6 * N);
    let arguments = arguments![
        &gpu.upload(&words),
        &gpu.upload(&position),
        &gpu.upload(&length),
        &out,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "bit_fields", 4, 128, arguments);
    let mut expected = Vec::new();
    for i in 0..N {
        let (x, p, l) = (words[i], position[i], length[i]);
        let (low, high) = (x & 0xffff_ffff, x >> 32);
        expected.extend([
            extract(low, 32, p, l, false),
            extract(low, 32, p, l, true),
            extract(x, 64, p, l, false),
            extract(x, 64, p, l, true),
            insert(high, low, 32, p, l),
            insert(!x, x, 64, p, l),
        ]);
    }
    same("bit_fields", &gpu.download(&out), &expected);
}

/// Four bytes of the eight of (a, b), each named by three bits; the fourth asks for copies of the byte's sign.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let byte = |at: u32| {
        let pick = selector >> (4 * at) & 15;
        let value = bytes[(pick & 7) as usize];
        if pick & 8 == 0 {
            value
        } else {
            ((value as i8) >> 7) as u8
        }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

fn byte_permute(gpu: &Gpu) {
    let (a, b, selector) = (
        small_words(135, N),
        small_words(136, N),
        small_words(137, N),
    );
    let out = gpu.zeros::<u32>(8 * N);
    let arguments = arguments![
        &gpu.upload(&a),
        &gpu.upload(&b),
        &gpu.upload(&selector),
        &out,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "byte_permute", 4, 128, arguments);
    let mut expected = Vec::new();
    for i in 0..N {
        let (x, y, s) = (a[i], b[i], selector[i]);
        let named = |selectors: [u32; 4]| permute(x, y, selectors[(s & 3) as usize]);
        let both = u64::from(y) << 32 | u64::from(x);
        let left = ((both << (s & 31)) >> 32) as u32;
        let right = (both >> (s & 63).min(32)) as u32;
        expected.extend([
            permute(x, y, s & 0xffff),
            named([0x3210, 0x4321, 0x5432, 0x6543]),
            named([0x5670, 0x6701, 0x7012, 0x0123]),
            named([0x0000, 0x1111, 0x2222, 0x3333]),
            named([0x3210, 0x3211, 0x3222, 0x3333]),
            named([0x0000, 0x1110, 0x2210, 0x3210]),
            named([0x1010, 0x3232, 0x1010, 0x3232]),
            permute(x, y, 0x6351).wrapping_add(left).wrapping_add(right),
        ]);
    }
    same("byte_permute", &gpu.download(&out), &expected);
}

#[test]
fn permutations_of_known_words() {
    assert_eq!(permute(0x3322_1100, 0x7766_5544, 0x7410), 0x7744_1100);
    assert_eq!(permute(0x0000_0080, 0, 0x1118), 0x0000_00ff);
}

fn dot_products(gpu: &Gpu) {
    let (a, b) = (small_words(138, N), small_words(139, N));
    let out = gpu.zeros::<i32>(6 * N);
    let arguments = arguments![
        &gpu.upload(&signed(&a)),
        &gpu.upload(&signed(&b)),
        &out,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "dot_products", 4, 128, arguments);
    let byte = |x: u32, at: usize, is_signed: bool| {
        let byte = x.to_le_bytes()[at];
        if is_signed {
            i32::from(byte as i8)
        } else {
            i32::from(byte)
        }
    };
    let mut expected = Vec::new();
    for i in 0..N {
        let (x, y) = (a[i], b[i]);
        for (signed_x, signed_y) in [(true, true), (false, false), (true, false), (false, true)] {
            let terms = (0..4).map(|at| byte(x, at, signed_x) * byte(y, at, signed_y));
            expected.push(i as i32 + terms.sum::<i32>());
        }
        let low = (0..2).map(|at| i32::from((x >> (16 * at)) as i16) * byte(y, at, true));
        expected.push(i as i32 + low.sum::<i32>());
        let high = (0..2).map(|at| i32::from((x >> (16 * at)) as u16) * byte(y, at + 2, false));
        expected.push(i as i32 + high.sum::<i32>());
    }
    same("dot_products", &gpu.download(&out), &expected);
}

fn integer_odds(gpu: &Gpu) {
    let (a, b) = (small_words(140, N), small_words(141, N));
    let out = gpu.zeros::<i32>(8 * N);
    let arguments = arguments![
        &gpu.upload(&signed(&a)),
        &gpu.upload(&signed(&b)),
        &out,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "integer_odds", 4, 128, arguments);
    let mut expected = Vec::new();
    for (&x, &y) in signed(&a).iter().zip(&signed(&b)) {
        let (wide_x, wide_y) = (i64::from(x), i64::from(y));
        let low24 = |x: i32| (x << 8) >> 8;
        let by = y as u32 & 31;
        expected.extend([
            7i32.wrapping_add((wide_x - wide_y).unsigned_abs() as i32),
            (i64::from(low24(x)) * i64::from(low24(y))) as i32,
            ((x as u32 & 0xff_ffff).wrapping_mul(y as u32 & 0xff_ffff)) as i32,
            x.saturating_add(y),
            x.saturating_sub(y),
            ((wide_x + wide_y) >> 1) as i32,
            ((wide_x + wide_y + 1) >> 1) as i32,
            x.wrapping_abs() ^ (x >> by) ^ (x as u32 >> by) as i32,
        ]);
    }
    same("integer_odds", &gpu.download(&out), &expected);
}

fn shifts(gpu: &Gpu) {
    let mut draw = Draw::new(142);
    let words = draw.words(N);
    let mut amount: Vec<u32> = (0..N).map(|_| draw.integer(0, 80) as u32).collect();
    amount[..3].copy_from_slice(&[u32::MAX, 256, 1 << 31]);
    let out = gpu.zeros::<u64>(6 * N);
    let arguments = arguments![&gpu.upload(&words), &gpu.upload(&amount), &out, N as i32];
    gpu.run(&gpu.module(TEXT), "shifts", 4, 128, arguments);
    let mut expected = Vec::new();
    for (&x, &by) in words.iter().zip(&amount) {
        expected.extend([
            u64::from((x as u32).checked_shl(by).unwrap_or(0)),
            u64::from((x as u32).checked_shr(by).unwrap_or(0)),
            u64::from(((x as i32) >> by.min(31)) as u32),
            ((x as i64) >> by.min(63)) as u64,
            x.checked_shl(by).unwrap_or(0),
            u64::from(((x as i16) >> by.min(15)) as u16),
        ]);
    }
    same("shifts", &gpu.download(&out), &expected);
}

fn logic3(gpu: &Gpu) {
    let (a, b, c) = (
        small_words(143, N),
        small_words(144, N),
        small_words(145, N),
    );
    let out = gpu.zeros::<u32>(3 * N);
    let arguments = arguments![
        &gpu.upload(&a),
        &gpu.upload(&b),
        &gpu.upload(&c),
        &out,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "logic3", 4, 128, arguments);
    let expected: Vec<u32> = (0..N)
        .flat_map(|i| {
            let (a, b, c) = (a[i], b[i], c[i]);
            [a & b | a & c | b & c, a & b | !a & c, a ^ b ^ c]
        })
        .collect();
    same("logic3", &gpu.download(&out), &expected);
}
