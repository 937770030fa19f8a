//! Every op on the virtual GPU against the host: the same bits, forward and backward, over dtypes and layouts.

use std::collections::BTreeSet;

use fireclay_cpu::gemm::{GemmShape, MatrixStrides};
use fireclay_nn::{GRUCell, LSTMCell, ModuleExt};
use fireclay_tensor::ops::matmul::plan;
use fireclay_tensor::{DType, Device, Error, Formula, Result, Tensor, fork_rng, manual_seed};
use fireclay_testing::agreement::check;
use fireclay_testing::compare::{same_bits, same_numbers};
use fireclay_testing::devices::{moved, virtual_cuda};
use fireclay_testing::draw::Draw;
use fireclay_testing::samples::samples;

/// Ops that have no CUDA kernel yet.
const NOT_YET: &[&str] = &[];

#[test]
fn every_op_gives_the_bits_of_the_host() {
    let findings = check(&samples(), virtual_cuda(), None, &mut |_, _, _| {});
    println!("{}", findings.table());
    let failures: Vec<&String> = findings.failures().collect();
    assert!(failures.is_empty(), "{} differ, see above", failures.len());
    assert_eq!(findings.gone, None);
    let not_yet: BTreeSet<&str> = NOT_YET.iter().copied().collect();
    assert_eq!(findings.no_kernel(), not_yet, "ops without a kernel");
}

/// Numbers from -2 to 2, as many as it takes.
fn numbers(draw: &mut Draw, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let numbers: Vec<f64> = (0..count).map(|_| draw.number(-2.0, 2.0)).collect();
    Tensor::from_slice(&numbers, shape, Device::Cpu).expect("as many as the shape has")
}

/// Products of matrices, where the host sums in the same order: also their bits.
#[test]
fn products_of_matrices_have_the_bits_of_the_host() {
    let device = virtual_cuda();
    let mut draw = Draw::new(3);
    let sizes = [
        [2, 2, 1],
        [3, 5, 0],
        [64, 64, 64],
        [65, 3, 17],
        [7, 130, 300],
        [33, 70, 1030],
    ];
    for [m, n, k] in sizes {
        for dtype in [DType::F32, DType::F64, DType::I64] {
            let a = numbers(&mut draw, &[m, k]).to_dtype(dtype).unwrap();
            let b = numbers(&mut draw, &[k, n]).to_dtype(dtype).unwrap();
            let bt = b.transpose(0, 1).unwrap().contiguous().unwrap();
            let at = a.transpose(0, 1).unwrap().contiguous().unwrap();
            let (lying_a, lying_b) = (at.transpose(0, 1).unwrap(), bt.transpose(0, 1).unwrap());
            for (a, b) in [
                (&a, &b),
                (&lying_a, &b),
                (&a, &lying_b),
                (&lying_a, &lying_b),
            ] {
                let want = a.matmul(b).unwrap();
                let got = a
                    .to(device)
                    .unwrap()
                    .matmul(&b.to(device).unwrap())
                    .unwrap();
                assert!(
                    same_bits(&got.cpu().unwrap(), &want),
                    "{m} x {n} x {k} {dtype}"
                );
            }
        }
        let x = numbers(&mut draw, &[m, k]).to_dtype(DType::F32).unwrap();
        let weight = numbers(&mut draw, &[n, k]).to_dtype(DType::F32).unwrap();
        let bias = numbers(&mut draw, &[n]).to_dtype(DType::F32).unwrap();
        let want = x.linear(&weight, Some(&bias)).unwrap();
        let there = moved(&[x, weight, bias], device);
        let got = there[0].linear(&there[1], Some(&there[2])).unwrap();
        assert!(
            same_bits(&got.cpu().unwrap(), &want),
            "linear {m} x {n} x {k}"
        );
    }
    // Batches: of one shape, broadcast, of matrices that lie unevenly.
    let a = numbers(&mut draw, &[3, 1, 5, 4]);
    let b = numbers(&mut draw, &[2, 4, 6]);
    for (a, b) in [
        (a.clone(), b.clone()),
        (a.transpose(0, 1).unwrap(), b.narrow(0, 0, 1).unwrap()),
    ] {
        let want = a.matmul(&b).unwrap();
        let got = a
            .to(device)
            .unwrap()
            .matmul(&b.to(device).unwrap())
            .unwrap();
        assert!(same_bits(&got.cpu().unwrap(), &want));
    }
}

