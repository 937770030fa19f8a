//! Copies without waiting from global to shared memory (`cp.async`).
//!
//! A copy is checked when it is issued and performed when its thread waits for it, as late as hardware may: a kernel
//! that does not wait sees old bytes. What is never waited for is never copied.

use super::atomic::{addresses, align_of, packed};
use super::memory::{self, Access};
use crate::decode::{Builder, Form, Kind, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, handler};
use crate::exec::lanes::{WARP, lanes_of};
use crate::fault::FaultKind;
use crate::ptx::ast::{Operand, Space, Type};

/// Copies that a warp has started and not yet waited for.
#[derive(Default)]
pub(crate) struct Copies {
    /// In the order of issue.
    queue: Vec<Copy>,
    /// How many groups each lane has committed; its next copy belongs to the group of this number.
    committed: [u32; WARP],
}

struct Copy {
    lane: u8,
    /// Bytes written.
    size: u8,
    /// Bytes read; the rest is zero.
    taken: u8,
    group: u32,
    /// Offset in shared memory.
    to: u32,
    /// Valid for `taken` bytes as long as the launch runs.
    from: *const u8,
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if !form.take("async") {
        return Err(Refusal::new(format!(
            "cp.{} is not supported",
            form.modifiers.join(".")
        )));
    }
    if form.take("bulk") {
        return Err(Refusal::new("cp.async.bulk is not supported"));
    }
    if form.take("mbarrier") {
        return super::mbarrier::decode_copy_arrive(form, builder);
    }
    if let Some(wait) = form.take_any(&["commit_group", "wait_group", "wait_all"]) {
        builder.class = Class::Sync;
        form.done()?;
        form.expect_operands(usize::from(wait == "wait_group"))?;
        match wait {
            "commit_group" => builder.emit(handler::<Commit>(), &[], &[], 0),
            "wait_all" => builder.emit(handler::<WaitAll>(), &[], &[], 0),
            _ => {
                let Some(Operand::Integer(groups)) = form.operands.first() else {
                    return Err(Refusal::new("cp.async.wait_group takes a constant"));
                };
                builder.emit(handler::<Wait>(), &[], &[], *groups);
            }
        }
        return Ok(());
    }
    builder.class = Class::Load;
    decode_copy(form, builder)
}

fn decode_copy(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let cached = form.take_any(&["ca", "cg"]);
    let cached = cached.ok_or_else(|| Refusal::new("cp.async is .ca or .cg"))?;
    let place = |name: &str| {
        form.modifiers
            .iter()
            .position(|other| other.starts_with(name))
    };
    let in_order = place("shared") < place("global");
    if form
        .take_any(&["shared", "shared::cta", "shared::cluster"])
        .is_none()
        || !form.take("global")
        || !in_order
    {
        return Err(Refusal::new("cp.async copies from .global to .shared"));
    }
    let policy = form.take("L2::cache_hint");
    form.take_any(&["L2::64B", "L2::128B", "L2::256B"]);
    form.done()?;
    let operands = form.operands.len() - usize::from(policy).min(form.operands.len());
    if operands != 3 && operands != 4 {
        return Err(Refusal::new(
            "cp.async takes two addresses, a size and perhaps what to take of the source",
        ));
    }
    let size = match form.operands[2] {
        Operand::Integer(16) => 16,
        Operand::Integer(size @ (4 | 8)) if cached == "ca" => size as u32,
        _ => {
            return Err(Refusal::new(
                "cp.async copies 4, 8 or 16 bytes, with .cg 16",
            ));
        }
    };
    let to = memory::address(builder, &form.operands[0], Space::Shared)?;
    let from = memory::address(builder, &form.operands[1], Space::Global)?;
    if to.space != Space::Shared || from.space != Space::Global {
        return Err(Refusal::new("cp.async copies from .global to .shared"));
    }
    let mut taken = builder.constant(Kind::Word, u64::from(size));
    let mut ignored = builder.constant(Kind::Predicate, 0);
    if operands == 4 {
        let is_predicate = match &form.operands[3] {
            Operand::Register(register) => builder.register_type(*register) == Type::Pred,
            operand => matches!(operand, Operand::Not(_)),
        };
        if is_predicate {
            ignored = builder.read(form, 3, Type::Pred)?;
        } else {
            taken = builder.read(form, 3, Type::U32)?;
        }
    }
    let offset = builder.constant(Kind::Long, from.offset);
    let immediate = packed(&to, size)?;
    builder.emit(
        handler::<Issue>(),
        &[],
        &[to.base, from.base, offset, taken, ignored],
        immediate,
    );
    Ok(())
}

