//! Every message of docs/errors.md, made by what the file says makes it. With FIRECLAY_WRITE_DOCS set, the messages are
//! written into the file instead of compared with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fireclay_cuda::surface;
use fireclay_data::{DataLoader, Dataset, SampleRng};
use fireclay_nn::{Linear, Module, ModuleExt};
use fireclay_optim::{AdamW, AdamWOptions, Optimizer};
use fireclay_tensor::{
    CrossEntropy, DType, Device, Meta, Op, OutputMeta, OutputMetas, Result, Tensor, dispatch,
};
use virtual_gpu::driver::Function;
use virtual_gpu::machine::{FailingCalls, Machine, Settings};

/// A message, and what it is called in the file.
type Message = (&'static str, String);

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
    fn new(inputs: usize, width: usize, device: Device) -> Net {
        let net = Net {
            hidden: Linear::new(inputs, width).unwrap(),
            output: Linear::new(width, 10).unwrap(),
        };
        net.to(device).unwrap();
        net
    }
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

const CUDA: Device = Device::Cuda(0);

fn mixed_devices() -> Vec<Message> {
    let net = Net::new(64, 32, CUDA);
    let images = Tensor::zeros(&[64, 64], "cpu").unwrap();
    let labels = Tensor::from_slice(&[3i64; 64], &[64], "cpu").unwrap();
    let input = message(net.forward(&images));
    let logits = net.forward(&images.to(CUDA).unwrap()).unwrap();
    let targets = message(logits.cross_entropy(&labels, CrossEntropy::default()));

    let on_host = Net::new(64, 32, Device::Cpu);
    let _ = on_host.parameters();
    let parameter = message(on_host.forward(&images.to(CUDA).unwrap()));
    let view = on_host.hidden.weight.tensor().t().unwrap();
    let view = message(images.to(CUDA).unwrap().matmul(&view));

    let other = Tensor::ones(&[3], "cuda:1").unwrap();
    let pointwise = message(Tensor::ones(&[3], CUDA).unwrap().add(&other));
    vec![
        ("an input on the host", input),
        ("labels on the host", targets),
        ("a module on the host", parameter),
        ("a view of a parameter", view),
        ("two GPUs", pointwise),
    ]
}

/// Tensors of the host without dimensions mix with those of a device, however many; with dimensions they don't.
fn host_numbers() -> Vec<Message> {
    let x = Tensor::ones(&[3], CUDA).unwrap();
    let number = |value: f32| Tensor::scalar(value, "cpu").unwrap();
    let y = x.mul(&number(2.0)).unwrap().add(&number(1.0)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.0; 3]);
    let one = Tensor::ones(&[1], "cpu").unwrap();
    vec![("one element with a dimension", message(x.mul(&one)))]
}

fn must_be_on_the_device() -> Vec<Message> {
    let table = Tensor::ones(&[10, 4], CUDA).unwrap();
    let indices = Tensor::from_slice(&[1i64, 2], &[2], "cpu").unwrap();
    vec![(
        "indices on the host",
        message(table.index_select(0, &indices)),
    )]
}

fn out_of_memory() -> Vec<Message> {
    let net = Net::new(16, 1024, CUDA);
    let options = AdamWOptions::default();
    let mut optimizer = AdamW::new(net.parameters(), options).unwrap();
    let mut step = |rows: usize| -> Result<()> {
        let x = Tensor::zeros(&[rows, 16], CUDA)?;
        let targets = Tensor::zeros(&[rows], CUDA)?.to_dtype(DType::I64)?;
        optimizer.zero_grad();
        let logits = net.forward(&x)?;
        let loss = logits.cross_entropy(&targets, CrossEntropy::default())?;
        loss.backward()?;
        optimizer.step()
    };
    step(8).unwrap();
    let error = message(step(40_000));
    // The process goes on.
    step(8).unwrap();
    vec![("a batch too large", error)]
}

fn index_out_of_range() -> Vec<Message> {
    let table = Tensor::ones(&[10, 4], CUDA).unwrap();
    let indices = Tensor::from_slice(&[1i64, 12, 3], &[3], CUDA).unwrap();
    let rows = table.index_select(0, &indices).unwrap();
    let error = message(rows.to_vec::<f32>());
    // The device goes on.
    assert_eq!(table.to_vec::<f32>().unwrap(), [1.0; 40]);
    vec![("a bad index", error)]
}

fn lost_device(machine: &Machine) -> Vec<Message> {
    let x = Tensor::ones(&[4, 3], "cuda:1").unwrap();
    let y = x.mul(&x).unwrap().sum_all().unwrap();
    machine.lose_device(1, 700).unwrap();
    let error = message(y.item());
    machine.clear_faults();
    vec![("an illegal address", error)]
}

