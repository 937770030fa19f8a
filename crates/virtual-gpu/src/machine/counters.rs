//! What a machine counts: driver calls, launches, instructions, memory traffic, as an API and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::{Function, NAMES};
use crate::exec::launch::LaunchCounts;

/// Names of the instruction classes, in their order.
const CLASSES: [&str; 12] = [
    "integer", "float", "double", "convert", "move", "load", "store", "atomic", "matrix", "sync",
    "control", "other",
];

/// What was counted of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Launches.
    pub launches: u64,
    /// What its launches have counted.
    pub counts: LaunchCounts,
}

/// What was counted of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of each driver function that was called.
    pub calls: BTreeMap<&'static str, u64>,
    /// Kernels by name.
    pub kernels: BTreeMap<String, KernelCounters>,
    /// Launches in all.
    pub launches: u64,
    /// Allocations of device memory.
    pub allocations: u64,
    /// Times that the host waited for a device.
    pub synchronizations: u64,
    /// Copies, and bytes copied, from host to device.
    pub host_to_device: (u64, u64),
    /// From device to host.
    pub device_to_host: (u64, u64),
    /// Within a device.
    pub device_to_device: (u64, u64),
    /// Between devices.
    pub peer_to_peer: (u64, u64),
    /// From host to host.
    pub host_to_host: (u64, u64),
    /// Memory sets, and bytes.
    pub fills: (u64, u64),
    /// Bytes in use and most bytes that were in use, of each device.
    pub memory: Vec<(u64, u64)>,
}

/// A direction of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    PeerToPeer,
    HostToHost,
    Fill,
}

impl Counters {
    /// Calls of a driver function.
    pub fn calls_of(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }

    /// What all kernels together have counted.
    pub fn total(&self) -> KernelCounters {
        let mut total = KernelCounters::default();
        for kernel in self.kernels.values() {
            total.launches += kernel.launches;
            total.counts.add(&kernel.counts);
        }
        total
    }

    /// All driver calls.
    pub fn total_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\n");
        let pair =
            |(count, bytes): (u64, u64)| format!("{{\"count\": {count}, \"bytes\": {bytes}}}");
        let _ = writeln!(out, "  \"launches\": {},", self.launches);
        let _ = writeln!(out, "  \"allocations\": {},", self.allocations);
        let _ = writeln!(out, "  \"synchronizations\": {},", self.synchronizations);
        for (name, value) in [
            ("host_to_device", self.host_to_device),
            ("device_to_host", self.device_to_host),
            ("device_to_device", self.device_to_device),
            ("peer_to_peer", self.peer_to_peer),
            ("host_to_host", self.host_to_host),
            ("fills", self.fills),
        ] {
            let _ = writeln!(out, "  \"{name}\": {},", pair(value));
        }
        let memory = self
            .memory
            .iter()
            .map(|(used, peak)| format!("{{\"used\": {used}, \"peak\": {peak}}}"));
        let _ = writeln!(
            out,
            "  \"memory\": [{}],",
            memory.collect::<Vec<_>>().join(", ")
        );
        let _ = writeln!(out, "  \"total\": {},", kernel_json(&self.total()));
        let calls = self
            .calls
            .iter()
            .map(|(name, count)| format!("    \"{name}\": {count}"));
        let _ = writeln!(
            out,
            "  \"calls\": {{\n{}\n  }},",
            calls.collect::<Vec<_>>().join(",\n")
        );
        let kernels = self
            .kernels
            .iter()
            .map(|(name, kernel)| format!("    {}: {}", quoted(name), kernel_json(kernel)));
        let _ = writeln!(
            out,
            "  \"kernels\": {{\n{}\n  }}\n}}",
            kernels.collect::<Vec<_>>().join(",\n")
        );
        out
    }
}

