//! Loads and stores of every space and width, and how an address becomes host memory.

use std::marker::PhantomData;

use crate::decode::builder::Place;
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Handler, Inst, Run, handler};
use crate::exec::lanes::{Lane, WARP, lanes_of};
use crate::exec::memory::resolved;
use crate::fault::FaultKind;
use crate::ptx::ast::{Base, Operand, Space, Symbol, Type};

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are read and written at once.
    Atomic,
}

impl Core<'_> {
    /// Host memory of `size` bytes at an address of a space, for one lane; a failed check is a fault. The address must
    /// be a multiple of `align`.
    ///
    /// The pointer is valid for `size` bytes until the instruction ends.
    #[inline(always)]
    pub(crate) fn locate(
        &mut self,
        inst: &Inst,
        lane: usize,
        space: Space,
        address: u64,
        size: u32,
        align: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if self.launch.options.instrumented {
            self.check_access(inst, lane, space, address, u64::from(size), access)?;
        }
        self.locate_unchecked(inst, lane, space, address, size, align, access)
    }

    /// [`Core::locate`] without the checks of bytes and races, which have been made for the whole warp.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "an access is that many facts")]
    pub(crate) fn locate_unchecked(
        &mut self,
        inst: &Inst,
        lane: usize,
        space: Space,
        address: u64,
        size: u32,
        align: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if address & u64::from(align - 1) != 0 {
            let message = format!(
                "misaligned address {address:#x}: {access:?} of {size} bytes in {space:?} memory"
            );
            return Err(self.fail(inst, lane, FaultKind::Misaligned, message));
        }
        match resolved(space, address) {
            (Space::Shared, address) => self.in_shared(inst, lane, address, size, access),
            (Space::Local, address) => self.in_local(inst, lane, address, size, access),
            (Space::Param, address) => self.in_params(inst, lane, address, size, access),
            (_, address) => self.in_global(inst, lane, address, size, access),
        }
    }

    #[inline(always)]
    fn in_global(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        match self.region(address, u64::from(size)) {
            Some(region) if region.writable || access == Access::Read => {
                // SAFETY: the region holds `size` bytes from `address` on.
                Ok(unsafe { region.host.add((address - region.start) as usize) })
            }
            _ => Err(self.illegal(inst, lane, address, size, access)),
        }
    }

    #[cold]
    #[inline(never)]
    fn illegal(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Flow {
        let nearest = self.launch.memory.describe(address);
        let message = format!(
            "illegal address {address:#x}: {access:?} of {size} bytes in global memory; {nearest}"
        );
        self.fail(inst, lane, FaultKind::IllegalAddress, message)
    }

    #[inline(always)]
    fn in_shared(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if address.saturating_add(u64::from(size)) <= u64::from(self.shared_bytes) {
            // SAFETY: shared memory has that many bytes.
            return Ok(unsafe { self.shared.add(address as usize) });
        }
        let message = format!(
            "shared memory address {address:#x} is out of bounds: {access:?} of {size} bytes, the block has {} bytes",
            self.shared_bytes
        );
        Err(self.fail(inst, lane, FaultKind::IllegalAddress, message))
    }

    #[inline(always)]
    fn in_local(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        if let Some(pointer) = self.warp.local.at(lane, address, size as usize) {
            return Ok(pointer);
        }
        let message = format!(
            "local memory address {address:#x} is out of bounds: {access:?} of {size} bytes, the thread has {} bytes",
            self.warp.local.per_lane()
        );
        Err(self.fail(inst, lane, FaultKind::IllegalAddress, message))
    }

    #[inline(always)]
    fn in_params(
        &mut self,
        inst: &Inst,
        lane: usize,
        address: u64,
        size: u32,
        access: Access,
    ) -> Result<*mut u8, Flow> {
        let params = self.launch.params;
        if access == Access::Read && address.saturating_add(u64::from(size)) <= params.len() as u64
        {
            return Ok(params[address as usize..].as_ptr().cast_mut());
        }
        let message = format!(
            "parameter address {address:#x} is out of bounds: {access:?} of {size} bytes, the kernel has {} bytes",
            params.len()
        );
        Err(self.fail(inst, lane, FaultKind::IllegalAddress, message))
    }
}

/// Decodes one instruction of the family.
pub(crate) fn decode(form: &mut Form<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    match form.opcode {
        "ld" | "ldu" => transfer(form, builder, true),
        "st" => transfer(form, builder, false),
        // Hints.
        _ => {
            form.modifiers.clear();
            Ok(())
        }
    }
}

