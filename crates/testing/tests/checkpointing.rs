//! Checkpoints: what a function captures beside its inputs.

use fireclay_tensor::{Result, Tensor, checkpoint};

#[test]
fn an_input_may_be_captured_too() -> Result<()> {
    let x = Tensor::full(&[3], 2.0, "cpu")?.requires_grad_(true)?;
    let captured = x.clone();
    let y = checkpoint(&[&x], move |inputs| {
        Ok(vec![inputs[0].mul(&inputs[0])?.mul(&captured)?])
    })?;
    y[0].sum_all()?.backward()?;
    let grad = x.grad().expect("a gradient").to_vec::<f32>()?;
    assert_eq!(grad, [12.0; 3]);
    Ok(())
}