/// Enough products that every tile of the table is chosen: each has a rest of rows, of columns and of steps.
#[test]
fn every_tile_gives_the_bits_of_the_host() {
    let device = virtual_cuda();
    let mut draw = Draw::new(5);
    let mut kernels = BTreeSet::new();
    for [batch, m, n, k] in [
        [128, 68, 68, 12],
        [128, 65, 67, 9],
        [128, 67, 36, 12],
        [128, 36, 36, 12],
        [2, 9, 132, 300],
        [2, 132, 9, 300],
        [2, 33, 31, 264],
    ] {
        for dtype in [DType::F32, DType::F64, DType::I64] {
            let a = numbers(&mut draw, &[batch, m, k]);
            let b = numbers(&mut draw, &[batch, k, n]);
            let (a, b) = (a.to_dtype(dtype).unwrap(), b.to_dtype(dtype).unwrap());
            let lying = |x: &Tensor| {
                let turned = x.transpose(1, 2).unwrap().contiguous().unwrap();
                turned.transpose(1, 2).unwrap()
            };
            let shape = GemmShape { batch, m, n, k };
            let strides = [
                MatrixStrides::row_major(m, k),
                MatrixStrides::row_major(k, n),
            ];
            let abilities = plan::Abilities {
                capability: (8, 0),
                allow_tf32: false,
            };
            let chosen = plan::plan(dtype, shape, strides[0], strides[1], abilities);
            kernels.insert(format!("{dtype} {:?}", chosen.kernel));
            for (a, b) in [(&a, &b), (&lying(&a), &lying(&b))] {
                let got = (a.to(device).unwrap())
                    .matmul(&b.to(device).unwrap())
                    .unwrap();
                let want = a.matmul(b).unwrap();
                let what = format!("{batch} x {m} x {n} x {k} {dtype}");
                assert!(same_bits(&got.cpu().unwrap(), &want), "{what}");
            }
        }
    }
    assert_eq!(kernels.len(), 6 + 4 + 2, "{kernels:?}");
}

/// Also products with vectors, however the matrix lies.
#[test]
fn products_with_vectors_have_the_bits_of_the_host() {
    let device = virtual_cuda();
    let mut draw = Draw::new(4);
    let sizes = [
        [1, 9, 300],
        [9, 1, 300],
        [1, 1, 1000],
        [1, 300, 9],
        [260, 1, 31],
        [1, 4, 9001],
        [3, 1, 4097],
        [1, 68, 520],
    ];
    for [m, n, k] in sizes {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let a = numbers(&mut draw, &[m, k]).to_dtype(dtype).unwrap();
            let b = numbers(&mut draw, &[k, n]).to_dtype(dtype).unwrap();
            let lying = |x: &Tensor| {
                let turned = x.transpose(0, 1).unwrap().contiguous().unwrap();
                turned.transpose(0, 1).unwrap()
            };
            let (lying_a, lying_b) = (lying(&a), lying(&b));
            for (a, b) in [
                (&a, &b),
                (&lying_a, &b),
                (&a, &lying_b),
                (&lying_a, &lying_b),
            ] {
                let got = (a.to(device).unwrap())
                    .matmul(&b.to(device).unwrap())
                    .unwrap();
                let want = a.matmul(b).unwrap();
                assert!(
                    same_numbers(&got.cpu().unwrap(), &want),
                    "{m} x {n} x {k} {dtype}"
                );
            }
        }
    }
}

/// Numbers in a formula are the kernel's arguments: also zeros of both signs, and NaN, are told apart.
#[test]
fn numbers_in_formulas_are_told_apart() {
    let device = virtual_cuda();
    let x = Tensor::from_slice(&[0.0f32, -0.0, 1.0, -2.0], &[4], "cpu").unwrap();
    let pairs = [
        (0.0, -0.0),
        (-0.0, 0.0),
        (f64::NAN, 1.0),
        (1.0, f64::NAN),
        (2.0, 2.0),
        (2.0, 3.0),
    ];
    for (a, b) in pairs {
        let run = |x: &Tensor| {
            let x = Formula::from(x);
            let first = (&x * a).ne(0.0).where_(&x - b, &x + a);
            (first + &x * b).eval().unwrap()
        };
        let got = run(&x.to(device).unwrap()).cpu().unwrap();
        assert!(same_numbers(&got, &run(&x)), "{a} and {b}: {got}");
    }
}