/// Takes out what orders and caches; the virtual GPU's memory is ordered anyway.
fn take_hints(form: &mut Form<'_>) {
    form.modifiers.retain(|name| {
        !matches!(
            *name,
            "weak"
                | "volatile"
                | "relaxed"
                | "acquire"
                | "release"
                | "mmio"
                | "cta"
                | "cluster"
                | "gpu"
                | "sys"
                | "nc"
                | "ca"
                | "cg"
                | "cs"
                | "lu"
                | "cv"
                | "wb"
                | "wt"
        ) && !name.starts_with("L1::")
            && !name.starts_with("L2::")
    });
}

/// Takes out the state space.
pub(crate) fn take_space(form: &mut Form<'_>) -> Space {
    let names = [
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
        "param::func",
    ];
    match form.take_any(&names) {
        Some("global") => Space::Global,
        Some("const") => Space::Const,
        // A cluster is one block.
        Some("shared" | "shared::cta" | "shared::cluster") => Space::Shared,
        Some("local") => Space::Local,
        Some(_) => Space::Param,
        None => Space::Generic,
    }
}

/// An address operand: the space that it points into, its register, and the offset to add.
pub(crate) struct Address {
    /// The space after variables have been placed: a device function's parameters are local.
    pub(crate) space: Space,
    /// The base, of 32 or 64 bits.
    pub(crate) base: Value,
    /// Whether the base has 64 bits.
    pub(crate) long: bool,
    /// Added to the base, wrapping.
    pub(crate) offset: u64,
}

/// Decodes `[base + offset]`.
pub(crate) fn address(
    builder: &mut Builder<'_>,
    operand: &Operand,
    space: Space,
) -> Result<Address, Refusal> {
    let Operand::Address { base, offset } = operand else {
        return Err(Refusal::new("expected an address in brackets"));
    };
    let offset = *offset as u64;
    match *base {
        Base::Register(register) => {
            let declared = builder.register_type(register);
            let long = Kind::of(declared) == Kind::Long;
            if !long && space != Space::Shared {
                let base = builder.source(&Operand::Register(register), Type::U64)?;
                return Ok(Address {
                    space,
                    base,
                    long: true,
                    offset,
                });
            }
            let space = if space == Space::Param && !builder.function.entry {
                Space::Local
            } else {
                space
            };
            Ok(Address {
                space,
                base: builder.register(register),
                long,
                offset,
            })
        }
        Base::Symbol(symbol) => match builder.place(symbol)? {
            Place::Fixed(place) => {
                let space = match (symbol, space) {
                    (Symbol::Body(_), Space::Generic) => Space::Shared,
                    (Symbol::Param(_), _) => Space::Param,
                    (Symbol::Module(index), Space::Generic) => {
                        builder.module.variables[index as usize].space
                    }
                    _ => space,
                };
                let base = builder.constant(Kind::Long, place.wrapping_add(offset));
                Ok(Address {
                    space,
                    base,
                    long: true,
                    offset: 0,
                })
            }
            Place::Local(_) => {
                let base = builder.symbol_address(symbol, offset as i64, Kind::Long)?;
                Ok(Address {
                    space: Space::Local,
                    base,
                    long: true,
                    offset: 0,
                })
            }
        },
        Base::Zero => Ok(Address {
            space,
            base: builder.constant(Kind::Long, offset),
            long: true,
            offset: 0,
        }),
    }
}

/// An offset in the frame's local memory.
fn local(builder: &mut Builder<'_>, offset: u64) -> Address {
    let base = builder.temporary(Kind::Long);
    builder.emit(
        handler::<super::moves::LocalAddress>(),
        &[base],
        &[],
        offset,
    );
    Address {
        space: Space::Local,
        base,
        long: true,
        offset: 0,
    }
}

/// Stores an operand at an offset of the frame's local memory.
pub(crate) fn store_local(
    builder: &mut Builder<'_>,
    operand: &Operand,
    ty: Type,
    offset: u64,
) -> Result<(), Refusal> {
    let value = builder.source(operand, ty)?;
    let place = local(builder, offset);
    let run = choose::<StoreFamily>(ty, &place, 1)?;
    builder.emit(run, &[], &[value, place.base], packed_offset(&place)?);
    Ok(())
}

/// Loads a register from an offset of the frame's local memory.
pub(crate) fn load_local(
    builder: &mut Builder<'_>,
    operand: &Operand,
    ty: Type,
    offset: u64,
) -> Result<(), Refusal> {
    let place = local(builder, offset);
    let result = builder.destination(operand, ty)?;
    let run = choose::<LoadFamily>(ty, &place, 1)?;
    builder.emit(run, &[result], &[place.base], packed_offset(&place)?);
    Ok(())
}

