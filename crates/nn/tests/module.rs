//! What every module can do: lists, modes, moves, state dicts and their errors.

use fireclay_nn::{
    BatchNorm2d, Buffer, Conv2d, Dropout, Embedding, EmbeddingConfig, Flatten, Identity, Linear,
    LinearConfig, Mode, Module, ModuleExt, ModuleFields, Parameter, ReLU, Sequential, sequential,
    strip_prefix,
};
use fireclay_tensor::{DType, Error, Result, Tensor, fork_rng, manual_seed, no_grad};

#[derive(Module)]
struct Net {
    body: Vec<Layer>,
    head: Linear,
    gate: Option<Parameter>,
    limits: [f64; 2],
    mode: Mode,
    #[module(skip)]
    calls: std::cell::Cell<usize>,
}

#[derive(Module)]
struct Layer {
    linear: Linear,
    norm: BatchNorm2d,
    dropout: Dropout,
    seen: Buffer,
}

fn net() -> Net {
    let layer = || Layer {
        linear: Linear::new(3, 3).unwrap(),
        norm: BatchNorm2d::new(3).unwrap(),
        dropout: Dropout::new(0.5).unwrap(),
        seen: Buffer::temporary(Tensor::zeros(&[1], "cpu").unwrap()),
    };
    Net {
        body: vec![layer(), layer()],
        head: Linear::with(
            3,
            2,
            LinearConfig {
                bias: false,
                ..Default::default()
            },
        )
        .unwrap(),
        gate: Some(Parameter::new(Tensor::ones(&[1], "cpu").unwrap()).unwrap()),
        limits: [0.0, 1.0],
        mode: Mode::new(),
        calls: std::cell::Cell::new(0),
    }
}

