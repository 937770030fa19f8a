//! `kernels/elementwise.cu` but for its casts.

use half::{bf16, f16};

use crate::compare::{Float, erf, near, same, same_bits};
use crate::draw::Draw;
use crate::gpu::{Argument, Element, Gpu, Module, arguments};

pub(crate) const TEXT: &str = include_str!("../../kernels/ptx/elementwise.ptx");

crate::kernel_tests! { broadcasts float4_and_fill comparisons functions_f32 functions_16_bit binary_functions
multiply_add_i64 divisions bytes }

/// A 16- or 32-bit float that arithmetic reaches through f32.
trait Narrow: Element + Float {
    fn narrow(x: f32) -> Self;
    fn widen(self) -> f32 {
        self.to_f64() as f32
    }
}
impl Narrow for f32 {
    fn narrow(x: f32) -> f32 {
        x
    }
}
impl Narrow for f16 {
    fn narrow(x: f32) -> f16 {
        f16::from_f32(x)
    }
}
impl Narrow for bf16 {
    fn narrow(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

/// The kernel's structure of sizes and strides.
struct Layout {
    shape: Vec<i32>,
    a: Vec<i64>,
    b: Vec<i64>,
}

impl Layout {
    fn argument(&self) -> Argument {
        let mut bytes = (self.shape.len() as i32).to_le_bytes().to_vec();
        let padded = |length: usize| (length..6).map(|_| 0);
        for size in self.shape.iter().copied().chain(padded(self.shape.len())) {
            bytes.extend(size.to_le_bytes());
        }
        bytes.extend([0; 4]);
        for strides in [&self.a, &self.b] {
            for stride in strides
                .iter()
                .copied()
                .chain(padded(strides.len()).map(i64::from))
            {
                bytes.extend(stride.to_le_bytes());
            }
        }
        Argument::of_bytes(&bytes)
    }

    fn length(&self) -> usize {
        self.shape.iter().product::<i32>() as usize
    }

    fn offsets(&self, mut index: i64) -> (usize, usize) {
        let (mut a, mut b) = (0, 0);
        for d in (0..self.shape.len()).rev() {
            let size = i64::from(self.shape[d]);
            a += index % size * self.a[d];
            b += index % size * self.b[d];
            index /= size;
        }
        (a as usize, b as usize)
    }
}

fn broadcasts(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    broadcast::<f32>(gpu, &module, "broadcast_add_f32", |a, b| a + b);
    broadcast::<f16>(gpu, &module, "broadcast_add_f16", |a, b| a + b);
    broadcast::<bf16>(gpu, &module, "broadcast_add_bf16", |a, b| a + b);
    broadcast::<f32>(gpu, &module, "broadcast_mul_f32", |a, b| a * b);
    broadcast::<f16>(gpu, &module, "broadcast_mul_f16", |a, b| a * b);
    broadcast::<bf16>(gpu, &module, "broadcast_mul_bf16", |a, b| a * b);
    broadcast::<f32>(gpu, &module, "broadcast_div_f32", |a, b| a / b);
    let maximum = |a: f32, b: f32| {
        if a.is_nan() || b.is_nan() {
            f32::NAN
        } else {
            a.max(b)
        }
    };
    broadcast::<f32>(gpu, &module, "broadcast_max_f32", maximum);
    broadcast::<bf16>(gpu, &module, "broadcast_max_bf16", maximum);
}

fn broadcast<T: Narrow>(gpu: &Gpu, module: &Module, kernel: &str, apply: impl Fn(f32, f32) -> f32) {
    let layouts = [
        Layout {
            shape: vec![300],
            a: vec![1],
            b: vec![1],
        },
        Layout {
            shape: vec![7, 33],
            a: vec![33, 1],
            b: vec![0, 1],
        },
        Layout {
            shape: vec![3, 5, 4, 2],
            a: vec![1, 3, 0, 15],
            b: vec![0, 8, 2, 1],
        },
        Layout {
            shape: vec![2, 3, 1, 4, 2, 3],
            a: vec![72, 24, 0, 6, 3, 1],
            b: vec![0, 0, 0, 1, 4, 0],
        },
    ];
    let mut draw = Draw::new(5);
    for layout in &layouts {
        let n = layout.length();
        let mut values = || -> Vec<T> {
            draw.reals(400, -8.0, 8.0)
                .into_iter()
                .map(T::narrow)
                .collect()
        };
        let (mut a, b) = (values(), values());
        a[1] = T::narrow(f32::NAN);
        a[2] = T::narrow(f32::INFINITY);
        a[3] = T::narrow(-0.0);
        let out = gpu.zeros::<T>(n);
        let (da, db) = (gpu.upload(&a), gpu.upload(&b));
        let arguments = arguments![&da, &db, &out, layout.argument(), n as i32];
        gpu.run(module, kernel, 2, 64, arguments);
        let expected: Vec<T> = (0..n)
            .map(|i| {
                let (from_a, from_b) = layout.offsets(i as i64);
                T::narrow(apply(a[from_a].widen(), b[from_b].widen()))
            })
            .collect();
        same_bits(kernel, &gpu.download(&out), &expected);
    }
}

fn float4_and_fill(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(6);
    let (a, b) = (draw.reals(404, -1.0, 1.0), draw.reals(404, -1.0, 1.0));
    let out = gpu.zeros::<f32>(404);
    gpu.run(
        &module,
        "add_float4",
        2,
        64,
        arguments![&gpu.upload(&a), &gpu.upload(&b), &out, 101],
    );
    let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    same_bits("add_float4", &gpu.download(&out), &sums);

    gpu.run(&module, "fill_f32", 2, 256, arguments![&out, 2.5f32, 404]);
    same_bits("fill_f32", &gpu.download(&out), &[2.5; 404]);

    let condition: Vec<u8> = (0..404).map(|_| draw.integer(0, 3) as u8).collect();
    let arguments = arguments![
        &gpu.upload(&condition),
        &gpu.upload(&a),
        &gpu.upload(&b),
        &out,
        404
    ];
    gpu.run(&module, "where_f32", 4, 128, arguments);
    let chosen: Vec<f32> = (0..404)
        .map(|i| if condition[i] != 0 { a[i] } else { b[i] })
        .collect();
    same_bits("where_f32", &gpu.download(&out), &chosen);
}

const SPECIAL: [f32; 8] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-40,
];

fn comparisons(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let pairs: Vec<(f32, f32)> = SPECIAL
        .iter()
        .flat_map(|&a| SPECIAL.map(|b| (a, b)))
        .collect();
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    let out = gpu.zeros::<u32>(64);
    gpu.run(
        &module,
        "compare_f32",
        1,
        64,
        arguments![&gpu.upload(&a), &gpu.upload(&b), &out, 64],
    );
    let bits = |(x, y): (f32, f32)| {
        let is_less = x < y;
        let is_at_least = x >= y;
        let all = [
            is_less,
            x <= y,
            x > y,
            is_at_least,
            x == y,
            x != y,
            !is_less,
            !is_at_least,
            x.is_nan(),
        ];
        let mut bits = 0;
        for (at, &is_set) in all.iter().enumerate() {
            bits |= u32::from(is_set) << at;
        }
        // A NaN's sign is no part of the contract here; the one uploaded has it clear.
        bits | u32::from(x.is_sign_negative()) << 9
    };
    let expected: Vec<u32> = pairs.into_iter().map(bits).collect();
    same("compare_f32", &gpu.download(&out), &expected);
}

/// A kernel's name, the function in f64, the interval of its arguments, the relative and the absolute tolerance.
type Function = (&'static str, fn(f64) -> f64, [f64; 2], f64, f64);

const EXACT: [f64; 2] = [0.0, 0.0];

const FUNCTIONS: &[Function] = &[
    ("exp_f32", f64::exp, [-20.0, 20.0], 3e-7, 0.0),
    ("exp2_f32", f64::exp2, [-20.0, 20.0], 3e-7, 0.0),
    ("expm1_f32", f64::exp_m1, [-3.0, 10.0], 4e-7, 0.0),
    ("log_f32", f64::ln, [1e-6, 1e4], 3e-7, 1e-7),
    ("log2_f32", f64::log2, [1e-6, 1e4], 3e-7, 1e-7),
    ("log1p_f32", f64::ln_1p, [-0.9, 50.0], 4e-7, 0.0),
    ("sin_f32", f64::sin, [-10.0, 10.0], 3e-7, 1e-7),
    ("cos_f32", f64::cos, [-10.0, 10.0], 3e-7, 1e-7),
    ("sin_f32", f64::sin, [-1e7, 1e7], 3e-7, 2e-7),
    ("cos_f32", f64::cos, [-1e7, 1e7], 3e-7, 2e-7),
    ("tan_f32", f64::tan, [-1e6, 1e6], 8e-7, 1e-7),
    ("tanh_f32", f64::tanh, [-6.0, 6.0], 4e-7, 0.0),
    ("erf_f32", erf, [-3.0, 3.0], 4e-7, 0.0),
    ("rsqrt_f32", |x| 1.0 / x.sqrt(), [1e-3, 1e3], 3e-7, 0.0),
    (
        "sigmoid_f32",
        |x| 1.0 / (1.0 + (-x).exp()),
        [-15.0, 15.0],
        8e-7,
        0.0,
    ),
    ("gelu_f32", gelu, [-5.0, 5.0], 1e-6, 1e-6),
    ("fast_exp_f32", f64::exp, [-10.0, 10.0], 3e-6, 0.0),
    ("fast_log_f32", f64::ln, [1e-3, 1e3], 1e-6, 1e-6),
    ("fast_sin_f32", f64::sin, [-3.0, 3.0], 0.0, 2e-6),
    (
        "sqrt_f32",
        |x| f64::from((x as f32).sqrt()),
        [0.0, 1e6],
        EXACT[0],
        EXACT[1],
    ),
    (
        "reciprocal_f32",
        |x| f64::from(1.0 / x as f32),
        [-9.0, 9.0],
        EXACT[0],
        EXACT[1],
    ),
    ("floor_f32", f64::floor, [-99.0, 99.0], EXACT[0], EXACT[1]),
    ("ceil_f32", f64::ceil, [-99.0, 99.0], EXACT[0], EXACT[1]),
    ("trunc_f32", f64::trunc, [-99.0, 99.0], EXACT[0], EXACT[1]),
    (
        "round_even_f32",
        f64::round_ties_even,
        [-99.0, 99.0],
        EXACT[0],
        EXACT[1],
    ),
    (
        "round_away_f32",
        f64::round,
        [-99.0, 99.0],
        EXACT[0],
        EXACT[1],
    ),
    ("abs_f32", f64::abs, [-9.0, 9.0], EXACT[0], EXACT[1]),
    ("neg_f32", |x| -x, [-9.0, 9.0], EXACT[0], EXACT[1]),
];

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn functions_f32(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for (at, &(kernel, function, [low, high], relative, absolute)) in FUNCTIONS.iter().enumerate() {
        let mut values = Draw::new(100 + at as u64).reals(200, low, high);
        if low < 0.0 && high >= 9.0 && kernel != "reciprocal_f32" {
            values.extend([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5]);
        }
        let n = values.len();
        let out = gpu.zeros::<f32>(n);
        gpu.run(
            &module,
            kernel,
            2,
            128,
            arguments![&gpu.upload(&values), &out, n as i32],
        );
        let expected: Vec<f64> = values.iter().map(|&x| function(f64::from(x))).collect();
        near(kernel, &gpu.download(&out), &expected, relative, absolute);
    }
    special(gpu, &module);
}

/// What infinity, zero and NaN give.
fn special(gpu: &Gpu, module: &Module) {
    let values = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0];
    let table: &[(&str, [f64; 4])] = &[
        ("exp_f32", [f64::INFINITY, 0.0, f64::NAN, 1.0]),
        (
            "log_f32",
            [f64::INFINITY, f64::NAN, f64::NAN, f64::NEG_INFINITY],
        ),
        ("sin_f32", [f64::NAN, f64::NAN, f64::NAN, 0.0]),
        ("tanh_f32", [1.0, -1.0, f64::NAN, 0.0]),
        ("erf_f32", [1.0, -1.0, f64::NAN, 0.0]),
        ("sqrt_f32", [f64::INFINITY, f64::NAN, f64::NAN, 0.0]),
        ("reciprocal_f32", [0.0, 0.0, f64::NAN, f64::INFINITY]),
        ("rsqrt_f32", [0.0, f64::NAN, f64::NAN, f64::INFINITY]),
    ];
    for (kernel, expected) in table {
        let out = gpu.zeros::<f32>(4);
        gpu.run(
            module,
            kernel,
            1,
            32,
            arguments![&gpu.upload(&values), &out, 4],
        );
        near(kernel, &gpu.download(&out), expected, 0.0, 0.0);
    }
}

fn functions_16_bit(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    narrow_function::<f16>(gpu, &module, "exp_f16", f64::exp, 1.0 / 2048.0);
    narrow_function::<bf16>(gpu, &module, "exp_bf16", f64::exp, 1.0 / 256.0);
    narrow_function::<f16>(gpu, &module, "gelu_f16", gelu, 1.0 / 2048.0);
    narrow_function::<bf16>(gpu, &module, "gelu_bf16", gelu, 1.0 / 256.0);
    narrow_function::<bf16>(gpu, &module, "relu_bf16", |x| x.max(0.0), 0.0);
}

fn narrow_function<T: Narrow>(
    gpu: &Gpu,
    module: &Module,
    kernel: &str,
    function: fn(f64) -> f64,
    half_step: f64,
) {
    let values: Vec<T> = Draw::new(8)
        .reals(150, -4.0, 4.0)
        .into_iter()
        .map(T::narrow)
        .collect();
    let out = gpu.zeros::<T>(150);
    gpu.run(
        module,
        kernel,
        2,
        96,
        arguments![&gpu.upload(&values), &out, 150],
    );
    let expected: Vec<f64> = values.iter().map(|x| function(x.to_f64())).collect();
    near(
        kernel,
        &gpu.download(&out),
        &expected,
        half_step * 1.01,
        half_step * 1e-3,
    );
}

fn binary_functions(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(9);
    let (a, b) = (draw.reals(200, 0.01, 30.0), draw.reals(200, -6.0, 6.0));
    let out = gpu.zeros::<f32>(200);
    let (da, db) = (gpu.upload(&a), gpu.upload(&b));
    gpu.run(&module, "pow_f32", 1, 224, arguments![&da, &db, &out, 200]);
    let powers: Vec<f64> = a
        .iter()
        .zip(&b)
        .map(|(&a, &b)| f64::from(a).powf(f64::from(b)))
        .collect();
    near("pow_f32", &gpu.download(&out), &powers, 2e-6, 0.0);

    gpu.run(
        &module,
        "remainder_f32",
        1,
        224,
        arguments![&db, &da, &out, 200],
    );
    let rests: Vec<f32> = b.iter().zip(&a).map(|(b, a)| b % a).collect();
    same_bits("remainder_f32", &gpu.download(&out), &rests);
}

fn multiply_add_i64(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(10);
    let [a, b, c]: [Vec<i64>; 3] = std::array::from_fn(|_| {
        draw.words(100)
            .into_iter()
            .map(|word| word as i64)
            .collect()
    });
    let out = gpu.zeros::<i64>(100);
    let arguments = arguments![&gpu.upload(&a), &gpu.upload(&b), &gpu.upload(&c), &out, 100];
    gpu.run(&module, "multiply_add_i64", 4, 32, arguments);
    let expected: Vec<i64> = (0..100)
        .map(|i| a[i].wrapping_mul(b[i]).wrapping_add(c[i]))
        .collect();
    same("multiply_add_i64", &gpu.download(&out), &expected);
}

fn divisions(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    macro_rules! division {
        ($kernel:literal, $ty:ty) => {{
            let mut draw = Draw::new(12);
            let a: Vec<$ty> = draw
                .words(300)
                .into_iter()
                .map(|word| word as $ty)
                .collect();
            let shift = |word: u64| (word >> (word % 61)) as $ty;
            let b: Vec<$ty> = draw
                .words(300)
                .into_iter()
                .map(|word| shift(word).max(1))
                .collect();
            let (quotient, remainder) = (gpu.zeros::<$ty>(300), gpu.zeros::<$ty>(300));
            let arguments =
                arguments![&gpu.upload(&a), &gpu.upload(&b), &quotient, &remainder, 300];
            gpu.run(&module, $kernel, 3, 128, arguments);
            let quotients: Vec<$ty> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
            let remainders: Vec<$ty> = a.iter().zip(&b).map(|(a, b)| a % b).collect();
            same($kernel, &gpu.download(&quotient), &quotients);
            same($kernel, &gpu.download(&remainder), &remainders);
        }};
    }
    division!("divide_i32", i32);
    division!("divide_u32", u32);
    division!("divide_i64", i64);
    division!("divide_u64", u64);
    division!("divide_i16", i16);
}

fn bytes(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(13);
    let values: Vec<u8> = (0..40 * 16).map(|_| draw.bits() as u8).collect();
    let (out, sums) = (gpu.zeros::<u8>(40 * 16), gpu.zeros::<u32>(40));
    gpu.run(
        &module,
        "bytes_u8x16",
        2,
        32,
        arguments![&gpu.upload(&values), &out, &sums, 40],
    );
    let inverted: Vec<u8> = values.iter().map(|x| 127u8.wrapping_sub(*x)).collect();
    same("bytes_u8x16", &gpu.download(&out), &inverted);
    let expected: Vec<u32> = values
        .chunks(16)
        .map(|group| group.iter().map(|&x| u32::from(x)).sum())
        .collect();
    same("bytes_u8x16 sums", &gpu.download(&sums), &expected);

    let reals = gpu.zeros::<f32>(40 * 16);
    let arguments = arguments![&gpu.upload(&values), &reals, 0.25f32, 100, 160];
    gpu.run(&module, "dequantize_u8x4", 5, 32, arguments);
    let expected: Vec<f32> = values
        .iter()
        .map(|&x| (i32::from(x) - 100) as f32 * 0.25)
        .collect();
    same_bits("dequantize_u8x4", &gpu.download(&reals), &expected);

    let values = draw.reals(400, -30.0, 30.0);
    let small = gpu.zeros::<i8>(400);
    let arguments = arguments![&gpu.upload(&values), &small, 0.2f32, 100];
    gpu.run(&module, "quantize_s8x4", 4, 32, arguments);
    let expected: Vec<i8> = values
        .iter()
        .map(|x| (x / 0.2).round_ties_even().clamp(-128.0, 127.0) as i8)
        .collect();
    same("quantize_s8x4", &gpu.download(&small), &expected);
}
