//! The backward pass: a task has a head of keys with all heads of queries that share it, so that no two add into one place. See
//! Note [Order of attention].

use super::panel::{PANEL, Panel, turn};
use super::product::{Product, Start, splat};
use super::{Attention, KEYS, Rows};
use crate::arch::SimdLanes;
use crate::gemm::scratch::with_scratch;
use crate::gemm::{Float, Shared};
use crate::memory::HostMemoryError;
use crate::parallel;
use crate::softmax::Real;
use crate::vectorize::{Vectorize, vectorized};
use fireclay_core::math::exp;

/// What [`attention`](super::attention) gave, and the gradient of its result.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a, T> {
    /// The result.
    pub out: Rows<'a, T>,
    /// Its gradient.
    pub grad: Rows<'a, T>,
    /// The logarithms of sums, contiguous.
    pub log_sums: &'a [T],
}

/// Writes the gradients of queries, keys and values to contiguous `grads`.
///
/// # Errors
/// If there is no scratch memory for a panel of queries; the outputs are arbitrary then.
///
/// # Panics
/// If a slice hasn't what the sizes and strides say.
pub fn attention_backward<T: Real + Float>(
    problem: &Attention<'_, T>,
    known: &Known<'_, T>,
    grads: [&mut [T]; 3],
) -> Result<(), HostMemoryError> {
    problem.check();
    let sizes = problem.sizes;
    let of_queries = [sizes.batch, sizes.heads, sizes.queries];
    let [b, h, q] = of_queries;
    known.out.check("the result", [b, h, q, sizes.value_width]);
    known
        .grad
        .check("its gradient", [b, h, q, sizes.value_width]);
    let rows = b * h * q;
    let kv_heads = b * sizes.kv_heads;
    assert_eq!(known.log_sums.len(), rows, "a number for each query");
    assert_eq!(
        [grads[0].len(), grads[1].len(), grads[2].len()],
        [
            rows * sizes.width,
            kv_heads * sizes.keys * sizes.width,
            kv_heads * sizes.keys * sizes.value_width
        ],
        "gradients are as large as their operands"
    );
    let grads = grads.map(|grad| Shared::new(grad));
    parallel::try_run(kv_heads, |number| {
        let scratch = Scratch::of(sizes.width, sizes.value_width);
        with_scratch::<T>(scratch.len, |memory| {
            let group = sizes.group();
            let places = [
                number * group * sizes.queries * sizes.width,
                number * sizes.keys * sizes.width,
                number * sizes.keys * sizes.value_width,
            ];
            let mut heads = grads;
            for (head, place) in heads.iter_mut().zip(places) {
                *head = head.after(place);
            }
            vectorized(Backward {
                problem,
                known,
                batch: number / sizes.kv_heads,
                kv_head: number % sizes.kv_heads,
                scratch,
                memory,
                grads: heads,
            });
            Ok(())
        })
    })
}

/// Where things are in a task's scratch memory.
#[derive(Clone, Copy)]
struct Scratch {
    /// The gradient, transposed as the queries (`[width][PANEL]`) before it are: `[value_width][PANEL]`.
    grad: usize,
    /// `[KEYS][PANEL]`; then as many for the gradients of the weights.
    scores: usize,
    /// Logarithms of sums, and products of gradient and result: twice `[PANEL]`.
    state: usize,
    /// `[value_width]`.
    products: usize,
    len: usize,
}

impl Scratch {
    fn of(width: usize, value_width: usize) -> Scratch {
        let grad = width * PANEL;
        let scores = grad + value_width * PANEL;
        let state = scores + 2 * KEYS * PANEL;
        let products = state + 2 * PANEL;
        Scratch {
            grad,
            scores,
            state,
            products,
            len: products + value_width,
        }
    }
}

struct Backward<'a, 'b, T> {
    problem: &'a Attention<'b, T>,
    known: &'a Known<'b, T>,
    batch: usize,
    kv_head: usize,
    scratch: Scratch,
    memory: &'a mut [T],
    /// Where the gradients of the heads begin.
    grads: [Shared<T>; 3],
}

