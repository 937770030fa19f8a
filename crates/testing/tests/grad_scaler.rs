//! What scaled losses cost on a device: a step waits once, whether it is made or not; clipping does not wait.

use fireclay_optim::{
    GradScaler, GradScalerOptions, Optimizer, SGD, SGDOptions, clip_grad_norm_, clip_grad_value_,
};
use fireclay_tensor::{Parameter, Tensor};
use fireclay_testing::devices::virtual_cuda;

#[test]
fn a_scaled_step_waits_once() {
    let device = virtual_cuda();
    let shapes = [[2, 3], [4, 1], [1, 5]];
    let parameters = shapes.map(|shape| {
        let ones = Tensor::ones(&shape, device).unwrap();
        Parameter::new(ones).unwrap()
    });
    let options = SGDOptions {
        lr: 0.5,
        ..Default::default()
    };
    let mut optimizer = SGD::new(parameters.clone(), options).unwrap();
    let mut scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
    let waits = fireclay_cuda::sync::count;
    for (factor, made) in [(1.0, true), (f64::INFINITY, false), (2.0, true)] {
        let before = waits();
        optimizer.zero_grad();
        let mut loss = Tensor::zeros(&[], device).unwrap();
        for parameter in &parameters[..2] {
            loss = loss.add(&parameter.tensor().sum_all().unwrap()).unwrap();
        }
        let last = parameters[2].tensor().mul(factor).unwrap();
        loss = loss.add(&last.sum_all().unwrap()).unwrap();
        scaler.scale(&loss).unwrap().backward().unwrap();
        assert_eq!(waits(), before, "the backward pass waits");
        scaler.unscale_(&optimizer).unwrap();
        assert_eq!(waits(), before + 1, "gradients are looked at once");
        clip_grad_value_(&parameters, 1.5).unwrap();
        clip_grad_norm_(&parameters, 100.0).unwrap();
        assert_eq!(scaler.step(&mut optimizer).unwrap(), made);
        scaler.update().unwrap();
        assert_eq!(waits(), before + 1, "a step waits again");
    }
    assert_eq!(scaler.get_scale(), 32768.0);
    let values = |number: usize| -> Vec<f32> {
        let tensor = parameters[number].tensor();
        tensor.to_vec().unwrap()
    };
    // Two steps of 0.5; the last one's second gradient was cut to 1.5.
    assert_eq!(values(0), [0.0; 6]);
    assert_eq!(values(2), [-0.25; 5]);
}
