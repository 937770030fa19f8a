//! What an instruction family decodes with: the form's modifiers and operands, and the builder that turns operands into
//! values and takes the decoded steps.

use std::collections::HashMap;
use std::sync::Arc;

use crate::exec::code::{CallSite, Class};
use crate::exec::instruction::{Flow, INLINE_SLOTS, Run, handler};
use crate::exec::lanes::{Function1, Map1};
use crate::ptx::ast::{self, Operand, Register, Special, Symbol, Type};

/// Why an instruction is not taken; the decoder adds function, line and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

impl Refusal {
    /// A refusal with a reason.
    pub(crate) fn new(reason: impl Into<String>) -> Refusal {
        Refusal(reason.into())
    }
}

/// An instruction being decoded: its name in parts, and its operands.
pub(crate) struct Form<'m> {
    /// The name before the first dot.
    pub(crate) opcode: &'m str,
    /// What follows, between dots; a family takes out what it knows, and what is left makes the form unsupported.
    pub(crate) modifiers: Vec<&'m str>,
    /// The operands.
    pub(crate) operands: &'m [Operand],
}

impl<'m> Form<'m> {
    /// Splits an instruction's name.
    pub(crate) fn new(name: &'m str, operands: &'m [Operand]) -> Form<'m> {
        // Modifiers may stand apart, with spaces and comments between.
        let mut parts = name.split('.').map(|part| {
            let end = part.find(|letter: char| {
                !letter.is_ascii_alphanumeric() && !matches!(letter, '_' | ':')
            });
            &part[..end.unwrap_or(part.len())]
        });
        let opcode = parts.next().unwrap_or_default();
        Form {
            opcode,
            modifiers: parts.collect(),
            operands,
        }
    }

    /// Takes out a modifier; whether it was there.
    pub(crate) fn take(&mut self, modifier: &str) -> bool {
        match self.modifiers.iter().position(|&other| other == modifier) {
            Some(index) => {
                self.modifiers.remove(index);
                true
            }
            None => false,
        }
    }

    /// Takes out the first modifier that is one of these.
    pub(crate) fn take_any(&mut self, modifiers: &[&'static str]) -> Option<&'static str> {
        modifiers
            .iter()
            .copied()
            .find(|modifier| self.take(modifier))
    }

    /// Takes out the first modifier that is a type.
    pub(crate) fn take_type(&mut self) -> Result<Type, Refusal> {
        let found = self
            .modifiers
            .iter()
            .enumerate()
            .find_map(|(index, name)| Some((index, Type::parse(name)?)));
        let (index, ty) =
            found.ok_or_else(|| Refusal::new("the instruction names no type that is known"))?;
        self.modifiers.remove(index);
        Ok(ty)
    }

    /// Fails if modifiers are left.
    pub(crate) fn done(&self) -> Result<(), Refusal> {
        match self.modifiers.first() {
            None => Ok(()),
            Some(_) => Err(Refusal::new(format!(
                "unsupported modifier .{}",
                self.modifiers.join(".")
            ))),
        }
    }

    /// Fails if the number of operands is another.
    pub(crate) fn expect_operands(&self, count: usize) -> Result<(), Refusal> {
        if self.operands.len() == count {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "expected {count} operands, found {}",
            self.operands.len()
        )))
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// One bit per lane.
    Predicate,
    /// 32 bits per lane: every type of up to 32 bits.
    Word,
    /// 64 bits per lane.
    Long,
}

impl Kind {
    /// The kind of a type's register.
    pub(crate) fn of(ty: Type) -> Kind {
        match ty {
            Type::Pred => Kind::Predicate,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => Kind::Long,
            _ => Kind::Word,
        }
    }

    /// Bytes of a slot.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Kind::Predicate => 4,
            Kind::Word => 128,
            Kind::Long => 256,
        }
    }
}

/// A virtual slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Value(pub(crate) u32);

/// Where a virtual slot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A register of the text.
    Register(Register),
    /// Made by the decoder.
    Temporary(u32),
    /// The same bits in every lane (for a predicate: the mask itself).
    Constant(u64),
    /// A special register.
    Special(Special),
    /// The carry flag.
    Carry,
}

