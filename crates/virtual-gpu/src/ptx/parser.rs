//! Reads PTX text into a [`Module`]. One pass over the tokens with one token of lookahead; names are resolved on the
//! way, labels when their scope closes.

mod body;
#[cfg(test)]
mod corpus;
mod directives;
mod expression;
mod initialiser;
mod scope;
mod special;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::ast::{Function, Linkage, Module, Space, Symbol, Variable};
use super::lexer::{Kind, Lexer, Malformed, Token};

/// Reads a PTX text. A NUL ends it, as it ends a C string. The time taken and the memory used are proportional to the
/// text's length.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    if u32::try_from(text.len()).is_err() {
        let message = format!(
            "the text has {} bytes; the parser takes less than 4 GiB",
            text.len()
        );
        return Err(ParseError {
            line: 1,
            column: 1,
            function: None,
            message,
        });
    }
    let text: Arc<str> = Arc::from(text);
    let mut parser = Parser::new(&text)?;
    let header = parser.module()?;
    parser.resolve_aliases();
    let Parser {
        files,
        variables,
        functions,
        ..
    } = parser;
    let Header {
        version,
        target,
        target_suffix,
        address_size,
    } = header;
    Ok(Module {
        version,
        target,
        target_suffix,
        address_size,
        files,
        variables,
        functions,
        text: Arc::clone(&text),
    })
}

