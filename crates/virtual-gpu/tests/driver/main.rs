//! The driver's functions, a module for each group of them, with good and bad input: results, error codes, what is
//! said in the log, and that the process lives on.

#[expect(dead_code, reason = "shared with the tests of kernels")]
#[path = "../kernels/api.rs"]
mod api;
mod capture;
mod checks;
mod contexts;
mod copies;
mod costs;
mod counters;
mod endings;
mod faults;
mod fuzz;
#[expect(dead_code, reason = "shared with the tests of kernels")]
#[path = "../kernels/gpu.rs"]
mod gpu;
mod graph_memory;
mod graphs;
mod launches;
mod memory;
mod modules;
mod nested_graphs;
mod peers;
mod per_thread;
mod pools;
mod programs;
mod ptx;
mod start;
mod streams;
mod virtual_memory;

use virtual_gpu::machine::{Settings, Sink};

use gpu::{Gpu, Handle, Schedule};

/// A null pointer to whatever is expected.
fn null<T>() -> *mut T {
    std::ptr::null_mut()
}

/// A handle that the driver never gave out.
fn foreign() -> Handle {
    0x1234_5678usize as Handle
}

/// Settings of most tests: two devices, and nothing on the error output.
fn settings() -> Settings {
    Settings {
        devices: 2,
        memory: 64 << 20,
        budget: 1_000_000,
        print: Sink::None,
        ..Settings::default()
    }
}

/// A machine that does work when it is submitted.
fn eager() -> Gpu {
    Gpu::with(Schedule::Parallel, settings())
}

/// A machine that does work when somebody waits.
fn deferred(seed: u64) -> Gpu {
    Gpu::with(Schedule::Deferred(seed), settings())
}

/// Panics unless a line of the log has all of these parts.
#[track_caller]
fn logged(gpu: &Gpu, parts: &[&str]) {
    let lines = gpu.machine.log_lines();
    let found = lines
        .iter()
        .any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line with {parts:?} in\n{}", lines.join("\n"));
}
