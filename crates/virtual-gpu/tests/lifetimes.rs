//! How long things of the driver live: contexts that are reset and retained again, what is freed without a current
//! context, default streams of threads, and how far behind its end memory is usable.

use std::ffi::{c_char, c_uint, c_void};
use std::ptr::null_mut;

use virtual_gpu::driver::abi::Handle;
use virtual_gpu::driver::*;
use virtual_gpu::machine::{Checks, Entered, Machine, Settings};

const INVALID_VALUE: u32 = 1;
const NOT_INITIALIZED: u32 = 3;
const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;
const ILLEGAL_ADDRESS: u32 = 700;
const MISALIGNED_ADDRESS: u32 = 716;
const CONTEXT_IS_DESTROYED: u32 = 709;

/// Calls functions of the driver that must succeed.
macro_rules! must {
    ($($name:ident($($argument:expr),* $(,)?)),+ $(,)?) => {
        $(assert_eq!(code!($name($($argument),*)), 0, stringify!($name));)+
    };
}

/// The code that a function of the driver gives.
macro_rules! code {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: pointers among the arguments are null or to values of the sizes that this function reads or writes.
        unsafe { $name($($argument),*) }
    };
}

/// Kernels that store a word at a byte offset behind their buffer's start, or in their dynamic shared memory, and one
/// that loads a matrix from such an offset.
const STORES: &std::ffi::CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry store_global(.param .u64 to, .param .u32 offset)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [offset];
    cvt.u64.u32 %rd2, %r1;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], 7;
    ret;
}
.visible .entry store_shared(.param .u64 unused, .param .u32 offset)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [offset];
    mov.u32 %r2, dynamic;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], 7;
    ret;
}
.visible .entry load_matrix(.param .u64 from, .param .u32 offset)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<10>;
    ld.param.u64 %rd1, [from];
    ld.param.u32 %r1, [offset];
    cvt.u64.u32 %rd2, %r1;
    add.u64 %rd3, %rd1, %rd2;
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9}, [%rd3], 16;
    ret;
}
";

fn machine(checks: Checks) -> Entered {
    let settings = Settings {
        devices: 1,
        memory: 1 << 28,
        checks,
        ..Settings::default()
    };
    let entered = Machine::new(settings).expect("valid settings").enter();
    must!(cuInit(0));
    entered
}

/// Retains the primary context and makes it current.
fn retain() -> Handle {
    let mut context = null_mut();
    must!(
        cuDevicePrimaryCtxRetain(&mut context, 0),
        cuCtxSetCurrent(context)
    );
    context
}

fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    must!(cuMemAlloc_v2(&mut address, bytes));
    address
}

fn load() -> Handle {
    let mut module = null_mut();
    must!(cuModuleLoadData(&mut module, STORES.as_ptr().cast()));
    module
}

fn kernel(module: Handle, name: &std::ffi::CStr) -> Handle {
    let mut function = null_mut();
    must!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

fn is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    must!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    active != 0
}

#[test]
fn a_primary_context_is_used_again_after_a_reset() {
    let _machine = machine(Checks::default());
    assert_eq!(code!(cuDevicePrimaryCtxRelease_v2(0)), INVALID_CONTEXT);
    let context = retain();
    let (address, module, mut stream) = (allocate(64), load(), null_mut());
    must!(
        cuStreamCreate(&mut stream, 0),
        cuDevicePrimaryCtxReset_v2(0)
    );
    assert!(!is_active());
    let mut other = 0;
    assert_eq!(code!(cuMemAlloc_v2(&mut other, 4)), CONTEXT_IS_DESTROYED);
    assert_eq!(code!(cuCtxPushCurrent_v2(context)), CONTEXT_IS_DESTROYED);

    // A reset releases nobody's hold; the next retain gives the same handle, and nothing of before is there.
    must!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(code!(cuDevicePrimaryCtxRelease_v2(0)), INVALID_CONTEXT);
    assert_eq!(retain(), context);
    assert!(is_active());
    assert_eq!(code!(cuMemsetD8_v2(address, 0, 64)), INVALID_VALUE);
    assert_eq!(code!(cuStreamSynchronize(stream)), INVALID_HANDLE);
    assert_eq!(code!(cuModuleUnload(module)), INVALID_HANDLE);
    let fresh = allocate(64);
    must!(cuMemsetD8_v2(fresh, 0, 64), cuCtxPushCurrent_v2(context));

    // The last release ends it, too.
    must!(cuDevicePrimaryCtxRelease_v2(0));
    assert!(!is_active());
}

