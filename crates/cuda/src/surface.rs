//! The functions of `torch.cuda`, under their names: which devices there are, which is current, what their memory is used
//! for.
//!
//! Functions that take a device take `impl IntoDevice`: `Device::Cuda(1)`, `"cuda:1"`, or `"cuda"` for the current one.

use std::fmt::Write;

use fireclay_core::caching::{SegmentSnapshot, Statistic};
use fireclay_core::{Device, Error, IntoDevice, Result};

use crate::driver::{self, Source};
use crate::gpu::{Gpu, Properties};
use crate::memory::{Counts, Purpose, Released};
use crate::module::{Argument, Module};

/// What [`availability`] found.
#[derive(Clone, Debug)]
pub struct Availability {
    /// Where the driver's functions come from.
    pub source: Source,
    /// The newest CUDA version that the driver knows: 1000 times the major and 10 times the minor number.
    pub driver_version: i32,
    /// How many devices it shows.
    pub devices: usize,
}

/// Whether CUDA can be used: a driver, and a device on which a kernel has run (`torch.cuda.is_available`).
pub fn is_available() -> bool {
    availability().is_ok()
}

/// As [`is_available`], with what was found, or why not: which layer failed, and the way out. One real kernel is run on the
/// first device.
///
/// # Errors
/// [`Error::DeviceUnavailable`].
pub fn availability() -> Result<Availability> {
    let device = Device::Cuda(0);
    let driver = driver::driver().map_err(|why| Error::DeviceUnavailable {
        device,
        why: why.to_string(),
    })?;
    probe().map_err(|error| match error {
        Error::DeviceUnavailable { .. } => error,
        other => Error::DeviceUnavailable {
            device,
            why: format!("it does not run a kernel: {other}"),
        },
    })?;
    Ok(Availability {
        source: driver.source().clone(),
        driver_version: driver.version(),
        devices: driver.devices(),
    })
}

/// Runs a kernel that writes one number, and reads the number.
fn probe() -> Result<()> {
    const TEXT: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry probe(.param .u64 to)
{
  .reg .b64 %to;
  ld.param.u64 %to, [to];
  cvta.to.global.u64 %to, %to;
  st.global.u32 [%to], 271828;
  ret;
}
";
    let gpu = Gpu::get(0)?;
    let stream = gpu.stream();
    let word = crate::DeviceBuffer::allocate(stream, 4, Purpose::Workspaces)?;
    let kernel = Module::from_ptx(gpu, TEXT)?.kernel(c"probe")?;
    let mut found = [0; 4];
    // SAFETY: the kernel takes the address of four bytes.
    unsafe {
        let arguments = [Argument::Address(word.address())];
        kernel.launch(stream, [1, 1, 0], &arguments, "probe", 1)?;
        crate::download(stream, word.address(), &mut found)?;
    }
    match u32::from_ne_bytes(found) {
        271_828 => Ok(()),
        found => Err(Error::DeviceUnavailable {
            device: gpu.device(),
            why: format!("a kernel that writes 271828 has written {found}"),
        }),
    }
}

/// How many devices the driver shows; 0 without one (`torch.cuda.device_count`).
pub fn device_count() -> usize {
    driver::driver().map_or(0, |driver| driver.devices())
}

/// The ordinal of the current device of this thread (`torch.cuda.current_device`).
pub fn current_device() -> usize {
    Device::current_cuda()
}

/// Makes a device the current one of this thread: the one that `"cuda"` means (`torch.cuda.set_device`).
///
/// # Errors
/// If there is no such device.
pub fn set_device(device: impl IntoDevice) -> Result<()> {
    let ordinal = ordinal_of("set_device", device)?;
    Gpu::properties_of(ordinal)?;
    Device::set_current_cuda(ordinal);
    Ok(())
}

/// Makes a device current until the guard is dropped (`with torch.cuda.device(..)`).
///
/// # Errors
/// If there is no such device.
pub fn device(device: impl IntoDevice) -> Result<DeviceGuard> {
    let ordinal = ordinal_of("device", device)?;
    Gpu::properties_of(ordinal)?;
    Ok(DeviceGuard {
        before: Device::set_current_cuda(ordinal),
        _thread: std::marker::PhantomData,
    })
}

