//! f16 and bf16 arithmetic, of one value or of both halves of a word: each result is the exact one, rounded once.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::float::extremum_of;
use super::rounding::{Direction, Rounded, odd_sum};
use crate::decode::{Builder, Form, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, Pair, store_lanes};
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
const MIN_XORSIGN_NAN: u8 = 14;
const MAX_XORSIGN_NAN: u8 = 15;
const FMA: u8 = 9;
const ABS: u8 = 20;
const NEG: u8 = 21;
const EX2: u8 = 22;
const TANH: u8 = 23;

const FTZ: u8 = 1;
const SAT: u8 = 2;
const RELU: u8 = 4;

#[inline(always)]
fn input<T: Half>(value: T, around: u8) -> T {
    if around & FTZ != 0 {
        value.flushed()
    } else {
        value
    }
}

#[inline(always)]
fn output<T: Half>(value: T, around: u8) -> T {
    let value = if around & FTZ != 0 {
        value.flushed()
    } else {
        value
    };
    let exact = value.exact();
    if around & RELU != 0 && !exact.is_nan() && (exact < 0.0 || value.bits() == 0x8000) {
        return T::of_bits(0);
    }
    if around & RELU != 0 && exact.is_nan() {
        return T::of_bits(T::NAN);
    }
    if around & SAT != 0 {
        // NaN becomes +0, and so does -0.
        return T::rounded(
            if exact > 0.0 { exact.min(1.0) } else { 0.0 },
            Direction::Nearest,
        );
    }
    value
}

/// Values of a register: one, or one in each half.
trait Packed: Lane<Raw = u32> {
    type Part: Half;
    fn map1(self, f: impl Fn(Self::Part) -> Self::Part) -> Self;
    fn map2(self, b: Self, f: impl Fn(Self::Part, Self::Part) -> Self::Part) -> Self;
    fn map3(
        self,
        b: Self,
        c: Self,
        f: impl Fn(Self::Part, Self::Part, Self::Part) -> Self::Part,
    ) -> Self;
}

macro_rules! packed {
    ($($ty:ident)*) => {$(
        impl Packed for $ty {
            type Part = $ty;
            #[inline(always)]
            fn map1(self, f: impl Fn($ty) -> $ty) -> $ty {
                f(self)
            }
            #[inline(always)]
            fn map2(self, b: $ty, f: impl Fn($ty, $ty) -> $ty) -> $ty {
                f(self, b)
            }
            #[inline(always)]
            fn map3(self, b: $ty, c: $ty, f: impl Fn($ty, $ty, $ty) -> $ty) -> $ty {
                f(self, b, c)
            }
        }
    )*};
}

packed!(f16 bf16);

impl<T: Half> Packed for Pair<T> {
    type Part = T;
    #[inline(always)]
    fn map1(self, f: impl Fn(T) -> T) -> Self {
        Pair(f(self.0), f(self.1))
    }
    #[inline(always)]
    fn map2(self, b: Self, f: impl Fn(T, T) -> T) -> Self {
        Pair(f(self.0, b.0), f(self.1, b.1))
    }
    #[inline(always)]
    fn map3(self, b: Self, c: Self, f: impl Fn(T, T, T) -> T) -> Self {
        Pair(f(self.0, b.0, c.0), f(self.1, b.1, c.1))
    }
}

#[inline(always)]
fn two<T: Half, const OPERATION: u8>(a: T, b: T, around: u8) -> T {
    let (a, b) = (input(a, around), input(b, around));
    let (x, y) = (a.exact(), b.exact());
    let nearest = |odd| T::rounded(odd, Direction::Nearest);
    let extremum = |greater, nan_wins| {
        if x.is_nan() && (y.is_nan() || nan_wins) || nan_wins && y.is_nan() {
            return T::of_bits(T::NAN);
        }
        if extremum_of(x, y, greater) { a } else { b }
    };
    let result = match OPERATION {
        ADD => nearest(odd_sum(x, y)),
        SUB => nearest(odd_sum(x, -y)),
        MUL => nearest(x * y),
        MIN => extremum(false, false),
        MAX => extremum(true, false),
        MIN_NAN => extremum(false, true),
        MAX_NAN => extremum(true, true),
        _ => {
            let (p, q) = (x.abs(), y.abs());
            let nan_wins = matches!(OPERATION, MIN_XORSIGN_NAN | MAX_XORSIGN_NAN);
            if p.is_nan() && (q.is_nan() || nan_wins) || nan_wins && q.is_nan() {
                T::of_bits(T::NAN)
            } else {
                let greater = matches!(OPERATION, MAX_XORSIGN | MAX_XORSIGN_NAN);
                let magnitude = if extremum_of(p, q, greater) { a } else { b };
                T::of_bits(magnitude.bits() & 0x7fff | (a.bits() ^ b.bits()) & 0x8000)
            }
        }
    };
    output(result, around)
}

