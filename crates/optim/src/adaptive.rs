//! Optimizers that divide by a running size of the gradient: RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam.

use fireclay_core::arith::{Arith, Num};
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_tensor::Result;

use crate::fused::{Batch, Fused, Rule, check_option};
use crate::options::{named, options};

/// RMSprop (`torch.optim.RMSprop`; Hinton 2012, centered by Graves 2013).
pub type RMSprop = Fused<RMSpropOptions>;
/// Adagrad (`torch.optim.Adagrad`; Duchi, Hazan and Singer 2011).
pub type Adagrad = Fused<AdagradOptions>;
/// Adadelta (`torch.optim.Adadelta`; Zeiler 2012).
pub type Adadelta = Fused<AdadeltaOptions>;
/// Adamax, Adam with the largest gradient as divisor (`torch.optim.Adamax`; Kingma and Ba 2015).
pub type Adamax = Fused<AdamaxOptions>;
/// Adam with Nesterov's momentum (`torch.optim.NAdam`; Dozat 2016).
pub type NAdam = Fused<NAdamOptions>;
/// Adam whose first steps are plain ones, while its divisor is uncertain (`torch.optim.RAdam`; Liu et al. 2020).
pub type RAdam = Fused<RAdamOptions>;

options! {
    /// The options of [`RMSprop`].
    RMSpropOptions {
        /// The learning rate.
        lr: f64 = 1e-2,
        /// How much of the average of squares is kept in a step.
        alpha: f64 = 0.99,
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Pull towards zero, added to the gradient.
        weight_decay: f64 = 0.0,
        /// The share of the last step's direction that is kept.
        momentum: f64 = 0.0,
        /// Divides by the gradient's spread around its average.
        centered: bool = false,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

options! {
    /// The options of [`Adagrad`].
    AdagradOptions {
        /// The learning rate.
        lr: f64 = 1e-2,
        /// The rate at step `n`, counted from 0, is `lr / (1 + n * lr_decay)`.
        lr_decay: f64 = 0.0,
        /// Pull towards zero, added to the gradient.
        weight_decay: f64 = 0.0,
        /// What the sum of squares begins with.
        initial_accumulator_value: f64 = 0.0,
        /// Added to the divisor.
        eps: f64 = 1e-10,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

options! {
    /// The options of [`Adadelta`].
    AdadeltaOptions {
        /// The learning rate.
        lr: f64 = 1.0,
        /// How much of the averages is kept in a step.
        rho: f64 = 0.9,
        /// Added below the roots.
        eps: f64 = 1e-6,
        /// Pull towards zero, added to the gradient.
        weight_decay: f64 = 0.0,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

options! {
    /// The options of [`Adamax`].
    AdamaxOptions {
        /// The learning rate.
        lr: f64 = 2e-3,
        /// How much of the average and of the largest gradient is kept in a step.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the gradient's size.
        eps: f64 = 1e-8,
        /// Pull towards zero, added to the gradient.
        weight_decay: f64 = 0.0,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

options! {
    /// The options of [`NAdam`].
    NAdamOptions {
        /// The learning rate.
        lr: f64 = 2e-3,
        /// How much of the averages of gradient and squared gradient is kept in a step.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Pull towards zero.
        weight_decay: f64 = 0.0,
        /// How fast the momentum grows to its full size.
        momentum_decay: f64 = 4e-3,
        /// Whether the pull shrinks the parameter directly instead of entering the gradient.
        decoupled_weight_decay: bool = false,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

options! {
    /// The options of [`RAdam`].
    RAdamOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// How much of the averages of gradient and squared gradient is kept in a step.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the divisor.
        eps: f64 = 1e-8,
        /// Pull towards zero.
        weight_decay: f64 = 0.0,
        /// Whether the pull shrinks the parameter directly instead of entering the gradient.
        decoupled_weight_decay: bool = false,
        /// Goes up instead of down.
        maximize: bool = false,
    }
}

/// Refuses options below 0.
pub(crate) fn at_least_0(optimizer: &'static str, values: &[(&str, f64)]) -> Result<()> {
    values.iter().try_for_each(|&(name, value)| {
        check_option(optimizer, name, value, value >= 0.0, "at least 0")
    })
}

fn check_betas(optimizer: &'static str, betas: (f64, f64)) -> Result<()> {
    for (name, value) in [("betas.0", betas.0), ("betas.1", betas.1)] {
        let fits = (0.0..1.0).contains(&value);
        check_option(optimizer, name, value, fits, "at least 0 and below 1")?;
    }
    Ok(())
}

/// How the gradient enters: its sign, and the pull towards zero.
#[derive(Clone, Copy)]
pub(crate) struct Pull {
    pub(crate) maximize: bool,
    pub(crate) weight_decay: f64,
    /// What the parameter is multiplied by, where the pull does not enter the gradient.
    pub(crate) factor: Option<f64>,
}

impl Pull {
    pub(crate) fn new(maximize: bool, weight_decay: f64) -> Pull {
        Pull {
            maximize,
            weight_decay,
            factor: None,
        }
    }

    fn decoupled(self, decoupled: bool, lr: f64) -> Pull {
        let factor = decoupled.then_some(1.0 - lr * self.weight_decay);
        Pull { factor, ..self }
    }

    /// Parameter and gradient after it.
    #[inline(always)]
    pub(crate) fn of<A: Arith>(&self, parameter: A, grad: A) -> (A, A) {
        let grad = if self.maximize { -grad } else { grad };
        if self.weight_decay == 0.0 {
            return (parameter, grad);
        }
        match self.factor {
            Some(factor) => (parameter * A::of(factor), grad),
            None => (parameter, parameter.mul_add(A::of(self.weight_decay), grad)),
        }
    }
}

/// `average` moved towards `value` by the share `1 - kept`.
#[inline(always)]
fn averaged<A: Arith>(average: A, value: A, kept: f64) -> A {
    (value - average).mul_add(A::of(1.0 - kept), average)
}

/// `kept * squares + (1 - kept) * grad^2`.
#[inline(always)]
fn averaged_square<A: Arith>(squares: A, grad: A, kept: f64) -> A {
    squares.mul_add(A::of(kept), grad * grad * A::of(1.0 - kept))
}

// RMSprop.

impl Rule for RMSpropOptions {
    const NAME: &'static str = "RMSprop";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("alpha", self.alpha),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum", self.momentum),
        ];
        at_least_0(Self::NAME, &values)
    }

    fn state_names(&self) -> &'static [&'static str] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.momentum)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.momentum = momentum;
    }

    fn step(&self, _: u64, batch: &Batch<'_>) -> Result<()> {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => batch.update(RmsPlain(*self)),
            (true, false) => batch.update(RmsMomentum(*self)),
            (false, true) => batch.update(RmsCentered(*self)),
            (true, true) => batch.update(RmsBoth(*self)),
        }
    }
}

impl RMSpropOptions {
    /// The gradient after the pull, the new average of squares and of gradients, and the divisor.
    #[inline(always)]
    fn averages<A: Arith>(&self, parameter: A, squares: A, mean: Option<A>, grad: A) -> [A; 4] {
        let (_, grad) = Pull::new(self.maximize, self.weight_decay).of(parameter, grad);
        let squares = averaged_square(squares, grad, self.alpha);
        let (mean, inner) = match mean {
            None => (grad, squares),
            Some(mean) => {
                let mean = averaged(mean, grad, self.alpha);
                (mean, squares - mean * mean)
            }
        };
        [grad, squares, mean, inner.sqrt() + A::of(self.eps)]
    }

    #[inline(always)]
    fn moved<A: Arith>(&self, parameter: A, direction: A) -> A {
        direction.mul_add(A::of(-self.lr), parameter)
    }
}

#[derive(Clone, Copy)]
struct RmsPlain(RMSpropOptions);

impl Pointwise<3, 2> for RmsPlain {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, squares, grad]: [A; 3]) -> [A; 2] {
        let [grad, squares, _, divisor] = self.0.averages(parameter, squares, None, grad);
        [self.0.moved(parameter, grad / divisor), squares]
    }
}

#[derive(Clone, Copy)]
struct RmsMomentum(RMSpropOptions);

impl Pointwise<4, 3> for RmsMomentum {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, squares, buffer, grad]: [A; 4]) -> [A; 3] {
        let [grad, squares, _, divisor] = self.0.averages(parameter, squares, None, grad);
        let buffer = buffer.mul_add(A::of(self.0.momentum), grad / divisor);
        [self.0.moved(parameter, buffer), squares, buffer]
    }
}

