//! Softmax, log-softmax and cross entropy over rows, forward and backward.
//!
//! Sums have the order of `norm`'s: fixed lanes over blocks, blocks in f64.

use fireclay_core::arith::Arith;
use fireclay_core::math;

use crate::gemm::{Float, Shared};
use crate::isa::vectorized;
use crate::norm::sum_of;
use crate::parallel;

/// Lanes of a maximum.
const LANES: usize = 32;
/// Elements a parallel task works on at least.
const TASK: usize = 1 << 14;

/// Runs `work` for each of `rows` rows of `cols` elements.
fn for_rows(rows: usize, cols: usize, work: impl Fn(usize) + Sync) {
    let per_task = (TASK / cols.max(1)).max(1);
    parallel::run(rows.div_ceil(per_task), |task| {
        vectorized(
            #[inline(always)]
            || (task * per_task..((task + 1) * per_task).min(rows)).for_each(&work),
        );
    });
}

/// The largest element, NaN if there is one; minus infinity of none.
#[inline(always)]
fn maximum<T: Float + Arith>(row: &[T]) -> T {
    let mut lanes = [T::of(f64::NEG_INFINITY); LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane].maximum(chunk[lane]);
        }
    }
    for (lane, &x) in chunks.remainder().iter().enumerate() {
        lanes[lane] = lanes[lane].maximum(x);
    }
    lanes
        .into_iter()
        .reduce(|a, b| a.maximum(b))
        .unwrap_or(T::ZERO)
}

/// The maximum of a row, and `log(sum(exp(x - maximum)))`.
#[inline(always)]
fn log_sum<T: Float + Arith>(row: &[T]) -> (T, f64) {
    let largest = maximum(row);
    // An infinite maximum would give infinity minus infinity.
    let shift = if largest.to_f64().is_infinite() {
        T::ZERO
    } else {
        largest
    };
    let sum = sum_of([row], |[x]| math::exp(x - shift));
    (shift, sum.ln())
}

/// `y = exp(x) / sum(exp(x))` of each row, or its logarithm if `log` (`torch.softmax`, `torch.log_softmax`).
///
/// # Panics
/// If a slice doesn't have `rows * cols` elements.
pub fn softmax<T: Float + Arith>(x: &[T], rows: usize, cols: usize, log: bool, y: &mut [T]) {
    assert!(x.len() == rows * cols && y.len() == x.len());
    let y = Shared::new(y);
    for_rows(
        rows,
        cols,
        #[inline(always)]
        |row| {
            let x = &x[row * cols..][..cols];
            // SAFETY: each row belongs to one task.
            let y = unsafe { y.slice(row * cols, cols) };
            if log {
                let (shift, log_sum) = log_sum(x);
                let log_sum = T::from_f64(log_sum);
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = x - shift - log_sum;
                }
                return;
            }
            let shift = maximum(x);
            for (y, &x) in y.iter_mut().zip(x) {
                *y = math::exp(x - shift);
            }
            let scale = T::from_f64(1.0 / sum_of([&*y], |[y]| y));
            y.iter_mut().for_each(|y| *y = *y * scale);
        },
    );
}

/// The gradient of [`softmax`], from its result: `(g - sum(g * y)) * y`, or `g - exp(y) * sum(g)` if `log`.
///
/// # Panics
/// If a slice doesn't have `rows * cols` elements.
pub fn softmax_backward<T: Float + Arith>(
    y: &[T],
    grad: &[T],
    rows: usize,
    cols: usize,
    log: bool,
    grad_x: &mut [T],
) {
    assert!(y.len() == rows * cols && grad.len() == y.len() && grad_x.len() == y.len());
    let grad_x = Shared::new(grad_x);
    for_rows(
        rows,
        cols,
        #[inline(always)]
        |row| {
            let (y, grad) = (&y[row * cols..][..cols], &grad[row * cols..][..cols]);
            // SAFETY: each row belongs to one task.
            let out = unsafe { grad_x.slice(row * cols, cols) };
            if log {
                let sum = T::from_f64(sum_of([grad], |[grad]| grad));
                for ((out, &y), &grad) in out.iter_mut().zip(y).zip(grad) {
                    *out = grad - math::exp(y) * sum;
                }
            } else {
                let dot = T::from_f64(sum_of([y, grad], |[y, grad]| y * grad));
                for ((out, &y), &grad) in out.iter_mut().zip(y).zip(grad) {
                    *out = (grad - dot) * y;
                }
            }
        },
    );
}

