//! Running sums and products of rows, and linear recurrences.
//!
//! Note [Order of a scan]
//!
//! A row is cut into chunks of [`CHUNK`], a chunk into segments of [`SEGMENT`]. Elements are combined from
//! the first to the last of their segment, segments from the first to the last of their chunk; the totals of chunks are a row
//! that is scanned in the same way. An element of the result combines these three. So results depend on the shape alone, and a
//! device can do segments and chunks side by side, however long a row is (`scan.cu`).
//!
//! A recurrence `s[p] = g[p] + a[p] * s[p - 1]` goes the same way: a segment, and a chunk, makes `s + a * c` of the number c before
//! it, and these pairs of s and a are combined. They are kept as f64, since products of many coefficients leave the range of
//! f32 where the recurrence itself doesn't; zero before a segment stays zero, whatever the product. Then each segment
//! starts from the number before it and goes step by step.

use crate::parallel;
use crate::vectorize::Parts;

/// Elements that are combined one after the other.
pub const SEGMENT: usize = 8;
/// Elements of a chunk.
pub const CHUNK: usize = 1024;
/// Numbers a parallel task works on at least.
const TASK: usize = 1 << 15;

/// A number that has sums and products.
pub trait Scannable: Copy + Send + Sync + 'static {
    /// The number that changes no sum, or no product.
    fn identity(product: bool) -> Self;
    /// Sum or product; whole numbers wrap around.
    fn combine(self, next: Self, product: bool) -> Self;
}

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl Scannable for $type {
            #[inline(always)]
            fn identity(product: bool) -> $type {
                if product { 1.0 } else { 0.0 }
            }

            #[inline(always)]
            fn combine(self, next: $type, product: bool) -> $type {
                if product { self * next } else { self + next }
            }
        })*
    };
}

floats!(f32, f64);

impl Scannable for i64 {
    #[inline(always)]
    fn identity(product: bool) -> i64 {
        i64::from(product)
    }

    #[inline(always)]
    fn combine(self, next: i64, product: bool) -> i64 {
        if product {
            self.wrapping_mul(next)
        } else {
            self.wrapping_add(next)
        }
    }
}

/// Running sums, or products, of each row of `cols`: from its end if `reverse`.
///
/// # Panics
/// If the slices' lengths don't fit.
pub fn scan_rows<T: Scannable>(x: &[T], cols: usize, product: bool, reverse: bool, out: &mut [T]) {
    assert!(x.len() == out.len());
    if out.is_empty() {
        return;
    }
    let rows = x.len() / cols;
    let per_task = (TASK / cols).max(1);
    let out = Parts::new(out);
    parallel::for_ranges(rows, per_task, |range| {
        for row in range {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * cols, cols) };
            let x = &x[row * cols..][..cols];
            match (product, reverse) {
                (false, false) => scan(x.iter().copied(), out.iter_mut(), false),
                (false, true) => scan(x.iter().rev().copied(), out.iter_mut().rev(), false),
                (true, false) => scan(x.iter().copied(), out.iter_mut(), true),
                (true, true) => scan(x.iter().rev().copied(), out.iter_mut().rev(), true),
            }
        }
    });
}

#[inline(always)]
fn scan<'a, T: Scannable>(
    x: impl Iterator<Item = T>,
    out: impl Iterator<Item = &'a mut T>,
    product: bool,
) {
    let mut running = Running::new(product);
    for (x, out) in x.zip(out) {
        *out = running.next(x, product);
    }
}

/// What was combined so far.
struct Running<T> {
    /// Of the chunks before, of the segments of this chunk before, of the elements of this segment.
    chunks: T,
    segments: T,
    elements: T,
    in_segment: usize,
    in_chunk: usize,
    /// The scan of the chunks' totals, from the end of the first chunk on.
    totals: Option<Box<Running<T>>>,
}

impl<T: Scannable> Running<T> {
    #[inline(always)]
    fn new(product: bool) -> Running<T> {
        let none = T::identity(product);
        Running {
            chunks: none,
            segments: none,
            elements: none,
            in_segment: 0,
            in_chunk: 0,
            totals: None,
        }
    }

    #[inline(always)]
    fn next(&mut self, x: T, product: bool) -> T {
        if self.in_segment == SEGMENT {
            self.segments = self.segments.combine(self.elements, product);
            (self.elements, self.in_segment) = (T::identity(product), 0);
            if self.in_chunk == CHUNK {
                self.end_chunk(product);
            }
        }
        self.elements = self.elements.combine(x, product);
        self.in_segment += 1;
        self.in_chunk += 1;
        let segments = self.segments.combine(self.elements, product);
        self.chunks.combine(segments, product)
    }

    #[cold]
    fn end_chunk(&mut self, product: bool) {
        let totals = self
            .totals
            .get_or_insert_with(|| Box::new(Running::new(product)));
        self.chunks = totals.next(self.segments, product);
        (self.segments, self.in_chunk) = (T::identity(product), 0);
    }
}

/// A number that recurrences are computed with.
pub trait Recurring: Copy + Send + Sync + 'static {
    /// The number as an f64, exactly.
    fn wide(self) -> f64;
    /// The nearest number.
    fn rounded(wide: f64) -> Self;
}

impl Recurring for f32 {
    fn wide(self) -> f64 {
        self.into()
    }

