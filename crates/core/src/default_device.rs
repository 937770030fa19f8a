//! The default device: where factories put tensors when they are not told where.
//!
//! Note [Default device]
//! It is the process's, set by `set_default_device`, unless a guard on this thread says otherwise. Only factories ask for
//! it: an op on tensors runs where they are and never looks. A thread begins without a guard, hence with the process's
//! default; threads that Fireclay starts to run a user's code (the workers of a data loader) take over what the thread that
//! starts them has at that moment: its guard, and its current CUDA device. [`ThreadDevices`] does the same for a user's own
//! threads. The workers of the thread pool run kernels only, which make no tensors.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::device::{Device, IntoDevice};
use crate::error::Result;

/// The process's default: 0 is the host, else it is one more than a GPU's ordinal.
static OF_PROCESS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What the innermost guard of this thread says.
    static OF_THREAD: Cell<Option<Device>> = const { Cell::new(None) };
}

/// Where factories put tensors on this thread when they are not told where (`torch.get_default_device`): the CPU, until
/// another is set. See Note [Default device].
pub fn get_default_device() -> Device {
    OF_THREAD
        .get()
        .unwrap_or_else(|| match OF_PROCESS.load(Relaxed) {
            0 => Device::Cpu,
            after => Device::Cuda(after - 1),
        })
}

/// Makes `device` the default of all threads that have no guard of their own. Does not look whether it is there.
pub fn set_process_default(device: Device) {
    let code = match device {
        Device::Cpu => 0,
        Device::Cuda(ordinal) => ordinal.saturating_add(1),
    };
    OF_PROCESS.store(code, Relaxed);
}

/// Keeps a device this thread's default; dropping it brings back the one before. Guards are dropped in the reverse order
/// of their making, as scopes do.
#[must_use = "the device is the default only while the guard lives"]
#[derive(Debug)]
pub struct DefaultDeviceGuard {
    before: Option<Device>,
    /// It must be dropped by the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl DefaultDeviceGuard {
    /// Makes `device` this thread's default. Does not look whether it is there.
    pub fn new(device: Device) -> DefaultDeviceGuard {
        DefaultDeviceGuard {
            before: OF_THREAD.replace(Some(device)),
            _thread: PhantomData,
        }
    }
}

impl Drop for DefaultDeviceGuard {
    fn drop(&mut self) {
        OF_THREAD.set(self.before);
    }
}

/// What a thread has chosen: the device of its innermost default-device guard, if any, and its current CUDA device. For
/// handing on to another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadDevices {
    scoped_default: Option<Device>,
    current_cuda: usize,
}

impl ThreadDevices {
    /// The choices of this thread.
    pub fn here() -> ThreadDevices {
        ThreadDevices {
            scoped_default: OF_THREAD.get(),
            current_cuda: Device::current_cuda(),
        }
    }

    /// Runs `scope` on this thread with these choices, then brings back its own.
    pub fn within<R>(self, scope: impl FnOnce() -> R) -> R {
        struct Restore(ThreadDevices);
        impl Drop for Restore {
            fn drop(&mut self) {
                self.0.put();
            }
        }
        let _restore = Restore(ThreadDevices::here());
        self.put();
        scope()
    }

    fn put(self) {
        OF_THREAD.set(self.scoped_default);
        Device::set_current_cuda(self.current_cuda);
    }
}

/// What can be given to a factory as its device: what [`IntoDevice`] takes, or `None` for the default device (PyTorch's
/// `device=None`). See Note [Default device].
pub trait DeviceOrDefault {
    /// The device, resolved now.
    ///
    /// # Errors
    /// Text that names no device.
    fn device_or_default(self) -> Result<Device>;
}

impl<D: IntoDevice> DeviceOrDefault for D {
    fn device_or_default(self) -> Result<Device> {
        self.into_device()
    }
}

impl DeviceOrDefault for Option<Device> {
    fn device_or_default(self) -> Result<Device> {
        Ok(self.unwrap_or_else(get_default_device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// One test, since the process's default is every thread's.
    #[test]
    fn guards_are_of_their_thread_and_the_default_is_of_all() {
        let elsewhere = || thread::spawn(get_default_device).join().unwrap();
        assert_eq!(get_default_device(), Device::Cpu);
        {
            let _outer = DefaultDeviceGuard::new(Device::Cuda(1));
            assert_eq!(get_default_device(), Device::Cuda(1));
            assert_eq!(elsewhere(), Device::Cpu);
            {
                let _inner = DefaultDeviceGuard::new(Device::Cpu);
                assert_eq!(None.device_or_default().unwrap(), Device::Cpu);
                set_process_default(Device::Cuda(2));
                assert_eq!(get_default_device(), Device::Cpu, "the guard decides");
                assert_eq!(elsewhere(), Device::Cuda(2));
            }
            assert_eq!(get_default_device(), Device::Cuda(1));
            assert_eq!("cpu".device_or_default().unwrap(), Device::Cpu);
            assert!("gpu".device_or_default().is_err());

            // Handed on: both choices, for the scope only, also where it panics.
            let current = Device::set_current_cuda(3);
            let devices = ThreadDevices::here();
            Device::set_current_cuda(current);
            thread::spawn(move || {
                let own = ThreadDevices::here();
                let panicked = std::panic::catch_unwind(|| {
                    devices.within(|| {
                        assert_eq!(get_default_device(), Device::Cuda(1));
                        assert_eq!(Device::cuda(), Device::Cuda(3));
                        std::panic::resume_unwind(Box::new(()));
                    })
                });
                assert!(panicked.is_err());
                assert_eq!(ThreadDevices::here(), own);
                assert_eq!(get_default_device(), Device::Cuda(2));
            })
            .join()
            .unwrap();
        }
        assert_eq!(get_default_device(), Device::Cuda(2));
        set_process_default(Device::Cpu);
    }
}
