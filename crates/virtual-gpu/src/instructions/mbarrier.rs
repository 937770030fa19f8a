//! Barriers in shared memory (`mbarrier`): objects of 64 bits that count arrivals, phase by phase.

use super::atomic::{addresses, packed, space_of};
use super::barrier::let_others_run;
use super::memory::{self, Access};
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::lanes_of;
use crate::exec::memory::resolved;
use crate::fault::FaultKind;
use crate::ptx::ast::{Space, Type};

/// Bits of a count, and so the most arrivals of a phase plus one.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// The highest four bits of every object, so that other bytes are found out.
const TAG: u64 = 0xb;

/// What an object holds. A state that `mbarrier.arrive` gives is the object as the arrival found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    /// Arrivals that the phase still waits for.
    pending: u64,
    /// Arrivals of each coming phase.
    expected: u64,
    /// Counts the phases, modulo 2^20.
    phase: u64,
}

impl Object {
    fn bits(self) -> u64 {
        self.pending
            | self.expected << COUNT_BITS
            | (self.phase & COUNT_MASK) << (2 * COUNT_BITS)
            | TAG << (3 * COUNT_BITS)
    }

    fn of(bits: u64) -> Option<Object> {
        (bits >> (3 * COUNT_BITS) == TAG).then_some(Object {
            pending: bits & COUNT_MASK,
            expected: bits >> COUNT_BITS & COUNT_MASK,
            phase: bits >> (2 * COUNT_BITS) & COUNT_MASK,
        })
    }

    /// The object after so many arrivals; `None` if the phase does not wait for so many.
    fn arrived(self, count: u64) -> Option<Object> {
        let pending = self.pending.checked_sub(count)?;
        Some(match pending {
            0 => Object {
                pending: self.expected,
                phase: self.phase + 1 & COUNT_MASK,
                ..self
            },
            _ => Object { pending, ..self },
        })
    }
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Sync;
    let names = [
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "test_wait",
        "try_wait",
        "pending_count",
    ];
    let operation = form.take_any(&names).ok_or_else(|| {
        Refusal::new(format!(
            "mbarrier.{} is not supported",
            form.modifiers.join(".")
        ))
    })?;
    if form.take("expect_tx") {
        return Err(Refusal::new(
            "mbarrier objects do not count bytes of bulk copies, which are not supported",
        ));
    }
    if !form.take("b64") {
        return Err(Refusal::new("mbarrier objects are of type .b64"));
    }
    if operation == "pending_count" {
        form.done()?;
        form.expect_operands(2)?;
        let (count, state) = (
            builder.write(form, 0, Type::U32)?,
            builder.read(form, 1, Type::B64)?,
        );
        builder.emit(handler::<PendingCount>(), &[count], &[state], 0);
        return Ok(());
    }
    form.take_any(&["release", "acquire", "relaxed"]);
    form.take_any(&["cta", "cluster"]);
    let space = memory::take_space(form);
    if !matches!(space, Space::Generic | Space::Shared) {
        return Err(Refusal::new("mbarrier objects lie in shared memory"));
    }
    match operation {
        "init" => {
            form.done()?;
            form.expect_operands(2)?;
            let count = builder.read(form, 1, Type::U32)?;
            emit(form, builder, handler::<Init>(), space, None, &[count])
        }
        "inval" => {
            form.done()?;
            form.expect_operands(1)?;
            emit(form, builder, handler::<Invalidate>(), space, None, &[])
        }
        "arrive" | "arrive_drop" => decode_arrive(form, builder, space, operation == "arrive_drop"),
        _ => {
            let parity = form.take("parity");
            form.done()?;
            // The time that a try may take is no promise.
            let hint = operation == "try_wait" && form.operands.len() == 4;
            form.expect_operands(3 + usize::from(hint))?;
            let complete = builder.write(form, 0, Type::Pred)?;
            let (run, state) = if parity {
                (handler::<Wait<true>>(), builder.read(form, 2, Type::U32)?)
            } else {
                (handler::<Wait<false>>(), builder.read(form, 2, Type::B64)?)
            };
            emit(form, builder, run, space, Some(complete), &[state])
        }
    }
}

fn decode_arrive(
    form: &mut Form<'_>,
    builder: &mut Builder<'_>,
    space: Space,
    drops: bool,
) -> Result<(), Refusal> {
    let incomplete = form.take("noComplete");
    form.done()?;
    let operands = form.operands.len();
    if operands != 3 && (operands != 2 || incomplete) {
        return Err(Refusal::new(
            "an arrival gives a state and takes an address and perhaps a count",
        ));
    }
    let state = builder.write(form, 0, Type::B64)?;
    let count = match operands {
        3 => builder.read(form, 2, Type::U32)?,
        _ => builder.constant(Kind::Word, 1),
    };
    let run = match (drops, incomplete) {
        (false, false) => handler::<Arrive<false, false>>(),
        (false, true) => handler::<Arrive<false, true>>(),
        (true, false) => handler::<Arrive<true, false>>(),
        (true, true) => handler::<Arrive<true, true>>(),
    };
    emit(form, builder, run, space, Some(state), &[count])
}

