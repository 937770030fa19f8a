//! f32 and f64 arithmetic: exact in every rounding, and the approximate functions within PTX's bounds (they are
//! computed in double and rounded once).

use std::marker::PhantomData;

use super::rounding::{Direction, Rounded, canonical, odd_quotient, odd_root, odd_sum, wide};
use crate::decode::{Builder, Form, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Inst, Run, VectorHandler, handler, vector_handler};
use crate::exec::lanes::{Function1, Lane, Map1, store_lanes};
use crate::ptx::ast::Type;

/// Whether the family has the type.
pub(crate) fn takes(ty: Type) -> bool {
    matches!(ty, Type::F32 | Type::F64)
}

/// A float type with arithmetic in every direction.
pub(super) trait Float: Lane + Rounded {
    fn add(self, other: Self, direction: Direction) -> Self;
    fn mul(self, other: Self, direction: Direction) -> Self;
    fn fma(self, b: Self, c: Self, direction: Direction) -> Self;
    fn div(self, other: Self, direction: Direction) -> Self;
    fn sqrt(self, direction: Direction) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn is_nan(self) -> bool;
    fn less(self, other: Self) -> bool;
    /// The sign bit.
    fn is_negative(self) -> bool;
    fn with_sign_of(self, other: Self) -> Self;
    fn nan() -> Self;
    /// Of a double, to the nearest.
    fn of(value: f64) -> Self;
}

macro_rules! common {
    ($ty:ident, $nan:expr) => {
        #[inline(always)]
        fn neg(self) -> $ty {
            -self
        }
        #[inline(always)]
        fn abs(self) -> $ty {
            $ty::abs(self)
        }
        #[inline(always)]
        fn is_nan(self) -> bool {
            $ty::is_nan(self)
        }
        #[inline(always)]
        fn less(self, other: $ty) -> bool {
            self < other
        }
        #[inline(always)]
        fn is_negative(self) -> bool {
            self.is_sign_negative()
        }
        #[inline(always)]
        fn with_sign_of(self, other: $ty) -> $ty {
            self.copysign(other)
        }
        #[inline(always)]
        fn nan() -> $ty {
            $ty::from_bits($nan)
        }
        #[inline(always)]
        fn of(value: f64) -> $ty {
            $ty::rounded(value, Direction::Nearest)
        }
    };
}

/// The zero of a sum whose terms cancel: negative only when rounding down.
#[inline(always)]
fn cancelled(direction: Direction) -> f32 {
    if direction == Direction::Down {
        -0.0
    } else {
        0.0
    }
}

impl Float for f32 {
    #[inline(always)]
    fn add(self, other: f32, direction: Direction) -> f32 {
        if direction == Direction::Nearest {
            return canonical(self + other);
        }
        let sum = odd_sum(f64::from(self), f64::from(other));
        if sum == 0.0 && self.to_bits() != other.to_bits() {
            return cancelled(direction);
        }
        f32::rounded(sum, direction)
    }
    #[inline(always)]
    fn mul(self, other: f32, direction: Direction) -> f32 {
        if direction == Direction::Nearest {
            return canonical(self * other);
        }
        f32::rounded(f64::from(self) * f64::from(other), direction)
    }
    #[inline(always)]
    fn fma(self, b: f32, c: f32, direction: Direction) -> f32 {
        if direction == Direction::Nearest {
            return canonical(self.mul_add(b, c));
        }
        let product = f64::from(self) * f64::from(b);
        let sum = odd_sum(product, f64::from(c));
        if sum == 0.0 && product.to_bits() != f64::from(c).to_bits() {
            return cancelled(direction);
        }
        f32::rounded(sum, direction)
    }
    #[inline(always)]
    fn div(self, other: f32, direction: Direction) -> f32 {
        if direction == Direction::Nearest {
            return canonical(self / other);
        }
        f32::rounded(odd_quotient(f64::from(self), f64::from(other)), direction)
    }
    #[inline(always)]
    fn sqrt(self, direction: Direction) -> f32 {
        if direction == Direction::Nearest {
            return canonical(f32::sqrt(self));
        }
        f32::rounded(odd_root(f64::from(self)), direction)
    }
    common!(f32, 0x7fff_ffff);
}

impl Float for f64 {
    #[inline(always)]
    fn add(self, other: f64, direction: Direction) -> f64 {
        wide::add(self, other, direction)
    }
    #[inline(always)]
    fn mul(self, other: f64, direction: Direction) -> f64 {
        wide::mul(self, other, direction)
    }
    #[inline(always)]
    fn fma(self, b: f64, c: f64, direction: Direction) -> f64 {
        if direction == Direction::Nearest {
            self.mul_add(b, c)
        } else {
            wide::fma(self, b, c, direction)
        }
    }
    #[inline(always)]
    fn div(self, other: f64, direction: Direction) -> f64 {
        wide::div(self, other, direction)
    }
    #[inline(always)]
    fn sqrt(self, direction: Direction) -> f64 {
        wide::sqrt(self, direction)
    }
    common!(f64, 0x7fff_ffff_ffff_ffff);
}