/// More operands than a kernel's parameters hold are an error that says so, before anything is compiled.
#[test]
fn a_formula_of_too_many_operands_is_named() {
    let device = virtual_cuda();
    let tensors: Vec<Tensor> = (0..520)
        .map(|_| Tensor::zeros(&[4], device).unwrap())
        .collect();
    let mut sum = Formula::from(&tensors[0]);
    for tensor in &tensors[1..] {
        sum = sum + tensor;
    }
    for error in [sum.eval().unwrap_err(), sum.sum().unwrap_err()] {
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{text}");
        assert!(text.contains("the 512 that a kernel takes"), "{text}");
        assert!(
            text.contains("evaluate a part of the formula first"),
            "{text}"
        );
    }
}

/// A formula that ends in a sum is one kernel, which stores no elements; blocks are added in the host's order.
#[test]
fn sums_of_formulas_give_the_bits_of_the_host() {
    let device = virtual_cuda();
    let mut draw = Draw::new(8);
    for shape in [
        [0, 3],
        [1, 1],
        [4, 1024],
        [17, 241],
        [70, 1001],
        [300, 1003],
    ] {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let x = numbers(&mut draw, &shape).to_dtype(dtype).unwrap();
            let row = numbers(&mut draw, &shape[1..]).to_dtype(dtype).unwrap();
            let turned = x.transpose(0, 1).unwrap().contiguous().unwrap();
            for x in [x, turned.transpose(0, 1).unwrap()] {
                let formula = |x: &Tensor, row: &Tensor| {
                    let x = Formula::from(x);
                    (&x * 3.0 + row).tanh()
                };
                let there = moved(&[x.clone(), row.clone()], device);
                let (got, want) = (formula(&there[0], &there[1]), formula(&x, &row));
                for (got, want) in [(got.sum(), want.sum()), (got.mean(), want.mean())] {
                    let got = got.unwrap().cpu().unwrap();
                    assert!(
                        same_numbers(&got, &want.unwrap()),
                        "{shape:?} {dtype}: {got}"
                    );
                }
            }
        }
    }
}

/// Steps of a cell on a device, and back: the host's bits. The input of another device is named.
#[test]
fn recurrent_cells_run_on_a_device() {
    let device = virtual_cuda();
    let (lstm, gru) = (LSTMCell::new(5, 7).unwrap(), GRUCell::new(7, 3).unwrap());
    let x = Tensor::randn(&[4, 5], "cpu").unwrap();
    let run = |x: &Tensor| -> Result<Vec<Tensor>> {
        lstm.zero_grad();
        gru.zero_grad();
        let (h, c) = lstm.forward(x, None)?;
        let (h, _) = lstm.forward(x, Some((&h, &c)))?;
        let out = gru.forward(&h, None)?;
        out.square()?.sum_all()?.backward()?;
        let parameters = lstm.parameters().into_iter().chain(gru.parameters());
        let grads = parameters.map(|parameter| parameter.grad().expect("a gradient"));
        [out.detach()]
            .into_iter()
            .chain(grads)
            .map(|x| x.cpu())
            .collect()
    };
    let want = run(&x).unwrap();
    lstm.to(device).unwrap();
    gru.to(device).unwrap();
    let got = run(&x.to(device).unwrap()).unwrap();
    assert_eq!(got.len(), 9);
    for (number, (got, want)) in got.iter().zip(&want).enumerate() {
        assert!(same_bits(got, want), "result {number}: {got} but {want}");
    }
    let error = lstm.forward(&x, None).unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
    assert!(error.to_string().contains("LSTMCell(5, 7)"), "{error}");
}

