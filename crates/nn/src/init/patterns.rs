//! Fills whose elements depend on each other, or on where they stand.

use fireclay_tensor::ops::linalg::QrMode;
use fireclay_tensor::{DType, Error, Result, Tensor, no_grad};

/// Normal with these mean and standard deviation, drawn again where outside of `low` to `high` (`trunc_normal_`).
///
/// # Errors
/// If `low` exceeds `high`, or the tensor is none of floats.
pub fn trunc_normal_(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    if low.is_nan() || high.is_nan() || low > high {
        let what = format!("low must not exceed high, got {low} and {high}");
        return Err(Error::argument("trunc_normal_", what));
    }
    no_grad(|| {
        // A uniform number between the bounds' probabilities is the probability of the result.
        let scale = std * std::f64::consts::SQRT_2;
        let bounds =
            Tensor::from_slice(&[(low - mean) / scale, (high - mean) / scale], &[2], "cpu")?;
        let bounds = bounds.erf()?.to_vec::<f64>()?;
        tensor.uniform_(bounds[0], bounds[1])?;
        tensor.erfinv_()?;
        tensor.mul_(scale)?.add_(mean)?.clamp_(low, high).map(drop)
    })
}

/// A random matrix `[rows, the others together]` whose rows (or columns, if these are fewer) are orthogonal and of length
/// `gain` (`orthogonal_`; Saxe et al. 2013). On a device, the host decomposes a matrix and is waited for.
///
/// # Errors
/// If the tensor has fewer than 2 dimensions.
pub fn orthogonal_(tensor: &Tensor, gain: f64) -> Result<()> {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    if shape.ndim() < 2 {
        return Err(too_flat("orthogonal_", "at least 2 dimensions", tensor));
    }
    if tensor.numel() == 0 {
        return Ok(());
    }
    no_grad(|| {
        let (rows, cols) = (shape[0], tensor.numel() / shape[0]);
        let wide = if dtype == DType::F64 {
            dtype
        } else {
            DType::F32
        };
        let numbers = Tensor::empty(&[rows.max(cols), rows.min(cols)], wide, tensor.device())?;
        let (q, r) = numbers.normal_(0.0, 1.0)?.qr(QrMode::Reduced)?;
        // Makes it unique, so that no direction is preferred.
        let q = q.mul(&r.diag(0)?.sign()?)?;
        let q = if rows < cols { q.transpose(0, 1)? } else { q };
        let sizes: Vec<isize> = shape.iter().map(|&size| size as isize).collect();
        let q = q.mul(gain)?.reshape(&sizes)?;
        tensor.copy_(&q.to_dtype(dtype)?).map(drop)
    })
}

/// A matrix of ones on the diagonal, zeros elsewhere (`eye_`).
///
/// # Errors
/// If the tensor has not 2 dimensions.
pub fn eye_(tensor: &Tensor) -> Result<()> {
    let &[rows, cols] = &tensor.shape()[..] else {
        return Err(too_flat("eye_", "2 dimensions", tensor));
    };
    ones_at("eye_", tensor, (0..rows.min(cols)).map(|at| at * cols + at))
}

/// A weight `[out, in / groups, ..]` of a convolution that passes on as many channels as it can: one at the middle of the field
/// for each output's own input, zeros elsewhere (`dirac_`).
///
/// # Errors
/// If the tensor has not 3 to 5 dimensions, or `groups` doesn't divide the first size.
pub fn dirac_(tensor: &Tensor, groups: usize) -> Result<()> {
    let (outputs, inputs, field) = match &tensor.shape()[..] {
        [outputs, inputs, field @ ..] if (1..=3).contains(&field.len()) => {
            (*outputs, *inputs, field)
        }
        _ => return Err(too_flat("dirac_", "3 to 5 dimensions", tensor)),
    };
    if groups == 0 || !outputs.is_multiple_of(groups) {
        let what = format!("groups must divide the first size, got {groups} and {outputs}");
        return Err(Error::argument("dirac_", what));
    }
    let taps: usize = field.iter().product();
    let middle = field.iter().fold(0, |at, size| at * size + size / 2);
    let each = outputs / groups;
    let places = (0..groups).flat_map(|group| {
        (0..each.min(inputs))
            .map(move |channel| ((group * each + channel) * inputs + channel) * taps)
    });
    ones_at("dirac_", tensor, places.map(|place| place + middle))
}

/// Normal with this standard deviation and mean 0, but a share `sparsity` of each column, at random places, is 0 (`sparse_`; Martens
/// 2010).
///
/// # Errors
/// If the tensor has not 2 dimensions, or the share lies outside of 0 to 1.
pub fn sparse_(tensor: &Tensor, sparsity: f64, std: f64) -> Result<()> {
    let &[rows, cols] = &tensor.shape()[..] else {
        return Err(too_flat("sparse_", "2 dimensions", tensor));
    };
    if !(0.0..=1.0).contains(&sparsity) {
        let what = format!("sparsity must be from 0 to 1, got {sparsity}");
        return Err(Error::argument("sparse_", what));
    }
    if rows * cols == 0 {
        return Ok(());
    }
    no_grad(|| {
        let zeros = (sparsity * rows as f64).ceil() as i64;
        tensor.normal_(0.0, std)?;
        let ranks = Tensor::rand(&[rows, cols], tensor.device())?;
        let ranks = ranks.argsort(0, false)?.argsort(0, false)?;
        tensor.masked_fill_(&ranks.lt(zeros)?, 0.0).map(drop)
    })
}

