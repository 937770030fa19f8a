//! `Images`: the images to train on and to test on.

use std::path::Path;
use std::sync::Arc;

use fireclay::data::{Dataset, Subset, stratified_split};
use fireclay::nn::Module;
use fireclay::{Device, Error, Tensor};

use super::material::{Material, Samples};
use super::run_folder::RunFolder;
use super::session::Session;
use super::settings::Settings;
use crate::failure::Failure;
use crate::model::DIGITS;
use crate::picture::contact_sheet::{Prediction, contact_sheet};
use crate::task::{DigitTask, LabelledImages};

/// Test images in a batch.
const TEST_BATCH: usize = 250;

/// One image of this many is kept for the test.
const TEST_SHARE: usize = 5;

/// Digits on the contact sheet, and its file.
const MOST_SHOWN: usize = 100;
const PREDICTIONS: &str = "predictions.png";

/// The images of a task, split by seed so that every class has its share in both parts.
pub(crate) struct Images {
    task: &'static DigitTask,
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
        task: &'static DigitTask,
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

    /// Test image `place` as grey values from 0 to 255.
    fn test_image(&self, place: usize) -> Result<Vec<u8>, Error> {
        let pixels = self.test.inner().pixels(self.test.indices()[place])?;
        Ok(self.task.grey(pixels))
    }

    /// The contact sheet: the wrong answers, then right ones.
    fn sheet(&self, answers: &[Answer], seed: u64) -> Result<Vec<u8>, Failure> {
        let mut shown = Vec::new();
        for wanted in [false, true] {
            for (place, answer) in answers.iter().enumerate() {
                if answer.is_right() == wanted && shown.len() < MOST_SHOWN {
                    shown.push(Prediction {
                        image: self.test_image(place)?,
                        truth: answer.truth,
                        predicted: answer.predicted,
                        confidence: answer.confidence,
                    });
                }
            }
        }
        let right = answers.iter().filter(|answer| answer.is_right()).count();
        let title = format!(
            "{right} of {} test digits right, seed {seed}",
            answers.len()
        );
        contact_sheet(&title, &shown).map_err(|error| {
            Failure::Refused(format!("the contact sheet cannot be encoded: {error}"))
        })
    }
}

/// The network's answer for one image.
#[derive(Clone, Copy, Debug)]
struct Answer {
    truth: u8,
    predicted: u8,
    /// The probability that the network gives its answer.
    confidence: f32,
}

impl Answer {
    fn is_right(&self) -> bool {
        self.truth == self.predicted
    }
}

/// The answers of a batch: its scores `[n, classes]` and the right classes.
fn answers(scores: &Tensor, labels: &Tensor) -> Result<Vec<Answer>, Error> {
    let probabilities = scores.softmax(1)?.to_vec::<f32>()?;
    let predicted = scores.argmax(1, false)?.to_vec::<i64>()?;
    let rows = probabilities.chunks_exact(DIGITS);
    let each = rows.zip(predicted).zip(labels.to_vec::<i64>()?);
    let answers = each.map(|((row, predicted), truth)| Answer {
        truth: truth as u8,
        predicted: predicted as u8,
        confidence: row[predicted as usize],
    });
    Ok(answers.collect())
}

/// A sample whose class is a tensor, as the samples of a [`Material`] are.
fn labelled((image, label): (Tensor, i64)) -> Result<(Tensor, Tensor), Error> {
    Ok((image, Tensor::scalar(label, Device::Cpu)?))
}

impl Material for Images {
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn unit(&self) -> &'static str {
        "images"
    }

    fn train_len(&self) -> usize {
        self.train.len()
    }

    fn test_len(&self) -> usize {
        self.test.len()
    }

    fn train(&self) -> Samples {
        let augment = (self.task.augment)();
        Box::new(
            (self.train.clone())
                .map(move |(image, label), rng| labelled((augment.apply(&image, rng)?, label))),
        )
    }

    fn test(&self) -> (Samples, usize) {
        let test = self.test.clone().map(|sample, _| labelled(sample));
        (Box::new(test), TEST_BATCH)
    }

    fn model(&self) -> Result<Box<dyn Module>, Error> {
        (self.task.model)()
    }

    fn files(&self) -> &'static [&'static str] {
        &[PREDICTIONS]
    }

    fn finish(&self, session: &Session, folder: &RunFolder) -> Result<String, Failure> {
        let mut all = Vec::new();
        session.evaluate(&mut |scores, labels| {
            all.extend(answers(scores, labels)?);
            Ok(())
        })?;
        folder.write(PREDICTIONS, &self.sheet(&all, session.settings().seed)?)?;
        let (right, total) = (
            all.iter().filter(|answer| answer.is_right()).count(),
            all.len(),
        );
        let accuracy = right as f64 / total as f64;
        Ok(format!("test accuracy {accuracy:.4} ({right} of {total})"))
    }
}

/// A hash of all pixels and labels.
fn fingerprint(images: &dyn LabelledImages) -> Result<String, Error> {
    let mut bytes = Vec::new();
    for (index, label) in images.labels().into_iter().enumerate() {
        bytes.extend_from_slice(images.pixels(index)?);
        bytes.push(label as u8);
    }
    let hash = super::fnv1a(bytes);
    Ok(format!("{} images, {hash:016x}", images.len()))
}
