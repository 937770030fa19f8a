//! Loads and stores of every space and width, and how an address becomes host memory.

#[cfg(target_arch = "x86_64")]
mod quads;

use std::marker::PhantomData;

use crate::decode::builder::Place;
use crate::decode::{Builder, Form, Kind, Refusal, Value};
use crate::exec::code::Class;
use crate::exec::core::Core;
use crate::exec::instruction::{Flow, Inst, Run, VectorHandler, handler, vector_handler};
use crate::exec::lanes::{Lane, WARP, lanes_of, store_lanes};
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
        if self.instrumented {
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
        // What the running function and its callers have.
        let end = self.local_base as usize + self.code.local_bytes as usize;
        if let Some(pointer) = self.warp.local.at(lane, address, size as usize, end) {
            return Ok(pointer);
        }
        let message = format!(
            "local memory address {address:#x} is out of bounds: {access:?} of {size} bytes, the thread has {} bytes",
            end
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
        // Words of shared and global memory are what most kernels wait for.
        if size_of::<T>() == 4 && SPACE != ANY {
            vector_handler::<Load<T, A, SPACE, COUNT>>()
        } else {
            handler::<Load<T, A, SPACE, COUNT>>()
        }
    }
}

struct StoreFamily;
impl Family for StoreFamily {
    fn run<T: Lane, A: Location, const SPACE: u8, const COUNT: usize>() -> Run {
        // Words of shared and global memory are what most kernels wait for.
        if size_of::<T>() == 4 && SPACE != ANY {
            vector_handler::<Store<T, A, SPACE, COUNT>>()
        } else {
            handler::<Store<T, A, SPACE, COUNT>>()
        }
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

impl<T: Lane, A: Location, const SPACE: u8, const COUNT: usize> VectorHandler
    for Load<T, A, SPACE, COUNT>
{
    #[inline(always)]
    unsafe fn run<const LANES: usize>(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the decoder laid out `COUNT` results and an address.
        let places = match unsafe { places::<T, A, SPACE, COUNT>(core, inst, Access::Read) } {
            Ok(places) => places,
            Err(flow) => return flow,
        };
        // SAFETY: what `Places` says is valid for the lanes' `COUNT` elements.
        unsafe {
            match places {
                // All lanes read one element after the other.
                Places::Row(row) => {
                    for part in 0..COUNT {
                        store_lanes!(core, T, inst.slots[part], LANES, |lane| row
                            .add(lane * COUNT + part)
                            .read_unaligned());
                    }
                }
                Places::Near(base, offsets) => {
                    #[cfg(target_arch = "x86_64")]
                    if COUNT == 4 && size_of::<T>() == 4 {
                        quads::load::<LANES>(core, inst, base, &offsets);
                        return Flow::Next;
                    }
                    for part in 0..COUNT {
                        store_lanes!(core, T, inst.slots[part], LANES, |lane| base
                            .add(offsets[lane] as usize)
                            .cast::<T>()
                            .add(part)
                            .read_unaligned());
                    }
                }
                Places::Scattered(pointers) => {
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

impl<T: Lane, A: Location, const SPACE: u8, const COUNT: usize> VectorHandler
    for Store<T, A, SPACE, COUNT>
{
    #[inline(always)]
    unsafe fn run<const LANES: usize>(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let races = core.launch.options.check_shared_races;
        if races {
            // SAFETY: the decoder laid out `COUNT` values.
            unsafe { remember::<T, COUNT>(core, inst) };
        }
        // SAFETY: the decoder laid out `COUNT` values and an address.
        let places = unsafe { places::<T, A, SPACE, COUNT>(core, inst, Access::Write) };
        if races {
            core.stored = None;
        }
        let places = match places {
            Ok(places) => places,
            Err(flow) => return flow,
        };
        // SAFETY: what `Places` says is valid for the `COUNT` elements of the mask's lanes.
        unsafe {
            match places {
                Places::Row(row) => {
                    for part in 0..COUNT {
                        let values = core.read::<T>(inst.slots[part]);
                        for (lane, value) in values.iter().enumerate() {
                            row.add(lane * COUNT + part)
                                .write_unaligned(T::from_raw(*value));
                        }
                    }
                }
                // Of lanes that write to one place the last one wins.
                Places::Near(base, offsets) => {
                    for lane in lanes_of(core.mask) {
                        let to = base.add(offsets[lane] as usize).cast::<T>();
                        for part in 0..COUNT {
                            to.add(part)
                                .write_unaligned(core.lane(inst.slots[part], lane));
                        }
                    }
                }
                Places::Scattered(pointers) => {
                    for lane in lanes_of(core.mask) {
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
enum Places<T> {
    /// Of all 32 lanes, one behind the other from here on.
    Row(*mut T),
    /// Of every lane at an offset in bytes from here; lanes out of the mask stand where one of the mask does.
    Near(*mut u8, [u64; WARP]),
    /// Of each lane of the mask by itself.
    Scattered([*mut T; WARP]),
}

/// Checks the addresses of the mask's lanes.
///
/// # Safety
/// As [`Run`]; the address is in `slots[COUNT]`.
#[inline(always)]
unsafe fn places<T: Lane, A: Location, const SPACE: u8, const COUNT: usize>(
    core: &mut Core<'_>,
    inst: &Inst,
    access: Access,
) -> Result<Places<T>, Flow> {
    let size = (size_of::<T>() * COUNT) as u64;
    let offset = offset_of(SPACE, inst.immediate);
    let space = space_of(SPACE, inst.immediate);
    // SAFETY: the decoder laid out an address register there.
    let at = |lane: usize, core: &Core<'_>| unsafe {
        core.lane::<A>(inst.slots[COUNT], lane).at(offset)
    };
    let mask = core.mask;
    if core.instrumented {
        let addresses = std::array::from_fn(|lane| at(lane, core));
        core.instrument(inst, &addresses, space, size, access)?;
    }
    let first = at(mask.trailing_zeros() as usize & (WARP - 1), core);
    // What most accesses are to: the stretch of memory that the first lane's address lies in.
    let stretch = match SPACE {
        GLOBAL => core
            .region(first, size)
            .filter(|region| region.writable || access == Access::Read)
            .map(|region| (region.host, region.start, region.end - region.start)),
        SHARED => Some((core.shared, 0, u64::from(core.shared_bytes))),
        _ => None,
    };
    if let Some((host, start, bytes)) = stretch
        && bytes >= size
    {
        // Sums of bits instead of comparisons, which the compiler turns into a few vector instructions: the top bit of
        // `outside` is set by a lane that is beyond the stretch (of less than 2^63 bytes) or before it, the low bits of
        // `bits` by one that is not aligned, any bit of `row` by one that does not follow its neighbour.
        let (mut outside, mut bits, mut row) = (0, start, 0);
        let mut offsets = [0; WARP];
        let last = bytes - size;
        for (lane, relative) in offsets.iter_mut().enumerate() {
            // Lanes that take no part stand where a lane does that takes part.
            let address = at(lane, core);
            let taking = mask == u32::MAX || mask >> lane & 1 != 0;
            let address = if taking { address } else { first };
            *relative = address.wrapping_sub(start);
            outside |= last.wrapping_sub(*relative) | *relative;
            bits |= *relative;
            row |= address ^ first.wrapping_add(lane as u64 * size);
        }
        if outside >> 63 == 0 && bits & (size - 1) == 0 {
            return Ok(if row == 0 && mask == u32::MAX {
                // SAFETY: the first lane's element lies in the stretch.
                Places::Row(unsafe { host.add(offsets[0] as usize) }.cast())
            } else {
                Places::Near(host, offsets)
            });
        }
    }
    let mut pointers = [std::ptr::null_mut(); WARP];
    for lane in lanes_of(mask) {
        let (address, size) = (at(lane, core), size as u32);
        let pointer = core.locate_unchecked(inst, lane, space, address, size, size, access)?;
        pointers[lane] = pointer.cast();
    }
    Ok(Places::Scattered(pointers))
}
