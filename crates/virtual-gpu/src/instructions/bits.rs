//! Logic, shifts and bit fields.

use std::marker::PhantomData;

use crate::decode::{Builder, Form, Kind, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, handler};
use crate::exec::lanes::{
    Function1, Function2, Function3, Lane, Map1, Map2, Map3, lane_functions, lanes_of,
};
use crate::ptx::ast::{Operand, Type};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Integer;
    let opcode = form.opcode;
    let wrap = form.take("wrap");
    let clamp = form.take("clamp");
    let left = form.take("l");
    let right = form.take("r");
    let shift_amount = form.take("shiftamt");
    let mode = form.take_any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]);
    let operation = (opcode == "lop3")
        .then(|| form.take_any(&["and", "or"]))
        .flatten();
    let ty = form.take_type()?;
    form.done()?;
    let refuse = || Err(Refusal::new("unsupported combination of modifiers"));
    if ((wrap || clamp) && !matches!(opcode, "shf" | "bmsk" | "szext"))
        || ((left || right) && opcode != "shf")
        || (shift_amount && opcode != "bfind")
        || (mode.is_some() && opcode != "prmt")
    {
        return refuse();
    }
    let (size, signed) = (ty.size(), ty.is_signed());
    if ty == Type::Pred {
        let run = match opcode {
            "and" => handler::<Predicates<{ AND }>>(),
            "or" => handler::<Predicates<{ OR }>>(),
            "xor" => handler::<Predicates<{ XOR }>>(),
            "not" => handler::<Predicates<{ NOT }>>(),
            _ => return refuse(),
        };
        let count = if opcode == "not" { 1 } else { 2 };
        form.expect_operands(count + 1)?;
        let first = builder.read(form, 1, ty)?;
        let second = if count == 2 {
            builder.read(form, 2, ty)?
        } else {
            first
        };
        let result = builder.write(form, 0, ty)?;
        builder.emit(run, &[result], &[first, second], 0);
        return Ok(());
    }
    macro_rules! sized {
        ($map:ident<$function:ident>) => {
            match size {
                2 => handler::<$map<$function<u16>>>(),
                4 => handler::<$map<$function<u32>>>(),
                8 => handler::<$map<$function<u64>>>(),
                _ => return refuse(),
            }
        };
    }
    macro_rules! signed_sized {
        ($map:ident<$function:ident>) => {
            match (size, signed) {
                (2, true) => handler::<$map<$function<i16>>>(),
                (4, true) => handler::<$map<$function<i32>>>(),
                (8, true) => handler::<$map<$function<i64>>>(),
                _ => sized!($map<$function>),
            }
        };
    }
    // The handler, the types of the sources and that of the result.
    let word = Type::U32;
    let (run, sources, result): (_, Vec<Type>, Type) = match opcode {
        "and" => (sized!(Map2<And>), vec![ty, ty], ty),
        "or" => (sized!(Map2<Or>), vec![ty, ty], ty),
        "xor" => (sized!(Map2<Xor>), vec![ty, ty], ty),
        "not" => (sized!(Map1<Not>), vec![ty], ty),
        "cnot" => (sized!(Map1<LogicalNot>), vec![ty], ty),
        "shl" => (sized!(Map2<ShiftLeft>), vec![ty, word], ty),
        "shr" => (signed_sized!(Map2<ShiftRight>), vec![ty, word], ty),
        "shf" if size == 4 && left != right && wrap != clamp => {
            let run = match (left, wrap) {
                (true, true) => handler::<Map3<Funnel<true, true>>>(),
                (true, false) => handler::<Map3<Funnel<true, false>>>(),
                (false, true) => handler::<Map3<Funnel<false, true>>>(),
                (false, false) => handler::<Map3<Funnel<false, false>>>(),
            };
            (run, vec![word; 3], ty)
        }
        "prmt" if size == 4 => {
            let run = match mode {
                None => handler::<Map3<Permute<0>>>(),
                Some("f4e") => handler::<Map3<Permute<1>>>(),
                Some("b4e") => handler::<Map3<Permute<2>>>(),
                Some("rc8") => handler::<Map3<Permute<3>>>(),
                Some("ecl") => handler::<Map3<Permute<4>>>(),
                Some("ecr") => handler::<Map3<Permute<5>>>(),
                Some(_) => handler::<Map3<Permute<6>>>(),
            };
            (run, vec![word; 3], ty)
        }
        "bfe" if size >= 4 => (signed_sized!(Map3<Extract>), vec![ty, word, word], ty),
        "bfi" if size >= 4 => {
            form.expect_operands(5)?;
            let reads = [
                builder.read(form, 1, ty)?,
                builder.read(form, 2, ty)?,
                builder.read(form, 3, word)?,
                builder.read(form, 4, word)?,
            ];
            let result = builder.write(form, 0, ty)?;
            let run = if size == 8 {
                handler::<Insert<u64>>()
            } else {
                handler::<Insert<u32>>()
            };
            builder.emit(run, &[result], &reads, 0);
            return Ok(());
        }
        "bfind" if size >= 4 => {
            let run = match (size, signed, shift_amount) {
                (4, false, false) => handler::<Map1<Find<u32, false>>>(),
                (4, false, true) => handler::<Map1<Find<u32, true>>>(),
                (4, true, false) => handler::<Map1<Find<i32, false>>>(),
                (4, true, true) => handler::<Map1<Find<i32, true>>>(),
                (_, false, false) => handler::<Map1<Find<u64, false>>>(),
                (_, false, true) => handler::<Map1<Find<u64, true>>>(),
                (_, true, false) => handler::<Map1<Find<i64, false>>>(),
                (_, true, true) => handler::<Map1<Find<i64, true>>>(),
            };
            (run, vec![ty], word)
        }
        "brev" => (sized!(Map1<Reverse>), vec![ty], ty),
        "popc" if size >= 4 => (sized!(Map1<Population>), vec![ty], word),
        "clz" if size >= 4 => (sized!(Map1<LeadingZeros>), vec![ty], word),
        "fns" if size == 4 => (
            handler::<Map3<FindNth>>(),
            vec![word, word, Type::S32],
            word,
        ),
        "bmsk" if wrap != clamp && size == 4 => {
            let run = if wrap {
                handler::<Map2<BitMask<true>>>()
            } else {
                handler::<Map2<BitMask<false>>>()
            };
            (run, vec![word; 2], ty)
        }
        "szext" if wrap != clamp && size == 4 => {
            let run = match (wrap, signed) {
                (true, true) => handler::<Map2<Extend<true, true>>>(),
                (true, false) => handler::<Map2<Extend<true, false>>>(),
                (false, true) => handler::<Map2<Extend<false, true>>>(),
                (false, false) => handler::<Map2<Extend<false, false>>>(),
            };
            (run, vec![word; 2], ty)
        }
        "lop3" if size == 4 => return lop3(form, builder, operation),
        _ => return refuse(),
    };
    form.expect_operands(sources.len() + 1)?;
    let mut reads = Vec::new();
    for (index, source) in sources.into_iter().enumerate() {
        reads.push(builder.read(form, index + 1, source)?);
    }
    let result = builder.write(form, 0, result)?;
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

