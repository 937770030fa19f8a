//! A library with cuDNN's interface that computes convolutions on the virtual GPU, slowly: it checks descriptions as the
//! documentation of the interface states them, and records the calls. `STAND_IN_CUDNN_VERSION` says which version it is.
#![expect(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the functions of a C interface"
)]

mod test_side;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use test_side::{encoded, end, failure, give, memory, numbers, record, size};

const HANDLE: usize = 8765;
const WORKSPACE: usize = 4096;
/// The only algorithm that is to be chosen.
const ALGORITHM: c_int = 1;
/// Heights of kernels for which the heuristic refuses, and for which it proposes nothing of use.
const REFUSED_HEIGHT: c_int = 7;
const USELESS_HEIGHT: c_int = 5;

/// The stream of the handle.
static STREAM: AtomicUsize = AtomicUsize::new(0);

/// Statuses differ between versions.
#[derive(Clone, Copy)]
struct Statuses {
    bad: c_int,
    not_supported: c_int,
    execution_failed: c_int,
}

fn version() -> usize {
    let asked = std::env::var("STAND_IN_CUDNN_VERSION").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(91_002)
}

fn statuses() -> Statuses {
    let [bad, not_supported, execution_failed] = match version() {
        0..=9_999 => [3, 9, 8],
        _ => [2000, 3000, 5000],
    };
    Statuses {
        bad,
        not_supported,
        execution_failed,
    }
}

fn refuse(why: &str) -> c_int {
    record(format!("REFUSED {why}"));
    statuses().bad
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    version()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    let asked = std::env::var("STAND_IN_CUDNN_CUDA").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(12_000)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: c_int) -> *const c_char {
    let known = statuses();
    let name = match status {
        0 => c"CUDNN_STATUS_SUCCESS",
        _ if status == known.bad => c"CUDNN_STATUS_BAD_PARAM",
        _ if status == known.not_supported => c"CUDNN_STATUS_NOT_SUPPORTED",
        _ if status == known.execution_failed => c"CUDNN_STATUS_EXECUTION_FAILED",
        4004 | 2 => c"CUDNN_STATUS_ALLOC_FAILED",
        _ => c"CUDNN_UNKNOWN_STATUS",
    };
    name.as_ptr()
}

