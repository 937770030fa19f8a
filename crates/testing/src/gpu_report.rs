//! The report of `bench/gpu.sh`: what its steps left in a folder, as Markdown and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

/// What workloads of a name's beginning have to reach on hardware.
const TARGETS: [(&str, Target); 7] = [
    ("gpu/add_", Target::OfCopy(0.85)),
    ("gpu/gelu_", Target::OfCopy(0.85)),
    ("gpu/fused_chain_", Target::OfCopy(0.85)),
    ("gpu/softmax_", Target::OfCopy(0.85)),
    ("gpu/layer_norm_", Target::OfCopy(0.85)),
    ("gpu/rms_norm_", Target::OfCopy(0.85)),
    ("gpu/matmul_bf16_", Target::OfCublasLt(0.6)),
];

/// The least speed.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// As a part of the bandwidth of a copy.
    OfCopy(f64),
    /// As a part of cuBLASLt's speed.
    OfCublasLt(f64),
}

/// What was measured of a workload: by Fireclay's own kernels, with the vendor's libraries, and by PyTorch.
#[derive(Clone, Debug, Default)]
struct Speed {
    own: Option<f64>,
    cublas_lt: Option<f64>,
    cudnn: Option<f64>,
    torch: Option<f64>,
    bytes: Option<f64>,
    flops: Option<f64>,
    /// Why there is no time of ours.
    why: String,
}

impl Speed {
    /// Bytes a second.
    fn bandwidth(&self) -> Option<f64> {
        Some(self.bytes? / self.own? * 1e3)
    }
}

/// How fast ours is where that is `time`: 1 where both take the same time, less where ours takes longer.
fn speed_of(own: Option<f64>, time: Option<f64>) -> Option<f64> {
    Some(time? / own?)
}

/// Reads a folder of results and makes the report: as Markdown, and as a JSON object.
///
/// # Errors
/// If the folder lacks what every run leaves, or a file is not what its step writes: which one.
pub fn report(folder: &Path) -> Result<(String, Value), String> {
    let devices: Value = parsed(&read(folder, "devices.json")?, "devices.json")?;
    let steps = read(folder, "steps.tsv")?;
    // Steps that were left out or fail early leave nothing.
    let found = |file: &str| match read(folder, file) {
        Ok(text) => parsed(&text, file),
        Err(_) => Ok(Value::Null),
    };
    let check = found("check.json")?;
    let by_libraries = [
        ("cuBLASLt", found("check-cublaslt.json")?),
        ("cuDNN", found("check-cudnn.json")?),
    ];
    let mut order = Vec::new();
    let mut speeds: BTreeMap<String, Speed> = BTreeMap::new();
    let mut odd = Vec::new();
    for file in ["own.jsonl", "cublaslt.jsonl", "cudnn.jsonl", "torch.jsonl"] {
        let text = read(folder, file).unwrap_or_default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if add_line(&mut speeds, &mut order, file, line).is_none() {
                odd.push(format!("{file}: {line}"));
            }
        }
    }
    let copy = order.iter().filter(|name| name.starts_with("gpu/copy_"));
    let copy = copy
        .filter_map(|name| speeds[name].bandwidth())
        .reduce(f64::max);
    let on_virtual = devices["cuda"]["source"]
        .as_str()
        .is_some_and(|source| source.contains("virtual"));

    let mut text = String::from("# Fireclay on a GPU\n\n");
    let date = read(folder, "date.txt").unwrap_or_default();
    heading(
        &mut text,
        &devices,
        date.trim(),
        read(folder, "torch.txt").ok().as_deref(),
    );
    if on_virtual {
        text += "\n**This was the virtual GPU, which is executed by the processor: its times say nothing of hardware.**\n";
    }
    steps_table(&mut text, &steps);
    text += "\n## Every op against the CPU\n\n";
    agreement(&mut text, &check);
    for (library, check) in &by_libraries {
        if !check.is_null() {
            // Writing to a String can't fail.
            let _ = write!(text, "\nWith {library}: ");
            agreement(&mut text, check);
        }
    }
    text += "\n## Speed\n\n";
    let rows: Vec<Value> = order
        .iter()
        .map(|name| row(name, &speeds[name], copy, on_virtual))
        .collect();
    speed_table(&mut text, &rows, copy);
    for line in &odd {
        // Writing to a String can't fail.
        let _ = writeln!(text, "\nnot a result: {}", cell(line));
    }
    let by_libraries: BTreeMap<_, _> = by_libraries.into_iter().collect();
    let steps: Vec<Value> = steps
        .lines()
        .map(|line| json!(line.split('\t').collect::<Vec<_>>()))
        .collect();
    let value = json!({
        "date": date.trim(),
        "devices": devices,
        "virtual": on_virtual,
        "steps": steps,
        "check": check,
        "check_by_libraries": by_libraries,
        "copy_bytes_per_second": copy,
        "speed": rows,
        "not_results": odd,
    });
    Ok((text, value))
}

