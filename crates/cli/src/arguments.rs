//! The command line: commands, flags and their help.

use std::fmt::Display;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use fireclay::cuda::{BlasLibrary, ConvLibrary};
use fireclay::{DType, Device, IntoDevice, check_available};

use crate::failure::Failure;
use crate::task::{Subject, TASKS, Task};

/// What is shown where no command is given.
const INTRODUCTION: &str = "\
Fireclay trains neural networks: PyTorch's model of computing, in Rust.

Try this: it trains a convolutional network on 5,000 handwritten digits (built in) in about a minute.

    fireclay train mnist

A smaller network on smaller digits takes seconds; a small GPT that writes as Shakespeare takes ten minutes:

    fireclay train digits
    fireclay train chargpt

Without --device they train on a GPU if there is one.

Then have it read digits of your own, and see how fast this machine is:

    fireclay predict --checkpoint runs/mnist/model.safetensors IMAGE.png
    fireclay bench

All commands and flags: fireclay --help
(From the source folder, write `cargo run --release --` for `fireclay`.)
";

pub(crate) fn introduce() -> Result<(), Failure> {
    io::stdout().write_all(INTRODUCTION.as_bytes())?;
    Ok(())
}

/// The whole command line.
pub(crate) fn command() -> Command {
    Command::new("fireclay")
        .about("Trains neural networks: PyTorch's model of computing, in Rust")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("train")
                .about("Trains a network")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .disable_help_subcommand(true)
                .subcommands(TASKS.iter().map(train)),
        )
        .subcommand(predict())
        .subcommand(bench())
        .subcommand(devices())
        .subcommand(plan())
        .subcommand(ops())
}

fn train(task: &'static Task) -> Command {
    let (others, end, samples) = match &task.subject {
        Subject::Digits(_) => (
            "curve.svg and predictions.png",
            "the accuracy on the test set, a fifth of the images",
            "images",
        ),
        Subject::Text(_) => (
            "curve.svg and samples.txt (what it writes after each epoch)",
            "the loss on the held-out tenth of the text",
            "passages",
        ),
    };
    let shape = task.shape().map_or(vec![], |shape| shape.sizes().into());
    let names: Vec<String> = shape
        .iter()
        .map(|(name, _)| format!(", --{name}"))
        .collect();
    let command = Command::new(task.name)
        .about(task.about)
        .after_help(format!(
            "\
Into the folder of --out go model.safetensors (the weights, and all that --resume needs),
metrics.jsonl (a line an epoch), {others}. The last line on standard output
is {end}.

The result depends on the data, --seed, --epochs, --batch-size, --lr{} and --limit alone: not on
--threads or --workers, nor on interruptions. Ctrl-C saves and says how to go on.",
            names.concat()
        ))
        .args([
            device_flag(
                "auto",
                "Where to train: auto (cuda if there is a GPU, else the CPU), cpu, cuda or cuda:N",
            ),
            count_flag(
                "epochs",
                format!(
                    "How often to go through the training {samples} [default: {}]",
                    task.epochs
                ),
            ),
            count_flag(
                "batch-size",
                format!(
                    "Training {samples} in a step [default: {}]",
                    task.batch_size
                ),
            ),
            Arg::new("lr")
                .long("lr")
                .value_name("X")
                .value_parser(learning_rate)
                .allow_negative_numbers(true)
                .help(format!("The highest learning rate [default: {}]", task.lr)),
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(|text: &str| number(text, 0..=u64::MAX))
                .allow_negative_numbers(true)
                .help("Decides the split, the first weights and all chance [default: 0]"),
            threads_flag(),
            Arg::new("workers")
                .long("workers")
                .value_name("N")
                .value_parser(|text: &str| number(text, 0..=MOST_THREADS))
                .allow_negative_numbers(true)
                .default_value("1")
                .help("Threads that prepare batches ahead"),
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help(format!(
                    "Where the results go [default: runs/{}, or the folder of --resume]",
                    task.name
                )),
            Arg::new("resume")
                .long("resume")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Goes on with an interrupted run, with its settings"),
            Arg::new("data")
                .long("data")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help(task.data),
            count_flag(
                "limit",
                format!("Trains on so many {samples} only, for a quick try"),
            ),
        ]);
    let sizes = shape.into_iter().map(|(name, size)| {
        let what = match name {
            "layers" => "Blocks of the network",
            "width" => "Numbers for a character between the blocks",
            "heads" => "Heads of attention, which share the width",
            _ => "Characters of a passage: the most that the network looks back on",
        };
        count_flag(name, format!("{what} [default: {size}]"))
    });
    command.args(sizes)
}

