//! Comparisons into predicates and numbers, selections, and the tests of a float's class.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::rounding::Rounded;
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, WARP};
use crate::ptx::ast::{Operand, Type};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Move;
    match form.opcode {
        "setp" => setp(form, builder),
        "set" => set(form, builder),
        "selp" => selp(form, builder),
        _ => slct(form, builder),
    }
}

/// A mask of the lanes whose flag is set (0 or 0xff).
#[inline(always)]
fn mask_of(flags: &[u8; WARP]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8};
        // SAFETY: SSE2 is part of every x86-64; both loads lie in the 32 bytes.
        unsafe {
            let low = _mm_movemask_epi8(_mm_loadu_si128(flags.as_ptr().cast())) as u32;
            let high = _mm_movemask_epi8(_mm_loadu_si128(flags.as_ptr().add(16).cast())) as u32;
            low | high << 16
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        flags
            .iter()
            .rev()
            .fold(0, |mask, flag| mask << 1 | u32::from(*flag & 1))
    }
}

/// Bits of each lane that a condition holds for.
///
/// # Safety
/// `condition` only reads the lane with its own number.
#[inline(always)]
fn lanes_where(condition: impl Fn(usize) -> bool) -> u32 {
    let mut flags = [0u8; WARP];
    for (lane, flag) in flags.iter_mut().enumerate() {
        *flag = if condition(lane) { 0xff } else { 0 };
    }
    mask_of(&flags)
}

const EQ: u8 = 0;
const NE: u8 = 1;
const LT: u8 = 2;
const LE: u8 = 3;
const GT: u8 = 4;
const GE: u8 = 5;
/// Added to the above: true if an operand is NaN.
const UNORDERED: u8 = 8;
const NUM: u8 = 16;
const NAN: u8 = 17;

/// Values that are compared.
trait Compared: Lane {
    fn holds<const COMPARISON: u8>(self, other: Self) -> bool;
}

macro_rules! compared {
    ($($ty:ident: $is_nan:expr;)*) => {$(
        impl Compared for $ty {
            #[inline(always)]
            fn holds<const COMPARISON: u8>(self, other: $ty) -> bool {
                let is_nan: fn($ty) -> bool = $is_nan;
                let unordered = is_nan(self) || is_nan(other);
                match COMPARISON {
                    NUM => return !unordered,
                    NAN => return unordered,
                    _ => {}
                }
                let ordered = match COMPARISON & !UNORDERED {
                    EQ => self == other,
                    NE => self != other && !unordered,
                    LT => self < other,
                    LE => self <= other,
                    GT => self > other,
                    _ => self >= other,
                };
                ordered || COMPARISON & UNORDERED != 0 && unordered
            }
        }
    )*};
}

compared! {
    u16: |_| false;
    i16: |_| false;
    u32: |_| false;
    i32: |_| false;
    u64: |_| false;
    i64: |_| false;
    f32: f32::is_nan;
    f64: f64::is_nan;
    f16: f16::is_nan;
    bf16: bf16::is_nan;
}

/// A float whose subnormals count as zero.
#[derive(Clone, Copy)]
struct Flushed<T>(T);
impl<T: Lane + Rounded> Lane for Flushed<T> {
    type Raw = T::Raw;
    #[inline(always)]
    fn from_raw(raw: T::Raw) -> Self {
        Flushed(T::from_raw(raw).flushed())
    }
    #[inline(always)]
    fn to_raw(self) -> T::Raw {
        self.0.to_raw()
    }
}
impl<T: Compared + Rounded> Compared for Flushed<T> {
    #[inline(always)]
    fn holds<const COMPARISON: u8>(self, other: Self) -> bool {
        self.0.holds::<COMPARISON>(other.0)
    }
}

/// What a comparison makes of its truth, as a type that the table below is generic over.
trait Target {
    fn run<T: Compared, const COMPARISON: u8>() -> Run;
    fn run_pair<T: Compared<Raw = u32>, const COMPARISON: u8>() -> Option<Run>;
}