/// So many wide rows that a block takes several.
#[test]
fn norms_of_many_wide_rows_have_the_bits_of_the_host() {
    let device = virtual_cuda();
    let mut draw = Draw::new(21);
    let [x, weight, bias] = [&[1025, 784][..], &[784], &[784]]
        .map(|shape| numbers(&mut draw, shape).to_dtype(DType::F32).unwrap());
    let norm = |x: &[Tensor]| x[0].layer_norm(&[784], Some(&x[1]), Some(&x[2]), 1e-5);
    let inputs = [x, weight, bias];
    let got = norm(&moved(&inputs, device)).unwrap().cpu().unwrap();
    assert!(same_bits(&got, &norm(&inputs).unwrap()));
}

#[test]
fn random_numbers_are_those_of_the_host() {
    let device = virtual_cuda();
    type Make = fn(Device) -> Result<Tensor>;
    let makes: [(&str, Make); 17] = [
        ("rand", |device| Tensor::rand(&[1023], device)),
        ("randn", |device| Tensor::randn(&[33, 31], device)),
        ("randint", |device| {
            Tensor::randint(-7, 1 << 40, &[513], device)
        }),
        ("randperm", |device| Tensor::randperm(1000, device)),
        ("uniform_ f64", |device| {
            Tensor::empty(&[101], DType::F64, device)?.uniform_(-3.0, 5.0)
        }),
        ("normal_ f64", |device| {
            Tensor::empty(&[101], DType::F64, device)?.normal_(1.0, 2.0)
        }),
        ("uniform_ bf16", |device| {
            Tensor::empty(&[101], DType::BF16, device)?.uniform_(-3.0, 5.0)
        }),
        ("bernoulli_", |device| {
            Tensor::empty(&[999], DType::F32, device)?.bernoulli_(0.3)
        }),
        ("bernoulli_ i64", |device| {
            Tensor::empty(&[999], DType::I64, device)?.bernoulli_(0.3)
        }),
        ("bernoulli", |device| {
            Tensor::full(&[999], 0.3, device)?.bernoulli()
        }),
        ("normal", |device| {
            Tensor::normal(1.0, &Tensor::full(&[99], 0.3, device)?)
        }),
        ("multinomial", |device| {
            Tensor::arange(1.0, 9.0, 1.0, device)?.multinomial(5, false)
        }),
        ("multinomial with replacement", |device| {
            Tensor::arange(0.0, 9.0, 1.0, device)?.multinomial(99, true)
        }),
        ("strided", |device| {
            let whole = Tensor::zeros(&[20, 30], device)?;
            whole.transpose(0, 1)?.narrow(0, 3, 11)?.normal_(0.0, 1.0)?;
            Ok(whole)
        }),
        ("dropout", |device| {
            Tensor::ones(&[777], device)?.dropout(0.4, true)
        }),
        ("dropout f64", |device| {
            Tensor::ones(&[777], device)?
                .to_dtype(DType::F64)?
                .dropout(0.4, true)
        }),
        ("none", |device| Tensor::randn(&[0, 3], device)),
    ];
    for (name, make) in makes {
        let seeded = |device| {
            fork_rng(|| {
                manual_seed(77);
                make(device).unwrap()
            })
        };
        let (want, got) = (seeded(Device::Cpu), seeded(device));
        assert_eq!(got.device(), device, "{name}");
        assert!(same_bits(&got.cpu().unwrap(), &want), "{name}");
    }
}

