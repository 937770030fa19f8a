//! `fireclay ops list` and `fireclay ops check`.

mod command;

use std::fs;
use std::path::{Path, PathBuf};

use command::{fireclay, refuse, succeed};
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/fixtures/cases")
}

#[test]
fn every_op_is_listed_with_what_is_true_of_it() {
    let (stdout, _) = succeed(fireclay(["ops", "list"]));
    let line = |op: &str| {
        let mut lines = stdout.lines();
        let found = lines.find(|line| line.split_whitespace().next() == Some(op));
        found.unwrap_or_else(|| panic!("no {op} in {stdout}"))
    };
    assert!(line("cumsum").contains("1, 2"), "{}", line("cumsum"));
    assert!(line("matmul").contains("low") && line("matmul").contains("bf16"));
    assert!(line("randn").contains("seed"), "{}", line("randn"));
    let (json, _) = succeed(fireclay(["ops", "list", "--json"]));
    let ops: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(ops.len() + 1, stdout.lines().count());
    let argmax = ops.iter().find(|op| op["name"] == "argmax").unwrap();
    assert_eq!(argmax["differentiable"], false);
    assert_eq!(argmax["deterministic"], true);
}

#[test]
fn the_cases_of_pytorch_pass_on_host_and_device() {
    for device in ["cpu", "cuda"] {
        let mut command = fireclay(["ops", "check", "--device", device]);
        command.arg(fixtures()).env("FIRECLAY_VIRTUAL_GPUS", "1");
        let (stdout, _) = succeed(command);
        let last = stdout.lines().last().unwrap_or_default().to_owned();
        assert!(last.contains("456 ops on"), "{last}");
        assert!(last.ends_with(" 0 failed, 0 missing"), "{last}");
    }
}

#[test]
fn an_answer_that_differs_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixtures().join("cases.json")).unwrap();
    // A sum that PyTorch would not answer so, and a name that is not there.
    let wrong = text.replacen("\"op\":\"cumsum\"", "\"op\":\"cumprod\"", 1);
    let wrong = wrong.replacen("\"op\":\"logcumsumexp\"", "\"op\":\"logcumsum\"", 1);
    fs::write(folder.path().join("cases.json"), wrong).unwrap();
    fs::copy(
        fixtures().join("tensors.safetensors"),
        folder.path().join("tensors.safetensors"),
    )
    .unwrap();
    let mut command = fireclay(["ops", "check", "--json"]);
    command.arg(folder.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["failed"], &last["missing"]), (&1.into(), &1.into()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("2 of 37"), "{stderr}");
    assert!(stdout.contains("no op logcumsum"), "{stdout}");
}

#[test]
fn what_is_no_set_of_cases_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |mention: &str| {
        let mut command = fireclay(["ops", "check"]);
        command.arg(folder.path());
        refuse(command, &[mention]);
    };
    refused("cases.json");
    fs::write(path("cases.json"), "{").unwrap();
    refused("is no JSON");
    fs::write(path("cases.json"), "{\"cases\":[{\"id\":\"a/0\"}]}").unwrap();
    refused("case 0: has no family");
    let case =
        "{\"cases\":[{\"id\":\"a/0\",\"family\":\"reduce\",\"op\":\"sum\",\"inputs\":[\"t0\"]}]}";
    fs::write(path("cases.json"), case).unwrap();
    refused("tensors.safetensors");
    fs::write(path("tensors.safetensors"), "no tensors").unwrap();
    refused("is no safetensors file");
    fs::copy(
        fixtures().join("tensors.safetensors"),
        path("tensors.safetensors"),
    )
    .unwrap();
    refused("there is no tensor \"t0\"");
}
