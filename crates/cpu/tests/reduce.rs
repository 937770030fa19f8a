//! Reductions against plain loops in f64, and their bits for several numbers of threads.

use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::reduce::*;

const VIEWS: [View; 14] = [
    view(1, 1, 1),
    view(1, 63, 1),
    view(1, 65, 1),
    view(3, 4097, 1),
    view(2, 100_003, 1),
    view(1000, 10, 1),
    view(1, 7, 3),
    view(2, 1001, 3),
    view(1, 70_001, 2),
    view(3, 5, 64),
    view(1, 300, 777),
    view(2, 130, 1500),
    view(40, 2, 33),
    view(1, 64, 65),
];

const fn view(outer: usize, reduce: usize, inner: usize) -> View {
    View {
        outer,
        reduce,
        inner,
    }
}

/// Numbers from -1 to 1 that repeat late.
fn numbers(len: usize) -> Vec<f32> {
    let mut state = 12345_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The elements of each result, in order.
fn groups<T: Copy>(input: &[T], view: View) -> Vec<Vec<T>> {
    let result = |i: usize| (i / view.inner * view.reduce * view.inner) + i % view.inner;
    (0..view.results())
        .map(|i| {
            (0..view.reduce)
                .map(|k| input[result(i) + k * view.inner])
                .collect()
        })
        .collect()
}

fn reduced<T: Element, R: Reduction<T>>(operation: R, input: &[T], view: View) -> Vec<T> {
    let mut out = vec![T::default(); view.results()];
    reduce(operation, input, view, &mut out);
    out
}

#[test]
fn float_sums_are_near_exact_and_equal_for_any_number_of_threads() {
    for view in VIEWS {
        let input = numbers(view.numel());
        let mut results = Vec::new();
        for threads in [1, 2, 5] {
            set_threads(threads);
            results.push((
                reduced(Sum, &input[..], view),
                reduced(SumSquares, &input[..], view),
            ));
        }
        assert!(
            results.iter().all(|result| *result == results[0]),
            "{view:?}"
        );
        for ((group, &sum), &squares) in groups(&input, view)
            .iter()
            .zip(&results[0].0)
            .zip(&results[0].1)
        {
            let exact: f64 = group.iter().map(|&x| x as f64).sum();
            let magnitude: f64 = group.iter().map(|&x| x.abs() as f64).sum();
            let bound = f32::EPSILON as f64 * 8.0 * magnitude;
            assert!(
                (sum as f64 - exact).abs() <= bound,
                "{view:?}: {sum} {exact}"
            );
            let exact: f64 = group.iter().map(|&x| x as f64 * x as f64).sum();
            assert!((squares as f64 - exact).abs() <= f32::EPSILON as f64 * 8.0 * exact);
        }
    }
}

#[test]
fn tiles_give_the_bits_of_a_slice() {
    for view in VIEWS {
        let input = numbers(view.numel());
        let mut out = vec![0.0; view.results()];
        let tiles = Tiles(|start: usize, tile: &mut [f32]| {
            tile.copy_from_slice(&input[start..start + tile.len()])
        });
        reduce(Sum, &tiles, view, &mut out);
        assert_eq!(out, reduced(Sum, &input[..], view));
    }
}

#[test]
fn moments_are_those_of_two_passes() {
    for view in VIEWS {
        let input: Vec<f32> = numbers(view.numel()).iter().map(|x| x + 1000.0).collect();
        let (mut mean, mut deviations) = (vec![0.0; view.results()], vec![0.0; view.results()]);
        moments(&input[..], view, &mut mean, &mut deviations);
        for (i, group) in groups(&input, view).iter().enumerate() {
            let exact = group.iter().map(|&x| x as f64).sum::<f64>() / group.len() as f64;
            assert!((mean[i] as f64 - exact).abs() < 3e-4);
            let exact: f64 = group.iter().map(|&x| (x as f64 - exact).powi(2)).sum();
            assert!(
                (deviations[i] as f64 - exact).abs() <= 1e-5 * exact + 1e-6 * group.len() as f64,
                "{view:?}"
            );
        }
    }
}

#[test]
fn whole_numbers_and_bools_are_exact() {
    for view in VIEWS {
        let input: Vec<i64> = numbers(view.numel())
            .iter()
            .map(|x| (x * 1000.0) as i64)
            .collect();
        let groups = groups(&input, view);
        let expect = |reduce: fn(&Vec<i64>) -> i64| groups.iter().map(reduce).collect::<Vec<i64>>();
        assert_eq!(
            reduced(Sum, &input[..], view),
            expect(|group| group.iter().sum())
        );
        assert_eq!(
            reduced(Max, &input[..], view),
            expect(|group| *group.iter().max().unwrap())
        );
        assert_eq!(
            reduced(Min, &input[..], view),
            expect(|group| *group.iter().min().unwrap())
        );
        assert_eq!(
            reduced(Prod, &input[..], view),
            expect(|group| group
                .iter()
                .fold(1, |product: i64, &x| product.wrapping_mul(x)))
        );
        let bools: Vec<u8> = input.iter().map(|&x| (x > 900) as u8).collect();
        let any = reduced(Any, &bools[..], view);
        let all = reduced(All, &bools[..], view);
        for (i, group) in groups.iter().enumerate() {
            assert_eq!(any[i], group.iter().any(|&x| x > 900) as u8);
            assert_eq!(all[i], group.iter().all(|&x| x > 900) as u8);
        }
    }
}

#[test]
fn extrema_are_the_first_and_nan_wins() {
    for view in VIEWS {
        for with_nan in [false, true] {
            // Rounded, so that there are equal elements.
            let mut input: Vec<f32> = numbers(view.numel())
                .iter()
                .map(|x| (x * 50.0).round())
                .collect();
            if with_nan {
                let len = input.len();
                input[len / 2] = f32::NAN;
                input[len * 3 / 4] = f32::NAN;
            }
            let (mut largest, mut smallest) = (vec![0; view.results()], vec![0; view.results()]);
            argmax(&input, view, &mut largest);
            argmin(&input, view, &mut smallest);
            let max = reduced(Max, &input[..], view);
            for (i, group) in groups(&input, view).iter().enumerate() {
                let first = |better: fn(f32, f32) -> bool| {
                    let nan = group.iter().position(|x| x.is_nan());
                    nan.unwrap_or_else(|| {
                        (1..group.len()).fold(0, |best, k| {
                            if better(group[k], group[best]) {
                                k
                            } else {
                                best
                            }
                        })
                    })
                };
                let expected = first(|x, best| x > best);
                assert_eq!(largest[i] as usize, expected, "{view:?}");
                assert_eq!(smallest[i] as usize, first(|x, best| x < best), "{view:?}");
                assert_eq!(
                    max[i].to_bits() & 0x7fc0_0000,
                    group[expected].to_bits() & 0x7fc0_0000
                );
                assert!(max[i] == group[expected] || (max[i].is_nan() && group[expected].is_nan()));
            }
        }
    }
}

#[test]
fn nothing_gives_the_identity() {
    assert_eq!(reduced(Sum, &[] as &[f32], view(3, 0, 1)), [0.0; 3]);
    assert_eq!(reduced(Prod, &[] as &[f64], view(1, 0, 2)), [1.0; 2]);
    assert_eq!(reduced(Sum, &[] as &[f32], view(0, 5, 1)), []);
}
