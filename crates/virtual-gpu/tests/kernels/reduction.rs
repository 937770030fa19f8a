//! `kernels/reduction.cu`.

use crate::compare::{near, same};
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/reduction.ptx");
const TEXT_75: &str = include_str!("../../kernels/ptx/reduction.75.ptx");

crate::kernel_tests! { row_sums column_sums total_sums last_block_is_deterministic argmax mean_variance votes redux }

fn sums(values: &[f32], columns: usize) -> Vec<f64> {
    values
        .chunks(columns)
        .map(|row| row.iter().map(|&x| f64::from(x)).sum())
        .collect()
}

fn row_sums(gpu: &Gpu) {
    for text in [TEXT, TEXT_75] {
        let module = gpu.module(text);
        let (rows, columns) = (13, 300);
        let values = Draw::new(30).reals(rows * columns, -1.0, 1.0);
        let (input, out) = (gpu.upload(&values), gpu.zeros::<f32>(rows));
        let expected = sums(&values, columns);
        gpu.run(
            &module,
            "sum_rows_warp",
            4,
            [32, 4],
            arguments![&input, &out, rows as i32, columns as i32],
        );
        near("sum_rows_warp", &gpu.download(&out), &expected, 1e-5, 1e-5);
        gpu.write(&out, &vec![0.0; rows]);
        gpu.run(
            &module,
            "sum_rows_block",
            rows,
            128,
            arguments![&input, &out, columns as i32],
        );
        near("sum_rows_block", &gpu.download(&out), &expected, 1e-5, 1e-5);
    }
}

fn column_sums(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (rows, columns) = (37, 70);
    let values = Draw::new(31).reals(rows * columns, -1.0, 1.0);
    let out = gpu.zeros::<f32>(columns);
    let arguments = arguments![&gpu.upload(&values), &out, rows as i32, columns as i32];
    gpu.run(&module, "sum_columns", 3, 32, arguments);
    let expected: Vec<f64> = (0..columns)
        .map(|c| (0..rows).map(|r| f64::from(values[r * columns + c])).sum())
        .collect();
    near("sum_columns", &gpu.download(&out), &expected, 1e-5, 1e-5);
}

fn total_sums(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let n = 3000;
    let values = Draw::new(32).reals(n, -1.0, 1.0);
    let input = gpu.upload(&values);
    let total = sums(&values, n);

    let tree = gpu.zeros::<f32>(12);
    gpu.run_with_shared(
        &module,
        "sum_tree",
        12,
        256,
        1024,
        arguments![&input, &tree, n as i32],
    );
    near(
        "sum_tree",
        &gpu.download(&tree),
        &sums(&values, 256),
        1e-5,
        1e-5,
    );

    let out = gpu.zeros::<f32>(1);
    gpu.run(
        &module,
        "sum_atomic",
        5,
        128,
        arguments![&input, &out, n as i32],
    );
    near("sum_atomic", &gpu.download(&out), &total, 1e-5, 1e-4);

    let (partial, exact) = (gpu.zeros::<f64>(6), gpu.zeros::<f64>(1));
    gpu.run(
        &module,
        "sum_partials",
        6,
        256,
        arguments![&input, &partial, n as i32],
    );
    gpu.run(
        &module,
        "sum_finish",
        1,
        32,
        arguments![&partial, &exact, 6],
    );
    near("sum_finish", &gpu.download(&exact), &total, 1e-12, 1e-12);
}

fn last_block_is_deterministic(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let n = 5000;
    let values = Draw::new(33).reals(n, -1.0, 1.0);
    let input = gpu.upload(&values);
    let (partial, arrived, out) = (
        gpu.zeros::<f32>(7),
        gpu.zeros::<u32>(1),
        gpu.zeros::<f32>(1),
    );
    let mut first = None;
    for _ in 0..3 {
        let arguments = arguments![&input, &partial, &arrived, &out, n as i32];
        gpu.run(&module, "sum_last_block", 7, 128, arguments);
        let found = gpu.download(&out);
        near("sum_last_block", &found, &sums(&values, n), 1e-5, 1e-4);
        assert_eq!(*first.get_or_insert(found[0].to_bits()), found[0].to_bits());
        same("the counter is back at zero", &gpu.download(&arrived), &[0]);
    }
}

