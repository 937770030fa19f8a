//! Barriers and fences.

use crate::decode::{Builder, Form, Refusal};

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, _builder: &mut Builder<'_>) -> Result<(), Refusal> {
    Err(Refusal::new(format!("{} is not built yet", form.opcode)))
}
