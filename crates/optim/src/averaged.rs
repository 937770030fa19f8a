//! ASGD, which averages its parameters, and Rprop, which looks at signs alone.

use fireclay_core::arith::{Arith, Num};
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_tensor::{Error, Result};

use crate::adaptive::{Pull, at_least_0};
use crate::fused::{Batch, Fused, Rule};
use crate::options::{named, options};

/// Averaged stochastic gradient descent (`torch.optim.ASGD`; Polyak and Juditsky 1992): `ax` of the state is the average.
pub type ASGD = Fused<ASGDOptions>;
/// Resilient backpropagation (`torch.optim.Rprop`; Riedmiller and Braun 1993), for full batches.
pub type Rprop = Fused<RpropOptions>;

options! {
    /// The options of [`ASGD`].
    ASGDOptions {
        /// The learning rate.
        lr: f64 = 1e-2,
        /// How fast the rate falls.
        lambd: f64 = 1e-4,
        /// The power by which it falls.
        alpha: f64 = 0.75,
        /// The step at which averaging begins.
        t0: f64 = 1e6,
        /// Pull towards zero, added to the gradient.
        weight_decay: f64 = 0.0,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

options! {
    /// The options of [`Rprop`].
    RpropOptions {
        /// The step that every number begins with.
        lr: f64 = 1e-2,
        /// The factors of a step where the gradient's sign changed, and where it didn't.
        etas: (f64, f64) = (0.5, 1.2),
        /// The smallest step and the largest.
        step_sizes: (f64, f64) = (1e-6, 50.0),
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

impl Rule for ASGDOptions {
    const NAME: &'static str = "ASGD";
    named!();

    fn check(&self) -> Result<()> {
        at_least_0(
            Self::NAME,
            &[("lr", self.lr), ("weight_decay", self.weight_decay)],
        )
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["ax"]
    }

    fn number_names(&self) -> &'static [&'static str] {
        &["eta", "mu"]
    }

    fn first_numbers(&self) -> Vec<f64> {
        vec![self.lr, 1.0]
    }

    fn next_numbers(&self, step: u64, numbers: &mut [f64]) {
        let step = step as f64;
        numbers[0] = self.lr / math::pow(1.0 + self.lambd * self.lr * step, self.alpha);
        numbers[1] = 1.0 / (step - self.t0).max(1.0);
    }

    fn step(&self, _: u64, batch: &Batch<'_>) -> Result<()> {
        let [eta, mu] = [batch.numbers()[0], batch.numbers()[1]];
        batch.update(ASGDFormula {
            pull: Pull::new(self.maximize, self.weight_decay),
            decay: 1.0 - self.lambd * eta,
            eta,
            mu,
        })
    }
}

#[derive(Clone, Copy)]
struct ASGDFormula {
    pull: Pull,
    decay: f64,
    eta: f64,
    mu: f64,
}

impl Pointwise<3, 2> for ASGDFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, average, grad]: [A; 3]) -> [A; 2] {
        let (parameter, grad) = self.pull.of(parameter, grad);
        let parameter = grad.mul_add(A::of(-self.eta), parameter * A::of(self.decay));
        let average = if self.mu == 1.0 {
            parameter
        } else {
            (parameter - average).mul_add(A::of(self.mu), average)
        };
        [parameter, average]
    }
}

impl Rule for RpropOptions {
    const NAME: &'static str = "Rprop";
    named!();

    fn check(&self) -> Result<()> {
        at_least_0(Self::NAME, &[("lr", self.lr)])?;
        let (minus, plus) = self.etas;
        if !(0.0 < minus && minus < 1.0 && 1.0 < plus) {
            return Err(Error::argument(
                Self::NAME,
                format!("etas must be between 0 and 1 and above 1, got {minus} and {plus}"),
            ));
        }
        let (least, most) = self.step_sizes;
        if !(least <= most && least >= 0.0) {
            return Err(Error::argument(
                Self::NAME,
                format!("step_sizes must be at least 0 and ascend, got {least} and {most}"),
            ));
        }
        Ok(())
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["prev", "step_size"]
    }

    fn initial_state(&self, number: usize) -> f64 {
        if number == 1 { self.lr } else { 0.0 }
    }

    fn step(&self, _: u64, batch: &Batch<'_>) -> Result<()> {
        batch.update(RpropFormula(*self))
    }
}

#[derive(Clone, Copy)]
struct RpropFormula(RpropOptions);

impl Pointwise<4, 3> for RpropFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, last, size, grad]: [A; 4]) -> [A; 3] {
        let options = &self.0;
        let grad = if options.maximize { -grad } else { grad };
        let (zero, one) = (A::int(0), A::int(1));
        let product = grad * last;
        let turned = product.lt(zero);
        let grown = A::select(product.gt(zero), A::of(options.etas.1), one);
        let factor = A::select(turned, A::of(options.etas.0), grown);
        let (least, most) = options.step_sizes;
        let size = Num::minimum(Num::maximum(size * factor, A::of(least)), A::of(most));
        let grad = A::select(turned, zero, grad);
        let sign = A::select(grad.gt(zero), one, A::select(grad.lt(zero), -one, grad));
        [parameter - sign * size, grad, size]
    }
}
