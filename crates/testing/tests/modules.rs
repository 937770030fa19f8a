//! Fireclay's modules, optimizers and schedules against PyTorch's: every golden case of those that Fireclay has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fireclay_nn::{
    BatchNorm1d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Embedding, EmbeddingConfig,
    GRU, GRUCell, GRUConfig, LSTM, LSTMCell, LSTMConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, Module, ModuleExt, ModuleFields, RNN, RNNCell, RNNCellConfig, RNNConfig,
    RNNNonlinearity, RecurrentCellConfig,
};
use fireclay_optim::{
    ASGDOptions, AdadeltaOptions, AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions,
    AdamaxOptions, ConstantLR, CosineAnnealingLR, ExponentialLR, Fused, LambdaLR, LinearLR,
    MultiStepLR, MuonOptions, NAdamOptions, Optimizer, RAdamOptions, RMSpropOptions, RpropOptions,
    Rule, SGD, SGDOptions, Schedule, Scheduler, StepLR, clip_grad_norm_, clip_grad_value_,
};
use fireclay_tensor::device::default_device;
use fireclay_tensor::{DType, Device, Parameter, Tensor};
use fireclay_testing::calls::{Call, Refusal};
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::golden::Set;
use fireclay_testing::verdict::{Run, Verdict, judge_with};
use serde_json::Value;

/// The checked-in set, or the folders that `FIRECLAY_GOLDEN` lists (parted by colons).
fn folders() -> Vec<PathBuf> {
    match std::env::var("FIRECLAY_GOLDEN") {
        Ok(paths) => paths.split(':').map(PathBuf::from).collect(),
        Err(_) => vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/modules")],
    }
}

#[test]
fn every_module_and_optimizer_answers_as_pytorch_does() {
    judge_all(Device::Cpu, &["module", "optim", "schedule"]);
}

#[test]
fn every_module_answers_as_pytorch_does_on_a_device() {
    let device = virtual_cuda();
    let _guard = default_device(device).unwrap();
    judge_all(device, &["module"]);
}

#[expect(clippy::print_stdout, reason = "the tallies of a test")]
fn judge_all(device: Device, families: &[&str]) {
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let (mut failed, mut skipped) = (Vec::new(), BTreeMap::<String, usize>::new());
    for folder in folders() {
        let set = Set::read(&folder);
        let stored = set.tensors_on(device);
        for case in &set.cases {
            if !families.contains(&case.family.as_str()) {
                continue;
            }
            let counts = counts.entry(case.op.clone()).or_default();
            match judge_with(case, &stored, &run) {
                Verdict::Passed => counts[0] += 1,
                Verdict::Failed(what) => {
                    counts[1] += 1;
                    failed.push(format!("{}: {what}", case.id));
                }
                Verdict::Skipped(why) => {
                    counts[2] += 1;
                    *skipped.entry(format!("{}: {why}", case.op)).or_default() += 1;
                }
            }
        }
    }
    for (op, [passed, failed, skipped]) in &counts {
        println!("{op:44} {passed} passed, {failed} failed, {skipped} skipped");
    }
    for (why, count) in &skipped {
        println!("skipped {count} of {why}");
    }
    if std::env::var_os("FIRECLAY_GOLDEN").is_none() {
        let idle = counts.iter().find(|(_, [passed, ..])| *passed == 0);
        assert!(idle.is_none(), "no case passes of {idle:?}");
    }
    assert!(
        failed.is_empty(),
        "{} cases fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

fn unsupported<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(reason.into()))
}

fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    let run = match call.case().family.as_str() {
        "module" => run_module(call),
        "optim" => run_optimizer(call),
        _ => run_schedule(call),
    }?;
    match call.unread() {
        Some(name) => unsupported(format!("argument {name}")),
        None => Ok(run),
    }
}

