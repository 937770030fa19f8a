//! Types of the C interface: handles, callbacks and the structures that are read or written.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use super::error::CUresult;
use super::error::{Failure, Outcome};

/// An opaque handle: a number that the driver gave out, never an address that it follows.
pub type Handle = *mut c_void;
/// A function that a stream calls.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// A function that a stream calls with its status.
pub type CUstreamCallback = Option<unsafe extern "C" fn(Handle, CUresult, *mut c_void)>;
/// How much dynamic shared memory a block size needs.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;

/// `CU_MEMORYTYPE_HOST`
pub(crate) const MEMORY_HOST: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub(crate) const MEMORY_DEVICE: c_uint = 2;
/// `CU_MEMORYTYPE_ARRAY`
pub(crate) const MEMORY_ARRAY: c_uint = 3;
/// `CU_MEMORYTYPE_UNIFIED`
pub(crate) const MEMORY_UNIFIED: c_uint = 4;

/// A copy of rows.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMCPY2D {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: u64,
    pub src_array: Handle,
    pub src_pitch: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: u64,
    pub dst_array: Handle,
    pub dst_pitch: usize,
    pub width_in_bytes: usize,
    pub height: usize,
}

/// A copy of planes; between contexts it is [`CUDA_MEMCPY3D_PEER`], with the same layout.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMCPY3D {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: u64,
    pub src_array: Handle,
    pub src_context: Handle,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: u64,
    pub dst_array: Handle,
    pub dst_context: Handle,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width_in_bytes: usize,
    pub height: usize,
    pub depth: usize,
}

/// A copy of planes between contexts.
#[expect(non_camel_case_types, reason = "the name of the C interface")]
pub type CUDA_MEMCPY3D_PEER = CUDA_MEMCPY3D;

/// A kernel node of a graph.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: Handle,
    pub ctx: Handle,
}

/// A kernel node of a graph, as CUDA 11 has it.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

impl From<CUDA_KERNEL_NODE_PARAMS_v1> for CUDA_KERNEL_NODE_PARAMS {
    fn from(old: CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: old.func,
            grid: old.grid,
            block: old.block,
            shared_mem_bytes: old.shared_mem_bytes,
            kernel_params: old.kernel_params,
            extra: old.extra,
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        }
    }
}

impl From<CUDA_KERNEL_NODE_PARAMS> for CUDA_KERNEL_NODE_PARAMS_v1 {
    fn from(new: CUDA_KERNEL_NODE_PARAMS) -> CUDA_KERNEL_NODE_PARAMS_v1 {
        CUDA_KERNEL_NODE_PARAMS_v1 {
            func: new.func,
            grid: new.grid,
            block: new.block,
            shared_mem_bytes: new.shared_mem_bytes,
            kernel_params: new.kernel_params,
            extra: new.extra,
        }
    }
}

/// A node of a graph that allocates; the address is written back.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub pool_props: CUmemPoolProps,
    pub access_descs: *const CUmemAccessDesc,
    pub access_desc_count: usize,
    pub bytesize: usize,
    pub dptr: u64,
}

/// A memset node of a graph.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: u64,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

/// A host node of a graph.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS {
    pub function: CUhostFn,
    pub user_data: *mut c_void,
}

/// What `cuGraphInstantiateWithParams` reads and writes.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: u64,
    pub upload_stream: Handle,
    pub error_node: Handle,
    pub result: c_uint,
}

/// What `cuGraphExecUpdate_v2` writes.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: c_uint,
    pub error_node: Handle,
    pub error_from_node: Handle,
}

/// How `cuLaunchKernelEx` launches.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUlaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub stream: Handle,
    pub attributes: *const CUlaunchAttribute,
    pub attribute_count: c_uint,
}

/// An attribute of a launch: its number, and a value in a union of 64 bytes.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct CUlaunchAttribute {
    pub id: c_uint,
    pub pad: [c_char; 4],
    pub value: [c_uint; 16],
}

/// Where memory lies: 1 is a device, 2 the host.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CUmemLocation {
    pub kind: c_uint,
    pub id: c_int,
}

