//! `kernels/precise.cu`.

use crate::compare::{Float, erf, near, same, same_bits};
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};
use crate::rounding::{ROUNDINGS, double, single};

const TEXT: &str = include_str!("../../kernels/ptx/precise.ptx");

crate::kernel_tests! { roundings_f32 roundings_f64 approximations convert_roundings functions_f64
binary_f64 float_parts }

const N: usize = 200;

macro_rules! roundings {
    ($test:ident, $ty:ty, $module:ident, $values:expr) => {
        fn $test(gpu: &Gpu) {
            let values: fn(u64) -> Vec<$ty> = $values;
            let (mut a, mut b) = (values(200), values(201));
            let c: Vec<$ty> = values(202).into_iter().map(<$ty>::abs).collect();
            // Exact results, which no direction changes, and an exact zero.
            (a[0], b[0]) = (1.5, -1.5);
            (a[1], b[1]) = (2.0, 4.0);
            (a[2], b[2]) = (1.0, 3.0);
            (a[3], b[3]) = (-1.0, 3.0);
            let out = gpu.zeros::<$ty>(24 * N);
            let arguments = arguments![
                &gpu.upload(&a),
                &gpu.upload(&b),
                &gpu.upload(&c),
                &out,
                N as i32
            ];
            gpu.run(&gpu.module(TEXT), stringify!($test), 2, 128, arguments);
            let mut expected = Vec::new();
            for i in 0..N {
                let (x, y, z) = (a[i], b[i], c[i]);
                expected.extend(ROUNDINGS.map(|to| $module::add(x, y, to)));
                expected.extend(ROUNDINGS.map(|to| $module::multiply(x, y, to)));
                expected.extend(ROUNDINGS.map(|to| $module::fma(x, y, z, to)));
                expected.extend(ROUNDINGS.map(|to| $module::divide(x, y, to)));
                expected.extend(ROUNDINGS.map(|to| $module::sqrt(z, to)));
                expected.extend(ROUNDINGS.map(|to| $module::divide(1.0, x, to)));
            }
            same_bits(stringify!($test), &gpu.download(&out), &expected);
        }
    };
}
roundings!(roundings_f32, f32, single, |seed| Draw::new(seed)
    .reals(N, -1000.0, 1000.0));
roundings!(roundings_f64, f64, double, |seed| Draw::new(seed)
    .doubles(N, -1000.0, 1000.0));

fn approximations(gpu: &Gpu) {
    let mut draw = Draw::new(203);
    let (a, b) = (draw.reals(N, 0.01, 50.0), draw.reals(N, -5.0, 5.0));
    let out = gpu.zeros::<f32>(8 * N);
    let arguments = arguments![&gpu.upload(&a), &gpu.upload(&b), &out, N as i32];
    gpu.run(&gpu.module(TEXT), "approximations", 2, 128, arguments);
    let found = gpu.download(&out);
    let column = |at: usize| -> Vec<f32> { found.iter().skip(at).step_by(8).copied().collect() };
    let expect =
        |what: &str, at: usize, of: &dyn Fn(f64, f64) -> f64, relative: f64, absolute: f64| {
            let expected: Vec<f64> = a
                .iter()
                .zip(&b)
                .map(|(x, y)| of(x.to_f64(), y.to_f64()))
                .collect();
            near(what, &column(at), &expected, relative, absolute);
        };
    expect("__fdividef", 0, &|x, y| x / y, 3e-7, 0.0);
    expect("__frsqrt_rn", 1, &|x, _| 1.0 / x.sqrt(), 6.1e-8, 0.0);
    expect("__saturatef", 2, &|x, _| x.clamp(0.0, 1.0), 0.0, 0.0);
    expect("ex2.approx", 3, &|_, y| y.exp2(), 3e-7, 0.0);
    expect("lg2.approx", 4, &|x, _| x.log2(), 1e-6, 3e-7);
    expect("tanh.approx", 5, &|_, y| y.tanh(), 6e-4, 0.0);
    let tiny = |x: f64| {
        let product = x as f32 * 2e-38;
        if product < f32::MIN_POSITIVE {
            0.0
        } else {
            f64::from(product)
        }
    };
    expect("mul.ftz", 6, &|x, _| tiny(x), 0.0, 0.0);
    expect("sqrt.approx", 7, &|x, _| x.sqrt(), 3e-7, 0.0);
}

