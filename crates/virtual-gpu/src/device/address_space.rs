//! A device's memory: which addresses are given out, which were freed and stay in quarantine, and how much is in use.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::arena::Arena;
use super::range_base;
use crate::check::Shadow;
use crate::exec::memory::Region;

/// Allocations of a device start at multiples of this.
pub(crate) const ALIGNMENT: u64 = 512;
/// Freed memory of at least this size goes back to the operating system at once.
const DISCARD: u64 = 128 << 10;
/// Freed allocations that are remembered by name for messages.
const REMEMBERED: usize = 4096;

/// Host memory that a region points to, as a number so that it may travel between threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAddress(pub(crate) usize);

/// What an allocation was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `cuMemAlloc` and its kin.
    Direct,
    /// A pool, by its handle.
    Pool(u64),
    /// A module's variable.
    Module,
    /// `malloc` of device code.
    Heap,
    /// Physical memory of `cuMemCreate`; not accessible by its own address.
    Physical,
    /// A node of a graph, which keeps the address while the memory comes and goes.
    Graph,
}

impl Origin {
    /// What messages call the function that allocated.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Origin::Direct => "cuMemAlloc",
            Origin::Pool(_) => "cuMemAllocAsync",
            Origin::Module => "the load of a module",
            Origin::Heap => "malloc of device code",
            Origin::Physical => "cuMemCreate",
            Origin::Graph => "a graph",
        }
    }
}

/// Bytes that an allocation of a device takes of its capacity.
pub(crate) fn rounded(size: u64) -> Option<u64> {
    rounded_to(ALIGNMENT, size)
}

fn rounded_to(alignment: u64, size: u64) -> Option<u64> {
    size.checked_next_multiple_of(alignment)
        .map(|bytes| bytes.max(alignment))
}

/// A live allocation.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    /// Bytes that were asked for.
    pub(crate) size: u64,
    /// Bytes that kernels may use: those asked for, or all of the last unit.
    pub(crate) usable: u64,
    /// Bytes that it takes from the address space, guard included.
    span: u64,
    /// Host memory of its first byte.
    pub(crate) host: HostAddress,
    /// Whether kernels may write.
    pub(crate) writable: bool,
    /// What the checks remember.
    pub(crate) shadow: Option<Arc<Shadow>>,
    /// What made it.
    pub(crate) origin: Origin,
    /// The context that it belongs to.
    pub(crate) context: u64,
    /// A number of its own, for `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
    /// The driver call that made it, counted from 1.
    pub(crate) call: u64,
}

impl Allocation {
    /// As the executor sees it.
    pub(crate) fn region(&self, start: u64) -> Region {
        Region {
            start,
            end: start + self.usable,
            host: self.host.0 as *mut u8,
            writable: self.writable,
            lasting: self.origin != Origin::Heap,
            shadow: self.shadow.as_ref().map_or(std::ptr::null(), Arc::as_ptr),
        }
    }
}

/// An allocation that was freed.
#[derive(Clone, Copy, Debug)]
struct Freed {
    start: u64,
    size: u64,
    span: u64,
    call: u64,
}

/// How memory is given out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Allocations start at multiples of this, with at least as many unused bytes behind each.
    pub(crate) alignment: u64,
    /// Bytes of an allocation that are filled with a pattern.
    pub(crate) poison: u64,
    /// Bytes of freed addresses that are not given out again.
    pub(crate) quarantine: u64,
    /// Whether reads of bytes that were never written are looked for.
    pub(crate) uninitialized: bool,
    /// Whether races between commands are looked for.
    pub(crate) races: bool,
    /// Whether kernels are held to the bytes that were asked for, rather than to the units that hardware gives out.
    pub(crate) strict: bool,
}

/// Allocations by their first address.
pub(crate) type Live = BTreeMap<u64, Allocation>;

/// A device's address space.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    base: u64,
    capacity: u64,
    policy: Policy,
    /// Bytes in use.
    used: u64,
    /// Most bytes that were ever in use.
    peak: u64,
    /// Bytes that pools keep for allocations to come.
    kept: u64,
    arena: Option<Arc<Arena>>,
    /// Offset behind everything that was ever given out.
    top: u64,
    /// Offsets that may be given out again, and their bytes.
    free: BTreeMap<u64, u64>,
    /// What is allocated; launches hold a copy while they run.
    live: Arc<Live>,
    /// Freed addresses, the oldest first.
    quarantine: VecDeque<Freed>,
    quarantined: u64,
    /// Freed allocations that messages may name, by address.
    remembered: BTreeMap<u64, Freed>,
    /// Their addresses and the calls that freed them, the oldest first.
    remembered_order: VecDeque<(u64, u64)>,
}

