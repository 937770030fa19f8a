//! Which devices there are.

use fireclay_core::{Device, Result};

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
