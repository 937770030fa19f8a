//! Schedules made of others.

use fireclay_tensor::{Error, Result};

use super::{CosineAnnealingLR, LinearLR, Schedule};

type BoxedSchedule = Box<dyn Schedule + Send + Sync>;

/// One schedule after the other, each counting from its own start (`torch.optim.lr_scheduler.SequentialLR`).
pub struct SequentialLR {
    first: BoxedSchedule,
    /// Each with the step at which it begins, ascending.
    later: Vec<(u64, BoxedSchedule)>,
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

    /// The schedule that holds at `step`, and its own count.
    fn begun(&self, step: u64) -> (&BoxedSchedule, u64) {
        let mut later = self.later.iter().rev();
        match later.find(|(milestone, _)| *milestone <= step) {
            None => (&self.first, step),
            Some((milestone, schedule)) => (schedule, step - milestone),
        }
    }
}

impl Schedule for SequentialLR {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        self.lr_of(0, base, step)
    }

    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        let (schedule, step) = self.begun(step);
        schedule.lr_of(group, base, step)
    }

    fn momentum_of(&self, group: usize, step: u64) -> Option<f64> {
        let (schedule, step) = self.begun(step);
        schedule.momentum_of(group, step)
    }

    fn num_groups(&self) -> Option<usize> {
        let later = self.later.iter().map(|(_, schedule)| schedule);
        std::iter::once(&self.first)
            .chain(later)
            .find_map(|schedule| schedule.num_groups())
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

/// Several schedules at once: `base` times the factor of each (`torch.optim.lr_scheduler.ChainedScheduler`).
///
/// A schedule's factor is what it makes of `base`, divided by it; for schedules with a lowest rate other than 0 PyTorch's result is
/// another one.
pub struct ChainedScheduler {
    schedules: Vec<BoxedSchedule>,
}

impl ChainedScheduler {
    /// All of `schedules` at once.
    pub fn new(schedules: Vec<Box<dyn Schedule + Send + Sync>>) -> ChainedScheduler {
        ChainedScheduler { schedules }
    }
}

impl Schedule for ChainedScheduler {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        self.lr_of(0, base, step)
    }

    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        if base == 0.0 {
            return 0.0;
        }
        let schedules = self.schedules.iter();
        schedules.fold(base, |lr, schedule| {
            lr * (schedule.lr_of(group, base, step) / base)
        })
    }

    fn momentum_of(&self, group: usize, step: u64) -> Option<f64> {
        let schedules = self.schedules.iter();
        // The last one that sets it, as where each is stepped in turn.
        schedules
            .rev()
            .find_map(|schedule| schedule.momentum_of(group, step))
    }

    fn num_groups(&self) -> Option<usize> {
        self.schedules
            .iter()
            .find_map(|schedule| schedule.num_groups())
    }

    fn check(&self) -> Result<()> {
        if self.schedules.is_empty() {
            return Err(Error::argument(
                "ChainedScheduler",
                "expected at least one schedule, got none",
            ));
        }
        self.schedules
            .iter()
            .try_for_each(|schedule| schedule.check())
    }
}

/// A schedule for each parameter group (the list form of `torch.optim.lr_scheduler.LambdaLR`, for any schedule).
pub struct PerGroup(pub Vec<Box<dyn Schedule + Send + Sync>>);

impl Schedule for PerGroup {
    fn lr_at(&self, base: f64, step: u64) -> f64 {
        self.lr_of(0, base, step)
    }

    fn lr_of(&self, group: usize, base: f64, step: u64) -> f64 {
        let schedule = self.0.get(group);
        schedule.map_or(base, |schedule| schedule.lr_of(group, base, step))
    }

    fn momentum_of(&self, group: usize, step: u64) -> Option<f64> {
        self.0.get(group)?.momentum_of(group, step)
    }

    fn num_groups(&self) -> Option<usize> {
        Some(self.0.len())
    }

    fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(|schedule| schedule.check())
    }
}