#[derive(Clone, Copy)]
struct RmsCentered(RMSpropOptions);

impl Pointwise<4, 3> for RmsCentered {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, squares, mean, grad]: [A; 4]) -> [A; 3] {
        let [grad, squares, mean, divisor] = self.0.averages(parameter, squares, Some(mean), grad);
        [self.0.moved(parameter, grad / divisor), squares, mean]
    }
}

#[derive(Clone, Copy)]
struct RmsBoth(RMSpropOptions);

impl Pointwise<5, 4> for RmsBoth {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, squares, buffer, mean, grad]: [A; 5]) -> [A; 4] {
        let [grad, squares, mean, divisor] = self.0.averages(parameter, squares, Some(mean), grad);
        let buffer = buffer.mul_add(A::of(self.0.momentum), grad / divisor);
        [self.0.moved(parameter, buffer), squares, buffer, mean]
    }
}

// Adagrad.

impl Rule for AdagradOptions {
    const NAME: &'static str = "Adagrad";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("lr_decay", self.lr_decay),
            ("weight_decay", self.weight_decay),
            ("initial_accumulator_value", self.initial_accumulator_value),
            ("eps", self.eps),
        ];
        at_least_0(Self::NAME, &values)
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn initial_state(&self, _: usize) -> f64 {
        self.initial_accumulator_value
    }

    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
        batch.update(AdagradFormula {
            pull: Pull::new(self.maximize, self.weight_decay),
            rate: self.lr / (1.0 + (step - 1) as f64 * self.lr_decay),
            eps: self.eps,
        })
    }
}

