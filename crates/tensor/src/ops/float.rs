//! Choosing a kernel's float type by dtype.

/// Runs `$body` with `$T` as f32 or f64; any other dtype is an error that names the op. (16-bit floats come as f32.)
macro_rules! match_float {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            fireclay_core::DType::F32 => {
                type $T = f32;
                $body
            }
            fireclay_core::DType::F64 => {
                type $T = f64;
                $body
            }
            dtype => {
                return Err(fireclay_core::Error::NoKernel {
                    op: $op,
                    device: fireclay_core::Device::Cpu,
                    dtype,
                    context: fireclay_core::Context::hint("cast it first: to_dtype(DType::F32)"),
                });
            }
        }
    };
}

pub(crate) use match_float;

use fireclay_core::{DType, Error, Result};

use crate::op::Meta;

/// The common dtype of an op's floating operands, which must be equal.
pub(crate) fn same_float(op: &'static str, inputs: &[Meta<'_>]) -> Result<DType> {
    let dtype = inputs[0].dtype;
    if inputs.iter().any(|input| input.dtype != dtype) {
        let dtypes: Vec<&str> = inputs.iter().map(|input| input.dtype.name()).collect();
        return Err(Error::dtype(
            op,
            format!("expected one dtype, got {}", dtypes.join(" and ")),
        )
        .with_hint("cast them to one dtype with to_dtype"));
    }
    if !dtype.is_floating_point() {
        return Err(
            Error::dtype(op, format!("expected a floating dtype, got {dtype}"))
                .with_hint("cast it first: to_dtype(DType::F32)"),
        );
    }
    Ok(dtype)
}
