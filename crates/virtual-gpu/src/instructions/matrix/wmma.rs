//! `wmma`: loads, stores and multiplication of matrices whose fragments PTX leaves open.
//!
//! Here lane l has the elements l n to (l + 1) n - 1 of a matrix of 32 n elements by rows, however the matrix lies in
//! memory. So fragments of one matrix and element type are the same for every instruction, and those of C correspond
//! element by element for all its types. A and B of f16 have more registers than that: they repeat the elements.

use std::marker::PhantomData;

use super::element::{
    Accumulator, BF16, Element, F16, F32, F64, Number, S8, S32, TF32, U8, multiply, packed,
    register_type,
};
use super::{read_parts, take_aligned, write_parts};
use crate::decode::{Builder, Form, Kind, Refusal};
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, WARP};
use crate::instructions::atomic::{self, addresses, space_of};
use crate::instructions::barrier::whole_warp;
use crate::instructions::memory::{self, Access};
use crate::ptx::ast::{Space, Type};

/// Rows of A, columns of B, and the length of what is summed.
type Shape = [usize; 3];

/// Decodes `wmma`.
pub(super) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    match form.take_any(&["load", "store", "mma"]) {
        Some("mma") => decode_multiply(form, builder),
        Some(direction) => decode_transfer(form, builder, direction == "load"),
        None => Err(Refusal::new("wmma is .load, .store or .mma")),
    }
}

fn take_shape(form: &mut Form<'_>) -> Result<Shape, Refusal> {
    let shapes = [
        ("m16n16k16", [16, 16, 16]),
        ("m32n8k16", [32, 8, 16]),
        ("m8n32k16", [8, 32, 16]),
        ("m16n16k8", [16, 16, 8]),
        ("m8n8k4", [8, 8, 4]),
    ];
    shapes
        .into_iter()
        .find_map(|(name, shape)| form.take(name).then_some(shape))
        .ok_or_else(|| Refusal::new("wmma of this shape is not supported"))
}

/// Registers of a fragment of A or B.
fn registers(elements: usize, ty: Type) -> usize {
    match ty {
        Type::F16 => 8,
        _ => elements / WARP / packed(ty),
    }
}

/// Registers of a fragment of C or D.
fn result_registers(elements: usize, ty: Type) -> usize {
    elements / WARP / packed(ty)
}

/// Whether there are such matrices of a shape.
fn has_type(shape: Shape, matrix: &str, ty: Type) -> bool {
    match (shape, matrix) {
        ([16, 16, 8], "a" | "b") => ty == Type::TF32,
        ([16, 16, 8], _) => ty == Type::F32,
        ([8, 8, 4], _) => ty == Type::F64,
        (_, "a" | "b") => matches!(ty, Type::F16 | Type::BF16 | Type::S8 | Type::U8),
        _ => matches!(ty, Type::F16 | Type::F32 | Type::S32),
    }
}

fn decode_transfer(
    form: &mut Form<'_>,
    builder: &mut Builder<'_>,
    load: bool,
) -> Result<(), Refusal> {
    let matrix = form
        .take_any(&["a", "b", "c", "d"])
        .ok_or_else(|| Refusal::new("wmma loads .a, .b or .c and stores .d"))?;
    if load == (matrix == "d") {
        return Err(Refusal::new("wmma loads .a, .b or .c and stores .d"));
    }
    take_aligned(form)?;
    let by_columns = match form.take_any(&["row", "col"]) {
        Some(layout) => layout == "col",
        None => return Err(Refusal::new("wmma without a layout")),
    };
    let shape = take_shape(form)?;
    let space = memory::take_space(form);
    if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
        return Err(Refusal::new(
            "wmma takes .global, .shared or generic addresses",
        ));
    }
    let ty = form.take_type()?;
    form.done()?;
    if !has_type(shape, matrix, ty) {
        return Err(Refusal::new(format!(
            "wmma of {ty:?} elements is not supported for this shape"
        )));
    }
    let [m, n, k] = shape;
    let [rows, columns] = match matrix {
        "a" => [m, k],
        "b" => [k, n],
        _ => [m, n],
    };
    let count = match matrix {
        "a" | "b" => registers(rows * columns, ty),
        _ => result_registers(rows * columns, ty),
    };
    let operands = form.operands.len();
    if operands != 2 && operands != 3 {
        return Err(Refusal::new(format!(
            "expected 2 or 3 operands, found {operands}"
        )));
    }
    let (data, place) = if load { (0, 1) } else { (1, 0) };
    let address = memory::address(builder, &form.operands[place], space)?;
    let stride = if operands == 3 {
        builder.read(form, 2, Type::U32)?
    } else {
        builder.constant(Kind::Word, if by_columns { rows } else { columns } as u64)
    };
    // The hardware's loads are as wide as 16 bytes, so a matrix starts at a multiple of that.
    let layout = Layout {
        columns: columns as u32,
        elements: (rows * columns) as u32,
        size: ty.size(),
        by_columns,
        registers: count as u32,
    };
    let immediate = atomic::packed(&address, 16)? | layout.packed();
    let long = register_type(ty) == Type::F64;
    if load {
        let writes = write_parts(form, builder, data, count, register_type(ty))?;
        let run = if long {
            handler::<Load<u64>>()
        } else {
            handler::<Load<u32>>()
        };
        builder.emit_many(run, &writes, &[address.base, stride], immediate);
    } else {
        let mut reads = read_parts(form, builder, data, count, register_type(ty))?;
        reads.extend([address.base, stride]);
        let run = if long {
            handler::<Store<u64>>()
        } else {
            handler::<Store<u32>>()
        };
        builder.emit_many(run, &[], &reads, immediate);
    }
    Ok(())
}

