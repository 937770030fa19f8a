//! What environment variables make of a process: each case is a process of its own, since a driver is chosen once.

use std::process::Command;

use fireclay_core::Device;
use fireclay_cuda::{Gpu, surface};

/// Runs [`child`] in a process with these variables, and no others that matter here; what it says.
fn run(variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("the test itself");
    let mut command = Command::new(program);
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    for (name, _) in std::env::vars() {
        if name.starts_with("FIRECLAY_") || name == "CUDA_VISIBLE_DEVICES" {
            command.env_remove(name);
        }
    }
    let output = command
        .envs(variables.iter().copied())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Not a test: what the tests below run in processes of their own.
#[test]
#[ignore = "run by the other tests"]
fn child() {
    println!("count {}", surface::device_count());
    println!("available {}", surface::is_available());
    match surface::availability() {
        Ok(found) => println!("found {} devices in {}", found.devices, found.source),
        Err(error) => println!("error {error}"),
    }
    if std::env::var("CHANGE_VISIBLE").is_ok() {
        // SAFETY: no other thread of this process looks at its environment now.
        unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", "0") };
        println!("count {} after", surface::device_count());
    }
    for ordinal in [0, 7] {
        match Gpu::get(ordinal) {
            Ok(gpu) => println!("got {}", gpu.device()),
            Err(error) => println!("error {error}"),
        }
        if let Err(error) = surface::set_device(Device::Cuda(ordinal)) {
            println!("error {error}");
        }
    }
    println!("end");
}

#[track_caller]
fn expect(said: &str, parts: &[&str]) {
    for part in parts.iter().chain(&["end"]) {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}

#[test]
fn virtual_gpus_are_as_many_as_asked_for() {
    let said = run(&[("FIRECLAY_VIRTUAL_GPUS", "3")]);
    expect(
        &said,
        &[
            "count 3\n",
            "available true",
            "found 3 devices in virtual GPU",
            "got cuda:0",
        ],
    );
    expect(
        &said,
        &[
            "cuda:7 is not available: there are 3 devices",
            "cuda:0 to cuda:2\n",
        ],
    );
}

#[test]
fn visible_devices_that_show_none_are_named() {
    for value in ["", "nonsense", "-1", "1,1", "9"] {
        let said = run(&[
            ("FIRECLAY_VIRTUAL_GPUS", "2"),
            ("CUDA_VISIBLE_DEVICES", value),
        ]);
        let named = format!("CUDA_VISIBLE_DEVICES is \"{value}\"");
        expect(
            &said,
            &[
                "count 0\n",
                "available false",
                "shows no device",
                &named,
                "unset it",
            ],
        );
        assert!(!said.contains("got "), "{said}");
    }
}

#[test]
fn a_bad_ordinal_comes_with_the_mapping() {
    let said = run(&[
        ("FIRECLAY_VIRTUAL_GPUS", "4"),
        ("CUDA_VISIBLE_DEVICES", "3, 1"),
    ]);
    expect(
        &said,
        &[
            "count 2\n",
            "cuda:7 is not available: there are 2 devices",
            "got cuda:0",
        ],
    );
    expect(
        &said,
        &["CUDA_VISIBLE_DEVICES is \"3, 1\": cuda:0 is GPU 3, cuda:1 is GPU 1\n"],
    );
    let said = run(&[
        ("FIRECLAY_VIRTUAL_GPUS", "4"),
        ("CUDA_VISIBLE_DEVICES", "2,x,1"),
    ]);
    expect(&said, &["there is 1 device", "cuda:0 is GPU 2\n"]);
}

#[test]
fn visible_devices_changed_too_late_change_nothing_and_it_is_said() {
    let said = run(&[("FIRECLAY_VIRTUAL_GPUS", "2"), ("CHANGE_VISIBLE", "1")]);
    expect(
        &said,
        &[
            "count 2\n",
            "count 2 after",
            "got cuda:0",
            "set to \"0\" after the driver had started",
        ],
    );
}

#[test]
fn wrong_settings_of_the_virtual_gpu_are_refused() {
    for (name, value) in [
        ("FIRECLAY_VIRTUAL_GPUS", "two"),
        ("FIRECLAY_VIRTUAL_GPU_MEMORY", "much"),
        ("FIRECLAY_VIRTUAL_GPUS", "100000"),
    ] {
        let said = run(&[("FIRECLAY_VIRTUAL_GPUS", "1"), (name, value)]);
        expect(
            &said,
            &[
                "count 0\n",
                "available false",
                "the virtual GPU was refused",
                value,
            ],
        );
    }
}

#[test]
fn an_old_driver_is_refused() {
    let said = run(&[
        ("FIRECLAY_VIRTUAL_GPUS", "1"),
        ("FIRECLAY_VIRTUAL_GPU_DRIVER", "11.8"),
    ]);
    expect(&said, &["count 0\n", "is for CUDA 11.8, 12.0 is needed"]);
}

#[test]
fn a_named_library_is_the_only_one_tried() {
    let path = "/no/such/folder/libcuda.so.1";
    let said = run(&[("FIRECLAY_CUDA_DRIVER", path)]);
    expect(
        &said,
        &[
            "count 0\n",
            "no CUDA driver library could be loaded (tried",
            path,
        ],
    );
    assert!(!said.contains("wsl"), "{said}");
    // An empty value asks for nothing, 0 virtual GPUs neither.
    let said = run(&[
        ("FIRECLAY_VIRTUAL_GPUS", "0"),
        ("FIRECLAY_CUDA_DRIVER", path),
    ]);
    expect(&said, &[path]);
}
