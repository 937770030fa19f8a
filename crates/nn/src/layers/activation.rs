//! Activations as modules.

use fireclay_tensor::{Error, Result, Tensor};

use crate::module::Module;

macro_rules! activation {
    ($(#[$doc:meta])* $Name:ident($self:ident, $input:ident) $compute:expr) => {
        $(#[$doc])*
        #[derive(crate::Module, Clone, Copy, Debug, Default)]
        pub struct $Name;

        activation!(@forward $Name, $self, $input, $compute);
    };
    ($(#[$doc:meta])* $Name:ident { $($(#[$field_doc:meta])* $field:ident: $Type:ty),+ } ($self:ident, $input:ident) $compute:expr) => {
        $(#[$doc])*
        #[derive(crate::Module, Clone, Copy, Debug)]
        pub struct $Name { $($(#[$field_doc])* pub $field: $Type),+ }

        activation!(@forward $Name, $self, $input, $compute);
    };
    (@forward $Name:ident, $self:ident, $input:ident, $compute:expr) => {
        impl Module for $Name {
            fn forward(&$self, $input: &Tensor) -> Result<Tensor> {
                $compute
            }
        }
    };
}

activation! {
    /// `max(x, 0)` (`torch.nn.ReLU`).
    ReLU(self, input) input.relu()
}
activation! {
    /// `1 / (1 + e^-x)` (`torch.nn.Sigmoid`).
    Sigmoid(self, input) input.sigmoid()
}
activation! {
    /// Hyperbolic tangent (`torch.nn.Tanh`).
    Tanh(self, input) input.tanh()
}
activation! {
    /// `x * sigmoid(x)` (`torch.nn.SiLU`).
    SiLU(self, input) input.silu()
}
activation! {
    /// `x` if positive, else `x * negative_slope` (`torch.nn.LeakyReLU`).
    LeakyReLU {
        /// The slope of the negative side.
        negative_slope: f64
    } (self, input) input.leaky_relu(self.negative_slope)
}
activation! {
    /// `x` if positive, else `alpha * (e^x - 1)` (`torch.nn.ELU`).
    ELU {
        /// What it tends to on the negative side, negated.
        alpha: f64
    } (self, input) input.elu(self.alpha)
}
activation! {
    /// `log(1 + e^(beta x)) / beta`, a smooth ReLU (`torch.nn.Softplus`).
    Softplus {
        /// How sharp the bend is.
        beta: f64,
        /// From where on `beta x` the function is taken as `x`.
        threshold: f64
    } (self, input) input.softplus(self.beta, self.threshold)
}
activation! {
    /// `x * Phi(x)` with the normal distribution's `Phi` (`torch.nn.GELU`).
    GELU {
        /// Whether `Phi` is approximated by a hyperbolic tangent (`approximate="tanh"`).
        tanh: bool
    } (self, input) if self.tanh { input.gelu_tanh() } else { input.gelu() }
}
activation! {
    /// `e^x` over its sum along `dim` (`torch.nn.Softmax`).
    Softmax {
        /// The dimension that sums to 1.
        dim: isize
    } (self, input) input.softmax(self.dim)
}
activation! {
    /// The logarithm of softmax along `dim` (`torch.nn.LogSoftmax`).
    LogSoftmax {
        /// The dimension whose exponentials sum to 1.
        dim: isize
    } (self, input) input.log_softmax(self.dim)
}

activation! {
    /// The halves `a` and `b` along `dim`, as `a * sigmoid(b)` (`torch.nn.GLU`).
    GLU {
        /// The dimension that is halved.
        dim: isize
    } (self, input) input.glu(self.dim)
}
activation! {
    /// `x * relu6(x + 3) / 6` (`torch.nn.Hardswish`).
    Hardswish(self, input) input.hardswish()
}
activation! {
    /// `relu6(x + 3) / 6` (`torch.nn.Hardsigmoid`).
    Hardsigmoid(self, input) input.hardsigmoid()
}
activation! {
    /// `x` kept between `min_val` and `max_val` (`torch.nn.Hardtanh`).
    Hardtanh {
        /// The least value.
        min_val: f64,
        /// The largest value.
        max_val: f64
    } (self, input) input.hardtanh(self.min_val, self.max_val)
}
activation! {
    /// `x` kept between 0 and 6 (`torch.nn.ReLU6`).
    ReLU6(self, input) input.relu6()
}
activation! {
    /// `x * tanh(softplus(x))` (`torch.nn.Mish`).
    Mish(self, input) input.mish()
}
activation! {
    /// `x` if positive, else `alpha * (e^(x / alpha) - 1)` (`torch.nn.CELU`).
    CELU {
        /// What it tends to on the negative side, negated.
        alpha: f64
    } (self, input) input.celu(self.alpha)
}
activation! {
    /// ELU scaled so that mean 0 and variance 1 are kept from layer to layer (`torch.nn.SELU`; Klambauer and others 2017).
    SELU(self, input) input.selu()
}
activation! {
    /// The logarithm of sigmoid (`torch.nn.LogSigmoid`).
    LogSigmoid(self, input) input.logsigmoid()
}
activation! {
    /// `x / (1 + |x|)` (`torch.nn.Softsign`).
    Softsign(self, input) input.softsign()
}
activation! {
    /// Softmax of `-x` along `dim` (`torch.nn.Softmin`).
    Softmin {
        /// The dimension that sums to 1.
        dim: isize
    } (self, input) input.neg()?.softmax(self.dim)
}
activation! {
    /// Softmax over the channels of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.Softmax2d`).
    Softmax2d(self, input) softmax2d(input)
}
activation! {
    /// `x - tanh(x)` (`torch.nn.Tanhshrink`).
    Tanhshrink(self, input) input.tanhshrink()
}
activation! {
    /// `x` moved towards 0 by `lambd`, 0 where it is less (`torch.nn.Softshrink`).
    Softshrink {
        /// How far, at least 0.
        lambd: f64
    } (self, input) input.softshrink(self.lambd)
}
activation! {
    /// `x`, but 0 from `-lambd` to `lambd` (`torch.nn.Hardshrink`).
    Hardshrink {
        /// The bound.
        lambd: f64
    } (self, input) input.hardshrink(self.lambd)
}
activation! {
    /// `x` above `threshold`, `value` elsewhere (`torch.nn.Threshold`).
    Threshold {
        /// The bound.
        threshold: f64,
        /// What stands for what is not above it.
        value: f64
    } (self, input) input.threshold(self.threshold, self.value)
}

fn softmax2d(input: &Tensor) -> Result<Tensor> {
    if !matches!(input.ndim(), 3 | 4) {
        let what = format!("Softmax2d takes 3 or 4 dimensions, got {}", input.shape());
        return Err(Error::shape("softmax", what).with_operands(|| vec![input.operand("input")]));
    }
    input.softmax(-3)
}

macro_rules! constructors {
    ($($Name:ident: default { $($default:ident: $value:expr),* }, $(#[$doc:meta])* new($($field:ident: $Type:ty),*)
        $({ $($fixed:ident: $fixed_value:expr),* })?;)*) => {
        $(
            impl $Name {
                $(#[$doc])*
                pub fn new($($field: $Type),*) -> $Name {
                    $Name { $($field,)* $($($fixed: $fixed_value),*)? }
                }
            }

            impl Default for $Name {
                fn default() -> $Name {
                    $Name { $($default: $value),* }
                }
            }
        )*
    };
}

constructors! {
    LeakyReLU: default { negative_slope: 0.01 }, /// With this slope; PyTorch's default is 0.01.
        new(negative_slope: f64);
    ELU: default { alpha: 1.0 }, /// With this `alpha`; PyTorch's default is 1.
        new(alpha: f64);
    Softplus: default { beta: 1.0, threshold: 20.0 }, /// With this `beta` and `threshold`; PyTorch's defaults are 1 and 20.
        new(beta: f64, threshold: f64);
    GELU: default { tanh: false }, /// The exact form.
        new() { tanh: false };
    Softmax: default { dim: -1 }, /// Along `dim`, counted from the end where negative.
        new(dim: isize);
    LogSoftmax: default { dim: -1 }, /// Along `dim`, counted from the end where negative.
        new(dim: isize);
    GLU: default { dim: -1 }, /// Along `dim`, counted from the end where negative; PyTorch's default is -1.
        new(dim: isize);
    Hardtanh: default { min_val: -1.0, max_val: 1.0 }, /// Between these; PyTorch's defaults are -1 and 1.
        new(min_val: f64, max_val: f64);
    CELU: default { alpha: 1.0 }, /// With this `alpha`; PyTorch's default is 1.
        new(alpha: f64);
    Softmin: default { dim: -1 }, /// Along `dim`, counted from the end where negative.
        new(dim: isize);
    Softshrink: default { lambd: 0.5 }, /// By `lambd`; PyTorch's default is 0.5.
        new(lambd: f64);
    Hardshrink: default { lambd: 0.5 }, /// With this bound; PyTorch's default is 0.5.
        new(lambd: f64);
    Threshold: default { threshold: 0.0, value: 0.0 }, /// With this bound and value.
        new(threshold: f64, value: f64);
}
