//! Copies and memory sets: their shapes, and the moving of bytes between the regions that addresses lie in.

use std::time::Duration;

use super::error::code;
use super::work::{Surroundings, Trouble};
use crate::device::host_memory;
use crate::device::range_of;
use crate::device::view::View;
use crate::exec::memory::{Memory, Region};
use crate::machine::counters::Direction;

/// One side of a copy: rows of planes from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// First byte: a device address or the host's.
    pub(crate) address: u64,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Bytes from plane to plane.
    pub(crate) plane: u64,
}

/// A copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) from: Side,
    pub(crate) to: Side,
    /// Bytes of a row.
    pub(crate) width: u64,
    /// Rows of a plane.
    pub(crate) height: u64,
    /// Planes.
    pub(crate) depth: u64,
}

/// A memory set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) to: Side,
    /// What each element becomes.
    pub(crate) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: u32,
    /// Bytes of a row.
    pub(crate) width: u64,
    /// Rows.
    pub(crate) height: u64,
}

impl Side {
    /// So many bytes without a gap.
    pub(crate) fn plain(address: u64) -> Side {
        Side {
            address,
            pitch: 0,
            plane: 0,
        }
    }

    /// Bytes from the first to behind the last, of a shape; `None` if the shape is too large for any memory.
    pub(crate) fn extent(&self, width: u64, height: u64, depth: u64) -> Option<u64> {
        if width == 0 || height == 0 || depth == 0 {
            return Some(0);
        }
        let rows = self.pitch.checked_mul(height - 1)?;
        let planes = self.plane.checked_mul(depth - 1)?;
        let extent = rows.checked_add(planes)?.checked_add(width)?;
        self.address.checked_add(extent)?;
        Some(extent)
    }
}

impl Copy {
    /// A copy of bytes without gaps.
    pub(crate) fn plain(from: u64, to: u64, bytes: u64) -> Copy {
        Copy {
            from: Side::plain(from),
            to: Side::plain(to),
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    /// Bytes that are copied.
    pub(crate) fn bytes(&self) -> u64 {
        self.width
            .saturating_mul(self.height)
            .saturating_mul(self.depth)
    }

    fn direction(&self) -> Direction {
        match (range_of(self.from.address), range_of(self.to.address)) {
            (None, None) => Direction::HostToHost,
            (None, Some(_)) => Direction::HostToDevice,
            (Some(_), None) => Direction::DeviceToHost,
            (Some(from), Some(to)) if from == to => Direction::DeviceToDevice,
            _ => Direction::PeerToPeer,
        }
    }
}

/// Host memory behind the first bytes of a range.
struct Piece {
    host: *mut u8,
    bytes: u64,
    region: Option<(Region, u64)>,
}

/// The piece at an address. What the driver knows nothing of is the host's own memory, for which the caller answers.
fn piece(view: &View, address: u64, bytes: u64, write: bool) -> Result<Piece, Trouble> {
    if let Some(region) = view.region(address) {
        if write && !region.writable {
            return Err(illegal(view, address, bytes));
        }
        let offset = address - region.start;
        // SAFETY: the address lies in the region.
        let host = unsafe { region.host.add(offset as usize) };
        return Ok(Piece {
            host,
            bytes: bytes.min(region.end - address),
            region: Some((region, offset)),
        });
    }
    if range_of(address).is_none() && host_memory::find(&view.host, address).is_none() {
        return Ok(Piece {
            host: address as *mut u8,
            bytes,
            region: None,
        });
    }
    Err(illegal(view, address, bytes))
}

#[cold]
fn illegal(view: &View, address: u64, bytes: u64) -> Trouble {
    let nearest = view.describe(address);
    let message = format!(
        "{bytes} bytes at {address:#x} are not there for a copy, a memset or a wait when its turn comes (or may only be \
         read); {nearest}"
    );
    Trouble {
        code: code::ILLEGAL_ADDRESS,
        message,
        lost: false,
    }
}

/// Tells the checks of an access to a piece.
fn touch(piece: &Piece, bytes: u64, write: bool, place: &Surroundings<'_>) -> Result<(), Trouble> {
    let Some((region, offset)) = piece.region else {
        return Ok(());
    };
    if region.shadow.is_null() {
        return Ok(());
    }
    // SAFETY: a region's shadow lives as long as the view.
    let shadow = unsafe { &*region.shadow };
    if let Some(ordered) = &place.ordered
        && let Some(conflict) = shadow.access(offset, bytes, write, ordered.command, ordered)
    {
        use crate::check::Order;
        let message = format!(
            "race between commands: the {} by {} is not ordered with the {} by {} at {:#x}; record an event behind the \
             earlier one and let the later one's stream wait for it; {}",
            if write { "write" } else { "read" },
            ordered.describe(ordered.command),
            if conflict.other_wrote {
                "write"
            } else {
                "read"
            },
            ordered.describe(conflict.other),
            region.start + conflict.offset,
            place.everything().describe(region.start + offset),
        );
        return Err(Trouble {
            code: code::LAUNCH_FAILED,
            message,
            lost: false,
        });
    }
    Ok(())
}

/// Copies what the checks know to be written.
fn carry(from: &Piece, to: &Piece, bytes: u64) {
    let Some((target, target_offset)) = to.region else {
        return;
    };
    if target.shadow.is_null() {
        return;
    }
    // SAFETY: a region's shadow lives as long as the view.
    let written = unsafe { &*target.shadow };
    let source = from.region.filter(|(region, _)| !region.shadow.is_null());
    let Some((region, offset)) = source else {
        return written.mark_written(target_offset, bytes);
    };
    // SAFETY: as above.
    let known = unsafe { &*region.shadow };
    if known.first_unwritten(offset, bytes).is_none() {
        return written.mark_written(target_offset, bytes);
    }
    for byte in 0..bytes {
        if known.first_unwritten(offset + byte, 1).is_none() {
            written.mark_written(target_offset + byte, 1);
        }
    }
}

/// Copies bytes between ranges without gaps.
fn copy_row(
    mut from: u64,
    mut to: u64,
    mut bytes: u64,
    place: &Surroundings<'_>,
) -> Result<(), Trouble> {
    while bytes > 0 {
        let (source, target) = (
            piece(place.everything(), from, bytes, false)?,
            piece(place.everything(), to, bytes, true)?,
        );
        let length = source.bytes.min(target.bytes);
        touch(&source, length, false, place)?;
        touch(&target, length, true, place)?;
        // SAFETY: both pieces have that many bytes; they may overlap.
        unsafe { std::ptr::copy(source.host, target.host, length as usize) };
        carry(&source, &target, length);
        (from, to, bytes) = (from + length, to + length, bytes - length);
    }
    Ok(())
}

/// Copies.
pub(super) fn copy(copy: &Copy, place: &Surroundings<'_>) -> Result<(), Trouble> {
    place.machine.tally().moved(copy.direction(), copy.bytes());
    slow_down(place);
    let tight = |side: &Side| {
        (copy.height <= 1 || side.pitch == copy.width)
            && (copy.depth <= 1 || side.plane == copy.width * copy.height)
    };
    if copy.bytes() == 0 {
        return Ok(());
    }
    if tight(&copy.from) && tight(&copy.to) {
        return copy_row(copy.from.address, copy.to.address, copy.bytes(), place);
    }
    for plane in 0..copy.depth {
        for row in 0..copy.height {
            let at = |side: &Side| side.address + plane * side.plane + row * side.pitch;
            copy_row(at(&copy.from), at(&copy.to), copy.width, place)?;
        }
    }
    Ok(())
}

/// Copies bytes that were taken from pageable memory.
pub(super) fn staged(bytes: &[u8], to: &Copy, place: &Surroundings<'_>) -> Result<(), Trouble> {
    let from = Side {
        address: bytes.as_ptr() as u64,
        pitch: to.width,
        plane: to.width * to.height,
    };
    copy(&Copy { from, ..*to }, place)
}

/// The bytes of one side of a copy, packed.
///
/// # Safety
/// The side's rows are readable host memory.
pub(crate) unsafe fn gather(copy: &Copy) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(copy.bytes() as usize);
    for plane in 0..copy.depth {
        for row in 0..copy.height {
            let start = copy.from.address + plane * copy.from.plane + row * copy.from.pitch;
            // SAFETY: the caller's promise.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(start as *const u8, copy.width as usize)
            });
        }
    }
    bytes
}

