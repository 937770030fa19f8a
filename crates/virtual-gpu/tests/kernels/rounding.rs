//! IEEE operations in every rounding, from the rounded-to-nearest result and the sign of what it lost.
//!
//! Right for operands whose exponents are moderate: no result may be subnormal or overflow.

/// The four directions, in the order the kernels use: nearest, toward zero, down, up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

pub(crate) const ROUNDINGS: [Rounding; 4] = [
    Rounding::Nearest,
    Rounding::Zero,
    Rounding::Down,
    Rounding::Up,
];

macro_rules! exact {
    ($module:ident, $ty:ty) => {
        pub(crate) mod $module {
            use super::Rounding;

            /// `nearest` is the result rounded to nearest, `lost` has the sign of the exact result minus it.
            fn direct(nearest: $ty, lost: $ty, to: Rounding) -> $ty {
                let (down, up) = match to {
                    Rounding::Nearest => (false, false),
                    Rounding::Zero => (nearest > 0.0, nearest < 0.0),
                    Rounding::Down => (true, false),
                    Rounding::Up => (false, true),
                };
                if lost < 0.0 && down {
                    nearest.next_down()
                } else if lost > 0.0 && up {
                    nearest.next_up()
                } else {
                    nearest
                }
            }

            /// The rounded sum, and exactly what it lost.
            fn two_sum(a: $ty, b: $ty) -> ($ty, $ty) {
                let sum = a + b;
                let part = sum - a;
                (sum, (a - (sum - part)) + (b - part))
            }

            /// An exact zero out of operands that are not is -0 when rounding down.
            fn zero(value: $ty, to: Rounding) -> $ty {
                if value == 0.0 && matches!(to, Rounding::Down) {
                    -0.0
                } else {
                    value
                }
            }

            pub(crate) fn add(a: $ty, b: $ty, to: Rounding) -> $ty {
                let (sum, lost) = two_sum(a, b);
                zero(direct(sum, lost, to), to)
            }
            pub(crate) fn multiply(a: $ty, b: $ty, to: Rounding) -> $ty {
                let product = a * b;
                direct(product, a.mul_add(b, -product), to)
            }
            pub(crate) fn fma(a: $ty, b: $ty, c: $ty, to: Rounding) -> $ty {
                let nearest = a.mul_add(b, c);
                let product = a * b;
                let (sum, lost_sum) = two_sum(product, c);
                let (rest, last) = two_sum(lost_sum, a.mul_add(b, -product));
                let lost = (sum - nearest) + rest;
                zero(
                    direct(nearest, if lost == 0.0 { last } else { lost }, to),
                    to,
                )
            }
            pub(crate) fn divide(a: $ty, b: $ty, to: Rounding) -> $ty {
                let quotient = a / b;
                direct(quotient, (-quotient).mul_add(b, a) * b.signum(), to)
            }
            pub(crate) fn sqrt(a: $ty, to: Rounding) -> $ty {
                let root = a.sqrt();
                direct(root, (-root).mul_add(root, a), to)
            }
        }
    };
}
exact!(single, f32);
exact!(double, f64);

#[test]
fn single_roundings_agree_with_f64() {
    let mut draw = crate::draw::Draw::new(11);
    for _ in 0..20_000 {
        let (a, b, c) = (
            draw.real(-9.0, 9.0) as f32,
            draw.real(-9.0, 9.0) as f32,
            draw.real(-9.0, 9.0) as f32,
        );
        for to in ROUNDINGS {
            let (x, y) = (f64::from(a), f64::from(b));
            check(single::multiply(a, b, to), x * y, to);
            // f64 has twice the digits and more; only a tie of its own could mislead, and none is drawn.
            check(single::divide(a, b, to), x / y, to);
            check(single::add(a, b, to), x + y, to);
            check(single::fma(a, b, c, to), x.mul_add(y, f64::from(c)), to);
            check(single::sqrt(a.abs(), to), x.abs().sqrt(), to);
        }
    }
    assert_eq!(
        single::add(1.0, -1.0, Rounding::Down).to_bits(),
        (-0.0f32).to_bits()
    );
    assert_eq!(
        double::divide(1.0, 3.0, Rounding::Up),
        (1.0f64 / 3.0).next_up()
    );
    assert_eq!(double::divide(-1.0, 3.0, Rounding::Zero), -1.0 / 3.0);
}

#[cfg(test)]
fn check(found: f32, exact: f64, to: Rounding) {
    let value = f64::from(found);
    let is_right = match to {
        Rounding::Nearest => found == exact as f32,
        Rounding::Down => value <= exact && f64::from(found.next_up()) > exact,
        Rounding::Up => value >= exact && f64::from(found.next_down()) < exact,
        Rounding::Zero if exact >= 0.0 => value <= exact && f64::from(found.next_up()) > exact,
        Rounding::Zero => value >= exact && f64::from(found.next_down()) < exact,
    };
    assert!(is_right, "{found} for {exact} {to:?}");
}
