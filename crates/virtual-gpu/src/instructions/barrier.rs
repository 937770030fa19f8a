//! Barriers of a block and of a warp, and fences.

use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, handler};
use crate::exec::lanes::WARP;
use crate::exec::warp::{Arrival, BarrierReduction, GroupState, Reduction};
use crate::fault::FaultKind;
use crate::ptx::ast::Type;

/// Writes the result of a reduction to the lanes of a group that a barrier lets go on.
///
/// # Safety
/// `registers` is the frame that `slot` was recorded for in [`BarrierReduction`] with this `kind`.
pub(crate) unsafe fn finish(
    registers: *mut u8,
    slot: u32,
    kind: Reduction,
    mask: u32,
    count_true: u32,
    total: u32,
) {
    // SAFETY: the caller says that the slot lies in the frame.
    let place = unsafe { registers.add(slot as usize) };
    let holds = match kind {
        Reduction::Count => {
            // SAFETY: the slot of a word has 32 lanes.
            let lanes = unsafe { &mut *place.cast::<[u32; WARP]>() };
            for (lane, value) in lanes.iter_mut().enumerate() {
                if mask >> lane & 1 != 0 {
                    *value = count_true;
                }
            }
            return;
        }
        Reduction::And => count_true == total,
        Reduction::Or => count_true != 0,
    };
    // SAFETY: the slot of a predicate is one word.
    let word = unsafe { &mut *place.cast::<u32>() };
    *word = if holds { *word | mask } else { *word & !mask };
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, _builder: &mut Builder<'_>) -> Result<(), Refusal> {
    Err(Refusal::new(format!("{} is not built yet", form.opcode)))
}
