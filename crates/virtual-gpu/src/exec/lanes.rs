//! Registers of a warp, lane by lane: what a lane's value is, and handlers made from a function of one lane.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::core::Core;
use super::instruction::{Flow, Handler, Inst};

/// Threads of a warp.
pub(crate) const WARP: usize = 32;

/// A value that a lane's register holds. The register is `Raw`: `u32` for up to 32 bits (the bits above the value are
/// ignored when read; written, they are the sign of a signed integer and else zero), `u64` for 64.
pub(crate) trait Lane: Copy + 'static {
    /// The register of one lane.
    type Raw: Copy + Default + 'static;
    /// The value in a register.
    fn from_raw(raw: Self::Raw) -> Self;
    /// The register with a value.
    fn to_raw(self) -> Self::Raw;
}

macro_rules! lanes {
    ($($ty:ty, $raw:ty, $from:expr, $to:expr;)*) => {$(
        impl Lane for $ty {
            type Raw = $raw;
            #[inline(always)]
            fn from_raw(raw: $raw) -> Self {
                let from: fn($raw) -> $ty = $from;
                from(raw)
            }
            #[inline(always)]
            fn to_raw(self) -> $raw {
                let to: fn($ty) -> $raw = $to;
                to(self)
            }
        }
    )*};
}

lanes! {
    u8, u32, |raw| raw as u8, u32::from;
    i8, u32, |raw| raw as i8, |value| value as u32;
    u16, u32, |raw| raw as u16, u32::from;
    i16, u32, |raw| raw as i16, |value| value as u32;
    u32, u32, |raw| raw, |value| value;
    i32, u32, |raw| raw as i32, |value| value as u32;
    u64, u64, |raw| raw, |value| value;
    i64, u64, |raw| raw as i64, |value| value as u64;
    f32, u32, f32::from_bits, f32::to_bits;
    f64, u64, f64::from_bits, f64::to_bits;
    f16, u32, |raw| f16::from_bits(raw as u16), |value| u32::from(value.to_bits());
    bf16, u32, |raw| bf16::from_bits(raw as u16), |value| u32::from(value.to_bits());
}

/// Two 16-bit values in one register, the first in the low half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair<T>(pub(crate) T, pub(crate) T);

impl<T: Lane<Raw = u32>> Lane for Pair<T> {
    type Raw = u32;
    #[inline(always)]
    fn from_raw(raw: u32) -> Self {
        Pair(T::from_raw(raw & 0xffff), T::from_raw(raw >> 16))
    }
    #[inline(always)]
    fn to_raw(self) -> u32 {
        self.0.to_raw() & 0xffff | self.1.to_raw() << 16
    }
}

/// The lanes that a mask names, from the lowest on.
#[inline(always)]
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> + Clone {
    (0..WARP).filter(move |lane| mask >> lane & 1 != 0)
}

/// The lanes of `mask` whose value is that of its lowest lane.
#[inline(always)]
pub(crate) fn same<T: Copy + PartialEq>(values: &[T; WARP], mask: u32) -> u32 {
    let value = values[mask.trailing_zeros() as usize];
    let mut equal = 0;
    for (lane, other) in values.iter().enumerate() {
        equal |= u32::from(*other == value) << lane;
    }
    equal & mask
}

