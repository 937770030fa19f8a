//! `fireclay plan`: which kernel computes a matrix product on a GPU, and why.

use std::io::{self, Write};

use clap::ArgMatches;
use fireclay::backends::cuda::matmul::{Abilities, GemmShape, MatrixStrides, plan};
use fireclay::cuda::{self, BlasLibrary};
use fireclay::{DType, Device};
use serde_json::json;

use crate::arguments::{self, given, optional};
use crate::failure::Failure;

/// What the command line asks for.
pub(crate) struct Request {
    shape: GemmShape,
    dtype: DType,
    /// Whether A and B lie by columns.
    turned: [bool; 2],
    is_aligned: bool,
    allow_tf32: bool,
    device: String,
    capability: Option<(u32, u32)>,
    json: bool,
}

impl Request {
    pub(crate) fn of(matches: &ArgMatches) -> Request {
        let lies_by_columns = |name| given::<String>(matches, name) == "t";
        Request {
            shape: GemmShape {
                batch: optional(matches, "batch").unwrap_or(1),
                m: given(matches, "m"),
                n: given(matches, "n"),
                k: given(matches, "k"),
            },
            dtype: given(matches, "dtype"),
            turned: [lies_by_columns("a"), lies_by_columns("b")],
            is_aligned: !matches.get_flag("unaligned"),
            allow_tf32: matches.get_flag("tf32"),
            device: given(matches, "device"),
            capability: optional(matches, "capability"),
            json: matches.get_flag("json"),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    let &Request {
        shape,
        dtype,
        is_aligned,
        allow_tf32,
        ..
    } = request;
    let (capability, device) = match request.capability {
        Some(capability) => (capability, None),
        None => {
            let device = arguments::device(&request.device, || Device::Cuda(0))?;
            if device == Device::Cpu {
                let what = "--device \"cpu\": the CPU has one way for all products; expected cuda or cuda:N, or --capability M.N";
                return Err(Failure::Refused(what.to_owned()));
            }
            let properties = cuda::get_device_properties(device)?;
            (properties.capability, Some(device))
        }
    };
    let abilities = Abilities {
        capability,
        allow_tf32,
    };
    let GemmShape { batch, m, n, k } = shape;
    let lying = |rows, cols, is_turned| match is_turned {
        true => MatrixStrides::row_major(cols, rows).transposed(),
        false => MatrixStrides::row_major(rows, cols),
    };
    let (a, b) = (
        lying(m, k, request.turned[0]),
        lying(k, n, request.turned[1]),
    );
    let plan = plan(dtype, shape, a, b, abilities);
    let second = plan.second_kernel_name(k);
    let at_once = plan.moves_at_once(shape, a, b, is_aligned);
    let why = plan.why(shape, abilities);
    let asks_vendor =
        cuda::preferred_blas_library(None)? == BlasLibrary::CublasLt && dtype.is_floating_point();
    let where_to = device.map_or_else(
        || format!("a device of capability {}.{}", capability.0, capability.1),
        |device| format!("{device}, capability {}.{}", capability.0, capability.1),
    );
    let mut out = io::stdout().lock();
    if request.json {
        let tile = plan.tile().map(|tile| [tile.rows, tile.cols]);
        let answer = json!({
            "batch": batch,
            "m": m,
            "n": n,
            "k": k,
            "dtype": dtype.name(),
            "device": device.map(|device| device.to_string()),
            "capability": format!("{}.{}", capability.0, capability.1),
            "kernel": plan.kernel_name(),
            "second_kernel": second,
            "tile": tile,
            "tensor_cores": plan.uses_tensor_cores(),
            "stages": plan.stages(),
            "splits": plan.splits,
            "depth": plan.depth,
            "blocks": plan.blocks(shape, at_once),
            "numbers_at_once": { "a": at_once[0], "b": at_once[1], "result": at_once[2] },
            "asks_cublaslt_first": asks_vendor,
            "why": why,
        });
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "product  {batch} x [{m}, {k}] @ [{k}, {n}], {} on {where_to}",
        dtype.name()
    )?;
    writeln!(out, "kernel   {plan}")?;
    if let Some(second) = second {
        writeln!(out, "then     {second}: adds the parts in order")?;
    }
    writeln!(out, "blocks   {}", plan.blocks(shape, at_once))?;
    writeln!(out, "stages   {}", plan.stages())?;
    let [of_a, of_b, of_result] = at_once;
    writeln!(
        out,
        "at once  {of_a} numbers of A, {of_b} of B, {of_result} of the result"
    )?;
    for reason in why {
        writeln!(out, "why      {reason}")?;
    }
    if asks_vendor {
        writeln!(
            out,
            "before   cuBLASLt is preferred: it is asked first, where at most a bias is added"
        )?;
    }
    Ok(())
}
