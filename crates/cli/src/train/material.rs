//! `Material`: what a network is trained and tested on, and what is made of a trained one.

use fireclay::data::Dataset;
use fireclay::nn::Module;
use fireclay::{Result, Tensor};

use super::run_folder::RunFolder;
use super::session::Session;
use crate::failure::Failure;

/// Samples: what the network takes, and the right classes.
pub(crate) type Samples = Box<dyn Dataset<Item = (Tensor, Tensor)>>;

/// What a network is trained and tested on.
///
/// The network gives scores `[.., classes]`; the right classes are `[..]`.
pub(crate) trait Material {
    /// Tells this data from other data.
    fn fingerprint(&self) -> &str;

    /// What samples are, as in "images".
    fn unit(&self) -> &'static str;

    /// How many samples there are to train on.
    fn train_len(&self) -> usize;

    /// How many samples there are to test on.
    fn test_len(&self) -> usize;

    /// The samples to train on, each time changed by chance.
    fn train(&self) -> Samples;

    /// The samples to test on, and how many make a batch.
    fn test(&self) -> (Samples, usize);

    /// A network with random weights, on the default device.
    fn model(&self) -> Result<Box<dyn Module>>;

    /// The files that it writes into the folder of a run, besides those of every run.
    fn files(&self) -> &'static [&'static str];

    /// After an epoch: what else is to be shown, and written.
    fn after_epoch(
        &self,
        session: &Session,
        folder: &RunFolder,
    ) -> Result<Option<String>, Failure> {
        let _ = (session, folder);
        Ok(None)
    }

    /// Before a run goes on: writes what [`Material::after_epoch`] would have written, if that is missing and can be made.
    fn resumed(&self, session: &Session, folder: &RunFolder) -> Result<(), Failure> {
        let _ = (session, folder);
        Ok(())
    }

    /// After the last epoch: writes what is made of the network, and gives the last line on standard output.
    fn finish(&self, session: &Session, folder: &RunFolder) -> Result<String, Failure>;
}
