//! f16 and bf16 arithmetic, of one value or of both halves of a word: each result is the exact one, rounded once.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::float::extremum_of;
use super::rounding::{Direction, Rounded, odd_sum};
use crate::decode::{Builder, Form, Refusal};
use crate::exec::code::Class;
use crate::exec::instruction::{Run, handler};
use crate::exec::lanes::{Function1, Function2, Function3, Lane, Map1, Map2, Map3, Pair};
use crate::ptx::ast::Type;

/// Whether the family has the type.
pub(crate) fn takes(ty: Type) -> bool {
    matches!(ty, Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2)
}

/// A 16-bit float.
pub(super) trait Half: Lane<Raw = u32> + Rounded {
    /// Its bits.
    fn bits(self) -> u16;
    /// Of bits.
    fn of_bits(bits: u16) -> Self;
    /// The canonical NaN.
    const NAN: u16;
}

impl Half for f16 {
    #[inline(always)]
    fn bits(self) -> u16 {
        self.to_bits()
    }
    #[inline(always)]
    fn of_bits(bits: u16) -> f16 {
        f16::from_bits(bits)
    }
    const NAN: u16 = 0x7fff;
}

impl Half for bf16 {
    #[inline(always)]
    fn bits(self) -> u16 {
        self.to_bits()
    }
    #[inline(always)]
    fn of_bits(bits: u16) -> bf16 {
        bf16::from_bits(bits)
    }
    const NAN: u16 = 0x7fff;
}

const ADD: u8 = 0;
const SUB: u8 = 1;
const MUL: u8 = 2;
const MIN: u8 = 3;
const MAX: u8 = 4;
const MIN_NAN: u8 = 5;
const MAX_NAN: u8 = 6;
const MIN_XORSIGN: u8 = 7;
const MAX_XORSIGN: u8 = 8;
const ABS: u8 = 20;
const NEG: u8 = 21;
const EX2: u8 = 22;
const TANH: u8 = 23;

const FTZ: u8 = 1;
const SAT: u8 = 2;
const RELU: u8 = 4;

#[inline(always)]
fn input<T: Half, const AROUND: u8>(value: T) -> T {
    if AROUND & FTZ != 0 {
        value.flushed()
    } else {
        value
    }
}

#[inline(always)]
fn output<T: Half, const AROUND: u8>(value: T) -> T {
    let value = if AROUND & FTZ != 0 {
        value.flushed()
    } else {
        value
    };
    let exact = value.exact();
    if AROUND & RELU != 0 && !exact.is_nan() && (exact < 0.0 || value.bits() == 0x8000) {
        return T::of_bits(0);
    }
    if AROUND & RELU != 0 && exact.is_nan() {
        return T::of_bits(T::NAN);
    }
    if AROUND & SAT != 0 {
        // NaN becomes +0, and so does -0.
        return T::rounded(
            if exact > 0.0 { exact.min(1.0) } else { 0.0 },
            Direction::Nearest,
        );
    }
    value
}

struct Two<T, const OPERATION: u8, const AROUND: u8>(PhantomData<T>);
impl<T: Half, const OPERATION: u8, const AROUND: u8> Function2 for Two<T, OPERATION, AROUND> {
    type A = T;
    type B = T;
    type D = T;
    #[inline(always)]
    fn call(a: T, b: T) -> T {
        let (a, b) = (input::<T, AROUND>(a), input::<T, AROUND>(b));
        let (x, y) = (a.exact(), b.exact());
        let nearest = |odd| T::rounded(odd, Direction::Nearest);
        let extremum = |greater, nan_wins| {
            if x.is_nan() && (y.is_nan() || nan_wins) || nan_wins && y.is_nan() {
                return T::of_bits(T::NAN);
            }
            if extremum_of(x, y, greater) { a } else { b }
        };
        output::<T, AROUND>(match OPERATION {
            ADD => nearest(odd_sum(x, y)),
            SUB => nearest(odd_sum(x, -y)),
            MUL => nearest(x * y),
            MIN => extremum(false, false),
            MAX => extremum(true, false),
            MIN_NAN => extremum(false, true),
            MAX_NAN => extremum(true, true),
            _ => {
                let (p, q) = (x.abs(), y.abs());
                if p.is_nan() && q.is_nan() {
                    T::of_bits(T::NAN)
                } else {
                    let magnitude = if extremum_of(p, q, OPERATION == MAX_XORSIGN) {
                        a
                    } else {
                        b
                    };
                    T::of_bits(magnitude.bits() & 0x7fff | (a.bits() ^ b.bits()) & 0x8000)
                }
            }
        })
    }
}

struct Three<T, const AROUND: u8>(PhantomData<T>);
impl<T: Half, const AROUND: u8> Function3 for Three<T, AROUND> {
    type A = T;
    type B = T;
    type C = T;
    type D = T;
    #[inline(always)]
    fn call(a: T, b: T, c: T) -> T {
        let (a, b, c) = (
            input::<T, AROUND>(a),
            input::<T, AROUND>(b),
            input::<T, AROUND>(c),
        );
        // The product of two 16-bit floats is exact in double.
        let sum = odd_sum(a.exact() * b.exact(), c.exact());
        output::<T, AROUND>(T::rounded(sum, Direction::Nearest))
    }
}

