//! Sorting rows, stably: the values in order and where each was. NaN counts as larger than any number.

use crate::parallel;
use crate::vectorize::Parts;

/// Numbers a parallel task works on at least.
const TASK: usize = 1 << 14;
/// Parts of a long row that are sorted side by side.
const PARTS: usize = 8;

/// A number that can be sorted.
pub trait Sortable: Copy + Send + Sync + 'static {
    /// A number's key together with its place, which orders equal ones.
    type Entry: Ord + Copy + Send + Sync;

    /// The entry of the element at `place`; keys in reverse order if `descending`.
    fn entry(self, place: u32, descending: bool) -> Self::Entry;

    /// The place of an entry.
    fn place(entry: Self::Entry) -> u32;
}

macro_rules! short_keys {
    ($($type:ty: |$x:ident| $key:expr;)*) => {
        $(impl Sortable for $type {
            type Entry = u64;

            #[inline(always)]
            fn entry(self, place: u32, descending: bool) -> u64 {
                let $x = self;
                let key: u32 = $key;
                u64::from(if descending { !key } else { key }) << 32 | u64::from(place)
            }

            #[inline(always)]
            fn place(entry: u64) -> u32 {
                entry as u32
            }
        })*
    };
}

macro_rules! long_keys {
    ($($type:ty: |$x:ident| $key:expr;)*) => {
        $(impl Sortable for $type {
            type Entry = (u64, u32);

            #[inline(always)]
            fn entry(self, place: u32, descending: bool) -> (u64, u32) {
                let $x = self;
                let key: u64 = $key;
                (if descending { !key } else { key }, place)
            }

            #[inline(always)]
            fn place(entry: (u64, u32)) -> u32 {
                entry.1
            }
        })*
    };
}

/// The bits of a float as a whole number of the same order: zeros are equal, NaN is the largest.
macro_rules! float_key {
    ($x:expr, $bits:ty) => {{
        let sign: $bits = 1 << (<$bits>::BITS - 1);
        let bits = if $x == 0.0 { 0 } else { $x.to_bits() };
        if $x.is_nan() {
            <$bits>::MAX
        } else if bits & sign != 0 {
            !bits
        } else {
            bits | sign
        }
    }};
}

short_keys! {
    f32: |x| float_key!(x, u32);
    i32: |x| x as u32 ^ 1 << 31;
    i16: |x| i32::from(x) as u32 ^ 1 << 31;
    i8: |x| i32::from(x) as u32 ^ 1 << 31;
    u8: |x| u32::from(x);
}

long_keys! {
    f64: |x| float_key!(x, u64);
    i64: |x| x as u64 ^ 1 << 63;
}

/// The first `keep` elements of each sorted row of `cols`, and their places in the row.
///
/// # Panics
/// If the slices' lengths don't fit, or a row has more elements than a u32 counts.
pub fn sort_rows<T: Sortable>(
    x: &[T],
    cols: usize,
    keep: usize,
    descending: bool,
    values: &mut [T],
    indices: &mut [i64],
) {
    if keep == 0 || cols == 0 {
        return;
    }
    assert!(keep <= cols && u32::try_from(cols).is_ok());
    let rows = x.len() / cols;
    assert!(x.len() == rows * cols && values.len() == rows * keep && indices.len() == values.len());
    let (values, indices) = (Parts::new(values), Parts::new(indices));
    let sort_row = |row: usize, alone: bool| {
        let x = &x[row * cols..][..cols];
        let entries = x.iter().zip(0..);
        let mut entries: Vec<T::Entry> = entries
            .map(|(&x, place)| x.entry(place, descending))
            .collect();
        if keep < cols / 8 {
            entries.select_nth_unstable(keep - 1);
            entries.truncate(keep);
        }
        if alone && entries.len() >= PARTS * TASK {
            entries = sorted_in_parts(entries);
        } else {
            entries.sort_unstable();
        }
        // SAFETY: each row belongs to one task.
        let (values, indices) = unsafe {
            (
                values.part(row * keep, keep),
                indices.part(row * keep, keep),
            )
        };
        for ((value, index), entry) in values.iter_mut().zip(indices).zip(entries) {
            let place = T::place(entry);
            *value = x[place as usize];
            *index = i64::from(place);
        }
    };
    if rows == 1 {
        return sort_row(0, true);
    }
    let per_task = (TASK / cols).max(1);
    parallel::for_ranges(rows, per_task, |range| {
        for row in range {
            sort_row(row, false);
        }
    });
}

/// Sorts parts side by side, then merges neighbours until one is left.
fn sorted_in_parts<E: Ord + Copy + Send + Sync>(mut entries: Vec<E>) -> Vec<E> {
    let len = entries.len();
    let mut run = len.div_ceil(PARTS);
    let parts = Parts::new(&mut entries);
    parallel::run(PARTS, |part| {
        let start = (part * run).min(len);
        // SAFETY: each part belongs to one task.
        unsafe { parts.part(start, run.min(len - start)) }.sort_unstable();
    });
    let mut merged = entries.clone();
    while run < len {
        let (from, to) = (&entries, Parts::new(&mut merged));
        parallel::run(len.div_ceil(2 * run), |pair| {
            let start = pair * 2 * run;
            let (middle, end) = ((start + run).min(len), (start + 2 * run).min(len));
            // SAFETY: each pair of runs belongs to one task.
            let to = unsafe { to.part(start, end - start) };
            merge(&from[start..middle], &from[middle..end], to);
        });
        std::mem::swap(&mut entries, &mut merged);
        run *= 2;
    }
    entries
}

fn merge<E: Ord + Copy>(a: &[E], b: &[E], to: &mut [E]) {
    let (mut from_a, mut from_b) = (0, 0);
    for to in to {
        let first = from_b == b.len() || from_a < a.len() && a[from_a] <= b[from_b];
        *to = if first { a[from_a] } else { b[from_b] };
        from_a += usize::from(first);
        from_b += usize::from(!first);
    }
}

#[cfg(test)]
mod tests {
    use super::sort_rows;

    #[test]
    fn equal_numbers_keep_their_order_and_nan_is_largest() {
        let x = [1.0f32, f32::NAN, -0.0, 0.0, -1.0, 1.0, f32::NEG_INFINITY];
        let (mut values, mut indices) = ([0.0; 7], [0; 7]);
        sort_rows(&x, 7, 7, false, &mut values, &mut indices);
        assert_eq!(indices, [6, 4, 2, 3, 0, 5, 1]);
        sort_rows(&x, 7, 7, true, &mut values, &mut indices);
        assert_eq!(indices, [1, 0, 5, 2, 3, 4, 6]);
    }

    #[test]
    fn a_long_row_is_sorted_in_parts() {
        let x: Vec<i64> = (0..300_001).map(|i| i * 7919 % 1009).collect();
        let (mut values, mut indices) = (vec![0; x.len()], vec![0; x.len()]);
        sort_rows(&x, x.len(), x.len(), false, &mut values, &mut indices);
        let mut expected: Vec<(i64, i64)> = x.iter().copied().zip(0..).collect();
        expected.sort_unstable();
        let got: Vec<(i64, i64)> = values.into_iter().zip(indices).collect();
        assert_eq!(got, expected);
    }
}