/// How a matrix lies in memory and in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    columns: u32,
    elements: u32,
    /// Bytes of an element.
    size: u32,
    /// Whether columns lie one behind the other, rather than rows.
    by_columns: bool,
    registers: u32,
}

impl Layout {
    /// In the bits that an address leaves of an immediate: logarithms, as all are powers of two.
    fn packed(self) -> u64 {
        let logarithm = |value: u32| u64::from(value.trailing_zeros());
        logarithm(self.columns) << 40
            | logarithm(self.elements) << 44
            | logarithm(self.size) << 48
            | u64::from(self.by_columns) << 52
            | logarithm(self.registers) << 56
    }

    #[inline(always)]
    fn unpacked(immediate: u64) -> Layout {
        let power = |shift: u32| 1 << (immediate >> shift & 15);
        Layout {
            columns: power(40),
            elements: power(44),
            size: power(48),
            by_columns: immediate >> 52 & 1 != 0,
            registers: power(56),
        }
    }
}

/// Calls `each` with lane, index in the lane and pointer for every stretch of elements of a lane that lie one behind
/// the other in memory, and their number. All are checked before the first call.
///
/// # Safety
/// The far slots `place` and `place + 1` are the address's and the stride's, and the immediate is that of
/// [`decode_transfer`].
#[inline(always)]
unsafe fn each_stretch(
    core: &mut Core<'_>,
    inst: &Inst,
    place: usize,
    access: Access,
    mut each: impl FnMut(&Core<'_>, usize, usize, usize, *mut u8),
) -> Flow {
    let layout = Layout::unpacked(inst.immediate);
    // SAFETY: the caller says so.
    let (bases, strides) = unsafe {
        let slot = core.far_slot(inst, place);
        (
            addresses(core, slot, inst.immediate),
            *core.read::<u32>(core.far_slot(inst, place + 1)),
        )
    };
    let space = space_of(inst.immediate);
    let of_lane = layout.elements as usize / WARP;
    // A lane's elements lie in one row.
    let length = if layout.by_columns { 1 } else { of_lane };
    let bytes = length as u32 * layout.size;
    let mut pointers = [[std::ptr::null_mut(); WARP]; MOST];
    for lane in 0..WARP {
        // PTX demands the alignment of a row; hardware loads words.
        let align = if core.launch.options.strict {
            u64::from(atomic::align_of(inst.immediate))
        } else {
            u64::from(layout.size.max(4))
        };
        if bases[lane] & (align - 1) != 0
            && let Err(flow) =
                core.locate(inst, lane, space, bases[lane], bytes, align as u32, access)
        {
            return flow;
        }
    }
    for step in 0..of_lane / length {
        let mut places = [0; WARP];
        for (lane, address) in places.iter_mut().enumerate() {
            let element = (lane * of_lane + step * length) as u32;
            let (row, column) = (element / layout.columns, element % layout.columns);
            let (major, minor) = if layout.by_columns {
                (column, row)
            } else {
                (row, column)
            };
            let offset = u64::from(major) * u64::from(strides[lane]) + u64::from(minor);
            *address = bases[lane].wrapping_add(offset.wrapping_mul(u64::from(layout.size)));
        }
        if core.instrumented
            && let Err(flow) = core.instrument(inst, &places, space, u64::from(bytes), access)
        {
            return flow;
        }
        for lane in 0..WARP {
            match core.locate_unchecked(inst, lane, space, places[lane], bytes, layout.size, access)
            {
                Ok(pointer) => pointers[step][lane] = pointer,
                Err(flow) => return flow,
            }
        }
    }
    for step in 0..of_lane / length {
        for lane in 0..WARP {
            each(core, lane, step * length, length, pointers[step][lane]);
        }
    }
    core.warp.syncs = core.warp.syncs.wrapping_add(1);
    Flow::Next
}

/// The most elements of a matrix that a lane has, copies aside: 512 of them for 32 lanes.
const MOST: usize = 16;

/// A register of a fragment as bytes.
trait Register: Lane + Default {
    /// Bytes.
    const BYTES: usize = size_of::<Self>();
}
impl Register for u32 {}
impl Register for u64 {}

/// Far slots: the fragment, address, stride.
struct Load<R>(PhantomData<R>);
impl<R: Register> Handler for Load<R> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        if let Err(flow) = whole_warp(core, inst) {
            return flow;
        }
        let layout = Layout::unpacked(inst.immediate);
        let (size, count) = (layout.size as usize, layout.registers as usize);
        // Each lane's elements as they lie in its registers, without copies.
        let mut fragment = [[0u8; MOST * 4]; WARP];
        // SAFETY: the decoder laid the slots out so; a stretch has been checked and a lane's elements fit.
        unsafe {
            let flow = each_stretch(
                core,
                inst,
                count,
                Access::Read,
                |_, lane, index, length, pointer| {
                    let to = &mut fragment[lane][index * size..][..length * size];
                    to.copy_from_slice(std::slice::from_raw_parts(pointer, length * size));
                },
            );
            if flow != Flow::Next {
                return flow;
            }
            let once = layout.elements as usize / WARP * size / R::BYTES;
            for part in 0..count {
                let register = core.far_slot(inst, part);
                let from = part % once * R::BYTES;
                for (lane, bytes) in fragment.iter().enumerate() {
                    core.set_lane(
                        register,
                        lane,
                        bytes[from..].as_ptr().cast::<R>().read_unaligned(),
                    );
                }
            }
        }
        Flow::Next
    }
}

