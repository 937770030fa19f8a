//! Conversions between all number types, in every rounding; packed conversions of two floats.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::rounding::{Direction, Rounded, to_odd};
use crate::decode::{Builder, Form, Kind, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler, plain_handler};
use crate::exec::lanes::{Function1, Function2, Function3, Lane, Map1, Map2, Map3, lanes_of};
use crate::ptx::ast::Type;

/// What a conversion is asked for besides its types, packed into the immediate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options {
    /// The rounding: a code of [`Direction`].
    direction: u8,
    /// Whether the result is a whole number.
    integral: bool,
    /// Whether the result is clamped: to its range, or floats to 0..1.
    saturate: bool,
    /// Whether subnormals of f32 are zero.
    flush: bool,
    /// Whether negative results and NaN become zero and the canonical NaN.
    relu: bool,
    /// Whether the source is f64.
    from_double: bool,
    /// Whether what is too large becomes the largest finite value.
    finite: bool,
}

impl Options {
    fn pack(self) -> u64 {
        u64::from(self.direction)
            | u64::from(self.integral) << 8
            | u64::from(self.saturate) << 9
            | u64::from(self.flush) << 10
            | u64::from(self.relu) << 11
            | u64::from(self.from_double) << 12
            | u64::from(self.finite) << 13
    }

    #[inline(always)]
    fn unpack(packed: u64) -> Options {
        Options {
            direction: packed as u8,
            integral: packed >> 8 & 1 != 0,
            saturate: packed >> 9 & 1 != 0,
            flush: packed >> 10 & 1 != 0,
            relu: packed >> 11 & 1 != 0,
            from_double: packed >> 12 & 1 != 0,
            finite: packed >> 13 & 1 != 0,
        }
    }
}

/// A value on its way: whole numbers exactly, floats as a double (rounded to odd where that lost something).
#[derive(Clone, Copy)]
enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    /// As a double, rounded to odd.
    #[inline(always)]
    fn odd(self) -> f64 {
        match self {
            Number::Real(value) => value,
            Number::Whole(value) => {
                let nearest = value as f64;
                to_odd(nearest, (value - nearest as i128) as f64)
            }
        }
    }
}

/// A type that can be converted from and to.
trait Convertible: Lane {
    fn number(self, options: Options) -> Number;
    fn of(number: Number, options: Options) -> Self;
}

macro_rules! whole {
    ($($ty:ident)*) => {$(
        impl Convertible for $ty {
            #[inline(always)]
            fn number(self, _options: Options) -> Number {
                Number::Whole(self as i128)
            }
            #[inline(always)]
            fn of(number: Number, options: Options) -> $ty {
                match number {
                    Number::Whole(value) if options.saturate => {
                        value.clamp($ty::MIN as i128, $ty::MAX as i128) as $ty
                    }
                    Number::Whole(value) => value as $ty,
                    Number::Real(value) if value.is_nan() => {
                        // PTX: zero, or the sign bit alone where a type of 64 bits takes part.
                        if options.from_double || $ty::BITS == 64 { 1 << ($ty::BITS - 1) } else { 0 }
                    }
                    // `as` clamps to the range, as PTX says of every such conversion.
                    Number::Real(value) => integral(value, Direction::from_code(options.direction)) as $ty,
                }
            }
        }
    )*};
}

whole!(u8 i8 u16 i16 u32 i32 u64 i64);

/// The whole number next to a value in a direction.
#[inline(always)]
fn integral(value: f64, direction: Direction) -> f64 {
    match direction {
        Direction::Nearest => value.round_ties_even(),
        Direction::Zero => value.trunc(),
        Direction::Down => value.floor(),
        Direction::Up => value.ceil(),
        Direction::Away => value.round(),
    }
}