/// An integer as f32, rounded up or down, or toward zero.
fn float_bits(x: i64, up: bool) -> i64 {
    let nearest = x as f32;
    let is_off = nearest as i128 - i128::from(x);
    let value = match up {
        true if is_off < 0 => nearest.next_up(),
        false if is_off > 0 => nearest.next_down(),
        _ => nearest,
    };
    i64::from(value.to_bits())
}

fn convert_roundings(gpu: &Gpu) {
    let mut draw = Draw::new(204);
    let (mut a, mut b) = (draw.reals(N, -1000.0, 1000.0), draw.doubles(N, -1e6, 1e6));
    a[..4].copy_from_slice(&[2.5, -2.5, 0.0, 1e10]);
    b[..3].copy_from_slice(&[0.5, -1.5, 3.0]);
    let out = gpu.zeros::<i64>(16 * N);
    let arguments = arguments![&gpu.upload(&a), &gpu.upload(&b), &out, N as i32];
    gpu.run(&gpu.module(TEXT), "convert_roundings", 2, 128, arguments);
    let mut expected = Vec::new();
    for (&x, &y) in a.iter().zip(&b) {
        let down = y.floor() as i64;
        let small = i64::from(down as i32 | 0x7f00_0001);
        let wide = down * 1_234_567_891_011;
        let nearest = y as f32;
        let toward_zero = if f64::from(nearest).abs() > y.abs() {
            if y > 0.0 {
                nearest.next_down()
            } else {
                nearest.next_up()
            }
        } else {
            nearest
        };
        let up = if f64::from(nearest) < y {
            nearest.next_up()
        } else {
            nearest
        };
        let wide_up = match wide as f64 {
            value if (value as i128) < i128::from(wide) => value.next_up(),
            value => value,
        };
        expected.extend([
            i64::from(x.round_ties_even() as i32),
            i64::from(x as i32),
            i64::from(x.floor() as i32),
            i64::from(x.ceil() as i32),
            i64::from(x.round_ties_even() as u32),
            x.ceil() as i64,
            i64::from(y.round_ties_even() as i32),
            down,
            y as u64 as i64,
            float_bits(small, false),
            float_bits(small, true),
            float_bits(wide, wide < 0),
            i64::from(nearest.to_bits()),
            i64::from(toward_zero.to_bits()),
            i64::from(up.to_bits()),
            wide_up.to_bits() as i64,
        ]);
    }
    same("convert_roundings", &gpu.download(&out), &expected);
}

