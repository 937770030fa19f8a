//! Memory that runs out at every place of a training step in turn, and what the ledger says memory is for.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fireclay_cuda::{Gpu, Purpose, memory};
use fireclay_nn::{Linear, Module, ModuleExt};
use fireclay_optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use fireclay_tensor::{CrossEntropy, DType, Device, Error, Parameter, Result, Tensor};
use virtual_gpu::driver::Function;
use virtual_gpu::machine::{Checks, FailingCalls, Machine, Settings};

const WIDTH: usize = 512;
const CLASSES: usize = 16;
/// Where every tensor counts.
const SMALL: Size = Size { device: 0, rows: 4 };
/// Where tensors take several pieces of the driver's memory.
const LARGE: Size = Size {
    device: 0,
    rows: 500,
};

/// The process's machine, and a lock: the tests look at memory that all share.
fn machine() -> (MutexGuard<'static, ()>, Arc<Machine>) {
    static ALONE: Mutex<()> = Mutex::new(());
    static MACHINE: OnceLock<Arc<Machine>> = OnceLock::new();
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = MACHINE.get_or_init(|| {
        let settings = Settings {
            devices: 2,
            memory: 256 << 20,
            // Nobody reads memory that a fault has left unwritten.
            checks: Checks {
                uninitialized: true,
                ..Checks::default()
            },
            ..Settings::default()
        };
        fireclay_cuda::driver::use_virtual(settings).expect("no driver was chosen before")
    });
    (alone, Arc::clone(machine))
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| ((index * 37 % 101) as f32 - 50.0) / 70.0)
        .collect()
}

#[derive(Module)]
struct Net {
    scale: Parameter,
    shift: Parameter,
    last: Parameter,
    head: Linear,
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (scale, shift) = (self.scale.tensor(), self.shift.tensor());
        let hidden = x.mul(&scale)?.add(&shift)?.relu()?;
        let hidden = hidden.mul(&self.last.tensor())?.sigmoid()?.exp()?.tanh()?;
        self.head.forward(&hidden)
    }
}

impl Net {
    fn new() -> Net {
        let parameter = |shift: f32| {
            let values: Vec<f32> = numbers(WIDTH).iter().map(|value| value + shift).collect();
            Parameter::new(Tensor::from_slice(&values, &[WIDTH], "cpu").unwrap()).unwrap()
        };
        let head = Linear::new(WIDTH, CLASSES).unwrap();
        for parameter in head.parameters() {
            let shape = parameter.tensor().shape().clone();
            let values = numbers(shape.numel());
            parameter
                .set(&Tensor::from_slice(&values, &shape, "cpu").unwrap())
                .unwrap();
        }
        Net {
            scale: parameter(1.0),
            shift: parameter(0.25),
            last: parameter(-0.5),
            head,
        }
    }

    fn bits(&self) -> Vec<Vec<u8>> {
        let parameters = self.parameters().into_iter();
        parameters
            .map(|parameter| parameter.tensor().to_bytes().unwrap())
            .collect()
    }
}

/// A model on the device with an optimizer that has made no step.
struct Run {
    net: Arc<Net>,
    optimizer: Box<dyn Optimizer>,
    size: Size,
}

/// Where a step runs, on how many rows.
#[derive(Clone, Copy)]
struct Size {
    device: usize,
    rows: usize,
}

type Make = fn(&Net) -> Box<dyn Optimizer>;

const OPTIMIZERS: [Make; 2] = [
    |net| {
        let options = SGDOptions {
            lr: 0.1,
            momentum: 0.9,
            ..Default::default()
        };
        Box::new(SGD::new(net.parameters(), options).unwrap())
    },
    |net| {
        let options = AdamWOptions {
            lr: 0.1,
            ..Default::default()
        };
        Box::new(AdamW::new(net.parameters(), options).unwrap())
    },
];

impl Run {
    fn new(make: Make, size: Size) -> Run {
        let net = Arc::new(Net::new());
        net.to(Device::Cuda(size.device)).unwrap();
        let optimizer = make(&net);
        Run {
            net,
            optimizer,
            size,
        }
    }

    /// A step with data from the host. The loss is read before the parameters change, so that a step that failed was none.
    fn step(&mut self) -> Result<f64> {
        let Size { device, rows } = self.size;
        let (device, shape) = (Device::Cuda(device), [rows, WIDTH]);
        let x = Tensor::from_slice(&numbers(rows * WIDTH), &shape, device)?;
        let classes: Vec<i64> = (0..rows).map(|row| (row * 37 % CLASSES) as i64).collect();
        let classes = Tensor::from_slice(&classes, &[rows], device)?;
        self.optimizer.zero_grad();
        let logits = self.net.forward(&x)?;
        let loss = logits.cross_entropy(&classes, CrossEntropy::default())?;
        let value = loss.item()?;
        loss.backward()?;
        self.optimizer.step()?;
        Ok(value)
    }
}

