//! Dealing the samples of a dataset to parts, as for training and testing: by chance alone, or class by class.

use std::collections::BTreeMap;
use std::sync::Arc;

use fireclay_core::{Error, Result};

use crate::dataset::{Dataset, Subset};
use crate::sample_rng::{Purpose, SampleRng};

/// Parts of these lengths, their samples drawn by `seed` (`torch.utils.data.random_split`).
///
/// # Errors
/// Lengths that do not add up to the dataset's.
pub fn random_split<D: Dataset>(
    dataset: impl Into<Arc<D>>,
    lengths: &[usize],
    seed: u64,
) -> Result<Vec<Subset<Arc<D>>>> {
    let dataset = dataset.into();
    check_lengths("random_split", lengths, dataset.len())?;
    let mut indices: Vec<usize> = (0..dataset.len()).collect();
    SampleRng::of(Purpose::Split, seed, 0, 0).shuffle(&mut indices);
    deal(dataset, &indices, lengths)
}

/// Parts of these lengths, drawn by `seed`, in each of which every class of `labels` has its share: the share's exact
/// size, rounded up or down. `labels` holds the class of each sample.
///
/// # Errors
/// Lengths that do not add up to the dataset's, or another number of labels.
pub fn stratified_split<D: Dataset>(
    dataset: impl Into<Arc<D>>,
    labels: &[i64],
    lengths: &[usize],
    seed: u64,
) -> Result<Vec<Subset<Arc<D>>>> {
    let dataset = dataset.into();
    check_lengths("stratified_split", lengths, dataset.len())?;
    if labels.len() != dataset.len() {
        return Err(Error::argument(
            "stratified_split",
            format!(
                "got {} labels, expected one for each of the {} samples",
                labels.len(),
                dataset.len()
            ),
        ));
    }
    deal(dataset, &interleaved_by_class(labels, seed), lengths)
}

/// All indices in an order whose every beginning has each class in its share. Within a class of `n`, in random order,
/// sample `p` stands at `(p + 1/2) / n` of the way.
fn interleaved_by_class(labels: &[i64], seed: u64) -> Vec<usize> {
    let mut classes: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, &label) in labels.iter().enumerate() {
        classes.entry(label).or_default().push(index);
    }
    let mut placed = Vec::with_capacity(labels.len());
    for (class, indices) in classes.values_mut().enumerate() {
        SampleRng::of(Purpose::Split, seed, 0, class + 1).shuffle(indices);
        let numel = indices.len() as f64;
        for (position, &index) in indices.iter().enumerate() {
            placed.push(((position as f64 + 0.5) / numel, class, index));
        }
    }
    placed.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    placed.into_iter().map(|(_, _, index)| index).collect()
}

fn check_lengths(op: &'static str, lengths: &[usize], len: usize) -> Result<()> {
    let sum = lengths
        .iter()
        .try_fold(0usize, |sum, &length| sum.checked_add(length));
    if sum == Some(len) {
        return Ok(());
    }
    Err(Error::argument(
        op,
        format!("lengths {lengths:?} do not add up to the dataset's {len} samples"),
    ))
}

fn deal<D: Dataset>(
    dataset: Arc<D>,
    indices: &[usize],
    lengths: &[usize],
) -> Result<Vec<Subset<Arc<D>>>> {
    let mut rest = indices;
    lengths
        .iter()
        .map(|&length| {
            let (part, others) = rest.split_at(length);
            rest = others;
            Subset::new(dataset.clone(), part.to_vec())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorDataset;
    use fireclay_tensor::Tensor;

    fn numbers(len: usize) -> TensorDataset {
        TensorDataset::new(vec![Tensor::arange(0, len as i64, 1, "cpu").unwrap()]).unwrap()
    }

    fn sorted(parts: &[Subset<Arc<TensorDataset>>]) -> Vec<usize> {
        let mut all: Vec<usize> = parts
            .iter()
            .flat_map(|part| part.indices().to_vec())
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn parts_hold_every_sample_once_and_follow_the_seed() {
        let split = |seed| random_split(numbers(100), &[70, 0, 30], seed).unwrap();
        let parts = split(1);
        assert_eq!(
            parts.iter().map(Dataset::len).collect::<Vec<_>>(),
            [70, 0, 30]
        );
        assert_eq!(sorted(&parts), (0..100).collect::<Vec<_>>());
        assert_eq!(parts[0].indices(), split(1)[0].indices());
        assert_ne!(parts[0].indices(), split(2)[0].indices());
    }

    #[test]
    fn classes_keep_their_share() {
        let labels: Vec<i64> = (0..500).map(|index| index / 50).collect();
        let parts = stratified_split(numbers(500), &labels, &[400, 100], 3).unwrap();
        assert_eq!(sorted(&parts), (0..500).collect::<Vec<_>>());
        for (part, share) in parts.iter().zip([40, 10]) {
            for class in 0..10 {
                let count = part.indices().iter().filter(|&&i| labels[i] == class);
                assert_eq!(count.count(), share);
            }
        }
        // Uneven classes: within one of the exact share.
        let labels: Vec<i64> = (0..500).map(|index| i64::from(index % 7 == 0)).collect();
        let parts = stratified_split(numbers(500), &labels, &[333, 167], 3).unwrap();
        let total = labels.iter().sum::<i64>() as f64;
        for part in &parts {
            let count: i64 = part.indices().iter().map(|&i| labels[i]).sum();
            assert!((count as f64 - total * part.len() as f64 / 500.0).abs() <= 1.0);
        }
    }

    #[test]
    fn lengths_and_labels_must_fit() {
        let error = random_split(numbers(10), &[7, 2], 0).err().unwrap();
        assert!(
            error.to_string().contains("[7, 2] do not add up to"),
            "{error}"
        );
        assert!(random_split(numbers(10), &[usize::MAX, 11], 0).is_err());
        let error = stratified_split(numbers(10), &[0; 9], &[5, 5], 0)
            .err()
            .unwrap();
        assert!(error.to_string().contains("got 9 labels"), "{error}");
    }
}
