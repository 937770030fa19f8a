//! What the loader promises: every sample once, the same batches for any number of workers, resuming, and an end to
//! every epoch, whatever the dataset does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fireclay_core::{Error, Result};
use fireclay_data::{
    Augment, DataLoader, Dataset, LoaderState, Mnist, SampleRng, Sampler, WeightedRandomSampler,
};
use proptest::prelude::*;

/// Sample `i` is `i` and a random number.
#[derive(Clone)]
struct Numbers(usize);

impl Dataset for Numbers {
    type Item = (i64, i64);

    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<(i64, i64)> {
        Ok((index as i64, rng.next_u64() as i64))
    }
}

fn loader(len: usize, batch_size: usize, workers: usize) -> DataLoader<Numbers> {
    DataLoader::builder(Numbers(len))
        .batch_size(batch_size)
        .shuffle(true)
        .workers(workers)
        .seed(7)
        .build()
        .unwrap()
}

type Batch = (Vec<i64>, Vec<i64>);

fn batches(
    epoch: impl Iterator<Item = Result<(fireclay_tensor::Tensor, fireclay_tensor::Tensor)>>,
) -> Vec<Batch> {
    epoch
        .map(|batch| {
            let (numbers, random) = batch.unwrap();
            (numbers.to_vec().unwrap(), random.to_vec().unwrap())
        })
        .collect()
}

fn samples(batches: &[Batch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.0.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_sample_comes_once(len in 0usize..200, batch_size in 1usize..40, workers in 0usize..5, epoch in 0u64..5) {
        let loader = loader(len, batch_size, workers);
        let batches = batches(loader.epoch(epoch));
        prop_assert_eq!(batches.len(), loader.len());
        prop_assert_eq!(batches.len(), len.div_ceil(batch_size));
        let mut all = samples(&batches);
        all.sort_unstable();
        prop_assert_eq!(all, (0..len as i64).collect::<Vec<_>>());
        prop_assert!(batches.iter().rev().skip(1).all(|batch| batch.0.len() == batch_size));
    }

    #[test]
    fn workers_do_not_show_in_the_batches(len in 1usize..100, batch_size in 1usize..20, prefetch in 1usize..4) {
        let expected = batches(loader(len, batch_size, 0).epoch(1));
        for workers in 1..=4 {
            let loader = DataLoader::builder(Numbers(len))
                .batch_size(batch_size)
                .shuffle(true)
                .workers(workers)
                .prefetch(prefetch)
                .seed(7)
                .build()
                .unwrap();
            prop_assert_eq!(&batches(loader.epoch(1)), &expected);
        }
    }

    #[test]
    fn a_resumed_epoch_continues(len in 1usize..100, batch_size in 1usize..20, workers in 0usize..4, part in 0usize..100) {
        let loader = loader(len, batch_size, workers);
        let whole = batches(loader.epoch(2));
        let taken = part % (whole.len() + 1);
        let mut epoch = loader.epoch(2);
        prop_assert_eq!(&batches(epoch.by_ref().take(taken)), &whole[..taken]);
        let state = epoch.state();
        prop_assert_eq!(state, LoaderState { seed: 7, epoch: 2, batch: taken });
        drop(epoch);
        let rest = loader.resume(state).unwrap();
        prop_assert_eq!(rest.remaining(), whole.len() - taken);
        prop_assert_eq!(&batches(rest), &whole[taken..]);
    }
}

#[test]
fn epochs_differ_and_seeds_decide() {
    let order = |seed: u64, epoch: u64| {
        let loader = DataLoader::builder(Numbers(64)).batch_size(8).shuffle(true);
        batches(loader.seed(seed).build().unwrap().epoch(epoch))
    };
    assert_eq!(order(1, 0), order(1, 0));
    assert_ne!(samples(&order(1, 0)), samples(&order(1, 1)));
    assert_ne!(samples(&order(1, 0)), samples(&order(2, 0)));
    // The random numbers of a sample change with the epoch too.
    let unshuffled = DataLoader::builder(Numbers(4))
        .batch_size(4)
        .build()
        .unwrap();
    assert_ne!(
        batches(unshuffled.epoch(0))[0].1,
        batches(unshuffled.epoch(1))[0].1
    );
    assert_eq!(batches(unshuffled.epoch(0))[0].0, [0, 1, 2, 3]);
}

#[test]
fn drop_last_leaves_out_the_rest() {
    let loader = DataLoader::builder(Numbers(10))
        .batch_size(4)
        .drop_last(true);
    let loader = loader.workers(2).build().unwrap();
    assert_eq!(loader.len(), 2);
    assert_eq!(
        samples(&batches(loader.epoch(0))),
        (0..8).collect::<Vec<_>>()
    );
}

#[test]
fn a_sampler_decides_the_order() {
    let weighted = WeightedRandomSampler::new(&[0.0, 1.0, 0.0], 20, 1).unwrap();
    let expected: Vec<i64> = weighted
        .order(0)
        .iter()
        .map(|&index| index as i64)
        .collect();
    let loader = DataLoader::builder(Numbers(3))
        .sampler(weighted)
        .build()
        .unwrap();
    assert_eq!(samples(&batches(loader.epoch(0))), expected);
    assert_eq!(expected, [1; 20]);
}

#[test]
fn resuming_skips_without_computing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let counted = Numbers(100).map(move |item, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(item)
    });
    let loader = DataLoader::builder(counted)
        .batch_size(10)
        .workers(2)
        .build()
        .unwrap();
    let state = LoaderState {
        seed: 0,
        epoch: 0,
        batch: 7,
    };
    assert_eq!(batches(loader.resume(state).unwrap()).len(), 3);
    assert_eq!(calls.load(Ordering::Relaxed), 30);
    // At the very end there is nothing left.
    let state = LoaderState { batch: 10, ..state };
    assert_eq!(loader.resume(state).unwrap().count(), 0);
}

