//! Losses: what their golden cases do not show.

use fireclay_tensor::{Ctc, Error, GaussianNll, KlDivReduction, MultiMargin, Reduction, Tensor};

fn tensor(numbers: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(numbers, shape, "cpu").unwrap()
}

fn leaf(numbers: &[f64], shape: &[usize]) -> Tensor {
    tensor(numbers, shape).requires_grad_(true).unwrap()
}

fn classes(numbers: &[i64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(numbers, shape, "cpu").unwrap()
}

#[test]
fn probabilities_outside_of_0_to_1_are_refused_with_their_number() {
    let x = tensor(&[0.5, 1.5, f64::NAN, -0.1], &[4]);
    let error = x
        .binary_cross_entropy(&x, None, Reduction::Mean)
        .unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }));
    let text = error.to_string();
    assert!(
        text.contains("binary_cross_entropy") && text.contains("got 3 other"),
        "{text}"
    );
    let text = x
        .gaussian_nll_loss(&x, &tensor(&[-1.0; 4], &[4]), GaussianNll::default())
        .unwrap_err()
        .to_string();
    assert!(text.contains("variances are not negative"), "{text}");
}

#[test]
fn binary_cross_entropy_has_finite_gradients_at_0_and_1() {
    let x = leaf(&[0.0, 1.0, 0.0, 1.0], &[4]);
    let t = tensor(&[0.0, 1.0, 1.0, 0.0], &[4]);
    let loss = x.binary_cross_entropy(&t, None, Reduction::Sum).unwrap();
    assert_eq!(loss.item().unwrap(), 200.0);
    loss.backward().unwrap();
    let grad = x.grad().unwrap().to_vec::<f64>().unwrap();
    assert_eq!(grad, [0.0, 0.0, -1e12, 1e12]);
}

/// PyTorch: the variance's gradient passes by the bound.
#[test]
fn a_variance_below_eps_counts_as_eps_and_has_a_gradient() {
    let (x, t) = (tensor(&[1.0], &[1]), tensor(&[0.0], &[1]));
    let var = leaf(&[0.0], &[1]);
    let options = GaussianNll {
        eps: 0.5,
        ..GaussianNll::default()
    };
    let loss = x.gaussian_nll_loss(&t, &var, options).unwrap();
    assert!((loss.item().unwrap() - 0.5 * (0.5f64.ln() + 2.0)).abs() < 1e-12);
    loss.backward().unwrap();
    let grad = var.grad().unwrap().item().unwrap();
    assert!((grad - 0.5 * (2.0 - 4.0)).abs() < 1e-12, "{grad}");
}

#[test]
fn a_target_without_a_path_costs_infinity_or_nothing() {
    let x = leaf(&[-1.0; 6], &[2, 1, 3]);
    let targets = classes(&[1, 1, 2], &[1, 3]);
    let loss = |zero_infinity: bool| {
        let options = Ctc {
            zero_infinity,
            ..Ctc::default()
        };
        x.ctc_loss(&targets, &[2], &[3], options)
    };
    assert_eq!(loss(false).unwrap().item().unwrap(), f64::INFINITY);
    let none = loss(true).unwrap();
    assert_eq!(none.item().unwrap(), 0.0);
    none.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [0.0; 6]);
}