macro_rules! real {
    ($($ty:ident, $flushes:expr, $nan:expr;)*) => {$(
        impl Convertible for $ty {
            #[inline(always)]
            fn number(self, options: Options) -> Number {
                let value = if options.flush && $flushes { self.flushed() } else { self };
                Number::Real(value.exact())
            }
            #[inline(always)]
            fn of(number: Number, options: Options) -> $ty {
                let direction = Direction::from_code(options.direction);
                let odd = number.odd();
                let value = if options.integral {
                    $ty::rounded(integral(odd, direction), Direction::Nearest)
                } else {
                    round_to::<$ty>(number, odd, direction)
                };
                let value = if options.flush && $flushes { value.flushed() } else { value };
                let value = if options.finite && value.is_infinite() {
                    if value.is_sign_negative() { $ty::MIN } else { $ty::MAX }
                } else {
                    value
                };
                let exact = value.exact();
                if options.saturate {
                    // NaN becomes +0, and so does -0.
                    return $ty::rounded(if exact > 0.0 { exact.min(1.0) } else { 0.0 }, Direction::Nearest);
                }
                if options.relu {
                    if exact.is_nan() {
                        return $ty::from_bits($nan);
                    }
                    if exact <= 0.0 {
                        return $ty::from_bits(0);
                    }
                }
                value
            }
        }
    )*};
}

real! {
    f16, false, 0x7fff;
    bf16, false, 0x7fff;
    f32, true, 0x7fff_ffff;
    f64, false, 0x7fff_ffff_ffff_ffff;
}

/// A whole number of more than 53 bits has to be rounded to a double in its direction; everything else is rounded from
/// odd.
#[inline(always)]
fn round_to<T: Rounded + 'static>(number: Number, odd: f64, direction: Direction) -> T {
    if size_of::<T>() < 8 {
        return T::rounded(odd, direction);
    }
    let Number::Whole(value) = number else {
        return T::rounded(odd, direction);
    };
    let nearest = value as f64;
    let beyond = value - nearest as i128;
    let directed = match direction {
        Direction::Down if beyond < 0 => nearest.next_down(),
        Direction::Up if beyond > 0 => nearest.next_up(),
        Direction::Zero if beyond < 0 && value > 0 => nearest.next_down(),
        Direction::Zero if beyond > 0 && value < 0 => nearest.next_up(),
        _ => nearest,
    };
    T::rounded(directed, Direction::Nearest)
}

/// Reads a lane's register as a number.
type FromRegister = fn(u64, Options) -> Number;

/// Makes a lane's register of a number.
type ToRegister = fn(Number, Options) -> u64;

/// How a type is read and made. Any conversion is one of each: what is common has a cast of its own.
fn ways(ty: Type) -> Option<(FromRegister, ToRegister)> {
    fn of<T: Convertible>() -> (FromRegister, ToRegister)
    where
        T::Raw: Register,
    {
        (
            |raw, options| T::from_raw(T::Raw::narrow(raw)).number(options),
            |number, options| T::of(number, options).to_raw().widen(),
        )
    }
    Some(match name(ty)? {
        "u8" => of::<u8>(),
        "i8" => of::<i8>(),
        "u16" => of::<u16>(),
        "i16" => of::<i16>(),
        "u32" => of::<u32>(),
        "i32" => of::<i32>(),
        "u64" => of::<u64>(),
        "i64" => of::<i64>(),
        "f16" => of::<f16>(),
        "bf16" => of::<bf16>(),
        "f32" => of::<f32>(),
        _ => of::<f64>(),
    })
}

/// A register's word.
trait Register {
    fn widen(self) -> u64;
    fn narrow(raw: u64) -> Self;
}

impl Register for u32 {
    fn widen(self) -> u64 {
        u64::from(self)
    }
    fn narrow(raw: u64) -> u32 {
        raw as u32
    }
}

impl Register for u64 {
    fn widen(self) -> u64 {
        self
    }
    fn narrow(raw: u64) -> u64 {
        raw
    }
}

/// The types of a conversion, above the options in the immediate: indices of [`TYPES`].
const TYPES: [Type; 12] = [
    Type::U8,
    Type::S8,
    Type::U16,
    Type::S16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
    Type::F16,
    Type::BF16,
    Type::F32,
    Type::F64,
];