const AND: u8 = 0;
const OR: u8 = 1;
const XOR: u8 = 2;
const NOT: u8 = 3;

/// `slots = [d, a, b]`, predicates.
struct Predicates<const OPERATION: u8>;
impl<const OPERATION: u8> Handler for Predicates<OPERATION> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: all are predicates.
        unsafe {
            let (a, b) = (core.predicate(inst.slots[1]), core.predicate(inst.slots[2]));
            let bits = match OPERATION {
                AND => a & b,
                OR => a | b,
                XOR => a ^ b,
                _ => !a,
            };
            core.set_predicate(inst.slots[0], bits);
        }
        Flow::Next
    }
}

/// A word of bits.
trait Bits: Lane + Default + PartialEq {
    /// Width in bits.
    const WIDTH: u32;
    /// Whether the highest bit is a sign.
    const SIGNED: bool;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    fn one() -> Self;
    /// Zero when all bits are shifted out.
    fn shift_left(self, amount: u32) -> Self;
    /// Copies of the sign, or zero, when all bits are shifted out.
    fn shift_right(self, amount: u32) -> Self;
    fn reverse(self) -> Self;
    fn population(self) -> u32;
    fn leading_zeros_of(self) -> u32;
    /// All ones for negative numbers of signed types.
    fn is_negative_number(self) -> bool;
}

