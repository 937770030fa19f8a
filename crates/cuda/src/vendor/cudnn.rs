//! Convolutions by cuDNN: its functions (those that versions 8 and 9 have), how it is asked for an algorithm, and the calls.

mod interface;

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::CUstream;
use fireclay_core::{DType, Error, Result};
use libloading::Library;

use super::convolution::{ConvOperands, Convolution, Pass};
use super::find::{self, Found, symbol};
use super::functions::{Made, Opaque, Status};
use super::{failed, lock};
use crate::driver::driver;
use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Purpose};
use crate::stream::Stream;
use interface::{Functions, LastError, Proposal, is_not_supported, is_of_memory, number};

/// The most bytes that an algorithm may use beside its operands.
const WORKSPACE: usize = 256 << 20;
/// How many algorithms are asked for: more than there are, each with and without tensor cores.
const ASKED: usize = 16;
/// How many convolutions are remembered, so that shapes that change for ever don't fill the memory.
const REMEMBERED: usize = 1024;

/// Of the input, the weight and the output, the two that a pass reads and the one that it writes, in the functions' order.
fn in_order<T: Copy>(pass: Pass, [input, weight, output]: [T; 3]) -> [T; 3] {
    match pass {
        Pass::Output => [input, weight, output],
        Pass::InputGrad => [weight, output, input],
        Pass::WeightGrad => [input, output, weight],
    }
}

/// A convolution as it is remembered: its descriptions and the algorithm chosen.
struct Plan {
    input: Made,
    weight: Made,
    output: Made,
    convolution: Made,
    algorithm: c_int,
    workspace: usize,
}

// SAFETY: descriptions are changed before the plan is made only, and the library lets every thread read and end them.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    fn descriptions(&self) -> [Opaque; 3] {
        [self.input.raw, self.weight.raw, self.output.raw]
    }
}

/// The library's state for a device, which one thread at a time may use, and the stream that it works in.
struct Handle {
    raw: Opaque,
    stream: Option<CUstream>,
}

// SAFETY: the library lets any thread use a handle, one at a time: it is behind a lock.
unsafe impl Send for Handle {}

/// By device and convolution; nothing if the library can't compute it.
type Plans = HashMap<(usize, Convolution), Option<Arc<Plan>>>;

/// cuDNN, loaded.
pub struct Cudnn {
    functions: Functions,
    last_error: Option<LastError>,
    found: Found,
    /// By device. They live as long as the process.
    handles: Mutex<HashMap<usize, &'static Mutex<Handle>>>,
    plans: Mutex<Plans>,
}

impl Cudnn {
    pub(super) fn new(library: &Library, found: Found) -> Result<Cudnn, String> {
        let functions = Functions::load(library)?;
        // SAFETY: it takes nothing and returns a number.
        let built_for = unsafe { (functions.cuda_version)() };
        if let Ok(driver) = driver() {
            find::check_driver(built_for as i32 / 1000, driver.version())?;
        }
        let last_error = symbol(library, c"cudnnGetLastErrorString").map(|found| {
            // SAFETY: not null; the interface gives the symbol this type.
            unsafe { std::mem::transmute::<*const c_void, LastError>(found) }
        });
        Ok(Cudnn {
            functions,
            last_error,
            found,
            handles: Mutex::default(),
            plans: Mutex::default(),
        })
    }

    /// Where it was found, and its version.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// How many convolutions it was asked for and can't compute.
    pub(super) fn refusals(&self) -> usize {
        let plans = lock(&self.plans);
        plans.values().filter(|known| known.is_none()).count()
    }

    /// Whether it can compute a convolution.
    pub(super) fn takes(
        &self,
        stream: &Stream,
        op: &'static str,
        convolution: &Convolution,
    ) -> Result<bool> {
        self.call(stream, op, convolution)
            .plan()
            .map(|plan| plan.is_some())
    }

