//! `kernels/warp.cu`.

use crate::compare::same;
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/warp.ptx");

crate::kernel_tests! { votes active_lanes shuffles collatz branches locks lane_handshake early_return named_barriers
grid_rounds warp_barriers special_registers }

/// The lanes of a warp for which it holds.
fn lanes(warp: &[i32], holds: impl Fn(i32) -> bool) -> u32 {
    (0..32)
        .filter(|&lane| holds(warp[lane]))
        .fold(0, |mask, lane| mask | 1 << lane)
}

fn votes(gpu: &Gpu) {
    let mut values = Draw::new(120).integers(128, 0, 100);
    values[32..64].fill(7);
    values[70] = 5000;
    let out = gpu.zeros::<u32>(128 * 8);
    gpu.run(
        &gpu.module(TEXT),
        "votes",
        2,
        64,
        arguments![&gpu.upload(&values), &out],
    );
    let mut expected = Vec::new();
    for warp in values.chunks(32) {
        let odd = lanes(warp, |x| x & 1 == 1);
        let are_alike = warp.iter().all(|x| x / 1000 == warp[0] / 1000);
        for &x in warp {
            expected.extend([
                odd,
                u32::from(warp.iter().any(|&x| x > 90)),
                u32::from(warp.iter().all(|&x| x >= 0)),
                lanes(warp, |y| y % 5 == x % 5),
                if are_alike { u32::MAX } else { 0 },
                u32::from(are_alike),
                lanes(warp, |y| y % 3 == x % 3),
                if x & 1 == 1 {
                    odd & lanes(warp, |y| y & 2 != 0)
                } else {
                    0
                },
            ]);
        }
    }
    same("votes", &gpu.download(&out), &expected);
}

/// Lanes of a branch may in principle run apart, so that only what must hold is checked.
fn active_lanes(gpu: &Gpu) {
    let values = Draw::new(121).integers(64, 0, 100);
    let out = gpu.zeros::<u32>(128);
    gpu.run(
        &gpu.module(TEXT),
        "active_lanes",
        1,
        64,
        arguments![&gpu.upload(&values), &out],
    );
    for (i, pair) in gpu.download(&out).chunks(2).enumerate() {
        let (mask, lane) = (pair[0], i as u32 % 32);
        let together = lanes(&values[i / 32 * 32..][..32], |x| x % 3 == 0);
        if values[i] % 3 == 0 {
            assert!(
                mask & !together == 0 && mask >> lane & 1 == 1,
                "lane {i}: {mask:#x} of {together:#x}"
            );
        } else {
            assert_eq!(mask, 0, "lane {i}");
        }
        assert_eq!(
            pair[1],
            (mask & ((1 << lane) - 1)).count_ones() | 1 << 8,
            "lane {i}"
        );
    }
}

fn shuffles(gpu: &Gpu) {
    let values = Draw::new(122).integers(64, -1000, 1000);
    let out = gpu.zeros::<u64>(64 * 5);
    gpu.run(
        &gpu.module(TEXT),
        "shuffles",
        1,
        64,
        arguments![&gpu.upload(&values), &out],
    );
    let mut expected = Vec::new();
    for t in 0..64usize {
        let (lane, warp) = (t % 32, &values[t / 32 * 32..][..32]);
        let word = |from: usize| u64::from(warp[from] as u32);
        let from = lane / 16 * 16 + 9;
        // A thread's number is that of its block, so lane 9 of the second warp holds 41.
        let wide = (i64::from(warp[from]) as u64) << 32 | (t / 32 * 32 + from) as u64;
        expected.extend([
            word((t * 7 + 3) % 32),
            word(if lane % 8 >= 3 { lane - 3 } else { lane }),
            word(if lane % 8 + 2 < 8 { lane + 2 } else { lane }),
            word(lane ^ 5),
            wide,
        ]);
    }
    same("shuffles", &gpu.download(&out), &expected);
}

fn collatz(gpu: &Gpu) {
    let values: Vec<u32> = Draw::new(123)
        .integers(200, 1, 100_000)
        .into_iter()
        .map(|x| x as u32)
        .collect();
    let out = gpu.zeros::<i32>(200);
    gpu.run(
        &gpu.module(TEXT),
        "collatz",
        2,
        128,
        arguments![&gpu.upload(&values), &out, 200],
    );
    let steps = |&start: &u32| {
        let (mut x, mut steps) = (u64::from(start), 0);
        while x != 1 && steps < 1000 {
            x = if x % 2 == 1 { 3 * x + 1 } else { x / 2 };
            steps += 1;
        }
        steps
    };
    let expected: Vec<i32> = values.iter().map(steps).collect();
    same("collatz", &gpu.download(&out), &expected);
}

fn branch(x: i32) -> i32 {
    let mut sum = 0i32;
    for k in 0..20 {
        if (x + k) % 7 == 3 {
            continue;
        }
        match (x ^ k) & 7 {
            0 => sum += k,
            1 => sum -= x,
            2 => (0..x & 3).for_each(|j| sum += j * k),
            3 => sum ^= 0x55,
            4 => sum = sum * 3 + 1,
            5 if sum > 1000 => return sum,
            5 => {}
            _ => sum += 2,
        }
        if sum < -500 {
            break;
        }
    }
    sum
}

