//! `Digits`: the images to train on and to test on.

use std::path::Path;
use std::sync::Arc;

use fireclay::data::{Augment, DataLoader, Dataset, Mnist, Subset};
use fireclay::{Error, Tensor};

use super::settings::Settings;
use crate::failure::Failure;
use crate::model::DIGITS;
use crate::picture::contact_sheet::SIDE;

/// Test images in a batch.
const TEST_BATCH: usize = 250;

/// One image of this many is kept for the test.
const TEST_SHARE: usize = 5;

/// Samples of images with their labels.
pub(crate) type Samples = Box<dyn Dataset<Item = (Tensor, i64)>>;

/// MNIST's digits, split by seed so that every class has its share in both parts.
pub(crate) struct Digits {
    train: Subset<Arc<Mnist>>,
    test: Subset<Arc<Mnist>>,
    fingerprint: String,
}

impl Digits {
    /// The digits of a folder, or those built in.
    ///
    /// # Errors
    /// Files that cannot be read or are no images of digits; too few of them.
    pub(crate) fn load(folder: Option<&Path>, settings: &Settings) -> Result<Digits, Failure> {
        let digits = match folder {
            Some(folder) => Mnist::load(folder)?,
            None => Mnist::embedded()?,
        };
        let refuse = |what: String| {
            let folder = folder.unwrap_or(Path::new("the built-in data"));
            Err(Failure::Refused(format!("{}: {what}", folder.display())))
        };
        if (digits.height(), digits.width()) != (SIDE, SIDE) {
            return refuse(format!(
                "images have {} x {} pixels, expected {SIDE} x {SIDE}; scale them",
                digits.height(),
                digits.width()
            ));
        }
        let labels = digits.labels();
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
        let fingerprint = fingerprint(&digits)?;
        let (train, test) = digits.split(labels.len() / TEST_SHARE, settings.seed)?;
        let train = match settings.limit {
            // Each beginning of the split has every class in its share.
            Some(limit) if limit < train.len() => {
                Subset::new(train.inner().clone(), train.indices()[..limit].to_vec())?
            }
            _ => train,
        };
        Ok(Digits {
            train,
            test,
            fingerprint,
        })
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
        let augment = Augment::digits();
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

    /// The pixels of test image `place`.
    pub(crate) fn test_image(&self, place: usize) -> Result<&[u8; SIDE * SIDE], Error> {
        let pixels = self.test.inner().pixels(self.test.indices()[place])?;
        Ok(pixels.try_into().expect("load has checked the size"))
    }
}

/// A hash of all pixels and labels (FNV-1a, 64 bits): against mistakes, not against malice.
fn fingerprint(digits: &Mnist) -> Result<String, Error> {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut take = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    for (index, label) in digits.labels().into_iter().enumerate() {
        digits.pixels(index)?.iter().copied().for_each(&mut take);
        take(label as u8);
    }
    Ok(format!("{} images, {hash:016x}", digits.len()))
}
