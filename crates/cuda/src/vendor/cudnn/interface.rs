//! cuDNN's interface: the functions in use, which versions 8 and 9 both have, their numbers, and what they say.

use std::ffi::{c_char, c_int, c_void};

use cudarc::driver::sys::CUstream;

use crate::vendor::convolution::Pass;
use crate::vendor::functions::{Opaque, Status, functions};

/// The numbers of the C interface that are in use. A test holds them against cudarc's.
pub(super) mod number {
    pub(crate) const FLOAT: i32 = 0;
    pub(crate) const DOUBLE: i32 = 1;
    pub(crate) const HALF: i32 = 2;
    pub(crate) const BFLOAT16: i32 = 9;
    pub(crate) const NCHW: i32 = 0;
    pub(crate) const CROSS_CORRELATION: i32 = 1;
    pub(crate) const DETERMINISTIC: i32 = 1;
    pub(crate) const DEFAULT_MATH: i32 = 0;
    pub(crate) const TENSOR_OP_MATH: i32 = 1;
    pub(crate) const FMA_MATH: i32 = 3;
}

/// What the library says of an algorithm for a convolution (`cudnnConvolutionFwdAlgoPerf_t` and those of the gradients).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proposal {
    pub(super) algorithm: c_int,
    pub(super) status: Status,
    pub(super) time: f32,
    pub(super) memory: usize,
    pub(super) determinism: c_int,
    pub(super) math: c_int,
    reserved: [c_int; 3],
}

/// Asks for algorithms, the fastest first. The three passes have functions of one type each for this, for the workspace and for
/// the computation: two operands, the convolution, the result.
pub(super) type Propose = unsafe extern "C" fn(
    handle: Opaque,
    first: Opaque,
    second: Opaque,
    convolution: Opaque,
    result: Opaque,
    asked: c_int,
    got: *mut c_int,
    proposals: *mut Proposal,
) -> Status;
pub(super) type Workspace = unsafe extern "C" fn(
    handle: Opaque,
    first: Opaque,
    second: Opaque,
    convolution: Opaque,
    result: Opaque,
    algorithm: c_int,
    bytes: *mut usize,
) -> Status;
pub(super) type Run = unsafe extern "C" fn(
    handle: Opaque,
    alpha: *const c_void,
    first: Opaque,
    first_data: *const c_void,
    second: Opaque,
    second_data: *const c_void,
    convolution: Opaque,
    algorithm: c_int,
    workspace: *mut c_void,
    workspace_bytes: usize,
    beta: *const c_void,
    result: Opaque,
    result_data: *mut c_void,
) -> Status;

functions! {
    pub(super) struct Functions {
        create = cudnnCreate(handle: *mut Opaque);
        set_stream = cudnnSetStream(handle: Opaque, stream: CUstream);
        error_string = cudnnGetErrorString[unsafe extern "C" fn(Status) -> *const c_char];
        cuda_version = cudnnGetCudartVersion[unsafe extern "C" fn() -> usize];
        tensor_create = cudnnCreateTensorDescriptor(tensor: *mut Opaque);
        tensor_destroy = cudnnDestroyTensorDescriptor(tensor: Opaque);
        tensor_set = cudnnSetTensor4dDescriptorEx(
            tensor: Opaque, dtype: c_int, n: c_int, c: c_int, h: c_int, w: c_int,
            n_stride: c_int, c_stride: c_int, h_stride: c_int, w_stride: c_int,
        );
        filter_create = cudnnCreateFilterDescriptor(filter: *mut Opaque);
        filter_destroy = cudnnDestroyFilterDescriptor(filter: Opaque);
        filter_set = cudnnSetFilter4dDescriptor(
            filter: Opaque, dtype: c_int, format: c_int, k: c_int, c: c_int, h: c_int, w: c_int,
        );
        convolution_create = cudnnCreateConvolutionDescriptor(convolution: *mut Opaque);
        convolution_destroy = cudnnDestroyConvolutionDescriptor(convolution: Opaque);
        convolution_set = cudnnSetConvolution2dDescriptor(
            convolution: Opaque, pad_h: c_int, pad_w: c_int, stride_h: c_int, stride_w: c_int,
            dilation_h: c_int, dilation_w: c_int, mode: c_int, compute: c_int,
        );
        set_groups = cudnnSetConvolutionGroupCount(convolution: Opaque, groups: c_int);
        set_math = cudnnSetConvolutionMathType(convolution: Opaque, math: c_int);
        propose_output = cudnnGetConvolutionForwardAlgorithm_v7[Propose];
        propose_input_grad = cudnnGetConvolutionBackwardDataAlgorithm_v7[Propose];
        propose_weight_grad = cudnnGetConvolutionBackwardFilterAlgorithm_v7[Propose];
        workspace_of_output = cudnnGetConvolutionForwardWorkspaceSize[Workspace];
        workspace_of_input_grad = cudnnGetConvolutionBackwardDataWorkspaceSize[Workspace];
        workspace_of_weight_grad = cudnnGetConvolutionBackwardFilterWorkspaceSize[Workspace];
        output = cudnnConvolutionForward[Run];
        input_grad = cudnnConvolutionBackwardData[Run];
        weight_grad = cudnnConvolutionBackwardFilter[Run];
    }
}