/// Keeps a device current; dropping it makes the one before current again.
#[must_use = "the device is current only while the guard lives"]
#[derive(Debug)]
pub struct DeviceGuard {
    before: usize,
    /// It must be dropped by the thread that made it.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        Device::set_current_cuda(self.before);
    }
}

/// A device's name (`torch.cuda.get_device_name`).
///
/// # Errors
/// If there is no such device.
pub fn get_device_name(device: impl IntoDevice) -> Result<String> {
    Ok(get_device_properties(device)?.name)
}

/// What a device is (`torch.cuda.get_device_properties`). Its context is not made.
///
/// # Errors
/// If there is no such device.
pub fn get_device_properties(device: impl IntoDevice) -> Result<Properties> {
    Gpu::properties_of(ordinal_of("get_device_properties", device)?)
}

/// A device's compute capability, major and minor (`torch.cuda.get_device_capability`).
///
/// # Errors
/// If there is no such device.
pub fn get_device_capability(device: impl IntoDevice) -> Result<(u32, u32)> {
    Ok(get_device_properties(device)?.capability)
}

/// Waits until all work of a device is done (`torch.cuda.synchronize`).
///
/// # Errors
/// If the work failed, or there is no such device.
pub fn synchronize(device: impl IntoDevice) -> Result<()> {
    gpu("synchronize", device)?.synchronize()
}

/// Bytes in use by tensors (`torch.cuda.memory_allocated`).
///
/// # Errors
/// If there is no such device.
pub fn memory_allocated(device: impl IntoDevice) -> Result<u64> {
    Ok(allocated(device)?.current)
}

/// The most bytes in use by tensors so far (`torch.cuda.max_memory_allocated`).
///
/// # Errors
/// If there is no such device.
pub fn max_memory_allocated(device: impl IntoDevice) -> Result<u64> {
    Ok(allocated(device)?.peak)
}

/// Bytes held by the caching allocator (`torch.cuda.memory_reserved`).
///
/// # Errors
/// If there is no such device.
pub fn memory_reserved(device: impl IntoDevice) -> Result<u64> {
    Ok(reserved(device)?.current)
}

/// The most bytes held so far (`torch.cuda.max_memory_reserved`).
///
/// # Errors
/// If there is no such device.
pub fn max_memory_reserved(device: impl IntoDevice) -> Result<u64> {
    Ok(reserved(device)?.peak)
}

fn allocated(device: impl IntoDevice) -> Result<Statistic> {
    let gpu = gpu("memory_allocated", device)?;
    Ok(gpu.memory().statistics().allocated_bytes.all)
}

fn reserved(device: impl IntoDevice) -> Result<Statistic> {
    let gpu = gpu("memory_reserved", device)?;
    Ok(gpu.memory().statistics().reserved_bytes.all)
}

/// Sets the peaks to the current values (`torch.cuda.reset_peak_memory_stats`).
///
/// # Errors
/// If there is no such device.
pub fn reset_peak_memory_stats(device: impl IntoDevice) -> Result<()> {
    gpu("reset_peak_memory_stats", device)?
        .memory()
        .reset_peak();
    Ok(())
}

/// Sets the sums and the counts to 0 (`torch.cuda.reset_accumulated_memory_stats`).
///
/// # Errors
/// If there is no such device.
pub fn reset_accumulated_memory_stats(device: impl IntoDevice) -> Result<()> {
    let gpu = gpu("reset_accumulated_memory_stats", device)?;
    gpu.memory().reset_accumulated();
    Ok(())
}

/// All statistics under PyTorch's keys (`torch.cuda.memory_stats`).
///
/// # Errors
/// If there is no such device.
pub fn memory_stats(device: impl IntoDevice) -> Result<Vec<(String, u64)>> {
    let memory = gpu("memory_stats", device)?.memory();
    let mut entries = memory.statistics().entries();
    let Counts {
        num_device_alloc,
        num_device_free,
        num_sync_all_streams,
    } = memory.counts();
    for (name, value) in [
        ("num_device_alloc", num_device_alloc),
        ("num_device_free", num_device_free),
        ("num_sync_all_streams", num_sync_all_streams),
    ] {
        entries.push((name.to_owned(), value));
    }
    Ok(entries)
}

