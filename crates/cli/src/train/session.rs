//! `Session`: everything that changes while training, its steps, and its state as a checkpoint.

use std::path::Path;

use fireclay::checkpoint::{Checkpoint, OptimizerState, TrainingState};
use fireclay::data::{DataLoader, Epoch, LoaderState};
use fireclay::optim::{
    AdamW, AdamWOptions, Optimizer, Scheduler, SequentialLR, clip_grad_norm_, warmup_cosine,
};
use fireclay::prelude::*;
use fireclay::{CrossEntropy, StateDict, default_generator};
use serde_json::{Map, Value, json};

use super::material::{Material, Samples};
use super::metrics::{EpochResult, Evaluation, Running};
use super::settings::{Settings, foreign};
use super::tally::Tally;
use crate::failure::Failure;
use crate::task::Task;

/// Training under way.
pub(crate) struct Session {
    task: &'static Task,
    settings: Settings,
    fingerprint: String,
    device: Device,
    loader: DataLoader<Samples>,
    /// To test on, on the device: samples and right classes.
    test: Vec<(Tensor, Tensor)>,
    model: Box<dyn Module>,
    optimizer: AdamW,
    scheduler: Scheduler<SequentialLR>,
    /// The next batch.
    position: LoaderState,
    tally: Tally,
    epochs: Vec<EpochResult>,
}

impl Session {
    /// The start of a run.
    pub(crate) fn new(
        task: &'static Task,
        settings: Settings,
        material: &dyn Material,
        device: Device,
        workers: usize,
    ) -> Result<Session, Failure> {
        fireclay::manual_seed(settings.seed);
        let loader = DataLoader::builder(material.train())
            .batch_size(settings.batch_size)
            .shuffle(true)
            .seed(settings.seed)
            .workers(workers)
            .build()?;
        let (test, batch_size) = material.test();
        let test = DataLoader::builder(test).batch_size(batch_size).build()?;
        let test: Result<Vec<(Tensor, Tensor)>> = (test.epoch(0))
            .map(|batch| {
                let (samples, classes) = batch?;
                Ok((samples.to(device)?, classes.to(device)?))
            })
            .collect();
        let model = material.model()?;
        model.to(device)?;
        let options = AdamWOptions {
            lr: settings.lr,
            weight_decay: task.weight_decay,
            betas: (AdamWOptions::default().betas.0, task.beta2),
            ..Default::default()
        };
        let mut optimizer = AdamW::new(model.parameters(), options)?;
        let steps = (settings.epochs as u64).saturating_mul(loader.len() as u64);
        let warmup = (steps as f64 * task.warmup_share) as u64;
        let scheduler = Scheduler::new(&mut optimizer, warmup_cosine(warmup, steps, 0.0))?;
        Ok(Session {
            task,
            settings,
            fingerprint: material.fingerprint().to_owned(),
            device,
            position: LoaderState {
                seed: settings.seed,
                epoch: 0,
                batch: 0,
            },
            loader,
            test: test?,
            model,
            optimizer,
            scheduler,
            tally: Tally::of(Running::default(), device)?,
            epochs: Vec::new(),
        })
    }

    /// Goes to where the session was that saved `checkpoint`, the file at `path`.
    ///
    /// # Errors
    /// Other data, another model, a damaged file.
    pub(crate) fn resume(&mut self, path: &Path, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let state = TrainingState::from_checkpoint(checkpoint, self.device)?;
        let saved = &state.extra;
        let data = saved.get("data").and_then(Value::as_str);
        if data != Some(&self.fingerprint) {
            return Err(Failure::Refused(format!(
                "{} was trained on other data ({}) than is given now ({}); give --data as then",
                path.display(),
                data.unwrap_or("unknown"),
                self.fingerprint
            )));
        }
        let results = saved.get("epochs").and_then(Value::as_array);
        let results = results.map(|results| results.iter().map(EpochResult::of_json).collect());
        let running = saved.get("running").and_then(Running::of_json);
        let scheduler = state.scheduler.as_object().and_then(numbers);
        let optimizer = state.optimizer.values.as_object().and_then(numbers);
        let (Some(Some(results)), Some(running), Some(scheduler), Some(optimizer)) =
            (results, running, scheduler, optimizer)
        else {
            return Err(foreign(self.task, path));
        };
        self.epochs = results;
        self.tally = Tally::of(running, self.device)?;
        checkpoint.load_into(self.task.model_name, &self.model.state_dict())?;
        self.optimizer.load_state_dict(&StateDict {
            tensors: state.optimizer.tensors,
            numbers: optimizer,
        })?;
        self.scheduler.load_state_dict(&StateDict {
            tensors: Vec::new(),
            numbers: scheduler,
        })?;
        default_generator().set_state(state.rng);
        self.position = state.loader;
        Ok(())
    }

    /// All that is needed to go on to the same bits.
    ///
    /// # Errors
    /// The sums of the epoch are no numbers: training diverged.
    pub(crate) fn state(&self) -> Result<TrainingState, Failure> {
        let running = self.running()?;
        let optimizer = self.optimizer.state_dict();
        let mut state = TrainingState {
            model: self.model.state_dict(),
            optimizer: OptimizerState {
                tensors: optimizer.tensors,
                values: object(optimizer.numbers),
            },
            scheduler: object(self.scheduler.state_dict().numbers),
            rng: default_generator().state(),
            loader: self.position,
            extra: Map::new(),
        };
        let epochs: Vec<Value> = self.epochs.iter().map(|epoch| epoch.to_json()).collect();
        for (name, value) in [
            ("command", json!(self.task.command())),
            ("settings", self.settings.to_json()),
            ("data", json!(self.fingerprint)),
            ("epochs", json!(epochs)),
            ("running", running.to_json()),
        ] {
            state.extra.insert(name.to_owned(), value);
        }
        Ok(state)
    }

