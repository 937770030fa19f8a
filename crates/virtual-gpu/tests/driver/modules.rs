//! Modules, libraries and the linker: what can be loaded, found and asked, and what is said when it cannot.

use std::ffi::{CStr, CString, c_char, c_void};

use virtual_gpu::machine::Settings;

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Handle, Schedule, arguments, code, set_device};
use crate::{eager, foreign, logged, null, ptx, settings};

fn load(text: &str) -> u32 {
    let text = CString::new(text).unwrap();
    let mut module = null();
    api::cuModuleLoadData(&mut module, text.as_ptr().cast())
}

fn text_of(buffer: &[u8]) -> &str {
    CStr::from_bytes_until_nul(buffer)
        .unwrap()
        .to_str()
        .unwrap()
}

const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

#[test]
fn modules_are_loaded_asked_and_unloaded() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let mut count = 0;
    ok(api::cuModuleGetFunctionCount(&mut count, module.0));
    let mut functions = vec![null(); count as usize];
    ok(api::cuModuleEnumerateFunctions(
        functions.as_mut_ptr(),
        count,
        module.0,
    ));
    let names: Vec<String> = (functions.iter())
        .map(|&function| {
            let mut name = std::ptr::null();
            ok(api::cuFuncGetName(&mut name, function));
            // SAFETY: the text lives as long as the function.
            unsafe { CStr::from_ptr(name) }
                .to_str()
                .unwrap()
                .to_string()
        })
        .collect();
    assert_eq!(names[..3], ["idle", "store", "copy_plus_one"]);
    assert_eq!(gpu.function(&module, "store"), functions[1]);
    let mut owner = null();
    ok(api::cuFuncGetModule(&mut owner, functions[1]));
    assert_eq!(owner, module.0);
    let mut function = null();
    for name in [c"missing", c"counter", c""] {
        assert_eq!(
            api::cuModuleGetFunction(&mut function, module.0, name.as_ptr()),
            code::NOT_FOUND
        );
    }
    logged(
        &gpu,
        &["no kernel \"missing\"", "idle, store, copy_plus_one"],
    );
    assert_eq!(
        api::cuModuleGetFunction(&mut function, module.0, std::ptr::null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuModuleGetFunction(null(), module.0, c"idle".as_ptr()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuModuleGetFunction(&mut function, foreign(), c"idle".as_ptr()),
        code::INVALID_HANDLE
    );
    ok(api::cuModuleUnload(module.0));
    assert_eq!(api::cuModuleUnload(module.0), code::INVALID_HANDLE);
    assert_eq!(api::cuModuleUnload(null()), code::INVALID_HANDLE);
    assert_eq!(
        api::cuModuleGetFunction(&mut function, module.0, c"idle".as_ptr()),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuLaunchKernel(functions[0], 1, 1, 1, 1, 1, 1, 0, null(), null(), null()),
        code::INVALID_HANDLE
    );
    assert_eq!(gpu.machine.counters().memory[0].0, 0);
}

#[test]
fn variables_have_addresses_and_first_values() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let find = |name: &CStr| {
        let (mut address, mut size) = (0, 0);
        ok(api::cuModuleGetGlobal_v2(
            &mut address,
            &mut size,
            module.0,
            name.as_ptr(),
        ));
        (address, size)
    };
    let (counter, size) = find(c"counter");
    assert_eq!(size, 4);
    let mut seen = [0u64; 2];
    let (pair, size) = find(c"pair");
    ok(api::cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), pair, size));
    assert_eq!((size, seen), (16, [1, 2]));
    assert_eq!(find(c"table").1, 16);
    let out: Buffer<u32> = gpu.zeros(1);
    gpu.run(&module, "read_counter", 1u32, 1u32, arguments![&out]);
    assert_eq!(gpu.download(&out), [7]);
    gpu.write_global(&module, "counter", &[9u32]);
    gpu.run(&module, "read_counter", 1u32, 1u32, arguments![&out]);
    assert_eq!(gpu.download(&out), [9]);
    // Each module has its own.
    let other = gpu.module(ptx::SMALL);
    gpu.run(&other, "read_counter", 1u32, 1u32, arguments![&out]);
    assert_eq!(gpu.download(&out), [7]);
    ok(api::cuModuleGetGlobal_v2(
        null(),
        null(),
        module.0,
        c"counter".as_ptr(),
    ));
    let (mut address, mut size) = (0, 0);
    for name in [c"missing", c"store", c"dynamic"] {
        let code = api::cuModuleGetGlobal_v2(&mut address, &mut size, module.0, name.as_ptr());
        assert_eq!(code, code::NOT_FOUND, "{name:?}");
    }
    // A variable is not an allocation to be freed.
    assert_eq!(api::cuMemFree_v2(counter), code::INVALID_VALUE);
    assert_eq!(api::cuMemFreeAsync(counter, null()), code::INVALID_VALUE);
}

