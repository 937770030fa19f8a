//! Schedules of the learning rate, and the scale of mixed precision, by PyTorch's names.

use fireclay_optim::{
    Adam, AdamOptions, Anneal, ChainedScheduler, ConstantLR, CosineAnnealingLR,
    CosineAnnealingWarmRestarts, CyclicLR, CyclicMode, ExponentialLR, GradScaler,
    GradScalerOptions, LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR, OneCycleLR, Optimizer,
    PerGroup, PlateauMode, PlateauOptions, PolynomialLR, ReduceLROnPlateau, SGD, SGDOptions, SWALR,
    Schedule, Scheduler, SequentialLR, StepLR, Threshold,
};
use fireclay_tensor::{Device, Parameter, Tensor};
use serde_json::{Map, Value};

use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

type Boxed = Box<dyn Schedule + Send + Sync>;

/// The arguments of a schedule, also of one inside another.
struct Arguments<'a> {
    op: &'a str,
    values: &'a Map<String, Value>,
}

impl Arguments<'_> {
    fn given(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    fn float(&self, name: &str, default: f64) -> Result<f64, Refusal> {
        match self.given(name) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .ok_or_else(|| Refusal::RuledOut(format!("{name} is {value}"))),
        }
    }

    fn whole(&self, name: &str, default: u64) -> Result<u64, Refusal> {
        Ok(self.maybe_whole(name)?.unwrap_or(default))
    }

    fn maybe_whole(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let value = self.given(name);
        value
            .map(|value| {
                value
                    .as_u64()
                    .ok_or_else(|| Refusal::RuledOut(format!("{name} is {value}")))
            })
            .transpose()
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        let value = self.given(name).and_then(Value::as_bool);
        value.unwrap_or(default)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.given(name).and_then(Value::as_str)
    }

    /// Numbers, or one as a list of it.
    fn floats(&self, name: &str, default: f64) -> Result<Vec<f64>, Refusal> {
        match self.given(name) {
            Some(Value::Array(items)) => {
                let items = items.iter().map(Value::as_f64).collect::<Option<_>>();
                items.ok_or_else(|| Refusal::RuledOut(format!("{name} has no numbers")))
            }
            _ => Ok(vec![self.float(name, default)?]),
        }
    }

    fn anneal(&self) -> Anneal {
        match self.text("anneal_strategy") {
            Some("linear") => Anneal::Linear,
            _ => Anneal::Cos,
        }
    }

    fn schedules(&self) -> Result<Vec<Boxed>, Refusal> {
        let parts = self.given("schedulers").and_then(Value::as_array);
        let parts = parts.into_iter().flatten();
        parts
            .map(
                |part| match (part["op"].as_str(), part["args"].as_object()) {
                    (Some(op), Some(values)) => Arguments { op, values }.schedule(),
                    _ => Err(unsupported("schedulers without op and args")),
                },
            )
            .collect()
    }

    /// One rule for each group.
    fn rules(&self, make: impl Fn(Value) -> Boxed) -> Result<Boxed, Refusal> {
        let rules = self.given("lr_lambda").and_then(Value::as_array);
        let rules = rules.into_iter().flatten().cloned();
        Ok(Box::new(PerGroup(rules.map(make).collect())))
    }

    fn schedule(&self) -> Result<Boxed, Refusal> {
        Ok(match self.op.rsplit('.').next().unwrap_or_default() {
            "StepLR" => Box::new(StepLR {
                step_size: self.whole("step_size", 1)?,
                gamma: self.float("gamma", 0.1)?,
            }),
            "MultiStepLR" => Box::new(MultiStepLR {
                milestones: (self.floats("milestones", 0.0)?.into_iter())
                    .map(|at| at as u64)
                    .collect(),
                gamma: self.float("gamma", 0.1)?,
            }),
            "ExponentialLR" => Box::new(ExponentialLR {
                gamma: self.float("gamma", 0.1)?,
            }),
            "ConstantLR" => Box::new(ConstantLR {
                factor: self.float("factor", 1.0 / 3.0)?,
                total_iters: self.whole("total_iters", 5)?,
            }),
            "LinearLR" => Box::new(LinearLR {
                start_factor: self.float("start_factor", 1.0 / 3.0)?,
                end_factor: self.float("end_factor", 1.0)?,
                total_iters: self.whole("total_iters", 5)?,
            }),
            "PolynomialLR" => Box::new(PolynomialLR {
                total_iters: self.whole("total_iters", 5)?,
                power: self.float("power", 1.0)?,
            }),
            "CosineAnnealingLR" => Box::new(CosineAnnealingLR {
                t_max: self.whole("T_max", 1)?,
                eta_min: self.float("eta_min", 0.0)?,
            }),
            "CosineAnnealingWarmRestarts" => Box::new(CosineAnnealingWarmRestarts {
                t_0: self.whole("T_0", 1)?,
                t_mult: self.whole("T_mult", 1)?,
                eta_min: self.float("eta_min", 0.0)?,
            }),
            "LambdaLR" => self
                .rules(|rule| Box::new(LambdaLR(move |epoch: u64| factor(&rule, epoch as f64))))?,
            "MultiplicativeLR" => self.rules(|rule| {
                Box::new(MultiplicativeLR(move |epoch: u64| {
                    factor(&rule, epoch as f64)
                }))
            })?,
            "OneCycleLR" => Box::new(self.one_cycle()?),
            "CyclicLR" => Box::new(self.cyclic()?),
            "SWALR" => Box::new(SWALR {
                swa_lr: self.float("swa_lr", 0.0)?,
                anneal_epochs: self.whole("anneal_epochs", 10)?,
                anneal_strategy: self.anneal(),
            }),
            "SequentialLR" => {
                let mut parts = self.schedules()?.into_iter();
                let Some(first) = parts.next() else {
                    return Err(unsupported("no schedulers"));
                };
                let milestones = self.floats("milestones", 0.0)?;
                let later = parts.zip(milestones);
                let whole = later.fold(SequentialLR::new(first), |whole, (part, milestone)| {
                    whole.then(milestone as u64, part)
                });
                Box::new(whole)
            }
            "ChainedScheduler" => Box::new(ChainedScheduler::new(self.schedules()?)),
            _ => return Err(unsupported(format!("no schedule {}", self.op))),
        })
    }

    fn one_cycle(&self) -> Result<OneCycleLR, Refusal> {
        let total_steps = match self.maybe_whole("total_steps")? {
            Some(steps) => steps,
            None => self.whole("epochs", 0)? * self.whole("steps_per_epoch", 0)?,
        };
        let default = OneCycleLR::new(1.0, total_steps);
        Ok(OneCycleLR {
            max_lr: self.floats("max_lr", 1.0)?,
            total_steps,
            pct_start: self.float("pct_start", default.pct_start)?,
            anneal_strategy: self.anneal(),
            cycle_momentum: self.flag("cycle_momentum", true),
            base_momentum: self.float("base_momentum", default.base_momentum)?,
            max_momentum: self.float("max_momentum", default.max_momentum)?,
            div_factor: self.float("div_factor", default.div_factor)?,
            final_div_factor: self.float("final_div_factor", default.final_div_factor)?,
            three_phase: self.flag("three_phase", false),
        })
    }

    fn cyclic(&self) -> Result<CyclicLR, Refusal> {
        let default = CyclicLR::new(0.1, 1.0);
        Ok(CyclicLR {
            base_lr: self.floats("base_lr", 0.1)?,
            max_lr: self.floats("max_lr", 1.0)?,
            step_size_up: self.whole("step_size_up", default.step_size_up)?,
            step_size_down: self.maybe_whole("step_size_down")?,
            mode: match self.text("mode") {
                Some("triangular2") => CyclicMode::Triangular2,
                Some("exp_range") => CyclicMode::ExpRange {
                    gamma: self.float("gamma", 1.0)?,
                },
                _ => CyclicMode::Triangular,
            },
            cycle_momentum: self.flag("cycle_momentum", true),
            base_momentum: self.float("base_momentum", default.base_momentum)?,
            max_momentum: self.float("max_momentum", default.max_momentum)?,
        })
    }
}