/// Gives fewer indices than it says.
struct Short;

impl fireclay_data::Sampler for Short {
    fn len(&self) -> usize {
        10
    }

    fn order(&self, _: u64) -> Vec<usize> {
        vec![0; 3]
    }
}

#[test]
fn resuming_beyond_a_short_order_finds_nothing_left() {
    let loader = DataLoader::builder(Numbers(1)).sampler(Short);
    let loader = loader.build().unwrap();
    let state = LoaderState {
        seed: 0,
        epoch: 0,
        batch: 7,
    };
    let mut epoch = loader.resume(state).unwrap();
    assert_eq!((epoch.remaining(), epoch.size_hint()), (0, (0, Some(0))));
    assert!(epoch.next().is_none());
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    let loader = loader(10, 5, 0);
    let other_seed = LoaderState {
        seed: 8,
        epoch: 0,
        batch: 0,
    };
    let text = loader.resume(other_seed).err().unwrap().to_string();
    assert!(text.contains("seed 8") && text.contains("seed 7"), "{text}");
    let beyond = LoaderState {
        seed: 7,
        epoch: 0,
        batch: 3,
    };
    let text = loader.resume(beyond).err().unwrap().to_string();
    assert!(text.contains("batch 3, expected at most 2"), "{text}");
}

#[test]
fn an_error_comes_once_with_the_index_and_ends_the_epoch() {
    for workers in 0..=4 {
        let failing = Numbers(100).map(|item, _| match item.0 {
            37 | 90 => Err(Error::argument("test", "no such luck")),
            _ => Ok(item),
        });
        let loader = DataLoader::builder(failing).batch_size(10).workers(workers);
        let loader = loader.build().unwrap();
        let mut epoch = loader.epoch(0);
        assert_eq!(batches(epoch.by_ref().take(3)).len(), 3);
        let error = epoch.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::InSample { index: 37, .. }));
        assert_eq!(error.to_string(), "sample 37: test: no such luck");
        assert!(epoch.next().is_none());
        assert!(epoch.next().is_none());
        assert_eq!(epoch.state().batch, 3);
    }
}

#[test]
fn a_panic_of_the_dataset_is_an_error_with_the_index() {
    for workers in 0..=3 {
        let panicking = Numbers(100).map(|item, _| {
            assert!(item.0 != 42, "broken at {}", item.0);
            Ok(item)
        });
        let loader = DataLoader::builder(panicking)
            .batch_size(8)
            .workers(workers);
        let outcomes: Vec<_> = loader.build().unwrap().epoch(0).collect();
        assert_eq!(outcomes.len(), 6);
        let text = outcomes[5].as_ref().err().unwrap().to_string();
        assert!(
            text.starts_with("sample 42: ") && text.contains("panicked: broken at 42"),
            "{text}"
        );
    }
}

#[test]
fn an_error_or_panic_of_collation_names_the_batch() {
    for workers in [0, 2] {
        let refusing = |items: Vec<(i64, i64)>| match items[0].0 {
            20 => Err(Error::argument("stack", "odd ones")),
            _ => Ok(items.len()),
        };
        let loader = DataLoader::builder(Numbers(100))
            .batch_size(10)
            .workers(workers);
        let outcomes: Vec<_> = loader.collate(refusing).build().unwrap().epoch(4).collect();
        assert_eq!(outcomes.len(), 3);
        let text = outcomes[2].as_ref().unwrap_err().to_string();
        assert!(
            text.contains("odd ones") && text.contains("batch 2 of epoch 4"),
            "{text}"
        );

        let panicking = |items: Vec<(i64, i64)>| -> Result<usize> { panic!("got {}", items.len()) };
        let loader = DataLoader::builder(Numbers(100))
            .batch_size(10)
            .workers(workers);
        let outcomes: Vec<_> = loader
            .collate(panicking)
            .build()
            .unwrap()
            .epoch(0)
            .collect();
        assert_eq!(outcomes.len(), 1);
        assert!(
            outcomes[0]
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("panicked: got 10")
        );
    }
}

