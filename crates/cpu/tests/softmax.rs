//! Softmax, log-softmax and cross-entropy against their formulas in f64, and their bits for several numbers of threads.

use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::softmax::*;

const SHAPES: [(usize, usize); 6] = [(1, 1), (5, 3), (300, 10), (7, 1000), (2, 5003), (33, 64)];

fn numbers(len: usize, seed: u32) -> Vec<f64> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 22) as f32 - 2.0) as f64 * 3.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn to_f32(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

fn made<T: Real>(len: usize, fill: impl Fn(&mut [T])) -> Vec<T> {
    let results = [1, 2, 4].map(|threads| {
        set_threads(threads);
        let mut out = vec![T::default(); len];
        fill(&mut out);
        out
    });
    let bits = |out: &[T]| {
        out.iter()
            .map(|&x| x.into().to_bits())
            .collect::<Vec<u64>>()
    };
    assert!(
        results
            .iter()
            .all(|result| bits(result) == bits(&results[0]))
    );
    results.into_iter().next().unwrap()
}

fn assert_close<T: Real>(actual: &[T], expected: &[f64], tolerance: f64) {
    for (i, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let actual: f64 = actual.into();
        assert!(
            (actual - expected).abs() <= tolerance * (1.0 + expected.abs()),
            "{i}: {actual} {expected}"
        );
    }
}

fn softmax_by_formula(x: &[f64], cols: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect::<Vec<f64>>()
    };
    x.chunks(cols).flat_map(row).collect()
}

#[test]
fn forward_and_backward_follow_the_formulas() {
    for (rows, cols) in SHAPES {
        let len = rows * cols;
        let (x, g) = (numbers(len, 1), numbers(len, 2));
        let y = softmax_by_formula(&x, cols);
        let log_y: Vec<f64> = y.iter().map(|y| y.ln()).collect();
        let backward = |log: bool| -> Vec<f64> {
            let dot = |i: usize| -> f64 {
                let row = i / cols * cols..(i / cols + 1) * cols;
                row.map(|j| if log { g[j] } else { g[j] * y[j] }).sum()
            };
            (0..len)
                .map(|i| {
                    if log {
                        g[i] - y[i] * dot(i)
                    } else {
                        (g[i] - dot(i)) * y[i]
                    }
                })
                .collect()
        };
        let (x32, g32, y32, log_y32) = (to_f32(&x), to_f32(&g), to_f32(&y), to_f32(&log_y));
        assert_close(&made(len, |out| softmax(&x, cols, out)), &y, 1e-14);
        assert_close(&made(len, |out| softmax(&x32, cols, out)), &y, 1e-6);
        assert_close(&made(len, |out| log_softmax(&x, cols, out)), &log_y, 1e-14);
        assert_close(&made(len, |out| log_softmax(&x32, cols, out)), &log_y, 1e-6);
        assert_close(
            &made(len, |out| softmax_backward(&g, &y, cols, out)),
            &backward(false),
            1e-13,
        );
        assert_close(
            &made(len, |out| softmax_backward(&g32, &y32, cols, out)),
            &backward(false),
            3e-6,
        );
        assert_close(
            &made(len, |out| log_softmax_backward(&g, &log_y, cols, out)),
            &backward(true),
            1e-12,
        );
        assert_close(
            &made(len, |out| log_softmax_backward(&g32, &log_y32, cols, out)),
            &backward(true),
            1e-4,
        );
    }
}

#[test]
fn cross_entropy_follows_the_formula() {
    for (rows, cols) in SHAPES {
        let x = numbers(rows * cols, 3);
        let y = softmax_by_formula(&x, cols);
        let targets: Vec<i64> = (0..rows)
            .map(|row| {
                if row % 4 == 3 {
                    -100
                } else {
                    (row * 7 % cols) as i64
                }
            })
            .collect();
        let (mut losses, mut logsumexp) = (vec![0.0; rows], vec![0.0; rows]);
        cross_entropy(&x, cols, &targets, Some(-100), &mut losses, &mut logsumexp).unwrap();
        let scale = numbers(rows, 4);
        let grad = made(rows * cols, |out| {
            cross_entropy_backward(&x, cols, &targets, Some(-100), &logsumexp, &scale, out);
        });
        for row in 0..rows {
            let target = usize::try_from(targets[row]).ok();
            let loss = target.map_or(0.0, |target| -y[row * cols + target].ln());
            assert!((losses[row] - loss).abs() < 1e-13 * (1.0 + loss));
            for col in 0..cols {
                let one = (target == Some(col)) as u8 as f64;
                let expected = if target.is_some() {
                    (y[row * cols + col] - one) * scale[row]
                } else {
                    0.0
                };
                assert!((grad[row * cols + col] - expected).abs() < 1e-13);
            }
        }
    }
}

#[test]
fn a_target_that_is_no_class_is_an_error() {
    let (mut losses, mut logsumexp) = ([0.0; 2], [0.0; 2]);
    let error =
        cross_entropy(&[0.0_f32; 6], 3, &[1, 3], None, &mut losses, &mut logsumexp).unwrap_err();
    assert_eq!(
        error,
        TargetOutOfRange {
            row: 1,
            target: 3,
            classes: 3
        }
    );
    assert_eq!(
        error.to_string(),
        "target 3 of row 1 is out of range, expected 0 to 2"
    );
    assert!(
        cross_entropy(
            &[0.0_f32; 6],
            3,
            &[1, -1],
            None,
            &mut losses,
            &mut logsumexp
        )
        .is_err()
    );
}

#[test]
fn large_shifted_and_special_rows_do_not_overflow() {
    let mut out = [0.0_f32; 3];
    softmax(&[1000.0, 1000.0, f32::NEG_INFINITY], 3, &mut out);
    assert_eq!(out, [0.5, 0.5, 0.0]);
    log_softmax(&[-1e4, -1e4, -2e4], 3, &mut out);
    assert!((out[0] + std::f32::consts::LN_2).abs() < 1e-6 && out[2] < -9e3);
    softmax(&[1.0, f32::NAN, 0.0], 3, &mut out);
    assert!(out.iter().all(|x| x.is_nan()));
    softmax::<f32>(&[], 3, &mut []);
}
