//! `DataLoader`: the batches of a dataset, epoch by epoch, made ahead by worker threads.
//!
//! What comes out depends on the dataset, the sampler, the seed and the epoch alone: not on the number of workers.

mod epoch;
mod queue;

pub use epoch::Epoch;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fireclay_core::{Error, LoaderState, Result};

use crate::collate::{Collate, DefaultCollate};
use crate::dataset::Dataset;
use crate::sample_rng::SampleRng;
use crate::sampler::{self, Batches, RandomSampler, Sampler, SequentialSampler};

/// The batches of a dataset (`torch.utils.data.DataLoader`). Made by [`DataLoader::builder`].
pub struct DataLoader<D, C = DefaultCollate> {
    source: Arc<Source<D, C>>,
    sampler: Box<dyn Sampler>,
    batch_size: usize,
    drop_last: bool,
    workers: usize,
    prefetch: usize,
    seed: u64,
}

/// What the workers share.
struct Source<D, C> {
    dataset: D,
    collate: C,
}

impl<D: Dataset> DataLoader<D> {
    /// A loader of `dataset`; without further calls it gives one sample a batch, in order, made by the caller's thread.
    pub fn builder(dataset: D) -> Builder<D, DefaultCollate> {
        Builder {
            dataset,
            collate: DefaultCollate,
            sampler: None,
            batch_size: 1,
            shuffle: false,
            drop_last: false,
            workers: 0,
            prefetch: None,
            seed: 0,
        }
    }
}

impl<D, C> DataLoader<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: Send + 'static,
{
    /// The batches of epoch `epoch`, counted from 0. After an error it ends.
    pub fn epoch(&self, epoch: u64) -> Epoch<C::Batch> {
        self.start(epoch, 0)
    }

    /// The batches that are left where `state` was taken from; those before are not computed.
    ///
    /// # Errors
    /// A state of a loader with another seed, or a batch that the epoch doesn't have.
    pub fn resume(&self, state: LoaderState) -> Result<Epoch<C::Batch>> {
        if state.seed != self.seed {
            return Err(Error::argument(
                "DataLoader::resume",
                format!(
                    "the state is of a loader with seed {}, this one has seed {}",
                    state.seed, self.seed
                ),
            )
            .with_hint("build the loader with the state's seed"));
        }
        if state.batch > self.len() {
            return Err(Error::argument(
                "DataLoader::resume",
                format!(
                    "the state says batch {}, expected at most {}, the number of batches in an epoch",
                    state.batch,
                    self.len()
                ),
            )
            .with_hint("resume with the same dataset and batch size"));
        }
        Ok(self.start(state.epoch, state.batch))
    }

    fn start(&self, epoch: u64, first: usize) -> Epoch<C::Batch> {
        let order = self.sampler.order(epoch);
        let batches = Batches::new(order, self.batch_size, self.drop_last);
        let end = batches.len();
        let (source, seed) = (self.source.clone(), self.seed);
        let make = move |number: usize, stop: &AtomicBool| {
            source.batch(batches.batch(number), seed, epoch, number, stop)
        };
        let state = LoaderState {
            seed,
            epoch,
            batch: first,
        };
        Epoch::start(Arc::new(make), state, end, self.workers, self.prefetch)
    }
}

impl<D, C> DataLoader<D, C> {
    /// How many batches an epoch has (`len(loader)`).
    pub fn len(&self) -> usize {
        sampler::count(self.sampler.len(), self.batch_size, self.drop_last)
    }

    /// Whether an epoch has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.source.dataset
    }

    /// Samples in a batch; the last one of an epoch may have fewer.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// The seed of the order and of the samples' random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl<D: Dataset, C: Collate<D::Item>> Source<D, C> {
    /// Batch `number` of the samples at `indices`; None once `stop` is set.
    fn batch(
        &self,
        indices: &[usize],
        seed: u64,
        epoch: u64,
        number: usize,
        stop: &AtomicBool,
    ) -> Option<Result<C::Batch>> {
        let mut items = Vec::with_capacity(indices.len());
        for &index in indices {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let mut rng = SampleRng::new(seed, epoch, index);
            match guarded("dataset", || self.dataset.get(index, &mut rng)) {
                Ok(item) => items.push(item),
                Err(error) => {
                    return Some(Err(Error::InSample {
                        index,
                        source: Box::new(error),
                    }));
                }
            }
        }
        let batch = guarded("collate", || self.collate.collate(items));
        Some(batch.map_err(|error| {
            let first = indices.first().copied().unwrap_or(0);
            error.with_hint(format!(
                "this was batch {number} of epoch {epoch}, whose first sample is {first}"
            ))
        }))
    }
}

