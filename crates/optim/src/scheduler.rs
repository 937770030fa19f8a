//! `Scheduler`: applies a schedule to an optimizer, step by step.

use fireclay_tensor::{Error, Result, StateDict, StateDictReader};

use crate::optimizer::Optimizer;
use crate::schedule::Schedule;

/// Sets an optimizer's learning rates by a [`Schedule`] (`torch.optim.lr_scheduler.LRScheduler`).
///
/// It holds no reference to the optimizer: `scheduler.step(&mut optimizer)?` after `optimizer.step()?`.
pub struct Scheduler<S> {
    schedule: S,
    base_lrs: Vec<f64>,
    last_epoch: u64,
}

impl<S: Schedule> Scheduler<S> {
    /// A scheduler whose base rates are the optimizer's present ones; sets the rates of step 0.
    ///
    /// # Errors
    /// The schedule's arguments are out of range, or it is for another number of groups, or it cycles a momentum that the optimizer
    /// doesn't have.
    pub fn new(optimizer: &mut dyn Optimizer, schedule: S) -> Result<Scheduler<S>> {
        schedule.check()?;
        let groups = optimizer.num_groups();
        if let Some(expected) = schedule.num_groups().filter(|&count| count != groups) {
            return Err(Error::argument(
                "Scheduler",
                format!(
                    "the schedule is for {expected} parameter groups, the optimizer has {groups}"
                ),
            ));
        }
        for group in 0..groups {
            if schedule.momentum_of(group, 0).is_some() && optimizer.momentum(group).is_none() {
                return Err(Error::argument(
                    "Scheduler",
                    format!("the schedule cycles momentum, which group {group} of the optimizer doesn't have"),
                )
                .with_hint("set cycle_momentum to false, or give the optimizer a momentum"));
            }
        }
        let scheduler = Scheduler {
            schedule,
            base_lrs: (0..optimizer.num_groups())
                .map(|group| optimizer.lr(group))
                .collect(),
            last_epoch: 0,
        };
        scheduler.apply(optimizer);
        Ok(scheduler)
    }

    /// Goes on one step and sets the optimizer's rates.
    ///
    /// # Errors
    /// The schedule ends before (one of a given number of steps); then nothing was changed.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let next = self.last_epoch.saturating_add(1);
        if let Some(last) = self.schedule.last_step().filter(|&last| next > last) {
            return Err(Error::argument(
                "Scheduler",
                format!("step {next} is beyond the schedule's {last} steps"),
            )
            .with_hint("make the schedule with the number of all steps: epochs times batches"));
        }
        self.last_epoch = next;
        self.apply(optimizer);
        Ok(())
    }

    /// The rate of each group now (`get_last_lr`).
    pub fn last_lr(&self) -> Vec<f64> {
        let base_lrs = self.base_lrs.iter().enumerate();
        base_lrs
            .map(|(group, &base)| self.schedule.lr_of(group, base, self.last_epoch))
            .collect()
    }

    /// How often it was stepped.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// Where it stands and its base rates; not the schedule, which is code.
    pub fn state_dict(&self) -> StateDict {
        let base_lrs = self.base_lrs.iter().enumerate();
        let base_lrs = base_lrs.map(|(group, &lr)| (format!("base_lrs.{group}"), lr));
        StateDict {
            tensors: Vec::new(),
            numbers: std::iter::once(("last_epoch".to_owned(), self.last_epoch as f64))
                .chain(base_lrs)
                .collect(),
        }
    }

    /// Goes to where the saved scheduler stood. The optimizer's own state dict has its rates.
    ///
    /// # Errors
    /// The number of groups differs; then nothing was changed.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateDictReader::new("Scheduler", state);
        let last_epoch = reader.number("last_epoch") as u64;
        let base_lrs = (0..self.base_lrs.len())
            .map(|group| reader.number(&format!("base_lrs.{group}")))
            .collect();
        reader.finish()?;
        (self.last_epoch, self.base_lrs) = (last_epoch, base_lrs);
        Ok(())
    }

    /// Groups that were added to the optimizer later keep their rates.
    fn apply(&self, optimizer: &mut dyn Optimizer) {
        let lrs = self.last_lr().into_iter();
        for (group, lr) in lrs.enumerate().take(optimizer.num_groups()) {
            optimizer.set_lr(group, lr);
            if let Some(momentum) = self.schedule.momentum_of(group, self.last_epoch) {
                optimizer.set_momentum(group, momentum);
            }
        }
    }
}