/// How control leaves a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Successor {
    /// To the next step.
    #[default]
    Next,
    /// To the next step or to labels.
    Labels(Vec<u32>),
    /// To labels only.
    Jump(Vec<u32>),
    /// Nowhere.
    End,
}

/// A decoded instruction whose operands are virtual.
pub(crate) struct Step {
    /// The handler.
    pub(crate) run: Run,
    /// What it writes.
    pub(crate) writes: Vec<Value>,
    /// What it reads.
    pub(crate) reads: Vec<Value>,
    /// Whether all slots go to the code's list, for [`crate::exec::core::Core::far_slot`].
    pub(crate) far: bool,
    /// The handler's immediate; for a branch, a label until the code is laid out.
    pub(crate) immediate: u64,
    /// Whether `immediate` is a label.
    pub(crate) immediate_is_label: bool,
    /// The predicate: its value, and whether it is negated.
    pub(crate) guard: Option<(Value, bool)>,
    /// What follows.
    pub(crate) successor: Successor,
    /// For counters.
    pub(crate) class: Class,
    /// The instruction it comes from.
    pub(crate) origin: u32,
}

/// Turns the instructions of one function into steps.
pub(crate) struct Builder<'m> {
    /// The module.
    pub(crate) module: &'m ast::Module,
    /// The function.
    pub(crate) function: &'m ast::Function,
    /// Its body.
    pub(crate) body: &'m ast::Body,
    /// Where variables lie.
    pub(crate) layout: Arc<Layout>,
    /// The steps so far.
    pub(crate) steps: Vec<Step>,
    /// Kind and origin of each value.
    pub(crate) values: Vec<(Kind, Origin)>,
    known: HashMap<(Kind, Origin), Value>,
    /// The guard of the current instruction.
    pub(crate) guard: Option<(Value, bool)>,
    /// Index of the current instruction.
    pub(crate) origin: u32,
    /// The class of the current instruction.
    pub(crate) class: Class,
    /// Call sites.
    pub(crate) calls: Vec<CallSite>,
    /// Tables of `brx.idx`.
    pub(crate) branch_tables: Vec<Vec<u32>>,
    /// Bytes of the function's local memory so far; calls of registers and constants take more.
    pub(crate) local_end: u64,
    /// Texts that immediates refer to.
    pub(crate) texts: Vec<String>,
    /// Extensions of results into wider registers, emitted behind the step that makes the result.
    pending: Vec<(Run, Value, Value)>,
}

/// Where the variables that a function names lie.
pub(crate) struct Layout {
    /// Module-scope variables: device addresses, or offsets in shared memory.
    pub(crate) module: Vec<u64>,
    /// The body's variables: offsets in shared memory or in the function's local memory.
    pub(crate) body: Vec<u64>,
    /// Parameters: offsets in the parameter block (of a kernel), or in local memory.
    pub(crate) params: Vec<u64>,
    /// Return values: offsets in local memory.
    pub(crate) returns: Vec<u64>,
}

