//! Exchanges between the lanes of a warp: shuffles, votes, matches and reductions.
//!
//! A `.sync` instruction waits until the live lanes that its member mask names have come. Lanes that name different
//! masks exchange values only with those that name the same.

use std::marker::PhantomData;

use super::barrier::park;
use crate::decode::{Builder, Form, Kind, Refusal};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, WARP, lanes_of, same};
use crate::exec::warp::{Group, GroupState};
use crate::fault::FaultKind;
use crate::ptx::ast::{Operand, Type};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    builder.class = Class::Sync;
    match form.opcode {
        "shfl" => decode_shuffle(form, builder),
        "vote" => decode_vote(form, builder),
        "match" => decode_match(form, builder),
        "redux" => decode_reduction(form, builder),
        "activemask" => {
            take_type(form, &["b32"])?;
            form.expect_operands(1)?;
            let result = builder.write(form, 0, Type::B32)?;
            builder.emit(handler::<ActiveMask>(), &[result], &[], 0);
            Ok(())
        }
        _ => decode_elect(form, builder),
    }
}

/// Takes the type, which must be the last modifier that is left.
fn take_type(form: &mut Form<'_>, types: &[&'static str]) -> Result<&'static str, Refusal> {
    let ty = form.take_any(types);
    form.done()?;
    ty.ok_or_else(|| {
        Refusal::new(format!(
            "{} takes the types .{}",
            form.opcode,
            types.join(" .")
        ))
    })
}

/// Operand 0 as the destinations `d` and `p` of `d|p`; without `|p`, a predicate that nobody reads.
fn write_pair(
    form: &Form<'_>,
    builder: &mut Builder<'_>,
    ty: Type,
) -> Result<[crate::decode::Value; 2], Refusal> {
    match form.operands.first() {
        Some(Operand::Pair(pair)) => Ok([
            builder.destination(&pair.0, ty)?,
            builder.destination(&pair.1, Type::Pred)?,
        ]),
        _ => Ok([
            builder.write(form, 0, ty)?,
            builder.temporary(Kind::Predicate),
        ]),
    }
}

/// The members of an instruction without `.sync`: whoever is there.
const NO_MEMBERS: u64 = 1 << 32;

fn decode_shuffle(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let sync = form.take("sync");
    let mode = form.take_any(&["up", "down", "bfly", "idx"]);
    let run = match mode {
        Some("up") => handler::<Shuffle<Up>>(),
        Some("down") => handler::<Shuffle<Down>>(),
        Some("bfly") => handler::<Shuffle<Butterfly>>(),
        Some(_) => handler::<Shuffle<Index>>(),
        None => return Err(Refusal::new("a shuffle is .up, .down, .bfly or .idx")),
    };
    take_type(form, &["b32"])?;
    form.expect_operands(if sync { 5 } else { 4 })?;
    let [result, there] = write_pair(form, builder, Type::B32)?;
    let source = builder.read(form, 1, Type::B32)?;
    let by = builder.read(form, 2, Type::B32)?;
    let clamp = builder.read(form, 3, Type::B32)?;
    let members = if sync {
        builder.read(form, 4, Type::B32)?
    } else {
        clamp
    };
    let immediate = if sync { 0 } else { NO_MEMBERS };
    builder.emit(
        run,
        &[result, there],
        &[source, by, clamp, members],
        immediate,
    );
    Ok(())
}

fn decode_vote(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let sync = form.take("sync");
    let mode = form.take_any(&["all", "any", "uni", "ballot"]);
    let (run, ty, name): (Run, _, &[&str]) = match mode {
        Some("all") => (handler::<Vote<All>>(), Type::Pred, &["pred"]),
        Some("any") => (handler::<Vote<Any>>(), Type::Pred, &["pred"]),
        Some("uni") => (handler::<Vote<Uniform>>(), Type::Pred, &["pred"]),
        Some(_) => (handler::<Vote<Ballot>>(), Type::B32, &["b32"]),
        None => return Err(Refusal::new("a vote is .all, .any, .uni or .ballot")),
    };
    take_type(form, name)?;
    form.expect_operands(if sync { 3 } else { 2 })?;
    let result = builder.write(form, 0, ty)?;
    let predicate = builder.read(form, 1, Type::Pred)?;
    let members = if sync {
        builder.read(form, 2, Type::B32)?
    } else {
        builder.constant(Kind::Word, 0)
    };
    builder.emit(
        run,
        &[result],
        &[predicate, members],
        if sync { 0 } else { NO_MEMBERS },
    );
    Ok(())
}

