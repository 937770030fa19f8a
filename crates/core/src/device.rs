//! `Device`: where a tensor lives.
//!
//! Note [Devices are resolved]
//! A device value always names one device. `"cuda"` becomes `cuda:<current>` when it is parsed, on the
//! thread that parses it, so `cuda` and `cuda:0` are equal where 0 is current, and a tensor's device equals
//! the device it was asked for.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The place of a tensor's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
pub enum Device {
    /// The host.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this ordinal.
    Cuda(usize),
}

thread_local! {
    static CURRENT_CUDA: Cell<usize> = const { Cell::new(0) };
}

impl Device {
    /// The current CUDA device of this thread: ordinal 0 until another one is chosen.
    pub fn cuda() -> Device {
        Device::Cuda(CURRENT_CUDA.get())
    }

    /// Makes `ordinal` the current CUDA device of this thread and returns the one before.
    pub fn set_current_cuda(ordinal: usize) -> usize {
        CURRENT_CUDA.replace(ordinal)
    }

    /// The ordinal of the current CUDA device of this thread.
    pub fn current_cuda() -> usize {
        CURRENT_CUDA.get()
    }

    /// Whether it is the host.
    pub fn is_cpu(self) -> bool {
        self == Device::Cpu
    }

    /// Whether it is a GPU.
    pub fn is_cuda(self) -> bool {
        matches!(self, Device::Cuda(_))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.pad("cpu"),
            Device::Cuda(ordinal) => f.pad(&format!("cuda:{ordinal}")),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Parses `cpu`, `cuda` or `cuda:N`. See Note [Devices are resolved].
    fn from_str(text: &str) -> Result<Device> {
        let bad = || Error::InvalidDevice {
            text: text.to_owned(),
        };
        match text {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::cuda()),
            _ => {
                let digits = text.strip_prefix("cuda:").ok_or_else(bad)?;
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(bad());
                }
                digits.parse().map(Device::Cuda).map_err(|_| bad())
            }
        }
    }
}

/// What can be given where a device is asked for: a [`Device`] or its name.
pub trait IntoDevice {
    /// The device, resolved now.
    fn into_device(self) -> Result<Device>;
}

impl IntoDevice for Device {
    fn into_device(self) -> Result<Device> {
        Ok(self)
    }
}

impl IntoDevice for &str {
    fn into_device(self) -> Result<Device> {
        self.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinal_is_resolved_when_parsed() {
        assert_eq!("cpu".parse::<Device>().unwrap(), Device::Cpu);
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        let before = Device::set_current_cuda(1);
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(1));
        assert_eq!("cuda:0".parse::<Device>().unwrap(), Device::Cuda(0));
        Device::set_current_cuda(before);
    }

    #[test]
    fn other_names_are_errors() {
        for text in [
            "",
            "gpu",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda: 1",
            "cpu:0",
            "cuda:99999999999999999999",
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("cuda:1"), "{error}");
        }
    }
}
