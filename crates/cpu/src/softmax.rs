//! Softmax, log-softmax and cross-entropy over the last dim of contiguous `[rows, cols]`, forward and backward.
//!
//! A row is worked on while it's in the cache, in several passes that use the output as scratch memory. The bits are the same
//! for any number of threads and any instruction set.
//!
//! Note [Order of a row's sum]
//!
//! A row is cut into blocks of `BLOCK`, each summed as Note [Order of a reduction] says. The blocks are dealt to `STRANDS` sums,
//! each of which adds its own from the first to the last; then these are added from the first to the last. So on a device each
//! warp of a block has a sum of its own, and one wait for the others is enough (`row.cuh`).

use crate::arch::SimdLanes;
use crate::parallel;
use crate::reduce::{Element, Max, Sum, reduce_block};
use crate::vectorize::{Parts, Vectorize, vectorized};
use fireclay_core::arith::Arith;
use fireclay_core::math::{exp, log};
use std::fmt;

/// How many elements of a row are summed at once.
const BLOCK: usize = 512;
/// How many sums these blocks are dealt to.
const STRANDS: usize = 16;
/// How many elements a task should have at least.
const GRAIN: usize = 16 << 10;

/// f32 or f64.
#[expect(
    private_bounds,
    reason = "the lanes are the crate's own, which also keeps others from implementing it"
)]
pub trait Real: Element + Arith + HasLanes {}

impl Real for f32 {}
impl Real for f64 {}

/// `exp(x - max) / sum(exp(x - max))` by row (`torch.softmax`).
///
/// # Panics
/// If the slices differ in length, or it isn't a multiple of `cols`.
pub fn softmax<T: Real>(input: &[T], cols: usize, out: &mut [T]) {
    by_rows(Forward { input, log: false }, [input], cols, out);
}

/// `x - max - log(sum(exp(x - max)))` by row (`torch.log_softmax`).
///
/// # Panics
/// If the slices differ in length, or it isn't a multiple of `cols`.
pub fn log_softmax<T: Real>(input: &[T], cols: usize, out: &mut [T]) {
    by_rows(Forward { input, log: true }, [input], cols, out);
}

/// The gradient of [`softmax`] with respect to its input: `(g - sum(g * y)) * y` by row, `g` being the gradient of the
/// output `y`.
///
/// # Panics
/// If the slices differ in length, or it isn't a multiple of `cols`.
pub fn softmax_backward<T: Real>(grad: &[T], output: &[T], cols: usize, out: &mut [T]) {
    by_rows(
        Backward {
            grad,
            output,
            log: false,
        },
        [grad, output],
        cols,
        out,
    );
}

/// The gradient of [`log_softmax`] with respect to its input: `g - exp(y) * sum(g)` by row, `g` being the gradient of
/// the output `y`.
///
/// # Panics
/// If the slices differ in length, or it isn't a multiple of `cols`.
pub fn log_softmax_backward<T: Real>(grad: &[T], output: &[T], cols: usize, out: &mut [T]) {
    by_rows(
        Backward {
            grad,
            output,
            log: true,
        },
        [grad, output],
        cols,
        out,
    );
}

/// A target that is no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetOutOfRange {
    /// The row it belongs to.
    pub row: usize,
    /// The target.
    pub target: i64,
    /// How many classes there are.
    pub classes: usize,
}

impl fmt::Display for TargetOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetOutOfRange {
            row,
            target,
            classes,
        } = self;
        write!(
            f,
            "target {target} of row {row} is out of range, expected 0 to {}",
            classes.saturating_sub(1)
        )
    }
}

impl std::error::Error for TargetOutOfRange {}

/// Cross-entropy of logits by row: `losses[row] = logsumexp(x) - x[target]`, 0 where the target is `ignored`
/// (`torch.nn.functional.cross_entropy`, `reduction="none"`). `log_sums` is kept for the backward pass:
/// `log(sum(exp(x - max(x))))`, which large logits do not make coarse.
///
/// # Errors
/// If a target is neither a class nor `ignored`; nothing is written then.
///
/// # Panics
/// If the slices' lengths don't fit.
pub fn cross_entropy<T: Real>(
    logits: &[T],
    cols: usize,
    targets: &[i64],
    ignored: Option<i64>,
    losses: &mut [T],
    log_sums: &mut [T],
) -> Result<(), TargetOutOfRange> {
    let rows = targets.len();
    assert_eq!(
        [logits.len(), losses.len(), log_sums.len()],
        [rows * cols, rows, rows],
        "one target for each row"
    );
    let bad = |&target: &i64| {
        Some(target) != ignored && usize::try_from(target).map_or(true, |target| target >= cols)
    };
    if let Some(row) = targets.iter().position(bad) {
        return Err(TargetOutOfRange {
            row,
            target: targets[row],
            classes: cols,
        });
    }
    let (loss_parts, sum_parts) = (Parts::new(losses), Parts::new(log_sums));
    parallel::for_ranges(rows, (GRAIN / cols.max(1)).max(1), |range| {
        // SAFETY: the ranges of different tasks don't overlap.
        let (losses, log_sums) = unsafe {
            (
                loss_parts.part(range.start, range.len()),
                sum_parts.part(range.start, range.len()),
            )
        };
        let logits = &logits[range.start * cols..range.end * cols];
        vectorized(CrossEntropy {
            logits,
            cols,
            targets: &targets[range],
            ignored,
            losses,
            log_sums,
        });
    });
    Ok(())
}

