//! Where the driver is looked for, and which layer failed if none can be used.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use libloading::Library;
use virtual_gpu::machine::Machine;

use super::functions::Functions;
use super::{Driver, NEEDED_VERSION, Source, code};

/// Names and paths that a driver library is looked for under, in this order. A bare `libcuda.so` comes last: on
/// machines with a toolkit it may be a stub for linking.
#[cfg(not(windows))]
const LIBRARIES: &[&str] = &[
    "libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "libcuda.so",
];
#[cfg(windows)]
const LIBRARIES: &[&str] = &["nvcuda.dll"];

/// Names the driver library to load, and nothing else is tried.
const LIBRARY_VARIABLE: &str = "FIRECLAY_CUDA_DRIVER";
/// Names the devices that the driver shows.
pub(crate) const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// Asks for that many virtual GPUs.
pub(super) const VIRTUAL_VARIABLE: &str = "FIRECLAY_VIRTUAL_GPUS";

/// A library that was tried, and why it was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name or path.
    pub path: String,
    /// Why not.
    pub why: String,
}

/// Why this process has no CUDA: the layer that failed, and what was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// No driver library could be loaded.
    NoLibrary {
        /// What was tried.
        tried: Vec<Attempt>,
        /// Whether the kernel's part of the driver is there.
        kernel_module: bool,
    },
    /// The library lacks functions.
    MissingFunctions {
        /// The library.
        path: String,
        /// Their names.
        functions: Vec<&'static str>,
    },
    /// The driver is older than what kernels are written for.
    TooOld {
        /// The library.
        path: String,
        /// The CUDA version that it knows.
        version: i32,
    },
    /// The driver did not start.
    NotStarted {
        /// The library.
        path: String,
        /// The driver's error number.
        code: u32,
        /// The driver's name and description of it.
        text: String,
        /// Device files that this user may not open.
        forbidden: Vec<String>,
    },
    /// The driver works and shows no device.
    NoDevice {
        /// `CUDA_VISIBLE_DEVICES`, if it is set.
        visible: Option<String>,
    },
    /// A virtual GPU was asked for with settings that make no sense.
    Virtual(String),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::NoLibrary {
                tried,
                kernel_module,
            } => {
                f.write_str("no CUDA driver library could be loaded (tried")?;
                for (number, attempt) in tried.iter().enumerate() {
                    let comma = if number == 0 { ' ' } else { ';' };
                    let space = if number == 0 { "" } else { " " };
                    write!(f, "{comma}{space}{}: {}", attempt.path, attempt.why)?;
                }
                f.write_str(")")?;
                if *kernel_module {
                    f.write_str(
                        "; the kernel has an NVIDIA driver, so its library is not visible here: in a container, \
                         start it with GPU support",
                    )
                } else {
                    write!(
                        f,
                        "; install the NVIDIA driver, or set {VIRTUAL_VARIABLE}=1 to use a virtual GPU"
                    )
                }
            }
            Unavailable::MissingFunctions { path, functions } => write!(
                f,
                "the driver library {path} lacks {}; it is too old or not NVIDIA's, update the driver (R525 or newer)",
                functions.join(", ")
            ),
            Unavailable::TooOld { path, version } => write!(
                f,
                "the driver {path} is for CUDA {}, {} is needed; update the driver (R525 or newer)",
                Version(*version),
                Version(NEEDED_VERSION)
            ),
            Unavailable::NotStarted {
                path,
                code: number,
                text,
                forbidden,
            } => {
                write!(f, "the driver {path} did not start: {text}")?;
                if !forbidden.is_empty() {
                    return write!(
                        f,
                        "; this user may not open {}: add the user to the group that owns it (often `video` or `render`)",
                        forbidden.join(", ")
                    );
                }
                match *number {
                    code::SYSTEM_DRIVER_MISMATCH => f.write_str(
                        "; the library and the kernel's part of the driver differ in version: restart the machine after \
                         an update, or mount the host's library into the container",
                    ),
                    code::SYSTEM_NOT_READY => {
                        f.write_str("; a service of the machine (the fabric manager) is not running yet")
                    }
                    code::UNKNOWN => {
                        f.write_str("; look at `nvidia-smi` and at the kernel's log (dmesg)")
                    }
                    _ => f.write_str("; look at `nvidia-smi`"),
                }
            }
            Unavailable::NoDevice { visible } => match visible {
                Some(value) => write!(
                    f,
                    "the driver shows no device: {VISIBLE_VARIABLE} is \"{value}\" (it was read when the driver \
                     started); unset it, or name devices as in \"0,1\", each once"
                ),
                None => f.write_str("the driver works but finds no GPU; look at `nvidia-smi`"),
            },
            Unavailable::Virtual(why) => write!(f, "the virtual GPU was refused: {why}"),
        }
    }
}