/// The number of a type in [`TYPES`].
fn number_of(ty: Type) -> Option<u64> {
    let ty = match ty {
        Type::B8 => Type::U8,
        Type::B16 => Type::U16,
        Type::B32 => Type::U32,
        Type::B64 => Type::U64,
        other => other,
    };
    TYPES
        .iter()
        .position(|other| *other == ty)
        .map(|index| index as u64)
}

/// `slots = [d, a]`; the immediate is the options and the types.
struct Convert<S, D>(PhantomData<(S, D)>);
impl<S: Lane<Raw: Register>, D: Lane<Raw: Register>> Handler for Convert<S, D> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, ..] = inst.slots;
        let options = Options::unpack(inst.immediate);
        let of = |shift: u32| {
            TYPES
                .get((inst.immediate >> shift & 0xff) as usize)
                .and_then(|ty| ways(*ty))
        };
        let (Some((read, _)), Some((_, make))) = (of(16), of(24)) else {
            return core.fail(
                inst,
                0,
                crate::fault::FaultKind::IllegalInstruction,
                "unknown types".to_string(),
            );
        };
        for lane in lanes_of(core.mask) {
            // SAFETY: the decoder laid the slots out by the types' widths.
            unsafe {
                let raw: S = core.lane(a, lane);
                let made = make(read(raw.to_raw().widen(), options), options);
                core.set_lane(d, lane, D::from_raw(D::Raw::narrow(made)));
            }
        }
        Flow::Next
    }
}

/// A conversion that a cast of the host does as it is.
struct Cast<S, D>(PhantomData<(S, D)>);
macro_rules! casts {
    ($($from:ident => $($to:ident)*;)*) => {
        $($(
            impl Function1 for Cast<$from, $to> {
                type A = $from;
                type D = $to;
                #[inline(always)]
                fn call(a: $from) -> $to {
                    a as $to
                }
            }
        )*)*
        /// The cast from one type to another, for those worth having apart.
        fn cast(from: Type, to: Type) -> Option<Run> {
            let (from, to) = (name(from)?, name(to)?);
            $($(
                if (from, to) == (stringify!($from), stringify!($to)) {
                    return Some(handler::<Map1<Cast<$from, $to>>>());
                }
            )*)*
            None
        }
    };
}

casts! {
    u8 => u16 i16 u32 i32 u64 i64;
    i8 => u16 i16 u32 i32 u64 i64;
    u16 => u8 i8 u32 i32 u64 i64;
    i16 => u8 i8 u32 i32 u64 i64;
    u32 => u8 i8 u16 i16 i32 u64 i64;
    i32 => u8 i8 u16 i16 u32 u64 i64 f64;
    u64 => u8 i8 u16 i16 u32 i32 i64;
    i64 => u8 i8 u16 i16 u32 i32 u64;
    f32 => f64;
}

/// The Rust type of a PTX type.
fn name(ty: Type) -> Option<&'static str> {
    Some(match ty {
        Type::U8 | Type::B8 => "u8",
        Type::S8 => "i8",
        Type::U16 | Type::B16 => "u16",
        Type::S16 => "i16",
        Type::U32 | Type::B32 => "u32",
        Type::S32 => "i32",
        Type::U64 | Type::B64 => "u64",
        Type::S64 => "i64",
        Type::F16 => "f16",
        Type::BF16 => "bf16",
        Type::F32 => "f32",
        Type::F64 => "f64",
        _ => return None,
    })
}

/// The conversion of any types, by the widths of their registers.
fn general(from: Type, to: Type) -> Run {
    match (Kind::of(from), Kind::of(to)) {
        (Kind::Long, Kind::Long) => plain_handler::<Convert<u64, u64>>(),
        (Kind::Long, _) => plain_handler::<Convert<u64, u32>>(),
        (_, Kind::Long) => plain_handler::<Convert<u32, u64>>(),
        _ => plain_handler::<Convert<u32, u32>>(),
    }
}

