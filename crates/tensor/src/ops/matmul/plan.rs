//! Which kernel computes a matrix product on a device, and how many blocks share its sums: a function of sizes, strides and of what
//! the device can do.

use std::ffi::CStr;
use std::fmt;

use fireclay_core::DType;
use fireclay_cpu::gemm::{DOT_BLOCK, GemmShape, MatrixStrides, depth_of_blocks, sums_in_lanes};

/// How a product is computed.
///
/// ```
/// use fireclay_cpu::gemm::{GemmShape, MatrixStrides};
/// use fireclay_tensor::DType;
/// use fireclay_tensor::ops::matmul::plan::{Abilities, plan};
///
/// let shape = GemmShape { batch: 1, m: 256, n: 256, k: 4096 };
/// let (a, b) = (MatrixStrides::row_major(256, 4096), MatrixStrides::row_major(4096, 256));
/// let a100 = Abilities { capability: (8, 0), allow_tf32: false };
/// assert_eq!(
///     plan(DType::BF16, shape, a, b, a100).to_string(),
///     "matmul_mma_bf16_64x64_nn: tiles of 64x64 on tensor cores, 16 blocks share a sum, in parts of 256"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The dtype of the operands.
    pub dtype: DType,
    /// The kernel.
    pub kernel: Kernel,
    /// Steps of k whose sum is added to that of the steps before.
    pub depth: usize,
    /// Blocks that share the sums of a tile. If there are several, a second kernel adds their parts in order.
    pub splits: usize,
}

/// A family of kernels of `matmul.cu` or `matmul_mma.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Tiles of C, by the CUDA cores: with the bits of the host.
    Tile(&'static Tile),
    /// Tiles of C, by the tensor cores.
    TensorCores(&'static Tile),
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

/// What products may use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The device's compute capability, major and minor.
    pub capability: (u32, u32),
    /// Whether products of f32 may round their operands to tf32.
    pub allow_tf32: bool,
}

/// So many blocks keep a large device busy.
const ENOUGH_BLOCKS: usize = 256;
/// What tensor cores sum in one part, at least: less is not worth storing the part. A multiple of all their steps.
const LEAST_DEPTH: usize = 256;
/// Blocks of tensor cores that share a sum, at most.
const MOST_SPLITS: usize = 16;

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
const BF16: &[Tile] = &[
    tile(64, 64, 128, c"matmul_bf16_64x64"),
    tile(32, 32, 64, c"matmul_bf16_32x32"),
];
const F16: &[Tile] = &[
    tile(64, 64, 128, c"matmul_f16_64x64"),
    tile(32, 32, 64, c"matmul_f16_32x32"),
];

/// The tiles of the tensor cores, from the largest to the smallest, for matrices that lie by rows (n) or by columns (t).
macro_rules! mma_tiles {
    ($dtype:literal: $($lie:literal)*) => {
        [$(&[
            tile(128, 128, 256, name(concat!("matmul_mma_", $dtype, "_128x128_", $lie, "\0"))),
            tile(64, 64, 128, name(concat!("matmul_mma_", $dtype, "_64x64_", $lie, "\0"))),
            tile(32, 32, 64, name(concat!("matmul_mma_", $dtype, "_32x32_", $lie, "\0"))),
        ]),*]
    };
}
const MMA_BF16: [&[Tile]; 4] = mma_tiles!("bf16": "nn" "nt" "tn" "tt");
const MMA_F16: [&[Tile]; 4] = mma_tiles!("f16": "nn" "nt" "tn" "tt");
const MMA_TF32: [&[Tile]; 4] = mma_tiles!("tf32": "nn" "nt" "tn" "tt");

const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with a zero"),
    }
}

fn tiles_of(dtype: DType) -> &'static [Tile] {
    match dtype {
        DType::F32 => F32,
        DType::F64 => F64,
        DType::BF16 => BF16,
        DType::F16 => F16,
        _ => I64,
    }
}

/// The tiles of the tensor cores for matrices that lie so, if the device and the user let them be used.
fn mma_tiles_of(
    dtype: DType,
    a: MatrixStrides,
    b: MatrixStrides,
    abilities: Abilities,
) -> Option<&'static [Tile]> {
    let tiles = match dtype {
        _ if abilities.capability < (8, 0) => return None,
        DType::BF16 => MMA_BF16,
        DType::F16 => MMA_F16,
        DType::F32 if abilities.allow_tf32 => MMA_TF32,
        _ => return None,
    };
    Some(tiles[usize::from(!a_lies_along_k(a)) * 2 + usize::from(b_lies_along_k(b))])
}

/// Whether neighbours along k lie nearest to each other in A.
pub(super) fn a_lies_along_k(a: MatrixStrides) -> bool {
    a.col == 1 || a.row != 1
}

