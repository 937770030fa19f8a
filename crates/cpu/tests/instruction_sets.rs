//! Every instruction set this CPU has gives the bits that scalar code gives. (All NaNs count as one.)

mod functions;

use fireclay_core::arith::{Arith, Bits, Num};
use fireclay_core::pointwise::Pointwise;
use fireclay_cpu::isa::{Isa, supported};
use fireclay_cpu::kernel::{Class, Kernel, run_pointwise};
use functions::{Element, Random, apply, binary, unary};

/// Declares `Pointwise` functions and a list of them with their names.
macro_rules! operations {
    ($list:ident, $count:literal: $($name:literal $arguments:pat => $value:expr;)*) => {
        fn $list() -> Vec<(&'static str, Kernel)> {
            vec![$({
                struct Function;
                impl Pointwise<$count> for Function {
                    #[inline(always)]
                    fn eval<A: Arith>(&self, $arguments: [A; $count]) -> [A; 1] {
                        [$value]
                    }
                }
                ($name, Kernel::new(Function))
            }),*]
        }
    };
}

operations! { one_argument, 1:
    "neg" [x] => -x;
    "abs" [x] => x.abs();
    "sqrt" [x] => x.sqrt();
    "floor" [x] => x.floor();
    "ceil" [x] => x.ceil();
    "trunc" [x] => x.trunc();
    "round_even" [x] => x.round_even();
    "is_nan" [x] => A::truth(x.is_nan());
    "is_true" [x] => A::truth(x.is_true());
    "whole" [x] => {
        let limit = A::of(4_000_000.0);
        let x = A::select(x.abs().lt(limit), x.round_even(), limit);
        A::from_whole(x.to_whole() + A::Bits::splat(3))
    };
    "ldexp" [x] => {
        let one = A::of(1.0);
        let exponent = A::select(x.abs().lt(A::of(160.0)), x.trunc(), A::of(-140.0));
        (one + A::of(0.7)).ldexp(exponent)
    };
    "shl" [x] => A::from_bits(x.to_bits().shl(5));
    "shr" [x] => A::from_bits(x.to_bits().shr(5));
    "shr_logical" [x] => A::from_bits(x.to_bits().shr_logical(5));
    "constants" [x] => x * A::of(0.1) + A::int(-3) + A::select(x.lt(A::infinity()), A::of(0.0), A::nan());
}

operations! { two_arguments, 2:
    "add" [x, y] => x + y;
    "sub" [x, y] => x - y;
    "mul" [x, y] => x * y;
    "div" [x, y] => x / y;
    "copysign" [x, y] => x.copysign(y);
    "lesser" [x, y] => x.lesser(y);
    "greater" [x, y] => x.greater(y);
    "minimum" [x, y] => x.minimum(y);
    "maximum" [x, y] => x.maximum(y);
    "lt" [x, y] => A::truth(x.lt(y));
    "le" [x, y] => A::truth(x.le(y));
    "gt" [x, y] => A::truth(x.gt(y));
    "ge" [x, y] => A::truth(x.ge(y));
    "eq" [x, y] => A::truth(x.eq(y));
    "ne" [x, y] => A::truth(x.ne(y));
    "mask" [x, y] => A::truth((x.lt(y) | x.is_nan()) & !y.eq(A::of(1.0)));
    "bits add" [x, y] => A::from_bits(x.to_bits() + y.to_bits());
    "bits sub" [x, y] => A::from_bits(x.to_bits() - y.to_bits());
    "bits and" [x, y] => A::from_bits(x.to_bits() & y.to_bits());
    "bits or" [x, y] => A::from_bits(x.to_bits() | y.to_bits());
    "bits xor" [x, y] => A::from_bits(x.to_bits() ^ y.to_bits());
    "bits eq" [x, y] => A::truth(Bits::eq(x.to_bits(), y.to_bits()));
    "bits lt" [x, y] => A::truth(Bits::lt(x.to_bits(), y.to_bits()));
    "bits select" [x, y] => A::from_bits(A::Bits::select(x.lt(y), x.to_bits(), y.to_bits()));
    "bits mul_low" [x, y] => A::from_bits(x.to_bits().mul_low(y.to_bits()));
    "bits mul_high" [x, y] => A::from_bits(x.to_bits().mul_high_unsigned(y.to_bits()));
    "bits shl_by" [x, y] => A::from_bits(x.to_bits().shl_by(y.to_bits() & A::Bits::splat(31)));
    "bits shr_by" [x, y] => A::from_bits(x.to_bits().shr_logical_by(y.to_bits() & A::Bits::splat(31)));
}

