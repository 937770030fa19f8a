//! How exactly matrix products of f32 are computed on devices: PyTorch's switch for tf32.

use std::sync::atomic::{AtomicU8, Ordering};

/// How matrix products of f32 may be computed on a device (`torch.set_float32_matmul_precision`). The CPU computes in f32 always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Float32MatmulPrecision {
    /// In f32: the same bits as the CPU's.
    #[default]
    Highest,
    /// Operands may be rounded to tf32, which has 10 bits of fraction instead of 23; sums are f32. From compute capability 8.0 on this
    /// uses tensor cores; older devices compute in f32.
    High,
    /// As `High`. PyTorch may round to bf16 here; nothing does so in Fireclay.
    Medium,
}

/// The setting of the process, as its number among the values.
static OF_PROCESS: AtomicU8 = AtomicU8::new(Float32MatmulPrecision::Highest as u8);

/// Sets how matrix products of f32 may be computed on devices, for all threads (`torch.set_float32_matmul_precision`); `Highest`
/// unless it is called.
///
/// Products that run on other threads at the same time may follow the old or the new setting.
///
/// ```
/// use fireclay_tensor::{Float32MatmulPrecision, allow_tf32, set_float32_matmul_precision};
///
/// assert!(!allow_tf32());
/// set_float32_matmul_precision(Float32MatmulPrecision::High);
/// assert!(allow_tf32());
/// # set_float32_matmul_precision(Float32MatmulPrecision::Highest);
/// ```
pub fn set_float32_matmul_precision(precision: Float32MatmulPrecision) {
    OF_PROCESS.store(precision as u8, Ordering::Relaxed);
}

/// How matrix products of f32 may be computed on devices (`torch.get_float32_matmul_precision`).
pub fn get_float32_matmul_precision() -> Float32MatmulPrecision {
    match OF_PROCESS.load(Ordering::Relaxed) {
        0 => Float32MatmulPrecision::Highest,
        1 => Float32MatmulPrecision::High,
        _ => Float32MatmulPrecision::Medium,
    }
}

/// Whether matrix products of f32 on a device may round their operands to tf32 (`torch.backends.cuda.matmul.allow_tf32`).
pub fn allow_tf32() -> bool {
    get_float32_matmul_precision() != Float32MatmulPrecision::Highest
}

/// Sets whether matrix products of f32 on a device may round their operands to tf32 (`torch.backends.cuda.matmul.allow_tf32 = ..`):
/// the precision `High` or `Highest`.
pub fn set_allow_tf32(allow: bool) {
    set_float32_matmul_precision(match allow {
        true => Float32MatmulPrecision::High,
        false => Float32MatmulPrecision::Highest,
    });
}