fn functions_f64(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    /// Kernel, function, interval, relative tolerance.
    type Function = (&'static str, fn(f64) -> f64, [f64; 2], f64);
    let table: [Function; 11] = [
        ("exp_f64", f64::exp, [-50.0, 50.0], 1e-15),
        ("log_f64", f64::ln, [1e-3, 1e6], 1e-15),
        ("sin_f64", f64::sin, [-100.0, 100.0], 1e-14),
        ("sin_f64", f64::sin, [1e12, 1e15], 1e-12),
        ("tanh_f64", f64::tanh, [-5.0, 5.0], 1e-15),
        ("erf_f64", erf, [-3.0, 3.0], 1e-14),
        ("sqrt_f64", f64::sqrt, [0.0, 1e9], 0.0),
        ("rsqrt_f64", |x| 1.0 / x.sqrt(), [1e-3, 1e3], 1e-15),
        ("reciprocal_f64", |x| 1.0 / x, [-9.0, 9.0], 0.0),
        ("cbrt_f64", f64::cbrt, [-1e3, 1e3], 1e-15),
        (
            "round_f64",
            |x| x.round_ties_even() + x.floor() * 0.5 + x.trunc() * 0.25,
            [-99.0, 99.0],
            0.0,
        ),
    ];
    for (kernel, function, [low, high], relative) in table {
        let values = Draw::new(205).doubles(100, low, high);
        let out = gpu.zeros::<f64>(100);
        gpu.run(
            &module,
            kernel,
            4,
            32,
            arguments![&gpu.upload(&values), &out, 100],
        );
        let expected: Vec<f64> = values.into_iter().map(function).collect();
        near(kernel, &gpu.download(&out), &expected, relative, 0.0);
    }
}

fn binary_f64(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(206);
    let (a, b) = (
        draw.doubles(100, 0.01, 20.0),
        draw.doubles(100, -10.0, 10.0),
    );
    let (da, db, out) = (gpu.upload(&a), gpu.upload(&b), gpu.zeros::<f64>(100));
    gpu.run(&module, "pow_f64", 4, 32, arguments![&da, &db, &out, 100]);
    let expected: Vec<f64> = a.iter().zip(&b).map(|(a, &b)| a.powf(b)).collect();
    near("pow_f64", &gpu.download(&out), &expected, 1e-14, 0.0);
    gpu.run(
        &module,
        "divide_f64",
        4,
        32,
        arguments![&da, &db, &out, 100],
    );
    let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
    same_bits("divide_f64", &gpu.download(&out), &expected);
}

/// Mantissa in [0.5, 1) and exponent of a normal number.
fn parts(x: f32) -> (f32, i32) {
    if x == 0.0 {
        return (x, 0);
    }
    let exponent = (x.to_bits() >> 23 & 0xff) as i32 - 126;
    (
        f32::from_bits(x.to_bits() & 0x807f_ffff | 126 << 23),
        exponent,
    )
}

fn float_parts(gpu: &Gpu) {
    let mut draw = Draw::new(207);
    let (mut a, mut b) = (draw.reals(N, -100.0, 100.0), draw.reals(N, -100.0, 100.0));
    (a[0], b[0]) = (f32::NAN, 1.0);
    (a[1], b[1]) = (2.0, f32::NAN);
    (a[2], b[2]) = (4.0, 4.0);
    let out = gpu.zeros::<f32>(7 * N);
    gpu.run(
        &gpu.module(TEXT),
        "float_parts",
        2,
        128,
        arguments![&gpu.upload(&a), &gpu.upload(&b), &out, N as i32],
    );
    let found = gpu.download(&out);
    for (i, row) in found.chunks(7).enumerate() {
        let (x, y) = (a[i], b[i]);
        let next = match x.partial_cmp(&y) {
            Some(std::cmp::Ordering::Less) => x.next_up(),
            Some(std::cmp::Ordering::Greater) => x.next_down(),
            Some(std::cmp::Ordering::Equal) => x,
            None => f32::NAN,
        };
        let mut expected = [0.0, 0.0, x.copysign(y), x.min(y), x.max(y), x * 32.0, next];
        let mut row = row.to_vec();
        if x.is_nan() || y.is_nan() {
            // The exponent of a NaN, and the sign of one, are nobody's business.
            row[..3].fill(0.0);
            expected[..3].fill(0.0);
        } else {
            let (mantissa, exponent) = parts(x);
            expected[0] = mantissa;
            expected[1] = exponent as f32;
        }
        same_bits(&format!("float_parts of {x} and {y}"), &row, &expected);
    }
}

#[test]
fn parts_of_known_numbers() {
    assert_eq!(
        (parts(8.0), parts(-0.75), parts(0.0)),
        ((0.5, 4), (-0.75, 0), (0.0, 0))
    );
}
