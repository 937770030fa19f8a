//! `Sampler`: which samples an epoch takes, in which order.

use std::ops::Range;
use std::sync::Arc;

use fireclay_core::{Error, Result};

use crate::sample_rng::{Purpose, SampleRng};

/// Which samples an epoch takes, in which order (`torch.utils.data.Sampler`).
pub trait Sampler: Send + Sync {
    /// How many indices an epoch has.
    fn len(&self) -> usize;

    /// The indices of epoch `epoch`, [`len`](Sampler::len) of them. A function of the epoch alone: it is asked again
    /// when a run is resumed.
    fn order(&self, epoch: u64) -> Vec<usize>;

    /// Whether an epoch has no indices.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// 0, 1, 2, ... (`SequentialSampler`).
#[derive(Clone, Copy, Debug)]
pub struct SequentialSampler {
    /// How many samples there are.
    pub len: usize,
}

impl Sampler for SequentialSampler {
    fn len(&self) -> usize {
        self.len
    }

    fn order(&self, _: u64) -> Vec<usize> {
        (0..self.len).collect()
    }
}

/// Every sample once, in an order drawn by seed and epoch (`RandomSampler`).
#[derive(Clone, Copy, Debug)]
pub struct RandomSampler {
    /// How many samples there are.
    pub len: usize,
    /// The seed.
    pub seed: u64,
}

impl Sampler for RandomSampler {
    fn len(&self) -> usize {
        self.len
    }

    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut indices: Vec<usize> = (0..self.len).collect();
        SampleRng::of(Purpose::Order, self.seed, epoch, 0).shuffle(&mut indices);
        indices
    }
}

/// Samples drawn with replacement, each as often as its weight says (`WeightedRandomSampler`).
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    /// The sum of the weights up to and including each sample's.
    sums: Vec<f64>,
    count: usize,
    seed: u64,
}

impl WeightedRandomSampler {
    /// Draws `count` samples an epoch; sample `i` has weight `weights[i]`.
    ///
    /// # Errors
    /// A weight that is negative or not finite, no weight above zero, or a `count` larger than memory.
    pub fn new(weights: &[f64], count: usize, seed: u64) -> Result<WeightedRandomSampler> {
        let mut sum = 0.0;
        let mut sums = Vec::with_capacity(weights.len());
        for (index, &weight) in weights.iter().enumerate() {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(Error::argument(
                    "WeightedRandomSampler",
                    format!("weight {index} is {weight}, expected a finite number of at least 0"),
                ));
            }
            sum += weight;
            sums.push(sum);
        }
        if !(sum.is_finite() && sum > 0.0) {
            return Err(Error::argument(
                "WeightedRandomSampler",
                format!("the weights add up to {sum}, expected a finite sum above 0"),
            ));
        }
        check_room("WeightedRandomSampler", count)?;
        Ok(WeightedRandomSampler { sums, count, seed })
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self) -> usize {
        self.count
    }

    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut rng = SampleRng::of(Purpose::Order, self.seed, epoch, 0);
        let sum = self.sums[self.sums.len() - 1];
        // The first sample whose sum reaches past the draw; rounding may make the draw equal to the whole sum.
        let last = self.sums.partition_point(|&end| end < sum);
        (0..self.count)
            .map(|_| {
                let draw = fireclay_core::philox::uniform_f64(rng.next_u64()) * sum;
                self.sums.partition_point(|&end| end <= draw).min(last)
            })
            .collect()
    }
}

/// The batches of an epoch: an order cut into pieces (`BatchSampler`), by number, so that resuming skips for free.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    order: Arc<[usize]>,
    batch_size: usize,
    drop_last: bool,
}

impl Batches {
    pub(crate) fn new(order: Vec<usize>, batch_size: usize, drop_last: bool) -> Batches {
        Batches {
            order: order.into(),
            batch_size,
            drop_last,
        }
    }

    pub(crate) fn len(&self) -> usize {
        count(self.order.len(), self.batch_size, self.drop_last)
    }

    /// The indices of batch `number`.
    pub(crate) fn batch(&self, number: usize) -> &[usize] {
        let start = number * self.batch_size;
        let range: Range<usize> = start..(start + self.batch_size).min(self.order.len());
        &self.order[range]
    }
}

/// Refuses an epoch whose order is larger than memory: orders are made in full.
pub(crate) fn check_room(op: &'static str, indices: usize) -> Result<()> {
    let mut order: Vec<usize> = Vec::new();
    order.try_reserve_exact(indices).map_err(|_| {
        let what = format!("an epoch of {indices} samples, whose order is larger than memory");
        Error::argument(op, what).with_hint("cut the data set into parts, or draw fewer samples")
    })
}

/// How many batches `samples` make.
pub(crate) fn count(samples: usize, batch_size: usize, drop_last: bool) -> usize {
    if drop_last {
        samples / batch_size
    } else {
        samples.div_ceil(batch_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_follow_seed_and_epoch() {
        let sampler = RandomSampler { len: 50, seed: 1 };
        assert_eq!(sampler.order(3), sampler.order(3));
        assert_ne!(sampler.order(3), sampler.order(4));
        assert_ne!(
            sampler.order(3),
            RandomSampler { len: 50, seed: 2 }.order(3)
        );
        let mut sorted = sampler.order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, SequentialSampler { len: 50 }.order(0));
    }

    #[test]
    fn weights_decide_how_often_a_sample_comes() {
        let sampler = WeightedRandomSampler::new(&[1.0, 0.0, 3.0, 0.0], 10_000, 1).unwrap();
        let mut counts = [0; 4];
        sampler
            .order(0)
            .iter()
            .for_each(|&index| counts[index] += 1);
        assert_eq!((counts[1], counts[3]), (0, 0));
        // The standard deviation is 43.
        assert!((2250..2750).contains(&counts[0]), "{counts:?}");
        for bad in [
            &[][..],
            &[0.0],
            &[1.0, -1.0],
            &[f64::NAN],
            &[f64::MAX, f64::MAX],
        ] {
            assert!(WeightedRandomSampler::new(bad, 1, 1).is_err(), "{bad:?}");
        }
        for count in [1 << 50, usize::MAX] {
            let error = WeightedRandomSampler::new(&[1.0], count, 0).unwrap_err();
            assert!(error.to_string().contains(&count.to_string()), "{error}");
        }
    }

    #[test]
    fn batches_cut_the_order() {
        let batches = Batches::new((0..7).collect(), 3, false);
        assert_eq!(batches.len(), 3);
        assert_eq!(batches.batch(2), [6]);
        assert_eq!(Batches::new((0..7).collect(), 3, true).len(), 2);
        assert_eq!(Batches::new(vec![], 3, false).len(), 0);
    }
}
