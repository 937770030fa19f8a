//! What a test needs of the driver, over the driver's own functions: modules, buffers, launches.

use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

use virtual_gpu::machine::{Checks, Entered, Machine, Settings, Sink, Streams};

use crate::api;

/// How a machine runs its launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Schedule {
    /// Blocks over the machine's cores.
    Parallel,
    /// One thread; the order of blocks comes from the seed.
    Seeded(u64),
    /// Queues wait until something synchronises, and then run in an order from the seed.
    Deferred(u64),
}

/// Every schedule that a kernel must give the same result under.
pub(crate) const SCHEDULES: [Schedule; 5] = [
    Schedule::Parallel,
    Schedule::Seeded(1),
    Schedule::Seeded(2),
    Schedule::Seeded(3),
    Schedule::Deferred(1),
];

/// The driver's error codes that the tests expect.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_INITIALIZED: u32 = 3;
    pub(crate) const DEVICE_UNAVAILABLE: u32 = 46;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const ALREADY_MAPPED: u32 = 208;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const UNSUPPORTED_LIMIT: u32 = 215;
    pub(crate) const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const FILE_NOT_FOUND: u32 = 301;
    pub(crate) const INVALID_HANDLE: u32 = 400;
    pub(crate) const ILLEGAL_STATE: u32 = 401;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const LAUNCH_TIMEOUT: u32 = 702;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub(crate) const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    pub(crate) const CONTEXT_IS_DESTROYED: u32 = 709;
    pub(crate) const ASSERT: u32 = 710;
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
    pub(crate) const STACK_ERROR: u32 = 714;
    pub(crate) const ILLEGAL_INSTRUCTION: u32 = 715;
    pub(crate) const MISALIGNED_ADDRESS: u32 = 716;
    pub(crate) const LAUNCH_FAILED: u32 = 719;
    pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
    pub(crate) const NOT_PERMITTED: u32 = 800;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    pub(crate) const STREAM_CAPTURE_INVALIDATED: u32 = 901;
    pub(crate) const STREAM_CAPTURE_MERGE: u32 = 902;
    pub(crate) const STREAM_CAPTURE_UNMATCHED: u32 = 903;
    pub(crate) const STREAM_CAPTURE_UNJOINED: u32 = 904;
    pub(crate) const STREAM_CAPTURE_ISOLATION: u32 = 905;
    pub(crate) const STREAM_CAPTURE_IMPLICIT: u32 = 906;
    pub(crate) const CAPTURED_EVENT: u32 = 907;
    pub(crate) const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
    pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;
}

pub(crate) type Handle = *mut c_void;

/// A machine, entered by this thread, whose first device is current.
pub(crate) struct Gpu {
    /// How it was made.
    pub(crate) schedule: Schedule,
    /// The machine itself.
    pub(crate) machine: Arc<Machine>,
    /// The primary context of the first device.
    pub(crate) context: Handle,
    _entered: Entered,
}

/// A loaded module.
pub(crate) struct Module(pub(crate) Handle);

/// A stream of the device.
pub(crate) struct Stream(pub(crate) Handle);

/// An event of the device.
pub(crate) struct Event(pub(crate) Handle);

/// Device memory for `length` values; freed by the machine's end, or by [`Gpu::free`].
pub(crate) struct Buffer<T> {
    /// Device address.
    pub(crate) address: u64,
    /// Values.
    pub(crate) length: usize,
    element: PhantomData<T>,
}

/// Panics with the driver's code.
#[track_caller]
fn must(what: &str, code: u32) {
    if code != 0 {
        panic!("{what} failed: error {code}");
    }
}