struct One<T, const OPERATION: u8, const AROUND: u8>(PhantomData<T>);
impl<T: Half, const OPERATION: u8, const AROUND: u8> Function1 for One<T, OPERATION, AROUND> {
    type A = T;
    type D = T;
    #[inline(always)]
    fn call(a: T) -> T {
        let a = input::<T, AROUND>(a);
        output::<T, AROUND>(match OPERATION {
            ABS => T::of_bits(a.bits() & 0x7fff),
            NEG => T::of_bits(a.bits() ^ 0x8000),
            EX2 => T::rounded(a.exact().exp2(), Direction::Nearest),
            _ => T::rounded(a.exact().tanh(), Direction::Nearest),
        })
    }
}

/// A function of each half of a word.
struct Both<T, F>(PhantomData<(T, F)>);
impl<T: Half, F: Function1<A = T, D = T>> Function1 for Both<T, F> {
    type A = Pair<T>;
    type D = Pair<T>;
    #[inline(always)]
    fn call(a: Pair<T>) -> Pair<T> {
        Pair(F::call(a.0), F::call(a.1))
    }
}
impl<T: Half, F: Function2<A = T, B = T, D = T>> Function2 for Both<T, F> {
    type A = Pair<T>;
    type B = Pair<T>;
    type D = Pair<T>;
    #[inline(always)]
    fn call(a: Pair<T>, b: Pair<T>) -> Pair<T> {
        Pair(F::call(a.0, b.0), F::call(a.1, b.1))
    }
}
impl<T: Half, F: Function3<A = T, B = T, C = T, D = T>> Function3 for Both<T, F> {
    type A = Pair<T>;
    type B = Pair<T>;
    type C = Pair<T>;
    type D = Pair<T>;
    #[inline(always)]
    fn call(a: Pair<T>, b: Pair<T>, c: Pair<T>) -> Pair<T> {
        Pair(F::call(a.0, b.0, c.0), F::call(a.1, b.1, c.1))
    }
}

macro_rules! of_half {
    ($ty:expr, $map:ident, $function:ident, [$($operation:tt)?], $around:tt) => {
        match $ty {
            Type::F16 => handler::<$map<$function<f16, $({ $operation },)? { $around }>>>(),
            Type::F16x2 => handler::<$map<Both<f16, $function<f16, $({ $operation },)? { $around }>>>>(),
            Type::BF16 => handler::<$map<$function<bf16, $({ $operation },)? { $around }>>>(),
            _ => handler::<$map<Both<bf16, $function<bf16, $({ $operation },)? { $around }>>>>(),
        }
    };
}

macro_rules! around {
    ($ty:expr, $around:expr, $map:ident, $function:ident, [$($operation:tt)?]) => {
        match $around {
            0 => of_half!($ty, $map, $function, [$($operation)?], 0),
            1 => of_half!($ty, $map, $function, [$($operation)?], 1),
            2 => of_half!($ty, $map, $function, [$($operation)?], 2),
            3 => of_half!($ty, $map, $function, [$($operation)?], 3),
            4 => of_half!($ty, $map, $function, [$($operation)?], 4),
            5 => of_half!($ty, $map, $function, [$($operation)?], 5),
            _ => return Err(Refusal::new("unsupported combination of modifiers")),
        }
    };
}

macro_rules! flushing {
    ($ty:expr, $around:expr, $map:ident, $function:ident, [$operation:tt]) => {
        match $around {
            0 => of_half!($ty, $map, $function, [$operation], 0),
            1 => of_half!($ty, $map, $function, [$operation], 1),
            _ => return Err(Refusal::new("unsupported combination of modifiers")),
        }
    };
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Float;
    let mut around = 0;
    for (name, bit) in [("ftz", FTZ), ("sat", SAT), ("relu", RELU)] {
        if form.take(name) {
            around |= bit;
        }
    }
    let approximate = form.take("approx");
    let nan = form.take("NaN");
    let xorsign = form.take("xorsign") & form.take("abs");
    form.take("rn");
    let ty = form.take_type()?;
    form.done()?;
    let opcode = form.opcode;
    if (nan || xorsign) && !matches!(opcode, "min" | "max")
        || approximate != matches!(opcode, "ex2" | "tanh")
    {
        return Err(Refusal::new("unsupported combination of modifiers"));
    }
    let (run, sources): (Run, usize) = match opcode {
        "add" => (around!(ty, around, Map2, Two, [ADD]), 2),
        "sub" => (around!(ty, around, Map2, Two, [SUB]), 2),
        "mul" => (around!(ty, around, Map2, Two, [MUL]), 2),
        "fma" => (around!(ty, around, Map3, Three, []), 3),
        "min" if xorsign => (flushing!(ty, around, Map2, Two, [MIN_XORSIGN]), 2),
        "max" if xorsign => (flushing!(ty, around, Map2, Two, [MAX_XORSIGN]), 2),
        "min" if nan => (flushing!(ty, around, Map2, Two, [MIN_NAN]), 2),
        "max" if nan => (flushing!(ty, around, Map2, Two, [MAX_NAN]), 2),
        "min" => (flushing!(ty, around, Map2, Two, [MIN]), 2),
        "max" => (flushing!(ty, around, Map2, Two, [MAX]), 2),
        "abs" => (flushing!(ty, around, Map1, One, [ABS]), 1),
        "neg" => (flushing!(ty, around, Map1, One, [NEG]), 1),
        "ex2" => (flushing!(ty, around, Map1, One, [EX2]), 1),
        "tanh" => (flushing!(ty, around, Map1, One, [TANH]), 1),
        other => return Err(Refusal::new(format!("{other} of {ty:?} is not supported"))),
    };
    form.expect_operands(sources + 1)?;
    let mut reads = Vec::new();
    for index in 1..=sources {
        reads.push(builder.read(form, index, ty)?);
    }
    let result = builder.write(form, 0, ty)?;
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

#[cfg(test)]
mod tests;
