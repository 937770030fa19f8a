//! Inputs at the edge, as PyTorch 2.13 answers them, on the host and the virtual GPU: ignored targets, zeros in running products,
//! empty batches, empty vectors in `cat`, sources larger than their indices. The expected numbers were computed by PyTorch on the
//! CPU in f64.

use fireclay_tensor::Reduction::{self, Mean, None, Sum};
use fireclay_tensor::{Backpropagation, BatchNorm, CrossEntropy, DType, Device, Tensor, grad_with};
use fireclay_testing::compare::same_bits;
use fireclay_testing::devices::virtual_cuda;

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn devices() -> [Device; 2] {
    [Device::Cpu, virtual_cuda()]
}

fn leaf(numbers: &[f64], shape: &[usize], device: Device) -> Tensor {
    let tensor = Tensor::from_slice(numbers, shape, device).unwrap();
    tensor.requires_grad_(true).unwrap()
}

#[track_caller]
fn near(what: &str, got: &Tensor, want: &[f64]) {
    let got = got.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let same = |(got, want): (&f64, &f64)| {
        got == want
            || got.is_nan() && want.is_nan()
            || (got - want).abs() <= 1e-5 * want.abs().max(1.0)
    };
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(same),
        "{what}: {got:?} instead of {want:?}"
    );
}

/// The gradient of the sum of `of`; zeros where it doesn't depend on x.
fn gradient(of: &Tensor, x: &Tensor, create_graph: bool) -> Tensor {
    if !of.requires_grad() {
        return x.detach().zeros_like().unwrap();
    }
    let options = Backpropagation {
        create_graph,
        retain_graph: true,
        allow_unused: true,
    };
    let grads = grad_with(&[&of.sum_all().unwrap()], &[Option::None], &[x], options).unwrap();
    let grad = grads.into_iter().next().flatten();
    grad.unwrap_or_else(|| x.detach().zeros_like().unwrap())
}

/// Kind, reduction, loss, gradient, and the gradient of that one's sum weighted by [`FACTORS`]. Logits [[-inf, 1, 2], [0.5, 1, 2]],
/// targets [0, 2] of which 0 is ignored; weights [0.5, 2, 3], smoothing 0.1.
type Loss = (&'static str, Reduction, &'static [f64], [f64; 6], [f64; 6]);

const FACTORS: [f64; 6] = [1.0, 2.0, 4.0, 3.0, 5.0, 9.0];

