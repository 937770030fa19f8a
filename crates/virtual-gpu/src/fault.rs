//! Why a kernel ended: what went wrong, where in the grid and where in the text.

use std::fmt;

/// The kind of a fault; each has the driver's error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// An address outside every allocation, or one the device may not use: `CUDA_ERROR_ILLEGAL_ADDRESS`.
    IllegalAddress,
    /// An address that is no multiple of the access's size: `CUDA_ERROR_MISALIGNED_ADDRESS`.
    Misaligned,
    /// A generic address of a space that the instruction does not take: `CUDA_ERROR_INVALID_ADDRESS_SPACE`.
    AddressSpace,
    /// `trap`, or an instruction that cannot be executed with its operands: `CUDA_ERROR_ILLEGAL_INSTRUCTION`.
    IllegalInstruction,
    /// A branch or call to nowhere: `CUDA_ERROR_INVALID_PC`.
    InvalidPc,
    /// A failed `assert`: `CUDA_ERROR_ASSERT`.
    Assert,
    /// The instruction budget is spent: `CUDA_ERROR_LAUNCH_TIMEOUT`.
    Timeout,
    /// Anything else: `CUDA_ERROR_LAUNCH_FAILED`. Checks (races, barriers, uninitialised reads) end so.
    LaunchFailed,
    /// Stack of a thread overflown: `CUDA_ERROR_HARDWARE_STACK_ERROR`.
    StackOverflow,
}

impl FaultKind {
    /// The driver's error code.
    pub fn code(self) -> u32 {
        match self {
            FaultKind::IllegalAddress => 700,
            FaultKind::Timeout => 702,
            FaultKind::Assert => 710,
            FaultKind::StackOverflow => 714,
            FaultKind::IllegalInstruction => 715,
            FaultKind::Misaligned => 716,
            FaultKind::AddressSpace => 717,
            FaultKind::InvalidPc => 718,
            FaultKind::LaunchFailed => 719,
        }
    }
}

/// A fault of a running kernel.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What kind it is.
    pub kind: FaultKind,
    /// What happened, with address and nearest allocation where there is one.
    pub message: String,
    /// The kernel's name.
    pub kernel: String,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread in the block.
    pub thread: [u32; 3],
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// File and line of the CUDA source, where the text says it.
    pub source: Option<(String, u32)>,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [tx, ty, tz] = self.thread;
        write!(
            out,
            "{}: kernel {}, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}), PTX line {}: {}",
            self.message, self.kernel, self.line, self.text
        )?;
        if let Some((file, line)) = &self.source {
            write!(out, " ({file}:{line})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
