//! Barriers of a block and of a warp, and fences.

use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, handler};
use crate::exec::lanes::{WARP, lanes_of};
use crate::exec::rendezvous::counts_for;
use crate::exec::warp::{Arrival, BarrierReduction, GroupState, Reduction};
use crate::fault::FaultKind;
use crate::ptx::ast::{Operand, Type};

/// Writes the result of a reduction to the lanes of a group that a barrier lets go on.
///
/// # Safety
/// `registers` is the frame that `slot` was recorded for in [`BarrierReduction`] with this `kind`.
pub(crate) unsafe fn finish(
    registers: *mut u8,
    slot: u32,
    kind: Reduction,
    mask: u32,
    count_true: u32,
    total: u32,
) {
    // SAFETY: the caller says that the slot lies in the frame.
    let place = unsafe { registers.add(slot as usize) };
    let holds = match kind {
        Reduction::Count => {
            // SAFETY: the slot of a word has 32 lanes.
            let lanes = unsafe { &mut *place.cast::<[u32; WARP]>() };
            for (lane, value) in lanes.iter_mut().enumerate() {
                if mask >> lane & 1 != 0 {
                    *value = count_true;
                }
            }
            return;
        }
        Reduction::And => count_true == total,
        Reduction::Or => count_true != 0,
    };
    // SAFETY: the slot of a predicate is one word.
    let word = unsafe { &mut *place.cast::<u32>() };
    *word = if holds { *word | mask } else { *word & !mask };
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Sync;
    match form.opcode {
        // Lanes and blocks see memory in the order of execution: host atomics and stores are ordered by the host.
        "membar" | "fence" => {
            decode_fence(form)?;
            builder.emit(handler::<Fence>(), &[], &[], 0);
            Ok(())
        }
        _ => {
            if form.take("warp") {
                return decode_warp(form, builder);
            }
            decode_block(form, builder)
        }
    }
}

fn decode_fence(form: &mut Form<'_>) -> Result<(), Refusal> {
    if form
        .modifiers
        .iter()
        .any(|name| matches!(*name, "proxy" | "mbarrier_init") || name.starts_with("proxy::"))
    {
        return Err(Refusal::new("fences between proxies are not supported"));
    }
    form.take_any(&["sc", "acq_rel", "acquire", "release"]);
    form.take_any(&["cta", "cluster", "gpu", "sys", "gl"]);
    form.done()?;
    form.expect_operands(0)
}

fn decode_warp(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if !form.take("sync") {
        return Err(Refusal::new("bar.warp without .sync"));
    }
    form.done()?;
    form.expect_operands(1)?;
    let members = builder.read(form, 0, Type::B32)?;
    builder.emit(handler::<WarpBarrier>(), &[], &[members], 0);
    Ok(())
}

/// What a block barrier does, in the low bits of the immediate.
const SYNC: u64 = 0;
const ARRIVE: u64 = 1;
const COUNT: u64 = 2;
const AND: u64 = 3;
const OR: u64 = 4;
const KIND: u64 = 7;
/// All lanes of the warp execute it together.
const ALIGNED: u64 = 8;
/// It waits for a number of threads, rather than for all of the block.
const COUNTED: u64 = 16;

