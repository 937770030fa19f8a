//! Faults that a machine shows from some call on, chosen while it runs: calls that fail, devices that are lost.
//!
//! What is known before the machine is made stands in its settings ([`InjectedFaults`](super::InjectedFaults)).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Machine;
use crate::driver::Function;
use crate::driver::call::Call;
use crate::driver::error::{Failure, Outcome, code};

/// Calls that fail although nothing is wrong with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingCalls {
    /// The functions, whose calls are counted together.
    pub functions: Vec<Function>,
    /// How many calls go well before the first one that fails.
    pub after: u64,
    /// How many fail then; `u64::MAX` stands for all of them, until the faults are cleared.
    pub count: u64,
    /// What they answer.
    pub code: u32,
}

impl FailingCalls {
    /// The functions that take memory of a device.
    pub const DEVICE_MEMORY: [Function; 6] = [
        Function::cuMemAlloc_v2,
        Function::cuMemAllocPitch_v2,
        Function::cuMemAllocManaged,
        Function::cuMemAllocAsync,
        Function::cuMemAllocFromPoolAsync,
        Function::cuMemCreate,
    ];
    /// The functions that take page-locked memory of the host.
    pub const HOST_MEMORY: [Function; 2] = [Function::cuMemHostAlloc, Function::cuMemAllocHost_v2];

    /// Allocations, of devices and of the host, that fail for want of memory: after `after` that go well, `count` of them.
    pub fn out_of_memory(after: u64, count: u64) -> FailingCalls {
        let functions = [&Self::DEVICE_MEMORY[..], &Self::HOST_MEMORY[..]].concat();
        FailingCalls {
            functions,
            after,
            count,
            code: code::OUT_OF_MEMORY,
        }
    }

    /// Counts a call of one of its functions; whether it fails.
    fn hits(&mut self, function: Function) -> bool {
        if !self.functions.contains(&function) {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        let fails = self.count > 0;
        if self.count != u64::MAX {
            self.count = self.count.saturating_sub(1);
        }
        fails
    }
}

/// The faults that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    /// Whether there is any, so that a call need not lock to learn that there is none.
    armed: AtomicBool,
    faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    calls: Vec<FailingCalls>,
    shown: u64,
}

impl Injection {
    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on calls look for faults.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }
}

impl Machine {
    /// Lets calls fail from now on, beside those that do already. The numbers count from this call on.
    pub fn inject(&self, calls: FailingCalls) {
        self.injection.lock().calls.push(calls);
        self.injection.arm();
    }

    /// Loses a device: its work ends, and every call for it answers `code`, until the faults are cleared. Questions that
    /// the driver answers by itself, as for a device's name, are answered as before.
    ///
    /// # Errors
    /// If there is no such device, or 0 is given, which is no error.
    pub fn lose_device(&self, device: u32, code: u32) -> Result<(), String> {
        if device >= self.settings.devices || code == 0 {
            let devices = self.settings.devices;
            return Err(format!(
                "device {device} of {devices} cannot be lost with code {code}"
            ));
        }
        let message = format!("device {device} is lost because it was asked for");
        self.lose(device as usize, code, &message);
        Ok(())
    }

    /// Takes all faults back that were chosen while the machine ran, and finds lost devices again with the memory that
    /// they had.
    pub fn clear_faults(&self) {
        self.injection.armed.store(false, Ordering::Release);
        *self.injection.lock() = Faults::default();
        self.find_lost();
    }

    /// How many calls have failed, since the faults were cleared last, because it was asked for.
    pub fn faults_shown(&self) -> u64 {
        self.injection.lock().shown
    }
}

/// Fails if the call is one that was to fail, or is for a lost device.
#[inline]
pub(crate) fn check(call: &Call<'_>) -> Outcome {
    if !call.machine.injection.armed.load(Ordering::Acquire) {
        return Ok(());
    }
    look(call)
}

#[cold]
fn look(call: &Call<'_>) -> Outcome {
    let mut faults = call.machine.injection.lock();
    // Each list counts the call, whatever another one makes of it.
    let mut failing = None;
    for calls in &mut faults.calls {
        if calls.hits(call.function) {
            failing = Some(calls.code);
        }
    }
    if let Some(code) = failing {
        faults.shown += 1;
        return Err(Failure::new(
            code,
            "the call fails because it was asked for",
        ));
    }
    drop(faults);
    if asks_no_device(call.function) {
        return Ok(());
    }
    let Some(context) = call.top() else {
        return Ok(());
    };
    let state = call.machine.state();
    let device = state.contexts.get(&context).map(|context| context.device);
    match device.and_then(|device| state.devices[device].lost) {
        Some(code) => Err(Failure::new(code, "the device is lost")),
        None => Ok(()),
    }
}

/// Whether the driver answers by itself, without the device of the current context.
fn asks_no_device(function: Function) -> bool {
    use Function as F;
    matches!(
        function,
        F::cuInit
            | F::cuDriverGetVersion
            | F::cuGetErrorName
            | F::cuGetErrorString
            | F::cuGetProcAddress
            | F::cuGetProcAddress_v2
            | F::cuDeviceGet
            | F::cuDeviceGetCount
            | F::cuDeviceGetName
            | F::cuDeviceGetUuid
            | F::cuDeviceGetUuid_v2
            | F::cuDeviceTotalMem_v2
            | F::cuDeviceGetAttribute
            | F::cuDeviceCanAccessPeer
            | F::cuDevicePrimaryCtxRetain
            | F::cuDevicePrimaryCtxRelease_v2
            | F::cuCtxGetCurrent
            | F::cuCtxSetCurrent
            | F::cuCtxPushCurrent_v2
            | F::cuCtxPopCurrent_v2
            | F::cuCtxGetDevice
            | F::cuCtxCreate_v2
            | F::cuCtxDestroy_v2
    )
}