/// Operations of the family, as const parameters.
const ADD: u8 = 0;
const SUB: u8 = 1;
const MUL: u8 = 2;
const DIV: u8 = 3;
const MIN: u8 = 4;
const MAX: u8 = 5;
const MIN_NAN: u8 = 6;
const MAX_NAN: u8 = 7;
const MIN_XORSIGN: u8 = 8;
const MAX_XORSIGN: u8 = 9;
const MIN_XORSIGN_NAN: u8 = 12;
const MAX_XORSIGN_NAN: u8 = 13;
const COPYSIGN: u8 = 10;
const DIV_APPROX: u8 = 11;
const SQRT: u8 = 20;
const RCP: u8 = 21;
const RSQRT: u8 = 22;
const SIN: u8 = 23;
const COS: u8 = 24;
const LG2: u8 = 25;
const EX2: u8 = 26;
const TANH: u8 = 27;
const ABS: u8 = 28;
const NEG: u8 = 29;
const FMA: u8 = 30;

/// What surrounds an operation: subnormals flushed, the result clamped to 0..1.
const FTZ: u8 = 1;
const SAT: u8 = 2;

/// Either compiled in (below [`RUNTIME`]) or read from the immediate: the direction and what surrounds the operation.
/// What is common is compiled in, so that it is a few vector instructions.
const RUNTIME: u8 = 255;

#[inline(always)]
fn input<T: Float>(value: T, around: u8) -> T {
    if around & FTZ != 0 {
        value.flushed()
    } else {
        value
    }
}

#[inline(always)]
fn output<T: Float>(value: T, around: u8) -> T {
    let value = if around & FTZ != 0 {
        value.flushed()
    } else {
        value
    };
    if around & SAT == 0 {
        return value;
    }
    // NaN becomes +0, and so does -0.
    let (zero, one) = (T::of(0.0), T::of(1.0));
    if !zero.less(value) {
        zero
    } else if one.less(value) {
        one
    } else {
        value
    }
}

/// What surrounds the operation and its direction.
#[inline(always)]
fn manner(compiled: u8, immediate: u64) -> (u8, Direction) {
    if compiled == RUNTIME {
        (
            immediate as u8,
            Direction::from_code((immediate >> 8) as u8),
        )
    } else {
        (compiled, Direction::Nearest)
    }
}

/// The lesser (or greater) of two numbers; -0 is less than +0. A NaN loses, or wins if `nan_wins`.
#[inline(always)]
pub(super) fn extremum<T: Float>(a: T, b: T, greater: bool, nan_wins: bool) -> T {
    if a.is_nan() || b.is_nan() {
        return match (nan_wins, a.is_nan(), b.is_nan()) {
            (true, ..) | (_, true, true) => T::nan(),
            (false, true, _) => b,
            _ => a,
        };
    }
    let a_less = a.less(b) || !b.less(a) && a.is_negative();
    if a_less != greater { a } else { b }
}

/// Whether the first of two is the lesser (or greater) one; -0 is less than +0, and a NaN loses.
#[inline(always)]
pub(super) fn extremum_of(a: f64, b: f64, greater: bool) -> bool {
    if a.is_nan() || b.is_nan() {
        return b.is_nan();
    }
    let a_less = a < b || a == b && a.is_sign_negative();
    a_less != greater
}

/// `slots = [d, a, b]`
struct Two<T, const OPERATION: u8, const AROUND: u8>(PhantomData<T>);
impl<T: Float, const OPERATION: u8, const AROUND: u8> VectorHandler for Two<T, OPERATION, AROUND> {
    #[inline(always)]
    unsafe fn run<const LANES: usize>(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, ..] = inst.slots;
        let (around, direction) = manner(AROUND, inst.immediate);
        // SAFETY: the decoder laid out three registers of the type.
        unsafe {
            store_lanes!(core, T, d, LANES, |lane| {
                let a = input::<T>(core.lane(a, lane), around);
                let b = input::<T>(core.lane(b, lane), around);
                output(two::<T, OPERATION>(a, b, direction), around)
            });
        }
        Flow::Next
    }
}

