//! Virtual devices: their address spaces, the memory behind them, what a running kernel sees of it, and their
//! attributes.

pub(crate) mod address_space;
pub(crate) mod arena;
pub(crate) mod attributes;
pub(crate) mod heap;
pub(crate) mod host_memory;
pub(crate) mod view;

/// Device addresses start here: on x86-64 no host pointer has this bit, so that a host that follows one crashes.
pub(crate) const DEVICE_BASE: u64 = 1 << 48;
/// Bits of a device's own range of addresses.
pub(crate) const DEVICE_BITS: u32 = 42;
/// The range of addresses that `cuMemAddressReserve` gives out.
pub(crate) const RESERVED_INDEX: usize = 63;
/// The range of the heaps of device code; each context sees its own.
pub(crate) const HEAP_INDEX: usize = RESERVED_INDEX - 1;
/// Devices that a machine may have.
pub(crate) const MAX_DEVICES: usize = HEAP_INDEX;
/// Where a cooperative launch finds what its blocks synchronise by, behind everything else of the heaps' range.
pub(crate) const GRID_WORKSPACE: u64 =
    DEVICE_BASE + ((RESERVED_INDEX as u64) << DEVICE_BITS) - 4096;

/// First address of a range.
pub(crate) fn range_base(index: usize) -> u64 {
    DEVICE_BASE + ((index as u64) << DEVICE_BITS)
}

/// The range that an address lies in: a device's number, [`HEAP_INDEX`] or [`RESERVED_INDEX`]; `None` for the host's.
pub(crate) fn range_of(address: u64) -> Option<usize> {
    (address >> 48 == 1).then(|| ((address - DEVICE_BASE) >> DEVICE_BITS) as usize)
}