/// Conversions between floats, and of floats to whole numbers towards zero, that are common enough to be fast.
macro_rules! fast {
    ($($name:ident: $from:ident, $from_type:pat => $to:ident, $to_type:pat, $rounding:pat, $formula:expr;)*) => {
        $(
            struct $name;
            impl Function1 for $name {
                type A = $from;
                type D = $to;
                #[inline(always)]
                fn call(a: $from) -> $to {
                    let formula: fn($from) -> $to = $formula;
                    formula(a)
                }
            }
        )*
        /// The fast conversion, if there is one; only for options of nothing but a rounding.
        fn fast(from: Type, to: Type, rounding: Option<&str>) -> Option<Run> {
            match (from, to, rounding) {
                $(($from_type, $to_type, $rounding) => Some(handler::<Map1<$name>>()),)*
                _ => None,
            }
        }
    };
}

/// NaN as PTX has it.
#[inline(always)]
fn canonical(value: f32) -> f32 {
    if value.is_nan() {
        f32::from_bits(0x7fff_ffff)
    } else {
        value
    }
}

fast! {
    SingleToHalf: f32, Type::F32 => f16, Type::F16, Some("rn"), |a| if a.is_nan() { f16::from_bits(0x7fff) } else { f16::from_f32(a) };
    HalfToSingle: f16, Type::F16 => f32, Type::F32, None, |a| canonical(a.to_f32());
    SingleToBfloat: f32, Type::F32 => bf16, Type::BF16, Some("rn"), |a| if a.is_nan() { bf16::from_bits(0x7fff) } else { bf16::from_f32(a) };
    BfloatToSingle: bf16, Type::BF16 => f32, Type::F32, None, |a| canonical(f32::from_bits(u32::from(a.to_bits()) << 16));
    DoubleToSingle: f64, Type::F64 => f32, Type::F32, Some("rn"), |a| canonical(a as f32);
    SignedToSingle: i32, Type::S32 => f32, Type::F32, Some("rn"), |a| a as f32;
    UnsignedToSingle: u32, Type::U32 => f32, Type::F32, Some("rn"), |a| a as f32;
    SingleToSigned: f32, Type::F32 => i32, Type::S32, Some("rzi"), |a| a as i32;
    SingleToUnsigned: f32, Type::F32 => u32, Type::U32, Some("rzi"), |a| a as u32;
    SingleToWhole: f32, Type::F32 => f32, Type::F32, Some("rni"), |a| canonical(a.round_ties_even());
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Convert;
    if form.take("pack") {
        return pack(form, builder);
    }
    let satfinite = form.take("satfinite");
    let mut options = Options {
        saturate: form.take("sat"),
        flush: form.take("ftz"),
        relu: form.take("relu"),
        ..Options::default()
    };
    let rounding = form.take_any(&["rni", "rzi", "rmi", "rpi", "rna", "rn", "rz", "rm", "rp"]);
    options.direction = match rounding {
        Some("rzi" | "rz") => 1,
        Some("rmi" | "rm") => 2,
        Some("rpi" | "rp") => 3,
        Some("rna") => 4,
        _ => 0,
    };
    options.integral = matches!(rounding, Some("rni" | "rzi" | "rmi" | "rpi"));
    let to = form.take_type()?;
    let from = form.take_type()?;
    form.done()?;
    if matches!(to, Type::F16x2 | Type::BF16x2 | Type::E4M3x2 | Type::E5M2x2) {
        return packed(form, builder, to, from, options, satfinite);
    }
    form.expect_operands(2)?;
    if to == Type::TF32 && from == Type::F32 {
        let value = builder.read(form, 1, from)?;
        let result = builder.write(form, 0, Type::B32)?;
        let run = match (rounding, options.relu, satfinite) {
            (Some("rna"), false, false) => handler::<Map1<ToTf32<{ AWAY }, false, false>>>(),
            (Some("rna"), false, true) => handler::<Map1<ToTf32<{ AWAY }, false, true>>>(),
            (Some("rn"), false, false) => handler::<Map1<ToTf32<{ EVEN }, false, false>>>(),
            (Some("rn"), false, true) => handler::<Map1<ToTf32<{ EVEN }, false, true>>>(),
            (Some("rn"), true, false) => handler::<Map1<ToTf32<{ EVEN }, true, false>>>(),
            (Some("rn"), true, true) => handler::<Map1<ToTf32<{ EVEN }, true, true>>>(),
            (Some("rz"), false, false) => handler::<Map1<ToTf32<{ CUT }, false, false>>>(),
            (Some("rz"), false, true) => handler::<Map1<ToTf32<{ CUT }, false, true>>>(),
            (Some("rz"), true, false) => handler::<Map1<ToTf32<{ CUT }, true, false>>>(),
            (Some("rz"), true, true) => handler::<Map1<ToTf32<{ CUT }, true, true>>>(),
            _ => return Err(Refusal::new("unsupported combination of modifiers")),
        };
        if options.saturate || options.flush {
            return Err(Refusal::new("unsupported combination of modifiers"));
        }
        builder.emit(run, &[result], &[value], 0);
        return Ok(());
    }
    let value = builder.read(form, 1, from)?;
    let result = builder.write(form, 0, to)?;
    options.from_double = from == Type::F64;
    options.finite = satfinite;
    let plain = options == Options::default();
    let only_rounded = !options.saturate && !options.flush && !options.relu && !options.finite;
    let run = plain.then(|| cast(from, to)).flatten();
    let run = run.or_else(|| only_rounded.then(|| fast(from, to, rounding)).flatten());
    let (Some(from_number), Some(to_number)) = (number_of(from), number_of(to)) else {
        return Err(Refusal::new(format!(
            "no conversion from {from:?} to {to:?}"
        )));
    };
    let immediate = options.pack() | from_number << 16 | to_number << 24;
    builder.emit(
        run.unwrap_or_else(|| general(from, to)),
        &[result],
        &[value],
        immediate,
    );
    Ok(())
}

