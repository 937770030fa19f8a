//! Formulas on a virtual GPU against the same formulas on scalar lanes: equal to the bit, NaNs aside.

use std::num::Wrapping;
use std::sync::OnceLock;

use fireclay_core::arith::{Arith, Num};
use fireclay_core::pointwise::{Class, Pointwise as Function};
use fireclay_core::program::{Program, Step, class_of};
use fireclay_core::trace::trace;
use fireclay_core::{DType, Scalar, math};
use fireclay_cuda::pointwise::{Placed, Pointwise};
use fireclay_cuda::{DeviceBuffer, Gpu, Purpose};
use half::{bf16, f16};
use virtual_gpu::machine::{Checks, Settings, Sink};

fn gpu() -> &'static Gpu {
    static MACHINE: OnceLock<()> = OnceLock::new();
    MACHINE.get_or_init(|| {
        fireclay_cuda::driver::use_virtual(Settings {
            devices: 1,
            memory: 256 << 20,
            log: Sink::Stderr,
            checks: Checks {
                uninitialized: true,
                shared_races: true,
                stream_races: true,
                ..Checks::default()
            },
            ..Settings::default()
        })
        .expect("no driver was chosen before");
    });
    Gpu::get(0).expect("a virtual device")
}

fn on_device(bytes: &[u8]) -> DeviceBuffer {
    let stream = gpu().stream();
    let buffer = DeviceBuffer::allocate(stream, bytes.len(), Purpose::Others).unwrap();
    // SAFETY: the buffer has that many bytes.
    unsafe { fireclay_cuda::upload(stream, buffer.address(), bytes).unwrap() };
    buffer
}

fn back(buffer: &DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    // SAFETY: the buffer has that many bytes.
    unsafe { fireclay_cuda::download(gpu().stream(), buffer.address(), &mut bytes).unwrap() };
    bytes
}

/// A program of one function, its operands and results of one dtype.
fn program_of<const N: usize, F: Function<N, 1>>(function: &F, dtype: DType) -> Program {
    let class = class_of(dtype);
    Program {
        classes: vec![class; N + 1],
        inputs: (0..N).map(|register| (register, dtype)).collect(),
        constants: Vec::new(),
        steps: vec![Step::Apply {
            trace: trace(function, class),
            inputs: (0..N).collect(),
            outputs: vec![N],
        }],
        outputs: vec![(N, dtype)],
    }
}

/// Runs a program over contiguous operands.
fn run(program: &Program, inputs: &[&[u8]], out_bytes: usize, count: usize) -> Vec<u8> {
    let buffers: Vec<DeviceBuffer> = inputs.iter().map(|bytes| on_device(bytes)).collect();
    let out = on_device(&vec![0xaa; out_bytes]);
    let placed: Vec<Placed<'_>> = buffers
        .iter()
        .map(|buffer| Placed {
            address: buffer.address(),
            strides: &[1],
        })
        .collect();
    let target = Placed {
        address: out.address(),
        strides: &[1],
    };
    // SAFETY: every buffer holds `count` elements.
    unsafe {
        Pointwise::of(program)
            .launch(gpu().stream(), "test", &[count], &placed, &[], &[target])
            .unwrap();
    }
    back(&out)
}

/// Numbers of every kind: special ones, and many over the whole range of exponents.
fn singles() -> Vec<f32> {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-45,
        88.72,
        -103.9,
        3.25,
        8388609.5,
    ];
    let mut state = 0x1234_5678_9abc_def1u64;
    while values.len() < 4099 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = f32::from_bits((state >> 20) as u32);
        values.push(if values.len() % 2 == 0 {
            value
        } else {
            value.rem_euclid(40.0) - 20.0
        });
    }
    values
}

fn same<const SIZE: usize>(
    found: &[u8],
    expected: &[u8],
    is_nan: impl Fn(&[u8]) -> bool,
    what: &str,
) {
    assert_eq!(found.len(), expected.len());
    let pairs = found.chunks_exact(SIZE).zip(expected.chunks_exact(SIZE));
    for (index, (found, expected)) in pairs.enumerate() {
        let both_nan = is_nan(found) && is_nan(expected);
        assert!(
            found == expected || both_nan,
            "{what}, element {index}: {found:?}, not {expected:?}"
        );
    }
}

fn nan32(bytes: &[u8]) -> bool {
    f32::from_le_bytes(bytes.try_into().unwrap()).is_nan()
}

fn nan64(bytes: &[u8]) -> bool {
    f64::from_le_bytes(bytes.try_into().unwrap()).is_nan()
}

