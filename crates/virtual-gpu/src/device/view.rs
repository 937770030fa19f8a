//! What one command sees of memory: its device, the peers that it may access, mapped ranges and the host's memory, as
//! they were when the command began.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::address_space::{Allocation, HostAddress, Live, Origin};
use super::arena::Arena;
use super::heap::Heap;
use super::host_memory::{self, HostRanges};
use super::{HEAP_INDEX, RESERVED_INDEX, range_of};
use crate::check::Shadow;
use crate::exec::memory::{Memory, Region};
use crate::machine::Machine;

/// A mapping of physical memory to addresses.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// Bytes.
    pub(crate) size: u64,
    /// Host memory of the first byte.
    pub(crate) host: HostAddress,
    /// The handle of the physical memory.
    pub(crate) handle: u64,
    /// The device that the physical memory is on.
    pub(crate) device: usize,
    /// Rights of each device: 0, 1 reading, 3 reading and writing.
    pub(crate) access: Vec<u8>,
    /// What the checks remember.
    pub(crate) shadow: Option<Arc<Shadow>>,
}

/// Mappings by their first address.
pub(crate) type Mappings = BTreeMap<u64, Mapping>;

/// Another device's memory.
pub(crate) struct Peer {
    /// The device.
    pub(crate) device: usize,
    /// Its allocations.
    pub(crate) live: Arc<Live>,
    /// What may be accessed.
    pub(crate) access: PeerAccess,
}

/// What may be accessed of another device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerAccess {
    /// All of it: copies go everywhere.
    Everything,
    /// What lies in no pool, by peer access of the contexts, and the pools that say so.
    Enabled,
    /// Only the pools that say so.
    PoolsOnly,
}

/// Memory as a command of one device sees it.
pub(crate) struct View {
    /// The device.
    pub(crate) device: usize,
    /// Its allocations.
    pub(crate) own: Arc<Live>,
    /// Other devices of whose memory it may access at least a part.
    pub(crate) peers: Vec<Peer>,
    /// Pools of other devices that it may access, and whether it may write.
    pub(crate) pools: Vec<(u64, bool)>,
    /// Mapped ranges.
    pub(crate) mapped: Arc<Mappings>,
    /// The heap of the context's kernels.
    pub(crate) heap: Option<Arc<Heap>>,
    /// The host's memory.
    pub(crate) host: Arc<HostRanges>,
    /// What keeps the regions' memory alive.
    pub(crate) _arenas: Vec<Arc<Arena>>,
    /// For messages.
    pub(crate) machine: Weak<Machine>,
}

impl View {
    /// A region of another device's memory, which may lie in a pool with an access list of its own.
    fn of_peer(&self, index: usize, address: u64) -> Option<Region> {
        let peer = self.peers.iter().find(|peer| peer.device == index)?;
        let (start, allocation) = usable(&peer.live, address)?;
        let mut region = allocation.region(start);
        match (peer.access, allocation.origin) {
            (PeerAccess::Everything, _) => {}
            (_, Origin::Pool(pool)) => {
                let (_, writable) = self.pools.iter().find(|(other, _)| *other == pool)?;
                region.writable &= writable;
            }
            (PeerAccess::Enabled, _) => {}
            (PeerAccess::PoolsOnly, _) => return None,
        }
        Some(region)
    }

    fn mapping(&self, address: u64) -> Option<Region> {
        let (&start, mapping) = self.mapped.range(..=address).next_back()?;
        let access = mapping.access.get(self.device).copied().unwrap_or(0);
        (address - start < mapping.size && access != 0).then(|| Region {
            start,
            end: start + mapping.size,
            host: mapping.host.0 as *mut u8,
            writable: access == 3,
            lasting: true,
            shadow: mapping
                .shadow
                .as_ref()
                .map_or(std::ptr::null(), Arc::as_ptr),
        })
    }
}

/// The allocation that an address lies in, if its own addresses are for use.
fn usable(live: &Live, address: u64) -> Option<(u64, &Allocation)> {
    let (&start, allocation) = live.range(..=address).next_back()?;
    let within = address - start < allocation.usable && allocation.origin != Origin::Physical;
    within.then_some((start, allocation))
}

// SAFETY: device regions lie in arenas that the view keeps alive, the driver's host memory in blocks that `host` keeps
// alive; blocks of the heap in its arena, which lives as long as the heap does; registered memory is the caller's, who
// keeps it until it is unregistered, which waits for the commands. Bytes are plain memory that kernels order as on
// hardware.
unsafe impl Memory for View {
    fn region(&self, address: u64) -> Option<Region> {
        let index = range_of(address);
        if index == Some(RESERVED_INDEX) {
            return self.mapping(address);
        }
        if index == Some(HEAP_INDEX) {
            return self.heap.as_ref()?.region(address);
        }
        match index {
            None => {
                let (start, range) = host_memory::find(&self.host, address)?;
                Some(host_memory::region(start, range))
            }
            Some(index) if index == self.device => {
                let (start, allocation) = usable(&self.own, address)?;
                Some(allocation.region(start))
            }
            Some(index) => self.of_peer(index, address),
        }
    }

    fn allocate(&self, bytes: u64) -> Option<u64> {
        self.heap.as_ref()?.allocate(bytes)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        match &self.heap {
            Some(heap) if range_of(address) == Some(HEAP_INDEX) => heap.free(address),
            _ => Err(format!(
                "free of {address:#x}, which malloc of device code did not return; {}",
                self.describe(address)
            )),
        }
    }

    fn describe(&self, address: u64) -> String {
        if let (Some(heap), Some(HEAP_INDEX)) = (&self.heap, range_of(address)) {
            return heap.describe(address);
        }
        let Some(machine) = self.machine.upgrade() else {
            return String::new();
        };
        machine.describe_for(self.device, address)
    }
}
