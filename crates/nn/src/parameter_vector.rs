//! Parameters as one vector (`torch.nn.utils`).

use fireclay_tensor::{Error, Parameter, Result, Tensor, no_grad};

/// All numbers of the parameters, one after the other, as a vector (`parameters_to_vector`). Recorded: gradients flow back.
///
/// # Errors
/// If there is none, or they are on several devices.
#[track_caller]
pub fn parameters_to_vector(parameters: &[Parameter]) -> Result<Tensor> {
    let flat = parameters
        .iter()
        .map(|parameter| parameter.tensor().reshape(&[-1]));
    let flat = flat.collect::<Result<Vec<Tensor>>>()?;
    Tensor::cat(&flat.iter().collect::<Vec<_>>(), 0)
}

/// Overwrites the parameters, without recording, with the numbers of a vector in the order of [`parameters_to_vector`]
/// (`vector_to_parameters`). Unlike PyTorch's, they share no memory with it afterwards.
///
/// # Errors
/// If `vector` is none, or has another number of elements than the parameters together; none is changed then.
#[track_caller]
pub fn vector_to_parameters(vector: &Tensor, parameters: &[Parameter]) -> Result<()> {
    let total: usize = parameters
        .iter()
        .map(|parameter| parameter.tensor().numel())
        .sum();
    if vector.shape()[..] != [total] {
        let what = format!("expected a vector [{total}], got {}", vector.shape());
        return Err(Error::shape("vector_to_parameters", what)
            .with_operands(|| vec![vector.operand("vector")])
            .with_hint("it must have as many elements as the parameters together"));
    }
    let mut start = 0;
    for parameter in parameters {
        let tensor = parameter.tensor();
        let count = tensor.numel();
        let part = vector.narrow(0, start, count)?;
        let sizes: Vec<isize> = tensor.shape().iter().map(|&size| size as isize).collect();
        no_grad(|| tensor.copy_(&part.detach().reshape(&sizes)?))?;
        start += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Linear, ModuleExt};

    #[test]
    fn a_vector_goes_to_parameters_and_back() {
        let layer = Linear::new(3, 2).unwrap();
        let parameters = layer.parameters();
        let before = parameters_to_vector(&parameters).unwrap();
        assert_eq!(&before.shape()[..], [8]);
        assert!(before.requires_grad());
        let numbers: Vec<f32> = (0..8).map(|number| number as f32).collect();
        let vector = Tensor::from_slice(&numbers, &[8], "cpu").unwrap();
        vector_to_parameters(&vector, &parameters).unwrap();
        let after = parameters_to_vector(&layer.parameters()).unwrap();
        assert_eq!(after.to_vec::<f32>().unwrap(), numbers);
        assert!(parameters[0].tensor().requires_grad());
        let short = vector.narrow(0, 0, 7).unwrap();
        let text = vector_to_parameters(&short, &parameters)
            .unwrap_err()
            .to_string();
        assert!(text.contains("[8], got [7]"), "{text}");
    }
}
