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

/// The kernel of a name for a dtype: `softmax` for f32 is `softmax_f32`. A call of another dtype has no kernel.
macro_rules! kernel_of {
    ($call:expr, $dtype:expr, $name:literal, [$($variant:ident $suffix:literal),+ $(,)?]) => {
        match $dtype {
            $(fireclay_core::DType::$variant => {
                const NAME: &std::ffi::CStr = $crate::ops::float::c_name(concat!($name, "_", $suffix, "\0"));
                NAME
            })+
            _ => return Err($call.no_kernel()),
        }
    };
    ($call:expr, $dtype:expr, $name:literal) => {
        $crate::ops::float::kernel_of!($call, $dtype, $name, [F32 "f32", F64 "f64", BF16 "bf16", F16 "f16"])
    };
}

pub(crate) use kernel_of;

/// A text that ends with a zero, as C takes it.
pub(crate) const fn c_name(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("one zero, at the end"),
    }
}

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
