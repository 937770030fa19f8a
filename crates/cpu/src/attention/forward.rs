//! The forward pass: panel by panel, each with all the keys that it sees. See Note [Order of attention].

use super::panel::{PANEL, Panel, turn};
use super::product::{Product, Start, splat};
use super::{Attention, KEYS};
use crate::arch::SimdLanes;
use crate::gemm::scratch::with_scratch;
use crate::gemm::{Float, Shared};
use crate::memory::HostMemoryError;
use crate::parallel;
use crate::softmax::Real;
use crate::vectorize::{Vectorize, vectorized};
use fireclay_core::math::{exp, log};

/// A task has at least about so many multiply-adds.
const GRAIN: usize = 1 << 18;
/// Into how many classes the sum of a tile is parted.
const CLASSES: usize = 16;

/// Writes the result to `out`, contiguous `[batch, heads, queries, value_width]`, and for each of its rows the logarithm of the sum
/// of exponentials to `log_sums`, for the backward pass.
///
/// # Errors
/// If there is no scratch memory for a panel of queries; the outputs are arbitrary then.
///
/// # Panics
/// If a slice hasn't what the sizes and strides say.
pub fn attention<T: Real + Float>(
    problem: &Attention<'_, T>,
    out: &mut [T],
    log_sums: &mut [T],
) -> Result<(), HostMemoryError> {
    problem.check();
    let sizes = problem.sizes;
    let heads = sizes.batch * sizes.heads;
    let rows = heads * sizes.queries;
    assert_eq!(
        [out.len(), log_sums.len()],
        [rows * sizes.value_width, rows],
        "a row of results and a number for each query"
    );
    let panels = sizes.queries.div_ceil(PANEL);
    let work = (sizes.width + sizes.value_width)
        .saturating_mul(sizes.keys)
        .saturating_mul(PANEL);
    let together = (GRAIN / work.max(1)).clamp(1, 64);
    let (out, log_sums) = (Shared::new(out), Shared::new(log_sums));
    let count = heads * panels;
    parallel::try_run(count.div_ceil(together), |task| {
        let scratch = Scratch::of(sizes.width, sizes.value_width);
        with_scratch::<T>(scratch.len, |memory| {
            for number in task * together..((task + 1) * together).min(count) {
                let (head, panel) = (number / panels, number % panels);
                let first = panel * PANEL;
                let panel = Panel {
                    batch: head / sizes.heads,
                    head: head % sizes.heads,
                    first,
                    rows: PANEL.min(sizes.queries - first),
                };
                let row = head * sizes.queries + first;
                vectorized(Forward {
                    problem,
                    panel,
                    scratch,
                    memory,
                    out: out.get().wrapping_add(row * sizes.value_width),
                    log_sums: log_sums.get().wrapping_add(row),
                });
            }
            Ok(())
        })
    })
}

/// Where things are in a task's scratch memory.
#[derive(Clone, Copy)]
struct Scratch {
    /// `[KEYS][PANEL]`, after the queries (`[width][PANEL]`).
    scores: usize,
    /// Maxima, sums and corrections: three times `[PANEL]`.
    state: usize,
    /// `[PANEL][stride]`: the result so far.
    result: usize,
    stride: usize,
    len: usize,
}

impl Scratch {
    fn of(width: usize, value_width: usize) -> Scratch {
        let scores = width * PANEL;
        let state = scores + KEYS * PANEL;
        let result = state + 3 * PANEL;
        let stride = value_width.next_multiple_of(16);
        Scratch {
            scores,
            state,
            result,
            stride,
            len: result + PANEL * stride,
        }
    }
}

struct Forward<'a, 'b, T> {
    problem: &'a Attention<'b, T>,
    panel: Panel,
    scratch: Scratch,
    memory: &'a mut [T],
    /// The panel's first row of results.
    out: *mut T,
    log_sums: *mut T,
}

impl<T: Real + Float> Vectorize for Forward<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        // SAFETY: `attention` checked the operands and made the panel and the scratch memory; panels write distinct rows.
        unsafe { self.panel::<T::Lanes<F, D>>() }
    }
}

