//! The check of a device: the program on the virtual GPU, and that an op that differs is found and the others go on.

use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Instant;

use fireclay_tensor::{Device, Tensor};
use fireclay_testing::agreement::check;
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::samples::Sample;
use serde_json::Value;

fn run(flags: &[&str], gpus: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_check-device"));
    command.env_remove("FIRECLAY_VIRTUAL_GPUS");
    command.env("FIRECLAY_CUDA_DRIVER", "/nowhere/libcuda.so");
    if let Some(gpus) = gpus {
        command
            .env_remove("FIRECLAY_CUDA_DRIVER")
            .env("FIRECLAY_VIRTUAL_GPUS", gpus);
    }
    command.args(flags).output().expect("it starts")
}

#[test]
fn the_program_checks_ops_and_writes_what_it_found() {
    let file = std::env::temp_dir().join(format!("fireclay-check-{}.json", std::process::id()));
    let path = file.to_str().expect("a path of letters");
    let done = run(&["--only", "add,softmax,conv2d", "--json", path], Some("1"));
    let text = String::from_utf8_lossy(&done.stdout);
    assert_eq!(
        done.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(
        text.starts_with("cuda:0  ") && text.contains("calls compared in"),
        "{text}"
    );
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let ops = found["ops"].as_array().unwrap();
    let mut names: Vec<&str> = ops.iter().filter_map(|op| op["op"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["add", "conv2d", "softmax"]);
    for op in ops {
        assert_eq!(
            (&op["result"], &op["done"]),
            (&Value::from("agrees"), &op["planned"]),
            "{op}"
        );
        assert!(op["same_bits"].as_u64() > Some(0), "{op}");
    }
}

#[test]
fn what_can_not_be_checked_is_refused_with_the_reason() {
    for (flags, gpus, part) in [
        (&["--only", "add"][..], None, "/nowhere/libcuda.so"),
        (
            &["--only", "addd"],
            Some("1"),
            "there is no op addd; see the names with --list",
        ),
        (
            &["--device", "cpu"],
            Some("1"),
            "the host is what devices are compared with",
        ),
        (&["--device", "cuda:7"], Some("1"), "cuda:7"),
        (
            &["--conv", "cudnn"],
            Some("1"),
            "cuDNN can't be used: its code can't run on the virtual GPU",
        ),
        (
            &["--blas", "cublaslt"],
            Some("1"),
            "cuBLASLt can't be used: its code can't run on the virtual GPU",
        ),
    ] {
        let done = run(flags, gpus);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
}

/// A sample whose call adds `amount` to its input where that is on a device, or panics there.
fn odd(op: &'static str, amount: f64, panics: bool) -> Sample {
    Sample {
        op,
        inputs: vec![Tensor::from_slice(&[1.0, 2.0], &[2], Device::Cpu).unwrap()],
        call: Rc::new(move |x| {
            let on_device = !x[0].device().is_cpu();
            assert!(!(on_device && panics), "a bug");
            x[0].add(if on_device { amount } else { 0.0 })
        }),
        differentiable: true,
        large: false,
    }
}

#[test]
fn an_op_that_differs_is_found_and_the_others_go_on() {
    let device = virtual_cuda();
    let samples = [
        odd("equal", 0.0, false),
        odd("far", 1.0, false),
        odd("panics", 0.0, true),
        odd("conv2d", 1e-13, false),
        odd("equal too", 0.0, false),
    ];
    let mut told = 0;
    let findings = check(&samples, device, None, &mut |_, _, _| told += 1);
    assert_eq!(told, 5 * 12);
    assert_eq!(findings.progress(), (60, 60));
    let row = |op: &str| findings.rows.iter().find(|row| row.op == op).unwrap();
    assert_eq!((row("equal").same, row("equal too").same), (12, 12));
    assert_eq!((row("far").same, row("far").failures.len()), (0, 12));
    assert!(
        row("far").failures[0].contains("far Transposed f32: result: 2e0 at place 0, expected 1e0")
    );
    assert!(row("panics").failures[0].ends_with("it panicked"));
    // Within its tolerance, where it is not rounded away.
    assert_eq!((row("conv2d").same, row("conv2d").close), (9, 3));
    assert!(row("conv2d").largest > 0.0 && row("conv2d").largest < 1e-12);
    let table = findings.table();
    assert!(
        table.contains("DIFFERS: far") && table.contains("agrees"),
        "{table}"
    );
    assert_eq!(findings.json()["ops"][1]["result"], "DIFFERS");
}

#[test]
fn what_was_not_reached_in_time_is_named() {
    let samples = [odd("first", 0.0, false), odd("second", 0.0, false)];
    let findings = check(
        &samples,
        virtual_cuda(),
        Some(Instant::now()),
        &mut |_, _, _| {},
    );
    assert_eq!(findings.progress(), (0, 24));
    assert!(
        findings.table().contains("not reached: first, second"),
        "{}",
        findings.table()
    );
}
