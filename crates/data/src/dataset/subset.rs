//! `Subset`: some samples of a dataset, in an order of their own.

use fireclay_core::Result;

use super::{Dataset, check_index};
use crate::sample_rng::SampleRng;

/// The samples of a dataset at given indices (`torch.utils.data.Subset`). Wrap the dataset in an
/// [`Arc`](std::sync::Arc) to take several subsets of it.
///
/// A sample's random numbers are keyed by its index in the subset.
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples at `indices`, in that order; an index may come more than once.
    ///
    /// # Errors
    /// An index that the dataset doesn't have.
    pub fn new(dataset: D, indices: Vec<usize>) -> Result<Subset<D>> {
        for &index in &indices {
            check_index("Subset", index, dataset.len())?;
        }
        Ok(Subset { dataset, indices })
    }

    /// Which samples of the dataset these are.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// The dataset underneath.
    pub fn inner(&self) -> &D {
        &self.dataset
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        check_index("Subset", index, self.len())?;
        self.dataset.get(self.indices[index], rng)
    }
}
