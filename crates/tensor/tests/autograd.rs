//! Autograd: modes, graphs, hooks, in-place edits, user-defined ops, deep graphs.

use std::sync::{Arc, Mutex};

use fireclay_tensor::{
    Backpropagation, Backward, CpuCall, DType, Error, Formula, Grads, Meta, Op, OutputMeta,
    OutputMetas, Result, Saves, Tensor, dispatch, enable_grad, grad, grad_with, inference_mode,
    no_grad,
};

fn leaf(values: &[f64]) -> Tensor {
    let tensor = Tensor::from_slice(values, &[values.len()], "cpu").unwrap();
    tensor.requires_grad_(true).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec().unwrap()
}

fn grad_of(tensor: &Tensor) -> Vec<f64> {
    values(&tensor.grad().expect("a gradient"))
}

#[test]
fn gradients_of_a_chain_accumulate() {
    let x = leaf(&[1.0, 2.0, 3.0]);
    let loss = || x.mul(&x).unwrap().mul(2.0).unwrap().sum_all().unwrap();
    loss().backward().unwrap();
    assert_eq!(grad_of(&x), [4.0, 8.0, 12.0]);
    loss().backward().unwrap();
    assert_eq!(grad_of(&x), [8.0, 16.0, 24.0]);
    x.zero_grad();
    assert!(x.grad().is_none());
}

#[test]
fn leaves_that_share_a_gradient_do_not_share_its_memory() {
    let (a, b) = (leaf(&[1.0]), leaf(&[2.0]));
    a.add(&b).unwrap().backward().unwrap();
    a.grad().unwrap().mul_(10.0).unwrap();
    assert_eq!(grad_of(&b), [1.0]);
}

#[test]
fn broadcasting_sums_back() {
    let (a, b) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    a.mul(&b).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&a), [3.0, 3.0]);
    assert_eq!(grad_of(&b), [3.0]);
    let column = Tensor::from_slice(&[1.0, 2.0, 3.0], &[3, 1], "cpu")
        .unwrap()
        .requires_grad_(true)
        .unwrap();
    column
        .add(&a)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    assert_eq!(grad_of(&column), [2.0, 2.0, 2.0]);
}

#[test]
fn a_formula_gives_what_its_ops_give() {
    let (a, b) = (leaf(&[0.5, -1.0, 2.0]), leaf(&[1.5, 0.25, -0.5]));
    let fused = (&a * &b + 1.0).tanh() * &a;
    fused.eval().unwrap().sum_all().unwrap().backward().unwrap();
    let (fused_a, fused_b) = (grad_of(&a), grad_of(&b));
    a.zero_grad();
    b.zero_grad();
    let eager = a
        .mul(&b)
        .unwrap()
        .add(1.0)
        .unwrap()
        .tanh()
        .unwrap()
        .mul(&a)
        .unwrap();
    eager.sum_all().unwrap().backward().unwrap();
    for (fused, eager) in fused_a
        .iter()
        .chain(&fused_b)
        .zip(grad_of(&a).iter().chain(&grad_of(&b)))
    {
        assert!((fused - eager).abs() < 1e-14, "{fused} {eager}");
    }
}

#[test]
fn a_formula_that_ends_in_a_reduction_gives_the_bits_of_its_steps() {
    let (a, b) = (leaf(&[0.5, -1.0, 2.0]), leaf(&[1.5]));
    let fused = (&a * &b - 2.0).square().mean().unwrap();
    fused.backward().unwrap();
    let (fused_a, fused_b) = (grad_of(&a), grad_of(&b));
    a.zero_grad();
    b.zero_grad();
    let steps = (&a * &b - 2.0).square().eval().unwrap().mean_all().unwrap();
    steps.backward().unwrap();
    assert_eq!(values(&fused), values(&steps));
    for (fused, steps) in fused_a
        .iter()
        .chain(&fused_b)
        .zip(grad_of(&a).iter().chain(&grad_of(&b)))
    {
        assert!((fused - steps).abs() < 1e-14, "{fused} {steps}");
    }
    // The derivative of a plain sum is one number for all elements.
    a.zero_grad();
    (&a + &b).sum().unwrap().backward().unwrap();
    assert_eq!(grad_of(&a), [1.0, 1.0, 1.0]);
}

