//! The `fireclay` command: reads the command line, runs one command, says what went wrong.
#![forbid(unsafe_code)]

/// Writes a line to standard error. Where that is closed or full nobody reads it, and the work goes on.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod arguments;
mod bench;
mod devices;
mod failure;
mod gpt;
mod interrupt;
mod model;
mod ops;
mod picture;
mod plan;
mod predict;
mod task;
mod train;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;

use failure::Failure;

/// What a shell reports of a program ended by Ctrl-C: 128 and the signal's number.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let matches = match arguments::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match error.kind() {
                // Help and version come here too.
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    exit_code(printed.map_err(Failure::Output))
                }
                _ => ExitCode::FAILURE,
            };
        }
    };
    exit_code(match matches.subcommand() {
        Some(("train", matches)) => match matches.subcommand() {
            Some((name, matches)) if let Some(task) = task::Task::find(name) => {
                train::run(&train::Request::of(task, matches))
            }
            _ => unreachable!("clap asks for a subcommand"),
        },
        Some(("predict", matches)) => predict::run(&predict::Request::of(matches)),
        Some(("devices", matches)) => devices::run(&devices::Request::of(matches)),
        Some(("plan", matches)) => plan::run(&plan::Request::of(matches)),
        Some(("ops", matches)) => ops::run(&ops::Request::of(matches)),
        Some(("bench", matches)) => bench::run(&bench::Request::of(matches)),
        _ => arguments::introduce(),
    })
}

/// Says what went wrong, if something did.
fn exit_code(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough, as `head`.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            say!("{failure}");
            match failure {
                Failure::Interrupted { .. } => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
