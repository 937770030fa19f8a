//! Moving tensors, modules and training between devices, and what is said where devices meet that shouldn't.

use fireclay_nn::{BatchNorm1d, Linear, Module, ModuleExt};
use fireclay_optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use fireclay_tensor::{
    CrossEntropy, DType, Device, Error, Formula, Result, Tensor, fork_rng, manual_seed, no_grad,
};
use fireclay_testing::devices::virtual_cuda;

/// Two devices.
fn devices() -> [Device; 2] {
    [virtual_cuda(), Device::Cuda(1)]
}

fn numbers(shape: &[usize], device: Device) -> Tensor {
    let count: usize = shape.iter().product();
    let numbers: Vec<f32> = (0..count)
        .map(|place| ((place * 37 % 101) as f32 - 50.0) / 7.0)
        .collect();
    Tensor::from_slice(&numbers, shape, device).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.to_bytes().unwrap()
}

#[derive(Module)]
struct Net {
    hidden: Linear,
    norm: BatchNorm1d,
    output: Linear,
}

impl Net {
    fn new() -> Net {
        fork_rng(|| {
            manual_seed(11);
            Net {
                hidden: Linear::new(6, 5).unwrap(),
                norm: BatchNorm1d::new(5).unwrap(),
                output: Linear::new(5, 3).unwrap(),
            }
        })
    }
}

impl Module for Net {
    /// The norm is there for its buffers only: it has no CUDA kernel yet.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(x)?.tanh()?)
    }
}

#[test]
fn to_gives_the_very_tensor_where_nothing_changes() {
    let [first, second] = devices();
    for device in [Device::Cpu, first, second] {
        let x = numbers(&[2, 3], device);
        assert!(x.to(device).unwrap().is_same(&x));
        let view = x.transpose(0, 1).unwrap();
        assert!(view.to(device).unwrap().is_same(&view));
    }
    let x = numbers(&[2, 3], first);
    assert!(x.cuda().unwrap().is_same(&x), "cuda is the current device");
    let _current = fireclay_cuda::surface::device(second).unwrap();
    let moved = x.to("cuda").unwrap();
    assert_eq!((moved.device(), bits(&moved)), (second, bits(&x)));
    assert!(x.to("cuda:0").unwrap().is_same(&x));
    // Strides stay, so that a move doesn't rearrange.
    let view = x.transpose(0, 1).unwrap();
    assert_eq!(view.to(second).unwrap().strides(), view.strides());
}

#[test]
fn gradients_flow_back_through_moves() {
    let [first, second] = devices();
    let x = numbers(&[4], Device::Cpu).requires_grad_(true).unwrap();
    let there = x.to(first).unwrap().mul(2.0).unwrap();
    let beyond = there.to(second).unwrap().square().unwrap();
    let back = beyond.cpu().unwrap();
    back.sum_all().unwrap().backward().unwrap();
    let grad = x.grad().unwrap();
    assert_eq!(grad.device(), Device::Cpu);
    let expected = x.detach().mul(8.0).unwrap();
    assert_eq!(bits(&grad), bits(&expected));
    assert!(there.grad().is_none() && !there.is_leaf());
    assert!(x.to(first).unwrap().requires_grad());
    assert!(!no_grad(|| x.to(first)).unwrap().requires_grad());
}

#[test]
fn copies_cross_devices_with_casts_broadcasts_and_gradients() {
    let [first, second] = devices();
    let all = [Device::Cpu, first, second];
    for from in all {
        for to in all {
            let target = Tensor::zeros(&[3, 4], to).unwrap();
            target.copy_(&numbers(&[4], from)).unwrap();
            let host = Tensor::zeros(&[3, 4], "cpu").unwrap();
            host.copy_(&numbers(&[4], Device::Cpu)).unwrap();
            assert_eq!(bits(&target), bits(&host), "{from} to {to}");
            // Into a strided view, cast on the way.
            let whole = Tensor::full_of(&[4, 6], 7.0, DType::F64, to).unwrap();
            let view = whole.transpose(0, 1).unwrap().narrow(0, 1, 2).unwrap();
            view.copy_(&numbers(&[2, 4], from)).unwrap();
            let host = Tensor::full_of(&[4, 6], 7.0, DType::F64, "cpu").unwrap();
            let view = host.transpose(0, 1).unwrap().narrow(0, 1, 2).unwrap();
            view.copy_(&numbers(&[2, 4], Device::Cpu)).unwrap();
            assert_eq!(bits(&whole), bits(&host), "{from} to {to}");

            let x = numbers(&[4], from).requires_grad_(true).unwrap();
            let target = Tensor::zeros(&[3, 4], to).unwrap();
            target.copy_(&x).unwrap();
            target.sum_all().unwrap().backward().unwrap();
            let grad = x.grad().unwrap();
            assert_eq!(grad.device(), from);
            assert_eq!(grad.to_vec::<f32>().unwrap(), [3.0; 4], "{from} to {to}");
        }
    }
}

