//! `ReduceLROnPlateau`: lowers the rate when a figure no longer improves.

use fireclay_tensor::{Error, Result, StateDict, StateDictReader};

use crate::optimizer::Optimizer;

/// Which way a figure improves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PlateauMode {
    /// Less is better: a loss.
    #[default]
    Min,
    /// More is better: an accuracy.
    Max,
}

/// How far a figure must get beyond the best one to count as better.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Threshold {
    /// By this share of the best.
    Relative(f64),
    /// By this much.
    Absolute(f64),
}

/// The options of [`ReduceLROnPlateau`].
#[derive(Clone, PartialEq, Debug)]
pub struct PlateauOptions {
    /// Which way the figure improves.
    pub mode: PlateauMode,
    /// What a rate is multiplied by.
    pub factor: f64,
    /// How many steps in a row without improvement are borne.
    pub patience: u64,
    /// What counts as better.
    pub threshold: Threshold,
    /// How many steps after a reduction are not counted.
    pub cooldown: u64,
    /// The least rate: one for all groups, or one for each.
    pub min_lr: Vec<f64>,
    /// A smaller change of a rate is not made.
    pub eps: f64,
}

impl Default for PlateauOptions {
    fn default() -> Self {
        PlateauOptions {
            mode: PlateauMode::Min,
            factor: 0.1,
            patience: 10,
            threshold: Threshold::Relative(1e-4),
            cooldown: 0,
            min_lr: vec![0.0],
            eps: 1e-8,
        }
    }
}

/// Lowers the rates when a figure has not improved for a while (`torch.optim.lr_scheduler.ReduceLROnPlateau`).
///
/// Call [`step`](ReduceLROnPlateau::step) with the figure after each evaluation. A figure that is not a number is not better.
#[derive(Clone, PartialEq, Debug)]
pub struct ReduceLROnPlateau {
    options: PlateauOptions,
    best: f64,
    bad: u64,
    cooldown: u64,
    last_epoch: u64,
}

impl ReduceLROnPlateau {
    /// # Errors
    /// Options out of range: `factor` from 0 up to, but not, 1; `min_lr` one or one for each group of `optimizer`.
    pub fn new(optimizer: &dyn Optimizer, options: PlateauOptions) -> Result<ReduceLROnPlateau> {
        if !(0.0..1.0).contains(&options.factor) {
            return Err(Error::argument(
                "ReduceLROnPlateau",
                format!(
                    "factor must be from 0 up to, but not, 1, got {}",
                    options.factor
                ),
            ));
        }
        let groups = optimizer.num_groups();
        if options.min_lr.len() != 1 && options.min_lr.len() != groups {
            return Err(Error::argument(
                "ReduceLROnPlateau",
                format!(
                    "min_lr must have 1 or {groups} rates, as many as groups, got {}",
                    options.min_lr.len()
                ),
            ));
        }
        let best = match options.mode {
            PlateauMode::Min => f64::INFINITY,
            PlateauMode::Max => f64::NEG_INFINITY,
        };
        Ok(ReduceLROnPlateau {
            options,
            best,
            bad: 0,
            cooldown: 0,
            last_epoch: 0,
        })
    }

    /// Takes note of the figure; tells whether it lowered the rates.
    pub fn step(&mut self, metric: f64, optimizer: &mut dyn Optimizer) -> bool {
        self.last_epoch = self.last_epoch.saturating_add(1);
        if self.is_better(metric) {
            (self.best, self.bad) = (metric, 0);
        } else {
            self.bad += 1;
        }
        if self.cooldown > 0 {
            self.cooldown -= 1;
            self.bad = 0;
        }
        if self.bad <= self.options.patience {
            return false;
        }
        (self.cooldown, self.bad) = (self.options.cooldown, 0);
        let mut lowered = false;
        for group in 0..optimizer.num_groups() {
            let least = match &self.options.min_lr[..] {
                [all] => *all,
                each => each.get(group).copied().unwrap_or(0.0),
            };
            let lr = optimizer.lr(group);
            let next = (lr * self.options.factor).max(least);
            if lr - next > self.options.eps {
                optimizer.set_lr(group, next);
                lowered = true;
            }
        }
        lowered
    }

    /// The best figure so far, infinite before the first.
    pub fn best(&self) -> f64 {
        self.best
    }

    fn is_better(&self, metric: f64) -> bool {
        match (self.options.mode, self.options.threshold) {
            (PlateauMode::Min, Threshold::Relative(share)) => metric < self.best * (1.0 - share),
            (PlateauMode::Min, Threshold::Absolute(by)) => metric < self.best - by,
            (PlateauMode::Max, Threshold::Relative(share)) => metric > self.best * (1.0 + share),
            (PlateauMode::Max, Threshold::Absolute(by)) => metric > self.best + by,
        }
    }

    /// Where it stands; not the options.
    pub fn state_dict(&self) -> StateDict {
        let numbers = [
            ("best", self.best),
            ("num_bad_epochs", self.bad as f64),
            ("cooldown_counter", self.cooldown as f64),
            ("last_epoch", self.last_epoch as f64),
        ];
        StateDict {
            tensors: Vec::new(),
            numbers: numbers.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    /// Goes to where the saved one stood.
    ///
    /// # Errors
    /// Something is missing or too much; then nothing was changed.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateDictReader::new("ReduceLROnPlateau", state);
        let names = ["best", "num_bad_epochs", "cooldown_counter", "last_epoch"];
        let [best, bad, cooldown, last_epoch] = names.map(|name| reader.number(name));
        reader.finish()?;
        self.best = best;
        (self.bad, self.cooldown, self.last_epoch) =
            (bad as u64, cooldown as u64, last_epoch as u64);
        Ok(())
    }
}