fn decode_match(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let mode = form.take_any(&["any", "all"]);
    if !form.take("sync") {
        return Err(Refusal::new("match without .sync"));
    }
    let wide = take_type(form, &["b32", "b64"])? == "b64";
    form.expect_operands(3)?;
    let all = match mode {
        Some("all") => true,
        Some(_) => false,
        None => return Err(Refusal::new("a match is .any or .all")),
    };
    if !all && matches!(form.operands[0], Operand::Pair(_)) {
        return Err(Refusal::new("match.any has one result"));
    }
    let [result, same] = write_pair(form, builder, Type::B32)?;
    let source = builder.read(form, 1, if wide { Type::B64 } else { Type::B32 })?;
    let members = builder.read(form, 2, Type::B32)?;
    let run = match (all, wide) {
        (false, false) => handler::<Match<MatchAny, u32>>(),
        (false, true) => handler::<Match<MatchAny, u64>>(),
        (true, false) => handler::<Match<MatchAll, u32>>(),
        (true, true) => handler::<Match<MatchAll, u64>>(),
    };
    builder.emit(run, &[result, same], &[source, members], 0);
    Ok(())
}

fn decode_reduction(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if !form.take("sync") {
        return Err(Refusal::new("redux without .sync"));
    }
    let operation = form.take_any(&["add", "min", "max", "and", "or", "xor"]);
    let ty = take_type(form, &["u32", "s32", "b32"])?;
    form.expect_operands(3)?;
    let run = match (operation, ty) {
        (Some("add"), "u32" | "s32") => handler::<Reduce<Sum>>(),
        (Some("min"), "u32") => handler::<Reduce<MinUnsigned>>(),
        (Some("max"), "u32") => handler::<Reduce<MaxUnsigned>>(),
        (Some("min"), "s32") => handler::<Reduce<MinSigned>>(),
        (Some("max"), "s32") => handler::<Reduce<MaxSigned>>(),
        (Some("and"), "b32") => handler::<Reduce<And>>(),
        (Some("or"), "b32") => handler::<Reduce<Or>>(),
        (Some("xor"), "b32") => handler::<Reduce<Xor>>(),
        _ => {
            return Err(Refusal::new(
                "redux is .add, .min or .max of .u32 or .s32, or .and, .or or .xor of .b32",
            ));
        }
    };
    let result = builder.write(form, 0, Type::B32)?;
    let source = builder.read(form, 1, Type::B32)?;
    let members = builder.read(form, 2, Type::B32)?;
    builder.emit(run, &[result], &[source, members], 0);
    Ok(())
}

fn decode_elect(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if !form.take("sync") {
        return Err(Refusal::new("elect without .sync"));
    }
    form.done()?;
    form.expect_operands(2)?;
    let [leader, elected] = write_pair(form, builder, Type::B32)?;
    let members = builder.read(form, 1, Type::B32)?;
    builder.emit(handler::<Elect>(), &[leader, elected], &[members], 0);
    Ok(())
}

/// The lanes of `core.mask` in sets that exchange values, after waiting for those that are named.
struct Members {
    /// The lowest lane's set.
    first: u32,
    /// The lanes of other sets.
    others: u32,
    /// What each lane names.
    named: [u32; WARP],
    /// How to go on after the instruction.
    flow: Flow,
}

impl Members {
    /// Calls `run` with each set.
    #[inline(always)]
    fn each(&self, mut run: impl FnMut(u32)) {
        run(self.first);
        if self.others != 0 {
            self.each_other(run);
        }
    }

