//! What PTX lets a program write: the table `grammar/forms.txt` of every form's modifiers, operands and requirements,
//! and the check of an instruction against it, before its family decodes it.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::decode::{Builder, Form, Refusal};
use crate::ptx::ast::{Base, Operand, Space, Special, Symbol, Type};

/// Fails if PTX has no such form of an opcode that the table knows.
pub(crate) fn check(form: &Form<'_>, builder: &Builder<'_>) -> Result<(), Refusal> {
    let Some(rules) = TABLE.get(form.opcode) else {
        return Ok(());
    };
    let mut nearest: Option<(usize, &Rule, String)> = None;
    let mut wrong = None;
    for rule in rules {
        match rule.take(&form.modifiers) {
            Ok(types) => match rule.judge(form, builder, &types) {
                Ok(()) => return rule.available(builder),
                Err(problem) => wrong = wrong.or(Some(problem)),
            },
            Err((distance, problem)) => {
                if nearest.as_ref().is_none_or(|(other, ..)| distance < *other) {
                    nearest = Some((distance, rule, problem));
                }
            }
        }
    }
    if let Some(problem) = wrong {
        return Err(Refusal::new(problem));
    }
    let (_, rule, problem) = nearest.expect("an opcode of the table has a form");
    Err(Refusal::new(format!(
        "PTX has no such form of {}: {problem}; the nearest is {}",
        form.opcode,
        rule.text()
    )))
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Rule>>> = LazyLock::new(|| {
    let mut lists = HashMap::new();
    let mut table: HashMap<&str, Vec<Rule>> = HashMap::new();
    for line in include_str!("grammar/forms.txt").lines() {
        if let Some(list) = line.strip_prefix('@') {
            let (name, alternatives) = list
                .split_once(' ')
                .expect("a list has a name and alternatives");
            lists.insert(name, alternatives);
        } else if !line.is_empty() && !line.starts_with('#') {
            let (opcodes, rest) = line.split_once(' ').expect("an opcode and a form");
            for opcode in opcodes.split(',') {
                table
                    .entry(opcode)
                    .or_default()
                    .push(Rule::parse(opcode, rest, &lists));
            }
        }
    }
    table
});

/// One form of an opcode.
struct Rule {
    opcode: &'static str,
    slots: Vec<Slot>,
    /// Whether anything may follow.
    open: bool,
    operands: Vec<OperandRule>,
    least_target: u32,
    /// The first target that lacks it.
    ended: Option<u32>,
    least_version: (u32, u32),
}

/// A place of a modifier.
struct Slot {
    alternatives: Vec<&'static str>,
    optional: bool,
    /// Whether the alternatives are types, whose order counts.
    is_type: bool,
}

/// What an operand may be.
struct OperandRule {
    what: What,
    destination: bool,
    /// In braces as the vector modifier says.
    vector: bool,
    /// The register may be wider.
    wider: bool,
    optional: bool,
    /// There with a boolean operation only.
    combining: bool,
    /// A predicate may stand beside it, or must.
    paired: Option<bool>,
    special: bool,
    symbol: bool,
    /// A result that nobody reads may be `_`.
    discard: bool,
}

#[derive(Clone, Copy)]
enum What {
    Type(Type),
    First,
    Second,
    Widened,
    Address,
    Constant(Option<u64>),
    Braces,
    Parts,
    AnyBraces,
}

impl Rule {
    fn parse(
        opcode: &'static str,
        text: &'static str,
        lists: &HashMap<&str, &'static str>,
    ) -> Rule {
        let (form, requirements) = text.split_once(';').unwrap_or((text, ""));
        // Names of spaces have colons too.
        let mut parts = form.splitn(2, " : ");
        let (modifiers, operands) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let mut rule = Rule {
            opcode,
            slots: Vec::new(),
            open: false,
            operands: operands
                .split_whitespace()
                .map(OperandRule::parse)
                .collect(),
            least_target: 0,
            ended: None,
            least_version: (0, 0),
        };
        for slot in modifiers.split_whitespace().filter(|slot| *slot != ":") {
            if slot == "..." {
                rule.open = true;
                continue;
            }
            let optional = slot.ends_with('?');
            let alternatives = slot.trim_end_matches('?').split('|').flat_map(|name| {
                let listed = name.strip_prefix('@').map(|list| lists[list]);
                listed.unwrap_or(name).split('|')
            });
            let alternatives: Vec<&str> = alternatives.collect();
            rule.slots.push(Slot {
                is_type: alternatives.iter().all(|name| Type::parse(name).is_some()),
                alternatives,
                optional,
            });
        }
        let number = |text: &str| text.parse().expect("a requirement is a number");
        for requirement in requirements.split_whitespace() {
            if let Some(target) = requirement.strip_prefix("sm") {
                rule.least_target = number(target);
            } else if let Some(target) = requirement.strip_prefix("below") {
                rule.ended = Some(number(target));
            } else if let Some((major, minor)) = requirement
                .strip_prefix("ptx")
                .and_then(|version| version.split_once('.'))
            {
                rule.least_version = (number(major), number(minor));
            }
        }
        rule
    }

    /// The types among the modifiers if they are this form's; otherwise how far they are from it and what is wrong.
    fn take<'f>(&self, modifiers: &[&'f str]) -> Result<Vec<Type>, (usize, String)> {
        let mut left: Vec<&'f str> = modifiers.to_vec();
        let mut types = Vec::new();
        let mut missing = Vec::new();
        for slot in &self.slots {
            let wanted = |name: &&&str| slot.alternatives.contains(*name);
            let index = if slot.is_type {
                // The next type must be this one's.
                let next = left.iter().position(|name| Type::parse(name).is_some());
                next.filter(|&index| wanted(&&left[index]))
            } else {
                left.iter().position(|name| wanted(&name))
            };
            match index {
                Some(index) => types.extend(Type::parse(left.remove(index))),
                None if slot.optional => {}
                None => missing.push(slot),
            }
        }
        if missing.is_empty() && (left.is_empty() || self.open) {
            let cached = modifiers
                .iter()
                .find(|name| name.starts_with("L1::") || name.starts_with("L2::"));
            let elsewhere = ["shared", "local", "param", "const"];
            let elsewhere = modifiers
                .iter()
                .find(|name| elsewhere.iter().any(|space| name.starts_with(space)));
            return match (cached, elsewhere) {
                (Some(cached), Some(space)) if !self.open && self.opcode != "cp" => Err((
                    1,
                    format!(".{cached} is of global memory and does not go with .{space}"),
                )),
                _ => Ok(types),
            };
        }
        let problem = match (missing.first(), left.first()) {
            (Some(slot), Some(other)) if slot.is_type => {
                format!(
                    ".{other} where .{} is expected",
                    slot.alternatives.join(" or .")
                )
            }
            (Some(slot), None) => format!(".{} is missing", slot.alternatives.join(" or .")),
            _ => format!(".{} does not belong to it", left.join(" and .")),
        };
        Err((
            2 * missing.len() + 2 * left.len() + usize::from(left.is_empty()),
            problem,
        ))
    }

    /// Whether the operands are this form's.
    fn judge(&self, form: &Form<'_>, builder: &Builder<'_>, types: &[Type]) -> Result<(), String> {
        if self.open {
            return Ok(());
        }
        let combining = form
            .modifiers
            .iter()
            .any(|name| matches!(*name, "and" | "or" | "xor"));
        let hint = form.modifiers.contains(&"L2::cache_hint");
        let policy =
            |rule: &&OperandRule| rule.optional && matches!(rule.what, What::Type(Type::U64));
        let rules = self
            .operands
            .iter()
            .filter(|rule| combining || !rule.combining);
        let rules = rules.filter(|rule| hint || !policy(rule));
        let most = rules.clone().count();
        let least = rules
            .clone()
            .filter(|rule| !rule.optional || policy(rule))
            .count();
        let found = form.operands.len();
        if found < least || found > most {
            let expected = if least == most {
                format!("{most}")
            } else {
                format!("{least} to {most}")
            };
            return Err(format!(
                "{} takes {expected} operands, found {found}",
                self.text()
            ));
        }
        let count = form.modifiers.iter().find_map(|name| match *name {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        });
        for (number, (operand, rule)) in form.operands.iter().zip(rules).enumerate() {
            rule.judge(operand, builder, types, &form.modifiers, count)
                .map_err(|problem| {
                    format!("operand {} of {}: {problem}", number + 1, form.opcode)
                })?;
        }
        Ok(())
    }

    /// Whether the module's version and target have the form.
    fn available(&self, builder: &Builder<'_>) -> Result<(), Refusal> {
        let module = builder.module;
        let (target, version) = (module.target, module.version);
        let says = format!(
            "this module says sm_{target} and PTX {}.{}",
            version.0, version.1
        );
        if target < self.least_target {
            let least = self.least_target;
            return Err(Refusal::new(format!(
                "{} needs sm_{least} or higher; {says}",
                self.text()
            )));
        }
        if version < self.least_version {
            let (major, minor) = self.least_version;
            return Err(Refusal::new(format!(
                "{} needs PTX {major}.{minor} or higher; {says}",
                self.text()
            )));
        }
        match self.ended {
            Some(ended) if target >= ended && version >= (6, 4) => Err(Refusal::new(format!(
                "{} without .sync is not supported from sm_{ended} on; {says}",
                self.opcode
            ))),
            _ => Ok(()),
        }
    }

    /// The form as the PTX manual writes it.
    fn text(&self) -> String {
        let mut text = self.opcode.to_string();
        for slot in &self.slots {
            let names = slot.alternatives.join(",.");
            text += &match (slot.optional, slot.alternatives.len()) {
                (true, _) => format!("{{.{names}}}"),
                (false, 1) => format!(".{names}"),
                (false, _) => format!(".[{}]", slot.alternatives.join(",")),
            };
        }
        text
    }
}

