//! The one table of the driver's functions: name and C signature, and which module does it. Entry points, exported
//! symbols, look-up by name and counters come from it.

/// Hands the table to a macro: `implemented { module::name(arguments) => variant; … } unsupported { names }`. The
/// arguments' types are those of [`driver::abi`](crate::driver::abi) and `std::ffi`. A variant, where there is one, is
/// the same function for clients whose default stream is the thread's own.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_driver_function {
    ($macro:ident) => {
        $macro! {
        implemented {
            device::cuInit(flags: c_uint);
            device::cuDriverGetVersion(driver_version: *mut c_int);
            device::cuDeviceGet(device: *mut c_int, ordinal: c_int);
            device::cuDeviceGetCount(count: *mut c_int);
            device::cuDeviceGetName(name: *mut c_char, len: c_int, dev: c_int);
            device::cuDeviceGetUuid(uuid: *mut [u8; 16], dev: c_int);
            device::cuDeviceGetUuid_v2(uuid: *mut [u8; 16], dev: c_int);
            device::cuDeviceTotalMem_v2(bytes: *mut usize, dev: c_int);
            device::cuDeviceGetAttribute(pi: *mut c_int, attrib: c_uint, dev: c_int);
            device::cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: c_int);
            device::cuDeviceGetByPCIBusId(dev: *mut c_int, pci_bus_id: *const c_char);
            device::cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: c_int);
            device::cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: c_int, peer_dev: c_int);
            device::cuDeviceGetP2PAttribute(value: *mut c_int, attrib: c_uint, src_device: c_int, dst_device: c_int);
            device::cuDeviceGetExecAffinitySupport(pi: *mut c_int, kind: c_uint, dev: c_int);
            device::cuGetErrorName(error: CUresult, p_str: *mut *const c_char);
            device::cuGetErrorString(error: CUresult, p_str: *mut *const c_char);
            device::cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64);
            device::cuGetProcAddress_v2(
                symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64,
                symbol_status: *mut c_uint,
            );
            device::cuGetExportTable(pp_export_table: *mut *const c_void, p_export_table_id: *const [u8; 16]);
            device::cuProfilerStart();
            device::cuProfilerStop();
            device::cuFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint);
            context::cuDevicePrimaryCtxRetain(pctx: *mut Handle, dev: c_int);
            context::cuDevicePrimaryCtxRelease_v2(dev: c_int);
            context::cuDevicePrimaryCtxReset_v2(dev: c_int);
            context::cuDevicePrimaryCtxGetState(dev: c_int, flags: *mut c_uint, active: *mut c_int);
            context::cuDevicePrimaryCtxSetFlags_v2(dev: c_int, flags: c_uint);
            context::cuCtxCreate_v2(pctx: *mut Handle, flags: c_uint, dev: c_int);
            context::cuCtxCreate_v3(
                pctx: *mut Handle, params_array: *mut c_void, num_params: c_int, flags: c_uint, dev: c_int,
            );
            context::cuCtxCreate_v4(pctx: *mut Handle, ctx_create_params: *mut c_void, flags: c_uint, dev: c_int);
            context::cuCtxDestroy_v2(ctx: Handle);
            context::cuCtxGetCurrent(pctx: *mut Handle);
            context::cuCtxSetCurrent(ctx: Handle);
            context::cuCtxPushCurrent_v2(ctx: Handle);
            context::cuCtxPopCurrent_v2(pctx: *mut Handle);
            context::cuCtxGetDevice(device: *mut c_int);
            context::cuCtxGetDevice_v2(device: *mut c_int, ctx: Handle);
            context::cuCtxGetFlags(flags: *mut c_uint);
            context::cuCtxSetFlags(flags: c_uint);
            context::cuCtxGetId(ctx: Handle, ctx_id: *mut u64);
            context::cuCtxGetApiVersion(ctx: Handle, version: *mut c_uint);
            context::cuCtxSynchronize();
            context::cuCtxSynchronize_v2(ctx: Handle);
            context::cuCtxGetLimit(pvalue: *mut usize, limit: c_uint);
            context::cuCtxSetLimit(limit: c_uint, value: usize);
            context::cuCtxGetCacheConfig(pconfig: *mut c_uint);
            context::cuCtxSetCacheConfig(config: c_uint);
            context::cuCtxGetSharedMemConfig(p_config: *mut c_uint);
            context::cuCtxSetSharedMemConfig(config: c_uint);
            context::cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int);
            context::cuCtxResetPersistingL2Cache();
            context::cuCtxEnablePeerAccess(peer_context: Handle, flags: c_uint);
            context::cuCtxDisablePeerAccess(peer_context: Handle);
            module::cuModuleLoad(module: *mut Handle, fname: *const c_char);
            module::cuModuleLoadData(module: *mut Handle, image: *const c_void);
            module::cuModuleLoadDataEx(
                module: *mut Handle, image: *const c_void, num_options: c_uint, options: *mut c_uint,
                option_values: *mut *mut c_void,
            );
            module::cuModuleLoadFatBinary(module: *mut Handle, fat_cubin: *const c_void);
            module::cuModuleUnload(hmod: Handle);
            module::cuModuleGetFunction(hfunc: *mut Handle, hmod: Handle, name: *const c_char);
            module::cuModuleGetGlobal_v2(dptr: *mut u64, bytes: *mut usize, hmod: Handle, name: *const c_char);
            module::cuModuleGetLoadingMode(mode: *mut c_uint);
            module::cuModuleGetFunctionCount(count: *mut c_uint, hmod: Handle);
            module::cuModuleEnumerateFunctions(functions: *mut Handle, num_functions: c_uint, hmod: Handle);
            function::cuFuncGetAttribute(pi: *mut c_int, attrib: c_uint, hfunc: Handle);
            function::cuFuncSetAttribute(hfunc: Handle, attrib: c_uint, value: c_int);
            function::cuFuncSetCacheConfig(hfunc: Handle, config: c_uint);
            function::cuFuncSetSharedMemConfig(hfunc: Handle, config: c_uint);
            function::cuFuncGetModule(hmod: *mut Handle, hfunc: Handle);
            function::cuFuncGetName(name: *mut *const c_char, hfunc: Handle);
            function::cuFuncGetParamInfo(
                func: Handle, param_index: usize, param_offset: *mut usize, param_size: *mut usize,
            );
            function::cuFuncGetParamCount(func: Handle, param_count: *mut usize);
            function::cuFuncIsLoaded(state: *mut c_uint, function: Handle);
            function::cuFuncLoad(function: Handle);
            function::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                num_blocks: *mut c_int, func: Handle, block_size: c_int, dynamic_smem_size: usize,
            );
            function::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                num_blocks: *mut c_int, func: Handle, block_size: c_int, dynamic_smem_size: usize, flags: c_uint,
            );
            function::cuOccupancyMaxPotentialBlockSize(
                min_grid_size: *mut c_int, block_size: *mut c_int, func: Handle,
                block_size_to_dynamic_smem_size: CUoccupancyB2DSize, dynamic_smem_size: usize,
                block_size_limit: c_int,
            );
            function::cuOccupancyMaxPotentialBlockSizeWithFlags(
                min_grid_size: *mut c_int, block_size: *mut c_int, func: Handle,
                block_size_to_dynamic_smem_size: CUoccupancyB2DSize, dynamic_smem_size: usize,
                block_size_limit: c_int, flags: c_uint,
            );
            function::cuOccupancyAvailableDynamicSMemPerBlock(
                dynamic_smem_size: *mut usize, func: Handle, num_blocks: c_int, block_size: c_int,
            );
            library::cuLibraryLoadData(
                library: *mut Handle, code: *const c_void, jit_options: *mut c_uint,
                jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_uint,
                library_option_values: *mut *mut c_void, num_library_options: c_uint,
            );
            library::cuLibraryLoadFromFile(
                library: *mut Handle, file_name: *const c_char, jit_options: *mut c_uint,
                jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_uint,
                library_option_values: *mut *mut c_void, num_library_options: c_uint,
            );
            library::cuLibraryUnload(library: Handle);
            library::cuLibraryGetKernel(p_kernel: *mut Handle, library: Handle, name: *const c_char);
            library::cuLibraryGetKernelCount(count: *mut c_uint, lib: Handle);
            library::cuLibraryEnumerateKernels(kernels: *mut Handle, num_kernels: c_uint, lib: Handle);
            library::cuLibraryGetModule(p_mod: *mut Handle, library: Handle);
            library::cuLibraryGetGlobal(dptr: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
            library::cuKernelGetFunction(p_func: *mut Handle, kernel: Handle);
            library::cuKernelGetLibrary(p_lib: *mut Handle, kernel: Handle);
            library::cuKernelGetName(name: *mut *const c_char, hfunc: Handle);
            library::cuKernelGetAttribute(pi: *mut c_int, attrib: c_uint, kernel: Handle, dev: c_int);
            library::cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: Handle, dev: c_int);
            library::cuKernelSetCacheConfig(kernel: Handle, config: c_uint, dev: c_int);
            library::cuKernelGetParamInfo(
                kernel: Handle, param_index: usize, param_offset: *mut usize, param_size: *mut usize,
            );
            library::cuKernelGetParamCount(kernel: Handle, param_count: *mut usize);
            library::cuLinkCreate_v2(
                num_options: c_uint, options: *mut c_uint, option_values: *mut *mut c_void, state_out: *mut Handle,
            );
            library::cuLinkAddData_v2(
                state: Handle, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char,
                num_options: c_uint, options: *mut c_uint, option_values: *mut *mut c_void,
            );
            library::cuLinkAddFile_v2(
                state: Handle, kind: c_uint, path: *const c_char, num_options: c_uint, options: *mut c_uint,
                option_values: *mut *mut c_void,
            );
            library::cuLinkComplete(state: Handle, cubin_out: *mut *mut c_void, size_out: *mut usize);
            library::cuLinkDestroy(state: Handle);
            memory::cuMemAlloc_v2(dptr: *mut u64, bytesize: usize);
            memory::cuMemAllocPitch_v2(
                dptr: *mut u64, p_pitch: *mut usize, width_in_bytes: usize, height: usize,
                element_size_bytes: c_uint,
            );
            memory::cuMemFree_v2(dptr: u64);
            memory::cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            memory::cuMemGetAddressRange_v2(pbase: *mut u64, psize: *mut usize, dptr: u64);
            memory::cuMemAllocManaged(dptr: *mut u64, bytesize: usize, flags: c_uint);
            memory::cuMemAdvise(dev_ptr: u64, count: usize, advice: c_uint, device: c_int);
            memory::cuMemAdvise_v2(dev_ptr: u64, count: usize, advice: c_uint, location: CUmemLocation);
            memory::cuMemPrefetchAsync(dev_ptr: u64, count: usize, dst_device: c_int, h_stream: Handle)
                => cuMemPrefetchAsync_ptsz;
            memory::cuMemPrefetchAsync_v2(
                dev_ptr: u64, count: usize, location: CUmemLocation, flags: c_uint, h_stream: Handle,
            ) => cuMemPrefetchAsync_v2_ptsz;
            memory::cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);
            memory::cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint);
            memory::cuMemFreeHost(p: *mut c_void);
            memory::cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint);
            memory::cuMemHostUnregister(p: *mut c_void);
            memory::cuMemHostGetDevicePointer_v2(pdptr: *mut u64, p: *mut c_void, flags: c_uint);
            memory::cuMemHostGetFlags(p_flags: *mut c_uint, p: *mut c_void);
            memory::cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: u64);
            memory::cuPointerGetAttributes(
                num_attributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: u64,
            );
            memory::cuPointerSetAttribute(value: *const c_void, attribute: c_uint, ptr: u64);
            copy::cuMemcpy(dst: u64, src: u64, byte_count: usize) => cuMemcpy_ptds;
            copy::cuMemcpyAsync(dst: u64, src: u64, byte_count: usize, h_stream: Handle) => cuMemcpyAsync_ptsz;
            copy::cuMemcpyHtoD_v2(dst_device: u64, src_host: *const c_void, byte_count: usize) => cuMemcpyHtoD_v2_ptds;
            copy::cuMemcpyHtoDAsync_v2(dst_device: u64, src_host: *const c_void, byte_count: usize, h_stream: Handle)
                => cuMemcpyHtoDAsync_v2_ptsz;
            copy::cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: u64, byte_count: usize) => cuMemcpyDtoH_v2_ptds;
            copy::cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: u64, byte_count: usize, h_stream: Handle)
                => cuMemcpyDtoHAsync_v2_ptsz;
            copy::cuMemcpyDtoD_v2(dst_device: u64, src_device: u64, byte_count: usize) => cuMemcpyDtoD_v2_ptds;
            copy::cuMemcpyDtoDAsync_v2(dst_device: u64, src_device: u64, byte_count: usize, h_stream: Handle)
                => cuMemcpyDtoDAsync_v2_ptsz;
            copy::cuMemcpyPeer(
                dst_device: u64, dst_context: Handle, src_device: u64, src_context: Handle, byte_count: usize,
            ) => cuMemcpyPeer_ptds;
            copy::cuMemcpyPeerAsync(
                dst_device: u64, dst_context: Handle, src_device: u64, src_context: Handle, byte_count: usize,
                h_stream: Handle,
            ) => cuMemcpyPeerAsync_ptsz;
            copy::cuMemcpy2D_v2(p_copy: *const CUDA_MEMCPY2D) => cuMemcpy2D_v2_ptds;
            copy::cuMemcpy2DUnaligned_v2(p_copy: *const CUDA_MEMCPY2D) => cuMemcpy2DUnaligned_v2_ptds;
            copy::cuMemcpy2DAsync_v2(p_copy: *const CUDA_MEMCPY2D, h_stream: Handle) => cuMemcpy2DAsync_v2_ptsz;
            copy::cuMemcpy3D_v2(p_copy: *const CUDA_MEMCPY3D) => cuMemcpy3D_v2_ptds;
            copy::cuMemcpy3DAsync_v2(p_copy: *const CUDA_MEMCPY3D, h_stream: Handle) => cuMemcpy3DAsync_v2_ptsz;
            copy::cuMemcpy3DPeer(p_copy: *const CUDA_MEMCPY3D_PEER) => cuMemcpy3DPeer_ptds;
            copy::cuMemcpy3DPeerAsync(p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: Handle) => cuMemcpy3DPeerAsync_ptsz;
            fill::cuMemsetD8_v2(dst_device: u64, uc: u8, n: usize) => cuMemsetD8_v2_ptds;
            fill::cuMemsetD16_v2(dst_device: u64, us: u16, n: usize) => cuMemsetD16_v2_ptds;
            fill::cuMemsetD32_v2(dst_device: u64, ui: c_uint, n: usize) => cuMemsetD32_v2_ptds;
            fill::cuMemsetD8Async(dst_device: u64, uc: u8, n: usize, h_stream: Handle) => cuMemsetD8Async_ptsz;
            fill::cuMemsetD16Async(dst_device: u64, us: u16, n: usize, h_stream: Handle) => cuMemsetD16Async_ptsz;
            fill::cuMemsetD32Async(dst_device: u64, ui: c_uint, n: usize, h_stream: Handle) => cuMemsetD32Async_ptsz;
            fill::cuMemsetD2D8_v2(dst_device: u64, dst_pitch: usize, uc: u8, width: usize, height: usize)
                => cuMemsetD2D8_v2_ptds;
            fill::cuMemsetD2D16_v2(dst_device: u64, dst_pitch: usize, us: u16, width: usize, height: usize)
                => cuMemsetD2D16_v2_ptds;
            fill::cuMemsetD2D32_v2(dst_device: u64, dst_pitch: usize, ui: c_uint, width: usize, height: usize)
                => cuMemsetD2D32_v2_ptds;
            fill::cuMemsetD2D8Async(
                dst_device: u64, dst_pitch: usize, uc: u8, width: usize, height: usize, h_stream: Handle,
            ) => cuMemsetD2D8Async_ptsz;
            fill::cuMemsetD2D16Async(
                dst_device: u64, dst_pitch: usize, us: u16, width: usize, height: usize, h_stream: Handle,
            ) => cuMemsetD2D16Async_ptsz;
            fill::cuMemsetD2D32Async(
                dst_device: u64, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: Handle,
            ) => cuMemsetD2D32Async_ptsz;
            pool::cuMemAllocAsync(dptr: *mut u64, bytesize: usize, h_stream: Handle) => cuMemAllocAsync_ptsz;
            pool::cuMemAllocFromPoolAsync(dptr: *mut u64, bytesize: usize, pool: Handle, h_stream: Handle)
                => cuMemAllocFromPoolAsync_ptsz;
            pool::cuMemFreeAsync(dptr: u64, h_stream: Handle) => cuMemFreeAsync_ptsz;
            pool::cuMemPoolCreate(pool: *mut Handle, pool_props: *const CUmemPoolProps);
            pool::cuMemPoolDestroy(pool: Handle);
            pool::cuMemPoolGetAttribute(pool: Handle, attr: c_uint, value: *mut c_void);
            pool::cuMemPoolSetAttribute(pool: Handle, attr: c_uint, value: *mut c_void);
            pool::cuMemPoolTrimTo(pool: Handle, min_bytes_to_keep: usize);
            pool::cuMemPoolSetAccess(pool: Handle, map: *const CUmemAccessDesc, count: usize);
            pool::cuMemPoolGetAccess(flags: *mut c_uint, mem_pool: Handle, location: *mut CUmemLocation);
            pool::cuDeviceGetDefaultMemPool(pool_out: *mut Handle, dev: c_int);
            pool::cuDeviceGetMemPool(pool: *mut Handle, dev: c_int);
            pool::cuDeviceSetMemPool(dev: c_int, pool: Handle);
            virtual_memory::cuMemAddressReserve(ptr: *mut u64, size: usize, alignment: usize, addr: u64, flags: u64);
            virtual_memory::cuMemAddressFree(ptr: u64, size: usize);
            virtual_memory::cuMemCreate(handle: *mut u64, size: usize, prop: *const CUmemAllocationProp, flags: u64);
            virtual_memory::cuMemRelease(handle: u64);
            virtual_memory::cuMemMap(ptr: u64, size: usize, offset: usize, handle: u64, flags: u64);
            virtual_memory::cuMemUnmap(ptr: u64, size: usize);
            virtual_memory::cuMemSetAccess(ptr: u64, size: usize, desc: *const CUmemAccessDesc, count: usize);
            virtual_memory::cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, ptr: u64);
            virtual_memory::cuMemGetAllocationGranularity(
                granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_uint,
            );
            virtual_memory::cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: u64);
            virtual_memory::cuMemRetainAllocationHandle(handle: *mut u64, addr: *mut c_void);
            stream::cuStreamCreate(ph_stream: *mut Handle, flags: c_uint);
            stream::cuStreamCreateWithPriority(ph_stream: *mut Handle, flags: c_uint, priority: c_int);
            stream::cuStreamDestroy_v2(h_stream: Handle);
            stream::cuStreamSynchronize(h_stream: Handle) => cuStreamSynchronize_ptsz;
            stream::cuStreamQuery(h_stream: Handle) => cuStreamQuery_ptsz;
            stream::cuStreamWaitEvent(h_stream: Handle, h_event: Handle, flags: c_uint) => cuStreamWaitEvent_ptsz;
            stream::cuStreamAddCallback(
                h_stream: Handle, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint,
            ) => cuStreamAddCallback_ptsz;
            stream::cuStreamAttachMemAsync(h_stream: Handle, dptr: u64, length: usize, flags: c_uint)
                => cuStreamAttachMemAsync_ptsz;
            stream::cuStreamGetCtx(h_stream: Handle, pctx: *mut Handle) => cuStreamGetCtx_ptsz;
            stream::cuStreamGetFlags(h_stream: Handle, flags: *mut c_uint) => cuStreamGetFlags_ptsz;
            stream::cuStreamGetPriority(h_stream: Handle, priority: *mut c_int) => cuStreamGetPriority_ptsz;
            stream::cuStreamGetId(h_stream: Handle, stream_id: *mut u64) => cuStreamGetId_ptsz;
            stream::cuStreamGetDevice(h_stream: Handle, device: *mut c_int) => cuStreamGetDevice_ptsz;
            stream::cuStreamCopyAttributes(dst: Handle, src: Handle) => cuStreamCopyAttributes_ptsz;
            stream::cuStreamWaitValue32_v2(stream: Handle, addr: u64, value: u32, flags: c_uint)
                => cuStreamWaitValue32_v2_ptsz;
            stream::cuStreamWaitValue64_v2(stream: Handle, addr: u64, value: u64, flags: c_uint)
                => cuStreamWaitValue64_v2_ptsz;
            stream::cuStreamWriteValue32_v2(stream: Handle, addr: u64, value: u32, flags: c_uint)
                => cuStreamWriteValue32_v2_ptsz;
            stream::cuStreamWriteValue64_v2(stream: Handle, addr: u64, value: u64, flags: c_uint)
                => cuStreamWriteValue64_v2_ptsz;
            stream::cuLaunchHostFunc(h_stream: Handle, function: CUhostFn, user_data: *mut c_void)
                => cuLaunchHostFunc_ptsz;
            event::cuEventCreate(ph_event: *mut Handle, flags: c_uint);
            event::cuEventDestroy_v2(h_event: Handle);
            event::cuEventRecord(h_event: Handle, h_stream: Handle) => cuEventRecord_ptsz;
            event::cuEventRecordWithFlags(h_event: Handle, h_stream: Handle, flags: c_uint)
                => cuEventRecordWithFlags_ptsz;
            event::cuCtxRecordEvent(ctx: Handle, h_event: Handle);
            event::cuCtxWaitEvent(ctx: Handle, h_event: Handle);
            event::cuEventQuery(h_event: Handle);
            event::cuEventSynchronize(h_event: Handle);
            event::cuEventElapsedTime(p_milliseconds: *mut f32, h_start: Handle, h_end: Handle);
            event::cuEventElapsedTime_v2(p_milliseconds: *mut f32, h_start: Handle, h_end: Handle);
            launch::cuLaunchKernel(
                f: Handle, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
                block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Handle,
                kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
            ) => cuLaunchKernel_ptsz;
            launch::cuLaunchKernelEx(
                config: *const CUlaunchConfig, f: Handle, kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
            ) => cuLaunchKernelEx_ptsz;
            launch::cuLaunchCooperativeKernel(
                f: Handle, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
                block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Handle,
                kernel_params: *mut *mut c_void,
            ) => cuLaunchCooperativeKernel_ptsz;
            capture::cuStreamBeginCapture_v2(h_stream: Handle, mode: c_uint) => cuStreamBeginCapture_v2_ptsz;
            capture::cuStreamBeginCaptureToGraph(
                h_stream: Handle, h_graph: Handle, dependencies: *const Handle, dependency_data: *const u64,
                num_dependencies: usize, mode: c_uint,
            ) => cuStreamBeginCaptureToGraph_ptsz;
            capture::cuStreamEndCapture(h_stream: Handle, ph_graph: *mut Handle) => cuStreamEndCapture_ptsz;
            capture::cuStreamIsCapturing(h_stream: Handle, capture_status: *mut c_uint) => cuStreamIsCapturing_ptsz;
            capture::cuStreamGetCaptureInfo(h_stream: Handle, capture_status_out: *mut c_uint, id_out: *mut u64)
                => cuStreamGetCaptureInfo_ptsz;
            capture::cuStreamGetCaptureInfo_v2(
                h_stream: Handle, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Handle,
                dependencies_out: *mut *const Handle, num_dependencies_out: *mut usize,
            ) => cuStreamGetCaptureInfo_v2_ptsz;
            capture::cuStreamGetCaptureInfo_v3(
                h_stream: Handle, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Handle,
                dependencies_out: *mut *const Handle, edge_data_out: *mut *const u64,
                num_dependencies_out: *mut usize,
            ) => cuStreamGetCaptureInfo_v3_ptsz;
            capture::cuStreamUpdateCaptureDependencies(
                h_stream: Handle, dependencies: *mut Handle, num_dependencies: usize, flags: c_uint,
            ) => cuStreamUpdateCaptureDependencies_ptsz;
            capture::cuStreamUpdateCaptureDependencies_v2(
                h_stream: Handle, dependencies: *mut Handle, dependency_data: *const u64, num_dependencies: usize,
                flags: c_uint,
            ) => cuStreamUpdateCaptureDependencies_v2_ptsz;
            capture::cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
            graph::cuGraphCreate(ph_graph: *mut Handle, flags: c_uint);
            graph::cuGraphDestroy(h_graph: Handle);
            graph::cuGraphClone(ph_graph_clone: *mut Handle, original_graph: Handle);
            graph_node::cuGraphAddKernelNode_v2(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                node_params: *const CUDA_KERNEL_NODE_PARAMS,
            );
            graph_node::cuGraphAddMemcpyNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                copy_params: *const CUDA_MEMCPY3D, ctx: Handle,
            );
            graph_node::cuGraphAddMemsetNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: Handle,
            );
            graph_node::cuGraphAddHostNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                node_params: *const CUDA_HOST_NODE_PARAMS,
            );
            graph_node::cuGraphAddEmptyNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
            );
            graph_node::cuGraphAddChildGraphNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                child_graph: Handle,
            );
            graph_node::cuGraphAddEventRecordNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                event: Handle,
            );
            graph_node::cuGraphAddEventWaitNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                event: Handle,
            );
            graph::cuGraphAddDependencies(
                h_graph: Handle, from: *const Handle, to: *const Handle, num_dependencies: usize,
            );
            graph::cuGraphAddDependencies_v2(
                h_graph: Handle, from: *const Handle, to: *const Handle, edge_data: *const u64,
                num_dependencies: usize,
            );
            graph::cuGraphRemoveDependencies(
                h_graph: Handle, from: *const Handle, to: *const Handle, num_dependencies: usize,
            );
            graph::cuGraphRemoveDependencies_v2(
                h_graph: Handle, from: *const Handle, to: *const Handle, edge_data: *const u64,
                num_dependencies: usize,
            );
            graph::cuGraphGetNodes(h_graph: Handle, nodes: *mut Handle, num_nodes: *mut usize);
            graph::cuGraphGetRootNodes(h_graph: Handle, root_nodes: *mut Handle, num_root_nodes: *mut usize);
            graph::cuGraphGetEdges(h_graph: Handle, from: *mut Handle, to: *mut Handle, num_edges: *mut usize);
            graph::cuGraphGetEdges_v2(
                h_graph: Handle, from: *mut Handle, to: *mut Handle, edge_data: *mut u64, num_edges: *mut usize,
            );
            graph::cuGraphNodeGetType(h_node: Handle, kind: *mut c_uint);
            graph::cuGraphNodeGetDependencies(h_node: Handle, dependencies: *mut Handle, num_dependencies: *mut usize);
            graph::cuGraphNodeGetDependencies_v2(
                h_node: Handle, dependencies: *mut Handle, edge_data: *mut u64, num_dependencies: *mut usize,
            );
            graph::cuGraphNodeGetDependentNodes(
                h_node: Handle, dependent_nodes: *mut Handle, num_dependent_nodes: *mut usize,
            );
            graph::cuGraphNodeGetDependentNodes_v2(
                h_node: Handle, dependent_nodes: *mut Handle, edge_data: *mut u64, num_dependent_nodes: *mut usize,
            );
            graph::cuGraphDestroyNode(h_node: Handle);
            graph_node::cuGraphKernelNodeGetParams_v2(h_node: Handle, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
            graph_node::cuGraphKernelNodeSetParams_v2(h_node: Handle, node_params: *const CUDA_KERNEL_NODE_PARAMS);
            graph::cuGraphNodeFindInClone(ph_node: *mut Handle, h_original_node: Handle, h_cloned_graph: Handle);
            graph::cuGraphChildGraphNodeGetGraph(h_node: Handle, ph_graph: *mut Handle);
            graph_exec::cuGraphInstantiate_v2(
                ph_graph_exec: *mut Handle, h_graph: Handle, ph_error_node: *mut Handle, log_buffer: *mut c_char,
                buffer_size: usize,
            );
            graph_exec::cuGraphInstantiateWithFlags(ph_graph_exec: *mut Handle, h_graph: Handle, flags: u64);
            graph_exec::cuGraphInstantiateWithParams(
                ph_graph_exec: *mut Handle, h_graph: Handle, instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
            ) => cuGraphInstantiateWithParams_ptsz;
            graph_exec::cuGraphExecGetFlags(h_graph_exec: Handle, flags: *mut u64);
            graph_exec::cuGraphExecUpdate(
                h_graph_exec: Handle, h_graph: Handle, h_error_node_out: *mut Handle, update_result_out: *mut c_uint,
            );
            graph_exec::cuGraphExecUpdate_v2(
                h_graph_exec: Handle, h_graph: Handle, result_info: *mut CUgraphExecUpdateResultInfo,
            );
            graph_exec::cuGraphUpload(h_graph_exec: Handle, h_stream: Handle) => cuGraphUpload_ptsz;
            graph_exec::cuGraphLaunch(h_graph_exec: Handle, h_stream: Handle) => cuGraphLaunch_ptsz;
            graph_exec::cuGraphExecDestroy(h_graph_exec: Handle);
            graph_node::cuGraphExecKernelNodeSetParams_v2(
                h_graph_exec: Handle, h_node: Handle, node_params: *const CUDA_KERNEL_NODE_PARAMS,
            );
            graph_node::cuGraphExecMemcpyNodeSetParams(
                h_graph_exec: Handle, h_node: Handle, copy_params: *const CUDA_MEMCPY3D, ctx: Handle,
            );
            graph_node::cuGraphExecMemsetNodeSetParams(
                h_graph_exec: Handle, h_node: Handle, memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: Handle,
            );
            graph_node::cuGraphExecHostNodeSetParams(
                h_graph_exec: Handle, h_node: Handle, node_params: *const CUDA_HOST_NODE_PARAMS,
            );
            graph_node::cuGraphAddKernelNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
            );
            graph_node::cuGraphAddMemAllocNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
            );
            graph_node::cuGraphAddMemFreeNode(
                ph_graph_node: *mut Handle, h_graph: Handle, dependencies: *const Handle, num_dependencies: usize,
                dptr: u64,
            );
            graph_node::cuGraphMemAllocNodeGetParams(h_node: Handle, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
            graph_node::cuGraphMemFreeNodeGetParams(h_node: Handle, dptr_out: *mut u64);
            graph_node::cuDeviceGetGraphMemAttribute(device: c_int, attr: c_uint, value: *mut c_void);
            graph_node::cuDeviceGraphMemTrim(device: c_int);
            graph_node::cuGraphKernelNodeGetParams(h_node: Handle, node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1);
            graph_node::cuGraphKernelNodeSetParams(h_node: Handle, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1);
            graph_node::cuGraphExecKernelNodeSetParams(
                h_graph_exec: Handle, h_node: Handle, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
            );
            graph_node::cuGraphMemcpyNodeGetParams(h_node: Handle, node_params: *mut CUDA_MEMCPY3D);
            graph_node::cuGraphMemcpyNodeSetParams(h_node: Handle, node_params: *const CUDA_MEMCPY3D);
            graph_node::cuGraphMemsetNodeGetParams(h_node: Handle, node_params: *mut CUDA_MEMSET_NODE_PARAMS);
            graph_node::cuGraphMemsetNodeSetParams(h_node: Handle, node_params: *const CUDA_MEMSET_NODE_PARAMS);
            graph_node::cuGraphHostNodeGetParams(h_node: Handle, node_params: *mut CUDA_HOST_NODE_PARAMS);
            graph_node::cuGraphHostNodeSetParams(h_node: Handle, node_params: *const CUDA_HOST_NODE_PARAMS);
            graph_node::cuGraphEventRecordNodeGetEvent(h_node: Handle, event_out: *mut Handle);
            graph_node::cuGraphEventRecordNodeSetEvent(h_node: Handle, event: Handle);
            graph_node::cuGraphExecEventRecordNodeSetEvent(h_graph_exec: Handle, h_node: Handle, event: Handle);
            graph_node::cuGraphEventWaitNodeGetEvent(h_node: Handle, event_out: *mut Handle);
            graph_node::cuGraphEventWaitNodeSetEvent(h_node: Handle, event: Handle);
            graph_node::cuGraphExecEventWaitNodeSetEvent(h_graph_exec: Handle, h_node: Handle, event: Handle);
        }
        unsupported {
            cuProfilerInitialize cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayDestroy
            cuArrayGetDescriptor_v2 cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties
            cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback cuCoredumpGetAttribute
            cuCoredumpGetAttributeGlobal cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback
            cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal cuCtxAttach cuCtxDetach cuCtxFromGreenCtx
            cuCtxGetDevResource cuCtxGetExecAffinity cuDestroyExternalMemory cuDestroyExternalSemaphore
            cuDevResourceGenerateDesc cuDevSmResourceSplit cuDevSmResourceSplitByCount cuDeviceGetCliqueCount
            cuDeviceGetCliqueInfo cuDeviceGetDevResource cuDeviceGetFabricClusterUuid cuDeviceGetHostAtomicCapabilities
            cuDeviceGetLuid cuDeviceGetP2PAtomicCapabilities cuDeviceGetProperties cuDeviceGetTexture1DLinearMaxWidth
            cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute cuDeviceUnregisterAsyncNotification
            cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuFuncSetBlockShape
            cuFuncSetSharedSize cuGraphAddBatchMemOpNode cuGraphAddExternalSemaphoresSignalNode
            cuGraphAddExternalSemaphoresWaitNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3
            cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams cuGraphConditionalHandleCreate
            cuGraphDebugDotPrint cuGraphExecBatchMemOpNodeSetParams cuGraphExecChildGraphNodeSetParams
            cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams
            cuGraphExecGetId cuGraphExecNodeSetParams cuGraphExternalSemaphoresSignalNodeGetParams
            cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams
            cuGraphExternalSemaphoresWaitNodeSetParams cuGraphGetId cuGraphKernelNodeCopyAttributes
            cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute cuGraphNodeGetContainingGraph
            cuGraphNodeGetEnabled cuGraphNodeGetLocalId cuGraphNodeGetParams cuGraphNodeGetToolsId
            cuGraphNodeSetEnabled cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuGraphReleaseUserObject
            cuGraphRetainUserObject cuGraphicsMapResources cuGraphicsResourceGetMappedMipmappedArray
            cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray
            cuGraphicsUnmapResources cuGraphicsUnregisterResource cuGreenCtxCreate cuGreenCtxDestroy
            cuGreenCtxGetDevResource cuGreenCtxGetId cuGreenCtxRecordEvent cuGreenCtxStreamCreate cuGreenCtxWaitEvent
            cuImportExternalMemory cuImportExternalSemaphore cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle
            cuIpcOpenEventHandle cuIpcOpenMemHandle_v2 cuLaunch cuLaunchCooperativeKernelMultiDevice cuLaunchGrid
            cuLaunchGridAsync cuLaunchHostFunc_v2 cuLibraryGetManaged cuLibraryGetUnifiedFunction
            cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr cuLogicalEndpointBindMem cuLogicalEndpointCreate
            cuLogicalEndpointDestroy cuLogicalEndpointExport cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease
            cuLogicalEndpointIdReserve cuLogicalEndpointImport cuLogicalEndpointQuery cuLogicalEndpointUnbind
            cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback
            cuMemBatchDecompressAsync cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync
            cuMemExportToShareableHandle cuMemGetDefaultMemPool cuMemGetHandleForAddressRange cuMemGetLocationInfo
            cuMemGetMemPool cuMemImportFromShareableHandle cuMemMapArrayAsync cuMemPoolExportPointer
            cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolImportPointer
            cuMemPrefetchBatchAsync cuMemRangeGetAttribute cuMemRangeGetAttributes cuMemSetMemPool cuMemcpy3DBatchAsync
            cuMemcpy3DBatchAsync_v2 cuMemcpy3DWithAttributesAsync cuMemcpyAtoA_v2 cuMemcpyAtoD_v2 cuMemcpyAtoHAsync_v2
            cuMemcpyAtoH_v2 cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemcpyDtoA_v2 cuMemcpyHtoAAsync_v2
            cuMemcpyHtoA_v2 cuMemcpyWithAttributesAsync cuMipmappedArrayCreate cuMipmappedArrayDestroy
            cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties
            cuModuleGetSurfRef cuModuleGetTexRef cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindAddr_v2
            cuMulticastBindMem cuMulticastBindMem_v2 cuMulticastCreate cuMulticastGetGranularity cuMulticastUnbind
            cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize cuParamSetSize cuParamSetTexRef cuParamSetf
            cuParamSeti cuParamSetv cuSignalExternalSemaphoresAsync cuStreamBatchMemOp cuStreamBatchMemOp_v2
            cuStreamBeginCaptureToCig cuStreamBeginRecaptureToGraph cuStreamEndCaptureToCig cuStreamGetAttribute
            cuStreamGetCtx_v2 cuStreamGetDevResource cuStreamGetGreenCtx cuStreamSetAttribute cuStreamWaitValue32
            cuStreamWaitValue64 cuStreamWriteValue32 cuStreamWriteValue64 cuSurfObjectCreate cuSurfObjectDestroy
            cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray cuTensorMapEncodeIm2col
            cuTensorMapEncodeIm2colWide cuTensorMapEncodeTiled cuTensorMapReplaceAddress cuTexObjectCreate
            cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc
            cuTexRefCreate cuTexRefDestroy cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray
            cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
            cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp
            cuTexRefGetMipmappedArray cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2
            cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat
            cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp
            cuTexRefSetMipmappedArray cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain
            cuWaitExternalSemaphoresAsync
        }
        }
    };
}

