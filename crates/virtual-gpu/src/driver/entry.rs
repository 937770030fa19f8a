//! The entry points of the C interface, made from the table: each finds its machine, counts itself, turns a failure
//! into its code with a line in the log, and lets no panic out.
#![expect(non_snake_case, reason = "the names of the C interface")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::abi::*;
use super::call::Call;
use super::error::{CUresult, Outcome, code};
use crate::machine::{Machine, current, injection};

crate::for_each_driver_function!(entry_points);

/// The entry point of a symbol, as `dlsym` would find it.
pub fn function(name: &str) -> Option<*const c_void> {
    exact(name)
}

/// The newest version of a function that a client of a CUDA version may see, for a name with or without a version; the
/// variant for the thread's own default stream, if it is wanted and there is one.
pub(crate) fn newest(
    name: &str,
    cuda_version: c_int,
    per_thread: bool,
) -> Result<*const c_void, Missing> {
    let mut best: Option<(u32, &str)> = None;
    let mut too_new = false;
    for candidate in NAMES {
        let Some(rest) = candidate.strip_prefix(name) else {
            continue;
        };
        let version = if rest.is_empty() {
            Some(1)
        } else {
            rest.strip_prefix("_v").and_then(|v| v.parse().ok())
        };
        let Some(version) = version else { continue };
        if since(candidate) > cuda_version {
            too_new = true;
        } else if best.is_none_or(|(other, _)| version > other) {
            best = Some((version, candidate));
        }
    }
    match best {
        Some((_, found)) => {
            let variant = |suffix| exact(&format!("{found}_{suffix}")).filter(|_| per_thread);
            variant("ptsz")
                .or_else(|| variant("ptds"))
                .or_else(|| exact(found))
                .ok_or(Missing::Unknown)
        }
        None if too_new => Err(Missing::TooNew),
        None => Err(Missing::Unknown),
    }
}

/// Why a name has no entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No function has the name.
    Unknown,
    /// Only a newer client may see it.
    TooNew,
}

/// The CUDA version from which on a plain name means this version of a function, where an older one exists too.
fn since(symbol: &str) -> c_int {
    match symbol {
        "cuCtxCreate_v3" => 11040,
        "cuCtxCreate_v4" | "cuMemAdvise_v2" | "cuMemPrefetchAsync_v2" | "cuEventElapsedTime_v2" => {
            13000
        }
        "cuCtxGetDevice_v2" | "cuCtxSynchronize_v2" => 13000,
        "cuStreamGetCaptureInfo_v3" | "cuStreamUpdateCaptureDependencies_v2" => 13000,
        "cuGraphAddDependencies_v2" | "cuGraphRemoveDependencies_v2" | "cuGraphGetEdges_v2" => {
            13000
        }
        "cuGraphNodeGetDependencies_v2"
        | "cuGraphNodeGetDependentNodes_v2"
        | "cuGraphAddNode_v2" => 13000,
        "cuStreamGetCtx_v2" | "cuMemcpyBatchAsync_v2" | "cuMemcpy3DBatchAsync_v2" => 13000,
        "cuGetProcAddress_v2" | "cuGraphExecUpdate_v2" | "cuGraphAddKernelNode_v2" => 12000,
        "cuGraphKernelNodeGetParams_v2" | "cuGraphKernelNodeSetParams_v2" => 12000,
        "cuGraphExecKernelNodeSetParams_v2" => 12000,
        _ => 0,
    }
}

/// Runs an entry point on the machine that the thread has entered, or on the process's.
fn enter(
    function: Function,
    per_thread: bool,
    body: impl FnOnce(&Call<'_>) -> Outcome,
) -> CUresult {
    let result = catch_unwind(AssertUnwindSafe(|| {
        current(|machine| match machine {
            Ok(machine) => on_machine(machine, function, per_thread, body),
            Err(code) => code,
        })
    }));
    result.unwrap_or_else(|_| {
        let _ = current(|machine| {
            if let Ok(machine) = machine {
                let name = NAMES[function as usize];
                machine.log().line(&format!(
                    "{name}: the virtual driver panicked, which is a bug of it; please report"
                ));
            }
            code::UNKNOWN
        });
        code::UNKNOWN
    })
}

fn on_machine(
    machine: &std::sync::Arc<Machine>,
    function: Function,
    per_thread: bool,
    body: impl FnOnce(&Call<'_>) -> Outcome,
) -> CUresult {
    machine.tally().called(function);
    let call = Call {
        machine,
        function,
        per_thread,
    };
    match injection::check(&call).and_then(|()| body(&call)) {
        Ok(()) => code::SUCCESS,
        Err(failure) => {
            if let Some(message) = &failure.message {
                call.report(failure.code, message);
            }
            failure.code
        }
    }
}
