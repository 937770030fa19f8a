//! Decoded functions and modules: what the executor runs.

use std::sync::Arc;

use super::instruction::Inst;
use crate::ptx::ast;

/// A decoded function.
pub(crate) struct Code {
    /// Its name.
    pub(crate) name: String,
    /// Its index in the module.
    pub(crate) function: u32,
    /// Its place in a kernel's profile: 0 for the entry, one more than its index for others.
    pub(crate) profile: u32,
    /// The instructions; the last is a `ret` or `exit`, so that execution never runs past the end.
    pub(crate) instructions: Vec<Inst>,
    /// Of each instruction, its index in the parsed body.
    pub(crate) origins: Vec<u32>,
    /// The class of each instruction, for counters.
    pub(crate) classes: Vec<Class>,
    /// Slots of instructions that have more than fit in themselves.
    pub(crate) more_slots: Vec<u32>,
    /// Bytes of a frame: registers and constants.
    pub(crate) frame_bytes: usize,
    /// What a new frame holds from `constants_start` on.
    pub(crate) constants: Vec<u8>,
    /// Where the constants start in a frame.
    pub(crate) constants_start: usize,
    /// Special registers that hold the same value for the life of a frame: which, and their slot.
    pub(crate) specials: Vec<(ast::Special, u32)>,
    /// Bytes of `.local` memory of a thread, with parameters and variables.
    pub(crate) local_bytes: u32,
    /// Bytes of kernel parameters (of an entry).
    pub(crate) param_bytes: u32,
    /// 32-bit registers per thread after allocation, as reported to the user.
    pub(crate) registers: u32,
    /// `.maxntid` or `.reqntid`
    pub(crate) max_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub(crate) required_threads: Option<[u32; 3]>,
    /// Its call sites; a call's immediate is an index.
    pub(crate) calls: Vec<CallSite>,
    /// Targets of `brx.idx`, one list per instruction that has one.
    pub(crate) branch_tables: Vec<Vec<u32>>,
    /// Texts for `immediate` indices of instructions that need one (messages).
    pub(crate) texts: Vec<String>,
    /// Where parameters and return values lie in local memory (of a `.func`), or in the parameter block (of a kernel):
    /// offset and size.
    pub(crate) params: Vec<(u32, u32)>,
    /// Where the return values lie in local memory.
    pub(crate) returns: Vec<(u32, u32)>,
}

/// What an instruction does, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Class {
    /// Integer and logic.
    Integer,
    /// f32, f16 and bf16 arithmetic.
    Float,
    /// f64 arithmetic.
    Double,
    /// Between types.
    Convert,
    /// Moves and selections.
    Move,
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Atomics.
    Atomic,
    /// Tensor core.
    Matrix,
    /// Barriers, shuffles, votes, fences.
    Sync,
    /// Branches, calls, returns.
    Control,
    /// The rest.
    Other,
}

/// One call in a function.
#[derive(Clone, Debug)]
pub(crate) struct CallSite {
    /// The called function, unless the call is indirect.
    pub(crate) callee: Option<u32>,
    /// Where the arguments lie in the caller's local memory: offset and size.
    pub(crate) arguments: Vec<(u32, u32)>,
    /// Where the results go in the caller's local memory: offset and size.
    pub(crate) results: Vec<(u32, u32)>,
}

/// Function addresses start here, 16 bytes apart, in the order of the module.
pub(crate) const FUNCTION_WINDOW: u64 = 4 << 56;

/// A kernel that can be launched: decoded with all functions that it may call, laid out in shared memory.
pub(crate) struct Kernel {
    /// The entry.
    pub(crate) entry: Code,
    /// Functions that it may call, by their index in the module.
    pub(crate) functions: Vec<Option<Code>>,
    /// Bytes of statically sized shared memory; the dynamic part starts at the next multiple of 16.
    pub(crate) shared_bytes: u32,
    /// The module's parsed text, for messages.
    pub(crate) module: Arc<ast::Module>,
}