/// The functions of a pass, with their names.
pub(super) struct PassFunctions {
    pub(super) propose: (&'static str, Propose),
    pub(super) workspace: (&'static str, Workspace),
    pub(super) run: (&'static str, Run),
}

impl Functions {
    pub(super) fn of(&self, pass: Pass) -> PassFunctions {
        match pass {
            Pass::Output => PassFunctions {
                propose: (
                    "cudnnGetConvolutionForwardAlgorithm_v7",
                    self.propose_output,
                ),
                workspace: (
                    "cudnnGetConvolutionForwardWorkspaceSize",
                    self.workspace_of_output,
                ),
                run: ("cudnnConvolutionForward", self.output),
            },
            Pass::InputGrad => PassFunctions {
                propose: (
                    "cudnnGetConvolutionBackwardDataAlgorithm_v7",
                    self.propose_input_grad,
                ),
                workspace: (
                    "cudnnGetConvolutionBackwardDataWorkspaceSize",
                    self.workspace_of_input_grad,
                ),
                run: ("cudnnConvolutionBackwardData", self.input_grad),
            },
            Pass::WeightGrad => PassFunctions {
                propose: (
                    "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
                    self.propose_weight_grad,
                ),
                workspace: (
                    "cudnnGetConvolutionBackwardFilterWorkspaceSize",
                    self.workspace_of_weight_grad,
                ),
                run: ("cudnnConvolutionBackwardFilter", self.weight_grad),
            },
        }
    }
}

/// Writes what the library says of the last error into a buffer of so many bytes. Version 9 has it.
pub(super) type LastError = unsafe extern "C" fn(*mut c_char, usize);

/// Whether a status says that there is no such computation: `CUDNN_STATUS_NOT_SUPPORTED` of version 8, and those of its kind of
/// version 9, whose numbers are others.
pub(super) fn is_not_supported(status: Status) -> bool {
    status == 9 || (3000..4000).contains(&status)
}

/// Whether a status says that memory was short: `CUDNN_STATUS_ALLOC_FAILED` of version 8, and those of the host and the device of
/// version 9.
pub(super) fn is_of_memory(status: Status) -> bool {
    matches!(status, 2 | 4003 | 4004)
}

#[cfg(test)]
mod tests {
    use cudarc::cudnn::sys;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_interface() {
        let pairs = [
            (number::FLOAT, sys::cudnnDataType_t::CUDNN_DATA_FLOAT as i32),
            (
                number::DOUBLE,
                sys::cudnnDataType_t::CUDNN_DATA_DOUBLE as i32,
            ),
            (number::HALF, sys::cudnnDataType_t::CUDNN_DATA_HALF as i32),
            (
                number::BFLOAT16,
                sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16 as i32,
            ),
            (
                number::NCHW,
                sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW as i32,
            ),
            (
                number::CROSS_CORRELATION,
                sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as i32,
            ),
            (
                number::DETERMINISTIC,
                sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC as i32,
            ),
            (
                number::DEFAULT_MATH,
                sys::cudnnMathType_t::CUDNN_DEFAULT_MATH as i32,
            ),
            (
                number::TENSOR_OP_MATH,
                sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH as i32,
            ),
            (
                number::FMA_MATH,
                sys::cudnnMathType_t::CUDNN_FMA_MATH as i32,
            ),
        ];
        for (place, (ours, theirs)) in pairs.into_iter().enumerate() {
            assert_eq!(ours, theirs, "pair {place}");
        }
        use sys::cudnnStatus_t as Theirs;
        assert!(is_not_supported(Theirs::CUDNN_STATUS_NOT_SUPPORTED as i32));
        assert!(is_not_supported(
            Theirs::CUDNN_STATUS_NOT_SUPPORTED_LAYOUT as i32
        ));
        assert!(is_of_memory(
            Theirs::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED as i32
        ));
        assert!(is_of_memory(
            Theirs::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED as i32
        ));
        assert!(!is_not_supported(
            Theirs::CUDNN_STATUS_EXECUTION_FAILED as i32
        ));
        assert!(!is_not_supported(Theirs::CUDNN_STATUS_BAD_PARAM as i32));
        assert_eq!(
            size_of::<Proposal>(),
            size_of::<sys::cudnnConvolutionFwdAlgoPerf_t>()
        );
        assert_eq!(
            size_of::<Proposal>(),
            size_of::<sys::cudnnConvolutionBwdFilterAlgoPerf_t>()
        );
        assert_eq!(
            std::mem::offset_of!(Proposal, memory),
            std::mem::offset_of!(sys::cudnnConvolutionFwdAlgoPerf_t, memory)
        );
        assert_eq!(
            std::mem::offset_of!(Proposal, math),
            std::mem::offset_of!(sys::cudnnConvolutionBwdDataAlgoPerf_t, mathType)
        );
    }
}
