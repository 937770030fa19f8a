//! `mma`: multiplication of matrices whose fragments lie as the PTX ISA's tables say.
//!
//! All shapes follow one scheme. Let lane = 4 g + t. A register of A holds, for each lane, consecutive elements of row
//! g, so that all its lanes make a block of 8 rows; blocks follow each other down the rows, then along k. A register
//! of B holds consecutive elements of column g along k; blocks follow each other along k. A lane has of each 8 rows
//! of C the elements 2 t and 2 t + 1 of row g.

use std::marker::PhantomData;

use super::element::{
    Accumulator, BF16, Element, F16, F32, F64, Number, S8, S32, TF32, U8, multiply, packed,
    register_type,
};
use super::{read_parts, take_aligned, write_parts};
use crate::decode::{Builder, Form, Refusal};
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::instructions::barrier::whole_warp;
use crate::ptx::ast::Type;

/// Decodes `mma.sync.aligned`.
pub(super) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if form
        .modifiers
        .iter()
        .any(|name| matches!(*name, "sp" | "sp::ordered_metadata"))
    {
        return Err(Refusal::new("mma of sparse matrices is not supported"));
    }
    take_aligned(form)?;
    if form.modifiers.is_empty() {
        return Err(Refusal::new("mma without a shape"));
    }
    let shape = form.modifiers.remove(0);
    let layout = |name: &str| form.modifiers.iter().position(|other| *other == name);
    let in_order = layout("row") < layout("col");
    if !form.take("row") || !form.take("col") || !in_order {
        return Err(Refusal::new(
            "only mma with A by rows and B by columns (.row.col) is supported",
        ));
    }
    let saturate = form.take("satfinite");
    form.take("rn");
    let types = form.modifiers.join(".");
    form.modifiers.clear();
    let (run, [rows, inner], [a, b, c]) = choose(shape, &types).ok_or_else(|| {
        Refusal::new(format!(
            "mma of shape {shape} and types .{types} is not supported"
        ))
    })?;
    if saturate && c != Type::S32 {
        return Err(Refusal::new(".satfinite is for integers"));
    }
    form.expect_operands(4)?;
    let count = |elements: usize, ty: Type| elements / 32 / packed(ty);
    let result = count(rows * 8, c);
    let writes = write_parts(form, builder, 0, result, register_type(c))?;
    let mut reads = read_parts(form, builder, 1, count(rows * inner, a), register_type(a))?;
    reads.extend(read_parts(
        form,
        builder,
        2,
        count(inner * 8, b),
        register_type(b),
    )?);
    reads.extend(read_parts(form, builder, 3, result, register_type(c))?);
    builder.emit_many(run, &writes, &reads, u64::from(saturate));
    Ok(())
}

/// The handler, rows of A and length of k, and the types of A, B and C.
fn choose(shape: &str, types: &str) -> Option<(Run, [usize; 2], [Type; 3])> {
    macro_rules! find {
        ($($shape:literal $types:literal => $a:ident $b:ident $c:ident $m:literal $k:literal;)*) => {
            match (shape, types) {
                $(($shape, $types) => {
                    Some((handler::<Multiply<$a, $b, $c, $m, $k>>(), [$m, $k], [Type::$a, Type::$b, Type::$c]))
                })*
                _ => None,
            }
        };
    }
    find! {
        "m16n8k8" "f16.f16.f16.f16" => F16 F16 F16 16 8;
        "m16n8k8" "f32.f16.f16.f32" => F16 F16 F32 16 8;
        "m16n8k16" "f16.f16.f16.f16" => F16 F16 F16 16 16;
        "m16n8k16" "f32.f16.f16.f32" => F16 F16 F32 16 16;
        "m16n8k8" "f32.bf16.bf16.f32" => BF16 BF16 F32 16 8;
        "m16n8k16" "f32.bf16.bf16.f32" => BF16 BF16 F32 16 16;
        "m16n8k4" "f32.tf32.tf32.f32" => TF32 TF32 F32 16 4;
        "m16n8k8" "f32.tf32.tf32.f32" => TF32 TF32 F32 16 8;
        "m8n8k4" "f64.f64.f64.f64" => F64 F64 F64 8 4;
        "m16n8k4" "f64.f64.f64.f64" => F64 F64 F64 16 4;
        "m16n8k8" "f64.f64.f64.f64" => F64 F64 F64 16 8;
        "m16n8k16" "f64.f64.f64.f64" => F64 F64 F64 16 16;
        "m8n8k16" "s32.s8.s8.s32" => S8 S8 S32 8 16;
        "m8n8k16" "s32.s8.u8.s32" => S8 U8 S32 8 16;
        "m8n8k16" "s32.u8.s8.s32" => U8 S8 S32 8 16;
        "m8n8k16" "s32.u8.u8.s32" => U8 U8 S32 8 16;
        "m16n8k16" "s32.s8.s8.s32" => S8 S8 S32 16 16;
        "m16n8k16" "s32.s8.u8.s32" => S8 U8 S32 16 16;
        "m16n8k16" "s32.u8.s8.s32" => U8 S8 S32 16 16;
        "m16n8k16" "s32.u8.u8.s32" => U8 U8 S32 16 16;
        "m16n8k32" "s32.s8.s8.s32" => S8 S8 S32 16 32;
        "m16n8k32" "s32.s8.u8.s32" => S8 U8 S32 16 32;
        "m16n8k32" "s32.u8.s8.s32" => U8 S8 S32 16 32;
        "m16n8k32" "s32.u8.u8.s32" => U8 U8 S32 16 32;
    }
}

