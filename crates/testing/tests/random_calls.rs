//! Random calls of random ops on random operands: an error perhaps, a panic never.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fireclay_tensor::{
    Arg, AvgPool2d, Backpropagation, BatchNorm, Conv2dOptions, CrossEntropy, Pool2d, Reduction,
    Result, Tensor, ops,
};
use fireclay_testing::draw::Draw;
use fireclay_testing::samples::{Sample, samples};

const CALLS: u64 = 20_000;

fn dim(draw: &mut Draw) -> isize {
    draw.int(-5, 5) as isize
}

fn dims(draw: &mut Draw) -> Vec<isize> {
    (0..draw.below(4)).map(|_| dim(draw)).collect()
}

fn pair(draw: &mut Draw) -> [usize; 2] {
    [draw.below(5), draw.below(5)]
}

fn pool(draw: &mut Draw) -> Pool2d {
    Pool2d {
        kernel: pair(draw),
        stride: pair(draw),
        padding: pair(draw),
        dilation: pair(draw),
        ceil_mode: draw.flip(),
    }
}

fn reduction(draw: &mut Draw) -> Reduction {
    *draw.choose(&[Reduction::None, Reduction::Mean, Reduction::Sum])
}

/// A call with random arguments. Half of the index operands are i64 of few values, so that some calls succeed.
fn call(draw: &mut Draw, name: &mut &'static str, samples: &[Sample]) -> Result<Vec<Tensor>> {
    let (x, y, z) = (draw.any_tensor(), draw.any_tensor(), draw.any_tensor());
    let index = if draw.flip() {
        draw.ints(y.shape(), -1, 3)
    } else {
        y.clone()
    };
    let like = if draw.flip() {
        z.to_dtype(x.dtype())?
    } else {
        z.clone()
    };
    let one = |result: Result<Tensor>| result.map(|tensor| vec![tensor]);
    for operand in [&x, &y, &like] {
        if operand.dtype().is_floating_point() && draw.flip() {
            operand.requires_grad_(true)?;
        }
    }
    let kind = if draw.flip() { 0 } else { draw.below(34) };
    let names = [
        "sample",
        "reshape",
        "view",
        "flatten",
        "transpose",
        "permute",
        "expand",
        "narrow",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "split",
        "chunk",
        "as_strided",
        "sum",
        "mean",
        "amax",
        "argmax",
        "var",
        "logsumexp",
        "softmax",
        "cat",
        "stack",
        "index_select",
        "gather",
        "scatter_add",
        "matmul",
        "linear",
        "conv2d",
        "pool",
        "norm",
        "loss",
        "numbers",
    ];
    *name = names[kind];
    match kind {
        0 => {
            let sample = draw.choose(samples);
            *name = sample.op;
            let inputs: Vec<Tensor> = sample
                .inputs
                .iter()
                .map(|input| match draw.below(4) {
                    0 => draw.any_tensor(),
                    1 => draw.any_layout(input),
                    2 => input.to_dtype(x.dtype()).unwrap_or_else(|_| input.clone()),
                    _ => input.clone(),
                })
                .collect();
            let inputs = inputs
                .iter()
                .map(|input| match input.dtype().is_floating_point() {
                    true => input.detach().requires_grad_(true),
                    false => Ok(input.clone()),
                })
                .collect::<Result<Vec<Tensor>>>()?;
            one((sample.call)(&inputs))
        }
        1 => one(x.reshape(&dims(draw))),
        2 => one(x.view(&dims(draw))),
        3 => one(x.flatten(dim(draw), dim(draw))),
        4 => one(x.transpose(dim(draw), dim(draw))),
        5 => one(x.permute(&dims(draw))),
        6 => one(x.expand(&dims(draw))),
        7 => one(x.narrow(dim(draw), draw.below(5), draw.below(5))),
        8 => one(x.slice(dim(draw), dim(draw), dim(draw), draw.below(4))),
        9 => one(x.select(dim(draw), dim(draw))),
        10 => one(x.unsqueeze(dim(draw))),
        11 => one(x.squeeze(dim(draw))).and_then(|_| one(x.squeeze_all())),
        12 => x.split(draw.below(4), dim(draw)),
        13 => x.chunk(draw.below(4), dim(draw)),
        14 => {
            let shape: Vec<usize> = (0..draw.below(4)).map(|_| draw.below(4)).collect();
            let count = shape.len() + usize::from(draw.below(8) == 0);
            let strides: Vec<usize> = (0..count).map(|_| draw.below(5)).collect();
            one(x.as_strided(&shape, &strides, draw.below(4)))
        }
        15 => one(x.sum(&dims(draw), draw.flip())),
        16 => one(x.mean(&dims(draw), draw.flip())),
        17 => one(x.amax(&dims(draw), draw.flip()))
            .and_then(|_| one(x.amin(&dims(draw), draw.flip()))),
        18 => one(x.argmax(dim(draw), draw.flip()))
            .and_then(|_| one(x.argmin(dim(draw), draw.flip()))),
        19 => one(x.var(&dims(draw), draw.number(-2.0, 3.0), draw.flip()))
            .and_then(|_| one(x.std(&[], 1.0, true))),
        20 => one(x.logsumexp(&dims(draw), draw.flip())),
        21 => one(x.softmax(dim(draw))).and_then(|_| one(x.log_softmax(dim(draw)))),
        22 => one(Tensor::cat(&[&x, &like, &y], dim(draw))),
        23 => one(Tensor::stack(&[&x, &x, &like], dim(draw))),
        24 => one(x.index_select(dim(draw), &index)).and_then(|_| one(x.embedding(&index))),
        25 => one(x.gather(dim(draw), &index)),
        26 => one(x.scatter_add(dim(draw), &index, &like))
            .and_then(|_| one(x.index_add(dim(draw), &index, &like))),
        27 => one(x.matmul(&like))
            .and_then(|_| one(x.dot(&like)))
            .and_then(|_| one(x.outer(&like))),
        28 => one(x.linear(&like, if draw.flip() { Some(&y) } else { None })),
        29 => {
            let options = Conv2dOptions {
                stride: pair(draw),
                padding: pair(draw),
                dilation: pair(draw),
                groups: draw.below(3),
            };
            one(x.conv2d(&like, if draw.flip() { Some(&y) } else { None }, options))
        }
        30 => match draw.below(3) {
            0 => x
                .max_pool2d_with_indices(pool(draw))
                .map(|(values, indices)| vec![values, indices]),
            1 => {
                let window = AvgPool2d {
                    window: pool(draw),
                    count_include_pad: draw.flip(),
                    divisor_override: if draw.flip() {
                        Some(draw.below(3))
                    } else {
                        None
                    },
                };
                one(x.avg_pool2d(window))
            }
            _ => one(x.adaptive_avg_pool2d(pair(draw))),
        },
        31 if draw.flip() => {
            let shape: Vec<usize> = x.shape()[x.ndim() - draw.below(x.ndim() + 1)..].to_vec();
            one(x.layer_norm(
                &shape,
                if draw.flip() { Some(&like) } else { None },
                None,
                1e-5,
            ))
        }
        31 => one(x.batch_norm(BatchNorm {
            weight: if draw.flip() { Some(&like) } else { None },
            training: draw.flip(),
            running: if draw.flip() { Some((&y, &z)) } else { None },
            ..BatchNorm::default()
        })),
        32 => {
            let options = CrossEntropy {
                weight: if draw.flip() { Some(&like) } else { None },
                ignore_index: draw.int(-1, 2),
                label_smoothing: draw.number(-0.1, 1.1),
                reduction: reduction(draw),
            };
            match draw.below(3) {
                0 => one(x.cross_entropy(&index, options)),
                1 => one(x.nll_loss(&index, options)),
                _ => {
                    one(x.binary_cross_entropy_with_logits(&like, None, Some(&y), reduction(draw)))
                }
            }
        }
        _ => {
            let number: Arg<'_> = match draw.below(4) {
                0 => draw.number(-3.0, 3.0).into(),
                1 => draw.int(-3, 3).into(),
                2 => draw.flip().into(),
                _ => i64::MAX.into(),
            };
            let binary = [
                Tensor::add(&x, number),
                Tensor::sub(&x, number),
                Tensor::mul(&x, number),
                Tensor::div(&x, number),
                Tensor::pow(&x, number),
                Tensor::maximum(&x, number),
                Tensor::lerp(&x, &like, number),
                Tensor::where_(&x, number, &y),
                Tensor::clamp(&x, number, 1i64),
                Tensor::add_(&x.copy()?, number),
                Tensor::div_(&x.copy()?, number),
            ];
            binary.into_iter().collect()
        }
    }
}

