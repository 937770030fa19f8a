//! Integer arithmetic: sums, products, quotients, extrema, carry chains and dot products of bytes.

use std::marker::PhantomData;

use crate::decode::builder::Origin;
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{
    Function1, Function2, Function3, Lane, Map1, Map2, Map3, Pair, lane_functions, lanes_of,
};
use crate::ptx::ast::Type;

/// An integer type with PTX's arithmetic: wrapping, and total.
pub(super) trait Integer: Lane + Ord + Default {
    /// The type of a full product.
    type Wide: Lane;
    /// Sum.
    fn add(self, other: Self) -> Self;
    /// Sum, clamped to the range.
    fn add_saturating(self, other: Self) -> Self;
    /// Difference.
    fn sub(self, other: Self) -> Self;
    /// Difference, clamped to the range.
    fn sub_saturating(self, other: Self) -> Self;
    /// Low half of the product.
    fn mul_low(self, other: Self) -> Self;
    /// High half of the product.
    fn mul_high(self, other: Self) -> Self;
    /// The whole product; of 64-bit types its low half.
    fn mul_wide(self, other: Self) -> Self::Wide;
    /// Sum of what a wide product is added to.
    fn add_wide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Quotient, towards zero; by zero all ones, as GPUs give.
    fn div(self, other: Self) -> Self;
    /// Remainder with the dividend's sign; by zero the dividend.
    fn rem(self, other: Self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// Negation.
    fn neg(self) -> Self;
    /// `|a - b|`, exact modulo the width.
    fn distance(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($ty:ident, $unsigned:ident, $wide:ident, $double:ident;)*) => {$(
        impl Integer for $ty {
            type Wide = $wide;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn add_saturating(self, other: Self) -> Self { self.saturating_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn sub_saturating(self, other: Self) -> Self { self.saturating_sub(other) }
            #[inline(always)]
            fn mul_low(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((self as $double).wrapping_mul(other as $double) >> $ty::BITS) as $ty
            }
            #[inline(always)]
            fn mul_wide(self, other: Self) -> $wide { (self as $wide).wrapping_mul(other as $wide) }
            #[inline(always)]
            fn add_wide(a: $wide, b: $wide) -> $wide { a.wrapping_add(b) }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one formula for signed and unsigned types")]
            fn abs(self) -> Self { if self < 0 { self.neg() } else { self } }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn distance(self, other: Self) -> Self { self.abs_diff(other) as $unsigned as $ty }
        }
    )*};
}

integers! {
    u16, u16, u32, u32;
    i16, u16, i32, i32;
    u32, u32, u64, u64;
    i32, u32, i64, i64;
    u64, u64, u64, u128;
    i64, u64, i64, i128;
}

lane_functions! {
    Integer;
    Add: Function2(a: A = T, b: B = T) -> T = a.add(b);
    AddSaturating: Function2(a: A = T, b: B = T) -> T = a.add_saturating(b);
    Sub: Function2(a: A = T, b: B = T) -> T = a.sub(b);
    SubSaturating: Function2(a: A = T, b: B = T) -> T = a.sub_saturating(b);
    MulLow: Function2(a: A = T, b: B = T) -> T = a.mul_low(b);
    MulHigh: Function2(a: A = T, b: B = T) -> T = a.mul_high(b);
    MulWide: Function2(a: A = T, b: B = T) -> T::Wide = a.mul_wide(b);
    MadLow: Function3(a: A = T, b: B = T, c: C = T) -> T = a.mul_low(b).add(c);
    MadHigh: Function3(a: A = T, b: B = T, c: C = T) -> T = a.mul_high(b).add(c);
    MadHighSaturating: Function3(a: A = T, b: B = T, c: C = T) -> T = a.mul_high(b).add_saturating(c);
    MadWide: Function3(a: A = T, b: B = T, c: C = T::Wide) -> T::Wide = T::add_wide(a.mul_wide(b), c);
    Div: Function2(a: A = T, b: B = T) -> T = a.div(b);
    Rem: Function2(a: A = T, b: B = T) -> T = a.rem(b);
    Min: Function2(a: A = T, b: B = T) -> T = a.min(b);
    Max: Function2(a: A = T, b: B = T) -> T = a.max(b);
    MinRelu: Function2(a: A = T, b: B = T) -> T = a.min(b).max(T::default());
    MaxRelu: Function2(a: A = T, b: B = T) -> T = a.max(b).max(T::default());
    Abs: Function1(a: A = T) -> T = a.abs();
    Neg: Function1(a: A = T) -> T = a.neg();
    Sad: Function3(a: A = T, b: B = T, c: C = T) -> T = a.distance(b).add(c);
}

macro_rules! of_integer {
    ($ty:expr, $map:ident<$function:ident>) => {
        match $ty {
            Type::U16 | Type::B16 => handler::<$map<$function<u16>>>(),
            Type::S16 => handler::<$map<$function<i16>>>(),
            Type::U32 | Type::B32 => handler::<$map<$function<u32>>>(),
            Type::S32 => handler::<$map<$function<i32>>>(),
            Type::U64 | Type::B64 => handler::<$map<$function<u64>>>(),
            Type::S64 => handler::<$map<$function<i64>>>(),
            other => {
                return Err(Refusal::new(format!(
                    "the type {other:?} is not supported here"
                )))
            }
        }
    };
}

/// A function of both halves.
struct Halves<T, F>(PhantomData<(T, F)>);
impl<T: Lane<Raw = u32>, F: Function2<A = T, B = T, D = T>> Function2 for Halves<T, F> {
    type A = Pair<T>;
    type B = Pair<T>;
    type D = Pair<T>;
    #[inline(always)]
    fn call(a: Pair<T>, b: Pair<T>) -> Pair<T> {
        Pair(F::call(a.0, b.0), F::call(a.1, b.1))
    }
}

macro_rules! of_integer_or_halves {
    ($ty:expr, $function:ident) => {
        match $ty {
            Type::U16x2 => handler::<Map2<Halves<u16, $function<u16>>>>(),
            Type::S16x2 => handler::<Map2<Halves<i16, $function<i16>>>>(),
            ty => of_integer!(ty, Map2<$function>),
        }
    };
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Integer;
    let opcode = form.opcode;
    if matches!(opcode, "dp4a" | "dp2a") {
        return dot(form, builder);
    }
    let carry_out = form.take("cc");
    if carry_out || matches!(opcode, "addc" | "subc" | "madc") {
        return carry(form, builder, carry_out);
    }
    let saturating = form.take("sat");
    let relu = form.take("relu");
    let half = form.take_any(&["lo", "hi", "wide"]);
    let ty = form.take_type()?;
    form.done()?;
    let refuse = || Err(Refusal::new("unsupported combination of modifiers"));
    if saturating && !(ty == Type::S32 && matches!(opcode, "add" | "sub" | "mad" | "mad24")) {
        return refuse();
    }
    if relu && !matches!(opcode, "min" | "max") {
        return refuse();
    }
    let run = match (opcode, half) {
        ("add", None) if saturating => handler::<Map2<AddSaturating<i32>>>(),
        ("sub", None) if saturating => handler::<Map2<SubSaturating<i32>>>(),
        ("add", None) => of_integer_or_halves!(ty, Add),
        ("sub", None) => of_integer_or_halves!(ty, Sub),
        ("mul", Some("lo")) => of_integer!(ty, Map2<MulLow>),
        ("mul", Some("hi")) => of_integer!(ty, Map2<MulHigh>),
        ("mul", Some("wide")) if ty.size() < 8 => of_integer!(ty, Map2<MulWide>),
        ("mad", Some("lo")) if !saturating => of_integer!(ty, Map3<MadLow>),
        ("mad", Some("hi")) if saturating => handler::<Map3<MadHighSaturating<i32>>>(),
        ("mad", Some("hi")) => of_integer!(ty, Map3<MadHigh>),
        ("mad", Some("wide")) if ty.size() < 8 => of_integer!(ty, Map3<MadWide>),
        ("mul24", Some("lo")) if ty == Type::U32 => handler::<Map2<Mul24<u32, false>>>(),
        ("mul24", Some("lo")) if ty == Type::S32 => handler::<Map2<Mul24<i32, false>>>(),
        ("mul24", Some("hi")) if ty == Type::U32 => handler::<Map2<Mul24<u32, true>>>(),
        ("mul24", Some("hi")) if ty == Type::S32 => handler::<Map2<Mul24<i32, true>>>(),
        ("mad24", Some("lo")) if ty == Type::U32 => handler::<Map3<Mad24<u32, false>>>(),
        ("mad24", Some("lo")) if ty == Type::S32 && !saturating => {
            handler::<Map3<Mad24<i32, false>>>()
        }
        ("mad24", Some("hi")) if ty == Type::U32 => handler::<Map3<Mad24<u32, true>>>(),
        ("mad24", Some("hi")) if saturating => handler::<Map3<Mad24Saturating>>(),
        ("mad24", Some("hi")) if ty == Type::S32 => handler::<Map3<Mad24<i32, true>>>(),
        ("div", None) => of_integer!(ty, Map2<Div>),
        ("rem", None) => of_integer!(ty, Map2<Rem>),
        ("min", None) if relu => of_integer_or_halves!(ty, MinRelu),
        ("max", None) if relu => of_integer_or_halves!(ty, MaxRelu),
        ("min", None) => of_integer_or_halves!(ty, Min),
        ("max", None) => of_integer_or_halves!(ty, Max),
        ("abs", None) => of_integer!(ty, Map1<Abs>),
        ("neg", None) => of_integer!(ty, Map1<Neg>),
        ("sad", None) => of_integer!(ty, Map3<Sad>),
        _ => return refuse(),
    };
    let sources = match opcode {
        "abs" | "neg" => 1,
        "mad" | "sad" | "mad24" => 3,
        _ => 2,
    };
    form.expect_operands(sources + 1)?;
    let wide = if half == Some("wide") {
        widened(ty)
    } else {
        ty
    };
    let mut reads = Vec::new();
    for index in 1..=sources {
        reads.push(builder.read(form, index, if index == 3 { wide } else { ty })?);
    }
    let result = builder.write(form, 0, wide)?;
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

fn widened(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        _ => Type::S64,
    }
}

/// The low 24 bits of a 32-bit number, with its sign.
trait Low24: Integer {
    fn product(self, other: Self, high: bool) -> Self;
}

impl Low24 for u32 {
    #[inline(always)]
    fn product(self, other: u32, high: bool) -> u32 {
        let product = u64::from(self & 0xff_ffff) * u64::from(other & 0xff_ffff);
        (if high { product >> 16 } else { product }) as u32
    }
}

impl Low24 for i32 {
    #[inline(always)]
    fn product(self, other: i32, high: bool) -> i32 {
        let product = i64::from(self << 8 >> 8) * i64::from(other << 8 >> 8);
        (if high { product >> 16 } else { product }) as i32
    }
}

struct Mul24<T, const HIGH: bool>(PhantomData<T>);
impl<T: Low24, const HIGH: bool> Function2 for Mul24<T, HIGH> {
    type A = T;
    type B = T;
    type D = T;
    #[inline(always)]
    fn call(a: T, b: T) -> T {
        a.product(b, HIGH)
    }
}

struct Mad24<T, const HIGH: bool>(PhantomData<T>);
impl<T: Low24, const HIGH: bool> Function3 for Mad24<T, HIGH> {
    type A = T;
    type B = T;
    type C = T;
    type D = T;
    #[inline(always)]
    fn call(a: T, b: T, c: T) -> T {
        a.product(b, HIGH).add(c)
    }
}

/// `mad24.hi.sat.s32`
struct Mad24Saturating;
impl Function3 for Mad24Saturating {
    type A = i32;
    type B = i32;
    type C = i32;
    type D = i32;
    #[inline(always)]
    fn call(a: i32, b: i32, c: i32) -> i32 {
        a.product(b, true).add_saturating(c)
    }
}

/// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
fn carry(form: &mut Form<'_>, builder: &mut Builder<'_>, carry_out: bool) -> Result<(), Refusal> {
    let high = form.take_any(&["lo", "hi"]) == Some("hi");
    let ty = form.take_type()?;
    form.done()?;
    let long = match ty {
        Type::U32 | Type::S32 | Type::B32 => false,
        Type::U64 | Type::S64 | Type::B64 => true,
        other => {
            return Err(Refusal::new(format!(
                "carry chains of {other:?} are not supported"
            )));
        }
    };
    let carry_in = form.opcode.ends_with('c');
    let flag = builder.value(Kind::Predicate, Origin::Carry);
    let (kind, sources) = match form.opcode {
        "add" | "addc" => (ADD, 2),
        "sub" | "subc" => (SUB, 2),
        "mad" | "madc" => (MAD, 3),
        other => return Err(Refusal::new(format!("{other} has no carry"))),
    };
    form.expect_operands(sources + 1)?;
    let mut reads = Vec::new();
    for index in 1..=sources {
        reads.push(builder.read(form, index, ty)?);
    }
    if sources == 2 {
        // The product's place: the handler takes the sum's terms from `b` and `c`.
        reads.insert(0, reads[0]);
    }
    let no_carry = builder.constant(Kind::Predicate, 0);
    reads.push(if carry_in { flag } else { no_carry });
    let result = builder.write(form, 0, ty)?;
    let flag_out = if carry_out {
        flag
    } else {
        builder.temporary(Kind::Predicate)
    };
    let run: Run = match (kind, long, ty.is_signed() && high, high) {
        (ADD, false, ..) => handler::<Carry<u32, { ADD }, false, false>>(),
        (ADD, true, ..) => handler::<Carry<u64, { ADD }, false, false>>(),
        (SUB, false, ..) => handler::<Carry<u32, { SUB }, false, false>>(),
        (SUB, true, ..) => handler::<Carry<u64, { SUB }, false, false>>(),
        (_, false, _, false) => handler::<Carry<u32, { MAD }, false, false>>(),
        (_, true, _, false) => handler::<Carry<u64, { MAD }, false, false>>(),
        (_, false, false, true) => handler::<Carry<u32, { MAD }, true, false>>(),
        (_, true, false, true) => handler::<Carry<u64, { MAD }, true, false>>(),
        (_, false, true, true) => handler::<Carry<u32, { MAD }, true, true>>(),
        (_, true, true, true) => handler::<Carry<u64, { MAD }, true, true>>(),
    };
    let writes: [Value; 2] = [result, flag_out];
    builder.emit(run, &writes, &reads, 0);
    Ok(())
}

const ADD: u8 = 0;
const SUB: u8 = 1;
const MAD: u8 = 2;

/// Numbers whose sums have a carry.
trait Carrying: Lane {
    fn sum(a: Self, b: Self, carry: bool) -> (Self, bool);
    fn difference(a: Self, b: Self, borrow: bool) -> (Self, bool);
    fn product(a: Self, b: Self, high: bool, signed: bool) -> Self;
}

macro_rules! carrying {
    ($($ty:ident, $signed:ident, $double:ident, $signed_double:ident;)*) => {$(
        impl Carrying for $ty {
            #[inline(always)]
            fn sum(a: $ty, b: $ty, carry: bool) -> ($ty, bool) {
                let (sum, first) = a.overflowing_add(b);
                let (sum, second) = sum.overflowing_add($ty::from(carry));
                (sum, first | second)
            }
            #[inline(always)]
            fn difference(a: $ty, b: $ty, borrow: bool) -> ($ty, bool) {
                let (difference, first) = a.overflowing_sub(b);
                let (difference, second) = difference.overflowing_sub($ty::from(borrow));
                (difference, first | second)
            }
            #[inline(always)]
            fn product(a: $ty, b: $ty, high: bool, signed: bool) -> $ty {
                if !high {
                    a.wrapping_mul(b)
                } else if signed {
                    (a as $signed as $signed_double * b as $signed as $signed_double >> $ty::BITS) as $ty
                } else {
                    (a as $double * b as $double >> $ty::BITS) as $ty
                }
            }
        }
    )*};
}

carrying! {
    u32, i32, u64, i64;
    u64, i64, u128, i128;
}

/// `slots = [d, carry out, a, b, c, carry in]`: `a * b + c`, or `b + c`, or `b - c`. A borrow is the carry flag itself,
/// as PTX says.
struct Carry<T, const KIND: u8, const HIGH: bool, const SIGNED: bool>(PhantomData<T>);
impl<T: Carrying, const KIND: u8, const HIGH: bool, const SIGNED: bool> Handler
    for Carry<T, KIND, HIGH, SIGNED>
{
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, out, a, b, c, carry] = inst.slots;
        // SAFETY: the decoder laid the slots out so; each lane is read before it is written, and the flag at once.
        unsafe {
            let carry = core.predicate(carry);
            let mut flags = 0;
            for lane in lanes_of(core.mask) {
                let (x, y, z): (T, T, T) =
                    (core.lane(a, lane), core.lane(b, lane), core.lane(c, lane));
                let carry = carry >> lane & 1 != 0;
                let (value, flag) = match KIND {
                    ADD => T::sum(y, z, carry),
                    SUB => T::difference(y, z, carry),
                    _ => T::sum(T::product(x, y, HIGH, SIGNED), z, carry),
                };
                core.set_lane(d, lane, value);
                flags |= u32::from(flag) << lane;
            }
            core.set_predicate(out, flags);
        }
        Flow::Next
    }
}