/// Sets memory.
pub(super) fn fill(fill: &Fill, place: &Surroundings<'_>) -> Result<(), Trouble> {
    place
        .machine
        .tally()
        .moved(Direction::Fill, fill.width * fill.height);
    for row in 0..fill.height {
        let (mut to, mut bytes) = (fill.to.address + row * fill.to.pitch, fill.width);
        let mut phase = 0;
        while bytes > 0 {
            let target = piece(place.everything(), to, bytes, true)?;
            touch(&target, target.bytes, true, place)?;
            fill_piece(target.host, target.bytes as usize, fill, phase);
            if let Some((region, offset)) = target.region
                && !region.shadow.is_null()
            {
                // SAFETY: a region's shadow lives as long as the view.
                unsafe { &*region.shadow }.mark_written(offset, target.bytes);
            }
            (to, bytes, phase) = (
                to + target.bytes,
                bytes - target.bytes,
                phase + target.bytes as usize,
            );
        }
    }
    Ok(())
}

fn fill_piece(host: *mut u8, bytes: usize, fill: &Fill, phase: usize) {
    let pattern = fill.value.to_le_bytes();
    let element = fill.element as usize;
    if pattern[..element].iter().all(|byte| *byte == pattern[0]) {
        // SAFETY: the piece has that many bytes.
        return unsafe { host.write_bytes(pattern[0], bytes) };
    }
    for index in 0..bytes {
        // SAFETY: as above.
        unsafe { host.add(index).write(pattern[(phase + index) % element]) };
    }
}

/// Checks that 4 or 8 bytes can be read.
pub(super) fn readable(address: u64, wide: bool, place: &Surroundings<'_>) -> Result<(), Trouble> {
    let size = if wide { 8 } else { 4 };
    let source = piece(place.everything(), address, size, false)?;
    if source.bytes < size {
        return Err(illegal(place.everything(), address, size));
    }
    touch(&source, size, false, place)
}

/// Writes 4 or 8 bytes.
pub(super) fn write_value(
    address: u64,
    value: u64,
    wide: bool,
    place: &Surroundings<'_>,
) -> Result<(), Trouble> {
    let size = if wide { 8 } else { 4 };
    let target = piece(place.everything(), address, size, true)?;
    if target.bytes < size {
        return Err(illegal(place.everything(), address, size));
    }
    touch(&target, size, true, place)?;
    // SAFETY: the piece has that many bytes.
    unsafe {
        target
            .host
            .copy_from_nonoverlapping(value.to_le_bytes().as_ptr(), size as usize)
    };
    Ok(())
}

fn slow_down(place: &Surroundings<'_>) {
    let delay = place.machine.settings.inject.slow_copy_microseconds;
    if delay > 0 {
        std::thread::sleep(Duration::from_micros(delay));
    }
}
