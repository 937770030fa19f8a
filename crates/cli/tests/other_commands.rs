//! `fireclay` alone, `predict` and `bench`.

mod command;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use command::{SIDE, fireclay, refuse, succeed, write_png};
use fireclay::data::{Dataset, Mnist};
use serde_json::Value;

#[test]
fn without_a_command_it_explains_itself_at_once() {
    let start = Instant::now();
    let (stdout, stderr) = succeed(fireclay([] as [&str; 0]));
    let elapsed = start.elapsed();
    assert!(stdout.contains("fireclay train mnist"), "{stdout}");
    assert_eq!(stderr, "");
    // Some milliseconds on a machine that is not busy.
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    let (help, _) = succeed(fireclay(["--help"]));
    for command in ["train", "predict", "bench", "devices", "plan", "ops"] {
        assert!(help.contains(command), "{help}");
    }
    let (version, _) = succeed(fireclay(["--version"]));
    assert_eq!(version, format!("fireclay {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn digits_are_read_from_png_files_light_on_dark_or_dark_on_light() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut command =
        fireclay("train mnist --epochs 2 --limit 1000 --batch-size 32 --out".split(' '));
    command.arg(path("out"));
    succeed(command);

    let digits = Mnist::embedded().unwrap();
    let labels = digits.labels();
    let chosen: Vec<usize> = (0..digits.len())
        .step_by(digits.len() / 20)
        .take(20)
        .collect();
    let mut command = fireclay(["predict", "--json", "--checkpoint"]);
    command.arg(path("out/model.safetensors"));
    for &index in &chosen {
        let pixels = digits.pixels(index).unwrap();
        write_png(&path(&format!("{index}.png")), SIDE, SIDE, pixels);
        command.arg(path(&format!("{index}.png")));
    }
    let inverted: Vec<u8> = (digits.pixels(chosen[0]).unwrap().iter())
        .map(|value| 255 - value)
        .collect();
    write_png(&path("inverted.png"), SIDE, SIDE, &inverted);
    command.arg(path("inverted.png"));
    let (stdout, stderr) = succeed(command);
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 21);
    let right = (lines.iter().zip(&chosen))
        .filter(|(line, index)| line["digit"] == labels[**index])
        .count();
    assert!(
        right >= 15,
        "{right} of 20 after two short epochs: {stdout}"
    );
    for line in &lines {
        let (best, second) = (&line["probability"], &line["runner_up_probability"]);
        assert!(
            best.as_f64() >= second.as_f64() && line["digit"] != line["runner_up"],
            "{line}"
        );
    }
    assert_eq!(lines[20]["probability"], lines[0]["probability"]);
    assert_eq!(
        (&lines[0]["inverted"], &lines[20]["inverted"]),
        (&false.into(), &true.into())
    );
    assert!(stderr.contains("inverted.png is dark on light"), "{stderr}");

    let mut command = fireclay(["predict", "--checkpoint"]);
    command
        .arg(path("out/model.safetensors"))
        .arg(path(&format!("{}.png", chosen[0])));
    let (stdout, _) = succeed(command);
    assert_eq!(stdout.lines().count(), 1);
    assert!(
        stdout.contains("probability") && stdout.contains("then"),
        "{stdout}"
    );
}

#[test]
fn the_bench_prints_a_line_of_json_a_workload() {
    let flags = "bench --only overhead --seconds 0.05 --threads 1";
    let (stdout, _) = succeed(fireclay(flags.split(' ')));
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["workload"].as_str())
        .collect();
    assert_eq!(names, ["overhead/add_1", "overhead/mul_chain10_fwd_bwd_1"]);
    for line in &lines {
        assert!(line["ms"].as_f64() >= line["min_ms"].as_f64() && line["n"].as_u64() >= Some(5));
    }
    let (stdout, _) = succeed(fireclay([
        "bench",
        "--only",
        "train/gpt_4x256_t128_b8_adamw_bf16",
    ]));
    assert_eq!(stdout.matches("\"not_yet\"").count(), 1, "{stdout}");
}

/// The names stand in the script's calls; the few that are made in loops are written out here.
#[test]
fn the_bench_knows_the_workloads_of_the_pytorch_script() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../bench/torch_workloads.py"
    );
    let script = std::fs::read_to_string(script).unwrap();
    let mut expected = BTreeSet::new();
    for call in script.split("bench(").skip(1) {
        let call = call.trim_start();
        let (formatted, call) = match call.strip_prefix('f') {
            Some(call) => (true, call),
            None => (false, call),
        };
        let Some((name, _)) = call.strip_prefix('"').and_then(|call| call.split_once('"')) else {
            continue;
        };
        let values: &[&str] = match name {
            "matmul/f32_{n}" => &["64", "256", "512", "1024", "2048"],
            "matmul/bf16_{n}" => &["512", "1024", "2048"],
            "train/gpt_4x256_t128_b8_adamw_{label}" => &["f32", "bf16_autocast"],
            "infer/encoder_6x384_t128_b{bsz}" => &["1", "8"],
            _ => {
                assert!(!formatted, "{name}");
                expected.insert(name.to_owned());
                continue;
            }
        };
        let (stem, _) = name.split_once('{').unwrap();
        expected.extend(values.iter().map(|value| format!("{stem}{value}")));
    }
    let (stdout, _) = succeed(fireclay(["bench", "--list"]));
    let names: BTreeSet<String> = stdout.lines().map(str::to_owned).collect();
    assert_eq!(names, expected);
}

