//! The names of one body: registers, variables and labels, in scopes that nest and shadow.

use std::collections::HashMap;

use crate::ptx::ast::{Register, Symbol, Type};
use crate::ptx::lexer::Token;

/// What a name in a body was declared as.
#[derive(Clone, Copy, Debug)]
enum Binding {
    /// An index into the declared registers.
    Register(u32),
    Symbol(Symbol),
}

/// What a name in a body stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Register(Register),
    Symbol(Symbol),
}

/// What a label marks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A place in the code, as an index of a label.
    Label(u32),
    /// A table, by its index.
    Table(u32),
}

/// A name that may be that of a label further on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    pub(super) name: &'a str,
    pub(super) token: Token,
    pub(super) target: Option<Target>,
}

/// A register declared by its own name, numbered when it is first used.
#[derive(Clone, Copy, Debug)]
struct Declared {
    ty: Type,
    used: Option<Register>,
}

/// `%r<100>`: registers %r0 to %r99, of which only those that are used are numbered.
#[derive(Debug)]
struct Numbered {
    ty: Type,
    count: u32,
    depth: u32,
    /// The range of the same prefix that this one shadows.
    outer: Option<u32>,
    /// The registers of the lowest numbers, if used. Not much longer than there are used ones.
    low: Vec<Option<Register>>,
    /// How many registers are used.
    used: usize,
}

/// An open scope. What it shadowed is put back when it closes.
#[derive(Debug, Default)]
struct Scope<'a> {
    shadowed: Vec<(&'a str, Option<(Binding, u32)>)>,
    shadowed_ranges: Vec<(&'a str, Option<u32>)>,
    labels: HashMap<&'a str, Target>,
    /// Indices of the references made in it that no scope inside it has answered.
    open: Vec<u32>,
}

/// The names of one body.
#[derive(Debug)]
pub(super) struct Names<'a> {
    /// The innermost binding of each name with the depth of its scope.
    bindings: HashMap<&'a str, (Binding, u32)>,
    /// The innermost range of each prefix.
    ranges: HashMap<&'a str, u32>,
    declared: Vec<Declared>,
    numbered: Vec<Numbered>,
    /// The used registers of ranges that are not among the lowest, by range and number.
    high: HashMap<(u32, u32), Register>,
    /// Whether any prefix ends with a digit, so that a number can be split off a name in several ways.
    digit_before_number: bool,
    /// Whether a name that starts like `%r1` is bound by itself. Compilers only have ranges of these.
    percent_bound: bool,
    scopes: Vec<Scope<'a>>,
    references: Vec<Reference<'a>>,
    /// Names of variables so far, to make the next one's unique.
    counts: HashMap<&'a str, u32>,
}