/// A state that was saved on one device is loaded into a module on another: the module stays where it is.
fn loaded_state() -> Vec<Message> {
    let saved = Net::new(64, 32, Device::Cuda(1)).state_dict();
    let net = Net::new(64, 32, Device::Cpu);
    net.load_state_dict(&saved, true).unwrap();
    let parameters = net.parameters();
    assert!(
        parameters
            .iter()
            .all(|parameter| parameter.tensor().device().is_cpu())
    );

    let other = Net::new(64, 16, Device::Cpu).state_dict();
    let renamed = other.into_iter().map(|(name, tensor)| {
        let name = name.replace("output", "outputs");
        (name, tensor)
    });
    let renamed: Vec<(String, Tensor)> = renamed.collect();
    vec![(
        "a state dict that does not fit",
        message(net.load_state_dict(&renamed, true)),
    )]
}

fn no_kernel_image(machine: &Machine) -> Vec<Message> {
    machine.inject(FailingCalls {
        functions: vec![Function::cuModuleLoadDataEx],
        after: 0,
        count: u64::MAX,
        code: 209,
    });
    let probe = message(surface::availability());
    let x = Tensor::ones(&[3], CUDA).unwrap();
    let op = message(x.atan2(&x));
    machine.clear_faults();
    vec![
        ("availability without a kernel image", probe),
        ("an op without a kernel image", op),
    ]
}

/// An op of a user who wrote no kernel for devices.
#[derive(Debug)]
struct OfTheUser;

impl Op for OfTheUser {
    fn name(&self) -> &'static str {
        "of_the_user"
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let shape = inputs[0].shape().clone();
        let output = OutputMeta::contiguous(shape, inputs[0].dtype);
        Ok([output].into_iter().collect())
    }
}

fn dtypes() -> Vec<Message> {
    // Halves are computed with on every device.
    let half = Tensor::ones(&[3], "cpu").unwrap();
    let half = half.to_dtype(DType::F16).unwrap();
    assert_eq!(half.add(&half).unwrap().dtype(), DType::F16);
    let stored = half.to_dtype(DType::F8E4M3);
    let stored = stored.and_then(|stored| stored.add(&stored));
    let x = Tensor::zeros(&[3], CUDA).unwrap();
    vec![
        ("a dtype that is stored only", message(stored)),
        (
            "an op without a CUDA kernel",
            message(dispatch::call_one(OfTheUser, &[&x])),
        ),
    ]
}

fn autograd() -> Vec<Message> {
    let x = Tensor::ones(&[3], CUDA).unwrap();
    let x = x.requires_grad_(true).unwrap();
    let y = x.exp().unwrap();
    let loss = y.sum_all().unwrap();
    loss.backward().unwrap();
    let twice = message(loss.backward());
    let y = x.exp().unwrap();
    let loss = y.mul(2.0).unwrap().sum_all().unwrap();
    y.detach().add_(1.0).unwrap();
    vec![
        ("backward twice", twice),
        ("a saved tensor edited", message(loss.backward())),
    ]
}

struct Broken;

impl Dataset for Broken {
    type Item = i64;

    fn len(&self) -> usize {
        8
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<i64> {
        assert!(index < 5, "the picture is empty");
        Ok(index as i64)
    }
}

fn loader() -> Vec<Message> {
    let loader = DataLoader::builder(Broken).batch_size(4).workers(1);
    let loader = loader.build().unwrap();
    let failed = loader.epoch(0).find_map(Result::err).expect("a panic");
    vec![("a dataset that panics", failed.to_string())]
}

/// What processes with these variables say: each has a driver of its own.
fn of_processes() -> Vec<Message> {
    let virtual_gpus = ("FIRECLAY_VIRTUAL_GPUS", "4");
    let fails = |code| vec![virtual_gpus, ("INJECT", code)];
    let missing = "/usr/lib/libcuda-that-is-not-there.so.1";
    let cases: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("no driver", vec![("FIRECLAY_CUDA_DRIVER", missing)]),
        ("a stub", fails("34")),
        ("no GPU", fails("100")),
        (
            "a driver of another version than the kernel's part",
            fails("803"),
        ),
        (
            "a driver too old",
            vec![virtual_gpus, ("FIRECLAY_VIRTUAL_GPU_DRIVER", "11.8")],
        ),
        (
            "an empty list",
            vec![virtual_gpus, ("CUDA_VISIBLE_DEVICES", "")],
        ),
        (
            "a list of nonsense",
            vec![virtual_gpus, ("CUDA_VISIBLE_DEVICES", "first")],
        ),
        ("a bad ordinal", vec![virtual_gpus]),
        (
            "a bad ordinal of a list",
            vec![virtual_gpus, ("CUDA_VISIBLE_DEVICES", "3,1")],
        ),
    ];
    let run = |(name, variables)| (name, of_a_process(variables));
    cases.into_iter().map(run).collect()
}

