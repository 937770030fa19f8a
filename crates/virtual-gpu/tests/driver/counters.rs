//! Counters: exact numbers for kernels and calls that are known, by the interface and in the JSON file.

use std::collections::BTreeMap;

use virtual_gpu::machine::Settings;

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Schedule, arguments};
use crate::{null, ptx, settings};

fn counting() -> Gpu {
    Gpu::with(
        Schedule::Parallel,
        Settings {
            count_memory: true,
            ..settings()
        },
    )
}

/// Instruction classes, in the order of the counters.
const CLASSES: [&str; 12] = [
    "integer", "float", "double", "convert", "move", "load", "store", "atomic", "matrix", "sync",
    "control", "other",
];

fn named(values: [u64; 12]) -> BTreeMap<&'static str, u64> {
    CLASSES
        .into_iter()
        .zip(values)
        .filter(|(_, value)| *value > 0)
        .collect()
}

#[test]
fn instructions_and_traffic_of_known_kernels() {
    let gpu = counting();
    let module = gpu.module(ptx::SMALL);
    let (data, out): (Buffer<u32>, Buffer<u32>) = (gpu.zeros(128), gpu.zeros(128));
    // Two blocks of 48 threads: a whole warp and a half one each.
    gpu.run(
        &module,
        "copy_plus_one",
        2u32,
        48u32,
        arguments![&data, &out],
    );
    let kernel = &gpu.machine.counters().kernels["copy_plus_one"];
    let counts = &kernel.counts;
    assert_eq!(kernel.launches, 1);
    // Per warp: mad, mul, three adds; three moves; two loads of parameters and one of memory; a store; a return.
    let warp = named(counts.warp_instructions);
    let lanes = named(counts.lane_instructions);
    for (class, each) in [
        ("integer", 5),
        ("move", 3),
        ("load", 3),
        ("store", 1),
        ("control", 1),
    ] {
        assert_eq!(
            (warp[class], lanes[class]),
            (4 * each, 96 * each),
            "{class}"
        );
    }
    assert_eq!(
        (warp.len(), counts.divergent_branches, counts.barriers),
        (5, 0, 0)
    );
    assert_eq!(
        (counts.global_bytes_read, counts.global_bytes_written),
        (96 * 4, 96 * 4)
    );
    // A warp of 32 words is 4 sectors, half a one 2.
    assert_eq!(
        (counts.global_sectors_read, counts.global_sectors_written),
        (12, 12)
    );
    assert_eq!(counts.bank_conflicts, 0);

    assert_eq!(&gpu.machine.counters().total(), kernel);

    // A stride of 2 words uses every bank of 16 twice: one cycle more; of 32, one bank 32 times: 31 more.
    for (stride, conflicts) in [(1u32, 0), (2, 1), (4, 3), (32, 31), (0, 0)] {
        gpu.machine.reset_counters();
        gpu.run(&module, "strided", 1u32, 32u32, arguments![&out, stride]);
        let counts = &gpu.machine.counters().kernels["strided"].counts;
        assert_eq!(counts.bank_conflicts, conflicts, "stride {stride}");
        // Lanes 0 to 7 leave early: a branch that diverges, and 24 words in 3 sectors.
        assert_eq!((counts.divergent_branches, counts.barriers), (1, 1));
        assert_eq!(
            (counts.global_bytes_written, counts.global_sectors_written),
            (96, 3)
        );
    }
}