#[test]
fn images_that_are_no_ptx_are_refused() {
    let gpu = eager();
    let mut module = null();
    let mut load_bytes = |bytes: &[u8]| api::cuModuleLoadData(&mut module, bytes.as_ptr().cast());
    assert_eq!(load_bytes(b"\x7fELF\0\0\0\0"), code::NO_BINARY_FOR_GPU);
    assert_eq!(load_bytes(b"\x50\xed\x55\xba\0"), code::NO_BINARY_FOR_GPU);
    assert_eq!(load_bytes(b"\xff\xfe\xfd\xfc\0"), 200);
    assert_eq!(load_bytes(b"\0"), code::INVALID_PTX);
    assert_eq!(load_bytes(b"a\0"), code::INVALID_PTX);
    logged(&gpu, &["a cubin", "hand it the PTX text"]);
    assert_eq!(
        api::cuModuleLoadData(null(), HEADER.as_ptr().cast()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuModuleLoadData(&mut module, std::ptr::null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuModuleLoad(&mut module, c"/no/such/file.ptx".as_ptr()),
        code::FILE_NOT_FOUND
    );
    assert_eq!(
        api::cuModuleLoad(&mut module, std::ptr::null()),
        code::INVALID_VALUE
    );
    assert_eq!(
        load(".version 9.9\n.target sm_80\n.address_size 64\n"),
        code::UNSUPPORTED_PTX_VERSION
    );
    assert_eq!(
        load(".version 8.0\n.target sm_90\n.address_size 64\n"),
        code::INVALID_PTX
    );
    logged(&gpu, &["the PTX is for sm_90, the device is sm_80"]);
    let undefined = format!(
        "{HEADER}.extern .global .align 4 .u32 elsewhere;\n.visible .entry k() {{ ret; }}\n"
    );
    assert_eq!(load(&undefined), code::INVALID_PTX);
    logged(&gpu, &["elsewhere", "line 4"]);
    // A file with a good text.
    let path = std::env::temp_dir().join(format!("virtual-gpu-{}.ptx", std::process::id()));
    std::fs::write(&path, ptx::SMALL).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    ok(api::cuModuleLoad(&mut module, name.as_ptr()));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_load_error_is_written_to_the_callers_buffer_with_its_line() {
    let _gpu = eager();
    let broken = CString::new(format!(
        "{HEADER}.visible .entry k()\n{{\n    add.s32 %r1, %r2\n    ret;\n}}\n"
    ))
    .unwrap();
    let (mut error, mut info) = ([1u8; 256], [1u8; 16]);
    // The info log and its size, the error log and its size, and an option that makes no difference.
    let mut options = [3, 4, 5, 6, 7];
    let mut values: [*mut c_void; 5] = [
        info.as_mut_ptr().cast(),
        16 as Handle,
        error.as_mut_ptr().cast(),
        256 as Handle,
        4 as Handle,
    ];
    let mut module = null();
    let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
    let code = api::cuModuleLoadDataEx(&mut module, broken.as_ptr().cast(), 5, options, values);
    assert_eq!(code, code::INVALID_PTX);
    let message = text_of(&error);
    assert!(
        message.contains("line 7") || message.contains("line 6"),
        "{message}"
    );
    // SAFETY: the list has five places.
    let length = unsafe { values.add(3).read() } as usize;
    assert_eq!((length, text_of(&info)), (message.len() + 1, ""));
    // Cut to fit.
    let mut short = [1u8; 8];
    // SAFETY: as above.
    unsafe {
        values.add(2).write(short.as_mut_ptr().cast());
        values.add(3).write(8 as Handle);
    }
    let code = api::cuModuleLoadDataEx(&mut module, broken.as_ptr().cast(), 5, options, values);
    assert_eq!((code, text_of(&short)), (code::INVALID_PTX, &message[..7]));
    // Options without lists.
    let code = api::cuModuleLoadDataEx(&mut module, broken.as_ptr().cast(), 2, null(), null());
    assert_eq!(code, code::INVALID_VALUE);
    let good = CString::new(ptx::SMALL).unwrap();
    ok(api::cuModuleLoadDataEx(
        &mut module,
        good.as_ptr().cast(),
        0,
        null(),
        null(),
    ));
}

#[test]
fn an_instruction_that_cannot_run_is_an_error_of_its_kernel_only() {
    let gpu = eager();
    // The load decodes nothing: only who asks for the kernel hears of it, and never gets a wrong result.
    let module = gpu.module(ptx::UNSUPPORTED);
    let mut function = null();
    ok(api::cuModuleGetFunction(
        &mut function,
        module.0,
        c"good".as_ptr(),
    ));
    let code = api::cuModuleGetFunction(&mut function, module.0, c"bad".as_ptr());
    assert_eq!(code, code::INVALID_PTX);
    logged(
        &gpu,
        &["cuModuleGetFunction", "bad", "line 13", "frobnicate.s32"],
    );
    // The other ways to it.
    let mut functions = [null(); 2];
    ok(api::cuModuleEnumerateFunctions(
        functions.as_mut_ptr(),
        2,
        module.0,
    ));
    let launch =
        |function| api::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, null(), null(), null());
    ok(launch(functions[0]));
    assert_eq!(launch(functions[1]), code::INVALID_PTX);
    let mut value = 0;
    assert_eq!(
        api::cuFuncGetAttribute(&mut value, 0, functions[1]),
        code::INVALID_PTX
    );
    assert_eq!(api::cuFuncLoad(functions[1]), code::INVALID_PTX);
    ok(api::cuFuncLoad(functions[0]));
    ok(api::cuCtxSynchronize());
    let mut mode = 0;
    ok(api::cuModuleGetLoadingMode(&mut mode));
    assert_eq!(mode, 2);
}

#[test]
fn functions_have_attributes() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let get = |name, attribute| {
        let mut value = -7;
        ok(api::cuFuncGetAttribute(
            &mut value,
            attribute,
            gpu.function(&module, name),
        ));
        value
    };
    let set = |name, attribute, value| {
        api::cuFuncSetAttribute(gpu.function(&module, name), attribute, value)
    };
    // Threads of a block, static shared memory, constants, PTX version, dynamic shared memory.
    assert_eq!(
        (get("store", 0), get("limited", 0), get("exactly", 0)),
        (1024, 128, 64)
    );
    assert_eq!((get("store", 1), get("strided", 1)), (0, 4096));
    assert_eq!(
        (get("store", 2), get("store", 5), get("store", 6)),
        (16, 80, 80)
    );
    assert_eq!((get("store", 8), get("strided", 8)), (49152, 45056));
    assert!((1..=255).contains(&get("store", 4)));
    ok(set("store", 8, 100_000));
    assert_eq!(get("store", 8), 100_000);
    assert_eq!(set("store", 8, 166_913), code::INVALID_VALUE);
    assert_eq!(set("store", 8, -1), code::INVALID_VALUE);
    assert_eq!(set("strided", 8, 166_912), code::INVALID_VALUE);
    ok(set("store", 9, 50));
    assert_eq!(get("store", 9), 50);
    assert_eq!(set("store", 9, 101), code::INVALID_VALUE);
    assert_eq!(set("store", 0, 5), code::INVALID_VALUE);
    let mut value = 0;
    assert_eq!(
        api::cuFuncGetAttribute(&mut value, 99, gpu.function(&module, "idle")),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuFuncGetAttribute(&mut value, 0, foreign()),
        code::INVALID_HANDLE
    );
    assert_eq!(
        api::cuFuncGetAttribute(null(), 0, gpu.function(&module, "idle")),
        code::INVALID_VALUE
    );
    ok(api::cuFuncSetCacheConfig(gpu.function(&module, "idle"), 1));
    assert_eq!(
        api::cuFuncSetCacheConfig(gpu.function(&module, "idle"), 9),
        code::INVALID_VALUE
    );
    let (mut count, mut offset, mut size) = (0, 9, 9);
    ok(api::cuFuncGetParamCount(
        gpu.function(&module, "store"),
        &mut count,
    ));
    ok(api::cuFuncGetParamInfo(
        gpu.function(&module, "store"),
        1,
        &mut offset,
        &mut size,
    ));
    assert_eq!((count, offset, size), (2, 8, 4));
    let code = api::cuFuncGetParamInfo(gpu.function(&module, "store"), 2, &mut offset, &mut size);
    assert_eq!(code, code::INVALID_VALUE);
}

#[test]
fn occupancy_is_what_the_limits_of_the_device_give() {
    let gpu = eager();
    let module = gpu.module(ptx::SMALL);
    let (idle, strided) = (
        gpu.function(&module, "idle"),
        gpu.function(&module, "strided"),
    );
    let blocks = |function, threads, dynamic| {
        let mut count = 0;
        ok(api::cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut count, function, threads, dynamic,
        ));
        count
    };
    assert_eq!(
        (
            blocks(idle, 1024, 0),
            blocks(idle, 256, 0),
            blocks(idle, 32, 0)
        ),
        (2, 8, 32)
    );
    assert_eq!(blocks(idle, 64, 80 << 10), 2);
    assert_eq!(blocks(strided, 32, 28 << 10), 4);
    assert_eq!((blocks(idle, 1025, 0), blocks(idle, 32, 1 << 20)), (0, 0));
    let mut count = 0;
    assert_eq!(
        api::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, idle, 0, 0),
        code::INVALID_VALUE
    );
    assert_eq!(
        api::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, foreign(), 1, 0),
        code::INVALID_HANDLE
    );
    ok(api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &mut count, idle, 32, 0, 1,
    ));
    let (mut grid, mut block) = (0, 0);
    ok(api::cuOccupancyMaxPotentialBlockSize(
        &mut grid, &mut block, idle, None, 0, 0,
    ));
    assert_eq!((grid, block), (2 * 108, 1024));
    ok(api::cuOccupancyMaxPotentialBlockSizeWithFlags(
        &mut grid, &mut block, idle, None, 0, 96, 0,
    ));
    // 32 blocks of 64 threads are more threads than 21 of 96.
    assert_eq!(block, 64);
    extern "C" fn shared(threads: i32) -> usize {
        threads as usize * 1024
    }
    ok(api::cuOccupancyMaxPotentialBlockSize(
        &mut grid,
        &mut block,
        idle,
        Some(shared),
        0,
        0,
    ));
    assert!(block <= 163 && block % 32 == 0, "{block}");
    let mut bytes = 0;
    ok(api::cuOccupancyAvailableDynamicSMemPerBlock(
        &mut bytes, idle, 2, 64,
    ));
    assert_eq!(bytes, (82 << 10) - 1024);
    assert_eq!(
        api::cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, idle, 0, 64),
        code::INVALID_VALUE
    );
}