/// Sorts and scans of whole numbers, which have no order of sums; NaN and zeros of both signs.
#[test]
fn sorts_and_scans_are_those_of_the_host() {
    let device = virtual_cuda();
    let mut draw = Draw::new(12);
    type Call = fn(&Tensor) -> Result<Vec<Tensor>>;
    let calls: [Call; 6] = [
        |x| {
            x.sort(-1, false)
                .map(|(values, places)| vec![values, places])
        },
        |x| x.sort(0, true).map(|(values, places)| vec![values, places]),
        |x| {
            x.topk(1, 1, true)
                .map(|(values, places)| vec![values, places])
        },
        |x| {
            x.topk(0, 1, false)
                .map(|(values, places)| vec![values, places])
        },
        |x| Ok(vec![x.cumsum(1)?, x.cumsum(0)?]),
        |x| Ok(vec![x.cumprod(1)?]),
    ];
    for shape in [[3, 40], [1, 2050], [1100, 2], [2, 1]] {
        for dtype in [
            DType::I64,
            DType::I32,
            DType::I16,
            DType::I8,
            DType::U8,
            DType::Bool,
            DType::F16,
        ] {
            let mut x = numbers(&mut draw, &shape).mul(50.0).unwrap();
            if dtype == DType::F16 {
                let odd = [
                    f64::NAN,
                    -0.0,
                    0.0,
                    f64::INFINITY,
                    -f64::INFINITY,
                    -f64::NAN,
                ];
                let odd: Vec<f64> = (0..x.numel()).map(|at| odd[at * 7 % 11 % 6]).collect();
                x = Tensor::from_slice(&odd, &shape, Device::Cpu).unwrap();
            } else if dtype == DType::U8 {
                x = x.abs().unwrap();
            }
            let x = x.to_dtype(dtype).unwrap();
            let there = x.to(device).unwrap();
            for (number, call) in calls.iter().enumerate() {
                let (got, want) = (call(&there).unwrap(), call(&x).unwrap());
                for (got, want) in got.iter().zip(&want) {
                    assert!(
                        same_numbers(&got.cpu().unwrap(), want),
                        "{shape:?} {dtype}, call {number}"
                    );
                }
            }
        }
    }
    let error = numbers(&mut draw, &[3])
        .topk(4, 0, true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("4 first of 3 elements"), "{error}");
}

/// A bad index is reported by the next wait, names its op and line, and leaves the device in order.
#[test]
fn an_index_out_of_range_is_an_error_of_the_next_wait() {
    virtual_cuda();
    // Not the device that other tests wait for: the next wait of any thread gets the report.
    let device = Device::Cuda(1);
    let x = Tensor::rand(&[4, 3], device).unwrap();
    let bad = Tensor::from_slice(&[0i64, 9, 1, 2], &[4], device).unwrap();
    let line = line!() + 1;
    let picked = x.index_select(0, &bad).unwrap();
    let error = picked.to_vec::<f32>().unwrap_err();
    let text = error.to_string();
    match &error {
        Error::IndexOutOfRange {
            op,
            index,
            position,
            dim,
            size,
            ..
        } => {
            assert_eq!(
                (*op, *index, *position, *dim, *size),
                ("index_select", 9, 1, 0, 4)
            );
        }
        other => panic!("{other}"),
    }
    assert!(text.contains(&format!("devices.rs:{line}")), "{text}");
    assert!(text.contains("valid are 0 to 3"), "{text}");
    // It was reported once, and the device goes on.
    assert_eq!(picked.to_vec::<f32>().unwrap().len(), 12);
    let loss = x
        .cross_entropy(&bad.narrow(0, 0, 4).unwrap(), Default::default())
        .unwrap();
    let text = loss.to_vec::<f32>().unwrap_err().to_string();
    assert!(
        text.contains("cross_entropy: index 9 at position 1"),
        "{text}"
    );
    assert!(text.contains("ignore_index (-100)"), "{text}");
    for call in [
        |x: &Tensor, bad: &Tensor| x.gather(0, &bad.unsqueeze(1)?),
        |x: &Tensor, bad: &Tensor| x.index_add(0, bad, x),
        |x: &Tensor, bad: &Tensor| x.scatter_add(0, &bad.unsqueeze(1)?, &x.narrow(1, 0, 1)?),
        |x: &Tensor, bad: &Tensor| x.scatter(0, &bad.unsqueeze(1)?, &x.narrow(1, 0, 1)?),
        |x: &Tensor, bad: &Tensor| x.index(&[bad]),
        |x: &Tensor, bad: &Tensor| x.index_put(&[bad], x, false),
        |x: &Tensor, bad: &Tensor| {
            x.index_put(&[bad, bad], &x.select(0, 0)?.narrow(0, 0, 1)?, true)
        },
    ] {
        let error = call(&x, &bad).unwrap().to_vec::<f32>().unwrap_err();
        assert!(
            matches!(error, Error::IndexOutOfRange { index: 9, .. }),
            "{error}"
        );
    }
    assert!(x.to_vec::<f32>().is_ok());
}