fn module(call: &Call<'_>) -> Result<Box<dyn Module>, Refusal> {
    if let Some(mode) = call.text("padding_mode").filter(|mode| *mode != "zeros") {
        return unsupported(format!("padding_mode {mode}"));
    }
    Ok(match call.op() {
        "nn.Linear" => {
            let config = LinearConfig {
                bias: call.flag("bias", true),
                ..LinearConfig::default()
            };
            Box::new(Linear::with(
                call.size("in_features")?,
                call.size("out_features")?,
                config,
            )?)
        }
        "nn.Conv2d" => {
            let config = Conv2dConfig {
                stride: call.pair("stride", [1, 1])?,
                padding: call.pair("padding", [0, 0])?,
                dilation: call.pair("dilation", [1, 1])?,
                groups: call.int("groups", 1)? as usize,
                bias: call.flag("bias", true),
                ..Conv2dConfig::default()
            };
            let (inputs, outputs) = (call.size("in_channels")?, call.size("out_channels")?);
            Box::new(Conv2d::with(
                inputs,
                outputs,
                call.pair("kernel_size", [1, 1])?,
                config,
            )?)
        }
        "nn.Embedding" => {
            let config = EmbeddingConfig {
                padding_idx: call.maybe_int("padding_idx")?.map(|index| index as usize),
                ..EmbeddingConfig::default()
            };
            let (count, width) = (call.size("num_embeddings")?, call.size("embedding_dim")?);
            Box::new(Embedding::with(count, width, config)?)
        }
        "nn.LayerNorm" => {
            let affine = call.flag("elementwise_affine", true);
            let config = LayerNormConfig {
                eps: call.float("eps", 1e-5)?,
                weight: affine,
                bias: affine && call.flag("bias", true),
                ..LayerNormConfig::default()
            };
            Box::new(LayerNorm::with(&call.sizes("normalized_shape")?, config)?)
        }
        "nn.BatchNorm1d" | "nn.BatchNorm2d" => {
            let momentum = match call.case().field("args").get("momentum") {
                Some(Value::Null) => {
                    let _ = call.argument("momentum");
                    None
                }
                _ => Some(call.float("momentum", 0.1)?),
            };
            let config = BatchNormConfig {
                eps: call.float("eps", 1e-5)?,
                momentum,
                affine: call.flag("affine", true),
                track_running_stats: call.flag("track_running_stats", true),
                ..BatchNormConfig::default()
            };
            let features = call.size("num_features")?;
            if call.op() == "nn.BatchNorm1d" {
                Box::new(BatchNorm1d::with(features, config)?)
            } else {
                Box::new(BatchNorm2d::with(features, config)?)
            }
        }
        op => return unsupported(format!("no module {op}")),
    })
}

fn run_module(call: &Call<'_>) -> Result<Run, Refusal> {
    if matches!(call.op(), "nn.LSTM" | "nn.GRU" | "nn.RNN") {
        return run_recurrent(call);
    }
    if !call.op().ends_with("Cell") {
        return run_made(call, module(call)?, |module| {
            Ok(vec![module.forward(call.tensor("input")?)?])
        });
    }
    let sizes = (call.size("input_size")?, call.size("hidden_size")?);
    let bias = call.flag("bias", true);
    let config = RecurrentCellConfig {
        bias,
        ..RecurrentCellConfig::default()
    };
    match call.op() {
        "nn.RNNCell" => {
            let nonlinearity = match call.text("nonlinearity") {
                Some("relu") => RNNNonlinearity::ReLU,
                _ => RNNNonlinearity::Tanh,
            };
            let config = RNNCellConfig {
                nonlinearity,
                bias,
                ..RNNCellConfig::default()
            };
            run_made(call, RNNCell::with(sizes.0, sizes.1, config)?, |cell| {
                let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
                Ok(vec![cell.forward(input, hx)?])
            })
        }
        "nn.GRUCell" => run_made(call, GRUCell::with(sizes.0, sizes.1, config)?, |cell| {
            let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
            Ok(vec![cell.forward(input, hx)?])
        }),
        "nn.LSTMCell" => run_made(call, LSTMCell::with(sizes.0, sizes.1, config)?, |cell| {
            let given = call.case().list("names").iter().any(|name| name == "hx");
            let states = match given {
                true => call.tensors("hx")?,
                false => Vec::new(),
            };
            let hx = match states[..] {
                [h, c] => Some((h, c)),
                _ => None,
            };
            let (h, c) = cell.forward(call.tensor("input")?, hx)?;
            Ok(vec![h, c])
        }),
        op => unsupported(format!("no module {op}")),
    }
}

