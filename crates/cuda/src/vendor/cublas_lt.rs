//! Matrix products by cuBLASLt: its functions, how a row-major product becomes one of its problems, and the calls.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Mutex;

use cudarc::driver::sys::CUstream;
use fireclay_core::{DType, Result};
use libloading::Library;

use super::find::Found;
use super::functions::{Made, Opaque, Status, functions};
use super::{failed, lock};
use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Purpose};
use crate::stream::Stream;

const ALLOC_FAILED: Status = 3;
const NOT_SUPPORTED: Status = 15;

/// The numbers of the C interface that are in use. A test holds them against cudarc's.
mod number {
    pub(super) const REAL_F32: i32 = 0;
    pub(super) const REAL_F64: i32 = 1;
    pub(super) const REAL_F16: i32 = 2;
    pub(super) const REAL_BF16: i32 = 14;
    pub(super) const COMPUTE_F32: i32 = 68;
    pub(super) const COMPUTE_F64: i32 = 70;
    pub(super) const COMPUTE_TF32: i32 = 77;
    pub(super) const OP_N: i32 = 0;
    pub(super) const OP_T: i32 = 1;
    pub(super) const EPILOGUE_BIAS: i32 = 4;
    pub(super) const DESC_TRANSA: i32 = 3;
    pub(super) const DESC_TRANSB: i32 = 4;
    pub(super) const DESC_EPILOGUE: i32 = 7;
    pub(super) const DESC_BIAS_POINTER: i32 = 8;
    pub(super) const LAYOUT_BATCH_COUNT: i32 = 5;
    pub(super) const LAYOUT_BATCH_OFFSET: i32 = 6;
    pub(super) const PREFERENCE_WORKSPACE: i32 = 1;
    pub(super) const PREFERENCE_ALIGNMENT_A: i32 = 5;
}

/// The most bytes that an algorithm may use beside its operands.
static WORKSPACE: usize = 32 << 20;
/// How many problems are remembered, so that shapes that change for ever don't fill the memory.
const REMEMBERED: usize = 4096;

/// An algorithm as the library describes it (`cublasLtMatmulAlgo_t`).
type Algorithm = [u64; 8];

/// What the library proposes for a problem (`cublasLtMatmulHeuristicResult_t`). Versions 12 and 13 have the same structures and numbers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Proposal {
    algorithm: Algorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

functions! {
    struct Functions {
        create = cublasLtCreate(handle: *mut Opaque);
        desc_create = cublasLtMatmulDescCreate(desc: *mut Opaque, compute: c_int, scale: c_int);
        desc_destroy = cublasLtMatmulDescDestroy(desc: Opaque);
        desc_set = cublasLtMatmulDescSetAttribute(desc: Opaque, attribute: c_int, value: *const c_void, bytes: usize);
        layout_create = cublasLtMatrixLayoutCreate(layout: *mut Opaque, dtype: c_int, rows: u64, cols: u64, ld: i64);
        layout_destroy = cublasLtMatrixLayoutDestroy(layout: Opaque);
        layout_set = cublasLtMatrixLayoutSetAttribute(layout: Opaque, attribute: c_int, value: *const c_void, bytes: usize);
        preference_create = cublasLtMatmulPreferenceCreate(preference: *mut Opaque);
        preference_destroy = cublasLtMatmulPreferenceDestroy(preference: Opaque);
        preference_set = cublasLtMatmulPreferenceSetAttribute(
            preference: Opaque, attribute: c_int, value: *const c_void, bytes: usize,
        );
        heuristic = cublasLtMatmulAlgoGetHeuristic(
            handle: Opaque, desc: Opaque, a: Opaque, b: Opaque, c: Opaque, d: Opaque, preference: Opaque, asked: c_int,
            proposals: *mut Proposal, got: *mut c_int,
        );
        matmul = cublasLtMatmul(
            handle: Opaque, desc: Opaque, alpha: *const c_void, a: *const c_void, a_layout: Opaque, b: *const c_void,
            b_layout: Opaque, beta: *const c_void, c: *const c_void, c_layout: Opaque, d: *mut c_void, d_layout: Opaque,
            algorithm: *const Algorithm, workspace: *mut c_void, workspace_bytes: usize, stream: CUstream,
        );
    }
}

