//! What the parts of a training loop promise: accumulation, scaled losses, a loss asked for several times, a rate that waits for a
//! figure, clipping by other norms.

use fireclay_optim::{
    Accumulate, ClipNorm, GradScaler, GradScalerOptions, LBFGS, LBFGSOptions, OneCycleLR,
    Optimizer, PlateauOptions, ReduceLROnPlateau, SGD, SGDOptions, Scheduler, Threshold,
    clip_grad_norm_with,
};
use fireclay_tensor::{Parameter, Result, StateDict, Tensor};

fn parameter(elements: &[f64]) -> Parameter {
    Parameter::new(Tensor::from_slice(elements, &[elements.len()], "cpu").unwrap()).unwrap()
}

fn elements(parameter: &Parameter) -> Vec<f64> {
    parameter.tensor().to_vec().unwrap()
}

fn set_grad(parameter: &Parameter, elements: &[f64]) {
    let grad = Tensor::from_slice(elements, &[elements.len()], "cpu").unwrap();
    parameter.tensor().set_grad(Some(grad)).unwrap();
}

fn sgd(parameter: &Parameter, lr: f64) -> SGD {
    let options = SGDOptions {
        lr,
        momentum: 0.9,
        ..Default::default()
    };
    SGD::new([parameter.clone()], options).unwrap()
}

/// The mean of squared errors of a line through `rows` points from `start` on.
fn loss(weight: &Parameter, start: usize, rows: usize) -> Result<Tensor> {
    let points: Vec<f64> = (start..start + rows)
        .map(|row| (row as f64 * 0.7).sin())
        .collect();
    let x = Tensor::from_slice(&points, &[rows, 1], "cpu")?;
    let y = x.mul(3.0)?.add(0.5)?;
    let weight = weight.tensor().reshape(&[1, 2])?;
    let one = Tensor::ones(&[rows, 1], "cpu")?.to_dtype(x.dtype())?;
    let prediction = Tensor::cat(&[&x, &one], 1)?.mul(&weight)?;
    let prediction = prediction.sum(&[1], true)?;
    prediction.sub(&y)?.square()?.mean_all()
}

fn assert_close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-12, "{got} and {expected}");
    }
}

/// Ten batches of 3 rows, four to a step: steps of 12, 12 and 6 rows, in each of two epochs.
#[test]
fn accumulated_batches_are_one_batch() {
    let (small, big) = (parameter(&[0.0, 0.0]), parameter(&[0.0, 0.0]));
    let (mut optimizer, mut expected) = (sgd(&small, 0.1), sgd(&big, 0.1));
    let mut accumulate = Accumulate::new(4, 10).unwrap();
    for _ in 0..2 {
        let mut due = Vec::new();
        for batch in 0..10 {
            let loss = loss(&small, 3 * batch, 3).unwrap();
            if accumulate.backward(&loss).unwrap() {
                optimizer.step().unwrap();
                optimizer.zero_grad();
                due.push(batch);
            }
        }
        assert_eq!(due, [3, 7, 9]);
        for (start, rows) in [(0, 12), (12, 12), (24, 6)] {
            loss(&big, start, rows).unwrap().backward().unwrap();
            expected.step().unwrap();
            expected.zero_grad();
        }
    }
    assert_close(&elements(&small), &elements(&big));
    assert!(elements(&big)[0] > 0.5, "nothing was learned");
    assert!(Accumulate::new(0, 10).is_err());
}

#[test]
fn a_failed_batch_is_not_counted() {
    let weight = parameter(&[0.0, 0.0]);
    let mut accumulate = Accumulate::new(2, 2).unwrap();
    assert!(
        accumulate
            .backward(&Tensor::ones(&[1], "cpu").unwrap())
            .is_err()
    );
    assert!(!accumulate.backward(&loss(&weight, 0, 3).unwrap()).unwrap());
    assert!(accumulate.backward(&loss(&weight, 3, 3).unwrap()).unwrap());
}

