//! The functions of the CUDA driver that are in use: one table, from which come their loading and their calls.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmemAccessDesc, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmodule, CUstream, CUuuid,
};

use super::{Driver, DriverError};

/// What every function of the driver returns: 0, or the number of an error. Not cudarc's enum, since a newer driver may
/// return a number that it does not know.
pub(super) type Code = u32;

/// Attributes, flags and options are handed over as numbers too: they are the C enums' values.
macro_rules! functions {
    ($($(#[$doc:meta])* $method:ident = $symbol:ident($($argument:ident: $ty:ty),* $(,)?);)*) => {
        /// Addresses of the functions in use.
        #[derive(Clone, Copy)]
        pub(super) struct Functions {
            $($method: unsafe extern "C" fn($($ty),*) -> Code,)*
        }

        impl Functions {
            /// Looks every symbol up; the names of those that are missing otherwise.
            pub(super) fn load(
                mut look_up: impl FnMut(&'static str) -> Option<*const c_void>,
            ) -> Result<Functions, Vec<&'static str>> {
                let mut missing = Vec::new();
                let mut find = |name: &'static str| {
                    let address = look_up(name).filter(|address| !address.is_null());
                    address.unwrap_or_else(|| {
                        missing.push(name);
                        std::ptr::null()
                    })
                };
                $(let $method = find(stringify!($symbol));)*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Functions {
                    // SAFETY: not null, as nothing is missing; the driver's interface gives the symbol this signature.
                    $($method: unsafe {
                        std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> Code>($method)
                    },)*
                })
            }
        }

        impl Driver {
            $(
                $(#[$doc])*
                ///
                /// # Safety
                /// What the driver's documentation asks for: pointers are valid for what it reads and writes, handles
                /// are alive and belong to this driver.
                #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
                #[inline]
                pub(crate) unsafe fn $method(&self, $($argument: $ty),*) -> Result<(), DriverError> {
                    // SAFETY: the caller keeps the driver's conditions.
                    let code = unsafe { (self.functions.$method)($($argument),*) };
                    self.check(stringify!($symbol), code)
                }
            )*
        }
    };
}

functions! {
    /// Starts the driver.
    init = cuInit(flags: c_uint);
    /// The newest CUDA version that the driver knows: 1000 times the major and 10 times the minor number.
    driver_get_version = cuDriverGetVersion(version: *mut c_int);
    /// An error's name.
    get_error_name = cuGetErrorName(error: Code, name: *mut *const c_char);
    /// An error's description.
    get_error_string = cuGetErrorString(error: Code, text: *mut *const c_char);

    /// How many devices are visible.
    device_get_count = cuDeviceGetCount(count: *mut c_int);
    /// The device of an ordinal.
    device_get = cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    /// A device's name.
    device_get_name = cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    /// A device's unique number.
    device_get_uuid = cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    /// Bytes of a device's memory.
    device_total_mem = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    /// One number of a device.
    device_get_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice);
    /// Whether a device can reach another one's memory.
    device_can_access_peer = cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    /// The device's context that a process shares; made if nobody holds it.
    device_primary_ctx_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// Makes a context current to the calling thread.
    ctx_set_current = cuCtxSetCurrent(context: CUcontext);
    /// Waits for all work of the current context.
    ctx_synchronize = cuCtxSynchronize();
    /// Lets kernels of the current context use a peer's memory.
    ctx_enable_peer_access = cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);

    /// Free and total bytes of the current device.
    mem_get_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Allocates device memory.
    mem_alloc = cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    /// Frees what `cuMemAlloc` gave.
    mem_free = cuMemFree_v2(pointer: CUdeviceptr);
    /// Allocates page-locked host memory.
    mem_host_alloc = cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Frees page-locked host memory.
    mem_free_host = cuMemFreeHost(pointer: *mut c_void);
    /// Reserves addresses without memory.
    mem_address_reserve = cuMemAddressReserve(
        pointer: *mut CUdeviceptr, bytes: usize, alignment: usize, address: CUdeviceptr, flags: u64,
    );
    /// Gives reserved addresses back.
    mem_address_free = cuMemAddressFree(pointer: CUdeviceptr, bytes: usize);
    /// Takes physical memory.
    mem_create = cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: u64,
    );
    /// Gives physical memory back once it is mapped nowhere.
    mem_release = cuMemRelease(handle: CUmemGenericAllocationHandle);
    /// Puts physical memory behind reserved addresses.
    mem_map = cuMemMap(
        pointer: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64,
    );
    /// Takes it away again.
    mem_unmap = cuMemUnmap(pointer: CUdeviceptr, bytes: usize);
    /// Says who may use mapped memory.
    mem_set_access = cuMemSetAccess(
        pointer: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize,
    );

    /// Copies from the host.
    memcpy_host_to_device = cuMemcpyHtoDAsync_v2(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream,
    );
    /// Copies to the host.
    memcpy_device_to_host = cuMemcpyDtoHAsync_v2(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream,
    );
    /// Copies within a device.
    memcpy_device_to_device = cuMemcpyDtoDAsync_v2(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream,
    );
    /// Copies between devices.
    memcpy_peer = cuMemcpyPeerAsync(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream,
    );
    /// Fills bytes.
    memset_bytes = cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream);

    /// Makes a stream.
    stream_create = cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    /// Ends a stream once its work is done.
    stream_destroy = cuStreamDestroy_v2(stream: CUstream);
    /// Waits for a stream's work.
    stream_synchronize = cuStreamSynchronize(stream: CUstream);
    /// Makes a stream's later work wait for an event.
    stream_wait_event = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);

    /// Makes an event.
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    /// Ends an event.
    event_destroy = cuEventDestroy_v2(event: CUevent);
    /// Marks the place of a stream that its work has come to.
    event_record = cuEventRecord(event: CUevent, stream: CUstream);
    /// Whether the work before an event is done.
    event_query = cuEventQuery(event: CUevent);
    /// Waits for the work before an event.
    event_synchronize = cuEventSynchronize(event: CUevent);
    /// Milliseconds between two events.
    event_elapsed_time = cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    /// Loads a module from PTX or machine code.
    module_load = cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    /// Unloads a module.
    module_unload = cuModuleUnload(module: CUmodule);
    /// A module's kernel by name.
    module_get_function = cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    /// Starts a kernel.
    launch_kernel = cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
}