#[test]
fn devices_are_listed_and_their_absence_is_explained() {
    let listed = |variables: &[(&str, &str)], flag: &str| {
        let mut command = fireclay(["devices", flag]);
        command.env_remove("FIRECLAY_VIRTUAL_GPUS");
        command.env_remove("CUDA_VISIBLE_DEVICES");
        command.envs(variables.iter().copied());
        succeed(command).0
    };
    let two = listed(&[("FIRECLAY_VIRTUAL_GPUS", "2")], "-v");
    assert!(
        two.contains("cuda:1") && two.contains("Virtual GPU"),
        "{two}"
    );
    let json: Value =
        serde_json::from_str(&listed(&[("FIRECLAY_VIRTUAL_GPUS", "3")], "--json")).unwrap();
    assert_eq!(json["cuda"]["devices"].as_array().map(Vec::len), Some(3));
    for (variables, parts) in [
        (
            &[("FIRECLAY_CUDA_DRIVER", "/nowhere/libcuda.so")][..],
            &["/nowhere/libcuda.so", "FIRECLAY_VIRTUAL_GPUS=1"][..],
        ),
        (
            &[("FIRECLAY_VIRTUAL_GPUS", "two")],
            &["FIRECLAY_VIRTUAL_GPUS=two", "expected"],
        ),
        (
            &[("FIRECLAY_VIRTUAL_GPUS", "2"), ("CUDA_VISIBLE_DEVICES", "")],
            &["CUDA_VISIBLE_DEVICES is \"\"", "unset it"],
        ),
    ] {
        let text = listed(variables, "-v");
        for part in parts {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
}

#[test]
fn libraries_of_the_vendor_are_listed_with_what_is_done_with_them() {
    let listed = |variables: &[(&str, &str)]| {
        let mut command = fireclay(["devices", "-v"]);
        command
            .env_remove("FIRECLAY_CONV")
            .env_remove("FIRECLAY_BLAS");
        command.env("FIRECLAY_VIRTUAL_GPUS", "1");
        command.envs(variables.iter().copied());
        succeed(command).0
    };
    let text = listed(&[]);
    for line in [
        "cuBLASLt not used: its code can't run on the virtual GPU",
        "cuDNN   not used: its code can't run on the virtual GPU",
        "        change it with FIRECLAY_CUBLASLT=PATH or off; FIRECLAY_BLAS=cublaslt or own",
        "        change it with FIRECLAY_CUDNN=PATH or off; FIRECLAY_CONV=cudnn or own",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let text = listed(&[
        ("FIRECLAY_CUDNN", "/nowhere/libcudnn.so.9"),
        ("FIRECLAY_CUBLASLT", "off"),
        ("FIRECLAY_CONV", "cudnn"),
    ]);
    for part in [
        "cuDNN   not used: none was found (tried /nowhere/libcudnn.so.9: ",
        "cuBLASLt not used: FIRECLAY_CUBLASLT is \"off\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut command = fireclay(["bench", "--device", "cuda", "--conv", "cudnn"]);
    command.env("FIRECLAY_VIRTUAL_GPUS", "1");
    refuse(
        command,
        &["preferred_conv_library: cuDNN can't be used: its code can't run on the virtual GPU"],
    );
    refuse(
        fireclay(["bench", "--conv", "mkl"]),
        &["expected \"own\" or \"cudnn\""],
    );
}

#[test]
fn a_plan_says_which_kernel_and_why() {
    let planned = |arguments: &str| {
        let mut command = fireclay(arguments.split(' '));
        command.env("FIRECLAY_VIRTUAL_GPUS", "1");
        succeed(command).0
    };
    let text = planned("plan --m 256 --n 256 --k 4096 --dtype bf16");
    for part in [
        "matmul_mma_bf16_64x64_nn",
        "16 blocks share a sum",
        "matmul_bf16_add_parts",
        "8 numbers of A",
        "tensor cores",
        "cuda:0",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let json: Value = serde_json::from_str(&planned(
        "plan --m 1024 --n 1024 --k 64 --b t --unaligned --json",
    ))
    .unwrap();
    assert_eq!(json["kernel"], "matmul_f32_128x64");
    assert_eq!(json["tile"], serde_json::json!([128, 64]));
    assert_eq!(json["blocks"], 128);
    assert_eq!(json["numbers_at_once"]["b"], 1);
    assert_eq!(json["second_kernel"], Value::Null);
    // A row with a matrix: blocks of 64 threads, of which each has four columns.
    let json: Value = serde_json::from_str(&planned("plan --m 1 --n 4096 --k 64 --json")).unwrap();
    assert_eq!(json["kernel"], "matmul_f32_weighted_rows");
    assert_eq!(json["numbers_at_once"]["b"], 4);
    assert_eq!(json["blocks"], 16);
    // Of a device that is not here.
    let mut command = fireclay("plan --m 9 --n 300 --k 8 --dtype f16 --capability 7.5".split(' '));
    command.env("FIRECLAY_CUDA_DRIVER", "/nowhere/libcuda.so");
    let text = succeed(command).0;
    assert!(
        text.contains("matmul_f16_") && text.contains("below 8.0"),
        "{text}"
    );
}
