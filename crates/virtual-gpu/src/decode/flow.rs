//! Where values live: from their first write to their last read, along every path.

use super::builder::{Builder, Origin, Successor, Value};
use super::kernel::ends;

/// Of each value, the first and the last step of its life; `None` for one that nothing reads or writes.
pub(super) type Lifetimes = Vec<Option<(u32, u32)>>;

/// The most words of 64 bits that a set of values for each block may take.
const MOST_WORDS: usize = 1 << 23;
/// The most words to go through until the sets are right.
const MOST_WORK: usize = 1 << 32;

/// The lifetimes of registers and temporaries. One stretch per value, which covers every step at which it is live.
pub(super) fn lifetimes(builder: &Builder<'_>, labels: &[u32]) -> Lifetimes {
    let steps = &builder.steps;
    let blocks = blocks(builder, labels);
    // Only values that cross a block's edge take part in the data flow.
    let tracked = |value: Value| {
        matches!(
            builder.values[value.0 as usize].1,
            Origin::Register(_) | Origin::Temporary(_) | Origin::Carry
        )
    };
    let words = builder.values.len().div_ceil(64);
    // What no compiler writes is not worth the time: its values live everywhere.
    let round = words * blocks.len();
    let everywhere = || vec![Some((0, steps.len().saturating_sub(1) as u32)); builder.values.len()];
    if round > MOST_WORDS {
        return everywhere();
    }
    let mut rounds_left = MOST_WORK / round.max(1);
    let mut uses = vec![0u64; words * blocks.len()];
    let mut kills = vec![0u64; words * blocks.len()];
    for (number, block) in blocks.iter().enumerate() {
        let base = number * words;
        for step in &steps[block.start as usize..block.end as usize] {
            let guard = step.guard.map(|(value, _)| value);
            // What a guarded step may leave alone it reads, in effect.
            let kept = step
                .guard
                .is_some()
                .then_some(&step.writes)
                .into_iter()
                .flatten();
            for &value in step.reads.iter().chain(guard.iter()).chain(kept) {
                let (word, bit) = (base + value.0 as usize / 64, 1 << (value.0 % 64));
                if tracked(value) && kills[word] & bit == 0 {
                    uses[word] |= bit;
                }
            }
            for &value in &step.writes {
                kills[base + value.0 as usize / 64] |= 1 << (value.0 % 64);
            }
        }
    }
    let mut live_in = uses.clone();
    let mut live_out = vec![0u64; words * blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        match rounds_left.checked_sub(1) {
            Some(left) => rounds_left = left,
            None => return everywhere(),
        }
        for number in (0..blocks.len()).rev() {
            let base = number * words;
            for &successor in &blocks[number].successors {
                for word in 0..words {
                    live_out[base + word] |= live_in[successor as usize * words + word];
                }
            }
            for word in 0..words {
                let new = uses[base + word] | live_out[base + word] & !kills[base + word];
                changed |= new != live_in[base + word];
                live_in[base + word] = new;
            }
        }
    }
    let mut lifetimes: Lifetimes = vec![None; builder.values.len()];
    let mut touch = |value: usize, at: u32| {
        let life = lifetimes[value].get_or_insert((at, at));
        life.0 = life.0.min(at);
        life.1 = life.1.max(at);
    };
    for (number, block) in blocks.iter().enumerate() {
        let base = number * words;
        for word in 0..words {
            for (sets, at) in [(&live_in, block.start), (&live_out, block.end - 1)] {
                let mut bits = sets[base + word];
                while bits != 0 {
                    touch(word * 64 + bits.trailing_zeros() as usize, at);
                    bits &= bits - 1;
                }
            }
        }
        for at in block.start..block.end {
            let step = &steps[at as usize];
            let guard = step.guard.map(|(value, _)| value);
            for &value in step.reads.iter().chain(&step.writes).chain(guard.iter()) {
                touch(value.0 as usize, at);
            }
        }
    }
    lifetimes
}

struct Block {
    start: u32,
    end: u32,
    successors: Vec<u32>,
}

fn blocks(builder: &Builder<'_>, labels: &[u32]) -> Vec<Block> {
    let steps = &builder.steps;
    let mut leader = vec![false; steps.len() + 1];
    leader[0] = true;
    leader[steps.len()] = true;
    for (index, step) in steps.iter().enumerate() {
        match &step.successor {
            Successor::Next => {}
            Successor::Labels(targets) | Successor::Jump(targets) => {
                leader[index + 1] = true;
                targets
                    .iter()
                    .for_each(|&label| leader[labels[label as usize] as usize] = true);
            }
            Successor::End => leader[index + 1] = true,
        }
    }
    let starts: Vec<u32> = (0..=steps.len())
        .filter(|&index| leader[index])
        .map(|index| index as u32)
        .collect();
    let block_of = |step: u32| starts.partition_point(|&start| start <= step) as u32 - 1;
    starts
        .windows(2)
        .map(|pair| {
            let successor = &steps[pair[1] as usize - 1].successor;
            let mut successors = Vec::new();
            if !ends(successor) && (pair[1] as usize) < steps.len() {
                successors.push(block_of(pair[1]));
            }
            if let Successor::Labels(targets) | Successor::Jump(targets) = successor {
                successors.extend(
                    targets
                        .iter()
                        .map(|&label| block_of(labels[label as usize])),
                );
            }
            Block {
                start: pair[0],
                end: pair[1],
                successors,
            }
        })
        .collect()
}
