//! Which kernel computes a matrix product on a device, and how many blocks share its sums: a function of the sizes alone.

use std::ffi::CStr;
use std::fmt;

use fireclay_core::DType;
use fireclay_cpu::gemm::{DOT_BLOCK, GemmShape, MatrixStrides, depth_of_blocks, sums_in_lanes};

/// A kernel of `matmul.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Tiles of C.
    Tile(&'static Tile),
    /// A dot product for each number of C.
    Dots,
    /// A weighted sum of rows.
    WeightedRows,
}

/// A kernel of tiles.
#[derive(Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of C.
    pub rows: usize,
    /// Columns of C.
    pub cols: usize,
    /// Threads of a block.
    threads: usize,
    name: &'static CStr,
}

/// How a product is computed. The bits do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kernel.
    pub kernel: Kernel,
    /// Steps of k whose sum is added to that of the steps before.
    pub depth: usize,
    /// Blocks that share the sums of a tile. If there are several, a second kernel adds their parts in order.
    pub splits: usize,
}

/// So many blocks keep a large device busy.
const ENOUGH_BLOCKS: usize = 256;

const fn tile(rows: usize, cols: usize, threads: usize, name: &'static CStr) -> Tile {
    Tile {
        rows,
        cols,
        threads,
        name,
    }
}

/// Tiles by dtype: those for a few rows or columns, then others from the largest to the smallest.
const F32: &[Tile] = &[
    tile(16, 128, 64, c"matmul_f32_16x128"),
    tile(128, 16, 64, c"matmul_f32_128x16"),
    tile(128, 128, 256, c"matmul_f32_128x128"),
    tile(128, 64, 128, c"matmul_f32_128x64"),
    tile(64, 64, 128, c"matmul_f32_64x64"),
    tile(32, 32, 64, c"matmul_f32_32x32"),
];
const F64: &[Tile] = &[
    tile(16, 64, 64, c"matmul_f64_16x64"),
    tile(64, 16, 64, c"matmul_f64_64x16"),
    tile(64, 64, 128, c"matmul_f64_64x64"),
    tile(32, 32, 64, c"matmul_f64_32x32"),
];
const I64: &[Tile] = &[
    tile(64, 64, 128, c"matmul_i64_64x64"),
    tile(32, 32, 64, c"matmul_i64_32x32"),
];

fn tiles_of(dtype: DType) -> &'static [Tile] {
    match dtype {
        DType::F32 => F32,
        DType::F64 => F64,
        _ => I64,
    }
}

/// The plan of a product of numbers of `dtype` (f32, f64 or i64).
pub fn plan(dtype: DType, shape: GemmShape, a: MatrixStrides, b: MatrixStrides) -> Plan {
    let GemmShape { batch, m, n, k } = shape;
    let depth = depth_of_blocks(k);
    let is_vector = m == 1 || n == 1;
    let (kernel, depth) = if is_vector && sums_in_lanes(m, n, k, (a.row, a.col), (b.row, b.col)) {
        (Kernel::Dots, DOT_BLOCK)
    } else if is_vector {
        (Kernel::WeightedRows, depth)
    } else {
        (tile_for(dtype, shape), depth)
    };
    let (rows, cols) = if kernel.is_of_vector() && n == 1 && m > 1 {
        (n, m)
    } else {
        (m, n)
    };
    let tiles = kernel.tiles(rows, cols, dtype.size()).saturating_mul(batch);
    let splits = if tiles >= ENOUGH_BLOCKS {
        1
    } else {
        (ENOUGH_BLOCKS / tiles.max(1)).clamp(1, k.div_ceil(depth).max(1))
    };
    Plan {
        kernel,
        depth,
        splits,
    }
}

/// The largest tile of which there are enough, or the one that wastes least.
fn tile_for(dtype: DType, GemmShape { batch, m, n, .. }: GemmShape) -> Kernel {
    let tiles = tiles_of(dtype);
    let suits = |tile: &&Tile| match (tile.rows, tile.cols) {
        (16, _) => m <= 16 && n > 32,
        (_, 16) => n <= 16 && m > 32,
        (rows, cols) => {
            let count = m.div_ceil(rows) * n.div_ceil(cols) * batch;
            m > rows / 2 && n > cols / 2 && (count >= ENOUGH_BLOCKS / 2 || rows == 32)
        }
    };
    let smallest = &tiles[tiles.len() - 1];
    Kernel::Tile(tiles.iter().find(suits).unwrap_or(smallest))
}

impl Kernel {
    /// Whether C is one row or one column.
    pub fn is_of_vector(self) -> bool {
        !matches!(self, Kernel::Tile(..))
    }

    /// How many blocks compute one product, of numbers of so many bytes.
    pub(crate) fn tiles(self, m: usize, n: usize, size: usize) -> usize {
        match self {
            Kernel::Tile(tile) => m.div_ceil(tile.rows) * n.div_ceil(tile.cols),
            Kernel::Dots => n.div_ceil(size),
            // Enough also for one number a thread.
            Kernel::WeightedRows => n.div_ceil(64),
        }
    }

    /// Whether the kernel can load 16 bytes of a matrix of these strides at once.
    pub(crate) fn takes_wide_b(self, b: MatrixStrides) -> bool {
        matches!(self, Kernel::Tile(..)) || b.col == 1
    }

    pub(crate) fn threads(self) -> usize {
        match self {
            Kernel::Tile(tile) => tile.threads,
            Kernel::Dots => 128,
            Kernel::WeightedRows => 64,
        }
    }

    pub(crate) fn name(self, dtype: DType) -> &'static CStr {
        let of = |names: [&'static CStr; 3]| match dtype {
            DType::F32 => names[0],
            DType::F64 => names[1],
            _ => names[2],
        };
        match self {
            Kernel::Tile(tile) => tile.name,
            Kernel::Dots => of([c"matmul_f32_dots", c"matmul_f64_dots", c"matmul_i64_dots"]),
            Kernel::WeightedRows => of([
                c"matmul_f32_weighted_rows",
                c"matmul_f64_weighted_rows",
                c"matmul_i64_weighted_rows",
            ]),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kernel {
            Kernel::Tile(tile) => write!(f, "tiles of {}x{}", tile.rows, tile.cols)?,
            Kernel::Dots => write!(f, "dot products")?,
            Kernel::WeightedRows => write!(f, "weighted rows")?,
        }
        write!(
            f,
            ", {} blocks share a sum, in parts of {}",
            self.splits, self.depth
        )
    }
}
