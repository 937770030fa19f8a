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

/// Comparisons that have handlers; the others are their opposites, or have their operands exchanged. With NaN none of
/// them holds.
const EQ: u8 = 0;
const NE: u8 = 1;
const LT: u8 = 2;
const LE: u8 = 3;
const NUM: u8 = 4;

/// A comparison by its name: the handler's, whether the operands are exchanged, and whether the result is inverted.
fn comparison(name: &str, float: bool) -> Option<(u8, bool, bool)> {
    Some(match name {
        "eq" => (EQ, false, false),
        // Not equal, and neither NaN; of integers it is the opposite of equal.
        "ne" if float => (NE, false, false),
        "ne" => (EQ, false, true),
        "lt" | "lo" => (LT, false, false),
        "le" | "ls" => (LE, false, false),
        "gt" | "hi" => (LT, true, false),
        "ge" | "hs" => (LE, true, false),
        _ if !float => return None,
        "equ" => (NE, false, true),
        "neu" => (EQ, false, true),
        "ltu" => (LE, true, true),
        "leu" => (LT, true, true),
        "gtu" => (LE, false, true),
        "geu" => (LT, false, true),
        "num" => (NUM, false, false),
        "nan" => (NUM, false, true),
        _ => return None,
    })
}

/// Values that are compared.
trait Compared: Lane {
    fn holds<const COMPARISON: u8>(self, other: Self) -> bool;
}

macro_rules! compared {
    ($($ty:ident)*) => {$(
        impl Compared for $ty {
            #[inline(always)]
            #[allow(clippy::eq_op, clippy::double_comparisons, reason = "with NaN these are not what they look like")]
            fn holds<const COMPARISON: u8>(self, other: $ty) -> bool {
                match COMPARISON {
                    EQ => self == other,
                    NE => self < other || self > other,
                    LT => self < other,
                    LE => self <= other,
                    _ => self == self && other == other,
                }
            }
        }
    )*};
}

compared!(u16 i16 u32 i32 u64 i64 f32 f64 f16 bf16);

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

/// The handler for a comparison and type.
fn choose(comparison: u8, ty: Type, ftz: bool) -> Option<Run> {
    fn float<T: Compared>(comparison: u8) -> Run {
        match comparison {
            EQ => handler::<SetPredicate<T, EQ>>(),
            NE => handler::<SetPredicate<T, NE>>(),
            LT => handler::<SetPredicate<T, LT>>(),
            LE => handler::<SetPredicate<T, LE>>(),
            _ => handler::<SetPredicate<T, NUM>>(),
        }
    }
    fn pair<T: Compared<Raw = u32>>(comparison: u8) -> Run {
        match comparison {
            EQ => handler::<SetPredicates<T, EQ>>(),
            NE => handler::<SetPredicates<T, NE>>(),
            LT => handler::<SetPredicates<T, LT>>(),
            LE => handler::<SetPredicates<T, LE>>(),
            _ => handler::<SetPredicates<T, NUM>>(),
        }
    }
    fn integer<T: Compared>(comparison: u8) -> Run {
        match comparison {
            EQ => handler::<SetPredicate<T, EQ>>(),
            LT => handler::<SetPredicate<T, LT>>(),
            _ => handler::<SetPredicate<T, LE>>(),
        }
    }
    Some(match (ty, ftz) {
        (Type::F32, false) => float::<f32>(comparison),
        (Type::F32, true) => float::<Flushed<f32>>(comparison),
        (Type::F64, false) => float::<f64>(comparison),
        (Type::F16, false) => float::<f16>(comparison),
        (Type::F16, true) => float::<Flushed<f16>>(comparison),
        (Type::BF16, false) => float::<bf16>(comparison),
        (Type::F16x2, false) => pair::<f16>(comparison),
        (Type::F16x2, true) => pair::<Flushed<f16>>(comparison),
        (Type::BF16x2, false) => pair::<bf16>(comparison),
        (Type::U16 | Type::B16, false) => integer::<u16>(comparison),
        (Type::S16, false) => integer::<i16>(comparison),
        (Type::U32 | Type::B32, false) => integer::<u32>(comparison),
        (Type::S32, false) => integer::<i32>(comparison),
        (Type::U64 | Type::B64, false) => integer::<u64>(comparison),
        (Type::S64, false) => integer::<i64>(comparison),
        _ => return None,
    })
}

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

/// What a comparison is combined with, in the immediate's low bits.
const ALONE: u64 = 0;
const WITH_AND: u64 = 1;
const WITH_OR: u64 = 2;
const WITH_XOR: u64 = 3;
/// Set in the immediate if the comparison's result is inverted.
const INVERTED: u64 = 4;

#[inline(always)]
fn combined(bits: u32, with: u32, how: u64) -> u32 {
    let bits = if how & INVERTED != 0 { !bits } else { bits };
    match how & 3 {
        ALONE => bits,
        WITH_AND => bits & with,
        WITH_OR => bits | with,
        _ => bits ^ with,
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
            let half = |shift: u32| {
                lanes_where(|lane| {
                    T::from_raw(a[lane] >> shift & 0xffff)
                        .holds::<COMPARISON>(T::from_raw(b[lane] >> shift & 0xffff))
                })
            };
            let (low, high) = (half(0), half(16));
            let with = core.predicate(c);
            core.set_predicate(p, combined(low, with, inst.immediate));
            core.set_predicate(q, combined(high, with, inst.immediate));
        }
        Flow::Next
    }
}

