//! Statements and operands of a body.

use super::scope::{Found, Names, Target};
use super::special::{is_unsupported_special, special};
use super::{Kind, MAX_DEPTH, ParseError, Parser, shown};
use crate::ptx::ast::{
    Base, Body, Guard, Instruction, Linkage, Operand, Register, Space, Span, Special, Symbol,
    Table, Type,
};
use crate::ptx::lexer::Token;

/// A body while it is read.
struct Frame<'a> {
    names: Names<'a>,
    body: Body,
    /// Operands that stand for a reference's target: instruction and operand.
    pending: Vec<(u32, u32)>,
}

/// Whether a name that is not declared may be that of a label further on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Labels {
    /// It is one, whatever else has the name.
    Only,
    /// If nothing else has the name.
    Maybe,
    Never,
}

impl<'a> Parser<'a> {
    /// From the opening brace past the closing one. The names are those of the parameters.
    pub(super) fn body(&mut self, names: Names<'a>) -> Result<Body, ParseError> {
        let mut frame = Frame {
            names,
            body: Body::default(),
            pending: Vec::new(),
        };
        for parameter in std::mem::take(&mut self.register_params) {
            let Body {
                registers,
                register_params,
                register_returns,
                ..
            } = &mut frame.body;
            if let Some(Found::Register(register)) = frame.names.find(parameter.name, registers) {
                let list = if parameter.returned {
                    register_returns
                } else {
                    register_params
                };
                list.push((parameter.index, register));
            }
        }
        let first = self.current;
        let outermost = frame.names.depth();
        self.open(&mut frame)?;
        while frame.names.depth() > outermost {
            match self.current.kind {
                Kind::Mark(b'{') => self.open(&mut frame)?,
                Kind::Mark(b'}') => {
                    frame.names.close();
                    self.advance()?;
                }
                Kind::Mark(b';') => self.advance()?,
                Kind::Mark(b'@') | Kind::Word => self.labelled_or_instruction(&mut frame)?,
                Kind::Directive => self.body_directive(&mut frame)?,
                Kind::End => {
                    return Err(self.error_at(first, "this `{` is never closed".to_owned()));
                }
                _ => return Err(self.expected("an instruction, a declaration, a label or `}`")),
            }
        }
        frame.names.close();
        self.settle(frame)
    }

    fn open(&mut self, frame: &mut Frame<'a>) -> Result<(), ParseError> {
        if frame.names.depth() > MAX_DEPTH {
            return Err(self.error("scopes nested too deeply"));
        }
        frame.names.open();
        self.advance()
    }

    /// Replaces references to labels by their targets.
    fn settle(&self, frame: Frame<'a>) -> Result<Body, ParseError> {
        let Frame {
            names,
            mut body,
            pending,
        } = frame;
        let references = names.references();
        if let Some(unknown) = references
            .iter()
            .find(|reference| reference.target.is_none())
        {
            let message = format!("`{}` is not declared", shown(unknown.name));
            return Err(self.error_at(unknown.token, message));
        }
        for (instruction, operand) in pending {
            let operand = &mut body.instructions[instruction as usize].operands[operand as usize];
            if let Operand::Label(reference) = *operand {
                *operand = match references[reference as usize].target {
                    Some(Target::Table(table)) => Operand::Table(table),
                    Some(Target::Label(label)) => Operand::Label(label),
                    None => continue,
                };
            }
        }
        for table in &mut body.tables {
            let Table::Branches(labels) = table else {
                continue;
            };
            for label in labels {
                let reference = references[*label as usize];
                let Some(Target::Label(target)) = reference.target else {
                    let message = format!("`{}` is no label to branch to", shown(reference.name));
                    return Err(self.error_at(reference.token, message));
                };
                *label = target;
            }
        }
        Ok(body)
    }

