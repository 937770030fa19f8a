//! `fireclay train mnist`: its files, the same bits for any threads and workers, interruptions.

mod command;

use std::fs;
use std::io::BufReader;
use std::path::Path;

use command::{Running, fireclay, succeed, train, write_digits};
use serde_json::Value;

fn metrics(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn model(out: &Path) -> Vec<u8> {
    fs::read(out.join("model.safetensors")).unwrap()
}

#[test]
fn a_run_leaves_its_files_and_ends_with_the_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/er");
    let mut command = fireclay([
        "train", "mnist", "--epochs", "1", "--limit", "320", "--seed", "3",
    ]);
    command.arg("--out").arg(&out);
    let (stdout, stderr) = succeed(command);
    for mention in [
        "device cpu",
        "seed 3",
        "320 training and 1,000 test",
        "421,738",
    ] {
        assert!(stderr.contains(mention), "{stderr}");
    }

    let last = stdout.lines().last().unwrap();
    let right: usize = last
        .strip_prefix("test accuracy 0.")
        .and_then(|rest| rest.split_once(" ("))
        .and_then(|(_, rest)| rest.strip_suffix(" of 1000)"))
        .unwrap_or_else(|| panic!("{last}"))
        .parse()
        .unwrap();
    assert!(right > 150, "even so few steps beat guessing: {right}");
    assert_eq!(
        last,
        format!(
            "test accuracy {:.4} ({right} of 1000)",
            right as f64 / 1000.0
        )
    );

    let lines = metrics(&out);
    assert_eq!(lines.len(), 1);
    for key in [
        "epoch",
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "lr",
        "seconds",
        "samples_per_second",
    ] {
        assert!(lines[0][key].is_number(), "{key}: {}", lines[0]);
    }
    assert_eq!(lines[0]["test_accuracy"], right as f64 / 1000.0);
    let svg = fs::read_to_string(out.join("curve.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    let png = fs::File::open(out.join("predictions.png")).unwrap();
    let info = png::Decoder::new(BufReader::new(png)).read_info().unwrap();
    assert!(info.info().width > 1000);
    let state = fireclay::checkpoint::load(out.join("model.safetensors")).unwrap();
    let weight = state.tensor("conv2.weight", "cpu").unwrap();
    assert_eq!(weight.shape()[..], [64, 32, 3, 3]);
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "curve.svg",
            "metrics.jsonl",
            "model.safetensors",
            "predictions.png"
        ]
    );
}

#[test]
fn threads_and_workers_do_not_change_a_bit() {
    let folder = tempfile::tempdir().unwrap();
    write_digits(folder.path(), 150);
    let settings = "--epochs 2 --batch-size 16 --seed 5";
    let mut models = Vec::new();
    for (number, flags) in [
        "--threads 1 --workers 0",
        "--threads 2 --workers 2",
        "--threads 3 --workers 1",
    ]
    .iter()
    .enumerate()
    {
        let out = folder.path().join(number.to_string());
        let (stdout, _) = succeed(train(folder.path(), &out, &format!("{settings} {flags}")));
        models.push((stdout, model(&out)));
    }
    assert!(models.iter().all(|run| *run == models[0]));

    // The same settings into the same folder again: the same bytes, and the earlier checkpoint is still there.
    let out = folder.path().join("0");
    succeed(train(folder.path(), &out, settings));
    assert_eq!(model(&out), models[0].1);
    assert!(out.join("model.previous.safetensors").exists());
    succeed(train(
        folder.path(),
        &out,
        "--epochs 2 --batch-size 16 --seed 6",
    ));
    assert_ne!(model(&out), models[0].1, "another seed, another model");
}

#[cfg(unix)]
#[test]
fn interrupted_and_killed_runs_go_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    write_digits(folder.path(), 250);
    let settings = "--epochs 4 --batch-size 4 --seed 2";
    let whole = folder.path().join("whole");
    let (whole_line, _) = succeed(train(folder.path(), &whole, settings));

    // Ctrl-C in the second epoch. A signal that comes before it begins is heeded there and then: such a run is made anew.
    let parts = folder.path().join("parts");
    let interrupted = || {
        let mut run = Running::start(train(
            folder.path(),
            &parts,
            &format!("{settings} --workers 2"),
        ));
        run.wait_for("epoch  1/4");
        run.interrupt()
    };
    let mut tries = std::iter::repeat_with(interrupted).take(5);
    let said = tries
        .find(|said| !said.contains("interrupted after epoch 1;"))
        .expect("one of five signals comes in the second epoch");
    let checkpoint = parts.join("model.safetensors");
    let hint = format!("--resume {}", checkpoint.display());
    assert!(
        said.contains("interrupted in epoch 2 after batch") && said.contains(&hint),
        "{said}"
    );
    assert_eq!(metrics(&parts).len(), 1);

    // Killed in the third: what was saved after the second is there.
    let resume = |flags: &str| {
        let mut command = fireclay(["train", "mnist", "--resume"]);
        command.arg(&checkpoint).arg("--data").arg(folder.path());
        command.args(flags.split_whitespace());
        command
    };
    let mut run = Running::start(resume("--threads 1"));
    run.wait_for("going on in epoch 2 after batch");
    run.wait_for("epoch  2/4");
    run.kill();
    run.end();

    let (line, _) = succeed(resume("--workers 0"));
    assert_eq!(line, whole_line);
    assert!(model(&parts) == model(&whole), "the checkpoints differ");
    let results = |out: &Path| -> Vec<Value> {
        let without_times = |mut line: Value| {
            line.as_object_mut()
                .unwrap()
                .retain(|key, _| key != "seconds" && key != "samples_per_second");
            line
        };
        metrics(out).into_iter().map(without_times).collect()
    };
    assert_eq!(results(&parts), results(&whole));
    assert_eq!(
        fs::read(parts.join("predictions.png")).unwrap(),
        fs::read(whole.join("predictions.png")).unwrap()
    );

    // A run that is complete is evaluated once more.
    let (line, said) = succeed(resume(""));
    assert_eq!(line, whole_line);
    assert!(said.contains("complete"), "{said}");
    assert!(model(&parts) == model(&whole));
}