/// Scaled and accumulated at once, clipped between: the weights are those without a scale, since scales are powers of 2.
#[test]
fn a_scaled_loop_learns_what_a_plain_one_does() {
    let (scaled, plain) = (parameter(&[0.0, 0.0]), parameter(&[0.0, 0.0]));
    let (mut optimizer, mut expected) = (sgd(&scaled, 0.1), sgd(&plain, 0.1));
    let options = GradScalerOptions {
        growth_interval: 2,
        ..Default::default()
    };
    let mut scaler = GradScaler::new(options).unwrap();
    let clip = ClipNorm {
        max_norm: 0.7,
        ..Default::default()
    };
    let (mut accumulate, mut other) = (
        Accumulate::new(2, 9).unwrap(),
        Accumulate::new(2, 9).unwrap(),
    );
    for batch in 0..9 {
        let part = accumulate
            .scaled(&loss(&scaled, batch, 4).unwrap())
            .unwrap();
        scaler.scale(&part).unwrap().backward().unwrap();
        if accumulate.count() {
            scaler.unscale_(&optimizer).unwrap();
            clip_grad_norm_with(std::slice::from_ref(&scaled), clip).unwrap();
            assert!(scaler.step(&mut optimizer).unwrap());
            scaler.update().unwrap();
            optimizer.zero_grad();
        }
        if other.backward(&loss(&plain, batch, 4).unwrap()).unwrap() {
            clip_grad_norm_with(std::slice::from_ref(&plain), clip).unwrap();
            expected.step().unwrap();
            expected.zero_grad();
        }
    }
    assert_eq!(elements(&scaled), elements(&plain));
    // Five steps: it grew after the second and the fourth.
    assert_eq!(scaler.get_scale(), 65536.0 * 4.0);
}

#[test]
fn a_step_with_infinite_gradients_is_left_out() {
    let weight = parameter(&[1.0, 2.0]);
    let mut optimizer = sgd(&weight, 0.1);
    let mut scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
    for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let before = scaler.get_scale();
        set_grad(&weight, &[1.0, bad]);
        assert!(!scaler.step(&mut optimizer).unwrap());
        scaler.update().unwrap();
        assert_eq!(scaler.get_scale(), before * 0.5);
    }
    assert_eq!(elements(&weight), [1.0, 2.0]);
    set_grad(&weight, &[8192.0, 0.0]);
    assert!(scaler.step(&mut optimizer).unwrap());
    assert_close(&elements(&weight), &[0.9, 2.0]);
}

#[test]
fn a_scaler_refuses_another_order() {
    let weight = parameter(&[1.0]);
    let mut optimizer = sgd(&weight, 0.1);
    let mut scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
    assert!(scaler.update().is_err());
    set_grad(&weight, &[1.0]);
    scaler.unscale_(&optimizer).unwrap();
    assert!(scaler.unscale_(&optimizer).is_err());
    scaler.step(&mut optimizer).unwrap();
    assert!(scaler.step(&mut optimizer).is_err());
    let error = scaler.unscale_(&optimizer).unwrap_err().to_string();
    assert!(
        error.contains("after step") && error.contains("update"),
        "{error}"
    );
    scaler.update().unwrap();
    for options in [
        GradScalerOptions {
            growth_factor: 1.0,
            ..Default::default()
        },
        GradScalerOptions {
            backoff_factor: 1.0,
            ..Default::default()
        },
        GradScalerOptions {
            init_scale: f64::NAN,
            ..Default::default()
        },
        GradScalerOptions {
            growth_interval: 0,
            ..Default::default()
        },
    ] {
        assert!(GradScaler::new(options).is_err(), "{options:?}");
    }
}

#[test]
fn a_scaler_that_is_off_does_nothing() {
    let weight = parameter(&[1.0]);
    let mut optimizer = sgd(&weight, 0.5);
    let off = GradScalerOptions {
        enabled: false,
        ..Default::default()
    };
    let mut scaler = GradScaler::new(off).unwrap();
    let loss = weight.tensor().sum_all().unwrap();
    scaler.scale(&loss).unwrap().backward().unwrap();
    scaler.unscale_(&optimizer).unwrap();
    assert!(scaler.step(&mut optimizer).unwrap());
    scaler.update().unwrap();
    assert_eq!((elements(&weight), scaler.get_scale()), (vec![0.5], 1.0));
}

