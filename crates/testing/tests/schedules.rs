//! Every op, and steps of training, on several schedules of the virtual GPU: blocks and warps in other orders, on one thread or
//! two, and streams that run when somebody waits. The bits are the same, and no check finds a race.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use fireclay_cuda::surface;
use fireclay_nn::{BatchNorm2d, Conv2d, Linear, Module, ModuleExt};
use fireclay_optim::{AdamW, AdamWOptions, Optimizer};
use fireclay_tensor::{CrossEntropy, DType, Device, Pool2d, Result, Tensor, manual_seed};
use fireclay_testing::devices::{SCHEDULE_VARIABLES, moved, virtual_cuda};
use fireclay_testing::draw::Form;
use fireclay_testing::samples::samples;

/// Values of [`SCHEDULE_VARIABLES`]; the first is the one that the others are compared with.
const SCHEDULES: [[&str; 3]; 5] = [
    ["", "eager", "1"],
    ["1", "eager", "2"],
    ["2", "deferred", "1"],
    ["3", "deferred", "2"],
    ["4", "deferred", "2"],
];

/// Starts a line that a schedule is judged by.
const MARK: &str = "bits of ";

/// A number for the bits of tensors.
fn digest(tensors: &[Tensor]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for tensor in tensors {
        tensor.shape()[..].hash(&mut hasher);
        tensor.cpu()?.to_bytes()?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

#[derive(Module)]
struct Net {
    conv: Conv2d,
    norm: BatchNorm2d,
    head: Linear,
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.norm.forward(&self.conv.forward(x)?)?.relu()?;
        let x = x.max_pool2d(Pool2d::new([2, 2]))?.flatten(1, -1)?;
        self.head.forward(&x.dropout(0.3, true)?)
    }
}

/// The bits of the loss and the weights after each of some steps.
fn train(device: Device) -> Result<Vec<u64>> {
    manual_seed(9);
    let net = Net {
        conv: Conv2d::new(1, 6, 3)?,
        norm: BatchNorm2d::new(6)?,
        head: Linear::new(6 * 3 * 3, 5)?,
    };
    net.to(device)?;
    let mut optimizer = AdamW::new(net.parameters(), AdamWOptions::default())?;
    let mut digests = Vec::new();
    for _ in 0..4 {
        let images = Tensor::rand(&[32, 1, 8, 8], "cpu")?.to(device)?;
        let labels = Tensor::randint(0, 5, &[32], "cpu")?.to(device)?;
        optimizer.zero_grad();
        let loss = (net.forward(&images)?).cross_entropy(&labels, CrossEntropy::default())?;
        loss.backward()?;
        optimizer.step()?;
        let mut all = vec![loss.detach()];
        all.extend(net.parameters().iter().map(|one| one.tensor().detach()));
        digests.push(digest(&all)?);
    }
    Ok(digests)
}

/// One schedule; started by the test below, a process for each.
#[test]
#[ignore = "a part of every_schedule_gives_the_same_bits, which starts it"]
fn one_schedule() {
    let device = virtual_cuda();
    for (number, sample) in samples().iter().enumerate() {
        for dtype in [DType::F32, DType::BF16] {
            let inputs = moved(&sample.formed(dtype, |x| Form::Sliced.of(x)), device);
            let what = match sample.run(&inputs).and_then(|results| digest(&results)) {
                Ok(digest) => digest.to_string(),
                Err(error) => format!("{:?}", std::mem::discriminant(&error)),
            };
            println!("{MARK}{}, sample {number}, {dtype}: {what}", sample.op);
        }
    }
    for (step, digest) in train(device).unwrap().into_iter().enumerate() {
        println!("{MARK}step {step}: {digest}");
    }
    surface::synchronize(device).unwrap();
}

#[test]
fn every_schedule_gives_the_same_bits() {
    let of = |values: [&str; 3]| -> Vec<String> {
        let mut command = Command::new(std::env::current_exe().expect("this test's file"));
        command.args(["--ignored", "--exact", "--nocapture", "one_schedule"]);
        for (name, value) in SCHEDULE_VARIABLES.into_iter().zip(values) {
            command.env_remove(name);
            if !value.is_empty() {
                command.env(name, value);
            }
        }
        let said = command.output().expect("this test's file again");
        let text = String::from_utf8_lossy(&said.stdout);
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{values:?}: {text}\n{errors}");
        let lines = text.lines().filter_map(|line| line.split_once(MARK));
        lines.map(|(_, rest)| rest.to_string()).collect()
    };
    let want = of(SCHEDULES[0]);
    assert!(want.len() > 2 * samples().len(), "{}", want.len());
    for schedule in &SCHEDULES[1..] {
        let got = of(*schedule);
        assert_eq!(got.len(), want.len(), "{schedule:?}");
        let other: Vec<_> = (got.iter().zip(&want))
            .filter(|(got, want)| got != want)
            .collect();
        assert!(other.is_empty(), "{schedule:?} differs: {other:#?}");
    }
}
