//! Rules on source files: module docs, length, where `unsafe` may stand.

use super::source_text::SourceText;
use super::{Finding, SourceFile};

/// The most lines of a source file.
const MOST_LINES: usize = 800;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[(
    "crates/cuda/include/arith.cuh",
    "written by `cargo xtask kernels`, from the functions of crates/core",
)];

/// Where `unsafe` may stand (a file, or a folder that ends in `/`), each with its reason. Everywhere else it is
/// forbidden; see the invariants in ARCHITECTURE.md.
const UNSAFE_PLACES: &[(&str, &str)] = &[
    ("crates/cpu/", "memory, SIMD and threads of the host"),
    ("crates/cuda/", "the driver's functions and device memory"),
    ("crates/virtual-gpu/", "implements the driver's C interface"),
    ("crates/virtual-cuda/", "exports the driver's C interface"),
    (
        "crates/tensor/src/ops/",
        "kernel declarations: an op's loop over the elements of its operands",
    ),
    (
        "crates/tensor/src/function.rs",
        "kernel declaration of all pointwise ops",
    ),
    (
        "crates/tensor/src/function/reduced.rs",
        "kernel declaration of formulas that end in a sum",
    ),
    (
        "crates/tensor/src/dispatch.rs",
        "the door: hands locked memory to kernels",
    ),
    (
        "crates/tensor/src/cuda_call.rs",
        "kernel launches: hands the addresses of locked memory to a device",
    ),
    (
        "xtask/src/kernels/nvrtc.rs",
        "calls NVIDIA's compiler, a C library",
    ),
    (
        "crates/testing/examples/stand_in/",
        "export the C interfaces of NVIDIA's libraries, for tests",
    ),
    (
        "crates/testing/tests/vendor/",
        "hand those libraries the memory of tests",
    ),
    (
        "crates/tensor/src/storage.rs",
        "the one place that turns bytes into typed slices",
    ),
];

/// Crates whose root need not forbid `unsafe`, because it stands in one of [`UNSAFE_PLACES`].
const CRATES_WITH_UNSAFE: &[&str] = &[
    "crates/cpu",
    "crates/cuda",
    "crates/virtual-cuda",
    "crates/virtual-gpu",
    "crates/tensor",
    "xtask",
];

/// Every `.rs` file starts with `//!`, binaries, tests and examples too.
pub(super) fn module_doc(file: &SourceFile) -> Option<Finding> {
    let text = "the file does not start with `//!`; say in its first lines what it is for and what it knows";
    (!file.text.starts_with("//!")).then(|| finding(file, 1, "module-doc", text))
}

/// No source file is longer than [`MOST_LINES`].
pub(super) fn too_long(file: &SourceFile) -> Option<Finding> {
    let is_source = file.has_extension(&["rs", "py", "cu", "cuh", "sh"]);
    let lines = file.text.lines().count();
    if !is_source || lines <= MOST_LINES || LONG_FILES.iter().any(|(path, _)| *path == file.path) {
        return None;
    }
    let text = format!(
        "{lines} lines, at most {MOST_LINES} are allowed; split the file by the nouns it holds, or give a reason in \
         LONG_FILES of xtask/src/tidy/rust.rs"
    );
    Some(finding(file, MOST_LINES + 1, "length", text))
}

/// Exceptions in [`LONG_FILES`] that nothing needs any more.
pub(super) fn stale_exceptions(files: &[SourceFile]) -> Vec<Finding> {
    let is_needed = |path| {
        files
            .iter()
            .any(|file| file.path == path && file.text.lines().count() > MOST_LINES)
    };
    let stale = LONG_FILES.iter().filter(|(path, _)| !is_needed(*path));
    stale
        .map(|(path, _)| Finding {
            path: (*path).to_owned(),
            line: 1,
            rule: "length",
            text:
                "the file needs no exception; remove it from LONG_FILES of xtask/src/tidy/rust.rs"
                    .to_owned(),
        })
        .collect()
}

