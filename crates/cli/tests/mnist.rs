//! `fireclay train mnist` on a virtual GPU: the bits of the CPU, checkpoints that go on there, the same predictions.

mod command;

use std::fs;
use std::path::Path;
use std::process::Command;

use command::{SIDE, fireclay, succeed, train, write_digits, write_png};
use fireclay::data::Mnist;
use serde_json::Value;

/// `train mnist` on the digits in `data`, on a machine of one virtual GPU.
fn train_mnist(data: &Path, out: &Path, flags: &str) -> Command {
    let mut command = train(data, out, flags);
    command.env("FIRECLAY_VIRTUAL_GPUS", "1");
    command
}

fn model(out: &Path) -> Vec<u8> {
    fs::read(out.join("model.safetensors")).unwrap()
}

#[test]
fn a_gpu_gives_the_bits_of_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    write_digits(data, 200);
    let out = |name: &str| folder.path().join(name);
    let settings = "--epochs 1 --limit 96 --batch-size 32 --seed 5";
    let run = |name: &str, device: &str| {
        let flags = format!("{settings} --device {device}");
        let (stdout, stderr) = succeed(train_mnist(data, &out(name), &flags));
        assert!(stderr.contains(&format!("device {device}")), "{stderr}");
        stdout
    };
    let line = run("cpu", "cpu");
    assert_eq!(run("gpu", "cuda:0"), line);
    assert!(model(&out("gpu")) == model(&out("cpu")), "other weights");
    // What was trained on the GPU predicts the same on both.
    let image = data.join("digit.png");
    write_png(
        &image,
        SIDE,
        SIDE,
        Mnist::embedded().unwrap().pixels(3).unwrap(),
    );
    let predict = |device: &str| {
        let mut command = fireclay(["predict", "--json", "--device", device, "--checkpoint"]);
        command
            .arg(out("gpu").join("model.safetensors"))
            .arg(&image);
        command.env("FIRECLAY_VIRTUAL_GPUS", "1");
        let line: Value = serde_json::from_str(&succeed(command).0).unwrap();
        line
    };
    // One image alone is a product with a vector, whose sums have another order on the host.
    let (there, here) = (predict("cuda:0"), predict("cpu"));
    assert_eq!(there["digit"], here["digit"]);
    let probability = |line: &Value| line["probability"].as_f64().unwrap();
    let difference = probability(&there) - probability(&here);
    assert!(difference.abs() < 1e-5, "{there} and {here}");
}

#[cfg(unix)]
#[test]
fn a_run_interrupted_on_a_gpu_goes_on_on_the_cpu_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    write_digits(data, 120);
    let out = |name: &str| folder.path().join(name);
    let settings = "--epochs 3 --limit 48 --batch-size 16 --seed 6";
    let (whole, _) = succeed(train_mnist(
        data,
        &out("whole"),
        &format!("{settings} --device cpu"),
    ));
    let mut run = command::Running::start(train_mnist(
        data,
        &out("parts"),
        &format!("{settings} --device cuda"),
    ));
    run.wait_for("epoch  1/3");
    run.interrupt();
    let checkpoint = out("parts").join("model.safetensors");
    let flags = format!("--device cpu --resume {}", checkpoint.display());
    let (line, _) = succeed(train_mnist(data, &out("parts"), &flags));
    assert_eq!(line, whole);
    assert!(
        model(&out("parts")) == model(&out("whole")),
        "other weights"
    );
}