impl<T: Real + Float> Forward<'_, '_, T> {
    /// # Safety
    /// The panel exists, the operands are checked, the scratch memory is as `Scratch` says; nobody else writes the panel's rows. See
    /// Note [Lanes inside target features].
    #[inline(always)]
    unsafe fn panel<V: SimdLanes<Elem = T>>(self) {
        let Forward {
            problem,
            panel,
            scratch,
            memory,
            out,
            log_sums,
        } = self;
        assert!(memory.len() >= scratch.len);
        let sizes = problem.sizes;
        let queries = memory.as_mut_ptr();
        // SAFETY: the places lie within the scratch memory.
        let (scores, state, result) = unsafe {
            (
                queries.add(scratch.scores),
                queries.add(scratch.state),
                queries.add(scratch.result),
            )
        };
        let vectors = panel.vectors::<V>();
        // SAFETY: the caller vouches for operands, panel and scratch memory.
        unsafe {
            let rows = problem.query.head(panel.batch, panel.head);
            let rows = rows.wrapping_add(panel.first * problem.query.row);
            turn(rows, problem.query.row, panel.rows, sizes.width, queries);
            for v in 0..vectors {
                V::of(f64::NEG_INFINITY).store(state.add(v * V::LANES));
                V::of(0.0).store(state.add(PANEL + v * V::LANES));
            }
            std::slice::from_raw_parts_mut(result, panel.rows * scratch.stride).fill(T::ZERO);
            let values = (problem.value).head(panel.batch, panel.head / sizes.group());
            let keys = problem.keys_of(panel);
            for first in (0..keys).step_by(KEYS) {
                let count = KEYS.min(keys - first);
                problem.scores::<V>(panel, queries, first, count, scores);
                for v in 0..vectors {
                    let at = v * V::LANES;
                    weights::<V>(scores.add(at), count, state.add(at));
                }
                Product {
                    rows: panel.rows,
                    depth: count,
                    cols: sizes.value_width,
                    a: scores,
                    a_row: 1,
                    a_step: PANEL,
                    b: values.wrapping_add(first * problem.value.row),
                    b_row: problem.value.row,
                    c: result,
                    c_row: scratch.stride,
                    start: Start::Scaled(state.add(2 * PANEL)),
                }
                .of_rows::<V>();
            }
            for row in 0..panel.rows {
                let (max, sum) = (*state.add(row), *state.add(PANEL + row));
                let empty = sum == T::ZERO;
                *log_sums.add(row) = match empty {
                    true => T::from_f64(f64::INFINITY),
                    false => max + log(sum),
                };
                let divisor = if empty { T::ONE } else { sum };
                let (from, to) = (
                    result.add(row * scratch.stride),
                    out.wrapping_add(row * sizes.value_width),
                );
                divide::<V>(from, divisor, to, sizes.value_width);
            }
        }
    }
}

/// Brings the maxima, sums and corrections of a vector of queries up to date with a tile of `count` scores, which become weights.
///
/// # Safety
/// There are vectors at `scores + key * PANEL` for all of [`KEYS`] keys, and at `state`, `state + PANEL` and `state + 2 * PANEL`. See
/// Note [Lanes inside target features].
#[inline(always)]
unsafe fn weights<V: SimdLanes>(scores: *mut V::Elem, count: usize, state: *mut V::Elem) {
    // SAFETY: the caller vouches for all vectors.
    unsafe {
        let lowest = V::of(f64::NEG_INFINITY);
        let old = V::load(state);
        let (mut even, mut odd) = (old, lowest);
        for key in (0..count - count % 2).step_by(2) {
            even = V::load(scores.add(key * PANEL)).greater(even);
            odd = V::load(scores.add((key + 1) * PANEL)).greater(odd);
        }
        if count % 2 == 1 {
            even = V::load(scores.add((count - 1) * PANEL)).greater(even);
        }
        let max = odd.greater(even);
        let subtracted = V::select(max.eq(lowest), V::of(0.0), max);
        for key in 0..count {
            let score = scores.add(key * PANEL);
            exp(V::load(score) - subtracted).store(score);
        }
        for key in count..KEYS {
            V::of(0.0).store(scores.add(key * PANEL));
        }
        let mut classes = [V::of(0.0); CLASSES];
        for (class, sum) in classes.iter_mut().enumerate() {
            *sum = V::load(scores.add(class * PANEL));
            for key in (class + CLASSES..KEYS).step_by(CLASSES) {
                *sum = *sum + V::load(scores.add(key * PANEL));
            }
        }
        let mut half = CLASSES / 2;
        while half > 0 {
            for class in 0..half {
                classes[class] = classes[class] + classes[class + half];
            }
            half /= 2;
        }
        let correction = exp(old - subtracted);
        max.store(state);
        let sum = state.add(PANEL);
        V::load(sum).mul_add(correction, classes[0]).store(sum);
        correction.store(state.add(2 * PANEL));
    }
}

/// `to = from / divisor`, `count` numbers.
///
/// # Safety
/// They exist. See Note [Lanes inside target features].
#[inline(always)]
unsafe fn divide<V: SimdLanes>(
    from: *const V::Elem,
    divisor: V::Elem,
    to: *mut V::Elem,
    count: usize,
) where
    V::Elem: Into<f64>,
{
    // SAFETY: the caller vouches for `count` numbers.
    unsafe {
        let divisor = splat::<V>(&divisor);
        for start in (0..count).step_by(V::LANES) {
            let lanes = V::LANES.min(count - start);
            let quotient = V::load_first(from.add(start), lanes) / divisor;
            quotient.store_first(to.add(start), lanes);
        }
    }
}
