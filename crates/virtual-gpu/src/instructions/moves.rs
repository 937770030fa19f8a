//! `mov`, `cvta`, `isspacep`, and special registers that change.

use crate::decode::builder::Place;
use crate::decode::{Builder, Form, Kind, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Function1, Lane, Map1};
use crate::exec::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::ptx::ast::{Operand, Special, Symbol, Type};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Move;
    match form.opcode {
        "mov" => mov(form, builder),
        "cvta" => cvta(form, builder),
        "isspacep" => isspacep(form, builder),
        other => Err(Refusal::new(format!(
            "the instruction {other} is not supported"
        ))),
    }
}

fn mov(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let ty = form.take_type()?;
    form.done()?;
    form.expect_operands(2)?;
    match (&form.operands[0], &form.operands[1]) {
        (Operand::Vector(parts), source) => {
            let part = part_type(ty, parts.len())?;
            let value = builder.source(source, ty)?;
            let writes = parts
                .iter()
                .map(|part_operand| builder.destination(part_operand, part))
                .collect::<Result<Vec<_>, _>>()?;
            builder.emit(unpack(ty, parts.len())?, &writes, &[value], 0);
            Ok(())
        }
        (target, Operand::Vector(parts)) => {
            let part = part_type(ty, parts.len())?;
            let reads = parts
                .iter()
                .map(|operand| builder.source(operand, part))
                .collect::<Result<Vec<_>, _>>()?;
            let result = builder.destination(target, ty)?;
            builder.emit(pack(ty, parts.len())?, &[result], &reads, 0);
            Ok(())
        }
        (target, source) => {
            let value = builder.source(source, ty)?;
            let result = builder.destination(target, ty)?;
            builder.emit(copy(Kind::of(ty)), &[result], &[value], 0);
            Ok(())
        }
    }
}

/// Copies a value of a kind; `slots = [d, a]`.
pub(super) fn copy(kind: Kind) -> Run {
    match kind {
        Kind::Predicate => handler::<MovePredicate>(),
        Kind::Word => handler::<Map1<Same<u32>>>(),
        Kind::Long => handler::<Map1<Same<u64>>>(),
    }
}

/// The type of one of `count` parts.
fn part_type(ty: Type, count: usize) -> Result<Type, Refusal> {
    match ty.size() as usize / count.max(1) {
        1 if count > 1 => Ok(Type::B8),
        2 if count > 1 => Ok(Type::B16),
        4 if count > 1 => Ok(Type::B32),
        _ => Err(Refusal::new(format!(
            "{ty:?} does not consist of {count} parts"
        ))),
    }
}

fn pack(ty: Type, count: usize) -> Result<Run, Refusal> {
    match (ty.size(), count) {
        (2, 2) => Ok(handler::<Pack<u32, 8, 2>>()),
        (4, 2) => Ok(handler::<Pack<u32, 16, 2>>()),
        (4, 4) => Ok(handler::<Pack<u32, 8, 4>>()),
        (8, 2) => Ok(handler::<Pack<u64, 32, 2>>()),
        (8, 4) => Ok(handler::<Pack<u64, 16, 4>>()),
        _ => Err(Refusal::new(format!(
            "{ty:?} of {count} parts is not supported"
        ))),
    }
}

fn unpack(ty: Type, count: usize) -> Result<Run, Refusal> {
    match (ty.size(), count) {
        (2, 2) => Ok(handler::<Unpack<u32, 8, 2>>()),
        (4, 2) => Ok(handler::<Unpack<u32, 16, 2>>()),
        (4, 4) => Ok(handler::<Unpack<u32, 8, 4>>()),
        (8, 2) => Ok(handler::<Unpack<u64, 32, 2>>()),
        (8, 4) => Ok(handler::<Unpack<u64, 16, 4>>()),
        _ => Err(Refusal::new(format!(
            "{ty:?} of {count} parts is not supported"
        ))),
    }
}

struct Same<T>(T);
impl<T: Lane> Function1 for Same<T> {
    type A = T;
    type D = T;
    #[inline(always)]
    fn call(a: T) -> T {
        a
    }
}

/// `slots = [d, a]`, predicates.
struct MovePredicate;
impl Handler for MovePredicate {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: both are predicates.
        unsafe { core.set_predicate(inst.slots[0], core.predicate(inst.slots[1])) };
        Flow::Next
    }
}

/// A whole made of parts, in 64 bits so that one formula serves both widths.
trait Whole: Lane {
    fn to_bits(self) -> u64;
    fn of_bits(bits: u64) -> Self;
}

impl Whole for u32 {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        u64::from(self)
    }
    #[inline(always)]
    fn of_bits(bits: u64) -> u32 {
        bits as u32
    }
}

impl Whole for u64 {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self
    }
    #[inline(always)]
    fn of_bits(bits: u64) -> u64 {
        bits
    }
}

/// `slots = [d, parts..]`, the first part lowest.
struct Pack<T, const BITS: u32, const COUNT: usize>(T);
impl<T: Whole, const BITS: u32, const COUNT: usize> Handler for Pack<T, BITS, COUNT> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let low = (1u64 << BITS) - 1;
        // SAFETY: the decoder laid out a whole and `COUNT` words; kinds that differ never overlap, and the same lane
        // is read before it is written.
        unsafe {
            core.store_lanes(inst.slots[0], |lane| {
                let mut bits = 0;
                for part in 0..COUNT {
                    let value: u32 = core.lane(inst.slots[1 + part], lane);
                    bits |= (u64::from(value) & low) << (BITS * part as u32);
                }
                T::of_bits(bits)
            });
        }
        Flow::Next
    }
}