/// Says nothing as version 8, which has no such function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, room: usize) {
    let text: &[u8] = match version() {
        0..=9_999 => b"\0",
        _ => b"the stand-in was told to fail\0",
    };
    let count = text.len().min(room);
    // SAFETY: the caller's buffer has that room.
    unsafe { message.copy_from_nonoverlapping(text.as_ptr().cast(), count) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(handle: *mut *mut c_void) -> c_int {
    record("create".to_owned());
    // SAFETY: the caller gives room for a pointer.
    unsafe { *handle = std::ptr::without_provenance_mut(HANDLE) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: *mut c_void, stream: *mut c_void) -> c_int {
    if handle.addr() != HANDLE || stream.is_null() {
        return refuse("the handle, or the stream");
    }
    record("set stream".to_owned());
    STREAM.store(stream.addr(), Ordering::SeqCst);
    0
}

/// A tensor, or a filter: sizes, and from one to the next.
#[derive(Clone, Copy, Default)]
struct Tensor {
    dtype: c_int,
    sizes: [c_int; 4],
    is_filter: bool,
}

impl Tensor {
    fn numel(&self) -> usize {
        self.sizes.iter().map(|size| *size as usize).product()
    }
}

#[derive(Clone, Copy, Default)]
struct Convolution {
    pad: [c_int; 2],
    stride: [c_int; 2],
    dilation: [c_int; 2],
    compute: c_int,
    groups: c_int,
    math: c_int,
}

macro_rules! objects {
    ($($create:ident, $destroy:ident: $ty:ty = $first:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(to: *mut *mut c_void) -> c_int {
            // SAFETY: as the interface says.
            unsafe { give::<$ty>(to, $first) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(object: *mut c_void) -> c_int {
            // SAFETY: as the interface says.
            unsafe { end::<$ty>(object) }
        }
    )*};
}

objects! {
    cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor: Tensor = Tensor::default();
    cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor: Tensor = Tensor::default();
    cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor: Convolution = Convolution {
        groups: 1,
        ..Convolution::default()
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensor4dDescriptorEx(
    tensor: *mut c_void,
    dtype: c_int,
    n: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
    n_stride: c_int,
    c_stride: c_int,
    h_stride: c_int,
    w_stride: c_int,
) -> c_int {
    let sizes = [n, c, h, w];
    let strides = [n_stride, c_stride, h_stride, w_stride];
    if sizes.iter().any(|size| *size < 1) || strides != [c * h * w, h * w, w, 1] {
        return refuse(&format!("a tensor of sizes {sizes:?}, strides {strides:?}"));
    }
    let set = Tensor {
        dtype,
        sizes,
        is_filter: false,
    };
    // SAFETY: as the interface says.
    unsafe { *tensor.cast::<Tensor>() = set };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetFilter4dDescriptor(
    filter: *mut c_void,
    dtype: c_int,
    format: c_int,
    k: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
) -> c_int {
    let sizes = [k, c, h, w];
    if sizes.iter().any(|size| *size < 1) || format != 0 {
        return refuse(&format!("a filter of sizes {sizes:?}, format {format}"));
    }
    let set = Tensor {
        dtype,
        sizes,
        is_filter: true,
    };
    // SAFETY: as the interface says.
    unsafe { *filter.cast::<Tensor>() = set };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolution2dDescriptor(
    convolution: *mut c_void,
    pad_h: c_int,
    pad_w: c_int,
    stride_h: c_int,
    stride_w: c_int,
    dilation_h: c_int,
    dilation_w: c_int,
    mode: c_int,
    compute: c_int,
) -> c_int {
    let (pad, stride, dilation) = (
        [pad_h, pad_w],
        [stride_h, stride_w],
        [dilation_h, dilation_w],
    );
    let positive = |numbers: [c_int; 2], least| numbers.iter().all(|number| *number >= least);
    if !positive(pad, 0) || !positive(stride, 1) || !positive(dilation, 1) || mode != 1 {
        return refuse("padding, stride, dilation or mode");
    }
    // SAFETY: as the interface says.
    let convolution = unsafe { &mut *convolution.cast::<Convolution>() };
    *convolution = Convolution {
        pad,
        stride,
        dilation,
        compute,
        ..*convolution
    };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolutionGroupCount(
    convolution: *mut c_void,
    groups: c_int,
) -> c_int {
    // SAFETY: as the interface says.
    unsafe { (*convolution.cast::<Convolution>()).groups = groups };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetConvolutionMathType(
    convolution: *mut c_void,
    math: c_int,
) -> c_int {
    if !(0..=3).contains(&math) {
        return refuse("the math type");
    }
    // SAFETY: as the interface says.
    unsafe { (*convolution.cast::<Convolution>()).math = math };
    0
}

/// Which operand is the result.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// A convolution as a function is told of it: image, filter, output.
struct Problem {
    x: Tensor,
    w: Tensor,
    y: Tensor,
    convolution: Convolution,
}

impl Problem {
    /// From the operands in the order of the pass's functions, if they fit together.
    unsafe fn of(
        pass: Pass,
        handle: *mut c_void,
        [first, second, convolution, result]: [*mut c_void; 4],
    ) -> Result<Problem, String> {
        if handle.addr() != HANDLE {
            return Err("the handle".to_owned());
        }
        // SAFETY: as the interface says; tensors and filters are of one type here.
        let ([first, second, result], convolution) = unsafe {
            (
                [first, second, result].map(|tensor| *tensor.cast::<Tensor>()),
                *convolution.cast::<Convolution>(),
            )
        };
        let (x, w, y) = match pass {
            Pass::Forward => (first, second, result),
            Pass::BackwardData => (result, first, second),
            Pass::BackwardFilter => (first, result, second),
        };
        if [x.is_filter, w.is_filter, y.is_filter] != [false, true, false] {
            return Err("filters and tensors have changed places".to_owned());
        }
        let Convolution {
            pad,
            stride,
            dilation,
            compute,
            groups,
            ..
        } = convolution;
        match (x.dtype, compute) {
            (0, 0) | (1, 1) | (2 | 9, 0) => {}
            other => return Err(format!("dtype and the one that is computed in: {other:?}")),
        }
        let out = |dim: usize| {
            let reach = dilation[dim] * (w.sizes[2 + dim] - 1) + 1;
            (x.sizes[2 + dim] + 2 * pad[dim] - reach) / stride[dim] + 1
        };
        let sizes = [x.sizes[0], w.sizes[0], out(0), out(1)];
        let fits = y.sizes == sizes
            && groups >= 1
            && w.sizes[1] * groups == x.sizes[1]
            && w.sizes[0] % groups == 0
            && [w.dtype, y.dtype] == [x.dtype; 2];
        if !fits {
            return Err(format!(
                "{:?}, {:?} in {groups} groups do not give {:?} but {sizes:?}",
                x.sizes, w.sizes, y.sizes
            ));
        }
        Ok(Problem {
            x,
            w,
            y,
            convolution,
        })
    }

    fn text(&self) -> String {
        let Convolution {
            pad,
            stride,
            dilation,
            compute,
            groups,
            math,
            ..
        } = self.convolution;
        format!(
            "x {:?} w {:?} pad {pad:?} stride {stride:?} dilation {dilation:?} groups {groups} dtype {} compute {compute} math {math}",
            self.x.sizes, self.w.sizes, self.x.dtype
        )
    }

    /// Calls `each` with the places of every product in the image, the filter and the output.
    fn products(&self, mut each: impl FnMut(usize, usize, usize)) {
        let Problem { x, w, y, .. } = self;
        let Convolution {
            pad,
            stride,
            dilation,
            groups,
            ..
        } = self.convolution;
        let place = |sizes: &[c_int; 4], at: [c_int; 4]| {
            let step =
                |place: usize, (size, at): (&c_int, c_int)| place * *size as usize + at as usize;
            sizes.iter().zip(at).fold(0, step)
        };
        for (image, out, row, col) in four(y.sizes) {
            for channel in 0..w.sizes[1] {
                let from = out / (w.sizes[0] / groups) * w.sizes[1] + channel;
                for (tap_row, tap_col) in two([w.sizes[2], w.sizes[3]]) {
                    let at = [
                        row * stride[0] + tap_row * dilation[0] - pad[0],
                        col * stride[1] + tap_col * dilation[1] - pad[1],
                    ];
                    let inside =
                        (0..x.sizes[2]).contains(&at[0]) && (0..x.sizes[3]).contains(&at[1]);
                    if inside {
                        each(
                            place(&x.sizes, [image, from, at[0], at[1]]),
                            place(&w.sizes, [out, channel, tap_row, tap_col]),
                            place(&y.sizes, [image, out, row, col]),
                        );
                    }
                }
            }
        }
    }
}

fn two([a, b]: [c_int; 2]) -> impl Iterator<Item = (c_int, c_int)> {
    (0..a).flat_map(move |a| (0..b).map(move |b| (a, b)))
}

fn four([a, b, c, d]: [c_int; 4]) -> impl Iterator<Item = (c_int, c_int, c_int, c_int)> {
    two([a, b]).flat_map(move |(a, b)| two([c, d]).map(move |(c, d)| (a, b, c, d)))
}

/// A proposal (`cudnnConvolutionFwdAlgoPerf_t`, and those of the gradients).
#[repr(C)]
pub struct Proposal {
    algorithm: c_int,
    status: c_int,
    time: f32,
    memory: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// Proposes what is not there, what differs from time to time, what is large, what rounds more than it may, and then one of use.
unsafe fn propose(
    pass: Pass,
    name: &str,
    handle: *mut c_void,
    operands: [*mut c_void; 4],
    asked: c_int,
    (got, proposals): (*mut c_int, *mut Proposal),
) -> c_int {
    // SAFETY: as the interface says.
    let problem = match unsafe { Problem::of(pass, handle, operands) } {
        Ok(problem) => problem,
        Err(why) => return refuse(&why),
    };
    if asked < 5 || STREAM.load(Ordering::SeqCst) == 0 {
        return refuse("how many are asked for, or there is no stream");
    }
    record(format!("propose {name} {}", problem.text()));
    let math = problem.convolution.math;
    let height = problem.w.sizes[2];
    if height == REFUSED_HEIGHT {
        return statuses().not_supported;
    }
    let not_supported = statuses().not_supported;
    // Algorithm, status, determinism, math; what is larger has a larger number.
    let all = [
        (0, not_supported, 1, math),
        (2, 0, 0, math),
        (7, 0, 1, math),
        (4, 0, 1, 2),
        (ALGORITHM, 0, 1, if math == 3 { 0 } else { math }),
    ];
    let count = if height == USELESS_HEIGHT { 4 } else { 5 };
    for (place, (algorithm, status, determinism, math)) in all.into_iter().take(count).enumerate() {
        let proposal = Proposal {
            algorithm,
            status,
            time: 1.0,
            memory: 0,
            determinism,
            math,
            reserved: [0; 3],
        };
        // SAFETY: there is room for as many as were asked for.
        unsafe { proposals.add(place).write(proposal) };
    }
    // SAFETY: as the interface says.
    unsafe { *got = count as c_int };
    0
}

unsafe fn workspace(
    pass: Pass,
    handle: *mut c_void,
    operands: [*mut c_void; 4],
    algorithm: c_int,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: as the interface says.
    match unsafe { Problem::of(pass, handle, operands) } {
        Ok(_) => {}
        Err(why) => return refuse(&why),
    }
    let size = match algorithm {
        ALGORITHM => WORKSPACE,
        7 => 1 << 31,
        _ => return refuse("an algorithm that should not have been thought of"),
    };
    // SAFETY: as the interface says.
    unsafe { *bytes = size };
    0
}

/// What a computation is given beside the descriptions.
struct Given {
    scalars: [*const c_void; 2],
    addresses: [u64; 3],
    algorithm: c_int,
    workspace: u64,
    workspace_bytes: usize,
}

unsafe fn compute(
    pass: Pass,
    name: &str,
    handle: *mut c_void,
    operands: [*mut c_void; 4],
    given: &Given,
) -> c_int {
    if let Some(status) = failure() {
        return status;
    }
    // SAFETY: as the interface says.
    let problem = match unsafe { Problem::of(pass, handle, operands) } {
        Ok(problem) => problem,
        Err(why) => return refuse(&why),
    };
    let dtype = problem.x.dtype;
    // SAFETY: scalars are of the type that is computed in.
    let scalars = given.scalars.map(|scalar| unsafe {
        match dtype {
            1 => scalar.cast::<f64>().read(),
            _ => f64::from(scalar.cast::<f32>().read()),
        }
    });
    let aligned = given.addresses.iter().all(|address| address % 16 == 0);
    let whole = given.algorithm == ALGORITHM
        && scalars == [1.0, 0.0]
        && given.workspace != 0
        && given.workspace_bytes == WORKSPACE
        && STREAM.load(Ordering::SeqCst) != 0;
    if !aligned || !whole {
        return refuse("addresses, algorithm, scalars, workspace or stream");
    }
    record(format!("{name} {}", problem.text()));
    let Some((reading, writing)) = memory() else {
        return refuse("nobody gave access to device memory");
    };
    let [first, second, result] = given.addresses;
    let fetch = |address: u64, tensor: &Tensor| numbers(reading, address, dtype, tensor.numel());
    let Problem { x, w, y, .. } = &problem;
    let sums = match pass {
        Pass::Forward => {
            let (x, w, mut sums) = (fetch(first, x), fetch(second, w), vec![0.0; y.numel()]);
            problem.products(|at_x, at_w, at_y| sums[at_y] += x[at_x] * w[at_w]);
            sums
        }
        Pass::BackwardData => {
            let (w, y, mut sums) = (fetch(first, w), fetch(second, y), vec![0.0; x.numel()]);
            problem.products(|at_x, at_w, at_y| sums[at_x] += y[at_y] * w[at_w]);
            sums
        }
        Pass::BackwardFilter => {
            let (x, y, mut sums) = (fetch(first, x), fetch(second, y), vec![0.0; w.numel()]);
            problem.products(|at_x, at_w, at_y| sums[at_w] += x[at_x] * y[at_y]);
            sums
        }
    };
    let mut bytes = Vec::with_capacity(sums.len() * size(dtype));
    for sum in sums {
        bytes.extend(encoded(dtype, sum));
    }
    writing(result, bytes.as_mut_ptr(), bytes.len());
    0
}

macro_rules! passes {
    ($($pass:ident $name:literal: $propose:ident, $workspace:ident, $compute:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $propose(
            handle: *mut c_void, first: *mut c_void, second: *mut c_void, convolution: *mut c_void, result: *mut c_void,
            asked: c_int, got: *mut c_int, proposals: *mut Proposal,
        ) -> c_int {
            let operands = [first, second, convolution, result];
            // SAFETY: as the interface says.
            unsafe { propose(Pass::$pass, $name, handle, operands, asked, (got, proposals)) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $workspace(
            handle: *mut c_void, first: *mut c_void, second: *mut c_void, convolution: *mut c_void, result: *mut c_void,
            algorithm: c_int, bytes: *mut usize,
        ) -> c_int {
            let operands = [first, second, convolution, result];
            // SAFETY: as the interface says.
            unsafe { workspace(Pass::$pass, handle, operands, algorithm, bytes) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $compute(
            handle: *mut c_void, alpha: *const c_void, first: *mut c_void, first_data: u64, second: *mut c_void, second_data: u64,
            convolution: *mut c_void, algorithm: c_int, workspace: u64, workspace_bytes: usize, beta: *const c_void,
            result: *mut c_void, result_data: u64,
        ) -> c_int {
            let operands = [first, second, convolution, result];
            let given = Given {
                scalars: [alpha, beta],
                addresses: [first_data, second_data, result_data],
                algorithm,
                workspace,
                workspace_bytes,
            };
            // SAFETY: as the interface says.
            unsafe { compute(Pass::$pass, $name, handle, operands, &given) }
        }
    )*};
}

passes! {
    Forward "forward": cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionForwardWorkspaceSize, cudnnConvolutionForward;
    BackwardData "data": cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnGetConvolutionBackwardDataWorkspaceSize,
        cudnnConvolutionBackwardData;
    BackwardFilter "filter": cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnGetConvolutionBackwardFilterWorkspaceSize,
        cudnnConvolutionBackwardFilter;
}
