//! `kernels/atomics.cu`.

use half::{bf16, f16};

use crate::compare::same;
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/atomics.ptx");
const TEXT_90: &str = include_str!("../../kernels/ptx/atomics.90.ptx");

crate::kernel_tests! { integers_32 integers_64 floats bfloats returned compare_and_swap shared acquire_release }

const N: usize = 300;

fn integers_32(gpu: &Gpu) {
    let values: Vec<i32> = Draw::new(170)
        .words(N)
        .into_iter()
        .map(|word| word as i32)
        .collect();
    let before = [5, 5, i32::MAX, i32::MIN, -1, 0, -1, 0, 0, 0, 0];
    let cells = gpu.upload(&before);
    gpu.run(
        &gpu.module(TEXT),
        "atomics_32",
        3,
        128,
        arguments![&gpu.upload(&values), &cells, N as i32],
    );
    let sum = values.iter().fold(0i32, |sum, &x| sum.wrapping_add(x));
    let (mut up, mut down) = (0u32, 0u32);
    for _ in 0..N {
        up = if up >= 99 { 0 } else { up + 1 };
        down = if down == 0 || down > 49 { 49 } else { down - 1 };
    }
    let expected = [
        5i32.wrapping_add(sum),
        5i32.wrapping_sub(sum),
        *values.iter().min().expect("N"),
        *values.iter().max().expect("N"),
        values.iter().map(|&x| x as u32).min().expect("N") as i32,
        values.iter().map(|&x| x as u32).max().expect("N") as i32,
        values.iter().fold(-1, |all, x| all & (x | 0xf0)),
        values.iter().fold(0, |any, x| any | x & 0x0f0f),
        values.iter().fold(0, |parity, x| parity ^ x),
        up as i32,
        down as i32,
    ];
    same("atomics_32", &gpu.download(&cells), &expected);
}

fn integers_64(gpu: &Gpu) {
    let values: Vec<i64> = Draw::new(171)
        .words(N)
        .into_iter()
        .map(|word| word as i64)
        .collect();
    let cells = gpu.upload(&[0, i64::MAX, i64::MIN, -1, 0, -1, 0, 0]);
    gpu.run(
        &gpu.module(TEXT),
        "atomics_64",
        3,
        128,
        arguments![&gpu.upload(&values), &cells, N as i32],
    );
    let expected = [
        values.iter().fold(0i64, |sum, &x| sum.wrapping_add(x)),
        *values.iter().min().expect("N"),
        *values.iter().max().expect("N"),
        values.iter().map(|&x| x as u64).min().expect("N") as i64,
        values.iter().map(|&x| x as u64).max().expect("N") as i64,
        values.iter().fold(-1, |all, x| all & (x | 0xff00_ff00)),
        values.iter().fold(0, |any, x| any | x & 0x0f0f_0f0f),
        values.iter().fold(0, |parity, x| parity ^ x),
    ];
    same("atomics_64", &gpu.download(&cells), &expected);
}

fn floats(gpu: &Gpu) {
    let values: Vec<f32> = Draw::new(172)
        .integers(N, -50, 50)
        .into_iter()
        .map(|x| x as f32)
        .collect();
    let (single, double) = (gpu.zeros::<f32>(1), gpu.zeros::<f64>(1));
    let (pair, half) = (gpu.zeros::<f16>(2), gpu.zeros::<f16>(2));
    let arguments = arguments![
        &gpu.upload(&values),
        &single,
        &double,
        &pair,
        &half,
        N as i32
    ];
    gpu.run(&gpu.module(TEXT), "atomics_float", 3, 128, arguments);
    let sum: f32 = values.iter().sum();
    same("f32", &gpu.download(&single), &[sum]);
    same("f64", &gpu.download(&double), &[f64::from(sum) * 0.5]);
    let positive = values.iter().filter(|&&x| x > 0.0).count() as f32;
    same(
        "half2",
        &gpu.download(&pair),
        &[300.0, positive].map(f16::from_f32),
    );
    same(
        "half",
        &gpu.download(&half),
        &[300.0, 0.0].map(f16::from_f32),
    );
}

