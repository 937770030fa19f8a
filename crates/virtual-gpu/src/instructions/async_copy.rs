//! Copies without waiting from global to shared memory.

use crate::decode::{Builder, Form, Refusal};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, _builder: &mut Builder<'_>) -> Result<(), Refusal> {
    Err(Refusal::new(format!("{} is not built yet", form.opcode)))
}

/// Copies that a warp has started and not yet waited for.
#[derive(Default)]
pub(crate) struct Copies {}