#[test]
fn no_grad_stops_recording_and_enable_grad_resumes_it() {
    let x = leaf(&[1.0]);
    no_grad(|| {
        assert!(!x.mul(2.0).unwrap().requires_grad());
        enable_grad(|| assert!(x.mul(2.0).unwrap().requires_grad()));
    });
    assert!(x.mul(2.0).unwrap().requires_grad());
    assert!(!x.detach().mul(2.0).unwrap().requires_grad());
}

#[test]
fn grad_mode_comes_back_after_a_panic() {
    let caught = std::panic::catch_unwind(|| no_grad(|| panic!("on purpose")));
    assert!(caught.is_err());
    assert!(fireclay_tensor::is_grad_enabled());
}

#[test]
fn tensors_of_inference_mode_stay_out_of_autograd() {
    let x = leaf(&[2.0]);
    let constant = inference_mode(|| x.mul(3.0).unwrap());
    let error = x.mul(&constant).unwrap_err().to_string();
    assert!(
        error.contains("inference_mode") && error.contains("copy()"),
        "{error}"
    );
    assert!(constant.requires_grad_(true).is_err());
    let sum = x.add(&constant).unwrap();
    sum.backward().unwrap();
    assert_eq!(grad_of(&x), [1.0]);
}

#[test]
fn a_second_backward_needs_a_retained_graph() {
    let x = leaf(&[3.0]);
    let y = x.mul(&x).unwrap();
    let keep = Backpropagation {
        retain_graph: true,
        ..Default::default()
    };
    y.backward_with(None, keep).unwrap();
    y.backward().unwrap();
    assert_eq!(grad_of(&x), [12.0]);
    let error = y.backward().unwrap_err();
    assert!(
        matches!(error, Error::GraphFreed { op: "mul", .. }),
        "{error}"
    );
    assert!(error.to_string().contains("autograd.rs"), "{error}");
}

#[test]
fn second_derivatives() {
    let x = leaf(&[0.3, -0.7]);
    let y = x.tanh().unwrap().mul(&x).unwrap().sum_all().unwrap();
    let create = Backpropagation {
        create_graph: true,
        ..Default::default()
    };
    let first = grad_with(&[&y], &[None], &[&x], create)
        .unwrap()
        .remove(0)
        .unwrap();
    assert!(first.requires_grad());
    let second = grad(&[&first.sum_all().unwrap()], &[&x]).unwrap().remove(0);
    for (x, second) in values(&x).into_iter().zip(values(&second)) {
        let slope = 1.0 - x.tanh().powi(2);
        let expected = 2.0 * slope - 2.0 * x * x.tanh() * slope;
        assert!((second - expected).abs() < 1e-14, "{second} {expected}");
    }
    assert!(x.grad().is_none(), "grad() accumulates nothing");
}

#[test]
fn third_derivative_of_a_formula() {
    let x = leaf(&[1.25]);
    let y = (&x * &x * &x * &x).eval().unwrap();
    let create = Backpropagation {
        create_graph: true,
        ..Default::default()
    };
    let mut derivative = y;
    for _ in 0..3 {
        derivative = grad_with(&[&derivative], &[None], &[&x], create)
            .unwrap()
            .remove(0)
            .unwrap();
    }
    assert!((values(&derivative)[0] - 24.0 * 1.25).abs() < 1e-12);
}

#[test]
fn grad_computes_only_what_leads_to_the_inputs() {
    let (a, b) = (leaf(&[2.0]), leaf(&[5.0]));
    let middle = a.mul(&a).unwrap();
    let y = middle.mul(&b).unwrap();
    let grads = grad_with(
        &[&y],
        &[None],
        &[&middle],
        Backpropagation {
            retain_graph: true,
            ..Default::default()
        },
    )
    .unwrap();
    assert_eq!(values(grads[0].as_ref().unwrap()), [5.0]);
    assert!(a.grad().is_none() && b.grad().is_none());
    let unrelated = leaf(&[1.0]);
    let error = grad(&[&y], &[&unrelated]).unwrap_err().to_string();
    assert!(error.contains("don't depend on input 0"), "{error}");
}