macro_rules! functions {
    ($($Name:ident = |$($x:ident),+| $eval:expr;)*) => {
        $(
            struct $Name;
            impl Function<{ [$(stringify!($x)),+].len() }> for $Name {
                #[inline(always)]
                fn eval<A: Arith>(&self, [$($x),+]: [A; { [$(stringify!($x)),+].len() }]) -> [A; 1] {
                    [$eval]
                }
            }
        )*

        #[test]
        fn every_function_gives_the_bits_of_its_scalar_lanes() {
            $({
                const N: usize = [$(stringify!($x)),+].len();
                let values = singles();
                let operand = |index: usize| -> Vec<f32> {
                    (0..values.len()).map(|at| values[(at * (2 * index + 1) + index * 17) % values.len()]).collect()
                };
                let operands: [Vec<f32>; N] = std::array::from_fn(operand);
                let bytes: Vec<Vec<u8>> = operands.iter()
                    .map(|values| values.iter().flat_map(|value| value.to_le_bytes()).collect())
                    .collect();
                let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
                let found = run(&program_of(&$Name, DType::F32), &bytes, 4 * values.len(), values.len());
                let expected: Vec<u8> = (0..values.len())
                    .flat_map(|at| $Name.eval(std::array::from_fn::<f32, N, _>(|index| operands[index][at]))[0].to_le_bytes())
                    .collect();
                same::<4>(&found, &expected, nan32, stringify!($Name));

                let bytes: Vec<Vec<u8>> = operands.iter()
                    .map(|values| values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect())
                    .collect();
                let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
                let found = run(&program_of(&$Name, DType::F64), &bytes, 8 * values.len(), values.len());
                let expected: Vec<u8> = (0..values.len())
                    .flat_map(|at| {
                        let x = std::array::from_fn::<f64, N, _>(|index| f64::from(operands[index][at]));
                        $Name.eval(x)[0].to_le_bytes()
                    })
                    .collect();
                same::<8>(&found, &expected, nan64, stringify!($Name));
            })*
        }
    };
}

functions! {
    Sum = |x, y| x + y;
    Difference = |x, y| x - y;
    Product = |x, y| x * y;
    Quotient = |x, y| x / y;
    Fused = |x, y, z| x.mul_add(y, z);
    NotFused = |x, y, z| x * y + z;
    Negated = |x| -x;
    Magnitude = |x| x.abs();
    Root = |x| x.sqrt();
    Signed = |x, y| x.copysign(y);
    Rounded = |x| x.floor() + x.ceil() + x.trunc() + x.round_even();
    Compared = |x, y| A::truth((x.lt(y) | x.eq(y)) & !y.le(x));
    Extremes = |x, y| x.minimum(y) - x.maximum(y);
    Scaled = |x| (x - x.floor()).ldexp(A::of(3.0));
    Exponential = |x| math::exp(x);
    Logarithm = |x| math::log(x);
    Tangent = |x| math::tanh(x);
    Sine = |x| math::sin(x);
    Error = |x| math::erf(x);
    Power = |x, y| math::pow(x, y);
}

/// The sum, for floats and for whole numbers.
struct Both;
impl Function<2> for Both {
    const WHOLE: bool = true;
    fn eval<A: Arith>(&self, [x, y]: [A; 2]) -> [A; 1] {
        [x + y * y]
    }
    fn eval_int<I: Num>(&self, [x, y]: [I; 2]) -> [I; 1] {
        [(x + y * y).abs() - I::select(x.lt(y), -x, I::int(7))]
    }
}

#[test]
fn small_dtypes_are_widened_and_rounded_once() {
    let values = singles();
    let halves: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
    let other: Vec<f16> = halves.iter().rev().copied().collect();
    let bytes = |values: &[f16]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let program = program_of(&Both, DType::F16);
    let found = run(
        &program,
        &[&bytes(&halves), &bytes(&other)],
        2 * halves.len(),
        halves.len(),
    );
    let expected: Vec<f16> = (halves.iter().zip(&other))
        .map(|(x, y)| f16::from_f32(Both.eval([x.to_f32(), y.to_f32()])[0]))
        .collect();
    let is_nan = |bytes: &[u8]| f16::from_le_bytes(bytes.try_into().unwrap()).is_nan();
    same::<2>(&found, &bytes(&expected), is_nan, "f16");

    let brains: Vec<bf16> = values.iter().map(|value| bf16::from_f32(*value)).collect();
    let other: Vec<bf16> = brains.iter().rev().copied().collect();
    let bytes = |values: &[bf16]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let program = program_of(&Both, DType::BF16);
    let found = run(
        &program,
        &[&bytes(&brains), &bytes(&other)],
        2 * brains.len(),
        brains.len(),
    );
    let expected: Vec<bf16> = (brains.iter().zip(&other))
        .map(|(x, y)| bf16::from_f32(Both.eval([x.to_f32(), y.to_f32()])[0]))
        .collect();
    let is_nan = |bytes: &[u8]| bf16::from_le_bytes(bytes.try_into().unwrap()).is_nan();
    same::<2>(&found, &bytes(&expected), is_nan, "bf16");
}

