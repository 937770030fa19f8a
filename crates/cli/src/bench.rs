//! `fireclay bench`: the workloads of `bench/torch_workloads.py`, under the same names, in the same shapes, measured by the
//! same rule, so that lines of the two can be compared.

mod models;
mod network_loads;
mod op_loads;
mod stopwatch;

use clap::ArgMatches;
use fireclay::Device;

use crate::arguments::{self, given, optional};
use crate::failure::Failure;
use stopwatch::Stopwatch;

/// What the command line asks for.
pub(crate) struct Request {
    only: String,
    device: String,
    threads: Option<usize>,
    seconds: f64,
    list: bool,
}

impl Request {
    pub(crate) fn of(matches: &ArgMatches) -> Request {
        Request {
            only: given(matches, "only"),
            device: given(matches, "device"),
            threads: optional(matches, "threads"),
            seconds: given(matches, "seconds"),
            list: matches.get_flag("list"),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    let device = arguments::device(&request.device, || Device::Cpu)?;
    arguments::set_threads(request.threads);
    fireclay::manual_seed(0);
    let mut stopwatch = Stopwatch::new(&request.only, request.seconds, request.list, device);
    op_loads::run(&mut stopwatch, device)?;
    network_loads::run(&mut stopwatch, device)?;
    if stopwatch.met() == 0 {
        return Err(Failure::Refused(format!(
            "no workload begins with {:?}; see the names with `fireclay bench --list`",
            request.only
        )));
    }
    Ok(())
}