fn transfer(form: &mut Form<'_>, builder: &mut Builder<'_>, load: bool) -> Result<(), Refusal> {
    builder.class = if load { Class::Load } else { Class::Store };
    let policy = form.modifiers.contains(&"L2::cache_hint");
    take_hints(form);
    let space = take_space(form);
    let count = match form.take_any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => return Err(Refusal::new("vectors of 8 are not supported")),
        None => 1,
    };
    let ty = form.take_type()?;
    if ty == Type::Pred || ty == Type::B128 {
        return Err(Refusal::new(format!("{ty:?} cannot be loaded or stored")));
    }
    form.done()?;
    // The policy of a cache changes nothing.
    form.expect_operands(2 + usize::from(policy))?;
    let (data, place) = if load { (0, 1) } else { (1, 0) };
    let parts = match &form.operands[data] {
        Operand::Vector(parts) => parts.as_slice(),
        single => std::slice::from_ref(single),
    };
    if parts.len() != count {
        return Err(Refusal::new(format!(
            "{count} registers are expected, {} are given",
            parts.len()
        )));
    }
    let place = address(builder, &form.operands[place], space)?;
    if load {
        if place.space == Space::Param && !builder.function.entry {
            return Err(Refusal::new(
                "a device function's parameter at an address that is not known",
            ));
        }
        let writes = parts
            .iter()
            .map(|part| builder.destination(part, ty))
            .collect::<Result<Vec<_>, _>>()?;
        let run = choose::<LoadFamily>(ty, &place, count)?;
        builder.emit(run, &writes, &[place.base], packed_offset(&place)?);
    } else {
        if matches!(place.space, Space::Const | Space::Param) {
            return Err(Refusal::new(format!(
                "{:?} memory cannot be written",
                place.space
            )));
        }
        let mut reads = parts
            .iter()
            .map(|part| builder.source(part, ty))
            .collect::<Result<Vec<_>, _>>()?;
        reads.push(place.base);
        // A store's sign does not matter.
        let stored = match ty.size() {
            1 => Type::U8,
            2 => Type::U16,
            _ => ty,
        };
        let run = choose::<StoreFamily>(stored, &place, count)?;
        builder.emit(run, &[], &reads, packed_offset(&place)?);
    }
    Ok(())
}

/// Loads or stores, as a function from types to a handler.
trait Family {
    fn run<T: Lane, A: Location, const SPACE: u8, const COUNT: usize>() -> Run;
}

struct LoadFamily;
impl Family for LoadFamily {
    fn run<T: Lane, A: Location, const SPACE: u8, const COUNT: usize>() -> Run {
        handler::<Load<T, A, SPACE, COUNT>>()
    }
}

struct StoreFamily;
impl Family for StoreFamily {
    fn run<T: Lane, A: Location, const SPACE: u8, const COUNT: usize>() -> Run {
        handler::<Store<T, A, SPACE, COUNT>>()
    }
}

/// The handler for a type, an address and a count. Signs only matter to single loads, whose results may be extended.
fn choose<F: Family>(ty: Type, address: &Address, count: usize) -> Result<Run, Refusal> {
    Ok(match (ty, ty.size()) {
        (Type::S8, _) => choose_space::<F, i8>(address, count),
        (Type::S16, _) => choose_space::<F, i16>(address, count),
        (_, 1) => choose_space::<F, u8>(address, count),
        (_, 2) => choose_space::<F, u16>(address, count),
        (_, 4) => choose_space::<F, u32>(address, count),
        (_, 8) => choose_space::<F, u64>(address, count),
        (_, size) => {
            return Err(Refusal::new(format!(
                "elements of {size} bytes are not supported"
            )));
        }
    })
}

fn choose_space<F: Family, T: Lane>(address: &Address, count: usize) -> Run {
    match (address.space, address.long) {
        (Space::Global | Space::Const, _) => choose_count::<F, T, u64, GLOBAL>(count),
        (Space::Shared, true) => choose_count::<F, T, u64, SHARED>(count),
        (Space::Shared, false) => choose_count::<F, T, u32, SHARED>(count),
        // The rest is rare enough to find its space at run time, in the immediate's top byte.
        _ => choose_count::<F, T, u64, ANY>(count),
    }
}

fn choose_count<F: Family, T: Lane, A: Location, const SPACE: u8>(count: usize) -> Run {
    match count {
        1 => F::run::<T, A, SPACE, 1>(),
        2 => F::run::<T, A, SPACE, 2>(),
        _ => F::run::<T, A, SPACE, 4>(),
    }
}

