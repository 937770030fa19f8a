//! What a reduction combines elements with.

/// An operation that reduces elements of type `T` to one.
pub trait Reduction<T>: Copy + Sync {
    /// What leaves a value as it is; the result of reducing nothing.
    fn identity(self) -> T;
    /// `value` combined with a further element, from which `shift` is subtracted first if the operation asks for it.
    fn step(self, value: T, element: T, shift: T) -> T;
    /// Two values combined, the one of the earlier elements first.
    fn merge(self, first: T, second: T) -> T;
}

/// `torch.sum`. Whole numbers wrap around.
#[derive(Clone, Copy, Debug)]
pub struct Sum;
/// `torch.prod`. Whole numbers wrap around.
#[derive(Clone, Copy, Debug)]
pub struct Prod;
/// `torch.amax`; NaN if any element is. The identity is the least number of the type.
#[derive(Clone, Copy, Debug)]
pub struct Max;
/// `torch.amin`; NaN if any element is. The identity is the greatest number of the type.
#[derive(Clone, Copy, Debug)]
pub struct Min;
/// The sum of the squares.
#[derive(Clone, Copy, Debug)]
pub struct SumSquares;
/// `torch.any` of bools as u8: 1 if any element isn't 0, else 0.
#[derive(Clone, Copy, Debug)]
pub struct Any;
/// `torch.all` of bools as u8: 1 if no element is 0, else 0.
#[derive(Clone, Copy, Debug)]
pub struct All;
/// The sum of the squares of the elements minus their shift.
#[derive(Clone, Copy, Debug)]
pub(super) struct SquaredDeviations;

macro_rules! reduction {
    ($operation:ty, $type:ty, $identity:expr, |$a:ident, $x:ident, $shift:pat_param| $step:expr, |$b:ident, $c:ident| $merge:expr) => {
        impl Reduction<$type> for $operation {
            #[inline(always)]
            fn identity(self) -> $type {
                $identity
            }
            #[inline(always)]
            fn step(self, $a: $type, $x: $type, $shift: $type) -> $type {
                $step
            }
            #[inline(always)]
            fn merge(self, $b: $type, $c: $type) -> $type {
                $merge
            }
        }
    };
}

macro_rules! float_reductions {
    ($type:ty) => {
        reduction!(Sum, $type, 0.0, |a, x, _| a + x, |a, b| a + b);
        reduction!(Prod, $type, 1.0, |a, x, _| a * x, |a, b| a * b);
        reduction!(SumSquares, $type, 0.0, |a, x, _| a + x * x, |a, b| a + b);
        reduction!(
            SquaredDeviations,
            $type,
            0.0,
            |a, x, shift| a + (x - shift) * (x - shift),
            |a, b| a + b
        );
        reduction!(
            Max,
            $type,
            <$type>::NEG_INFINITY,
            |a, x, _| if x > a || x.is_nan() { x } else { a },
            |a, b| { if b > a || b.is_nan() { b } else { a } }
        );
        reduction!(
            Min,
            $type,
            <$type>::INFINITY,
            |a, x, _| if x < a || x.is_nan() { x } else { a },
            |a, b| { if b < a || b.is_nan() { b } else { a } }
        );
    };
}

float_reductions!(f32);
float_reductions!(f64);

reduction!(Sum, i64, 0, |a, x, _| a.wrapping_add(x), |a, b| a
    .wrapping_add(b));
reduction!(Prod, i64, 1, |a, x, _| a.wrapping_mul(x), |a, b| a
    .wrapping_mul(b));
reduction!(Max, i64, i64::MIN, |a, x, _| a.max(x), |a, b| a.max(b));
reduction!(Min, i64, i64::MAX, |a, x, _| a.min(x), |a, b| a.min(b));
reduction!(Any, u8, 0, |a, x, _| a | (x != 0) as u8, |a, b| a | b);
reduction!(All, u8, 1, |a, x, _| a & (x != 0) as u8, |a, b| a & b);
