//! The casts of `kernels/elementwise.cu`: nine types to nine types.

use half::{bf16, f16};

use crate::draw::Draw;
use crate::gpu::{Element, Gpu, Module, arguments};

crate::kernel_tests! { casts }

/// A value on its way between two types: an integer, or a float that is exact in f64.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Real(f64),
}

trait Castable: Element + PartialEq + std::fmt::Debug {
    const NAME: &'static str;
    const IS_REAL: bool;
    fn number(self) -> Number;
    /// As the kernel does: integers reach 16-bit floats through f32.
    fn cast(number: Number) -> Self;
    fn is_same(self, other: Self) -> bool {
        self == other
    }
}

macro_rules! integers {
    ($($ty:ident $name:literal)*) => {$(
        impl Castable for $ty {
            const NAME: &'static str = $name;
            const IS_REAL: bool = false;
            fn number(self) -> Number {
                Number::Integer(self.into())
            }
            fn cast(number: Number) -> $ty {
                match number {
                    Number::Integer(value) => value as $ty,
                    Number::Real(value) => value as $ty,
                }
            }
        }
    )*};
}
integers!(i64 "i64" i32 "i32" i16 "i16" i8 "i8" u8 "u8");

macro_rules! reals {
    ($($ty:ident $name:literal $from_integer:expr, $from_real:expr;)*) => {$(
        impl Castable for $ty {
            const NAME: &'static str = $name;
            const IS_REAL: bool = true;
            fn number(self) -> Number {
                Number::Real(self.into())
            }
            fn cast(number: Number) -> $ty {
                match number {
                    Number::Integer(value) => $from_integer(value),
                    Number::Real(value) => $from_real(value),
                }
            }
            fn is_same(self, other: $ty) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
        }
    )*};
}
reals! {
    f64 "f64" |x: i64| x as f64, |x| x;
    f32 "f32" |x: i64| x as f32, |x: f64| x as f32;
    f16 "f16" |x: i64| f16::from_f32(x as f32), round_f16;
    bf16 "bf16" |x: i64| bf16::from_f32(x as f32), round_bf16;
}

/// Rounds once, to nearest even, among the values of a type with `digits` of significand and the least exponent `least`
/// of a normal number; the result is exact in f32.
fn round_to(x: f64, digits: i32, least: i32) -> f32 {
    if x == 0.0 || !x.is_finite() {
        return x as f32;
    }
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
    let unit = 2f64.powi(exponent - digits + 1);
    ((x / unit).round_ties_even() * unit) as f32
}

pub(crate) fn round_f16(x: f64) -> f16 {
    f16::from_f32(round_to(x, 11, -14))
}

pub(crate) fn round_bf16(x: f64) -> bf16 {
    bf16::from_f32(round_to(x, 8, -126))
}

fn casts(gpu: &Gpu) {
    let module = gpu.module(crate::elementwise::TEXT);
    macro_rules! all {
        ($($from:ident)*) => {$(
            to::<$from, f64>(gpu, &module);
            to::<$from, f32>(gpu, &module);
            to::<$from, f16>(gpu, &module);
            to::<$from, bf16>(gpu, &module);
            to::<$from, i64>(gpu, &module);
            to::<$from, i32>(gpu, &module);
            to::<$from, i16>(gpu, &module);
            to::<$from, i8>(gpu, &module);
            to::<$from, u8>(gpu, &module);
        )*};
    }
    all!(f64 f32 f16 bf16 i64 i32 i16 i8 u8);
}

fn to<From: Castable, To: Castable>(gpu: &Gpu, module: &Module) {
    let mut draw = Draw::new(20);
    let mut values: Vec<From> = Vec::new();
    for _ in 0..100 {
        let number = match (From::IS_REAL, To::IS_REAL) {
            (true, true) => {
                Number::Real(draw.real(-1.0, 1.0) * 2f64.powi(draw.integer(-30, 18) as i32))
            }
            // Also after rounding to 8 digits: outside of the target's range the cast is undefined in C++.
            (true, false) if To::NAME == "u8" => Number::Real(draw.real(0.0, 255.0)),
            (true, false) => Number::Real(draw.real(-126.9, 126.9)),
            (false, _) => Number::Integer(draw.words(1)[0] as i64),
        };
        values.push(From::cast(number));
    }
    if From::IS_REAL && To::IS_REAL {
        let special = [
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            1e-300,
            65519.0,
            65520.0,
            1e-41,
        ];
        values.extend(special.map(|x| From::cast(Number::Real(x))));
        // Just above a tie: rounding by way of f32 would go wrong.
        values.push(From::cast(Number::Real(
            1.0 + 2f64.powi(-11) + 2f64.powi(-40),
        )));
        values.push(From::cast(Number::Real(
            1.0 + 2f64.powi(-8) + 2f64.powi(-40),
        )));
    }
    let kernel = format!("cast_{}_{}", From::NAME, To::NAME);
    let out = gpu.zeros::<To>(values.len());
    let arguments = arguments![&gpu.upload(&values), &out, values.len() as i32];
    gpu.run(module, &kernel, 2, 64, arguments);
    for (at, (&value, found)) in values.iter().zip(gpu.download(&out)).enumerate() {
        let expected = To::cast(value.number());
        assert!(
            found.is_same(expected),
            "{kernel}: at {at} {value:?} gave {found:?}, expected {expected:?}"
        );
    }
}

#[test]
fn doubles_round_once() {
    assert_eq!(
        round_f16(1.0 + 2f64.powi(-11) + 2f64.powi(-40)).to_bits(),
        0x3c01
    );
    assert_eq!(round_f16(1.0 + 2f64.powi(-11)).to_bits(), 0x3c00);
    assert_eq!(round_f16(65519.9).to_bits(), 0x7bff);
    assert_eq!(round_f16(65520.0).to_bits(), 0x7c00);
    assert_eq!(round_f16(2f64.powi(-25) * 1.001).to_bits(), 1);
    assert_eq!(round_f16(2f64.powi(-25)).to_bits(), 0);
    assert_eq!(
        round_bf16(-1.0 - 2f64.powi(-8) - 2f64.powi(-40)).to_bits(),
        0xbf81
    );
    assert_eq!(round_bf16(1e300), bf16::INFINITY);
    for bits in 0..=u16::MAX {
        let value = f16::from_bits(bits);
        assert!(value.is_nan() || round_f16(value.to_f64()).to_bits() == bits);
    }
}
