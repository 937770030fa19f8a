//! `GradScaler`: keeps small gradients of 16-bit floats from vanishing.

use fireclay_tensor::{
    DType, Error, Parameter, ParameterId, Result, StateDict, StateDictReader, Tensor, no_grad,
};

use crate::optimizer::Optimizer;

/// The options of [`GradScaler`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GradScalerOptions {
    /// The first scale.
    pub init_scale: f64,
    /// What the scale is multiplied by after `growth_interval` steps in a row that were finite.
    pub growth_factor: f64,
    /// What the scale is multiplied by after a step that was not.
    pub backoff_factor: f64,
    /// After how many steps the scale grows.
    pub growth_interval: u64,
    /// Whether it does anything: if not, losses pass as they are and every step is made.
    pub enabled: bool,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        GradScalerOptions {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            enabled: true,
        }
    }
}

/// Scales losses up so that gradients of 16-bit floats don't vanish, scales gradients down again before the step, and leaves a step
/// out where one of them is not finite (`torch.amp.GradScaler`).
///
/// ```
/// use fireclay_optim::{GradScaler, GradScalerOptions, Optimizer, SGD, SGDOptions};
/// use fireclay_tensor::{Parameter, Tensor};
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let weight = Parameter::new(Tensor::ones(&[4], "cpu")?)?;
/// let mut optimizer = SGD::new([weight.clone()], SGDOptions { lr: 0.1, ..Default::default() })?;
/// let mut scaler = GradScaler::new(GradScalerOptions::default())?;
/// for _ in 0..3 {
///     optimizer.zero_grad();
///     let loss = weight.tensor().square()?.sum_all()?;
///     scaler.scale(&loss)?.backward()?;
///     scaler.unscale_(&optimizer)?; // only to clip gradients here
///     scaler.step(&mut optimizer)?;
///     scaler.update()?;
/// }
/// assert!(weight.tensor().square()?.sum_all()?.item()? < 4.0);
/// # Ok(())
/// # }
/// ```
///
/// A step looks at all gradients and waits once for the device to know whether they are finite.
#[derive(Clone, Debug)]
pub struct GradScaler {
    options: GradScalerOptions,
    scale: f64,
    /// How many steps in a row were finite.
    streak: u64,
    /// The optimizers of this iteration, known by their first parameter.
    seen: Vec<(ParameterId, Stage)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Unscaled { finite: bool },
    Stepped { finite: bool },
}

impl GradScaler {
    /// # Errors
    /// `init_scale` is not positive, `growth_factor` not above 1, `backoff_factor` not between 0 and 1, or `growth_interval` is 0.
    pub fn new(options: GradScalerOptions) -> Result<GradScaler> {
        let positive = options.init_scale > 0.0 && options.init_scale.is_finite();
        let checks = [
            (
                "init_scale",
                options.init_scale,
                positive,
                "finite and above 0",
            ),
            (
                "growth_factor",
                options.growth_factor,
                options.growth_factor > 1.0 && options.growth_factor.is_finite(),
                "finite and above 1",
            ),
            (
                "backoff_factor",
                options.backoff_factor,
                options.backoff_factor > 0.0 && options.backoff_factor < 1.0,
                "above 0 and below 1",
            ),
            (
                "growth_interval",
                options.growth_interval as f64,
                options.growth_interval > 0,
                "at least 1",
            ),
        ];
        for (name, value, fits, expected) in checks {
            if !fits {
                let what = format!("{name} must be {expected}, got {value}");
                return Err(Error::argument("GradScaler", what));
            }
        }
        Ok(GradScaler {
            options,
            scale: options.init_scale,
            streak: 0,
            seen: Vec::new(),
        })
    }

    /// The scale now; 1 if it is not enabled (`get_scale`).
    pub fn get_scale(&self) -> f64 {
        match self.options.enabled {
            true => self.scale,
            false => 1.0,
        }
    }

