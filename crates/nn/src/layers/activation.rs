//! Activations as modules.

use fireclay_tensor::{Result, Tensor};

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
}