#[inline(always)]
fn two<T: Float, const OPERATION: u8>(a: T, b: T, direction: Direction) -> T {
    match OPERATION {
        ADD => a.add(b, direction),
        SUB => a.add(b.neg(), direction),
        MUL => a.mul(b, direction),
        DIV => a.div(b, direction),
        DIV_APPROX => {
            // PTX: a divisor between 2^126 and 2^128 gives what an infinite one does.
            let magnitude = b.abs().exact();
            let large = magnitude > f64::from_bits((1023 + 126) << 52) && magnitude.is_finite();
            let infinity = T::of(f64::INFINITY).with_sign_of(b);
            a.div(if large { infinity } else { b }, direction)
        }
        MIN => extremum(a, b, false, false),
        MAX => extremum(a, b, true, false),
        MIN_NAN => extremum(a, b, false, true),
        MAX_NAN => extremum(a, b, true, true),
        MIN_XORSIGN | MAX_XORSIGN | MIN_XORSIGN_NAN | MAX_XORSIGN_NAN => {
            let sign = if a.is_negative() != b.is_negative() {
                T::of(-1.0)
            } else {
                T::of(1.0)
            };
            let greater = matches!(OPERATION, MAX_XORSIGN | MAX_XORSIGN_NAN);
            let nan_wins = matches!(OPERATION, MIN_XORSIGN_NAN | MAX_XORSIGN_NAN);
            let result = extremum(a.abs(), b.abs(), greater, nan_wins);
            if result.is_nan() {
                result
            } else {
                result.with_sign_of(sign)
            }
        }
        // `copysign.f32 d, a, b`: the sign of a, the rest of b.
        _ => b.with_sign_of(a),
    }
}

/// `slots = [d, a, b, c]`: `a * b + c`
struct Three<T, const OPERATION: u8, const AROUND: u8>(PhantomData<T>);
impl<T: Float, const OPERATION: u8, const AROUND: u8> VectorHandler
    for Three<T, OPERATION, AROUND>
{
    #[inline(always)]
    unsafe fn run<const LANES: usize>(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, c, ..] = inst.slots;
        let (around, direction) = manner(AROUND, inst.immediate);
        // SAFETY: the decoder laid out four registers of the type.
        unsafe {
            store_lanes!(core, T, d, LANES, |lane| {
                let a = input::<T>(core.lane(a, lane), around);
                let b = input::<T>(core.lane(b, lane), around);
                let c = input::<T>(core.lane(c, lane), around);
                output(a.fma(b, c, direction), around)
            });
        }
        Flow::Next
    }
}

/// `slots = [d, a]`
struct One<T, const OPERATION: u8, const AROUND: u8>(PhantomData<T>);
impl<T: Float, const OPERATION: u8, const AROUND: u8> VectorHandler for One<T, OPERATION, AROUND> {
    #[inline(always)]
    unsafe fn run<const LANES: usize>(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, ..] = inst.slots;
        let (around, direction) = manner(AROUND, inst.immediate);
        // SAFETY: the decoder laid out two registers of the type.
        unsafe {
            store_lanes!(core, T, d, LANES, |lane| {
                let a = input::<T>(core.lane(a, lane), around);
                output(one::<T, OPERATION>(a, direction), around)
            });
        }
        Flow::Next
    }
}

#[inline(always)]
fn one<T: Float, const OPERATION: u8>(a: T, direction: Direction) -> T {
    let exact = a.exact();
    match OPERATION {
        ABS => a.abs(),
        NEG => a.neg(),
        SQRT => a.sqrt(direction),
        RCP => T::of(1.0).div(a, direction),
        RSQRT => T::of(1.0 / exact.sqrt()),
        SIN => T::of(exact.sin()),
        COS => T::of(exact.cos()),
        LG2 => T::of(exact.log2()),
        EX2 => T::of(exact.exp2()),
        _ => T::of(exact.tanh()),
    }
}

/// Handlers of an operation: compiled for what is common, at run time for the rest.
macro_rules! of_float {
    ($ty:expr, $manner:expr, $function:ident<$operation:ident>) => {
        match ($ty, $manner) {
            (Type::F32, 0) => vector_handler::<$function<f32, $operation, 0>>(),
            (Type::F32, 1) => vector_handler::<$function<f32, $operation, FTZ>>(),
            (Type::F32, _) => handler::<$function<f32, $operation, RUNTIME>>(),
            (_, 0) => vector_handler::<$function<f64, $operation, 0>>(),
            (_, _) => handler::<$function<f64, $operation, RUNTIME>>(),
        }
    };
}

