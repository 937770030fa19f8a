//! Functions that concern the driver and its devices: start, versions, names, attributes, error texts, look-up.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::abi::{put, put_if, put_text, text};
use super::call::Call;
use super::entry::{Missing, newest};
use super::error::{CUresult, Failure, Outcome, code, describe};
use crate::device::attributes::attribute;

pub(super) unsafe fn cuInit(call: &Call<'_>, flags: c_uint) -> Outcome {
    if flags != 0 {
        return Err(Failure::invalid("flags must be 0"));
    }
    if call.machine.settings.devices == 0 {
        return Err(Failure::new(code::NO_DEVICE, "the machine has no devices"));
    }
    if !call.machine.initialize() {
        let message = "cuInit was called before the process was forked; the child cannot use it";
        return Err(Failure::new(code::NOT_INITIALIZED, message));
    }
    Ok(())
}

pub(super) unsafe fn cuDriverGetVersion(call: &Call<'_>, driver_version: *mut c_int) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            driver_version,
            call.machine.settings.driver_version,
            "driverVersion",
        )
    }
}

pub(super) unsafe fn cuDeviceGet(call: &Call<'_>, device: *mut c_int, ordinal: c_int) -> Outcome {
    call.state()?.device(ordinal)?;
    // SAFETY: the C interface's contract.
    unsafe { put(device, ordinal, "device") }
}

pub(super) unsafe fn cuDeviceGetCount(call: &Call<'_>, count: *mut c_int) -> Outcome {
    let devices = call.state()?.devices.len();
    // SAFETY: the C interface's contract.
    unsafe { put(count, devices as c_int, "count") }
}

pub(super) unsafe fn cuDeviceGetName(
    call: &Call<'_>,
    name: *mut c_char,
    len: c_int,
    dev: c_int,
) -> Outcome {
    let device = call.state()?.device(dev)?;
    let length = usize::try_from(len).map_err(|_| Failure::invalid("len is negative"))?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_text(
            name,
            length,
            &format!("Fireclay Virtual GPU {device}"),
            "name",
        )
    }
}

fn uuid(device: usize) -> [u8; 16] {
    let mut bytes = *b"fireclay-vgpu\0\0\0";
    bytes[15] = device as u8;
    bytes
}

pub(super) unsafe fn cuDeviceGetUuid(
    call: &Call<'_>,
    uuid_out: *mut [u8; 16],
    dev: c_int,
) -> Outcome {
    let device = call.state()?.device(dev)?;
    // SAFETY: the C interface's contract.
    unsafe { put(uuid_out, uuid(device), "uuid") }
}

pub(super) unsafe fn cuDeviceGetUuid_v2(
    call: &Call<'_>,
    uuid: *mut [u8; 16],
    dev: c_int,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { cuDeviceGetUuid(call, uuid, dev) }
}

pub(super) unsafe fn cuDeviceTotalMem_v2(
    call: &Call<'_>,
    bytes: *mut usize,
    dev: c_int,
) -> Outcome {
    let state = call.state()?;
    let device = state.device(dev)?;
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            bytes,
            state.devices[device].memory.capacity() as usize,
            "bytes",
        )
    }
}

pub(super) unsafe fn cuDeviceGetAttribute(
    call: &Call<'_>,
    pi: *mut c_int,
    attrib: c_uint,
    dev: c_int,
) -> Outcome {
    let device = call.state()?.device(dev)?;
    let value = attribute(attrib, call.machine.settings.capability, device)
        .ok_or_else(|| Failure::invalid(format!("no device attribute has the number {attrib}")))?;
    // SAFETY: the C interface's contract.
    unsafe { put(pi, value, "pi") }
}

pub(super) unsafe fn cuDeviceComputeCapability(
    call: &Call<'_>,
    major: *mut c_int,
    minor: *mut c_int,
    dev: c_int,
) -> Outcome {
    call.state()?.device(dev)?;
    let capability = call.machine.settings.capability;
    // SAFETY: the C interface's contract.
    unsafe {
        put(major, capability.0 as c_int, "major")?;
        put(minor, capability.1 as c_int, "minor")
    }
}

pub(super) unsafe fn cuDeviceGetPCIBusId(
    call: &Call<'_>,
    pci_bus_id: *mut c_char,
    len: c_int,
    dev: c_int,
) -> Outcome {
    let device = call.state()?.device(dev)?;
    let length = usize::try_from(len).map_err(|_| Failure::invalid("len is negative"))?;
    // SAFETY: the C interface's contract.
    unsafe {
        put_text(
            pci_bus_id,
            length,
            &format!("0000:{:02X}:00.0", device + 1),
            "pciBusId",
        )
    }
}

pub(super) unsafe fn cuDeviceGetByPCIBusId(
    call: &Call<'_>,
    dev: *mut c_int,
    pci_bus_id: *const c_char,
) -> Outcome {
    // SAFETY: the C interface's contract.
    let id = unsafe { text(pci_bus_id, "pciBusId")? };
    let bus = id
        .split(':')
        .rev()
        .nth(1)
        .and_then(|bus| i32::from_str_radix(bus, 16).ok());
    let bus = bus.ok_or_else(|| Failure::invalid(format!("{id:?} is no bus id")))?;
    let device = call.state()?.device(bus.wrapping_sub(1))?;
    // SAFETY: the C interface's contract.
    unsafe { put(dev, device as c_int, "dev") }
}

