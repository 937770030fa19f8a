//! `check-device`: every op on a device against the host, as a table. It goes on where an op differs.
//!
//! It ends with 0 if all agree, 1 if something differs or has no kernel, 2 if there is no such device or a flag makes no sense, 3 if time
//! was over before all was compared.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program's output"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, Command, value_parser};
use fireclay_cuda::surface;
use fireclay_cuda::vendor::{
    BlasLibrary, ConvLibrary, preferred_blas_library, preferred_conv_library,
};
use fireclay_tensor::{Device, IntoDevice};
use fireclay_testing::agreement::{Findings, check};
use fireclay_testing::samples::{Sample, samples};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

const DIFFERS: u8 = 1;
const REFUSED: u8 = 2;
const CUT_SHORT: u8 = 3;

fn command() -> Command {
    Command::new("check-device")
        .about("Compares every op on a device with the host: results and gradients, over dtypes and layouts")
        .after_help("Ends with 0 if all agree, 1 if something differs, 2 without a device, 3 if time was over before.")
        .args([
            Arg::new("device")
                .long("device")
                .value_name("DEVICE")
                .default_value("cuda:0")
                .help("The device to check"),
            Arg::new("only")
                .long("only")
                .value_name("OP")
                .value_delimiter(',')
                .help("Only these ops, separated by commas"),
            Arg::new("blas")
                .long("blas")
                .value_name("LIBRARY")
                .value_parser(value_parser!(BlasLibrary))
                .help("Who computes matrix products: own, or cublaslt, which must be there"),
            Arg::new("conv")
                .long("conv")
                .value_name("LIBRARY")
                .value_parser(value_parser!(ConvLibrary))
                .help("Who computes convolutions: own, or cudnn, which must be there"),
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(value_parser!(u32).range(1..=86_400))
                .help("When to stop at the latest [default: when all is done]"),
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Also writes what was found there, as JSON"),
            Arg::new("list")
                .long("list")
                .action(ArgAction::SetTrue)
                .help("Prints the names of the ops only"),
        ])
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::from(REFUSED)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let matches = command().get_matches();
    let chosen = chosen(matches.get_many::<String>("only").map(Iterator::collect))?;
    if matches.get_flag("list") {
        let names: BTreeSet<&str> = chosen.iter().map(|sample| sample.op).collect();
        for name in names {
            println!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let name = matches
        .get_one::<String>("device")
        .map_or("", String::as_str);
    let device = name.into_device().map_err(|error| error.to_string())?;
    let (source, properties) = found(device)?;
    if let Some(library) = matches.get_one::<BlasLibrary>("blas") {
        preferred_blas_library(*library).map_err(|error| error.to_string())?;
    }
    if let Some(library) = matches.get_one::<ConvLibrary>("conv") {
        preferred_conv_library(*library).map_err(|error| error.to_string())?;
    }
    println!("{device}  {properties}, driver: {source}");
    let start = Instant::now();
    let seconds = matches.get_one::<u32>("seconds").copied();
    let until = seconds.map(|seconds| start + Duration::from_secs(seconds.into()));
    let findings = watched(&chosen, device, until);
    let took = start.elapsed().as_secs_f64();
    print!("{}", findings.table());
    let (done, all) = findings.progress();
    println!("{done} of {all} calls compared in {took:.1} s");
    if let Some(path) = matches.get_one::<PathBuf>("json") {
        let mut value = findings.json();
        value["device"] = json!(device.to_string());
        value["name"] = json!(properties);
        value["source"] = json!(source);
        value["seconds"] = json!(took);
        std::fs::write(path, format!("{value:#}\n"))
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    let differs = findings.failures().next().is_some() || !findings.no_kernel().is_empty();
    Ok(if differs || findings.gone.is_some() {
        ExitCode::from(DIFFERS)
    } else if done < all {
        ExitCode::from(CUT_SHORT)
    } else {
        ExitCode::SUCCESS
    })
}

/// The samples of these ops, or all of them.
fn chosen(only: Option<Vec<&String>>) -> Result<Vec<Sample>, String> {
    let all = samples();
    let Some(only) = only else { return Ok(all) };
    if let Some(unknown) = only
        .iter()
        .find(|name| all.iter().all(|sample| sample.op != **name))
    {
        return Err(format!(
            "there is no op {unknown}; see the names with --list"
        ));
    }
    Ok(all
        .into_iter()
        .filter(|sample| only.iter().any(|name| *name == sample.op))
        .collect())
}

/// Where the driver comes from, and the name of the device.
fn found(device: Device) -> Result<(String, String), String> {
    if device.is_cpu() {
        return Err(
            "the host is what devices are compared with: name another one, as in --device cuda:0"
                .to_owned(),
        );
    }
    let found = surface::availability().map_err(|error| error.to_string())?;
    let properties = surface::get_device_properties(device).map_err(|error| error.to_string())?;
    let (major, minor) = properties.capability;
    Ok((
        found.source.to_string(),
        format!("{}, capability {major}.{minor}", properties.name),
    ))
}

/// The check, with a bar on a terminal.
fn watched(samples: &[Sample], device: Device, until: Option<Instant>) -> Findings {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len}  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let findings = check(samples, device, until, &mut |done, all, what| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_owned());
    });
    bar.finish_and_clear();
    findings
}
