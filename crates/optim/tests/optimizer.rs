//! What optimizers, schedulers and clipping promise beyond their formulas.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fireclay_optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, Batch, CosineAnnealingLR, Fused, LinearLR, Optimizer,
    Rule, SGD, SGDOptions, Schedule, Scheduler, SequentialLR, StepLR, clip_grad_norm_,
    clip_grad_value_, warmup_cosine,
};
use fireclay_tensor::{DType, Error, Parameter, Result, StateDict, Tensor};

fn parameter(elements: &[f32]) -> Parameter {
    Parameter::new(Tensor::from_slice(elements, &[elements.len()], "cpu").unwrap()).unwrap()
}

fn set_grad(parameter: &Parameter, elements: &[f32]) {
    let grad = Tensor::from_slice(elements, &[elements.len()], "cpu").unwrap();
    let tensor = parameter.tensor();
    tensor
        .set_grad(Some(grad.to_dtype(tensor.dtype()).unwrap()))
        .unwrap();
}

fn elements(parameter: &Parameter) -> Vec<f32> {
    parameter
        .tensor()
        .to_dtype(DType::F32)
        .unwrap()
        .to_vec()
        .unwrap()
}

/// AdamW as its paper and PyTorch's documentation write it, in f64.
#[test]
fn adamw_follows_the_algorithm() {
    let options = AdamWOptions {
        lr: 0.03,
        weight_decay: 0.1,
        ..Default::default()
    };
    let weight = parameter(&[0.5, -1.5, 2.0]);
    let mut optimizer = AdamW::new([weight.clone()], options).unwrap();
    let mut model = [0.5f64, -1.5, 2.0];
    let (mut first, mut second) = ([0.0f64; 3], [0.0f64; 3]);
    for step in 1..=20 {
        let grad = model.map(|x| x + (step as f64).sin());
        set_grad(&weight, &grad.map(|x| x as f32));
        optimizer.step().unwrap();
        for i in 0..3 {
            model[i] -= options.lr * options.weight_decay * model[i];
            first[i] = 0.9 * first[i] + 0.1 * grad[i];
            second[i] = 0.999 * second[i] + 0.001 * grad[i] * grad[i];
            let corrected = first[i] / (1.0 - 0.9f64.powi(step));
            let square = second[i] / (1.0 - 0.999f64.powi(step));
            model[i] -= options.lr * corrected / (square.sqrt() + 1e-8);
        }
        for (got, expected) in elements(&weight).iter().zip(model) {
            assert!(
                (f64::from(*got) - expected).abs() < 1e-5,
                "step {step}: {got}, expected {expected}"
            );
        }
    }
}

#[test]
fn parameters_without_gradient_and_frozen_ones_stay() {
    let (with, without) = (parameter(&[1.0]), parameter(&[2.0]));
    let mut optimizer = Adam::new([with.clone(), without.clone()], AdamOptions::default()).unwrap();
    set_grad(&with, &[1.0]);
    optimizer.step().unwrap();
    assert!((elements(&with)[0] - 0.999).abs() < 1e-6);
    assert_eq!(elements(&without), [2.0]);
    assert!(optimizer.state_dict().number("state.1.step").is_none());
    optimizer.zero_grad();
    assert!(with.grad().is_none());
    let before = elements(&with);
    optimizer.step().unwrap();
    assert_eq!(elements(&with), before);
}

#[test]
fn groups_have_their_own_options() {
    let (slow, fast) = (parameter(&[1.0]), parameter(&[1.0]));
    let options = |lr| SGDOptions {
        lr,
        ..Default::default()
    };
    let mut optimizer = SGD::new([slow.clone()], options(0.1)).unwrap();
    optimizer
        .add_param_group([fast.clone()], options(0.5))
        .unwrap();
    assert_eq!((optimizer.num_groups(), optimizer.lr(1)), (2, 0.5));
    set_grad(&slow, &[1.0]);
    set_grad(&fast, &[1.0]);
    optimizer.step().unwrap();
    assert_eq!((elements(&slow), elements(&fast)), (vec![0.9], vec![0.5]));
    optimizer.set_lr(0, 1.0);
    assert_eq!(optimizer.options(0).lr, 1.0);
}