#[derive(Clone, Copy)]
struct AdagradFormula {
    pull: Pull,
    rate: f64,
    eps: f64,
}

impl Pointwise<3, 2> for AdagradFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, sum, grad]: [A; 3]) -> [A; 2] {
        let (parameter, grad) = self.pull.of(parameter, grad);
        let sum = grad.mul_add(grad, sum);
        let direction = grad / (sum.sqrt() + A::of(self.eps));
        [direction.mul_add(A::of(-self.rate), parameter), sum]
    }
}

// Adadelta.

impl Rule for AdadeltaOptions {
    const NAME: &'static str = "Adadelta";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ];
        at_least_0(Self::NAME, &values)?;
        let fits = (0.0..=1.0).contains(&self.rho);
        check_option(Self::NAME, "rho", self.rho, fits, "from 0 to 1")
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }

    fn step(&self, _: u64, batch: &Batch<'_>) -> Result<()> {
        batch.update(AdadeltaFormula(*self))
    }
}

#[derive(Clone, Copy)]
struct AdadeltaFormula(AdadeltaOptions);

impl Pointwise<4, 3> for AdadeltaFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, squares, deltas, grad]: [A; 4]) -> [A; 3] {
        let options = &self.0;
        let pull = Pull::new(options.maximize, options.weight_decay);
        let (parameter, grad) = pull.of(parameter, grad);
        let eps = A::of(options.eps);
        let squares = averaged_square(squares, grad, options.rho);
        let delta = (deltas + eps).sqrt() / (squares + eps).sqrt() * grad;
        let deltas = averaged_square(deltas, delta, options.rho);
        let parameter = delta.mul_add(A::of(-options.lr), parameter);
        [parameter, squares, deltas]
    }
}

// Adamax.

impl Rule for AdamaxOptions {
    const NAME: &'static str = "Adamax";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ];
        at_least_0(Self::NAME, &values)?;
        check_betas(Self::NAME, self.betas)
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.0)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.betas.0 = momentum;
    }

    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
        batch.update(AdamaxFormula {
            options: *self,
            rate: self.lr / (1.0 - math::pow(self.betas.0, step as f64)),
        })
    }
}

#[derive(Clone, Copy)]
struct AdamaxFormula {
    options: AdamaxOptions,
    rate: f64,
}

impl Pointwise<4, 3> for AdamaxFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, average, largest, grad]: [A; 4]) -> [A; 3] {
        let options = &self.options;
        let pull = Pull::new(options.maximize, options.weight_decay);
        let (parameter, grad) = pull.of(parameter, grad);
        let average = averaged(average, grad, options.betas.0);
        let size = grad.abs() + A::of(options.eps);
        let largest = Num::maximum(largest * A::of(options.betas.1), size);
        let parameter = (average / largest).mul_add(A::of(-self.rate), parameter);
        [parameter, average, largest]
    }
}

// NAdam.