const GLOBAL: u8 = 0;
const SHARED: u8 = 1;
/// The space is in the immediate's top byte, see [`packed_offset`].
const ANY: u8 = 2;

/// The space of an access.
#[inline(always)]
fn space_of(space: u8, immediate: u64) -> Space {
    match (space, immediate >> 56) {
        (GLOBAL, _) => Space::Global,
        (SHARED, _) => Space::Shared,
        (_, 0) => Space::Generic,
        (_, 1) => Space::Local,
        _ => Space::Param,
    }
}

/// The offset of an access, with the space that [`space_of`] finds.
fn packed_offset(address: &Address) -> Result<u64, Refusal> {
    let code = match address.space {
        Space::Global | Space::Const | Space::Shared => return Ok(address.offset),
        Space::Generic => 0,
        Space::Local => 1,
        Space::Param => 2u64,
    };
    let offset = address.offset as i64;
    if !(-(1 << 55)..1 << 55).contains(&offset) {
        return Err(Refusal::new("the offset of the address is too large"));
    }
    Ok(code << 56 | address.offset & OFFSET)
}

/// The bits of a packed offset.
const OFFSET: u64 = (1 << 56) - 1;

/// The offset in an immediate.
#[inline(always)]
fn offset_of(space: u8, immediate: u64) -> u64 {
    if space == ANY {
        ((immediate << 8) as i64 >> 8) as u64
    } else {
        immediate
    }
}

/// The register of an address.
pub(crate) trait Location: Lane {
    /// The address with an offset added in the register's width.
    fn at(self, offset: u64) -> u64;
}

impl Location for u32 {
    #[inline(always)]
    fn at(self, offset: u64) -> u64 {
        u64::from(self.wrapping_add(offset as u32))
    }
}

impl Location for u64 {
    #[inline(always)]
    fn at(self, offset: u64) -> u64 {
        self.wrapping_add(offset)
    }
}

/// `slots = [d.., address]`
struct Load<T, A, const SPACE: u8, const COUNT: usize>(PhantomData<(T, A)>);

impl<T: Lane, A: Location, const SPACE: u8, const COUNT: usize> Handler
    for Load<T, A, SPACE, COUNT>
{
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid out `COUNT` results and an address.
        let pointers = match unsafe { pointers::<T, A, SPACE, COUNT>(core, inst, Access::Read) } {
            Ok(pointers) => pointers,
            Err(flow) => return flow,
        };
        match pointers {
            Pointers::Row(row) => {
                // All lanes read one element after the other.
                // SAFETY: `row` is valid for 32 times `COUNT` elements.
                unsafe {
                    for part in 0..COUNT {
                        core.store_lanes(inst.slots[part], |lane| {
                            row.add(lane * COUNT + part).read_unaligned()
                        });
                    }
                }
            }
            Pointers::Scattered(pointers) => {
                // SAFETY: pointers of lanes in the mask are valid for `COUNT` elements; the others are not read.
                unsafe {
                    for lane in lanes_of(core.mask) {
                        let values = pointers[lane].cast::<[T; COUNT]>().read_unaligned();
                        for part in 0..COUNT {
                            core.set_lane(inst.slots[part], lane, values[part]);
                        }
                    }
                }
            }
        }
        Flow::Next
    }
}

/// `slots = [values.., address]`
struct Store<T, A, const SPACE: u8, const COUNT: usize>(PhantomData<(T, A)>);

impl<T: Lane, A: Location, const SPACE: u8, const COUNT: usize> Handler
    for Store<T, A, SPACE, COUNT>
{
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let races = core.launch.options.check_shared_races;
        if races {
            // SAFETY: the decoder laid out `COUNT` values.
            unsafe { remember::<T, COUNT>(core, inst) };
        }
        // SAFETY: the decoder laid out `COUNT` values and an address.
        let pointers = unsafe { pointers::<T, A, SPACE, COUNT>(core, inst, Access::Write) };
        if races {
            core.stored = None;
        }
        let pointers = match pointers {
            Ok(pointers) => pointers,
            Err(flow) => return flow,
        };
        match pointers {
            // SAFETY: `row` is valid for 32 times `COUNT` elements.
            Pointers::Row(row) => unsafe {
                for part in 0..COUNT {
                    let values = core.read::<T>(inst.slots[part]);
                    for (lane, value) in values.iter().enumerate() {
                        row.add(lane * COUNT + part)
                            .write_unaligned(T::from_raw(*value));
                    }
                }
            },
            Pointers::Scattered(pointers) => {
                for lane in lanes_of(core.mask) {
                    // SAFETY: pointers of lanes in the mask are valid for `COUNT` elements.
                    unsafe {
                        for part in 0..COUNT {
                            let value: T = core.lane(inst.slots[part], lane);
                            pointers[lane].add(part).write_unaligned(value);
                        }
                    }
                }
            }
        }
        Flow::Next
    }
}

