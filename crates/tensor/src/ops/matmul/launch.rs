//! Starts the kernels of matrix products on a device: the plan's kernel over a batch of products, and the one that adds parts.

use fireclay_core::{DType, Result};
use fireclay_cpu::gemm::{GemmShape, MatrixStrides};
use fireclay_cuda::vendor::{Matrix, Product};
use fireclay_cuda::{Argument, Library};
use smallvec::SmallVec;

use super::epilogue::{Activation, Epilogue};
use super::plan::{self, Abilities, Plan};
use crate::cuda_call::CudaCall;

/// The kernels of `matmul.cu`.
static KERNELS: Library = fireclay_cuda::library!("matmul");
/// The kernels of `matmul_mma.cu`.
static TENSOR_CORES: Library = fireclay_cuda::library!("matmul_mma");

/// What a kernel is told of its operands, as in `matmul.cuh`: whether neighbours along k lie nearest to each other, and whether 16 bytes
/// can be loaded or stored at once.
const A_ALONG_K: u64 = 1;
const A_WIDE: u64 = 2;
const B_ALONG_K: u64 = 4;
const B_WIDE: u64 = 8;
const C_WIDE: u64 = 16;
const RESIDUAL_WIDE: u64 = 32;
/// And whether more than a bias is applied to the sums.
const MORE: u64 = 64;

/// Dimensions of a batch that one launch takes.
pub(super) const BATCH_DIMS: usize = 4;

/// A dimension of a batch of products: its size, and from one matrix to the next in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchDim {
    pub(super) size: usize,
    pub(super) a: usize,
    pub(super) b: usize,
}

/// The sizes of the products of a launch, and where the result starts in elements.
pub(super) struct Products<'a> {
    /// From the outermost one, at most [`BATCH_DIMS`].
    pub(super) batch: &'a [BatchDim],
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) c: usize,
}

/// An operand: where its first matrix starts in elements, and how its matrices lie.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    pub(super) at: usize,
    pub(super) row: usize,
    pub(super) col: usize,
}

impl Matrices {
    pub(super) fn new(at: usize, strides: MatrixStrides) -> Matrices {
        Matrices {
            at,
            row: strides.row,
            col: strides.col,
        }
    }

    fn strides(self) -> MatrixStrides {
        MatrixStrides {
            batch: 0,
            row: self.row,
            col: self.col,
        }
    }
}

