//! Gradient checks in f64: backward against central differences, of first and of second order.

use fireclay_tensor::{Backpropagation, DType, Device, Result, Tensor, grad_with};

use crate::compare::values;

/// A function of tensors to check: from its inputs to one floating tensor.
pub type Differentiable<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// The step of the differences. The error of a central difference of an f64 function is about 1e-10 of its scale.
const STEP: f64 = 1e-5;

/// Whether backward of `function` gives, for each f64 input, what central differences give.
///
/// Inputs of other dtypes (indices, conditions) are held fixed. The output is weighted with fixed numbers, so that no
/// mistake can cancel in a sum. `function` must be smooth at `inputs`.
pub fn gradcheck(function: Differentiable<'_>, inputs: &[Tensor]) -> Result<(), String> {
    let text = |error: fireclay_tensor::Error| error.to_string();
    let leaves = leaves(inputs).map_err(text)?;
    let output = function(&leaves).map_err(text)?;
    if output.dtype() != DType::F64 {
        return Err(format!("the output is {}, expected f64", output.dtype()));
    }
    let weights = weights(&output).map_err(text)?;
    let wanted: Vec<usize> = differentiated(inputs);
    let sources: Vec<&Tensor> = wanted.iter().map(|&index| &leaves[index]).collect();
    let options = Backpropagation {
        allow_unused: true,
        ..Backpropagation::default()
    };
    let grads = if output.requires_grad() {
        grad_with(&[&output], &[Some(&weights)], &sources, options).map_err(text)?
    } else {
        vec![None; sources.len()]
    };
    let weights = values(&weights);
    for (&index, grad) in wanted.iter().zip(grads) {
        let numel = inputs[index].numel();
        let analytic = grad.as_ref().map_or_else(|| vec![0.0; numel], values);
        if let Some(grad) = &grad
            && grad.shape() != inputs[index].shape()
        {
            let (got, want) = (grad.shape(), inputs[index].shape());
            return Err(format!(
                "gradient of input {index} has shape {got}, expected {want}"
            ));
        }
        for (place, &analytic) in analytic.iter().enumerate() {
            let moved = |by: f64| -> Result<f64, String> {
                let inputs = moved(inputs, index, place, by).map_err(text)?;
                let output = values(&function(&inputs).map_err(text)?);
                Ok(output.iter().zip(&weights).map(|(y, w)| y * w).sum())
            };
            let numeric = (moved(STEP)? - moved(-STEP)?) / (2.0 * STEP);
            let scale = 1.0
                + numeric
                    .abs()
                    .max(weights.iter().fold(0.0, |max, w| w.abs().max(max)));
            let differs = (analytic - numeric).abs() > 1e-6 * scale;
            if differs || analytic.is_nan() || numeric.is_nan() {
                return Err(format!(
                    "gradient of input {index} at place {place}: backward gives {analytic:e}, differences {numeric:e}"
                ));
            }
        }
    }
    Ok(())
}

/// [`gradcheck`] of the gradient of `function`, as a function of the inputs and of the incoming gradient.
pub fn gradgradcheck(function: Differentiable<'_>, inputs: &[Tensor]) -> Result<(), String> {
    let text = |error: fireclay_tensor::Error| error.to_string();
    let output = function(inputs).map_err(text)?;
    let weights = weights(&output).map_err(text)?;
    let wanted = differentiated(inputs);
    let gradient = |all: &[Tensor]| -> Result<Tensor> {
        let (inputs, weights) = all.split_at(all.len() - 1);
        let leaves: Vec<Tensor> = inputs
            .iter()
            .map(|input| match input.dtype() {
                DType::F64 if !input.requires_grad() => input.detach().requires_grad_(true),
                _ => Ok(input.clone()),
            })
            .collect::<Result<_>>()?;
        let sources: Vec<&Tensor> = wanted.iter().map(|&index| &leaves[index]).collect();
        let options = Backpropagation {
            create_graph: true,
            allow_unused: true,
            ..Backpropagation::default()
        };
        let output = function(&leaves)?;
        let grads = grad_with(&[&output], &[Some(&weights[0])], &sources, options)?;
        let mut total = Tensor::full_of(&[], 0.0, DType::F64, Device::Cpu)?;
        for grad in grads.into_iter().flatten() {
            let direction = self::weights(&grad)?;
            total = total.add(&grad.mul(&direction)?.sum_all()?)?;
        }
        Ok(total)
    };
    let mut all = inputs.to_vec();
    all.push(weights);
    gradcheck(&gradient, &all)
}

fn differentiated(inputs: &[Tensor]) -> Vec<usize> {
    (0..inputs.len())
        .filter(|&index| inputs[index].dtype() == DType::F64)
        .collect()
}

/// Fresh handles on the inputs, the f64 ones requiring grad. Layouts stay.
fn leaves(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let leaf = |input: &Tensor| match input.dtype() {
        DType::F64 => input.detach().requires_grad_(true),
        _ => Ok(input.clone()),
    };
    inputs.iter().map(leaf).collect()
}

/// The inputs with one element of one of them moved.
fn moved(inputs: &[Tensor], index: usize, place: usize, by: f64) -> Result<Vec<Tensor>> {
    let mut inputs = inputs.to_vec();
    let mut elements = inputs[index].detach().to_vec::<f64>()?;
    elements[place] += by;
    inputs[index] = Tensor::from_slice(&elements, inputs[index].shape(), Device::Cpu)?;
    Ok(inputs)
}

/// Fixed numbers of both signs and various sizes in the shape of `like`.
fn weights(like: &Tensor) -> Result<Tensor> {
    let numbers = (0..like.numel()).map(|place| ((place * 7 + 3) % 11) as f64 / 5.0 - 0.9);
    Tensor::from_slice(&numbers.collect::<Vec<f64>>(), like.shape(), Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_gradient_is_found() {
        let x = Tensor::from_slice(&[0.5, -1.5], &[2], Device::Cpu).expect("a tensor");
        let right = |x: &[Tensor]| x[0].square();
        assert_eq!(gradcheck(&right, std::slice::from_ref(&x)), Ok(()));
        assert_eq!(gradgradcheck(&right, std::slice::from_ref(&x)), Ok(()));
        // The detached factor has no gradient, but differences see it.
        let wrong = |x: &[Tensor]| x[0].mul(&x[0].detach());
        assert!(gradcheck(&wrong, &[x]).is_err());
    }
}
