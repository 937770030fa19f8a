//! Decompositions have several right answers: what must hold of each.

use fireclay_tensor::{DType, Device, Result, Tensor};

/// Checks the outputs of a decomposition of `input`, which `golden/FORMAT.md` lists by the property's name: says what is wrong.
///
/// # Errors
/// If the outputs do not go together at all.
pub(crate) fn check(
    property: &str,
    input: &Tensor,
    outputs: &[Tensor],
) -> Result<std::result::Result<(), String>> {
    let a = as_f64(input)?;
    let outputs: Vec<Tensor> = outputs.iter().map(as_f64).collect::<Result<_>>()?;
    let epsilon = match input.dtype() {
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let (rows, cols) = (a.size(-2)?, a.size(-1)?);
    let largest = |x: &Tensor| -> Result<f64> {
        match x.numel() {
            0 => Ok(0.0),
            _ => x.abs()?.amax(&[], false)?.item(),
        }
    };
    let tolerance = 16.0 * epsilon * rows.max(cols) as f64 * largest(&a)?.max(1.0);
    let turned = |x: &Tensor| x.transpose(-2, -1);
    let mut wrong: Vec<String> = Vec::new();
    let mut expect = |what: &str, error: Tensor| -> Result<()> {
        let error = largest(&error)?;
        if error.is_nan() || error > tolerance {
            wrong.push(format!("{what} by {error:e}, allowed {tolerance:e}"));
        }
        Ok(())
    };
    let from_unit = |x: Tensor| -> Result<Tensor> {
        let unit = Tensor::eye(x.size(-1)?, Device::Cpu)?;
        x.sub(&unit.to_dtype(DType::F64)?)
    };
    match (property, &outputs[..]) {
        ("qr", [q, r]) => {
            expect("Q R is not A", q.matmul(r)?.sub(&a)?)?;
            expect("Q'Q is not I", from_unit(turned(q)?.matmul(q)?)?)?;
            let count = r.numel() / (r.size(-2)? * r.size(-1)?).max(1);
            let values = r.contiguous()?.to_vec::<f64>()?;
            let (height, width) = (r.size(-2)?, r.size(-1)?);
            let below = (0..count * height)
                .flat_map(|row| (0..width).map(move |col| (row, col)))
                .filter(|(row, col)| row % height > *col)
                .find(|(row, col)| values[row * width + col] != 0.0);
            if below.is_some() {
                wrong.push("R is no upper triangle".into());
            }
        }
        ("svd", [u, s, vh]) => {
            let product = u.mul(&s.unsqueeze(-2)?)?.matmul(vh)?;
            expect("U S Vh is not A", product.sub(&a)?)?;
            expect("U'U is not I", from_unit(turned(u)?.matmul(u)?)?)?;
            expect("Vh Vh' is not I", from_unit(vh.matmul(&turned(vh)?)?)?)?;
        }
        ("eigh", [w, v]) => {
            let product = v.mul(&w.unsqueeze(-2)?)?.matmul(&turned(v)?)?;
            expect("V w V' is not A", product.sub(&a)?)?;
            expect("V'V is not I", from_unit(turned(v)?.matmul(v)?)?)?;
        }
        (property, outputs) => wrong.push(format!(
            "no property {property} of {} outputs is known",
            outputs.len()
        )),
    }
    Ok(match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("; ")),
    })
}

fn as_f64(x: &Tensor) -> Result<Tensor> {
    x.detach().to(Device::Cpu)?.to_dtype(DType::F64)
}