    #[cold]
    #[inline(never)]
    fn each_other(&self, mut run: impl FnMut(u32)) {
        let mut left = self.others;
        while left != 0 {
            let set = same(&self.named, left);
            run(set);
            left &= !set;
        }
    }
}

/// The members of an instruction whose member mask is in `slot`; `Err` is what it returns when it cannot go on.
///
/// # Safety
/// The slot is a word's of the running instruction.
#[inline(always)]
unsafe fn members(core: &mut Core<'_>, inst: &Inst, slot: u32) -> Result<Members, Flow> {
    if inst.immediate & NO_MEMBERS != 0 {
        return Ok(Members {
            first: core.mask,
            others: 0,
            named: [0; WARP],
            flow: Flow::Next,
        });
    }
    core.warp.syncs = core.warp.syncs.wrapping_add(1);
    // SAFETY: the caller says so.
    let named = *unsafe { core.read::<u32>(slot) };
    let first = same(&named, core.mask);
    let mask = named[core.mask.trailing_zeros() as usize];
    if first == core.mask && mask & core.warp.live == core.mask {
        return Ok(Members {
            first,
            others: 0,
            named,
            flow: Flow::Next,
        });
    }
    assemble(core, inst, named)
}

/// Sorts out lanes that name others than those that are here.
#[cold]
#[inline(never)]
fn assemble(core: &mut Core<'_>, inst: &Inst, named: [u32; WARP]) -> Result<Members, Flow> {
    let mut complete = 0;
    for lane in lanes_of(core.mask) {
        if named[lane] >> lane & 1 == 0 {
            let message = format!(
                "the member mask {:#010x} does not name the lane that uses it, {lane}",
                named[lane]
            );
            return Err(core.fail(inst, lane, FaultKind::LaunchFailed, message));
        }
        if named[lane] & core.warp.live & !core.mask == 0 {
            complete |= 1 << lane;
        }
    }
    if complete == 0 {
        return Err(park(core, inst));
    }
    let mut flow = Flow::Next;
    let incomplete = core.mask & !complete;
    if incomplete != 0 {
        core.active &= !incomplete;
        let (frame, pc) = (core.frame_index, core.index_of(inst));
        core.warp.groups.push(Group {
            mask: incomplete,
            frame,
            pc,
            state: GroupState::Parked,
            last_run: 0,
        });
        core.mask = complete;
        flow = Flow::Schedule;
    }
    let first = same(&named, complete);
    Ok(Members {
        first,
        others: complete & !first,
        named,
        flow,
    })
}

/// Where a lane's value comes from, and whether that lies in the segment.
trait ShuffleMode {
    /// `lane` and `by` are below 32; `low` and `high` are the segment's ends.
    fn source(lane: i32, by: i32, low: i32, high: i32, segment: i32) -> (i32, bool);
}

macro_rules! shuffle_modes {
    ($($name:ident: |$lane:ident, $by:ident, $low:ident, $high:ident, $segment:ident| $source:expr, $test:expr;)*) => {$(
        struct $name;
        impl ShuffleMode for $name {
            #[inline(always)]
            fn source($lane: i32, $by: i32, $low: i32, $high: i32, $segment: i32) -> (i32, bool) {
                let source = $source;
                let test: fn(i32, i32) -> bool = $test;
                (source, test(source, $high))
            }
        }
    )*};
}

shuffle_modes! {
    Up: |lane, by, _low, high, _segment| lane - by, |source, high| source >= high;
    Down: |lane, by, _low, high, _segment| lane + by, |source, high| source <= high;
    Butterfly: |lane, by, _low, high, _segment| lane ^ by, |source, high| source <= high;
    Index: |_lane, by, low, high, segment| low | by & !segment, |source, high| source <= high;
}