/// How a matrix of a product lies: strides in elements from one matrix of the batch, row or column to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// From one matrix of the batch to the next; 0 if all products share it.
    pub batch: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub col: usize,
}

/// A batch of products `[m, k] @ [k, n]` whose results are row-major and lie behind each other.
///
/// cuBLASLt takes those of f32, f64, bf16 and f16 matrices that lie by rows or by columns, at any distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// The dtype of all operands and the result. 16-bit ones are summed as f32.
    pub dtype: DType,
    /// Whether f32 may be rounded to TF32 before it is multiplied.
    pub tf32: bool,
    /// How many products.
    pub batch: usize,
    /// Rows of the left operand.
    pub m: usize,
    /// Columns of the right one.
    pub n: usize,
    /// The size that is summed over.
    pub k: usize,
    /// How the left operand lies.
    pub a: Matrix,
    /// How the right operand lies.
    pub b: Matrix,
}

/// Addresses of a product's operands on the device.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The left operand.
    pub a: u64,
    /// The right one.
    pub b: u64,
    /// `n` numbers, contiguous, that are added to every row.
    pub bias: Option<u64>,
    /// The result.
    pub result: u64,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { batch, m, n, k, .. } = self;
        let tf32 = if self.tf32 { " as tf32" } else { "" };
        let strides =
            |matrix: Matrix| format!("({}, {}, {})", matrix.batch, matrix.row, matrix.col);
        write!(
            f,
            "{}{tf32}, batch {batch}, [{m}, {k}] @ [{k}, {n}], strides {} and {}",
            self.dtype,
            strides(self.a),
            strides(self.b)
        )
    }
}

/// A matrix as the library sees it: by columns, or the transpose of one that lies by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByColumns {
    transposed: bool,
    rows: u64,
    cols: u64,
    ld: i64,
    batch_offset: i64,
}

impl ByColumns {
    /// The transpose of a `[rows, cols]` matrix that lies so, if it lies by rows or by columns.
    ///
    /// The library's matrices lie by columns. What lies by rows is the transpose of one that lies by columns, and
    /// `C = A @ B` by rows is `C^T = B^T @ A^T` by columns: operands change places, and so each is wanted transposed.
    fn transpose_of(matrix: Matrix, rows: usize, cols: usize) -> Option<ByColumns> {
        let Matrix { batch, row, col } = matrix;
        let distance = |stride: usize, count: usize, within: usize| {
            if count == 1 { within } else { stride }.max(1)
        };
        let by_rows = (col == 1 || cols == 1) && (row >= cols || rows == 1);
        let by_cols = (row == 1 || rows == 1) && (col >= rows || cols == 1);
        let (transposed, stored, ld) = match (by_rows, by_cols) {
            (true, _) => (false, (cols, rows), distance(row, rows, cols)),
            (false, true) => (true, (rows, cols), distance(col, cols, rows)),
            (false, false) => return None,
        };
        Some(ByColumns {
            transposed,
            rows: stored.0 as u64,
            cols: stored.1 as u64,
            ld: i64::try_from(ld).ok()?,
            batch_offset: i64::try_from(batch).ok()?,
        })
    }
}

/// A problem as it is remembered: the device, the product, whether there is a bias, and how the operands are aligned.
type Key = (usize, Product, bool, [u32; 4]);

/// cuBLASLt, loaded.
pub struct CublasLt {
    functions: Functions,
    found: Found,
    /// By device.
    handles: Mutex<HashMap<usize, Handle>>,
    /// What the library proposed for a problem; nothing if it can't compute it.
    proposals: Mutex<HashMap<Key, Option<Proposal>>>,
}

#[derive(Clone, Copy)]
struct Handle(Opaque);