/// Zeros, but ones at these places of the elements in order.
fn ones_at(op: &'static str, tensor: &Tensor, places: impl Iterator<Item = usize>) -> Result<()> {
    let mut elements: Vec<f32> = Vec::new();
    let room = elements.try_reserve_exact(tensor.numel());
    room.map_err(|_| Error::argument(op, format!("no memory for {} elements", tensor.numel())))?;
    elements.resize(tensor.numel(), 0.0);
    for place in places {
        if let Some(element) = elements.get_mut(place) {
            *element = 1.0;
        }
    }
    let pattern = Tensor::from_slice(&elements, tensor.shape(), tensor.device())?;
    no_grad(|| tensor.copy_(&pattern.to_dtype(tensor.dtype())?)).map(drop)
}

fn too_flat(op: &'static str, expected: &str, tensor: &Tensor) -> Error {
    let what = format!("expected {expected}, got shape {}", tensor.shape());
    Error::shape(op, what).with_operands(|| vec![tensor.operand("tensor")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeros(shape: &[usize]) -> Tensor {
        Tensor::zeros(shape, "cpu").unwrap()
    }

    #[test]
    fn truncated_numbers_have_the_moments_of_their_distribution() {
        let x = zeros(&[20_000]);
        trunc_normal_(&x, 0.5, 2.0, -1.5, 2.5).unwrap();
        let numbers = x.to_vec::<f32>().unwrap();
        assert!(numbers.iter().all(|x| (-1.5..=2.5).contains(x)));
        let mean = numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / 20_000.0;
        let spread = numbers.iter().map(|&x| (f64::from(x) - mean).powi(2));
        let std = (spread.sum::<f64>() / 20_000.0).sqrt();
        // Within one standard deviation of both sides: 0.5396 of it.
        assert!((mean - 0.5).abs() < 0.03, "{mean}");
        assert!((std / (2.0 * 0.5396) - 1.0).abs() < 0.02, "{std}");
        assert!(trunc_normal_(&x, 0.0, 1.0, 2.0, 1.0).is_err());
    }

    #[test]
    fn rows_or_columns_are_orthogonal() {
        for shape in [&[3usize, 2, 4][..], &[6, 3], &[4, 4]] {
            let x = zeros(shape);
            orthogonal_(&x, 2.0).unwrap();
            let x = x.reshape(&[shape[0] as isize, -1]).unwrap();
            let across = x.transpose(0, 1).unwrap();
            let product = match shape[0] * shape[0] <= x.numel() {
                true => x.matmul(&across),
                false => across.matmul(&x),
            };
            let product = product.unwrap();
            let side = product.shape()[0];
            for (place, got) in product.to_vec::<f32>().unwrap().into_iter().enumerate() {
                let expected = if place % (side + 1) == 0 { 4.0 } else { 0.0 };
                assert!((got - expected).abs() < 1e-5, "{got} of {expected}");
            }
        }
        let text = orthogonal_(&zeros(&[3]), 1.0).unwrap_err().to_string();
        assert!(
            text.contains("orthogonal_") && text.contains("[3]"),
            "{text}"
        );
    }

    #[test]
    fn ones_stand_where_they_pass_channels_on() {
        let x = zeros(&[2, 3]);
        eye_(&x).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let weight = zeros(&[4, 2, 3]);
        dirac_(&weight, 2).unwrap();
        let ones: Vec<usize> = (weight.to_vec::<f32>().unwrap().iter().enumerate())
            .filter(|(_, x)| **x == 1.0)
            .map(|(place, _)| place)
            .collect();
        // [0, 0, 1], [1, 1, 1], [2, 0, 1], [3, 1, 1]
        assert_eq!(ones, [1, 10, 13, 22]);
        assert_eq!(weight.sum_all().unwrap().item().unwrap(), 4.0);
        assert!(dirac_(&weight, 3).is_err() && dirac_(&x, 1).is_err() && eye_(&weight).is_err());
    }

    #[test]
    fn a_share_of_each_column_is_zero() {
        let x = zeros(&[50, 40]);
        sparse_(&x, 0.31, 0.5).unwrap();
        let zeros = x.eq(0.0).unwrap().sum(&[0], false).unwrap();
        assert_eq!(zeros.to_vec::<i64>().unwrap(), [16; 40]);
        let square = x.square().unwrap().sum_all().unwrap().item().unwrap();
        let std = (square / (34.0 * 40.0)).sqrt();
        assert!((std / 0.5 - 1.0).abs() < 0.08, "{std}");
        assert!(sparse_(&x, 1.5, 1.0).is_err());
    }
}
