//! Optimizers and clipping by PyTorch's names.

use std::collections::BTreeMap;

use fireclay_optim::{
    ASGDOptions, AdadeltaOptions, AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions,
    AdamaxOptions, ClipNorm, Fused, LBFGS, LBFGSOptions, MuonOptions, NAdamOptions, Optimizer,
    RAdamOptions, RMSpropOptions, RpropOptions, Rule, SGDOptions, clip_grad_norm_with,
    clip_grad_value_,
};
use fireclay_tensor::{Device, Parameter, Tensor};
use serde_json::Value;

use crate::call::{Call, Refusal, unsupported};
use crate::judge::Run;

/// Entry `number` of the inputs: a list of tensors, None where there is none.
fn list<'a>(call: &Call<'a>, number: usize) -> Result<Vec<Option<&'a Tensor>>, Refusal> {
    let items = call.case().list("inputs")[number].as_array();
    let Some(items) = items else {
        return Err(unsupported("an input that is no list"));
    };
    let found = items
        .iter()
        .map(|item| item.as_str().map(|key| call.by_key(key)));
    Ok(found.collect())
}

/// Runs the steps of the case.
pub(crate) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    call.note_inputs();
    let first: Vec<&Tensor> = list(call, 0)?.into_iter().flatten().collect();
    let parameters: Vec<Parameter> = first
        .iter()
        .map(|tensor| Parameter::new(tensor.copy()?))
        .collect::<fireclay_tensor::Result<_>>()?;
    if call.op().starts_with("nn.utils.") {
        for (parameter, grad) in parameters.iter().zip(&first) {
            parameter.tensor().set_grad(Some((*grad).clone()))?;
        }
        let mut outputs = Vec::new();
        if call.op() == "nn.utils.clip_grad_norm_" {
            let options = ClipNorm {
                max_norm: call.float("max_norm", 0.0)?,
                norm_type: call.float("norm_type", 2.0)?,
                error_if_nonfinite: call.flag("error_if_nonfinite", false),
            };
            outputs.push(clip_grad_norm_with(&parameters, options)?);
        } else {
            clip_grad_value_(&parameters, call.float("clip_value", 0.0)?)?;
        }
        outputs.extend(parameters.iter().filter_map(Parameter::grad));
        return Ok(Run {
            outputs,
            ..Run::default()
        });
    }
    if call.op() == "optim.LBFGS" {
        return run_lbfgs(call);
    }
    let mut optimizer = optimizer(call, &parameters)?;
    for step in 1..call.case().list("inputs").len() {
        for (parameter, grad) in parameters.iter().zip(list(call, step)?) {
            parameter.tensor().set_grad(grad.cloned())?;
        }
        optimizer.step()?;
    }
    let saved = optimizer.state_dict();
    let mut state = BTreeMap::new();
    for (name, tensor) in &saved.tensors {
        if let Some(name) = name.strip_prefix("state.") {
            state.insert(name.to_owned(), tensor.clone());
        }
    }
    for (name, number) in &saved.numbers {
        if let Some(name) = name.strip_prefix("state.") {
            let tensor = match name.ends_with(".step") {
                true => Tensor::scalar(*number as i64, Device::Cpu)?,
                false => Tensor::scalar(*number as f32, Device::Cpu)?,
            };
            state.insert(name.to_owned(), tensor);
        }
    }
    Ok(Run {
        outputs: parameters
            .iter()
            .map(|parameter| parameter.tensor().detach())
            .collect(),
        state,
        ..Run::default()
    })
}