/// Runs a network over whole sequences.
fn run_recurrent(call: &Call<'_>) -> Result<Run, Refusal> {
    let sizes = (call.size("input_size")?, call.size("hidden_size")?);
    macro_rules! config {
        ($Config:ident { $($own:ident: $value:expr),* }) => {
            $Config {
                num_layers: call.int("num_layers", 1)? as usize,
                bias: call.flag("bias", true),
                batch_first: call.flag("batch_first", false),
                dropout: call.float("dropout", 0.0)?,
                bidirectional: call.flag("bidirectional", false),
                $($own: $value,)*
                ..$Config::default()
            }
        };
    }
    match call.op() {
        "nn.LSTM" => {
            let config = config!(LSTMConfig {
                proj_size: call.int("proj_size", 0)? as usize
            });
            run_made(call, LSTM::with(sizes.0, sizes.1, config)?, |lstm| {
                let given = call.case().list("names").iter().any(|name| name == "hx");
                let states = match given {
                    true => call.tensors("hx")?,
                    false => Vec::new(),
                };
                let hx = match states[..] {
                    [h, c] => Some((h, c)),
                    _ => None,
                };
                let (outputs, (h, c)) = lstm.forward(call.tensor("input")?, hx)?;
                Ok(vec![outputs, h, c])
            })
        }
        "nn.GRU" => {
            let config = config!(GRUConfig {});
            run_made(call, GRU::with(sizes.0, sizes.1, config)?, |gru| {
                let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
                let (outputs, h) = gru.forward(input, hx)?;
                Ok(vec![outputs, h])
            })
        }
        _ => {
            let nonlinearity = match call.text("nonlinearity") {
                Some("relu") => RNNNonlinearity::ReLU,
                _ => RNNNonlinearity::Tanh,
            };
            let config = config!(RNNConfig {
                nonlinearity: nonlinearity
            });
            run_made(call, RNN::with(sizes.0, sizes.1, config)?, |rnn| {
                let (input, hx) = (call.tensor("input")?, call.maybe_tensor("hx")?);
                let (outputs, h) = rnn.forward(input, hx)?;
                Ok(vec![outputs, h])
            })
        }
    }
}

/// Loads the case's state into `module` and runs it.
fn run_made<M: ModuleFields>(
    call: &Call<'_>,
    module: M,
    forward: impl FnOnce(&M) -> Result<Vec<Tensor>, Refusal>,
) -> Result<Run, Refusal> {
    let case = call.case();
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    let mut state = Vec::new();
    for (name, key) in case.list("names").iter().zip(case.list("inputs")) {
        let (Some(name), Some(key)) = (name.as_str(), key.as_str()) else {
            // Of the call, not of the state: where nobody reads it, that is found later.
            continue;
        };
        if let Some(entry) = name.strip_prefix("self.") {
            keys.insert(entry.to_owned(), key.to_owned());
            state.push((entry.to_owned(), call.tensor(name)?.detach()));
        }
    }
    if let Some((_, tensor)) = state
        .iter()
        .find(|(_, tensor)| tensor.dtype().is_floating_point())
    {
        module.to_dtype(tensor.dtype())?;
    }
    module.load_state_dict(&state, true)?;
    module.set_training(case.field("training") == &Value::Bool(true));
    let outputs = forward(&module)?;
    let by_key = |named: Vec<(String, Tensor)>| -> BTreeMap<String, Tensor> {
        let known = named.into_iter();
        known
            .filter_map(|(name, tensor)| Some((keys.get(&name)?.clone(), tensor)))
            .collect()
    };
    let parameters = module.named_parameters().into_iter();
    let buffers = module.named_buffers().into_iter();
    Ok(Run {
        outputs,
        leaves: by_key(
            parameters
                .map(|(name, parameter)| (name, parameter.tensor()))
                .collect(),
        ),
        after: by_key(
            buffers
                .map(|(name, buffer)| (name, buffer.tensor()))
                .collect(),
        ),
        ..Run::default()
    })
}

/// Entry `number` of the inputs: a list of tensors, None where there is none.
fn list<'a>(call: &Call<'a>, number: usize) -> Result<Vec<Option<&'a Tensor>>, Refusal> {
    let items = call.case().list("inputs")[number].as_array();
    let Some(items) = items else {
        return unsupported("an input that is no list");
    };
    let found = items
        .iter()
        .map(|item| item.as_str().map(|key| call.by_key(key)));
    Ok(found.collect())
}

fn run_optimizer(call: &Call<'_>) -> Result<Run, Refusal> {
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
            if call.float("norm_type", 2.0)? != 2.0 || call.text("norm_type").is_some() {
                return unsupported("norm_type");
            }
            outputs.push(clip_grad_norm_(&parameters, call.float("max_norm", 0.0)?)?);
        } else {
            clip_grad_value_(&parameters, call.float("clip_value", 0.0)?)?;
        }
        outputs.extend(parameters.iter().filter_map(Parameter::grad));
        return Ok(Run {
            outputs,
            ..Run::default()
        });
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
        op => unsupported(format!("no optimizer {op}")),
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
        None => unsupported("no parameter groups"),
    }
}

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
                return unsupported("a rule for each group");
            };
            let rule = rule.clone();
            Box::new(LambdaLR(move |epoch: u64| factor(&rule, epoch as f64)))
        }
        op => return unsupported(format!("no schedule {op}")),
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

fn run_schedule(call: &Call<'_>) -> Result<Run, Refusal> {
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
        return unsupported("no rates");
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
    debug_assert_eq!(table.dtype(), DType::F64);
    Ok(Run {
        outputs: vec![table],
        ..Run::default()
    })
}
