//! `Gpu`: one device of the process, with its context, its default stream and its memory.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUuuid};
use fireclay_core::{Context, Device, Error, Result};

use crate::check::Checks;
use crate::driver::{Driver, DriverError, VISIBLE_VARIABLE, code, driver};
use crate::memory::DeviceMemory;
use crate::stream::Stream;
use crate::sync::{self, Reason};

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The driver's name for it. A virtual GPU says so here.
    pub name: String,
    /// Compute capability: major and minor.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub total_memory: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The most threads that a block may have.
    pub max_threads_per_block: u32,
    /// The most bytes of shared memory that a block may have when it asks for more than the usual.
    pub max_shared_memory_per_block: u32,
    /// Bytes of the second-level cache.
    pub l2_cache: u32,
    /// Whether memory can be mapped piece by piece behind reserved addresses.
    pub virtual_memory: bool,
    /// Its unique number, as the driver's tools show it.
    pub uuid: String,
}

/// One device of this process. There is one value per device, made at its first use, which lives as long as the process.
pub struct Gpu {
    ordinal: usize,
    driver: &'static Driver,
    device: CUdevice,
    context: CUcontext,
    properties: Properties,
    stream: OnceLock<Stream>,
    memory: DeviceMemory,
    checks: Checks,
    journal: Mutex<Journal>,
}

// SAFETY: the context's handle may be used by every thread; what changes is behind locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

