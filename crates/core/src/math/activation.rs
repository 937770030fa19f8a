//! Activations of neural networks, as their pointwise ops and the fused matrix products compute them.

use super::error_function::erf;
use super::exponential::exp;
use super::hyperbolic::tanh;
use super::polynomial::at_most;
use crate::arith::{Arith, Num};

/// `max(x, 0)`; NaN for NaN (`torch.relu`).
#[inline(always)]
pub fn relu<A: Num>(x: A) -> A {
    x.maximum(A::int(0))
}

/// `x * Phi(x)`, with the normal distribution's exact `Phi` (`torch.nn.functional.gelu`).
#[inline(always)]
pub fn gelu<A: Arith>(x: A) -> A {
    x * A::of(0.5) * (A::int(1) + erf(x * A::of(std::f64::consts::FRAC_1_SQRT_2)))
}

/// [`gelu`] with `Phi` approximated by `tanh` (`gelu(approximate="tanh")`).
#[inline(always)]
pub fn gelu_tanh<A: Arith>(x: A) -> A {
    let scale = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    let inner = A::of(scale) * (x + A::of(0.044715) * x * x * x);
    A::of(0.5) * x * (A::int(1) + tanh(inner))
}

/// `x * sigmoid(x)` (`torch.nn.functional.silu`).
#[inline(always)]
pub fn silu<A: Arith>(x: A) -> A {
    x / (A::int(1) + exp(-x))
}

/// `x * tanh(log(1 + e^x))` (`torch.nn.functional.mish`).
#[inline(always)]
pub fn mish<A: Arith>(x: A) -> A {
    // With n = e^x (e^x + 2), it is x n / (n + 2), whose quotient is 1 from 20 on.
    let e = exp(at_most(x, A::of(20.0)));
    let n = e * (e + A::of(2.0));
    x * (n / (n + A::of(2.0)))
}