impl<'a> Names<'a> {
    /// No names, and one scope.
    pub(super) fn new() -> Names<'a> {
        Names {
            bindings: HashMap::new(),
            ranges: HashMap::new(),
            declared: Vec::new(),
            numbered: Vec::new(),
            high: HashMap::new(),
            digit_before_number: false,
            percent_bound: false,
            scopes: vec![Scope::default()],
            references: Vec::new(),
            counts: HashMap::new(),
        }
    }

    /// How many scopes are open.
    pub(super) fn depth(&self) -> usize {
        self.scopes.len()
    }

    /// Opens a scope.
    pub(super) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Closes the innermost scope: its labels answer the references made in it, the rest is left to the scope around.
    pub(super) fn close(&mut self) {
        let Some(scope) = self.scopes.pop() else {
            return;
        };
        for (name, outer) in scope.shadowed.into_iter().rev() {
            match outer {
                Some(outer) => self.bindings.insert(name, outer),
                None => self.bindings.remove(name),
            };
        }
        for (prefix, outer) in scope.shadowed_ranges.into_iter().rev() {
            match outer {
                Some(outer) => self.ranges.insert(prefix, outer),
                None => self.ranges.remove(prefix),
            };
        }
        let mut unanswered = scope.open;
        unanswered.retain(|&index| {
            let reference = &mut self.references[index as usize];
            reference.target = scope.labels.get(reference.name).copied();
            reference.target.is_none()
        });
        if let Some(outer) = self.scopes.last_mut() {
            // The longer list is kept: what moves is never more than what stays.
            if outer.open.len() < unanswered.len() {
                std::mem::swap(&mut outer.open, &mut unanswered);
            }
            outer.open.append(&mut unanswered);
        }
    }

    /// All the references, in the order they were made; to be asked for when every scope is closed.
    pub(super) fn references(&self) -> &[Reference<'a>] {
        &self.references
    }

    /// Notes a name that a label of this scope or of one around it must answer.
    pub(super) fn refer(&mut self, name: &'a str, token: Token) -> u32 {
        let index = self.references.len() as u32;
        self.references.push(Reference {
            name,
            token,
            target: None,
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.open.push(index);
        }
        index
    }

    /// Declares a label; false if this scope has one of the name.
    #[must_use]
    pub(super) fn label(&mut self, name: &'a str, target: Target) -> bool {
        match self.scopes.last_mut() {
            Some(scope) => scope.labels.insert(name, target).is_none(),
            None => false,
        }
    }

    /// Declares a variable; false if this scope has the name already.
    #[must_use]
    pub(super) fn variable(&mut self, name: &'a str, symbol: Symbol) -> bool {
        self.bind(name, Binding::Symbol(symbol))
    }

    /// Declares a register; false if this scope has the name already.
    #[must_use]
    pub(super) fn register(&mut self, name: &'a str, ty: Type) -> bool {
        let index = self.declared.len() as u32;
        self.declared.push(Declared { ty, used: None });
        self.bind(name, Binding::Register(index))
    }

    /// Declares `count` registers of a prefix; false if this scope has the prefix already.
    #[must_use]
    pub(super) fn register_range(&mut self, prefix: &'a str, count: u32, ty: Type) -> bool {
        let index = self.numbered.len() as u32;
        let depth = self.scopes.len() as u32;
        let outer = self.ranges.insert(prefix, index);
        self.digit_before_number |= prefix.ends_with(|letter: char| letter.is_ascii_digit());
        let low = Vec::new();
        self.numbered.push(Numbered {
            ty,
            count,
            depth,
            outer,
            low,
            used: 0,
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.shadowed_ranges.push((prefix, outer));
        }
        outer.is_none_or(|outer| self.numbered[outer as usize].depth < depth)
    }

    /// What a name stands for; a register's first use numbers it and adds its type to `registers`.
    pub(super) fn find(&mut self, name: &str, registers: &mut Vec<Type>) -> Option<Found> {
        let maybe = self.percent_bound || !name.starts_with('%');
        let bound = if maybe {
            self.bindings.get(name).copied()
        } else {
            None
        };
        let depth = bound.map_or(0, |(_, depth)| depth);
        if (depth as usize) < self.scopes.len()
            && let Some((range, number)) = self.find_in_ranges(name, depth)
        {
            return Some(Found::Register(self.of_range(range, number, registers)));
        }
        match bound?.0 {
            Binding::Symbol(symbol) => Some(Found::Symbol(symbol)),
            Binding::Register(index) => {
                let declared = &mut self.declared[index as usize];
                Some(Found::Register(
                    *declared
                        .used
                        .get_or_insert_with(|| add(registers, declared.ty)),
                ))
            }
        }
    }

    /// A name for a variable that no other variable of the body has: its own, or with `@2` and so on behind it.
    pub(super) fn unique_name(&mut self, name: &'a str) -> String {
        let count = self.counts.entry(name).or_insert(0);
        *count += 1;
        if *count == 1 {
            name.to_owned()
        } else {
            format!("{name}@{count}")
        }
    }

    /// A register of a range, numbered if it is the first use of it.
    fn of_range(&mut self, range: u32, number: u32, registers: &mut Vec<Type>) -> Register {
        let numbered = &mut self.numbered[range as usize];
        let index = number as usize;
        if let Some(&Some(register)) = numbered.low.get(index) {
            return register;
        }
        if let Some(&register) = self.high.get(&(range, number)) {
            return register;
        }
        let register = add(registers, numbered.ty);
        numbered.used += 1;
        if index < numbered.used * 2 + 16 {
            if numbered.low.len() <= index {
                numbered.low.resize(index + 1, None);
            }
            numbered.low[index] = Some(register);
        } else {
            self.high.insert((range, number), register);
        }
        register
    }

    fn bind(&mut self, name: &'a str, binding: Binding) -> bool {
        let depth = self.scopes.len() as u32;
        let outer = self.bindings.insert(name, (binding, depth));
        self.percent_bound |= name.starts_with('%');
        if let Some(scope) = self.scopes.last_mut() {
            scope.shadowed.push((name, outer));
        }
        outer.is_none_or(|(_, outer)| outer < depth)
    }

    /// The innermost range that has a register of this name, if it is of a deeper scope than `depth`, and the
    /// register's number. `%r15` may be number 15 of `%r<20>` or number 5 of `%r1<10>`.
    fn find_in_ranges(&self, name: &str, depth: u32) -> Option<(u32, u32)> {
        let bytes = name.as_bytes();
        let digits = bytes
            .iter()
            .rev()
            .take(10)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let mut best: Option<(u32, u32)> = None;
        let mut best_depth = depth;
        let longest = bytes.len() - digits;
        let splits = if self.digit_before_number {
            longest..bytes.len()
        } else {
            longest..bytes.len().min(longest + 1)
        };
        for split in splits {
            let (prefix, number) = name.split_at(split);
            if number.len() > 1 && number.starts_with('0') {
                continue;
            }
            let (Some(&range), Ok(number)) = (self.ranges.get(prefix), number.parse::<u32>())
            else {
                continue;
            };
            let mut next = Some(range);
            while let Some(range) = next {
                let numbered = &self.numbered[range as usize];
                if numbered.depth <= best_depth {
                    break;
                }
                if number < numbered.count {
                    best = Some((range, number));
                    best_depth = numbered.depth;
                    break;
                }
                next = numbered.outer;
            }
        }
        best
    }
}

fn add(registers: &mut Vec<Type>, ty: Type) -> Register {
    registers.push(ty);
    Register(registers.len() as u32 - 1)
}