/// Whether neighbours along k lie nearest to each other in B.
pub(super) fn b_lies_along_k(b: MatrixStrides) -> bool {
    b.row == 1 && b.col != 1
}

/// The plan of a product of numbers of `dtype`: f32, f64, i64, bf16 or f16. Only that of tensor cores has another order of sums than
/// the host.
pub fn plan(
    dtype: DType,
    shape: GemmShape,
    a: MatrixStrides,
    b: MatrixStrides,
    abilities: Abilities,
) -> Plan {
    let GemmShape { batch, m, n, k } = shape;
    let depth = depth_of_blocks(k);
    let is_vector = m == 1 || n == 1;
    let (kernel, depth) = if is_vector && sums_in_lanes(m, n, k, (a.row, a.col), (b.row, b.col)) {
        (Kernel::Dots, DOT_BLOCK)
    } else if is_vector {
        (Kernel::WeightedRows, depth)
    } else if let Some(tiles) = mma_tiles_of(dtype, a, b, abilities) {
        return mma_plan(dtype, tiles, shape);
    } else {
        (tile_for(dtype, shape), depth)
    };
    let (rows, cols) = if kernel.swaps(m, n) { (n, m) } else { (m, n) };
    let mut plan = Plan {
        dtype,
        kernel,
        depth,
        splits: 1,
    };
    let tiles = plan.tiles(rows, cols, false).saturating_mul(batch);
    if tiles < ENOUGH_BLOCKS {
        plan.splits = (ENOUGH_BLOCKS / tiles.max(1)).clamp(1, k.div_ceil(depth).max(1));
    }
    plan
}

/// The largest tile of which there are enough, or the one that wastes least.
fn tile_for(dtype: DType, GemmShape { batch, m, n, .. }: GemmShape) -> Kernel {
    let tiles = tiles_of(dtype);
    let suits = |tile: &&Tile| match (tile.rows, tile.cols) {
        (16, _) => m <= 16 && n > 32,
        (_, 16) => n <= 16 && m > 32,
        (rows, cols) => {
            let tiles = m.div_ceil(rows).saturating_mul(n.div_ceil(cols));
            let count = tiles.saturating_mul(batch);
            m > rows / 2 && n > cols / 2 && (count >= ENOUGH_BLOCKS / 2 || rows == 32)
        }
    };
    let smallest = &tiles[tiles.len() - 1];
    Kernel::Tile(tiles.iter().find(suits).unwrap_or(smallest))
}

/// The largest tile of which there are enough, also by sharing sums, and so many blocks for each that the device is busy.
fn mma_plan(dtype: DType, tiles: &'static [Tile], shape: GemmShape) -> Plan {
    let GemmShape { batch, m, n, k } = shape;
    let most_splits = (k / LEAST_DEPTH).clamp(1, MOST_SPLITS);
    let count = |tile: &Tile| {
        let tiles = m.div_ceil(tile.rows).saturating_mul(n.div_ceil(tile.cols));
        tiles.saturating_mul(batch)
    };
    let suits = |tile: &&Tile| {
        let blocks = count(tile).saturating_mul(most_splits);
        m > tile.rows / 2 && n > tile.cols / 2 && blocks >= ENOUGH_BLOCKS / 2
    };
    let tile = tiles.iter().find(suits).unwrap_or(&tiles[tiles.len() - 1]);
    let splits = (ENOUGH_BLOCKS / count(tile).max(1)).clamp(1, most_splits);
    let depth = match splits {
        1 => k.max(1),
        _ => k.div_ceil(splits).next_multiple_of(LEAST_DEPTH / 4),
    };
    Plan {
        dtype,
        kernel: Kernel::TensorCores(tile),
        depth,
        splits: k.div_ceil(depth).max(1),
    }
}

impl Plan {
    /// Whether sums have another order than on the host.
    pub fn uses_tensor_cores(&self) -> bool {
        matches!(self.kernel, Kernel::TensorCores(_))
    }

    pub(crate) fn name(&self) -> &'static CStr {
        let of = |names: [&'static CStr; 5]| names[number_of(self.dtype)];
        match self.kernel {
            Kernel::Tile(tile) | Kernel::TensorCores(tile) => tile.name,
            Kernel::Dots => of([
                c"matmul_f32_dots",
                c"matmul_f64_dots",
                c"matmul_i64_dots",
                c"matmul_bf16_dots",
                c"matmul_f16_dots",
            ]),
            Kernel::WeightedRows => of([
                c"matmul_f32_weighted_rows",
                c"matmul_f64_weighted_rows",
                c"matmul_i64_weighted_rows",
                c"matmul_bf16_weighted_rows",
                c"matmul_f16_weighted_rows",
            ]),
        }
    }