#[test]
fn hooks_see_and_replace_gradients() {
    let x = leaf(&[1.0, 2.0]);
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = seen.clone();
    let y = x.mul(3.0).unwrap();
    y.register_hook(move |grad| {
        log.lock().unwrap().push(values(grad));
        Ok(Some(grad.mul(10.0)?))
    })
    .unwrap();
    let handle = x.register_hook(|grad| Ok(Some(grad.add(1.0)?))).unwrap();
    y.retain_grad().unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(*seen.lock().unwrap(), [[1.0, 1.0]]);
    assert_eq!(grad_of(&y), [10.0, 10.0]);
    assert_eq!(grad_of(&x), [31.0, 31.0]);
    handle.remove();
    x.zero_grad();
    x.mul(1.0).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [1.0, 1.0]);
}

#[test]
fn retained_gradients_accumulate_in_memory_of_their_own() {
    let x = leaf(&[1.0, 2.0]);
    let (a, b) = (x.mul(2.0).unwrap(), x.mul(3.0).unwrap());
    a.retain_grad().unwrap();
    b.retain_grad().unwrap();
    let sum = a.add(&b).unwrap().sum_all().unwrap();
    let again = Backpropagation {
        retain_graph: true,
        ..Backpropagation::default()
    };
    sum.backward_with(None, again).unwrap();
    a.grad().unwrap().mul_(10.0).unwrap();
    assert_eq!(grad_of(&b), [1.0, 1.0]);
    sum.backward_with(None, again).unwrap();
    assert_eq!((grad_of(&a), grad_of(&b)), (vec![11.0; 2], vec![2.0; 2]));
    assert_eq!(grad_of(&x), [10.0, 10.0]);
}

#[test]
fn gradients_beside_nan_and_infinity_are_pytorchs() {
    let x = leaf(&[f64::NAN, -1.0, 0.0, 2.0]);
    x.relu().unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [1.0, 0.0, 0.0, 1.0]);
    let steps: [fn(&Tensor) -> Result<Tensor>; 5] = [
        Tensor::sign,
        Tensor::floor,
        Tensor::ceil,
        Tensor::trunc,
        Tensor::round,
    ];
    for step in steps {
        let x = leaf(&[1.5, -2.0, 0.0]);
        let factor = Tensor::from_slice(&[f64::INFINITY, f64::NAN, 3.0], &[3], "cpu").unwrap();
        let loss = step(&x).unwrap().mul(&factor).unwrap().sum_all().unwrap();
        loss.backward().unwrap();
        assert_eq!(grad_of(&x), [0.0; 3]);
    }
}

#[test]
fn an_in_place_edit_of_a_saved_tensor_names_both_lines() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.exp().unwrap();
    let z = y.mul(&y).unwrap();
    let edited = line!() + 1;
    no_grad(|| y.add_(1.0)).unwrap();
    let error = z.sum_all().unwrap().backward().unwrap_err();
    assert!(
        matches!(error, Error::SavedTensorModified { op: "mul", .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains(&format!("autograd.rs:{edited}")),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("autograd.rs:{}", edited - 2)),
        "{error}"
    );
}

#[test]
fn in_place_ops_are_part_of_the_graph() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.mul(1.0).unwrap();
    y.add_(&x).unwrap();
    y.mul_(3.0).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&x), [6.0, 6.0]);
    let error = x.add_(1.0).unwrap_err().to_string();
    assert!(
        error.contains("leaf") && error.contains("no_grad"),
        "{error}"
    );
    no_grad(|| x.add_(1.0)).unwrap();
    assert_eq!(values(&x), [2.0, 3.0]);
}

#[test]
fn an_outdated_view_is_refused() {
    let x = leaf(&[1.0, 2.0]);
    let y = x.mul(2.0).unwrap();
    let view = y.narrow(0, 0, 1).unwrap();
    no_grad(|| y.mul_(5.0)).unwrap();
    let error = view.mul(2.0).unwrap_err().to_string();
    assert!(error.contains("out of date"), "{error}");
    let error = y
        .narrow(0, 0, 1)
        .unwrap()
        .add_(1.0)
        .unwrap_err()
        .to_string();
    assert!(error.contains("view"), "{error}");
}

