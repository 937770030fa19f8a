//! One matrix product: cut into blocks, blocks packed into panels, panels multiplied tile by tile.

use super::scratch::with_scratch;
use super::tile::{Kernels, MAX_COLS, MAX_ROWS, Steps, Store, Tile};
use super::transpose::Block;
use super::vector::{RowDots, WeightedRows};
use super::{Float, PARALLEL_WORK, Product, Shared};
use crate::memory::HostMemoryError;
use crate::parallel;

/// Longest sum in one go, so that a panel of B (this by 48) nearly fits the first-level cache.
const DEPTH: usize = 256;
/// Most columns of B packed at a time, so that the packed block (this by `DEPTH`) stays near 2 MB of f32.
const COLS: usize = 2016;
/// Most rows of A packed at a time.
const ROWS: usize = 2048;
/// A task packs about so many numbers.
const PACKING_NUMEL: usize = 1 << 16;
/// Up to this many numbers, B is read in place where its columns lie side by side.
const SMALL_B: usize = 8192;

/// Computes the product; on several threads if `spread` and if it is worth it.
///
/// # Safety
/// Every address of the product is valid; nobody else uses the elements of C, which are distinct.
///
/// # Errors
/// If there is no memory to pack into.
pub(super) unsafe fn run<T: Float>(
    mut product: Product<T>,
    spread: bool,
) -> Result<(), HostMemoryError> {
    let vertical = product.n == 1 && product.m > 1;
    if vertical || (product.m > 1 && product.c_col != 1 && product.c_row == 1) {
        product = product.transposed();
    }
    let spread = spread && product.multiply_adds() >= PARALLEL_WORK / 4;
    // SAFETY: the caller's promise is passed on.
    unsafe {
        let Product { m, n, k, .. } = product;
        let strides = (product.b_row, product.b_col);
        let in_lanes = sums_in_lanes(m, n, k, (product.a_row, product.a_col), strides);
        if in_lanes || (m == 1 && k > 0 && product.b_col == 1) {
            times_vector(&product, spread)
        } else {
            in_blocks(&product, spread)
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
/// As for [`run`]; the sums are in lanes, or `b_col` is 1.
unsafe fn times_vector<T: Float>(
    product: &Product<T>,
    spread: bool,
) -> Result<(), HostMemoryError> {
    let kernels = T::kernels();
    let &Product { n, k, .. } = product;
    let along_k = sums_in_lanes(1, n, k, (1, product.a_col), (product.b_row, product.b_col));
    with_scratch::<T>(k + 2 * n, |scratch| {
        let (x, rest) = scratch.split_at_mut(k);
        let (y, block) = rest.split_at_mut(n);
        let weight = if along_k { T::ONE } else { product.alpha };
        for (index, x) in x.iter_mut().enumerate() {
            // SAFETY: index < k.
            *x = unsafe { *product.a.add(index * product.a_col) } * weight;
        }
        let (x, shared, block) = (&*x, Shared::new(y), Shared::new(block));
        // Strips of the result: long enough to be worth a task, and whole lines of B.
        let strip =
            ((PARALLEL_WORK / 16).div_ceil(k)).next_multiple_of(if along_k { 16 } else { 1024 });
        let work = |task: usize| -> Result<(), HostMemoryError> {
            let first = task * strip;
            let count = strip.min(n - first);
            // SAFETY: first + count <= n, so the strip's addresses are the product's, and strips are disjoint.
            unsafe {
                let c = product.c.add(first * product.c_col);
                if along_k && product.b_row != 1 {
                    // The gaps are left out row by row.
                    let block = std::slice::from_raw_parts_mut(block.get().add(first), count);
                    dots_of_gapped(product, x, first, block)?;
                    for (j, &y) in block.iter().enumerate() {
                        let to = c.add(j * product.c_col);
                        let y = y * product.alpha;
                        *to = if product.beta == T::ZERO {
                            y
                        } else {
                            *to * product.beta + y
                        };
                    }
                } else if along_k {
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
                    let depth = depth_of_blocks(k);
                    let block = std::slice::from_raw_parts_mut(block.get().add(first), count);
                    for start in (0..k).step_by(depth) {
                        let sums = if start == 0 { &mut *y } else { &mut *block };
                        if start > 0 {
                            sums.fill(T::ZERO);
                        }
                        (kernels.weighted_rows)(&WeightedRows {
                            b: product.b.add(start * product.b_row + first),
                            b_stride: product.b_row,
                            x: x.as_ptr().add(start),
                            depth: depth.min(k - start),
                            cols: count,
                            y: sums.as_mut_ptr(),
                        });
                        if start > 0 {
                            for (y, &sum) in y.iter_mut().zip(&*block) {
                                *y = *y + sum;
                            }
                        }
                    }
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
            Ok(())
        };
        if spread {
            parallel::try_run(n.div_ceil(strip), work)
        } else {
            (0..n.div_ceil(strip)).try_for_each(work)
        }
    })
}

/// The dot products of x and the columns of B from `first` on, whose numbers have gaps between them.
///
/// # Safety
/// As for [`run`]; there are as many columns as `to` has numbers.
unsafe fn dots_of_gapped<T: Float>(
    product: &Product<T>,
    x: &[T],
    first: usize,
    to: &mut [T],
) -> Result<(), HostMemoryError> {
    let k = x.len();
    with_scratch::<T>(k, |row| {
        for (j, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller vouches for the column, which has k numbers.
            unsafe {
                let from = product.b.add((first + j) * product.b_col);
                for (index, number) in row.iter_mut().enumerate() {
                    *number = *from.add(index * product.b_row);
                }
                (T::kernels().row_dots)(&RowDots {
                    a: row.as_ptr(),
                    a_stride: k,
                    x: x.as_ptr(),
                    depth: k,
                    rows: 1,
                    y: to,
                    y_stride: 1,
                    alpha: T::ONE,
                    beta: T::ZERO,
                });
            }
        }
        Ok(())
    })
}

/// Where an operand is read from, for one block of k and of rows of A or columns of B.
#[derive(Clone, Copy)]
struct Source<T> {
    start: Shared<T>,
    /// From one step in k to the next.
    step: usize,
    /// From one row of A, or column of B, to the next within a panel.
    across: usize,
    /// From one panel to the next.
    panel: usize,
}

/// A block of an operand to be packed: `count` rows of A, or columns of B, over `depth` steps.
#[derive(Clone, Copy)]
struct Packing<T> {
    from: Source<T>,
    to: Shared<T>,
    count: usize,
    depth: usize,
    /// Rows or columns of a panel.
    width: usize,
}

impl<T: Float> Packing<T> {
    /// Panels that one task packs.
    fn together(&self) -> usize {
        (PACKING_NUMEL / (self.depth * self.width).max(1)).max(1)
    }

    fn tasks(&self) -> usize {
        self.count.div_ceil(self.width).div_ceil(self.together())
    }

    /// Copies the panels of a task to `to[panel][step][row or column]`.
    ///
    /// # Safety
    /// The source addresses are valid, and `to` has room for the panels, which nobody else uses meanwhile.
    unsafe fn pack(&self, task: usize, kernels: &Kernels<T>) {
        let Source {
            start,
            step,
            across,
            ..
        } = self.from;
        let together = self.together();
        for panel in task * together..((task + 1) * together).min(self.count.div_ceil(self.width)) {
            let first = panel * self.width;
            let width = self.width.min(self.count - first);
            // SAFETY: first + width <= count and index < depth, which the caller vouches for.
            unsafe {
                let from = start.get().cast_const().add(first * across);
                let to = self.to.get().add(first * self.depth);
                if across == 1 {
                    for index in 0..self.depth {
                        std::ptr::copy_nonoverlapping(
                            from.add(index * step),
                            to.add(index * self.width),
                            width,
                        );
                    }
                } else if step == 1 {
                    (kernels.transpose)(&Block {
                        from,
                        from_stride: across,
                        to,
                        to_stride: self.width,
                        rows: width,
                        cols: self.depth,
                    });
                } else {
                    for index in 0..self.depth {
                        for column in 0..width {
                            *to.add(index * self.width + column) =
                                *from.add(index * step + column * across);
                        }
                    }
                }
            }
        }
    }

    /// Where the operand is read from once it is packed.
    fn packed(&self) -> Source<T> {
        Source {
            start: self.to,
            step: self.width,
            across: 1,
            panel: self.width * self.depth,
        }
    }
}

/// `count` cut into the fewest equal parts of at most `most`, each a multiple of `unit`: the size of a part.
fn part(count: usize, most: usize, unit: usize) -> usize {
    count
        .div_ceil(count.div_ceil(most).max(1))
        .next_multiple_of(unit)
        .max(unit)
}

/// How many of `k` steps are summed up before they are added to what the steps before gave. A multiple of 8, so that blocks
/// start where wide loads can.
pub fn depth_of_blocks(k: usize) -> usize {
    part(k, DEPTH, 8)
}

/// Whether the sums of one product of these sizes are dot products with a row of 128 bytes of sums each, which are merged at
/// the end, and not ascending sums in blocks of [`depth_of_blocks`]: so it is for a vector times a matrix whose neighbours
/// along k lie nearest to each other, also if not side by side: a copy without gaps has the same order. Strides are those from row to row and from column to column.
pub fn sums_in_lanes(m: usize, n: usize, k: usize, a: (usize, usize), b: (usize, usize)) -> bool {
    let ((n, (row, col)), is_vector) = if n == 1 && m > 1 {
        ((m, (a.1, a.0)), true)
    } else {
        ((n, b), m == 1)
    };
    // Where all is one row or column, a copy has others before it: a step of 0 counts as a long one.
    let far = |stride: usize| if stride == 0 { usize::MAX } else { stride };
    let (row, col) = (far(row), far(col));
    is_vector && k > 0 && (n == 1 || row < col || (row == col && k >= n))
}

/// # Safety
/// As for [`run`].
unsafe fn in_blocks<T: Float>(product: &Product<T>, spread: bool) -> Result<(), HostMemoryError> {
    let kernels = T::kernels();
    let &Product { m, n, k, .. } = product;
    let max_depth = depth_of_blocks(k);
    let max_rows = part(m, ROWS, kernels.rows);
    let max_cols = part(n, COLS, kernels.cols);
    // Packing pays where an operand is used often enough, or lies so that it cannot be read in place.
    let packs_a = n > if product.a_col == 1 { 4 } else { 1 } * kernels.cols;
    let packs_b = product.b_col != 1 || (m > 2 * kernels.rows && k * n > SMALL_B);
    let a_len = if packs_a { max_rows * max_depth } else { 0 };
    let b_len = if packs_b { max_cols * max_depth } else { 0 };
    with_scratch::<T>(a_len + b_len, |scratch| {
        let (a_scratch, b_scratch) = scratch.split_at_mut(a_len);
        let (a_scratch, b_scratch) = (Shared::new(a_scratch), Shared::new(b_scratch));
        let mut first_k = 0;
        loop {
            let depth = max_depth.min(k - first_k);
            let is_last = first_k + depth == k;
            for first_col in (0..n).step_by(max_cols) {
                for first_row in (0..m).step_by(max_rows) {
                    let (rows, cols) = (max_rows.min(m - first_row), max_cols.min(n - first_col));
                    // SAFETY: the block is within the product, whose addresses the caller vouches for; the scratch
                    // memory has room for its panels; blocks are computed one after the other.
                    unsafe {
                        let mut a = Source {
                            start: Shared::from_const(
                                product
                                    .a
                                    .add(first_row * product.a_row + first_k * product.a_col),
                            ),
                            step: product.a_col,
                            across: product.a_row,
                            panel: product.a_row * kernels.rows,
                        };
                        let mut b = Source {
                            start: Shared::from_const(
                                product
                                    .b
                                    .add(first_k * product.b_row + first_col * product.b_col),
                            ),
                            step: product.b_row,
                            across: product.b_col,
                            panel: product.b_col * kernels.cols,
                        };
                        let a_packing = Packing {
                            from: a,
                            to: a_scratch,
                            count: rows,
                            depth,
                            width: kernels.rows,
                        };
                        let b_packing = Packing {
                            from: b,
                            to: b_scratch,
                            count: cols,
                            depth,
                            width: kernels.cols,
                        };
                        let a_tasks = if packs_a { a_packing.tasks() } else { 0 };
                        let b_tasks = if packs_b && first_row == 0 {
                            b_packing.tasks()
                        } else {
                            0
                        };
                        each(spread, a_tasks + b_tasks, |task| {
                            // SAFETY: see above; tasks pack disjoint panels.
                            match task.checked_sub(a_tasks) {
                                None => a_packing.pack(task, kernels),
                                Some(task) => b_packing.pack(task, kernels),
                            }
                        });
                        if packs_a {
                            a = a_packing.packed();
                        }
                        if packs_b {
                            b = b_packing.packed();
                        }
                        Multiplication {
                            product,
                            a,
                            b,
                            depth,
                            first_row,
                            rows,
                            first_col,
                            cols,
                            beta: if first_k == 0 { product.beta } else { T::ONE },
                            is_last,
                        }
                        .run(spread, kernels);
                    }
                }
            }
            first_k += depth;
            if first_k >= k {
                return Ok(());
            }
        }
    })
}

/// The product of a block of A with a block of B.
struct Multiplication<'a, T> {
    product: &'a Product<T>,
    a: Source<T>,
    b: Source<T>,
    depth: usize,
    first_row: usize,
    rows: usize,
    first_col: usize,
    cols: usize,
    beta: T,
    /// Whether this is the last block of k, after which the bias is added.
    is_last: bool,
}

impl<T: Float> Multiplication<'_, T> {
    /// # Safety
    /// Every address of the blocks is valid; nobody else uses their part of C.
    unsafe fn run(&self, spread: bool, kernels: &Kernels<T>) {
        let row_panels = self.rows.div_ceil(kernels.rows);
        let col_panels = self.cols.div_ceil(kernels.cols);
        let (row_step, col_step) = self.task_panels(spread, row_panels, col_panels);
        let (row_tasks, col_tasks) = (row_panels.div_ceil(row_step), col_panels.div_ceil(col_step));
        each(spread, row_tasks * col_tasks, |task| {
            let (first_row, first_col) = (task / col_tasks * row_step, task % col_tasks * col_step);
            // SAFETY: the panels exist; tasks have disjoint (row, column) panels of C.
            unsafe {
                self.panels(
                    first_row..(first_row + row_step).min(row_panels),
                    first_col..(first_col + col_step).min(col_panels),
                    kernels,
                );
            }
        });
    }

    /// Row and column panels of a task: those of both operands fit the second-level cache, and there are enough
    /// tasks, unless they become too small.
    fn task_panels(&self, spread: bool, row_panels: usize, col_panels: usize) -> (usize, usize) {
        let kernels = T::kernels();
        let (mut rows, mut cols) = (
            part(row_panels, 256 / kernels.rows, 1),
            part(col_panels, 8, 1),
        );
        let work = self.rows * self.cols * self.depth.max(1);
        let wanted = if spread {
            (work / (PARALLEL_WORK / 4)).clamp(1, 16)
        } else {
            1
        };
        while row_panels.div_ceil(rows) * col_panels.div_ceil(cols) < wanted {
            if rows * kernels.rows >= cols * kernels.cols / 2 && rows > 2 {
                rows = rows.div_ceil(2);
            } else if cols > 1 {
                cols = cols.div_ceil(2);
            } else {
                break;
            }
        }
        (rows, cols)
    }

    /// # Safety
    /// As for [`Self::run`]; the panels exist.
    unsafe fn panels(
        &self,
        row_panels: std::ops::Range<usize>,
        col_panels: std::ops::Range<usize>,
        kernels: &Kernels<T>,
    ) {
        let product = self.product;
        let mut a_rows = [0; MAX_ROWS];
        for (index, row) in a_rows.iter_mut().enumerate() {
            *row = index * self.a.across;
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
        // SAFETY: row < rows and col < cols, whose addresses the caller vouches for.
        unsafe {
            let bias = |start: *const T, offset: usize| {
                if self.is_last && !start.is_null() {
                    start.add(offset)
                } else {
                    std::ptr::null()
                }
            };
            for col_panel in col_panels {
                let in_block = col_panel * kernels.cols;
                let col = self.first_col + in_block;
                for row_panel in row_panels.clone() {
                    let row = self.first_row + row_panel * kernels.rows;
                    (kernels.tile)(&Tile {
                        rows: kernels.rows.min(self.rows - row_panel * kernels.rows),
                        cols: kernels.cols.min(self.cols - in_block),
                        depth: self.depth,
                        a: self.a.start.get().add(row_panel * self.a.panel),
                        a_rows: a_rows.as_ptr(),
                        a_steps: Steps::Stride(self.a.step),
                        b: self.b.start.get().add(col_panel * self.b.panel),
                        b_steps: Steps::Stride(self.b.step),
                        c: product.c.add(row * product.c_row + col * product.c_col),
                        c_stride: product.c_row,
                        store,
                        alpha: product.alpha,
                        beta: self.beta,
                        col_bias: bias(product.col_bias, col),
                        row_bias: bias(product.row_bias, row),
                    });
                }
            }
        }
    }
}