#[test]
fn the_state_follows_the_parameter() {
    let weight = parameter(&[1.0, 2.0]);
    let mut optimizer = Adam::new(
        [weight.clone()],
        AdamOptions {
            lr: 0.1,
            ..Default::default()
        },
    )
    .unwrap();
    set_grad(&weight, &[1.0, -1.0]);
    optimizer.step().unwrap();
    weight.cast_to(DType::F64).unwrap().commit().unwrap();
    set_grad(&weight, &[1.0, -1.0]);
    optimizer.step().unwrap();
    let state = optimizer.state_dict();
    assert_eq!(state.tensor("state.0.exp_avg").unwrap().dtype(), DType::F64);
    assert_eq!(state.number("state.0.step"), Some(2.0));
    for (got, expected) in elements(&weight).iter().zip([0.8, 2.2]) {
        assert!((got - expected).abs() < 1e-5, "{got}");
    }
}

#[test]
fn parameters_of_several_dtypes_step_together() {
    let (single, half) = (parameter(&[1.0]), parameter(&[1.0]));
    half.cast_to(DType::BF16).unwrap().commit().unwrap();
    let mut optimizer = SGD::new(
        [single.clone(), half.clone()],
        SGDOptions {
            lr: 0.5,
            momentum: 0.9,
            ..Default::default()
        },
    )
    .unwrap();
    set_grad(&single, &[1.0]);
    set_grad(&half, &[1.0]);
    optimizer.step().unwrap();
    assert_eq!((elements(&single), elements(&half)), (vec![0.5], vec![0.5]));
    assert_eq!(half.tensor().dtype(), DType::BF16);
}

/// Changes nothing, and fails when it is called for the second time.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicUsize>);

impl Rule for Failing {
    const NAME: &'static str = "Failing";

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn state_names(&self) -> &'static [&'static str] {
        &[]
    }

    fn options(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn with_options(&self, _: &mut dyn FnMut(&'static str) -> f64) -> Self {
        self.clone()
    }

    fn lr(&self) -> f64 {
        0.0
    }

    fn set_lr(&mut self, _: f64) {}

    fn step(&self, _: u64, _: &Batch<'_>) -> Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            1 => Err(Error::argument("Failing", "the second launch")),
            _ => Ok(()),
        }
    }
}

#[test]
fn what_was_changed_before_a_failure_has_its_step_counted() {
    let (single, half) = (parameter(&[1.0]), parameter(&[1.0]));
    half.cast_to(DType::BF16).unwrap().commit().unwrap();
    let parameters = [single.clone(), half.clone()];
    let mut optimizer = Fused::new(parameters, Failing::default()).unwrap();
    set_grad(&single, &[1.0]);
    set_grad(&half, &[1.0]);
    let steps = |optimizer: &Fused<Failing>| {
        let numbers = optimizer.state_dict().numbers.into_iter();
        let steps = numbers.filter(|(name, _)| name.ends_with(".step"));
        let mut steps: Vec<f64> = steps.map(|(_, step)| step).collect();
        steps.sort_by(f64::total_cmp);
        steps
    };
    assert!(optimizer.step().is_err());
    assert_eq!(steps(&optimizer), [0.0, 1.0]);
    optimizer.step().unwrap();
    assert_eq!(steps(&optimizer), [1.0, 2.0]);
}