#[test]
fn sequences_may_be_empty_and_impossible_classes_infinite() {
    let x = tensor(&[-0.5, -1.0, f64::NEG_INFINITY], &[1, 1, 3]);
    let loss = |targets: &Tensor, inputs: usize, count: usize| {
        x.ctc_loss(targets, &[inputs], &[count], Ctc::default())
            .and_then(|loss| loss.item())
            .unwrap()
    };
    let none = classes(&[], &[1, 0]);
    assert_eq!(loss(&none, 1, 0), 0.5);
    assert_eq!(loss(&none, 0, 0), 0.0);
    assert_eq!(loss(&classes(&[], &[0]), 1, 0), 0.5);
    assert_eq!(loss(&classes(&[1], &[1]), 1, 1), 1.0);
    assert_eq!(loss(&classes(&[2], &[1]), 1, 1), f64::INFINITY);
    let nobody = Tensor::zeros(&[2, 0, 3], "cpu").unwrap();
    let sum = Ctc {
        reduction: Reduction::Sum,
        ..Ctc::default()
    };
    let loss = nobody.ctc_loss(&classes(&[], &[0, 2]), &[], &[], sum);
    assert_eq!(loss.unwrap().item().unwrap(), 0.0);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let x = Tensor::zeros(&[4, 2, 3], "cpu").unwrap();
    let targets = classes(&[1, 2, 1, 2], &[2, 2]);
    let row = classes(&[1, 2, 1], &[3]);
    let told = |targets: &Tensor, inputs: &[usize], lengths: &[usize], blank: usize| {
        let options = Ctc {
            blank,
            ..Ctc::default()
        };
        let error = x.ctc_loss(targets, inputs, lengths, options).unwrap_err();
        error.to_string()
    };
    assert!(told(&targets, &[4, 5], &[2, 2], 0).contains("length 5 is longer than 4"));
    assert!(told(&targets, &[4, 4], &[3, 2], 0).contains("length 3 is longer than 2"));
    assert!(told(&targets, &[4], &[2, 2], 0).contains("2 input lengths, got 1"));
    assert!(told(&targets, &[4, 4], &[2, 2], 3).contains("below 3 classes, got 3"));
    assert!(told(&row, &[4, 4], &[2, 2], 0).contains("must sum up to 3"));
    assert!(told(&row, &[4, 4], &[usize::MAX, 4], 0).contains("must sum up to 3"));
    assert!(told(&classes(&[1, 7, 1, 2], &[2, 2]), &[4, 4], &[2, 2], 0).contains('7'));
}

#[test]
fn rows_without_labels_cost_nothing() {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    let none = classes(&[-1, 0, -1, -1], &[2, 2]);
    let loss = x.multilabel_margin_loss(&none, Reduction::Mean).unwrap();
    assert_eq!(loss.item().unwrap(), 0.0);
    loss.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [0.0; 4]);
    let error = x.multilabel_margin_loss(&classes(&[2, 0, 0, 0], &[2, 2]), Reduction::Mean);
    assert!(matches!(error, Err(Error::IndexOutOfRange { .. })));
}

#[test]
fn one_row_and_no_rows_are_taken() {
    let row = tensor(&[0.1, 0.2, 0.7], &[3]);
    let options = MultiMargin {
        reduction: Reduction::None,
        ..MultiMargin::default()
    };
    let loss = row.multi_margin_loss(&classes(&[2], &[]), options).unwrap();
    assert_eq!(loss.ndim(), 0);
    assert!((loss.item().unwrap() - (0.4 + 0.5) / 3.0).abs() < 1e-12);
    let empty = Tensor::zeros(&[0, 3], "cpu").unwrap();
    let loss = empty
        .multi_margin_loss(&classes(&[], &[0]), options)
        .unwrap();
    assert_eq!(&loss.shape()[..], [0]);
    let mean = empty.multi_margin_loss(&classes(&[], &[0]), MultiMargin::default());
    assert!(mean.unwrap().item().unwrap().is_nan());
    let scalar = tensor(&[1.0], &[]);
    let loss = scalar.kl_div(&scalar, false, KlDivReduction::BatchMean);
    assert_eq!(loss.unwrap().item().unwrap(), -1.0);
    assert!(
        scalar
            .multi_margin_loss(&classes(&[0], &[]), options)
            .is_err()
    );
    assert!(
        scalar
            .multilabel_margin_loss(&classes(&[0], &[]), Reduction::Mean)
            .is_err()
    );
    assert!(
        scalar
            .multilabel_soft_margin_loss(&scalar, None, Reduction::Mean)
            .is_err()
    );
    assert!(scalar.cross_entropy(&scalar, Default::default()).is_err());
    assert!(
        scalar
            .cosine_embedding_loss(&scalar, &scalar, 0.0, Reduction::Mean)
            .is_err()
    );
}

/// The mean in f32, rounded once: in bf16, 257 ones would sum to 256.
#[test]
fn sixteen_bit_losses_are_rounded_once() {
    let ones = Tensor::full_of(&[259], 1.0, fireclay_tensor::DType::BF16, "cpu").unwrap();
    let zeros = ones.mul(0.0).unwrap();
    let sum = ones.mse_loss(&zeros, Reduction::Sum).unwrap();
    assert_eq!(sum.dtype(), fireclay_tensor::DType::BF16);
    assert_eq!(sum.item().unwrap(), 260.0);
    assert_eq!(
        ones.mse_loss(&zeros, Reduction::Mean)
            .unwrap()
            .item()
            .unwrap(),
        1.0
    );
}
