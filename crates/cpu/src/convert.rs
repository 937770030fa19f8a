//! Loading, storing and converting tiles: the one place where a dtype becomes a class and back.

use fireclay_core::DType;
pub use fireclay_core::program::class_of;
use half::{bf16, f16};

use crate::grid::{Grid, Lane, for_rows};
use crate::kernel::Class;

pub(crate) fn class_size(class: Class) -> usize {
    match class {
        Class::F32 => 4,
        Class::F64 | Class::I64 => 8,
    }
}

/// Whether tensors of this dtype hold just what their class computes with.
pub(crate) fn is_direct(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I64)
}

/// # Safety
/// `ptr` is writable for `len` aligned elements.
pub(crate) unsafe fn fill<T: Copy>(ptr: *mut u8, len: usize, value: T) {
    // SAFETY: the caller's bound.
    unsafe { std::slice::from_raw_parts_mut(ptr.cast::<T>(), len) }.fill(value);
}

/// # Safety
/// `input` and `output` hold `len` elements of their classes and don't overlap unless equal in class.
pub(crate) unsafe fn convert(
    from: Class,
    to: Class,
    truth: bool,
    input: *const u8,
    output: *mut u8,
    len: usize,
) {
    /// # Safety
    /// Both pointers are valid for `len` elements.
    unsafe fn each<T: Copy, U>(input: *const u8, output: *mut u8, len: usize, f: impl Fn(T) -> U) {
        let (input, output) = (input.cast::<T>(), output.cast::<U>());
        for index in 0..len {
            // SAFETY: index < len.
            unsafe { output.add(index).write(f(input.add(index).read())) };
        }
    }
    // SAFETY: the caller's bound, class by class.
    unsafe {
        match (from, to, truth) {
            (Class::F32, _, true) => each(input, output, len, |x: f32| i64::from(x != 0.0)),
            (Class::F64, _, true) => each(input, output, len, |x: f64| i64::from(x != 0.0)),
            (Class::I64, _, true) => each(input, output, len, |x: i64| i64::from(x != 0)),
            (Class::F32, Class::F64, _) => each(input, output, len, |x: f32| f64::from(x)),
            (Class::F32, Class::I64, _) => each(input, output, len, |x: f32| x as i64),
            (Class::F64, Class::F32, _) => each(input, output, len, |x: f64| x as f32),
            (Class::F64, Class::I64, _) => each(input, output, len, |x: f64| x as i64),
            (Class::I64, Class::F32, _) => each(input, output, len, |x: i64| x as f32),
            (Class::I64, Class::F64, _) => each(input, output, len, |x: i64| x as f64),
            (Class::F32, Class::F32, _)
            | (Class::F64, Class::F64, _)
            | (Class::I64, Class::I64, _) => {
                std::ptr::copy(input, output, len * class_size(from));
            }
        }
    }
}

/// # Safety
/// The lane is readable over the range; `out` is writable for `len` elements of the dtype's class.
pub(crate) unsafe fn load(grid: &Grid, lane: &Lane, start: usize, len: usize, out: *mut u8) {
    /// # Safety
    /// As `load`, for the lane's type `T`.
    unsafe fn gather<T: Copy, U: Copy>(
        grid: &Grid,
        lane: &Lane,
        start: usize,
        len: usize,
        out: *mut u8,
        widen: impl Fn(T) -> U,
    ) {
        let (source, out) = (lane.ptr.cast_const().cast::<T>(), out.cast::<U>());
        for_rows(grid, lane, start, len, |place, at, count, stride| {
            // SAFETY: places of the row lie in the lane, `at + count <= len`.
            unsafe {
                let (source, out) = (source.add(place), out.add(at));
                match stride {
                    0 => {
                        let value = widen(source.read());
                        (0..count).for_each(|index| out.add(index).write(value));
                    }
                    1 => (0..count)
                        .for_each(|index| out.add(index).write(widen(source.add(index).read()))),
                    _ => (0..count).for_each(|index| {
                        out.add(index)
                            .write(widen(source.add(index * stride).read()))
                    }),
                }
            }
        });
    }
    // SAFETY: the caller's bound, dtype by dtype.
    unsafe {
        match lane.dtype {
            DType::F64 => gather(grid, lane, start, len, out, |x: f64| x),
            DType::F32 => gather(grid, lane, start, len, out, |x: f32| x),
            DType::F16 => gather(grid, lane, start, len, out, |x: f16| x.to_f32()),
            DType::BF16 => gather(grid, lane, start, len, out, |x: bf16| x.to_f32()),
            DType::I64 => gather(grid, lane, start, len, out, |x: i64| x),
            DType::I32 => gather(grid, lane, start, len, out, |x: i32| i64::from(x)),
            DType::I16 => gather(grid, lane, start, len, out, |x: i16| i64::from(x)),
            DType::I8 => gather(grid, lane, start, len, out, |x: i8| i64::from(x)),
            _ => gather(grid, lane, start, len, out, |x: u8| i64::from(x)),
        }
    }
}

/// # Safety
/// The lane, begun at `to`, is writable over the range; `from` is readable for `len` elements of `class`.
pub(crate) unsafe fn store(
    grid: &Grid,
    lane: &Lane,
    to: *mut u8,
    (start, len): (usize, usize),
    from: *const u8,
    class: Class,
) {
    /// # Safety
    /// As `store`, for the lane's type `U`.
    unsafe fn scatter<T: Copy, U: Copy>(
        grid: &Grid,
        lane: &Lane,
        to: *mut u8,
        (start, len): (usize, usize),
        from: *const u8,
        narrow: impl Fn(T) -> U,
    ) {
        let (from, sink) = (from.cast::<T>(), to.cast::<U>());
        for_rows(grid, lane, start, len, |place, at, count, stride| {
            // SAFETY: places of the row lie in the lane, `at + count <= len`.
            unsafe {
                let (from, sink) = (from.add(at), sink.add(place));
                if stride == 1 {
                    (0..count)
                        .for_each(|index| sink.add(index).write(narrow(from.add(index).read())));
                } else {
                    (0..count).for_each(|index| {
                        sink.add(index * stride)
                            .write(narrow(from.add(index).read()))
                    });
                }
            }
        });
    }
    debug_assert!(class == class_of(lane.dtype));
    // SAFETY: the caller's bound, dtype by dtype.
    unsafe {
        match lane.dtype {
            DType::F64 => scatter(grid, lane, to, (start, len), from, |x: f64| x),
            DType::F32 => scatter(grid, lane, to, (start, len), from, |x: f32| x),
            DType::F16 => scatter(grid, lane, to, (start, len), from, f16::from_f32),
            DType::BF16 => scatter(grid, lane, to, (start, len), from, bf16::from_f32),
            DType::I64 => scatter(grid, lane, to, (start, len), from, |x: i64| x),
            DType::I32 => scatter(grid, lane, to, (start, len), from, |x: i64| x as i32),
            DType::I16 => scatter(grid, lane, to, (start, len), from, |x: i64| x as i16),
            DType::I8 => scatter(grid, lane, to, (start, len), from, |x: i64| x as i8),
            DType::Bool => scatter(grid, lane, to, (start, len), from, |x: i64| {
                u8::from(x != 0)
            }),
            _ => scatter(grid, lane, to, (start, len), from, |x: i64| x as u8),
        }
    }
}