macro_rules! bits {
    ($($ty:ident)*) => {$(
        impl Bits for $ty {
            const WIDTH: u32 = $ty::BITS;
            #[allow(unused_comparisons, reason = "one formula for signed and unsigned types")]
            const SIGNED: bool = $ty::MIN < 0;
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn not(self) -> Self { !self }
            #[inline(always)]
            fn one() -> Self { 1 }
            #[inline(always)]
            fn shift_left(self, amount: u32) -> Self {
                if amount >= $ty::BITS { 0 } else { self << (amount & ($ty::BITS - 1)) }
            }
            #[inline(always)]
            fn shift_right(self, amount: u32) -> Self {
                #[allow(unused_comparisons, reason = "one formula for signed and unsigned types")]
                let out = if self < 0 { !0 } else { 0 };
                if amount >= $ty::BITS { out } else { self >> (amount & ($ty::BITS - 1)) }
            }
            #[inline(always)]
            fn reverse(self) -> Self { self.reverse_bits() }
            #[inline(always)]
            fn population(self) -> u32 { self.count_ones() }
            #[inline(always)]
            fn leading_zeros_of(self) -> u32 { self.leading_zeros() }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one formula for signed and unsigned types")]
            fn is_negative_number(self) -> bool { self < 0 }
        }
    )*};
}

bits!(u16 i16 u32 i32 u64 i64);

lane_functions! {
    Bits;
    And: Function2(a: A = T, b: B = T) -> T = a.and(b);
    Or: Function2(a: A = T, b: B = T) -> T = a.or(b);
    Xor: Function2(a: A = T, b: B = T) -> T = a.xor(b);
    Not: Function1(a: A = T) -> T = a.not();
    LogicalNot: Function1(a: A = T) -> T = if a == T::default() { T::one() } else { T::default() };
    ShiftLeft: Function2(a: A = T, b: B = u32) -> T = a.shift_left(b);
    ShiftRight: Function2(a: A = T, b: B = u32) -> T = a.shift_right(b);
    Reverse: Function1(a: A = T) -> T = a.reverse();
    Population: Function1(a: A = T) -> u32 = a.population();
    LeadingZeros: Function1(a: A = T) -> u32 = a.leading_zeros_of();
    Extract: Function3(a: A = T, b: B = u32, c: C = u32) -> T = extract(a, b & 0xff, c & 0xff);
}

/// `length` bits from `position` on; what lies above the word is its sign (or zero), and so is what lies above the
/// field.
#[inline(always)]
fn extract<T: Bits>(word: T, position: u32, length: u32) -> T {
    let top = (position + length).saturating_sub(1).min(T::WIDTH - 1);
    let sign = length != 0 && T::SIGNED && word.shift_right(top).and(T::one()) == T::one();
    // 2^length - 1, or all ones.
    let mask = T::default().not().shift_left(length).not();
    let field = logical_shift_right(word, position).and(mask);
    if sign {
        field.or(above(position, length))
    } else {
        field
    }
}

/// Bits of the result that are copies of the sign: above the field, and those of the field that lie above the word.
#[inline(always)]
fn above<T: Bits>(position: u32, length: u32) -> T {
    let valid = length.min(T::WIDTH.saturating_sub(position));
    T::default().not().shift_left(valid)
}

