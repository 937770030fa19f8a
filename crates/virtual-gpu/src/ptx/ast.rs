//! What a PTX text says, as data: the parser's output and the decoder's input. Names are resolved (a register, a
//! variable, a label is an index), instructions keep their text for messages.

use std::ops::Range;
use std::sync::Arc;

/// One PTX text.
#[derive(Clone, Debug)]
pub struct Module {
    /// The whole text; spans index it.
    pub text: Arc<str>,
    /// `.version`: major and minor.
    pub version: (u32, u32),
    /// The number in `.target sm_80`.
    pub target: u32,
    /// What follows the number in `.target sm_90a`.
    pub target_suffix: Option<char>,
    /// `.address_size`, 64 unless said otherwise.
    pub address_size: u32,
    /// `.file` entries by their number.
    pub files: Vec<(u32, String)>,
    /// Module-scope variables: global, const and shared.
    pub variables: Vec<Variable>,
    /// Kernels (`.entry`) and device functions (`.func`), in order; a declaration that is defined later is merged
    /// into the definition.
    pub functions: Vec<Function>,
}

impl Module {
    /// The text of a span.
    pub fn text(&self, span: Span) -> &str {
        &self.text[span.range()]
    }
}

/// Bytes of the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// As a range for indexing.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// No space given: an address that says itself what it points into.
    Generic,
    /// `.global`
    Global,
    /// `.const`
    Const,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.param`
    Param,
}

/// A fundamental or packed type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the PTX type of the same name")]
pub enum Type {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    U16x2,
    S16x2,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
    E4M3x2,
    E5M2x2,
    Pred,
}

impl Type {
    /// The type of the name after the dot, as in `f16x2`.
    pub fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "u16x2" => Type::U16x2,
            "s16x2" => Type::S16x2,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::BF16,
            "bf16x2" => Type::BF16x2,
            "tf32" => Type::TF32,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "e4m3x2" => Type::E4M3x2,
            "e5m2x2" => Type::E5M2x2,
            "pred" => Type::Pred,
            _ => return None,
        })
    }

    /// Bytes of a value in memory; a predicate has none and counts as 1.
    pub fn size(self) -> u32 {
        match self {
            Type::B8 | Type::U8 | Type::S8 | Type::Pred => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::BF16 => 2,
            Type::E4M3x2 | Type::E5M2x2 => 2,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::TF32 => 4,
            Type::U16x2 | Type::S16x2 | Type::F16x2 | Type::BF16x2 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
            Type::B128 => 16,
        }
    }

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }
}

/// How a name is visible to other modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the PTX directive of the same name")]
pub enum Linkage {
    Private,
    Extern,
    Visible,
    Weak,
    Common,
}

/// A variable in memory, or a parameter.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name; unique among the variables of its body.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Type of an element.
    pub ty: Type,
    /// Alignment in bytes, at least the element's size.
    pub align: u32,
    /// Bytes in all (elements times vector width times type); `None` for `[]`.
    pub size: Option<u64>,
    /// Visibility.
    pub linkage: Linkage,
    /// Initial values from the first element on; the rest is zero.
    pub init: Vec<Init>,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// One element's initial value.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// The element's bits.
    Bits(u64),
    /// The address of a module-scope variable or function, generic if so asked (`generic(x)+4`).
    Address {
        /// What it points to.
        symbol: Symbol,
        /// Added to it, in bytes.
        offset: i64,
        /// Whether it was wrapped in `generic()`.
        generic: bool,
        /// The bits that are taken, moved to the lowest place (`0xFF00(x)`); all of them if there is no such operator.
        mask: u64,
    },
}

impl Init {
    /// The element's bits, given the address of a symbol.
    pub fn bits(&self, address_of: impl Fn(Symbol) -> u64) -> u64 {
        match *self {
            Init::Bits(bits) => bits,
            Init::Address {
                symbol,
                offset,
                mask,
                ..
            } => {
                let address = address_of(symbol).wrapping_add(offset as u64);
                (address & mask) >> mask.trailing_zeros().min(63)
            }
        }
    }
}

/// What a name of memory or code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// `module.variables[i]`
    Module(u32),
    /// `body.variables[i]`
    Body(u32),
    /// `function.params[i]`
    Param(u32),
    /// `function.returns[i]`
    Return(u32),
    /// `module.functions[i]`
    Function(u32),
}

/// A kernel or a device function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its (mangled) name.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Visibility.
    pub linkage: Linkage,
    /// Return values, of `.func` only.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// `.maxntid`, as x, y, z.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`, as x, y, z.
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub min_blocks: Option<u32>,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// `None` for a declaration.
    pub body: Option<Body>,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// A register of one body, as an index into [`Body::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u32);

