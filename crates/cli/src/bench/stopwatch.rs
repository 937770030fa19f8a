//! `Stopwatch`: the rule of measuring, and the lines that are printed.

use std::io::Write;
use std::time::Instant;

use fireclay::{Device, Error, Result, cuda};
use serde_json::{Value, json};

use crate::failure::Failure;

/// The fewest and the most runs of a workload.
const RUNS: std::ops::Range<usize> = 5..400;
/// Seconds that a run on a device takes at least, so that the wait at its end is a small part of it.
const DEVICE_RUN: f64 = 0.005;
/// The most calls of a run that is made longer.
const MOST_CALLS: usize = 1000;

/// What one call of a workload needs at the least, which tells how much of the machine it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Not stated.
    Unstated,
    /// Bytes read and written, each once.
    Bytes(usize),
    /// Additions and multiplications.
    Flops(usize),
}

/// Measures the workloads that were asked for.
pub(crate) struct Stopwatch {
    only: String,
    seconds: f64,
    list: bool,
    device: Device,
    /// As many calls make a run as take so many seconds, at most [`MOST_CALLS`]; 0 for the number that a workload states.
    shortest_run: f64,
    met: usize,
    failed: usize,
}

impl Stopwatch {
    /// For workloads on `device` whose names begin with `only`, each measured for `seconds`; with `list`, names only.
    pub(crate) fn new(only: &str, seconds: f64, list: bool, device: Device) -> Stopwatch {
        Stopwatch {
            only: only.to_owned(),
            seconds,
            list,
            device,
            shortest_run: match device {
                Device::Cpu => 0.0,
                _ => DEVICE_RUN,
            },
            met: 0,
            failed: 0,
        }
    }

    /// With runs of at least so many seconds, whatever number of calls the workloads state.
    pub(crate) fn with_shortest_run(mut self, seconds: f64) -> Stopwatch {
        self.shortest_run = self.shortest_run.max(seconds);
        self
    }

    /// How many workloads were asked for among those met so far.
    pub(crate) fn met(&self) -> usize {
        self.met
    }

    /// Whether any of these workloads is to be measured: whether it pays to prepare their inputs.
    pub(crate) fn wants_any(&self, names: &[&str]) -> bool {
        self.list || names.iter().any(|name| name.starts_with(&self.only))
    }

    /// How many of those ended with an error.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    /// Measures a workload: two calls for warming up, then runs of `inner` calls until the time is over, at least 5 and at
    /// most 400. What a call returns is dropped within its time. A device is waited for before the clock is read, and gets more calls a
    /// run where they are short. A workload that the device has no kernel for is a line that says so; so is one that fails, after which
    /// the others go on.
    pub(crate) fn measure<R>(
        &mut self,
        name: &str,
        inner: usize,
        mut call: impl FnMut() -> Result<R>,
    ) -> Result<(), Failure> {
        self.measure_prepared(name, inner, Work::Unstated, || Ok(move || call().map(drop)))
    }

    /// As [`measure`](Stopwatch::measure), of stated work, and what is called is made here, if it is asked for.
    pub(crate) fn measure_prepared<F: FnMut() -> Result<()>>(
        &mut self,
        name: &str,
        inner: usize,
        work: Work,
        prepare: impl FnOnce() -> Result<F>,
    ) -> Result<(), Failure> {
        if !self.begin(name)? {
            return Ok(());
        }
        let first_line = |error: &Error| json!(error.to_string().lines().next());
        match prepare().and_then(|call| self.times(inner, call)) {
            Ok(times) => {
                let mut fields = vec![
                    ("ms", json!(rounded(median(&times)))),
                    ("min_ms", json!(rounded(times[0]))),
                    ("n", json!(times.len())),
                ];
                match work {
                    Work::Unstated => {}
                    Work::Bytes(bytes) => fields.push(("bytes", json!(bytes))),
                    Work::Flops(flops) => fields.push(("flops", json!(flops))),
                }
                print(name, &fields)
            }
            Err(error @ Error::NoKernel { .. }) => print(name, &[("not_yet", first_line(&error))]),
            Err(error) => {
                self.failed += 1;
                print(name, &[("failed", first_line(&error))])
            }
        }
    }

    /// Milliseconds of a call, sorted, by the rule of [`measure`](Stopwatch::measure).
    fn times(&self, mut inner: usize, mut call: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
        call()?;
        call()?;
        self.wait()?;
        if self.shortest_run > 0.0 {
            let run = Instant::now();
            for _ in 0..inner {
                call()?;
            }
            self.wait()?;
            let longer = self.shortest_run / run.elapsed().as_secs_f64().max(1e-9);
            inner = (inner as f64 * longer.max(1.0)) as usize;
            inner = inner.clamp(1, MOST_CALLS);
        }
        let mut times = Vec::new();
        let start = Instant::now();
        while (start.elapsed().as_secs_f64() < self.seconds || times.len() < RUNS.start)
            && times.len() < RUNS.end
        {
            let run = Instant::now();
            for _ in 0..inner {
                call()?;
            }
            self.wait()?;
            times.push(run.elapsed().as_secs_f64() * 1e3 / inner as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Until the device has done all of its work.
    fn wait(&self) -> Result<()> {
        match self.device {
            Device::Cpu => Ok(()),
            device => cuda::synchronize(device),
        }
    }

    /// A workload that cannot be run yet, and what it needs.
    pub(crate) fn not_yet(&mut self, name: &str, needs: &str) -> Result<(), Failure> {
        if !self.begin(name)? {
            return Ok(());
        }
        print(name, &[("not_yet", json!(format!("needs {needs}")))])
    }

    /// Whether to go on with this workload.
    fn begin(&mut self, name: &str) -> Result<bool, Failure> {
        if !name.starts_with(&self.only) {
            return Ok(false);
        }
        self.met += 1;
        if self.list {
            writeln!(std::io::stdout(), "{name}")?;
        }
        Ok(!self.list)
    }
}

/// A line, its fields in the order of the PyTorch script.
fn print(name: &str, fields: &[(&str, Value)]) -> Result<(), Failure> {
    let mut line = format!("{{\"workload\": {}", json!(name));
    for (field, value) in fields {
        line += &format!(", {}: {value}", json!(field));
    }
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}}}")?;
    Ok(output.flush()?)
}

/// The middle one of sorted times, or the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        0.5 * (sorted[middle - 1] + sorted[middle])
    }
}

/// To a millionth of a millisecond, as the PyTorch script.
fn rounded(ms: f64) -> f64 {
    (ms * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_pythons() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn a_call_is_warmed_up_and_counted() {
        let mut stopwatch = Stopwatch::new("a/", 0.0, false, Device::Cpu);
        let mut calls = 0;
        let mut count = || {
            calls += 1;
            Ok(())
        };
        stopwatch.measure("b/other", 3, &mut count).unwrap();
        stopwatch.measure("a/this", 3, &mut count).unwrap();
        assert_eq!((calls, stopwatch.met()), (2 + 5 * 3, 1));
        // One that fails is counted, and the next one goes on.
        let fail = || -> Result<()> { Err(Error::argument("op", "no")) };
        stopwatch.measure("a/fails", 1, fail).unwrap();
        stopwatch.measure("a/next", 1, || Ok(())).unwrap();
        assert_eq!((stopwatch.met(), stopwatch.failed()), (3, 1));
    }
}
