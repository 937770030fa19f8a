//! Rust source taken apart into code and comments, line by line. Not a parser: it knows only where comments, strings
//! and character literals begin and end.

/// The same text twice, of the same lines: `code` has spaces for comments and the contents of literals, `comments` has
/// spaces for all but comments.
pub(crate) struct SourceText {
    pub(crate) code: String,
    pub(crate) comments: String,
}

impl SourceText {
    pub(crate) fn new(source: &str) -> Self {
        let mut rest = source;
        let mut text = Self {
            code: String::new(),
            comments: String::new(),
        };
        let mut previous = ' ';
        while let Some(first) = rest.chars().next() {
            let after_word = previous.is_alphanumeric() || previous == '_';
            let (len, is_comment) = if rest.starts_with("//") {
                (rest.find('\n').unwrap_or(rest.len()), true)
            } else if rest.starts_with("/*") {
                (block_comment_len(rest), true)
            } else if let Some(len) = literal_len(rest, after_word) {
                (len, false)
            } else {
                text.push(rest, first.len_utf8(), Kind::Code);
                previous = first;
                rest = &rest[first.len_utf8()..];
                continue;
            };
            text.push(
                rest,
                len,
                if is_comment {
                    Kind::Comment
                } else {
                    Kind::Literal
                },
            );
            previous = ' ';
            rest = &rest[len..];
        }
        text
    }

    fn push(&mut self, rest: &str, len: usize, kind: Kind) {
        for character in rest[..len].chars() {
            let blank = if character == '\n' { '\n' } else { ' ' };
            self.code
                .push(if kind == Kind::Code { character } else { blank });
            self.comments.push(if kind == Kind::Comment {
                character
            } else {
                blank
            });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Block comments nest.
fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut position) = (0, 0);
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        if rest.starts_with(b"/*") {
            (depth, position) = (depth + 1, position + 2);
        } else if rest.starts_with(b"*/") {
            (depth, position) = (depth - 1, position + 2);
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    text.len()
}

/// The length of the string or character literal at the start of `text`, `None` if there is none. After a word's
/// character a prefix such as `r` or `b` belongs to that word.
fn literal_len(text: &str, after_word: bool) -> Option<usize> {
    let prefix = if after_word {
        0
    } else {
        text.find(|c| !matches!(c, 'b' | 'c' | 'r'))
            .filter(|&len| len <= 2)?
    };
    let is_raw = text[..prefix].contains('r');
    let rest = &text[prefix..];
    if is_raw {
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let inner = rest[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let len = inner
            .find(&end)
            .map_or(inner.len(), |position| position + end.len());
        return Some(prefix + hashes + 1 + len);
    }
    match rest.as_bytes().first()? {
        b'"' => Some(prefix + quoted_len(rest, b'"')),
        // A lifetime has no closing quote after its first character.
        b'\'' if rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'') => {
            Some(prefix + quoted_len(rest, b'\''))
        }
        _ => None,
    }
}

/// The length of what stands between two `quote`s, these included; a backslash hides the character after it.
fn quoted_len(text: &str, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let mut position = 1;
    while position < bytes.len() && bytes[position] != quote {
        position += if bytes[position] == b'\\' { 2 } else { 1 };
    }
    // A backslash as the last byte of a broken file.
    (position + 1).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn comments_and_literals_leave_the_code() {
        let source = SourceText::new(
            "a // one \"x\n/* two /* deep */ end */ b \"s \\\" // no\" c r#\"raw \" // no\"# d '\"' e '\\'' f b'x' g br\"y\" h",
        );
        assert_eq!(
            words(&source.code),
            ["a", "b", "c", "d", "e", "f", "g", "h"]
        );
        assert_eq!(
            words(&source.comments),
            [
                "//", "one", "\"x", "/*", "two", "/*", "deep", "*/", "end", "*/"
            ]
        );
        assert_eq!(source.code.lines().count(), 2);
    }

    #[test]
    fn lifetimes_and_words_are_code() {
        let text = "fn f<'a>(x: &'a str, r#type: u8) -> &'static str { bar\"lit\"; 'x' }";
        let source = SourceText::new(text);
        assert_eq!(
            words(&source.code).join(" "),
            "fn f<'a>(x: &'a str, r#type: u8) -> &'static str { bar ; }"
        );
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn broken_source_ends_somewhere() {
        for text in [
            "\"open",
            "/* open",
            "r#\"open",
            "'\\",
            "\"\\",
            "b'",
            "r",
            "'",
            "\u{e9}'\u{e9}'\u{e9}",
        ] {
            let source = SourceText::new(text);
            assert_eq!(source.code.chars().count(), text.chars().count(), "{text}");
        }
    }
}
