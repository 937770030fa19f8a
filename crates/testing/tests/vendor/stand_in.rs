//! Libraries that stand in for the vendor's, built and loaded, and processes that use them.

use std::path::PathBuf;
use std::process::Command;

use fireclay_cuda::Gpu;
use fireclay_testing::agreement;
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::samples::samples;
use libloading::{Library, Symbol};

/// A stand-in, built.
pub(crate) fn built(name: &str) -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--package", "fireclay-testing"]);
    command.args(["--example", name]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let program = std::env::current_exe().expect("the test itself");
    let profile = program.ancestors().nth(2).expect("its profile's folder");
    let target = profile.parent().expect("the target folder");
    command.arg("--target-dir").arg(target);
    assert!(command.status().expect("it starts").success());
    let kind = std::env::consts::DLL_SUFFIX;
    profile.join(format!("examples/lib{name}{kind}"))
}

/// Runs a test of this program that is left out otherwise, in a process with these variables.
#[track_caller]
pub(crate) fn run(test: &str, variables: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("the test itself");
    let mut command = Command::new(program);
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    for variable in [
        "FIRECLAY_CUBLASLT",
        "FIRECLAY_BLAS",
        "FIRECLAY_CUDNN",
        "FIRECLAY_CONV",
    ] {
        command.env_remove(variable);
    }
    let output = command
        .envs(variables.iter().copied())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{failed}"
    );
}

extern "C" fn read(address: u64, bytes: *mut u8, count: usize) {
    let stream = Gpu::get(0).expect("the device").stream();
    // SAFETY: the stand-in has a buffer of that size, and asks for memory of the operands.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(bytes, count);
        fireclay_cuda::download(stream, address, bytes).expect("a copy");
    }
}

extern "C" fn write(address: u64, bytes: *mut u8, count: usize) {
    let stream = Gpu::get(0).expect("the device").stream();
    // SAFETY: as above, to memory of the result.
    unsafe {
        let bytes = std::slice::from_raw_parts(bytes, count);
        fireclay_cuda::upload(stream, address, bytes).expect("a copy");
    }
}

/// The stand-in as the test talks to it.
pub(crate) struct StandIn(Library);

impl StandIn {
    /// The one whose path the variable names.
    pub(crate) fn connect(variable: &str) -> StandIn {
        let path = std::env::var(variable).expect("the stand-in's path");
        // SAFETY: the stand-in has no initialisers.
        let library = unsafe { Library::new(path) }.expect("it was built");
        type Copy2 = extern "C" fn(u64, *mut u8, usize);
        // SAFETY: the function's signature.
        unsafe {
            let connect: Symbol<'_, extern "C" fn(Copy2, Copy2)> =
                library.get(b"stand_in_connect\0").expect("exported");
            connect(read, write);
        }
        StandIn(library)
    }

    /// The calls since the last time.
    pub(crate) fn calls(&self) -> Vec<String> {
        let mut buffer = vec![0u8; 1 << 16];
        // SAFETY: the function's signature; the buffer has that room.
        let count = unsafe {
            let take: Symbol<'_, unsafe extern "C" fn(*mut u8, usize) -> usize> =
                self.0.get(b"stand_in_take_calls\0").expect("exported");
            take(buffer.as_mut_ptr(), buffer.len())
        };
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// Makes the next computation return this status.
    pub(crate) fn fail(&self, status: i32) {
        // SAFETY: the function's signature.
        unsafe {
            let fail: Symbol<'_, extern "C" fn(i32)> =
                self.0.get(b"stand_in_fail\0").expect("exported");
            fail(status);
        }
    }

    /// How many of its objects are alive.
    pub(crate) fn live(&self) -> i64 {
        // SAFETY: the function's signature.
        unsafe {
            let live: Symbol<'_, extern "C" fn() -> i64> =
                self.0.get(b"stand_in_live\0").expect("exported");
            live()
        }
    }
}

/// Compares samples of these ops with the host, as `check-device` does: over layouts and dtypes, with gradients. How many calls.
#[track_caller]
pub(crate) fn check(ops: &[&str]) -> usize {
    let chosen: Vec<_> = samples()
        .into_iter()
        .filter(|sample| ops.contains(&sample.op))
        .collect();
    let findings = agreement::check(&chosen, virtual_cuda(), None, &mut |_, _, _| {});
    let failures: Vec<_> = findings.failures().collect();
    assert!(failures.is_empty(), "{failures:#?}");
    findings.progress().0
}
