//! Rules on paths: names of files, links between documents, no path of one machine.

use super::{Finding, SourceFile};

/// Names that say nothing of what is inside.
const BUCKET_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "misc", "base", "types",
];

/// Folders of a machine; what lies there exists nowhere else. In parts, so that this file is not found itself.
const MACHINE_FOLDERS: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
];

/// A file, or a folder above it, is named by what it holds.
pub(super) fn bucket_name(file: &SourceFile) -> Option<Finding> {
    let stem = |part: &str| part.split('.').next().unwrap_or_default().to_owned();
    let name = file
        .path
        .split('/')
        .map(stem)
        .find(|stem| BUCKET_NAMES.contains(&stem.as_str()))?;
    let text = format!(
        "`{name}` says nothing of what is inside; name the file or folder by the noun it holds"
    );
    Some(Finding {
        path: file.path.clone(),
        line: 1,
        rule: "name",
        text,
    })
}

/// No absolute path into a user's or a tool's folder.
pub(super) fn machine_paths(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(file.text.lines()) {
        let found = MACHINE_FOLDERS.iter().find(|folder| {
            // After a name it is the middle of a relative path or of an address.
            content.match_indices(**folder).any(|(at, _)| {
                !content[..at].ends_with(|c: char| {
                    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')')
                })
            })
        });
        if let Some(folder) = found {
            let text = format!(
                "a path of one machine ({folder}); make it relative to the repository, or an argument"
            );
            findings.push(Finding {
                path: file.path.clone(),
                line,
                rule: "machine-path",
                text,
            });
        }
    }
    findings
}

/// Relative links in Markdown files lead somewhere; `exists` is asked for paths relative to the root.
pub(super) fn broken_links(files: &[SourceFile], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, link) in relative_links(&file.text) {
            let target = resolve(&file.path, &link);
            if !target
                .as_deref()
                .is_some_and(|target| target.is_empty() || exists(target))
            {
                let text = format!(
                    "the link `{link}` leads nowhere; correct it, it is relative to this file's folder"
                );
                findings.push(Finding {
                    path: file.path.clone(),
                    line,
                    rule: "link",
                    text,
                });
            }
        }
    }
    findings
}

/// Targets of links and images outside code, without anchors, addresses left out; each with its line.
fn relative_links(markdown: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (line, content) in (1..).zip(markdown.lines()) {
        if content.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        let prose: String = content.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"'), ("]: ", ' ')] {
            for part in prose.split(opening).skip(1) {
                let target = part.split(closing).next().unwrap_or_default();
                let target = target
                    .split([' ', '#'])
                    .next()
                    .unwrap_or_default()
                    .trim_matches(['<', '>']);
                if !target.is_empty() && !target.contains(':') {
                    links.push((line, target.to_owned()));
                }
            }
        }
    }
    links
}

/// `link` as seen from the file at `path`, relative to the root; `None` if it leads out of the root.
fn resolve(path: &str, link: &str) -> Option<String> {
    let (folder, link) = match link.strip_prefix('/') {
        Some(from_root) => ("", from_root),
        None => (path.rsplit_once('/').map_or("", |(folder, _)| folder), link),
    };
    let mut parts = Vec::new();
    for part in folder.split('/').chain(link.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::{file, lines_of};
    use super::*;

    #[test]
    fn a_bucket_name_is_found() {
        for path in [
            "crates/nn/src/utils.rs",
            "crates/common/src/lib.rs",
            "docs/misc/a.md",
            "bench/helpers.py",
        ] {
            assert!(bucket_name(&file(path, "")).is_some(), "{path}");
        }
        for path in [
            "crates/core/src/dtype.rs",
            "docs/baseline.md",
            "crates/nn/src/module.rs",
        ] {
            assert_eq!(bucket_name(&file(path, "")), None, "{path}");
        }
    }

    #[test]
    fn a_machine_path_is_found() {
        let text = [
            "a ~work~b",
            "see (~home~me)",
            "frame~work~x",
            "https://x.org~home~",
            "../~",
            "~root~",
        ]
        .join("\n")
        .replace('~', "/");
        assert_eq!(lines_of(&machine_paths(&file("a.toml", &text))), [1, 2, 6]);
    }

    #[test]
    fn a_broken_link_is_found() {
        let text = "[a](b.md) [c](../x/none.md#part)\n```\n[code](none)\n```\n`[code](none)` [w](https://x.org/none)\n\
                    [here](#part) ![p](img/p.png \"title\")\n[r]: none2.md\n<img src=\"none3.png\"> [up](../../out.md)\n[root](/README.md)";
        let there = ["docs/b.md", "docs/img/p.png", "README.md"];
        let findings = broken_links(
            &[file("docs/a.md", text), file("docs/a.txt", text)],
            |target| there.contains(&target),
        );
        assert_eq!(lines_of(&findings), [1, 7, 8, 8]);
        assert!(
            findings[0].text.contains("../x/none.md"),
            "{}",
            findings[0].text
        );
    }

    #[test]
    fn links_are_resolved_from_their_folder() {
        assert_eq!(resolve("a/b/c.md", "../d.md").as_deref(), Some("a/d.md"));
        assert_eq!(resolve("c.md", "./d/").as_deref(), Some("d"));
        assert_eq!(resolve("c.md", "../d"), None);
    }
}