/// Tells the check of races what a store writes.
///
/// # Safety
/// The first `COUNT` slots are values of the type.
#[cold]
#[inline(never)]
unsafe fn remember<T: Lane, const COUNT: usize>(core: &mut Core<'_>, inst: &Inst) {
    let mut stored = Box::new([[0; 32]; WARP]);
    for lane in lanes_of(core.mask) {
        for part in 0..COUNT {
            // SAFETY: the caller says so; the array has room for four values of eight bytes.
            unsafe {
                let value: T = core.lane(inst.slots[part], lane);
                let to = stored[lane].as_mut_ptr().add(part * size_of::<T>());
                to.cast::<T>().write_unaligned(value);
            }
        }
    }
    core.stored = Some(stored);
}

/// Where the lanes' elements are in host memory.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives in registers and on the stack of one handler"
)]
enum Pointers<T> {
    /// All 32 lanes, one behind the other from here on.
    Row(*mut T),
    /// Each lane of the mask by itself.
    Scattered([*mut T; WARP]),
}

/// Checks the addresses of the mask's lanes.
///
/// # Safety
/// As [`Run`]; the address is in `slots[COUNT]`.
#[inline(always)]
unsafe fn pointers<T: Lane, A: Location, const SPACE: u8, const COUNT: usize>(
    core: &mut Core<'_>,
    inst: &Inst,
    access: Access,
) -> Result<Pointers<T>, Flow> {
    let size = (size_of::<T>() * COUNT) as u64;
    let offset = offset_of(SPACE, inst.immediate);
    let space = space_of(SPACE, inst.immediate);
    let mut addresses = [0u64; WARP];
    // SAFETY: the decoder laid out an address register there.
    let bases = unsafe { core.read::<A>(inst.slots[COUNT]) };
    for (address, base) in addresses.iter_mut().zip(bases) {
        *address = A::from_raw(*base).at(offset);
    }
    let mask = core.mask;
    let first_lane = mask.trailing_zeros() as usize;
    if mask != u32::MAX {
        // Lanes that take no part stand where a lane does that takes part, so that the bounds below are those of the
        // mask.
        let first = addresses[first_lane];
        for (lane, address) in addresses.iter_mut().enumerate() {
            if mask >> lane & 1 == 0 {
                *address = first;
            }
        }
    }
    let mut low = u64::MAX;
    let mut high = 0;
    let mut bits = 0;
    let mut row = true;
    let start = addresses[0];
    for (lane, &address) in addresses.iter().enumerate() {
        low = low.min(address);
        high = high.max(address);
        bits |= address;
        row &= address == start.wrapping_add(lane as u64 * size);
    }
    if core.launch.options.instrumented {
        core.instrument(inst, &addresses, space, size, access)?;
    }
    let span = (high - low).saturating_add(size);
    if bits & (size - 1) == 0 {
        let base = match SPACE {
            GLOBAL => core
                .region(low, span)
                .filter(|region| region.writable || access == Access::Read)
                // SAFETY: the region holds `span` bytes from `low` on.
                .map(|region| unsafe { region.host.add((low - region.start) as usize) }),
            SHARED if low.saturating_add(span) <= u64::from(core.shared_bytes) => {
                // SAFETY: shared memory has that many bytes.
                Some(unsafe { core.shared.add(low as usize) })
            }
            _ => None,
        };
        if let Some(base) = base {
            if row && mask == u32::MAX {
                return Ok(Pointers::Row(base.cast()));
            }
            let mut pointers = [std::ptr::null_mut(); WARP];
            for (pointer, address) in pointers.iter_mut().zip(&addresses) {
                // SAFETY: every address lies between `low` and `high`.
                *pointer = unsafe { base.add((address - low) as usize) }.cast();
            }
            return Ok(Pointers::Scattered(pointers));
        }
    }
    let mut pointers = [std::ptr::null_mut(); WARP];
    for lane in lanes_of(mask) {
        let size = size as u32;
        let pointer = core.locate(inst, lane, space, addresses[lane], size, size, access)?;
        pointers[lane] = pointer.cast();
    }
    Ok(Pointers::Scattered(pointers))
}