/// `slots = [parts.., a]`
struct Unpack<T, const BITS: u32, const COUNT: usize>(T);
impl<T: Whole, const BITS: u32, const COUNT: usize> Handler for Unpack<T, BITS, COUNT> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let low = (1u64 << BITS) - 1;
        // SAFETY: the decoder laid out `COUNT` words and a whole, which is copied before parts are written.
        unsafe {
            let whole = *core.read::<T>(inst.slots[COUNT]);
            for part in 0..COUNT {
                core.store_lanes(inst.slots[part], |lane| {
                    (T::from_raw(whole[lane]).to_bits() >> (BITS * part as u32) & low) as u32
                });
            }
        }
        Flow::Next
    }
}

/// `slots = [d]`: the address of the immediate's offset in the frame's local memory.
pub(crate) struct LocalAddress;
impl Handler for LocalAddress {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let address = u64::from(core.local_base).wrapping_add(inst.immediate);
        // SAFETY: the decoder laid out 64 bits.
        unsafe { core.store_lanes(inst.slots[0], |_| address) };
        Flow::Next
    }
}

/// `slots = [d, a]`: adds the immediate.
struct AddImmediate;
impl Handler for AddImmediate {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, ..] = inst.slots;
        // SAFETY: both have 64 bits.
        unsafe {
            core.store_lanes(d, |lane| {
                core.lane::<u64>(a, lane).wrapping_add(inst.immediate)
            })
        };
        Flow::Next
    }
}

/// Where a space's window starts; global memory has none.
fn window(form: &mut Form<'_>) -> Result<u64, Refusal> {
    Ok(
        match form.take_any(&[
            "global",
            "const",
            "shared",
            "shared::cta",
            "shared::cluster",
            "local",
            "param",
            "param::entry",
        ]) {
            Some("shared" | "shared::cta" | "shared::cluster") => SHARED_WINDOW,
            Some("local") => LOCAL_WINDOW,
            Some("param" | "param::entry") => PARAM_WINDOW,
            Some(_) => 0,
            None => {
                return Err(Refusal::new(
                    "the instruction names no state space that is supported",
                ));
            }
        },
    )
}

fn cvta(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let to = form.take("to");
    let mut window = window(form)?;
    let ty = form.take_type()?;
    form.done()?;
    form.expect_operands(2)?;
    // A device function's parameters are local memory.
    if let Operand::Symbol(symbol @ (Symbol::Param(_) | Symbol::Return(_) | Symbol::Body(_)), _) =
        form.operands[1]
        && let Place::Local(_) = builder.place(symbol)?
    {
        window = LOCAL_WINDOW;
    }
    let value = builder.read(form, 1, ty)?;
    let result = builder.write(form, 0, ty)?;
    if Kind::of(ty) != Kind::Long {
        return Err(Refusal::new("addresses of 32 bits are not supported"));
    }
    let offset = if to { window.wrapping_neg() } else { window };
    builder.emit(handler::<AddImmediate>(), &[result], &[value], offset);
    Ok(())
}

fn isspacep(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if form.modifiers.contains(&"const") {
        // Constants lie among the rest of global memory here.
        return Err(Refusal::new("isspacep.const is not supported"));
    }
    let window = window(form)?;
    form.done()?;
    form.expect_operands(2)?;
    let value = builder.read(form, 1, Type::U64)?;
    let result = builder.write(form, 0, Type::Pred)?;
    builder.emit(handler::<InWindow>(), &[result], &[value], window >> 56);
    Ok(())
}

/// `slots = [p, a]`: whether the address's top byte is the immediate.
struct InWindow;
impl Handler for InWindow {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: a predicate and 64 bits.
        unsafe {
            let addresses = core.read::<u64>(inst.slots[1]);
            let bits = addresses.iter().rev().fold(0, |bits, address| {
                bits << 1 | u32::from(address >> 56 == inst.immediate)
            });
            core.set_predicate(inst.slots[0], bits);
        }
        Flow::Next
    }
}

/// The handler that reads a special register whose value changes while a warp runs (or is wide); `slots = [d]`.
pub(crate) fn changing_special(special: Special) -> Option<Run> {
    Some(match special {
        Special::Clock => handler::<Read<{ CLOCK }, false>>(),
        Special::ClockHi => handler::<Read<{ CLOCK_HIGH }, false>>(),
        Special::Clock64 => handler::<Read<{ CLOCK }, true>>(),
        Special::GlobalTimer => handler::<Read<{ TIMER }, true>>(),
        Special::GlobalTimerLo => handler::<Read<{ TIMER }, false>>(),
        Special::GlobalTimerHi => handler::<Read<{ TIMER_HIGH }, false>>(),
        Special::Gridid => handler::<Read<{ GRID }, true>>(),
        _ => return None,
    })
}

const CLOCK: u8 = 0;
const CLOCK_HIGH: u8 = 1;
const TIMER: u8 = 2;
const TIMER_HIGH: u8 = 3;
const GRID: u8 = 4;

struct Read<const WHAT: u8, const WIDE: bool>;
impl<const WHAT: u8, const WIDE: bool> Handler for Read<WHAT, WIDE> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // Two readings of a clock differ, also within a straight run of instructions.
        core.clock += 1;
        let clock = core.clock + u64::from(core.index_of(inst) - core.run_start);
        let value = match WHAT {
            CLOCK => clock,
            CLOCK_HIGH => clock >> 32,
            TIMER => core.launch.host.nanoseconds(),
            TIMER_HIGH => core.launch.host.nanoseconds() >> 32,
            _ => core.launch.host.grid_id(),
        };
        // SAFETY: the decoder laid out the width.
        unsafe {
            if WIDE {
                core.store_lanes(inst.slots[0], |_| value);
            } else {
                core.store_lanes(inst.slots[0], |_| value as u32);
            }
        }
        Flow::Next
    }
}