fn factor(rule: &Value, epoch: f64) -> f64 {
    let number = |name: &str| rule[name].as_f64().unwrap_or(f64::NAN);
    match rule["kind"].as_str() {
        Some("power") => number("base").powf(epoch),
        Some("inverse") => 1.0 / (1.0 + number("rate") * epoch),
        _ => ((epoch + 1.0) / number("steps")).min(1.0),
    }
}

/// What is stepped once an iteration: a schedule, or the one that looks at a figure.
enum Stepped {
    Schedule(Scheduler<Boxed>),
    Plateau(ReduceLROnPlateau, Vec<f64>),
}

/// Runs the steps of the case: the rates of every group before and after each.
pub(crate) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    let values = call.case().field("args").as_object();
    let empty = Map::new();
    let arguments = Arguments {
        op: call.op(),
        values: values.unwrap_or(&empty),
    };
    call.note_all();
    if call.op() == "amp.GradScaler" {
        return run_scaler(call, &arguments);
    }
    let mut optimizer = optimizer(call)?;
    let optimizer = &mut *optimizer;
    let mut stepped = match call.op().rsplit('.').next() {
        Some("ReduceLROnPlateau") => {
            let options = plateau(&arguments)?;
            let metrics = call.tensor("metrics")?.to_vec::<f64>()?;
            Stepped::Plateau(ReduceLROnPlateau::new(optimizer, options)?, metrics)
        }
        _ => Stepped::Schedule(Scheduler::new(optimizer, arguments.schedule()?)?),
    };
    let steps = call.case().number("steps") as usize;
    let groups = optimizer.num_groups();
    let cycles = arguments.flag("cycle_momentum", false);
    let (mut rates, mut momenta) = (Vec::new(), Vec::new());
    for step in 0..=steps {
        if step > 0 {
            match &mut stepped {
                Stepped::Schedule(scheduler) => scheduler.step(optimizer)?,
                Stepped::Plateau(scheduler, metrics) => {
                    let metric = metrics.get(step - 1).copied().unwrap_or(f64::NAN);
                    scheduler.step(metric, optimizer);
                }
            }
        }
        for group in 0..groups {
            rates.push(optimizer.lr(group));
            momenta.push(optimizer.momentum(group).unwrap_or(f64::NAN));
        }
    }
    let table = |values: &[f64]| Tensor::from_slice(values, &[steps + 1, groups], Device::Cpu);
    let mut outputs = vec![table(&rates)?];
    if cycles {
        outputs.push(table(&momenta)?);
    }
    Ok(Run {
        outputs,
        ..Run::default()
    })
}