/// Emits `[result,] address, sources..`; the address is the operand behind the result.
fn emit(
    form: &Form<'_>,
    builder: &mut Builder<'_>,
    run: Run,
    space: Space,
    result: Option<Value>,
    sources: &[Value],
) -> Result<(), Refusal> {
    let place = usize::from(result.is_some());
    let address = memory::address(builder, &form.operands[place], space)?;
    let immediate = packed(&address, 8)?;
    let reads: Vec<Value> = std::iter::once(address.base)
        .chain(sources.iter().copied())
        .collect();
    let writes: Vec<Value> = result.into_iter().collect();
    builder.emit(run, &writes, &reads, immediate);
    Ok(())
}

/// Decodes `cp.async.mbarrier.arrive`, of which `cp.async.mbarrier` has been taken.
pub(super) fn decode_copy_arrive(
    form: &mut Form<'_>,
    builder: &mut Builder<'_>,
) -> Result<(), Refusal> {
    builder.class = Class::Sync;
    if !form.take("arrive") || !form.take("b64") {
        return Err(Refusal::new("cp.async.mbarrier is .arrive.b64"));
    }
    let run = if form.take("noinc") {
        handler::<CopyArrive<true>>()
    } else {
        handler::<CopyArrive<false>>()
    };
    let space = memory::take_space(form);
    form.done()?;
    form.expect_operands(1)?;
    emit(form, builder, run, space, None, &[])
}

/// An object in memory.
struct Place {
    pointer: *mut u64,
    /// Its offset in shared memory.
    offset: u32,
}

impl Place {
    /// The object of a lane at the address of a slot.
    ///
    /// # Safety
    /// The slot is the address's, and the immediate that of [`emit`].
    unsafe fn of_lane(
        core: &mut Core<'_>,
        inst: &Inst,
        slot: u32,
        lane: usize,
        access: Access,
    ) -> Result<Place, Flow> {
        // SAFETY: the caller says so.
        let address = unsafe { addresses(core, slot, inst.immediate) }[lane];
        let space = space_of(inst.immediate);
        let (Space::Shared, offset) = resolved(space, address) else {
            let message = format!("mbarrier object at {address:#x}, which is not in shared memory");
            return Err(core.fail(inst, lane, FaultKind::IllegalAddress, message));
        };
        let pointer = core.locate(inst, lane, space, address, 8, 8, access)?;
        Ok(Place {
            pointer: pointer.cast(),
            offset: offset as u32,
        })
    }

    fn store(&self, bits: u64) {
        // SAFETY: located for 8 aligned bytes; only the block's own thread touches its shared memory.
        unsafe { self.pointer.write(bits) };
    }

    fn load(&self, core: &mut Core<'_>, inst: &Inst, lane: usize) -> Result<Object, Flow> {
        // SAFETY: as in `store`.
        let bits = unsafe { self.pointer.read() };
        Object::of(bits).ok_or_else(|| {
            let message = format!(
                "shared memory address {:#x} holds no mbarrier object (mbarrier.init is missing, or what it wrote was \
                 overwritten)",
                self.offset
            );
            core.fail(inst, lane, FaultKind::IllegalInstruction, message)
        })
    }

    /// Arrives so many times; the object before that.
    fn arrive(
        &self,
        core: &mut Core<'_>,
        inst: &Inst,
        lane: usize,
        count: u64,
        (drops, incomplete): (bool, bool),
    ) -> Result<Object, Flow> {
        let before = self.load(core, inst, lane)?;
        let left = Object {
            expected: before.expected - if drops { count.min(before.expected) } else { 0 },
            ..before
        };
        let after = left
            .arrived(count)
            .filter(|after| count != 0 && !(incomplete && after.phase != before.phase));
        let Some(after) = after else {
            let message = format!(
                "{count} arrivals at an mbarrier object whose phase waits for {}{}",
                before.pending,
                if incomplete {
                    ", and .noComplete must not complete it"
                } else {
                    ""
                }
            );
            return Err(core.fail(inst, lane, FaultKind::IllegalInstruction, message));
        };
        self.store(after.bits());
        if let Some(shadow) = &mut core.shadow {
            shadow.release(self.offset, &mut core.warp.clock, core.warp.index);
        }
        Ok(before)
    }
}

