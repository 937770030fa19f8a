//! Races in shared memory. Each warp has a vector clock: what it knows of the others through barriers. Two accesses of
//! a byte by different warps, one of them a write, race unless the later warp knows of the earlier access. Lanes of one
//! warp race unless the warp has synchronised (`__syncwarp`, a shuffle, a vote) between the accesses.
//! Writes of the same value do not race with each other: the outcome is the same in any order.

use std::collections::HashMap;

/// A thread at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The warp's own time, from 1; 0 is never.
    pub(crate) time: u32,
    /// How often the warp's lanes had synchronised.
    pub(crate) syncs: u32,
    /// The warp.
    pub(crate) warp: u16,
    /// The lane.
    pub(crate) lane: u8,
    /// Whether the access was atomic.
    pub(crate) atomic: bool,
}

/// What is remembered of one byte.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Stamp,
    reads: [Stamp; 2],
    written: bool,
    /// What was written last, if that is known.
    value: Option<u8>,
    /// Copies that are under way to it (`cp.async` not waited for).
    pending: u8,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The byte was never written.
    Uninitialized,
    /// A `cp.async` to the byte has not been waited for.
    Pending,
    /// Another thread's access is not ordered with it.
    Race {
        /// The other access.
        other: Stamp,
        /// Whether it was a write.
        other_wrote: bool,
    },
}

/// Shared memory of one block.
#[derive(Debug, Default)]
pub(crate) struct SharedShadow {
    cells: Vec<Cell>,
    /// What those knew who arrived at `mbarrier` objects, by offset.
    arrived: HashMap<u32, Vec<u32>>,
}

impl SharedShadow {
    /// For so many bytes.
    pub(crate) fn new(bytes: u32) -> SharedShadow {
        SharedShadow {
            cells: vec![Cell::default(); bytes as usize],
            arrived: HashMap::new(),
        }
    }

    /// A warp arrives at an `mbarrier` object: those that wait for it will know what the warp knows.
    pub(crate) fn release(&mut self, offset: u32, clock: &mut [u32], warp: u32) {
        let known = self.arrived.entry(offset).or_default();
        known.resize(known.len().max(clock.len()), 0);
        join(known, clock);
        if let Some(time) = clock.get_mut(warp as usize) {
            *time += 1;
        }
    }

    /// A warp sees that a phase of an `mbarrier` object has ended.
    pub(crate) fn acquire(&self, offset: u32, clock: &mut [u32]) {
        if let Some(known) = self.arrived.get(&offset) {
            join(clock, known);
        }
    }

    /// An asynchronous copy to bytes begins or ends.
    pub(crate) fn set_pending(&mut self, offset: u32, size: u32, pending: bool) {
        for cell in self
            .cells
            .iter_mut()
            .skip(offset as usize)
            .take(size as usize)
        {
            cell.pending = if pending {
                cell.pending.saturating_add(1)
            } else {
                cell.pending.saturating_sub(1)
            };
        }
    }

    /// Remembers an access; `clock` is what the warp knows of the others' times. `values` are the bytes that
    /// are written, where they are known. Says what is wrong, with the offset.
    pub(crate) fn access(
        &mut self,
        offset: u32,
        size: u32,
        write: bool,
        stamp: Stamp,
        clock: &[u32],
        races: bool,
        values: Option<&[u8]>,
    ) -> Option<(u32, Finding)> {
        let unordered = |other: &Stamp| {
            if other.time == 0 || other.atomic && stamp.atomic {
                return false;
            }
            if other.warp == stamp.warp {
                return other.lane != stamp.lane
                    && other.time == stamp.time
                    && other.syncs == stamp.syncs;
            }
            clock
                .get(other.warp as usize)
                .is_none_or(|&known| known < other.time)
        };
        let mut found = None;
        for (index, cell) in self
            .cells
            .iter_mut()
            .enumerate()
            .skip(offset as usize)
            .take(size as usize)
        {
            let mut report = |finding| found = found.or(Some((index as u32, finding)));
            if cell.pending > 0 {
                report(Finding::Pending);
            }
            let reads = !write || stamp.atomic;
            if reads && !cell.written {
                report(Finding::Uninitialized);
            }
            let value = values.and_then(|values| values.get(index - offset as usize).copied());
            // Whichever of two equal bytes is written last, the outcome is the same.
            let same = write && value.is_some() && value == cell.value;
            if races && !same && unordered(&cell.write) {
                report(Finding::Race {
                    other: cell.write,
                    other_wrote: true,
                });
            }
            if write {
                if races {
                    for read in cell.reads.iter().filter(|read| unordered(read)) {
                        report(Finding::Race {
                            other: *read,
                            other_wrote: false,
                        });
                    }
                }
                cell.write = stamp;
                cell.reads = [Stamp::default(); 2];
                cell.written = true;
                cell.value = value;
            } else if cell.reads[0].warp != stamp.warp || cell.reads[0].lane != stamp.lane {
                cell.reads[1] = cell.reads[0];
                cell.reads[0] = stamp;
            } else {
                cell.reads[0] = stamp;
            }
        }
        found
    }
}

/// Learns what another clock knows.
fn join(clock: &mut [u32], other: &[u32]) {
    clock
        .iter_mut()
        .zip(other)
        .for_each(|(time, other)| *time = (*time).max(*other));
}
