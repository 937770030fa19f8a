//! Atomic reads and writes. Blocks run on several threads of the host, so these are atomic operations of the host;
//! the lanes of a warp take their turns in ascending order. Subnormal numbers are kept, in global memory too.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use half::{bf16, f16};

use super::memory::{self, Access, Address};
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, Pair, WARP, lanes_of};
use crate::ptx::ast::{Operand, Space, Type};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Atomic;
    let returns = form.opcode == "atom";
    if form.take("async") {
        return Err(Refusal::new(
            "red.async needs clusters, which are not supported",
        ));
    }
    form.take_any(&["relaxed", "acquire", "release", "acq_rel"]);
    form.take_any(&["cta", "cluster", "gpu", "sys"]);
    let space = memory::take_space(form);
    if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
        return Err(Refusal::new(
            "atomics take .global, .shared or generic addresses",
        ));
    }
    let operation = form
        .take_any(&[
            "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec",
        ])
        .ok_or_else(|| Refusal::new("the instruction names no atomic operation that is known"))?;
    // The flag changes nothing: subnormal numbers are kept for all 16-bit types.
    form.take("noftz");
    let hint = form.take("L2::cache_hint");
    let count = match form.take_any(&["v2", "v4", "v8"]) {
        Some(name) => name[1..].parse().unwrap_or(1),
        None => 1,
    };
    let ty = form.take_type()?;
    form.done()?;
    let run = choose(operation, ty, returns)
        .ok_or_else(|| Refusal::new(format!("there is no atomic {operation} of {ty:?}")))?;
    let compares = operation == "cas";
    if !returns && matches!(operation, "cas" | "exch") {
        return Err(Refusal::new(format!("there is no red.{operation}")));
    }
    let operands = usize::from(returns) + 2 + usize::from(compares) + usize::from(hint);
    form.expect_operands(operands)?;
    let place = usize::from(returns);
    let address = memory::address(builder, &form.operands[place], space)?;
    if !matches!(
        address.space,
        Space::Generic | Space::Global | Space::Shared
    ) {
        return Err(Refusal::new(format!(
            "atomics of {:?} memory",
            address.space
        )));
    }
    if count != 1 {
        return decode_vector(form, builder, (run, ty, count), &address, returns);
    }
    let result = if returns {
        vec![builder.write(form, 0, ty)?]
    } else {
        Vec::new()
    };
    let mut reads = vec![address.base, builder.read(form, place + 1, ty)?];
    if compares {
        reads.push(builder.read(form, place + 2, ty)?);
    }
    let immediate = packed(&address, ty.size())?;
    builder.emit(run, &result, &reads, immediate);
    Ok(())
}

/// A vector is one atomic operation for each element.
fn decode_vector(
    form: &Form<'_>,
    builder: &mut Builder<'_>,
    (run, ty, count): (Run, Type, usize),
    address: &Address,
    returns: bool,
) -> Result<(), Refusal> {
    let part = |index: usize| match form.operands.get(index) {
        Some(Operand::Vector(parts)) if parts.len() == count => Ok(parts.as_slice()),
        _ => Err(Refusal::new(format!(
            "expected a vector of {count} registers"
        ))),
    };
    let size = ty.size() * count as u32;
    if size > 16 {
        return Err(Refusal::new("atomics of vectors of more than 16 bytes"));
    }
    let sources = part(usize::from(returns) + 1)?.to_vec();
    let sources: Vec<Value> = sources
        .iter()
        .map(|source| builder.source(source, ty))
        .collect::<Result<_, _>>()?;
    let results: &[Operand] = if returns { part(0)? } else { &[] };
    let mut old = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let place = Address {
            space: address.space,
            base: address.base,
            long: address.long,
            offset: address
                .offset
                .wrapping_add(u64::from(ty.size()) * index as u64),
        };
        // Only the first element's address has the whole vector's alignment.
        let immediate = packed(&place, if index == 0 { size } else { ty.size() })?;
        // Results may overlap operands, so that they are written when all elements are done.
        let result = builder.temporary(Kind::of(ty));
        old.push(result);
        let writes: &[Value] = if returns { &[result] } else { &[] };
        builder.emit(run, writes, &[place.base, *source], immediate);
    }
    for (operand, old) in results.iter().zip(old) {
        let result = builder.destination(operand, ty)?;
        builder.emit(super::moves::copy(Kind::of(ty)), &[result], &[old], 0);
    }
    Ok(())
}

/// How an address lies in an immediate: the offset in 32 bits, then space, width and alignment.
const LONG: u64 = 1 << 32;
const SPACE_SHIFT: u32 = 33;
const ALIGN_SHIFT: u32 = 36;

