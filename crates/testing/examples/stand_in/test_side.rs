//! What a library that stands in for a vendor's has beside the interface: the calls it met, how the next one fails, what is alive, and
//! device memory, by two functions that a test gives it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};

/// Copies device memory to the buffer, or the buffer to device memory.
pub(crate) type Copy2 = extern "C" fn(address: u64, bytes: *mut u8, count: usize);

static CALLS: Mutex<String> = Mutex::new(String::new());
static MEMORY: Mutex<Option<(Copy2, Copy2)>> = Mutex::new(None);
/// Descriptions alive.
static LIVE: AtomicI64 = AtomicI64::new(0);
/// What the next computation is to return.
static FAIL: AtomicI32 = AtomicI32::new(0);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a line to the calls.
pub(crate) fn record(text: String) {
    let mut calls = lock(&CALLS);
    calls.push_str(&text);
    calls.push('\n');
}

/// Hands out a new object.
pub(crate) unsafe fn give<T>(to: *mut *mut c_void, value: T) -> c_int {
    LIVE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller gives room for a pointer.
    unsafe { *to = Box::into_raw(Box::new(value)).cast() };
    0
}

/// Ends an object.
pub(crate) unsafe fn end<T>(pointer: *mut c_void) -> c_int {
    LIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: `give` made it of this type, and it is ended once.
    drop(unsafe { Box::from_raw(pointer.cast::<T>()) });
    0
}

/// Says that the library can work with a virtual GPU.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fireclay_virtual_gpu() {}

/// Gives the functions that read and write device memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stand_in_connect(reading: Copy2, writing: Copy2) {
    *lock(&MEMORY) = Some((reading, writing));
}

/// Makes the next computation return this status.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stand_in_fail(status: c_int) {
    FAIL.store(status, Ordering::SeqCst);
}

/// How many descriptions are alive.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stand_in_live() -> i64 {
    LIVE.load(Ordering::SeqCst)
}

/// Writes the calls since the last time into the buffer, as lines; how many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stand_in_take_calls(buffer: *mut u8, room: usize) -> usize {
    let calls = std::mem::take(&mut *lock(&CALLS));
    let count = calls.len().min(room);
    // SAFETY: the caller's buffer has that room.
    unsafe { buffer.copy_from_nonoverlapping(calls.as_ptr(), count) };
    count
}

/// Bytes of a number. Both libraries have the same numbers for f32, f64 and f16; the other one in use is bf16.
pub(crate) fn size(dtype: c_int) -> usize {
    match dtype {
        0 => 4,
        1 => 8,
        _ => 2,
    }
}

/// So many numbers of device memory.
pub(crate) fn numbers(reading: Copy2, address: u64, dtype: c_int, count: usize) -> Vec<f64> {
    let mut bytes = vec![0; count * size(dtype)];
    reading(address, bytes.as_mut_ptr(), bytes.len());
    let each = bytes.chunks(size(dtype)).map(|bytes| match *bytes {
        [a, b, c, d] => f64::from(f32::from_ne_bytes([a, b, c, d])),
        [a, b] if dtype == 2 => f16::from_ne_bytes([a, b]).to_f64(),
        [a, b] => bf16::from_ne_bytes([a, b]).to_f64(),
        [a, b, c, d, e, f, g, h] => f64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    });
    each.collect()
}

/// A number as it lies in memory.
pub(crate) fn encoded(dtype: c_int, number: f64) -> Vec<u8> {
    match dtype {
        0 => (number as f32).to_ne_bytes().to_vec(),
        1 => number.to_ne_bytes().to_vec(),
        2 => f16::from_f64(number).to_ne_bytes().to_vec(),
        _ => bf16::from_f64(number).to_ne_bytes().to_vec(),
    }
}

/// What the next computation is to return if it is to fail.
pub(crate) fn failure() -> Option<c_int> {
    Some(FAIL.swap(0, Ordering::SeqCst)).filter(|status| *status != 0)
}

/// The functions that read and write device memory.
pub(crate) fn memory() -> Option<(Copy2, Copy2)> {
    *lock(&MEMORY)
}