#[test]
fn numbers_of_the_host_go_along() {
    let [first, second] = devices();
    let x = numbers(&[4], first);
    let number = Tensor::scalar(2.0f32, "cpu").unwrap();
    let doubled = bits(&x.mul(2.0).unwrap());
    for result in [x.mul(&number), number.mul(&x), (&x * &number).eval()] {
        let result = result.unwrap();
        assert_eq!((result.device(), bits(&result)), (first, doubled.clone()));
    }
    // In place too; the dtype of a number without dimensions doesn't widen.
    let wide = Tensor::scalar(2.0f64, "cpu").unwrap();
    assert_eq!(x.mul(&wide).unwrap().dtype(), DType::F32);
    let y = x.copy().unwrap();
    y.mul_(&number).unwrap();
    assert_eq!(bits(&y), doubled);
    // Several at once, which PyTorch refuses: each is a small upload.
    let both = (&x * &number + &number).eval().unwrap();
    assert_eq!(bits(&both), bits(&(&x * 2.0 + 2.0).eval().unwrap()));
    // Its gradient comes back to the host.
    let scale = Tensor::scalar(2.0f32, "cpu").unwrap();
    let scale = scale.requires_grad_(true).unwrap();
    x.mul(&scale)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let grad = scale.grad().unwrap();
    assert_eq!(grad.device(), Device::Cpu);
    assert_eq!(bits(&grad), bits(&x.sum_all().unwrap()));
    scale.zero_grad();
    let y = x.copy().unwrap();
    y.mul_(&scale).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(bits(&scale.grad().unwrap()), bits(&grad), "in place");
    // Not the other way round, not between GPUs, not into a host tensor, and not in ops that are no formulas.
    let host = numbers(&[4], Device::Cpu);
    let there = Tensor::scalar(2.0f32, first).unwrap();
    let matrix = numbers(&[2, 2], first);
    for refused in [
        host.mul(&there),
        host.mul_(&there),
        x.mul(&Tensor::scalar(2.0f32, second).unwrap()),
        Tensor::cat(&[&x, &host], 0),
        matrix.matmul(&numbers(&[2, 2], Device::Cpu)),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
    }
}

/// Every kind of op that takes more than one tensor.
#[test]
fn other_mixtures_are_errors_with_a_table_of_operands() {
    let [first, second] = devices();
    let host = numbers(&[2, 2], Device::Cpu);
    let there = host.to(first).unwrap();
    let beyond = there.to(second).unwrap();
    let classes = Tensor::from_slice(&[0i64, 1], &[2], "cpu").unwrap();
    let row = numbers(&[2], Device::Cpu);
    let x: Formula = &there * &host;
    let loss = CrossEntropy::default();
    let cases: [(&str, Result<Tensor>); 14] = [
        ("add", there.add(&host)),
        ("add", host.add(&there)),
        ("sub", there.sub(&beyond)),
        ("mul", x.eval()),
        ("add", there.add_(&host)),
        ("lt", there.lt(&host)),
        ("matmul", there.matmul(&host)),
        ("linear", there.linear(&host, None)),
        ("linear", there.linear(&beyond, Some(&row))),
        ("cat", Tensor::cat(&[&there, &host], 0)),
        ("index_select", there.index_select(0, &classes)),
        ("gather", there.gather(0, &classes.unsqueeze(0).unwrap())),
        ("cross_entropy", there.cross_entropy(&classes, loss)),
        ("embedding", there.embedding(&classes)),
    ];
    for (number, (op, result)) in cases.into_iter().enumerate() {
        let error = result.unwrap_err();
        let is_mismatch = matches!(error, Error::DeviceMismatch { .. });
        assert!(is_mismatch, "{number}, {op}: {error}");
        let text = error.to_string();
        assert!(text.contains(op), "{number}, {op}: {text}");
        assert!(
            text.contains("all operands must be on one device"),
            "{text}"
        );
        let lines = text.matches(" on cuda:").count() + text.matches(" on cpu, ").count();
        assert!(lines >= 2, "{number}, {op}: {text}");
        let origins = text.matches("moving.rs:").count();
        assert!(origins >= 2, "{number}, {op}, where made or moved: {text}");
        assert!(text.contains(", moved at "), "{number}, {op}: {text}");
        assert!(
            text.contains("hint: before ") && text.contains(" bytes)"),
            "{number}, {op}: {text}"
        );
        assert!(text.contains(".to(\"cuda:"), "{number}, {op}: {text}");
    }
}

