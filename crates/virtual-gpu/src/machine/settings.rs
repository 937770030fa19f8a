//! What a machine is made from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::device::{DEVICE_BITS, MAX_DEVICES};

/// What a machine is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of devices.
    pub devices: u32,
    /// Bytes of memory of each device.
    pub memory: u64,
    /// Compute capability of the devices.
    pub capability: (u32, u32),
    /// The CUDA version that the driver reports, as 1000 times the major and 10 times the minor number; newer PTX is
    /// refused.
    pub driver_version: i32,
    /// Threads of the host that a launch may use.
    pub workers: usize,
    /// Shuffles the order of blocks and of deferred streams; without it blocks run in order.
    pub seed: Option<u64>,
    /// When work of streams is done.
    pub streams: Streams,
    /// What is looked for beyond what hardware finds.
    pub checks: Checks,
    /// Whether memory accesses are counted (bytes, sectors, bank conflicts); slows kernels down.
    pub count_memory: bool,
    /// Bytes at the start of each allocation that are filled with a pattern (all ones, a NaN of every float type).
    pub poison: u64,
    /// Bytes of freed addresses, of each device, that are not given out again, so that a use of them is found.
    pub quarantine: u64,
    /// Warp instructions after which a launch is ended as one that hangs.
    pub budget: u64,
    /// Whether kernels are executed; if not, launches are accepted and do nothing.
    pub execute: bool,
    /// Faults that the machine shows on purpose.
    pub inject: InjectedFaults,
    /// Where lines that explain errors go.
    pub log: Sink,
    /// Where the text goes that kernels print.
    pub print: Sink,
    /// A file that the counters are written to at the end, as JSON.
    pub counters_file: Option<PathBuf>,
}

/// When work of streams is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// As soon as it is submitted and nothing that it waits for is left.
    #[default]
    Eager,
    /// Only when somebody waits for it, and then in any order that streams and events allow: the seed chooses.
    Deferred,
}

/// What is looked for beyond what hardware finds. Bounds and alignment of device memory always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// What is wrong and goes well on hardware: accesses behind the shared memory that a block asked for, up to the end
    /// of the unit of 128 or 256 bytes that it is given out in; the same of device memory, of which the unit is 512
    /// bytes; and `wmma` matrices at addresses that are less aligned than PTX demands. On unless switched off; the
    /// library has it off unless its environment asks for it.
    pub strict: bool,
    /// Reads of device and shared memory that was never written.
    pub uninitialized: bool,
    /// Accesses to shared memory that no barrier orders.
    pub shared_races: bool,
    /// Accesses of commands that neither streams nor events order.
    pub stream_races: bool,
    /// Allocations that were never freed.
    pub leaks: bool,
}

impl Checks {
    /// Nothing beyond what hardware finds.
    pub const NONE: Checks = Checks {
        strict: false,
        uninitialized: false,
        shared_races: false,
        stream_races: false,
        leaks: false,
    };
    /// Everything.
    pub const ALL: Checks = Checks {
        strict: true,
        uninitialized: true,
        shared_races: true,
        stream_races: true,
        leaks: true,
    };
}

impl Default for Checks {
    fn default() -> Checks {
        Checks {
            strict: true,
            ..Checks::NONE
        }
    }
}

/// Faults that a machine shows on purpose; numbers count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InjectedFaults {
    /// This allocation of device memory fails for want of memory.
    pub failing_allocation: Option<u64>,
    /// This launch ends with an unspecified failure.
    pub failing_launch: Option<u64>,
    /// A device that is lost with the launch of this number: device, launch.
    pub lost_device: Option<(u32, u64)>,
    /// Two devices that cannot access each other's memory.
    pub broken_peer_link: Option<(u32, u32)>,
    /// Microseconds that every copy takes longer.
    pub slow_copy_microseconds: u64,
}

/// Where text goes.
#[derive(Clone, Default)]
pub enum Sink {
    /// Nowhere.
    #[default]
    None,
    /// The standard error output.
    Stderr,
    /// The standard output.
    Stdout,
    /// The end of a file.
    File(PathBuf),
    /// A function; it must not call the driver.
    Function(Arc<dyn Fn(&str) + Send + Sync>),
}

impl fmt::Debug for Sink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sink::None => out.write_str("None"),
            Sink::Stderr => out.write_str("Stderr"),
            Sink::Stdout => out.write_str("Stdout"),
            Sink::File(path) => write!(out, "File({path:?})"),
            Sink::Function(_) => out.write_str("Function"),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: 2,
            memory: 8 << 30,
            capability: (8, 0),
            driver_version: 13000,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            seed: None,
            streams: Streams::Eager,
            checks: Checks::default(),
            count_memory: false,
            poison: 4 << 20,
            quarantine: 256 << 20,
            budget: 10_000_000_000,
            execute: true,
            inject: InjectedFaults::default(),
            log: Sink::None,
            print: Sink::Stdout,
            counters_file: None,
        }
    }
}

impl Settings {
    /// Whether a machine can be made from the settings, or what is wrong with them.
    pub fn validate(&self) -> Result<(), String> {
        if self.devices as usize > MAX_DEVICES {
            return Err(format!(
                "{} devices are asked for; a machine has at most {MAX_DEVICES}",
                self.devices
            ));
        }
        let most = 1u64 << (DEVICE_BITS - 1);
        if self.memory == 0 || self.memory > most {
            return Err(format!(
                "{} bytes of memory per device; it must be 1 to {most}",
                self.memory
            ));
        }
        if !(5..=12).contains(&self.capability.0) || self.capability.1 > 9 {
            let (major, minor) = self.capability;
            return Err(format!(
                "compute capability {major}.{minor}; it must be 5.0 to 12.9"
            ));
        }
        if !(11000..=13090).contains(&self.driver_version) {
            return Err(format!(
                "driver version {}; it must be 11000 to 13090",
                self.driver_version
            ));
        }
        if self.workers == 0 || self.workers > 1024 {
            return Err(format!("{} workers; there must be 1 to 1024", self.workers));
        }
        if self.quarantine > most {
            return Err(format!(
                "a quarantine of {} bytes; it must be at most {most}",
                self.quarantine
            ));
        }
        Ok(())
    }
}