#[test]
fn libraries_are_modules_of_every_context() {
    let gpu = eager();
    let text = CString::new(ptx::SMALL).unwrap();
    let (mut library, mut kernel, mut module) = (null(), null(), null());
    let image = text.as_ptr().cast();
    ok(api::cuLibraryLoadData(
        &mut library,
        image,
        null(),
        null(),
        0,
        null(),
        null(),
        0,
    ));
    ok(api::cuLibraryGetKernel(
        &mut kernel,
        library,
        c"store".as_ptr(),
    ));
    let (mut count, mut owner, mut name) = (0, null(), std::ptr::null());
    ok(api::cuLibraryGetKernelCount(&mut count, library));
    assert_eq!(count, 10);
    ok(api::cuKernelGetLibrary(&mut owner, kernel));
    ok(api::cuKernelGetName(&mut name, kernel));
    // SAFETY: the text lives as long as the library.
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!((owner, name), (library, c"store"));
    // On both devices, by the same handle.
    for device in 0..2 {
        set_device(device);
        let buffer: Buffer<u32> = gpu.zeros(32);
        let given = arguments![&buffer, 5u32];
        let mut params = crate::gpu::pointers(given);
        ok(api::cuLaunchKernel(
            kernel,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            null(),
            params.as_mut_ptr(),
            null(),
        ));
        ok(api::cuCtxSynchronize());
        assert_eq!(gpu.download(&buffer)[1], 6);
        let (mut function, mut again) = (null(), null());
        ok(api::cuKernelGetFunction(&mut function, kernel));
        ok(api::cuLibraryGetModule(&mut module, library));
        ok(api::cuModuleGetFunction(
            &mut again,
            module,
            c"store".as_ptr(),
        ));
        assert_eq!(function, again);
        let mut value = 0;
        ok(api::cuKernelSetAttribute(8, 60_000, kernel, device));
        ok(api::cuKernelGetAttribute(&mut value, 8, kernel, device));
        assert_eq!(value, 60_000);
    }
    let (mut address, mut size) = (0, 0);
    ok(api::cuLibraryGetGlobal(
        &mut address,
        &mut size,
        library,
        c"counter".as_ptr(),
    ));
    assert_eq!(size, 4);
    assert_eq!(
        api::cuLibraryGetKernel(&mut kernel, library, c"missing".as_ptr()),
        code::NOT_FOUND
    );
    assert_eq!(
        api::cuLibraryGetKernel(&mut kernel, foreign(), c"store".as_ptr()),
        code::INVALID_HANDLE
    );
    ok(api::cuLibraryUnload(library));
    assert_eq!(api::cuLibraryUnload(library), code::INVALID_HANDLE);
    assert_eq!(
        api::cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, null(), null(), null()),
        code::INVALID_HANDLE
    );
    let wrong = c"nonsense".as_ptr().cast();
    let code = api::cuLibraryLoadData(&mut library, wrong, null(), null(), 0, null(), null(), 0);
    assert_eq!(code, code::INVALID_PTX);
}