// SAFETY: the library lets every thread use a handle.
unsafe impl Send for Handle {}

impl CublasLt {
    pub(super) fn new(library: &Library, found: Found) -> Result<CublasLt, String> {
        Ok(CublasLt {
            functions: Functions::load(library)?,
            found,
            handles: Mutex::default(),
            proposals: Mutex::default(),
        })
    }

    /// Where it was found, and its version.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// How many problems it was asked for and can't compute.
    pub(super) fn refusals(&self) -> usize {
        let proposals = lock(&self.proposals);
        proposals.values().filter(|known| known.is_none()).count()
    }

    /// Computes a product, if the library can; whether it does.
    ///
    /// # Safety
    /// As for [`product`](super::product).
    ///
    /// # Errors
    /// If a call fails.
    pub(super) unsafe fn product(
        &self,
        stream: &Stream,
        op: &'static str,
        product: &Product,
        operands: Operands,
    ) -> Result<bool> {
        let Some(problem) = Problem::of(product) else {
            return Ok(false);
        };
        let gpu = stream.gpu();
        gpu.bound()?;
        let call = Call {
            library: self,
            gpu,
            op,
            product,
        };
        let handle = call.handle()?;
        let made = call.describe(&problem, &operands)?;
        let addresses = [
            operands.b,
            operands.a,
            operands.result,
            operands.bias.unwrap_or(0),
        ];
        // The library looks at no more than 256 bytes.
        let alignments = addresses.map(|address| 1 << address.trailing_zeros().min(8));
        let key = (gpu.ordinal(), *product, operands.bias.is_some(), alignments);
        let known = lock(&self.proposals).get(&key).copied();
        let proposal = match known {
            Some(known) => known,
            None => {
                let proposal = call.propose(handle, &made, &alignments)?;
                let mut proposals = lock(&self.proposals);
                if proposals.len() >= REMEMBERED {
                    proposals.clear();
                }
                proposals.insert(key, proposal);
                proposal
            }
        };
        let Some(proposal) = proposal else {
            return Ok(false);
        };
        let workspace = DeviceBuffer::allocate(stream, proposal.workspace, Purpose::Workspaces)?;
        let (one, zero) = ([1.0f32, 0.0], [1.0f64, 0.0]);
        let scalar = |index: usize| -> *const c_void {
            match product.dtype {
                DType::F64 => (&raw const zero[index]).cast(),
                _ => (&raw const one[index]).cast(),
            }
        };
        let [b, a, result, _] = addresses.map(|address| address as *mut c_void);
        // SAFETY: handle and descriptions are alive, the scalars are of the scale's type; the caller vouches for the operands,
        // which the descriptions reach no further than. The workspace is used again only behind this work in the stream.
        let status = unsafe {
            (self.functions.matmul)(
                handle,
                made.desc.raw,
                scalar(0),
                b,
                made.first.raw,
                a,
                made.second.raw,
                scalar(1),
                result,
                made.result.raw,
                result,
                made.result.raw,
                &proposal.algorithm,
                workspace.address() as *mut c_void,
                proposal.workspace,
                stream.handle(),
            )
        };
        call.check("cublasLtMatmul", status)?;
        gpu.note_launch(op, (product.batch * product.m * product.n) as u64);
        Ok(true)
    }
}

impl fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CublasLt({:?})", self.found)
    }
}

/// A product in the library's terms.
struct Problem {
    dtype: c_int,
    compute: c_int,
    scale: c_int,
    first: ByColumns,
    second: ByColumns,
    result: ByColumns,
    batch: i32,
}

