//! Checks that only a virtual GPU can do: what is remembered of bytes and of commands to find uninitialised reads and
//! races. Global memory is here, shared memory in [`shared`].

pub(crate) mod shared;

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The order of a device's commands: launches, copies and memsets.
pub(crate) trait Order: Sync {
    /// Whether a command had ended before another began, by streams, events and synchronisation.
    fn before(&self, earlier: u32, later: u32) -> bool;
    /// What a message says of a command: its kind, name and stream.
    fn describe(&self, command: u32) -> String;
}

/// What the checks remember of an allocation's bytes.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// A bit for each byte that was written.
    written: Vec<AtomicU8>,
    /// Commands that touched each word of 4 bytes.
    cells: Vec<Cell>,
}

/// Numbers of commands, from 1; 0 is none.
#[derive(Debug, Default)]
struct Cell {
    write: AtomicU32,
    reads: [AtomicU32; 2],
}

/// Two commands that are not ordered and touch the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// First byte, from the allocation's start.
    pub offset: u64,
    /// The earlier command.
    pub other: u32,
    /// Whether the earlier command wrote.
    pub other_wrote: bool,
}

impl Shadow {
    /// A shadow for an allocation of so many bytes, none of them written.
    pub(crate) fn new(bytes: usize, uninitialized: bool, races: bool) -> Shadow {
        let written = if uninitialized { bytes.div_ceil(8) } else { 0 };
        let cells = if races { bytes.div_ceil(4) } else { 0 };
        Shadow {
            written: (0..written).map(|_| AtomicU8::new(0)).collect(),
            cells: (0..cells).map(|_| Cell::default()).collect(),
        }
    }

    /// Remembers that bytes were written.
    pub(crate) fn mark_written(&self, offset: u64, size: u64) {
        if self.written.is_empty() {
            return;
        }
        for byte in offset / 8..(offset + size).div_ceil(8) {
            let Some(bits) = self.written.get(byte as usize) else {
                return;
            };
            let first = offset.saturating_sub(byte * 8).min(8);
            let last = (offset + size - byte * 8).min(8);
            bits.fetch_or(((1u32 << last) - (1 << first)) as u8, Ordering::Relaxed);
        }
    }

    /// The first of these bytes that was never written.
    pub(crate) fn first_unwritten(&self, offset: u64, size: u64) -> Option<u64> {
        if self.written.is_empty() {
            return None;
        }
        (offset..offset + size).find(|&byte| {
            let bits = self
                .written
                .get((byte / 8) as usize)
                .map_or(0xff, |bits| bits.load(Ordering::Relaxed));
            bits >> (byte % 8) & 1 == 0
        })
    }

    /// Remembers that a command reads or writes bytes, and finds an earlier one that it is not ordered with.
    pub(crate) fn access(
        &self,
        offset: u64,
        size: u64,
        write: bool,
        command: u32,
        order: &dyn Order,
    ) -> Option<Conflict> {
        if self.cells.is_empty() || size == 0 {
            return None;
        }
        let unordered =
            |other: u32| other != 0 && other != command && !order.before(other, command);
        let mut found = None;
        for index in offset / 4..(offset + size).div_ceil(4) {
            let Some(cell) = self.cells.get(index as usize) else {
                break;
            };
            let conflict = |other, other_wrote| Conflict {
                offset: index * 4,
                other,
                other_wrote,
            };
            let writer = cell.write.load(Ordering::Relaxed);
            if unordered(writer) {
                found = found.or(Some(conflict(writer, true)));
            }
            if write {
                for read in &cell.reads {
                    let reader = read.swap(0, Ordering::Relaxed);
                    if unordered(reader) {
                        found = found.or(Some(conflict(reader, false)));
                    }
                }
                cell.write.store(command, Ordering::Relaxed);
            } else {
                let [first, second] = &cell.reads;
                let reader = first.load(Ordering::Relaxed);
                if reader != command {
                    // The latest is first; one that is not ordered with it is kept as well.
                    if unordered(reader) {
                        second.store(reader, Ordering::Relaxed);
                    }
                    first.store(command, Ordering::Relaxed);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Chain;
    impl Order for Chain {
        fn before(&self, earlier: u32, later: u32) -> bool {
            // Odd and even commands are two streams.
            earlier < later && earlier % 2 == later % 2
        }
        fn describe(&self, command: u32) -> String {
            command.to_string()
        }
    }

    #[test]
    fn written_bytes_are_known_one_by_one() {
        let shadow = Shadow::new(100, true, false);
        shadow.mark_written(3, 10);
        assert_eq!(shadow.first_unwritten(3, 10), None);
        assert_eq!(shadow.first_unwritten(3, 11), Some(13));
        assert_eq!(shadow.first_unwritten(2, 4), Some(2));
        shadow.mark_written(0, 100);
        assert_eq!(shadow.first_unwritten(0, 100), None);
    }

    #[test]
    fn unordered_commands_conflict() {
        let shadow = Shadow::new(64, false, true);
        assert_eq!(shadow.access(0, 16, true, 1, &Chain), None);
        assert_eq!(shadow.access(0, 16, true, 3, &Chain), None);
        let conflict = shadow.access(12, 8, false, 4, &Chain);
        assert_eq!(
            conflict,
            Some(Conflict {
                offset: 12,
                other: 3,
                other_wrote: true
            })
        );
        assert_eq!(shadow.access(32, 4, false, 5, &Chain), None);
        assert_eq!(shadow.access(32, 4, false, 6, &Chain), None);
        let conflict = shadow.access(32, 4, true, 8, &Chain);
        assert_eq!(
            conflict,
            Some(Conflict {
                offset: 32,
                other: 5,
                other_wrote: false
            })
        );
    }
}