/// The sum of the losses in f64, in the order of Note [Order of a row's sum].
pub fn total<T: Real>(losses: &[T]) -> f64 {
    let wide: Vec<f64> = losses.iter().map(|&loss| loss.into()).collect();
    f64::row_sum(&wide)
}

/// The gradient of [`cross_entropy`] with respect to the logits: `(exp(x - max(x) - log_sum) - onehot(target)) * scale` by row,
/// 0 where the target is `ignored`. `scale` has the gradient of each row's loss.
///
/// # Panics
/// If the slices' lengths don't fit, or a target is neither a class nor `ignored`.
pub fn cross_entropy_backward<T: Real>(
    logits: &[T],
    cols: usize,
    targets: &[i64],
    ignored: Option<i64>,
    log_sums: &[T],
    scale: &[T],
    out: &mut [T],
) {
    let rows = targets.len();
    assert_eq!(
        [logits.len(), log_sums.len(), scale.len()],
        [rows * cols, rows, rows],
        "one target for each row"
    );
    by_rows(
        CrossEntropyBackward {
            logits,
            targets,
            ignored,
            log_sums,
            scale,
        },
        [logits],
        cols,
        out,
    );
}

/// What a row's kernel needs of its element type.
pub(crate) trait HasLanes: Into<f64> {
    /// The lanes of this type among those of an instruction set.
    type Lanes<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>: SimdLanes<Elem = Self>;

    /// The largest element; NaN if any is.
    fn row_max(row: &[Self]) -> Self;
    /// The sum, in the order of Note [Order of a row's sum].
    fn row_sum(row: &[Self]) -> Self;
}

macro_rules! has_lanes {
    ($type:ty, $lanes:ident) => {
        impl HasLanes for $type {
            type Lanes<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>> = $lanes;

            #[inline(always)]
            fn row_max(row: &[$type]) -> $type {
                reduce_block(Max, row, 0.0)
            }
            #[inline(always)]
            fn row_sum(row: &[$type]) -> $type {
                let mut strands = [0.0; STRANDS];
                for (number, block) in row.chunks(BLOCK).enumerate() {
                    strands[number % STRANDS] += reduce_block(Sum, block, 0.0);
                }
                let used = row.len().div_ceil(BLOCK).clamp(1, STRANDS);
                let mut sum = strands[0];
                for &strand in &strands[1..used] {
                    sum += strand;
                }
                sum
            }
        }
    };
}

has_lanes!(f32, F);
has_lanes!(f64, D);

/// What makes a row of output.
trait RowKernel<T: Real>: Copy + Sync {
    /// Makes row number `row`, whose elements are `start` to `start + out.len() - 1`. Must be `#[inline(always)]`.
    fn row<V: SimdLanes<Elem = T>>(self, row: usize, start: usize, out: &mut [T]);
}

fn by_rows<T: Real, K: RowKernel<T>, const N: usize>(
    kernel: K,
    inputs: [&[T]; N],
    cols: usize,
    out: &mut [T],
) {
    assert!(
        inputs.iter().all(|input| input.len() == out.len()),
        "inputs and output have the same length"
    );
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(cols), "the output has whole rows");
    let rows = out.len() / cols;
    let parts = Parts::new(out);
    parallel::for_ranges(rows, (GRAIN / cols).max(1), |range| {
        // SAFETY: the ranges of different tasks don't overlap.
        let out = unsafe { parts.part(range.start * cols, range.len() * cols) };
        vectorized(Rows {
            kernel,
            first: range.start,
            cols,
            out,
        });
    });
}

struct Rows<'a, T, K> {
    kernel: K,
    first: usize,
    cols: usize,
    out: &'a mut [T],
}

impl<T: Real, K: RowKernel<T>> Vectorize for Rows<'_, T, K> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        for (row, out) in (self.first..).zip(self.out.chunks_exact_mut(self.cols)) {
            self.kernel.row::<T::Lanes<F, D>>(row, row * self.cols, out);
        }
    }
}