fn argmax(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (rows, columns) = (9, 333);
    // Few distinct values, so that maxima repeat.
    let values: Vec<f32> = Draw::new(34)
        .integers(rows * columns, -50, 50)
        .into_iter()
        .map(|x| x as f32)
        .collect();
    let input = gpu.upload(&values);
    let (value, index) = (gpu.zeros::<f32>(rows), gpu.zeros::<i32>(rows));
    gpu.run(
        &module,
        "argmax_rows",
        rows,
        96,
        arguments![&input, &value, &index, columns as i32],
    );
    let first_maximum = |row: &[f32]| {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        (
            top,
            row.iter().position(|&x| x == top).expect("it is there") as i32,
        )
    };
    let (tops, places): (Vec<f32>, Vec<i32>) = values.chunks(columns).map(first_maximum).unzip();
    same("argmax_rows value", &gpu.download(&value), &tops);
    same("argmax_rows index", &gpu.download(&index), &places);

    let best = gpu.zeros::<u64>(1);
    gpu.run(
        &module,
        "argmax_atomic",
        12,
        256,
        arguments![&input, &best, values.len() as i32],
    );
    let (_, place) = first_maximum(&values);
    assert_eq!(
        !(gpu.download(&best)[0] as u32),
        place as u32,
        "argmax_atomic"
    );
}

fn mean_variance(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for columns in [1, 20, 32, 500] {
        let values = Draw::new(35).reals(4 * columns, 99.0, 101.0);
        let (mean, variance) = (gpu.zeros::<f32>(4), gpu.zeros::<f32>(4));
        let arguments = arguments![&gpu.upload(&values), &mean, &variance, columns as i32];
        gpu.run(&module, "mean_variance_rows", 4, 32, arguments);
        let means: Vec<f64> = sums(&values, columns)
            .iter()
            .map(|sum| sum / columns as f64)
            .collect();
        let variances: Vec<f64> = values
            .chunks(columns)
            .zip(&means)
            .map(|(row, mean)| {
                row.iter()
                    .map(|&x| (f64::from(x) - mean).powi(2))
                    .sum::<f64>()
                    / columns as f64
            })
            .collect();
        near("mean", &gpu.download(&mean), &means, 1e-6, 0.0);
        near("variance", &gpu.download(&variance), &variances, 1e-3, 1e-5);
    }
}

fn votes(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut values = Draw::new(36).integers(3 * 96, -5, 5);
    values[..96].fill(1);
    values[96..192].fill(-1);
    let out = gpu.zeros::<i32>(9);
    gpu.run(
        &module,
        "vote_block",
        3,
        96,
        arguments![&gpu.upload(&values), &out],
    );
    let count = values[192..].iter().filter(|&&x| x > 0).count() as i32;
    same(
        "vote_block",
        &gpu.download(&out),
        &[96, 1, 1, 0, 0, 0, count, 0, 1],
    );
}

fn redux(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let values: Vec<i32> = Draw::new(37)
        .words(128)
        .into_iter()
        .map(|word| word as i32)
        .collect();
    let out = gpu.zeros::<i32>(128 * 8);
    gpu.run(
        &module,
        "redux_half_warps",
        2,
        64,
        arguments![&gpu.upload(&values), &out],
    );
    let mut expected = Vec::new();
    for half in values.chunks(16) {
        let unsigned = || half.iter().map(|&x| x as u32);
        let row = [
            half.iter().fold(0i32, |sum, &x| sum.wrapping_add(x)),
            *half.iter().min().expect("16"),
            *half.iter().max().expect("16"),
            unsigned().min().expect("16") as i32,
            unsigned().max().expect("16") as i32,
            half.iter().fold(-1, |all, x| all & x),
            half.iter().fold(0, |any, x| any | x),
            half.iter().fold(0, |parity, x| parity ^ x),
        ];
        (0..16).for_each(|_| expected.extend(row));
    }
    same("redux_half_warps", &gpu.download(&out), &expected);
}