/// The same where everything is decided at run time, for what is slow anyway.
macro_rules! rarely {
    ($ty:expr, $function:ident<$operation:ident>) => {
        match $ty {
            Type::F32 => handler::<$function<f32, $operation, RUNTIME>>(),
            _ => handler::<$function<f64, $operation, RUNTIME>>(),
        }
    };
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let opcode = form.opcode;
    if opcode == "testp" {
        return super::compare::decode_test(form, builder);
    }
    let ftz = form.take("ftz");
    let sat = form.take("sat");
    let full = form.take("full");
    let approximate = form.take("approx") | full;
    let nan = form.take("NaN");
    let xorsign = form.take("xorsign") & form.take("abs");
    let direction = form.take_any(&["rn", "rz", "rm", "rp"]);
    let ty = form.take_type()?;
    form.done()?;
    builder.class = if ty == Type::F64 {
        Class::Double
    } else {
        Class::Float
    };
    let refuse = || Err(Refusal::new("unsupported combination of modifiers"));
    let double = ty == Type::F64;
    if (sat || nan || xorsign) && double || ftz && double && !matches!(opcode, "rcp" | "rsqrt") {
        return refuse();
    }
    if (nan || xorsign) && !matches!(opcode, "min" | "max") {
        return refuse();
    }
    let code = match direction {
        Some("rz") => 1u64,
        Some("rm") => 2,
        Some("rp") => 3,
        _ => 0,
    };
    let around = u8::from(ftz) * FTZ + u8::from(sat) * SAT;
    let manner = u64::from(around) | code << 8;
    let (run, sources): (Run, usize) = match opcode {
        "add" => (of_float!(ty, manner, Two<ADD>), 2),
        "sub" => (of_float!(ty, manner, Two<SUB>), 2),
        "mul" => (of_float!(ty, manner, Two<MUL>), 2),
        "fma" | "mad" => (of_float!(ty, manner, Three<FMA>), 3),
        "div" if approximate && !full => (of_float!(ty, manner, Two<DIV_APPROX>), 2),
        "div" => (of_float!(ty, manner, Two<DIV>), 2),
        "sqrt" if !double || !approximate => (of_float!(ty, manner, One<SQRT>), 1),
        // Only `.approx.ftz` exists: the low half of the operand is ignored and that of the result zero.
        "rcp" if double && approximate => (handler::<Map1<HighHalf<RCP>>>(), 1),
        "rsqrt" if double && ftz => (handler::<Map1<HighHalf<RSQRT>>>(), 1),
        "rcp" => (of_float!(ty, manner, One<RCP>), 1),
        "rsqrt" if approximate => (rarely!(ty, One<RSQRT>), 1),
        "sin" if approximate && !double => (rarely!(ty, One<SIN>), 1),
        "cos" if approximate && !double => (rarely!(ty, One<COS>), 1),
        "lg2" if approximate && !double => (rarely!(ty, One<LG2>), 1),
        "ex2" if approximate && !double => (rarely!(ty, One<EX2>), 1),
        "tanh" if approximate && !double => (rarely!(ty, One<TANH>), 1),
        "abs" => (of_float!(ty, manner, One<ABS>), 1),
        "neg" => (of_float!(ty, manner, One<NEG>), 1),
        "min" if xorsign && nan => (rarely!(ty, Two<MIN_XORSIGN_NAN>), 2),
        "max" if xorsign && nan => (rarely!(ty, Two<MAX_XORSIGN_NAN>), 2),
        "min" if xorsign => (rarely!(ty, Two<MIN_XORSIGN>), 2),
        "max" if xorsign => (rarely!(ty, Two<MAX_XORSIGN>), 2),
        "min" if nan => (rarely!(ty, Two<MIN_NAN>), 2),
        "max" if nan => (rarely!(ty, Two<MAX_NAN>), 2),
        "min" => (of_float!(ty, manner, Two<MIN>), 2),
        "max" => (of_float!(ty, manner, Two<MAX>), 2),
        "copysign" => (rarely!(ty, Two<COPYSIGN>), 2),
        _ => return refuse(),
    };
    form.expect_operands(sources + 1)?;
    let mut reads = Vec::new();
    for index in 1..=sources {
        reads.push(builder.read(form, index, ty)?);
    }
    let result = builder.write(form, 0, ty)?;
    builder.emit(run, &[result], &reads, manner);
    Ok(())
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`, which work on the high halves.
struct HighHalf<const OPERATION: u8>;
impl<const OPERATION: u8> Function1 for HighHalf<OPERATION> {
    type A = f64;
    type D = f64;
    #[inline(always)]
    fn call(a: f64) -> f64 {
        const HIGH: u64 = 0xffff_ffff_0000_0000;
        let a = f64::from_bits(a.to_bits() & HIGH).flushed();
        let result = if OPERATION == RCP {
            1.0 / a
        } else {
            1.0 / a.sqrt()
        };
        if result.is_nan() {
            return f64::from_bits(<f64 as Float>::nan().to_bits() & HIGH);
        }
        f64::from_bits(result.flushed().to_bits() & HIGH)
    }
}

#[cfg(test)]
mod tests;
