//! How far the elementary functions are from the exact values: at most 2 ulp, everywhere.
//!
//! f32 is compared with f64 results over a stride through all bit patterns, or over all of them with
//! `FIRECLAY_EXHAUSTIVE=1`, or `=sin,cos` for some functions (better with `--release`); f64 with a table of exact values made by
//! `make_math_reference.py`. Run with `--nocapture` to see what was measured.

mod functions;

use fireclay_cpu::isa::isa;
use fireclay_cpu::kernel::Kernel;
use functions::{Random, apply, binary, unary};

const LIMIT_ULP: f64 = 2.0;
/// 2^128.
const BEYOND_F32: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;

#[test]
fn f32_functions_of_one_argument_are_within_2_ulp() {
    let exhaustive = std::env::var("FIRECLAY_EXHAUSTIVE").unwrap_or_default();
    let mut failures = Vec::new();
    for (name, kernel) in unary() {
        let all = exhaustive == "1" || exhaustive.split(',').any(|asked| asked == name);
        let stride = if all { 1 } else { 4099 };
        let halves = std::thread::scope(|scope| {
            let kernel = &kernel;
            let half = move |start: u64| {
                scope.spawn(move || worst_f32(kernel, exact_unary(name), start, stride))
            };
            [half(0), half(1 << 31)].map(|half| half.join().unwrap())
        });
        let [a, b] = halves;
        report(&mut failures, "f32", name, if a.0 > b.0 { a } else { b });
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The largest error, with a description, over every `stride`-th of the 2^31 bit patterns from `start`.
fn worst_f32(kernel: &Kernel, exact: fn(f64) -> f64, start: u64, stride: usize) -> (f64, String) {
    let mut worst = (0.0, String::new());
    let patterns: Vec<u64> = (0..1 << 31)
        .step_by(1 << 20)
        .map(|block| start + block)
        .collect();
    for block in patterns {
        let first = (stride as u64 - block % stride as u64) % stride as u64;
        let x: Vec<f32> = (first..1 << 20)
            .step_by(stride)
            .map(|offset| f32::from_bits((block + offset) as u32))
            .collect();
        if x.is_empty() {
            continue;
        }
        for (&x, y) in x.iter().zip(apply(kernel, isa(), &[&x])) {
            let error = ulps_f32(y, exact(f64::from(x)));
            if error > worst.0 {
                worst = (error, format!("of {x:e} ({:#x}) is {y:e}", x.to_bits()));
            }
        }
    }
    worst
}

#[test]
fn f32_functions_of_two_arguments_are_within_2_ulp() {
    let mut random = Random(7);
    let mut failures = Vec::new();
    for (name, kernel) in binary() {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for i in 0..1_000_000 {
            let bits = random.next();
            let a = f32::from_bits(bits as u32);
            let b = f32::from_bits((bits >> 32) as u32);
            let unit = (random.next() >> 11) as f32 / (1u64 << 53) as f32 * 2.0 - 1.0;
            let (a, b) = match (i % 4, name) {
                (0, _) => (a, b),
                (1, "pow") => (a.abs(), unit * 155.0 / a.abs().log2()),
                (2, "pow") => (1.0 + unit * 0.4, b.abs().min(1e8)),
                (_, "pow") => (a, (unit * 9.0).round()),
                (1, _) => (a, a * unit),
                (2, _) => (a, a * 2.0 * unit),
                (_, _) => (unit, b),
            };
            x.push(a);
            y.push(b);
        }
        let exact: fn(f64, f64) -> f64 = if name == "pow" { f64::powf } else { f64::atan2 };
        let mut worst = (0.0, String::new());
        for (i, z) in apply(&kernel, isa(), &[&x, &y]).into_iter().enumerate() {
            let error = ulps_f32(z, exact(f64::from(x[i]), f64::from(y[i])));
            if error > worst.0 {
                worst = (error, format!("of {:e}, {:e} is {z:e}", x[i], y[i]));
            }
        }
        report(&mut failures, "f32", name, worst);
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn f64_functions_are_within_2_ulp_of_the_reference() {
    let mut table: &[u8] = include_bytes!("math_reference.bin");
    let kernels: Vec<(&str, Kernel)> = unary().into_iter().chain(binary()).collect();
    let mut seen = 0;
    let mut failures = Vec::new();
    while !table.is_empty() {
        let name = std::str::from_utf8(take(&mut table, 8)).unwrap().trim_end();
        let arguments = u32::from_le_bytes(take(&mut table, 4).try_into().unwrap()) as usize;
        let records = u32::from_le_bytes(take(&mut table, 4).try_into().unwrap()) as usize;
        let mut inputs = vec![Vec::new(); arguments];
        let mut exact = Vec::new();
        for _ in 0..records {
            for input in &mut inputs {
                input.push(f64::from_le_bytes(take(&mut table, 8).try_into().unwrap()));
            }
            let rounded = f64::from_le_bytes(take(&mut table, 8).try_into().unwrap());
            exact.push((
                rounded,
                f32::from_le_bytes(take(&mut table, 4).try_into().unwrap()),
            ));
        }
        let kernel = &kernels.iter().find(|kernel| kernel.0 == name).unwrap().1;
        let slices: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let mut worst = (0.0, String::new());
        for (i, y) in apply(kernel, isa(), &slices).into_iter().enumerate() {
            let error = ulps_f64(y, exact[i]);
            if error > worst.0 {
                let x: Vec<f64> = inputs.iter().map(|input| input[i]).collect();
                worst = (error, format!("of {x:?} is {y:e}, not {:e}", exact[i].0));
            }
        }
        report(&mut failures, "f64", name, worst);
        seen += 1;
    }
    assert_eq!(seen, kernels.len());
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn special_values_are_those_of_c99() {
    let (inf, nan, pi) = (f64::INFINITY, f64::NAN, std::f64::consts::PI);
    #[rustfmt::skip]
    let cases = [
        ("exp", inf, inf), ("exp", -inf, 0.0), ("exp", 0.0, 1.0), ("exp", 1e5, inf), ("exp", -1e5, 0.0),
        ("exp2", inf, inf), ("exp2", -inf, 0.0), ("exp2", -0.0, 1.0), ("exp2", 10.0, 1024.0), ("exp2", -1e30, 0.0),
        ("expm1", inf, inf), ("expm1", -inf, -1.0), ("expm1", 0.0, 0.0), ("expm1", -0.0, -0.0), ("expm1", -1e9, -1.0),
        ("log", 0.0, -inf), ("log", -0.0, -inf), ("log", 1.0, 0.0), ("log", inf, inf), ("log", -1.0, nan), ("log", -inf, nan),
        ("log2", 0.0, -inf), ("log2", 8.0, 3.0), ("log2", inf, inf), ("log2", -1e-30, nan), ("log2", 0.25, -2.0),
        ("log10", 0.0, -inf), ("log10", 1.0, 0.0), ("log10", inf, inf), ("log10", -2.0, nan), ("log10", 1000.0, 3.0),
        ("log1p", -1.0, -inf), ("log1p", 0.0, 0.0), ("log1p", -0.0, -0.0), ("log1p", inf, inf), ("log1p", -2.0, nan), ("log1p", -inf, nan),
        ("sin", 0.0, 0.0), ("sin", -0.0, -0.0), ("sin", inf, nan), ("sin", -inf, nan),
        ("cos", 0.0, 1.0), ("cos", -0.0, 1.0), ("cos", inf, nan), ("cos", -inf, nan),
        ("tan", 0.0, 0.0), ("tan", -0.0, -0.0), ("tan", inf, nan), ("tan", -inf, nan),
        ("tanh", inf, 1.0), ("tanh", -inf, -1.0), ("tanh", 0.0, 0.0), ("tanh", -0.0, -0.0), ("tanh", 1e9, 1.0),
        ("sinh", inf, inf), ("sinh", -inf, -inf), ("sinh", 0.0, 0.0), ("sinh", -0.0, -0.0),
        ("cosh", inf, inf), ("cosh", -inf, inf), ("cosh", 0.0, 1.0), ("cosh", -0.0, 1.0),
        ("asin", 0.0, 0.0), ("asin", -0.0, -0.0), ("asin", 1.0, pi / 2.0), ("asin", -1.0, -pi / 2.0), ("asin", 1.5, nan), ("asin", -inf, nan),
        ("acos", 1.0, 0.0), ("acos", -1.0, pi), ("acos", 0.0, pi / 2.0), ("acos", -1.5, nan), ("acos", inf, nan),
        ("atan", 0.0, 0.0), ("atan", -0.0, -0.0), ("atan", inf, pi / 2.0), ("atan", -inf, -pi / 2.0), ("atan", 1.0, pi / 4.0),
        ("erf", inf, 1.0), ("erf", -inf, -1.0), ("erf", 0.0, 0.0), ("erf", -0.0, -0.0),
        ("erfc", inf, 0.0), ("erfc", -inf, 2.0), ("erfc", 0.0, 1.0), ("erfc", -0.0, 1.0),
    ];
    for (name, kernel) in unary() {
        let of_nan = apply(&kernel, isa(), &[&[nan]])[0];
        assert!(of_nan.is_nan(), "{name} of NaN is {of_nan}");
        for (_, x, y) in cases.iter().filter(|case| case.0 == name) {
            let single = apply(&kernel, isa(), &[&[*x as f32]])[0];
            assert!(
                same(f64::from(single), f64::from(*y as f32)),
                "f32 {name}({x}) is {single}, not {y}"
            );
            let double = apply(&kernel, isa(), &[&[*x]])[0];
            assert!(same(double, *y), "f64 {name}({x}) is {double}, not {y}");
        }
    }
}

#[test]
fn special_pairs_are_those_of_c99() {
    let inf = f64::INFINITY;
    let values = [
        0.0,
        0.25,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        4.0,
        1e5,
        16_777_216.0,
        16_777_218.0,
        1e-40,
        1e-10,
        1e30,
        inf,
        f64::NAN,
    ];
    let signed: Vec<f64> = values.iter().flat_map(|&x| [x, -x]).collect();
    let pairs: Vec<(f64, f64)> = signed
        .iter()
        .flat_map(|&x| signed.iter().map(move |&y| (x, y)))
        .collect();
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let x32: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let y32: Vec<f32> = y.iter().map(|&y| y as f32).collect();
    for (name, kernel) in binary() {
        let exact: fn(f64, f64) -> f64 = if name == "pow" { f64::powf } else { f64::atan2 };
        let double = apply(&kernel, isa(), &[&x, &y]);
        let single = apply(&kernel, isa(), &[&x32, &y32]);
        for i in 0..x.len() {
            let wanted = exact(x[i], y[i]);
            let near = same(double[i], wanted)
                || (ulps_f64(double[i], (wanted, 0.0)) < 3.0
                    && double[i].signum() == wanted.signum());
            assert!(
                near,
                "f64 {name}({}, {}) is {}, not {wanted}",
                x[i], y[i], double[i]
            );
            let wanted = exact(f64::from(x32[i]), f64::from(y32[i]));
            let near = ulps_f32(single[i], wanted) < 2.0
                && (wanted.is_nan() || single[i].is_sign_negative() == wanted.is_sign_negative());
            assert!(
                near,
                "f32 {name}({}, {}) is {}, not {wanted}",
                x[i], y[i], single[i]
            );
        }
    }
}

#[test]
fn powers_that_are_representable_are_exact() {
    let (_, pow) = binary().swap_remove(0);
    let mut random = Random(11);
    let x: Vec<f32> = (0..100_000)
        .map(|_| f32::from_bits(random.next() as u32))
        .filter(|x| x.is_finite())
        .collect();
    assert_eq!(apply(&pow, isa(), &[&x, &vec![1.0; x.len()]]), x);
    let x: Vec<f64> = x.iter().map(|&x| f64::from(x) * 1.0e150).collect();
    assert_eq!(apply(&pow, isa(), &[&x, &vec![1.0; x.len()]]), x);
    for whole in 1..30 {
        for power in 0..5 {
            let wanted = f64::from(i32::pow(whole, power));
            let double = apply(&pow, isa(), &[&[f64::from(whole)], &[f64::from(power)]])[0];
            assert_eq!(double, wanted, "{whole}^{power}");
            let single = apply(&pow, isa(), &[&[whole as f32], &[power as f32]])[0];
            assert_eq!(single, wanted as f32, "{whole}^{power}");
        }
    }
}

/// The next `len` bytes of `table`.
fn take<'a>(table: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (head, tail) = table.split_at(len);
    *table = tail;
    head
}

#[expect(
    clippy::print_stdout,
    reason = "the measured errors are what a reader of the test wants to see"
)]
fn report(failures: &mut Vec<String>, dtype: &str, name: &str, (error, place): (f64, String)) {
    println!("{dtype} {name:6} {error:.3} ulp: {name} {place}");
    if error.is_nan() || error > LIMIT_ULP {
        failures.push(format!("{dtype} {name}: {error:.3} ulp, {name} {place}"));
    }
}

/// Equal to the bit, or both NaN.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// The error of `y` in units in the last place of an f32 at `exact`; an overflow counts as 2^128.
fn ulps_f32(y: f32, exact: f64) -> f64 {
    if exact.is_nan() || y.is_nan() {
        return if exact.is_nan() && y.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    if exact.abs() >= BEYOND_F32 {
        let enough =
            f64::from(y.abs()) >= f64::from(f32::MAX) && f64::from(y.signum()) == exact.signum();
        return if enough { 0.0 } else { f64::INFINITY };
    }
    let y = if y.is_infinite() {
        BEYOND_F32.copysign(f64::from(y))
    } else {
        f64::from(y)
    };
    let exponent = ((exact.to_bits() >> 52) & 0x7FF) as i32 - 1023;
    let unit = f64::from_bits(((exponent - 23).max(-149) + 1023) as u64 * (1 << 52));
    (y - exact).abs() / unit
}

/// The error of `y` in units in the last place of the exact value, which is given as an f64 and what is missing, in
/// those units.
fn ulps_f64(y: f64, (rounded, rest): (f64, f32)) -> f64 {
    if y == rounded {
        return f64::from(rest.abs());
    }
    if !y.is_finite() || !rounded.is_finite() {
        return if same(y, rounded) { 0.0 } else { f64::INFINITY };
    }
    let exponent = ((rounded.to_bits() >> 52) & 0x7FF) as i32 - 1023;
    let unit = (exponent - 52).max(-1074);
    // In two steps, as the unit may be a denormal's.
    let units =
        (y - rounded) * f64::exp2(f64::from(-unit / 2)) * f64::exp2(f64::from(-unit - -unit / 2));
    (units - f64::from(rest)).abs()
}

/// The function in f64, good to about 1 ulp of f64.
fn exact_unary(name: &str) -> fn(f64) -> f64 {
    match name {
        "exp" => f64::exp,
        "exp2" => f64::exp2,
        "expm1" => f64::exp_m1,
        "log" => f64::ln,
        "log2" => f64::log2,
        "log10" => f64::log10,
        "log1p" => f64::ln_1p,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "tanh" => f64::tanh,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "erf" => |x| {
            if x.abs() < 2.5 {
                erf_series(x)
            } else {
                (1.0 - erfc_fraction(x.abs())).copysign(x)
            }
        },
        "erfc" => |x| {
            if x.abs() < 2.5 {
                1.0 - erf_series(x)
            } else if x > 0.0 {
                erfc_fraction(x)
            } else {
                2.0 - erfc_fraction(-x)
            }
        },
        other => panic!("no reference for {other}"),
    }
}

/// The error function as `2/sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (2n+1)!!`, all terms of one sign.
fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while f64::abs(term) > f64::abs(sum) * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// The complementary error function by its continued fraction, for `x >= 2.5`.
fn erfc_fraction(x: f64) -> f64 {
    if x > 30.0 {
        return if x.is_nan() { x } else { 0.0 };
    }
    let mut tail = x;
    for n in (1..=60).rev() {
        tail = x + f64::from(n) / 2.0 / tail;
    }
    (-x * x).exp() / tail / std::f64::consts::PI.sqrt()
}
