//! Barriers of a block: who waits where, and when they all go on.

use super::core::Core;
use super::warp::{Arrival, GroupState, Warp};
use crate::instructions::barrier;

/// Threads that have arrived without waiting, each with what its warp knew (see [`crate::check::shared`]).
pub(super) type Arrivals = Vec<(Arrival, Vec<u32>)>;

/// Lets the groups go on whose barrier is complete; whether there were any.
pub(super) fn release(
    core: &mut Core<'_>,
    warps: &mut [Warp<'_>],
    arrivals: &mut Arrivals,
) -> bool {
    let mut any = false;
    for (id, count) in waited_for(warps) {
        let groups = || warps.iter().flat_map(|warp| &warp.groups);
        let at_barrier =
            |state| matches!(state, GroupState::Barrier { id: other, .. } if other == id);
        let waiting: u32 = warps
            .iter()
            .map(|warp| {
                let waits = warp.groups.iter().filter(|group| at_barrier(group.state));
                let lanes = waits.fold(0, |lanes, group| lanes | group.mask);
                if count.is_some() {
                    counts_for(lanes, warp.live)
                } else {
                    lanes.count_ones()
                }
            })
            .sum();
        let arrived: u32 = arrivals
            .iter()
            .filter(|(arrival, _)| arrival.id == id)
            .map(|(arrival, _)| arrival.threads)
            .sum();
        let wanted = count.unwrap_or_else(|| warps.iter().map(|warp| warp.live.count_ones()).sum());
        if waiting + arrived < wanted {
            continue;
        }
        let (mut count_true, mut total) = (0, 0);
        for group in groups() {
            if let GroupState::Barrier {
                id: other,
                reduction: Some(reduction),
                ..
            } = group.state
                && other == id
            {
                count_true += (reduction.predicate & group.mask).count_ones();
                total += group.mask.count_ones();
            }
        }
        // Those that waited now know what all who came knew, and their next time begins.
        let mut joined: Vec<u32> = Vec::new();
        let waits = |warp: &Warp<'_>| warp.groups.iter().any(|group| at_barrier(group.state));
        let passed = arrivals
            .iter()
            .filter(|(arrival, _)| arrival.id == id)
            .map(|(_, clock)| clock);
        for clock in passed.chain(
            warps
                .iter()
                .filter(|warp| waits(warp))
                .map(|warp| &warp.clock),
        ) {
            joined.resize(joined.len().max(clock.len()), 0);
            joined
                .iter_mut()
                .zip(clock)
                .for_each(|(joined, time)| *joined = (*joined).max(*time));
        }
        for warp in warps
            .iter_mut()
            .filter(|warp| waits(warp) && !warp.clock.is_empty())
        {
            warp.clock.clone_from(&joined);
            warp.clock[warp.index as usize] += 1;
        }
        for warp in warps.iter_mut() {
            for group in &mut warp.groups {
                let GroupState::Barrier {
                    id: other,
                    reduction,
                    ..
                } = group.state
                else {
                    continue;
                };
                if other != id {
                    continue;
                }
                if let (Some(reduction), Some(frame)) =
                    (reduction, &warp.frames[group.frame as usize])
                {
                    // SAFETY: the slot was recorded by the group's instruction, for this frame.
                    unsafe {
                        let registers = frame.registers.pointer();
                        barrier::finish(
                            registers,
                            reduction.slot,
                            reduction.kind,
                            group.mask,
                            count_true,
                            total,
                        );
                    }
                }
                group.state = GroupState::Ready;
            }
        }
        arrivals.retain(|(arrival, _)| arrival.id != id);
        core.passed_barrier();
        any = true;
    }
    any
}

/// How many threads the lanes of a warp count for at a barrier that is given a number of threads: a warp whose live lanes
/// have all come counts as a whole, as in hardware; a part of it counts its lanes.
pub(crate) fn counts_for(lanes: u32, live: u32) -> u32 {
    if lanes != 0 && lanes == live {
        32
    } else {
        lanes.count_ones()
    }
}

/// The barriers that groups wait at, each with its count.
fn waited_for(warps: &[Warp<'_>]) -> Vec<(u32, Option<u32>)> {
    let mut found: Vec<(u32, Option<u32>)> = Vec::new();
    for group in warps.iter().flat_map(|warp| &warp.groups) {
        if let GroupState::Barrier { id, count, .. } = group.state
            && !found.iter().any(|entry| entry.0 == id)
        {
            found.push((id, count));
        }
    }
    found
}

/// Who waits where, for a message.
pub(super) fn describe(warps: &[Warp<'_>]) -> String {
    let live: u32 = warps.iter().map(|warp| warp.live.count_ones()).sum();
    let waiting: Vec<String> = waited_for(warps)
        .into_iter()
        .map(|(id, count)| {
            let groups = warps.iter().flat_map(|warp| &warp.groups);
            let threads: u32 = groups
                .filter(|group| matches!(group.state, GroupState::Barrier { id: other, .. } if other == id))
                .map(|group| group.mask.count_ones())
                .sum();
            let of = count.map_or_else(|| format!("all {live}"), |count| count.to_string());
            format!("{threads} of {of} threads wait at barrier {id}")
        })
        .collect();
    match waiting.is_empty() {
        true => format!("{live} threads have not ended, none waits at a barrier"),
        false => waiting.join(", "),
    }
}
