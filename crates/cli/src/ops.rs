//! `fireclay ops`: which ops there are, and whether they answer as PyTorch does.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ArgMatches;
use fireclay::Device;
use fireclay::ops::{Entry, entries};
use fireclay_conformance::{Facts, Report, Tally};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::arguments::{device, given};
use crate::failure::Failure;

/// What the command line asks for.
pub(crate) enum Request {
    List {
        device: String,
        json: bool,
    },
    Check {
        folders: Vec<PathBuf>,
        device: String,
        json: bool,
    },
}

impl Request {
    pub(crate) fn of(matches: &ArgMatches) -> Request {
        match matches.subcommand() {
            Some(("check", matches)) => Request::Check {
                folders: matches
                    .get_many("folder")
                    .map(|folders| folders.cloned().collect())
                    .unwrap_or_default(),
                device: given(matches, "device"),
                json: matches.get_flag("json"),
            },
            Some((_, matches)) => Request::List {
                device: given(matches, "device"),
                json: matches.get_flag("json"),
            },
            None => unreachable!("clap asks for a subcommand"),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    match request {
        Request::List { device, json } => list(device, *json),
        Request::Check {
            folders,
            device,
            json,
        } => check(folders, device, *json),
    }
}

fn list(name: &str, json: bool) -> Result<(), Failure> {
    let chosen = device(name, || Device::Cpu)?;
    let mut devices = vec![Device::Cpu];
    if !devices.contains(&chosen) {
        devices.push(chosen);
    }
    let bar = progress(entries().len());
    let mut out = io::stdout().lock();
    if !json {
        writeln!(
            out,
            "{:<44} {:<12} {:>5} {:>6} {:<8} dtypes",
            "op", "family", "grad", "repeat", "autocast"
        )?;
    }
    for entry in entries() {
        let facts = Facts::of(entry, &devices)?;
        bar.inc(1);
        if json {
            writeln!(out, "{}", facts_json(entry, &facts))?;
        } else {
            writeln!(out, "{}", facts_line(entry, &facts))?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn autocast(facts: &Facts) -> Vec<&'static str> {
    facts.autocast.iter().map(|class| class.name()).collect()
}

/// Whether two runs give the same bits.
fn repeats(facts: &Facts) -> &'static str {
    match (facts.deterministic, facts.random) {
        (false, _) => "no",
        (true, true) => "seed",
        (true, false) => "yes",
    }
}

fn facts_line(entry: &Entry, facts: &Facts) -> String {
    let grad = match (facts.differentiable, facts.twice_differentiable) {
        (false, _) => "-",
        (true, false) => "1",
        (true, true) => "1, 2",
    };
    let names = |dtypes: &[fireclay::DType]| {
        let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        names.join(" ")
    };
    let dtypes: Vec<String> = match &facts.dtypes[..] {
        [(_, dtypes)] => vec![names(dtypes)],
        [(_, first), (_, second)] if first == second => vec![names(first)],
        several => several
            .iter()
            .map(|(device, dtypes)| format!("{device}: {}", names(dtypes)))
            .collect(),
    };
    format!(
        "{:<44} {:<12} {grad:>5} {:>6} {:<8} {}",
        entry.name,
        entry.family.name(),
        repeats(facts),
        autocast(facts).join("+"),
        dtypes.join("; ")
    )
}

fn facts_json(entry: &Entry, facts: &Facts) -> Value {
    let dtypes = facts.dtypes.iter().map(|(device, dtypes)| {
        let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        (device.to_string(), json!(names))
    });
    json!({
        "name": entry.name,
        "family": entry.family.name(),
        "signature": entry.signature,
        "example": entry.example,
        "dtypes": dtypes.collect::<serde_json::Map<_, _>>(),
        "differentiable": facts.differentiable,
        "twice_differentiable": facts.twice_differentiable,
        "deterministic": facts.deterministic,
        "random": facts.random,
        "autocast": autocast(facts),
    })
}

fn check(folders: &[PathBuf], name: &str, json: bool) -> Result<(), Failure> {
    let device = device(name, || Device::Cpu)?;
    let bar = progress(0);
    let report = Report::of(folders, device, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let report = report.map_err(|error| Failure::Refused(error.to_string()))?;
    let mut out = io::stdout().lock();
    let [passed, failed, missing] = report.totals();
    if json {
        for ((family, op), tally) in &report.ops {
            writeln!(out, "{}", tally_json(family, op, tally))?;
        }
        let total = json!({
            "device": device.to_string(), "ops": report.ops.len(),
            "passed": passed, "failed": failed, "missing": missing,
        });
        writeln!(out, "{total}")?;
    } else {
        writeln!(
            out,
            "{:<12} {:<44} {:>6} {:>6} {:>7}  largest error (of what is allowed)",
            "family", "op", "passed", "failed", "missing"
        )?;
        for ((family, op), tally) in &report.ops {
            let largest = match tally.largest.error {
                0.0 => "0".to_owned(),
                error => format!("{error:.1e} ({:.0} %)", tally.largest.of_allowed * 100.0),
            };
            writeln!(
                out,
                "{family:<12} {op:<44} {:>6} {:>6} {:>7}  {largest}",
                tally.passed,
                tally.failed.len(),
                tally.missing.len(),
            )?;
            for (id, what) in tally.failed.iter().chain(&tally.missing) {
                writeln!(out, "    {id}: {}", what.replace('\n', "\n        "))?;
            }
        }
        writeln!(
            out,
            "{} cases of {} ops on {device}: {passed} passed, {failed} failed, {missing} missing",
            passed + failed + missing,
            report.ops.len(),
        )?;
    }
    match failed + missing {
        0 => Ok(()),
        wrong => Err(Failure::Refused(format!(
            "{wrong} of {} cases don't answer as they should",
            passed + failed + missing
        ))),
    }
}

fn tally_json(family: &str, op: &str, tally: &Tally) -> Value {
    let list = |cases: &[(String, String)]| -> Vec<Value> {
        let cases = cases.iter();
        cases
            .map(|(id, what)| json!({ "case": id, "what": what }))
            .collect()
    };
    json!({
        "family": family,
        "op": op,
        "passed": tally.passed,
        "failed": list(&tally.failed),
        "missing": list(&tally.missing),
        "largest_error": tally.largest.error,
        "of_allowed": tally.largest.of_allowed,
    })
}

fn progress(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
