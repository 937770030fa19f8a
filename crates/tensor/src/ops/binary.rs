//! Pointwise functions of two and three operands, one row each. Operands are tensors or plain numbers.

use fireclay_core::arith::Num;
use fireclay_core::math;

use super::row::{in_place, pointwise};

/// `x^y` of whole numbers, by the binary digits of `y`.
#[inline(always)]
fn whole_power<A: Num>(x: A, y: A) -> A {
    let mut squares = [x; 63];
    for digit in 1..63 {
        squares[digit] = squares[digit - 1] * squares[digit - 1];
    }
    let (mut power, mut left) = (A::int(1), y.abs());
    for digit in (0..63).rev() {
        let value = A::int(1 << digit);
        let is_set = left.ge(value);
        power = A::select(is_set, power * squares[digit], power);
        left = A::select(is_set, left - value, left);
    }
    let is_unit = (x * x).eq(A::int(1)) & (x.eq(A::int(1)) | x.eq(A::int(-1)));
    A::select(y.ge(A::int(0)) | is_unit, power, A::int(0))
}

pointwise! {
    /// `x + y`, with broadcasting and promotion (`torch.add`). Bools add to their "or".
    Add, add(x, y), Promote, saves Saves::NONE, autocast Keep,
        eval number { x + y }, grad(r, g) { [Some(g.clone()), Some(g.clone())] };
    /// `x - y` (`torch.sub`).
    Sub, sub(x, y), PromoteNumber, saves Saves::NONE, autocast Keep,
        eval number { x - y }, grad(r, g) { [Some(g.clone()), Some(-g)] };
    /// `x * y` (`torch.mul`).
    Mul, mul(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x * y }, grad(r, g) { [Some(g * y), Some(g * x)] };
    /// `x / y`; whole numbers become f32 (`torch.div`).
    Div, div(x, y), Float, saves Saves::INPUTS, autocast Keep,
        eval float { x / y }, grad(r, g) { [Some(g / y), Some(-(g * x / (y * y)))] };
    /// `x^y` (`torch.pow`). Whole numbers wrap around on overflow; of a negative exponent comes 0, but for `x` of 1 and -1.
    Pow, pow(x, y), Power, saves Saves::INPUTS, autocast F32,
        eval float_or_whole { math::pow(x, y); whole_power(x, y) },
        grad(r, g) { [
            Some(y.eq(0.0).where_(0.0, g * y * x.pow(y - 1.0))),
            Some(x.eq(0.0).where_(y.ge(0.0).where_(0.0, g * x.pow(y) * x.log()), g * x.pow(y) * x.log())),
        ] };
    /// Angle of the point `(y, x)`, in radians (`torch.atan2(x, y)`: the first operand is the ordinate).
    Atan2, atan2(x, y), Float, saves Saves::INPUTS, autocast Widest,
        eval float { math::atan2(x, y) },
        grad(r, g) { {
            let square = x * x + y * y;
            [Some(g * y / &square), Some(-(g * x / &square))]
        } };
    /// The larger of the two; NaN where either is (`torch.maximum`). A tie shares the gradient.
    Maximum, maximum(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x.maximum(y) },
        grad(r, g) { {
            let tie = x.eq(y).where_(0.5, 1.0);
            [Some(x.ge(y).where_(g * &tie, 0.0)), Some(y.ge(x).where_(g * &tie, 0.0))]
        } };
    /// The smaller of the two; NaN where either is (`torch.minimum`). A tie shares the gradient.
    Minimum, minimum(x, y), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x.minimum(y) },
        grad(r, g) { {
            let tie = x.eq(y).where_(0.5, 1.0);
            [Some(x.le(y).where_(g * &tie, 0.0)), Some(y.le(x).where_(g * &tie, 0.0))]
        } };
    /// `x == y` (`torch.eq`).
    Eq, eq(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.eq(y)) }, grad(r, g) { [None, None] };
    /// `x != y` (`torch.ne`).
    Ne, ne(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.ne(y)) }, grad(r, g) { [None, None] };
    /// `x < y` (`torch.lt`).
    Lt, lt(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.lt(y)) }, grad(r, g) { [None, None] };
    /// `x <= y` (`torch.le`).
    Le, le(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.le(y)) }, grad(r, g) { [None, None] };
    /// `x > y` (`torch.gt`).
    Gt, gt(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.gt(y)) }, grad(r, g) { [None, None] };
    /// `x >= y` (`torch.ge`).
    Ge, ge(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.ge(y)) }, grad(r, g) { [None, None] };
    /// Whether both are not zero (`torch.logical_and`).
    LogicalAnd, logical_and(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.is_true() & y.is_true()) }, grad(r, g) { [None, None] };
    /// Whether either is not zero (`torch.logical_or`).
    LogicalOr, logical_or(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth(x.is_true() | y.is_true()) }, grad(r, g) { [None, None] };
    /// Whether just one is not zero (`torch.logical_xor`).
    LogicalXor, logical_xor(x, y), Bool, saves Saves::NONE, autocast Keep,
        eval number { A::truth((x.is_true() & !y.is_true()) | (!x.is_true() & y.is_true())) }, grad(r, g) { [None, None] };
    /// `x` where that is positive, `x * slope` elsewhere (`torch.nn.functional.leaky_relu`).
    LeakyRelu, leaky_relu(x, slope), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { A::select(x.gt(A::int(0)), x, x * slope) },
        grad(r, g) { [Some(x.gt(0.0).where_(g, g * slope)), Some(x.gt(0.0).where_(0.0, g * x))] };
    /// `x` where that is positive, `alpha * (e^x - 1)` elsewhere (`torch.nn.functional.elu`).
    Elu, elu(x, alpha), Promote, saves Saves::INPUTS, autocast Keep,
        eval float { A::select(x.gt(A::int(0)), x, alpha * math::expm1(x)) },
        grad(r, g) { [Some(x.gt(0.0).where_(g, g * alpha * x.exp())), Some(x.gt(0.0).where_(0.0, g * x.expm1()))] };
    /// `log(1 + e^(beta x)) / beta`, `x` where `beta x` exceeds `threshold` (`torch.nn.functional.softplus`).
    Softplus, softplus(x, beta, threshold), Promote, saves Saves::INPUTS, autocast F32,
        eval float { {
            let scaled = x * beta;
            A::select(scaled.gt(threshold), x, math::log1p(math::exp(scaled)) / beta)
        } },
        grad(r, g) { {
            let scaled = x * beta;
            [Some(scaled.gt(threshold).where_(g, g * scaled.sigmoid())), None, None]
        } };
    /// `x` kept between `min` and `max`; NaN stays (`torch.clamp`). Outside of them the derivative is 0.
    Clamp, clamp(x, min, max), Promote, saves Saves::INPUTS, autocast Keep,
        eval number { x.maximum(min).minimum(max) },
        grad(r, g) { {
            let inside = x.ge(min).logical_and(x.le(max));
            let low = x.lt(min).logical_and(min.lt(max));
            let high = x.gt(max).logical_or(max.le(min));
            [Some(inside.where_(g, 0.0)), Some(low.where_(g, 0.0)), Some(high.where_(g, 0.0))]
        } };
    /// `x` where `self` is true, `y` elsewhere (`torch.where(self, x, y)`).
    Where, where_(condition, x, y), Choice, saves Saves::inputs(&[0]), autocast Keep,
        eval number { A::select(condition.is_true(), x, y) },
        grad(r, g) { [None, Some(condition.where_(g, 0.0)), Some(condition.where_(0.0, g))] };
    /// `x + weight * (end - x)` (`torch.lerp`).
    Lerp, lerp(x, end, weight), Equal, saves Saves::INPUTS, autocast Keep,
        eval float { {
            // From the nearer end: exact at both, and rounded as PyTorch rounds.
            let near = weight.abs().lt(A::of(0.5));
            let factor = A::select(near, weight, weight - A::int(1));
            factor.mul_add(end - x, A::select(near, x, end))
        } },
        grad(r, g) { [Some(g * (1.0 - weight)), Some(g * weight), Some(g * (end - x))] };
}

in_place! {
    Add => add_(other);
    Sub => sub_(other);
    Mul => mul_(other);
    Div => div_(other);
    Pow => pow_(exponent);
    Atan2 => atan2_(other);
    Maximum => maximum_(other);
    Minimum => minimum_(other);
    Eq => eq_(other);
    Ne => ne_(other);
    Lt => lt_(other);
    Le => le_(other);
    Gt => gt_(other);
    Ge => ge_(other);
    LogicalAnd => logical_and_(other);
    LogicalOr => logical_or_(other);
    LogicalXor => logical_xor_(other);
    LeakyRelu => leaky_relu_(slope);
    Elu => elu_(alpha);
    Clamp => clamp_(min, max);
    Lerp => lerp_(end, weight);
}