#[rustfmt::skip]
const LOSSES: [Loss; 18] = [
    ("plain", None, &[0.0, 0.464369], [0.0, 0.0, 0.0, 0.140244, 0.231224, -0.371468], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("plain", Mean, &[0.464369], [0.0, 0.0, 0.0, 0.140244, 0.231224, -0.371468], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("plain", Sum, &[0.464369], [0.0, 0.0, 0.0, 0.140244, 0.231224, -0.371468], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("weight", None, &[0.0, 1.393106], [0.0, 0.0, 0.0, 0.420733, 0.693672, -1.114405], [0.0, 0.0, 0.0, -1.781232, -1.549412, 3.330643]),
    ("weight", Mean, &[0.464369], [0.0, 0.0, 0.0, 0.140244, 0.231224, -0.371468], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("weight", Sum, &[1.393106], [0.0, 0.0, 0.0, 0.420733, 0.693672, -1.114405], [0.0, 0.0, 0.0, -1.781232, -1.549412, 3.330643]),
    ("smooth", None, &[0.0, 0.547702], [0.0, 0.0, 0.0, 0.106911, 0.197891, -0.304802], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("smooth", Mean, &[0.547702], [0.0, 0.0, 0.0, 0.106911, 0.197891, -0.304802], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("smooth", Sum, &[0.547702], [0.0, 0.0, 0.0, 0.106911, 0.197891, -0.304802], [0.0, 0.0, 0.0, -0.593744, -0.516471, 1.110214]),
    ("both", None, &[0.0, 1.430597], [0.0, 0.0, 0.0, 0.387705, 0.600029, -0.987734], [0.0, 0.0, 0.0, -1.711962, -1.489157, 3.201118]),
    ("both", Mean, &[0.476866], [0.0, 0.0, 0.0, 0.129235, 0.20001, -0.329245], [0.0, 0.0, 0.0, -0.570654, -0.496386, 1.067039]),
    ("both", Sum, &[1.430597], [0.0, 0.0, 0.0, 0.387705, 0.600029, -0.987734], [0.0, 0.0, 0.0, -1.711962, -1.489157, 3.201118]),
    ("nll", None, &[0.0, -2.0], [0.0, 0.0, 0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("nll", Mean, &[-2.0], [0.0, 0.0, 0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("nll", Sum, &[-2.0], [0.0, 0.0, 0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("nll_weight", None, &[0.0, -6.0], [0.0, 0.0, 0.0, 0.0, 0.0, -3.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("nll_weight", Mean, &[-2.0], [0.0, 0.0, 0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ("nll_weight", Sum, &[-6.0], [0.0, 0.0, 0.0, 0.0, 0.0, -3.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
];

fn loss_of(kind: &str, logits: &Tensor, targets: &Tensor, reduction: Reduction) -> Tensor {
    let weight = Tensor::from_slice(&[0.5, 2.0, 3.0], &[3], logits.device()).unwrap();
    let weight = weight.to_dtype(logits.dtype()).unwrap();
    let options = CrossEntropy {
        weight: ["weight", "both", "nll_weight"]
            .contains(&kind)
            .then_some(&weight),
        ignore_index: 0,
        label_smoothing: if ["smooth", "both"].contains(&kind) {
            0.1
        } else {
            0.0
        },
        reduction,
    };
    match kind.starts_with("nll") {
        true => logits.nll_loss(targets, options).unwrap(),
        false => logits.cross_entropy(targets, options).unwrap(),
    }
}

#[test]
fn an_ignored_row_counts_for_nothing_whatever_it_holds() {
    for device in devices() {
        for dtype in [DType::F32, DType::F64] {
            for (kind, reduction, loss, first, second) in LOSSES {
                for ignored in [[-INF, 1.0, 2.0], [1.0, 0.5, 2.0]] {
                    let x = [&ignored[..], &[0.5, 1.0, 2.0]].concat();
                    let x = Tensor::from_slice(&x, &[2, 3], device).unwrap();
                    let x = x.to_dtype(dtype).unwrap().requires_grad_(true).unwrap();
                    let targets = Tensor::from_slice(&[0i64, 2], &[2], device).unwrap();
                    let got = loss_of(kind, &x, &targets, reduction);
                    let what = format!("{kind}, {reduction:?}, {dtype}, {device}");
                    near(&what, &got, loss);
                    near(&what, &gradient(&got, &x, false), &first);
                    let graph = gradient(&got, &x, true);
                    near(&format!("{what}, with a graph"), &graph, &first);
                    let factors = Tensor::from_slice(&FACTORS, &[2, 3], device).unwrap();
                    let weighted = graph.mul(&factors.to_dtype(dtype).unwrap()).unwrap();
                    let again = gradient(&weighted.sum_all().unwrap(), &x, false);
                    near(&format!("{what}, twice"), &again, &second);
                }
            }
        }
    }
}

#[test]
fn where_every_row_is_ignored_gradients_are_zero() {
    for device in devices() {
        for (kind, reduction, ..) in LOSSES {
            let x = leaf(&[1.0, 0.5, 2.0, 0.5, 1.0, 2.0], &[2, 3], device);
            let targets = Tensor::from_slice(&[0i64, 0], &[2], device).unwrap();
            let got = loss_of(kind, &x, &targets, reduction);
            let what = format!("{kind}, {reduction:?}, {device}");
            let loss: &[f64] = match reduction {
                None => &[0.0, 0.0],
                Mean => &[NAN],
                Sum => &[0.0],
            };
            near(&what, &got, loss);
            near(&what, &gradient(&got, &x, false), &[0.0; 6]);
            let graph = gradient(&got, &x, true);
            near(&format!("{what}, with a graph"), &graph, &[0.0; 6]);
            let again = gradient(&graph.sum_all().unwrap(), &x, false);
            near(&format!("{what}, twice"), &again, &[0.0; 6]);
        }
    }
}

#[test]
fn running_products_of_zeros_have_gradients_of_every_order() {
    let x = [1.0, 0.0, 2.0, 3.0, 0.0, 0.0, 2.0, 1.0, 2.0, -1.0, 0.5, 4.0];
    let weights = [1.0, 2.0, 4.0, 0.5, 3.0, 5.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0];
    let factors = [1.0, 2.0, 4.0, 3.0, 3.0, 5.0, 9.0, 1.0, -1.0, 1.0, 2.0, 3.0];
    let wanted = [
        (
            [1.0, 2.0, 8.0, 14.5, 5.0, 0.0, 4.0, 42.0, 0.0, 0.0, 8.0, 9.0],
            [
                15.0, 20.0, 26.0, 23.0, 4.0, 8.0, 16.0, 69.0, 3.0, 0.0, 52.0, 18.0,
            ],
        ),
        (
            [
                1.0, 13.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, -7.0, 16.0, -28.0, -3.0,
            ],
            [
                26.0, 38.0, 11.0, 2.0, 55.0, 33.0, 0.0, 0.0, -24.5, 57.0, 24.0, -7.5,
            ],
        ),
    ];
    for device in devices() {
        for dtype in [DType::F64, DType::F32, DType::BF16] {
            for (dim, (first, second)) in wanted.iter().enumerate() {
                let of = |numbers: &[f64]| {
                    let tensor = Tensor::from_slice(numbers, &[3, 4], device).unwrap();
                    tensor.to_dtype(dtype).unwrap()
                };
                let x = of(&x).requires_grad_(true).unwrap();
                let y = x.cumprod(dim as isize).unwrap();
                let y = y.mul(&of(&weights)).unwrap().sum_all().unwrap();
                let what = format!("dim {dim}, {dtype}, {device}");
                near(&what, &gradient(&y, &x, false), first);
                let graph = gradient(&y, &x, true);
                near(&format!("{what}, with a graph"), &graph, first);
                let weighted = graph.mul(&of(&factors)).unwrap().sum_all().unwrap();
                near(
                    &format!("{what}, twice"),
                    &gradient(&weighted, &x, false),
                    second,
                );
            }
        }
    }
}

/// The gradient of running products is what the definition gives also where rows have many chunks, and where
/// products of all elements would leave the range of the dtype.
#[test]
fn gradients_of_long_running_products() {
    for device in devices() {
        for cols in [3, 8, 9, 513, 1024, 1025, 3000] {
            for scale in [1.0, 1e30] {
                // Large and small ones take turns, so that products stay in range.
                let x: Vec<f64> = (0..2 * cols)
                    .map(|at| {
                        let x = 1.0 + ((at * 37 % 101) as f64 - 50.0) / 700.0;
                        if at % cols % 2 == 0 {
                            x * scale
                        } else {
                            x / scale
                        }
                    })
                    .collect();
                let g: Vec<f64> = (0..2 * cols)
                    .map(|at| ((at * 29 % 53) as f64 - 26.0) / 26.0 / scale)
                    .collect();
                let mut wanted = vec![0.0; 2 * cols];
                for row in 0..2 {
                    let at = row * cols;
                    let (mut before, mut sum) = (1.0, 0.0);
                    for i in at..at + cols {
                        wanted[i] = before;
                        before *= x[i];
                    }
                    for i in (at..at + cols).rev() {
                        sum = g[i]
                            + if i + 1 < at + cols {
                                x[i + 1] * sum
                            } else {
                                0.0
                            };
                        wanted[i] *= sum;
                    }
                }
                let most = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                let x = leaf(&x, &[2, cols], device);
                let g = Tensor::from_slice(&g, &[2, cols], device).unwrap();
                let of = |dtype: DType| {
                    let (x, g) = (x.to_dtype(dtype).unwrap(), g.to_dtype(dtype).unwrap());
                    let x = x.detach().requires_grad_(true).unwrap();
                    let y = x.cumprod(-1).unwrap().mul(&g).unwrap();
                    let grad = gradient(&y.sum_all().unwrap(), &x, false);
                    grad.to_dtype(DType::F64).unwrap().div(most).unwrap()
                };
                let wanted: Vec<f64> = wanted.iter().map(|x| x / most).collect();
                near(&format!("{cols} on {device}"), &of(DType::F64), &wanted);
                let got = of(DType::F32).to_vec::<f64>().unwrap();
                for (got, want) in got.iter().zip(&wanted) {
                    assert!((got - want).abs() < 1e-3, "{cols}, {scale}: {got} {want}");
                }
            }
        }
    }
}

#[test]
fn an_empty_batch_leaves_running_statistics_alone() {
    for device in devices() {
        for shape in [&[0, 3, 4, 4][..], &[0, 3], &[2, 3, 0]] {
            let x = leaf(&[], shape, device);
            let weight = leaf(&[1.0; 3], &[3], device);
            let (mean, variance) = (leaf(&[0.0; 3], &[3], device), leaf(&[1.0; 3], &[3], device));
            let (mean, variance) = (mean.detach(), variance.detach());
            let y = x
                .batch_norm(BatchNorm {
                    weight: Some(&weight),
                    running: Some((&mean, &variance)),
                    ..BatchNorm::default()
                })
                .unwrap();
            assert_eq!(y.shape()[..], *shape);
            near("mean", &mean, &[0.0; 3]);
            near("variance", &variance, &[1.0; 3]);
            y.sum_all().unwrap().backward().unwrap();
            near("gradient of x", &x.grad().unwrap(), &[]);
            near("gradient of the weight", &weight.grad().unwrap(), &[0.0; 3]);
        }
    }
}

#[test]
fn an_empty_vector_counts_for_the_dtype_of_cat() {
    for device in devices() {
        for (empty, full, common) in [
            (DType::F64, DType::F32, DType::F64),
            (DType::I64, DType::I32, DType::I64),
            (DType::F32, DType::I64, DType::F32),
            (DType::I32, DType::F32, DType::F32),
        ] {
            let empty = leaf(&[], &[0], device).detach().to_dtype(empty).unwrap();
            let full = leaf(&[1.0; 4], &[2, 2], device)
                .detach()
                .to_dtype(full)
                .unwrap();
            for list in [[&empty, &full], [&full, &empty]] {
                let joined = Tensor::cat(&list, 1).unwrap();
                assert_eq!((joined.dtype(), &joined.shape()[..]), (common, &[2, 2][..]));
                near("cat", &joined, &[1.0; 4]);
            }
        }
    }
}

#[test]
fn a_source_may_be_larger_than_its_indices() {
    let scattered = [0.0, 2.0, 7.0, 0.0, 0.0, 6.0, 0.0, 0.0, 5.0, 0.0, 3.0, 0.0];
    let added = [0.0, 2.0, 7.0, 0.0, 0.0, 6.0, 0.0, 0.0, 6.0, 0.0, 3.0, 0.0];
    for device in devices() {
        let zeros = Tensor::zeros(&[3, 4], device)
            .unwrap()
            .to_dtype(DType::F64)
            .unwrap();
        let numbers: Vec<f64> = (1..13).map(f64::from).collect();
        let source = leaf(&numbers, &[3, 4], device);
        let index = Tensor::from_slice(&[2i64, 0, 2, 2, 1, 0], &[2, 3], device).unwrap();
        near(
            "scatter",
            &zeros.scatter(0, &index, &source).unwrap(),
            &scattered,
        );
        let sum = zeros.scatter_add(0, &index, &source).unwrap();
        near("scatter_add", &sum, &added);
        // An element without an index has no part in the result.
        let ones = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        near("gradient", &gradient(&sum, &source, false), &ones);
        let wide = Tensor::from_slice(&[0i64; 5], &[1, 5], device).unwrap();
        assert!(zeros.scatter(0, &wide, &source).is_err());
        assert!(zeros.scatter_add(0, &wide, &source).is_err());
    }
}

#[test]
fn a_zero_dim_tensor_has_one_row_to_select() {
    for device in devices() {
        let x = leaf(&[3.0], &[], device);
        for shape in [&[][..], &[1]] {
            let index = Tensor::from_slice(&[0i64], shape, device).unwrap();
            let y = x.index_select(0, &index).unwrap();
            assert_eq!(y.ndim(), 0);
            near("index_select", &y, &[3.0]);
            near("gradient", &gradient(&y, &x, false), &[1.0]);
        }
        let two = Tensor::from_slice(&[0i64, 0], &[2], device).unwrap();
        assert!(x.index_select(0, &two).is_err());
    }
}

/// Rows that blocks share, and blocks that short rows share: the same bits as on the host.
#[test]
fn long_and_short_rows_have_the_bits_of_the_host() {
    let numbers = |count: usize| -> Vec<f64> {
        (0..count)
            .map(|at| ((at * 37 % 1009) as f64 - 500.0) / 300.0)
            .collect()
    };
    let compare = |what: &str,
                   numbers: &[f64],
                   shape: &[usize],
                   dtype: DType,
                   of: &dyn Fn(&Tensor) -> Tensor| {
        let [host, device] = devices().map(|device| {
            let x = Tensor::from_slice(numbers, shape, device).unwrap();
            of(&x.to_dtype(dtype).unwrap()).cpu().unwrap()
        });
        assert!(same_bits(&device, &host), "{what} of {shape:?}, {dtype}");
    };
    // The first of equal ones, and a NaN before all, in whichever part of a row.
    for at in [0, 16383, 16384, 39999] {
        let mut row = numbers(80000);
        row[at] = 9.0;
        row[39999] = 9.0;
        row[40000 + at] = NAN;
        row[79999] = NAN;
        for shape in [&[2, 40000][..], &[80000]] {
            compare("argmax", &row, shape, DType::F32, &|x| {
                x.argmax(-1, false).unwrap()
            });
            compare("argmin", &row, shape, DType::F64, &|x| {
                x.argmin(-1, false).unwrap()
            });
        }
    }
    for shape in [[300, 1], [1000, 8], [77, 9], [5, 512], [3, 513], [2, 5000]] {
        let x = numbers(shape[0] * shape[1]);
        for dtype in [DType::F32, DType::BF16] {
            compare("cumsum", &x, &shape, dtype, &|x| x.cumsum(-1).unwrap());
            compare("softmax", &x, &shape, dtype, &|x| x.softmax(-1).unwrap());
        }
    }
    // So many chunks that their totals are more than a chunk.
    let x = numbers(1_100_000);
    compare("cumsum", &x, &[1, 1_100_000], DType::F32, &|x| {
        x.cumsum(-1).unwrap()
    });
    // Losses for which every warp has more than one block.
    let targets: Vec<i64> = (0..9000).map(|at| at % 3 - 1).collect();
    compare(
        "cross_entropy",
        &numbers(18000),
        &[9000, 2],
        DType::F32,
        &|x| {
            let targets = Tensor::from_slice(&targets, &[9000], x.device()).unwrap();
            let options = CrossEntropy {
                ignore_index: -1,
                ..CrossEntropy::default()
            };
            x.cross_entropy(&targets, options).unwrap()
        },
    );
}