fn plateau(arguments: &Arguments<'_>) -> Result<PlateauOptions, Refusal> {
    let default = PlateauOptions::default();
    let threshold = arguments.float("threshold", 1e-4)?;
    Ok(PlateauOptions {
        mode: match arguments.text("mode") {
            Some("max") => PlateauMode::Max,
            _ => PlateauMode::Min,
        },
        factor: arguments.float("factor", default.factor)?,
        patience: arguments.whole("patience", default.patience)?,
        threshold: match arguments.text("threshold_mode") {
            Some("abs") => Threshold::Absolute(threshold),
            _ => Threshold::Relative(threshold),
        },
        cooldown: arguments.whole("cooldown", default.cooldown)?,
        min_lr: arguments.floats("min_lr", 0.0)?,
        eps: arguments.float("eps", default.eps)?,
    })
}

/// The optimizer of the case, with one parameter in each group.
fn optimizer(call: &Call<'_>) -> Result<Box<dyn Optimizer>, Refusal> {
    let fields = call.case().field("optimizer");
    let rates = fields["lr"].as_array().into_iter().flatten();
    let rates: Vec<f64> = rates.filter_map(Value::as_f64).collect();
    let parameter = || Ok::<_, Refusal>([Parameter::new(Tensor::zeros(&[1], Device::Cpu)?)?]);
    let Some((&first, later)) = rates.split_first() else {
        return Err(unsupported("no rates"));
    };
    if fields["op"] == "optim.Adam" {
        let options = |lr: f64| AdamOptions {
            lr,
            ..AdamOptions::default()
        };
        let mut optimizer = Adam::new(parameter()?, options(first))?;
        for &lr in later {
            optimizer.add_param_group(parameter()?, options(lr))?;
        }
        return Ok(Box::new(optimizer));
    }
    let options = |lr: f64| SGDOptions {
        lr,
        momentum: fields["momentum"].as_f64().unwrap_or(0.0),
        ..SGDOptions::default()
    };
    let mut optimizer = SGD::new(parameter()?, options(first))?;
    for &lr in later {
        optimizer.add_param_group(parameter()?, options(lr))?;
    }
    Ok(Box::new(optimizer))
}

/// The scale after each iteration, and whether its step was made.
fn run_scaler(call: &Call<'_>, arguments: &Arguments<'_>) -> Result<Run, Refusal> {
    let default = GradScalerOptions::default();
    let mut scaler = GradScaler::new(GradScalerOptions {
        init_scale: arguments.float("init_scale", default.init_scale)?,
        growth_factor: arguments.float("growth_factor", default.growth_factor)?,
        backoff_factor: arguments.float("backoff_factor", default.backoff_factor)?,
        growth_interval: arguments.whole("growth_interval", default.growth_interval)?,
        enabled: true,
    })?;
    let found_inf = call.tensor("found_inf")?;
    let device = found_inf.device();
    let parameter = Parameter::new(Tensor::zeros(&[1], device)?)?;
    let options = SGDOptions {
        lr: 1.0,
        ..SGDOptions::default()
    };
    let mut optimizer = SGD::new([parameter.clone()], options)?;
    let (mut scales, mut made) = (Vec::new(), Vec::new());
    for bad in found_inf.to_vec::<bool>()? {
        let grad = if bad {
            f64::INFINITY
        } else {
            scaler.get_scale()
        };
        let grad = Tensor::full(&[1], grad as f32, device)?;
        parameter.tensor().set_grad(Some(grad))?;
        made.push(scaler.step(&mut optimizer)?);
        scaler.update()?;
        scales.push(scaler.get_scale() as f32);
    }
    Ok(Run {
        outputs: vec![
            Tensor::from_slice(&scales, &[scales.len()], device)?,
            Tensor::from_slice(&made, &[made.len()], device)?,
        ],
        ..Run::default()
    })
}