/// `out[i] = f(out[i], x[i])` in lanes of type `$lanes`. A macro, since a closure isn't inlined for sure: see
/// `Note [Lanes inside target features]`.
macro_rules! update {
    ($lanes:ty, $out:expr, $x:expr, |$old:pat_param, $element:pat_param| $value:expr) => {{
        let (out, x): (&mut [_], &[_]) = (&mut *$out, $x);
        let len = out.len();
        assert_eq!(x.len(), len);
        let whole = len / <$lanes>::LANES * <$lanes>::LANES;
        for start in (0..whole).step_by(<$lanes>::LANES) {
            // SAFETY: start + LANES <= whole <= len, the length of both slices.
            unsafe {
                let ($old, $element) = (
                    <$lanes>::load(out.as_ptr().add(start)),
                    <$lanes>::load(x.as_ptr().add(start)),
                );
                $value.store(out.as_mut_ptr().add(start));
            }
        }
        if whole < len {
            // SAFETY: whole + (len - whole) is the length of both slices, and len - whole < LANES.
            unsafe {
                let ($old, $element) = (
                    <$lanes>::load_first(out.as_ptr().add(whole), len - whole),
                    <$lanes>::load_first(x.as_ptr().add(whole), len - whole),
                );
                $value.store_first(out.as_mut_ptr().add(whole), len - whole);
            }
        }
    }};
}

#[derive(Clone, Copy)]
struct Forward<'a, T> {
    input: &'a [T],
    log: bool,
}

impl<T: Real> RowKernel<T> for Forward<'_, T> {
    #[inline(always)]
    fn row<V: SimdLanes<Elem = T>>(self, _: usize, start: usize, out: &mut [T]) {
        let x = &self.input[start..start + out.len()];
        let (max, sum) = exponentials::<T, V>(x, out);
        if self.log {
            let (max, log_sum) = (broadcast::<T, V>(max), broadcast::<T, V>(log(sum)));
            update!(V, out, x, |_, x| (x - max - log_sum));
        } else {
            let sum = broadcast::<T, V>(sum);
            update!(V, out, x, |y, _| (y / sum));
        }
    }
}

#[derive(Clone, Copy)]
struct Backward<'a, T> {
    grad: &'a [T],
    output: &'a [T],
    log: bool,
}

impl<T: Real> RowKernel<T> for Backward<'_, T> {
    #[inline(always)]
    fn row<V: SimdLanes<Elem = T>>(self, _: usize, start: usize, out: &mut [T]) {
        let (g, y) = (
            &self.grad[start..start + out.len()],
            &self.output[start..start + out.len()],
        );
        if self.log {
            let sum = broadcast::<T, V>(T::row_sum(g));
            update!(V, out, y, |_, y| exp(y) * sum);
            update!(V, out, g, |product, g| (g - product));
        } else {
            out.copy_from_slice(g);
            update!(V, out, y, |g, y| (g * y));
            let sum = broadcast::<T, V>(T::row_sum(out));
            update!(V, out, g, |_, g| (g - sum));
            update!(V, out, y, |difference, y| (difference * y));
        }
    }
}

struct CrossEntropy<'a, T> {
    logits: &'a [T],
    cols: usize,
    targets: &'a [i64],
    ignored: Option<i64>,
    losses: &'a mut [T],
    log_sums: &'a mut [T],
}

impl<T: Real> Vectorize for CrossEntropy<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        let mut scratch = vec![T::default(); self.cols];
        for (row, &target) in self.targets.iter().enumerate() {
            let x = &self.logits[row * self.cols..][..self.cols];
            let (max, sum) = exponentials::<T, T::Lanes<F, D>>(x, &mut scratch);
            self.log_sums[row] = log(sum);
            self.losses[row] = match self.ignored {
                Some(ignored) if target == ignored => T::default(),
                _ => (max - x[target as usize]) + log(sum),
            };
        }
    }
}

#[derive(Clone, Copy)]
struct CrossEntropyBackward<'a, T> {
    logits: &'a [T],
    targets: &'a [i64],
    ignored: Option<i64>,
    log_sums: &'a [T],
    scale: &'a [T],
}

impl<T: Real> RowKernel<T> for CrossEntropyBackward<'_, T> {
    #[inline(always)]
    fn row<V: SimdLanes<Elem = T>>(self, row: usize, start: usize, out: &mut [T]) {
        let target = self.targets[row];
        if Some(target) == self.ignored {
            return out.fill(T::default());
        }
        let x = &self.logits[start..start + out.len()];
        let (max, log_sum, scale) = (
            broadcast::<T, V>(T::row_max(x)),
            broadcast::<T, V>(self.log_sums[row]),
            broadcast::<T, V>(self.scale[row]),
        );
        update!(V, out, x, |_, x| exp(x - max - log_sum));
        let of_target = &mut out[target as usize];
        *of_target = *of_target - T::int(1);
        update!(V, out, x, |y, _| (y * scale));
    }
}

/// Writes `exp(x - max(x))` to `out` and returns the maximum and the sum of what was written.
#[inline(always)]
fn exponentials<T: Real, V: SimdLanes<Elem = T>>(x: &[T], out: &mut [T]) -> (T, T) {
    let max = T::row_max(x);
    let maxima = broadcast::<T, V>(max);
    update!(V, out, x, |_, x| exp(x - maxima));
    (max, T::row_sum(out))
}

#[inline(always)]
fn broadcast<T: Real, V: SimdLanes<Elem = T>>(value: T) -> V {
    V::of(value.into())
}