fn of_a_process(variables: Vec<(&str, &str)>) -> String {
    let mut command = Command::new(std::env::current_exe().expect("the test itself"));
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    for (name, _) in std::env::vars() {
        if name.starts_with("FIRECLAY_") || name == "CUDA_VISIBLE_DEVICES" {
            command.env_remove(name);
        }
    }
    let output = command.envs(variables).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, message) = said.split_once("<<<").expect(&said);
    let (message, _) = message.split_once(">>>").expect(&said);
    message.to_owned()
}

/// Not a test: what the processes of `of_processes` run.
#[test]
#[ignore = "run by the other test"]
fn child() {
    if let Ok(code) = std::env::var("INJECT") {
        let machine = Machine::of_process().unwrap();
        machine.inject(FailingCalls {
            functions: vec![Function::cuInit],
            after: 0,
            count: u64::MAX,
            code: code.parse().unwrap(),
        });
    }
    println!("<<<{}>>>", message(Tensor::zeros(&[2, 3], "cuda:7")));
}

/// Lines and columns of this file may change; they are `LINE` and `COLUMN` in the messages, and the file is `train.rs`.
fn without_places(message: &str) -> String {
    let mut text = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(file!()) {
        text.push_str(before);
        text.push_str("train.rs:LINE:COLUMN");
        rest = after.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit());
        // What follows the column may be a colon.
        if after[..after.len() - rest.len()].ends_with(':') {
            text.push(':');
        }
    }
    text.push_str(rest);
    assert!(
        !text.contains("crates/"),
        "a line of Fireclay's own, not of the user, in:\n{text}"
    );
    text
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md")
}

/// The file with the messages in the blocks that follow the lines `<!-- message: NAME -->`; the names met, in order.
fn with_messages(text: &str, messages: &[Message]) -> (String, Vec<String>) {
    let (mut written, mut names) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written.push_str(line);
        written.push('\n');
        let name = line.strip_prefix("<!-- message: ");
        let Some(name) = name.and_then(|name| name.strip_suffix(" -->")) else {
            continue;
        };
        names.push(name.to_owned());
        let fence = lines.next();
        assert_eq!(fence, Some("```text"), "below {name}");
        let old: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let new = messages.iter().find(|(known, _)| *known == name);
        let new = new.map_or(old.join("\n"), |(_, message)| message.clone());
        written.push_str(&format!("```text\n{new}\n```\n"));
    }
    (written, names)
}

#[test]
fn every_message_of_the_table_is_printed() {
    let machine = fireclay_cuda::driver::use_virtual(Settings {
        devices: 2,
        memory: 256 << 20,
        ..Settings::default()
    })
    .unwrap();
    let mut messages = mixed_devices();
    messages.extend(host_numbers());
    messages.extend(must_be_on_the_device());
    messages.extend(out_of_memory());
    messages.extend(index_out_of_range());
    messages.extend(lost_device(&machine));
    messages.extend(loaded_state());
    messages.extend(no_kernel_image(&machine));
    messages.extend(dtypes());
    messages.extend(autograd());
    messages.extend(loader());
    messages.extend(of_processes());
    // On a machine with NVIDIA's kernel module the advice is another one.
    let real = Path::new("/proc/driver/nvidia/version").exists();
    let other = |name: &str| real && name == "no driver";
    messages.retain(|(name, _)| !other(name));
    for (_, message) in &mut messages {
        *message = without_places(message);
    }
    let old = std::fs::read_to_string(document()).unwrap();
    let (new, names) = with_messages(&old, &messages);
    let made: Vec<&str> = messages.iter().map(|(name, _)| *name).collect();
    for name in &names {
        assert!(
            made.contains(&name.as_str()) || other(name),
            "nothing makes {name}"
        );
    }
    for name in &made {
        assert_eq!(
            names.iter().filter(|known| known == name).count(),
            1,
            "{name}"
        );
    }
    if std::env::var_os("FIRECLAY_WRITE_DOCS").is_some() {
        std::fs::write(document(), new).unwrap();
        return;
    }
    for (old, new) in old.lines().zip(new.lines()) {
        assert_eq!(
            new, old,
            "docs/errors.md: FIRECLAY_WRITE_DOCS=1 writes it anew"
        );
    }
    assert_eq!(
        new, old,
        "docs/errors.md: FIRECLAY_WRITE_DOCS=1 writes it anew"
    );
}