/// What must be the same before and after a failure: bytes by purpose, and blocks. What the cache keeps may differ.
fn in_use(gpu: &Gpu) -> (Vec<(Purpose, u64)>, u64, u64, u64) {
    let mut purposes = gpu.memory().by_purpose();
    purposes.retain(|(purpose, _)| *purpose != Purpose::Cache);
    let statistics = gpu.memory().statistics();
    (
        purposes,
        statistics.allocated_bytes.all.current,
        statistics.requested_bytes.all.current,
        statistics.allocation.all.current,
    )
}

fn empty_caches(gpu: &'static Gpu) {
    gpu.memory().empty(gpu).unwrap();
    memory::empty_pinned_cache(gpu).unwrap();
}

/// That the error says what its reader needs.
fn check(error: &Error) {
    let text = error.to_string();
    let Error::OutOfMemory { device, .. } = error else {
        panic!("expected to run out of memory, got {text}");
    };
    let parts: &[&str] = match device {
        Device::Cpu => &[
            "page-locked memory asked for",
            " in use, ",
            " held",
            "tried:",
        ],
        Device::Cuda(_) => &[
            "[",
            " asked for; of 256.00 MiB the driver has ",
            " free; allocated ",
            ", reserved ",
            ", largest free block ",
            ", fragmentation ",
            "\n  in use: parameters ",
            "\n  largest groups by the line that made them:\n",
            "\n  tried: the cache; the driver; ",
        ],
    };
    for part in parts {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("called at ") && first.contains("out_of_memory.rs:"),
        "the line of the user is missing in:\n{text}"
    );
    if let Some((_, groups)) = text.split_once("line that made them:\n") {
        let lines: Vec<&str> = groups.lines().collect();
        let count = lines
            .iter()
            .take_while(|line| line.starts_with("    "))
            .count();
        assert!((1..=5).contains(&count), "{text}");
        for line in &lines[..count] {
            assert!(line.contains("out_of_memory.rs:"), "{line} in:\n{text}");
        }
    }
    assert!(text.contains("would fit") || text.contains("nothing more fits") || device.is_cpu());
}

/// Lets the step fail at its first place, its second place, ... until it doesn't; how often it failed.
///
/// `inject` arms the fault for a place and `clear` takes it away; it says whether the fault came to show.
fn fail_everywhere(
    (make, size): (Make, Size),
    inject: &dyn Fn(u64),
    clear: &dyn Fn() -> bool,
) -> u64 {
    let gpu = Gpu::get(size.device).unwrap();
    let mut undisturbed = Run::new(make, size);
    let loss = undisturbed.step().unwrap();
    let expected = undisturbed.net.bits();
    drop(undisturbed);
    let mut failures = 0;
    for place in 0..1000 {
        let mut run = Run::new(make, size);
        empty_caches(gpu);
        let before = in_use(gpu);
        inject(place);
        let result = run.step();
        let shown = clear();
        if let Err(error) = &result {
            assert!(shown, "{error}");
            check(error);
            failures += 1;
            run.net.zero_grad();
            assert_eq!(in_use(gpu), before, "place {place}");
            assert_eq!(run.step().unwrap(), loss, "place {place}");
        } else {
            assert_eq!(result.unwrap(), loss);
        }
        assert_eq!(run.net.bits(), expected, "place {place}");
        if !shown {
            return failures;
        }
    }
    panic!("the step never came to its end");
}

/// Lets every allocation of the driver in a step fail, in turn: all from it on, and it alone.
fn fail_the_driver(machine: &Machine, size: Size) {
    let gpu = Gpu::get(size.device).unwrap();
    let clear = || {
        let shown = machine.faults_shown() > 0;
        machine.clear_faults();
        shown
    };
    for make in OPTIMIZERS {
        let all = |place| machine.inject(FailingCalls::out_of_memory(place, u64::MAX));
        let failures = fail_everywhere((make, size), &all, &clear);
        assert!(failures >= 5, "the step allocates in {failures} places");
        // One failure is healed by asking again.
        let retries = gpu.memory().statistics().num_alloc_retries;
        let one = |place| machine.inject(FailingCalls::out_of_memory(place, 1));
        assert_eq!(fail_everywhere((make, size), &one, &clear), 0);
        assert!(gpu.memory().statistics().num_alloc_retries > retries);
    }
}

#[test]
fn the_driver_may_run_out_at_every_allocation() {
    let (_alone, machine) = machine();
    fail_the_driver(&machine, LARGE);
}