#[test]
fn a_view_older_than_its_bases_history_is_refused() {
    let w = leaf(&[2.0, 3.0]);
    let x = Tensor::from_slice(&[1.0, 1.0], &[2], "cpu").unwrap();
    let row = x.unsqueeze(0).unwrap();
    let old = [
        row.clone(),
        row.squeeze(0).unwrap(),
        no_grad(|| x.narrow(0, 0, 1)).unwrap(),
    ];
    let detached = x.detach().unsqueeze(0).unwrap();
    x.mul_(&w).unwrap();
    for view in &old {
        // As a constant it would lose the gradient that PyTorch sends to `w`.
        for error in [view.sum_all().unwrap_err(), w.mul(view).unwrap_err()] {
            assert!(error.to_string().contains("out of date"), "{error}");
        }
        assert!(no_grad(|| view.sum_all()).is_ok());
    }
    assert_eq!(values(&detached.mul(1.0).unwrap()), [2.0, 3.0]);
    let new = x.unsqueeze(0).unwrap();
    new.mul(5.0).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&w), [5.0, 5.0]);
}

#[test]
fn a_view_without_history_is_changed_in_place_and_its_base_is_refused() {
    let w = leaf(&[2.0, 3.0]);
    let base = Tensor::from_slice(&[1.0f64, 1.0, 1.0, 1.0], &[2, 2], "cpu").unwrap();
    let (row, other) = (base.select(0, 1).unwrap(), base.select(0, 0).unwrap());
    row.mul_(&w).unwrap();
    row.mul_(&w).unwrap();
    assert_eq!(base.to_vec::<f64>().unwrap(), [1.0, 1.0, 4.0, 9.0]);
    for (lacking, what) in [(&base, "through a view"), (&other, "out of date")] {
        let error = lacking.mul(1.0).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(no_grad(|| lacking.mul(1.0)).is_ok());
    }
    row.sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&w), [4.0, 6.0]);
}

#[test]
fn a_tensor_is_written_by_an_op_on_a_view_of_its_own() {
    let w = leaf(&[2.0, 3.0]);
    let y = w.mul(1.0).unwrap();
    let view = y.unsqueeze(0).unwrap().squeeze(0).unwrap();
    y.mul_(&view).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(grad_of(&w), [4.0, 6.0]);
}

#[test]
fn reading_and_writing_one_storage_goes_through_a_copy() {
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0], &[2, 2], "cpu").unwrap();
    x.add_(&x.t().unwrap()).unwrap();
    assert_eq!(values(&x), [2.0, 5.0, 5.0, 8.0]);
    x.add_(&x).unwrap();
    assert_eq!(values(&x), [4.0, 10.0, 10.0, 16.0]);
    let error = Tensor::zeros(&[1], "cpu")
        .unwrap()
        .expand(&[4])
        .unwrap()
        .add_(1.0)
        .unwrap_err()
        .to_string();
    assert!(error.contains("expanded"), "{error}");
}

#[test]
fn a_deep_chain_goes_backward_without_recursion_and_frees_itself() {
    const DEPTH: usize = 100_000;
    let handle = std::thread::Builder::new().stack_size(256 << 10).spawn(|| {
        let x = leaf(&[1.0]);
        let build = || {
            let mut y = x.clone();
            for _ in 0..DEPTH {
                y = y.mul(1.0).unwrap();
            }
            y
        };
        build().backward().unwrap();
        assert_eq!(grad_of(&x), [1.0]);
        drop(build()); // never went backward
        let formula = (0..DEPTH).fold(Formula::from(&x), |formula, _| formula + 1.0);
        drop(formula);
    });
    handle.unwrap().join().unwrap();
}

/// `x^3`, as a user would define it.
#[derive(Debug)]
struct Cube;