/// Roundings to tf32: to the nearest with ties away from zero or to even, and to zero.
const AWAY: u8 = 0;
const EVEN: u8 = 1;
const CUT: u8 = 2;

/// To 10 bits of fraction.
struct ToTf32<const ROUNDING: u8, const RELU: bool, const FINITE: bool>;
impl<const ROUNDING: u8, const RELU: bool, const FINITE: bool> Function1
    for ToTf32<ROUNDING, RELU, FINITE>
{
    type A = f32;
    type D = u32;
    #[inline(always)]
    fn call(a: f32) -> u32 {
        let bits = a.to_bits();
        if a.is_nan() {
            return 0x7fff_ffff;
        }
        if RELU && a.is_sign_negative() {
            return 0;
        }
        // Infinity stays what it is: its fraction is zero.
        let half = match ROUNDING {
            AWAY => 0x1000,
            EVEN => 0xfff + (bits >> 13 & 1),
            _ => 0,
        };
        let rounded = (bits + half) & !0x1fff;
        if FINITE && rounded & 0x7fff_ffff == 0x7f80_0000 {
            // The largest finite value, of the same sign.
            return rounded - 0x2000;
        }
        rounded
    }
}

/// `cvt.pack.sat.{u16,s16}.s32` and `cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32`.
fn pack(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    form.take("sat");
    let to = form
        .take_any(&["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
        .ok_or_else(|| Refusal::new("integers are packed to 16, 8, 4 or 2 bits"))?;
    let from = form.take_type()?;
    let narrow = !matches!(to, "u16" | "s16");
    if narrow {
        form.take("b32");
    }
    form.done()?;
    if from != Type::S32 {
        return Err(Refusal::new("only s32 can be packed"));
    }
    form.expect_operands(if narrow { 4 } else { 3 })?;
    let mut reads = vec![builder.read(form, 1, from)?, builder.read(form, 2, from)?];
    if narrow {
        reads.push(builder.read(form, 3, Type::B32)?);
    }
    let result = builder.write(form, 0, Type::B32)?;
    let run = match to {
        "u16" => handler::<Map2<Pack16<0, 0xffff>>>(),
        "s16" => handler::<Map2<Pack16<-0x8000, 0x7fff>>>(),
        "u8" => handler::<Map3<PackLow<8, 0, 0xff>>>(),
        "s8" => handler::<Map3<PackLow<8, -0x80, 0x7f>>>(),
        "u4" => handler::<Map3<PackLow<4, 0, 0xf>>>(),
        "s4" => handler::<Map3<PackLow<4, -8, 7>>>(),
        "u2" => handler::<Map3<PackLow<2, 0, 3>>>(),
        _ => handler::<Map3<PackLow<2, -2, 1>>>(),
    };
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

struct Pack16<const LOW: i32, const HIGH: i32>;
impl<const LOW: i32, const HIGH: i32> Function2 for Pack16<LOW, HIGH> {
    type A = i32;
    type B = i32;
    type D = u32;
    #[inline(always)]
    fn call(a: i32, b: i32) -> u32 {
        (a.clamp(LOW, HIGH) as u32) << 16 | b.clamp(LOW, HIGH) as u32 & 0xffff
    }
}

/// Two small integers below the low bits of a third operand.
struct PackLow<const BITS: u32, const LOW: i32, const HIGH: i32>;
impl<const BITS: u32, const LOW: i32, const HIGH: i32> Function3 for PackLow<BITS, LOW, HIGH> {
    type A = i32;
    type B = i32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: i32, b: i32, c: u32) -> u32 {
        let part = |value: i32| value.clamp(LOW, HIGH) as u32 & ((1 << BITS) - 1);
        c << (2 * BITS) | part(a) << BITS | part(b)
    }
}

/// Conversions whose result is a pair.
fn packed(
    form: &mut Form<'_>,
    builder: &mut Builder<'_>,
    to: Type,
    from: Type,
    mut options: Options,
    satfinite: bool,
) -> Result<(), Refusal> {
    let refuse = || {
        Err(Refusal::new(format!(
            "no conversion from {from:?} to {to:?}"
        )))
    };
    options.finite = satfinite;
    let options = options.pack();
    let (run, sources): (Run, usize) = match (to, from) {
        (Type::F16x2, Type::F32) => (handler::<PackHalves<f16>>(), 2),
        (Type::BF16x2, Type::F32) => (handler::<PackHalves<bf16>>(), 2),
        (Type::E4M3x2, Type::F32) if satfinite => (handler::<PackBytes<{ E4M3 }>>(), 2),
        (Type::E5M2x2, Type::F32) if satfinite => (handler::<PackBytes<{ E5M2 }>>(), 2),
        (Type::E4M3x2, Type::F16x2) if satfinite => (handler::<HalvesToBytes<{ E4M3 }>>(), 1),
        (Type::E5M2x2, Type::F16x2) if satfinite => (handler::<HalvesToBytes<{ E5M2 }>>(), 1),
        (Type::F16x2, Type::E4M3x2) => (handler::<BytesToHalves<{ E4M3 }>>(), 1),
        (Type::F16x2, Type::E5M2x2) => (handler::<BytesToHalves<{ E5M2 }>>(), 1),
        _ => return refuse(),
    };
    form.expect_operands(sources + 1)?;
    let mut reads = Vec::new();
    for index in 1..=sources {
        reads.push(builder.read(form, index, from)?);
    }
    let result = builder.write(form, 0, to)?;
    debug_assert_eq!(Kind::of(to), Kind::Word);
    builder.emit(run, &[result], &reads, options);
    Ok(())
}

/// `slots = [d, a, b]`: a in the high half, b in the low one.
struct PackHalves<T>(PhantomData<T>);
impl<T: Convertible<Raw = u32>> Handler for PackHalves<T> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, ..] = inst.slots;
        let options = Options::unpack(inst.immediate);
        // SAFETY: the decoder laid out words.
        unsafe {
            core.store_lanes::<u32>(d, |lane| {
                let half =
                    |slot| T::of(core.lane::<f32>(slot, lane).number(options), options).to_raw();
                half(a) << 16 | half(b)
            });
        }
        Flow::Next
    }
}

