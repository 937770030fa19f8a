//! Schedules: the learning rate as a function of the step, in closed form.

mod combined;
mod cycles;

pub use combined::{ChainedScheduler, PerGroup, SequentialLR, warmup_cosine};
pub use cycles::{Anneal, CyclicLR, CyclicMode, OneCycleLR};

use fireclay_core::math;
use fireclay_tensor::{Error, Result};

/// A learning rate over time. `step` is what PyTorch calls `last_epoch`: how often the scheduler was stepped, epochs or
/// batches.
pub trait Schedule {
    /// The learning rate at `step` of a group whose own is `base`.
    fn lr_at(&self, base: f64, step: u64) -> f64;

    /// The same of the group `group`, where groups differ by more than their own rates.
    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        let _ = group;
        self.lr_at(base, step)
    }

    /// The momentum (or first beta) of the group `group` at `step`, if the schedule sets it.
    fn momentum_of(&self, group: usize, step: u64) -> Option<f64> {
        let _ = (group, step);
        None
    }

    /// How many groups it is for, where it is not for any number.
    fn num_groups(&self) -> Option<usize> {
        None
    }

    /// The last step that it is made for, if there is one.
    fn last_step(&self) -> Option<u64> {
        None
    }

    /// Refuses arguments out of range.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        (**self).lr_at(base, step)
    }

    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        (**self).lr_of(group, base, step)
    }

    fn momentum_of(&self, group: usize, step: u64) -> Option<f64> {
        (**self).momentum_of(group, step)
    }

    fn num_groups(&self) -> Option<usize> {
        (**self).num_groups()
    }

    fn last_step(&self) -> Option<u64> {
        (**self).last_step()
    }

    fn check(&self) -> Result<()> {
        (**self).check()
    }
}

/// `base * gamma^(step / step_size)`, the quotient rounded down (`torch.optim.lr_scheduler.StepLR`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepLR {
    /// How long a rate lasts.
    pub step_size: u64,
    /// The factor from one to the next.
    pub gamma: f64,
}

impl Schedule for StepLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        base * power(self.gamma, step / self.step_size)
    }

    fn check(&self) -> Result<()> {
        at_least_1("StepLR", "step_size", self.step_size)
    }
}

/// `base * gamma^n` where `n` milestones are reached (`torch.optim.lr_scheduler.MultiStepLR`).
#[derive(Clone, PartialEq, Debug)]
pub struct MultiStepLR {
    /// The steps at which the rate changes.
    pub milestones: Vec<u64>,
    /// The factor at each.
    pub gamma: f64,
}

impl Schedule for MultiStepLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let reached = self
            .milestones
            .iter()
            .filter(|&&milestone| milestone <= step);
        base * power(self.gamma, reached.count() as u64)
    }
}

/// `base * gamma^step` (`torch.optim.lr_scheduler.ExponentialLR`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExponentialLR {
    /// The factor from step to step.
    pub gamma: f64,
}

impl Schedule for ExponentialLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        base * power(self.gamma, step)
    }
}

/// `base * factor` before `total_iters`, `base` from then on (`torch.optim.lr_scheduler.ConstantLR`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConstantLR {
    /// The factor at first.
    pub factor: f64,
    /// How long it lasts.
    pub total_iters: u64,
}

impl Schedule for ConstantLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        if step < self.total_iters {
            base * self.factor
        } else {
            base
        }
    }
}

/// From `base * start_factor` to `base * end_factor` in a straight line over `total_iters` steps: a warm-up
/// (`torch.optim.lr_scheduler.LinearLR`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinearLR {
    /// The factor at step 0.
    pub start_factor: f64,
    /// The factor at the end, and from then on.
    pub end_factor: f64,
    /// How long the line is.
    pub total_iters: u64,
}

impl Schedule for LinearLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let share = step.min(self.total_iters) as f64 / self.total_iters as f64;
        base * (self.start_factor + (self.end_factor - self.start_factor) * share)
    }

    fn check(&self) -> Result<()> {
        at_least_1("LinearLR", "total_iters", self.total_iters)?;
        let factor = |factor: f64| (0.0..=1.0).contains(&factor);
        if factor(self.start_factor) && self.start_factor > 0.0 && factor(self.end_factor) {
            return Ok(());
        }
        Err(Error::argument(
            "LinearLR",
            format!(
                "factors must be from 0 (the first one above it) to 1, got {} and {}",
                self.start_factor, self.end_factor
            ),
        ))
    }
}

