//! A classifier trained on the virtual GPU: the host's bits after every step, and what a step costs.

use std::sync::{Mutex, PoisonError};

use fireclay_cuda::Launches;
use fireclay_nn::{Linear, Module, ModuleExt};
use fireclay_optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use fireclay_tensor::{CrossEntropy, Device, Result, Tensor, fork_rng, manual_seed};
use fireclay_testing::compare::same_bits;
use fireclay_testing::devices::{machine, virtual_cuda};
use virtual_gpu::machine::Counters;

const BATCH: usize = 64;

/// One test at a time: counters are the device's.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Module)]
struct Net {
    hidden: Linear,
    output: Linear,
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(x)?.relu()?)
    }
}

impl Net {
    fn new(device: Device) -> Net {
        let net = fork_rng(|| {
            manual_seed(5);
            Net {
                hidden: Linear::new(64, 48).unwrap(),
                output: Linear::new(48, 10).unwrap(),
            }
        });
        net.to(device).unwrap();
        net
    }
}

fn batch(device: Device, number: u64) -> (Tensor, Tensor) {
    let (x, classes) = fork_rng(|| {
        manual_seed(100 + number);
        let x = Tensor::rand(&[BATCH, 64], "cpu").unwrap();
        (x, Tensor::randint(0, 10, &[BATCH], "cpu").unwrap())
    });
    (x.to(device).unwrap(), classes.to(device).unwrap())
}

/// A step; the loss stays where it is.
fn step(net: &Net, optimizer: &mut dyn Optimizer, (x, classes): &(Tensor, Tensor)) -> Tensor {
    optimizer.zero_grad();
    let loss = net.forward(x).unwrap();
    let loss = loss
        .cross_entropy(classes, CrossEntropy::default())
        .unwrap();
    loss.backward().unwrap();
    optimizer.step().unwrap();
    loss.detach()
}

type Make = fn(&Net) -> Box<dyn Optimizer>;

const OPTIMIZERS: [(&str, Make); 2] = [
    ("AdamW", |net| {
        Box::new(AdamW::new(net.parameters(), AdamWOptions::default()).unwrap())
    }),
    ("SGD", |net| {
        let options = SGDOptions {
            lr: 0.1,
            momentum: 0.9,
            nesterov: true,
            weight_decay: 1e-3,
            ..SGDOptions::default()
        };
        Box::new(SGD::new(net.parameters(), options).unwrap())
    }),
];

#[test]
fn training_on_a_device_gives_the_bits_of_the_host() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = virtual_cuda();
    for (name, make) in OPTIMIZERS {
        let (here, there) = (Net::new(Device::Cpu), Net::new(device));
        let (mut on_host, mut on_device) = (make(&here), make(&there));
        for number in 0..6 {
            let want = step(&here, &mut *on_host, &batch(Device::Cpu, number));
            let got = step(&there, &mut *on_device, &batch(device, number));
            assert!(
                same_bits(&got.cpu().unwrap(), &want),
                "{name}, loss of step {number}"
            );
            for (got, want) in there.parameters().iter().zip(here.parameters()) {
                let got = got.tensor().detach().cpu().unwrap();
                assert!(
                    same_bits(&got, &want.tensor().detach()),
                    "{name}, step {number}"
                );
            }
        }
    }
}

/// What a warm step costs: no memory of the driver, no wait of the host, one launch for the optimizer, and pointwise kernels
/// that read and write each element once. Prints the table of bench/README.md.
#[test]
fn a_warm_step_asks_the_driver_for_launches_only() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = virtual_cuda();
    let machine = machine();
    let net = Net::new(device);
    let mut optimizer = OPTIMIZERS[0].1(&net);
    let given = batch(device, 0);
    for _ in 0..3 {
        step(&net, &mut *optimizer, &given);
    }
    let gpu = fireclay_cuda::Gpu::get(0).unwrap();
    gpu.synchronize().unwrap();
    let launched = gpu.launches();
    let (waits, before) = (fireclay_cuda::sync::count(), machine.counters());
    let loss = step(&net, &mut *optimizer, &given);
    let no_waits = fireclay_cuda::sync::count() == waits;
    assert!(no_waits, "the host waited for the device");
    let calls_after = machine.counters();
    gpu.synchronize().unwrap();
    let (waits, after) = (waits + 1, machine.counters());
    let calls = |name: &str| calls_after.calls_of(name) - before.calls_of(name);
    println!("| driver call | a step |\n|---|---:|");
    for name in calls_after.calls.keys() {
        if calls(name) > 0 {
            println!("| {name} | {} |", calls(name));
        }
    }
    // relu and its gradient, AdamW over all parameters, the gradient of the loss.
    let formulas = |counters: &Counters| counters.kernels["formula"].counts.clone();
    let (formulas, earlier) = (formulas(&after), formulas(&before));
    let moved = formulas.global_bytes_read - earlier.global_bytes_read
        + formulas.global_bytes_written
        - earlier.global_bytes_written;
    let parameters: usize = net
        .parameters()
        .iter()
        .map(|parameter| parameter.tensor().numel())
        .sum();
    let needed = 4 * ((2 + 3) * BATCH * 48 + 7 * parameters + 1);
    println!("pointwise kernels moved {moved} bytes, inputs and outputs have {needed}");
    assert!(
        moved as f64 <= 1.05 * needed as f64,
        "{moved} bytes instead of {needed}"
    );
    let of_op = |launches: &[Launches], op: &str| {
        launches
            .iter()
            .filter(|launches| launches.op == op)
            .map(|launches| launches.count)
            .sum::<u64>()
    };
    assert_eq!(
        of_op(&gpu.launches(), "AdamW") - of_op(&launched, "AdamW"),
        1
    );
    for name in [
        "cuMemAlloc_v2",
        "cuMemCreate",
        "cuMemMap",
        "cuMemHostAlloc",
        "cuModuleLoadDataEx",
        "cuModuleGetFunction",
    ] {
        assert_eq!(calls(name), 0, "{name} in a warm step");
    }
    println!("| kernel | launches | bytes read | bytes written |\n|---|---:|---:|---:|");
    for (name, kernel) in &after.kernels {
        let earlier = before.kernels.get(name).cloned().unwrap_or_default();
        if kernel.launches > earlier.launches {
            println!(
                "| {name} | {} | {} | {} |",
                kernel.launches - earlier.launches,
                kernel.counts.global_bytes_read - earlier.counts.global_bytes_read,
                kernel.counts.global_bytes_written - earlier.counts.global_bytes_written
            );
        }
    }
    println!("| op | launches | elements |\n|---|---:|---:|");
    for op in gpu.launches() {
        let earlier = launched.iter().find(|earlier| earlier.op == op.op);
        let (count, elements) = earlier.map_or((0, 0), |op| (op.count, op.elements));
        if op.count > count {
            println!(
                "| {} | {} | {} |",
                op.op,
                op.count - count,
                op.elements - elements
            );
        }
    }
    assert!(loss.to_vec::<f32>().unwrap()[0].is_finite());
    assert_eq!(
        fireclay_cuda::sync::count(),
        waits + 1,
        "reading the loss is one wait"
    );
}
