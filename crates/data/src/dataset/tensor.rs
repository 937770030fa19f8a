//! `TensorDataset`: samples along the first dimension of tensors.

use fireclay_core::{Error, Result};
use fireclay_tensor::Tensor;

use super::{Dataset, check_index};
use crate::sample_rng::SampleRng;

/// Tensors whose first dimension counts the samples (`torch.utils.data.TensorDataset`). A sample has one view per
/// tensor, without that dimension.
#[derive(Clone)]
pub struct TensorDataset {
    tensors: Vec<Tensor>,
    len: usize,
}

impl TensorDataset {
    /// The samples of `tensors`.
    ///
    /// # Errors
    /// No tensor, a zero-dim one, or first dimensions that differ.
    pub fn new(tensors: Vec<Tensor>) -> Result<TensorDataset> {
        let mut len = None;
        for (place, tensor) in tensors.iter().enumerate() {
            let size = tensor.shape().first().copied().ok_or_else(|| {
                let what = format!(
                    "tensor {place} is zero-dim, expected its first dimension to count samples"
                );
                Error::shape("TensorDataset", what)
            })?;
            let first = *len.get_or_insert(size);
            if size != first {
                return Err(Error::shape(
                    "TensorDataset",
                    format!("tensor {place} has {size} samples, expected {first} as tensor 0 has"),
                )
                .with_operands(|| {
                    vec![
                        tensors[0].operand("tensor 0"),
                        tensor.operand(format!("tensor {place}")),
                    ]
                }));
            }
        }
        let len = len.ok_or_else(|| {
            Error::argument("TensorDataset", "expected at least one tensor, got none")
        })?;
        Ok(TensorDataset { tensors, len })
    }

    /// The tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl Dataset for TensorDataset {
    type Item = Vec<Tensor>;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<Vec<Tensor>> {
        check_index("TensorDataset", index, self.len)?;
        self.tensors
            .iter()
            .map(|tensor| tensor.select(0, index as isize))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_must_agree_on_the_number_of_samples() {
        let of = |shape: &[usize]| Tensor::zeros(shape, "cpu").unwrap();
        let text = |tensors| TensorDataset::new(tensors).err().unwrap().to_string();
        assert!(text(vec![]).contains("at least one"));
        assert!(text(vec![of(&[])]).contains("tensor 0 is zero-dim"));
        let text = text(vec![of(&[2, 3]), of(&[4])]);
        assert!(
            text.contains("tensor 1 has 4 samples, expected 2"),
            "{text}"
        );
        assert_eq!(
            TensorDataset::new(vec![of(&[2, 3]), of(&[2])])
                .unwrap()
                .len(),
            2
        );
    }
}
