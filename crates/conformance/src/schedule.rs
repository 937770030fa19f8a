//! Schedules of the learning rate by PyTorch's names.

use fireclay_optim::{
    ConstantLR, CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR, MultiStepLR, Optimizer, SGD,
    SGDOptions, Schedule, Scheduler, StepLR,
};
use fireclay_tensor::{Device, Parameter, Tensor};
use serde_json::Value;

use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

fn schedule(call: &Call<'_>) -> Result<Box<dyn Schedule + Send + Sync>, Refusal> {
    let whole = |name: &str, default: i64| -> Result<u64, Refusal> {
        u64::try_from(call.int(name, default)?).map_err(|_| Refusal::RuledOut(name.into()))
    };
    Ok(match call.op().trim_start_matches("optim.lr_scheduler.") {
        "StepLR" => Box::new(StepLR {
            step_size: whole("step_size", 1)?,
            gamma: call.float("gamma", 0.1)?,
        }),
        "MultiStepLR" => Box::new(MultiStepLR {
            milestones: call
                .sizes("milestones")?
                .into_iter()
                .map(|at| at as u64)
                .collect(),
            gamma: call.float("gamma", 0.1)?,
        }),
        "ExponentialLR" => Box::new(ExponentialLR {
            gamma: call.float("gamma", 0.1)?,
        }),
        "ConstantLR" => Box::new(ConstantLR {
            factor: call.float("factor", 1.0 / 3.0)?,
            total_iters: whole("total_iters", 5)?,
        }),
        "LinearLR" => Box::new(LinearLR {
            start_factor: call.float("start_factor", 1.0 / 3.0)?,
            end_factor: call.float("end_factor", 1.0)?,
            total_iters: whole("total_iters", 5)?,
        }),
        "CosineAnnealingLR" => Box::new(CosineAnnealingLR {
            t_max: whole("T_max", 1)?,
            eta_min: call.float("eta_min", 0.0)?,
        }),
        "LambdaLR" => {
            let rules = call.argument("lr_lambda").and_then(Value::as_array);
            let Some([rule]) = rules.map(Vec::as_slice) else {
                return Err(unsupported("a rule for each group"));
            };
            let rule = rule.clone();
            Box::new(LambdaLR(move |epoch: u64| factor(&rule, epoch as f64)))
        }
        op => return Err(unsupported(format!("no schedule {op}"))),
    })
}

fn factor(rule: &Value, epoch: f64) -> f64 {
    let number = |name: &str| rule[name].as_f64().unwrap_or(f64::NAN);
    match rule["kind"].as_str() {
        Some("power") => number("base").powf(epoch),
        Some("inverse") => 1.0 / (1.0 + number("rate") * epoch),
        _ => ((epoch + 1.0) / number("steps")).min(1.0),
    }
}

/// Runs the steps of the case: the rates of every group before and after each.
pub(crate) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    let schedule = schedule(call)?;
    let case = call.case();
    let rates: Vec<f64> = case.field("optimizer")["lr"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    let mut optimizer: Option<SGD> = None;
    for &lr in &rates {
        let parameter = [Parameter::new(Tensor::zeros(&[1], Device::Cpu)?)?];
        let options = SGDOptions {
            lr,
            ..SGDOptions::default()
        };
        match &mut optimizer {
            None => optimizer = Some(SGD::new(parameter, options)?),
            Some(optimizer) => {
                optimizer.add_param_group(parameter, options)?;
            }
        }
    }
    let Some(mut optimizer) = optimizer else {
        return Err(unsupported("no rates"));
    };
    let mut scheduler = Scheduler::new(&mut optimizer, schedule)?;
    let steps = case.number("steps") as usize;
    let mut table: Vec<f64> = Vec::new();
    for step in 0..=steps {
        if step > 0 {
            scheduler.step(&mut optimizer);
        }
        table.extend((0..rates.len()).map(|group| optimizer.lr(group)));
    }
    let table = Tensor::from_slice(&table, &[steps + 1, rates.len()], Device::Cpu)?;
    Ok(Run {
        outputs: vec![table],
        ..Run::default()
    })
}
