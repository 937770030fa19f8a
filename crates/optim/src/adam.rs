//! Adam, with weight decay in the gradient (`Adam`) or beside it (`AdamW`).

use fireclay_core::arith::{Arith, Num};
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_tensor::Result;

use crate::fused::{Batch, Fused, Rule, check_option};

/// Adam (`torch.optim.Adam`; Kingma and Ba 2015, amsgrad by Reddi et al. 2018).
pub type Adam = Fused<AdamOptions>;

/// Adam whose weight decay shrinks the parameter directly (`torch.optim.AdamW`; Loshchilov and Hutter 2019).
pub type AdamW = Fused<AdamWOptions>;

/// What the rules of Adam and AdamW differ in: name, default decay, and where the decay enters.
macro_rules! adam {
    ($(#[$doc:meta])* $Options:ident, $NAME:literal, $weight_decay:literal, $decoupled:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $Options {
            /// The learning rate.
            pub lr: f64,
            /// How much of the running averages of gradient and squared gradient is kept in a step.
            pub betas: (f64, f64),
            /// Added to the divisor.
            pub eps: f64,
            /// Pull towards zero.
            pub weight_decay: f64,
            /// Divides by the largest average of squares so far.
            pub amsgrad: bool,
            /// Goes up instead of down.
            pub maximize: bool,
        }

        impl Default for $Options {
            fn default() -> Self {
                $Options {
                    lr: 1e-3,
                    betas: (0.9, 0.999),
                    eps: 1e-8,
                    weight_decay: $weight_decay,
                    amsgrad: false,
                    maximize: false,
                }
            }
        }

        impl Rule for $Options {
            const NAME: &'static str = $NAME;

            fn check(&self) -> Result<()> {
                for (name, value) in
                    [("lr", self.lr), ("eps", self.eps), ("weight_decay", self.weight_decay)]
                {
                    check_option(Self::NAME, name, value, value >= 0.0, "at least 0")?;
                }
                for (name, value) in [("betas.0", self.betas.0), ("betas.1", self.betas.1)] {
                    let fits = (0.0..1.0).contains(&value);
                    check_option(Self::NAME, name, value, fits, "at least 0 and below 1")?;
                }
                Ok(())
            }

            fn state_names(&self) -> &'static [&'static str] {
                const NAMES: [&str; 3] = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
                if self.amsgrad { &NAMES } else { &NAMES[..2] }
            }

            fn options(&self) -> Vec<(&'static str, f64)> {
                vec![
                    ("lr", self.lr),
                    ("betas.0", self.betas.0),
                    ("betas.1", self.betas.1),
                    ("eps", self.eps),
                    ("weight_decay", self.weight_decay),
                    ("amsgrad", f64::from(u8::from(self.amsgrad))),
                    ("maximize", f64::from(u8::from(self.maximize))),
                ]
            }

            fn with_options(&self, value: &mut dyn FnMut(&'static str) -> f64) -> Self {
                $Options {
                    lr: value("lr"),
                    betas: (value("betas.0"), value("betas.1")),
                    eps: value("eps"),
                    weight_decay: value("weight_decay"),
                    amsgrad: value("amsgrad") != 0.0,
                    maximize: value("maximize") != 0.0,
                }
            }

            fn lr(&self) -> f64 {
                self.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }

            fn momentum(&self) -> Option<f64> {
                Some(self.betas.0)
            }

            fn set_momentum(&mut self, momentum: f64) {
                self.betas.0 = momentum;
            }

            fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
                let decay = if $decoupled {
                    Decay::Beside(1.0 - self.lr * self.weight_decay)
                } else {
                    Decay::InGradient(self.weight_decay)
                };
                let (beta1, beta2) = self.betas;
                let correction = |beta: f64| 1.0 - math::pow(beta, step as f64);
                let formula = Formula {
                    decay,
                    maximize: self.maximize,
                    one_minus_beta1: 1.0 - beta1,
                    beta2,
                    step_size: self.lr / correction(beta1),
                    inverse_root_correction: 1.0 / correction(beta2).sqrt(),
                    eps: self.eps,
                };
                if self.amsgrad {
                    batch.update(WithMaximum(formula))
                } else {
                    batch.update(formula)
                }
            }
        }
    };
}

adam! {
    /// The options of [`Adam`].
    AdamOptions, "Adam", 0.0, false
}

adam! {
    /// The options of [`AdamW`].
    AdamWOptions, "AdamW", 1e-2, true
}

#[derive(Clone, Copy)]
enum Decay {
    /// This share of the parameter is added to the gradient.
    InGradient(f64),
    /// The parameter is multiplied by this.
    Beside(f64),
}

/// Inputs: parameter, average of gradients, average of squares, gradient.
#[derive(Clone, Copy)]
struct Formula {
    decay: Decay,
    maximize: bool,
    one_minus_beta1: f64,
    beta2: f64,
    /// The learning rate, corrected for the average's start at zero.
    step_size: f64,
    /// Corrects the root of the average of squares likewise.
    inverse_root_correction: f64,
    eps: f64,
}

impl Formula {
    /// Decays, then averages: parameter, average of gradients, average of squares.
    #[inline(always)]
    fn average<A: Arith>(&self, [parameter, average, squares, grad]: [A; 4]) -> [A; 3] {
        let grad = if self.maximize { -grad } else { grad };
        let (parameter, grad) = match self.decay {
            Decay::InGradient(0.0) => (parameter, grad),
            Decay::InGradient(decay) => (parameter, parameter.mul_add(A::of(decay), grad)),
            Decay::Beside(factor) => (parameter * A::of(factor), grad),
        };
        let average = (grad - average).mul_add(A::of(self.one_minus_beta1), average);
        let weighted = grad * grad * A::of(1.0 - self.beta2);
        let squares = squares.mul_add(A::of(self.beta2), weighted);
        [parameter, average, squares]
    }

    #[inline(always)]
    fn moved<A: Arith>(&self, parameter: A, average: A, squares: A) -> A {
        let divisor = squares
            .sqrt()
            .mul_add(A::of(self.inverse_root_correction), A::of(self.eps));
        (average / divisor).mul_add(A::of(-self.step_size), parameter)
    }
}

impl Pointwise<4, 3> for Formula {
    #[inline(always)]
    fn eval<A: Arith>(&self, inputs: [A; 4]) -> [A; 3] {
        let [parameter, average, squares] = self.average(inputs);
        [self.moved(parameter, average, squares), average, squares]
    }
}

/// With the maximum of amsgrad. Inputs: parameter, average of gradients, average of squares, its maximum, gradient.
#[derive(Clone, Copy)]
struct WithMaximum(Formula);

impl Pointwise<5, 4> for WithMaximum {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, average, squares, largest, grad]: [A; 5]) -> [A; 4] {
        let [parameter, average, squares] = self.0.average([parameter, average, squares, grad]);
        let largest = Num::maximum(largest, squares);
        [
            self.0.moved(parameter, average, largest),
            average,
            squares,
            largest,
        ]
    }
}