#[test]
fn a_parameter_in_a_mixture_is_told_by_its_name() {
    let [first, _] = devices();
    let net = Net::new();
    let x = numbers(&[2, 6], first);
    net.parameters();
    let text = net.forward(&x).unwrap_err().to_string();
    for part in [
        "linear: all operands must be on one device, got cpu and cuda:0",
        "input 0: f32[2, 6] on cuda:0, made at ",
        "(hidden.weight): f32[5, 6] on cpu, made at ",
        "(hidden.bias): f32[5] on cpu, made at ",
        "move hidden.weight (120 bytes) and hidden.bias (20 bytes) to cuda:0: the module, model.to(\"cuda:0\")?",
        "in hidden: Linear(6, 5)",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    net.to(first).unwrap();
    let line = line!() - 1;
    let host = numbers(&[2, 6], Device::Cpu);
    let text = net.forward(&host).unwrap_err().to_string();
    for part in [
        "input 0: f32[2, 6] on cpu, made at ".to_owned(),
        "(hidden.weight): f32[5, 6] on cuda:0, moved at ".to_owned(),
        format!("moving.rs:{line}:"),
        "move input 0 (48 bytes) to cuda:0: x.to(\"cuda:0\")?".to_owned(),
    ] {
        assert!(text.contains(&part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn a_module_moves_in_place() {
    let [first, second] = devices();
    let net = Net::new();
    let before: Vec<(String, Vec<u8>)> = net
        .state_dict()
        .iter()
        .map(|(name, tensor)| (name.clone(), bits(tensor)))
        .collect();
    let weight = net.hidden.weight.clone();
    let loss = |x: &Tensor| net.forward(x).unwrap().square().unwrap().sum_all().unwrap();
    loss(&numbers(&[4, 6], Device::Cpu)).backward().unwrap();
    let grad = bits(&weight.grad().unwrap());
    for device in [first, second, Device::Cpu, first] {
        net.to(device).unwrap();
        for (name, tensor) in net.state_dict() {
            assert_eq!(tensor.device(), device, "{name}");
        }
        let after = net.state_dict();
        for ((name, tensor), (_, before)) in after.iter().zip(&before) {
            assert_eq!(&bits(tensor), before, "{name}");
        }
        assert_eq!(weight.tensor().device(), device, "the handle sees the move");
        assert!(weight.requires_grad() && weight.tensor().is_leaf());
        let moved = weight.grad().unwrap();
        assert_eq!((moved.device(), bits(&moved)), (device, grad.clone()));
        let tensor = weight.tensor();
        net.to(device).unwrap();
        assert!(weight.tensor().is_same(&tensor), "nothing to move");
    }
    // A gradient that comes after a move is where the parameter is.
    net.zero_grad();
    loss(&numbers(&[4, 6], first)).backward().unwrap();
    let moved = weight.grad().unwrap();
    assert_eq!((moved.device(), bits(&moved)), (first, grad));
}

type Make = fn(&Net) -> Box<dyn Optimizer>;

#[test]
fn the_state_of_an_optimizer_follows_its_parameters() {
    let [first, second] = devices();
    let optimizers: [(&str, Make); 3] = [
        ("AdamW", |net| {
            Box::new(AdamW::new(net.parameters(), AdamWOptions::default()).unwrap())
        }),
        ("Adam with amsgrad", |net| {
            let options = AdamOptions {
                amsgrad: true,
                ..AdamOptions::default()
            };
            Box::new(Adam::new(net.parameters(), options).unwrap())
        }),
        ("SGD with momentum", |net| {
            let options = SGDOptions {
                lr: 0.05,
                momentum: 0.9,
                ..SGDOptions::default()
            };
            Box::new(SGD::new(net.parameters(), options).unwrap())
        }),
    ];
    // Where each step is made; the optimizer is built before the first, on the host.
    let stays = [Device::Cpu; 6];
    let travels = [Device::Cpu, first, first, second, Device::Cpu, first];
    for (name, make) in optimizers {
        let train = |places: [Device; 6]| -> Vec<Vec<u8>> {
            let net = Net::new();
            let mut optimizer = make(&net);
            let mut found = Vec::new();
            for (number, device) in places.into_iter().enumerate() {
                net.to(device).unwrap();
                let x = numbers(&[8 + number, 6], device);
                let classes: Vec<i64> = (0..8 + number).map(|row| (row % 3) as i64).collect();
                let classes = Tensor::from_slice(&classes, &[classes.len()], device).unwrap();
                optimizer.zero_grad();
                let scores = net.forward(&x).unwrap();
                let loss = scores.cross_entropy(&classes, CrossEntropy::default());
                loss.unwrap().backward().unwrap();
                optimizer.step().unwrap();
                found.extend(net.parameters().iter().map(|p| bits(&p.tensor())));
            }
            for (name, tensor) in optimizer.state_dict().tensors {
                assert_eq!(tensor.device(), places[5], "{name}");
                found.push(bits(&tensor));
            }
            found
        };
        assert!(train(travels) == train(stays), "{name}: the bits differ");
    }
}