    fn body_directive(&mut self, frame: &mut Frame<'a>) -> Result<(), ParseError> {
        let mut linkage = Linkage::Private;
        if let Some(found) = super::linkage_of(self.word(self.current)) {
            linkage = found;
            self.advance()?;
        }
        let space = match self.word(self.current) {
            ".local" => Space::Local,
            ".shared" => Space::Shared,
            ".param" => Space::Param,
            ".reg" if linkage == Linkage::Private => return self.registers(frame),
            ".global" | ".const" => {
                let message = "a variable of this space inside a function is not supported by the virtual GPU; \
                               declare it at module scope";
                return Err(self.error(message));
            }
            ".branchtargets" | ".calltargets" | ".callprototype" => {
                return Err(self.error("a table without a label before it"));
            }
            _ if linkage == Linkage::Private && self.directive_of_any_place()? => return Ok(()),
            _ => {
                return Err(
                    self.expected("`.reg`, `.local`, `.shared`, `.param`, `.loc` or `.pragma`")
                );
            }
        };
        self.advance()?;
        let declaration = self.declaration(space, linkage)?;
        loop {
            let declarator = self.declarator()?;
            let name = frame.names.unique_name(declarator.name);
            let variable = self.variable(&declaration, &declarator, name)?;
            if variable.size.is_none() && linkage != Linkage::Extern {
                return Err(self.error_at(declarator.token, "an array without a size".to_owned()));
            }
            if self.is(b'=') {
                return Err(self.error("only variables of module scope can have initial values"));
            }
            let symbol = Symbol::Body(frame.body.variables.len() as u32);
            frame.body.variables.push(variable);
            if !frame.names.variable(declarator.name, symbol) {
                return Err(self.declared_twice(declarator.name, declarator.token));
            }
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b';', "`,` or `;` after a variable")
    }

    /// `.reg .b32 %r<100>, x;`
    fn registers(&mut self, frame: &mut Frame<'a>) -> Result<(), ParseError> {
        self.advance()?;
        let word = self.word(self.current);
        if matches!(word, ".v2" | ".v4") {
            return Err(self.error("vector registers are not supported by the virtual GPU"));
        }
        let ty = match self.current.kind {
            Kind::Directive => Type::parse(&word[1..]),
            _ => None,
        };
        let Some(ty) = ty else {
            return Err(self.expected("the type of a register, such as `.b32`"));
        };
        self.advance()?;
        loop {
            let (name, token) = self.name("the name of a register")?;
            let new = if self.take(b'<')? {
                let count = self.small_number("the number of registers")?;
                self.expect(b'>', "`>`")?;
                frame.names.register_range(name, count, ty)
            } else {
                frame.names.register(name, ty)
            };
            if !new {
                return Err(self.declared_twice(name, token));
            }
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b';', "`,` or `;` after a register")
    }

    fn labelled_or_instruction(&mut self, frame: &mut Frame<'a>) -> Result<(), ParseError> {
        let first = self.current;
        let mut guard = None;
        if self.take(b'@')? {
            let negated = self.take(b'!')?;
            guard = Some(Guard {
                register: self.predicate(frame)?,
                negated,
            });
        }
        let name = self.current;
        if name.kind != Kind::Word {
            return Err(self.expected("an instruction"));
        }
        self.advance()?;
        if guard.is_none() && self.is(b':') && !self.word(name).contains('.') {
            self.advance()?;
            return self.label(frame, name);
        }
        let opcode = self.word(name).split('.').next().unwrap_or("");
        // Modifiers may stand apart.
        let mut name = Span {
            start: name.start,
            end: name.end,
        };
        while self.current.kind == Kind::Directive {
            name.end = self.current.end;
            self.advance()?;
        }
        let operands = match opcode {
            "call" => self.call_operands(frame)?,
            "bra" => self.operands(frame, Labels::Only)?,
            _ => self.operands(frame, Labels::Maybe)?,
        };
        self.expect(b';', "an operator, `,` or `;` after an operand")?;
        let span = Span {
            start: first.start,
            end: self.previous_end,
        };
        let source = self.source;
        frame.body.instructions.push(Instruction {
            guard,
            name,
            operands,
            span,
            line: first.line,
            source,
        });
        Ok(())
    }