operations! { three_arguments, 3:
    "mul_add" [x, y, z] => x.mul_add(y, z);
    "select" [x, y, z] => A::select(x.lt(y), z, x);
}

#[test]
fn every_operation_and_function_gives_the_same_bits_in_f32() {
    let patterns = random_and_special(&SPECIAL.map(|x| x as f32), |bits| {
        f32::from_bits(bits as u32)
    });
    every_operation_and_function(&patterns, |x: f32| {
        if x.is_nan() {
            u64::MAX
        } else {
            u64::from(x.to_bits())
        }
    });
}

#[test]
fn every_operation_and_function_gives_the_same_bits_in_f64() {
    let patterns = random_and_special(&SPECIAL, f64::from_bits);
    every_operation_and_function(
        &patterns,
        |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() },
    );
}

const SPECIAL: [f64; 24] = [
    0.0,
    1.0,
    0.5,
    2.0,
    1.5,
    3.0,
    88.7,
    103.9,
    709.7,
    745.1,
    0.785,
    std::f64::consts::FRAC_PI_2,
    1e5,
    131_072.0,
    1_048_576.0,
    1e30,
    1e-40,
    1e-45,
    5e-324,
    1e300,
    0.92,
    27.2,
    f64::INFINITY,
    f64::NAN,
];

/// Three columns: random bit patterns, random numbers of moderate size, and all pairs of special values.
fn random_and_special<T: Element + std::ops::Neg<Output = T>>(
    special: &[T],
    from_bits: fn(u64) -> T,
) -> [Vec<T>; 3] {
    let signed: Vec<T> = special.iter().flat_map(|&x| [x, -x]).collect();
    let mut random = Random(1);
    let mut columns = [(); 3].map(|()| {
        (0..40_000)
            .map(|_| from_bits(random.next()))
            .collect::<Vec<T>>()
    });
    for (i, &x) in signed.iter().enumerate() {
        for (j, &y) in signed.iter().enumerate() {
            columns[0].push(x);
            columns[1].push(y);
            columns[2].push(signed[(i + j) % signed.len()]);
        }
    }
    // With exponents near that of 1, where most functions do something.
    let one_exponent = if size_of::<T>() == 4 {
        0x3F80_0000
    } else {
        0x3FF0_0000_0000_0000u64
    };
    let mantissa_bits = if size_of::<T>() == 4 { 23 } else { 52 };
    for _ in 0..40_000 {
        for column in &mut columns {
            let bits = random.next();
            let exponent = (random.next() % 24) << mantissa_bits;
            let sign = (random.next() & 1) << (size_of::<T>() * 8 - 1);
            let mantissa = bits & ((1 << mantissa_bits) - 1);
            column.push(from_bits(
                sign | ((one_exponent - (12 << mantissa_bits) + exponent) | mantissa),
            ));
        }
    }
    // No multiple of any number of lanes.
    columns
        .iter_mut()
        .for_each(|column| column.push(special[1]));
    columns
}

