//! The driver's gate: where the CUDA driver is found, loaded and started, and the one place that calls it.
//!
//! Note [The driver is a table]
//! All of the crate calls the driver through a table of functions. It is filled from the driver library that is found on
//! the machine or, where a virtual GPU is asked for, from the crate `virtual-gpu` in this process; nothing else differs.
//! The choice is made once, by the first call that needs a driver.

mod find;
mod functions;

use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use virtual_gpu::machine::{Machine, Settings};

pub(crate) use find::VISIBLE_VARIABLE;
pub use find::{Attempt, Unavailable};
use functions::Functions;

/// The oldest CUDA version a driver must know: that of the PTX which kernels are written in (12.0, driver R525).
pub const NEEDED_VERSION: i32 = 12_000;

/// A driver that has been loaded and started.
pub struct Driver {
    functions: Functions,
    source: Source,
    version: i32,
    devices: usize,
    visible: Option<String>,
}

/// Where the driver's functions come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A library of the machine.
    Library {
        /// The name or path that it was found under.
        path: String,
    },
    /// The virtual GPU in this process.
    Virtual,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Library { path } => f.write_str(path),
            Source::Virtual => f.write_str("virtual GPU in this process"),
        }
    }
}

/// A call of the driver that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverError {
    /// The driver's function.
    pub function: &'static str,
    /// What it returned (`CUresult`).
    pub code: u32,
    /// The driver's name for it.
    pub name: String,
    /// The driver's description of it.
    pub text: String,
}

/// Codes that the crate acts on.
pub(crate) mod code {
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const NO_BINARY_FOR_GPU: u32 = 209;
    pub(crate) const INVALID_PTX: u32 = 218;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub(crate) const SYSTEM_NOT_READY: u32 = 802;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    pub(crate) const UNKNOWN: u32 = 999;
}

impl DriverError {
    /// Whether the context is lost with it: every later call on the device fails, until the process ends.
    pub fn is_sticky(&self) -> bool {
        matches!(
            self.code,
            700 | 702 | 710 | 714..=719 | 46 | 999 | 214 | 709
        )
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({}): {}",
            self.function, self.name, self.code, self.text
        )
    }
}

impl std::error::Error for DriverError {}

/// The driver of this process, loaded at the first call. The result stays: what is changed later (a library, an
/// environment variable) has no effect, as with PyTorch.
pub fn driver() -> Result<&'static Driver, &'static Unavailable> {
    static DRIVER: OnceLock<Result<Driver, Unavailable>> = OnceLock::new();
    DRIVER
        .get_or_init(|| {
            let chosen = chosen_machine()
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            find::find(chosen.as_ref())
        })
        .as_ref()
}

/// The machine that [`use_virtual`] chose before the first call.
fn chosen_machine() -> &'static Mutex<Option<Arc<Machine>>> {
    static CHOSEN: Mutex<Option<Arc<Machine>>> = Mutex::new(None);
    &CHOSEN
}

/// Lets this process use virtual GPUs with these settings, whatever the machine has. It must come before the first call
/// that needs a driver.
///
/// # Errors
/// If the settings make no sense, or if the process's driver was chosen already.
pub fn use_virtual(settings: Settings) -> Result<Arc<Machine>, String> {
    let mut chosen = chosen_machine()
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let machine = Machine::new(settings)?;
    machine.serve_process()?;
    *chosen = Some(Arc::clone(&machine));
    drop(chosen);
    match driver() {
        Ok(driver) if driver.source == Source::Virtual => Ok(machine),
        Ok(driver) => Err(format!(
            "the driver was chosen already: {}; choose the virtual GPU before the first use of CUDA",
            driver.source
        )),
        Err(unavailable) => Err(unavailable.to_string()),
    }
}

/// The virtual machine of this process, if it uses one: its counters, faults and log.
pub fn virtual_machine() -> Option<Arc<Machine>> {
    match driver() {
        Ok(driver) if driver.source == Source::Virtual => Machine::of_process().ok(),
        _ => None,
    }
}

impl Driver {
    /// Where its functions come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The newest CUDA version that it knows: 1000 times the major and 10 times the minor number.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// How many devices it shows.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// `CUDA_VISIBLE_DEVICES` as it was when the driver started, which is when the driver reads it.
    pub fn visible_devices(&self) -> Option<&str> {
        self.visible.as_deref()
    }

    #[inline]
    fn check(&self, function: &'static str, code: u32) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        Err(self.error(function, code))
    }

    #[cold]
    fn error(&self, function: &'static str, code: u32) -> DriverError {
        let text = |found: Result<(), DriverError>, text: *const c_char, otherwise: &str| {
            if found.is_err() || text.is_null() {
                return otherwise.to_owned();
            }
            // SAFETY: the driver's text ends with a zero and lives as long as the driver.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        };
        let known = function != "cuGetErrorName" && function != "cuGetErrorString";
        let (mut name, mut description) = (std::ptr::null(), std::ptr::null());
        // SAFETY: one pointer is written by each. Their own errors are not looked up again.
        let found = known.then(|| unsafe {
            (
                self.get_error_name(code, &mut name),
                self.get_error_string(code, &mut description),
            )
        });
        let (named, described) = found.unwrap_or((Ok(()), Ok(())));
        DriverError {
            function,
            code,
            name: text(named, name, "unknown error"),
            text: text(described, description, "no description"),
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("source", &self.source)
            .field("version", &self.version)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}
