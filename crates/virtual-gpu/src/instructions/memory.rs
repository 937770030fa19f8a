//! Loads and stores of every space and width, and how an address becomes host memory.

use std::marker::PhantomData;

use crate::decode::builder::Place;
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, WARP};
use crate::exec::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::fault::FaultKind;
use crate::ptx::ast::{Base, Operand, Space, Symbol, Type};

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are read and written at once.
    Atomic,
}

/// Where the window of a generic address starts, by its top byte.
const WINDOW: u64 = 0xff << 56;

impl Core<'_> {
    /// Host memory of `size` bytes at an address of a space, for one lane; a failed check is a fault. The address must
    /// be a multiple of `align`.
    ///
    /// The pointer is valid for `size` bytes until the instruction ends.
    #[inline(always)]
    pub(crate) fn locate(
        &mut self,
        inst: &Inst,
        lane: usize,
        space: Space,
        address: u64,
        size: u32,
        align: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if address & u64::from(align - 1) != 0 {
            let message = format!("misaligned address {address:#x}: {access:?} of {size} bytes in {space:?} memory");
            return Err(self.fail(inst, lane, FaultKind::Misaligned, message));
        }
        match space {
            Space::Generic => match address & WINDOW {
                SHARED_WINDOW => self.in_shared(inst, lane, address - SHARED_WINDOW, size, access),
                LOCAL_WINDOW => self.in_local(inst, lane, address - LOCAL_WINDOW, size, access),
                PARAM_WINDOW => self.in_params(inst, lane, address - PARAM_WINDOW, size, access),
                _ => self.in_global(inst, lane, address, size, access),
            },
            Space::Global | Space::Const => self.in_global(inst, lane, address, size, access),
            Space::Shared => self.in_shared(inst, lane, address, size, access),
            Space::Local => self.in_local(inst, lane, address, size, access),
            Space::Param => self.in_params(inst, lane, address, size, access),
        }
    }

    #[inline(always)]
    fn in_global(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        match self.region(address, u64::from(size)) {
            Some(region) if region.writable || access == Access::Read => {
                // SAFETY: the region holds `size` bytes from `address` on.
                Ok(unsafe { region.host.add((address - region.start) as usize) })
            }
            _ => Err(self.illegal(inst, lane, address, size, access)),
        }
    }

    #[cold]
    #[inline(never)]
    fn illegal(&mut self, inst: &Inst, lane: usize, address: u64, size: u32, access: Access) -> Flow {
        let nearest = self.launch.memory.describe(address);
        let message = format!("illegal address {address:#x}: {access:?} of {size} bytes in global memory; {nearest}");
        self.fail(inst, lane, FaultKind::IllegalAddress, message)
    }

    #[inline(always)]
    fn in_shared(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if address.saturating_add(u64::from(size)) <= u64::from(self.shared_bytes) {
            // SAFETY: shared memory has that many bytes.
            return Ok(unsafe { self.shared.add(address as usize) });
        }
        let message = format!(
            "shared memory address {address:#x} is out of bounds: {access:?} of {size} bytes, the block has {} bytes",
            self.shared_bytes
        );
        Err(self.fail(inst, lane, FaultKind::IllegalAddress, message))
    }

    #[inline(always)]
    fn in_local(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if let Some(pointer) = self.warp.local.at(lane, address, size as usize) {
            return Ok(pointer);
        }
        let message = format!(
            "local memory address {address:#x} is out of bounds: {access:?} of {size} bytes, the thread has {} bytes",
            self.warp.local.per_lane()
        );
        Err(self.fail(inst, lane, FaultKind::IllegalAddress, message))
    }

    #[inline(always)]
    fn in_params(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        let params = self.launch.params;
        if access == Access::Read && address.saturating_add(u64::from(size)) <= params.len() as u64 {
            return Ok(params[address as usize..].as_ptr().cast_mut());
        }
        let message = format!(
            "parameter address {address:#x} is out of bounds: {access:?} of {size} bytes, the kernel has {} bytes",
            params.len()
        );
        Err(self.fail(inst, lane, FaultKind::IllegalAddress, message))
    }
}
