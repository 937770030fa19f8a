//! Attention against its formula in f64, and its bits for several numbers of threads.

use fireclay_cpu::attention::*;
use fireclay_cpu::gemm::Float;
use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::softmax::Real;

/// Numbers from -2 to 2.
fn numbers(len: usize, seed: u32) -> Vec<f64> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((state >> 8) as f32 / (1 << 22) as f32 - 2.0)
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[derive(Clone, Copy, Debug)]
enum Masked {
    No,
    Keep,
    Add,
}

/// A problem, its operands contiguous, in f64.
struct Case {
    sizes: Sizes,
    causal: bool,
    masked: Masked,
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    mask: Vec<f64>,
    grad: Vec<f64>,
}

impl Case {
    fn new(
        [batch, kv_heads, group, queries, keys, width, value_width]: [usize; 7],
        causal: bool,
        masked: Masked,
    ) -> Case {
        let heads = kv_heads * group;
        let sizes = Sizes {
            batch,
            heads,
            kv_heads,
            queries,
            keys,
            width,
            value_width,
        };
        let mut mask = numbers(batch * queries * keys, 4);
        if let Masked::Keep = masked {
            // A third is hidden, and all of the first query.
            let all = mask.iter_mut().enumerate();
            all.for_each(|(place, mask)| *mask = f64::from(place >= keys && *mask > -0.7));
        }
        Case {
            sizes,
            causal,
            masked,
            query: numbers(batch * heads * queries * width, 1),
            key: numbers(batch * kv_heads * keys * width, 2),
            value: numbers(batch * kv_heads * keys * value_width, 3),
            mask,
            grad: numbers(batch * heads * queries * value_width, 5),
        }
    }

