//! `kernels/memory.cu`.

use crate::compare::{same, same_bits};
use crate::draw::Draw;
use crate::gpu::{Argument, Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/memory.ptx");

crate::kernel_tests! { constants globals local_sort generic_pointers dynamic_shared copies async_sizes records }

fn constants(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let settings = [3, -2, 0, 10];
    gpu.write_global(&module, "settings", &settings);
    let values = Draw::new(180).reals(100, -2.0, 2.0);
    let out = gpu.zeros::<f32>(100);
    gpu.run(
        &module,
        "polynomial",
        4,
        32,
        arguments![&gpu.upload(&values), &out, 100],
    );
    let coefficients = [0.5f32, -1.0, 0.25, 2.0, -0.125, 1.5, -3.0, 0.0625];
    let of = |(i, &x): (usize, &f32)| {
        let sum = coefficients
            .iter()
            .rev()
            .fold(0.0f32, |sum, &c| sum.mul_add(x, c));
        sum * settings[i % 4] as f32
    };
    let expected: Vec<f32> = values.iter().enumerate().map(of).collect();
    same_bits("polynomial", &gpu.download(&out), &expected);
}

fn globals(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for launch in 0..3 {
        let out = gpu.zeros::<i32>(29);
        gpu.run(&module, "globals", 1, 32, arguments![&out]);
        let mut expected = vec![2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 1000 + 7 * launch, 11];
        expected.extend(b"virtual gpu\0\0\0\0\0".map(i32::from));
        expected.push(3 * launch);
        same("globals", &gpu.download(&out), &expected);
    }
    // Another module of the same text has variables of its own.
    let out = gpu.zeros::<i32>(29);
    gpu.run(&gpu.module(TEXT), "globals", 1, 32, arguments![&out]);
    assert_eq!(gpu.download(&out)[10], 1000);
}

fn local_sort(gpu: &Gpu) {
    let mut values = Draw::new(181).integers(50 * 16, -99, 99);
    let out = gpu.zeros::<i32>(50 * 16);
    gpu.run(
        &gpu.module(TEXT),
        "local_sort",
        2,
        32,
        arguments![&gpu.upload(&values), &out, 50],
    );
    values.chunks_mut(16).for_each(<[i32]>::sort_unstable);
    same("local_sort", &gpu.download(&out), &values);
}

fn generic_pointers(gpu: &Gpu) {
    let mut values = Draw::new(182).integers(128, -99, 99);
    values[1] = 3;
    let out = gpu.zeros::<i32>(256 + 128);
    gpu.run(
        &gpu.module(TEXT),
        "generic_pointers",
        1,
        128,
        arguments![&gpu.upload(&values), &out],
    );
    let mut expected = Vec::new();
    for t in 0..128 {
        expected.extend(match t % 4 {
            1 | 3 => [values[127 - t] * 1000, 1],
            0 => [values[127 - t], 2],
            _ => [values[0], 4],
        });
    }
    for (t, value) in values.iter().enumerate() {
        expected.push(if t % 2 == 1 { value * 1000 + 5 } else { 5 });
    }
    same("generic_pointers", &gpu.download(&out), &expected);
}

fn dynamic_shared(gpu: &Gpu) {
    let n = 96;
    let values = Draw::new(183).reals(n, -1.0, 1.0);
    let out = gpu.zeros::<f64>(n);
    let arguments = arguments![&gpu.upload(&values), &out, n as i32];
    gpu.run_with_shared(&gpu.module(TEXT), "dynamic_shared", 1, n, n * 13, arguments);
    let product = |t: usize| f64::from(values[n - 1 - t]) * f64::from(((t + 1) % n * 7) as u8);
    let expected: Vec<f64> = (0..n).map(|t| product(t ^ 1)).collect();
    same_bits("dynamic_shared", &gpu.download(&out), &expected);
}

fn copies(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(184);
    let n = 37;
    let bytes: Vec<u8> = (0..16 * n).map(|_| draw.bits() as u8).collect();
    let input = gpu.upload(&bytes);
    for kernel in [
        "copy_u8",
        "copy_u16",
        "copy_u32x2",
        "copy_u64x2",
        "copy_u16x4",
        "copy_hints",
    ] {
        let out = gpu.zeros::<u8>(16 * n);
        gpu.run(&module, kernel, 2, 64, arguments![&input, &out, n as i32]);
        same(kernel, &gpu.download(&out), &bytes);
    }
}

fn async_sizes(gpu: &Gpu) {
    let mut values = Draw::new(185).integers(448, -99, 99);
    let out = gpu.zeros::<i32>(448);
    gpu.run(
        &gpu.module(TEXT),
        "copy_async_sizes",
        1,
        64,
        arguments![&gpu.upload(&values), &out],
    );
    values.reverse();
    same("copy_async_sizes", &gpu.download(&out), &values);
}

/// The kernel's `Record`: tag, number, three values, weight, pair, with C++'s padding; 32 bytes.
fn record(tag: i8, number: i16, values: [i32; 3], weight: f64, pair: [f32; 2]) -> Vec<u8> {
    let mut bytes = vec![tag as u8, 0];
    bytes.extend(number.to_le_bytes());
    values
        .iter()
        .for_each(|value| bytes.extend(value.to_le_bytes()));
    bytes.extend(weight.to_le_bytes());
    pair.iter()
        .for_each(|value| bytes.extend(value.to_le_bytes()));
    assert_eq!(bytes.len(), 32);
    bytes
}

fn records(gpu: &Gpu) {
    let own = record(-3, 1000, [10, 20, 30], 0.5, [7.0, 0.25]);
    let rows: Vec<u8> = (0..40i16)
        .flat_map(|t| {
            record(
                t as i8,
                2 * t,
                [0, 0, 5 * i32::from(t)],
                0.125,
                [f32::from(t), 9.0],
            )
        })
        .collect();
    let (table, out) = (gpu.upload(&rows), gpu.zeros::<f64>(40));
    let arguments = arguments![Argument::of_bytes(&own), &table, &out];
    gpu.run(&gpu.module(TEXT), "record_fields", 1, 40, arguments);
    let of = |t: i32| {
        f64::from(-3 + 1000 + [10, 20, 30][t as usize % 3]) + 0.5 + 0.25 + f64::from(9 * t) + 0.125
    };
    let expected: Vec<f64> = (0..40).map(of).collect();
    same_bits("record_fields", &gpu.download(&out), &expected);
    let expected: Vec<u8> = (0..40i16)
        .flat_map(|t| {
            record(
                t as i8,
                2 * t - 3,
                [0, 0, 5 * i32::from(t)],
                0.125,
                [f32::from(t), 9.0],
            )
        })
        .collect();
    same("record_fields table", &gpu.download(&table), &expected);
}
