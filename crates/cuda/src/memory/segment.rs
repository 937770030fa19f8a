//! Segments: what device memory comes in from the driver, as plain allocations or as addresses that memory is mapped
//! behind piece by piece.

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType,
};
use fireclay_core::caching::Pool;

use crate::driver::{Driver, DriverError};

/// Memory of one segment of the caching policy.
#[derive(Debug)]
pub(super) enum SegmentMemory {
    /// One allocation of the driver.
    Plain {
        /// Its address.
        address: CUdeviceptr,
    },
    /// Reserved addresses, of which the first part has memory.
    Growable(Growable),
}

/// Reserved addresses with memory behind their first part, mapped in pieces.
#[derive(Debug)]
pub(super) struct Growable {
    address: CUdeviceptr,
    reserved: usize,
    mapped: usize,
    pieces: Vec<(CUmemGenericAllocationHandle, usize)>,
    ordinal: i32,
}

/// How much a growable segment grows at once, at least.
pub(super) fn piece_bytes(pool: Pool) -> usize {
    match pool {
        Pool::Small => 2 << 20,
        Pool::Large => 20 << 20,
    }
}

/// The unit that physical memory comes in; the same on all NVIDIA GPUs since Pascal.
pub(super) const GRANULARITY: usize = 2 << 20;

fn device(ordinal: usize) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: ordinal as i32,
    }
}

fn access_of(ordinal: usize) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: device(ordinal),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

impl SegmentMemory {
    /// One allocation of the driver.
    pub(super) fn plain(driver: &Driver, bytes: usize) -> Result<SegmentMemory, DriverError> {
        let mut address = 0;
        // SAFETY: one address is written; the caller has made the context current.
        unsafe { driver.mem_alloc(&mut address, bytes)? };
        Ok(SegmentMemory::Plain { address })
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        match self {
            SegmentMemory::Plain { address } => *address,
            SegmentMemory::Growable(growable) => growable.address,
        }
    }

    /// Gives everything back to the driver.
    pub(super) fn release(self, driver: &Driver) -> Result<(), DriverError> {
        match self {
            // SAFETY: the address came from `mem_alloc`, and the policy has no block in it.
            SegmentMemory::Plain { address } => unsafe { driver.mem_free(address) },
            SegmentMemory::Growable(mut growable) => {
                growable.shrink(driver, 0)?;
                // SAFETY: nothing is mapped there any more.
                unsafe { driver.mem_address_free(growable.address, growable.reserved) }
            }
        }
    }
}

impl Growable {
    /// Reserves addresses, without memory.
    pub(super) fn reserve(
        driver: &Driver,
        ordinal: usize,
        bytes: usize,
    ) -> Result<Growable, DriverError> {
        let reserved = bytes.next_multiple_of(GRANULARITY);
        let mut address = 0;
        // SAFETY: one address is written.
        unsafe { driver.mem_address_reserve(&mut address, reserved, GRANULARITY, 0, 0)? };
        Ok(Growable {
            address,
            reserved,
            mapped: 0,
            pieces: Vec::new(),
            ordinal: ordinal as i32,
        })
    }

    /// Bytes that have memory.
    pub(super) fn mapped(&self) -> usize {
        self.mapped
    }

    /// Bytes that could still get memory.
    pub(super) fn room(&self) -> usize {
        self.reserved - self.mapped
    }

    /// Where the last piece starts, relative to the segment; 0 without pieces.
    pub(super) fn last_piece(&self) -> usize {
        self.mapped - self.pieces.last().map_or(0, |(_, bytes)| *bytes)
    }

    /// Puts memory behind the next `bytes`, a multiple of the granularity, for its own device and its peers.
    pub(super) fn grow(
        &mut self,
        driver: &Driver,
        bytes: usize,
        peers: &[usize],
    ) -> Result<(), DriverError> {
        debug_assert!(bytes.is_multiple_of(GRANULARITY) && bytes <= self.room());
        // SAFETY: the struct is plain numbers and a null pointer, for which zeros are valid.
        let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        properties.location = device(self.ordinal as usize);
        let access: Vec<CUmemAccessDesc> = std::iter::once(self.ordinal as usize)
            .chain(peers.iter().copied())
            .map(access_of)
            .collect();
        let mut handle = 0;
        let at = self.address + self.mapped as u64;
        // SAFETY: the piece follows what is mapped, within the reservation; on failure what was done is undone.
        unsafe {
            driver.mem_create(&mut handle, bytes, &properties, 0)?;
            let mapped = driver.mem_map(at, bytes, 0, handle, 0).and_then(|()| {
                let access = driver.mem_set_access(at, bytes, access.as_ptr(), access.len());
                if access.is_err() {
                    let _ = driver.mem_unmap(at, bytes);
                }
                access
            });
            if let Err(error) = mapped {
                let _ = driver.mem_release(handle);
                return Err(error);
            }
        }
        self.pieces.push((handle, bytes));
        self.mapped += bytes;
        Ok(())
    }

    /// Lets another device use what is mapped.
    pub(super) fn allow(&self, driver: &Driver, ordinal: usize) -> Result<(), DriverError> {
        let access = access_of(ordinal);
        let mut at = self.address;
        for (_, bytes) in &self.pieces {
            // SAFETY: the piece is mapped there.
            unsafe { driver.mem_set_access(at, *bytes, &access, 1)? };
            at += *bytes as u64;
        }
        Ok(())
    }

    /// Takes the memory away from all pieces that start at `keep` or beyond. No work may use them any more.
    pub(super) fn shrink(&mut self, driver: &Driver, keep: usize) -> Result<(), DriverError> {
        while let Some(&(handle, bytes)) = self.pieces.last()
            && self.mapped - bytes >= keep
        {
            let at = self.address + (self.mapped - bytes) as u64;
            // SAFETY: the piece is mapped there, and the caller says that it is unused.
            unsafe {
                driver.mem_unmap(at, bytes)?;
                self.pieces.pop();
                self.mapped -= bytes;
                driver.mem_release(handle)?;
            }
        }
        Ok(())
    }
}