/// What physical memory `cuMemCreate` makes.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemAllocationProp {
    pub kind: c_uint,
    pub requested_handle_types: c_uint,
    pub location: CUmemLocation,
    pub win32_handle_meta_data: *mut c_void,
    pub compression: u8,
    pub gpu_direct_rdma_capable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// Who may access mapped memory, and how: 0 not at all, 1 reading, 3 reading and writing.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: c_uint,
}

/// What pool `cuMemPoolCreate` makes.
#[expect(missing_docs, reason = "the fields of the C structure")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemPoolProps {
    pub alloc_type: c_uint,
    pub handle_types: c_uint,
    pub location: CUmemLocation,
    pub win32_security_attributes: *mut c_void,
    pub reserved: [u8; 64],
}

/// Writes a result through a pointer that must not be null.
///
/// # Safety
/// The pointer is null or valid for writing.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T, name: &str) -> Outcome {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{name} is null")));
    }
    // SAFETY: not null, so valid; C callers need not align what they read bytewise.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Writes a result through a pointer that may be null.
///
/// # Safety
/// As [`put`].
pub(crate) unsafe fn put_if<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not null, so valid.
        unsafe { pointer.write_unaligned(value) };
    }
}

/// Reads a structure through a pointer that must not be null.
///
/// # Safety
/// The pointer is null or valid for reading.
pub(crate) unsafe fn get<T: Copy>(pointer: *const T, name: &str) -> Outcome<T> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{name} is null")));
    }
    // SAFETY: not null, so valid.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Reads a list; a null one must have no elements.
///
/// # Safety
/// The pointer is null or valid for reading `count` elements.
pub(crate) unsafe fn list<T: Copy>(pointer: *const T, count: usize, name: &str) -> Outcome<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if pointer.is_null() {
        return Err(Failure::invalid(format!(
            "{name} is null, but {count} are announced"
        )));
    }
    if count > 1 << 24 {
        return Err(Failure::invalid(format!(
            "{name} has {count} elements, more than makes sense"
        )));
    }
    // SAFETY: valid for that many.
    Ok((0..count)
        .map(|index| unsafe { pointer.add(index).read_unaligned() })
        .collect())
}

/// Reads a C string.
///
/// # Safety
/// The pointer is null or points to a string that ends with a zero.
pub(crate) unsafe fn text<'t>(pointer: *const c_char, name: &str) -> Outcome<&'t str> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{name} is null")));
    }
    // SAFETY: not null, so a string.
    let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// Writes a string into a buffer of the caller's, cut to fit, with a zero at the end.
///
/// # Safety
/// The buffer is null or has `length` bytes.
pub(crate) unsafe fn put_text(
    buffer: *mut c_char,
    length: usize,
    text: &str,
    name: &str,
) -> Outcome {
    if buffer.is_null() || length == 0 {
        return Err(Failure::invalid(format!("{name} is null or has no room")));
    }
    let bytes = &text.as_bytes()[..text.len().min(length - 1)];
    // SAFETY: the buffer has room for the bytes and the zero.
    unsafe {
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_c_header() {
        assert_eq!(size_of::<CUDA_MEMCPY2D>(), 128);
        assert_eq!(size_of::<CUDA_MEMCPY3D>(), 200);
        assert_eq!(size_of::<CUDA_KERNEL_NODE_PARAMS>(), 72);
        assert_eq!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>(), 56);
        assert_eq!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>(), 120);
        assert_eq!(size_of::<CUDA_MEMSET_NODE_PARAMS>(), 40);
        assert_eq!(size_of::<CUDA_HOST_NODE_PARAMS>(), 16);
        assert_eq!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>(), 32);
        assert_eq!(size_of::<CUgraphExecUpdateResultInfo>(), 24);
        assert_eq!(size_of::<CUlaunchConfig>(), 56);
        assert_eq!(size_of::<CUlaunchAttribute>(), 72);
        assert_eq!(size_of::<CUmemAllocationProp>(), 32);
        assert_eq!(size_of::<CUmemAccessDesc>(), 12);
        assert_eq!(size_of::<CUmemPoolProps>(), 88);
    }
}
