//! `fireclay train digits`: its accuracy, the same bits on a virtual GPU, reading images.

mod command;

use std::fs;
use std::path::Path;
use std::process::Command;

use command::{Running, fireclay, refuse, succeed, train, write_digits, write_png};
use fireclay::data::{Dataset, Digits};
use serde_json::Value;

/// `train digits` into `out`, on a machine of two virtual GPUs.
fn train_digits(out: &Path, flags: &str) -> Command {
    let mut command = fireclay(["train", "digits", "--out"]);
    command.arg(out).args(flags.split_whitespace());
    command.env("FIRECLAY_VIRTUAL_GPUS", "2");
    command
}

fn model(out: &Path) -> Vec<u8> {
    fs::read(out.join("model.safetensors")).unwrap()
}

#[test]
fn the_defaults_reach_97_percent() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=5 {
        let out = folder.path().join(seed.to_string());
        let flags = format!("--device cpu --seed {seed}");
        let (stdout, stderr) = succeed(train_digits(&out, &flags));
        for mention in ["device cpu", "1,438 training and 359 test", "17,226"] {
            assert!(stderr.contains(mention), "{stderr}");
        }
        let last = stdout.lines().last().unwrap();
        let accuracy = last.strip_prefix("test accuracy ").unwrap();
        let accuracy: f64 = accuracy.split(' ').next().unwrap().parse().unwrap();
        assert!(accuracy >= 0.97, "seed {seed}: {last}");
        for name in ["metrics.jsonl", "curve.svg", "predictions.png"] {
            assert!(out.join(name).exists(), "{name}");
        }
    }
}

#[test]
fn a_gpu_gives_the_bits_of_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let settings = "--epochs 3 --seed 4";
    let run = |name: &str, device: &str, mention: &str| {
        let flags = format!("{settings} {device}");
        let (stdout, stderr) = succeed(train_digits(&out(name), &flags));
        assert!(stderr.contains(mention), "{stderr}");
        stdout
    };
    let line = run("cpu", "--device cpu --workers 0", "device cpu");
    for (name, device, mention) in [
        ("second", "--device cuda:1 --workers 2", "device cuda:1"),
        ("auto", "", "device cuda:0"),
    ] {
        assert_eq!(run(name, device, mention), line);
        assert!(model(&out(name)) == model(&out("cpu")), "{name}");
        let picture = |name: &str| fs::read(out(name).join("predictions.png")).unwrap();
        assert!(picture(name) == picture("cpu"), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_run_interrupted_on_a_gpu_goes_on_elsewhere_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let settings = "--epochs 4 --batch-size 4 --limit 400 --seed 2";
    let (whole, _) = succeed(train_digits(
        &out("whole"),
        &format!("{settings} --device cpu"),
    ));
    let mut run = Running::start(train_digits(
        &out("parts"),
        &format!("{settings} --device cuda:1"),
    ));
    run.wait_for("epoch  1/4");
    let said = run.interrupt();
    let checkpoint = out("parts").join("model.safetensors");
    let hint = format!("fireclay train digits --resume {}", checkpoint.display());
    assert!(said.contains(&hint), "{said}");
    let flags = format!("--device cpu --resume {}", checkpoint.display());
    let (line, _) = succeed(train_digits(&out("parts"), &flags));
    assert_eq!(line, whole);
    assert!(model(&out("parts")) == model(&out("whole")));
}

#[test]
fn images_of_8_by_8_pixels_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    succeed(train_digits(&out, "--epochs 20 --device cpu"));
    let digits = Digits::embedded().unwrap();
    let predict = |images: &[&Path]| {
        let mut command = fireclay(["predict", "--json", "--device", "cpu", "--checkpoint"]);
        command.arg(out.join("model.safetensors")).args(images);
        command
    };
    let paths: Vec<_> = (0..40)
        .map(|index| folder.path().join(format!("{index}.png")))
        .collect();
    for (index, path) in paths.iter().enumerate() {
        let pixels = digits.pixels(index * 40).unwrap().iter();
        let grey: Vec<u8> = pixels.map(|&pixel| pixel.saturating_mul(16)).collect();
        write_png(path, 8, 8, &grey);
    }
    let paths: Vec<&Path> = paths.iter().map(|path| path.as_path()).collect();
    let (stdout, _) = succeed(predict(&paths));
    let labels = digits.labels();
    let right = stdout
        .lines()
        .enumerate()
        .filter(|(index, line)| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["digit"] == labels[index * 40]
        })
        .count();
    assert!(right >= 37, "{right} of 40: {stdout}");
    assert!(digits.len() > 39 * 40);
    let large = folder.path().join("large.png");
    write_png(&large, 28, 28, &[0; 28 * 28]);
    refuse(predict(&[&large]), &["large.png", "28 x 28", "8 x 8"]);
}

#[test]
fn checkpoints_of_one_task_are_not_taken_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    write_digits(data, 50);
    let (of_digits, of_mnist) = (data.join("digits"), data.join("mnist"));
    let quick = "--epochs 1 --limit 64 --device cpu";
    succeed(train_digits(&of_digits, quick));
    succeed(train(data, &of_mnist, quick));
    let resume = |task: &str, out: &Path| {
        let mut command = fireclay(["train", task, "--resume"]);
        command.arg(out.join("model.safetensors"));
        command
    };
    refuse(
        resume("mnist", &of_digits),
        &["checkpoint of `fireclay train digits`", "go on with"],
    );
    refuse(
        resume("digits", &of_mnist),
        &["checkpoint of `fireclay train mnist`", "go on with"],
    );
    // MNIST's files are no digits of 8 x 8.
    let mut command = train_digits(&data.join("out"), quick);
    command.arg("--data").arg(data);
    refuse(command, &["digits.csv"]);
    fs::write(data.join("digits.csv"), "1,2,3\n").unwrap();
    let mut command = train_digits(&data.join("out"), quick);
    command.arg("--data").arg(data);
    refuse(command, &["digits.csv", "row 1: it has 3 fields"]);
    assert!(!data.join("out").exists(), "nothing is made");
}

/// Nobody may read what the run says beside its results.
#[test]
#[cfg(target_os = "linux")]
fn a_full_standard_error_does_not_end_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let mut command = train_digits(&out, "--device cpu --epochs 1 --limit 100");
    let status = command.stderr(full()).status().unwrap();
    assert!(status.success(), "{status}");
    assert!(out.join("model.safetensors").exists());
    let mut command = train_digits(&out, "--device gpu");
    let status = command.stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
