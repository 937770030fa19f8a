//! What accesses are looked at for when checks or counters ask for it: bytes and sectors, bank conflicts,
//! uninitialised reads and races in shared memory.

use super::core::Core;
use super::instruction::{Flow, Inst};
use super::lanes::WARP;
use crate::instructions::Access;
use crate::ptx::ast::Space;

impl Core<'_> {
    /// Looks at one access of the lanes in the mask.
    #[cold]
    #[inline(never)]
    pub(crate) fn instrument(
        &mut self,
        _inst: &Inst,
        addresses: &[u64; WARP],
        space: Space,
        size: u64,
        access: Access,
    ) -> Result<(), Flow> {
        if space == Space::Global && self.launch.options.count_memory {
            let bytes = u64::from(self.mask.count_ones()) * size;
            let mut sectors: Vec<u64> = (0..WARP)
                .filter(|lane| self.mask >> lane & 1 != 0)
                .flat_map(|lane| addresses[lane] / 32..=(addresses[lane] + (size - 1)) / 32)
                .collect();
            sectors.sort_unstable();
            sectors.dedup();
            let (total, touched) = match access {
                Access::Read => (
                    &mut self.counts.global_bytes_read,
                    &mut self.counts.global_sectors_read,
                ),
                _ => (
                    &mut self.counts.global_bytes_written,
                    &mut self.counts.global_sectors_written,
                ),
            };
            *total += bytes;
            *touched += sectors.len() as u64;
        }
        Ok(())
    }
}
