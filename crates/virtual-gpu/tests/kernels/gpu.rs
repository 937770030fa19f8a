//! What a test needs of the driver, over the driver's own functions: modules, buffers, launches.

use std::ffi::{CString, c_char, c_uint, c_void};
use std::marker::PhantomData;

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
    pub(crate) const STACK_ERROR: u32 = 714;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const LAUNCH_TIMEOUT: u32 = 702;
    pub(crate) const ASSERT: u32 = 710;
    pub(crate) const ILLEGAL_INSTRUCTION: u32 = 715;
    pub(crate) const MISALIGNED_ADDRESS: u32 = 716;
    pub(crate) const LAUNCH_FAILED: u32 = 719;
}

type Handle = *mut c_void;

/// A machine with one device, entered by this thread.
pub(crate) struct Gpu {
    /// How it was made.
    pub(crate) schedule: Schedule,
    _entered: machine::Entered,
}

/// A loaded module.
pub(crate) struct Module(Handle);

/// A stream of the device.
pub(crate) struct Stream(Handle);

/// An event of the device.
pub(crate) struct Event(Handle);

/// Device memory for `length` values; freed by the machine's end, or by [`Gpu::free`].
pub(crate) struct Buffer<T> {
    /// Device address.
    pub(crate) address: u64,
    /// Values.
    pub(crate) length: usize,
    element: PhantomData<T>,
}

/// Looks a function up in the table and gives it its C signature.
macro_rules! function {
    ($name:literal: fn($($ty:ty),*)) => {{
        let pointer = machine::function($name).unwrap_or_else(|| panic!("the driver has no {}", $name));
        // SAFETY: the table holds the driver's function of this name, whose signature the CUDA driver API gives so.
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> c_uint>(pointer) }
    }};
}

/// Calls a function of the driver; the error code of a failure.
macro_rules! driver {
    ($name:literal: fn($($ty:ty),* $(,)?), $($argument:expr),* $(,)?) => {{
        let function = function!($name: fn($($ty),*));
        // SAFETY: pointers among the arguments are to live values of the sizes that this function reads or writes.
        match unsafe { function($($argument),*) } {
            0 => Ok(()),
            code => Err(code),
        }
    }};
}

/// Panics with the driver's code.
fn must(what: &str, result: Result<(), u32>) {
    if let Err(code) = result {
        panic!("{what} failed: error {code}");
    }
}

impl Gpu {
    /// Makes a machine and its context.
    pub(crate) fn new(schedule: Schedule) -> Gpu {
        let entered = machine::enter(schedule);
        let (mut device, mut context) = (0, std::ptr::null_mut());
        must("cuInit", driver!("cuInit": fn(c_uint), 0));
        must(
            "cuDeviceGet",
            driver!("cuDeviceGet": fn(*mut i32, i32), &mut device, 0),
        );
        must(
            "cuDevicePrimaryCtxRetain",
            driver!("cuDevicePrimaryCtxRetain": fn(*mut Handle, i32), &mut context, device),
        );
        must(
            "cuCtxSetCurrent",
            driver!("cuCtxSetCurrent": fn(Handle), context),
        );
        Gpu {
            schedule,
            _entered: entered,
        }
    }

    /// Loads a PTX text.
    pub(crate) fn module(&self, text: &str) -> Module {
        let text = CString::new(text).expect("PTX holds no zero byte");
        let mut module = std::ptr::null_mut();
        must(
            "cuModuleLoadData",
            driver!("cuModuleLoadData": fn(*mut Handle, *const c_char), &mut module, text.as_ptr()),
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
            driver!("cuMemsetD8_v2": fn(u64, u8, usize), buffer.address, 0, bytes),
        );
        buffer
    }

    /// A buffer that nothing has been written to.
    pub(crate) fn allocate<T: Element>(&self, length: usize) -> Buffer<T> {
        let mut address = 0;
        let bytes = (length * T::SIZE).max(1);
        must(
            "cuMemAlloc_v2",
            driver!("cuMemAlloc_v2": fn(*mut u64, usize), &mut address, bytes),
        );
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

    fn write_at(&self, address: u64, bytes: &[u8]) {
        let from = bytes.as_ptr().cast();
        must(
            "cuMemcpyHtoD_v2",
            driver!("cuMemcpyHtoD_v2": fn(u64, *const c_void, usize), address, from, bytes.len()),
        );
    }

    /// The values of a buffer.
    pub(crate) fn download<T: Element>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let mut bytes = vec![0u8; buffer.length * T::SIZE];
        let to = bytes.as_mut_ptr().cast();
        must(
            "cuMemcpyDtoH_v2",
            driver!("cuMemcpyDtoH_v2": fn(*mut c_void, u64, usize), to, buffer.address, bytes.len()),
        );
        bytes.chunks_exact(T::SIZE).map(T::from_bytes).collect()
    }