impl<'m> Builder<'m> {
    /// A builder for a function that has a body.
    pub(crate) fn new(
        module: &'m ast::Module,
        function: &'m ast::Function,
        body: &'m ast::Body,
        layout: Arc<Layout>,
    ) -> Builder<'m> {
        Builder {
            module,
            function,
            body,
            layout,
            steps: Vec::new(),
            values: Vec::new(),
            known: HashMap::new(),
            guard: None,
            origin: 0,
            class: Class::Other,
            calls: Vec::new(),
            branch_tables: Vec::new(),
            local_end: 0,
            texts: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// The value of an origin, the same each time.
    pub(crate) fn value(&mut self, kind: Kind, origin: Origin) -> Value {
        let next = Value(self.values.len() as u32);
        let value = *self.known.entry((kind, origin)).or_insert(next);
        if value == next {
            self.values.push((kind, origin));
        }
        value
    }

    /// A new value for the decoder's own use within an instruction.
    pub(crate) fn temporary(&mut self, kind: Kind) -> Value {
        let number = self.values.len() as u32;
        self.value(kind, Origin::Temporary(number))
    }

    /// A value with these bits in every lane.
    pub(crate) fn constant(&mut self, kind: Kind, bits: u64) -> Value {
        let bits = if kind == Kind::Word {
            bits & 0xffff_ffff
        } else {
            bits
        };
        self.value(kind, Origin::Constant(bits))
    }

    /// The type that a register was declared with.
    pub(crate) fn register_type(&self, register: Register) -> Type {
        self.body.registers[register.0 as usize]
    }

    /// The value of a register as it was declared.
    pub(crate) fn register(&mut self, register: Register) -> Value {
        let kind = Kind::of(self.register_type(register));
        self.value(kind, Origin::Register(register))
    }

    /// An operand as a source of a type. A register of the other width is truncated, or extended as the type says;
    /// integers convert to the bits of floats only where PTX has them (`0f`, `0d`, decimals).
    pub(crate) fn source(&mut self, operand: &Operand, ty: Type) -> Result<Value, Refusal> {
        let kind = Kind::of(ty);
        match operand {
            Operand::Register(register) => {
                let declared = self.register_type(*register);
                let value = self.register(*register);
                match (Kind::of(declared), kind) {
                    (from, to) if from == to => Ok(value),
                    (Kind::Long, Kind::Word) => {
                        Ok(self.converted(handler::<Map1<Truncate>>(), value, kind))
                    }
                    (Kind::Word, Kind::Long) => Ok(self.widened(value, declared, ty)),
                    _ => Err(Refusal::new(format!(
                        "a register of type {declared:?} where {ty:?} is expected"
                    ))),
                }
            }
            Operand::Not(register) if kind == Kind::Predicate => {
                let value = self.register(*register);
                let result = self.temporary(Kind::Predicate);
                self.emit(handler::<NotPredicate>(), &[result], &[value], 0);
                Ok(result)
            }
            Operand::Integer(bits) => match ty {
                Type::Pred => Ok(self.constant(kind, if *bits != 0 { 0xffff_ffff } else { 0 })),
                Type::F32 => Ok(self.constant(kind, u64::from((*bits as i64 as f32).to_bits()))),
                Type::F64 => Ok(self.constant(kind, (*bits as i64 as f64).to_bits())),
                _ => Ok(self.constant(kind, *bits)),
            },
            Operand::Float32(bits) => match ty {
                Type::F64 => Ok(self.constant(kind, f64::from(f32::from_bits(*bits)).to_bits())),
                _ => Ok(self.constant(kind, u64::from(*bits))),
            },
            Operand::Float64(bits) => match ty {
                Type::F32 => {
                    Ok(self.constant(kind, u64::from((f64::from_bits(*bits) as f32).to_bits())))
                }
                _ => Ok(self.constant(kind, *bits)),
            },
            Operand::Special(special) => self.special(*special, kind),
            Operand::Symbol(symbol, offset) => self.symbol_address(*symbol, *offset, kind),
            other => Err(Refusal::new(format!(
                "the operand {other:?} cannot be a source here"
            ))),
        }
    }

    /// Operand `index` as a source of a type.
    pub(crate) fn read(
        &mut self,
        form: &Form<'_>,
        index: usize,
        ty: Type,
    ) -> Result<Value, Refusal> {
        let operand = form.operands.get(index);
        let operand =
            operand.ok_or_else(|| Refusal::new(format!("operand {} is missing", index + 1)))?;
        self.source(operand, ty)
    }

    /// An operand as a destination of a type. A result goes into a wider register extended as the type says; `_` is a
    /// value that nobody reads. The destination must be given to [`Builder::emit`] before another instruction's.
    pub(crate) fn destination(&mut self, operand: &Operand, ty: Type) -> Result<Value, Refusal> {
        let kind = Kind::of(ty);
        match operand {
            Operand::Register(register) => {
                let declared = self.register_type(*register);
                let value = self.register(*register);
                match (kind, Kind::of(declared)) {
                    (from, to) if from == to => Ok(value),
                    (Kind::Word, Kind::Long) => {
                        let narrow = self.temporary(Kind::Word);
                        self.pending.push((extension(ty), value, narrow));
                        Ok(narrow)
                    }
                    (Kind::Long, Kind::Word) => {
                        let wide = self.temporary(Kind::Long);
                        self.pending
                            .push((handler::<Map1<Truncate>>(), value, wide));
                        Ok(wide)
                    }
                    _ => Err(Refusal::new(format!(
                        "a result of type {ty:?} in a register of type {declared:?}"
                    ))),
                }
            }
            Operand::Discard => Ok(self.temporary(kind)),
            other => Err(Refusal::new(format!(
                "the operand {other:?} cannot be a destination"
            ))),
        }
    }

    /// Operand `index` as a destination of a type.
    pub(crate) fn write(
        &mut self,
        form: &Form<'_>,
        index: usize,
        ty: Type,
    ) -> Result<Value, Refusal> {
        let operand = form.operands.get(index);
        let operand =
            operand.ok_or_else(|| Refusal::new(format!("operand {} is missing", index + 1)))?;
        self.destination(operand, ty)
    }

    /// Adds a step of up to six operands, under the instruction's guard. The handler finds the destinations and then
    /// the sources in `inst.slots`.
    pub(crate) fn emit(&mut self, run: Run, writes: &[Value], reads: &[Value], immediate: u64) {
        assert!(
            writes.len() + reads.len() <= INLINE_SLOTS,
            "more operands than fit: use emit_many"
        );
        self.push(run, writes, reads, immediate, false);
    }

    /// Adds a step of any number of operands; the handler finds them with `core.far_slot(inst, index)`.
    pub(crate) fn emit_many(
        &mut self,
        run: Run,
        writes: &[Value],
        reads: &[Value],
        immediate: u64,
    ) {
        self.push(run, writes, reads, immediate, true);
    }

    fn push(&mut self, run: Run, writes: &[Value], reads: &[Value], immediate: u64, far: bool) {
        let step =
            |run, writes: &[Value], reads: &[Value], immediate, far, guard, origin, class| Step {
                run,
                writes: writes.to_vec(),
                reads: reads.to_vec(),
                far,
                immediate,
                immediate_is_label: false,
                guard,
                successor: Successor::Next,
                class,
                origin,
            };
        let (guard, origin, class) = (self.guard, self.origin, self.class);
        self.steps.push(step(
            run, writes, reads, immediate, far, guard, origin, class,
        ));
        let pending = std::mem::take(&mut self.pending);
        for (run, to, from) in pending {
            if writes.contains(&from) {
                self.steps.push(step(
                    run,
                    &[to],
                    &[from],
                    0,
                    false,
                    guard,
                    origin,
                    Class::Convert,
                ));
            } else {
                self.pending.push((run, to, from));
            }
        }
    }

    /// Ends an instruction: every destination must have been written by a step.
    pub(crate) fn finish_instruction(&mut self) -> Result<(), Refusal> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => Err(Refusal::new(
                "internal: a destination was asked for and not written",
            )),
        }
    }

    /// The last step, to set its successor and label.
    pub(crate) fn last(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a step was emitted")
    }

    /// Keeps a text for the handler, which finds it at this index of the code's `texts`.
    pub(crate) fn text(&mut self, text: String) -> u64 {
        self.texts.push(text);
        self.texts.len() as u64 - 1
    }

    fn converted(&mut self, run: Run, value: Value, kind: Kind) -> Value {
        let result = self.temporary(kind);
        self.emit(run, &[result], &[value], 0);
        result
    }

    fn widened(&mut self, value: Value, declared: Type, ty: Type) -> Value {
        let run = if ty.is_signed() && declared.is_signed() {
            extension(Type::S32)
        } else {
            extension(Type::U32)
        };
        self.converted(run, value, Kind::Long)
    }

    fn special(&mut self, special: Special, kind: Kind) -> Result<Value, Refusal> {
        if let Some(run) = crate::instructions::moves::changing_special(special) {
            let own = if matches!(
                special,
                Special::Clock64 | Special::GlobalTimer | Special::Gridid
            ) {
                Kind::Long
            } else {
                Kind::Word
            };
            let result = self.temporary(own);
            self.emit(run, &[result], &[], 0);
            return Ok(match (own, kind) {
                (Kind::Long, Kind::Word) => {
                    self.converted(handler::<Map1<Truncate>>(), result, kind)
                }
                (Kind::Word, Kind::Long) => self.converted(extension(Type::U32), result, kind),
                _ => result,
            });
        }
        let value = self.value(Kind::Word, Origin::Special(special));
        Ok(if kind == Kind::Long {
            self.converted(extension(Type::U32), value, kind)
        } else {
            value
        })
    }

    /// The address of a variable or function in its space, plus an offset.
    pub(crate) fn symbol_address(
        &mut self,
        symbol: Symbol,
        offset: i64,
        kind: Kind,
    ) -> Result<Value, Refusal> {
        match self.place(symbol)? {
            Place::Fixed(address) => Ok(self.constant(kind, address.wrapping_add(offset as u64))),
            Place::Local(base) => {
                let result = self.temporary(Kind::Long);
                let run = handler::<crate::instructions::moves::LocalAddress>();
                self.emit(run, &[result], &[], base.wrapping_add(offset as u64));
                Ok(match kind {
                    Kind::Word => self.converted(handler::<Map1<Truncate>>(), result, kind),
                    _ => result,
                })
            }
        }
    }

    /// Where a variable lies.
    pub(crate) fn place(&self, symbol: Symbol) -> Result<Place, Refusal> {
        let layout = &self.layout;
        Ok(match symbol {
            Symbol::Module(index) => Place::Fixed(layout.module[index as usize]),
            Symbol::Body(index) => match self.body.variables[index as usize].space {
                ast::Space::Shared => Place::Fixed(layout.body[index as usize]),
                ast::Space::Local | ast::Space::Param => Place::Local(layout.body[index as usize]),
                other => {
                    return Err(Refusal::new(format!(
                        "a variable of space {other:?} in a function's body"
                    )));
                }
            },
            Symbol::Param(index) if self.function.entry => {
                Place::Fixed(layout.params[index as usize])
            }
            Symbol::Param(index) => Place::Local(layout.params[index as usize]),
            Symbol::Return(index) => Place::Local(layout.returns[index as usize]),
            Symbol::Function(index) => {
                Place::Fixed(crate::exec::code::FUNCTION_WINDOW + 16 * u64::from(index))
            }
        })
    }
}

