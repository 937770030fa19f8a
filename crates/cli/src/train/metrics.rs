//! What is measured in an epoch, and its line in `metrics.jsonl`.

use serde_json::{Value, json};

/// What an epoch came to: the same for the same run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct EpochResult {
    /// Mean loss and share of right answers while training, on changed images and with dropout.
    pub(crate) train_loss: f64,
    pub(crate) train_accuracy: f64,
    /// The same on the test set after the epoch.
    pub(crate) test_loss: f64,
    pub(crate) test_accuracy: f64,
    /// The learning rate that the epoch ended with.
    pub(crate) lr: f64,
}

/// What the clock said.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Timing {
    /// Of the epoch, evaluation included; of a resumed one, since it was resumed.
    pub(crate) seconds: f64,
    /// Training alone.
    pub(crate) samples_per_second: f64,
}

/// Sums over the batches of the running epoch.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Running {
    pub(crate) loss_sum: f64,
    pub(crate) right: u64,
    pub(crate) seen: u64,
}

/// How the network does on the test set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evaluation {
    /// The mean loss.
    pub(crate) loss: f64,
    /// The share of right answers.
    pub(crate) accuracy: f64,
}

impl Running {
    pub(crate) fn loss(&self) -> f64 {
        self.loss_sum / self.seen as f64
    }

    pub(crate) fn accuracy(&self) -> f64 {
        self.right as f64 / self.seen as f64
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "loss_sum": self.loss_sum, "right": self.right, "seen": self.seen })
    }

    pub(crate) fn of_json(value: &Value) -> Option<Running> {
        Some(Running {
            loss_sum: value["loss_sum"].as_f64()?,
            right: value["right"].as_u64()?,
            seen: value["seen"].as_u64()?,
        })
    }
}

impl EpochResult {
    pub(crate) fn to_json(self) -> Value {
        json!({
            "train_loss": self.train_loss,
            "train_accuracy": self.train_accuracy,
            "test_loss": self.test_loss,
            "test_accuracy": self.test_accuracy,
            "lr": self.lr,
        })
    }

    pub(crate) fn of_json(value: &Value) -> Option<EpochResult> {
        Some(EpochResult {
            train_loss: value["train_loss"].as_f64()?,
            train_accuracy: value["train_accuracy"].as_f64()?,
            test_loss: value["test_loss"].as_f64()?,
            test_accuracy: value["test_accuracy"].as_f64()?,
            lr: value["lr"].as_f64()?,
        })
    }

    /// The line of epoch `number`, counted from 1. Times that are not known, as those of a run that was resumed in another
    /// folder, are null.
    pub(crate) fn line(self, number: usize, timing: Option<Timing>) -> String {
        let mut line = self.to_json();
        line["epoch"] = json!(number);
        line["seconds"] = json!(timing.map(|timing| timing.seconds));
        line["samples_per_second"] = json!(timing.map(|timing| timing.samples_per_second));
        line.to_string()
    }
}

impl Timing {
    pub(crate) fn of_json(value: &Value) -> Option<Timing> {
        Some(Timing {
            seconds: value["seconds"].as_f64()?,
            samples_per_second: value["samples_per_second"].as_f64()?,
        })
    }
}