thread_local! {
    /// The ordinal of the device whose context this thread has made current last.
    static BOUND: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Gpu {
    /// The device of an ordinal. Its context is made by the first call; other devices are not touched.
    ///
    /// # Errors
    /// Without a driver, without that device, or if its context can't be made.
    pub fn get(ordinal: usize) -> Result<&'static Gpu> {
        static GPUS: OnceLock<Vec<OnceLock<Gpu>>> = OnceLock::new();
        /// Held while a device's context is made.
        static MAKING: Mutex<()> = Mutex::new(());
        let device = Device::Cuda(ordinal);
        let driver = driver().map_err(|why| Error::DeviceUnavailable {
            device,
            why: why.to_string(),
        })?;
        let gpus = GPUS.get_or_init(|| (0..driver.devices()).map(|_| OnceLock::new()).collect());
        let gpu = gpus
            .get(ordinal)
            .ok_or_else(|| bad_ordinal(driver, ordinal))?;
        let gpu = match gpu.get() {
            Some(gpu) => gpu,
            None => {
                let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
                match gpu.get() {
                    Some(gpu) => gpu,
                    // A failure does not stay: memory that another process has now may be free later.
                    None => {
                        let made = Gpu::new(driver, ordinal)
                            .map_err(|error| context_failed(device, &error))?;
                        gpu.get_or_init(|| made)
                    }
                }
            }
        };
        if gpu.stream.get().is_none() {
            let stream = Stream::new(gpu)?;
            // Another thread may have been faster; its stream stays and this one is dropped.
            let _ = gpu.stream.set(stream);
        }
        Ok(gpu)
    }

    fn new(driver: &'static Driver, ordinal: usize) -> Result<Gpu, DriverError> {
        let mut device: CUdevice = 0;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: both write one value.
        unsafe { driver.device_get(&mut device, ordinal as c_int)? };
        let properties = properties(driver, device)?;
        // SAFETY: as above; the context is kept for the life of the process.
        unsafe { driver.device_primary_ctx_retain(&mut context, device)? };
        let memory = DeviceMemory::new(&properties);
        Ok(Gpu {
            ordinal,
            driver,
            device,
            context,
            properties,
            stream: OnceLock::new(),
            memory,
            checks: Checks::default(),
            journal: Mutex::default(),
        })
    }

    /// What the device is, without making its context.
    ///
    /// # Errors
    /// Without a driver or without that device.
    pub fn properties_of(ordinal: usize) -> Result<Properties> {
        let driver = driver().map_err(|why| Error::DeviceUnavailable {
            device: Device::Cuda(ordinal),
            why: why.to_string(),
        })?;
        if ordinal >= driver.devices() {
            return Err(bad_ordinal(driver, ordinal));
        }
        let mut device: CUdevice = 0;
        // SAFETY: writes one value.
        let found = unsafe { driver.device_get(&mut device, ordinal as c_int) };
        found
            .and_then(|()| properties(driver, device))
            .map_err(|error| failed(ordinal, &error))
    }

    /// Its number among the visible devices.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// As a device of tensors.
    pub fn device(&self) -> Device {
        Device::Cuda(self.ordinal)
    }

    /// What it is.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The stream that work goes to unless another one is named.
    pub fn stream(&self) -> &Stream {
        self.stream
            .get()
            .expect("`get` makes the stream before it hands the device out")
    }

    /// Its caching allocator.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The driver, with this device's context current on this thread.
    #[inline]
    pub(crate) fn bound(&self) -> Result<&'static Driver> {
        if BOUND.get() != self.ordinal {
            // SAFETY: the context is alive for the life of the process.
            unsafe { self.driver.ctx_set_current(self.context) }
                .map_err(|error| self.failed(&error))?;
            BOUND.set(self.ordinal);
        }
        Ok(self.driver)
    }

    /// Where kernels report what they find wrong.
    pub(crate) fn checks(&self) -> &Checks {
        &self.checks
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.context
    }

    /// Waits until all work of the device is done (`torch.cuda.synchronize`).
    ///
    /// # Errors
    /// If the work failed.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.bound()?;
        sync::note(Reason::Synchronize, 0);
        // SAFETY: the context is current.
        unsafe { driver.ctx_synchronize() }.map_err(|error| self.failed(&error))?;
        self.raised()
    }

    /// Free and total bytes of the whole device, other processes included.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn mem_get_info(&self) -> Result<(u64, u64)> {
        let driver = self.bound()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written; the context is current.
        unsafe { driver.mem_get_info(&mut free, &mut total) }
            .map_err(|error| self.failed(&error))?;
        Ok((free as u64, total as u64))
    }

    /// Whether it can use the memory of another device without copying through the host, as the driver says.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn can_access(&self, peer: &Gpu) -> Result<bool> {
        let mut can: c_int = 0;
        // SAFETY: one number is written.
        unsafe {
            self.driver
                .device_can_access_peer(&mut can, self.device, peer.device)
        }
        .map_err(|error| self.failed(&error))?;
        Ok(can != 0)
    }

    /// Lets kernels of this device use the memory of another one. It may be called again.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn enable_peer_access(&self, peer: &Gpu) -> Result<()> {
        let driver = self.bound()?;
        // SAFETY: the peer's context is alive for the life of the process.
        match unsafe { driver.ctx_enable_peer_access(peer.context, 0) } {
            Err(error) if error.code != code::PEER_ACCESS_ALREADY_ENABLED => {
                Err(self.failed(&error))
            }
            _ => Ok(()),
        }
    }

    /// Notes a launch, for the error that may follow it.
    pub(crate) fn note_launch(&self, kernel: &'static str, elements: u64) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.note(kernel, elements);
    }

    /// How often each op has started kernels on this device, and over how many elements, since the process began.
    pub fn launches(&self) -> Vec<Launches> {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut launches: Vec<Launches> = journal.counts.values().copied().collect();
        launches.sort_by_key(|launches| launches.op);
        launches
    }

    /// The error of a driver call on this device.
    #[cold]
    pub(crate) fn failed(&self, error: &DriverError) -> Error {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = failed(self.ordinal, error);
        if let (Error::Device { what, .. }, true) = (&mut failed, error.is_sticky()) {
            what.push_str(&journal.to_string());
        }
        failed
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.ordinal, self.properties.name)
    }
}

/// Launches of one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// The op.
    pub op: &'static str,
    /// How many.
    pub count: u64,
    /// Elements of their results, together.
    pub elements: u64,
}

