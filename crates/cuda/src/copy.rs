//! Copies between host and device, within a device and between devices.
//!
//! What the host gives is copied into page-locked memory first, so that the host goes on at once and may change its bytes;
//! what it asks for arrives there too, after a wait that passes the gate [`crate::sync`].

use fireclay_core::Result;

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::stream::Stream;
use crate::sync::{self, Reason};

/// Bytes of page-locked memory that one part of a large copy takes: enough to keep the bus busy, little beside the rest.
const PART: usize = 8 << 20;

/// Copies `bytes` to device memory at `to`, in the stream's order. The host does not wait for the device, unless more
/// than two parts of 8 MiB are on their way.
///
/// # Errors
/// If page-locked memory can't be had or the driver fails.
///
/// # Safety
/// `to` is the address of as many bytes of the stream's device, which nothing but this stream's work uses.
pub unsafe fn upload(stream: &Stream, to: u64, bytes: &[u8]) -> Result<()> {
    let gpu = stream.gpu();
    let mut parts: [Option<PinnedBuffer>; 2] = [None, None];
    for (number, part) in bytes.chunks(PART).enumerate() {
        let buffer = &mut parts[number % 2];
        if buffer
            .as_ref()
            .is_none_or(|buffer| buffer.len() < part.len())
        {
            *buffer = Some(PinnedBuffer::allocate(gpu, part.len())?);
        }
        let Some(buffer) = buffer else { continue };
        // Waits for the part before the last one, which has used this buffer.
        buffer.as_bytes_mut()?[..part.len()].copy_from_slice(part);
        let to = to + (number * PART) as u64;
        // Only now: the page-locked buffers look at events, which may be another device's.
        let driver = gpu.bound()?;
        // SAFETY: the caller vouches for the device's bytes; the buffer is not given out again before the copy is done.
        unsafe {
            driver.memcpy_host_to_device(to, buffer.as_ptr().cast(), part.len(), stream.handle())
        }
        .map_err(|error| gpu.failed(&error))?;
        buffer.used_by(stream)?;
    }
    Ok(())
}

/// Copies device memory at `from` to `bytes`, after the stream's work so far. Waits for it.
///
/// # Errors
/// If page-locked memory can't be had, or the work before has failed.
///
/// # Safety
/// `from` is the address of as many bytes of the stream's device.
pub unsafe fn download(stream: &Stream, from: u64, bytes: &mut [u8]) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { download_for(Reason::Read, stream, from, bytes) }
}

/// As [`download`], for a reason.
///
/// # Errors
/// As for `download`.
///
/// # Safety
/// As for `download`.
pub unsafe fn download_for(
    reason: Reason,
    stream: &Stream,
    from: u64,
    bytes: &mut [u8],
) -> Result<()> {
    let gpu = stream.gpu();
    if bytes.is_empty() {
        return Ok(());
    }
    sync::note(reason, bytes.len() as u64);
    let mut buffer = PinnedBuffer::allocate(gpu, bytes.len().min(PART))?;
    for (number, part) in bytes.chunks_mut(PART).enumerate() {
        let from = from + (number * PART) as u64;
        let driver = gpu.bound()?;
        // SAFETY: the caller vouches for the device's bytes; the buffer is this function's own until the copy is done.
        unsafe {
            driver.memcpy_device_to_host(buffer.as_ptr().cast(), from, part.len(), stream.handle())
        }
        .map_err(|error| gpu.failed(&error))?;
        buffer.used_by(stream)?;
        let length = part.len();
        part.copy_from_slice(&buffer.as_bytes_mut()?[..length]);
    }
    gpu.raised()
}

/// Copies within a device, in the stream's order.
///
/// # Errors
/// If the driver fails.
///
/// # Safety
/// Both are addresses of `nbytes` bytes of the stream's device, and do not overlap.
pub unsafe fn copy(stream: &Stream, to: u64, from: u64, nbytes: usize) -> Result<()> {
    if nbytes == 0 {
        return Ok(());
    }
    let gpu = stream.gpu();
    let driver = gpu.bound()?;
    // SAFETY: the caller vouches for the bytes.
    unsafe { driver.memcpy_device_to_device(to, from, nbytes, stream.handle()) }
        .map_err(|error| gpu.failed(&error))
}

