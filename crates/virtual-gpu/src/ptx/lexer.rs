//! Cuts PTX text into tokens. A token is a range of bytes of the text and the line it starts on; nothing is copied.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or an opcode with all its modifiers: `foo`, `%r1`, `%tid.x`, `ld.shared::cta.b32`.
    Word,
    /// `.reg`: one dot, one name.
    Directive,
    /// Any numeric literal; its digits are checked where its value is needed.
    Number,
    /// A quoted string, with its quotes.
    String,
    /// Punctuation or an operator of one character.
    Mark(u8),
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `<=`
    LessEqual,
    /// `>=`
    GreaterEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `&&`
    And,
    /// `||`
    Or,
    /// After the last token.
    End,
}

/// A piece of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// From 1.
    pub(crate) line: u32,
}

/// Bytes that are no token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Malformed {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) line: u32,
    pub(crate) reason: &'static str,
}

/// The position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of a text, which must be shorter than 4 GiB. A NUL ends the text, as it ends the C string
    /// that a driver is given.
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        debug_assert!(u32::try_from(text.len()).is_ok(), "checked by the parser");
        Lexer {
            bytes: text.as_bytes(),
            at: 0,
            line: 1,
        }
    }

    /// The next token; [`Kind::End`] for ever once there is none.
    pub(crate) fn token(&mut self) -> Result<Token, Malformed> {
        self.skip_blank()?;
        let start = self.at;
        let byte = self.peek(0);
        let kind = match byte {
            0 => Kind::End,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => self.word(),
            b'%' if is_name(self.peek(1)) => {
                self.at += 1;
                self.word()
            }
            b'.' if self.peek(1).is_ascii_digit() => self.number(),
            b'.' if is_name(self.peek(1)) => {
                self.at += 1;
                self.names();
                self.scopes();
                Kind::Directive
            }
            b'0'..=b'9' => self.number(),
            b'"' => return self.string(),
            _ => self.mark(byte)?,
        };
        Ok(Token {
            kind,
            start: start as u32,
            end: self.at as u32,
            line: self.line,
        })
    }

    /// The byte so far ahead; 0 past the end.
    #[inline]
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Goes past white space and comments.
    #[inline]
    fn skip_blank(&mut self) -> Result<(), Malformed> {
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    let rest = &self.bytes[self.at..];
                    self.at += rest
                        .iter()
                        .position(|&byte| byte == b'\n' || byte == 0)
                        .unwrap_or(rest.len());
                }
                b'/' if self.peek(1) == b'*' => self.block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn block_comment(&mut self) -> Result<(), Malformed> {
        let (start, line) = (self.at, self.line);
        self.at += 2;
        loop {
            match self.peek(0) {
                0 => {
                    let reason = "this comment has no end (`*/`)";
                    return Err(Malformed {
                        start: start as u32,
                        end: start as u32 + 2,
                        line,
                        reason,
                    });
                }
                b'*' if self.peek(1) == b'/' => {
                    self.at += 2;
                    return Ok(());
                }
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    #[inline]
    fn names(&mut self) {
        while is_name(self.peek(0)) {
            self.at += 1;
        }
    }

    /// The `::cta` of `.shared::cta`.
    #[inline]
    fn scopes(&mut self) {
        while self.peek(0) == b':' && self.peek(1) == b':' && is_name(self.peek(2)) {
            self.at += 2;
            self.names();
        }
    }

    #[inline]
    fn word(&mut self) -> Kind {
        self.names();
        while self.peek(0) == b'.' && is_name(self.peek(1)) {
            self.at += 1;
            self.names();
            self.scopes();
        }
        Kind::Word
    }

    fn number(&mut self) -> Kind {
        let prefix = self.peek(1) | 0x20;
        if self.peek(0) == b'0' && matches!(prefix, b'x' | b'b' | b'f' | b'd') {
            self.names();
            return Kind::Number;
        }
        let digits = |lexer: &mut Lexer<'_>| {
            while lexer.peek(0).is_ascii_digit() {
                lexer.at += 1;
            }
        };
        digits(self);
        if self.peek(0) == b'.' {
            self.at += 1;
            digits(self);
        }
        let signed = matches!(self.peek(1), b'+' | b'-') && self.peek(2).is_ascii_digit();
        if self.peek(0) | 0x20 == b'e' && (signed || self.peek(1).is_ascii_digit()) {
            self.at += 2;
            digits(self);
        }
        self.names();
        Kind::Number
    }

    fn string(&mut self) -> Result<Token, Malformed> {
        let (start, line) = (self.at as u32, self.line);
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return Ok(Token {
                        kind: Kind::String,
                        start,
                        end: self.at as u32,
                        line,
                    });
                }
                b'\\' if !matches!(self.peek(1), 0 | b'\n') => self.at += 2,
                0 | b'\n' => {
                    let reason = "this string has no end (`\"`) on its line";
                    return Err(Malformed {
                        start,
                        end: self.at as u32,
                        line,
                        reason,
                    });
                }
                _ => self.at += 1,
            }
        }
    }

    fn mark(&mut self, byte: u8) -> Result<Kind, Malformed> {
        let pair = match (byte, self.peek(1)) {
            (b'<', b'<') => Some(Kind::ShiftLeft),
            (b'>', b'>') => Some(Kind::ShiftRight),
            (b'<', b'=') => Some(Kind::LessEqual),
            (b'>', b'=') => Some(Kind::GreaterEqual),
            (b'=', b'=') => Some(Kind::Equal),
            (b'!', b'=') => Some(Kind::NotEqual),
            (b'&', b'&') => Some(Kind::And),
            (b'|', b'|') => Some(Kind::Or),
            _ => None,
        };
        if let Some(kind) = pair {
            self.at += 2;
            return Ok(kind);
        }
        if b",;:()[]{}<>+-*/%!~&|^?=@".contains(&byte) {
            self.at += 1;
            return Ok(Kind::Mark(byte));
        }
        let start = self.at;
        // The whole character, so that the text between the two ends is text.
        let length = self.bytes[start + 1..]
            .iter()
            .take_while(|&&next| next & 0xc0 == 0x80)
            .count();
        let (start, end) = (start as u32, (start + 1 + length) as u32);
        Err(Malformed {
            start,
            end,
            line: self.line,
            reason: "no token of PTX starts like this",
        })
    }
}

