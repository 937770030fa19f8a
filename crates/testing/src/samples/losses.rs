//! Samples of losses that are made of other ops.

use fireclay_tensor::{
    CrossEntropy, Ctc, DType, Device, GaussianNll, KlDivReduction, MultiMargin, PoissonNll,
    Reduction, Tensor, TripletMargin,
};

use super::List;
use crate::draw::Draw;

pub(super) fn add(list: &mut List) {
    // Numbers of their own: those of samples that follow stay as they are.
    let before = std::mem::replace(&mut list.draw, Draw::new(2028));
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        distances(list, reduction);
        likelihoods(list, reduction);
        margins(list, reduction);
        labels(list, reduction);
        sequences(list, reduction);
    }
    list.draw = before;
}

/// 1 and -1.
fn signs(list: &mut List, count: usize) -> Tensor {
    let signs: Vec<i64> = (0..count)
        .map(|_| if list.draw.flip() { 1 } else { -1 })
        .collect();
    Tensor::from_slice(&signs, &[count], "cpu").expect("a vector")
}

fn distances(list: &mut List, reduction: Reduction) {
    let zero = Tensor::full_of(&[3, 4], 0.0, DType::F64, Device::Cpu).expect("zeros");
    let x = list.draw.tensor(&[3, 4], -2.0, 2.0, &[-0.7, 0.0, 0.7]);
    let weight = list.draw.tensor(&[3, 4], 0.5, 2.0, &[]);
    let inputs = vec![x.clone(), zero.clone()];
    list.add("smooth_l1_loss", inputs, move |x| {
        x[0].smooth_l1_loss(&x[1], 0.7, reduction)
    });
    let inputs = vec![x.clone(), zero.clone(), weight.clone()];
    list.add("huber_loss", inputs.clone(), move |x| {
        x[0].huber_loss(&x[1], Some(&x[2]), 0.7, reduction)
    });
    list.add("mse_loss", inputs.clone(), move |x| {
        x[0].weighted_mse_loss(&x[1], &x[2], reduction)
    });
    list.add("l1_loss", inputs, move |x| {
        x[0].weighted_l1_loss(&x[1], &x[2], reduction)
    });
}

fn likelihoods(list: &mut List, reduction: Reduction) {
    let [p, t] = [(); 2].map(|()| list.draw.tensor(&[3, 4], 0.1, 0.9, &[]));
    let weight = list.draw.tensor(&[4], 0.5, 2.0, &[]);
    list.add(
        "binary_cross_entropy",
        vec![p.clone(), t.clone(), weight],
        move |x| x[0].binary_cross_entropy(&x[1], Some(&x[2]), reduction),
    );
    let x = list.plain(&[3, 4]);
    list.add("kl_div", vec![x.clone(), t.clone()], move |x| {
        x[0].kl_div(&x[1], false, reduction)
    });
    list.add("kl_div", vec![x.clone(), x.neg().expect("a sign")], |x| {
        x[0].kl_div(&x[1], true, KlDivReduction::BatchMean)
    });
    let counts = list.draw.tensor(&[3, 4], 1.1, 5.0, &[]);
    for log_input in [true, false] {
        let options = PoissonNll {
            log_input,
            full: !log_input,
            reduction,
            ..PoissonNll::default()
        };
        list.add(
            "poisson_nll_loss",
            vec![p.clone(), counts.clone()],
            move |x| x[0].poisson_nll_loss(&x[1], options),
        );
    }
    let var = list.draw.tensor(&[3], 0.3, 2.0, &[]);
    list.add("gaussian_nll_loss", vec![x.clone(), t, var], move |x| {
        let options = GaussianNll {
            full: true,
            reduction,
            ..GaussianNll::default()
        };
        x[0].gaussian_nll_loss(&x[1], &x[2], options)
    });
    let sides = signs(list, 4);
    list.add("soft_margin_loss", vec![x, sides], move |x| {
        x[0].soft_margin_loss(&x[1], reduction)
    });
    let (x, shares) = (
        list.plain(&[2, 3, 2]),
        list.draw.tensor(&[2, 3, 2], 0.1, 0.9, &[]),
    );
    let weight = list.draw.tensor(&[3], 0.5, 2.0, &[]);
    list.add("cross_entropy", vec![x, shares, weight], move |x| {
        let options = CrossEntropy {
            weight: Some(&x[2]),
            label_smoothing: 0.1,
            reduction,
            ..CrossEntropy::default()
        };
        x[0].cross_entropy(&x[1], options)
    });
}