/// What a body consists of.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Types of the registers that are used.
    pub registers: Vec<Type>,
    /// Local, shared and param variables of all its scopes.
    pub variables: Vec<Variable>,
    /// In the order of the text.
    pub instructions: Vec<Instruction>,
    /// Where each label points: an index into the instructions (their number for a label at the end).
    pub labels: Vec<u32>,
    /// Parameters that were declared `.reg`: the index among the function's parameters, and the register.
    pub register_params: Vec<(u32, Register)>,
    /// Return values that were declared `.reg`.
    pub register_returns: Vec<(u32, Register)>,
    /// `.branchtargets` lists (of labels) and `.calltargets`/`.callprototype` declarations, by index.
    pub tables: Vec<Table>,
}

/// A labelled declaration that `brx.idx` or an indirect `call` refers to.
#[derive(Clone, Debug)]
pub enum Table {
    /// `.branchtargets`: label indices.
    Branches(Vec<u32>),
    /// `.calltargets`: function indices.
    Calls(Vec<u32>),
    /// `.callprototype`
    Prototype {
        /// Return values.
        returns: Vec<Variable>,
        /// Parameters.
        params: Vec<Variable>,
    },
}

/// The predicate before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// A register of type [`Type::Pred`].
    pub register: Register,
    /// `@!p`
    pub negated: bool,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// `@p` or `@!p`
    pub guard: Option<Guard>,
    /// The opcode with its modifiers, as `ld.global.nc.v4.f32`.
    pub name: Span,
    /// In the order of the text. `call` has: returns as [`Operand::Group`] (empty if none), the callee, arguments as
    /// [`Operand::Group`], and the table of an indirect call if there is one.
    pub operands: Vec<Operand>,
    /// From the guard to the semicolon.
    pub span: Span,
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// The last `.loc` before it: file number and line.
    pub source: Option<(u32, u32)>,
}

/// What an instruction works on.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// `!%p`
    Not(Register),
    /// An integer constant (of a constant expression), as 64 bits of two's complement.
    Integer(u64),
    /// `0fXXXXXXXX`
    Float32(u32),
    /// `0dXXXXXXXXXXXXXXXX`, or a decimal.
    Float64(u64),
    /// `%tid.x` and its like.
    Special(Special),
    /// The address of a variable or function, plus bytes.
    Symbol(Symbol, i64),
    /// A label.
    Label(u32),
    /// A table declared by [`Body::tables`].
    Table(u32),
    /// `[base + offset]`
    Address {
        /// What the offset is added to.
        base: Base,
        /// In bytes.
        offset: i64,
    },
    /// `{a, b, c, d}`
    Vector(Vec<Operand>),
    /// `d|p`
    Pair(Box<(Operand, Operand)>),
    /// `(a, b)` of a call.
    Group(Vec<Operand>),
    /// `_`
    Discard,
}

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register, of 32 or 64 bits.
    Register(Register),
    /// A variable.
    Symbol(Symbol),
    /// Nothing: the offset is the address.
    Zero,
}

/// A special register. Those with x, y, z carry the index of the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the PTX register of the same name")]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHi,
    Clock64,
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    DynamicSharedSize,
    TotalSharedSize,
    WarpSize,
    /// `%envregN`
    Env(u8),
}
