//! `gpu-report OUT`: writes `report.md` and `report.json` of what the steps of `bench/gpu.sh` left in the folder OUT.
#![expect(clippy::print_stderr, reason = "a program's output")]

use std::path::Path;
use std::process::ExitCode;

use fireclay_testing::gpu_report::report;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = &arguments[..] else {
        eprintln!("error: expected one argument, the folder of results: gpu-report OUT");
        return ExitCode::FAILURE;
    };
    match write(Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<(), String> {
    let (text, value) = report(folder)?;
    for (file, text) in [("report.md", text), ("report.json", format!("{value:#}\n"))] {
        let path = folder.join(file);
        std::fs::write(&path, text)
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    Ok(())
}