/// The handler for a comparison's name and type.
fn choose<S: Target>(name: &str, ty: Type, ftz: bool) -> Result<Run, Refusal> {
    fn typed<S: Target, const COMPARISON: u8>(
        ty: Type,
        ftz: bool,
        float_only: bool,
    ) -> Option<Run> {
        Some(match (ty, ftz) {
            (Type::F32, false) => S::run::<f32, COMPARISON>(),
            (Type::F32, true) => S::run::<Flushed<f32>, COMPARISON>(),
            (Type::F64, false) => S::run::<f64, COMPARISON>(),
            (Type::F16, false) => S::run::<f16, COMPARISON>(),
            (Type::F16, true) => S::run::<Flushed<f16>, COMPARISON>(),
            (Type::BF16, false) => S::run::<bf16, COMPARISON>(),
            (Type::F16x2, false) => S::run_pair::<f16, COMPARISON>()?,
            (Type::F16x2, true) => S::run_pair::<Flushed<f16>, COMPARISON>()?,
            (Type::BF16x2, false) => S::run_pair::<bf16, COMPARISON>()?,
            _ if float_only || ftz => return None,
            (Type::U16 | Type::B16, _) => S::run::<u16, COMPARISON>(),
            (Type::S16, _) => S::run::<i16, COMPARISON>(),
            (Type::U32 | Type::B32, _) => S::run::<u32, COMPARISON>(),
            (Type::S32, _) => S::run::<i32, COMPARISON>(),
            (Type::U64 | Type::B64, _) => S::run::<u64, COMPARISON>(),
            (Type::S64, _) => S::run::<i64, COMPARISON>(),
            _ => return None,
        })
    }
    let run = match name {
        "eq" => typed::<S, { EQ }>(ty, ftz, false),
        "ne" => typed::<S, { NE }>(ty, ftz, false),
        "lt" | "lo" => typed::<S, { LT }>(ty, ftz, false),
        "le" | "ls" => typed::<S, { LE }>(ty, ftz, false),
        "gt" | "hi" => typed::<S, { GT }>(ty, ftz, false),
        "ge" | "hs" => typed::<S, { GE }>(ty, ftz, false),
        "equ" => typed::<S, { EQ | UNORDERED }>(ty, ftz, true),
        "neu" => typed::<S, { NE | UNORDERED }>(ty, ftz, true),
        "ltu" => typed::<S, { LT | UNORDERED }>(ty, ftz, true),
        "leu" => typed::<S, { LE | UNORDERED }>(ty, ftz, true),
        "gtu" => typed::<S, { GT | UNORDERED }>(ty, ftz, true),
        "geu" => typed::<S, { GE | UNORDERED }>(ty, ftz, true),
        "num" => typed::<S, { NUM }>(ty, ftz, true),
        _ => typed::<S, { NAN }>(ty, ftz, true),
    };
    run.ok_or_else(|| Refusal::new(format!("the comparison {name} of {ty:?} is not supported")))
}

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

/// What a comparison is combined with.
const ALONE: u64 = 0;
const WITH_AND: u64 = 1;
const WITH_OR: u64 = 2;
const WITH_XOR: u64 = 3;

#[inline(always)]
fn combined(bits: u32, with: u32, how: u64) -> u32 {
    match how {
        ALONE => bits,
        WITH_AND => bits & with,
        WITH_OR => bits | with,
        _ => bits ^ with,
    }
}

struct ToPredicate;
impl Target for ToPredicate {
    fn run<T: Compared, const COMPARISON: u8>() -> Run {
        handler::<SetPredicate<T, COMPARISON>>()
    }
    fn run_pair<T: Compared<Raw = u32>, const COMPARISON: u8>() -> Option<Run> {
        Some(handler::<SetPredicates<T, COMPARISON>>())
    }
}