fn names<T>(entries: &[(String, T)]) -> Vec<&str> {
    entries.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn everything_in_a_module_is_listed() {
    let net = net();
    assert_eq!((net.limits, net.calls.get()), ([0.0, 1.0], 0));
    let parameters = net.named_parameters();
    assert_eq!(
        names(&parameters),
        [
            "body.0.linear.weight",
            "body.0.linear.bias",
            "body.0.norm.weight",
            "body.0.norm.bias",
            "body.1.linear.weight",
            "body.1.linear.bias",
            "body.1.norm.weight",
            "body.1.norm.bias",
            "head.weight",
            "gate"
        ]
    );
    assert_eq!(parameters[8].1.name().as_deref(), Some("head.weight"));
    assert_eq!(net.num_parameters(), 2 * (9 + 3 + 3 + 3) + 6 + 1);
    assert_eq!(
        net.named_children(),
        [
            ("body.0".to_owned(), "Layer"),
            ("body.1".to_owned(), "Layer"),
            ("head".to_owned(), "Linear")
        ]
    );
    let modules = net.named_modules();
    assert_eq!(modules.len(), 10);
    assert_eq!(
        (modules[0].1, modules[3].0.as_str(), modules[3].1),
        ("Net", "body.0.norm", "BatchNorm2d")
    );
    let state = net.state_dict();
    assert_eq!(state.len(), 10 + 2 * 3);
    assert!(!names(&state).iter().any(|name| name.ends_with("seen")));
    assert_eq!(net.named_buffers().len(), 2 * 4);
}

#[test]
fn the_mode_reaches_everything() {
    let net = net();
    let ones = Tensor::ones(&[2, 3, 2, 2], "cpu").unwrap();
    let dropout = &net.body[1].dropout;
    net.eval();
    assert!(!net.mode.is_training());
    assert_eq!(
        dropout.forward(&ones).unwrap().to_vec::<f32>().unwrap(),
        [1.0; 24]
    );
    net.body[0].norm.forward(&ones).unwrap();
    let count = |net: &Net| {
        let buffers = net.named_buffers();
        buffers
            .iter()
            .find(|(name, _)| name == "body.0.norm.num_batches_tracked")
            .unwrap()
            .1
            .tensor()
            .item()
            .unwrap()
    };
    assert_eq!(count(&net), 0.0);
    net.train();
    assert!(net.mode.is_training());
    net.body[0].norm.forward(&ones).unwrap();
    assert_eq!(count(&net), 1.0);
    let ones = Tensor::ones(&[1000], "cpu").unwrap();
    let dropped = fork_rng(|| {
        manual_seed(3);
        dropout.forward(&ones)
    });
    let dropped = dropped.unwrap().to_vec::<f32>().unwrap();
    let kept = dropped.iter().filter(|&&x| x == 2.0).count();
    assert!((400..600).contains(&kept), "{kept}");
    assert!(dropped.iter().all(|&x| x == 0.0 || x == 2.0));
}

#[test]
fn a_cast_reaches_floats_and_keeps_whole_numbers() {
    let net = net();
    let held = net.parameters();
    net.to_dtype(DType::F64).unwrap();
    assert!(
        held.iter()
            .all(|parameter| parameter.tensor().dtype() == DType::F64 && parameter.requires_grad())
    );
    for (name, buffer) in net.named_buffers() {
        let expected = if name.ends_with("tracked") {
            DType::I64
        } else {
            DType::F64
        };
        assert_eq!(buffer.tensor().dtype(), expected, "{name}");
    }
    let loss = net
        .head
        .forward(
            &Tensor::ones(&[1, 3], "cpu")
                .unwrap()
                .to_dtype(DType::F64)
                .unwrap(),
        )
        .unwrap();
    loss.sum_all().unwrap().backward().unwrap();
    assert_eq!(held[8].grad().unwrap().to_vec::<f64>().unwrap(), [1.0; 6]);
    net.zero_grad();
    assert!(held[8].grad().is_none());
}

#[test]
fn a_move_that_fails_changes_nothing() {
    let net = net();
    let before = net.head.weight.tensor();
    net.to("cpu").unwrap();
    assert!(net.head.weight.tensor().is_same(&before));
    let error = net.to("cuda:7").unwrap_err();
    assert!(matches!(error, Error::DeviceUnavailable { .. }), "{error}");
    assert!(
        net.parameters()
            .iter()
            .all(|parameter| parameter.tensor().device().is_cpu())
    );
    assert!(net.to("gpu").is_err());
}

#[test]
fn freezing_stops_gradients() {
    let net = net();
    net.body[0].linear.requires_grad_(false).unwrap();
    let frozen = net
        .named_parameters()
        .into_iter()
        .filter(|(_, parameter)| !parameter.requires_grad());
    let frozen: Vec<String> = frozen.map(|(name, _)| name).collect();
    assert_eq!(frozen, ["body.0.linear.weight", "body.0.linear.bias"]);
}

#[test]
fn apply_initialises_by_type() {
    let net = net();
    net.apply(&mut |name, module: &dyn ModuleFields| {
        if module.type_name() == "Linear" {
            assert!(name.ends_with("linear") || name == "head");
            for parameter in module.parameters() {
                fireclay_nn::init::constant_(&parameter.tensor(), 0.25).unwrap();
            }
        }
    });
    assert_eq!(net.head.weight.tensor().to_vec::<f32>().unwrap(), [0.25; 6]);
    // The names from further out stay.
    net.parameters();
    net.head.parameters();
    assert_eq!(net.head.weight.name().as_deref(), Some("head.weight"));
}

#[test]
fn a_state_dict_is_copied_into_the_tensors() {
    let (from, into) = (net(), net());
    let held = into.head.weight.tensor();
    from.to_dtype(DType::F64).unwrap();
    assert_eq!(
        into.load_state_dict(&from.state_dict(), true).unwrap(),
        Default::default()
    );
    assert!(into.head.weight.tensor().is_same(&held));
    assert!(held.requires_grad() && held.is_leaf());
    let single = from.head.weight.tensor().to_dtype(DType::F32).unwrap();
    assert_eq!(
        held.to_vec::<f32>().unwrap(),
        single.to_vec::<f32>().unwrap()
    );
    let shared = into.state_dict().pop().unwrap().1;
    no_grad(|| shared.fill_(7.0)).unwrap();
    assert_eq!(into.gate.as_ref().unwrap().tensor().item().unwrap(), 7.0);
}

fn mismatch(error: Error) -> (Vec<String>, Vec<String>, Vec<String>, String) {
    match error {
        Error::StateDictMismatch {
            missing,
            unexpected,
            mismatched,
            hint,
            ..
        } => (missing, unexpected, mismatched, hint),
        other => panic!("{other}"),
    }
}

#[test]
fn everything_that_does_not_fit_is_reported_and_nothing_changed() {
    let net = net();
    let before = net.head.weight.tensor().to_vec::<f32>().unwrap();
    let mut state: Vec<(String, Tensor)> = net
        .state_dict()
        .into_iter()
        .map(|(name, tensor)| (name, tensor.zeros_like().unwrap()))
        .collect();
    let position = |state: &[(String, Tensor)], name: &str| {
        state.iter().position(|(known, _)| known == name).unwrap()
    };
    let at = position(&state, "gate");
    state[at].0 = "gates".into();
    let at = position(&state, "body.1.linear.bias");
    state[at].1 = Tensor::zeros(&[4], "cpu").unwrap();
    state.push(("head.weight".into(), Tensor::zeros(&[2, 3], "cpu").unwrap()));
    let error = net.load_state_dict(&state, true).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("Net: the state dict does not fit"),
        "{text}"
    );
    let (missing, unexpected, mismatched, hint) = mismatch(error);
    assert_eq!(
        (missing, unexpected),
        (vec!["gate".to_owned()], vec!["gates".to_owned()])
    );
    assert_eq!(
        mismatched,
        [
            "head.weight (given twice)",
            "body.1.linear.bias (expected [3], got [4])"
        ]
    );
    assert_eq!(hint, "close names: gates for gate");
    assert_eq!(net.head.weight.tensor().to_vec::<f32>().unwrap(), before);

    state.pop();
    state[at].1 = Tensor::zeros(&[3], "cpu").unwrap();
    let report = net.load_state_dict(&state, false).unwrap();
    assert_eq!(
        (report.missing, report.unexpected),
        (vec!["gate".to_owned()], vec!["gates".to_owned()])
    );
    assert_eq!(net.head.weight.tensor().to_vec::<f32>().unwrap(), [0.0; 6]);
    assert_eq!(net.gate.as_ref().unwrap().tensor().item().unwrap(), 1.0);
}

