//! Optimizers and schedules against what PyTorch did (`fixtures/generate.py`).

use fireclay_optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, ConstantLR, CosineAnnealingLR, ExponentialLR, LambdaLR,
    LinearLR, MultiStepLR, Optimizer, SGD, SGDOptions, Schedule, Scheduler, SequentialLR, StepLR,
};
use fireclay_tensor::{DType, Parameter, Tensor};
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f64> {
    let items = value.as_array().unwrap().iter();
    items.map(|item| item.as_f64().unwrap()).collect()
}

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn assert_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        let error = (got - expected).abs() / expected.abs().max(1.0);
        assert!(error <= tolerance, "{what}: got {got}, expected {expected}");
    }
}

fn elements(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec().unwrap()
}

fn optimizer(case: &Value, parameters: Vec<Parameter>) -> Box<dyn Optimizer> {
    let options = &case["options"];
    let number = |name: &str, default: f64| options[name].as_f64().unwrap_or(default);
    let truth = |name: &str| options[name].as_bool().unwrap_or(false);
    let betas = match options["betas"].as_array() {
        Some(betas) => (betas[0].as_f64().unwrap(), betas[1].as_f64().unwrap()),
        None => AdamOptions::default().betas,
    };
    match case["name"].as_str().unwrap() {
        "SGD" => Box::new(
            SGD::new(
                parameters,
                SGDOptions {
                    lr: number("lr", 1e-3),
                    momentum: number("momentum", 0.0),
                    dampening: number("dampening", 0.0),
                    weight_decay: number("weight_decay", 0.0),
                    nesterov: truth("nesterov"),
                    maximize: truth("maximize"),
                },
            )
            .unwrap(),
        ),
        "Adam" => Box::new(
            Adam::new(
                parameters,
                AdamOptions {
                    lr: number("lr", 1e-3),
                    betas,
                    eps: number("eps", 1e-8),
                    weight_decay: number("weight_decay", 0.0),
                    amsgrad: truth("amsgrad"),
                    maximize: truth("maximize"),
                },
            )
            .unwrap(),
        ),
        "AdamW" => Box::new(
            AdamW::new(
                parameters,
                AdamWOptions {
                    lr: number("lr", 1e-3),
                    betas,
                    eps: number("eps", 1e-8),
                    weight_decay: number("weight_decay", 1e-2),
                    amsgrad: truth("amsgrad"),
                    maximize: truth("maximize"),
                },
            )
            .unwrap(),
        ),
        other => panic!("{other}"),
    }
}

#[test]
fn optimizers_step_as_pytorchs() {
    let fixture = fixture(include_str!("fixtures/optimizers.json"));
    let start = fixture["start"].as_array().unwrap();
    let grads: Vec<Vec<f64>> = fixture["grads"]
        .as_array()
        .unwrap()
        .iter()
        .map(numbers)
        .collect();
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 3e-6)] {
        for case in fixture["cases"].as_array().unwrap() {
            let what = format!("{} {} in {dtype}", case["name"], case["options"]);
            let tensor = |elements: &[f64]| {
                let tensor = Tensor::from_slice(elements, &[5], "cpu").unwrap();
                tensor.to_dtype(dtype).unwrap()
            };
            let parameter = |row: &Value| Parameter::new(tensor(&numbers(row))).unwrap();
            let parameters: Vec<Parameter> = start.iter().map(parameter).collect();
            let mut optimizer = optimizer(case, parameters.clone());
            let mut trace = Vec::new();
            for (step, grad) in grads.iter().enumerate() {
                optimizer.zero_grad();
                parameters[0].tensor().set_grad(Some(tensor(grad))).unwrap();
                if step % 2 == 0 {
                    let reversed: Vec<f64> = grad.iter().rev().copied().collect();
                    parameters[1]
                        .tensor()
                        .set_grad(Some(tensor(&reversed)))
                        .unwrap();
                }
                optimizer.step().unwrap();
                if [0, 1, 4, 19].contains(&step) {
                    trace.push(
                        parameters
                            .iter()
                            .map(|p| elements(&p.tensor()))
                            .collect::<Vec<_>>(),
                    );
                }
            }
            for (got, expected) in trace.iter().zip(case["trace"].as_array().unwrap()) {
                for (got, expected) in got.iter().zip(expected.as_array().unwrap()) {
                    assert_close(got, &numbers(expected), tolerance, &what);
                }
            }
            let state = optimizer.state_dict();
            for (name, expected) in case["state"].as_object().unwrap() {
                match expected {
                    Value::Array(_) => {
                        let got = elements(
                            state
                                .tensor(name)
                                .unwrap_or_else(|| panic!("{what}: {name}")),
                        );
                        assert_close(
                            &got,
                            &numbers(expected),
                            tolerance,
                            &format!("{what}: {name}"),
                        );
                    }
                    _ => assert_eq!(state.number(name), expected.as_f64(), "{what}: {name}"),
                }
            }
        }
    }
}

#[test]
fn schedules_are_pytorchs() {
    let fixture = fixture(include_str!("fixtures/schedules.json"));
    let schedules: Vec<(&str, Box<dyn Schedule>)> = vec![
        (
            "StepLR",
            Box::new(StepLR {
                step_size: 4,
                gamma: 0.3,
            }),
        ),
        (
            "MultiStepLR",
            Box::new(MultiStepLR {
                milestones: vec![3, 7, 8],
                gamma: 0.5,
            }),
        ),
        ("ExponentialLR", Box::new(ExponentialLR { gamma: 0.9 })),
        (
            "ConstantLR",
            Box::new(ConstantLR {
                factor: 0.25,
                total_iters: 5,
            }),
        ),
        (
            "LinearLR",
            Box::new(LinearLR {
                start_factor: 0.1,
                end_factor: 0.8,
                total_iters: 6,
            }),
        ),
        (
            "CosineAnnealingLR",
            Box::new(CosineAnnealingLR {
                t_max: 10,
                eta_min: 0.01,
            }),
        ),
        (
            "LambdaLR",
            Box::new(LambdaLR(|step| 1.0 / (1.0 + step as f64))),
        ),
        (
            "SequentialLR",
            Box::new(
                SequentialLR::new(LinearLR {
                    start_factor: 0.2,
                    end_factor: 1.0,
                    total_iters: 5,
                })
                .then(
                    5,
                    CosineAnnealingLR {
                        t_max: 12,
                        eta_min: 0.001,
                    },
                )
                .then(17, ExponentialLR { gamma: 0.5 }),
            ),
        ),
    ];
    assert_eq!(schedules.len(), fixture.as_object().unwrap().len());
    for (name, schedule) in schedules {
        let group = |lr| {
            (
                vec![Parameter::new(Tensor::zeros(&[1], "cpu").unwrap()).unwrap()],
                SGDOptions {
                    lr,
                    ..Default::default()
                },
            )
        };
        let (parameters, options) = group(0.4);
        let mut optimizer = SGD::new(parameters, options).unwrap();
        let (parameters, options) = group(0.1);
        assert_eq!(optimizer.add_param_group(parameters, options).unwrap(), 1);
        let mut scheduler = Scheduler::new(&mut optimizer, schedule).unwrap();
        for (step, expected) in fixture[name].as_array().unwrap().iter().enumerate() {
            let got = [optimizer.lr(0), optimizer.lr(1)];
            assert_close(
                &got,
                &numbers(expected),
                // PyTorch multiplies the rate step by step, and gathers rounding.
                1e-13,
                &format!("{name} at {step}"),
            );
            assert_eq!(scheduler.last_epoch(), step as u64);
            scheduler.step(&mut optimizer).unwrap();
        }
    }
}
