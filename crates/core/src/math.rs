//! Elementary functions over [`Arith`](crate::arith::Arith): one definition for SIMD, CUDA and fused kernels.
//!
//! Every function is within 2 ulp of the exact value over the whole range of f32 and of f64, but for `asinh`, `acosh`, `atanh`,
//! `erfinv` (4 ulp), `lgamma` and `digamma` (what was measured stands in `docs/math-accuracy.md`), treats zeros, infinities and NaN as C99's Annex F does, and neither
//! flushes denormals nor branches on a value; which NaN comes out is not specified. The polynomials are
//! minimax fits of our own, made by `math/fit_coefficients.py`.

mod activation;
mod angle;
mod double_word;
mod error_function;
mod exponential;
mod gamma;
mod hyperbolic;
mod inverse_trigonometric;
mod logarithm;
mod polynomial;
mod power;
mod remainder;
mod trigonometric;

pub use activation::{gelu, gelu_tanh, mish, relu, silu};
pub use error_function::{erf, erfc, erfinv};
pub use exponential::{exp, exp2, expm1};
pub use gamma::{digamma, lgamma, tetragamma, trigamma};
pub use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub use inverse_trigonometric::{acos, asin, atan, atan2};
pub use logarithm::{log, log1p, log2, log10, logaddexp, logaddexp2};
pub use power::{hypot, pow};
pub use remainder::{floor_divide, fmod, remainder};
pub use trigonometric::{cos, sin, tan};