#[test]
fn a_loaded_scaler_grows_when_the_saved_one_would_have() {
    let weight = parameter(&[1.0]);
    let mut optimizer = sgd(&weight, 0.0);
    let options = GradScalerOptions {
        growth_interval: 3,
        init_scale: 8.0,
        ..Default::default()
    };
    let mut iterate = |scaler: &mut GradScaler| {
        set_grad(&weight, &[1.0]);
        scaler.step(&mut optimizer).unwrap();
        scaler.update().unwrap();
        scaler.get_scale()
    };
    let mut saved = GradScaler::new(options).unwrap();
    assert_eq!((iterate(&mut saved), iterate(&mut saved)), (8.0, 8.0));
    let mut loaded = GradScaler::new(GradScalerOptions::default()).unwrap();
    loaded.load_state_dict(&saved.state_dict()).unwrap();
    assert_eq!((iterate(&mut loaded), iterate(&mut saved)), (16.0, 16.0));
    assert!(loaded.load_state_dict(&StateDict::default()).is_err());
    assert_eq!(loaded.get_scale(), 16.0);
}

/// Rosenbrock's valley.
fn valley(x: &Parameter) -> Result<Tensor> {
    x.zero_grad();
    let at = x.tensor();
    let (a, b) = (at.narrow(0, 0, 1)?, at.narrow(0, 1, 1)?);
    let loss = b.sub(&a.square()?)?.square()?.mul(100.0)?;
    let loss = loss.add(&a.sub(1.0)?.square()?)?.sum_all()?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn a_loaded_lbfgs_goes_on_to_the_same_bits() {
    for strong_wolfe in [false, true] {
        let options = LBFGSOptions {
            lr: if strong_wolfe { 1.0 } else { 1e-3 },
            max_iter: 4,
            history_size: 3,
            strong_wolfe,
            ..Default::default()
        };
        let x = parameter(&[-1.2, 1.0]);
        let mut optimizer = LBFGS::new([x.clone()], options).unwrap();
        for _ in 0..3 {
            optimizer.step_with(&mut || valley(&x)).unwrap();
        }
        let other = parameter(&elements(&x));
        let mut loaded = LBFGS::new([other.clone()], options).unwrap();
        loaded.load_state_dict(&optimizer.state_dict()).unwrap();
        for _ in 0..3 {
            let expected = optimizer.step_with(&mut || valley(&x)).unwrap();
            let got = loaded.step_with(&mut || valley(&other)).unwrap();
            assert_eq!(got.item().unwrap(), expected.item().unwrap());
        }
        assert_eq!(elements(&other), elements(&x));
        assert!(loaded.load_state_dict(&StateDict::default()).is_err());
    }
}

#[test]
fn lbfgs_needs_its_closure_and_hands_on_its_error() {
    let x = parameter(&[-1.2, 1.0]);
    let wolfe = LBFGSOptions {
        strong_wolfe: true,
        max_iter: 100,
        ..Default::default()
    };
    let mut optimizer = LBFGS::new([x.clone()], wolfe).unwrap();
    assert!(
        optimizer
            .step()
            .unwrap_err()
            .to_string()
            .contains("step_with")
    );
    let mut calls = 0;
    let failed = optimizer.step_with(&mut || {
        calls += 1;
        match calls {
            3 => Tensor::zeros(&[2], "cpu")?.reshape(&[3]),
            _ => valley(&x),
        }
    });
    assert!(failed.is_err() && calls == 3);
    optimizer.step_with(&mut || valley(&x)).unwrap();
    assert_eq!(
        elements(&x)
            .iter()
            .map(|x| (x * 1e4).round())
            .collect::<Vec<_>>(),
        [1e4, 1e4]
    );
    for options in [
        LBFGSOptions {
            lr: -1.0,
            ..Default::default()
        },
        LBFGSOptions {
            tolerance_grad: f64::NAN,
            ..Default::default()
        },
        LBFGSOptions {
            history_size: 0,
            ..Default::default()
        },
    ] {
        assert!(LBFGS::new([x.clone()], options).is_err(), "{options:?}");
    }
    assert!(LBFGS::new([], LBFGSOptions::default()).is_err());
}

#[test]
fn a_loaded_plateau_lowers_the_rate_when_the_saved_one_would_have() {
    let options = || PlateauOptions {
        patience: 2,
        threshold: Threshold::Absolute(0.1),
        cooldown: 1,
        min_lr: vec![0.04],
        ..Default::default()
    };
    let mut optimizer = sgd(&parameter(&[1.0]), 1.0);
    let mut saved = ReduceLROnPlateau::new(&optimizer, options()).unwrap();
    // The second is not better by enough.
    for metric in [1.0, 0.95] {
        assert!(!saved.step(metric, &mut optimizer));
    }
    let mut other = sgd(&parameter(&[1.0]), 1.0);
    let mut loaded = ReduceLROnPlateau::new(&other, options()).unwrap();
    loaded.load_state_dict(&saved.state_dict()).unwrap();
    let metrics = [f64::NAN, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0];
    let lowered = metrics.map(|metric| loaded.step(metric, &mut other));
    assert_eq!(
        lowered,
        [false, true, false, false, false, true, false, false]
    );
    assert_eq!(
        metrics.map(|metric| saved.step(metric, &mut optimizer)),
        lowered
    );
    assert_eq!((other.lr(0), optimizer.lr(0)), (0.04, 0.04));
    for wrong in [
        PlateauOptions {
            factor: 1.0,
            ..options()
        },
        PlateauOptions {
            min_lr: vec![0.0; 2],
            ..options()
        },
    ] {
        assert!(ReduceLROnPlateau::new(&other, wrong).is_err());
    }
}

#[test]
fn one_cycle_sets_momentum_and_ends() {
    let mut optimizer = sgd(&parameter(&[1.0]), 1.0);
    let mut scheduler = Scheduler::new(&mut optimizer, OneCycleLR::new(0.5, 10)).unwrap();
    let mut seen = vec![(optimizer.lr(0), optimizer.momentum(0).unwrap())];
    for _ in 1..10 {
        scheduler.step(&mut optimizer).unwrap();
        seen.push((optimizer.lr(0), optimizer.momentum(0).unwrap()));
    }
    assert_close(&[seen[0].0, seen[2].0, seen[9].0], &[0.02, 0.5, 2e-6]);
    assert_close(&[seen[0].1, seen[2].1, seen[9].1], &[0.95, 0.85, 0.95]);
    // A loop that steps it after each of its 10 steps of the optimizer comes to the tenth, and no further.
    scheduler.step(&mut optimizer).unwrap();
    let before = (optimizer.lr(0), scheduler.last_epoch());
    let error = scheduler.step(&mut optimizer).unwrap_err().to_string();
    assert!(error.contains("10"), "{error}");
    assert_eq!((optimizer.lr(0), scheduler.last_epoch()), before);
    // It has no momentum to cycle.
    let mut none = LBFGS::new([parameter(&[1.0])], LBFGSOptions::default()).unwrap();
    let error = Scheduler::new(&mut none, OneCycleLR::new(0.5, 10))
        .err()
        .unwrap();
    assert!(error.to_string().contains("cycle_momentum"), "{error}");
}

#[test]
fn clipping_knows_other_norms_and_refuses_what_is_not_finite() {
    let (a, b) = (parameter(&[3.0, -4.0]), parameter(&[12.0]));
    let both = [a.clone(), b.clone()];
    for (norm_type, expected) in [(1.0, 19.0), (2.0, 13.0), (f64::INFINITY, 12.0)] {
        set_grad(&a, &[3.0, -4.0]);
        set_grad(&b, &[12.0]);
        let options = ClipNorm {
            max_norm: 6.0,
            norm_type,
            error_if_nonfinite: true,
        };
        let norm = clip_grad_norm_with(&both, options).unwrap();
        assert_close(&[norm.item().unwrap()], &[expected]);
        let factor = 6.0 / (expected + 1e-6);
        assert_close(
            &a.grad().unwrap().to_vec::<f64>().unwrap(),
            &[3.0 * factor, -4.0 * factor],
        );
        assert_close(
            &b.grad().unwrap().to_vec::<f64>().unwrap(),
            &[12.0 * factor],
        );
    }
    set_grad(&b, &[f64::NAN]);
    let strict = ClipNorm {
        error_if_nonfinite: true,
        ..Default::default()
    };
    let before = a.grad().unwrap().to_vec::<f64>().unwrap();
    assert!(
        clip_grad_norm_with(&both, strict)
            .unwrap_err()
            .to_string()
            .contains("NaN")
    );
    assert_eq!(a.grad().unwrap().to_vec::<f64>().unwrap(), before);
    for norm_type in [-1.0, f64::NAN] {
        assert!(
            clip_grad_norm_with(
                &both,
                ClipNorm {
                    norm_type,
                    ..Default::default()
                }
            )
            .is_err()
        );
    }
}
