//! `kernels/random.cu`.

use crate::compare::{near, same, same_bits};
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/random.ptx");

crate::kernel_tests! { numbers uniform normal dropout }

const SEED: u64 = 0x1234_5678_9abc_def0;
/// The low word of the counter overflows within the launch.
const OFFSET: u64 = (1 << 32) - 20;

fn philox(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let (p0, p1) = (
            0xD251_1F53u64 * u64::from(c[0]),
            0xCD9E_8D57u64 * u64::from(c[2]),
        );
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
        k = [
            k[0].wrapping_add(0x9E37_79B9),
            k[1].wrapping_add(0xBB67_AE85),
        ];
    }
    c
}

fn numbered(counter: u64, stream: u64, seed: u64) -> [u32; 4] {
    let counter = [
        counter as u32,
        (counter >> 32) as u32,
        stream as u32,
        (stream >> 32) as u32,
    ];
    philox(counter, [seed as u32, (seed >> 32) as u32])
}

#[test]
fn philox_gives_its_published_numbers() {
    assert_eq!(
        philox([0; 4], [0; 2]),
        [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
    );
    let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
    assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
}

fn numbers(gpu: &Gpu) {
    let out = gpu.zeros::<u32>(400);
    gpu.run(
        &gpu.module(TEXT),
        "philox_u32",
        4,
        32,
        arguments![&out, SEED, OFFSET, 100],
    );
    let expected: Vec<u32> = (0..100)
        .flat_map(|i| numbered(OFFSET + i, 0, SEED))
        .collect();
    same("philox_u32", &gpu.download(&out), &expected);
}

fn unit(number: u32) -> f32 {
    (number >> 8) as f32 / 16_777_216.0
}

fn uniform(gpu: &Gpu) {
    let out = gpu.zeros::<f32>(400);
    gpu.run(
        &gpu.module(TEXT),
        "philox_uniform",
        4,
        32,
        arguments![&out, SEED, OFFSET, 100],
    );
    let expected: Vec<f32> = (0..100)
        .flat_map(|i| numbered(OFFSET + i, 0, SEED))
        .map(unit)
        .collect();
    same_bits("philox_uniform", &gpu.download(&out), &expected);
}

fn normal(gpu: &Gpu) {
    let out = gpu.zeros::<f32>(400);
    gpu.run(
        &gpu.module(TEXT),
        "philox_normal",
        4,
        32,
        arguments![&out, SEED, OFFSET, 100],
    );
    let mut expected = Vec::new();
    for i in 0..100 {
        for pair in numbered(OFFSET + i, 0, SEED).chunks(2) {
            let radius = (-2.0 * (f64::from((pair[0] >> 8) + 1) / 16_777_216.0).ln()).sqrt();
            let angle = 2.0 * std::f64::consts::PI * f64::from(unit(pair[1]));
            expected.extend([radius * angle.cos(), radius * angle.sin()]);
        }
    }
    near("philox_normal", &gpu.download(&out), &expected, 2e-6, 2e-6);
}

fn dropout(gpu: &Gpu) {
    let n = 333;
    let values = Draw::new(91).reals(n, -1.0, 1.0);
    let (out, kept) = (gpu.zeros::<f32>(n), gpu.zeros::<u8>(n));
    let arguments = arguments![&gpu.upload(&values), &out, &kept, 0.3f32, SEED, n as i32];
    gpu.run(&gpu.module(TEXT), "dropout", 3, 32, arguments);
    let is_kept = |i: usize| unit(numbered(i as u64 / 4, 1, SEED)[i % 4]) >= 0.3;
    let expected: Vec<u8> = (0..n).map(|i| u8::from(is_kept(i))).collect();
    same("dropout kept", &gpu.download(&kept), &expected);
    let expected: Vec<f32> = (0..n)
        .map(|i| {
            if is_kept(i) {
                values[i] / (1.0 - 0.3)
            } else {
                0.0
            }
        })
        .collect();
    same_bits("dropout", &gpu.download(&out), &expected);
}
