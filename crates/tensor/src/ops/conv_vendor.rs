//! Convolutions by the vendor's library, where the user prefers it: what it is told of one, and in which form it gets the operands.

use std::sync::{Arc, OnceLock};

use fireclay_core::program::class_of;
use fireclay_core::{DType, Device, Result};
use fireclay_cpu::conv::Conv2dShape;
use fireclay_cpu::program::Program;
use fireclay_cuda::Gpu;
use fireclay_cuda::pointwise::Pointwise;
use fireclay_cuda::vendor::{self, Convolution, Pass};

use super::binary::Add;
use crate::cuda_call::CudaCall;
use crate::function::Function;
use crate::op::KernelInputs;
use crate::tensor::Tensor;

/// The convolution as the library is told of it.
fn described(pass: Pass, (shape, output): &(Conv2dShape, [usize; 2]), dtype: DType) -> Convolution {
    Convolution {
        pass,
        dtype,
        tf32: dtype == DType::F32 && crate::precision::allow_tf32(),
        batch: shape.batch,
        in_channels: shape.in_channels,
        out_channels: shape.out_channels,
        groups: shape.groups,
        input: [shape.height, shape.width],
        output: *output,
        kernel: shape.kernel,
        stride: shape.stride,
        padding: shape.padding,
        dilation: shape.dilation,
    }
}

/// The form in which a convolution's kernels get these operands: 16-bit floats as they are if the library is to compute it and takes
/// them so; widened otherwise, for Fireclay's own kernels, or for the library if it takes f32.
pub(super) fn form(
    op: &'static str,
    pass: Pass,
    shapes: impl FnOnce() -> Result<(Conv2dShape, [usize; 2])>,
    operands: [&[&Tensor]; 2],
) -> Result<KernelInputs> {
    let dtype = operands[0][0].dtype();
    let aligned = |tensor: &&Tensor| {
        let place = tensor.layout().offset() * tensor.dtype().size();
        // Others get memory of their own, whose beginnings are multiples of more.
        !tensor.is_contiguous() || (place as u64).is_multiple_of(vendor::ALIGNMENT)
    };
    if !dtype.is_half() || !operands.iter().flat_map(|some| some.iter()).all(aligned) {
        return Ok(KernelInputs::Contiguous);
    }
    let Device::Cuda(ordinal) = operands[1][0].device() else {
        return Ok(KernelInputs::Contiguous);
    };
    let stream = Gpu::get(ordinal)?.stream();
    let convolution = described(pass, &shapes()?, dtype);
    Ok(match vendor::takes_convolution(stream, op, &convolution)? {
        true => KernelInputs::Packed,
        false => KernelInputs::Contiguous,
    })
}

/// Has the library compute the op of `call`, if that is preferred and it takes it, and adds the bias, if there is one; whether it
/// did. 16-bit floats come here as they are if [`form`] found that it takes them.
pub(super) fn computes(
    call: &CudaCall<'_>,
    pass: Pass,
    shapes: &(Conv2dShape, [usize; 2]),
) -> Result<bool> {
    let convolution = described(pass, shapes, call.dtype(0));
    let is_promised = call.dtype(0).is_half();
    // SAFETY: the op's rule saw to it that the operands have these sizes; the door brought them into one piece each.
    let taken = unsafe { call.convolution_by_vendor(&convolution, is_promised) }?;
    if taken && call.inputs() > 2 {
        // One number for each channel of the output.
        let bias = call.layout(2).unsqueeze(1).unsqueeze(2);
        call.combine_output(&addition(call.dtype(0)), 2, &bias)?;
    }
    Ok(taken)
}

/// The kernel that adds two operands.
fn addition(dtype: DType) -> Arc<Pointwise> {
    static KNOWN: [OnceLock<Arc<Pointwise>>; 4] = [const { OnceLock::new() }; 4];
    let place = match dtype {
        DType::F64 => 0,
        DType::F16 => 1,
        DType::BF16 => 2,
        _ => 3,
    };
    let kernel = KNOWN[place].get_or_init(|| {
        let mut program = Program::new();
        let operands = [program.input(dtype), program.input(dtype)];
        let sum = program.apply(Add.kernel(), class_of(dtype), &operands);
        program.output(sum[0], dtype);
        Pointwise::of(&program.description())
    });
    Arc::clone(kernel)
}
