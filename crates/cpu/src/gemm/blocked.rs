//! One matrix product: cut into blocks, blocks packed into panels, panels multiplied tile by tile.

use super::scratch::with_scratch;
use super::tile::{Kernels, MAX_COLS, MAX_ROWS, Steps, Store, Tile};
use super::transpose::Block;
use super::vector::{RowDots, WeightedRows};
use super::{Float, PARALLEL_WORK, Product, Shared};
use crate::parallel;

/// Longest sum in one go, so that a panel of B (this by 48) nearly fits the first-level cache.
const DEPTH: usize = 256;
/// Most columns of B packed at a time, so that the packed block (this by `DEPTH`) stays near 2 MB of f32.
const COLS: usize = 2016;
/// Rows of A that one task packs: with `DEPTH` a quarter of a megabyte at most.
const ROWS: usize = 128;
/// Up to this many numbers, B is read in place where its columns lie side by side.
const SMALL_B: usize = 8192;

/// Computes the product; on several threads if `spread` and if it is worth it.
///
/// # Safety
/// Every address of the product is valid; nobody else uses the elements of C, which are distinct.
pub(super) unsafe fn run<T: Float>(mut product: Product<T>, spread: bool) {
    let vertical = product.n == 1 && product.m > 1;
    if vertical || (product.m > 1 && product.c_col != 1 && product.c_row == 1) {
        product = product.transposed();
    }
    let spread = spread && product.multiply_adds() >= PARALLEL_WORK / 4;
    // SAFETY: the caller's promise is passed on.
    unsafe {
        if product.m == 1 && product.k > 0 && (product.b_row == 1 || product.b_col == 1) {
            times_vector(&product, spread);
        } else {
            in_blocks(&product, spread);
        }
    }
}

/// Runs `task` for each number below `count`, on several threads if `spread`.
fn each(spread: bool, count: usize, task: impl Fn(usize) + Sync) {
    if spread {
        parallel::run(count, task)
    } else {
        (0..count).for_each(task)
    }
}

/// C is one row: x (A's row) times the matrix B.
///
/// # Safety
/// As for [`run`]; `b_row` or `b_col` is 1.
unsafe fn times_vector<T: Float>(product: &Product<T>, spread: bool) {
    let kernels = T::kernels();
    let &Product { n, k, .. } = product;
    with_scratch::<T, _>(k + n, |scratch| {
        let (x, y) = scratch.split_at_mut(k);
        let along_k = product.b_row == 1 && (product.b_col != 1 || k >= n);
        let weight = if along_k { T::ONE } else { product.alpha };
        for (index, x) in x.iter_mut().enumerate() {
            // SAFETY: index < k.
            *x = unsafe { *product.a.add(index * product.a_col) } * weight;
        }
        let (x, shared) = (&*x, Shared::new(y));
        // Strips of the result: long enough to be worth a task, and whole lines of B.
        let strip =
            ((PARALLEL_WORK / 16).div_ceil(k)).next_multiple_of(if along_k { 16 } else { 1024 });
        each(spread, n.div_ceil(strip), |task| {
            let first = task * strip;
            let count = strip.min(n - first);
            // SAFETY: first + count <= n, so the strip's addresses are the product's, and strips are disjoint.
            unsafe {
                let c = product.c.add(first * product.c_col);
                if along_k {
                    (kernels.row_dots)(&RowDots {
                        a: product.b.add(first * product.b_col),
                        a_stride: product.b_col,
                        x: x.as_ptr(),
                        depth: k,
                        rows: count,
                        y: c,
                        y_stride: product.c_col,
                        alpha: product.alpha,
                        beta: product.beta,
                    });
                } else {
                    let y = std::slice::from_raw_parts_mut(shared.get().add(first), count);
                    for (j, y) in y.iter_mut().enumerate() {
                        *y = if product.beta == T::ZERO {
                            T::ZERO
                        } else {
                            *c.add(j * product.c_col) * product.beta
                        };
                    }
                    (kernels.weighted_rows)(&WeightedRows {
                        b: product.b.add(first),
                        b_stride: product.b_row,
                        x: x.as_ptr(),
                        depth: k,
                        cols: count,
                        y: y.as_mut_ptr(),
                    });
                    for (j, &y) in y.iter().enumerate() {
                        *c.add(j * product.c_col) = y;
                    }
                }
                if !product.col_bias.is_null() || !product.row_bias.is_null() {
                    for j in 0..count {
                        let bias = if product.col_bias.is_null() {
                            *product.row_bias
                        } else {
                            *product.col_bias.add(first + j)
                        };
                        let to = c.add(j * product.c_col);
                        *to = *to + bias;
                    }
                }
            }
        });
    });
}