    /// Result and gradients of queries, keys and values, by the formula.
    fn expected(&self) -> [Vec<f64>; 4] {
        let Sizes {
            batch,
            heads,
            kv_heads,
            queries,
            keys,
            width,
            value_width,
        } = self.sizes;
        let mut results = [
            vec![0.0; batch * heads * queries * value_width],
            vec![0.0; self.query.len()],
            vec![0.0; self.key.len()],
            vec![0.0; self.value.len()],
        ];
        for row in 0..batch * heads * queries {
            let (head, query) = (row / queries, row % queries);
            let kv_head = head / heads * kv_heads + head % heads / (heads / kv_heads);
            let key_at = |key: usize| (kv_head * keys + key) * width;
            let value_at = |key: usize| (kv_head * keys + key) * value_width;
            let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            let q = &self.query[row * width..][..width];
            let scores: Vec<f64> = (0..keys)
                .map(|key| {
                    let score = 0.3 * dot(q, &self.key[key_at(key)..][..width]);
                    let mask = self.mask[(head / heads * queries + query) * keys + key];
                    match self.masked {
                        _ if self.causal && key > query => f64::NEG_INFINITY,
                        Masked::Keep if mask == 0.0 => f64::NEG_INFINITY,
                        Masked::Add => score + mask,
                        _ => score,
                    }
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            let weights: Vec<f64> = scores
                .iter()
                .map(|score| (score - max).exp() / sum)
                .collect();
            let grad = &self.grad[row * value_width..][..value_width];
            let slopes: Vec<f64> = (0..keys)
                .map(|key| dot(grad, &self.value[value_at(key)..][..value_width]))
                .collect();
            let average = dot(&weights, &slopes);
            for key in 0..keys {
                let slope = 0.3 * weights[key] * (slopes[key] - average);
                for e in 0..value_width {
                    results[0][row * value_width + e] +=
                        weights[key] * self.value[value_at(key) + e];
                    results[3][value_at(key) + e] += weights[key] * grad[e];
                }
                for e in 0..width {
                    results[1][row * width + e] += slope * self.key[key_at(key) + e];
                    results[2][key_at(key) + e] += slope * q[e];
                }
            }
        }
        results
    }

    fn computed<T: Real + Float>(&self) -> [Vec<T>; 4] {
        let cast =
            |numbers: &[f64]| -> Vec<T> { numbers.iter().map(|&x| T::from_f64(x)).collect() };
        let sizes = self.sizes;
        let (query, key, value) = (cast(&self.query), cast(&self.key), cast(&self.value));
        let (mask, grad) = (cast(&self.mask), cast(&self.grad));
        let bytes: Vec<u8> = self
            .mask
            .iter()
            .map(|&mask| u8::from(mask != 0.0))
            .collect();
        let strides = [sizes.queries * sizes.keys, 0, sizes.keys, 1];
        let problem = Attention {
            sizes,
            query: Rows::contiguous(&query, sizes.heads, sizes.queries, sizes.width),
            key: Rows::contiguous(&key, sizes.kv_heads, sizes.keys, sizes.width),
            value: Rows::contiguous(&value, sizes.kv_heads, sizes.keys, sizes.value_width),
            mask: match self.masked {
                Masked::No => Mask::None,
                Masked::Keep => Mask::Keep(&bytes, strides),
                Masked::Add => Mask::Add(&mask, strides),
            },
            causal: self.causal,
            scale: T::from_f64(0.3),
        };
        let rows = sizes.batch * sizes.heads * sizes.queries;
        let mut out = vec![T::ZERO; grad.len()];
        let mut log_sums = vec![T::ZERO; rows];
        attention(&problem, &mut out, &mut log_sums).unwrap();
        let known = Known {
            out: Rows::contiguous(&out, sizes.heads, sizes.queries, sizes.value_width),
            grad: Rows::contiguous(&grad, sizes.heads, sizes.queries, sizes.value_width),
            log_sums: &log_sums,
        };
        let [mut a, mut b, mut c] = [&query, &key, &value].map(|x| vec![T::ZERO; x.len()]);
        attention_backward(&problem, &known, [&mut a, &mut b, &mut c]).unwrap();
        [out, a, b, c]
    }

    fn check<T: Real + Float>(&self, tolerance: f64) {
        let results = [1, 3].map(|threads| {
            set_threads(threads);
            self.computed::<T>()
        });
        let expected = self.expected();
        for (what, (results, expected)) in results[0]
            .iter()
            .zip(&results[1])
            .zip(&expected)
            .enumerate()
        {
            for (place, ((&one, &other), &expected)) in
                results.0.iter().zip(results.1).zip(expected).enumerate()
            {
                let (one, other) = (Float::to_f64(one), Float::to_f64(other));
                assert_eq!(one.to_bits(), other.to_bits(), "threads change the bits");
                assert!(
                    (one - expected).abs() <= tolerance * (1.0 + expected.abs()),
                    "{:?} causal {} {:?}: result {what} at {place}: {one} but {expected}",
                    self.sizes,
                    self.causal,
                    self.masked
                );
            }
        }
    }
}

#[test]
fn forward_and_backward_follow_the_formulas() {
    let shapes = [
        [1, 1, 1, 1, 1, 1, 1],
        [2, 1, 3, 5, 7, 3, 2],
        [1, 2, 1, 64, 64, 16, 16],
        [1, 1, 2, 50, 130, 20, 37],
        [1, 1, 1, 100, 65, 64, 64],
        [1, 1, 1, 3, 200, 7, 70],
        [1, 2, 2, 49, 1, 5, 0],
        [1, 1, 1, 17, 33, 0, 9],
        [1, 1, 1, 3, 0, 4, 4],
        [1, 1, 1, 0, 3, 4, 4],
        [0, 2, 1, 3, 3, 4, 4],
    ];
    for shape in shapes {
        for causal in [false, true] {
            for masked in [Masked::No, Masked::Keep, Masked::Add] {
                let case = Case::new(shape, causal, masked);
                case.check::<f64>(1e-12);
                case.check::<f32>(1e-4);
            }
        }
    }
}

/// A query that sees nothing gives 0, and so does its gradient.
#[test]
fn a_masked_row_is_zero() {
    let case = Case::new([1, 1, 1, 4, 70, 3, 5], false, Masked::Keep);
    let [out, query, _, _] = case.computed::<f32>();
    assert!(out[..5].iter().chain(&query[..3]).all(|&x| x == 0.0));
    assert!(out[5..].iter().all(|&x| x != 0.0));
}

/// Large scores neither overflow nor lose the row.
#[test]
fn large_scores_are_fine() {
    let mut case = Case::new([1, 1, 1, 3, 130, 4, 2], false, Masked::No);
    case.query.iter_mut().for_each(|x| *x *= 1e4);
    case.check::<f64>(1e-9);
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    set_threads(2);
    for (batch, heads, length, width, causal) in [
        (32, 4, 256, 64, true),
        (32, 4, 256, 64, false),
        (8, 8, 1024, 64, true),
    ] {
        let sizes = Sizes {
            batch,
            heads,
            kv_heads: heads,
            queries: length,
            keys: length,
            width,
            value_width: width,
        };
        let len = batch * heads * length * width;
        let data: Vec<Vec<f32>> = (0..4)
            .map(|seed| numbers(len, seed).iter().map(|&x| x as f32).collect())
            .collect();
        fn rows(data: &[f32], [heads, length, width]: [usize; 3]) -> Rows<'_, f32> {
            Rows::contiguous(data, heads, length, width)
        }
        let shape = [heads, length, width];
        let problem = Attention {
            sizes,
            query: rows(&data[0], shape),
            key: rows(&data[1], shape),
            value: rows(&data[2], shape),
            mask: Mask::None,
            causal,
            scale: 0.125,
        };
        let mut out = vec![0.0f32; len];
        let mut log_sums = vec![0.0f32; len / width];
        let mut grads = [(); 3].map(|()| vec![0.0f32; len]);
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            let start = std::time::Instant::now();
            attention(&problem, &mut out, &mut log_sums).unwrap();
            forward.push(start.elapsed().as_secs_f64() * 1e3);
            let known = Known {
                out: rows(&out, shape),
                grad: rows(&data[3], shape),
                log_sums: &log_sums,
            };
            let [a, b, c] = &mut grads;
            let start = std::time::Instant::now();
            attention_backward(&problem, &known, [a, b, c]).unwrap();
            backward.push(start.elapsed().as_secs_f64() * 1e3);
        }
        for times in [&mut forward, &mut backward] {
            times.sort_by(f64::total_cmp);
        }
        println!(
            "{batch} {heads} {length} {width} causal {causal}: forward min {:.2} median {:.2} ms, backward min {:.2} median {:.2} ms",
            forward[0], forward[7], backward[0], backward[7]
        );
    }
}