/// The result of the user's code; a panic of it becomes an error, so that no thread waits for a dead one.
fn guarded<T>(what: &'static str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    // A value half changed by the panic belongs to the user's dataset, which is asked for nothing more: the epoch ends.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| Err(panicked(what, payload)))
}

/// The error of a panic with this payload.
fn panicked(what: &'static str, payload: Box<dyn Any + Send>) -> Error {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Error::argument(what, format!("panicked: {message}"))
}

/// How to load: made by [`DataLoader::builder`].
pub struct Builder<D, C> {
    dataset: D,
    collate: C,
    sampler: Option<Box<dyn Sampler>>,
    batch_size: usize,
    shuffle: bool,
    drop_last: bool,
    workers: usize,
    prefetch: Option<usize>,
    seed: u64,
}

impl<D: Dataset, C> Builder<D, C> {
    /// Samples in a batch; 1 if not given.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Whether each epoch has an order of its own, drawn by seed and epoch.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Which samples an epoch takes, in which order; instead of [`shuffle`](Builder::shuffle).
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Some(Box::new(sampler));
        self
    }

    /// Whether a last batch of fewer samples is left out.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// How many threads make batches ahead; 0 makes each batch when it is asked for (`num_workers`).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many batches each worker may be ahead; 2 if not given (`prefetch_factor`).
    #[must_use]
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// The seed of the order and of the samples' random numbers; 0 if not given.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How samples become a batch (`collate_fn`).
    #[must_use]
    pub fn collate<C2: Collate<D::Item>>(self, collate: C2) -> Builder<D, C2> {
        Builder {
            dataset: self.dataset,
            collate,
            sampler: self.sampler,
            batch_size: self.batch_size,
            shuffle: self.shuffle,
            drop_last: self.drop_last,
            workers: self.workers,
            prefetch: self.prefetch,
            seed: self.seed,
        }
    }

    /// The loader.
    ///
    /// # Errors
    /// A batch size of 0, a prefetch of 0 or without workers, shuffling together with a sampler, an epoch whose order is larger
    /// than memory.
    pub fn build(self) -> Result<DataLoader<D, C>> {
        let refuse = |what: &str, hint: &str| {
            Err(Error::argument("DataLoader", what.to_owned()).with_hint(hint.to_owned()))
        };
        if self.batch_size == 0 {
            return refuse("batch_size is 0, expected at least 1", "");
        }
        if self.prefetch == Some(0) {
            return refuse("prefetch is 0, expected at least 1", "");
        }
        if self.prefetch.is_some() && self.workers == 0 {
            return refuse(
                "prefetch without workers: nobody works ahead",
                "ask for workers(1) or more",
            );
        }
        if self.shuffle && self.sampler.is_some() {
            return refuse(
                "shuffle together with a sampler: both say the order",
                "leave one of them out",
            );
        }
        let len = self.dataset.len();
        let seed = self.seed;
        let sampler: Box<dyn Sampler> = match self.sampler {
            Some(sampler) => sampler,
            None if self.shuffle => Box::new(RandomSampler { len, seed }),
            None => Box::new(SequentialSampler { len }),
        };
        sampler::check_room("DataLoader", sampler.len())?;
        Ok(DataLoader {
            source: Arc::new(Source {
                dataset: self.dataset,
                collate: self.collate,
            }),
            sampler,
            batch_size: self.batch_size,
            drop_last: self.drop_last,
            workers: self.workers,
            prefetch: self.prefetch.unwrap_or(2),
            seed,
        })
    }
}