#[test]
fn the_driver_may_run_out_at_every_plain_allocation() {
    let (_alone, machine) = machine();
    // A driver without addresses to reserve is asked for plain memory, from then on.
    machine.inject(FailingCalls {
        functions: vec![Function::cuMemAddressReserve],
        after: 0,
        count: u64::MAX,
        code: 2,
    });
    let size = Size { device: 1, ..LARGE };
    Run::new(OPTIMIZERS[0], size).step().unwrap();
    machine.clear_faults();
    let calls = |name: &str| machine.counters().calls.get(name).copied().unwrap_or(0);
    let before = calls("cuMemCreate");
    fail_the_driver(&machine, size);
    assert_eq!(calls("cuMemCreate"), before);
}

#[test]
fn every_tensor_of_a_step_may_find_no_memory() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    for make in OPTIMIZERS {
        let clear = || {
            let ooms = gpu.memory().statistics().num_ooms;
            gpu.memory().fail_allocations(None);
            gpu.memory().reset_accumulated();
            ooms > 0
        };
        clear();
        let forever = |place| gpu.memory().fail_allocations(Some((place, u64::MAX)));
        let once = |place| gpu.memory().fail_allocations(Some((place, 1)));
        let failures = fail_everywhere((make, SMALL), &forever, &clear);
        assert!(failures > 20, "the step allocates in {failures} places");
        assert_eq!(fail_everywhere((make, SMALL), &once, &clear), failures);
    }
}

#[test]
fn a_module_moves_whole_or_not_at_all() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    let net = Net::new();
    let before = in_use(gpu);
    for place in 0..net.parameters().len() as u64 {
        gpu.memory().fail_allocations(Some((place, 1)));
        let error = net.to(Device::Cuda(0)).unwrap_err();
        assert!(error.to_string().contains("out_of_memory.rs"), "{error}");
        assert_eq!(in_use(gpu), before);
        assert!(
            net.parameters()
                .iter()
                .all(|parameter| parameter.tensor().device().is_cpu())
        );
    }
    gpu.memory().fail_allocations(None);
    net.to(Device::Cuda(0)).unwrap();
}

#[test]
fn the_ledger_knows_what_memory_is_for() {
    let (_alone, _) = machine();
    let gpu = Gpu::get(0).unwrap();
    assert_eq!(in_use(gpu).0, []);
    let each = (WIDTH * 4) as u64;
    // Blocks are multiples of 512 bytes.
    let bias = |size: usize| (size * CLASSES).next_multiple_of(512) as u64;
    let weight = CLASSES as u64 * each;
    let whole = 3 * each + weight + bias(4);
    let doubled = 2 * (3 * each + weight) + bias(8);
    let net = Arc::new(Net::new());
    let line = line!() + 1;
    net.to(Device::Cuda(0)).unwrap();
    let made_here = |tensor: &Tensor| {
        let location = tensor.origin().location;
        location
            .file()
            .ends_with("out_of_memory.rs")
            .then(|| location.line())
    };
    for parameter in net.parameters() {
        let tensor = parameter.tensor();
        assert_eq!(made_here(&tensor), Some(line), "{}", tensor.origin());
        assert!(tensor.origin().to_string().starts_with("moved at"));
    }
    let group = gpu.memory().largest_groups(1)[0];
    assert_eq!((group.location.line(), group.bytes), (line, whole));
    assert_eq!(in_use(gpu).0, [(Purpose::Parameters, whole)]);

    for (make, states) in OPTIMIZERS.into_iter().zip([1, 2]) {
        let mut run = Run {
            net: Arc::clone(&net),
            optimizer: make(&net),
            size: SMALL,
        };
        run.step().unwrap();
        assert_eq!(
            in_use(gpu).0,
            [
                (Purpose::Parameters, whole),
                (Purpose::Gradients, whole),
                (Purpose::Optimizer, states * whole),
            ]
        );
        run.step().unwrap();
        // A state that is loaded is the optimizer's too.
        let state = run.optimizer.state_dict();
        run.optimizer.load_state_dict(&state).unwrap();
        drop(state);
        assert_eq!(in_use(gpu).0[2], (Purpose::Optimizer, states * whole));
        drop(run);
        net.zero_grad();
        assert_eq!(in_use(gpu).0, [(Purpose::Parameters, whole)]);
    }
    let activation = net.scale.tensor().mul(2.0).unwrap();
    assert_eq!(in_use(gpu).0[1], (Purpose::Activations, each));
    activation.count_as(Purpose::Others);
    assert_eq!(in_use(gpu).0[1], (Purpose::Others, each));
    drop(activation);

    // A cast and a move back leave nothing behind.
    net.to_dtype(DType::F64).unwrap();
    assert_eq!(in_use(gpu).0, [(Purpose::Parameters, doubled)]);
    net.to("cpu").unwrap();
    assert_eq!(in_use(gpu).0, []);
}