impl OperandRule {
    fn parse(text: &str) -> OperandRule {
        let (text, paired) = match (text.strip_suffix("|p"), text.strip_suffix("|P")) {
            (Some(rest), _) => (rest, Some(false)),
            (_, Some(rest)) => (rest, Some(true)),
            _ => (text, None),
        };
        let name = text
            .trim_start_matches(['=', '*'])
            .trim_end_matches(['~', '?', '^', '$', '&', '_']);
        let what = match name {
            "1" => What::First,
            "2" => What::Second,
            "w" => What::Widened,
            "a" => What::Address,
            "n" => What::Constant(None),
            "n128" => What::Constant(Some(128)),
            "{}" => What::Braces,
            "{/}" => What::Parts,
            "{.}" => What::AnyBraces,
            ty => What::Type(Type::parse(ty).expect("an operand's type")),
        };
        OperandRule {
            what,
            destination: text.starts_with('='),
            vector: text.contains('*'),
            wider: text.contains('~'),
            optional: text.contains('?'),
            combining: text.contains('^'),
            paired,
            special: text.contains('$'),
            symbol: text.contains('&'),
            discard: text.contains('_'),
        }
    }

    fn judge(
        &self,
        operand: &Operand,
        builder: &Builder<'_>,
        types: &[Type],
        modifiers: &[&str],
        count: Option<usize>,
    ) -> Result<(), String> {
        let ty = match self.what {
            What::Type(ty) => ty,
            What::First => types[0],
            What::Second => types[1],
            What::Widened => match types[0] {
                Type::U16 => Type::U32,
                Type::S16 => Type::S32,
                Type::U32 => Type::U64,
                _ => Type::S64,
            },
            What::Address => return address(operand, builder, modifiers),
            What::Constant(wanted) => {
                return match (operand, wanted) {
                    (Operand::Integer(found), Some(wanted)) if *found != wanted => {
                        Err(format!("{found}, which must be {wanted}"))
                    }
                    (Operand::Integer(_), _) => Ok(()),
                    _ => Err("expected an integer constant".to_string()),
                };
            }
            What::AnyBraces => {
                let fits = matches!(operand, Operand::Vector(_));
                return fits
                    .then_some(())
                    .ok_or_else(|| "expected registers in braces".to_string());
            }
            What::Braces | What::Parts => {
                let Operand::Vector(parts) = operand else {
                    return Err("expected registers in braces".to_string());
                };
                let of_part = match (self.what, types[0].size() as usize / parts.len().max(1)) {
                    (What::Braces, _) => types[0],
                    (_, 1) => Type::B8,
                    (_, 2) => Type::B16,
                    (_, 4) => Type::B32,
                    _ => Type::B64,
                };
                if matches!(self.what, What::Parts)
                    && of_part.size() as usize * parts.len() != types[0].size() as usize
                {
                    return Err(format!(
                        "{} parts of a .{}",
                        parts.len(),
                        type_name(types[0])
                    ));
                }
                return parts
                    .iter()
                    .try_for_each(|part| self.single(part, of_part, builder, true));
            }
        };
        match (operand, count.filter(|_| self.vector)) {
            (_, Some(count)) if count * ty.size() as usize > 16 => {
                let bytes = count * ty.size() as usize;
                Err(format!(
                    "a vector of {bytes} bytes; from sm_100 on there are such, here it has at most 16"
                ))
            }
            (Operand::Vector(parts), Some(count)) if parts.len() == count => parts
                .iter()
                .try_for_each(|part| self.single(part, ty, builder, true)),
            (_, Some(count)) => Err(format!("expected {count} registers in braces")),
            (Operand::Pair(pair), None) if self.paired.is_some() => {
                self.single(&pair.0, ty, builder, ty == Type::Pred || self.discard)?;
                self.single(&pair.1, Type::Pred, builder, true)
            }
            (_, None) if self.paired == Some(true) => {
                Err("a predicate beside it is missing".to_string())
            }
            (operand, None) => self.single(operand, ty, builder, self.discard),
        }
    }