/// `dp4a` and `dp2a`.
fn dot(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let high = form.take_any(&["lo", "hi"]);
    let types: Vec<Type> = form
        .modifiers
        .iter()
        .filter_map(|name| Type::parse(name))
        .collect();
    let [a, b] = types[..] else {
        return Err(Refusal::new("expected two types"));
    };
    form.modifiers.retain(|name| Type::parse(name).is_none());
    form.done()?;
    form.expect_operands(4)?;
    let signed = |ty: Type| match ty {
        Type::S32 => Ok(true),
        Type::U32 => Ok(false),
        other => Err(Refusal::new(format!(
            "the type {other:?} is not supported here"
        ))),
    };
    let (a_signed, b_signed) = (signed(a)?, signed(b)?);
    let run = match (form.opcode, high, a_signed, b_signed) {
        ("dp4a", None, false, false) => handler::<Map3<Dot4<false, false>>>(),
        ("dp4a", None, false, true) => handler::<Map3<Dot4<false, true>>>(),
        ("dp4a", None, true, false) => handler::<Map3<Dot4<true, false>>>(),
        ("dp4a", None, true, true) => handler::<Map3<Dot4<true, true>>>(),
        ("dp2a", Some("lo"), false, false) => handler::<Map3<Dot2<false, false, 0>>>(),
        ("dp2a", Some("lo"), false, true) => handler::<Map3<Dot2<false, true, 0>>>(),
        ("dp2a", Some("lo"), true, false) => handler::<Map3<Dot2<true, false, 0>>>(),
        ("dp2a", Some("lo"), true, true) => handler::<Map3<Dot2<true, true, 0>>>(),
        ("dp2a", Some("hi"), false, false) => handler::<Map3<Dot2<false, false, 16>>>(),
        ("dp2a", Some("hi"), false, true) => handler::<Map3<Dot2<false, true, 16>>>(),
        ("dp2a", Some("hi"), true, false) => handler::<Map3<Dot2<true, false, 16>>>(),
        ("dp2a", Some("hi"), true, true) => handler::<Map3<Dot2<true, true, 16>>>(),
        _ => return Err(Refusal::new("unsupported combination of modifiers")),
    };
    let reads = [
        builder.read(form, 1, Type::B32)?,
        builder.read(form, 2, Type::B32)?,
        builder.read(form, 3, Type::B32)?,
    ];
    let result = builder.write(form, 0, Type::B32)?;
    builder.emit(run, &[result], &reads, 0);
    Ok(())
}

/// A byte, or two bytes, of a word as a number.
#[inline(always)]
fn part(word: u32, shift: u32, bits: u32, signed: bool) -> i64 {
    let raw = word >> shift << (32 - bits);
    if signed {
        i64::from(raw as i32 >> (32 - bits))
    } else {
        i64::from(raw >> (32 - bits))
    }
}

struct Dot4<const A: bool, const B: bool>;
impl<const A: bool, const B: bool> Function3 for Dot4<A, B> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: u32, b: u32, c: u32) -> u32 {
        let mut sum = i64::from(c);
        for shift in [0, 8, 16, 24] {
            sum += part(a, shift, 8, A) * part(b, shift, 8, B);
        }
        sum as u32
    }
}

struct Dot2<const A: bool, const B: bool, const SHIFT: u32>;
impl<const A: bool, const B: bool, const SHIFT: u32> Function3 for Dot2<A, B, SHIFT> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn call(a: u32, b: u32, c: u32) -> u32 {
        let sum = part(a, 0, 16, A) * part(b, SHIFT, 8, B)
            + part(a, 16, 16, A) * part(b, SHIFT + 8, 8, B);
        (i64::from(c) + sum) as u32
    }
}

#[cfg(test)]
mod tests;