#[inline(always)]
fn logical_shift_right<T: Bits>(word: T, amount: u32) -> T {
    if amount >= T::WIDTH {
        return T::default();
    }
    let shifted = word.shift_right(amount);
    // Take the copies of the sign away.
    if amount == 0 {
        shifted
    } else {
        shifted.and(T::default().not().shift_left(T::WIDTH - amount).not())
    }
}

/// `slots = [d, a, b, position, length]`: the low bits of `a` into `b`.
struct Insert<T>(PhantomData<T>);
impl<T: Bits> Handler for Insert<T> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, position, length, _] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            core.store_lanes(d, |lane| {
                let (a, b): (T, T) = (core.lane(a, lane), core.lane(b, lane));
                let position = core.lane::<u32>(position, lane) & 0xff;
                let length = core.lane::<u32>(length, lane) & 0xff;
                let mask = T::default()
                    .not()
                    .shift_left(length)
                    .not()
                    .shift_left(position);
                a.shift_left(position).and(mask).or(b.and(mask.not()))
            });
        }
        Flow::Next
    }
}

/// The highest bit that differs from the sign; `SHIFT` counts from the top.
struct Find<T, const SHIFT: bool>(PhantomData<T>);
impl<T: Bits, const SHIFT: bool> Function1 for Find<T, SHIFT> {
    type A = T;
    type D = u32;
    #[inline(always)]
    fn call(a: T) -> u32 {
        let magnitude = if a.is_negative_number() { a.not() } else { a };
        let zeros = magnitude.leading_zeros_of();
        if zeros == T::WIDTH {
            u32::MAX
        } else if SHIFT {
            zeros
        } else {
            T::WIDTH - 1 - zeros
        }
    }
}

struct Funnel<const LEFT: bool, const WRAP: bool>;
impl<const LEFT: bool, const WRAP: bool> Function3 for Funnel<LEFT, WRAP> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: u32, b: u32, c: u32) -> u32 {
        let whole = u64::from(b) << 32 | u64::from(a);
        let amount = if WRAP { c & 31 } else { c.min(32) };
        if LEFT {
            (whole << amount >> 32) as u32
        } else {
            (whole >> amount) as u32
        }
    }
}

struct Permute<const MODE: u8>;
impl<const MODE: u8> Function3 for Permute<MODE> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: u32, b: u32, c: u32) -> u32 {
        let bytes = u64::from(b) << 32 | u64::from(a);
        let byte = |index: u32| (bytes >> (8 * (index & 7))) as u32 & 0xff;
        let selector = c & 3;
        let mut result = 0;
        for place in 0..4 {
            let value = match MODE {
                0 => {
                    let nibble = c >> (4 * place) & 0xf;
                    let value = byte(nibble);
                    match nibble & 8 {
                        0 => value,
                        _ => (value >> 7) * 0xff,
                    }
                }
                1 => byte(selector + place),
                2 => byte(selector.wrapping_sub(place) & 7),
                3 => byte(selector),
                4 => byte(selector.max(place)),
                5 => byte(selector.min(place)),
                _ => byte((selector & 1) * 2 + (place & 1)),
            };
            result |= value << (8 * place);
        }
        result
    }
}

/// The place of the n-th set bit from a base on, upward or downward.
struct FindNth;
impl Function3 for FindNth {
    type A = u32;
    type B = u32;
    type C = i32;
    type D = u32;
    #[inline(always)]
    fn call(mask: u32, base: u32, offset: i32) -> u32 {
        let step = if offset < 0 { -1 } else { 1 };
        let mut wanted = offset.unsigned_abs().max(1);
        if offset == 0 {
            return if base < 32 && mask >> base & 1 != 0 {
                base
            } else {
                u32::MAX
            };
        }
        let mut place = i64::from(base);
        while (0..32).contains(&place) {
            if mask >> place & 1 != 0 {
                wanted -= 1;
                if wanted == 0 {
                    return place as u32;
                }
            }
            place += step;
        }
        u32::MAX
    }
}