#[test]
fn calls_copies_and_waits() {
    let gpu = counting();
    let module = gpu.module(ptx::SMALL);
    gpu.machine.reset_counters();
    let data: Buffer<u32> = gpu.upload(&[1; 100]);
    let out: Buffer<u32> = gpu.zeros(100);
    for _ in 0..3 {
        gpu.run(
            &module,
            "copy_plus_one",
            1u32,
            100u32,
            arguments![&data, &out],
        );
    }
    ok(api::cuMemcpyDtoD_v2(out.address, data.address, 400));
    assert_eq!(gpu.download(&out), [1; 100]);
    let counters = gpu.machine.counters();
    assert_eq!(
        (
            counters.launches,
            counters.kernels["copy_plus_one"].launches
        ),
        (3, 3)
    );
    assert_eq!((counters.allocations, counters.fills), (2, (1, 400)));
    assert_eq!(
        (counters.host_to_device, counters.device_to_host),
        ((1, 400), (1, 400))
    );
    assert_eq!(
        (
            counters.device_to_device,
            counters.peer_to_peer,
            counters.host_to_host
        ),
        ((1, 400), (0, 0), (0, 0))
    );
    // The upload, three waits for the context, the download.
    assert_eq!(counters.synchronizations, 5);
    assert_eq!(
        (
            counters.calls_of("cuLaunchKernel"),
            counters.calls_of("cuCtxSynchronize")
        ),
        (3, 3)
    );
    // Two allocations, a copy in, a memset, three of get-function, launch and wait, two copies.
    assert_eq!(counters.total_calls(), 2 + 1 + 1 + 9 + 2);
    // 400 bytes take 512, and the module's variables 3 times 512.
    assert_eq!(
        counters.memory,
        [(2 * 512 + 3 * 512, 2 * 512 + 3 * 512), (0, 0)]
    );
    gpu.machine.reset_counters();
    let counters = gpu.machine.counters();
    assert_eq!(
        (
            counters.launches,
            counters.total_calls(),
            counters.kernels.len()
        ),
        (0, 0, 0)
    );
}

/// A value of JSON, as far as the counters have any.
#[derive(Debug, PartialEq)]
enum Json {
    Number(u64),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    fn at(&self, path: &str) -> &Json {
        path.split('/').fold(self, |value, key| match value {
            Json::Object(fields) => &fields[key],
            Json::List(values) => &values[key.parse::<usize>().unwrap()],
            Json::Number(_) => panic!("{key} of a number"),
        })
    }
}

/// Parses; panics at what is no JSON of that kind.
fn parse(text: &mut &str) -> Json {
    let take = |text: &mut &str, what: char| {
        *text = text.trim_start();
        let rest = text.strip_prefix(what);
        *text = rest.unwrap_or(text);
        rest.is_some()
    };
    let string = |text: &mut &str| {
        assert!(take(text, '"'), "a string at {text:.20}");
        let end = text.find('"').unwrap();
        let (value, rest) = text.split_at(end);
        *text = &rest[1..];
        value.to_string()
    };
    if take(text, '{') {
        let mut fields = BTreeMap::new();
        while !take(text, '}') {
            assert!(
                fields.is_empty() || take(text, ','),
                "a comma at {text:.20}"
            );
            let key = string(text);
            assert!(take(text, ':'));
            assert!(fields.insert(key, parse(text)).is_none());
        }
        return Json::Object(fields);
    }
    if take(text, '[') {
        let mut values = Vec::new();
        while !take(text, ']') {
            assert!(
                values.is_empty() || take(text, ','),
                "a comma at {text:.20}"
            );
            values.push(parse(text));
        }
        return Json::List(values);
    }
    *text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    Json::Number(digits.parse().unwrap())
}

#[test]
fn the_file_says_the_same() {
    let path =
        std::env::temp_dir().join(format!("virtual-gpu-counters-{}.json", std::process::id()));
    let with_file = Settings {
        count_memory: true,
        counters_file: Some(path.clone()),
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Parallel, with_file);
    let module = gpu.module(ptx::SMALL);
    let out: Buffer<u32> = gpu.zeros(32);
    gpu.run(&module, "store", 1u32, 32u32, arguments![&out, 1u32]);
    gpu.run(&module, "idle", 1u32, 32u32, &[]);
    let mut stream = null();
    ok(api::cuStreamCreate(&mut stream, 0));
    gpu.machine.finish();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let mut rest = text.as_str();
    let json = parse(&mut rest);
    assert_eq!(rest.trim(), "");
    for (path, value) in [
        ("launches", 2),
        ("allocations", 4),
        ("fills/bytes", 128),
        ("memory/0/used", 512 * 4),
        ("memory/1/peak", 0),
        ("calls/cuLaunchKernel", 2),
        ("kernels/store/launches", 1),
        ("kernels/store/global_bytes_written", 128),
        ("kernels/store/global_sectors_written", 4),
        ("kernels/store/warp_instructions/store", 1),
        ("kernels/store/lane_instructions/store", 32),
        ("kernels/idle/warp_instructions/control", 1),
        ("total/launches", 2),
        ("total/global_bytes_written", 128),
        ("total/warp_instructions/control", 2),
    ] {
        assert_eq!(json.at(path), &Json::Number(value), "{path}");
    }
    assert_eq!(text, gpu.machine.counters().to_json());
}