/// An address and the alignment that it must have, as an immediate for [`located`].
pub(super) fn packed(address: &Address, align: u32) -> Result<u64, Refusal> {
    let offset = i32::try_from(address.offset as i64)
        .map_err(|_| Refusal::new("the offset of an address does not fit 32 bits"))?;
    let space = match address.space {
        Space::Generic => 0,
        Space::Global | Space::Const => 1,
        Space::Shared => 2,
        Space::Local => 3,
        Space::Param => 4,
    };
    let long = if address.long { LONG } else { 0 };
    Ok(u64::from(offset as u32)
        | long
        | space << SPACE_SHIFT
        | u64::from(align.trailing_zeros()) << ALIGN_SHIFT)
}

/// The addresses of all lanes, of an immediate that [`packed`] made.
///
/// # Safety
/// The slot is that of the address's base, of the running instruction.
#[inline(always)]
pub(super) unsafe fn addresses(core: &Core<'_>, slot: u32, immediate: u64) -> [u64; WARP] {
    let offset = immediate as u32;
    let mut addresses = [0; WARP];
    // SAFETY: the immediate says how wide the register is.
    unsafe {
        if immediate & LONG != 0 {
            let offset = i64::from(offset as i32) as u64;
            for (address, base) in addresses.iter_mut().zip(core.read::<u64>(slot)) {
                *address = base.wrapping_add(offset);
            }
        } else {
            for (address, base) in addresses.iter_mut().zip(core.read::<u32>(slot)) {
                *address = u64::from(base.wrapping_add(offset));
            }
        }
    }
    addresses
}

/// The space of an immediate that [`packed`] made.
#[inline(always)]
pub(super) fn space_of(immediate: u64) -> Space {
    match immediate >> SPACE_SHIFT & 7 {
        0 => Space::Generic,
        1 => Space::Global,
        2 => Space::Shared,
        3 => Space::Local,
        _ => Space::Param,
    }
}

/// The alignment of an immediate that [`packed`] made.
#[inline(always)]
pub(super) fn align_of(immediate: u64) -> u32 {
    1 << (immediate >> ALIGN_SHIFT & 7)
}

fn choose(operation: &str, ty: Type, returns: bool) -> Option<Run> {
    macro_rules! find {
        ($($name:literal $($ty:ident)|+ => $operation:ty;)*) => {
            match (operation, ty) {
                $(($name, $(Type::$ty)|+) => {
                    if returns { handler::<Atomic<$operation, 1>>() } else { handler::<Atomic<$operation, 0>>() }
                })*
                ("cas", Type::B16) if returns => handler::<CompareAndSwap<u16>>(),
                ("cas", Type::B32 | Type::U32 | Type::S32) if returns => handler::<CompareAndSwap<u32>>(),
                ("cas", Type::B64 | Type::U64 | Type::S64) if returns => handler::<CompareAndSwap<u64>>(),
                _ => return None,
            }
        };
    }
    Some(find! {
        "add" U32 | S32 => AddWord;
        "add" U64 | S64 => AddLong;
        "add" F32 => AddFloat<f32>;
        "add" F64 => AddFloat<f64>;
        "add" F16 => AddFloat<f16>;
        "add" BF16 => AddFloat<bf16>;
        "add" F16x2 => AddFloat<Pair<f16>>;
        "add" BF16x2 => AddFloat<Pair<bf16>>;
        "min" U32 => MinInteger<u32>;
        "min" S32 => MinInteger<i32>;
        "min" U64 => MinInteger<u64>;
        "min" S64 => MinInteger<i64>;
        "max" U32 => MaxInteger<u32>;
        "max" S32 => MaxInteger<i32>;
        "max" U64 => MaxInteger<u64>;
        "max" S64 => MaxInteger<i64>;
        "min" F16 => MinFloat<f16>;
        "min" BF16 => MinFloat<bf16>;
        "min" F16x2 => MinFloat<Pair<f16>>;
        "min" BF16x2 => MinFloat<Pair<bf16>>;
        "max" F16 => MaxFloat<f16>;
        "max" BF16 => MaxFloat<bf16>;
        "max" F16x2 => MaxFloat<Pair<f16>>;
        "max" BF16x2 => MaxFloat<Pair<bf16>>;
        "and" B32 => And<u32>;
        "and" B64 => And<u64>;
        "or" B32 => Or<u32>;
        "or" B64 => Or<u64>;
        "xor" B32 => Xor<u32>;
        "xor" B64 => Xor<u64>;
        "exch" B32 | U32 | S32 | F32 => Exchange<u32>;
        "exch" B64 | U64 | S64 | F64 => Exchange<u64>;
        "inc" U32 => Increment;
        "dec" U32 => Decrement;
    })
}

