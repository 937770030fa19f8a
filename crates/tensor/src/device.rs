//! Which devices there are, and which of them factories use by default.

use fireclay_core::default_device::{DefaultDeviceGuard, set_process_default};
use fireclay_core::{Device, IntoDevice, Result};

/// Checks that tensors can live on `device`.
///
/// # Errors
/// [`Error::DeviceUnavailable`](fireclay_core::Error::DeviceUnavailable), which says which layer failed and what to do.
pub fn check_available(device: Device) -> Result<()> {
    match device {
        Device::Cpu => Ok(()),
        Device::Cuda(ordinal) => fireclay_cuda::Gpu::get(ordinal).map(drop),
    }
}

/// Makes `device` the one where factories put tensors when they are given `None` as device, and where layers made without
/// a config have their parameters and buffers (`torch.set_default_device`): on every thread, present and future, that has
/// no guard of [`default_device`].
///
/// `"cuda"` is the current device of the calling thread, resolved now; a later change of the current device does not change
/// the default (in PyTorch it does). Nothing but factories looks at the default.
///
/// # Errors
/// Text that names no device; a device that is not there.
pub fn set_default_device(device: impl IntoDevice) -> Result<()> {
    set_process_default(known(device)?);
    Ok(())
}

/// Makes `device` this thread's default device until the guard is dropped (`with torch.device(..)`).
///
/// Workers that a data loader starts meanwhile have it too, for as long as they live; a thread that you start has it if you
/// hand it on with [`ThreadDevices`](fireclay_core::ThreadDevices).
///
/// # Errors
/// Text that names no device; a device that is not there.
pub fn default_device(device: impl IntoDevice) -> Result<DefaultDeviceGuard> {
    known(device).map(DefaultDeviceGuard::new)
}

/// The device, if there is such a one. Its context is not made.
fn known(device: impl IntoDevice) -> Result<Device> {
    let device = device.into_device()?;
    if let Device::Cuda(ordinal) = device {
        fireclay_cuda::Gpu::properties_of(ordinal)?;
    }
    Ok(device)
}