    /// The kernel that adds the parts of several blocks, or makes sums of nothing.
    pub(crate) fn name_of_add_parts(&self) -> &'static CStr {
        [
            c"matmul_f32_add_parts",
            c"matmul_f64_add_parts",
            c"matmul_i64_add_parts",
            c"matmul_bf16_add_parts",
            c"matmul_f16_add_parts",
        ][number_of(self.dtype)]
    }

    /// How many numbers the kernel moves at once, where they lie so that it can.
    pub(crate) fn wide(&self) -> usize {
        match self.kernel {
            Kernel::TensorCores(_) => 16 / self.dtype.size(),
            _ => 16 / sum_dtype(self.dtype).size(),
        }
    }
}

impl Plan {
    /// Steps of k whose operands are under way or wait in shared memory while others are multiplied, and those that are; 1 where
    /// operands go straight to registers.
    pub fn stages(&self) -> usize {
        match self.kernel {
            Kernel::TensorCores(_) => 3,
            Kernel::Tile(_) => 2,
            Kernel::Dots | Kernel::WeightedRows => 1,
        }
    }

    /// The tile, where the kernel computes one.
    pub fn tile(&self) -> Option<&'static Tile> {
        match self.kernel {
            Kernel::Tile(tile) | Kernel::TensorCores(tile) => Some(tile),
            Kernel::Dots | Kernel::WeightedRows => None,
        }
    }

    /// The kernel's name in the bundle of PTX.
    pub fn kernel_name(&self) -> String {
        self.name().to_string_lossy().into_owned()
    }

    /// The name of the kernel that runs after it and adds parts, or makes sums of nothing, where there is one.
    pub fn second_kernel_name(&self, k: usize) -> Option<String> {
        let name = self.name_of_add_parts().to_string_lossy().into_owned();
        (k == 0 || self.splits > 1).then_some(name)
    }

    /// How many blocks compute one product or a part of its sums, of [m, n], where they load several numbers of B at once or not.
    pub(crate) fn tiles(&self, m: usize, n: usize, loads_b_wide: bool) -> usize {
        match self.kernel {
            Kernel::Tile(tile) | Kernel::TensorCores(tile) => {
                m.div_ceil(tile.rows).saturating_mul(n.div_ceil(tile.cols))
            }
            Kernel::Dots => n.div_ceil(sum_dtype(self.dtype).size()),
            Kernel::WeightedRows if loads_b_wide => n.div_ceil(64 * self.wide()),
            Kernel::WeightedRows => n.div_ceil(64),
        }
    }

    /// Blocks of the first kernel, which moves so many numbers at once, see [`Plan::moves_at_once`].
    pub fn blocks(
        &self,
        GemmShape { batch, m, n, k }: GemmShape,
        [of_a, of_b, _]: [usize; 3],
    ) -> usize {
        let is_turned = self.kernel.swaps(m, n);
        let (rows, cols, of_b) = if is_turned {
            (n, m, of_a)
        } else {
            (m, n, of_b)
        };
        match k {
            0 => 0,
            _ => (self.tiles(rows, cols, of_b > 1))
                .saturating_mul(batch)
                .saturating_mul(self.splits),
        }
    }

    /// How many numbers of A, of B and of the result are moved at once, where matrices start at multiples of 16 bytes or not. Where
    /// parts of sums are added afterwards, numbers of the result come one by one.
    pub fn moves_at_once(
        &self,
        GemmShape { m, n, k, .. }: GemmShape,
        a: MatrixStrides,
        b: MatrixStrides,
        is_aligned: bool,
    ) -> [usize; 3] {
        let (left, right) = ((a.row, a.col, m), (b.col, b.row, n));
        let is_turned = self.kernel.swaps(m, n);
        let (left, right, n) = if is_turned {
            (right, left, m)
        } else {
            (left, right, n)
        };
        let of = |(across, along, lines)| {
            is_aligned && self.takes_lines_at_once(across, along, lines, k)
        };
        let of_right = of(right);
        let at_once = match self.kernel {
            Kernel::Dots => [false; 3],
            // A vector's own numbers come one by one.
            Kernel::WeightedRows => [false, right.0 == 1 && of_right, right.0 == 1 && of_right],
            Kernel::Tile(_) | Kernel::TensorCores(_) => [of(left), of_right, is_aligned],
        };
        let [of_a, of_b, of_result] = if is_turned {
            [at_once[1], at_once[0], at_once[2]]
        } else {
            at_once
        };
        let wide = self.wide();
        let of_result = of_result && n.is_multiple_of(wide) && self.splits == 1;
        [of_a, of_b, of_result].map(|is_so| if is_so { wide } else { 1 })
    }

    /// Whether lines of an operand, rows of A or columns of B, can be loaded 16 bytes at a time as far as their strides go: from
    /// one to the next, and along k.
    pub(crate) fn takes_lines_at_once(
        &self,
        across: usize,
        along: usize,
        lines: usize,
        k: usize,
    ) -> bool {
        let wide = self.wide();
        let (other, count) = match along {
            1 => (across, lines),
            _ => (along, k),
        };
        (along == 1 || across == 1)
            && (count == 1 || other.is_multiple_of(wide))
            && (self.splits == 1 || self.depth.is_multiple_of(wide))
    }

    /// Why it is this kernel, this tile, and so many blocks a sum: a sentence each.
    pub fn why(&self, shape: GemmShape, abilities: Abilities) -> Vec<String> {
        let Abilities {
            capability: (major, minor),
            allow_tf32,
        } = abilities;
        let mut why = Vec::new();
        let dtype = self.dtype;
        why.push(match self.kernel {
            Kernel::Dots => {
                "the result is one row or column, and the matrix lies along k: dot products".to_owned()
            }
            Kernel::WeightedRows => {
                "the result is one row or column, and the matrix lies across k: a weighted sum of its rows"
                    .to_owned()
            }
            Kernel::TensorCores(_) if dtype == DType::F32 => {
                "products of f32 may use tf32: tensor cores".to_owned()
            }
            Kernel::TensorCores(_) => {
                format!("{dtype} on a device of capability 8.0 or more: tensor cores")
            }
            Kernel::Tile(_) if dtype.is_half() => {
                format!("capability {major}.{minor} is below 8.0, so no tensor cores")
            }
            Kernel::Tile(_) if dtype == DType::F32 && allow_tf32 => {
                format!("capability {major}.{minor} is below 8.0, so no tf32: the bits of the host")
            }
            Kernel::Tile(_) => format!("{dtype} is summed in the order of the host, with its bits"),
        });
        if let Kernel::Tile(tile) | Kernel::TensorCores(tile) = self.kernel {
            let GemmShape { batch, m, n, .. } = shape;
            let count = self.tiles(m, n, false).saturating_mul(batch);
            let (rows, cols) = (tile.rows, tile.cols);
            why.push(match (rows, cols) {
                (16, _) => format!("few rows: tiles of {rows}x{cols}, of which there are {count}"),
                (_, 16) => format!("few columns: tiles of {rows}x{cols}, of which there are {count}"),
                (32, 32) => format!("the smallest tile, of which there are {count}: of larger ones there are too few, or most of them is empty"),
                _ => format!("the largest tile of which there are enough for a large device: {count}"),
            });
        }
        why.push(match self.splits {
            1 => "one block a sum: there are enough tiles, or k is too short to share".to_owned(),
            splits => format!(
                "{splits} blocks share a sum, since tiles alone leave much of a large device idle"
            ),
        });
        why
    }
}

