//! Declarations: variables, parameters, and the headers of kernels and device functions.

use super::RegisterParameter;
use super::scope::Names;
use super::{Kind, ParseError, Parser};
use crate::ptx::ast::{Function, Init, Linkage, Operand, Space, Symbol, Table, Type, Variable};
use crate::ptx::lexer::Token;

/// What stands between a state space and the names it declares.
pub(super) struct Declaration {
    pub(super) space: Space,
    pub(super) linkage: Linkage,
    pub(super) ty: Type,
    /// Elements of a vector; 1 if it is none.
    pub(super) width: u32,
    /// At least that of an element.
    align: u32,
}

/// One name of a declaration.
pub(super) struct Declarator<'a> {
    pub(super) name: &'a str,
    pub(super) token: Token,
    /// Sizes of an array's dimensions; only the first may be `None`, for `[]`.
    pub(super) dimensions: Vec<Option<u64>>,
}

/// Where the names of parameters are bound, and as what.
type Binder<'n, 'a> = (&'n mut Names<'a>, fn(u32) -> Symbol);

/// Dimensions of an array: more than any compiler's output has.
const MAX_DIMENSIONS: usize = 32;

impl<'a> Parser<'a> {
    /// Module-scope variables, from behind the state space to the semicolon.
    pub(super) fn module_variables(
        &mut self,
        space: Space,
        linkage: Linkage,
    ) -> Result<(), ParseError> {
        let declaration = self.declaration(space, linkage)?;
        loop {
            let declarator = self.declarator()?;
            let name = declarator.name;
            let mut variable = self.variable(&declaration, &declarator, name.to_owned())?;
            if self.take(b'=')? {
                if matches!(space, Space::Shared) || linkage == Linkage::Extern {
                    return Err(self.error("an initialiser of a variable that cannot have one"));
                }
                variable.init = self.initialiser(&declaration, &declarator)?;
                if variable.size.is_none() {
                    let row = elements(&declarator.dimensions[1..], declaration.width).unwrap_or(0);
                    let rows = (variable.init.len() as u64).div_ceil(row.max(1));
                    let size = rows
                        .checked_mul(row)
                        .and_then(|size| size.checked_mul(declaration.ty.size().into()));
                    variable.size = Some(size.ok_or_else(|| self.error("too large an array"))?);
                }
            } else if variable.size.is_none() && linkage != Linkage::Extern {
                return Err(self.expected(
                    "an initialiser, for an array without a size that is not `.extern`,",
                ));
            }
            self.add_variable(variable, &declarator)?;
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b';', "`,` or `;` after a variable")
    }

    /// A kernel or device function, declared or defined.
    pub(super) fn function(&mut self, linkage: Linkage) -> Result<(), ParseError> {
        let line = self.current.line;
        let entry = self.word(self.current) == ".entry";
        self.advance()?;
        let mut names = Names::new();
        self.attributes()?;
        self.register_params.clear();
        self.registers_allowed = !entry;
        let returns = match self.is(b'(') {
            true if !entry => self.parameters(Some((&mut names, Symbol::Return)))?,
            _ => Vec::new(),
        };
        let (name, token) = self.name("the name of a function")?;
        self.function = Some(name);
        let params = match self.is(b'(') {
            true => self.parameters(Some((&mut names, Symbol::Param)))?,
            false => Vec::new(),
        };
        let mut function = Function {
            name: name.to_owned(),
            entry,
            linkage,
            returns,
            params,
            max_threads: None,
            required_threads: None,
            min_blocks: None,
            max_registers: None,
            body: None,
            line,
        };
        while self.current.kind == Kind::Directive {
            self.performance_directive(&mut function)?;
        }
        let defined = self.is(b'{');
        let index = self.add_function(function, defined, token)?;
        if defined {
            let body = self.body(names)?;
            self.functions[index as usize].body = Some(body);
        } else {
            self.expect(
                b';',
                "`{`, `;` or a directive such as `.maxntid` after the head of a function",
            )?;
        }
        self.function = None;
        self.source = None;
        Ok(())
    }

