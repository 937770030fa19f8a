//! placeholder until branch memory is merged
use std::alloc::Layout;
/// x
pub struct HostBuffer {
    ptr: *mut u8,
    len: usize,
}
unsafe impl Send for HostBuffer {}
unsafe impl Sync for HostBuffer {}
/// x
#[derive(Debug)]
pub struct HostMemoryError {
    pub requested: usize,
}
impl std::fmt::Display for HostMemoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "asked for {} bytes", self.requested)
    }
}
impl HostBuffer {
    pub fn allocate(nbytes: usize) -> Result<HostBuffer, HostMemoryError> {
        let layout = Layout::from_size_align(nbytes.max(1), 64)
            .map_err(|_| HostMemoryError { requested: nbytes })?;
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        if ptr.is_null() {
            return Err(HostMemoryError { requested: nbytes });
        }
        Ok(HostBuffer { ptr, len: nbytes })
    }
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }
    pub fn len(&self) -> usize {
        self.len
    }
}
impl Drop for HostBuffer {
    fn drop(&mut self) {
        unsafe {
            std::alloc::dealloc(
                self.ptr,
                Layout::from_size_align_unchecked(self.len.max(1), 64),
            )
        }
    }
}