impl AddressSpace {
    /// An empty space of a device; nothing is reserved before the first allocation.
    pub(crate) fn new(device: usize, capacity: u64, policy: Policy) -> AddressSpace {
        AddressSpace {
            base: range_base(device),
            capacity,
            policy,
            used: 0,
            peak: 0,
            kept: 0,
            arena: None,
            top: 0,
            free: BTreeMap::new(),
            live: Arc::default(),
            quarantine: VecDeque::new(),
            quarantined: 0,
            remembered: BTreeMap::new(),
            remembered_order: VecDeque::new(),
        }
    }

    /// Bytes that the device has.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Most bytes that were ever in use.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// Bytes that are neither in use nor kept by pools.
    pub(crate) fn available(&self) -> u64 {
        self.capacity - self.used - self.kept
    }

    /// Changes how much pools keep.
    pub(crate) fn keep(&mut self, more: u64, less: u64) {
        self.kept = (self.kept + more).saturating_sub(less);
    }

    /// What is allocated, as it is now.
    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// The arena, to be kept alive by who reads regions.
    pub(crate) fn arena(&self) -> Option<Arc<Arena>> {
        self.arena.clone()
    }

    /// Gives out memory; `None` if there is not enough.
    pub(crate) fn allocate(
        &mut self,
        size: u64,
        origin: Origin,
        context: u64,
        id: u64,
        call: u64,
    ) -> Option<u64> {
        if self.rounded(size)? > self.available() {
            return None;
        }
        let start = self.withhold(size)?;
        self.occupy(start, size, origin, context, id, call)?;
        Some(start)
    }

    /// Bytes that an allocation takes of the capacity.
    fn rounded(&self, size: u64) -> Option<u64> {
        rounded_to(self.policy.alignment, size)
    }

    /// Takes addresses for an allocation that is not made yet; `None` if none are left.
    pub(crate) fn withhold(&mut self, size: u64) -> Option<u64> {
        let span = self.rounded(size)?.checked_add(self.policy.alignment)?;
        Some(self.base + self.place(span)?)
    }

    /// Gives addresses back that were withheld and hold no allocation.
    pub(crate) fn give_back(&mut self, start: u64, size: u64, call: u64) {
        let span = self.rounded(size).unwrap_or(0) + self.policy.alignment;
        self.forget(Freed {
            start,
            size,
            span,
            call,
        });
    }

    /// An allocation that a graph has made, and that no graph keeps the address of any more, is as any other.
    pub(crate) fn disown(&mut self, start: u64) {
        if let Some(allocation) = Arc::make_mut(&mut self.live).get_mut(&start) {
            allocation.origin = Origin::Direct;
        }
    }

    /// Makes an allocation at addresses that were withheld for it; `None` if there is too little memory.
    pub(crate) fn occupy(
        &mut self,
        start: u64,
        size: u64,
        origin: Origin,
        context: u64,
        id: u64,
        call: u64,
    ) -> Option<()> {
        let rounded = self.rounded(size)?;
        if rounded > self.available() || self.live.contains_key(&start) {
            return None;
        }
        let span = rounded + self.policy.alignment;
        let host = self.arena.as_ref()?.at((start - self.base) as usize);
        let usable = if self.policy.strict { size } else { rounded };
        let poison = usable.min(self.policy.poison) as usize;
        // SAFETY: the arena holds `rounded` bytes from the offset on, which nobody else uses.
        unsafe { host.write_bytes(0xff, poison) };
        let Policy {
            uninitialized,
            races,
            ..
        } = self.policy;
        let shadow = (uninitialized || races)
            .then(|| Arc::new(Shadow::new(usable as usize, uninitialized, races)));
        let host = HostAddress(host as usize);
        let allocation = Allocation {
            size,
            usable,
            span,
            host,
            writable: true,
            shadow,
            origin,
            context,
            id,
            call,
        };
        Arc::make_mut(&mut self.live).insert(start, allocation);
        self.used += rounded;
        self.peak = self.peak.max(self.used);
        Some(())
    }

