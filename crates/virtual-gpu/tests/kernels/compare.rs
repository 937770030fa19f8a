//! Verdicts on what a kernel wrote: the same bits, or near enough.

use std::fmt::Debug;

/// Fails at the first value that differs.
#[track_caller]
pub(crate) fn same<T: PartialEq + Debug>(what: &str, found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected,
            "{what}: at {at} found {found:?}, expected {expected:?}"
        );
    }
}

/// A float whose bits are compared.
pub(crate) trait Float: Copy + Debug {
    /// Whether both have the same bits, or both are NaN.
    fn is_same(self, other: Self) -> bool;
    fn to_f64(self) -> f64;
}

macro_rules! floats {
    ($($ty:ty: $to_f64:expr;)*) => {$(
        impl Float for $ty {
            fn is_same(self, other: $ty) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
            fn to_f64(self) -> f64 {
                $to_f64(self)
            }
        }
    )*};
}
floats! {
    f32: f64::from;
    f64: |x| x;
    half::f16: |x: half::f16| x.to_f64();
    half::bf16: |x: half::bf16| x.to_f64();
}

/// Fails at the first value whose bits differ; every NaN is like every other.
#[track_caller]
pub(crate) fn same_bits<T: Float>(what: &str, found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found.is_same(*expected),
            "{what}: at {at} found {found:?}, expected {expected:?}"
        );
    }
}

/// Fails at the first value further from the expected one than `absolute` plus `relative` of it.
#[track_caller]
pub(crate) fn near<T: Float>(
    what: &str,
    found: &[T],
    expected: &[f64],
    relative: f64,
    absolute: f64,
) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (at, (found, &expected)) in found.iter().zip(expected).enumerate() {
        let value = found.to_f64();
        let is_near = match expected {
            _ if expected.is_nan() => value.is_nan(),
            _ if expected.is_infinite() => value == expected,
            _ => (value - expected).abs() <= absolute + relative * expected.abs(),
        };
        assert!(
            is_near,
            "{what}: at {at} found {found:?}, expected {expected:?}"
        );
    }
}

/// The error function, by the series whose terms are all positive.
pub(crate) fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (size, size, 0.0);
    while term > sum * 1e-18 {
        n += 1.0;
        term *= 2.0 * size * size / (2.0 * n + 1.0);
        sum += term;
    }
    let value = std::f64::consts::FRAC_2_SQRT_PI * (-size * size).exp() * sum;
    value.copysign(x)
}

#[test]
fn erf_has_its_known_values() {
    near(
        "erf",
        &[erf(0.5), erf(-1.0), erf(2.0)],
        &[0.5204998778130465, -0.8427007929497149, 0.9953222650189527],
        1e-14,
        0.0,
    );
    assert_eq!(erf(0.0), 0.0);
}

#[test]
#[should_panic(expected = "at 1 found 2.1")]
fn far_values_are_named() {
    near("x", &[1.0f32, 2.1], &[1.0, 2.0], 1e-3, 0.0);
}