    /// Whether it does anything.
    pub fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// The loss times the scale: call `backward` on it. A loss of 16 bits becomes f32 first, as the scale may be beyond its range.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        match self.options.enabled {
            false => Ok(loss.clone()),
            true if loss.dtype().is_half() => loss.to_dtype(DType::F32)?.mul(self.scale),
            true => loss.mul(self.scale),
        }
    }

    /// Divides the optimizer's gradients by the scale, to look at them or clip them before [`step`](GradScaler::step); without this
    /// the step does it.
    ///
    /// # Errors
    /// The gradients were divided already since the last [`update`](GradScaler::update), or the step was made; a gradient is of f16,
    /// which would lose the small ones again.
    #[track_caller]
    pub fn unscale_(&mut self, optimizer: &dyn Optimizer) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        let id = self.identify(optimizer)?;
        match self.stage(id) {
            Some(Stage::Unscaled { .. }) => Err(out_of_order(
                "unscale_ was called already for this optimizer since the last update",
            )),
            Some(Stage::Stepped { .. }) => Err(out_of_order("unscale_ is called after step")),
            None => {
                let finite = self.unscale(&optimizer.parameters())?;
                self.seen.push((id, Stage::Unscaled { finite }));
                Ok(())
            }
        }
    }

    /// Divides the gradients by the scale, unless [`unscale_`](GradScaler::unscale_) did, and makes the optimizer's step if all of
    /// them are finite. Tells whether it was made.
    ///
    /// # Errors
    /// As of `unscale_` and of the optimizer's step; a second step before [`update`](GradScaler::update).
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.options.enabled {
            optimizer.step()?;
            return Ok(true);
        }
        let id = self.identify(optimizer)?;
        let finite = match self.stage(id) {
            Some(Stage::Stepped { .. }) => {
                return Err(out_of_order(
                    "step was called already for this optimizer since the last update",
                ));
            }
            Some(Stage::Unscaled { finite }) => finite,
            None => self.unscale(&optimizer.parameters())?,
        };
        if finite {
            optimizer.step()?;
        }
        self.seen.retain(|(known, _)| *known != id);
        self.seen.push((id, Stage::Stepped { finite }));
        Ok(finite)
    }

    /// Adjusts the scale after the steps of all optimizers.
    ///
    /// # Errors
    /// No step was made since the last time.
    pub fn update(&mut self) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        if self.seen.is_empty() {
            return Err(out_of_order("update is called before any step"));
        }
        let finite = self.seen.iter().all(|(_, stage)| match stage {
            Stage::Unscaled { finite } | Stage::Stepped { finite } => *finite,
        });
        self.seen.clear();
        if !finite {
            self.scale = rounded(self.scale * self.options.backoff_factor);
            self.streak = 0;
            return Ok(());
        }
        self.streak += 1;
        if self.streak >= self.options.growth_interval {
            let grown = rounded(self.scale * self.options.growth_factor);
            if grown.is_finite() {
                self.scale = grown;
            }
            self.streak = 0;
        }
        Ok(())
    }

    /// Scale, factors, interval and streak by PyTorch's names.
    pub fn state_dict(&self) -> StateDict {
        let numbers = [
            ("scale", self.scale),
            ("growth_factor", self.options.growth_factor),
            ("backoff_factor", self.options.backoff_factor),
            ("growth_interval", self.options.growth_interval as f64),
            ("_growth_tracker", self.streak as f64),
        ];
        StateDict {
            tensors: Vec::new(),
            numbers: numbers.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    /// Goes to where the saved one stood.
    ///
    /// # Errors
    /// Something is missing, too much or out of range; then nothing was changed.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateDictReader::new("GradScaler", state);
        let scale = reader.number("scale");
        let options = GradScalerOptions {
            init_scale: scale,
            growth_factor: reader.number("growth_factor"),
            backoff_factor: reader.number("backoff_factor"),
            growth_interval: reader.number("growth_interval") as u64,
            enabled: self.options.enabled,
        };
        let streak = reader.number("_growth_tracker") as u64;
        reader.finish()?;
        let loaded = GradScaler::new(options)?;
        let init_scale = self.options.init_scale;
        *self = GradScaler { streak, ..loaded };
        self.options.init_scale = init_scale;
        Ok(())
    }

    /// The optimizer's first parameter stands for it.
    fn identify(&self, optimizer: &dyn Optimizer) -> Result<ParameterId> {
        let parameters = optimizer.parameters();
        let first = parameters.first().map(Parameter::id);
        first.ok_or_else(|| Error::argument("GradScaler", "the optimizer has no parameters"))
    }

    fn stage(&self, id: ParameterId) -> Option<Stage> {
        let found = self.seen.iter().find(|(known, _)| *known == id);
        found.map(|(_, stage)| *stage)
    }

    /// Divides all gradients by the scale and tells whether all are finite.
    fn unscale(&self, parameters: &[Parameter]) -> Result<bool> {
        let grads: Vec<Tensor> = parameters.iter().filter_map(Parameter::grad).collect();
        if let Some(half) = grads.iter().find(|grad| grad.dtype() == DType::F16) {
            return Err(Error::dtype(
                "GradScaler",
                format!(
                    "a gradient of {} can't be divided by the scale",
                    half.dtype()
                ),
            )
            .with_hint("keep the parameters in f32 and compute in f16"));
        }
        // Rounded to f32 as PyTorch's.
        let inverse = rounded(1.0 / self.scale);
        no_grad(|| {
            let mut all: Option<Tensor> = None;
            for grad in &grads {
                let finite = grad.isfinite()?.all(&[], false)?;
                all = Some(match all {
                    None => finite,
                    Some(all) => all.logical_and(&finite.to(all.device())?)?,
                });
                grad.mul_(inverse)?;
            }
            match all {
                None => Ok(true),
                Some(all) => Ok(all.item()? != 0.0),
            }
        })
    }
}

/// As an f32, in which PyTorch keeps the scale.
fn rounded(value: f64) -> f64 {
    f64::from(value as f32)
}

fn out_of_order(what: &str) -> Error {
    Error::argument("GradScaler", what).with_hint(
        "in each iteration: scale, backward, unscale_ if gradients are clipped, step, update",
    )
}