#[test]
fn ragged_samples_are_named_with_both_shapes() {
    let ragged = Numbers(10).map(|item, _| Ok(vec![0i64; if item.0 == 7 { 2 } else { 3 }]));
    let loader = DataLoader::builder(ragged)
        .batch_size(5)
        .workers(1)
        .build()
        .unwrap();
    let outcomes: Vec<_> = loader.epoch(0).collect();
    let text = outcomes[1].as_ref().err().unwrap().to_string();
    assert!(
        text.contains("sample 2 of the batch has 2 elements, expected 3"),
        "{text}"
    );
}

/// A slow dataset whose samples are counted, alive ones too.
fn slow(made: &Arc<AtomicUsize>, alive: &Arc<()>) -> impl Dataset<Item = (i64, i64)> + use<> {
    let (made, alive) = (made.clone(), alive.clone());
    Numbers(100_000).map(move |item, _| {
        let _ = &alive;
        made.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        Ok(item)
    })
}

#[test]
fn workers_go_no_further_ahead_than_asked() {
    let made = Arc::new(AtomicUsize::new(0));
    let loader = DataLoader::builder(slow(&made, &Arc::new(())))
        .batch_size(2)
        .workers(2)
        .prefetch(3);
    let mut epoch = loader.build().unwrap().epoch(0);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(made.load(Ordering::Relaxed), 2 * 6);
    epoch.next().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(made.load(Ordering::Relaxed), 2 * 7);
}

#[test]
fn dropping_an_epoch_ends_its_workers_at_once() {
    let (made, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let loader = DataLoader::builder(slow(&made, &alive))
        .batch_size(1000)
        .workers(3);
    let loader = loader.build().unwrap();
    let epoch = loader.epoch(0);
    std::thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    drop(epoch);
    // A batch takes 2 s, a sample 2 ms.
    assert!(start.elapsed() < Duration::from_millis(500));
    let after = made.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(made.load(Ordering::Relaxed), after);
    // The dataset goes with the loader: no thread holds it.
    drop(loader);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn an_epoch_outlives_its_loader_and_may_be_left_unused() {
    let epoch = loader(20, 3, 2).epoch(0);
    assert_eq!(batches(epoch).len(), 7);
    drop(loader(20, 3, 2).epoch(0));
    assert_eq!(loader(0, 3, 2).epoch(0).count(), 0);
}

#[test]
fn what_cannot_be_built_is_refused() {
    let text =
        |builder: fireclay_data::Builder<Numbers, _>| builder.build().err().unwrap().to_string();
    let builder = || DataLoader::builder(Numbers(3));
    assert!(text(builder().batch_size(0)).contains("batch_size is 0"));
    assert!(text(builder().workers(1).prefetch(0)).contains("prefetch is 0"));
    assert!(text(builder().prefetch(1)).contains("without workers"));
    let both = builder()
        .shuffle(true)
        .sampler(fireclay_data::SequentialSampler { len: 3 });
    assert!(text(both).contains("shuffle together with a sampler"));
    for len in [1 << 50, usize::MAX] {
        for shuffle in [false, true] {
            let large = DataLoader::builder(Numbers(len)).shuffle(shuffle);
            let text = text(large);
            assert!(text.contains(&format!("epoch of {len} samples")), "{text}");
        }
    }
    // A sampler of indices that aren't there: the dataset says so.
    let digits = Mnist::embedded().unwrap();
    let loader =
        DataLoader::builder(digits).sampler(fireclay_data::SequentialSampler { len: 5001 });
    let loader = loader.batch_size(5000).build().unwrap();
    let error = loader.epoch(0).nth(1).unwrap().err().unwrap();
    assert!(
        matches!(error, Error::InSample { index: 5000, .. }),
        "{error}"
    );
}

#[test]
fn augmented_digits_do_not_depend_on_workers() {
    let digits = |workers| {
        let augment = Augment::digits();
        let (train, _) = Mnist::embedded().unwrap().split(1000, 1).unwrap();
        let train = train.map(move |(image, label), rng| Ok((augment.apply(&image, rng)?, label)));
        let loader = DataLoader::builder(train)
            .batch_size(64)
            .shuffle(true)
            .seed(3);
        let loader = loader.workers(workers).build().unwrap();
        let batches = loader.epoch(1).take(5).map(|batch| {
            let (images, labels) = batch.unwrap();
            assert_eq!(images.shape()[..], [64, 1, 28, 28]);
            (images.to_bytes().unwrap(), labels.to_vec::<i64>().unwrap())
        });
        batches.collect::<Vec<_>>()
    };
    let expected = digits(0);
    assert!(digits(1) == expected);
    assert!(digits(3) == expected);
}
