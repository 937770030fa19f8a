//! The examples of the table of ops: derivatives in f64, and the same answers on a device.

use fireclay_tensor::ops::{Entry, Family, Value, entries};
use fireclay_tensor::{DType, Device, Result, Tensor, fork_rng, manual_seed};
use fireclay_testing::compare::{Tolerance, matches};
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::gradcheck::{gradcheck, gradgradcheck};

fn report(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Why differences don't give the derivative at the example.
fn is_exempt(op: &str) -> Option<&'static str> {
    match op {
        "linalg.cholesky" | "linalg.eigh" | "linalg.eigvalsh" => {
            Some("reads one triangle: checked at symmetric matrices, as a sample")
        }
        "linalg.svd" | "linalg.qr" => Some("checked up to signs, as a sample"),
        "nn.functional.ctc_loss" => {
            Some("its gradient is by scores before log_softmax, as PyTorch's")
        }
        "Tensor.float" | "Tensor.half" | "Tensor.bfloat16" => {
            Some("casts to fewer bits: differences see the steps")
        }
        _ => None,
    }
}

/// The example as a function of its tensors, lists of them included.
struct Example {
    entry: &'static Entry,
    arguments: Vec<(&'static str, Value)>,
    /// The outputs that depend on floating operands smoothly.
    smooth: Vec<usize>,
}

impl Example {
    fn of(entry: &'static Entry, device: Device, dtype: DType) -> Example {
        let arguments = entry.example_arguments(device, dtype, 11);
        let arguments = arguments.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let mut example = Example {
            entry,
            arguments,
            smooth: Vec::new(),
        };
        let leaves = example.tensors().into_iter().map(|x| match x.dtype() {
            DType::F64 => x.detach().requires_grad_(true).expect("a leaf"),
            _ => x,
        });
        if let Ok(outputs) = example.call(&leaves.collect::<Vec<_>>()) {
            let outputs = outputs.iter().enumerate();
            let smooth = outputs.filter(|(_, output)| output.requires_grad());
            example.smooth = smooth.map(|(number, _)| number).collect();
        }
        example
    }

    fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        for (_, value) in &self.arguments {
            collect(value, &mut tensors);
        }
        tensors
    }

    /// All outputs, from the same random numbers at each call.
    fn call(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut given = tensors.iter();
        let mut arguments = Vec::new();
        for (place, (name, value)) in self.arguments.iter().enumerate() {
            let mut value = replaced(value, &mut given);
            // What is changed in place is a copy: leaves can't be.
            if let (0, true, Value::Tensor(receiver)) = (place, self.entry.is_in_place(), &value) {
                value = receiver.copy()?.into();
            }
            arguments.push((*name, value));
        }
        fork_rng(|| {
            manual_seed(3);
            self.entry.call(&arguments)
        })
    }

    /// The sum of all smooth outputs, each weighted: what is differentiated.
    fn total(&self, tensors: &[Tensor]) -> Result<Tensor> {
        let mut total: Option<Tensor> = None;
        for (number, output) in self.call(tensors)?.into_iter().enumerate() {
            if !self.smooth.contains(&number) {
                continue;
            }
            let flat = output.reshape(&[-1])?.to_dtype(DType::F64)?;
            let weights = Tensor::linspace_of(0.5, 1.5, flat.numel(), DType::F64, flat.device())?;
            let term = flat.mul(&weights)?.sum_all()?;
            total = Some(match total {
                None => term,
                Some(total) => total.add(&term)?,
            });
        }
        match total {
            Some(total) => Ok(total),
            None => Tensor::full_of(&[], 0.0, DType::F64, Device::Cpu),
        }
    }
}

fn collect(value: &Value, tensors: &mut Vec<Tensor>) {
    match value {
        Value::Tensor(tensor) => tensors.push(tensor.clone()),
        Value::List(items) => items.iter().for_each(|item| collect(item, tensors)),
        _ => {}
    }
}

fn replaced<'a>(value: &Value, given: &mut impl Iterator<Item = &'a Tensor>) -> Value {
    match value {
        Value::Tensor(_) => given.next().into(),
        Value::List(items) => Value::List(items.iter().map(|item| replaced(item, given)).collect()),
        other => other.clone(),
    }
}

/// The examples that have tensors, without those that differences say nothing about.
fn differentiated() -> impl Iterator<Item = Example> {
    entries()
        .iter()
        .filter(|entry| entry.family != Family::Random && is_exempt(entry.name).is_none())
        .map(|entry| Example::of(entry, Device::Cpu, DType::F64))
        .filter(|example| !example.smooth.is_empty())
}

#[test]
fn backward_is_the_derivative() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for example in differentiated() {
        count += 1;
        let total = |tensors: &[Tensor]| example.total(tensors);
        if let Err(what) = gradcheck(&total, &example.tensors()) {
            failures.push(format!("{}: {what}", example.entry.name));
        }
    }
    println!("{count} examples");
    report(&failures);
}

#[test]
fn backward_of_backward_is_the_second_derivative() {
    let (mut failures, mut count, mut once) = (Vec::new(), 0, Vec::new());
    for example in differentiated() {
        let total = |tensors: &[Tensor]| example.total(tensors);
        match gradgradcheck(&total, &example.tensors()) {
            Ok(()) => count += 1,
            // An op without a second derivative says so.
            Err(what) if what.contains("not differentiable") => once.push(example.entry.name),
            Err(what) => failures.push(format!("{}: {what}", example.entry.name)),
        }
    }
    println!("{count} examples twice, once only: {once:?}");
    report(&failures);
}

/// The values of every example on a device are those of the host, within a few units in the last place of f32 sums.
#[test]
fn a_device_answers_as_the_host_does() {
    let device = virtual_cuda();
    let mut failures = Vec::new();
    for entry in entries() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64] {
            let run = |on: Device| {
                let example = Example::of(entry, on, dtype);
                let _guard = fireclay_tensor::device::default_device(on);
                let outputs = example.call(&example.tensors())?;
                outputs.iter().map(Tensor::cpu).collect::<Result<Vec<_>>>()
            };
            match (run(Device::Cpu), run(device)) {
                (Ok(host), Ok(there)) => {
                    let tolerance = match dtype {
                        DType::F64 => Tolerance::new(1e-12, 1e-12),
                        DType::F16 => Tolerance::new(4e-3, 4e-3),
                        DType::BF16 => Tolerance::new(3e-2, 3e-2),
                        _ => Tolerance::new(1e-5, 1e-5),
                    };
                    if host.len() != there.len() {
                        failures.push(format!("{} {dtype}: other outputs", entry.name));
                    }
                    for (host, there) in host.iter().zip(&there) {
                        if let Err(what) = matches(there, host, tolerance) {
                            failures.push(format!("{} {dtype}: {what}", entry.name));
                        }
                    }
                }
                (Err(_), Err(_)) => {}
                (host, there) => {
                    let (host, there) = (host.err(), there.err());
                    failures.push(format!(
                        "{} {dtype}: the host says {host:?}, the device {there:?}",
                        entry.name
                    ));
                }
            }
        }
    }
    report(&failures);
}