#[test]
fn what_has_a_context_is_freed_without_a_current_one() {
    let _machine = machine(Checks::default());
    let context = retain();
    let (address, module) = (allocate(64), load());
    let (mut stream, mut event, mut host, mut managed) = (null_mut(), null_mut(), null_mut(), 0);
    must!(
        cuStreamCreate(&mut stream, 1),
        cuEventCreate(&mut event, 0),
        cuMemAllocHost_v2(&mut host, 64),
        cuMemAllocManaged(&mut managed, 64, 1),
        cuCtxSetCurrent(null_mut()),
    );
    let mut other = 0;
    assert_eq!(code!(cuMemAlloc_v2(&mut other, 4)), INVALID_CONTEXT);
    assert_eq!(code!(cuStreamSynchronize(null_mut())), INVALID_CONTEXT);
    must!(
        cuEventRecord(event, stream),
        cuStreamWaitEvent(stream, event, 0),
        cuStreamSynchronize(stream),
        cuEventDestroy_v2(event),
        cuStreamDestroy_v2(stream),
        cuModuleUnload(module),
        cuMemFree_v2(address),
        cuMemFree_v2(managed),
        cuMemFreeHost(host),
    );
    must!(cuCtxSetCurrent(context));
    assert_eq!(code!(cuMemFree_v2(address)), INVALID_VALUE);
}

#[test]
fn variants_take_the_default_stream_of_the_thread() {
    let _machine = machine(Checks::default());
    retain();
    let id = |variant: bool, stream: usize| {
        let (mut id, stream) = (0, stream as Handle);
        if variant {
            must!(cuStreamGetId_ptsz(stream, &mut id));
        } else {
            must!(cuStreamGetId(stream, &mut id));
        }
        id
    };
    let (legacy, thread) = (id(false, 1), id(false, 2));
    assert_ne!(legacy, thread);
    assert_eq!((id(false, 0), id(true, 0)), (legacy, thread));
    assert_eq!((id(true, 1), id(true, 2)), (legacy, thread));
    let address = allocate(4);
    let mut word = 0u32;
    must!(
        cuMemsetD32Async_ptsz(address, 5, 1, null_mut()),
        cuMemcpyDtoH_v2_ptds((&raw mut word).cast(), address, 4),
    );
    assert_eq!(word, 5);

    for (flags, symbol) in [(0, "cuMemcpyDtoH_v2"), (2, "cuMemcpyDtoH_v2_ptds")] {
        let mut found: *mut c_void = null_mut();
        must!(cuGetProcAddress(
            c"cuMemcpyDtoH".as_ptr(),
            &mut found,
            12000,
            flags
        ));
        assert_eq!(Some(found.cast_const()), function(symbol));
    }
}

/// Runs a kernel of [`STORES`] with one warp, a buffer of some bytes, an offset, and four bytes of dynamic shared memory;
/// the code.
fn run(checks: Checks, name: &std::ffi::CStr, bytes: usize, offset: u32) -> u32 {
    let _machine = machine(checks);
    retain();
    let (mut to, mut offset, function) = (allocate(bytes), offset, kernel(load(), name));
    let mut params: [*mut c_void; 2] = [(&raw mut to).cast(), (&raw mut offset).cast()];
    must!(cuLaunchKernel(
        function,
        1,
        1,
        1,
        32,
        1,
        1,
        4,
        null_mut(),
        params.as_mut_ptr(),
        null_mut()
    ));
    code!(cuCtxSynchronize())
}