/// `unsafe` stands in [`UNSAFE_PLACES`] only.
pub(super) fn unsafe_code(file: &SourceFile) -> Vec<Finding> {
    let is_place =
        |place: &str| file.path == place || place.ends_with('/') && file.path.starts_with(place);
    if UNSAFE_PLACES.iter().any(|(place, _)| is_place(place)) {
        return Vec::new();
    }
    let code = SourceText::new(&file.text).code;
    let text = "`unsafe` may not stand here; write it safely, or move it to one of UNSAFE_PLACES in \
                xtask/src/tidy/rust.rs with the bound it relies on";
    (1..)
        .zip(code.lines())
        .filter(|(_, line)| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe")
        })
        .map(|(line, _)| finding(file, line, "unsafe", text))
        .collect()
}

/// The root of every crate that needs no `unsafe` says so to the compiler.
pub(super) fn forbids_unsafe(file: &SourceFile) -> Option<Finding> {
    let package = file
        .path
        .strip_suffix("/src/lib.rs")
        .or_else(|| file.path.strip_suffix("/src/main.rs"))?;
    if CRATES_WITH_UNSAFE.contains(&package)
        || SourceText::new(&file.text)
            .code
            .contains("#![forbid(unsafe_code)]")
    {
        return None;
    }
    Some(finding(
        file,
        1,
        "forbid-unsafe",
        "the crate does not forbid `unsafe`; add `#![forbid(unsafe_code)]` below the module doc",
    ))
}

fn finding(file: &SourceFile, line: usize, rule: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        path: file.path.clone(),
        line,
        rule,
        text: text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{file, lines_of};
    use super::*;

    #[test]
    fn a_file_without_module_doc_is_found() {
        assert_eq!(module_doc(&file("a.rs", "//! Doc.\n")), None);
        assert!(module_doc(&file("a.rs", "// Comment.\n//! Doc.\n")).is_some());
        assert!(module_doc(&file("a.rs", "")).is_some());
    }

    #[test]
    fn a_long_source_file_is_found() {
        assert_eq!(too_long(&file("a.rs", &"x\n".repeat(800))), None);
        assert_eq!(
            too_long(&file("a.rs", &"x\n".repeat(801))).unwrap().line,
            801
        );
        assert!(too_long(&file("bench/a.py", &"x\n".repeat(801))).is_some());
        assert_eq!(too_long(&file("Cargo.lock", &"x\n".repeat(5000))), None);
    }

    #[test]
    fn unsafe_is_found_as_code_only() {
        let text = "//! unsafe\n#![forbid(unsafe_code)]\nlet a = \"unsafe\"; // unsafe\nlet b = unsafe { c() };\nunsafe fn d() {}\n";
        assert_eq!(
            lines_of(&unsafe_code(&file("crates/nn/src/a.rs", text))),
            [4, 5]
        );
        assert_eq!(
            lines_of(&unsafe_code(&file("crates/tensor/src/tensor.rs", text))),
            [4, 5]
        );
        assert_eq!(
            lines_of(&unsafe_code(&file("crates/cpu-like/src/a.rs", text))),
            [4, 5]
        );
        assert!(unsafe_code(&file("crates/cpu/src/a.rs", text)).is_empty());
        assert!(unsafe_code(&file("crates/tensor/src/storage.rs", text)).is_empty());
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_is_found() {
        for path in [
            "crates/nn/src/lib.rs",
            "crates/cli/src/main.rs",
            "crates/testing/src/lib.rs",
        ] {
            assert!(
                forbids_unsafe(&file(path, "//! Doc with `#![forbid(unsafe_code)]`.\n")).is_some(),
                "{path}"
            );
            assert_eq!(
                forbids_unsafe(&file(path, "//! Doc.\n#![forbid(unsafe_code)]\n")),
                None
            );
        }
        for path in [
            "crates/cpu/src/lib.rs",
            "crates/tensor/src/lib.rs",
            "crates/nn/src/linear.rs",
        ] {
            assert_eq!(forbids_unsafe(&file(path, "//! Doc.\n")), None, "{path}");
        }
    }
}