const E4M3: u8 = 0;
const E5M2: u8 = 1;

/// An 8-bit float of a double, to the nearest; what is too large becomes the largest finite value.
#[inline(always)]
fn to_byte<const FORMAT: u8>(value: f64, relu: bool) -> u32 {
    let (fraction, lowest, largest, nan): (i32, i32, f64, u32) = if FORMAT == E4M3 {
        (3, -6, 448.0, 0x7f)
    } else {
        (2, -14, 57344.0, 0x7f)
    };
    if value.is_nan() {
        return nan;
    }
    if relu && value <= 0.0 {
        return 0;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs().min(largest);
    if magnitude == 0.0 {
        return sign;
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(lowest);
    // In units of the last bit the value is a small number, rounded to even.
    let units = (magnitude * f64::from_bits(((1023 + fraction - exponent) as u64) << 52))
        .round_ties_even() as u32;
    let implicit = 1 << fraction;
    sign + ((exponent - lowest) as u32) * implicit + units
}

/// The value of an 8-bit float.
#[inline(always)]
fn from_byte<const FORMAT: u8>(byte: u32) -> f16 {
    if FORMAT == E5M2 {
        let bits = (byte << 8) as u16;
        return f16::from_bits(if bits & 0x7fff > 0x7c00 { 0x7fff } else { bits });
    }
    if byte & 0x7f == 0x7f {
        return f16::from_bits(0x7fff);
    }
    let (exponent, fraction) = ((byte >> 3 & 0xf) as i32, f64::from(byte & 7));
    let magnitude = match exponent {
        0 => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * f64::from_bits(((1023 + exponent - 7) as u64) << 52),
    };
    f16::from_f64(if byte & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    })
}

/// `slots = [d, a, b]`: two f32 to two 8-bit floats.
struct PackBytes<const FORMAT: u8>;
impl<const FORMAT: u8> Handler for PackBytes<FORMAT> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, ..] = inst.slots;
        let relu = Options::unpack(inst.immediate).relu;
        // SAFETY: the decoder laid out words.
        unsafe {
            core.store_lanes::<u32>(d, |lane| {
                let byte = |slot| to_byte::<FORMAT>(f64::from(core.lane::<f32>(slot, lane)), relu);
                byte(a) << 8 | byte(b)
            });
        }
        Flow::Next
    }
}