/// The last launches on a device, the newest last, and how many there were.
#[derive(Default)]
struct Journal {
    counts: HashMap<&'static str, Launches>,
    launches: [Option<(&'static str, u64)>; 8],
    count: usize,
}

impl Journal {
    fn note(&mut self, kernel: &'static str, elements: u64) {
        self.launches[self.count % self.launches.len()] = Some((kernel, elements));
        self.count += 1;
        let launches = self.counts.entry(kernel).or_insert(Launches {
            op: kernel,
            count: 0,
            elements: 0,
        });
        launches.count += 1;
        launches.elements += elements;
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.launches.len();
        let first = self.count.saturating_sub(length);
        if self.count > 0 {
            f.write_str("\n  last launches:")?;
        }
        for number in first..self.count {
            if let Some((kernel, elements)) = self.launches[number % length] {
                write!(f, "\n    {kernel} over {elements} elements")?;
            }
        }
        Ok(())
    }
}

/// The error of a device whose context can't be made.
#[cold]
fn context_failed(device: Device, error: &DriverError) -> Error {
    if error.code == code::OUT_OF_MEMORY {
        return short_of_memory(device, error);
    }
    Error::DeviceUnavailable {
        device,
        why: format!("its context could not be made: {error}"),
    }
}

/// The error of a driver call that needed memory for itself.
fn short_of_memory(device: Device, error: &DriverError) -> Error {
    let what = format!("the driver had none for what it keeps itself: {error}");
    let hint = "give what the cache keeps back (empty_cache), free tensors, or see which other processes use the device";
    Error::out_of_memory(device, what, hint)
}

/// The error of a driver call on a device.
#[cold]
pub(crate) fn failed(ordinal: usize, error: &DriverError) -> Error {
    if error.code == code::OUT_OF_MEMORY {
        return short_of_memory(Device::Cuda(ordinal), error);
    }
    let hint = if error.is_sticky() {
        "the device's context is lost: every later call on it fails; save from the host what you need and start the \
         process again"
    } else {
        ""
    };
    Error::Device {
        device: Device::Cuda(ordinal),
        what: error.to_string(),
        context: Context::hint(hint),
    }
}

fn bad_ordinal(driver: &Driver, ordinal: usize) -> Error {
    let count = driver.devices();
    let last = count.saturating_sub(1);
    Error::DeviceUnavailable {
        device: Device::Cuda(ordinal),
        why: format!(
            "there {} ({}), cuda:0 to cuda:{last}{}",
            if count == 1 {
                "is 1 device".to_owned()
            } else {
                format!("are {count} devices")
            },
            driver.source(),
            mapping(driver)
        ),
    }
}

/// Which GPU of the machine each device is, where the environment chooses among them, and whether that was changed too late.
fn mapping(driver: &Driver) -> String {
    let mut text = String::new();
    let read = driver.visible_devices();
    if let Some(value) = read {
        let entries = value.split(',').take(driver.devices()).enumerate();
        let entries =
            entries.map(|(ordinal, entry)| format!("cuda:{ordinal} is GPU {}", entry.trim()));
        let entries: Vec<String> = entries.collect();
        text = format!(
            "; {VISIBLE_VARIABLE} is \"{value}\": {}",
            entries.join(", ")
        );
    }
    let now = std::env::var(VISIBLE_VARIABLE).ok();
    if now.as_deref() != read {
        let now = now.map_or("unset".to_owned(), |now| format!("set to \"{now}\""));
        text.push_str(&format!(
            "; {VISIBLE_VARIABLE} was {now} after the driver had started, which changes nothing: start the process with it"
        ));
    }
    text
}

fn properties(driver: &Driver, device: CUdevice) -> Result<Properties, DriverError> {
    use CUdevice_attribute as A;
    let attribute = |attribute: A| -> Result<u32, DriverError> {
        let mut value: c_int = 0;
        // SAFETY: one number is written.
        unsafe { driver.device_get_attribute(&mut value, attribute as u32, device)? };
        Ok(value.max(0) as u32)
    };
    let mut name: [c_char; 256] = [0; 256];
    let mut bytes = 0usize;
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the name is written within its length and ends with a zero; the others are one value each.
    unsafe {
        driver.device_get_name(name.as_mut_ptr(), name.len() as c_int - 1, device)?;
        driver.device_total_mem(&mut bytes, device)?;
        driver.device_get_uuid(&mut uuid, device)?;
    }
    let name: Vec<u8> = (name.iter())
        .take_while(|byte| **byte != 0)
        .map(|byte| *byte as u8)
        .collect();
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", *byte as u8));
    }
    Ok(Properties {
        name: String::from_utf8_lossy(&name).into_owned(),
        capability: (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        total_memory: bytes as u64,
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        max_threads_per_block: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_shared_memory_per_block: attribute(
            A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
        l2_cache: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        virtual_memory: attribute(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0,
        uuid: text,
    })
}
