//! Layers and losses against what PyTorch computed (`fixtures/generate.py`): outputs, gradients, buffers, names.

use fireclay_nn::losses::CrossEntropyOptions;
use fireclay_nn::{
    AdaptiveAvgPool2d, AvgPool2d, BCEWithLogitsLoss, BatchNorm1d, BatchNorm2d, BatchNormConfig,
    Buffer, Conv2d, Conv2dConfig, CrossEntropyLoss, Dropout, ELU, Embedding, EmbeddingConfig,
    Flatten, GELU, GroupNorm, Identity, L1Loss, LayerNorm, LeakyReLU, Linear, LinearConfig,
    LogSoftmax, MSELoss, MaxPool2d, Module, ModuleExt, Parameter, RMSNorm, ReLU, Sequential, SiLU,
    Sigmoid, Softmax, Softplus, Tanh, sequential,
};
use fireclay_tensor::{DType, Pool2d, Reduction, Result, Tensor};
use serde_json::Value;

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/layers.json")).unwrap()
}

fn tensor(value: &Value) -> Tensor {
    let numbers = |value: &Value| -> Vec<f64> {
        let items = value.as_array().unwrap().iter();
        items.map(|item| item.as_f64().unwrap()).collect()
    };
    let shape: Vec<usize> = numbers(&value["shape"])
        .iter()
        .map(|&size| size as usize)
        .collect();
    let tensor = Tensor::from_slice(&numbers(&value["data"]), &shape, "cpu").unwrap();
    let whole = value["whole"].as_bool().unwrap();
    tensor
        .to_dtype(if whole { DType::I64 } else { DType::F32 })
        .unwrap()
}

fn named(value: &Value) -> Vec<(String, Tensor)> {
    let entries = value.as_object().unwrap().iter();
    entries
        .map(|(name, value)| (name.clone(), tensor(value)))
        .collect()
}

fn assert_close(got: &Tensor, expected: &Value, what: &str) {
    let expected = tensor(expected);
    assert_eq!(got.shape(), expected.shape(), "{what}");
    assert_eq!(got.dtype(), expected.dtype(), "{what}");
    let elements = |tensor: &Tensor| {
        tensor
            .to_dtype(DType::F64)
            .unwrap()
            .to_vec::<f64>()
            .unwrap()
    };
    for (index, (got, expected)) in elements(got).iter().zip(elements(&expected)).enumerate() {
        let error = (got - expected).abs() / expected.abs().max(1.0);
        assert!(
            error <= 4e-6,
            "{what}, element {index}: got {got}, expected {expected}"
        );
    }
}