struct BitMask<const WRAP: bool>;
impl<const WRAP: bool> Function2 for BitMask<WRAP> {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: u32, b: u32) -> u32 {
        let (a, b) = if WRAP {
            (a & 31, b & 31)
        } else {
            (a.min(32), b.min(32))
        };
        u32::default().not().shift_left(b).not().shift_left(a)
    }
}

struct Extend<const WRAP: bool, const SIGNED: bool>;
impl<const WRAP: bool, const SIGNED: bool> Function2 for Extend<WRAP, SIGNED> {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: u32, b: u32) -> u32 {
        let bits = if WRAP { b & 31 } else { b.min(32) };
        if bits == 0 {
            return 0;
        }
        let shift = 32 - bits;
        if SIGNED {
            ((a << shift) as i32 >> shift) as u32
        } else {
            a << shift >> shift
        }
    }
}

fn lop3(
    form: &Form<'_>,
    builder: &mut Builder<'_>,
    operation: Option<&str>,
) -> Result<(), Refusal> {
    let Some(Operand::Integer(table)) = form.operands.get(4) else {
        return Err(Refusal::new("expected a table of 8 bits"));
    };
    let ty = Type::B32;
    let reads = [
        builder.read(form, 1, ty)?,
        builder.read(form, 2, ty)?,
        builder.read(form, 3, ty)?,
    ];
    match form.operands {
        // `d|p`: whether a bit of the result is set, combined with a predicate.
        [Operand::Pair(pair), _, _, _, _, combined] => {
            let other = builder.source(combined, Type::Pred)?;
            let result = builder.destination(&pair.0, ty)?;
            let any = builder.temporary(Kind::Predicate);
            builder.emit(handler::<Logic3>(), &[result], &reads, table & 0xff);
            builder.emit(handler::<NotZero>(), &[any], &[result], 0);
            let combine = match operation {
                Some("and") => handler::<Predicates<AND>>(),
                _ => handler::<Predicates<OR>>(),
            };
            let written = builder.destination(&pair.1, Type::Pred)?;
            builder.emit(combine, &[written], &[any, other], 0);
        }
        _ => {
            form.expect_operands(5)?;
            let result = builder.write(form, 0, ty)?;
            builder.emit(handler::<Logic3>(), &[result], &reads, table & 0xff);
        }
    }
    Ok(())
}

/// `slots = [p, a]`: which words are not zero.
struct NotZero;
impl Handler for NotZero {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid out a predicate and a word.
        unsafe {
            let mut set = 0;
            for lane in lanes_of(core.mask) {
                set |= u32::from(core.lane::<u32>(inst.slots[1], lane) != 0) << lane;
            }
            core.set_predicate(inst.slots[0], set);
        }
        Flow::Next
    }
}

/// `slots = [d, a, b, c]`: the immediate is the truth table, indexed by the bits of a, b, c from high to low.
struct Logic3;
impl Handler for Logic3 {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, c, ..] = inst.slots;
        let table = inst.immediate as u32;
        let term = |index: u32| if table >> index & 1 != 0 { u32::MAX } else { 0 };
        let terms = [
            term(0),
            term(1),
            term(2),
            term(3),
            term(4),
            term(5),
            term(6),
            term(7),
        ];
        // SAFETY: the decoder laid out words.
        unsafe {
            core.store_lanes(d, |lane| {
                let (a, b, c): (u32, u32, u32) =
                    (core.lane(a, lane), core.lane(b, lane), core.lane(c, lane));
                terms[0] & !a & !b & !c
                    | terms[1] & !a & !b & c
                    | terms[2] & !a & b & !c
                    | terms[3] & !a & b & c
                    | terms[4] & a & !b & !c
                    | terms[5] & a & !b & c
                    | terms[6] & a & b & !c
                    | terms[7] & a & b & c
            });
        }
        Flow::Next
    }
}

#[cfg(test)]
mod tests;
