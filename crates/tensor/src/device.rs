//! Which devices there are.

use fireclay_core::{Device, Error, Result};

/// Checks that tensors can live on `device`.
pub fn check_available(device: Device) -> Result<()> {
    match device {
        Device::Cpu => Ok(()),
        Device::Cuda(_) => Err(unavailable(device)),
    }
}

pub(crate) fn unavailable(device: Device) -> Error {
    Error::DeviceUnavailable {
        device,
        why: "this build of Fireclay has no CUDA backend yet (see \"Not yet\" in the README); use \"cpu\"".into(),
    }
}