    fn predicate(&mut self, frame: &mut Frame<'a>) -> Result<Register, ParseError> {
        let (name, token) = self.name("a predicate")?;
        match frame.names.find(name, &mut frame.body.registers) {
            Some(Found::Register(register))
                if frame.body.registers[register.0 as usize] == Type::Pred =>
            {
                Ok(register)
            }
            Some(_) => Err(self.error_at(
                token,
                format!("`{}` is no predicate (`.pred`)", shown(name)),
            )),
            None => Err(self.error_at(token, format!("`{}` is not declared", shown(name)))),
        }
    }

    /// What follows a label and its colon.
    fn label(&mut self, frame: &mut Frame<'a>, token: Token) -> Result<(), ParseError> {
        let table = match self.word(self.current) {
            ".branchtargets" => Some(self.branch_targets(frame)?),
            ".calltargets" => Some(self.call_targets()?),
            ".callprototype" => Some(self.call_prototype()?),
            _ => None,
        };
        let target = if let Some(table) = table {
            frame.body.tables.push(table);
            Target::Table(frame.body.tables.len() as u32 - 1)
        } else {
            frame.body.labels.push(frame.body.instructions.len() as u32);
            Target::Label(frame.body.labels.len() as u32 - 1)
        };
        let name = self.word(token);
        if !frame.names.label(name, target) {
            return Err(self.declared_twice(name, token));
        }
        Ok(())
    }

    /// `.branchtargets L1, L2;` Until the body is settled the list holds references.
    fn branch_targets(&mut self, frame: &mut Frame<'a>) -> Result<Table, ParseError> {
        self.advance()?;
        let mut labels = Vec::new();
        loop {
            let (name, token) = self.name("a label")?;
            labels.push(frame.names.refer(name, token));
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b';', "`,` or `;` after a label")?;
        Ok(Table::Branches(labels))
    }

    /// `.calltargets f, g;`
    fn call_targets(&mut self) -> Result<Table, ParseError> {
        self.advance()?;
        let mut functions = Vec::new();
        loop {
            let (name, token) = self.name("the name of a function")?;
            let Some(&Symbol::Function(function)) = self.names.get(name) else {
                let message = format!("`{}` is no function declared before this", shown(name));
                return Err(self.error_at(token, message));
            };
            functions.push(function);
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b';', "`,` or `;` after a function")?;
        Ok(Table::Calls(functions))
    }

    /// `.callprototype (.param .b32 _) _ (.param .b64 _);`
    fn call_prototype(&mut self) -> Result<Table, ParseError> {
        self.advance()?;
        let returns = if self.is(b'(') {
            self.parameters(None)?
        } else {
            Vec::new()
        };
        if self.word(self.current) != "_" {
            return Err(self.expected("`_`, the place of the function's name,"));
        }
        self.advance()?;
        let params = if self.is(b'(') {
            self.parameters(None)?
        } else {
            Vec::new()
        };
        while matches!(
            self.word(self.current),
            ".noreturn" | ".abi_preserve" | ".abi_preserve_control"
        ) {
            self.advance()?;
            if self.current.kind == Kind::Number {
                self.advance()?;
            }
        }
        self.expect(b';', "`;` after a prototype")?;
        Ok(Table::Prototype { returns, params })
    }

    /// `(returns), callee, (arguments), table`, of which only the callee must be there.
    fn call_operands(&mut self, frame: &mut Frame<'a>) -> Result<Vec<Operand>, ParseError> {
        let returns = if self.is(b'(') {
            let returns = self.group(frame)?;
            self.expect(b',', "`,` after the return values of a call")?;
            returns
        } else {
            Operand::Group(Vec::new())
        };
        let callee = self.operand(frame, Labels::Never)?;
        if !matches!(
            callee,
            Operand::Register(_) | Operand::Symbol(Symbol::Function(_), 0)
        ) {
            return Err(
                self.expected("a function, or a register with the address of one, before this")
            );
        }
        let mut operands = vec![returns, callee];
        let mut more = self.take(b',')?;
        if more && self.is(b'(') {
            operands.push(self.group(frame)?);
            more = self.take(b',')?;
        } else {
            operands.push(Operand::Group(Vec::new()));
        }
        if more {
            let (name, token) = self.name("the label of a table of targets or a prototype")?;
            self.refer(frame, operands.len(), name, token);
            let reference = frame.names.references().len() as u32 - 1;
            operands.push(Operand::Label(reference));
        }
        Ok(operands)
    }