impl Problem {
    /// None if the library doesn't take such products.
    fn of(product: &Product) -> Option<Problem> {
        let Product { batch, m, n, k, .. } = *product;
        if [batch, m, n, k].contains(&0) {
            return None;
        }
        let (dtype, compute, scale) = match product.dtype {
            DType::F32 if product.tf32 => {
                (number::REAL_F32, number::COMPUTE_TF32, number::REAL_F32)
            }
            DType::F32 => (number::REAL_F32, number::COMPUTE_F32, number::REAL_F32),
            DType::F64 => (number::REAL_F64, number::COMPUTE_F64, number::REAL_F64),
            DType::F16 => (number::REAL_F16, number::COMPUTE_F32, number::REAL_F32),
            DType::BF16 => (number::REAL_BF16, number::COMPUTE_F32, number::REAL_F32),
            _ => return None,
        };
        let result = Matrix {
            batch: m * n,
            row: n,
            col: 1,
        };
        Some(Problem {
            dtype,
            compute,
            scale,
            first: ByColumns::transpose_of(product.b, k, n)?,
            second: ByColumns::transpose_of(product.a, m, k)?,
            result: ByColumns::transpose_of(result, m, n)?,
            batch: i32::try_from(batch).ok()?,
        })
    }
}

struct Descriptions {
    desc: Made,
    first: Made,
    second: Made,
    result: Made,
}

/// A call of an op that the library is to compute.
struct Call<'a> {
    library: &'a CublasLt,
    gpu: &'static Gpu,
    op: &'static str,
    product: &'a Product,
}

