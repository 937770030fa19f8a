//! What accesses are looked at for when checks or counters ask for it: bytes and sectors, bank conflicts,
//! uninitialised reads, and races in shared memory and between commands.

use super::core::Core;
use super::instruction::{Flow, Inst};
use super::lanes::{WARP, lanes_of};
use super::memory::resolved;
use crate::check::shared::{Finding, Stamp};
use crate::fault::FaultKind;
use crate::instructions::Access;
use crate::ptx::ast::Space;

/// Banks of shared memory, of 4 bytes each.
const BANKS: usize = 32;

impl Core<'_> {
    /// Looks at one access of the lanes in the mask. What is out of bounds is left to the access itself.
    #[cold]
    #[inline(never)]
    pub(crate) fn instrument(
        &mut self,
        inst: &Inst,
        addresses: &[u64; WARP],
        space: Space,
        size: u64,
        access: Access,
    ) -> Result<(), Flow> {
        if self.launch.options.count_memory {
            self.count(addresses, space, size, access);
        }
        let mask = self.mask;
        for lane in lanes_of(mask) {
            self.check_access(inst, lane, space, addresses[lane], size, access)?;
        }
        Ok(())
    }

    /// Counts bytes, sectors and bank conflicts.
    pub(crate) fn count(
        &mut self,
        addresses: &[u64; WARP],
        space: Space,
        size: u64,
        access: Access,
    ) {
        let lanes = lanes_of(self.mask);
        let resolved: Vec<(Space, u64)> =
            lanes.map(|lane| resolved(space, addresses[lane])).collect();
        let of = |wanted: Space| {
            resolved
                .iter()
                .filter(move |(space, _)| *space == wanted)
                .map(|(_, address)| *address)
        };
        let bytes = of(Space::Global).count() as u64 * size;
        let mut sectors: Vec<u64> = of(Space::Global)
            .flat_map(|address| address / 32..=address.saturating_add(size - 1) / 32)
            .collect();
        sectors.sort_unstable();
        sectors.dedup();
        let sectors = sectors.len() as u64;
        if access != Access::Write {
            self.counts.global_bytes_read += bytes;
            self.counts.global_sectors_read += sectors;
        }
        if access != Access::Read {
            self.counts.global_bytes_written += bytes;
            self.counts.global_sectors_written += sectors;
        }
        // A bank gives one word a cycle; lanes that want the same word share it. Wide accesses are served in parts of
        // 128 bytes (16 lanes of 8 bytes, 8 of 16).
        let shared: Vec<u64> = of(Space::Shared).collect();
        let per_part = (128 / size.max(4)) as usize;
        for part in shared.chunks(per_part.max(1)) {
            let mut words: Vec<u64> = part
                .iter()
                .flat_map(|address| address / 4..=address.saturating_add(size - 1) / 4)
                .collect();
            words.sort_unstable();
            words.dedup();
            let mut banks = [0u64; BANKS];
            words
                .iter()
                .for_each(|word| banks[*word as usize % BANKS] += 1);
            self.counts.bank_conflicts +=
                banks.iter().max().copied().unwrap_or(0).saturating_sub(1);
        }
    }

    /// Looks at one lane's access with the checks that are on.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_access(
        &mut self,
        inst: &Inst,
        lane: usize,
        space: Space,
        address: u64,
        size: u64,
        access: Access,
    ) -> Result<(), Flow> {
        match resolved(space, address) {
            (Space::Global, address) => self.check_global(inst, lane, address, size, access),
            (Space::Shared, address) => self.check_shared(inst, lane, address, size, access),
            _ => Ok(()),
        }
    }

    fn check_global(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u64,
        access: Access,
    ) -> Result<(), Flow> {
        let Some(region) = self.region(address, size) else {
            return Ok(());
        };
        if region.shadow.is_null() {
            return Ok(());
        }
        // SAFETY: a region's shadow lives as long as its memory (see `Memory`).
        let shadow = unsafe { &*region.shadow };
        let offset = address - region.start;
        if access != Access::Write
            && self.launch.options.check_uninitialized
            && let Some(byte) = shadow.first_unwritten(offset, size)
        {
            let nearest = self.launch.memory.describe(address);
            let message = format!(
                "uninitialised read: byte {:#x} of global memory was never written ({access:?} of {size} bytes at \
                 {address:#x}); {nearest}",
                region.start + byte
            );
            return Err(self.fail(inst, lane, FaultKind::LaunchFailed, message));
        }
        if access != Access::Read {
            shadow.mark_written(offset, size);
        }
        // Atomics of unordered commands are what atomics are for.
        if access != Access::Atomic
            && let Some((command, order)) = self.launch.order
            && let Some(conflict) =
                shadow.access(offset, size, access == Access::Write, command, order)
        {
            let message = format!(
                "race between commands: {} of {size} bytes at {address:#x} by {} is not ordered with the {} by {}; \
                 record an event behind the earlier one and let the later one's stream wait for it; {}",
                if access == Access::Write {
                    "the write"
                } else {
                    "the read"
                },
                order.describe(command),
                if conflict.other_wrote {
                    "write"
                } else {
                    "read"
                },
                order.describe(conflict.other),
                self.launch.memory.describe(address),
            );
            return Err(self.fail(inst, lane, FaultKind::LaunchFailed, message));
        }
        Ok(())
    }

    fn check_shared(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u64,
        access: Access,
    ) -> Result<(), Flow> {
        let stamp = Stamp {
            time: self
                .warp
                .clock
                .get(self.warp.index as usize)
                .copied()
                .unwrap_or(0),
            syncs: self.warp.syncs,
            warp: self.warp.index as u16,
            lane: lane as u8,
            atomic: access == Access::Atomic,
        };
        let (options, clock) = (&self.launch.options, &self.warp.clock);
        let Some(shadow) = &mut self.shadow else {
            return Ok(());
        };
        let (Ok(offset), Ok(size)) = (u32::try_from(address), u32::try_from(size)) else {
            return Ok(());
        };
        let write = access != Access::Read;
        let found = shadow.access(
            offset,
            size,
            write,
            stamp,
            clock,
            options.check_shared_races,
            (access == Access::Write)
                .then_some(self.stored.as_ref())
                .flatten()
                .map(|stored| &stored[lane][..(size as usize).min(stored[lane].len())]),
        );
        let Some((byte, finding)) = found else {
            return Ok(());
        };
        let at = format!(
            "{access:?} of {size} bytes at shared memory address {address:#x}, byte {byte:#x}"
        );
        let message = match finding {
            Finding::Uninitialized if !options.check_uninitialized => return Ok(()),
            Finding::Pending if !options.check_shared_races => return Ok(()),
            Finding::Uninitialized => format!("uninitialised read: {at} was never written"),
            Finding::Pending => format!(
                "race in shared memory: {at} is the target of a cp.async that has not been waited for; a \
                 cp.async.wait_group (and a barrier, if another thread reads) is missing"
            ),
            Finding::Race { other, other_wrote } => {
                let thread = u32::from(other.warp) * 32 + u32::from(other.lane);
                format!(
                    "race in shared memory: {at}: no barrier orders it with the {} by thread {thread} of the block \
                     (warp {}, lane {}); a __syncthreads() (within a warp, a __syncwarp()) is missing",
                    if other_wrote { "write" } else { "read" },
                    other.warp,
                    other.lane,
                )
            }
        };
        Err(self.fail(inst, lane, FaultKind::LaunchFailed, message))
    }
}
