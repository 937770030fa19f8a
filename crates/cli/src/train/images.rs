//! `Images`: the images to train on and to test on.

use std::path::Path;
use std::sync::Arc;

use fireclay::data::{DataLoader, Dataset, Subset, stratified_split};
use fireclay::{Error, Tensor};

use super::settings::Settings;
use crate::failure::Failure;
use crate::model::DIGITS;
use crate::task::{LabelledImages, Task};

/// Test images in a batch.
const TEST_BATCH: usize = 250;

/// One image of this many is kept for the test.
const TEST_SHARE: usize = 5;

/// Samples of images with their labels.
pub(crate) type Samples = Box<dyn Dataset<Item = (Tensor, i64)>>;

/// The images of a task, split by seed so that every class has its share in both parts.
pub(crate) struct Images {
    task: &'static Task,
    train: Part,
    test: Part,
    fingerprint: String,
}

/// Twice `Arc`, since a split takes one dataset whose size is known.
type Part = Subset<Arc<Arc<dyn LabelledImages>>>;

impl Images {
    /// The images of a folder, or those built in.
    ///
    /// # Errors
    /// Files that cannot be read or are no images of digits; too few of them.
    pub(crate) fn load(
        task: &'static Task,
        folder: Option<&Path>,
        settings: &Settings,
    ) -> Result<Images, Failure> {
        let images = (task.images)(folder)?;
        let refuse = |what: String| {
            let folder = folder.unwrap_or(Path::new("the built-in data"));
            Err(Failure::Refused(format!("{}: {what}", folder.display())))
        };
        let (side, (height, width)) = (task.side, images.sides());
        if (height, width) != (side, side) {
            return refuse(format!(
                "images have {height} x {width} pixels, expected {side} x {side}; scale them"
            ));
        }
        let labels = images.labels();
        if let Some(place) = labels.iter().position(|&label| label >= DIGITS as i64) {
            return refuse(format!(
                "label {place} is {}, expected a digit from 0 to 9",
                labels[place]
            ));
        }
        if labels.len() < TEST_SHARE {
            return refuse(format!(
                "there are {} images, expected {TEST_SHARE} or more",
                labels.len()
            ));
        }
        let fingerprint = fingerprint(&*images)?;
        let test = labels.len() / TEST_SHARE;
        let lengths = [labels.len() - test, test];
        let parts = stratified_split(Arc::new(images), &labels, &lengths, settings.seed)?;
        let [train, test] = <[Part; 2]>::try_from(parts)
            .unwrap_or_else(|_| unreachable!("two lengths give two parts"));
        let train = match settings.limit {
            // Each beginning of the split has every class in its share.
            Some(limit) if limit < train.len() => {
                Subset::new(train.inner().clone(), train.indices()[..limit].to_vec())?
            }
            _ => train,
        };
        Ok(Images {
            task,
            train,
            test,
            fingerprint,
        })
    }

    /// What the images are for.
    pub(crate) fn task(&self) -> &'static Task {
        self.task
    }

    /// Tells this data from other data.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// How many images there are to train on.
    pub(crate) fn train_len(&self) -> usize {
        self.train.len()
    }

    /// How many images there are to test on.
    pub(crate) fn test_len(&self) -> usize {
        self.test.len()
    }

    /// The images to train on, each time shifted, turned and scaled by chance.
    pub(crate) fn train(&self) -> Samples {
        let augment = (self.task.augment)();
        Box::new(
            self.train
                .clone()
                .map(move |(image, label), rng| Ok((augment.apply(&image, rng)?, label))),
        )
    }

    /// The images to test on, in batches.
    pub(crate) fn test_batches(&self) -> Result<Vec<(Tensor, Tensor)>, Error> {
        let test: Samples = Box::new(self.test.clone());
        let loader = DataLoader::builder(test).batch_size(TEST_BATCH).build()?;
        loader.epoch(0).collect()
    }

    /// Test image `place` as grey values from 0 to 255.
    pub(crate) fn test_image(&self, place: usize) -> Result<Vec<u8>, Error> {
        let pixels = self.test.inner().pixels(self.test.indices()[place])?;
        Ok(self.task.grey(pixels))
    }
}

/// A hash of all pixels and labels (FNV-1a, 64 bits): against mistakes, not against malice.
fn fingerprint(images: &dyn LabelledImages) -> Result<String, Error> {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut take = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    for (index, label) in images.labels().into_iter().enumerate() {
        images.pixels(index)?.iter().copied().for_each(&mut take);
        take(label as u8);
    }
    Ok(format!("{} images, {hash:016x}", images.len()))
}