fn read(folder: &Path, file: &str) -> Result<String, String> {
    let path = folder.join(file);
    std::fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))
}

fn parsed(text: &str, file: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{file} is no JSON: {error}"))
}

/// Adds a line of results; nothing if it is none.
fn add_line(
    speeds: &mut BTreeMap<String, Speed>,
    order: &mut Vec<String>,
    file: &str,
    line: &str,
) -> Option<()> {
    let value: Value = serde_json::from_str(line).ok()?;
    let name = value["workload"].as_str()?;
    let time = value["ms"].as_f64().filter(|time| *time > 0.0);
    let why = value["failed"].as_str().or(value["not_yet"].as_str());
    if time.is_none() && why.is_none() {
        return None;
    }
    if !speeds.contains_key(name) {
        order.push(name.to_owned());
    }
    let speed = speeds.entry(name.to_owned()).or_default();
    match file {
        "own.jsonl" => {
            speed.own = time;
            speed.bytes = value["bytes"].as_f64();
            speed.flops = value["flops"].as_f64();
            speed.why = why.unwrap_or_default().to_owned();
        }
        "cublaslt.jsonl" => speed.cublas_lt = time,
        "cudnn.jsonl" => speed.cudnn = time,
        _ => speed.torch = time,
    }
    Some(())
}

fn heading(text: &mut String, devices: &Value, date: &str, torch: Option<&str>) {
    let gpus = &devices["cuda"];
    let words = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let first = &gpus["devices"][0];
    let _ = write!(
        text,
        "{date}, {}, capability {}, driver {}, CUDA {}",
        words(&first["name"]),
        words(&first["capability"]),
        words(&gpus["source"]),
        words(&gpus["driver_version"])
    );
    for library in devices["libraries"].as_array().into_iter().flatten() {
        if let Some(version) = library["version"].as_str() {
            let _ = write!(text, ", {} {version}", words(&library["name"]));
        }
    }
    if let Some(torch) = torch {
        let _ = write!(text, ", PyTorch {}", torch.trim());
    }
    text.push('\n');
}

