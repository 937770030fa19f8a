//! `kernels/scan_sort.cu`.

use crate::compare::{near, same};
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/scan_sort.ptx");

crate::kernel_tests! { row_scans blelloch lookback bitonic_pairs bitonic_global bitonic_warp radix_sort }

fn inclusive(values: &[i32]) -> Vec<i32> {
    let scan = values.iter().scan(0i32, |sum, &x| {
        *sum = sum.wrapping_add(x);
        Some(*sum)
    });
    scan.collect()
}

fn row_scans(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for columns in [1, 33, 128, 700] {
        let values = Draw::new(40).integers(5 * columns, -1000, 1000);
        let out = gpu.zeros::<i32>(5 * columns);
        gpu.run(
            &module,
            "scan_rows",
            5,
            128,
            arguments![&gpu.upload(&values), &out, columns as i32],
        );
        let expected: Vec<i32> = values.chunks(columns).flat_map(inclusive).collect();
        same("scan_rows", &gpu.download(&out), &expected);
    }
}

fn blelloch(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let values = Draw::new(41).reals(3 * 256, 0.0, 1.0);
    let out = gpu.zeros::<f32>(3 * 256);
    let arguments = arguments![&gpu.upload(&values), &out];
    gpu.run_with_shared(&module, "scan_exclusive_blelloch", 3, 128, 1024, arguments);
    let mut expected = Vec::new();
    for row in values.chunks(256) {
        let mut sum = 0.0;
        for &x in row {
            expected.push(sum);
            sum += f64::from(x);
        }
    }
    near(
        "scan_exclusive_blelloch",
        &gpu.download(&out),
        &expected,
        1e-5,
        0.0,
    );
}

fn lookback(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let n = 64 * 40 + 17;
    let values = Draw::new(42).integers(n, -1000, 1000);
    let (out, status, ticket) = (
        gpu.zeros::<i32>(n),
        gpu.zeros::<u64>(41),
        gpu.zeros::<u32>(1),
    );
    let arguments = arguments![&gpu.upload(&values), &out, &status, &ticket, n as i32];
    gpu.run(&module, "scan_lookback", 41, 64, arguments);
    same("scan_lookback", &gpu.download(&out), &inclusive(&values));
}

fn bitonic_pairs(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let keys = Draw::new(43).reals(4 * 256, -10.0, 10.0);
    let places: Vec<i32> = (0..1024).collect();
    let (device_keys, device_places) = (gpu.upload(&keys), gpu.upload(&places));
    let arguments = arguments![&device_keys, &device_places];
    gpu.run_with_shared(&module, "bitonic_sort_pairs", 4, 128, 2048, arguments);
    let mut expected: Vec<(f32, i32)> = keys.iter().copied().zip(places).collect();
    expected
        .chunks_mut(256)
        .for_each(|block| block.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let found: Vec<(f32, i32)> = gpu
        .download(&device_keys)
        .into_iter()
        .zip(gpu.download(&device_places))
        .collect();
    same("bitonic_sort_pairs", &found, &expected);
}

fn bitonic_global(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let n = 512;
    let mut keys: Vec<i32> = Draw::new(44)
        .words(n)
        .into_iter()
        .map(|word| word as i32)
        .collect();
    let device_keys = gpu.upload(&keys);
    let mut size = 2;
    while size <= n {
        let mut stride = size / 2;
        while stride > 0 {
            let arguments = arguments![&device_keys, size as i32, stride as i32];
            gpu.run(&module, "bitonic_step", n / 64, 64, arguments);
            stride /= 2;
        }
        size *= 2;
    }
    keys.sort_unstable();
    same("bitonic_step", &gpu.download(&device_keys), &keys);
}

fn bitonic_warp(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut keys: Vec<u32> = Draw::new(45)
        .words(192)
        .into_iter()
        .map(|word| word as u32)
        .collect();
    let device_keys = gpu.upload(&keys);
    gpu.run(&module, "bitonic_warp", 3, 64, arguments![&device_keys]);
    keys.chunks_mut(32).for_each(<[u32]>::sort_unstable);
    same("bitonic_warp", &gpu.download(&device_keys), &keys);
}

fn radix_sort(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (n, blocks) = (1500, 12);
    let mut keys: Vec<u32> = Draw::new(46)
        .words(n)
        .into_iter()
        .map(|word| word as u32)
        .collect();
    let (mut from, mut to) = (gpu.upload(&keys), gpu.zeros::<u32>(n));
    let counts = gpu.zeros::<i32>(16 * blocks);
    for shift in (0..32).step_by(4) {
        gpu.run(
            &module,
            "radix_count",
            blocks,
            128,
            arguments![&from, &counts, shift, n as i32],
        );
        gpu.run(
            &module,
            "radix_offsets",
            1,
            64,
            arguments![&counts, (16 * blocks) as i32],
        );
        gpu.run(
            &module,
            "radix_place",
            blocks,
            128,
            arguments![&from, &counts, &to, shift, n as i32],
        );
        // Stable: the keys are in order of the digits so far.
        let mask = u32::MAX >> (28 - shift);
        assert!(
            gpu.download(&to).is_sorted_by_key(|key| key & mask),
            "after shift {shift}"
        );
        std::mem::swap(&mut from, &mut to);
    }
    keys.sort_unstable();
    same("radix sort", &gpu.download(&from), &keys);
}