fn decode_block(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if form.modifiers.iter().any(|name| matches!(*name, "cluster")) {
        return Err(Refusal::new("barriers of clusters are not supported"));
    }
    form.take("cta");
    // `bar` is `barrier.aligned`.
    let aligned = form.take("aligned") || form.opcode == "bar";
    let kind = match form.take_any(&["sync", "arrive", "red"]) {
        Some("sync") => SYNC,
        Some("arrive") => ARRIVE,
        Some(_) => match (
            form.take_any(&["popc", "and", "or"]),
            form.take_any(&["u32", "pred"]),
        ) {
            (Some("popc"), Some("u32")) => COUNT,
            (Some("and"), Some("pred")) => AND,
            (Some("or"), Some("pred")) => OR,
            _ => {
                return Err(Refusal::new(
                    "a barrier's reduction is .popc.u32, .and.pred or .or.pred",
                ));
            }
        },
        None => return Err(Refusal::new("a barrier is .sync, .arrive or .red")),
    };
    form.done()?;
    // [d,] a [, b] [, p]
    let operands = form.operands.len();
    let (before, after) = if kind >= COUNT { (1, 1) } else { (0, 0) };
    let counted = match operands.checked_sub(before + 1 + after) {
        Some(0) if kind != ARRIVE => false,
        Some(1) => true,
        _ => {
            return Err(Refusal::new(format!(
                "{operands} operands do not fit this barrier"
            )));
        }
    };
    let result = match kind {
        COUNT => Some(builder.write(form, 0, Type::U32)?),
        AND | OR => Some(builder.write(form, 0, Type::Pred)?),
        _ => None,
    };
    if let Operand::Integer(id @ 16..) = form.operands[before] {
        return Err(Refusal::new(format!(
            "barrier {id}; a block has barriers 0 to 15"
        )));
    }
    if counted
        && let Operand::Integer(threads) = form.operands[before + 1]
        && (threads == 0 || threads > 1024 || !threads.is_multiple_of(32))
    {
        return Err(Refusal::new(format!(
            "a barrier of {threads} threads; it must be a multiple of 32 up to 1024"
        )));
    }
    let id = builder.read(form, before, Type::U32)?;
    let count = if counted {
        builder.read(form, before + 1, Type::U32)?
    } else {
        id
    };
    let predicate = match kind {
        COUNT | AND | OR => builder.read(form, operands - 1, Type::Pred)?,
        _ => builder.constant(Kind::Predicate, 0),
    };
    let immediate = kind | if aligned { ALIGNED } else { 0 } | if counted { COUNTED } else { 0 };
    let result: Vec<Value> = result.into_iter().collect();
    let run = if result.is_empty() {
        handler::<BlockBarrier<0>>()
    } else {
        handler::<BlockBarrier<1>>()
    };
    builder.emit(run, &result, &[id, count, predicate], immediate);
    Ok(())
}

struct Fence;
impl Handler for Fence {
    #[inline(always)]
    unsafe fn run(_core: &mut Core<'_>, _inst: &Inst) -> Flow {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Flow::Next
    }
}

/// `slots = [members]`. Lanes may wait for each other at different barriers of the text.
struct WarpBarrier;
impl Handler for WarpBarrier {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the slot is a word's.
        let masks = *unsafe { core.read::<u32>(inst.slots[0]) };
        let run = inst.run as usize;
        let mut wanted = 0;
        for (lane, mask) in masks.iter().enumerate() {
            if core.mask >> lane & 1 != 0 {
                wanted |= mask & core.warp.live;
            }
        }
        if wanted & !core.mask == 0 {
            core.warp.syncs = core.warp.syncs.wrapping_add(1);
            return Flow::Next;
        }
        let frames = &core.warp.frames;
        let waits = |group: &crate::exec::warp::Group| {
            let frame = frames[group.frame as usize]
                .as_ref()
                .expect("a group's frame");
            group.state == GroupState::Parked
                && frame.code.instructions[group.pc as usize].run as usize == run
        };
        let others: Vec<bool> = core.warp.groups.iter().map(waits).collect();
        let there = core
            .warp
            .groups
            .iter()
            .zip(&others)
            .filter(|(_, waits)| **waits);
        let come = there.fold(core.mask, |come, (group, _)| come | group.mask);
        if wanted & !come != 0 {
            return park(core, inst);
        }
        core.warp.syncs = core.warp.syncs.wrapping_add(1);
        for (group, waits) in core.warp.groups.iter_mut().zip(others) {
            if waits && group.mask & wanted != 0 {
                group.state = GroupState::Ready;
                group.pc += 1;
            }
        }
        Flow::Schedule
    }
}

/// Lets the lanes of `core.mask` wait at the instruction until others join; lanes of the group that the guard holds
/// back go on.
pub(super) fn park(core: &mut Core<'_>, inst: &Inst) -> Flow {
    let rest = core.active & !core.mask;
    if rest != 0 {
        let next = core.index_of(inst) + 1;
        core.split(rest, next);
    }
    core.state = GroupState::Parked;
    Flow::Schedule
}

/// Warp instructions that a wait in vain costs, so that an endless one meets the budget.
const WAIT_COST: u64 = 64;

/// Lets the group, which has looked for something in vain, go on when the block's other warps have had their turn.
pub(super) fn let_others_run(core: &mut Core<'_>) -> Flow {
    core.fuel = core.fuel.saturating_sub(WAIT_COST);
    core.state = GroupState::Waiting;
    Flow::Schedule
}