macro_rules! entry_points {
    (
        implemented { $($module:ident::$name:ident($($argument:ident: $ty:ty),* $(,)?) $(=> $variant:ident)?;)* }
        unsupported { $($stub:ident)* }
    ) => {
        /// A function of the table; variants for the thread's own default stream are the same function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        #[expect(missing_docs, non_camel_case_types, reason = "the names of the C interface")]
        pub enum Function {
            $($name,)*
            $($stub,)*
        }

        /// The names, by `Function as usize`.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name),)* $(stringify!($stub),)*];

        /// The entry point of a symbol.
        fn exact(name: &str) -> Option<*const c_void> {
            Some(match name {
                $(
                    stringify!($name) => $name as *const c_void,
                    $(stringify!($variant) => $variant as *const c_void,)?
                )*
                $(stringify!($stub) => $stub as *const c_void,)*
                _ => return None,
            })
        }

        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// As the C interface says: pointers are null or valid for what the function reads and writes.
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> CUresult {
                // SAFETY: the caller's promise is passed on.
                enter(Function::$name, false, |call| unsafe { super::$module::$name(call, $($argument),*) })
            }

            per_thread_variant!($($variant)?; $module $name ($($argument: $ty),*));
        )*

        $(
            /// Not supported: answers 801 and says so in the log.
            pub extern "C" fn $stub() -> CUresult {
                enter(Function::$stub, false, |call| call.unsupported())
            }
        )*
    };
}

/// The entry point of a variant, if the function has one.
macro_rules! per_thread_variant {
    (; $module:ident $name:ident ($($argument:ident: $ty:ty),*)) => {};
    ($variant:ident; $module:ident $name:ident ($($argument:ident: $ty:ty),*)) => {
        /// The driver's function of this name: the default stream is the thread's own.
        ///
        /// # Safety
        /// As the C interface says: pointers are null or valid for what the function reads and writes.
        pub unsafe extern "C" fn $variant($($argument: $ty),*) -> CUresult {
            // SAFETY: the caller's promise is passed on.
            enter(Function::$name, true, |call| unsafe { super::$module::$name(call, $($argument),*) })
        }
    };
}