    /// `.alias name, function;`
    pub(super) fn alias(&mut self) -> Result<(), ParseError> {
        self.advance()?;
        let name = self.function_name()?;
        self.expect(b',', "`,` and the function that has another name")?;
        let token = self.current;
        let function = self.function_name()?;
        let shape = |index: u32| {
            let function = &self.functions[index as usize];
            let sizes = |variables: &[Variable]| -> Vec<_> {
                variables.iter().map(|variable| variable.size).collect()
            };
            (
                function.entry,
                sizes(&function.params),
                sizes(&function.returns),
            )
        };
        let (alias, real) = (
            &self.functions[name as usize],
            &self.functions[function as usize],
        );
        if alias.body.is_some()
            || real.body.is_none()
            || alias.entry
            || shape(name) != shape(function)
        {
            let message = format!(
                "`{}` must be defined and `{}` only declared, with the same parameters",
                super::shown(&real.name),
                super::shown(&alias.name)
            );
            return Err(self.error_at(token, message));
        }
        self.aliases.insert(name, function);
        self.expect(b';', "`;` after an alias")
    }

    fn function_name(&mut self) -> Result<u32, ParseError> {
        let (name, token) = self.name("the name of a function")?;
        match self.names.get(name) {
            Some(&Symbol::Function(index)) => Ok(index),
            _ => Err(self.error_at(
                token,
                format!(
                    "`{}` is no function declared before this",
                    super::shown(name)
                ),
            )),
        }
    }

    /// Lets everything that names an alias name its function.
    pub(super) fn resolve_aliases(&mut self) {
        if self.aliases.is_empty() {
            return;
        }
        let resolve = |symbol: &mut Symbol| {
            if let Symbol::Function(index) = symbol
                && let Some(&function) = self.aliases.get(index)
            {
                *index = function;
            }
        };
        for init in self
            .variables
            .iter_mut()
            .flat_map(|variable| &mut variable.init)
        {
            if let Init::Address { symbol, .. } = init {
                resolve(symbol);
            }
        }
        for body in self
            .functions
            .iter_mut()
            .filter_map(|function| function.body.as_mut())
        {
            for operand in body
                .instructions
                .iter_mut()
                .flat_map(|instruction| &mut instruction.operands)
            {
                if let Operand::Symbol(symbol, _) = operand {
                    resolve(symbol);
                }
            }
            for table in &mut body.tables {
                if let Table::Calls(functions) = table {
                    for index in functions {
                        *index = self.aliases.get(index).copied().unwrap_or(*index);
                    }
                }
            }
        }
    }

    /// Type, alignment, vector width and attributes.
    pub(super) fn declaration(
        &mut self,
        space: Space,
        linkage: Linkage,
    ) -> Result<Declaration, ParseError> {
        let mut align = 1;
        let mut width = 1;
        let mut ty = None;
        while self.current.kind == Kind::Directive {
            match self.word(self.current) {
                ".align" => align = self.alignment()?,
                ".attribute" => self.attributes()?,
                // What a pointer points to is a promise that nothing here relies on.
                ".ptr" if space == Space::Param => {
                    self.advance()?;
                    if matches!(
                        self.word(self.current),
                        ".global" | ".const" | ".shared" | ".local"
                    ) {
                        self.advance()?;
                    }
                    if self.word(self.current) == ".align" {
                        self.alignment()?;
                    }
                }
                ".v2" | ".v4" if width == 1 => {
                    width = if self.word(self.current) == ".v2" {
                        2
                    } else {
                        4
                    };
                    self.advance()?;
                }
                ".texref" | ".samplerref" | ".surfref" => {
                    return Err(
                        self.error("textures and surfaces are not supported by the virtual GPU")
                    );
                }
                word => match Type::parse(&word[1..]) {
                    Some(Type::Pred) => {
                        return Err(self.error("a predicate has no place in memory"));
                    }
                    Some(found) if ty.is_none() => {
                        ty = Some(found);
                        self.advance()?;
                    }
                    Some(_) => return Err(self.error("a second type; a declaration has one")),
                    None => return Err(self.expected("a type such as `.b32`, or `.align`")),
                },
            }
        }
        let Some(ty) = ty else {
            return Err(self.expected("a type such as `.b32`"));
        };
        let align = align.max(ty.size() * width);
        Ok(Declaration {
            space,
            linkage,
            ty,
            width,
            align,
        })
    }