    /// Computes a convolution.
    ///
    /// # Safety
    /// As for [`convolution`](super::convolution).
    pub(super) unsafe fn convolution(
        &self,
        stream: &Stream,
        op: &'static str,
        convolution: &Convolution,
        operands: ConvOperands,
    ) -> Result<()> {
        let call = self.call(stream, op, convolution);
        let Some(plan) = call.plan()? else {
            let Found { path, .. } = &self.found;
            let what = format!("{op}: cuDNN ({path}) has no algorithm for {convolution}");
            return Err(failed(stream.gpu().device(), what, WAY_OUT));
        };
        let workspace = DeviceBuffer::allocate(stream, plan.workspace, Purpose::Workspaces)?;
        let pass = convolution.pass;
        let (name, run) = self.functions.of(pass).run;
        let [first, second, result] = in_order(pass, plan.descriptions());
        let ConvOperands {
            input,
            weight,
            output,
        } = operands;
        let [first_data, second_data, result_data] =
            in_order(pass, [input, weight, output]).map(|address| address as *mut c_void);
        let (singles, doubles) = ([1.0f32, 0.0], [1.0f64, 0.0]);
        let scalar = |index: usize| -> *const c_void {
            match convolution.dtype {
                DType::F64 => (&raw const doubles[index]).cast(),
                _ => (&raw const singles[index]).cast(),
            }
        };
        let handle = call.handle()?;
        let mut handle = lock(handle);
        let handle = call.in_stream(&mut handle)?;
        // SAFETY: handle and descriptions are alive, the scalars are of the type that is computed in; the caller vouches for the
        // operands, which the descriptions reach no further than. The workspace is used again only behind this work in the stream.
        let status = unsafe {
            run(
                handle,
                scalar(0),
                first,
                first_data,
                second,
                second_data,
                plan.convolution.raw,
                plan.algorithm,
                workspace.address() as *mut c_void,
                plan.workspace,
                scalar(1),
                result,
                result_data,
            )
        };
        call.check(name, status)?;
        let written = in_order(pass, convolution.shapes())[2];
        let numel: usize = written.iter().product();
        stream.gpu().note_launch(op, numel as u64);
        Ok(())
    }

    fn call<'a>(
        &'a self,
        stream: &'a Stream,
        op: &'static str,
        convolution: &'a Convolution,
    ) -> Call<'a> {
        Call {
            library: self,
            stream,
            gpu: stream.gpu(),
            op,
            convolution,
        }
    }
}

impl fmt::Debug for Cudnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cudnn({:?})", self.found)
    }
}

/// What to do if a call fails.
const WAY_OUT: &str = "Fireclay's own kernels do without the library: FIRECLAY_CONV=own, or preferred_conv_library(ConvLibrary::Own)";

/// A convolution in the library's terms.
struct Problem {
    dtype: c_int,
    compute: c_int,
    /// What is allowed to tensor cores while algorithms are asked for.
    math: c_int,
    /// Sizes of the input, the weight and the output.
    shapes: [[c_int; 4]; 3],
    groups: c_int,
    padding: [c_int; 2],
    stride: [c_int; 2],
    dilation: [c_int; 2],
}

impl Problem {
    /// None if the library doesn't take such convolutions: it counts in 32 bits, and nothing is not taken.
    fn of(convolution: &Convolution) -> Option<Problem> {
        let (dtype, math) = match convolution.dtype {
            DType::F32 if convolution.tf32 => (number::FLOAT, number::DEFAULT_MATH),
            DType::F32 => (number::FLOAT, number::FMA_MATH),
            DType::F64 => (number::DOUBLE, number::DEFAULT_MATH),
            DType::F16 => (number::HALF, number::TENSOR_OP_MATH),
            DType::BF16 => (number::BFLOAT16, number::TENSOR_OP_MATH),
            _ => return None,
        };
        let compute = match convolution.dtype {
            DType::F64 => number::DOUBLE,
            _ => number::FLOAT,
        };
        let count = |size: usize| c_int::try_from(size).ok();
        let mut shapes = [[0; 4]; 3];
        for (to, shape) in shapes.iter_mut().zip(convolution.shapes()) {
            let numel = shape
                .iter()
                .try_fold(1, |all: usize, size| all.checked_mul(*size));
            if numel.and_then(count)? == 0 {
                return None;
            }
            // None is larger than their product.
            *to = shape.map(|size| size as c_int);
        }
        let pair = |[y, x]: [usize; 2]| Some([count(y)?, count(x)?]);
        Some(Problem {
            dtype,
            compute,
            math,
            shapes,
            groups: count(convolution.groups)?,
            padding: pair(convolution.padding)?,
            stride: pair(convolution.stride)?,
            dilation: pair(convolution.dilation)?,
        })
    }

