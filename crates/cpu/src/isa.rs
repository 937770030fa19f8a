//! Which instruction set the CPU's kernels run on.
//!
//! It changes speed only: every instruction set gives the same bits.

use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every CPU of the target architecture has.
    Scalar,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, DQ, BW and VL.
    Avx512,
}

/// The instruction set in use: the best this CPU has, or what `FIRECLAY_ISA` (`scalar`, `avx2` or `avx512`) asked for
/// when it was first needed. What the CPU lacks, or an unknown word, is ignored.
#[inline]
pub fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(|| {
        let asked = std::env::var("FIRECLAY_ISA");
        choose(asked.ok().as_deref(), &supported())
    })
}

/// The instruction sets this CPU has, the best last.
pub fn supported() -> Vec<Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.is_supported())
        .collect()
}

impl Isa {
    /// Whether this CPU has the instruction set.
    pub fn is_supported(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }
}

/// The instruction set called `asked` if that is among `supported`, else the last of them.
fn choose(asked: Option<&str>, supported: &[Isa]) -> Isa {
    let asked = match asked {
        Some("scalar") => Some(Isa::Scalar),
        Some("avx2") => Some(Isa::Avx2),
        Some("avx512") => Some(Isa::Avx512),
        _ => None,
    };
    asked
        .filter(|isa| supported.contains(isa))
        .or(supported.last().copied())
        .unwrap_or(Isa::Scalar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_or_missing_instruction_set_falls_back() {
        let some = [Isa::Scalar, Isa::Avx2];
        assert_eq!(choose(None, &some), Isa::Avx2);
        assert_eq!(choose(Some("avx512"), &some), Isa::Avx2);
        assert_eq!(choose(Some("mmx"), &some), Isa::Avx2);
        assert_eq!(choose(Some("scalar"), &some), Isa::Scalar);
    }

    #[test]
    fn the_one_in_use_is_supported() {
        assert!(isa().is_supported());
        assert_eq!(supported()[0], Isa::Scalar);
    }
}