    fn rounded(wide: f64) -> f32 {
        wide as f32
    }
}

impl Recurring for f64 {
    fn wide(self) -> f64 {
        self
    }

    fn rounded(wide: f64) -> f64 {
        wide
    }
}

/// Rows of `cols` numbers `s[i] = g[i] + a[i] * s[i - 1]`; or from the end if `reverse`: `s[i] = g[i] + a[i + 1] * s[i + 1]`. Both ways,
/// `a[i]` links elements i - 1 and i, and `a[0]` counts for nothing.
///
/// # Panics
/// If the slices' lengths don't fit.
pub fn linear_rows<T: Recurring>(a: &[T], g: &[T], cols: usize, reverse: bool, out: &mut [T]) {
    assert!(a.len() == out.len() && g.len() == out.len());
    if out.is_empty() {
        return;
    }
    let rows = out.len() / cols;
    let per_task = (TASK / cols).max(1);
    let out = Parts::new(out);
    parallel::for_ranges(rows, per_task, |range| {
        for row in range {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * cols, cols) };
            let (a, g) = (&a[row * cols..][..cols], &g[row * cols..][..cols]);
            match reverse {
                false => linear::<false>(
                    cols,
                    |at| if at == 0 { 0.0 } else { a[at].wide() },
                    |at| g[at].wide(),
                    |at, s| out[at] = T::rounded(s),
                ),
                true => linear::<false>(
                    cols,
                    |at| if at == 0 { 0.0 } else { a[cols - at].wide() },
                    |at| g[cols - 1 - at].wide(),
                    |at, s| out[cols - 1 - at] = T::rounded(s),
                ),
            }
        }
    });
}

/// What follows `c` by `s + a * c`; of a zero nothing, if that is `sure`: a product of coefficients may have become infinite.
#[inline(always)]
fn step<const SURE: bool>(s: f64, a: f64, c: f64) -> f64 {
    if SURE && c == 0.0 { s } else { s + a * c }
}

/// One recurrence; TOTALS says that the coefficients are products of others.
#[inline(always)]
fn linear<const TOTALS: bool>(
    count: usize,
    a: impl Fn(usize) -> f64,
    g: impl Fn(usize) -> f64,
    mut put: impl FnMut(usize, f64),
) {
    // What a segment makes of the number before it.
    let segment = |start: usize, end: usize| {
        let (mut factor, mut sum) = (a(start), g(start));
        for at in start + 1..end {
            sum = step::<TOTALS>(g(at), a(at), sum);
            factor *= a(at);
        }
        [factor, sum]
    };
    let carried = if count > CHUNK {
        let totals: Vec<[f64; 2]> = (0..count / CHUNK)
            .map(|chunk| {
                let mut starts = (chunk * CHUNK..(chunk + 1) * CHUNK).step_by(SEGMENT);
                let first = starts.next().expect("a chunk has segments");
                starts.fold(segment(first, first + SEGMENT), |[factor, sum], start| {
                    let [a, s] = segment(start, start + SEGMENT);
                    [a * factor, step::<true>(s, a, sum)]
                })
            })
            .collect();
        linear_totals(&totals)
    } else {
        Vec::new()
    };
    let mut before = 0.0;
    for start in (0..count).step_by(SEGMENT) {
        let end = (start + SEGMENT).min(count);
        if start > 0 && start % CHUNK == 0 {
            before = carried[start / CHUNK - 1];
        }
        let [factor, sum] = segment(start, end);
        let mut number = before;
        for at in start..end {
            number = step::<TOTALS>(g(at), a(at), number);
            put(at, number);
        }
        before = step::<true>(sum, factor, before);
    }
}

fn linear_totals(totals: &[[f64; 2]]) -> Vec<f64> {
    let mut sums = vec![0.0; totals.len()];
    let (a, g) = (|at: usize| totals[at][0], |at: usize| totals[at][1]);
    linear::<true>(totals.len(), a, g, |at, s| sums[at] = s);
    sums
}

/// For each element of rows of `cols`, the place in its row of the largest so far, or the smallest: of equal ones the last, and a NaN
/// before any number.
///
/// # Panics
/// If the slices' lengths don't fit.
pub fn extreme_rows<T: PartialOrd + Copy + Sync>(
    x: &[T],
    cols: usize,
    largest: bool,
    out: &mut [i64],
) {
    assert!(x.len() == out.len());
    if out.is_empty() {
        return;
    }
    let out = Parts::new(out);
    parallel::for_ranges(x.len() / cols, (TASK / cols).max(1), |range| {
        for row in range {
            // SAFETY: each row belongs to one task.
            let out = unsafe { out.part(row * cols, cols) };
            let x = &x[row * cols..][..cols];
            match largest {
                true => extremes(x, out, |next, best| next >= best),
                false => extremes(x, out, |next, best| next <= best),
            }
        }
    });
}

#[inline(always)]
fn extremes<T: PartialOrd + Copy>(x: &[T], out: &mut [i64], beats: impl Fn(T, T) -> bool) {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    let (mut best, mut place) = (x[0], 0);
    for (at, (&next, out)) in x.iter().zip(out).enumerate() {
        if is_nan(next) || (beats(next, best) && !is_nan(best)) {
            (best, place) = (next, at as i64);
        }
        *out = place;
    }
}
