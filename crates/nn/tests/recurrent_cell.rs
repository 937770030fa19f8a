//! Recurrent cells: names and initialisation as PyTorch's, rows without a batch, absent states, and what is refused.

use fireclay_nn::{
    GRUCell, LSTMCell, ModuleExt, ModuleFields, RNNCell, RNNCellConfig, RNNNonlinearity,
    RecurrentCellConfig,
};
use fireclay_tensor::{DType, Error, Result, Tensor, fork_rng, manual_seed};

fn randn(shape: &[usize]) -> Tensor {
    Tensor::randn(shape, "cpu").unwrap()
}

/// Products with one row have another order of sums than those with several.
fn assert_close(got: &Tensor, want: &Tensor) {
    assert_eq!(got.shape(), want.shape());
    for (got, want) in numbers(got).iter().zip(numbers(want)) {
        assert!((got - want).abs() < 1e-6, "{got} but {want}");
    }
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[test]
fn parameters_have_pytorchs_names_shapes_and_spread() {
    let check = |cell: &dyn ModuleFields, gates: usize| {
        let named = cell.named_parameters();
        let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]);
        let rows = gates * 64;
        let shapes = [vec![rows, 5], vec![rows, 64], vec![rows], vec![rows]];
        for ((name, parameter), shape) in named.iter().zip(shapes) {
            let tensor = parameter.tensor();
            assert_eq!(tensor.shape()[..], shape, "{name}");
            let most = numbers(&tensor)
                .iter()
                .fold(0f32, |most, x| most.max(x.abs()));
            assert!(most <= 0.125 && most > 0.1, "{name}: up to {most}");
        }
    };
    fork_rng(|| {
        manual_seed(4);
        check(&RNNCell::new(5, 64).unwrap(), 1);
        check(&GRUCell::new(5, 64).unwrap(), 3);
        check(&LSTMCell::new(5, 64).unwrap(), 4);
    });
    let config = RecurrentCellConfig {
        bias: false,
        dtype: DType::F64,
        ..Default::default()
    };
    let cell = GRUCell::with(2, 3, config).unwrap();
    assert_eq!(cell.parameters().len(), 2);
    assert_eq!(cell.weight_hh.tensor().dtype(), DType::F64);
    assert_eq!(GRUCell::new(2, 0).unwrap().num_parameters(), 0);
}

#[test]
fn a_row_alone_and_a_state_that_is_absent() {
    let (x, h, c) = (randn(&[2, 4]), randn(&[2, 3]), randn(&[2, 3]));
    let zeros = Tensor::zeros(&[2, 3], "cpu").unwrap();
    let row = |tensor: &Tensor| tensor.select(0, 1).unwrap();

    let lstm = LSTMCell::new(4, 3).unwrap();
    let (all, alone) = (
        lstm.forward(&x, Some((&h, &c))).unwrap(),
        lstm.forward(&row(&x), Some((&row(&h), &row(&c)))).unwrap(),
    );
    assert_eq!(alone.0.shape()[..], [3]);
    assert_close(&alone.0, &row(&all.0));
    assert_close(&alone.1, &row(&all.1));
    let (absent, given) = (
        lstm.forward(&x, None).unwrap(),
        lstm.forward(&x, Some((&zeros, &zeros))).unwrap(),
    );
    assert_eq!(numbers(&absent.1), numbers(&given.1));

    let gru = GRUCell::new(4, 3).unwrap();
    let all = gru.forward(&x, Some(&h)).unwrap();
    let alone = gru.forward(&row(&x), Some(&row(&h))).unwrap();
    assert_close(&alone, &row(&all));
    let absent = gru.forward(&row(&x), None).unwrap();
    assert_eq!(absent.shape()[..], [3]);

    let config = RNNCellConfig {
        nonlinearity: RNNNonlinearity::ReLU,
        ..Default::default()
    };
    let rnn = RNNCell::with(4, 3, config).unwrap();
    let all = rnn.forward(&x, Some(&h)).unwrap();
    assert!(numbers(&all).iter().all(|&x| x >= 0.0));
    let alone = rnn.forward(&row(&x), Some(&row(&h))).unwrap();
    assert_close(&alone, &row(&all));
    // No batch at all.
    let none = rnn.forward(&Tensor::zeros(&[0, 4], "cpu").unwrap(), None);
    assert_eq!(none.unwrap().shape()[..], [0, 3]);
    let (h, c) = lstm
        .forward(&Tensor::zeros(&[0, 4], "cpu").unwrap(), None)
        .unwrap();
    assert_eq!((h.numel(), c.shape()[1]), (0, 3));
}

