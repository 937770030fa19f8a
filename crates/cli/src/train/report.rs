//! What is told on standard error while training: a header, a progress bar on terminals, a line an epoch.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::material::Material;
use super::metrics::Timing;
use super::run_folder::RunFolder;
use super::session::Session;
use crate::failure::Failure;

/// Tells how training goes.
pub(crate) struct Report {
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    /// When the sums were read last.
    read: Instant,
}

/// How long a shown loss stays, at least.
const BETWEEN_READS: Duration = Duration::from_millis(100);

impl Report {
    /// Tells what is about to happen.
    pub(crate) fn begin(session: &Session, material: &dyn Material, folder: &RunFolder) -> Report {
        let settings = session.settings();
        say!(
            "device {}, {}, seed {}, {} parameters, {} training and {} test {}",
            session.device(),
            counted(fireclay::num_threads(), "thread", "threads"),
            settings.seed,
            grouped(session.num_parameters()),
            grouped(material.train_len()),
            grouped(material.test_len()),
            material.unit(),
        );
        say!(
            "{} of {} of {}, learning rate up to {:?}, results in {}",
            counted(settings.epochs, "epoch", "epochs"),
            counted(session.epoch_len(), "batch", "batches"),
            settings.batch_size,
            settings.lr,
            folder.path().display(),
        );
        let (done, position) = (session.epochs().len(), session.position());
        if done == settings.epochs {
            say!("the run is complete: evaluating once more");
        } else if (done, position.batch) != (0, 0) {
            say!(
                "going on in epoch {} after batch {}",
                done + 1,
                position.batch
            );
        }
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(Some(session.epoch_len() as u64), target);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len}  {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Report {
            bar,
            read: Instant::now(),
        }
    }

    /// An epoch begins.
    pub(crate) fn begin_epoch(&self, session: &Session) {
        let (number, epochs) = (session.epochs().len() + 1, session.settings().epochs);
        self.bar.set_prefix(format!("epoch {number:>2}/{epochs}"));
        self.bar.set_message("");
        self.bar.reset();
        self.bar.set_position(session.position().batch as u64);
    }

    /// A step was made; training went through so many samples a second.
    ///
    /// # Errors
    /// The sums, which are read where they are to be shown, say that training diverged.
    pub(crate) fn step(
        &mut self,
        session: &Session,
        samples_per_second: f64,
    ) -> Result<(), Failure> {
        self.bar.inc(1);
        // Reading waits for the device: not after each step, and not for nobody.
        if self.bar.is_hidden() || self.read.elapsed() < BETWEEN_READS {
            return Ok(());
        }
        let running = session.running()?;
        self.read = Instant::now();
        self.bar.set_message(format!(
            "loss {:.4}  accuracy {:.4}  {samples_per_second:.0} samples/s",
            running.loss(),
            running.accuracy()
        ));
        Ok(())
    }

    /// An epoch has ended.
    pub(crate) fn end_epoch(&self, session: &Session, timing: Option<Timing>) {
        let (number, epochs) = (session.epochs().len(), session.settings().epochs);
        let Some(result) = session.epochs().last() else {
            return;
        };
        let speed = timing.map_or(String::new(), |timing| {
            format!("  {:.0} samples/s", timing.samples_per_second)
        });
        let line = format!(
            "epoch {number:>2}/{epochs}  train loss {:.4} accuracy {:.4}  test loss {:.4} accuracy {:.4}{speed}",
            result.train_loss, result.train_accuracy, result.test_loss, result.test_accuracy
        );
        self.bar.suspend(|| say!("{line}"));
    }

    /// Training stops: takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows a text of its own lines, as a sample of what the network writes.
    pub(crate) fn show(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }

    /// All is done.
    pub(crate) fn finish(&self, material: &dyn Material, folder: &RunFolder) {
        self.end();
        say!(
            "wrote model.safetensors, metrics.jsonl, curve.svg and {} into {}",
            material.files().join(", "),
            folder.path().display()
        );
    }
}

fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// The number with a comma before every three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_set_apart() {
        let texts = [0, 999, 1000, 421_642, 12_345_678].map(super::grouped);
        assert_eq!(texts, ["0", "999", "1,000", "421,642", "12,345,678"]);
    }
}