#[test]
fn texts_are_linked_to_one() {
    let gpu = eager();
    let callee = format!(
        "{HEADER}.visible .func (.param .b32 out) twice(.param .b32 in)\n{{\n    .reg .b32 %r<3>;\n    ld.param.u32 %r1, [in];\n    \
         add.u32 %r2, %r1, %r1;\n    st.param.u32 [out], %r2;\n    ret;\n}}\n"
    );
    let caller = format!(
        "{HEADER}.extern .func (.param .b32 out) twice(.param .b32 in);\n.visible .entry run(.param .u64 to)\n{{\n    \
         .reg .b32 %r<3>;\n    .reg .b64 %rd<2>;\n    ld.param.u64 %rd1, [to];\n    {{\n    .param .b32 a;\n    .param .b32 b;\n    \
         st.param.b32 [a], 21;\n    call (b), twice, (a);\n    ld.param.b32 %r1, [b];\n    }}\n    st.global.u32 [%rd1], %r1;\n    \
         ret;\n}}\n"
    );
    let mut state = null();
    ok(api::cuLinkCreate_v2(0, null(), null(), &mut state));
    let add = |state, kind, text: &str| {
        let data = text.as_ptr().cast_mut().cast();
        api::cuLinkAddData_v2(
            state,
            kind,
            data,
            text.len(),
            c"part".as_ptr(),
            0,
            null(),
            null(),
        )
    };
    ok(add(state, 1, &callee));
    ok(add(state, 1, &caller));
    let (mut image, mut size) = (null(), 0);
    ok(api::cuLinkComplete(state, &mut image, &mut size));
    assert!(size > callee.len());
    let mut module = null();
    ok(api::cuModuleLoadData(&mut module, image));
    ok(api::cuLinkDestroy(state));
    let out: Buffer<u32> = gpu.zeros(1);
    gpu.run(
        &crate::gpu::Module(module),
        "run",
        1u32,
        1u32,
        arguments![&out],
    );
    assert_eq!(gpu.download(&out), [42]);
    assert_eq!(api::cuLinkDestroy(state), code::INVALID_HANDLE);
    assert_eq!(add(foreign(), 1, &callee), code::INVALID_HANDLE);
    ok(api::cuLinkCreate_v2(0, null(), null(), &mut state));
    assert_eq!(add(state, 1, "nonsense"), code::INVALID_PTX);
    logged(&gpu, &["part: "]);
    assert_eq!(add(state, 0, "\x7fELF"), code::NO_BINARY_FOR_GPU);
    assert_eq!(
        api::cuLinkAddData_v2(state, 1, null(), 4, null::<c_char>(), 0, null(), null()),
        code::INVALID_VALUE
    );
    let missing = c"/no/such/file".as_ptr();
    assert_eq!(
        api::cuLinkAddFile_v2(state, 1, missing, 0, null(), null()),
        code::FILE_NOT_FOUND
    );
    assert_eq!(
        api::cuLinkComplete(foreign(), &mut image, &mut size),
        code::INVALID_HANDLE
    );
}