/// `slots = [to, from, offset of from, bytes taken, ignored]`, the immediate is the address `to`, aligned to the size.
struct Issue;
impl Handler for Issue {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [to, from, offset, taken, ignored, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        let (to, from, offset, taken, ignored) = unsafe {
            (
                addresses(core, to, inst.immediate),
                *core.read::<u64>(from),
                *core.read::<u64>(offset),
                *core.read::<u32>(taken),
                core.predicate(ignored),
            )
        };
        let from: [u64; WARP] = std::array::from_fn(|lane| from[lane].wrapping_add(offset[lane]));
        match issue(core, inst, &to, &from, &taken, ignored) {
            Ok(()) => Flow::Next,
            Err(flow) => flow,
        }
    }
}

#[inline(always)]
fn issue(
    core: &mut Core<'_>,
    inst: &Inst,
    to: &[u64; WARP],
    from: &[u64; WARP],
    taken: &[u32; WARP],
    ignored: u32,
) -> Result<(), Flow> {
    let size = align_of(inst.immediate);
    if core.launch.options.count_memory {
        core.count(from, Space::Global, u64::from(size), Access::Read);
        core.count(to, Space::Shared, u64::from(size), Access::Write);
    }
    let mask = core.mask;
    for lane in lanes_of(mask) {
        let taken = if ignored >> lane & 1 != 0 {
            0
        } else {
            taken[lane]
        };
        if taken > size {
            let message =
                format!("cp.async of {size} bytes is to take {taken} bytes of the source");
            return Err(core.fail(inst, lane, FaultKind::IllegalInstruction, message));
        }
        // The bytes are written when they are waited for, so only the bounds are checked now.
        core.locate_unchecked(
            inst,
            lane,
            Space::Shared,
            to[lane],
            size,
            size,
            Access::Write,
        )?;
        let pointer = match taken {
            0 => std::ptr::null_mut(),
            _ => core.locate(
                inst,
                lane,
                Space::Global,
                from[lane],
                taken,
                size,
                Access::Read,
            )?,
        };
        if let Some(shadow) = &mut core.shadow {
            shadow.set_pending(to[lane] as u32, size, true);
        }
        let copies = &mut core.warp.copies;
        copies.queue.push(Copy {
            lane: lane as u8,
            size: size as u8,
            taken: taken as u8,
            group: copies.committed[lane],
            to: to[lane] as u32,
            from: pointer,
        });
    }
    Ok(())
}

struct Commit;
impl Handler for Commit {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, _inst: &Inst) -> Flow {
        commit(core);
        Flow::Next
    }
}

#[inline(always)]
fn commit(core: &mut Core<'_>) {
    for (lane, committed) in core.warp.copies.committed.iter_mut().enumerate() {
        *committed = committed.wrapping_add(core.mask >> lane & 1);
    }
}

/// The immediate is the number of groups that may stay under way.
struct Wait;
impl Handler for Wait {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        perform(
            core,
            inst,
            u32::try_from(inst.immediate).unwrap_or(u32::MAX),
        )
    }
}

struct WaitAll;
impl Handler for WaitAll {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        perform_all(core, inst)
    }
}

/// Performs all copies of the mask's lanes.
#[inline(always)]
pub(super) fn perform_all(core: &mut Core<'_>, inst: &Inst) -> Flow {
    commit(core);
    perform(core, inst, 0)
}

/// Performs the copies of the mask's lanes but those of their last `pending` groups.
#[inline(always)]
fn perform(core: &mut Core<'_>, inst: &Inst, pending: u32) -> Flow {
    let mut queue = std::mem::take(&mut core.warp.copies.queue);
    let mut flow = Flow::Next;
    queue.retain(|copy| {
        let lane = usize::from(copy.lane);
        let age = core.warp.copies.committed[lane].wrapping_sub(copy.group);
        if core.mask >> lane & 1 == 0 || age <= pending || flow != Flow::Next {
            return true;
        }
        if core.shadow.is_some()
            && let Err(fault) = arrived(core, inst, copy)
        {
            flow = fault;
            return true;
        }
        // SAFETY: both were located when the copy was issued: the source lives as long as the launch, and shared memory
        // as long as the block.
        unsafe {
            let to = core.shared.add(copy.to as usize);
            match (copy.size, copy.taken) {
                (16, 16) => to
                    .cast::<[u8; 16]>()
                    .write(copy.from.cast::<[u8; 16]>().read()),
                (size, taken) => {
                    if taken != 0 {
                        to.copy_from_nonoverlapping(copy.from, taken.into());
                    }
                    to.add(taken.into()).write_bytes(0, (size - taken).into());
                }
            }
        }
        false
    });
    core.warp.copies.queue = queue;
    flow
}

/// Tells the checks that a copy is performed.
#[cold]
#[inline(never)]
fn arrived(core: &mut Core<'_>, inst: &Inst, copy: &Copy) -> Result<(), Flow> {
    if let Some(shadow) = &mut core.shadow {
        shadow.set_pending(copy.to, copy.size.into(), false);
    }
    let (lane, to, size) = (copy.lane.into(), copy.to.into(), copy.size.into());
    core.check_access(inst, lane, Space::Shared, to, size, Access::Write)
}

#[cfg(test)]
mod tests;