/// Calls `each` for the lanes of the mask until one fails.
#[inline(always)]
fn for_lanes(
    core: &mut Core<'_>,
    mut each: impl FnMut(&mut Core<'_>, usize) -> Result<(), Flow>,
) -> Flow {
    for lane in lanes_of(core.mask) {
        if let Err(flow) = each(core, lane) {
            return flow;
        }
    }
    Flow::Next
}

/// `slots = [address, count]`
struct Init;
impl Handler for Init {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        for_lanes(core, |core, lane| unsafe {
            let place = Place::of_lane(core, inst, inst.slots[0], lane, Access::Write)?;
            let count = u64::from(core.lane::<u32>(inst.slots[1], lane));
            if count == 0 || count > COUNT_MASK {
                let message =
                    format!("an mbarrier object for {count} arrivals; it takes 1 to {COUNT_MASK}");
                return Err(core.fail(inst, lane, FaultKind::IllegalInstruction, message));
            }
            let object = Object {
                pending: count,
                expected: count,
                phase: 0,
            };
            place.store(object.bits());
            Ok(())
        })
    }
}

/// `slots = [address]`
struct Invalidate;
impl Handler for Invalidate {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        for_lanes(core, |core, lane| unsafe {
            let place = Place::of_lane(core, inst, inst.slots[0], lane, Access::Atomic)?;
            place.load(core, inst, lane)?;
            place.store(0);
            Ok(())
        })
    }
}

/// `slots = [state, address, count]`
struct Arrive<const DROPS: bool, const INCOMPLETE: bool>;
impl<const DROPS: bool, const INCOMPLETE: bool> Handler for Arrive<DROPS, INCOMPLETE> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [state, address, count, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so. A lane's operands are read before its result is written.
        for_lanes(core, |core, lane| unsafe {
            let count = u64::from(core.lane::<u32>(count, lane));
            let place = Place::of_lane(core, inst, address, lane, Access::Atomic)?;
            let before = place.arrive(core, inst, lane, count, (DROPS, INCOMPLETE))?;
            core.set_lane(state, lane, before.bits());
            Ok(())
        })
    }
}

/// `slots = [complete, address, state or parity]`. Lanes that wait in vain let other warps run.
struct Wait<const PARITY: bool>;
impl<const PARITY: bool> Handler for Wait<PARITY> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [complete, address, state, ..] = inst.slots;
        let mut done = 0;
        // SAFETY: the decoder laid the slots out so.
        let flow = for_lanes(core, |core, lane| unsafe {
            let place = Place::of_lane(core, inst, address, lane, Access::Atomic)?;
            let object = place.load(core, inst, lane)?;
            let ended = if PARITY {
                object.phase & 1 != u64::from(core.lane::<u32>(state, lane)) & 1
            } else {
                let bits = core.lane::<u64>(state, lane);
                let Some(state) = Object::of(bits) else {
                    let message = format!("{bits:#x} is no state that mbarrier.arrive has given");
                    return Err(core.fail(inst, lane, FaultKind::IllegalInstruction, message));
                };
                object.phase != state.phase
            };
            if ended {
                done |= 1 << lane;
                if let Some(shadow) = &core.shadow {
                    shadow.acquire(place.offset, &mut core.warp.clock);
                }
            }
            Ok(())
        });
        if flow != Flow::Next {
            return flow;
        }
        // SAFETY: as above.
        unsafe { core.set_predicate(complete, done) };
        if done != 0 {
            core.warp.syncs = core.warp.syncs.wrapping_add(1);
        }
        if done == core.mask {
            return Flow::Next;
        }
        let_others_run(core)
    }
}

/// `slots = [count, state]`
struct PendingCount;
impl Handler for PendingCount {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        for_lanes(core, |core, lane| unsafe {
            let state = core.lane::<u64>(inst.slots[1], lane);
            core.set_lane(inst.slots[0], lane, (state & COUNT_MASK) as u32);
            Ok(())
        })
    }
}

/// `slots = [address]`: the lanes' copies arrive when they are done, and they are done at once, as fast hardware may.
/// Without `NO_INCREMENT` the phase waits for one arrival more, which is this one.
struct CopyArrive<const NO_INCREMENT: bool>;
impl<const NO_INCREMENT: bool> Handler for CopyArrive<NO_INCREMENT> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let flow = super::async_copy::perform_all(core, inst);
        if flow != Flow::Next {
            return flow;
        }
        // SAFETY: the decoder laid the slots out so.
        for_lanes(core, |core, lane| unsafe {
            let place = Place::of_lane(core, inst, inst.slots[0], lane, Access::Atomic)?;
            if NO_INCREMENT {
                place.arrive(core, inst, lane, 1, (false, false))?;
            } else {
                place.load(core, inst, lane)?;
                if let Some(shadow) = &mut core.shadow {
                    shadow.release(place.offset, &mut core.warp.clock, core.warp.index);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