/// Whether the devices are linked.
pub(super) fn linked(call: &Call<'_>, one: usize, other: usize) -> bool {
    let broken = call.machine.settings.inject.broken_peer_link;
    one != other
        && broken.is_none_or(|(a, b)| {
            let pair = (a as usize, b as usize);
            pair != (one, other) && pair != (other, one)
        })
}

pub(super) unsafe fn cuDeviceCanAccessPeer(
    call: &Call<'_>,
    can_access_peer: *mut c_int,
    dev: c_int,
    peer_dev: c_int,
) -> Outcome {
    let state = call.state()?;
    let (one, other) = (state.device(dev)?, state.device(peer_dev)?);
    // SAFETY: the C interface's contract.
    unsafe {
        put(
            can_access_peer,
            c_int::from(linked(call, one, other)),
            "canAccessPeer",
        )
    }
}

pub(super) unsafe fn cuDeviceGetP2PAttribute(
    call: &Call<'_>,
    value: *mut c_int,
    attrib: c_uint,
    src_device: c_int,
    dst_device: c_int,
) -> Outcome {
    let state = call.state()?;
    let linked = linked(call, state.device(src_device)?, state.device(dst_device)?);
    let answer = match attrib {
        1 => 0,
        2 | 3 => c_int::from(linked),
        4 => 0,
        _ => {
            return Err(Failure::invalid(format!(
                "no attribute of two devices has the number {attrib}"
            )));
        }
    };
    // SAFETY: the C interface's contract.
    unsafe { put(value, answer, "value") }
}

pub(super) unsafe fn cuDeviceGetExecAffinitySupport(
    call: &Call<'_>,
    pi: *mut c_int,
    _kind: c_uint,
    dev: c_int,
) -> Outcome {
    call.state()?.device(dev)?;
    // SAFETY: the C interface's contract.
    unsafe { put(pi, 0, "pi") }
}

fn texts(error: CUresult) -> Outcome<(*const c_char, *const c_char)> {
    let (name, text) =
        describe(error).ok_or_else(|| Failure::invalid(format!("{error} is no error code")))?;
    Ok((name.as_ptr(), text.as_ptr()))
}

pub(super) unsafe fn cuGetErrorName(
    _call: &Call<'_>,
    error: CUresult,
    p_str: *mut *const c_char,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { put(p_str, texts(error)?.0, "pStr") }
}

pub(super) unsafe fn cuGetErrorString(
    _call: &Call<'_>,
    error: CUresult,
    p_str: *mut *const c_char,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { put(p_str, texts(error)?.1, "pStr") }
}

pub(super) unsafe fn cuGetProcAddress(
    call: &Call<'_>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) -> Outcome {
    // SAFETY: the C interface's contract.
    unsafe { cuGetProcAddress_v2(call, symbol, pfn, cuda_version, flags, std::ptr::null_mut()) }
}

/// Flag of `cuGetProcAddress`: the variants that take the thread's default stream for stream 0.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

pub(super) unsafe fn cuGetProcAddress_v2(
    _call: &Call<'_>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
    symbol_status: *mut c_uint,
) -> Outcome {
    if flags > 2 {
        return Err(Failure::invalid(format!(
            "{flags:#x} are no flags of a look-up"
        )));
    }
    // SAFETY: the C interface's contract.
    let name = unsafe { text(symbol, "symbol")? };
    let (found, status) = match newest(name, cuda_version, flags & PER_THREAD_DEFAULT_STREAM != 0) {
        Ok(found) => (found.cast_mut(), 0),
        Err(Missing::Unknown) => (std::ptr::null_mut(), 1),
        Err(Missing::TooNew) => (std::ptr::null_mut(), 2),
    };
    // SAFETY: the C interface's contract.
    unsafe {
        put(pfn, found, "pfn")?;
        put_if(symbol_status, status);
        if found.is_null() && symbol_status.is_null() {
            return Err(Failure::new(
                code::NOT_FOUND,
                format!("no function {name} for CUDA {cuda_version}"),
            ));
        }
    }
    Ok(())
}

pub(super) unsafe fn cuGetExportTable(
    _call: &Call<'_>,
    pp_export_table: *mut *const c_void,
    p_export_table_id: *const [u8; 16],
) -> Outcome {
    // SAFETY: the C interface's contract.
    let id = unsafe {
        put_if(pp_export_table, std::ptr::null());
        super::abi::get(p_export_table_id, "pExportTableId")?
    };
    let message = format!(
        "undocumented table {id:02x?}: the CUDA runtime and libraries on it need a real driver"
    );
    Err(Failure::new(code::NOT_SUPPORTED, message))
}

pub(super) unsafe fn cuProfilerStart(call: &Call<'_>) -> Outcome {
    call.current().map(drop)
}

pub(super) unsafe fn cuProfilerStop(call: &Call<'_>) -> Outcome {
    call.current().map(drop)
}

pub(super) unsafe fn cuFlushGPUDirectRDMAWrites(
    call: &Call<'_>,
    _target: c_uint,
    _scope: c_uint,
) -> Outcome {
    call.current().map(drop)
}