/// `slots = [d, p, a, b, c, members]`
struct Shuffle<M>(PhantomData<M>);
impl<M: ShuffleMode> Handler for Shuffle<M> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, p, a, b, c, named] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        let members = match unsafe { members(core, inst, named) } {
            Ok(members) => members,
            Err(flow) => return flow,
        };
        // A lane may read from any other, so all sources are read before the result is written. Values of lanes that
        // are not members are undefined in PTX; here they are what the register holds.
        // SAFETY: as above.
        let (values, by, clamp) = unsafe {
            (
                *core.read::<u32>(a),
                core.read::<u32>(b),
                core.read::<u32>(c),
            )
        };
        let mut there = 0;
        let mut results = [0; WARP];
        for lane in 0..WARP {
            let own = lane as i32;
            let clamp = clamp[lane] as i32;
            let segment = clamp >> 8 & 31;
            let low = own & segment;
            let high = low | clamp & 31 & !segment;
            let (source, inside) = M::source(own, by[lane] as i32 & 31, low, high, segment);
            let source = if inside { source } else { own };
            there |= u32::from(inside) << lane;
            results[lane] = values[source as usize & 31];
        }
        // SAFETY: as above.
        unsafe {
            core.store_lanes::<u32>(d, |lane| results[lane]);
            core.set_predicate(p, there);
        }
        members.flow
    }
}

/// What a vote makes of the predicates of the members.
trait VoteMode {
    /// Whether the result is a word rather than a predicate.
    const WORD: bool = false;
    /// The result: for a predicate, nonzero if true. `votes` has no bits but those of `members`.
    fn count(votes: u32, members: u32) -> u32;
}

macro_rules! votes {
    ($($name:ident: |$votes:ident, $members:ident| $holds:expr;)*) => {$(
        struct $name;
        impl VoteMode for $name {
            #[inline(always)]
            fn count($votes: u32, $members: u32) -> u32 {
                u32::from($holds)
            }
        }
    )*};
}

votes! {
    All: |votes, members| votes == members;
    Any: |votes, _members| votes != 0;
    Uniform: |votes, members| votes == members || votes == 0;
}

struct Ballot;
impl VoteMode for Ballot {
    const WORD: bool = true;
    #[inline(always)]
    fn count(votes: u32, _members: u32) -> u32 {
        votes
    }
}

/// `slots = [d, a, members]`
struct Vote<M>(PhantomData<M>);
impl<M: VoteMode> Handler for Vote<M> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, named, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        let members = match unsafe { members(core, inst, named) } {
            Ok(members) => members,
            Err(flow) => return flow,
        };
        // SAFETY: as above.
        let votes = unsafe { core.predicate(a) };
        if M::WORD {
            members.each(|set| {
                let result = M::count(votes & set, set);
                // SAFETY: as above.
                unsafe { set_lanes(core, d, set, |_| result) };
            });
        } else {
            let mut results = 0;
            members.each(|set| {
                if M::count(votes & set, set) != 0 {
                    results |= set;
                }
            });
            // SAFETY: as above.
            unsafe { core.set_predicate(d, results) };
        }
        members.flow
    }
}

/// Sets the lanes of a set.
///
/// # Safety
/// As [`Core::set_lane`].
#[inline(always)]
unsafe fn set_lanes(core: &Core<'_>, slot: u32, set: u32, value: impl Fn(usize) -> u32) {
    for lane in 0..WARP {
        if set >> lane & 1 != 0 {
            // SAFETY: the caller says what the slot holds.
            unsafe { core.set_lane::<u32>(slot, lane, value(lane)) };
        }
    }
}

/// What a match makes of the values of the members.
trait MatchMode {
    /// Calls `put` with lanes, their result and their predicate.
    fn find<T: Copy + PartialEq>(values: &[T; WARP], members: u32, put: impl FnMut(u32, u32, bool));
}

struct MatchAny;
impl MatchMode for MatchAny {
    #[inline(always)]
    fn find<T: Copy + PartialEq>(
        values: &[T; WARP],
        members: u32,
        mut put: impl FnMut(u32, u32, bool),
    ) {
        let mut left = members;
        while left != 0 {
            let set = same(values, left);
            put(set, set, true);
            left &= !set;
        }
    }
}