fn margins(list: &mut List, reduction: Reduction) {
    let [a, b, c] = [(); 3].map(|()| list.plain(&[4, 3]));
    let sides = signs(list, 4);
    // The smallest cosine is -1.
    list.add(
        "cosine_embedding_loss",
        vec![a.clone(), b.clone(), sides.clone()],
        move |x| x[0].cosine_embedding_loss(&x[1], &x[2], -1.1, reduction),
    );
    for (p, swap) in [(2.0, false), (2.0, true), (3.0, false)] {
        let options = TripletMargin {
            margin: 20.0,
            p,
            swap,
            reduction,
            ..TripletMargin::default()
        };
        let inputs = vec![a.clone(), b.clone(), c.clone()];
        list.add("triplet_margin_loss", inputs, move |x| {
            x[0].triplet_margin_loss(&x[1], &x[2], options)
        });
    }
    let x = list.draw.tensor(&[4], -2.0, 2.0, &[0.0, 0.5]);
    list.add(
        "hinge_embedding_loss",
        vec![x.clone(), sides.clone()],
        move |x| x[0].hinge_embedding_loss(&x[1], 0.5, reduction),
    );
    let far = list.draw.tensor(&[4], 3.0, 5.0, &[]);
    list.add("margin_ranking_loss", vec![x, far, sides], move |x| {
        x[0].margin_ranking_loss(&x[1], &x[2], 0.5, reduction)
    });
}

fn labels(list: &mut List, reduction: Reduction) {
    // No difference is 4 or more: nothing is cut.
    let x = list.plain(&[3, 4]);
    let (classes, weight) = (
        list.draw.ints(&[3], 0, 3),
        list.draw.tensor(&[4], 0.5, 2.0, &[]),
    );
    for p in [1, 2] {
        let inputs = vec![x.clone(), classes.clone(), weight.clone()];
        list.add("multi_margin_loss", inputs, move |x| {
            let options = MultiMargin {
                p,
                margin: 4.5,
                weight: Some(&x[2]),
                reduction,
            };
            x[0].multi_margin_loss(&x[1], options)
        });
    }
    let lists = Tensor::from_slice(&[2i64, 0, -1, 1, -1, 0, 0, 0, 3, 1, 0, 2], &[3, 4], "cpu");
    let near = x.mul(0.2).expect("a product with a number");
    list.add(
        "multilabel_margin_loss",
        vec![near, lists.expect("a matrix")],
        move |x| x[0].multilabel_margin_loss(&x[1], reduction),
    );
    let truths = list.draw.tensor(&[3, 4], 0.1, 0.9, &[]);
    list.add(
        "multilabel_soft_margin_loss",
        vec![x, truths, weight],
        move |x| x[0].multilabel_soft_margin_loss(&x[1], Some(&x[2]), reduction),
    );
}

/// The gradient is that of log-probabilities which come from `log_softmax`.
fn sequences(list: &mut List, reduction: Reduction) {
    let x = list.plain(&[5, 2, 4]);
    let targets = Tensor::from_slice(&[1i64, 1, 3, 2, 0, 0], &[2, 3], "cpu").expect("a matrix");
    let options = Ctc {
        reduction,
        ..Ctc::default()
    };
    list.add("ctc_loss", vec![x, targets], move |x| {
        x[0].log_softmax(2)?
            .ctc_loss(&x[1], &[5, 4], &[3, 1], options)
    });
    let x = list.plain(&[3, 2, 4]);
    let row = Tensor::from_slice(&[1i64, 1, 0, 2], &[4], "cpu").expect("a vector");
    let options = Ctc {
        blank: 3,
        zero_infinity: true,
        ..options
    };
    // Of the first target there is no path.
    list.add("ctc_loss", vec![x, row], move |x| {
        x[0].log_softmax(2)?
            .ctc_loss(&x[1], &[2, 3], &[2, 2], options)
    });
}