/// Sets every one of `nbytes` bytes at `to`, in the stream's order.
///
/// # Errors
/// If the driver fails.
///
/// # Safety
/// `to` is the address of that many bytes of the stream's device.
pub unsafe fn fill(stream: &Stream, to: u64, value: u8, nbytes: usize) -> Result<()> {
    if nbytes == 0 {
        return Ok(());
    }
    let gpu = stream.gpu();
    let driver = gpu.bound()?;
    // SAFETY: the caller vouches for the bytes.
    unsafe { driver.memset_bytes(to, value, nbytes, stream.handle()) }
        .map_err(|error| gpu.failed(&error))
}

/// Copies the first `nbytes` of a buffer to one of another device: after the work that `from_stream` has so far, and before
/// later work of `to_stream`. Straight from one to the other if the pair has passed a test, else through the host.
///
/// # Errors
/// If the driver fails.
pub fn copy_between(
    to: &DeviceBuffer,
    to_stream: &Stream,
    from: &DeviceBuffer,
    from_stream: &Stream,
    nbytes: usize,
) -> Result<()> {
    assert!(nbytes <= to.len() && nbytes <= from.len());
    if nbytes == 0 {
        return Ok(());
    }
    let (target, source) = (to.gpu(), from.gpu());
    if peers::pair_works(target, source)? {
        return peers::copy(to.address(), to_stream, from.address(), from_stream, nbytes);
    }
    let mut bytes = vec![0; nbytes];
    // SAFETY: both buffers hold that many bytes.
    unsafe {
        download(from_stream, from.address(), &mut bytes)?;
        upload(to_stream, to.address(), &bytes)
    }
}

/// Copies from device to device, trusted only after a test: some machines report that they work and deliver garbage.
mod peers {
    use std::collections::HashMap;
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::event::Event;
    use crate::memory::Purpose;

    /// Bytes of the test.
    const TEST: usize = 1 << 16;

    /// Whether copies from `source` arrive at `target` unchanged. Tested once per pair.
    pub(super) fn pair_works(target: &'static Gpu, source: &'static Gpu) -> Result<bool> {
        static TESTED: Mutex<Option<HashMap<(usize, usize), bool>>> = Mutex::new(None);
        let pair = (target.ordinal(), source.ordinal());
        let mut tested = TESTED.lock().unwrap_or_else(PoisonError::into_inner);
        let tested = tested.get_or_insert_default();
        if let Some(works) = tested.get(&pair) {
            return Ok(*works);
        }
        let works = test(target, source)?;
        tested.insert(pair, works);
        Ok(works)
    }

    fn test(target: &'static Gpu, source: &'static Gpu) -> Result<bool> {
        if !target.can_access(source)? {
            return Ok(false);
        }
        // The copies are the source's work, on the target's memory.
        if target.memory().share_with(target, source).is_err() {
            return Ok(false);
        }
        let (to_stream, from_stream) = (target.stream(), source.stream());
        let from = DeviceBuffer::allocate(from_stream, TEST, Purpose::Workspaces)?;
        let to = DeviceBuffer::allocate(to_stream, TEST, Purpose::Workspaces)?;
        let sent: Vec<u8> = (0..TEST as u32)
            .map(|index| (index.wrapping_mul(0x9e37_79b9) >> 24) as u8)
            .collect();
        let mut arrived = vec![0; TEST];
        // SAFETY: both buffers hold that many bytes.
        unsafe {
            upload(from_stream, from.address(), &sent)?;
            if copy(to.address(), to_stream, from.address(), from_stream, TEST).is_err() {
                return Ok(false);
            }
            download(to_stream, to.address(), &mut arrived)?;
        }
        Ok(arrived == sent)
    }

    pub(super) fn copy(
        to: u64,
        to_stream: &Stream,
        from: u64,
        from_stream: &Stream,
        nbytes: usize,
    ) -> Result<()> {
        let (target, source) = (to_stream.gpu(), from_stream.gpu());
        let ready = Event::new(target, false)?;
        ready.record(to_stream)?;
        from_stream.wait(&ready)?;
        let driver = source.bound()?;
        // SAFETY: the caller's buffers hold the bytes; the streams' order keeps them until the copy is done.
        unsafe {
            driver.memcpy_peer(
                to,
                target.context(),
                from,
                source.context(),
                nbytes,
                from_stream.handle(),
            )
        }
        .map_err(|error| source.failed(&error))?;
        let done = Event::new(source, false)?;
        done.record(from_stream)?;
        to_stream.wait(&done)
    }
}
