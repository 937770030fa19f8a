//! Who depends on whom: the `Cargo.toml` of each crate against the block of arrows in ARCHITECTURE.md.
//!
//! The block is fenced as `arrows`; each line is `crate -> dependency, dependency (dev)`, with names as in `crates/`
//! and `(dev)` or `(build)` for what is not an ordinary dependency. Only crates of this workspace are listed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, SourceFile};

const PAGE: &str = "ARCHITECTURE.md";
const PREFIX: &str = "fireclay";

/// Every arrow of a manifest is on the page, and every arrow of the page is in a manifest.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        let text = "the page does not exist; write it, with a fenced block `arrows`";
        return vec![finding(PAGE, 1, text.to_owned())];
    };
    let mut findings = Vec::new();
    let listed = match listed_arrows(&page.text) {
        Ok(listed) => listed,
        Err((line, text)) => return vec![finding(PAGE, line, text)],
    };
    let mut found = BTreeSet::new();
    for file in files {
        let manifest = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.strip_suffix("/Cargo.toml"));
        let Some(package) = manifest.filter(|folder| !folder.contains('/')) else {
            continue;
        };
        found.insert(package.to_owned());
        let Some((line, expected)) = listed.get(package) else {
            let text = format!(
                "crate `{package}` has no line in the arrows of {PAGE}; add `{package} -> ...`"
            );
            findings.push(finding(&file.path, 1, text));
            continue;
        };
        let arrows = manifest_arrows(&file.text);
        for (arrow, line) in &arrows {
            if !expected.contains(arrow) {
                let text = format!(
                    "`{package} -> {arrow}` is not among the arrows of {PAGE}; drop the dependency, or add it there if the layering allows it"
                );
                findings.push(finding(&file.path, *line, text));
            }
        }
        for arrow in expected.iter().filter(|arrow| !arrows.contains_key(*arrow)) {
            let text = format!(
                "`{package} -> {arrow}` is not in {}; remove it here, or add the dependency",
                file.path
            );
            findings.push(finding(PAGE, *line, text));
        }
    }
    for (package, (line, _)) in listed
        .iter()
        .filter(|(package, _)| !found.contains(*package))
    {
        findings.push(finding(
            PAGE,
            *line,
            format!("there is no crate `{package}` in crates/; remove its line"),
        ));
    }
    findings
}

fn finding(path: &str, line: usize, text: String) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        rule: "arrows",
        text,
    }
}

/// Per crate the line it is listed on and its arrows.
type Listed = BTreeMap<String, (usize, BTreeSet<String>)>;

/// The block of the page, or the line of a mistake and what it is.
fn listed_arrows(page: &str) -> Result<Listed, (usize, String)> {
    let mut listed = Listed::new();
    let mut lines = (1..)
        .zip(page.lines())
        .skip_while(|(_, line)| line.trim() != "```arrows");
    if lines.next().is_none() {
        return Err((1, "there is no fenced block `arrows`; add one, with a line `crate -> dependencies` a crate".to_owned()));
    }
    for (line, content) in lines.take_while(|(_, line)| line.trim() != "```") {
        if content.trim().is_empty() {
            continue;
        }
        let Some((package, arrows)) = content.split_once("->") else {
            return Err((
                line,
                format!("`{content}` has no arrow; write `crate -> dependency, dependency (dev)`"),
            ));
        };
        let arrows = arrows
            .split(',')
            .map(|arrow| arrow.trim().to_owned())
            .filter(|arrow| !arrow.is_empty());
        if listed
            .insert(package.trim().to_owned(), (line, arrows.collect()))
            .is_some()
        {
            return Err((
                line,
                format!("crate `{}` is listed twice; join the lines", package.trim()),
            ));
        }
    }
    Ok(listed)
}