/// The bits of a value in memory, and the host's atomic for them.
trait Cell: Lane {
    /// Applies `change` to the bits at an address at once with respect to other threads, and returns the old ones.
    ///
    /// # Safety
    /// The pointer is valid and aligned to the value's size.
    unsafe fn update(pointer: *mut u8, change: impl Fn(Self) -> Self) -> Self;
}

macro_rules! cells {
    ($($ty:ty: $atomic:ty, $bits:ty, $from:expr, $to:expr;)*) => {$(
        impl Cell for $ty {
            #[inline(always)]
            unsafe fn update(pointer: *mut u8, change: impl Fn(Self) -> Self) -> Self {
                let (from, to): (fn($bits) -> $ty, fn($ty) -> $bits) = ($from, $to);
                // SAFETY: the caller says so.
                let cell = unsafe { <$atomic>::from_ptr(pointer.cast()) };
                let mut old = cell.load(Ordering::Relaxed);
                loop {
                    let new = to(change(from(old)));
                    match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                        Ok(_) => return from(old),
                        Err(now) => old = now,
                    }
                }
            }
        }
    )*};
}

cells! {
    u16: AtomicU16, u16, |bits| bits, |value| value;
    u32: AtomicU32, u32, |bits| bits, |value| value;
    i32: AtomicU32, u32, |bits| bits as i32, |value| value as u32;
    u64: AtomicU64, u64, |bits| bits, |value| value;
    i64: AtomicU64, u64, |bits| bits as i64, |value| value as u64;
    f32: AtomicU32, u32, f32::from_bits, f32::to_bits;
    f64: AtomicU64, u64, f64::from_bits, f64::to_bits;
    f16: AtomicU16, u16, f16::from_bits, f16::to_bits;
    bf16: AtomicU16, u16, bf16::from_bits, bf16::to_bits;
    Pair<f16>: AtomicU32, u32, Lane::from_raw, Lane::to_raw;
    Pair<bf16>: AtomicU32, u32, Lane::from_raw, Lane::to_raw;
}

/// A read, a change and a write, at once.
trait Operation {
    /// What is changed.
    type T: Cell;
    /// Changes what is at an address and returns what was there.
    ///
    /// # Safety
    /// The pointer is valid and aligned to the value's size.
    #[inline(always)]
    unsafe fn apply(pointer: *mut u8, operand: Self::T) -> Self::T {
        // SAFETY: the caller says so.
        unsafe { Self::T::update(pointer, |old| Self::change(old, operand)) }
    }
    /// The new value.
    fn change(old: Self::T, operand: Self::T) -> Self::T;
}

macro_rules! operations {
    ($($name:ident: $ty:ty, $atomic:ty, $method:ident, |$old:ident, $operand:ident| $change:expr;)*) => {$(
        struct $name;
        impl Operation for $name {
            type T = $ty;
            #[inline(always)]
            unsafe fn apply(pointer: *mut u8, operand: $ty) -> $ty {
                // SAFETY: the caller says so.
                unsafe { <$atomic>::from_ptr(pointer.cast()) }.$method(operand, Ordering::SeqCst)
            }
            #[inline(always)]
            fn change($old: $ty, $operand: $ty) -> $ty {
                $change
            }
        }
    )*};
}

// What the host has an instruction for, and is common.
operations! {
    AddWord: u32, AtomicU32, fetch_add, |old, operand| old.wrapping_add(operand);
    AddLong: u64, AtomicU64, fetch_add, |old, operand| old.wrapping_add(operand);
}

macro_rules! generic_operations {
    ($($name:ident: $bound:path, |$old:ident, $operand:ident| $change:expr;)*) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: Cell + $bound> Operation for $name<T> {
            type T = T;
            #[inline(always)]
            fn change($old: T, $operand: T) -> T {
                $change
            }
        }
    )*};
}

generic_operations! {
    AddFloat: Arithmetic, |old, operand| old.add(operand);
    MinFloat: Arithmetic, |old, operand| old.min(operand);
    MaxFloat: Arithmetic, |old, operand| old.max(operand);
    MinInteger: Ord, |old, operand| old.min(operand);
    MaxInteger: Ord, |old, operand| old.max(operand);
    And: Bits, |old, operand| old & operand;
    Or: Bits, |old, operand| old | operand;
    Xor: Bits, |old, operand| old ^ operand;
    Exchange: Bits, |_old, operand| operand;
}

/// Unsigned integers.
trait Bits:
    Sized
    + std::ops::BitAnd<Output = Self>
    + std::ops::BitOr<Output = Self>
    + std::ops::BitXor<Output = Self>
{
}
impl Bits for u32 {}
impl Bits for u64 {}