/// A table of what memory is used for (`torch.cuda.memory_summary`), with what it is for and which lines made it.
///
/// # Errors
/// If there is no such device.
pub fn memory_summary(device: impl IntoDevice) -> Result<String> {
    use crate::memory::Bytes;
    let gpu = gpu("memory_summary", device)?;
    let memory = gpu.memory();
    let statistics = memory.statistics();
    let (free, total) = gpu.mem_get_info()?;
    let mut text = format!(
        "{} ({}): {} of {} free\n{:<16} {:>12} {:>12} {:>12} {:>12}\n",
        gpu.device(),
        gpu.properties().name,
        Bytes(free),
        Bytes(total),
        "",
        "current",
        "peak",
        "allocated",
        "freed"
    );
    for (name, statistic) in [
        ("allocated", statistics.allocated_bytes.all),
        ("requested", statistics.requested_bytes.all),
        ("active", statistics.active_bytes.all),
        ("reserved", statistics.reserved_bytes.all),
        ("inactive split", statistics.inactive_split_bytes.all),
    ] {
        let bytes = |value| Bytes(value).to_string();
        let Statistic {
            current,
            peak,
            allocated,
            freed,
        } = statistic;
        let _ = writeln!(
            text,
            "{name:<16} {:>12} {:>12} {:>12} {:>12}",
            bytes(current),
            bytes(peak),
            bytes(allocated),
            bytes(freed)
        );
    }
    let blocks = statistics.allocation.all;
    let segments = statistics.segment.all;
    let _ = writeln!(
        text,
        "blocks {} (peak {}), segments {}; retries {}, out of memory {}",
        blocks.current,
        blocks.peak,
        segments.current,
        statistics.num_alloc_retries,
        statistics.num_ooms
    );
    for (purpose, bytes) in memory.by_purpose() {
        let _ = writeln!(text, "{:<16} {:>12}", purpose, Bytes(bytes).to_string());
    }
    for group in memory.largest_groups(5) {
        let bytes = Bytes(group.bytes);
        let _ = writeln!(text, "{bytes} in {} at {}", group.blocks, group.location);
    }
    Ok(text)
}

/// All segments with their blocks (`torch.cuda.memory_snapshot`).
///
/// # Errors
/// If there is no such device.
pub fn memory_snapshot(device: impl IntoDevice) -> Result<Vec<SegmentSnapshot>> {
    Ok(gpu("memory_snapshot", device)?.memory().snapshot())
}

/// Free and total bytes of a device, other processes included (`torch.cuda.mem_get_info`).
///
/// # Errors
/// If the driver fails, or there is no such device.
pub fn mem_get_info(device: impl IntoDevice) -> Result<(u64, u64)> {
    gpu("mem_get_info", device)?.mem_get_info()
}

/// Gives unused memory back to the driver (`torch.cuda.empty_cache`); what was given back, and why the rest could not be.
///
/// # Errors
/// If the driver fails, or there is no such device.
pub fn empty_cache(device: impl IntoDevice) -> Result<Released> {
    let gpu = gpu("empty_cache", device)?;
    gpu.memory().empty(gpu)
}

/// Lets this process reserve at most a share of a device's memory (`torch.cuda.set_per_process_memory_fraction`).
///
/// # Errors
/// If the share is not from 0 to 1, or there is no such device.
pub fn set_per_process_memory_fraction(fraction: f64, device: impl IntoDevice) -> Result<()> {
    let name = "set_per_process_memory_fraction";
    if !(0.0..=1.0).contains(&fraction) {
        let what = format!("expected a share from 0 to 1, got {fraction}");
        return Err(Error::argument(name, what));
    }
    let gpu = gpu(name, device)?;
    let limit = (fraction * gpu.properties().total_memory as f64) as u64;
    gpu.memory()
        .set_limit(Some(limit).filter(|_| fraction < 1.0));
    Ok(())
}

fn ordinal_of(name: &'static str, device: impl IntoDevice) -> Result<usize> {
    match device.into_device()? {
        Device::Cuda(ordinal) => Ok(ordinal),
        Device::Cpu => Err(Error::argument(name, "expected a CUDA device, got cpu")
            .with_hint("name one as in \"cuda\" or \"cuda:1\"")),
    }
}

fn gpu(name: &'static str, device: impl IntoDevice) -> Result<&'static Gpu> {
    Gpu::get(ordinal_of(name, device)?)
}