#[test]
fn whole_numbers_wrap() {
    let x: Vec<i64> = (0..1001i64)
        .map(|index| index.wrapping_mul(0x7ed5_58cc_9c3a_91d7))
        .collect();
    let y: Vec<i64> = x.iter().rev().copied().collect();
    macro_rules! check {
        ($ty:ty, $dtype:expr, $nothing:expr) => {{
            let (x, y): (Vec<$ty>, Vec<$ty>) = (
                x.iter().map(|value| *value as $ty).collect(),
                y.iter().map(|value| *value as $ty).collect(),
            );
            let bytes = |values: &[$ty]| -> Vec<u8> {
                values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect()
            };
            let program = program_of(&Both, $dtype);
            let found = run(
                &program,
                &[&bytes(&x), &bytes(&y)],
                size_of::<$ty>() * x.len(),
                x.len(),
            );
            let expected: Vec<$ty> = (x.iter().zip(&y))
                .map(|(x, y)| Both.eval_int([Wrapping(*x as i64), Wrapping(*y as i64)])[0].0 as $ty)
                .collect();
            assert_eq!(found, bytes(&expected), "{:?}", $dtype);
        }};
    }
    check!(i64, DType::I64, 0);
    check!(i32, DType::I32, 0);
    check!(i16, DType::I16, 0);
    check!(i8, DType::I8, 0);
    check!(u8, DType::U8, 0);
}

#[test]
fn classes_are_converted_as_rust_does() {
    let values: Vec<f32> = singles();
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let convert = |to: Class, truth: bool, dtype: DType| Program {
        classes: vec![Class::F32, to],
        inputs: vec![(0, DType::F32)],
        constants: Vec::new(),
        steps: vec![Step::Convert {
            truth,
            input: 0,
            output: 1,
        }],
        outputs: vec![(1, dtype)],
    };
    let found = run(
        &convert(Class::I64, false, DType::I64),
        &[&bytes],
        8 * values.len(),
        values.len(),
    );
    let expected: Vec<u8> = values
        .iter()
        .flat_map(|value| (*value as i64).to_le_bytes())
        .collect();
    assert_eq!(found, expected);
    let found = run(
        &convert(Class::I64, true, DType::Bool),
        &[&bytes],
        values.len(),
        values.len(),
    );
    let expected: Vec<u8> = values.iter().map(|value| u8::from(*value != 0.0)).collect();
    assert_eq!(found, expected);
    let found = run(
        &convert(Class::F64, false, DType::F64),
        &[&bytes],
        8 * values.len(),
        values.len(),
    );
    let expected: Vec<u8> = values
        .iter()
        .flat_map(|value| f64::from(*value).to_le_bytes())
        .collect();
    same::<8>(&found, &expected, nan64, "f64");
}

#[test]
fn operands_lie_as_they_like() {
    // x: [3, 5, 7] with its dimensions turned round; y: a row, broadcast; the result as a part of something larger.
    let shape = [3usize, 5, 7];
    let x: Vec<f32> = (0..105).map(|index| index as f32).collect();
    let y: Vec<f32> = (0..7).map(|index| 1000.0 * index as f32).collect();
    let bytes = |values: &[f32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let (x_device, y_device) = (on_device(&bytes(&x)), on_device(&bytes(&y)));
    let out = on_device(&bytes(&[-1.0; 300]));
    let mut program = program_of(&Sum, DType::F32);
    program.classes.push(Class::F32);
    program.constants.push(3);
    program.steps.push(Step::Apply {
        trace: trace(&Sum, Class::F32),
        inputs: vec![2, 3],
        outputs: vec![2],
    });
    // SAFETY: all places lie within the buffers.
    unsafe {
        Pointwise::of(&program)
            .launch(
                gpu().stream(),
                "add",
                &shape,
                &[
                    Placed {
                        address: x_device.address(),
                        strides: &[1, 3, 15],
                    },
                    Placed {
                        address: y_device.address(),
                        strides: &[0, 0, 1],
                    },
                ],
                &[Scalar::F64(0.5)],
                &[Placed {
                    address: out.address() + 4,
                    strides: &[100, 14, 2],
                }],
            )
            .unwrap();
    }
    let found = back(&out);
    let mut expected = vec![-1.0f32; 300];
    for i in 0..3 {
        for j in 0..5 {
            for k in 0..7 {
                expected[1 + 100 * i + 14 * j + 2 * k] = x[i + 3 * j + 15 * k] + y[k] + 0.5;
            }
        }
    }
    assert_eq!(found, bytes(&expected));
}
