//! Memory that graphs allocate: its addresses are fixed when the node is made, the memory comes with each launch and
//! goes with a free in the same graph, in another one or in a stream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::error::{Failure, Outcome, code};
use super::state::State;
use super::work::{Surroundings, Trouble};
use crate::device::address_space::Origin;
use crate::device::range_of;
use crate::machine::Machine;

/// One allocation of a graph. The address is its own as long as a graph or executable graph has the node.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) device: usize,
    pub(crate) address: u64,
    pub(crate) size: u64,
    context: u64,
    /// Whether a launch that was submitted leaves it allocated.
    outstanding: AtomicBool,
    returned: Arc<Returned>,
}

/// Addresses that no graph keeps any more: device, address, bytes.
type Returned = Mutex<Vec<(usize, u64, u64)>>;

/// The memory of all graphs.
#[derive(Debug, Default)]
pub(crate) struct GraphMemories {
    by_address: BTreeMap<u64, Weak<GraphMemory>>,
    returned: Arc<Returned>,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        // The state may be locked by who drops, so it takes the address back later.
        let mut returned = (self.returned.lock()).unwrap_or_else(PoisonError::into_inner);
        returned.push((self.device, self.address, self.size));
    }
}

impl GraphMemories {
    /// The memory that starts at an address.
    pub(crate) fn find(&self, address: u64) -> Option<Arc<GraphMemory>> {
        self.by_address.get(&address)?.upgrade()
    }
}

/// What a launch of a graph does to memory: what it allocates and leaves allocated, and what it frees of others'.
#[derive(Debug, Default)]
pub(crate) struct MemoryBalance {
    pub(crate) left: Vec<Arc<GraphMemory>>,
    pub(crate) freed: Vec<u64>,
}

impl State {
    /// Addresses for a new node.
    pub(crate) fn withhold(
        &mut self,
        device: usize,
        size: u64,
        context: u64,
        call: u64,
    ) -> Outcome<Arc<GraphMemory>> {
        self.take_back_graph_memory(call);
        if size == 0 || size > self.devices[device].memory.capacity() {
            return Err(match size {
                0 => Failure::invalid("an allocation of 0 bytes"),
                _ => self.out_of_memory(device, size),
            });
        }
        let address = self.devices[device].memory.withhold(size);
        let address = address.ok_or_else(|| self.out_of_memory(device, size))?;
        let memory = Arc::new(GraphMemory {
            device,
            address,
            size,
            context,
            outstanding: AtomicBool::new(false),
            returned: self.graph_memory.returned.clone(),
        });
        let known = &mut self.graph_memory.by_address;
        known.insert(address, Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Takes back the addresses that no graph keeps any more.
    pub(crate) fn take_back_graph_memory(&mut self, call: u64) {
        if self.graph_memory.by_address.is_empty() {
            return;
        }
        let mut list = (self.graph_memory.returned.lock()).unwrap_or_else(PoisonError::into_inner);
        let returned = std::mem::take(&mut *list);
        drop(list);
        for (device, address, size) in returned {
            self.graph_memory.by_address.remove(&address);
            let memory = &mut self.devices[device].memory;
            match memory.live().contains_key(&address) {
                true => memory.disown(address),
                false => memory.give_back(address, size, call),
            }
        }
    }

    /// Checks that a launch may be submitted: what an earlier one has left allocated must be free, and what is to be
    /// freed must be allocated. Then takes over that it is so.
    pub(crate) fn submit_balance(
        &mut self,
        balance: &MemoryBalance,
        frees_before: bool,
    ) -> Outcome {
        for memory in &balance.left {
            if memory.outstanding.load(Ordering::Relaxed) && !frees_before {
                return Err(Failure::invalid(format!(
                    "{} bytes at {:#x} that an earlier launch of the graph has allocated were not freed; free them, or \
                     instantiate with CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH",
                    memory.size, memory.address
                )));
            }
        }
        for &address in &balance.freed {
            let memory = self.graph_memory.find(address);
            if !memory.is_some_and(|memory| memory.outstanding.load(Ordering::Relaxed)) {
                return Err(Failure::invalid(format!(
                    "the graph frees {address:#x}, which is not allocated: {}",
                    self.describe(address)
                )));
            }
        }
        for memory in &balance.left {
            memory.outstanding.store(true, Ordering::Relaxed);
        }
        balance
            .freed
            .iter()
            .for_each(|address| self.will_be_freed(*address));
        Ok(())
    }

    /// A free of memory was submitted, which may be a graph's.
    pub(crate) fn will_be_freed(&self, address: u64) {
        if let Some(memory) = self.graph_memory.find(address) {
            memory.outstanding.store(false, Ordering::Relaxed);
        }
    }

    /// Whether an address is memory that a launch has left allocated, or will when its turn comes.
    pub(crate) fn graph_memory_outstanding(&self, address: u64) -> bool {
        let memory = self.graph_memory.find(address);
        memory.is_some_and(|memory| memory.outstanding.load(Ordering::Relaxed))
    }

    /// Bytes that graphs have allocated on a device now.
    pub(crate) fn graph_bytes(&self, device: usize) -> u64 {
        let live = self.devices[device].memory.live().values();
        live.filter(|allocation| allocation.origin == Origin::Graph)
            .map(|allocation| allocation.size)
            .sum()
    }
}

/// Allocates when the node's turn has come.
pub(super) fn allocate(memory: &GraphMemory, place: &mut Surroundings<'_>) -> Result<(), Trouble> {
    let machine: &Machine = place.machine;
    let mut state = machine.state();
    let call = machine.tally().call_number();
    let address = memory.address;
    if state.devices[memory.device]
        .memory
        .live()
        .contains_key(&address)
    {
        // The executable graph frees by itself what its last launch has left.
        state.devices[memory.device].memory.release(address, call);
    }
    let number = machine.tally().allocated();
    let failing = machine.settings.inject.failing_allocation == Some(number);
    let id = state.next_sequence();
    let mut made = None;
    if !failing {
        let occupy = |state: &mut State| {
            let space = &mut state.devices[memory.device].memory;
            space.occupy(
                address,
                memory.size,
                Origin::Graph,
                memory.context,
                id,
                call,
            )
        };
        made = occupy(&mut state);
        if made.is_none() {
            state.trim_pools_of(memory.device);
            made = occupy(&mut state);
        }
    }
    let failure = match made {
        Some(()) => {
            drop(state);
            place.refresh();
            return Ok(());
        }
        None if failing => format!("allocation {number} fails because the settings ask for it"),
        None => {
            let failure = state.out_of_memory(memory.device, memory.size);
            failure.message.map_or_else(String::new, String::from)
        }
    };
    Err(Trouble {
        code: code::OUT_OF_MEMORY,
        message: format!("a node of a graph allocates: {failure}"),
        lost: false,
    })
}

/// Fails if an address cannot be what a node of a graph frees.
pub(super) fn check_free(state: &State, address: u64) -> Outcome {
    if range_of(address).is_some() && state.graph_memory.find(address).is_some() {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "{address:#x} is not what a graph allocates, so no graph can free it: {}",
        state.describe(address)
    )))
}