impl<T: Real + Float> Vectorize for Backward<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<F: SimdLanes<Elem = f32>, D: SimdLanes<Elem = f64>>(self) {
        // SAFETY: `attention_backward` checked the operands and made the scratch memory; tasks write distinct heads.
        unsafe { self.heads::<T::Lanes<F, D>>() }
    }
}

impl<T: Real + Float> Backward<'_, '_, T> {
    /// # Safety
    /// The heads exist, the operands are checked, the scratch memory is as `Scratch` says; nobody else writes the heads' gradients. See
    /// Note [Lanes inside target features].
    #[inline(always)]
    unsafe fn heads<V: SimdLanes<Elem = T>>(self) {
        assert!(self.memory.len() >= self.scratch.len);
        let sizes = self.problem.sizes;
        let [of_query, of_key, of_value] = self.grads.map(Shared::get);
        let group = sizes.group();
        // SAFETY: the heads' gradients; the panels are of the heads.
        unsafe {
            let clear = |start: *mut T, len: usize| {
                std::slice::from_raw_parts_mut(start, len).fill(T::ZERO);
            };
            clear(of_query, group * sizes.queries * sizes.width);
            clear(of_key, sizes.keys * sizes.width);
            clear(of_value, sizes.keys * sizes.value_width);
            for number in 0..group {
                for first in (0..sizes.queries).step_by(PANEL) {
                    let panel = Panel {
                        batch: self.batch,
                        head: self.kv_head * group + number,
                        first,
                        rows: PANEL.min(sizes.queries - first),
                    };
                    let row = number * sizes.queries + first;
                    self.panel::<V>(panel, of_query.add(row * sizes.width));
                }
            }
            scale::<V>(of_key, sizes.keys * sizes.width, self.problem.scale);
        }
    }

