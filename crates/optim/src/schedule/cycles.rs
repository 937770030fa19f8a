//! Schedules that have rates of their own, whatever the group's: one cycle, and cycles.

use std::f64::consts::PI;

use fireclay_core::math;
use fireclay_tensor::{Error, Result};

use super::{Schedule, at_least_1};

/// The form of a way from one value to another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Anneal {
    /// Half a cosine wave.
    #[default]
    Cos,
    /// A straight line.
    Linear,
}

impl Anneal {
    /// The value at `share` of the way from `start` to `end`.
    pub(super) fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Anneal::Cos => end + (start - end) / 2.0 * (1.0 + math::cos(PI * share)),
            Anneal::Linear => start + (end - start) * share,
        }
    }
}

/// Up to `max_lr` and down to nearly nothing, once, within `total_steps`; momentum goes the other way
/// (`torch.optim.lr_scheduler.OneCycleLR`; Smith and Topin 2018). The groups' own rates are not used.
///
/// From `max_lr / div_factor` it rises to `max_lr` in the first `pct_start` of the steps, and falls to
/// `max_lr / div_factor / final_div_factor` in the others. Further steps are
/// refused.
#[derive(Clone, PartialEq, Debug)]
pub struct OneCycleLR {
    /// The highest rate: one for all groups, or one for each.
    pub max_lr: Vec<f64>,
    /// How many steps there are: epochs times steps in an epoch.
    pub total_steps: u64,
    /// The share of the steps in which the rate rises.
    pub pct_start: f64,
    /// The form of the ways.
    pub anneal_strategy: Anneal,
    /// Whether momentum is set too.
    pub cycle_momentum: bool,
    /// The momentum at the highest rate.
    pub base_momentum: f64,
    /// The momentum at the first rate and the last.
    pub max_momentum: f64,
    /// The highest rate over the first.
    pub div_factor: f64,
    /// The first rate over the last.
    pub final_div_factor: f64,
    /// Falls first as far as it rose, as steeply, and to the last rate then.
    pub three_phase: bool,
}

impl OneCycleLR {
    /// PyTorch's defaults, for a highest rate and a number of steps.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycleLR {
        OneCycleLR {
            max_lr: vec![max_lr],
            total_steps,
            pct_start: 0.3,
            anneal_strategy: Anneal::Cos,
            cycle_momentum: true,
            base_momentum: 0.85,
            max_momentum: 0.95,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }

    /// Where `step` stands: between which of the values "first", "highest", "last", and how far.
    fn phase(&self, step: u64) -> ([Point; 2], f64) {
        let (step, end) = (step as f64, self.total_steps as f64 - 1.0);
        let top = self.pct_start * self.total_steps as f64 - 1.0;
        let phases: &[(f64, [Point; 2])] = if self.three_phase {
            &[
                (top, [Point::First, Point::Highest]),
                (2.0 * top, [Point::Highest, Point::First]),
                (end, [Point::First, Point::Last]),
            ]
        } else {
            &[
                (top, [Point::First, Point::Highest]),
                (end, [Point::Highest, Point::Last]),
            ]
        };
        let mut start = 0.0;
        for (number, &(stop, points)) in phases.iter().enumerate() {
            if step <= stop || number + 1 == phases.len() {
                let share = (step - start) / (stop - start);
                // A phase of no length is over at once.
                let share = if share.is_nan() { 1.0 } else { share };
                return (points, share.clamp(0.0, 1.0));
            }
            start = stop;
        }
        ([Point::Last; 2], 1.0)
    }
}

#[derive(Clone, Copy)]
enum Point {
    First,
    Highest,
    Last,
}

impl Schedule for OneCycleLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        self.lr_of(0, base, step)
    }

    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        let Some(&highest) = of_group(&self.max_lr, group) else {
            return base;
        };
        let first = highest / self.div_factor;
        let ([from, to], share) = self.phase(step);
        let [from, to] = [from, to].map(|point| match point {
            Point::First => first,
            Point::Highest => highest,
            Point::Last => first / self.final_div_factor,
        });
        self.anneal_strategy.between(from, to, share)
    }

    fn momentum_of(&self, _: usize, step: u64) -> Option<f64> {
        let ([from, to], share) = self.phase(step);
        let [from, to] = [from, to].map(|point| match point {
            Point::First | Point::Last => self.max_momentum,
            Point::Highest => self.base_momentum,
        });
        let momentum = self.anneal_strategy.between(from, to, share);
        self.cycle_momentum.then_some(momentum)
    }

    fn num_groups(&self) -> Option<usize> {
        several(&self.max_lr)
    }

    fn last_step(&self) -> Option<u64> {
        Some(self.total_steps)
    }

    fn check(&self) -> Result<()> {
        at_least_1("OneCycleLR", "total_steps", self.total_steps)?;
        let positive = |name: &str, value: f64| {
            refuse_unless(value > 0.0 && value.is_finite(), "OneCycleLR", || {
                format!("{name} must be finite and above 0, got {value}")
            })
        };
        refuse_unless(!self.max_lr.is_empty(), "OneCycleLR", || {
            "max_lr must have one rate, or one for each group, got none".into()
        })?;
        self.max_lr
            .iter()
            .try_for_each(|&lr| positive("max_lr", lr))?;
        positive("div_factor", self.div_factor)?;
        positive("final_div_factor", self.final_div_factor)?;
        let share = self.pct_start;
        refuse_unless((0.0..=1.0).contains(&share), "OneCycleLR", || {
            format!("pct_start must be from 0 to 1, got {share}")
        })
    }
}