/// Whether a byte can stand inside an identifier.
#[inline]
fn is_name(byte: u8) -> bool {
    const NAME: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            let letter = byte as u8;
            table[byte] = letter.is_ascii_alphanumeric() || letter == b'_' || letter == b'$';
            byte += 1;
        }
        table
    };
    NAME[usize::from(byte)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(Kind, &str, u32)> {
        let mut lexer = Lexer::new(text);
        let mut pieces = Vec::new();
        loop {
            let token = lexer.token().unwrap();
            if token.kind == Kind::End {
                return pieces;
            }
            pieces.push((
                token.kind,
                &text[token.start as usize..token.end as usize],
                token.line,
            ));
        }
    }

    #[test]
    fn tokens_keep_opcodes_whole_and_directives_apart() {
        let texts = |text| {
            pieces(text)
                .into_iter()
                .map(|(_, text, _)| text)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(".reg.b16 r;"), [".reg", ".b16", "r", ";"]);
        assert_eq!(
            texts("@!%p1 ld.shared::cta.L2::128B.v4.f32 {a,_},[%rd1+-4];"),
            [
                "@",
                "!",
                "%p1",
                "ld.shared::cta.L2::128B.v4.f32",
                "{",
                "a",
                ",",
                "_",
                "}",
                ",",
                "[",
                "%rd1",
                "+",
                "-"
            ]
            .into_iter()
            .chain(["4", "]", ";"])
            .collect::<Vec<_>>()
        );
        assert_eq!(texts("%r<100>; 7 % 3 a: .callprototype"), {
            [
                "%r",
                "<",
                "100",
                ">",
                ";",
                "7",
                "%",
                "3",
                "a",
                ":",
                ".callprototype",
            ]
        });
        assert_eq!(texts("0X2B7CU 1e-5 1.0 .5 0f3F80000E-4 1<<2>=3"), {
            [
                "0X2B7CU",
                "1e-5",
                "1.0",
                ".5",
                "0f3F80000E",
                "-",
                "4",
                "1",
                "<<",
                "2",
                ">=",
                "3",
            ]
        });
    }

    #[test]
    fn lines_are_counted_through_comments_and_a_nul_ends_the_text() {
        let found = pieces("a // b\r\n/* c\n d */ e \"f g\"\n\u{0} h");
        assert_eq!(
            found,
            [
                (Kind::Word, "a", 1),
                (Kind::Word, "e", 3),
                (Kind::String, "\"f g\"", 3)
            ]
        );
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in [
            "/* x",
            "\"abc",
            "\"abc\ndef\"",
            "\"abc\\",
            "é",
            "#",
            "`",
            "'",
        ] {
            assert!(Lexer::new(text).token().is_err(), "{text}");
        }
    }
}