    /// Adds what a panel of queries gives; `of_query` is where the gradient of the panel's begins.
    ///
    /// # Safety
    /// As for [`heads`](Self::heads), of which the panel is a part.
    #[inline(always)]
    unsafe fn panel<V: SimdLanes<Elem = T>>(&self, panel: Panel, of_query: *mut T) {
        let Backward {
            problem,
            known,
            scratch,
            ..
        } = *self;
        let sizes = problem.sizes;
        let [_, of_key, of_value] = self.grads.map(Shared::get);
        // SAFETY: the caller vouches for operands, panel and scratch memory, which only this task uses.
        unsafe {
            let queries = self.memory.as_ptr().cast_mut();
            let (turned_grad, scores) = (queries.add(scratch.grad), queries.add(scratch.scores));
            let state = queries.add(scratch.state);
            let slopes = scores.add(KEYS * PANEL);
            let of_panel = |rows: &Rows<'_, T>| {
                let start = rows.head(panel.batch, panel.head);
                start.wrapping_add(panel.first * rows.row)
            };
            let (query, grad) = (of_panel(&problem.query), of_panel(&known.grad));
            turn(query, problem.query.row, panel.rows, sizes.width, queries);
            let width = sizes.value_width;
            turn(grad, known.grad.row, panel.rows, width, turned_grad);
            self.state::<V>(panel, grad, of_panel(&known.out), state);
            let key = problem.key.head(panel.batch, self.kv_head);
            let value = problem.value.head(panel.batch, self.kv_head);
            let keys = problem.keys_of(panel);
            for first in (0..keys).step_by(KEYS) {
                let count = KEYS.min(keys - first);
                problem.scores::<V>(panel, queries, first, count, scores);
                Product {
                    rows: count,
                    depth: sizes.value_width,
                    cols: panel.vectors::<V>() * V::LANES,
                    a: value.wrapping_add(first * problem.value.row),
                    a_row: problem.value.row,
                    a_step: 1,
                    b: turned_grad,
                    b_row: PANEL,
                    c: slopes,
                    c_row: PANEL,
                    start: Start::Zero(T::ONE),
                }
                .of_scores::<V>();
                for v in 0..panel.vectors::<V>() {
                    let at = v * V::LANES;
                    let (kept, dot) = (V::load(state.add(at)), V::load(state.add(PANEL + at)));
                    for key in 0..count {
                        let at = key * PANEL + at;
                        let weight = exp(V::load(scores.add(at)) - kept);
                        weight.store(scores.add(at));
                        let slope = weight * (V::load(slopes.add(at)) - dot);
                        slope.store(slopes.add(at));
                    }
                }
                let of_keys = |a: *mut T, b: *const T, b_row, cols, c: *mut T| Product {
                    rows: count,
                    depth: panel.rows,
                    cols,
                    a: a.cast_const(),
                    a_row: PANEL,
                    a_step: 1,
                    b,
                    b_row,
                    c: c.wrapping_add(first * cols),
                    c_row: cols,
                    start: Start::Old,
                };
                let of_queries = Product {
                    rows: panel.rows,
                    depth: count,
                    cols: sizes.width,
                    a: slopes.cast_const(),
                    a_row: 1,
                    a_step: PANEL,
                    b: key.wrapping_add(first * problem.key.row),
                    b_row: problem.key.row,
                    c: of_query,
                    c_row: sizes.width,
                    start: Start::Old,
                };
                // One after the other in a loop, so that their tiles are compiled once.
                for product in [
                    of_keys(scores, grad, known.grad.row, width, of_value),
                    of_keys(slopes, query, problem.query.row, sizes.width, of_key),
                    of_queries,
                ] {
                    product.of_rows::<V>();
                }
            }
            scale::<V>(of_query, panel.rows * sizes.width, problem.scale);
        }
    }

    /// Writes the logarithms of sums, and the sums of gradient times result; a query that the panel lacks has infinity and 0, with
    /// which its weights are 0.
    ///
    /// # Safety
    /// As for [`panel`](Self::panel); `grad` and `out` are its first rows, `state` has room for twice `[PANEL]`.
    #[inline(always)]
    unsafe fn state<V: SimdLanes<Elem = T>>(
        &self,
        panel: Panel,
        grad: *const T,
        out: *const T,
        state: *mut T,
    ) {
        let sizes = self.problem.sizes;
        let row = (panel.batch * sizes.heads + panel.head) * sizes.queries + panel.first;
        let log_sums = &self.known.log_sums[row..row + panel.rows];
        // SAFETY: the caller vouches for the rows and the scratch memory.
        unsafe {
            let products = self.memory.as_ptr().cast_mut().add(self.scratch.products);
            let products = std::slice::from_raw_parts_mut(products, sizes.value_width);
            for (row, &log_sum) in log_sums.iter().enumerate() {
                let grad = grad.wrapping_add(row * self.known.grad.row);
                let out = out.wrapping_add(row * self.known.out.row);
                for (column, product) in products.iter_mut().enumerate() {
                    *product = *grad.add(column) * *out.add(column);
                }
                *state.add(row) = log_sum;
                *state.add(PANEL + row) = T::row_sum(products);
            }
            for row in panel.rows..PANEL {
                *state.add(row) = T::from_f64(f64::INFINITY);
                *state.add(PANEL + row) = T::ZERO;
            }
        }
    }
}

/// Multiplies `count` numbers.
///
/// # Safety
/// They exist, and nobody else uses them. See Note [Lanes inside target features].
#[inline(always)]
unsafe fn scale<V: SimdLanes>(numbers: *mut V::Elem, count: usize, factor: V::Elem)
where
    V::Elem: Into<f64>,
{
    // SAFETY: the caller vouches for `count` numbers.
    unsafe {
        let factor = splat::<V>(&factor);
        for start in (0..count).step_by(V::LANES) {
            let lanes = V::LANES.min(count - start);
            let product = V::load_first(numbers.add(start), lanes) * factor;
            product.store_first(numbers.add(start), lanes);
        }
    }
}