/// Steps on a quadratic: x, and the loss before each.
fn run_lbfgs(call: &Call<'_>) -> Result<Run, Refusal> {
    let first = call.tensors("params")?;
    let (a, b) = (call.tensor("A")?, call.tensor("b")?);
    let [x] = first[..] else {
        return Err(unsupported("several parameters"));
    };
    let x = Parameter::new(x.copy()?)?;
    let default = LBFGSOptions::default();
    let options = LBFGSOptions {
        lr: call.float("lr", default.lr)?,
        max_iter: call.int("max_iter", default.max_iter as i64)? as u64,
        max_eval: call.maybe_int("max_eval")?.map(|most| most as u64),
        tolerance_grad: call.float("tolerance_grad", default.tolerance_grad)?,
        tolerance_change: call.float("tolerance_change", default.tolerance_change)?,
        history_size: call.int("history_size", default.history_size as i64)? as usize,
        strong_wolfe: call.text("line_search_fn") == Some("strong_wolfe"),
    };
    let mut optimizer = LBFGS::new([x.clone()], options)?;
    let mut losses = Vec::new();
    for _ in 0..call.case().number("steps") as usize {
        losses.push(optimizer.step_with(&mut || {
            x.zero_grad();
            let at = x.tensor();
            let loss = at.dot(&a.mv(&at)?)?.div(2.0)?.sub(&b.dot(&at)?)?;
            loss.backward()?;
            Ok(loss.detach())
        })?);
    }
    let mut outputs = vec![x.tensor().detach()];
    outputs.extend(losses);
    Ok(Run {
        outputs,
        ..Run::default()
    })
}

fn optimizer(call: &Call<'_>, parameters: &[Parameter]) -> Result<Box<dyn Optimizer>, Refusal> {
    match call.op() {
        "optim.SGD" => fused(call, parameters, SGDOptions::default()),
        "optim.Adam" => fused(call, parameters, AdamOptions::default()),
        "optim.AdamW" => fused(call, parameters, AdamWOptions::default()),
        "optim.RMSprop" => fused(call, parameters, RMSpropOptions::default()),
        "optim.Adagrad" => fused(call, parameters, AdagradOptions::default()),
        "optim.Adadelta" => fused(call, parameters, AdadeltaOptions::default()),
        "optim.Adamax" => fused(call, parameters, AdamaxOptions::default()),
        "optim.NAdam" => fused(call, parameters, NAdamOptions::default()),
        "optim.RAdam" => fused(call, parameters, RAdamOptions::default()),
        "optim.ASGD" => fused(call, parameters, ASGDOptions::default()),
        "optim.Rprop" => fused(call, parameters, RpropOptions::default()),
        "optim.Adafactor" => fused(call, parameters, AdafactorOptions::default()),
        "optim.Muon" => fused(call, parameters, MuonOptions::default()),
        op => Err(unsupported(format!("no optimizer {op}"))),
    }
}

/// An optimizer of the case's groups: an option is the group's, else the case's, else the default. An argument that is no option
/// stays unread, and is refused for it.
fn fused<R: Rule>(
    call: &Call<'_>,
    parameters: &[Parameter],
    default: R,
) -> Result<Box<dyn Optimizer>, Refusal> {
    let defaults = default.options();
    let groups = call.argument("param_groups").and_then(Value::as_array);
    let groups = groups
        .cloned()
        .unwrap_or_else(|| vec![Value::Object(serde_json::Map::new())]);
    let args = call.case().field("args");
    let mut made: Option<Fused<R>> = None;
    for group in &groups {
        let rule = default.with_options(&mut |name| {
            // `betas.0` is the first of the list `betas`.
            let (key, place) = match name.split_once('.') {
                Some((key, place)) => (key, place.parse::<usize>().ok()),
                None => (name, None),
            };
            let _ = call.argument(key);
            let value = group.get(key).or_else(|| args.get(key));
            let value = place.map_or(value, |place| value.and_then(|list| list.get(place)));
            match value {
                Some(Value::Bool(truth)) => f64::from(u8::from(*truth)),
                Some(value) => value.as_f64().unwrap_or(f64::NAN),
                None => {
                    let default = defaults.iter().find(|(known, _)| *known == name);
                    default.map_or(f64::NAN, |(_, value)| *value)
                }
            }
        });
        let chosen: Vec<Parameter> = match group.get("params").and_then(Value::as_array) {
            None => parameters.to_vec(),
            Some(places) => places
                .iter()
                .filter_map(|place| Some(parameters[place.as_u64()? as usize].clone()))
                .collect(),
        };
        match &mut made {
            Some(optimizer) => drop(optimizer.add_param_group(chosen, rule)?),
            None => made = Some(Fused::new(chosen, rule)?),
        }
    }
    match made {
        Some(optimizer) => Ok(Box::new(optimizer)),
        None => Err(unsupported("no parameter groups")),
    }
}
