//! `RunFolder`: the files of a run. Every file is written aside, synced and renamed, so that it is whole at any time.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::metrics::{EpochResult, Timing};
use crate::failure::Failure;
use crate::picture::curve::{EpochMetrics, curve_svg};

const CHECKPOINT: &str = "model.safetensors";
const PREVIOUS: &str = "model.previous.safetensors";
const METRICS: &str = "metrics.jsonl";
const CURVE: &str = "curve.svg";

/// The folder of a run.
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Files besides those of every run.
    others: &'static [&'static str],
    /// Whether the checkpoint there, if any, is of another run and has not been put aside yet.
    is_foreign: Cell<bool>,
}

impl RunFolder {
    /// Makes the folder if there is none, and makes sure that files can be written there. `resumed` is the checkpoint that
    /// the run goes on from; `others` are files that the run writes besides those of every run.
    ///
    /// # Errors
    /// A folder that cannot be made or written; a folder in the place of a file.
    pub(crate) fn open(
        path: &Path,
        resumed: Option<&Path>,
        others: &'static [&'static str],
    ) -> Result<RunFolder, Failure> {
        let failed = |action, path: &Path, cause| Failure::File {
            action,
            path: path.into(),
            cause,
            hint: "choose a folder that can be written with --out",
        };
        fs::create_dir_all(path).map_err(|cause| failed("making the folder", path, cause))?;
        let probe = aside(path, "probe");
        File::create(&probe)
            .and_then(|mut file| file.write_all(b"probe"))
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|cause| failed("writing into the folder", path, cause))?;
        for name in [CHECKPOINT, PREVIOUS, METRICS, CURVE].iter().chain(others) {
            let target = path.join(name);
            if target.is_dir() {
                return Err(failed(
                    "writing",
                    &target,
                    io::ErrorKind::IsADirectory.into(),
                ));
            }
        }
        let own = fs::canonicalize(path.join(CHECKPOINT)).ok();
        let resumed = resumed.and_then(|resumed| fs::canonicalize(resumed).ok());
        Ok(RunFolder {
            path: path.into(),
            others,
            is_foreign: Cell::new(own.is_some() && own != resumed),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the checkpoint goes.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// The times of the epochs in `results` that an earlier part of this run wrote down.
    pub(crate) fn timings(&self, results: &[EpochResult]) -> Vec<Option<Timing>> {
        let text = fs::read_to_string(self.path.join(METRICS)).unwrap_or_default();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
        results
            .iter()
            .map(|result| {
                let line = lines.next()?;
                let is_same = EpochResult::of_json(&line) == Some(*result);
                is_same.then(|| Timing::of_json(&line)).flatten()
            })
            .collect()
    }

    /// Before the first checkpoint of a run: keeps that of another run under another name, and clears away the reports that
    /// went with it. Later calls do nothing.
    pub(crate) fn keep_previous_run(&self) -> Result<(), Failure> {
        if !self.is_foreign.replace(false) {
            return Ok(());
        }
        let (own, previous) = (self.checkpoint(), self.path.join(PREVIOUS));
        let temporary = aside(&self.path, PREVIOUS);
        // Two names for one file, until the new checkpoint takes the first by renaming: at no time is there none.
        let _ = fs::remove_file(&temporary);
        fs::hard_link(&own, &temporary)
            .or_else(|_| fs::copy(&own, &temporary).map(drop))
            .and_then(|()| fs::rename(&temporary, &previous))
            .map_err(|cause| unwritable(&previous, cause))?;
        say!(
            "the checkpoint of an earlier run is now {}",
            previous.display()
        );
        for name in self.others {
            match fs::remove_file(self.path.join(name)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(unwritable(&self.path.join(name), cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes `metrics.jsonl` and `curve.svg`.
    pub(crate) fn write_metrics(
        &self,
        results: &[EpochResult],
        timings: &[Option<Timing>],
    ) -> Result<(), Failure> {
        let lines: String = (results.iter().zip(timings).enumerate())
            .map(|(place, (result, timing))| result.line(place + 1, *timing) + "\n")
            .collect();
        let points: Vec<EpochMetrics> = results
            .iter()
            .map(|result| EpochMetrics {
                train_loss: result.train_loss,
                test_loss: result.test_loss,
                test_accuracy: result.test_accuracy,
            })
            .collect();
        self.write(METRICS, lines.as_bytes())?;
        self.write(CURVE, curve_svg(&points).as_bytes())
    }

    /// The text of a file of this run; nothing if there is no such file yet.
    pub(crate) fn read(&self, name: &str) -> Result<String, Failure> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(cause) => Err(Failure::File {
                action: "reading",
                path,
                cause,
                hint: "the checkpoint is safe; make the file readable, then go on with --resume",
            }),
        }
    }

    /// Writes a file of this run.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let (target, temporary) = (self.path.join(name), aside(&self.path, name));
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, &target));
        written.map_err(|cause| {
            let _ = fs::remove_file(&temporary);
            unwritable(&target, cause)
        })
    }
}

/// Where a file stands until it is whole. The process's number keeps two runs in one folder apart.
fn aside(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.{}.tmp", std::process::id()))
}

fn unwritable(path: &Path, cause: io::Error) -> Failure {
    Failure::File {
        action: "writing",
        path: path.into(),
        cause,
        hint: "the checkpoint is safe; make room, then go on with --resume",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(train_loss: f64) -> EpochResult {
        EpochResult {
            train_loss,
            train_accuracy: 0.5,
            test_loss: 1.0,
            test_accuracy: 0.25,
            lr: 0.1,
        }
    }

    #[test]
    fn times_are_taken_over_for_the_same_results_only() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path(), None, &[]).unwrap();
        let timing = |seconds| {
            Some(Timing {
                seconds,
                samples_per_second: 7.5,
            })
        };
        let results = [result(0.3), result(0.2), result(0.1)];
        assert_eq!(run.timings(&results), [None; 3]);
        run.write_metrics(&results, &[timing(1.0), None, timing(3.0)])
            .unwrap();
        assert_eq!(run.timings(&results), [timing(1.0), None, timing(3.0)]);
        assert_eq!(run.timings(&results[..1]), [timing(1.0)]);
        let other = [result(0.3), result(0.2), result(0.15), result(0.05)];
        assert_eq!(run.timings(&other), [timing(1.0), None, None, None]);
        fs::write(folder.path().join(METRICS), "no json\n").unwrap();
        assert_eq!(run.timings(&results), [None; 3]);
    }

    #[test]
    fn the_checkpoint_of_another_run_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join(CHECKPOINT);
        fs::write(&own, "old").unwrap();
        let previous = folder.path().join(PREVIOUS);
        RunFolder::open(folder.path(), Some(&own), &[])
            .unwrap()
            .keep_previous_run()
            .unwrap();
        assert!(!previous.exists(), "it is the run's own");
        let run = RunFolder::open(folder.path(), None, &[]).unwrap();
        run.keep_previous_run().unwrap();
        assert_eq!(fs::read_to_string(&previous).unwrap(), "old");
        run.write(CHECKPOINT, b"new").unwrap();
        run.keep_previous_run().unwrap();
        assert_eq!(fs::read_to_string(&previous).unwrap(), "old");
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let text = RunFolder::open(&file, None, &[]).err().unwrap().to_string();
        assert!(text.contains("file") && text.contains("--out"), "{text}");
        fs::create_dir(folder.path().join(METRICS)).unwrap();
        let text = RunFolder::open(folder.path(), None, &[])
            .err()
            .unwrap()
            .to_string();
        assert!(text.contains(METRICS), "{text}");
    }
}