fn every_operation_and_function<T: Element + std::fmt::Debug>(
    columns: &[Vec<T>; 3],
    bits: fn(T) -> u64,
) {
    let of_one = one_argument().into_iter().chain(unary());
    let of_two = two_arguments().into_iter().chain(binary());
    let groups = [
        of_one.collect::<Vec<_>>(),
        of_two.collect(),
        three_arguments(),
    ];
    for (count, group) in (1..).zip(groups) {
        let inputs: Vec<&[T]> = columns[..count].iter().map(Vec::as_slice).collect();
        for (name, kernel) in group {
            let wanted = apply(&kernel, Isa::Scalar, &inputs);
            for isa in supported() {
                let got = apply(&kernel, isa, &inputs);
                for i in 0..got.len() {
                    let arguments: Vec<T> = inputs.iter().map(|input| input[i]).collect();
                    assert!(
                        bits(got[i]) == bits(wanted[i]),
                        "{name}{arguments:?} on {isa:?} is {:?}, on Scalar {:?}",
                        got[i],
                        wanted[i]
                    );
                }
            }
        }
    }
}

#[test]
fn a_run_of_any_length_touches_exactly_that_many_elements() {
    let (_, kernel) = two_arguments().swap_remove(0);
    for isa in supported() {
        for len in 0..70 {
            let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let mut y = vec![7.0f32; len + 1];
            let output = y.as_mut_ptr();
            // SAFETY: x and y have `len` elements at least; the output is the second input.
            unsafe {
                kernel.run_on(
                    isa,
                    Class::F32,
                    &[x.as_ptr().cast(), output.cast()],
                    &[output.cast()],
                    len,
                )
            };
            for (i, &y) in y.iter().enumerate() {
                assert_eq!(
                    y,
                    if i < len { i as f32 + 7.0 } else { 7.0 },
                    "{isa:?}, length {len}, element {i}"
                );
            }
        }
    }
}

/// Sum and product; on whole numbers too.
struct SumAndProduct;

impl Pointwise<2, 2> for SumAndProduct {
    const WHOLE: bool = true;

    #[inline(always)]
    fn eval<A: Arith>(&self, [x, y]: [A; 2]) -> [A; 2] {
        [x + y, x * y]
    }
    #[inline(always)]
    fn eval_int<I: Num>(&self, [x, y]: [I; 2]) -> [I; 2] {
        [x + y, x * y]
    }
}

#[test]
fn whole_numbers_wrap_on_every_instruction_set() {
    let mut random = Random(3);
    let x: Vec<i64> = (0..101).map(|_| random.next() as i64).collect();
    let y: Vec<i64> = (0..101).map(|_| random.next() as i64).collect();
    let kernel = Kernel::new(SumAndProduct);
    assert!(kernel.whole() && kernel.inputs() == 2 && kernel.outputs() == 2);
    for isa in supported() {
        let (mut sum, mut product) = (vec![0i64; 101], vec![0i64; 101]);
        let outputs = [sum.as_mut_ptr().cast(), product.as_mut_ptr().cast()];
        // SAFETY: all four are of 101 elements of i64, apart from each other.
        unsafe {
            kernel.run_on(
                isa,
                Class::I64,
                &[x.as_ptr().cast(), y.as_ptr().cast()],
                &outputs,
                101,
            )
        };
        for i in 0..101 {
            assert_eq!(
                (sum[i], product[i]),
                (x[i].wrapping_add(y[i]), x[i].wrapping_mul(y[i])),
                "{isa:?}"
            );
        }
    }
}

#[test]
fn a_statically_known_function_runs_without_a_kernel() {
    let (x, y) = ([1.5f64, -2.0, 8.0], [2.0f64, 0.25, 1.0]);
    let (mut sum, mut product) = ([0.0f64; 3], [0.0f64; 3]);
    let inputs = [x.as_ptr().cast(), y.as_ptr().cast()];
    let outputs = [sum.as_mut_ptr().cast(), product.as_mut_ptr().cast()];
    // SAFETY: all four are of 3 elements of f64, apart from each other.
    unsafe { run_pointwise(&SumAndProduct, Class::F64, &inputs, &outputs, 3) };
    assert_eq!((sum, product), ([3.5, -1.75, 9.0], [3.0, -0.5, 8.0]));
}