fn steps_table(text: &mut String, steps: &str) {
    *text += "\n## Steps\n\n| step | result | seconds | |\n| --- | --- | ---: | --- |\n";
    for line in steps.lines() {
        let cells: Vec<String> = line.split('\t').map(cell).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

/// How many ops agree with the host, and which don't.
fn agreement(text: &mut String, check: &Value) {
    let Some(ops) = check["ops"].as_array() else {
        *text += "Nothing is known: the check left no result.\n";
        return;
    };
    let number = |op: &Value, name: &str| op[name].as_u64().unwrap_or(0);
    let sum = |name: &str| ops.iter().map(|op| number(op, name)).sum::<u64>();
    let agree = ops.iter().filter(|op| op["result"] == "agrees").count();
    let _ = writeln!(
        text,
        "{agree} of {} ops agree: {} calls of {} were compared, results and gradients; {} have the same bits, {} other ones within the \
         op's tolerance, {} are refused on both sides.",
        ops.len(),
        sum("done"),
        sum("planned"),
        sum("same_bits"),
        sum("close"),
        sum("refused")
    );
    let others: Vec<&Value> = ops.iter().filter(|op| op["result"] != "agrees").collect();
    if !others.is_empty() {
        *text += "\n| op | calls | result | the first difference |\n| --- | ---: | --- | --- |\n";
    }
    for op in others {
        let _ = writeln!(
            text,
            "| {} | {} of {} | {} | {} |",
            cell(op["op"].as_str().unwrap_or("?")),
            number(op, "done"),
            number(op, "planned"),
            cell(op["result"].as_str().unwrap_or("?")),
            cell(op["failures"][0].as_str().unwrap_or(""))
        );
    }
    if let Some(gone) = check["gone"].as_str() {
        let _ = writeln!(text, "\nThe device could not go on {}.", cell(gone));
    }
}

/// A workload's figures.
fn row(name: &str, speed: &Speed, copy: Option<f64>, on_virtual: bool) -> Value {
    let of_copy = speed.bandwidth().zip(copy).map(|(own, copy)| own / copy);
    let of_cublas_lt = speed_of(speed.own, speed.cublas_lt);
    let target = TARGETS.iter().find(|(start, _)| name.starts_with(start));
    let verdict = target.and_then(|(_, target)| {
        let (least, reached) = match *target {
            Target::OfCopy(least) => (least, of_copy),
            // A product of few rows is bounded by memory.
            Target::OfCublasLt(least) => (least, of_cublas_lt),
        };
        let word = if reached? >= least { "met" } else { "MISSED" };
        (!on_virtual).then(|| format!("{word} (least {least})"))
    });
    json!({
        "workload": name,
        "ms": speed.own,
        "gigabytes_per_second": speed.bandwidth().map(|rate| rate / 1e9),
        "teraflops": speed.flops.zip(speed.own).map(|(flops, ms)| flops / ms / 1e9),
        "of_copy": of_copy,
        "cublaslt_ms": speed.cublas_lt,
        "of_cublaslt": of_cublas_lt,
        "cudnn_ms": speed.cudnn,
        "of_cudnn": speed_of(speed.own, speed.cudnn),
        "torch_ms": speed.torch,
        "of_torch": speed_of(speed.own, speed.torch),
        "result": verdict.unwrap_or_else(|| speed.why.clone()),
    })
}

fn speed_table(text: &mut String, rows: &[Value], copy: Option<f64>) {
    if rows.is_empty() {
        *text += "Nothing was timed.\n";
        return;
    }
    match copy {
        Some(copy) => {
            let _ = writeln!(
                text,
                "A copy on the device moves {} GB/s (read and written).",
                figure(Some(copy / 1e9))
            );
        }
        None => *text += "The bandwidth of a copy is not known.\n",
    }
    *text += "Rates are of the bytes or the arithmetic that a workload needs at the least. \"Of\" is a speed as a part of another one: \
              1 is as fast, 2 is twice as fast.\n\n\
              | workload | ms | GB/s | TFLOP/s | of copy | cuBLASLt ms | of cuBLASLt | cuDNN ms | of cuDNN | PyTorch ms | of PyTorch | |\n\
              | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for row in rows {
        let number = |name: &str| figure(row[name].as_f64());
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(row["workload"].as_str().unwrap_or("?")),
            number("ms"),
            number("gigabytes_per_second"),
            number("teraflops"),
            number("of_copy"),
            number("cublaslt_ms"),
            number("of_cublaslt"),
            number("cudnn_ms"),
            number("of_cudnn"),
            number("torch_ms"),
            number("of_torch"),
            cell(row["result"].as_str().unwrap_or(""))
        );
    }
}

/// Three significant digits, without an exponent.
fn figure(number: Option<f64>) -> String {
    match number {
        None => String::new(),
        Some(number) if number.is_finite() && number > 0.0 => {
            let decimals = (2.0 - number.log10().floor()).clamp(0.0, 9.0);
            format!("{number:.*}", decimals as usize)
        }
        Some(number) => number.to_string(),
    }
}

