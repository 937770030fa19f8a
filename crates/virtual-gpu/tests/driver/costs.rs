//! What the machine costs: memory at the start, and (ignored unless asked for) the time of calls and small launches.

use std::time::Instant;

use virtual_gpu::machine::{Checks, Settings};

use crate::api::{self, ok};
use crate::gpu::{Gpu, Schedule, pointers, set_device};
use crate::{null, ptx, settings};

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Other tests of this binary use memory at the same time, so the measurement is a process of its own.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn eight_large_devices_cost_little() {
    let binary = std::env::current_exe().unwrap();
    let arguments = [
        "--ignored",
        "--exact",
        "costs::resident_memory_of_eight_large_devices",
    ];
    let output = std::process::Command::new(binary)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "run by another test, alone"]
fn resident_memory_of_eight_large_devices() {
    let before = resident();
    let large = Settings {
        devices: 8,
        memory: 80 << 30,
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Parallel, large);
    for device in 0..8 {
        set_device(device);
        let module = gpu.module(ptx::SMALL);
        gpu.run(&module, "idle", 1u32, 32u32, &[]);
        let mut address = 0;
        ok(api::cuMemAlloc_v2(&mut address, 70 << 30));
        ok(api::cuMemsetD8_v2(address + (60 << 30), 1, 4096));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 50 << 20, "{} MB", grown >> 20);
}

/// The median of many runs, in nanoseconds, of batches.
fn median(mut body: impl FnMut()) -> f64 {
    const BATCH: u32 = 200;
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let start = Instant::now();
            (0..BATCH).for_each(|_| body());
            start.elapsed().as_nanos() as f64 / f64::from(BATCH)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
#[ignore = "measures; run it alone with --ignored --nocapture"]
fn calls_and_small_launches() {
    let before = resident();
    let large = Settings {
        devices: 8,
        memory: 80 << 30,
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Parallel, large);
    report(
        "resident at the start of 8 devices of 80 GiB, KiB",
        (resident() - before) as f64 / 1024.0,
    );
    drop(gpu);
    for (name, checks) in [
        ("", Checks::default()),
        (
            ", all checks",
            Checks {
                uninitialized: true,
                shared_races: true,
                stream_races: true,
                leaks: true,
                strict: true,
            },
        ),
    ] {
        let gpu = Gpu::with(
            Schedule::Parallel,
            Settings {
                checks,
                ..settings()
            },
        );
        let module = gpu.module(ptx::SMALL);
        let (idle, store) = (
            gpu.function(&module, "idle"),
            gpu.function(&module, "store"),
        );
        let (stream, mut context) = (gpu.stream().0, null());
        let buffer = gpu.zeros::<u32>(256);
        ok(api::cuCtxSynchronize());
        let mut count = 0;
        report(
            &format!("cuDeviceGetCount{name}, ns"),
            median(|| ok(api::cuDeviceGetCount(&mut count))),
        );
        report(
            &format!("cuCtxGetCurrent{name}, ns"),
            median(|| ok(api::cuCtxGetCurrent(&mut context))),
        );
        report(
            &format!("cuStreamQuery{name}, ns"),
            median(|| ok(api::cuStreamQuery(stream))),
        );
        report(
            &format!("cuStreamSynchronize{name}, ns"),
            median(|| ok(api::cuStreamSynchronize(stream))),
        );
        let launch = |function, threads, params| {
            ok(api::cuLaunchKernel(
                function,
                1,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                params,
                null(),
            ));
        };
        report(
            &format!("launch of one empty block of 32{name}, ns"),
            median(|| launch(idle, 32, null())),
        );
        let given = crate::gpu::arguments![&buffer, 1u32];
        let mut params = pointers(given);
        let params = params.as_mut_ptr();
        report(
            &format!("launch of one block of 32 that stores{name}, ns"),
            median(|| launch(store, 32, params)),
        );
        report(
            &format!("launch of one block of 256 that stores{name}, ns"),
            median(|| launch(store, 256, params)),
        );
        let mut address = 0;
        report(
            &format!("cuMemAllocAsync and cuMemFreeAsync{name}, ns"),
            median(|| {
                ok(api::cuMemAllocAsync(&mut address, 4096, stream));
                ok(api::cuMemFreeAsync(address, stream));
            }),
        );
        report(
            &format!("cuMemcpyHtoDAsync of 4 bytes{name}, ns"),
            median(|| {
                ok(api::cuMemcpyHtoDAsync_v2(
                    buffer.address,
                    (&raw const count).cast(),
                    4,
                    stream,
                ));
            }),
        );
    }
}

#[expect(clippy::print_stdout, reason = "a measurement is for who reads it")]
fn report(what: &str, value: f64) {
    println!("{what}: {value:.0}");
}
