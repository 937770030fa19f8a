//! The heap of a context's kernels: what `malloc` and `free` of device code give out and take back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::HEAP_INDEX;
use super::address_space::{AddressSpace, Origin, Policy};
use crate::check::Shadow;
use crate::exec::memory::Region;

/// Blocks start at multiples of this, with as many bytes between them.
const ALIGNMENT: u64 = 16;
/// Bytes of checked blocks that are remembered after their end; beyond it blocks are no longer checked.
const REMEMBERED: u64 = 256 << 20;

/// Blocks of device memory that kernels allocate. Nothing is reserved before the first one.
#[derive(Debug)]
pub(crate) struct Heap {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    space: AddressSpace,
    used: bool,
    /// What the checks remember of freed blocks: a kernel may still be looking at it.
    shadows: Vec<Arc<Shadow>>,
    remembered: u64,
}

impl Heap {
    /// A heap of so many bytes.
    pub(crate) fn new(bytes: u64, policy: Policy) -> Heap {
        let policy = Policy {
            alignment: ALIGNMENT,
            // Addresses are given out again only when there are no others.
            quarantine: bytes,
            ..policy
        };
        let state = State {
            space: AddressSpace::new(HEAP_INDEX, bytes, policy),
            used: false,
            shadows: Vec::new(),
            remembered: 0,
        };
        Heap {
            state: Mutex::new(state),
        }
    }

    /// Whether a kernel has ever allocated from it.
    pub(crate) fn used(&self) -> bool {
        self.state().used
    }

    /// Gives out a block; `None` if there is no room, or nothing is asked for.
    pub(crate) fn allocate(&self, bytes: u64) -> Option<u64> {
        let mut state = self.state();
        state.used = true;
        if bytes == 0 {
            return None;
        }
        state.space.allocate(bytes, Origin::Heap, 0, 0, 0)
    }

    /// Takes back a block; otherwise what is wrong with the address.
    pub(crate) fn free(&self, address: u64) -> Result<(), String> {
        let mut state = self.state();
        let Some(block) = state.space.release(address, 0) else {
            let place = state.space.describe(address);
            return Err(format!(
                "free of {address:#x}, which malloc of device code did not return or which is freed already; {place}"
            ));
        };
        if let Some(shadow) = block.shadow {
            state.shadows.push(shadow);
            state.remembered += block.size;
            if state.remembered > REMEMBERED {
                state.space.end_checks();
            }
        }
        Ok(())
    }

    /// The block that an address lies in.
    pub(crate) fn region(&self, address: u64) -> Option<Region> {
        let state = self.state();
        let (start, block) = state.space.find(address)?;
        Some(block.region(start))
    }

    /// What a message says of an address.
    pub(crate) fn describe(&self, address: u64) -> String {
        format!(
            "on the heap of device code {}",
            self.state().space.describe(address)
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(bytes: u64) -> Heap {
        let policy = Policy {
            strict: true,
            alignment: 512,
            poison: 1 << 20,
            quarantine: 0,
            uninitialized: true,
            races: false,
        };
        Heap::new(bytes, policy)
    }

    #[test]
    fn blocks_are_given_out_until_there_is_no_room() {
        let heap = heap(1 << 20);
        assert!(!heap.used());
        let blocks: Vec<u64> = std::iter::from_fn(|| heap.allocate(1024)).collect();
        assert_eq!(blocks.len(), 1024);
        assert_eq!(heap.allocate(1), None);
        assert!(blocks.iter().all(|block| block % ALIGNMENT == 0));
        let region = heap.region(blocks[7] + 1023).unwrap();
        assert_eq!((region.start, region.end), (blocks[7], blocks[7] + 1024));
        assert!(heap.region(blocks[7] + 1024).is_none());
        for block in blocks {
            heap.free(block).unwrap();
        }
        assert!(heap.allocate(1 << 20).is_some() && heap.allocate(0).is_none());
    }

    #[test]
    fn what_is_not_a_block_is_refused() {
        let heap = heap(1 << 20);
        let block = heap.allocate(100).unwrap();
        let inside = heap.free(block + 16).unwrap_err();
        assert!(
            inside.contains("did not return")
                && inside.contains("16 bytes into the allocation of 100"),
            "{inside}"
        );
        heap.free(block).unwrap();
        let twice = heap.free(block).unwrap_err();
        assert!(
            twice.contains("freed already") && twice.contains("which were freed"),
            "{twice}"
        );
        assert!(heap.region(block).is_none());
    }
}