#[test]
fn steps_learn() {
    // Whether the first of four numbers was positive: to be kept over three steps.
    let (cell, inputs) = fork_rng(|| {
        manual_seed(6);
        (LSTMCell::new(1, 8).unwrap(), randn(&[64, 4]))
    });
    let target = inputs.narrow(1, 0, 1).unwrap().gt(0.0).unwrap();
    let target = target.to_dtype(DType::F32).unwrap();
    let loss = || -> Result<Tensor> {
        let mut state: Option<(Tensor, Tensor)> = None;
        for step in 0..4 {
            let x = inputs.narrow(1, step, 1)?;
            let before = state.as_ref().map(|(h, c)| (h, c));
            state = Some(cell.forward(&x, before)?);
        }
        let (h, _) = state.expect("four steps");
        let logits = h.narrow(1, 0, 1)?.mul(6.0)?;
        logits.binary_cross_entropy_with_logits(
            &target,
            None,
            None,
            fireclay_tensor::Reduction::Mean,
        )
    };
    let first = loss().unwrap().item().unwrap();
    for _ in 0..150 {
        cell.zero_grad();
        loss().unwrap().backward().unwrap();
        for parameter in cell.parameters() {
            let (tensor, grad) = (parameter.tensor(), parameter.grad().unwrap());
            fireclay_tensor::no_grad(|| tensor.sub_(&grad.mul(0.5).unwrap())).unwrap();
        }
    }
    let last = loss().unwrap().item().unwrap();
    assert!(last < 0.5 * first, "from {first} to {last}");
}

#[test]
fn what_does_not_fit_is_named() {
    let cell = LSTMCell::new(4, 3).unwrap();
    cell.named_parameters();
    let x = randn(&[2, 4]);
    let state = randn(&[2, 3]);
    let refused = |result: Result<(Tensor, Tensor)>, parts: &[&str]| -> Error {
        let error = result.expect_err("refused");
        let text = error.to_string();
        for part in parts.iter().chain(&["lstm_cell", "in LSTMCell(4, 3)"]) {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        error
    };
    let error = refused(
        cell.forward(&randn(&[2, 5]), Some((&state, &state))),
        &["rows have 5 numbers, weight_ih takes 4"],
    );
    assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
    refused(
        cell.forward(&randn(&[1, 2, 4]), None),
        &["expected an input [batch, 4] or [4], got [1, 2, 4]"],
    );
    refused(
        cell.forward(&x, Some((&randn(&[3, 3]), &state))),
        &["expected hx [2, 3]", "got [3, 3]"],
    );
    refused(
        cell.forward(&x, Some((&state, &randn(&[2, 4])))),
        &["expected cx [2, 3]", "got [2, 4]"],
    );
    refused(
        cell.forward(&x, Some((&randn(&[3]), &state))),
        &["expected hx [2, 3]", "got [3]"],
    );
    let double = x.to_dtype(DType::F64).unwrap();
    let error = refused(
        cell.forward(&double, Some((&state, &state))),
        &["expected one dtype", "f64"],
    );
    assert!(matches!(error, Error::DTypeUnsupported { .. }), "{error}");
    let whole = Tensor::zeros(&[2, 4], "cpu").unwrap();
    let whole = whole.to_dtype(DType::I64).unwrap();
    assert!(cell.forward(&whole, None).is_err());

    let weights = cell.weight_ih.tensor().narrow(0, 0, 9).unwrap();
    let weights = fireclay_tensor::CellWeights {
        weight_ih: &weights,
        weight_hh: &cell.weight_hh.tensor(),
        bias_ih: None,
        bias_hh: None,
    };
    let text = x.gru_cell(&state, &weights).unwrap_err().to_string();
    assert!(
        text.contains("expected weight_ih [9, input_size] and weight_hh [9, 3]"),
        "{text}"
    );
    let gates = randn(&[2, 12]);
    let text = gates
        .fused_gru_cell(&gates, &state)
        .unwrap_err()
        .to_string();
    assert!(text.contains("gates [batch, 3 * hidden]"), "{text}");
}
