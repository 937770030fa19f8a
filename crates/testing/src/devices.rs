//! A virtual GPU for tests, with every check on, and what an op has to give on a device.

use std::sync::{Arc, OnceLock};

use fireclay_tensor::{Device, Tensor};
use virtual_gpu::machine::{Checks, Machine, Settings, Sink, VARIABLES};

/// The environment variables that [`machine`] heeds: they choose in which order the device does its work.
pub const SCHEDULE_VARIABLES: [&str; 3] = [
    "FIRECLAY_VIRTUAL_GPU_SEED",
    "FIRECLAY_VIRTUAL_GPU_STREAMS",
    "FIRECLAY_VIRTUAL_GPU_WORKERS",
];

/// The virtual machine of this process: two devices that find races, reads of what was never written and leaks, on the schedule
/// that [`SCHEDULE_VARIABLES`] ask for.
///
/// # Panics
/// If the process has chosen another driver before, or a variable has a value that it can't have.
pub fn machine() -> Arc<Machine> {
    static MACHINE: OnceLock<Arc<Machine>> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| {
        let mut settings = Settings {
            devices: 2,
            memory: 256 << 20,
            log: Sink::Stderr,
            count_memory: true,
            checks: Checks {
                uninitialized: true,
                shared_races: true,
                stream_races: true,
                ..Checks::default()
            },
            ..Settings::default()
        };
        for variable in VARIABLES {
            let value = std::env::var(variable.name);
            if let (true, Ok(value)) = (SCHEDULE_VARIABLES.contains(&variable.name), value) {
                variable
                    .apply(&mut settings, &value)
                    .expect("a value of the variable");
            }
        }
        fireclay_cuda::driver::use_virtual(settings).expect("no driver was chosen before")
    });
    Arc::clone(machine)
}

/// The first device of [`machine`].
///
/// # Panics
/// As `machine` does.
pub fn virtual_cuda() -> Device {
    machine();
    Device::Cuda(0)
}

/// The tensors on a device, as leaves that want gradients where the given ones do. Strides stay.
///
/// # Panics
/// If they can't be moved.
pub fn moved(tensors: &[Tensor], device: Device) -> Vec<Tensor> {
    let each = tensors.iter().map(|tensor| {
        let moved = tensor.detach().to(device).expect("a move");
        if tensor.requires_grad() {
            moved
                .requires_grad_(true)
                .expect("a leaf of a floating dtype");
        }
        moved
    });
    each.collect()
}
