//! What is true of an op, found out by running its example: nothing here is stated twice.

use fireclay_tensor::device::default_device;
use fireclay_tensor::ops::{Entry, Value};
use fireclay_tensor::{
    Autocast, Backpropagation, DType, Device, Result, Tensor, dispatch, fork_rng, grad_with,
    manual_seed,
};

/// What is true of an op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The dtypes of floating operands with which the example works, for each device asked about; none where it has no operands.
    pub dtypes: Vec<(Device, Vec<DType>)>,
    /// Whether a result of the example has a derivative.
    pub differentiable: bool,
    /// Whether that derivative has one.
    pub twice_differentiable: bool,
    /// Whether two runs give the same bits on each device, from the same seed where the op draws.
    pub deterministic: bool,
    /// Whether two runs in a row give other bits: the op draws random numbers.
    pub random: bool,
    /// What autocast does with the inputs of the ops that it consists of, each class once.
    pub autocast: Vec<Autocast>,
}

impl Facts {
    /// Finds out about `entry` on `devices`.
    ///
    /// # Errors
    /// If the example doesn't run in f32 on the CPU.
    pub fn of(entry: &Entry, devices: &[Device]) -> Result<Facts> {
        let (outputs, seen) = dispatch::observe(|| run(entry, Device::Cpu, DType::F32, 0));
        outputs?;
        let mut autocast: Vec<Autocast> = seen.iter().map(|seen| seen.autocast).collect();
        autocast.sort_unstable();
        autocast.dedup();
        // Movements of elements among them say nothing where others compute.
        if autocast.len() > 1 {
            autocast.retain(|class| !matches!(class, Autocast::Keep | Autocast::Widest));
            if autocast.is_empty() {
                autocast.push(Autocast::Widest);
            }
        }
        let mut facts = Facts {
            dtypes: Vec::new(),
            differentiable: false,
            twice_differentiable: false,
            deterministic: true,
            random: false,
            autocast,
        };
        let arguments = entry.example_arguments(Device::Cpu, DType::F32, 0)?;
        let has_operands = arguments.iter().any(|(_, value)| holds_tensor(value));
        for &device in devices {
            let works = |dtype: &DType| run(entry, device, *dtype, 0).is_ok();
            let dtypes = match has_operands {
                true => DType::ALL.into_iter().filter(works).collect(),
                false => Vec::new(),
            };
            facts.dtypes.push((device, dtypes));
            let [first, second, again] = fork_rng(|| {
                let run = |seed: Option<u64>| {
                    seed.into_iter().for_each(manual_seed);
                    run(entry, device, DType::F32, 0)
                };
                [run(Some(0)), run(None), run(Some(0))]
            });
            facts.random |= first.as_ref().ok() != second.as_ref().ok();
            facts.deterministic &= first? == again?;
        }
        (facts.differentiable, facts.twice_differentiable) = differentiable(entry)?;
        Ok(facts)
    }
}

fn holds_tensor(value: &Value) -> bool {
    let items = value.items().unwrap_or_default();
    value.tensor().is_some() || items.iter().any(holds_tensor)
}

/// The bytes of each result of the example.
fn run(entry: &Entry, device: Device, dtype: DType, seed: u64) -> Result<Vec<Vec<u8>>> {
    let _guard = default_device(device)?;
    let arguments = entry.example_arguments(device, dtype, seed)?;
    let outputs = entry.call(&arguments)?;
    outputs.iter().map(Tensor::to_bytes).collect()
}

/// Whether the example has first and second derivatives by its floating operands.
fn differentiable(entry: &Entry) -> Result<(bool, bool)> {
    let mut arguments = entry.example_arguments(Device::Cpu, DType::F64, 0)?;
    let mut leaves: Vec<Tensor> = Vec::new();
    for (place, (_, value)) in arguments.iter_mut().enumerate() {
        // The receiver of an op in place is a copy: leaves can't be written to.
        let copied = place == 0 && entry.is_in_place();
        require_grad(value, copied, &mut leaves)?;
    }
    let outputs = match entry.call(&arguments) {
        Ok(outputs) => outputs,
        Err(_) => return Ok((false, false)),
    };
    let Some(output) = outputs.iter().find(|output| output.requires_grad()) else {
        return Ok((false, false));
    };
    let leaves: Vec<&Tensor> = leaves.iter().collect();
    let options = Backpropagation {
        create_graph: true,
        allow_unused: true,
        ..Backpropagation::default()
    };
    // A gradient depends on what comes in, also where the op is linear.
    let incoming = output.detach().ones_like()?.requires_grad_(true)?;
    let Ok(grads) = grad_with(&[output], &[Some(&incoming)], &leaves, options) else {
        return Ok((false, false));
    };
    let mut sources = leaves.clone();
    sources.push(&incoming);
    let mut twice = grads.iter().any(Option::is_some);
    for grad in grads.iter().flatten().filter(|grad| grad.requires_grad()) {
        let total = grad.square()?.sum_all()?;
        twice &= grad_with(&[&total], &[None], &sources, options).is_ok();
    }
    Ok((grads.iter().any(Option::is_some), twice))
}

/// Makes leaves of the floating tensors in `value` and adds them to `leaves`; with `copied`, copies of them take their places.
///
/// # Errors
/// Those of a copy.
pub fn require_grad(value: &mut Value, copied: bool, leaves: &mut Vec<Tensor>) -> Result<()> {
    match value {
        Value::Tensor(tensor) if tensor.dtype().is_floating_point() => {
            tensor.requires_grad_(true)?;
            leaves.push(tensor.clone());
            if copied {
                *tensor = tensor.copy()?;
            }
        }
        Value::List(items) => {
            for item in items {
                require_grad(item, copied, leaves)?;
            }
        }
        _ => {}
    }
    Ok(())
}