#[test]
fn a_loaded_optimizer_goes_on_to_the_same_bits() {
    let run = |weight: &Parameter, optimizer: &mut dyn Optimizer, steps: std::ops::Range<u32>| {
        for step in steps {
            let grad = (step as f32 * 0.7).sin();
            set_grad(weight, &[grad, -grad * 2.0]);
            optimizer.step().unwrap();
        }
    };
    let options = AdamOptions {
        lr: 0.05,
        amsgrad: true,
        ..Default::default()
    };
    let whole = parameter(&[1.0, -1.0]);
    let mut optimizer = Adam::new([whole.clone()], options).unwrap();
    run(&whole, &mut optimizer, 0..6);
    let saved = optimizer.state_dict();
    let resumed = parameter(&elements(&whole));
    let mut other = Adam::new([resumed.clone()], AdamOptions { lr: 7.0, ..options }).unwrap();
    other.load_state_dict(&saved).unwrap();
    assert_eq!(other.options(0), &options);
    run(&whole, &mut optimizer, 6..12);
    run(&resumed, &mut other, 6..12);
    let bits = |parameter: &Parameter| {
        elements(parameter)
            .iter()
            .map(|x| x.to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(&whole), bits(&resumed));
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let weight = parameter(&[1.0, 2.0]);
    let mut optimizer = Adam::new([weight.clone()], AdamOptions::default()).unwrap();
    set_grad(&weight, &[1.0, 1.0]);
    optimizer.step().unwrap();
    let mut wrong: StateDict = optimizer.state_dict();
    wrong
        .numbers
        .retain(|(name, _)| name != "param_groups.0.eps");
    wrong
        .numbers
        .iter_mut()
        .filter(|(name, _)| name.ends_with(".lr"))
        .for_each(|(_, lr)| *lr = 9.0);
    wrong.tensors.push((
        "state.5.exp_avg".into(),
        Tensor::zeros(&[1], "cpu").unwrap(),
    ));
    wrong.tensors[0].1 = Tensor::zeros(&[3], "cpu").unwrap();
    let text = optimizer.load_state_dict(&wrong).unwrap_err().to_string();
    for expected in [
        "Adam",
        "missing (1): param_groups.0.eps",
        "unexpected (1): state.5.exp_avg",
        "state.0.exp_avg (expected f32[2], got f32[3])",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(optimizer.lr(0), 1e-3);
    assert_eq!(optimizer.state_dict().number("state.0.step"), Some(1.0));
    let two = [parameter(&[1.0]), parameter(&[1.0])];
    let mut other = Adam::new(two, AdamOptions::default()).unwrap();
    let text = other
        .load_state_dict(&optimizer.state_dict())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("group 0 (expected 2 parameters, got 1)"),
        "{text}"
    );
}

#[test]
fn wrong_arguments_are_errors() {
    let weight = parameter(&[1.0]);
    weight.set_name("fc.weight");
    let error = |options| {
        SGD::new([parameter(&[1.0])], options)
            .err()
            .unwrap()
            .to_string()
    };
    assert!(
        error(SGDOptions {
            lr: -1.0,
            ..Default::default()
        })
        .contains("SGD: lr must be at least 0, got -1")
    );
    assert!(
        error(SGDOptions {
            lr: f64::NAN,
            ..Default::default()
        })
        .contains("got NaN")
    );
    assert!(
        error(SGDOptions {
            nesterov: true,
            ..Default::default()
        })
        .contains("nesterov needs a momentum")
    );
    let error = Adam::new(
        [weight.clone()],
        AdamOptions {
            betas: (0.9, 1.0),
            ..Default::default()
        },
    );
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("betas.1 must be at least 0 and below 1")
    );
    let error = SGD::new([weight.clone(), weight.clone()], SGDOptions::default())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("fc.weight: f32[1] on cpu) is given twice"),
        "{error}"
    );
    assert!(SGD::new([], SGDOptions::default()).is_err());
    let mut optimizer = SGD::new([weight.clone()], SGDOptions::default()).unwrap();
    assert!(
        optimizer
            .add_param_group([weight], SGDOptions::default())
            .is_err()
    );
    let error = Scheduler::new(
        &mut optimizer,
        StepLR {
            step_size: 0,
            gamma: 0.1,
        },
    )
    .err()
    .unwrap();
    assert!(
        error
            .to_string()
            .contains("StepLR: step_size must be at least 1"),
        "{error}"
    );
    let line = LinearLR {
        start_factor: 0.0,
        end_factor: 1.0,
        total_iters: 3,
    };
    assert!(Scheduler::new(&mut optimizer, line).is_err());
    let crossed = SequentialLR::new(StepLR {
        step_size: 1,
        gamma: 0.5,
    })
    .then(
        5,
        StepLR {
            step_size: 1,
            gamma: 0.5,
        },
    )
    .then(
        2,
        StepLR {
            step_size: 1,
            gamma: 0.5,
        },
    );
    assert!(crossed.check().unwrap_err().to_string().contains("[5, 2]"));
}