/// The dependencies of a manifest on crates of this workspace, each with its line.
fn manifest_arrows(manifest: &str) -> BTreeMap<String, usize> {
    let mut arrows = BTreeMap::new();
    let mut suffix = None;
    for (line, content) in (1..).zip(manifest.lines()) {
        let content = content.trim();
        if let Some(table) = content.strip_prefix('[') {
            // "dependencies", "target.'...'.dev-dependencies" or "dependencies.fireclay-core".
            let table = table.trim_end_matches(']');
            let (kind, package) = match table.rsplit_once('.') {
                Some((head, last)) if head.ends_with("dependencies") => (head, Some(last)),
                _ => (table, None),
            };
            suffix = match kind.rsplit('.').next() {
                Some("dependencies") => Some(""),
                Some("dev-dependencies") => Some(" (dev)"),
                Some("build-dependencies") => Some(" (build)"),
                _ => None,
            };
            if let (Some(suffix), Some(package)) = (suffix, package.and_then(short_name)) {
                arrows.insert(format!("{package}{suffix}"), line);
            }
            continue;
        }
        let Some((key, value)) = content.split_once('=') else {
            continue;
        };
        // A renamed dependency gives its real name as `package`.
        let renamed = value
            .split_once("package = \"")
            .and_then(|(_, rest)| rest.split('"').next());
        let key = key.trim().split('.').next().unwrap_or_default();
        if let (Some(suffix), Some(package)) = (suffix, short_name(renamed.unwrap_or(key))) {
            arrows.insert(format!("{package}{suffix}"), line);
        }
    }
    arrows
}

/// The folder in `crates/` of a package of this workspace.
fn short_name(package: &str) -> Option<&str> {
    let package = package.trim_matches('"');
    // Products of their own have no prefix.
    if ["virtual-gpu", "virtual-cuda"].contains(&package) {
        return Some(package);
    }
    match package.strip_prefix(PREFIX)? {
        "" => Some(package),
        rest => rest.strip_prefix('-'),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"fireclay-nn\"\n[dependencies]\nfireclay-tensor.workspace = true\nhalf = \"2\"\n\
                            other = { package = \"fireclay-core\", path = \"../core\" }\n\
                            [target.'cfg(unix)'.dev-dependencies]\nfireclay-testing = { workspace = true }\n\
                            [build-dependencies.fireclay]\nworkspace = true\n";

    #[test]
    fn a_manifest_is_read() {
        let arrows = manifest_arrows(MANIFEST);
        let expected = [
            ("core", 6),
            ("fireclay (build)", 9),
            ("tensor", 4),
            ("testing (dev)", 8),
        ];
        assert_eq!(
            arrows,
            expected
                .map(|(arrow, line)| (arrow.to_owned(), line))
                .into()
        );
    }

    #[test]
    fn manifest_and_page_are_compared() {
        let nn = file("crates/nn/Cargo.toml", MANIFEST);
        let findings = |block: &str| {
            let page = file(PAGE, &format!("# Page\n```arrows\n{block}```\n"));
            let nn = file("crates/nn/Cargo.toml", &nn.text);
            check(&[page, nn])
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert!(findings("nn -> tensor, core, fireclay (build), testing (dev)\n").is_empty());

        let missing = findings("nn -> core, fireclay (build), testing (dev)\n");
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(
            missing[0].starts_with("crates/nn/Cargo.toml:4: arrows: `nn -> tensor` is not among"),
            "{missing:?}"
        );
        let not_dev = findings("nn -> core, fireclay (build), tensor, testing\n");
        assert_eq!(not_dev.len(), 2, "{not_dev:?}");
        let surplus =
            findings("nn -> tensor, core, cpu, fireclay (build), testing (dev)\ngone ->\n");
        assert!(
            surplus[0].starts_with("ARCHITECTURE.md:3: arrows: `nn -> cpu` is not in crates/nn"),
            "{surplus:?}"
        );
        assert!(
            surplus[1].starts_with("ARCHITECTURE.md:4: arrows: there is no crate `gone`"),
            "{surplus:?}"
        );
        assert!(findings("")[0].contains("crate `nn` has no line"));
        assert!(findings("nn\n")[0].contains("ARCHITECTURE.md:3: arrows: `nn` has no arrow"));
        assert!(findings("nn ->\nnn ->\n")[0].contains("listed twice"));
        assert!(
            check(&[file(PAGE, "# Page")])[0]
                .text
                .contains("no fenced block")
        );
        assert!(check(&[nn])[0].text.contains("does not exist"));
    }
}
