//! Titled notes: one hard thing is explained once under a heading, a line that holds nothing but the word and a title
//! in brackets, and cited everywhere else by that title.

use std::collections::BTreeMap;

use super::source_text::SourceText;
use super::{Finding, SourceFile};

/// In parts, so that this file cites nothing itself.
const OPENING: &str = concat!("Note", " [");

/// Titles in descriptions of the custom itself.
const PLACEHOLDERS: &[&str] = &["Title", "..", "..."];

/// Every title that is cited is the heading of exactly one note, and no two notes share a title.
pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut headings: BTreeMap<String, Place> = BTreeMap::new();
    let mut citations = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.has_extension(&["rs", "md", "cu", "cuh", "py"]))
    {
        // In Rust only comments count: a string may hold anything.
        let is_rust = file.has_extension(&["rs"]);
        let text = if is_rust {
            SourceText::new(&file.text).comments
        } else {
            file.text.clone()
        };
        for (line, content) in (1..).zip(text.lines()) {
            let place = Place {
                path: file.path.clone(),
                line,
            };
            for mention in mentions(content) {
                match mention {
                    Mention::Heading(title) => {
                        if let Some(first) = headings.get(title) {
                            let text = format!(
                                "the note [{title}] stands at {}:{} too; join them or rename one",
                                first.path, first.line
                            );
                            findings.push(place.finding(text));
                        } else {
                            headings.insert(title.to_owned(), place.clone());
                        }
                    }
                    Mention::Citation(title) => citations.push((title.to_owned(), place.clone())),
                    Mention::Open => findings.push(place.finding(
                        "the title of a note is broken over two lines; keep it on one".to_owned(),
                    )),
                }
            }
        }
    }
    for (title, place) in citations {
        if !headings.contains_key(&title) {
            let text = format!(
                "no note has the heading [{title}]; write it, as a line of its own, or correct the title"
            );
            findings.push(place.finding(text));
        }
    }
    findings
}

#[derive(Clone)]
struct Place {
    path: String,
    line: usize,
}

impl Place {
    fn finding(&self, text: String) -> Finding {
        Finding {
            path: self.path.clone(),
            line: self.line,
            rule: "note",
            text,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Mention<'a> {
    /// The line holds nothing else.
    Heading(&'a str),
    Citation(&'a str),
    /// The bracket is not closed.
    Open,
}

fn mentions(line: &str) -> Vec<Mention<'_>> {
    let bare = line
        .trim()
        .trim_start_matches(['/', '!', '#', '*', ' '])
        .trim_end_matches(['*', '/', ' ']);
    let is_alone = bare.starts_with(OPENING) && bare.find(']') == Some(bare.len() - 1);
    let parts = line
        .split(OPENING)
        .skip(1)
        .map(|part| match part.split_once(']') {
            None => Mention::Open,
            Some((title, _)) if is_alone => Mention::Heading(title),
            Some((title, _)) => Mention::Citation(title),
        });
    let is_placeholder = |mention: &Mention| matches!(mention, Mention::Heading(title) | Mention::Citation(title) if PLACEHOLDERS.contains(title));
    parts.filter(|mention| !is_placeholder(mention)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    /// `NOTE` in a test's text stands for the opening word, so that this file cites nothing.
    fn check_texts(texts: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = texts
            .iter()
            .map(|(path, text)| file(path, &text.replace("NOTE", "Note")))
            .collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_citation_with_one_heading_is_fine() {
        let there = (
            "a.rs",
            "// NOTE [One thing]\n// It is so.\n/// See NOTE [One thing].\nlet x = \"NOTE [none]\";",
        );
        assert!(
            check_texts(&[
                there,
                (
                    "b.md",
                    "## NOTE [Other]\nNOTE [One thing], NOTE [Other], NOTE [Title]"
                )
            ])
            .is_empty()
        );
    }

    #[test]
    fn missing_double_and_broken_titles_are_found() {
        let findings = check_texts(&[
            (
                "a.rs",
                "// see NOTE [Gone]\n//! NOTE [Twice]\n// see NOTE [broken\n// title]",
            ),
            ("b.cu", "/* NOTE [Twice] */"),
        ]);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(
            findings[0].starts_with("a.rs:3: note: the title of a note is broken"),
            "{findings:?}"
        );
        assert!(
            findings[1].starts_with("b.cu:1: note: the note [Twice] stands at a.rs:2 too"),
            "{findings:?}"
        );
        assert!(
            findings[2].starts_with("a.rs:1: note: no note has the heading [Gone]"),
            "{findings:?}"
        );
    }
}