/// In what numbers of `dtype` are summed.
pub(super) fn sum_dtype(dtype: DType) -> DType {
    if dtype.is_half() { DType::F32 } else { dtype }
}

fn number_of(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::BF16 => 3,
        DType::F16 => 4,
        _ => 2,
    }
}

impl Kernel {
    /// Whether C is one row or one column.
    pub fn is_of_vector(self) -> bool {
        matches!(self, Kernel::Dots | Kernel::WeightedRows)
    }

    /// Whether it computes the transposed product [m, n], with A and B changing places: it takes a row with a matrix.
    pub(crate) fn swaps(self, m: usize, n: usize) -> bool {
        self.is_of_vector() && n == 1 && m > 1
    }

    /// Whether the kernel can load 16 bytes of a matrix of these strides at once.
    pub(crate) fn takes_wide_b(self, b: MatrixStrides) -> bool {
        !self.is_of_vector() || b.col == 1
    }

    pub(crate) fn threads(self) -> usize {
        match self {
            Kernel::Tile(tile) | Kernel::TensorCores(tile) => tile.threads,
            Kernel::Dots => 128,
            Kernel::WeightedRows => 64,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name().to_string_lossy())?;
        match self.kernel {
            Kernel::Tile(tile) => write!(f, "tiles of {}x{}", tile.rows, tile.cols)?,
            Kernel::TensorCores(tile) => {
                write!(f, "tiles of {}x{} on tensor cores", tile.rows, tile.cols)?;
            }
            Kernel::Dots => write!(f, "dot products")?,
            Kernel::WeightedRows => write!(f, "weighted rows")?,
        }
        match self.splits {
            1 => write!(f, ", one block a sum"),
            splits => write!(
                f,
                ", {splits} blocks share a sum, in parts of {}",
                self.depth
            ),
        }
    }
}
