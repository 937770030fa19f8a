//! Samples of matrix products, layers and losses.

use fireclay_tensor::{
    Activation, BatchNorm, CrossEntropy, LinearEpilogue, Reduction, Tensor, fork_rng, manual_seed,
};

use super::List;

pub(super) fn add(list: &mut List) {
    products(list);
    norms(list);
    losses(list);
}

/// Products to which more is done.
pub(super) fn add_fused(list: &mut List) {
    epilogues(list);
    sums_with_products(list);
}

fn products(list: &mut List) {
    let shapes: [[&[usize]; 2]; 7] = [
        [&[2, 3], &[3, 4]],
        [&[2, 2, 3], &[3, 2]],
        [&[2, 1, 2, 3], &[3, 3, 1]],
        [&[3], &[3, 2]],
        [&[2, 3], &[3]],
        [&[3], &[3]],
        [&[2, 0], &[0, 3]],
    ];
    for [a, b] in shapes {
        let inputs = vec![list.plain(a), list.plain(b)];
        list.add("matmul", inputs, |x| x[0].matmul(&x[1]));
    }
    let vectors = vec![list.plain(&[3]), list.plain(&[3])];
    list.add("dot", vectors.clone(), |x| x[0].dot(&x[1]));
    list.add("outer", vectors, |x| x[0].outer(&x[1]));
    let (x, weight, bias) = (
        list.plain(&[2, 2, 3]),
        list.plain(&[4, 3]),
        list.plain(&[4]),
    );
    list.add("linear", vec![x.clone(), weight.clone(), bias], |x| {
        x[0].linear(&x[1], Some(&x[2]))
    });
    list.add("linear", vec![x, weight], |x| x[0].linear(&x[1], None));
}

/// Linear layers with an activation and a residual: no bias for every other one, and inputs of relu away from its kink.
fn epilogues(list: &mut List) {
    let activations = [
        None,
        Some(Activation::Relu),
        Some(Activation::Gelu),
        Some(Activation::GeluTanh),
        Some(Activation::Silu),
    ];
    for (number, activation) in activations.into_iter().enumerate() {
        for (rows, inner, cols) in [(3, 2, 5), (1, 3, 1), (2, 1, 3)] {
            let x = list.draw.tensor(&[rows, inner], 0.3, 1.0, &[]);
            let weight = list.draw.tensor(&[cols, inner], 0.3, 1.0, &[]);
            let weight = match number % 2 {
                0 => weight,
                _ => weight.neg().expect("a sign"),
            };
            let (bias, residual) = (list.plain(&[cols]), list.plain(&[rows, cols]));
            let with = move |x: &[Tensor], bias: Option<usize>, residual: Option<usize>| {
                let epilogue = LinearEpilogue {
                    activation,
                    residual: residual.map(|index| &x[index]),
                };
                x[0].linear_with(&x[1], bias.map(|index| &x[index]), epilogue)
            };
            let inputs = vec![x.clone(), weight.clone(), residual.clone()];
            list.add("linear", inputs, move |x| with(x, None, Some(2)));
            if activation == Some(Activation::Relu) {
                let inputs = vec![x.clone(), weight.clone()];
                list.add("linear", inputs, move |x| with(x, None, None));
                continue;
            }
            let inputs = vec![x.clone(), weight.clone(), bias.clone()];
            list.add("linear", inputs, move |x| with(x, Some(2), None));
            list.add("linear", vec![x, weight, bias, residual], move |x| {
                with(x, Some(2), Some(3))
            });
        }
    }
}

/// `addmm` and its kin: what is added is whole, a row, a column, a number or nothing.
fn sums_with_products(list: &mut List) {
    for (input, beta, alpha) in [
        (&[2, 4][..], 1.0, 1.0),
        (&[4], 0.5, 2.0),
        (&[2, 1], -1.0, 0.25),
        (&[], 2.0, 1.0),
        // What is not read must not be taken for a bias.
        (&[4], 0.0, 1.0),
        (&[], 0.0, 1.0),
        (&[2, 4], 0.0, 0.5),
    ] {
        let inputs = vec![list.plain(&[2, 3]), list.plain(&[3, 4]), list.plain(input)];
        list.add("addmm", inputs, move |x| {
            x[2].addmm(&x[0], &x[1], beta, alpha)
        });
    }
    let inputs = vec![list.plain(&[2, 0]), list.plain(&[0, 3]), list.plain(&[3])];
    list.add("addmm", inputs, |x| x[2].addmm(&x[0], &x[1], 1.0, 1.0));
    for input in [&[2, 2, 3][..], &[2, 3], &[3], &[2, 1, 1]] {
        let factors = [list.plain(&[2, 2, 4]), list.plain(&[2, 4, 3])];
        let inputs = vec![factors[0].clone(), factors[1].clone(), list.plain(input)];
        list.add("baddbmm", inputs, |x| x[2].baddbmm(&x[0], &x[1], 0.5, -1.0));
    }
    for input in [&[3][..], &[1]] {
        let inputs = vec![list.plain(&[3, 2]), list.plain(&[2]), list.plain(input)];
        list.add("addmv", inputs, |x| x[2].addmv(&x[0], &x[1], 2.0, 0.5));
    }
}