impl Op for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }
    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Ok([OutputMeta::contiguous(
            inputs[0].shape().clone(),
            inputs[0].dtype,
        )]
        .into_iter()
        .collect())
    }
    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let input = call.input::<f64>(0);
        for (y, x) in call.output::<f64>(0).iter_mut().zip(input) {
            *y = x * x * x;
        }
        Ok(())
    }
    fn saves(&self) -> Saves {
        Saves::INPUTS
    }
    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let x = context.input(0)?;
        Ok([Some((&x * &x * 3.0 * context.grad_output()).eval()?)]
            .into_iter()
            .collect())
    }
}

/// An op without a derivative.
#[derive(Debug)]
struct Opaque;

impl Op for Opaque {
    fn name(&self) -> &'static str {
        "opaque"
    }
    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        Cube.output(inputs)
    }
    fn cpu(&self, call: CpuCall<'_>) -> Result<()> {
        Cube.cpu(call)
    }
}

#[test]
fn a_user_defined_op_is_differentiated_twice_and_a_missing_derivative_is_loud() {
    let x = leaf(&[2.0, -1.0]);
    let y = dispatch::call_one(Cube, &[&x]).unwrap();
    assert_eq!(values(&y), [8.0, -1.0]);
    let create = Backpropagation {
        create_graph: true,
        ..Default::default()
    };
    let first = grad_with(&[&y.sum_all().unwrap()], &[None], &[&x], create)
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!(values(&first), [12.0, 3.0]);
    let second = grad(&[&first.sum_all().unwrap()], &[&x]).unwrap().remove(0);
    assert_eq!(values(&second), [12.0, -6.0]);
    let opaque = dispatch::call_one(Opaque, &[&x]).unwrap();
    let error = opaque.sum_all().unwrap().backward().unwrap_err();
    assert!(
        matches!(error, Error::NotDifferentiable { op: "opaque", .. }),
        "{error}"
    );
}

#[test]
fn errors_name_the_operands_and_where_they_were_made() {
    let line = line!() + 1;
    let a = Tensor::zeros(&[2, 3], "cpu").unwrap();
    let b = Tensor::zeros(&[4], "cpu").unwrap();
    let error = a.add(&b).unwrap_err().to_string();
    assert!(
        error.starts_with("add: shapes do not broadcast, got [2, 3] and [4]"),
        "{error}"
    );
    assert!(
        error.contains(&format!(
            "input 0: f32[2, 3] on cpu, made at crates/tensor/tests/autograd.rs:{line}:"
        )),
        "{error}"
    );
    let error = a.to("cuda:99").unwrap_err().to_string();
    assert!(error.contains("cuda:99 is not available"), "{error}");
}

#[test]
fn a_user_defined_op_may_write_over_its_input() {
    let x = Tensor::from_slice(&[2.0, 3.0], &[2], "cpu").unwrap();
    dispatch::call_into(Cube, &[&x], &[&x]).unwrap();
    assert_eq!(values(&x), [8.0, 27.0]);
    let error = dispatch::call_into(Cube, &[&x], &[&x, &x]).unwrap_err();
    assert!(error.to_string().contains("share one storage"), "{error}");
}

#[test]
fn a_hook_stays_with_the_value_it_was_set_on() {
    let x = Tensor::ones(&[2], "cpu").unwrap();
    let x = x.requires_grad_(true).unwrap();
    let y = x.mul(2.0).unwrap();
    let seen: Arc<Mutex<Vec<(&str, f64)>>> = Arc::default();
    let note = |name: &'static str| {
        let seen = seen.clone();
        y.register_hook(move |grad| {
            seen.lock().unwrap().push((name, grad.sum_all()?.item()?));
            Ok(None)
        })
        .unwrap()
    };
    let first = note("first");
    y.retain_grad().unwrap();
    y.mul_(3.0).unwrap();
    let _ = note("second");
    let backward = || {
        let options = Backpropagation {
            retain_graph: true,
            ..Default::default()
        };
        y.backward_with(Some(&Tensor::ones(&[2], "cpu").unwrap()), options)
            .unwrap();
    };
    backward();
    assert_eq!(*seen.lock().unwrap(), [("second", 2.0), ("first", 6.0)]);
    let kept = y.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(kept, [1.0; 2], "of the last value, as in PyTorch");
    first.remove();
    backward();
    assert_eq!(seen.lock().unwrap()[2..], [("second", 2.0)]);
}