#[test]
fn a_warm_up_rises_and_the_wave_falls() {
    let schedule = warmup_cosine(4, 20, 0.1);
    schedule.check().unwrap();
    let rates: Vec<f64> = (0..=20).map(|step| schedule.lr_at(1.0, step)).collect();
    assert!(
        (rates[0] - 0.2).abs() < 1e-12 && (rates[2] - 0.6).abs() < 1e-12,
        "{rates:?}"
    );
    assert!(rates[..=4].is_sorted() && rates[4] == 1.0);
    assert!(rates[4..].is_sorted_by(|earlier, later| earlier > later));
    assert!((rates[12] - 0.55).abs() < 1e-12 && (rates[20] - 0.1).abs() < 1e-12);
}

#[test]
fn a_loaded_scheduler_goes_on_where_the_saved_one_stood() {
    let wave = CosineAnnealingLR {
        t_max: 8,
        eta_min: 0.0,
    };
    let options = SGDOptions {
        lr: 0.5,
        ..Default::default()
    };
    let mut optimizer = SGD::new([parameter(&[1.0])], options).unwrap();
    let mut scheduler = Scheduler::new(&mut optimizer, wave).unwrap();
    (0..3).for_each(|_| scheduler.step(&mut optimizer).unwrap());
    let mut other_optimizer = SGD::new([parameter(&[1.0])], options).unwrap();
    let mut other = Scheduler::new(&mut other_optimizer, wave).unwrap();
    other_optimizer
        .load_state_dict(&optimizer.state_dict())
        .unwrap();
    other.load_state_dict(&scheduler.state_dict()).unwrap();
    assert_eq!(other_optimizer.lr(0), optimizer.lr(0));
    scheduler.step(&mut optimizer).unwrap();
    other.step(&mut other_optimizer);
    assert_eq!(other.last_lr(), scheduler.last_lr());
    assert_eq!(other_optimizer.lr(0), optimizer.lr(0));
    assert!(other.load_state_dict(&StateDict::default()).is_err());
}

#[test]
fn clipping_scales_to_the_common_norm() {
    let (a, b, none) = (parameter(&[0.0, 0.0]), parameter(&[0.0]), parameter(&[1.0]));
    set_grad(&a, &[2.0, -3.0]);
    set_grad(&b, &[6.0]);
    let parameters = [a.clone(), b.clone(), none];
    let norm = clip_grad_norm_(&parameters, 10.0).unwrap().item().unwrap();
    assert!((norm - 7.0).abs() < 1e-6);
    assert_eq!(b.grad().unwrap().item().unwrap(), 6.0);
    clip_grad_norm_(&parameters, 3.5).unwrap();
    let factor = 3.5 / (7.0 + 1e-6);
    let grad = a.grad().unwrap().to_vec::<f32>().unwrap();
    for (got, expected) in grad.iter().zip([2.0 * factor, -3.0 * factor]) {
        assert!((f64::from(*got) - expected).abs() < 1e-6);
    }
    clip_grad_value_(&parameters, 1.25).unwrap();
    assert_eq!(
        a.grad().unwrap().to_vec::<f32>().unwrap(),
        [1.0 * factor as f32 * 2.0, -1.25]
    );
    assert_eq!(b.grad().unwrap().item().unwrap(), 1.25);
    assert_eq!(clip_grad_norm_(&[], 1.0).unwrap().item().unwrap(), 0.0);
    assert!(clip_grad_norm_(&parameters, -1.0).is_err());
    assert!(clip_grad_value_(&parameters, f64::NAN).is_err());
}