impl Call<'_> {
    fn check(&self, function: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let Found { path, version } = &self.library.found;
        let version = version.map(|number| number.to_string()).join(".");
        let memory = if status == ALLOC_FAILED {
            "; the library keeps memory of its own beside Fireclay's cache: empty_cache() may make room"
        } else {
            ""
        };
        Err(failed(
            self.gpu.device(),
            format!(
                "{}: {function} of cuBLASLt {version} ({path}) returned {} ({status}) for {}{memory}",
                self.op,
                status_name(status),
                self.product
            ),
            "Fireclay's own kernels do without the library: FIRECLAY_BLAS=own, or preferred_blas_library(BlasLibrary::Own)",
        ))
    }

    /// The library's handle for the device, whose context is current.
    fn handle(&self) -> Result<Opaque> {
        let mut handles = lock(&self.library.handles);
        if let Some(Handle(handle)) = handles.get(&self.gpu.ordinal()) {
            return Ok(*handle);
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: one handle is written. It lives as long as the process.
        let status = unsafe { (self.library.functions.create)(&mut handle) };
        self.check("cublasLtCreate", status)?;
        handles.insert(self.gpu.ordinal(), Handle(handle));
        Ok(handle)
    }

    fn describe(&self, problem: &Problem, operands: &Operands) -> Result<Descriptions> {
        let functions = &self.library.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: one description is written.
        let status = unsafe { (functions.desc_create)(&mut raw, problem.compute, problem.scale) };
        self.check("cublasLtMatmulDescCreate", status)?;
        let desc = Made {
            raw,
            destroy: functions.desc_destroy,
        };
        let op = |matrix: ByColumns| {
            if matrix.transposed {
                number::OP_T
            } else {
                number::OP_N
            }
        };
        self.set_desc(&desc, number::DESC_TRANSA, &op(problem.first))?;
        self.set_desc(&desc, number::DESC_TRANSB, &op(problem.second))?;
        if let Some(bias) = operands.bias {
            self.set_desc(&desc, number::DESC_EPILOGUE, &number::EPILOGUE_BIAS)?;
            self.set_desc(&desc, number::DESC_BIAS_POINTER, &bias)?;
        }
        Ok(Descriptions {
            desc,
            first: self.layout(problem, problem.first)?,
            second: self.layout(problem, problem.second)?,
            result: self.layout(problem, problem.result)?,
        })
    }

    fn set_desc<T: Copy>(&self, desc: &Made, attribute: c_int, value: &T) -> Result<()> {
        let set = self.library.functions.desc_set;
        // SAFETY: the description is alive; the value is read, as long as it is.
        let status = unsafe {
            set(
                desc.raw,
                attribute,
                (&raw const *value).cast(),
                size_of::<T>(),
            )
        };
        self.check("cublasLtMatmulDescSetAttribute", status)
    }

    fn layout(&self, problem: &Problem, matrix: ByColumns) -> Result<Made> {
        let functions = &self.library.functions;
        let ByColumns { rows, cols, ld, .. } = matrix;
        let mut raw = std::ptr::null_mut();
        // SAFETY: one description is written.
        let status = unsafe { (functions.layout_create)(&mut raw, problem.dtype, rows, cols, ld) };
        self.check("cublasLtMatrixLayoutCreate", status)?;
        let layout = Made {
            raw,
            destroy: functions.layout_destroy,
        };
        if problem.batch > 1 {
            // SAFETY: the description is alive; values are read, as long as they are.
            let status = unsafe {
                let count = (&raw const problem.batch).cast();
                (functions.layout_set)(
                    layout.raw,
                    number::LAYOUT_BATCH_COUNT,
                    count,
                    size_of::<i32>(),
                )
            };
            self.check("cublasLtMatrixLayoutSetAttribute", status)?;
            // SAFETY: as above.
            let status = unsafe {
                let offset = (&raw const matrix.batch_offset).cast();
                (functions.layout_set)(
                    layout.raw,
                    number::LAYOUT_BATCH_OFFSET,
                    offset,
                    size_of::<i64>(),
                )
            };
            self.check("cublasLtMatrixLayoutSetAttribute", status)?;
        }
        Ok(layout)
    }

    /// The library's first choice for a problem; nothing if it can't compute it.
    fn propose(
        &self,
        handle: Opaque,
        made: &Descriptions,
        alignments: &[u32; 4],
    ) -> Result<Option<Proposal>> {
        let functions = &self.library.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: one preference is written.
        let status = unsafe { (functions.preference_create)(&mut raw) };
        self.check("cublasLtMatmulPreferenceCreate", status)?;
        let preference = Made {
            raw,
            destroy: functions.preference_destroy,
        };
        // The interface has no alignment of the bias: it is told with the result's, as PyTorch does.
        let [first, second, result, bias] = *alignments;
        let result = result.min(bias);
        // SAFETY: the preference is alive; values are read, as long as they are.
        let set = |attribute: c_int, value: *const c_void, bytes: usize| unsafe {
            (functions.preference_set)(preference.raw, attribute, value, bytes)
        };
        let workspace = set(
            number::PREFERENCE_WORKSPACE,
            (&raw const WORKSPACE).cast(),
            size_of::<usize>(),
        );
        self.check("cublasLtMatmulPreferenceSetAttribute", workspace)?;
        // C and D are both the result.
        for (place, alignment) in (0..).zip([first, second, result, result]) {
            let attribute = number::PREFERENCE_ALIGNMENT_A + place;
            let status = set(attribute, (&raw const alignment).cast(), size_of::<u32>());
            self.check("cublasLtMatmulPreferenceSetAttribute", status)?;
        }
        let mut proposal = Proposal::default();
        let mut got: c_int = 0;
        // SAFETY: handle, descriptions and preference are alive; at most one proposal is written.
        let status = unsafe {
            (functions.heuristic)(
                handle,
                made.desc.raw,
                made.first.raw,
                made.second.raw,
                made.result.raw,
                made.result.raw,
                preference.raw,
                1,
                &mut proposal,
                &mut got,
            )
        };
        if status == NOT_SUPPORTED {
            return Ok(None);
        }
        self.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let fits = got > 0 && proposal.state == 0 && proposal.workspace <= WORKSPACE;
        Ok(fits.then_some(proposal))
    }
}

/// The library's name for a status.
fn status_name(status: Status) -> &'static str {
    match status {
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        ALLOC_FAILED => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        NOT_SUPPORTED => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        _ => "an unknown status",
    }
}