#[test]
fn an_older_driver_refuses_newer_ptx() {
    let old = Settings {
        driver_version: 12000,
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Parallel, old);
    assert_eq!(load(".version 8.0\n.target sm_80\n.address_size 64\n"), 0);
    assert_eq!(
        load(".version 8.1\n.target sm_80\n.address_size 64\n"),
        code::UNSUPPORTED_PTX_VERSION
    );
    logged(&gpu, &["of version 8.1", "loads up to 8.0"]);
}

#[test]
fn large_variables_start_as_zeros_behind_what_is_given() {
    let _gpu = eager();
    let text = format!("{HEADER}.global .align 1 .b8 large[6000005] = {{7, 8}};\n");
    let text = CString::new(text).unwrap();
    // The second time where the first has been.
    for _ in 0..2 {
        let mut module = null();
        ok(api::cuModuleLoadData(&mut module, text.as_ptr().cast()));
        let (mut place, mut bytes) = (0, 0);
        ok(api::cuModuleGetGlobal_v2(
            &mut place,
            &mut bytes,
            module,
            c"large".as_ptr(),
        ));
        let mut found = vec![1u8; bytes];
        ok(api::cuMemcpyDtoH_v2(
            found.as_mut_ptr().cast(),
            place,
            bytes,
        ));
        assert_eq!((bytes, &found[..2]), (6_000_005, &[7, 8][..]));
        assert!(found[2..].iter().all(|byte| *byte == 0));
        ok(api::cuMemsetD8_v2(place, 9, bytes));
        ok(api::cuModuleUnload(module));
    }
}