struct Increment;
impl Operation for Increment {
    type T = u32;
    #[inline(always)]
    fn change(old: u32, operand: u32) -> u32 {
        if old >= operand { 0 } else { old + 1 }
    }
}

struct Decrement;
impl Operation for Decrement {
    type T = u32;
    #[inline(always)]
    fn change(old: u32, operand: u32) -> u32 {
        if old == 0 || old > operand {
            operand
        } else {
            old - 1
        }
    }
}

/// Floats of one or two parts, rounded to nearest even.
trait Arithmetic: Sized {
    fn add(self, other: Self) -> Self;
    /// The smaller; a NaN gives way to a number.
    fn min(self, other: Self) -> Self;
    /// The larger; a NaN gives way to a number.
    fn max(self, other: Self) -> Self;
}

macro_rules! arithmetic {
    ($($ty:ty: $widen:expr, $narrow:expr;)*) => {$(
        impl Arithmetic for $ty {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                $narrow($widen(self) + $widen(other))
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let (a, b) = ($widen(self), $widen(other));
                // The smaller of two zeros is the negative one.
                let first = a < b || b.is_nan() || a == b && a.is_sign_negative();
                if first { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let (a, b) = ($widen(self), $widen(other));
                let first = a > b || b.is_nan() || a == b && a.is_sign_positive();
                if first { self } else { other }
            }
        }
    )*};
}

// The sum of two 16-bit floats in f32 loses nothing that matters to rounding: f32 has more than twice the digits.
arithmetic! {
    f32: |value: f32| value, |value: f32| value;
    f64: |value: f64| value, |value: f64| value;
    f16: f16::to_f32, f16::from_f32;
    bf16: bf16::to_f32, bf16::from_f32;
}

impl<T: Arithmetic> Arithmetic for Pair<T> {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Pair(self.0.add(other.0), self.1.add(other.1))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Pair(self.0.min(other.0), self.1.min(other.1))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Pair(self.0.max(other.0), self.1.max(other.1))
    }
}

/// `slots = [result (if RESULTS is 1), address, operand]`, the immediate as [`packed`].
struct Atomic<O, const RESULTS: usize>(PhantomData<O>);
impl<O: Operation, const RESULTS: usize> Handler for Atomic<O, RESULTS> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so. A lane's operands are read before its result is written, and the
        // addresses of all lanes before that.
        unsafe {
            each_lane::<O::T>(core, inst, inst.slots[RESULTS], |core, lane, pointer| {
                let operand = core.lane::<O::T>(inst.slots[RESULTS + 1], lane);
                let old = O::apply(pointer, operand);
                if RESULTS == 1 {
                    core.set_lane(inst.slots[0], lane, old);
                }
            })
        }
    }
}

/// `slots = [result, address, comparand, new]`, the immediate as [`packed`].
struct CompareAndSwap<T>(PhantomData<T>);
impl<T: Cell + PartialEq> Handler for CompareAndSwap<T> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [result, address, comparand, new, ..] = inst.slots;
        // SAFETY: as for `Atomic`.
        unsafe {
            each_lane::<T>(core, inst, address, |core, lane, pointer| {
                let (comparand, new) = (core.lane::<T>(comparand, lane), core.lane::<T>(new, lane));
                let old = T::update(pointer, |old| if old == comparand { new } else { old });
                core.set_lane(result, lane, old);
            })
        }
    }
}

/// Calls `apply` with the checked address of each lane of the mask. All addresses are checked before the first call,
/// so that a fault leaves memory as it was.
///
/// # Safety
/// `slot` is the address's, and the immediate is as [`packed`] made it.
#[inline(always)]
unsafe fn each_lane<T>(
    core: &mut Core<'_>,
    inst: &Inst,
    slot: u32,
    apply: impl Fn(&Core<'_>, usize, *mut u8),
) -> Flow {
    let size = size_of::<T>() as u32;
    // SAFETY: the caller says so.
    let addresses = unsafe { addresses(core, slot, inst.immediate) };
    let space = space_of(inst.immediate);
    let align = align_of(inst.immediate).max(size);
    if core.instrumented
        && let Err(flow) = core.instrument(inst, &addresses, space, u64::from(size), Access::Atomic)
    {
        return flow;
    }
    let mut pointers = [std::ptr::null_mut(); WARP];
    let mask = core.mask;
    for lane in lanes_of(mask) {
        match core.locate_unchecked(
            inst,
            lane,
            space,
            addresses[lane],
            size,
            align,
            Access::Atomic,
        ) {
            Ok(pointer) => pointers[lane] = pointer,
            Err(flow) => return flow,
        }
    }
    for lane in lanes_of(mask) {
        apply(core, lane, pointers[lane]);
    }
    Flow::Next
}

#[cfg(test)]
mod tests;