/// `slots = [p, q, c, a, b]`: p is the truth, q its opposite, each combined with c as the immediate says.
struct SetPredicate<T, const COMPARISON: u8>(PhantomData<T>);
impl<T: Compared, const COMPARISON: u8> Handler for SetPredicate<T, COMPARISON> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [p, q, c, a, b, _] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let (a, b) = (core.read::<T>(a), core.read::<T>(b));
            let bits =
                lanes_where(|lane| T::from_raw(a[lane]).holds::<COMPARISON>(T::from_raw(b[lane])));
            let with = core.predicate(c);
            core.set_predicate(p, combined(bits, with, inst.immediate));
            if q != p {
                core.set_predicate(q, combined(!bits, with, inst.immediate));
            }
        }
        Flow::Next
    }
}

/// `slots = [p, q, c, a, b]`: p is the truth of the low halves, q that of the high ones.
struct SetPredicates<T, const COMPARISON: u8>(PhantomData<T>);
impl<T: Compared<Raw = u32>, const COMPARISON: u8> Handler for SetPredicates<T, COMPARISON> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [p, q, c, a, b, _] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let (a, b) = (core.read::<u32>(a), core.read::<u32>(b));
            let low = lanes_where(|lane| {
                T::from_raw(a[lane] & 0xffff).holds::<COMPARISON>(T::from_raw(b[lane] & 0xffff))
            });
            let high = lanes_where(|lane| {
                T::from_raw(a[lane] >> 16).holds::<COMPARISON>(T::from_raw(b[lane] >> 16))
            });
            let with = core.predicate(c);
            core.set_predicate(p, combined(low, with, inst.immediate));
            core.set_predicate(q, combined(high, with, inst.immediate));
        }
        Flow::Next
    }
}

/// Takes out the comparison and what it is combined with.
fn take_comparison(form: &mut Form<'_>) -> Result<(&'static str, u64), Refusal> {
    let name = form
        .take_any(&COMPARISONS)
        .ok_or_else(|| Refusal::new("the instruction names no comparison"))?;
    let how = match form.take_any(&["and", "or", "xor"]) {
        Some("and") => WITH_AND,
        Some("or") => WITH_OR,
        Some(_) => WITH_XOR,
        None => ALONE,
    };
    Ok((name, how))
}

/// The predicate that a comparison is combined with.
fn combination(form: &Form<'_>, builder: &mut Builder<'_>, how: u64) -> Result<Value, Refusal> {
    form.expect_operands(if how == ALONE { 3 } else { 4 })?;
    if how == ALONE {
        Ok(builder.constant(Kind::Predicate, 0))
    } else {
        builder.read(form, 3, Type::Pred)
    }
}

fn setp(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let (name, how) = take_comparison(form)?;
    let ftz = form.take("ftz");
    let ty = form.take_type()?;
    form.done()?;
    let with = combination(form, builder, how)?;
    let (a, b) = (builder.read(form, 1, ty)?, builder.read(form, 2, ty)?);
    let (p, q) = match &form.operands[0] {
        Operand::Pair(pair) => (
            builder.destination(&pair.0, Type::Pred)?,
            builder.destination(&pair.1, Type::Pred)?,
        ),
        single if matches!(ty, Type::F16x2 | Type::BF16x2) => (
            builder.destination(single, Type::Pred)?,
            builder.temporary(Kind::Predicate),
        ),
        single => {
            let p = builder.destination(single, Type::Pred)?;
            (p, p)
        }
    };
    let run = choose::<ToPredicate>(name, ty, ftz)?;
    builder.emit(run, &[p, q], &[with, a, b], how);
    Ok(())
}

/// What `set` writes for true.
const ALL_ONES: u8 = 0;
const SINGLE_ONE: u8 = 1;
const HALF_ONE: u8 = 2;
const BFLOAT_ONE: u8 = 3;