fn norms(list: &mut List) {
    let x = list.plain(&[2, 2, 4, 3]);
    list.add("dropout", vec![x], |x| {
        fork_rng(|| {
            manual_seed(3);
            x[0].dropout(0.4, true)
        })
    });
    let (x, weight, bias) = (
        list.plain(&[4, 2, 3]),
        list.plain(&[2, 3]),
        list.plain(&[2, 3]),
    );
    list.add("layer_norm", vec![x.clone(), weight, bias], |x| {
        x[0].layer_norm(&[2, 3], Some(&x[1]), Some(&x[2]), 1e-5)
    });
    list.add("layer_norm", vec![x.clone()], |x| {
        x[0].layer_norm(&[3], None, None, 1e-2)
    });
    let (weight, bias) = (list.plain(&[2]), list.plain(&[2]));
    list.add(
        "batch_norm",
        vec![x.clone(), weight.clone(), bias.clone()],
        |x| {
            x[0].batch_norm(BatchNorm {
                weight: Some(&x[1]),
                bias: Some(&x[2]),
                training: true,
                ..BatchNorm::default()
            })
        },
    );
    let (mean, variance) = (list.plain(&[2]), list.draw.tensor(&[2], 0.5, 2.0, &[]));
    let inputs = vec![x, weight, bias, mean, variance];
    list.add("batch_norm", inputs, |x| {
        x[0].batch_norm(BatchNorm {
            weight: Some(&x[1]),
            bias: Some(&x[2]),
            running: Some((&x[3], &x[4])),
            training: false,
            ..BatchNorm::default()
        })
    });
}

fn losses(list: &mut List) {
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        let (x, y) = (list.plain(&[3, 4]), list.plain(&[3, 4]));
        list.add("mse_loss", vec![x.clone(), y.clone()], move |x| {
            x[0].mse_loss(&x[1], reduction)
        });
        let apart = y.add(5.0).expect("a sum with a number");
        list.add("l1_loss", vec![x.clone(), apart], move |x| {
            x[0].l1_loss(&x[1], reduction)
        });
        let (target, scale) = (list.draw.tensor(&[3, 4], 0.1, 0.9, &[]), list.plain(&[4]));
        list.add(
            "binary_cross_entropy_with_logits",
            vec![x.clone(), target, scale],
            move |x| x[0].binary_cross_entropy_with_logits(&x[1], None, Some(&x[2]), reduction),
        );
        let options = CrossEntropy {
            ignore_index: 2,
            reduction,
            ..CrossEntropy::default()
        };
        let classes = list.draw.ints(&[3], 0, 3);
        list.add(
            "cross_entropy",
            vec![x.clone(), classes.clone()],
            move |x| x[0].cross_entropy(&x[1], options),
        );
        let smooth = CrossEntropy {
            label_smoothing: 0.2,
            ..options
        };
        list.add(
            "cross_entropy",
            vec![x.clone(), classes.clone()],
            move |x| x[0].cross_entropy(&x[1], smooth),
        );
        list.add("nll_loss", vec![x, classes], move |x| {
            x[0].nll_loss(&x[1], options)
        });
        let (x, weight) = (
            list.plain(&[2, 3, 2, 2]),
            list.draw.tensor(&[3], 0.5, 2.0, &[]),
        );
        let classes = list.draw.ints(&[2, 2, 2], 0, 2);
        list.add("cross_entropy", vec![x, classes], move |x: &[Tensor]| {
            let weight = weight.to(x[0].device())?.to_dtype(x[0].dtype())?;
            let options = CrossEntropy {
                weight: Some(&weight),
                reduction,
                ..CrossEntropy::default()
            };
            x[0].cross_entropy(&x[1], options)
        });
    }
}
