//! `Map`: a dataset whose samples are a function of another's.

use fireclay_core::Result;

use super::Dataset;
use crate::sample_rng::SampleRng;

/// The samples of a dataset, each passed through a function: see [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Map<D, F> {
    dataset: D,
    function: F,
}

impl<D, F> Map<D, F> {
    pub(super) fn new(dataset: D, function: F) -> Map<D, F> {
        Map { dataset, function }
    }

    /// The dataset underneath.
    pub fn inner(&self) -> &D {
        &self.dataset
    }
}

impl<D, F, U> Dataset for Map<D, F>
where
    D: Dataset,
    F: Fn(D::Item, &mut SampleRng) -> Result<U> + Send + Sync,
{
    type Item = U;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<U> {
        let item = self.dataset.get(index, rng)?;
        (self.function)(item, rng)
    }
}