/// Where B is read from, for one block of k and of columns.
#[derive(Clone, Copy)]
struct Source<T> {
    start: *const T,
    /// From one step in k to the next.
    step: usize,
    /// From one panel of [`Kernels::cols`] columns to the next.
    panel: usize,
}

/// # Safety
/// As for [`run`].
unsafe fn in_blocks<T: Float>(product: &Product<T>, spread: bool) {
    let kernels = T::kernels();
    let &Product { m, n, k, .. } = product;
    let depth = k.div_ceil(k.div_ceil(DEPTH).max(1));
    let cols = n.div_ceil(n.div_ceil(COLS)).next_multiple_of(kernels.cols);
    let few_rows = m <= 2 * kernels.rows;
    let packs = product.b_col != 1 || !(few_rows || k * n <= SMALL_B);
    let packed_len = if packs {
        cols.min(n.next_multiple_of(kernels.cols)) * depth
    } else {
        0
    };
    with_scratch::<T, _>(packed_len, |packed| {
        let packed = Shared::new(packed);
        let mut first_k = 0;
        loop {
            let depth = depth.min(k - first_k);
            let beta = if first_k == 0 { product.beta } else { T::ONE };
            let is_last = first_k + depth == k;
            for first_col in (0..n).step_by(cols) {
                let count = cols.min(n - first_col);
                // SAFETY: the block is within B, whose addresses the caller vouches for; panels of `packed` are
                // disjoint; each task of `multiply` writes its own block of C.
                unsafe {
                    let start = first_k * product.b_row + first_col * product.b_col;
                    let mut source = Source {
                        start: product.b.add(start),
                        step: product.b_row,
                        panel: kernels.cols,
                    };
                    if packs {
                        let panels = count.div_ceil(kernels.cols);
                        let together = (PARALLEL_WORK / 16 / (depth * kernels.cols).max(1)).max(1);
                        each(spread, panels.div_ceil(together), |task| {
                            for panel in task * together..((task + 1) * together).min(panels) {
                                let first = panel * kernels.cols;
                                let to = packed.get().add(first * depth);
                                let from = product.b.add(start + first * product.b_col);
                                let width = kernels.cols.min(count - first);
                                pack(
                                    from,
                                    product.b_row,
                                    product.b_col,
                                    depth,
                                    width,
                                    to,
                                    kernels,
                                );
                            }
                        });
                        source = Source {
                            start: packed.get(),
                            step: kernels.cols,
                            panel: kernels.cols * depth,
                        };
                    }
                    multiply(
                        product,
                        source,
                        first_k..first_k + depth,
                        first_col,
                        count,
                        beta,
                        is_last,
                        spread,
                    );
                }
            }
            first_k += depth;
            if first_k >= k {
                break;
            }
        }
    });
}

/// Copies `width` columns (of A: rows) over `depth` steps to `to[step * panel width + column]`.
///
/// # Safety
/// The source addresses are valid, and `to` has room for `depth` times the panel width.
unsafe fn pack<T: Float>(
    from: *const T,
    step: usize,
    across: usize,
    depth: usize,
    width: usize,
    to: *mut T,
    kernels: &Kernels<T>,
) {
    // SAFETY: column < width and index < depth stay within what the caller vouches for.
    unsafe { pack_panel(from, step, across, depth, width, to, kernels.cols, kernels) }
}

/// [`pack`] with panels of `panel` numbers a step.
///
/// # Safety
/// As for [`pack`].
#[expect(
    clippy::too_many_arguments,
    reason = "a copy has two places, two strides and two sizes"
)]
unsafe fn pack_panel<T: Float>(
    from: *const T,
    step: usize,
    across: usize,
    depth: usize,
    width: usize,
    to: *mut T,
    panel: usize,
    kernels: &Kernels<T>,
) {
    // SAFETY: column < width and index < depth stay within what the caller vouches for.
    unsafe {
        if across == 1 {
            for index in 0..depth {
                std::ptr::copy_nonoverlapping(from.add(index * step), to.add(index * panel), width);
            }
        } else if step == 1 {
            (kernels.transpose)(&Block {
                from,
                from_stride: across,
                to,
                to_stride: panel,
                rows: width,
                cols: depth,
            });
        } else {
            for index in 0..depth {
                for column in 0..width {
                    *to.add(index * panel + column) = *from.add(index * step + column * across);
                }
            }
        }
    }
}