/// `slots = [d, a]`: a pair of f16 to two 8-bit floats.
struct HalvesToBytes<const FORMAT: u8>;
impl<const FORMAT: u8> Handler for HalvesToBytes<FORMAT> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, ..] = inst.slots;
        let relu = Options::unpack(inst.immediate).relu;
        // SAFETY: the decoder laid out words.
        unsafe {
            core.store_lanes::<u32>(d, |lane| {
                let pair: u32 = core.lane(a, lane);
                let byte = |bits: u32| to_byte::<FORMAT>(f16::from_bits(bits as u16).exact(), relu);
                byte(pair >> 16) << 8 | byte(pair)
            });
        }
        Flow::Next
    }
}

/// `slots = [d, a]`: two 8-bit floats to a pair of f16.
struct BytesToHalves<const FORMAT: u8>;
impl<const FORMAT: u8> Handler for BytesToHalves<FORMAT> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, ..] = inst.slots;
        let relu = Options::unpack(inst.immediate).relu;
        // SAFETY: the decoder laid out words.
        unsafe {
            core.store_lanes::<u32>(d, |lane| {
                let pair: u32 = core.lane(a, lane);
                let half = |byte: u32| {
                    let value = from_byte::<FORMAT>(byte & 0xff);
                    let bits = u32::from(value.to_bits());
                    if relu && !value.is_nan() && bits & 0x8000 != 0 {
                        0
                    } else {
                        bits
                    }
                };
                half(pair >> 8) << 16 | half(pair)
            });
        }
        Flow::Next
    }
}

#[cfg(test)]
mod tests;
