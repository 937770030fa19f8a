//! The decoded instruction: a function pointer with the places of its operands. A kernel is an array of them.

use super::core::Core;

/// What runs an instruction for the lanes in `core.mask`.
///
/// # Safety
/// The instruction must come from the code that `core` executes, with the frame that its slots were laid out for.
pub(crate) type Run = unsafe fn(&mut Core<'_>, &Inst) -> Flow;

/// How execution goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next one.
    Next,
    /// At `core.target`, for all active lanes.
    Jump,
    /// The group has changed (lanes left, split, called, returned) or waits: the scheduler chooses.
    Schedule,
    /// `core.fault` says why the kernel ends.
    Fault,
}

/// Slots of an instruction that lie in itself; more go to [`super::code::Code::more_slots`].
pub(crate) const INLINE_SLOTS: usize = 6;

/// No predicate before the instruction.
pub(crate) const NO_GUARD: u32 = u32::MAX;

/// A decoded instruction, 48 bytes.
///
/// A slot is the byte offset of a register in the frame: 32 lanes of 4 bytes (types of up to 32 bits) or of 8 bytes
/// (64 bits), or one 4-byte mask for a predicate. Slots of different kinds never overlap. A destination may be the
/// slot of a source of the same kind: an instruction either finishes reading a lane before it writes that lane, or
/// reads all its sources first.
#[derive(Clone, Copy)]
pub(crate) struct Inst {
    /// The handler.
    pub(crate) run: Run,
    /// What it reads and writes: destinations first, then sources, as the handler's doc says. Those that do not fit
    /// are found from `slots[0]` on in the code's `more_slots` (see [`Core::slot`]).
    pub(crate) slots: [u32; INLINE_SLOTS],
    /// Slot of the predicate, or [`NO_GUARD`].
    pub(crate) guard: u32,
    /// Exclusive-ored with the predicate: all ones for `@!p`.
    pub(crate) guard_inverted: u32,
    /// Whatever the handler wants to know: an offset, a branch target, packed options.
    pub(crate) immediate: u64,
}

/// An instruction's meaning, as a type: `run` is compiled once for every instruction set that [`handler`] chooses
/// from, with everything it calls inlined (mark what it calls `#[inline(always)]`).
pub(crate) trait Handler {
    /// Runs the instruction.
    ///
    /// # Safety
    /// As [`Run`].
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow;
}

/// A [`Handler`] of what kernels spend their time in: it is told how many 32-bit lanes a vector register of the machine
/// holds, and [`vector_handler`] compiles it for 512-bit registers too.
pub(crate) trait VectorHandler {
    /// Runs the instruction with vectors of `LANES` lanes of 32 bits: 16, 8 or 4.
    ///
    /// # Safety
    /// As [`Run`]. It is inlined into a function compiled for AVX-512 (F, BW, DQ, VL) if `LANES` is 16, and for AVX2 if it
    /// is 8; with 4 lanes it may be compiled for anything.
    unsafe fn run<const LANES: usize>(core: &mut Core<'_>, inst: &Inst) -> Flow;
}

impl<H: VectorHandler> Handler for H {
    #[inline(always)]
    unsafe fn run(core: &mut Core<'_>, inst: &Inst) -> Flow {
        // SAFETY: the caller keeps `Run`'s promise; four lanes are right for every instruction set.
        unsafe { H::run::<4>(core, inst) }
    }
}

/// The handler compiled for the widest vectors that the machine has.
pub(crate) fn vector_handler<H: VectorHandler>() -> Run {
    #[cfg(target_arch = "x86_64")]
    {
        if *WIDEST {
            return widest::<H>;
        }
        wide_vectors::<H>
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable_vectors::<H>
}

/// The handler compiled for the machine's instruction set. On x86-64 that is AVX2 and what came with it: a second form of
/// every handler would double the time that this crate takes to compile, and [`check_processor`] refuses older processors.
pub(crate) fn handler<H: Handler>() -> Run {
    #[cfg(target_arch = "x86_64")]
    {
        wide::<H>
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable::<H>
}

/// Whether handlers can run here; kernels are only decoded where they can.
pub(crate) fn check_processor() -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    if !*WIDE {
        return Err(
            "the virtual GPU needs a processor with AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT, as those made since \
             2013 (Intel) or 2015 (AMD) have"
                .to_string(),
        );
    }
    Ok(())
}

/// The handler compiled once, for what is rare or does not gain from wide registers.
pub(crate) fn plain_handler<H: Handler>() -> Run {
    portable::<H>
}

/// Whether the machine has what [`wide`] is compiled for.
#[cfg(target_arch = "x86_64")]
static WIDE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("popcnt")
});

/// Whether the machine has what [`widest`] is compiled for.
#[cfg(target_arch = "x86_64")]
static WIDEST: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
    *WIDE
        && std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512vl")
});

/// # Safety
/// As [`Run`], on a machine with these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
unsafe fn widest<H: VectorHandler>(core: &mut Core<'_>, inst: &Inst) -> Flow {
    // SAFETY: the caller keeps `Run`'s promise, and the machine has AVX-512.
    unsafe { H::run::<16>(core, inst) }
}

/// # Safety
/// As [`Run`], on a machine with these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn wide_vectors<H: VectorHandler>(core: &mut Core<'_>, inst: &Inst) -> Flow {
    // SAFETY: the caller keeps `Run`'s promise, and the machine has AVX2.
    unsafe { H::run::<8>(core, inst) }
}

/// # Safety
/// As [`Run`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn portable_vectors<H: VectorHandler>(core: &mut Core<'_>, inst: &Inst) -> Flow {
    // SAFETY: the caller keeps `Run`'s promise.
    unsafe { H::run::<4>(core, inst) }
}

/// # Safety
/// As [`Run`], on a machine with these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn wide<H: Handler>(core: &mut Core<'_>, inst: &Inst) -> Flow {
    // SAFETY: the caller keeps `Run`'s promise.
    unsafe { H::run(core, inst) }
}

/// # Safety
/// As [`Run`].
unsafe fn portable<H: Handler>(core: &mut Core<'_>, inst: &Inst) -> Flow {
    // SAFETY: the caller keeps `Run`'s promise.
    unsafe { H::run(core, inst) }
}