#[cfg(test)]
mod tests {
    use cudarc::cublaslt::sys::{
        cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t,
        cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t,
        cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasStatus_t,
        cudaDataType_t,
    };

    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_c_interface() {
        use cublasLtMatmulDescAttributes_t as Desc;
        use cublasLtMatmulPreferenceAttributes_t as Preference;
        use cublasLtMatrixLayoutAttribute_t as Layout;
        let pairs = [
            (number::REAL_F32, cudaDataType_t::CUDA_R_32F as i32),
            (number::REAL_F64, cudaDataType_t::CUDA_R_64F as i32),
            (number::REAL_F16, cudaDataType_t::CUDA_R_16F as i32),
            (number::REAL_BF16, cudaDataType_t::CUDA_R_16BF as i32),
            (
                number::COMPUTE_F32,
                cublasComputeType_t::CUBLAS_COMPUTE_32F as i32,
            ),
            (
                number::COMPUTE_F64,
                cublasComputeType_t::CUBLAS_COMPUTE_64F as i32,
            ),
            (
                number::COMPUTE_TF32,
                cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32 as i32,
            ),
            (
                number::EPILOGUE_BIAS,
                cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32,
            ),
            (
                number::DESC_TRANSA,
                Desc::CUBLASLT_MATMUL_DESC_TRANSA as i32,
            ),
            (
                number::DESC_TRANSB,
                Desc::CUBLASLT_MATMUL_DESC_TRANSB as i32,
            ),
            (
                number::DESC_EPILOGUE,
                Desc::CUBLASLT_MATMUL_DESC_EPILOGUE as i32,
            ),
            (
                number::DESC_BIAS_POINTER,
                Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER as i32,
            ),
            (
                number::LAYOUT_BATCH_COUNT,
                Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as i32,
            ),
            (
                number::LAYOUT_BATCH_OFFSET,
                Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as i32,
            ),
            (
                number::PREFERENCE_WORKSPACE,
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as i32,
            ),
            (
                number::PREFERENCE_ALIGNMENT_A,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES as i32,
            ),
            (
                number::PREFERENCE_ALIGNMENT_A + 3,
                Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES as i32,
            ),
            (
                ALLOC_FAILED,
                cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED as i32,
            ),
            (
                NOT_SUPPORTED,
                cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as i32,
            ),
        ];
        for (place, (ours, theirs)) in pairs.into_iter().enumerate() {
            assert_eq!(ours, theirs, "pair {place}");
        }
        assert_eq!(size_of::<Algorithm>(), size_of::<cublasLtMatmulAlgo_t>());
        assert_eq!(
            size_of::<Proposal>(),
            size_of::<cublasLtMatmulHeuristicResult_t>()
        );
        assert_eq!(
            std::mem::offset_of!(Proposal, state),
            std::mem::offset_of!(cublasLtMatmulHeuristicResult_t, state)
        );
    }

    #[test]
    fn matrices_by_rows_and_by_columns_are_taken_and_others_are_not() {
        let lying = |row, col| ByColumns::transpose_of(Matrix { batch: 0, row, col }, 3, 5);
        let by_rows = lying(7, 1).unwrap();
        assert_eq!(
            (by_rows.transposed, by_rows.rows, by_rows.cols, by_rows.ld),
            (false, 5, 3, 7)
        );
        let by_cols = lying(1, 4).unwrap();
        assert_eq!(
            (by_cols.transposed, by_cols.rows, by_cols.cols, by_cols.ld),
            (true, 3, 5, 4)
        );
        // Overlapping, spread out, repeated.
        for (row, col) in [(4, 1), (10, 2), (0, 1), (1, 0), (1, 2)] {
            assert_eq!(lying(row, col), None, "{row}, {col}");
        }
        // Of a vector, one stride says nothing.
        let row = ByColumns::transpose_of(
            Matrix {
                batch: 0,
                row: 99,
                col: 1,
            },
            1,
            5,
        )
        .unwrap();
        assert_eq!(
            (row.transposed, row.rows, row.cols, row.ld),
            (false, 5, 1, 5)
        );
        let column = ByColumns::transpose_of(
            Matrix {
                batch: 0,
                row: 4,
                col: 99,
            },
            3,
            1,
        )
        .unwrap();
        assert_eq!(
            (column.transposed, column.rows, column.cols, column.ld),
            (false, 1, 3, 4)
        );
    }
}