fn predict() -> Command {
    Command::new("predict")
        .about("Reads handwritten digits in PNG files, as large as those that the network was trained on")
        .after_help(
            "\
A network of `train mnist` takes 28 x 28 pixels, one of `train digits` 8 x 8. Both know light digits on
a dark ground. An image whose edge is mostly light
is taken for dark on light and inverted, with a note.",
        )
        .args([
            Arg::new("checkpoint")
                .long("checkpoint")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .required(true)
                .help("A model.safetensors of `train mnist` or `train digits`"),
            device_flag(
                "auto",
                "Where to compute: auto (as the training's), cpu, cuda or cuda:N",
            ),
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Prints one JSON object a line"),
            Arg::new("images")
                .value_name("IMAGE.png")
                .value_parser(value_parser!(PathBuf))
                .num_args(1..)
                .required(true)
                .help("The images"),
        ])
}

fn bench() -> Command {
    Command::new("bench")
        .about("Measures this machine on the workloads of bench/torch_workloads.py, one JSON object a line")
        .after_help("With --only gpu/ those of bench/torch_gpu_workloads.py, of sizes that keep a GPU busy.")
        .args([
            Arg::new("only")
                .long("only")
                .value_name("PREFIX")
                .default_value("")
                .hide_default_value(true)
                .help("Only workloads whose names begin so"),
            device_flag("cpu", "Where to compute: auto (the CPU), cpu, cuda or cuda:N"),
            Arg::new("blas")
                .long("blas")
                .value_name("LIBRARY")
                .value_parser(value_parser!(BlasLibrary))
                .help("Who computes matrix products on a GPU: own, or cublaslt, which must be there"),
            Arg::new("conv")
                .long("conv")
                .value_name("LIBRARY")
                .value_parser(value_parser!(ConvLibrary))
                .help("Who computes convolutions on a GPU: own, or cudnn, which must be there"),
            Arg::new("small")
                .long("small")
                .action(ArgAction::SetTrue)
                .help("Small sizes for the workloads of bench/torch_gpu_workloads.py, to try them out"),
            Arg::new("ops")
                .long("ops")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Measures the ops of this file instead, as bench/op_loads.txt, which bench/torch_ops.py measures too"),
            threads_flag(),
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(seconds)
                .allow_negative_numbers(true)
                .default_value("1.5")
                .help("Time for a workload"),
            Arg::new("list")
                .long("list")
                .action(ArgAction::SetTrue)
                .help("Prints the names only"),
        ])
}

fn devices() -> Command {
    Command::new("devices")
        .about("Lists what there is to compute with, and says why a GPU is not among it")
        .after_help(
            "\
FIRECLAY_VIRTUAL_GPUS=2 puts two virtual GPUs, which run on the CPU, in the place of real ones.",
        )
        .args([
            Arg::new("verbose")
                .short('v')
                .long("verbose")
                .action(ArgAction::SetTrue)
                .help("More of each device"),
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Everything, as one JSON object"),
        ])
}

fn plan() -> Command {
    let lies = |name: &'static str, what: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("LIE")
            .value_parser(["n", "t"])
            .default_value("n")
            .help(format!("How {what} lies: n by rows, t by columns"))
    };
    Command::new("plan")
        .about("Says which kernel computes a matrix product on a GPU, and why")
        .after_help(
            "\
The product is that of matrices [m, k] and [k, n], or of a batch of them. A linear layer of k inputs and n outputs
on m rows is one with --b t. What is added to it or applied (bias, activation, residual) doesn't change which of
Fireclay's kernels computes it; a preferred cuBLASLt is asked where that is a bias at most.",
        )
        .args([
            count_flag("m", "Rows of A and of the result").required(true),
            count_flag("n", "Columns of B and of the result").required(true),
            count_flag("k", "Columns of A, rows of B: the length of the sums").required(true),
            count_flag("batch", "Products, one beside the other [default: 1]"),
            Arg::new("dtype")
                .long("dtype")
                .value_name("DTYPE")
                .value_parser(product_dtype)
                .default_value("f32")
                .help("What the matrices hold: f32, f64, bf16, f16 or i64"),
            lies("a", "A"),
            lies("b", "B"),
            Arg::new("unaligned")
                .long("unaligned")
                .action(ArgAction::SetTrue)
                .help("The matrices don't start at multiples of 16 bytes"),
            Arg::new("tf32")
                .long("tf32")
                .action(ArgAction::SetTrue)
                .help("Products of f32 may round to tf32"),
            device_flag("cuda", "For which device: cuda or cuda:N"),
            Arg::new("capability")
                .long("capability")
                .value_name("M.N")
                .value_parser(capability)
                .help("For a device of this compute capability, as 8.0, instead of one that is here"),
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Everything, as one JSON object"),
        ])
}