impl Rule for NAdamOptions {
    const NAME: &'static str = "NAdam";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum_decay", self.momentum_decay),
        ];
        at_least_0(Self::NAME, &values)?;
        check_betas(Self::NAME, self.betas)
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn number_names(&self) -> &'static [&'static str] {
        &["mu_product"]
    }

    fn first_numbers(&self) -> Vec<f64> {
        vec![1.0]
    }

    fn next_numbers(&self, step: u64, numbers: &mut [f64]) {
        numbers[0] *= self.mu(step);
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.0)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.betas.0 = momentum;
    }

    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
        let (mu, next) = (self.mu(step), self.mu(step.saturating_add(1)));
        let product = batch.numbers()[0] * mu;
        let correction = 1.0 - math::pow(self.betas.1, step as f64);
        let pull = Pull::new(self.maximize, self.weight_decay);
        batch.update(NAdamFormula {
            betas: self.betas,
            eps: self.eps,
            pull: pull.decoupled(self.decoupled_weight_decay, self.lr),
            inverse_root_correction: 1.0 / correction.sqrt(),
            grad_rate: self.lr * (1.0 - mu) / (1.0 - product),
            average_rate: self.lr * next / (1.0 - product * next),
        })
    }
}

impl NAdamOptions {
    fn mu(&self, step: u64) -> f64 {
        self.betas.0 * (1.0 - 0.5 * math::pow(0.96, step as f64 * self.momentum_decay))
    }
}

#[derive(Clone, Copy)]
struct NAdamFormula {
    betas: (f64, f64),
    eps: f64,
    pull: Pull,
    inverse_root_correction: f64,
    grad_rate: f64,
    average_rate: f64,
}

impl Pointwise<4, 3> for NAdamFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, average, squares, grad]: [A; 4]) -> [A; 3] {
        let (parameter, grad) = self.pull.of(parameter, grad);
        let average = averaged(average, grad, self.betas.0);
        let squares = averaged_square(squares, grad, self.betas.1);
        let divisor = squares
            .sqrt()
            .mul_add(A::of(self.inverse_root_correction), A::of(self.eps));
        let parameter = (grad / divisor).mul_add(A::of(-self.grad_rate), parameter);
        let parameter = (average / divisor).mul_add(A::of(-self.average_rate), parameter);
        [parameter, average, squares]
    }
}

// RAdam.

impl Rule for RAdamOptions {
    const NAME: &'static str = "RAdam";
    named!();

    fn check(&self) -> Result<()> {
        let values = [
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ];
        at_least_0(Self::NAME, &values)?;
        check_betas(Self::NAME, self.betas)
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.0)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.betas.0 = momentum;
    }

    fn step(&self, step: u64, batch: &Batch<'_>) -> Result<()> {
        let (beta1, beta2) = self.betas;
        let count = step as f64;
        let correction1 = 1.0 - math::pow(beta1, count);
        let correction2 = 1.0 - math::pow(beta2, count);
        // The length of the average of squares, were it a simple one: in the end, and now.
        let last = 2.0 / (1.0 - beta2) - 1.0;
        let now = last - 2.0 * count * math::pow(beta2, count) / correction2;
        let pull = Pull::new(self.maximize, self.weight_decay);
        let mut formula = RAdamFormula {
            betas: self.betas,
            eps: self.eps,
            pull: pull.decoupled(self.decoupled_weight_decay, self.lr),
            rate: self.lr / correction1,
            divides: now > 5.0,
        };
        if formula.divides {
            let shares = (now - 4.0) * (now - 2.0) * last;
            let rectified = (shares / ((last - 4.0) * (last - 2.0) * now)).sqrt();
            formula.rate *= rectified * correction2.sqrt();
        }
        batch.update(formula)
    }
}

#[derive(Clone, Copy)]
struct RAdamFormula {
    betas: (f64, f64),
    eps: f64,
    pull: Pull,
    rate: f64,
    divides: bool,
}

impl Pointwise<4, 3> for RAdamFormula {
    #[inline(always)]
    fn eval<A: Arith>(&self, [parameter, average, squares, grad]: [A; 4]) -> [A; 3] {
        let (parameter, grad) = self.pull.of(parameter, grad);
        let average = averaged(average, grad, self.betas.0);
        let squares = averaged_square(squares, grad, self.betas.1);
        let direction = if self.divides {
            average / (squares.sqrt() + A::of(self.eps))
        } else {
            average
        };
        let parameter = direction.mul_add(A::of(-self.rate), parameter);
        [parameter, average, squares]
    }
}
