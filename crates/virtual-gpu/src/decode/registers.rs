//! Gives each value a slot of the frame. Values whose lives do not overlap share one: a kernel's hundreds of registers
//! become as few as fit the cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Refusal;
use super::builder::{Builder, Kind, Origin};
use super::flow::Lifetimes;

/// Where each value lies in a frame.
pub(super) struct Placement {
    /// Byte offset of each value.
    pub(super) slots: Vec<u32>,
    /// Bytes in all.
    pub(super) frame_bytes: usize,
    /// Where constants start; they end the frame.
    pub(super) constants_start: usize,
    /// 32-bit registers per thread that are in use at once.
    pub(super) registers: u32,
}

/// The most that all values of a function may take, before any share a slot: offsets have 32 bits, and each of up to 64 warps
/// of a block has a frame.
const MOST_BYTES: u64 = 64 << 20;

/// Places predicates, then words, then longs, then special registers and constants. A frame starts at a multiple of
/// 64 bytes, and so does every slot of lanes.
pub(super) fn place(builder: &Builder<'_>, lifetimes: &Lifetimes) -> Result<Placement, Refusal> {
    // An upper bound without any sharing, so that no offset below can wrap.
    let most: u64 = builder
        .values
        .iter()
        .map(|(kind, _)| kind.bytes() as u64)
        .sum();
    if most > MOST_BYTES {
        return Err(Refusal::new(format!(
            "its registers and constants need {most} bytes a warp, at most {MOST_BYTES} are supported"
        )));
    }
    let mut slots = vec![0; builder.values.len()];
    let shared = |origin| {
        matches!(
            origin,
            Origin::Register(_) | Origin::Temporary(_) | Origin::Carry
        )
    };
    let mut end = 0;
    let mut registers = 0;
    for kind in [Kind::Predicate, Kind::Word, Kind::Long] {
        let mut values: Vec<(u32, u32, usize)> = Vec::new();
        for (index, &(of, origin)) in builder.values.iter().enumerate() {
            if of == kind && shared(origin) {
                let (start, last) = lifetimes[index].unwrap_or((0, 0));
                values.push((start, last, index));
            }
        }
        values.sort_unstable();
        let mut free = BinaryHeap::new();
        let mut busy: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        let mut count = 0;
        for (start, last, index) in values {
            // A slot is free again from the step of its last use on: steps read before they write.
            while let Some(&Reverse((until, slot))) = busy.peek() {
                if until > start {
                    break;
                }
                busy.pop();
                free.push(Reverse(slot));
            }
            let Reverse(slot) = free.pop().unwrap_or_else(|| {
                count += 1;
                Reverse(count - 1)
            });
            slots[index] = end + slot * kind.bytes() as u32;
            // Two results of one step must not share a slot, so a result that nobody reads lives for one step.
            busy.push(Reverse((last.max(start + 1), slot)));
        }
        end = (end + count * kind.bytes() as u32).next_multiple_of(64);
        registers += count * (kind.bytes() as u32 / 128);
    }
    for (index, &(kind, origin)) in builder.values.iter().enumerate() {
        if matches!(origin, Origin::Special(_)) {
            slots[index] = end;
            end += kind.bytes() as u32;
        }
    }
    let constants_start = end as usize;
    for kind in [Kind::Long, Kind::Word, Kind::Predicate] {
        for (index, &(of, origin)) in builder.values.iter().enumerate() {
            if of == kind && matches!(origin, Origin::Constant(_)) {
                slots[index] = end;
                end += kind.bytes() as u32;
            }
        }
    }
    Ok(Placement {
        slots,
        frame_bytes: end as usize,
        constants_start,
        registers,
    })
}
