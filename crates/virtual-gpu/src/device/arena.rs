//! Host memory behind a device: one large reservation that the operating system backs page by page when it is touched.

use std::ptr::NonNull;

/// Bytes from which on pages are given back rather than written.
const LARGE: usize = 1 << 20;

/// A reservation; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena is memory, not tied to a thread; who uses it orders the accesses.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves bytes; `None` if the operating system refuses.
    pub(crate) fn reserve(bytes: usize) -> Option<Arena> {
        // SAFETY: an anonymous mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Arena {
            start: NonNull::new(start.cast())?,
            bytes,
        })
    }

    /// Bytes of the reservation.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Host memory at an offset.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "an offset outside the arena");
        // SAFETY: within the reservation.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Makes a range zeros; of a large one without touching its pages.
    pub(crate) fn zero(&self, offset: usize, bytes: usize) {
        let (page, end) = (4096, offset + bytes);
        assert!(end <= self.bytes, "a range outside the arena");
        let first = offset.next_multiple_of(page);
        let last = end / page * page;
        let write = |from: usize, to: usize| {
            // SAFETY: within the reservation; who asks owns the range.
            unsafe { self.at(from).write_bytes(0, to - from) };
        };
        // SAFETY: whole pages of the reservation, whose contents nobody needs any more.
        let given_back = last >= first + LARGE
            && unsafe {
                libc::madvise(self.at(first).cast(), last - first, libc::MADV_DONTNEED) == 0
            };
        if given_back {
            write(offset, first);
            write(last, end);
        } else {
            write(offset, end);
        }
    }

    /// Gives whole pages of a range back to the operating system; they read as zeros afterwards.
    pub(crate) fn discard(&self, offset: usize, bytes: usize) {
        let page = 4096;
        let first = offset.next_multiple_of(page);
        let last = (offset + bytes).min(self.bytes) / page * page;
        if last > first {
            // SAFETY: whole pages of the reservation, whose contents nobody needs any more.
            unsafe { libc::madvise(self.at(first).cast(), last - first, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `reserve` with this size; regions of it are gone with the machine.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