    /// `(a, b)`
    fn group(&mut self, frame: &mut Frame<'a>) -> Result<Operand, ParseError> {
        self.advance()?;
        let mut operands = Vec::new();
        if self.take(b')')? {
            return Ok(Operand::Group(operands));
        }
        loop {
            operands.push(self.operand(frame, Labels::Never)?);
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b')', "`,` or `)` after an operand of a call")?;
        Ok(Operand::Group(operands))
    }

    fn operands(
        &mut self,
        frame: &mut Frame<'a>,
        labels: Labels,
    ) -> Result<Vec<Operand>, ParseError> {
        if self.is(b';') {
            return Ok(Vec::new());
        }
        let mut operands = Vec::with_capacity(4);
        loop {
            let references = frame.names.references().len();
            let operand = self.operand(frame, labels)?;
            if frame.names.references().len() > references {
                frame
                    .pending
                    .push((frame.body.instructions.len() as u32, operands.len() as u32));
            }
            operands.push(operand);
            if !self.take(b',')? {
                return Ok(operands);
            }
        }
    }

    /// Notes that an operand of the instruction being read stands for a label or table.
    fn refer(&mut self, frame: &mut Frame<'a>, operand: usize, name: &'a str, token: Token) {
        frame.names.refer(name, token);
        frame
            .pending
            .push((frame.body.instructions.len() as u32, operand as u32));
    }

    fn operand(&mut self, frame: &mut Frame<'a>, labels: Labels) -> Result<Operand, ParseError> {
        match self.current.kind {
            Kind::Mark(b'[') => self.address(frame),
            Kind::Mark(b'{') => {
                self.advance()?;
                let mut elements = Vec::with_capacity(4);
                loop {
                    elements.push(self.element(frame, Labels::Never)?);
                    if !self.take(b',')? {
                        break;
                    }
                }
                self.expect(b'}', "`,` or `}` after an element of a vector")?;
                Ok(Operand::Vector(elements))
            }
            _ => {
                let first = self.element(frame, labels)?;
                let register = matches!(first, Operand::Register(_) | Operand::Discard);
                if register && self.take(b'|')? {
                    let second = self.element(frame, Labels::Never)?;
                    return Ok(Operand::Pair(Box::new((first, second))));
                }
                Ok(first)
            }
        }
    }

    /// An operand that can be an element of another.
    fn element(&mut self, frame: &mut Frame<'a>, labels: Labels) -> Result<Operand, ParseError> {
        let token = self.current;
        match token.kind {
            Kind::Word => self.named(frame, labels),
            Kind::Mark(b'!') => {
                self.advance()?;
                if self.current.kind == Kind::Word && self.word(self.current) != "WARP_SZ" {
                    return Ok(Operand::Not(self.predicate(frame)?));
                }
                let value = self.integer_expression("an integer")?;
                Ok(Operand::Integer(u64::from(value == 0)))
            }
            Kind::Number | Kind::Mark(b'-' | b'+' | b'~' | b'(') => self.constant(),
            _ => Err(self.expected("an operand")),
        }
    }

    fn constant(&mut self) -> Result<Operand, ParseError> {
        use super::expression::Value;
        Ok(match self.expression()? {
            Value::Signed(value) => Operand::Integer(value as u64),
            Value::Unsigned(value) => Operand::Integer(value),
            Value::Float32(bits) => Operand::Float32(bits),
            Value::Float64(value) => Operand::Float64(value.to_bits()),
        })
    }