/// Computes every lane of a slot and keeps those of the mask: `store_lanes!(core, T, slot, |lane| value)`, in `unsafe`.
/// The value may read the lane with its own number from any register. A macro and not a function of a closure, because
/// a closure that is not inlined is compiled without the handler's instruction set.
macro_rules! store_lanes {
    ($core:expr, $ty:ty, $slot:expr, |$lane:ident| $value:expr) => {
        $crate::exec::lanes::store_lanes!($core, $ty, $slot, 8, |$lane| $value)
    };
    // The same with `chunk` lanes at a time, a divisor of 32.
    ($core:expr, $ty:ty, $slot:expr, $chunk:expr, |$lane:ident| $value:expr) => {{
        let core: &$crate::exec::core::Core<'_> = &*$core;
        for first in (0..$crate::exec::lanes::WARP).step_by($chunk) {
            let mut values = [<$ty as $crate::exec::lanes::Lane>::Raw::default(); $chunk];
            for (offset, slot) in values.iter_mut().enumerate() {
                let $lane = first + offset;
                let value: $ty = $value;
                *slot = $crate::exec::lanes::Lane::to_raw(value);
            }
            core.put_lanes::<$ty, { $chunk }>($slot, first, values);
        }
    }};
}
pub(crate) use store_lanes;

impl Core<'_> {
    /// All lanes of a register.
    ///
    /// # Safety
    /// `slot` is one of the running instruction's, of `T`'s kind. The reference must be gone before the slot is written.
    #[inline(always)]
    pub(crate) unsafe fn read<T: Lane>(&self, slot: u32) -> &[T::Raw; WARP] {
        // SAFETY: the frame holds 32 lanes of `T::Raw` at every slot of this kind, aligned to 64 bytes.
        unsafe { &*self.frame.add(slot as usize).cast::<[T::Raw; WARP]>() }
    }

    /// All lanes of a register, to be written; lanes out of `core.mask` must keep their value unless `core.dead`
    /// names them.
    ///
    /// # Safety
    /// As [`Core::read`]; no other reference to the slot may be alive.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "the frame is behind a pointer; the caller keeps references apart"
    )]
    pub(crate) unsafe fn write<T: Lane>(&self, slot: u32) -> &mut [T::Raw; WARP] {
        // SAFETY: as above, and the caller says that nothing else refers to it.
        unsafe { &mut *self.frame.add(slot as usize).cast::<[T::Raw; WARP]>() }
    }

    /// Sets the lanes from `first` on, those that the mask names.
    ///
    /// # Safety
    /// As [`Core::write`]; `first + CHUNK` is at most 32.
    #[inline(always)]
    pub(crate) unsafe fn put_lanes<T: Lane, const CHUNK: usize>(
        &self,
        slot: u32,
        first: usize,
        mut values: [T::Raw; CHUNK],
    ) {
        // SAFETY: the frame holds 32 lanes of `T::Raw` at the slot. A pointer, because a source may be the same register.
        unsafe {
            let lanes = self.frame.add(slot as usize).cast::<T::Raw>().add(first);
            if self.mask | self.dead != u32::MAX {
                // All are read, so that the compiler selects without branches.
                let old = lanes.cast::<[T::Raw; CHUNK]>().read();
                let mask = self.mask >> first;
                for (offset, (value, old)) in values.iter_mut().zip(old).enumerate() {
                    *value = if mask >> offset & 1 == 0 { old } else { *value };
                }
            }
            lanes.cast::<[T::Raw; CHUNK]>().write(values);
        }
    }

    /// One lane of a register.
    ///
    /// # Safety
    /// As [`Core::read`]; `lane` is below 32.
    #[inline(always)]
    pub(crate) unsafe fn lane<T: Lane>(&self, slot: u32, lane: usize) -> T {
        debug_assert!(lane < WARP);
        // SAFETY: the slot has 32 lanes.
        T::from_raw(unsafe { *self.frame.add(slot as usize).cast::<T::Raw>().add(lane) })
    }

    /// Sets one lane of a register.
    ///
    /// # Safety
    /// As [`Core::lane`].
    #[inline(always)]
    pub(crate) unsafe fn set_lane<T: Lane>(&self, slot: u32, lane: usize, value: T) {
        debug_assert!(lane < WARP);
        // SAFETY: the slot has 32 lanes.
        unsafe { *self.frame.add(slot as usize).cast::<T::Raw>().add(lane) = value.to_raw() }
    }

    /// A predicate: one bit per lane.
    ///
    /// # Safety
    /// `slot` is a predicate's, of the running instruction.
    #[inline(always)]
    pub(crate) unsafe fn predicate(&self, slot: u32) -> u32 {
        // SAFETY: the frame holds a word there.
        unsafe { *self.frame.add(slot as usize).cast::<u32>() }
    }

    /// Sets the bits of a predicate that `core.mask` names.
    ///
    /// # Safety
    /// As [`Core::predicate`].
    #[inline(always)]
    pub(crate) unsafe fn set_predicate(&self, slot: u32, bits: u32) {
        // SAFETY: the frame holds a word there.
        let word = unsafe { &mut *self.frame.add(slot as usize).cast::<u32>() };
        *word = *word & !self.mask | bits & self.mask;
    }

    /// Computes every lane of `slot` and keeps those of the mask. `value` may read the lane with its own number
    /// from any register.
    ///
    /// # Safety
    /// As [`Core::write`].
    #[inline(always)]
    pub(crate) unsafe fn store_lanes<T: Lane>(&self, slot: u32, value: impl Fn(usize) -> T) {
        // SAFETY: 32 lanes of `T::Raw` are there, and every chunk ends at 32 or before.
        unsafe { store_lanes!(self, T, slot, |lane| value(lane)) };
    }
}

