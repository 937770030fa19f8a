//! The project's rules that a machine can check, over all tracked files. Each finding names file and line, the rule
//! and the way out.
//!
//! A rule is a function from text to findings, tested below its definition on small strings; this file reads the tree
//! and applies them.

mod arrows;
mod note;
mod path;
mod rust;
mod source_text;

use std::fmt;
use std::path::Path;
use std::process::Command;

/// Checks the tree at `root` and prints the findings; true if there is none.
pub(crate) fn run(root: &Path) -> bool {
    let files = match tracked_files(root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("xtask tidy: cannot read the tree: {error}");
            return false;
        }
    };
    let findings = check(root, &files);
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    eprintln!(
        "xtask tidy: {} files, {} findings",
        files.len(),
        findings.len()
    );
    findings.is_empty()
}

/// A file of the tree; its path is relative to the root, with `/`.
#[derive(Debug)]
struct SourceFile {
    path: String,
    /// Empty if the file is not UTF-8.
    text: String,
}

impl SourceFile {
    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extensions.contains(&extension))
    }
}

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// From 1.
    line: usize,
    rule: &'static str,
    /// What is wrong, and after a semicolon the way out.
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.text
        )
    }
}

fn check(root: &Path, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.iter().flat_map(check_file).collect();
    findings.extend(rust::stale_exceptions(files));
    findings.extend(note::check(files));
    findings.extend(arrows::check(files));
    findings.extend(path::broken_links(files, |target| {
        root.join(target).exists()
    }));
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    findings
}

/// The rules that need one file only.
fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = path::machine_paths(file);
    findings.extend(path::bucket_name(file));
    findings.extend(rust::too_long(file));
    if file.has_extension(&["rs"]) {
        findings.extend(rust::module_doc(file));
        findings.extend(rust::unsafe_code(file));
        findings.extend(rust::forbids_unsafe(file));
    }
    findings
}

/// What git tracks or would track. Without git (a source archive) everything but build output.
fn tracked_files(root: &Path) -> std::io::Result<Vec<SourceFile>> {
    let mut command = Command::new("git");
    command.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let mut paths: Vec<String> = match command.output() {
        Ok(output) if output.status.success() => {
            let list = String::from_utf8_lossy(&output.stdout).into_owned();
            list.split_terminator('\0').map(str::to_owned).collect()
        }
        _ => walk(root, "")?,
    };
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let on_disk = root.join(&path);
        // A file deleted but not yet committed, a link to a folder, a submodule.
        if on_disk.is_file() {
            let text = String::from_utf8(std::fs::read(on_disk)?).unwrap_or_default();
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

fn walk(root: &Path, folder: &str) -> std::io::Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        if entry.file_type()?.is_dir() {
            if !matches!(name.as_str(), ".git" | "target" | "runs") {
                paths.extend(walk(root, &path)?);
            }
        } else {
            paths.push(path);
        }
    }
    Ok(paths)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
fn lines_of(findings: &[Finding]) -> Vec<usize> {
    findings.iter().map(|finding| finding.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = crate::root();
        let files = tracked_files(&root).unwrap();
        assert!(
            files
                .iter()
                .any(|file| file.path == "xtask/src/tidy.rs"
                    && file.text.contains("the_tree_is_tidy"))
        );
        let findings = check(&root, &files);
        let report: String = findings
            .iter()
            .map(|finding| format!("{finding}\n"))
            .collect();
        assert!(findings.is_empty(), "cargo xtask tidy finds:\n{report}");
    }

    #[test]
    fn a_tree_without_git_is_walked() {
        let paths = walk(&crate::root(), "xtask").unwrap();
        assert!(
            paths.contains(&"xtask/src/tidy/rust.rs".to_owned()),
            "{paths:?}"
        );
        let from_root = walk(&crate::root(), "").unwrap();
        assert!(
            from_root
                .iter()
                .all(|path| !path.starts_with("target/") && !path.starts_with(".git/"))
        );
    }

    #[test]
    fn a_finding_reads_as_a_compiler_message() {
        let finding = Finding {
            path: "a/b.rs".into(),
            line: 3,
            rule: "length",
            text: "too long; split it".into(),
        };
        assert_eq!(finding.to_string(), "a/b.rs:3: length: too long; split it");
    }
}