/// How the height of [`CyclicLR`]'s cycles changes.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum CyclicMode {
    /// All are as high.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// `gamma^step` times as high.
    ExpRange {
        /// The factor from step to step.
        gamma: f64,
    },
}

/// Up from `base_lr` to `max_lr` and down again, over and over; momentum goes the other way
/// (`torch.optim.lr_scheduler.CyclicLR`; Smith 2017). The groups' own rates are not used.
#[derive(Clone, PartialEq, Debug)]
pub struct CyclicLR {
    /// The lowest rate: one for all groups, or one for each.
    pub base_lr: Vec<f64>,
    /// The highest rate: one for all groups, or one for each.
    pub max_lr: Vec<f64>,
    /// The steps up.
    pub step_size_up: u64,
    /// The steps down, as many as up if it is None.
    pub step_size_down: Option<u64>,
    /// How the height changes.
    pub mode: CyclicMode,
    /// Whether momentum is set too.
    pub cycle_momentum: bool,
    /// The momentum at the highest rate.
    pub base_momentum: f64,
    /// The momentum at the lowest rate.
    pub max_momentum: f64,
}

impl CyclicLR {
    /// PyTorch's defaults, for a lowest and a highest rate.
    pub fn new(base_lr: f64, max_lr: f64) -> CyclicLR {
        CyclicLR {
            base_lr: vec![base_lr],
            max_lr: vec![max_lr],
            step_size_up: 2000,
            step_size_down: None,
            mode: CyclicMode::Triangular,
            cycle_momentum: true,
            base_momentum: 0.8,
            max_momentum: 0.9,
        }
    }

    /// How much of the height there is at `step`.
    fn height(&self, step: u64) -> f64 {
        let down = self.step_size_down.unwrap_or(self.step_size_up);
        let total = self.step_size_up as f64 + down as f64;
        let top = self.step_size_up as f64 / total;
        let cycle = (1.0 + step as f64 / total).floor();
        let at = 1.0 + step as f64 / total - cycle;
        let height = if at <= top {
            at / top
        } else {
            (at - 1.0) / (top - 1.0)
        };
        height
            * match self.mode {
                CyclicMode::Triangular => 1.0,
                CyclicMode::Triangular2 => math::pow(2.0, 1.0 - cycle),
                CyclicMode::ExpRange { gamma } => math::pow(gamma, step as f64),
            }
    }
}

impl Schedule for CyclicLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        self.lr_of(0, base, step)
    }

    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        match (
            of_group(&self.base_lr, group),
            of_group(&self.max_lr, group),
        ) {
            (Some(low), Some(high)) => low + (high - low) * self.height(step),
            _ => base,
        }
    }

    fn momentum_of(&self, _: usize, step: u64) -> Option<f64> {
        let momentum =
            self.max_momentum - (self.max_momentum - self.base_momentum) * self.height(step);
        self.cycle_momentum.then_some(momentum)
    }

    fn num_groups(&self) -> Option<usize> {
        several(&self.base_lr).or(several(&self.max_lr))
    }

    fn check(&self) -> Result<()> {
        at_least_1("CyclicLR", "step_size_up", self.step_size_up)?;
        at_least_1(
            "CyclicLR",
            "step_size_down",
            self.step_size_down.unwrap_or(self.step_size_up),
        )?;
        for (name, rates) in [("base_lr", &self.base_lr), ("max_lr", &self.max_lr)] {
            refuse_unless(!rates.is_empty(), "CyclicLR", || {
                format!("{name} must have one rate, or one for each group, got none")
            })?;
        }
        let counts = (several(&self.base_lr), several(&self.max_lr));
        refuse_unless(
            !matches!(counts, (Some(low), Some(high)) if low != high),
            "CyclicLR",
            || {
                format!(
                    "base_lr and max_lr must have as many rates, got {} and {}",
                    self.base_lr.len(),
                    self.max_lr.len()
                )
            },
        )
    }
}

/// The value of a group: its own, or the one of all.
fn of_group(values: &[f64], group: usize) -> Option<&f64> {
    match values {
        [all] => Some(all),
        each => each.get(group),
    }
}

/// For how many groups values are, if not for any number.
fn several(values: &[f64]) -> Option<usize> {
    (values.len() > 1).then_some(values.len())
}

fn refuse_unless(fits: bool, schedule: &'static str, what: impl FnOnce() -> String) -> Result<()> {
    match fits {
        true => Ok(()),
        false => Err(Error::argument(schedule, what())),
    }
}
