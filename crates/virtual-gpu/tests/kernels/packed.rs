//! `kernels/packed.cu`: arithmetic in f16 and bf16, which rounds once.

use half::{bf16, f16};

use crate::compare::{Float, near, same, same_bits};
use crate::draw::Draw;
use crate::gpu::{Element, Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/packed.ptx");
const TEXT_90: &str = include_str!("../../kernels/ptx/packed.90.ptx");

crate::kernel_tests! { half2_arithmetic half_arithmetic half_compare half_convert half_approximate bfloat_arithmetic
pack_pairs half2_dot }

const N: usize = 200;

trait Small: Element + Float {
    fn round(x: f64) -> Self;
}
impl Small for f16 {
    fn round(x: f64) -> f16 {
        crate::casts::round_f16(x)
    }
}
impl Small for bf16 {
    fn round(x: f64) -> bf16 {
        crate::casts::round_bf16(x)
    }
}

/// Values of moderate size, whose products and sums of products are exact in f64.
fn values<T: Small>(seed: u64, count: usize) -> Vec<T> {
    Draw::new(seed)
        .reals(count, -4.0, 4.0)
        .into_iter()
        .map(|x| T::round(f64::from(x)))
        .collect()
}

/// Rows of `per_thread` results, each for both halves of a pair, from results for single values.
fn pairs<T: Small>(a: &[T], b: &[T], c: &[T], apply: impl Fn(f64, f64, f64) -> Vec<f64>) -> Vec<T> {
    let mut rows = Vec::new();
    for i in (0..a.len()).step_by(2) {
        let of = |i: usize| apply(a[i].to_f64(), b[i].to_f64(), c[i].to_f64());
        for (low, high) in of(i).into_iter().zip(of(i + 1)) {
            rows.extend([T::round(low), T::round(high)]);
        }
    }
    rows
}

fn half2_arithmetic(gpu: &Gpu) {
    let [a, b, c]: [Vec<f16>; 3] = [150, 151, 152].map(|seed| values(seed, 2 * N));
    for text in [TEXT, TEXT_90] {
        let out = gpu.zeros::<f16>(20 * N);
        let arguments = arguments![
            &gpu.upload(&a),
            &gpu.upload(&b),
            &gpu.upload(&c),
            &out,
            N as i32
        ];
        gpu.run(&gpu.module(text), "half2_arithmetic", 2, 128, arguments);
        let expected = pairs(&a, &b, &c, |x, y, z| {
            let fused = x * y + z;
            vec![
                x + y,
                x - y,
                x * y,
                fused,
                (x * y).clamp(0.0, 1.0),
                x.min(y),
                x.max(y),
                -x,
                x.abs(),
                fused.max(0.0),
            ]
        });
        same_bits("half2_arithmetic", &gpu.download(&out), &expected);
    }
}

fn half_arithmetic(gpu: &Gpu) {
    let [mut a, b, c]: [Vec<f16>; 3] = [153, 154, 155].map(|seed| values(seed, N));
    a[0] = f16::NAN;
    let out = gpu.zeros::<f16>(8 * N);
    let arguments = arguments![
        &gpu.upload(&a),
        &gpu.upload(&b),
        &gpu.upload(&c),
        &out,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "half_arithmetic", 2, 128, arguments);
    let mut expected: Vec<f16> = Vec::new();
    for i in 0..N {
        let (x, y, z) = (a[i].to_f64(), b[i].to_f64(), c[i].to_f64());
        // A saturated NaN is zero; a minimum ignores a NaN, a maximum of this kind does not.
        let saturated = if x.is_nan() {
            0.0
        } else {
            (x + y).clamp(0.0, 1.0)
        };
        let top = if x.is_nan() { x } else { x.max(y) };
        expected
            .extend([x + y, x - y, x * y, x * y + z, saturated, x.min(y), top, -x].map(f16::round));
    }
    same_bits("half_arithmetic", &gpu.download(&out), &expected);
}

fn half_compare(gpu: &Gpu) {
    let special = [0.0, -0.0, 1.5, -2.0, f64::INFINITY, f64::NAN].map(f16::from_f64);
    let (a, b): (Vec<f16>, Vec<f16>) = special
        .iter()
        .flat_map(|&a| special.map(|b| (a, b)))
        .unzip();
    let out = gpu.zeros::<u32>(36);
    gpu.run(
        &gpu.module(TEXT),
        "half_compare",
        1,
        64,
        arguments![&gpu.upload(&a), &gpu.upload(&b), &out, 36],
    );
    let mut expected = Vec::new();
    for (&x, &y) in a.iter().zip(&b) {
        let is_unordered = x.is_nan() || y.is_nan();
        let all = [
            x < y,
            x <= y,
            x > y,
            x >= y,
            x == y,
            x != y && !is_unordered,
            x < y || is_unordered,
            x == y || is_unordered,
            x.is_nan(),
            x < y,
            y < x,
        ];
        expected.push(
            all.iter()
                .enumerate()
                .fold(0, |bits, (at, &is_set)| bits | u32::from(is_set) << at),
        );
    }
    same("half_compare", &gpu.download(&out), &expected);
}

/// The neighbours of a real number among the values of f16.
fn around(x: f32) -> [f16; 2] {
    let nearest = f16::from_f32(x);
    let (bits, found) = (nearest.to_bits() as i16, nearest.to_f32());
    let step = |by: i16| f16::from_bits((bits + by) as u16);
    // Away from zero is one more in the bits, for both signs.
    let away = if found < 0.0 {
        (step(1), step(-1))
    } else {
        (step(-1), step(1))
    };
    if found == x {
        [nearest; 2]
    } else if found < x {
        [nearest, away.1]
    } else {
        [away.0, nearest]
    }
}

fn half_convert(gpu: &Gpu) {
    let mut inputs = Draw::new(156).reals(N, -2000.0, 2000.0);
    inputs[..4].copy_from_slice(&[1.0, -1.0, 2.5, -3.5]);
    let out = gpu.zeros::<u16>(8 * N);
    gpu.run(
        &gpu.module(TEXT),
        "half_convert",
        2,
        128,
        arguments![&gpu.upload(&inputs), &out, N as i32],
    );
    let mut expected = Vec::new();
    for &x in &inputs {
        let [down, up] = around(x);
        let nearest = f16::from_f32(x);
        expected.extend([
            nearest.to_bits(),
            if x < 0.0 { up } else { down }.to_bits(),
            down.to_bits(),
            up.to_bits(),
            f16::from_f32(x.trunc()).to_bits(),
            nearest.to_f32().round_ties_even() as i16 as u16,
            f16::from_f32(nearest.to_f32().round_ties_even()).to_bits(),
            f16::from_f32(nearest.to_f32().floor()).to_bits(),
        ]);
    }
    same("half_convert", &gpu.download(&out), &expected);
}

#[test]
fn neighbours_enclose() {
    for x in Draw::new(157).reals(1000, -100.0, 100.0) {
        let [down, up] = around(x);
        assert!(down.to_f32() <= x && x <= up.to_f32() && up.to_f32() - down.to_f32() <= 0.0626);
    }
}

fn half_approximate(gpu: &Gpu) {
    let inputs: Vec<f16> = Draw::new(158)
        .reals(N, 0.05, 8.0)
        .into_iter()
        .map(f16::from_f32)
        .collect();
    let out = gpu.zeros::<f16>(4 * N);
    gpu.run(
        &gpu.module(TEXT),
        "half_approximate",
        2,
        128,
        arguments![&gpu.upload(&inputs), &out, N as i32],
    );
    let of = |x: f64| [x.exp(), x.ln(), x.sqrt(), 1.0 / x];
    let expected: Vec<f64> = inputs.iter().flat_map(|x| of(x.to_f64())).collect();
    near(
        "half_approximate",
        &gpu.download(&out),
        &expected,
        1.2 / 1024.0,
        1e-4,
    );
}

fn bfloat_arithmetic(gpu: &Gpu) {
    let [a, b, c]: [Vec<bf16>; 3] = [159, 160, 161].map(|seed| values(seed, 2 * N));
    for text in [TEXT, TEXT_90] {
        let module = gpu.module(text);
        let (da, db, dc) = (gpu.upload(&a), gpu.upload(&b), gpu.upload(&c));
        let out = gpu.zeros::<bf16>(14 * N);
        gpu.run(
            &module,
            "bfloat2_arithmetic",
            2,
            128,
            arguments![&da, &db, &dc, &out, N as i32],
        );
        let expected = pairs(&a, &b, &c, |x, y, z| {
            vec![x + y, x * y, x * y + z, x.min(y), x.max(y), -x, x.abs()]
        });
        same_bits("bfloat2_arithmetic", &gpu.download(&out), &expected);

        let out = gpu.zeros::<bf16>(8 * N);
        gpu.run(
            &module,
            "bfloat_arithmetic",
            4,
            128,
            arguments![&da, &db, &dc, &out, 2 * N as i32],
        );
        let mut expected: Vec<bf16> = Vec::new();
        for i in 0..2 * N {
            let (x, y, z) = (a[i].to_f64(), b[i].to_f64(), c[i].to_f64());
            expected.extend([x - y, x * y + z, x.min(y), x.max(y)].map(bf16::round));
        }
        same_bits("bfloat_arithmetic", &gpu.download(&out), &expected);
    }
}

fn pack_pairs(gpu: &Gpu) {
    let inputs = Draw::new(162).reals(2 * N, -100.0, 100.0);
    let (half_pairs, bfloat_pairs) = (gpu.zeros::<f16>(2 * N), gpu.zeros::<bf16>(2 * N));
    let back = gpu.zeros::<f32>(4 * N);
    let arguments = arguments![
        &gpu.upload(&inputs),
        &half_pairs,
        &bfloat_pairs,
        &back,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "pack_pairs", 2, 128, arguments);
    let halves: Vec<f16> = inputs.iter().map(|&x| f16::from_f32(x)).collect();
    let bfloats: Vec<bf16> = inputs.iter().map(|&x| bf16::from_f32(x)).collect();
    same_bits("pack_pairs f16", &gpu.download(&half_pairs), &halves);
    same_bits("pack_pairs bf16", &gpu.download(&bfloat_pairs), &bfloats);
    let expected: Vec<f32> = halves
        .chunks(2)
        .zip(bfloats.chunks(2))
        .flat_map(|(h, b)| [h[0].to_f32(), h[1].to_f32(), b[0].to_f32(), b[1].to_f32()])
        .collect();
    same_bits("pack_pairs back", &gpu.download(&back), &expected);
}

fn half2_dot(gpu: &Gpu) {
    let (rows, columns) = (3, 200);
    let [a, b]: [Vec<f16>; 2] = [163, 164].map(|seed| values(seed, rows * columns));
    let out = gpu.zeros::<f32>(rows);
    let arguments = arguments![&gpu.upload(&a), &gpu.upload(&b), &out, (columns / 2) as i32];
    gpu.run(&gpu.module(TEXT), "half2_dot", rows, 32, arguments);
    let expected: Vec<f64> = (0..rows)
        .map(|r| {
            (r * columns..(r + 1) * columns)
                .map(|i| a[i].to_f64() * b[i].to_f64())
                .sum()
        })
        .collect();
    near("half2_dot", &gpu.download(&out), &expected, 1e-2, 0.6);
}