    /// Makes an allocation zeros.
    pub(crate) fn zero(&self, start: u64) {
        if let (Some(allocation), Some(arena)) = (self.live.get(&start), &self.arena) {
            arena.zero((start - self.base) as usize, allocation.size as usize);
        }
    }

    /// New allocations are no longer checked for uninitialised reads and races.
    pub(crate) fn end_checks(&mut self) {
        self.policy.uninitialized = false;
        self.policy.races = false;
    }

    /// Takes back the allocation that starts at an address; `None` if there is none.
    pub(crate) fn release(&mut self, start: u64, call: u64) -> Option<Allocation> {
        if !self.live.contains_key(&start) {
            return None;
        }
        let allocation = Arc::make_mut(&mut self.live).remove(&start)?;
        self.used -= allocation.span - self.policy.alignment;
        if allocation.size >= DISCARD
            && let Some(arena) = &self.arena
        {
            arena.discard((start - self.base) as usize, allocation.size as usize);
        }
        let freed = Freed {
            start,
            size: allocation.size,
            span: allocation.span,
            call,
        };
        if allocation.origin == Origin::Graph {
            self.remember(freed);
        } else {
            self.forget(freed);
        }
        Some(allocation)
    }

    /// Freed addresses come into quarantine.
    fn forget(&mut self, freed: Freed) {
        self.quarantine.push_back(freed);
        self.quarantined += freed.span;
        while self.quarantined > self.policy.quarantine {
            self.end_quarantine();
        }
        self.remember(freed);
    }

    /// Keeps the name of a freed allocation for messages.
    fn remember(&mut self, freed: Freed) {
        self.remembered.insert(freed.start, freed);
        self.remembered_order.push_back((freed.start, freed.call));
        if self.remembered_order.len() > REMEMBERED
            && let Some((start, call)) = self.remembered_order.pop_front()
            // The address may have been freed again since.
            && self.remembered.get(&start).is_some_and(|freed| freed.call == call)
        {
            self.remembered.remove(&start);
        }
    }