/// How many row blocks and column chunks a block of C is split into.
fn split<T>(m: usize, n: usize, depth: usize, kernels: &Kernels<T>) -> (usize, usize) {
    let work = m.saturating_mul(n).saturating_mul(depth.max(1));
    let wanted = (work / (PARALLEL_WORK / 2)).clamp(1, 32);
    let mut row_blocks = m.div_ceil(ROWS);
    let most_chunks = n.div_ceil(4 * kernels.cols);
    let chunks = wanted.div_ceil(row_blocks).clamp(1, most_chunks);
    if row_blocks * chunks < wanted {
        row_blocks = wanted
            .div_ceil(chunks)
            .clamp(row_blocks, m.div_ceil(2 * kernels.rows).max(row_blocks));
    }
    (row_blocks, chunks)
}

/// Multiplies a block of k with a block of columns, for all rows of A.
///
/// # Safety
/// As for [`run`]; `source` holds the columns `first_col..first_col + cols` of B over `ks`.
#[expect(
    clippy::too_many_arguments,
    reason = "private; a block of a product has this many bounds"
)]
unsafe fn multiply<T: Float>(
    product: &Product<T>,
    source: Source<T>,
    ks: std::ops::Range<usize>,
    first_col: usize,
    cols: usize,
    beta: T,
    is_last: bool,
    spread: bool,
) {
    let kernels = T::kernels();
    let depth = ks.len();
    let m = product.m;
    let (row_blocks, chunks) = if spread {
        split(m, cols, depth, kernels)
    } else {
        (m.div_ceil(ROWS), 1)
    };
    let block_rows = m.div_ceil(row_blocks).next_multiple_of(kernels.rows);
    let panels = cols.div_ceil(kernels.cols);
    let chunk_panels = panels.div_ceil(chunks);
    let source = (Shared::from_const(source.start), source.step, source.panel);
    let row_blocks = m.div_ceil(block_rows);
    let chunks = panels.div_ceil(chunk_panels);
    each(spread, row_blocks * chunks, |task| {
        let first_row = task / chunks * block_rows;
        let rows = block_rows.min(m - first_row);
        let first_panel = task % chunks * chunk_panels;
        let last_panel = (first_panel + chunk_panels).min(panels);
        let (start, step, panel_stride) = source;
        // A that lies along k is read in place where few columns use it.
        let packs = match product.a_col {
            1 => last_panel - first_panel > 4,
            _ => last_panel - first_panel > 1,
        };
        let packed_len = if packs {
            rows.next_multiple_of(kernels.rows) * depth
        } else {
            0
        };
        with_scratch::<T, _>(packed_len, |packed| {
            // SAFETY: rows and columns stay within the product; tasks have disjoint (row, column) blocks of C.
            unsafe {
                let a = product
                    .a
                    .add(first_row * product.a_row + ks.start * product.a_col);
                let mut a_rows = [0; MAX_ROWS];
                let row_stride = if packs { 1 } else { product.a_row };
                for (index, row) in a_rows.iter_mut().enumerate() {
                    *row = index * row_stride;
                }
                if packs {
                    for row in (0..rows).step_by(kernels.rows) {
                        let count = kernels.rows.min(rows - row);
                        let from = a.add(row * product.a_row);
                        let to = packed.as_mut_ptr().add(row * depth);
                        pack_panel(
                            from,
                            product.a_col,
                            product.a_row,
                            depth,
                            count,
                            to,
                            kernels.rows,
                            kernels,
                        );
                    }
                }
                let mut scatter = [0; MAX_COLS];
                for (index, place) in scatter.iter_mut().enumerate() {
                    *place = index * product.c_col;
                }
                let store = if product.c_col == 1 {
                    Store::Dense
                } else {
                    Store::Scatter(scatter.as_ptr())
                };
                for panel in first_panel..last_panel {
                    let col = first_col + panel * kernels.cols;
                    let width = kernels.cols.min(cols - panel * kernels.cols);
                    for row in (0..rows).step_by(kernels.rows) {
                        let (a, a_step) = if packs {
                            (packed.as_ptr().add(row * depth), kernels.rows)
                        } else {
                            (a.add(row * product.a_row), product.a_col)
                        };
                        let bias = |start: *const T, offset: usize| {
                            if is_last && !start.is_null() {
                                start.add(offset)
                            } else {
                                std::ptr::null()
                            }
                        };
                        (kernels.tile)(&Tile {
                            rows: kernels.rows.min(rows - row),
                            cols: width,
                            depth,
                            a,
                            a_rows: a_rows.as_ptr(),
                            a_steps: Steps::Stride(a_step),
                            b: start.get().add(panel * panel_stride),
                            b_steps: Steps::Stride(step),
                            c: product
                                .c
                                .add((first_row + row) * product.c_row + col * product.c_col),
                            c_stride: product.c_row,
                            store,
                            alpha: product.alpha,
                            beta,
                            col_bias: bias(product.col_bias, col),
                            row_bias: bias(product.row_bias, first_row + row),
                        });
                    }
                }
            }
        });
    });
}
