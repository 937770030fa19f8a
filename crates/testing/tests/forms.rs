//! Every op over layouts, threads and dtypes, and over operands that it must refuse.

use fireclay_tensor::{DType, Device, Tensor, Typing, ops};
use fireclay_testing::compare::{Tolerance, matches, same_bits, values};
use fireclay_testing::draw::{Draw, Form};
use fireclay_testing::samples::{Sample, samples};

fn report(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn run(sample: &Sample, inputs: &[Tensor]) -> Result<Tensor, String> {
    (sample.call)(inputs).map_err(|error| format!("{}: {error}", sample.op))
}

fn all<T>(inputs: &[Tensor], change: impl Fn(&Tensor) -> T) -> Vec<T> {
    inputs.iter().map(change).collect()
}

/// Inputs whose f64 tensors are cast; indices and conditions stay.
fn cast(inputs: &[Tensor], dtype: DType) -> Vec<Tensor> {
    all(inputs, |x| match x.dtype() {
        DType::F64 => x.to_dtype(dtype).expect("a cast between computable dtypes"),
        _ => x.clone(),
    })
}

/// Indices must stay in range and in their place: only the expanded form changes them.
#[test]
fn layouts_do_not_change_bits() {
    let mut failures = Vec::new();
    for sample in samples() {
        for form in Form::ALL {
            for dtype in [DType::F64, DType::F32, DType::BF16] {
                let formed = all(&cast(&sample.inputs, dtype), |x| form.of(x));
                let copies = all(&formed, |x| x.contiguous().expect("a copy"));
                let (got, want) = (run(&sample, &formed), run(&sample, &copies));
                match (got, want) {
                    (Ok(got), Ok(want)) if same_bits(&got, &want) => {}
                    // The product with a vector sums in the order in which the matrix lies, see `cpu::gemm`.
                    (Ok(got), Ok(want))
                        if ["matmul", "dot", "addmv"].contains(&sample.op)
                            && matches(&got, &want, Tolerance::new(1e-6, 1e-6)).is_ok() => {}
                    (got, want) => failures.push(format!(
                        "{} {form:?} {dtype}: {got:?}, contiguous {want:?}",
                        sample.op
                    )),
                }
            }
        }
    }
    report(&failures);
}

/// 16-bit and 32-bit floats against the same op in f64 on the same numbers.
#[test]
fn floats_agree_with_f64() {
    let mut failures = Vec::new();
    for (dtype, eps) in [
        (DType::F32, 1.2e-7),
        (DType::F16, 9.8e-4),
        (DType::BF16, 7.8e-3),
    ] {
        for sample in samples() {
            let inputs = cast(&sample.inputs, dtype);
            let oracle = run(
                &sample,
                &cast(
                    &all(&inputs, |x| match x.dtype().is_floating_point() {
                        true => x.to_dtype(DType::F64).expect("a cast"),
                        false => x.clone(),
                    }),
                    DType::F64,
                ),
            );
            let checked = run(&sample, &inputs).and_then(|got| {
                let want = oracle?;
                let expected = if want.dtype() == DType::F64 {
                    dtype
                } else {
                    want.dtype()
                };
                if got.dtype() != expected {
                    return Err(format!("gives {}, expected {expected}", got.dtype()));
                }
                let want = want.to_dtype(expected).map_err(|error| error.to_string())?;
                let scale = values(&want)
                    .iter()
                    .fold(1.0_f64, |max, y| max.max(y.abs()));
                // Composed ops round 16-bit intermediates more than once.
                matches(&got, &want, Tolerance::new(8.0 * eps, 8.0 * eps * scale))
            });
            if let Err(what) = checked {
                failures.push(format!("{} {dtype}: {what}", sample.op));
            }
        }
    }
    report(&failures);
}

/// Whole numbers and bools give the dtype that the row's typing says, and the value of the same op in f64; or a dtype error.
#[test]
fn whole_numbers_follow_the_rows_typing() {
    let mut failures = Vec::new();
    let mut draw = Draw::new(5);
    for function in ops::functions() {
        // Those of whole numbers only (`bitwise_and`) have nothing to be compared with in f64.
        let Some(sample) = samples().into_iter().find(|sample| {
            sample.op == function.name()
                && sample.inputs.len() == function.arity()
                && sample.inputs.iter().any(|x| x.dtype() == DType::F64)
        }) else {
            continue;
        };
        for dtype in [DType::I64, DType::I32, DType::U8, DType::Bool] {
            let inputs = all(&sample.inputs, |x| x.clone());
            let inputs: Vec<Tensor> = inputs
                .iter()
                .map(|x| match x.dtype() {
                    DType::F64 => draw.ints(x.shape(), 1, 4).to_dtype(dtype).expect("a cast"),
                    _ => x.clone(),
                })
                .collect();
            let expected = match function.typing() {
                Typing::Float => DType::F32,
                Typing::Bool => DType::Bool,
                Typing::PromoteWhole if dtype == DType::Bool => DType::I64,
                _ => dtype,
            };
            let got = match (sample.call)(&inputs) {
                Ok(got) => got,
                Err(error) => {
                    let text = error.to_string();
                    if !matches!(error, fireclay_tensor::Error::DTypeUnsupported { .. })
                        || !text.contains(function.name())
                    {
                        failures.push(format!("{} {dtype}: {text}", sample.op));
                    }
                    continue;
                }
            };
            let wide = all(&inputs, |x| match (x.dtype(), sample.op) {
                (DType::Bool, "where") => x.clone(),
                _ => x.to_dtype(DType::F64).expect("a cast"),
            });
            if got.dtype() != expected {
                failures.push(format!(
                    "{} {dtype}: gives {}, expected {expected}",
                    sample.op,
                    got.dtype()
                ));
            } else if dtype != DType::Bool || expected != DType::Bool {
                let want = run(&sample, &wide).and_then(|want| {
                    let whole = if expected.is_integer() {
                        want.to_dtype(DType::I64)
                    } else {
                        Ok(want)
                    };
                    whole
                        .and_then(|want| want.to_dtype(expected))
                        .map_err(|error| error.to_string())
                });
                let checked =
                    want.and_then(|want| matches(&got, &want, Tolerance::new(1e-6, 1e-6)));
                if let Err(what) = checked {
                    failures.push(format!("{} {dtype}: {what}", sample.op));
                }
            }
        }
    }
    report(&failures);
}

/// Operands large enough to be shared among threads give the same bits for 1 and 2 threads, forward and backward.
#[test]
fn threads_do_not_change_bits() {
    let mut draw = Draw::new(9);
    let mut numbers = |shape: &[usize]| {
        let elements: Vec<f32> = (0..shape.iter().product())
            .map(|_| draw.number(-2.0, 2.0) as f32)
            .collect();
        Tensor::from_slice(&elements, shape, Device::Cpu).expect("a tensor")
    };
    let (x, y) = (numbers(&[300, 700]), numbers(&[700]));
    let (image, kernel) = (numbers(&[4, 8, 40, 40]), numbers(&[8, 8, 3, 3]));
    let (square, weight) = (numbers(&[300, 300]), numbers(&[500, 700]));
    type Work<'a> = (
        &'a str,
        &'a Tensor,
        Box<dyn Fn(&Tensor) -> fireclay_tensor::Result<Tensor> + 'a>,
    );
    let works: Vec<Work<'_>> = vec![
        ("gelu", &x, Box::new(|x| x.gelu())),
        ("mul", &x, Box::new(|x| x.mul(&y))),
        ("sum", &x, Box::new(|x| x.sum_all())),
        ("sum rows", &x, Box::new(|x| x.sum(&[0], false))),
        ("var", &x, Box::new(|x| x.var(&[1], 1.0, false))),
        ("softmax", &x, Box::new(|x| x.softmax(1))),
        ("matmul", &square, Box::new(|x| x.matmul(&square))),
        ("linear", &x, Box::new(|x| x.linear(&weight, None))),
        (
            "conv2d",
            &image,
            Box::new(|x| x.conv2d(&kernel, None, Default::default())),
        ),
        (
            "max_pool2d",
            &image,
            Box::new(|x| x.max_pool2d(fireclay_tensor::Pool2d::new([2, 2]))),
        ),
        (
            "layer_norm",
            &x,
            Box::new(|x| x.layer_norm(&[700], None, None, 1e-5)),
        ),
        (
            "batch_norm",
            &image,
            Box::new(|x| {
                x.batch_norm(fireclay_tensor::BatchNorm {
                    training: true,
                    ..Default::default()
                })
            }),
        ),
    ];
    for (name, input, work) in works {
        let results = [1, 2, 3].map(|threads| {
            fireclay_cpu::parallel::set_threads(threads);
            let leaf = input.detach().requires_grad_(true).expect("a leaf");
            let output = work(&leaf).expect(name);
            output
                .square()
                .and_then(|y| y.sum_all())
                .and_then(|loss| loss.backward())
                .expect(name);
            (
                output.to_bytes().unwrap(),
                leaf.grad().expect("a gradient").to_bytes().unwrap(),
            )
        });
        assert!(
            results[0] == results[1] && results[0] == results[2],
            "{name} differs between numbers of threads"
        );
    }
}