fn branches(gpu: &Gpu) {
    let values = Draw::new(124).integers(300, -300, 300);
    let out = gpu.zeros::<i32>(300);
    gpu.run(
        &gpu.module(TEXT),
        "branches",
        3,
        128,
        arguments![&gpu.upload(&values), &out, 300],
    );
    let expected: Vec<i32> = values.into_iter().map(branch).collect();
    same("branches", &gpu.download(&out), &expected);
}

fn locks(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for kernel in ["spin_lock", "spin_lock_inside"] {
        let (lock, counter) = (gpu.zeros::<i32>(1), gpu.zeros::<i32>(1));
        gpu.run(&module, kernel, 3, 64, arguments![&lock, &counter]);
        same(kernel, &gpu.download(&counter), &[192]);
    }
}

fn lane_handshake(gpu: &Gpu) {
    let (flags, out) = (gpu.zeros::<i32>(5), gpu.zeros::<i32>(5));
    gpu.run(
        &gpu.module(TEXT),
        "lane_handshake",
        5,
        32,
        arguments![&flags, &out],
    );
    same("lane_handshake", &gpu.download(&out), &[42, 44, 46, 48, 50]);
}

fn early_return(gpu: &Gpu) {
    for n in [1usize, 50, 128, 200] {
        let values = Draw::new(125).integers(3 * n, -99, 99);
        let out = gpu.zeros::<i32>(3 * n);
        gpu.run(
            &gpu.module(TEXT),
            "early_return",
            3,
            256,
            arguments![&gpu.upload(&values), &out, n as i32],
        );
        let expected: Vec<i32> = values
            .chunks(n)
            .flat_map(|row| row.iter().rev().copied().collect::<Vec<_>>())
            .collect();
        same("early_return", &gpu.download(&out), &expected);
    }
}

fn named_barriers(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let values = Draw::new(126).integers(6 * 64, -999, 999);
    let out = gpu.zeros::<i32>(6 * 64);
    gpu.run(
        &module,
        "producer_consumer",
        1,
        128,
        arguments![&gpu.upload(&values), &out, 6],
    );
    let expected: Vec<i32> = values
        .chunks(64)
        .flat_map(|row| row.iter().rev().map(|x| x * 3 + 1).collect::<Vec<_>>())
        .collect();
    same("producer_consumer", &gpu.download(&out), &expected);

    let mut values = Draw::new(127).integers(128, -5, 5);
    values[..64].fill(2);
    let out = gpu.zeros::<i32>(128);
    gpu.run(
        &module,
        "named_reductions",
        1,
        128,
        arguments![&gpu.upload(&values), &out],
    );
    let mut expected = Vec::new();
    for half in values.chunks(64) {
        let count = half.iter().filter(|&&x| x > 0).count() as i32;
        expected.extend([count | i32::from(count > 0) << 8 | i32::from(count == 64) << 9; 64]);
    }
    same("named_reductions", &gpu.download(&out), &expected);
}

fn grid_rounds(gpu: &Gpu) {
    let (blocks, threads, rounds) = (4usize, 64usize, 5);
    let n = blocks * threads;
    let mut values = Draw::new(128).integers(n, 0, 100);
    let (device, arrived) = (gpu.upload(&values), gpu.zeros::<u32>(1));
    let arguments = arguments![&device, &arrived, rounds];
    gpu.run_cooperative(
        &gpu.module(TEXT),
        "grid_rounds",
        blocks as u32,
        threads as u32,
        arguments,
    );
    for _ in 0..rounds {
        values = (0..n)
            .map(|i| values[(i + 1) % n].wrapping_add(values[(i + threads) % n]))
            .collect();
    }
    same("grid_rounds", &gpu.download(&device), &values);
}

fn warp_barriers(gpu: &Gpu) {
    let out = gpu.zeros::<i32>(32);
    gpu.run(&gpu.module(TEXT), "warp_barriers", 1, 32, arguments![&out]);
    let low = (0..12).map(|lane| (11 - (lane + 1) % 12) * 10);
    let high = (12..32).map(|lane| (43 - if lane == 31 { 12 } else { lane + 1 }) * 100);
    let expected: Vec<i32> = low.chain(high).collect();
    same("warp_barriers", &gpu.download(&out), &expected);
}

fn special_registers(gpu: &Gpu) {
    let (grid, block) = ([3u32, 2, 2], [5u32, 4, 3]);
    let out = gpu.zeros::<u32>(12 * 60 * 16);
    gpu.run_with_shared(
        &gpu.module(TEXT),
        "special_registers",
        grid,
        block,
        512,
        arguments![&out],
    );
    let place = |at: u32, size: [u32; 3]| {
        [
            at % size[0],
            at / size[0] % size[1],
            at / (size[0] * size[1]),
        ]
    };
    let mut expected = Vec::new();
    for b in 0..12 {
        for t in 0..60 {
            expected.extend([place(t, block), place(b, grid), block, grid].concat());
            expected.extend([t % 32, t / 32, 32 | 512 << 8, 1]);
        }
    }
    same("special_registers", &gpu.download(&out), &expected);
}