    /// What is allowed to tensor cores where an algorithm proposed for `math` runs; nothing if it would round operands that must
    /// not be rounded.
    fn math_for(&self, math: c_int) -> Option<c_int> {
        match (self.math, math) {
            // Older devices have no tf32 and are proposed the default: to be sure it is said again.
            (number::FMA_MATH, number::FMA_MATH | number::DEFAULT_MATH) => Some(number::FMA_MATH),
            (number::FMA_MATH, _) => None,
            (_, number::DEFAULT_MATH | number::TENSOR_OP_MATH | number::FMA_MATH) => Some(math),
            // What converts f32 to f16 on the way.
            _ => None,
        }
    }
}

/// A call of an op that the library is to compute.
struct Call<'a> {
    library: &'a Cudnn,
    stream: &'a Stream,
    gpu: &'static Gpu,
    op: &'static str,
    convolution: &'a Convolution,
}

impl Call<'_> {
    fn check(&self, function: &str, status: Status) -> Result<()> {
        match status {
            0 => Ok(()),
            _ => Err(self.failed(function, status)),
        }
    }

    #[cold]
    fn failed(&self, function: &str, status: Status) -> Error {
        let library = self.library;
        let Found { path, version } = &library.found;
        let version = version.map(|number| number.to_string()).join(".");
        // SAFETY: the library returns a text that ends with 0 and stays, or null.
        let name = unsafe {
            let name = (library.functions.error_string)(status);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        let name = name.unwrap_or_else(|| "an unknown status".to_owned());
        let mut said = String::new();
        if let Some(last_error) = library.last_error {
            let mut buffer = [0u8; 512];
            // SAFETY: the buffer has one byte more than the library is told of, which stays 0.
            unsafe { last_error(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
            let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
            let text = text.to_string_lossy();
            if !text.trim().is_empty() {
                said = format!(", \"{}\"", text.trim());
            }
        }
        let memory = match is_of_memory(status) {
            true => {
                "; the library keeps memory of its own beside Fireclay's cache: empty_cache() may make room"
            }
            false => "",
        };
        let (op, convolution) = (self.op, self.convolution);
        failed(
            self.gpu.device(),
            format!(
                "{op}: {function} of cuDNN {version} ({path}) returned {name} ({status}){said} for {convolution}{memory}"
            ),
            WAY_OUT,
        )
    }

    /// The library's handle for the device.
    fn handle(&self) -> Result<&'static Mutex<Handle>> {
        let mut handles = lock(&self.library.handles);
        if let Some(handle) = handles.get(&self.gpu.ordinal()) {
            return Ok(handle);
        }
        self.gpu.bound()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: one handle is written, for the device whose context is current. It lives as long as the process.
        let status = unsafe { (self.library.functions.create)(&mut raw) };
        self.check("cudnnCreate", status)?;
        let handle: &'static Mutex<Handle> =
            Box::leak(Box::new(Mutex::new(Handle { raw, stream: None })));
        handles.insert(self.gpu.ordinal(), handle);
        Ok(handle)
    }

    /// The handle, set to work in the call's stream, with the device's context current.
    fn in_stream(&self, handle: &mut Handle) -> Result<Opaque> {
        self.gpu.bound()?;
        let stream = self.stream.handle();
        if handle.stream != Some(stream) {
            handle.stream = None;
            // SAFETY: handle and stream are alive and of one device.
            let status = unsafe { (self.library.functions.set_stream)(handle.raw, stream) };
            self.check("cudnnSetStream", status)?;
            handle.stream = Some(stream);
        }
        Ok(handle.raw)
    }

    /// The plan for the convolution, made when it is first asked for; nothing if the library can't compute it.
    fn plan(&self) -> Result<Option<Arc<Plan>>> {
        let key = (self.gpu.ordinal(), *self.convolution);
        if let Some(known) = lock(&self.library.plans).get(&key) {
            return Ok(known.clone());
        }
        let Some(problem) = Problem::of(self.convolution) else {
            return Ok(None);
        };
        let plan = self.make_plan(&problem)?.map(Arc::new);
        let mut plans = lock(&self.library.plans);
        if plans.len() >= REMEMBERED {
            plans.clear();
        }
        plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// Describes the convolution and takes the first algorithm proposed that gives the same bits every time, within the workspace.
    fn make_plan(&self, problem: &Problem) -> Result<Option<Plan>> {
        let functions = &self.library.functions;
        let [input, weight, output] = problem.shapes;
        let mut plan = Plan {
            input: self.tensor(problem, input)?,
            weight: self.filter(problem, weight)?,
            output: self.tensor(problem, output)?,
            convolution: self.convolution(problem)?,
            algorithm: 0,
            workspace: 0,
        };
        let pass = functions.of(self.convolution.pass);
        let [first, second, result] = in_order(self.convolution.pass, plan.descriptions());
        let handle = self.handle()?;
        let mut handle = lock(handle);
        let handle = self.in_stream(&mut handle)?;
        let mut proposals = [Proposal::default(); ASKED];
        let mut got: c_int = 0;
        let convolution = plan.convolution.raw;
        let (name, propose) = pass.propose;
        // SAFETY: handle and descriptions are alive; at most so many proposals are written as there is room for.
        let status = unsafe {
            propose(
                handle,
                first,
                second,
                convolution,
                result,
                ASKED as c_int,
                &mut got,
                proposals.as_mut_ptr(),
            )
        };
        if is_not_supported(status) {
            return Ok(None);
        }
        self.check(name, status)?;
        let got = usize::try_from(got).unwrap_or(0).min(ASKED);
        for proposal in &proposals[..got] {
            let is_same_every_time = proposal.determinism == number::DETERMINISTIC;
            let Some(math) = problem.math_for(proposal.math) else {
                continue;
            };
            if proposal.status != 0 || !is_same_every_time {
                continue;
            }
            self.set_math(&plan.convolution, math)?;
            let mut bytes = 0;
            let (name, workspace) = pass.workspace;
            // SAFETY: as above; one number is written.
            let status = unsafe {
                workspace(
                    handle,
                    first,
                    second,
                    convolution,
                    result,
                    proposal.algorithm,
                    &mut bytes,
                )
            };
            if is_not_supported(status) {
                continue;
            }
            self.check(name, status)?;
            if bytes <= WORKSPACE {
                plan.algorithm = proposal.algorithm;
                plan.workspace = bytes;
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// An object that `create` makes and `destroy` ends.
    fn made(
        &self,
        name: &str,
        create: unsafe extern "C" fn(*mut Opaque) -> Status,
        destroy: unsafe extern "C" fn(Opaque) -> Status,
    ) -> Result<Made> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: one description is written.
        let status = unsafe { create(&mut raw) };
        self.check(name, status)?;
        Ok(Made { raw, destroy })
    }

    /// A contiguous tensor.
    fn tensor(&self, problem: &Problem, [n, c, h, w]: [c_int; 4]) -> Result<Made> {
        let functions = &self.library.functions;
        let (create, destroy) = (functions.tensor_create, functions.tensor_destroy);
        let tensor = self.made("cudnnCreateTensorDescriptor", create, destroy)?;
        let set = functions.tensor_set;
        // SAFETY: the description is alive.
        let status = unsafe {
            set(
                tensor.raw,
                problem.dtype,
                n,
                c,
                h,
                w,
                c * h * w,
                h * w,
                w,
                1,
            )
        };
        self.check("cudnnSetTensor4dDescriptorEx", status)?;
        Ok(tensor)
    }

    fn filter(&self, problem: &Problem, [k, c, h, w]: [c_int; 4]) -> Result<Made> {
        let functions = &self.library.functions;
        let (create, destroy) = (functions.filter_create, functions.filter_destroy);
        let filter = self.made("cudnnCreateFilterDescriptor", create, destroy)?;
        let set = functions.filter_set;
        // SAFETY: the description is alive.
        let status = unsafe { set(filter.raw, problem.dtype, number::NCHW, k, c, h, w) };
        self.check("cudnnSetFilter4dDescriptor", status)?;
        Ok(filter)
    }

    fn convolution(&self, problem: &Problem) -> Result<Made> {
        let functions = &self.library.functions;
        let (create, destroy) = (functions.convolution_create, functions.convolution_destroy);
        let convolution = self.made("cudnnCreateConvolutionDescriptor", create, destroy)?;
        let [pad, stride, dilation] = [problem.padding, problem.stride, problem.dilation];
        // SAFETY: the description is alive.
        let status = unsafe {
            (functions.convolution_set)(
                convolution.raw,
                pad[0],
                pad[1],
                stride[0],
                stride[1],
                dilation[0],
                dilation[1],
                number::CROSS_CORRELATION,
                problem.compute,
            )
        };
        self.check("cudnnSetConvolution2dDescriptor", status)?;
        // SAFETY: as above.
        let status = unsafe { (functions.set_groups)(convolution.raw, problem.groups) };
        self.check("cudnnSetConvolutionGroupCount", status)?;
        self.set_math(&convolution, problem.math)?;
        Ok(convolution)
    }

    fn set_math(&self, convolution: &Made, math: c_int) -> Result<()> {
        // SAFETY: the description is alive.
        let status = unsafe { (self.library.functions.set_math)(convolution.raw, math) };
        self.check("cudnnSetConvolutionMathType", status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution(dtype: DType, tf32: bool) -> Convolution {
        Convolution {
            pass: Pass::Output,
            dtype,
            tf32,
            batch: 2,
            in_channels: 4,
            out_channels: 6,
            groups: 2,
            input: [5, 7],
            output: [5, 7],
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
        }
    }

    #[test]
    fn operands_are_rounded_only_where_that_is_allowed() {
        let math = |dtype, tf32| {
            let problem = Problem::of(&convolution(dtype, tf32)).unwrap();
            [0, 1, 2, 3].map(|proposed| problem.math_for(proposed))
        };
        // 1 are tensor cores, 2 converts to f16 first, 3 are fused multiply-adds.
        assert_eq!(math(DType::F32, false), [Some(3), None, None, Some(3)]);
        assert_eq!(math(DType::F32, true), [Some(0), Some(1), None, Some(3)]);
        assert_eq!(math(DType::F16, false), [Some(0), Some(1), None, Some(3)]);
    }

    #[test]
    fn what_is_empty_or_too_large_is_not_taken() {
        let taken = convolution(DType::BF16, false);
        let problem = Problem::of(&taken).unwrap();
        assert_eq!(problem.shapes, [[2, 4, 5, 7], [6, 2, 3, 3], [2, 6, 5, 7]]);
        for not_taken in [
            Convolution { batch: 0, ..taken },
            Convolution {
                batch: 1 << 25,
                ..taken
            },
            Convolution {
                padding: [0, 1 << 31],
                ..taken
            },
            Convolution {
                dtype: DType::I64,
                ..taken
            },
        ] {
            assert!(Problem::of(&not_taken).is_none(), "{not_taken}");
        }
    }
}
