//! Where numbers belong in sorted rows.

use crate::parallel;
use crate::vectorize::Parts;

/// Numbers that a parallel task looks up.
const TASK: usize = 1 << 12;

/// For each of `count` values of a row its place in the row's sorted sequence of `length`: before equal elements, or behind them
/// if `right`. `sequence` is `[rows, length]` or one row for all; a NaN belongs at the end.
///
/// # Panics
/// If a slice has another length than the sizes say.
#[expect(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "what compares with nothing comes last"
)]
pub fn search_rows<T: Copy + PartialOrd + Send + Sync>(
    sequence: &[T],
    values: &[T],
    [length, count]: [usize; 2],
    right: bool,
    out: &mut [i64],
) {
    assert_eq!(values.len(), out.len());
    if values.is_empty() {
        return;
    }
    let is_one_row = sequence.len() == length;
    assert!(is_one_row || sequence.len() == values.len() / count * length);
    let out = Parts::new(out);
    parallel::for_ranges(values.len(), TASK, |range| {
        // SAFETY: each range of the output belongs to one task.
        let out = unsafe { out.part(range.start, range.len()) };
        for (out, at) in out.iter_mut().zip(range) {
            let row = if is_one_row { 0 } else { at / count };
            let (row, value) = (&sequence[row * length..][..length], values[at]);
            *out = match right {
                true => row.partition_point(|&other| !(other > value)),
                false => row.partition_point(|&other| !(other >= value)),
            } as i64;
        }
    });
}