/// Starts products of the first two inputs; the result is contiguous.
pub(super) fn launch(
    call: &CudaCall<'_>,
    products: &Products<'_>,
    a: Matrices,
    b: Matrices,
    epilogue: &Epilogue,
) -> Result<()> {
    let Products {
        batch,
        mut m,
        mut n,
        k,
        c,
    } = *products;
    let mut dims: SmallVec<[BatchDim; BATCH_DIMS]> = batch.into();
    let mut residual_strides = epilogue.residual.map_or([0; 3], |(_, strides)| strides);
    // From one row to the next where there is one only: anything, so what lets products be one.
    if m == 1 {
        residual_strides[1] = residual_strides[0];
    }
    // As on the host: many rows with one matrix are one tall product.
    if let Some(last) = dims.last()
        && last.b == 0
        && last.a == m * a.row
        && residual_strides[0] == m * residual_strides[1]
    {
        m *= last.size;
        dims.pop();
    }
    let batch: usize = dims.iter().map(|dim| dim.size).product();
    if batch * m * n == 0 {
        return Ok(());
    }
    let dtype = call.dtype(0);
    if !(dtype.is_floating_point() && dtype.size() >= 2 || dtype == DType::I64) {
        return Err(call.no_kernel());
    }
    let allow_tf32 = crate::precision::allow_tf32();
    // The vendor's library takes batches of one dimension, and is asked for a bias at most.
    if dims.len() <= 1 && epilogue.is_bias() {
        let (a_step, b_step) = dims.first().map_or((0, 0), |dim| (dim.a, dim.b));
        let of = |matrices: Matrices, batch: usize| Matrix {
            batch,
            row: matrices.row,
            col: matrices.col,
        };
        let product = Product {
            dtype,
            tf32: allow_tf32 && dtype == DType::F32,
            batch,
            m,
            n,
            k,
            a: of(a, a_step),
            b: of(b, b_step),
        };
        // SAFETY: the operands have these sizes along these strides from these places on.
        if unsafe { call.product_by_vendor(&product, [a.at, b.at, c], epilogue.bias) }? {
            return Ok(());
        }
    }
    let shape = GemmShape { batch, m, n, k };
    let abilities = Abilities {
        capability: call.capability(),
        allow_tf32,
    };
    let plan = plan::plan(dtype, shape, a.strides(), b.strides(), abilities);
    let address = |operand: Argument<'static>, place: usize| match operand {
        Argument::Address(address) => address + (place * dtype.size()) as u64,
        _ => 0,
    };
    let mut left = Side {
        address: address(call.input(0), a.at),
        across: a.row,
        along: a.col,
        lines: m,
        steps: dims.iter().map(|dim| dim.a).collect(),
    };
    let mut right = Side {
        address: address(call.input(1), b.at),
        across: b.col,
        along: b.row,
        lines: n,
        steps: dims.iter().map(|dim| dim.b).collect(),
    };
    let c = address(call.output(0), c);
    let input = |index: Option<usize>| index.map_or(0, |index| address(call.input(index), 0));
    let bias = input(epilogue.bias);
    let residual = input(epilogue.residual.map(|(index, _)| index));
    let kept = (epilogue.kept).map_or(0, |index| address(call.output(index), 0));
    let swaps = plan.kernel.swaps(m, n);
    if swaps {
        (m, n) = (n, m);
        (left, right) = (right, left);
        residual_strides.swap(1, 2);
    }
    let scratch = match plan.splits {
        1 => None,
        _ => {
            let count = k.div_ceil(plan.depth) * batch * m * n;
            Some(call.scratch(count, plan::sum_dtype(dtype))?)
        }
    };
    let wide = plan.wide();
    let right_strides = MatrixStrides {
        batch: 0,
        row: right.along,
        col: right.across,
    };
    let flags = [
        (A_ALONG_K, left.along == 1),
        (A_WIDE, left.is_wide(&plan, &dims, k)),
        (B_ALONG_K, right.along == 1),
        (
            B_WIDE,
            plan.kernel.takes_wide_b(right_strides) && right.is_wide(&plan, &dims, k),
        ),
        (
            C_WIDE,
            c.is_multiple_of(16) && kept.is_multiple_of(16) && n.is_multiple_of(wide),
        ),
        (
            RESIDUAL_WIDE,
            residual.is_multiple_of(16)
                && residual_strides[2] == 1
                && (residual_strides[..2].iter()).all(|stride| stride.is_multiple_of(wide)),
        ),
        (MORE, !epilogue.is_bias()),
    ];
    let flags = (flags.iter())
        .filter(|(_, is_so)| *is_so)
        .fold(0, |all, (flag, _)| all | flag);
    let parts = scratch.as_ref().map_or(0, |buffer| buffer.address());
    let sizes = [batch, m, n, k, plan.depth, plan.splits];
    let strides = [left.across, left.along, right.along, right.across];
    // Dimensions that there aren't come first, of size 1.
    let padded = |numbers: &mut dyn Iterator<Item = usize>, rest: usize| {
        let mut all = [rest; BATCH_DIMS];
        let missing = BATCH_DIMS - dims.len();
        (all[missing..].iter_mut())
            .zip(numbers)
            .for_each(|(to, number)| *to = number);
        all
    };
    let numbers = (sizes.into_iter())
        .chain(strides)
        .chain([usize::from(!swaps)])
        .map(|number| number as u64)
        .chain([flags, residual, kept])
        .chain(residual_strides.map(|stride| stride as u64))
        .chain([epilogue.alpha, epilogue.beta].map(f64::to_bits))
        .chain([epilogue.activation.map_or(0, Activation::number)]);
    let batch_numbers = padded(&mut dims.iter().map(|dim| dim.size), 1)
        .into_iter()
        .chain(padded(&mut left.steps.iter().copied(), 0))
        .chain(padded(&mut right.steps.iter().copied(), 0))
        .map(|number| number as u64);
    // The structure `Product` of matmul.cuh.
    let numbers = [left.address, right.address, c, parts, bias]
        .into_iter()
        .chain(numbers)
        .chain(batch_numbers);
    let bytes: Vec<u8> = numbers.flat_map(u64::to_ne_bytes).collect();
    let arguments = [Argument::Bytes(&bytes)];
    if k > 0 {
        let tiles = plan.tiles(m, n, flags & B_WIDE != 0);
        let library = match plan.uses_tensor_cores() {
            true => &TENSOR_CORES,
            false => &KERNELS,
        };
        let blocks = batch * plan.splits * tiles;
        // SAFETY: the kernel's only parameter is this structure; it reads within the sizes, which the operands have along these
        // strides, and writes C or the parts, for all of which the scratch memory has room.
        unsafe {
            call.launch(
                library,
                plan.name(),
                [blocks, plan.kernel.threads()],
                &arguments,
            )?
        };
    }
    if k == 0 || plan.splits > 1 {
        // SAFETY: as above; it reads the parts that the first kernel wrote, one after the other.
        unsafe {
            call.launch(
                &KERNELS,
                plan.name_of_add_parts(),
                [(batch * m * n).div_ceil(256), 256],
                &arguments,
            )?
        };
    }
    Ok(())
}

/// One side of a product as a kernel sees it: `lines` rows of A, or columns of B, that lie along k.
struct Side {
    address: u64,
    /// From one line to the next.
    across: usize,
    /// From one step of k to the next.
    along: usize,
    lines: usize,
    /// From one matrix to the next along each dimension of the batch.
    steps: SmallVec<[usize; BATCH_DIMS]>,
}

impl Side {
    /// Whether it can be loaded 16 bytes at a time.
    fn is_wide(&self, plan: &Plan, batch: &[BatchDim], k: usize) -> bool {
        let wide = plan.wide();
        let mut steps = batch.iter().zip(&self.steps);
        plan.takes_lines_at_once(self.across, self.along, self.lines, k)
            && self.address.is_multiple_of(16)
            && steps.all(|(dim, step)| dim.size == 1 || step.is_multiple_of(wide))
    }
}