struct ToNumber<const ONE: u8>;
impl<const ONE: u8> Target for ToNumber<ONE> {
    fn run<T: Compared, const COMPARISON: u8>() -> Run {
        handler::<Set<T, COMPARISON, ONE>>()
    }
    fn run_pair<T: Compared<Raw = u32>, const COMPARISON: u8>() -> Option<Run> {
        Some(handler::<SetPair<T, COMPARISON, ONE>>())
    }
}

/// `slots = [d, c, a, b]`
struct Set<T, const COMPARISON: u8, const ONE: u8>(PhantomData<T>);
impl<T: Compared, const COMPARISON: u8, const ONE: u8> Handler for Set<T, COMPARISON, ONE> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, c, a, b, ..] = inst.slots;
        let one = [u32::MAX, 0x3f80_0000, 0x3c00, 0x3f80][ONE as usize];
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let with = core.predicate(c);
            let bits = lanes_where(|lane| {
                core.lane::<T>(a, lane)
                    .holds::<COMPARISON>(core.lane::<T>(b, lane))
            });
            let bits = combined(bits, with, inst.immediate);
            core.store_lanes::<u32>(d, |lane| if bits >> lane & 1 != 0 { one } else { 0 });
        }
        Flow::Next
    }
}

/// `slots = [d, c, a, b]`, each half by itself.
struct SetPair<T, const COMPARISON: u8, const ONE: u8>(PhantomData<T>);
impl<T: Compared<Raw = u32>, const COMPARISON: u8, const ONE: u8> Handler
    for SetPair<T, COMPARISON, ONE>
{
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, c, a, b, ..] = inst.slots;
        let one = [0xffff, 0, 0x3c00, 0x3f80][ONE as usize];
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let with = core.predicate(c);
            core.store_lanes::<u32>(d, |lane| {
                let (a, b): (u32, u32) = (core.lane(a, lane), core.lane(b, lane));
                let with = with >> lane & 1;
                let low = T::from_raw(a & 0xffff).holds::<COMPARISON>(T::from_raw(b & 0xffff));
                let high = T::from_raw(a >> 16).holds::<COMPARISON>(T::from_raw(b >> 16));
                let value = |truth| one * (combined(u32::from(truth), with, inst.immediate) & 1);
                value(low) | value(high) << 16
            });
        }
        Flow::Next
    }
}

fn set(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let (name, how) = take_comparison(form)?;
    let ftz = form.take("ftz");
    let result_type = form.take_type()?;
    let ty = form.take_type()?;
    form.done()?;
    let with = combination(form, builder, how)?;
    let (a, b) = (builder.read(form, 1, ty)?, builder.read(form, 2, ty)?);
    let result = builder.write(form, 0, result_type)?;
    let run = match result_type {
        Type::U32 | Type::S32 | Type::U16 | Type::S16 => {
            choose::<ToNumber<{ ALL_ONES }>>(name, ty, ftz)?
        }
        Type::F32 => choose::<ToNumber<{ SINGLE_ONE }>>(name, ty, ftz)?,
        Type::F16 | Type::F16x2 => choose::<ToNumber<{ HALF_ONE }>>(name, ty, ftz)?,
        Type::BF16 | Type::BF16x2 => choose::<ToNumber<{ BFLOAT_ONE }>>(name, ty, ftz)?,
        other => {
            return Err(Refusal::new(format!(
                "a result of {other:?} is not supported"
            )));
        }
    };
    builder.emit(run, &[result], &[with, a, b], how);
    Ok(())
}