/// `eta_min + (base - eta_min) * (1 + cos(pi * step / t_max)) / 2`: half a wave down to `eta_min`
/// (`torch.optim.lr_scheduler.CosineAnnealingLR`; Loshchilov and Hutter 2017). Beyond `t_max` it rises again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CosineAnnealingLR {
    /// How long half a wave is.
    pub t_max: u64,
    /// The lowest rate.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let angle = std::f64::consts::PI * step as f64 / self.t_max as f64;
        self.eta_min + (base - self.eta_min) * (1.0 + math::cos(angle)) / 2.0
    }

    fn check(&self) -> Result<()> {
        at_least_1("CosineAnnealingLR", "t_max", self.t_max)
    }
}

/// `base` times what the function gives for the step (`torch.optim.lr_scheduler.LambdaLR`).
pub struct LambdaLR<F>(pub F);

impl<F: Fn(u64) -> f64> Schedule for LambdaLR<F> {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        base * self.0(step)
    }
}

/// `base` times what the function gave for every step up to this one, the first not counted
/// (`torch.optim.lr_scheduler.MultiplicativeLR`).
pub struct MultiplicativeLR<F>(pub F);

impl<F: Fn(u64) -> f64> Schedule for MultiplicativeLR<F> {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        (1..=step).fold(base, |lr, step| lr * self.0(step))
    }
}

/// `base * (1 - step / total_iters)^power`, 0 from then on (`torch.optim.lr_scheduler.PolynomialLR`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolynomialLR {
    /// When the rate reaches 0.
    pub total_iters: u64,
    /// 1 is a straight line.
    pub power: f64,
}

impl Schedule for PolynomialLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let left = 1.0 - step.min(self.total_iters) as f64 / self.total_iters as f64;
        base * math::pow(left, self.power)
    }

    fn check(&self) -> Result<()> {
        at_least_1("PolynomialLR", "total_iters", self.total_iters)?;
        if self.power >= 0.0 && self.power.is_finite() {
            return Ok(());
        }
        Err(Error::argument(
            "PolynomialLR",
            format!("power must be finite and at least 0, got {}", self.power),
        ))
    }
}

/// Half waves from `base` down to `eta_min`, each begun anew at `base`; the first takes `t_0` steps, each later one `t_mult` times
/// the one before (`torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`; Loshchilov and Hutter 2017).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CosineAnnealingWarmRestarts {
    /// How long the first half wave is.
    pub t_0: u64,
    /// How much longer each later one is.
    pub t_mult: u64,
    /// The lowest rate.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let (mut length, mut at) = (self.t_0, step);
        if self.t_mult == 1 {
            at %= length;
        }
        while at >= length {
            at -= length;
            // A length beyond all counting is never reached.
            length = length.saturating_mul(self.t_mult);
        }
        let angle = std::f64::consts::PI * at as f64 / length as f64;
        self.eta_min + (base - self.eta_min) * (1.0 + math::cos(angle)) / 2.0
    }

    fn check(&self) -> Result<()> {
        at_least_1("CosineAnnealingWarmRestarts", "t_0", self.t_0)?;
        at_least_1("CosineAnnealingWarmRestarts", "t_mult", self.t_mult)
    }
}

/// From `base` to `swa_lr` within `anneal_epochs` steps, and there from then on: the rate while weights are averaged
/// (`torch.optim.swa_utils.SWALR`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SWALR {
    /// The rate at the end.
    pub swa_lr: f64,
    /// How long the way is.
    pub anneal_epochs: u64,
    /// Its form.
    pub anneal_strategy: Anneal,
}

impl Schedule for SWALR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let at = step.min(self.anneal_epochs) as f64 / self.anneal_epochs.max(1) as f64;
        match (self.anneal_epochs, step) {
            (0, 1..) => self.swa_lr,
            _ => self.anneal_strategy.between(base, self.swa_lr, at),
        }
    }

    fn check(&self) -> Result<()> {
        if self.swa_lr >= 0.0 && self.swa_lr.is_finite() {
            return Ok(());
        }
        Err(Error::argument(
            "SWALR",
            format!("swa_lr must be finite and at least 0, got {}", self.swa_lr),
        ))
    }
}

/// By Fireclay's own function, whose bits are the same on every machine.
fn power(gamma: f64, exponent: u64) -> f64 {
    math::pow(gamma, exponent as f64)
}

fn at_least_1(schedule: &'static str, name: &str, value: u64) -> Result<()> {
    if value > 0 {
        return Ok(());
    }
    Err(Error::argument(
        schedule,
        format!("{name} must be at least 1, got 0"),
    ))
}
