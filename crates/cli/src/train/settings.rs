//! `Settings`: what decides the result of a run, from flags or from a checkpoint.

use std::path::Path;

use clap::ArgMatches;
use fireclay::checkpoint::{Checkpoint, TrainingState};
use fireclay::{Device, Error};
use serde_json::{Map, Value, json};

use crate::arguments::optional;
use crate::failure::Failure;
use crate::gpt::Shape;
use crate::task::{TASKS, Task};

/// What decides the result of a run, with the data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Settings {
    pub(crate) epochs: usize,
    pub(crate) batch_size: usize,
    pub(crate) lr: f64,
    pub(crate) seed: u64,
    /// The most training samples.
    pub(crate) limit: Option<usize>,
    /// The network's shape, where there is a choice.
    pub(crate) shape: Option<Shape>,
}

/// The flags of settings, where given.
pub(crate) struct Flags {
    epochs: Option<usize>,
    batch_size: Option<usize>,
    lr: Option<f64>,
    seed: Option<u64>,
    limit: Option<usize>,
    shape: Vec<(&'static str, Option<usize>)>,
}

impl Flags {
    pub(crate) fn of(task: &Task, matches: &ArgMatches) -> Flags {
        let sizes = task.shape().map_or(vec![], |shape| shape.sizes().into());
        Flags {
            epochs: optional(matches, "epochs"),
            batch_size: optional(matches, "batch-size"),
            lr: optional(matches, "lr"),
            seed: optional(matches, "seed"),
            limit: optional(matches, "limit"),
            shape: (sizes.into_iter())
                .map(|(name, _)| (name, optional(matches, name)))
                .collect(),
        }
    }
}

impl Settings {
    /// The settings of a new run. The defaults are told in the help of the flags.
    pub(crate) fn new(task: &Task, flags: &Flags) -> Settings {
        Settings {
            epochs: flags.epochs.unwrap_or(task.epochs),
            batch_size: flags.batch_size.unwrap_or(task.batch_size),
            lr: flags.lr.unwrap_or(task.lr),
            seed: flags.seed.unwrap_or(0),
            limit: flags.limit,
            shape: task.shape().map(|shape| {
                let given = |name| flags.shape.iter().find(|(flag, _)| *flag == name)?.1;
                Shape::of_sizes(
                    shape
                        .sizes()
                        .map(|(name, size)| given(name).unwrap_or(size)),
                )
            }),
        }
    }

    /// The settings of the run that `path` is a checkpoint of.
    ///
    /// # Errors
    /// A file of another command, or a flag that says something else.
    pub(crate) fn saved(
        task: &Task,
        path: &Path,
        checkpoint: &Checkpoint,
        flags: &Flags,
    ) -> Result<Settings, Failure> {
        let state = TrainingState::from_checkpoint(checkpoint, Device::Cpu)?;
        let command = state.extra.get("command").and_then(Value::as_str);
        let other = TASKS.iter().find(|other| command == Some(&other.command()));
        if let Some(other) = other.filter(|other| other.name != task.name) {
            return Err(Failure::Refused(format!(
                "{} is a checkpoint of `fireclay {}`; go on with `fireclay {1} --resume`",
                path.display(),
                other.command()
            )));
        }
        let settings = match other {
            Some(_) => Settings::of_json(task, &state.extra),
            None => None,
        }
        .ok_or_else(|| foreign(task, path))?;
        let text = |value: &dyn ToString| value.to_string();
        let limit =
            |limit: Option<usize>| limit.map_or("no limit".into(), |limit| limit.to_string());
        let pairs = [
            (
                "epochs",
                flags.epochs.map(|v| text(&v)),
                text(&settings.epochs),
            ),
            (
                "batch-size",
                flags.batch_size.map(|v| text(&v)),
                text(&settings.batch_size),
            ),
            (
                "lr",
                flags.lr.map(|v| format!("{v:?}")),
                format!("{:?}", settings.lr),
            ),
            ("seed", flags.seed.map(|v| text(&v)), text(&settings.seed)),
            (
                "limit",
                flags.limit.map(|v| text(&v)),
                limit(settings.limit),
            ),
        ];
        let sizes = settings.shape.map_or(vec![], |shape| shape.sizes().into());
        let shape = (flags.shape.iter().zip(&sizes))
            .map(|((name, flag), (_, saved))| (*name, flag.map(|v| text(&v)), text(saved)));
        for (name, flag, saved) in pairs.into_iter().chain(shape) {
            if let Some(flag) = flag.filter(|flag| *flag != saved) {
                return Err(Failure::Refused(format!(
                    "--{name} {flag} conflicts with --resume {}, whose run has {name} {saved}; leave out --{name}, or start a \
                     new run without --resume",
                    path.display()
                )));
            }
        }
        Ok(settings)
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "seed": self.seed,
            "limit": self.limit,
            "shape": self.shape.map(|shape| {
                let sizes = shape.sizes().into_iter();
                Value::Object(sizes.map(|(name, size)| (name.to_owned(), json!(size))).collect())
            }),
        })
    }

    fn of_json(task: &Task, extra: &Map<String, Value>) -> Option<Settings> {
        let settings = extra.get("settings")?;
        let count = |name: &str| settings[name].as_u64().filter(|&count| count > 0);
        Some(Settings {
            epochs: count("epochs")? as usize,
            batch_size: count("batch_size")? as usize,
            lr: settings["lr"].as_f64()?,
            seed: settings["seed"].as_u64()?,
            limit: match &settings["limit"] {
                Value::Null => None,
                limit => Some(limit.as_u64()? as usize),
            },
            shape: match (task.shape(), &settings["shape"]) {
                (None, _) => None,
                (Some(shape), saved) => {
                    let mut sizes = shape.sizes().map(|(_, size)| size);
                    for ((name, _), size) in shape.sizes().into_iter().zip(&mut sizes) {
                        *size = saved[name].as_u64().filter(|&size| size > 0)? as usize;
                    }
                    Some(Shape::of_sizes(sizes))
                }
            },
        })
    }
}

/// The error of a checkpoint that no `train` of this task wrote, or that of another version.
pub(crate) fn foreign(task: &Task, path: &Path) -> Failure {
    Failure::Fireclay(Error::InvalidFile {
        path: path.into(),
        what: format!(
            "it is no checkpoint of `fireclay {}` of this version",
            task.command()
        ),
        hint: "give --resume the model.safetensors of an interrupted run".into(),
    })
}