    /// Gives a buffer back; its address stays known, for tests of use after free.
    pub(crate) fn free<T>(&self, buffer: &Buffer<T>) {
        must(
            "cuMemFree_v2",
            driver!("cuMemFree_v2": fn(u64), buffer.address),
        );
    }

    /// Writes to a variable of a module.
    pub(crate) fn write_global<T: Element>(&self, module: &Module, name: &str, values: &[T]) {
        let name = CString::new(name).expect("a name");
        let (mut address, mut size) = (0, 0);
        must(
            "cuModuleGetGlobal_v2",
            driver!(
                "cuModuleGetGlobal_v2": fn(*mut u64, *mut usize, Handle, *const c_char),
                &mut address, &mut size, module.0, name.as_ptr(),
            ),
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
        must(kernel, result);
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
        must(kernel, result);
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
        driver!("cuCtxSynchronize": fn(),)
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
        driver!(
            "cuLaunchKernel": fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut Handle, *mut Handle),
            self.function(module, kernel), gx, gy, gz, bx, by, bz, shared as u32, stream.0, pointers.as_mut_ptr(),
            std::ptr::null_mut(),
        )
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
        let result = driver!(
            "cuLaunchCooperativeKernel": fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut Handle),
            self.function(module, kernel), grid, 1, 1, block, 1, 1, 0, std::ptr::null_mut(), pointers.as_mut_ptr(),
        );
        must(kernel, result.and_then(|()| self.synchronize()));
    }

    fn function(&self, module: &Module, kernel: &str) -> Handle {
        let name = CString::new(kernel).expect("a name");
        let mut function = std::ptr::null_mut();
        must(
            kernel,
            driver!(
                "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char),
                &mut function, module.0, name.as_ptr(),
            ),
        );
        function
    }

    /// A stream that does not wait for the default stream.
    pub(crate) fn stream(&self) -> Stream {
        let mut stream = std::ptr::null_mut();
        must(
            "cuStreamCreate",
            driver!("cuStreamCreate": fn(*mut Handle, c_uint), &mut stream, 1),
        );
        Stream(stream)
    }

    /// An event, recorded on a stream now.
    pub(crate) fn record(&self, stream: &Stream) -> Event {
        let mut event = std::ptr::null_mut();
        must(
            "cuEventCreate",
            driver!("cuEventCreate": fn(*mut Handle, c_uint), &mut event, 2),
        );
        must(
            "cuEventRecord",
            driver!("cuEventRecord": fn(Handle, Handle), event, stream.0),
        );
        Event(event)
    }

    /// What comes later on the stream waits for the event.
    pub(crate) fn wait(&self, stream: &Stream, event: &Event) {
        must(
            "cuStreamWaitEvent",
            driver!("cuStreamWaitEvent": fn(Handle, Handle, c_uint), stream.0, event.0, 0),
        );
    }
}

fn pointers(arguments: &[Argument]) -> Vec<Handle> {
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

/// The only place that knows the virtual GPU's own interface.
mod machine {
    use virtual_gpu::machine::{Checks, Machine, Settings, Sink, Streams};

    use super::{Schedule, c_void};

    /// While it lives, the thread's driver calls go to a machine of the schedule.
    pub(super) struct Entered {
        _entered: virtual_gpu::machine::Entered,
    }

    /// Makes a machine and enters it.
    pub(super) fn enter(schedule: Schedule) -> Entered {
        let mut settings = Settings {
            devices: 1,
            memory: 1 << 30,
            budget: 20_000_000,
            ..Settings::default()
        };
        settings.capability = (9, 0);
        settings.checks = Checks {
            uninitialized: true,
            shared_races: true,
            stream_races: true,
            ..Checks::default()
        };
        settings.log = Sink::Stderr;
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
        Entered {
            _entered: machine.enter(),
        }
    }

    /// The driver's function of this name.
    pub(super) fn function(name: &str) -> Option<*const c_void> {
        virtual_gpu::driver::function(name)
    }
}