/// Far slots: the fragment, address, stride.
struct Store<R>(PhantomData<R>);
impl<R: Register> Handler for Store<R> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        if let Err(flow) = whole_warp(core, inst) {
            return flow;
        }
        let layout = Layout::unpacked(inst.immediate);
        let (size, count) = (layout.size as usize, layout.registers as usize);
        let mut fragment = [[0u8; MOST * 4]; WARP];
        // SAFETY: the decoder laid the slots out so; a stretch has been checked and a lane's registers fit.
        unsafe {
            for part in 0..count {
                let register = core.far_slot(inst, part);
                for (lane, bytes) in fragment.iter_mut().enumerate() {
                    let to = bytes[part * R::BYTES..].as_mut_ptr().cast::<R>();
                    to.write_unaligned(core.lane(register, lane));
                }
            }
            each_stretch(
                core,
                inst,
                count,
                Access::Write,
                |_, lane, index, length, pointer| {
                    let from = &fragment[lane][index * size..][..length * size];
                    pointer.copy_from_nonoverlapping(from.as_ptr(), from.len());
                },
            )
        }
    }
}

fn decode_multiply(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    take_aligned(form)?;
    // The layouts that A and B were loaded with; a fragment is the same for both.
    for _ in 0..2 {
        if form.take_any(&["row", "col"]).is_none() {
            return Err(Refusal::new("wmma.mma without the layouts of A and B"));
        }
    }
    let shape = take_shape(form)?;
    let saturate = form.take("satfinite");
    form.take("rn");
    let types = form.modifiers.join(".");
    form.modifiers.clear();
    let [m, n, k] = shape;
    let name = format!("m{m}n{n}k{k}");
    let (run, [a, b, c, d]) = choose(&name, &types).ok_or_else(|| {
        Refusal::new(format!(
            "wmma of shape {name} and types .{types} is not supported"
        ))
    })?;
    if saturate && c != Type::S32 {
        return Err(Refusal::new(".satfinite is supported for integers"));
    }
    form.expect_operands(4)?;
    let writes = write_parts(
        form,
        builder,
        0,
        result_registers(m * n, d),
        register_type(d),
    )?;
    let mut reads = read_parts(form, builder, 1, registers(m * k, a), register_type(a))?;
    reads.extend(read_parts(
        form,
        builder,
        2,
        registers(k * n, b),
        register_type(b),
    )?);
    reads.extend(read_parts(
        form,
        builder,
        3,
        result_registers(m * n, c),
        register_type(c),
    )?);
    let first_b = writes.len() + registers(m * k, a);
    let first_c = first_b + registers(k * n, b);
    let immediate = u64::from(saturate) | (first_b as u64) << 8 | (first_c as u64) << 16;
    builder.emit_many(run, &writes, &reads, immediate);
    Ok(())
}