/// What `setp` and `set` have in common: the comparison of operands 1 and 2, combined with operand 3.
struct Comparison {
    run: Run,
    reads: [Value; 3],
    how: u64,
    pair: bool,
}

/// Takes the comparison apart; the modifiers that are left are the types, the last of them that of the operands.
fn take_comparison(
    form: &mut Form<'_>,
    builder: &mut Builder<'_>,
    ty: Type,
) -> Result<Comparison, Refusal> {
    let name = form
        .take_any(&COMPARISONS)
        .ok_or_else(|| Refusal::new("the instruction names no comparison"))?;
    let how = match form.take_any(&["and", "or", "xor"]) {
        Some("and") => WITH_AND,
        Some("or") => WITH_OR,
        Some(_) => WITH_XOR,
        None => ALONE,
    };
    let ftz = form.take("ftz");
    form.expect_operands(if how == ALONE { 3 } else { 4 })?;
    let with = if how == ALONE {
        builder.constant(Kind::Predicate, 0)
    } else {
        builder.read(form, 3, Type::Pred)?
    };
    let (a, b) = (builder.read(form, 1, ty)?, builder.read(form, 2, ty)?);
    let pair = matches!(ty, Type::F16x2 | Type::BF16x2);
    let float = pair || matches!(ty, Type::F16 | Type::BF16 | Type::F32 | Type::F64);
    let chosen = comparison(name, float).and_then(|(code, exchanged, inverted)| {
        let (a, b) = if exchanged { (b, a) } else { (a, b) };
        let how = how | if inverted { INVERTED } else { 0 };
        Some(Comparison {
            run: choose(code, ty, ftz)?,
            reads: [with, a, b],
            how,
            pair,
        })
    });
    chosen.ok_or_else(|| Refusal::new(format!("the comparison {name} of {ty:?} is not supported")))
}

/// The type of the operands: the last one that is named.
fn take_last_type(form: &mut Form<'_>) -> Result<Type, Refusal> {
    let ty = form.modifiers.last().and_then(|name| Type::parse(name));
    form.modifiers.pop();
    ty.ok_or_else(|| Refusal::new("the instruction names no type that is known"))
}

fn setp(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let ty = take_last_type(form)?;
    let comparison = take_comparison(form, builder, ty)?;
    form.done()?;
    let (p, q) = match &form.operands[0] {
        Operand::Pair(pair) => (
            builder.destination(&pair.0, Type::Pred)?,
            builder.destination(&pair.1, Type::Pred)?,
        ),
        single => {
            let p = builder.destination(single, Type::Pred)?;
            (
                p,
                if comparison.pair {
                    builder.temporary(Kind::Predicate)
                } else {
                    p
                },
            )
        }
    };
    builder.emit(comparison.run, &[p, q], &comparison.reads, comparison.how);
    Ok(())
}

fn set(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let ty = take_last_type(form)?;
    let comparison = take_comparison(form, builder, ty)?;
    let result_type = form.take_type()?;
    form.done()?;
    let one = match result_type {
        Type::U32 | Type::S32 if comparison.pair => 0xffff,
        Type::U32 | Type::S32 | Type::U16 | Type::S16 => 0xffff_ffff,
        Type::F32 => 0x3f80_0000,
        Type::F16 | Type::F16x2 => 0x3c00,
        Type::BF16 | Type::BF16x2 => 0x3f80,
        other => {
            return Err(Refusal::new(format!(
                "a result of {other:?} is not supported"
            )));
        }
    };
    let (low, high) = (
        builder.temporary(Kind::Predicate),
        builder.temporary(Kind::Predicate),
    );
    builder.emit(
        comparison.run,
        &[low, high],
        &comparison.reads,
        comparison.how,
    );
    let result = builder.write(form, 0, result_type)?;
    let (one, zero) = (
        builder.constant(Kind::Word, one),
        builder.constant(Kind::Word, 0),
    );
    if comparison.pair {
        builder.emit(handler::<SelectHalves>(), &[result], &[one, low, high], 0);
    } else {
        builder.emit(handler::<Select<u32>>(), &[result], &[one, zero, low], 0);
    }
    Ok(())
}

/// `slots = [d, a, p, q]`: a in the low half where p holds, and in the high one where q does.
struct SelectHalves;
impl Handler for SelectHalves {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, p, q, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let (low, high) = (core.predicate(p), core.predicate(q));
            core.store_lanes::<u32>(d, |lane| {
                let value: u32 = core.lane(a, lane);
                value * (low >> lane & 1) | value * (high >> lane & 1) << 16
            });
        }
        Flow::Next
    }
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
                if C::from_raw(0).holds::<LE>(core.lane::<C>(c, lane)) {
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