impl std::error::Error for Unavailable {}

/// A CUDA version from the driver's number.
struct Version(i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Finds, loads and starts a driver.
pub(super) fn find(chosen: Option<&Arc<Machine>>) -> Result<Driver, Unavailable> {
    if chosen.is_some() || virtual_asked(std::env::var(VIRTUAL_VARIABLE).ok().as_deref()) {
        return from_virtual();
    }
    let named = std::env::var(LIBRARY_VARIABLE).ok();
    let named = named.filter(|name| !name.is_empty());
    let names: Vec<&str> = match &named {
        Some(name) => vec![name],
        None => LIBRARIES.to_vec(),
    };
    let mut tried = Vec::new();
    for path in names {
        match from_library(path) {
            Ok(driver) => return Ok(driver),
            Err(Tried::NotThis(why)) => tried.push(Attempt {
                path: path.to_owned(),
                why,
            }),
            Err(Tried::Failed(unavailable)) => return Err(unavailable),
        }
    }
    Err(Unavailable::NoLibrary {
        tried,
        kernel_module: std::path::Path::new("/proc/driver/nvidia/version").exists(),
    })
}

/// Whether the variable's value asks for virtual GPUs. What it may be is the virtual GPU's to say.
fn virtual_asked(value: Option<&str>) -> bool {
    value.is_some_and(|value| !matches!(value.trim(), "" | "0"))
}

fn from_virtual() -> Result<Driver, Unavailable> {
    Machine::of_process().map_err(Unavailable::Virtual)?;
    let functions = Functions::load(virtual_gpu::driver::function).map_err(|functions| {
        Unavailable::MissingFunctions {
            path: Source::Virtual.to_string(),
            functions,
        }
    })?;
    start(functions, Source::Virtual).map_err(|tried| match tried {
        Tried::Failed(unavailable) => unavailable,
        Tried::NotThis(why) => Unavailable::Virtual(why),
    })
}

/// Why a library was not used.
enum Tried {
    /// Another one may do.
    NotThis(String),
    /// It is the machine's driver, and it cannot be used.
    Failed(Unavailable),
}

fn from_library(path: &str) -> Result<Driver, Tried> {
    // SAFETY: loading runs the library's initialisers. The names are those of NVIDIA's driver, or what the user chose.
    let library = unsafe { Library::new(path) };
    let library = library.map_err(|error| {
        // The loader's own words stand below libloading's.
        let below = std::error::Error::source(&error).map(ToString::to_string);
        let said = below.unwrap_or_else(|| error.to_string());
        Tried::NotThis(plain(&said, path))
    })?;
    let functions = Functions::load(|name| {
        // SAFETY: the symbol is looked at as an address only, while the library is loaded.
        unsafe {
            let symbol = library.get::<*const c_void>(name.as_bytes()).ok()?;
            symbol.try_as_raw_ptr().map(<*mut c_void>::cast_const)
        }
    });
    let functions = functions.map_err(|functions| {
        Tried::Failed(Unavailable::MissingFunctions {
            path: path.to_owned(),
            functions,
        })
    })?;
    let source = Source::Library {
        path: path.to_owned(),
    };
    let driver = start(functions, source)?;
    // The functions stay in use until the process ends.
    std::mem::forget(library);
    Ok(driver)
}

/// The loader's message without the path that stands before it anyway.
fn plain(error: &str, path: &str) -> String {
    let error = error.strip_prefix(path).unwrap_or(error);
    error.trim_start_matches([':', ' ']).to_owned()
}

fn start(functions: Functions, source: Source) -> Result<Driver, Tried> {
    let path = source.to_string();
    let mut driver = Driver {
        functions,
        source,
        version: 0,
        devices: 0,
        visible: std::env::var(VISIBLE_VARIABLE).ok(),
    };
    let visible = driver.visible.clone();
    // SAFETY: starting the driver has no conditions; it may be started more than once.
    let started = unsafe { driver.init(0) };
    match started {
        Ok(()) => {}
        Err(error) if error.code == code::STUB_LIBRARY => {
            return Err(Tried::NotThis(
                "a stub of the toolkit, made for linking, not a driver".to_owned(),
            ));
        }
        Err(error) if error.code == code::NO_DEVICE => {
            return Err(Tried::Failed(Unavailable::NoDevice { visible }));
        }
        Err(error) => {
            return Err(Tried::Failed(Unavailable::NotStarted {
                path,
                code: error.code,
                text: error.to_string(),
                forbidden: forbidden_files(),
            }));
        }
    }
    let mut version: c_int = 0;
    let mut count: c_int = 0;
    // SAFETY: both write one number.
    let asked = unsafe {
        driver
            .driver_get_version(&mut version)
            .and_then(|()| driver.device_get_count(&mut count))
    };
    if let Err(error) = asked {
        return Err(Tried::Failed(Unavailable::NotStarted {
            path,
            code: error.code,
            text: error.to_string(),
            forbidden: Vec::new(),
        }));
    }
    if version < NEEDED_VERSION {
        return Err(Tried::Failed(Unavailable::TooOld { path, version }));
    }
    if count <= 0 {
        return Err(Tried::Failed(Unavailable::NoDevice { visible }));
    }
    driver.version = version;
    driver.devices = count as usize;
    Ok(driver)
}

/// The driver's device files that are there and cannot be opened.
fn forbidden_files() -> Vec<String> {
    let files = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"];
    let forbidden = files.into_iter().filter(|file| {
        let opened = std::fs::File::open(file);
        opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    });
    forbidden.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use virtual_gpu::driver::Function;
    use virtual_gpu::machine::{FailingCalls, Settings};

    use super::*;

    fn machine(settings: Settings) -> Arc<Machine> {
        Machine::new(settings).expect("valid settings")
    }

    /// Starts the virtual driver of `machine` as if it were a library of that path.
    fn start_on(machine: &Arc<Machine>) -> Result<Driver, Tried> {
        let _entered = machine.enter();
        let functions = Functions::load(virtual_gpu::driver::function).expect("all of them");
        let path = "libcuda.so.1".to_owned();
        start(functions, Source::Library { path })
    }

    /// Starts a driver of which a function always answers `code`.
    fn start_failing(function: Function, code: u32) -> Result<Driver, Tried> {
        let machine = machine(Settings::default());
        machine.inject(FailingCalls {
            functions: vec![function],
            after: 0,
            count: u64::MAX,
            code,
        });
        start_on(&machine)
    }

    fn failed(result: Result<Driver, Tried>) -> String {
        match result {
            Err(Tried::Failed(why)) => why.to_string(),
            Err(Tried::NotThis(why)) => panic!("another library was to be tried: {why}"),
            Ok(driver) => panic!("{driver:?} was not to be used"),
        }
    }

    #[test]
    fn a_driver_that_starts_is_used() {
        let driver = start_on(&machine(Settings {
            devices: 3,
            driver_version: 12040,
            ..Settings::default()
        }));
        let driver = driver.ok().expect("it starts");
        assert_eq!((driver.devices(), driver.version()), (3, 12040));
    }

    #[test]
    fn a_stub_of_the_toolkit_is_passed_over() {
        match start_failing(Function::cuInit, code::STUB_LIBRARY) {
            Err(Tried::NotThis(why)) => assert!(why.contains("stub of the toolkit"), "{why}"),
            _ => panic!("a stub is no driver"),
        }
    }

    #[test]
    fn a_driver_too_old_says_which_is_needed() {
        let text = failed(start_on(&machine(Settings {
            driver_version: 11080,
            ..Settings::default()
        })));
        for part in ["libcuda.so.1", "is for CUDA 11.8", "12.0 is needed", "R525"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn a_driver_that_does_not_start_says_what_to_look_at() {
        for (function, code, part) in [
            (
                Function::cuInit,
                code::SYSTEM_DRIVER_MISMATCH,
                "restart the machine",
            ),
            (Function::cuInit, code::SYSTEM_NOT_READY, "fabric manager"),
            (Function::cuInit, code::UNKNOWN, "nvidia-smi"),
            (Function::cuInit, code::OUT_OF_MEMORY, "nvidia-smi"),
            (
                Function::cuDeviceGetCount,
                code::UNKNOWN,
                "cuDeviceGetCount",
            ),
            (
                Function::cuDriverGetVersion,
                code::UNKNOWN,
                "cuDriverGetVersion",
            ),
        ] {
            let text = failed(start_failing(function, code));
            assert!(
                text.contains("did not start") && text.contains(part),
                "{text}"
            );
            assert!(text.contains(&format!("({code})")), "{text}");
        }
    }

    #[test]
    fn a_driver_without_devices_says_so() {
        let text = failed(start_failing(Function::cuInit, code::NO_DEVICE));
        assert!(
            text.contains("no device") || text.contains("no GPU"),
            "{text}"
        );
        let none = Settings {
            devices: 0,
            ..Settings::default()
        };
        let text = failed(start_on(&machine(none)));
        assert!(
            text.contains("no device") || text.contains("no GPU"),
            "{text}"
        );
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_the_loaders_words() {
        match from_library("libfireclay-no-such-driver.so.1") {
            Err(Tried::NotThis(why)) => assert!(!why.is_empty(), "{why}"),
            _ => panic!("there is no such library"),
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_of_another_kind_lacks_the_functions() {
        let text = failed(from_library("libm.so.6"));
        for part in ["libm.so.6 lacks", "cuInit", "cuLaunchKernel"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
