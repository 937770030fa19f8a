//! `fireclay train`: from flags to a trained network in a folder.
//!
//! Note [Same bits]
//! `model.safetensors` holds nothing that depends on time, place, threads or workers: the same settings
//! and data give the same bytes, whether the run was interrupted or not. What was measured by the clock goes to
//! `metrics.jsonl` alone.

mod images;
mod material;
mod metrics;
mod report;
mod run_folder;
mod session;
mod settings;
mod tally;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ArgMatches;
use fireclay::checkpoint;

use crate::arguments::{self, given, optional};
use crate::failure::Failure;
use crate::interrupt;
use crate::task::{Subject, Task};
use images::Images;
use material::Material;
use metrics::Timing;
use report::Report;
use run_folder::RunFolder;
use session::Session;
use settings::{Flags, Settings};
use text::Text;

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
            flags: Flags::of(task, matches),
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
    let data = request.data.as_deref();
    let material: Box<dyn Material> = match &task.subject {
        Subject::Digits(digits) => Box::new(Images::load(digits, data, &settings)?),
        Subject::Text(_) => Box::new(Text::load(data, &settings)?),
    };
    let material = &*material;
    let mut session = Session::new(task, settings, material, device, request.workers)?;
    if let (Some(path), Some(saved)) = (&request.resume, &saved) {
        session.resume(path, saved)?;
    }
    let (out, resume) = (request.out(), request.resume.as_deref());
    let folder = RunFolder::open(&out, resume, material.files())?;
    let mut timings = folder.timings(session.epochs());
    drop(saved);
    if resume.is_some() && !session.epochs().is_empty() {
        // What a run that was cut off right after its checkpoint has not written; of one that has ended all, for another folder.
        if session.epochs().len() >= session.settings().epochs {
            save(&session, &folder, &timings)?;
        } else {
            folder.keep_previous_run()?;
            folder.write_metrics(session.epochs(), &timings)?;
        }
        material.resumed(&session, &folder)?;
    }

    let mut report = Report::begin(&session, material, &folder);
    interrupt::watch();
    while session.epochs().len() < session.settings().epochs {
        run_epoch(&mut session, material, &folder, &mut timings, &mut report)?;
    }
    let line = material.finish(&session, &folder)?;
    report.finish(material, &folder);
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// Trains one epoch, or what is left of it, and saves.
fn run_epoch(
    session: &mut Session,
    material: &dyn Material,
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
    if let Some(text) = material.after_epoch(session, folder)? {
        report.show(&text);
    }
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

/// The FNV-1a hash, 64 bits: against mistakes, not against malice.
fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}
