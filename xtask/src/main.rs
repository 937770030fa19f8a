//! The project's own commands: `cargo xtask ci`, `cargo xtask kernels` and `cargo xtask tidy`.
#![deny(unsafe_code)]

mod ci;
mod kernels;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  ci    all checks that need no test run: format, clippy, tidy, documentation and its tests, package count
  kernels  writes the header of functions and compiles the CUDA C++ files to PTX (needs NVRTC 12.0)
  tidy  the project's own rules over the tracked files
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::run(&root()),
        ["kernels"] => kernels::run(&root()),
        ["tidy"] => tidy::run(&root()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}