    /// The allocation that an address lies in, with its first address. One of no bytes holds its own address.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&start, allocation) = self.live.range(..=address).next_back()?;
        (address - start < allocation.size.max(1)).then_some((start, allocation))
    }

    /// What a message says of an address of this device.
    pub(crate) fn describe(&self, address: u64) -> String {
        let distance = |start: u64, size: u64| {
            if address < start {
                start - address
            } else {
                (address - start).saturating_sub(size.saturating_sub(1))
            }
        };
        let around = |map: &mut dyn Iterator<Item = (u64, u64, Option<u64>, u64)>| {
            map.min_by_key(|&(start, size, _, _)| distance(start, size))
        };
        let live = |(start, allocation): (&u64, &Allocation)| {
            (*start, allocation.size, None, allocation.call)
        };
        let freed = |(start, freed): (&u64, &Freed)| (*start, freed.size, Some(freed.call), 0);
        let mut candidates = (self
            .live
            .range(..=address)
            .next_back()
            .map(live)
            .into_iter())
        .chain(self.live.range(address..).next().map(live))
        .chain(self.remembered.range(..=address).next_back().map(freed))
        .chain(self.remembered.range(address..).next().map(freed));
        let Some((start, size, gone, call)) = around(&mut candidates) else {
            return "nothing is allocated there".to_string();
        };
        let place = match distance(start, size) {
            0 => format!("{} bytes into", address - start),
            _ if address < start => format!("{} bytes before", start - address),
            _ => format!("{} bytes past the end of", address - start - size),
        };
        match gone {
            // Code of the device made it, not a call of the driver.
            Some(0) => format!("it is {place} {size} bytes at {start:#x}, which were freed"),
            None if call == 0 => {
                format!("it is {place} the allocation of {size} bytes at {start:#x}")
            }
            Some(call) => format!(
                "it is {place} {size} bytes at {start:#x}, which were freed (by driver call {call})"
            ),
            None => format!(
                "it is {place} the allocation of {size} bytes at {start:#x} (made by driver call {call})"
            ),
        }
    }

    /// Finds room for a span.
    fn place(&mut self, span: u64) -> Option<u64> {
        if self.arena.is_none() {
            // Addresses are wasted by guards and by what is in quarantine, so there are more than the capacity.
            let wanted = self.capacity + self.capacity / 4 + self.policy.quarantine + (64 << 20);
            let limit = 1u64 << super::DEVICE_BITS;
            let arena = Arena::reserve(wanted.min(limit) as usize)
                .or_else(|| Arena::reserve((self.capacity + (1 << 20)).min(limit) as usize))?;
            self.arena = Some(Arc::new(arena));
        }
        let bytes = self.arena.as_ref()?.bytes() as u64;
        loop {
            if let Some(offset) = self.reuse(span) {
                return Some(offset);
            }
            if bytes - self.top >= span {
                let offset = self.top;
                self.top += span;
                return Some(offset);
            }
            if self.quarantine.is_empty() {
                return None;
            }
            self.end_quarantine();
        }
    }

    /// Takes a span from the free addresses: the first that is large enough.
    fn reuse(&mut self, span: u64) -> Option<u64> {
        let (&offset, &bytes) = self.free.iter().find(|&(_, &bytes)| bytes >= span)?;
        self.free.remove(&offset);
        if bytes > span {
            self.free.insert(offset + span, bytes - span);
        }
        Some(offset)
    }

    /// Lets the oldest freed addresses be given out again.
    fn end_quarantine(&mut self) {
        let Some(freed) = self.quarantine.pop_front() else {
            return;
        };
        self.quarantined -= freed.span;
        let (mut offset, mut bytes) = (freed.start - self.base, freed.span);
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            (offset, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.free.remove(&(offset + bytes)) {
            bytes += length;
        }
        if offset + bytes == self.top {
            self.top = offset;
        } else {
            self.free.insert(offset, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(capacity: u64, quarantine: u64) -> AddressSpace {
        let policy = Policy {
            alignment: ALIGNMENT,
            poison: 1 << 20,
            quarantine,
            uninitialized: false,
            races: false,
            strict: true,
        };
        AddressSpace::new(0, capacity, policy)
    }

    fn take(space: &mut AddressSpace, size: u64) -> Option<u64> {
        space.allocate(size, Origin::Direct, 0, 1, 1)
    }

    #[test]
    fn allocations_are_aligned_apart_and_poisoned() {
        let mut space = space(1 << 20, 0);
        let (a, b) = (
            take(&mut space, 100).unwrap(),
            take(&mut space, 100).unwrap(),
        );
        assert_eq!((a % ALIGNMENT, b % ALIGNMENT), (0, 0));
        assert!(b - a >= 2 * ALIGNMENT && a >> 48 == 1);
        let region = space.find(a + 99).unwrap().1.region(a);
        // SAFETY: the region has 100 bytes.
        assert_eq!(unsafe { region.host.add(99).read() }, 0xff);
        assert!(space.find(a + 100).is_none());
        assert_eq!(space.used(), 1024);
    }

    #[test]
    fn capacity_is_a_limit_and_freed_memory_counts_again() {
        let mut space = space(4096, 0);
        let a = take(&mut space, 4096).unwrap();
        assert_eq!(take(&mut space, 1), None);
        space.release(a, 2).unwrap();
        assert!(space.release(a, 3).is_none());
        assert_eq!(take(&mut space, 1), Some(a));
        assert_eq!(take(&mut space, u64::MAX), None);
    }

    #[test]
    fn quarantine_keeps_addresses_and_names_the_freed() {
        let mut space = space(1 << 20, 1 << 20);
        let a = take(&mut space, 256).unwrap();
        space.release(a, 7).unwrap();
        assert_ne!(take(&mut space, 256), Some(a));
        let message = space.describe(a + 8);
        assert!(
            message.contains("8 bytes into 256 bytes")
                && message.contains("freed (by driver call 7)"),
            "{message}"
        );
    }

    #[test]
    fn many_allocations_come_and_go() {
        let mut space = space(64 << 20, 1 << 16);
        let mut held = Vec::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            if held.len() < 100 || random >> 63 == 0 {
                held.extend(take(&mut space, random >> 50));
            } else {
                let index = (random >> 33) as usize % held.len();
                space.release(held.swap_remove(index), 1).unwrap();
            }
        }
        for start in held {
            space.release(start, 1).unwrap();
        }
        assert_eq!(space.used(), 0);
        assert!(take(&mut space, (64 << 20) - 512).is_some());
    }
}