/// Stored-only dtypes and shapes that do not fit are errors that name an op.
#[test]
fn wrong_operands_are_refused_by_name() {
    let mut failures = Vec::new();
    for sample in samples() {
        // What only moves elements takes all dtypes.
        let moves = [
            "view",
            "transpose",
            "permute",
            "slice",
            "select",
            "unsqueeze",
            "squeeze",
            "expand",
            "as_strided",
            "copy",
            "cat",
            "stack",
            "diagonal",
            "unfold",
            "unflatten",
            "movedim",
            "split",
            "roll",
            "repeat",
            "tile",
            "repeat_interleave",
            "diag",
            "diag_embed",
            "cartesian_prod",
            "pad",
            "index",
            "channel_shuffle",
            "pixel_unshuffle",
        ];
        let is_floating = sample.inputs.iter().any(|x| x.dtype() == DType::F64);
        let stored_only = all(&sample.inputs, |x| match x.dtype() {
            DType::F64 => {
                Tensor::from_bytes(&vec![0; x.numel()], x.shape(), DType::F8E4M3, Device::Cpu)
                    .expect("bytes")
            }
            _ => x.clone(),
        });
        match (sample.call)(&stored_only) {
            Ok(_) if moves.contains(&sample.op) || !is_floating => {}
            Ok(_) => failures.push(format!("{} takes f8e4m3", sample.op)),
            Err(error) => {
                let text = error.to_string();
                let op = text.split(':').next().unwrap_or_default();
                if op.is_empty() || !text.contains("f8e4m3") {
                    failures.push(format!("{}: {text}", sample.op));
                }
            }
        }
        // Indices of any shape look anywhere.
        if sample.inputs.len() > 1 && !["index", "take"].contains(&sample.op) {
            let wrong: Vec<Tensor> = sample
                .inputs
                .iter()
                .enumerate()
                .map(|(number, x)| {
                    let shape = [7 + number, 5 + 3 * number, 11];
                    Tensor::full_of(&shape, 0i64, x.dtype(), Device::Cpu).expect("zeros")
                })
                .collect();
            match (sample.call)(&wrong) {
                Ok(got) => failures.push(format!(
                    "{} takes shapes that do not fit: {}",
                    sample.op,
                    got.shape()
                )),
                Err(error) if error.to_string().contains(": ") => {}
                Err(error) => failures.push(format!("{}: {error}", sample.op)),
            }
        }
    }
    report(&failures);
}