struct MatchAll;
impl MatchMode for MatchAll {
    #[inline(always)]
    fn find<T: Copy + PartialEq>(
        values: &[T; WARP],
        members: u32,
        mut put: impl FnMut(u32, u32, bool),
    ) {
        let all = same(values, members) == members;
        put(members, if all { members } else { 0 }, all);
    }
}

/// `slots = [d, p, a, members]`
struct Match<M, T>(PhantomData<(M, T)>);
impl<M: MatchMode, T: Lane<Raw: PartialEq>> Handler for Match<M, T> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, p, a, named, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        let members = match unsafe { members(core, inst, named) } {
            Ok(members) => members,
            Err(flow) => return flow,
        };
        // SAFETY: as above.
        let values = *unsafe { core.read::<T>(a) };
        let mut same = 0;
        members.each(|set| {
            M::find(&values, set, |lanes, result, holds| {
                // SAFETY: as above.
                unsafe { set_lanes(core, d, lanes, |_| result) };
                if holds {
                    same |= lanes;
                }
            });
        });
        // SAFETY: as above.
        unsafe { core.set_predicate(p, same) };
        members.flow
    }
}

/// An associative function.
trait Operation {
    /// What leaves the other operand as it is.
    const NEUTRAL: u32;
    /// The function.
    fn combine(a: u32, b: u32) -> u32;
}

macro_rules! operations {
    ($($name:ident: $neutral:expr, |$a:ident, $b:ident| $value:expr;)*) => {$(
        struct $name;
        impl Operation for $name {
            const NEUTRAL: u32 = $neutral;
            #[inline(always)]
            fn combine($a: u32, $b: u32) -> u32 {
                $value
            }
        }
    )*};
}

operations! {
    Sum: 0, |a, b| a.wrapping_add(b);
    MinUnsigned: u32::MAX, |a, b| a.min(b);
    MaxUnsigned: 0, |a, b| a.max(b);
    MinSigned: i32::MAX as u32, |a, b| (a as i32).min(b as i32) as u32;
    MaxSigned: i32::MIN as u32, |a, b| (a as i32).max(b as i32) as u32;
    And: u32::MAX, |a, b| a & b;
    Or: 0, |a, b| a | b;
    Xor: 0, |a, b| a ^ b;
}

/// `slots = [d, a, members]`
struct Reduce<O>(PhantomData<O>);
impl<O: Operation> Handler for Reduce<O> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, named, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        let members = match unsafe { members(core, inst, named) } {
            Ok(members) => members,
            Err(flow) => return flow,
        };
        // SAFETY: as above.
        let values = *unsafe { core.read::<u32>(a) };
        members.each(|set| {
            let of = |lane: usize| {
                if set >> lane & 1 != 0 {
                    values[lane]
                } else {
                    O::NEUTRAL
                }
            };
            let result = (0..WARP).fold(O::NEUTRAL, |sum, lane| O::combine(sum, of(lane)));
            // SAFETY: as above.
            unsafe { set_lanes(core, d, set, |_| result) };
        });
        members.flow
    }
}

/// `slots = [d]`
struct ActiveMask;
impl Handler for ActiveMask {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let mask = core.mask;
        // SAFETY: the slot is a word's.
        unsafe { core.store_lanes::<u32>(inst.slots[0], |_| mask) };
        Flow::Next
    }
}

/// `slots = [d, p, members]`
struct Elect;
impl Handler for Elect {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, p, named, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out so.
        let members = match unsafe { members(core, inst, named) } {
            Ok(members) => members,
            Err(flow) => return flow,
        };
        let mut elected = 0;
        members.each(|set| {
            elected |= set & set.wrapping_neg();
            // SAFETY: as above.
            unsafe { set_lanes(core, d, set, |_| set.trailing_zeros()) };
        });
        // SAFETY: as above.
        unsafe { core.set_predicate(p, elected) };
        members.flow
    }
}

#[cfg(test)]
mod tests;
