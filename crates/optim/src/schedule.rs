//! Schedules: the learning rate as a function of the step, in closed form.

use fireclay_core::math;
use fireclay_tensor::{Error, Result};

/// A learning rate over time. `step` is what PyTorch calls `last_epoch`: how often the scheduler was stepped, epochs or
/// batches.
pub trait Schedule {
    /// The learning rate at `step` of a group whose own is `base`.
    fn lr_at(&self, base: f64, step: u64) -> f64;

    /// Refuses arguments out of range.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        (**self).lr_at(base, step)
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

/// One schedule after the other, each counting from its own start (`torch.optim.lr_scheduler.SequentialLR`).
pub struct SequentialLR {
    first: Box<dyn Schedule + Send + Sync>,
    /// Each with the step at which it begins, ascending.
    later: Vec<(u64, Box<dyn Schedule + Send + Sync>)>,
}

impl SequentialLR {
    /// Begins with `schedule`.
    pub fn new(schedule: impl Schedule + Send + Sync + 'static) -> SequentialLR {
        SequentialLR {
            first: Box::new(schedule),
            later: Vec::new(),
        }
    }

    /// Goes on with `schedule` from step `milestone` on.
    #[must_use]
    pub fn then(
        mut self,
        milestone: u64,
        schedule: impl Schedule + Send + Sync + 'static,
    ) -> SequentialLR {
        self.later.push((milestone, Box::new(schedule)));
        self
    }
}

impl Schedule for SequentialLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        let begun = self
            .later
            .iter()
            .rev()
            .find(|(milestone, _)| *milestone <= step);
        match begun {
            None => self.first.lr_at(base, step),
            Some((milestone, schedule)) => schedule.lr_at(base, step - milestone),
        }
    }

    fn check(&self) -> Result<()> {
        if !self
            .later
            .is_sorted_by(|(earlier, _), (later, _)| earlier < later)
        {
            let milestones: Vec<u64> = self.later.iter().map(|(milestone, _)| *milestone).collect();
            return Err(Error::argument(
                "SequentialLR",
                format!("milestones must ascend, got {milestones:?}"),
            ));
        }
        self.first.check()?;
        self.later
            .iter()
            .try_for_each(|(_, schedule)| schedule.check())
    }
}

/// A straight line from nearly 0 up to the base rate over `warmup` steps, then half a cosine wave down to `eta_min` at step
/// `total`.
pub fn warmup_cosine(warmup: u64, total: u64, eta_min: f64) -> SequentialLR {
    let line = LinearLR {
        start_factor: 1.0 / (warmup.max(1) as f64 + 1.0),
        end_factor: 1.0,
        total_iters: warmup.max(1),
    };
    let wave = CosineAnnealingLR {
        t_max: total.saturating_sub(warmup),
        eta_min,
    };
    SequentialLR::new(line).then(warmup, wave)
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