/// The code of a failure.
fn result(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Gpu {
    /// Makes a machine with one device and every check on.
    pub(crate) fn new(schedule: Schedule) -> Gpu {
        let settings = Settings {
            devices: 1,
            memory: 1 << 30,
            budget: 20_000_000,
            capability: (9, 0),
            checks: Checks {
                uninitialized: true,
                shared_races: true,
                stream_races: true,
                ..Checks::default()
            },
            log: Sink::Stderr,
            ..Settings::default()
        };
        Gpu::with(schedule, settings)
    }

    /// Makes a machine and its context.
    pub(crate) fn with(schedule: Schedule, mut settings: Settings) -> Gpu {
        match schedule {
            Schedule::Parallel => settings.workers = 2,
            Schedule::Seeded(seed) => {
                settings.workers = 1;
                settings.seed = Some(seed);
            }
            Schedule::Deferred(seed) => {
                settings.streams = Streams::Deferred;
                settings.seed = Some(seed);
            }
        }
        let machine = Machine::new(settings).unwrap_or_else(|error| panic!("{error}"));
        let entered = machine.enter();
        must("cuInit", api::cuInit(0));
        Gpu {
            schedule,
            machine,
            context: set_device(0),
            _entered: entered,
        }
    }

    /// Loads a PTX text.
    pub(crate) fn module(&self, text: &str) -> Module {
        let text = CString::new(text).expect("PTX holds no zero byte");
        let mut module = std::ptr::null_mut();
        must(
            "cuModuleLoadData",
            api::cuModuleLoadData(&mut module, text.as_ptr().cast()),
        );
        Module(module)
    }

    /// A buffer with these values.
    pub(crate) fn upload<T: Element>(&self, values: &[T]) -> Buffer<T> {
        let buffer = self.allocate(values.len());
        self.write(&buffer, values);
        buffer
    }

    /// A buffer of zeros.
    pub(crate) fn zeros<T: Element>(&self, length: usize) -> Buffer<T> {
        let buffer = self.allocate(length);
        let bytes = length * T::SIZE;
        must(
            "cuMemsetD8_v2",
            api::cuMemsetD8_v2(buffer.address, 0, bytes),
        );
        buffer
    }

    /// A buffer that nothing has been written to.
    pub(crate) fn allocate<T: Element>(&self, length: usize) -> Buffer<T> {
        let mut address = 0;
        let bytes = (length * T::SIZE).max(1);
        must("cuMemAlloc_v2", api::cuMemAlloc_v2(&mut address, bytes));
        Buffer {
            address,
            length,
            element: PhantomData,
        }
    }

    /// Writes from the start of a buffer.
    pub(crate) fn write<T: Element>(&self, buffer: &Buffer<T>, values: &[T]) {
        assert!(values.len() <= buffer.length);
        self.write_at(buffer.address, &bytes_of(values));
    }

    /// Writes bytes to an address.
    pub(crate) fn write_at(&self, address: u64, bytes: &[u8]) {
        let from = bytes.as_ptr().cast();
        must(
            "cuMemcpyHtoD_v2",
            api::cuMemcpyHtoD_v2(address, from, bytes.len()),
        );
    }

    /// The values of a buffer.
    pub(crate) fn download<T: Element>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let mut bytes = vec![0u8; buffer.length * T::SIZE];
        let to = bytes.as_mut_ptr().cast();
        must(
            "cuMemcpyDtoH_v2",
            api::cuMemcpyDtoH_v2(to, buffer.address, bytes.len()),
        );
        bytes.chunks_exact(T::SIZE).map(T::from_bytes).collect()
    }

    /// Gives a buffer back; its address stays known, for tests of use after free.
    pub(crate) fn free<T>(&self, buffer: &Buffer<T>) {
        must("cuMemFree_v2", api::cuMemFree_v2(buffer.address));
    }

    /// Writes to a variable of a module.
    pub(crate) fn write_global<T: Element>(&self, module: &Module, name: &str, values: &[T]) {
        let name = CString::new(name).expect("a name");
        let (mut address, mut size) = (0, 0);
        must(
            "cuModuleGetGlobal_v2",
            api::cuModuleGetGlobal_v2(&mut address, &mut size, module.0, name.as_ptr()),
        );
        assert_eq!(size, values.len() * T::SIZE, "size of {name:?}");
        self.write_at(address, &bytes_of(values));
    }

    /// Launches and waits; panics on an error.
    pub(crate) fn run(
        &self,
        module: &Module,
        kernel: &str,
        grid: impl Extent,
        block: impl Extent,
        arguments: &[Argument],
    ) {
        let result = self.try_run(module, kernel, grid, block, 0, arguments);
        must(kernel, result.err().unwrap_or(0));
    }

    /// Launches with dynamic shared memory and waits; panics on an error.
    pub(crate) fn run_with_shared(
        &self,
        module: &Module,
        kernel: &str,
        grid: impl Extent,
        block: impl Extent,
        shared: usize,
        arguments: &[Argument],
    ) {
        let result = self.try_run(module, kernel, grid, block, shared, arguments);
        must(kernel, result.err().unwrap_or(0));
    }

    /// Launches and waits; the error code of either.
    pub(crate) fn try_run(
        &self,
        module: &Module,
        kernel: &str,
        grid: impl Extent,
        block: impl Extent,
        shared: usize,
        arguments: &[Argument],
    ) -> Result<(), u32> {
        let stream = Stream(std::ptr::null_mut());
        self.launch(module, kernel, grid, block, shared, &stream, arguments)?;
        self.synchronize()
    }

    /// Waits for everything on the device.
    pub(crate) fn synchronize(&self) -> Result<(), u32> {
        result(api::cuCtxSynchronize())
    }

    /// A limit of the context, as `cuCtxGetLimit` numbers them.
    pub(crate) fn limit(&self, limit: u32) -> usize {
        let mut value = 0;
        must("cuCtxGetLimit", api::cuCtxGetLimit(&mut value, limit));
        value
    }

    /// Sets a limit of the context; the error code of a failure.
    pub(crate) fn set_limit(&self, limit: u32, value: usize) -> Result<(), u32> {
        result(api::cuCtxSetLimit(limit, value))
    }

    /// Launches without waiting.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a launch, as the driver has them"
    )]
    pub(crate) fn launch(
        &self,
        module: &Module,
        kernel: &str,
        grid: impl Extent,
        block: impl Extent,
        shared: usize,
        stream: &Stream,
        arguments: &[Argument],
    ) -> Result<(), u32> {
        let [gx, gy, gz] = grid.extent();
        let [bx, by, bz] = block.extent();
        let mut pointers = pointers(arguments);
        result(api::cuLaunchKernel(
            self.function(module, kernel),
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared as u32,
            stream.0,
            pointers.as_mut_ptr(),
            std::ptr::null_mut(),
        ))
    }

    /// Launches blocks that may wait for one another, and waits.
    pub(crate) fn run_cooperative(
        &self,
        module: &Module,
        kernel: &str,
        grid: u32,
        block: u32,
        arguments: &[Argument],
    ) {
        let mut pointers = pointers(arguments);
        let code = api::cuLaunchCooperativeKernel(
            self.function(module, kernel),
            grid,
            1,
            1,
            block,
            1,
            1,
            0,
            std::ptr::null_mut(),
            pointers.as_mut_ptr(),
        );
        must(kernel, code);
        must(kernel, api::cuCtxSynchronize());
    }

    /// A kernel of a module.
    pub(crate) fn function(&self, module: &Module, kernel: &str) -> Handle {
        let name = CString::new(kernel).expect("a name");
        let mut function = std::ptr::null_mut();
        must(
            kernel,
            api::cuModuleGetFunction(&mut function, module.0, name.as_ptr()),
        );
        function
    }

    /// A stream that does not wait for the default stream.
    pub(crate) fn stream(&self) -> Stream {
        let mut stream = std::ptr::null_mut();
        must("cuStreamCreate", api::cuStreamCreate(&mut stream, 1));
        Stream(stream)
    }

    /// An event, recorded on a stream now.
    pub(crate) fn record(&self, stream: &Stream) -> Event {
        let mut event = std::ptr::null_mut();
        must("cuEventCreate", api::cuEventCreate(&mut event, 2));
        must("cuEventRecord", api::cuEventRecord(event, stream.0));
        Event(event)
    }

    /// What comes later on the stream waits for the event.
    pub(crate) fn wait(&self, stream: &Stream, event: &Event) {
        must(
            "cuStreamWaitEvent",
            api::cuStreamWaitEvent(stream.0, event.0, 0),
        );
    }
}