/// Text that a table's cell can hold.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of results, gone at the end.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn with(test: &str, files: &[(&str, &str)]) -> Folder {
            let path = std::env::temp_dir().join(format!("fireclay-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder for temporary files");
            for (name, text) in files {
                std::fs::write(path.join(name), text).expect("a file in it");
            }
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // What is left over is in a temporary folder.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const DEVICES: (&str, &str) = (
        "devices.json",
        r#"{"cuda": {"source": "libcuda.so.1", "driver_version": "12.8", "devices": [{"name": "Some GPU", "capability": "9.0"}]},
            "libraries": [{"name": "cuBLASLt", "version": "12.8.3"}, {"name": "cuDNN", "version": null}]}"#,
    );

    #[test]
    fn results_are_joined_and_judged() {
        let own = r#"{"workload": "gpu/copy_f32_8", "ms": 1.0, "bytes": 2000000000}
{"workload": "gpu/add_f32_8", "ms": 2.0, "bytes": 3000000000}
{"workload": "gpu/matmul_bf16_4", "ms": 4.0, "flops": 8000000000000}
{"workload": "gpu/conv3x3_f32_2", "ms": 3.0, "flops": 6000000000000}
{"workload": "gpu/softmax_f32_8", "failed": "out | of memory"}
{"workload": "train/tiny", "ms": 0.5}"#;
        let check = r#"{"gone": null, "ops": [
            {"op": "add", "planned": 12, "done": 12, "same_bits": 12, "close": 0, "refused": 0, "result": "agrees", "failures": []},
            {"op": "mul", "planned": 12, "done": 12, "same_bits": 11, "close": 0, "refused": 0, "result": "DIFFERS", "failures": ["mul f32: 1"]}]}"#;
        let folder = Folder::with(
            "report",
            &[
                DEVICES,
                ("date.txt", "2030-01-02\n"),
                ("torch.txt", "2.13.0\n"),
                (
                    "steps.tsv",
                    "check\tDIFFERS\t9\tsee check.txt\nown\tok\t20\t\n",
                ),
                ("check.json", check),
                (
                    "check-cudnn.json",
                    r#"{"ops": [{"op": "conv2d", "planned": 9, "done": 9, "same_bits": 1, "close": 8, "refused": 0, "result": "agrees"}]}"#,
                ),
                ("own.jsonl", own),
                (
                    "cublaslt.jsonl",
                    r#"{"workload": "gpu/matmul_bf16_4", "ms": 2.0}"#,
                ),
                (
                    "cudnn.jsonl",
                    r#"{"workload": "gpu/conv3x3_f32_2", "ms": 1.5}"#,
                ),
                (
                    "torch.jsonl",
                    "{\"workload\": \"train/tiny\", \"ms\": 1.0}\nWarning: no result\n",
                ),
            ],
        );
        let (text, value) = report(&folder.0).unwrap();
        for line in [
            "2030-01-02, Some GPU, capability 9.0, driver libcuda.so.1, CUDA 12.8, cuBLASLt 12.8.3, PyTorch 2.13.0",
            "| check | DIFFERS | 9 | see check.txt |",
            "| mul | 12 of 12 | DIFFERS | mul f32: 1 |",
            "A copy on the device moves 2000 GB/s (read and written).",
            "| gpu/copy_f32_8 | 1.00 | 2000 |  | 1.00 |  |  |  |  |  |  |  |",
            "| gpu/add_f32_8 | 2.00 | 1500 |  | 0.750 |  |  |  |  |  |  | MISSED (least 0.85) |",
            "| gpu/matmul_bf16_4 | 4.00 |  | 2000 |  | 2.00 | 0.500 |  |  |  |  | MISSED (least 0.6) |",
            "| gpu/conv3x3_f32_2 | 3.00 |  | 2000 |  |  |  | 1.50 | 0.500 |  |  |  |",
            "| gpu/softmax_f32_8 |  |  |  |  |  |  |  |  |  |  | out \\| of memory |",
            "| train/tiny | 0.500 |  |  |  |  |  |  |  | 1.00 | 2.00 |  |",
            "not a result: torch.jsonl: Warning: no result",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in:\n{text}"
            );
        }
        assert!(text.contains("1 of 2 ops agree: 24 calls of 24"), "{text}");
        assert!(
            text.contains("\nWith cuDNN: 1 of 1 ops agree: 9 calls of 9"),
            "{text}"
        );
        assert!(
            !text.contains("virtual") && !text.contains("With cuBLASLt"),
            "{text}"
        );
        assert_eq!(value["speed"][1]["of_copy"], json!(0.75));
    }

    #[test]
    fn what_is_not_there_is_said_or_refused() {
        let folder = Folder::with(
            "report-of-little",
            &[DEVICES, ("steps.tsv", "own\ttimed out\t9\t\n")],
        );
        let (text, _) = report(&folder.0).unwrap();
        assert!(
            text.contains("Nothing is known: the check left no result."),
            "{text}"
        );
        assert!(text.contains("Nothing was timed."), "{text}");
        let folder = Folder::with("report-of-nothing", &[]);
        let error = report(&folder.0).unwrap_err();
        assert!(error.contains("devices.json"), "{error}");
        let folder = Folder::with("report-of-a-part", &[("devices.json", "{\"cuda\":")]);
        let error = report(&folder.0).unwrap_err();
        assert!(error.contains("devices.json is no JSON"), "{error}");
    }
}
