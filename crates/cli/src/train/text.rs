//! `Text`: the passages to train a language model on and to test on, and what it writes.

use std::path::Path;
use std::sync::Arc;

use fireclay::data::{CharText, Dataset, Passages, Subset};
use fireclay::nn::Module;
use fireclay::{Error, Result};

use super::material::{Material, Samples};
use super::run_folder::RunFolder;
use super::session::Session;
use super::settings::Settings;
use crate::failure::Failure;
use crate::gpt::{self, Gpt, Shape};

/// Test passages in a batch.
const TEST_BATCH: usize = 32;
/// Characters of a sample of what the network writes.
const WRITTEN: usize = 400;
/// The file of samples.
const SAMPLES: &str = "samples.txt";

/// A text, split into passages to train on and to test on.
pub(crate) struct Text {
    text: CharText,
    shape: Shape,
    seed: u64,
    train: Subset<Arc<Passages>>,
    test: Passages,
    fingerprint: String,
}

impl Text {
    /// The text of a file, or the works that are built in.
    ///
    /// # Errors
    /// A file that cannot be read or is no text; a text that is too short.
    pub(crate) fn load(file: Option<&Path>, settings: &Settings) -> Result<Text, Failure> {
        let text = match file {
            Some(file) => CharText::from_file(file)?,
            None => CharText::shakespeare()?,
        };
        let Some(shape) = settings.shape else {
            return Err(Failure::Refused("the network has no shape".to_owned()));
        };
        let (train, test) = text.split(shape.context)?;
        let count = train.len();
        let taken = settings.limit.map_or(count, |limit| limit.min(count));
        // From all over the text.
        let places = (0..taken).map(|place| place * count / taken).collect();
        let fingerprint = fingerprint(&text);
        Ok(Text {
            train: Subset::new(Arc::new(train), places)?,
            test,
            shape,
            seed: settings.seed,
            fingerprint,
            text,
        })
    }

    /// What the network writes, from the start of a line.
    fn sample(&self, session: &Session) -> Result<String> {
        let start = self.text.encode("\n").unwrap_or_else(|_| vec![0]);
        let epoch = session.epochs().len() as u64;
        let seed = self.seed.wrapping_add(epoch << 32);
        let (context, device) = (self.shape.context, session.device());
        let written = session
            .with_model(|model| gpt::write(model, &start, WRITTEN, context, seed, device))?;
        self.text.decode(&written)
    }
}

impl Material for Text {
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn unit(&self) -> &'static str {
        "passages"
    }

    fn train_len(&self) -> usize {
        self.train.len()
    }

    fn test_len(&self) -> usize {
        self.test.len()
    }

    fn train(&self) -> Samples {
        Box::new(self.train.clone())
    }

    fn test(&self) -> (Samples, usize) {
        (Box::new(self.test.clone()), TEST_BATCH)
    }

    fn model(&self) -> Result<Box<dyn Module>, Error> {
        Ok(Box::new(Gpt::new(
            self.shape,
            self.text.vocabulary().len(),
        )?))
    }

    fn files(&self) -> &'static [&'static str] {
        &[SAMPLES]
    }

    fn after_epoch(
        &self,
        session: &Session,
        folder: &RunFolder,
    ) -> Result<Option<String>, Failure> {
        let sample = self.sample(session)?;
        let heading = heading(session);
        // What this epoch had written in a run that was cut off after it is written anew.
        let mut all = folder.read(SAMPLES)?;
        if let Some(place) = all.find(&heading) {
            all.truncate(place);
        }
        folder.write(SAMPLES, format!("{all}{heading}{sample}\n").as_bytes())?;
        Ok(Some(sample))
    }

    fn resumed(&self, session: &Session, folder: &RunFolder) -> Result<(), Failure> {
        // Between two epochs the network is the one that the sample is of.
        let is_between = session.position().batch == 0;
        if is_between && !folder.read(SAMPLES)?.contains(&heading(session)) {
            self.after_epoch(session, folder)?;
        }
        Ok(())
    }

    fn finish(&self, session: &Session, _: &RunFolder) -> Result<String, Failure> {
        // The last epoch ended with an evaluation, also if it is a resumed run's.
        let (loss, accuracy) = match session.epochs().last() {
            Some(epoch) => (epoch.test_loss, epoch.test_accuracy),
            None => {
                let evaluation = session.evaluate(&mut |_, _| Ok(()))?;
                (evaluation.loss, evaluation.accuracy)
            }
        };
        Ok(format!(
            "held-out loss {loss:.4} nats a character, perplexity {:.3}, accuracy {accuracy:.4}",
            loss.exp()
        ))
    }
}

/// What stands above the sample of the last epoch.
fn heading(session: &Session) -> String {
    format!("--- after epoch {} ---\n", session.epochs().len())
}

/// A hash of all characters.
fn fingerprint(text: &CharText) -> String {
    let vocabulary = text.vocabulary().iter().map(|&character| character as u32);
    let numbers = vocabulary.chain(text.tokens().iter().copied());
    let bytes = numbers.flat_map(u32::to_le_bytes);
    let hash = super::fnv1a(bytes);
    format!("{} characters, {hash:016x}", text.tokens().len())
}
