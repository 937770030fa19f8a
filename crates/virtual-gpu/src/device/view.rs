//! What one command sees of memory: its device, the peers that it may access, mapped ranges and the host's memory, as
//! they were when the command began.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::address_space::{HostAddress, Live};
use super::arena::Arena;
use super::host_memory::{self, HostRanges};
use super::{RESERVED_INDEX, range_of};
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

/// Memory as a command of one device sees it.
pub(crate) struct View {
    /// The device.
    pub(crate) device: usize,
    /// Its allocations.
    pub(crate) own: Arc<Live>,
    /// Allocations of devices that it may access.
    pub(crate) peers: Vec<(usize, Arc<Live>)>,
    /// Mapped ranges.
    pub(crate) mapped: Arc<Mappings>,
    /// The host's memory.
    pub(crate) host: Arc<HostRanges>,
    /// What keeps the regions' memory alive.
    pub(crate) _arenas: Vec<Arc<Arena>>,
    /// For messages.
    pub(crate) machine: Weak<Machine>,
}

impl View {
    fn mapping(&self, address: u64) -> Option<Region> {
        let (&start, mapping) = self.mapped.range(..=address).next_back()?;
        let access = mapping.access.get(self.device).copied().unwrap_or(0);
        (address - start < mapping.size && access != 0).then(|| Region {
            start,
            end: start + mapping.size,
            host: mapping.host.0 as *mut u8,
            writable: access == 3,
            shadow: mapping
                .shadow
                .as_ref()
                .map_or(std::ptr::null(), Arc::as_ptr),
        })
    }
}

// SAFETY: device regions lie in arenas that the view keeps alive, the driver's host memory in blocks that `host` keeps
// alive; registered memory is the caller's, who keeps it until it is unregistered, which waits for the commands. Bytes
// are plain memory that kernels order as on hardware.
unsafe impl Memory for View {
    fn region(&self, address: u64) -> Option<Region> {
        let index = range_of(address);
        if index == Some(RESERVED_INDEX) {
            return self.mapping(address);
        }
        let live = match index {
            None => {
                let (start, range) = host_memory::find(&self.host, address)?;
                return Some(host_memory::region(start, range));
            }
            Some(index) if index == self.device => &self.own,
            Some(index) => &self.peers.iter().find(|(device, _)| *device == index)?.1,
        };
        let (&start, allocation) = live.range(..=address).next_back()?;
        let usable = address - start < allocation.usable
            && allocation.origin != super::address_space::Origin::Physical;
        usable.then(|| allocation.region(start))
    }

    fn describe(&self, address: u64) -> String {
        let Some(machine) = self.machine.upgrade() else {
            return String::new();
        };
        machine.describe_for(self.device, address)
    }
}
