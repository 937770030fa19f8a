//! `fireclay train`: from flags to a trained network in a folder.
//!
//! Note [Same bits]
//! `model.safetensors` holds nothing that depends on time, place, threads or workers: the same settings
//! and data give the same bytes, whether the run was interrupted or not. What was measured by the clock goes to
//! `metrics.jsonl` alone.

mod images;
mod metrics;
mod report;
mod run_folder;
mod session;
mod settings;
mod tally;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ArgMatches;
use fireclay::checkpoint;

use crate::arguments::{self, given, optional};
use crate::failure::Failure;
use crate::interrupt;
use crate::picture::contact_sheet::{Prediction, contact_sheet};
use crate::task::Task;
use images::Images;
use metrics::{Evaluation, Timing};
use report::Report;
use run_folder::RunFolder;
use session::Session;
use settings::{Flags, Settings};

/// Digits on `predictions.png`.
const MOST_SHOWN: usize = 100;

/// What the command line asks for.
pub(crate) struct Request {
    task: &'static Task,
    device: String,
    flags: Flags,
    threads: Option<usize>,
    workers: usize,
    out: Option<PathBuf>,
    resume: Option<PathBuf>,
    data: Option<PathBuf>,
}

impl Request {
    pub(crate) fn of(task: &'static Task, matches: &ArgMatches) -> Request {
        Request {
            task,
            device: given(matches, "device"),
            flags: Flags::of(matches),
            threads: optional(matches, "threads"),
            workers: given(matches, "workers"),
            out: optional(matches, "out"),
            resume: optional(matches, "resume"),
            data: optional(matches, "data"),
        }
    }

    /// The folder of results.
    fn out(&self) -> PathBuf {
        match (&self.out, self.resume.as_deref().and_then(Path::parent)) {
            (Some(out), _) => out.clone(),
            (None, Some(folder)) if folder == Path::new("") => PathBuf::from("."),
            (None, Some(folder)) => folder.into(),
            (None, None) => Path::new("runs").join(self.task.name),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    // All that can be wrong is looked at before anything is written.
    let task = request.task;
    let device = arguments::device(&request.device, || task.auto_device())?;
    arguments::set_threads(request.threads);
    let saved = request
        .resume
        .as_deref()
        .map(checkpoint::load)
        .transpose()?;
    let settings = match (&request.resume, &saved) {
        (Some(path), Some(saved)) => Settings::saved(task, path, saved, &request.flags)?,
        _ => Settings::new(task, &request.flags),
    };
    let images = Images::load(task, request.data.as_deref(), &settings)?;
    let mut session = Session::new(settings, &images, device, request.workers)?;
    if let (Some(path), Some(saved)) = (&request.resume, &saved) {
        session.resume(path, saved)?;
    }
    let folder = RunFolder::open(&request.out(), request.resume.as_deref())?;
    let mut timings = folder.timings(session.epochs());
    drop(saved);

    let mut report = Report::begin(&session, &images, &folder);
    interrupt::watch();
    while session.epochs().len() < session.settings().epochs {
        run_epoch(&mut session, &folder, &mut timings, &mut report)?;
    }
    finish(&session, &images, &folder, &report)
}

/// Trains one epoch, or what is left of it, and saves.
fn run_epoch(
    session: &mut Session,
    folder: &RunFolder,
    timings: &mut Vec<Option<Timing>>,
    report: &mut Report,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut samples = 0;
    report.begin_epoch(session);
    let mut batches = session.batches()?;
    while let Some(batch) = batches.next() {
        samples += session.step(batch?)?;
        report.step(session, samples as f64 / start.elapsed().as_secs_f64())?;
        if interrupt::requested() && batches.remaining() > 0 {
            drop(batches);
            report.end();
            return Err(interrupted(session, folder, timings)?);
        }
    }
    drop(batches);
    let trained = start.elapsed().as_secs_f64();
    session.end_epoch()?;
    timings.push(Some(Timing {
        seconds: start.elapsed().as_secs_f64(),
        samples_per_second: samples as f64 / trained,
    }));
    save(session, folder, timings)?;
    report.end_epoch(session, timings.last().copied().flatten());
    if interrupt::requested() && session.epochs().len() < session.settings().epochs {
        report.end();
        return Err(interrupted(session, folder, timings)?);
    }
    Ok(())
}

/// Saves, and says how to go on.
fn interrupted(
    session: &Session,
    folder: &RunFolder,
    timings: &[Option<Timing>],
) -> Result<Failure, Failure> {
    save(session, folder, timings)?;
    let position = session.position();
    Ok(Failure::Interrupted {
        command: session.task().command(),
        epoch: position.epoch,
        batch: position.batch,
        checkpoint: folder.checkpoint(),
    })
}

fn save(session: &Session, folder: &RunFolder, timings: &[Option<Timing>]) -> Result<(), Failure> {
    folder.keep_previous_run()?;
    session.state()?.save(folder.checkpoint())?;
    folder.write_metrics(session.epochs(), timings)
}

/// The last evaluation: the pictures and the line on standard output.
fn finish(
    session: &Session,
    images: &Images,
    folder: &RunFolder,
    report: &Report,
) -> Result<(), Failure> {
    let evaluation = session.evaluate()?;
    let sheet = sheet(session, images, &evaluation)?;
    folder.write_predictions(&sheet)?;
    report.finish(folder);
    let (right, total) = (evaluation.right(), evaluation.answers.len());
    let accuracy = evaluation.accuracy();
    let line = format!("test accuracy {accuracy:.4} ({right} of {total})\n");
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

/// The contact sheet: the wrong answers, then right ones.
fn sheet(session: &Session, images: &Images, evaluation: &Evaluation) -> Result<Vec<u8>, Failure> {
    let mut shown = Vec::new();
    for wanted in [false, true] {
        for (place, answer) in evaluation.answers.iter().enumerate() {
            if answer.is_right() == wanted && shown.len() < MOST_SHOWN {
                shown.push(Prediction {
                    image: images.test_image(place)?,
                    truth: answer.truth,
                    predicted: answer.predicted,
                    confidence: answer.confidence,
                });
            }
        }
    }
    let title = format!(
        "{} of {} test digits right, seed {}",
        evaluation.right(),
        evaluation.answers.len(),
        session.settings().seed
    );
    contact_sheet(&title, &shown)
        .map_err(|error| Failure::Refused(format!("the contact sheet cannot be encoded: {error}")))
}
