//! Every op's backward against central differences in f64, first and second order.

use fireclay_testing::draw::Form;
use fireclay_testing::gradcheck::{gradcheck, gradgradcheck};
use fireclay_testing::samples::{Sample, samples};

fn report(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn describe(sample: &Sample) -> String {
    let shapes: Vec<String> = sample
        .inputs
        .iter()
        .map(|x| x.shape().to_string())
        .collect();
    format!("{}({})", sample.op, shapes.join(", "))
}

#[test]
fn backward_is_the_derivative() {
    let mut failures = Vec::new();
    for sample in samples()
        .iter()
        .filter(|sample| sample.differentiable && !sample.large)
    {
        if let Err(what) = gradcheck(&*sample.call, &sample.inputs) {
            failures.push(format!("{}: {what}", describe(sample)));
        }
    }
    report(&failures);
}

#[test]
fn backward_of_backward_is_the_second_derivative() {
    let mut failures = Vec::new();
    for sample in samples()
        .iter()
        .filter(|sample| sample.differentiable && !sample.large)
    {
        if let Err(what) = gradgradcheck(&*sample.call, &sample.inputs) {
            failures.push(format!("{}: {what}", describe(sample)));
        }
    }
    report(&failures);
}

#[test]
fn backward_takes_inputs_of_any_layout() {
    let mut failures = Vec::new();
    for sample in samples()
        .iter()
        .filter(|sample| sample.differentiable && !sample.large)
    {
        for form in [Form::Transposed, Form::Sliced] {
            let inputs: Vec<_> = sample.inputs.iter().map(|x| form.of(x)).collect();
            if let Err(what) = gradcheck(&*sample.call, &inputs) {
                failures.push(format!("{} {form:?}: {what}", describe(sample)));
            }
        }
    }
    report(&failures);
}