    pub(crate) fn task(&self) -> &'static Task {
        self.task
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn num_parameters(&self) -> usize {
        self.model.num_parameters()
    }

    /// Batches in an epoch.
    pub(crate) fn epoch_len(&self) -> usize {
        self.loader.len()
    }

    /// The next batch.
    pub(crate) fn position(&self) -> LoaderState {
        self.position
    }

    /// The finished epochs.
    pub(crate) fn epochs(&self) -> &[EpochResult] {
        &self.epochs
    }

    /// The epoch under way. Waits for the device.
    ///
    /// # Errors
    /// Its loss is no number: training diverged.
    pub(crate) fn running(&self) -> Result<Running, Failure> {
        let running = self.tally.read()?;
        if !running.loss_sum.is_finite() {
            return Err(self.diverged(running.loss(), "in", Some(self.position.batch)));
        }
        Ok(running)
    }

    /// The batches of the epoch that are left.
    pub(crate) fn batches(&self) -> Result<Epoch<(Tensor, Tensor)>, Failure> {
        Ok(self.loader.resume(self.position)?)
    }

    /// Trains on one batch and returns the number of its samples. On a GPU it only asks for the work.
    pub(crate) fn step(&mut self, (samples, classes): (Tensor, Tensor)) -> Result<usize, Failure> {
        self.optimizer.zero_grad();
        let (scores, targets) =
            self.answer(&samples.to(self.device)?, &classes.to(self.device)?)?;
        let loss = scores.cross_entropy(&targets, CrossEntropy::default())?;
        loss.backward()?;
        if let Some(max_norm) = self.task.max_norm {
            clip_grad_norm_(&self.model.parameters(), max_norm)?;
        }
        self.optimizer.step()?;
        self.scheduler.step(&mut self.optimizer)?;

        no_grad(|| self.tally.add(&loss, &scores, &targets))?;
        self.position.batch += 1;
        // Here looking costs nothing. A GPU would have to be waited for: there the sums tell, when they are read.
        if self.device.is_cpu() {
            let mean = loss.item()?;
            if !mean.is_finite() {
                return Err(self.diverged(mean, "in", Some(self.position.batch)));
            }
        }
        Ok(samples.shape()[0])
    }

    /// The network's scores as rows `[n, classes]`, and the right classes `[n]`: a sample may have many.
    fn answer(&self, samples: &Tensor, classes: &Tensor) -> Result<(Tensor, Tensor)> {
        let scores = self.model.forward(samples)?;
        if classes.ndim() == 1 {
            return Ok((scores, classes.clone()));
        }
        Ok((scores.flatten(0, -2)?, classes.flatten(0, -1)?))
    }

    /// Evaluates after the last batch of an epoch, and goes on to the next one.
    pub(crate) fn end_epoch(&mut self) -> Result<(), Failure> {
        let running = self.running()?;
        let evaluation = self.evaluate(&mut |_, _| Ok(()))?;
        if !evaluation.loss.is_finite() {
            return Err(self.diverged(evaluation.loss, "on the test set after", None));
        }
        self.epochs.push(EpochResult {
            train_loss: running.loss(),
            train_accuracy: running.accuracy(),
            test_loss: evaluation.loss,
            test_accuracy: evaluation.accuracy,
            lr: self.optimizer.lr(0),
        });
        self.tally = Tally::of(Running::default(), self.device)?;
        self.position.epoch += 1;
        self.position.batch = 0;
        Ok(())
    }

    /// The network, in evaluation mode while `with` has it.
    pub(crate) fn with_model<T>(&self, with: impl FnOnce(&dyn Module) -> T) -> T {
        self.model.eval();
        let result = no_grad(|| with(&*self.model));
        self.model.train();
        result
    }

    /// How the network does on the test set. `each` sees the scores `[n, classes]` and right classes `[n]` of each batch.
    pub(crate) fn evaluate(
        &self,
        each: &mut dyn FnMut(&Tensor, &Tensor) -> Result<()>,
    ) -> Result<Evaluation, Failure> {
        Ok(self.with_model(|_| {
            let mut tally = Tally::of(Running::default(), self.device)?;
            for (samples, classes) in &self.test {
                let (scores, targets) = self.answer(samples, classes)?;
                let loss = scores.cross_entropy(&targets, CrossEntropy::default())?;
                tally.add(&loss, &scores, &targets)?;
                each(&scores, &targets)?;
            }
            let sums = tally.read()?;
            Ok::<_, Error>(Evaluation {
                loss: sums.loss(),
                accuracy: sums.accuracy(),
            })
        })?)
    }

    fn diverged(&self, loss: f64, place: &'static str, batch: Option<usize>) -> Failure {
        Failure::Diverged {
            loss,
            place,
            epoch: self.epochs.len() + 1,
            batch,
            lr: self.settings.lr,
        }
    }
}

fn object(numbers: Vec<(String, f64)>) -> Value {
    let pairs = numbers.into_iter();
    Value::Object(pairs.map(|(name, number)| (name, json!(number))).collect())
}

fn numbers(object: &Map<String, Value>) -> Option<Vec<(String, f64)>> {
    let pairs = object.iter();
    pairs
        .map(|(name, number)| Some((name.clone(), number.as_f64()?)))
        .collect()
}