#[test]
fn a_wrappers_prefix_is_recognised() {
    let net = net();
    for prefix in ["module.", "_orig_mod."] {
        let wrapped = |name: String| format!("{prefix}{name}");
        let state: Vec<(String, Tensor)> = net
            .state_dict()
            .into_iter()
            .map(|(name, tensor)| (wrapped(name), tensor))
            .collect();
        let (.., hint) = mismatch(net.load_state_dict(&state, true).unwrap_err());
        assert!(
            hint.contains(&format!("strip_prefix(state, {prefix:?})")),
            "{hint}"
        );
        net.load_state_dict(&strip_prefix(state, prefix), true)
            .unwrap();
    }
}

#[test]
fn sequential_takes_boxes_and_nests() {
    let layers: Vec<Box<dyn Module>> = vec![Box::new(Linear::new(4, 2).unwrap()), Box::new(ReLU)];
    let model = Sequential::from(layers).push(sequential![Flatten::new(), Identity]);
    assert_eq!((model.len(), model.is_empty()), (3, false));
    let modules = model.named_modules();
    assert_eq!(names(&modules), ["", "0", "1", "2", "2.0", "2.1"]);
    let types: Vec<&str> = model.iter().map(|layer| layer.type_name()).collect();
    assert_eq!(types, ["Linear", "ReLU", "Sequential"]);
    let output = model
        .forward(&Tensor::zeros(&[5, 4], "cpu").unwrap())
        .unwrap();
    assert_eq!(&output.shape()[..], [5, 2]);
    let input = Tensor::ones(&[1], "cpu").unwrap();
    assert!(Sequential::new().forward(&input).unwrap().is_same(&input));
}