#[test]
fn no_call_panics() {
    let samples = samples();
    let retain = Backpropagation {
        retain_graph: true,
        ..Backpropagation::default()
    };
    assert!(ops::functions().len() > 40);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut panics, mut succeeded) = (Vec::new(), 0);
    // More are tried by hand: `FIRECLAY_RANDOM_CALLS=1000000`.
    let calls = std::env::var("FIRECLAY_RANDOM_CALLS").ok();
    let calls = calls.map_or(CALLS, |calls| calls.parse().expect("a number of calls"));
    for seed in 0..calls {
        let mut name = "";
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut draw = Draw::new(seed);
            let outputs = call(&mut draw, &mut name, &samples)?;
            // Backward too, where there is something to differentiate.
            for output in outputs.iter().filter(|output| output.requires_grad()) {
                output.sum_all()?.backward_with(None, retain)?;
            }
            Ok::<_, fireclay_tensor::Error>(())
        }));
        match outcome {
            Ok(Ok(())) => succeeded += 1,
            Ok(Err(error)) => assert!(!error.to_string().is_empty()),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text =
                    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                panics.push(format!(
                    "{name} (seed {seed}): {}",
                    text.unwrap_or_default()
                ));
            }
        }
    }
    std::panic::set_hook(hook);
    panics.truncate(40);
    assert!(panics.is_empty(), "{}", panics.join("\n"));
    assert!(succeeded > calls / 5, "only {succeeded} calls succeeded");
}