    /// Whether one operand can be of a type.
    fn single(
        &self,
        operand: &Operand,
        ty: Type,
        builder: &Builder<'_>,
        discard: bool,
    ) -> Result<(), String> {
        let name = type_name(ty);
        let float = matches!(ty, Type::F32 | Type::F64);
        match operand {
            Operand::Register(register) => {
                let declared = builder.register_type(*register);
                if fits(declared, ty, self.wider) {
                    return Ok(());
                }
                Err(format!(
                    "a register of .{} where .{name} is expected",
                    type_name(declared)
                ))
            }
            Operand::Discard if self.destination && discard => Ok(()),
            Operand::Discard if self.destination => {
                Err("the result cannot be left out".to_string())
            }
            _ if self.destination => Err(format!("expected a register of .{name}")),
            Operand::Not(register) if ty == Type::Pred => {
                let declared = builder.register_type(*register);
                if declared == Type::Pred {
                    return Ok(());
                }
                Err(format!("a register of .{} is negated", type_name(declared)))
            }
            Operand::Integer(_) | Operand::Special(Special::WarpSize)
                if ty == Type::Pred || class(ty) != Class::Float =>
            {
                Ok(())
            }
            Operand::Float32(_) | Operand::Float64(_) if float => Ok(()),
            Operand::Float32(_) if ty == Type::B32 => Ok(()),
            Operand::Float64(_) if ty == Type::B64 => Ok(()),
            Operand::Integer(_) => Err(format!("an integer constant where .{name} is expected")),
            Operand::Float32(_) | Operand::Float64(_) => {
                Err(format!("a float constant where .{name} is expected"))
            }
            Operand::Special(special) if self.special => {
                let wide = matches!(
                    special,
                    Special::Clock64 | Special::GlobalTimer | Special::Gridid
                );
                if class(ty) == Class::Float
                    || wide != (ty.size() == 8) && !(wide && *special == Special::Gridid)
                {
                    return Err(format!("a special register where .{name} is expected"));
                }
                Ok(())
            }
            Operand::Special(_) => {
                Err("a special register can only be read by mov and cvt".to_string())
            }
            Operand::Symbol(..) if self.symbol && class(ty) != Class::Float => Ok(()),
            Operand::Symbol(..) => Err("an address can only be taken by mov and cvta".to_string()),
            _ => Err(format!("expected a value of .{name}")),
        }
    }
}

