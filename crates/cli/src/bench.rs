//! `fireclay bench`: the workloads of `bench/torch_workloads.py`, under the same names, in the same shapes, measured by the
//! same rule, so that lines of the two can be compared; and the loads of the table of ops, which `bench/torch_ops.py` reads too.

mod device_loads;
mod models;
mod network_loads;
mod op_loads;
mod stopwatch;
mod table_loads;

use std::path::PathBuf;

use clap::ArgMatches;
use fireclay::Device;
use fireclay::cuda::{self, BlasLibrary, ConvLibrary};

use crate::arguments::{self, given, optional};
use crate::failure::Failure;
use stopwatch::Stopwatch;

/// What the command line asks for.
pub(crate) struct Request {
    only: String,
    device: String,
    blas: Option<BlasLibrary>,
    conv: Option<ConvLibrary>,
    small: bool,
    threads: Option<usize>,
    seconds: f64,
    list: bool,
    /// The file of the loads of the table of ops, which are measured then, and nothing else.
    ops: Option<PathBuf>,
}

impl Request {
    pub(crate) fn of(matches: &ArgMatches) -> Request {
        Request {
            only: given(matches, "only"),
            device: given(matches, "device"),
            blas: optional(matches, "blas"),
            conv: optional(matches, "conv"),
            small: matches.get_flag("small"),
            threads: optional(matches, "threads"),
            seconds: given(matches, "seconds"),
            list: matches.get_flag("list"),
            ops: optional(matches, "ops"),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    let device = arguments::device(&request.device, || Device::Cpu)?;
    arguments::set_threads(request.threads);
    fireclay::manual_seed(0);
    if let Some(library) = request.blas {
        cuda::preferred_blas_library(library)?;
    }
    if let Some(library) = request.conv {
        cuda::preferred_conv_library(library)?;
    }
    let mut stopwatch = Stopwatch::new(&request.only, request.seconds, request.list, device);
    if let Some(file) = &request.ops {
        stopwatch = stopwatch.with_shortest_run(table_loads::SHORTEST_RUN);
        table_loads::run(&mut stopwatch, device, file)?;
    } else {
        op_loads::run(&mut stopwatch, device)?;
        network_loads::run(&mut stopwatch, device)?;
        // They would take a processor minutes: only for who asks.
        if request.only.starts_with(device_loads::PREFIX) {
            device_loads::run(&mut stopwatch, device, request.small)?;
        }
    }
    if stopwatch.met() == 0 {
        return Err(Failure::Refused(format!(
            "no workload begins with {:?}; see the names with `fireclay bench --list`",
            request.only
        )));
    }
    if stopwatch.failed() > 0 {
        return Err(Failure::Refused(format!(
            "{} of {} workloads failed; their lines say why",
            stopwatch.failed(),
            stopwatch.met()
        )));
    }
    Ok(())
}