    /// A name with the dimensions of an array.
    pub(super) fn declarator(&mut self) -> Result<Declarator<'a>, ParseError> {
        let (name, token) = self.name("the name of a variable")?;
        let mut dimensions = Vec::new();
        while self.take(b'[')? {
            if dimensions.len() == MAX_DIMENSIONS {
                return Err(self.error("an array of too many dimensions"));
            }
            if self.is(b']') {
                if !dimensions.is_empty() {
                    return Err(self.expected("a size; only an array's first may be left out,"));
                }
                dimensions.push(None);
            } else {
                let first = self.current;
                let size = self.integer_expression("the size of an array")?;
                if size > i64::MAX as u64 {
                    return Err(
                        self.error_at(first, "a negative (or absurd) size of an array".to_owned())
                    );
                }
                dimensions.push(Some(size));
            }
            self.expect(b']', "`]`")?;
        }
        Ok(Declarator {
            name,
            token,
            dimensions,
        })
    }

    /// The variable that a name of a declaration declares.
    pub(super) fn variable(
        &self,
        declaration: &Declaration,
        declarator: &Declarator<'a>,
        name: String,
    ) -> Result<Variable, ParseError> {
        let Declaration {
            space,
            linkage,
            ty,
            width,
            align,
        } = *declaration;
        let size = if declarator.dimensions.first() == Some(&None) {
            // That of one row must be sound too.
            elements(&declarator.dimensions[1..], width).map(|_| None)
        } else {
            elements(&declarator.dimensions, width)
                .and_then(|count| count.checked_mul(ty.size().into()))
                .map(Some)
        };
        let Some(size) = size else {
            let message = format!(
                "`{}` takes 2^64 bytes or more",
                super::shown(declarator.name)
            );
            return Err(self.error_at(declarator.token, message));
        };
        let line = declarator.token.line;
        Ok(Variable {
            name,
            space,
            ty,
            align,
            size,
            linkage,
            init: Vec::new(),
            line,
        })
    }

    /// A list of parameters in parentheses. Their names are bound unless they are those of a prototype.
    pub(super) fn parameters(
        &mut self,
        mut bound: Option<Binder<'_, 'a>>,
    ) -> Result<Vec<Variable>, ParseError> {
        self.expect(b'(', "`(` before parameters")?;
        let mut parameters = Vec::new();
        if self.take(b')')? {
            return Ok(parameters);
        }
        loop {
            let in_register = match self.word(self.current) {
                ".param" => false,
                ".reg" if self.registers_allowed || bound.is_none() => true,
                ".reg" => {
                    return Err(
                        self.error("a parameter of a kernel in a register; declare it `.param`")
                    );
                }
                _ => return Err(self.expected("`.param`")),
            };
            self.advance()?;
            let declaration = self.declaration(Space::Param, Linkage::Private)?;
            let declarator = self.declarator()?;
            parameters.push(self.variable(
                &declaration,
                &declarator,
                declarator.name.to_owned(),
            )?);
            if let Some((names, symbol)) = &mut bound
                && declarator.name != "_"
            {
                let symbol = symbol(parameters.len() as u32 - 1);
                let new = if in_register {
                    self.register_params.push(RegisterParameter {
                        name: declarator.name,
                        returned: matches!(symbol, Symbol::Return(_)),
                        index: parameters.len() as u32 - 1,
                    });
                    declaration.width == 1
                        && declarator.dimensions.is_empty()
                        && names.register(declarator.name, declaration.ty)
                } else {
                    names.variable(declarator.name, symbol)
                };
                if !new {
                    return Err(self.declared_twice(declarator.name, declarator.token));
                }
            }
            if !self.take(b',')? {
                break;
            }
        }
        self.expect(b')', "`,` or `)` after a parameter")?;
        Ok(parameters)
    }

    #[cold]
    pub(super) fn declared_twice(&self, name: &str, token: Token) -> ParseError {
        self.error_at(
            token,
            format!("`{}` is declared already in this scope", super::shown(name)),
        )
    }

    /// `.align 16`
    fn alignment(&mut self) -> Result<u32, ParseError> {
        self.advance()?;
        let token = self.current;
        let align = self.small_number("an alignment in bytes")?;
        if !align.is_power_of_two() {
            return Err(self.error_at(
                token,
                format!("an alignment of {align}, which is no power of two"),
            ));
        }
        Ok(align)
    }

    /// Attributes that can be passed over: managed and unified memory is where other memory is.
    fn attributes(&mut self) -> Result<(), ParseError> {
        while self.word(self.current) == ".attribute" {
            self.advance()?;
            if !self.is(b'(') {
                return Err(self.expected("`(` after `.attribute`"));
            }
            self.skip_nested(b'(', b')')?;
        }
        Ok(())
    }

    fn performance_directive(&mut self, function: &mut Function) -> Result<(), ParseError> {
        let word = self.word(self.current);
        if word == ".attribute" {
            return self.attributes();
        }
        if self.directive_of_any_place()? {
            return Ok(());
        }
        let numbers = match word {
            ".maxntid" | ".reqntid" | ".reqnctapercluster" => 1..=3,
            ".minnctapersm"
            | ".maxnctapersm"
            | ".maxnreg"
            | ".maxclusterrank"
            | ".abi_preserve"
            | ".abi_preserve_control" => 1..=1,
            ".noreturn" | ".explicitcluster" | ".blocksareclusters" => 0..=0,
            _ => return Err(self.expected("`{`, `;` or a directive such as `.maxntid`")),
        };
        self.advance()?;
        let mut values = [1; 3];
        for (index, value) in values.iter_mut().take(*numbers.end()).enumerate() {
            if index > 0 && !self.take(b',')? {
                break;
            }
            *value = self.small_number("a number")?;
        }
        match word {
            ".maxntid" => function.max_threads = Some(values),
            ".reqntid" => function.required_threads = Some(values),
            ".minnctapersm" => function.min_blocks = Some(values[0]),
            ".maxnreg" => function.max_registers = Some(values[0]),
            // How blocks form clusters and what registers a call keeps makes no difference to what is computed.
            _ => {}
        }
        Ok(())
    }

    /// Adds a module-scope variable, or merges it with an `.extern` declaration of it.
    fn add_variable(
        &mut self,
        variable: Variable,
        declarator: &Declarator<'a>,
    ) -> Result<(), ParseError> {
        match self.names.get(declarator.name) {
            None => {
                let symbol = Symbol::Module(self.variables.len() as u32);
                self.names.insert(declarator.name, symbol);
                self.variables.push(variable);
            }
            Some(&Symbol::Module(index)) => {
                let known = &mut self.variables[index as usize];
                if known.space != variable.space {
                    let message = format!(
                        "`{}` has another state space in line {}",
                        variable.name, known.line
                    );
                    return Err(self.error_at(declarator.token, message));
                }
                if known.linkage == Linkage::Extern {
                    *known = variable;
                } else if variable.linkage != Linkage::Extern {
                    return Err(self.declared_twice(declarator.name, declarator.token));
                }
            }
            Some(_) => return Err(self.declared_twice(declarator.name, declarator.token)),
        }
        Ok(())
    }

    /// Adds a function, or merges it with a declaration or definition of it, and answers its index. A definition's
    /// body comes later.
    fn add_function(
        &mut self,
        function: Function,
        defined: bool,
        token: Token,
    ) -> Result<u32, ParseError> {
        let name = self.word(token);
        let index = match self.names.get(name) {
            None => {
                let index = self.functions.len() as u32;
                self.names.insert(name, Symbol::Function(index));
                self.functions.push(function);
                return Ok(index);
            }
            Some(&Symbol::Function(index)) => index,
            Some(_) => return Err(self.declared_twice(name, token)),
        };
        let known = &mut self.functions[index as usize];
        if known.entry != function.entry {
            let message = format!(
                "this is `.entry` here and `.func` elsewhere (line {})",
                known.line
            );
            return Err(self.error_at(token, message));
        }
        if defined && known.body.is_some() {
            let message = format!(
                "`{}` is defined already, in line {}",
                super::shown(name),
                known.line
            );
            return Err(self.error_at(token, message));
        }
        if defined {
            *known = function;
        }
        Ok(index)
    }
}

/// How many elements dimensions and a vector make; `None` if 2^64 or more.
pub(super) fn elements(dimensions: &[Option<u64>], width: u32) -> Option<u64> {
    dimensions.iter().try_fold(u64::from(width), |count, size| {
        count.checked_mul(size.unwrap_or(0))
    })
}
