//! `fireclay devices`: what there is to compute with, and why a GPU is not among it.

use std::io::{self, Write};

use clap::ArgMatches;
use fireclay::{Error, cuda};
use serde_json::{Value, json};

use crate::failure::Failure;

/// What the command line asks for.
pub(crate) struct Request {
    verbose: bool,
    json: bool,
}

impl Request {
    pub(crate) fn of(matches: &ArgMatches) -> Request {
        Request {
            verbose: matches.get_flag("verbose"),
            json: matches.get_flag("json"),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    let mut found = found()?;
    let mut out = io::stdout().lock();
    if request.json {
        found["libraries"] = json!(libraries());
        writeln!(out, "{found:#}")?;
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    writeln!(out, "cpu     {} threads", found["cpu"]["threads"])?;
    let gpus = &found["cuda"];
    for device in gpus["devices"].as_array().into_iter().flatten() {
        writeln!(
            out,
            "{}  {}, capability {}, {} GiB",
            text(&device["device"]),
            text(&device["name"]),
            text(&device["capability"]),
            gibibytes(&device["total_memory"])
        )?;
        if request.verbose {
            let multiprocessors = &device["multiprocessors"];
            writeln!(out, "        {multiprocessors} multiprocessors")?;
            writeln!(
                out,
                "        free {} GiB",
                gibibytes(&device["free_memory"])
            )?;
            writeln!(out, "        {}", text(&device["uuid"]))?;
        }
    }
    if request.verbose {
        for library in libraries() {
            let name = text(&library["name"]);
            match library["path"].as_str() {
                Some(path) => {
                    let version = text(&library["version"]);
                    writeln!(out, "{name:<7} {path}, version {version}")?;
                    writeln!(out, "        {}", text(&library["use"]))?;
                }
                None => writeln!(out, "{name:<7} {}", text(&library["use"]))?,
            }
            writeln!(out, "        change it with {}", text(&library["change"]))?;
        }
    }
    if gpus["available"] == json!(true) {
        let (source, version) = (text(&gpus["source"]), text(&gpus["driver_version"]));
        writeln!(out, "driver  {source}, CUDA {version}")?;
    } else {
        writeln!(out, "cuda    {}", text(&gpus["why"]))?;
    }
    Ok(())
}

/// Processors and devices, as `--json` prints them.
fn found() -> Result<Value, Error> {
    let cpu = json!({ "threads": fireclay::num_threads() });
    let available = match cuda::availability() {
        Ok(available) => available,
        Err(error) => {
            let cuda = json!({ "available": false, "why": error.to_string(), "devices": [] });
            return Ok(json!({ "cpu": cpu, "cuda": cuda }));
        }
    };
    let mut devices = Vec::new();
    for ordinal in 0..available.devices {
        let device = fireclay::Device::Cuda(ordinal);
        let properties = cuda::get_device_properties(device)?;
        let (major, minor) = properties.capability;
        let (free, _) = cuda::mem_get_info(device)?;
        devices.push(json!({
            "device": device.to_string(),
            "name": properties.name,
            "capability": format!("{major}.{minor}"),
            "total_memory": properties.total_memory,
            "free_memory": free,
            "multiprocessors": properties.multiprocessors,
            "max_threads_per_block": properties.max_threads_per_block,
            "max_shared_memory_per_block": properties.max_shared_memory_per_block,
            "l2_cache": properties.l2_cache,
            "uuid": properties.uuid,
        }));
    }
    let version = available.driver_version;
    Ok(json!({
        "cpu": cpu,
        "cuda": {
            "available": true,
            "source": available.source.to_string(),
            "driver_version": format!("{}.{}", version / 1000, version % 1000 / 10),
            "devices": devices,
        },
    }))
}

/// What there is of the vendor's libraries. Finding that out loads them.
fn libraries() -> Vec<Value> {
    let each = cuda::vendor_libraries().into_iter().map(|report| {
        let found = report.found.as_ref();
        json!({
            "name": report.name,
            "path": found.map(|found| &found.path),
            "version": found.map(|found| found.version.map(|number| number.to_string()).join(".")),
            "use": report.what,
            "change": report.change,
        })
    });
    each.collect()
}

fn gibibytes(bytes: &Value) -> String {
    format!(
        "{:.1}",
        bytes.as_u64().unwrap_or(0) as f64 / f64::from(1 << 30)
    )
}
