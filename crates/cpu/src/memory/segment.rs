//! Zeroed memory from the operating system, in large pieces that aren't touched before they're used.

use std::ptr::NonNull;

/// Huge pages exist only at addresses that are multiples of their size.
#[cfg(unix)]
const ALIGNMENT: usize = 2 << 20;

/// `bytes` zeroed bytes, or `None` if they can't be had. `bytes` is a multiple of 2 MiB and not 0.
#[cfg(unix)]
pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let padded = bytes.checked_add(ALIGNMENT)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new private mapping at an address that the system chooses touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            padded,
            access,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(ALIGNMENT);
    let after = ALIGNMENT - before;
    // SAFETY: before <= ALIGNMENT, so what is cut off before and after the `bytes` bytes lies in the mapping of
    // bytes + ALIGNMENT bytes; nothing refers to it yet.
    let aligned = unsafe {
        let aligned = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if after > 0 {
            libc::munmap(aligned.add(bytes).cast(), after);
        }
        aligned
    };
    #[cfg(target_os = "linux")]
    // SAFETY: advice on a mapping of ours, which changes no content. Should it be refused, pages are small.
    unsafe {
        libc::madvise(aligned.cast(), bytes, libc::MADV_HUGEPAGE);
    }
    NonNull::new(aligned)
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// `map(bytes)` returned `start`, and nothing refers to these bytes any more.
#[cfg(unix)]
pub(super) unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for the mapping.
    unsafe { libc::munmap(start.cast(), bytes) };
}

#[cfg(not(unix))]
fn layout(bytes: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(bytes, 4096).ok()
}

/// `bytes` zeroed bytes, or `None` if they can't be had. `bytes` is not 0.
#[cfg(not(unix))]
pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout isn't empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)?) })
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// `map(bytes)` returned `start`, and nothing refers to these bytes any more.
#[cfg(not(unix))]
pub(super) unsafe fn unmap(start: *mut u8, bytes: usize) {
    let layout = layout(bytes).expect("the layout it was allocated with");
    // SAFETY: the caller vouches for the block.
    unsafe { std::alloc::dealloc(start, layout) };
}