/// A function of one lane with one operand.
pub(crate) trait Function1 {
    /// Operand.
    type A: Lane;
    /// Result.
    type D: Lane;
    /// The function; must be total (it also runs for lanes that are dead).
    fn call(a: Self::A) -> Self::D;
}

/// A function of one lane with two operands.
pub(crate) trait Function2 {
    /// First operand.
    type A: Lane;
    /// Second operand.
    type B: Lane;
    /// Result.
    type D: Lane;
    /// The function; must be total.
    fn call(a: Self::A, b: Self::B) -> Self::D;
}

/// A function of one lane with three operands.
pub(crate) trait Function3 {
    /// First operand.
    type A: Lane;
    /// Second operand.
    type B: Lane;
    /// Third operand.
    type C: Lane;
    /// Result.
    type D: Lane;
    /// The function; must be total.
    fn call(a: Self::A, b: Self::B, c: Self::C) -> Self::D;
}

/// Functions of one lane that are generic over a kind of number: `Name: Function2(a: A = T, b: B = T) -> T = formula;`.
macro_rules! lane_functions {
    ($bound:ident; $($name:ident: $trait:ident($($arg:ident: $arg_ty:ident = $arg_type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: $bound> $trait for $name<T> {
            $(type $arg_ty = $arg_type;)*
            type D = $result;
            #[inline(always)]
            fn call($($arg: $arg_type),*) -> $result { $body }
        }
    )*};
}
pub(crate) use lane_functions;

/// `slots = [d, a]`
pub(crate) struct Map1<F>(PhantomData<F>);

impl<F: Function1> Handler for Map1<F> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out by `F`'s types.
        unsafe { store_lanes!(core, F::D, d, |lane| F::call(core.lane(a, lane))) };
        Flow::Next
    }
}

/// `slots = [d, a, b]`
pub(crate) struct Map2<F>(PhantomData<F>);

impl<F: Function2> Handler for Map2<F> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out by `F`'s types.
        unsafe {
            store_lanes!(core, F::D, d, |lane| F::call(
                core.lane(a, lane),
                core.lane(b, lane)
            ))
        };
        Flow::Next
    }
}

/// `slots = [d, a, b, c]`
pub(crate) struct Map3<F>(PhantomData<F>);

impl<F: Function3> Handler for Map3<F> {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        let [d, a, b, c, ..] = inst.slots;
        // SAFETY: the decoder laid the slots out by `F`'s types.
        unsafe {
            store_lanes!(core, F::D, d, |lane| F::call(
                core.lane(a, lane),
                core.lane(b, lane),
                core.lane(c, lane)
            ));
        }
        Flow::Next
    }
}
