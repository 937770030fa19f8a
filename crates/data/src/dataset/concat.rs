//! `ConcatDataset`: datasets one after the other.

use fireclay_core::Result;

use super::{Dataset, check_index};
use crate::sample_rng::SampleRng;

/// The samples of several datasets, one dataset after the other (`torch.utils.data.ConcatDataset`). Datasets of
/// different types go in as `Box<dyn Dataset<Item = ..>>`.
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
    /// The index after the last sample of each dataset.
    ends: Vec<usize>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// The samples of `datasets`.
    pub fn new(datasets: Vec<D>) -> ConcatDataset<D> {
        let ends = datasets
            .iter()
            .scan(0, |end, dataset| {
                *end += dataset.len();
                Some(*end)
            })
            .collect();
        ConcatDataset { datasets, ends }
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        check_index("ConcatDataset", index, self.len())?;
        let place = self.ends.partition_point(|&end| end <= index);
        let start = self.ends[place] - self.datasets[place].len();
        self.datasets[place].get(index - start, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorDataset;
    use fireclay_tensor::Tensor;

    #[test]
    fn samples_come_dataset_after_dataset() {
        let part = |elements: &[i64]| {
            let tensor = Tensor::from_slice(elements, &[elements.len()], "cpu").unwrap();
            TensorDataset::new(vec![tensor]).unwrap()
        };
        let all = ConcatDataset::new(vec![part(&[10, 11]), part(&[]), part(&[20])]);
        assert_eq!(all.len(), 3);
        let samples: Vec<f64> = (0..3)
            .map(|index| {
                let mut rng = SampleRng::new(0, 0, index);
                all.get(index, &mut rng).unwrap()[0].item().unwrap()
            })
            .collect();
        assert_eq!(samples, [10.0, 11.0, 20.0]);
        let error = all.get(3, &mut SampleRng::new(0, 0, 3)).unwrap_err();
        assert!(error.to_string().contains("below 3"), "{error}");
    }
}