fn layer(name: &str) -> Result<Box<dyn Module>> {
    Ok(match name {
        "linear" => Box::new(Linear::new(5, 3)?),
        "linear_no_bias" => Box::new(Linear::with(
            5,
            3,
            LinearConfig {
                bias: false,
                ..Default::default()
            },
        )?),
        "conv2d" => Box::new(Conv2d::new(3, 4, 3)?),
        "conv2d_options" => {
            let config = Conv2dConfig {
                stride: [2, 1],
                padding: [1, 2],
                dilation: [1, 2],
                groups: 2,
                ..Default::default()
            };
            Box::new(Conv2d::with(4, 6, [3, 2], config)?)
        }
        "batch_norm2d" | "batch_norm2d_eval" => Box::new(BatchNorm2d::new(3)?),
        "batch_norm2d_average" => Box::new(BatchNorm2d::with(
            3,
            BatchNormConfig {
                momentum: None,
                ..Default::default()
            },
        )?),
        "batch_norm2d_untracked" => {
            let config = BatchNormConfig {
                track_running_stats: false,
                affine: false,
                ..Default::default()
            };
            Box::new(BatchNorm2d::with(3, config)?)
        }
        "batch_norm1d" | "batch_norm1d_sequence" => Box::new(BatchNorm1d::new(4)?),
        "layer_norm" => Box::new(LayerNorm::new(&[3, 4])?),
        "rms_norm" => Box::new(RMSNorm::new(&[3, 4])?),
        "group_norm" => Box::new(GroupNorm::new(2, 4)?),
        "embedding" => Box::new(Embedding::new(7, 3)?),
        "embedding_padding" => {
            let config = EmbeddingConfig {
                padding_idx: Some(2),
                ..Default::default()
            };
            Box::new(Embedding::with(7, 3, config)?)
        }
        "dropout_eval" => Box::new(Dropout::new(0.7)?),
        "relu" => Box::new(ReLU),
        "leaky_relu" => Box::new(LeakyReLU::new(0.2)),
        "elu" => Box::new(ELU::new(1.5)),
        "softplus" => Box::new(Softplus::new(2.0, 1.0)),
        "gelu" => Box::new(GELU::new()),
        "gelu_tanh" => Box::new(GELU { tanh: true }),
        "silu" => Box::new(SiLU),
        "sigmoid" => Box::new(Sigmoid),
        "tanh" => Box::new(Tanh),
        "softmax" => Box::new(Softmax::new(1)),
        "log_softmax" => Box::new(LogSoftmax::new(-1)),
        "max_pool2d" => Box::new(MaxPool2d::new(2)),
        "max_pool2d_options" => Box::new(MaxPool2d::with(Pool2d {
            stride: [2, 1],
            padding: [1, 1],
            ceil_mode: true,
            ..Pool2d::new([3, 2])
        })),
        "avg_pool2d" => Box::new(AvgPool2d::with(fireclay_tensor::AvgPool2d {
            window: Pool2d {
                stride: [2, 2],
                padding: [1, 1],
                ..Pool2d::new([3, 3])
            },
            count_include_pad: false,
            divisor_override: None,
        })),
        "adaptive_avg_pool2d" => Box::new(AdaptiveAvgPool2d::new([3, 2])),
        "flatten" => Box::new(Flatten::new()),
        "identity" => Box::new(Identity),
        "sequential" => Box::new(sequential![
            Conv2d::with(
                1,
                2,
                3,
                Conv2dConfig {
                    padding: [1, 1],
                    ..Default::default()
                }
            )?,
            BatchNorm2d::new(2)?,
            ReLU,
            MaxPool2d::new(2),
            Flatten::new(),
            Linear::new(18, 4)?,
        ]),
        other => panic!("{other}"),
    })
}

#[test]
fn layers_compute_as_pytorchs() {
    for case in fixture()["layers"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let module = layer(name).unwrap();
        module
            .load_state_dict(&named(&case["state"]), true)
            .unwrap();
        module.set_training(case["mode"] == "train");
        let mut last = None;
        for input in case["inputs"].as_array().unwrap() {
            module.zero_grad();
            let input = tensor(input);
            if input.dtype().is_floating_point() {
                input.requires_grad_(true).unwrap();
            }
            last = Some((module.forward(&input).unwrap(), input));
        }
        let (output, input) = last.unwrap();
        assert_close(&output, &case["output"], &format!("{name}: output"));
        output
            .backward_with(Some(&tensor(&case["grad"])), Default::default())
            .unwrap();
        match (&case["input_grad"], input.grad()) {
            (Value::Null, None) => {}
            (expected, Some(grad)) => {
                assert_close(&grad, expected, &format!("{name}: input's gradient"))
            }
            (_, None) => panic!("{name}: no gradient of the input"),
        }
        let grads = case["grads"].as_object().unwrap();
        assert_eq!(module.parameters().len(), grads.len(), "{name}");
        for (parameter_name, parameter) in module.named_parameters() {
            let what = format!("{name}: gradient of {parameter_name}");
            assert_close(
                &parameter.grad().expect(&what),
                &grads[&parameter_name],
                &what,
            );
        }
        let buffers = case["after"].as_object().unwrap();
        assert_eq!(module.named_buffers().len(), buffers.len(), "{name}");
        for (buffer_name, buffer) in module.named_buffers() {
            assert_close(
                &buffer.tensor(),
                &buffers[&buffer_name],
                &format!("{name}: {buffer_name}"),
            );
        }
    }
}