/// Whether an operand is an address in the space that the modifiers name.
fn address(operand: &Operand, builder: &Builder<'_>, modifiers: &[&str]) -> Result<(), String> {
    let Operand::Address { base, .. } = operand else {
        return Err("expected an address in brackets".to_string());
    };
    let Base::Symbol(symbol) = base else {
        return Ok(());
    };
    let (name, space) = match *symbol {
        Symbol::Module(index) => {
            let variable = &builder.module.variables[index as usize];
            (&variable.name, variable.space)
        }
        Symbol::Body(index) => {
            let variable = &builder.body.variables[index as usize];
            (&variable.name, variable.space)
        }
        Symbol::Param(index) => (&builder.function.params[index as usize].name, Space::Param),
        Symbol::Return(index) => (&builder.function.returns[index as usize].name, Space::Param),
        Symbol::Function(_) => return Err("the address of a function is no memory".to_string()),
    };
    let space_name = match space {
        Space::Global => "global",
        Space::Const => "const",
        Space::Shared => "shared",
        Space::Local => "local",
        _ => "param",
    };
    let names = |modifier: &&&str| {
        let name = modifier.split("::").next().unwrap_or("");
        matches!(name, "global" | "const" | "shared" | "local" | "param")
    };
    let mut named = modifiers.iter().filter(names).peekable();
    // Without a space the address is generic; parameters have no generic address here.
    let fits = match named.peek() {
        None => space != Space::Param,
        Some(_) => named.any(|name| name.starts_with(space_name)),
    };
    fits.then_some(())
        .ok_or_else(|| format!("{name} is a variable of .{space_name}"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Predicate,
    Bits,
    Integer,
    Float,
}

fn class(ty: Type) -> Class {
    match ty {
        Type::Pred => Class::Predicate,
        Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128 => Class::Bits,
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Class::Integer,
        Type::S8 | Type::S16 | Type::S32 | Type::S64 => Class::Integer,
        _ => Class::Float,
    }
}

/// Whether a register that was declared so can hold a value of a type: of the same size and kind, or bits; where an
/// instruction extends and truncates, it may be wider.
fn fits(declared: Type, ty: Type, wider: bool) -> bool {
    let size = declared.size() == ty.size() || wider && declared.size() > ty.size();
    match (class(declared), class(ty)) {
        (Class::Predicate, Class::Predicate) => true,
        (Class::Predicate, _) | (_, Class::Predicate) => false,
        (Class::Bits, _) | (Class::Integer, Class::Bits | Class::Integer) => size,
        (Class::Float, Class::Bits) => size,
        (Class::Float, Class::Float) => declared == ty,
        (Class::Float, Class::Integer) | (Class::Integer, Class::Float) => false,
    }
}

/// The name of a type as PTX writes it.
fn type_name(ty: Type) -> String {
    format!("{ty:?}").to_lowercase()
}

#[cfg(test)]
mod tests;
