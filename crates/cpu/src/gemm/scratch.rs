//! Scratch memory for packed operands: a few blocks per thread, kept and used again.

use super::Float;
use std::cell::RefCell;

/// A cache line: the unit of scratch memory, so that vectors of it never straddle two.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read through pointers to numbers")] [u8; 64]);

thread_local! {
    /// The blocks that are free. There are several because a thread that waits for others may take up one of
    /// their tasks in the middle of its own.
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `len` numbers of scratch memory, whose values are arbitrary.
pub(crate) fn with_scratch<T: Float, R>(len: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
    let mut block = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if block.len() < lines {
        block.clear();
        block.resize(lines, Line([0; 64]));
    }
    // SAFETY: the block has at least `len` numbers' bytes, initialised and aligned to 64; T is f32 or f64, of
    // which every bit pattern is a value; the block is owned here until `work` is done.
    let numbers = unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr().cast::<T>(), len) };
    let result = work(numbers);
    FREE.with_borrow_mut(|free| free.push(block));
    result
}
