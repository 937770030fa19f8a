//! Sums and products with their rounding errors, and numbers kept as such a pair.
//!
//! The algorithms are Knuth's and Dekker's (see Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., ch. 4).

use crate::arith::Arith;

/// The number `hi + lo`, where `lo` is of the size of `hi`'s rounding error.
#[derive(Clone, Copy)]
pub(super) struct Pair<A> {
    pub(super) hi: A,
    pub(super) lo: A,
}

/// `a + b` exactly.
#[inline(always)]
pub(super) fn two_sum<A: Arith>(a: A, b: A) -> Pair<A> {
    let hi = a + b;
    let b_seen = hi - a;
    let lo = (a - (hi - b_seen)) + (b - b_seen);
    Pair { hi, lo }
}

/// `a + b` exactly, where `|a| >= |b|` or `a` is 0.
#[inline(always)]
pub(super) fn quick_two_sum<A: Arith>(a: A, b: A) -> Pair<A> {
    let hi = a + b;
    Pair {
        hi,
        lo: b - (hi - a),
    }
}

/// `a * b` exactly, unless it underflows.
#[inline(always)]
pub(super) fn two_product<A: Arith>(a: A, b: A) -> Pair<A> {
    let hi = a * b;
    Pair {
        hi,
        lo: a.mul_add(b, -hi),
    }
}

/// What the nearest f64 leaves of ln(2), log2(e), log10(e), log10(2) and pi/2.
pub(super) const LN_2_LOW: f64 = 2.3190468138462996e-17;
pub(super) const LOG2_E_LOW: f64 = 2.0355273740931033e-17;
pub(super) const LOG10_E_LOW: f64 = 1.098319650216765e-17;
pub(super) const LOG10_2_LOW: f64 = -2.8037281277851704e-18;
pub(super) const FRAC_PI_2_LOW: f64 = 6.123233995736766e-17;

impl<A: Arith> Pair<A> {
    /// A constant given as the sum of two f64, to twice the precision of the lanes.
    #[inline(always)]
    pub(super) fn of(hi: f64, lo: f64) -> Self {
        if A::DOUBLE {
            return Pair {
                hi: A::of(hi),
                lo: A::of(lo),
            };
        }
        let single = f64::from(hi as f32);
        Pair {
            hi: A::of(single),
            lo: A::of(hi - single),
        }
    }

    /// The product, to almost twice the precision of the lanes.
    #[inline(always)]
    pub(super) fn mul(self, other: Self) -> Self {
        let product = two_product(self.hi, other.hi);
        let cross = self.hi.mul_add(other.lo, self.lo * other.hi);
        quick_two_sum(product.hi, product.lo + cross)
    }

    /// The same number with `lo` no more than half a unit in the last place of `hi`, where `|hi| >= |lo|`.
    #[inline(always)]
    pub(super) fn normalized(self) -> Self {
        quick_two_sum(self.hi, self.lo)
    }
}