/// Where a variable lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At an address of its space that is known.
    Fixed(u64),
    /// In the frame's local memory.
    Local(u64),
}

/// From a word of a type to 64 bits.
fn extension(ty: Type) -> Run {
    match ty {
        Type::S8 | Type::S16 | Type::S32 => handler::<Map1<ExtendSigned>>(),
        _ => handler::<Map1<ExtendZero>>(),
    }
}

struct Truncate;
impl Function1 for Truncate {
    type A = u64;
    type D = u32;
    #[inline(always)]
    fn call(a: u64) -> u32 {
        a as u32
    }
}

struct ExtendZero;
impl Function1 for ExtendZero {
    type A = u32;
    type D = u64;
    #[inline(always)]
    fn call(a: u32) -> u64 {
        u64::from(a)
    }
}

struct ExtendSigned;
impl Function1 for ExtendSigned {
    type A = i32;
    type D = i64;
    #[inline(always)]
    fn call(a: i32) -> i64 {
        i64::from(a)
    }
}

/// `slots = [d, a]`, predicates.
struct NotPredicate;
impl crate::exec::instruction::Handler for NotPredicate {
    #[inline(always)]
    unsafe fn run(
        core: &mut crate::exec::core::Core<'_>,
        inst: &crate::exec::instruction::Inst,
    ) -> Flow {
        // SAFETY: both are predicates.
        unsafe { core.set_predicate(inst.slots[0], !core.predicate(inst.slots[1])) };
        Flow::Next
    }
}