    fn named(&mut self, frame: &mut Frame<'a>, labels: Labels) -> Result<Operand, ParseError> {
        let token = self.current;
        let name = self.word(token);
        if labels == Labels::Only {
            let (name, token) = self.name("a label")?;
            return Ok(Operand::Label(frame.names.refer(name, token)));
        }
        match name {
            "_" => {
                self.advance()?;
                return Ok(Operand::Discard);
            }
            "WARP_SZ" => {
                // Alone it is what the AST calls it; in an expression it is a number.
                let constant = self.constant()?;
                let alone = self.previous_end == token.end;
                return Ok(if alone {
                    Operand::Special(Special::WarpSize)
                } else {
                    constant
                });
            }
            _ => {}
        }
        match self.resolve(frame, token)? {
            Some(Resolved::Register(register)) => {
                self.advance()?;
                Ok(Operand::Register(register))
            }
            Some(Resolved::Special(special)) => {
                self.advance()?;
                Ok(Operand::Special(special))
            }
            Some(Resolved::Symbol(symbol)) => {
                self.advance()?;
                if self.is(b'[') {
                    return Err(self.error_at(token, indexed(name)));
                }
                Ok(Operand::Symbol(symbol, self.offset()?))
            }
            None if labels == Labels::Maybe => {
                let (name, token) = self.name("an operand")?;
                Ok(Operand::Label(frame.names.refer(name, token)))
            }
            None => Err(self.error_at(token, format!("`{}` is not declared", shown(name)))),
        }
    }

    /// `[base + offset]`
    fn address(&mut self, frame: &mut Frame<'a>) -> Result<Operand, ParseError> {
        self.advance()?;
        let token = self.current;
        let name = self.word(token);
        let (base, offset) = if token.kind == Kind::Word && name != "WARP_SZ" {
            let base = match self.resolve(frame, token)? {
                Some(Resolved::Register(register)) => Base::Register(register),
                Some(Resolved::Symbol(symbol)) => Base::Symbol(symbol),
                Some(Resolved::Special(_)) => {
                    return Err(
                        self.error("a special register, which cannot be the base of an address")
                    );
                }
                None => return Err(self.error("not declared")),
            };
            self.advance()?;
            (base, self.offset()?)
        } else {
            (Base::Zero, self.integer_expression("an address")? as i64)
        };
        match self.current.kind {
            Kind::Mark(b']') => self.advance()?,
            Kind::Mark(b',') => {
                return Err(self.error(
                    "textures, surfaces and tensor maps are not supported by the virtual GPU",
                ));
            }
            Kind::Mark(b'[') => return Err(self.error_at(token, indexed(name))),
            _ => return Err(self.expected("`+`, `-` or `]` in an address")),
        }
        Ok(Operand::Address { base, offset })
    }

    /// What the name at the current token stands for, `None` if it is not declared so far.
    fn resolve(
        &mut self,
        frame: &mut Frame<'a>,
        token: Token,
    ) -> Result<Option<Resolved>, ParseError> {
        let name = self.word(token);
        if let Some(found) = frame.names.find(name, &mut frame.body.registers) {
            return Ok(Some(match found {
                Found::Register(register) => Resolved::Register(register),
                Found::Symbol(symbol) => Resolved::Symbol(symbol),
            }));
        }
        if name.starts_with('%') {
            return match special(name) {
                Some(special) => Ok(Some(Resolved::Special(special))),
                None if is_unsupported_special(name) => {
                    Err(self.error("a special register that is not supported by the virtual GPU"))
                }
                None => Err(self.error("no register declared here, and no special register")),
            };
        }
        Ok(self.names.get(name).map(|&symbol| Resolved::Symbol(symbol)))
    }
}

/// What a name stands for.
enum Resolved {
    Register(Register),
    Special(Special),
    Symbol(Symbol),
}

fn indexed(name: &str) -> String {
    let name = shown(name);
    format!(
        "`{name}[...]`: an index is not supported by the virtual GPU; write the offset in bytes, `{name}+4`"
    )
}