/// Whether all 32 lanes are here, for an instruction that a whole warp executes; if not, what to return.
#[inline(always)]
pub(super) fn whole_warp(core: &mut Core<'_>, inst: &Inst) -> Result<(), Flow> {
    if core.mask == u32::MAX {
        Ok(())
    } else {
        Err(part_of_warp(core, inst))
    }
}

#[cold]
#[inline(never)]
fn part_of_warp(core: &mut Core<'_>, inst: &Inst) -> Flow {
    if core.mask != core.warp.live {
        return park(core, inst);
    }
    let missing = !core.mask;
    let lane = core.mask.trailing_zeros() as usize;
    let message = format!(
        "all 32 lanes of a warp must execute this, but those of the mask {missing:#010x} have exited or do \
                 not exist (is the block size a multiple of 32?)"
    );
    core.fail(inst, lane, FaultKind::IllegalInstruction, message)
}

/// `slots = [result (if RESULTS is 1), id, count, predicate]`, `immediate`: the kind and flags above.
struct BlockBarrier<const RESULTS: usize>;
impl<const RESULTS: usize> Handler for BlockBarrier<RESULTS> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        unsafe { at_block_barrier(core, inst, RESULTS) }
    }
}

/// # Safety
/// The instruction's slots are those of [`BlockBarrier`].
unsafe fn at_block_barrier(core: &mut Core<'_>, inst: &Inst, results: usize) -> Flow {
    let kind = inst.immediate & KIND;
    let first = core.mask.trailing_zeros() as usize;
    if inst.immediate & ALIGNED != 0 && core.mask != core.warp.live {
        if core.mask != core.active {
            let message = format!(
                "divergent barrier: the predicate of an aligned barrier holds for the lanes {:#010x} of {:#010x}; all \
                 threads of a warp must take it together",
                core.mask, core.active
            );
            return core.fail(inst, first, FaultKind::LaunchFailed, message);
        }
        core.state = GroupState::Parked;
        return Flow::Schedule;
    }
    // SAFETY: the caller says what the slots hold.
    let (ids, counts, predicate) = unsafe {
        (
            *core.read::<u32>(inst.slots[results]),
            *core.read::<u32>(inst.slots[results + 1]),
            core.predicate(inst.slots[results + 2]) & core.mask,
        )
    };
    let (id, count) = (ids[first], counts[first]);
    let counted = inst.immediate & COUNTED != 0;
    let lanes = lanes_of(core.mask);
    if lanes
        .clone()
        .any(|lane| ids[lane] != id || counted && counts[lane] != count)
    {
        let message =
            "the threads of a warp name different barriers, or different numbers of threads"
                .to_string();
        return core.fail(inst, first, FaultKind::LaunchFailed, message);
    }
    if id >= 16 {
        let message = format!("barrier {id} does not exist: they are numbered 0 to 15");
        return core.fail(inst, first, FaultKind::IllegalInstruction, message);
    }
    let threads = core
        .launch
        .threads
        .iter()
        .product::<u32>()
        .next_multiple_of(WARP as u32);
    if counted && (count == 0 || count % WARP as u32 != 0 || count > threads) {
        let message = format!(
            "barrier {id} for {count} threads: the number must be a multiple of 32, at most the {threads} of the block"
        );
        return core.fail(inst, first, FaultKind::IllegalInstruction, message);
    }
    if kind == ARRIVE {
        core.arrivals.push(Arrival {
            id,
            count,
            threads: counts_for(core.mask, core.warp.live),
        });
        return Flow::Next;
    }
    let rest = core.active & !core.mask;
    if rest != 0 {
        let next = core.index_of(inst) + 1;
        core.split(rest, next);
    }
    let reduction = |kind| {
        Some(BarrierReduction {
            kind,
            slot: inst.slots[0],
            predicate,
        })
    };
    core.state = GroupState::Barrier {
        id,
        count: counted.then_some(count),
        reduction: match kind {
            COUNT => reduction(Reduction::Count),
            AND => reduction(Reduction::And),
            OR => reduction(Reduction::Or),
            _ => None,
        },
    };
    Flow::Schedule
}

#[cfg(test)]
mod tests;