/// The handler and the types of A, B, C and D.
fn choose(shape: &str, types: &str) -> Option<(Run, [Type; 4])> {
    macro_rules! find {
        ($($types:literal => $a:ident $c:ident $d:ident: $($shape:literal $m:literal $n:literal $k:literal),+;)*) => {
            match (shape, types) {
                $($(($shape, $types) => {
                    let run = handler::<Multiply<$a, $c, $d, $m, $n, $k>>();
                    Some((run, [Type::$a, Type::$a, Type::$c, Type::$d]))
                })+)*
                _ => None,
            }
        };
    }
    // D comes before C in the text; f16 is not named for A and B.
    find! {
        "f16.f16" => F16 F16 F16: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "f16.f32" => F16 F32 F16: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "f32.f16" => F16 F16 F32: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "f32.f32" => F16 F32 F32: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "f32.bf16.bf16.f32" => BF16 F32 F32: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "s32.s8.s8.s32" => S8 S32 S32: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "s32.u8.u8.s32" => U8 S32 S32: "m16n16k16" 16 16 16, "m32n8k16" 32 8 16, "m8n32k16" 8 32 16;
        "f32.tf32.tf32.f32" => TF32 F32 F32: "m16n16k8" 16 16 8;
        "f64.f64.f64.f64" => F64 F64 F64: "m8n8k4" 8 8 4;
    }
}

/// Far slots: D, A, B, C; the immediate says whether the result saturates and where B and C start.
struct Multiply<A, C, D, const M: usize, const N: usize, const K: usize>(PhantomData<(A, C, D)>);
impl<T, A, C, D, const M: usize, const N: usize, const K: usize> Handler
    for Multiply<A, C, D, M, N, K>
where
    T: Number,
    A: Element<Number = T>,
    C: Element<Number = T>,
    D: Accumulator<Number = T>,
{
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        if let Err(flow) = whole_warp(core, inst) {
            return flow;
        }
        let results = M * N / WARP / D::PACKED;
        let (first_b, first_c) = (inst.immediate >> 8 & 0xff, inst.immediate >> 16 & 0xff);
        // Everything is read before anything is written: D may be A, B or C.
        // SAFETY: the decoder laid the slots out so.
        unsafe {
            let a: [[T; K]; M] = gather::<A, M, K>(core, inst, results);
            let b: [[T; N]; K] = gather::<A, K, N>(core, inst, first_b as usize);
            let mut c: [[T; N]; M] = gather::<C, M, N>(core, inst, first_c as usize);
            multiply(&a, &b, &mut c, inst.immediate & 1 != 0);
            let elements = c.as_flattened();
            let of_lane = M * N / WARP;
            for part in 0..results {
                let registers = core.write::<D::Register>(core.far_slot(inst, part));
                for (register, elements) in registers.iter_mut().zip(elements.chunks_exact(of_lane))
                {
                    *register = D::put(&elements[part * D::PACKED..][..D::PACKED]);
                }
            }
        }
        core.warp.syncs = core.warp.syncs.wrapping_add(1);
        Flow::Next
    }
}

/// The matrix of a fragment whose first far slot is `first`.
///
/// # Safety
/// The decoder laid out as many registers of this kind.
#[inline(always)]
unsafe fn gather<E: Element, const ROWS: usize, const COLUMNS: usize>(
    core: &Core<'_>,
    inst: &Inst,
    first: usize,
) -> [[E::Number; COLUMNS]; ROWS] {
    let mut matrix = [[E::Number::default(); COLUMNS]; ROWS];
    let elements = matrix.as_flattened_mut();
    let of_lane = ROWS * COLUMNS / WARP;
    for part in 0..of_lane / E::PACKED {
        // SAFETY: the caller says so.
        let registers = unsafe { core.read::<E::Register>(core.far_slot(inst, first + part)) };
        for (register, elements) in registers.iter().zip(elements.chunks_exact_mut(of_lane)) {
            for (index, element) in elements[part * E::PACKED..][..E::PACKED]
                .iter_mut()
                .enumerate()
            {
                *element = E::get(*register, index);
            }
        }
    }
    matrix
}