#[test]
fn default_weights_are_pytorchs() -> Result<()> {
    fork_rng(|| {
        manual_seed(0);
        let bounds = |tensor: Tensor| -> Result<(f64, f64)> {
            Ok((
                tensor.amin(&[], false)?.item()?,
                tensor.amax(&[], false)?.item()?,
            ))
        };
        let linear = Linear::new(100, 400)?;
        let conv = Conv2d::new(4, 400, 5)?;
        for parameter in linear.parameters().into_iter().chain(conv.parameters()) {
            let (low, high) = bounds(parameter.tensor())?;
            assert!(
                (-0.1001..-0.095).contains(&low) && (0.095..0.1001).contains(&high),
                "{parameter:?}: {low} to {high}"
            );
        }
        let table = Embedding::with(
            500,
            20,
            EmbeddingConfig {
                padding_idx: Some(3),
                ..Default::default()
            },
        )?;
        let rows = table.weight.tensor();
        assert_eq!(rows.narrow(0, 3, 1)?.to_vec::<f32>()?, [0.0; 20]);
        let (std, mean) = (rows.std(&[], 1.0, false)?.item()?, rows.mean_all()?.item()?);
        assert!(
            (std - 1.0).abs() < 0.03 && mean.abs() < 0.03,
            "{mean} {std}"
        );
        Ok(())
    })
}

#[test]
fn errors_name_shapes_and_the_layer() {
    let net = net();
    net.parameters();
    let input = Tensor::zeros(&[5, 4], "cpu").unwrap();
    let text = net.body[1].linear.forward(&input).unwrap_err().to_string();
    for expected in [
        "linear: ",
        "f32[5, 4]",
        "f32[3, 3]",
        "module.rs",
        "in body.1.linear: Linear(3, 3)",
    ] {
        assert!(text.contains(expected), "{expected} not in {text}");
    }
    let text = net.body[0].norm.forward(&input).unwrap_err().to_string();
    assert!(
        text.contains("BatchNorm2d takes [4] dimensions, got 2") && text.contains("in body.0.norm"),
        "{text}"
    );
    let conv = Conv2d::new(3, 8, 3).unwrap();
    let text = conv
        .forward(&Tensor::zeros(&[1, 1, 8, 8], "cpu").unwrap())
        .unwrap_err()
        .to_string();
    assert!(text.contains("in Conv2d(3, 8, [3, 3])"), "{text}");
    let table = Embedding::new(4, 2).unwrap();
    let text = table
        .forward(&Tensor::from_slice(&[1i64, 4], &[2], "cpu").unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("index 4") && text.contains("in Embedding(4, 2)"),
        "{text}"
    );
    assert!(Conv2d::new(3, 8, 0).is_err());
    assert!(
        Dropout::new(1.5)
            .err()
            .unwrap()
            .to_string()
            .contains("got 1.5")
    );
    let [a, b] = [[4, 1], [4, 4]].map(|shape| Tensor::zeros(&shape, "cpu").unwrap());
    let text = fireclay_nn::MSELoss::new()
        .forward(&a, &b)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("mse_loss: input and target must have one shape, got [4, 1] and [4, 4]"),
        "{text}"
    );
}

#[test]
fn a_layer_norm_over_nothing_is_refused() {
    let error = fireclay_nn::LayerNorm::new(&[]).unwrap_err().to_string();
    assert!(error.contains("normalized_shape"), "{error}");
}
