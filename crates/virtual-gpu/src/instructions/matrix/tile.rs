//! `ldmatrix`, `stmatrix` and `movmatrix`: 8x8 matrices of 16-bit elements, between rows of memory and registers.
//!
//! Lane 4 r + c of a register has the elements 2 c and 2 c + 1 of row r, so a register is the matrix by rows.

use super::{read_parts, take_aligned, write_parts};
use crate::decode::{Builder, Form, Refusal};
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, handler};
use crate::exec::lanes::WARP;
use crate::instructions::atomic::{addresses, packed, space_of};
use crate::instructions::barrier::whole_warp;
use crate::instructions::memory::{self, Access};
use crate::ptx::ast::{Space, Type};

/// Bytes of a row.
const ROW: usize = 16;

/// Decodes one of the instructions.
pub(super) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    take_aligned(form)?;
    if !form.take("m8n8") {
        return Err(Refusal::new(format!(
            "{} is supported for matrices of m8n8.b16",
            form.opcode
        )));
    }
    if form.opcode == "movmatrix" {
        let complete = form.take("trans") && form.take("b16");
        form.done()?;
        if !complete {
            return Err(Refusal::new("movmatrix is .trans.b16"));
        }
        form.expect_operands(2)?;
        let result = builder.write(form, 0, Type::B32)?;
        let source = builder.read(form, 1, Type::B32)?;
        builder.emit(handler::<Transpose>(), &[result], &[source], 0);
        return Ok(());
    }
    let count = match form.take_any(&["x1", "x2", "x4"]) {
        Some("x1") => 1,
        Some("x2") => 2,
        Some(_) => 4,
        None => return Err(Refusal::new(format!("{} is .x1, .x2 or .x4", form.opcode))),
    };
    let transposed = form.take("trans");
    let space = memory::take_space(form);
    if !form.take("b16") {
        return Err(Refusal::new(format!(
            "{} is supported for elements of .b16",
            form.opcode
        )));
    }
    form.done()?;
    form.expect_operands(2)?;
    let load = form.opcode == "ldmatrix";
    let (data, place) = if load { (0, 1) } else { (1, 0) };
    let address = memory::address(builder, &form.operands[place], space)?;
    if !matches!(address.space, Space::Shared | Space::Generic) {
        return Err(Refusal::new(format!(
            "{} takes addresses of shared memory",
            form.opcode
        )));
    }
    let immediate = packed(&address, ROW as u32)?;
    macro_rules! choose {
        ($handler:ident) => {
            match (count, transposed) {
                (1, false) => handler::<$handler<1, false>>(),
                (1, true) => handler::<$handler<1, true>>(),
                (2, false) => handler::<$handler<2, false>>(),
                (2, true) => handler::<$handler<2, true>>(),
                (_, false) => handler::<$handler<4, false>>(),
                (_, true) => handler::<$handler<4, true>>(),
            }
        };
    }
    if load {
        let writes = write_parts(form, builder, data, count, Type::B32)?;
        builder.emit(choose!(Load), &writes, &[address.base], immediate);
    } else {
        let mut reads = read_parts(form, builder, data, count, Type::B32)?;
        reads.push(address.base);
        builder.emit(choose!(Store), &[], &reads, immediate);
    }
    Ok(())
}

/// A matrix of 16-bit elements as a register, turned over.
#[inline(always)]
fn transposed(register: &[u32; WARP]) -> [u32; WARP] {
    let element =
        |row: usize, column: usize| register[4 * row + column / 2] >> (column % 2 * 16) & 0xffff;
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        element(column, row) | element(column + 1, row) << 16
    })
}

/// Checked pointers to the rows of `COUNT` matrices, whose addresses the lowest lanes give.
///
/// # Safety
/// `slots[COUNT]` is the address's, and the immediate is as `packed` made it.
#[inline(always)]
unsafe fn rows<const COUNT: usize>(
    core: &mut Core<'_>,
    inst: &Inst,
    access: Access,
) -> Result<[*mut u8; WARP], Flow> {
    whole_warp(core, inst)?;
    // SAFETY: the caller says so.
    let addresses = unsafe { addresses(core, inst.slots[COUNT], inst.immediate) };
    let space = space_of(inst.immediate);
    if core.instrumented {
        core.mask = u32::MAX >> (WARP - 8 * COUNT);
        core.instrument(inst, &addresses, space, ROW as u64, access)?;
        core.mask = u32::MAX;
    }
    let mut rows = [std::ptr::null_mut(); WARP];
    for lane in 0..8 * COUNT {
        rows[lane] = core.locate_unchecked(
            inst,
            lane,
            space,
            addresses[lane],
            ROW as u32,
            ROW as u32,
            access,
        )?;
    }
    Ok(rows)
}

/// `slots = [d.., address]`
struct Load<const COUNT: usize, const TRANSPOSED: bool>;
impl<const COUNT: usize, const TRANSPOSED: bool> Handler for Load<COUNT, TRANSPOSED> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        let rows = match unsafe { rows::<COUNT>(core, inst, Access::Read) } {
            Ok(rows) => rows,
            Err(flow) => return flow,
        };
        for part in 0..COUNT {
            let mut register = [0; WARP];
            for (lanes, row) in register.chunks_exact_mut(4).zip(&rows[8 * part..]) {
                // SAFETY: the row was checked.
                let words = unsafe { row.cast::<[u32; 4]>().read_unaligned() };
                lanes.copy_from_slice(&words);
            }
            if TRANSPOSED {
                register = transposed(&register);
            }
            // SAFETY: the slot is a word's, and the whole warp is here.
            unsafe { *core.write::<u32>(inst.slots[part]) = register };
        }
        core.warp.syncs = core.warp.syncs.wrapping_add(1);
        Flow::Next
    }
}

/// `slots = [values.., address]`
struct Store<const COUNT: usize, const TRANSPOSED: bool>;
impl<const COUNT: usize, const TRANSPOSED: bool> Handler for Store<COUNT, TRANSPOSED> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid the slots out so.
        let rows = match unsafe { rows::<COUNT>(core, inst, Access::Write) } {
            Ok(rows) => rows,
            Err(flow) => return flow,
        };
        for part in 0..COUNT {
            // SAFETY: the slot is a word's.
            let mut register = unsafe { *core.read::<u32>(inst.slots[part]) };
            if TRANSPOSED {
                register = transposed(&register);
            }
            for (lanes, row) in register.chunks_exact(4).zip(&rows[8 * part..]) {
                let words = [lanes[0], lanes[1], lanes[2], lanes[3]];
                // SAFETY: the row was checked.
                unsafe { row.cast::<[u32; 4]>().write_unaligned(words) };
            }
        }
        core.warp.syncs = core.warp.syncs.wrapping_add(1);
        Flow::Next
    }
}

/// `slots = [d, a]`
struct Transpose;
impl Handler for Transpose {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        if let Err(flow) = whole_warp(core, inst) {
            return flow;
        }
        // SAFETY: both are words, and the source is read whole before the result is written.
        unsafe {
            let result = transposed(core.read::<u32>(inst.slots[1]));
            *core.write::<u32>(inst.slots[0]) = result;
        }
        core.warp.syncs = core.warp.syncs.wrapping_add(1);
        Flow::Next
    }
}