#[inline(always)]
fn one<T: Half, const OPERATION: u8>(a: T, around: u8) -> T {
    let a = input(a, around);
    let result = match OPERATION {
        ABS => T::of_bits(a.bits() & 0x7fff),
        NEG => T::of_bits(a.bits() ^ 0x8000),
        EX2 => T::rounded(a.exact().exp2(), Direction::Nearest),
        _ => T::rounded(a.exact().tanh(), Direction::Nearest),
    };
    output(result, around)
}

/// `slots = [d, a, b, c]`, as many as the operation has; the immediate says what surrounds it.
struct Apply<P, const OPERATION: u8>(PhantomData<P>);
impl<P: Packed, const OPERATION: u8> Handler for Apply<P, OPERATION> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, c, ..] = inst.slots;
        let around = inst.immediate as u8;
        // SAFETY: the decoder laid out as many registers as the operation reads.
        unsafe {
            store_lanes!(core, P, d, |lane| {
                let a: P = core.lane(a, lane);
                match OPERATION {
                    FMA => {
                        let (b, c): (P, P) = (core.lane(b, lane), core.lane(c, lane));
                        a.map3(b, c, |a, b, c| {
                            let (a, b, c) = (input(a, around), input(b, around), input(c, around));
                            // The product of two 16-bit floats is exact in double.
                            let sum = odd_sum(a.exact() * b.exact(), c.exact());
                            output(P::Part::rounded(sum, Direction::Nearest), around)
                        })
                    }
                    ABS.. => a.map1(|a| one::<P::Part, OPERATION>(a, around)),
                    _ => a.map2(core.lane(b, lane), |a, b| {
                        two::<P::Part, OPERATION>(a, b, around)
                    }),
                }
            });
        }
        Flow::Next
    }
}

macro_rules! of_half {
    ($ty:expr, $operation:ident) => {
        match $ty {
            Type::F16 => handler::<Apply<f16, $operation>>(),
            Type::F16x2 => handler::<Apply<Pair<f16>, $operation>>(),
            Type::BF16 => handler::<Apply<bf16, $operation>>(),
            _ => handler::<Apply<Pair<bf16>, $operation>>(),
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
        "add" => (of_half!(ty, ADD), 2),
        "sub" => (of_half!(ty, SUB), 2),
        "mul" => (of_half!(ty, MUL), 2),
        "fma" => (of_half!(ty, FMA), 3),
        "min" if xorsign && nan => (of_half!(ty, MIN_XORSIGN_NAN), 2),
        "max" if xorsign && nan => (of_half!(ty, MAX_XORSIGN_NAN), 2),
        "min" if xorsign => (of_half!(ty, MIN_XORSIGN), 2),
        "max" if xorsign => (of_half!(ty, MAX_XORSIGN), 2),
        "min" if nan => (of_half!(ty, MIN_NAN), 2),
        "max" if nan => (of_half!(ty, MAX_NAN), 2),
        "min" => (of_half!(ty, MIN), 2),
        "max" => (of_half!(ty, MAX), 2),
        "abs" => (of_half!(ty, ABS), 1),
        "neg" => (of_half!(ty, NEG), 1),
        "ex2" => (of_half!(ty, EX2), 1),
        "tanh" => (of_half!(ty, TANH), 1),
        other => return Err(Refusal::new(format!("{other} of {ty:?} is not supported"))),
    };
    form.expect_operands(sources + 1)?;
    let mut reads = Vec::new();
    for index in 1..=sources {
        reads.push(builder.read(form, index, ty)?);
    }
    let result = builder.write(form, 0, ty)?;
    builder.emit(run, &[result], &reads, u64::from(around));
    Ok(())
}

#[cfg(test)]
mod tests;