fn kernel_json(kernel: &KernelCounters) -> String {
    let counts = &kernel.counts;
    let classes = |values: &[u64; 12]| {
        let of = |(name, value): (&&str, &u64)| format!("\"{name}\": {value}");
        CLASSES
            .iter()
            .zip(values)
            .map(of)
            .collect::<Vec<_>>()
            .join(", ")
    };
    format!(
        "{{\"launches\": {}, \"warp_instructions\": {{{}}}, \"lane_instructions\": {{{}}}, \"divergent_branches\": {}, \
         \"global_bytes_read\": {}, \"global_bytes_written\": {}, \"global_sectors_read\": {}, \
         \"global_sectors_written\": {}, \"bank_conflicts\": {}, \"barriers\": {}}}",
        kernel.launches,
        classes(&counts.warp_instructions),
        classes(&counts.lane_instructions),
        counts.divergent_branches,
        counts.global_bytes_read,
        counts.global_bytes_written,
        counts.global_sectors_read,
        counts.global_sectors_written,
        counts.bank_conflicts,
        counts.barriers,
    )
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            c if c < ' ' => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The counters while they count.
#[derive(Debug)]
pub(crate) struct Tally {
    calls: Box<[AtomicU64]>,
    total: AtomicU64,
    allocations: AtomicU64,
    synchronizations: AtomicU64,
    traffic: [(AtomicU64, AtomicU64); 6],
    kernels: Mutex<BTreeMap<Arc<str>, KernelCounters>>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            calls: NAMES.iter().map(|_| AtomicU64::new(0)).collect(),
            total: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            synchronizations: AtomicU64::new(0),
            traffic: Default::default(),
            kernels: Mutex::default(),
        }
    }
}

impl Tally {
    /// Counts a driver call.
    pub(crate) fn called(&self, function: Function) {
        self.calls[function as usize].fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of the latest driver call.
    pub(crate) fn call_number(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How often a function was called.
    pub(crate) fn calls_of(&self, function: Function) -> u64 {
        self.calls[function as usize].load(Ordering::Relaxed)
    }

    /// Counts an allocation; its number.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a wait of the host.
    pub(crate) fn synchronized(&self) {
        self.synchronizations.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a copy or memory set.
    pub(crate) fn moved(&self, direction: Direction, bytes: u64) {
        let (count, sum) = &self.traffic[direction as usize];
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a launch.
    pub(crate) fn launched(&self, kernel: &Arc<str>, counts: &LaunchCounts) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match kernels.get_mut(kernel) {
            Some(entry) => entry,
            None => kernels.entry(kernel.clone()).or_default(),
        };
        entry.launches += 1;
        entry.counts.add(counts);
    }

    /// What was counted so far.
    pub(crate) fn read(&self, memory: Vec<(u64, u64)>) -> Counters {
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let traffic = |direction: Direction| {
            let (count, bytes) = &self.traffic[direction as usize];
            (load(count), load(bytes))
        };
        Counters {
            calls: NAMES
                .iter()
                .zip(&self.calls)
                .map(|(name, count)| (*name, load(count)))
                .filter(|c| c.1 > 0)
                .collect(),
            launches: kernels.values().map(|kernel| kernel.launches).sum(),
            kernels: kernels
                .iter()
                .map(|(name, kernel)| (name.to_string(), kernel.clone()))
                .collect(),
            allocations: load(&self.allocations),
            synchronizations: load(&self.synchronizations),
            host_to_device: traffic(Direction::HostToDevice),
            device_to_host: traffic(Direction::DeviceToHost),
            device_to_device: traffic(Direction::DeviceToDevice),
            peer_to_peer: traffic(Direction::PeerToPeer),
            host_to_host: traffic(Direction::HostToHost),
            fills: traffic(Direction::Fill),
            memory,
        }
    }

    /// Starts from zero. The number of the call goes on, for messages that name it.
    pub(crate) fn reset(&self) {
        let counters = self
            .calls
            .iter()
            .chain([&self.allocations, &self.synchronizations]);
        let traffic = self
            .traffic
            .iter()
            .flat_map(|(count, bytes)| [count, bytes]);
        counters
            .chain(traffic)
            .for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.kernels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
