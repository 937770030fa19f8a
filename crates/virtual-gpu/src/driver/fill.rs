//! Memory sets: elements of 1, 2 or 4 bytes, in a row or in rows, on the default stream or in a stream's order.

use std::ffi::c_uint;

use super::abi::{CUDA_MEMSET_NODE_PARAMS, Handle};
use super::call::Call;
use super::error::{Failure, Outcome};
use super::memory::check_range;
use super::state::State;
use super::transfer::{Fill, Side};
use super::work::Work;

/// A memory set, if the arguments make sense.
fn fill(
    state: &State,
    to: u64,
    pitch: u64,
    value: u32,
    element: u32,
    width: u64,
    height: u64,
) -> Outcome<Fill> {
    let wraps = || Failure::invalid("a memset that wraps around");
    let width = width.checked_mul(u64::from(element)).ok_or_else(wraps)?;
    if !to.is_multiple_of(u64::from(element))
        || height > 1 && !pitch.is_multiple_of(u64::from(element))
    {
        return Err(Failure::invalid(format!(
            "{to:#x} with pitch {pitch} is not aligned to {element} bytes"
        )));
    }
    if height > 1 && pitch < width {
        return Err(Failure::invalid(format!(
            "the pitch {pitch} is less than the width {width}"
        )));
    }
    let to = Side {
        address: to,
        pitch,
        plane: 0,
    };
    let extent = to.extent(width, height, 1).ok_or_else(wraps)?;
    check_range(state, to.address, extent, "the destination")?;
    Ok(Fill {
        to,
        value,
        element,
        width,
        height,
    })
}

/// The work of a memset node of a graph.
pub(crate) fn node_work(state: &State, given: &CUDA_MEMSET_NODE_PARAMS) -> Outcome<Work> {
    if !matches!(given.element_size, 1 | 2 | 4) {
        return Err(Failure::invalid(format!(
            "elements of {} bytes",
            given.element_size
        )));
    }
    let (width, height) = (given.width as u64, given.height as u64);
    let pitch = given.pitch as u64;
    Ok(Work::Fill(fill(
        state,
        given.dst,
        pitch,
        given.value,
        given.element_size,
        width,
        height,
    )?))
}

/// Where, how wide a row, how many rows and how far apart.
struct Rows {
    to: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Rows {
    fn new(to: u64, pitch: usize, width: usize, height: usize) -> Rows {
        Rows {
            to,
            pitch,
            width,
            height,
        }
    }

    /// A single row of so many elements.
    fn one(to: u64, width: usize) -> Rows {
        Rows::new(to, 0, width, 1)
    }
}

fn set(call: &Call<'_>, rows: Rows, value: u32, element: u32, stream: Option<Handle>) -> Outcome {
    let (mut state, context) = call.current()?;
    let target = call.stream(&mut state, context, stream.unwrap_or(std::ptr::null_mut()))?;
    let Rows {
        to,
        pitch,
        width,
        height,
    } = rows;
    let fill = fill(
        &state,
        to,
        pitch as u64,
        value,
        element,
        width as u64,
        height as u64,
    )?;
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    call.machine
        .submit(state, target, Work::Fill(fill), Vec::new())
}

pub(super) unsafe fn cuMemsetD8_v2(call: &Call<'_>, dst_device: u64, uc: u8, n: usize) -> Outcome {
    set(call, Rows::one(dst_device, n), u32::from(uc), 1, None)
}

pub(super) unsafe fn cuMemsetD8Async(
    call: &Call<'_>,
    dst_device: u64,
    uc: u8,
    n: usize,
    h_stream: Handle,
) -> Outcome {
    set(
        call,
        Rows::one(dst_device, n),
        u32::from(uc),
        1,
        Some(h_stream),
    )
}

pub(super) unsafe fn cuMemsetD2D8_v2(
    call: &Call<'_>,
    dst_device: u64,
    dst_pitch: usize,
    uc: u8,
    width: usize,
    height: usize,
) -> Outcome {
    set(
        call,
        Rows::new(dst_device, dst_pitch, width, height),
        u32::from(uc),
        1,
        None,
    )
}

pub(super) unsafe fn cuMemsetD2D8Async(
    call: &Call<'_>,
    dst_device: u64,
    dst_pitch: usize,
    uc: u8,
    width: usize,
    height: usize,
    h_stream: Handle,
) -> Outcome {
    set(
        call,
        Rows::new(dst_device, dst_pitch, width, height),
        u32::from(uc),
        1,
        Some(h_stream),
    )
}

pub(super) unsafe fn cuMemsetD16_v2(
    call: &Call<'_>,
    dst_device: u64,
    us: u16,
    n: usize,
) -> Outcome {
    set(call, Rows::one(dst_device, n), u32::from(us), 2, None)
}

pub(super) unsafe fn cuMemsetD16Async(
    call: &Call<'_>,
    dst_device: u64,
    us: u16,
    n: usize,
    h_stream: Handle,
) -> Outcome {
    set(
        call,
        Rows::one(dst_device, n),
        u32::from(us),
        2,
        Some(h_stream),
    )
}

pub(super) unsafe fn cuMemsetD2D16_v2(
    call: &Call<'_>,
    dst_device: u64,
    dst_pitch: usize,
    us: u16,
    width: usize,
    height: usize,
) -> Outcome {
    set(
        call,
        Rows::new(dst_device, dst_pitch, width, height),
        u32::from(us),
        2,
        None,
    )
}

pub(super) unsafe fn cuMemsetD2D16Async(
    call: &Call<'_>,
    dst_device: u64,
    dst_pitch: usize,
    us: u16,
    width: usize,
    height: usize,
    h_stream: Handle,
) -> Outcome {
    set(
        call,
        Rows::new(dst_device, dst_pitch, width, height),
        u32::from(us),
        2,
        Some(h_stream),
    )
}

pub(super) unsafe fn cuMemsetD32_v2(
    call: &Call<'_>,
    dst_device: u64,
    ui: c_uint,
    n: usize,
) -> Outcome {
    set(call, Rows::one(dst_device, n), ui, 4, None)
}

pub(super) unsafe fn cuMemsetD32Async(
    call: &Call<'_>,
    dst_device: u64,
    ui: c_uint,
    n: usize,
    h_stream: Handle,
) -> Outcome {
    set(call, Rows::one(dst_device, n), ui, 4, Some(h_stream))
}

pub(super) unsafe fn cuMemsetD2D32_v2(
    call: &Call<'_>,
    dst_device: u64,
    dst_pitch: usize,
    ui: c_uint,
    width: usize,
    height: usize,
) -> Outcome {
    set(
        call,
        Rows::new(dst_device, dst_pitch, width, height),
        ui,
        4,
        None,
    )
}

pub(super) unsafe fn cuMemsetD2D32Async(
    call: &Call<'_>,
    dst_device: u64,
    dst_pitch: usize,
    ui: c_uint,
    width: usize,
    height: usize,
    h_stream: Handle,
) -> Outcome {
    set(
        call,
        Rows::new(dst_device, dst_pitch, width, height),
        ui,
        4,
        Some(h_stream),
    )
}