/// Far slots: D, A, B, C; the immediate says whether the result saturates.
struct Multiply<A, B, C, const M: usize, const K: usize>(PhantomData<(A, B, C)>);
impl<T, A, B, C, const M: usize, const K: usize> Handler for Multiply<A, B, C, M, K>
where
    T: Number,
    A: Element<Number = T>,
    B: Element<Number = T>,
    C: Accumulator<Number = T>,
{
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        if let Err(flow) = whole_warp(core, inst) {
            return flow;
        }
        let results = M * 8 / 32 / C::PACKED;
        let of_a = M * K / 32 / A::PACKED;
        let of_b = K * 8 / 32 / B::PACKED;
        // Everything is read before anything is written: D may be A, B or C.
        let mut a = [[T::default(); K]; M];
        let mut b = [[T::default(); 8]; K];
        let mut c = [[T::default(); 8]; M];
        // SAFETY: the decoder laid out as many registers of these kinds.
        unsafe {
            for part in 0..of_a {
                let registers = core.read::<A::Register>(core.far_slot(inst, results + part));
                let (row, column) = (part % (M / 8) * 8, part / (M / 8) * 4 * A::PACKED);
                for (group, lanes) in registers.chunks_exact(4).enumerate() {
                    let to = &mut a[row + group][column..column + 4 * A::PACKED];
                    for (position, to) in to.iter_mut().enumerate() {
                        *to = A::get(lanes[position / A::PACKED], position % A::PACKED);
                    }
                }
            }
            for part in 0..of_b {
                let registers =
                    core.read::<B::Register>(core.far_slot(inst, results + of_a + part));
                let rows = &mut b[part * 4 * B::PACKED..][..4 * B::PACKED];
                for (position, row) in rows.iter_mut().enumerate() {
                    for (group, to) in row.iter_mut().enumerate() {
                        *to = B::get(
                            registers[4 * group + position / B::PACKED],
                            position % B::PACKED,
                        );
                    }
                }
            }
            for part in 0..results {
                let registers =
                    core.read::<C::Register>(core.far_slot(inst, results + of_a + of_b + part));
                let (row, column) = part_of_c::<C>(part);
                for (lane, &register) in registers.iter().enumerate() {
                    for index in 0..C::PACKED {
                        c[row + lane / 4][lane % 4 * 2 + column + index] = C::get(register, index);
                    }
                }
            }
            multiply(&a, &b, &mut c, inst.immediate != 0);
            for part in 0..results {
                let registers = core.write::<C::Register>(core.far_slot(inst, part));
                let (row, column) = part_of_c::<C>(part);
                for (lane, register) in registers.iter_mut().enumerate() {
                    *register = C::put(&c[row + lane / 4][lane % 4 * 2 + column..][..C::PACKED]);
                }
            }
        }
        core.warp.syncs = core.warp.syncs.wrapping_add(1);
        Flow::Next
    }
}

/// The first row of a register of C, and the position in the pair of elements.
#[inline(always)]
fn part_of_c<C: Element>(part: usize) -> (usize, usize) {
    let of_pair = 2 / C::PACKED;
    (part / of_pair * 8, part % of_pair * C::PACKED)
}
