//! `printf` and `assert`.

use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Inst};

/// A function that a kernel calls but does not contain: from the bytes of its arguments to those of its result.
pub(crate) type ExternCall = fn(&mut Core<'_>, &Inst, usize, &[&[u8]]) -> Result<Vec<u8>, Flow>;

/// The function of that name.
pub(crate) fn extern_call(_name: &str) -> Option<ExternCall> {
    None
}
