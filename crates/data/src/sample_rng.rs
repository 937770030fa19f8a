//! Random numbers of the data path: keyed by what they are for, so that no thread's doing shows in them.
//!
//! Note [Random numbers of the data path]
//! Each use has a Philox stream of its own. The key is made of the seed, the
//! epoch and the purpose by one Philox block; the stream's offset is the sample's index (0 for an order). So the numbers
//! of a sample depend on (seed, epoch, index) alone: not on the number of workers, nor on the samples before it, nor
//! on where a run was resumed. A purpose of their own keeps them apart from the numbers of tensors of the same seed.

use fireclay_core::philox::{
    PhiloxStream, bounded, box_muller, halves, join, philox, radius_f32, uniform_f32,
};

/// What random numbers are for: part of their key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The order of an epoch's samples.
    Order = 1,
    /// What a dataset does to a sample.
    Sample = 2,
    /// Dealing samples to parts.
    Split = 3,
}

/// The random numbers of one sample in one epoch: given to [`Dataset::get`](crate::Dataset::get), and the only source
/// of chance a dataset may use. The same (seed, epoch, index) gives the same numbers, always.
#[derive(Clone, Debug)]
pub struct SampleRng {
    stream: PhiloxStream,
    /// Words drawn so far.
    drawn: u64,
    block: [u32; 4],
}

impl SampleRng {
    /// The numbers of sample `index` in `epoch`, of a run with this seed.
    pub fn new(seed: u64, epoch: u64, index: usize) -> SampleRng {
        SampleRng::of(Purpose::Sample, seed, epoch, index)
    }

    /// The numbers of another use. See Note [Random numbers of the data path].
    pub(crate) fn of(purpose: Purpose, seed: u64, epoch: u64, index: usize) -> SampleRng {
        let [low, high] = halves(epoch);
        let [key_low, key_high, ..] = philox(halves(seed), [low, high, purpose as u32, u32::MAX]);
        SampleRng {
            stream: PhiloxStream::new(join(key_low, key_high), index as u64),
            drawn: 0,
            block: [0; 4],
        }
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        let place = (self.drawn % 4) as usize;
        if place == 0 {
            self.block = self.stream.block(self.drawn / 4);
        }
        self.drawn += 1;
        self.block[place]
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let low = self.next_u32();
        join(low, self.next_u32())
    }

    /// A number from [0, 1), a multiple of 2^-24.
    pub fn uniform(&mut self) -> f32 {
        uniform_f32(self.next_u32())
    }

    /// A number from `low` (included) to `high`.
    pub fn uniform_between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }

    /// A whole number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        bounded(self.next_u64(), bound as u64) as usize
    }

    /// A number of the standard normal distribution (mean 0, standard deviation 1).
    pub fn normal(&mut self) -> f32 {
        let radius = radius_f32(self.next_u32());
        let [first, _] = box_muller(radius, uniform_f32(self.next_u32()));
        first
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f32) -> bool {
        self.uniform() < probability
    }

    /// Puts the elements into random order, each order equally likely (the Fisher-Yates shuffle).
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(mut rng: SampleRng) -> Vec<u32> {
        (0..9).map(|_| rng.next_u32()).collect()
    }

    #[test]
    fn the_key_decides_the_numbers() {
        let first = words(SampleRng::new(1, 2, 3));
        assert_eq!(first, words(SampleRng::new(1, 2, 3)));
        let others = [
            SampleRng::new(2, 2, 3),
            SampleRng::new(1, 3, 3),
            SampleRng::new(1, 2, 4),
            SampleRng::new(1 << 32 | 1, 2, 3),
            SampleRng::new(1, 1 << 32 | 2, 3),
            SampleRng::of(Purpose::Order, 1, 2, 3),
        ];
        for other in others {
            let other = words(other);
            assert!(first.iter().zip(&other).all(|(a, b)| a != b), "{other:?}");
        }
    }

    #[test]
    fn numbers_keep_to_their_ranges() {
        let mut rng = SampleRng::new(0, 0, 0);
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&rng.uniform()));
            assert!((-2.0..3.0).contains(&rng.uniform_between(-2.0, 3.0)));
            assert!(rng.below(7) < 7);
        }
        assert_eq!(rng.below(0), 0);
        let heads = (0..10_000).filter(|_| rng.chance(0.25)).count();
        // The standard deviation is 43.
        assert!((2250..2750).contains(&heads), "{heads}");
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut rng = SampleRng::new(3, 0, 0);
        let numbers: Vec<f64> = (0..10_000).map(|_| f64::from(rng.normal())).collect();
        let moment = |power| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / 10_000.0;
        // The standard deviations of the two are 0.01 and 0.014.
        assert!(moment(1).abs() < 0.05, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.07, "{}", moment(2));
    }

    #[test]
    fn a_shuffle_reaches_every_order_evenly() {
        let mut counts = std::collections::BTreeMap::new();
        for index in 0..6000 {
            let mut elements = [0, 1, 2];
            SampleRng::new(5, 0, index).shuffle(&mut elements);
            *counts.entry(elements).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // The standard deviation of a count is 29.
        assert!(
            counts.values().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }
}