/// Why a text is no PTX that the virtual GPU can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line of the text, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The kernel or device function it is in.
    pub function: Option<String>,
    /// What was found and what was expected.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}, column {}", self.line, self.column)?;
        if let Some(function) = &self.function {
            write!(f, ", in `{function}`")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ParseError {}

/// Scopes in scopes, parentheses in parentheses: deeper than any compiler's output, shallow enough for any stack.
const MAX_DEPTH: usize = 100;

/// What the lines at the top of the text say.
struct Header {
    version: (u32, u32),
    target: u32,
    target_suffix: Option<char>,
    address_size: u32,
}

/// A parameter or return value that is a register.
struct RegisterParameter<'a> {
    name: &'a str,
    /// Whether it is a return value.
    returned: bool,
    /// Its index among the parameters or return values.
    index: u32,
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// The token that is looked at.
    current: Token,
    /// Where the token before it ends.
    previous_end: u32,
    /// Open parentheses and operators of the expression being read.
    expression_depth: usize,
    /// Zeros that initialisers may still put between given values, so that a short text cannot ask for much memory.
    padding_left: u64,
    files: Vec<(u32, String)>,
    variables: Vec<Variable>,
    functions: Vec<Function>,
    /// Functions that only declare another name of a function, and that function.
    aliases: HashMap<u32, u32>,
    /// Whether parameters may be registers: those of device functions may.
    registers_allowed: bool,
    /// Names of parameters that are registers of the function being read.
    register_params: Vec<RegisterParameter<'a>>,
    /// Module-scope names.
    names: HashMap<&'a str, Symbol>,
    /// The function being read, for messages.
    function: Option<&'a str>,
    /// The last `.loc`.
    source: Option<(u32, u32)>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, ParseError> {
        let mut parser = Parser {
            text,
            lexer: Lexer::new(text),
            current: Token {
                kind: Kind::End,
                start: 0,
                end: 0,
                line: 1,
            },
            previous_end: 0,
            expression_depth: 0,
            padding_left: text.len() as u64 * 4 + 65536,
            files: Vec::new(),
            variables: Vec::new(),
            functions: Vec::new(),
            aliases: HashMap::new(),
            registers_allowed: true,
            register_params: Vec::new(),
            names: HashMap::new(),
            function: None,
            source: None,
        };
        parser.advance()?;
        Ok(parser)
    }

    fn module(&mut self) -> Result<Header, ParseError> {
        let mut header = self.header()?;
        while self.current.kind != Kind::End {
            let first = self.current;
            if first.kind != Kind::Directive {
                if self.take(b';')? {
                    continue;
                }
                return Err(self.expected("a directive such as `.visible`, `.entry` or `.global`"));
            }
            let mut linkage = Linkage::Private;
            while let Some(found) = linkage_of(self.word(self.current)) {
                if linkage != Linkage::Private {
                    return Err(self.error("a second linkage; a name has one"));
                }
                linkage = found;
                self.advance()?;
            }
            let token = self.current;
            let word = self.word(token);
            match word {
                ".entry" | ".func" => self.function(linkage)?,
                ".global" | ".const" | ".shared" => {
                    self.advance()?;
                    let space = match word {
                        ".global" => Space::Global,
                        ".const" => Space::Const,
                        _ => Space::Shared,
                    };
                    self.module_variables(space, linkage)?;
                }
                _ if linkage != Linkage::Private => {
                    return Err(self.expected(
                        "`.entry`, `.func`, `.global`, `.const` or `.shared` after a linkage",
                    ));
                }
                ".address_size" => header.address_size = self.address_size()?,
                ".target" => (header.target, header.target_suffix) = self.target()?,
                _ if self.directive_of_any_place()? => {}
                ".reg" | ".local" | ".param" => {
                    return Err(self.error("a declaration that can only stand inside a function"));
                }
                ".alias" => self.alias()?,
                ".tex" => {
                    return Err(self.error("a directive that the virtual GPU does not support"));
                }
                _ => return Err(self.expected("a directive of module scope")),
            }
        }
        Ok(header)
    }

    /// `.version` and `.target`, which come first.
    fn header(&mut self) -> Result<Header, ParseError> {
        if self.word(self.current) != ".version" {
            return Err(self.expected("`.version`, with which every PTX text begins"));
        }
        self.advance()?;
        let token = self.current;
        let version = self.word(token).split_once('.').and_then(|(major, minor)| {
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            let version = (major.parse().ok()?, minor.parse().ok()?);
            (token.kind == Kind::Number && digits(major) && digits(minor)).then_some(version)
        });
        let Some(version) = version else {
            return Err(self.expected("a version such as `8.0`"));
        };
        self.advance()?;
        while self.current.kind == Kind::Directive && self.directive_of_any_place()? {}
        if self.word(self.current) != ".target" {
            return Err(self.expected("`.target`, which follows `.version`"));
        }
        let (target, target_suffix) = self.target()?;
        Ok(Header {
            version,
            target,
            target_suffix,
            address_size: 64,
        })
    }

    /// `.target sm_90a, debug`
    fn target(&mut self) -> Result<(u32, Option<char>), ParseError> {
        self.advance()?;
        let mut target = None;
        loop {
            let token = self.current;
            if token.kind != Kind::Word {
                return Err(self.expected("a target such as `sm_80`"));
            }
            if let Some(name) = self.word(token).strip_prefix("sm_") {
                let digits = name.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
                let suffix = &name[digits.len()..];
                let number = digits
                    .parse::<u32>()
                    .ok()
                    .filter(|_| !digits.starts_with('+'));
                match number {
                    Some(number) if suffix.len() <= 1 && target.is_none() => {
                        target = Some((number, suffix.chars().next()));
                    }
                    Some(_) if target.is_some() => {
                        return Err(self.error("a second target; a text has one"));
                    }
                    _ => return Err(self.expected("a target such as `sm_80` or `sm_90a`")),
                }
            }
            self.advance()?;
            if !self.take(b',')? {
                break;
            }
        }
        target.ok_or_else(|| self.expected("a target such as `sm_80` before this"))
    }

    fn address_size(&mut self) -> Result<u32, ParseError> {
        self.advance()?;
        let size = match self.word(self.current) {
            "32" => 32,
            "64" => 64,
            _ => return Err(self.expected("an address size: 32 or 64")),
        };
        self.advance()?;
        Ok(size)
    }

    /// Directives that can stand between any two statements: `.file`, `.loc`, `.pragma`, `.section`. Whether it was
    /// one of these.
    fn directive_of_any_place(&mut self) -> Result<bool, ParseError> {
        let first = self.current;
        match self.word(first) {
            ".loc" => {
                self.advance()?;
                let file = self.small_number("the number of a file")?;
                let line = self.small_number("a line number")?;
                self.source = Some((file, line));
                self.skip_line(first.line)?;
            }
            ".file" => {
                self.advance()?;
                let number = self.small_number("the number of the file")?;
                if self.current.kind != Kind::String {
                    return Err(self.expected("the name of the file in quotes"));
                }
                let name = self.word(self.current);
                self.files
                    .push((number, name[1..name.len() - 1].to_owned()));
                self.skip_line(first.line)?;
            }
            ".pragma" => {
                self.advance()?;
                while self.current.kind == Kind::String {
                    self.advance()?;
                    if !self.take(b',')? {
                        break;
                    }
                }
                self.expect(b';', "`;` after the strings of `.pragma`")?;
            }
            ".section" => {
                while self.current.kind != Kind::Mark(b'{') {
                    if self.current.kind == Kind::End {
                        return Err(self.expected("`{` after the name of a section"));
                    }
                    self.advance()?;
                }
                self.skip_nested(b'{', b'}')?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `.file` and `.loc` have no semicolon: they end with their line.
    fn skip_line(&mut self, line: u32) -> Result<(), ParseError> {
        while self.current.line == line && self.current.kind != Kind::End {
            self.advance()?;
        }
        Ok(())
    }

    /// From an opening mark past the one that closes it.
    fn skip_nested(&mut self, open: u8, close: u8) -> Result<(), ParseError> {
        let first = self.current;
        let mut depth = 0usize;
        loop {
            match self.current.kind {
                Kind::End => {
                    return Err(self.error_at(
                        first,
                        format!("this `{}` is never closed", char::from(open)),
                    ));
                }
                Kind::Mark(mark) if mark == open => depth += 1,
                Kind::Mark(mark) if mark == close => depth -= 1,
                _ => {}
            }
            self.advance()?;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// The text of a token.
    fn word(&self, token: Token) -> &'a str {
        &self.text[token.start as usize..token.end as usize]
    }

    fn advance(&mut self) -> Result<(), ParseError> {
        self.previous_end = self.current.end;
        match self.lexer.token() {
            Ok(token) => {
                self.current = token;
                Ok(())
            }
            Err(malformed) => Err(self.malformed(malformed)),
        }
    }

    fn is(&self, mark: u8) -> bool {
        self.current.kind == Kind::Mark(mark)
    }

    /// Goes past a mark if it is there.
    fn take(&mut self, mark: u8) -> Result<bool, ParseError> {
        let found = self.is(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, mark: u8, expected: &str) -> Result<(), ParseError> {
        if self.take(mark)? {
            Ok(())
        } else {
            Err(self.expected(expected))
        }
    }

    /// An identifier.
    fn name(&mut self, expected: &str) -> Result<(&'a str, Token), ParseError> {
        let token = self.current;
        let name = self.word(token);
        if token.kind != Kind::Word || name.contains('.') {
            return Err(self.expected(expected));
        }
        self.advance()?;
        Ok((name, token))
    }

    /// A literal that fits 32 bits.
    fn small_number(&mut self, expected: &str) -> Result<u32, ParseError> {
        let value = match self.current.kind {
            Kind::Number => expression::integer_literal(self.word(self.current)),
            _ => None,
        };
        match value.and_then(|value| u32::try_from(value).ok()) {
            Some(value) => {
                self.advance()?;
                Ok(value)
            }
            None => Err(self.expected(expected)),
        }
    }

    #[cold]
    fn malformed(&self, malformed: Malformed) -> ParseError {
        let Malformed {
            start,
            end,
            line,
            reason,
        } = malformed;
        let token = Token {
            kind: Kind::End,
            start,
            end,
            line,
        };
        self.error_at(token, format!("`{}`: {reason}", shown(self.word(token))))
    }

    /// The error that something else than the current token was expected.
    #[cold]
    fn expected(&self, expected: &str) -> ParseError {
        self.error_at(
            self.current,
            format!("{} where {expected} was expected", self.found(self.current)),
        )
    }

    /// An error about the current token.
    #[cold]
    fn error(&self, message: &str) -> ParseError {
        self.error_at(
            self.current,
            format!("{}: {message}", self.found(self.current)),
        )
    }

    #[cold]
    fn error_at(&self, token: Token, message: String) -> ParseError {
        let before = &self.text[..token.start as usize];
        let line = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
        let column = line.chars().count() as u32 + 1;
        ParseError {
            line: token.line,
            column,
            function: self.function.map(str::to_owned),
            message,
        }
    }

    fn found(&self, token: Token) -> String {
        match token.kind {
            Kind::End => "the end of the text".to_owned(),
            _ => format!("`{}`", shown(self.word(token))),
        }
    }
}

/// Text for a message: not more than a line's worth of it.
fn shown(text: &str) -> String {
    const MOST: usize = 100;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn linkage_of(directive: &str) -> Option<Linkage> {
    Some(match directive {
        ".extern" => Linkage::Extern,
        ".visible" => Linkage::Visible,
        ".weak" => Linkage::Weak,
        ".common" => Linkage::Common,
        _ => return None,
    })
}