#[test]
fn hardware_bears_what_the_strict_check_finds() {
    let (lenient, strict) = (Checks::NONE, Checks::default());
    assert!(strict.strict);
    // What lies behind the last unit is found in any case.
    for (name, unit) in [(c"store_global", 512), (c"store_shared", 128)] {
        assert_eq!(run(strict, name, 4, 0), 0);
        assert_eq!(run(strict, name, 4, 4), ILLEGAL_ADDRESS);
        assert_eq!(run(lenient, name, 4, unit - 4), 0);
        assert_eq!(run(lenient, name, 4, unit), ILLEGAL_ADDRESS);
    }
    // Rows of a matrix: PTX asks for more alignment than loads need.
    for (checks, code) in [(strict, MISALIGNED_ADDRESS), (lenient, 0)] {
        assert_eq!(run(checks, c"load_matrix", 1024, 32), 0);
        assert_eq!(run(checks, c"load_matrix", 1024, 4), code);
        assert_eq!(run(checks, c"load_matrix", 1024, 2), MISALIGNED_ADDRESS);
    }
}

#[test]
fn a_link_limits_registers() {
    let _machine = machine(Checks::default());
    retain();
    let registers = |image: *const c_void| {
        let (mut module, mut count) = (null_mut(), 0);
        must!(cuModuleLoadData(&mut module, image));
        let function = kernel(module, c"store_global");
        must!(cuFuncGetAttribute(&mut count, 4, function));
        count
    };
    let mut text = STORES.to_bytes_with_nul().to_vec();
    let (mut option, mut most): (c_uint, *mut c_void) = (0, 2 as *mut c_void);
    let (mut link, mut image, mut bytes) = (null_mut(), null_mut(), 0);
    must!(
        cuLinkCreate_v2(1, &mut option, &mut most, &mut link),
        cuLinkAddData_v2(
            link,
            1,
            text.as_mut_ptr().cast(),
            text.len(),
            c"stores".as_ptr(),
            0,
            null_mut(),
            null_mut()
        ),
        cuLinkComplete(link, &mut image, &mut bytes),
    );
    // What the linker gives may be copied before it is loaded.
    // SAFETY: the linker says how many bytes there are.
    let copy = unsafe { std::slice::from_raw_parts(image.cast::<c_char>(), bytes) }.to_vec();
    must!(cuLinkDestroy(link));
    assert!(registers(STORES.as_ptr().cast()) > 2);
    assert_eq!(registers(copy.as_ptr().cast()), 2);
}

#[test]
fn a_thread_that_ends_may_call_the_driver() {
    struct Late(Option<(u64, std::sync::mpsc::Sender<Vec<u32>>)>);
    impl Drop for Late {
        fn drop(&mut self) {
            if let Some((kept, sender)) = self.0.take() {
                let (mut place, mut current) = (0, null_mut());
                let codes = vec![
                    code!(cuMemAlloc_v2(&mut place, 4)),
                    code!(cuCtxSynchronize()),
                    code!(cuCtxGetCurrent(&mut current)),
                    code!(cuMemFree_v2(kept)),
                ];
                sender.send(codes).unwrap();
            }
        }
    }
    thread_local! {
        static LATE: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(None)) };
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Before the driver's own, and so gone after them: the process's machine answers.
        LATE.with(|_| ());
        must!(cuInit(0));
        must!(cuCtxSetCurrent(retain()));
        let mut kept = 0;
        must!(cuMemAlloc_v2(&mut kept, 4));
        LATE.with_borrow_mut(|late| late.0 = Some((kept, sender)));
    });
    thread.join().unwrap();
    const DEINITIALIZED: u32 = 4;
    assert_eq!(
        receiver.recv().unwrap(),
        [DEINITIALIZED, DEINITIALIZED, 0, 0]
    );
}

#[test]
fn a_fork_of_an_initialised_process_cannot_use_the_driver() {
    let _machine = machine(Checks::default());
    let context = retain();
    // SAFETY: the child calls functions of the driver that take no lock, and ends without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut current = null_mut();
        let codes = [code!(cuCtxGetCurrent(&mut current)), code!(cuInit(0))];
        // SAFETY: the status is 0 if both functions refused.
        unsafe { libc::_exit(i32::from(codes != [NOT_INITIALIZED; 2])) }
    }
    let mut status = 0;
    // SAFETY: `status` is there to be written.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    let mut current = null_mut();
    must!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, context);
}