type Loss = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor>>;

fn loss(name: &str, case: &Value) -> Loss {
    let weights = named(&case["weights"]);
    let weight = |name: &str| {
        let found = weights.iter().find(|(known, _)| known == name);
        found.map(|(_, tensor)| tensor.clone())
    };
    let bce = |loss: BCEWithLogitsLoss| -> Loss { Box::new(move |x, y| loss.forward(x, y)) };
    let cross = |loss: CrossEntropyLoss| -> Loss { Box::new(move |x, y| loss.forward(x, y)) };
    match name {
        "cross_entropy" => cross(CrossEntropyLoss::new()),
        "cross_entropy_options" => {
            let options = CrossEntropyOptions {
                ignore_index: 3,
                label_smoothing: 0.1,
                ..Default::default()
            };
            cross(CrossEntropyLoss::with(weight("weight"), options))
        }
        "cross_entropy_sum" => {
            let options = CrossEntropyOptions {
                reduction: Reduction::Sum,
                ..Default::default()
            };
            cross(CrossEntropyLoss::with(None, options))
        }
        "mse" => Box::new(|x, y| MSELoss::new().forward(x, y)),
        "mse_none" => Box::new(|x, y| MSELoss::with(Reduction::None).forward(x, y)),
        "l1" => Box::new(|x, y| L1Loss::with(Reduction::Sum).forward(x, y)),
        "bce" => bce(BCEWithLogitsLoss::new()),
        "bce_weights" => bce(BCEWithLogitsLoss::with(
            weight("weight"),
            weight("pos_weight"),
            Reduction::Mean,
        )),
        other => panic!("{other}"),
    }
}

#[test]
fn losses_compute_as_pytorchs() {
    for case in fixture()["losses"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let input = tensor(&case["input"]).requires_grad_(true).unwrap();
        let output = loss(name, case)(&input, &tensor(&case["target"])).unwrap();
        assert_close(&output, &case["output"], name);
        output.sum_all().unwrap().backward().unwrap();
        assert_close(
            &input.grad().unwrap(),
            &case["input_grad"],
            &format!("{name}: gradient"),
        );
    }
}

#[derive(Module)]
struct Block {
    scratch: Buffer,
    conv: Conv2d,
    norm: BatchNorm2d,
}

#[derive(Module)]
struct Net {
    scale: Parameter,
    table: Embedding,
    blocks: Vec<Block>,
    head: Sequential,
    tied: std::sync::Arc<Linear>,
}

/// The module of the fixture's `Net`: fields in the order in which PyTorch lists them, a module's own tensors first.
fn net() -> Result<Net> {
    let block = || -> Result<Block> {
        Ok(Block {
            scratch: Buffer::temporary(Tensor::zeros(&[1], "cpu")?),
            conv: Conv2d::with(
                1,
                2,
                3,
                Conv2dConfig {
                    bias: false,
                    ..Default::default()
                },
            )?,
            norm: BatchNorm2d::new(2)?,
        })
    };
    let tied = std::sync::Arc::new(Linear::new(8, 3)?);
    Ok(Net {
        scale: Parameter::new(Tensor::ones(&[1], "cpu")?)?,
        table: Embedding::new(5, 2)?,
        blocks: vec![block()?, block()?],
        head: sequential![
            Flatten::new(),
            tied.clone(),
            ReLU,
            sequential![LayerNorm::new(&[3])?, Linear::new(3, 2)?]
        ],
        tied,
    })
}

#[test]
fn names_are_pytorchs() {
    let expected = &fixture()["names"];
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().unwrap().iter();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let net = net().unwrap();
    let names = |entries: Vec<(String, Tensor)>| -> Vec<String> {
        entries.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(net.state_dict()), texts(&expected["state_dict"]));
    let parameters: Vec<String> = net
        .named_parameters()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(parameters, texts(&expected["parameters"]));
    let buffers: Vec<String> = net
        .named_buffers()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(buffers, texts(&expected["buffers"]));
}