fn selp(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let ty = form.take_type()?;
    form.done()?;
    form.expect_operands(4)?;
    let reads = [
        builder.read(form, 1, ty)?,
        builder.read(form, 2, ty)?,
        builder.read(form, 3, Type::Pred)?,
    ];
    let result = builder.write(form, 0, ty)?;
    let run = match Kind::of(ty) {
        Kind::Word => handler::<Select<u32>>(),
        Kind::Long => handler::<Select<u64>>(),
        Kind::Predicate => return Err(Refusal::new("predicates cannot be selected")),
    };
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

/// `slots = [d, a, b, p]`
struct Select<T>(PhantomData<T>);
impl<T: Lane> Handler for Select<T> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, p, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let choice = core.predicate(p);
            core.store_lanes::<T>(d, |lane| {
                let (a, b) = (core.lane::<T>(a, lane), core.lane::<T>(b, lane));
                if choice >> lane & 1 != 0 { a } else { b }
            });
        }
        Flow::Next
    }
}

fn slct(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let ftz = form.take("ftz");
    let ty = form.take_type()?;
    let condition = form.take_type()?;
    form.done()?;
    form.expect_operands(4)?;
    let reads = [
        builder.read(form, 1, ty)?,
        builder.read(form, 2, ty)?,
        builder.read(form, 3, condition)?,
    ];
    let result = builder.write(form, 0, ty)?;
    let run = match (Kind::of(ty), condition, ftz) {
        (Kind::Word, Type::S32, false) => handler::<SelectBySign<u32, i32>>(),
        (Kind::Long, Type::S32, false) => handler::<SelectBySign<u64, i32>>(),
        (Kind::Word, Type::F32, false) => handler::<SelectBySign<u32, f32>>(),
        (Kind::Long, Type::F32, false) => handler::<SelectBySign<u64, f32>>(),
        (Kind::Word, Type::F32, true) => handler::<SelectBySign<u32, Flushed<f32>>>(),
        (Kind::Long, Type::F32, true) => handler::<SelectBySign<u64, Flushed<f32>>>(),
        _ => return Err(Refusal::new("unsupported combination of modifiers")),
    };
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

/// `slots = [d, a, b, c]`: a if c is at least zero.
struct SelectBySign<T, C>(PhantomData<(T, C)>);
impl<T: Lane, C: Compared<Raw = u32>> Handler for SelectBySign<T, C> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, c, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            core.store_lanes::<T>(d, |lane| {
                let (a, b) = (core.lane::<T>(a, lane), core.lane::<T>(b, lane));
                if core.lane::<C>(c, lane).holds::<{ GE }>(C::from_raw(0)) {
                    a
                } else {
                    b
                }
            });
        }
        Flow::Next
    }
}

/// `testp`: the class of a float.
pub(super) fn decode_test(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Move;
    let names = [
        "finite",
        "infinite",
        "number",
        "notanumber",
        "normal",
        "subnormal",
    ];
    let name = form
        .take_any(&names)
        .ok_or_else(|| Refusal::new("testp names no class that is known"))?;
    let which = names.iter().position(|other| *other == name).unwrap_or(0) as u64;
    let ty = form.take_type()?;
    form.done()?;
    form.expect_operands(2)?;
    let value = builder.read(form, 1, ty)?;
    let result = builder.write(form, 0, Type::Pred)?;
    let run = if ty == Type::F64 {
        handler::<Test<f64>>()
    } else {
        handler::<Test<f32>>()
    };
    builder.emit(run, &[result], &[value], which);
    Ok(())
}

/// `slots = [p, a]`; the immediate is the class.
struct Test<T>(PhantomData<T>);
impl<T: Lane + Rounded> Handler for Test<T> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let bits = lanes_where(|lane| {
                let value = core.lane::<T>(inst.slots[1], lane);
                let exact = value.exact();
                let subnormal = exact != 0.0 && value.flushed().exact() == 0.0;
                match inst.immediate {
                    0 => exact.is_finite(),
                    1 => exact.is_infinite(),
                    2 => !exact.is_nan(),
                    3 => exact.is_nan(),
                    4 => exact.is_finite() && exact != 0.0 && !subnormal,
                    _ => subnormal,
                }
            });
            core.set_predicate(inst.slots[0], bits);
        }
        Flow::Next
    }
}

#[cfg(test)]
mod tests;