/// Makes the primary context of a device current.
pub(crate) fn set_device(device: i32) -> Handle {
    let mut context = std::ptr::null_mut();
    let code = api::cuDevicePrimaryCtxRetain(&mut context, device);
    must("cuDevicePrimaryCtxRetain", code);
    must("cuCtxSetCurrent", api::cuCtxSetCurrent(context));
    context
}

/// The pointers that a launch takes.
pub(crate) fn pointers(arguments: &[Argument]) -> Vec<Handle> {
    arguments
        .iter()
        .map(|argument| argument.0.as_ptr().cast_mut().cast())
        .collect()
}

/// A value of a buffer.
pub(crate) trait Element: Copy {
    /// Bytes.
    const SIZE: usize;
    /// Little-endian.
    fn push_to(self, bytes: &mut Vec<u8>);
    /// From exactly `SIZE` bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($ty:ty)*) => {$(
        impl Element for $ty {
            const SIZE: usize = size_of::<$ty>();
            fn push_to(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn from_bytes(bytes: &[u8]) -> $ty {
                <$ty>::from_le_bytes(bytes.try_into().expect("a chunk of SIZE"))
            }
        }
        impl From<$ty> for Argument {
            fn from(value: $ty) -> Argument {
                Argument::of_bytes(&value.to_le_bytes())
            }
        }
    )*};
}
elements!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 half::f16 half::bf16);

fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * T::SIZE);
    values.iter().for_each(|value| value.push_to(&mut bytes));
    bytes
}

/// One parameter of a kernel: its bytes, in words so that they are aligned.
pub(crate) struct Argument(Vec<u64>);

impl Argument {
    /// A parameter that is a structure, laid out as C++ does.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Argument {
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        };
        Argument(bytes.chunks(8).map(word).collect())
    }
}

impl<T> From<&Buffer<T>> for Argument {
    fn from(buffer: &Buffer<T>) -> Argument {
        Argument(vec![buffer.address])
    }
}

/// The parameters of a launch.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &[$($crate::gpu::Argument::from($value)),*] };
}
pub(crate) use arguments;

/// Blocks of a grid or threads of a block.
pub(crate) trait Extent {
    /// x, y, z.
    fn extent(self) -> [u32; 3];
}
impl Extent for u32 {
    fn extent(self) -> [u32; 3] {
        [self, 1, 1]
    }
}
impl Extent for i32 {
    fn extent(self) -> [u32; 3] {
        [u32::try_from(self).expect("a grid's size"), 1, 1]
    }
}
impl Extent for usize {
    fn extent(self) -> [u32; 3] {
        [u32::try_from(self).expect("a grid's size"), 1, 1]
    }
}
impl Extent for [u32; 2] {
    fn extent(self) -> [u32; 3] {
        [self[0], self[1], 1]
    }
}
impl Extent for [u32; 3] {
    fn extent(self) -> [u32; 3] {
        self
    }
}
