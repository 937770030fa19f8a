//! The `fireclay` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the commands that use the pictures are not written yet"
    )
)]
mod picture;

fn main() -> ExitCode {
    eprintln!("fireclay: there are no commands yet");
    ExitCode::FAILURE
}
