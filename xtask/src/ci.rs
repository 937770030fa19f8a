//! What CI checks beyond `cargo test --workspace`, one step after the other; a failed step does not hide the next.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::{kernels, tidy};

/// The most packages that building the command line may need.
const MOST_PACKAGES: usize = 110;

/// The package whose tree is counted.
const COUNTED_PACKAGE: &str = "fireclay-cli";

/// Runs every step in the workspace at `root`; true if all passed.
pub(crate) fn run(root: &Path) -> bool {
    let runs = |arguments: &'static str| move || passes(&mut cargo(root, arguments));
    let mut failed = Vec::new();
    let mut step = |name: &'static str, check: &dyn Fn() -> bool| {
        eprintln!("\n--- {name}");
        let start = Instant::now();
        let passed = check();
        let verdict = if passed { "passed" } else { "FAILED" };
        eprintln!(
            "--- {name}: {verdict} in {:.1} s",
            start.elapsed().as_secs_f64()
        );
        if !passed {
            failed.push(name);
        }
    };
    step("format", &runs("fmt --all --check"));
    step("tidy", &|| tidy::run(root));
    step("kernels", &|| kernels::check(root));
    step(
        "clippy",
        &runs("clippy --quiet --workspace --all-targets -- -D warnings"),
    );
    step("documentation", &|| {
        // The command's binary is named as the facade is, and so would its pages be.
        let arguments = "doc --quiet --workspace --exclude fireclay-cli --no-deps";
        passes(cargo(root, arguments).env("RUSTDOCFLAGS", "-D warnings"))
    });
    step(
        "documentation tests",
        &runs("test --quiet --workspace --doc"),
    );
    step("package count", &|| package_count(root));
    step("licences and sources", &|| deny(root));

    if failed.is_empty() {
        eprintln!("\nxtask ci: all passed");
    } else {
        eprintln!("\nxtask ci: failed: {}", failed.join(", "));
    }
    failed.is_empty()
}

/// `cargo` with arguments that hold no spaces themselves.
fn cargo(root: &Path, arguments: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments.split(' '));
    command
}

fn passes(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot run {command:?}: {error}");
            false
        }
    }
}

/// Counts the packages, this workspace's included, that a build of the command line compiles on this platform.
fn package_count(root: &Path) -> bool {
    let arguments = format!("tree --package {COUNTED_PACKAGE} --edges normal,build --prefix none");
    let output = match cargo(root, &arguments).output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return false;
        }
        Err(error) => {
            eprintln!("cannot run cargo tree: {error}");
            return false;
        }
    };
    let count = packages(&String::from_utf8_lossy(&output)).len();
    eprintln!(
        "{COUNTED_PACKAGE} builds from {count} packages, at most {MOST_PACKAGES} are allowed"
    );
    count <= MOST_PACKAGES
}

/// The names with versions in what `cargo tree --prefix none` prints.
fn packages(tree: &str) -> BTreeSet<(&str, &str)> {
    tree.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or(rest)))
        .collect()
}

/// Runs cargo-deny where it is installed; it is not required, since it takes minutes to build.
fn deny(root: &Path) -> bool {
    let is_installed = cargo(root, "deny --version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_installed {
        eprintln!("SKIPPED: cargo-deny is not installed (cargo install cargo-deny)");
        return true;
    }
    passes(&mut cargo(root, "deny check licenses bans sources"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_counted_once_per_version() {
        let tree = "a v0.1.0 (path)\nb v1.0.0\nc v2.0.0 (proc-macro)\nb v1.0.0 (*)\nb v2.0.0\n\n";
        let expected = [
            ("a", "v0.1.0"),
            ("b", "v1.0.0"),
            ("b", "v2.0.0"),
            ("c", "v2.0.0"),
        ];
        assert_eq!(packages(tree), BTreeSet::from(expected));
    }
}
