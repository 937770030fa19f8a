//! `Dataset`: samples by index, with random numbers of their own. Datasets made of tensors and of other datasets.

mod concat;
mod map;
mod subset;
mod tensor;

pub use concat::ConcatDataset;
pub use map::Map;
pub use subset::Subset;
pub use tensor::TensorDataset;

use std::sync::Arc;

use fireclay_core::{Error, Result};

use crate::sample_rng::SampleRng;

/// Samples by index (`torch.utils.data.Dataset`).
///
/// Worker threads call [`get`](Dataset::get) at the same time and in any order.
pub trait Dataset: Send + Sync {
    /// A sample: a tensor, a number, a tuple of such, or a type of your own.
    type Item;

    /// How many samples there are.
    fn len(&self) -> usize;

    /// Sample `index`, below [`len`](Dataset::len). All chance comes from `rng`, so that a sample does not depend on which
    /// worker makes it.
    ///
    /// # Errors
    /// Whatever keeps the sample from being made; the loader adds its index.
    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Item>;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset whose samples are `function` of this one's (a transform; augmentation draws from the generator).
    fn map<U, F>(self, function: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item, &mut SampleRng) -> Result<U> + Send + Sync,
    {
        Map::new(self, function)
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        (**self).get(index, rng)
    }
}

impl<D: Dataset + ?Sized> Dataset for Box<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        (**self).get(index, rng)
    }
}

/// The error of an index that a dataset does not have.
pub(crate) fn check_index(op: &'static str, index: usize, len: usize) -> Result<()> {
    if index < len {
        return Ok(());
    }
    Err(Error::argument(
        op,
        format!("sample {index} is out of range, expected below {len}"),
    ))
}