fn bfloats(gpu: &Gpu) {
    for text in [TEXT, TEXT_90] {
        // Up to 256 every integer is a bf16.
        let values: Vec<f32> = Draw::new(173)
            .integers(200, -50, 50)
            .into_iter()
            .map(|x| x as f32)
            .collect();
        let (pair, one) = (gpu.zeros::<bf16>(2), gpu.zeros::<bf16>(2));
        let arguments = arguments![&gpu.upload(&values), &pair, &one, 200];
        gpu.run(&gpu.module(text), "atomics_bfloat", 2, 128, arguments);
        let positive = values.iter().filter(|&&x| x > 0.0).count() as f32;
        same(
            "bfloat2",
            &gpu.download(&pair),
            &[200.0, positive].map(bf16::from_f32),
        );
        same(
            "bfloat",
            &gpu.download(&one),
            &[200.0, 0.0].map(bf16::from_f32),
        );
    }
}

fn returned(gpu: &Gpu) {
    let [added, incremented, exchanged] = std::array::from_fn(|_| gpu.zeros::<i32>(N));
    let cells = gpu.zeros::<i32>(3);
    let arguments = arguments![&added, &incremented, &exchanged, &cells, N as i32];
    gpu.run(&gpu.module(TEXT), "atomics_returned", 3, 128, arguments);
    let cells = gpu.download(&cells);
    same("counters", &cells[..2], &[N as i32; 2]);
    let all: Vec<i32> = (0..N as i32).collect();
    for buffer in [&added, &incremented] {
        let mut found = gpu.download(buffer);
        found.sort_unstable();
        same("previous values", &found, &all);
    }
    let mut found = gpu.download(&exchanged);
    found.push(cells[2]);
    found.sort_unstable();
    let handed_on: Vec<i32> = (0..=N as i32).collect();
    same("exchanged values", &found, &handed_on);
}

fn compare_and_swap(gpu: &Gpu) {
    let values = Draw::new(174).integers(N, -30_000, 30_000);
    let (product, top) = (gpu.upload(&[1u32]), gpu.upload(&[-1e9f32]));
    let (sum, small) = (gpu.zeros::<u64>(1), gpu.zeros::<u16>(2));
    let arguments = arguments![&gpu.upload(&values), &product, &top, &sum, &small, N as i32];
    gpu.run(&gpu.module(TEXT), "atomics_cas", 3, 128, arguments);
    let factor = |x: i32| u64::from((x & 0xffff) as u32 % 65520 + 1);
    let expected = values
        .iter()
        .fold(1, |product, &x| product * factor(x) % 65521);
    same("product", &gpu.download(&product), &[expected as u32]);
    same(
        "maximum",
        &gpu.download(&top),
        &[*values.iter().max().expect("N") as f32],
    );
    let total: i64 = values.iter().map(|&x| i64::from(x)).sum();
    same("sum", &gpu.download(&sum), &[total as u64]);
    same(
        "16 bits and the neighbour",
        &gpu.download(&small),
        &[total as u16, 0],
    );
}

fn shared(gpu: &Gpu) {
    let values = Draw::new(175).integers(4 * 96, 0, 1 << 30);
    let out = gpu.zeros::<i32>(36);
    gpu.run(
        &gpu.module(TEXT),
        "atomics_shared",
        4,
        96,
        arguments![&gpu.upload(&values), &out],
    );
    let mut expected = Vec::new();
    for block in values.chunks(96) {
        let wide: u64 = block.iter().map(|&x| u64::from(x as u32) << 8).sum();
        expected.extend([
            block.iter().fold(0i32, |sum, &x| sum.wrapping_add(x)),
            *block.iter().min().expect("96"),
            *block.iter().max().expect("96"),
            block.iter().fold(0, |any, x| any | x),
            block.iter().fold(0, |parity, x| parity ^ x),
            96 % 31,
            wide as i32,
            (wide >> 32) as i32,
            block.iter().map(|x| x & 15).sum(),
        ]);
    }
    same("atomics_shared", &gpu.download(&out), &expected);
}

fn acquire_release(gpu: &Gpu) {
    let (data, flag, out) = (
        gpu.zeros::<i32>(1),
        gpu.zeros::<i32>(1),
        gpu.zeros::<i32>(3),
    );
    gpu.run_cooperative(
        &gpu.module(TEXT),
        "acquire_release",
        4,
        32,
        arguments![&data, &flag, &out],
    );
    // Three blocks each add 42; the largest sum before an addition is that of two.
    same("acquire_release", &gpu.download(&out), &[126, 3, 84]);
}