fn ops() -> Command {
    let json = || {
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("One JSON object a line")
    };
    let list = Command::new("list")
        .about("Lists every op by its PyTorch name, and what is true of it")
        .after_help(
            "\
What is true of an op is found out by running its example, also on --device if that isn't the CPU:
  grad      which derivatives there are: 1 the first, 2 the second
  repeat    whether two runs give the same bits: yes, or from the same seed
  autocast  what autocast does with its inputs: low, f32, widest or keep
  dtypes    of its floating operands, with which it works",
        )
        .args([
            device_flag("cpu", "Which device to ask too: cpu, cuda or cuda:N"),
            json(),
        ]);
    let check = Command::new("check")
        .about("Runs cases that PyTorch has answered, and says which answers are others")
        .after_help(
            "\
A directory of cases has cases.json and tensors.safetensors, in the format of docs/cases.md.
crates/testing/golden/make_cases.py makes one from PyTorch for any seed.

An answer passes if values, dtypes, shapes, layouts, gradients and second derivatives are PyTorch's, within the
tolerances that the case states, and if what PyTorch refuses is refused for the same kind of reason. The exit
status is 0 if all pass.",
        )
        .args([
            Arg::new("folder")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .num_args(1..)
                .required(true)
                .help("Directories of cases"),
            device_flag("cpu", "Where to run them: cpu, cuda or cuda:N"),
            json(),
        ]);
    Command::new("ops")
        .about("Lists the ops by their PyTorch names, and checks them against PyTorch")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(list)
        .subcommand(check)
}

fn product_dtype(text: &str) -> Result<DType, String> {
    let known = [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64];
    let found = known.into_iter().find(|dtype| dtype.name() == text);
    found.ok_or_else(|| "expected f32, f64, bf16, f16 or i64".to_owned())
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('.');
    let numbers =
        numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match numbers {
        Some((major, minor)) if major >= 7 && minor < 10 => Ok((major, minor)),
        _ => Err("expected two numbers from 7.0 on, as in 8.0".to_owned()),
    }
}

fn device_flag(default: &'static str, help: impl Into<StyledStr>) -> Arg {
    Arg::new("device")
        .long("device")
        .value_name("DEVICE")
        .default_value(default)
        .help(help)
}

fn threads_flag() -> Arg {
    Arg::new("threads")
        .long("threads")
        .value_name("N")
        .value_parser(|text: &str| number(text, 1..=MOST_THREADS))
        .allow_negative_numbers(true)
        .help("Threads that compute [default: one for each CPU]")
}

fn count_flag(name: &'static str, help: impl Into<StyledStr>) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("N")
        .value_parser(|text: &str| number(text, 1..=MOST_COUNTED))
        .allow_negative_numbers(true)
        .help(help)
}

/// Bounds against typing errors.
const MOST_THREADS: usize = 4096;
const MOST_COUNTED: usize = 1_000_000_000;

fn number<N: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    match text.parse::<N>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!(
            "expected a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(lr) if lr > 0.0 && lr.is_finite() => Ok(lr),
        _ => Err("expected a number above 0, as in 0.002".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0 to 86400".to_owned()),
    }
}

/// The value of a flag that may be absent.
pub(crate) fn optional<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    name: &str,
) -> Option<T> {
    matches.get_one::<T>(name).cloned()
}

/// The value of a flag that is required or has a default.
pub(crate) fn given<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    optional(matches, name).expect("clap has checked that the flag is there")
}

/// The device that `--device` names, if it is available; `auto` says what "auto" means.
pub(crate) fn device(name: &str, auto: impl FnOnce() -> Device) -> Result<Device, Failure> {
    if name == "auto" {
        return Ok(auto());
    }
    let device = name.into_device().map_err(|_| {
        let expected = "expected auto, cpu, cuda or cuda:N as in cuda:1";
        Failure::Refused(format!("--device \"{name}\" is not known, {expected}"))
    })?;
    check_available(device)?;
    Ok(device)
}

/// Applies `--threads`.
pub(crate) fn set_threads(threads: Option<usize>) {
    if let Some(threads) = threads {
        fireclay::set_num_threads(threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_defined() {
        command().debug_assert();
    }

    #[test]
    fn a_close_flag_is_suggested() {
        let error = command()
            .try_get_matches_from(["fireclay", "train", "mnist", "--epoch", "3"])
            .unwrap_err();
        assert!(error.to_string().contains("--epochs"), "{error}");
    }
}