/// What cross entropy takes besides logits and targets.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyRule<'a, T> {
    /// A factor per class; empty for ones.
    pub weight: &'a [T],
    /// Rows of this target count for nothing.
    pub ignore_index: i64,
    /// The share of the target that is spread over all classes.
    pub label_smoothing: f64,
}

/// The loss of each row of logits, from its class (`torch.nn.functional.cross_entropy`, `reduction="none"`), and
/// `log(sum(exp(x)))` of each row for the backward pass.
///
/// # Panics
/// If a slice doesn't have the length that the sizes say, or a target that isn't ignored lies outside of `cols`.
pub fn cross_entropy<T: Float + Arith>(
    x: &[T],
    targets: &[i64],
    cols: usize,
    rule: CrossEntropyRule<'_, T>,
    loss: &mut [T],
    log_sums: &mut [T],
) {
    let rows = targets.len();
    assert!(x.len() == rows * cols && loss.len() == rows && log_sums.len() == rows);
    assert!(rule.weight.is_empty() || rule.weight.len() == cols);
    let (loss, log_sums) = (Shared::new(loss), Shared::new(log_sums));
    for_rows(
        rows,
        cols,
        #[inline(always)]
        |row| {
            let x = &x[row * cols..][..cols];
            let (shift, log_sum) = log_sum(x);
            let total = shift.to_f64() + log_sum;
            let target = targets[row];
            let value = if target == rule.ignore_index {
                0.0
            } else {
                let class = target as usize;
                let weight = rule.weight.get(class).map_or(1.0, |weight| weight.to_f64());
                let nll = weight * (log_sum - (x[class] - shift).to_f64());
                if rule.label_smoothing == 0.0 {
                    nll
                } else {
                    let smooth: f64 = (0..cols)
                        .map(|class| {
                            let weight =
                                rule.weight.get(class).map_or(1.0, |weight| weight.to_f64());
                            weight * (log_sum - (x[class] - shift).to_f64())
                        })
                        .sum();
                    (1.0 - rule.label_smoothing) * nll + rule.label_smoothing / cols as f64 * smooth
                }
            };
            // SAFETY: each row belongs to one task.
            unsafe {
                loss.slice(row, 1)[0] = T::from_f64(value);
                log_sums.slice(row, 1)[0] = T::from_f64(total);
            }
        },
    );
}

/// The gradient of [`cross_entropy`]: `scale[row] * (softmax * total weight - weighted target)` for each row.
///
/// # Panics
/// As [`cross_entropy`].
pub fn cross_entropy_backward<T: Float + Arith>(
    x: &[T],
    targets: &[i64],
    cols: usize,
    rule: CrossEntropyRule<'_, T>,
    log_sums: &[T],
    scale: impl Fn(usize) -> f64 + Sync,
    grad_x: &mut [T],
) {
    let rows = targets.len();
    assert!(x.len() == rows * cols && grad_x.len() == x.len() && log_sums.len() == rows);
    let (smoothing, spread) = (
        rule.label_smoothing,
        rule.label_smoothing / cols.max(1) as f64,
    );
    let all: f64 = if rule.weight.is_empty() {
        cols as f64
    } else {
        rule.weight.iter().map(|weight| weight.to_f64()).sum()
    };
    let grad_x = Shared::new(grad_x);
    for_rows(
        rows,
        cols,
        #[inline(always)]
        |row| {
            let x = &x[row * cols..][..cols];
            // SAFETY: each row belongs to one task.
            let out = unsafe { grad_x.slice(row * cols, cols) };
            if targets[row] == rule.ignore_index {
                out.fill(T::ZERO);
                return;
            }
            let class = targets[row] as usize;
            let weight =
                (1.0 - smoothing) * rule.weight.get(class).map_or(1.0, |weight| weight.to_f64());
            let scale = scale(row);
            let factor = T::from_f64(scale * (weight + spread * all));
            let total = log_sums[row];
            for (out, &x) in out.iter_mut().zip(x) {
                *out = math::exp(x - total) * factor;
            }
            out[class] = out[class] - T::from_f64(scale * weight);
            if smoothing != 0.0 {
                for (class, out) in out.iter_mut().enumerate() {
                    let weight = rule.weight.get(class).map_or(1.0, |weight| weight.to_f64());
                    *out = *out - T::from_f64(scale * spread * weight);
                }
            }
        },
    );
}
